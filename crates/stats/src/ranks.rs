//! Ranks and their correlation.

use crate::t_upper_tail;

/// Ranks from 1; ties get their mean rank.
pub(crate) fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_unstable_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0.0; values.len()];
    let mut start = 0;
    for group in order.chunk_by(|&a, &b| values[a] == values[b]) {
        let rank = start as f64 + (group.len() + 1) as f64 / 2.0;
        group.iter().for_each(|&index| ranks[index] = rank);
        start += group.len();
    }
    ranks
}

/// Spearman's rank correlation and its two-sided p value (from t with n - 2 degrees of freedom, good from about ten
/// points); `None` with fewer than three points, unequal lengths, or one side without any spread.
pub fn spearman(x: &[f64], y: &[f64]) -> Option<(f64, f64)> {
    if x.len() != y.len() || x.len() < 3 {
        return None;
    }
    let points: Vec<(f64, f64)> = ranks(x).into_iter().zip(ranks(y)).collect();
    let center = (x.len() as f64 + 1.0) / 2.0;
    let sum = |of: fn(f64, f64) -> f64| points.iter().map(|(a, b)| of(a - center, b - center)).sum::<f64>();
    let (xx, yy, xy) = (sum(|a, _| a * a), sum(|_, b| b * b), sum(|a, b| a * b));
    if xx == 0.0 || yy == 0.0 {
        return None;
    }
    let rho = (xy / (xx * yy).sqrt()).clamp(-1.0, 1.0);
    let degrees = x.len() as f64 - 2.0;
    let p = if rho.abs() == 1.0 {
        0.0
    } else {
        2.0 * t_upper_tail((rho.abs()) * (degrees / (1.0 - rho * rho)).sqrt(), degrees)
    };
    Some((rho, p))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rank_correlation() {
        assert_eq!(ranks(&[10.0, 30.0, 10.0, 20.0]), [1.5, 4.0, 1.5, 3.0]);
        // IQ against hours of television, a much-printed example: rho = -29/165, p = 0.627188.
        let iq = [106.0, 100.0, 86.0, 101.0, 99.0, 103.0, 97.0, 113.0, 112.0, 110.0];
        let hours = [7.0, 27.0, 2.0, 50.0, 28.0, 29.0, 20.0, 12.0, 6.0, 17.0];
        let (rho, p) = spearman(&iq, &hours).unwrap();
        assert!((rho - -29.0 / 165.0).abs() < 1e-12);
        assert!((p - 0.627_188).abs() < 1e-6);
        assert_eq!(spearman(&[1.0, 2.0, 3.0], &[2.0, 4.0, 9.0]), Some((1.0, 0.0)));
        assert_eq!(spearman(&[1.0, 1.0, 1.0], &[2.0, 4.0, 9.0]), None);
        assert_eq!(spearman(&[1.0], &[2.0]), None);
    }
}
