//! Successive halving: the best of many settings, with most of the time spent on the good ones.
//!
//! All are measured briefly, the better half again for twice as long, and so on until one is left (Karnin, Koren,
//! Somekh: Almost Optimal Exploration in Multi-Armed Bandits, 2013).

/// The best of some candidates and its figure when it was measured last; `None` if no candidate could be measured.
///
/// `measure` receives how often the first time is to be doubled. It gives a figure of which more is better, or none where a
/// candidate is unavailable. Every other time the candidates are visited backwards, so that a drift favours none.
///
/// # Errors
/// The first one of `measure`.
pub fn find_best<T, E>(
    candidates: Vec<T>,
    mut measure: impl FnMut(&T, u32) -> Result<Option<f64>, E>,
) -> Result<Option<(T, f64)>, E> {
    let mut remaining = candidates;
    for doublings in 0.. {
        let mut measured = Vec::with_capacity(remaining.len());
        for candidate in remaining {
            if let Some(figure) = measure(&candidate, doublings)? {
                measured.push((candidate, figure));
            }
        }
        measured.sort_by(|left, right| right.1.total_cmp(&left.1));
        if measured.len() < 3 {
            return Ok(measured.into_iter().next());
        }
        measured.truncate(measured.len().div_ceil(2));
        remaining = measured.into_iter().map(|(candidate, _)| candidate).collect();
        if doublings % 2 == 0 {
            remaining.reverse();
        }
    }
    Ok(None)
}

/// How many first times a search among this many takes in all: the divisor of the available time.
pub fn budget_shares(candidates: usize) -> u64 {
    let (mut remaining, mut length, mut shares) = (candidates as u64, 1, 0);
    loop {
        shares += remaining * length;
        if remaining < 3 {
            return shares.max(1);
        }
        (remaining, length) = (remaining.div_ceil(2), 2 * length);
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;
    use proptest::prelude::*;

    fn search(figures: &[f64]) -> (Option<(usize, f64)>, u64) {
        let mut cost = 0;
        let best = find_best((0..figures.len()).collect(), |&candidate, doublings| {
            cost += 1u64 << doublings;
            Ok::<_, Infallible>((!figures[candidate].is_nan()).then_some(figures[candidate]))
        });
        (best.unwrap(), cost)
    }

    #[test]
    fn unavailable_candidates_are_skipped_errors_end() {
        assert_eq!(search(&[]).0, None);
        assert_eq!(search(&[f64::NAN, f64::NAN]).0, None);
        assert_eq!(search(&[f64::NAN, 2.0, f64::NAN, 1.0, f64::NAN]).0, Some((1, 2.0)));
        let outcome =
            find_best(vec![1, 2, 3], |&candidate, _| if candidate == 2 { Err("broken") } else { Ok(Some(1.0)) });
        assert_eq!(outcome, Err("broken"));
    }

    #[test]
    fn noisy_search_finds_near_best() {
        let mut random = kelvin_stats::Random::new(1);
        let mut losses: Vec<f64> = (0..500)
            .map(|_| {
                let truth: Vec<f64> = (0..40).map(|_| 1.0 + random.uniform()).collect();
                let max_figure = truth.iter().copied().fold(0.0, f64::max);
                let best = find_best((0..40).collect(), |&candidate: &usize, doublings| {
                    let noise = 0.1 * random.normal() / f64::from(1u32 << doublings).sqrt();
                    Ok::<_, Infallible>(Some(truth[candidate] * (1.0 + noise)))
                });
                1.0 - truth[best.unwrap().unwrap().0] / max_figure
            })
            .collect();
        losses.sort_by(f64::total_cmp);
        // One in two finds the best or its like, nineteen in twenty lose less than a tenth.
        assert!(losses[250] < 0.02 && losses[475] < 0.1, "{} and {}", losses[250], losses[475]);
    }

    proptest! {
        #[test]
        fn noiseless_search_finds_best_in_budget(figures in prop::collection::vec(0.0f64..1e9, 1..200)) {
            let (best, cost) = search(&figures);
            let max_figure = figures.iter().copied().fold(0.0, f64::max);
            prop_assert_eq!(best.map(|(_, figure)| figure), Some(max_figure));
            prop_assert_eq!(cost, budget_shares(figures.len()));
        }
    }
}
