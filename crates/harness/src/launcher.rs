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

/// Why rounds ended before all that were to come were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EarlyEnd {
    /// A signal requested the end of this process.
    Interrupted,
    /// They would take longer than they may.
    TimedOut,
}

/// Where single rounds are made.
pub struct ProbeRunner {
    launch: Box<dyn Launcher>,
    random: Random,
    /// Nanoseconds since it was opened after which no round goes on.
    time_limit: f64,
}

impl ProbeRunner {
    /// One whose rounds are made by this program with these arguments, which must call [`crate::run_probe_process`].
    pub fn new(program: (OsString, Vec<String>), seed: u64) -> Self {
        Self::with_launcher(Box::new(ProcessLauncher::new(program)), seed)
    }

    fn with_launcher(launch: Box<dyn Launcher>, seed: u64) -> Self {
        Self { launch, random: Random::new(seed ^ 0x006c_6162), time_limit: f64::INFINITY }
    }

    /// From now on no round goes on after this time since it was opened.
    pub fn set_time_limit(&mut self, time: Duration) {
        self.time_limit = time.as_nanos() as f64;
    }

    /// Makes one round.
    ///
    /// # Errors
    /// If this process was asked to stop meanwhile, or the time is over: what a round was about to measure then is not known.
    pub fn run_round(&mut self, spec: &RoundSpec<'_>) -> Result<Round, EarlyEnd> {
        let remaining = self.time_limit - self.launch.now();
        if remaining <= 0.0 {
            return Err(EarlyEnd::TimedOut);
        }
        let remaining = Duration::from_nanos(remaining as u64);
        let limit = SETUP_ALLOWANCE + 10 * spec.timing;
        let wait_limit = WaitLimit { initial: limit.min(remaining), max: (LIVE_ROUND_FACTOR * limit).min(remaining) };
        let seed = self.random.next_u64();
        let (round, _) = spec.run(&mut *self.launch, None, wait_limit, seed).ok_or(EarlyEnd::Interrupted)?;
        let is_cut = matches!(round.outcome, RoundOutcome::Failed(_)) && self.launch.now() >= self.time_limit;
        if is_cut { Err(EarlyEnd::TimedOut) } else { Ok(round) }
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

    /// Seconds since it was opened after which no round goes on.
    pub fn max_seconds(&self) -> f64 {
        self.time_limit / 1e9
    }
}

#[cfg(test)]
mod tests {
    use kelvin_core::{Metric, NoPrediction};

    use super::*;
    use crate::probe::ProbeKind;

    static METRIC: Metric = Metric::duration("test.metric", "A metric of a script");

    static PROBE: Probe = Probe {
        id: "test.metric",
        summary: "A probe of a script",
        kind: ProbeKind::Measure,
        method: "",
        metrics: &[&METRIC],
        cases: |_, _| vec![Case::new()],
        run: |_, _| Ok(()),
        predict: |_, _, _| Err(NoPrediction::new("scripted")),
    };

    /// A machine on which rounds take these nanoseconds one after another, and the last of them from then on.
    struct ScriptedLauncher {
        now: f64,
        round_times: Vec<f64>,
    }

    impl Launcher for ScriptedLauncher {
        fn launch(&mut self, _: &RoundRequest, wait_limit: WaitLimit) -> Option<RoundResponse> {
            let time = if self.round_times.len() > 1 { self.round_times.remove(0) } else { self.round_times[0] };
            let max_time = wait_limit.max.as_nanos() as f64;
            self.now += time.min(max_time);
            let outcome = match time > max_time {
                true => RoundOutcome::Failed("it was still running".into()),
                false => RoundOutcome::Measured(Vec::new()),
            };
            Some(outcome.into())
        }

        fn now(&self) -> f64 {
            self.now
        }
    }

    /// Makes rounds of these times until the time limit ends them; returns how many were made, how many of them failed, and when it ended.
    fn rounds_within(seconds: u64, round_times: &[f64]) -> (usize, usize, f64) {
        let launcher = ScriptedLauncher { now: 0.0, round_times: round_times.to_vec() };
        let mut runner = ProbeRunner::with_launcher(Box::new(launcher), 1);
        runner.set_time_limit(Duration::from_secs(seconds));
        let (case, setup) = (Case::new(), Setup::scripted(1));
        let spec = RoundSpec { probe: &PROBE, case: &case, setup: &setup, index: 0, timing: Duration::from_millis(15) };
        let mut outcomes = Vec::new();
        let end = loop {
            match runner.run_round(&spec) {
                Ok(round) => outcomes.push(round.outcome),
                Err(end) => break end,
            }
        };
        assert_eq!(end, EarlyEnd::TimedOut);
        let failures = outcomes.iter().filter(|outcome| matches!(outcome, RoundOutcome::Failed(_))).count();
        (outcomes.len(), failures, runner.elapsed_seconds())
    }

    #[test]
    fn rounds_end_with_their_time_on_any_machine() {
        assert_eq!(rounds_within(2, &[0.5e9]), (4, 0, 2.0));
        // The one that runs then is cut, and no failure of its probe.
        assert_eq!(rounds_within(2, &[0.75e9]), (2, 0, 2.0));
        assert_eq!(rounds_within(2, &[0.75e9, 60e9]), (1, 0, 2.0));
        // Rounds that hang have failed, as long as there is time for others.
        let limit = 12.0 * 10.15;
        assert_eq!(rounds_within(200, &[1e15, 1e15]), (1, 1, 200.0));
        assert_eq!(rounds_within(200, &[1e15, 200.0e9 - limit * 1e9]), (2, 1, 200.0));
        assert_eq!(rounds_within(0, &[1.0]), (0, 0, 0.0));
    }

    #[test]
    fn error_output_becomes_one_line() {
        assert_eq!(
            join_lines("thread 'main' panicked at a.rs:1:2:\non purpose\n"),
            ": thread 'main' panicked at a.rs:1:2: on purpose"
        );
        assert_eq!(join_lines(" \n"), "");
    }
}
