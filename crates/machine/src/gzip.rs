//! Unpacks a gzip file: the kernel's configuration is one.

use std::io::Read;

use flate2::read::GzDecoder;

/// Maximum unpacked length; a kernel configuration is about 300 kB.
const MAX_UNPACKED_BYTES: u64 = 8 << 20;

/// The content of a gzip file; `None` if damaged or too long. The checksum is verified.
pub(crate) fn unpack(file: &[u8]) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    let length = GzDecoder::new(file).take(MAX_UNPACKED_BYTES + 1).read_to_end(&mut text).ok()?;
    (length as u64 <= MAX_UNPACKED_BYTES).then_some(text)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    /// `printf 'CONFIG_HZ=250\n' | gzip -n`.
    const PACKED_TEXT: &[u8] = &[
        0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 0x73, 0xf6, 0xf7, 0x73, 0xf3, 0x74, 0x8f, 0xf7, 0x88, 0xb2, 0x35, 0x32,
        0x35, 0xe0, 0x02, 0x00, 0xfb, 0x5f, 0x3a, 0x01, 14, 0, 0, 0,
    ];

    fn packed(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn gzip_output_is_unpacked() {
        assert_eq!(unpack(PACKED_TEXT).as_deref(), Some(&b"CONFIG_HZ=250\n"[..]));
    }

    #[test]
    fn damaged_file_is_refused() {
        for length in 0..PACKED_TEXT.len() {
            assert_eq!(unpack(&PACKED_TEXT[..length]), None, "{length}");
        }
        for place in 10..PACKED_TEXT.len() {
            let mut damaged = PACKED_TEXT.to_vec();
            damaged[place] ^= 1;
            assert_eq!(unpack(&damaged), None, "{place}");
        }
    }

    #[test]
    fn oversized_unpacked_file_is_refused() {
        assert_eq!(
            unpack(&packed(&vec![0; MAX_UNPACKED_BYTES as usize])).map(|text| text.len() as u64),
            Some(MAX_UNPACKED_BYTES)
        );
        assert_eq!(unpack(&packed(&vec![0; MAX_UNPACKED_BYTES as usize + 1])), None);
    }
}
