//! Causes of the largest gaps of a run between measured and predicted, tried within a part of its time.

use std::time::{Duration, Instant};

use kelvin_analysis::{Finding, FindingData, analyse, explain};
use kelvin_core::{Better, Case, Explanation, Measurement, Metric, Run};
use kelvin_harness::{EarlyEnd, Probe, ProbeKind};

use crate::cause_experiment::{CauseExperiment, ExperimentLimits, find_metric};
use crate::run_plan::RunPlan;
use crate::run_schedule::MIN_EXPLAIN_TIME;

/// Gaps that share the time: as many as the verdict names. The time that they leave goes to the next ones.
const VERDICT_GAPS: usize = 3;
/// Gaps whose causes are tried at most.
const MAX_EXPLAINED_GAPS: usize = 10;
/// Rounds of a pass, at least: as found and without a cause, of the figure and of what the cause cannot touch.
const MIN_ROUNDS_PER_PASS: f64 = 4.0;

/// A figure that is not as predicted, whose causes can be tried.
pub struct Outlier {
    /// The probe.
    pub probe: &'static Probe,
    /// The metric.
    pub metric: &'static Metric,
    /// The case.
    pub case: Case,
    /// Measured over predicted.
    ratio: f64,
}

impl Outlier {
    /// By which factor it is worse than predicted; below one, if it is better.
    pub fn times_worse(&self) -> f64 {
        if self.metric.better == Better::Higher { 1.0 / self.ratio } else { self.ratio }
    }
}

/// The gaps of a run, the most odd first, of the points of a curve one. What the run itself explains is left out.
pub fn find_gaps(run: &Run) -> Vec<Outlier> {
    let outlier = |finding: Finding| {
        let FindingData::Gap(gap) = finding.data else { return None };
        let (probe, metric) = find_metric(&gap.source.metric)?;
        let is_measured = gap.level.is_none() && probe.kind == ProbeKind::Measure;
        is_measured.then_some(Outlier { probe, metric, case: gap.source.case, ratio: gap.ratio })
    };
    analyse(run).findings.into_iter().filter_map(outlier).collect()
}

/// What is found of their causes within this time, the most odd first: of those that the verdict names, then of as many more as there is
/// time for. One that takes longer than what is left of the time is left out.
pub fn explain_gaps(run: &Run, plan: &RunPlan, time: Duration) -> Vec<Explanation> {
    if time < MIN_EXPLAIN_TIME {
        return Vec::new();
    }
    let start = Instant::now();
    let mut gaps = find_gaps(run);
    gaps.retain(|gap| gap.times_worse() > 1.0);
    gaps.truncate(MAX_EXPLAINED_GAPS);
    let shares = gaps.len().min(VERDICT_GAPS);
    let mut explanations = Vec::new();
    for (index, Outlier { probe, metric, case, .. }) in gaps.into_iter().enumerate() {
        let remaining = time.saturating_sub(start.elapsed());
        if remaining < MIN_EXPLAIN_TIME {
            break;
        }
        // A larger gap may take the time of the smaller ones rather than get no answer.
        let (remaining_seconds, passes) = (remaining.as_secs_f64(), kelvin_stats::MIN_INTERVAL_ROUNDS as u32);
        if f64::from(passes) * MIN_ROUNDS_PER_PASS * mean_round_seconds(run, probe, &case) > remaining_seconds {
            continue;
        }
        let seconds = remaining_seconds / shares.saturating_sub(index).max(1) as f64;
        let limits = ExperimentLimits { seconds, min_passes: passes, deadline: Some(start + time) };
        let seed = run.header.settings.seed;
        let result = CauseExperiment::new((probe, metric, case), &plan.machine, limits, seed).execute(plan);
        explanations.extend(explain(&result.experiment));
        if result.early_end == Some(EarlyEnd::Interrupted) {
            break;
        }
    }
    explanations
}

/// What a round of a case took in this run, on average.
fn mean_round_seconds(run: &Run, probe: &Probe, case: &Case) -> f64 {
    let is_of_case =
        |measurement: &&Measurement| measurement.planned.probe == *probe.id && measurement.planned.case == *case;
    let rounds = run.measurements.iter().find(is_of_case).map_or(&[][..], |measurement| &measurement.rounds);
    rounds.iter().map(|round| round.seconds).sum::<f64>() / rounds.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use kelvin_core::catalogue::os::SWITCH_COST;
    use kelvin_core::{Round, RoundOutcome};

    use super::*;

    #[test]
    fn mean_round_seconds_is_of_its_case() {
        let mut run = kelvin_analysis::testing::guest::guest_run();
        let (probe, _) = find_metric(&SWITCH_COST.id).unwrap();
        let measurement =
            run.measurements.iter_mut().find(|measurement| measurement.planned.probe == *probe.id).unwrap();
        let case = measurement.planned.case.clone();
        let round = |seconds| Round {
            index: 0,
            start_seconds: 0.0,
            seconds,
            timing: None,
            cpu: 0,
            outcome: RoundOutcome::Failed("a test".into()),
        };
        measurement.rounds = vec![round(1.0), round(3.0)];
        assert_eq!(mean_round_seconds(&run, probe, &case), 2.0);
        assert_eq!(mean_round_seconds(&run, probe, &case.with_number("other", 1)), 0.0);
    }
}
