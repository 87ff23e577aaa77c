//! What stands for Parquet in a build without the feature `parquet`: an error.

use std::io::{self, ErrorKind, Write};

use crate::{Render, Report};

/// One row for each metric and case.
#[derive(Clone, Copy, Debug, Default)]
pub struct Parquet;

/// One row for each raw sample.
#[derive(Clone, Copy, Debug, Default)]
pub struct ParquetSamples;

fn absent() -> io::Error {
    io::Error::new(ErrorKind::Unsupported, "this kelvin was built without Parquet: build it with the feature parquet")
}

impl Render for Parquet {
    fn render(&self, _: &Report<'_>, _: &mut dyn Write) -> io::Result<()> {
        Err(absent())
    }
}

impl Render for ParquetSamples {
    fn render(&self, _: &Report<'_>, _: &mut dyn Write) -> io::Result<()> {
        Err(absent())
    }
}
