//! What goes before each file, 24 bytes in little-endian order, and how it is checked.

use crate::{Error, Result};

/// Bytes of a header: magic (4), flags (2), length of the name (2), permissions (4), four zero bytes, size (8).
pub const HEADER_BYTES: usize = 24;

const FILE_MAGIC: [u8; 4] = *b"kfil";
const END_MAGIC: [u8; 4] = *b"kend";
const DIGEST_FLAG: u16 = 1;
const REPLY_FLAG: u16 = 2;
/// Permissions that a header may have.
const PERMISSION_BITS: u32 = 0o777;
/// Most bytes of a name (NAME_MAX of limits.h).
pub(super) const MAX_NAME_BYTES: u16 = 255;

/// What goes before a file, or after the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RawHeader {
    /// A file follows.
    File {
        /// Bytes of the name, which follows at once: 1 to 255.
        name: u16,
        /// Permissions, at most 0o777.
        mode: u32,
        /// Bytes of the content, which follow the name.
        size: u64,
        /// Whether a digest follows the content.
        digest: bool,
        /// Whether the receiver replies.
        reply: bool,
    },
    /// No file follows.
    End,
}

impl RawHeader {
    /// As it is sent.
    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        let Self::File { name, mode, size, digest, reply } = self else {
            bytes[..4].copy_from_slice(&END_MAGIC);
            return bytes;
        };
        let flags = (if digest { DIGEST_FLAG } else { 0 }) | (if reply { REPLY_FLAG } else { 0 });
        bytes[..4].copy_from_slice(&FILE_MAGIC);
        bytes[4..6].copy_from_slice(&flags.to_le_bytes());
        bytes[6..8].copy_from_slice(&name.to_le_bytes());
        bytes[8..12].copy_from_slice(&mode.to_le_bytes());
        bytes[16..].copy_from_slice(&size.to_le_bytes());
        bytes
    }

    /// As it arrived.
    ///
    /// # Errors
    /// Bytes that no header has.
    pub fn from_bytes(bytes: &[u8; HEADER_BYTES]) -> Result<Self> {
        let two = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let four = |at: usize| u32::from(two(at)) | u32::from(two(at + 2)) << 16;
        let (flags, name, mode) = (two(4), two(6), four(8));
        let size = u64::from(four(16)) | u64::from(four(20)) << 32;
        let is_end = bytes[..4] == END_MAGIC;
        let wrong = match () {
            () if is_end && bytes[4..] == [0; HEADER_BYTES - 4] => return Ok(Self::End),
            () if is_end => "an end marker with more in it",
            () if bytes[..4] != FILE_MAGIC => "no header where one should be",
            () if flags & !(DIGEST_FLAG | REPLY_FLAG) != 0 || four(12) != 0 => "unknown flags in a header",
            () if !(1..=MAX_NAME_BYTES).contains(&name) => "a name of no or too many bytes",
            () if mode & !PERMISSION_BITS != 0 => "permissions that a file does not have",
            () => {
                return Ok(Self::File {
                    name,
                    mode,
                    size,
                    digest: flags & DIGEST_FLAG != 0,
                    reply: flags & REPLY_FLAG != 0,
                });
            }
        };
        Err(Error::ProtocolViolation(wrong))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: RawHeader = RawHeader::File { name: 255, mode: 0o754, size: u64::MAX - 1, digest: true, reply: true };

    #[test]
    fn header_bytes_are_fixed() {
        let header = RawHeader::File { name: 5, mode: 0o644, size: 0x0102_0304_0506_0708, digest: true, reply: false };
        assert_eq!(&header.to_bytes(), b"kfil\x01\0\x05\0\xa4\x01\0\0\0\0\0\0\x08\x07\x06\x05\x04\x03\x02\x01");
        assert_eq!(&RawHeader::End.to_bytes()[..8], b"kend\0\0\0\0");
        for header in [header, FULL, RawHeader::End] {
            assert_eq!(RawHeader::from_bytes(&header.to_bytes()).unwrap(), header);
        }
    }

    #[test]
    fn invalid_header_is_refused() {
        let changed = |at: usize, byte: u8| {
            let mut bytes = FULL.to_bytes();
            bytes[at] = byte;
            RawHeader::from_bytes(&bytes)
        };
        for (at, byte) in [(0, b'K'), (3, 0), (4, 4), (5, 1), (7, 1), (9, 2), (11, 0x80), (12, 1), (15, 0xff)] {
            assert!(matches!(changed(at, byte), Err(Error::ProtocolViolation(_))), "{byte} at {at}");
        }
        assert!(matches!(changed(6, 0), Err(Error::ProtocolViolation(_))), "no name");
        let mut end = RawHeader::End.to_bytes();
        end[HEADER_BYTES - 1] = 1;
        assert!(matches!(RawHeader::from_bytes(&end), Err(Error::ProtocolViolation(_))));
        assert!(RawHeader::from_bytes(&[0; HEADER_BYTES]).is_err());
    }
}
