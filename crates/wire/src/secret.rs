//! The secret that two kelvins share, and what is derived from it: proofs, and the keys of frame tags.
//!
//! All of it is BLAKE3 in its keyed mode (O'Connor, Aumasson, Neves, Wilcox-O'Hearn 2020, section 2.3), each use with its own
//! label, and hashes are compared in constant time, as `blake3::Hash` is. Whoever records a handshake can guess secrets
//! offline: so a secret must be long and random.

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use blake3::Hash;

use crate::{Error, Result};

/// Fewest bytes of a secret. 16 random bytes cannot be guessed.
const SHORTEST: usize = 16;
/// Most bytes read of its file.
const LONGEST: u64 = 4096;
/// How to make one.
const HOW: &str = "make one by `(umask 077; head -c 32 /dev/urandom | base64 > FILE)`";

/// A nonce: an unpredictable number, used once.
pub type Nonce = [u8; 32];

/// A new one.
///
/// # Errors
/// A system that has no random numbers.
pub fn nonce() -> Result<Nonce> {
    let mut nonce = Nonce::default();
    getrandom::fill(&mut nonce)
        .map_err(|error| Error::Call { doing: "get random numbers", source: std::io::Error::other(error) })?;
    Ok(nonce)
}

/// The sender of a message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Side {
    /// The one that connects.
    Client,
    /// The one that listens.
    Agent,
}

/// What both sides must know; for no secret, that of an agent that only this host can reach.
pub struct Secret {
    key: [u8; 32],
    is_some: bool,
}

impl Secret {
    /// None: everybody has it.
    pub fn none() -> Self {
        Self { key: blake3::derive_key("kelvin agent, no secret", &[]), is_some: false }
    }

    /// Of so many bytes, without white space at the end.
    ///
    /// # Errors
    /// Why it is unsuitable.
    pub fn new(bytes: &[u8]) -> std::result::Result<Self, String> {
        let bytes = bytes.trim_ascii();
        if bytes.len() < SHORTEST {
            return Err(format!("has {} bytes, and a secret must have at least {SHORTEST}: {HOW}", bytes.len()));
        }
        Ok(Self { key: blake3::derive_key("kelvin agent, shared secret", bytes), is_some: true })
    }

    /// From a file that nobody else may read.
    ///
    /// # Errors
    /// [`Error::SecretFile`], with what would be right.
    pub fn read(file: &Path) -> Result<Self> {
        let wrong = |why: String| Error::SecretFile { file: file.display().to_string(), why };
        let failed = |error: std::io::Error| wrong(error.to_string());
        let opened = std::fs::File::open(file).map_err(failed)?;
        let facts = opened.metadata().map_err(failed)?;
        if !facts.is_file() {
            return Err(wrong("is no regular file".into()));
        }
        let mode = facts.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(wrong(format!("is accessible to others (mode {mode:03o}): chmod 600 it")));
        }
        if facts.len() > LONGEST {
            return Err(wrong(format!("has {} bytes, and a secret may have at most {LONGEST}", facts.len())));
        }
        let mut bytes = Vec::new();
        opened.take(LONGEST).read_to_end(&mut bytes).map_err(failed)?;
        Self::new(&bytes).map_err(wrong)
    }

    /// Whether there is one.
    pub fn is_some(&self) -> bool {
        self.is_some
    }

    /// A key for one purpose, which its context names as BLAKE3's key derivation asks: hard-coded, and used for nothing else.
    pub fn key_for(&self, context: &'static str) -> [u8; 32] {
        blake3::derive_key(context, &self.key)
    }

    /// The proof over two nonces that a side knows the secret.
    pub fn proof(&self, side: Side, nonces: &[Nonce; 2]) -> Hash {
        let name: &[u8] = match side {
            Side::Client => b"proof of the client",
            Side::Agent => b"proof of the agent",
        };
        self.hash(name, nonces)
    }

    /// The key of the tags of a side's messages.
    pub fn key(&self, side: Side, nonces: &[Nonce; 2]) -> [u8; 32] {
        let name: &[u8] = match side {
            Side::Client => b"tags of the client",
            Side::Agent => b"tags of the agent",
        };
        *self.hash(name, nonces).as_bytes()
    }

    /// Labels of one length could not be mixed up; these end in a zero, which none of them contains.
    fn hash(&self, name: &[u8], nonces: &[Nonce; 2]) -> Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(name).update(&[0]).update(&nonces[0]).update(&nonces[1]);
        hasher.finalize()
    }
}

impl std::fmt::Debug for Secret {
    /// Never the secret.
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Secret").field("is_some", &self.is_some).finish_non_exhaustive()
    }
}
