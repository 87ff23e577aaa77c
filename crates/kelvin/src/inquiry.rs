//! One figure measured with and without each of its possible causes, within a time.

use kelvin_analysis::{controls_of, explain, measured_under};
use kelvin_causes::{Passed, Question, Session};
use kelvin_harness::{Effort, Laboratory, Plan, Probe, ProbeKind, Sources};
use kelvin_model::{Basis, Case, CauseVerdict, Experiment, Machine, Metric, MetricAt, Name, Planned, PredictionRecord};

use crate::output::Line;
use crate::predict::{Grounds, bounds_of, predictions_of};
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
    /// What is measured, and what its prediction needs.
    plan: Plan,
    /// The plan of the run that measures it.
    planned: Vec<Planned>,
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

/// The plan of a run that measures this case of a probe.
///
/// # Panics
/// Of a probe that is none of a plain run.
fn plan_with(probe: &Probe, case: &Case, machine: &Machine) -> Plan {
    let probes = kelvin_probes::all();
    let sources = Sources { probes: &probes, machine, elsewhere: Some(kelvin_probes::elsewhere) };
    let planned = |effort| {
        let plan = Plan::new(&sources, ProbeKind::Measure, &[probe.id.to_owned()], effort);
        plan.expect("a probe is selected by its id")
    };
    let has_it = |plan: &Plan| plan.units.iter().any(|unit| unit.probe.id == probe.id && unit.case == *case);
    // As in the run that measures it: what moves with it is an input, at the sizes of that run.
    Some(planned(Effort::Default)).filter(has_it).unwrap_or_else(|| planned(Effort::Thorough))
}

/// What the prediction of a plan's case needs.
fn inputs(plan: &Plan) -> Vec<(&'static Probe, Case)> {
    plan.units.iter().filter(|unit| unit.only_input).map(|unit| (unit.probe, unit.case.clone())).collect()
}

impl Inquiry {
    /// One on a metric at a case.
    pub fn of(
        (probe, metric, case): (&'static Probe, &'static Metric, Case),
        machine: &Machine,
        pace: Pace,
        seed: u64,
    ) -> Self {
        let plan = plan_with(probe, &case, machine);
        let planned = plan.planned();
        let plan = plan.only(|one| *one == case);
        Self { probe, metric, case, plan, planned, pace, seed }
    }

    /// What is measured.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Makes passes until everything is decided or the time is over, then some more without all that is shown.
    pub fn carry_out(&self, prepared: &Prepared) -> Inquired {
        let probes = kelvin_probes::all();
        let machine = &prepared.machine;
        let question = Question {
            probe: self.probe,
            metric: self.metric,
            case: self.case.clone(),
            inputs: inputs(&self.plan),
            probes: &probes,
            machine,
            setup: &prepared.setup,
        };
        let laboratory = Laboratory::new(("/proc/self/exe".into(), vec!["probe-process".into()]), self.seed);
        let mut session = Session::new(question, laboratory, kelvin_causes::all());
        let grounds = self.grounds(machine);
        let stopped = self.passes(&mut session, &grounds).err();
        Inquired { experiment: self.experiment(&session, &grounds), stopped }
    }

    fn passes(&self, session: &mut Session<'_>, grounds: &Grounds<'_>) -> Result<(), Stopped> {
        let line = Line::new();
        self.pass_until(session, &line, grounds, (FOR_VERDICTS * self.pace.seconds, self.pace.passes))?;
        // What was shown may look otherwise once there are more passes.
        let mut taken_away = Vec::new();
        while let Some(controls) = other_controls(session, &taken_away) {
            session.under_all(&controls);
            taken_away.push(controls);
            let passes = session.passes() + self.pace.passes.div_ceil(2);
            self.pass_until(session, &line, grounds, (0.0, passes))?;
        }
        Ok(())
    }

    /// Makes passes until there are so many, and then twice as many, until everything is decided or it is this time. Looking after each
    /// pass would find what is not there.
    fn pass_until(
        &self,
        session: &mut Session<'_>,
        line: &Line,
        grounds: &Grounds<'_>,
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
                if passes > MOST_TIMES * least || !is_open(&self.experiment(session, grounds)) {
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
    fn experiment(&self, session: &Session<'_>, grounds: &Grounds<'_>) -> Experiment {
        let raw = session.experiment();
        let controls = controls_of(&raw);
        Experiment {
            predicted: Some(self.predict(&raw, grounds, (&[], &self.case))),
            predicted_without: (!controls.is_empty())
                .then(|| self.predict(&raw, grounds, (&controls, &session.case_under(&controls))))
                .filter(is_without),
            ..raw
        }
    }

    /// What its prediction rests on beside figures.
    fn grounds<'a>(&self, machine: &'a Machine) -> Grounds<'a> {
        Grounds::of(machine, &self.planned, None, bounds_of(&self.planned, machine, None))
    }

    /// The prediction of a case from what was measured under these controls.
    fn predict(&self, raw: &Experiment, grounds: &Grounds<'_>, (under, case): (&[Name], &Case)) -> PredictionRecord {
        let measured = |metric: &str, case: &Case| {
            measured_under(raw, under, &MetricAt { metric: Name::intern(metric), case: case.clone() })
        };
        let probe = Name::new(self.probe.id);
        let it = Planned { probe, metrics: vec![self.metric.id], case: case.clone(), only_input: false };
        let mut predicted = predictions_of(&[it], &grounds.facts(&measured));
        predicted.pop().expect("a metric of its probe has a record")
    }
}

/// Whether a prediction is of a figure without its causes: those of other machines have them.
fn is_without(record: &PredictionRecord) -> bool {
    record.prediction.as_ref().is_none_or(|prediction| prediction.basis != Basis::Elsewhere)
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

#[cfg(test)]
mod tests {
    use kelvin_analysis::testing::guest;
    use kelvin_catalogue::file::SYNC;
    use kelvin_catalogue::net::RTT_TCP;
    use kelvin_catalogue::os::{
        IPC_PIPE_BANDWIDTH, IPC_PIPE_LATENCY, SWITCH_CROSS_CPU, SWITCH_PROCESS_PIPE, TokenMeans,
    };
    use kelvin_model::{Arm, Run};

    use super::*;
    use crate::predict;

    /// The rounds of a run as those of an inquiry: as found.
    fn raw(run: &Run, metric: &Metric, case: &Case) -> Experiment {
        let arm = |one: &kelvin_model::Measurement| Arm { under: Vec::new(), measurement: one.clone() };
        Experiment {
            probe: measured_by(&metric.id).unwrap().0.id.into(),
            metric: *metric,
            case: case.clone(),
            is_virtual: true,
            causes: Vec::new(),
            arms: run.measurements.iter().map(arm).collect(),
            predicted: None,
            predicted_without: None,
            seconds: 0.0,
        }
    }

    #[test]
    fn a_figure_has_the_prediction_that_the_report_of_the_same_rounds_has() {
        let mut run = guest::run();
        predict::conclude(&mut run);
        let machine = run.outline.machine.clone();
        let pace = Pace { seconds: 0.0, passes: 4, most: 0.0 };
        let mut of_other_machines = 0;
        // By a formula, by a scaled figure of other machines, and by none.
        let some = [&SWITCH_CROSS_CPU, &IPC_PIPE_LATENCY, &IPC_PIPE_BANDWIDTH, &SYNC, &RTT_TCP].map(|metric| metric.id);
        for record in run.predictions.iter().filter(|one| some.contains(&one.metric)) {
            let (metric, case) = (&record.metric, &record.case);
            let Some((probe, metric)) = measured_by(metric).filter(|(probe, _)| probe.kind == ProbeKind::Measure)
            else {
                continue;
            };
            let inquiry = Inquiry::of((probe, metric, case.clone()), &machine, pace, 1);
            // Sizes that follow the machine are those of the plan, which the made-up run has not.
            if !inquiry.planned.iter().any(|one| one.probe == *probe.id && one.case == *case) {
                continue;
            }
            let found = inquiry.predict(&raw(&run, metric, case), &inquiry.grounds(&machine), (&[], case));
            let [there, here] = [record, &found].map(|one| one.prediction.as_ref());
            let about = |one: Option<&kelvin_model::Prediction>| one.map(|one| (one.basis, one.formula.clone()));
            assert_eq!(about(here), about(there), "{} {case}: {found:?}", metric.id);
            if let (Some(here), Some(there)) = (here, there) {
                assert!((here.value / there.value).ln().abs() < 0.02, "{} {case}: {here:?} {there:?}", metric.id);
                of_other_machines += usize::from(here.basis == Basis::Elsewhere);
            }
        }
        assert!(of_other_machines > 0);
    }

    #[test]
    fn what_a_prediction_needs_of_the_same_probe_is_measured_with_the_figure() {
        let machine = guest::run().outline.machine;
        let (probe, metric) = measured_by(&SWITCH_CROSS_CPU.id).unwrap();
        let pace = Pace { seconds: 0.0, passes: 4, most: 0.0 };
        let inquiry = Inquiry::of((probe, metric, Case::new().at(TokenMeans::Futex)), &machine, pace, 1);
        let over_pipes = (probe.id, Case::new().at(TokenMeans::Pipe));
        let inputs = inputs(&inquiry.plan);
        assert!(inputs.iter().any(|(probe, case)| (probe.id, case) == (over_pipes.0, &over_pipes.1)), "{inputs:?}");
    }

    #[test]
    fn what_a_prediction_is_scaled_by_is_measured_with_the_figure() {
        let machine = guest::run().outline.machine;
        let (probe, metric) = measured_by(&SWITCH_CROSS_CPU.id).unwrap();
        let case = Case::new().at(TokenMeans::Pipe);
        let pace = Pace { seconds: 0.0, passes: 4, most: 0.0 };
        let inquiry = Inquiry::of((probe, metric, case), &machine, pace, 1);
        let inputs: Vec<&str> = inputs(&inquiry.plan).iter().map(|(probe, _)| probe.id).collect();
        assert!(inputs.contains(&SWITCH_PROCESS_PIPE.id.as_str()), "{inputs:?}");
    }

    #[test]
    fn figures_of_other_machines_say_nothing_of_one_without_its_causes() {
        let none =
            PredictionRecord { metric: SWITCH_CROSS_CPU.id, case: Case::new(), prediction: None, none_because: None };
        assert!(is_without(&none));
        let mut run = guest::run();
        predict::conclude(&mut run);
        let with =
            |basis| run.predictions.iter().find(|one| one.prediction.as_ref().is_some_and(|one| one.basis == basis));
        assert!(!is_without(with(Basis::Elsewhere).unwrap()));
        assert!(is_without(with(Basis::Derived).unwrap()));
    }
}
