//! `kelvin file cache`: how large the file cache can grow, and the proof by reading under a memory limit.

use std::ffi::OsString;
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::time::Duration;

use kelvin_core::{IndirectSort, Unit};
use kelvin_file::cgroup::{self, Cgroup};
use kelvin_file::page_cache_size::{self, PageCacheSize, SizeSample};
use kelvin_file::{Target, random_data};
use kelvin_machine::{BoundTerm, FileCache, FileCacheBound};
use kelvin_report::units;
use kelvin_sys::child::{ChildEnd, GuardedChild, WaitLimit};
use serde::{Deserialize, Serialize};

use super::figures::{self, Lines};
use crate::answer::AnswerOutlet;
use crate::cli::CacheArgs;
use crate::cli_error::{CliError, CmdResult, Context};
use crate::output;
use crate::progress::StatusLine;
use crate::run_plan::create_scratch_in;

/// Default limit: larger than any processor's caches, read in seconds.
const DEFAULT_LIMIT: u64 = 256 << 20;
/// Tries: other users of the machine take away pages or the disk, and then the figures contradict each other.
const MAX_TRIES: usize = 3;
/// Longest time for one size: a disk of 50 MB/s reads the largest file of a limit of 8 GiB twice in it.
const READ_TIMEOUT: Duration = Duration::from_secs(600);
/// Maximum bytes of an answer: one sample.
const MAX_ANSWER_BYTES: usize = 64 << 10;
/// The hidden sub-command that reads under the limit.
const PROCESS_COMMAND: &str = "file-cache-process";

/// `kelvin file cache`.
pub fn cache(args: &CacheArgs) -> CmdResult {
    let outlet = AnswerOutlet::find(&args.answer)?;
    let to_error = |error| CliError::new(args.directory.display(), error);
    if !std::fs::metadata(&args.directory).map_err(to_error)?.is_dir() {
        return Err(to_error(ErrorKind::NotADirectory.into()));
    }
    let file_cache = kelvin_machine::file_cache(Path::new("/")).map_err(CliError::msg)?;
    let limit = args.limit.unwrap_or(DEFAULT_LIMIT);
    let measurement = args.measure.then(|| measure(&args.directory, limit, &file_cache)).transpose()?;
    let report = CacheReport {
        bytes: file_cache.bounds.first().map_or(0, |bound| bound.bytes),
        now: file_cache,
        measured: measurement,
    };
    figures::write_result(outlet, &report, || report.lines())?;
    let is_proof = |outcome: &SearchOutcome| matches!(outcome, SearchOutcome::Found(end) if end.matches_limit);
    Ok(report.measured.is_none_or(|measurement| is_proof(&measurement.outcome)))
}

/// Reads files of growing size under a limit, and finds where they no longer stay in memory.
fn measure(directory: &Path, limit: u64, file_cache: &FileCache) -> Result<CacheMeasurement, CliError> {
    check_feasibility(directory, limit, file_cache)?;
    let group = Cgroup::create(cgroup::Controller::Memory).and_then(|group| group.limit_memory(limit).map(|()| group));
    let group = match group {
        Ok(group) => group,
        Err(error) => {
            let (sizes, failed_attempts) = (Vec::new(), Vec::new());
            let outcome = SearchOutcome::NotPossible(error.to_string());
            return Ok(CacheMeasurement { limit_bytes: limit, sizes, failed_attempts, outcome });
        }
    };
    let scratch = create_scratch_in(directory, "DIR")?;
    let largest = page_cache_size::largest_size(limit);
    notice!(
        "writing one file of {} in {}, removed afterwards, and reading up to {} of it (up to {MAX_TRIES} times as much \
         if disturbed), with {} of memory",
        units::bytes(largest),
        scratch.path().display(),
        units::bytes(page_cache_size::max_bytes_read(limit)),
        units::bytes(limit)
    );
    let file = scratch.path().join("data");
    random_data::write_file(&file, largest, 1).context(format_args!("cannot write {}", file.display()))?;
    let request = Request { cgroup_procs: group.procs_file().into(), file: file.into(), bytes: 0 };
    let mut failed_attempts = Vec::new();
    // Tries are never mixed.
    let (sizes, outcome) = loop {
        let mut samples = sample_all(&request, page_cache_size::initial_sizes(limit))?;
        samples.extend(sample_all(&request, page_cache_size::refined_sizes(&samples))?);
        samples.indirect_sort_by_key(|sample| sample.bytes);
        match page_cache_size::find_page_cache_size(&samples) {
            Ok(size) => break (samples, SearchOutcome::Found(CacheEnd::new(&size, limit))),
            Err(error) if error.is_disturbance() && failed_attempts.len() < MAX_TRIES - 1 => {
                notice!("{error}; trying again");
                failed_attempts.push(error.to_string());
            }
            Err(error) => break (samples, SearchOutcome::NotFound(error.to_string())),
        }
    };
    Ok(CacheMeasurement { limit_bytes: limit, sizes, failed_attempts, outcome })
}

/// Obstacles that can be seen beforehand.
fn check_feasibility(directory: &Path, limit: u64, file_cache: &FileCache) -> Result<(), CliError> {
    let limit_error = |reason: String| Err(CliError::new(format!("--limit {}", units::bytes(limit)), reason));
    if limit < page_cache_size::MIN_LIMIT {
        return limit_error(format!("it must be at least {}", units::bytes(page_cache_size::MIN_LIMIT)));
    }
    let capacity = file_cache.bounds.first().map_or(0, |bound| bound.bytes);
    let largest = page_cache_size::largest_size(limit);
    if largest > capacity {
        let (capacity, largest) = (units::bytes(capacity), units::bytes(largest));
        return limit_error(format!(
            "this needs files of up to {largest}, but the whole file cache can hold only {capacity}"
        ));
    }
    let to_error = |error| CliError::new(directory.display(), error);
    let kind = kelvin_sys::fs::kind(directory).map_err(to_error)?;
    if kind.is_in_memory() {
        let path = directory.display();
        bail!("{path} is on {}, which is memory: choose a directory on a disk", kind.name());
    }
    let available = kelvin_sys::fs::space(directory).map_err(to_error)?.available_bytes;
    if available < largest {
        return limit_error(format!(
            "this needs a file of {}, but {} has room for {}",
            units::bytes(largest),
            directory.display(),
            units::bytes(available)
        ));
    }
    Ok(())
}

/// The request to the process that reads under the limit: which group to enter, which part of which file to read.
#[derive(Clone, Serialize, Deserialize)]
struct Request {
    cgroup_procs: OsString,
    file: OsString,
    bytes: u64,
}

fn sample_all(request: &Request, sizes: Vec<u64>) -> Result<Vec<SizeSample>, CliError> {
    let line = StatusLine::new();
    let count = sizes.len();
    let sample_size = |(number, bytes)| {
        line.show(format_args!("{}/{count} sizes: {}", number + 1, mebibytes_text(bytes)));
        sample(&Request { bytes, ..request.clone() })
    };
    sizes.into_iter().enumerate().map(sample_size).collect()
}

/// Has a separate process enter the group and read: pages are charged to the group that reads them first.
fn sample(request: &Request) -> Result<SizeSample, CliError> {
    let action = format!("cannot read {} of {}", units::bytes(request.bytes), Path::new(&request.file).display());
    let program = std::env::current_exe().context(&action)?;
    let text = serde_json::to_vec(request).context(&action)?;
    let environment = [("RUST_BACKTRACE", "0")];
    let mut child = GuardedChild::spawn(program.as_os_str(), &[PROCESS_COMMAND], environment).context(&action)?;
    child.write_stdin(&text);
    let ending = child.wait(WaitLimit::fixed(READ_TIMEOUT), MAX_ANSWER_BYTES).context(&action)?;
    let reason = match ending.end {
        ChildEnd::Exited(0) => {
            let sample = serde_json::from_slice::<SizeSample>(&ending.output);
            return sample.context("the reading process gave a malformed answer").context(&action);
        }
        ChildEnd::Exited(_) => ending.stderr.trim_start_matches("kelvin: ").to_owned(),
        ChildEnd::Signalled(9) => "the reading process was killed: is the limit too small for it?".into(),
        ChildEnd::Signalled(signal) => format!("the reading process crashed with signal {signal}"),
        ChildEnd::TimedOut => format!("it took longer than {} s", READ_TIMEOUT.as_secs()),
        ChildEnd::TooMuchOutput => "the reading process's answer was too long".into(),
        ChildEnd::Interrupted => {
            let signal = kelvin_sys::stop_signals::stop_signal().unwrap_or("a signal");
            bail!("interrupted by {signal}");
        }
    };
    Err(CliError::new(action, reason))
}

/// The reading process: enters the group, reads, answers.
pub fn run_process() -> Result<(), CliError> {
    let mut text = Vec::new();
    std::io::stdin().read_to_end(&mut text)?;
    let request: Request = serde_json::from_slice(&text).context("bad request")?;
    cgroup::enter_cgroup(Path::new(&request.cgroup_procs))?;
    let target = Target::find(Path::new(&request.file))?;
    let sample = page_cache_size::measure_size(&target, request.bytes)?;
    output::print_json(&sample)
}

/// The report, for JSON.
#[derive(Serialize)]
struct CacheReport {
    bytes: u64,
    #[serde(flatten)]
    now: FileCache,
    #[serde(skip_serializing_if = "Option::is_none")]
    measured: Option<CacheMeasurement>,
}

/// What reading under a limit showed.
#[derive(Serialize)]
struct CacheMeasurement {
    limit_bytes: u64,
    sizes: Vec<SizeSample>,
    /// Why earlier tries found nothing.
    failed_attempts: Vec<String>,
    outcome: SearchOutcome,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum SearchOutcome {
    /// The end of the file cache.
    Found(CacheEnd),
    /// Why none was found.
    NotFound(String),
    /// Why it could not be looked for.
    NotPossible(String),
}

/// Where the file cache ends.
#[derive(Serialize)]
struct CacheEnd {
    bytes: u64,
    cached_bytes: u64,
    evicted_bytes: u64,
    above_limit: f64,
    matches_limit: bool,
    in_memory_nanoseconds: f64,
    missing_nanoseconds: f64,
    p: f64,
    resident_bytes: u64,
}

impl CacheEnd {
    fn new(size: &PageCacheSize, limit: u64) -> Self {
        let PageCacheSize { jump, resident } = *size;
        Self {
            bytes: size.bytes(),
            cached_bytes: jump.largest_before,
            evicted_bytes: jump.smallest_after,
            above_limit: size.error(limit),
            matches_limit: size.agrees(limit),
            in_memory_nanoseconds: jump.before,
            missing_nanoseconds: jump.after,
            p: jump.p,
            resident_bytes: resident,
        }
    }
}

impl CacheReport {
    fn lines(&self) -> Lines {
        let usage =
            self.now.current_bytes.map_or(String::new(), |bytes| format!("; {} in use now", mebibytes_text(bytes)));
        let mut lines = vec![("cache", format!("at most {}{usage}", mebibytes_text(self.bytes)))];
        let labels = ["because"].into_iter().chain(std::iter::repeat("and"));
        lines.extend(labels.zip(self.now.bounds.iter().map(bound_text)));
        lines.extend(self.measured.as_ref().map(CacheMeasurement::lines).unwrap_or_default());
        lines
    }
}

impl CacheMeasurement {
    fn lines(&self) -> Lines {
        let (limit, time) = (units::bytes(self.limit_bytes), |value| units::value_text(value, Unit::Nanoseconds));
        let mut lines = match &self.outcome {
            SearchOutcome::Found(end) => {
                let verdict = if end.matches_limit { "as it should be" } else { "NOT as it should be" };
                let sign = if end.above_limit < 0.0 { "below" } else { "above" };
                let size = format!(
                    "with {limit} of memory, the file cache ends between files of {} and {}: {} {sign} the limit, {verdict}",
                    mebibytes_text(end.cached_bytes),
                    mebibytes_text(end.evicted_bytes),
                    units::share(end.above_limit.abs()),
                );
                let jump = format!(
                    "a block of {} takes {} below that size and {} above it (p <= {}); of larger files {} stayed in memory",
                    units::bytes(page_cache_size::BLOCK as u64),
                    time(end.in_memory_nanoseconds),
                    time(end.missing_nanoseconds),
                    end.p,
                    mebibytes_text(end.resident_bytes),
                );
                vec![("measured", size), ("jump", jump)]
            }
            SearchOutcome::NotFound(reason) => {
                vec![("measured", format!("with {limit} of memory, no end of the file cache was found: {reason}"))]
            }
            SearchOutcome::NotPossible(reason) => vec![("measured", format!("not possible: {reason}"))],
        };
        lines.extend(self.failed_attempts.iter().map(|reason| ("earlier try", format!("found nothing: {reason}"))));
        let size_text = |size: &SizeSample| {
            format!(
                "{:>11} {:>10} per block, {} in memory",
                mebibytes_text(size.bytes),
                time(kelvin_stats::median(&size.block_nanoseconds)),
                units::share(size.resident as f64 / size.bytes.max(1) as f64),
            )
        };
        let labels = ["sizes"].into_iter().chain(std::iter::repeat(""));
        lines.extend(labels.zip(self.sizes.iter().map(size_text)));
        lines
    }
}

/// `the machine allows 22.9 GiB: free 21.9 GiB + pages of files 1.25 GiB - what the kernel keeps 0.27 GiB (...)`
fn bound_text(bound: &FileCacheBound) -> String {
    let mut sum = String::new();
    for BoundTerm { name, bytes } in &bound.terms {
        let sign = match bytes {
            ..0 => " - ",
            _ if sum.is_empty() => ": ",
            _ => " + ",
        };
        sum.push_str(&format!("{sign}{name} {}", mebibytes_text(bytes.unsigned_abs())));
    }
    format!("{} allows {}{sum} ({})", bound.set_by, mebibytes_text(bound.bytes), bound.source)
}

/// A size in a unit that shows a tenth of a percent.
fn mebibytes_text(bytes: u64) -> String {
    let mebibytes = bytes as f64 / f64::from(1 << 20);
    if mebibytes < 10_000.0 { format!("{mebibytes:.1} MiB") } else { format!("{:.1} GiB", mebibytes / 1024.0) }
}
