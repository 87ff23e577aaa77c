//! The figures of machines beside their predictions.

use std::collections::BTreeMap;

use kelvin_harness::{Elsewhere, Facts, Figure, OtherMachine, predictions};
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
    let plan = plan(here);
    Beside::of(here, &plan, &kelvin_probes::elsewhere(&here.machine, &plan))
}

/// How many figures of each metric are flagged where all of them are so many times worse, and so are the inputs of others: the metric, and
/// a count for each of these factors.
#[allow(dead_code, reason = "the test that shares this file asks for single figures")]
pub fn whole_metrics_slower(here: &OtherMachine, slower: &[f64]) -> Vec<(Name, Vec<usize>)> {
    // The same figures at any speed, and what others tell of them.
    let plan = plan(here);
    let elsewhere = kelvin_probes::elsewhere(&here.machine, &plan);
    let metrics: BTreeMap<Name, Better> = Beside::of(here, &plan, &elsewhere)
        .into_iter()
        .filter(|one| one.prediction.is_some())
        .map(|one| (one.figure.metric, one.better))
        .collect();
    let flagged = |metric: Name, better, slower: f64| {
        let times = if better == Better::Higher { 1.0 / slower } else { slower };
        let mut changed = here.clone();
        for figure in changed.figures.iter_mut().filter(|figure| figure.metric == metric) {
            figure.value *= times;
            figure.half_width *= times;
        }
        let own = Beside::of(&changed, &plan, &elsewhere).into_iter().filter(|one| one.figure.metric == metric);
        own.filter(|one| one.touches(1.0) == Some(false)).count()
    };
    let of = |(metric, better)| (metric, slower.iter().map(|slower| flagged(metric, better, *slower)).collect());
    metrics.into_iter().map(of).collect()
}

/// The figures of a machine as a plan of what is measured.
fn plan(here: &OtherMachine) -> Vec<Planned> {
    let probes = kelvin_probes::all();
    let planned = |figure: &Figure| {
        let probe = probes.iter().find(|probe| probe.metrics.iter().any(|metric| metric.id == figure.metric))?;
        let (probe, metrics) = (Name::new(probe.id), vec![figure.metric]);
        Some(Planned { probe, metrics, case: figure.case.clone(), only_input: false })
    };
    here.figures.iter().filter_map(planned).collect()
}

impl Beside {
    /// Those of a machine that are planned, by what others tell.
    fn of(here: &OtherMachine, plan: &[Planned], elsewhere: &Elsewhere) -> Vec<Self> {
        let headlines = kelvin_probes::headlines(here);
        let find = |metric: &str, case: &Case| headlines.at(metric, case);
        let probes = kelvin_probes::all();
        let metrics: BTreeMap<Name, &Metric> =
            probes.iter().flat_map(|probe| probe.metrics).map(|metric| (metric.id, *metric)).collect();
        let facts = Facts::new(&here.machine, &find).beside(elsewhere);
        let of = |record: kelvin_model::PredictionRecord| {
            let is_this = |figure: &&Figure| figure.metric == record.metric && figure.case == record.case;
            let figure = here.figures.iter().find(is_this)?;
            let better = metrics.get(&record.metric)?.better;
            Some(Self { figure: figure.clone(), better, prediction: record.prediction })
        };
        predictions(&probes, plan, &facts).into_iter().filter_map(of).collect()
    }
}
