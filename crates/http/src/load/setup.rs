//! What is asked of a server, by whom, for how long.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use kelvin_core::load::StageLevel;

use crate::load::access_pattern::{AccessPattern, FileChooser};
use crate::load::error::{self, call_error};
use crate::load::load_share::LoadShare;
use crate::load::request::{RequestSet, RequestTemplate};
use crate::load::request_mix::RequestKind;
use crate::load::schedule::{ThinkTime, TimeDistribution, arrival_times};
use crate::load::server_url::ServerUrl;
use crate::load::slo::MAX_DURATION;
use crate::load::stages::{RateStage, UserStage};
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
    /// What is sent with the request of each path, instead of the template; none where all are alike.
    pub templates: Vec<RequestTemplate>,
    /// Kinds of requests that are sent by their weights, instead of the template's: their paths are those of the load, in this order.
    pub kinds: Vec<RequestKind>,
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
    /// Requests in flight on each connection by HTTP/2, at most; none where HTTP/1.1 is spoken.
    pub http2_streams: Option<u32>,
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

    /// Has the load send these kinds of requests.
    pub fn mix(&mut self, kinds: Vec<RequestKind>) {
        self.paths = kinds.iter().flat_map(|kind| kind.paths.iter().cloned()).collect();
        self.expected_bodies = vec![None; self.paths.len()];
        self.kinds = kinds;
    }

    /// All requests, as they are sent.
    pub(crate) fn request_set(&self) -> RequestSet {
        if self.kinds.is_empty() && self.templates.is_empty() {
            return RequestSet::new(&self.target, &self.template, &self.paths);
        }
        let mut requests = RequestSet::default();
        for (template, path) in self.templates.iter().zip(&self.paths) {
            requests.push(&self.target, template, 0, std::slice::from_ref(path));
        }
        for (number, kind) in (0..).zip(&self.kinds) {
            requests.push(&self.target, &kind.template, number, &kind.paths);
        }
        requests
    }

    /// How many kinds of requests, or stages, have figures of their own.
    pub(crate) fn group_count(&self) -> usize {
        self.kinds.len().max(self.demand.stages().len())
    }

    /// What is sent beside the paths: one template, or those of a log or of a mix.
    pub(crate) fn templates(&self) -> Vec<&RequestTemplate> {
        let templates: Vec<&RequestTemplate> =
            self.kinds.iter().map(|kind| &kind.template).chain(&self.templates).collect();
        if templates.is_empty() { vec![&self.template] } else { templates }
    }

    /// How many requests this part of the load may have in flight, each of which has a slot.
    pub(crate) fn slot_count(&self, share: LoadShare) -> u32 {
        let count = share.count_of(self.demand.max_connections());
        match self.http2_streams {
            Some(streams) if self.demand.is_open_loop() => count.saturating_mul(streams),
            _ => count,
        }
    }

    /// Most connections of this host for a demand: by HTTP/2 users share them.
    pub fn max_connections(&self, demand: &Demand) -> u32 {
        let count = |share: LoadShare| share.count_of(demand.max_connections());
        match self.http2_streams {
            Some(streams) if !demand.is_open_loop() => {
                self.share.divide(self.threads.count()).map(|share| count(share).div_ceil(streams)).sum()
            }
            _ => count(self.share),
        }
    }

    /// What chooses each of them.
    pub(crate) fn file_chooser(&self, seed: u64) -> FileChooser {
        if self.kinds.is_empty() {
            return FileChooser::new(self.pattern, self.paths.len(), seed);
        }
        let path_weight = |kind: &RequestKind| kind.weight / kind.paths.len() as f64;
        let weights = self.kinds.iter().flat_map(|kind| vec![path_weight(kind); kind.paths.len()]);
        FileChooser::by_weights(&weights.collect::<Vec<f64>>(), seed)
    }

    /// The methods of its requests.
    pub(crate) fn methods(&self) -> String {
        let methods: BTreeSet<&str> = self.templates().iter().map(|template| template.method.as_str()).collect();
        methods.into_iter().collect::<Vec<&str>>().join(", ")
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
            Demand::UserStages { stages, think } => {
                let own = |stage: &UserStage| UserStage { level: share.count_of(stage.level), ..*stage };
                Demand::UserStages { stages: stages.iter().map(own).collect(), think }
            }
            Demand::RateStages { stages, arrivals, connections } => {
                let own = |stage: &RateStage| RateStage { level: stage.level / f64::from(share.parts()), ..*stage };
                let stages = stages.iter().map(own).collect();
                Demand::RateStages { stages, arrivals, connections: share.count_of(connections) }
            }
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
    /// A closed loop whose number of users changes.
    UserStages {
        /// One after the other.
        stages: Arc<[UserStage]>,
        /// How long each user thinks after an answer.
        think: ThinkTime,
    },
    /// An open loop whose rate changes.
    RateStages {
        /// One after the other.
        stages: Arc<[RateStage]>,
        /// How requests are spread over the time of each stage.
        arrivals: TimeDistribution,
        /// Most connections.
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
        !matches!(self, Self::Users { .. } | Self::UserStages { .. })
    }

    /// How long the schedule has for this many requests: up to when the next one would be due. Users have no schedule.
    fn scheduled_duration(&self, requests: u32, seed: u64) -> Option<Duration> {
        match *self {
            Self::Users { .. } | Self::UserStages { .. } | Self::RateStages { .. } => None,
            Self::Rate { rate, arrivals: TimeDistribution::Constant, .. } => {
                Some(Duration::from_secs_f64(f64::from(requests) / rate))
            }
            Self::Rate { rate, arrivals, .. } => {
                arrival_times(rate, arrivals, seed).nth(requests as usize).map(Duration::from_nanos)
            }
            Self::Log { ref times, .. } => times.get(requests as usize).copied().map(Duration::from_nanos),
        }
    }

    /// What each of its stages asks for, and for how long; none of a load without stages.
    pub(crate) fn stages(&self) -> Vec<(StageLevel, Duration)> {
        match self {
            Self::UserStages { stages, .. } => {
                stages.iter().map(|stage| (StageLevel::Users(stage.level), stage.duration)).collect()
            }
            Self::RateStages { stages, .. } => {
                stages.iter().map(|stage| (StageLevel::Rate(stage.level), stage.duration)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Most connections.
    pub fn max_connections(&self) -> u32 {
        match *self {
            Self::Users { users, .. } => users,
            Self::UserStages { ref stages, .. } => stages.iter().map(|stage| stage.level).max().unwrap_or(0),
            Self::Rate { connections, .. } | Self::Log { connections, .. } | Self::RateStages { connections, .. } => {
                connections
            }
        }
    }
}
