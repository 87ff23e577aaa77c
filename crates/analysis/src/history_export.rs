//! What later runs of a machine learn from a run: its headlines, and what its rounds took.

use kelvin_core::IndirectSort;
use std::collections::BTreeMap;

use crate::canaries::{BLOCK_OVER_CHAIN, STEADY_CHAIN};
use crate::prelude::*;

/// What the first round of a case took outside its timed part. Each run keeps it for the plans of later ones.
pub static FIRST_ROUND_COST: Metric =
    Metric::duration("round.first.untimed", "Time of the first round of a case outside the timed part");
/// What each of its other rounds took, on average: what a run takes is a sum, which medians of skewed times miss.
pub static ROUND_COST: Metric =
    Metric::duration("round.untimed", "Time of a round of a case outside the timed part").version(2);

/// What the rounds of a case took outside their timed part, each up to the beginning of the next one.
#[derive(Clone, Debug, PartialEq)]
pub struct RoundCost {
    /// The probe.
    pub probe: Name,
    /// The case.
    pub case: Case,
    /// Nanoseconds of the first round, which may have made what the others found.
    pub first: f64,
    /// Mean nanoseconds of each other round of the minimum: further ones are timed for longer.
    pub later: f64,
}

/// What the rounds of each case took; a case without a second good round has none.
pub fn round_costs(run: &Run) -> Vec<RoundCost> {
    let mut rounds: Vec<(usize, &Round)> = Vec::new();
    for (position, measurement) in run.measurements.iter().enumerate() {
        rounds.extend(measurement.rounds.iter().map(|round| (position, round)));
    }
    rounds.indirect_sort_by(|a, b| a.1.start_seconds.total_cmp(&b.1.start_seconds));
    let mut costs: BTreeMap<usize, (Option<f64>, Vec<f64>)> = BTreeMap::new();
    for (place, &(position, round)) in rounds.iter().enumerate() {
        let (Some(timing), RoundOutcome::Measured(_)) = (round.timing, &round.outcome) else { continue };
        let end = rounds.get(place + 1).map_or(round.start_seconds + round.seconds, |(_, next)| next.start_seconds);
        let nanoseconds = 1e9 * (end - round.start_seconds - timing).max(0.0);
        let (first, later) = costs.entry(position).or_default();
        match round.index {
            0 => *first = Some(nanoseconds),
            index if index < run.header.settings.rounds => later.push(nanoseconds),
            _ => {}
        }
    }
    let cost = |(position, (first, later)): (usize, (Option<f64>, Vec<f64>))| {
        let planned = &run.measurements[position].planned;
        let first = first.filter(|_| !later.is_empty())?;
        let later = later.iter().sum::<f64>() / later.len() as f64;
        Some(RoundCost { probe: planned.probe, case: planned.case.clone(), first, later })
    };
    costs.into_iter().filter_map(cost).collect()
}

impl Analysis {
    /// The headlines that later runs learn from, of the metrics that are comparable between runs.
    pub fn stored_headlines(&self, is_comparable: impl Fn(&Metric) -> bool) -> Vec<StoredHeadline> {
        let chain = self.canaries.iter().find(|history| history.canary == Canary::Chain).map(|chain| chain.reference);
        let core_metrics = [(&BLOCK_OVER_CHAIN, self.block_over_chain), (&STEADY_CHAIN, chain)];
        let core_headlines = core_metrics.into_iter().filter_map(|(metric, value)| {
            let (metric, version) = (metric.id, metric.version);
            Some(StoredHeadline { metric, version, case: Case::new(), value: value?, within_variance: 0.0 })
        });
        // An input is measured briefly: it would be another series than the same figure for its own sake.
        let comparable = self.results.iter().filter(|result| !result.only_input && is_comparable(&result.metric));
        comparable.filter_map(stored_headline).chain(core_headlines).collect()
    }
}

fn stored_headline(result: &MetricResult) -> Option<StoredHeadline> {
    // A single round does not show the spread between rounds.
    let summary = result.outcome.summary().filter(|summary| summary.rounds > 1)?;
    Some(StoredHeadline {
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
    use crate::testing::{add_measurement, empty_run};

    static METRIC: Metric = Metric::duration("test.metric", "of a test");

    #[test]
    fn round_cost_ends_at_next_round() {
        let round = |index, start, seconds, timing, outcome| Round {
            index,
            start_seconds: start,
            seconds,
            timing,
            cpu: 0,
            outcome,
        };
        let measured_round = |index, start, seconds, timing| {
            round(index, start, seconds, Some(timing), RoundOutcome::Measured(Vec::new()))
        };
        let old_round = |index, start| round(index, start, 1.0, None, RoundOutcome::Measured(Vec::new()));
        let failed = round(0, 1.0, 1.5, Some(0.5), RoundOutcome::Failed("a test".into()));
        let mut run = empty_run(&[METRIC]);
        run.header.settings.rounds = 4;
        let case = |n| Case::new().with_number("n", n);
        let rounds = [(0, 0.0, 0.5), (1, 3.0, 0.5), (2, 7.0, 1.0), (3, 9.0, 3.0), (4, 13.0, 7.0)];
        add_measurement(
            &mut run,
            &METRIC,
            case(1),
            rounds.map(|(index, start, seconds)| measured_round(index, start, seconds, 0.25)).to_vec(),
        );
        add_measurement(&mut run, &METRIC, case(2), vec![failed, measured_round(1, 2.0, 0.5, 0.5)]);
        add_measurement(&mut run, &METRIC, case(3), vec![old_round(0, 3.5), old_round(1, 5.0)]);
        add_measurement(&mut run, &METRIC, case(4), vec![measured_round(0, 8.0, 0.5, 0.25)]);
        // Up to the failed round; up to a round of old, up to the single round of the fourth case, and up to the fifth round, whose
        // median is not their mean. The second case has no good first round.
        let expected =
            RoundCost { probe: METRIC.id, case: case(1), first: 0.75e9, later: (0.25 + 0.75 + 3.75) / 3.0 * 1e9 };
        assert_eq!(round_costs(&run), [expected]);
    }
}
