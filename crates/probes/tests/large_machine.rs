//! The plan of a run on a machine of 256 CPUs and eight nodes.

mod composed;

use std::collections::BTreeMap;
use std::time::Duration;

use kelvin_core::catalogue::mem::{
    BYTES, FROM_CPU, FROM_NODE, LOADED_BANDWIDTH, MemoryCpus, MemoryNodes, TO_CPU, TO_NODE,
};
use kelvin_core::catalogue::os::WORKING_CPUS;
use kelvin_core::{Case, Fact, Name, Unit};
use kelvin_harness::{Effort, ExpectedCost, MeasuredValue, Plan, PlanContext, PredictionInputs, ProbeKind};

/// Rounds of a default run, and the most that it takes.
const ROUNDS: u32 = 8;
const MAX_TIME: Duration = Duration::from_secs(240);

fn plan(effort: Effort) -> Plan {
    let (machine, probes) = (composed::large_machine(), kelvin_probes::all());
    let context = PlanContext { probes: &probes, machine: &machine, references: None };
    let plan = Plan::new(&context, ProbeKind::Measure, &[], effort).unwrap();
    plan.with_expected_costs(|probe, case| ExpectedCost::estimated(kelvin_probes::expected_cost(probe, case)))
}

fn cases_of<'p>(plan: &'p Plan, probe: &str) -> Vec<&'p Case> {
    plan.units.iter().filter(|unit| unit.probe.id == probe).map(|unit| &unit.case).collect()
}

#[test]
fn default_run_of_all_cases_takes_four_minutes_at_most() {
    let plan = plan(Effort::Default);
    let duration = plan.expected_duration(ROUNDS);
    assert!(duration < MAX_TIME - Duration::from_secs(2), "{duration:?}");
    // The matrix of nodes is whole, and pairs of CPUs are at every distance.
    let nodes = cases_of(&plan, "mem.node");
    let node_pairs = nodes.iter().map(|case| (FROM_NODE.number_in(case).unwrap(), TO_NODE.number_in(case).unwrap()));
    assert!(node_pairs.eq((0..8).flat_map(|from| (0..8).map(move |to| (from, to)))), "{nodes:?}");
    let topology = composed::large_machine().topology;
    let mut levels = BTreeMap::new();
    for case in cases_of(&plan, "mem.core_to_core") {
        let [from, to] = [FROM_CPU, TO_CPU].map(|axis| axis.number_in(case).unwrap() as u32);
        *levels.entry(topology.shared_level(from, to).unwrap()).or_insert(0) += 1;
    }
    let counts: Vec<(String, i32)> = levels.into_iter().map(|(level, count)| (level.to_string(), count)).collect();
    let levels: Vec<&str> = counts.iter().map(|(level, _)| level.as_str()).collect();
    assert_eq!(
        levels,
        ["SMT siblings", "same L3 cache", "same node", "same socket", "different sockets"],
        "{counts:?}"
    );
    assert!(counts.iter().all(|(_, count)| *count >= 2), "{counts:?}");
    // Curves go from one CPU to all, of a node and of the machine.
    let services = cases_of(&plan, "os.scaling");
    let counts = |cases: &[&Case], words: &[&str]| -> Vec<u64> {
        let has_words = |case: &&&Case| words.iter().all(|word| case.to_string().contains(word));
        cases.iter().filter(has_words).filter_map(|case| WORKING_CPUS.number_in(case)).collect()
    };
    let powers = |end: u32| (0..=end).map(|power| 1 << power).collect::<Vec<u64>>();
    assert_eq!(counts(&services, &["null_call", "threads"]), powers(8));
    let bandwidth = cases_of(&plan, "mem.scaling");
    assert_eq!(counts(&bandwidth, &["nodes=all"]), powers(8));
    assert_eq!(counts(&bandwidth, &["nodes=one"]), powers(5));
}

#[test]
fn what_does_not_fit_is_left_out_and_said() {
    let plan = plan(Effort::Default);
    let (cases, full_time) = (plan.units.len(), plan.expected_duration(ROUNDS));
    let fitting = plan.fit_to_budget(full_time / 2, ROUNDS);
    assert!(fitting.expected_duration(ROUNDS) <= full_time / 2);
    assert!(fitting.units.len() + fitting.omissions.len() <= cases && !fitting.omissions.is_empty());
    assert!(fitting.omissions.iter().all(|(.., reason)| reason.0.contains("no time for it")));
    // Each curve and each matrix keeps some of its points.
    for probe in ["mem.core_to_core", "mem.node", "mem.scaling", "os.scaling"] {
        assert!(cases_of(&fitting, probe).len() >= 2, "{probe}");
    }
}

#[test]
fn quick_run_fits_into_two_minutes() {
    let duration = plan(Effort::Quick).expected_duration(5);
    assert!(duration < Duration::from_secs(100), "{duration:?}");
}

#[test]
fn all_cpus_move_no_more_than_the_channels_carry() {
    const PEAK: f64 = 1.2e12;
    let mut machine = composed::large_machine();
    machine.memory.peak_bytes_per_second = Fact::known(PEAK, "a test");
    // One CPU moves 30 GB/s: 256 of them would move six times what memory can. What it gives under load was not measured.
    let measured = |id: &str, _: &Case| {
        if id == LOADED_BANDWIDTH.id.as_str() {
            return None;
        }
        let metric = kelvin_core::catalogue::find(Name::intern(id))?;
        Some(MeasuredValue { value: if metric.unit == Unit::BytesPerSecond { 30e9 } else { 100.0 }, half_width: 0.0 })
    };
    let facts = PredictionInputs::new(&machine, &measured);
    let is_of_all = |case: &&Case| {
        let is_in_scaling =
            MemoryNodes::of(case) == Some(MemoryNodes::All) && WORKING_CPUS.number_in(case) == Some(256);
        is_in_scaling || MemoryCpus::of(case) == Some(MemoryCpus::All)
    };
    for (id, count) in [("mem.scaling.read", 4), ("mem.bandwidth.read", 7)] {
        let probe =
            kelvin_probes::all().into_iter().find(|probe| probe.metrics.iter().any(|metric| metric.id == *id)).unwrap();
        let cases = (probe.cases)(&machine, Effort::Default);
        let case = cases.iter().filter(is_of_all).max_by_key(|case| BYTES.number_in(case)).unwrap();
        let rates = probe.metrics.iter().filter(|metric| metric.unit == Unit::BytesPerSecond);
        let predictions: Vec<_> = rates.map(|metric| (probe.predict)(&facts, metric, case).unwrap()).collect();
        assert_eq!(predictions.len(), count);
        assert!(predictions.iter().all(|prediction| prediction.value.max(prediction.high) <= PEAK), "{predictions:?}");
    }
}
