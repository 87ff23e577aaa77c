//! What a server did for TLS, and how long that took.

/// Counts, and times by the clock of the system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TlsTotals {
    /// Handshakes that agreed on keys.
    pub handshakes: u64,
    /// Connections that ended because of what the client sent.
    pub failures: u64,
    /// Bytes that were encrypted.
    pub bytes: u64,
    /// Nanoseconds in which files were read into memory, to be encrypted there.
    pub read_nanoseconds: u64,
    /// Nanoseconds in which bytes were encrypted.
    pub encrypt_nanoseconds: u64,
}

impl TlsTotals {
    /// Numbers that it consists of.
    pub(crate) const WORDS: usize = 5;

    pub(crate) fn words(&mut self) -> [&mut u64; Self::WORDS] {
        let Self { handshakes, failures, bytes, read_nanoseconds, encrypt_nanoseconds } = self;
        [handshakes, failures, bytes, read_nanoseconds, encrypt_nanoseconds]
    }
}
