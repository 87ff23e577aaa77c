//! Running one round of one probe in a fresh process; single rounds outside a run, for experiments, under the conditions of the moment
//! and with a setup of their own.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use kelvin_core::{Case, Round, RoundOutcome};
use kelvin_stats::Random;
use kelvin_sys::child::{self, ChildEnd, GuardedChild, WaitLimit};

use crate::probe::Probe;
use crate::protocol::{Extension, RoundRequest, RoundResponse, decode_response};
use crate::setup::Setup;

/// Runs rounds: real processes, or a script in tests.
pub(crate) trait Launcher {
    /// Runs a round; `None` if this process was asked to stop meanwhile.
    fn launch(&mut self, request: &RoundRequest, wait_limit: WaitLimit) -> Option<RoundResponse>;
    /// Nanoseconds since the run began.
    fn now(&self) -> f64;
}

/// Maximum bytes of readings per round.
const MAX_READING_BYTES: usize = 32 << 20;
/// Maximum bytes of padding in a round's environment, which moves the start of its stack.
const MAX_STACK_PADDING: u64 = 4096;

/// Re-executes this program in its hidden probe role for each round.
pub(crate) struct ProcessLauncher {
    program: OsString,
    arguments: Vec<String>,
    start: u64,
}

impl Launcher for ProcessLauncher {
    fn launch(&mut self, request: &RoundRequest, wait_limit: WaitLimit) -> Option<RoundResponse> {
        self.run(request, wait_limit).unwrap_or_else(|error| Some(RoundOutcome::Failed(error).into()))
    }

    fn now(&self) -> f64 {
        (kelvin_sys::clock::monotonic() - self.start) as f64
    }
}

impl ProcessLauncher {
    /// One that starts this program with these arguments, which must call [`crate::run_probe_process`].
    pub(crate) fn new((program, arguments): (OsString, Vec<String>)) -> Self {
        // Without it, orphans of a probe go to init, which reaps them too; we just cannot be sure that they have ended.
        let _ = child::adopt_orphans();
        Self { program, arguments, start: kelvin_sys::clock::monotonic() }
    }

    fn run(&self, request: &RoundRequest, wait_limit: WaitLimit) -> Result<Option<RoundResponse>, String> {
        let text = serde_json::to_vec(request).map_err(|error| format!("cannot write the request: {error}"))?;
        let padding = "x".repeat((request.seed % MAX_STACK_PADDING) as usize);
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        // A backtrace would bury the panic message.
        let own_variables = [("KELVIN_PADDING", padding.as_str()), ("RUST_BACKTRACE", "0")];
        let setup_variables = request.setup.environment.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let environment = setup_variables.chain(own_variables);
        let mut child = GuardedChild::spawn(&self.program, &arguments, environment)
            .map_err(|error| format!("cannot start a process for it: {error}"))?;
        let start = Instant::now();
        child.write_stdin(&text);
        let ending = child.wait(wait_limit, MAX_READING_BYTES).map_err(|error| error.to_string())?;
        let stderr = join_lines(&ending.stderr);
        match ending.end {
            ChildEnd::Interrupted => Ok(None),
            ChildEnd::TimedOut => {
                Err(format!("it was still running after {:.0} s and was killed", start.elapsed().as_secs_f64()))
            }
            ChildEnd::TooMuchOutput => {
                Err(format!("it printed more than {} MiB and was killed", MAX_READING_BYTES >> 20))
            }
            ChildEnd::Signalled(signal) => Err(format!("it crashed with signal {signal}{stderr}")),
            ChildEnd::Exited(0) => decode_response(&ending.output).map(Some),
            ChildEnd::Exited(status) => Err(format!("it exited with status {status}{stderr}")),
        }
    }
}

/// A process's error output as the end of a sentence; empty if it was silent.
fn join_lines(stderr: &str) -> String {
    let words: Vec<&str> = stderr.split_whitespace().collect();
    if words.is_empty() { String::new() } else { format!(": {}", words.join(" ")) }
}

/// How many times its limit a round may take that shows activity: on a disk of 7 MB/s, under a quota of a tenth of a CPU, or in
/// an emulator the same work takes so much longer.
pub(crate) const LIVE_ROUND_FACTOR: u32 = 12;

/// Time limit of a round for its set-up, in addition to ten times its timing.
const SETUP_ALLOWANCE: Duration = Duration::from_secs(10);

/// What one round measures, and how.
#[derive(Clone, Copy, Debug)]
pub struct RoundSpec<'a> {
    /// The probe.
    pub probe: &'static Probe,
    /// The case.
    pub case: &'a Case,
    /// The setup.
    pub setup: &'a Setup,
    /// Number of the round.
    pub index: u32,
    /// Time for timing, warm-up included.
    pub timing: Duration,
}

impl RoundSpec<'_> {
    /// Makes the round; returns it and the nanoseconds by which it went on beyond its timing, or `None` if this process was asked to
    /// stop meanwhile.
    pub(crate) fn run(
        &self,
        launch: &mut dyn Launcher,
        extension: Option<Extension>,
        wait_limit: WaitLimit,
        seed: u64,
    ) -> Option<(Round, f64)> {
        let request = RoundRequest {
            probe: self.probe.id.to_owned(),
            case: self.case.clone(),
            round: self.index,
            slice: self.timing.as_nanos() as u64,
            extension,
            time_limit: wait_limit.initial.as_nanos() as u64,
            seed,
            parent_pid: std::process::id(),
            setup: self.setup.clone(),
        };
        let start = launch.now();
        let RoundResponse { outcome, extended_by } = launch.launch(&request, wait_limit)?;
        let round = Round {
            index: self.index,
            start_seconds: start / 1e9,
            seconds: (launch.now() - start) / 1e9,
            timing: Some((self.timing + Duration::from_nanos(extended_by)).as_secs_f64()),
            cpu: self.setup.placement.cpu,
            outcome,
        };
        Some((round, extended_by as f64))
    }
}

/// Where single rounds are made.
pub struct ProbeRunner {
    launch: Box<dyn Launcher>,
    random: Random,
}

impl ProbeRunner {
    /// One whose rounds are made by this program with these arguments, which must call [`crate::run_probe_process`].
    pub fn new(program: (OsString, Vec<String>), seed: u64) -> Self {
        Self { launch: Box::new(ProcessLauncher::new(program)), random: Random::new(seed ^ 0x006c_6162) }
    }

    /// Makes one round; `None` if this process was asked to stop meanwhile.
    pub fn run_round(&mut self, spec: &RoundSpec<'_>) -> Option<Round> {
        let limit = SETUP_ALLOWANCE + 10 * spec.timing;
        let wait_limit = WaitLimit { initial: limit, max: LIVE_ROUND_FACTOR * limit };
        spec.run(&mut *self.launch, None, wait_limit, self.random.next_u64()).map(|(round, _)| round)
    }

    /// A random order of this many things.
    pub fn shuffled_order(&mut self, count: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..count).collect();
        self.random.shuffle(&mut order);
        order
    }

    /// Seconds since it was opened.
    pub fn elapsed_seconds(&self) -> f64 {
        self.launch.now() / 1e9
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_output_becomes_one_line() {
        assert_eq!(
            join_lines("thread 'main' panicked at a.rs:1:2:\non purpose\n"),
            ": thread 'main' panicked at a.rs:1:2: on purpose"
        );
        assert_eq!(join_lines(" \n"), "");
    }
}
