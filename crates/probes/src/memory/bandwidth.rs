//! Bandwidth of read, write, copy, fill, zero, non-temporal write and triad in each level of memory, by one CPU and by
//! all.
//!
//! It is the rate of the best loop for this processor. It must not be used for programs that access memory in another
//! order, or as bus traffic: a line read only to be overwritten is not counted.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use kelvin_catalogue::cpu::FREQUENCY;
use kelvin_catalogue::mem::{
    BANDWIDTH, BANDWIDTH_COPY, BANDWIDTH_CORE_TO_CORE, BANDWIDTH_FILL, BANDWIDTH_NTWRITE, BANDWIDTH_READ,
    BANDWIDTH_TRIAD, BANDWIDTH_WRITE, BANDWIDTH_ZERO, BYTES, CORE_TO_CORE, Cpus, LATENCY, LATENCY_PARALLEL,
};
use kelvin_harness::{Bench, Effort, Method, Probe, ProbeKind, Stop};
use kelvin_model::{Case, Machine, NoPrediction, units};
use kelvin_sys::bounce::Line;
use kelvin_sys::clock::Clock;
use kelvin_sys::image::resident_around;
use kelvin_sys::kernels::bandwidth::{Arrays, Kernel, Operation, TURN, Window};
use kelvin_sys::memory::{Arena, Pages};

use super::allowance::{allowance, allowed, data_caches, largest, last_level, second_level, sharers};
use super::axes::number;
use super::limits;
use super::operations::MEASURED;
use super::partner::SETTLE;

pub(crate) static PROBE: Probe = Probe {
    id: BANDWIDTH.as_str(),
    summary: "Bandwidth of read, write, copy, fill, zero, non-temporal write and triad, in each level of memory",
    kind: ProbeKind::Measure,
    method: Method {
        how: "Each CPU has its own memory of the size of the working set, first touched by the thread that uses it, in \
              huge pages where the kernel provides them (noted from smaps). An operation divides the working set among \
              its arrays: one for read, write, fill, zero and ntwrite, two for copy, three for triad. Loops in \
              assembly, 512 bytes per iteration, in every variant that the processor supports at run time: SSE2, AVX2, \
              AVX-512 or NEON, with prefetches, with non-temporal stores, rep stosb and rep movsb, dc zva. Before an \
              operation is timed, each variant is tried three times on parts of the working set, in turn, and those \
              close to the fastest four times more; the one with the shortest median is used, and the figures of all \
              are noted. Non-temporal variants are excluded where the set stays in a cache, as they leave nothing \
              there for the next pass; ntwrite there begins with a flushed set. A set of up to 16 MiB is passed over \
              repeatedly as a whole; a larger one in parts, in rotation, so that no cache holds the next one. Bytes \
              are counted as in STREAM: those read and written by the program, without write-allocate reads. All CPUs \
              start together, and a batch ends when the last is done. With all CPUs, a cache line is bounced between \
              the first and each of up to eight others, before each operation and after the last: the median shows \
              whether they share a last-level cache at that moment, and so explains a bimodal total.",
        prediction: "Reading and writing in L1, and reading in L2: published bytes per cycle x measured frequency (of an L2 of which \
                     none is published, those of a store to L1). Non-temporal stores, and stores in L2, are measured once. \
                     Reading memory: a line in the time of a load of many independent chains, by mem.latency.parallel, and \
                     the square root of three times as much, as prefetchers of L2 may have none or twice as many lines more in \
                     flight. Reading beyond L2: between the rate of memory and that of as many lines in flight at the latency \
                     of this level (Little's law), the geometric mean; writing there as reading. Writing to memory: reading \
                     each line from there, and then writing it in L2. Copy and triad take as long as their reading and their \
                     writing, between one after the other and at once, fill and zero as long as the fastest stores. All CPUs \
                     together move so many times what one does; but for reading, writing around the caches and zeros, what \
                     reaches memory follows from what those of all CPUs do. For memory, at most the peak of its channels where the machine \
                     states it, less write-allocate reads.",
        not_for: "Random access; bus traffic, which with ordinary stores is half as much again for a copy, a third \
                  more for a triad, and double for a write or fill; the rate of storing nonzero bytes, by the rate of \
                  zeros.",
        pitfalls: &[
            "A working set of which the cache keeps a part: the largest is four times the last-level cache, of which at most 64 MiB, or 8 MiB for each of its CPUs, are believed to be a virtual machine's own.",
            "Write-allocate traffic: a store to a line that is not in a cache reads it first, unless it is non-temporal.",
            "Zeros taken for data: some processors transfer a line of zeros without its data, or not at all, at twice \
             the rate or more (seen on a Zen 5: memset of 0 at 90 GB/s, of 1 at 40). Zeroing is a separate metric: \
             compare tools that clear memory with that.",
            "Virtual CPUs that the host moves: on a Zen 5 two of them were sometimes in one core complex (46 to 75 ns \
             core to core, one path to memory, 40 GB/s of fill) and sometimes in two (217 to 235 ns, 77 GB/s), in a C \
             loop as well. Each value holds for one placement, which the core-to-core latency shows.",
            "One buffer for all threads: memory lies on the node of the thread that touched it first. Here each thread \
             has its own.",
            "The best loop depends on the processor, the level and the number of CPUs: it is chosen anew each time, \
             with the same working set and CPUs.",
            "Non-temporal stores to a set that other stores have just left in the cache run at the cache's rate only \
             until it is evicted; the same loop gave 474 and 81 GB/s in L1.",
            "Comparing a median with another tool's best: both median and best batch are reported.",
        ],
        sources: &[
            "McCalpin: Memory bandwidth and machine balance in current high performance computers, 1995 (STREAM)",
            "lmbench bw_mem; tinymembench; sysbench memory",
            "Downs: Hardware store elimination, 2020 (zeros on Intel's cores)",
        ],
    },
    metrics: &[
        &BANDWIDTH_READ,
        &BANDWIDTH_WRITE,
        &BANDWIDTH_COPY,
        &BANDWIDTH_FILL,
        &BANDWIDTH_ZERO,
        &BANDWIDTH_NTWRITE,
        &BANDWIDTH_TRIAD,
        &BANDWIDTH_CORE_TO_CORE,
    ],
    inputs: &[FREQUENCY.id.as_str(), LATENCY.id.as_str(), LATENCY_PARALLEL.id.as_str(), CORE_TO_CORE.id.as_str()],
    cases,
    run,
    predict: limits::predict,
};

/// Working sets where the machine states no caches: within any current L1 and any current L2.
const ASSUMED_INNER: [u64; 2] = [16 << 10, 128 << 10];

/// How many last-level caches the allowed CPUs have between them.
pub(super) fn last_levels(machine: &Machine) -> u64 {
    data_caches(machine).last().map_or(1, |cache| allowed(machine).div_ceil(sharers(machine, cache)))
}

/// Working sets per CPU that lie in a cache: half of L1 and of L2, and of an outer level a quarter of one CPU's share,
/// but more than the level within it holds. `many`: all CPUs work at once, and their sets must fit together.
pub(super) fn cached_sets(machine: &Machine, many: bool) -> Vec<u64> {
    let caches = data_caches(machine);
    if caches.is_empty() {
        return ASSUMED_INNER.to_vec();
    }
    let mut sets = Vec::new();
    for (index, cache) in caches.iter().enumerate() {
        let sharers = sharers(machine, cache);
        let within = index.checked_sub(1).map_or(0, |inner| caches[inner].bytes);
        let bytes = if cache.level <= 2 { cache.bytes / 2 } else { (cache.bytes / sharers / 4).max(2 * within) };
        let together = bytes * if many { sharers } else { 1 };
        if bytes > within && together <= cache.bytes {
            sets.push(bytes);
        }
    }
    sets
}

/// The largest working set per CPU: for one CPU four times the last-level cache, for all together four times all their
/// last-level caches; less if memory is short.
fn largest_set(machine: &Machine, many: bool) -> u64 {
    let cpus = if many { allowed(machine) } else { 1 };
    let sharing = data_caches(machine).last().map_or(1, |cache| sharers(machine, cache)).min(cpus);
    let own = largest(machine, 1).div_ceil(cpus).max(4 * last_level(machine) / sharing);
    let most = allowance(machine) / cpus;
    // A power of two, so that two runs with a little more and a little less memory have the same working set.
    if own < most { own } else { 1 << most.max(1).ilog2() }
}

/// The case of memory and one CPU, part of every run.
pub(crate) fn in_memory(machine: &Machine) -> Case {
    Case::new().with(BYTES, largest_set(machine, false)).at(Cpus::One)
}

/// The case of one CPU for a set of so many bytes: in the outermost cache if that can hold it with as much again to spare, else in memory.
/// A set that is passed through in order leaves a cache that it fills, a little of it being used by others, before it is wanted again.
pub(crate) fn lying_where(machine: &Machine, bytes: u64) -> Case {
    match cached_sets(machine, false).last() {
        Some(&set) if 2 * bytes <= last_level(machine) => Case::new().with(BYTES, set).at(Cpus::One),
        _ => in_memory(machine),
    }
}

/// The case of one CPU for a set in the L2 cache.
///
/// # Errors
/// The machine does not report the size of its L2.
pub(crate) fn in_second_level(machine: &Machine) -> Result<Case, NoPrediction> {
    let unknown = || NoPrediction::because("the machine does not report the size of its L2 cache");
    Ok(Case::new().with(BYTES, second_level(machine).ok_or_else(unknown)? / 2).at(Cpus::One))
}

/// The case of memory and all CPUs, part of every run on more than one.
pub(crate) fn in_memory_of_all(machine: &Machine) -> Option<Case> {
    let case = || Case::new().with(BYTES, largest_set(machine, true)).at(Cpus::All);
    (allowed(machine) > 1).then(case)
}

fn cases(machine: &Machine, effort: Effort) -> Vec<Case> {
    let of = |many: bool| {
        let cpus = if many { Cpus::All } else { Cpus::One };
        let mut sets = cached_sets(machine, many);
        if effort == Effort::Quick {
            sets.truncate(if many { 0 } else { 1 });
        }
        sets.retain(|&bytes| bytes < largest_set(machine, many));
        sets.push(largest_set(machine, many));
        sets.into_iter().map(move |bytes| Case::new().with(BYTES, bytes).at(cpus))
    };
    let all = (allowed(machine) > 1).then(|| of(true));
    of(false).chain(all.into_iter().flatten()).collect()
}

fn run(bench: &mut Bench<'_>, case: &Case) -> Result<(), Stop> {
    let bytes = number(case, BYTES)?;
    let cpus = match Cpus::of(case) {
        Some(Cpus::One) => vec![bench.cpu()],
        Some(Cpus::All) if bench.allowed_cpus().len() < 2 => {
            return Err(Stop::skip("needs two CPUs; this process may use one"));
        }
        Some(Cpus::All) => bench.allowed_cpus().to_vec(),
        None => return Err(Stop::fail(format!("the case needs cpus=one or cpus=all, not {case}"))),
    };
    let crew = Movers::new(bytes, cpus.len(), bench.clock())?;
    bench.together(
        &cpus,
        |member, iterations| crew.work(member, iterations),
        |bench, round| {
            round(1)?;
            bench.note(crew.obtained()?);
            let mut ways = Vec::new();
            for (operation, metric) in MEASURED {
                ways.extend(crew.core_to_core(bench, round)?);
                let note = crew.choose(operation, bench, round)?;
                bench.note(note);
                let work = crew.iteration_bytes(operation)? * cpus.len();
                bench.time_work(metric, work as f64, &mut *round)?;
            }
            ways.extend(crew.core_to_core(bench, round)?);
            if !ways.is_empty() {
                bench.record(&BANDWIDTH_CORE_TO_CORE, ways);
            }
            Ok(())
        },
    )
}

/// Bytes of a working set that one iteration covers as a whole; larger ones go part by part. Long enough that string
/// instructions switch to streaming and pending write-back does not matter; short beside the time of an operation.
pub(super) const PART: usize = 16 << 20;
/// Bytes of one trial of a variant, at least one iteration; of a working set that each iteration finds in the caches less is enough, but a
/// few iterations.
const TRIAL: usize = PART;
const TRIAL_IN_CACHES: usize = 4 << 20;
const ITERATIONS_IN_CACHES: usize = 4;
/// Trials of each variant, of which the median counts: neither a lucky nor a disturbed one.
const TRIALS: usize = 3;
/// Variants with a median within this factor of the fastest are tried again, so that every round picks the same of two
/// close ones.
const CLOSE: f64 = 1.2;
/// Total trials of each of those.
const TRIALS_OF_CLOSE: usize = 7;

/// The memory of one CPU and the position in it.
#[derive(Debug)]
pub(super) struct Mover {
    arrays: Arrays,
    part: usize,
    parts_done: usize,
}

impl Mover {
    /// Maps the memory, and touches it on the calling CPU. A working set of more than `part` bytes is processed in
    /// parts of that size.
    pub(super) fn new(bytes: usize, part: usize) -> kelvin_sys::Result<Self> {
        Self::in_pages(bytes, part, Pages::Huge)
    }

    /// The same in these pages.
    pub(super) fn in_pages(bytes: usize, part: usize, pages: Pages) -> kelvin_sys::Result<Self> {
        Ok(Self { arrays: Arrays::new(bytes, pages)?, part, parts_done: 0 })
    }

    /// Bytes of each array per iteration of an operation.
    fn part(&self, operation: Operation) -> usize {
        let most = self.part / operation.arrays() / TURN * TURN;
        self.arrays.array_bytes(operation).min(most)
    }

    /// Bytes that one iteration counts.
    pub(super) fn iteration_bytes(&self, operation: Operation) -> usize {
        self.part(operation) * operation.arrays()
    }

    /// Does iterations: passes over all of a small working set, or the next parts of a large one.
    #[inline]
    pub(super) fn run(&mut self, operation: Operation, kernel: &Kernel, iterations: u64) {
        let bytes = self.part(operation);
        let parts = self.arrays.array_bytes(operation) / bytes;
        if parts == 1 {
            self.arrays.run(operation, kernel, Window { start: 0, bytes }, iterations);
            return;
        }
        for _ in 0..iterations {
            let window = Window { start: self.parts_done % parts * bytes, bytes };
            self.arrays.run(operation, kernel, window, 1);
            self.parts_done += 1;
        }
    }

    /// Bytes that it was made for.
    pub(super) fn working_set(&self) -> usize {
        self.arrays.working_set()
    }

    /// Flushes all of it from every cache.
    pub(super) fn evict(&self) {
        self.arrays.evict();
    }

    /// The memory itself.
    pub(super) fn arena(&self) -> &Arena {
        self.arrays.arena()
    }

    /// Whether each iteration covers the whole working set, and so finds it in the caches.
    fn comes_back(&self, operation: Operation) -> bool {
        self.part(operation) == self.arrays.array_bytes(operation)
    }

    /// The memory requested and obtained, in words.
    pub(super) fn obtained(&self) -> Result<String, Stop> {
        let resident = resident_around(self.arena().address())?;
        Ok(format!(
            "{} bytes requested; by smaps {} bytes resident, {} of them in huge pages",
            self.arena().len(),
            resident.bytes,
            resident.huge
        ))
    }
}

/// The job of mapping the memory and touching it.
const MAP: usize = 0;
/// The job of flushing it from every cache.
const EVICT: usize = usize::MAX;
/// The job of bouncing a line between the first worker and a partner.
const PASS: usize = usize::MAX - 1;
/// Maximum partners of the first worker, spread over the others.
const MOST_PARTNERS: usize = 8;
/// Round trips of a line with each.
const TRIPS: u64 = 500;

/// State of the workers of a crew: their memory, and their next job.
struct Movers {
    bytes: usize,
    /// Number of the job in `jobs`, counted from 1; [`MAP`], [`EVICT`] and [`PASS`] are none of them.
    job: AtomicUsize,
    jobs: Vec<(Operation, Kernel)>,
    movers: Vec<Mutex<Option<kelvin_sys::Result<Mover>>>>,
    clock: Clock,
    line: Arc<Line>,
    /// The worker with whom the first bounces the line.
    partner: AtomicUsize,
    /// Ticks that it took.
    passing: AtomicU64,
}

impl Movers {
    fn new(bytes: usize, members: usize, clock: Clock) -> Result<Self, Stop> {
        let of = |operation: Operation| operation.kernels().into_iter().map(move |kernel| (operation, kernel));
        Ok(Self {
            bytes,
            job: AtomicUsize::new(MAP),
            jobs: Operation::ALL.into_iter().flat_map(of).collect(),
            movers: (0..members).map(|_| Mutex::new(None)).collect(),
            clock,
            line: Line::new()?,
            partner: AtomicUsize::new(0),
            passing: AtomicU64::new(0),
        })
    }

    /// One worker's share of a round. A failed mapping is reported to whoever asks for the memory afterwards.
    fn work(&self, member: usize, iterations: u64) {
        if self.job.load(Ordering::Acquire) == PASS {
            return self.pass(member, iterations);
        }
        let mut mover = lock(&self.movers[member]);
        match (self.job.load(Ordering::Acquire), &mut *mover) {
            (MAP, _) => *mover = Some(Mover::new(self.bytes, PART)),
            (EVICT, Some(Ok(mover))) => mover.evict(),
            (job, Some(Ok(mover))) => {
                let (operation, kernel) = &self.jobs[job - 1];
                mover.run(*operation, kernel, iterations);
            }
            (_, _) => {}
        }
    }

    /// A worker's part in bouncing the line; most have none.
    fn pass(&self, member: usize, trips: u64) {
        if member == self.partner.load(Ordering::Acquire) {
            self.line.answer(SETTLE + trips);
        } else if member == 0 {
            self.line.serve(SETTLE);
            let begun = self.clock.start();
            self.line.serve(trips);
            self.passing.store(self.clock.stop().wrapping_sub(begun), Ordering::Release);
        }
    }

    /// Core-to-core latency from the first worker in nanoseconds, the median over partners; `None` without partners.
    fn core_to_core(
        &self,
        bench: &Bench<'_>,
        round: &mut dyn FnMut(u64) -> Result<(), Stop>,
    ) -> Result<Option<f64>, Stop> {
        let others = self.movers.len() - 1;
        self.job.store(PASS, Ordering::Release);
        let mut ways = Vec::new();
        for place in 0..others.min(MOST_PARTNERS) {
            self.partner.store(1 + place * others / others.min(MOST_PARTNERS), Ordering::Release);
            round(TRIPS)?;
            let trips = bench.nanoseconds(self.passing.load(Ordering::Acquire));
            ways.push(trips / TRIPS as f64 / 2.0);
        }
        Ok(middle(ways))
    }

    /// A look at the first worker's memory, once all workers have theirs.
    fn look<R>(&self, look: impl FnOnce(&Mover) -> R) -> Result<R, Stop> {
        for mover in &self.movers {
            if let Some(Err(error)) = &*lock(mover) {
                let (members, each) = (self.movers.len(), units::bytes(self.bytes as u64));
                return Err(Stop::skip(format!("needs {members} times {each} of memory: {error}")));
            }
        }
        match &*lock(&self.movers[0]) {
            Some(Ok(mover)) => Ok(look(mover)),
            _ => Err(Stop::fail("the first touch did not happen")),
        }
    }

    fn obtained(&self) -> Result<String, Stop> {
        self.look(Mover::obtained)?
    }

    fn iteration_bytes(&self, operation: Operation) -> Result<usize, Stop> {
        self.look(|mover| mover.iteration_bytes(operation))
    }

    /// Tries the variants of an operation on all workers at once, makes the fastest the next job, and returns the
    /// figures of each in words.
    ///
    /// Non-temporal stores leave nothing in the caches for the next pass. Over a set that stays in a cache they would
    /// run, while it lasts, on what other variants left: so they are not tried there as a variant, and as the operation
    /// itself they begin with a flushed set.
    fn choose(
        &self,
        operation: Operation,
        bench: &Bench<'_>,
        round: &mut dyn FnMut(u64) -> Result<(), Stop>,
    ) -> Result<String, Stop> {
        let each = self.iteration_bytes(operation)?;
        let comes_back = self.look(|mover| mover.comes_back(operation))?;
        if comes_back && operation == Operation::NonTemporalWrite {
            self.job.store(EVICT, Ordering::Release);
            round(1)?;
        }
        let iterations = match comes_back {
            true => TRIAL_IN_CACHES.div_ceil(each).max(ITERATIONS_IN_CACHES),
            false => TRIAL.div_ceil(each),
        } as u64;
        let mut timed = |job: usize| -> Result<f64, Stop> {
            self.job.store(job, Ordering::Release);
            let begun = bench.clock().start();
            round(iterations)?;
            Ok(bench.nanoseconds(bench.clock().stop().wrapping_sub(begun)))
        };
        let is_tried =
            |(of, kernel): &(Operation, Kernel)| *of == operation && !(comes_back && kernel.passes_caches_by());
        let jobs = (1..).zip(&self.jobs).filter(|(_, job)| is_tried(job));
        let mut trials: Vec<Trial> = jobs.map(|(job, (_, kernel))| Trial::of(job, kernel.name())).collect();
        for turn in 0..TRIALS_OF_CLOSE {
            let fastest = trials.iter().filter_map(Trial::middle).fold(f64::INFINITY, f64::min);
            for trial in &mut trials {
                if turn < TRIALS || trial.middle().is_some_and(|middle| middle <= CLOSE * fastest) {
                    trial.times.push(timed(trial.job)?);
                }
            }
        }
        let bytes = (each as u64 * iterations) as f64 * self.movers.len() as f64;
        let mut ranking: Vec<(f64, Trial)> = trials.into_iter().filter_map(|t| Some((t.middle()?, t))).collect();
        ranking.sort_by(|left, right| left.0.total_cmp(&right.0));
        let (_, best) = ranking.first().ok_or_else(|| Stop::fail(format!("there is no kernel for {operation:?}")))?;
        self.job.store(best.job, Ordering::Release);
        let figure = |(time, trial): &(f64, Trial)| format!("{} {:.1} GB/s", trial.name, bytes / time);
        let figures: Vec<String> = ranking.iter().map(figure).collect();
        Ok(format!(
            "{}; median of {TRIALS} trials of each, of those close to the fastest {TRIALS_OF_CLOSE}: {}",
            counting(operation),
            figures.join(", ")
        ))
    }
}

/// The trials of one variant.
struct Trial {
    job: usize,
    name: &'static str,
    /// Nanoseconds of each.
    times: Vec<f64>,
}

impl Trial {
    fn of(job: usize, name: &'static str) -> Self {
        Self { job, name, times: Vec::new() }
    }

    /// The median of its times so far.
    fn middle(&self) -> Option<f64> {
        middle(self.times.clone())
    }
}

/// The median of some times; of an even number the upper one.
fn middle(mut times: Vec<f64>) -> Option<f64> {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied()
}

/// How bytes are counted.
fn counting(operation: Operation) -> &'static str {
    match operation {
        Operation::Read => "each byte read counts once",
        Operation::Copy => "each byte copied counts twice, read and written; write-allocate reads do not count",
        Operation::Triad => "each triple counts as two read and one written; write-allocate reads do not count",
        Operation::Write | Operation::Fill | Operation::Zero => {
            "each byte written counts once; write-allocate reads do not count"
        }
        Operation::NonTemporalWrite => "each byte written counts once",
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::testing;
    use kelvin_model::{Cache, CacheKind, Fact};

    /// A machine with caches of 48 KiB, 1 MiB, and a last level that its CPUs share.
    pub(in crate::memory) fn machine(cpus: u32, last_level: u64, available: u64) -> Machine {
        let mut machine = testing::machine();
        let all: Vec<u32> = (0..cpus).collect();
        let cache = |level, bytes, shared_by: &[u32]| Cache {
            level,
            kind: if level == 1 { CacheKind::Data } else { CacheKind::Unified },
            bytes,
            ways: None,
            line_bytes: Some(64),
            shared_by: shared_by.to_vec(),
        };
        let caches = vec![cache(1, 48 << 10, &[0]), cache(2, 1 << 20, &[0]), cache(3, last_level, &all)];
        machine.topology.caches = Fact::known(caches, "a test");
        machine.topology.allowed = Fact::known(all, "a test");
        machine.memory.available_bytes = Fact::known(available, "a test");
        machine
    }

    fn sets(machine: &Machine, effort: Effort, cpus: Cpus) -> Vec<u64> {
        let all = cases(machine, effort);
        let of = all.iter().filter(|case| Cpus::of(case) == Some(cpus));
        of.filter_map(|case| BYTES.of(case)).collect()
    }

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;

    #[test]
    fn working_sets_lie_in_one_level_each() {
        let two = machine(2, 32 * MIB, 24 << 30);
        assert_eq!(sets(&two, Effort::Default, Cpus::One), [24 * KIB, 512 * KIB, 4 * MIB, 256 * MIB]);
        assert_eq!(sets(&two, Effort::Default, Cpus::All), [24 * KIB, 512 * KIB, 4 * MIB, 128 * MIB]);
        assert_eq!(sets(&two, Effort::Quick, Cpus::One), [24 * KIB, 256 * MIB]);
        assert_eq!(sets(&two, Effort::Quick, Cpus::All), [128 * MIB]);
        assert!(sets(&machine(1, 32 * MIB, 24 << 30), Effort::Default, Cpus::All).is_empty());
    }

    #[test]
    fn a_share_of_the_last_level_is_more_than_the_level_within_it() {
        let many = machine(32, 32 * MIB, 64 << 30);
        // A quarter of a share would be 256 KiB: the second level holds that. Twice the second level fits once, not 32
        // times.
        assert_eq!(sets(&many, Effort::Default, Cpus::One), [24 * KIB, 512 * KIB, 2 * MIB, 256 * MIB]);
        assert_eq!(sets(&many, Effort::Default, Cpus::All), [24 * KIB, 512 * KIB, 8 * MIB]);
    }

    #[test]
    fn a_set_lies_in_the_outermost_cache_that_can_hold_it_or_in_memory() {
        let two = machine(2, 32 * MIB, 24 << 30);
        assert_eq!(lying_where(&two, 16 * MIB), Case::new().with(BYTES, 4 * MIB).at(Cpus::One));
        assert_eq!(lying_where(&two, 17 * MIB), in_memory(&two));
    }

    #[test]
    fn half_of_a_small_memory_is_all_that_is_touched() {
        let small = machine(2, 96 * MIB, 512 * MIB);
        assert_eq!(largest_set(&small, false), 256 * MIB);
        assert_eq!(largest_set(&small, true), 128 * MIB);
        let odd = machine(2, 32 * MIB, 500 * MIB + 12_345);
        assert_eq!(largest_set(&odd, true), 64 * MIB);
    }

    #[test]
    fn a_large_working_set_is_processed_in_parts() {
        let mut mover = Mover::new(2 * PART + 3 * TURN, PART).unwrap();
        let kernel = Operation::Copy.kernels()[0];
        assert_eq!(mover.iteration_bytes(Operation::Copy), PART);
        mover.run(Operation::Copy, &kernel, 3);
        assert_eq!(mover.parts_done, 3);
        let mut small = Mover::new(48 << 10, PART).unwrap();
        assert_eq!(small.iteration_bytes(Operation::Triad), 48 << 10);
        small.run(Operation::Copy, &kernel, 3);
        assert_eq!(small.parts_done, 0);
    }
}
