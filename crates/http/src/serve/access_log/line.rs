//! A line of an access log: its fields, in the formats that programs for such logs read.

use std::fmt;
use std::io::Write;
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

use jiff::Timestamp;

use crate::serve::keyword::parse_keyword;

/// What a line has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Client, time, first line of the request, status, and bytes of the content that were sent.
    Common,
    /// The same, with `Referer` and `User-Agent`.
    #[default]
    Combined,
}

const FORMAT_NAMES: [(&str, LogFormat); 2] = [("common", LogFormat::Common), ("combined", LogFormat::Combined)];

impl FromStr for LogFormat {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        parse_keyword(&FORMAT_NAMES, word)
    }
}

impl fmt::Display for LogFormat {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(FORMAT_NAMES[*self as usize].0)
    }
}

/// What a line states.
#[derive(Debug)]
pub(super) struct Line<'a> {
    /// The address of the client.
    pub peer: &'a str,
    /// The first line of the request, escaped.
    pub request: &'a [u8],
    pub status: u16,
    /// Bytes of the content that were sent.
    pub bytes: u64,
    /// What the client says of itself, as it stands at the end of the line.
    pub client: &'a [u8],
}

impl Line<'_> {
    pub fn append_to(&self, out: &mut Vec<u8>, clock: &mut LogClock) {
        out.extend_from_slice(self.peer.as_bytes());
        out.extend_from_slice(b" - - [");
        out.extend_from_slice(clock.now().as_bytes());
        out.extend_from_slice(b"] \"");
        out.extend_from_slice(self.request);
        // Writing into memory cannot fail.
        let _ = write!(out, "\" {} {}", self.status, self.bytes);
        out.extend_from_slice(self.client);
        out.push(b'\n');
    }
}

/// The time as lines have it, made once a second.
#[derive(Debug, Default)]
pub(super) struct LogClock {
    second: u64,
    text: String,
}

impl LogClock {
    fn now(&mut self) -> &str {
        let second = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        if self.text.is_empty() || second != self.second {
            (self.second, self.text) = (second, time_text(second));
        }
        &self.text
    }
}

/// This many seconds after 1970, as `%t` of Apache and `$time_local` of nginx; in UTC.
fn time_text(second: u64) -> String {
    let time = i64::try_from(second).ok().and_then(|second| Timestamp::from_second(second).ok()).unwrap_or_default();
    time.strftime("%d/%b/%Y:%H:%M:%S +0000").to_string()
}

/// Appends a value between quotation marks, escaped as nginx does: `\xHH` for what is not printable ASCII, quotation marks and
/// backslashes; a dash for none.
pub(super) fn append_escaped(value: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    if value.is_empty() {
        out.push(b'-');
    }
    for &byte in value {
        match byte {
            b'"' | b'\\' | 0..=0x1f | 0x7f.. => {
                out.extend([b'\\', b'x', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
            }
            _ => out.push(byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_listed_in_order() {
        for (name, format) in FORMAT_NAMES {
            assert_eq!((format.to_string().as_str(), name.parse()), (name, Ok(format)));
        }
    }

    #[test]
    fn time_is_that_of_the_common_log_format() {
        assert_eq!(time_text(971_211_336), "10/Oct/2000:20:55:36 +0000");
        assert_eq!(time_text(0), "01/Jan/1970:00:00:00 +0000");
    }

    #[test]
    fn no_value_ends_its_line_or_its_quotation() {
        for (value, expected) in [
            (&b""[..], "-"),
            (b"GET /a%20b HTTP/1.1", "GET /a%20b HTTP/1.1"),
            (b"a\"b\\c", r"a\x22b\x5Cc"),
            (b"\0\r\n\x1b\x7f", r"\x00\x0D\x0A\x1B\x7F"),
            ("é".as_bytes(), r"\xC3\xA9"),
            (b"~ !", "~ !"),
        ] {
            let mut out = Vec::new();
            append_escaped(value, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }
}
