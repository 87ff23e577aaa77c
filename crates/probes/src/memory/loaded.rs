//! Memory latency under load: other CPUs use from none to all of the bandwidth that they can.
//!
//! It shows how much bandwidth can be used before latency suffers. It must not be used as the latency that the busy
//! CPUs see.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use kelvin_catalogue::mem::{
    BANDWIDTH, BANDWIDTH_READ, BANDWIDTH_WRITE, BYTES, INJECTED, LATENCY, LOADED, LOADED_BANDWIDTH, LOADED_LATENCY,
};
use kelvin_harness::{Bench, Effort, Facts, Method, Probe, ProbeKind, Stop};
use kelvin_model::{Basis, Case, Machine, Metric, NoPrediction, Prediction, Unit};
use kelvin_sys::clock::Clock;
use kelvin_sys::cpu;
use kelvin_sys::kernels::bandwidth::{Kernel, Operation};
use kelvin_sys::memory::{LINE, Pages, Ring};
use kelvin_sys::spawn::Thread;

use super::allowance::{allowance, allowed, last_level};
use super::axes::{number, obtained};
use super::bandwidth::{self, Mover};
use super::latency;
use crate::predict::Predicting;

pub(crate) static PROBE: Probe = Probe {
    id: LOADED.as_str(),
    summary: "Memory latency against the bandwidth used by other CPUs",
    kind: ProbeKind::Measure,
    method: Method {
        how: "This CPU chases pointers in random order through a working set of at least twice the last-level cache, \
              in huge pages where the kernel provides them. Every other allowed CPU is an injector: it streams through \
              its own memory, together as much as the working set, half of the bytes read and half written, in blocks \
              of 16 KiB. First the injectors run at full speed for 4 ms, the best of which is full injection; then \
              each pauses between blocks to keep to the case's share of that rate. The injectors count the bytes moved \
              during the timed part, a separate metric: the share is requested, the bandwidth achieved.",
        prediction: "Latency: at least that of mem.latency in huge pages, which is expected; how much it grows depends on \
                     the queues in the memory controller, which are not published. Bandwidth: the asked share of what an \
                     injector moves, which reads and writes with ordinary stores, by mem.bandwidth.write and read, times \
                     the injectors; both where the memory of an injector lies: in the last-level cache, if that can hold \
                     twice as much and all of the injectors that share it together, else in memory.",
        not_for: "Latency under a read-only load; latency as the busy CPUs see it; machines with one CPU.",
        pitfalls: &[
            "An injector whose data stays in its cache injects nothing: each streams through more than the last-level \
             cache holds.",
            "Taking the requested load for the achieved one: under load the injectors slow down too. Both are \
             reported.",
            "Lines left in the cache by set-up: all are flushed, and a round is too short to revisit many of its own.",
            "An SMT sibling among the injectors: it competes for the core as well as for memory.",
        ],
        sources: &[
            "Intel Memory Latency Checker, loaded latencies",
            "Little: A proof for the queuing formula L = λW, 1961",
        ],
    },
    metrics: &[&LOADED_LATENCY, &LOADED_BANDWIDTH],
    inputs: &[LATENCY.id.as_str(), BANDWIDTH.as_str()],
    cases,
    run,
    predict,
};

const LOADS: [u64; 5] = [0, 25, 50, 75, 100];
/// Points of a quick run: both ends.
const QUICK_LOADS: [u64; 2] = [0, 100];
/// Minimum working set: more than twice the share of most last-level caches.
const LEAST_SET: u64 = 64 << 20;
/// Minimum memory of an injector: more than any L2.
const LEAST_INJECTED: usize = 8 << 20;
/// Bytes that an injector moves between two readings of the clock.
const PIECE: usize = 16 << 10;
/// Nanoseconds of an interval of full injection before the timed part, the number of intervals, and their maximum while
/// other programs occupy the injectors' CPUs.
const MOMENT_NANOSECONDS: f64 = 1e6;
const MOMENTS: u32 = 4;
const MOST_MOMENTS: u32 = 100;

fn cases(machine: &Machine, effort: Effort) -> Vec<Case> {
    let loads: &[u64] = if effort == Effort::Quick { &QUICK_LOADS } else { &LOADS };
    // The working set, as much again for the injectors, and the memory needed to build the ring.
    let most = 1 << (allowance(machine) / 3).max(1).ilog2();
    let bytes = (2 * last_level(machine)).max(LEAST_SET).min(most);
    loads.iter().map(|&load| Case::new().with(INJECTED, load).with(BYTES, bytes)).collect()
}

fn run(bench: &mut Bench<'_>, case: &Case) -> Result<(), Stop> {
    let load = INJECTED.of(case).filter(|&load| load <= 100);
    let load = load.ok_or_else(|| Stop::fail("the case needs a load of 0 to 100 %"))?;
    let bytes = number(case, BYTES)?;
    let others: Vec<u32> = bench.allowed_cpus().iter().copied().filter(|&cpu| cpu != bench.cpu()).collect();
    if others.is_empty() {
        return Err(Stop::skip("needs two CPUs; this process may use one"));
    }
    let mut ring = obtained(bytes, Ring::new(bytes, Pages::Huge, bench.seed()))?;
    // Flush what building the ring left in the caches.
    ring.evict_end(usize::MAX);
    let injection = Injection::new(bench.clock(), others.len())?;
    let own = of_an_injector(bytes, others.len());
    std::thread::scope(|scope| {
        let injection = &injection;
        let start = |&cpu: &u32| {
            let started = Thread::named("injector").start_in(scope, move || injection.live(cpu, own));
            started.inspect_err(|_| injection.over.store(true, Ordering::Release))
        };
        let threads = others.iter().map(start).collect::<std::io::Result<Vec<_>>>()?;
        let outcome = injection.await_all().and_then(|()| measure(bench, injection, &mut ring, load));
        injection.over.store(true, Ordering::Release);
        let ends: Vec<_> = threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        for end in ends {
            end.map_err(|_| Stop::fail("an injector thread panicked"))??;
        }
        outcome
    })
}

/// Bytes of memory of each injector, which together have as much as the working set.
fn of_an_injector(bytes: usize, injectors: usize) -> usize {
    (bytes / injectors).max(LEAST_INJECTED)
}

/// Full injection for a moment, then the chase beside the requested share of it.
fn measure(bench: &mut Bench<'_>, injection: &Injection, ring: &mut Ring, load: u64) -> Result<(), Stop> {
    let clock = bench.clock();
    let full = full_injection(bench, injection)?;
    bench.note(format!(
        "{} injectors, full injection {:.2} GB/s; {load} % of it requested",
        injection.injectors,
        full / bench.nanoseconds(1)
    ));
    let ticks_per_piece = injection.piece_bytes as f64 * injection.injectors as f64 / full;
    injection.interval.store(interval(load, ticks_per_piece), Ordering::Release);
    let (begun, moved_before, mut hops_done) = (clock.start(), injection.moved(), 0);
    bench.time(&LOADED_LATENCY, |hops| {
        ring.chase(hops);
        hops_done += hops;
        Ok(())
    })?;
    let ticks = clock.stop() - begun;
    let injected = (injection.moved() - moved_before) as f64 / ticks as f64;
    bench.note(format!("injected {:.0} % of full injection", 100.0 * injected / full));
    let chased = (hops_done * LINE as u64) as f64 / ticks as f64;
    bench.record(&LOADED_BANDWIDTH, vec![1e9 * (injected + chased) / bench.nanoseconds(1)]);
    Ok(())
}

/// Bytes per tick at full injection: the best of a few intervals.
fn full_injection(bench: &Bench<'_>, injection: &Injection) -> Result<f64, Stop> {
    let clock = bench.clock();
    let moment = (MOMENT_NANOSECONDS / bench.nanoseconds(1)) as u64;
    injection.interval.store(0, Ordering::Release);
    let mut best = 0.0f64;
    for number in 1..=MOST_MOMENTS {
        let (begun, moved_before) = (clock.start(), injection.moved());
        while clock.stop() - begun < moment {
            std::hint::spin_loop();
        }
        best = best.max((injection.moved() - moved_before) as f64 / (clock.stop() - begun) as f64);
        if number >= MOMENTS && best > 0.0 {
            injection.interval.store(IDLE, Ordering::Release);
            return Ok(best);
        }
    }
    Err(Stop::fail("the injectors moved nothing at first: their CPUs were busy with other work"))
}

/// Ticks from one block of an injector to the next, for a share of its full rate of `full` ticks per block.
fn interval(load: u64, full: f64) -> u64 {
    match load {
        0 => IDLE,
        100 => 0,
        share => ((full * 100.0 / share as f64) as u64).clamp(1, IDLE - 1),
    }
}

/// The interval of an idle injector.
const IDLE: u64 = u64::MAX;
/// An injector this many intervals late drops them rather than catch up in a burst.
const LATE: u64 = 8;

/// State shared by the injectors and their controlling thread.
struct Injection {
    clock: Clock,
    injectors: usize,
    read: Kernel,
    write: Kernel,
    /// Bytes of a block, read and written.
    piece_bytes: u64,
    /// Ticks from block to block: 0 is without a pause, [`IDLE`] is no injection.
    interval: AtomicU64,
    /// Injectors that have their memory.
    ready: AtomicUsize,
    /// Bytes moved, a counter for each injector on a line of its own.
    moved: Vec<Counter>,
    over: AtomicBool,
}

/// A counter that shares its cache line with nothing.
#[derive(Default)]
#[repr(align(128))]
struct Counter(AtomicU64);

impl Injection {
    fn new(clock: Clock, injectors: usize) -> Result<Self, Stop> {
        // The widest ordinary loads and stores; consistency matters more here than a little speed.
        let widest = |operation: Operation| {
            let kernels = operation.kernels();
            let plain = kernels.iter().rev().find(|kernel| !kernel.name().contains(' ')).copied();
            plain.ok_or_else(|| Stop::fail(format!("there is no kernel for {operation:?}")))
        };
        Ok(Self {
            clock,
            injectors,
            read: widest(Operation::Read)?,
            write: widest(Operation::Write)?,
            piece_bytes: 2 * PIECE as u64,
            interval: AtomicU64::new(IDLE),
            ready: AtomicUsize::new(0),
            moved: (0..injectors).map(|_| Counter::default()).collect(),
            over: AtomicBool::new(false),
        })
    }

    /// Bytes that all injectors have moved until now.
    fn moved(&self) -> u64 {
        self.moved.iter().map(|counter| counter.0.load(Ordering::Relaxed)).sum()
    }

    /// Waits until every injector has its memory, or one has failed.
    fn await_all(&self) -> Result<(), Stop> {
        while self.ready.load(Ordering::Acquire) < self.injectors {
            if self.over.load(Ordering::Acquire) {
                return Err(Stop::fail("an injector could not start"));
            }
            std::thread::sleep(std::time::Duration::from_micros(100));
        }
        Ok(())
    }

    /// The loop of one injector.
    fn live(&self, cpu: u32, bytes: usize) -> Result<(), Stop> {
        let begin = || {
            cpu::pin(&[cpu])?;
            Mover::new(bytes, PIECE)
        };
        let mut mover = obtained(bytes, begin()).inspect_err(|_| self.over.store(true, Ordering::Release))?;
        let counter = &self.moved[self.ready.fetch_add(1, Ordering::AcqRel)].0;
        let mut due = self.clock.stop();
        while !self.over.load(Ordering::Relaxed) {
            let interval = self.interval.load(Ordering::Relaxed);
            let now = self.clock.stop();
            if interval == IDLE || interval > 0 && now < due {
                std::hint::spin_loop();
                continue;
            }
            mover.run(Operation::Read, &self.read, 1);
            mover.run(Operation::Write, &self.write, 1);
            counter.fetch_add(self.piece_bytes, Ordering::Relaxed);
            due = due.max(now.saturating_sub(LATE.saturating_mul(interval))).saturating_add(interval);
        }
        Ok(())
    }
}

/// Predicted range of the latency: from idle to queues as long again twice.
const OF_IDLE: [f64; 2] = [0.9, 3.0];
/// Predicted range of the bandwidth, factor either way.
const OF_SHARE: f64 = 1.5;

fn predict(facts: &Facts<'_>, metric: &Metric, case: &Case) -> Result<Prediction, NoPrediction> {
    let load = INJECTED.of(case).ok_or_else(|| NoPrediction::because("the case has no load"))?;
    let machine = facts.machine();
    let bytes = BYTES.of(case).ok_or_else(|| NoPrediction::because("the case has no bytes"))?;
    let idle = latency::without_translation_of(facts, bytes)?;
    if metric.id == LOADED_LATENCY.id {
        let [low, high] = OF_IDLE.map(|factor| idle.value * factor);
        return Ok(Predicting::between(Basis::Derived, idle.value, low, high)
            .formula("idle latency", "latency of a load from memory with nothing beside it, at least")
            .input(idle.clone())
            .derived_as(format!("{:.0} ns", idle.value)));
    }
    let injected = of_an_injector(bytes as usize, allowed(machine).saturating_sub(1).max(1) as usize);
    let one = bandwidth::of_several(machine, injected as u64);
    let (reading, writing) = (facts.measured(&BANDWIDTH_READ, &one)?, facts.measured(&BANDWIDTH_WRITE, &one)?);
    let injectors = allowed(machine).saturating_sub(1).max(1) as f64;
    // As many bytes are read as written, one after the other.
    let of_one = 2.0 / (1.0 / reading.value + 1.0 / writing.value);
    let chased = LINE as f64 * 1e9 / idle.value;
    let value = injectors * of_one * load as f64 / 100.0 + chased;
    let derivation = format!(
        "{injectors} x {:.1} GB/s x {load} % + {:.2} GB/s = {:.1} GB/s",
        of_one / 1e9,
        chased / 1e9,
        value / 1e9
    );
    let (name, place) = match one == bandwidth::in_memory(machine) {
        true => ("injectors in memory", "memory"),
        false => ("injectors in a cache", "the last-level cache"),
    };
    Ok(Predicting::within_factor(Basis::Derived, value, OF_SHARE)
        .formula(
            name,
            format!("injectors x what each reads and writes in turn in {place} x share of it + a line for each load"),
        )
        .input(reading)
        .input(writing)
        .input(idle)
        .constant("injectors", injectors, Unit::Count, "allowed CPUs but one")
        .derived_as(derivation))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use kelvin_model::{Fact, MeasuredValue};

    #[test]
    fn injectors_read_and_write_in_turn() {
        let machine = testing::machine();
        let measured = |id: &str, _: &Case| {
            let value = match id {
                id if *id == *LATENCY.id => 160.0,
                id if *id == *BANDWIDTH_READ.id => 30e9,
                _ => 10e9,
            };
            Some(MeasuredValue { value, half_width: 0.0 })
        };
        let facts = Facts::new(&machine, &measured);
        let of =
            |metric, load| predict(&facts, metric, &Case::new().with(INJECTED, load).with(BYTES, 64 << 20)).unwrap();
        // 64 bytes in 160 ns; and of the full 15 GB/s half.
        assert_eq!(of(&LOADED_BANDWIDTH, 0).value, 0.4e9);
        assert!((of(&LOADED_BANDWIDTH, 50).value - 7.9e9).abs() < 1.0);
        let latency = of(&LOADED_LATENCY, 100);
        assert_eq!((latency.value, latency.low, latency.high), (160.0, 144.0, 480.0));
    }

    #[test]
    fn less_load_means_longer_intervals() {
        assert_eq!(interval(0, 1000.0), IDLE);
        assert_eq!(interval(100, 1000.0), 0);
        assert_eq!(interval(50, 1000.0), 2000);
        assert_eq!(interval(25, 1000.0), 4000);
    }

    #[test]
    fn the_working_set_fits_into_what_may_be_touched() {
        let mut machine = testing::machine();
        let bytes = |machine: &Machine| BYTES.of(&cases(machine, Effort::Default)[0]).unwrap();
        machine.memory.available_bytes = Fact::known(24 << 30, "a test");
        assert_eq!(bytes(&machine), 128 << 20);
        machine.memory.available_bytes = Fact::known(512 << 20, "a test");
        assert_eq!(bytes(&machine), 64 << 20);
        assert_eq!(cases(&machine, Effort::Quick).len(), 2);
    }

    #[test]
    fn injectors_move_bytes_only_when_told_to() {
        let injection = Injection::new(Clock::MonotonicRaw, 1).unwrap();
        let cpu = kelvin_sys::cpu::allowed().unwrap()[0];
        let wait_for = |more: u64| {
            let before = injection.moved();
            while injection.moved() < before + more {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        };
        std::thread::scope(|scope| {
            let injector = scope.spawn(|| injection.live(cpu, LEAST_INJECTED));
            injection.await_all().unwrap();
            assert_eq!(injection.moved(), 0);
            injection.interval.store(0, Ordering::Release);
            wait_for(1 << 20);
            injection.interval.store(1_000, Ordering::Release);
            wait_for(1 << 20);
            injection.over.store(true, Ordering::Release);
            injector.join().unwrap().unwrap();
        });
        assert_eq!(injection.moved() % injection.piece_bytes, 0);
    }
}
