//! The search for the highest rate that keeps an objective: by doubling, then by halving the gap. Pure: it measures nothing.

/// Requests a second of the first try.
const FIRST: f64 = 100.0;

/// The lowest and the highest rate that are tried.
const LOWEST: f64 = 0.1;
const HIGHEST: f64 = 1_000_000.0;

/// The search ends when the lowest rate that missed is so many times the highest that kept: rates closer together differ less
/// than two measurements of one.
const NARROW: f64 = 1.05;

/// What is known so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Search {
    kept: Option<f64>,
    missed: Option<f64>,
}

impl Search {
    /// The rate to try next; `None` once the answer is known.
    pub fn next_rate(&self) -> Option<f64> {
        match (self.kept, self.missed) {
            (None, None) => Some(FIRST),
            (Some(kept), None) => Some(kept * 2.0).filter(|&rate| rate <= HIGHEST),
            (None, Some(missed)) => Some(missed / 2.0).filter(|&rate| rate >= LOWEST),
            (Some(kept), Some(missed)) => (missed / kept > NARROW).then(|| (kept * missed).sqrt()),
        }
    }

    /// Whether this rate kept the objective.
    pub fn tell(&mut self, rate: f64, is_kept: bool) {
        *(if is_kept { &mut self.kept } else { &mut self.missed }) = Some(rate);
    }

    /// The highest rate that kept it.
    pub fn kept(&self) -> Option<f64> {
        self.kept
    }

    /// The lowest rate that missed it.
    pub fn missed(&self) -> Option<f64> {
        self.missed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answer on a server that keeps all rates up to a limit, and how many rates were tried.
    fn found(limit: f64) -> (Search, usize) {
        let (mut search, mut tries) = (Search::default(), 0);
        while let Some(rate) = search.next_rate() {
            search.tell(rate, rate <= limit);
            tries += 1;
        }
        (search, tries)
    }

    #[test]
    fn the_answer_is_within_a_twentieth_below_the_limit() {
        for limit in [0.3, 7.0, 100.0, 5_600.0, 812_345.0] {
            let (search, tries) = found(limit);
            let (kept, missed) = (search.kept().unwrap(), search.missed().unwrap());
            assert!(kept <= limit && limit < missed && missed / kept <= NARROW, "{limit}: {search:?}");
            assert!(tries <= 20, "{limit}: {tries}");
        }
    }

    #[test]
    fn a_limit_out_of_reach_ends_the_search() {
        assert_eq!(found(0.0).0.kept(), None);
        assert_eq!(found(f64::INFINITY).0.missed(), None);
    }
}
