//! Requests of several jobs at once, each a thread on a CPU of its own with its own ring, counted in one window of time that all share.
//!
//! A job keeps its queue full from before the window until after it. So neither the start of a thread nor the last requests count, and
//! the sum of the completions inside the window over its length is the rate of all.

use std::ops::ControlFlow;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use kelvin_sys::clock::Clock;
use kelvin_sys::cpu;
use kelvin_sys::stop_signals;
use kelvin_sys::thread_spawn::ThreadBuilder;
use kelvin_sys::usage::{Usage, UsageScope, read_usage};

use crate::access::Access;
use crate::block_requests::{BlockOrder, BlockRequest, BlockRequests};
use crate::engine::{Engine, ReadOptions};
use crate::error::check_stop_signal;
use crate::observer::Observer;
use crate::start_barrier::StartBarrier;
use crate::target::Target;
use crate::{Error, PagePolicy, Result};

/// What jobs read, and for how long they are counted.
#[derive(Clone, Debug)]
pub struct JobSpec {
    /// The file that all of them read, past the page cache.
    pub target: Target,
    /// The way. Its depth is that of each job.
    pub engine: Engine,
    /// Bytes of a block.
    pub block: usize,
    /// Chooses the random order in which each job reads the whole file; no two jobs have the same.
    pub seed: u64,
    /// The CPU of each job.
    pub cpus: Vec<u32>,
    /// The clock that all read, and its ticks per second.
    pub clock: (Clock, f64),
    /// Nanoseconds for which all queues are full before the window.
    pub ramp: u64,
    /// Nanoseconds of the window.
    pub window: u64,
}

impl JobSpec {
    /// Requests of all jobs together that are in flight at once.
    pub fn in_flight(&self) -> u64 {
        self.cpus.len() as u64 * u64::from(self.engine.depth())
    }
}

/// What one job did in the window.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobResult {
    /// The clock at each completion in it, in ticks.
    pub times: Vec<u64>,
    /// Nanoseconds of CPU time between the first and the last of these.
    pub cpu_time: u64,
    /// All requests that it made, before the window and after it as well.
    pub requests: u64,
    /// The mean queue depth, counted at completions.
    pub achieved_depth: f64,
    /// Ticks from a request to its completion, summed over those in the window.
    pub latency: u64,
}

impl JobResult {
    /// Requests that were completed in the window.
    pub fn completions(&self) -> u64 {
        self.times.len() as u64
    }
}

/// What jobs did in their window.
#[derive(Clone, Debug, PartialEq)]
pub struct JobsResult {
    /// Nanoseconds of the window.
    pub window: u64,
    /// Each job.
    pub jobs: Vec<JobResult>,
}

impl JobsResult {
    /// Requests per second of all jobs together: the sum of the completions in the window over its length.
    pub fn requests_per_second(&self) -> f64 {
        self.completions() as f64 * 1e9 / self.window.max(1) as f64
    }

    /// Requests that were completed in the window.
    pub fn completions(&self) -> u64 {
        self.jobs.iter().map(JobResult::completions).sum()
    }

    /// Nanoseconds of CPU time of a request.
    pub fn cpu_time_per_request(&self) -> f64 {
        // The first completion begins the CPU time of a job, and is not in it.
        let requests: u64 = self.jobs.iter().map(|job| job.completions().saturating_sub(1)).sum();
        self.jobs.iter().map(|job| job.cpu_time).sum::<u64>() as f64 / requests.max(1) as f64
    }

    /// All requests that were made, before the window and after it as well.
    pub fn requests(&self) -> u64 {
        self.jobs.iter().map(|job| job.requests).sum()
    }

    /// The clock at each completion in the window, of all jobs, in ticks and in order.
    pub fn times(&self) -> Vec<u64> {
        let mut times: Vec<u64> = self.jobs.iter().flat_map(|job| job.times.iter().copied()).collect();
        times.sort_unstable();
        times
    }

    /// Ticks from a request to its completion on average, of those in the window.
    pub fn mean_latency(&self) -> f64 {
        self.jobs.iter().map(|job| job.latency).sum::<u64>() as f64 / self.completions().max(1) as f64
    }

    /// The mean queue depth of a job.
    pub fn achieved_depth(&self) -> f64 {
        self.jobs.iter().map(|job| job.achieved_depth).sum::<f64>() / self.jobs.len().max(1) as f64
    }
}

/// Nanoseconds after which the window begins even if some job has not completed as many requests as its queue holds.
const MAX_START: u64 = 2_000_000_000;
/// Nanoseconds from when the last job is ready until the window begins, at least: all see its beginning before it is there.
const MIN_RAMP: u64 = 50_000;

/// The window that jobs share, in ticks.
#[derive(Debug)]
struct Window {
    /// When it begins; [`u64::MAX`] until that is known.
    begin: AtomicU64,
    /// Jobs that are not ready.
    missing: AtomicUsize,
    length: u64,
    ramp: u64,
    max_start: u64,
    /// Whether a job has failed.
    is_cancelled: AtomicBool,
}

/// Where a moment lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Ramp,
    Counted,
    Over,
}

impl Window {
    fn new(jobs: usize, (ramp, window): (u64, u64), hertz: f64) -> Self {
        let ticks = |nanoseconds: u64| (nanoseconds as f64 * hertz / 1e9) as u64;
        Self {
            begin: AtomicU64::new(u64::MAX),
            missing: AtomicUsize::new(jobs),
            length: ticks(window),
            ramp: ticks(ramp.max(MIN_RAMP)),
            max_start: ticks(MAX_START),
            is_cancelled: AtomicBool::new(false),
        }
    }

    /// A job's queue has been full; the last one decides when the window begins.
    fn report_ready(&self, now: u64) {
        if self.missing.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.open(now);
        }
    }

    /// The window begins shortly, unless that was decided before.
    fn open(&self, now: u64) {
        let _ =
            self.begin.compare_exchange(u64::MAX, now.saturating_add(self.ramp), Ordering::AcqRel, Ordering::Acquire);
    }

    fn phase(&self, now: u64) -> Phase {
        let begin = self.begin.load(Ordering::Acquire);
        if now < begin {
            Phase::Ramp
        } else if now - begin < self.length {
            Phase::Counted
        } else {
            Phase::Over
        }
    }
}

/// Counts the completions of one job in the window.
struct WindowObserver<'w> {
    window: &'w Window,
    clock: Clock,
    start: u64,
    /// Completions after which the job is ready: its queue was full, and each request in it has waited for the others.
    until_ready: u64,
    result: JobResult,
    /// CPU time at the first completion in the window.
    first_usage: Option<Usage>,
}

impl<'w> WindowObserver<'w> {
    fn new(window: &'w Window, clock: Clock, depth: u32) -> Self {
        let (start, until_ready, result) = (clock.start(), u64::from(depth), JobResult::default());
        Self { window, clock, start, until_ready, result, first_usage: None }
    }

    /// The end of the window.
    #[cold]
    fn finish(&mut self) -> ControlFlow<()> {
        let usage = self.first_usage.map(|first| read_usage(UsageScope::Thread).since(first));
        self.result.cpu_time = usage.map_or(0, Usage::cpu);
        ControlFlow::Break(())
    }
}

impl Observer for WindowObserver<'_> {
    type Stamp = u64;

    #[inline(always)]
    fn begin(&mut self) -> u64 {
        self.clock.start()
    }

    #[inline]
    fn end(&mut self, start: u64, _: BlockRequest, _: &[u8]) -> ControlFlow<()> {
        let now = self.clock.stop();
        self.result.requests += 1;
        if self.until_ready > 0 {
            self.until_ready -= 1;
            if self.until_ready == 0 {
                self.window.report_ready(now);
            }
        }
        match self.window.phase(now) {
            Phase::Ramp => {
                if now.wrapping_sub(self.start) > self.window.max_start {
                    self.window.open(now);
                }
                let is_over = self.window.is_cancelled.load(Ordering::Relaxed) || stop_signals::stop_signal().is_some();
                if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            }
            Phase::Counted => {
                self.result.times.push(now);
                self.result.latency += now.saturating_sub(start);
                if self.first_usage.is_none() {
                    self.first_usage = Some(read_usage(UsageScope::Thread));
                }
                ControlFlow::Continue(())
            }
            Phase::Over => self.finish(),
        }
    }
}

/// Lets all jobs read until the window that they share is over.
///
/// # Errors
/// A file that cannot be read so, a CPU that may not be used, a thread that cannot be started, a signal.
pub fn run(spec: &JobSpec) -> Result<JobsResult> {
    let (window, barrier) =
        (Window::new(spec.cpus.len(), (spec.ramp, spec.window), spec.clock.1), StartBarrier::new(spec.cpus.len()));
    let jobs = std::thread::scope(|scope| {
        let mut handles = Vec::with_capacity(spec.cpus.len());
        for (number, &cpu) in (0..).zip(&spec.cpus) {
            let (window, barrier) = (&window, &barrier);
            let work = move || {
                let outcome = run_job(spec, number, cpu, (window, barrier));
                window.is_cancelled.fetch_or(outcome.is_err(), Ordering::Relaxed);
                outcome
            };
            let handle = ThreadBuilder::named("job").start_in(scope, work).inspect_err(|_| barrier.cancel());
            handles.push(handle.map_err(Error::ThreadStart)?);
        }
        let outcomes = handles.into_iter().map(|handle| handle.join().unwrap_or_else(|panic| resume_unwind(panic)));
        // All have ended before the first error is looked at.
        outcomes.collect::<Vec<_>>().into_iter().collect::<Result<Vec<JobResult>>>()
    })?;
    check_stop_signal().map(|()| JobsResult { window: spec.window, jobs })
}

fn run_job(spec: &JobSpec, number: u64, cpu: u32, (window, barrier): (&Window, &StartBarrier)) -> Result<JobResult> {
    let order = BlockOrder::Random { seed: spec.seed }.of_part(number);
    let options = ReadOptions { access: Access::Direct, block: spec.block, order, pages: PagePolicy::Base };
    // Its buffers and its ring lie where it runs.
    let reader = cpu::pin(&[cpu])
        .map_err(|error| Error::setting("cpu", format!("CPU {cpu} may not be used: {error}")))
        .and_then(|()| spec.engine.open(&spec.target, options));
    // A job that cannot read must come to the barrier too, or the others would wait for ever.
    if !barrier.wait() {
        return Ok(JobResult::default());
    }
    let mut reader = reader?;
    let mut observer = WindowObserver::new(window, spec.clock.0, spec.engine.depth());
    let mut requests = BlockRequests::new(0..spec.target.bytes(), spec.block, order).endless();
    reader.read(&mut requests, &mut observer)?;
    Ok(JobResult { achieved_depth: reader.achieved_depth().unwrap_or(1.0), ..observer.result })
}

#[cfg(test)]
mod tests {
    use super::*;
    use kelvin_sys::clock::ScriptedClock;

    const REQUEST: BlockRequest = BlockRequest { offset: 0, bytes: 4096 };

    /// Completions of two jobs at these moments of a script, in nanoseconds, each 500 ns after its request; what each counts.
    fn counted(window: &Window, depth: u32, moments: &[(usize, u64)]) -> [JobResult; 2] {
        let script = ScriptedClock::leak(0);
        let mut observers = [0, 1].map(|_| WindowObserver::new(window, Clock::Scripted(script), depth));
        let mut has_ended = [false; 2];
        for &(job, moment) in moments {
            assert!(!has_ended[job], "a job that was told to end makes no more requests");
            script.advance(moment - script.now());
            has_ended[job] = observers[job].end(moment.saturating_sub(500), REQUEST, &[]).is_break();
        }
        observers.map(|observer| observer.result)
    }

    #[test]
    fn completions_in_the_common_window_are_summed() {
        // One tick a nanosecond. The second job is ready at 30 us, so that the window is from 80 us to 180 us.
        let window = Window::new(2, (0, 100_000), 1e9);
        let moments = [
            (0, 10_000),
            (0, 20_000),
            (1, 25_000),
            (1, 30_000),
            (0, 79_999),
            (0, 80_000),
            (1, 81_000),
            (0, 120_000),
            (1, 179_999),
            (0, 180_000),
            (1, 200_000),
        ];
        let jobs = counted(&window, 2, &moments);
        assert_eq!(jobs.each_ref().map(JobResult::completions), [2, 2]);
        assert_eq!(jobs.each_ref().map(|job| job.requests), [6, 5]);
        let result = JobsResult { window: 100_000, jobs: jobs.to_vec() };
        assert_eq!(result.times(), [80_000, 81_000, 120_000, 179_999]);
        assert_eq!((result.completions(), result.requests(), result.requests_per_second()), (4, 11, 40_000.0));
        assert_eq!(result.mean_latency(), 500.0);
    }

    #[test]
    fn slow_job_does_not_delay_the_window_for_ever() {
        let window = Window::new(2, (0, 100_000), 1e9);
        // One request of the second job takes 3 s: the window begins 50 us after 2 s have passed.
        let jobs = counted(&window, 1, &[(0, 10), (0, 2_000_000_001), (0, 2_000_060_000), (1, 3_000_000_000)]);
        assert_eq!(jobs.map(|job| job.completions()), [1, 0]);
    }

    #[test]
    fn cancelled_jobs_end_before_the_window() {
        let window = Window::new(2, (0, 100_000), 1e9);
        window.is_cancelled.store(true, Ordering::Relaxed);
        assert_eq!(counted(&window, 1, &[(0, 10), (1, 20)]).map(|job| job.completions()), [0, 0]);
    }

    #[test]
    fn cpu_time_is_that_between_the_first_and_the_last() {
        let job = |completions, cpu_time| JobResult { times: vec![0; completions], cpu_time, ..JobResult::default() };
        let jobs = JobsResult { window: 1, jobs: vec![job(11, 5000), job(31, 15_000)] };
        assert_eq!(jobs.cpu_time_per_request(), 500.0);
        assert_eq!(JobsResult { window: 1, jobs: vec![job(0, 0)] }.cpu_time_per_request(), 0.0);
    }

    #[test]
    fn jobs_read_a_file_at_once() {
        let file = tempfile::NamedTempFile::new_in(".").unwrap();
        std::fs::write(file.path(), vec![7; 1 << 20]).unwrap();
        let target = Target::find(file.path()).unwrap();
        let cpu = cpu::affinity().unwrap()[0];
        let spec = JobSpec {
            target,
            engine: Engine::Uring { depth: 4, registered: false },
            block: 4096,
            seed: 1,
            cpus: vec![cpu; 3],
            clock: (Clock::MonotonicRaw, 1e9),
            ramp: 1_000_000,
            window: 5_000_000,
        };
        let result = match run(&spec) {
            Err(error) if error.is_unsupported() => {
                return kelvin_testing::MissingRequirement::machine(error).report_skip("jobs at depth");
            }
            outcome => outcome.unwrap(),
        };
        assert_eq!((result.jobs.len(), result.window), (3, 5_000_000));
        for job in &result.jobs {
            // Each completed its queue once before, and what was in flight at the end completed after.
            assert!(job.requests >= job.completions() + 4, "{job:?}");
            assert!(job.achieved_depth > 0.0 && job.achieved_depth <= 4.0, "{job:?}");
            assert!(job.latency > 0 || job.completions() == 0, "{job:?}");
        }
        let error = run(&JobSpec { cpus: vec![cpu, 8000], ..spec.clone() }).unwrap_err().to_string();
        assert!(error.contains("CPU 8000 may not be used"), "{error}");
        let error = run(&JobSpec { block: 1000, ..spec }).unwrap_err().to_string();
        assert!(error.contains("past the page cache"), "{error}");
    }
}
