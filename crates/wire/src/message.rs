//! What is said after the handshake: the client asks for one test after the other, and the agent answers.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::bounded::{self, REASON};
use crate::busy::Busy;
use crate::interface::Interface;
use crate::numbered::Numbered;
use crate::sockets::{Sockets, TcpEnd};

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

/// Which way the bytes of streams go.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// The client sends, and the agent counts what arrives.
    ToAgent,
    /// The agent sends, and the client counts what arrives.
    FromAgent,
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
    /// Take what comes over so many connections of TCP, or send over them without end, and count it.
    Streams {
        /// Which of the two.
        direction: Direction,
        /// The connections.
        count: u32,
        /// What their sockets are asked for.
        sockets: Sockets,
    },
    /// Take datagrams of so many bytes, each with its number, and count them.
    TakeDatagrams {
        /// Bytes of a datagram.
        bytes: u32,
    },
    /// Accept connections one after the other: give back the cookie with which each begins, and reset it when the client has
    /// closed it.
    Accept,
    /// Say what has arrived by now of the test that goes on, or was sent.
    Count,
    /// End the test that goes on: one over datagrams has no end of its own.
    End,
}

impl fmt::Display for Ask {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Echo { transport, bytes } => write!(out, "asks for messages of {bytes} bytes back over {transport}"),
            Self::Streams { direction: Direction::ToAgent, count, sockets } => {
                write!(out, "sends by {count} connections{sockets}")
            }
            Self::Streams { direction: Direction::FromAgent, count, sockets } => {
                write!(out, "asks for bytes by {count} connections{sockets}")
            }
            Self::TakeDatagrams { bytes } => write!(out, "sends datagrams of {bytes} bytes"),
            Self::Accept => write!(out, "asks for connections to be accepted"),
            Self::Count => write!(out, "asks what has been counted"),
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
    /// What has arrived by now, or was sent, in the agent's own time: a rate is a difference of two of these.
    Counted(Counted),
    /// It is over, and this is what the agent saw of it.
    Done(Seen),
    /// It cannot be, or ended by a fault.
    Failed {
        /// Why.
        #[serde(deserialize_with = "bounded::text::<REASON, _>")]
        why: String,
    },
}

impl Answer {
    /// That it cannot be, for this reason.
    pub fn failed(why: impl fmt::Display) -> Self {
        Self::Failed { why: bounded::cut(&why.to_string(), REASON) }
    }
}

/// What has arrived by a moment, or, of streams from the agent, was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counted {
    /// Bytes of streams, or of datagrams.
    pub bytes: u64,
    /// Nanoseconds since the test began, by the agent's clock, when they were counted.
    pub at: u64,
    /// What the numbers of datagrams say; of streams, nothing.
    pub numbers: Numbered,
    /// Datagrams that came to the agent's host and found no room in the socket: the agent was too slow for them.
    pub dropped: u64,
    /// How busy the agent's host was since it was asked before.
    pub busy: Busy,
}

impl Counted {
    /// Whether it can have come after this: nothing that is counted becomes less.
    pub(crate) fn follows(&self, earlier: &Self) -> bool {
        let all =
            |of: &Self| [of.bytes, of.at, of.dropped, of.numbers.arrived, of.numbers.latest, of.numbers.reordered];
        all(self).iter().zip(all(earlier)).all(|(now, before)| *now >= before)
    }
}

/// What the agent saw of a test.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    /// What arrived: whole messages of an echo, bytes of streams and of datagrams that are counted, connections. Of streams from
    /// the agent, bytes that were sent.
    pub arrived: u64,
    /// Nanoseconds of CPU time of the threads that served it: in user mode, and in the kernel.
    pub cpu_nanoseconds: [u64; 2],
    /// Most tests that the agent served at one time, this one counted: more than one, and each had only a part of it.
    pub tests: u32,
    /// The agent's own interface over which it went, where its system says which that is.
    pub interface: Option<Interface>,
    /// The agent's end of the first of the streams, where its system tells of it.
    pub stream: Option<TcpEnd>,
}
