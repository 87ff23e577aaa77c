//! Probes under two settings: each measurement is a round in a fresh process, under the settings of its side.

use std::path::Path;
use std::time::Duration;

use kelvin_analysis::InterleavedCase;
use kelvin_core::units::seconds;
use kelvin_core::{FactDifference, Machine, Name, Round};
use kelvin_harness::{EarlyEnd, Effort, Plan, PlanUnit, ProbeKind, ProbeRunner, RoundSpec};
use kelvin_machine::tune::{JOURNAL_PATH, SettingSwitch};
use kelvin_probes::causes::ROUND_TIMING;

use super::arm::Arm;
use super::interleave::{Arms, InterleaveLimits, InterleaveResult, interleave};
use crate::cli::{Budget, RunOptions, Setting, SettingKind};
use crate::cli_error::{CliError, Context};
use crate::costs::Costs;
use crate::output;
use crate::placement::LocalMachine;
use crate::run_plan::RunPlan;
use crate::run_schedule::{self, RunSchedule, time_bound};
use crate::selection::plan_names;

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

/// Measures probes interleaved.
///
/// # Errors
/// What cannot be measured, or set; and what makes the comparison impossible.
pub fn compare(comparison: &ProbeComparison<'_>, limits: &InterleaveLimits) -> Result<InterleaveResult, CliError> {
    let local = LocalMachine::read(None)?;
    let mut cases = plan_names(ProbeKind::Measure, comparison.names, &local, comparison.effort)?;
    cases.units.retain(|unit| !unit.only_input);
    let (cases, max_time) = fit_cases(cases, limits, &local.machine)?;
    let schedule = RunSchedule::unlimited(cases.clone(), "ab", limits.blocks);
    let mut plan = RunPlan::new(local, schedule, comparison.options)?;
    let result = ProbeArms::new(&cases, comparison, &plan, limits.seed).and_then(|mut arms| {
        arms.runner.set_time_limit(max_time.saturating_sub(limits.start.elapsed()));
        interleave(&mut arms, limits)
    });
    plan.clean_up();
    result
}

/// What of a plan fits into the time that was asked for, by what rounds take on other machines, the most important first; and the most
/// time that all of it may take.
fn fit_cases(plan: Plan, limits: &InterleaveLimits, machine: &Machine) -> Result<(Plan, Duration), CliError> {
    let costs = Costs::from_table(machine);
    let full_plan = plan.with_expected_costs(|probe, case| costs.expected_cost(probe, case));
    // Two of each side in a block, and one of each before.
    let rounds = |blocks| 4 * blocks + 2;
    let needed = full_plan.expected_duration(rounds(limits.blocks)).as_secs_f64();
    let Some(time) = limits.budget else {
        return Ok((full_plan, time_bound(Budget::Default, limits.default_seconds, needed)));
    };
    let rounds = rounds(limits.min_blocks());
    let plan = full_plan.clone().fit_to_budget(time.saturating_sub(run_schedule::STARTUP_TIME), rounds);
    if plan.units.is_empty() && !full_plan.units.is_empty() {
        bail!(
            "--budget {time:?}: {} blocks of no case fit; of all they take about {}",
            limits.min_blocks(),
            seconds(full_plan.expected_duration(rounds).as_secs_f64())
        );
    }
    let head = format_args!("kelvin: {time:?} is too short for these, which matter less and are left out:");
    output::eprint_names(head, &run_schedule::omitted_names(&full_plan, &plan));
    Ok((plan, time_bound(Budget::Fixed(time), 0.0, 0.0)))
}

/// Probes on either side.
struct ProbeArms<'p> {
    units: &'p [PlanUnit],
    arms: [Arm; 2],
    /// The settings of the system that are switched, where there are any.
    switch: Option<SettingSwitch>,
    runner: ProbeRunner,
}

impl<'p> ProbeArms<'p> {
    /// Makes both sides, and tries them.
    fn new(cases: &'p Plan, comparison: &ProbeComparison<'_>, plan: &RunPlan, seed: u64) -> Result<Self, CliError> {
        let [a, b] = comparison.sides;
        let arms = [Arm::new("--a", a, plan)?, Arm::new("--b", b, plan)?];
        let settings: Vec<(&str, &str)> = arms.iter().flat_map(Arm::system_settings).collect();
        let record = || SettingSwitch::record(Path::new("/"), Path::new(JOURNAL_PATH), &settings);
        let switch = (!settings.is_empty()).then(record).transpose()?;
        let runner = ProbeRunner::new(("/proc/self/exe".into(), vec!["probe-process".into()]), seed);
        let sides = Self { units: &cases.units, arms, switch, runner };
        [0, 1].into_iter().try_for_each(|side| sides.switch_to(side))?;
        Ok(sides)
    }

    /// Has the system the settings of a side.
    fn switch_to(&self, side: usize) -> Result<(), CliError> {
        let (Some(switch), arm) = (&self.switch, &self.arms[side]) else { return Ok(()) };
        switch.apply(&arm.system_settings()).context(arm.flag)
    }

    /// The value of a setting of a side, or what was found if it leaves that.
    fn value(&self, side: usize, setting: &Setting) -> String {
        if let Some(side_setting) = self.arms[side].settings.iter().find(|candidate| candidate.name == setting.name) {
            return side_setting.value.clone();
        }
        let original = match &setting.kind {
            SettingKind::System(file) => {
                self.switch.iter().flat_map(SettingSwitch::original_values).find(|(path, _)| path == file)
            }
            _ => None,
        };
        original.map_or_else(|| "as found".to_owned(), |(_, value)| format!("as found: {value}"))
    }
}

impl Arms for ProbeArms<'_> {
    fn names(&self) -> [String; 2] {
        self.arms.each_ref().map(|arm| arm.name.clone())
    }

    fn differences(&self) -> Vec<FactDifference> {
        // A side has each setting once.
        let [a, b] = self.arms.each_ref().map(|arm| &arm.settings);
        let only_of_b = b.iter().filter(|setting| !a.iter().any(|a_setting| a_setting.name == setting.name));
        let settings = a.iter().chain(only_of_b).filter(|setting| setting.kind != SettingKind::AsFound);
        let fact = |setting: &Setting| FactDifference {
            group: "Setting".into(),
            label: setting.name.clone(),
            base: Some(self.value(0, setting)),
            other: Some(self.value(1, setting)),
        };
        settings.map(fact).filter(|fact| fact.base != fact.other).collect()
    }

    fn cases(&self) -> Vec<InterleavedCase> {
        let case = |PlanUnit { probe, case, .. }: &PlanUnit| {
            let metrics = probe.metrics.iter().map(|metric| **metric).collect();
            InterleavedCase::new(Name::new(probe.id), metrics, case.clone())
        };
        self.units.iter().map(case).collect()
    }

    fn measure(&mut self, subject: usize, side: usize, index: u32) -> Result<Result<Round, EarlyEnd>, CliError> {
        self.switch_to(side)?;
        let (unit, setup) = (&self.units[subject], &self.arms[side].setup);
        let spec = RoundSpec { probe: unit.probe, case: &unit.case, setup, index, timing: ROUND_TIMING };
        Ok(self.runner.run_round(&spec))
    }
}
