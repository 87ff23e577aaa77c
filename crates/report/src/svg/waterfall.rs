//! A figure as a sum: a bar for each part, which begins where the one above it ends, and below them the whole.

use kelvin_analysis::wording::explanation::ExplanationText;
use kelvin_core::{Estimate, ExplainedPart, Explanation, PartKind};

use super::{
    CHARACTER_WIDTH, GridLines, RowLayout, SvgFile, anchored_text, path, text_at, title_lines, wide_and_narrow,
};
use crate::escape::{Markup, html};
use crate::text::wrap;

const WIDE_LAYOUT: RowLayout = RowLayout { width: 720.0, names: 220.0, figures: 132.0 };
/// On a phone, where letters must not shrink.
const NARROW_LAYOUT: RowLayout = RowLayout { width: 380.0, names: 130.0, figures: 116.0 };
/// Above the rows: the shares of the axis.
const TOP: f64 = 24.0;
/// Height of a row of one line, of each further line of its name, of its bar, and of the ends of its interval.
const ROW_HEIGHT: f64 = 26.0;
const TEXT_LINE_HEIGHT: f64 = 14.0;
const BAR_HEIGHT: f64 = 12.0;
const WHISKER_HEIGHT: f64 = 8.0;
/// Between the names and the axis, and beyond its end.
const LABEL_GAP: f64 = 12.0;
/// How much further in the name of a part of a row begins.
const INDENT_WIDTH: f64 = 12.0;
/// Least width of a bar, so that it is seen.
const MIN_BAR_WIDTH: f64 = 1.5;
/// Shares at which the axis has a line, in percent.
const GRID_STEP_PERCENT: i32 = 25;
/// Most lines of the axis to either side of nothing: a remainder may be many times the figure.
const MAX_GRID_LINES: i32 = 8;
/// Height of a line of a file's title, how many characters fit into one, and the white around it.
const TITLE_HEIGHT: f64 = 20.0;
const MAX_TITLE_CHARS: usize = 96;
const MARGIN: f64 = 14.0;

/// A row: shares of the figure.
struct WaterfallBar<'w> {
    label: &'w str,
    /// Whether it is a part of the row above.
    is_within: bool,
    from: f64,
    to: f64,
    /// Where its end may be.
    ends: Option<[f64; 2]>,
    text: String,
    shown_by: &'w str,
    /// A colour of its kind.
    class: &'static str,
}

/// An explanation as a waterfall.
pub(crate) struct Waterfall<'w> {
    bars: Vec<WaterfallBar<'w>>,
    explanation_text: &'w ExplanationText,
}

impl<'w> Waterfall<'w> {
    /// The waterfall of an explanation and its text.
    pub(crate) fn new(explanation: &Explanation, explanation_text: &'w ExplanationText) -> Self {
        let host_share = |part: &ExplainedPart| {
            let cause = explanation.causes.iter().find(|cause| part.kind == PartKind::Cause(cause.id))?;
            Some((cause.host_share?.share, "bar s4"))
        };
        let shares = explanation.parts.iter().flat_map(|part| {
            let class = if matches!(part.kind, PartKind::Cause(_)) { "bar s1" } else { "bar s0" };
            std::iter::once((part.share.share, class)).chain(host_share(part))
        });
        let (mut parent_start, mut sum) = (0.0, 0.0);
        let parts = shares.chain([(explanation.not_explained.share, "bar s2")]).zip(&explanation_text.rows).map(
            |((share, class), row)| {
                // A part of the row above begins where that one does.
                let from = if row.is_within { parent_start } else { sum };
                if !row.is_within {
                    (parent_start, sum) = (sum, sum + share.value);
                }
                let text = format!("{} {}, {}", row.amount, explanation_text.unit, row.share);
                WaterfallBar {
                    label: &row.label,
                    is_within: row.is_within,
                    from,
                    to: from + share.value,
                    ends: interval_ends(from, &share),
                    text,
                    shown_by: &row.shown_by,
                    class,
                }
            },
        );
        let mut bars: Vec<WaterfallBar<'_>> = parts.collect();
        let share = explanation.whole.divided_by(explanation.whole.value);
        let text = format!("{} {}, 100 %", explanation_text.total, explanation_text.unit);
        let ends = interval_ends(0.0, &share);
        bars.push(WaterfallBar {
            label: "all of it",
            is_within: false,
            from: 0.0,
            to: share.value,
            ends,
            text,
            shown_by: "as measured",
            class: "bar s3",
        });
        Self { bars, explanation_text }
    }

    /// For the inside of a page.
    pub(crate) fn inline(&self) -> Markup {
        wide_and_narrow([WIDE_LAYOUT, NARROW_LAYOUT], |layout| self.body(layout))
    }

    /// As a file of its own, with title, colours and a white ground.
    pub(crate) fn standalone(&self) -> String {
        let lines = self.explanation_text.sentences.iter().flat_map(|text| wrap(text, MAX_TITLE_CHARS));
        let lines: Vec<String> = lines.filter(|line| !line.is_empty()).collect();
        let title_height = TITLE_HEIGHT * lines.len() as f64;
        let (title, subtitle) = lines.split_at(lines.len().min(1));
        let baseline = 0.8 * TITLE_HEIGHT - title_height;
        let title = title_lines(title, [0.0, baseline], TITLE_HEIGHT, "title");
        let subtitle = title_lines(subtitle, [0.0, baseline + TITLE_HEIGHT], TITLE_HEIGHT, "");
        let (content, height) = self.body(WIDE_LAYOUT);
        let rows = self.bars.iter().map(|bar| format!("{}: {}", bar.label, bar.text)).collect::<Vec<_>>().join("; ");
        let file = SvgFile {
            title: self.explanation_text.sentences.first().map_or("", String::as_str),
            description: Some(rows),
            margin: MARGIN,
            top_margin: title_height + MARGIN,
            size: [WIDE_LAYOUT.width + 2.0 * MARGIN, height + title_height + 2.0 * MARGIN],
            content: html!("{}{}{}", title, subtitle, content),
        };
        file.text()
    }

    /// What is drawn, and how high it is.
    fn body(&self, layout: RowLayout) -> (Markup, f64) {
        let (low, high) = self.share_range();
        let axis_width = layout.width - layout.names - layout.figures - 2.0 * LABEL_GAP;
        let x_of = |share: f64| layout.names + LABEL_GAP + (share - low) / (high - low) * axis_width;
        let (mut rows, mut top, mut previous_bottom) = (Markup::new(), TOP, None);
        for bar in &self.bars {
            let (row, height) = bar.row(layout, top, &x_of);
            if let Some(bottom) = previous_bottom.replace(top + ROW_HEIGHT / 2.0 + BAR_HEIGHT / 2.0) {
                let is_total = std::ptr::eq(bar, &self.bars[self.bars.len() - 1]);
                let x = x_of(if is_total { bar.to } else { bar.from });
                let link = path::vertical(x, bottom, top + ROW_HEIGHT / 2.0 - BAR_HEIGHT / 2.0);
                rows.push(path::element("mark-line", link));
            }
            rows.push(row);
            top += height;
        }
        let shares = (-MAX_GRID_LINES..=MAX_GRID_LINES).map(|line| line * GRID_STEP_PERCENT);
        let shares = shares.map(|percent| (f64::from(percent) / 100.0, format!("{percent} %")));
        let ticks = shares.filter(|(share, _)| (low..=high).contains(share));
        let lines = GridLines { top: TOP, bottom: top, labels: TOP - 8.0, right: f64::INFINITY };
        (html!("{}{}", lines.markup(ticks.map(|(share, label)| (x_of(share), label))), rows), top)
    }

    /// The least and the largest share to be seen.
    fn share_range(&self) -> (f64, f64) {
        let ends = self.bars.iter().flat_map(|bar| bar.ends.into_iter().flatten().chain([bar.from, bar.to]));
        let limit = f64::from(GRID_STEP_PERCENT * MAX_GRID_LINES) / 100.0;
        let (low, high) = ends.fold((0.0f64, 1.0f64), |(low, high), share| (low.min(share), high.max(share)));
        (low.max(-limit), high.min(limit))
    }
}

/// Where a part ends by its interval, from where it begins; none of one that has none.
fn interval_ends(from: f64, share: &Estimate) -> Option<[f64; 2]> {
    (share.low < share.high).then_some([from + share.low, from + share.high])
}

impl WaterfallBar<'_> {
    /// The row, and how high it is.
    fn row(&self, layout: RowLayout, top: f64, x_of: &impl Fn(f64) -> f64) -> (Markup, f64) {
        let middle = top + ROW_HEIGHT / 2.0;
        let names = wrap(self.label, (layout.names / CHARACTER_WIDTH) as usize);
        let x = if self.is_within { INDENT_WIDTH } else { 0.0 };
        let name = names.iter().enumerate();
        let name = name.map(|(index, line)| text_at(x, middle + 4.0 + TEXT_LINE_HEIGHT * index as f64, line));
        // What lies beyond the axis ends at its edge.
        let clamped_x = |share: f64| x_of(share).clamp(layout.names, layout.width - layout.figures);
        let [from, to] = [self.from, self.to].map(clamped_x);
        let width = (to - from).abs().max(MIN_BAR_WIDTH);
        let bar = path::rectangle(from.min(to), middle - BAR_HEIGHT / 2.0, width, BAR_HEIGHT);
        let whisker = self.ends.map(|ends| path::whisker(ends.map(clamped_x), middle, WHISKER_HEIGHT));
        let whisker = whisker.map(|whisker| path::element("whisker", whisker));
        let bar = html!("{}{}{}", name.collect::<Markup>(), path::element(self.class, bar), whisker);
        let amount = anchored_text([layout.width, middle + 4.0], "end", self.text.as_str());
        let title = [self.label, &self.text, self.shown_by].join("\n");
        let row = html!("<g><title>{}</title>{}{}</g>", title.trim_end(), bar, amount);
        (row, ROW_HEIGHT + TEXT_LINE_HEIGHT * (names.len().max(1) - 1) as f64)
    }
}
