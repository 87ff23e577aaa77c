//! Loss and reordering of datagrams, by their numbers.

use serde::{Deserialize, Serialize};

/// Bytes of a number, with which each datagram begins: from 1 on, the least significant first.
pub const NUMBER_BYTES: usize = size_of::<u64>();

/// The counts of numbered datagrams so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SequenceCounts {
    /// Datagrams that arrived.
    pub arrived: u64,
    /// The highest number among them.
    pub latest: u64,
    /// Datagrams that arrived after one with a higher number, or twice.
    pub reordered: u64,
}

impl SequenceCounts {
    /// Counts one that arrived.
    pub fn record(&mut self, number: u64) {
        self.arrived += 1;
        if number > self.latest {
            self.latest = number;
        } else {
            self.reordered += 1;
        }
    }

    /// Share of the datagrams since an earlier moment that did not arrive, by the gaps in their numbers; `None` if none
    /// arrived.
    pub fn loss_share_since(&self, earlier: &Self) -> Option<f64> {
        let (numbered, arrived) = (self.latest - earlier.latest, self.arrived - earlier.arrived);
        // One missing at the earlier moment may arrive later, and be one too many.
        (numbered > 0).then(|| (1.0 - arrived as f64 / numbered as f64).max(0.0))
    }

    /// Share of the datagrams since an earlier moment that arrived reordered; `None` if none arrived.
    pub fn reordered_share_since(&self, earlier: &Self) -> Option<f64> {
        let arrived = self.arrived - earlier.arrived;
        (arrived > 0).then(|| (self.reordered - earlier.reordered) as f64 / arrived as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_and_reordering_follow_numbers() {
        let zero = SequenceCounts::default();
        let mut all = zero;
        [1, 2, 5, 4, 8].into_iter().for_each(|number| all.record(number));
        assert_eq!(all, SequenceCounts { arrived: 5, latest: 8, reordered: 1 });
        assert_eq!((all.loss_share_since(&zero), all.reordered_share_since(&zero)), (Some(3.0 / 8.0), Some(1.0 / 5.0)));
        assert_eq!((zero.loss_share_since(&zero), zero.reordered_share_since(&zero)), (None, None));
        let mut later = all;
        [9, 10, 3].into_iter().for_each(|number| later.record(number));
        assert_eq!(later.loss_share_since(&all), Some(0.0), "the late one is one of those counted as lost before");
    }
}
