//! One thread's requests: as many in flight as its depth, each when it is due, and what counts of them.

use std::io::ErrorKind;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kelvin_stats::Histogram;
use kelvin_sys::clock::monotonic;
use kelvin_sys::mapping::{advise_access, drop_cached};
use kelvin_sys::stop_signals;
use kelvin_sys::syscall_loops::set_timer_slack;
use kelvin_sys::uring::IoDirection;
use kelvin_sys::usage::{RunQueueWait, UsageScope, read_usage};

use super::backend::Backend;
use super::figures::{JobResult, Verification};
use super::job_files::{self, JobFiles};
use super::request_mix::{MixedRequest, RequestMix};
use super::schedule::Schedule;
use super::time_slices::TimeSlices;
use super::verified_block::{self, BlockIdentity};
use super::verify_pass::WrittenBlocks;
use super::{ByDirection, Job, Stage};
use crate::access::Access;
use crate::block_requests::BlockRequest;
use crate::cache;
use crate::engine::uring::submit_batch;
use crate::random_data::RandomData;
use crate::target::Target;
use crate::{Error, Result};

/// Longest sleep until it is looked whether the job is to end.
const MAX_SLEEP: Duration = Duration::from_millis(50);

/// Runs a job to its end; `None` if it never began, since another one could not.
pub(super) fn run(job: &Job, files: &JobFiles, stage: &Stage) -> Result<Option<JobResult>> {
    let opened = OpenJob::open(job, files);
    // A job that cannot work must come to the barrier too, or the others would wait for ever.
    if !stage.barrier.wait() {
        return Ok(None);
    }
    let opened = opened.map_err(|error| error.with_path(&job.file))?;
    let target = opened.target;
    let (mut result, written) = opened.work(stage).map_err(|error| error.with_path(&job.file))?;
    if let Some(written) = written.filter(|_| stop_signals::stop_signal().is_none()) {
        result.verification = match written.verify(job, target) {
            Err(Error::Interrupted(_)) => None,
            outcome => Some(outcome.map_err(|error| error.with_path(&job.file))?),
        };
    }
    Ok(Some(result))
}

/// A job whose file is open.
struct OpenJob<'a> {
    job: &'a Job,
    target: &'a Target,
    backend: Backend,
    requests: RequestMix,
    written: Option<WrittenBlocks>,
    cached_share: Option<f64>,
}

impl<'a> OpenJob<'a> {
    fn open(job: &'a Job, files: &'a JobFiles) -> Result<Self> {
        let (target, region) = (files.target(job)?, files.region(job)?);
        job_files::check_alignment(job, target)?;
        let file = job_files::open(job, target)?;
        let mut cached_share = None;
        if job.access == Access::Buffered {
            let failed = |error| Error::call("advise on", target.path(), error);
            advise_access(&file, !job.order.is_random()).map_err(failed)?;
            if job.invalidate {
                // Dirty pages cannot be dropped.
                file.sync_all().and_then(|()| drop_cached(&file, target.bytes() as usize)).map_err(failed)?;
            }
            cached_share = cache::residency(target)?.share();
        }
        let written = (job.verify && job.mix.writes())
            .then(|| WrittenBlocks::new(region.clone(), job.blocks.write.largest()))
            .transpose()?;
        let backend = Backend::open(job.engine, file, (job.depth, job.largest_block()))?;
        let requests = RequestMix::new(job, region);
        Ok(Self { job, target, backend, requests, written, cached_share })
    }

    /// Makes all requests: the result, and what was written where, if that is to be verified.
    fn work(self, stage: &Stage) -> Result<(JobResult, Option<WrittenBlocks>)> {
        let start = *stage.start.get_or_init(monotonic);
        if self.job.is_paced() {
            // Else the kernel may wake it 50 us after a request is due. Where that is refused, latencies from when they are due show it.
            let _ = set_timer_slack(1);
        }
        let mut thread = JobThread::new(self, stage, start);
        thread.run()?;
        thread.finish()
    }
}

/// What is asked of the file.
#[derive(Clone, Copy, Debug)]
enum Operation {
    Transfer(MixedRequest),
    Flush,
}

/// A request in flight.
#[derive(Clone, Copy, Debug)]
struct InFlight {
    operation: Operation,
    due: u64,
    start: u64,
    moved: usize,
}

/// The next request, which waits until it is due.
#[derive(Clone, Copy, Debug)]
struct Upcoming {
    request: MixedRequest,
    due: Option<u64>,
}

struct JobThread<'a> {
    open: OpenJob<'a>,
    stage: &'a Stage,
    schedule: Option<Schedule>,
    free: Vec<usize>,
    in_flight: Vec<Option<InFlight>>,
    upcoming: Option<Upcoming>,
    unflushed: u64,
    is_stopped: bool,
    recorder: Recorder,
}

impl<'a> JobThread<'a> {
    fn new(open: OpenJob<'a>, stage: &'a Stage, start: u64) -> Self {
        let (job, depth) = (open.job, open.job.depth as usize);
        Self {
            schedule: job.is_paced().then(|| Schedule::new(start, job.rate)),
            recorder: Recorder::new(job, start),
            open,
            stage,
            free: (0..depth).rev().collect(),
            in_flight: vec![None; depth],
            upcoming: None,
            unflushed: 0,
            is_stopped: false,
        }
    }

    fn run(&mut self) -> Result<()> {
        loop {
            let next_due = self.request_due()?;
            if self.free.len() == self.in_flight.len() {
                let Some(due) = next_due else { return Ok(()) };
                self.sleep_until(due);
                continue;
            }
            if let Some((slot, moved)) = self.open.backend.next_completion() {
                self.complete(slot, moved)?;
                continue;
            }
            let limit = next_due.map(|due| Duration::from_nanos(due.saturating_sub(monotonic())).min(MAX_SLEEP));
            self.open.backend.wait(limit)?;
        }
    }

    /// Makes requests while there are free buffers; when the next one is due, if it is not yet.
    fn request_due(&mut self) -> Result<Option<u64>> {
        let mut next_due = None;
        while !self.is_stopped
            && let Some(&slot) = self.free.last()
        {
            if let Some((count, flush)) = self.open.job.flush_every
                && self.unflushed >= count
            {
                self.unflushed = 0;
                self.free.pop();
                let start = monotonic();
                self.in_flight[slot] = Some(InFlight { operation: Operation::Flush, due: start, start, moved: 0 });
                self.open.backend.request_flush(slot, flush);
                continue;
            }
            let Some(upcoming) = self.next_request() else { break };
            let now = monotonic();
            if let Some(due) = upcoming.due.filter(|&due| due > now) {
                self.upcoming = Some(upcoming);
                next_due = Some(due);
                break;
            }
            if self.is_block_in_flight(upcoming.request.block) {
                self.upcoming = Some(upcoming);
                break;
            }
            self.free.pop();
            self.request(slot, upcoming, now);
            self.open.backend.submit(submit_batch(self.in_flight.len()))?;
        }
        Ok(next_due)
    }

    fn next_request(&mut self) -> Option<Upcoming> {
        self.upcoming.take().or_else(|| {
            let request = self.open.requests.next()?;
            let due = self.schedule.as_mut().map(|schedule| schedule.next_due(request.direction, request.block.bytes));
            Some(Upcoming { request, due })
        })
    }

    /// Whether a block that is to be verified has a request in flight: which of two came last would not be known.
    fn is_block_in_flight(&self, block: BlockRequest) -> bool {
        let is_same = |flight: &InFlight| matches!(flight.operation, Operation::Transfer(other) if other.block.offset == block.offset);
        self.open.written.is_some() && self.in_flight.iter().flatten().any(is_same)
    }

    fn request(&mut self, slot: usize, upcoming: Upcoming, now: u64) {
        let MixedRequest { direction, block } = upcoming.request;
        let mut start = now;
        if direction == IoDirection::Write {
            let seed = self.open.job.seed;
            let buffer = &mut self.open.backend.buffer_mut(slot)[..block.bytes];
            match &mut self.open.written {
                Some(written) => {
                    let pass = written.next_pass(block.offset);
                    verified_block::fill(seed, BlockIdentity { offset: block.offset, pass }, buffer);
                }
                None => RandomData::fill_at(seed, block.offset, buffer),
            }
            // Making its content is no part of its latency.
            start = monotonic();
        }
        let operation = Operation::Transfer(upcoming.request);
        self.in_flight[slot] = Some(InFlight { operation, due: upcoming.due.unwrap_or(start), start, moved: 0 });
        self.open.backend.request(direction, slot, block.offset, 0..block.bytes);
    }

    fn complete(&mut self, slot: usize, moved: std::io::Result<usize>) -> Result<()> {
        let now = monotonic();
        let Some(mut flight) = self.in_flight[slot].take() else { return Ok(()) };
        match flight.operation {
            Operation::Flush => {
                moved.map_err(|error| Error::call("flush", self.open.target.path(), error))?;
                self.recorder.record_flush(now, now - flight.start);
            }
            Operation::Transfer(request) => {
                if !self.is_complete(&mut flight, request, moved)? {
                    let part = flight.moved..request.block.bytes;
                    self.in_flight[slot] = Some(flight);
                    self.open.backend.request(request.direction, slot, request.block.offset + part.start as u64, part);
                    return Ok(());
                }
                self.recorder.record(now, request, flight);
                self.check_block(slot, request);
                self.unflushed += u64::from(request.direction == IoDirection::Write);
            }
        }
        self.free.push(slot);
        self.look_for_end(now);
        Ok(())
    }

    /// Counts what was moved; whether that was all.
    fn is_complete(&self, flight: &mut InFlight, request: MixedRequest, moved: std::io::Result<usize>) -> Result<bool> {
        let MixedRequest { direction, block } = request;
        let part = BlockRequest { offset: block.offset + flight.moved as u64, bytes: block.bytes - flight.moved };
        match moved {
            Ok(0) => return Err(self.open.target.zero_bytes_error(direction, part)),
            Ok(count) => flight.moved += count,
            Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
            Err(error) => return Err(self.open.target.io_error(direction, part, error)),
        }
        Ok(flight.moved >= block.bytes)
    }

    /// Checks a block that a job reads and does not write.
    fn check_block(&mut self, slot: usize, MixedRequest { block, .. }: MixedRequest) {
        if self.open.job.verify && !self.open.job.mix.writes() {
            let outcome = verified_block::check(block.offset, None, &self.open.backend.buffer_mut(slot)[..block.bytes]);
            self.recorder.verification.get_or_insert_default().record(block.offset, outcome);
        }
    }

    fn look_for_end(&mut self, now: u64) {
        self.is_stopped |= now >= self.recorder.deadline
            || self.stage.is_cancelled.load(Ordering::Relaxed)
            || stop_signals::stop_signal().is_some();
    }

    fn sleep_until(&mut self, due: u64) {
        let now = monotonic();
        let until = due.min(self.recorder.deadline);
        std::thread::sleep(Duration::from_nanos(until.saturating_sub(now)).min(MAX_SLEEP));
        self.look_for_end(monotonic());
    }

    /// The flush at the end, and the result.
    fn finish(self) -> Result<(JobResult, Option<WrittenBlocks>)> {
        let Self { open, mut recorder, .. } = self;
        let OpenJob { job, target, backend, written, cached_share, .. } = open;
        if job.end_fsync && job.mix.writes() {
            let start = monotonic();
            backend.file().sync_all().map_err(|error| Error::call("flush", target.path(), error))?;
            recorder.end_flush = Some(monotonic() - start);
        }
        // What a file system reports only when a file is closed, a duplicate reports too.
        backend
            .file()
            .try_clone()
            .and_then(kelvin_sys::fs::close)
            .map_err(|error| Error::call("close", target.path(), error))?;
        Ok((JobResult { cached_share, ..recorder.finish(monotonic()) }, written))
    }
}

/// Counts what is done after the ramp and before the end.
struct Recorder {
    /// When counting begins.
    begin: u64,
    /// When the job ends, if it has a time.
    deadline: u64,
    directions: ByDirection<super::DirectionResult>,
    is_paced: bool,
    slices: TimeSlices,
    flushes: Histogram,
    end_flush: Option<u64>,
    /// Nanoseconds of all requests in flight together.
    in_flight_time: u64,
    verification: Option<Verification>,
    /// CPU time and waiting for a CPU when counting began.
    usage: Option<(u64, Option<u64>)>,
    run_queue: RunQueueWait,
    last: u64,
}

impl Recorder {
    fn new(job: &Job, start: u64) -> Self {
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let begin = start.saturating_add(nanoseconds(job.ramp));
        let mut recorder = Self {
            begin,
            deadline: job.end.runtime.map_or(u64::MAX, |time| begin.saturating_add(nanoseconds(time))),
            directions: ByDirection::default(),
            is_paced: job.is_paced(),
            slices: TimeSlices::new(start),
            flushes: Histogram::new(),
            end_flush: None,
            in_flight_time: 0,
            verification: None,
            usage: None,
            run_queue: RunQueueWait::of_thread(),
            last: begin,
        };
        if job.ramp.is_zero() {
            recorder.usage = Some(recorder.used());
        }
        recorder
    }

    fn used(&mut self) -> (u64, Option<u64>) {
        (read_usage(UsageScope::Thread).cpu(), self.run_queue.nanoseconds())
    }

    fn counts(&self, now: u64) -> bool {
        (self.begin..=self.deadline).contains(&now)
    }

    #[inline]
    fn record(&mut self, now: u64, request: MixedRequest, flight: InFlight) {
        if !self.counts(now) {
            return;
        }
        if self.usage.is_none() {
            self.usage = Some(self.used());
        }
        let result = self.directions.of_mut(request.direction);
        result.tally.bytes += request.block.bytes as u64;
        result.tally.requests += 1;
        let latency = now - flight.start;
        result.latencies.record(latency);
        if self.is_paced {
            result.responses.get_or_insert_with(Histogram::new).record(now.saturating_sub(flight.due));
        }
        self.slices.record(now, request.direction, request.block.bytes, latency);
        // What began before is in flight since then.
        self.in_flight_time += now - flight.start.max(self.begin);
        self.last = now;
    }

    fn record_flush(&mut self, now: u64, nanoseconds: u64) {
        if self.counts(now) {
            self.flushes.record(nanoseconds);
            self.last = now;
        }
    }

    /// The time that counted: to the end of the job's time, or to its last request or flush.
    fn window(&self, end: u64) -> Range<u64> {
        let last = if self.end_flush.is_some() { end } else { self.last };
        let end = if end >= self.deadline && self.end_flush.is_none() { self.deadline } else { last };
        self.begin..end.max(self.begin)
    }

    fn finish(mut self, end: u64) -> JobResult {
        let (cpu, run_queue) = self.used();
        let (first_cpu, first_run_queue) = self.usage.unwrap_or((cpu, run_queue));
        let window = self.window(end);
        JobResult {
            threads: 1,
            thread_time: window.end - window.start,
            slices: self.slices,
            flushes: self.flushes,
            end_flush: self.end_flush,
            cpu_time: cpu.saturating_sub(first_cpu),
            run_queue: run_queue.zip(first_run_queue).map(|(now, first)| now.saturating_sub(first)),
            // By Little's law: the mean over the time, in parts of which there may be none.
            achieved_depth: self.in_flight_time as f64 / (window.end - window.start).max(1) as f64,
            verification: self.verification,
            cached_share: None,
            directions: self.directions,
            window,
        }
    }
}
