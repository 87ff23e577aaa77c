//! The file: groups of rows, each with its columns one after another, then the metadata.
//!
//! Source: README.md and parquet.thrift of apache/parquet-format, which number the fields and the variants below.

use std::io::{self, Write};

use super::page::Page;
use super::thrift::Structure;
use crate::columns::{Column, ColumnValues};

/// What a file begins and ends with.
const MAGIC: &[u8; 4] = b"PAR1";
/// Bytes of values after which a page ends: a reader takes a page as a whole.
const PAGE_BYTES: usize = 1 << 20;
/// Variants of `Encoding`.
const PLAIN: i32 = 0;
const RLE: i32 = 3;
/// A variant of `CompressionCodec`.
const ZSTD: i32 = 6;

/// A file to which groups of rows are written.
pub(super) struct ParquetFile<'a> {
    out: &'a mut dyn Write,
    /// Bytes written.
    offset: i64,
    rows: i64,
    groups: Vec<Structure>,
}

/// Bytes of a column in a group of rows, with the headers of its pages.
#[derive(Clone, Copy, Debug, Default)]
struct ColumnBytes {
    plain: i64,
    compressed: i64,
}

impl<'a> ParquetFile<'a> {
    pub(super) fn create(out: &'a mut dyn Write) -> io::Result<Self> {
        let mut file = Self { out, offset: 0, rows: 0, groups: Vec::new() };
        file.write(MAGIC)?;
        Ok(file)
    }

    /// Adds rows, which are compressed and written.
    pub(super) fn write_rows<R>(&mut self, columns: &[Column<'_, R>], rows: &[R]) -> io::Result<()> {
        let (mut chunks, mut plain_bytes) = (Vec::new(), 0);
        for column in columns {
            let start = self.offset;
            let bytes = self.write_column(&column.values, rows)?;
            plain_bytes += bytes.plain;
            let metadata = Structure::default()
                .i32(1, physical_type(&column.values))
                .i32_list(2, &[PLAIN, RLE])
                .text_list(3, &[&column.name])
                .i32(4, ZSTD)
                .i64(5, rows.len() as i64)
                .i64(6, bytes.plain)
                .i64(7, bytes.compressed)
                .i64(9, start);
            chunks.push(Structure::default().i64(2, 0).structure(3, metadata));
        }
        self.rows += rows.len() as i64;
        self.groups.push(Structure::default().structure_list(1, chunks).i64(2, plain_bytes).i64(3, rows.len() as i64));
        Ok(())
    }

    /// Writes the metadata, with a key and its text.
    pub(super) fn finish<R>(mut self, columns: &[Column<'_, R>], (key, text): (&str, &str)) -> io::Result<()> {
        let root = Structure::default().text(4, "kelvin").i32(5, columns.len() as i32);
        let schema = [root].into_iter().chain(columns.iter().map(schema_element)).collect();
        let metadata = Structure::default()
            .i32(1, 1)
            .structure_list(2, schema)
            .i64(3, self.rows)
            .structure_list(4, std::mem::take(&mut self.groups))
            .structure_list(5, vec![Structure::default().text(1, key).text(2, text)])
            .text(6, concat!("kelvin version ", env!("CARGO_PKG_VERSION")))
            .finish();
        self.write(&metadata)?;
        self.write(&(metadata.len() as u32).to_le_bytes())?;
        self.write(MAGIC)
    }

    /// Writes the pages of a column.
    fn write_column<R>(&mut self, column: &ColumnValues<'_, R>, rows: &[R]) -> io::Result<ColumnBytes> {
        let (mut bytes, mut page) = (ColumnBytes::default(), Page::default());
        for row in rows {
            if page.bytes() >= PAGE_BYTES {
                self.write_page(std::mem::take(&mut page), &mut bytes)?;
            }
            page.push(column, row);
        }
        self.write_page(page, &mut bytes)?;
        Ok(bytes)
    }

    fn write_page(&mut self, page: Page, bytes: &mut ColumnBytes) -> io::Result<()> {
        let data_header = Structure::default().i32(1, page.rows() as i32).i32(2, PLAIN).i32(3, RLE).i32(4, RLE);
        let content = page.into_content();
        let compressed = zstd::bulk::compress(&content, zstd::DEFAULT_COMPRESSION_LEVEL)?;
        let length = |bytes: &[u8]| i32::try_from(bytes.len()).map_err(io::Error::other);
        // Its type is 0, a page of data.
        let header = Structure::default().i32(1, 0).i32(2, length(&content)?).i32(3, length(&compressed)?);
        let header = header.structure(5, data_header).finish();
        bytes.plain += (header.len() + content.len()) as i64;
        bytes.compressed += (header.len() + compressed.len()) as i64;
        self.write(&header)?;
        self.write(&compressed)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.offset += bytes.len() as i64;
        self.out.write_all(bytes)
    }
}

/// A variant of `Type`.
fn physical_type<R>(values: &ColumnValues<'_, R>) -> i32 {
    match values {
        ColumnValues::Flag(_) => 0,
        ColumnValues::Count(_) | ColumnValues::Time(_) => 2,
        ColumnValues::Real(_) => 5,
        ColumnValues::Text(_) => 6,
    }
}

/// A column's name, and what it holds: its `ConvertedType`, for older readers, and its `LogicalType`.
fn schema_element<R>(column: &Column<'_, R>) -> Structure {
    /// A variant of `FieldRepetitionType`: each value may be missing.
    const OPTIONAL: i32 = 1;
    let element = Structure::default().i32(1, physical_type(&column.values)).i32(3, OPTIONAL).text(4, &column.name);
    let logical = Structure::default();
    let (converted, logical) = match &column.values {
        ColumnValues::Real(_) | ColumnValues::Flag(_) => return element,
        ColumnValues::Text(_) => (0, logical.structure(1, Structure::default())),
        ColumnValues::Time(_) => {
            let microseconds = Structure::default().structure(2, Structure::default());
            // In UTC.
            (10, logical.structure(8, Structure::default().flag(1, true).structure(2, microseconds)))
        }
        ColumnValues::Count(_) => {
            let (bits, is_signed) = (64, false);
            (14, logical.structure(10, Structure::default().i8(1, bits).flag(2, is_signed)))
        }
    };
    element.i32(6, converted).structure(10, logical)
}

#[cfg(test)]
mod tests {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;

    use super::*;

    #[test]
    fn long_column_has_pages_and_groups() {
        let columns = [Column::text("text", |row: &String| Some(row.clone().into()))];
        let rows: Vec<String> = (0..3000).map(|number| format!("{number:01000}")).collect();
        let mut out = tempfile::tempfile().unwrap();
        let mut file = ParquetFile::create(&mut out).unwrap();
        file.write_rows(&columns, &rows).unwrap();
        file.write_rows(&columns, &rows[..5]).unwrap();
        file.finish(&columns, ("key", "value")).unwrap();

        let file = SerializedFileReader::new(out).unwrap();
        assert_eq!((file.num_row_groups(), file.metadata().file_metadata().num_rows()), (2, 3005));
        assert_eq!(file.get_row_group(0).unwrap().get_column_page_reader(0).unwrap().count(), 3);
        let read_rows = file.get_row_iter(None).unwrap().map(|row| row.unwrap().get_string(0).unwrap().clone());
        assert!(read_rows.eq(rows.iter().chain(&rows[..5]).cloned()));
    }
}
