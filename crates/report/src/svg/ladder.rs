//! The ladder: a row for each time on one logarithmic axis, with what is predicted and what a published machine took.

pub(crate) mod compared;
mod frame;

use kelvin_core::{Estimate, OverviewFigure, PredictionVerdict, Rung};

use self::frame::{
    LadderFrame, LadderRow, LegendMark, NARROW_LAYOUT, RANGE_HEIGHT, WIDE_LAYOUT, circle, diamond, range_mark,
};
use super::{SvgFile, path, title_lines};
use crate::escape::{Markup, html};
use crate::ladder::{LadderAxis, compared_reference, label, published_seconds};
use crate::text::wrap;
use crate::{Report, labels};

/// Least width of a range, so that it is seen.
const MIN_RANGE_WIDTH: f64 = 3.0;
/// Height of a line of a file's title, and how many characters fit into one.
const TITLE_HEIGHT: f64 = 24.0;
const MAX_TITLE_CHARS: usize = 80;
/// The class of a mark where a figure is only as found.
const AS_FOUND_CLASS: &str = "ladder-found";
/// Room at the right edge for the word behind a figure: `slower`.
const VERDICT_WIDTH: f64 = 56.0;
/// White to either side of a file's ladder.
const MARGIN: f64 = 14.0;

/// A ladder of a report.
pub(crate) struct Ladder<'a> {
    report: &'a Report<'a>,
    rungs: &'a [Rung],
    frame: LadderFrame,
}

impl<'a> Ladder<'a> {
    /// The ladder of a report; `None` without a first screen.
    pub(crate) fn for_report(report: &'a Report<'a>) -> Option<Self> {
        let rungs = report.analysis.overview.as_ref()?.rungs.as_slice();
        Some(Self {
            report,
            rungs,
            frame: LadderFrame { axis: LadderAxis::for_rungs(rungs), rows: rungs.len(), layout: WIDE_LAYOUT },
        })
    }

    /// For the inside of a page; `link` is where a rung leads to.
    pub(crate) fn inline(&self, link: impl Fn(&Rung) -> Option<String>) -> Markup {
        self.frame.inline([WIDE_LAYOUT, NARROW_LAYOUT], &self.legend_entries(), |frame| self.body(frame, &link))
    }

    /// As a file of its own, with title, colours and a white ground.
    pub(crate) fn standalone(&self) -> String {
        let machine = labels::machine_line(self.report.run);
        let title = wrap(&machine, MAX_TITLE_CHARS);
        let title_height = TITLE_HEIGHT * title.len() as f64;
        let title = title_lines(&title, [0.0, 0.7 * TITLE_HEIGHT - title_height], TITLE_HEIGHT, "title");
        let legend = self.legend_entries();
        let content = html!("{}{}{}", title, self.body(&self.frame, &|_| None), self.frame.legend(&legend));
        let size = [self.frame.layout.width + 2.0 * MARGIN, self.frame.height(&legend) + title_height];
        SvgFile { title: &machine, description: None, margin: MARGIN, top_margin: title_height, size, content }.text()
    }

    fn body(&self, frame: &LadderFrame, link: &dyn Fn(&Rung) -> Option<String>) -> Markup {
        let rows = self.rungs.iter().enumerate();
        frame.body(rows.map(|(row, rung)| (link(rung), self.row(frame, rung, LadderFrame::row_middle(row)))))
    }

    fn row(&self, frame: &LadderFrame, rung: &Rung, middle: f64) -> Markup {
        let figure = &rung.figure;
        let range = figure.predicted.as_ref().map(|predicted| {
            let (low, high) = (frame.x_of(predicted.low), frame.x_of(predicted.high));
            let width = (high - low).max(MIN_RANGE_WIDTH);
            let left = f64::midpoint(low, high) - width / 2.0;
            path::element("ladder-range", path::rectangle(left, middle - RANGE_HEIGHT / 2.0, width, RANGE_HEIGHT))
        });
        let line = |low, high| path::horizontal(frame.x_of(low), frame.x_of(high), middle);
        let class = figure.class_range.as_ref();
        let class = class.map(|class| path::element("ladder-class", line(class.low, class.high)));
        let published = compared_reference(self.report).and_then(|(machine, _)| published_seconds(rung, machine));
        let published = published.map(|seconds| circle("ladder-published", frame.x_of(seconds), middle));
        let estimate_mark = figure.drawn_value().map(|Estimate { value, low, high, .. }| {
            let x = frame.x_of(value);
            let mark = match figure.measured {
                Some(_) => circle(dot_class(figure.verdict), x, middle),
                None => diamond(AS_FOUND_CLASS, x, middle),
            };
            html!("{}{}", path::element("ladder-interval", line(low, high)), mark)
        });
        let text_class = if figure.measured.is_some() { dot_class(figure.verdict) } else { "" };
        let hover = hover_text(self.report, rung);
        let row = LadderRow { label: &rung.label, continues: rung.continues, middle, hover, class: text_class };
        let (x, suffix) = (frame.layout.width - VERDICT_WIDTH + 5.0, labels::as_found_suffix(figure));
        let suffix = html!("<tspan x=\"{}\" text-anchor=\"start\">{}</tspan>", x, suffix);
        let text = html!("{}{}", figure.drawn_text(), suffix);
        frame.row(&row, &html!("{}{}{}{}", range, class, published, estimate_mark), (&text, VERDICT_WIDTH))
    }

    /// The marks that are there, and what they mean.
    fn legend_entries(&self) -> Vec<(LegendMark, &str)> {
        let class_mark: LegendMark = |x, y| path::element("ladder-class", path::horizontal(x - 8.0, x + 8.0, y));
        let has_rung =
            |predicate: &dyn Fn(&OverviewFigure) -> bool| self.rungs.iter().any(|rung| predicate(&rung.figure));
        let has_verdict = |verdict| has_rung(&|figure| figure.verdict == verdict);
        let marks: [(bool, LegendMark, &str); 6] = [
            (true, range_mark, "predicted"),
            (true, |x, y| circle("ladder-dot", x, y), "measured"),
            (has_rung(&|figure| figure.class_range.is_some()), class_mark, labels::CLASS_LABEL),
            (has_verdict(PredictionVerdict::Slower), |x, y| circle("ladder-dot slower", x, y), "slower than predicted"),
            (has_verdict(PredictionVerdict::Faster), |x, y| circle("ladder-dot faster", x, y), "faster"),
            (
                has_rung(&|figure| figure.as_found.is_some()),
                |x, y| diamond(AS_FOUND_CLASS, x, y),
                labels::AS_FOUND_LABEL,
            ),
        ];
        let marks = marks.into_iter().filter(|(is_shown, ..)| *is_shown).map(|(_, mark, text)| (mark, text));
        let published: LegendMark = |x, y| circle("ladder-published", x, y);
        marks.chain(compared_reference(self.report).map(|(_, title)| (published, title))).collect()
    }
}

/// The text shown while a pointer rests on a rung.
fn hover_text(report: &Report<'_>, rung: &Rung) -> String {
    let figure = &rung.figure;
    let mut lines = vec![format!("{}: {}", label(rung).trim_start(), labels::figure(figure))];
    lines.extend(figure.missing_reason.clone());
    if let Some(predicted) = &figure.predicted {
        lines.push(format!("predicted {}", labels::predicted_time_text(predicted)));
        lines.push(predicted.derivation.clone());
    }
    lines.extend(figure.class_range.as_ref().map(labels::class_time_text));
    if let Some((machine, title)) = compared_reference(report)
        && let Some(seconds) = published_seconds(rung, machine)
    {
        lines.push(format!("{title}: {}", labels::time_text(seconds)));
    }
    lines.join("\n")
}

fn dot_class(verdict: PredictionVerdict) -> &'static str {
    match verdict {
        PredictionVerdict::Slower => "ladder-dot slower",
        PredictionVerdict::Faster => "ladder-dot faster",
        PredictionVerdict::AsPredicted | PredictionVerdict::NotCompared => "ladder-dot",
    }
}
