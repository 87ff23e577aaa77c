//! What tests of predictions need: a machine of which nothing is known, and measured values of their choice.

use kelvin_harness::Facts;
use kelvin_harness::MeasuredValue;
use kelvin_model::{Case, Machine, Name};

/// A machine of which nothing is known but that it is an x86-64 one.
pub(crate) fn machine() -> Machine {
    Machine { architecture: Name::new("x86_64"), ..Machine::unknown("a test") }
}

/// Calls `look` with facts about that machine and these headlines by metric id, whatever the case; `None` is a metric
/// that was not measured.
pub(crate) fn facts_about<R>(known: &[(&str, Option<f64>)], look: impl FnOnce(&Facts<'_>) -> R) -> R {
    let machine = machine();
    let measured = |id: &str, _: &Case| {
        let value = known.iter().find(|(name, _)| *name == id)?.1?;
        Some(MeasuredValue { value, half_width: 0.0 })
    };
    look(&Facts::new(&machine, &measured))
}
