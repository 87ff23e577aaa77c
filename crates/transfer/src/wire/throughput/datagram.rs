//! Datagrams of a test: each begins with its number and the time at which it was sent. The receiver finds loss, reordering and jitter.

use super::counts::MAX_FIGURE;
use crate::wire::message::{Cookie, NUMBER_BYTES, SequenceCounts};

/// Bytes of the number and of the time, in nanoseconds of the sender's own clock, both with the least significant byte first.
const HEADER_BYTES: usize = 2 * NUMBER_BYTES;
/// Bytes of a datagram at least: one of as many bytes as a cookie could be the one that introduces its sender.
pub const MIN_DATAGRAM_BYTES: u32 = size_of::<Cookie>() as u32 + 1;
const _: () = assert!(MIN_DATAGRAM_BYTES as usize > HEADER_BYTES);

/// Writes the header of a datagram.
pub(super) fn write_header(datagram: &mut [u8], number: u64, sent: u64) {
    datagram[..NUMBER_BYTES].copy_from_slice(&number.to_le_bytes());
    datagram[NUMBER_BYTES..HEADER_BYTES].copy_from_slice(&sent.to_le_bytes());
}

/// The number of a datagram, and when it was sent.
fn read_header(datagram: &[u8]) -> Option<(u64, u64)> {
    let (number, rest) = datagram.split_first_chunk()?;
    Some((u64::from_le_bytes(*number), u64::from_le_bytes(*rest.first_chunk()?)))
}

/// What a receiver knows of a sequence of datagrams.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DatagramTracker {
    pub(super) numbers: SequenceCounts,
    /// The interarrival jitter of RFC 3550, section 6.4.1, in nanoseconds.
    pub(super) jitter: f64,
    /// Arrival less sending of the last datagram. The clocks of the two ends differ by what is the same in the next one.
    last_transit: Option<i64>,
}

impl DatagramTracker {
    /// Records one that arrived at this time, in nanoseconds of any clock.
    pub(super) fn record(&mut self, datagram: &[u8], arrival: u64) {
        // None is numbered so high: the other end may be hostile, and sums must not overflow.
        let Some((number, sent)) = read_header(datagram).filter(|(number, _)| *number <= MAX_FIGURE) else { return };
        self.numbers.record(number);
        let transit = arrival.wrapping_sub(sent) as i64;
        if let Some(last_transit) = self.last_transit.replace(transit) {
            // RFC 3550, A.8: J += (|D| - J) / 16.
            let difference = transit.wrapping_sub(last_transit).unsigned_abs() as f64;
            self.jitter += (difference.min(MAX_FIGURE as f64) - self.jitter) / 16.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tracker after datagrams with these numbers, times of sending and of arrival.
    fn track(datagrams: &[(u64, u64, u64)]) -> DatagramTracker {
        let mut tracker = DatagramTracker::default();
        for &(number, sent, arrival) in datagrams {
            let mut datagram = [0; 20];
            write_header(&mut datagram, number, sent);
            tracker.record(&datagram, arrival);
        }
        tracker
    }

    #[test]
    fn jitter_is_that_of_rfc_3550() {
        // Transit times 100, 116, 100, 100: J = 1, then 1 + 15 / 16, then 15 / 16 of it.
        let datagrams = [(1, 1000, 1100), (2, 2000, 2116), (3, 3000, 3100), (4, 4000, 4100)];
        assert_eq!(track(&datagrams[..1]).jitter, 0.0);
        assert_eq!(track(&datagrams[..2]).jitter, 1.0);
        assert_eq!(track(&datagrams[..3]).jitter, 1.9375);
        assert_eq!(track(&datagrams).jitter, 1.9375 * 15.0 / 16.0);
    }

    #[test]
    fn difference_of_clocks_cancels_out() {
        let transits = [100, 140, 90, 130];
        let jitter = |offset: u64| {
            let datagrams: Vec<_> = (0..transits.len())
                .map(|number| {
                    let sent = 1000 * number as u64;
                    (number as u64 + 1, sent, sent.wrapping_add(transits[number]).wrapping_add(offset))
                })
                .collect();
            track(&datagrams).jitter
        };
        assert!(jitter(0) > 0.0);
        // The receiver's clock is ahead, or behind by more than the time of a datagram, or by half of all that it can count.
        assert_eq!([1 << 60, 0_u64.wrapping_sub(1 << 40), 1 << 63].map(jitter), [jitter(0); 3]);
    }

    #[test]
    fn order_and_loss_follow_numbers() {
        let tracker = track(&[(1, 0, 0), (2, 0, 0), (5, 0, 0), (4, 0, 0), (5, 0, 0)]);
        assert_eq!(tracker.numbers, SequenceCounts { arrived: 5, latest: 5, reordered: 2 });
        // One without a header is none, nor is one that cannot have been sent.
        let mut tracker = DatagramTracker::default();
        tracker.record(&[0; 15], 0);
        tracker.record(&[0xff; 100], 0);
        assert_eq!(tracker.numbers, SequenceCounts::default());
    }
}
