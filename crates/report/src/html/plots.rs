//! Small plots inside a row: the ratio on a logarithmic bar, the distribution of samples, the rounds over time.

use std::fmt::Write as _;

use kelvin_analysis::{MetricResult, Summary};
use kelvin_model::Unit;

use super::esc;
use crate::units;

/// The ratio bar spans this factor to either side of 1.
const RATIO_SPAN: f64 = 4.0;
const RATIO_WIDTH: f64 = 104.0;

/// Measured over predicted on a bar centred at 1, with the unremarkable range shaded; the number stands beside it.
pub(super) fn ratio_bar(results: &[&MetricResult]) -> String {
    let ratios: Vec<f64> = results.iter().filter_map(|result| result.ratio).filter(|ratio| *ratio > 0.0).collect();
    let Some(prediction) = results.iter().find_map(|result| result.prediction.as_ref()) else { return String::new() };
    if ratios.is_empty() || prediction.value <= 0.0 {
        return String::new();
    }
    let at = |ratio: f64| {
        let share = (ratio.ln() / RATIO_SPAN.ln()).clamp(-1.0, 1.0);
        RATIO_WIDTH / 2.0 * (1.0 + share * 0.94)
    };
    let (from, to) = (at(prediction.low / prediction.value), at(prediction.high / prediction.value));
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let most = ratios.iter().copied().fold(0.0, f64::max);
    let middle = RATIO_WIDTH / 2.0;
    let mut svg = format!(
        "<svg class=\"ratio\" viewBox=\"0 0 {RATIO_WIDTH} 16\" width=\"{RATIO_WIDTH}\" height=\"16\" aria-hidden=\"true\">\
         <path class=\"track\" d=\"M2 8H{:.0}\"/><rect class=\"fine\" x=\"{from:.1}\" y=\"3\" width=\"{:.1}\" height=\"10\" rx=\"2\"/>\
         <path class=\"one\" d=\"M{middle} 1V15\"/>",
        RATIO_WIDTH - 2.0,
        (to - from).max(1.0),
    );
    if ratios.len() > 1 {
        let _ = write!(svg, "<path class=\"reach\" d=\"M{:.1} 8H{:.1}\"/>", at(least), at(most));
    }
    for ratio in [least, most] {
        svg.push_str(&ratio_mark(ratio, at(ratio)));
    }
    svg.push_str("</svg>");
    svg
}

/// A dot, or an arrow where the ratio lies beyond the bar.
fn ratio_mark(ratio: f64, x: f64) -> String {
    if ratio > RATIO_SPAN {
        format!("<path class=\"mark\" d=\"M{:.1} 3l7 5l-7 5z\"/>", x - 3.0)
    } else if ratio < 1.0 / RATIO_SPAN {
        format!("<path class=\"mark\" d=\"M{:.1} 3l-7 5l7 5z\"/>", x + 3.0)
    } else {
        format!("<circle class=\"mark\" cx=\"{x:.1}\" cy=\"8\" r=\"3.5\"/>")
    }
}

const STRIP_WIDTH: f64 = 340.0;
const STRIP_MARGIN: f64 = 12.0;

/// The distribution of samples: whiskers from the lowest to the 99th percentile, a box of the quartiles, the median,
/// and a tick for each mode.
pub(super) fn distribution(summary: &Summary, unit: Unit) -> String {
    let d = &summary.distribution;
    let (low, high) = (d.min, d.p99.max(d.p95));
    if !(low.is_finite() && high.is_finite()) || high <= low {
        return String::new();
    }
    let at = |value: f64| {
        let share = ((value - low) / (high - low)).clamp(0.0, 1.0);
        STRIP_MARGIN + share * (STRIP_WIDTH - 2.0 * STRIP_MARGIN)
    };
    let text = |value: f64| units::plain(value, unit);
    let label = format!(
        "Distribution: lowest {}, quartiles {} and {}, median {}, 95th percentile {}, 99th {}, highest {}.",
        text(d.min),
        text(d.p25),
        text(d.p75),
        text(d.p50),
        text(d.p95),
        text(d.p99),
        text(d.max)
    );
    let mut svg = format!(
        "<svg class=\"strip\" viewBox=\"0 0 {STRIP_WIDTH} 54\" role=\"img\" aria-label=\"{}\">\
         <path class=\"whisker\" d=\"M{:.1} 20H{:.1}\"/><path class=\"reach\" d=\"M{:.1} 20H{:.1}\"/>\
         <rect class=\"box\" x=\"{:.1}\" y=\"10\" width=\"{:.1}\" height=\"20\" rx=\"2\"/><path class=\"median\" d=\"M{:.1} 7V33\"/>",
        esc(&label),
        at(low),
        at(high),
        at(d.p5),
        at(d.p95),
        at(d.p25),
        (at(d.p75) - at(d.p25)).max(1.0),
        at(d.p50),
    );
    for mode in &summary.modes {
        let _ = write!(svg, "<path class=\"mode\" d=\"M{:.1} 5l-4 -5h8z\"/>", at(mode.center));
    }
    let _ = write!(
        svg,
        "<text x=\"{STRIP_MARGIN}\" y=\"50\">{}</text><text x=\"{:.1}\" y=\"50\" text-anchor=\"end\">p99 {}</text></svg>",
        esc(&text(low)),
        STRIP_WIDTH - STRIP_MARGIN,
        esc(&text(high))
    );
    svg
}

/// The headline of each round over the course of the run, with the interval as a band.
pub(super) fn rounds(summary: &Summary, unit: Unit) -> String {
    let values = &summary.round_headlines;
    if values.len() < 2 || values.len() != summary.round_times.len() {
        return String::new();
    }
    let interval = summary.interval.map_or((summary.headline, summary.headline), |i| (i.lower, i.upper));
    let low = values.iter().copied().fold(interval.0, f64::min);
    let high = values.iter().copied().fold(interval.1, f64::max);
    let end = summary.round_times.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    if !(low.is_finite() && high.is_finite()) || high <= low {
        return String::new();
    }
    let x = |time: f64| STRIP_MARGIN + time / end * (STRIP_WIDTH - 2.0 * STRIP_MARGIN);
    let y = |value: f64| 6.0 + (high - value) / (high - low) * 42.0;
    let label = format!(
        "Headlines of {} rounds, from {} to {}.",
        values.len(),
        units::plain(low, unit),
        units::plain(high, unit)
    );
    let mut svg = format!(
        "<svg class=\"strip\" viewBox=\"0 0 {STRIP_WIDTH} 54\" role=\"img\" aria-label=\"{}\">\
         <rect class=\"fine\" x=\"0\" y=\"{:.1}\" width=\"{STRIP_WIDTH}\" height=\"{:.1}\"/>\
         <path class=\"median\" d=\"M0 {:.1}H{STRIP_WIDTH}\"/>",
        esc(&label),
        y(interval.1),
        (y(interval.0) - y(interval.1)).max(1.0),
        y(summary.headline)
    );
    for (&time, &value) in summary.round_times.iter().zip(values) {
        let _ = write!(svg, "<circle class=\"mark\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"3.5\"/>", x(time), y(value));
    }
    svg.push_str("</svg>");
    svg
}
