//! A run of one area predicts of it what a run of everything does: what its predictions need is planned as inputs.

mod headlines;

use std::collections::BTreeMap;

use kelvin_core::{Case, MeasuredValue, Name, PlannedMeasurement, PredictionRecord};
use kelvin_harness::{
    Effort, Plan, PlanContext, PlanUnit, PredictionInputs, ProbeKind, ReferenceRecord, prediction_records,
};
use kelvin_probes::{all, headline_table as kept, reference_machines, reference_records};

use headlines::plausible;

const AREAS: [&str; 5] = ["cpu", "os", "mem", "file", "net"];

fn plan(reference: &ReferenceRecord, names: &[&str], effort: Effort) -> Plan {
    let (probes, names) = (all(), names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>());
    let sources = PlanContext { probes: &probes, machine: &reference.machine, references: Some(reference_machines) };
    Plan::new(&sources, ProbeKind::Measure, &names, effort).unwrap()
}

/// The predictions of what a plan measures for its own sake, on a machine whose figures are kept, where only the plan was measured. What
/// is left out of a quick run is predicted too where its inputs happen to be there, and has none of its own.
fn predicted(reference: &ReferenceRecord, plan: &Plan) -> BTreeMap<(Name, Case), PredictionRecord> {
    let (headlines, planned) = (kept(reference), plan.measurements());
    let has_metric = |unit: &PlanUnit, id: &str| unit.probe.metrics.iter().any(|metric| metric.id.as_str() == id);
    let is_planned = |id: &str, case: &Case| plan.units.iter().any(|unit| unit.case == *case && has_metric(unit, id));
    let value = |id: &str, case: &Case| headlines.lookup(id, case).or_else(|| plausible(id));
    let measured =
        |id: &str, case: &Case| -> Option<MeasuredValue> { value(id, case).filter(|_| is_planned(id, case)) };
    let references = reference_machines(&reference.machine, &planned);
    let facts = PredictionInputs::new(&reference.machine, &measured).with_references(&references);
    let is_unit = |measurement: &PlannedMeasurement| {
        plan.units.iter().any(|unit| measurement.probe == *unit.probe.id && measurement.case == unit.case)
    };
    let requested: Vec<_> =
        planned.iter().filter(|measurement| !measurement.only_input && is_unit(measurement)).cloned().collect();
    let records = prediction_records(&all(), &requested, &facts);
    records.into_iter().map(|record| ((record.metric, record.case.clone()), record)).collect()
}

#[test]
fn single_area_run_has_same_predictions() {
    for reference in reference_records() {
        for effort in [Effort::Quick, Effort::Default] {
            let full_run = predicted(reference, &plan(reference, &[], effort));
            for area in AREAS {
                let of_area = predicted(reference, &plan(reference, &[area], effort));
                assert!(of_area.values().any(|record| record.prediction.is_some()), "{area}");
                let differences: Vec<_> = of_area.iter().filter(|(key, record)| full_run[key] != **record).collect();
                assert!(differences.is_empty(), "{} {effort:?} {area}: {differences:#?}", reference.name);
            }
        }
    }
}
