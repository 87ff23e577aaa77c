//! Runs a probe once for real, in a fresh process, as a run does.
//!
//! A test that needs it declares `mod common;` and calls [`run_probe`]. The process is the test binary itself, started
//! again to run nothing but [`serve_round`].
//!
//! A test may assert which figures there are, of what, how many, and what counters and the order of moments within one
//! clock imply. Never how long something took on this machine, nor what took longer: that is for `kelvin selfcheck` and
//! for `bench/`.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use kelvin_core::{Case, MetricReadings, Need, Readings, RoundOutcome, SkipReason};
use kelvin_harness::{AgentEndpoint, Placement, Setup, TcpOptions, calibrate_clock};
use kelvin_sys::child::{ChildEnd, GuardedChild, WaitLimit};
use kelvin_sys::cpu;
use kelvin_testing::MissingRequirement;

/// First line of an answer; see the harness's protocol.
const MAGIC: &[u8] = b"kelvin-readings-1\n";
/// Time-out of a probe.
const ROUND_LIMIT: Duration = Duration::from_secs(60);
/// More than any probe's answer.
const MAX_OUTPUT_BYTES: usize = 64 << 20;

/// The process in which a probe runs; nothing by itself.
#[test]
#[ignore = "the process in which run_probe runs a probe"]
fn serve_round() {
    kelvin_harness::run_probe_process(&kelvin_probes::all()).unwrap();
}

/// A scratch directory of one's own, as each run of kelvin has it: what is counted there is counted for nobody else.
fn scratch() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// Runs the probe `id` at `case`, with `slice_ms` milliseconds for its timed part, and returns what it answered.
///
/// Panics if the process crashes, hangs, or answers garbage.
pub fn run_probe(id: &str, case: &Case, slice_ms: u64) -> RoundOutcome {
    run_probe_in(scratch().path(), id, case, slice_ms)
}

/// Like `run_probe`, with this scratch directory.
pub fn run_probe_in(scratch: &Path, id: &str, case: &Case, slice_ms: u64) -> RoundOutcome {
    run_probe_at(&TestDirectories::with_scratch(scratch), id, case, slice_ms)
}

/// The directories that a probe may use.
#[derive(Clone, Debug)]
pub struct TestDirectories {
    /// Where it creates files.
    pub scratch: PathBuf,
    /// The one that `--remote` names.
    pub remote: Option<PathBuf>,
    /// The agent that `--peer` names, and the file with its secret.
    pub agent: Option<(std::net::SocketAddr, PathBuf)>,
}

impl TestDirectories {
    /// A scratch directory alone.
    pub fn with_scratch(scratch: &Path) -> Self {
        Self { scratch: scratch.to_owned(), remote: None, agent: None }
    }
}

/// A fresh directory on the build's disk, removed with its content when dropped.
pub fn on_disk() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Failures of a round that other work disturbed: a run repeats such a round too.
const DISTURBANCE_WORDS: [&str; 8] = [
    "the kernel dropped a part",
    "is not cached",
    "Little's law does not",
    "the time is not that of one switch each way",
    "a multiply takes as long as",
    "did not run on this CPU",
    "are no rate",
    // The receiver got no turn next to a sender that never waits: a slice here is a few milliseconds.
    "no datagram arrived",
];
/// Rounds until one is not disturbed.
const MAX_TRIALS: usize = 5;

/// Like `run_probe_in`, with directories of the test's choice.
pub fn run_probe_at(directories: &TestDirectories, id: &str, case: &Case, slice_ms: u64) -> RoundOutcome {
    let round = || run_request(id, case, request(directories, id, case, slice_ms));
    let is_disturbed = |attempt: &RoundOutcome| {
        matches!(attempt, RoundOutcome::Failed(reason) | RoundOutcome::Skipped(SkipReason(reason))
            if DISTURBANCE_WORDS.iter().any(|words| reason.contains(words)))
    };
    (1..MAX_TRIALS).map(|_| round()).find(|attempt| !is_disturbed(attempt)).unwrap_or_else(round)
}

/// A process's answer to a request.
fn run_request(id: &str, case: &Case, request: serde_json::Value) -> RoundOutcome {
    let mut child = spawn();
    child.write_stdin(request.to_string().as_bytes());
    let ending = child.wait(WaitLimit::fixed(ROUND_LIMIT), MAX_OUTPUT_BYTES).unwrap();
    // A failed probe is an answer; the process must succeed in any case.
    assert_eq!(
        ending.end,
        ChildEnd::Exited(0),
        "{id} {case}: {} {}",
        ending.stderr,
        String::from_utf8_lossy(&ending.output)
    );
    unframe(&ending.output).unwrap_or_else(|reason| panic!("{id} {case}: {reason}"))
}

/// Starts a probe, and kills it after this long; returns how it ended.
pub fn kill_probe(scratch: &Path, id: &str, case: &Case, after: Duration) -> ChildEnd {
    let mut child = spawn();
    child.write_stdin(request(&TestDirectories::with_scratch(scratch), id, case, 1000).to_string().as_bytes());
    child.wait(WaitLimit::fixed(after), MAX_OUTPUT_BYTES).unwrap().end
}

fn spawn() -> GuardedChild {
    let program = std::env::current_exe().unwrap();
    let arguments = ["common::serve_round", "--exact", "--ignored", "--test-threads=1"];
    GuardedChild::spawn(program.as_os_str(), &arguments, [("KELVIN_TEST", "1")]).unwrap()
}

/// Like `run_probe`, with these CPUs to use; one of them may stand for several.
pub fn run_probe_on(cpus: &[u32], id: &str, case: &Case, slice_ms: u64) -> RoundOutcome {
    let scratch = scratch();
    let mut request = request(&TestDirectories::with_scratch(scratch.path()), id, case, slice_ms);
    request["setup"]["placement"]["allowed"] = serde_json::json!(cpus);
    run_request(id, case, request)
}

/// Like [`run_probe`], with the readings of each metric; panics with the reason if there are none.
pub fn measure(id: &str, case: &Case, slice_ms: u64) -> Vec<MetricReadings> {
    measure_at(&TestDirectories::with_scratch(scratch().path()), id, case, slice_ms)
}

/// Like `measure`; `None`, with a message, where something that the probe needs is missing.
pub fn measure_if_possible(id: &str, case: &Case, slice_ms: u64) -> Option<Vec<MetricReadings>> {
    measure_if_possible_at(&TestDirectories::with_scratch(scratch().path()), id, case, slice_ms)
}

/// Like `measure_if_possible`, in directories of the test's choice.
pub fn measure_if_possible_at(
    directories: &TestDirectories,
    id: &str,
    case: &Case,
    slice_ms: u64,
) -> Option<Vec<MetricReadings>> {
    measured_if_possible(id, case, run_probe_at(directories, id, case, slice_ms))
}

/// Like `measure_if_possible_at`, of an attempt that was made.
pub fn measured_if_possible(id: &str, case: &Case, attempt: RoundOutcome) -> Option<Vec<MetricReadings>> {
    match attempt {
        RoundOutcome::Skipped(reason) => {
            assert!(!reason.0.contains("two CPUs") || cpu::affinity().unwrap().len() < 2, "{id} {case}: {reason}");
            report_skip(id, case, &reason);
            None
        }
        attempt => Some(readings(id, case, attempt)),
    }
}

/// Prints that a probe skipped a case, and why.
pub fn report_skip(id: &str, case: &Case, reason: &SkipReason) {
    MissingRequirement::from_message(reason).report_skip(format!("{id} {case}"));
}

/// The readings of an attempt: of metrics of the probe, each with figures that are numbers.
fn readings(id: &str, case: &Case, attempt: RoundOutcome) -> Vec<MetricReadings> {
    let RoundOutcome::Measured(readings) = attempt else { panic!("{id} {case}: {attempt:?}") };
    let probe = kelvin_probes::all().into_iter().find(|probe| probe.id == id).unwrap();
    for reading in &readings {
        let metric = probe.metrics.iter().find(|metric| metric.id == reading.metric);
        let metric = metric.unwrap_or_else(|| panic!("{id} {case}: {}", reading.metric));
        // The first round of what has to lie idle has nothing to report yet.
        let may_be_empty = metric.needs == Some(Need::IdleTime);
        let figures = match &reading.readings {
            Readings::Batches(batches) => &batches.nanoseconds,
            Readings::Scalars(values) => values,
        };
        let has_figures = may_be_empty || !figures.is_empty();
        assert!(has_figures && figures.iter().all(|value| value.is_finite()), "{id} {case}: {reading:?}");
    }
    readings
}

/// Like `run_probe`, with socket options.
pub fn run_probe_with(
    directories: &TestDirectories,
    sockets: TcpOptions,
    id: &str,
    case: &Case,
    slice_ms: u64,
) -> RoundOutcome {
    let mut request = request(directories, id, case, slice_ms);
    request["setup"]["sockets"] = serde_json::to_value(sockets).unwrap();
    run_request(id, case, request)
}

/// Like [`measure`], in directories of the test's choice.
pub fn measure_at(directories: &TestDirectories, id: &str, case: &Case, slice_ms: u64) -> Vec<MetricReadings> {
    readings(id, case, run_probe_at(directories, id, case, slice_ms))
}

/// The reading of a metric.
pub fn reading_of<'a>(readings: &'a [MetricReadings], metric: &str) -> &'a MetricReadings {
    let reading = readings.iter().find(|reading| reading.metric == *metric);
    reading.unwrap_or_else(|| panic!("no {metric} in {readings:?}"))
}

/// All that the readings note.
pub fn notes(readings: &[MetricReadings]) -> String {
    readings.iter().flat_map(|reading| reading.notes.clone()).collect::<Vec<_>>().join("; ")
}

/// Median over the batches of a reading, in nanoseconds per operation, nothing subtracted; of scalars, in their unit.
pub fn median(reading: &MetricReadings) -> f64 {
    let mut values: Vec<f64> = match &reading.readings {
        Readings::Batches(batches) => {
            batches.nanoseconds.iter().zip(&batches.iterations).map(|(&time, &n)| time / n as f64).collect()
        }
        Readings::Scalars(values) => values.clone(),
    };
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn request(directories: &TestDirectories, id: &str, case: &Case, slice_ms: u64) -> serde_json::Value {
    serde_json::json!({
        "probe": id,
        "case": case,
        "round": 0,
        "slice": slice_ms * 1_000_000,
        "time_limit": ROUND_LIMIT.as_nanos() as u64,
        "seed": 42,
        "parent_pid": std::process::id(),
        "setup": setup(directories),
    })
}

pub fn setup(directories: &TestDirectories) -> Setup {
    let allowed = cpu::affinity().unwrap();
    let (&cpu, other_cpus) = allowed.split_last().unwrap();
    let agent = directories
        .agent
        .as_ref()
        .map(|(address, token_file)| AgentEndpoint { address: *address, token_file: Some(token_file.into()) });
    Setup {
        clock: calibrate_clock(cpu).unwrap(),
        placement: Placement { cpu, partner: other_cpus.last().copied(), allowed: allowed.clone() },
        canaries: true,
        realtime: false,
        throttle_file: None,
        scratch: directories.scratch.clone().into(),
        remote_directory: directories.remote.clone().map(Into::into),
        write_limit: 1 << 30,
        agent,
        sockets: TcpOptions::default(),
        idle_before_operation: 0,
        cgroups: Vec::new(),
        allow_store_bypass: false,
        environment: Vec::new(),
    }
}

/// The answer within the output of the process, among the test runner's own lines.
fn unframe(output: &[u8]) -> Result<RoundOutcome, String> {
    let text = || String::from_utf8_lossy(output).into_owned();
    let begin = output.windows(MAGIC.len()).position(|window| window == MAGIC).ok_or_else(text)? + MAGIC.len();
    let rest = &output[begin..];
    let line = rest.iter().position(|&byte| byte == b'\n').ok_or_else(text)?;
    let length: usize = String::from_utf8_lossy(&rest[..line]).parse().map_err(|_| text())?;
    let body = rest.get(line + 1..line + 1 + length).ok_or_else(text)?;
    let mut answer: serde_json::Value = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    serde_json::from_value(answer["outcome"].take()).map_err(|error| error.to_string())
}
