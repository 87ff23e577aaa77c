//! The characters that text for people may have here.

use std::borrow::Cow;
use std::io::{self, Write};

use kelvin_report::with_ascii_signs;

/// Whether the locale of texts has characters other than ASCII: the first of LC_ALL, LC_CTYPE and LANG that is set names UTF-8.
pub fn is_utf8() -> bool {
    let is_set = |name: &&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find(|name| is_set(name)).and_then(std::env::var_os);
    let locale_name = locale.map(|name| name.to_string_lossy().to_ascii_lowercase()).unwrap_or_default();
    locale_name.contains("utf-8") || locale_name.contains("utf8")
}

/// Text whose signs the locale has; what is not kelvin's own, such as the name of a file, stays as it is.
pub fn in_locale(text: &str) -> Cow<'_, str> {
    if text.is_ascii() || is_utf8() { Cow::Borrowed(text) } else { Cow::Owned(with_ascii_signs(text)) }
}

/// Writes such text.
///
/// # Errors
/// Those of writing.
pub fn write_in_locale(out: &mut dyn Write, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut text = Vec::new();
    write(&mut text)?;
    match std::str::from_utf8(&text) {
        Ok(text) => out.write_all(in_locale(text).as_bytes()),
        // Names of files that no locale has.
        Err(_) => out.write_all(&text),
    }
}
