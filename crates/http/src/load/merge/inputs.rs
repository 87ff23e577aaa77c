//! Which loads may be merged: those of one schedule on one target, each once, with figures that can be true.

use std::collections::HashMap;

use kelvin_core::load::{LatencySummary, LoadResult, OfferedLoad};
use kelvin_stats::Histogram;

use crate::load::document::{GeneratorOrigin, LoadDocument, LoadSequence};
use crate::load::measured_load::{MeasuredLoad, Schedule, ScheduleMode, ShareOfHosts};
use crate::load::schedule::TimeDistribution;

/// Most files: sums of counts stay within 64 bits.
const MAX_FILES: usize = 65_536;
/// Largest count of requests and the like: at a million a second, nine years.
const MAX_COUNT: u64 = 1 << 48;
/// Longest measured time in seconds: that of a command is a week at most, and answers of an open loop may come after it.
const MAX_SECONDS: f64 = 30.0 * 86_400.0;
/// Highest rate and longest thought that a file may claim.
const MAX_NUMBER: f64 = 1e15;
/// Longest text.
const MAX_TEXT_BYTES: usize = 16_384;
/// Most tags.
const MAX_TAGS: usize = 64;

/// Why a file must not be merged with those before.
#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    /// The same result was given before, as this file.
    #[error("it is the same result as {0}: give each result once")]
    Repeated(String),
    /// It has another number of loads than the first file.
    #[error("it has {count} loads and {first} has {first_count}: the generators of one load have the same")]
    OtherCount {
        /// The first file.
        first: String,
        /// Its number of loads.
        first_count: usize,
        /// That of this one.
        count: usize,
    },
    /// Its requests are scheduled in another way.
    #[error("its load is {schedule}, and that of {first} is {first_schedule}: their response times are not comparable")]
    OtherSchedule {
        /// The first file.
        first: String,
        /// Its schedule.
        first_schedule: String,
        /// That of this one.
        schedule: String,
    },
    /// It requested something else.
    #[error("its target is {target}, and that of {first} is {first_target}: --different-targets allows that")]
    OtherTarget {
        /// The first file.
        first: String,
        /// Its target.
        first_target: String,
        /// That of this one.
        target: String,
    },
    /// Another file has the same part.
    #[error("it is share {number} of {of}, as {file} is: each host has a share of its own")]
    RepeatedShare {
        /// The number of the part.
        number: u32,
        /// How many parts there are.
        of: u32,
        /// The other file.
        file: String,
    },
    /// A figure cannot be true.
    #[error("it is no valid result of kelvin load --json: {0}")]
    Impossible(String),
    /// The sum of the counts of all files is too large.
    #[error("its counts are too large to be added to those before")]
    Overflow,
    /// There are too many files.
    #[error("there are more than {MAX_FILES} files: give fewer")]
    TooManyFiles,
}

/// What the files before a file had.
#[derive(Debug)]
pub(super) struct InputCheck {
    takes_different_targets: bool,
    /// The file of each result.
    files: HashMap<String, String>,
    /// The file of each part of a load that hosts have divided.
    shares: HashMap<u32, String>,
    first: Option<FirstFile>,
    /// Times of all histograms.
    times: u64,
}

/// What all files must have.
#[derive(Debug)]
struct FirstFile {
    name: String,
    /// Target and schedule of each load.
    loads: Vec<(String, String)>,
}

impl InputCheck {
    pub(super) fn new(takes_different_targets: bool) -> Self {
        Self { takes_different_targets, files: HashMap::new(), shares: HashMap::new(), first: None, times: 0 }
    }

    /// Notes a file.
    ///
    /// # Errors
    /// Why it must not be merged with those before.
    pub(super) fn check(&mut self, file: &str, document: &LoadDocument<LoadSequence>) -> Result<(), MergeError> {
        let LoadDocument { origin, loads: LoadSequence { loads } } = document;
        check_origin(origin)?;
        check(!loads.is_empty(), || "loads: there must be at least one".into())?;
        if let Some(before) = self.files.get(&origin.id) {
            return Err(MergeError::Repeated(before.clone()));
        }
        if self.files.len() == MAX_FILES {
            return Err(MergeError::TooManyFiles);
        }
        for load in loads {
            self.times = check_load(load)?.checked_add(self.times).ok_or(MergeError::Overflow)?;
        }
        if self.times > i64::MAX as u64 {
            return Err(MergeError::Overflow);
        }
        let schedules: Vec<(String, String)> =
            loads.iter().map(|load| (load.result.target.clone(), schedule_text(load))).collect();
        match &self.first {
            None => self.first = Some(FirstFile { name: file.to_owned(), loads: schedules }),
            Some(first) => first.check(&schedules, self.takes_different_targets)?,
        }
        if let Some(ShareOfHosts { number, of }) = loads[0].merge_data.schedule.share
            && let Some(file) = self.shares.insert(number, file.to_owned())
        {
            return Err(MergeError::RepeatedShare { number, of, file });
        }
        self.files.insert(origin.id.clone(), file.to_owned());
        Ok(())
    }
}

impl FirstFile {
    fn check(&self, loads: &[(String, String)], takes_different_targets: bool) -> Result<(), MergeError> {
        let first = || self.name.clone();
        if loads.len() != self.loads.len() {
            return Err(MergeError::OtherCount { first: first(), first_count: self.loads.len(), count: loads.len() });
        }
        for ((target, schedule), (first_target, first_schedule)) in loads.iter().zip(&self.loads) {
            if schedule != first_schedule {
                return Err(MergeError::OtherSchedule {
                    first: first(),
                    first_schedule: first_schedule.clone(),
                    schedule: schedule.clone(),
                });
            }
            if target != first_target && !takes_different_targets {
                return Err(MergeError::OtherTarget {
                    first: first(),
                    first_target: first_target.clone(),
                    target: target.clone(),
                });
            }
        }
        Ok(())
    }
}

/// What of a schedule must be the same, in words: loads whose texts differ are not merged. Users, rates, connections and threads are added.
fn schedule_text(load: &MeasuredLoad) -> String {
    let MeasuredLoad { result, merge_data } = load;
    let Schedule { mode, distribution, closes_connections, method, paths, share, seed, .. } = &merge_data.schedule;
    let distribution = match distribution {
        Some(TimeDistribution::Exponential) => "exponential",
        _ => "constant",
    };
    let schedule = match (mode, result.offered) {
        (ScheduleMode::ClosedLoop, OfferedLoad::Users { think, .. }) if think > 0.0 => {
            let think = think / 1e9;
            format!("of users with {distribution} think times of {think} s")
        }
        (ScheduleMode::ClosedLoop, _) => "of users without think time".into(),
        (ScheduleMode::OpenLoop, _) => format!("at a rate with {distribution} times between requests"),
        (ScheduleMode::Log, _) => "of a log".into(),
    };
    let files = if *paths == 1 { String::new() } else { format!(" for {paths} files") };
    // Parts of one schedule are drawn from one seed.
    let share = share.map_or_else(String::new, |share| format!(", in {} shares with --seed {seed}", share.of));
    let connections = match result.http2 {
        Some(http2) => format!(", by HTTP/2 with {} on a connection", http2.streams),
        None if *closes_connections => ", over a connection each".into(),
        None => String::new(),
    };
    let kinds = load_parts("kinds", result.kinds.iter().map(|kind| format!("{}:{}", kind.name, kind.weight)));
    let stages = load_parts("stages", result.stages.iter().map(|stage| stage.seconds.to_string()));
    format!("{schedule}, {method}{files}{kinds}{stages}{connections}{share}")
}

/// Parts of a load after another text, such as `, kinds list:80 buy:20`; nothing if there are none.
fn load_parts(name: &str, parts: impl Iterator<Item = String>) -> String {
    let parts: Vec<String> = parts.collect();
    if parts.is_empty() { String::new() } else { format!(", {name} {}", parts.join(" ")) }
}

fn check_origin(origin: &GeneratorOrigin) -> Result<(), MergeError> {
    let GeneratorOrigin { id, kelvin_version, host, tags, clock, .. } = origin;
    let texts = [id, kelvin_version].into_iter().chain(host).chain(&clock.source);
    let texts = texts.chain(tags.iter().flat_map(|(name, value)| [name, value]));
    check(!id.is_empty(), || "id: it must not be empty".into())?;
    check(tags.len() <= MAX_TAGS, || format!("tags: there must be at most {MAX_TAGS}"))?;
    check_texts(texts)?;
    check_numbers([("clock.max_error", clock.max_error), ("clock.estimated_error", clock.estimated_error)])
}

/// Checks the figures of a load; returns how many times its histograms have.
fn check_load(load: &MeasuredLoad) -> Result<u64, MergeError> {
    let MeasuredLoad { result, merge_data } = load;
    let LoadResult { seconds, answer_seconds, requests, unanswered, connections, resent, errors, .. } = result;
    let kind_names = result.kinds.iter().map(|kind| &kind.name);
    let texts = [&result.target, &merge_data.schedule.method].into_iter().chain(kind_names);
    check_texts(texts.chain(&result.interrupted).chain(&errors.first))?;
    for (name, seconds) in [("seconds", *seconds), ("answer_seconds", *answer_seconds)] {
        check((0.0..=MAX_SECONDS).contains(&seconds), || format!("{name}: it must be from 0 to {MAX_SECONDS}"))?;
    }
    let delayed = match result.offered {
        OfferedLoad::Rate { delayed, .. } => delayed,
        OfferedLoad::Users { .. } => 0,
    };
    let ended = [errors.connect, errors.no_port, errors.closed, errors.reset, errors.timed_out];
    let wrong = [errors.short, errors.malformed, errors.wrong];
    let errors = ended.into_iter().chain(wrong).chain(errors.status.values().copied());
    let error_count = errors.fold(0u64, u64::saturating_add);
    let http2 = result.http2.unwrap_or_default();
    for (name, count) in [
        ("http2.limited_connections", http2.limited_connections),
        ("http2.limited_requests", http2.limited_requests),
        ("http2.goaways", http2.goaways),
        ("http2.refused", http2.refused),
        ("requests", *requests),
        ("unanswered", *unanswered),
        ("connections", *connections),
        ("resent", *resent),
        ("offered.rate.delayed", delayed),
        ("errors", error_count),
    ] {
        check(count <= MAX_COUNT, || format!("{name}: it must be at most {MAX_COUNT}"))?;
    }
    let (is_closed, offered) = match result.offered {
        OfferedLoad::Users { think, .. } => (true, [("offered.users.think", Some(think)), ("", None)]),
        OfferedLoad::Rate { rate, due, .. } => {
            (false, [("offered.rate.rate", Some(rate)), ("offered.rate.due", Some(due))])
        }
    };
    let is_share = |share: &ShareOfHosts| (1..=share.of).contains(&share.number);
    check(merge_data.schedule.share.as_ref().is_none_or(is_share), || {
        "schedule.share: it must be 1 of 1 or more".into()
    })?;
    let is_closed_mode = merge_data.schedule.mode == ScheduleMode::ClosedLoop;
    check(is_closed == is_closed_mode, || "schedule.mode: it must be closed-loop with users, and only then".into())?;
    check_numbers(offered)?;
    check_numbers([("in_flight", result.in_flight), ("generator.slow_mean", result.generator.slow_mean)])?;
    check_numbers([("generator.slow_tail", result.generator.slow_tail), ("", None)])?;
    let histograms = &merge_data.histograms;
    let pairs = [
        ("response", &histograms.response, &result.response),
        ("service", &histograms.service, &result.service),
        ("late", &histograms.late, &result.generator.late),
        ("own_delay", &histograms.own_delay, &result.generator.own_delay),
    ];
    pairs.into_iter().try_fold(0u64, |sum, (name, histogram, summary)| {
        check_histogram(name, histogram, summary)?;
        sum.checked_add(histogram.count()).ok_or(MergeError::Overflow)
    })
}

/// Checks that a histogram is that of a summary.
fn check_histogram(name: &str, histogram: &Histogram, summary: &LatencySummary) -> Result<(), MergeError> {
    let (count, expected) = (histogram.count(), summary.count);
    check(count == expected, || format!("histograms.{name}: it has {count} times, and its summary {expected}"))
}

fn check_numbers(numbers: [(&str, Option<f64>); 2]) -> Result<(), MergeError> {
    numbers.into_iter().filter_map(|(name, number)| Some((name, number?))).try_for_each(|(name, number)| {
        check((0.0..=MAX_NUMBER).contains(&number), || format!("{name}: it must be from 0 to {MAX_NUMBER}"))
    })
}

fn check_texts<'t>(texts: impl IntoIterator<Item = &'t String>) -> Result<(), MergeError> {
    let is_long = texts.into_iter().any(|text| text.len() > MAX_TEXT_BYTES);
    check(!is_long, || format!("a text has more than {MAX_TEXT_BYTES} bytes"))
}

fn check(is_right: bool, message: impl FnOnce() -> String) -> Result<(), MergeError> {
    if is_right { Ok(()) } else { Err(MergeError::Impossible(message())) }
}
