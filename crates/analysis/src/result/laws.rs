//! Laws and lines that are held beside the measurements of a curve, and the best of its cells.

use kelvin_core::Knee;
use kelvin_stats::Scalability;

use super::*;

/// The universal scalability law as fitted to a rate over a number of workers: lambda n / (1 + sigma (n - 1) + kappa n (n - 1)).
///
/// It is fitted to the measurements, and so is never a prediction of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FittedLaw {
    /// The metric.
    pub metric: Name,
    /// The parameter that is the number of workers.
    pub workers: Name,
    /// The other parameters.
    pub fixed: Case,
    /// The most workers that were measured; the law says nothing beyond.
    pub max_workers: u64,
    /// Rate of one worker, in the metric's unit.
    pub lambda: Coefficient,
    /// Contention: the share of the work for which workers wait for each other.
    pub sigma: Coefficient,
    /// Coherency: the cost of coordinating with one other worker, as a share of the work.
    pub kappa: Coefficient,
    /// The whole number of workers with the highest rate; `None` where it does not fall up to the most that were measured.
    pub peak: Option<f64>,
    /// Lower end of its 95 % interval; `None` where even there it does not fall up to the most.
    pub peak_lower: Option<f64>,
    /// Upper end of its 95 % interval; `None` where it may not fall up to the most.
    pub peak_upper: Option<f64>,
    /// Whether it describes the measurements: at no number of workers is it off by more than a tenth and more than that rate's
    /// interval.
    pub describes: bool,
    /// The number of workers of its largest deviation.
    pub furthest_at: u64,
    /// The law's rate over the measured one there.
    pub furthest_ratio: f64,
}

impl FittedLaw {
    /// The law's rate with this many workers, in the metric's unit.
    pub fn rate_at(&self, workers: f64) -> f64 {
        Scalability { lambda: self.lambda.value, sigma: self.sigma.value, kappa: self.kappa.value }
            .throughput_at(workers)
    }
}

/// A line beside the measurements of a curve that follows from lower metrics alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModelLine {
    /// The metric of the curve.
    pub metric: Name,
    /// The parameter over which it runs.
    pub axis: Name,
    /// The other parameters.
    pub fixed: Case,
    /// What it is, for a legend.
    pub label: String,
    /// Whether measurements are on one side of it, rather than on it.
    pub is_bound: bool,
    /// Positions and values, in the metric's unit.
    pub points: Vec<(u64, f64)>,
}

/// The knee of a curve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KneeMark {
    /// The metric of the curve.
    pub metric: Name,
    /// The parameter over which it runs.
    pub axis: Name,
    /// The other parameters.
    pub fixed: Case,
    /// Where it is.
    pub knee: Knee,
}

/// The knee of a curve over CPUs, jobs or streams: from which number on its rate stops growing. The greatest number is at least half as
/// much again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GrowthEnd {
    /// The metric of the curve.
    pub metric: Name,
    /// The parameter over which it runs.
    pub axis: Name,
    /// The other parameters.
    pub fixed: Case,
    /// The least number of which it is certain that no greater one gives a tenth more.
    pub at: u64,
    /// The least number of which it is not certain that a greater one does.
    pub low: u64,
    /// The greatest number that was measured.
    pub max: u64,
}

/// What was measured again and again over the time of a study, relative to what is usual of each: steady where it stays at 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Timeline {
    /// The metric.
    pub metric: Name,
    /// Title.
    pub title: String,
    /// The visits, in groups that are alike.
    pub groups: Vec<TimelineGroup>,
    /// How far from 1 counts as the same.
    pub tolerance: f64,
    /// A moment of note: its name, and seconds since the start of the run.
    pub marked_time: Option<(String, f64)>,
}

/// Visits that are alike.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TimelineGroup {
    /// Their name.
    pub label: String,
    /// Seconds since the start of the run, and the figure over the mean of its own case; in the order of time.
    pub points: Vec<(f64, f64)>,
}

/// A fitted coefficient with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Coefficient {
    /// The best-fitting coefficient.
    pub value: f64,
    /// Lower end of its interval.
    pub lower: f64,
    /// Upper end of its interval.
    pub upper: f64,
}

/// The case at which a metric over two parameters was best, and those not significantly different.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BestCell {
    /// The metric.
    pub metric: Name,
    /// The parameters held fixed.
    pub fixed: Case,
    /// The best case.
    pub best: Case,
    /// The cases that may be equally good.
    pub equivalent: Vec<Case>,
    /// The conclusion.
    pub conclusion: StatedConclusion,
}
