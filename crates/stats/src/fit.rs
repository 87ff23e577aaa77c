//! Lines through points, and rank correlation.

use crate::{mean, t_quantile, t_upper_tail};

/// A least-squares line with the uncertainty of its two coefficients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    /// Value at zero.
    pub intercept: f64,
    /// Change of the value per unit.
    pub slope: f64,
    /// Standard error of the intercept.
    pub intercept_error: f64,
    /// Standard error of the slope.
    pub slope_error: f64,
    /// Standard deviation of the points around the line.
    pub residual_std: f64,
    /// Share of the variance that the line explains; 1 for equal values.
    pub r_squared: f64,
    /// Degrees of freedom, points less two.
    pub degrees: f64,
}

impl Line {
    /// The value of the line.
    pub fn at(&self, x: f64) -> f64 {
        self.intercept + self.slope * x
    }

    /// Half-width of the 95 % interval of the slope.
    pub fn slope_half_width(&self) -> f64 {
        t_quantile(0.975, self.degrees) * self.slope_error
    }

    /// Half-width of the 95 % interval of the intercept.
    pub fn intercept_half_width(&self) -> f64 {
        t_quantile(0.975, self.degrees) * self.intercept_error
    }
}

/// The least-squares line through points; `None` with fewer than three points or one single x.
pub fn line(points: &[(f64, f64)]) -> Option<Line> {
    if points.len() < 3 {
        return None;
    }
    let n = points.len() as f64;
    let x_mean = mean(&points.iter().map(|point| point.0).collect::<Vec<f64>>());
    let y_mean = mean(&points.iter().map(|point| point.1).collect::<Vec<f64>>());
    let (mut sxx, mut sxy, mut syy) = (0.0, 0.0, 0.0);
    for (x, y) in points {
        sxx += (x - x_mean).powi(2);
        sxy += (x - x_mean) * (y - y_mean);
        syy += (y - y_mean).powi(2);
    }
    if sxx == 0.0 {
        return None;
    }
    let slope = sxy / sxx;
    let intercept = y_mean - slope * x_mean;
    let residuals: f64 = points.iter().map(|(x, y)| (y - intercept - slope * x).powi(2)).sum();
    let degrees = n - 2.0;
    let variance = residuals / degrees;
    Some(Line {
        intercept,
        slope,
        intercept_error: (variance * (1.0 / n + x_mean.powi(2) / sxx)).sqrt(),
        slope_error: (variance / sxx).sqrt(),
        residual_std: variance.sqrt(),
        r_squared: if syy == 0.0 { 1.0 } else { 1.0 - residuals / syy },
        degrees,
    })
}

/// Ranks from 1, ties sharing the mean of theirs.
pub fn ranks(values: &[f64]) -> Vec<f64> {
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

/// Spearman's rank correlation and its two-sided p value (from t with n - 2 degrees of freedom, fair from about ten
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
    fn the_norris_line_of_nist() {
        // NIST StRD, linear regression, "Norris": certified values.
        const NORRIS: [(f64, f64); 36] = [
            (0.2, 0.1),
            (337.4, 338.8),
            (118.2, 118.1),
            (884.6, 888.0),
            (10.1, 9.2),
            (226.5, 228.1),
            (666.3, 668.5),
            (996.3, 998.5),
            (448.6, 449.1),
            (777.0, 778.9),
            (558.2, 559.2),
            (0.4, 0.3),
            (0.6, 0.1),
            (775.5, 778.1),
            (666.9, 668.8),
            (338.0, 339.3),
            (447.5, 448.9),
            (11.6, 10.8),
            (556.0, 557.7),
            (228.1, 228.3),
            (995.8, 998.0),
            (887.6, 888.8),
            (120.2, 119.6),
            (0.3, 0.3),
            (0.3, 0.6),
            (556.8, 557.6),
            (339.1, 339.3),
            (887.2, 888.0),
            (999.0, 998.5),
            (779.0, 778.9),
            (11.1, 10.2),
            (118.3, 117.6),
            (229.2, 228.9),
            (669.1, 668.4),
            (448.9, 449.2),
            (0.5, 0.2),
        ];
        let line = line(&NORRIS).unwrap();
        assert!((line.intercept - -0.262_323_073_774_029).abs() < 1e-11);
        assert!((line.slope - 1.002_116_818_020_45).abs() < 1e-13);
        assert!((line.intercept_error - 0.232_818_234_301_152).abs() < 1e-11);
        assert!((line.slope_error - 0.429_796_848_199_937e-3).abs() < 1e-13);
        assert!((line.residual_std - 0.884_796_396_144_373).abs() < 1e-11);
        assert!((line.r_squared - 0.999_993_745_883_712).abs() < 1e-12);
        assert_eq!(line.degrees, 34.0);
        assert!(line.slope_half_width() > 2.0 * line.slope_error);
    }

    #[test]
    fn lines_through_too_little() {
        assert_eq!(line(&[(0.0, 1.0), (1.0, 2.0)]), None);
        assert_eq!(line(&[(1.0, 1.0), (1.0, 2.0), (1.0, 3.0)]), None);
        let flat = line(&[(0.0, 5.0), (1.0, 5.0), (2.0, 5.0)]).unwrap();
        assert_eq!((flat.slope, flat.intercept, flat.r_squared), (0.0, 5.0, 1.0));
        assert_eq!(flat.at(10.0), 5.0);
    }

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
