//! Causes of the largest gaps of a run between measured and predicted, tried within a part of its time.

use std::time::{Duration, Instant};

use kelvin_analysis::{Found, Gap, analyse, explain};
use kelvin_harness::ProbeKind;
use kelvin_model::{Explanation, Run};

use crate::inquiry::{Inquiry, Pace, Stopped, inputs, measured_by};
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
    let asked = |gap: Gap| {
        let (probe, metric) = measured_by(&gap.at.metric).filter(|(probe, _)| probe.kind == ProbeKind::Measure)?;
        Some((probe, metric, gap.at.case))
    };
    let asked: Vec<_> = gaps.filter_map(asked).take(MOST).collect();
    let (begun, of) = (Instant::now(), asked.len());
    let mut explanations = Vec::new();
    for (done, (probe, metric, case)) in asked.into_iter().enumerate() {
        let left = time.saturating_sub(begun.elapsed());
        if left < LEAST {
            break;
        }
        // A larger gap may take the time of the smaller ones rather than get no answer.
        let left = left.as_secs_f64();
        let pace = Pace { seconds: left / (of - done) as f64, passes: kelvin_stats::LEAST_ROUNDS as u32, most: left };
        let inputs = inputs(probe, &case, &prepared.machine);
        let found = Inquiry { probe, metric, case, inputs, pace, seed: run.outline.settings.seed }.carry_out(prepared);
        explanations.extend(explain(&found.experiment));
        if found.stopped == Some(Stopped::Interrupted) {
            break;
        }
    }
    explanations
}
