//! Thrift's compact protocol, as far as Parquet's metadata need it: structures are written, and nothing is read.
//!
//! Source: doc/specs/thrift-compact-protocol.md of apache/thrift.

/// Types of fields and of elements of lists, by the specification's table.
const TRUE: u8 = 1;
const FALSE: u8 = 2;
const I8: u8 = 3;
const I32: u8 = 5;
const I64: u8 = 6;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const STRUCT: u8 = 12;

/// A structure as it is written: its fields, by ascending number.
#[derive(Clone, Debug, Default)]
pub(super) struct Structure {
    bytes: Vec<u8>,
    last_field: u8,
}

impl Structure {
    pub(super) fn flag(self, field: u8, value: bool) -> Self {
        self.field(field, if value { TRUE } else { FALSE })
    }

    pub(super) fn i8(self, field: u8, value: i8) -> Self {
        let mut structure = self.field(field, I8);
        structure.bytes.push(value.cast_unsigned());
        structure
    }

    pub(super) fn i32(self, field: u8, value: i32) -> Self {
        let mut structure = self.field(field, I32);
        write_signed(&mut structure.bytes, value.into());
        structure
    }

    pub(super) fn i64(self, field: u8, value: i64) -> Self {
        let mut structure = self.field(field, I64);
        write_signed(&mut structure.bytes, value);
        structure
    }

    pub(super) fn text(self, field: u8, text: &str) -> Self {
        let mut structure = self.field(field, BINARY);
        write_text(&mut structure.bytes, text);
        structure
    }

    pub(super) fn structure(self, field: u8, value: Self) -> Self {
        let mut structure = self.field(field, STRUCT);
        structure.bytes.extend(value.finish());
        structure
    }

    pub(super) fn i32_list(self, field: u8, values: &[i32]) -> Self {
        let mut structure = self.list(field, I32, values.len());
        values.iter().for_each(|value| write_signed(&mut structure.bytes, (*value).into()));
        structure
    }

    pub(super) fn text_list(self, field: u8, texts: &[&str]) -> Self {
        let mut structure = self.list(field, BINARY, texts.len());
        texts.iter().for_each(|text| write_text(&mut structure.bytes, text));
        structure
    }

    pub(super) fn structure_list(self, field: u8, values: Vec<Self>) -> Self {
        let mut structure = self.list(field, STRUCT, values.len());
        values.into_iter().for_each(|value| structure.bytes.extend(value.finish()));
        structure
    }

    /// All of it, with the mark of its end.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.bytes.push(0);
        self.bytes
    }

    /// The header of a field, with its distance to the field before it. Parquet numbers no two neighbours further apart than 15.
    fn field(mut self, field: u8, value_type: u8) -> Self {
        debug_assert!((1..16).contains(&(field - self.last_field)));
        self.bytes.push((field - self.last_field) << 4 | value_type);
        self.last_field = field;
        self
    }

    fn list(self, field: u8, element_type: u8, length: usize) -> Self {
        let mut structure = self.field(field, LIST);
        if length < 15 {
            structure.bytes.push((length as u8) << 4 | element_type);
        } else {
            structure.bytes.push(0xf0 | element_type);
            write_unsigned(&mut structure.bytes, length as u64);
        }
        structure
    }
}

/// An unsigned number, seven bits a byte, the lowest first (ULEB128).
pub(super) fn write_unsigned(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// A signed number, with its sign as the lowest bit.
fn write_signed(bytes: &mut Vec<u8>, value: i64) {
    write_unsigned(bytes, (value << 1 ^ value >> 63).cast_unsigned());
}

fn write_text(bytes: &mut Vec<u8>, text: &str) {
    write_unsigned(bytes, text.len() as u64);
    bytes.extend(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_specification() {
        let unsigned = |value| {
            let mut bytes = Vec::new();
            write_unsigned(&mut bytes, value);
            bytes
        };
        // The specification's example of an unsigned number.
        assert_eq!(unsigned(50_399), [0xdf, 0x89, 0x03]);
        assert_eq!(unsigned(u64::MAX), [&[0xff; 9][..], &[1]].concat());
        let signed = |value| {
            let mut bytes = Vec::new();
            write_signed(&mut bytes, value);
            bytes
        };
        let zigzag = [(0, 0), (-1, 1), (1, 2), (-2, 3), (2, 4)];
        assert!(zigzag.into_iter().all(|(value, byte)| signed(value) == [byte]));
        assert_eq!(signed(i64::MIN), unsigned(u64::MAX));
    }

    #[test]
    fn structure_has_fields_lists_and_end() {
        let inner = Structure::default().flag(1, true).flag(2, false);
        let outer = Structure::default().i8(1, 64).text(3, "ab").structure(8, inner);
        assert_eq!(outer.finish(), [0x13, 64, 0x28, 2, b'a', b'b', 0x5c, 0x11, 0x12, 0, 0]);
        assert_eq!(Structure::default().i32_list(2, &[0, 3]).finish(), [0x29, 0x25, 0, 6, 0]);
        let long_list = Structure::default().text_list(1, &[""; 200]).finish();
        assert_eq!((&long_list[..4], long_list.len()), (&[0x19, 0xf8, 0xc8, 0x01][..], 205));
        let structures = Structure::default().structure_list(1, vec![Structure::default(); 3]);
        assert_eq!(structures.finish(), [0x19, 0x3c, 0, 0, 0, 0]);
    }
}
