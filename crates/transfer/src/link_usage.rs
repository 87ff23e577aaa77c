//! What a sender's connection carried, against what it can: whether a link that both ends waited for was full, or idle.
//!
//! The rate of a link is taken from moments in which nothing but the link held the connection back. At the beginning and at the end
//! of each, bytes waited to be sent, and neither a window nor a buffer was full for long in between. What the connection carried in
//! both of two such moments in a row, the best of them, is what the link can. A connection that still starts carries more in the second.
//! Where any other moment carried more, it can more than was seen.
//!
//! The kernel counts for how long a window or a buffer kept a connection from sending, and counts little where acknowledgements come one
//! by one. But a window of W bytes lets W through in a round trip (Little's law). What a moment carried shows for how long it was full.
//!
//! A link that is full has a queue before it, which makes round trips longer than the shortest one. Where segments are lost and round trips
//! stay short, losses hold the connection back, or something on the way that drops what is above a rate.

use std::time::{Duration, Instant};

use kelvin_sys::net::socket_queues::SendCounters;
use serde::{Deserialize, Serialize};

/// A moment takes at least this time, and this many round trips: what is acknowledged comes in bursts.
const MIN_MOMENT: Duration = Duration::from_millis(100);
const MIN_ROUND_TRIPS: u32 = 4;
/// The share of a moment for which a window or a buffer may be full.
const MAX_LIMITED_SHARE: f64 = 0.1;
/// By which factor another moment may have carried more than those of the link: acknowledgements come in bursts.
const MAX_EXCESS: f64 = 1.1;

/// What the connections of a sender carried, over which its files went. Times are in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkUsage {
    /// Bytes that were acknowledged.
    pub bytes: u64,
    /// For how long some were to be sent, or were not acknowledged.
    pub busy: u64,
    /// For how long the receiver's window was full, by the kernel's count or by what was carried.
    pub window_limited: u64,
    /// For how long the send buffer was.
    pub buffer_limited: u64,
    /// Bytes of the receiver's window, and in the send buffer, while each held the connection back for longest; 0 where that is not known.
    pub window: u64,
    /// See `window`.
    pub buffer: u64,
    /// Bytes a second in the best two moments in a row in which nothing but the link held them back. None where there were no such moments.
    pub link_rate: Option<u64>,
    /// The shortest round trip; 0 where there was none.
    pub round_trip: u64,
    /// The mean of the smoothed round trip at the ends of moments of the link; 0 where there were none.
    pub link_round_trip: u64,
    /// Segments with data that were sent, and those that were sent again.
    pub segments: u64,
    /// See `segments`.
    pub retransmitted: u64,
    /// How often the sender waited for an answer, and for how long.
    pub answers: u64,
    /// See `answers`.
    pub response_wait: u64,
}

impl LinkUsage {
    /// Whether it was the send buffer that held it back for longest, not the receiver's window.
    pub(crate) fn is_buffer_limited(&self) -> bool {
        self.buffer_limited > self.window_limited
    }

    /// Adds what another connection carried.
    pub(crate) fn add(&mut self, usage: &Self) {
        for (sum, value) in [
            (&mut self.bytes, usage.bytes),
            (&mut self.busy, usage.busy),
            (&mut self.window_limited, usage.window_limited),
            (&mut self.buffer_limited, usage.buffer_limited),
            (&mut self.segments, usage.segments),
            (&mut self.retransmitted, usage.retransmitted),
            (&mut self.answers, usage.answers),
            (&mut self.response_wait, usage.response_wait),
        ] {
            *sum = sum.saturating_add(value);
        }
        self.window = self.window.max(usage.window);
        self.buffer = self.buffer.max(usage.buffer);
        self.link_rate = self.link_rate.max(usage.link_rate);
        // A queue that one of them met is one.
        self.link_round_trip = self.link_round_trip.max(usage.link_round_trip);
        let trips = [self.round_trip, usage.round_trip].into_iter().filter(|&trip| trip > 0);
        self.round_trip = trips.min().unwrap_or_default();
    }
}

/// Watches a connection while something is sent over it.
#[derive(Debug, Default)]
pub(crate) struct LinkMeter {
    moment_start: Option<(Instant, SendCounters)>,
    best_rate: Option<u64>,
    /// Bytes a second in the last moment if it was one of the link, and in the fastest one of any kind.
    last_rate: Option<u64>,
    fastest_rate: u64,
    /// Smoothed round trips at the ends of moments of the link, added up, and how many.
    link_round_trips: (u64, u64),
    /// For how long the receiver's window was full, and the send buffer.
    pub(crate) window: FullTime,
    pub(crate) buffer: FullTime,
}

/// For how long a window or a buffer was full.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FullTime {
    pub(crate) nanoseconds: u64,
    /// Its bytes, at the end of the moment in which it was so for longest.
    pub(crate) bytes: u64,
    longest: u64,
}

impl LinkMeter {
    /// When it is worth looking at the connection again.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.moment_start.is_none_or(|(start, before)| {
            let trips = Duration::from_nanos(before.min_round_trip).saturating_mul(MIN_ROUND_TRIPS);
            now.duration_since(start) >= MIN_MOMENT.max(trips)
        })
    }

    /// What it carries from now on shows nothing of the link, until it is looked at again.
    pub(crate) fn reset(&mut self) {
        (self.moment_start, self.last_rate) = (None, None);
    }

    /// Looks at it.
    pub(crate) fn sample(&mut self, now: Instant, counters: SendCounters) {
        let Some((start, before)) = self.moment_start.replace((now, counters)) else { return };
        let time = now.duration_since(start);
        let bytes = counters.bytes.saturating_sub(before.bytes);
        let rate = (bytes as f64 / time.as_secs_f64().max(1e-9)) as u64;
        let link_rate = Some(rate).filter(|&rate| rate > 0 && is_link_limited(&before, &counters, time));
        if link_rate.is_some() {
            let (sum, count) = self.link_round_trips;
            self.link_round_trips = (sum.saturating_add(counters.round_trip), count + 1);
        }
        // None is less than any.
        self.best_rate = self.best_rate.max(self.last_rate.min(link_rate));
        (self.last_rate, self.fastest_rate) = (link_rate, self.fastest_rate.max(rate));
        let [after, before] = [counters.limited, before.limited];
        // Each kept the connection from sending for this time by the kernel's count, and has this many bytes in the end.
        for (full_time, counted_time, capacity) in [
            (&mut self.window, after.by_window.saturating_sub(before.by_window), counters.window),
            (&mut self.buffer, after.by_buffer.saturating_sub(before.by_buffer), counters.buffered_bytes),
        ] {
            let trips = bytes as f64 / f64::from(capacity.max(1));
            let estimated_time = if capacity == 0 { 0 } else { (trips * counters.min_round_trip as f64) as u64 };
            let nanoseconds =
                if counted_time == 0 { 0 } else { counted_time.max(estimated_time).min(time.as_nanos() as u64) };
            full_time.nanoseconds += nanoseconds;
            if nanoseconds > 0 && nanoseconds >= full_time.longest {
                (full_time.longest, full_time.bytes) = (nanoseconds, capacity.into());
            }
        }
    }

    /// Bytes a second in the best two moments in a row in which nothing but the link held the connection back, unless it carried more in
    /// another one.
    pub(crate) fn link_rate(&self) -> Option<u64> {
        self.best_rate.filter(|&rate| self.fastest_rate as f64 <= MAX_EXCESS * rate as f64)
    }

    /// The mean of the smoothed round trip at the ends of moments of the link, in nanoseconds; 0 where there were none.
    pub(crate) fn round_trip(&self) -> u64 {
        self.link_round_trips.0 / self.link_round_trips.1.max(1)
    }
}

/// Whether nothing but the link held back what was sent in a moment.
fn is_link_limited(before: &SendCounters, after: &SendCounters, time: Duration) -> bool {
    let limited = |counters: &SendCounters| counters.limited.by_window.saturating_add(counters.limited.by_buffer);
    let limited = limited(after).saturating_sub(limited(before)) as f64 / time.as_nanos().max(1) as f64;
    before.unsent_bytes > 0 && after.unsent_bytes > 0 && limited <= MAX_LIMITED_SHARE
}

#[cfg(test)]
mod tests {
    use kelvin_sys::net::socket_queues;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn snapshot(bytes: u64, not_sent: u32, by_window: u64) -> socket_queues::SendCounters {
        let limited = socket_queues::LimitedTime { by_window, by_buffer: by_window / 2 };
        socket_queues::SendCounters { bytes, unsent_bytes: not_sent, limited, ..socket_queues::SendCounters::default() }
    }

    #[test]
    fn only_unlimited_moments_show_link_rate() {
        let is_limited_by_link = |before, after| is_link_limited(&before, &after, SECOND);
        assert!(is_limited_by_link(snapshot(1000, 1, 0), snapshot(5000, 1, 60_000_000)));
        // The sender had nothing to send; the receiver took nothing.
        assert!(!is_limited_by_link(snapshot(1000, 0, 0), snapshot(5000, 1, 0)));
        assert!(!is_limited_by_link(snapshot(1000, 1, 0), snapshot(5000, 0, 0)));
        assert!(!is_limited_by_link(snapshot(1000, 1, 0), snapshot(5000, 1, 200_000_000)));
    }

    #[test]
    fn best_two_consecutive_moments_count() {
        let (start, mut meter) = (Instant::now(), LinkMeter::default());
        assert!(meter.is_due(start));
        let trip = socket_queues::SendCounters { min_round_trip: 50_000_000, ..snapshot(0, 9, 0) };
        meter.sample(start, trip);
        assert!(!meter.is_due(start + MIN_MOMENT) && meter.is_due(start + 2 * MIN_MOMENT));
        meter.sample(start + SECOND, snapshot(100, 9, 0));
        assert_eq!(meter.link_rate(), None, "it may still start");
        meter.sample(start + 2 * SECOND, snapshot(800, 9, 0));
        meter.sample(start + 3 * SECOND, snapshot(1480, 9, 0));
        meter.sample(start + 4 * SECOND, snapshot(1900, 9, 0));
        assert_eq!(meter.link_rate(), Some(680));
        // Others took a share of it meanwhile.
        meter.reset();
        assert!(meter.is_due(start + 4 * SECOND));
        meter.sample(start + 5 * SECOND, snapshot(9000, 9, 0));
        assert_eq!(meter.link_rate(), Some(680));
    }

    #[test]
    fn faster_limited_moment_hides_link_rate() {
        let (start, mut meter) = (Instant::now(), LinkMeter::default());
        let samples = [snapshot(0, 9, 0), snapshot(1000, 9, 0), snapshot(2000, 9, 0), snapshot(6000, 9, 300_000_000)];
        (0..).zip(samples).for_each(|(second, sample)| meter.sample(start + second * SECOND, sample));
        assert_eq!(meter.link_rate(), None, "it started");
    }

    #[test]
    fn window_full_time_follows_carried_bytes() {
        let counters = |by_window: u64, bytes: u64, window: u32| socket_queues::SendCounters {
            window,
            buffered_bytes: 2 * window,
            min_round_trip: 100_000_000,
            ..snapshot(bytes, 1, by_window)
        };
        let full_times = |samples: &[socket_queues::SendCounters]| {
            let (start, mut meter) = (Instant::now(), LinkMeter::default());
            (0..).zip(samples).for_each(|(second, &sample)| meter.sample(start + second * SECOND, sample));
            [meter.window, meter.buffer].map(|full_time| (full_time.nanoseconds, full_time.bytes))
        };
        // Ten round trips a second: 80 bytes of a window of 10 are eight of them; of twice the buffer half as many. The kernel's count is
        // the least, and no moment is full for longer than it lasts.
        let samples = [counters(0, 0, 10), counters(100_000_000, 80, 10)];
        assert_eq!(full_times(&samples), [(800_000_000, 10), (400_000_000, 20)]);
        let samples = [counters(0, 0, 10), counters(900_000_000, 80, 10), counters(1_000_000_000, 1000, 20)];
        assert_eq!(full_times(&samples)[0], (1_900_000_000, 20));
        // One that keeps nothing from being sent is not full; of one whose size is not known the count decides.
        assert_eq!(full_times(&[counters(5, 0, 10), counters(5, 80, 10)]), [(0, 0); 2]);
        assert_eq!(full_times(&[counters(0, 0, 0), counters(500, 80, 0)])[0], (500, 0));
    }

    #[test]
    fn link_round_trips_are_from_moment_ends() {
        let (start, mut meter) = (Instant::now(), LinkMeter::default());
        assert_eq!(meter.round_trip(), 0);
        let counters =
            |bytes, not_sent, round_trip| socket_queues::SendCounters { round_trip, ..snapshot(bytes, not_sent, 0) };
        let samples = [counters(0, 9, 900), counters(1000, 9, 10), counters(2000, 9, 30), counters(3000, 0, 7000)];
        (0..).zip(samples).for_each(|(second, sample)| meter.sample(start + second * SECOND, sample));
        assert_eq!(meter.round_trip(), 20);
    }

    #[test]
    fn usage_of_connections_is_summed() {
        let usage = LinkUsage {
            bytes: 5,
            busy: 7,
            link_rate: Some(3),
            round_trip: 9,
            link_round_trip: 12,
            ..LinkUsage::default()
        };
        let usage = LinkUsage { segments: 6, retransmitted: 1, answers: 1, response_wait: 4, ..usage };
        let mut total = LinkUsage::default();
        total.add(&usage);
        total.add(&LinkUsage::default());
        total.add(&LinkUsage { link_rate: None, round_trip: 4, link_round_trip: 11, ..usage });
        let sum = LinkUsage { bytes: 10, busy: 14, round_trip: 4, segments: 12, retransmitted: 2, ..usage };
        let sum = LinkUsage { answers: 2, response_wait: 8, ..sum };
        assert_eq!(total, sum);
    }
}
