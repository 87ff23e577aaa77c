//! Whether a rate that was measured in successive windows is steady.
//!
//! The criterion is that of the SNIA Solid State Storage Performance Test Specification (PTS 2.0.2, 2020, its definition of steady state): over five successive
//! rounds neither the values nor the line that fits them best vary by more than a share of their average.

/// Successive windows that must agree.
pub const STEADY_WINDOWS: usize = 5;
/// Most that the values of these may vary, from the lowest to the highest, as a share of their average.
pub const MAX_STEADY_RANGE: f64 = 0.20;
/// Most that the best linear fit of these may vary from its one end to the other, as a share of their average.
pub const MAX_STEADY_SLOPE: f64 = 0.10;

/// How much the last rounds of a series vary: what the specification calls the measurement window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeasurementWindow {
    /// Their average.
    pub mean: f64,
    /// The highest less the lowest of them, as a share of the average.
    pub range: f64,
    /// The rise or fall of their best linear fit from the first to the last, as a share of the average.
    pub slope: f64,
}

impl MeasurementWindow {
    /// That of the last [`STEADY_WINDOWS`] values; `None` of fewer, and of values whose average is not above 0.
    pub fn of_last(values: &[f64]) -> Option<Self> {
        let last = &values[values.len().checked_sub(STEADY_WINDOWS)?..];
        let count = STEADY_WINDOWS as f64;
        let mean = last.iter().sum::<f64>() / count;
        if mean.is_nan() || mean <= 0.0 {
            return None;
        }
        let low = last.iter().copied().fold(f64::INFINITY, f64::min);
        let high = last.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        // Least squares over 0, 1, 2 and so on.
        let middle = (count - 1.0) / 2.0;
        let moment: f64 = (0..).zip(last).map(|(index, value)| (f64::from(index) - middle) * value).sum();
        let squares = count * (count * count - 1.0) / 12.0;
        Some(Self { mean, range: (high - low) / mean, slope: (moment / squares * (count - 1.0)).abs() / mean })
    }

    /// Whether the series is steady.
    pub fn is_steady(&self) -> bool {
        self.range <= MAX_STEADY_RANGE && self.slope <= MAX_STEADY_SLOPE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(values: &[f64]) -> MeasurementWindow {
        MeasurementWindow::of_last(values).unwrap()
    }

    #[test]
    fn range_and_slope_are_shares_of_the_average() {
        // y = 90 + 5 x: the fit is the series itself.
        let rising = state(&[90.0, 95.0, 100.0, 105.0, 110.0]);
        assert_eq!(rising, MeasurementWindow { mean: 100.0, range: 0.2, slope: 0.2 });
        assert!(!rising.is_steady());
        // Its mirror image falls as much.
        assert_eq!(state(&[110.0, 105.0, 100.0, 95.0, 90.0]), rising);
        // As wide, and level: the moments are 2 x 10 - 2 x 10 + 1 x 10 - 1 x 10.
        let level = state(&[90.0, 110.0, 100.0, 90.0, 110.0]);
        assert_eq!((level.mean, level.range), (100.0, 0.2));
        // Moment: -2 x 90 - 110 + 90 + 2 x 110 = 20; over 10, times 4.
        assert!((level.slope - 0.08).abs() < 1e-12 && level.is_steady(), "{level:?}");
    }

    #[test]
    fn limits_belong_to_the_steady_state() {
        // A slope of exactly a tenth: y = 95 + 2.5 x.
        let steepest = state(&[95.0, 97.5, 100.0, 102.5, 105.0]);
        assert_eq!((steepest.range, steepest.slope), (0.1, 0.1));
        assert!(steepest.is_steady());
        assert!(!state(&[94.0, 97.0, 100.0, 103.0, 106.0]).is_steady());
        assert!(!state(&[89.0, 110.0, 100.0, 91.0, 110.0]).is_steady());
    }

    #[test]
    fn only_the_last_windows_count() {
        // A cache of two windows before the device.
        let series = [3000.0, 3000.0, 1400.0, 500.0, 510.0, 490.0, 505.0, 495.0];
        assert!(!(STEADY_WINDOWS..series.len()).any(|count| state(&series[..count]).is_steady()));
        let last = state(&series);
        assert!(last.is_steady() && last.mean == 500.0, "{last:?}");
        assert_eq!(MeasurementWindow::of_last(&series[..4]), None);
        assert_eq!(MeasurementWindow::of_last(&[0.0; 5]), None);
        assert_eq!(MeasurementWindow::of_last(&[f64::NAN; 5]), None);
    }
}
