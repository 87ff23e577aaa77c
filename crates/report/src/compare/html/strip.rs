//! The rounds of a figure on both sides on one axis: a dot for each, the figure, and its interval.

use kelvin_core::{ComparedFigure, SideFigure};

use super::SIDES;
use crate::escape::{Markup, html};
use crate::figures::{FigureAxis, needs_log_axis};
use crate::scale::{AxisScaling, Tick};
use crate::svg::{GridLines, path, text_at, unlabelled};

const WIDTH: f64 = 340.0;
const HEIGHT: f64 = 84.0;
const LEFT: f64 = 20.0;
const RIGHT: f64 = 10.0;
/// Where the side stands, the axis, and its labels.
const ROWS: [f64; 2] = [16.0, 44.0];
const AXIS_Y: f64 = 62.0;
const LABELS_Y: f64 = 78.0;
/// Height of an interval, and of the figure.
const INTERVAL_HEIGHT: f64 = 18.0;
const MEDIAN_HEIGHT: f64 = 22.0;
/// Neighbours stand next to each other in lanes, this far from the middle: their dots would hide each other.
const LANES: [f64; 3] = [0.0, -5.0, 5.0];
/// Room at the ends of the axis, as a share of it.
const PADDING_SHARE: f64 = 0.04;
/// Of more rounds this many quantiles are drawn.
const MAX_DOTS: usize = 80;

/// The rounds of both sides; nothing where neither has one.
pub(super) fn strip(figure: &ComparedFigure) -> Markup {
    let rounds = || figure.sides.iter().flat_map(|side| side.rounds.iter().flatten().copied());
    if rounds().next().is_none() {
        return Markup::new();
    }
    let ends = figure.sides.iter().filter_map(|side| side.interval).flatten();
    let values: Vec<f64> =
        rounds().chain(ends).chain([figure.base, figure.other]).filter(|value| value.is_finite()).collect();
    let axis = FigureAxis::new("", figure.metric.unit).without_zero();
    let log_scaling =
        AxisScaling::logarithmic(&values, &axis, PADDING_SHARE).filter(|_| needs_log_axis(values.iter().copied()));
    let scale = log_scaling.unwrap_or_else(|| AxisScaling::linear(&values, &axis, PADDING_SHARE));
    let sides = [figure.base, figure.other].into_iter().zip(&figure.sides).enumerate();
    let sides = sides.map(|(index, (value, side))| draw_side(&scale, index, value, side)).collect::<Markup>();
    let position = |tick: &Tick| (x_of_share(scale.share(tick.position)), tick.label.clone());
    let lines = GridLines { top: 0.0, bottom: AXIS_Y, labels: LABELS_Y, right: WIDTH };
    let axis = lines.markup(scale.ticks().iter().map(position));
    unlabelled("drawing rounds", [WIDTH, HEIGHT], html!("{}{}", axis, sides))
}

fn x_of_share(share: f64) -> f64 {
    LEFT + share * (WIDTH - LEFT - RIGHT)
}

/// The rounds of a side, its figure and its interval.
fn draw_side(scale: &AxisScaling, index: usize, value: f64, side: &SideFigure) -> Markup {
    let (y, x_of) = (ROWS[index], |value: f64| x_of_share(scale.share_of_value(value)));
    let interval = side.interval.map(|[low, high]| {
        let (from, to) = (x_of(low), x_of(high));
        let bar = path::rectangle(from, y - INTERVAL_HEIGHT / 2.0, (to - from).max(1.0), INTERVAL_HEIGHT);
        path::element("interval", bar)
    });
    let dots = dot_values(side).into_iter().zip(LANES.into_iter().cycle());
    let dots: String = dots.map(|(value, lane)| path::dot_at(x_of(value), y + lane)).collect();
    let median = format!("{}v{MEDIAN_HEIGHT}", path::move_to(x_of(value), y - MEDIAN_HEIGHT / 2.0));
    let (dots, median) = (path::element("dots", dots), path::element("median", median));
    html!("{}{}{}{}", text_at(2.0, y + 4.0, SIDES[index]), interval, dots, median)
}

/// The values of rounds, in their order; of very many the quantiles, lowest and highest among them.
fn dot_values(side: &SideFigure) -> Vec<f64> {
    let mut values: Vec<f64> = side.rounds.iter().flatten().copied().filter(|value| value.is_finite()).collect();
    values.sort_by(f64::total_cmp);
    if values.len() <= MAX_DOTS {
        return values;
    }
    (0..MAX_DOTS).map(|dot| values[dot * (values.len() - 1) / (MAX_DOTS - 1)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_rounds_are_drawn_as_quantiles() {
        let side = |rounds: usize| SideFigure {
            modes: Vec::new(),
            interval: None,
            rounds: vec![(0..rounds).rev().map(|index| index as f64).collect()],
        };
        assert_eq!(dot_values(&side(3)), [0.0, 1.0, 2.0]);
        let quantiles = dot_values(&side(1000));
        assert_eq!((quantiles.len(), quantiles[0], quantiles[MAX_DOTS - 1]), (MAX_DOTS, 0.0, 999.0));
    }
}
