//! `kelvin file read` and `kelvin file autosize`: a user's file, read by one method.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use kelvin_file::cache::{self, Residency, State};
use kelvin_file::job::{self, Division, Done as Read, Job, Until};
use kelvin_file::{Order, Target};
use kelvin_report::{text, units};
use serde::Serialize;

use super::figures::{self, Figures, Transfer};
use super::{Timer, fault};
use crate::byte_progress;
use crate::cli::{AutosizeArgs, HowArgs, ReadArgs};
use crate::fault::{Done, Fault};

/// `kelvin file read`.
pub(super) fn read(args: &ReadArgs) -> Done {
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
        latencies: timer.as_ref().map(Timer::of_job),
        ..described(&args.file, &args.how, args.size)?
    };
    if args.drop_caches {
        drop_caches(&job)?;
    }
    let mut done = run(&job)?;
    if args.drop_caches {
        let said = format!("all caches of the machine were dropped first (3 written to {})", cache::DROP_CACHES);
        done.notes.push(said);
    }
    done.notes.extend(served(&job));
    let found = Found::new(&job, &done, timer.as_ref());
    figures::print(args.json, &found, || found.lines(&done))
}

/// Reads, with the time that is left on a terminal where it is known.
fn run(job: &Job) -> Result<Read, Fault> {
    let done = match job.until {
        Until::Time(time) => byte_progress::during(time, || job::run(job)),
        Until::Passes(_) | Until::Requests(_) => job::run(job),
    };
    done.map_err(fault)
}

/// What the proof of a cache state does not cover: the memory of the server of the file system.
fn served(job: &Job) -> Option<String> {
    let kind = kelvin_sys::fs::kind(job.target.path()).ok().filter(|kind| kind.is_served())?;
    matches!(job.state, State::Uncached | State::Direct).then(|| {
        format!(
            "another program or machine serves this file system ({}): its own cache is neither seen nor dropped",
            kind.name()
        )
    })
}

/// Drops all caches of the machine, for a job that asks for a file that is not in memory.
fn drop_caches(job: &Job) -> Result<(), Fault> {
    if job.state != State::Uncached {
        return Err(Fault::because(format!(
            "--drop-caches: needs --cache uncached, not --cache {}",
            job.state.name().replace(' ', "-")
        )));
    }
    cache::drop_all(&job.target).map_err(|error| Fault::new("--drop-caches", error))
}

/// `kelvin file autosize`.
pub(super) fn autosize(args: &AutosizeArgs) -> Done {
    let job = Job { until: Until::Time(args.seconds), ..described(&args.file, &args.how, None)? };
    let done = run(&job)?;
    let found = Found::new(&job, &done, None);
    figures::print(args.json, &found, || {
        let mut lines = found.lines(&done);
        lines.insert(
            0,
            (
                "file size".into(),
                format!(
                    "{} takes {} in blocks of {}",
                    units::bytes(done.total.bytes),
                    units::seconds(done.nanoseconds as f64 / 1e9),
                    units::exact_bytes(job.block as u64),
                ),
            ),
        );
        if done.passes > 0 {
            let said = format!(
                "{} whole {} over a file of {}: after the first this is the rate from memory",
                units::count(done.passes),
                if done.passes == 1 { "pass" } else { "passes" },
                units::bytes(job.target.bytes()),
            );
            lines.insert(1, ("passes".into(), said));
        }
        lines
    })
}

/// What both share: passes over a file by one method.
fn described(path: &Path, how: &HowArgs, size: Option<u64>) -> Result<Job, Fault> {
    let target = Target::find(path).map_err(fault)?;
    target.check_end().map_err(fault)?;
    let engine = how.engine.with_depth(how.depth).map_err(fault)?;
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
        division: Division::Parts,
        pages: how.pages.into(),
        range,
        until: Until::Passes(1),
        digest: false,
        latencies: None,
    })
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
    threads: u32,
    order: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
    pages: &'static str,
    cache: &'static str,
    before: InMemory,
    after: InMemory,
    #[serde(flatten)]
    figures: Figures,
}

#[derive(Serialize)]
pub(super) struct InMemory {
    pages: u64,
    mincore: u64,
    cachestat: Option<u64>,
}

impl From<Residency> for InMemory {
    fn from(found: Residency) -> Self {
        Self { pages: found.pages, mincore: found.mincore, cachestat: found.cachestat }
    }
}

impl Found {
    fn new(job: &Job, done: &Read, timer: Option<&Timer>) -> Self {
        Self {
            file: job.target.path().display().to_string(),
            file_bytes: job.target.bytes(),
            file_system: figures::file_system(job.target.path()),
            engine: job.engine.name(),
            block_bytes: job.block,
            depth: job.engine.depth(),
            threads: job.threads,
            order: if job.order == Order::Sequential { "sequential" } else { "random" },
            seed: match job.order {
                Order::Sequential => None,
                Order::Random { seed } => Some(seed),
            },
            pages: job.pages.name(),
            cache: job.state.name(),
            before: done.before.into(),
            after: done.after.into(),
            figures: Figures::new(Transfer::Read, done, timer),
        }
    }

    /// The labelled lines for people.
    fn lines(&self, done: &Read) -> Vec<(String, String)> {
        let way = format!(
            "{}, blocks of {}, {}{}, buffers in {} pages",
            self.engine,
            units::exact_bytes(self.block_bytes as u64),
            self.order,
            self.figures.concurrency(self.depth, self.threads),
            self.pages
        );
        let file = format!("{}, {}, {}", text::clean(&self.file), units::bytes(self.file_bytes), self.file_system);
        let cache = format!("{}: {} before, {} after", self.cache, in_memory(done.before), in_memory(done.after));
        let mut lines: Vec<(String, String)> = vec![
            ("file".into(), file),
            ("way".into(), way),
            ("cache".into(), cache),
            ("device".into(), self.figures.device_line()),
        ];
        lines.extend(self.figures.lines());
        lines
    }
}

/// `all in memory`, `none in memory`, `37 % in memory`, or that the two sources disagree.
pub(super) fn in_memory(found: Residency) -> String {
    match found.share() {
        _ if found.is_whole() => "all in memory".into(),
        Some(0.0) => "none in memory".into(),
        Some(share) => format!("{} in memory", units::share(share)),
        None => format!("unknown share in memory ({found})"),
    }
}
