//! The table of one area: a line for each metric, one for each line of a curve, and what has no number.

use std::collections::BTreeMap;
use std::io;

use kelvin_analysis::words::{half_widths, normal};
use kelvin_analysis::{MetricResult, Outcome, Verdict, Warning};
use kelvin_model::{Unit, Value};

use super::{Paint, Terminal};
use crate::sections::{Alike, Curve, CurveSeries, Entry, MOST_NAMED, Matrix, Missing, Section, without_area};
use crate::text::{clean, columns, left, right, wrap};
use crate::{units, words};

/// Widths of the columns after the label.
const MEASURED: usize = 18;
const CYCLES: usize = 6;
const PREDICTED: usize = 10;
const RATIO: usize = 5;
/// A word, and how far outside of the range: `slower 2.4`.
const VERDICT: usize = 10;

/// A small plot of a curve and the range of its ratios replace cycles, prediction and ratio of a row.
const PLOT: usize = 12;

/// Widest label column: with a wider one the eye loses the row.
const WIDEST_LABEL: usize = 48;

/// The columns for a width, and what the labels leave out.
#[derive(Clone, Copy)]
struct Columns<'a> {
    label: usize,
    gap: &'static str,
    alike: &'a Alike,
}

impl<'a> Columns<'a> {
    fn of(width: usize, alike: &'a Alike) -> Self {
        let gap = if width >= 100 { "   " } else { " " };
        let rest = MEASURED + CYCLES + PREDICTED + RATIO + VERDICT + 5 * gap.len();
        Self { label: (width - rest).min(WIDEST_LABEL), gap, alike }
    }

    /// Columns between the measured value and the verdict.
    fn middle(self) -> usize {
        CYCLES + PREDICTED + RATIO + 2 * self.gap.len()
    }
}

/// Warnings of one area: specific ones have numbers, those on precision alone have a letter, explained once.
#[derive(Default)]
struct Footnotes {
    numbered: Vec<String>,
    lettered: BTreeMap<char, usize>,
}

/// Letter and meaning of the warnings on precision; the page has the figures of each.
fn letter(warning: &Warning) -> Option<char> {
    match warning {
        Warning::Wide { .. } => Some('w'),
        Warning::FewEffectiveSamples { .. } => Some('s'),
        Warning::Disturbed { .. } => Some('d'),
        _ => None,
    }
}

fn meaning(letter: char) -> &'static str {
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
            if let Some(letter) = letter(warning) {
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
        let columns = Columns::of(self.width(), &section.alike);
        let asked = || section.entries.iter().filter(|entry| !entry.only_input());
        let has_table = asked().any(Entry::has_figures);
        if has_table {
            self.column_titles(&clean(&section.title), columns, out)?;
        } else {
            self.heading(out, &clean(&section.title))?;
        }
        if let Some(alike) = section.alike.sentence() {
            self.hanging(out, (Paint::Faint, ""), 0, &clean(&alike))?;
        }
        let mut footnotes = Footnotes::default();
        let missing = match has_table {
            true => shared_by_rows(asked()),
            // Nobody asked for an input: it matters only where there is nothing else.
            false if section.entries.iter().any(Entry::has_figures) => Missing::of(asked().flat_map(Entry::results)),
            false => Missing::of(section.entries.iter().flat_map(Entry::results)),
        };
        for entry in asked().filter(|_| has_table) {
            match entry {
                Entry::Single(result) if missing.iter().any(|reason| reason.is_of(result)) => {}
                Entry::Single(result) => self.row(result, columns, &mut footnotes, out)?,
                Entry::Curve(curve) => self.curve(curve, columns, &mut footnotes, out)?,
                Entry::Matrix(matrix) => self.matrix(matrix, columns, &mut footnotes, out)?,
            }
        }
        missing.iter().try_for_each(|reason| self.without_numbers(reason, (&section.alike, without_area), out))?;
        self.inputs(section, out)?;
        for (index, text) in footnotes.numbered.iter().enumerate() {
            self.hanging(out, (Paint::Odd, &format!("[{}]", index + 1)), 5, text)?;
        }
        for (&letter, &count) in &footnotes.lettered {
            let text = format!("{} ({count} of this area)", meaning(letter));
            self.hanging(out, (Paint::Faint, &format!("[{letter}]")), 5, &text)?;
        }
        Ok(())
    }

    /// Results without a number for one reason, in one paragraph.
    pub(super) fn without_numbers(
        &self,
        missing: &Missing<'_>,
        (alike, named): (&Alike, fn(&str) -> &str),
        out: &mut dyn io::Write,
    ) -> io::Result<()> {
        let text = clean(&format!("{}: {}", missing.reason, missing.labels(alike, named)));
        self.hanging(out, (word_paint(missing.word), missing.word), columns(missing.word) + 1, &text)
    }

    fn column_titles(&self, title: &str, columns: Columns<'_>, out: &mut dyn io::Write) -> io::Result<()> {
        let gap = columns.gap;
        let titles = format!(
            "{}{gap}{}{gap}{}{gap}{}{gap}{}",
            right("measured", MEASURED),
            right("cycles", CYCLES),
            right("predicted", PREDICTED),
            right("ratio", RATIO),
            "verdict"
        );
        writeln!(out)?;
        // A long title is above the column titles, a short one in their line.
        if crate::text::columns(title) > columns.label {
            writeln!(out, "{}", self.paint(Paint::Title, title))?;
            let line = format!("{}{gap}{titles}", " ".repeat(columns.label));
            return writeln!(out, "{}", self.paint(Paint::Faint, &line));
        }
        let title = self.paint(Paint::Title, &left(title, columns.label));
        writeln!(out, "{title}{gap}{}", self.paint(Paint::Faint, &titles))
    }

    fn row(
        &self,
        result: &MetricResult,
        columns: Columns<'_>,
        footnotes: &mut Footnotes,
        out: &mut dyn io::Write,
    ) -> io::Result<()> {
        let label = format!("{}{}", label(result, columns.alike), footnotes.marks(&[result]));
        self.figures(&label, result, columns, out)?;
        if result.outcome.summary().is_some() { self.best(words::best(result), columns, out) } else { Ok(()) }
    }

    /// The figures of a result behind a label, or why there are none.
    fn figures(
        &self,
        label: &str,
        result: &MetricResult,
        columns: Columns<'_>,
        out: &mut dyn io::Write,
    ) -> io::Result<()> {
        if let Some((word, reason)) = words::no_number(&result.outcome, result.metric.unit) {
            return self.without_number(label, word, &reason, columns, out);
        }
        let Outcome::Measured(summary) = &result.outcome else { return Ok(()) };
        let measured = units::measured(summary, result.metric.unit);
        let gap = columns.gap;
        self.label_and_value(label, &measured, columns, out)?;
        let prediction = result.prediction.as_ref();
        let predicted = prediction.map(|prediction| units::plain(prediction.value, result.metric.unit));
        let line = format!(
            "{gap}{}{gap}{}{gap}{}",
            right(&units::cycles(result), CYCLES),
            right(&predicted.unwrap_or_default(), PREDICTED),
            right(&result.ratio.map(units::ratio).unwrap_or_default(), RATIO),
        );
        let distance = half_widths(result).map_or_else(String::new, |times| format!(" {times}"));
        let verdict = format!("{}{distance}", words::verdict(result));
        self.with_verdict(&line, verdict_paint(result.verdict), &verdict, gap, out)?;
        self.of_class(result, out)
    }

    /// What is usual of the figure in its class, below its prediction: the two are judged apart.
    fn of_class(&self, result: &MetricResult, out: &mut dyn io::Write) -> io::Result<()> {
        let Some(text) = normal::of_figure(result) else { return Ok(()) };
        let is_odd = matches!(normal::word(result), "slower" | "faster");
        writeln!(out, "{}", self.paint(if is_odd { Paint::Odd } else { Paint::Faint }, &right(&text, self.width())))
    }

    /// The best sample of a rate, below its median.
    fn best(&self, best: Option<String>, at: Columns<'_>, out: &mut dyn io::Write) -> io::Result<()> {
        let Some(best) = best else { return Ok(()) };
        writeln!(out, "{}", self.paint(Paint::Faint, &right(&best, at.label + at.gap.len() + MEASURED)))
    }

    /// The end of a line; a line without a verdict ends with its text.
    fn with_verdict(&self, line: &str, paint: Paint, word: &str, gap: &str, out: &mut dyn io::Write) -> io::Result<()> {
        if word.is_empty() {
            writeln!(out, "{}", line.trim_end())
        } else {
            writeln!(out, "{line}{gap}{}", self.paint(paint, word))
        }
    }

    /// Label and measured value; a label that leaves no room for the value gets its own line.
    fn label_and_value(&self, label: &str, value: &str, at: Columns<'_>, out: &mut dyn io::Write) -> io::Result<()> {
        let room = at.label + at.gap.len() + MEASURED;
        if columns(label) + 1 + columns(value) > room {
            writeln!(out, "{label}")?;
            return write!(out, "{}", right(value, room));
        }
        write!(out, "{label}{}", right(value, room - columns(label)))
    }

    fn without_number(
        &self,
        label: &str,
        word: &str,
        reason: &str,
        at: Columns<'_>,
        out: &mut dyn io::Write,
    ) -> io::Result<()> {
        let paint = word_paint(word);
        let indent = at.label + at.gap.len();
        if columns(label) > at.label {
            writeln!(out, "{label}")?;
        }
        let label = if columns(label) > at.label { "" } else { label };
        let lines = wrap(&format!("{word}: {reason}"), self.width() - indent);
        for (index, line) in lines.iter().enumerate() {
            match line.strip_prefix(word).filter(|_| index == 0) {
                Some(rest) => writeln!(out, "{}{}{rest}", left(label, indent), self.paint(paint, word))?,
                None => writeln!(out, "{}{line}", " ".repeat(indent))?,
            }
        }
        Ok(())
    }

    fn curve(
        &self,
        curve: &Curve<'_>,
        columns: Columns<'_>,
        footnotes: &mut Footnotes,
        out: &mut dyn io::Write,
    ) -> io::Result<()> {
        let results: Vec<&MetricResult> = curve.results().collect();
        writeln!(out, "{}{} over {}", short(&curve.metric.id), footnotes.marks(&results), clean(&curve.axis.label))?;
        for line in &curve.series {
            self.curve_line(curve, line, columns, out)?;
        }
        self.missing_points(&results, columns.alike, out)
    }

    fn curve_line(
        &self,
        curve: &Curve<'_>,
        line: &CurveSeries<'_>,
        columns: Columns<'_>,
        out: &mut dyn io::Write,
    ) -> io::Result<()> {
        let (Some((first, _)), Some((last, _))) = (line.points.first(), line.points.last()) else { return Ok(()) };
        let at = |x: u64| units::axis_value(Value::Integer(x), curve.axis.scale);
        let rest = columns.alike.rest(curve.metric, &line.held);
        let label = if rest.is_empty() { format!("{} to {}", at(*first), at(*last)) } else { clean(&rest) };
        let results: Vec<&MetricResult> = line.points.iter().map(|(_, result)| *result).collect();
        self.span_of(&Span { label, plot: sparkline(line), results }, columns, out)?;
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
        columns: Columns<'_>,
        footnotes: &mut Footnotes,
        out: &mut dyn io::Write,
    ) -> io::Result<()> {
        let results: Vec<&MetricResult> = matrix.results().collect();
        if let [result] = results[..] {
            return self.row(result, columns, footnotes, out);
        }
        let over = format!("{}, {}", matrix.from.label, matrix.to.label);
        writeln!(out, "{}{} over {}", short(&matrix.metric.id), footnotes.marks(&results), clean(&over))?;
        let count = words::plural(results.len() as u64, "pair");
        let rest = columns.alike.rest(matrix.metric, &matrix.held);
        let label = if rest.is_empty() { count } else { format!("{} ({count})", clean(&rest)) };
        self.span_of(&Span { label, plot: String::new(), results: results.clone() }, columns, out)?;
        for line in grid(matrix, self.width()) {
            writeln!(out, "{line}")?;
        }
        self.missing_points(&results, columns.alike, out)
    }

    /// Several results in one line: from the lowest to the highest, with their ratios to predictions.
    fn span_of(&self, span: &Span<'_>, columns: Columns<'_>, out: &mut dyn io::Write) -> io::Result<()> {
        let measured: Vec<f64> =
            span.results.iter().filter_map(|result| Some(result.outcome.summary()?.headline)).collect();
        let (Some(first), false) = (span.results.first(), measured.is_empty()) else { return Ok(()) };
        let label = format!("  {}", span.label);
        self.label_and_value(&label, &units::span(least(&measured), most(&measured), first.metric.unit), columns, out)?;
        let ratios: Vec<f64> = span.results.iter().filter_map(|result| result.ratio).collect();
        let range = match (units::ratio(least(&ratios)), units::ratio(most(&ratios))) {
            _ if ratios.is_empty() => String::new(),
            (low, high) if low == high => low,
            (low, high) => format!("{low}-{high}"),
        };
        let (paint, verdict) = standing(&span.results);
        let plot = left(&span.plot, PLOT);
        let middle = format!("{}{}{}", columns.gap, plot, right(&range, columns.middle() - PLOT));
        self.with_verdict(&middle, paint, &verdict, columns.gap, out)?;
        self.best(words::best_span(&span.results), columns, out)
    }

    /// The points of a curve, or pairs of a matrix, without a number, grouped by reason.
    pub(super) fn missing_points(
        &self,
        results: &[&MetricResult],
        alike: &Alike,
        out: &mut dyn io::Write,
    ) -> io::Result<()> {
        for Missing { word, reason, results } in Missing::of(results.iter().copied()) {
            let cases = || results.iter().map(|result| alike.rest(&result.metric, &result.case)).collect::<Vec<_>>();
            let which =
                if results.len() <= MOST_NAMED { cases().join("; ") } else { format!("{} points", results.len()) };
            let paint = word_paint(word);
            self.hanging(out, (paint, &format!("  {word}")), columns(word) + 3, &format!("{which}: {reason}"))?;
        }
        Ok(())
    }

    /// Metrics measured only as inputs of predictions, in one paragraph.
    fn inputs(&self, section: &Section<'_>, out: &mut dyn io::Write) -> io::Result<()> {
        let inputs: Vec<String> = section
            .entries
            .iter()
            .filter(|entry| entry.only_input())
            .flat_map(Entry::results)
            .filter_map(|result| {
                let summary = result.outcome.summary()?;
                let value = units::measured(summary, result.metric.unit);
                Some(format!("{} {value}", label(result, &section.alike)))
            })
            .collect();
        if !inputs.is_empty() {
            let text = format!("measured briefly, only as inputs of predictions: {}", inputs.join("; "));
            self.hanging(out, (Paint::Faint, ""), 0, &text)?;
        }
        Ok(())
    }
}

/// Minimum rows without a number for one reason that become one paragraph: as rows they would hide the others.
const LEAST_TOGETHER: usize = 3;

/// The reasons shared by enough rows.
fn shared_by_rows<'e, 'a: 'e>(entries: impl Iterator<Item = &'e Entry<'a>>) -> Vec<Missing<'a>> {
    let rows = entries.filter_map(|entry| if let Entry::Single(result) = entry { Some(*result) } else { None });
    let mut missing = Missing::of(rows);
    missing.retain(|reason| reason.results.len() >= LEAST_TOGETHER);
    missing
}

/// The colour of the word for a missing number.
fn word_paint(word: &str) -> Paint {
    if matches!(word, "failed" | "invalid") { Paint::Bad } else { Paint::Odd }
}

/// The id without its area, which is in the table's title.
fn short(id: &str) -> String {
    clean(without_area(id))
}

fn label(result: &MetricResult, alike: &Alike) -> String {
    let case = alike.rest(&result.metric, &result.case);
    let id = short(&result.metric.id);
    if case.is_empty() { id } else { clean(&format!("{id} {case}")) }
}

fn verdict_paint(verdict: Verdict) -> Paint {
    match verdict {
        Verdict::AsPredicted => Paint::Good,
        Verdict::Above | Verdict::Below => Paint::Odd,
        Verdict::NotPredicted | Verdict::NotMeasured => Paint::Faint,
    }
}

/// Results that share a line of the table.
struct Span<'a> {
    label: String,
    plot: String,
    results: Vec<&'a MetricResult>,
}

/// A matrix as lines of text, rows from, columns to, in one unit; nothing if too wide.
fn grid(matrix: &Matrix<'_>, width: usize) -> Vec<String> {
    let value = |result: &MetricResult| Some(result.outcome.summary()?.headline);
    let most = most(&matrix.results().filter_map(value).collect::<Vec<f64>>());
    let scale = units::scale_for(most, matrix.metric.unit);
    let names: Vec<String> = (0..matrix.names.len()).map(|index| clean(&matrix.name(index))).collect();
    let text = |from: usize, to: usize| {
        let cell = matrix.cells.iter().find(|cell| (cell.from, cell.to) == (from, to));
        cell.and_then(|cell| value(cell.result))
            .map_or("-".into(), |value| units::plain(value / scale.factor, Unit::Ratio))
    };
    let rows: Vec<Vec<String>> =
        (0..names.len()).map(|from| (0..names.len()).map(|to| text(from, to)).collect()).collect();
    let widest = rows.iter().flatten().chain(&names).map(|cell| columns(cell)).max().unwrap_or(0) + 2;
    let first = names.iter().map(|name| columns(name)).max().unwrap_or(0).max(columns(scale.symbol)) + 4;
    if first + names.len() * widest > width || !most.is_finite() {
        return Vec::new();
    }
    let line = |head: &str, cells: &[String]| {
        let cells: String = cells.iter().map(|cell| right(cell, widest)).collect();
        format!("{}{cells}", right(head, first))
    };
    let body = names.iter().zip(&rows).map(|(name, cells)| line(name, cells));
    std::iter::once(line(scale.symbol, &names)).chain(body).collect()
}

/// The verdicts of several results in one word: `expected`, `3 slower`, `4 differ`.
fn standing(results: &[&MetricResult]) -> (Paint, String) {
    let gaps: Vec<&str> =
        results.iter().filter(|result| words::is_gap(result.verdict)).map(|result| words::verdict(result)).collect();
    match gaps.first() {
        Some(first) if gaps.iter().all(|word| word == first) => (Paint::Odd, format!("{} {first}", gaps.len())),
        Some(_) => (Paint::Odd, format!("{} differ", gaps.len())),
        None if results.iter().any(|result| result.verdict == Verdict::AsPredicted) => (Paint::Good, "expected".into()),
        None => (Paint::Faint, String::new()),
    }
}

/// A curve in at most [`PLOT`] characters: eight heights, logarithmic over more than a decade; a dot
/// for a point without a number.
fn sparkline(line: &CurveSeries<'_>) -> String {
    const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let values: Vec<Option<f64>> =
        line.points.iter().map(|(_, result)| Some(result.outcome.summary()?.headline)).collect();
    let known: Vec<f64> = values.iter().flatten().copied().collect();
    let (low, high) = (least(&known), most(&known));
    let logarithmic = low > 0.0 && high / low > 10.0;
    let height = |value: f64| {
        let share = if logarithmic { (value / low).ln() / (high / low).ln() } else { (value - low) / (high - low) };
        HEIGHTS[if share.is_finite() { (share * 7.0).round() as usize } else { 0 }.min(7)]
    };
    let shown = values.len().min(PLOT);
    let pick = |index: usize| if shown > 1 { index * (values.len() - 1) / (shown - 1) } else { 0 };
    (0..shown).map(|index| values[pick(index)].map_or('·', height)).collect()
}

fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

fn most(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}
