//! The figures of machines beside their predictions.

use std::collections::BTreeMap;

use kelvin_harness::{Facts, Figure, OtherMachine, predictions};
use kelvin_model::{Better, Case, Metric, Name, Planned, Prediction};

/// A figure beside its prediction.
pub struct Beside {
    pub figure: Figure,
    better: Better,
    pub prediction: Option<Prediction>,
}

impl Beside {
    /// Whether an interval this many times worse than the figure's touches the range, by the rule of verdicts.
    pub fn touches(&self, slower: f64) -> Option<bool> {
        let prediction = self.prediction.as_ref()?;
        let times = if self.better == Better::Higher { 1.0 / slower } else { slower };
        let [low, high] = [-1.0, 1.0].map(|end| times * (self.figure.value + end * self.figure.half_width));
        Some(low <= prediction.high && high >= prediction.low)
    }
}

/// The figures of a machine, predicted from its lower metrics and from the machines of other kinds.
pub fn beside(here: &OtherMachine) -> Vec<Beside> {
    let headlines = kelvin_probes::headlines(here);
    let find = |metric: &str, case: &Case| headlines.at(metric, case);
    let probes = kelvin_probes::all();
    let metrics: BTreeMap<Name, &Metric> =
        probes.iter().flat_map(|probe| probe.metrics).map(|metric| (metric.id, *metric)).collect();
    let planned = |figure: &Figure| {
        let probe = probes.iter().find(|probe| probe.metrics.iter().any(|metric| metric.id == figure.metric))?;
        let (probe, metrics) = (Name::new(probe.id), vec![figure.metric]);
        Some(Planned { probe, metrics, case: figure.case.clone(), only_input: false })
    };
    let plan: Vec<Planned> = here.figures.iter().filter_map(planned).collect();
    let elsewhere = kelvin_probes::elsewhere(&here.machine, &plan);
    let facts = Facts::new(&here.machine, &find).beside(&elsewhere);
    let records = predictions(&probes, &plan, &facts);
    let of = |record: kelvin_model::PredictionRecord| {
        let figure = here.figures.iter().find(|figure| figure.metric == record.metric && figure.case == record.case)?;
        let better = metrics.get(&record.metric)?.better;
        Some(Beside { figure: figure.clone(), better, prediction: record.prediction })
    };
    records.into_iter().filter_map(of).collect()
}
