//! Texts that several rules share, and paths to those of comparisons, explanations and histories.

use kelvin_core::catalogue::ModelContradiction;
use kelvin_core::catalogue::os::{HandoffMechanism, SWITCH_CROSS_CPU, WORKING_CPUS};
use kelvin_core::units::{Quantity, case, quantity, with_interval, without_cycles};

use crate::prelude::*;

pub use crate::findings::gap_explanation;
pub use crate::{class_comparison, compare, explanation, history};

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

/// How far outside its predicted range a result lies, where it does: `outside by 2.4 times its half-width`.
pub fn range_distance(result: &MetricResult) -> Option<String> {
    is_gap(result).then(|| Some(format!("outside by {} times its half-width", half_width_count(result)?))).flatten()
}

/// That distance as a number for a column: `2.4`, `12`; none where it rounds to nothing.
pub fn half_width_count(result: &MetricResult) -> Option<String> {
    let half_widths = result.log_distance.filter(|outside| *outside >= 0.05 && is_gap(result))?;
    Some(if half_widths < 9.95 { format!("{half_widths:.1}") } else { format!("{half_widths:.0}") })
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
    let half_width = summary.interval.map(|interval| interval.half_width() * cycles / summary.headline);
    without_cycles(&quantity(cycles, half_width, Unit::Cycles).value_and_unit())
}

/// A metric and its case: `mem.latency pages=base bytes=8 MiB`.
pub(crate) fn metric_and_case(metric: &Metric, point: &Case) -> String {
    let case = case(metric, point);
    if case.is_empty() { metric.id.to_string() } else { format!("{} {case}", metric.id) }
}

/// The text with a capital first letter.
pub fn capitalise(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// `3.61 times as long (95 %: 3.40 to 3.80)`.
pub(crate) fn ratio_text(ratio: &Estimate, degree: &str) -> String {
    let [value, low, high] = [ratio.value, ratio.low, ratio.high].map(number);
    format!("{value} times {degree} ({}: {low} to {high})", interval_label(ratio))
}

/// What the two ends of an estimate are.
pub(crate) fn interval_label(estimate: &Estimate) -> &'static str {
    if estimate.is_range { "range" } else { "95 %" }
}

/// An estimate whose range is named, where an interval goes without: `2.3 (2.1 to 2.5)`, `2.3 (range: 2.1 to 2.5)`.
pub(crate) fn span_text(estimate: &Estimate, text: impl Fn(f64) -> String) -> String {
    let [value, low, high] = [estimate.value, estimate.low, estimate.high].map(text);
    format!("{value} ({}{low} to {high})", if estimate.is_range { "range: " } else { "" })
}

/// `12 % (11 % to 13 %)`.
pub(crate) fn share_text(share: &Estimate) -> String {
    span_text(share, percent)
}

pub(crate) fn amount_text(side: &MetricValue) -> String {
    value_text(side.value, side.unit)
}

/// `1 stream`, `4 streams`.
pub(crate) fn counted_text(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// `read`, `read and copy`, `read, write and copy`.
pub fn list_text<T: AsRef<str>>(names: &[T]) -> String {
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    match names.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} and {last}", rest.join(", ")),
        _ => names.concat(),
    }
}

/// The knee of a curve among all numbers of it: `16 of 128 CPUs`.
pub fn growth_end_place(end: &GrowthEnd) -> String {
    let noun = if end.axis == WORKING_CPUS.name { "CPUs" } else { end.axis.as_str() };
    format!("{} of {} {noun}", end.at, end.max)
}

/// That idle CPUs halt.
const IDLE_STATES_HAZARD: &str = "idle_states";

/// What it was measured to cost, in words; nothing where no figure of the run is that cost alone.
pub fn measured_cost(hazard: &Name, analysis: &Analysis) -> Option<String> {
    if *hazard != *IDLE_STATES_HAZARD {
        return None;
    }
    let result = select(&SWITCH_CROSS_CPU).with_word(HandoffMechanism::Pipe.point()).find(&analysis.results)?;
    let summary = result.outcome.summary()?;
    let time = brief_value(summary.headline, None, SWITCH_CROSS_CPU.unit);
    Some(format!("measured in this run: {time} from passing a token until a process on another CPU has it"))
}

#[cfg(test)]
mod tests {
    use kelvin_core::Case;

    use super::*;
    use crate::analyse;
    use crate::testing::{add_scalars, empty_run};

    #[test]
    fn idle_states_cost_is_remote_wake_up() {
        let mut run = empty_run(&[SWITCH_CROSS_CPU]);
        let hazard = Name::new(IDLE_STATES_HAZARD);
        assert_eq!(measured_cost(&hazard, &analyse(&run)), None, "nothing was measured");
        let pipe = HandoffMechanism::Pipe.point();
        add_scalars(&mut run, &SWITCH_CROSS_CPU, Case::new().with_word(pipe), &[29_000.0; 8]);
        let expected = "measured in this run: 29.0 µs from passing a token until a process on another CPU has it";
        assert_eq!(measured_cost(&hazard, &analyse(&run)).as_deref(), Some(expected));
        assert_eq!(measured_cost(&Name::new("smt"), &analyse(&run)), None);
    }
}
