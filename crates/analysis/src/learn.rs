//! What later runs of a machine learn from a run: its headlines, and what its rounds took.

use std::collections::BTreeMap;

use kelvin_model::{Attempt, Case, Headline, Metric, Name, Round, Run};
use kelvin_stats::median;

use crate::BLOCK_OVER_CHAIN;
use crate::result::{Analysis, MetricResult};

/// What a round of a case took beside its timing. Each run keeps it for the plans of later ones.
pub static ROUND_COST: Metric = Metric::duration("round.beside_timing", "A round of a case beside its timing");

/// Nanoseconds that a round of each case took beside its timing, up to the beginning of the next one: the median of its rounds. A
/// case with a single round has none: that may have made what others find.
pub fn round_costs(run: &Run) -> Vec<(Name, Case, f64)> {
    let mut rounds: Vec<(usize, &Round)> = Vec::new();
    for (at, measurement) in run.measurements.iter().enumerate() {
        rounds.extend(measurement.rounds.iter().map(|round| (at, round)));
    }
    rounds.sort_by(|a, b| a.1.at.total_cmp(&b.1.at));
    let mut beside: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for (place, &(at, round)) in rounds.iter().enumerate() {
        let (Some(timing), Attempt::Measured(_)) = (round.timing, &round.attempt) else { continue };
        let end = rounds.get(place + 1).map_or(round.at + round.seconds, |(_, next)| next.at);
        beside.entry(at).or_default().push(1e9 * (end - round.at - timing).max(0.0));
    }
    let cost = |(at, beside): (usize, Vec<f64>)| {
        let planned = &run.measurements[at].planned;
        (beside.len() > 1).then(|| (planned.probe, planned.case.clone(), median(&beside)))
    };
    beside.into_iter().filter_map(cost).collect()
}

impl Analysis {
    /// The headlines that later runs learn from, of the metrics that are comparable between runs.
    pub fn teaches(&self, is_usual: impl Fn(&Metric) -> bool) -> Vec<Headline> {
        let of_core = self.block_over_chain.map(|value| Headline {
            metric: BLOCK_OVER_CHAIN.id,
            version: BLOCK_OVER_CHAIN.version,
            case: Case::new(),
            value,
            within_variance: 0.0,
        });
        let usual = self.results.iter().filter(|result| is_usual(&result.metric));
        usual.filter_map(taught).chain(of_core).collect()
    }
}

fn taught(result: &MetricResult) -> Option<Headline> {
    // A single round says nothing of the spread between rounds.
    let summary = result.outcome.summary().filter(|summary| summary.rounds > 1)?;
    Some(Headline {
        metric: result.metric.id,
        version: result.metric.version,
        case: result.case.clone(),
        value: summary.headline,
        within_variance: summary.within_variance,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{add, run};

    static METRIC: Metric = Metric::duration("test.metric", "of a test");

    #[test]
    fn what_a_round_takes_ends_where_the_next_one_begins() {
        let round = |at, seconds, timing, attempt| Round { index: 0, at, seconds, timing, cpu: 0, attempt };
        let good = |at, seconds, timing| round(at, seconds, Some(timing), Attempt::Measured(Vec::new()));
        let of_former_version = |at| round(at, 1.0, None, Attempt::Measured(Vec::new()));
        let failed = round(1.0, 1.5, Some(0.5), Attempt::Failed("a test".into()));
        let mut run = run(&[METRIC]);
        let case = |n| Case::new().with("n", n);
        add(&mut run, &METRIC, case(1), vec![good(0.0, 0.5, 0.25), good(3.0, 0.5, 0.25), good(7.0, 1.0, 0.5)]);
        add(&mut run, &METRIC, case(2), vec![failed, good(2.0, 0.5, 0.5)]);
        add(&mut run, &METRIC, case(3), vec![of_former_version(3.5), of_former_version(5.0)]);
        // 0.75 s up to the failed round, 0.25 s up to a round of old, and 0.5 s of the last one. The second case has one good round.
        assert_eq!(round_costs(&run), [(METRIC.id, case(1), 0.5e9)]);
    }
}
