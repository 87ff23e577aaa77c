//! The experiment: rounds as found and under each control, in random order within each pass.

use std::time::Duration;

use kelvin_harness::{Laboratory, Probe, Setup, Wanted};
use kelvin_model::{
    AmountBy, Arm, Attempt, Case, Difference, Experiment, Machine, Measurement, Metric, MetricAt, Name, Planned,
    Reason, TriedCause, TriedMechanism,
};

use crate::cause::{Cause, Conditions, Control, Kept, Means, Mechanism, Scene};

/// Timing of a round, warm-up included: a quarter of it at most is warm-up.
const TIMING: Duration = Duration::from_millis(15);
/// Passes in which inputs of predictions and of formulas take part: their medians matter, and no difference of theirs from pass to pass.
const PASSES_OF_INPUTS: u32 = 6;

/// What is asked, and where.
pub struct Question<'a> {
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

impl Question<'_> {
    fn scene(&self) -> Scene<'_> {
        Scene { machine: self.machine, setup: self.setup, probe: self.probe, metric: self.metric, case: &self.case }
    }

    /// The probe that measures a metric.
    fn probe_of(&self, at: &MetricAt) -> Option<&'static Probe> {
        self.probes.iter().copied().find(|probe| probe.metrics.iter().any(|metric| metric.id == at.metric))
    }
}

/// A condition of the experiment.
struct Condition {
    probe: &'static Probe,
    case: Case,
    controls: Vec<Control>,
    /// Passes in which it takes part.
    passes: u32,
    /// The case that its controls make of it.
    made: Case,
    /// Whether its control was refused.
    is_refused: bool,
    rounds: Vec<kelvin_model::Round>,
}

/// How a pass ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passed {
    /// Every condition had its round.
    Whole,
    /// This process was asked to stop.
    Stopped,
    /// It was late before all had one.
    Late,
}

/// An experiment that goes on.
pub struct Session<'a> {
    question: Question<'a>,
    laboratory: Laboratory,
    conditions: Vec<Condition>,
    causes: Vec<TriedCause>,
    kept: Kept,
    pass: u32,
}

impl<'a> Session<'a> {
    /// One on all causes that can touch what is asked about.
    pub fn new(question: Question<'a>, laboratory: Laboratory, all: &[&'static Cause]) -> Self {
        let mut session =
            Self { question, laboratory, conditions: Vec::new(), causes: Vec::new(), kept: Kept::default(), pass: 0 };
        let (probe, case) = (session.question.probe, session.question.case.clone());
        session.add(probe, case, &[], u32::MAX);
        for (probe, case) in session.question.inputs.clone() {
            session.add(probe, case, &[], PASSES_OF_INPUTS);
        }
        for &cause in all {
            if cause.can_touch(&session.question.scene()) {
                session.try_cause(cause);
            }
        }
        session
    }

    /// Makes one pass, unless this process is asked to stop meanwhile, or so many seconds have passed since the session began.
    pub fn pass(&mut self, most: f64) -> Passed {
        for at in self.laboratory.order(self.conditions.len()) {
            if self.seconds() > most {
                return Passed::Late;
            }
            if !self.round(at) {
                return Passed::Stopped;
            }
        }
        self.pass += 1;
        Passed::Whole
    }

    /// Passes made.
    pub fn passes(&self) -> u32 {
        self.pass
    }

    /// Seconds since it began.
    pub fn seconds(&self) -> f64 {
        self.laboratory.seconds()
    }

    /// From now on also under all of these controls at once, and the inputs of the prediction so too.
    pub fn under_all(&mut self, controls: &[Name]) {
        let known: Vec<Control> =
            self.conditions.iter().flat_map(|condition| condition.controls.iter().copied()).collect();
        let controls: Vec<Control> =
            controls.iter().filter_map(|id| known.iter().copied().find(|known| *id == *known.id)).collect();
        if controls.is_empty() {
            return;
        }
        let (probe, case) = (self.question.probe, self.question.case.clone());
        self.add(probe, case, &controls, u32::MAX);
        let until = self.pass + PASSES_OF_INPUTS;
        for (probe, case) in self.question.inputs.clone() {
            self.add(probe, case, &controls, until);
        }
    }

    /// The case that these controls make of the one that is asked about: some take a cause away by another one.
    pub fn case_under(&self, controls: &[Name]) -> Case {
        let Question { probe, case, .. } = &self.question;
        let is_of = |one: &&Condition| {
            let is_under = one.controls.iter().any(|control| controls.iter().any(|id| *id == *control.id));
            one.probe.id == probe.id && one.case == *case && one.controls.len() == 1 && is_under
        };
        let mut made = self.conditions.iter().filter(is_of).map(|one| &one.made);
        made.find(|made| *made != case).unwrap_or(case).clone()
    }

    /// What was measured so far, without predictions.
    pub fn experiment(&self) -> Experiment {
        let question = &self.question;
        Experiment {
            probe: Name::new(question.probe.id),
            metric: *question.metric,
            case: question.case.clone(),
            is_virtual: question.machine.platform.hypervisor.get().is_some_and(Option::is_some),
            causes: self.causes.clone(),
            arms: self.conditions.iter().map(Condition::arm).collect(),
            predicted: None,
            predicted_without: None,
            seconds: self.seconds(),
        }
    }

    fn round(&mut self, at: usize) -> bool {
        let Self { question, laboratory, conditions, causes, kept, pass } = self;
        let condition = &mut conditions[at];
        if condition.is_refused || *pass >= condition.passes {
            return true;
        }
        let mut under = Conditions::as_found(&condition.case, question.setup, kept);
        for control in &condition.controls {
            if let Err(reason) = (control.apply)(&question.scene(), &mut under) {
                condition.is_refused = true;
                refuse(causes, control.id, &reason);
                return true;
            }
        }
        condition.made = under.case.clone();
        let wanted =
            Wanted { probe: condition.probe, case: &under.case, setup: &under.setup, index: *pass, timing: TIMING };
        let Some(round) = laboratory.round(&wanted) else { return false };
        if let (Attempt::Skipped(reason), Some(control)) = (&round.attempt, condition.controls.first()) {
            condition.is_refused = true;
            refuse(causes, control.id, reason);
        }
        condition.rounds.push(round);
        true
    }

    fn try_cause(&mut self, cause: &'static Cause) {
        let scene = self.question.scene();
        let bystander = (cause.bystander)(&scene);
        let size = (cause.size)(&scene);
        let (probe, case) = (scene.probe, scene.case.clone());
        let mut mechanisms = Vec::new();
        for mechanism in cause.mechanisms {
            let Some(amount) = amount_by(mechanism, &scene) else { continue };
            mechanisms.push(TriedMechanism {
                how: Name::new(mechanism.how),
                amount,
                refused: None,
                idle_in_guest: mechanism.idle_in_guest.map(Name::new),
                is_substitute: mechanism.is_substitute,
            });
        }
        self.causes.push(TriedCause {
            id: Name::new(cause.id),
            what: Name::new(cause.what),
            helps: Name::new(cause.helps),
            mechanisms,
            bystander: Some(bystander.clone()),
            size: size.clone(),
        });
        for means in cause.mechanisms.iter().map(|mechanism| &mechanism.means) {
            means.controls().iter().for_each(|control| self.add(probe, case.clone(), &[*control], u32::MAX));
            if let Means::Difference(difference) = means {
                let difference = difference(&self.question.scene());
                difference.iter().for_each(|difference| self.add_both(difference, u32::MAX));
            }
            if let (Some(control), Some(probe)) = (means.intervention(), self.question.probe_of(&bystander)) {
                self.add(probe, bystander.case.clone(), &[], u32::MAX);
                self.add(probe, bystander.case.clone(), &[control], u32::MAX);
            }
        }
        size.iter().for_each(|size| self.add_both(size, PASSES_OF_INPUTS));
    }

    fn add_both(&mut self, difference: &Difference, passes: u32) {
        for at in [&difference.of, &difference.less] {
            if let Some(probe) = self.question.probe_of(at) {
                self.add(probe, at.case.clone(), &[], passes);
            }
        }
    }

    /// Adds a condition, if it is not there.
    fn add(&mut self, probe: &'static Probe, case: Case, controls: &[Control], passes: u32) {
        let is_same = |one: &&mut Condition| {
            let ids = |controls: &[Control]| controls.iter().map(|control| control.id).collect::<Vec<_>>();
            one.probe.id == probe.id && one.case == case && ids(&one.controls) == ids(controls)
        };
        match self.conditions.iter_mut().find(is_same) {
            Some(known) => known.passes = known.passes.max(passes),
            None => {
                let (controls, made) = (controls.to_vec(), case.clone());
                self.conditions.push(Condition {
                    probe,
                    case,
                    controls,
                    passes,
                    made,
                    is_refused: false,
                    rounds: Vec::new(),
                });
            }
        }
    }
}

impl Condition {
    fn arm(&self) -> Arm {
        let metrics = self.probe.metrics.iter().map(|metric| metric.id).collect();
        let planned = Planned { probe: Name::new(self.probe.id), metrics, case: self.case.clone(), only_input: false };
        let under = self.controls.iter().map(|control| Name::new(control.id)).collect();
        Arm { under, measurement: Measurement { planned, rounds: self.rounds.clone(), skipped: None } }
    }
}

/// How the amount of a cause follows from rounds; `None` where the mechanism says nothing of this figure.
fn amount_by(mechanism: &Mechanism, scene: &Scene<'_>) -> Option<AmountBy> {
    Some(match &mechanism.means {
        Means::Without(control) => AmountBy::Without(Name::new(control.id)),
        Means::Sweep(controls) => AmountBy::Sweep(controls.map(|control| Name::new(control.id))),
        Means::Beyond(controls) => AmountBy::Beyond(controls.map(|control| Name::new(control.id))),
        Means::Difference(difference) => AmountBy::Difference(difference(scene)?),
    })
}

/// Notes that a control cannot be made here.
fn refuse(causes: &mut [TriedCause], control: &str, reason: &Reason) {
    for mechanism in causes.iter_mut().flat_map(|cause| &mut cause.mechanisms) {
        let is_of = match &mechanism.amount {
            AmountBy::Without(id) => *id == *control,
            AmountBy::Sweep(ids) | AmountBy::Beyond(ids) => ids.iter().any(|id| *id == *control),
            AmountBy::Difference(_) => false,
        };
        if is_of {
            mechanism.refused = Some(reason.clone());
        }
    }
}
