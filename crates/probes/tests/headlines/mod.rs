//! Plausible headlines of all metrics, from which others are predicted without measuring anything.

use kelvin_core::Unit;
use kelvin_harness::MeasuredValue;
use kelvin_probes::all;

/// A plausible headline of any metric at any case.
pub fn plausible(metric: &str) -> Option<MeasuredValue> {
    let definition = all().into_iter().flat_map(|probe| probe.metrics).find(|candidate| candidate.id == *metric)?;
    let value = match definition.unit {
        Unit::Nanoseconds => 100.0,
        Unit::Cycles => 400.0,
        Unit::Hertz => 4.0e9,
        Unit::Bytes => 4096.0,
        Unit::BytesPerSecond => 1.0e10,
        Unit::PerSecond => 1.0e7,
        Unit::Ratio => 1.0,
        Unit::Count => 2.0,
    };
    Some(MeasuredValue { value, half_width: value / 100.0 })
}
