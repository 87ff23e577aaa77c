//! Axes: the place of a value, linear or logarithmic, and the ticks.

use kelvin_core::Unit;
use kelvin_stats::min_max;
use serde::{Serialize, Serializer};

use crate::axis::{AxisKind, FigureAxis, Sig6};

/// Distance of zero below the smallest positive value of a logarithmic axis: one binary step.
const ZERO_STEP: f64 = 2.0;

/// Maximum ticks of an axis; of more every second one is left out.
const MAX_TICKS: usize = 9;

/// Ticks that a linear axis aims for.
const LINEAR_TICKS: f64 = 8.0;

/// Room at each side of a single value on a logarithmic axis, in decades: a factor of five in all.
const SINGLE_VALUE_PADDING: f64 = 0.35;

/// An axis over the values that it shows. A place on it is a value, or its logarithm to base ten.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AxisScaling {
    #[serde(skip)]
    logarithmic: bool,
    /// The place of zero on a logarithmic axis, if it shows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    zero: Option<Sig6>,
    low: Sig6,
    high: Sig6,
    ticks: Vec<Tick>,
}

/// A tick: its place on the axis, and its label with the unit. Serialised as an array of both.
#[derive(Clone, Debug, PartialEq)]
pub struct Tick {
    /// Its place.
    pub position: f64,
    /// Its label with the unit.
    pub label: String,
}

impl Serialize for Tick {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (Sig6(self.position), &self.label).serialize(serializer)
    }
}

impl AxisScaling {
    /// A linear axis over values, which must be finite; without any it runs from 0 to 1. `padding` is left at its ends, as a
    /// share of its length.
    pub fn linear(values: &[f64], axis: &FigureAxis, padding: f64) -> Self {
        let (low, high) = min_max(values.iter().copied()).unwrap_or((0.0, 1.0));
        // It starts at zero unless its values are far from it, so that the eye can compare distances.
        let low = if axis.from_zero && low > 0.0 && low < 0.6 * high { 0.0 } else { low };
        let (padded_low, high) = padded_range(low, high, low.abs() / 2.0, padding);
        let low = if low == 0.0 { low } else { padded_low };
        let ticks = linear_ticks(low, high, axis.kind);
        Self { logarithmic: false, zero: None, low: Sig6(low), high: Sig6(high), ticks: Vec::new() }
            .with_ticks(ticks, axis.kind)
    }

    /// A logarithmic axis over the values that are not negative; `None` where none is positive.
    pub fn logarithmic(values: &[f64], axis: &FigureAxis, padding: f64) -> Option<Self> {
        let (smallest, largest) = min_max(values.iter().copied().filter(|value| *value > 0.0))?;
        let zero = values.contains(&0.0).then(|| (smallest / ZERO_STEP).log10());
        let (low, high) =
            padded_range(zero.unwrap_or(smallest.log10()), largest.log10(), SINGLE_VALUE_PADDING, padding);
        let ticks = zero.map(|_| 0.0).into_iter().chain(logarithmic_ticks(low, high, axis.kind)).collect();
        let scale =
            Self { logarithmic: true, zero: zero.map(Sig6), low: Sig6(low), high: Sig6(high), ticks: Vec::new() };
        Some(scale.with_ticks(ticks, axis.kind))
    }

    /// Adds those of these ticks that are on the axis.
    fn with_ticks(mut self, ticks: Vec<f64>, kind: AxisKind) -> Self {
        // Steps of a tenth add up to slightly beyond the end.
        let tolerance = 1e-9 * (self.high.0 - self.low.0);
        let ticks =
            ticks.into_iter().map(|value| Tick { position: self.position(value), label: tick_label(kind, value) });
        let is_on_axis = |tick: &Tick| (self.low.0 - tolerance..=self.high.0 + tolerance).contains(&tick.position);
        self.ticks = ticks.filter(is_on_axis).collect();
        self
    }

    /// The place of a value.
    fn position(&self, value: f64) -> f64 {
        match self.logarithmic {
            true if value > 0.0 => value.log10(),
            true => self.zero.map_or(f64::NEG_INFINITY, |zero| zero.0),
            false => value,
        }
    }

    /// How far along the axis a place is: 0 at the lower end, 1 at the upper end; clamped.
    pub fn share(&self, position: f64) -> f64 {
        ((position - self.low.0) / (self.high.0 - self.low.0)).clamp(0.0, 1.0)
    }

    /// How far along the axis a value is.
    pub fn share_of_value(&self, value: f64) -> f64 {
        self.share(self.position(value))
    }

    /// The ticks, from the lower to the upper end.
    pub fn ticks(&self) -> &[Tick] {
        &self.ticks
    }
}

/// How far a value is from the lower to the upper end of a range, on a logarithmic or a linear axis; not limited to 0 to 1.
pub(crate) fn share_between(value: f64, (low, high): (f64, f64), is_log: bool) -> f64 {
    if is_log { (value / low).ln() / (high / low).ln() } else { (value - low) / (high - low) }
}

/// The ends of an axis with room at them, as a share of its length; around a single value there is room for round ticks.
fn padded_range(low: f64, high: f64, single_margin: f64, padding: f64) -> (f64, f64) {
    let margin = match high - low {
        0.0 if single_margin > 0.0 => single_margin,
        0.0 => padding,
        length => padding * length,
    };
    (low - margin, high + margin)
}

/// Powers of two for sizes and counts (but fractions), else powers of ten, with 2 and 5 between them where there are few.
fn logarithmic_ticks(low: f64, high: f64, kind: AxisKind) -> Vec<f64> {
    let (from, to) = (10f64.powf(low), 10f64.powf(high));
    // Small fractions are no round numbers in powers of two: 0.0625.
    let is_binary = kind == AxisKind::Unit(Unit::Bytes) || kind == AxisKind::Number && from >= 0.1;
    if is_binary && to / from >= 4.0 {
        // Even steps begin at a multiple of the step, so that KiB, MiB and GiB get a tick.
        let (from, to) = (from.log2().ceil() as i32, to.log2().floor() as i32);
        let step = ((to - from) as usize / MAX_TICKS + 1) as i32;
        let from = from + (step - from.rem_euclid(step)) % step;
        return (from..=to).step_by(step as usize).map(|power| 2f64.powi(power)).collect();
    }
    let decades = high - low;
    if decades < 0.7 {
        return linear_ticks(from, to, kind);
    }
    let mantissas: &[f64] = if decades > 3.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let powers = low.floor() as i32..=high.ceil() as i32;
    let ticks: Vec<f64> =
        powers.flat_map(|power| mantissas.iter().map(move |mantissa| mantissa * 10f64.powi(power))).collect();
    let step = ticks.len() / (2 * MAX_TICKS) + 1;
    ticks.into_iter().step_by(step).collect()
}

/// Ticks at 1, 2 or 5 times a power of ten (of two for sizes).
fn linear_ticks(low: f64, high: f64, kind: AxisKind) -> Vec<f64> {
    let rough_step = (high - low) / LINEAR_TICKS;
    let step = if kind == AxisKind::Unit(Unit::Bytes) {
        2f64.powf(rough_step.log2().ceil())
    } else {
        let power = 10f64.powf(rough_step.log10().floor());
        power * [1.0, 2.0, 5.0, 10.0].into_iter().find(|mantissa| mantissa * power >= rough_step).unwrap_or(10.0)
    };
    let first = (low / step - 1e-9).ceil();
    (0..).map(|i| (first + f64::from(i)) * step).take_while(|value| *value <= high + 1e-9 * step).collect()
}

/// The label of a tick: the shortest decimal of the scaled value, with its unit.
fn tick_label(kind: AxisKind, value: f64) -> String {
    if value == 0.0 {
        return "0".into();
    }
    let scales = kind.scales();
    let (_, factor, unit) = *scales.iter().rfind(|(start, ..)| value.abs() >= *start).unwrap_or(&scales[0]);
    let scaled = value / factor;
    // Ticks are sums of floating-point steps: nine digits are the tick, the rest is dust.
    let digits: f64 = format!("{scaled:.8e}").parse().unwrap_or(scaled);
    if unit.is_empty() { digits.to_string() } else { format!("{digits} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(kind: AxisKind, logarithmic: bool) -> FigureAxis {
        FigureAxis { label: String::new(), kind, logarithmic, from_zero: true }
    }

    fn scale_over(values: &[f64], axis: &FigureAxis) -> AxisScaling {
        let logarithmic = AxisScaling::logarithmic(values, axis, 0.0).filter(|_| axis.logarithmic);
        logarithmic.unwrap_or_else(|| AxisScaling::linear(values, axis, 0.0))
    }

    fn labels(values: &[f64], kind: AxisKind, logarithmic: bool) -> Vec<String> {
        scale_over(values, &axis(kind, logarithmic)).ticks().iter().map(|tick| tick.label.clone()).collect()
    }

    #[test]
    fn sizes_have_binary_ticks_only() {
        let ticks = labels(&[4096.0, 268_435_456.0], AxisKind::Unit(Unit::Bytes), true);
        assert_eq!(ticks, ["4 KiB", "16 KiB", "64 KiB", "256 KiB", "1 MiB", "4 MiB", "16 MiB", "64 MiB", "256 MiB"]);
    }

    #[test]
    fn zero_is_on_logarithmic_axis() {
        let scale = scale_over(&[0.0, 4096.0, 16_384.0], &axis(AxisKind::Unit(Unit::Bytes), true));
        assert_eq!(scale.share_of_value(0.0), 0.0);
        assert!((scale.share_of_value(4096.0) - 1.0 / 3.0).abs() < 1e-12);
        assert_eq!(scale.ticks()[0].label, "0");
    }

    #[test]
    fn times_have_decimal_ticks() {
        assert_eq!(
            labels(&[1.0, 100_000.0], AxisKind::Unit(Unit::Nanoseconds), true),
            ["1 ns", "10 ns", "100 ns", "1 µs", "10 µs", "100 µs"]
        );
        assert_eq!(
            labels(&[0.0, 10.0], AxisKind::Unit(Unit::Nanoseconds), false),
            ["0", "2 ns", "4 ns", "6 ns", "8 ns", "10 ns"]
        );
        assert_eq!(labels(&[0.0, 0.3], AxisKind::Number, false), ["0", "0.05", "0.1", "0.15", "0.2", "0.25", "0.3"]);
    }

    #[test]
    fn only_height_axes_start_at_zero() {
        let values = [0.5, 1.5];
        assert_eq!(labels(&values, AxisKind::Number, false)[0], "0");
        let relative_axis = FigureAxis { from_zero: false, ..axis(AxisKind::Number, false) };
        assert_eq!(scale_over(&values, &relative_axis).ticks()[0].label, "0.6");
    }

    #[test]
    fn one_or_no_value_has_axis() {
        let single = scale_over(&[5.0], &axis(AxisKind::Number, false));
        assert!((single.share_of_value(5.0) - 0.5).abs() < 0.5);
        assert!(!single.ticks().is_empty());
        assert_eq!(labels(&[], AxisKind::Number, true), ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
    }

    #[test]
    fn out_of_range_values_are_clamped() {
        let scale = scale_over(&[1.0, 100.0], &axis(AxisKind::Number, true));
        assert_eq!(scale.share_of_value(-3.0), 0.0);
        assert_eq!(scale.share_of_value(1e9), 1.0);
    }
}
