//! Formulas of predictions, as expressions.
//!
//! An [`Expr`] is built from measured figures, constants with their sources, and the operations between them. One value gives the
//! predicted figure, its interval, the formula as it is shown, the same with the figures put in, and the list of inputs.

use std::ops::{Add, Div, Mul, Sub};

use kelvin_core::{Case, Ceiling, Input, Metric, NoPrediction, Prediction, PredictionBasis, Unit, units};
use kelvin_harness::PredictionInputs;

/// Nanoseconds in a second.
const SECOND: f64 = 1e9;

/// A quantity with its interval, its unit and how it was computed.
#[derive(Clone, Debug)]
pub(crate) struct Expr {
    value: f64,
    low: f64,
    high: f64,
    unit: Unit,
    formula: Text,
    figures: Text,
    inputs: Vec<Input>,
    sources: Vec<String>,
    variants: Vec<String>,
    maximum: Option<f64>,
}

/// A part of a formula, with how tightly its outermost operator binds.
#[derive(Clone, Debug)]
struct Text {
    text: String,
    precedence: Precedence,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Precedence {
    Sum,
    Product,
    Atom,
}

impl Text {
    fn atom(text: impl Into<String>) -> Self {
        Self { text: text.into(), precedence: Precedence::Atom }
    }

    /// The text as an operand of an operator that binds this tightly, in parentheses where it needs them.
    fn as_operand(&self, min_precedence: Precedence) -> String {
        if self.precedence < min_precedence { format!("({})", self.text) } else { self.text.clone() }
    }

    /// Two operands with an operator between them.
    fn join(&self, Operator { sign, precedence, right }: Operator, other: &Self) -> Self {
        Self { text: format!("{} {sign} {}", self.as_operand(precedence), other.as_operand(right)), precedence }
    }
}

/// An operator between two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Operator {
    sign: &'static str,
    precedence: Precedence,
    /// The right operand of `-` and `/` needs parentheses where it binds no tighter than they.
    right: Precedence,
}

const PLUS: Operator = Operator { sign: "+", precedence: Precedence::Sum, right: Precedence::Sum };
const MINUS: Operator = Operator { sign: "-", precedence: Precedence::Sum, right: Precedence::Product };
const TIMES: Operator = Operator { sign: "x", precedence: Precedence::Product, right: Precedence::Product };
const OVER: Operator = Operator { sign: "/", precedence: Precedence::Product, right: Precedence::Atom };

/// A figure of this run: `os.process.fork`.
///
/// # Errors
/// The run does not have it.
pub(crate) fn measured(facts: &PredictionInputs<'_>, metric: &Metric, case: &Case) -> Result<Expr, NoPrediction> {
    facts.measured(metric, case).map(Expr::from)
}

/// A fact of the machine or the case, with where it is from. It is an input of the prediction.
pub(crate) fn fact(name: impl Into<String>, value: f64, unit: Unit, source: impl Into<String>) -> Expr {
    Expr::from(Input { name: name.into(), value, unit, source: source.into() })
}

/// A published figure: a fact whose source is one of the prediction.
pub(crate) fn published(name: impl Into<String>, value: f64, unit: Unit, source: impl Into<String>) -> Expr {
    let source = source.into();
    fact(name, value, unit, source.clone()).source(source)
}

/// A quantity of the case: `block`, 4 KiB. It is no input, for the case states it.
pub(crate) fn quantity(name: impl Into<String>, value: f64, unit: Unit) -> Expr {
    Expr { formula: Text::atom(name), ..Expr::literal(value, unit) }
}

/// A number of bytes of the case.
pub(crate) fn bytes_of(name: &str, bytes: u64) -> Expr {
    quantity(name, bytes as f64, Unit::Bytes)
}

/// A number of things of the case.
pub(crate) fn count_of(name: &str, count: u64) -> Expr {
    quantity(name, count as f64, Unit::Count)
}

impl Expr {
    /// A quantity that is written as it is.
    fn literal(value: f64, unit: Unit) -> Self {
        let text = match unit {
            Unit::Ratio | Unit::Count if value.fract() == 0.0 => format!("{value:.0}"),
            _ => units::value_text(value, unit),
        };
        let (formula, figures) = (Text::atom(text.clone()), Text::atom(text));
        let (inputs, sources, variants) = (Vec::new(), Vec::new(), Vec::new());
        Self { value, low: value, high: value, unit, formula, figures, inputs, sources, variants, maximum: None }
    }

    /// The value, in the quantity's unit.
    pub(crate) fn value(&self) -> f64 {
        self.value
    }

    /// Where the formula is from.
    pub(crate) fn source(mut self, source: impl Into<String>) -> Self {
        let source = source.into();
        if !self.sources.contains(&source) {
            self.sources.push(source);
        }
        self
    }

    /// Which of several formulas this is, where facts decide it: a part of the formula's identity.
    pub(crate) fn variant(mut self, variant: impl Into<String>) -> Self {
        self.variants.push(variant.into());
        self
    }

    /// An input that decides the interval, or which formula holds, and is not in the formula.
    pub(crate) fn with_input(mut self, other: &Self) -> Self {
        self.merge(other);
        self
    }

    /// The interval widened by this factor either way.
    pub(crate) fn widen(self, factor: f64) -> Self {
        Self { low: self.low / factor, high: self.high * factor, ..self }
    }

    /// The interval widened by this share either way.
    pub(crate) fn widen_by_share(self, share: f64) -> Self {
        Self { low: self.low * (1.0 - share), high: self.high * (1.0 + share), ..self }
    }

    /// The machine or the case states this value as the maximum: no correction raises the prediction above it, nor its interval above
    /// its own upper end.
    pub(crate) fn with_maximum(self, maximum: f64) -> Self {
        Self { maximum: Some(maximum), ..self }
    }

    /// The interval from and to these multiples of the value.
    pub(crate) fn of_value(self, [low, high]: [f64; 2]) -> Self {
        Self { low: low * self.value, high: high * self.value, ..self }
    }

    /// The interval from one value to another, in the quantity's unit.
    pub(crate) fn with_interval(self, (low, high): (f64, f64)) -> Self {
        Self { low, high, ..self }
    }

    /// The interval between two quantities, whose inputs are the prediction's. Figures that were disturbed may contradict each other, so that the
    /// lower bound lies above the upper one: then the interval holds both.
    pub(crate) fn with_bounds(mut self, low: &Self, high: &Self) -> Self {
        self.merge(low);
        self.merge(high);
        Self { low: low.low.min(high.low), high: high.high.max(low.high), ..self }
    }

    /// The larger of two.
    pub(crate) fn max(self, other: Self) -> Self {
        self.call("the larger of", other, f64::max)
    }

    /// The smaller of two.
    pub(crate) fn min(self, other: Self) -> Self {
        self.call("the smaller of", other, f64::min)
    }

    /// The geometric mean of two.
    pub(crate) fn geometric_mean(self, other: Self) -> Self {
        self.call("the geometric mean of", other, |first, second| (first * second).sqrt())
    }

    /// Between two, expected at their geometric mean.
    pub(crate) fn spanning(self, other: Self) -> Self {
        let (low, high) = (self.low.min(other.low), self.high.max(other.high));
        self.geometric_mean(other).with_interval((low, high))
    }

    /// The quantity, or zero where noise makes it negative.
    pub(crate) fn at_least_zero(self) -> Self {
        Self { value: self.value.max(0.0), low: self.low.max(0.0), high: self.high.max(0.0), ..self }
    }

    /// Two quantities of one unit by a function that grows with both.
    fn call(self, name: &str, other_end: Self, function: impl Fn(f64, f64) -> f64) -> Self {
        let text = |first: &Text, second: &Text| Text {
            text: format!(
                "{name} {} and {}",
                first.as_operand(Precedence::Product),
                second.as_operand(Precedence::Product)
            ),
            precedence: Precedence::Sum,
        };
        debug_assert_eq!(self.unit, other_end.unit, "{name} {self:?} and {other_end:?}");
        let ends = [(self.value, other_end.value), (self.low, other_end.low), (self.high, other_end.high)];
        let unit = self.unit;
        self.join(other_end, unit, text, ends.map(|(end, other)| function(end, other)))
    }

    fn combine(self, operator: Operator, other: Self) -> Self {
        let (unit, factor) = unit_of(operator, self.unit, other.unit);
        let (left, right) = (&self, &other);
        let ends = match operator {
            PLUS => [left.value + right.value, left.low + right.low, left.high + right.high],
            MINUS => [left.value - right.value, left.low - right.high, left.high - right.low],
            TIMES => [left.value * right.value, left.low * right.low, left.high * right.high],
            _ => [left.value / right.value, left.low / right.high, left.high / right.low],
        };
        self.join(other, unit, |left, right| left.join(operator, right), ends.map(|end| factor * end))
    }

    /// With the texts of both joined: a quantity with this value, and these ends of its interval.
    fn join(self, other: Self, unit: Unit, text: impl Fn(&Text, &Text) -> Text, [value, low, high]: [f64; 3]) -> Self {
        let (formula, figures) = (text(&self.formula, &other.formula), text(&self.figures, &other.figures));
        let mut expr = Self { value, low, high, unit, formula, figures, ..self };
        expr.merge(&other);
        expr
    }

    /// Takes the inputs, sources and variants of another, each once.
    fn merge(&mut self, other: &Self) {
        for input in &other.inputs {
            if self.inputs.iter().all(|own_input| own_input.name != input.name) {
                self.inputs.push(input.clone());
            }
        }
        for source in &other.sources {
            if !self.sources.contains(source) {
                self.sources.push(source.clone());
            }
        }
        self.variants.extend(other.variants.iter().cloned());
    }

    /// The prediction by this formula. `name` identifies it among all formulas of its metric, together with its variants: figures of
    /// other machines correct a formula of the same name only.
    pub(crate) fn predict(self, basis: PredictionBasis, name: &str) -> Prediction {
        self.explained(basis, name, "")
    }

    /// A prediction by this formula from lower metrics of the run.
    pub(crate) fn derived(self, name: &str) -> Prediction {
        self.predict(PredictionBasis::Derived, name)
    }

    /// A prediction by this formula, and a remark that follows its derivation.
    pub(crate) fn explained(self, basis: PredictionBasis, name: &str, remark: &str) -> Prediction {
        let result = units::value_text(self.value, self.unit);
        let mut derivation = self.figures.text;
        if derivation != result {
            derivation = format!("{derivation} = {result}");
        }
        if !remark.is_empty() {
            derivation = format!("{derivation}; {remark}");
        }
        let formula_name = match self.variants.is_empty() {
            true => name.to_owned(),
            false => format!("{name}, {}", self.variants.join(", ")),
        };
        Prediction {
            value: self.value,
            low: self.low,
            high: self.high,
            basis,
            formula: self.formula.text,
            inputs: self.inputs,
            derivation,
            sources: self.sources,
            calibration: None,
            formula_name: formula_name.into(),
            ceiling: self.maximum.map(|maximum| Ceiling { limit: maximum, range_end: self.high.max(maximum) }),
        }
    }
}

/// The unit of a result, and what its value is multiplied by.
///
/// # Panics
/// The units do not go together: an error of the formula.
fn unit_of(operator: Operator, left: Unit, right: Unit) -> (Unit, f64) {
    use Unit::{Bytes, BytesPerSecond, Count, Cycles, Hertz, Nanoseconds, PerSecond, Ratio};
    let is_number = |unit| matches!(unit, Ratio | Count);
    match (operator, left, right) {
        (PLUS | MINUS, first, second) if first == second => (first, 1.0),
        (PLUS | MINUS, first, second) if is_number(first) && is_number(second) => (Ratio, 1.0),
        (TIMES | OVER, unit, number) if is_number(number) => (unit, 1.0),
        (TIMES, number, unit) if is_number(number) => (unit, 1.0),
        (OVER, first, second) if first == second => (Ratio, 1.0),
        (OVER, Cycles, Hertz) | (OVER, Bytes, BytesPerSecond) => (Nanoseconds, SECOND),
        (OVER, number, PerSecond) if is_number(number) => (Nanoseconds, SECOND),
        (OVER, number, Nanoseconds) if is_number(number) => (PerSecond, SECOND),
        (OVER, Bytes, Nanoseconds) => (BytesPerSecond, SECOND),
        (OVER, BytesPerSecond, Bytes) => (PerSecond, 1.0),
        (TIMES, Bytes, Hertz) => (BytesPerSecond, 1.0),
        (TIMES, Bytes, PerSecond) | (TIMES, PerSecond, Bytes) => (BytesPerSecond, 1.0),
        (TIMES, BytesPerSecond, Nanoseconds) | (TIMES, Nanoseconds, BytesPerSecond) => (Bytes, 1.0 / SECOND),
        (TIMES, Nanoseconds, PerSecond) | (TIMES, PerSecond, Nanoseconds) => (Ratio, 1.0 / SECOND),
        _ => panic!("{left:?} {} {right:?} has no unit", operator.sign),
    }
}

impl From<Input> for Expr {
    fn from(input: Input) -> Self {
        let expr = Self::literal(input.value, input.unit);
        Self { formula: Text::atom(input.name.clone()), inputs: vec![input], ..expr }
    }
}

impl From<f64> for Expr {
    fn from(number: f64) -> Self {
        Self::literal(number, Unit::Ratio)
    }
}

macro_rules! operator {
    ($trait:ident, $method:ident, $operator:expr) => {
        impl $trait for Expr {
            type Output = Self;
            fn $method(self, other: Self) -> Self {
                self.combine($operator, other)
            }
        }

        impl $trait<Expr> for f64 {
            type Output = Expr;
            fn $method(self, other: Expr) -> Expr {
                Expr::from(self).combine($operator, other)
            }
        }

        impl $trait<f64> for Expr {
            type Output = Self;
            fn $method(self, other: f64) -> Self {
                self.combine($operator, Self::from(other))
            }
        }
    };
}

operator!(Add, add, PLUS);
operator!(Sub, sub, MINUS);
operator!(Mul, mul, TIMES);
operator!(Div, div, OVER);

#[cfg(test)]
mod tests {
    use super::*;

    fn call() -> Expr {
        fact("call", 61.0, Unit::Nanoseconds, "measured in this run")
    }

    fn copy() -> Expr {
        fact("copy", 10e9, Unit::BytesPerSecond, "measured in this run")
    }

    #[test]
    fn one_expression_gives_value_formula_figures_and_inputs() {
        let read = (call() + quantity("block", 4096.0, Unit::Bytes) / copy()).widen(2.0).source("a manual");
        let prediction = read.predict(PredictionBasis::Derived, "call and copy");
        assert!((prediction.value - 470.6).abs() < 1e-9 && (prediction.high - 941.2).abs() < 1e-9, "{prediction:?}");
        assert_eq!(
            (&*prediction.formula, &*prediction.derivation),
            ("call + block / copy", "61.0 ns + 4.00 KiB / 10.0 GB/s = 471 ns")
        );
        assert_eq!(prediction.inputs.iter().map(|input| &*input.name).collect::<Vec<_>>(), ["call", "copy"]);
        assert_eq!((&*prediction.formula_name, prediction.sources), ("call and copy", vec!["a manual".to_owned()]));
    }

    #[test]
    fn parentheses_follow_precedence() {
        let time = |name: &str| quantity(name, 61.0, Unit::Nanoseconds);
        let (a, b, c) = (|| time("a"), || time("b"), || time("c"));
        let formula = |expr: Expr| expr.formula.text;
        assert_eq!(formula(2.0 * (a() + b())), "2 x (a + b)");
        assert_eq!(formula(a() - (b() - c())), "a - (b - c)");
        assert_eq!(formula(a() - b() + c()), "a - b + c");
        assert_eq!(formula((a() + b()) / (c() / b())), "(a + b) / (c / b)");
        assert_eq!(formula(a() / b() * c()), "a / b x c");
        assert_eq!(formula(a() + 2.0 * b().max(c())), "a + 2 x (the larger of b and c)");
    }

    #[test]
    fn units_follow_from_those_of_the_operands() {
        let unit = |expr: Expr| (expr.value, expr.unit);
        let frequency = || quantity("frequency", 2e9, Unit::Hertz);
        assert_eq!(unit(quantity("cycles", 10.0, Unit::Cycles) / frequency()), (5.0, Unit::Nanoseconds));
        assert_eq!(unit(quantity("block", 61.0, Unit::Bytes) / call()), (1e9, Unit::BytesPerSecond));
        assert_eq!(unit(1.0 / quantity("t", 10.0, Unit::Nanoseconds)), (1e8, Unit::PerSecond));
        assert_eq!(unit(copy() / quantity("block", 10.0, Unit::Bytes)), (1e9, Unit::PerSecond));
        assert_eq!(unit(call() / call()), (1.0, Unit::Ratio));
    }

    #[test]
    #[should_panic(expected = "has no unit")]
    fn a_time_is_not_added_to_a_rate() {
        drop(call() + copy());
    }

    #[test]
    fn intervals_follow_from_those_of_the_operands() {
        let switch = || published("switch", 100.0, Unit::Nanoseconds, "a paper").widen(2.0);
        let ends = |expr: Expr| (expr.low, expr.value, expr.high);
        assert_eq!(ends(2.0 * (switch() + call())), (222.0, 322.0, 522.0));
        assert_eq!(ends(call() - switch()), (-139.0, -39.0, 11.0));
        assert_eq!(ends((call() - switch()).at_least_zero()), (0.0, 0.0, 11.0));
        assert_eq!(ends(1000.0 * call() / switch()), (305.0, 610.0, 1220.0));
        assert_eq!(ends(switch().of_value([0.9, 3.0])), (90.0, 100.0, 300.0));
        assert_eq!(ends(call().with_bounds(&call(), &(call() + switch()))), (61.0, 61.0, 261.0));
        assert_eq!(ends(call().with_bounds(&(4.0 * call()), &call())), (61.0, 61.0, 244.0));
        assert_eq!(ends((4.0 * call()).spanning(call())), (61.0, 122.0, 244.0));
        assert_eq!(ends(switch().widen_by_share(0.5)), (25.0, 100.0, 300.0));
    }

    #[test]
    fn stated_maximum_becomes_ceiling() {
        let ceiling = |maximum: f64| {
            let call = call().widen(2.0).with_maximum(maximum).predict(PredictionBasis::Derived, "call");
            call.ceiling.map(|ceiling| (ceiling.limit, ceiling.range_end))
        };
        assert_eq!([61.0, 200.0].map(ceiling), [Some((61.0, 122.0)), Some((200.0, 200.0))]);
    }

    #[test]
    fn inputs_are_unique_and_variants_join_name() {
        let fork = fact("fork", 50.0, Unit::Nanoseconds, "measured in this run");
        let prediction =
            (fork.clone() + fork.clone().variant("buffer in L2")).predict(PredictionBasis::Derived, "forks");
        assert_eq!((prediction.inputs.len(), &*prediction.formula_name), (1, "forks, buffer in L2"));
        assert_eq!(fork.predict(PredictionBasis::Derived, "fork").derivation, "50.0 ns");
    }
}
