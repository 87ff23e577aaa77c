//! The thread of rank 0 that ends the job when a rank is lost: it names the rank, after what was measured has been written.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kelvin_cluster::event::Event;
use kelvin_cluster::heartbeat::Heartbeats;
use kelvin_cluster::results::ResultsFile;
use kelvin_sys::lock;
use kelvin_sys::process::exit_now;
use kelvin_sys::stop_signals::stop_signal;
use kelvin_sys::thread_spawn::ThreadBuilder;

use crate::notice;

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
    is_aborted: bool,
    /// Whether the thread runs.
    is_watched: bool,
}

/// What ranks do at the moment.
#[derive(Debug)]
struct Step {
    outstanding: BTreeSet<usize>,
    deadline: Instant,
}

/// The job's side of it.
#[derive(Clone, Debug)]
pub struct Job(Arc<Mutex<Shared>>);

impl Job {
    /// A job whose results go to this file.
    pub fn new(file: ResultsFile, labels: Vec<String>) -> Self {
        Self(Arc::new(Mutex::new(Shared {
            file,
            labels,
            step: None,
            is_over: false,
            is_aborted: false,
            is_watched: false,
        })))
    }

    /// Starts the thread.
    ///
    /// # Errors
    /// Those of starting a thread.
    pub fn watch(&self, heartbeats: Heartbeats) -> std::io::Result<JoinHandle<()>> {
        let job = self.clone();
        lock(&self.0).is_watched = true;
        ThreadBuilder::named("heartbeats").start(move || job.run(heartbeats))
    }

    /// Writes an event to the file of results.
    pub fn record(&self, event: &Event) {
        let result = lock(&self.0).file.append(event);
        if let Err(error) = result {
            let path = lock(&self.0).file.path().display().to_string();
            notice(format_args!("{path}: {error}"));
            exit_now(EXIT_FAILED);
        }
    }

    /// From now on these ranks have a task, which takes at most this long.
    pub fn begin_step(&self, ranks: impl IntoIterator<Item = usize>, limit: Duration) {
        let step = Step { outstanding: ranks.into_iter().collect(), deadline: Instant::now() + limit };
        lock(&self.0).step = Some(step);
    }

    /// A rank has done its task. Returns whether all have.
    pub fn finish_rank(&self, rank: usize) -> bool {
        let mut shared = lock(&self.0);
        let Some(step) = &mut shared.step else { return true };
        step.outstanding.remove(&rank);
        let is_done = step.outstanding.is_empty();
        if is_done {
            shared.step = None;
        }
        is_done
    }

    /// The names of ranks are known better.
    pub fn set_labels(&self, labels: &[String]) {
        lock(&self.0).labels = labels.to_vec();
    }

    /// The job is complete: ranks may end.
    pub fn end(&self) {
        lock(&self.0).is_over = true;
    }

    /// Ends the job, and names what is to blame.
    pub fn abort(&self, rank: Option<usize>, reason: &str) -> ! {
        self.report_failure(rank, reason);
        let is_watched = {
            let mut shared = lock(&self.0);
            shared.is_aborted = true;
            shared.is_watched
        };
        if is_watched {
            // The thread tells the other ranks, and ends this process.
            std::thread::sleep(10 * TICK);
        }
        exit_now(EXIT_FAILED)
    }

    fn report_failure(&self, rank: Option<usize>, reason: &str) {
        let mut shared = lock(&self.0);
        let named = match rank {
            Some(rank) => format!("rank {rank} ({}) {reason}", shared.labels[rank]),
            None => reason.to_owned(),
        };
        // If this fails too, the line below still says it.
        let _ = shared.file.append(&Event::Failure { rank, reason: named.clone() });
        let path = shared.file.path().display();
        notice(format_args!("{named}. The job ends. What was measured is in {path}: kelvin-cluster report {path}"));
    }

    fn run(&self, mut heartbeats: Heartbeats) {
        let mut signal_time = None;
        loop {
            let (is_over, is_aborted) = {
                let shared = lock(&self.0);
                (shared.is_over, shared.is_aborted)
            };
            if is_over {
                return heartbeats.end();
            }
            let failure = if is_aborted { None } else { self.look(&mut heartbeats, &mut signal_time) };
            if let Some((rank, reason)) = &failure {
                self.report_failure(*rank, reason);
            }
            if is_aborted || failure.is_some() {
                heartbeats.abort();
                exit_now(EXIT_FAILED);
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
        if let Some(late) = self.late_ranks() {
            let reason = match late.len() {
                1 => "has not finished its task in time".to_owned(),
                count => format!("and {} other ranks have not finished their task in time", count - 1),
            };
            return Some((late.first().copied(), reason));
        }
        let signal = stop_signal()?;
        let time = *signal_time.get_or_insert_with(Instant::now);
        (time.elapsed() > SIGNAL_PATIENCE).then(|| (None, format!("{signal} came to rank 0")))
    }

    fn late_ranks(&self) -> Option<Vec<usize>> {
        let shared = lock(&self.0);
        let step = shared.step.as_ref().filter(|step| Instant::now() > step.deadline)?;
        Some(step.outstanding.iter().copied().collect())
    }
}
