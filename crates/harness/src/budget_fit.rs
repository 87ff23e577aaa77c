//! The overhead of the rounds of units, and which units fit into a given time: the most important first, each with all its rounds or not at all.

use kelvin_core::IndirectSort;
use std::time::Duration;

/// A unit that would take more than this share of the budget comes after all that do not, or one would keep out ten.
const LONG_UNIT_SHARE: f64 = 0.1;

/// What a unit needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnitCost {
    /// Its place in the order of importance, the most important first.
    pub priority: usize,
    /// Nanoseconds of all its rounds.
    pub total: f64,
    /// Like `total`, of those that are still to come.
    pub remaining: f64,
}

impl UnitCost {
    /// Its place where time is short.
    pub(crate) fn budget_order(&self, budget: f64) -> (bool, usize) {
        (self.total > LONG_UNIT_SHARE * budget, self.priority)
    }
}

/// The units that do not fit into what is left of a budget, in the order of importance, both in nanoseconds. One that is too long does
/// not keep out those that come later and fit with the others.
pub(crate) fn over_budget(costs: &[UnitCost], mut remaining: f64, budget: f64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..costs.len()).filter(|&unit| costs[unit].remaining > 0.0).collect();
    order.indirect_sort_by_key(|&unit| costs[unit].budget_order(budget));
    let mut excluded_units = Vec::new();
    for unit in order {
        if costs[unit].remaining <= remaining {
            remaining -= costs[unit].remaining;
        } else {
            excluded_units.push(unit);
        }
    }
    excluded_units
}

/// The expected overhead of the rounds of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpectedCost {
    /// The first of them, which may make what the others find.
    pub first: Duration,
    /// Each other.
    pub later: Duration,
    /// Whether it is what they took before on this machine, or a guess.
    pub is_measured: bool,
}

impl ExpectedCost {
    /// The same guess for each round.
    pub const fn estimated(round: Duration) -> Self {
        Self { first: round, later: round, is_measured: false }
    }

    /// Nanoseconds of this many rounds of a unit that has not had any.
    pub(crate) fn total_for_rounds(self, rounds: u32) -> f64 {
        match rounds {
            0 => 0.0,
            _ => as_nanoseconds(self.first) + f64::from(rounds - 1) * as_nanoseconds(self.later),
        }
    }
}

/// A time in nanoseconds.
pub(crate) fn as_nanoseconds(time: Duration) -> f64 {
    time.as_nanos() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(priority: usize, time: f64) -> UnitCost {
        UnitCost { priority, total: time, remaining: time }
    }

    #[test]
    fn long_unit_does_not_displace_others() {
        let costs = [cost(3, 2.0), cost(0, 4.0), cost(2, 3.0), cost(1, 9.0), cost(4, 2.0), cost(5, 0.0)];
        let excluded_units = |remaining| over_budget(&costs, remaining, 100.0);
        assert_eq!(excluded_units(9.0), [3, 4]);
        assert!(excluded_units(20.0).is_empty());
        assert_eq!(excluded_units(1.0), [1, 3, 2, 0, 4]);
    }

    #[test]
    fn large_share_unit_comes_last() {
        let costs = [cost(0, 30.0), cost(1, 9.0), cost(2, 9.0), cost(3, 50.0), cost(4, 9.0)];
        assert_eq!(over_budget(&costs, 60.0, 100.0), [3]);
        assert_eq!(over_budget(&costs, 30.0, 100.0), [0, 3]);
        // What it has had already counts.
        let partial_costs = [UnitCost { remaining: 5.0, ..cost(0, 30.0) }, cost(1, 9.0)];
        assert_eq!(over_budget(&partial_costs, 10.0, 100.0), [0]);
    }
}
