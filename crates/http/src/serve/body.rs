//! The parts of a file that a request asks for (RFC 9110, section 14), and what follows the head of an answer: one of them, or several with
//! headings between them.

use std::ops::Range;
use std::sync::Arc;

use crate::serve::open_file_cache::OpenFile;

/// A part of a file that is to be sent.
#[derive(Clone, Debug)]
pub struct FileRange {
    /// The file.
    pub open_file: Arc<OpenFile>,
    /// What of it is left to be sent; never empty.
    pub range: Range<u64>,
}

/// What follows a head.
#[derive(Debug)]
pub enum Body {
    /// A part of a file, or all of it.
    FileRange(FileRange),
    /// Several.
    Multipart(Box<MultipartRanges>),
}

impl Body {
    /// Bytes of it.
    pub fn length(&self) -> u64 {
        match self {
            Self::FileRange(part) => part.range.end - part.range.start,
            Self::Multipart(parts) => parts.length(),
        }
    }
}

/// Several parts of one file, each with a heading, as multipart/byteranges (RFC 9110, section 14.6).
#[derive(Debug)]
pub struct MultipartRanges {
    open_file: Arc<OpenFile>,
    ranges: std::vec::IntoIter<Range<u64>>,
    boundary: String,
    is_finished: bool,
}

impl MultipartRanges {
    /// Of these ranges, none of which is empty. The boundary must be one that nobody could put into a file beforehand.
    pub fn new(open_file: Arc<OpenFile>, ranges: Vec<Range<u64>>, boundary: u64) -> Self {
        let boundary = format!("{boundary:016x}");
        Self { open_file, ranges: ranges.into_iter(), boundary, is_finished: false }
    }

    /// The header fields that describe them, and the empty line.
    pub fn head(&self) -> String {
        let (boundary, length) = (&self.boundary, self.length());
        format!("Content-Type: multipart/byteranges; boundary={boundary}\r\nContent-Length: {length}\r\n\r\n")
    }

    /// Bytes of all parts that are left, with their headings and the ending.
    fn length(&self) -> u64 {
        let contents: u64 = self.ranges.as_slice().iter().map(|range| range.end - range.start).sum();
        let headings = self.ranges.as_slice().iter().map(|range| self.heading(range).len()).sum::<usize>();
        contents + (headings + self.ending().len()) as u64
    }

    /// The next part, after its heading was appended; `None` after the ending was.
    pub fn next_part(&mut self, out: &mut Vec<u8>) -> Option<FileRange> {
        if let Some(range) = self.ranges.next() {
            out.extend_from_slice(self.heading(&range).as_bytes());
            return Some(FileRange { open_file: Arc::clone(&self.open_file), range });
        }
        if !std::mem::replace(&mut self.is_finished, true) {
            out.extend_from_slice(self.ending().as_bytes());
        }
        None
    }

    fn heading(&self, range: &Range<u64>) -> String {
        let (boundary, media_type) = (&self.boundary, self.open_file.media_type);
        let range = content_range(range, self.open_file.identity.size);
        format!("\r\n--{boundary}\r\nContent-Type: {media_type}\r\n{range}\r\n")
    }

    fn ending(&self) -> String {
        format!("\r\n--{}--\r\n", self.boundary)
    }
}

/// The header field that states which bytes of how many these are.
pub fn content_range(range: &Range<u64>, size: u64) -> String {
    format!("Content-Range: bytes {}-{}/{size}\r\n", range.start, range.end - 1)
}

/// Most ranges of a request: a client that wants more gets the whole file, since many small ones cost more than they save.
const MAX_RANGES: usize = 16;

/// What is to be sent of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestedRanges {
    /// All of it: no range was asked for, or none that is understood.
    Whole,
    /// These parts, of which there is at least one.
    Ranges(Vec<Range<u64>>),
    /// Nothing: none of the ranges lies in the file.
    Unsatisfiable,
}

/// What a `Range` field asks for of a file of this size.
///
/// Ranges that together are more than the file are refused by sending it whole, so that a small request never costs more than
/// the file does.
pub fn parse_range(field: &str, size: u64) -> RequestedRanges {
    let Some((unit, list)) = field.split_once('=') else { return RequestedRanges::Whole };
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return RequestedRanges::Whole;
    }
    let (mut parts, mut total, mut count) = (Vec::new(), 0u64, 0);
    for text in list.split(',').map(str::trim).filter(|text| !text.is_empty()) {
        let Some(range) = parse_byte_range(text, size) else { return RequestedRanges::Whole };
        count += 1;
        if !range.is_empty() {
            total = total.saturating_add(range.end - range.start);
            parts.push(range);
        }
    }
    match (count, parts.is_empty()) {
        (0, _) => RequestedRanges::Whole,
        (_, true) => RequestedRanges::Unsatisfiable,
        _ if count > MAX_RANGES || total > size => RequestedRanges::Whole,
        _ => RequestedRanges::Ranges(parts),
    }
}

/// One range; empty if none of it lies in the file, `None` if it is none.
fn parse_byte_range(text: &str, size: u64) -> Option<Range<u64>> {
    let (first, last) = text.split_once('-')?;
    match (first, last) {
        ("", suffix) => Some(size.saturating_sub(parse_digits(suffix)?)..size),
        (first, "") => Some(parse_digits(first)?.min(size)..size),
        (first, last) => {
            let (first, last) = (parse_digits(first)?, parse_digits(last)?);
            (first <= last).then(|| first.min(size)..last.saturating_add(1).min(size))
        }
    }
}

/// A number of digits alone; one that is too large for any file is larger than each.
fn parse_digits(digits: &str) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    is_number.then(|| digits.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(ranges: &[Range<u64>]) -> RequestedRanges {
        RequestedRanges::Ranges(ranges.to_vec())
    }

    fn single_range(range: Range<u64>) -> RequestedRanges {
        RequestedRanges::Ranges(vec![range])
    }

    #[test]
    fn ranges_parse_as_rfc_9110() {
        for (field, expected) in [
            ("bytes=0-0", single_range(0..1)),
            ("bytes=0-", single_range(0..100)),
            ("bytes=90-200", single_range(90..100)),
            ("bytes=-5", single_range(95..100)),
            ("bytes=-500", single_range(0..100)),
            ("Bytes = 1-2 , 4-5", parts(&[1..3, 4..6])),
            ("bytes=0-0,-1", parts(&[0..1, 99..100])),
            ("bytes=200-,5-6", single_range(5..7)),
            ("bytes=0-99999999999999999999999999", single_range(0..100)),
            ("bytes=100-", RequestedRanges::Unsatisfiable),
            ("bytes=-0", RequestedRanges::Unsatisfiable),
            ("bytes=200-300,400-", RequestedRanges::Unsatisfiable),
            ("bytes=99999999999999999999999999-", RequestedRanges::Unsatisfiable),
            ("bytes=", RequestedRanges::Whole),
            ("bytes=5-4", RequestedRanges::Whole),
            ("bytes=a-b", RequestedRanges::Whole),
            ("bytes=--1", RequestedRanges::Whole),
            ("bytes=+1-2", RequestedRanges::Whole),
            ("bytes=1 -2", RequestedRanges::Whole),
            ("bytes=0x1-2", RequestedRanges::Whole),
            ("lines=1-2", RequestedRanges::Whole),
            ("1-2", RequestedRanges::Whole),
        ] {
            assert_eq!(parse_range(field, 100), expected, "{field}");
        }
    }

    #[test]
    fn range_of_empty_file_is_unsatisfiable() {
        assert_eq!(parse_range("bytes=0-", 0), RequestedRanges::Unsatisfiable);
        assert_eq!(parse_range("bytes=-1", 0), RequestedRanges::Unsatisfiable);
    }

    #[test]
    fn too_many_ranges_send_whole_file() {
        let ranges_header = |count: usize| format!("bytes={}", vec!["0-0"; count].join(","));
        assert!(matches!(parse_range(&ranges_header(MAX_RANGES), 100), RequestedRanges::Ranges(_)));
        assert_eq!(parse_range(&ranges_header(MAX_RANGES + 1), 100), RequestedRanges::Whole);
        assert_eq!(parse_range("bytes=0-,0-", 100), RequestedRanges::Whole);
        assert_eq!(parse_range("bytes=0-60,40-", 100), RequestedRanges::Whole, "overlapping");
    }
}
