//! `kelvin file cache`: how large the file cache can grow, and the proof by reading under a memory limit.

use std::ffi::OsString;
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use kelvin_file::capacity::{self, Capacity, Doubt, Sample};
use kelvin_file::group::{self, Group};
use kelvin_file::{Target, noise};
use kelvin_machine::{Bound, FileCache};
use kelvin_model::Unit;
use kelvin_report::units;
use kelvin_sys::child::{End, Guarded, Patience};
use serde::{Deserialize, Serialize};

use crate::cli::CacheArgs;
use crate::fault::{Done, Fault, WITH_FAILURES};
use crate::output;
use crate::prepare::scratch_in;

/// Default limit: larger than any processor's caches, read in seconds.
const LIMIT: u64 = 256 << 20;
/// Tries: other users of the machine take away pages or the disk, and then the figures contradict each other.
const TRIES: u64 = 3;
/// Longest time for one size: a disk of 50 MB/s reads the largest file of a limit of 8 GiB twice in it.
const PATIENCE: Duration = Duration::from_secs(600);
/// Maximum bytes of an answer: one sample.
const MOST_BYTES: usize = 64 << 10;
/// The hidden sub-command that reads under the limit.
const PROCESS: &str = "file-cache-process";

/// `kelvin file cache`.
pub fn cache(args: &CacheArgs) -> Done {
    let failed = |error| Fault::new(args.directory.display(), error);
    if !std::fs::metadata(&args.directory).map_err(failed)?.is_dir() {
        return Err(failed(ErrorKind::NotADirectory.into()));
    }
    let quick = kelvin_machine::file_cache(Path::new("/")).map_err(Fault::because)?;
    let measured = match args.measure {
        true => Some(measure(&args.directory, args.limit.unwrap_or(LIMIT), &quick)?),
        false => None,
    };
    let found = Found::new(&quick, measured);
    super::figures::print(args.json, &found, || found.lines())?;
    let proven = found.measured.as_ref().is_none_or(|measured| measured.outcome.is_proof());
    Ok(if proven { ExitCode::SUCCESS } else { ExitCode::from(WITH_FAILURES) })
}

/// Reads files of growing size under a limit, and finds where they no longer stay in memory.
fn measure(directory: &Path, limit: u64, quick: &FileCache) -> Result<Measured, Fault> {
    check(directory, limit, quick)?;
    let group = match Group::make(group::Controller::Memory).and_then(|group| group.limit_memory(limit).map(|()| group))
    {
        Ok(group) => group,
        Err(error) => return Ok(Measured::of(limit, Search::default(), Outcome::NotPossible(error.to_string()))),
    };
    let scratch = scratch_in(directory, "DIR")?;
    let largest = capacity::largest(limit);
    output::remark(format!(
        "kelvin: writing one file of {} in {}, removed afterwards, and reading up to {} of it (up to {TRIES} times as much \
         if disturbed), with {} of memory",
        units::bytes(largest),
        scratch.path().display(),
        units::bytes(capacity::most_read(limit)),
        units::bytes(limit),
    ));
    let file = scratch.path().join("data");
    noise::file(&file, largest, 1).map_err(|error| Fault::new(format!("cannot write {}", file.display()), error))?;
    let request = Request { door: group.door().into(), file: file.into(), bytes: 0 };
    let (search, found) = search(&request, limit)?;
    let outcome = match found {
        Ok(capacity) => Outcome::Found(Place::new(&capacity, limit)),
        Err(doubt) => Outcome::NotFound(doubt.to_string()),
    };
    Ok(Measured::of(limit, search, outcome))
}

/// The reads that found it.
#[derive(Default)]
struct Search {
    samples: Vec<Sample>,
    /// Why earlier tries found nothing.
    doubts: Vec<Doubt>,
}

/// Looks for the end of the file cache until the figures of one try agree; tries are never mixed.
fn search(request: &Request, limit: u64) -> Result<(Search, Result<Capacity, Doubt>), Fault> {
    let mut doubts = Vec::new();
    loop {
        let mut samples = sample_all(request, capacity::sizes(limit))?;
        let finer = sample_all(request, capacity::finer(&samples))?;
        samples.extend(finer);
        samples.sort_by_key(|sample| sample.bytes);
        match capacity::find(&samples) {
            Err(doubt) if doubt.is_disturbance() && (doubts.len() as u64) < TRIES - 1 => {
                output::remark(format!("kelvin: {doubt}; trying again"));
                doubts.push(doubt);
            }
            found => return Ok((Search { samples, doubts }, found)),
        }
    }
}

/// Obstacles that can be seen beforehand.
fn check(directory: &Path, limit: u64, quick: &FileCache) -> Result<(), Fault> {
    let wrong = |why: String| Err(Fault::new(format!("--limit {}", units::bytes(limit)), why));
    if limit < capacity::LEAST_LIMIT {
        return wrong(format!("it must be at least {}", units::bytes(capacity::LEAST_LIMIT)));
    }
    let most = quick.bounds.first().map_or(0, |bound| bound.bytes);
    let largest = capacity::largest(limit);
    if largest > most {
        let (most, largest) = (units::bytes(most), units::bytes(largest));
        return wrong(format!("this needs files of up to {largest}, but the whole file cache can hold only {most}"));
    }
    let failed = |error| Fault::new(directory.display(), error);
    let kind = kelvin_sys::fs::kind(directory).map_err(failed)?;
    if kind.lives_in_memory() {
        let place = directory.display();
        return Err(Fault::because(format!(
            "{place} is on {}, which is memory: choose a directory on a disk",
            kind.name()
        )));
    }
    let room = kelvin_sys::fs::room(directory).map_err(failed)?.available_bytes;
    if room < largest {
        return wrong(format!(
            "this needs a file of {}, but {} has room for {}",
            units::bytes(largest),
            directory.display(),
            units::bytes(room)
        ));
    }
    Ok(())
}

/// The request to the process that reads under the limit: which group to enter, which part of which file to read.
#[derive(Clone, Serialize, Deserialize)]
struct Request {
    door: OsString,
    file: OsString,
    bytes: u64,
}

fn sample_all(request: &Request, sizes: Vec<u64>) -> Result<Vec<Sample>, Fault> {
    let line = output::Line::new();
    let count = sizes.len();
    let one = |(number, bytes)| {
        line.show(format_args!("{}/{count} sizes: {}", number + 1, mebibytes(bytes)));
        sample(&Request { bytes, ..request.clone() })
    };
    sizes.into_iter().enumerate().map(one).collect()
}

/// Has a separate process enter the group and read: pages are charged to the group that reads them first.
fn sample(request: &Request) -> Result<Sample, Fault> {
    let doing = || format!("cannot read {} of {}", units::bytes(request.bytes), Path::new(&request.file).display());
    let failed = |why: String| Fault::new(doing(), why);
    let program = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
    let text = serde_json::to_vec(request).map_err(|error| failed(error.to_string()))?;
    let environment = [("RUST_BACKTRACE", "0")];
    let mut child =
        Guarded::spawn(program.as_os_str(), &[PROCESS], environment).map_err(|error| failed(error.to_string()))?;
    child.give(&text);
    let ending = child.wait(Patience::exactly(PATIENCE), MOST_BYTES).map_err(|error| failed(error.to_string()))?;
    match ending.end {
        End::Exited(0) => serde_json::from_slice::<Size>(&ending.output)
            .map(Size::into_sample)
            .map_err(|error| failed(format!("the reading process gave a malformed answer: {error}"))),
        End::Exited(_) => Err(failed(ending.complaint.trim_start_matches("kelvin: ").to_owned())),
        End::Signalled(9) => Err(failed("the reading process was killed: is the limit too small for it?".into())),
        End::Signalled(signal) => Err(failed(format!("the reading process crashed with signal {signal}"))),
        End::TimedOut => Err(failed(format!("it took longer than {} s", PATIENCE.as_secs()))),
        End::TooMuchOutput => Err(failed("the reading process's answer was too long".into())),
        End::Interrupted => {
            Err(Fault::because(format!("interrupted by {}", kelvin_sys::interrupt::requested().unwrap_or("a signal"))))
        }
    }
}

/// The reading process: enters the group, reads, answers.
pub fn process() -> Done {
    let mut text = Vec::new();
    std::io::stdin().read_to_end(&mut text)?;
    let request: Request = serde_json::from_slice(&text).map_err(|error| Fault::new("bad request", error))?;
    group::enter(Path::new(&request.door)).map_err(Fault::because)?;
    let target = Target::find(Path::new(&request.file)).map_err(Fault::because)?;
    let sample = capacity::sample(&target, request.bytes).map_err(Fault::because)?;
    output::print_json(&Size::from_sample(sample))?;
    Ok(ExitCode::SUCCESS)
}

/// What was found, for JSON.
#[derive(Serialize)]
struct Found {
    bytes: u64,
    in_use_bytes: Option<u64>,
    bounds: Vec<Limit>,
    #[serde(skip_serializing_if = "Option::is_none")]
    measured: Option<Measured>,
}

#[derive(Serialize)]
struct Limit {
    bytes: u64,
    of: String,
    terms: Vec<Summand>,
    source: String,
}

#[derive(Serialize)]
struct Summand {
    what: &'static str,
    bytes: i64,
}

/// What reading under a limit showed.
#[derive(Serialize)]
struct Measured {
    limit_bytes: u64,
    sizes: Vec<Size>,
    /// Why earlier tries found nothing.
    earlier: Vec<String>,
    outcome: Outcome,
}

/// A file of one size.
#[derive(Serialize, Deserialize)]
struct Size {
    bytes: u64,
    block_nanoseconds: Vec<f64>,
    resident_bytes: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    /// The end of the file cache.
    Found(Place),
    /// Why none was found.
    NotFound(String),
    /// Why it could not be looked for.
    NotPossible(String),
}

/// Where the file cache ends.
#[derive(Serialize)]
struct Place {
    bytes: u64,
    stays_bytes: u64,
    leaves_bytes: u64,
    above_limit: f64,
    agrees: bool,
    in_memory_nanoseconds: f64,
    missing_nanoseconds: f64,
    p: f64,
    resident_bytes: u64,
}

impl Place {
    fn new(found: &Capacity, limit: u64) -> Self {
        Self {
            bytes: found.bytes(),
            stays_bytes: found.stays,
            leaves_bytes: found.leaves,
            above_limit: found.error(limit),
            agrees: found.agrees(limit),
            in_memory_nanoseconds: found.in_memory,
            missing_nanoseconds: found.missing,
            p: found.p,
            resident_bytes: found.resident,
        }
    }
}

impl Outcome {
    /// Whether the limit was found where it is.
    fn is_proof(&self) -> bool {
        matches!(self, Self::Found(place) if place.agrees)
    }
}

impl Size {
    fn from_sample(sample: Sample) -> Self {
        let Sample { bytes, block_nanoseconds, resident } = sample;
        Self { bytes, block_nanoseconds, resident_bytes: resident }
    }

    fn into_sample(self) -> Sample {
        let Self { bytes, block_nanoseconds, resident_bytes } = self;
        Sample { bytes, block_nanoseconds, resident: resident_bytes }
    }
}

impl Measured {
    fn of(limit: u64, search: Search, outcome: Outcome) -> Self {
        let sizes = search.samples.into_iter().map(Size::from_sample).collect();
        let earlier = search.doubts.iter().map(Doubt::to_string).collect();
        Self { limit_bytes: limit, sizes, earlier, outcome }
    }

    fn lines(&self) -> Vec<(String, String)> {
        let limit = units::bytes(self.limit_bytes);
        let said = match &self.outcome {
            Outcome::Found(place) => {
                let verdict = if place.agrees { "as it should be" } else { "NOT as it should be" };
                let sign = if place.above_limit < 0.0 { "below" } else { "above" };
                format!(
                    "with {limit} of memory, the file cache ends between files of {} and {}: {} {sign} the limit, {verdict}",
                    mebibytes(place.stays_bytes),
                    mebibytes(place.leaves_bytes),
                    units::share(place.above_limit.abs()),
                )
            }
            Outcome::NotFound(why) => format!("with {limit} of memory, no end of the file cache was found: {why}"),
            Outcome::NotPossible(why) => format!("not possible: {why}"),
        };
        let mut lines = vec![("measured".into(), said)];
        if let Outcome::Found(place) = &self.outcome {
            let time = |value| units::plain(value, Unit::Nanoseconds);
            lines.push((
                "jump".into(),
                format!(
                    "a block of {} takes {} below that size and {} above it (p <= {}); of larger files {} stayed in memory",
                    units::bytes(capacity::BLOCK as u64),
                    time(place.in_memory_nanoseconds),
                    time(place.missing_nanoseconds),
                    place.p,
                    mebibytes(place.resident_bytes),
                ),
            ));
        }
        lines.extend(self.earlier.iter().map(|why| ("earlier try".into(), format!("found nothing: {why}"))));
        for (number, size) in self.sizes.iter().enumerate() {
            let label = if number == 0 { "sizes" } else { "" };
            lines.push((label.into(), size.line()));
        }
        lines
    }
}

impl Size {
    fn line(&self) -> String {
        let time = kelvin_stats::median(&self.block_nanoseconds);
        format!(
            "{:>11} {:>10} per block, {} in memory",
            mebibytes(self.bytes),
            units::plain(time, Unit::Nanoseconds),
            units::share(self.resident_bytes as f64 / self.bytes.max(1) as f64),
        )
    }
}

impl Found {
    fn new(quick: &FileCache, measured: Option<Measured>) -> Self {
        Self {
            bytes: quick.bounds.first().map_or(0, |bound| bound.bytes),
            in_use_bytes: quick.now,
            bounds: quick.bounds.iter().map(Limit::new).collect(),
            measured,
        }
    }

    fn lines(&self) -> Vec<(String, String)> {
        let now = self.in_use_bytes.map_or(String::new(), |now| format!("; {} in use now", mebibytes(now)));
        let mut lines = vec![("cache".into(), format!("at most {}{now}", mebibytes(self.bytes)))];
        for (number, bound) in self.bounds.iter().enumerate() {
            let label = if number == 0 { "because" } else { "and" };
            lines.push((label.into(), bound.line()));
        }
        lines.extend(self.measured.as_ref().map(Measured::lines).unwrap_or_default());
        lines
    }
}

impl Limit {
    fn new(bound: &Bound) -> Self {
        let Bound { bytes, of, terms, source } = bound.clone();
        let terms = terms.into_iter().map(|term| Summand { what: term.what, bytes: term.bytes }).collect();
        Self { bytes, of, terms, source }
    }

    /// `the machine allows 22.9 GiB: free 21.9 GiB + pages of files 1.25 GiB - what the kernel keeps 0.27 GiB (...)`
    fn line(&self) -> String {
        let mut sum = String::new();
        for term in &self.terms {
            let sign = match term.bytes {
                negative if negative < 0 => " - ",
                _ if sum.is_empty() => "",
                _ => " + ",
            };
            sum.push_str(&format!("{sign}{} {}", term.what, mebibytes(term.bytes.unsigned_abs())));
        }
        let sum = if sum.is_empty() { sum } else { format!(": {sum}") };
        format!("{} allows {}{sum} ({})", self.of, mebibytes(self.bytes), self.source)
    }
}

/// A size in a unit that shows a tenth of a percent.
fn mebibytes(bytes: u64) -> String {
    let mebibytes = bytes as f64 / f64::from(1 << 20);
    if mebibytes < 10_000.0 { format!("{mebibytes:.1} MiB") } else { format!("{:.1} GiB", mebibytes / 1024.0) }
}
