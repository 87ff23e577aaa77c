//! Single rounds apart from a run, for experiments: each in a fresh process, as the rounds of a run are, under the conditions of the
//! moment and with a setup of its own.

use std::ffi::OsString;
use std::time::Duration;

use kelvin_model::{Case, Round};
use kelvin_stats::Random;
use kelvin_sys::child;
use kelvin_sys::child::Patience;

use crate::launch::{Launch, Processes};
use crate::probe::Probe;
use crate::protocol::{Answer, Request};
use crate::setup::Setup;
use crate::supervise::LIVELY;

/// Time limit of a round for its set-up, beside ten times its timing.
const SET_UP: Duration = Duration::from_secs(10);

/// What one round measures, and how.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
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
pub struct Laboratory {
    launch: Box<dyn Launch>,
    random: Random,
}

impl Laboratory {
    /// One whose rounds are made by this program with these arguments, which must call [`crate::serve`].
    pub fn new((program, arguments): (OsString, Vec<String>), seed: u64) -> Self {
        // Without it, orphans of a probe go to init, which reaps them too.
        let _ = child::adopt_orphans();
        let launch = Box::new(Processes { program, arguments, began: kelvin_sys::clock::monotonic() });
        Self { launch, random: Random::new(seed ^ 0x006c_6162) }
    }

    /// Makes one round; `None` if this process was asked to stop meanwhile.
    pub fn round(&mut self, wanted: &Wanted<'_>) -> Option<Round> {
        let limit = SET_UP + 10 * wanted.timing;
        let patience = Patience { limit, most: LIVELY * limit };
        let request = Request {
            probe: wanted.probe.id.to_owned(),
            case: wanted.case.clone(),
            round: wanted.index,
            slice: wanted.timing.as_nanos() as u64,
            beyond: None,
            limit: limit.as_nanos() as u64,
            seed: self.random.bits(),
            parent: std::process::id(),
            setup: wanted.setup.clone(),
        };
        let begun = self.launch.now();
        let Answer { attempt, .. } = self.launch.launch(&request, patience)?;
        Some(Round {
            index: wanted.index,
            at: begun / 1e9,
            seconds: (self.launch.now() - begun) / 1e9,
            timing: Some(wanted.timing.as_secs_f64()),
            cpu: wanted.setup.placement.cpu,
            attempt,
        })
    }

    /// A random order of so many things.
    pub fn order(&mut self, count: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..count).collect();
        self.random.shuffle(&mut order);
        order
    }

    /// Seconds since it was opened.
    pub fn seconds(&self) -> f64 {
        self.launch.now() / 1e9
    }
}
