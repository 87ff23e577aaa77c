//! What distinguishes one formula from another, over all formulas: figures of other machines correct a formula of the same name only, and
//! never beyond what a machine states.

mod composed;
mod headlines;

use std::collections::{BTreeMap, BTreeSet};

use kelvin_core::catalogue::{cpu, mem, net};
use kelvin_core::{Case, Fact, Machine, Metric, Name, NetworkPath, Nic, PlannedMeasurement, Prediction};
use kelvin_harness::{Effort, HardwareFacts, PredictionInputs, ProbeKind, bound_records, prediction_records};
use kelvin_probes::{all, bounded_metrics, reference_machines, reference_records};

use headlines::plausible;

/// A machine that states its frequencies and the peak of its memory, hardly more than what plausible headlines predict of reading.
fn machine_stating_limits() -> Machine {
    let mut machine = composed::machine();
    machine.memory.peak_bytes_per_second = Fact::known(1.2e9, "a test");
    machine
}

/// Machines that state more or less of themselves, and those whose figures are kept.
fn machines() -> Vec<Machine> {
    let composed = composed::machine();
    let mut no_maximum = composed.clone();
    no_maximum.cpu.maximum_hz = Fact::unknown("a test");
    let mut no_peak = composed.clone();
    no_peak.memory.peak_bytes_per_second = Fact::unknown("a test");
    let kept_machines = reference_records().iter().map(|record| record.machine.clone());
    [composed, no_maximum, no_peak, machine_stating_limits()].into_iter().chain(kept_machines).collect()
}

/// Every prediction by a formula, on each of these machines.
fn formulas(mut visit: impl FnMut(&'static Metric, &Case, Prediction)) {
    let probes = all();
    let kinds = [ProbeKind::Measure, ProbeKind::Study, ProbeKind::Truth];
    for machine in machines() {
        let measured = |metric: &str, _: &Case| plausible(metric);
        let facts = PredictionInputs::new(&machine, &measured);
        for probe in probes.iter().filter(|probe| kinds.contains(&probe.kind)) {
            for case in (probe.cases)(&machine, Effort::Thorough) {
                for metric in probe.metrics {
                    if let Ok(prediction) = (probe.predict)(&facts, metric, &case) {
                        visit(metric, &case, prediction);
                    }
                }
            }
        }
    }
}

/// Terms of formulas that are nothing on some machines or in some cases. Examples are mitigations not in force, sets
/// that no page table is read for, and a share of a cache that is known or assumed. Others are steps of a transfer that
/// another method does not have.
const OPTIONAL_INPUTS: &[(&str, &[&str])] = &[
    ("mem.fault.minor", &["mitigated returns", "cpu.frequency"]),
    ("os.syscall.null", &["mitigated returns"]),
    ("mem.latency", &["cpu.frequency", "share of L3", "share of L3, for each CPU"]),
    ("mem.tlb", &["mem.latency"]),
    ("transfer.rate", &["net.bandwidth.tcp.way"]),
    ("transfer.time", &["net.bandwidth.tcp.way"]),
    ("transfer.sender.cpu", &["net.bandwidth.tcp.way"]),
    ("transfer.receiver.cpu", &["net.bandwidth.tcp.way"]),
];

/// What a formula rests on: its basis and its inputs, without their cases and without terms that may be nothing.
fn required_inputs(metric: &Metric, prediction: &Prediction) -> BTreeSet<String> {
    let optional =
        OPTIONAL_INPUTS.iter().find(|(id, _)| *id == metric.id.as_str()).map_or(&[][..], |(_, terms)| *terms);
    let inputs = prediction.inputs.iter().map(|input| input.name.split(" (").next().unwrap_or(&input.name));
    let inputs = inputs.filter(|name| !optional.contains(name)).map(str::to_owned);
    inputs.chain([format!("{:?}", prediction.basis)]).collect()
}

#[test]
fn same_formula_name_has_same_inputs() {
    let mut inputs_by_name: BTreeMap<(Name, String), BTreeSet<String>> = BTreeMap::new();
    let mut problems = BTreeSet::new();
    formulas(|metric, case, prediction| {
        if prediction.formula_name.is_empty() {
            problems.insert(format!("{} ({case}): its formula has no name", metric.id));
        }
        let inputs = required_inputs(metric, &prediction);
        let key = (metric.id, prediction.formula_name.to_string());
        let before = inputs_by_name.entry(key).or_insert_with(|| inputs.clone());
        if *before != inputs {
            let differences: Vec<&String> = before.symmetric_difference(&inputs).collect();
            problems.insert(format!("{} {:?}: {differences:?}", metric.id, prediction.formula_name));
        }
    });
    assert!(problems.is_empty(), "{problems:#?}");
}

/// A path to an agent by an interface with a line rate, which is added to the machine.
fn path(machine: &mut Machine) -> NetworkPath {
    let rate = Fact::known(1e9, "a test");
    let mtu = Fact::known(1500, "a test");
    machine.nics = vec![Nic {
        name: "eth0".into(),
        bits_per_second: rate.clone(),
        line_rate: rate,
        mtu: mtu.clone(),
        ..Nic::default()
    }];
    NetworkPath {
        protocol: 4,
        interface: Fact::known("eth0".into(), "a test"),
        agent_link_speed: Fact::unknown("a test"),
        agent_mtu: mtu,
        agent_cpus: Fact::unknown("a test"),
    }
}

#[test]
fn corrections_stay_below_stated_ceiling() {
    let (probes, mut ceiling_metrics) = (all(), BTreeSet::new());
    let mut machine = machine_stating_limits();
    let network_path = path(&mut machine);
    // No machine that is kept is of this kind, so that all of them correct its predictions.
    machine.cpu.model = Fact::known(0xffff, "a test");
    let is_planned = |probe: &&&kelvin_harness::Probe| probe.kind != ProbeKind::Fault;
    let plan: Vec<PlannedMeasurement> = probes
        .iter()
        .filter(is_planned)
        .flat_map(|probe| {
            (probe.cases)(&machine, Effort::Default).into_iter().map(|case| PlannedMeasurement {
                probe: Name::new(probe.id),
                metrics: probe.metrics.iter().map(|metric| metric.id).collect(),
                case,
                only_input: false,
            })
        })
        .collect();
    let measured = |metric: &str, _: &Case| plausible(metric);
    let references = reference_machines(&machine, &plan);
    let bounds = bound_records(
        &bounded_metrics(),
        &plan,
        HardwareFacts { machine: &machine, network_path: Some(&network_path) },
    );
    let facts = PredictionInputs::new(&machine, &measured)
        .with_path(Some(&network_path))
        .with_references(&references)
        .with_bounds(&bounds);
    for record in prediction_records(&probes, &plan, &facts) {
        let Some(prediction) = record.prediction else { continue };
        let description = format!("{} ({}): {prediction:?}", record.metric, record.case);
        if let Some(ceiling) = prediction.ceiling {
            ceiling_metrics.insert(record.metric);
            assert!(prediction.value <= ceiling.limit && prediction.high <= ceiling.range_end, "{description}");
        }
        let bound = bounds.iter().find(|bound| (bound.metric, &bound.case) == (record.metric, &record.case));
        assert!(bound.is_none_or(|bound| prediction.high <= bound.bound.limit), "{description}: {bound:?}");
        if record.metric == cpu::FREQUENCY.id
            && let Some(maximum) = machine.cpu.maximum_hz.get()
        {
            assert!(prediction.value <= *maximum && prediction.calibration.is_none(), "{description}");
        }
        if [mem::BANDWIDTH_READ.id, mem::BANDWIDTH_NTWRITE.id].contains(&record.metric)
            && let (Some(peak), Some(set)) =
                (machine.memory.peak_bytes_per_second.get(), mem::BYTES.number_in(&record.case))
            && set >= 1 << 30
        {
            assert!(prediction.value <= *peak && prediction.high <= *peak, "{description}");
        }
    }
    for metric in [&cpu::FREQUENCY, &mem::BANDWIDTH_READ, &mem::BANDWIDTH_COPY, &net::PEER_BANDWIDTH] {
        assert!(ceiling_metrics.contains(&metric.id), "{} is never stated as the most", metric.id);
    }
}
