//! Causes of the largest gaps of a run between measured and predicted, tried within a part of its time.

use std::time::{Duration, Instant};

use kelvin_analysis::{Found, Gap, analyse, explain};
use kelvin_harness::{Effort, Plan, ProbeKind};
use kelvin_model::{Explanation, Run};

use crate::inquiry::{Inquiry, Pace, Stopped, inputs};
use crate::prepare::Prepared;

/// The part of a run's time for it.
pub const SHARE: f64 = 0.1;
/// Less is not worth beginning.
pub const LEAST: Duration = Duration::from_secs(1);
/// Gaps whose causes are tried: as many as the verdict tells.
const MOST: usize = 3;

/// What is found of their causes within this time, the largest gap first. What is explained by the run itself is left alone, and one that
/// takes longer than what is left of the time is left out.
pub fn tried(run: &Run, prepared: &Prepared, time: Duration) -> Vec<Explanation> {
    if time < LEAST {
        return Vec::new();
    }
    let findings = analyse(run).findings;
    let gap = |found| if let Found::Gap(gap) = found { Some(gap) } else { None };
    let gaps = findings.into_iter().filter_map(|finding| gap(finding.found)).filter(|gap| gap.level.is_none());
    let inquiries: Vec<Inquiry> = gaps.filter_map(|gap| inquiry(run, prepared, &gap)).take(MOST).collect();
    let (begun, of) = (Instant::now(), inquiries.len());
    let mut explanations = Vec::new();
    for (done, inquiry) in inquiries.into_iter().enumerate() {
        let left = time.saturating_sub(begun.elapsed());
        if left < LEAST {
            break;
        }
        // A larger gap may take the time of the smaller ones rather than get no answer.
        let left = left.as_secs_f64();
        let pace = Pace { seconds: left / (of - done) as f64, most: left, ..inquiry.pace };
        let found = Inquiry { pace, ..inquiry }.carry_out(prepared);
        explanations.extend(explain(&found.experiment));
        if found.stopped == Some(Stopped::Interrupted) {
            break;
        }
    }
    explanations
}

/// What asks for the causes of a gap; `None` where its figure is no metric of a plain run.
fn inquiry(run: &Run, prepared: &Prepared, gap: &Gap) -> Option<Inquiry> {
    let probes = kelvin_probes::all();
    let measures = |probe: &&&_| {
        let probe: &kelvin_harness::Probe = probe;
        probe.kind == ProbeKind::Measure && probe.metrics.iter().any(|metric| metric.id == gap.at.metric)
    };
    let probe = *probes.iter().find(measures)?;
    let metric = *probe.metrics.iter().find(|metric| metric.id == gap.at.metric)?;
    let case = gap.at.case.clone();
    let names = [probe.id.to_owned()];
    let plan = Plan::new(&probes, ProbeKind::Measure, &names, &prepared.machine, Effort::Thorough).ok()?;
    let plan = plan.only((&probes, &prepared.machine), |one| *one == case);
    let pace = Pace { seconds: 0.0, passes: kelvin_stats::LEAST_ROUNDS as u32, most: 0.0 };
    Some(Inquiry { probe, metric, case, inputs: inputs(&plan), pace, seed: run.outline.settings.seed })
}
