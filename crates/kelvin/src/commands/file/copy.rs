//! `kelvin file copy`: a file copied to a new one by one method.

use std::collections::BTreeMap;

use kelvin_core::Unit;
use kelvin_file::Target;
use kelvin_file::cache::Residency;
use kelvin_file::copy::{
    self, CopyBottleneck, CopyJob, CopyMethod, CopyResult, MIN_BOTTLENECK_SHARE, MethodChoice, RateRange,
    TimeBreakdown, VerifiedFrom,
};
use kelvin_report::{text, units};
use serde::Serialize;

use super::figures::{self, DeviceBytes, Lines, TransferFigures, TransferKind};
use super::read::residency_text;
use super::{LatencyTimer, to_cli_error};
use crate::answer::AnswerOutlet;
use crate::cli::CopyArgs;
use crate::cli_error::CliError;
use crate::progress::StatusLine;

/// Block size where none is asked for: that of cp in coreutils 9 (`IO_BUFSIZE`).
const DEFAULT_BLOCK: usize = 128 << 10;

/// `kelvin file copy`.
pub(super) fn copy(args: &CopyArgs) -> Result<(), CliError> {
    let outlet = AnswerOutlet::find(&args.answer)?;
    let timer = (!args.no_latency).then(LatencyTimer::new);
    let job = copy_job(args, timer.as_ref())?;
    let progress = StatusLine::after_delay();
    let result =
        copy::run(&job, &|bytes| progress.show_bytes(bytes, Some(job.source.bytes()))).map_err(to_cli_error)?;
    drop(progress);
    let report = CopyReport::new(&job, &result, timer.as_ref());
    figures::write_result(outlet, &report, || report.lines(&job, &result))
}

fn copy_job(args: &CopyArgs, timer: Option<&LatencyTimer>) -> Result<CopyJob, CliError> {
    if args.target.is_dir() {
        let (target, name) = (args.target.display(), args.source.file_name().unwrap_or_default());
        let suggestion = args.target.join(name);
        bail!("{target} is a directory: name the copy, such as {}", suggestion.display());
    }
    if args.method == MethodChoice::Only(CopyMethod::Reflink) && args.block.is_some() {
        bail!("--block: --method reflink shares all blocks by one call; leave it out");
    }
    Ok(CopyJob {
        source: Target::find(&args.source).map_err(to_cli_error)?,
        path: args.target.clone(),
        replace: args.overwrite,
        method: args.method,
        block: args.block.unwrap_or(DEFAULT_BLOCK),
        sync: args.sync,
        state: args.cache,
        verify: args.verify,
        latencies: timer.map(|timer| timer.clock),
    })
}

/// The report, for JSON.
#[derive(Serialize)]
struct CopyReport {
    source: String,
    source_bytes: u64,
    source_file_system: String,
    target: String,
    target_file_system: String,
    requested_method: &'static str,
    method: &'static str,
    /// Why methods that were tried before could not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    impossible_methods: Vec<String>,
    /// Most bytes of a call; none of a reflink, which is one call for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    block_bytes: Option<usize>,
    calls: BTreeMap<&'static str, u64>,
    holes: u64,
    hole_bytes: u64,
    cache: &'static str,
    /// Of the source, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<Residency>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<Residency>,
    source_device: DeviceBytes,
    sync: &'static str,
    /// Seconds of the flush at the end, which are part of the time.
    #[serde(skip_serializing_if = "Option::is_none")]
    flush_seconds: Option<f64>,
    /// Bytes that were not yet on the device when the time ended.
    unwritten_bytes: Option<u64>,
    /// How all bytes were compared afterwards, if they were.
    #[serde(skip_serializing_if = "Option::is_none")]
    compared: Option<&'static str>,
    limit: &'static str,
    limit_share: f64,
    time: TimeShares,
    /// The expected rate from memory to memory, in bytes per second. It comes from costs in nanoseconds a byte.
    #[serde(skip_serializing_if = "Option::is_none")]
    expected: Option<RateRange>,
    #[serde(skip_serializing_if = "Option::is_none")]
    no_expectation_reason: Option<String>,
    #[serde(flatten)]
    figures: TransferFigures,
}

/// Shares of the time, 0 to 1.
#[derive(Serialize)]
struct TimeShares {
    cpu: f64,
    /// None where the kernel does not count it, which leaves what it waited for unknown as well.
    #[serde(skip_serializing_if = "Option::is_none")]
    off_cpu: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    waiting: Option<f64>,
    flushing: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    reading: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    writing: Option<f64>,
}

impl TimeShares {
    fn of(breakdown: TimeBreakdown) -> Self {
        let shares = |part: Option<u64>| part.map(|part| breakdown.share(part));
        Self {
            cpu: breakdown.share(breakdown.cpu),
            off_cpu: shares(breakdown.run_queue),
            waiting: shares(breakdown.run_queue.map(|_| breakdown.waiting())),
            flushing: breakdown.share(breakdown.flush),
            reading: shares(breakdown.reading),
            writing: shares(breakdown.writing),
        }
    }
}

impl CopyReport {
    fn new(job: &CopyJob, result: &CopyResult, timer: Option<&LatencyTimer>) -> Self {
        let page = kelvin_sys::mapping::page_bytes() as u64;
        let breakdown = result.breakdown;
        let (limit, limit_share) = result.bottleneck();
        let file_bytes = result.io.total.bytes + result.holes.bytes;
        Self {
            source: job.source.path().display().to_string(),
            source_bytes: job.source.bytes(),
            source_file_system: figures::file_system_name(job.source.path()),
            target: job.path.display().to_string(),
            target_file_system: figures::file_system_name(&job.path),
            requested_method: job.method.name(),
            method: result.method.name(),
            impossible_methods: result.refusals.clone(),
            block_bytes: (result.method != CopyMethod::Reflink).then_some(job.block),
            calls: result.calls.nonzero().into_iter().collect(),
            holes: result.holes.count,
            hole_bytes: result.holes.bytes,
            cache: job.state.name(),
            before: result.is_residency_known.then_some(result.io.before),
            after: result.is_residency_known.then_some(result.io.after),
            source_device: DeviceBytes::new(&result.source_device, result.io.cpu_usage.read_from_device),
            sync: job.sync.name(),
            flush_seconds: (breakdown.flush > 0).then_some(breakdown.flush as f64 / 1e9),
            unwritten_bytes: result.dirty_pages.map(|pages| (pages * page).min(file_bytes)),
            compared: result.verified.map(|source| match source {
                VerifiedFrom::InMemory => "in memory",
                VerifiedFrom::FromDevice => "from its device",
            }),
            limit: limit_texts(limit).0,
            limit_share,
            time: TimeShares::of(breakdown),
            expected: result.expected.as_ref().ok().copied(),
            no_expectation_reason: result.expected.as_ref().err().cloned(),
            figures: TransferFigures::new(TransferKind::Copied, &result.io, timer),
        }
    }

    /// The labelled lines for people.
    fn lines(&self, job: &CopyJob, result: &CopyResult) -> Lines {
        let file =
            |path: &str, bytes: u64, system: &str| format!("{}, {}, {system}", text::clean(path), units::bytes(bytes));
        let bytes = result.io.total.bytes;
        let cache = match (self.before, self.after) {
            (Some(before), Some(after)) => {
                format!("source {} before, {} after", residency_text(before), residency_text(after))
            }
            _ => "not known of the source: its file system has no mappings".into(),
        };
        let source_line = self.source_device.line(TransferKind::Read, bytes);
        let target_line = self.figures.device_line();
        let calls: Vec<String> =
            result.calls.nonzero().iter().map(|(name, count)| format!("{} {name}", units::count(*count))).collect();
        let blocks = match self.block_bytes {
            Some(block) => format!(", blocks of {}", units::exact_bytes(block as u64)),
            None => ": source and target share their blocks until one of them is written".into(),
        };
        let failures: String = self.impossible_methods.iter().map(|reason| format!("; {reason}")).collect();
        let mut lines = vec![
            ("source", file(&self.source, self.source_bytes, &self.source_file_system)),
            ("target", file(&self.target, bytes + self.hole_bytes, &self.target_file_system)),
            ("method", format!("{}{blocks}{failures}", self.method)),
            ("calls", format!("{}: {}", units::plural(result.calls.total(), "system call"), calls.join(", "))),
            ("cache", format!("{}: {cache}", self.cache)),
            (
                "device",
                if source_line == target_line {
                    source_line
                } else {
                    format!("source: {source_line}; target: {target_line}")
                },
            ),
            ("sync", figures::sync_text(job.sync, "call", self.flush_seconds, self.unwritten_bytes)),
        ];
        lines.extend(self.holes_line(result).map(|line| ("holes", line)));
        let verified = self.compared.map(|origin| format!("all bytes are those of the source, read {origin}"));
        lines.extend(verified.map(|line| ("verified", line)));
        let mut figures = self.figures.lines();
        // After the rate: what made it, and what it should be.
        let rate = figures.iter().position(|(label, _)| *label == "rate").map_or(figures.len(), |rate| rate + 1);
        figures.splice(rate..rate, [("limit", self.limit_line(result)), ("expected", self.expected_line(result))]);
        lines.extend(figures);
        lines
    }

    /// What became of holes, if the source has any, or may have.
    fn holes_line(&self, result: &CopyResult) -> Option<String> {
        if result.holes.is_layout_unknown {
            let reason = "the source takes less room than it has bytes, and its file system shows no hole: all bytes were copied";
            return Some(reason.into());
        }
        let bytes = units::bytes(self.hole_bytes);
        (self.holes > 0).then(|| format!("{} of {bytes} in all, kept", units::plural(self.holes, "hole")))
    }

    fn limit_line(&self, result: &CopyResult) -> String {
        let (limit, share) = result.bottleneck();
        if result.io.total.bytes == 0 {
            return "nothing was copied".into();
        }
        let share_text = format!("{} of the time", units::share(share));
        let is_in_calls = !matches!(limit, CopyBottleneck::OtherWork | CopyBottleneck::Flush);
        let split = match (self.time.reading, self.time.writing) {
            (Some(reading), Some(writing)) if is_in_calls => {
                format!(", {} of it in pread and {} in pwrite", units::share(reading), units::share(writing))
            }
            _ => String::new(),
        };
        let summary = format!("{} {share_text}{split}", limit_texts(limit).1);
        if share < MIN_BOTTLENECK_SHARE { format!("no part alone; most {summary}") } else { summary }
    }

    fn expected_line(&self, result: &CopyResult) -> String {
        let expected = match &result.expected {
            Ok(expected) => expected,
            Err(reason) => return format!("not known: {reason}"),
        };
        let range = units::span(expected.low, expected.high, Unit::BytesPerSecond);
        let block = self.block_bytes.unwrap_or_default() as f64;
        let cost = |per_byte: f64| units::value_text(per_byte * block, Unit::Nanoseconds);
        let (read, write) = (cost(expected.costs.reading), cost(expected.costs.writing));
        let explanation = match result.method {
            CopyMethod::ReadWrite => {
                format!("a block takes {read} to read from memory and {write} to write to a new file")
            }
            _ => format!("a block takes {write} to write to a new file from memory, and at most {read} to read before"),
        };
        let rate = self.figures.bytes_per_second;
        let verdict = match result.bottleneck() {
            _ if rate > expected.high => "; the rate is above it, not explained".into(),
            _ if rate >= expected.low => String::new(),
            (CopyBottleneck::Cpu, _) => "; the rate is below it, not explained".to_owned(),
            (limit, share) => format!("; below it for {}, {} of the time", limit_texts(limit).0, units::share(share)),
        };
        format!("{range} from memory to memory: {explanation}{verdict}")
    }
}

/// What limited a copy, for programs and after "for"; and before its share of the time.
fn limit_texts(limit: CopyBottleneck) -> (&'static str, &'static str) {
    match limit {
        CopyBottleneck::Cpu => ("the CPU", "the CPU, busy"),
        CopyBottleneck::OtherWork => ("other work on the CPU", "other work, which had the CPU"),
        CopyBottleneck::Source => ("waiting for the source", "reading the source, which was waited for"),
        CopyBottleneck::Target => ("waiting for the target", "writing the target, which was waited for"),
        CopyBottleneck::Flush => ("the flush", "the flush,"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uncounted_time_is_none() {
        let time_shares =
            |run_queue| TimeShares::of(TimeBreakdown { total: 100, cpu: 40, run_queue, ..TimeBreakdown::default() });
        let off_cpu_and_waiting = |run_queue| (time_shares(run_queue).off_cpu, time_shares(run_queue).waiting);
        assert_eq!(off_cpu_and_waiting(Some(10)), (Some(0.1), Some(0.5)));
        assert_eq!(off_cpu_and_waiting(None), (None, None));
    }
}
