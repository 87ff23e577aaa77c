//! A body in chunks (RFC 9112 7.1): which bytes are the body's, and where it ends.

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
            if let Self::Data(left) = *self {
                taken += self.data(left, rest, data);
                continue;
            }
            let (length, is_whole) = self.rest_of_line(rest, part)?;
            taken += length;
            if is_whole {
                return Ok((taken, true));
            }
        }
        Ok((taken, false))
    }

    /// Takes bytes of a chunk that has so many left; returns how many.
    fn data(&mut self, left: u64, bytes: &[u8], data: &mut impl FnMut(&[u8])) -> usize {
        let length = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
        data(&bytes[..length]);
        let left = left - length as u64;
        *self = if left == 0 { Self::After } else { Self::Data(left) };
        length
    }

    /// Takes the rest of a line, or what has come of it; returns how many bytes, and whether the body is whole.
    fn rest_of_line(&mut self, bytes: &[u8], part: &mut Vec<u8>) -> Result<(usize, bool), Malformed> {
        let end = bytes.iter().position(|&byte| byte == b'\n');
        let length = end.map_or(bytes.len(), |end| end + 1);
        if part.len() + length > LONGEST_LINE {
            return Err(Malformed::Chunk);
        }
        part.extend_from_slice(&bytes[..length]);
        if end.is_none() {
            return Ok((length, false));
        }
        let is_whole = self.line(part)?;
        part.clear();
        Ok((length, is_whole))
    }

    /// Reads a whole line; returns whether it was the last of the body.
    fn line(&mut self, line: &[u8]) -> Result<bool, Malformed> {
        match self {
            Self::Size => *self = size(line).map(|size| if size == 0 { Self::Trailer } else { Self::Data(size) })?,
            Self::After if line == b"\r\n" || line == b"\n" => *self = Self::Size,
            Self::After | Self::Data(_) => return Err(Malformed::Chunk),
            Self::Trailer => return Ok(line == b"\r\n" || line == b"\n"),
        }
        Ok(false)
    }
}

/// The size that a line begins with: hexadecimal digits, of which any number may be leading zeros, then the line's end, blanks or an extension.
fn size(line: &[u8]) -> Result<u64, Malformed> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let (digits, rest) = line.split_at(digits);
    let is_whole = matches!(rest, [b'\n'] | [b'\r', b'\n'] | [b';' | b' ' | b'\t', ..]);
    let size = str::from_utf8(digits).ok().filter(|_| is_whole).and_then(|digits| u64::from_str_radix(digits, 16).ok());
    size.ok_or(Malformed::Chunk)
}
