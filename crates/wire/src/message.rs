//! What is said after the handshake: the client asks for one test after the other, and the agent answers.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A number by which a connection, or a datagram, is known to belong to a test.
pub type Cookie = [u8; 16];

/// What the bytes of a test travel over.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// A connection that loses nothing.
    Tcp,
    /// Datagrams, some of which may be lost.
    Udp,
}

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    /// Send back every message of so many bytes, until the client ends it.
    Echo {
        /// What they travel over.
        transport: Transport,
        /// Bytes of a message.
        bytes: u32,
    },
    /// End the test that goes on: one over datagrams has no end of its own.
    End,
}

impl fmt::Display for Ask {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Echo { transport, bytes } => write!(out, "asks for messages of {bytes} bytes back over {transport}"),
            Self::End => write!(out, "asks for the end of a test"),
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
        })
    }
}

/// What an agent answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The test can begin, at this port of the agent's address.
    Ready {
        /// The port.
        port: u16,
        /// What a connection begins with.
        cookie: Cookie,
    },
    /// It is over, and this is what the agent saw of it.
    Done(Seen),
    /// It cannot be, or ended by a fault.
    Failed {
        /// Why.
        why: String,
    },
}

/// What the agent saw of a test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    /// Messages that came, whole.
    pub messages: u64,
    /// Nanoseconds of CPU time of the thread that served it: in user mode, and in the kernel.
    pub cpu_nanoseconds: [u64; 2],
    /// Most tests that the agent served at one time, this one counted: more than one, and each had only a part of it.
    pub tests: u32,
}
