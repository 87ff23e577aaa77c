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

fn plan(other: &ReferenceRecord, names: &[&str], effort: Effort) -> Plan {
    let (probes, names) = (all(), names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>());
    let sources = PlanContext { probes: &probes, machine: &other.machine, references: Some(reference_machines) };
    Plan::new(&sources, ProbeKind::Measure, &names, effort).unwrap()
}

/// The predictions of what a plan measures for its own sake, on a machine whose figures are kept, where only the plan was measured. What
/// is left out of a quick run is predicted too where its inputs happen to be there, and has none of its own.
fn predicted(other: &ReferenceRecord, plan: &Plan) -> BTreeMap<(Name, Case), PredictionRecord> {
    let (known, planned) = (kept(other), plan.planned());
    let is_of = |unit: &PlanUnit, id: &str| unit.probe.metrics.iter().any(|metric| metric.id.as_str() == id);
    let is_planned = |id: &str, case: &Case| plan.units.iter().any(|unit| unit.case == *case && is_of(unit, id));
    let value = |id: &str, case: &Case| known.lookup(id, case).or_else(|| plausible(id));
    let measured =
        |id: &str, case: &Case| -> Option<MeasuredValue> { value(id, case).filter(|_| is_planned(id, case)) };
    let told = reference_machines(&other.machine, &planned);
    let facts = PredictionInputs::new(&other.machine, &measured).with_references(&told);
    let is_unit =
        |one: &PlannedMeasurement| plan.units.iter().any(|unit| one.probe == *unit.probe.id && one.case == unit.case);
    let asked: Vec<_> = planned.iter().filter(|one| !one.only_input && is_unit(one)).cloned().collect();
    let records = prediction_records(&all(), &asked, &facts);
    records.into_iter().map(|record| ((record.metric, record.case.clone()), record)).collect()
}

#[test]
fn single_area_run_has_same_predictions() {
    for other in reference_records() {
        for effort in [Effort::Quick, Effort::Default] {
            let whole = predicted(other, &plan(other, &[], effort));
            for area in AREAS {
                let of_area = predicted(other, &plan(other, &[area], effort));
                assert!(of_area.values().any(|record| record.prediction.is_some()), "{area}");
                let differs: Vec<_> = of_area.iter().filter(|(at, record)| whole[at] != **record).collect();
                assert!(differs.is_empty(), "{} {effort:?} {area}: {differs:#?}", other.name);
            }
        }
    }
}
