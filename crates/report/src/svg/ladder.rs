//! The ladder: a row for each time on one logarithmic axis, with what is predicted and what a published machine took.

mod frame;
pub(crate) mod two;

use kelvin_model::{AgainstPrediction, Estimate, Rung};

use self::frame::{Frame, Mark, NARROW, RANGE, Row, WIDE, circle, diamond};
use super::path::{self, number};
use crate::ladder::{Axis, label, published, reference};
use crate::safe::{Markup, html};
use crate::text::wrap;
use crate::{Report, palette, words};

/// Least width of a range, so that it is seen.
const LEAST_RANGE: f64 = 3.0;
/// Height of a line of a file's title, and how many characters fit into one.
const TITLE: f64 = 24.0;
const MOST_OF_TITLE: usize = 80;
/// The class of a mark where a figure is only as found.
const AS_FOUND: &str = "ladder-found";
/// Room at the right edge for the word behind a figure: `slower`.
const VERDICT: f64 = 56.0;
/// White to either side of a file's ladder.
const MARGIN: f64 = 14.0;

/// A ladder of a report.
pub(crate) struct Ladder<'a> {
    report: &'a Report<'a>,
    rungs: &'a [Rung],
    frame: Frame,
}

impl<'a> Ladder<'a> {
    /// That of a report with a first screen.
    pub(crate) fn of(report: &'a Report<'a>) -> Option<Self> {
        let rungs = report.analysis.screen.as_ref()?.rungs.as_slice();
        Some(Self { report, rungs, frame: Frame { axis: Axis::of(rungs), rows: rungs.len(), layout: WIDE } })
    }

    /// For the inside of a page, a wide one and a narrow one, of which the style sheet shows one; `link` is where a rung leads to. A
    /// table beside it says the same to who does not see it.
    pub(crate) fn inline(&self, link: impl Fn(&Rung) -> Option<String>) -> Markup {
        let drawing = |class, layout| {
            let ladder = Self { frame: Frame { layout, ..self.frame }, ..*self };
            ladder.frame.inline(class, &ladder.drawn(&link), &ladder.explained())
        };
        html!("{}{}", drawing("wide", WIDE), drawing("narrow", NARROW))
    }

    /// As a file of its own, with title, colours and a white ground.
    pub(crate) fn standalone(&self) -> String {
        let machine = words::machine_line(self.report.run);
        let title = wrap(&machine, MOST_OF_TITLE);
        let above = TITLE * title.len() as f64;
        let title = title.iter().enumerate().map(|(line, text)| {
            let y = TITLE * (line as f64 + 0.7) - above;
            html!("<text class=\"title\" x=\"0\" y=\"{}\">{}</text>", number(y), text)
        });
        let (width, height) =
            (self.frame.layout.width + 2.0 * MARGIN, number(self.frame.height(&self.explained()) + above));
        html!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"drawing\" viewBox=\"-{} -{} {} {}\" width=\"{2}\" height=\"{3}\" \
             role=\"img\"><title>{}</title><style>{}</style><rect x=\"-{0}\" y=\"-{1}\" width=\"100%\" height=\"100%\" fill=\"#fff\"/>\
             {}{}{}</svg>\n",
            MARGIN,
            above,
            width,
            height,
            machine,
            palette::light(&super::style_sheet()),
            title.collect::<Markup>(),
            self.drawn(&|_: &Rung| None),
            self.frame.legend(&self.explained())
        )
        .into_string()
    }

    fn drawn(&self, link: &impl Fn(&Rung) -> Option<String>) -> Markup {
        let rows = self.rungs.iter().enumerate().map(|(row, rung)| {
            let drawn = self.row(rung, Frame::middle(row));
            match link(rung) {
                Some(to) => html!("<a href=\"#{}\" tabindex=\"-1\">{}</a>", to, drawn),
                None => drawn,
            }
        });
        html!("{}{}", self.frame.grid(), rows.collect::<Markup>())
    }

    fn row(&self, rung: &Rung, middle: f64) -> Markup {
        let figure = &rung.figure;
        let range = figure.predicted.as_ref().map(|predicted| {
            let (low, high) = (self.frame.across(predicted.low), self.frame.across(predicted.high));
            let width = (high - low).max(LEAST_RANGE);
            let from = f64::midpoint(low, high) - width / 2.0;
            html!("<path class=\"ladder-range\" d=\"{}\"/>", path::rectangle(from, middle - RANGE / 2.0, width, RANGE))
        });
        let class = figure.of_class.as_ref().map(|class| {
            let ends = format!(
                "{}H{}",
                path::begin(self.frame.across(class.low), middle),
                number(self.frame.across(class.high))
            );
            html!("<path class=\"ladder-class\" d=\"{}\"/>", ends)
        });
        let there = reference(self.report).and_then(|(machine, _)| published(rung, machine));
        let there = there.map(|seconds| circle("ladder-published", self.frame.across(seconds), middle));
        let drawn = figure.drawn().map(|Estimate { value, low, high, .. }| {
            let ends = format!("{}H{}", path::begin(self.frame.across(low), middle), number(self.frame.across(high)));
            let at = self.frame.across(value);
            let mark = match figure.measured {
                Some(_) => circle(dot_class(figure.against), at, middle),
                None => diamond(AS_FOUND, at, middle),
            };
            html!("<path class=\"ladder-interval\" d=\"{}\"/>{}", ends, mark)
        });
        let text_class = if figure.measured.is_some() { dot_class(figure.against) } else { "" };
        let hover = hover(self.report, rung);
        let row = Row { what: &rung.what, continues: rung.continues, middle, hover, class: text_class };
        let text = html!(
            "{}<tspan x=\"{}\" text-anchor=\"start\">{}</tspan>",
            figure.drawn_text(),
            self.frame.layout.width - VERDICT + 5.0,
            words::behind(figure)
        );
        self.frame.row(&row, &html!("{}{}{}{}", range, class, there, drawn), (&text, VERDICT))
    }

    /// The marks that are there, and what they mean.
    fn explained(&self) -> Vec<(Mark, &str)> {
        let has = |against| self.rungs.iter().any(|rung| rung.figure.against == against);
        let mut marks = vec![(Mark::Range, "predicted"), (Mark::Circle("ladder-dot"), "measured")];
        if self.rungs.iter().any(|rung| rung.figure.of_class.is_some()) {
            marks.push((Mark::Line("ladder-class"), words::OF_CLASS));
        }
        if has(AgainstPrediction::Slower) {
            marks.push((Mark::Circle("ladder-dot slower"), "slower than predicted"));
        }
        if has(AgainstPrediction::Faster) {
            marks.push((Mark::Circle("ladder-dot faster"), "faster"));
        }
        if self.rungs.iter().any(|rung| rung.figure.as_found.is_some()) {
            marks.push((Mark::Diamond(AS_FOUND), words::AS_FOUND));
        }
        if let Some((_, title)) = reference(self.report) {
            marks.push((Mark::Circle("ladder-published"), title));
        }
        marks
    }
}

/// What a pointer that rests on a rung is told.
fn hover(report: &Report<'_>, rung: &Rung) -> String {
    let figure = &rung.figure;
    let mut lines = vec![format!("{}: {}", label(rung).trim_start(), words::figure(figure))];
    lines.extend(figure.why_not.clone());
    if let Some(predicted) = &figure.predicted {
        lines.push(format!("predicted {}", words::predicted_time(predicted)));
        lines.push(predicted.derivation.clone());
    }
    lines.extend(figure.of_class.as_ref().map(words::usual_time));
    if let Some((machine, title)) = reference(report)
        && let Some(seconds) = published(rung, machine)
    {
        lines.push(format!("{title}: {}", words::time(seconds)));
    }
    lines.join("\n")
}

fn dot_class(against: AgainstPrediction) -> &'static str {
    match against {
        AgainstPrediction::Slower => "ladder-dot slower",
        AgainstPrediction::Faster => "ladder-dot faster",
        AgainstPrediction::AsPredicted | AgainstPrediction::NotCompared => "ladder-dot",
    }
}
