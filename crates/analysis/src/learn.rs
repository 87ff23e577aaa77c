//! What later runs of a machine learn from a run: its headlines.

use kelvin_model::{Case, Headline, Metric};

use crate::BLOCK_OVER_CHAIN;
use crate::result::{Analysis, MetricResult};

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
