//! Whether a body is the one that the file has: by its length or its BLAKE3 hash.

use kelvin_wire::{Hash, Hasher};

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
pub struct Known {
    /// Its bytes.
    pub length: u64,
    /// Their hash; without one only lengths are compared.
    pub hash: Option<Hash>,
}

impl Known {
    /// Of a body that is at hand.
    pub fn of(reader: &mut impl std::io::Read, verify: Verify) -> std::io::Result<Self> {
        let mut hasher = Hasher::new();
        let length = std::io::copy(reader, &mut Counted(&mut hasher, verify))?;
        Ok(Self { length, hash: (verify == Verify::Content).then(|| hasher.finalize()) })
    }
}

/// Hashes only where a hash is wanted.
struct Counted<'h>(&'h mut Hasher, Verify);

impl std::io::Write for Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.1 == Verify::Content {
            self.0.update(bytes);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The right body of each file, told before or learnt from the first one that came.
#[derive(Debug)]
pub(crate) struct Checker {
    verify: Verify,
    known: Vec<Option<Known>>,
}

impl Checker {
    pub(crate) fn new(verify: Verify, known: Vec<Option<Known>>) -> Self {
        Self { verify, known }
    }

    /// Whether bodies are hashed.
    pub(crate) fn hashes(&self) -> bool {
        self.verify == Verify::Content
    }

    /// Whether a whole body is right; the first of a file is, and is learnt.
    pub(crate) fn is_right(&mut self, file: usize, body: Known) -> bool {
        if self.verify == Verify::Nothing {
            return true;
        }
        let known = self.known[file].get_or_insert(body);
        known.length == body.length && (known.hash.is_none() || known.hash == body.hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(bytes: &[u8], verify: Verify) -> Known {
        Known::of(&mut &bytes[..], verify).unwrap()
    }

    #[test]
    fn the_first_body_of_a_file_is_learnt_and_others_are_compared_with_it() {
        let mut checker = Checker::new(Verify::Content, vec![None; 2]);
        let content = |bytes| body(bytes, Verify::Content);
        assert!(checker.is_right(0, content(b"one")) && checker.is_right(1, content(b"two")));
        assert!(checker.is_right(0, content(b"one")));
        assert!(!checker.is_right(0, content(b"onE")) && !checker.is_right(0, content(b"on")));
    }

    #[test]
    fn by_length_other_bytes_of_the_same_length_are_right() {
        let mut checker = Checker::new(Verify::Length, vec![Some(body(b"one", Verify::Length))]);
        assert!(checker.is_right(0, body(b"two", Verify::Length)));
        assert!(!checker.is_right(0, body(b"three", Verify::Length)));
    }

    #[test]
    fn nothing_is_compared_unless_it_is_asked_for() {
        let mut checker = Checker::new(Verify::Nothing, vec![None]);
        assert!(checker.is_right(0, body(b"a", Verify::Length)) && checker.is_right(0, body(b"bc", Verify::Length)));
    }
}
