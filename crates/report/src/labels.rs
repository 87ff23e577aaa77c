//! The words of every format: areas, verdicts, severities, reasons.

use kelvin_analysis::wording::growth_end_place;
use kelvin_analysis::{
    Analysis, GrowthEnd, ImpossibleValue, Interval, IntervalKind, MetricResult, Outcome, RangeVerdict,
};
use kelvin_core::catalogue::PairPlacement;
use kelvin_core::catalogue::mem::{MemoryCpus, MemoryNodes};
use kelvin_core::catalogue::net::StreamDirection;
use kelvin_core::catalogue::os::{KernelService, TaskKind};
use kelvin_core::{
    Axis, Better, Canary, Case, ClockKind, Hazard, HeadlineSamples, IndirectSort, Metric, MissingFigures,
    MissingReason, OverviewFigure, PredictedRange, PredictionBasis, PredictionVerdict, RateRow, Run, RunHeader,
    RunStatus, Unit, UsualRange,
};
use kelvin_stats::min_max;

pub use kelvin_core::units::plural;

use crate::{Report, units};

/// The areas in the order of reports, with their titles.
const AREAS: [(&str, &str); 7] = [
    ("cpu", "CPU"),
    ("os", "Operating system services"),
    ("mem", "Memory"),
    ("file", "Files and disks"),
    ("net", "Network"),
    ("transfer", "File transfer"),
    ("load", "Server under load"),
];

/// The place of an area and its title, by its id; an unknown area comes last, and is its own title.
pub fn area(id: &str) -> (usize, String) {
    let place = AREAS.iter().position(|(area, _)| *area == id).unwrap_or(AREAS.len());
    (place, AREAS.get(place).map_or(id, |(_, title)| title).to_owned())
}

/// A measurement against its prediction, in one word.
pub use kelvin_analysis::wording::verdict_word;

/// Verdicts of figures outside their range, and what they are called behind a number of such figures.
pub(crate) const GAP_SIDES: [(&str, &str); 4] = [
    ("slower", "slower than predicted"),
    ("faster", "faster than predicted"),
    ("above", "above the prediction"),
    ("below", "below the prediction"),
];

/// Axes whose words name themselves. The words of others say little without them: `pages=huge`.
const SELF_NAMING_AXES: [Axis; 4] = [KernelService::AXIS, TaskKind::AXIS, PairPlacement::AXIS, StreamDirection::AXIS];
/// Axes whose words say how many of what they name: one, or all.
const QUANTITY_AXES: [Axis; 2] = [MemoryNodes::AXIS, MemoryCpus::AXIS];

/// The word of a case, as people write it: `null call`, `two CPUs`, `one node`; `None` where it says little without its axis.
pub(crate) fn word_text(metric: &Metric, axis: &str, word: &str) -> Option<String> {
    let axis = metric.axes().find(|candidate| candidate.name == *axis)?;
    let text = match word {
        _ if SELF_NAMING_AXES.contains(axis) => word.replace('_', " "),
        "one" if QUANTITY_AXES.contains(axis) => format!("{word} {}", axis.name.trim_end_matches('s')),
        _ if QUANTITY_AXES.contains(axis) => format!("{word} {}", axis.name),
        _ => return None,
    };
    Some(text.replace("cpu", "CPU"))
}

/// A case in a legend: `null call threads`, `pages=huge bytes=64 KiB`.
pub(crate) fn case_words(metric: &Metric, case: &Case) -> String {
    let word =
        |(axis, value): (&str, String)| word_text(metric, axis, &value).unwrap_or_else(|| format!("{axis}={value}"));
    units::case_pairs(metric, case).into_iter().map(word).collect::<Vec<_>>().join(" ")
}

/// That a line stops growing at its knee: `read stops growing at 16 of 128 CPUs`; without a name for a line alone.
pub(crate) fn growth_end_text(line: &str, end: &GrowthEnd) -> String {
    format!("{line} stops growing at {}", growth_end_place(end)).trim_start().to_owned()
}

/// Whether a verdict is a gap that needs an explanation.
pub fn is_gap(verdict: RangeVerdict) -> bool {
    matches!(verdict, RangeVerdict::Above | RangeVerdict::Below)
}

/// The best samples of those results in bytes per second of which more is better, from the lowest to the highest: `best 23.3 GB/s`,
/// `best 8.9 to 131 GB/s`.
///
/// A rate's median is what a program gets, its best what the machine can do: with the median alone, a simple tool that
/// keeps its best of many would seem to move more bytes than the machine can.
pub fn best_span(results: &[&MetricResult]) -> Option<String> {
    let is_rate = |metric: &Metric| metric.unit == Unit::BytesPerSecond && metric.better == Better::Higher;
    let rates = results.iter().filter(|result| is_rate(&result.metric));
    let (low, high) = min_max(rates.filter_map(|result| Some(result.outcome.summary()?.distribution.best)))?;
    Some(format!("best {}", units::span(low, high, Unit::BytesPerSecond)))
}

/// The ratios of results to their predictions, from the lowest to the highest; `None` where none has one.
pub(crate) fn ratio_range(results: &[&MetricResult], separator: &str) -> Option<String> {
    let (low, high) = min_max(results.iter().filter_map(|result| result.ratio))?;
    Some(match (units::ratio(low), units::ratio(high)) {
        (low, high) if low == high => low,
        (low, high) => format!("{low}{separator}{high}"),
    })
}

/// The verdicts of several results outside their ranges in one word: `3 slower`, `4 differ`; `None` where all are within.
pub(crate) fn gap_counts(results: &[&MetricResult]) -> Option<String> {
    let gaps = results.iter().filter(|result| is_gap(result.verdict));
    let gaps: Vec<&str> = gaps.map(|result| verdict_word(result)).collect();
    let first = gaps.first()?;
    let word = if gaps.iter().all(|word| word == first) { first } else { "differ" };
    Some(format!("{} {word}", gaps.len()))
}

/// Why a metric has no number: one or two words, and the reason.
pub fn missing_reason(outcome: &Outcome, unit: Unit) -> Option<(&'static str, String)> {
    Some(match outcome {
        Outcome::Measured(_) => return None,
        Outcome::NotKnown(summary) => {
            let share = units::share(summary.undisturbed_share);
            let as_found = units::figure_text(&summary.as_found, unit);
            ("not known", format!("only {share} of the samples were undisturbed, too few; as measured {as_found}"))
        }
        Outcome::Invalid(ImpossibleValue { value, bound, derivation, likely_cause, .. }) => {
            let [value, bound] = [value, bound].map(|value| units::value_text(*value, unit));
            let source = derivation.as_ref().map_or_else(String::new, |derivation| format!(", as {derivation}"));
            let reason = format!("{value} is beyond what is possible ({bound}{source}); likely cause: {likely_cause}");
            ("invalid", reason)
        }
        Outcome::Skipped(reason) => ("skipped", reason.to_string()),
        Outcome::Failed(reason) => ("failed", reason.clone()),
        Outcome::NotReached => ("not reached", "the run ended first".into()),
    })
}

/// Stable word for an outcome, for data.
pub fn status(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Measured(_) => "measured",
        Outcome::NotKnown(_) => "not_known",
        Outcome::Invalid(_) => "invalid",
        Outcome::Skipped(_) => "skipped",
        Outcome::Failed(_) => "failed",
        Outcome::NotReached => "not_reached",
    }
}

/// Which samples made a headline.
pub fn treatment(treatment: HeadlineSamples) -> &'static str {
    match treatment {
        HeadlineSamples::AsFound => "as measured",
        HeadlineSamples::Undisturbed => "undisturbed",
        HeadlineSamples::CycleNormalised => "undisturbed, normalised to the measured frequency",
    }
}

/// The basis of a prediction.
pub fn basis(basis: PredictionBasis) -> &'static str {
    match basis {
        PredictionBasis::Spec => "hardware specification",
        PredictionBasis::Derived => "derived from lower metrics of this run",
        PredictionBasis::Published => "published figures",
        PredictionBasis::ReferenceMachines => "the same on other machines",
    }
}

/// What a canary watches.
pub fn canary(canary: Canary) -> &'static str {
    match canary {
        Canary::Chain => "core frequency (dependent multiplies)",
        Canary::Block => "core throughput (independent adds)",
    }
}

/// The clock in words.
pub fn clock(kind: ClockKind) -> &'static str {
    match kind {
        ClockKind::Tsc => "invariant time-stamp counter",
        ClockKind::VirtualCounter => "virtual counter (cntvct_el0)",
        ClockKind::MonotonicRaw => "clock_gettime(CLOCK_MONOTONIC_RAW)",
        ClockKind::Scripted => "scripted",
        ClockKind::Foreign => "another program's, unknown",
    }
}

/// An interval in words: `95 % interval`, `range of rounds`.
pub fn interval(interval: Interval) -> String {
    match interval.kind {
        IntervalKind::Confidence => format!("{} interval", units::share(interval.level)),
        IntervalKind::Range => "range of the rounds, too few for an interval".into(),
    }
}

/// One line about a run: when, how long, which mode.
pub fn run_line(run: &Run) -> String {
    let RunHeader { id, started, settings, .. } = &run.header;
    if let Some(foreign) = &run.header.foreign {
        let program = kelvin_analysis::wording::compare::program_text(foreign);
        return format!("foreign run {id} of {started}, measured by {program}, not by kelvin");
    }
    let status = match &run.status {
        RunStatus::Complete => String::new(),
        RunStatus::Partial(reason) => format!("; PARTIAL: {reason}"),
    };
    let causes: f64 = run.explanations.iter().map(|explanation| explanation.seconds).sum();
    let causes = if causes > 0.0 { format!(", and {} for causes,", units::seconds(causes)) } else { String::new() };
    let (mode, time) = (settings.mode, units::seconds(run.seconds));
    let budget = budget_text(run.seconds, settings.budget_seconds);
    format!("run {id} started {started}, {mode} mode, took {time}{causes} {budget}{status}")
}

/// The program that measured a run: its version, and where they are known commit, target, C library and compiler.
pub fn program(header: &RunHeader) -> String {
    let Some(build) = &header.build else { return header.kelvin.clone() };
    let commit = build.commit.iter().map(|commit| format!(", commit {commit}")).collect::<String>();
    format!("{}{commit}, for {} ({}), by {}", header.kelvin, build.target, build.c_library, build.compiler)
}

/// Share of a budget by which a run may end late and still be within it.
const BUDGET_TOLERANCE: f64 = 1.05;

/// A budget, after the time that a run took: `of 2 min 30 s`, or that it was too short.
fn budget_text(duration: f64, budget: f64) -> String {
    let expected = units::seconds(budget);
    match duration > BUDGET_TOLERANCE * budget {
        false => format!("of {expected}"),
        true => format!("where {expected} were expected: its rounds took longer"),
    }
}

/// How much a run measured, in which time, and how quiet it was: `563 figures, 8 rounds, 2 min 24 s, 68 % undisturbed`.
pub fn run_extent(report: &Report<'_>) -> String {
    let run = report.run;
    let figures = report.analysis.results.iter().filter(|result| result.outcome.summary().is_some()).count() as u64;
    let mode = match run.header.settings.mode.as_str() {
        "default" => String::new(),
        mode => format!(", {mode}"),
    };
    let undisturbed_share = report.analysis.undisturbed_share.map(units::share);
    let undisturbed_text = undisturbed_share.map_or_else(String::new, |share| format!(", {share} undisturbed"));
    let (figures, rounds) = (plural(figures, "figure"), plural(run.header.settings.rounds.into(), "round"));
    format!("{figures}, {rounds}, {}{mode}{undisturbed_text}", units::seconds(run.seconds))
}

/// How precise the figures of a run are; nothing where none has an interval.
pub fn precision(analysis: &Analysis) -> Option<String> {
    let precision = analysis.overview.as_ref()?.precision?;
    let (median, p90) = (units::share(precision.median), units::share(precision.p90));
    Some(format!("another run within {median} for half of the figures, {p90} for 9 of 10"))
}

/// A time in seconds, to three digits.
pub fn time_text(seconds: f64) -> String {
    units::value_text(seconds * 1e9, Unit::Nanoseconds)
}

/// The range of a predicted time.
pub fn predicted_time_text(predicted: &PredictedRange) -> String {
    units::span(predicted.low * 1e9, predicted.high * 1e9, Unit::Nanoseconds)
}

/// What the range of a class is in a legend.
pub const CLASS_LABEL: &str = "its class";

/// The range of a time on the machines of its class.
pub fn class_time_text(class: &UsualRange) -> String {
    let span = units::span(class.low * 1e9, class.high * 1e9, Unit::Nanoseconds);
    format!("its class {span} ({})", plural(class.machines as u64, "machine"))
}

/// A figure of the first screen against its prediction, in one word; nothing without one.
pub fn prediction_word(verdict: PredictionVerdict) -> &'static str {
    match verdict {
        PredictionVerdict::Slower => "slower",
        PredictionVerdict::Faster => "faster",
        PredictionVerdict::AsPredicted => "expected",
        PredictionVerdict::NotCompared => "",
    }
}

/// The mark of a figure that is only as found.
pub(crate) const AS_FOUND_MARK: char = '◇';

/// What stands behind a figure that is not as predicted, or only as found. A word means the same for a time and a rate, where an arrow
/// would point the other way.
pub fn as_found_suffix(figure: &OverviewFigure) -> String {
    match figure.verdict {
        PredictionVerdict::Slower | PredictionVerdict::Faster => prediction_word(figure.verdict).to_owned(),
        PredictionVerdict::AsPredicted | PredictionVerdict::NotCompared => {
            figure.as_found.iter().map(|_| AS_FOUND_MARK).collect()
        }
    }
}

/// A figure of the first screen in words alone: `2.91 ns`, `not known, 3.4 ns as measured`.
pub fn figure(figure: &OverviewFigure) -> String {
    match &figure.as_found {
        Some(as_found) => format!("{}, {} as measured", figure.text, as_found.text),
        None => figure.text.clone(),
    }
}

/// Why rates of one thing have no figure, where none has one and all for one reason: `skipped: needs two CPUs`.
pub fn missing_rates(line: &RateRow) -> Option<String> {
    let first = &line.rates.first()?.figure;
    let has_same_reason = |figure: &OverviewFigure| {
        figure.drawn_value().is_none() && (&figure.text, &figure.missing_reason) == (&first.text, &first.missing_reason)
    };
    let reason =
        first.missing_reason.as_ref().filter(|_| line.rates.iter().all(|rate| has_same_reason(&rate.figure)))?;
    Some(format!("{}: {reason}", first.text))
}

/// What a figure is that is only as found, in a legend.
pub const AS_FOUND_LABEL: &str = "disturbed";

/// Metrics without a figure, named: `7 not known: net.rtt.tcp, os.process.fork_rss`. Of what was skipped, on purpose or for lack of
/// something, the tables have the details: it is counted.
pub fn missing_figure(missing: &MissingFigures) -> String {
    let reason = match missing.reason {
        MissingReason::Failed => "failed",
        MissingReason::Invalid => "invalid",
        MissingReason::NotKnown => "not known",
        MissingReason::NotReached => "not reached",
        MissingReason::Skipped => return format!("{} skipped", units::count(missing.figures as u64)),
    };
    let names: Vec<&str> = missing.metrics.iter().map(|id| id.as_str()).collect();
    format!("{} {reason}: {}", units::count(missing.figures as u64), names.join(", "))
}

/// The hazards of a run, the most severe first.
pub(crate) fn hazards(run: &Run) -> Vec<&Hazard> {
    let mut hazards: Vec<&Hazard> = run.header.hazards.iter().collect();
    hazards.indirect_sort_by_key(|hazard| std::cmp::Reverse(hazard.severity));
    hazards
}

/// The machine in one line: processor, CPUs, memory, kernel, hypervisor or container; unknown facts are left out.
pub fn machine_line(run: &Run) -> String {
    let machine = &run.header.machine;
    let allowed_cpus = machine.topology.allowed.get().map(Vec::len);
    let parts = [
        machine.cpu.model_name.get().cloned(),
        kelvin_analysis::wording::core_name(&machine.cpu),
        allowed_cpus.map(|cpus| format!("{cpus} CPU{}", if cpus == 1 { "" } else { "s" })),
        measured_kind(machine),
        machine.memory.total_bytes.get().map(|&total| units::value_text(total as f64, Unit::Bytes)),
        machine.kernel.release.get().map(|release| format!("Linux {release}")),
        machine.platform.hypervisor.get().and_then(|name| Some(format!("under {}", name.as_ref()?))),
        machine.platform.container.get().and_then(|name| Some(format!("in {}", name.as_ref()?))),
    ];
    match parts.into_iter().flatten().collect::<Vec<String>>() {
        parts if parts.is_empty() => format!("{} machine", machine.architecture),
        parts => parts.join(", "),
    }
}

/// The CPU that is measured and its kind, where kinds of cores differ: `measured on CPU 7 (P-core)`.
fn measured_kind(machine: &kelvin_core::Machine) -> Option<String> {
    let cpu = machine.cpu.number?;
    let kind = &machine.topology.kind_of(cpu)?.name;
    Some(format!("measured on CPU {cpu} ({kind})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measured_cpu_is_named_with_its_kind_where_kinds_differ() {
        let mut run = kelvin_analysis::testing::guest::guest_run();
        let kind = |name: &str, cpus: &[u32]| kelvin_core::CoreKind {
            name: name.into(),
            cpus: cpus.to_vec(),
            maximum_hz: None,
            capacity: None,
        };
        run.header.machine.cpu.number = Some(1);
        run.header.machine.topology.core_kinds = kelvin_core::Fact::known(Vec::new(), "a test");
        assert!(!machine_line(&run).contains("measured on"), "{}", machine_line(&run));
        let kinds = vec![kind("P-core", &[0]), kind("E-core", &[1])];
        run.header.machine.topology.core_kinds = kelvin_core::Fact::known(kinds, "a test");
        assert!(machine_line(&run).contains("2 CPUs, measured on CPU 1 (E-core), "), "{}", machine_line(&run));
    }

    #[test]
    fn contradicted_cpu_model_is_a_claim() {
        let mut run = kelvin_analysis::testing::guest::guest_run();
        let cpu = &mut run.header.machine.cpu;
        cpu.vendor = kelvin_core::Fact::known("GenuineIntel".into(), "a test");
        cpu.microarchitecture = kelvin_core::Fact::known("Rocket Lake".into(), "a test");
        cpu.flags = kelvin_core::Fact::known(vec!["avx512f".into()], "a test");
        assert!(machine_line(&run).contains("Processor, Rocket Lake, 2 CPUs"), "{}", machine_line(&run));
        let cpu = &mut run.header.machine.cpu;
        cpu.flags = kelvin_core::Fact::known(vec!["amx_tile".into()], "a test");
        let line = machine_line(&run);
        assert!(line.contains(", CPUID claims Rocket Lake but amx_tile contradicts it, "), "{line}");
    }

    #[test]
    fn overlong_run_names_both_times() {
        assert_eq!(budget_text(148.0, 150.0), "of 2 min 30 s");
        assert_eq!(budget_text(157.0, 150.0), "of 2 min 30 s");
        assert_eq!(budget_text(286.0, 60.0), "where 1 min 0 s were expected: its rounds took longer");
    }
}
