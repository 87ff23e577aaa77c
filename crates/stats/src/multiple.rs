//! Many tests at once: keeping the share of false discoveries in bounds.

/// Which of these p values are discoveries when at most the share `rate` of discoveries may be false (Benjamini and
/// Hochberg 1995; for independent or positively dependent tests). P values that are not numbers are never discoveries.
pub fn discoveries(p: &[f64], rate: f64) -> Vec<bool> {
    let mut sorted: Vec<f64> = p.iter().copied().filter(|p| !p.is_nan()).collect();
    sorted.sort_unstable_by(f64::total_cmp);
    let n = sorted.len() as f64;
    let limit = sorted.iter().enumerate().rev().find(|(i, p)| **p <= (i + 1) as f64 / n * rate).map(|(_, p)| *p);
    p.iter().map(|p| limit.is_some_and(|limit| *p <= limit)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_example_of_the_paper() {
        // Benjamini and Hochberg 1995, section 3.2: of fifteen tests, four are discoveries at 5 %.
        let p = [
            0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262, 0.5719, 0.6528,
            0.7590, 1.000,
        ];
        let found = discoveries(&p, 0.05);
        assert_eq!(found.iter().filter(|&&found| found).count(), 4);
        assert!(found[..4].iter().all(|&found| found));
    }

    #[test]
    fn nothing_and_no_numbers() {
        assert!(discoveries(&[], 0.05).is_empty());
        assert_eq!(discoveries(&[f64::NAN, 0.001], 0.05), [false, true]);
    }

    proptest! {
        #[test]
        fn a_smaller_p_is_a_discovery_too(p in prop::collection::vec(0.0..1.0f64, 1..50)) {
            let found = discoveries(&p, 0.1);
            for i in 0..p.len() {
                for j in 0..p.len() {
                    prop_assert!(!(found[i] && p[j] < p[i]) || found[j]);
                }
            }
        }
    }
}
