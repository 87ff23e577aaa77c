//! A body in chunks (RFC 9112 7.1): which bytes are the body's, and where it ends.

use httparse::Status;

use crate::exchange::Malformed;

/// Longest line of a chunk's size with its extensions, or of a trailer.
const LONGEST_LINE: usize = 8 << 10;

/// Where in the chunks the next byte is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chunks {
    /// In the line that says the size of the next chunk.
    Size,
    /// Before so many bytes of data.
    Data(u64),
    /// In the line end after the data.
    After,
    /// In the trailer lines after the last chunk.
    Trailer,
}

impl Chunks {
    /// Before the first one.
    pub(crate) fn new() -> Self {
        Self::Size
    }

    /// Takes bytes, of which `data` is given those of the body; `part` keeps a line that has not wholly come. Returns how many
    /// were taken and whether the body is whole.
    pub(crate) fn take(
        &mut self,
        bytes: &[u8],
        part: &mut Vec<u8>,
        data: &mut impl FnMut(&[u8]),
    ) -> Result<(usize, bool), Malformed> {
        let mut taken = 0;
        while taken < bytes.len() {
            let rest = &bytes[taken..];
            if let Self::Data(left) = self {
                let length = usize::try_from(*left).unwrap_or(usize::MAX).min(rest.len());
                data(&rest[..length]);
                taken += length;
                *left -= length as u64;
                if *left == 0 {
                    *self = Self::After;
                }
                continue;
            }
            let end = rest.iter().position(|&byte| byte == b'\n');
            let length = end.map_or(rest.len(), |end| end + 1);
            part.extend_from_slice(&rest[..length]);
            taken += length;
            if part.len() > LONGEST_LINE {
                return Err(Malformed::Chunk);
            }
            if end.is_some() {
                let is_whole = self.line(part)?;
                part.clear();
                if is_whole {
                    return Ok((taken, true));
                }
            }
        }
        Ok((taken, false))
    }

    /// Reads a whole line; returns whether it was the last of the body.
    fn line(&mut self, line: &[u8]) -> Result<bool, Malformed> {
        match self {
            // The library takes a line without digits for the size 0.
            Self::Size if !line[0].is_ascii_hexdigit() => return Err(Malformed::Chunk),
            Self::Size => match httparse::parse_chunk_size(line) {
                Ok(Status::Complete((_, 0))) => *self = Self::Trailer,
                Ok(Status::Complete((_, size))) => *self = Self::Data(size),
                _ => return Err(Malformed::Chunk),
            },
            Self::After if line == b"\r\n" => *self = Self::Size,
            Self::After | Self::Data(_) => return Err(Malformed::Chunk),
            Self::Trailer => return Ok(line == b"\r\n" || line == b"\n"),
        }
        Ok(false)
    }
}
