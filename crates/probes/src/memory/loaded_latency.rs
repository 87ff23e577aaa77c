//! Memory latency under load: other CPUs use from none to all of the bandwidth that they can.
//!
//! It shows how much bandwidth can be used before latency suffers. It must not be used as the latency that the busy
//! CPUs see.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use kelvin_core::catalogue::mem::{
    BANDWIDTH_READ, BANDWIDTH_WRITE, BYTES, INJECTED_LOAD, LOADED_BANDWIDTH, LOADED_LATENCY, LOADED_PROBE,
};
use kelvin_sys::clock::Clock;
use kelvin_sys::kernels::bandwidth::{BandwidthKernel, Operation};
use kelvin_sys::memory::{LINE_BYTES, PagePolicy, PointerRing};

use super::axes::{number, skip_if_out_of_memory};
use super::bandwidth::{self, BandwidthArrays, widest_kernel};
use super::latency;
use super::memory_budget::{allowed_cpu_count, last_level_bytes, memory_budget};
use crate::background::{measure_with_threads, other_cpus};
use crate::prelude::*;

pub(crate) static PROBE: Probe = Probe {
    id: LOADED_PROBE.as_str(),
    summary: "Memory latency against the bandwidth used by other CPUs",
    method: include_str!("loaded_latency.md"),
    cases,
    run,
    predict,
    ..Probe::measure(&[&LOADED_LATENCY, &LOADED_BANDWIDTH])
};

const LOAD_PERCENTAGES: [u64; 5] = [0, 25, 50, 75, 100];
/// Points of a quick run: both ends.
const QUICK_LOAD_PERCENTAGES: [u64; 2] = [0, 100];
/// Minimum working set: more than twice the share of most last-level caches.
const MIN_SET: u64 = 64 << 20;
/// Minimum memory of an injector: more than any L2. Whether it is more than a cache gives is tried.
const MIN_INJECTOR_BYTES: usize = 8 << 20;
/// Bytes that an injector moves between two readings of the clock.
const PIECE_BYTES: usize = 16 << 10;
/// Bytes of a block, read and written.
const BLOCK_BYTES: u64 = 2 * PIECE_BYTES as u64;
/// Maximum memory of the injectors, as a multiple of the working set.
const MAX_INJECTED_SETS: usize = 4;
/// The caches serve the injectors if these are faster by this factor than when everything comes from memory: by less, the rates of two
/// moments may differ.
const MAX_CACHED_SPEEDUP: f64 = 1.15;
/// And other programs have slowed them if they are slower by this one: lines to write back take a third of the traffic.
const MIN_UNDISTURBED_RATIO: f64 = 0.6;
/// How often that is tried.
const MAX_ATTEMPTS: u32 = 3;
/// Nanoseconds of an interval of full injection before the timed part, the number of intervals, and how many may pass while
/// other programs occupy the injectors' CPUs.
const INTERVAL_NANOSECONDS: u64 = 1_000_000;
const MIN_INTERVALS: u32 = 4;
const MAX_INTERVALS: u32 = 100;

fn cases(machine: &Machine, effort: Effort) -> Vec<Case> {
    let loads: &[u64] = if effort == Effort::Quick { &QUICK_LOAD_PERCENTAGES } else { &LOAD_PERCENTAGES };
    numbers(INJECTED_LOAD, loads).numbers(BYTES, &[working_set(machine)])
}

/// Twice the last-level cache, and so much that the injectors may have twice all such caches; with them and with what it takes to build
/// the ring within what may be touched.
fn working_set(machine: &Machine) -> u64 {
    let last_levels = last_level_bytes(machine) * bandwidth::last_level_count(machine);
    let budget = 1 << (memory_budget(machine) / 3).max(1).ilog2();
    (2 * last_level_bytes(machine)).max(2 * last_levels / MAX_INJECTED_SETS as u64).max(MIN_SET).min(budget)
}

fn run(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let load = INJECTED_LOAD.number_in(case).filter(|&load| load <= 100);
    let load = load.or_fail("the case needs an injection of 0 to 100 %")?;
    let bytes = number(case, BYTES)?;
    let others = other_cpus(bench)?;
    let mut ring = skip_if_out_of_memory(bytes, PointerRing::new(bytes, PagePolicy::Huge, bench.seed()))?;
    // Flush what building the ring left in the caches.
    ring.evict_end(usize::MAX);
    let injection = Injection::new(bench.clock(), others.len())?;
    measure_with_threads(
        "injector",
        &others,
        &injection.over,
        |number| injection.run_injector(number),
        || measure(bench, &injection, &mut ring, load),
    )
}

/// Full injection for a moment, then the chase beside the requested share of it.
fn measure(bench: &mut Bench<'_>, injection: &Injection, ring: &mut PointerRing, load: u64) -> ProbeResult {
    let clock = bench.clock();
    if load > 0 {
        let full = full_injection(bench, injection, ring.arena().len())?;
        let ticks_per_piece = BLOCK_BYTES as f64 * injection.injectors() as f64 / full;
        injection.interval.store(injection_interval(load, ticks_per_piece), Ordering::Release);
    }
    let (begun, moved_before, mut hops_done) = (clock.start(), injection.total_bytes(), 0);
    bench.time(&LOADED_LATENCY, |hops| {
        ring.chase(hops);
        hops_done += hops;
        Ok(())
    })?;
    let ticks = clock.stop() - begun;
    let injected = (injection.total_bytes() - moved_before) as f64 / ticks as f64;
    bench.note(format!("{load} % of full injection requested"));
    let chased = (hops_done * LINE_BYTES as u64) as f64 / ticks as f64;
    bench.record(&LOADED_BANDWIDTH, vec![1e9 * (injected + chased) / bench.nanoseconds(1)]);
    Ok(())
}

/// Bytes per tick at full injection, shown to come from memory.
fn full_injection(bench: &mut Bench<'_>, injection: &Injection, set: usize) -> ProbeResult<f64> {
    let (own, rates) = find_uncached_size(set, injection.injectors(), |own| injection.measure_rates(bench, own))?;
    let [passed, flushed] = [rates.passed, rates.flushed].map(|rate| rate / bench.nanoseconds(1));
    bench.note(format!(
        "{} injectors of {} MiB each, full injection {passed:.2} GB/s; flushed from the caches before, {flushed:.2} GB/s",
        injection.injectors(),
        own >> 20
    ));
    Ok(rates.passed)
}

/// Bytes of each injector of which the caches serve none, and its rates. They begin with as much memory as the working set, and have twice
/// as much as before while the caches serve them.
///
/// # Errors
/// A reason to skip, where the caches may still serve them at the most.
fn find_uncached_size(
    set: usize,
    injectors: usize,
    mut rates_of: impl FnMut(usize) -> ProbeResult<Option<InjectionRates>>,
) -> ProbeResult<(usize, InjectionRates)> {
    let mut own = (set / injectors).max(MIN_INJECTOR_BYTES);
    let max_own = MAX_INJECTED_SETS * set / injectors;
    loop {
        let mut best: Option<InjectionRates> = None;
        let mut are_faster = false;
        for _ in 0..MAX_ATTEMPTS {
            let Some(rates) = rates_of(own)?.filter(|rates| rates.passed > 0.0) else { continue };
            are_faster |= !rates.are_of_memory();
            if rates.are_of_memory() && best.is_none_or(|best| rates.passed > best.passed) {
                best = Some(rates);
            }
            if best.is_some_and(|best| best.passed >= MIN_UNDISTURBED_RATIO * best.flushed) {
                break;
            }
        }
        match best {
            Some(rates) => return Ok((own, rates)),
            None if own < max_own => own = (2 * own).min(max_own),
            None => {
                let reason = format!(
                    "the load could not be shown to be memory's: {injectors} injectors of {} MiB each were faster than just after a \
                     flush of the caches, so that these may serve them",
                    own >> 20
                );
                skip_if(are_faster, reason)?;
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
    flushed: f64,
    /// Once each has passed over all of its memory: what the caches can hold of it comes from there.
    passed: f64,
}

impl InjectionRates {
    /// Whether the caches serve the injectors no faster than memory does.
    fn are_of_memory(self) -> bool {
        self.passed <= MAX_CACHED_SPEEDUP * self.flushed
    }
}

/// Ticks from one block of an injector to the next, for a share of its full rate of `full` ticks per block.
fn injection_interval(load: u64, full: f64) -> u64 {
    match load {
        0 => IDLE_INTERVAL,
        100 => 0,
        share => ((full * 100.0 / share as f64) as u64).clamp(1, IDLE_INTERVAL - 1),
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
    /// How often they were asked to have that, none of it in a cache; and how many have done so the last time.
    requested_flush: AtomicUsize,
    ready: AtomicUsize,
    /// Bytes moved, a counter for each injector on a line of its own.
    moved: Vec<PaddedCounter>,
    over: AtomicBool,
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
            requested_flush: AtomicUsize::new(0),
            ready: AtomicUsize::new(0),
            moved: (0..injectors).map(|_| PaddedCounter::default()).collect(),
            over: AtomicBool::new(false),
        })
    }

    fn injectors(&self) -> usize {
        self.moved.len()
    }

    /// Bytes that each injector has moved until now.
    fn bytes_per_injector(&self) -> impl Iterator<Item = u64> {
        self.moved.iter().map(|counter| counter.0.load(Ordering::Relaxed))
    }

    /// Bytes that all injectors have moved until now.
    fn total_bytes(&self) -> u64 {
        self.bytes_per_injector().sum()
    }

    /// Lets every injector have this many bytes of memory, none of them in a cache.
    fn flush(&self, own: usize) -> ProbeResult {
        self.ready.store(0, Ordering::Release);
        self.working_bytes.store(own, Ordering::Release);
        self.requested_flush.fetch_add(1, Ordering::AcqRel);
        while self.ready.load(Ordering::Acquire) < self.injectors() {
            fail_if(self.over.load(Ordering::Acquire), "an injector could not start")?;
            std::thread::sleep(std::time::Duration::from_micros(100));
        }
        Ok(())
    }

    /// The rates of injectors with this many bytes each; `None` if this thread could not watch their first pass to its end.
    fn measure_rates(&self, bench: &Bench<'_>, own: usize) -> ProbeResult<Option<InjectionRates>> {
        self.flush(own)?;
        let (own, moment) = (own as u64, bench.ticks(INTERVAL_NANOSECONDS));
        let before: Vec<u64> = self.bytes_per_injector().collect();
        let passed = || self.bytes_per_injector().zip(&before).map(|(now, before)| now - before);
        let (furthest, slowest) = (|| passed().max().unwrap_or(0), || passed().min().unwrap_or(0));
        self.interval.store(0, Ordering::Release);
        // In the second half of the pass the caches are full of lines to write back.
        self.wait_until(bench, || furthest() >= own / 2)?;
        let flushed = self.best_rate(moment, |_| furthest() >= own - own / 8);
        let mut rates = None;
        if furthest() <= own {
            self.wait_until(bench, || slowest() >= own)?;
            let passed = self.best_rate(moment, |moments| moments >= MIN_INTERVALS);
            rates = Some(InjectionRates { flushed, passed });
        }
        self.interval.store(IDLE_INTERVAL, Ordering::Release);
        Ok(rates)
    }

    /// The loop of one injector.
    fn run_injector(&self, number: usize) -> ProbeResult {
        let mut memory: Option<BandwidthArrays> = None;
        let (mut answered, mut due) = (0, 0);
        while !self.over.load(Ordering::Relaxed) {
            let asked = self.requested_flush.load(Ordering::Acquire);
            if asked != answered {
                let own = self.working_bytes.load(Ordering::Acquire);
                if memory.as_ref().is_none_or(|mover| mover.arrays.working_set() != own) {
                    // The old memory goes before the new one comes.
                    drop(memory.take());
                    let arrays = BandwidthArrays::new(own, PIECE_BYTES, PagePolicy::Huge);
                    memory = Some(skip_if_out_of_memory(own, arrays)?);
                }
                memory.iter().for_each(|mover| mover.arrays.evict());
                answered = asked;
                self.ready.fetch_add(1, Ordering::AcqRel);
            }
            let interval = self.interval.load(Ordering::Relaxed);
            let now = self.clock.stop();
            let Some(mover) = memory.as_mut().filter(|_| interval != IDLE_INTERVAL && now >= due) else {
                // After a time without injection nothing is late.
                due = if interval == IDLE_INTERVAL { now } else { due };
                std::hint::spin_loop();
                continue;
            };
            mover.run(Operation::Read, &self.read, 1);
            mover.run(Operation::Write, &self.write, 1);
            self.moved[number].0.fetch_add(BLOCK_BYTES, Ordering::Relaxed);
            due = due.max(now.saturating_sub(MAX_LATE_INTERVALS.saturating_mul(interval))).saturating_add(interval);
        }
        Ok(())
    }

    /// Waits until injectors have moved so much.
    fn wait_until(&self, bench: &Bench<'_>, is_reached: impl Fn() -> bool) -> ProbeResult {
        let clock = self.clock;
        let max_ticks = bench.ticks(u64::from(MAX_INTERVALS) * INTERVAL_NANOSECONDS);
        let (mut since, mut moved) = (clock.start(), self.total_bytes());
        while !is_reached() {
            std::hint::spin_loop();
            let now = self.total_bytes();
            if now != moved {
                (since, moved) = (clock.stop(), now);
            } else if clock.stop().wrapping_sub(since) > max_ticks {
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
            let (begun, before) = (clock.start(), self.total_bytes());
            let mut ticks = 0;
            while ticks < moment && !is_over(moments) {
                std::hint::spin_loop();
                ticks = clock.stop() - begun;
            }
            // Blocks are counted as a whole: of a short while the rate is rough.
            if moments == 0 || ticks >= moment / 4 {
                // The clock after the bytes, as before them at first: a pause of this thread makes a rate smaller, and never larger.
                let bytes = self.total_bytes() - before;
                best = best.max(bytes as f64 / (clock.stop() - begun) as f64);
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
/// Predicted range of the bandwidth, factor either way.
const BANDWIDTH_RANGE_FACTOR: f64 = 1.5;

fn predict(facts: &PredictionInputs<'_>, metric: &Metric, case: &Case) -> Predicted {
    let load = required_number(INJECTED_LOAD, case)?;
    let machine = facts.machine();
    let bytes = required_number(BYTES, case)?;
    let idle = latency::untranslated_latency_at(facts, bytes)?;
    if metric.id == LOADED_LATENCY.id {
        return Ok(idle.of_value(LATENCY_RANGE).derived("idle latency"));
    }
    let far = bandwidth::memory_case(machine);
    let (reading, writing) = (measured(facts, &BANDWIDTH_READ, &far)?, measured(facts, &BANDWIDTH_WRITE, &far)?);
    let injectors = allowed_cpu_count(machine).saturating_sub(1).max(1) as f64;
    let injectors = fact("injectors", injectors, Unit::Count, "allowed CPUs but one");
    // As many bytes are read as written, one after the other.
    let line = bytes_of("line", LINE_BYTES as u64);
    let injector_rate = 2.0 * line.clone() / (line.clone() / reading + line.clone() / writing);
    let rate = injectors * injector_rate * given("load", load as f64 / 100.0, Unit::Ratio) + line / idle;
    Ok(rate.within(BANDWIDTH_RANGE_FACTOR).derived("injectors in memory"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use kelvin_core::catalogue::mem::LATENCY;
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
        let of = |metric, load| {
            predict(&facts, metric, &Case::new().with_number(INJECTED_LOAD, load).with_number(BYTES, 64 << 20)).unwrap()
        };
        // 64 bytes in 160 ns; and of the full 15 GB/s half.
        assert_eq!(of(&LOADED_BANDWIDTH, 0).value, 0.4e9);
        assert!((of(&LOADED_BANDWIDTH, 50).value - 7.9e9).abs() < 1.0);
        let latency = of(&LOADED_LATENCY, 100);
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
        assert_eq!(cases(&machine, Effort::Quick).len(), 2);
    }

    #[test]
    fn injector_memory_exceeds_caches() {
        const MIB: usize = 1 << 20;
        // This many injectors in front of a cache that is four times as fast as memory.
        let with_cache = |injectors: usize, cache: usize| {
            let rates = |own: usize| {
                let passed = if own * injectors <= cache { 298.0 } else { 75.0 };
                Ok(Some(InjectionRates { flushed: 74.0, passed }))
            };
            find_uncached_size(128 * MIB, injectors, rates)
        };
        assert_eq!(with_cache(1, 64 * MIB).unwrap().0, 128 * MIB, "at once");
        let (own, rates) = with_cache(36, 300 * MIB).unwrap();
        assert_eq!((own * 36 / MIB, rates.passed), (511, 75.0), "8 MiB each lie in the cache");
        let Err(ProbeError::Skip(reason)) = with_cache(36, 600 * MIB) else {
            panic!("the cache holds all that may be touched")
        };
        assert!(
            reason.0.starts_with("the load could not be shown to be memory's: 36 injectors of 14 MiB"),
            "{reason:?}"
        );
    }

    #[test]
    fn unwatched_first_pass_has_no_rates() {
        let mut unseen = 2;
        let rates = |_| {
            unseen -= 1;
            Ok((unseen < 1).then_some(InjectionRates { flushed: 10.0, passed: 11.0 }))
        };
        assert_eq!(find_uncached_size(128 << 20, 1, rates).unwrap().0, 128 << 20);
        assert!(matches!(find_uncached_size(128 << 20, 1, |_| Ok(None)), Err(ProbeError::Fail(_))));
    }

    #[test]
    fn full_injection_is_best_interval() {
        let of = |passed: [f64; 3]| {
            let mut tries = passed.into_iter();
            let rates = find_uncached_size(128 << 20, 1, |_| {
                Ok(tries.next().map(|passed| InjectionRates { flushed: 10.0, passed }))
            });
            rates.map(|(_, rates)| rates.passed)
        };
        assert_eq!(of([0.0, 3.0, 9.5]).unwrap(), 9.5);
        assert_eq!(of([4.0, 5.0, 0.0]).unwrap(), 5.0);
        assert_eq!(of([7.0, 9.0, 9.0]).unwrap(), 7.0, "not disturbed");
        assert!(matches!(of([0.0; 3]), Err(ProbeError::Fail(_))));
    }

    #[test]
    fn many_last_level_caches_have_a_larger_set() {
        let mut machine = bandwidth::tests::machine(16, 96 << 20, 512 << 30);
        assert_eq!(working_set(&machine), 192 << 20);
        machine.topology.allowed = Fact::known((0..192).collect(), "a test");
        assert_eq!(working_set(&machine), 576 << 20, "four times as much is twice the twelve caches");
    }

    #[test]
    fn injectors_move_bytes_only_when_told_to() {
        let injection = Injection::new(Clock::MonotonicRaw, 1).unwrap();
        let cpu = kelvin_sys::cpu::allowed().unwrap()[0];
        let wait_for = |more: u64| {
            let before = injection.total_bytes();
            while injection.total_bytes() < before + more {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        };
        std::thread::scope(|scope| {
            let injector = scope.spawn(|| {
                kelvin_sys::cpu::pin(&[cpu]).unwrap();
                injection.run_injector(0)
            });
            injection.flush(MIN_INJECTOR_BYTES).unwrap();
            assert_eq!(injection.total_bytes(), 0);
            injection.interval.store(0, Ordering::Release);
            wait_for(1 << 20);
            injection.interval.store(IDLE_INTERVAL, Ordering::Release);
            injection.over.store(true, Ordering::Release);
            injector.join().unwrap().unwrap();
        });
        assert_eq!(injection.total_bytes() % BLOCK_BYTES, 0);
    }

    #[test]
    fn injected_load_matches_requested_share() {
        let clock = Clock::MonotonicRaw;
        // Nanoseconds of a block at full injection: long beside the moving of it, so that the pause alone sets the pace.
        let of_a_block = 100_000.0;
        for load in [25, 50] {
            let injection = Injection::new(clock, 1).unwrap();
            let cpu = kelvin_sys::cpu::allowed().unwrap()[0];
            std::thread::scope(|scope| {
                let injector = scope.spawn(|| {
                    kelvin_sys::cpu::pin(&[cpu]).unwrap();
                    injection.run_injector(0)
                });
                injection.flush(MIN_INJECTOR_BYTES).unwrap();
                let begun = clock.start();
                injection.interval.store(injection_interval(load, of_a_block), Ordering::Release);
                const BLOCKS: u64 = 200;
                while injection.total_bytes() < BLOCKS * BLOCK_BYTES {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                }
                let (moved, ticks) = (injection.total_bytes(), clock.stop() - begun);
                injection.over.store(true, Ordering::Release);
                injector.join().unwrap().unwrap();
                // Blocks that were late come at once, but no more than this many: the share can only be too small otherwise.
                let blocks = moved / BLOCK_BYTES - MAX_LATE_INTERVALS - 1;
                let share = blocks as f64 * of_a_block / ticks as f64;
                assert!(share <= load as f64 / 100.0, "{load} %: {moved} bytes in {ticks} ns");
            });
        }
    }
}
