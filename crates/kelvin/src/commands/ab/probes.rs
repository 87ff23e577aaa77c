//! Probes under two settings: each measurement is a round in a fresh process, under the settings of its side.

use std::time::Duration;

use kelvin_harness::{Effort, Laboratory, Plan, ProbeKind, Room, Unit, Wanted};
use kelvin_model::units::seconds;
use kelvin_model::{FactDiffers, Machine as Facts, Name};

use super::alternation::{Limits, Outcome, Sides, Thing, Turn, alternate};
use super::arm::{Arm, Machine};
use crate::budget;
use crate::cli::{MeasureArgs, Setting};
use crate::costs::Costs;
use crate::fault::Fault;
use crate::output;
use crate::place::Here;
use crate::prepare::Prepared;
use crate::selection::plan_of;

/// Timing of a round, warm-up included, as in `why`.
const TIMING: Duration = Duration::from_millis(15);

/// What is measured under which settings.
pub struct Probed<'a> {
    /// Names of areas, probes or metrics.
    pub names: &'a [String],
    /// At which of their points.
    pub effort: Effort,
    /// How to measure.
    pub measure: &'a MeasureArgs,
    /// The settings of both sides.
    pub sides: [&'a [Setting]; 2],
}

/// Measures probes in turn.
///
/// # Errors
/// What cannot be measured, or set; and what makes the comparison impossible.
pub fn compare(probed: &Probed<'_>, limits: &Limits) -> Result<Outcome, Fault> {
    let here = Here::read()?;
    let mut plan = plan_of(ProbeKind::Measure, probed.names, &here, probed.effort)?;
    plan.units.retain(|unit| !unit.only_input);
    let plan = fitted(plan, limits, &here.machine)?;
    let allowed = here.allowed.clone();
    let prepared = Prepared::new(here, &plan, probed.measure)?;
    let outcome = Arm::both(probed.sides, &prepared, &allowed).and_then(|arms| {
        let machine = Machine::of(&arms)?;
        alternate(&mut Probes::new(&plan, arms, machine, limits), limits)
    });
    prepared.clear_up();
    outcome
}

/// What of a plan fits into the time that was asked for, by what rounds take on other machines; the most important first.
fn fitted(plan: Plan, limits: &Limits, machine: &Facts) -> Result<Plan, Fault> {
    let Some(time) = limits.asked else { return Ok(plan) };
    let costs = Costs::of_table(machine);
    let all = plan.expecting(|probe, case| costs.of(probe, case));
    // Two of each side in a block, and one of each before.
    let rounds = 4 * limits.least() + 2;
    let plan = all.clone().within(Room { time: time.saturating_sub(budget::BEFORE), rounds });
    if plan.units.is_empty() && !all.units.is_empty() {
        return Err(Fault::because(format!(
            "--budget {time:?}: {} blocks of no case fit; of all they take about {}",
            limits.least(),
            seconds(all.expected(rounds).as_secs_f64())
        )));
    }
    let left_out = budget::names(&all, &plan);
    if !left_out.is_empty() {
        let head = format!("kelvin: {time:?} is too short for these, which matter less and are left out:");
        output::remark_names(head, &left_out);
    }
    Ok(plan)
}

/// Probes on either side.
struct Probes<'p> {
    units: Vec<&'p Unit>,
    arms: [Arm; 2],
    machine: Machine,
    laboratory: Laboratory,
}

impl<'p> Probes<'p> {
    fn new(plan: &'p Plan, arms: [Arm; 2], machine: Machine, limits: &Limits) -> Self {
        let laboratory = Laboratory::new(("/proc/self/exe".into(), vec!["probe-process".into()]), limits.seed);
        Self { units: plan.units.iter().collect(), arms, machine, laboratory }
    }
}

impl Sides for Probes<'_> {
    fn names(&self) -> [String; 2] {
        self.arms.each_ref().map(|arm| arm.name.clone())
    }

    fn differences(&self) -> Vec<FactDiffers> {
        self.machine.differences(&self.arms)
    }

    fn things(&self) -> Vec<Thing> {
        let thing = |unit: &&Unit| Thing {
            probe: Name::new(unit.probe.id),
            metrics: unit.probe.metrics.iter().map(|metric| **metric).collect(),
            case: unit.case.clone(),
        };
        self.units.iter().map(thing).collect()
    }

    fn measure(&mut self, thing: usize, side: usize, index: u32) -> Result<Turn, Fault> {
        let arm = &self.arms[side];
        self.machine.switch(arm)?;
        let unit = self.units[thing];
        let wanted = Wanted { probe: unit.probe, case: &unit.case, setup: &arm.setup, index, timing: TIMING };
        Ok(self.laboratory.round(&wanted).map_or(Turn::Interrupted, Turn::Measured))
    }
}
