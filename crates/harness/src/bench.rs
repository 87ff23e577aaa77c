//! A probe's interface to the harness: the only way to make readings.

mod hardware_counters;
mod sample_buffer;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use kelvin_core::{
    Canaries as Guards, Canary, CoreSteadyState, CountedOperations, HeadlineSamples, Metric, MetricReadings,
    OverheadReading, Readings, SampleTags,
};
use kelvin_stats::median;
use kelvin_sys::clock::Clock;
use kelvin_sys::kernels;
use kelvin_sys::thread_spawn::ThreadBuilder;

use crate::canary::CanaryReader;
use crate::interference::InterferenceMonitor;
use crate::probe_error::ProbeError;
use crate::protocol::{Extension, RoundRequest};
use crate::setup::{AgentEndpoint, Setup, TcpOptions};
use crate::worker_group::WorkerGroup;

use self::hardware_counters::count_operations;
use self::sample_buffer::{SampleBuffer, SamplingSpec, UndisturbedCriterion};

/// Minimum time of a batch, in nanoseconds and in clock pairs: the longer applies.
const MIN_BATCH_TIME: f64 = 50_000.0;
const MIN_BATCH_CLOCK_PAIRS: f64 = 1000.0;
/// Maximum samples that one round keeps of one metric; with more time, batches grow instead.
const MAX_SAMPLES: usize = 400;
/// Share of the time slice after which warm-up ends in any case.
const MAX_WARM_UP_SHARE: f64 = 0.25;
/// Individually timed operations of at least this many nanoseconds are not re-warmed after the canaries: what those
/// evict (128 KiB at most) costs less than 1 % of it.
const REWARM_THRESHOLD: f64 = 1_000_000.0;
/// Minimum nanoseconds between two readings of the canaries when operations are timed one by one.
const CANARY_PERIOD: f64 = 60_000.0;
/// Back-to-back operations between two checks of the thread's counters and the canaries: enough that less than 1 % of
/// the samples follow a check.
const CHECK_STRIDE: usize = 128;
/// Back-to-back operations dropped after a canary reading, until its delay no longer affects the partner.
const BACK_TO_BACK_REWARM: u64 = 8;
/// Where few samples are undisturbed after this share of a slice, the rest of it is spent on waiting for such.
const GIVE_UP_SHARE: f64 = 0.5;
/// Where the samples between two readings of the canaries take longer than this share of what a round may go on for, it does not:
/// they outlast what a neighbour leaves free.
const MAX_GROUP_SHARE: f64 = 0.25;

/// What is timed: it does a number of iterations, and returns the ticks of each metric.
type TimedOperation<'t, const K: usize> = dyn FnMut(Clock, u64) -> Result<[f64; K], ProbeError> + 't;

/// One round of one probe at one case, inside its own process.
pub struct Bench<'a> {
    request: &'a RoundRequest,
    clock: Clock,
    nanoseconds_per_tick: f64,
    metrics: usize,
    overhead: OverheadReading,
    canaries: CanaryReader,
    /// The threads that work with this one now.
    workers: Option<Arc<WorkerGroup>>,
    interference: InterferenceMonitor,
    readings: Vec<MetricReadings>,
    notes: Vec<String>,
    /// Nanoseconds by which the round may still go on beyond its time, and by which it has.
    remaining_extension: f64,
    used_extension: f64,
}

impl<'a> Bench<'a> {
    /// A bench for a request; `metrics` is how many metrics share the probe's time.
    pub(crate) fn new(request: &'a RoundRequest, clock: Clock, metrics: usize) -> Self {
        let setup = &request.setup;
        let nanoseconds_per_tick = 1e9 / setup.clock.hertz;
        Self {
            request,
            clock,
            nanoseconds_per_tick,
            metrics: metrics.max(1),
            overhead: measure_overhead(clock, nanoseconds_per_tick),
            canaries: CanaryReader::new(clock, nanoseconds_per_tick, setup.canaries),
            workers: None,
            interference: InterferenceMonitor::new(setup.placement.cpu, "/proc/stat", setup.throttle_file.as_deref()),
            readings: Vec::new(),
            notes: Vec::new(),
            remaining_extension: 0.0,
            used_extension: 0.0,
        }
    }

    /// Times `operation` in batches: it gets a number of iterations and does them all.
    ///
    /// The batch size is found by doubling. Canaries are read between batches, and a few untimed iterations re-warm
    /// what they evicted.
    pub fn time(
        &mut self,
        metric: &Metric,
        operation: impl FnMut(u64) -> Result<(), ProbeError>,
    ) -> Result<(), ProbeError> {
        self.time_work(metric, 0.0, operation)
    }

    /// Like `time`, for a rate: each iteration does `work` bytes (or other units).
    pub fn time_work(
        &mut self,
        metric: &Metric,
        work: f64,
        mut operation: impl FnMut(u64) -> Result<(), ProbeError>,
    ) -> Result<(), ProbeError> {
        let mut timed_operation = |clock: Clock, iterations: u64| {
            let start = clock.start();
            operation(iterations)?;
            Ok([clock.stop().wrapping_sub(start) as f64])
        };
        self.time_batches([metric], work, &mut timed_operation)
    }

    /// Times operations one by one if they cannot be batched. One operation may yield several metrics: it reads the
    /// clock itself and returns the ticks of each. All share the canaries of the first.
    pub fn time_each<const K: usize>(
        &mut self,
        metrics: [&Metric; K],
        operation: impl FnMut(Clock) -> Result<[u64; K], ProbeError>,
    ) -> Result<(), ProbeError> {
        self.time_each_work(metrics, 0.0, operation)
    }

    /// Like `time_each`, for operations with a partner task, which would notice a pause: they run back to back. Now and then the
    /// thread's counters and the canaries are read, and apply to all samples since.
    pub fn time_back_to_back<const K: usize>(
        &mut self,
        metrics: [&Metric; K],
        operation: impl FnMut(Clock) -> Result<[u64; K], ProbeError>,
    ) -> Result<(), ProbeError> {
        self.time_single_operations(metrics, 0.0, CHECK_STRIDE, operation)
    }

    /// Like [`Bench::time_each`], for rates: each operation does `work` bytes (or other units).
    pub fn time_each_work<const K: usize>(
        &mut self,
        metrics: [&Metric; K],
        work: f64,
        operation: impl FnMut(Clock) -> Result<[u64; K], ProbeError>,
    ) -> Result<(), ProbeError> {
        self.time_single_operations(metrics, work, 1, operation)
    }

    fn time_single_operations<const K: usize>(
        &mut self,
        metrics: [&Metric; K],
        work: f64,
        check_stride: usize,
        mut operation: impl FnMut(Clock) -> Result<[u64; K], ProbeError>,
    ) -> Result<(), ProbeError> {
        let slice = self.slice_share(K);
        let start = self.clock.deadline_nanoseconds();
        let gap = self.ticks(self.setup().idle_before_operation);
        let mut timed_operation = |clock: Clock, count: u64| {
            for _ in 1..count {
                operation(clock)?;
            }
            spin(clock, gap);
            Ok(operation(clock)?.map(|ticks| ticks as f64))
        };
        timed_operation(self.clock, 1)?;
        let mut total = (self.clock.deadline_nanoseconds() - start).max(1) as f64;
        // The first may be exceptionally slow; a second is worth its time unless it would use up the slice.
        if total < MAX_WARM_UP_SHARE * slice {
            let second = self.clock.deadline_nanoseconds();
            timed_operation(self.clock, 1)?;
            total = (self.clock.deadline_nanoseconds() - second).max(1) as f64;
        }
        let stride = (CANARY_PERIOD / total).ceil().max(1.0) as usize;
        let sampling = SamplingSpec {
            start,
            slice,
            iterations: 1,
            rewarm: if check_stride == 1 { u64::from(total < REWARM_THRESHOLD) } else { BACK_TO_BACK_REWARM },
            stride: stride.max(check_stride),
            max_samples: MAX_SAMPLES * stride.max(2),
            work,
            check_stride,
        };
        self.sample(metrics, &sampling, &mut timed_operation)
    }

    /// Times batches that yield several metrics at the same moment: a whole, a part of it timed alone, and their
    /// difference. The operation does the given number of iterations of each, reads the clock itself, and returns each
    /// metric's total ticks; a difference may be negative. The longest metric sets the batch size. All share the
    /// canaries of the first.
    pub fn time_parts<const K: usize>(
        &mut self,
        metrics: [&Metric; K],
        mut operation: impl FnMut(Clock, u64) -> Result<[f64; K], ProbeError>,
    ) -> Result<(), ProbeError> {
        self.time_batches(metrics, 0.0, &mut operation)
    }

    fn time_batches<const K: usize>(
        &mut self,
        metrics: [&Metric; K],
        work: f64,
        timed_operation: &mut TimedOperation<'_, K>,
    ) -> Result<(), ProbeError> {
        let slice = self.slice_share(K);
        let start = self.clock.deadline_nanoseconds();
        let iterations = self.find_batch_size(self.min_batch_time(slice), timed_operation)?;
        self.sample(metrics, &SamplingSpec::batched(start, slice, iterations, work), timed_operation)
    }

    /// Runs threads in step, one on each of these CPUs: `driver` gets a function that starts all of them together on a
    /// number of iterations and returns when the last has finished. The operation gets the index of its CPU.
    ///
    /// The calling thread does its own CPU's part: a second thread waiting there would compete with it. Canaries are
    /// read on all CPUs, one after the other (a few at a time of many), and the longest reading counts.
    pub fn run_workers(
        &mut self,
        cpus: &[u32],
        operation: impl Fn(usize, u64) + Sync,
        driver: impl FnOnce(&mut Self, &mut dyn FnMut(u64) -> Result<(), ProbeError>) -> Result<(), ProbeError>,
    ) -> Result<(), ProbeError> {
        let own_index = cpus.iter().position(|&cpu| cpu == self.cpu());
        let other_workers = || cpus.iter().enumerate().filter(|&(member, _)| Some(member) != own_index);
        let workers = Arc::new(WorkerGroup::new(other_workers().count()));
        std::thread::scope(|scope| {
            for (number, (member, &cpu)) in other_workers().enumerate() {
                let (workers, operation) = (&workers, &operation);
                let canaries = self.canaries;
                let work =
                    move || workers.run_worker(number, cpu, canaries, &|iterations| operation(member, iterations));
                // Those that were started wait for a round, until they are dismissed.
                ThreadBuilder::named("worker").start_in(scope, work).inspect_err(|_| workers.stop_workers())?;
            }
            self.workers = Some(Arc::clone(&workers));
            let outcome = driver(self, &mut |iterations| {
                workers.run_round(iterations, || {
                    if let Some(member) = own_index {
                        operation(member, iterations);
                    }
                })
            });
            self.workers = None;
            workers.stop_workers();
            outcome
        })
    }

    /// Records values already in the metric's unit: counters, or one figure of the whole round.
    pub fn record(&mut self, metric: &Metric, values: Vec<f64>) {
        self.push_reading(metric, Readings::Scalars(values));
    }

    /// Adds a note to the next recorded reading: a proof by counters, something degraded.
    pub fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// Adds a note to the last recorded reading: what is known only after timing, such as counters.
    pub fn note_last_reading(&mut self, text: impl Into<String>) {
        match self.readings.last_mut() {
            Some(reading) => reading.notes.push(text.into()),
            None => self.note(text),
        }
    }

    /// The clock, for what a probe must time itself.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Core cycles of a 64-bit multiply, as found before the run; in an emulator there is no such number.
    pub fn multiply_cycles(&self) -> Result<u32, ProbeError> {
        let cycles = &self.setup().clock.multiply_cycles;
        cycles.get().copied().ok_or_else(|| ProbeError::skip(cycles.source_or_reason()))
    }

    /// Ticks of the clock in nanoseconds.
    pub fn nanoseconds(&self, ticks: u64) -> f64 {
        ticks as f64 * self.nanoseconds_per_tick
    }

    /// A time in nanoseconds as ticks of the clock.
    pub fn ticks(&self, nanoseconds: u64) -> u64 {
        (nanoseconds as f64 / self.nanoseconds_per_tick) as u64
    }

    /// Ticks of the clock in a second.
    pub fn hertz(&self) -> f64 {
        self.setup().clock.hertz
    }

    /// Nanoseconds of timing in this round, for all metrics together.
    pub fn slice(&self) -> f64 {
        self.request.slice as f64
    }

    /// Nanoseconds after which this round is given up in any case.
    pub fn limit(&self) -> f64 {
        self.request.time_limit as f64
    }

    /// The CPU that this process is pinned to.
    pub fn cpu(&self) -> u32 {
        self.setup().placement.cpu
    }

    /// A second CPU, for the partner of a pair.
    pub fn partner_cpu(&self) -> Result<u32, ProbeError> {
        self.setup().placement.partner.ok_or_else(|| ProbeError::skip("needs two CPUs; this process may use one"))
    }

    /// CPUs for multi-CPU work; this process itself is pinned to one of them.
    pub fn allowed_cpus(&self) -> &[u32] {
        &self.setup().placement.allowed
    }

    /// Number of this round, from 0.
    pub fn round(&self) -> u32 {
        self.request.round
    }

    /// A seed for everything random in this round.
    pub fn seed(&self) -> u64 {
        self.request.seed
    }

    /// A directory for files; they are removed when the run ends.
    pub fn scratch(&self) -> &Path {
        Path::new(&self.setup().scratch)
    }

    /// A second directory for files, on a network file system, cleaned up in the same way.
    ///
    /// # Errors
    /// A reason to skip, if none was named.
    pub fn remote(&self) -> Result<&Path, ProbeError> {
        let directory = self.setup().remote_directory.as_deref().map(Path::new);
        directory.ok_or_else(|| ProbeError::skip("needs a directory mounted from another machine: give --remote DIR"))
    }

    /// An agent on another host to measure against.
    ///
    /// # Errors
    /// A reason to skip, if none was named.
    pub fn agent(&self) -> Result<&AgentEndpoint, ProbeError> {
        self.setup()
            .agent
            .as_ref()
            .ok_or_else(|| ProbeError::skip("needs `kelvin agent` on another host: give --peer HOST"))
    }

    /// Socket options of TCP streams.
    pub fn sockets(&self) -> &TcpOptions {
        &self.setup().sockets
    }

    /// Reserves this many bytes to write to files: all rounds of a run together write no more than the limit.
    ///
    /// # Errors
    /// A reason to skip, if it would exceed the limit.
    pub fn reserve_write(&self, bytes: u64) -> Result<(), ProbeError> {
        self.setup().reserve_write(bytes)
    }

    fn setup(&self) -> &'a Setup {
        &self.request.setup
    }

    /// Nanoseconds by which the round went on beyond its time.
    pub(crate) fn used_extension(&self) -> u64 {
        self.used_extension as u64
    }

    /// The readings so far.
    pub(crate) fn into_readings(self) -> Vec<MetricReadings> {
        self.readings
    }

    /// Nanoseconds for `count` of the probe's metrics, which share its slice equally.
    fn slice_share(&self, count: usize) -> f64 {
        self.slice() * count as f64 / self.metrics.max(count) as f64
    }

    /// Minimum time of a batch in a slice, in nanoseconds.
    fn min_batch_time(&self, slice: f64) -> f64 {
        MIN_BATCH_TIME.max(MIN_BATCH_CLOCK_PAIRS * self.overhead.clock_pair).max(slice / MAX_SAMPLES as f64)
    }

    /// Doubles the iterations until two batches in a row take at least `min_time` nanoseconds: a single one may have been
    /// interrupted.
    fn find_batch_size<const K: usize>(
        &self,
        min_time: f64,
        timed_operation: &mut TimedOperation<'_, K>,
    ) -> Result<u64, ProbeError> {
        let mut iterations = 1;
        let mut is_long_enough = |iterations| -> Result<bool, ProbeError> {
            let max_ticks = timed_operation(self.clock, iterations)?.into_iter().fold(0.0, f64::max);
            Ok(max_ticks * self.nanoseconds_per_tick >= min_time)
        };
        while !(is_long_enough(iterations)? && is_long_enough(iterations)?) {
            iterations = iterations.checked_mul(2).ok_or_else(|| {
                ProbeError::fail(
                    "the operation takes no time: 2^63 iterations are shorter than the minimum \
                                           batch",
                )
            })?;
        }
        Ok(iterations)
    }

    /// Takes samples until the slice is over, warm-up first; and beyond it, until there are undisturbed ones or no time is left for
    /// that.
    fn sample<const K: usize>(
        &mut self,
        metrics: [&Metric; K],
        sampling: &SamplingSpec,
        timed_operation: &mut TimedOperation<'_, K>,
    ) -> Result<(), ProbeError> {
        let metric = metrics[0].for_case(&self.request.case);
        let guards = metric.canaries;
        let extension = self.request.extension.filter(|_| CoreSteadyState::is_guarding(guards, metric.headline));
        let treatment = if metric.own_frequency { HeadlineSamples::CycleNormalised } else { metric.headline };
        let criterion = extension.map(|Extension { core, .. }| UndisturbedCriterion { core, treatment });
        let mut halfway = Some(GIVE_UP_SHARE * sampling.slice);
        let mut samples = SampleBuffer::default();
        let elapsed = loop {
            let elapsed = (self.clock.deadline_nanoseconds() - sampling.start) as f64;
            if samples.is_enough(sampling, elapsed) {
                break elapsed;
            }
            if samples.tags.len().is_multiple_of(sampling.stride) {
                self.read_canaries(guards, &mut samples.canaries)?;
                if samples.has_min_samples() && halfway.take_if(|halfway| elapsed >= *halfway).is_some() {
                    // What is found is known by then: what is left is better spent on waiting.
                    let is_disturbed = |criterion| {
                        samples.count_undisturbed(criterion, sampling.stride) < samples.undisturbed_goal(1.0)
                    };
                    if criterion.as_ref().is_some_and(is_disturbed) {
                        samples.drop_last_canaries();
                        break elapsed;
                    }
                }
                self.rewarm(guards, sampling, timed_operation)?;
            }
            let state = samples.warm_up.tags();
            self.take_sample(&mut samples, state, sampling, timed_operation)?;
            samples.update_warm_up(elapsed >= MAX_WARM_UP_SHARE * sampling.slice);
        };
        self.tag_remaining(&mut samples);
        self.read_canaries(guards, &mut samples.canaries)?;
        if let Some((extension, criterion)) = extension.zip(criterion) {
            let remaining = (sampling.slice - elapsed).max(0.0);
            self.remaining_extension += extension.max_nanoseconds as f64 * self.slice_share(K) / self.slice();
            let max_group_time = MAX_GROUP_SHARE * (remaining + extension.max_nanoseconds as f64);
            let extension_time = self.extend(
                (guards, &criterion),
                (remaining + self.remaining_extension, max_group_time),
                &mut samples,
                (sampling, timed_operation),
            )?;
            let overrun = (extension_time - remaining).max(0.0);
            self.remaining_extension -= overrun;
            self.used_extension += overrun;
        }
        let mut counted = self.count_operations(sampling, &samples, timed_operation)?;
        for (metric, batches) in metrics.into_iter().zip(samples.into_batches(sampling)) {
            self.push_reading(metric, Readings::Batches(batches));
            // Where an operation yields several metrics, the first is of all of it.
            if let (Some(reading), Some(counted)) = (self.readings.last_mut(), counted.take()) {
                reading.counted = Some(counted);
            }
        }
        Ok(())
    }

    /// Counts what the processor does for a few samples more, which are no samples.
    fn count_operations<const K: usize>(
        &self,
        sampling: &SamplingSpec,
        samples: &SampleBuffer<K>,
        timed_operation: &mut TimedOperation<'_, K>,
    ) -> Result<Option<CountedOperations>, ProbeError> {
        // The first use in a second makes the kernel wait for all CPUs: one round has what all would count.
        if self.request.round > 0 || matches!(self.clock, Clock::Scripted(_)) {
            return Ok(None);
        }
        let work = (sampling.iterations, samples.last_nanoseconds());
        count_operations(self.clock, work, |iterations| timed_operation(self.clock, iterations).map(drop))
    }

    /// Goes on until enough samples are undisturbed, for at most this many nanoseconds, where those between two readings of the canaries
    /// take no longer than is worth it; for how long it did. While the core is disturbed the work goes on all the same, so that its
    /// caches and its partner stay as they are, but is forgotten.
    fn extend<const K: usize>(
        &mut self,
        (guards, criterion): (Guards, &UndisturbedCriterion),
        (max_extension, max_group_time): (f64, f64),
        samples: &mut SampleBuffer<K>,
        (sampling, timed_operation): (&SamplingSpec, &mut TimedOperation<'_, K>),
    ) -> Result<f64, ProbeError> {
        let stride = sampling.stride;
        let start = self.clock.deadline_nanoseconds();
        let group = (start - sampling.start) as f64 / samples.tags.len() as f64 * stride as f64;
        if group > max_group_time {
            return Ok(0.0);
        }
        let goal = samples.undisturbed_goal(sampling.slice / (start - sampling.start) as f64);
        let mut elapsed = 0.0;
        while samples.count_undisturbed(criterion, stride) < goal && elapsed + group <= max_extension {
            if !samples.tags.len().is_multiple_of(stride) {
                // These samples follow the last reading but one.
                samples.drop_last_canaries();
            }
            self.rewarm(guards, sampling, timed_operation)?;
            loop {
                self.take_sample(samples, SampleTags::AWAITED, sampling, timed_operation)?;
                if samples.tags.len().is_multiple_of(stride) {
                    break;
                }
            }
            self.tag_if_due(samples, 1);
            self.read_canaries(guards, &mut samples.canaries)?;
            samples.drop_disturbed_group(criterion, stride);
            elapsed = (self.clock.deadline_nanoseconds() - start) as f64;
        }
        self.tag_remaining(samples);
        Ok(elapsed)
    }

    /// Warms what a reading of the canaries evicted; where nothing was read, nothing was.
    fn rewarm<const K: usize>(
        &self,
        guards: Guards,
        sampling: &SamplingSpec,
        timed_operation: &mut TimedOperation<'_, K>,
    ) -> Result<(), ProbeError> {
        if sampling.rewarm > 0 && guards != Guards::NONE {
            timed_operation(self.clock, sampling.rewarm)?;
        }
        Ok(())
    }

    /// Takes one sample of each metric.
    fn take_sample<const K: usize>(
        &mut self,
        samples: &mut SampleBuffer<K>,
        state: SampleTags,
        sampling: &SamplingSpec,
        timed_operation: &mut TimedOperation<'_, K>,
    ) -> Result<(), ProbeError> {
        if samples.thread_checked == samples.tags.len() {
            self.interference.reset();
        }
        let ticks = timed_operation(self.clock, sampling.iterations)?;
        samples.add(ticks.map(|ticks| ticks * self.nanoseconds_per_tick), state);
        self.tag_if_due(samples, sampling.check_stride);
        Ok(())
    }

    /// Tags the samples since the last check, if that was this many samples ago.
    fn tag_if_due<const K: usize>(&mut self, samples: &mut SampleBuffer<K>, interval: usize) {
        if samples.tags.len() - samples.thread_checked < interval {
            return;
        }
        samples.tag_since_thread_check(self.interference.take_thread_tags());
        if self.interference.is_file_check_due() {
            samples.tag_since_file_check(self.interference.take_file_tags());
        }
    }

    /// Tags the remaining samples.
    fn tag_remaining<const K: usize>(&mut self, samples: &mut SampleBuffer<K>) {
        if samples.thread_checked < samples.tags.len() {
            samples.tag_since_thread_check(self.interference.take_thread_tags());
        }
        samples.tag_since_file_check(self.interference.take_file_tags());
    }

    /// Reads the canaries on every working CPU.
    fn read_canaries(&mut self, canaries: Guards, columns: &mut BTreeMap<Canary, Vec<f32>>) -> Result<(), ProbeError> {
        match &self.workers {
            Some(workers) => workers.read_canaries(self.canaries, canaries, columns)?,
            None => self.canaries.read(canaries, columns),
        }
        Ok(())
    }

    fn push_reading(&mut self, metric: &Metric, readings: Readings) {
        let notes = std::mem::take(&mut self.notes);
        self.readings.push(MetricReadings {
            metric: metric.id,
            readings,
            overhead: self.overhead,
            notes,
            counted: None,
        });
    }
}

/// Spins for this many ticks; for none it does nothing at all, since it stands before every operation that is timed by itself.
#[inline(always)]
fn spin(clock: Clock, ticks: u64) {
    if ticks == 0 {
        return;
    }
    let start = clock.start();
    while clock.stop().wrapping_sub(start) < ticks {
        kernels::counted_loop(1);
    }
}

/// The cost of an empty clock pair and of a loop iteration, in this process.
fn measure_overhead(clock: Clock, nanoseconds_per_tick: f64) -> OverheadReading {
    const OVERHEAD_PAIRS: usize = 501;
    const OVERHEAD_LOOP_ITERATIONS: u64 = 8192;
    let mut pairs = vec![0.0; OVERHEAD_PAIRS];
    for pair in &mut pairs {
        let start = clock.start();
        *pair = clock.stop().wrapping_sub(start) as f64;
    }
    let clock_pair = median(&pairs);
    let loops: Vec<f64> = (0..15)
        .map(|_| {
            let start = clock.start();
            kernels::counted_loop(OVERHEAD_LOOP_ITERATIONS);
            (clock.stop().wrapping_sub(start) as f64 - clock_pair) / OVERHEAD_LOOP_ITERATIONS as f64
        })
        .collect();
    OverheadReading {
        clock_pair: clock_pair * nanoseconds_per_tick,
        loop_iteration: (median(&loops) * nanoseconds_per_tick).max(0.0),
    }
}

#[cfg(test)]
mod tests;
