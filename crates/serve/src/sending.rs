//! How what a connection has to send gets into its socket.

use std::fmt;
use std::str::FromStr;

use rustix::fd::AsFd;
use rustix::fs::sendfile;
use rustix::io::{Errno, Result};
use rustix::net::{SendFlags, send};

use crate::body::Part;
use crate::connection::{Connection, ToSend};
use crate::words;

/// By which calls the bytes of files go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sending {
    /// Small files as by [`Self::ReadWrite`], so that one call sends head and content, and larger ones as by [`Self::SendFile`].
    #[default]
    Auto,
    /// Read into memory and sent from there: two copies, by a buffer that stays in the cache.
    ReadWrite,
    /// By reference to the page cache (sendfile).
    SendFile,
}

/// All of them, by the words for them.
const WORDS: [(&str, Sending); 3] =
    [("auto", Sending::Auto), ("rw", Sending::ReadWrite), ("sendfile", Sending::SendFile)];

/// Bytes that are read at a time. They are sent as they are, with nothing held back for what follows (MSG_MORE): the client can
/// take one piece while the next one is read.
const PIECE: usize = 32 << 10;
/// Most bytes of one sendfile: others wait meanwhile for this thread, and a file that is not in memory is read in its time.
const CALL: u64 = 2 << 20;
/// Files up to this size are read behind their heads, so that one call sends both.
const INLINE: u64 = 16 << 10;

impl Sending {
    /// Size of the largest file that is read behind its head when it is answered with.
    pub fn inline(self) -> u64 {
        match self {
            Self::Auto | Self::ReadWrite => INLINE,
            Self::SendFile => 0,
        }
    }

    /// Makes one call to the socket for what is to be sent next, and says how many bytes it moved.
    ///
    /// # Errors
    /// What the call says: `AGAIN` of a socket that takes no more. A file that has become shorter than was said is `IO`.
    #[inline]
    pub fn send_some(self, connection: &mut Connection, socket: impl AsFd) -> Result<usize> {
        if self == Self::ReadWrite {
            connection.read_part(PIECE)?;
        }
        let sent = match connection.to_send() {
            Some(ToSend::Bytes(bytes, follows)) => {
                // Only a head is held back, for the part of a file that follows it by another call.
                let more = if follows && self != Self::ReadWrite { SendFlags::MORE } else { SendFlags::empty() };
                send(socket, bytes, SendFlags::NOSIGNAL | more)?
            }
            Some(ToSend::Part(part)) => send_file(part, socket)?,
            None => 0,
        };
        connection.sent(sent);
        Ok(sent)
    }
}

fn send_file(part: &Part, socket: impl AsFd) -> Result<usize> {
    let mut offset = part.range.start;
    let bytes = (part.range.end - part.range.start).min(CALL) as usize;
    match sendfile(socket, &part.opened.file, Some(&mut offset), bytes)? {
        0 => Err(Errno::IO),
        sent => Ok(sent),
    }
}

impl FromStr for Sending {
    type Err = String;

    fn from_str(word: &str) -> std::result::Result<Self, String> {
        words::find(&WORDS, word)
    }
}

impl fmt::Display for Sending {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(words::of(&WORDS, self))
    }
}
