//! Axes: where a value lies on one, linear or logarithmic, and which ticks it has.
//!
//! `axes.js` draws the same axes; the two agree because both place ticks by the rules below.

use crate::figures::{AxisKind, FigureAxis};

/// How far below the smallest positive value a logarithmic axis shows zero: one binary step.
const ZERO_STEP: f64 = 2.0;

/// Most ticks of an axis before every second one is left out.
const MOST_TICKS: usize = 9;

/// Ticks that a linear axis aims at.
const LINEAR_TICKS: f64 = 8.0;

/// An axis over the values that it has to show.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    kind: AxisKind,
    logarithmic: bool,
    /// Where zero stands on a logarithmic axis, if it has to show it.
    zero: Option<f64>,
    low: f64,
    high: f64,
}

/// A tick: share of the axis' length, and label.
#[derive(Clone, Debug, PartialEq)]
pub struct Tick {
    /// From 0 at the lower end to 1 at the upper end.
    pub at: f64,
    /// Its label with the unit.
    pub label: String,
}

/// Room at each side of a single value on a logarithmic axis, in decades: a factor of five in all.
const ALONE: f64 = 0.35;

impl Scale {
    /// An axis that shows all of these values; a logarithmic one leaves out what is below zero.
    ///
    /// `values` must be finite; without values it runs from 0 to 1. `room` is left at its ends, as a share of its length.
    pub fn over(values: impl Iterator<Item = f64> + Clone, axis: &FigureAxis, room: f64) -> Self {
        let FigureAxis { kind, logarithmic, .. } = *axis;
        let least = |values: &mut dyn Iterator<Item = f64>| values.fold(f64::INFINITY, f64::min);
        let positive = least(&mut values.clone().filter(|value| *value > 0.0));
        let most = values.clone().fold(f64::NEG_INFINITY, f64::max);
        if logarithmic && positive.is_finite() && most > 0.0 {
            let has_zero = values.clone().any(|value| value == 0.0);
            let zero = has_zero.then(|| (positive / ZERO_STEP).log10());
            let low = zero.unwrap_or(positive.log10());
            return Self::padded(kind, true, zero, low, most.log10(), room);
        }
        let low = least(&mut values.clone());
        let (low, high) = if low.is_finite() { (low, most) } else { (0.0, 1.0) };
        // A linear axis starts at zero unless its values lie far from it: distances are to be compared by eye.
        let low = if axis.from_zero && low > 0.0 && low < 0.6 * high { 0.0 } else { low };
        Self::padded(kind, false, None, low, high, room)
    }

    /// An axis with room at its ends, as a share of its length; an end at zero keeps it.
    fn padded(kind: AxisKind, logarithmic: bool, zero: Option<f64>, low: f64, high: f64, room: f64) -> Self {
        // Around a single value there is room for round ticks.
        let alone = if logarithmic { ALONE } else { low.abs() / 2.0 };
        if high == low && alone > 0.0 {
            return Self { kind, logarithmic, zero, low: low - alone, high: high + alone };
        }
        let length = if high > low { high - low } else { 1.0 };
        let keeps_zero = !logarithmic && low == 0.0;
        let low = if keeps_zero { low } else { low - room * length };
        Self { kind, logarithmic, zero, low, high: high + room * length }
    }

    /// Position on the axis before scaling to its length.
    fn position(&self, value: f64) -> f64 {
        match self.logarithmic {
            true if value > 0.0 => value.log10(),
            true => self.zero.unwrap_or(f64::NEG_INFINITY),
            false => value,
        }
    }

    /// Where a value lies: 0 at the lower end, 1 at the upper end; what lies beyond an end is put there.
    pub fn at(&self, value: f64) -> f64 {
        ((self.position(value) - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }

    /// The ticks, from the lower to the upper end.
    pub fn ticks(&self) -> Vec<Tick> {
        let values =
            if self.logarithmic { self.logarithmic_ticks() } else { linear_ticks(self.low, self.high, self.kind) };
        let zero = self.zero.map(|_| 0.0);
        // Steps of a tenth add up to a hair beyond the end.
        let hair = 1e-9 * (self.high - self.low);
        let within = |value: &f64| (self.low - hair..=self.high + hair).contains(&self.position(*value));
        let tick = |value: f64| Tick { at: self.at(value), label: label(self.kind, value) };
        zero.into_iter().chain(values).filter(within).map(tick).collect()
    }

    /// Powers of two for sizes and counts (but fractions), else powers of ten, with 2 and 5 between them where there are few.
    fn logarithmic_ticks(&self) -> Vec<f64> {
        let (low, high) = (10f64.powf(self.low), 10f64.powf(self.high));
        // Small fractions are no round numbers in powers of two: 0.0625.
        let by_two = self.kind == AxisKind::Bytes || self.kind == AxisKind::Number && low >= 0.1;
        if by_two && high / low >= 4.0 {
            let (from, to) = (low.log2().ceil() as i32, high.log2().floor() as i32);
            let step = ((to - from) as usize / MOST_TICKS + 1) as i32;
            // Even steps begin at a multiple of the step, so that KiB, MiB and GiB get a tick.
            let from = from + (step - from.rem_euclid(step)) % step;
            return (0..)
                .map(|i| from + i * step)
                .take_while(|power| *power <= to)
                .map(|power| 2f64.powi(power))
                .collect();
        }
        let decades = self.high - self.low;
        if decades < 0.7 {
            return linear_ticks(low, high, self.kind);
        }
        let mantissas: &[f64] = if decades > 3.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let powers = self.low.floor() as i32..=self.high.ceil() as i32;
        let ticks: Vec<f64> =
            powers.flat_map(|power| mantissas.iter().map(move |mantissa| mantissa * 10f64.powi(power))).collect();
        let step = ticks.len() / (2 * MOST_TICKS) + 1;
        ticks.into_iter().step_by(step).collect()
    }
}

/// Ticks at 1, 2 or 5 times a power of ten (of two for sizes).
fn linear_ticks(low: f64, high: f64, kind: AxisKind) -> Vec<f64> {
    let rough = (high - low) / LINEAR_TICKS;
    let step = if kind == AxisKind::Bytes {
        2f64.powf(rough.log2().ceil())
    } else {
        let power = 10f64.powf(rough.log10().floor());
        power * [1.0, 2.0, 5.0, 10.0].into_iter().find(|mantissa| mantissa * power >= rough).unwrap_or(10.0)
    };
    let first = (low / step - 1e-9).ceil();
    (0..).map(|i| (first + f64::from(i)) * step).take_while(|value| *value <= high + 1e-9 * step).collect()
}

/// The label of a tick: the shortest decimal of the scaled value, with its unit.
fn label(kind: AxisKind, value: f64) -> String {
    if value == 0.0 {
        return "0".into();
    }
    let (scaled, unit) = kind.scaled(value);
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

    fn labels(values: &[f64], kind: AxisKind, logarithmic: bool) -> Vec<String> {
        Scale::over(values.iter().copied(), &axis(kind, logarithmic), 0.0)
            .ticks()
            .into_iter()
            .map(|tick| tick.label)
            .collect()
    }

    #[test]
    fn sizes_have_binary_ticks() {
        let ticks = labels(&[4096.0, 268_435_456.0], AxisKind::Bytes, true);
        assert_eq!(ticks, ["4 KiB", "16 KiB", "64 KiB", "256 KiB", "1 MiB", "4 MiB", "16 MiB", "64 MiB", "256 MiB"]);
    }

    #[test]
    fn zero_has_a_place_on_a_logarithmic_axis() {
        let scale = Scale::over([0.0, 4096.0, 16_384.0].into_iter(), &axis(AxisKind::Bytes, true), 0.0);
        assert_eq!(scale.at(0.0), 0.0);
        assert!((scale.at(4096.0) - 1.0 / 3.0).abs() < 1e-12);
        assert_eq!(scale.ticks()[0].label, "0");
    }

    #[test]
    fn times_have_decimal_ticks() {
        assert_eq!(
            labels(&[1.0, 100_000.0], AxisKind::Nanoseconds, true),
            ["1 ns", "10 ns", "100 ns", "1 µs", "10 µs", "100 µs"]
        );
        assert_eq!(labels(&[0.0, 10.0], AxisKind::Nanoseconds, false), ["0", "2 ns", "4 ns", "6 ns", "8 ns", "10 ns"]);
        assert_eq!(labels(&[0.0, 0.3], AxisKind::Number, false), ["0", "0.05", "0.1", "0.15", "0.2", "0.25", "0.3"]);
    }

    #[test]
    fn an_axis_starts_at_zero_only_where_heights_are_compared() {
        let values = [0.5, 1.5];
        assert_eq!(labels(&values, AxisKind::Number, false)[0], "0");
        let relative = FigureAxis { from_zero: false, ..axis(AxisKind::Number, false) };
        assert_eq!(Scale::over(values.into_iter(), &relative, 0.0).ticks()[0].label, "0.6");
    }

    #[test]
    fn a_single_value_and_no_value_have_an_axis() {
        let single = Scale::over([5.0].into_iter(), &axis(AxisKind::Number, false), 0.05);
        assert!((single.at(5.0) - 0.5).abs() < 0.5);
        assert!(!single.ticks().is_empty());
        assert_eq!(labels(&[], AxisKind::Number, true), ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
    }

    #[test]
    fn what_lies_beyond_an_end_is_put_there() {
        let scale = Scale::over([1.0, 100.0].into_iter(), &axis(AxisKind::Number, true), 0.0);
        assert_eq!(scale.at(-3.0), 0.0);
        assert_eq!(scale.at(1e9), 1.0);
    }
}
