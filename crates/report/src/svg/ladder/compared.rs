//! The ladders of two sides on one axis: what a shift there is between the ring of the base and the dot of the other.

use kelvin_analysis::wording::compare::{change_word, ratio_text};
use kelvin_core::{ChangeVerdict, ComparedRung, Comparison};

use super::super::path;
use super::frame::{LadderFrame, LadderLayout, LadderMark, LadderRow, NARROW_LAYOUT, WIDE_LAYOUT, circle, ring};
use crate::escape::{Markup, html};
use crate::labels;
use crate::ladder::LadderAxis;

/// Room behind the axis for a ratio and a verdict, on a wide ladder and on a narrow one, which has verdicts of changes only.
const FIGURE_WIDTHS: [f64; 2] = [124.0, 84.0];

/// How it looks where nothing changed, or nobody knows.
const OPEN_CLASS: &str = "open";

/// What the marks of either side mean.
const LEGEND_MARKS: [(LadderMark, &str); 2] =
    [(LadderMark::Ring("ladder-base"), "A"), (LadderMark::Circle("ladder-dot"), "B")];

/// The ladders of two sides.
pub(crate) struct ComparedLadders<'a> {
    comparison: &'a Comparison,
    frame: LadderFrame,
}

impl<'a> ComparedLadders<'a> {
    /// Those of a comparison.
    pub(crate) fn new(comparison: &'a Comparison) -> Self {
        let rungs = &comparison.ladder;
        let axis = LadderAxis::for_times(rungs.iter().flat_map(|rung| rung.seconds).flatten());
        Self { comparison, frame: LadderFrame { axis, rows: rungs.len(), layout: WIDE_LAYOUT } }
    }

    /// For the inside of a page, a wide one and a narrow one, of which the style sheet shows one; `link` is where a figure leads to. A
    /// table beside it says the same to who does not see it.
    pub(crate) fn inline(&self, link: impl Fn(usize) -> String) -> Markup {
        let drawing = |class, layout: LadderLayout, figures: f64| {
            let layout = LadderLayout { figures, ..layout };
            let ladder = Self { frame: LadderFrame { layout, ..self.frame }, ..*self };
            ladder.frame.inline(class, &ladder.body(&link), &LEGEND_MARKS)
        };
        html!(
            "{}{}",
            drawing("wide", WIDE_LAYOUT, FIGURE_WIDTHS[0]),
            drawing("narrow", NARROW_LAYOUT, FIGURE_WIDTHS[1])
        )
    }

    fn body(&self, link: &impl Fn(usize) -> String) -> Markup {
        let rows = self.comparison.ladder.iter().enumerate();
        let row = |(index, rung)| self.row(rung, LadderFrame::row_middle(index));
        self.frame.body(rows.map(|(index, rung)| (rung.figure.map(link), row((index, rung)))))
    }

    fn row(&self, rung: &ComparedRung, middle: f64) -> Markup {
        let figure = rung.figure.map(|figure| &self.comparison.figures[figure]);
        let class = figure.map_or(OPEN_CLASS, |figure| verdict_class(&figure.verdict));
        let [base, other] = rung.seconds.map(|seconds| seconds.map(|seconds| self.frame.x_of(seconds)));
        let shift = base.zip(other).map(|(base, other)| {
            path::element(&format!("ladder-shift {class}"), path::horizontal(base, other, middle))
        });
        let marks = html!(
            "{}{}{}",
            shift,
            base.map(|x| ring("ladder-base", x, middle)),
            other.map(|x| circle(&format!("ladder-dot {class}"), x, middle))
        );
        let row = LadderRow { what: &rung.label, continues: rung.continues, middle, hover: hover_text(rung), class };
        self.frame.row(&row, &marks, (&self.outcome(rung).into(), 2.0))
    }

    /// What became of a rung, as far as there is room for it.
    fn outcome(&self, rung: &ComparedRung) -> String {
        match ratio_and_verdict(rung, self.comparison) {
            _ if self.frame.layout.width >= WIDE_LAYOUT.width => rung_outcome(rung, self.comparison),
            None => "–".into(),
            Some((ratio, verdict)) if verdict_class(verdict) == OPEN_CLASS => ratio,
            Some(_) => rung_outcome(rung, self.comparison),
        }
    }
}

/// What became of a rung: the time in B over that in A, whatever the figure is in, and the verdict of that; none where not both have one.
fn ratio_and_verdict<'c>(rung: &ComparedRung, comparison: &'c Comparison) -> Option<(String, &'c ChangeVerdict)> {
    let (base, other) = rung.seconds[0].zip(rung.seconds[1])?;
    Some((ratio_text(other / base), &comparison.figures[rung.figure?].verdict))
}

/// Ratio and verdict of a rung in words.
pub(crate) fn rung_outcome(rung: &ComparedRung, comparison: &Comparison) -> String {
    ratio_and_verdict(rung, comparison)
        .map_or_else(|| "not compared".into(), |(ratio, of_figure)| format!("{ratio} {}", change_word(of_figure)))
}

/// What a pointer that rests on a rung is told.
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
