//! What is asked of a server, by whom, for how long.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::load::access_pattern::AccessPattern;
use crate::load::error::{self, call_error};
use crate::load::load_share::LoadShare;
use crate::load::request::RequestTemplate;
use crate::load::schedule::{ThinkTime, TimeDistribution, arrival_times};
use crate::load::server_url::ServerUrl;
use crate::load::slo::MAX_DURATION;
use crate::load::start_time::StartTime;
use crate::load::tls::TlsConfig;
use crate::load::verify::{ExpectedBody, Verify};

/// One load.
#[derive(Clone, Debug)]
pub struct LoadSetup {
    /// The server.
    pub target: ServerUrl,
    /// Path of the Unix socket at which the server listens, if it is not reached by TCP.
    pub unix_socket: Option<PathBuf>,
    /// Path and query of each file; at least one.
    pub paths: Vec<String>,
    /// In which order files are asked for.
    pub pattern: AccessPattern,
    /// What is sent with every request.
    pub template: RequestTemplate,
    /// How many requests, of all hosts together.
    pub demand: Demand,
    /// The part of this host.
    pub share: LoadShare,
    /// When it begins.
    pub start: StartTime,
    /// Time before the measured time.
    pub warm_up: Duration,
    /// The measured time; of users whose requests are limited, the longest that it may be.
    pub duration: Duration,
    /// How many requests are sent, of all hosts together, if that is limited.
    pub requests: Option<u32>,
    /// Maximum time to wait for an answer.
    pub timeout: Duration,
    /// Seed of all that is drawn.
    pub seed: u64,
    /// What of bodies is compared.
    pub verify: Verify,
    /// The right body of each path, where it is known before.
    pub expected_bodies: Vec<Option<ExpectedBody>>,
    /// How TLS is spoken, with a target that wants it.
    pub tls: Option<TlsConfig>,
    /// The threads that send them, no more than connections.
    pub threads: GeneratorThreads,
    /// Whether to look at the clock without sleeping shortly before a request is due.
    pub spin: bool,
    /// While it is so, the users of a closed loop go on after the measured time, of which nothing counts: for a sample of the
    /// server under the load. An open loop ends when what was due is answered.
    pub extension: Option<Arc<AtomicBool>>,
}

impl LoadSetup {
    /// Has the load of this demand end after this many requests, or after a time if that comes first.
    ///
    /// # Errors
    /// A rate at which they take longer than any load may, in words.
    pub fn limit_requests(&mut self, requests: u32, max_duration: Option<Duration>) -> Result<(), String> {
        let scheduled = self.demand.scheduled_duration(requests, self.seed);
        (self.duration, self.requests) = match (scheduled, max_duration) {
            (None, max_duration) => (max_duration.unwrap_or(MAX_DURATION), Some(requests)),
            // At a rate the time decides then.
            (Some(scheduled), Some(max_duration)) if max_duration < scheduled => (max_duration, None),
            (Some(scheduled), _) if scheduled > MAX_DURATION => return Err("they would take more than a week".into()),
            (Some(scheduled), _) => (scheduled, Some(requests)),
        };
        Ok(())
    }

    /// The server, as it was named.
    pub(crate) fn target_name(&self) -> String {
        let url = &self.target.url;
        self.unix_socket.as_ref().map_or_else(|| url.clone(), |path| format!("{url} at {}", path.display()))
    }

    /// What this host asks for.
    pub fn own_demand(&self) -> Demand {
        let share = self.share;
        match self.demand.clone() {
            Demand::Users { users, think } => Demand::Users { users: share.count_of(users), think },
            Demand::Rate { rate, arrivals, connections } => Demand::Rate {
                rate: rate / f64::from(share.parts()),
                arrivals,
                connections: share.count_of(connections),
            },
            Demand::Log { times, connections } => Demand::Log { times, connections: share.count_of(connections) },
        }
    }
}

/// The threads of the generator, at least one. A single one is the calling thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GeneratorThreads {
    /// This many, on the CPUs that the calling thread may use.
    Unpinned(u32),
    /// One on each of these CPUs.
    Pinned(Vec<u32>),
}

impl GeneratorThreads {
    /// How many.
    pub fn count(&self) -> u32 {
        match self {
            Self::Unpinned(count) => *count,
            Self::Pinned(cpus) => cpus.len() as u32,
        }
    }

    /// Keeps the calling thread, which has this number, to its CPU.
    ///
    /// # Errors
    /// Those of sched_setaffinity(2).
    pub(crate) fn pin(&self, thread: u32) -> error::Result<()> {
        match self {
            Self::Unpinned(_) => Ok(()),
            Self::Pinned(cpus) => {
                let cpu = cpus[thread as usize];
                kelvin_sys::cpu::pin(&[cpu]).map_err(call_error("keep a thread to its CPU"))
            }
        }
    }
}

/// How many requests are asked for.
#[derive(Clone, Debug, PartialEq)]
pub enum Demand {
    /// A closed loop.
    Users {
        /// How many users.
        users: u32,
        /// How long each thinks after an answer.
        think: ThinkTime,
    },
    /// An open loop.
    Rate {
        /// Requests a second.
        rate: f64,
        /// How they are spread over time.
        arrivals: TimeDistribution,
        /// Most connections, and so requests in flight.
        connections: u32,
    },
    /// An open loop by the times of a log, of which each has its own path.
    Log {
        /// When each request is due, in nanoseconds from the start on, in order.
        times: Arc<[u64]>,
        /// Most connections.
        connections: u32,
    },
}

impl Demand {
    /// Whether requests are due whether answers come or not.
    pub fn is_open_loop(&self) -> bool {
        !matches!(self, Self::Users { .. })
    }

    /// How long the schedule has for this many requests: up to when the next one would be due. Users have no schedule.
    fn scheduled_duration(&self, requests: u32, seed: u64) -> Option<Duration> {
        match *self {
            Self::Users { .. } => None,
            Self::Rate { rate, arrivals: TimeDistribution::Constant, .. } => {
                Some(Duration::from_secs_f64(f64::from(requests) / rate))
            }
            Self::Rate { rate, arrivals, .. } => {
                arrival_times(rate, arrivals, seed).nth(requests as usize).map(Duration::from_nanos)
            }
            Self::Log { ref times, .. } => times.get(requests as usize).copied().map(Duration::from_nanos),
        }
    }

    /// Most connections.
    pub fn max_connections(&self) -> u32 {
        match *self {
            Self::Users { users, .. } => users,
            Self::Rate { connections, .. } | Self::Log { connections, .. } => connections,
        }
    }
}
