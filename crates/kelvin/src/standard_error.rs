//! Lines on standard error.

use std::io::{self, Write};

use kelvin_core::text::escape_invisible;

use crate::locale::in_locale;

/// A line on standard error, for what is not the answer. Errors are ignored.
pub fn eprint_line(line: impl std::fmt::Display) {
    let _ = writeln!(io::stderr(), "{}", in_locale(&escape_invisible(&line.to_string())));
}
