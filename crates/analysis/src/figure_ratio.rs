//! Two figures of a run, one over the other, and whether their rounds prove on which side of a limit that is.

use crate::prelude::*;

/// Minimum rounds of each side where there are too few for an interval: if then every round of one is beyond every round of the
/// other by the least factor, chance does so in 1 of 20 runs at most.
pub(crate) const MIN_RANGE_ROUNDS: usize = 3;

/// Two figures, the other over the base, and whether that is tested.
pub(crate) struct FigureRatio {
    pub sides: [MetricValue; 2],
    pub base: MeasuredValue,
    pub other: MeasuredValue,
    pub ratio: Estimate,
    is_tested: bool,
}

impl FigureRatio {
    /// Of the rounds of both; `None` without two rounds of each, all positive.
    pub fn from_rounds(base: &RoundHeadlines<'_>, other: &RoundHeadlines<'_>) -> Option<Self> {
        Self::from_rounds_jointly(base, other, 1)
    }

    /// Like [`Self::from_rounds`], with an interval that holds jointly with those of others, `count` together.
    pub fn from_rounds_jointly(base: &RoundHeadlines<'_>, other: &RoundHeadlines<'_>, count: usize) -> Option<Self> {
        let tested = ratio_of_rounds(base, other)?;
        let ratio = if count > 1 { tested.at_joint_level(count).estimate } else { tested.estimate };
        let is_tested = !ratio.is_range || base.values.len().min(other.values.len()) >= MIN_RANGE_ROUNDS;
        let sides = [base.metric_value(), other.metric_value()];
        Some(Self { sides, base: base.measured_value(), other: other.measured_value(), ratio, is_tested })
    }

    /// Whether all of the interval, or every pair of rounds, is above a factor.
    pub fn is_above(&self, factor: f64) -> bool {
        self.is_tested && self.ratio.low > factor
    }

    /// Whether all of it is below a factor.
    pub fn is_below(&self, factor: f64) -> bool {
        self.is_tested && self.ratio.high < factor
    }
}
