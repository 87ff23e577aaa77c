//! What was measured of the network.

use std::collections::BTreeMap;

use kelvin_core::cluster::Transport;

use super::event::{NetEvent, NetPlan};
use super::schedule::Pair;
use super::task::PairFigures;
use crate::results::Measured;

/// What was measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NetResults {
    /// What each pair measures.
    pub plan: NetPlan,
    /// All passes of each pair.
    pub pairs: BTreeMap<(Transport, Pair), Vec<PairFigures>>,
    /// Pairs that could not be measured, with the reason.
    pub failed_pairs: BTreeMap<(Transport, Pair), String>,
    /// Pairs across the middle, at the same time.
    pub bisection: BTreeMap<(Transport, Pair), PairFigures>,
    /// Payload that each rank sent to all others at once, all together, in bytes per second.
    pub all_to_all_bytes_per_second: Option<f64>,
}

impl Measured for NetResults {
    const COMMAND: &'static str = "net";
    type Plan = NetPlan;
    type Event = NetEvent;

    fn new(plan: NetPlan) -> Self {
        Self { plan, ..Self::default() }
    }

    fn add(&mut self, event: NetEvent, ranks: usize) {
        match event {
            NetEvent::Pair { transport, pair, figures, .. } => {
                self.pairs.entry((transport, pair)).or_default().push(figures);
            }
            NetEvent::PairFailed { transport, pair, reason } => {
                self.failed_pairs.insert((transport, pair), reason);
            }
            NetEvent::Bisection { transport, pair, figures } => {
                self.bisection.insert((transport, pair), figures);
            }
            NetEvent::AllToAll { bytes, count, seconds } => {
                let ranks = ranks as f64;
                let total = ranks * (ranks - 1.0) * bytes as f64 * count as f64;
                self.all_to_all_bytes_per_second = Some(total / seconds);
            }
            NetEvent::Analysis { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_of_a_pair_are_kept_and_exchanges_are_a_rate() {
        let figures = |rate: f64| PairFigures {
            round_trip: None,
            bytes_per_second: [rate, rate],
            sent_bytes: 1,
            interface_bytes: 2,
            cpu_wait: 0.0,
        };
        let pair = |rate| NetEvent::Pair { transport: Transport::Tcp, pass: 1, pair: [0, 1], figures: figures(rate) };
        let mut results = NetResults::new(NetPlan::default());
        for event in [pair(5.0), pair(7.0), NetEvent::AllToAll { bytes: 10, count: 4, seconds: 2.0 }] {
            let line = serde_json::to_string(&event).unwrap();
            results.add(serde_json::from_str(&line).unwrap(), 3);
        }
        assert_eq!(results.pairs[&(Transport::Tcp, [0, 1])], [figures(5.0), figures(7.0)]);
        // Three ranks send 10 bytes to two others, four times, in 2 s.
        assert_eq!(results.all_to_all_bytes_per_second, Some(120.0));
    }
}
