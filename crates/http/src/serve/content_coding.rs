//! Content codings of files that lie compressed beside others, and which of them a client is sent (RFC 9110, section 12.5.3).

use std::cmp::Reverse;
use std::sync::Arc;

use crate::serve::open_file_cache::OpenFile;
use crate::serve::request::{HttpRequest, field_values};

/// A content coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentCoding {
    /// Brotli.
    Brotli,
    /// Zstandard.
    Zstd,
    /// Gzip.
    Gzip,
}

impl ContentCoding {
    /// All of them, in their order.
    pub const ALL: [Self; 3] = [Self::Brotli, Self::Zstd, Self::Gzip];

    /// As header fields name it.
    pub fn name(self) -> &'static str {
        ["br", "zstd", "gzip"][self as usize]
    }

    /// The ending of files that have it.
    pub fn ending(self) -> &'static str {
        [".br", ".zst", ".gz"][self as usize]
    }
}

/// The representation of a file that is sent for a request: the one that the client likes best, of several the smallest; `None` if it
/// takes none of them.
pub fn choose<'a>(request: &HttpRequest<'_>, file: &'a Arc<OpenFile>) -> Option<&'a Arc<OpenFile>> {
    let preferences = Preferences::of_fields(field_values(request.head, "accept-encoding"));
    let representations = [file].into_iter().chain(&file.compressed);
    let acceptable = representations.filter_map(|file| Some((preferences.quality(file.coding)?, file)));
    Some(acceptable.max_by_key(|(quality, file)| (*quality, Reverse(file.identity.size)))?.1)
}

/// Thousandths by which a client wants what, as far as it says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Preferences {
    codings: [Option<u16>; ContentCoding::ALL.len()],
    identity: Option<u16>,
    any: Option<u16>,
}

impl Preferences {
    /// Those of all fields together. What is not understood is not wanted.
    fn of_fields<'a>(values: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut preferences = Self::default();
        for element in values.flat_map(|value| value.split(|&byte| byte == b',')) {
            let (coding, weight) = match element.iter().position(|&byte| byte == b';') {
                Some(index) => (&element[..index], parse_weight(&element[index + 1..])),
                None => (element, Some(1000)),
            };
            if let (Some(slot), Some(weight)) = (preferences.slot(coding.trim_ascii()), weight) {
                slot.get_or_insert(weight);
            }
        }
        preferences
    }

    fn slot(&mut self, name: &[u8]) -> Option<&mut Option<u16>> {
        match name.to_ascii_lowercase().as_slice() {
            b"identity" => Some(&mut self.identity),
            b"*" => Some(&mut self.any),
            // Its former name (section 8.4.1.3).
            b"x-gzip" => Some(&mut self.codings[ContentCoding::Gzip as usize]),
            name => {
                let coding = ContentCoding::ALL.into_iter().find(|coding| coding.name().as_bytes() == name)?;
                Some(&mut self.codings[coding as usize])
            }
        }
    }

    /// How much a representation is wanted; `None` if it is not acceptable. One that is not coded is acceptable unless it is excluded, and
    /// the last choice.
    fn quality(&self, coding: Option<ContentCoding>) -> Option<u16> {
        match coding {
            Some(coding) => self.codings[coding as usize].or(self.any).filter(|quality| *quality > 0),
            None => self.identity.or(self.any).map_or(Some(0), |quality| Some(quality).filter(|quality| *quality > 0)),
        }
    }
}

/// The thousandths of a weight: `q=` with 0 to 1 and at most three decimals (section 12.4.2).
fn parse_weight(parameter: &[u8]) -> Option<u16> {
    let text = std::str::from_utf8(parameter).ok()?.trim_ascii();
    let number = text.strip_prefix(['q', 'Q'])?.strip_prefix('=')?;
    let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
    let is_weight =
        ["0", "1"].contains(&whole) && decimals.len() <= 3 && decimals.bytes().all(|byte| byte.is_ascii_digit());
    let thousandths = format!("{whole}{decimals:0<3}").parse().ok().filter(|_| is_weight)?;
    (thousandths <= 1000).then_some(thousandths)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How much a client wants Brotli, Zstandard, gzip and what is not coded.
    fn qualities(fields: &[&str]) -> [Option<u16>; 4] {
        let preferences = Preferences::of_fields(fields.iter().map(|field| field.as_bytes()));
        let [brotli, zstd, gzip] = ContentCoding::ALL.map(|coding| preferences.quality(Some(coding)));
        [brotli, zstd, gzip, preferences.quality(None)]
    }

    #[test]
    fn preferences_follow_rfc_9110() {
        for (fields, expected) in [
            (&[][..], [None, None, None, Some(0)]),
            (&[""], [None, None, None, Some(0)]),
            (&["gzip, deflate, br, zstd"], [Some(1000), Some(1000), Some(1000), Some(0)]),
            (&["gzip;q=1.0, identity; q=0.5, *;q=0"], [None, None, Some(1000), Some(500)]),
            (&["compress;q=0.5, gzip;q=1.0"], [None, None, Some(1000), Some(0)]),
            (&["*"], [Some(1000); 4]),
            (&["*;q=0"], [None; 4]),
            (&["*;q=0, identity"], [None, None, None, Some(1000)]),
            (&["identity;q=0, br;q=0.001"], [Some(1), None, None, None]),
            (&["gzip;q=0", "br"], [Some(1000), None, None, Some(0)]),
            (&["X-GZIP ; Q=0.25"], [None, None, Some(250), Some(0)]),
            (&["gzip;q=0.2, gzip;q=0.8"], [None, None, Some(200), Some(0)]),
        ] {
            assert_eq!(qualities(fields), expected, "{fields:?}");
        }
    }

    #[test]
    fn malformed_weight_wants_nothing() {
        for weight in ["q=", "q=2", "q=1.001", "q=0.1234", "q=-1", "q=.5", "q=0.5;x", "x=1", "", "q = 1", "q=0,5"] {
            assert_eq!(qualities(&[&format!("gzip;{weight}")])[2], None, "{weight}");
        }
        for (weight, expected) in [("q=1", 1000), ("q=1.", 1000), ("q=1.000", 1000), ("q=0.5", 500), (" q=0.001 ", 1)] {
            assert_eq!(qualities(&[&format!("gzip;{weight}")])[2], Some(expected), "{weight}");
        }
    }
}
