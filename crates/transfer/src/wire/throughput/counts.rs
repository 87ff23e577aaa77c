//! What one end of a test has counted, as an agent sends it and as its client keeps it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::wire::cpu_usage::CpuUsage;
use crate::wire::limits_serde::{self, Bounded, out_of_bounds};
use crate::wire::{Error, Result};

/// Most of any figure: sums of all streams of a test stay within 64 bits.
pub(super) const MAX_FIGURE: u64 = 1 << 56;

/// The counts of one end's streams at a moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EndCounts {
    /// Nanoseconds since this end's streams began, by its own clock.
    pub nanoseconds: u64,
    /// How busy its host was since the last counts.
    pub busy: CpuUsage,
    /// Those to the agent first, then those from it.
    #[serde(deserialize_with = "limits_serde::bounded::<{ MAX_FIGURE }, _, _>")]
    pub streams: Vec<StreamCounts>,
}

/// The counts of one end of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StreamCounts {
    /// Bytes of payload that this end gave to its kernel, or took from it.
    pub bytes: u64,
    /// When the stream ended here, in nanoseconds since the test began.
    pub ended: Option<u64>,
    /// Of datagrams.
    pub datagrams: Option<DatagramCounts>,
    /// Of an end that sends over TCP, what the kernel reports.
    pub tcp: Option<TcpSendCounts>,
}

/// Counts of datagrams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DatagramCounts {
    /// Those that this end sent, or that arrived.
    pub count: u64,
    /// The highest number among them.
    pub latest: u64,
    /// Those that arrived after one with a higher number, or twice.
    pub reordered: u64,
    /// Those that arrived and found the socket full.
    pub dropped: u64,
    /// The interarrival jitter of RFC 3550, in nanoseconds.
    pub jitter: u64,
}

/// The kernel's report on an end that sends. Times are in nanoseconds since the connection was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TcpSendCounts {
    /// Smoothed round trip.
    pub round_trip: u64,
    /// Segments that were sent again.
    pub retransmits: u64,
    /// Bytes of the congestion window.
    pub congestion_window: u64,
    /// Bytes of the other end's receive window; 0 where the kernel does not report it.
    pub window: u64,
    /// For how long there was something to send, or to be acknowledged.
    pub busy: u64,
    /// Of this time, for how long the other end's receive window was full.
    pub window_limited: u64,
    /// For how long the send buffer was.
    pub buffer_limited: u64,
}

impl Bounded for StreamCounts {
    fn check<E: serde::de::Error>(&self, limit: u64) -> std::result::Result<(), E> {
        let datagrams = self.datagrams.unwrap_or_default();
        let tcp = self.tcp.unwrap_or_default();
        let figures = [
            self.bytes,
            self.ended.unwrap_or_default(),
            datagrams.count,
            datagrams.latest,
            datagrams.reordered,
            datagrams.dropped,
            datagrams.jitter,
            tcp.round_trip,
            tcp.retransmits,
            tcp.congestion_window,
            tcp.window,
            tcp.busy,
            tcp.window_limited,
            tcp.buffer_limited,
        ];
        figures.iter().try_for_each(|&figure| match figure > limit {
            true => Err(out_of_bounds("a figure", figure, limit)),
            false => Ok(()),
        })
    }
}

impl StreamCounts {
    /// The same stream before it carried anything.
    pub fn nothing(&self) -> Self {
        Self {
            datagrams: self.datagrams.map(|_| DatagramCounts::default()),
            tcp: self.tcp.map(|_| TcpSendCounts::default()),
            ..Self::default()
        }
    }

    /// Figures that never fall.
    fn growing_figures(&self) -> [u64; 8] {
        let (datagrams, tcp) = (self.datagrams.unwrap_or_default(), self.tcp.unwrap_or_default());
        let DatagramCounts { count, latest, reordered, dropped, .. } = datagrams;
        [self.bytes, count, latest, reordered, dropped, tcp.retransmits, tcp.busy, self.ended.unwrap_or_default()]
    }
}

impl EndCounts {
    /// The time of these counts.
    pub fn time(&self) -> Duration {
        Duration::from_nanos(self.nanoseconds)
    }

    /// Fails unless they can be what the other end has counted after it had counted these, of this many streams.
    ///
    /// # Errors
    /// That they cannot.
    pub(crate) fn check_after(&self, earlier: Option<&Self>, streams: usize) -> Result<()> {
        let is_grown = |earlier: &Self| {
            let pairs = self.streams.iter().zip(&earlier.streams);
            self.nanoseconds >= earlier.nanoseconds
                && pairs.into_iter().all(|(now, before)| {
                    let (now, before) = (now.growing_figures(), before.growing_figures());
                    now.iter().zip(before).all(|(now, before)| *now >= before)
                })
        };
        match self.streams.len() == streams && self.nanoseconds <= MAX_FIGURE && earlier.is_none_or(is_grown) {
            true => Ok(()),
            false => Err(Error::malformed("it has counted what cannot be")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(nanoseconds: u64, bytes: &[u64]) -> EndCounts {
        let streams = bytes.iter().map(|&bytes| StreamCounts { bytes, ..StreamCounts::default() });
        EndCounts { nanoseconds, streams: streams.collect(), ..EndCounts::default() }
    }

    #[test]
    fn impossible_counts_are_rejected() {
        let earlier = counts(5, &[100, 200]);
        let is_possible = |later: EndCounts| later.check_after(Some(&earlier), 2).is_ok();
        assert!(is_possible(counts(5, &[100, 200])) && is_possible(counts(6, &[100, 900])));
        assert!(!is_possible(counts(4, &[100, 200])), "an earlier time");
        assert!(!is_possible(counts(6, &[99, 200])), "fewer bytes");
        assert!(!is_possible(counts(6, &[100])) && !is_possible(counts(6, &[100, 200, 0])), "other streams");
        assert!(counts(6, &[1]).check_after(None, 1).is_ok() && counts(6, &[1]).check_after(None, 2).is_err());
    }

    #[test]
    fn counts_of_too_many_or_too_much_are_not_read() {
        let read = |counts: &EndCounts| {
            let text = serde_json::to_string(counts).unwrap();
            serde_json::from_str::<EndCounts>(&text).map_err(|error| error.to_string())
        };
        let most = counts(1, &[MAX_FIGURE; 128]);
        assert_eq!(read(&most), Ok(most));
        assert!(read(&counts(1, &[0; 129])).unwrap_err().starts_with("a list of 129, where 128 is the most"));
        assert!(read(&counts(1, &[MAX_FIGURE + 1])).unwrap_err().starts_with("a figure of"));
    }

    /// All figures of 128 streams, each as long as it can be, are one message.
    #[test]
    fn longest_counts_fit_into_a_message() {
        let figure = MAX_FIGURE;
        let datagrams =
            DatagramCounts { count: figure, latest: figure, reordered: figure, dropped: figure, jitter: figure };
        let tcp = TcpSendCounts {
            round_trip: figure,
            retransmits: figure,
            congestion_window: figure,
            window: figure,
            busy: figure,
            window_limited: figure,
            buffer_limited: figure,
        };
        for stream in [
            StreamCounts { bytes: figure, ended: Some(figure), datagrams: Some(datagrams), tcp: None },
            StreamCounts { bytes: figure, ended: Some(figure), datagrams: None, tcp: Some(tcp) },
        ] {
            let counts = EndCounts { streams: vec![stream; 128], ..EndCounts::default() };
            let length = serde_json::to_vec(&counts).unwrap().len();
            assert!(length + 200 < crate::wire::cipher::MAX_CONTENT_BYTES, "{length}");
        }
    }
}
