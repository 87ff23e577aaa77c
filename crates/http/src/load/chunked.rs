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
                let length = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
                data(&rest[..length]);
                taken += length;
                let left = left - length as u64;
                *self = if left == 0 { Self::DataEnd } else { Self::Data(left) };
                continue;
            }
            let end = memchr::memchr(b'\n', rest);
            let length = end.map_or(rest.len(), |end| end + 1);
            if part.len() + length > MAX_LINE_BYTES {
                return Err(MalformedResponse::Chunk);
            }
            part.extend_from_slice(&rest[..length]);
            taken += length;
            if end.is_none() {
                continue;
            }
            let is_empty = part == b"\r\n" || part == b"\n";
            match self {
                Self::Size => match parse_chunk_size(part)? {
                    0 => *self = Self::Trailer,
                    size => *self = Self::Data(size),
                },
                Self::Trailer if is_empty => {
                    part.clear();
                    return Ok((taken, true));
                }
                Self::Trailer => {}
                Self::DataEnd if is_empty => *self = Self::Size,
                Self::DataEnd | Self::Data(_) => return Err(MalformedResponse::Chunk),
            }
            part.clear();
        }
        Ok((taken, false))
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
