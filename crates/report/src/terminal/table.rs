//! The table of one area: a line for each metric, one for each line of a curve, and what has no number.

use std::collections::{BTreeMap, BTreeSet};

use kelvin_analysis::wording::{class_comparison, half_width_count};
use kelvin_analysis::{MetricResult, Outcome, RangeVerdict, Warning, WarningKind};
use kelvin_core::{Unit, Value};
use kelvin_stats::min_max;

use super::{Terminal, TextStyle};
use crate::scale::share_between;
use crate::sections::{
    CommonAxes, Curve, CurveSeries, MAX_NAMED, Matrix, MissingResults, PairDistance, Section, SectionEntry,
    without_area,
};
use crate::text::{clean, display_width, pad_left, pad_right, wrap};
use crate::{labels, units};

/// Widths of the columns after the label.
const MEASURED_WIDTH: usize = 18;
const CYCLES_WIDTH: usize = 6;
const PREDICTED_WIDTH: usize = 10;
const RATIO_WIDTH: usize = 5;
/// A word, and how far outside of the range: `slower 2.4`.
const VERDICT_WIDTH: usize = 10;

/// A small plot of a curve and the range of its ratios replace cycles, prediction and ratio of a row.
const SPARKLINE_WIDTH: usize = 12;

/// Minimum rows without a number for one reason that become one paragraph: as rows they would hide the others.
const MIN_SHARED_REASON: usize = 3;

/// Widest label column: with a wider one the eye loses the row.
const MAX_LABEL_WIDTH: usize = 48;

/// The columns for a width, and what the labels leave out.
#[derive(Clone, Copy)]
struct TableColumns<'a> {
    label: usize,
    gap: &'static str,
    common_axes: &'a CommonAxes,
}

impl<'a> TableColumns<'a> {
    fn new(width: usize, common_axes: &'a CommonAxes) -> Self {
        let gap = if width >= 100 { "   " } else { " " };
        let figures_width =
            MEASURED_WIDTH + CYCLES_WIDTH + PREDICTED_WIDTH + RATIO_WIDTH + VERDICT_WIDTH + 5 * gap.len();
        Self { label: (width - figures_width).min(MAX_LABEL_WIDTH), gap, common_axes }
    }

    /// Where the measured values end.
    fn measured_end(self) -> usize {
        self.label + self.gap.len() + MEASURED_WIDTH
    }

    /// Columns between the measured value and the verdict.
    fn middle(self) -> usize {
        CYCLES_WIDTH + PREDICTED_WIDTH + RATIO_WIDTH + 2 * self.gap.len()
    }
}

/// Warnings of one area: specific ones have numbers, those on precision alone have a letter, explained once.
#[derive(Default)]
struct Footnotes {
    numbered: Vec<String>,
    lettered: BTreeMap<(char, &'static str), usize>,
}

/// Letter and meaning of the warnings on precision; the page has the figures of each.
fn warning_letter(warning: &Warning) -> Option<(char, &'static str)> {
    match warning.kind {
        WarningKind::WideInterval { .. } => Some(('w', "its interval is wider than the target")),
        WarningKind::FewEffectiveSamples => Some(('s', "its samples are correlated: few are independent")),
        WarningKind::Disturbed => Some(('d', "few of its samples were undisturbed")),
        _ => None,
    }
}

impl Footnotes {
    /// The marks of a result's warnings: ` [1,2,w]`.
    fn marks(&mut self, results: &[&MetricResult]) -> String {
        let (mut numbers, mut letters) = (BTreeSet::new(), BTreeSet::new());
        for warning in results.iter().flat_map(|result| &result.warnings) {
            if let Some(letter) = warning_letter(warning) {
                *self.lettered.entry(letter).or_default() += 1;
                letters.insert(letter.0.to_string());
                continue;
            }
            let index = self.numbered.iter().position(|text| *text == warning.text);
            numbers.insert(1 + index.unwrap_or(self.numbered.len()));
            if index.is_none() {
                self.numbered.push(warning.text.clone());
            }
        }
        let marks: Vec<String> = numbers.iter().map(usize::to_string).chain(letters).collect();
        if marks.is_empty() { String::new() } else { format!(" [{}]", marks.join(",")) }
    }
}

impl Terminal {
    /// The table of an area; without a figure no table, but what has none and why.
    pub(super) fn section(&self, section: &Section<'_>) -> Vec<String> {
        let columns = TableColumns::new(self.width(), &section.common_axes);
        let requested_entries = || section.entries.iter().filter(|entry| !entry.only_input());
        let has_table = requested_entries().any(SectionEntry::has_figures);
        let title = clean(&section.title);
        let mut lines = if has_table { self.column_titles(&title, columns) } else { self.heading(&title) };
        lines.extend(section.common_axes.sentence().iter().flat_map(|sentence| self.paragraph(&clean(sentence))));
        let mut footnotes = Footnotes::default();
        let is_row = |entry: &&SectionEntry<'_>| matches!(entry, SectionEntry::Single(_));
        let mut missing = match has_table {
            true => MissingResults::group(requested_entries().filter(is_row).flat_map(SectionEntry::results)),
            // Nobody asked for an input: it matters only where there is nothing else.
            false if section.entries.iter().any(SectionEntry::has_figures) => {
                MissingResults::group(requested_entries().flat_map(SectionEntry::results))
            }
            false => MissingResults::group(section.entries.iter().flat_map(SectionEntry::results)),
        };
        missing.retain(|reason| !has_table || reason.results.len() >= MIN_SHARED_REASON);
        for entry in requested_entries().filter(|_| has_table) {
            lines.extend(match entry {
                SectionEntry::Single(result) if missing.iter().any(|reason| reason.includes(result)) => Vec::new(),
                SectionEntry::Single(result) => self.row(result, columns, &mut footnotes),
                SectionEntry::Curve(curve) => self.curve(curve, columns, &mut footnotes),
                SectionEntry::Matrix(matrix) => self.matrix(matrix, columns, &mut footnotes),
            });
        }
        let without_area = |reason| self.without_numbers(reason, &section.common_axes, without_area);
        lines.extend(missing.iter().flat_map(without_area));
        lines.extend(self.inputs(section));
        for (index, text) in footnotes.numbered.iter().enumerate() {
            lines.extend(self.hanging((TextStyle::Odd, &format!("[{}]", index + 1)), 5, text));
        }
        for ((letter, meaning), count) in &footnotes.lettered {
            let text = format!("{meaning} ({count} of this area)");
            lines.extend(self.hanging((TextStyle::Faint, &format!("[{letter}]")), 5, &text));
        }
        lines
    }

    /// Results without a number for one reason, in one paragraph.
    pub(super) fn without_numbers(
        &self,
        missing: &MissingResults<'_>,
        common_axes: &CommonAxes,
        name_of: fn(&str) -> &str,
    ) -> Vec<String> {
        let text = clean(&format!("{}: {}", missing.reason, missing.labels(common_axes, name_of)));
        self.hanging((word_paint(missing.word), missing.word), display_width(missing.word) + 1, &text)
    }

    fn column_titles(&self, title: &str, TableColumns { label, gap, .. }: TableColumns<'_>) -> Vec<String> {
        let titles = format!(
            "{:>MEASURED_WIDTH$}{gap}{:>CYCLES_WIDTH$}{gap}{:>PREDICTED_WIDTH$}{gap}{:>RATIO_WIDTH$}{gap}verdict",
            "measured", "cycles", "predicted", "ratio"
        );
        // A long title is above the column titles, a short one in their line.
        if display_width(title) > label {
            let titles = self.paint(TextStyle::Faint, &format!("{:label$}{gap}{titles}", ""));
            return vec![String::new(), self.paint(TextStyle::Title, title), titles];
        }
        let title = self.paint(TextStyle::Title, &pad_right(title, label));
        vec![String::new(), format!("{title}{gap}{}", self.paint(TextStyle::Faint, &titles))]
    }

    fn row(&self, result: &MetricResult, columns: TableColumns<'_>, footnotes: &mut Footnotes) -> Vec<String> {
        let label = format!("{}{}", label(result, columns.common_axes), footnotes.marks(&[result]));
        let mut lines = self.figures(&label, result, columns);
        lines.extend(self.best(labels::best_span(&[result]), columns));
        lines
    }

    /// The figures of a result behind a label, or why there are none.
    fn figures(&self, label: &str, result: &MetricResult, columns: TableColumns<'_>) -> Vec<String> {
        let unit = result.metric.unit;
        let Outcome::Measured(summary) = &result.outcome else { return self.without_number(label, result, columns) };
        let predicted = result.prediction.as_ref().map(|prediction| units::value_text(prediction.value, unit));
        let (gap, cycles, predicted) = (columns.gap, units::cycles_text(result), predicted.unwrap_or_default());
        let ratio = result.ratio.map(units::ratio).unwrap_or_default();
        let middle =
            format!("{gap}{cycles:>CYCLES_WIDTH$}{gap}{predicted:>PREDICTED_WIDTH$}{gap}{ratio:>RATIO_WIDTH$}");
        let distance = half_width_count(result).map_or_else(String::new, |times| format!(" {times}"));
        let verdict = format!("{}{distance}", labels::verdict_word(result));
        let paint = match result.verdict {
            RangeVerdict::AsPredicted => TextStyle::Good,
            RangeVerdict::Above | RangeVerdict::Below => TextStyle::Odd,
            RangeVerdict::NotPredicted | RangeVerdict::NotMeasured => TextStyle::Faint,
        };
        let texts = [label, &units::measured_text(summary, unit), &middle];
        let mut lines = self.table_row(texts, (paint, &verdict), columns);
        // What is usual of the figure in its class is below its prediction: the two are judged apart.
        if let Some(text) = class_comparison::figure_class_text(result) {
            let is_odd = matches!(class_comparison::class_word(result), "slower" | "faster");
            let paint = if is_odd { TextStyle::Odd } else { TextStyle::Faint };
            lines.push(self.paint(paint, &pad_left(&text, self.width())));
        }
        lines
    }

    /// The best sample of a rate, below its median.
    fn best(&self, best: Option<String>, columns: TableColumns<'_>) -> Option<String> {
        Some(self.paint(TextStyle::Faint, &pad_left(&best?, columns.measured_end())))
    }

    /// Label, measured value, and what stands between that and the verdict; a label that leaves no room for the value gets a line of its own.
    fn table_row(
        &self,
        [label, value, middle]: [&str; 3],
        (paint, verdict): (TextStyle, &str),
        columns: TableColumns<'_>,
    ) -> Vec<String> {
        let value_end = columns.measured_end();
        let (mut lines, label) = own_line(label, display_width(label) + 1 + display_width(value) > value_end);
        let line = format!("{label}{}{middle}", pad_left(value, value_end - display_width(label)));
        lines.push(match verdict {
            "" => line.trim_end().to_owned(),
            word => format!("{line}{}{}", columns.gap, self.paint(paint, word)),
        });
        lines
    }

    fn without_number(&self, label: &str, result: &MetricResult, columns: TableColumns<'_>) -> Vec<String> {
        let Some((word, reason)) = labels::missing_reason(&result.outcome, result.metric.unit) else {
            return Vec::new();
        };
        let indent = columns.label + columns.gap.len();
        let (mut lines, label) = own_line(label, display_width(label) > columns.label);
        for (index, line) in wrap(&format!("{word}: {reason}"), self.width() - indent).iter().enumerate() {
            lines.push(match line.strip_prefix(word).filter(|_| index == 0) {
                Some(rest) => format!("{label:indent$}{}{rest}", self.paint(word_paint(word), word)),
                None => format!("{:indent$}{line}", ""),
            });
        }
        lines
    }

    fn curve(&self, curve: &Curve<'_>, columns: TableColumns<'_>, footnotes: &mut Footnotes) -> Vec<String> {
        let results: Vec<&MetricResult> = curve.results().collect();
        let marks = footnotes.marks(&results);
        let mut lines = vec![format!("{}{marks} over {}", short_id(&curve.metric.id), clean(&curve.axis.label))];
        for line in &curve.series {
            let text = |x: u64| units::axis_value(Value::Integer(x), curve.axis.scale);
            let (Some((first, _)), Some((last, _))) = (line.points.first(), line.points.last()) else { continue };
            let case_text = columns.common_axes.rest_text(curve.metric, &line.fixed);
            let label =
                if case_text.is_empty() { format!("{} to {}", text(*first), text(*last)) } else { clean(&case_text) };
            let line_results: Vec<&MetricResult> = line.points.iter().map(|(_, result)| *result).collect();
            lines.extend(self.span_of(&label, &sparkline(line), &line_results, columns));
            // A point without a figure is among the reasons below.
            for (x, result) in line.points.iter().filter(|(_, result)| result.outcome.summary().is_some()) {
                lines.extend(self.figures(&format!("    {}", text(*x)), result, columns));
            }
            if let Some(end) = line.growth_end {
                lines.extend(self.hanging((TextStyle::Faint, ""), 4, &labels::growth_end_text("", end)));
            }
        }
        lines.extend(self.missing_points(&results, columns.common_axes));
        lines
    }

    /// A matrix: its range in one line, the medians of CPUs by what they share, then the pairs, if the terminal has room for them.
    fn matrix(&self, matrix: &Matrix<'_>, columns: TableColumns<'_>, footnotes: &mut Footnotes) -> Vec<String> {
        let results: Vec<&MetricResult> = matrix.results().collect();
        if let [result] = results[..] {
            return self.row(result, columns, footnotes);
        }
        let marks = footnotes.marks(&results);
        let mut lines = vec![format!("{}{marks} over {}", short_id(&matrix.metric.id), clean(&matrix.axes_label()))];
        let count = labels::plural(results.len() as u64, "pair");
        let case_text = columns.common_axes.rest_text(matrix.metric, &matrix.fixed);
        let label = if case_text.is_empty() { count } else { format!("{} ({count})", clean(&case_text)) };
        lines.extend(self.span_of(&label, "", &results, columns));
        for PairDistance { level, pairs, median } in &matrix.distances {
            let label = format!("    {level} ({})", labels::plural(*pairs as u64, "pair"));
            let value = units::value_text(*median, matrix.metric.unit);
            lines.extend(self.table_row([&label, &value, ""], (TextStyle::Faint, ""), columns));
        }
        lines.extend(grid(matrix, self.width()));
        lines.extend(self.missing_points(&results, columns.common_axes));
        lines
    }

    /// Several results in one line: from the lowest to the highest, with their ratios to predictions.
    fn span_of(&self, label: &str, plot: &str, results: &[&MetricResult], columns: TableColumns<'_>) -> Vec<String> {
        let headlines = results.iter().filter_map(|result| Some(result.outcome.summary()?.headline));
        let Some((low, high)) = min_max(headlines) else { return Vec::new() };
        let ratios = labels::ratio_range(results, "-").unwrap_or_default();
        let middle = columns.middle() - SPARKLINE_WIDTH;
        let middle = format!("{}{plot:SPARKLINE_WIDTH$}{ratios:>middle$}", columns.gap);
        let verdict = match labels::gap_counts(results) {
            Some(gaps) => (TextStyle::Odd, gaps),
            None if results.iter().any(|result| result.verdict == RangeVerdict::AsPredicted) => {
                (TextStyle::Good, "expected".into())
            }
            None => (TextStyle::Faint, String::new()),
        };
        let texts = [&format!("  {label}"), &units::span(low, high, results[0].metric.unit), middle.as_str()];
        let mut lines = self.table_row(texts, (verdict.0, &verdict.1), columns);
        lines.extend(self.best(labels::best_span(results), columns));
        lines
    }

    /// The points of a curve, or pairs of a matrix, without a number, grouped by reason.
    pub(super) fn missing_points(&self, results: &[&MetricResult], common_axes: &CommonAxes) -> Vec<String> {
        let mut lines = Vec::new();
        for MissingResults { word, reason, results } in MissingResults::group(results.iter().copied()) {
            let cases = results.iter().map(|result| common_axes.rest_text(&result.metric, &result.case));
            let cases_text = match results.len() <= MAX_NAMED {
                true => cases.collect::<Vec<_>>().join("; "),
                false => format!("{} points", results.len()),
            };
            let mark = format!("  {word}");
            lines.extend(self.hanging(
                (word_paint(word), &mark),
                display_width(&mark) + 1,
                &format!("{cases_text}: {reason}"),
            ));
        }
        lines
    }

    /// Metrics measured only as inputs of predictions, in one paragraph.
    fn inputs(&self, section: &Section<'_>) -> Vec<String> {
        let results = section.entries.iter().filter(|entry| entry.only_input()).flat_map(SectionEntry::results);
        let input = |result: &MetricResult| {
            let value = units::measured_text(result.outcome.summary()?, result.metric.unit);
            Some(format!("{} {value}", label(result, &section.common_axes)))
        };
        match results.filter_map(input).collect::<Vec<_>>().join("; ") {
            inputs if inputs.is_empty() => Vec::new(),
            inputs => self.paragraph(&format!("measured briefly, only as inputs of predictions: {inputs}")),
        }
    }
}

/// The colour of the word for a missing number.
fn word_paint(word: &str) -> TextStyle {
    if matches!(word, "failed" | "invalid") { TextStyle::Bad } else { TextStyle::Odd }
}

/// A label with a line of its own where it is long, and what is left of it for the line of the figures.
fn own_line(label: &str, is_long: bool) -> (Vec<String>, &str) {
    if is_long { (vec![label.to_owned()], "") } else { (Vec::new(), label) }
}

/// The id without its area, which is in the table's title.
fn short_id(id: &str) -> String {
    clean(without_area(id))
}

fn label(result: &MetricResult, common_axes: &CommonAxes) -> String {
    let case = common_axes.rest_text(&result.metric, &result.case);
    let id = short_id(&result.metric.id);
    if case.is_empty() { id } else { clean(&format!("{id} {case}")) }
}

/// A matrix as lines of text, rows from, columns to, in one unit; nothing if too wide.
fn grid(matrix: &Matrix<'_>, width: usize) -> Vec<String> {
    let value = |result: &MetricResult| Some(result.outcome.summary()?.headline);
    let Some((_, largest)) = min_max(matrix.results().filter_map(value)) else { return Vec::new() };
    let scale = units::scale_for(largest, matrix.metric.unit);
    let names: Vec<String> = matrix.rows.names.iter().map(|name| clean(name)).collect();
    let text = |from: usize, to: usize| {
        let cell = matrix.cells.iter().find(|cell| (cell.row, cell.column) == (from, to));
        cell.and_then(|cell| value(cell.result))
            .map_or("-".into(), |value| units::value_text(value / scale.factor, Unit::Ratio))
    };
    let rows: Vec<Vec<String>> =
        (0..names.len()).map(|from| (0..names.len()).map(|to| text(from, to)).collect()).collect();
    let cell_width = rows.iter().flatten().chain(&names).map(|cell| display_width(cell)).max().unwrap_or(0) + 2;
    let head_width =
        names.iter().map(|name| display_width(name)).max().unwrap_or(0).max(display_width(scale.symbol)) + 4;
    if head_width + names.len() * cell_width > width || !largest.is_finite() {
        return Vec::new();
    }
    let line = |head: &str, cells: &[String]| {
        let cells: String = cells.iter().map(|cell| format!("{cell:>cell_width$}")).collect();
        format!("{head:>head_width$}{cells}")
    };
    let body = names.iter().zip(&rows).map(|(name, cells)| line(name, cells));
    std::iter::once(line(scale.symbol, &names)).chain(body).collect()
}

/// A curve in at most [`SPARKLINE_WIDTH`] characters: eight heights, logarithmic over more than a decade; a dot
/// for a point without a number.
fn sparkline(line: &CurveSeries<'_>) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let values: Vec<Option<f64>> =
        line.points.iter().map(|(_, result)| Some(result.outcome.summary()?.headline)).collect();
    let (low, high) = min_max(values.iter().flatten().copied()).unwrap_or_default();
    let height = |value: f64| {
        let share = share_between(value, (low, high), low > 0.0 && high / low > 10.0);
        BARS[if share.is_finite() { (share * 7.0).round() as usize } else { 0 }.min(7)]
    };
    let bar_count = values.len().min(SPARKLINE_WIDTH);
    let pick = |index: usize| if bar_count > 1 { index * (values.len() - 1) / (bar_count - 1) } else { 0 };
    (0..bar_count).map(|index| values[pick(index)].map_or('·', height)).collect()
}
