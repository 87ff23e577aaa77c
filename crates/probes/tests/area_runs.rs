//! A run of one area predicts of it what a run of everything does: what its predictions need is planned as inputs.

mod headlines;

use std::collections::BTreeMap;

use kelvin_harness::{Effort, Facts, OtherMachine, Plan, ProbeKind, Sources, Unit, predictions};
use kelvin_model::{Case, MeasuredValue, Name, PredictionRecord};
use kelvin_probes::{all, elsewhere, headlines as kept, other_machines};

use headlines::plausible;

const AREAS: [&str; 5] = ["cpu", "os", "mem", "file", "net"];

fn plan(other: &OtherMachine, names: &[&str], effort: Effort) -> Plan {
    let (probes, names) = (all(), names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>());
    let sources = Sources { probes: &probes, machine: &other.machine, elsewhere: Some(elsewhere) };
    Plan::new(&sources, ProbeKind::Measure, &names, effort).unwrap()
}

/// The predictions of what a plan asks for, on a machine whose figures are kept, where only the plan was measured.
fn predicted(other: &OtherMachine, plan: &Plan) -> BTreeMap<(Name, Case), PredictionRecord> {
    let (known, planned) = (kept(other), plan.planned());
    let is_of = |unit: &Unit, id: &str| unit.probe.metrics.iter().any(|metric| metric.id.as_str() == id);
    let is_planned = |id: &str, case: &Case| plan.units.iter().any(|unit| unit.case == *case && is_of(unit, id));
    let value = |id: &str, case: &Case| known.at(id, case).or_else(|| plausible(id));
    let measured =
        |id: &str, case: &Case| -> Option<MeasuredValue> { value(id, case).filter(|_| is_planned(id, case)) };
    let told = elsewhere(&other.machine, &planned);
    let facts = Facts::new(&other.machine, &measured).beside(&told);
    let asked: Vec<_> = planned.iter().filter(|one| !one.only_input).cloned().collect();
    let records = predictions(&all(), &asked, &facts);
    records.into_iter().map(|record| ((record.metric, record.case.clone()), record)).collect()
}

/// Whether it says that there is no prediction since an input was not measured.
fn lacks_an_input(record: &PredictionRecord) -> bool {
    record.none_because.as_ref().is_some_and(|why| why.0.ends_with("which this run did not measure"))
}

#[test]
fn a_run_of_one_area_predicts_what_a_run_of_everything_does() {
    for other in other_machines() {
        for effort in [Effort::Quick, Effort::Default] {
            let whole = predicted(other, &plan(other, &[], effort));
            for area in AREAS {
                let of_area = predicted(other, &plan(other, &[area], effort));
                assert!(of_area.values().any(|record| record.prediction.is_some()), "{area}");
                let (lacking, differs): (Vec<_>, Vec<_>) = of_area
                    .iter()
                    .filter(|(at, record)| whole[at] != **record)
                    .partition(|(_, record)| lacks_an_input(record));
                assert!(differs.is_empty(), "{} {effort:?} {area}: {differs:#?}", other.name);
                // Which inputs a formula takes may depend on a figure that is not known before.
                assert!(lacking.len() <= of_area.len() / 10, "{} {effort:?} {area}: {lacking:#?}", other.name);
            }
        }
    }
}
