//! What is physically impossible, and what is merely implausible.

use kelvin_model::{Metric, Unit};

use crate::headlines::within_bounds;
use crate::result::{Ceiling, Warning};
use crate::words::digits;

/// The bound that a headline breaks, with the likely cause.
pub(crate) fn broken_bound(metric: &Metric, headline: f64) -> Option<Ceiling> {
    if within_bounds(metric, headline) {
        return None;
    }
    let too_low = metric.floor.filter(|floor| headline < *floor);
    let bound = too_low.or(metric.ceiling)?;
    Some(Ceiling { value: headline, bound, likely_cause: likely_cause(metric.unit, too_low.is_some(), bound).into() })
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
            "the time holds something else: a stopped machine or a lost wake-up"
        }
        (Unit::BytesPerSecond, false) => "a cache answered: the bytes never crossed the link, bus or memory channel",
        (Unit::PerSecond, false) => "the operations were not all done: a cache or a queue answered before the work was",
        (Unit::BytesPerSecond | Unit::PerSecond, true) => "the time holds something else, or a counter ran backwards",
        (Unit::Hertz, _) => "the loop that counts cycles was interrupted, or is not one cycle an instruction here",
        (Unit::Bytes | Unit::Ratio | Unit::Count, _) => "a counter wrapped, or counts something else",
    }
}

/// A duration of fewer core cycles than this is implausible; a little under one is the error of the frequency.
const LEAST_CYCLES: f64 = 0.97;

/// A value that is possible but implausible.
pub(crate) fn implausible(metric: &Metric, cycles: Option<f64>) -> Option<Warning> {
    let cycles = cycles.filter(|&cycles| metric.cycles && cycles < LEAST_CYCLES)?;
    let text = format!(
        "{} core cycles are less than one: the work probably overlaps with the loop around it, or was removed",
        digits(cycles)
    );
    Some(Warning::Implausible { text })
}
