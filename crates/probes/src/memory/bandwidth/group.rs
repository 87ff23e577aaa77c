//! Bandwidth of several CPUs at once, each in memory of its own, in windows of some milliseconds.
//!
//! Within a window no CPU waits for another, and between windows all sleep: on many CPUs a common end of every batch would take as long as
//! the batch.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kelvin_core::units;
use kelvin_sys::cache_line::BouncingLine;
use kelvin_sys::kernels::bandwidth::{BandwidthKernel, LOOP_BYTES, Operation};
use kelvin_sys::memory::PagePolicy;
use kelvin_sys::partner::PartnerKind;
use kelvin_sys::task_group::{TaskGroup, WindowWork, WorkedWindow};

use super::{
    BandwidthArrays, MAX_PARTNERS, PART_BYTES, ROUND_TRIPS_PER_PARTNER, describe_counting, rank_kernels, upper_median,
};
use crate::memory::axes::skip_if_out_of_memory;
use crate::memory::core_to_core::SETTLE_ROUND_TRIPS;
use crate::os::partner::TokenPartner;
use crate::prelude::*;
use crate::task_windows::{describe_evenness, first_window_of_all, window_times};

/// Bytes of a part of a task's memory, which one iteration covers: at a GB/s for each of many CPUs a part takes a millisecond, and a window has twenty.
const TASK_PART_BYTES: usize = 1 << 20;
/// Bytes between two readings of the clock, of a set that is smaller than a part.
const STRIDE_BYTES: usize = 256 << 10;
/// Nanoseconds of a window that counts.
const WINDOW_NANOSECONDS: u64 = 20_000_000;
/// A window in which other work keeps a task from its CPU is repeated, twice as long, until it is as long as this: several slices of a
/// scheduler for each of many tasks.
const MAX_WINDOW_NANOSECONDS: u64 = 1_000_000_000;
/// Nanoseconds of a trial of a variant.
const TRIAL_NANOSECONDS: u64 = 1_500_000;

/// CPUs that move memory at once, one task on each.
pub(in crate::memory) struct BandwidthGroup {
    group: TaskGroup,
    jobs: Arc<Jobs>,
    cpus: Vec<u32>,
    /// Bytes of each task's memory.
    set_bytes: usize,
}

/// What the tasks do in the next window.
struct Jobs {
    /// The index of a kernel; or [`FLUSH_JOB`].
    next: AtomicUsize,
    kernels: Vec<(Operation, BandwidthKernel)>,
}

/// The job of flushing the task's memory from every cache.
const FLUSH_JOB: usize = usize::MAX;

/// A task and its memory.
struct MemoryTask {
    memory: BandwidthArrays,
    jobs: Arc<Jobs>,
    job: usize,
}

impl WindowWork for MemoryTask {
    fn stride(&self) -> u64 {
        self.jobs.kernels.get(self.job).map_or(1, |(operation, _)| {
            let bytes = self.memory.iteration_bytes(*operation);
            STRIDE_BYTES.div_ceil(bytes) as u64
        })
    }

    fn prepare(&mut self) -> kelvin_sys::Result<()> {
        self.job = self.jobs.next.load(Ordering::Acquire);
        if self.job == FLUSH_JOB {
            self.memory.arrays.evict();
        }
        Ok(())
    }

    fn repeat(&mut self, iterations: u64) -> kelvin_sys::Result<()> {
        if let Some((operation, kernel)) = self.jobs.kernels.get(self.job) {
            self.memory.run(*operation, kernel, iterations);
        }
        Ok(())
    }
}

impl BandwidthGroup {
    /// Starts a task on each of these CPUs, each with this much memory, which it touches first.
    pub(in crate::memory) fn start(bench: &mut Bench<'_>, cpus: &[u32], set_bytes: usize) -> ProbeResult<Self> {
        let kernels_of = |operation: Operation| operation.kernels().into_iter().map(move |kernel| (operation, kernel));
        let kernels = Operation::ALL.into_iter().flat_map(kernels_of).collect();
        let jobs = Arc::new(Jobs { next: AtomicUsize::new(FLUSH_JOB), kernels });
        let make_work = {
            let jobs = Arc::clone(&jobs);
            move |_| {
                let memory = BandwidthArrays::new(set_bytes, TASK_PART_BYTES, PagePolicy::Huge)?;
                Ok(MemoryTask { memory, jobs: Arc::clone(&jobs), job: FLUSH_JOB })
            }
        };
        let group = TaskGroup::start(PartnerKind::Thread, cpus, bench.clock(), make_work);
        let all_bytes = set_bytes * cpus.len();
        let group = skip_if_out_of_memory(all_bytes, group)?;
        let group = Self { group, jobs, cpus: cpus.to_vec(), set_bytes };
        // In the first window each task has its memory.
        skip_if_out_of_memory(all_bytes, group.run_job(bench, FLUSH_JOB, 0))?;
        let (cpus, set) = (kelvin_core::cpu_ranges(cpus), units::bytes(set_bytes as u64));
        bench.note(format!("on CPUs {cpus}, {set} of memory each"));
        Ok(group)
    }

    fn run_job(&self, bench: &Bench<'_>, job: usize, nanoseconds: u64) -> kelvin_sys::Result<Vec<WorkedWindow>> {
        self.jobs.next.store(job, Ordering::Release);
        let tasks = self.cpus.len();
        self.group.run_window(0..tasks, window_times(bench, tasks, nanoseconds))
    }

    /// Bytes that one iteration of an operation counts.
    fn iteration_bytes(&self, operation: Operation) -> usize {
        self.set_bytes.min(TASK_PART_BYTES) / operation.arrays() / LOOP_BYTES * LOOP_BYTES * operation.arrays()
    }

    /// Bytes per second of all tasks by a kernel, in a window of this time.
    fn rate(&self, bench: &Bench<'_>, job: usize, nanoseconds: u64) -> ProbeResult<(f64, Vec<WorkedWindow>)> {
        let lengths = nanoseconds..=MAX_WINDOW_NANOSECONDS;
        let windows = first_window_of_all(lengths, |length| Ok(self.run_job(bench, job, length)?))?;
        let operations = windows.iter().map(WorkedWindow::rate).sum::<f64>();
        Ok((operations * self.iteration_bytes(self.jobs.kernels[job].0) as f64 * bench.hertz(), windows))
    }

    /// Measures an operation by its fastest variant, which is tried first, and notes the figures of all.
    pub(in crate::memory) fn measure(
        &self,
        bench: &mut Bench<'_>,
        operation: Operation,
        metric: &Metric,
    ) -> ProbeResult {
        let is_cached = self.set_bytes <= PART_BYTES;
        let is_candidate = |job: &usize| {
            let (job_operation, kernel) = &self.jobs.kernels[*job];
            *job_operation == operation && !(is_cached && kernel.bypasses_caches())
        };
        let candidates: Vec<usize> = (0..self.jobs.kernels.len()).filter(is_candidate).collect();
        if is_cached && operation == Operation::NonTemporalWrite {
            self.run_job(bench, FLUSH_JOB, 0)?;
        }
        let seconds_per_byte = |job: usize| Ok(1.0 / self.rate(bench, job, TRIAL_NANOSECONDS)?.0);
        let ranking = rank_kernels(&candidates, seconds_per_byte)?;
        let &(_, best) = ranking.first().or_fail(format!("there is no kernel for {operation:?}"))?;
        let (rate, windows) = self.rate(bench, best, WINDOW_NANOSECONDS)?;
        let figure =
            |&(time, job): &(f64, usize)| format!("{} {:.1} GB/s", self.jobs.kernels[job].1.name(), 1e-9 / time);
        let figures: Vec<String> = ranking.iter().map(figure).collect();
        bench.note(format!("{}; trials: {}", describe_counting(operation), figures.join(", ")));
        bench.note(describe_evenness(&windows));
        bench.record(metric, vec![rate]);
        Ok(())
    }

    /// Core-to-core latency from the CPU of the calling thread to others of the group, in nanoseconds: the median over up to
    /// [`MAX_PARTNERS`] of them, spread over the group; `None` if there is no other.
    pub(in crate::memory) fn core_to_core(&self, bench: &Bench<'_>) -> ProbeResult<Option<f64>> {
        let others: Vec<u32> = self.cpus.iter().copied().filter(|&cpu| cpu != bench.cpu()).collect();
        let step = others.len().div_ceil(MAX_PARTNERS).max(1);
        let mut latencies = Vec::new();
        for &cpu in others.iter().step_by(step) {
            let line = BouncingLine::new()?;
            let partner_line = Arc::clone(&line);
            let partner = TokenPartner::start_batches(cpu, move |trips| partner_line.pong(trips))?;
            partner.start_batch(SETTLE_ROUND_TRIPS + ROUND_TRIPS_PER_PARTNER)?;
            line.ping(SETTLE_ROUND_TRIPS);
            let (ticks, ()) = bench.clock().time(|| line.ping(ROUND_TRIPS_PER_PARTNER));
            partner.finish_batch()?;
            partner.finish()?;
            latencies.push(bench.nanoseconds(ticks) / ROUND_TRIPS_PER_PARTNER as f64 / 2.0);
        }
        Ok(upper_median(&latencies))
    }

    /// Ends all tasks.
    pub(in crate::memory) fn finish(self) -> ProbeResult {
        Ok(self.group.finish()?)
    }
}
