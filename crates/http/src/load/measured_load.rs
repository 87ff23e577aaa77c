//! A load as it was measured on one host, with what takes it together with those of other hosts: its histograms, its schedule and its
//! time of day.

use jiff::Timestamp;
use kelvin_core::load::LoadResult;
use kelvin_stats::Histogram;
use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::load::histogram_text;
use crate::load::load_share::LoadShare;
use crate::load::schedule::TimeDistribution;
use crate::load::setup::{Demand, LoadSetup};

/// A load on a server, measured on one host.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct MeasuredLoad {
    /// Its figures.
    #[serde(flatten)]
    pub result: LoadResult,
    /// What merging takes.
    #[serde(flatten)]
    pub merge_data: MergeData,
}

/// What is known of a load beside its figures, and is needed to merge it with those of other hosts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MergeData {
    /// When the measured time began, by the clock of its host.
    #[schemars(with = "String")]
    pub start: Timestamp,
    /// When the load was to begin, with its warm-up, if a time was given.
    #[schemars(with = "Option<String>")]
    pub scheduled_start: Option<Timestamp>,
    /// How its requests were scheduled.
    pub schedule: Schedule,
    /// The times of its requests.
    pub histograms: LatencyHistograms,
}

/// The times of which a load reports summaries under the same names, as counts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LatencyHistograms {
    /// From when a request was due until its answer was whole.
    #[serde(with = "histogram_text")]
    #[schemars(with = "String")]
    pub response: Histogram,
    /// From when it was sent.
    #[serde(with = "histogram_text")]
    #[schemars(with = "String")]
    pub service: Histogram,
    /// How late the generator sent requests.
    #[serde(with = "histogram_text")]
    #[schemars(with = "String")]
    pub late: Histogram,
    /// What the generator's delays added to response times.
    #[serde(with = "histogram_text")]
    #[schemars(with = "String")]
    pub own_delay: Histogram,
}

impl LatencyHistograms {
    /// Adds the counts of another host.
    pub fn merge(&mut self, other: &Self) {
        for (times, other) in [
            (&mut self.response, &other.response),
            (&mut self.service, &other.service),
            (&mut self.late, &other.late),
            (&mut self.own_delay, &other.own_delay),
        ] {
            times.merge(other);
        }
    }
}

/// How the requests of a load are scheduled, beside its number of users or its rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Schedule {
    /// What decides when a request is due.
    pub mode: ScheduleMode,
    /// How the times between requests, or those of thought, are distributed; none of a log.
    pub distribution: Option<TimeDistribution>,
    /// Most connections.
    pub connections: u32,
    /// Threads that send.
    pub threads: u32,
    /// Which part it is of one schedule that several hosts have, if it is one.
    pub share: Option<ShareOfHosts>,
    /// Seconds before the measured time.
    pub warm_up_seconds: f64,
    /// Seconds to measure, at most.
    pub duration_seconds: f64,
    /// How many requests of all hosts together end it, if their number is limited.
    #[serde(default)]
    pub requests: Option<u32>,
    /// Whether each request had a connection of its own.
    #[serde(default)]
    pub closes_connections: bool,
    /// Seed of all that is drawn.
    pub seed: u64,
    /// Method of every request; of a mix, its methods.
    pub method: String,
    /// How many paths there are to request.
    pub paths: u64,
}

/// The part of one host in a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ShareOfHosts {
    /// Its number, from 1 on.
    pub number: u32,
    /// How many parts there are.
    pub of: u32,
}

/// What decides when a request is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ScheduleMode {
    /// The answer to the one before.
    ClosedLoop,
    /// A rate.
    OpenLoop,
    /// The times of a log.
    Log,
}

impl Schedule {
    /// That of what is asked for.
    pub(crate) fn new(setup: &LoadSetup) -> Self {
        let demand = setup.own_demand();
        let (mode, distribution) = match &demand {
            Demand::Users { think, .. } => (ScheduleMode::ClosedLoop, Some(think.distribution)),
            Demand::Rate { arrivals, .. } => (ScheduleMode::OpenLoop, Some(*arrivals)),
            Demand::UserStages { think, .. } => (ScheduleMode::ClosedLoop, Some(think.distribution)),
            Demand::RateStages { arrivals, .. } => (ScheduleMode::OpenLoop, Some(*arrivals)),
            Demand::Log { .. } => (ScheduleMode::Log, None),
        };
        Self {
            mode,
            distribution,
            connections: setup.max_connections(&setup.demand),
            threads: setup.threads.count(),
            share: (setup.share != LoadShare::WHOLE)
                .then(|| ShareOfHosts { number: setup.share.number() + 1, of: setup.share.parts() }),
            warm_up_seconds: setup.warm_up.as_secs_f64(),
            duration_seconds: setup.duration.as_secs_f64(),
            requests: setup.requests,
            closes_connections: setup.template.closes_connections,
            seed: setup.seed,
            method: setup.methods(),
            paths: setup.paths.len() as u64,
        }
    }
}

/// Both parts are read from all fields: what serde keeps for flattened fields loses numbers that are keys.
impl<'de> Deserialize<'de> for MeasuredLoad {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        Ok(Self {
            result: LoadResult::deserialize(&value).map_err(D::Error::custom)?,
            merge_data: MergeData::deserialize(&value).map_err(D::Error::custom)?,
        })
    }
}
