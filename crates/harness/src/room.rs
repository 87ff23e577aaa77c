//! Which units there is room for in a given time: the most important first, each with all its rounds or not at all.

/// A unit that would take more than this share of the budget comes after all that do not, or one would keep out ten.
const LONG_SHARE: f64 = 0.1;

/// What a unit needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need {
    /// Its place in the order of importance, the most important first.
    pub place: usize,
    /// Nanoseconds of all its rounds.
    pub whole: f64,
    /// The same of those that are still to come.
    pub time: f64,
}

impl Need {
    /// Its place where time is short.
    pub(crate) fn turn(&self, budget: f64) -> (bool, usize) {
        (self.whole > LONG_SHARE * budget, self.place)
    }
}

/// The units that do not fit into what is left of a budget, in the order of importance, both in nanoseconds. One that is too long does
/// not keep out those that come later and fit beside the others.
pub(crate) fn without_room(needs: &[Need], mut left: f64, budget: f64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..needs.len()).filter(|&unit| needs[unit].time > 0.0).collect();
    order.sort_by_key(|&unit| needs[unit].turn(budget));
    let mut without = Vec::new();
    for unit in order {
        if needs[unit].time <= left {
            left -= needs[unit].time;
        } else {
            without.push(unit);
        }
    }
    without
}

#[cfg(test)]
mod tests {
    use super::*;

    fn need(place: usize, time: f64) -> Need {
        Need { place, whole: time, time }
    }

    #[test]
    fn the_most_important_come_first_and_a_long_one_keeps_no_other_out() {
        let needs = [need(3, 2.0), need(0, 4.0), need(2, 3.0), need(1, 9.0), need(4, 2.0), need(5, 0.0)];
        let out = |left| without_room(&needs, left, 100.0);
        assert_eq!(out(9.0), [3, 4]);
        assert!(out(20.0).is_empty());
        assert_eq!(out(1.0), [1, 3, 2, 0, 4]);
    }

    #[test]
    fn what_takes_a_large_share_of_the_budget_comes_last() {
        let needs = [need(0, 30.0), need(1, 9.0), need(2, 9.0), need(3, 50.0), need(4, 9.0)];
        assert_eq!(without_room(&needs, 60.0, 100.0), [3]);
        assert_eq!(without_room(&needs, 30.0, 100.0), [0, 3]);
        // What it has had already counts.
        let begun = [Need { time: 5.0, ..need(0, 30.0) }, need(1, 9.0)];
        assert_eq!(without_room(&begun, 10.0, 100.0), [0]);
    }
}
