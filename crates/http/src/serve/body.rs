//! What follows the head of an answer: a part of a file, or several with headings between them.

use std::ops::Range;
use std::sync::Arc;

use crate::serve::open_file_cache::OpenFile;

/// A part of a file that is to be sent.
#[derive(Clone, Debug)]
pub struct FileRange {
    /// The file.
    pub opened: Arc<OpenFile>,
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

/// Several parts of one file, each with a heading, as multipart/byteranges (RFC 9110, section 14.6).
#[derive(Debug)]
pub struct MultipartRanges {
    opened: Arc<OpenFile>,
    ranges: std::vec::IntoIter<Range<u64>>,
    boundary: String,
    is_finished: bool,
}

impl MultipartRanges {
    /// Of these ranges, none of which is empty. The boundary must be one that nobody could put into a file beforehand.
    pub fn new(opened: Arc<OpenFile>, ranges: Vec<Range<u64>>, boundary: u64) -> Self {
        let boundary = format!("{boundary:016x}");
        Self { opened, ranges: ranges.into_iter(), boundary, is_finished: false }
    }

    /// The header fields that describe them, and the empty line.
    pub fn head(&self) -> String {
        let boundary = &self.boundary;
        let contents: u64 = self.ranges.as_slice().iter().map(|range| range.end - range.start).sum();
        let headings = self.ranges.as_slice().iter().map(|range| self.heading(range).len()).sum::<usize>();
        let length = contents + (headings + self.ending().len()) as u64;
        format!("Content-Type: multipart/byteranges; boundary={boundary}\r\nContent-Length: {length}\r\n\r\n")
    }

    /// The next part, after its heading was appended; `None` after the ending was.
    pub fn next_part(&mut self, out: &mut Vec<u8>) -> Option<FileRange> {
        if let Some(range) = self.ranges.next() {
            out.extend_from_slice(self.heading(&range).as_bytes());
            return Some(FileRange { opened: Arc::clone(&self.opened), range });
        }
        if !std::mem::replace(&mut self.is_finished, true) {
            out.extend_from_slice(self.ending().as_bytes());
        }
        None
    }

    fn heading(&self, range: &Range<u64>) -> String {
        let (boundary, media_type) = (&self.boundary, self.opened.media_type);
        format!(
            "\r\n--{boundary}\r\nContent-Type: {media_type}\r\n{}\r\n",
            content_range(range, self.opened.identity.size)
        )
    }

    fn ending(&self) -> String {
        format!("\r\n--{}--\r\n", self.boundary)
    }
}

/// The header field that says which bytes of how many these are.
pub fn content_range(range: &Range<u64>, size: u64) -> String {
    format!("Content-Range: bytes {}-{}/{size}\r\n", range.start, range.end - 1)
}
