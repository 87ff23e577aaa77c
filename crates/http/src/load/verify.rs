//! Whether a body is the one that the file has: by its length or its BLAKE3 hash.

use std::sync::OnceLock;

use kelvin_transfer::wire::{Hash, Hasher};

/// What of a body is compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verify {
    /// Nothing beyond the length that its own head gives.
    #[default]
    Nothing,
    /// Its length.
    Length,
    /// Its BLAKE3 hash.
    Content,
}

/// A right body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpectedBody {
    /// Its bytes.
    pub length: u64,
    /// Their hash; without one only lengths are compared.
    pub hash: Option<Hash>,
}

impl ExpectedBody {
    /// Of a body that is at hand.
    pub fn from_reader(reader: &mut impl std::io::Read, verify: Verify) -> std::io::Result<Self> {
        if verify != Verify::Content {
            return Ok(Self { length: std::io::copy(reader, &mut std::io::sink())?, hash: None });
        }
        let mut hasher = Hasher::new();
        Ok(Self { length: std::io::copy(reader, &mut hasher)?, hash: Some(hasher.finalize()) })
    }
}

/// The right body of each file, known before or learnt from the first one that came to any thread.
#[derive(Debug)]
pub(crate) struct BodyChecker {
    verify: Verify,
    expected: Vec<OnceLock<ExpectedBody>>,
}

impl BodyChecker {
    /// With the bodies that are known before.
    pub(crate) fn new(verify: Verify, expected_bodies: &[Option<ExpectedBody>]) -> Self {
        let expected = expected_bodies.iter().map(|body| body.map_or_else(OnceLock::new, OnceLock::from)).collect();
        Self { verify, expected }
    }

    /// Whether a whole body is right; the first of a file is, and is learnt.
    pub(crate) fn check_body(&self, file: usize, body: ExpectedBody) -> bool {
        if self.verify == Verify::Nothing {
            return true;
        }
        let expected = self.expected[file].get_or_init(|| body);
        expected.length == body.length && (expected.hash.is_none() || expected.hash == body.hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(bytes: &[u8], verify: Verify) -> ExpectedBody {
        ExpectedBody::from_reader(&mut &bytes[..], verify).unwrap()
    }

    #[test]
    fn first_body_is_the_reference() {
        let checker = BodyChecker::new(Verify::Content, &[None; 2]);
        let content = |bytes| body(bytes, Verify::Content);
        assert!(checker.check_body(0, content(b"one")) && checker.check_body(1, content(b"two")));
        assert!(checker.check_body(0, content(b"one")));
        assert!(!checker.check_body(0, content(b"onE")) && !checker.check_body(0, content(b"on")));
    }

    #[test]
    fn length_check_accepts_other_bytes() {
        let checker = BodyChecker::new(Verify::Length, &[Some(body(b"one", Verify::Length))]);
        assert!(checker.check_body(0, body(b"two", Verify::Length)));
        assert!(!checker.check_body(0, body(b"three", Verify::Length)));
    }

    #[test]
    fn default_compares_nothing() {
        let checker = BodyChecker::new(Verify::Nothing, &[None]);
        assert!(
            checker.check_body(0, body(b"a", Verify::Length)) && checker.check_body(0, body(b"bc", Verify::Length))
        );
    }
}
