//! The ratios of some figures on one logarithmic axis, with 1 in its middle and the band of what counts as the same.

use kelvin_core::{ChangeVerdict, ComparedFigure};

use crate::escape::{Markup, html};
use crate::svg::ladder::compared::verdict_class;
use crate::svg::{path, text_at, unlabelled};

const WIDTH: f64 = 240.0;
const HEIGHT: f64 = 22.0;
/// Room at either end: half of a mark, and half of a label of the axis.
const MARGIN: f64 = 18.0;
/// The axis reaches at least this many thresholds, so that the band is seen as one, and no further than this factor: what lies beyond is
/// an arrow.
const MIN_REACH: f64 = 4.0;
const MAX_REACH: f64 = 8.0;
/// How much further than the farthest ratio it reaches.
const REACH_MARGIN: f64 = 1.15;
/// Ratios that an axis can have a label at, on either side of 1.
const TICKS_ABOVE: [f64; 15] = [1.001, 1.005, 1.01, 1.02, 1.03, 1.05, 1.1, 1.2, 1.3, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0];
const TICKS_BELOW: [f64; 15] = [0.999, 0.995, 0.99, 0.98, 0.97, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.125];
/// Radius of a mark.
const RADIUS: f64 = 4.5;

/// The axis of the ratios of a table.
pub(super) struct Forest {
    /// The logarithm at its right end.
    reach: f64,
    threshold: f64,
}

impl Forest {
    /// One on which all ratios are seen.
    pub fn for_figures<'f>(figures: impl Iterator<Item = &'f ComparedFigure>, threshold: f64) -> Self {
        let max_distance = figures
            .map(|figure| figure.ratio.value.ln().abs())
            .filter(|distance| distance.is_finite())
            .fold(0.0, f64::max);
        let shortest = (MIN_REACH * threshold).ln_1p();
        Self { reach: (REACH_MARGIN * max_distance).clamp(shortest, shortest.max(MAX_REACH.ln())), threshold }
    }

    /// Where a ratio is; what lies beyond an end is beyond it.
    fn x_of(&self, ratio: f64) -> f64 {
        WIDTH / 2.0 + ratio.ln() / self.reach * (WIDTH / 2.0 - MARGIN)
    }

    /// Where a ratio is, at the edge if it lies beyond.
    fn clamped_x(&self, ratio: f64) -> f64 {
        self.x_of(ratio).clamp(2.0, WIDTH - 2.0)
    }

    /// The labels of the axis.
    pub fn axis(&self) -> Markup {
        let farthest = |ticks: &[f64]| ticks.iter().copied().rfind(|tick| tick.ln().abs() <= self.reach);
        let ticks = [farthest(&TICKS_BELOW), Some(1.0), farthest(&TICKS_ABOVE)].into_iter().flatten();
        let labels: Markup = ticks.map(|ratio| text_at(self.x_of(ratio), 14.0, ratio.to_string())).collect();
        let labels = html!("<g text-anchor=\"middle\">{}</g>", labels);
        html!("<svg class=\"drawing forest\" viewBox=\"0 0 {} 18\">{}</svg>", WIDTH, labels)
    }

    /// A figure on it: its interval, and a mark for its ratio whose shape is its verdict.
    pub fn row(&self, figure: &ComparedFigure) -> Markup {
        let middle = HEIGHT / 2.0;
        let [low, high] = [1.0 - self.threshold, 1.0 + self.threshold].map(|ratio| self.clamped_x(ratio));
        let (from, to) = (self.clamped_x(figure.ratio.low), self.clamped_x(figure.ratio.high));
        let class = if figure.ratio.is_range { "range" } else { "reach" };
        let mut drawing = path::element("same", path::rectangle(low, 0.0, high - low, HEIGHT));
        drawing.push(path::element("one", path::vertical(WIDTH / 2.0, 0.0, HEIGHT)));
        drawing.push(path::element(class, path::horizontal(from, to, middle)));
        drawing.push(self.mark(figure, middle));
        unlabelled("forest", [WIDTH, HEIGHT], drawing)
    }

    fn mark(&self, figure: &ComparedFigure, y: f64) -> Markup {
        let (x, r) = (self.x_of(figure.ratio.value), RADIUS);
        let d = match &figure.verdict {
            _ if !x.is_finite() => return Markup::new(),
            _ if x > WIDTH => path::move_to(WIDTH - 9.0, y - r) + "l9 4.5-9 4.5z",
            _ if x < 0.0 => path::move_to(9.0, y - r) + "l-9 4.5 9 4.5z",
            ChangeVerdict::Worse => path::rectangle(x - 4.0, y - 4.0, 8.0, 8.0),
            ChangeVerdict::Better | ChangeVerdict::Same => {
                path::move_to(x - r, y) + "a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0z"
            }
            ChangeVerdict::Higher => path::move_to(x, y - r) + "l5 9h-10z",
            ChangeVerdict::Lower => path::move_to(x, y + r) + "l5-9h-10z",
            ChangeVerdict::NotKnown(_) => path::move_to(x, y - r - 0.5) + "l5 5-5 5-5-5z",
        };
        path::element(verdict_class(&figure.verdict), d)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forest(reach: f64) -> Forest {
        Forest { reach, threshold: 0.01 }
    }

    #[test]
    fn axis_is_symmetric_around_one() {
        let forest = forest(2f64.ln());
        assert_eq!(forest.x_of(1.0), WIDTH / 2.0);
        assert!((forest.x_of(2.0) + forest.x_of(0.5) - WIDTH).abs() < 1e-9);
        assert_eq!(forest.x_of(2.0), WIDTH - MARGIN);
    }

    #[test]
    fn axis_has_round_labels_within_reach() {
        let labels = |reach: f64| {
            let axis = forest(reach.ln()).axis();
            let texts = axis.as_str().split("</text>").filter_map(|text| Some(text.rsplit_once('>')?.1.to_owned()));
            texts.filter(|text| !text.is_empty()).collect::<Vec<String>>()
        };
        assert_eq!(labels(1.041), ["0.97", "1", "1.03"]);
        assert_eq!(labels(1.31), ["0.8", "1", "1.3"]);
        assert_eq!(labels(MAX_REACH), ["0.125", "1", "8"]);
    }

    #[test]
    fn reach_is_limited_on_both_sides() {
        assert_eq!(Forest::for_figures(std::iter::empty(), 0.01).reach, 0.04f64.ln_1p());
        assert_eq!(Forest::for_figures(std::iter::empty(), 0.9).reach, 3.6f64.ln_1p());
    }
}
