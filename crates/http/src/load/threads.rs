//! A load on one or several threads: each has its part of the schedule, an epoll, connections and histograms of its own.

use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use kelvin_core::load::SecondResult;
use kelvin_sys::thread_spawn::ThreadBuilder;

use crate::load::engine::{PreparedThread, SecondObserver, TICK_NANOSECONDS, ThreadResult};
use crate::load::error::{Error, Result};
use crate::load::load_run::LoadRun;
use crate::load::load_share::LoadShare;
use crate::load::measured_load::MeasuredLoad;
use crate::load::merged_result::merged_result;
use crate::load::schedule::{ClosedLoop, LimitedSchedule, OpenLoop, arrival_times};
use crate::load::series::{SecondSeries, SecondStats};
use crate::load::setup::{Demand, LoadSetup};
use crate::load::stages::{StagedUsers, stage_ends, staged_arrivals};
use crate::load::start_time::LoadStart;
use crate::load::transport::ServerEndpoint;

/// Nanoseconds from when the threads are told to begin until they do, so that none is woken up too late for its first request.
const START_NANOSECONDS: u64 = 1_000_000;

/// Measures a load. `show` gets the seconds that are over, ten times a second. A signal that [`kelvin_sys::stop_signals`] watches
/// for ends it early.
///
/// # Errors
/// Failures of the generator's own calls; what fails of single requests is counted.
pub fn run_load(
    setup: &LoadSetup,
    peer: &ServerEndpoint,
    show: &mut dyn FnMut(&[SecondResult]),
) -> Result<MeasuredLoad> {
    let run = LoadRun::new(setup, peer)?;
    let mut series = SecondSeries::new(setup.threads.count());
    let (start, results) = match setup.threads.count() {
        1 => {
            setup.threads.pin(0)?;
            let thread = PreparedThread::new(&run, setup.share)?;
            let mut observer = |seconds| {
                series.add(0, seconds);
                show(series.complete());
            };
            let start = setup.start.wait(0);
            (start, vec![run_thread(setup, thread, start.monotonic, &mut observer)?])
        }
        _ => run_threads(&run, &mut |thread, seconds| {
            series.add(thread, seconds);
            show(series.complete());
        })?,
    };
    Ok(merged_result(setup, start, results, series.into_complete()))
}

/// Runs one thread's part of a load on the calling thread.
fn run_thread(
    setup: &LoadSetup,
    thread: PreparedThread<'_>,
    start: u64,
    observer: &mut SecondObserver<'_>,
) -> Result<ThreadResult> {
    let (share, seed) = (thread.share, setup.seed);
    match &setup.demand {
        &Demand::Users { users, think } => {
            let schedule = ClosedLoop::new(users, think, start, seed).for_share(share);
            let own_requests = setup.requests.map(|requests| share.count_of(requests));
            thread.send_and_measure(LimitedSchedule::new(schedule, own_requests), start, observer)
        }
        &Demand::Rate { rate, arrivals, .. } => {
            let requests = setup.requests.map_or(usize::MAX, |requests| requests as usize);
            let times = share.select(arrival_times(rate, arrivals, seed).take(requests));
            thread.send_and_measure(OpenLoop::new(times, start), start, observer)
        }
        Demand::UserStages { stages, think } => {
            let users = ClosedLoop::new(setup.demand.max_connections(), *think, start, seed).for_share(share);
            let ends = stage_ends(start, stages.iter().map(|stage| stage.duration));
            let own_stages = ends.zip(stages.iter().map(|stage| share.count_of(stage.level)));
            thread.send_and_measure(StagedUsers::new(users, own_stages.collect()), start, observer)
        }
        Demand::RateStages { stages, arrivals, .. } => {
            let times = share.select(staged_arrivals(stages, *arrivals, seed));
            thread.send_and_measure(OpenLoop::new(times, start), start, observer)
        }
        Demand::Log { times, .. } => {
            let times = share.select(times.iter().copied());
            thread.send_and_measure(OpenLoop::new(times, start), start, observer)
        }
    }
}

/// The seconds that are over, with the number of the thread that reports them.
type ThreadSeconds = (u32, Vec<SecondStats>);

/// The number of a thread, and the channels between it and the one that starts it.
struct ThreadChannels {
    number: u32,
    /// Gets a message when the thread is prepared.
    prepared: Sender<()>,
    /// Brings the start time, in nanoseconds of CLOCK_MONOTONIC; closed if not all threads are prepared.
    start: Receiver<u64>,
    reports: Sender<ThreadSeconds>,
}

/// Runs all threads, while the calling one takes the seconds that they report.
fn run_threads(
    run: &LoadRun<'_>,
    observer: &mut dyn FnMut(u32, Vec<SecondStats>),
) -> Result<(LoadStart, Vec<ThreadResult>)> {
    std::thread::scope(|scope| {
        let ((prepared, prepared_threads), (reports, received)) = (channel(), channel());
        let (mut starts, mut threads) = (Vec::new(), Vec::new());
        for (number, share) in (0..).zip(run.setup.share.divide(run.setup.threads.count())) {
            let (start_sender, start) = channel();
            starts.push(start_sender);
            let channels = ThreadChannels { number, prepared: prepared.clone(), start, reports: reports.clone() };
            let work = move || run_when_started(run, share, channels);
            threads.push(ThreadBuilder::named("load").start_in(scope, work).map_err(Error::Thread)?);
        }
        drop((prepared, reports));
        let is_prepared = prepared_threads.iter().count() == threads.len();
        let load_start = if is_prepared { run.setup.start.wait(START_NANOSECONDS) } else { LoadStart::default() };
        if is_prepared {
            for start in &starts {
                // Each waits for it.
                let _ = start.send(load_start.monotonic);
            }
        }
        drop(starts);
        observe(&received, observer);
        let results = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        Ok((load_start, results.filter_map(Result::transpose).collect::<Result<_>>()?))
    })
}

/// Prepares one thread's part, and runs it from the time that it is given; not at all if another thread could not be prepared.
fn run_when_started(run: &LoadRun<'_>, share: LoadShare, channels: ThreadChannels) -> Result<Option<ThreadResult>> {
    let ThreadChannels { number, prepared, start, reports } = channels;
    run.setup.threads.pin(number)?;
    let thread = PreparedThread::new(run, share)?;
    // The other end of either channel lives until this thread is over.
    let _ = prepared.send(());
    drop(prepared);
    let Ok(start) = start.recv() else { return Ok(None) };
    let mut observer = |seconds: Vec<SecondStats>| {
        if !seconds.is_empty() {
            let _ = reports.send((number, seconds));
        }
    };
    run_thread(run.setup, thread, start, &mut observer).map(Some)
}

/// Takes what threads report until all are over. Ten times a second it takes nothing from the first one.
fn observe(reports: &Receiver<ThreadSeconds>, observer: &mut dyn FnMut(u32, Vec<SecondStats>)) {
    loop {
        match reports.recv_timeout(Duration::from_nanos(TICK_NANOSECONDS)) {
            Ok((thread, seconds)) => observer(thread, seconds),
            Err(RecvTimeoutError::Timeout) => observer(0, Vec::new()),
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}
