//! Physically impossible and merely implausible values.

use crate::prelude::*;

/// The bound that a headline breaks, with the likely cause: one of the metric on every machine, or one of this machine's
/// hardware.
pub(crate) fn exceeded_bound(metric: &Metric, machine_bound: Option<&Bound>, headline: f64) -> Option<ImpossibleValue> {
    let impossible_value = |bound: f64, too_low| ImpossibleValue {
        value: headline,
        bound,
        derivation: None,
        likely_cause: likely_cause(metric.unit, too_low, bound).into(),
    };
    let too_low = metric.floor.filter(|floor| headline < *floor).map(|floor| impossible_value(floor, true));
    let too_high =
        || metric.ceiling.filter(|ceiling| headline > *ceiling).map(|ceiling| impossible_value(ceiling, false));
    let above_hardware = || {
        let bound = machine_bound.filter(|bound| headline > bound.limit)?;
        Some(ImpossibleValue {
            value: headline,
            bound: bound.limit,
            derivation: Some(bound.derivation.clone()),
            likely_cause: bound.likely_cause.clone(),
        })
    };
    too_low.or_else(above_hardware).or_else(too_high)
}

fn likely_cause(unit: Unit, too_low: bool, bound: f64) -> &'static str {
    match (unit, too_low) {
        (Unit::Nanoseconds | Unit::Cycles, true) if bound == 0.0 => {
            "what is subtracted (clock pair, loop) cost more than the operation: the machine was disturbed while one of \
             them was timed, or a batch is too short"
        }
        (Unit::Nanoseconds | Unit::Cycles, true) => {
            "part of the work was skipped: cached, prefetched or optimised away"
        }
        (Unit::Nanoseconds | Unit::Cycles, false) => {
            "the time includes something else: a stopped machine or a lost wake-up"
        }
        (Unit::BytesPerSecond, false) => "a cache served them: the bytes never crossed the link, bus or memory channel",
        (Unit::PerSecond, false) => "not all operations were done: a cache or a queue acknowledged them first",
        (Unit::BytesPerSecond | Unit::PerSecond, true) => {
            "the time includes something else, or a counter ran backwards"
        }
        (Unit::Hertz, _) => "the loop that counts cycles was interrupted, or is not one cycle an instruction here",
        (Unit::Bytes | Unit::Ratio | Unit::Count, _) => "a counter wrapped, or counts something else",
    }
}

/// A duration of fewer core cycles than this is implausible; a little under one is the error of the frequency.
const MIN_CYCLES: f64 = 0.97;

/// A value that is possible but implausible.
pub(crate) fn implausible_warning(metric: &Metric, cycles: Option<f64>) -> Option<Warning> {
    let cycles = cycles.filter(|&cycles| metric.cycles && cycles < MIN_CYCLES)?;
    let text = format!(
        "{} core cycles are less than one: the work probably overlaps with its loop, or was optimised away",
        number(cycles)
    );
    Some(Warning::new(WarningKind::Implausible, text))
}
