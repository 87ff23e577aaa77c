//! One figure measured with and without each of its possible causes, within a time.

use kelvin_analysis::{controls_of, explain, measured_under};
use kelvin_causes::{Passed, Question, Session};
use kelvin_harness::{Effort, Facts, Laboratory, MeasuredValue, Plan, Probe, ProbeKind, Sources};
use kelvin_model::{Case, CauseVerdict, Experiment, Machine, Metric, MetricAt, Name, PredictionRecord};

use crate::output::Line;
use crate::prepare::Prepared;

/// Times that the least number of passes is made at most, doubled each time: a fourfold number halves an interval.
const MOST_TIMES: u32 = 4;
/// Times at most that what is shown is taken away at once: it changes only where something is close to the edge.
const MOST_SUMS: usize = 2;
/// Share of the time for finding what is shown; the rest is for measuring it once more, with all of it taken away at once.
const FOR_VERDICTS: f64 = 0.7;

/// What is asked.
pub struct Inquiry {
    /// The probe.
    pub probe: &'static Probe,
    /// The metric.
    pub metric: &'static Metric,
    /// The case.
    pub case: Case,
    /// What its prediction needs.
    pub inputs: Vec<(&'static Probe, Case)>,
    /// How long it takes.
    pub pace: Pace,
    /// The seed of random orders.
    pub seed: u64,
}

/// How long an inquiry takes.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Seconds after which nothing is begun beyond the least.
    pub seconds: f64,
    /// Passes that are made in any case.
    pub passes: u32,
    /// Seconds that it may take at most: where the least number of rounds with an interval takes longer, it is given up.
    pub most: f64,
}

/// What was measured.
pub struct Inquired {
    /// It, with its predictions.
    pub experiment: Experiment,
    /// Why there is not more of it.
    pub stopped: Option<Stopped>,
}

/// Why an inquiry ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// This process was asked to stop.
    Interrupted,
    /// It would take longer than it may.
    TooSlow,
}

/// The metric with this id, and the probe that measures it.
pub fn measured_by(id: &str) -> Option<(&'static Probe, &'static Metric)> {
    let with = |probe: &'static Probe| Some((probe, *probe.metrics.iter().find(|metric| metric.id == *id)?));
    kelvin_probes::all().into_iter().find_map(with)
}

/// The plan of a case and what its prediction needs.
///
/// # Panics
/// Of a probe that is none of a plain run.
pub fn plan_of_case(probe: &Probe, case: &Case, machine: &Machine) -> Plan {
    let probes = kelvin_probes::all();
    // Its gap is to its formula, which its causes change.
    let sources = Sources { probes: &probes, machine, elsewhere: None };
    let plan = Plan::new(&sources, ProbeKind::Measure, &[probe.id.to_owned()], Effort::Thorough);
    plan.expect("a probe is selected by its id").only(|one| one == case)
}

/// What the prediction of a plan's case needs.
pub fn inputs(plan: &Plan) -> Vec<(&'static Probe, Case)> {
    plan.units.iter().filter(|unit| unit.only_input).map(|unit| (unit.probe, unit.case.clone())).collect()
}

impl Inquiry {
    /// Makes passes until everything is decided or the time is over, then some more without all that is shown.
    pub fn carry_out(&self, prepared: &Prepared) -> Inquired {
        let probes = kelvin_probes::all();
        let machine = &prepared.machine;
        let question = Question {
            probe: self.probe,
            metric: self.metric,
            case: self.case.clone(),
            inputs: self.inputs.clone(),
            probes: &probes,
            machine,
            setup: &prepared.setup,
        };
        let laboratory = Laboratory::new(("/proc/self/exe".into(), vec!["probe-process".into()]), self.seed);
        let mut session = Session::new(question, laboratory, kelvin_causes::all());
        let stopped = self.passes(&mut session, machine).err();
        Inquired { experiment: self.experiment(&session, machine), stopped }
    }

    fn passes(&self, session: &mut Session<'_>, machine: &Machine) -> Result<(), Stopped> {
        let line = Line::new();
        self.pass_until(session, &line, machine, (FOR_VERDICTS * self.pace.seconds, self.pace.passes))?;
        // What was shown may look otherwise once there are more passes.
        let mut taken_away = Vec::new();
        while let Some(controls) = other_controls(session, &taken_away) {
            session.under_all(&controls);
            taken_away.push(controls);
            let passes = session.passes() + self.pace.passes.div_ceil(2);
            self.pass_until(session, &line, machine, (0.0, passes))?;
        }
        Ok(())
    }

    /// Makes passes until there are so many, and then twice as many, until everything is decided or it is this time. Looking after each
    /// pass would find what is not there.
    fn pass_until(
        &self,
        session: &mut Session<'_>,
        line: &Line,
        machine: &Machine,
        (seconds, mut passes): (f64, u32),
    ) -> Result<(), Stopped> {
        let least = passes;
        loop {
            let (made, now) = (session.passes(), session.seconds());
            if made >= least && now >= seconds {
                return Ok(());
            }
            if made >= passes {
                passes *= 2;
                if passes > MOST_TIMES * least || !is_open(&self.experiment(session, machine)) {
                    return Ok(());
                }
            }
            if self.is_too_slow(made, now) {
                return Err(Stopped::TooSlow);
            }
            line.show(format_args!("pass {}, {now:.0} s  {}", made + 1, self.metric.id));
            match session.pass(self.pace.most) {
                Passed::Whole => {}
                Passed::Stopped => return Err(Stopped::Interrupted),
                Passed::Late => return Err(Stopped::TooSlow),
            }
        }
    }

    /// Whether the least number of passes that give an interval would take too long, or one more would.
    fn is_too_slow(&self, made: u32, now: f64) -> bool {
        made > 0
            && now / f64::from(made) * f64::from((made + 1).max(kelvin_stats::LEAST_ROUNDS as u32)) > self.pace.most
    }

    /// What was measured, with its predictions: from inputs as found, and without all that is shown.
    fn experiment(&self, session: &Session<'_>, machine: &Machine) -> Experiment {
        let raw = session.experiment();
        let controls = controls_of(&raw);
        Experiment {
            predicted: Some(self.predict(&raw, machine, (&[], &self.case))),
            predicted_without: (!controls.is_empty())
                .then(|| self.predict(&raw, machine, (&controls, &session.case_under(&controls)))),
            ..raw
        }
    }

    /// The prediction of a case from what was measured under these controls.
    fn predict(&self, raw: &Experiment, machine: &Machine, (under, case): (&[Name], &Case)) -> PredictionRecord {
        let measured = |metric: &str, case: &Case| {
            let at = MetricAt { metric: Name::intern(metric), case: case.clone() };
            measured_under(raw, under, &at).map(|value| MeasuredValue { value, half_width: 0.0 })
        };
        let (prediction, none_because) = match (self.probe.predict)(&Facts::new(machine, &measured), self.metric, case)
        {
            Ok(prediction) => (Some(prediction), None),
            Err(reason) => (None, Some(reason)),
        };
        PredictionRecord { metric: self.metric.id, case: case.clone(), prediction, none_because }
    }
}

/// The controls that take away all that is shown, unless that was measured already.
fn other_controls(session: &Session<'_>, measured: &[Vec<Name>]) -> Option<Vec<Name>> {
    let controls = controls_of(&session.experiment());
    (!controls.is_empty() && !measured.contains(&controls) && measured.len() < MOST_SUMS).then_some(controls)
}

/// Whether more passes can decide something.
fn is_open(experiment: &Experiment) -> bool {
    let open = |verdict: &CauseVerdict| matches!(verdict, CauseVerdict::Undecided | CauseVerdict::Void);
    explain(experiment).is_none_or(|explanation| explanation.causes.iter().any(|cause| open(&cause.verdict)))
}
