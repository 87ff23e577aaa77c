//! OpenMetrics text, written so that the older text format of Prometheus is satisfied too: node_exporter's textfile collector reads that.
//!
//! Where the two differ, what both accept is written: gauges only (the older one knows no type `info`), no quotation mark in a help
//! text, no timestamps (the collector refuses them; the time of the run is a metric of its own).
//!
//! Sources: OpenMetrics 1.0 (prometheus.io/docs/specs/om/open_metrics_spec), the text format of Prometheus
//! (prometheus.io/docs/instrumenting/exposition_formats), its advice on names (prometheus.io/docs/practices/naming).

use std::io;

use jiff::Timestamp;
use kelvin_analysis::IntervalKind;
use kelvin_core::text::escape_invisible;
use kelvin_core::{Better, Case, Metric, Name, RangeVerdict, RunStatus, Unit};

use super::{ExportedFigure, exported_figures};
use crate::text::grouped;
use crate::{Render, Report, labels};

/// The figures of a run as metrics of Prometheus.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenMetrics;

impl Render for OpenMetrics {
    fn render(&self, report: &Report<'_>, out: &mut dyn io::Write) -> io::Result<()> {
        write_families(&report_samples(report), out)
    }
}

/// What is written of a run: the run itself, then its figures.
pub(super) fn report_samples(report: &Report<'_>) -> Vec<Sample> {
    let figures = exported_figures(report).0;
    run_samples(report).into_iter().chain(figures.iter().flat_map(figure_samples)).collect()
}

/// Writes samples by their names, of which none must come twice, and the end.
pub(crate) fn write_families(samples: &[Sample], out: &mut dyn io::Write) -> io::Result<()> {
    let families = grouped(samples.iter().map(|sample| (sample.name.as_str(), sample)));
    families.iter().try_for_each(|(name, samples)| write_family(name, samples, out))?;
    writeln!(out, "# EOF")
}

/// Maximum tags of a run that become labels: Prometheus limits the labels of a sample (label_limit). One label counts the rest.
const MAX_TAGS: usize = 32;

/// Labels of a sample, in their order.
pub(crate) type Labels = Vec<(String, String)>;

/// A sample of the metric `kelvin_STEM_UNIT`.
pub(crate) struct Sample {
    name: String,
    unit: &'static str,
    help: String,
    labels: Labels,
    value: f64,
}

pub(crate) fn sample(
    stem: &str,
    unit: &'static str,
    help: impl Into<String>,
    (labels, value): (Labels, f64),
) -> Sample {
    let separator = if unit.is_empty() { "" } else { "_" };
    Sample { name: format!("kelvin_{stem}{separator}{unit}"), unit, help: help.into(), labels, value }
}

/// Writes the samples of a name, of which the first has the help text.
fn write_family(name: &str, samples: &[&Sample], out: &mut dyn io::Write) -> io::Result<()> {
    let Sample { unit, help, .. } = samples[0];
    writeln!(out, "# HELP {name} {}", escape_help(help))?;
    writeln!(out, "# TYPE {name} gauge")?;
    if !unit.is_empty() {
        writeln!(out, "# UNIT {name} {unit}")?;
    }
    for Sample { labels, value, .. } in samples {
        let pairs = labels.iter().map(|(label, text)| format!("{label}=\"{}\"", escape_label_value(text)));
        let pairs = pairs.collect::<Vec<String>>().join(",");
        let label_set = if pairs.is_empty() { pairs } else { format!("{{{pairs}}}") };
        writeln!(out, "{name}{label_set} {value:?}")?;
    }
    Ok(())
}

fn run_samples(report: &Report<'_>) -> Vec<Sample> {
    let (run, header) = (report.run, &report.run.header);
    let status = if run.status == RunStatus::Complete { "complete" } else { "partial" };
    let unknown = || "unknown".to_owned();
    let labels = [
        ("run", header.id.clone()),
        ("started", header.started.clone()),
        ("mode", header.settings.mode.to_string()),
        ("status", status.into()),
        ("kelvin", header.kelvin.clone()),
        ("machine", header.machine.identity.clone()),
        ("architecture", header.machine.architecture.to_string()),
        ("cpu", header.machine.cpu.model_name.get().cloned().unwrap_or_else(unknown)),
        ("kernel", header.machine.kernel.release.get().cloned().unwrap_or_else(unknown)),
    ];
    let mut labels = labels.map(|(name, value)| (name.to_owned(), value)).to_vec();
    let tags = &run.labels.tags;
    labels.extend(tags.iter().take(MAX_TAGS).map(|(name, value)| (label_name(&format!("tag_{name}")), value.clone())));
    if let Some(omitted_count) = tags.len().checked_sub(MAX_TAGS).filter(|&count| count > 0) {
        labels.push(("tags_left_out".to_owned(), omitted_count.to_string()));
    }
    let mut samples = vec![sample("run_info", "", "The run and the machine that these figures are of.", (labels, 1.0))];
    if let Some(seconds) = unix_seconds(&header.started) {
        samples.push(sample("run_start_time", "seconds", "When the run began, since 1970.", (vec![], seconds)));
    }
    samples.push(sample("run_duration", "seconds", "How long the run took.", (vec![], run.seconds)));
    let outcomes = report.analysis.results.iter().map(|result| (labels::status(&result.outcome), result));
    let help = "Figures of the run by what became of them; only measured ones have a value.";
    samples.extend(grouped(outcomes).into_iter().map(|(outcome, figures)| {
        sample("run_figures", "", help, (vec![("outcome".into(), outcome.into())], figures.len() as f64))
    }));
    samples
}

/// The seconds since 1970 of a time of RFC 3339.
pub(super) fn unix_seconds(time: &str) -> Option<f64> {
    time.parse::<Timestamp>().ok().map(|time| time.as_microsecond() as f64 / 1e6)
}

fn figure_samples(figure: &ExportedFigure<'_>) -> Vec<Sample> {
    let (metric, summary) = (&figure.result.metric, figure.summary);
    let (unit, to_base) = base_unit(metric.unit);
    let stem = metric.id.replace(|c: char| !c.is_ascii_alphanumeric(), "_");
    let labels = series_labels(metric.id, &figure.result.case);
    let help_text = |subject: &str| format!("{subject} {}", metric_help(metric));
    let mut samples = vec![sample(&stem, unit, metric_help(metric), (labels.clone(), to_base(summary.headline)))];
    if let Some(interval) = summary.interval {
        let mut labels = labels.clone();
        let (kind, low, high) = match interval.kind {
            IntervalKind::Confidence => {
                ("confidence", "Lower end of the 95 % interval of:", "Upper end of the 95 % interval of:")
            }
            IntervalKind::Range => ("range", "Lowest round of:", "Highest round of:"),
        };
        labels.push(("interval".into(), kind.into()));
        samples.push(sample(&format!("{stem}_lower"), unit, help_text(low), (labels.clone(), to_base(interval.lower))));
        samples.push(sample(&format!("{stem}_upper"), unit, help_text(high), (labels, to_base(interval.upper))));
    }
    if let Some(prediction) = &figure.result.prediction {
        let ends = [
            ("", "Predicted value of:", prediction.value),
            ("_lower", "Lower end of the predicted range of:", prediction.low),
            ("_upper", "Upper end of the predicted range of:", prediction.high),
        ];
        samples.extend(ends.map(|(end, subject, value)| {
            let value = (labels.clone(), to_base(value));
            sample(&format!("{stem}_predicted{end}"), unit, help_text(subject), value)
        }));
    }
    samples.extend(prediction_samples(figure, &labels));
    samples.push(sample(&format!("{stem}_rounds"), "", help_text("Rounds of:"), (labels, f64::from(summary.rounds))));
    samples
}

/// A figure against its prediction, under names that all metrics share: one rule or panel serves all of them.
fn prediction_samples(figure: &ExportedFigure<'_>, labels: &Labels) -> Vec<Sample> {
    let is_outside = match figure.result.verdict {
        RangeVerdict::AsPredicted => false,
        RangeVerdict::Above | RangeVerdict::Below => true,
        RangeVerdict::NotPredicted | RangeVerdict::NotMeasured => return Vec::new(),
    };
    let help = "Whether the interval of a figure lies outside of its predicted range.";
    let outside = (labels.clone(), f64::from(u8::from(is_outside)));
    let ratio = figure.result.ratio.map(|ratio| {
        sample("figure_over_prediction", "ratio", "A figure over its predicted value.", (labels.clone(), ratio))
    });
    std::iter::once(sample("figure_outside_prediction", "", help, outside)).chain(ratio).collect()
}

/// The id of the metric, by which it is explained, its case as a whole, and a label for each axis of it. A metric without parameters has
/// none of the latter: an empty label is none.
pub(crate) fn series_labels(metric: Name, case: &Case) -> Labels {
    let axes = case.iter().map(|(axis, value)| (label_name(&axis), value.to_string()));
    let whole = (!case.is_empty()).then(|| ("case".to_owned(), case.to_string()));
    std::iter::once(("metric".to_owned(), metric.to_string())).chain(whole).chain(axes).collect()
}

/// What a metric is, with the direction that is better.
fn metric_help(metric: &Metric) -> String {
    let better = match metric.better {
        Better::Lower => "; lower is better",
        Better::Higher => "; higher is better",
        Better::Neither => "",
    };
    format!("{}{better}.", metric.summary.trim_end_matches('.'))
}

/// The unit as the end of a name, and how a value becomes one of it: base units of Prometheus are seconds and bytes.
fn base_unit(unit: Unit) -> (&'static str, fn(f64) -> f64) {
    match unit {
        // Divided, since a billionth is no exact number.
        Unit::Nanoseconds => ("seconds", |value| value / 1e9),
        // A count has none there.
        Unit::Count => ("", |value| value),
        unit => (unit.name(), |value| value),
    }
}

/// Names of labels that others use: those of every figure and of a fleet, those that Prometheus adds to what it reads.
const RESERVED_LABELS: [&str; 7] = ["metric", "case", "interval", "group", "host", "job", "instance"];

/// The name of an axis as a label. One that is no label, or is taken, is spelled in the way that Prometheus spells foreign names
/// (`U__`, an underscore twice, other characters by their number), so that no two axes become one label.
pub(crate) fn label_name(axis: &str) -> String {
    let is_label =
        axis.starts_with(|c: char| c.is_ascii_lowercase()) && !axis.contains('.') && !RESERVED_LABELS.contains(&axis);
    if is_label {
        return axis.to_owned();
    }
    let spell = |c: char| match c {
        '_' => "__".to_owned(),
        c if c.is_ascii_alphanumeric() => c.to_string(),
        c => format!("_{:x}_", u32::from(c)),
    };
    std::iter::once("U__".to_owned()).chain(axis.chars().map(spell)).collect()
}

/// The inside of a label's quotation marks.
fn escape_label_value(text: &str) -> String {
    escape_invisible(text).replace('\\', r"\\").replace('"', r#"\""#)
}

/// A help text: the older format knows no escape of a quotation mark, the newer one wants it escaped, so there is none.
fn escape_help(text: &str) -> String {
    escape_invisible(text).replace('\\', r"\\").replace('"', "'")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axis_labels_are_unique() {
        assert_eq!(label_name("call"), "call");
        assert_eq!(label_name("a_2e_b"), "a_2e_b");
        assert_eq!(label_name("a.b"), "U__a_2e_b");
        assert_eq!(label_name("metric"), "U__metric");
        assert_eq!([label_name("tag_by"), label_name("tag_a.b")], ["tag_by", "U__tag__a_2e_b"]);
        assert_eq!(label_name("_x"), "U____x");
        assert_eq!(label_name("4k"), "U__4k");
    }

    #[test]
    fn texts_are_escaped_for_both_formats_of_prometheus() {
        let text = "a\"b\\c\nd";
        assert_eq!(escape_label_value(text), r#"a\"b\\c\\nd"#);
        assert_eq!(escape_help(text), r"a'b\\c\\nd");
    }

    #[test]
    fn durations_in_seconds_round_trip() {
        let (unit, to_base) = base_unit(Unit::Nanoseconds);
        assert_eq!((unit, format!("{:?}", to_base(61.2))), ("seconds", "6.12e-8".into()));
    }
}
