//! Bandwidth of read, write, copy, fill, zero, non-temporal write and triad in each level of memory, by one CPU and by
//! all.
//!
//! It is the rate of the best loop for this processor. It must not be used for programs that access memory in another
//! order, or as bus traffic: a line read only to be overwritten is not counted.

pub(super) mod group;
pub(super) mod model;

use kelvin_core::IndirectSort;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use kelvin_core::catalogue::mem::{
    BANDWIDTH_COPY, BANDWIDTH_CORE_TO_CORE, BANDWIDTH_FILL, BANDWIDTH_NTWRITE, BANDWIDTH_PROBE, BANDWIDTH_READ,
    BANDWIDTH_TRIAD, BANDWIDTH_WRITE, BANDWIDTH_ZERO, BYTES, MemoryCpus,
};
use kelvin_core::units;
use kelvin_sys::cache_line::BouncingLine;
use kelvin_sys::clock::Clock;
use kelvin_sys::fork_image::resident_around;
use kelvin_sys::kernels::bandwidth::{ArrayWindow, Arrays, BandwidthKernel, LOOP_BYTES, Operation};
use kelvin_sys::lock;
use kelvin_sys::memory::PagePolicy;

use self::group::BandwidthGroup;
use super::axes::number;
use super::core_to_core::SETTLE_ROUND_TRIPS;
use super::memory_budget::{
    allowed_cpu_count, data_caches, largest_working_set, last_level_bytes, memory_budget, second_level_bytes,
    sharing_cpus,
};
use crate::prelude::*;

/// The operations in the order in which they are measured, each with its metric.
pub(super) static MEASURED_OPERATIONS: [(Operation, &Metric); 7] = [
    (Operation::Read, &BANDWIDTH_READ),
    (Operation::Write, &BANDWIDTH_WRITE),
    (Operation::Copy, &BANDWIDTH_COPY),
    (Operation::Fill, &BANDWIDTH_FILL),
    (Operation::Zero, &BANDWIDTH_ZERO),
    (Operation::NonTemporalWrite, &BANDWIDTH_NTWRITE),
    (Operation::Triad, &BANDWIDTH_TRIAD),
];

pub(crate) static PROBE: Probe = Probe {
    id: BANDWIDTH_PROBE.as_str(),
    summary: "Bandwidth of read, write, copy, fill, zero, non-temporal write and triad, in each level of memory",
    method: include_str!("bandwidth.md"),
    cases,
    run,
    predict: model::predict,
    ..Probe::measure(&[
        &BANDWIDTH_READ,
        &BANDWIDTH_WRITE,
        &BANDWIDTH_COPY,
        &BANDWIDTH_FILL,
        &BANDWIDTH_ZERO,
        &BANDWIDTH_NTWRITE,
        &BANDWIDTH_TRIAD,
        &BANDWIDTH_CORE_TO_CORE,
    ])
};

/// The metrics of operations: all but the last.
pub(crate) static OPERATION_METRICS: &[&Metric] = PROBE.metrics.split_at(PROBE.metrics.len() - 1).0;

/// Working sets where the machine states no caches: within any current L1 and any current L2.
const ASSUMED_INNER_SETS: [u64; 2] = [16 << 10, 128 << 10];

/// Working sets per CPU that lie in a cache: half of L1 and of L2, and of an outer level a quarter of one CPU's share,
/// but more than the level within it holds. `all_cpus`: all CPUs work at once, and their sets must fit together.
pub(super) fn cached_sets(machine: &Machine, all_cpus: bool) -> Vec<u64> {
    let caches = data_caches(machine);
    if caches.is_empty() {
        return ASSUMED_INNER_SETS.to_vec();
    }
    let mut sets = Vec::new();
    for (index, cache) in caches.iter().enumerate() {
        let sharers = sharing_cpus(machine, cache);
        let inner_bytes = index.checked_sub(1).map_or(0, |inner| caches[inner].bytes);
        let bytes = if cache.level <= 2 { cache.bytes / 2 } else { (cache.bytes / sharers / 4).max(2 * inner_bytes) };
        let total_bytes = bytes * if all_cpus { sharers } else { 1 };
        if bytes > inner_bytes && total_bytes <= cache.bytes {
            sets.push(bytes);
        }
    }
    sets
}

/// The largest working set per CPU: for one CPU four times the last-level cache, for all together four times all their
/// last-level caches; less if memory is short.
fn largest_set(machine: &Machine, all_cpus: bool) -> u64 {
    let cpus = if all_cpus { allowed_cpu_count(machine) } else { 1 };
    let sharers = data_caches(machine).last().map_or(1, |cache| sharing_cpus(machine, cache)).min(cpus);
    let working_set = largest_working_set(machine, 1).div_ceil(cpus).max(4 * last_level_bytes(machine) / sharers);
    let budget = memory_budget(machine) / cpus;
    // A power of two, so that two runs with a little more and a little less memory have the same working set.
    if working_set < budget { working_set } else { 1 << budget.max(1).ilog2() }
}

/// The case of one CPU for a set of this many bytes.
pub(super) fn one_cpu_case(bytes: u64) -> Case {
    Case::new().with_number(BYTES, bytes).with_word(MemoryCpus::One)
}

/// The case of memory and one CPU, part of every run.
pub(crate) fn memory_case(machine: &Machine) -> Case {
    one_cpu_case(largest_set(machine, false))
}

/// A bandwidth of memory by one CPU.
pub(crate) fn in_memory(facts: &PredictionInputs<'_>, metric: &Metric) -> Predicted<Expr> {
    measured(facts, metric, &memory_case(facts.machine()))
}

/// The case of one CPU for a set of this many bytes. It is in the outermost cache if that can hold twice as much, else
/// in memory. Others use a little of a cache, so a set that fills it and is passed through in order leaves it before it
/// is needed again.
pub(crate) fn case_for_set(machine: &Machine, bytes: u64) -> Case {
    match cached_sets(machine, false).last() {
        Some(&set) if 2 * bytes <= last_level_bytes(machine) => one_cpu_case(set),
        _ => memory_case(machine),
    }
}

/// The case of one CPU for a set in the L2 cache.
///
/// # Errors
/// The machine does not report the size of its L2.
pub(crate) fn second_level_case(machine: &Machine) -> Predicted<Case> {
    let no_cache_size = || NoPrediction::new("the machine does not report the size of its L2 cache");
    Ok(one_cpu_case(second_level_bytes(machine).ok_or_else(no_cache_size)? / 2))
}

/// The case of memory and all CPUs, part of every run on more than one.
pub(crate) fn all_cpus_memory_case(machine: &Machine) -> Option<Case> {
    (allowed_cpu_count(machine) > 1).then(|| one_cpu_case(largest_set(machine, true)).with_word(MemoryCpus::All))
}

fn cases(machine: &Machine, effort: Effort) -> Vec<Case> {
    let has_several_cpus = allowed_cpu_count(machine) > 1;
    let mut cases = Vec::new();
    for &cpus in MemoryCpus::ALL.iter().filter(|&&cpus| has_several_cpus || cpus == MemoryCpus::One) {
        let all_cpus = cpus == MemoryCpus::All;
        let mut sets = cached_sets(machine, all_cpus);
        if effort == Effort::Quick {
            sets.truncate(if all_cpus { 0 } else { 1 });
        }
        sets.retain(|&bytes| bytes < largest_set(machine, all_cpus));
        sets.push(largest_set(machine, all_cpus));
        cases.extend(numbers(BYTES, &sets).words(&[cpus]));
    }
    cases
}

fn run(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let bytes = number(case, BYTES)?;
    let cpus = match required_word(MemoryCpus::of(case), MemoryCpus::ALL, case)? {
        MemoryCpus::One => vec![bench.cpu()],
        MemoryCpus::All => bench.allowed_cpus().to_vec(),
    };
    let reason = "needs two CPUs; this process may use one";
    skip_if(MemoryCpus::of(case) == Some(MemoryCpus::All) && cpus.len() < 2, reason)?;
    if cpus.len() > MAX_CPUS_IN_STEP {
        measure_group(bench, &cpus, bytes)
    } else {
        measure_in_step(bench, &cpus, bytes)
    }
}

/// Maximum CPUs that start and end every batch together. More would wait for each other as long as they move memory, and see each other in
/// the canaries.
const MAX_CPUS_IN_STEP: usize = 2;

/// All operations in windows, each a figure of the whole round.
fn measure_group(bench: &mut Bench<'_>, cpus: &[u32], bytes: usize) -> ProbeResult {
    let group = BandwidthGroup::start(bench, cpus, bytes)?;
    let mut latencies = Vec::new();
    for (operation, metric) in MEASURED_OPERATIONS {
        latencies.extend(group.core_to_core(bench)?);
        group.measure(bench, operation, metric)?;
    }
    latencies.extend(group.core_to_core(bench)?);
    group.finish()?;
    if !latencies.is_empty() {
        bench.record(&BANDWIDTH_CORE_TO_CORE, latencies);
    }
    Ok(())
}

/// All operations in batches, with canaries.
fn measure_in_step(bench: &mut Bench<'_>, cpus: &[u32], bytes: usize) -> ProbeResult {
    let workers = BandwidthWorkers::new(bytes, cpus.len(), bench.clock())?;
    bench.run_workers(
        cpus,
        |worker, iterations| workers.run_job(worker, iterations),
        |bench, round| {
            round(1)?;
            bench.note(workers.with_first_worker(BandwidthArrays::describe_pages)??);
            let mut latencies = Vec::new();
            for (operation, metric) in MEASURED_OPERATIONS {
                latencies.extend(workers.core_to_core(bench, round)?);
                let work = workers.choose_fastest(operation, bench, round)?;
                bench.time_work(metric, work as f64, &mut *round)?;
            }
            latencies.extend(workers.core_to_core(bench, round)?);
            if !latencies.is_empty() {
                bench.record(&BANDWIDTH_CORE_TO_CORE, latencies);
            }
            Ok(())
        },
    )
}

/// Bytes of a working set that one iteration covers as a whole; larger ones go part by part. Long enough that string
/// instructions switch to streaming and pending write-back does not matter; short compared with the time of an operation.
pub(super) const PART_BYTES: usize = 16 << 20;
/// Bytes of one trial of a variant, at least one iteration; of a working set that each iteration finds in the caches less is enough, but a
/// few iterations.
const TRIAL_BYTES: usize = PART_BYTES;
const CACHED_TRIAL_BYTES: usize = 4 << 20;
const MIN_CACHED_ITERATIONS: usize = 4;
/// Trials of each variant, of which the median counts: neither a lucky nor a disturbed one.
const TRIAL_COUNT: usize = 3;
/// Variants with a median within this factor of the fastest are tried again, so that every round picks the same of two
/// close ones.
const CLOSE_FACTOR: f64 = 1.2;
/// Total trials of each of those.
const CLOSE_TRIAL_COUNT: usize = 7;

/// The memory of one CPU and the position in it.
#[derive(Debug)]
pub(super) struct BandwidthArrays {
    pub arrays: Arrays,
    part: usize,
    parts_done: usize,
}

impl BandwidthArrays {
    /// Maps the memory in such pages, and touches it on the calling CPU. A working set of more than `part` bytes is
    /// processed in parts of that size.
    pub(super) fn new(bytes: usize, part: usize, pages: PagePolicy) -> kelvin_sys::Result<Self> {
        Ok(Self { arrays: Arrays::new(bytes, pages)?, part, parts_done: 0 })
    }

    /// Bytes of each array per iteration of an operation.
    fn part_bytes(&self, operation: Operation) -> usize {
        let max_bytes = self.part / operation.arrays() / LOOP_BYTES * LOOP_BYTES;
        self.arrays.array_bytes(operation).min(max_bytes)
    }

    /// Bytes that one iteration counts.
    pub(super) fn iteration_bytes(&self, operation: Operation) -> usize {
        self.part_bytes(operation) * operation.arrays()
    }

    /// Does iterations: passes over all of a small working set, or the next parts of a large one.
    #[inline]
    pub(super) fn run(&mut self, operation: Operation, kernel: &BandwidthKernel, iterations: u64) {
        let bytes = self.part_bytes(operation);
        let parts = self.arrays.array_bytes(operation) / bytes;
        if parts == 1 {
            self.arrays.run(operation, kernel, ArrayWindow { start: 0, bytes }, iterations);
            return;
        }
        for _ in 0..iterations {
            let window = ArrayWindow { start: self.parts_done % parts * bytes, bytes };
            self.arrays.run(operation, kernel, window, 1);
            self.parts_done += 1;
        }
    }

    /// The memory requested and obtained, in words.
    pub(super) fn describe_pages(&self) -> ProbeResult<String> {
        let arena = self.arrays.arena();
        let (requested, resident) = (arena.len(), resident_around(arena.address())?);
        Ok(format!(
            "{requested} bytes requested; by smaps {} bytes resident, {} of them in huge pages",
            resident.bytes, resident.huge
        ))
    }
}

/// The job of mapping the memory and touching it.
const MAP_JOB: usize = 0;
/// The job of flushing it from every cache.
const EVICT_JOB: usize = usize::MAX;
/// The job of bouncing a line between the first worker and a partner.
const BOUNCE_JOB: usize = usize::MAX - 1;
/// Maximum partners of the first worker, spread over the others.
const MAX_PARTNERS: usize = 8;
/// Round trips of a line with each.
const ROUND_TRIPS_PER_PARTNER: u64 = 500;

/// State of the workers of a crew: their memory, and their next job.
struct BandwidthWorkers {
    bytes: usize,
    /// Number of the job in `jobs`, counted from 1; [`MAP_JOB`], [`EVICT_JOB`] and [`BOUNCE_JOB`] are none of them.
    job: AtomicUsize,
    jobs: Vec<(Operation, BandwidthKernel)>,
    arrays: Vec<Mutex<Option<kelvin_sys::Result<BandwidthArrays>>>>,
    clock: Clock,
    line: Arc<BouncingLine>,
    /// The worker with whom the first bounces the line.
    partner: AtomicUsize,
    /// Ticks that it took.
    bounce_ticks: AtomicU64,
}

impl BandwidthWorkers {
    fn new(bytes: usize, worker_count: usize, clock: Clock) -> ProbeResult<Self> {
        let jobs_of = |operation: Operation| operation.kernels().into_iter().map(move |kernel| (operation, kernel));
        Ok(Self {
            bytes,
            job: AtomicUsize::new(MAP_JOB),
            jobs: Operation::ALL.into_iter().flat_map(jobs_of).collect(),
            arrays: (0..worker_count).map(|_| Mutex::new(None)).collect(),
            clock,
            line: BouncingLine::new()?,
            partner: AtomicUsize::new(0),
            bounce_ticks: AtomicU64::new(0),
        })
    }

    /// One worker's share of a round. A failed mapping is reported to the next use of the memory.
    fn run_job(&self, worker: usize, iterations: u64) {
        if self.job.load(Ordering::Acquire) == BOUNCE_JOB {
            return self.bounce_line(worker, iterations);
        }
        let mut mover = lock(&self.arrays[worker]);
        match (self.job.load(Ordering::Acquire), &mut *mover) {
            (MAP_JOB, _) => *mover = Some(BandwidthArrays::new(self.bytes, PART_BYTES, PagePolicy::Huge)),
            (EVICT_JOB, Some(Ok(mover))) => mover.arrays.evict(),
            (job, Some(Ok(mover))) => {
                let (operation, kernel) = &self.jobs[job - 1];
                mover.run(*operation, kernel, iterations);
            }
            (_, _) => {}
        }
    }

    /// A worker's part in bouncing the line; most have none.
    fn bounce_line(&self, worker: usize, trips: u64) {
        if worker == self.partner.load(Ordering::Acquire) {
            self.line.pong(SETTLE_ROUND_TRIPS + trips);
        } else if worker == 0 {
            self.line.ping(SETTLE_ROUND_TRIPS);
            self.bounce_ticks.store(self.clock.time(|| self.line.ping(trips)).0, Ordering::Release);
        }
    }

    /// Core-to-core latency from the first worker in nanoseconds, the median over partners; `None` without partners.
    fn core_to_core(&self, bench: &Bench<'_>, round: &mut dyn FnMut(u64) -> ProbeResult) -> ProbeResult<Option<f64>> {
        let other_workers = self.arrays.len() - 1;
        self.job.store(BOUNCE_JOB, Ordering::Release);
        let mut latencies = Vec::new();
        for index in 0..other_workers.min(MAX_PARTNERS) {
            self.partner.store(1 + index * other_workers / other_workers.min(MAX_PARTNERS), Ordering::Release);
            round(ROUND_TRIPS_PER_PARTNER)?;
            let trips = bench.nanoseconds(self.bounce_ticks.load(Ordering::Acquire));
            latencies.push(trips / ROUND_TRIPS_PER_PARTNER as f64 / 2.0);
        }
        Ok(upper_median(&latencies))
    }

    /// Calls a function with the first worker's memory, once all workers have theirs.
    fn with_first_worker<R>(&self, f: impl FnOnce(&BandwidthArrays) -> R) -> ProbeResult<R> {
        for mover in &self.arrays {
            if let Some(Err(error)) = &*lock(mover) {
                let (worker_count, set_size) = (self.arrays.len(), units::bytes(self.bytes as u64));
                return Err(ProbeError::skip(format!("needs {worker_count} times {set_size} of memory: {error}")));
            }
        }
        match &*lock(&self.arrays[0]) {
            Some(Ok(mover)) => Ok(f(mover)),
            _ => Err(ProbeError::fail("the first touch did not happen")),
        }
    }

    /// Tries the variants of an operation on all workers at once, notes the figures of each, and makes the fastest the
    /// next job. Returns the bytes of an iteration of all workers.
    ///
    /// Non-temporal stores leave nothing in the caches for the next pass. Over a set that stays in a cache they would
    /// run, while it lasts, on what other variants left: so they are not tried there as a variant, and as the operation
    /// itself they begin with a flushed set.
    fn choose_fastest(
        &self,
        operation: Operation,
        bench: &mut Bench<'_>,
        round: &mut dyn FnMut(u64) -> ProbeResult,
    ) -> ProbeResult<usize> {
        let (iteration_bytes, is_cached) = self.with_first_worker(|mover| {
            let is_whole = mover.part_bytes(operation) == mover.arrays.array_bytes(operation);
            (mover.iteration_bytes(operation), is_whole)
        })?;
        if is_cached && operation == Operation::NonTemporalWrite {
            self.job.store(EVICT_JOB, Ordering::Release);
            round(1)?;
        }
        let iterations = match is_cached {
            true => CACHED_TRIAL_BYTES.div_ceil(iteration_bytes).max(MIN_CACHED_ITERATIONS),
            false => TRIAL_BYTES.div_ceil(iteration_bytes),
        } as u64;
        let mut time_job = |job: usize| -> ProbeResult<f64> {
            self.job.store(job, Ordering::Release);
            let (ticks, outcome) = bench.clock().time(|| round(iterations));
            outcome.map(|()| bench.nanoseconds(ticks))
        };
        let is_candidate = |(job_operation, kernel): &(Operation, BandwidthKernel)| {
            *job_operation == operation && !(is_cached && kernel.bypasses_caches())
        };
        let candidates: Vec<usize> =
            (1..).zip(&self.jobs).filter(|(_, job)| is_candidate(job)).map(|(job, _)| job).collect();
        let ranking = rank_kernels(&candidates, &mut time_job)?;
        let bytes = (iteration_bytes as u64 * iterations) as f64 * self.arrays.len() as f64;
        let &(_, best) = ranking.first().or_fail(format!("there is no kernel for {operation:?}"))?;
        self.job.store(best, Ordering::Release);
        let figure = |(time, job): &(f64, usize)| format!("{} {:.1} GB/s", self.jobs[job - 1].1.name(), bytes / time);
        let figures: Vec<String> = ranking.iter().map(figure).collect();
        bench.note(format!(
            "{}; median of {TRIAL_COUNT} trials of each, of those close to the fastest {CLOSE_TRIAL_COUNT}: {}",
            describe_counting(operation),
            figures.join(", ")
        ));
        Ok(iteration_bytes * self.arrays.len())
    }
}

/// Some kernels with the median of what each takes in a few trials, one after another, the fastest first.
fn rank_kernels(
    candidates: &[usize],
    mut try_kernel: impl FnMut(usize) -> ProbeResult<f64>,
) -> ProbeResult<Vec<(f64, usize)>> {
    let mut trials: Vec<(usize, Vec<f64>)> = candidates.iter().map(|&kernel| (kernel, Vec::new())).collect();
    for trial in 0..CLOSE_TRIAL_COUNT {
        let fastest = trials.iter().filter_map(|(_, times)| upper_median(times)).fold(f64::INFINITY, f64::min);
        for (kernel, times) in &mut trials {
            if trial < TRIAL_COUNT || upper_median(times).is_some_and(|middle| middle <= CLOSE_FACTOR * fastest) {
                times.push(try_kernel(*kernel)?);
            }
        }
    }
    let median = |(kernel, times): &(usize, Vec<f64>)| Some((upper_median(times)?, *kernel));
    let mut ranking: Vec<(f64, usize)> = trials.iter().filter_map(median).collect();
    ranking.indirect_sort_by(|left, right| left.0.total_cmp(&right.0));
    Ok(ranking)
}

/// The kernel of an operation with the widest ordinary loads and stores.
pub(super) fn widest_kernel(operation: Operation) -> ProbeResult<BandwidthKernel> {
    let widest = operation.kernels().into_iter().rev().find(|kernel| !kernel.name().contains(' '));
    widest.or_fail(format!("there is no kernel for {operation:?}"))
}

/// The median of some times; of an even number the upper one.
fn upper_median(times: &[f64]) -> Option<f64> {
    let mut times = times.to_vec();
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied()
}

/// How bytes are counted.
fn describe_counting(operation: Operation) -> &'static str {
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

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::testing;
    use kelvin_core::{Cache, CacheKind, Fact};

    /// A machine with caches of 48 KiB, 1 MiB, and a last level that its CPUs share.
    pub(in crate::memory) fn machine(cpus: u32, last_level: u64, available: u64) -> Machine {
        let mut machine = testing::machine();
        let cpu_ids: Vec<u32> = (0..cpus).collect();
        let cache = |level, bytes, shared_by: &[u32]| Cache {
            level,
            kind: if level == 1 { CacheKind::Data } else { CacheKind::Unified },
            bytes,
            ways: None,
            line_bytes: Some(64),
            shared_by: shared_by.to_vec(),
        };
        let caches = vec![cache(1, 48 << 10, &[0]), cache(2, 1 << 20, &[0]), cache(3, last_level, &cpu_ids)];
        machine.topology.caches = Fact::known(caches, "a test");
        machine.topology.allowed = Fact::known(cpu_ids, "a test");
        machine.memory.available_bytes = Fact::known(available, "a test");
        machine
    }

    fn sets(machine: &Machine, effort: Effort, cpus: MemoryCpus) -> Vec<u64> {
        let all_cases = cases(machine, effort);
        let cpu_cases = all_cases.iter().filter(|case| MemoryCpus::of(case) == Some(cpus));
        cpu_cases.filter_map(|case| BYTES.number_in(case)).collect()
    }

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;

    #[test]
    fn working_sets_lie_in_one_level_each() {
        let two_cpus = machine(2, 32 * MIB, 24 << 30);
        assert_eq!(sets(&two_cpus, Effort::Default, MemoryCpus::One), [24 * KIB, 512 * KIB, 4 * MIB, 256 * MIB]);
        assert_eq!(sets(&two_cpus, Effort::Default, MemoryCpus::All), [24 * KIB, 512 * KIB, 4 * MIB, 128 * MIB]);
        assert_eq!(sets(&two_cpus, Effort::Quick, MemoryCpus::One), [24 * KIB, 256 * MIB]);
        assert_eq!(sets(&two_cpus, Effort::Quick, MemoryCpus::All), [128 * MIB]);
        assert!(sets(&machine(1, 32 * MIB, 24 << 30), Effort::Default, MemoryCpus::All).is_empty());
    }

    #[test]
    fn last_level_share_exceeds_inner_level() {
        let many_cpus = machine(32, 32 * MIB, 64 << 30);
        // A quarter of a share would be 256 KiB: the second level holds that. Twice the second level fits once, not 32
        // times.
        assert_eq!(sets(&many_cpus, Effort::Default, MemoryCpus::One), [24 * KIB, 512 * KIB, 2 * MIB, 256 * MIB]);
        assert_eq!(sets(&many_cpus, Effort::Default, MemoryCpus::All), [24 * KIB, 512 * KIB, 8 * MIB]);
    }

    #[test]
    fn set_maps_to_outermost_fitting_cache() {
        let two_cpus = machine(2, 32 * MIB, 24 << 30);
        assert_eq!(
            case_for_set(&two_cpus, 16 * MIB),
            Case::new().with_number(BYTES, 4 * MIB).with_word(MemoryCpus::One)
        );
        assert_eq!(case_for_set(&two_cpus, 17 * MIB), memory_case(&two_cpus));
    }

    #[test]
    fn small_memory_limits_working_set() {
        let small_machine = machine(2, 96 * MIB, 512 * MIB);
        assert_eq!(largest_set(&small_machine, false), 256 * MIB);
        assert_eq!(largest_set(&small_machine, true), 128 * MIB);
        let odd_machine = machine(2, 32 * MIB, 500 * MIB + 12_345);
        assert_eq!(largest_set(&odd_machine, true), 64 * MIB);
    }

    #[test]
    fn a_large_working_set_is_processed_in_parts() {
        let mut mover = BandwidthArrays::new(2 * PART_BYTES + 3 * LOOP_BYTES, PART_BYTES, PagePolicy::Huge).unwrap();
        let kernel = Operation::Copy.kernels()[0];
        assert_eq!(mover.iteration_bytes(Operation::Copy), PART_BYTES);
        mover.run(Operation::Copy, &kernel, 3);
        assert_eq!(mover.parts_done, 3);
        let mut small_set = BandwidthArrays::new(48 << 10, PART_BYTES, PagePolicy::Huge).unwrap();
        assert_eq!(small_set.iteration_bytes(Operation::Triad), 48 << 10);
        small_set.run(Operation::Copy, &kernel, 3);
        assert_eq!(small_set.parts_done, 0);
    }
}
