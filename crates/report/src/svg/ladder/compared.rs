//! The ladders of two sides on one axis: what a shift there is between the ring of the base and the dot of the other.

use kelvin_analysis::wording::compare::{change_word, ratio_text};
use kelvin_core::{ChangeVerdict, ComparedRung, Comparison};

use super::super::{RowLayout, path};
use super::frame::{LadderFrame, LadderRow, LegendMark, NARROW_LAYOUT, WIDE_LAYOUT, circle, ring};
use crate::escape::{Markup, html};
use crate::labels;
use crate::ladder::LadderAxis;

/// With room behind the axis for a ratio and a verdict.
const LAYOUTS: [RowLayout; 2] =
    [RowLayout { figures: 124.0, ..WIDE_LAYOUT }, RowLayout { figures: 84.0, ..NARROW_LAYOUT }];

/// How it looks where nothing changed, or nobody knows.
const OPEN_CLASS: &str = "open";

/// What the marks of either side mean.
const LEGEND_MARKS: [(LegendMark, &str); 2] =
    [(|x, y| ring("ladder-base", x, y), "A"), (|x, y| circle("ladder-dot", x, y), "B")];

/// The ladders of the sides of a comparison for the inside of a page; `link` is where a figure leads to.
pub(crate) fn inline(comparison: &Comparison, link: impl Fn(usize) -> String) -> Markup {
    let rungs = &comparison.ladder;
    let axis = LadderAxis::for_times(rungs.iter().flat_map(|rung| rung.seconds).flatten());
    let frame = LadderFrame { axis, rows: rungs.len(), layout: WIDE_LAYOUT };
    frame.inline(LAYOUTS, &LEGEND_MARKS, |frame| {
        let row = |(index, rung): (usize, &ComparedRung)| {
            (rung.figure.map(&link), draw_row(comparison, frame, rung, LadderFrame::row_middle(index)))
        };
        frame.body(rungs.iter().enumerate().map(row))
    })
}

fn draw_row(comparison: &Comparison, frame: &LadderFrame, rung: &ComparedRung, middle: f64) -> Markup {
    let figure = rung.figure.map(|figure| &comparison.figures[figure]);
    let class = figure.map_or(OPEN_CLASS, |figure| verdict_class(&figure.verdict));
    let [base, other] = rung.seconds.map(|seconds| seconds.map(|seconds| frame.x_of(seconds)));
    let shift = base
        .zip(other)
        .map(|(base, other)| path::element(&format!("ladder-shift {class}"), path::horizontal(base, other, middle)));
    let base = base.map(|x| ring("ladder-base", x, middle));
    let other = other.map(|x| circle(&format!("ladder-dot {class}"), x, middle));
    // On a narrow ladder there is room for the verdicts of changes only.
    let outcome = match ratio_and_verdict(rung, comparison) {
        _ if frame.layout.width >= WIDE_LAYOUT.width => rung_outcome(rung, comparison),
        None => "–".into(),
        Some((ratio, verdict)) if verdict_class(verdict) == OPEN_CLASS => ratio,
        Some(_) => rung_outcome(rung, comparison),
    };
    let row = LadderRow { label: &rung.label, continues: rung.continues, middle, hover: hover_text(rung), class };
    frame.row(&row, &html!("{}{}{}", shift, base, other), (&outcome.into(), 2.0))
}

/// The time of a rung in B over that in A, also where the figure is a rate, and its verdict; none where a side has no time.
fn ratio_and_verdict<'c>(rung: &ComparedRung, comparison: &'c Comparison) -> Option<(String, &'c ChangeVerdict)> {
    let (base, other) = rung.seconds[0].zip(rung.seconds[1])?;
    Some((ratio_text(other / base), &comparison.figures[rung.figure?].verdict))
}

/// Ratio and verdict of a rung in words.
pub(crate) fn rung_outcome(rung: &ComparedRung, comparison: &Comparison) -> String {
    ratio_and_verdict(rung, comparison)
        .map_or_else(|| "not compared".into(), |(ratio, verdict)| format!("{ratio} {}", change_word(verdict)))
}

/// The text shown while a pointer rests on a rung.
fn hover_text(rung: &ComparedRung) -> String {
    let [base, other] = rung.seconds.map(|seconds| seconds.map_or_else(|| "not known".to_owned(), labels::time_text));
    format!("{}\nA: {base}\nB: {other}", rung.label)
}

/// How a verdict looks.
pub(crate) fn verdict_class(verdict: &ChangeVerdict) -> &'static str {
    match verdict {
        ChangeVerdict::Worse => "bad",
        ChangeVerdict::Better => "good",
        ChangeVerdict::Higher | ChangeVerdict::Lower => "changed",
        ChangeVerdict::Same | ChangeVerdict::NotKnown(_) => OPEN_CLASS,
    }
}
