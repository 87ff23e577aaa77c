//! Predicted bandwidth: cache widths, lines in flight, the peak of the memory channels, and what loops do that read and write.

use kelvin_catalogue::mem::{
    BANDWIDTH_CORE_TO_CORE, BANDWIDTH_NTWRITE, BANDWIDTH_READ, BANDWIDTH_WRITE, BYTES, Cpus, LATENCY, LATENCY_PARALLEL,
};
use kelvin_harness::Facts;
use kelvin_model::{Basis, Cache, Case, Input, Metric, NoPrediction, Prediction, Unit};
use kelvin_sys::kernels::bandwidth::Operation;

use super::allowance::{allowed, data_caches, last_level};
use super::operations::MEASURED;
use super::widths::widths;
use super::{bandwidth, core_to_core, latency, parallel, published as hierarchy};
use crate::predict::Predicting;
use crate::published;

/// Predicted range as shares of the published width of a cache: the upper one allows for errors of the frequency.
const OF_WIDTH: [f64; 2] = [0.7, 1.02];
/// The same for L2, whose bus also carries prefetches and write-backs.
const OF_SECOND_WIDTH: [f64; 2] = [0.4, 1.02];
/// The same for the peak of the memory channels: refresh, turn-arounds and bank conflicts take the rest.
const OF_PEAK: [f64; 2] = [0.5, 1.0];
/// Predicted range of a rate by lines in flight of loads: prefetchers of an L2 have up to three times as many lines in flight as a core's
/// loads (48 against 16 in Golden Cove).
const OF_CHAINS: [f64; 2] = [0.8, 3.5];
/// How many times as many lines an L2 has in flight as loads have.
const OF_PREFETCHERS: f64 = 3.0;
const PREFETCHERS: &str =
    "Golden Cove: 48 lines in flight of L2, 16 of L1 (Lam, Chips and Cheese: Popping the Hood on Golden Cove, 2021)";
/// Predicted range where another operation or one CPU was measured, as a share.
const TOLERANCE: f64 = 0.1;
/// Predicted range of a line's way in a crew, factor either way.
const OF_WAY: f64 = 1.5;
/// Bytes of a line.
const LINE: f64 = 64.0;
const LITTLE: &str = "Little: A proof for the queuing formula L = λW, Operations Research 9, 1961";

/// Where a working set lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    First,
    Second,
    Outer,
    Memory,
}

/// The limit of one operation at one working set.
pub(super) fn predict(facts: &Facts<'_>, metric: &Metric, case: &Case) -> Result<Prediction, NoPrediction> {
    let machine = facts.machine();
    if metric.id == BANDWIDTH_CORE_TO_CORE.id {
        return between_cores(facts);
    }
    let bytes = BYTES.of(case).ok_or_else(|| NoPrediction::because("the case has no bytes"))?;
    let measured = MEASURED.iter().find(|(_, of)| of.id == metric.id);
    let &(operation, _) = measured.ok_or_else(|| NoPrediction::because("this metric belongs to no operation"))?;
    let caches = data_caches(machine);
    // Of a last level, no more than is believed of a virtual machine's.
    let holds =
        |cache: &Cache| bytes <= if cache.level <= 2 { cache.bytes } else { cache.bytes.min(last_level(machine)) };
    let level = match caches.iter().find(|cache| holds(cache)).map(|cache| cache.level) {
        _ if caches.is_empty() => return Err(NoPrediction::because("the machine reports no caches")),
        Some(1) => Level::First,
        Some(2) => Level::Second,
        Some(_) => Level::Outer,
        None => Level::Memory,
    };
    let in_memory = bandwidth::in_memory(machine);
    let of_one = if level == Level::Memory { in_memory.clone() } else { Case::new().with(BYTES, bytes).at(Cpus::One) };
    if Cpus::of(case) == Some(Cpus::All) {
        // What shares the way to memory follows from what reads and writes there on all CPUs, if that was measured.
        let together = of_all(facts, operation, level, case);
        let all = together.unwrap_or_else(|| by_one(facts, metric, &of_one));
        return within_peak(all, facts, operation, (level, case));
    }
    match (operation, level) {
        (Operation::NonTemporalWrite, Level::Memory) => within_peak(
            Err(NoPrediction::because("what a non-temporal store waits for is not published")),
            facts,
            operation,
            (level, case),
        ),
        (Operation::NonTemporalWrite, _) => {
            let there = facts.measured(&BANDWIDTH_NTWRITE, &in_memory)?;
            Ok(like(there, "non-temporal stores go to memory, whatever the working set"))
        }
        (Operation::Read | Operation::Write, Level::First) => {
            let row = widths(facts)?;
            by_width(facts, (row.first_level(operation), "L1"), row.source, OF_WIDTH)
        }
        (Operation::Read, Level::Second) => {
            let row = widths(facts)?;
            let width = row.second.unwrap_or(row.store);
            by_width(facts, (width, "L2"), row.source, OF_SECOND_WIDTH)
        }
        (Operation::Write, Level::Second) => Err(NoPrediction::because(
            "it is not published how long a store holds up L1 that fetches its line from L2 and sends another one there",
        )),
        (Operation::Read, Level::Outer) => by_lines_in_flight(facts, bytes),
        (Operation::Write, Level::Outer) => {
            let reading = facts.measured(&BANDWIDTH_READ, &of_one)?;
            Ok(like(reading, "each line is read before it is written to, and goes back meanwhile"))
        }
        (Operation::Read, Level::Memory) => within_peak(by_chains(facts), facts, operation, (level, case)),
        (Operation::Fill | Operation::Zero, Level::Memory) => {
            let stores = facts.measured(&BANDWIDTH_NTWRITE, &in_memory)?;
            within_peak(Ok(like(stores, "the fastest means are non-temporal stores")), facts, operation, (level, case))
        }
        (Operation::Fill | Operation::Zero, _) => {
            let stores = facts.measured(&BANDWIDTH_WRITE, &of_one)?;
            Ok(like(stores, "as ordinary stores"))
        }
        (Operation::Write, Level::Memory) => {
            let written =
                bandwidth::in_second_level(machine).and_then(|second| written_to_memory(facts, [&of_one, &second]));
            within_peak(written.or_else(|_| written_back(facts, &of_one)), facts, operation, (level, case))
        }
        (Operation::Copy | Operation::Triad, _) => {
            within_peak(by_both(facts, operation, level, &of_one), facts, operation, (level, case))
        }
    }
}

/// Bytes per cycle x frequency.
fn by_width(
    facts: &Facts<'_>,
    (width, level): (f64, &str),
    source: &'static str,
    [least, most]: [f64; 2],
) -> Result<Prediction, NoPrediction> {
    let frequency = published::frequency(facts)?;
    let value = width * frequency.value;
    Ok(Predicting::between(Basis::Published, value, least * value, most * value)
        .formula(
            format!("published width of {level}"),
            format!("published bytes per cycle from {level} x core frequency"),
        )
        .constant("bytes per cycle", width, Unit::Bytes, source)
        .input(frequency.clone())
        .source(source)
        .derived_as(format!("{width} B/cycle x {:.3} GHz = {:.1} GB/s", frequency.value / 1e9, value / 1e9)))
}

/// All CPUs as so many of one.
fn by_one(facts: &Facts<'_>, metric: &Metric, of_one: &Case) -> Result<Prediction, NoPrediction> {
    let cpus = allowed(facts.machine()) as f64;
    let one = facts.measured(metric, of_one)?;
    let value = cpus * one.value;
    Ok(Predicting::between(Basis::Derived, value, one.value * (1.0 - TOLERANCE), value * (1.0 + TOLERANCE))
        .formula("CPUs times one", "CPUs x the same on one CPU")
        .constant("CPUs", cpus, Unit::Count, "the case")
        .input(one.clone())
        .derived_as(format!("{cpus} x {:.1} GB/s = {:.1} GB/s", one.value / 1e9, value / 1e9)))
}

/// Of all CPUs, from other operations of all of them: those that reach memory, but for reading it, writing around the caches, and zeros.
fn of_all(
    facts: &Facts<'_>,
    operation: Operation,
    level: Level,
    case: &Case,
) -> Option<Result<Prediction, NoPrediction>> {
    let machine = facts.machine();
    let stores = |case: &Case| facts.measured(&BANDWIDTH_NTWRITE, case).ok();
    let found = match (operation, level) {
        (Operation::NonTemporalWrite, Level::First | Level::Second | Level::Outer) => like(
            stores(&bandwidth::in_memory_of_all(machine)?)?,
            "non-temporal stores go to memory, whatever the working set",
        ),
        (Operation::Fill, Level::Memory) => like(stores(case)?, "the fastest means are non-temporal stores"),
        (Operation::Copy | Operation::Triad, Level::Memory) => by_both(facts, operation, level, case).ok()?,
        (Operation::Write, Level::Memory) => {
            let second = bandwidth::in_second_level(machine).ok()?.at(Cpus::All);
            written_to_memory(facts, [case, &second]).ok()?
        }
        _ => return None,
    };
    Some(Ok(found))
}

/// As fast as another operation.
fn like(other: Input, why: &'static str) -> Prediction {
    let value = other.value;
    Predicting::between(Basis::Derived, value, value * (1.0 - TOLERANCE), value * (1.0 + TOLERANCE))
        .formula(why, format!("the rate of another operation: {why}"))
        .input(other)
        .derived_as(format!("{:.1} GB/s", value / 1e9))
}

/// A loop that reads and writes, from the rates of reading and of writing: what they take one after the other, and what the longer of them
/// takes if they overlap. In L1 they do; beyond, the middle of the two is expected.
fn by_both(facts: &Facts<'_>, operation: Operation, level: Level, there: &Case) -> Result<Prediction, NoPrediction> {
    let reading = facts.measured(&BANDWIDTH_READ, there)?;
    let write = if level == Level::Memory { &BANDWIDTH_NTWRITE } else { &BANDWIDTH_WRITE };
    let writing = facts.measured(write, there)?;
    let (read, written) = if operation == Operation::Triad { (2.0, 1.0) } else { (1.0, 1.0) };
    let counted = read + written;
    let (reads, writes) = (read / reading.value, written / writing.value);
    let (apart, together) = (reads + writes, reads.max(writes));
    let expected = if level == Level::First { together } else { (apart * together).sqrt() };
    let rate = |seconds: f64| counted / seconds;
    let (low, high) = (rate(apart) * (1.0 - TOLERANCE), rate(together) * (1.0 + TOLERANCE));
    let [fast, slow, value] = [together, apart, expected].map(|seconds| rate(seconds) / 1e9);
    let (name, formula) = match level {
        Level::First => ("at once in L1", "the slower of reading and writing, which go on at once"),
        Level::Second => ("between in L2", "reading and writing in L2, between one after the other and at once"),
        Level::Outer => ("between beyond L2", "reading and writing beyond L2, between one after the other and at once"),
        Level::Memory => {
            ("between in memory", "reading and writing in memory, between one after the other and at once")
        }
    };
    Ok(Predicting::between(Basis::Derived, rate(expected), low, high)
        .formula(name, formula)
        .input(reading)
        .input(writing)
        .constant("bytes read", read, Unit::Count, "arrays of the operation")
        .constant("bytes written", written, Unit::Count, "arrays of the operation")
        .derived_as(format!("{slow:.1} GB/s one after the other, {fast:.1} GB/s at once: {value:.1} GB/s")))
}

/// Reading an outer cache: its loads are answered sooner than by memory, but prefetchers have no more lines in flight than they need there.
/// Between the rate of memory and that of as many lines in flight, by Little's law.
fn by_lines_in_flight(facts: &Facts<'_>, bytes: u64) -> Result<Prediction, NoPrediction> {
    let reading = facts.measured(&BANDWIDTH_READ, &bandwidth::in_memory(facts.machine()))?;
    let far = latency::of_memory(facts)?;
    let near = facts.measured(&LATENCY, &latency_case(bytes))?;
    let lines = reading.value * far.value / LINE / 1e9;
    let most = lines * LINE / near.value * 1e9;
    let value = (reading.value * most).sqrt();
    let words = format!(
        "between {:.1} GB/s and {lines:.1} lines x 64 B / {:.1} ns = {:.1} GB/s: {:.1} GB/s",
        reading.value / 1e9,
        near.value,
        most / 1e9,
        value / 1e9
    );
    let ends = [reading.value, most];
    let (low, high) = (ends[0].min(ends[1]) * (1.0 - TOLERANCE), ends[0].max(ends[1]) * (1.0 + TOLERANCE));
    Ok(Predicting::between(Basis::Derived, value, low, high)
        .formula("lines in flight", "between the rate of reading memory and that of as many lines in flight at this latency, the geometric mean")
        .source(LITTLE)
        .input(reading)
        .input(far)
        .input(near)
        .derived_as(words))
}

/// The lines in flight that are published of this core; `why` they were not measured, of a core in no table.
fn published_lines(facts: &Facts<'_>, why: NoPrediction) -> Result<Input, NoPrediction> {
    let row = hierarchy::hierarchy(facts).map_err(|_| why)?;
    let lines = row.outstanding.ok_or_else(|| {
        NoPrediction::because("the table of published figures has no number of lines in flight for this core")
    })?;
    Ok(Input { name: "lines in flight".into(), value: lines, unit: Unit::Count, source: row.source.into() })
}

/// Reading memory as many independent chains of loads do, of which each brings a line, and prefetchers more: between none and all
/// that an L2 can have in flight.
fn by_chains(facts: &Facts<'_>) -> Result<Prediction, NoPrediction> {
    let machine = facts.machine();
    let (value, inputs, [name, formula], derivation) = match facts.measured(&LATENCY_PARALLEL, &parallel::most(machine))
    {
        Ok(chains) => {
            let value = LINE / chains.value * 1e9;
            let derivation = format!("64 B / {:.2} ns = {:.1} GB/s", chains.value, value / 1e9);
            (
                value,
                vec![chains],
                ["chains", "64 B / a load of many independent chains x more in flight by prefetchers"],
                derivation,
            )
        }
        Err(why) => {
            let lines = published_lines(facts, why)?;
            let one = facts.measured(&LATENCY, &latency::in_memory(machine))?;
            let value = lines.value * LINE / one.value * 1e9;
            let derivation = format!("{:.0} lines x 64 B / {:.1} ns = {:.1} GB/s", lines.value, one.value, value / 1e9);
            (
                value,
                vec![lines, one],
                ["published lines", "Little's law: lines in flight x 64 B / latency x more in flight by prefetchers"],
                derivation,
            )
        }
    };
    let [low, high] = OF_CHAINS.map(|factor| value * factor);
    // Between none of them and all.
    let more = OF_PREFETCHERS.sqrt();
    let predicting = Predicting::between(Basis::Derived, more * value, low, high)
        .formula(name, formula)
        .source(LITTLE)
        .source(PREFETCHERS)
        .constant("lines in flight of L2 over those of loads", OF_PREFETCHERS, Unit::Count, PREFETCHERS);
    let derivation = format!("{derivation}, x {more:.2} = {:.1} GB/s", more * value / 1e9);
    Ok(predicting.inputs(inputs).derived_as(derivation))
}

/// Ordinary stores to memory: a line is read from there, and then what a store to a line in L2 takes, as it comes into L1 and another
/// one leaves it.
fn written_to_memory(facts: &Facts<'_>, [far, near]: [&Case; 2]) -> Result<Prediction, NoPrediction> {
    let (reading, within) = (facts.measured(&BANDWIDTH_READ, far)?, facts.measured(&BANDWIDTH_WRITE, near)?);
    Ok(in_turn(reading, within, "reading each line from memory and writing it in L2, one after the other"))
}

/// The same where no set in L2 was measured, as in a quick run: with what a store around the caches takes.
fn written_back(facts: &Facts<'_>, far: &Case) -> Result<Prediction, NoPrediction> {
    let (reading, around) = (facts.measured(&BANDWIDTH_READ, far)?, facts.measured(&BANDWIDTH_NTWRITE, far)?);
    Ok(in_turn(reading, around, "reading each line from memory and writing it there, one after the other"))
}

fn in_turn(reading: Input, writing: Input, formula: &'static str) -> Prediction {
    let value = 1.0 / (1.0 / reading.value + 1.0 / writing.value);
    let words = format!(
        "{:.1} GB/s and {:.1} GB/s one after the other: {:.1} GB/s",
        reading.value / 1e9,
        writing.value / 1e9,
        value / 1e9
    );
    Predicting::between(Basis::Derived, value, value / 2.0, reading.value * (1.0 + TOLERANCE))
        .formula(formula, formula)
        .input(reading)
        .input(writing)
        .derived_as(words)
}

/// The point of the latency curve for a working set in a cache.
fn latency_case(bytes: u64) -> Case {
    latency::in_base_pages(1 << bytes.max(1).ilog2())
}

/// A line from core to core in the crew, as between two CPUs apart from it.
fn between_cores(facts: &Facts<'_>) -> Result<Prediction, NoPrediction> {
    let way = core_to_core::line(facts)?;
    Ok(Predicting::within_factor(Basis::Derived, way.value, OF_WAY)
        .formula("core to core", "the way between two CPUs, as mem.core_to_core")
        .input(way.clone())
        .derived_as(format!("{:.0} ns", way.value)))
}

/// A prediction of an operation on memory, or the peak of the memory channels where that is less or nothing else tells.
fn within_peak(
    predicted: Result<Prediction, NoPrediction>,
    facts: &Facts<'_>,
    operation: Operation,
    (level, case): (Level, &Case),
) -> Result<Prediction, NoPrediction> {
    let peak = if level == Level::Memory { by_peak(facts, operation, case) } else { None };
    match (predicted, peak) {
        (Ok(predicted), Some(peak)) if predicted.value <= peak.value => {
            Ok(Prediction { high: predicted.high.min(peak.high), ceiling: peak.ceiling, ..predicted })
        }
        (_, Some(peak)) => Ok(peak),
        (predicted, None) => predicted,
    }
}

/// The peak of the memory channels, less write-allocate reads. It is a limit of all CPUs, which one cannot exceed
/// either.
fn by_peak(facts: &Facts<'_>, operation: Operation, case: &Case) -> Option<Prediction> {
    let fact = &facts.machine().memory.peak_bytes_per_second;
    let &peak = fact.get()?;
    let counted = operation.arrays() as f64;
    let on_bus = match operation {
        Operation::Read | Operation::NonTemporalWrite => counted,
        Operation::Write | Operation::Fill | Operation::Zero | Operation::Copy | Operation::Triad => counted + 1.0,
    };
    let value = peak * counted / on_bus;
    // A fill, copy or triad by non-temporal stores counts every byte on the bus.
    let most = if operation == Operation::Write { value } else { (peak * OF_PEAK[1]).max(value) };
    let name = if Cpus::of(case) == Some(Cpus::All) { "peak of all CPUs" } else { "peak, which one CPU may not reach" };
    Some(
        Predicting::between(Basis::Spec, value, OF_PEAK[0] * value, most)
            .at_most(most)
            .formula(name, "peak of the memory channels x bytes counted / bytes on the bus")
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
    use kelvin_catalogue::mem::{
        BANDWIDTH_COPY, BANDWIDTH_FILL, BANDWIDTH_NTWRITE, BANDWIDTH_READ, BANDWIDTH_TRIAD, BANDWIDTH_WRITE,
        BANDWIDTH_ZERO, CORE_TO_CORE, PageSize,
    };
    use kelvin_harness::MeasuredValue;
    use kelvin_model::{Fact, Machine};

    const L1: u64 = 24 << 10;
    const L2: u64 = 512 << 10;
    const MEMORY: u64 = 256 << 20;

    /// The prediction for an operation on a machine with 4 GHz, 100 ns to any level and a load in 5 ns from many chains; that reads
    /// 30, writes 10 and writes around the caches at 20 GB/s.
    fn predicted(machine: &Machine, metric: &Metric, bytes: u64, cpus: Cpus) -> Result<Prediction, NoPrediction> {
        let measured = |id: &str, _: &Case| {
            let rates = [
                (&BANDWIDTH_READ, 30e9),
                (&BANDWIDTH_WRITE, 10e9),
                (&BANDWIDTH_NTWRITE, 20e9),
                (&BANDWIDTH_COPY, 25e9),
            ];
            let others = [(&FREQUENCY, 4e9), (&LATENCY, 100.0), (&LATENCY_PARALLEL, 5.0), (&CORE_TO_CORE, 70.0)];
            let found = rates.iter().chain(&others).find(|(metric, _)| *metric.id == *id);
            found.map(|&(_, value)| MeasuredValue { value, half_width: 0.0 })
        };
        let case = Case::new().with(BYTES, bytes).at(cpus);
        predict(&Facts::new(machine, &measured), metric, &case)
    }

    fn of_core(name: &str) -> Machine {
        let mut machine = machine(2, 32 << 20, 24 << 30);
        machine.cpu.microarchitecture = Fact::known(name.into(), "a test");
        machine
    }

    fn value(machine: &Machine, metric: &Metric, bytes: u64) -> f64 {
        (predicted(machine, metric, bytes, Cpus::One).unwrap().value / 1e8).round() / 10.0
    }

    #[test]
    fn caches_are_as_wide_as_published_and_other_operations_follow() {
        let machine = of_core("Zen 5");
        assert_eq!(value(&machine, &BANDWIDTH_READ, L1), 512.0);
        assert_eq!(value(&machine, &BANDWIDTH_WRITE, L1), 256.0);
        assert_eq!(value(&machine, &BANDWIDTH_READ, L2), 256.0);
        // In L1 loads and stores go on at once, and the slower decides.
        assert_eq!((value(&machine, &BANDWIDTH_COPY, L1), value(&machine, &BANDWIDTH_TRIAD, L1)), (20.0, 30.0));
        // In L2 a line of each takes 1/30 + 1/10 one after the other, 1/10 at once.
        assert_eq!(value(&machine, &BANDWIDTH_COPY, L2), (2.0 / (4.0f64 / 30.0 / 10.0).sqrt() * 10.0).round() / 10.0);
        assert_eq!((value(&machine, &BANDWIDTH_FILL, L2), value(&machine, &BANDWIDTH_ZERO, L1)), (10.0, 10.0));
        assert_eq!(value(&machine, &BANDWIDTH_NTWRITE, L1), 20.0);
        // A core that nothing is published of has the same, but for the widths.
        let unknown = of_core("Zen 9");
        assert!(predicted(&unknown, &BANDWIDTH_READ, L1, Cpus::One).is_err());
        assert_eq!(value(&unknown, &BANDWIDTH_COPY, L1), 20.0);
    }

    #[test]
    fn all_cpus_move_so_many_times_what_one_does() {
        let machine = of_core("Zen 9");
        let all = predicted(&machine, &BANDWIDTH_COPY, L2, Cpus::All).unwrap();
        assert_eq!((all.value, all.derivation.as_str()), (50e9, "2 x 25.0 GB/s = 50.0 GB/s"));
        assert!(all.low < 25e9 && all.high > 50e9);
        let way = predicted(&machine, &BANDWIDTH_CORE_TO_CORE, L2, Cpus::All).unwrap();
        assert_eq!(way.value, 70.0);
    }

    #[test]
    fn of_all_cpus_what_reaches_memory_follows_from_reading_and_writing_there() {
        let machine = of_core("Zen 9");
        let all = |metric, bytes| predicted(&machine, metric, bytes, Cpus::All).unwrap();
        // Reads and stores around the caches: twice what one CPU does.
        assert_eq!((all(&BANDWIDTH_READ, MEMORY).value, all(&BANDWIDTH_NTWRITE, MEMORY).value), (60e9, 40e9));
        // Of the rest, what those of all were measured to do: 30 and 20 GB/s here, and 10 in L2.
        assert_eq!((all(&BANDWIDTH_NTWRITE, L2).value, all(&BANDWIDTH_FILL, MEMORY).value), (20e9, 20e9));
        assert!((all(&BANDWIDTH_WRITE, MEMORY).value - 7.5e9).abs() < 1.0);
        assert!(
            all(&BANDWIDTH_COPY, MEMORY).derivation.starts_with("24.0 GB/s one after the other, 40.0 GB/s at once")
        );
    }

    #[test]
    fn memory_is_limited_by_the_channels_where_they_are_known() {
        let mut machine = of_core("Zen 5");
        let at = |machine: &Machine, metric| predicted(machine, metric, MEMORY, Cpus::One);
        assert!(at(&machine, &BANDWIDTH_NTWRITE).is_err());
        assert_eq!(at(&machine, &BANDWIDTH_FILL).unwrap().value, 20e9);
        machine.memory.peak_bytes_per_second = Fact::known(12e9, "a test");
        // The bus moves four bytes per three counted in a triad, and two per one in a write.
        assert_eq!(at(&machine, &BANDWIDTH_READ).unwrap().value, 12e9);
        assert_eq!(by_peak_value(&machine, &BANDWIDTH_TRIAD), 9e9);
        assert_eq!(by_peak_value(&machine, &BANDWIDTH_WRITE), 6e9);
        assert_eq!(at(&machine, &BANDWIDTH_NTWRITE).unwrap().value, 12e9);
        assert_eq!(predicted(&machine, &BANDWIDTH_TRIAD, L2, Cpus::One).unwrap().basis, Basis::Derived);
    }

    fn by_peak_value(machine: &Machine, metric: &Metric) -> f64 {
        let (operation, _) = MEASURED.iter().find(|(_, of)| *of == metric).unwrap();
        by_peak(&Facts::new(machine, &|_, _| None), *operation, &Case::new()).unwrap().value
    }

    #[test]
    fn reading_follows_from_memory_and_writing_from_reading() {
        let machine = of_core("Zen 9");
        // A line in 5 ns, and between none and twice as many more by prefetchers.
        assert_eq!(value(&machine, &BANDWIDTH_READ, MEMORY), (12.8 * 3.0f64.sqrt() * 10.0).round() / 10.0);
        // 30 GB/s x 100 ns are 46.9 lines, which at 100 ns are as much again; a write reads as many.
        assert_eq!(value(&machine, &BANDWIDTH_READ, 8 << 20), 30.0);
        assert_eq!(value(&machine, &BANDWIDTH_WRITE, 8 << 20), 30.0);
        let outer = predicted(&machine, &BANDWIDTH_READ, 8 << 20, Cpus::One).unwrap();
        assert_eq!(outer.derivation, "between 30.0 GB/s and 46.9 lines x 64 B / 100.0 ns = 30.0 GB/s: 30.0 GB/s");
        assert!(predicted(&machine, &BANDWIDTH_WRITE, L2, Cpus::One).is_err());
        // A write to memory reads the line first: 1/30 + 1/10.
        let write = predicted(&machine, &BANDWIDTH_WRITE, MEMORY, Cpus::One).unwrap();
        assert_eq!(write.derivation, "30.0 GB/s and 10.0 GB/s one after the other: 7.5 GB/s");
        // Where no chains were measured, as published.
        let latency =
            |id: &str, _: &Case| (*id == *LATENCY.id).then_some(MeasuredValue { value: 100.0, half_width: 0.0 });
        let case = Case::new().with(BYTES, MEMORY).at(Cpus::One);
        let read = |machine: &Machine| predict(&Facts::new(machine, &latency), &BANDWIDTH_READ, &case);
        let published = read(&of_core("Sapphire Rapids")).unwrap().value;
        assert!((published - 10.24e9 * 3.0f64.sqrt()).abs() < 1.0, "{published}");
        assert!(read(&machine).unwrap_err().0.contains("mem.latency.parallel"));
    }

    #[test]
    fn a_working_set_in_a_cache_uses_the_latency_there() {
        assert_eq!(latency_case(6 << 20), Case::new().at(PageSize::Base).with(BYTES, 4 << 20));
    }
}
