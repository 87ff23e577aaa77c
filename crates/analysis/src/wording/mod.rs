//! Everything that analysis says, in words.

pub mod class_comparison;
pub mod compare;
mod conclusions;
pub(crate) mod engines;
pub mod explanation;
pub(crate) mod findings;
pub mod hazards;
pub mod history;
pub(crate) mod load;
pub(crate) mod order;
pub(crate) mod overview;
pub(crate) mod sanity;
pub(crate) mod transfer;

use kelvin_core::catalogue::ModelContradiction;
use kelvin_core::units::{Quantity, percent, quantity, value_text, with_interval, without_cycles};
use kelvin_core::{Better, Cpu, Unit};

use crate::result::{Figure, MetricResult, Mode, PredictionGap, RangeVerdict, Summary};

pub(crate) use conclusions::{byte_call_title, claim, evidence, file_size_text};

/// What was measured: a value with its interval, or both modes of a bimodal value with their shares: `12.1 ns (67 %) or 118 ns
/// (33 %)`.
pub fn measured_text(summary: &Summary, unit: Unit) -> String {
    let mode = |mode: &Mode| format!("{} ({})", value_text(mode.center, unit), percent(mode.share));
    match summary.states() {
        [] => with_interval(summary.headline, summary.interval, unit).to_string(),
        states => states.iter().map(mode).collect::<Vec<_>>().join(" or "),
    }
}

/// The generation of a processor's core; where its flags contradict the model that it states, that model is a claim.
pub fn core_name(cpu: &Cpu) -> Option<String> {
    match ModelContradiction::from_cpu(cpu) {
        Some(ModelContradiction { claimed, flag, .. }) => {
            Some(format!("CPUID claims {claimed} but {flag} contradicts it"))
        }
        None => cpu.microarchitecture.get().cloned(),
    }
}

/// A result against its prediction in one word: for speeds what a user feels (`slower`), for other quantities the side of the range; the same
/// word for a time and a rate. Empty without a prediction.
pub fn verdict_word(result: &MetricResult) -> &'static str {
    let metric = &result.metric;
    let is_speed =
        matches!(metric.unit, Unit::Nanoseconds | Unit::Cycles | Unit::Hertz | Unit::BytesPerSecond | Unit::PerSecond);
    match (result.verdict, metric.better) {
        (RangeVerdict::AsPredicted, _) => "expected",
        (RangeVerdict::Above, Better::Lower) | (RangeVerdict::Below, Better::Higher) if is_speed => "slower",
        (RangeVerdict::Above, Better::Higher) | (RangeVerdict::Below, Better::Lower) if is_speed => "faster",
        (RangeVerdict::Above, _) => "above",
        (RangeVerdict::Below, _) => "below",
        (RangeVerdict::NotPredicted | RangeVerdict::NotMeasured, _) => "",
    }
}

/// The same in a sentence: `slower than predicted`, `above its prediction`.
pub(crate) fn against_prediction(result: &MetricResult) -> String {
    match verdict_word(result) {
        speed @ ("slower" | "faster") => format!("{speed} than predicted"),
        side => format!("{side} its prediction"),
    }
}

/// What explains a gap between measured and predicted, by what was shown; `None` where no cause was tried.
pub fn explanation(gap: &PredictionGap) -> Option<String> {
    findings::gap_explanation(gap)
}

/// How far outside its predicted range a result lies, where it does: `outside by 2.4 times its half-width`.
pub fn range_distance(result: &MetricResult) -> Option<String> {
    is_gap(result).then(|| Some(format!("outside by {} times its half-width", half_width_count(result)?))).flatten()
}

/// The same as a number for a column: `2.4`, `12`; none where it rounds to nothing.
pub fn half_width_count(result: &MetricResult) -> Option<String> {
    let outside = result.outside.filter(|outside| *outside >= 0.05 && is_gap(result))?;
    Some(if outside < 9.95 { format!("{outside:.1}") } else { format!("{outside:.0}") })
}

fn is_gap(result: &MetricResult) -> bool {
    matches!(result.verdict, RangeVerdict::Above | RangeVerdict::Below)
}

/// A figure with its interval.
pub fn figure_text(figure: &Figure, unit: Unit) -> Quantity {
    with_interval(figure.value, figure.interval, unit)
}

/// The core cycles of a result with the digits that its interval carries, for a column named cycles: `245`, `196k`;
/// empty where there are none.
pub fn cycles_text(result: &MetricResult) -> String {
    let (Some(cycles), Some(summary)) = (result.cycles, result.outcome.summary()) else { return String::new() };
    let half = summary.interval.map(|interval| interval.half_width() * cycles / summary.headline);
    without_cycles(&quantity(cycles, half, Unit::Cycles).short())
}
