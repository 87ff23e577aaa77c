//! A history as one page of its own: a small picture of each series, without any script.

use std::io;

use kelvin_analysis::wording::history::{
    change_counts, direction, history_title, remarks, run_day, series_name, share_text,
};
use kelvin_core::units::brief_value;
use kelvin_core::{History, HistoryChange, HistoryChangeKind, SeriesHistory, VersionHistory};
use kelvin_stats::median;

use super::sparkline::MIN_RELATIVE_RANGE;
use super::{newest_changes, sections, series_texts};
use crate::escape::{Markup, html};
use crate::figures::FigureAxis;
use crate::html::page_shell::PageShell;
use crate::html::pill;
use crate::scale::{AxisScaling, Tick};
use crate::svg::{anchored_text, labelled, path, text_at};

const STYLE: &str = include_str!("../../assets/history.css");
const WIDTH: f64 = 340.0;
const HEIGHT: f64 = 120.0;
/// Room around the plot: labels of the values, a dot at an end, days below.
const LEFT: f64 = 64.0;
const RIGHT: f64 = 8.0;
const TOP: f64 = 8.0;
const BOTTOM: f64 = 20.0;
/// Ticks of the axis of values that have a label.
const MAX_LABELLED_TICKS: usize = 4;
/// From this many values on there is a line and no dots.
const MAX_DOTS: usize = 80;

/// Writes a history as a page: small pictures that open offline, print, and fit a phone; light and dark.
///
/// # Errors
/// Those of the writer.
pub fn write_page(history: &History, out: &mut dyn io::Write) -> io::Result<()> {
    let texts = std::iter::once(change_counts(history)).chain(remarks(history));
    let texts: Markup = texts.map(|text| html!("<p>{}</p>", text)).collect();
    let sections = sections(history).into_iter().map(|(title, series)| section(title, &series, history));
    let (lead, sections) = (history_title(history), sections.collect::<Markup>());
    let body = html!("<h1>History</h1><p class=\"lead\">{}</p>{}{}", lead, texts, sections);
    let title = history.cpu_model.as_deref().unwrap_or("a machine");
    PageShell { subject: "history", title, style: STYLE, body }.write(out)
}

fn section(title: &str, series: &[&SeriesHistory], history: &History) -> Markup {
    let cards: Markup = series.iter().map(|series| card(series, history)).collect();
    html!("<section><h2>{} ({})</h2><div class=\"multiples\">{}</div></section>", title, series.len(), cards)
}

fn card(series: &SeriesHistory, history: &History) -> Markup {
    let better = series.metric.better;
    let last = series.last_change().map(|change| {
        let word = direction(change, better);
        let class = match word {
            "worse" => "bad",
            "better" => "good",
            _ => "",
        };
        pill(class, format!("{} {word}", share_text(change.ratio())))
    });
    let texts = series_texts(series, history, newest_changes(series), usize::MAX, true);
    let items: Markup = texts.iter().map(|text| html!("<li>{}</li>", text)).collect();
    let list = (!items.is_empty()).then(|| html!("<ul>{}</ul>", items));
    let (latest, first) = (brief_value(series.latest(), None, series.metric.unit), share_text(series.since_first()));
    let figures = html!("<p class=\"figures\"><b>{}</b> {} since the first {}</p>", latest, first, last);
    let caption = html!("<figcaption><h3>{}</h3>{}</figcaption>", series_name(series), figures);
    html!("<figure class=\"multiple\">{}{}{}</figure>", caption, series_svg(series, history), list)
}

/// Where runs and values lie in a picture.
struct PlotArea<'h> {
    history: &'h History,
    values: AxisScaling,
}

impl PlotArea<'_> {
    fn x_of(&self, run: f64) -> f64 {
        let last = self.history.runs.len().saturating_sub(1).max(1) as f64;
        LEFT + run / last * (WIDTH - LEFT - RIGHT)
    }

    fn y_of(&self, value: f64) -> f64 {
        TOP + (1.0 - self.values.share_of_value(value)) * (HEIGHT - TOP - BOTTOM)
    }
}

fn series_svg(series: &SeriesHistory, history: &History) -> Markup {
    let mut values: Vec<f64> =
        series.versions.iter().flat_map(|version| version.points.iter().map(|point| point.value)).collect();
    // What is steady looks so.
    let middle = median(&values);
    values.extend([1.0 - MIN_RELATIVE_RANGE / 2.0, 1.0 + MIN_RELATIVE_RANGE / 2.0].map(|share| middle * share));
    let axis = FigureAxis::new("", series.metric.unit).without_zero();
    let area = PlotArea { history, values: AxisScaling::linear(&values, &axis, 0.08) };
    let marks = |version: &VersionHistory| version.changes.iter().map(|change| mark(change, &area)).collect::<Markup>();
    let versions: Markup =
        series.versions.iter().map(|version| html!("{}{}", marks(version), line(version, &area))).collect();
    let breaks: Markup = series.versions.iter().skip(1).map(|version| version_break(version, &area)).collect();
    let label = format!("{} over {} runs", series_name(series), history.runs.len());
    labelled([WIDTH, HEIGHT], &label, html!("{}{}{}", axes(&area), versions, breaks))
}

/// The grid with the labels of values, and the first and the last day.
fn axes(area: &PlotArea<'_>) -> Markup {
    let ticks = area.values.ticks();
    let step = ticks.len().div_ceil(MAX_LABELLED_TICKS).max(1);
    let y_of = |tick: &Tick| TOP + (1.0 - area.values.share(tick.position)) * (HEIGHT - TOP - BOTTOM);
    let ticks = || ticks.iter().step_by(step);
    let grid: String = ticks().map(|tick| path::horizontal(LEFT, WIDTH - RIGHT, y_of(tick))).collect();
    let labels: Markup = ticks().map(|tick| text_at(LEFT - 6.0, y_of(tick) + 4.0, &tick.label)).collect();
    let runs = &area.history.runs;
    let first = runs.first().map(|run| text_at(LEFT, HEIGHT - 4.0, run_day(run)));
    let last = runs.last().filter(|_| runs.len() > 1);
    let last = last.map(|run| anchored_text([WIDTH - RIGHT, HEIGHT - 4.0], "end", run_day(run)));
    html!("{}<g text-anchor=\"end\">{}</g>{}{}", path::element("grid", grid), labels, first, last)
}

/// The values of a version, as a line and dots: never joined with those of another.
fn line(version: &VersionHistory, area: &PlotArea<'_>) -> Markup {
    let positions = || version.points.iter().map(|point| (area.x_of(point.run as f64), area.y_of(point.value)));
    let dots: String = positions().map(|(x, y)| path::dot_at(x, y)).collect();
    let dots = (version.points.len() <= MAX_DOTS).then(|| path::element("dot s0", dots));
    html!("{}{}", path::element("line s0", path::polyline(positions())), dots)
}

/// The place of a change as a band, and the levels on either side of a step.
fn mark(change: &HistoryChange, area: &PlotArea<'_>) -> Markup {
    let [from, to] = change.run_interval.map(|run| run as f64);
    let from = if change.kind == HistoryChangeKind::Step { from - 1.0 } else { from };
    let (left, right) = (area.x_of(from.max(0.0)), area.x_of(to));
    let band = path::rectangle(left, TOP, (right - left).max(1.0), HEIGHT - TOP - BOTTOM);
    let level =
        |x: f64, value: f64, length: f64| format!("{}h{}", path::move_to(x, area.y_of(value)), path::number(length));
    let levels = level((left - 24.0).max(LEFT), change.before, 24.0) + &level(right, change.after, 24.0);
    html!("{}{}", path::element("guide", band), path::element("level", levels))
}

fn version_break(version: &VersionHistory, area: &PlotArea<'_>) -> Markup {
    let first = version.points.first().map_or(0.0, |point| point.run as f64);
    let x = area.x_of((first - 0.5).max(0.0));
    path::element("mark-line", path::vertical(x, TOP, HEIGHT - BOTTOM))
}
