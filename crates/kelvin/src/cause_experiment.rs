//! One figure measured with and without each of its possible causes, within a time.

use std::time::{Duration, Instant};

use kelvin_analysis::{explain, measured_with_controls, shown_controls};
use kelvin_core::{
    Case, CauseVerdict, Experiment, Machine, Metric, MetricCase, Name, PlannedMeasurement, PredictionBasis,
    PredictionRecord,
};
use kelvin_harness::{EarlyEnd, Effort, Plan, PlanContext, Probe, ProbeKind, ProbeRunner, prediction_records};
use kelvin_probes::causes::{ExperimentRunner, ExperimentSubject, ROUND_TIMING};

use crate::cli::Budget;
use crate::costs::Costs;
use crate::predict::{PredictionContext, hardware_bounds};
use crate::progress::StatusLine;
use crate::run_plan::RunPlan;
use crate::run_schedule::time_bound;

/// Seconds, unless asked otherwise.
pub const DEFAULT_SECONDS: f64 = 20.0;
/// Times that the least number of passes is made at most, doubled each time: a fourfold number halves an interval.
const MAX_PASS_MULTIPLE: u32 = 4;
/// Times at most that what is shown is taken away at once: it changes only where something is close to the edge.
const MAX_COMBINED_CONTROLS: usize = 2;
/// Share of the time for finding what is shown; the rest is for measuring it once more, with all of it taken away at once.
const VERDICT_TIME_SHARE: f64 = 0.7;

/// The question of an experiment.
pub struct CauseExperiment {
    /// The probe.
    pub probe: &'static Probe,
    /// The metric.
    pub metric: &'static Metric,
    /// The case.
    pub case: Case,
    /// What is measured, and what its prediction needs.
    pub plan: Plan,
    /// The plan of the run that measures it.
    measurements: Vec<PlannedMeasurement>,
    /// How long it takes.
    pub limits: ExperimentLimits,
    /// The seed of random orders.
    pub seed: u64,
}

/// How long an inquiry takes.
#[derive(Clone, Copy, Debug)]
pub struct ExperimentLimits {
    /// Seconds after which nothing is begun beyond the least.
    pub seconds: f64,
    /// Passes that are made in any case.
    pub min_passes: u32,
    /// When it ends in any case, if a time was asked for: where the least number of rounds with an interval takes longer, it is given up.
    pub deadline: Option<Instant>,
}

/// The result of an experiment.
pub struct ExperimentResult {
    /// The experiment, with its predictions.
    pub experiment: Experiment,
    /// Why there is not more of it.
    pub early_end: Option<EarlyEnd>,
}

/// The metric with this id, and the probe that measures it.
pub fn find_metric(id: &str) -> Option<(&'static Probe, &'static Metric)> {
    let metric_of_probe = |probe: &'static Probe| Some((probe, *probe.metrics.iter().find(|metric| metric.id == *id)?));
    kelvin_probes::all().into_iter().find_map(metric_of_probe)
}

/// The plan of a run that measures this case of a probe.
///
/// # Panics
/// Of a probe that is none of a plain run.
fn plan_of_case(probe: &Probe, case: &Case, machine: &Machine) -> Plan {
    let probes = kelvin_probes::all();
    let context = PlanContext { probes: &probes, machine, references: Some(kelvin_probes::reference_machines) };
    let plan = |effort| {
        let plan = Plan::new(&context, ProbeKind::Measure, &[probe.id.to_owned()], effort);
        plan.expect("a probe is selected by its id")
    };
    let has_case = |plan: &Plan| plan.units.iter().any(|unit| unit.probe.id == probe.id && unit.case == *case);
    // As in the run that measures it: what moves with it is an input, at the sizes of that run.
    Some(plan(Effort::Default)).filter(has_case).unwrap_or_else(|| plan(Effort::Thorough))
}

/// What the prediction of a plan's case needs.
fn prediction_inputs(plan: &Plan) -> Vec<(&'static Probe, Case)> {
    plan.units.iter().filter(|unit| unit.only_input).map(|unit| (unit.probe, unit.case.clone())).collect()
}

impl CauseExperiment {
    /// One on a metric at a case.
    pub fn new(
        (probe, metric, case): (&'static Probe, &'static Metric, Case),
        machine: &Machine,
        limits: ExperimentLimits,
        seed: u64,
    ) -> Self {
        let plan = plan_of_case(probe, &case, machine);
        let measurements = plan.measurements();
        let plan = plan.retain_cases(|unit_case| *unit_case == case);
        Self { probe, metric, case, plan, measurements, limits, seed }
    }

    /// Makes passes until everything is decided or the time is over, then some more without all that is shown.
    pub fn execute(&self, plan: &RunPlan) -> ExperimentResult {
        let probes = kelvin_probes::all();
        let machine = &plan.machine;
        let subject = ExperimentSubject {
            probe: self.probe,
            metric: self.metric,
            case: self.case.clone(),
            inputs: prediction_inputs(&self.plan),
            probes: &probes,
            machine,
            setup: &plan.setup,
        };
        let runner = ProbeRunner::new(("/proc/self/exe".into(), vec!["probe-process".into()]), self.seed);
        let mut session = ExperimentRunner::new(subject, runner, kelvin_probes::causes::all());
        session.set_time_limit(self.time_limit(&session, &Costs::from_table(machine)));
        let context = self.prediction_context(machine);
        let early_end = self.run_passes(&mut session, &context).err();
        ExperimentResult { experiment: self.experiment(&session, &context), early_end }
    }

    /// How long it may go on from now on.
    fn time_limit(&self, session: &ExperimentRunner<'_>, costs: &Costs) -> Duration {
        if let Some(deadline) = self.limits.deadline {
            return deadline.saturating_duration_since(Instant::now());
        }
        let seconds = |(probe, case, rounds): (&Probe, &Case, u32)| {
            let cost = costs.expected_cost(probe, case);
            (cost.first + rounds * (cost.later + ROUND_TIMING)).as_secs_f64()
        };
        let needed = session.planned_rounds(self.limits.min_passes).map(seconds).sum();
        time_bound(Budget::Default, DEFAULT_SECONDS, needed)
    }

    fn run_passes(&self, session: &mut ExperimentRunner<'_>, context: &PredictionContext<'_>) -> Result<(), EarlyEnd> {
        let line = StatusLine::new();
        let limits = (VERDICT_TIME_SHARE * self.limits.seconds, self.limits.min_passes);
        self.run_passes_until(session, &line, context, limits)?;
        // What was shown may look otherwise once there are more passes.
        let mut tested: Vec<Vec<Name>> = Vec::new();
        while tested.len() < MAX_COMBINED_CONTROLS {
            let controls = shown_controls(&session.experiment());
            if controls.is_empty() || tested.contains(&controls) {
                break;
            }
            session.add_combined_interventions(&controls);
            tested.push(controls);
            let passes = session.passes_made() + self.limits.min_passes.div_ceil(2);
            self.run_passes_until(session, &line, context, (0.0, passes))?;
        }
        Ok(())
    }

    /// Makes passes until there are this many, and then twice as many, until everything is decided or it is this time. Looking after each
    /// pass would find what is not there.
    fn run_passes_until(
        &self,
        session: &mut ExperimentRunner<'_>,
        line: &StatusLine,
        context: &PredictionContext<'_>,
        (seconds, min_passes): (f64, u32),
    ) -> Result<(), EarlyEnd> {
        let mut target_passes = min_passes;
        loop {
            let (pass_count, elapsed) = (session.passes_made(), session.seconds());
            if pass_count >= min_passes && elapsed >= seconds {
                return Ok(());
            }
            if pass_count >= target_passes {
                target_passes *= 2;
                if target_passes > MAX_PASS_MULTIPLE * min_passes || !is_undecided(&self.experiment(session, context)) {
                    return Ok(());
                }
            }
            // The least number of passes that give an interval would take too long, or one more would.
            let needed_passes = f64::from((pass_count + 1).max(kelvin_stats::MIN_INTERVAL_ROUNDS as u32));
            if pass_count > 0 && elapsed / f64::from(pass_count) * needed_passes > session.max_seconds() {
                return Err(EarlyEnd::TimedOut);
            }
            line.show(format_args!("pass {}, {elapsed:.0} s  {}", pass_count + 1, self.metric.id));
            session.run_pass()?;
        }
    }

    /// What was measured, with its predictions: from inputs as found, and without all that is shown.
    fn experiment(&self, session: &ExperimentRunner<'_>, context: &PredictionContext<'_>) -> Experiment {
        let raw = session.experiment();
        let controls = shown_controls(&raw);
        Experiment {
            predicted: Some(self.predict(&raw, context, (&[], &self.case))),
            predicted_without: (!controls.is_empty())
                .then(|| self.predict(&raw, context, (&controls, &session.case_with_interventions(&controls))))
                .filter(is_prediction_without_causes),
            ..raw
        }
    }

    /// The inputs of its prediction that are not figures.
    fn prediction_context<'a>(&self, machine: &'a Machine) -> PredictionContext<'a> {
        PredictionContext::new(machine, &self.measurements, None, hardware_bounds(&self.measurements, machine, None))
    }

    /// The prediction of a case from what was measured under these controls.
    fn predict(
        &self,
        raw: &Experiment,
        context: &PredictionContext<'_>,
        (controls, case): (&[Name], &Case),
    ) -> PredictionRecord {
        let measured_value = |metric: &str, case: &Case| {
            measured_with_controls(raw, controls, &MetricCase { metric: Name::intern(metric), case: case.clone() })
        };
        let probe = Name::new(self.probe.id);
        let measurement =
            PlannedMeasurement { probe, metrics: vec![self.metric.id], case: case.clone(), only_input: false };
        let mut records = prediction_records(&kelvin_probes::all(), &[measurement], &context.facts(&measured_value));
        records.pop().expect("a metric of its probe has a record")
    }
}

/// Whether a prediction is of a figure without its causes: those of other machines have them.
fn is_prediction_without_causes(record: &PredictionRecord) -> bool {
    record.prediction.as_ref().is_none_or(|prediction| prediction.basis != PredictionBasis::ReferenceMachines)
}

/// Whether more passes can decide something.
fn is_undecided(experiment: &Experiment) -> bool {
    let is_open = |verdict: &CauseVerdict| matches!(verdict, CauseVerdict::Undecided | CauseVerdict::Invalid);
    explain(experiment).is_none_or(|explanation| explanation.causes.iter().any(|cause| is_open(&cause.verdict)))
}

#[cfg(test)]
mod tests {
    use kelvin_analysis::testing::guest;
    use kelvin_core::catalogue::file::SYNC_WRITE;
    use kelvin_core::catalogue::net::RTT_TCP;
    use kelvin_core::catalogue::os::{HandoffMechanism, IPC_BANDWIDTH, IPC_LATENCY, SWITCH_COST, SWITCH_CROSS_CPU};
    use kelvin_core::{Arm, Run};

    use super::*;
    use crate::predict;

    /// The rounds of a run as those of an inquiry: as found.
    fn experiment_of_run(run: &Run, metric: &Metric, case: &Case) -> Experiment {
        let arm =
            |measurement: &kelvin_core::Measurement| Arm { controls: Vec::new(), measurement: measurement.clone() };
        Experiment {
            probe: find_metric(&metric.id).unwrap().0.id.into(),
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
    fn prediction_equals_that_of_the_report() {
        let mut run = guest::guest_run();
        predict::complete_run(&mut run);
        let machine = run.header.machine.clone();
        let pace = ExperimentLimits { seconds: 0.0, min_passes: 4, deadline: None };
        let mut reference_count = 0;
        // By a formula, by a scaled figure of other machines, and by none.
        let metric_ids =
            [&SWITCH_CROSS_CPU, &IPC_LATENCY, &IPC_BANDWIDTH, &SYNC_WRITE, &RTT_TCP].map(|metric| metric.id);
        for record in run.predictions.iter().filter(|record| metric_ids.contains(&record.metric)) {
            let (metric, case) = (&record.metric, &record.case);
            let Some((probe, metric)) = find_metric(metric).filter(|(probe, _)| probe.kind == ProbeKind::Measure)
            else {
                continue;
            };
            let inquiry = CauseExperiment::new((probe, metric, case.clone()), &machine, pace, 1);
            // Sizes that follow the machine are those of the plan, which the made-up run has not.
            if !inquiry
                .measurements
                .iter()
                .any(|measurement| measurement.probe == *probe.id && measurement.case == *case)
            {
                continue;
            }
            let inquiry_record = inquiry.predict(
                &experiment_of_run(&run, metric, case),
                &inquiry.prediction_context(&machine),
                (&[], case),
            );
            let [report_prediction, inquiry_prediction] =
                [record, &inquiry_record].map(|result| result.prediction.as_ref());
            let basis_and_formula = |option: Option<&kelvin_core::Prediction>| {
                option.map(|prediction| (prediction.basis, prediction.formula.clone()))
            };
            assert_eq!(
                basis_and_formula(inquiry_prediction),
                basis_and_formula(report_prediction),
                "{} {case}: {inquiry_record:?}",
                metric.id
            );
            if let (Some(computed), Some(reported)) = (inquiry_prediction, report_prediction) {
                assert!(
                    (computed.value / reported.value).ln().abs() < 0.02,
                    "{} {case}: {computed:?} {reported:?}",
                    metric.id
                );
                reference_count += usize::from(computed.basis == PredictionBasis::ReferenceMachines);
            }
        }
        assert!(reference_count > 0);
    }

    #[test]
    fn inputs_of_same_probe_are_measured_too() {
        let machine = guest::guest_run().header.machine;
        let (probe, metric) = find_metric(&SWITCH_CROSS_CPU.id).unwrap();
        let pace = ExperimentLimits { seconds: 0.0, min_passes: 4, deadline: None };
        let inquiry =
            CauseExperiment::new((probe, metric, Case::new().with_word(HandoffMechanism::Futex)), &machine, pace, 1);
        let over_pipes = (probe.id, Case::new().with_word(HandoffMechanism::Pipe));
        let inputs = prediction_inputs(&inquiry.plan);
        assert!(inputs.iter().any(|(probe, case)| (probe.id, case) == (over_pipes.0, &over_pipes.1)), "{inputs:?}");
    }

    #[test]
    fn scaling_inputs_are_measured_too() {
        let machine = guest::guest_run().header.machine;
        let (probe, metric) = find_metric(&SWITCH_CROSS_CPU.id).unwrap();
        let case = Case::new().with_word(HandoffMechanism::Pipe);
        let pace = ExperimentLimits { seconds: 0.0, min_passes: 4, deadline: None };
        let inquiry = CauseExperiment::new((probe, metric, case), &machine, pace, 1);
        let inputs: Vec<&str> = prediction_inputs(&inquiry.plan).iter().map(|(probe, _)| probe.id).collect();
        assert!(inputs.contains(&SWITCH_COST.id.as_str()), "{inputs:?}");
    }

    #[test]
    fn peer_predictions_are_not_cause_free() {
        let missing =
            PredictionRecord { metric: SWITCH_CROSS_CPU.id, case: Case::new(), prediction: None, missing_reason: None };
        assert!(is_prediction_without_causes(&missing));
        let mut run = guest::guest_run();
        predict::complete_run(&mut run);
        let record_with_basis = |basis| {
            run.predictions
                .iter()
                .find(|record| record.prediction.as_ref().is_some_and(|prediction| prediction.basis == basis))
        };
        assert!(!is_prediction_without_causes(record_with_basis(PredictionBasis::ReferenceMachines).unwrap()));
        assert!(is_prediction_without_causes(record_with_basis(PredictionBasis::Derived).unwrap()));
    }
}
