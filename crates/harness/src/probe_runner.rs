//! Single rounds apart from a run, for experiments: each in a fresh process, as the rounds of a run are, under the conditions of the
//! moment and with a setup of its own.

use std::ffi::OsString;
use std::time::Duration;

use kelvin_core::{Case, Round};
use kelvin_stats::Random;
use kelvin_sys::child;
use kelvin_sys::child::WaitLimit;

use crate::launcher::{Launcher, ProcessLauncher};
use crate::probe::Probe;
use crate::protocol::{RoundRequest, RoundResponse};
use crate::setup::Setup;
use crate::supervise::LIVE_ROUND_FACTOR;

/// Time limit of a round for its set-up, beside ten times its timing.
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

/// Where single rounds are made.
pub struct ProbeRunner {
    launch: Box<dyn Launcher>,
    random: Random,
}

impl ProbeRunner {
    /// One whose rounds are made by this program with these arguments, which must call [`crate::run_probe_process`].
    pub fn new((program, arguments): (OsString, Vec<String>), seed: u64) -> Self {
        // Without it, orphans of a probe go to init, which reaps them too.
        let _ = child::adopt_orphans();
        let launch = Box::new(ProcessLauncher { program, arguments, began: kelvin_sys::clock::monotonic() });
        Self { launch, random: Random::new(seed ^ 0x006c_6162) }
    }

    /// Makes one round; `None` if this process was asked to stop meanwhile.
    pub fn run_round(&mut self, wanted: &RoundSpec<'_>) -> Option<Round> {
        let limit = SETUP_ALLOWANCE + 10 * wanted.timing;
        let patience = WaitLimit { initial: limit, max: LIVE_ROUND_FACTOR * limit };
        let request = RoundRequest {
            probe: wanted.probe.id.to_owned(),
            case: wanted.case.clone(),
            round: wanted.index,
            slice: wanted.timing.as_nanos() as u64,
            extension: None,
            time_limit: limit.as_nanos() as u64,
            seed: self.random.next_u64(),
            parent_pid: std::process::id(),
            setup: wanted.setup.clone(),
        };
        let begun = self.launch.now();
        let RoundResponse { attempt, .. } = self.launch.launch(&request, patience)?;
        Some(Round {
            index: wanted.index,
            start_seconds: begun / 1e9,
            seconds: (self.launch.now() - begun) / 1e9,
            timing: Some(wanted.timing.as_secs_f64()),
            cpu: wanted.setup.placement.cpu,
            outcome: attempt,
        })
    }

    /// A random order of so many things.
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
