//! Small plots inside a row: the ratio on a logarithmic bar, the distribution of samples, the rounds over time.

use kelvin_analysis::{MetricResult, Summary};
use kelvin_core::Unit;
use kelvin_stats::min_max;

use crate::escape::{Markup, html};
use crate::svg::{anchored_text, path, text_at, unlabelled};
use crate::units;

/// The ratio bar spans this factor on either side of 1.
const RATIO_SPAN: f64 = 4.0;
const RATIO_WIDTH: f64 = 104.0;

/// Measured over predicted on a bar centred at 1, with the predicted range shaded, next to the number.
pub(super) fn ratio_bar(results: &[&MetricResult]) -> Markup {
    let ratios = results.iter().filter_map(|result| result.ratio).filter(|ratio| *ratio > 0.0);
    let predictions = results.iter().find_map(|result| result.prediction.as_ref());
    let predictions = predictions.filter(|prediction| prediction.value > 0.0);
    let (Some((low, high)), Some(prediction)) = (min_max(ratios), predictions) else { return Markup::new() };
    let x_of = |ratio: f64| {
        let share = (ratio.ln() / RATIO_SPAN.ln()).clamp(-1.0, 1.0);
        RATIO_WIDTH / 2.0 * (1.0 + share * 0.94)
    };
    let (from, to) = (x_of(prediction.low / prediction.value), x_of(prediction.high / prediction.value));
    let mut svg = path::element("fine", path::rectangle(from, 3.0, (to - from).max(1.0), 10.0));
    let scale = path::horizontal(2.0, RATIO_WIDTH - 2.0, 8.0) + &path::vertical(RATIO_WIDTH / 2.0, 1.0, 15.0);
    svg.push(path::element("scale", scale));
    if high > low {
        svg.push(path::element("reach", path::horizontal(x_of(low), x_of(high), 8.0)));
        svg.push(ratio_mark(low, x_of(low)));
    }
    svg.push(ratio_mark(high, x_of(high)));
    unlabelled("ratio", [RATIO_WIDTH, 16.0], svg)
}

/// A dot, or an arrow if the ratio is beyond the bar.
fn ratio_mark(ratio: f64, x: f64) -> Markup {
    match ratio {
        _ if ratio > RATIO_SPAN => path::element("mark", path::move_to(x - 3.0, 3.0) + "l7 5-7 5z"),
        _ if ratio < 1.0 / RATIO_SPAN => path::element("mark", path::move_to(x + 3.0, 3.0) + "l-7 5 7 5z"),
        _ => path::element("dots", path::dot_at(x, 8.0)),
    }
}

const STRIP_WIDTH: f64 = 340.0;
const STRIP_HEIGHT: f64 = 54.0;
const STRIP_MARGIN: f64 = 12.0;

/// The distribution of samples: whiskers from the lowest to the 99th percentile, a box of the quartiles, the median,
/// and a tick for each mode.
pub(super) fn distribution(summary: &Summary, unit: Unit) -> Markup {
    let d = &summary.distribution;
    let (low, high) = (d.min, d.p99.max(d.p95));
    if !(low.is_finite() && high.is_finite()) || high <= low {
        return Markup::new();
    }
    let x_of = |value: f64| {
        let share = ((value - low) / (high - low)).clamp(0.0, 1.0);
        (STRIP_MARGIN + share * (STRIP_WIDTH - 2.0 * STRIP_MARGIN)).round()
    };
    let quartiles = path::rectangle(x_of(d.p25), 10.0, (x_of(d.p75) - x_of(d.p25)).max(1.0), 20.0);
    let mut svg = path::element("whisker", path::horizontal(x_of(low), x_of(high), 20.0));
    svg.push(path::element("reach", path::horizontal(x_of(d.p5), x_of(d.p95), 20.0)));
    svg.push(path::element("box", quartiles));
    svg.push(path::element("median", path::vertical(x_of(d.p50), 7.0, 33.0)));
    let modes = summary.modes.iter();
    svg.extend(modes.map(|mode| path::element("mode", path::move_to(x_of(mode.center), 5.0) + "l-4-5h8z")));
    svg.push(text_at(x_of(low), 50.0, units::value_text(low, unit)));
    svg.push(anchored_text([x_of(high), 50.0], "end", format!("p99 {}", units::value_text(high, unit))));
    unlabelled("strip", [STRIP_WIDTH, STRIP_HEIGHT], svg)
}

/// The headline of each round over the course of the run, with the interval as a band.
pub(super) fn rounds(summary: &Summary) -> Markup {
    let values = &summary.round_headlines;
    if values.len() < 2 || values.len() != summary.round_times.len() {
        return Markup::new();
    }
    let interval = summary.interval.map_or((summary.headline, summary.headline), |i| (i.lower, i.upper));
    let low = values.iter().copied().fold(interval.0, f64::min);
    let high = values.iter().copied().fold(interval.1, f64::max);
    let end = summary.round_times.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    if !(low.is_finite() && high.is_finite()) || high <= low {
        return Markup::new();
    }
    let x = |time: f64| (STRIP_MARGIN + time / end * (STRIP_WIDTH - 2.0 * STRIP_MARGIN)).round();
    let y = |value: f64| 6.0 + (high - value) / (high - low) * 42.0;
    let dots = summary.round_times.iter().zip(values).map(|(&time, &value)| path::dot_at(x(time), y(value)));
    let band = path::rectangle(0.0, y(interval.1), STRIP_WIDTH, (y(interval.0) - y(interval.1)).max(1.0));
    let (band, dots) = (path::element("fine", band), path::element("dots", dots.collect::<String>()));
    let median = path::element("median", path::horizontal(0.0, STRIP_WIDTH, y(summary.headline)));
    let drawing = html!("{}{}{}", band, median, dots);
    unlabelled("strip", [STRIP_WIDTH, STRIP_HEIGHT], drawing)
}
