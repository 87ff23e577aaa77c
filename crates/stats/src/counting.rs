//! Exact tests by counting: of drawn values and of two-by-two tables. They need no shape of a distribution.

/// Logarithms of the factorials of 0 to a largest number.
#[derive(Clone, Debug)]
pub struct LogFactorials(Vec<f64>);

impl LogFactorials {
    /// Those of 0 to `max`.
    pub fn new(max: usize) -> Self {
        let mut sum = 0.0;
        let sums = (1..=max).map(|number| {
            sum += (number as f64).ln();
            sum
        });
        Self(std::iter::once(0.0).chain(sums).collect())
    }

    /// The logarithm of the number of ways to choose `chosen` of `total`; negative infinity where there is none.
    ///
    /// # Panics
    /// If `total` is larger than the largest number.
    pub fn log_choose(&self, total: usize, chosen: usize) -> f64 {
        if chosen > total {
            return f64::NEG_INFINITY;
        }
        self.0[total] - self.0[chosen] - self.0[total - chosen]
    }

    /// The chance that of `draws` values, drawn without replacement from `total` of which `marked` are marked, at least `hits` are marked
    /// (the upper tail of the hypergeometric distribution).
    ///
    /// If all values of several sources come from one distribution, this bounds the chance that `hits` of the `draws` values of one source are
    /// among the `marked` largest ones. The shape of that distribution does not matter.
    ///
    /// # Panics
    /// If `total` is larger than the largest number.
    pub fn hypergeometric_upper_tail(&self, total: usize, marked: usize, draws: usize, hits: usize) -> f64 {
        if hits == 0 {
            return 1.0;
        }
        let all = self.log_choose(total, draws);
        let chance_of = |hits: usize| {
            (self.log_choose(marked, hits) + self.log_choose(total.saturating_sub(marked), draws - hits) - all).exp()
        };
        let chance: f64 = (hits..=draws.min(marked)).map(chance_of).sum();
        chance.min(1.0)
    }

    /// Fisher's exact test of a two-by-two table, one-sided (Fisher 1935): the chance that at least `both` of `with_first` items also have a
    /// second property that `with_second` of all `total` items have, if the two have nothing to do with each other.
    ///
    /// # Panics
    /// If `total` is larger than the largest number.
    pub fn fisher_upper_tail(&self, total: usize, with_first: usize, with_second: usize, both: usize) -> f64 {
        self.hypergeometric_upper_tail(total, with_second, with_first, both)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fisher_matches_lady_tasting_tea() {
        // Fisher, The Design of Experiments, 1935: 4 of 4 cups of 8 have the chance 1/70, at least 3 of 4 have 17/70.
        let logs = LogFactorials::new(8);
        assert!((logs.fisher_upper_tail(8, 4, 4, 4) - 1.0 / 70.0).abs() < 1e-12);
        assert!((logs.fisher_upper_tail(8, 4, 4, 3) - 17.0 / 70.0).abs() < 1e-12);
        assert!((logs.fisher_upper_tail(8, 4, 4, 0) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn all_runs_among_the_largest_is_one_choice() {
        // Of 192 runs those 3 of one host are the 3 largest: one of 1 161 280 choices.
        let logs = LogFactorials::new(640);
        assert!((logs.hypergeometric_upper_tail(192, 3, 3, 3) * 1_161_280.0 - 1.0).abs() < 1e-9);
        assert!((logs.hypergeometric_upper_tail(64, 1, 1, 1) - 1.0 / 64.0).abs() < 1e-12);
        assert_eq!(logs.hypergeometric_upper_tail(10, 2, 3, 3), 0.0);
    }
}
