//! The ladder: a row for each time on one logarithmic axis, with what is predicted and what a published machine took.

use kelvin_model::{AgainstPrediction, Rung};

use super::path::{self, number};
use crate::ladder::{Axis, label, published, reference};
use crate::safe::{Markup, html};
use crate::text::wrap;
use crate::{Report, palette, words};

/// How wide a ladder is, with the room for its names and for the figures behind the axis.
#[derive(Clone, Copy, Debug)]
struct Layout {
    width: f64,
    names: f64,
    figures: f64,
}

const WIDE: Layout = Layout { width: 720.0, names: 172.0, figures: 96.0 };
/// On a phone, where letters must not shrink.
const NARROW: Layout = Layout { width: 380.0, names: 140.0, figures: 84.0 };

/// Above the rows: the times of the axis.
const TOP: f64 = 24.0;
/// Height of a row, of the range of a prediction, and radius of what was measured.
const ROW: f64 = 22.0;
const RANGE: f64 = 10.0;
const RADIUS: f64 = 4.5;
/// Least width of a range, so that it is seen.
const LEAST_RANGE: f64 = 3.0;
/// How much further in a rung begins that continues the one above.
const INDENT: f64 = 12.0;
/// Below the rows: the legend, of two lines at most, and one of them.
const LEGEND: f64 = 30.0;
const LEGEND_LINE: f64 = 20.0;
/// Height of a line of a file's title, and how many characters fit into one.
const TITLE: f64 = 24.0;
const MOST_OF_TITLE: usize = 80;
/// White to either side of a file's ladder.
const MARGIN: f64 = 14.0;

/// A ladder of a report.
pub(crate) struct Ladder<'a> {
    report: &'a Report<'a>,
    rungs: &'a [Rung],
    axis: Axis,
    layout: Layout,
}

impl<'a> Ladder<'a> {
    /// That of a report with a first screen.
    pub(crate) fn of(report: &'a Report<'a>) -> Option<Self> {
        let rungs = report.analysis.screen.as_ref()?.rungs.as_slice();
        Some(Self { report, rungs, axis: Axis::of(rungs), layout: WIDE })
    }

    /// For the inside of a page, a wide one and a narrow one, of which the style sheet shows one; `link` is where a rung leads to. A
    /// table beside it says the same to who does not see it.
    pub(crate) fn inline(&self, link: impl Fn(&Rung) -> Option<String>) -> Markup {
        let drawing = |class: &str, layout: Layout| {
            let ladder = Self { layout, ..*self };
            html!(
                "<svg class=\"drawing {}\" viewBox=\"0 0 {} {}\" aria-hidden=\"true\">{}</svg>",
                class,
                layout.width,
                number(ladder.height()),
                ladder.drawn(&link)
            )
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
        let (width, height) = (self.layout.width + 2.0 * MARGIN, number(self.height() + above));
        html!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"drawing\" viewBox=\"-{} -{} {} {}\" width=\"{2}\" height=\"{3}\" \
             role=\"img\"><title>{}</title><style>{}</style><rect x=\"-{0}\" y=\"-{1}\" width=\"100%\" height=\"100%\" fill=\"#fff\"/>\
             {}{}</svg>\n",
            MARGIN,
            above,
            width,
            height,
            machine,
            palette::light(&super::style_sheet()),
            title.collect::<Markup>(),
            self.drawn(&|_: &Rung| None)
        )
        .into_string()
    }

    fn height(&self) -> f64 {
        TOP + ROW * self.rungs.len() as f64 + LEGEND + LEGEND_LINE * f64::from(u8::from(self.layout.width < WIDE.width))
    }

    fn across(&self, seconds: f64) -> f64 {
        self.place(self.axis.share(seconds))
    }

    /// Where a share of the axis is.
    fn place(&self, share: f64) -> f64 {
        let Layout { width, names, figures } = self.layout;
        names + share * (width - names - figures)
    }

    fn drawn(&self, link: &impl Fn(&Rung) -> Option<String>) -> Markup {
        let rows = self.rungs.iter().enumerate().map(|(row, rung)| {
            let drawn = self.row(rung, TOP + ROW * (row as f64 + 0.5));
            match link(rung) {
                Some(to) => html!("<a href=\"#{}\" tabindex=\"-1\">{}</a>", to, drawn),
                None => drawn,
            }
        });
        html!("{}{}{}", self.grid(), rows.collect::<Markup>(), self.legend())
    }

    /// The lines of the axis with their times.
    fn grid(&self) -> Markup {
        let bottom = TOP + ROW * self.rungs.len() as f64;
        let (mut lines, mut times) = (String::new(), Markup::new());
        for (share, time) in self.axis.labelled() {
            let x = self.place(share);
            lines.push_str(&format!("{}V{}", path::begin(x, TOP), number(bottom)));
            times.push(html!("<text x=\"{}\" y=\"{}\">{}</text>", number(x), TOP - 8.0, time));
        }
        html!("<path class=\"grid\" d=\"{}\"/><g text-anchor=\"middle\">{}</g>", lines, times)
    }

    fn row(&self, rung: &Rung, middle: f64) -> Markup {
        let figure = &rung.figure;
        let range = figure.predicted.as_ref().map(|predicted| {
            let (low, high) = (self.across(predicted.low), self.across(predicted.high));
            let width = (high - low).max(LEAST_RANGE);
            let from = f64::midpoint(low, high) - width / 2.0;
            html!("<path class=\"ladder-range\" d=\"{}\"/>", path::rectangle(from, middle - RANGE / 2.0, width, RANGE))
        });
        let there = reference(self.report).and_then(|(machine, _)| published(rung, machine));
        let there = there.map(|seconds| circle("ladder-published", self.across(seconds), middle));
        let measured = figure.measured.map(|measured| {
            let ends =
                format!("{}H{}", path::begin(self.across(measured.low), middle), number(self.across(measured.high)));
            let dot = circle(dot_class(figure.against), self.across(measured.value), middle);
            html!("<path class=\"ladder-interval\" d=\"{}\"/>{}", ends, dot)
        });
        let text_class = if figure.measured.is_some() { dot_class(figure.against) } else { "" };
        html!(
            "<g><title>{}</title><rect class=\"ladder-row\" y=\"{}\" width=\"{}\" height=\"{}\"/>\
             <text x=\"{}\" y=\"{}\">{}</text>{}{}{}<text class=\"ladder-figure {}\" x=\"{}\" y=\"{5}\" text-anchor=\"end\">{}{}</text></g>",
            hover(self.report, rung),
            number(middle - ROW / 2.0),
            self.layout.width,
            ROW,
            number(if rung.continues { INDENT } else { 0.0 }),
            number(middle + 4.0),
            rung.what,
            range,
            there,
            measured,
            text_class,
            self.layout.width - 14.0,
            figure.text,
            words::against_mark(figure.against)
        )
    }

    /// What the marks mean: below the axis, on a narrow ladder from its edge, in as many lines as it takes.
    fn legend(&self) -> Markup {
        let left = if self.layout.width < WIDE.width { RADIUS } else { self.layout.names };
        let (mut x, mut y) = (left, TOP + ROW * self.rungs.len() as f64 + 18.0);
        let mut legend = Markup::new();
        for (mark, text) in self.explained() {
            let width = 34.0 + text.chars().count() as f64 * super::CHARACTER;
            if x > left && x + width > self.layout.width + 14.0 {
                (x, y) = (left, y + LEGEND_LINE);
            }
            let shape = match mark {
                Mark::Range => {
                    let shape = path::rectangle(x - 2.0, y - RANGE / 2.0, 16.0, RANGE);
                    html!("<path class=\"ladder-range\" d=\"{}\"/>", shape)
                }
                Mark::Circle(class) => circle(class, x + 6.0, y),
            };
            legend.push(html!("{}<text x=\"{}\" y=\"{}\">{}</text>", shape, number(x + 18.0), number(y + 4.0), text));
            x += width;
        }
        legend
    }

    /// The marks that are there, and what they mean.
    fn explained(&self) -> Vec<(Mark, &str)> {
        let has = |against| self.rungs.iter().any(|rung| rung.figure.against == against);
        let mut marks = vec![(Mark::Range, "predicted"), (Mark::Circle("ladder-dot"), "measured")];
        if has(AgainstPrediction::Slower) {
            marks.push((Mark::Circle("ladder-dot slower"), "slower than predicted"));
        }
        if has(AgainstPrediction::Faster) {
            marks.push((Mark::Circle("ladder-dot faster"), "faster"));
        }
        if let Some((_, title)) = reference(self.report) {
            marks.push((Mark::Circle("ladder-published"), title));
        }
        marks
    }
}

/// A mark of the legend.
enum Mark {
    Range,
    Circle(&'static str),
}

/// What a pointer that rests on a rung is told.
fn hover(report: &Report<'_>, rung: &Rung) -> String {
    let figure = &rung.figure;
    let mut lines = vec![format!("{}: {}", label(rung).trim_start(), figure.text)];
    lines.extend(figure.why_not.clone());
    if let Some(predicted) = &figure.predicted {
        lines.push(format!("predicted {}", words::predicted_time(predicted)));
        lines.push(predicted.derivation.clone());
    }
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

fn circle(class: &str, x: f64, y: f64) -> Markup {
    html!("<circle class=\"{}\" cx=\"{}\" cy=\"{}\" r=\"{}\"/>", class, number(x), number(y), RADIUS)
}
