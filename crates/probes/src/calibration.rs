//! How right and how sharp predictions are on machines whose figures are known.

use std::collections::BTreeMap;

use kelvin_core::{Better, Case, Metric, Name, PlannedMeasurement, Prediction, PredictionRecord};
use kelvin_harness::{PredictionInputs, Probe, ReferenceHeadline, ReferenceRecord, prediction_records};
use kelvin_stats::median;

/// A figure with its prediction.
#[derive(Clone, Debug)]
pub struct PredictedFigure {
    /// The figure.
    pub figure: ReferenceHeadline,
    /// Which way it is better.
    pub better: Better,
    /// Its prediction, if there is one.
    pub prediction: Option<Prediction>,
}

impl PredictedFigure {
    /// Whether an interval this many times worse than the figure's touches the range, by the rule of verdicts.
    pub fn overlaps_range(&self, slowdown: f64) -> Option<bool> {
        let prediction = self.prediction.as_ref()?;
        let factor = if self.better == Better::Higher { 1.0 / slowdown } else { slowdown };
        let [low, high] = [-1.0, 1.0].map(|end| factor * (self.figure.value + end * self.figure.half_width));
        Some(low <= prediction.high && high >= prediction.low)
    }
}

/// How well predictions hold on one machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CoverageSummary {
    /// Figures that have a prediction.
    pub figures: usize,
    /// The share whose interval touches the predicted range.
    pub covered: f64,
    /// The median of upper over lower ends of ranges.
    pub median_range: f64,
}

impl CoverageSummary {
    /// Of figures with their predictions; `None` without one that has a range.
    pub fn from_figures<'a>(figures: impl IntoIterator<Item = &'a PredictedFigure>) -> Option<Self> {
        let touches = |figure: &'a PredictedFigure| Some((figure.overlaps_range(1.0)?, figure.prediction.as_ref()?));
        let covered: Vec<(bool, &Prediction)> = figures.into_iter().filter_map(touches).collect();
        let ranges = covered.iter().filter(|(_, prediction)| prediction.low > 0.0);
        let ranges: Vec<f64> = ranges.map(|(_, prediction)| prediction.high / prediction.low).collect();
        let inside = covered.iter().filter(|(inside, _)| *inside).count() as f64 / covered.len() as f64;
        (!ranges.is_empty()).then(|| Self { figures: covered.len(), covered: inside, median_range: median(&ranges) })
    }
}

/// The figures of a machine, predicted from its lower metrics and from the other machines.
pub fn predict_figures(reference: &ReferenceRecord) -> Vec<PredictedFigure> {
    let probes = crate::all();
    let metrics: BTreeMap<Name, (&Probe, &Metric)> =
        probes.iter().flat_map(|probe| probe.metrics.iter().map(|metric| (metric.id, (*probe, *metric)))).collect();
    // The figures as a plan of what is measured.
    let plan_measurement = |figure: &ReferenceHeadline| {
        let (probe, metrics) = (Name::new(metrics.get(&figure.metric)?.0.id), vec![figure.metric]);
        Some(PlannedMeasurement { probe, metrics, case: figure.case.clone(), only_input: false })
    };
    let plan: Vec<PlannedMeasurement> = reference.figures.iter().filter_map(plan_measurement).collect();
    let (references, headlines) =
        (crate::reference_machines(&reference.machine, &plan), crate::headline_table(reference));
    let lookup = |metric: &str, case: &Case| headlines.lookup(metric, case);
    let facts = PredictionInputs::new(&reference.machine, &lookup).with_references(&references);
    let predicted_figure = |record: PredictionRecord| {
        let is_this = |figure: &&ReferenceHeadline| figure.metric == record.metric && figure.case == record.case;
        let figure = reference.figures.iter().find(is_this)?.clone();
        Some(PredictedFigure { figure, better: metrics.get(&record.metric)?.1.better, prediction: record.prediction })
    };
    prediction_records(&probes, &plan, &facts).into_iter().filter_map(predicted_figure).collect()
}
