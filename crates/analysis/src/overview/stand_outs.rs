//! What stands out on a machine: questions answered by tested figures of the run alone.
//!
//! The rule of their order: what this machine does not give that it reports, or that is predicted, or that it gives elsewhere; then
//! what more of its CPUs do not give, which bounds every program that uses them all; then what a program pays that it can avoid; then
//! what the machine can do. Within each the larger factor first: the larger figure over the smaller one.

mod cpus;
mod disk;
mod memory;
mod network;
mod scaling;
mod worst_time;

use kelvin_core::IndirectSort;
use std::collections::BTreeMap;

use kelvin_core::units::{scale_for, trimmed_decimal};

use super::figure::NANOSECONDS_PER_SECOND;
use super::ladder::LadderRung;
use super::rates;
use crate::figure_ratio::{FigureRatio, MIN_RANGE_ROUNDS};
use crate::prelude::*;

/// Maximum sentences of the first screen.
const MAX_STAND_OUTS: usize = 8;

/// All questions, in the order in which equal answers are listed.
const STAND_OUT_RULES: [fn(&StandOutContext<'_>) -> Option<StandOutAnswer>; 16] = [
    cpus::wake_up,
    memory::cache_size,
    cpus::cpu_distance,
    worst_time::answer,
    disk::idle_cache,
    network::congestion_control,
    network::streams_between_cpus,
    scaling::service_scaling,
    cpus::core_distance,
    memory::node_distance,
    memory::fresh_memory,
    disk::disk_cache,
    scaling::memory_bandwidth,
    scaling::device_requests,
    memory::memory_shared,
    disk::speed,
];

/// Whose doing it is, and so how consequential; the first the most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Consequence {
    /// What this machine does not give.
    OfThisMachine,
    /// What more CPUs of it do not give.
    OfMoreCpus,
    /// What a program pays and can avoid.
    Avoidable,
    /// What the machine can do.
    Ability,
}

/// What stands out, with its weight.
struct StandOutAnswer {
    weight: Consequence,
    stand_out: StandOut,
}

impl StandOutAnswer {
    fn new(weight: Consequence, question: StandOutQuestion, sides: Vec<MetricValue>, text: String) -> Self {
        Self { weight, stand_out: StandOut { question, sides, ratio: None, factor: 1.0, text } }
    }

    fn with_factor(mut self, factor: f64) -> Self {
        self.stand_out.factor = factor;
        self
    }
}

/// What a question is answered from.
pub(super) struct StandOutContext<'a> {
    evidence: &'a Evidence<'a>,
    analysis: &'a Analysis,
    rungs: &'a [LadderRung],
    rates: Vec<(&'static str, Rate)>,
}

impl FigureRatio {
    fn into_answer(self, weight: Consequence, question: StandOutQuestion, text: String) -> StandOutAnswer {
        let factor = self.ratio.value.max(1.0 / self.ratio.value);
        let stand_out = StandOut { question, sides: self.sides.into(), ratio: Some(self.ratio), factor, text };
        StandOutAnswer { weight, stand_out }
    }
}

impl StandOutContext<'_> {
    fn result(&self, selector: &MetricSelector) -> Option<&MetricResult> {
        selector.find(&self.analysis.results)
    }

    /// The rounds of a result that is known.
    fn result_rounds(&self, result: &MetricResult) -> Option<&RoundHeadlines<'_>> {
        result.outcome.summary()?;
        self.evidence.rounds_at(&result.metric, &result.case)
    }

    fn rounds(&self, selector: &MetricSelector) -> Option<&RoundHeadlines<'_>> {
        self.result_rounds(self.result(selector)?)
    }

    /// The rounds of one figure over those of another; `None` if either is not known.
    fn figure_ratio(&self, base: &MetricSelector, other: &MetricSelector) -> Option<FigureRatio> {
        FigureRatio::from_rounds(self.rounds(base)?, self.rounds(other)?)
    }
}

/// What stands out, most consequential first.
pub(super) fn stand_outs(evidence: &Evidence<'_>, analysis: &Analysis, rungs: &[LadderRung]) -> Vec<StandOut> {
    let context = StandOutContext { evidence, analysis, rungs, rates: rates::named_rates(analysis) };
    let mut answers: Vec<StandOutAnswer> = STAND_OUT_RULES.iter().filter_map(|answer| answer(&context)).collect();
    answers.indirect_sort_by(|a, b| a.weight.cmp(&b.weight).then(b.stand_out.factor.total_cmp(&a.stand_out.factor)));
    answers.truncate(MAX_STAND_OUTS);
    answers.into_iter().map(|answer| answer.stand_out).collect()
}

/// Of the figures at each distance the one in the middle, the nearest first.
fn middle_of_each<'a, D: Ord>(
    figures: impl Iterator<Item = (D, &'a RoundHeadlines<'a>)>,
) -> impl DoubleEndedIterator<Item = (D, &'a RoundHeadlines<'a>)> {
    let mut by_distance: BTreeMap<D, Vec<&RoundHeadlines<'a>>> = BTreeMap::new();
    for (distance, rounds) in figures {
        by_distance.entry(distance).or_default().push(rounds);
    }
    by_distance.into_iter().map(|(distance, mut figures)| {
        figures.indirect_sort_by(|a, b| a.measured_value().value.total_cmp(&b.measured_value().value));
        (distance, figures[(figures.len() - 1) / 2])
    })
}

fn time_text(time: MeasuredValue) -> String {
    brief_value(time.value, Some(time.half_width), Unit::Nanoseconds)
}

fn rate_text(rate: MeasuredValue) -> String {
    brief_value(rate.value, Some(rate.half_width), Unit::BytesPerSecond)
}

/// `81 thousand`, `950`, `1.2 million`.
fn requests_text(rate: MeasuredValue) -> String {
    let text = brief_value(rate.value, Some(rate.half_width), Unit::PerSecond);
    text.replace("k/s", "thousand").replace("M/s", "million").replace(" /s", "")
}

/// How many times as much: `3.9`, `40`, `130`.
fn times_text(ratio: f64) -> String {
    if ratio < 9.95 {
        return format!("{ratio:.1}");
    }
    let step = 10f64.powi(ratio.log10().floor() as i32 - 1);
    format!("{:.0}", (ratio / step).round() * step)
}

/// `4 to 6 MiB`, or `768 KiB to 1.5 MiB`.
fn size_range(ends: LevelCapacity) -> String {
    let sizes = [ends.low, ends.high].map(|size| {
        let scale = scale_for(size as f64, Unit::Bytes);
        (trimmed_decimal(size as f64 / scale.factor, 1), scale.symbol)
    });
    match sizes {
        [(low, unit), (high, other_unit)] if unit == other_unit => format!("{low} to {high} {unit}"),
        [(low, small), (high, large)] => format!("{low} {small} to {high} {large}"),
    }
}
