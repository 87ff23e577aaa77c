//! A figure as a sum: a bar for each part, which begins where the one above it ends, and below them the whole.

use kelvin_analysis::words::why::Worded;
use kelvin_model::{Estimate, Explanation, Part, PartOf};

use super::CHARACTER;
use super::path::{self, number};
use crate::palette;
use crate::safe::{Markup, html};
use crate::text::wrap;

/// How wide a drawing is, with the room for its names and for the amounts behind the bars.
#[derive(Clone, Copy, Debug)]
struct Layout {
    width: f64,
    names: f64,
    amounts: f64,
}

const WIDE: Layout = Layout { width: 720.0, names: 220.0, amounts: 132.0 };
/// On a phone, where letters must not shrink.
const NARROW: Layout = Layout { width: 380.0, names: 130.0, amounts: 116.0 };
/// Above the rows: the shares of the axis.
const TOP: f64 = 24.0;
/// Height of a row of one line, of each further line of its name, of its bar, and of the ends of its interval.
const ROW: f64 = 26.0;
const LINE: f64 = 14.0;
const BAR: f64 = 12.0;
const WHISKER: f64 = 8.0;
/// Between the names and the axis, and beyond its end.
const GAP: f64 = 12.0;
/// How much further in the name of a part of a row begins.
const INDENT: f64 = 12.0;
/// Least width of a bar, so that it is seen.
const LEAST: f64 = 1.5;
/// Shares at which the axis has a line, in percent.
const STEP: i32 = 25;
/// Most lines of the axis to either side of nothing: a remainder may be many times the figure.
const MOST_LINES: i32 = 8;
/// Height of a line of a file's title, how many characters fit into one, and the white around it.
const TITLE: f64 = 20.0;
const MOST_OF_TITLE: usize = 96;
const MARGIN: f64 = 14.0;

/// A row: shares of the figure.
struct Bar<'w> {
    what: &'w str,
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
    bars: Vec<Bar<'w>>,
    said: &'w Worded,
}

impl<'w> Waterfall<'w> {
    /// That of an explanation, in words already.
    pub(crate) fn of(explanation: &Explanation, said: &'w Worded) -> Self {
        let of_host = |part: &Part| {
            let cause = explanation.causes.iter().find(|cause| part.of == PartOf::Cause(cause.id))?;
            Some((cause.of_host?.share, "bar s4"))
        };
        let shares = explanation.parts.iter().flat_map(|part| {
            let class = if matches!(part.of, PartOf::Cause(_)) { "bar s1" } else { "bar s0" };
            std::iter::once((part.share.share, class)).chain(of_host(part))
        });
        let (mut begun, mut sum) = (0.0, 0.0);
        let parts =
            shares.chain([(explanation.not_explained.share, "bar s2")]).zip(&said.rows).map(|((share, class), row)| {
                // A part of the row above begins where that one does.
                let from = if row.is_within { begun } else { sum };
                if !row.is_within {
                    (begun, sum) = (sum, sum + share.value);
                }
                let text = format!("{} {}, {}", row.amount, said.unit, row.share);
                Bar {
                    what: &row.what,
                    is_within: row.is_within,
                    from,
                    to: from + share.value,
                    ends: ends(from, &share),
                    text,
                    shown_by: &row.shown_by,
                    class,
                }
            });
        let mut bars: Vec<Bar<'_>> = parts.collect();
        let whole = explanation.whole.over(explanation.whole.value);
        let text = format!("{} {}, 100 %", said.whole, said.unit);
        let ends = ends(0.0, &whole);
        bars.push(Bar {
            what: "all of it",
            is_within: false,
            from: 0.0,
            to: whole.value,
            ends,
            text,
            shown_by: "as found",
            class: "bar s3",
        });
        Self { bars, said }
    }

    /// For the inside of a page, a wide one and a narrow one, of which the style sheet shows one. A table beside it says the same to who
    /// does not see it.
    pub(crate) fn inline(&self) -> Markup {
        let drawing = |class: &str, layout: Layout| {
            let (drawn, height) = self.drawn(layout);
            html!(
                "<svg class=\"drawing {}\" viewBox=\"0 0 {} {}\" aria-hidden=\"true\">{}</svg>",
                class,
                layout.width,
                number(height),
                drawn
            )
        };
        html!("{}{}", drawing("wide", WIDE), drawing("narrow", NARROW))
    }

    /// As a file of its own, with title, colours and a white ground.
    pub(crate) fn standalone(&self) -> String {
        let lines: Vec<String> = self.said.sentences.iter().flat_map(|text| wrap(text, MOST_OF_TITLE)).collect();
        let lines: Vec<&String> = lines.iter().filter(|line| !line.is_empty()).collect();
        let above = TITLE * lines.len() as f64;
        let title = lines.iter().enumerate().map(|(at, text)| {
            let class = if at == 0 { "title" } else { "" };
            let y = TITLE * (at as f64 + 0.8) - above;
            html!("<text class=\"{}\" x=\"0\" y=\"{}\">{}</text>", class, number(y), text.as_str())
        });
        let (drawn, height) = self.drawn(WIDE);
        let rows = self.bars.iter().map(|bar| format!("{}: {}", bar.what, bar.text)).collect::<Vec<_>>().join("; ");
        html!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"drawing\" viewBox=\"-{} -{} {} {}\" width=\"{2}\" height=\"{3}\" \
             role=\"img\"><title>{}</title><desc>{}</desc><style>{}</style><rect x=\"-{0}\" y=\"-{1}\" width=\"100%\" height=\"100%\" \
             fill=\"#fff\"/>{}{}</svg>\n",
            MARGIN,
            number(above + MARGIN),
            WIDE.width + 2.0 * MARGIN,
            number(height + above + 2.0 * MARGIN),
            self.said.sentences.first().map_or("", String::as_str),
            rows,
            palette::light(&super::style_sheet()),
            title.collect::<Markup>(),
            drawn
        )
        .into_string()
    }

    /// What is drawn, and how high it is.
    fn drawn(&self, layout: Layout) -> (Markup, f64) {
        let (low, high) = self.reach();
        let room = layout.width - layout.names - layout.amounts - 2.0 * GAP;
        let across = |share: f64| layout.names + GAP + (share - low) / (high - low) * room;
        let (mut rows, mut top, mut before) = (Markup::new(), TOP, None);
        for bar in &self.bars {
            let (row, height) = bar.row(layout, top, &across);
            if let Some(bottom) = before.replace(top + ROW / 2.0 + BAR / 2.0) {
                let is_whole = std::ptr::eq(bar, &self.bars[self.bars.len() - 1]);
                let x = across(if is_whole { bar.to } else { bar.from });
                let link = format!("{}V{}", path::begin(x, bottom), number(top + ROW / 2.0 - BAR / 2.0));
                rows.push(html!("<path class=\"mark-line\" d=\"{}\"/>", link));
            }
            rows.push(row);
            top += height;
        }
        (html!("{}{}", axis(top, (low, high), across), rows), top)
    }

    /// The least and the largest share to be seen.
    fn reach(&self) -> (f64, f64) {
        let ends = self.bars.iter().flat_map(|bar| bar.ends.into_iter().flatten().chain([bar.from, bar.to]));
        let most = f64::from(STEP * MOST_LINES) / 100.0;
        let (low, high) = ends.fold((0.0f64, 1.0f64), |(low, high), share| (low.min(share), high.max(share)));
        (low.max(-most), high.min(most))
    }
}

/// Where a part ends by its interval, from where it begins; none of one that has none.
fn ends(from: f64, share: &Estimate) -> Option<[f64; 2]> {
    (share.low < share.high).then_some([from + share.low, from + share.high])
}

/// The lines of the axis with their shares.
fn axis(bottom: f64, (low, high): (f64, f64), across: impl Fn(f64) -> f64) -> Markup {
    let (mut lines, mut labels, mut free_from) = (String::new(), Markup::new(), f64::NEG_INFINITY);
    for percent in (-MOST_LINES..=MOST_LINES).map(|line| line * STEP) {
        let share = f64::from(percent) / 100.0;
        if !(low..=high).contains(&share) {
            continue;
        }
        let (x, label) = (across(share), format!("{percent} %"));
        lines.push_str(&format!("{}V{}", path::begin(x, TOP), number(bottom)));
        let half = label.chars().count() as f64 * CHARACTER / 2.0;
        // A label that would touch the one before it is left out; its line stays.
        if x - half >= free_from {
            labels.push(html!("<text x=\"{}\" y=\"{}\">{}</text>", number(x), TOP - 8.0, label));
            free_from = x + half + CHARACTER;
        }
    }
    html!("<path class=\"grid\" d=\"{}\"/><g text-anchor=\"middle\">{}</g>", lines, labels)
}

impl Bar<'_> {
    /// The row, and how high it is.
    fn row(&self, layout: Layout, top: f64, across: &impl Fn(f64) -> f64) -> (Markup, f64) {
        let middle = top + ROW / 2.0;
        let names = wrap(self.what, (layout.names / CHARACTER) as usize);
        let name = names.iter().enumerate().map(|(at, line)| {
            let x = if self.is_within { INDENT } else { 0.0 };
            html!("<text x=\"{}\" y=\"{}\">{}</text>", x, number(middle + 4.0 + LINE * at as f64), line.as_str())
        });
        // What lies beyond the axis ends at its edge.
        let within = |share: f64| across(share).clamp(layout.names, layout.width - layout.amounts);
        let [one, other] = [self.from, self.to].map(within);
        let width = (other - one).abs().max(LEAST);
        let bar = path::rectangle(one.min(other), middle - BAR / 2.0, width, BAR);
        let whisker = self.ends.map(|ends| {
            let [low, high] = ends.map(within);
            let (at, end) = (middle - WHISKER / 2.0, number(WHISKER));
            let line = format!("{}H{}", path::begin(low, middle), number(high));
            let ends = format!("{}v{end}{}v{end}", path::begin(low, at), path::begin(high, at));
            html!("<path class=\"whisker\" d=\"{}{}\"/>", ends, line)
        });
        let row = html!(
            "<g><title>{}</title>{}<path class=\"{}\" d=\"{}\"/>{}<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text></g>",
            [self.what, &self.text, self.shown_by].join("\n").trim_end(),
            name.collect::<Markup>(),
            self.class,
            bar,
            whisker,
            layout.width,
            number(middle + 4.0),
            self.text.as_str()
        );
        (row, ROW + LINE * (names.len().max(1) - 1) as f64)
    }
}
