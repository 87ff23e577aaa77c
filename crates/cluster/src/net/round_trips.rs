//! Times of small messages to and fro, whatever carries them.

use std::time::{Duration, Instant};

use kelvin_stats::Histogram;

use super::task::RoundTrip;

/// Bytes of a small message, and its content: whether it is the last one.
pub const MESSAGE_BYTES: usize = 8;
/// What says that more follow, and that none does.
pub const MORE: [u8; MESSAGE_BYTES] = [0; MESSAGE_BYTES];
/// What says that none follows.
pub const LAST: [u8; MESSAGE_BYTES] = [1; MESSAGE_BYTES];

/// The part of the time whose round trips do not count: both ends wake up, and caches and branch predictors learn the path.
const WARM_UP_SHARE: f64 = 0.1;
/// At least this many count: a median of fewer says little of a slow link.
const MIN_COUNT: u64 = 20;

/// Calls `exchange`, which sends a message and waits for the answer, for a time; then once more with [`LAST`].
///
/// # Errors
/// Those of `exchange`.
pub fn time_round_trips<E>(
    seconds: f64,
    mut exchange: impl FnMut([u8; MESSAGE_BYTES]) -> Result<(), E>,
) -> Result<RoundTrip, E> {
    let mut histogram = Histogram::new();
    let start = Instant::now();
    let (warm_up, end) = (Duration::from_secs_f64(seconds * WARM_UP_SHARE), Duration::from_secs_f64(seconds));
    let mut before = start;
    loop {
        exchange(MORE)?;
        let after = Instant::now();
        if before - start >= warm_up {
            histogram.record((after - before).as_nanos() as u64);
        }
        before = after;
        if after - start >= end && histogram.count() >= MIN_COUNT {
            break;
        }
    }
    exchange(LAST)?;
    let quantile = |share| histogram.quantile(share).unwrap_or_default();
    Ok(RoundTrip {
        count: histogram.count(),
        mean_ns: histogram.mean().unwrap_or_default(),
        median_ns: quantile(0.5),
        p99_ns: quantile(0.99),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_message_ends_and_enough_are_counted() {
        let mut messages = Vec::new();
        let exchange = |message| {
            messages.push(message);
            Ok::<(), ()>(())
        };
        let round_trip = time_round_trips(0.0, exchange).unwrap();
        assert_eq!((round_trip.count, messages.len()), (MIN_COUNT, MIN_COUNT as usize + 1));
        assert!(messages.iter().rev().skip(1).all(|message| *message == MORE) && messages.last() == Some(&LAST));
        assert!(round_trip.median_ns <= round_trip.p99_ns);
        assert_eq!(time_round_trips(1.0, |_| Err("closed")), Err("closed"));
    }
}
