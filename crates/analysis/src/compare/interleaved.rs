//! Two settings of one machine that were measured interleaved, in blocks of four, two of either, the first and the last of the same (ABBA).
//!
//! What drifts slowly touches both alike: within a block the mean of the first and the last is taken at the same moment as that of the
//! two between (Student 1931; Box, Hunter and Hunter, Statistics for Experimenters, on blocking). The error of the figure is what differs
//! from block to block. Both sides are compared by their means, which are what somebody pays; on a disturbed machine by their best rounds,
//! where the means allow that.

use std::collections::{BTreeMap, BTreeSet};

use kelvin_core::units::case;

use super::cause_of_change::{self, ControlChange};
use super::new_comparison;
use super::verdicts::{PendingFigure, judge_together};
use crate::prelude::*;

/// Measurements of either side in a block.
const SIDE_ROUNDS_PER_BLOCK: u32 = 2;

/// One case of one probe on both sides. The number of a round is twice that of its block for the first of its side there, and one more
/// for the second.
#[derive(Clone, Debug)]
pub struct InterleavedCase {
    /// What is measured.
    pub metrics: Vec<Metric>,
    /// The case.
    pub case: Case,
    /// The rounds of the base and of the other.
    pub sides: [Measurement; 2],
}

impl InterleavedCase {
    /// A case of a probe, or of what stands for one, without rounds yet.
    pub fn new(probe: Name, metrics: Vec<Metric>, case: Case) -> Self {
        let ids = metrics.iter().map(|metric| metric.id).collect();
        let planned = PlannedMeasurement { probe, metrics: ids, case: case.clone(), only_input: false };
        let empty = Measurement::from_plan(planned);
        Self { metrics, case, sides: [empty.clone(), empty] }
    }
}

/// Two settings with interleaved measurements.
#[derive(Clone, Debug)]
pub struct InterleavedSettings<'a> {
    /// The names of the base and of the other.
    pub names: [String; 2],
    /// What differs between them.
    pub differences: Vec<FactDifference>,
    /// Share by which a figure must differ to be better or worse.
    pub threshold: f64,
    /// Seconds that all of it took.
    pub seconds: f64,
    /// What was measured.
    pub cases: &'a [&'a InterleavedCase],
}

/// Compares them.
pub fn compare_interleaved(settings: &InterleavedSettings<'_>) -> Comparison {
    let (mut figures, mut not_compared) = (Vec::new(), Vec::new());
    for entry in settings.cases {
        for metric in entry.metrics.iter().filter(|metric| metric.is_measured_at(&entry.case)) {
            match MetricBlocks::from_case(metric, entry) {
                Ok(blocks) => figures.push(blocks.into_pending(metric, &entry.case)),
                Err(reason) => {
                    not_compared.push(NotCompared { metric: metric.id, case: case(metric, &entry.case), reason });
                }
            }
        }
    }
    cause_of_change::find_causes(&mut figures, settings.threshold, |figures, _, key| {
        let control = figures.iter().find(|entry| entry.is_at(key)).map(ControlChange::from_figure);
        let is_same_figure = |entry: &&NotCompared| {
            let metric = kelvin_core::catalogue::find(key.metric);
            entry.metric == key.metric && metric.is_some_and(|metric| entry.case == case(metric, &key.case))
        };
        let reason = || not_compared.iter().find(is_same_figure).map(|entry| entry.reason.clone());
        control.ok_or_else(|| reason().unwrap_or_else(|| NotComparedReason::Neither("not measured".into())))
    });
    let figures = judge_together(figures, settings.threshold);
    let blocks = figures.iter().filter_map(|figure| match figure.spread_source {
        SpreadSource::Blocks(blocks) => Some(blocks),
        SpreadSource::Runs(_) | SpreadSource::Assumed(_) => None,
    });
    let interleaving = Some(Interleaving { blocks: blocks.max().unwrap_or(0), seconds: settings.seconds });
    let sides = settings.names.clone().map(|name| ComparedSide { name, runs: Vec::new() });
    let comparison = new_comparison(sides, settings.threshold, figures, not_compared);
    Comparison { differences: settings.differences.clone(), interleaving, ..comparison }
}

/// A metric at a case, in blocks.
struct MetricBlocks {
    /// The rounds of either side, in whole blocks.
    values: [Vec<f64>; 2],
    /// The rounds of each whole block.
    blocks: Vec<Block>,
}

impl MetricBlocks {
    /// The whole blocks, or why there is nothing to compare.
    fn from_case(metric: &Metric, entry: &InterleavedCase) -> Result<Self, NotComparedReason> {
        // As found: a setting may be what disturbs.
        let [base, other] = entry.sides.each_ref().map(|side| round_medians(side, metric));
        match (base.is_empty(), other.is_empty()) {
            (false, true) => return Err(NotComparedReason::OnlyBase(missing_text(&entry.sides[1]))),
            (true, false) => return Err(NotComparedReason::OnlyOther(missing_text(&entry.sides[0]))),
            (true, true) => return Err(NotComparedReason::Neither(missing_text(&entry.sides[0]))),
            (false, false) => {}
        }
        let mut result = Self { values: [Vec::new(), Vec::new()], blocks: Vec::new() };
        let blocks = base.keys().map(|index| index / SIDE_ROUNDS_PER_BLOCK).collect::<BTreeSet<u32>>();
        for block in blocks {
            let block_of = |rounds: &BTreeMap<u32, f64>| -> Option<Vec<f64>> {
                let first = SIDE_ROUNDS_PER_BLOCK * block;
                (first..first + SIDE_ROUNDS_PER_BLOCK).map(|index| rounds.get(&index).copied()).collect()
            };
            let (Some(base), Some(other)) = (block_of(&base), block_of(&other)) else { continue };
            if base.iter().chain(&other).any(|&value| value <= 0.0) {
                return Err(NotComparedReason::NoRatio);
            }
            result.values.iter_mut().zip([&base, &other]).for_each(|(side, values)| side.extend(values));
            result.blocks.push([base, other]);
        }
        if result.blocks.is_empty() { Err(NotComparedReason::Neither("no block is whole".into())) } else { Ok(result) }
    }

    fn into_pending(self, metric: &Metric, case: &Case) -> PendingFigure {
        let best = match metric.better {
            Better::Lower => Some(BestValue::Lowest),
            Better::Higher => Some(BestValue::Highest),
            Better::Neither => None,
        };
        let ratio = blocked_ratio(&self.blocks, best);
        let [base, other] = self.values.each_ref().map(|values| mean(values));
        let block_ratio = |block: &Block| mean(&block[1]) / mean(&block[0]);
        let range = min_max(self.blocks.iter().map(block_ratio)).unwrap_or((f64::NAN, f64::NAN));
        let value = ratio.map_or(other / base, |ratio| ratio.ratio.value.exp());
        let side_mode = |mode: &Cluster| SideMode { center: mode.center, share: mode.share };
        let spread_source = SpreadSource::Blocks(self.blocks.len());
        let sides = self.values.map(|rounds| SideFigure {
            interval: None,
            modes: find_modes(&rounds).iter().map(side_mode).collect(),
            rounds: vec![rounds],
        });
        let mut pending = PendingFigure::new(*metric, case, [base, other], sides, spread_source);
        pending.figure.ratio = Estimate { is_range: true, ..Estimate::new(value, range) };
        pending.figure.ratio_basis = ratio.map(|ratio| match ratio.estimator {
            kelvin_stats::RatioEstimator::Means => RatioBasis::Means,
            kelvin_stats::RatioEstimator::Best => RatioBasis::BestRounds,
        });
        pending.error = ratio.map(|ratio| ratio.ratio);
        pending
    }
}
