//! What runs of hosts measured.

use std::collections::BTreeMap;

use super::event::{RunEvent, RunPlan};
use super::task::{FigureRatio, Phase, RunFile};
use crate::results::Measured;

/// What was measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunResults {
    /// What was asked for.
    pub plan: RunPlan,
    /// The ranks that measure, one of each host.
    pub ranks: Vec<usize>,
    /// The runs, by phase and rank.
    pub runs: BTreeMap<(Phase, usize), RunFile>,
    /// Runs that there are not, with the reason.
    pub failures: BTreeMap<(Phase, usize), String>,
    /// How the figures of each host differ between its runs, by rank.
    pub ratios: BTreeMap<usize, Vec<FigureRatio>>,
    /// Hosts whose runs cannot be compared, with the reason.
    pub compare_failures: BTreeMap<usize, String>,
}

impl RunResults {
    /// How many hosts have measured in a phase.
    pub fn run_count(&self, phase: Phase) -> usize {
        self.runs.keys().filter(|(of_phase, _)| *of_phase == phase).count()
    }

    /// The phase whose runs show each host best: alone, where all have measured so.
    pub fn best_phase(&self) -> Phase {
        let is_whole =
            self.run_count(Phase::Alone) > 0 && self.run_count(Phase::Alone) >= self.run_count(Phase::Together);
        if is_whole { Phase::Alone } else { Phase::Together }
    }
}

impl Measured for RunResults {
    const COMMAND: &'static str = "run";
    type Plan = RunPlan;
    type Event = RunEvent;

    fn new(plan: RunPlan) -> Self {
        Self { plan, ..Self::default() }
    }

    fn add(&mut self, event: RunEvent, _ranks: usize) {
        match event {
            RunEvent::Forecast { ranks, .. } => self.ranks = ranks,
            RunEvent::Run { rank, phase, run } => drop(self.runs.insert((phase, rank), run)),
            RunEvent::RunFailed { rank, phase, reason } => drop(self.failures.insert((phase, rank), reason)),
            RunEvent::Compared { rank, figures } => drop(self.ratios.insert(rank, figures)),
            RunEvent::CompareFailed { rank, reason } => drop(self.compare_failures.insert(rank, reason)),
            RunEvent::Ratios { .. } => {}
        }
    }
}
