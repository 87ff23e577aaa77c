//! Answers: what a request gets, as the bytes of a head and a part of a file to follow.

use std::hash::BuildHasher;
use std::io::Write;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use http::StatusCode;

use crate::serve::body::{Body, FileRange, MultipartRanges, RequestedRanges, content_range, parse_range};
use crate::serve::cache_control::CacheRules;
use crate::serve::content_coding;
use crate::serve::decoded_path::DecodedPath;
use crate::serve::host::AllowedHosts;
use crate::serve::limits::ServerLimits;
use crate::serve::listing::{self, ListingCache};
use crate::serve::open_file_cache::{OpenFile, OpenFileCache, ResolvedPath};
use crate::serve::request::{HttpRequest, Scheme};
use crate::serve::stats_sources::StatsSources;

/// How often a file that changes while it is answered about is looked at again.
const MAX_ATTEMPTS: usize = 4;
/// Most bytes of a file that states none: each connection has its own, as it has small files.
const MAX_UNSIZED_BYTES: usize = 16 << 10;

/// How a site answers.
#[derive(Clone, Debug, Default)]
pub struct SiteConfig {
    /// What its URLs begin with.
    pub scheme: Scheme,
    /// By which names it may be asked.
    pub names: AllowedHosts,
    /// Whether directories are listed.
    pub lists_directories: bool,
    /// Whether clients that take compressed files are sent those that lie beside the ones that they ask for.
    pub sends_compressed: bool,
    /// What caches are told of files.
    pub cache_rules: Arc<CacheRules>,
    /// The lists that are being sent.
    pub listings: Arc<ListingCache>,
    /// Files up to this size are read into memory behind their heads, so that one call sends both.
    pub inline_limit: u64,
    /// The limits.
    pub limits: ServerLimits,
    /// What is answered instead of files.
    pub stats: Option<Arc<StatsSources>>,
}

/// The files below a root, and all that answers about them need. Each thread has its own.
#[derive(Debug)]
pub struct Site {
    /// The files that it holds open between requests.
    pub(crate) files: OpenFileCache,
    pub(crate) config: SiteConfig,
    clock: CachedDate,
    /// Whether every answer is the last one of its connection.
    pub is_draining: bool,
    /// Requests that were answered.
    pub(crate) answered: u64,
}

/// The file that was to be sent is not what it was.
struct FileChanged;

/// The outcome for a file: what follows the head.
type BodyResult = Result<Option<Body>, FileChanged>;

impl Site {
    /// Of these files.
    pub fn new(mut files: OpenFileCache, config: SiteConfig) -> Self {
        let clock = CachedDate::new();
        files.set_wall_clock(clock.wall_clock);
        (files.finds_compressed, files.cache_rules) = (config.sends_compressed, Arc::clone(&config.cache_rules));
        Self { files, config, clock, is_draining: false, answered: 0 }
    }

    /// Sets the clock.
    pub fn tick(&mut self, now: Instant) {
        if self.clock.tick(now) {
            self.files.set_wall_clock(self.clock.wall_clock);
        }
    }

    /// The time that was set last.
    pub fn now(&self) -> Instant {
        self.clock.now
    }

    /// Appends the head of the answer, and returns what follows it.
    pub fn answer(&mut self, request: &HttpRequest<'_>, out: &mut Vec<u8>) -> Option<Body> {
        if !self.config.names.allows(request.host) {
            return self.error_response(request, StatusCode::MISDIRECTED_REQUEST, out);
        }
        if let Some(stats) = &self.config.stats {
            return match stats.snapshot(request) {
                Ok(json) => self.write_content(request, &MemoryContent::ok("application/json", json.as_bytes()), out),
                Err(status) => self.error_response(request, status, out),
            };
        }
        let begin = out.len();
        for _ in 0..MAX_ATTEMPTS {
            let open_file = match self.files.lookup(request.path, self.clock.now) {
                Ok(ResolvedPath::File(open_file)) => open_file,
                Ok(ResolvedPath::Directory(target)) if target.is_directory => {
                    return self.directory_response(request, &target, out);
                }
                Ok(ResolvedPath::Directory(target)) => {
                    let query = request.query.map_or_else(String::new, |query| format!("?{query}"));
                    let field = format!("Location: {}{query}\r\n", target.location());
                    return self.text_response(request, StatusCode::MOVED_PERMANENTLY, &field, out);
                }
                Err(status) => return self.error_response(request, status, out),
            };
            match self.file_response(request, &open_file, out) {
                Ok(body) => return body,
                Err(FileChanged) => {
                    out.truncate(begin);
                    if let Some(content) = open_file.read_overstated(MAX_UNSIZED_BYTES) {
                        return self.write_content(request, &MemoryContent::ok(open_file.media_type, &content), out);
                    }
                    self.files.invalidate(request.path);
                }
            }
        }
        self.error_response(request, StatusCode::SERVICE_UNAVAILABLE, out)
    }

    /// Appends the answer to what is no request that can be obeyed; the connection ends after it.
    pub fn refuse(&self, status: StatusCode, out: &mut Vec<u8>) {
        self.error_response(&HttpRequest { is_http_1_1: true, ..HttpRequest::default() }, status, out);
    }

    /// Whether the connection stays open after the answer.
    pub fn keeps_alive(&self, request: &HttpRequest<'_>) -> bool {
        request.keep_alive && !self.is_draining && self.config.stats.is_none()
    }

    fn file_response(&self, request: &HttpRequest<'_>, open_file: &Arc<OpenFile>, out: &mut Vec<u8>) -> BodyResult {
        let open_file = match &open_file.compressed[..] {
            [] => open_file,
            _ => match content_coding::choose(request, open_file) {
                Some(open_file) => open_file,
                None => return Ok(self.error_response(request, StatusCode::NOT_ACCEPTABLE, out)),
            },
        };
        if open_file.may_exceed_stated_size {
            match open_file.read_unstated(MAX_UNSIZED_BYTES) {
                Ok(Some(content)) if content.is_empty() => {}
                // What was written since it was opened is stated now.
                _ if !open_file.is_unchanged() => return Err(FileChanged),
                Ok(Some(content)) => {
                    let content = MemoryContent::ok(open_file.media_type, &content);
                    return Ok(self.write_content(request, &content, out));
                }
                Ok(None) | Err(_) => return Ok(self.error_response(request, StatusCode::FORBIDDEN, out)),
            }
        }
        match open_file.validators.evaluate_preconditions(&request.fields) {
            Some(StatusCode::NOT_MODIFIED) => {
                self.write_head_start(request, StatusCode::NOT_MODIFIED, out);
                out.extend_from_slice(open_file.common_head());
                out.extend_from_slice(b"\r\n");
                return Ok(None);
            }
            Some(status) => return Ok(self.error_response(request, status, out)),
            None => {}
        }
        let size = open_file.identity.size;
        let accepts_range =
            !request.is_head && open_file.validators.matches_if_range(request.fields.if_range, self.clock.wall_clock);
        let range = request.fields.range.filter(|_| accepts_range);
        match range.map_or(RequestedRanges::Whole, |range| parse_range(range, size)) {
            RequestedRanges::Whole => self.full_response(request, open_file, out),
            // Several parts are not what is coded, and a client would decode them as if they were.
            RequestedRanges::Ranges(ranges) if ranges.len() > 1 && open_file.coding.is_some() => {
                self.full_response(request, open_file, out)
            }
            RequestedRanges::Ranges(ranges) => self.range_response(request, open_file, ranges, out),
            RequestedRanges::Unsatisfiable => {
                let field = format!("Content-Range: bytes */{size}\r\n");
                Ok(self.text_response(request, StatusCode::RANGE_NOT_SATISFIABLE, &field, out))
            }
        }
    }

    #[inline]
    fn full_response(&self, request: &HttpRequest<'_>, open_file: &Arc<OpenFile>, out: &mut Vec<u8>) -> BodyResult {
        self.write_head_start(request, StatusCode::OK, out);
        out.extend_from_slice(open_file.head.as_bytes());
        let size = open_file.identity.size;
        if request.is_head || (size == 0 && open_file.is_unchanged()) {
            return Ok(None);
        }
        if size <= self.config.inline_limit {
            return if open_file.try_append_to(out) { Ok(None) } else { Err(FileChanged) };
        }
        unchanged_range(open_file, 0..size)
    }

    fn range_response(
        &self,
        request: &HttpRequest<'_>,
        open_file: &Arc<OpenFile>,
        mut ranges: Vec<Range<u64>>,
        out: &mut Vec<u8>,
    ) -> BodyResult {
        self.write_head_start(request, StatusCode::PARTIAL_CONTENT, out);
        out.extend_from_slice(open_file.common_head());
        if ranges.len() > 1 {
            // Nobody can know the boundary before.
            let parts = MultipartRanges::new(Arc::clone(open_file), ranges, self.clock.random.hash_one(self.clock.now));
            out.extend_from_slice(parts.head().as_bytes());
            return if open_file.is_unchanged() {
                Ok(Some(Body::Multipart(Box::new(parts))))
            } else {
                Err(FileChanged)
            };
        }
        let range = ranges.remove(0);
        let (media_type, field) = (open_file.media_type, content_range(&range, open_file.identity.size));
        let length = range.end - range.start;
        let _ = write!(out, "Content-Type: {media_type}\r\n{field}Content-Length: {length}\r\n\r\n");
        unchanged_range(open_file, range)
    }

    /// A directory: the file that stands for it, or what is in it.
    fn directory_response(&mut self, request: &HttpRequest<'_>, path: &DecodedPath, out: &mut Vec<u8>) -> Option<Body> {
        let index = format!("{}index.html", request.path);
        if let Ok(ResolvedPath::File(open_file)) = self.files.lookup(&index, self.clock.now) {
            let begin = out.len();
            if let Ok(body) = self.file_response(&HttpRequest { path: &index, ..*request }, &open_file, out) {
                return body;
            }
            out.truncate(begin);
            self.files.invalidate(&index);
            return self.error_response(request, StatusCode::SERVICE_UNAVAILABLE, out);
        }
        if !self.config.lists_directories {
            return self.error_response(request, StatusCode::FORBIDDEN, out);
        }
        let page = listing::render_listing(&self.files.root, path);
        let page = page.and_then(|text| Ok((self.config.listings.cache_page(&text)?, text)));
        let media_type = "text/html; charset=utf-8";
        match page {
            Err(status) => self.error_response(request, status, out),
            Ok((None, text)) => self.write_content(request, &MemoryContent::ok(media_type, text.as_bytes()), out),
            Ok((Some(open_file), _)) => {
                let range = 0..open_file.identity.size;
                self.write_head_start(request, StatusCode::OK, out);
                write_content_fields(media_type, range.end, out);
                (!request.is_head).then_some(Body::FileRange(FileRange { open_file, range }))
            }
        }
    }

    fn error_response(&self, request: &HttpRequest<'_>, status: StatusCode, out: &mut Vec<u8>) -> Option<Body> {
        let field = match status {
            StatusCode::METHOD_NOT_ALLOWED => "Allow: GET, HEAD\r\n",
            StatusCode::NOT_ACCEPTABLE => "Vary: Accept-Encoding\r\n",
            StatusCode::SERVICE_UNAVAILABLE => "Retry-After: 1\r\n",
            StatusCode::UNAUTHORIZED => "WWW-Authenticate: Bearer realm=\"kelvin\"\r\n",
            _ => "",
        };
        self.text_response(request, status, field, out)
    }

    /// An answer whose content explains its status, with a header field.
    fn text_response(
        &self,
        request: &HttpRequest<'_>,
        status: StatusCode,
        field: &str,
        out: &mut Vec<u8>,
    ) -> Option<Body> {
        let help = match status {
            StatusCode::MISDIRECTED_REQUEST => format!(
                ": this server is asked for over {}:// by an IP address, by localhost, or by a name that it was given (kelvin serve \
                 --host NAME)",
                self.config.scheme.name()
            ),
            _ => String::new(),
        };
        let text = format!("{} {}{help}\n", status.as_str(), reason_phrase(status));
        let media_type = "text/plain; charset=utf-8";
        self.write_content(request, &MemoryContent { status, field, media_type, bytes: text.as_bytes() }, out)
    }

    /// Appends a whole answer, which nothing follows.
    fn write_content(&self, request: &HttpRequest<'_>, content: &MemoryContent<'_>, out: &mut Vec<u8>) -> Option<Body> {
        self.write_head_start(request, content.status, out);
        out.extend_from_slice(content.field.as_bytes());
        write_content_fields(content.media_type, content.bytes.len() as u64, out);
        if !request.is_head {
            out.extend_from_slice(content.bytes);
        }
        None
    }

    /// The lines that every answer begins with.
    #[inline]
    fn write_head_start(&self, request: &HttpRequest<'_>, status: StatusCode, out: &mut Vec<u8>) {
        out.extend_from_slice(b"HTTP/1.1 ");
        out.extend_from_slice(status.as_str().as_bytes());
        out.push(b' ');
        out.extend_from_slice(reason_phrase(status).as_bytes());
        out.extend_from_slice(&self.clock.lines);
        if self.config.stats.is_some() {
            out.extend_from_slice(b"Cache-Control: no-store\r\n");
        }
        if !self.keeps_alive(request) {
            out.extend_from_slice(b"Connection: close\r\n");
        } else if !request.is_http_1_1 {
            out.extend_from_slice(b"Connection: keep-alive\r\n");
        }
    }
}

/// An answer with content in memory, which has no validators: a text, or what a file has that states no bytes, or more
/// than it has.
struct MemoryContent<'a> {
    status: StatusCode,
    /// A header field of its own, with its line end.
    field: &'a str,
    media_type: &'a str,
    bytes: &'a [u8],
}

impl<'a> MemoryContent<'a> {
    fn ok(media_type: &'a str, bytes: &'a [u8]) -> Self {
        Self { status: StatusCode::OK, field: "", media_type, bytes }
    }
}

/// What a status means, in the words of RFC 9110, of which the library has one in those of its predecessor.
fn reason_phrase(status: StatusCode) -> &'static str {
    match status {
        StatusCode::PAYLOAD_TOO_LARGE => "Content Too Large",
        status => status.canonical_reason().unwrap_or_default(),
    }
}

/// Appends the fields that describe content, and the empty line.
fn write_content_fields(media_type: &str, length: u64, out: &mut Vec<u8>) {
    // Writing into memory cannot fail.
    let _ = write!(out, "Content-Type: {media_type}\r\nContent-Length: {length}\r\n\r\n");
}

/// A part of a file that is still what it was.
fn unchanged_range(open_file: &Arc<OpenFile>, range: Range<u64>) -> BodyResult {
    let body = || Body::FileRange(FileRange { open_file: Arc::clone(open_file), range });
    if open_file.is_unchanged() { Ok(Some(body())) } else { Err(FileChanged) }
}

/// The time, and the header lines that state it, written once a second.
#[derive(Debug)]
struct CachedDate {
    now: Instant,
    wall_clock: SystemTime,
    next: Instant,
    lines: Vec<u8>,
    random: std::hash::RandomState,
}

impl CachedDate {
    fn new() -> Self {
        let now = Instant::now();
        let mut clock =
            Self { now, wall_clock: SystemTime::now(), next: now, lines: Vec::new(), random: Default::default() };
        clock.tick(now);
        clock
    }

    /// Sets the clock; whether that is another second.
    #[inline]
    fn tick(&mut self, now: Instant) -> bool {
        self.now = now;
        if now < self.next {
            return false;
        }
        self.format(now);
        true
    }

    fn format(&mut self, now: Instant) {
        self.wall_clock = SystemTime::now();
        let since_epoch = self.wall_clock.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.next = now + Duration::from_nanos(1_000_000_000 - u64::from(since_epoch.subsec_nanos()));
        // A clock that is set to no year of four digits has none that a date could state.
        let clamped_time = SystemTime::UNIX_EPOCH + since_epoch.min(Duration::from_secs(253_402_300_799));
        // In place: a new text each second, which an allocator puts together from two pieces, made the heap grow for ever.
        self.lines.clear();
        let date = httpdate::HttpDate::from(clamped_time);
        let _ = write!(self.lines, "\r\nServer: kelvin\r\nDate: {date}\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn date_lines_are_rewritten_in_place() {
        let mut clock = CachedDate::new();
        let allocation = (clock.lines.as_ptr(), clock.lines.capacity());
        for _ in 0..3 {
            clock.format(clock.next);
            assert_eq!((clock.lines.as_ptr(), clock.lines.capacity()), allocation);
            assert!(clock.lines.starts_with(b"\r\nServer: kelvin\r\nDate: ") && clock.lines.ends_with(b" GMT\r\n"));
        }
    }
}
