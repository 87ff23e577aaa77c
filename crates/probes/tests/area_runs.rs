//! A run of one area predicts of it what a run of everything does: what its predictions need is planned as inputs.

mod headlines;

use std::collections::BTreeMap;

use kelvin_harness::{Effort, Facts, OtherMachine, Plan, ProbeKind, Sources, Unit, predictions};
use kelvin_model::{Case, MeasuredValue, Name, Planned, PredictionRecord};
use kelvin_probes::{all, elsewhere, headlines as kept, other_machines};

use headlines::plausible;

const AREAS: [&str; 5] = ["cpu", "os", "mem", "file", "net"];

fn plan(other: &OtherMachine, names: &[&str], effort: Effort) -> Plan {
    let (probes, names) = (all(), names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>());
    let sources = Sources { probes: &probes, machine: &other.machine, elsewhere: Some(elsewhere) };
    Plan::new(&sources, ProbeKind::Measure, &names, effort).unwrap()
}

/// The predictions of what a plan measures for its own sake, on a machine whose figures are kept, where only the plan was measured. What
/// is left out of a quick run is predicted too where its inputs happen to be there, and has none of its own.
fn predicted(other: &OtherMachine, plan: &Plan) -> BTreeMap<(Name, Case), PredictionRecord> {
    let (known, planned) = (kept(other), plan.planned());
    let is_of = |unit: &Unit, id: &str| unit.probe.metrics.iter().any(|metric| metric.id.as_str() == id);
    let is_planned = |id: &str, case: &Case| plan.units.iter().any(|unit| unit.case == *case && is_of(unit, id));
    let value = |id: &str, case: &Case| known.at(id, case).or_else(|| plausible(id));
    let measured =
        |id: &str, case: &Case| -> Option<MeasuredValue> { value(id, case).filter(|_| is_planned(id, case)) };
    let told = elsewhere(&other.machine, &planned);
    let facts = Facts::new(&other.machine, &measured).beside(&told);
    let is_unit = |one: &Planned| plan.units.iter().any(|unit| one.probe == *unit.probe.id && one.case == unit.case);
    let asked: Vec<_> = planned.iter().filter(|one| !one.only_input && is_unit(one)).cloned().collect();
    let records = predictions(&all(), &asked, &facts);
    records.into_iter().map(|record| ((record.metric, record.case.clone()), record)).collect()
}

#[test]
fn a_run_of_one_area_predicts_what_a_run_of_everything_does() {
    for other in other_machines() {
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
