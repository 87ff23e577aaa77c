//! The thread of rank 0 that ends the job when a rank is lost: it names the rank, after what was measured has been written.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kelvin_cluster::event::Event;
use kelvin_cluster::heartbeat::{Heartbeats, Progress};
use kelvin_cluster::results::ResultsFile;
use kelvin_sys::lock;
use kelvin_sys::process::exit_now;
use kelvin_sys::stop_signals::stop_signal;
use kelvin_sys::thread_spawn::ThreadBuilder;
use serde::Serialize;

use crate::{EXIT_MISTAKE, notice};

/// How often deadlines and signals are looked at.
const TICK: Duration = Duration::from_millis(100);
/// A launcher that notices a dead rank ends the others by SIGTERM. The connection of that rank is closed by then, or soon.
const SIGNAL_PATIENCE: Duration = Duration::from_millis(500);
/// Exit status of a job that failed.
const EXIT_FAILED: u8 = 1;

/// What the thread and the job share.
#[derive(Debug)]
struct Shared {
    file: ResultsFile,
    /// The names of ranks, in order.
    labels: Vec<String>,
    step: Option<Step>,
    is_over: bool,
    /// Whether the failure has been reported.
    has_failed: bool,
    /// The status with which the job ends early.
    abort_status: Option<u8>,
    /// Whether the thread runs.
    is_watched: bool,
}

/// What ranks do at the moment.
#[derive(Debug)]
struct Step {
    limit: StepLimit,
    /// When each rank that has not done its task is late.
    deadlines: BTreeMap<usize, Instant>,
}

/// When a rank with a task is late.
#[derive(Clone, Copy, Debug)]
pub enum StepLimit {
    /// After this time: the task has a planned one.
    Total(Duration),
    /// After this time without progress: nobody knows how long the task takes.
    WithoutProgress(Duration),
}

impl StepLimit {
    fn time(self) -> Duration {
        match self {
            Self::Total(time) | Self::WithoutProgress(time) => time,
        }
    }

    fn reason(self) -> String {
        match self {
            Self::Total(_) => "not finished its task in time".into(),
            Self::WithoutProgress(time) => format!("gone no further with its task for {} s", time.as_secs()),
        }
    }
}

/// The job's side of it.
#[derive(Clone, Debug)]
pub struct Job {
    shared: Arc<Mutex<Shared>>,
    /// What rank 0 does itself.
    progress: Progress,
}

impl Job {
    /// A job whose results go to this file.
    pub fn new(file: ResultsFile, labels: Vec<String>) -> Self {
        let shared = Shared {
            file,
            labels,
            step: None,
            is_over: false,
            has_failed: false,
            abort_status: None,
            is_watched: false,
        };
        Self { shared: Arc::new(Mutex::new(shared)), progress: Progress::default() }
    }

    /// Starts the thread.
    ///
    /// # Errors
    /// Those of starting a thread.
    pub fn watch(&self, heartbeats: Heartbeats) -> std::io::Result<JoinHandle<()>> {
        let job = self.clone();
        lock(&self.shared).is_watched = true;
        ThreadBuilder::named("heartbeats").start(move || job.run(heartbeats))
    }

    /// Writes an event to the file of results.
    pub fn record(&self, event: &impl Serialize) {
        let result = lock(&self.shared).file.append(event);
        if let Err(error) = result {
            let path = lock(&self.shared).file.path().display().to_string();
            notice(format_args!("{path}: {error}"));
            exit_now(EXIT_FAILED);
        }
    }

    /// From now on these ranks have a task, which has a limit.
    pub fn begin_step(&self, ranks: impl IntoIterator<Item = usize>, limit: StepLimit) {
        let deadline = Instant::now() + limit.time();
        let step = Step { limit, deadlines: ranks.into_iter().map(|rank| (rank, deadline)).collect() };
        lock(&self.shared).step = Some(step);
    }

    /// A rank has done its task. Returns whether all have.
    pub fn finish_rank(&self, rank: usize) -> bool {
        let mut shared = lock(&self.shared);
        let Some(step) = &mut shared.step else { return true };
        step.deadlines.remove(&rank);
        let is_done = step.deadlines.is_empty();
        if is_done {
            shared.step = None;
        }
        is_done
    }

    /// What rank 0 counts while it does a task.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// The names of ranks are known better.
    pub fn set_labels(&self, labels: &[String]) {
        lock(&self.shared).labels = labels.to_vec();
    }

    /// The job is complete: ranks may end.
    pub fn end(&self) {
        lock(&self.shared).is_over = true;
    }

    /// Ends the job, and names what is to blame. After a signal that is the signal, by which the rest fails.
    pub fn abort(&self, rank: Option<usize>, reason: &str) -> ! {
        let is_watched = lock(&self.shared).is_watched;
        if !is_watched || stop_signal().is_none() {
            self.report_failure(rank, reason);
            lock(&self.shared).abort_status = Some(EXIT_FAILED);
        }
        self.end_process(EXIT_FAILED)
    }

    /// Ends the job before it has measured anything: it was asked for what cannot be done.
    pub fn refuse(&self, rank: Option<usize>, reason: &str) -> ! {
        self.record_failure(rank, reason).iter().for_each(notice);
        lock(&self.shared).abort_status = Some(EXIT_MISTAKE);
        self.end_process(EXIT_MISTAKE)
    }

    fn end_process(&self, status: u8) -> ! {
        if lock(&self.shared).is_watched {
            // The thread tells the other ranks, and ends this process.
            std::thread::sleep(10 * TICK);
        }
        exit_now(status)
    }

    fn report_failure(&self, rank: Option<usize>, reason: &str) {
        if let Some(named) = self.record_failure(rank, reason) {
            let shared = lock(&self.shared);
            let path = shared.file.path().display();
            notice(format_args!("{named}. The job ends. What was measured is in {path}: kelvin-cluster report {path}"));
        }
    }

    /// Writes why the job ends early, and returns it; nothing where that is known already, since what ends the job makes other things fail too.
    fn record_failure(&self, rank: Option<usize>, reason: &str) -> Option<String> {
        let mut shared = lock(&self.shared);
        if std::mem::replace(&mut shared.has_failed, true) {
            return None;
        }
        let named = match rank {
            Some(rank) => format!("rank {rank} ({}) {reason}", shared.labels[rank]),
            None => reason.to_owned(),
        };
        // If this fails too, standard error still says it.
        let _ = shared.file.append(&Event::<(), ()>::Failure { rank, reason: named.clone() });
        Some(named)
    }

    fn run(&self, mut heartbeats: Heartbeats) {
        let mut signal_time = None;
        let mut last_count = 0;
        loop {
            let (is_over, abort_status) = {
                let shared = lock(&self.shared);
                (shared.is_over, shared.abort_status)
            };
            if is_over {
                return heartbeats.end();
            }
            let count = self.progress.count();
            if count != last_count {
                last_count = count;
                self.renew(&[0]);
            }
            let failure = if abort_status.is_some() { None } else { self.look(&mut heartbeats, &mut signal_time) };
            if let Some((rank, reason)) = &failure {
                self.report_failure(*rank, reason);
            }
            if abort_status.is_some() || failure.is_some() {
                match abort_status {
                    Some(EXIT_MISTAKE) => heartbeats.refuse(),
                    _ => heartbeats.abort(),
                }
                exit_now(abort_status.unwrap_or(EXIT_FAILED));
            }
        }
    }

    /// Waits for a tick; returns the rank that is to blame, where one is, and the reason if the job must end.
    fn look(&self, heartbeats: &mut Heartbeats, signal_time: &mut Option<Instant>) -> Option<(Option<usize>, String)> {
        match heartbeats.watch(TICK) {
            Ok(losses) => {
                if let Some(&(rank, loss)) = losses.first() {
                    return Some((Some(rank), loss.describe()));
                }
            }
            Err(error) => return Some((None, format!("rank 0 cannot hear the heartbeats: {error}"))),
        }
        self.renew(&heartbeats.take_progressed());
        if let Some((late, reason)) = self.late_ranks() {
            let reason = match late.len() {
                1 => format!("has {reason}"),
                count => format!("and {} other ranks have {reason}", count - 1),
            };
            return Some((late.first().copied(), reason));
        }
        let signal = stop_signal()?;
        let time = *signal_time.get_or_insert_with(Instant::now);
        (time.elapsed() > SIGNAL_PATIENCE).then(|| (None, format!("{signal} came to rank 0")))
    }

    /// The ranks that have not done their tasks in time, where there are any, and what they have not done.
    fn late_ranks(&self) -> Option<(Vec<usize>, String)> {
        let shared = lock(&self.shared);
        let step = shared.step.as_ref()?;
        let now = Instant::now();
        let late: Vec<usize> =
            step.deadlines.iter().filter(|(_, deadline)| now > **deadline).map(|(rank, _)| *rank).collect();
        (!late.is_empty()).then(|| (late, step.limit.reason()))
    }

    /// These ranks have gone on with their tasks.
    fn renew(&self, ranks: &[usize]) {
        let mut shared = lock(&self.shared);
        if let Some(Step { limit: StepLimit::WithoutProgress(time), deadlines }) = &mut shared.step {
            let deadline = Instant::now() + *time;
            for rank in ranks {
                deadlines.entry(*rank).and_modify(|old| *old = deadline);
            }
        }
    }
}
