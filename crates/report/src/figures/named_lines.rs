//! The lines of curves with their names in figures.

use kelvin_core::{Case, Name};

use crate::labels;
use crate::sections::{CommonAxes, Curve, CurveSeries};

/// Longest name of a line that a legend has room for.
const MAX_NAME_CHARS: usize = 40;

/// A line of a curve as a figure shows it.
pub(super) struct NamedLine<'a> {
    pub(super) line: &'a CurveSeries<'a>,
    /// What it is called there.
    pub(super) name: String,
    /// The colour and marker of its series.
    pub(super) style: usize,
}

/// The lines of a figure, or of several figures that share their parameters.
pub(super) struct FigureLines<'a> {
    pub(super) lines: Vec<NamedLine<'a>>,
    /// What they have alike, where it is left out of their names.
    common_axes: CommonAxes,
}

impl<'a> FigureLines<'a> {
    /// Lines by their labels; where one is too long, by what distinguishes them.
    pub(super) fn new(curve: &Curve<'_>, lines: impl Iterator<Item = &'a CurveSeries<'a>> + Clone) -> Self {
        let common_axes = match lines.clone().all(|line| line.label.chars().count() <= MAX_NAME_CHARS) {
            true => CommonAxes::default(),
            false => CommonAxes::of_cases(curve.metric, lines.clone().map(|line| &line.fixed)),
        };
        let name = |line: &CurveSeries<'_>| labels::case_words(curve.metric, &common_axes.rest_of(&line.fixed));
        let lines = lines.enumerate().map(|(style, line)| NamedLine { line, name: name(line), style }).collect();
        Self { lines, common_axes }
    }

    /// The lines of a part of a curve, by what distinguishes them there: the value on this axis is in the part's title.
    pub(super) fn of_part(
        curve: &Curve<'_>,
        lines: impl Iterator<Item = &'a CurveSeries<'a>> + Clone,
        axis: Name,
    ) -> Self {
        let of_part = |line: &CurveSeries<'_>| line.fixed.iter().filter(|(name, _)| *name != axis).collect::<Case>();
        let mut named = Self::new(curve, lines);
        for line in &mut named.lines {
            line.name = labels::case_words(curve.metric, &named.common_axes.rest_of(&of_part(line.line)));
        }
        named
    }

    /// What distinguishes a line, as it is in an id.
    pub(super) fn case_text(&self, curve: &Curve<'_>, line: &NamedLine<'_>) -> String {
        self.common_axes.rest_text(curve.metric, &line.line.fixed)
    }

    /// What all lines have alike, as a sentence, where their names leave it out.
    pub(super) fn common_axes_text(&self) -> Option<String> {
        self.common_axes.sentence()
    }
}
