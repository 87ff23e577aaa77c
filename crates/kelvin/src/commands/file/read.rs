//! `kelvin file read` and `kelvin file autosize`: a user's file, read by one method.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use kelvin_file::cache::{self, PageCacheState, Residency};
use kelvin_file::read_job::{self, Division, EndCondition, IoResult as Read, ReadJob};
use kelvin_file::{BlockOrder, Target};
use kelvin_report::units;
use serde::Serialize;

use super::figures::{self, FileAccess, Lines, TransferFigures, TransferKind};
use super::{LatencyTimer, to_cli_error};
use crate::answer::AnswerOutlet;
use crate::cli::{AccessArgs, AutosizeArgs, ReadArgs};
use crate::cli_error::{CliError, Context};
use crate::progress::show_time_progress;

/// `kelvin file read`.
pub(super) fn read(args: &ReadArgs) -> Result<(), CliError> {
    let outlet = AnswerOutlet::find(&args.answer)?;
    let end = match (args.count, args.seconds) {
        (Some(count), _) => EndCondition::Requests(count),
        (None, Some(time)) => EndCondition::Time(time),
        (None, None) => EndCondition::Passes(1),
    };
    let order = if args.random {
        let clock = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
        BlockOrder::Random { seed: args.seed.unwrap_or_else(clock) }
    } else {
        BlockOrder::Sequential
    };
    let timer = (!args.no_latency).then(LatencyTimer::new);
    let job = ReadJob {
        order,
        until: end,
        digest: !args.no_digest,
        latencies: timer.as_ref().map(|timer| timer.clock),
        ..read_job(&args.file, &args.how, args.size)?
    };
    if args.drop_caches {
        drop_caches(&job)?;
    }
    let mut result = read_with_progress(&job)?;
    if args.drop_caches {
        result
            .notes
            .push(format!("all caches of the machine were dropped first (3 written to {})", cache::DROP_CACHES));
    }
    result.notes.extend(server_memory_note(&job));
    let report = ReadReport::new(&job, &result, timer.as_ref());
    figures::write_result(outlet, &report, || report.lines())
}

/// Reads, with the time that is left on a terminal where it is known.
fn read_with_progress(job: &ReadJob) -> Result<Read, CliError> {
    let result = match job.until {
        EndCondition::Time(time) => show_time_progress(time, || read_job::run(job)),
        EndCondition::Passes(_) | EndCondition::Requests(_) => read_job::run(job),
    };
    result.map_err(to_cli_error)
}

/// What the proof of a cache state does not cover: the memory of the server of the file system.
fn server_memory_note(job: &ReadJob) -> Option<String> {
    let kind = kelvin_sys::fs::kind(job.target.path()).ok().filter(|kind| kind.is_served())?;
    matches!(job.state, PageCacheState::Uncached | PageCacheState::Direct).then(|| {
        format!(
            "another program or machine serves this file system ({}): its own cache is neither seen nor dropped",
            kind.name()
        )
    })
}

/// Drops all caches of the machine, for a job that asks for a file that is not in memory.
fn drop_caches(job: &ReadJob) -> Result<(), CliError> {
    if job.state != PageCacheState::Uncached {
        bail!("--drop-caches: needs --cache uncached, not --cache {}", job.state.name().replace(' ', "-"));
    }
    cache::drop_all_caches(&job.target).context("--drop-caches")
}

/// `kelvin file autosize`.
pub(super) fn autosize(args: &AutosizeArgs) -> Result<(), CliError> {
    let outlet = AnswerOutlet::find(&args.answer)?;
    let job = ReadJob { until: EndCondition::Time(args.seconds), ..read_job(&args.file, &args.how, None)? };
    let result = read_with_progress(&job)?;
    let report = ReadReport::new(&job, &result, None);
    figures::write_result(outlet, &report, || {
        let mut lines = report.lines();
        let (bytes, seconds) = (units::bytes(result.total.bytes), units::seconds(result.nanoseconds as f64 / 1e9));
        let block = units::exact_bytes(job.block as u64);
        lines.insert(0, ("file size", format!("{bytes} takes {seconds} in blocks of {block}")));
        if result.passes > 0 {
            let passes =
                format!("{} whole {}", units::count(result.passes), if result.passes == 1 { "pass" } else { "passes" });
            let bytes = units::bytes(job.target.bytes());
            let rate = format!("{passes} over a file of {bytes}: after the first this is the rate from memory");
            lines.insert(1, ("passes", rate));
        }
        lines
    })
}

/// What both share: passes over a file by one method.
fn read_job(path: &Path, access: &AccessArgs, size: Option<u64>) -> Result<ReadJob, CliError> {
    let target = Target::find(path).map_err(to_cli_error)?;
    target.check_end().map_err(to_cli_error)?;
    let engine = access.engine.with_depth(access.depth).map_err(to_cli_error)?;
    let range = 0..size.unwrap_or(target.bytes());
    if range.end > target.bytes() {
        let file_size = units::bytes(target.bytes());
        bail!("--size {}: {} has only {file_size}", range.end, path.display());
    }
    if target.bytes() == 0 {
        bail!("{} is empty: there is nothing to read", path.display());
    }
    Ok(ReadJob {
        target,
        engine,
        block: access.block,
        order: BlockOrder::Sequential,
        state: access.cache,
        threads: access.threads,
        division: Division::Parts,
        pages: access.pages,
        range,
        until: EndCondition::Passes(1),
        digest: false,
        latencies: None,
    })
}

/// The report, for JSON.
#[derive(Serialize)]
struct ReadReport {
    #[serde(flatten)]
    access: FileAccess,
    order: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
    pages: &'static str,
    cache: &'static str,
    before: Residency,
    after: Residency,
    #[serde(flatten)]
    figures: TransferFigures,
}

impl ReadReport {
    fn new(job: &ReadJob, result: &Read, timer: Option<&LatencyTimer>) -> Self {
        let (order, seed) = match job.order {
            BlockOrder::Sequential => ("sequential", None),
            BlockOrder::Random { seed } => ("random", Some(seed)),
        };
        Self {
            access: FileAccess {
                file: job.target.path().display().to_string(),
                file_bytes: job.target.bytes(),
                file_system: figures::file_system_name(job.target.path()),
                engine: job.engine.name(),
                block_bytes: job.block,
                depth: job.engine.depth(),
                threads: job.threads,
            },
            order,
            seed,
            pages: job.pages.name(),
            cache: job.state.name(),
            before: result.before,
            after: result.after,
            figures: TransferFigures::new(TransferKind::Read, result, timer),
        }
    }

    /// The labelled lines for people.
    fn lines(&self) -> Lines {
        let mut lines = self.access.lines(&format!(", {}", self.order), self.pages, &self.figures);
        let [before, after] = [self.before, self.after].map(residency_text);
        lines.push(("cache", format!("{}: {before} before, {after} after", self.cache)));
        lines.push(("device", self.figures.device_line()));
        lines.extend(self.figures.lines());
        lines
    }
}

/// `all in memory`, `none in memory`, `37 % in memory`, or that the two sources disagree.
pub(super) fn residency_text(residency: Residency) -> String {
    match residency.share() {
        _ if residency.is_complete() => "all in memory".into(),
        Some(0.0) => "none in memory".into(),
        Some(share) => format!("{} in memory", units::share(share)),
        None => format!("unknown share in memory ({residency})"),
    }
}
