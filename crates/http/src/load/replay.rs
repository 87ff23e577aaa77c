//! The requests of an access log, in the common or the combined format, and when each came.

use std::fmt;
use std::time::Duration;

use http::uri::PathAndQuery;
use jiff::fmt::strtime;
use percent_encoding::{AsciiSet, CONTROLS, percent_encode};

use crate::load::har;
use crate::load::request::RequestTemplate;
use crate::load::slo::MAX_DURATION;

/// What compressed files begin with: those of gzip, xz and zstd, as rotated logs are.
const COMPRESSED_MAGICS: [&[u8]; 3] = [b"\x1f\x8b", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd"];

/// What a log asks for.
#[derive(Clone, Debug, Default)]
pub struct Replay {
    /// Path and query of each request, as they can be sent.
    pub paths: Vec<String>,
    /// What is sent with each, where a recording has that; none of a log.
    pub templates: Vec<RequestTemplate>,
    /// When each is due, in nanoseconds from the first second of the log on, in order.
    pub times: Vec<u64>,
    /// How long it takes: from the begin of the first second of the log to the end of the last one.
    pub duration: Duration,
    /// The lines, or the requests of a recording, of which nothing is sent.
    pub skipped: SkippedLines,
    /// What these are: lines or requests.
    pub unit: &'static str,
}

/// Lines of a log of which nothing is sent, by the reason; empty ones are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SkippedLines {
    /// They ask for something else than GET: no log has the bodies of other methods.
    pub other_methods: u64,
    /// Nothing was asked for: a connection that timed out, or bytes that are no HTTP.
    pub no_requests: u64,
    /// The target of their request is not the path of a server, or cannot be decoded.
    pub other_targets: u64,
    /// They are in neither of the formats.
    pub other_lines: u64,
    /// They were sent to another host than the first request of a recording.
    pub other_hosts: u64,
    /// They had a body, which the recording does not have.
    pub missing_bodies: u64,
}

impl SkippedLines {
    /// All together.
    pub fn total(&self) -> u64 {
        self.other_methods
            + self.no_requests
            + self.other_targets
            + self.other_lines
            + self.other_hosts
            + self.missing_bodies
    }
}

impl fmt::Display for SkippedLines {
    /// `2 with another method than GET, 1 without a request`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            (self.other_methods, "with another method than GET"),
            (self.no_requests, "without a request"),
            (self.other_targets, "whose target is no path that can be sent"),
            (self.other_lines, "in another format"),
            (self.other_hosts, "to another host than the first"),
            (self.missing_bodies, "whose body was not recorded"),
        ];
        let texts = parts.iter().filter(|(count, _)| *count > 0).map(|(count, reason)| format!("{count} {reason}"));
        out.write_str(&texts.collect::<Vec<String>>().join(", "))
    }
}

impl Replay {
    /// Reads a log, or a recording of a browser (HAR), where the headers of `template` take the place of recorded ones. It is sent this many
    /// times as fast as it came. Requests of one second of a log are spread evenly over it.
    ///
    /// # Errors
    /// A log without any request that can be sent, or with more than a week of them.
    pub fn read(log: &[u8], speed: f64, template: &RequestTemplate) -> Result<Self, String> {
        if COMPRESSED_MAGICS.iter().any(|magic| log.starts_with(magic)) {
            return Err("it is compressed: pipe the output of zcat, xzcat or zstdcat to --replay /dev/stdin".into());
        }
        if [b"\xff\xfe", b"\xfe\xff"].iter().any(|mark| log.starts_with(*mark)) {
            return Err("it is UTF-16: convert it by iconv -f UTF-16 -t UTF-8".into());
        }
        // A recording may have a mark of its encoding, and no line of a log begins so.
        let text = log.strip_prefix(b"\xef\xbb\xbf").unwrap_or(log);
        if text.trim_ascii_start().starts_with(b"{") {
            return har::read(text, speed, template);
        }
        let mut replay = Self { unit: "lines", ..Self::default() };
        let mut requests: Vec<(i64, String)> = Vec::new();
        for line in log.split(|&byte| byte == b'\n').filter(|line| !line.trim_ascii().is_empty()) {
            requests.extend(parse_line(line, &mut replay.skipped));
        }
        // A log is written when answers are over, so its times may be out of order.
        requests.sort_by_key(|&(second, _)| second);
        let (Some(&(first, _)), Some(&(last, _))) = (requests.first(), requests.last()) else {
            let lines = replay.skipped;
            let skipped_lines = if lines.total() > 0 { format!(": lines {lines}") } else { String::new() };
            return Err(format!("it has no GET request in the common or combined log format{skipped_lines}"));
        };
        // The last second lasts as long as any other.
        replay.duration = scaled_duration((last - first) as f64 + 1.0, speed);
        if replay.duration > MAX_DURATION {
            return Err("it would take more than a week".into());
        }
        for second_requests in requests.chunk_by_mut(|first, next| first.0 == next.0) {
            let count = second_requests.len() as f64;
            for (index, (second, path)) in second_requests.iter_mut().enumerate() {
                let offset = (*second - first) as f64 + index as f64 / count;
                replay.times.push(scaled_duration(offset, speed).as_nanos() as u64);
                replay.paths.push(std::mem::take(path));
            }
        }
        Ok(replay)
    }
}

/// This many seconds of a log that is sent this many times as fast.
pub(crate) fn scaled_duration(seconds: f64, speed: f64) -> Duration {
    Duration::try_from_secs_f64(seconds / speed).unwrap_or(Duration::MAX)
}

/// The second and the path of a line such as
/// `192.0.2.1 - - [10/Oct/2000:13:55:36 -0700] "GET /a.gif HTTP/1.0" 200 2326`; one of which nothing is sent is counted.
fn parse_line(line: &[u8], skipped: &mut SkippedLines) -> Option<(i64, String)> {
    let parts = parse_time(line).and_then(|(second, rest)| {
        let (request, after) = parse_quoted(rest.trim_ascii_start())?;
        is_status(after).then_some((second, request))
    });
    let Some((second, request)) = parts else {
        skipped.other_lines += 1;
        return None;
    };
    let Some(target) = request.strip_prefix(b"GET ") else {
        *(if has_method(request) { &mut skipped.other_methods } else { &mut skipped.no_requests }) += 1;
        return None;
    };
    let path = unescape(target).and_then(|target| request_path(&target));
    skipped.other_targets += u64::from(path.is_none());
    Some((second, path?))
}

/// Whether a request begins with a method and a space: a token of RFC 9110, section 5.6.2, with a letter, as the hyphen of an empty one is a
/// token too.
fn has_method(request: &[u8]) -> bool {
    let Some(end) = memchr::memchr(b' ', request) else { return false };
    let method = &request[..end];
    let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    method.iter().all(is_token) && method.iter().any(u8::is_ascii_alphabetic)
}

/// Bytes of a time, such as `10/Oct/2000:13:55:36 -0700`, and of some that another program wrote with a blank or a colon more: further on
/// no end of one is looked for, since a line may have millions of brackets.
const MAX_TIMESTAMP_BYTES: usize = 32;

/// The time of a line, in seconds, and what follows it. The client and the user before it may have brackets of their own: an IPv6
/// address, a name.
fn parse_time(line: &[u8]) -> Option<(i64, &[u8])> {
    memchr::memchr_iter(b'[', line).find_map(|index| {
        let rest = &line[index + 1..];
        let end = memchr::memchr(b']', &rest[..rest.len().min(MAX_TIMESTAMP_BYTES)])?;
        let time = strtime::parse("%d/%b/%Y:%H:%M:%S %z", &rest[..end]).ok()?.to_timestamp().ok()?;
        Some((time.as_second(), &rest[end + 1..]))
    })
}

/// What stands in the quotation marks that a text begins with, as it is written, and what follows them. A mark behind a backslash
/// is a part of it.
fn parse_quoted(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = text.strip_prefix(b"\"")?;
    let mut index = 0;
    while *text.get(index)? != b'"' {
        index += if text[index] == b'\\' { 2 } else { 1 };
    }
    Some((&text[..index], &text[index + 1..]))
}

/// Whether a text begins with a status. Where none follows, the request has a quotation mark that was not escaped.
fn is_status(text: &[u8]) -> bool {
    let digits = text.strip_prefix(b" ").and_then(|text| text.get(..3));
    digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_digit))
        && text.get(4).is_none_or(|after| after.is_ascii_whitespace())
}

/// What servers write for a byte that they escape (`ap_escape_logitem` of Apache, `ngx_http_log_escape` of nginx).
fn unescape(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.iter();
    while let Some(&byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        bytes.push(match rest.next()? {
            b'x' => {
                let mut digit = || char::from(*rest.next()?).to_digit(16);
                (digit()? << 4 | digit()?) as u8
            }
            b'b' => 8,
            b't' => b'\t',
            b'n' => b'\n',
            b'v' => 11,
            b'f' => 12,
            b'r' => b'\r',
            &itself @ (b'"' | b'\\' | b'/') => itself,
            _ => return None,
        });
    }
    Some(bytes)
}

/// The characters of ASCII that no URI has (RFC 3986, section 2).
const NON_URI_CHARACTERS: &AsciiSet =
    &CONTROLS.add(b' ').add(b'"').add(b'<').add(b'>').add(b'\\').add(b'^').add(b'`').add(b'{').add(b'|').add(b'}');

/// The path and query of what follows a method, as they can be sent: the client may have sent bytes that no URI has, and these are
/// encoded (RFC 3986, section 2.1). Nothing for the target of a proxy, or one with a line end or a fragment, which nobody can send.
fn request_path(rest: &[u8]) -> Option<String> {
    let target = match memchr::memrchr(b' ', rest) {
        Some(index) if rest[index + 1..].starts_with(b"HTTP/") => &rest[..index],
        // HTTP/0.9 names no version.
        None => rest,
        Some(_) => return None,
    };
    if target.iter().any(|&byte| byte.is_ascii_control() || byte == b'#') {
        return None;
    }
    let path = percent_encode(target, NON_URI_CHARACTERS).to_string();
    let is_path = path.starts_with('/') && path.parse::<PathAndQuery>().is_ok_and(|parsed| parsed.as_str() == path);
    is_path.then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = r#"192.0.2.1 - frank [10/Oct/2000:13:55:38 -0700] "GET /c HTTP/1.0" 200 2326
192.0.2.1 - - [10/Oct/2000:13:55:36 -0700] "GET /a.gif?x=1 HTTP/1.0" 200 2326 "http://ref/" "Agent \"x\""
::1 - - [10/Oct/2000:20:55:36 +0000] "GET /b HTTP/1.1" 304 -
::1 - - [10/Oct/2000:20:55:36 +0000] "POST /form HTTP/1.1" 200 1
::1 - - [10/Oct/2000:20:55:36 +0000] "\x16\x03" 400 1
no line of a log
"#;

    fn read(log: &str, speed: f64) -> Result<Replay, String> {
        Replay::read(log.as_bytes(), speed, &RequestTemplate::default())
    }

    #[test]
    fn request_times_scale_with_speed() {
        let replay = read(LOG, 1.0).unwrap();
        assert_eq!(replay.paths, ["/a.gif?x=1", "/b", "/c"]);
        assert_eq!(replay.times, [0, 500_000_000, 2_000_000_000]);
        assert_eq!(
            replay.skipped,
            SkippedLines { other_methods: 1, no_requests: 1, other_lines: 1, ..SkippedLines::default() }
        );
        let summary = "1 with another method than GET, 1 without a request, 1 in another format";
        assert_eq!(replay.skipped.to_string(), summary);
        let stamp = "::1 - - [10/Oct/2000:20:55:36 +0000]";
        for (line, is_request) in [
            ("\"-\" 408 0", false),
            ("\"\" 400 0", false),
            ("\"\\x16\\x03 x\" 400 1", false),
            ("\"M-SEARCH * HTTP/1.1\" 400 1", true),
        ] {
            let skipped = read(&format!("{LOG}{stamp} {line}\n"), 1.0).unwrap().skipped;
            assert_eq!(
                (skipped.other_methods, skipped.no_requests),
                if is_request { (2, 1) } else { (1, 2) },
                "{line}"
            );
        }
        assert_eq!(replay.duration, Duration::from_secs(3));
        let faster = read(LOG, 4.0).unwrap();
        assert_eq!((faster.times, faster.duration), (vec![0, 125_000_000, 500_000_000], Duration::from_millis(750)));
    }

    #[test]
    fn requests_spread_within_their_second() {
        let line = "::1 - - [10/Oct/2000:20:55:36 +0000] \"GET /a HTTP/1.1\" 200 1\n";
        for (count, times) in [(1, vec![0]), (4, vec![0, 250_000_000, 500_000_000, 750_000_000])] {
            let replay = read(&line.repeat(count), 1.0).unwrap();
            assert_eq!((replay.times, replay.duration), (times, Duration::from_secs(1)));
        }
    }

    /// What comes of a line with this client and this request, as they are written.
    fn parse_request(client: &str, request: &[u8]) -> Result<String, SkippedLines> {
        let before = format!("{client} - - [10/Oct/2000:20:55:36 +0000] \"");
        let (line, mut skipped) =
            ([before.as_bytes(), request, b"\" 200 5 \"-\" \"x\""].concat(), SkippedLines::default());
        super::parse_line(&line, &mut skipped).map(|(_, path)| path).ok_or(skipped)
    }

    #[test]
    fn escaped_paths_are_decoded() {
        for (written, sent) in [
            (&br#"GET /a\"b.txt HTTP/1.1"#[..], "/a%22b.txt"),
            (br"GET /a\x22b HTTP/1.1", "/a%22b"),
            (br"GET /a\\b\x5C HTTP/1.1", "/a%5Cb%5C"),
            (br"GET /caf\xC3\xA9.txt HTTP/1.1", "/caf%C3%A9.txt"),
            (br"GET /caf\xc3\xa9 HTTP/1.1", "/caf%C3%A9"),
            ("GET /café HTTP/2.0".as_bytes(), "/caf%C3%A9"),
            (b"GET /\xe9 HTTP/1.1", "/%E9"),
            (b"GET /q?a=b c d HTTP/1.1", "/q?a=b%20c%20d"),
            (b"GET /?a[]=1&b=%20+x|y HTTP/1.1", "/?a[]=1&b=%20+x%7Cy"),
            (b"GET /old", "/old"),
        ] {
            assert_eq!(
                parse_request("192.0.2.1", written).as_deref(),
                Ok(sent),
                "{}",
                String::from_utf8_lossy(written)
            );
        }
    }

    #[test]
    fn unsendable_lines_are_counted_by_reason() {
        for written in [
            &br"GET /a\q HTTP/1.1"[..],
            br"GET /a\x2 HTTP/1.1",
            br"GET /a\xzz HTTP/1.1",
            br"GET /a\n HTTP/1.1",
            br"GET /a\x00b HTTP/1.1",
            b"GET /a#b HTTP/1.1",
            b"GET http://other/ HTTP/1.1",
            b"GET * HTTP/1.1",
            b"GET  HTTP/1.1",
            b"GET /a b",
        ] {
            assert_eq!(
                parse_request("192.0.2.1", written),
                Err(SkippedLines { other_targets: 1, ..SkippedLines::default() }),
                "{}",
                String::from_utf8_lossy(written)
            );
        }
        for written in [&b"-"[..], b"", br"\x16\x03\x01"] {
            assert_eq!(
                parse_request("192.0.2.1", written),
                Err(SkippedLines { no_requests: 1, ..SkippedLines::default() }),
                "{}",
                String::from_utf8_lossy(written)
            );
        }
        for written in [&b"HEAD / HTTP/1.1"[..], b"get / HTTP/1.1"] {
            assert_eq!(
                parse_request("192.0.2.1", written),
                Err(SkippedLines { other_methods: 1, ..SkippedLines::default() }),
                "{}",
                String::from_utf8_lossy(written)
            );
        }
        for written in [&br#"GET /a"b HTTP/1.1"#[..], br"GET /a\", b"GET / HTTP/1.1\" \"x"] {
            assert_eq!(
                parse_request("192.0.2.1", written),
                Err(SkippedLines { other_lines: 1, ..SkippedLines::default() }),
                "{}",
                String::from_utf8_lossy(written)
            );
        }
    }

    #[test]
    fn client_field_accepts_names_and_brackets() {
        for client in
            ["[2001:db8::1]", "2001:db8::1", "fe80::1%eth0", "host.test:80 192.0.2.1", "[::ffff:192.0.2.1]:8080"]
        {
            assert_eq!(parse_request(client, b"GET /six HTTP/1.1").as_deref(), Ok("/six"), "{client}");
        }
        let user = b"::1 - a [b] c [10/Oct/2000:20:55:36 +0000] \"GET / HTTP/1.1\" 200 5\r";
        assert_eq!(super::parse_line(user, &mut SkippedLines::default()), Some((971_211_336, "/".into())));
    }

    #[test]
    fn bracket_line_parses_in_linear_time() {
        // With each end looked for to that of the line it is 10^13 steps.
        assert!(read(&"[".repeat(5_000_000), 1.0).is_err());
        let user = format!("::1 - {} [10/Oct/2000:20:55:36 +0000] \"GET / HTTP/1.1\" 200 5", "[".repeat(1000));
        assert_eq!(super::parse_line(user.as_bytes(), &mut SkippedLines::default()), Some((971_211_336, "/".into())));
    }

    #[test]
    fn log_without_requests_is_refused() {
        for log in ["", "nothing\n", "::1 - - [10/Oct/2000:20:55:36 +0000] \"POST /form HTTP/1.1\" 200 1\n"] {
            assert!(read(log, 1.0).is_err(), "{log}");
        }
    }

    #[test]
    fn text_of_another_encoding_is_detected() {
        let text: Vec<u8> = "\u{feff}{\"log\": {}}".encode_utf16().flat_map(u16::to_le_bytes).collect();
        let error = Replay::read(&text, 1.0, &RequestTemplate::default()).unwrap_err();
        assert!(error.starts_with("it is UTF-16"), "{error}");
    }

    #[test]
    fn compressed_log_is_detected() {
        for begin in [&b"\x1f\x8b\x08\0"[..], b"\xfd7zXZ\0\0", b"\x28\xb5\x2f\xfd\x04"] {
            assert!(
                Replay::read(&[begin, b"\0x\n"].concat(), 1.0, &RequestTemplate::default())
                    .unwrap_err()
                    .contains("compressed")
            );
        }
    }

    #[test]
    fn multi_year_log_needs_high_speed() {
        let line = |year: &str| format!("::1 - - [10/Oct/{year}:20:55:36 +0000] \"GET / HTTP/1.1\" 200 1\n");
        let log = line("0001") + &line("9998");
        assert!(read(&log, 1.0).unwrap_err().contains("a week") && read(&log, 0.001).is_err());
        assert!(read(&log, 1e6).is_ok());
    }
}
