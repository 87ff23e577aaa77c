//! What tests of predictions need: a machine of which nothing is known, and measured values of their choice.

use kelvin_harness::Facts;
use kelvin_harness::MeasuredValue;
use kelvin_model::{Case, Fact, Machine, Name, Nic};

/// A machine of which nothing is known but that it is an x86-64 one.
pub(crate) fn machine() -> Machine {
    Machine { architecture: Name::new("x86_64"), ..Machine::default() }
}

/// An interface of which nothing is known but its name and what it claims to carry, and carries, in bits per second.
pub(crate) fn nic(name: &str, bits: Fact<f64>) -> Nic {
    Nic { name: name.into(), bits_per_second: bits.clone(), line_rate: bits, ..Nic::default() }
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
