//! What a sender's connection carried, against what it can: whether a link that both ends waited for was full, or idle.
//!
//! The rate of a link is taken from moments in which nothing but the link held the connection back: at the beginning and at the end
//! of each, bytes waited to be sent, and neither a window nor a buffer was full for long in between. What the connection carried in
//! the best of them is what the link can.

use std::time::{Duration, Instant};

use kelvin_sys::net::waiting;
use serde::{Deserialize, Serialize};

/// A moment takes at least so long, and so many round trips: what is acknowledged comes in bursts.
const MOMENT: Duration = Duration::from_millis(100);
const TRIPS: u32 = 4;
/// The share of a moment for which a window or a buffer may be full.
const HELD: f64 = 0.1;

/// What the connections of a sender carried, over which its files went. Times are in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carried {
    /// Bytes that were acknowledged.
    pub bytes: u64,
    /// For how long some were to be sent, or were not acknowledged.
    pub busy: u64,
    /// For how long the receiver's window was full.
    pub by_window: u64,
    /// For how long the send buffer was.
    pub by_buffer: u64,
    /// Bytes a second in the best moment in which nothing but the link held them back; none where there was no such moment.
    pub most: Option<u64>,
    /// Bytes a second that were delivered last, by the kernel's reckoning, held back or not.
    pub delivered: u64,
    /// The shortest round trip; 0 where there was none.
    pub round_trip: u64,
    /// How often the sender waited for an answer, and for how long.
    pub answers: u64,
    /// See `answers`.
    pub waited: u64,
}

impl Carried {
    /// Adds what another connection carried.
    pub(crate) fn add(&mut self, other: &Self) {
        let Self { bytes, busy, by_window, by_buffer, most, delivered, round_trip, answers, waited } = *other;
        let sum = |own: &mut u64, more: u64| *own = own.saturating_add(more);
        sum(&mut self.bytes, bytes);
        sum(&mut self.busy, busy);
        sum(&mut self.by_window, by_window);
        sum(&mut self.by_buffer, by_buffer);
        sum(&mut self.answers, answers);
        sum(&mut self.waited, waited);
        self.most = self.most.max(most);
        self.delivered = self.delivered.max(delivered);
        self.round_trip = [self.round_trip, round_trip].into_iter().filter(|&trip| trip > 0).min().unwrap_or_default();
    }
}

/// Watches a connection while something is sent over it.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    begun: Option<(Instant, waiting::Carried)>,
    most: Option<u64>,
}

impl Meter {
    /// When it is worth looking at the connection again.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.begun.is_none_or(|(begun, before)| {
            let trips = Duration::from_nanos(before.least_round_trip).saturating_mul(TRIPS);
            now.duration_since(begun) >= MOMENT.max(trips)
        })
    }

    /// What it carries from now on tells nothing of the link, until it is looked at again.
    pub(crate) fn leave(&mut self) {
        self.begun = None;
    }

    /// Looks at it.
    pub(crate) fn look(&mut self, now: Instant, known: waiting::Carried) {
        if let Some((begun, before)) = self.begun.replace((now, known)) {
            self.most = self.most.max(of_link(&before, &known, now.duration_since(begun)));
        }
    }

    /// Bytes a second in the best moment in which nothing but the link held the connection back.
    pub(crate) fn most(&self) -> Option<u64> {
        self.most
    }
}

/// Bytes a second of a moment, if nothing but the link held them back.
fn of_link(before: &waiting::Carried, after: &waiting::Carried, time: Duration) -> Option<u64> {
    let held = |known: &waiting::Carried| known.limited.by_window.saturating_add(known.limited.by_buffer);
    let held = held(after).saturating_sub(held(before)) as f64 / time.as_nanos().max(1) as f64;
    let is_of_link = before.not_sent > 0 && after.not_sent > 0 && held <= HELD;
    let rate = after.bytes.saturating_sub(before.bytes) as f64 / time.as_secs_f64().max(1e-9);
    (is_of_link && rate >= 1.0).then_some(rate as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn known(bytes: u64, not_sent: u32, by_window: u64) -> waiting::Carried {
        let limited = waiting::Limited { by_window, by_buffer: 0 };
        waiting::Carried { bytes, not_sent, limited, ..waiting::Carried::default() }
    }

    #[test]
    fn only_a_moment_in_which_nothing_else_held_it_back_tells_of_the_link() {
        let rate = |before, after| of_link(&before, &after, SECOND);
        assert_eq!(rate(known(1000, 1, 0), known(5000, 1, 100_000_000)), Some(4000));
        // The sender had nothing to send; the receiver took nothing; nothing was carried.
        assert_eq!(rate(known(1000, 0, 0), known(5000, 1, 0)), None);
        assert_eq!(rate(known(1000, 1, 0), known(5000, 0, 0)), None);
        assert_eq!(rate(known(1000, 1, 0), known(5000, 1, 200_000_000)), None);
        assert_eq!(rate(known(1000, 1, 0), known(1000, 1, 0)), None);
    }

    #[test]
    fn moments_are_some_round_trips_long_and_the_best_one_counts() {
        let (begun, mut meter) = (Instant::now(), Meter::default());
        assert!(meter.is_due(begun));
        let trip = waiting::Carried { least_round_trip: 50_000_000, ..known(0, 9, 0) };
        meter.look(begun, trip);
        assert!(!meter.is_due(begun + MOMENT) && meter.is_due(begun + 2 * MOMENT));
        meter.look(begun + SECOND, known(700, 9, 0));
        meter.look(begun + 2 * SECOND, known(1000, 9, 0));
        assert_eq!(meter.most(), Some(700));
        // Others took a share of it meanwhile.
        meter.leave();
        assert!(meter.is_due(begun + 2 * SECOND));
        meter.look(begun + 3 * SECOND, known(9000, 9, 0));
        assert_eq!(meter.most(), Some(700));
    }

    #[test]
    fn what_several_connections_carried_is_added_up() {
        let one =
            Carried { bytes: 5, busy: 7, most: Some(3), round_trip: 9, answers: 1, waited: 4, ..Carried::default() };
        let mut all = Carried::default();
        all.add(&one);
        all.add(&Carried::default());
        all.add(&Carried { most: None, round_trip: 4, delivered: 8, ..one });
        let sum = Carried { bytes: 10, busy: 14, round_trip: 4, delivered: 8, answers: 2, waited: 8, ..one };
        assert_eq!(all, sum);
    }
}
