//! The ladders of two sides on one axis: what a shift there is between the ring of the base and the dot of the other.

use kelvin_analysis::words::compare::{ratio, verdict};
use kelvin_model::{ChangeVerdict, ComparedRung, Comparison};

use super::super::path::{self, number};
use super::frame::{Frame, Layout, Mark, NARROW, Row, WIDE, circle, ring};
use crate::ladder::Axis;
use crate::safe::{Markup, html};
use crate::words;

/// Room behind the axis for a ratio and a verdict, on a wide ladder and on a narrow one, which has verdicts of changes only.
const FIGURES: [f64; 2] = [124.0, 84.0];

/// How it looks where nothing changed, or nobody knows.
const OPEN: &str = "open";

/// What the marks of either side mean.
const MARKS: [(Mark, &str); 2] = [(Mark::Ring("ladder-base"), "A"), (Mark::Circle("ladder-dot"), "B")];

/// The ladders of two sides.
pub(crate) struct TwoLadders<'a> {
    comparison: &'a Comparison,
    frame: Frame,
}

impl<'a> TwoLadders<'a> {
    /// Those of a comparison.
    pub(crate) fn of(comparison: &'a Comparison) -> Self {
        let rungs = &comparison.ladder;
        let axis = Axis::over(rungs.iter().flat_map(|rung| rung.seconds).flatten());
        Self { comparison, frame: Frame { axis, rows: rungs.len(), layout: WIDE } }
    }

    /// For the inside of a page, a wide one and a narrow one, of which the style sheet shows one; `link` is where a figure leads to. A
    /// table beside it says the same to who does not see it.
    pub(crate) fn inline(&self, link: impl Fn(usize) -> String) -> Markup {
        let drawing = |class, layout: Layout, figures: f64| {
            let layout = Layout { figures, ..layout };
            let ladder = Self { frame: Frame { layout, ..self.frame }, ..*self };
            ladder.frame.inline(class, &ladder.drawn(&link), &MARKS)
        };
        html!("{}{}", drawing("wide", WIDE, FIGURES[0]), drawing("narrow", NARROW, FIGURES[1]))
    }

    fn drawn(&self, link: &impl Fn(usize) -> String) -> Markup {
        let rows = self.comparison.ladder.iter().enumerate().map(|(at, rung)| {
            let drawn = self.row(rung, Frame::middle(at));
            match rung.figure {
                Some(figure) => html!("<a href=\"#{}\" tabindex=\"-1\">{}</a>", link(figure), drawn),
                None => drawn,
            }
        });
        html!("{}{}", self.frame.grid(), rows.collect::<Markup>())
    }

    fn row(&self, rung: &ComparedRung, middle: f64) -> Markup {
        let figure = rung.figure.map(|figure| &self.comparison.figures[figure]);
        let class = figure.map_or(OPEN, |figure| class(&figure.verdict));
        let [base, other] = rung.seconds.map(|seconds| seconds.map(|seconds| self.frame.across(seconds)));
        let shift = base.zip(other).map(|(base, other)| {
            html!("<path class=\"ladder-shift {}\" d=\"{}H{}\"/>", class, path::begin(base, middle), number(other))
        });
        let marks = html!(
            "{}{}{}",
            shift,
            base.map(|x| ring("ladder-base", x, middle)),
            other.map(|x| circle(&format!("ladder-dot {class}"), x, middle))
        );
        let row = Row { what: &rung.what, continues: rung.continues, middle, hover: hover(rung), class };
        self.frame.row(&row, &marks, (&self.outcome(rung).into(), 2.0))
    }

    /// What became of a rung, as far as there is room for it.
    fn outcome(&self, rung: &ComparedRung) -> String {
        match became(rung, self.comparison) {
            _ if self.frame.layout.width >= WIDE.width => outcome(rung, self.comparison),
            None => "–".into(),
            Some((ratio, verdict)) if class(verdict) == OPEN => ratio,
            Some(_) => outcome(rung, self.comparison),
        }
    }
}

/// What became of a rung: the time in B over that in A, whatever the figure is in, and the verdict of that; none where not both have one.
fn became<'c>(rung: &ComparedRung, comparison: &'c Comparison) -> Option<(String, &'c ChangeVerdict)> {
    let (base, other) = rung.seconds[0].zip(rung.seconds[1])?;
    Some((ratio(other / base), &comparison.figures[rung.figure?].verdict))
}

/// The same in words.
pub(crate) fn outcome(rung: &ComparedRung, comparison: &Comparison) -> String {
    became(rung, comparison)
        .map_or_else(|| "not compared".into(), |(ratio, of_figure)| format!("{ratio} {}", verdict(of_figure)))
}

/// What a pointer that rests on a rung is told.
fn hover(rung: &ComparedRung) -> String {
    let [base, other] = rung.seconds.map(|seconds| seconds.map_or_else(|| "not known".to_owned(), words::time));
    format!("{}\nA: {base}\nB: {other}", rung.what)
}

/// How a verdict looks.
pub(crate) fn class(verdict: &ChangeVerdict) -> &'static str {
    match verdict {
        ChangeVerdict::Worse => "bad",
        ChangeVerdict::Better => "good",
        ChangeVerdict::Higher | ChangeVerdict::Lower => "changed",
        ChangeVerdict::Same | ChangeVerdict::NotKnown(_) => OPEN,
    }
}
