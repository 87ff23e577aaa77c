//! The text of a file, in the encodings in which shells and editors keep what a program printed.

use std::borrow::Cow;

/// The text without its byte-order mark: UTF-16 by its mark, otherwise UTF-8. What programs write of their own is ASCII, so a
/// byte that is no UTF-8 can only be of a name, which is not kept. `None` with zero bytes: it is no text.
pub(crate) fn decode_text(file: &[u8]) -> Option<Cow<'_, str>> {
    let text = match file {
        [0xff, 0xfe, rest @ ..] => Cow::Owned(decode_utf_16(rest, u16::from_le_bytes)),
        [0xfe, 0xff, rest @ ..] => Cow::Owned(decode_utf_16(rest, u16::from_be_bytes)),
        [0xef, 0xbb, 0xbf, rest @ ..] => String::from_utf8_lossy(rest),
        _ => String::from_utf8_lossy(file),
    };
    (!text.contains('\0')).then_some(text)
}

fn decode_utf_16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> String {
    let (units, trailing) = bytes.as_chunks();
    let replacement = (!trailing.is_empty()).then_some(char::REPLACEMENT_CHARACTER);
    let letters = char::decode_utf16(units.iter().map(|pair| unit(*pair)));
    letters.map(|letter| letter.unwrap_or(char::REPLACEMENT_CHARACTER)).chain(replacement).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_order_mark_sets_encoding() {
        for bytes in [&b"a\xc3\xa9"[..], b"\xef\xbb\xbfa\xc3\xa9", b"\xff\xfea\0\xe9\0", b"\xfe\xff\0a\0\xe9"] {
            assert_eq!(decode_text(bytes).as_deref(), Some("a\u{e9}"), "{bytes:?}");
        }
        // Latin-1, half a surrogate pair, and half a unit.
        assert_eq!(decode_text(b"a\xe9b").as_deref(), Some("a\u{fffd}b"));
        assert_eq!(decode_text(b"\xff\xfe\x00\xd8a").as_deref(), Some("\u{fffd}\u{fffd}"));
        assert_eq!(decode_text(b"").as_deref(), Some(""));
    }

    #[test]
    fn zero_bytes_are_not_text() {
        for bytes in [&b"a\0"[..], b"\0", b"\xff\xfe\0\0"] {
            assert_eq!(decode_text(bytes), None, "{bytes:?}");
        }
    }
}
