//! A page of a column: which of its rows have a value, then these values one after another.
//!
//! Source: Encodings.md of apache/parquet-format.

use super::thrift::write_unsigned;
use crate::columns::ColumnValues;

/// A page that is being filled.
#[derive(Debug, Default)]
pub(super) struct Page {
    rows: usize,
    /// Neighbouring rows that all have a value, or all have none, and their number.
    runs: Vec<(bool, u64)>,
    /// In the encoding `PLAIN`.
    values: Vec<u8>,
    /// Flags in `values`, of which a byte has eight.
    flags: usize,
}

impl Page {
    /// Adds the value of a row, or that it has none.
    pub(super) fn push<R>(&mut self, column: &ColumnValues<'_, R>, row: &R) {
        let has_value = match column {
            ColumnValues::Text(read) => read(row).map(|text| self.push_text(&text)).is_some(),
            ColumnValues::Real(read) => read(row).map(|value| self.values.extend(value.to_le_bytes())).is_some(),
            // The bits of an unsigned number are stored as those of a signed one.
            ColumnValues::Count(read) => read(row).map(|value| self.values.extend(value.to_le_bytes())).is_some(),
            ColumnValues::Time(read) => read(row).map(|value| self.values.extend(value.to_le_bytes())).is_some(),
            ColumnValues::Flag(read) => read(row).map(|flag| self.push_flag(flag)).is_some(),
        };
        match self.runs.last_mut() {
            Some((have_values, rows)) if *have_values == has_value => *rows += 1,
            _ => self.runs.push((has_value, 1)),
        }
        self.rows += 1;
    }

    fn push_text(&mut self, text: &str) {
        self.values.extend((text.len() as u32).to_le_bytes());
        self.values.extend(text.as_bytes());
    }

    fn push_flag(&mut self, flag: bool) {
        if self.flags.is_multiple_of(8) {
            self.values.push(0);
        }
        self.values[self.flags / 8] |= u8::from(flag) << (self.flags % 8);
        self.flags += 1;
    }

    /// Its rows, with and without a value.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes of its values.
    pub(super) fn bytes(&self) -> usize {
        self.values.len()
    }

    /// Its content: definition levels, 1 for a value and 0 for none, as runs behind their length in bytes, and the values.
    pub(super) fn into_content(self) -> Vec<u8> {
        let mut levels = Vec::new();
        for (has_value, rows) in self.runs {
            // The lowest bit is that of a group of packed levels, which a run is not.
            write_unsigned(&mut levels, rows << 1);
            levels.push(u8::from(has_value));
        }
        [&(levels.len() as u32).to_le_bytes(), &*levels, &*self.values].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content<R>(rows: &[R], column: &ColumnValues<'_, R>) -> Vec<u8> {
        let mut page = Page::default();
        rows.iter().for_each(|row| page.push(column, row));
        assert_eq!(page.rows(), rows.len());
        page.into_content()
    }

    #[test]
    fn levels_are_runs_before_values() {
        let levels = [6, 0, 0, 0, 2, 1, 4, 0, 2, 1];
        let expected = [&levels[..], &[0xff; 8], &[2, 1, 0, 0, 0, 0, 0, 0]].concat();
        let times = ColumnValues::Time(Box::new(|time: &Option<i64>| *time));
        assert_eq!(content(&[Some(-1), None, None, Some(258)], &times), expected);
        assert_eq!(content(&[None; 100], &times), [3, 0, 0, 0, 0xc8, 0x01, 0]);
        assert_eq!(content(&[], &times), [0; 4]);
    }

    #[test]
    fn flags_are_bits() {
        let flags = ColumnValues::Flag(Box::new(|bit: &u8| Some(*bit == 1)));
        assert_eq!(content(&[1, 0, 1, 1, 0, 0, 0, 0, 1], &flags), [2, 0, 0, 0, 18, 1, 0b1101, 1]);
    }

    #[test]
    fn text_has_its_length_before_it() {
        let texts = ColumnValues::Text(Box::new(|text: &&'static str| Some((*text).into())));
        assert_eq!(content(&["é", ""], &texts), [2, 0, 0, 0, 4, 1, 2, 0, 0, 0, 0xc3, 0xa9, 0, 0, 0, 0]);
    }
}
