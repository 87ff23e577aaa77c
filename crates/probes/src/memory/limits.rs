//! Predicted bandwidth: cache widths, lines in flight, and the peak of the memory channels.

use kelvin_catalogue::mem::{BANDWIDTH_CORE_TO_CORE, BYTES, Cpus, LATENCY, PageSize};
use kelvin_harness::Facts;
use kelvin_model::{Basis, Case, Machine, Metric, NoPrediction, Prediction, Unit};
use kelvin_sys::kernels::bandwidth::Operation;

use super::allowance::{allowed, data_caches};
use super::operations::MEASURED;
use super::widths::widths;
use super::{latency, published as hierarchy};
use crate::predict::Predicting;
use crate::published;

/// Predicted range as shares of the published width of a cache: the upper one allows for errors of the frequency.
const OF_WIDTH: [f64; 2] = [0.7, 1.02];
/// The same for L2, whose bus also carries prefetches and write-backs.
const OF_SECOND_WIDTH: [f64; 2] = [0.4, 1.02];
/// The same for the peak of the memory channels: refresh, turn-arounds and bank conflicts take the rest.
const OF_PEAK: [f64; 2] = [0.5, 1.0];
/// Predicted range of a limit by lines in flight, factor either way: prefetchers of outer caches have further lines in
/// flight, and latency grows under load.
const OF_OUTSTANDING: f64 = 2.0;
/// Bytes of a line.
const LINE: f64 = 64.0;

/// The limit of one operation at one working set.
pub(super) fn predict(facts: &Facts<'_>, metric: &Metric, case: &Case) -> Result<Prediction, NoPrediction> {
    if metric.id == BANDWIDTH_CORE_TO_CORE.id {
        return Err(NoPrediction::because(
            "it shows what the CPUs share; mem.core_to_core predicts it from what the machine reports",
        ));
    }
    let bytes = BYTES.of(case).ok_or_else(|| NoPrediction::because("the case has no bytes"))?;
    let measured = MEASURED.iter().find(|(_, of)| of.id == metric.id);
    let &(operation, _) = measured.ok_or_else(|| NoPrediction::because("this metric belongs to no operation"))?;
    let cpus = if Cpus::of(case) == Some(Cpus::All) { allowed(facts.machine()) } else { 1 };
    let caches = data_caches(facts.machine());
    let level = caches.iter().find(|cache| bytes <= cache.bytes).map_or(u32::MAX, |cache| cache.level);
    match level {
        _ if caches.is_empty() => Err(NoPrediction::because("the machine reports no caches")),
        _ if operation == Operation::NonTemporalWrite && level != u32::MAX => {
            Err(NoPrediction::because("non-temporal stores go to memory even with a small working set"))
        }
        1 => in_first_level(facts, operation, cpus),
        2 => in_second_level(facts, cpus),
        _ => beyond(facts, operation, bytes, cpus, level == u32::MAX),
    }
}

fn in_first_level(facts: &Facts<'_>, operation: Operation, cpus: u64) -> Result<Prediction, NoPrediction> {
    let row = widths(facts)?;
    by_width(facts, row.first_level(operation), cpus, row.source, OF_WIDTH)
}

fn in_second_level(facts: &Facts<'_>, cpus: u64) -> Result<Prediction, NoPrediction> {
    let row = widths(facts)?;
    let width = row.second.ok_or_else(|| NoPrediction::because("no L2 width is published"))?;
    by_width(facts, width, cpus, row.source, OF_SECOND_WIDTH)
}

/// Bytes per cycle x frequency x CPUs.
fn by_width(
    facts: &Facts<'_>,
    width: f64,
    cpus: u64,
    source: &'static str,
    [least, most]: [f64; 2],
) -> Result<Prediction, NoPrediction> {
    let frequency = published::frequency(facts)?;
    let value = width * frequency.value * cpus as f64;
    Ok(Predicting::between(Basis::Published, value, least * value, most * value)
        .formula("published bytes per cycle x core frequency x CPUs")
        .constant("bytes per cycle", width, Unit::Bytes, source)
        .input(frequency.clone())
        .constant("CPUs", cpus as f64, Unit::Count, "the case")
        .source(source)
        .derived_as(format!("{width} B/cycle x {:.3} GHz x {cpus} = {:.1} GB/s", frequency.value / 1e9, value / 1e9)))
}

/// Beyond L2: Little's law, and at most the peak of the memory channels.
fn beyond(
    facts: &Facts<'_>,
    operation: Operation,
    bytes: u64,
    cpus: u64,
    in_memory: bool,
) -> Result<Prediction, NoPrediction> {
    let outstanding = if operation == Operation::NonTemporalWrite {
        Err(NoPrediction::because(
            "the latency of a non-temporal store is not measured, and the peak of the memory channels is unknown",
        ))
    } else {
        by_outstanding(facts, bytes, cpus, in_memory)
    };
    let peak = if in_memory { by_peak(facts, operation) } else { None };
    match (outstanding, peak) {
        (Ok(outstanding), Some(peak)) if outstanding.value <= peak.value => Ok(outstanding),
        (_, Some(peak)) => Ok(peak),
        (outstanding, None) => outstanding,
    }
}

/// Little's law: lines in flight over latency. A line fetched only to be overwritten takes a slot too, so the limit is
/// the same for all operations.
fn by_outstanding(facts: &Facts<'_>, bytes: u64, cpus: u64, in_memory: bool) -> Result<Prediction, NoPrediction> {
    let row = hierarchy::hierarchy(facts)?;
    let lines = row.outstanding.ok_or_else(|| {
        NoPrediction::because("the table of published figures has no number of lines in flight for this core")
    })?;
    let latency = facts.measured(&LATENCY, &latency_case(facts.machine(), bytes, in_memory))?;
    let value = cpus as f64 * lines * LINE / latency.value * 1e9;
    Ok(Predicting::within_factor(Basis::Derived, value, OF_OUTSTANDING)
        .formula("Little's law: CPUs x lines in flight x 64 B / latency")
        .constant("lines in flight", lines, Unit::Count, row.source)
        .input(latency.clone())
        .constant("CPUs", cpus as f64, Unit::Count, "the case")
        .source(row.source)
        .source("Little: A proof for the queuing formula L = λW, Operations Research 9, 1961")
        .derived_as(format!("{cpus} x {lines} lines x 64 B / {:.1} ns = {:.1} GB/s", latency.value, value / 1e9)))
}

/// The point of the latency curve for a working set: for memory the largest one, in base pages, part of every run.
fn latency_case(machine: &Machine, bytes: u64, in_memory: bool) -> Case {
    if in_memory {
        return latency::in_memory(machine);
    }
    Case::new().at(PageSize::Base).with(BYTES, 1 << bytes.max(1).ilog2())
}

/// The peak of the memory channels, less write-allocate reads. It is a limit of all CPUs, which one cannot exceed
/// either.
fn by_peak(facts: &Facts<'_>, operation: Operation) -> Option<Prediction> {
    let fact = &facts.machine().memory.peak_bytes_per_second;
    let &peak = fact.get()?;
    let counted = operation.arrays() as f64;
    let on_bus = match operation {
        Operation::Read | Operation::NonTemporalWrite => counted,
        Operation::Write | Operation::Fill | Operation::Zero | Operation::Copy | Operation::Triad => counted + 1.0,
    };
    let value = peak * counted / on_bus;
    // A fill, copy or triad by non-temporal stores counts every byte on the bus.
    let most = if operation == Operation::Write { value } else { peak * OF_PEAK[1] };
    Some(
        Predicting::between(Basis::Spec, value, OF_PEAK[0] * value, most.max(value))
            .formula("peak of the memory channels x bytes counted / bytes on the bus")
            .constant("peak", peak, Unit::BytesPerSecond, fact.source_or_reason())
            .constant("bytes counted", counted, Unit::Count, "arrays of the operation, as STREAM counts")
            .constant("bytes on the bus", on_bus, Unit::Count, "plus write-allocate reads")
            .source(fact.source_or_reason())
            .derived_as(format!("{:.1} GB/s x {counted} / {on_bus} = {:.1} GB/s", peak / 1e9, value / 1e9)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::bandwidth::tests::machine;
    use kelvin_catalogue::cpu::FREQUENCY;
    use kelvin_catalogue::mem::{BANDWIDTH_COPY, BANDWIDTH_NTWRITE, BANDWIDTH_READ, BANDWIDTH_TRIAD, BANDWIDTH_WRITE};
    use kelvin_harness::MeasuredValue;
    use kelvin_model::Fact;

    /// The prediction for an operation on a machine with 4 GHz and 100 ns to any level.
    fn predicted(machine: &Machine, metric: &Metric, bytes: u64, cpus: Cpus) -> Result<Prediction, NoPrediction> {
        let measured = |id: &str, _: &Case| {
            let value = if id == FREQUENCY.id.as_str() { 4e9 } else { 100.0 };
            Some(MeasuredValue { value, half_width: 0.0 })
        };
        let case = Case::new().with(BYTES, bytes).at(cpus);
        predict(&Facts::new(machine, &measured), metric, &case)
    }

    fn zen5() -> Machine {
        let mut machine = machine(2, 32 << 20, 24 << 30);
        machine.cpu.microarchitecture = Fact::known("Zen 5".into(), "a test");
        machine
    }

    #[test]
    fn caches_are_as_wide_as_published() {
        let machine = zen5();
        let value = |metric, bytes, cpus| predicted(&machine, metric, bytes, cpus).unwrap().value;
        assert_eq!(value(&BANDWIDTH_READ, 24 << 10, Cpus::One), 512e9);
        assert_eq!(value(&BANDWIDTH_WRITE, 24 << 10, Cpus::All), 512e9);
        assert_eq!(value(&BANDWIDTH_TRIAD, 24 << 10, Cpus::One), 768e9);
        assert_eq!(value(&BANDWIDTH_COPY, 512 << 10, Cpus::One), 256e9);
        assert!(predicted(&machine, &BANDWIDTH_NTWRITE, 24 << 10, Cpus::One).is_err());
    }

    #[test]
    fn memory_is_limited_by_the_channels_where_they_are_known() {
        let mut machine = zen5();
        let at = |machine: &Machine, metric| predicted(machine, metric, 256 << 20, Cpus::All);
        assert!(at(&machine, &BANDWIDTH_NTWRITE).is_err());
        machine.memory.peak_bytes_per_second = Fact::known(120e9, "a test");
        // Little's law is capped by the channels: the bus moves four bytes per three counted in a triad, and two per
        // one in a write.
        assert!(at(&machine, &BANDWIDTH_READ).unwrap().value <= 120e9);
        assert!(at(&machine, &BANDWIDTH_TRIAD).unwrap().value <= 90e9);
        assert_eq!(by_peak_value(&machine, &BANDWIDTH_TRIAD), 90e9);
        assert_eq!(by_peak_value(&machine, &BANDWIDTH_WRITE), 60e9);
        assert_eq!(at(&machine, &BANDWIDTH_NTWRITE).unwrap().value, 120e9);
    }

    fn by_peak_value(machine: &Machine, metric: &Metric) -> f64 {
        let (operation, _) = MEASURED.iter().find(|(_, of)| *of == metric).unwrap();
        by_peak(&Facts::new(machine, &|_, _| None), *operation).unwrap().value
    }

    #[test]
    fn lines_in_flight_over_latency_are_the_limit_of_one_cpu() {
        let mut machine = machine(2, 16 << 20, 24 << 30);
        let at = |machine: &Machine, cpus| predicted(machine, &BANDWIDTH_COPY, 256 << 20, cpus);
        machine.cpu.microarchitecture = Fact::known("Sapphire Rapids".into(), "a test");
        // 16 lines of 64 bytes in 100 ns.
        assert!((at(&machine, Cpus::One).unwrap().value - 10.24e9).abs() < 1.0);
        assert!((at(&machine, Cpus::All).unwrap().value - 20.48e9).abs() < 1.0);
        machine.cpu.microarchitecture = Fact::known("Zen 9".into(), "a test");
        assert!(at(&machine, Cpus::One).unwrap_err().0.contains("no row for Zen 9"));
    }

    #[test]
    fn a_working_set_uses_the_latency_of_its_level() {
        let machine = zen5();
        let case = |bytes, in_memory| latency_case(&machine, bytes, in_memory);
        assert_eq!(case(6 << 20, false), Case::new().at(PageSize::Base).with(BYTES, 4 << 20));
        assert_eq!(case(128 << 20, true), Case::new().at(PageSize::Base).with(BYTES, 256 << 20));
    }
}
