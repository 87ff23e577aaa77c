//! Predicted bandwidth: cache widths, lines in flight, the peak of the memory channels, and what loops do that read and write.

use kelvin_core::Cache;
use kelvin_core::catalogue::mem::{
    BANDWIDTH_CORE_TO_CORE, BANDWIDTH_NTWRITE, BANDWIDTH_READ, BANDWIDTH_WRITE, BYTES, LATENCY, LATENCY_PARALLEL,
    MemoryCpus,
};
use kelvin_sys::kernels::bandwidth::Operation;

use crate::memory::memory_budget::{allowed_cpu_count, data_caches, last_level_bytes, sharing_cpus};
use crate::memory::published::{CACHE_LATENCIES, CACHE_WIDTHS, CacheWidths};
use crate::memory::{core_to_core, latency, parallel_chains};
use crate::prelude::*;
use crate::published::measured_frequency;

/// Predicted range as shares of the published width of a cache: the upper one allows for errors of the frequency.
const WIDTH_RANGE: [f64; 2] = [0.7, 1.02];
/// Like `WIDTH_RANGE`, for L2, whose bus also carries prefetches and write-backs.
const SECOND_LEVEL_WIDTH_RANGE: [f64; 2] = [0.4, 1.02];
/// Like `SECOND_LEVEL_WIDTH_RANGE`, for the peak of the memory channels: refresh, turn-arounds and bank conflicts take the rest.
const PEAK_RANGE: [f64; 2] = [0.5, 1.0];
/// Predicted range of a rate by lines in flight of loads: prefetchers of an L2 have up to three times as many lines in flight as a core's
/// loads (48 against 16 in Golden Cove).
const CHAIN_RANGE: [f64; 2] = [0.8, 3.5];
/// How many times as many lines an L2 has in flight as loads have.
const PREFETCH_FACTOR: f64 = 3.0;
const PREFETCH_SOURCE: &str =
    "Golden Cove: 48 lines in flight of L2, 16 of L1 (Lam, Chips and Cheese: Popping the Hood on Golden Cove, 2021)";
/// Predicted range where another operation or one CPU was measured, as a share.
const TOLERANCE: f64 = 0.1;
/// Predicted range of a line's way in a crew, factor either way.
const LINE_BOUNCE_RANGE: f64 = 1.5;
/// Bytes of a line.
const LINE_BYTES: f64 = 64.0;
const LITTLES_LAW_SOURCE: &str = "Little: A proof for the queuing formula L = λW, Operations Research 9, 1961";

/// Where a working set lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SetLevel {
    First,
    Second,
    Outer,
    Memory,
}

impl SetLevel {
    /// Of a set of this many bytes for each of these CPUs.
    fn of_set(machine: &Machine, bytes: u64, cpus: MemoryCpus) -> Predicted<Self> {
        let caches = data_caches(machine);
        unpredicted_if(caches.is_empty(), "the machine reports no caches")?;
        // Of a last level, no more than is believed of a virtual machine's.
        let fits_cache = |cache: &Cache| {
            // All CPUs have sets of their own in the caches that they share.
            let sets = if cpus == MemoryCpus::All { sharing_cpus(machine, cache) } else { 1 };
            let believed = if cache.level <= 2 { cache.bytes } else { cache.bytes.min(last_level_bytes(machine)) };
            bytes <= believed && sets * bytes <= cache.bytes
        };
        Ok(match caches.iter().find(|cache| fits_cache(cache)).map(|cache| cache.level) {
            Some(1) => Self::First,
            Some(2) => Self::Second,
            Some(_) => Self::Outer,
            None => Self::Memory,
        })
    }
}

/// Why the rate of one operation is that of another.
const FASTEST_STORES: &str = "the fastest means are non-temporal stores";

/// The limit of one operation at one working set.
pub(super) fn predict(facts: &PredictionInputs<'_>, metric: &Metric, case: &Case) -> Predicted {
    if metric.id == BANDWIDTH_CORE_TO_CORE.id {
        // A line from core to core in the crew, as between two CPUs apart from it.
        let line = core_to_core::default_pair_latency(facts)?;
        return Ok(line.widen(LINE_BOUNCE_RANGE).derived("core to core"));
    }
    let bytes = required_number(BYTES, case)?;
    let entry = super::MEASURED_OPERATIONS.iter().find(|(_, operation_metric)| operation_metric.id == metric.id);
    let &(operation, _) = entry.or_unpredicted("this metric belongs to no operation")?;
    let cpus = required(MemoryCpus::of(case), case)?;
    let level = SetLevel::of_set(facts.machine(), bytes, cpus)?;
    let single_cpu_case = match level {
        SetLevel::Memory => super::memory_case(facts.machine()),
        _ => super::one_cpu_case(bytes),
    };
    let predicted = match cpus {
        // What shares the way to memory follows from what reads and writes there on all CPUs, if that was measured.
        MemoryCpus::All => all_cpus_rate(facts, operation, level, case)
            .map_or_else(|| scaled_from_one_cpu(facts, metric, &single_cpu_case), Ok),
        // Without the rate of the stores that it is made of, there is no prediction: the peak does not stand for it.
        _ if matches!(operation, Operation::Fill | Operation::Zero) => {
            Ok(one_cpu_rate(facts, operation, level, &single_cpu_case)?)
        }
        _ => one_cpu_rate(facts, operation, level, &single_cpu_case),
    };
    let peak = if level == SetLevel::Memory { peak_rate(facts, operation, cpus) } else { None };
    match (predicted, peak) {
        (Ok(predicted), peak) => Ok(limit_to_peak(predicted, peak)),
        // There is no other prediction.
        (Err(_), Some(peak)) => Ok(peak),
        (Err(reason), None) => Err(reason),
    }
}

/// A prediction as far as the peak of the memory channels allows it.
pub(in crate::memory) fn limit_to_peak(predicted: Prediction, peak: Option<Prediction>) -> Prediction {
    match peak {
        Some(peak) if predicted.value > peak.value => peak,
        Some(peak) => Prediction { high: predicted.high.min(peak.high), ceiling: peak.ceiling, ..predicted },
        None => predicted,
    }
}

/// Of one CPU, at a case of it.
fn one_cpu_rate(facts: &PredictionInputs<'_>, operation: Operation, level: SetLevel, case: &Case) -> Predicted {
    let machine = facts.machine();
    match (operation, level) {
        (Operation::NonTemporalWrite, SetLevel::Memory) => {
            Err(NoPrediction::new("what a non-temporal store waits for is not published"))
        }
        (Operation::NonTemporalWrite, _) => around_caches_rate(facts, &super::memory_case(machine)),
        (Operation::Read | Operation::Write, SetLevel::First) => {
            let row = CACHE_WIDTHS.row(machine)?;
            width_rate(facts, (first_level_width(&row.figures, operation), "L1"), row.source, WIDTH_RANGE)
        }
        (Operation::Read, SetLevel::Second) => {
            let row = CACHE_WIDTHS.row(machine)?;
            let width = row.figures.second.unwrap_or(row.figures.store);
            width_rate(facts, (width, "L2"), row.source, SECOND_LEVEL_WIDTH_RANGE)
        }
        (Operation::Write, SetLevel::Second) => Err(NoPrediction::new(
            "it is not published how long a store holds up L1 that fetches its line from L2 and sends another one there",
        )),
        (Operation::Read, SetLevel::Outer) => lines_in_flight_rate(facts, case),
        (Operation::Write, SetLevel::Outer) => {
            let reason = "each line is read before it is written to, and goes back meanwhile";
            as_fast_as(facts, &BANDWIDTH_READ, case, reason)
        }
        (Operation::Read, SetLevel::Memory) => memory_read_rate(facts),
        (Operation::Fill | Operation::Zero, SetLevel::Memory) => {
            as_fast_as(facts, &BANDWIDTH_NTWRITE, case, FASTEST_STORES)
        }
        (Operation::Fill | Operation::Zero, _) => as_fast_as(facts, &BANDWIDTH_WRITE, case, "as ordinary stores"),
        (Operation::Write, SetLevel::Memory) => memory_write_rate(facts, case, MemoryCpus::One).or_else(|_| {
            // No set in L2 was measured, as in a quick run: with what a store around the caches takes.
            let name = "reading each line from memory and writing it there, one after the other";
            sequential_rate(facts, case, (&BANDWIDTH_NTWRITE, case), name)
        }),
        (Operation::Copy | Operation::Triad, _) => read_write_rate(facts, operation, level, case),
    }
}

/// Of non-temporal stores to a set that a cache holds, from those to this set in memory.
fn around_caches_rate(facts: &PredictionInputs<'_>, memory_case: &Case) -> Predicted {
    // Arm Architecture Reference Manual for A-profile, "Load/store non-temporal pair".
    let reason = "a non-temporal store is a hint on this architecture, which a core may ignore";
    unpredicted_if(facts.machine().architecture == *"aarch64", reason)?;
    let reason = "non-temporal stores go to memory, regardless of the working set";
    as_fast_as(facts, &BANDWIDTH_NTWRITE, memory_case, reason)
}

/// Of all CPUs, from other operations of all of them: those that reach memory, but for reading it, writing around the caches, and zeros.
fn all_cpus_rate(
    facts: &PredictionInputs<'_>,
    operation: Operation,
    level: SetLevel,
    case: &Case,
) -> Option<Prediction> {
    let rate = match (operation, level) {
        (Operation::NonTemporalWrite, SetLevel::First | SetLevel::Second | SetLevel::Outer) => {
            let memory_case = super::all_cpus_memory_case(facts.machine())?;
            around_caches_rate(facts, &memory_case)
        }
        (Operation::Fill, SetLevel::Memory) => as_fast_as(facts, &BANDWIDTH_NTWRITE, case, FASTEST_STORES),
        (Operation::Copy | Operation::Triad, SetLevel::Memory) => read_write_rate(facts, operation, level, case),
        (Operation::Write, SetLevel::Memory) => memory_write_rate(facts, case, MemoryCpus::All),
        _ => return None,
    };
    rate.ok()
}

/// Arrays that an operation reads, and that it writes.
const fn arrays_of(operation: Operation) -> [f64; 2] {
    match operation {
        Operation::Read => [1.0, 0.0],
        Operation::Write | Operation::Fill | Operation::Zero | Operation::NonTemporalWrite => [0.0, 1.0],
        Operation::Copy => [1.0, 1.0],
        Operation::Triad => [2.0, 1.0],
    }
}

/// Maximum bytes that an operation counts per core cycle within L1: loads and stores run in parallel, and the slower decides.
fn first_level_width(widths: &CacheWidths, operation: Operation) -> f64 {
    let [read, written] = arrays_of(operation);
    (read + written) / f64::max(read / widths.load, written / widths.store)
}

/// Bytes per cycle x frequency.
fn width_rate(
    facts: &PredictionInputs<'_>,
    (width, level): (f64, &str),
    source: &'static str,
    range: [f64; 2],
) -> Predicted {
    let width = published("bytes per cycle", width, Unit::Bytes, source);
    let rate = (width * measured_frequency(facts)?).of_value(range);
    Ok(rate.predict(PredictionBasis::Published, &format!("published width of {level}")))
}

/// All CPUs as this many of one.
fn scaled_from_one_cpu(facts: &PredictionInputs<'_>, metric: &Metric, single_cpu_case: &Case) -> Predicted {
    let rate = measured(facts, metric, single_cpu_case)?;
    let total = fact("CPUs", allowed_cpu_count(facts.machine()) as f64, Unit::Count, "the case") * rate.clone();
    Ok(total.clone().with_bounds(&rate, &total).widen_by_share(TOLERANCE).derived("CPUs times one"))
}

/// As fast as another operation.
fn as_fast_as(facts: &PredictionInputs<'_>, metric: &Metric, case: &Case, reason: &str) -> Predicted {
    Ok(measured(facts, metric, case)?.widen_by_share(TOLERANCE).derived(reason))
}

/// A loop that reads and writes, from the rates of reading and of writing: what they take one after the other, and what the longer of them
/// takes if they overlap. In L1 they do; beyond, the middle of the two is expected.
fn read_write_rate(facts: &PredictionInputs<'_>, operation: Operation, level: SetLevel, case: &Case) -> Predicted {
    let (stores, name) = match level {
        SetLevel::First => (&BANDWIDTH_WRITE, "at once in L1"),
        SetLevel::Second => (&BANDWIDTH_WRITE, "between in L2"),
        SetLevel::Outer => (&BANDWIDTH_WRITE, "between beyond L2"),
        SetLevel::Memory => (&BANDWIDTH_NTWRITE, "between in memory"),
    };
    let (read_rate, write_rate) = (measured(facts, &BANDWIDTH_READ, case)?, measured(facts, stores, case)?);
    let [arrays_read, arrays_written] = arrays_of(operation);
    let read = fact("bytes read", arrays_read, Unit::Bytes, "arrays of the operation");
    let written = fact("bytes written", arrays_written, Unit::Bytes, "arrays of the operation");
    let (reads, writes) = (read.clone() / read_rate, written.clone() / write_rate);
    let (sequential_time, overlapped_time) = (reads.clone() + writes.clone(), reads.max(writes));
    let expected = match level {
        SetLevel::First => overlapped_time.clone(),
        _ => sequential_time.clone().geometric_mean(overlapped_time.clone()),
    };
    let [low, high, rate] =
        [sequential_time, overlapped_time, expected].map(|time| (read.clone() + written.clone()) / time);
    Ok(rate.with_bounds(&low, &high).widen_by_share(TOLERANCE).derived(name))
}

/// Reading an outer cache: its loads are answered sooner than by memory, but prefetchers have no more lines in flight than they need there.
/// Between the rate of memory and that of as many lines in flight, by Little's law.
fn lines_in_flight_rate(facts: &PredictionInputs<'_>, case: &Case) -> Predicted {
    let read_rate = measured(facts, &BANDWIDTH_READ, &super::memory_case(facts.machine()))?;
    let memory_load = latency::memory_latency(facts)?;
    let cache_load = measured(facts, &LATENCY, &latency_case(required_number(BYTES, case)?))?;
    let rate = read_rate.clone().spanning(read_rate * memory_load / cache_load).source(LITTLES_LAW_SOURCE);
    Ok(rate.widen_by_share(TOLERANCE).derived("lines in flight"))
}

/// Reading memory as many independent chains of loads do, of which each brings a line, and prefetchers more: between none and all
/// that an L2 can have in flight.
fn memory_read_rate(facts: &PredictionInputs<'_>) -> Predicted {
    let machine = facts.machine();
    let line = quantity("line", LINE_BYTES, Unit::Bytes);
    let (loads, name) = match measured(facts, &LATENCY_PARALLEL, &parallel_chains::max_chains_case(machine)) {
        Ok(chains) => (line / chains, "chains"),
        // As published of this core, if it is in the table.
        Err(reason) => {
            let row = CACHE_LATENCIES.row(machine).map_err(|_| reason)?;
            let no_lines = "the table of published figures has no number of lines in flight for this core";
            let lines = row.figures.outstanding.or_unpredicted(no_lines)?;
            let lines = fact("lines in flight", lines, Unit::Count, row.source);
            (lines * line / measured(facts, &LATENCY, &latency::memory_case(machine))?, "published lines")
        }
    };
    let prefetch_factor =
        published("lines in flight of L2 over those of loads", PREFETCH_FACTOR, Unit::Count, PREFETCH_SOURCE);
    let [low, high] = CHAIN_RANGE.map(|factor| factor * loads.value());
    let rate = loads.clone().geometric_mean(prefetch_factor * loads).with_interval((low, high));
    Ok(rate.source(LITTLES_LAW_SOURCE).derived(name))
}

/// Ordinary stores to memory: a line is read from there. Then comes what a store to a line in L2 takes, as it enters L1
/// and another one leaves it.
fn memory_write_rate(facts: &PredictionInputs<'_>, memory_case: &Case, cpus: MemoryCpus) -> Predicted {
    let cache_case = super::second_level_case(facts.machine())?.with_word(cpus);
    let name = "reading each line from memory and writing it in L2, one after the other";
    sequential_rate(facts, memory_case, (&BANDWIDTH_WRITE, &cache_case), name)
}

/// Reading a line from memory, and then writing it as fast as this was measured.
fn sequential_rate(
    facts: &PredictionInputs<'_>,
    memory_case: &Case,
    (write_metric, write_case): (&Metric, &Case),
    name: &str,
) -> Predicted {
    let (read_rate, write_rate) =
        (measured(facts, &BANDWIDTH_READ, memory_case)?, measured(facts, write_metric, write_case)?);
    let line = quantity("line", LINE_BYTES, Unit::Bytes);
    let high = read_rate.value() * (1.0 + TOLERANCE);
    let rate = line.clone() / (line.clone() / read_rate + line / write_rate);
    let low = rate.value() / 2.0;
    Ok(rate.with_interval((low, high)).derived(name))
}

/// The point of the latency curve for a working set in a cache.
fn latency_case(bytes: u64) -> Case {
    latency::base_page_case(1 << bytes.max(1).ilog2())
}

/// The peak of the memory channels, less write-allocate reads. It is a limit of all CPUs, which one cannot exceed
/// either.
pub(in crate::memory) fn peak_rate(
    facts: &PredictionInputs<'_>,
    operation: Operation,
    cpus: MemoryCpus,
) -> Option<Prediction> {
    let stated = &facts.machine().memory.peak_bytes_per_second;
    let &peak = stated.get()?;
    let arrays = operation.arrays() as f64;
    let has_write_allocate = !matches!(operation, Operation::Read | Operation::NonTemporalWrite);
    let bus_arrays = arrays + f64::from(u8::from(has_write_allocate));
    let rate = published("peak", peak, Unit::BytesPerSecond, stated.source_or_reason())
        * fact("bytes counted", arrays, Unit::Count, "arrays of the operation, as STREAM counts")
        / fact("bytes on the bus", bus_arrays, Unit::Count, "plus write-allocate reads");
    // A fill, copy or triad by non-temporal stores counts every byte on the bus.
    let maximum = if operation == Operation::Write { rate.value() } else { (peak * PEAK_RANGE[1]).max(rate.value()) };
    let low = PEAK_RANGE[0] * rate.value();
    let name = match cpus {
        MemoryCpus::All => "peak of all CPUs",
        MemoryCpus::One => "peak, which one CPU may not reach",
    };
    Some(rate.with_interval((low, maximum)).with_maximum(maximum).predict(PredictionBasis::Spec, name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::bandwidth::tests::machine;
    use kelvin_core::catalogue::cpu::FREQUENCY;
    use kelvin_core::catalogue::mem::{
        BANDWIDTH_COPY, BANDWIDTH_FILL, BANDWIDTH_NTWRITE, BANDWIDTH_READ, BANDWIDTH_TRIAD, BANDWIDTH_WRITE,
        BANDWIDTH_ZERO, CORE_TO_CORE, PageSize,
    };
    use kelvin_core::{Fact, Machine};
    use kelvin_harness::MeasuredValue;

    const L1: u64 = 24 << 10;
    const L2: u64 = 512 << 10;
    const MEMORY: u64 = 256 << 20;

    /// The prediction for an operation on a machine with 4 GHz, 100 ns to any level and a load in 5 ns from many chains; that reads
    /// 30, writes 10 and writes around the caches at 20 GB/s.
    fn predicted(machine: &Machine, metric: &Metric, bytes: u64, cpus: MemoryCpus) -> Result<Prediction, NoPrediction> {
        let measured = |id: &str, _: &Case| {
            let rates = [
                (&BANDWIDTH_READ, 30e9),
                (&BANDWIDTH_WRITE, 10e9),
                (&BANDWIDTH_NTWRITE, 20e9),
                (&BANDWIDTH_COPY, 25e9),
            ];
            let figures = [(&FREQUENCY, 4e9), (&LATENCY, 100.0), (&LATENCY_PARALLEL, 5.0), (&CORE_TO_CORE, 70.0)];
            let entry = rates.iter().chain(&figures).find(|(metric, _)| *metric.id == *id);
            entry.map(|&(_, value)| MeasuredValue { value, half_width: 0.0 })
        };
        let case = Case::new().with_number(BYTES, bytes).with_word(cpus);
        predict(&PredictionInputs::new(machine, &measured), metric, &case)
    }

    #[test]
    fn sets_of_all_cpus_share_their_caches() {
        // 16 CPUs with an L3 of 32 MiB: 8 MiB are a quarter of it for one, and four times it for all.
        let mut machine = machine(16, 32 << 20, 64 << 30);
        let level = |machine: &Machine, bytes, cpus| SetLevel::of_set(machine, bytes, cpus).unwrap();
        assert_eq!(level(&machine, 8 << 20, MemoryCpus::One), SetLevel::Outer);
        assert_eq!(level(&machine, 8 << 20, MemoryCpus::All), SetLevel::Memory);
        assert_eq!(level(&machine, 2 << 20, MemoryCpus::All), SetLevel::Outer);
        assert_eq!(level(&machine, L2, MemoryCpus::All), SetLevel::Second);
        // Those of the CPUs that this process may use.
        machine.topology.allowed = Fact::known(vec![0, 1], "a test");
        assert_eq!(level(&machine, 8 << 20, MemoryCpus::All), SetLevel::Outer);
    }

    fn machine_with_core(name: &str) -> Machine {
        let mut machine = machine(2, 32 << 20, 24 << 30);
        machine.cpu.microarchitecture = Fact::known(name.into(), "a test");
        machine
    }

    fn value(machine: &Machine, metric: &Metric, bytes: u64) -> f64 {
        (predicted(machine, metric, bytes, MemoryCpus::One).unwrap().value / 1e8).round() / 10.0
    }

    #[test]
    fn slower_of_loads_and_stores_limits() {
        let widths = CacheWidths { load: 128.0, store: 64.0, second: None };
        let rates = Operation::ALL.map(|operation| first_level_width(&widths, operation));
        assert_eq!(rates, [128.0, 64.0, 128.0, 64.0, 64.0, 64.0, 192.0]);
    }

    #[test]
    fn cache_rates_follow_published_widths() {
        let machine = machine_with_core("Zen 5");
        assert_eq!(value(&machine, &BANDWIDTH_READ, L1), 512.0);
        assert_eq!(value(&machine, &BANDWIDTH_WRITE, L1), 256.0);
        assert_eq!(value(&machine, &BANDWIDTH_READ, L2), 256.0);
        // In L1 loads and stores go on at once, and the slower decides.
        assert_eq!((value(&machine, &BANDWIDTH_COPY, L1), value(&machine, &BANDWIDTH_TRIAD, L1)), (20.0, 30.0));
        // In L2 a line of each takes 1/30 + 1/10 one after the other, 1/10 at once.
        assert_eq!(value(&machine, &BANDWIDTH_COPY, L2), (2.0 / (4.0f64 / 30.0 / 10.0).sqrt() * 10.0).round() / 10.0);
        assert_eq!((value(&machine, &BANDWIDTH_FILL, L2), value(&machine, &BANDWIDTH_ZERO, L1)), (10.0, 10.0));
        assert_eq!(value(&machine, &BANDWIDTH_NTWRITE, L1), 20.0);
        let arm = Machine { architecture: "aarch64".into(), ..machine };
        let reason = predicted(&arm, &BANDWIDTH_NTWRITE, L1, MemoryCpus::One).unwrap_err().0;
        assert_eq!(reason, "a non-temporal store is a hint on this architecture, which a core may ignore");
        // A core that nothing is published of has the same, but for the widths.
        let unknown = machine_with_core("Zen 9");
        assert!(predicted(&unknown, &BANDWIDTH_READ, L1, MemoryCpus::One).is_err());
        assert_eq!(value(&unknown, &BANDWIDTH_COPY, L1), 20.0);
    }

    #[test]
    fn all_cpu_rate_scales_from_one() {
        let machine = machine_with_core("Zen 9");
        let prediction = predicted(&machine, &BANDWIDTH_COPY, L2, MemoryCpus::All).unwrap();
        assert_eq!((prediction.value, prediction.derivation.as_str()), (50e9, "2 x 25.0 GB/s = 50.0 GB/s"));
        assert!(prediction.low < 25e9 && prediction.high > 50e9);
        let latency = predicted(&machine, &BANDWIDTH_CORE_TO_CORE, L2, MemoryCpus::All).unwrap();
        assert_eq!(latency.value, 70.0);
    }

    #[test]
    fn all_cpu_memory_rate_follows_read_write() {
        let machine = machine_with_core("Zen 9");
        let all_cpus = |metric, bytes| predicted(&machine, metric, bytes, MemoryCpus::All).unwrap();
        // Reads and stores around the caches: twice what one CPU does.
        assert_eq!((all_cpus(&BANDWIDTH_READ, MEMORY).value, all_cpus(&BANDWIDTH_NTWRITE, MEMORY).value), (60e9, 40e9));
        // Of the rest, what those of all were measured to do: 30 and 20 GB/s here, and 10 in L2.
        assert_eq!((all_cpus(&BANDWIDTH_NTWRITE, L2).value, all_cpus(&BANDWIDTH_FILL, MEMORY).value), (20e9, 20e9));
        assert!((all_cpus(&BANDWIDTH_WRITE, MEMORY).value - 7.5e9).abs() < 1.0);
        assert!(
            (all_cpus(&BANDWIDTH_COPY, MEMORY).low / 0.9 - 24e9).abs() < 1.0
                && (all_cpus(&BANDWIDTH_COPY, MEMORY).high / 1.1 - 40e9).abs() < 1.0
        );
    }

    #[test]
    fn channel_peak_limits_memory_rate() {
        let mut machine = machine_with_core("Zen 5");
        let memory_rate = |machine: &Machine, metric| predicted(machine, metric, MEMORY, MemoryCpus::One);
        assert!(memory_rate(&machine, &BANDWIDTH_NTWRITE).is_err());
        assert_eq!(memory_rate(&machine, &BANDWIDTH_FILL).unwrap().value, 20e9);
        machine.memory.peak_bytes_per_second = Fact::known(12e9, "a test");
        // The bus moves four bytes per three counted in a triad, and two per one in a write.
        assert_eq!(memory_rate(&machine, &BANDWIDTH_READ).unwrap().value, 12e9);
        assert_eq!(by_peak_value(&machine, &BANDWIDTH_TRIAD), 9e9);
        assert_eq!(by_peak_value(&machine, &BANDWIDTH_WRITE), 6e9);
        assert_eq!(memory_rate(&machine, &BANDWIDTH_NTWRITE).unwrap().value, 12e9);
        assert_eq!(predicted(&machine, &BANDWIDTH_TRIAD, L2, MemoryCpus::One).unwrap().basis, PredictionBasis::Derived);
    }

    fn by_peak_value(machine: &Machine, metric: &Metric) -> f64 {
        let (operation, _) = crate::memory::bandwidth::MEASURED_OPERATIONS
            .iter()
            .find(|(_, operation_metric)| *operation_metric == metric)
            .unwrap();
        peak_rate(&PredictionInputs::new(machine, &|_, _| None), *operation, MemoryCpus::One).unwrap().value
    }

    #[test]
    fn write_rate_follows_from_read() {
        let machine = machine_with_core("Zen 9");
        // A line in 5 ns, and between none and twice as many more by prefetchers.
        assert_eq!(value(&machine, &BANDWIDTH_READ, MEMORY), (12.8 * 3.0f64.sqrt() * 10.0).round() / 10.0);
        // 30 GB/s x 100 ns are 46.9 lines, which at 100 ns are as much again; a write reads as many.
        assert_eq!(value(&machine, &BANDWIDTH_READ, 8 << 20), 30.0);
        assert_eq!(value(&machine, &BANDWIDTH_WRITE, 8 << 20), 30.0);
        let outer = predicted(&machine, &BANDWIDTH_READ, 8 << 20, MemoryCpus::One).unwrap();
        assert_eq!(outer.derivation, "the geometric mean of 30.0 GB/s and 30.0 GB/s x 100 ns / 100 ns = 30.0 GB/s");
        assert!(predicted(&machine, &BANDWIDTH_WRITE, L2, MemoryCpus::One).is_err());
        // A write to memory reads the line first: 1/30 + 1/10.
        let write = predicted(&machine, &BANDWIDTH_WRITE, MEMORY, MemoryCpus::One).unwrap();
        assert_eq!(write.derivation, "64.0 B / (64.0 B / 30.0 GB/s + 64.0 B / 10.0 GB/s) = 7.50 GB/s");
        // Where no chains were measured, as published.
        let latency =
            |id: &str, _: &Case| (*id == *LATENCY.id).then_some(MeasuredValue { value: 100.0, half_width: 0.0 });
        let case = Case::new().with_number(BYTES, MEMORY).with_word(MemoryCpus::One);
        let read = |machine: &Machine| predict(&PredictionInputs::new(machine, &latency), &BANDWIDTH_READ, &case);
        let published = read(&machine_with_core("Sapphire Rapids")).unwrap().value;
        assert!((published - 10.24e9 * 3.0f64.sqrt()).abs() < 1.0, "{published}");
        assert!(read(&machine).unwrap_err().0.contains("mem.latency.parallel"));
    }

    #[test]
    fn cached_set_uses_cache_latency() {
        assert_eq!(latency_case(6 << 20), Case::new().with_word(PageSize::Base).with_number(BYTES, 4 << 20));
    }
}
