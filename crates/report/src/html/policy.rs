//! The page's Content-Security-Policy: nothing is loaded, and only the page's own scripts and styles take effect, identified by
//! their hashes. Injected text would stay text.
//!
//! The chart library is a script that the page's own adds, and has a hash of its own; it sets the style of elements through the
//! document's object model, which no policy concerns.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

/// The hash of the chart library as the browser unpacks it; written with the packed library, by `assets/charts/build.mjs`.
pub(super) const CHARTS: &str = include_str!("../../assets/echarts.sha256.txt");

/// The page's scripts and styles, as they are inside their elements.
pub(super) struct Own<'a> {
    pub(super) script: &'a str,
    pub(super) styles: [&'a str; 2],
}

/// The policy of a page.
pub(super) fn policy(own: Own<'_>) -> String {
    format!(
        "default-src 'none'; script-src '{}' '{}'; style-src '{}' '{}'; img-src data:; base-uri 'none'; form-action 'none'",
        hash(own.script.as_bytes()),
        CHARTS.trim_end(),
        hash(own.styles[0].as_bytes()),
        hash(own.styles[1].as_bytes())
    )
}

/// The policy of a page without scripts, with one style.
pub(super) fn of_styles(style: &str) -> String {
    format!("default-src 'none'; style-src '{}'; base-uri 'none'; form-action 'none'", hash(style.as_bytes()))
}

/// A hash in the syntax of a policy.
fn hash(content: &[u8]) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(content)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_as_the_recommendation_has_it() {
        // Content Security Policy Level 3, section 8.3.
        assert_eq!(hash(b"alert('Hello, world.');"), "sha256-qznLcsROx4GACP2dm0UCKCzCG+HiZ1guq6ZZDob/Tng=");
    }

    #[test]
    fn the_chart_library_is_the_one_that_is_packed() {
        let packed = STANDARD.decode(super::super::CHARTS).unwrap();
        let library = miniz_oxide::inflate::decompress_to_vec(&packed).unwrap();
        assert_eq!(CHARTS.trim_end(), hash(&library));
    }
}
