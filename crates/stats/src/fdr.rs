//! Many tests at once: how many of those that come out are false.

/// Share of false ones among the differences, and among the equivalences, that a report finds: on average, at most.
pub const FALSE_DISCOVERY_RATE: f64 = 0.05;

/// The chances of several tests, corrected for one another: the least share of false discoveries at which each of them still
/// counts (Benjamini and Hochberg 1995), in the order of the tests.
///
/// Valid for independent tests and for those that are positively dependent (Benjamini and Yekutieli 2001); the simulation shows
/// that it holds for the ratios of a report too, which share sides and the state of the machine.
pub fn adjusted_p_values(chances: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..chances.len()).collect();
    order.sort_unstable_by(|&one, &other| chances[other].total_cmp(&chances[one]));
    let all = chances.len() as f64;
    let mut joint = vec![1.0; chances.len()];
    let mut least: f64 = 1.0;
    for (above, &test) in order.iter().enumerate() {
        least = least.min(chances[test] * all / (all - above as f64));
        joint[test] = least;
    }
    joint
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p_values_adjusted_as_published() {
        // Benjamini and Hochberg 1995, section 3.2: of these 15 the first four are rejected at 5 %.
        let chances = [
            0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262, 0.5719, 0.6528,
            0.7590, 1.0,
        ];
        let joint = adjusted_p_values(&chances);
        assert_eq!(joint.iter().filter(|&&chance| chance <= FALSE_DISCOVERY_RATE).count(), 4);
        // R: p.adjust(p, "BH").
        assert!((joint[3] - 0.035_625).abs() < 1e-9 && (joint[4] - 0.0603).abs() < 1e-9, "{joint:?}");
        assert!(joint.windows(2).all(|pair| pair[0] <= pair[1]) && joint[14] == 1.0);
    }

    #[test]
    fn adjustment_ignores_order_and_single_tests() {
        assert_eq!(adjusted_p_values(&[0.03]), [0.03]);
        assert_eq!(adjusted_p_values(&[]), [0.0; 0]);
        let (one, other) = (adjusted_p_values(&[0.01, 0.5, 0.02]), adjusted_p_values(&[0.5, 0.02, 0.01]));
        assert_eq!([one[0], one[1], one[2]], [other[2], other[0], other[1]]);
    }
}
