//! What the steps say together: how the rate of all ranks grows with their number, what as many ranks alone predict, and who is the limit.

use std::collections::BTreeMap;

use kelvin_core::{Interval, IntervalKind};
use kelvin_stats::{
    CONFIDENCE_LEVEL, ScalabilityFit, UncertainValue, adjusted_p_values, fit_scalability_with_intervals, median,
    min_max, ratio_of_medians, variance,
};

use super::event::{RankTime, Step};
use super::results::FileResults;
use super::task::Activity;
use crate::peers::{MIN_PEERS, NAMING_LEVEL, Peers};
use crate::results::Results;

/// Two passes of one rank differ by about this, as a logarithm: ranks that agree better do so by chance.
const RESOLUTION: f64 = 0.005;

/// The variance of the median of normal values over that of their mean, for many of them.
const MEDIAN_VARIANCE: f64 = std::f64::consts::FRAC_PI_2;

/// A rate or share with what the passes say of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    /// The median of the passes.
    pub value: f64,
    /// Its interval, or the range of few passes; none of one pass.
    pub interval: Option<Interval>,
}

/// What so many ranks reached.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// How many.
    pub ranks: usize,
    /// All of them together, in bytes or files per second.
    pub rate: Figure,
    /// That over as many times the rate of one rank, 1 being the prediction; unknown of one rank.
    pub share: Option<Figure>,
}

/// Why all ranks together do not reach as many times the rate of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// They do: one more rank would add its rate.
    Ranks,
    /// Slow ranks: without them the others would have ended that much earlier.
    SlowRanks,
    /// All ranks slow down together.
    Common,
    /// The passes are too few, or differ too much.
    Unknown,
}

/// A rank that is slower than the others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlowRank {
    /// The rank.
    pub rank: usize,
    /// Its own rate over the median of those of the others.
    pub ratio: f64,
    /// The range of that ratio for 95 % of such ranks.
    pub usual: (f64, f64),
    /// Chance of such a rank by accident, corrected for all tests of the job (Benjamini and Hochberg).
    pub p_value: f64,
}

/// One activity.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// What was done.
    pub activity: Activity,
    /// By how many ranks, ascending.
    pub loads: Vec<Load>,
    /// The universal scalability law, where there are loads and passes enough.
    pub fit: Option<ScalabilityFit>,
    /// Who is the limit of all ranks; unknown of one rank.
    pub limit: Option<Limit>,
    /// Slow ranks among all, the slowest first.
    pub slow: Vec<SlowRank>,
    /// Of the pass of all ranks with the median rate, the first rank to end and the last one.
    pub finishers: Option<[RankTime; 2]>,
    /// The largest error of the clocks as a share of the time of all ranks.
    pub clock_error: f64,
    /// The largest share of what was read that lay in the page cache of the reader; none where nothing was read, or where it is unknown.
    pub cached_share: Option<f64>,
}

/// Analyses what was measured so far, in the order in which it is reported.
pub fn analyse(results: &Results<FileResults>) -> Vec<Finding> {
    let ranks = results.ranks.len();
    let tolerance = results.measured.plan.tolerance;
    let mut findings: Vec<Finding> =
        results.measured.steps.iter().map(|(&activity, steps)| finding(activity, steps, ranks)).collect();
    // One correction for all ranks and activities.
    let p_values: Vec<f64> = findings.iter().flat_map(|finding| &finding.slow).map(|slow| slow.p_value).collect();
    let mut adjusted = adjusted_p_values(&p_values).into_iter();
    for finding in &mut findings {
        finding.slow.iter_mut().zip(&mut adjusted).for_each(|(slow, p_value)| slow.p_value = p_value);
        finding.slow.retain(|slow| slow.p_value <= NAMING_LEVEL && slow.ratio <= 1.0 - tolerance);
        finding.slow.sort_by(|first, second| first.ratio.total_cmp(&second.ratio));
        let all = results.measured.steps[&finding.activity].get(&ranks).filter(|_| ranks > 1);
        finding.limit = all.map(|steps| limit(finding, steps, tolerance));
    }
    findings
}

/// One activity, with all ranks as candidates of slow ones.
fn finding(activity: Activity, steps: &BTreeMap<usize, Vec<Step>>, ranks: usize) -> Finding {
    let rates: BTreeMap<usize, Vec<f64>> =
        steps.iter().map(|(&count, steps)| (count, steps.iter().map(Step::rate).collect())).collect();
    let load = |(&count, passes): (&usize, &Vec<f64>)| Load {
        ranks: count,
        rate: figure(passes),
        share: rates.get(&1).filter(|_| count > 1).map(|alone| share_of_prediction(alone, passes, count)),
    };
    let all_loads: Vec<(f64, &[f64])> = rates.iter().map(|(&count, passes)| (count as f64, &passes[..])).collect();
    let all = steps.get(&ranks).map_or(&[][..], Vec::as_slice);
    let clock_errors = all.iter().map(|step| step.clock_error_s / step.seconds());
    let shares = steps.values().flatten().flat_map(|step| &step.parts).filter_map(|part| part.cached_share);
    Finding {
        activity,
        loads: rates.iter().map(load).collect(),
        fit: fit_scalability_with_intervals(&all_loads),
        limit: None,
        slow: candidates(all),
        finishers: median_step(all).and_then(Step::finishers),
        clock_error: clock_errors.fold(0.0, f64::max),
        cached_share: shares.max_by(f64::total_cmp),
    }
}

fn figure(passes: &[f64]) -> Figure {
    let interval = match UncertainValue::median(passes, None) {
        Some(value) => {
            let (lower, upper) = value.interval(CONFIDENCE_LEVEL);
            Some(Interval { kind: IntervalKind::Confidence, level: CONFIDENCE_LEVEL, lower: lower.max(0.0), upper })
        }
        None if passes.len() > 1 => min_max(passes.iter().copied()).map(|(lower, upper)| Interval {
            kind: IntervalKind::Range,
            level: 1.0,
            lower,
            upper,
        }),
        None => None,
    };
    Figure { value: median(passes), interval }
}

/// The rate of ranks over as many times that of one.
fn share_of_prediction(alone: &[f64], together: &[f64], count: usize) -> Figure {
    let predicted: Vec<f64> = alone.iter().map(|rate| count as f64 * rate).collect();
    let interval = ratio_of_medians(&predicted, together, None).map(|ratio| {
        let (lower, upper) = ratio.interval(CONFIDENCE_LEVEL);
        Interval { kind: IntervalKind::Confidence, level: CONFIDENCE_LEVEL, lower: lower.exp(), upper: upper.exp() }
    });
    Figure { value: median(together) / median(&predicted), interval }
}

/// The pass whose rate is the median, or the lower of two in the middle.
fn median_step(steps: &[Step]) -> Option<&Step> {
    let mut sorted: Vec<&Step> = steps.iter().collect();
    sorted.sort_by(|first, second| first.rate().total_cmp(&second.rate()));
    sorted.get(sorted.len().saturating_sub(1) / 2).copied()
}

/// Each rank against the others: in each pass by the logarithm of its own time, so that what all ranks have in common cancels.
fn candidates(steps: &[Step]) -> Vec<SlowRank> {
    let mut speeds: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for step in steps {
        let logs: Vec<f64> = step.parts.iter().map(|part| -part.seconds().ln()).collect();
        let common = median(&logs);
        step.parts.iter().zip(logs).for_each(|(part, log)| speeds.entry(part.rank).or_default().push(log - common));
    }
    if speeds.len() < MIN_PEERS {
        return Vec::new();
    }
    let values: Vec<f64> = speeds.values().map(|passes| median(passes)).collect();
    let peers = Peers::new(values);
    let slow = |(index, (&rank, passes)): (usize, (&usize, &Vec<f64>))| {
        let error = (MEDIAN_VARIANCE * variance(passes) / passes.len() as f64).sqrt().max(RESOLUTION);
        let comparison = peers.compare(index, error);
        let half = comparison.half_range(CONFIDENCE_LEVEL);
        SlowRank {
            rank,
            ratio: comparison.difference.exp(),
            usual: ((-half).exp(), half.exp()),
            p_value: comparison.p_value(),
        }
    };
    speeds.iter().enumerate().map(slow).collect()
}

/// Who keeps all ranks from their prediction.
fn limit(finding: &Finding, steps: &[Step], tolerance: f64) -> Limit {
    let Some(share) = finding.loads.last().and_then(|load| load.share) else { return Limit::Unknown };
    if share.value >= 1.0 - tolerance {
        return Limit::Ranks;
    }
    // How much earlier the last of the other ranks ended.
    let is_slow = |rank: usize| finding.slow.iter().any(|slow| slow.rank == rank);
    let gain = |step: &Step| {
        let others = step.parts.iter().filter(|part| !is_slow(part.rank)).map(|part| part.end_s);
        step.seconds() / others.fold(0.0, f64::max)
    };
    let gains: Vec<f64> = steps.iter().map(gain).collect();
    if !finding.slow.is_empty() && median(&gains) >= 1.0 / (1.0 - tolerance) {
        return Limit::SlowRanks;
    }
    // Less than the prediction, and not by accident.
    if share.interval.is_some_and(|interval| interval.upper < 1.0) { Limit::Common } else { Limit::Unknown }
}

#[cfg(test)]
mod tests;
