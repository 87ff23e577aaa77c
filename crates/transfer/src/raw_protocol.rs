//! The bare protocol: files over a path of [`crate::datapath`], with the least framing there can be, to measure moving itself.
//!
//! Each file is a [`RawHeader`] of fixed size, its name, its bytes as they are, and their BLAKE3 digest if the header says so; after
//! it, one byte of the receiver if the header asks for that. What follows the last file is an end marker, a header of its own kind.
//! A sender keeps one connection for all files, or makes one for each; which of the two, the receiver is told beforehand.
//!
//! The socket of either end belongs to its process, or is in the kernel behind a device of kelvin's module.
//!
//! Nothing is encrypted and nobody is authenticated: both ends refuse a peer that is not this machine. The first process of this machine
//! that connects is taken for the sender: TCP tells nothing of its user, and to ask the kernel (/proc/net/tcp) would be measured with it.

mod header;
mod kernel_socket;
mod receive;
mod send;
#[cfg(test)]
mod tests;

pub use header::{HEADER_BYTES, RawHeader};
pub use kernel_socket::{KernelListener, KernelMethod, KernelSetup, send_through_kernel};
pub use receive::{RawReceiveLimits, RawReceiveOptions, ReceivedFile, receive};
pub use send::{PrepareSocket, RawSendOptions, send};

use std::fs::File;
use std::io::{self, Read};
use std::net::SocketAddr;

use crate::wire::address::is_loopback;
use crate::wire::{Hash, Hasher};
use serde::{Deserialize, Serialize};

use crate::datapath::IoCounts;
use crate::{Error, Result};

/// How long a connection lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ConnectionLifetime {
    /// One for each file.
    PerFile,
    /// One for all files.
    Persistent,
}

impl ConnectionLifetime {
    /// As it is written.
    pub fn word(self) -> &'static str {
        match self {
            Self::PerFile => "per-file",
            Self::Persistent => "persistent",
        }
    }
}

/// What was moved, at one end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RawTotals {
    /// Files.
    pub files: u64,
    /// Their bytes, without framing.
    pub bytes: u64,
    /// What that took.
    pub counts: IoCounts,
}

/// What the receiver replies to a file that it has.
const REPLY_RECEIVED: u8 = 6;
/// Bytes of a digest.
const DIGEST_BYTES: usize = 32;

/// The digest of the first bytes of a file: by what was observed, or read again where a method has moved them without showing them.
fn digest_of(observed: Option<Hasher>, file: &File, bytes: u64) -> Result<Hash> {
    if let Some(hasher) = observed {
        return Ok(hasher.finalize());
    }
    let read = || {
        let (mut hasher, mut own) = (Hasher::new(), file.try_clone()?);
        io::Seek::rewind(&mut own)?;
        io::copy(&mut own.take(bytes), &mut hasher)?;
        Ok(hasher.finalize())
    };
    read().map_err(Error::Connection)
}

/// An error unless the other end is on this machine.
fn check_is_local(address: SocketAddr) -> Result<()> {
    if is_loopback(address) { Ok(()) } else { Err(Error::NotLocal { address }) }
}
