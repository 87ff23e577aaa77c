//! What earlier runs of a machine teach about the spread between runs.

use kelvin_model::{Learned, Metric, Run};

use crate::gather::Gathered;
use crate::headlines::{Desk, Settled, within_bounds};

/// Headlines of earlier runs of one machine, oldest first as given, with the variances that their own rounds explain.
///
/// Only values of the method version of the newest run that defines a metric count. The runs must be of one machine; a
/// run whose headline has a single round teaches nothing of its own spread and is left out.
pub fn learn(earlier: &[&Run]) -> Vec<Learned> {
    let mut metrics: Vec<Metric> = Vec::new();
    for metric in earlier.iter().rev().flat_map(|run| &run.outline.metrics) {
        if !metrics.iter().any(|known| known.id == metric.id) {
            metrics.push(*metric);
        }
    }
    learn_for(earlier, &metrics)
}

/// As [`learn`], for the definitions of the run to come: values of another method version do not count.
pub fn learn_for(earlier: &[&Run], metrics: &[Metric]) -> Vec<Learned> {
    let mut all: Vec<Learned> = Vec::new();
    for run in earlier {
        let desk = Desk::of(run);
        for measurement in &run.measurements {
            for metric in crate::headlines::metrics_of(run, measurement) {
                let known = metrics.iter().any(|m| m.id == metric.id && m.version == metric.version);
                let gathered = Gathered::of(measurement, metric, &desk.references);
                let Some(settled) = Settled::of(&gathered, metric.headline, None).filter(|_| known) else { continue };
                if settled.round_headlines.len() < 2 || !within_bounds(metric, settled.headline) {
                    continue;
                }
                let case = &measurement.planned.case;
                let found = all.iter().position(|learned| learned.metric == metric.id && learned.case == *case);
                let index = found.unwrap_or_else(|| {
                    let (headlines, within) = (Vec::new(), Vec::new());
                    all.push(Learned { metric: metric.id, case: case.clone(), headlines, within });
                    all.len() - 1
                });
                all[index].headlines.push(settled.headline);
                all[index].within.push(settled.within_variance);
            }
        }
    }
    all
}
