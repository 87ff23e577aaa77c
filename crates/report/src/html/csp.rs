//! The page's Content-Security-Policy: nothing is loaded, and only the page's own scripts and styles take effect, identified by
//! their hashes. Injected text would stay text.
//!
//! The chart library is a script that the page's own adds, and has a hash of its own; it sets the style of elements through the
//! document's object model, which no policy concerns.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

/// The hash of the chart library as the browser unpacks it; written with the packed library, by `assets/charts/build.mjs`.
pub(super) const CHART_LIBRARY_HASH: &str = include_str!("../../assets/echarts.sha256.txt");

/// The page's scripts and styles, as they are inside their elements.
pub(super) struct OwnContent<'a> {
    pub(super) script: &'a str,
    pub(super) styles: [&'a str; 2],
}

/// The policy of a page.
pub(super) fn content_security_policy(own: OwnContent<'_>) -> String {
    format!(
        "default-src 'none'; script-src '{}' '{}'; style-src '{}' '{}'; img-src data:; base-uri 'none'; form-action 'none'",
        sha256_source(own.script.as_bytes()),
        CHART_LIBRARY_HASH.trim_end(),
        sha256_source(own.styles[0].as_bytes()),
        sha256_source(own.styles[1].as_bytes())
    )
}

/// The policy of a page without scripts, with one style.
pub(super) fn style_only_policy(style: &str) -> String {
    format!("default-src 'none'; style-src '{}'; base-uri 'none'; form-action 'none'", sha256_source(style.as_bytes()))
}

/// A hash in the syntax of a policy.
fn sha256_source(content: &[u8]) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(content)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_matches_csp_example() {
        // Content Security Policy Level 3, section 8.3.
        assert_eq!(sha256_source(b"alert('Hello, world.');"), "sha256-qznLcsROx4GACP2dm0UCKCzCG+HiZ1guq6ZZDob/Tng=");
    }

    #[test]
    fn chart_library_matches_its_hash() {
        let packed = STANDARD.decode(super::super::CHART_LIBRARY).unwrap();
        let library = miniz_oxide::inflate::decompress_to_vec(&packed).unwrap();
        assert_eq!(CHART_LIBRARY_HASH.trim_end(), sha256_source(&library));
    }
}
