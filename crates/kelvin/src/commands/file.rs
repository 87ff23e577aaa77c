//! `kelvin file`: files of the user's, read in one way, with all that is known of it.

use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use kelvin_file::cache::{self, Residency, State};
use kelvin_file::job::{self, Done as Read, Job, Until};
use kelvin_file::{Order, Target, recording_cost};
use kelvin_model::Unit;
use kelvin_report::{text, units};
use kelvin_sys::clock::{self, Clock};
use serde::Serialize;

use crate::cli::{AutosizeArgs, FileArgs, FileCommand, HowArgs, ReadArgs};
use crate::fault::{Done, Fault};
use crate::measure::best_clock;
use crate::output;

/// Seconds of calibrating the clock: an error of a hundredth of a percent is enough for latencies.
const CALIBRATION: f64 = 0.01;

/// `kelvin file`.
pub fn file(args: &FileArgs) -> Done {
    kelvin_sys::interrupt::watch().map_err(|error| Fault::new("cannot watch for signals", error))?;
    match &args.command {
        FileCommand::Read(args) => read(args),
        FileCommand::Autosize(args) => autosize(args),
        FileCommand::Cache(args) => super::file_cache::cache(args),
    }
}

fn read(args: &ReadArgs) -> Done {
    let until = match (args.count, args.seconds) {
        (Some(count), _) => Until::Requests(count),
        (None, Some(time)) => Until::Time(time),
        (None, None) => Until::Passes(1),
    };
    let order =
        if args.random { Order::Random { seed: args.seed.unwrap_or_else(any_seed) } } else { Order::Sequential };
    let timer = (!args.no_latency).then(Timer::new);
    let job = Job {
        order,
        until,
        digest: !args.no_digest,
        latencies: timer.as_ref().map(|timer| (timer.clock, timer.hertz)),
        ..described(&args.file, &args.how, args.size)?
    };
    if args.drop_caches {
        drop_caches(&job)?;
    }
    let done = job::run(&job).map_err(Fault::because)?;
    let mut found = Found::new(&job, &done, timer.as_ref());
    if args.drop_caches {
        found
            .notes
            .push(format!("all caches of the machine were dropped before (3 written to {})", cache::DROP_CACHES));
    }
    print(args.json, &found, |found| found.lines(&done))
}

/// Drops all caches of the machine, for a job that asks for a file that is not in memory.
fn drop_caches(job: &Job) -> Result<(), Fault> {
    if job.state != State::Uncached {
        return Err(Fault::because(format!(
            "--drop-caches: it goes with --cache uncached, not with --cache {}",
            job.state.name().replace(' ', "-")
        )));
    }
    cache::drop_all(&job.target).map_err(|error| Fault::new("--drop-caches", error))
}

fn autosize(args: &AutosizeArgs) -> Done {
    let job = Job { until: Until::Time(args.seconds), ..described(&args.file, &args.how, None)? };
    let done = job::run(&job).map_err(Fault::because)?;
    let found = Found::new(&job, &done, None);
    print(args.json, &found, |found| {
        let mut lines = found.lines(&done);
        lines.insert(
            0,
            (
                "file size".into(),
                format!(
                    "{} takes {} in blocks of {}",
                    units::bytes(done.total.bytes),
                    units::seconds(done.nanoseconds as f64 / 1e9),
                    units::bytes(job.block as u64),
                ),
            ),
        );
        if done.passes > 0 {
            let said = format!(
                "{} whole {} over a file of {}: after the first it is the rate of what is in memory",
                units::count(done.passes),
                if done.passes == 1 { "pass" } else { "passes" },
                units::bytes(job.target.bytes()),
            );
            lines.insert(1, ("passes".into(), said));
        }
        lines
    })
}

/// What both have in common: a pass over a file in one way.
fn described(path: &std::path::Path, how: &HowArgs, size: Option<u64>) -> Result<Job, Fault> {
    let target = Target::find(path).map_err(Fault::because)?;
    let engine = how.engine.with_depth(how.depth).map_err(|error| Fault::new("--depth", error))?;
    let range = 0..size.unwrap_or(target.bytes());
    if range.end > target.bytes() {
        let has = units::bytes(target.bytes());
        return Err(Fault::because(format!("--size {}: {} has only {has}", range.end, path.display())));
    }
    if target.bytes() == 0 {
        return Err(Fault::because(format!("{} is empty: there is nothing to read", path.display())));
    }
    Ok(Job {
        target,
        engine,
        block: how.block,
        order: Order::Sequential,
        state: State::from(how.cache),
        threads: how.threads,
        range,
        until: Until::Passes(1),
        digest: false,
        latencies: None,
    })
}

/// A clock for latencies, and what it costs to use it.
struct Timer {
    clock: Clock,
    hertz: f64,
    cost: f64,
}

impl Timer {
    fn new() -> Self {
        let (_, clock, _) = best_clock();
        let hertz = clock::calibrate(clock, CALIBRATION).hertz;
        Self { clock, hertz, cost: recording_cost(clock, hertz) }
    }
}

fn any_seed() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
}

/// What was found, for JSON.
#[derive(Serialize)]
struct Found {
    file: String,
    file_bytes: u64,
    file_system: String,
    engine: &'static str,
    block_bytes: usize,
    depth: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    achieved_depth: Option<f64>,
    threads: u32,
    order: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
    cache: &'static str,
    before: InMemory,
    after: InMemory,
    bytes: u64,
    requests: u64,
    passes: u64,
    seconds: f64,
    bytes_per_second: f64,
    requests_per_second: f64,
    user_seconds: f64,
    system_seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
    device: DeviceBytes,
    #[serde(skip_serializing_if = "Option::is_none")]
    latency: Option<Latency>,
    bytes_by_second: Vec<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    by_thread: Vec<ThreadShare>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fairness: Option<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
}

#[derive(Serialize)]
struct InMemory {
    pages: u64,
    mincore: u64,
    cachestat: Option<u64>,
}

impl From<Residency> for InMemory {
    fn from(found: Residency) -> Self {
        Self { pages: found.pages, mincore: found.mincore, cachestat: found.cachestat }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum DeviceBytes {
    Known { name: String, read: u64 },
    Unknown { reason: String },
}

#[derive(Serialize)]
struct ThreadShare {
    bytes: u64,
    seconds: f64,
}

/// Times of single requests, in nanoseconds.
#[derive(Serialize)]
struct Latency {
    mean: f64,
    p50: f64,
    p90: f64,
    p99: f64,
    p999: f64,
    longest: f64,
    recording_cost: f64,
}

impl Found {
    fn new(job: &Job, done: &Read, timer: Option<&Timer>) -> Self {
        let latency = done.latencies.as_ref().zip(timer).and_then(|(histogram, timer)| {
            Some(Latency {
                mean: histogram.mean()?,
                p50: histogram.quantile(0.5)?,
                p90: histogram.quantile(0.9)?,
                p99: histogram.quantile(0.99)?,
                p999: histogram.quantile(0.999)?,
                longest: histogram.longest()?,
                recording_cost: timer.cost,
            })
        });
        let share =
            |&(tally, time): &(kelvin_file::Tally, u64)| ThreadShare { bytes: tally.bytes, seconds: time as f64 / 1e9 };
        let several = done.threads.len() > 1;
        Self {
            file: job.target.path().display().to_string(),
            file_bytes: job.target.bytes(),
            file_system: kelvin_sys::fs::kind(job.target.path())
                .map_or_else(|error| error.to_string(), |kind| kind.name()),
            engine: job.engine.name(),
            block_bytes: job.block,
            depth: job.engine.depth(),
            achieved_depth: done.achieved_depth,
            threads: job.threads,
            order: if job.order == Order::Sequential { "sequential" } else { "random" },
            seed: match job.order {
                Order::Sequential => None,
                Order::Random { seed } => Some(seed),
            },
            cache: job.state.name(),
            before: done.before.into(),
            after: done.after.into(),
            bytes: done.total.bytes,
            requests: done.total.requests,
            passes: done.passes,
            seconds: done.nanoseconds as f64 / 1e9,
            bytes_per_second: done.rate(),
            requests_per_second: done.requests_per_second(),
            user_seconds: done.used.user as f64 / 1e9,
            system_seconds: done.used.system as f64 / 1e9,
            digest: done.digest.map(|digest| digest.to_string()),
            device: match &done.device {
                Ok((name, moved)) => DeviceBytes::Known { name: name.clone(), read: moved.read },
                Err(reason) => DeviceBytes::Unknown { reason: reason.clone() },
            },
            latency,
            bytes_by_second: done.series.clone(),
            by_thread: if several { done.threads.iter().map(share).collect() } else { Vec::new() },
            fairness: several.then(|| done.fairness()),
            notes: done.notes.clone(),
        }
    }

    /// What people read: a label and a text.
    fn lines(&self, done: &Read) -> Vec<(String, String)> {
        let mut lines = vec![
            (
                "file".into(),
                format!("{}, {}, {}", text::clean(&self.file), units::bytes(self.file_bytes), self.file_system),
            ),
            ("way".into(), self.way()),
            (
                "cache".into(),
                format!("{}: {} before, {} after", self.cache, in_memory(done.before), in_memory(done.after)),
            ),
            ("device".into(), self.device_line()),
        ];
        let mut add = |label: &str, text: String| lines.push((label.into(), text));
        if let Some(digest) = &self.digest {
            let passes = if self.passes > 1 { " over all passes" } else { "" };
            add("digest", format!("{digest}{passes}"));
        }
        add("read", format!("{} in {} requests", units::bytes(self.bytes), units::count(self.requests)));
        let used = self.user_seconds + self.system_seconds;
        add(
            "time",
            format!(
                "{}; {} of a CPU, {} of that in the kernel",
                units::seconds(self.seconds),
                units::share(used / self.seconds),
                units::share(if used > 0.0 { self.system_seconds / used } else { 0.0 }),
            ),
        );
        add(
            "rate",
            format!(
                "{}, {}",
                units::plain(self.bytes_per_second, Unit::BytesPerSecond),
                units::plain(self.requests_per_second, Unit::PerSecond).replace("/s", " requests/s"),
            ),
        );
        if let Some(latency) = &self.latency {
            let time = |value| units::plain(value, Unit::Nanoseconds);
            add(
                "latency",
                format!(
                    "median {}, 90 % {}, 99 % {}, 99.9 % {}, longest {}",
                    time(latency.p50),
                    time(latency.p90),
                    time(latency.p99),
                    time(latency.p999),
                    time(latency.longest),
                ),
            );
            add("", format!("timing a request costs {} of it", time(latency.recording_cost)));
        }
        if let Some(fairness) = self.fairness {
            let rates = self.by_thread.iter().map(|thread| thread.bytes as f64 / thread.seconds);
            let (least, most) =
                rates.fold((f64::INFINITY, 0.0f64), |(least, most), rate| (least.min(rate), most.max(rate)));
            add(
                "threads",
                format!("{} each; Jain's fairness {fairness:.3}", units::span(least, most, Unit::BytesPerSecond),),
            );
        }
        for note in &self.notes {
            add("note", note.clone());
        }
        lines
    }

    fn way(&self) -> String {
        let depth = match self.achieved_depth {
            Some(achieved) if self.depth > 1 => format!(", depth {} ({achieved:.1} achieved)", self.depth),
            _ => String::new(),
        };
        let threads = if self.threads == 1 { "1 thread".to_owned() } else { format!("{} threads", self.threads) };
        format!(
            "{}, blocks of {}, {}{depth}, {threads}",
            self.engine,
            units::bytes(self.block_bytes as u64),
            self.order
        )
    }

    fn device_line(&self) -> String {
        match &self.device {
            DeviceBytes::Known { name, read } => {
                format!(
                    "{name} read {}, {} of what was read",
                    units::bytes(*read),
                    units::share(*read as f64 / self.bytes.max(1) as f64)
                )
            }
            DeviceBytes::Unknown { reason } => format!("not known: {reason}"),
        }
    }
}

/// `all in memory`, `none in memory`, `37 % in memory`, or that the two witnesses differ.
fn in_memory(found: Residency) -> String {
    match found.share() {
        _ if found.is_whole() => "all in memory".into(),
        Some(0.0) => "none in memory".into(),
        Some(share) => format!("{} in memory", units::share(share)),
        None => format!("not known how much in memory ({found})"),
    }
}

/// Prints JSON, or labelled lines.
pub(super) fn print<T: Serialize>(json: bool, found: &T, lines: impl FnOnce(&T) -> Vec<(String, String)>) -> Done {
    output::print(|out| {
        if json {
            serde_json::to_writer_pretty(&mut *out, found)?;
            return writeln!(out);
        }
        const LABEL: usize = 10;
        let width = output::width();
        for (label, text) in lines(found) {
            for (number, line) in text::wrap(&text, width.saturating_sub(LABEL)).into_iter().enumerate() {
                let label = if number == 0 { label.as_str() } else { "" };
                writeln!(out, "{label:LABEL$}{line}")?;
            }
        }
        Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
}
