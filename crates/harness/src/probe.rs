//! What a probe is: data and three functions.

use std::collections::BTreeSet;

use kelvin_core::{
    Case, Machine, Metric, Name, Need, NoPrediction, PlannedMeasurement, PredictionRecord, is_dotted_prefix,
};
use serde::Serialize;

use crate::bench::Bench;
use crate::facts::{PredictFn, PredictionInputs};
use crate::probe_error::ProbeError;

/// Code that measures one metric, one curve, or a few metrics that one operation yields.
#[derive(Debug, Serialize)]
pub struct Probe {
    /// Dotted id, usually that of its first metric.
    pub id: &'static str,
    /// One sentence.
    pub summary: &'static str,
    /// Part of a plain run, or a long experiment.
    #[serde(skip)]
    pub kind: ProbeKind,
    /// The metrics that it measures, the headline first.
    pub metrics: &'static [&'static Metric],
    /// The text of `explain`, a file in Markdown which [`Method::parse`](crate::Method::parse) reads.
    #[serde(skip)]
    pub method: &'static str,
    /// The cases that make sense on this machine at this effort, in the order of reports. What is omitted at a lower
    /// effort is reported.
    #[serde(skip)]
    pub cases: fn(&Machine, Effort) -> Vec<Case>,
    /// Measures one case once, in a process of its own.
    #[serde(skip)]
    pub run: fn(&mut Bench<'_>, &Case) -> Result<(), ProbeError>,
    /// Predicts one of its metrics at one case from facts and lower metrics; pure.
    #[serde(skip)]
    pub predict: PredictFn,
}

impl Probe {
    /// A probe of a plain run that measures these metrics and has the id of the first, with one case that has no axes. Its other
    /// fields are to be given: `Probe { summary, .., ..Probe::measure(&[&METRIC]) }`.
    pub const fn measure(metrics: &'static [&'static Metric]) -> Self {
        Self {
            id: metrics[0].id.as_str(),
            summary: "",
            kind: ProbeKind::Measure,
            method: "",
            metrics,
            cases: |_, _| vec![Case::new()],
            run: |_, _| Err(ProbeError::Fail("the probe measures nothing".to_owned())),
            predict: |_, _, _| Err(NoPrediction::new("the probe predicts nothing")),
        }
    }

    /// Like [`Probe::measure`], for a long experiment.
    pub const fn study(metrics: &'static [&'static Metric]) -> Self {
        Self { kind: ProbeKind::Study, ..Self::measure(metrics) }
    }

    /// Like [`Probe::measure`], for a known truth.
    pub const fn truth(metrics: &'static [&'static Metric]) -> Self {
        Self { kind: ProbeKind::Truth, ..Self::measure(metrics) }
    }

    /// Like [`Probe::measure`], for a deliberate fault.
    pub const fn fault(metrics: &'static [&'static Metric]) -> Self {
        Self { kind: ProbeKind::Fault, ..Self::measure(metrics) }
    }

    /// Whether a name on the command line selects it: its id, a prefix of it up to a dot, or those of one of its
    /// metrics.
    pub fn is_selected_by(&self, name: &str) -> bool {
        is_dotted_prefix(name, self.id) || self.metrics.iter().any(|metric| is_dotted_prefix(name, &metric.id))
    }

    /// Whether its first round comes before all others of a run, and the rest after them.
    pub(crate) fn spans_run(&self) -> bool {
        self.metrics.iter().any(|metric| metric.needs == Some(Need::IdleTime))
    }

    /// Whether one of its metrics at this case is among those that predictions need.
    pub(crate) fn is_input_of(&self, inputs: &BTreeSet<(Name, Case)>, case: &Case) -> bool {
        self.metrics.iter().any(|metric| inputs.contains(&(metric.id, case.clone())))
    }

    /// Its prediction for one of its metrics at one case, or the reason for none.
    fn predict(&self, facts: &PredictionInputs<'_>, metric: &Metric, case: &Case) -> PredictionRecord {
        let prediction = facts.predict(metric, case, self.predict);
        let missing_reason = prediction.as_ref().err().cloned();
        PredictionRecord { metric: metric.id, case: case.clone(), prediction: prediction.ok(), missing_reason }
    }
}

/// The predictions of everything planned, from what was measured.
pub fn prediction_records(
    probes: &[&Probe],
    plan: &[PlannedMeasurement],
    facts: &PredictionInputs<'_>,
) -> Vec<PredictionRecord> {
    let records = |measurement: &PlannedMeasurement| -> Vec<PredictionRecord> {
        let Some(probe) = probes.iter().find(|probe| measurement.probe == *probe.id) else { return Vec::new() };
        let metrics = probe.metrics.iter().filter(|metric| measurement.metrics.contains(&metric.id));
        metrics.map(|metric| probe.predict(facts, metric, &measurement.case)).collect()
    };
    plan.iter().flat_map(records).collect()
}

/// Whether a probe is part of a plain run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProbeKind {
    /// Part of a plain run.
    Measure,
    /// A long experiment, run by `kelvin study`.
    Study,
    /// A known truth, fixed by construction, run by `kelvin selfcheck` and the tests.
    Truth,
    /// A deliberate fault, run by `kelvin selfcheck --faults` and the tests.
    Fault,
}

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effort {
    /// As little as makes sense.
    Quick,
    /// The usual.
    Default,
    /// All there is.
    Thorough,
}
