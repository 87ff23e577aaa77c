//! A body in chunks (RFC 9112 7.1): which bytes are the body's, and where it ends.

use crate::load::response_parser::MalformedResponse;

/// Longest line of a chunk's size with its extensions, or of a trailer.
const MAX_LINE_BYTES: usize = 8 << 10;

/// Where in the chunks the next byte is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChunkedDecoder {
    /// In the line that says the size of the next chunk.
    Size,
    /// Before so many bytes of data.
    Data(u64),
    /// In the line end after the data.
    DataEnd,
    /// In the trailer lines after the last chunk.
    Trailer,
}

impl ChunkedDecoder {
    /// Before the first one.
    pub(crate) fn new() -> Self {
        Self::Size
    }

    /// Takes bytes, of which `data` is given those of the body; `part` keeps a line that has not wholly come. Returns how many
    /// were taken and whether the body is whole.
    pub(crate) fn decode(
        &mut self,
        bytes: &[u8],
        part: &mut Vec<u8>,
        data: &mut impl FnMut(&[u8]),
    ) -> Result<(usize, bool), MalformedResponse> {
        let mut taken = 0;
        while taken < bytes.len() {
            let rest = &bytes[taken..];
            if let Self::Data(left) = *self {
                taken += self.take_data(left, rest, data);
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
    fn take_data(&mut self, left: u64, bytes: &[u8], data: &mut impl FnMut(&[u8])) -> usize {
        let length = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
        data(&bytes[..length]);
        let left = left - length as u64;
        *self = if left == 0 { Self::DataEnd } else { Self::Data(left) };
        length
    }

    /// Takes the rest of a line, or what has come of it; returns how many bytes, and whether the body is whole.
    fn rest_of_line(&mut self, bytes: &[u8], part: &mut Vec<u8>) -> Result<(usize, bool), MalformedResponse> {
        let end = bytes.iter().position(|&byte| byte == b'\n');
        let length = end.map_or(bytes.len(), |end| end + 1);
        if part.len() + length > MAX_LINE_BYTES {
            return Err(MalformedResponse::Chunk);
        }
        part.extend_from_slice(&bytes[..length]);
        if end.is_none() {
            return Ok((length, false));
        }
        let is_whole = self.read_line(part)?;
        part.clear();
        Ok((length, is_whole))
    }

    /// Reads a whole line; returns whether it was the last of the body.
    fn read_line(&mut self, line: &[u8]) -> Result<bool, MalformedResponse> {
        match self {
            Self::Size => {
                *self = parse_chunk_size(line).map(|size| if size == 0 { Self::Trailer } else { Self::Data(size) })?
            }
            Self::DataEnd if line == b"\r\n" || line == b"\n" => *self = Self::Size,
            Self::DataEnd | Self::Data(_) => return Err(MalformedResponse::Chunk),
            Self::Trailer => return Ok(line == b"\r\n" || line == b"\n"),
        }
        Ok(false)
    }
}

/// The size that a line begins with: hexadecimal digits, of which any number may be leading zeros, then the line's end, blanks or an extension.
fn parse_chunk_size(line: &[u8]) -> Result<u64, MalformedResponse> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let (digits, rest) = line.split_at(digits);
    let is_whole = matches!(rest, [b'\n'] | [b'\r', b'\n'] | [b';' | b' ' | b'\t', ..]);
    let size = str::from_utf8(digits).ok().filter(|_| is_whole).and_then(|digits| u64::from_str_radix(digits, 16).ok());
    size.ok_or(MalformedResponse::Chunk)
}
