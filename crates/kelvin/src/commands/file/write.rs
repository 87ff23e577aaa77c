//! `kelvin file write`: a new file, written by one method.

use kelvin_file::write_job::{self, Pattern, SyncMode, WriteJob, WriteResult};
use kelvin_report::units;
use serde::Serialize;

use super::figures::{self, FileAccess, Lines, TransferFigures, TransferKind};
use super::{LatencyTimer, to_cli_error};
use crate::answer::AnswerOutlet;
use crate::cli::WriteArgs;
use crate::cli_error::CliError;

/// `kelvin file write`.
pub(super) fn write(args: &WriteArgs) -> Result<(), CliError> {
    let outlet = AnswerOutlet::find(&args.answer)?;
    let engine = args.engine.with_depth(args.depth).map_err(to_cli_error)?;
    let bytes = match (args.size, args.count) {
        (Some(size), _) => size,
        (None, Some(count)) => count
            .checked_mul(args.block as u64)
            .filter(|&bytes| i64::try_from(bytes).is_ok())
            .ok_or_else(|| CliError::msg(format!("--count {count}: more blocks than a file can have")))?,
        (None, None) => bail!("give --size or --count: how much to write"),
    };
    let pattern = match (args.pattern, args.seed) {
        (Pattern::Random { seed }, requested_seed) => Pattern::Random { seed: requested_seed.unwrap_or(seed) },
        (byte, None) => byte,
        (Pattern::Byte(_), Some(_)) => bail!("--seed is for random data, but --pattern is a byte"),
    };
    let timer = (!args.no_latency).then(LatencyTimer::new);
    let job = WriteJob {
        path: args.file.clone(),
        replace: args.overwrite,
        engine,
        sync: args.sync,
        block: args.block,
        threads: args.threads,
        bytes,
        pattern,
        pages: args.pages,
        digest: !args.no_digest,
        latencies: timer.as_ref().map(|timer| timer.clock),
    };
    let result = write_job::run(&job).map_err(to_cli_error)?;
    let report = WriteReport::new(&job, &result, timer.as_ref());
    figures::write_result(outlet, &report, || report.lines(job.sync))
}

/// The report, for JSON.
#[derive(Serialize)]
struct WriteReport {
    #[serde(flatten)]
    access: FileAccess,
    pages: &'static str,
    sync: &'static str,
    pattern: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
    /// Nanoseconds of each request's time for a block of the pattern, outside of its latency.
    #[serde(skip_serializing_if = "Option::is_none")]
    pattern_cost: Option<f64>,
    /// Seconds of the flush at the end, which are part of the time.
    #[serde(skip_serializing_if = "Option::is_none")]
    flush_seconds: Option<f64>,
    /// Bytes that were not yet on the device when the time ended.
    unwritten_bytes: Option<u64>,
    #[serde(flatten)]
    figures: TransferFigures,
}

impl WriteReport {
    fn new(job: &WriteJob, result: &WriteResult, timer: Option<&LatencyTimer>) -> Self {
        let page = kelvin_sys::mapping::page_bytes() as u64;
        let (pattern, seed) = match job.pattern {
            Pattern::Random { seed } => ("random".into(), Some(seed)),
            Pattern::Byte(byte) => (format!("{byte:#04x}"), None),
        };
        Self {
            access: FileAccess {
                file: job.path.display().to_string(),
                file_bytes: job.bytes,
                file_system: figures::file_system_name(&job.path),
                engine: job.engine.name(),
                block_bytes: job.block,
                depth: job.engine.depth(),
                threads: job.threads,
            },
            pages: job.pages.name(),
            sync: job.sync.name(),
            pattern,
            seed,
            pattern_cost: seed.map(|_| job.pattern.fill_cost(job.block)),
            flush_seconds: result.flush.map(|nanoseconds| nanoseconds as f64 / 1e9),
            unwritten_bytes: result.dirty_pages.map(|pages| (pages * page).min(job.bytes)),
            figures: TransferFigures::new(TransferKind::Written, &result.io, timer),
        }
    }

    /// The labelled lines for people.
    fn lines(&self, mode: SyncMode) -> Lines {
        let mut lines = self.access.lines("", self.pages, &self.figures);
        let pattern = match (self.seed, self.pattern_cost) {
            (Some(seed), Some(cost)) => format!(
                "random data of seed {seed}; generating a block takes {}, included in the time but in no latency",
                units::value_text(cost, kelvin_core::Unit::Nanoseconds)
            ),
            _ => format!("byte {}, which compresses to almost nothing", self.pattern),
        };
        let sync = figures::sync_text(mode, "write", self.flush_seconds, self.unwritten_bytes);
        lines.extend([("pattern", pattern), ("sync", sync), ("device", self.figures.device_line())]);
        lines.extend(self.figures.lines());
        lines
    }
}
