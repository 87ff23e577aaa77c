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

/// The policy of a page with these styles, and with this script and the chart library if there is a script; all as they are inside
/// their elements.
pub(super) fn content_security_policy(script: Option<&str>, styles: &[&str]) -> String {
    let [scripts, images] = script.map_or_else(Default::default, |script| {
        let library = CHART_LIBRARY_HASH.trim_end();
        [format!("script-src '{}' '{library}'; ", sha256_source(script.as_bytes())), "img-src data:; ".to_owned()]
    });
    let styles: String = styles.iter().map(|style| format!(" '{}'", sha256_source(style.as_bytes()))).collect();
    format!("default-src 'none'; {scripts}style-src{styles}; {images}base-uri 'none'; form-action 'none'")
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
        let library = miniz_oxide::inflate::decompress_to_vec(super::super::CHART_LIBRARY).unwrap();
        assert_eq!(CHART_LIBRARY_HASH.trim_end(), sha256_source(&library));
    }
}
