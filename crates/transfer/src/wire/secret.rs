//! The secret that two kelvins share, and the keys that are derived from it. They are derived by BLAKE3 in its mode for that (O'Connor, Aumasson,
//! Neves, Wilcox-O'Hearn 2020, section 2.3), one for each purpose.
//!
//! Whoever records a handshake can guess secrets offline: so a secret must be long and random.

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::wire::{Error, Result};

/// Fewest bytes of a secret. 16 random bytes cannot be guessed.
const MIN_SECRET_BYTES: usize = 16;
/// Most bytes read of its file.
const MAX_SECRET_FILE_BYTES: u64 = 4096;
/// How to make one.
const CREATE_HINT: &str = "make one by `(umask 077; head -c 32 /dev/urandom | base64 > FILE)`";

/// A nonce: an unpredictable number, used once.
pub type Nonce = [u8; 32];

/// A new one.
///
/// # Errors
/// A system that has no random numbers.
pub fn new_nonce() -> Result<Nonce> {
    let mut nonce = Nonce::default();
    getrandom::fill(&mut nonce)
        .map_err(|error| Error::Call { doing: "get random numbers", source: std::io::Error::other(error) })?;
    Ok(nonce)
}

/// What both sides must know, or nothing.
#[derive(Clone)]
pub struct Secret(Option<[u8; 32]>);

impl Secret {
    /// None: for an end that only this host can reach.
    pub fn none() -> Self {
        Self(None)
    }

    /// Of this many bytes, without white space at the end.
    ///
    /// # Errors
    /// Why it is unsuitable.
    pub fn new(bytes: &[u8]) -> std::result::Result<Self, String> {
        let bytes = bytes.trim_ascii();
        if bytes.len() < MIN_SECRET_BYTES {
            return Err(format!(
                "has {} bytes, and a secret must have at least {MIN_SECRET_BYTES}: {CREATE_HINT}",
                bytes.len()
            ));
        }
        Ok(Self(Some(blake3::derive_key("kelvin agent, shared secret", bytes))))
    }

    /// From a file that nobody else may read.
    ///
    /// # Errors
    /// [`Error::SecretFile`], with what would be right.
    pub fn read(file: &Path) -> Result<Self> {
        let file_error = |why: String| Error::SecretFile { file: file.display().to_string(), why };
        let read_error = |error: std::io::Error| file_error(error.to_string());
        let opened = kelvin_sys::fs::open_to_read(file).map_err(read_error)?;
        let metadata = opened.metadata().map_err(read_error)?;
        if !metadata.is_file() {
            return Err(file_error("is no regular file".into()));
        }
        let mode = metadata.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(file_error(format!("is accessible to others (mode {mode:03o}): chmod 600 it")));
        }
        if metadata.len() > MAX_SECRET_FILE_BYTES {
            return Err(file_error(format!(
                "has {} bytes, and a secret may have at most {MAX_SECRET_FILE_BYTES}",
                metadata.len()
            )));
        }
        let mut bytes = Vec::new();
        opened.take(MAX_SECRET_FILE_BYTES).read_to_end(&mut bytes).map_err(read_error)?;
        Self::new(&bytes).map_err(file_error)
    }

    /// Whether there is one.
    pub fn is_some(&self) -> bool {
        self.0.is_some()
    }

    /// Whether these bytes are the secret, in the same time wherever they differ; nothing is if there is none.
    pub fn matches(&self, bytes: &[u8]) -> bool {
        let candidate = Self::new(bytes).ok().and_then(|secret| secret.0);
        // Hashes compare in constant time.
        self.0
            .zip(candidate)
            .is_some_and(|(key, other_key)| blake3::Hash::from_bytes(key) == blake3::Hash::from_bytes(other_key))
    }

    /// A key for one purpose, which its context names as BLAKE3's key derivation asks: hard-coded, and used for nothing else.
    pub fn key_for(&self, context: &'static str) -> Option<[u8; 32]> {
        self.0.map(|key| blake3::derive_key(context, &key))
    }
}

impl std::fmt::Debug for Secret {
    /// Never the secret.
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Secret").field("is_some", &self.is_some()).finish_non_exhaustive()
    }
}
