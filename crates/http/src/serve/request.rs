//! A request as it arrives: its first line and the header fields that a file server obeys (RFC 9110, RFC 9112).
//!
//! Stricter than it need be wherever another program on the way could read the same bytes otherwise: a line ends with CR LF, a
//! field that states how long the request is or to whom it goes stands there once, and no request has a body.

use http::StatusCode;
use httparse::{EMPTY_HEADER, Header};

use crate::serve::host;
use crate::serve::limits::ServerLimits;

/// Most header fields of a request; browsers send about twenty.
const MAX_FIELDS: usize = 64;

/// A request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HttpRequest<'a> {
    /// Whether the head of the answer is sent alone (HEAD), or with the content (GET).
    pub is_head: bool,
    /// Of what: its path, still encoded, without the query.
    pub path: &'a str,
    /// The query after it, without its question mark.
    pub query: Option<&'a str>,
    /// The host that it is meant for, without the port; version 1.0 need not name one.
    pub host: Option<&'a str>,
    /// Whether the client knows more than version 1.0.
    pub is_http_1_1: bool,
    /// Whether the connection stays open.
    pub keep_alive: bool,
    /// The fields that decide what is sent.
    pub fields: RequestFields<'a>,
    /// All of it as it arrived: `field_values` has what is rarely asked for.
    pub head: &'a [u8],
}

/// The header fields that decide what is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestFields<'a> {
    /// `Range`.
    pub range: Option<&'a str>,
    /// `If-Range`.
    pub if_range: Option<&'a str>,
    /// `If-Match`.
    pub if_match: Option<&'a str>,
    /// `If-None-Match`.
    pub if_none_match: Option<&'a str>,
    /// `If-Modified-Since`.
    pub if_modified_since: Option<&'a str>,
    /// `If-Unmodified-Since`.
    pub if_unmodified_since: Option<&'a str>,
    /// `Authorization`.
    pub authorization: Option<&'a str>,
}

/// The request that the bytes begin with, and its length; none where they are a part of one.
pub type ParseResult<'a> = Result<Option<(HttpRequest<'a>, usize)>, StatusCode>;

/// What the URLs of a server begin with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scheme {
    /// It encrypts nothing.
    #[default]
    Http,
    /// It serves by TLS.
    Https,
}

impl Scheme {
    /// The word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

/// Reads the request that the bytes begin with.
///
/// # Errors
/// What can be answered alone; the connection ends, since nobody knows where the next request would begin.
pub fn parse_request<'a>(bytes: &'a [u8], limits: &ServerLimits, scheme: Scheme) -> ParseResult<'a> {
    let mut fields = [EMPTY_HEADER; MAX_FIELDS];
    let mut parsed = httparse::Request::new(&mut fields);
    match parsed.parse(bytes) {
        Ok(httparse::Status::Complete(length)) if length <= limits.head_bytes => {
            // Some programs take a line feed alone for the end of a line, and others do not.
            let mut line_feeds = memchr::memchr_iter(b'\n', &bytes[..length]);
            if line_feeds.any(|index| index == 0 || bytes[index - 1] != b'\r') {
                return Err(StatusCode::BAD_REQUEST);
            }
            Ok(Some((HttpRequest { head: &bytes[..length], ..validate(&parsed, limits, scheme)? }, length)))
        }
        Ok(httparse::Status::Partial) if !is_too_large(bytes, limits) => Ok(None),
        Ok(_) => Err(too_large_status(bytes, limits)),
        Err(httparse::Error::TooManyHeaders) => Err(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE),
        // Only its whole line states the version.
        Err(httparse::Error::Version) if first_line(bytes).is_none() && !is_too_large(bytes, limits) => Ok(None),
        Err(httparse::Error::Version) if names_a_version(bytes) => Err(StatusCode::HTTP_VERSION_NOT_SUPPORTED),
        Err(_) => Err(StatusCode::BAD_REQUEST),
    }
}

/// Whether the bytes so far can be no request that is taken.
fn is_too_large(bytes: &[u8], limits: &ServerLimits) -> bool {
    bytes.len() >= limits.head_bytes
        || (first_line(bytes).is_none() && bytes.len() > limits.target_bytes + LINE_OVERHEAD)
}

/// More than what stands in a first line besides the target.
const LINE_OVERHEAD: usize = 64;

/// What is too large about a request.
fn too_large_status(bytes: &[u8], limits: &ServerLimits) -> StatusCode {
    let is_short = first_line(bytes).is_some_and(|line| line.len() <= limits.target_bytes + LINE_OVERHEAD);
    // The first word is longer than any method.
    let has_long_method =
        || bytes.trim_ascii_start().iter().take(LINE_OVERHEAD).all(|byte| !byte.is_ascii_whitespace());
    match is_short {
        true => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        false if has_long_method() => StatusCode::METHOD_NOT_ALLOWED,
        false => StatusCode::URI_TOO_LONG,
    }
}

/// The values of all header fields of this name, in the head of a request that was parsed.
pub(crate) fn field_values<'a>(head: &'a [u8], name: &str) -> impl Iterator<Item = &'a [u8]> {
    let lines = head.split(|&byte| byte == b'\n');
    lines.filter_map(move |line| {
        let (field, value) = line.split_at_checked(name.len())?;
        let value = value.strip_prefix(b":").filter(|_| field.eq_ignore_ascii_case(name.as_bytes()))?;
        Some(value.trim_ascii())
    })
}

/// The first line, if it is complete; empty ones before it are skipped.
pub(crate) fn first_line(bytes: &[u8]) -> Option<&[u8]> {
    let begin = bytes.iter().position(|byte| !b"\r\n".contains(byte))?;
    let end = memchr::memchr(b'\n', &bytes[begin..])?;
    Some(&bytes[begin..begin + end])
}

/// Makes a request of HTTP/1.2 or later one of 1.1, which means the same to a program that knows no later one (RFC 9110, section 6.2); whether
/// it was one.
pub fn downgrade_to_1_1(bytes: &mut [u8]) -> bool {
    if !names_a_version(bytes) {
        return false;
    }
    let begin = bytes.iter().position(|&byte| !b"\r\n".contains(&byte)).unwrap_or(0);
    let end = memchr::memchr(b'\n', &bytes[begin..]).map_or(bytes.len(), |length| begin + length);
    let Some(index) = memchr::memmem::rfind(&bytes[begin..end], b" HTTP/1.") else { return false };
    bytes[begin + index + b" HTTP/1.".len()] = b'1';
    true
}

/// Whether the first line is one of three words, the last of which is a version of HTTP that is not spoken here.
fn names_a_version(bytes: &[u8]) -> bool {
    let mut words = first_line(bytes).unwrap_or_default().trim_ascii().split(|&byte| byte == b' ').skip(2);
    let version = words.next().and_then(|version| version.strip_prefix(b"HTTP/")).filter(|_| words.next().is_none());
    version.is_some_and(|number| match number {
        [b'1', b'.', b'0' | b'1'] => false,
        [major, b'.', minor] => major.is_ascii_digit() && minor.is_ascii_digit(),
        _ => false,
    })
}

/// The request that was parsed, if it is one that may be answered.
fn validate<'a>(
    parsed: &httparse::Request<'_, 'a>,
    limits: &ServerLimits,
    scheme: Scheme,
) -> Result<HttpRequest<'a>, StatusCode> {
    let (target, version) = (parsed.path.unwrap_or_default(), parsed.version.unwrap_or_default());
    let mut scan = HeaderScan::default();
    parsed.headers.iter().try_for_each(|header| scan.add(header))?;
    let is_http_1_1 = version == 1;
    let host = scan.host.map(|value| host::parse_host(value).ok_or(StatusCode::BAD_REQUEST)).transpose()?;
    // Whether they can be believed together.
    let is_clear = !scan.has_coding || (is_http_1_1 && scan.length.is_none());
    if (is_http_1_1 && host.is_none()) || !is_clear {
        return Err(StatusCode::BAD_REQUEST);
    }
    // What is coded has an end that only its coding shows.
    if scan.has_coding {
        return Err(StatusCode::PAYLOAD_TOO_LARGE);
    }
    let is_head = parsed.method == Some("HEAD");
    if !is_head && parsed.method != Some("GET") {
        return Err(StatusCode::METHOD_NOT_ALLOWED);
    }
    if scan.has_body {
        return Err(StatusCode::PAYLOAD_TOO_LARGE);
    }
    if target.len() > limits.target_bytes {
        return Err(StatusCode::URI_TOO_LONG);
    }
    let keep_alive = !scan.close && (is_http_1_1 || scan.keep_alive);
    let (target_host, origin) = split_target(target, scheme)?;
    let (path, query) = origin.split_once('?').map_or((origin, None), |(path, query)| (path, Some(query)));
    if !path.starts_with('/') || path.contains('#') {
        return Err(StatusCode::BAD_REQUEST);
    }
    // A host in the target overrules the field (RFC 9112, section 3.2.2).
    let (host, fields) = (target_host.or(host), scan.fields);
    Ok(HttpRequest { is_head, path, query, host, is_http_1_1, keep_alive, fields, head: &[] })
}

/// The host of a target, and the rest: none in origin form (`/path?query`), one in absolute form, as clients send it to proxies.
fn split_target(target: &str, own: Scheme) -> Result<(Option<&str>, &str), StatusCode> {
    let Some((scheme, rest)) = target.split_once("://").filter(|_| !target.starts_with('/')) else {
        return Ok((None, target));
    };
    let Some(scheme) =
        [Scheme::Http, Scheme::Https].into_iter().find(|known| known.name().eq_ignore_ascii_case(scheme))
    else {
        return Err(StatusCode::BAD_REQUEST);
    };
    // What is encrypted is never the same as what is not (RFC 9110, section 7.4).
    if scheme != own {
        return Err(StatusCode::MISDIRECTED_REQUEST);
    }
    let (authority, origin) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let host = host::parse_host(authority).filter(|host| !host.is_empty());
    let origin = if origin.starts_with('/') { origin } else { "/" };
    host.map(|host| (Some(host), origin)).ok_or(StatusCode::BAD_REQUEST)
}

/// The header fields of a request.
#[derive(Default)]
struct HeaderScan<'a> {
    fields: RequestFields<'a>,
    host: Option<&'a str>,
    length: Option<&'a str>,
    has_coding: bool,
    has_body: bool,
    close: bool,
    keep_alive: bool,
}

impl<'a> HeaderScan<'a> {
    /// Fields are distinguished by their lengths first: most of what browsers send is none of these.
    fn add(&mut self, header: &Header<'a>) -> Result<(), StatusCode> {
        let has_name = |name: &str| header.name.eq_ignore_ascii_case(name);
        match header.name.len() {
            4 if has_name("host") => set_once(&mut self.host, header),
            5 if has_name("range") => set_once(&mut self.fields.range, header),
            8 if has_name("if-range") => set_once(&mut self.fields.if_range, header),
            8 if has_name("if-match") => set_once(&mut self.fields.if_match, header),
            10 if has_name("connection") => {
                for word in header_text(header)?.split(',').map(str::trim) {
                    self.close |= word.eq_ignore_ascii_case("close");
                    self.keep_alive |= word.eq_ignore_ascii_case("keep-alive");
                }
                Ok(())
            }
            13 if has_name("if-none-match") => set_once(&mut self.fields.if_none_match, header),
            13 if has_name("authorization") => set_once(&mut self.fields.authorization, header),
            14 if has_name("content-length") => {
                set_once(&mut self.length, header)?;
                let digits = header.value;
                if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
                    return Err(StatusCode::BAD_REQUEST);
                }
                self.has_body |= digits.iter().any(|&digit| digit != b'0');
                Ok(())
            }
            17 if has_name("if-modified-since") => set_once(&mut self.fields.if_modified_since, header),
            17 if has_name("transfer-encoding") => {
                self.has_coding = true;
                Ok(())
            }
            19 if has_name("if-unmodified-since") => set_once(&mut self.fields.if_unmodified_since, header),
            _ => Ok(()),
        }
    }
}

/// Keeps the value of a field that may stand there once.
fn set_once<'a>(field: &mut Option<&'a str>, header: &Header<'a>) -> Result<(), StatusCode> {
    if field.is_some() {
        return Err(StatusCode::BAD_REQUEST);
    }
    *field = Some(header_text(header)?);
    Ok(())
}

fn header_text<'a>(header: &Header<'a>) -> Result<&'a str, StatusCode> {
    std::str::from_utf8(header.value).map_err(|_| StatusCode::BAD_REQUEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> ParseResult<'_> {
        parse_request(text.as_bytes(), &ServerLimits::default(), Scheme::Http)
    }

    fn refusal(text: &str) -> Option<StatusCode> {
        parse(text).err()
    }

    fn parse_valid(text: &str) -> HttpRequest<'_> {
        match parse(text) {
            Ok(Some((request, length))) if length == text.len() => request,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn request_is_parsed_with_relevant_fields() {
        let text = "GET /a/b%20c?d=e HTTP/1.1\r\nHost: localhost:80\r\nRANGE: bytes=0-1\r\nX: y\r\nif-none-match: \"z\"\r\n\r\n";
        let request = parse_valid(text);
        assert_eq!((request.is_head, request.path, request.keep_alive), (false, "/a/b%20c", true));
        assert_eq!((request.fields.range, request.fields.if_none_match), (Some("bytes=0-1"), Some("\"z\"")));
        assert!(parse_valid("\r\nHEAD / HTTP/1.0\r\n\r\n").is_head);
    }

    #[test]
    fn field_values_are_found_by_their_whole_name() {
        let text = "\r\nGET /accept:x HTTP/1.1\r\nHost: a\r\nACCEPT: b , c\r\nAccept-Encoding: d\r\naccept:\r\nX: accept: e\r\n\r\n";
        let values: Vec<&[u8]> = field_values(parse_valid(text).head, "accept").collect();
        assert_eq!(values, [&b"b , c"[..], b""]);
        assert_eq!(field_values(parse_valid(text).head, "cookie").next(), None);
    }

    #[test]
    fn keep_alive_follows_version_and_fields() {
        for (version, field, expected) in [
            ("1.1", "", true),
            ("1.1", "Connection: close\r\n", false),
            ("1.1", "Connection: foo, CLOSE\r\n", false),
            ("1.0", "", false),
            ("1.0", "Connection: Keep-Alive\r\n", true),
        ] {
            assert_eq!(
                parse_valid(&format!("GET / HTTP/{version}\r\nHost: a\r\n{field}\r\n")).keep_alive,
                expected,
                "{version} {field}"
            );
        }
    }

    #[test]
    fn path_is_taken_from_any_target_form() {
        for (target, path) in [
            ("/", "/"),
            ("/?", "/"),
            ("http://a.example/b", "/b"),
            ("HTTP://a.example", "/"),
            ("http://a.example?b", "/"),
            ("http://[::1]:80/b?c", "/b"),
            ("/a://b", "/a://b"),
        ] {
            assert_eq!(parse_valid(&format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n")).path, path, "{target}");
        }
        assert_eq!(refusal("GET https://a/ HTTP/1.1\r\nHost: a\r\n\r\n"), Some(StatusCode::MISDIRECTED_REQUEST));
        let encrypted = |target: &str| {
            let text = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
            parse_request(text.as_bytes(), &ServerLimits::default(), Scheme::Https)
                .map(|parsed| parsed.unwrap().1 == text.len())
        };
        assert_eq!((encrypted("https://a/"), encrypted("/")), (Ok(true), Ok(true)));
        assert_eq!(encrypted("http://a/").unwrap_err(), StatusCode::MISDIRECTED_REQUEST);
        for target in ["a", "*", "?a", "ftp://a/b", "/a#b", "a.example:80", "http://", "http:///a", "http://a@b/"] {
            let status = refusal(&format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
            assert_eq!(status, Some(StatusCode::BAD_REQUEST), "{target}");
        }
    }

    #[test]
    fn target_host_overrides_host_field() {
        let host = |text: &str| parse_valid(text).host.map(str::to_owned);
        assert_eq!(host("GET / HTTP/1.1\r\nHost: a.example:80\r\n\r\n").as_deref(), Some("a.example"));
        assert_eq!(host("GET http://b:1/ HTTP/1.1\r\nHost: a\r\n\r\n").as_deref(), Some("b"));
        assert_eq!(host("GET / HTTP/1.1\r\nHost:\r\n\r\n").as_deref(), Some(""));
        assert_eq!(host("GET / HTTP/1.0\r\n\r\n"), None);
    }

    #[test]
    fn ambiguous_request_is_refused() {
        for (fields, status) in [
            ("", StatusCode::BAD_REQUEST),
            ("Host: a\r\nHost: a\r\n", StatusCode::BAD_REQUEST),
            ("Host: a b\r\n", StatusCode::BAD_REQUEST),
            ("Host: a/b\r\n", StatusCode::BAD_REQUEST),
            ("Host : a\r\n", StatusCode::BAD_REQUEST),
            ("Host: a\r\n b\r\n", StatusCode::BAD_REQUEST),
            ("Host: a\nX: y\r\n", StatusCode::BAD_REQUEST),
            ("Host: a\r\nX: a\rb\r\n", StatusCode::BAD_REQUEST),
            ("Host: a\r\nX: a\0b\r\n", StatusCode::BAD_REQUEST),
            ("Host: a\r\nContent-Length: 0\r\nContent-Length: 0\r\n", StatusCode::BAD_REQUEST),
            ("Host: a\r\nContent-Length: +1\r\n", StatusCode::BAD_REQUEST),
            ("Host: a\r\nContent-Length: 1, 1\r\n", StatusCode::BAD_REQUEST),
            ("Host: a\r\nContent-Length: \r\n", StatusCode::BAD_REQUEST),
            ("Host: a\r\nContent-Length: 1\r\n", StatusCode::PAYLOAD_TOO_LARGE),
            ("Host: a\r\nContent-Length: 99999999999999999999999\r\n", StatusCode::PAYLOAD_TOO_LARGE),
            ("Host: a\r\nTransfer-Encoding: chunked\r\n", StatusCode::PAYLOAD_TOO_LARGE),
            ("Host: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n", StatusCode::BAD_REQUEST),
            ("Host: a\r\nRange: bytes=0-1\r\nRange: bytes=2-3\r\n", StatusCode::BAD_REQUEST),
        ] {
            assert_eq!(refusal(&format!("GET / HTTP/1.1\r\n{fields}\r\n")), Some(status), "{fields:?}");
        }
        assert_eq!(refusal("GET / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"), Some(StatusCode::BAD_REQUEST));
        assert_eq!(refusal("GET / HTTP/1.1\nHost: a\n\n"), Some(StatusCode::BAD_REQUEST));
    }

    #[test]
    fn unknown_method_is_405_and_version_505() {
        for method in ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "get", "BREW"] {
            let text = format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\n");
            assert_eq!(refusal(&text), Some(StatusCode::METHOD_NOT_ALLOWED), "{method}");
        }
        assert_eq!(refusal("GET / HTTP/2.0\r\n\r\n"), Some(StatusCode::HTTP_VERSION_NOT_SUPPORTED));
        assert_eq!(refusal("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), Some(StatusCode::HTTP_VERSION_NOT_SUPPORTED));
        assert_eq!(refusal("GET /\r\n"), Some(StatusCode::BAD_REQUEST));
        assert_eq!(refusal("\x16\x03\x01\x02\x00\x01\x00"), Some(StatusCode::BAD_REQUEST), "a TLS greeting");
    }

    #[test]
    fn oversized_request_is_refused_early() {
        let limits = ServerLimits { head_bytes: 1000, target_bytes: 100, ..ServerLimits::default() };
        let status = |text: &str| parse_request(text.as_bytes(), &limits, Scheme::Http).err();
        assert_eq!(status(&format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(99))), None);
        assert_eq!(
            status(&format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(100))),
            Some(StatusCode::URI_TOO_LONG)
        );
        assert_eq!(status(&format!("GET /{}", "a".repeat(170))), Some(StatusCode::URI_TOO_LONG));
        assert_eq!(status(&format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "a".repeat(900))), None);
        assert_eq!(
            status(&format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "a".repeat(1000))),
            Some(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE)
        );
        let many_fields = format!("GET / HTTP/1.1\r\nHost: a\r\n{}", "a:\r\n".repeat(MAX_FIELDS));
        assert_eq!(refusal(&many_fields), Some(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE));
        assert_eq!(status(&format!("GET /{} HTTP/1.1\r\n", "a".repeat(1000))), Some(StatusCode::URI_TOO_LONG));
    }

    #[test]
    fn later_http_1_version_parses_as_1_1() {
        for (line, expected) in [
            ("GET /a HTTP/1.2\r\n", Some("GET /a HTTP/1.1\r\n")),
            ("\r\nGET /HTTP/1.3 HTTP/1.9\r\n", Some("\r\nGET /HTTP/1.3 HTTP/1.1\r\n")),
            ("GET /a HTTP/1.1\r\n", None),
            ("GET /a HTTP/2.0\r\n", None),
            ("GET /a HTTP/1.x\r\n", None),
            ("GET /a HTTP/1.2", None),
            ("", None),
        ] {
            let mut bytes = line.as_bytes().to_vec();
            assert_eq!(downgrade_to_1_1(&mut bytes), expected.is_some(), "{line:?}");
            assert_eq!(bytes, expected.unwrap_or(line).as_bytes());
        }
    }

    #[test]
    fn partial_request_is_incomplete() {
        let request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        for length in 0..request.len() {
            assert_eq!(parse(&request[..length]), Ok(None), "{length}");
        }
        let two = format!("{request}{request}");
        assert!(matches!(parse(&two), Ok(Some((_, length))) if length == request.len()));
    }
}
