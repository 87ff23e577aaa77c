//! The message sizes that network probes share, and that of a case.

use kelvin_core::Case;
use kelvin_core::catalogue::net::MESSAGE;
use kelvin_harness::{Effort, ProbeError};

use super::link::{LARGEST_DATAGRAM, Protocol};

const KIB: u64 = 1 << 10;

/// Message sizes of a round trip: the least, a small one, and up to the most that a datagram holds; of a quick run the small one.
pub(super) fn round_trip_messages(protocol: Protocol, effort: Effort) -> Vec<u64> {
    match effort {
        Effort::Quick => vec![SMALL_MESSAGE],
        _ => vec![1, SMALL_MESSAGE, KIB, MEDIUM_MESSAGE, largest_message(protocol)],
    }
}

/// A small message, whose bytes themselves cost next to nothing.
pub(super) const SMALL_MESSAGE: u64 = 64;

/// One whose bytes cost about as much as all else, and fit the nearest cache on their way.
pub(super) const MEDIUM_MESSAGE: u64 = 16 * KIB;

/// The largest of a protocol's round trips.
pub(super) fn largest_message(protocol: Protocol) -> u64 {
    if protocol == Protocol::Udp { LARGEST_DATAGRAM } else { 64 * KIB }
}

/// Bytes that are sent at a time at most.
const MAX_MESSAGE: u64 = 1 << 30;

/// The bytes of a case's message.
pub(super) fn message_bytes(case: &Case) -> Result<usize, ProbeError> {
    match MESSAGE.number_in(case) {
        Some(bytes @ 1..=MAX_MESSAGE) => Ok(bytes as usize),
        _ => Err(ProbeError::fail(format!("the case needs a message of at least 1 byte, not {case}"))),
    }
}
