//! Answers: what a request gets, as the bytes of a head and a part of a file to follow.

use std::fmt::Write;
use std::hash::BuildHasher;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use crate::body::{Body, Part, Parts, content_range};
use crate::files::{Entry, Files, Opened};
use crate::host::Names;
use crate::limits::Limits;
use crate::listing::{self, Lists, Page};
use crate::range::{Wanted, wanted};
use crate::request::{Method, Request};
use crate::status::Status;

/// How often a file that changes while it is answered about is looked at again.
const TRIES: usize = 4;
/// Most bytes of a file that states none: each connection has its own, as it has small files.
const UNSTATED: usize = 16 << 10;

/// How a site answers.
#[derive(Clone, Debug, Default)]
pub struct Manner {
    /// By which names it may be asked.
    pub names: Names,
    /// Whether directories are listed.
    pub lists: bool,
    /// The lists that are being sent.
    pub held: Arc<Lists>,
    /// Files up to this size are read into memory behind their heads, so that one call sends both.
    pub inline: u64,
    /// The limits.
    pub limits: Limits,
}

/// The files below a root, and all that answers about them need. Each thread has its own.
#[derive(Debug)]
pub struct Site {
    files: Files,
    manner: Manner,
    clock: Clock,
    /// Whether every answer is the last one of its connection.
    pub is_draining: bool,
}

/// The file that was to be sent is not what it was.
struct Changed;

/// The outcome for a file: what follows the head.
type Answered = Result<Option<Body>, Changed>;

impl Site {
    /// Of these files.
    pub fn new(files: Files, manner: Manner) -> Self {
        let (mut files, clock) = (files, Clock::new());
        files.tell_time(clock.wall);
        Self { files, manner, clock, is_draining: false }
    }

    /// The limits.
    pub fn limits(&self) -> &Limits {
        &self.manner.limits
    }

    /// Closes the files that it holds open between requests.
    pub fn release(&mut self) {
        self.files.forget_all();
    }

    /// Says what time it is.
    pub fn tick(&mut self, now: Instant) {
        if self.clock.tick(now) {
            self.files.tell_time(self.clock.wall);
        }
    }

    /// The time that was said last.
    pub fn now(&self) -> Instant {
        self.clock.now
    }

    /// Appends the head of the answer, and says what follows it.
    pub fn answer(&mut self, request: &Request<'_>, out: &mut Vec<u8>) -> Option<Body> {
        if !self.manner.names.admit(request.host) {
            return self.error(request, Status::MisdirectedRequest, out);
        }
        let begin = out.len();
        for _ in 0..TRIES {
            let opened = match self.files.find(request.path, self.clock.now) {
                Ok(Entry::File(opened)) => opened,
                Ok(Entry::Directory(target)) if target.is_directory => return self.directory(request, &target, out),
                Ok(Entry::Directory(target)) => {
                    let query = request.query.map_or_else(String::new, |query| format!("?{query}"));
                    return self.moved(request, &(target.location() + &query), out);
                }
                Err(status) => return self.error(request, status, out),
            };
            match self.file(request, &opened, out) {
                Ok(body) => return body,
                Err(Changed) => {
                    out.truncate(begin);
                    if let Some(content) = opened.overstated(UNSTATED) {
                        return self.unstated(request, (opened.media_type, &content), out);
                    }
                    self.files.forget(request.path);
                }
            }
        }
        self.error(request, Status::ServiceUnavailable, out)
    }

    /// Appends the answer to what is no request that can be obeyed; the connection ends after it.
    pub fn refuse(&self, status: Status, out: &mut Vec<u8>) {
        let fields = Default::default();
        let request =
            Request { method: Method::Get, path: "", query: None, host: None, is_current: true, keeps: false, fields };
        self.error(&request, status, out);
    }

    /// Whether the connection stays open after the answer.
    pub fn keeps(&self, request: &Request<'_>) -> bool {
        request.keeps && !self.is_draining
    }

    fn file(&self, request: &Request<'_>, opened: &Arc<Opened>, out: &mut Vec<u8>) -> Answered {
        if opened.may_have_unstated {
            match opened.unstated(UNSTATED) {
                Ok(Some(content)) if content.is_empty() => {}
                // What was written since it was opened is stated now.
                _ if !opened.is_unchanged() => return Err(Changed),
                Ok(Some(content)) => return Ok(self.unstated(request, (opened.media_type, &content), out)),
                Ok(None) | Err(_) => return Ok(self.error(request, Status::Forbidden, out)),
            }
        }
        match opened.validators.instead(&request.fields) {
            Some(Status::NotModified) => return Ok(self.not_modified(request, opened, out)),
            Some(status) => return Ok(self.error(request, status, out)),
            None => {}
        }
        let size = opened.identity.size;
        let continues =
            request.method == Method::Get && opened.validators.continues(request.fields.if_range, self.clock.wall);
        match request.fields.range.filter(|_| continues).map_or(Wanted::Whole, |range| wanted(range, size)) {
            Wanted::Whole => self.whole(request, opened, out),
            Wanted::Parts(ranges) => self.parts(request, opened, ranges, out),
            Wanted::Unsatisfiable => {
                let field = format!("Content-Range: bytes */{size}\r\n");
                Ok(self.text(request, (Status::RangeNotSatisfiable, &field), out))
            }
        }
    }

    /// An answer with the content of a file that states no bytes, or more than it has. Nothing tells one state of it from another.
    fn unstated(&self, request: &Request<'_>, (media_type, content): (&str, &[u8]), out: &mut Vec<u8>) -> Option<Body> {
        self.begin(request, Status::Ok, out);
        let length = content.len();
        out.extend_from_slice(format!("Content-Type: {media_type}\r\nContent-Length: {length}\r\n\r\n").as_bytes());
        if request.method == Method::Get {
            out.extend_from_slice(content);
        }
        None
    }

    fn not_modified(&self, request: &Request<'_>, opened: &Opened, out: &mut Vec<u8>) -> Option<Body> {
        self.begin(request, Status::NotModified, out);
        out.extend_from_slice(opened.common_head());
        out.extend_from_slice(b"\r\n");
        None
    }

    #[inline]
    fn whole(&self, request: &Request<'_>, opened: &Arc<Opened>, out: &mut Vec<u8>) -> Answered {
        self.begin(request, Status::Ok, out);
        out.extend_from_slice(opened.whole_head());
        let size = opened.identity.size;
        if request.method == Method::Head || (size == 0 && opened.is_unchanged()) {
            return Ok(None);
        }
        if size <= self.manner.inline {
            return if opened.append_to(out) { Ok(None) } else { Err(Changed) };
        }
        part(opened, 0..size).map(|part| Some(Body::Part(part)))
    }

    fn parts(
        &self,
        request: &Request<'_>,
        opened: &Arc<Opened>,
        mut ranges: Vec<Range<u64>>,
        out: &mut Vec<u8>,
    ) -> Answered {
        self.begin(request, Status::PartialContent, out);
        out.extend_from_slice(opened.common_head());
        if ranges.len() > 1 {
            let parts = Parts::new(Arc::clone(opened), ranges, self.clock.boundary());
            out.extend_from_slice(parts.head().as_bytes());
            return if opened.is_unchanged() { Ok(Some(Body::Parts(Box::new(parts)))) } else { Err(Changed) };
        }
        let range = ranges.remove(0);
        let (length, media_type) = (range.end - range.start, opened.media_type);
        let field = content_range(&range, opened.identity.size);
        out.extend_from_slice(
            format!("Content-Type: {media_type}\r\n{field}Content-Length: {length}\r\n\r\n").as_bytes(),
        );
        part(opened, range).map(|part| Some(Body::Part(part)))
    }

    /// A directory: the file that stands for it, or what is in it.
    fn directory(&mut self, request: &Request<'_>, target: &crate::target::Target, out: &mut Vec<u8>) -> Option<Body> {
        let path = format!("{}index.html", request.path);
        let found = self.files.find(&path, self.clock.now);
        if let Ok(Entry::File(opened)) = found {
            let begin = out.len();
            return self.file(&Request { path: &path, ..*request }, &opened, out).unwrap_or_else(|Changed| {
                out.truncate(begin);
                self.files.forget(&path);
                self.error(request, Status::ServiceUnavailable, out)
            });
        }
        if !self.manner.lists {
            return self.error(request, Status::Forbidden, out);
        }
        let page = listing::of(self.files.root(), target).and_then(|page| self.manner.held.hold(page));
        match page {
            Ok(page) => self.page(request, page, out),
            Err(status) => self.error(request, status, out),
        }
    }

    fn page(&self, request: &Request<'_>, page: Page, out: &mut Vec<u8>) -> Option<Body> {
        self.begin(request, Status::Ok, out);
        let fields = format!("Content-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\n\r\n", page.bytes());
        out.extend_from_slice(fields.as_bytes());
        match page {
            _ if request.method == Method::Head => None,
            Page::Small(text) => {
                out.extend_from_slice(text.as_bytes());
                None
            }
            Page::Held(opened) => {
                let range = 0..opened.identity.size;
                Some(Body::Part(Part { opened, range }))
            }
        }
    }

    fn moved(&self, request: &Request<'_>, location: &str, out: &mut Vec<u8>) -> Option<Body> {
        self.text(request, (Status::MovedPermanently, &format!("Location: {location}\r\n")), out)
    }

    fn error(&self, request: &Request<'_>, status: Status, out: &mut Vec<u8>) -> Option<Body> {
        let field = match status {
            Status::MethodNotAllowed => "Allow: GET, HEAD\r\n",
            Status::ServiceUnavailable => "Retry-After: 1\r\n",
            _ => "",
        };
        self.text(request, (status, field), out)
    }

    /// An answer whose content says what its status means, with a header field.
    fn text(&self, request: &Request<'_>, (status, field): (Status, &str), out: &mut Vec<u8>) -> Option<Body> {
        self.begin(request, status, out);
        let text = status.text();
        let length = text.len() + 1;
        let fields = format!("{field}Content-Type: text/plain; charset=utf-8\r\nContent-Length: {length}\r\n\r\n");
        out.extend_from_slice(fields.as_bytes());
        if request.method == Method::Get {
            out.extend_from_slice(text.as_bytes());
            out.push(b'\n');
        }
        None
    }

    /// The lines that every answer begins with.
    #[inline]
    fn begin(&self, request: &Request<'_>, status: Status, out: &mut Vec<u8>) {
        out.extend_from_slice(b"HTTP/1.1 ");
        out.extend_from_slice(status.line().as_bytes());
        out.extend_from_slice(self.clock.lines.as_bytes());
        if !self.keeps(request) {
            out.extend_from_slice(b"Connection: close\r\n");
        } else if !request.is_current {
            out.extend_from_slice(b"Connection: keep-alive\r\n");
        }
    }
}

/// A part of a file that is still what it was.
fn part(opened: &Arc<Opened>, range: Range<u64>) -> Result<Part, Changed> {
    if opened.is_unchanged() { Ok(Part { opened: Arc::clone(opened), range }) } else { Err(Changed) }
}

/// The time, and the lines that say it, written once a second.
#[derive(Debug)]
struct Clock {
    now: Instant,
    wall: SystemTime,
    next: Instant,
    lines: String,
    random: std::hash::RandomState,
}

impl Clock {
    fn new() -> Self {
        let now = Instant::now();
        let mut clock =
            Self { now, wall: SystemTime::now(), next: now, lines: String::new(), random: Default::default() };
        clock.tick(now);
        clock
    }

    /// Says what time it is; whether that is another second.
    #[inline]
    fn tick(&mut self, now: Instant) -> bool {
        self.now = now;
        let is_another = now >= self.next;
        if is_another {
            self.write(now);
        }
        is_another
    }

    fn write(&mut self, now: Instant) {
        self.wall = SystemTime::now();
        let since = self.wall.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.next = now + Duration::from_nanos(1_000_000_000 - u64::from(since.subsec_nanos()));
        // A clock that is set to no year of four digits has none that a date could say.
        let shown = SystemTime::UNIX_EPOCH + since.min(Duration::from_secs(253_402_300_799));
        // In place: a new text each second, which an allocator puts together from two pieces, made the heap grow for ever.
        self.lines.clear();
        let date = httpdate::HttpDate::from(shown);
        let _ = write!(self.lines, "\r\nServer: kelvin\r\nDate: {date}\r\n");
    }

    /// What parts of this answer are separated by: nobody can know it before.
    fn boundary(&self) -> u64 {
        self.random.hash_one(self.now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_that_tell_the_time_stay_where_they_are() {
        let mut clock = Clock::new();
        let place = (clock.lines.as_ptr(), clock.lines.capacity());
        for _ in 0..3 {
            clock.write(clock.next);
            assert_eq!((clock.lines.as_ptr(), clock.lines.capacity()), place);
            assert!(clock.lines.starts_with("\r\nServer: kelvin\r\nDate: ") && clock.lines.ends_with(" GMT\r\n"));
        }
    }
}
