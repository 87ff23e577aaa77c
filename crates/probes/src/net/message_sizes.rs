//! The message sizes that network probes share, and that of a case.

use kelvin_core::Case;
use kelvin_core::catalogue::net::MESSAGE;
use kelvin_harness::ProbeError;

use super::link::{LARGEST_DATAGRAM, Protocol};

const KIB: u64 = 1 << 10;

/// Message sizes of a round trip: the least, a small one, and up to the most that a datagram holds.
pub(super) fn round_trip_messages(protocol: Protocol) -> [u64; 5] {
    [1, SMALL_MESSAGE, KIB, MEDIUM_MESSAGE, largest_message(protocol)]
}

/// A small message, whose bytes themselves cost next to nothing.
pub(super) const SMALL_MESSAGE: u64 = 64;

/// One whose bytes cost about as much as all else, and fit the nearest cache on their way.
pub(super) const MEDIUM_MESSAGE: u64 = 16 * KIB;

/// The largest of a protocol's round trips.
pub(super) fn largest_message(protocol: Protocol) -> u64 {
    if protocol == Protocol::Udp { LARGEST_DATAGRAM } else { 64 * KIB }
}

/// The bytes of a case's message.
pub(super) fn message_bytes(case: &Case) -> Result<usize, ProbeError> {
    let bytes = MESSAGE.number_in(case).filter(|&bytes| (1..=1 << 30).contains(&bytes));
    bytes
        .map(|bytes| bytes as usize)
        .ok_or_else(|| ProbeError::fail(format!("the case needs a message of at least 1 byte, not {case}")))
}
