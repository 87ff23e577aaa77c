//! Probes under two settings: each measurement is a round in a fresh process, under the settings of its side.

use std::time::Duration;

use kelvin_core::units::seconds;
use kelvin_core::{FactDifference, Machine as Facts, Name};
use kelvin_harness::{Effort, Plan, PlanUnit, ProbeKind, ProbeRunner, RoundSpec, TimeBudget};

use super::arm::{Arm, SystemSettings};
use super::interleave::{Arms, InterleaveLimits, InterleaveResult, MeasureOutcome, SubjectSpec, interleave};
use crate::cli::{RunOptions, Setting};
use crate::cli_error::CliError;
use crate::costs::Costs;
use crate::output;
use crate::placement::LocalMachine;
use crate::run_plan::RunPlan;
use crate::run_schedule::{self, RunSchedule};
use crate::selection::plan_names;

/// Timing of a round, warm-up included, as in `why`.
const ROUND_TIMING: Duration = Duration::from_millis(15);

/// What is measured under which settings.
pub struct ProbeComparison<'a> {
    /// Names of areas, probes or metrics.
    pub names: &'a [String],
    /// At which of their points.
    pub effort: Effort,
    /// How to measure.
    pub options: &'a RunOptions,
    /// The settings of both sides.
    pub sides: [&'a [Setting]; 2],
}

/// Measures probes in turn.
///
/// # Errors
/// What cannot be measured, or set; and what makes the comparison impossible.
pub fn compare(probed: &ProbeComparison<'_>, limits: &InterleaveLimits) -> Result<InterleaveResult, CliError> {
    let here = LocalMachine::read()?;
    let mut plan = plan_names(ProbeKind::Measure, probed.names, &here, probed.effort)?;
    plan.units.retain(|unit| !unit.only_input);
    let plan = fit_plan(plan, limits, &here.machine)?;
    let allowed = here.allowed.clone();
    let mut run = RunPlan::new(here, RunSchedule::unlimited(plan.clone(), "ab", limits.blocks), probed.options)?;
    let outcome = Arm::both(probed.sides, &run, &allowed).and_then(|arms| {
        let machine = SystemSettings::new(&arms)?;
        interleave(&mut ProbeArms::new(&plan, arms, machine, limits), limits)
    });
    run.clean_up();
    outcome
}

/// What of a plan fits into the time that was asked for, by what rounds take on other machines; the most important first.
fn fit_plan(plan: Plan, limits: &InterleaveLimits, machine: &Facts) -> Result<Plan, CliError> {
    let Some(time) = limits.budget else { return Ok(plan) };
    let costs = Costs::from_table(machine);
    let all = plan.with_expected_costs(|probe, case| costs.expected_cost(probe, case));
    // Two of each side in a block, and one of each before.
    let rounds = 4 * limits.min_blocks() + 2;
    let plan = all.clone().fit_to_budget(TimeBudget { time: time.saturating_sub(run_schedule::STARTUP_TIME), rounds });
    if plan.units.is_empty() && !all.units.is_empty() {
        return Err(CliError::msg(format!(
            "--budget {time:?}: {} blocks of no case fit; of all they take about {}",
            limits.min_blocks(),
            seconds(all.expected_duration(rounds).as_secs_f64())
        )));
    }
    let left_out = run_schedule::left_out_names(&all, &plan);
    if !left_out.is_empty() {
        let head = format!("kelvin: {time:?} is too short for these, which matter less and are left out:");
        output::eprint_names(head, &left_out);
    }
    Ok(plan)
}

/// Probes on either side.
struct ProbeArms<'p> {
    units: Vec<&'p PlanUnit>,
    arms: [Arm; 2],
    machine: SystemSettings,
    runner: ProbeRunner,
}

impl<'p> ProbeArms<'p> {
    fn new(plan: &'p Plan, arms: [Arm; 2], machine: SystemSettings, limits: &InterleaveLimits) -> Self {
        let laboratory = ProbeRunner::new(("/proc/self/exe".into(), vec!["probe-process".into()]), limits.seed);
        Self { units: plan.units.iter().collect(), arms, machine, runner: laboratory }
    }
}

impl Arms for ProbeArms<'_> {
    fn names(&self) -> [String; 2] {
        self.arms.each_ref().map(|arm| arm.name.clone())
    }

    fn differences(&self) -> Vec<FactDifference> {
        self.machine.differences(&self.arms)
    }

    fn subjects(&self) -> Vec<SubjectSpec> {
        let thing = |unit: &&PlanUnit| SubjectSpec {
            probe: Name::new(unit.probe.id),
            metrics: unit.probe.metrics.iter().map(|metric| **metric).collect(),
            case: unit.case.clone(),
        };
        self.units.iter().map(thing).collect()
    }

    fn measure(&mut self, thing: usize, side: usize, index: u32) -> Result<MeasureOutcome, CliError> {
        let arm = &self.arms[side];
        self.machine.switch(arm)?;
        let unit = self.units[thing];
        let wanted = RoundSpec { probe: unit.probe, case: &unit.case, setup: &arm.setup, index, timing: ROUND_TIMING };
        Ok(self.runner.run_round(&wanted).map_or(MeasureOutcome::Interrupted, MeasureOutcome::Measured))
    }
}
