//! The table of one area: a line for each metric, one for each line of a curve, and what has no number.

use std::collections::BTreeMap;
use std::io;

use kelvin_analysis::wording::{class_comparison, half_width_count};
use kelvin_analysis::{MetricResult, Outcome, RangeVerdict, Warning};
use kelvin_core::{Unit, Value};

use super::{Terminal, TextStyle};
use crate::sections::{
    CommonAxes, Curve, CurveSeries, MAX_NAMED, Matrix, MissingResults, Section, SectionEntry, without_area,
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

/// Widest label column: with a wider one the eye loses the row.
const MAX_LABEL_WIDTH: usize = 48;

/// The columns for a width, and what the labels leave out.
#[derive(Clone, Copy)]
struct TableColumns<'a> {
    label: usize,
    gap: &'static str,
    alike: &'a CommonAxes,
}

impl<'a> TableColumns<'a> {
    fn new(width: usize, alike: &'a CommonAxes) -> Self {
        let gap = if width >= 100 { "   " } else { " " };
        let rest = MEASURED_WIDTH + CYCLES_WIDTH + PREDICTED_WIDTH + RATIO_WIDTH + VERDICT_WIDTH + 5 * gap.len();
        Self { label: (width - rest).min(MAX_LABEL_WIDTH), gap, alike }
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
    lettered: BTreeMap<char, usize>,
}

/// Letter and meaning of the warnings on precision; the page has the figures of each.
fn warning_letter(warning: &Warning) -> Option<char> {
    match warning {
        Warning::Wide { .. } => Some('w'),
        Warning::FewEffectiveSamples { .. } => Some('s'),
        Warning::Disturbed { .. } => Some('d'),
        _ => None,
    }
}

fn letter_meaning(letter: char) -> &'static str {
    match letter {
        'w' => "its interval is wider than the target",
        's' => "its samples are correlated: few are independent",
        _ => "few of its samples were undisturbed",
    }
}

impl Footnotes {
    /// The marks of a result's warnings: ` [1,2,w]`.
    fn marks(&mut self, results: &[&MetricResult]) -> String {
        let mut numbers: Vec<usize> = Vec::new();
        let mut letters: Vec<char> = Vec::new();
        for warning in results.iter().flat_map(|result| &result.warnings) {
            if let Some(letter) = warning_letter(warning) {
                *self.lettered.entry(letter).or_default() += 1;
                letters.push(letter);
                continue;
            }
            let known = self.numbered.iter().position(|text| text == warning.text());
            let index = known.unwrap_or_else(|| {
                self.numbered.push(warning.text().to_owned());
                self.numbered.len() - 1
            });
            numbers.push(index + 1);
        }
        numbers.sort_unstable();
        numbers.dedup();
        letters.sort_unstable();
        letters.dedup();
        let marks: Vec<String> =
            numbers.iter().map(usize::to_string).chain(letters.iter().map(char::to_string)).collect();
        if marks.is_empty() { String::new() } else { format!(" [{}]", marks.join(",")) }
    }
}

impl Terminal {
    /// Writes the table of an area; without a figure no table, but what has none and why.
    pub(super) fn section(&self, section: &Section<'_>, out: &mut dyn io::Write) -> io::Result<()> {
        let columns = TableColumns::new(self.width(), &section.common_axes);
        let asked = || section.entries.iter().filter(|entry| !entry.only_input());
        let has_table = asked().any(SectionEntry::has_figures);
        if has_table {
            self.column_titles(&clean(&section.title), columns, out)?;
        } else {
            self.heading(out, &clean(&section.title))?;
        }
        if let Some(alike) = section.common_axes.sentence() {
            self.hanging_paragraph(out, (TextStyle::Faint, ""), 0, &clean(&alike))?;
        }
        let mut footnotes = Footnotes::default();
        let missing = match has_table {
            true => shared_reasons(asked()),
            // Nobody asked for an input: it matters only where there is nothing else.
            false if section.entries.iter().any(SectionEntry::has_figures) => {
                MissingResults::group(asked().flat_map(SectionEntry::results))
            }
            false => MissingResults::group(section.entries.iter().flat_map(SectionEntry::results)),
        };
        for entry in asked().filter(|_| has_table) {
            match entry {
                SectionEntry::Single(result) if missing.iter().any(|reason| reason.includes(result)) => {}
                SectionEntry::Single(result) => self.row(result, columns, &mut footnotes, out)?,
                SectionEntry::Curve(curve) => self.curve(curve, columns, &mut footnotes, out)?,
                SectionEntry::Matrix(matrix) => self.matrix(matrix, columns, &mut footnotes, out)?,
            }
        }
        missing
            .iter()
            .try_for_each(|reason| self.without_numbers(reason, (&section.common_axes, without_area), out))?;
        self.inputs(section, out)?;
        for (index, text) in footnotes.numbered.iter().enumerate() {
            self.hanging_paragraph(out, (TextStyle::Odd, &format!("[{}]", index + 1)), 5, text)?;
        }
        for (&letter, &count) in &footnotes.lettered {
            let text = format!("{} ({count} of this area)", letter_meaning(letter));
            self.hanging_paragraph(out, (TextStyle::Faint, &format!("[{letter}]")), 5, &text)?;
        }
        Ok(())
    }

    /// Results without a number for one reason, in one paragraph.
    pub(super) fn without_numbers(
        &self,
        missing: &MissingResults<'_>,
        (alike, named): (&CommonAxes, fn(&str) -> &str),
        out: &mut dyn io::Write,
    ) -> io::Result<()> {
        let text = clean(&format!("{}: {}", missing.reason, missing.labels(alike, named)));
        self.hanging_paragraph(out, (word_paint(missing.word), missing.word), display_width(missing.word) + 1, &text)
    }

    fn column_titles(&self, title: &str, columns: TableColumns<'_>, out: &mut dyn io::Write) -> io::Result<()> {
        let gap = columns.gap;
        let titles = format!(
            "{}{gap}{}{gap}{}{gap}{}{gap}{}",
            pad_left("measured", MEASURED_WIDTH),
            pad_left("cycles", CYCLES_WIDTH),
            pad_left("predicted", PREDICTED_WIDTH),
            pad_left("ratio", RATIO_WIDTH),
            "verdict"
        );
        writeln!(out)?;
        // A long title is above the column titles, a short one in their line.
        if crate::text::display_width(title) > columns.label {
            writeln!(out, "{}", self.paint(TextStyle::Title, title))?;
            let line = format!("{}{gap}{titles}", " ".repeat(columns.label));
            return writeln!(out, "{}", self.paint(TextStyle::Faint, &line));
        }
        let title = self.paint(TextStyle::Title, &pad_right(title, columns.label));
        writeln!(out, "{title}{gap}{}", self.paint(TextStyle::Faint, &titles))
    }

    fn row(
        &self,
        result: &MetricResult,
        columns: TableColumns<'_>,
        footnotes: &mut Footnotes,
        out: &mut dyn io::Write,
    ) -> io::Result<()> {
        let label = format!("{}{}", label(result, columns.alike), footnotes.marks(&[result]));
        self.figures(&label, result, columns, out)?;
        if result.outcome.summary().is_some() { self.best(labels::best(result), columns, out) } else { Ok(()) }
    }

    /// The figures of a result behind a label, or why there are none.
    fn figures(
        &self,
        label: &str,
        result: &MetricResult,
        columns: TableColumns<'_>,
        out: &mut dyn io::Write,
    ) -> io::Result<()> {
        if let Some((word, reason)) = labels::missing_reason(&result.outcome, result.metric.unit) {
            return self.without_number(label, word, &reason, columns, out);
        }
        let Outcome::Measured(summary) = &result.outcome else { return Ok(()) };
        let measured = units::measured_text(summary, result.metric.unit);
        let gap = columns.gap;
        self.label_and_value(label, &measured, columns, out)?;
        let prediction = result.prediction.as_ref();
        let predicted = prediction.map(|prediction| units::value_text(prediction.value, result.metric.unit));
        let line = format!(
            "{gap}{}{gap}{}{gap}{}",
            pad_left(&units::cycles_text(result), CYCLES_WIDTH),
            pad_left(&predicted.unwrap_or_default(), PREDICTED_WIDTH),
            pad_left(&result.ratio.map(units::ratio).unwrap_or_default(), RATIO_WIDTH),
        );
        let distance = half_width_count(result).map_or_else(String::new, |times| format!(" {times}"));
        let verdict = format!("{}{distance}", labels::verdict_word(result));
        self.with_verdict(&line, verdict_paint(result.verdict), &verdict, gap, out)?;
        self.of_class(result, out)
    }

    /// What is usual of the figure in its class, below its prediction: the two are judged apart.
    fn of_class(&self, result: &MetricResult, out: &mut dyn io::Write) -> io::Result<()> {
        let Some(text) = class_comparison::figure_class_text(result) else { return Ok(()) };
        let is_odd = matches!(class_comparison::class_word(result), "slower" | "faster");
        writeln!(
            out,
            "{}",
            self.paint(if is_odd { TextStyle::Odd } else { TextStyle::Faint }, &pad_left(&text, self.width()))
        )
    }

    /// The best sample of a rate, below its median.
    fn best(&self, best: Option<String>, at: TableColumns<'_>, out: &mut dyn io::Write) -> io::Result<()> {
        let Some(best) = best else { return Ok(()) };
        writeln!(out, "{}", self.paint(TextStyle::Faint, &pad_left(&best, at.label + at.gap.len() + MEASURED_WIDTH)))
    }

    /// The end of a line; a line without a verdict ends with its text.
    fn with_verdict(
        &self,
        line: &str,
        paint: TextStyle,
        word: &str,
        gap: &str,
        out: &mut dyn io::Write,
    ) -> io::Result<()> {
        if word.is_empty() {
            writeln!(out, "{}", line.trim_end())
        } else {
            writeln!(out, "{line}{gap}{}", self.paint(paint, word))
        }
    }

    /// Label and measured value; a label that leaves no room for the value gets its own line.
    fn label_and_value(
        &self,
        label: &str,
        value: &str,
        at: TableColumns<'_>,
        out: &mut dyn io::Write,
    ) -> io::Result<()> {
        let room = at.label + at.gap.len() + MEASURED_WIDTH;
        if display_width(label) + 1 + display_width(value) > room {
            writeln!(out, "{label}")?;
            return write!(out, "{}", pad_left(value, room));
        }
        write!(out, "{label}{}", pad_left(value, room - display_width(label)))
    }

    fn without_number(
        &self,
        label: &str,
        word: &str,
        reason: &str,
        at: TableColumns<'_>,
        out: &mut dyn io::Write,
    ) -> io::Result<()> {
        let paint = word_paint(word);
        let indent = at.label + at.gap.len();
        if display_width(label) > at.label {
            writeln!(out, "{label}")?;
        }
        let label = if display_width(label) > at.label { "" } else { label };
        let lines = wrap(&format!("{word}: {reason}"), self.width() - indent);
        for (index, line) in lines.iter().enumerate() {
            match line.strip_prefix(word).filter(|_| index == 0) {
                Some(rest) => writeln!(out, "{}{}{rest}", pad_right(label, indent), self.paint(paint, word))?,
                None => writeln!(out, "{}{line}", " ".repeat(indent))?,
            }
        }
        Ok(())
    }

    fn curve(
        &self,
        curve: &Curve<'_>,
        columns: TableColumns<'_>,
        footnotes: &mut Footnotes,
        out: &mut dyn io::Write,
    ) -> io::Result<()> {
        let results: Vec<&MetricResult> = curve.results().collect();
        writeln!(out, "{}{} over {}", short_id(&curve.metric.id), footnotes.marks(&results), clean(&curve.axis.label))?;
        for line in &curve.series {
            self.curve_line(curve, line, columns, out)?;
        }
        self.missing_points(&results, columns.alike, out)
    }

    fn curve_line(
        &self,
        curve: &Curve<'_>,
        line: &CurveSeries<'_>,
        columns: TableColumns<'_>,
        out: &mut dyn io::Write,
    ) -> io::Result<()> {
        let (Some((first, _)), Some((last, _))) = (line.points.first(), line.points.last()) else { return Ok(()) };
        let at = |x: u64| units::axis_value(Value::Integer(x), curve.axis.scale);
        let rest = columns.alike.rest_text(curve.metric, &line.held);
        let label = if rest.is_empty() { format!("{} to {}", at(*first), at(*last)) } else { clean(&rest) };
        let results: Vec<&MetricResult> = line.points.iter().map(|(_, result)| *result).collect();
        self.span_of(&LineSpan { label, plot: sparkline(line), results }, columns, out)?;
        // A point without a figure is among the reasons below.
        for (x, result) in line.points.iter().filter(|(_, result)| result.outcome.summary().is_some()) {
            self.figures(&format!("    {}", at(*x)), result, columns, out)?;
        }
        Ok(())
    }

    /// A matrix: its range in one line, then the pairs, if the terminal has room for them.
    fn matrix(
        &self,
        matrix: &Matrix<'_>,
        columns: TableColumns<'_>,
        footnotes: &mut Footnotes,
        out: &mut dyn io::Write,
    ) -> io::Result<()> {
        let results: Vec<&MetricResult> = matrix.results().collect();
        if let [result] = results[..] {
            return self.row(result, columns, footnotes, out);
        }
        let over = format!("{}, {}", matrix.from.label, matrix.to.label);
        writeln!(out, "{}{} over {}", short_id(&matrix.metric.id), footnotes.marks(&results), clean(&over))?;
        let count = labels::plural(results.len() as u64, "pair");
        let rest = columns.alike.rest_text(matrix.metric, &matrix.held);
        let label = if rest.is_empty() { count } else { format!("{} ({count})", clean(&rest)) };
        self.span_of(&LineSpan { label, plot: String::new(), results: results.clone() }, columns, out)?;
        for line in grid(matrix, self.width()) {
            writeln!(out, "{line}")?;
        }
        self.missing_points(&results, columns.alike, out)
    }

    /// Several results in one line: from the lowest to the highest, with their ratios to predictions.
    fn span_of(&self, span: &LineSpan<'_>, columns: TableColumns<'_>, out: &mut dyn io::Write) -> io::Result<()> {
        let measured: Vec<f64> =
            span.results.iter().filter_map(|result| Some(result.outcome.summary()?.headline)).collect();
        let (Some(first), false) = (span.results.first(), measured.is_empty()) else { return Ok(()) };
        let label = format!("  {}", span.label);
        self.label_and_value(
            &label,
            &units::span(minimum(&measured), maximum(&measured), first.metric.unit),
            columns,
            out,
        )?;
        let ratios: Vec<f64> = span.results.iter().filter_map(|result| result.ratio).collect();
        let range = match (units::ratio(minimum(&ratios)), units::ratio(maximum(&ratios))) {
            _ if ratios.is_empty() => String::new(),
            (low, high) if low == high => low,
            (low, high) => format!("{low}-{high}"),
        };
        let (paint, verdict) = line_verdict(&span.results);
        let plot = pad_right(&span.plot, SPARKLINE_WIDTH);
        let middle = format!("{}{}{}", columns.gap, plot, pad_left(&range, columns.middle() - SPARKLINE_WIDTH));
        self.with_verdict(&middle, paint, &verdict, columns.gap, out)?;
        self.best(labels::best_span(&span.results), columns, out)
    }

    /// The points of a curve, or pairs of a matrix, without a number, grouped by reason.
    pub(super) fn missing_points(
        &self,
        results: &[&MetricResult],
        alike: &CommonAxes,
        out: &mut dyn io::Write,
    ) -> io::Result<()> {
        for MissingResults { word, reason, results } in MissingResults::group(results.iter().copied()) {
            let cases =
                || results.iter().map(|result| alike.rest_text(&result.metric, &result.case)).collect::<Vec<_>>();
            let which =
                if results.len() <= MAX_NAMED { cases().join("; ") } else { format!("{} points", results.len()) };
            let paint = word_paint(word);
            self.hanging_paragraph(
                out,
                (paint, &format!("  {word}")),
                display_width(word) + 3,
                &format!("{which}: {reason}"),
            )?;
        }
        Ok(())
    }

    /// Metrics measured only as inputs of predictions, in one paragraph.
    fn inputs(&self, section: &Section<'_>, out: &mut dyn io::Write) -> io::Result<()> {
        let inputs: Vec<String> = section
            .entries
            .iter()
            .filter(|entry| entry.only_input())
            .flat_map(SectionEntry::results)
            .filter_map(|result| {
                let summary = result.outcome.summary()?;
                let value = units::measured_text(summary, result.metric.unit);
                Some(format!("{} {value}", label(result, &section.common_axes)))
            })
            .collect();
        if !inputs.is_empty() {
            let text = format!("measured briefly, only as inputs of predictions: {}", inputs.join("; "));
            self.hanging_paragraph(out, (TextStyle::Faint, ""), 0, &text)?;
        }
        Ok(())
    }
}

/// Minimum rows without a number for one reason that become one paragraph: as rows they would hide the others.
const MIN_SHARED_REASON: usize = 3;

/// The reasons shared by enough rows.
fn shared_reasons<'e, 'a: 'e>(entries: impl Iterator<Item = &'e SectionEntry<'a>>) -> Vec<MissingResults<'a>> {
    let rows = entries.filter_map(|entry| if let SectionEntry::Single(result) = entry { Some(*result) } else { None });
    let mut missing = MissingResults::group(rows);
    missing.retain(|reason| reason.results.len() >= MIN_SHARED_REASON);
    missing
}

/// The colour of the word for a missing number.
fn word_paint(word: &str) -> TextStyle {
    if matches!(word, "failed" | "invalid") { TextStyle::Bad } else { TextStyle::Odd }
}

/// The id without its area, which is in the table's title.
fn short_id(id: &str) -> String {
    clean(without_area(id))
}

fn label(result: &MetricResult, alike: &CommonAxes) -> String {
    let case = alike.rest_text(&result.metric, &result.case);
    let id = short_id(&result.metric.id);
    if case.is_empty() { id } else { clean(&format!("{id} {case}")) }
}

fn verdict_paint(verdict: RangeVerdict) -> TextStyle {
    match verdict {
        RangeVerdict::AsPredicted => TextStyle::Good,
        RangeVerdict::Above | RangeVerdict::Below => TextStyle::Odd,
        RangeVerdict::NotPredicted | RangeVerdict::NotMeasured => TextStyle::Faint,
    }
}

/// Results that share a line of the table.
struct LineSpan<'a> {
    label: String,
    plot: String,
    results: Vec<&'a MetricResult>,
}

/// A matrix as lines of text, rows from, columns to, in one unit; nothing if too wide.
fn grid(matrix: &Matrix<'_>, width: usize) -> Vec<String> {
    let value = |result: &MetricResult| Some(result.outcome.summary()?.headline);
    let most = maximum(&matrix.results().filter_map(value).collect::<Vec<f64>>());
    let scale = units::scale_for(most, matrix.metric.unit);
    let names: Vec<String> = (0..matrix.names.len()).map(|index| clean(&matrix.name(index))).collect();
    let text = |from: usize, to: usize| {
        let cell = matrix.cells.iter().find(|cell| (cell.from, cell.to) == (from, to));
        cell.and_then(|cell| value(cell.result))
            .map_or("-".into(), |value| units::value_text(value / scale.factor, Unit::Ratio))
    };
    let rows: Vec<Vec<String>> =
        (0..names.len()).map(|from| (0..names.len()).map(|to| text(from, to)).collect()).collect();
    let widest = rows.iter().flatten().chain(&names).map(|cell| display_width(cell)).max().unwrap_or(0) + 2;
    let first = names.iter().map(|name| display_width(name)).max().unwrap_or(0).max(display_width(scale.symbol)) + 4;
    if first + names.len() * widest > width || !most.is_finite() {
        return Vec::new();
    }
    let line = |head: &str, cells: &[String]| {
        let cells: String = cells.iter().map(|cell| pad_left(cell, widest)).collect();
        format!("{}{cells}", pad_left(head, first))
    };
    let body = names.iter().zip(&rows).map(|(name, cells)| line(name, cells));
    std::iter::once(line(scale.symbol, &names)).chain(body).collect()
}

/// The verdicts of several results in one word: `expected`, `3 slower`, `4 differ`.
fn line_verdict(results: &[&MetricResult]) -> (TextStyle, String) {
    let gaps: Vec<&str> = results
        .iter()
        .filter(|result| labels::is_gap(result.verdict))
        .map(|result| labels::verdict_word(result))
        .collect();
    match gaps.first() {
        Some(first) if gaps.iter().all(|word| word == first) => (TextStyle::Odd, format!("{} {first}", gaps.len())),
        Some(_) => (TextStyle::Odd, format!("{} differ", gaps.len())),
        None if results.iter().any(|result| result.verdict == RangeVerdict::AsPredicted) => {
            (TextStyle::Good, "expected".into())
        }
        None => (TextStyle::Faint, String::new()),
    }
}

/// A curve in at most [`SPARKLINE_WIDTH`] characters: eight heights, logarithmic over more than a decade; a dot
/// for a point without a number.
fn sparkline(line: &CurveSeries<'_>) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let values: Vec<Option<f64>> =
        line.points.iter().map(|(_, result)| Some(result.outcome.summary()?.headline)).collect();
    let known: Vec<f64> = values.iter().flatten().copied().collect();
    let (low, high) = (minimum(&known), maximum(&known));
    let logarithmic = low > 0.0 && high / low > 10.0;
    let height = |value: f64| {
        let share = if logarithmic { (value / low).ln() / (high / low).ln() } else { (value - low) / (high - low) };
        BARS[if share.is_finite() { (share * 7.0).round() as usize } else { 0 }.min(7)]
    };
    let shown = values.len().min(SPARKLINE_WIDTH);
    let pick = |index: usize| if shown > 1 { index * (values.len() - 1) / (shown - 1) } else { 0 };
    (0..shown).map(|index| values[pick(index)].map_or('·', height)).collect()
}

fn minimum(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

fn maximum(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}
