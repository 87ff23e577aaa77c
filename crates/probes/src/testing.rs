//! Fixtures for tests of predictions: a machine without facts, and measured values of their choice.

use kelvin_core::{Cache, CacheKind, Case, Fact, Machine, Name, Nic};
use kelvin_harness::MeasuredValue;
use kelvin_harness::PredictionInputs;

/// An x86-64 machine of which nothing else is known.
pub(crate) fn machine() -> Machine {
    Machine { architecture: Name::new("x86_64"), ..Machine::default() }
}

/// Unified caches of these levels and sizes, with lines of 64 bytes, of the first CPU.
pub(crate) fn caches(sizes: &[(u32, u64)]) -> Fact<Vec<Cache>> {
    let cache = |&(level, bytes): &(u32, u64)| Cache {
        level,
        kind: CacheKind::Unified,
        bytes,
        ways: None,
        line_bytes: Some(64),
        shared_by: vec![0],
    };
    Fact::known(sizes.iter().map(cache).collect(), "a test")
}

/// An interface with a name and an advertised speed, which is also its effective one, in bits per second.
pub(crate) fn nic(name: &str, bits: Fact<f64>) -> Nic {
    Nic { name: name.into(), bits_per_second: bits.clone(), line_rate: bits, ..Nic::default() }
}

/// Calls `f` with facts about that machine and these headlines by metric id, for every case; `None` is a metric that
/// was not measured.
pub(crate) fn with_facts<R>(values: &[(&str, Option<f64>)], f: impl FnOnce(&PredictionInputs<'_>) -> R) -> R {
    let machine = machine();
    let measured = |id: &str, _: &Case| {
        let value = values.iter().find(|(name, _)| *name == id)?.1?;
        Some(MeasuredValue { value, half_width: 0.0 })
    };
    f(&PredictionInputs::new(&machine, &measured))
}
