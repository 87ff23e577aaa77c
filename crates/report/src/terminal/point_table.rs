//! The points of a curve as a table: a row for each position, a column for each line, and to the right a picture of both.

use std::collections::BTreeSet;

use kelvin_analysis::GrowthEnd;
use kelvin_analysis::wording::{growth_end_place, verdict_word};
use kelvin_core::{AxisScale, Case, Unit, Value};
use kelvin_stats::min_max;

use super::text_plot::column_of;
use super::{Terminal, TextStyle};
use crate::figures::needs_log_axis;
use crate::scale::share_between;
use crate::sections::{CommonAxes, Curve, CurveSeries};
use crate::text::{clean, display_width, grouped, wrap};
use crate::{labels, units};

/// Between columns.
const COLUMN_GAP: usize = 2;
/// Points that are shown at least, even where there is no room.
const MIN_ROWS: usize = 4;
/// Columns of the picture.
const MIN_PLOT_WIDTH: usize = 16;
const MAX_PLOT_WIDTH: usize = 40;
/// Marks of lines in the picture: with more lines it is not drawn.
const UNICODE_MARKS: [char; 4] = ['●', '○', '◆', '◇'];
const ASCII_MARKS: [char; 4] = ['o', '*', '#', 'x'];

/// The points of one curve.
pub(super) struct PointTable<'a> {
    terminal: &'a Terminal,
    unicode: bool,
    curve: &'a Curve<'a>,
    title: String,
    /// The lines of which a point was measured.
    lines: Vec<&'a CurveSeries<'a>>,
    /// Their names.
    names: Vec<String>,
    positions: Vec<u64>,
}

/// Text in columns: the first one is the label of a row.
type TextGrid = Vec<Vec<String>>;

impl<'a> PointTable<'a> {
    /// The table of a curve.
    pub fn new(curve: &'a Curve<'a>, terminal: &'a Terminal, unicode: bool) -> Self {
        // Lines without any figure are listed below the table.
        let has_figure = |line: &&CurveSeries<'a>| line.points.iter().any(|point| point.1.outcome.summary().is_some());
        let lines: Vec<&CurveSeries<'a>> = curve.series.iter().filter(has_figure).collect();
        let measured_points =
            lines.iter().flat_map(|line| &line.points).filter(|point| point.1.outcome.summary().is_some());
        let positions: BTreeSet<u64> = measured_points.map(|point| point.0).collect();
        let common_axes = CommonAxes::of_cases(curve.metric, lines.iter().map(|line| &line.fixed));
        let common_name =
            lines.first().map(|line| line_name(curve, &common_axes.common_of(&line.fixed))).unwrap_or_default();
        let summary = curve.metric.summary.trim_end_matches('.');
        Self {
            title: if common_name.is_empty() { clean(summary) } else { clean(&format!("{summary}, {common_name}")) },
            names: lines.iter().map(|line| clean(&line_name(curve, &common_axes.rest_of(&line.fixed)))).collect(),
            positions: positions.into_iter().collect(),
            terminal,
            unicode,
            curve,
            lines,
        }
    }

    /// The table in at most this many rows.
    pub fn lines(&self, max_rows: usize) -> Vec<String> {
        let terminal = self.terminal;
        let mut lines = vec![String::new()];
        lines.extend(wrap(&self.title, terminal.width()));
        if self.positions.is_empty() {
            return lines;
        }
        let max_grid_rows = max_rows.saturating_sub(lines.len() + 3);
        let rows = |part_count: usize| {
            evenly_spaced(
                &self.positions,
                (max_grid_rows / part_count).saturating_sub(usize::from(part_count > 1)).max(MIN_ROWS),
            )
        };
        let mut shown_positions = rows(1);
        let upright_grid = self.grid(&shown_positions);
        let transposed_grid = transposed(&self.grid(&self.positions));
        if width(&upright_grid) <= terminal.width() {
            lines.extend(self.with_plot(&upright_grid, &shown_positions));
        } else if width(&transposed_grid) <= terminal.width() {
            shown_positions.clone_from(&self.positions);
            lines.extend(aligned(&transposed_grid, terminal));
        } else {
            // Each part has a row for each point, and a title.
            shown_positions = rows(split_columns(&upright_grid, terminal.width()).len());
            let parts = split_columns(&self.grid(&shown_positions), terminal.width());
            lines.extend(parts.iter().flat_map(|part| aligned(part, terminal)));
        }
        if shown_positions.len() < self.positions.len() {
            let text = format!("{} of {} points; all in the full report", shown_positions.len(), self.positions.len());
            lines.push(terminal.paint(TextStyle::Faint, &text));
        }
        let summaries = self.growth_summary().into_iter().chain(self.prediction_summary());
        let summary_lines = summaries.flat_map(|text| wrap(&text, terminal.width()));
        lines.extend(summary_lines.map(|text| terminal.paint(TextStyle::Faint, &text)));
        lines
    }

    /// Titles, then a row for each position.
    fn grid(&self, positions: &[u64]) -> TextGrid {
        // The axis without its unit, which its values have.
        let axis = self.curve.axis.label.split(',').next().map(clean).unwrap_or_default();
        let single_name = || vec!["measured".to_owned()];
        let names = if self.names.iter().all(String::is_empty) { single_name() } else { self.names.clone() };
        let titles = std::iter::once(axis).chain(names).collect();
        let row = |&position: &u64| {
            let label = units::axis_value(Value::Integer(position), self.curve.axis.scale);
            std::iter::once(label).chain(self.lines.iter().map(|line| cell(line, position, self.curve))).collect()
        };
        std::iter::once(titles).chain(positions.iter().map(row)).collect()
    }

    /// The table with its picture to the right, if there is room.
    fn with_plot(&self, grid: &TextGrid, positions: &[u64]) -> Vec<String> {
        let table = aligned(grid, self.terminal);
        let plot_width = self.terminal.width().saturating_sub(width(grid) + 2 * COLUMN_GAP).min(MAX_PLOT_WIDTH);
        let marks = if self.unicode { UNICODE_MARKS } else { ASCII_MARKS };
        let headlines = self.curve.results().filter_map(|result| Some(result.outcome.summary()?.headline));
        let headlines: Vec<f64> = headlines.collect();
        let is_log = needs_log_axis(headlines.iter().copied());
        let track = PlotTrack::new(headlines.into_iter(), is_log, plot_width);
        let Some(track) = track.filter(|_| self.names.len() <= marks.len() && plot_width >= MIN_PLOT_WIDTH) else {
            return table;
        };
        let gap = 2 * COLUMN_GAP;
        let mut lines = Vec::new();
        for (index, line) in table.into_iter().enumerate() {
            let picture = match index.checked_sub(1) {
                None => track.title(self.curve.metric.unit),
                Some(row) => self.track(positions[row], &track, marks),
            };
            // All lines are as wide as the grid; styles take no columns.
            lines.push(format!("{line}{:gap$}{picture}", "").trim_end().to_owned());
        }
        lines.push(self.terminal.paint(TextStyle::Faint, &self.legend(marks)));
        lines
    }

    /// The marks of all lines at one position; of a line alone also the range that was predicted.
    fn track(&self, position: u64, track: &PlotTrack, marks: [char; 4]) -> String {
        let result = |line: &CurveSeries<'a>| line.points.iter().find(|point| point.0 == position).map(|point| point.1);
        let range = match self.lines[..] {
            [line] => result(line).and_then(|result| result.prediction.as_ref()),
            _ => None,
        };
        let range = range.map(|range| ([range.low, range.high], self.predicted_mark()));
        let headline = |(line, mark): (&&CurveSeries<'a>, char)| {
            let headline = result(line)?.outcome.summary()?.headline;
            Some(([headline; 2], mark))
        };
        track.row(range.into_iter().chain(self.lines.iter().zip(marks).filter_map(headline)))
    }

    fn predicted_mark(&self) -> char {
        if self.unicode { '━' } else { '=' }
    }

    fn legend(&self, marks: [char; 4]) -> String {
        let entry =
            |(name, mark): (&String, char)| format!("{mark} {}", if name.is_empty() { "measured" } else { name });
        let mut parts: Vec<String> = self.names.iter().zip(marks).map(entry).collect();
        let is_predicted = self.curve.results().any(|result| result.prediction.is_some());
        if self.names.len() == 1 && is_predicted {
            parts.insert(0, format!("{} predicted", self.predicted_mark()));
        }
        parts.join("  ")
    }

    /// Where lines stop growing: `stops growing at 8 of 64 jobs`, `stop growing: read at 16 of 128 CPUs, copy at 8 of 128 CPUs`; `None`
    /// where none does.
    fn growth_summary(&self) -> Option<String> {
        let ends = self.lines.iter().zip(&self.names).filter_map(|(line, name)| Some((name, line.growth_end?)));
        let ends: Vec<(&String, &GrowthEnd)> = ends.collect();
        let place = |(name, end): &(&String, &GrowthEnd)| format!("{name} at {}", growth_end_place(end));
        match ends[..] {
            [] => None,
            [(name, end)] => Some(labels::growth_end_text(name, end)),
            _ => Some(format!("stop growing: {}", ends.iter().map(place).collect::<Vec<_>>().join(", "))),
        }
    }

    /// How many points lie outside of their predicted range, and which: `of 12 points 2 slower than predicted (4 KiB, 64 KiB)`.
    fn prediction_summary(&self) -> Option<String> {
        let compared_points =
            |line: &&'a CurveSeries<'a>| line.points.iter().filter(|(_, result)| result.ratio.is_some());
        let gaps = self.lines.iter().zip(&self.names).flat_map(|(line, name)| {
            compared_points(line).filter_map(move |(position, result)| {
                let (_, side) = labels::GAP_SIDES.iter().find(|(verdict, _)| *verdict == verdict_word(result))?;
                let point = format!("{} {name}", units::axis_value(Value::Integer(*position), self.curve.axis.scale));
                Some((*side, point.trim_end().to_owned()))
            })
        });
        let sides = grouped(gaps).into_iter();
        let sides: Vec<String> =
            sides.map(|(side, points)| format!("{} {side} ({})", points.len(), point_list(&points))).collect();
        let count = self.lines.iter().flat_map(compared_points).count() as u64;
        let points = labels::plural(count, "point");
        (count > 0).then(|| match sides.is_empty() {
            true => format!("all as predicted: {points}"),
            false => format!("of {points} {}", sides.join(", ")),
        })
    }
}

/// Points that are named at most.
const MAX_NAMED: usize = 4;

/// Points by name, and how many there are beyond these.
fn point_list(points: &[String]) -> String {
    let names = points.iter().take(MAX_NAMED).cloned().collect::<Vec<_>>().join(", ");
    match points.len().saturating_sub(MAX_NAMED) {
        0 => names,
        remaining => format!("{names} and {remaining} more"),
    }
}

/// A case in words: words alone, numbers with their names.
fn line_name(curve: &Curve<'_>, case: &Case) -> String {
    let is_word = |axis: &str| matches!(case.iter().find(|(name, _)| name.as_str() == axis), Some((_, Value::Word(_))));
    let pairs = units::case_pairs(curve.metric, case);
    // One size alone needs no name: its unit identifies it.
    let numbers = pairs.iter().filter(|(axis, _)| !is_word(axis)).count();
    let is_size = |axis: &str| {
        curve.metric.axes().any(|metric_axis| metric_axis.name == *axis && metric_axis.scale == AxisScale::Bytes)
    };
    let parts = pairs.into_iter().map(|(axis, value)| match labels::word_text(curve.metric, axis, &value) {
        Some(word) => word,
        None if is_word(axis) || (numbers == 1 && is_size(axis)) => value,
        None => format!("{axis} {value}"),
    });
    parts.collect::<Vec<_>>().join(" ")
}

fn cell(line: &CurveSeries<'_>, position: u64, curve: &Curve<'_>) -> String {
    let Some((_, result)) = line.points.iter().find(|point| point.0 == position) else { return String::new() };
    let text = result.outcome.summary().map(|summary| units::value_text(summary.headline, curve.metric.unit));
    text.unwrap_or_else(|| "-".to_owned())
}

/// This many of some positions, evenly spread, the first and the last among them.
fn evenly_spaced(positions: &[u64], count: usize) -> Vec<u64> {
    if positions.len() <= count {
        return positions.to_vec();
    }
    (0..count).map(|index| positions[index * (positions.len() - 1) / (count - 1)]).collect()
}

fn transposed(grid: &TextGrid) -> TextGrid {
    let cells = grid.first().map_or(0, Vec::len);
    (0..cells).map(|column| grid.iter().map(|row| row[column].clone()).collect()).collect()
}

/// The widths of the columns of a grid.
fn widths(grid: &TextGrid) -> Vec<usize> {
    let cells = grid.first().map_or(0, Vec::len);
    (0..cells).map(|column| grid.iter().map(|row| display_width(&row[column])).max().unwrap_or(0)).collect()
}

fn width(grid: &TextGrid) -> usize {
    let widths = widths(grid);
    widths.iter().sum::<usize>() + COLUMN_GAP * widths.len().saturating_sub(1) + COLUMN_GAP
}

/// A grid in lines: labels and figures end at the same place of each column.
fn aligned(grid: &TextGrid, terminal: &Terminal) -> Vec<String> {
    let widths = widths(grid);
    let line = |(index, row): (usize, &Vec<String>)| {
        let mut text = format!("  {:width$}", row[0], width = widths[0]);
        text.extend(row.iter().zip(&widths).skip(1).map(|(cell, &width)| format!("  {cell:>width$}")));
        if index == 0 { terminal.paint(TextStyle::Faint, &text) } else { text }
    };
    grid.iter().enumerate().map(line).collect()
}

/// A grid in parts of as many columns as fit, each with the labels.
fn split_columns(grid: &TextGrid, max_width: usize) -> Vec<TextGrid> {
    let mut parts = Vec::new();
    let mut columns = 1..grid.first().map_or(0, Vec::len);
    let part = |from: usize, to: usize| -> TextGrid {
        grid.iter().map(|row| std::iter::once(&row[0]).chain(&row[from..to]).cloned().collect()).collect()
    };
    while !columns.is_empty() {
        let fits = |to: &usize| width(&part(columns.start, *to)) <= max_width;
        let to = (columns.start + 1..=columns.end).take_while(fits).last().unwrap_or(columns.start + 1);
        parts.push(part(columns.start, to));
        columns.start = to;
    }
    parts
}

/// The axis of a picture next to a table: linear from zero, or logarithmic where values are of many magnitudes.
pub(super) struct PlotTrack {
    ends: (f64, f64),
    is_log: bool,
    width: usize,
}

impl PlotTrack {
    /// The axis of some values, in this many columns; `None` where there is nothing to draw.
    pub fn new(values: impl Iterator<Item = f64>, is_log: bool, width: usize) -> Option<Self> {
        let (smallest, high) = min_max(values.filter(|value| value.is_finite()))?;
        let low = if is_log { smallest } else { smallest.min(0.0) };
        (high > low).then_some(Self { ends: (low, high), is_log, width })
    }

    fn column(&self, value: f64) -> usize {
        let value = if self.is_log { value.max(self.ends.0) } else { value };
        column_of(share_between(value, self.ends, self.is_log), self.width)
    }

    /// Marks from one value to another, later ones over earlier ones.
    pub fn row(&self, marks: impl Iterator<Item = ([f64; 2], char)>) -> String {
        let mut cells = vec![' '; self.width];
        for (ends, mark) in marks {
            let [from, to] = ends.map(|end| self.column(end));
            cells[from..=to].fill(mark);
        }
        cells.into_iter().collect()
    }

    /// Its ends above the picture.
    pub fn title(&self, unit: Unit) -> String {
        let text = |value: f64| if value == 0.0 { "0".to_owned() } else { units::value_text(value, unit) };
        let (low, high) = (text(self.ends.0), text(self.ends.1));
        let kind = if self.is_log { " log " } else { "" };
        let gap = self.width.saturating_sub(display_width(&low) + display_width(&high));
        let half = gap.saturating_sub(display_width(kind)) / 2;
        format!("{low}{:half$}{kind:<rest$}{high}", "", rest = gap - half)
    }
}
