//! The experiment: rounds as found and under each control, in random order within each pass.

use std::time::Duration;

use kelvin_core::{
    AmountFormula, Arm, Case, CauseTrial, Experiment, FigureDifference, Machine, Measurement, MechanismTrial, Metric,
    MetricCase, Name, PlannedMeasurement, RoundOutcome, SkipReason,
};
use kelvin_harness::{EarlyEnd, Probe, ProbeRunner, RoundSpec, Setup};

use super::cause::{AmountSource, Cause, CauseContext, ExperimentState, Intervention, RoundConditions};

/// Timing of a round, warm-up included: a quarter of it at most is warm-up.
pub const ROUND_TIMING: Duration = Duration::from_millis(15);
/// Passes in which inputs of predictions and of formulas take part: their medians matter, and no difference of theirs from pass to pass.
const INPUT_PASSES: u32 = 6;

/// The figure that is explained, and its surroundings.
pub struct ExperimentSubject<'a> {
    /// The probe.
    pub probe: &'static Probe,
    /// The metric.
    pub metric: &'static Metric,
    /// The case.
    pub case: Case,
    /// What the prediction of it needs.
    pub inputs: Vec<(&'static Probe, Case)>,
    /// All probes.
    pub probes: &'a [&'static Probe],
    /// The machine.
    pub machine: &'a Machine,
    /// The setup as found.
    pub setup: &'a Setup,
}

impl ExperimentSubject<'_> {
    fn context(&self) -> CauseContext<'_> {
        let Self { machine, setup, probe, metric, case, .. } = self;
        CauseContext { machine, setup, probe, metric, case }
    }

    /// The probe that measures a metric.
    fn probe_for(&self, figure: &MetricCase) -> Option<&'static Probe> {
        self.probes.iter().copied().find(|probe| probe.metrics.iter().any(|metric| metric.id == figure.metric))
    }
}

/// A condition of the experiment.
struct ExperimentCondition {
    probe: &'static Probe,
    case: Case,
    controls: Vec<Intervention>,
    /// Passes in which it takes part.
    passes: u32,
    /// The case that its controls make of it.
    effective_case: Case,
    /// Whether its control was refused.
    is_refused: bool,
    rounds: Vec<kelvin_core::Round>,
}

/// An experiment that goes on.
pub struct ExperimentRunner<'a> {
    subject: ExperimentSubject<'a>,
    runner: ProbeRunner,
    conditions: Vec<ExperimentCondition>,
    causes: Vec<CauseTrial>,
    experiment: ExperimentState,
    pass: u32,
}

impl<'a> ExperimentRunner<'a> {
    /// One on all causes that can touch the subject.
    pub fn new(subject: ExperimentSubject<'a>, runner: ProbeRunner, candidate_causes: &[&'static Cause]) -> Self {
        let (conditions, causes, experiment) = (Vec::new(), Vec::new(), ExperimentState::default());
        let mut session = Self { subject, runner, conditions, causes, experiment, pass: 0 };
        let (probe, case) = (session.subject.probe, session.subject.case.clone());
        session.add_condition(probe, case, &[], u32::MAX);
        for (probe, case) in session.subject.inputs.clone() {
            session.add_condition(probe, case, &[], INPUT_PASSES);
        }
        for &cause in candidate_causes {
            if cause.can_affect(&session.subject.context()) {
                session.add_cause(cause);
            }
        }
        session
    }

    /// Makes one pass.
    ///
    /// # Errors
    /// What ended it before every condition had its round.
    pub fn run_pass(&mut self) -> Result<(), EarlyEnd> {
        for index in self.runner.shuffled_order(self.conditions.len()) {
            self.run_round(index)?;
        }
        self.pass += 1;
        Ok(())
    }

    /// Passes made.
    pub fn passes_made(&self) -> u32 {
        self.pass
    }

    /// Seconds since it began.
    pub fn seconds(&self) -> f64 {
        self.runner.elapsed_seconds()
    }

    /// Ends it after this time since it began in any case.
    pub fn set_time_limit(&mut self, time: Duration) {
        self.runner.set_time_limit(time);
    }

    /// What this many passes measure: probes at cases, and how many rounds of each.
    pub fn planned_rounds(&self, passes: u32) -> impl Iterator<Item = (&'static Probe, &Case, u32)> {
        self.conditions.iter().map(move |condition| (condition.probe, &condition.case, passes.min(condition.passes)))
    }

    /// Seconds after which it ends in any case.
    pub fn max_seconds(&self) -> f64 {
        self.runner.max_seconds()
    }

    /// From now on also under all of these controls at once, and the inputs of the prediction so too.
    pub fn add_combined_interventions(&mut self, controls: &[Name]) {
        let intervention_by_id = |id: &Name| {
            let mut interventions = self.conditions.iter().flat_map(|condition| &condition.controls);
            interventions.find(|control| *id == *control.id).copied()
        };
        let controls: Vec<Intervention> = controls.iter().filter_map(intervention_by_id).collect();
        if controls.is_empty() {
            return;
        }
        let (probe, case) = (self.subject.probe, self.subject.case.clone());
        self.add_condition(probe, case, &controls, u32::MAX);
        let end_pass = self.pass + INPUT_PASSES;
        for (probe, case) in self.subject.inputs.clone() {
            self.add_condition(probe, case, &controls, end_pass);
        }
    }

    /// The case that these controls make of the subject's: some take a cause away by another one.
    pub fn case_with_interventions(&self, controls: &[Name]) -> Case {
        let ExperimentSubject { probe, case, .. } = &self.subject;
        let is_candidate = |condition: &&ExperimentCondition| {
            let has_requested_control =
                condition.controls.iter().any(|control| controls.iter().any(|id| *id == *control.id));
            condition.probe.id == probe.id
                && condition.case == *case
                && condition.controls.len() == 1
                && has_requested_control
        };
        let mut cases = self.conditions.iter().filter(is_candidate).map(|condition| &condition.effective_case);
        cases.find(|effective_case| *effective_case != case).unwrap_or(case).clone()
    }

    /// What was measured so far, without predictions.
    pub fn experiment(&self) -> Experiment {
        let subject = &self.subject;
        Experiment {
            probe: Name::new(subject.probe.id),
            metric: *subject.metric,
            case: subject.case.clone(),
            is_virtual: subject.machine.platform.hypervisor.get().is_some_and(Option::is_some),
            causes: self.causes.clone(),
            arms: self.conditions.iter().map(ExperimentCondition::arm).collect(),
            predicted: None,
            predicted_without: None,
            seconds: self.seconds(),
        }
    }

    fn run_round(&mut self, index: usize) -> Result<(), EarlyEnd> {
        let Self { subject, runner, conditions, causes, experiment, pass } = self;
        let condition = &mut conditions[index];
        if condition.is_refused || *pass >= condition.passes {
            return Ok(());
        }
        let mut round_conditions = RoundConditions::as_found(&condition.case, subject.setup, experiment);
        for control in &condition.controls {
            if let Err(reason) = (control.apply)(&subject.context(), &mut round_conditions) {
                condition.is_refused = true;
                mark_refused(causes, control.id, &reason);
                return Ok(());
            }
        }
        condition.effective_case = round_conditions.case.clone();
        let RoundConditions { case, setup, .. } = &round_conditions;
        let round = RoundSpec { probe: condition.probe, case, setup, index: *pass, timing: ROUND_TIMING };
        let round = runner.run_round(&round)?;
        if let (RoundOutcome::Skipped(reason), Some(control)) = (&round.outcome, condition.controls.first()) {
            condition.is_refused = true;
            mark_refused(causes, control.id, reason);
        }
        condition.rounds.push(round);
        Ok(())
    }

    fn add_cause(&mut self, cause: &'static Cause) {
        let context = self.subject.context();
        let (bystander, size) = ((cause.negative_control)(&context), (cause.size)(&context));
        let (probe, case) = (context.probe, context.case.clone());
        let mut mechanisms = Vec::new();
        for mechanism in cause.mechanisms {
            let name = |control: Intervention| Name::new(control.id);
            let amount = match &mechanism.source {
                AmountSource::Without(control) => AmountFormula::Without(name(*control)),
                AmountSource::Sweep(controls) => AmountFormula::Sweep(controls.map(name)),
                AmountSource::Excess(controls) => AmountFormula::BeyondLinear(controls.map(name)),
                AmountSource::Difference(difference) => match difference(&self.subject.context()) {
                    Some(difference) => {
                        self.add_difference(&difference, u32::MAX);
                        AmountFormula::Difference(difference)
                    }
                    // It has no formula for this figure.
                    None => continue,
                },
            };
            for control in mechanism.source.interventions() {
                self.add_condition(probe, case.clone(), &[*control], u32::MAX);
            }
            let bystander_probe = self.subject.probe_for(&bystander);
            if let (Some(control), Some(probe)) = (mechanism.source.main_intervention(), bystander_probe) {
                self.add_condition(probe, bystander.case.clone(), &[], u32::MAX);
                self.add_condition(probe, bystander.case.clone(), &[control], u32::MAX);
            }
            let (description, is_substitute) = (Name::new(mechanism.how), mechanism.is_substitute);
            let idle_in_guest = mechanism.idle_in_guest.map(Name::new);
            mechanisms.push(MechanismTrial { description, amount, refused: None, idle_in_guest, is_substitute });
        }
        self.causes.push(CauseTrial {
            id: Name::new(cause.id),
            summary: Name::new(cause.summary),
            remedy: Name::intern(&cause.text().remedy),
            mechanisms,
            negative_control: Some(bystander),
            size: size.clone(),
        });
        size.iter().for_each(|size| self.add_difference(size, INPUT_PASSES));
    }

    fn add_difference(&mut self, difference: &FigureDifference, passes: u32) {
        for figure in [&difference.minuend, &difference.subtrahend] {
            if let Some(probe) = self.subject.probe_for(figure) {
                self.add_condition(probe, figure.case.clone(), &[], passes);
            }
        }
    }

    /// Adds a condition, if it is not there.
    fn add_condition(&mut self, probe: &'static Probe, case: Case, controls: &[Intervention], passes: u32) {
        let ids = |controls: &[Intervention]| controls.iter().map(|control| control.id).collect::<Vec<_>>();
        let is_same = |condition: &&mut ExperimentCondition| {
            condition.probe.id == probe.id && condition.case == case && ids(&condition.controls) == ids(controls)
        };
        if let Some(condition) = self.conditions.iter_mut().find(is_same) {
            condition.passes = condition.passes.max(passes);
            return;
        }
        let (controls, effective_case, rounds) = (controls.to_vec(), case.clone(), Vec::new());
        let condition =
            ExperimentCondition { probe, case, controls, passes, effective_case, is_refused: false, rounds };
        self.conditions.push(condition);
    }
}

impl ExperimentCondition {
    fn arm(&self) -> Arm {
        let metrics = self.probe.metrics.iter().map(|metric| metric.id).collect();
        let planned =
            PlannedMeasurement { probe: Name::new(self.probe.id), metrics, case: self.case.clone(), only_input: false };
        let controls = self.controls.iter().map(|control| Name::new(control.id)).collect();
        Arm { controls, measurement: Measurement { planned, rounds: self.rounds.clone(), skipped: None } }
    }
}

/// Notes that a control cannot be made here.
fn mark_refused(causes: &mut [CauseTrial], control: &str, reason: &SkipReason) {
    for mechanism in causes.iter_mut().flat_map(|cause| &mut cause.mechanisms) {
        let has_control = match &mechanism.amount {
            AmountFormula::Without(id) => *id == *control,
            AmountFormula::Sweep(ids) | AmountFormula::BeyondLinear(ids) => ids.iter().any(|id| *id == *control),
            AmountFormula::Difference(_) => false,
        };
        if has_control {
            mechanism.refused = Some(reason.clone());
        }
    }
}
