//! Memory latency under load: CPUs of other cores use from none to all of the bandwidth that they can.
//!
//! It shows how much bandwidth can be used before latency suffers. It must not be used as the latency that the busy
//! CPUs see.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use kelvin_core::catalogue::mem::{
    BANDWIDTH_READ, BANDWIDTH_WRITE, BYTES, INJECTED_LOAD, LOADED_BANDWIDTH, LOADED_LATENCY, LOADED_PROBE,
};
use kelvin_sys::clock::Clock;
use kelvin_sys::cpu;
use kelvin_sys::kernels::bandwidth::{BandwidthKernel, Operation};
use kelvin_sys::memory::{LINE_BYTES, PagePolicy, PointerRing};

use super::axes::{number, skip_if_out_of_memory};
use super::bandwidth::{self, BandwidthArrays, widest_kernel};
use super::latency;
use super::memory_budget::{cache_set_bytes, last_level_bytes, last_level_count, memory_budget};
use crate::background::{measure_with_threads, other_cpus};
use crate::prelude::*;
use crate::working_cpus::last_level_sharers;

pub(crate) static PROBE: Probe = Probe {
    id: LOADED_PROBE.as_str(),
    summary: "Memory latency against the bandwidth used by other CPUs",
    method: include_str!("loaded_latency.md"),
    cases,
    run,
    predict,
    ..Probe::measure(&[&LOADED_LATENCY, &LOADED_BANDWIDTH])
};

/// Points of a quick run, both ends; of a default one; of a thorough one.
const LOAD_PERCENTAGES: [&[u64]; 3] =
    [&[0, 100], &[0, 25, 50, 75, 100], &[0, 10, 20, 25, 30, 40, 50, 60, 70, 75, 80, 85, 90, 95, 100]];
/// Where several injectors may come near what memory gives, queues grow before full injection: one more point of a default run.
const QUEUE_LOAD_PERCENTAGE: u64 = 90;
/// Minimum memory of a single injector, and of the timed loads: more than twice the share of most last-level caches.
const MIN_SET: u64 = 64 << 20;
/// Lines that are linked for the timed loads, which pass over them once in a round.
const LINKED_LINES: usize = 1 << 18;
/// Loads before those that are timed: enough that translations of all pages are cached.
const WARM_UP_LOADS: u64 = 2000;
/// Bytes that an injector moves between two readings of the clock.
const PIECE_BYTES: usize = 16 << 10;
/// Bytes of a block, read and written.
const BLOCK_BYTES: u64 = 2 * PIECE_BYTES as u64;
/// Maximum memory of the injectors, as a multiple of what stated caches cannot hold: a virtual machine may have more of them than is believed.
const MAX_INJECTED_SETS: u64 = 4;
/// The caches serve the injectors if these are faster by this factor than when everything comes from memory: by less, the rates of two
/// moments may differ.
const MAX_CACHED_SPEEDUP: f64 = 1.15;
/// And other programs have slowed them if they are slower by this one: lines to write back take a third of the traffic.
const MIN_UNDISTURBED_RATIO: f64 = 0.6;
/// How often that is tried.
const MAX_ATTEMPTS: u32 = 3;
/// Nanoseconds of an interval of full injection before the timed part, and the number of intervals. The last is how
/// many may pass while other programs occupy the injectors' CPUs.
const INTERVAL_NANOSECONDS: u64 = 1_000_000;
const MIN_INTERVALS: u32 = 4;
const MAX_INTERVALS: u32 = 100;

fn cases(machine: &Machine, effort: Effort) -> Vec<Case> {
    let mut loads = by_effort(effort, LOAD_PERCENTAGES).to_vec();
    if effort == Effort::Default && injectors_of(machine) > 1 {
        loads.insert(loads.len() - 1, QUEUE_LOAD_PERCENTAGE);
    }
    numbers(INJECTED_LOAD, &loads).numbers(BYTES, &[set_bytes(machine)])
}

/// Memory of the timed loads, and of the injectors for each last-level cache at work.
///
/// Several injectors prepare theirs at once. One would take longer than what is timed: it begins with twice the cache, as whether that is
/// enough is tried. What they may have at the most and that of the loads fit into what may be touched.
fn set_bytes(machine: &Machine) -> u64 {
    if injectors_of(machine) > 1 {
        return cache_set_bytes(machine, MAX_INJECTED_SETS * last_level_count(machine) + 1);
    }
    let budget = 1 << (memory_budget(machine) / 3).max(1).ilog2();
    (2 * last_level_bytes(machine)).max(MIN_SET).min(budget)
}

/// The CPUs that inject: all but the measured one and the other threads of its core, which would take more from it than memory. Where there
/// are no others, these.
fn injector_cpus<C: PartialEq>(measured_cpu: u32, other_cpus: &[u32], core_of: impl Fn(u32) -> Option<C>) -> Vec<u32> {
    let measured_core = core_of(measured_cpu);
    let is_of_other_core = |cpu: &u32| measured_core.is_none() || core_of(*cpu) != measured_core;
    let of_other_cores: Vec<u32> = other_cpus.iter().copied().filter(is_of_other_core).collect();
    if of_other_cores.is_empty() { other_cpus.to_vec() } else { of_other_cores }
}

/// How many CPUs inject.
fn injectors_of(machine: &Machine) -> usize {
    let Machine { topology, cpu, .. } = machine;
    let allowed = topology.allowed.get().map_or(&[][..], Vec::as_slice);
    let Some(measured_cpu) = cpu.number.or_else(|| topology.default_cpu(allowed)) else { return 1 };
    let other_cpus: Vec<u32> = allowed.iter().copied().filter(|&cpu| cpu != measured_cpu).collect();
    let siblings = topology.siblings.get().map_or(&[][..], Vec::as_slice);
    injector_cpus(measured_cpu, &other_cpus, |cpu| siblings.iter().position(|threads| threads.contains(&cpu)))
        .len()
        .max(1)
}

/// The bandwidth of all CPUs together at full injection, if it was measured and memory was what limited it: if it is clearly less than as
/// many times what one injector would move.
pub(super) fn saturated_bandwidth(facts: &PredictionInputs<'_>) -> Option<Expr> {
    let case = Case::new().with_number(INJECTED_LOAD, 100).with_number(BYTES, set_bytes(facts.machine()));
    let full_load = measured(facts, &LOADED_BANDWIDTH, &case).ok()?;
    let unlimited = unlimited_injection_rate(facts).ok()?;
    (full_load.value() < MAX_SATURATED_SHARE * unlimited.value()).then_some(full_load)
}

fn run(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let load = INJECTED_LOAD.number_in(case).filter(|&load| load <= 100);
    let load = load.or_fail("the case needs an injection of 0 to 100 %")?;
    let bytes = number(case, BYTES)?;
    let cpus = injector_cpus(bench.cpu(), &other_cpus(bench)?, cpu::core_of);
    let ring = PointerRing::sparse(bytes, LINKED_LINES, PagePolicy::Huge, bench.seed());
    let mut ring = skip_if_out_of_memory(bytes, ring)?;
    bench.note(format!("injectors on CPUs {}", kelvin_core::cpu_ranges(&cpus)));
    // Where the kernel tells no caches, there is one.
    let caches: BTreeSet<Option<String>> = cpus.iter().map(|&cpu| last_level_sharers(cpu)).collect();
    let injected_bytes = bytes * caches.len();
    let injection = Injection::new(bench.clock(), cpus.len())?;
    measure_with_threads(
        "injector",
        &cpus,
        &injection.stop,
        |number| injection.run_injector(number),
        || {
            if load > 0 {
                start_injection(bench, &injection, injected_bytes, load)?;
            }
            measure(bench, &injection, &mut ring, load)
        },
    )
}

/// Full injection for a moment, shown to come from memory, then the requested share of it.
fn start_injection(bench: &mut Bench<'_>, injection: &Injection, bytes: usize, load: u64) -> ProbeResult {
    let injectors = injection.injectors();
    let (injector_bytes, rates) = find_uncached_size(bytes, injectors, |bytes| injection.measure_rates(bench, bytes))?;
    let [passed_rate, flushed_rate] = [rates.passed_rate, rates.flushed_rate].map(|rate| rate / bench.nanoseconds(1));
    bench.note(format!(
        "{injectors} injectors of {} MiB each, full injection {passed_rate:.2} GB/s; flushed from the caches before, {flushed_rate:.2} GB/s",
        injector_bytes >> 20
    ));
    let ticks_per_block = BLOCK_BYTES as f64 * injectors as f64 / rates.passed_rate;
    injection.interval.store(injection_interval(load, ticks_per_block), Ordering::Release);
    Ok(())
}

/// Loads that no cache serves, meanwhile.
fn measure(bench: &mut Bench<'_>, injection: &Injection, ring: &mut PointerRing, load: u64) -> ProbeResult {
    let clock = bench.clock();
    ring.chase_uncached(clock, WARM_UP_LOADS);
    let (start, bytes_before, mut loads_done) = (clock.start(), injection.total_bytes(), 0);
    bench.time_parts([&LOADED_LATENCY], |clock, loads| {
        loads_done += loads;
        Ok([ring.chase_uncached(clock, loads) as f64])
    })?;
    let ticks = clock.stop() - start;
    let injection_rate = (injection.total_bytes() - bytes_before) as f64 / ticks as f64;
    bench.note(format!("{load} % of full injection requested"));
    let chase_rate = (loads_done * LINE_BYTES as u64) as f64 / ticks as f64;
    bench.record(&LOADED_BANDWIDTH, vec![1e9 * (injection_rate + chase_rate) / bench.nanoseconds(1)]);
    Ok(())
}

/// Bytes of each injector of which the caches serve none, and the rates of all. They begin with this many bytes in all, and have twice as much
/// as before while the caches serve them.
///
/// # Errors
/// A reason to skip, where the caches may still serve them at the most.
fn find_uncached_size(
    bytes: usize,
    injectors: usize,
    mut measure_rates: impl FnMut(usize) -> ProbeResult<InjectionRates>,
) -> ProbeResult<(usize, InjectionRates)> {
    let mut injector_bytes = bytes / injectors;
    let max_bytes = MAX_INJECTED_SETS as usize * injector_bytes;
    loop {
        let mut best: Option<InjectionRates> = None;
        let mut is_cache_faster = false;
        for _ in 0..MAX_ATTEMPTS {
            let rates = measure_rates(injector_bytes)?;
            if rates.passed_rate == 0.0 {
                continue;
            }
            is_cache_faster |= !rates.is_memory_rate();
            if rates.is_memory_rate() && best.is_none_or(|best| rates.passed_rate > best.passed_rate) {
                best = Some(rates);
            }
            if best.is_some_and(|best| best.passed_rate >= MIN_UNDISTURBED_RATIO * best.flushed_rate) {
                break;
            }
        }
        match best {
            Some(rates) => return Ok((injector_bytes, rates)),
            None if injector_bytes < max_bytes => injector_bytes = (2 * injector_bytes).min(max_bytes),
            None => {
                let reason = format!(
                    "the load could not be shown to be memory's: {injectors} injectors of {} MiB each were faster than just after a \
                     flush of the caches, so that these may serve them",
                    injector_bytes >> 20
                );
                skip_if(is_cache_faster, reason)?;
                let reason = "the injectors moved nothing at first: their CPUs were busy with other work";
                return Err(ProbeError::fail(reason));
            }
        }
    }
}

/// Rates of all injectors together, in bytes per tick.
#[derive(Clone, Copy, Debug)]
struct InjectionRates {
    /// In their first pass after all of their memory was flushed from every cache: each byte comes from memory.
    flushed_rate: f64,
    /// Once each has passed over all of its memory: what the caches can hold of it comes from there.
    passed_rate: f64,
}

impl InjectionRates {
    /// Whether the caches serve the injectors no faster than memory does.
    fn is_memory_rate(self) -> bool {
        self.passed_rate <= MAX_CACHED_SPEEDUP * self.flushed_rate
    }
}

/// Ticks from one block of an injector to the next, for a share of its full rate of `full` ticks per block.
fn injection_interval(load: u64, ticks_per_block: f64) -> u64 {
    match load {
        0 => IDLE_INTERVAL,
        100 => 0,
        percentage => ((ticks_per_block * 100.0 / percentage as f64) as u64).clamp(1, IDLE_INTERVAL - 1),
    }
}

/// The interval of an idle injector.
const IDLE_INTERVAL: u64 = u64::MAX;
/// An injector this many intervals late drops them rather than catch up in a burst.
const MAX_LATE_INTERVALS: u64 = 8;

/// State shared by the injectors and their controlling thread.
struct Injection {
    clock: Clock,
    read: BandwidthKernel,
    write: BandwidthKernel,
    /// Ticks from block to block: 0 is without a pause, [`IDLE_INTERVAL`] is no injection.
    interval: AtomicU64,
    /// Bytes of memory that each injector is to have.
    working_bytes: AtomicUsize,
    /// Bytes that each may move after a flush. It waits there until their first pass was watched to its end.
    max_bytes: AtomicU64,
    /// How often they were to obtain that with none of it in a cache; and how many have done so the last time.
    requested_flush: AtomicUsize,
    ready: AtomicUsize,
    /// Bytes moved, a counter for each injector on a line of its own.
    bytes_moved: Vec<PaddedCounter>,
    stop: AtomicBool,
}

/// A counter that shares its cache line with nothing.
#[derive(Default)]
#[repr(align(128))]
struct PaddedCounter(AtomicU64);

impl Injection {
    fn new(clock: Clock, injectors: usize) -> ProbeResult<Self> {
        // Consistency matters more here than a little speed.
        Ok(Self {
            clock,
            read: widest_kernel(Operation::Read)?,
            write: widest_kernel(Operation::Write)?,
            interval: AtomicU64::new(IDLE_INTERVAL),
            working_bytes: AtomicUsize::new(0),
            max_bytes: AtomicU64::new(u64::MAX),
            requested_flush: AtomicUsize::new(0),
            ready: AtomicUsize::new(0),
            bytes_moved: (0..injectors).map(|_| PaddedCounter::default()).collect(),
            stop: AtomicBool::new(false),
        })
    }

    fn injectors(&self) -> usize {
        self.bytes_moved.len()
    }

    /// Bytes that each injector has moved until now.
    fn bytes_per_injector(&self) -> impl Iterator<Item = u64> {
        self.bytes_moved.iter().map(|counter| counter.0.load(Ordering::Relaxed))
    }

    /// Bytes that all injectors have moved until now.
    fn total_bytes(&self) -> u64 {
        self.bytes_per_injector().sum()
    }

    /// Lets every injector have this many bytes of memory, none of them in a cache.
    fn flush(&self, bytes: usize) -> ProbeResult {
        self.ready.store(0, Ordering::Release);
        self.working_bytes.store(bytes, Ordering::Release);
        self.requested_flush.fetch_add(1, Ordering::AcqRel);
        while self.ready.load(Ordering::Acquire) < self.injectors() {
            fail_if(self.stop.load(Ordering::Acquire), "an injector could not start")?;
            std::thread::sleep(std::time::Duration::from_micros(100));
        }
        Ok(())
    }

    /// The rates of injectors with this many bytes each.
    fn measure_rates(&self, bench: &Bench<'_>, bytes: usize) -> ProbeResult<InjectionRates> {
        let (pass_bytes, moment) = (bytes as u64, bench.ticks(INTERVAL_NANOSECONDS));
        // However long this thread is kept from its CPU, none begins a second pass meanwhile.
        self.max_bytes.store(pass_bytes, Ordering::Release);
        self.flush(bytes)?;
        let before: Vec<u64> = self.bytes_per_injector().collect();
        let bytes_passed = || self.bytes_per_injector().zip(&before).map(|(now, before)| now - before);
        let (furthest, slowest) = (|| bytes_passed().max().unwrap_or(0), || bytes_passed().min().unwrap_or(0));
        self.interval.store(0, Ordering::Release);
        // In the second half of the pass the caches are full of lines to write back.
        self.wait_until(bench, || furthest() >= pass_bytes / 2)?;
        let flushed_rate = self.best_rate(moment, |_| furthest() >= pass_bytes - pass_bytes / 8);
        self.max_bytes.store(u64::MAX, Ordering::Release);
        self.wait_until(bench, || slowest() >= pass_bytes)?;
        let passed_rate = self.best_rate(moment, |moments| moments >= MIN_INTERVALS);
        self.interval.store(IDLE_INTERVAL, Ordering::Release);
        Ok(InjectionRates { flushed_rate, passed_rate })
    }

    /// The loop of one injector.
    fn run_injector(&self, number: usize) -> ProbeResult {
        let mut memory: Option<BandwidthArrays> = None;
        let (mut completed_flush, mut next_block, mut bytes_since_flush) = (0, 0, 0);
        while !self.stop.load(Ordering::Relaxed) {
            let requested_flush = self.requested_flush.load(Ordering::Acquire);
            if requested_flush != completed_flush {
                let bytes = self.working_bytes.load(Ordering::Acquire);
                if memory.as_ref().is_none_or(|mover| mover.arrays.working_set() != bytes) {
                    // The old memory goes before the new one comes.
                    drop(memory.take());
                    let arrays = BandwidthArrays::new(bytes, PIECE_BYTES, PagePolicy::Huge);
                    memory = Some(skip_if_out_of_memory(bytes, arrays)?);
                }
                memory.iter().for_each(|mover| mover.arrays.evict());
                (completed_flush, bytes_since_flush) = (requested_flush, 0);
                self.ready.fetch_add(1, Ordering::AcqRel);
            }
            let interval = self.interval.load(Ordering::Relaxed);
            let now = self.clock.stop();
            let is_due = interval != IDLE_INTERVAL && now >= next_block;
            let may_move = bytes_since_flush < self.max_bytes.load(Ordering::Relaxed);
            let Some(mover) = memory.as_mut().filter(|_| is_due && may_move) else {
                // After a time without injection nothing is late.
                next_block = if interval == IDLE_INTERVAL { now } else { next_block };
                std::hint::spin_loop();
                continue;
            };
            mover.run(Operation::Read, &self.read, 1);
            mover.run(Operation::Write, &self.write, 1);
            bytes_since_flush += BLOCK_BYTES;
            self.bytes_moved[number].0.fetch_add(BLOCK_BYTES, Ordering::Relaxed);
            next_block = next_block
                .max(now.saturating_sub(MAX_LATE_INTERVALS.saturating_mul(interval)))
                .saturating_add(interval);
        }
        Ok(())
    }

    /// Waits until injectors have moved enough.
    fn wait_until(&self, bench: &Bench<'_>, is_reached: impl Fn() -> bool) -> ProbeResult {
        let clock = self.clock;
        let max_ticks = bench.ticks(u64::from(MAX_INTERVALS) * INTERVAL_NANOSECONDS);
        let (mut last_progress, mut last_bytes) = (clock.start(), self.total_bytes());
        while !is_reached() {
            std::hint::spin_loop();
            let bytes = self.total_bytes();
            if bytes != last_bytes {
                (last_progress, last_bytes) = (clock.stop(), bytes);
            } else if clock.stop().wrapping_sub(last_progress) > max_ticks {
                return Err(ProbeError::fail("the injectors moved nothing: their CPUs were busy with other work"));
            }
        }
        Ok(())
    }

    /// Bytes per tick in the best of moments of this many ticks, of which the last may be shorter.
    fn best_rate(&self, moment: u64, is_over: impl Fn(u32) -> bool) -> f64 {
        let clock = self.clock;
        let (mut best, mut moments) = (0.0f64, 0);
        loop {
            let (start, before) = (clock.start(), self.total_bytes());
            let mut ticks = 0;
            while ticks < moment && !is_over(moments) {
                std::hint::spin_loop();
                ticks = clock.stop() - start;
            }
            // Blocks are counted as a whole: of a short while the rate is rough.
            if moments == 0 || ticks >= moment / 4 {
                // The clock after the bytes, as before them at first: a pause of this thread makes a rate smaller, and never larger.
                let bytes = self.total_bytes() - before;
                best = best.max(bytes as f64 / (clock.stop() - start) as f64);
            }
            moments += 1;
            if is_over(moments) {
                return best;
            }
        }
    }
}

/// Predicted range of the latency: from idle to queues as long again twice.
const LATENCY_RANGE: [f64; 2] = [0.9, 3.0];
/// Like `LATENCY_RANGE`, without injection: the loads of mem.latency. The other CPUs look at the clock, and may lower the frequency.
const IDLE_LATENCY_RANGE: [f64; 2] = [0.9, 1.2];
/// Memory limits injectors that move at most this share of as many times what one does: even without a limit an injector, whose loops
/// alternate in pieces, moves some 15 % less than it would by the rates of its loops.
const MAX_SATURATED_SHARE: f64 = 0.7;
/// Predicted range of the bandwidth, factor either way.
const BANDWIDTH_RANGE_FACTOR: f64 = 1.5;

fn predict(facts: &PredictionInputs<'_>, metric: &Metric, case: &Case) -> Predicted {
    let load = required_number(INJECTED_LOAD, case)?;
    let bytes = required_number(BYTES, case)?;
    let idle = latency::untranslated_latency_at(facts, bytes)?;
    if metric.id == LOADED_LATENCY.id {
        let range = if load == 0 { IDLE_LATENCY_RANGE } else { LATENCY_RANGE };
        return Ok(idle.of_value(range).derived("idle latency"));
    }
    let line = bytes_of("line", LINE_BYTES as u64);
    let share = quantity("load", load as f64 / 100.0, Unit::Ratio);
    let rate = full_injection_rate(facts)? * share + line / idle;
    Ok(rate.widen(BANDWIDTH_RANGE_FACTOR).derived("injectors in memory"))
}

/// What the injectors move together without a pause: as many times what one does, and no more than all CPUs do. Where that was not measured,
/// no more than one may get through.
fn full_injection_rate(facts: &PredictionInputs<'_>) -> Predicted<Expr> {
    let machine = facts.machine();
    let rate = unlimited_injection_rate(facts)?;
    let Some(all_cpus) = bandwidth::all_cpus_memory_case(machine).filter(|_| injectors_of(machine) > 1) else {
        return Ok(rate);
    };
    match alternating_rate(facts, &all_cpus) {
        Ok(highest) => Ok(rate.min(highest).variant("several")),
        Err(_) => {
            let single = alternating_rate(facts, &bandwidth::memory_case(machine))?;
            Ok(rate.clone().with_bounds(&single, &rate).variant("several without a limit"))
        }
    }
}

/// As many times what one injector moves without a pause as there are injectors.
fn unlimited_injection_rate(facts: &PredictionInputs<'_>) -> Predicted<Expr> {
    let machine = facts.machine();
    let count = fact("injectors", injectors_of(machine) as f64, Unit::Count, "allowed CPUs of other cores");
    Ok(count * alternating_rate(facts, &bandwidth::memory_case(machine))?)
}

/// The rate of reading as many bytes as are written, one after the other.
fn alternating_rate(facts: &PredictionInputs<'_>, case: &Case) -> Predicted<Expr> {
    let line = bytes_of("line", LINE_BYTES as u64);
    let line_time = |metric: &Metric| Ok::<Expr, NoPrediction>(line.clone() / measured(facts, metric, case)?);
    Ok(2.0 * line.clone() / (line_time(&BANDWIDTH_READ)? + line_time(&BANDWIDTH_WRITE)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use kelvin_core::catalogue::mem::{LATENCY, MemoryCpus};
    use kelvin_core::{Fact, MeasuredValue};

    #[test]
    fn injectors_alternate_reads_and_writes() {
        let machine = testing::machine();
        let measured = |id: &str, _: &Case| {
            let value = match id {
                id if *id == *LATENCY.id => 160.0,
                id if *id == *BANDWIDTH_READ.id => 30e9,
                _ => 10e9,
            };
            Some(MeasuredValue { value, half_width: 0.0 })
        };
        let facts = PredictionInputs::new(&machine, &measured);
        let predicted = |metric, load| {
            predict(&facts, metric, &Case::new().with_number(INJECTED_LOAD, load).with_number(BYTES, 64 << 20)).unwrap()
        };
        // 64 bytes in 160 ns; and of the full 15 GB/s half.
        assert_eq!(predicted(&LOADED_BANDWIDTH, 0).value, 0.4e9);
        assert!((predicted(&LOADED_BANDWIDTH, 50).value - 7.9e9).abs() < 1.0);
        let latency = predicted(&LOADED_LATENCY, 100);
        assert_eq!((latency.value, latency.low, latency.high), (160.0, 144.0, 480.0));
    }

    #[test]
    fn less_load_means_longer_intervals() {
        assert_eq!(injection_interval(0, 1000.0), IDLE_INTERVAL);
        assert_eq!(injection_interval(100, 1000.0), 0);
        assert_eq!(injection_interval(50, 1000.0), 2000);
        assert_eq!(injection_interval(25, 1000.0), 4000);
    }

    #[test]
    fn working_set_fits_memory_budget() {
        let mut machine = testing::machine();
        let bytes = |machine: &Machine| BYTES.number_in(&cases(machine, Effort::Default)[0]).unwrap();
        machine.memory.available_bytes = Fact::known(24 << 30, "a test");
        assert_eq!(bytes(&machine), 128 << 20);
        machine.memory.available_bytes = Fact::known(512 << 20, "a test");
        assert_eq!(bytes(&machine), 64 << 20);
        // Several injectors: four times L3 and twelve L2, or a fifth of what may be touched.
        let bytes = |available| bytes(&bandwidth::tests::machine(12, 32 << 20, available));
        assert_eq!((bytes(24 << 30), bytes(1 << 30)), (176 << 20, 96 << 20));
    }

    #[test]
    fn several_injectors_have_a_point_before_saturation() {
        let loads = |cpus: u32, effort: Effort| {
            let machine = bandwidth::tests::machine(cpus, 32 << 20, 24 << 30);
            let cases = cases(&machine, effort);
            cases.iter().map(|case| INJECTED_LOAD.number_in(case).unwrap()).collect::<Vec<u64>>()
        };
        assert_eq!((loads(2, Effort::Quick), loads(2, Effort::Default)), (vec![0, 100], vec![0, 25, 50, 75, 100]));
        let default_loads = loads(3, Effort::Default);
        assert_eq!(default_loads, [0, 25, 50, 75, 90, 100]);
        let thorough_loads = loads(3, Effort::Thorough);
        assert!(default_loads.iter().all(|load| thorough_loads.contains(load)) && thorough_loads.is_sorted());
    }

    #[test]
    fn threads_of_measured_core_inject_nothing() {
        // Cores of two threads, side by side.
        let core_of = |cpu: u32| Some(cpu / 2);
        assert_eq!(injector_cpus(5, &[0, 1, 2, 3, 4, 6, 7], core_of), [0, 1, 2, 3, 6, 7]);
        assert_eq!(injector_cpus(1, &[0], core_of), [0], "there is no other core");
        assert_eq!(injector_cpus(1, &[0, 2], |_| None::<u32>), [0, 2], "no core is known");
        let mut machine = bandwidth::tests::machine(8, 32 << 20, 24 << 30);
        assert_eq!(injectors_of(&machine), 7);
        machine.topology.siblings = Fact::known((0..4).map(|core| vec![2 * core, 2 * core + 1]).collect(), "a test");
        assert_eq!(injectors_of(&machine), 6);
        machine.topology.allowed = Fact::known(vec![4, 5], "a test");
        assert_eq!(injectors_of(&machine), 1);
    }

    #[test]
    fn injectors_move_no_more_than_all_cpus() {
        let measured = |id: &str, case: &Case| {
            let value = match (id == LATENCY.id.as_str(), MemoryCpus::of(case)) {
                (true, _) => 64.0,
                (_, Some(MemoryCpus::All)) => 50e9,
                _ => 10e9,
            };
            Some(MeasuredValue { value, half_width: 0.0 })
        };
        // 64 bytes in 64 ns are 1 GB/s.
        let predicted = |cpus: u32, load: u64| {
            let machine = bandwidth::tests::machine(cpus, 32 << 20, 24 << 30);
            let case = Case::new().with_number(INJECTED_LOAD, load).with_number(BYTES, 64 << 20);
            let rate = predict(&PredictionInputs::new(&machine, &measured), &LOADED_BANDWIDTH, &case).unwrap();
            (rate.value / 1e9).round()
        };
        assert_eq!(
            [predicted(2, 100), predicted(5, 100), predicted(17, 100), predicted(17, 50)],
            [11.0, 41.0, 51.0, 26.0]
        );
    }

    #[test]
    fn unknown_limit_widens_the_range() {
        let measured = |id: &str, case: &Case| {
            let value = if id == LATENCY.id.as_str() { 64.0 } else { 10e9 };
            (MemoryCpus::of(case) != Some(MemoryCpus::All)).then_some(MeasuredValue { value, half_width: 0.0 })
        };
        let machine = bandwidth::tests::machine(5, 32 << 20, 24 << 30);
        let case = Case::new().with_number(INJECTED_LOAD, 100).with_number(BYTES, 64 << 20);
        let rate = predict(&PredictionInputs::new(&machine, &measured), &LOADED_BANDWIDTH, &case).unwrap();
        let figures = [rate.value, rate.low * BANDWIDTH_RANGE_FACTOR, rate.high / BANDWIDTH_RANGE_FACTOR];
        assert_eq!(figures.map(|figure| (figure / 1e9).round()), [41.0, 11.0, 41.0]);
    }

    #[test]
    fn idle_latency_is_that_of_memory() {
        let machine = testing::machine();
        let measured = |_: &str, _: &Case| Some(MeasuredValue { value: 100.0, half_width: 0.0 });
        let case = Case::new().with_number(INJECTED_LOAD, 0).with_number(BYTES, 64 << 20);
        let idle = predict(&PredictionInputs::new(&machine, &measured), &LOADED_LATENCY, &case).unwrap();
        assert_eq!((idle.value, idle.low, idle.high), (100.0, 90.0, 120.0));
    }

    #[test]
    fn injector_memory_exceeds_caches() {
        const MIB: usize = 1 << 20;
        // This many injectors in front of a cache that is four times as fast as memory.
        let with_cache = |injectors: usize, cache: usize| {
            let rates = |injector_bytes: usize| {
                let passed_rate = if injector_bytes * injectors <= cache { 298.0 } else { 75.0 };
                Ok(InjectionRates { flushed_rate: 74.0, passed_rate })
            };
            find_uncached_size(128 * MIB, injectors, rates)
        };
        assert_eq!(with_cache(1, 64 * MIB).unwrap().0, 128 * MIB, "at once");
        let (injector_bytes, rates) = with_cache(32, 200 * MIB).unwrap();
        assert_eq!((injector_bytes, rates.passed_rate), (8 * MIB, 75.0), "4 MiB each lie in the cache");
        let Err(ProbeError::Skip(reason)) = with_cache(32, 600 * MIB) else {
            panic!("the cache holds all that may be touched")
        };
        assert!(
            reason.0.starts_with("the load could not be shown to be memory's: 32 injectors of 16 MiB"),
            "{reason:?}"
        );
    }

    #[test]
    fn full_injection_is_best_interval() {
        let full_rate = |pass_rates: [f64; 3]| {
            let mut rates_passed = pass_rates.into_iter().cycle();
            let rates = find_uncached_size(128 << 20, 1, |_| {
                Ok(InjectionRates { flushed_rate: 10.0, passed_rate: rates_passed.next().unwrap_or_default() })
            });
            rates.map(|(_, rates)| rates.passed_rate)
        };
        assert_eq!(full_rate([0.0, 3.0, 9.5]).unwrap(), 9.5);
        assert_eq!(full_rate([4.0, 5.0, 0.0]).unwrap(), 5.0);
        assert_eq!(full_rate([7.0, 9.0, 9.0]).unwrap(), 7.0, "not disturbed");
        assert!(matches!(full_rate([0.0; 3]), Err(ProbeError::Fail(_))));
    }

    const INJECTOR_BYTES: usize = 8 << 20;

    /// Controls one injector, on the first CPU that this process may use, until it is told to end.
    fn with_injector(control: impl FnOnce(&Injection)) -> Injection {
        let injection = Injection::new(Clock::MonotonicRaw, 1).unwrap();
        let cpu = kelvin_sys::cpu::affinity().unwrap()[0];
        std::thread::scope(|scope| {
            let injector = scope.spawn(|| {
                kelvin_sys::cpu::pin(&[cpu]).unwrap();
                injection.run_injector(0)
            });
            // Also after a failed assertion, or the scope would wait for ever.
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| control(&injection)));
            injection.stop.store(true, Ordering::Release);
            injector.join().unwrap().unwrap();
            outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        });
        injection
    }

    fn wait_for(injection: &Injection, bytes: u64) {
        while injection.total_bytes() < bytes {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    #[test]
    fn idle_injectors_move_no_bytes() {
        let injection = with_injector(|injection| {
            injection.flush(INJECTOR_BYTES).unwrap();
            assert_eq!(injection.total_bytes(), 0);
            injection.interval.store(0, Ordering::Release);
            wait_for(injection, 1 << 20);
            injection.interval.store(IDLE_INTERVAL, Ordering::Release);
        });
        assert_eq!(injection.total_bytes() % BLOCK_BYTES, 0);
    }

    #[test]
    fn injector_waits_after_its_first_pass() {
        with_injector(|injection| {
            injection.max_bytes.store(INJECTOR_BYTES as u64, Ordering::Release);
            injection.interval.store(0, Ordering::Release);
            for passes in 1..3 {
                injection.flush(INJECTOR_BYTES).unwrap();
                wait_for(injection, passes * INJECTOR_BYTES as u64);
                std::thread::sleep(std::time::Duration::from_millis(5));
                assert_eq!(injection.total_bytes(), passes * INJECTOR_BYTES as u64);
            }
            injection.max_bytes.store(u64::MAX, Ordering::Release);
            wait_for(injection, 4 * INJECTOR_BYTES as u64);
        });
    }

    #[test]
    fn injected_load_matches_requested_share() {
        // Nanoseconds of a block at full injection: long compared with the moving of it, so that the pause alone sets the pace.
        let block_time = 100_000.0;
        const BLOCKS: u64 = 200;
        for load in [25, 50] {
            with_injector(|injection| {
                injection.flush(INJECTOR_BYTES).unwrap();
                let start = injection.clock.start();
                injection.interval.store(injection_interval(load, block_time), Ordering::Release);
                wait_for(injection, BLOCKS * BLOCK_BYTES);
                let (bytes, ticks) = (injection.total_bytes(), injection.clock.stop() - start);
                // Blocks that were late come at once, but no more than this many: the share can only be too small otherwise.
                let blocks = bytes / BLOCK_BYTES - MAX_LATE_INTERVALS - 1;
                let share = blocks as f64 * block_time / ticks as f64;
                assert!(share <= load as f64 / 100.0, "{load} %: {bytes} bytes in {ticks} ns");
            });
        }
    }
}
