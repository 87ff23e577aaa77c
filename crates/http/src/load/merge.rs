//! Loads of several generators as one: counts added without loss, the time in which all of them measured, and who differs.

mod inputs;
mod stragglers;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use jiff::Timestamp;
use kelvin_core::NODE_TAG;
use kelvin_core::load::{
    GeneratorLimit, Http2Figures, LatencySummary, LoadFigures, OfferedLoad, RequestErrors, SecondResult,
};
use kelvin_stats::median;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::load::document::{ClockState, GeneratorOrigin, LoadDocument, LoadSequence};
use crate::load::measured_load::{LatencyHistograms, MeasuredLoad, Schedule};
use crate::load::request_stats::latency_summary;
pub use inputs::MergeError;
pub use stragglers::{Straggler, StragglerFigure};

/// The version of the format of merged loads.
pub const MERGE_FORMAT: u32 = 1;

/// Which share of its measured time a generator must have had in common with all others, for its rate to be that of the common time.
const MIN_COMMON_SHARE: f64 = 0.99;

/// Several generators' loads, merged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MergedLoads {
    /// The version of the format: [`MERGE_FORMAT`].
    pub load_merge_format: u32,
    /// The version of kelvin that merged them.
    pub kelvin_version: String,
    /// In the order in which they were measured.
    pub loads: Vec<MergedLoad>,
}

/// One load of several generators at once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MergedLoad {
    /// What was requested, as the generators name it.
    pub targets: Vec<String>,
    /// What all of them together asked for.
    pub offered: OfferedLoad,
    /// The first start of a measured time.
    #[schemars(with = "String")]
    pub start: Timestamp,
    /// Seconds from there to the last end.
    pub seconds: f64,
    /// The time in which all of them measured, if there is one.
    pub common: Option<CommonTime>,
    /// Right answers of all of them, in all of their measured times.
    pub requests: u64,
    /// Bytes of their bodies.
    pub bytes: u64,
    /// Bytes of all bodies that were read.
    pub received: u64,
    /// Response times of all of them.
    pub response: Option<LatencySummary>,
    /// Times from when requests were sent.
    pub service: Option<LatencySummary>,
    /// How late generators sent requests.
    pub late: Option<LatencySummary>,
    /// What the generators' delays added to response times.
    pub own_delay: Option<LatencySummary>,
    /// What was no right answer.
    pub errors: RequestErrors,
    /// Requests without an answer at the end.
    pub unanswered: u64,
    /// Requests in flight of all of them together: the sum of their means.
    pub in_flight: Option<f64>,
    /// Connections that were opened.
    pub connections: u64,
    /// Requests that were sent again.
    pub resent: u64,
    /// What HTTP/2 did; none of loads by HTTP/1.1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http2: Option<Http2Figures>,
    /// The sums of the generators' histograms.
    pub histograms: LatencyHistograms,
    /// Each generator, in the order of the files.
    pub generators: Vec<GeneratorShare>,
    /// Those that differ from their peers.
    pub stragglers: Vec<Straggler>,
}

/// The time in which all generators measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CommonTime {
    /// Its start.
    #[schemars(with = "String")]
    pub start: Timestamp,
    /// How long it is.
    pub seconds: f64,
    /// Right answers a second in it: the sum of the generators' `common_rate`.
    pub rate: f64,
    /// Bytes of their bodies a second.
    pub byte_rate: f64,
}

/// What one generator had in a load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GeneratorShare {
    /// Its tag `node`, or the name of its file; that with its directory where several have that name.
    pub name: String,
    /// Its file.
    pub file: String,
    /// The hash of its host's machine id.
    pub host: Option<String>,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
    /// The clock of its times of day.
    pub clock: ClockState,
    /// What it requested.
    pub target: String,
    /// What it asked for.
    pub offered: OfferedLoad,
    /// How it was scheduled.
    pub schedule: Schedule,
    /// The start of its measured time.
    #[schemars(with = "String")]
    pub start: Timestamp,
    /// Seconds that it measured.
    pub seconds: f64,
    /// Seconds from the median start of all generators to its own.
    pub start_offset: f64,
    /// Seconds from the median end of all generators to its own.
    pub end_offset: f64,
    /// Right answers.
    pub requests: u64,
    /// Its share of those of all generators.
    pub share: f64,
    /// Right answers a second.
    pub rate: f64,
    /// Right answers a second in the time in which all measured: those of its whole seconds within it, unless that is all of its time.
    pub common_rate: Option<f64>,
    /// Bytes of their bodies a second in that time.
    pub common_byte_rate: Option<f64>,
    /// Requests that brought no right answer.
    pub failed_requests: u64,
    /// Its response times.
    pub response: LatencySummary,
    /// The signal that ended it early, if one did.
    pub interrupted: Option<String>,
    /// Why it was the limit of its load, if it was.
    pub limit: Option<GeneratorLimit>,
    /// Its own delays as a share of the mean response time, where that is too much.
    pub slow_mean: Option<f64>,
    /// The same of the 99 % quantiles.
    pub slow_tail: Option<f64>,
    /// Each second, until the common time is known.
    #[serde(skip)]
    series: Vec<SecondResult>,
    #[serde(skip)]
    byte_rate: f64,
}

impl GeneratorShare {
    fn new(file: &str, origin: &GeneratorOrigin, load: &MeasuredLoad) -> Self {
        let MeasuredLoad { result, merge_data } = load;
        Self {
            name: origin.tags.get(NODE_TAG).cloned().unwrap_or_else(|| file_stem(file)),
            file: file.to_owned(),
            host: origin.host.clone(),
            tags: origin.tags.clone(),
            clock: origin.clock.clone(),
            target: result.target.clone(),
            offered: result.offered,
            schedule: merge_data.schedule.clone(),
            start: merge_data.start,
            seconds: result.seconds,
            start_offset: 0.0,
            end_offset: 0.0,
            requests: result.requests,
            share: 0.0,
            rate: result.rate(),
            common_rate: None,
            common_byte_rate: None,
            failed_requests: result.failed_requests(),
            response: latency_summary(&merge_data.histograms.response),
            interrupted: result.interrupted.clone(),
            limit: result.generator.limit,
            slow_mean: result.generator.slow_mean,
            slow_tail: result.generator.slow_tail,
            series: result.series.clone(),
            byte_rate: result.byte_rate(),
        }
    }

    /// Right answers a second of each that was asked for, or of each user.
    fn relative_rate(&self) -> Option<f64> {
        let asked = match self.offered {
            OfferedLoad::Users { users, .. } => f64::from(users),
            OfferedLoad::Rate { rate, .. } => rate,
        };
        (asked > 0.0).then(|| self.rate / asked)
    }

    /// A quantile of its response times, if it has so many.
    fn quantile(&self, min_count: u64, quantile: fn(&LatencySummary) -> f64) -> Option<f64> {
        (self.response.count >= min_count).then(|| quantile(&self.response))
    }

    /// Seconds from a time to the start of its measured time, before which they are negative.
    fn start_after(&self, origin: Timestamp) -> f64 {
        self.start.duration_since(origin).as_secs_f64()
    }

    /// Sets its rates within a time that begins so many seconds after its own start and is so long.
    fn set_common_rates(&mut self, after: f64, seconds: f64) {
        let within = self.series.iter().zip(0u32..).filter(|(_, second)| {
            let second = f64::from(*second);
            second >= after && second + 1.0 <= after + seconds
        });
        let (mut count, mut requests, mut bytes) = (0u32, 0.0, 0.0);
        for (second, _) in within {
            count += 1;
            requests += second.requests as f64;
            bytes += second.bytes as f64;
        }
        // A load that is shorter than a second has none that is whole.
        let rates = if seconds >= MIN_COMMON_SHARE * self.seconds || count == 0 {
            (self.rate, self.byte_rate)
        } else {
            (requests / f64::from(count), bytes / f64::from(count))
        };
        (self.common_rate, self.common_byte_rate) = (Some(rates.0), Some(rates.1));
    }
}

/// The name of a file without its directory and ending.
fn file_stem(file: &str) -> String {
    std::path::Path::new(file).file_stem().map_or_else(|| file.to_owned(), |stem| stem.to_string_lossy().into_owned())
}

impl MergedLoad {
    /// How many hosts the load was divided over that are not among the generators.
    pub fn missing_shares(&self) -> u32 {
        let hosts = self.generators.first().and_then(|share| share.schedule.share).map_or(0, |share| share.of);
        hosts.saturating_sub(self.generators.len() as u32)
    }

    /// The generators that a signal ended early.
    pub fn interrupted(&self) -> impl Iterator<Item = &GeneratorShare> {
        self.generators.iter().filter(|share| share.interrupted.is_some())
    }

    /// What tables, plots and conditions take of it.
    pub fn figures(&self) -> LoadFigures<'_> {
        LoadFigures {
            target: self.targets.first().map_or("", String::as_str),
            offered: self.offered,
            rate: self.common.as_ref().map(|common| common.rate),
            requests: self.requests,
            failed_requests: self.errors.count() + self.unanswered,
            response: self.response.unwrap_or_default(),
        }
    }
}

/// Merges the loads of generators, one file after the other.
#[derive(Debug)]
pub struct LoadMerger {
    inputs: inputs::InputCheck,
    loads: Vec<LoadSum>,
}

/// What was added of one load so far.
#[derive(Debug)]
struct LoadSum {
    targets: Vec<String>,
    offered: OfferedLoad,
    counts: Counts,
    errors: RequestErrors,
    http2: Option<Http2Figures>,
    in_flight: Option<f64>,
    histograms: LatencyHistograms,
    generators: Vec<GeneratorShare>,
}

/// Numbers that are added.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    requests: u64,
    bytes: u64,
    received: u64,
    unanswered: u64,
    connections: u64,
    resent: u64,
}

impl LoadMerger {
    /// One without files, which takes different targets or does not.
    pub fn new(takes_different_targets: bool) -> Self {
        Self { inputs: inputs::InputCheck::new(takes_different_targets), loads: Vec::new() }
    }

    /// Adds what a file has.
    ///
    /// # Errors
    /// Why it must not be merged with those before.
    pub fn add(&mut self, file: &str, document: &LoadDocument<LoadSequence>) -> Result<(), MergeError> {
        self.inputs.check(file, document)?;
        let loads = &document.loads.loads;
        if self.loads.is_empty() {
            self.loads = loads.iter().map(LoadSum::of_nothing).collect();
        }
        self.loads.iter_mut().zip(loads).try_for_each(|(sum, load)| sum.add(file, &document.origin, load))
    }

    /// The loads of all files.
    pub fn finish(self) -> Vec<MergedLoad> {
        self.loads.into_iter().map(LoadSum::finish).collect()
    }
}

impl LoadSum {
    /// Nothing yet of generators that ask for what this load does.
    fn of_nothing(load: &MeasuredLoad) -> Self {
        let offered = match load.result.offered {
            OfferedLoad::Users { think, .. } => OfferedLoad::Users { users: 0, think },
            OfferedLoad::Rate { .. } => OfferedLoad::Rate { rate: 0.0, due: 0.0, delayed: 0 },
        };
        Self {
            targets: Vec::new(),
            offered,
            counts: Counts::default(),
            errors: RequestErrors::default(),
            http2: None,
            in_flight: None,
            histograms: LatencyHistograms::default(),
            generators: Vec::new(),
        }
    }

    fn add(&mut self, file: &str, origin: &GeneratorOrigin, load: &MeasuredLoad) -> Result<(), MergeError> {
        let MeasuredLoad { result, merge_data } = load;
        match (&mut self.offered, result.offered) {
            (OfferedLoad::Users { users, .. }, OfferedLoad::Users { users: others, .. }) => {
                *users = users.checked_add(others).ok_or(MergeError::Overflow)?;
            }
            (
                OfferedLoad::Rate { rate, due, delayed },
                OfferedLoad::Rate { rate: other_rate, due: other_due, delayed: other_delayed },
            ) => {
                *rate += other_rate;
                *due += other_due;
                *delayed = delayed.checked_add(other_delayed).ok_or(MergeError::Overflow)?;
            }
            _ => return Err(MergeError::Impossible("offered: it must be users or a rate, as schedule.mode is".into())),
        }
        let counts = &mut self.counts;
        for (count, other) in [
            (&mut counts.requests, result.requests),
            (&mut counts.bytes, result.bytes),
            (&mut counts.received, result.received),
            (&mut counts.unanswered, result.unanswered),
            (&mut counts.connections, result.connections),
            (&mut counts.resent, result.resent),
        ] {
            *count = count.checked_add(other).ok_or(MergeError::Overflow)?;
        }
        self.errors.merge(&result.errors, self.errors.first.is_none());
        match (&mut self.http2, &result.http2) {
            (Some(http2), Some(other)) => http2.merge(other),
            (http2, other) => *http2 = *other,
        }
        self.in_flight = match (self.in_flight, result.in_flight) {
            (Some(sum), Some(in_flight)) => Some(sum + in_flight),
            (sum, in_flight) => sum.or(in_flight),
        };
        self.histograms.merge(&merge_data.histograms);
        if !self.targets.contains(&result.target) {
            self.targets.push(result.target.clone());
        }
        self.generators.push(GeneratorShare::new(file, origin, load));
        Ok(())
    }

    fn finish(mut self) -> MergedLoad {
        let generators = &mut self.generators;
        rename_duplicates(generators);
        let start = generators.iter().map(|share| share.start).min().unwrap_or_default();
        let times: Vec<(f64, f64)> = generators
            .iter()
            .map(|share| share.start_after(start))
            .zip(generators.iter().map(|share| share.seconds))
            .map(|(after, seconds)| (after, after + seconds))
            .collect();
        let starts: Vec<f64> = times.iter().map(|(start, _)| *start).collect();
        let ends: Vec<f64> = times.iter().map(|(_, end)| *end).collect();
        let (median_start, median_end) = (median(&starts), median(&ends));
        let (last_start, first_end) =
            (starts.iter().copied().fold(0.0, f64::max), ends.iter().copied().fold(f64::INFINITY, f64::min));
        let common_seconds = Some(first_end - last_start).filter(|&seconds| seconds > 0.0);
        for (share, (start, end)) in generators.iter_mut().zip(&times) {
            share.share = share.requests as f64 / self.counts.requests.max(1) as f64;
            (share.start_offset, share.end_offset) = (start - median_start, end - median_end);
            if let Some(seconds) = common_seconds {
                share.set_common_rates(last_start - start, seconds);
            }
        }
        let sum = |rate: fn(&GeneratorShare) -> Option<f64>| generators.iter().filter_map(rate).sum();
        let common = common_seconds.map(|seconds| CommonTime {
            start: generators.iter().map(|share| share.start).max().unwrap_or_default(),
            seconds,
            rate: sum(|share| share.common_rate),
            byte_rate: sum(|share| share.common_byte_rate),
        });
        let summary = |times| Some(latency_summary(times)).filter(|summary| summary.count > 0);
        let Counts { requests, bytes, received, unanswered, connections, resent } = self.counts;
        MergedLoad {
            targets: self.targets,
            offered: self.offered,
            start,
            seconds: ends.iter().copied().fold(0.0, f64::max),
            common,
            requests,
            bytes,
            received,
            response: summary(&self.histograms.response),
            service: summary(&self.histograms.service),
            late: summary(&self.histograms.late),
            own_delay: summary(&self.histograms.own_delay),
            errors: self.errors,
            unanswered,
            in_flight: self.in_flight,
            connections,
            resent,
            http2: self.http2,
            histograms: self.histograms,
            stragglers: stragglers::stragglers(&self.generators),
            generators: self.generators,
        }
    }
}

/// Gives generators of one name those of their files.
fn rename_duplicates(generators: &mut [GeneratorShare]) {
    let mut counts = BTreeMap::<String, usize>::new();
    generators.iter().for_each(|share| *counts.entry(share.name.clone()).or_default() += 1);
    let is_duplicate = |share: &&mut GeneratorShare| counts[&share.name] > 1;
    generators.iter_mut().filter(is_duplicate).for_each(|share| share.name.clone_from(&share.file));
}
