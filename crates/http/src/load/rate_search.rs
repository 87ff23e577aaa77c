//! The search for the highest rate that keeps an objective: by doubling, then by halving the gap. Pure: it measures nothing.

/// Requests a second of the first try.
const INITIAL_RATE: f64 = 100.0;

/// The lowest and the highest rate that are tried.
const MIN_RATE: f64 = 0.1;
const MAX_RATE: f64 = 1_000_000.0;

/// The search ends when the lowest rate that missed is so many times the highest that kept: rates closer together differ less
/// than two measurements of one.
const STOP_RATIO: f64 = 1.05;

/// What is known so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RateBisection {
    highest_kept: Option<f64>,
    lowest_missed: Option<f64>,
}

impl RateBisection {
    /// The rate to try next; `None` once the answer is known.
    pub fn next_rate(&self) -> Option<f64> {
        match (self.highest_kept, self.lowest_missed) {
            (None, None) => Some(INITIAL_RATE),
            (Some(kept), None) => Some(kept * 2.0).filter(|&rate| rate <= MAX_RATE),
            (None, Some(missed)) => Some(missed / 2.0).filter(|&rate| rate >= MIN_RATE),
            (Some(kept), Some(missed)) => (missed / kept > STOP_RATIO).then(|| (kept * missed).sqrt()),
        }
    }

    /// Whether this rate kept the objective.
    pub fn record(&mut self, rate: f64, is_kept: bool) {
        *(if is_kept { &mut self.highest_kept } else { &mut self.lowest_missed }) = Some(rate);
    }

    /// The highest rate that kept it.
    pub fn highest_kept(&self) -> Option<f64> {
        self.highest_kept
    }

    /// The lowest rate that missed it.
    pub fn lowest_missed(&self) -> Option<f64> {
        self.lowest_missed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answer on a server that keeps all rates up to a limit, and how many rates were tried.
    fn run_search(limit: f64) -> (RateBisection, usize) {
        let (mut search, mut tries) = (RateBisection::default(), 0);
        while let Some(rate) = search.next_rate() {
            search.record(rate, rate <= limit);
            tries += 1;
        }
        (search, tries)
    }

    #[test]
    fn result_is_within_five_percent() {
        for limit in [0.3, 7.0, 100.0, 5_600.0, 812_345.0] {
            let (search, tries) = run_search(limit);
            let (kept, missed) = (search.highest_kept().unwrap(), search.lowest_missed().unwrap());
            assert!(kept <= limit && limit < missed && missed / kept <= STOP_RATIO, "{limit}: {search:?}");
            assert!(tries <= 20, "{limit}: {tries}");
        }
    }

    #[test]
    fn unreachable_limit_ends_search() {
        assert_eq!(run_search(0.0).0.highest_kept(), None);
        assert_eq!(run_search(f64::INFINITY).0.lowest_missed(), None);
    }
}
