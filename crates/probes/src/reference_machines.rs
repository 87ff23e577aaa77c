//! Machines whose figures are kept, and which metric moves with which from one machine to another.
//!
//! A machine is one file of `machines/`, with its facts and the figures of default runs: `kelvin other-machine` makes it from stored runs.
//! Predictions of those machines are made anew from them, with the formulas of today.

use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

use kelvin_core::catalogue::{file, mem, net, os};
use kelvin_core::{AxisWord, Case, Machine, Metric, Name, NoPrediction, PlannedMeasurement};
use kelvin_harness::{
    HeadlineTable, Plan, Proxy, ProxyCases, ReferenceMachines, ReferenceRecord, ReferenceRules, SizedCases,
};
use serde::{Serialize, Serializer};

/// The texts of all files of `machines/`, deflated, with a NUL between two of them: the build script made it.
const PACKED_FILES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/machines.deflate"));

static REFERENCE_RECORDS: LazyLock<Vec<ReferenceRecord>> = LazyLock::new(|| {
    let texts = miniz_oxide::inflate::decompress_to_vec(PACKED_FILES).expect("the build script packed the files");
    let texts = String::from_utf8(texts).expect("each file is UTF-8");
    let record =
        |text| kelvin_core::json::from_str(text).unwrap_or_else(|error| panic!("a built-in machine is wrong: {error}"));
    texts.split('\0').map(record).collect()
});

/// The machines whose figures are kept.
pub fn reference_records() -> &'static [ReferenceRecord] {
    &REFERENCE_RECORDS
}

/// What other machines report of the figures that are planned.
pub fn reference_machines(machine: &Machine, plan: &[PlannedMeasurement]) -> ReferenceMachines {
    ReferenceMachines::new(&crate::all(), reference_records(), &REFERENCE_RULES, (machine, plan))
}

/// The headlines of a machine that is kept, at its own sizes or those that a default run of today would measure there.
pub fn headline_table(machine: &ReferenceRecord) -> HeadlineTable {
    HeadlineTable::new(machine, SizedCases::from_default_run(&crate::all(), &REFERENCE_RULES, &machine.machine))
}

/// A figure that no formula predicts from what is simpler.
#[derive(Clone, Debug, Serialize)]
pub struct Primitive {
    /// Its metric.
    #[serde(serialize_with = "serialize_metric_id")]
    pub metric: &'static Metric,
    /// The case at which it is measured.
    pub case: Case,
    /// Why no formula predicts it.
    #[serde(rename = "missing_formula_reason")]
    pub reason: NoPrediction,
    /// What does the same kind of work, and is measured on other machines as here.
    pub proxy: Option<Name>,
    /// The same figure on other machines: their names and its values, in the metric's unit. None where it depends on a
    /// device or a system's settings alone.
    #[serde(rename = "reference_values")]
    pub on_references: BTreeMap<String, f64>,
}

fn serialize_metric_id<S: Serializer>(metric: &Metric, serializer: S) -> Result<S::Ok, S::Error> {
    metric.id.serialize(serializer)
}

/// What a plan measures and no formula predicts on a machine, even if all else is measured; in the order of the plan.
pub fn primitive_metrics(machine: &Machine, plan: &Plan) -> Vec<Primitive> {
    let probes = crate::all();
    let references = reference_machines(machine, &plan.measurements());
    let mut reasons: HashMap<(Name, Case), NoPrediction> = plan
        .without_formula(&probes, machine)
        .into_iter()
        .map(|(metric, case, reason)| ((metric.id, case), reason))
        .collect();
    let single_machine_reason = || NoPrediction::new("its formula rests on the published figure of one machine");
    let mut primitive = |metric: &'static Metric, case: &Case| {
        let reason = reasons.remove(&(metric.id, case.clone()));
        let reason = reason.or_else(|| references.prefers_proxy(metric, case).then(single_machine_reason))?;
        let scaling = PROXIES.iter().find(|proxy| proxy.applies_to(metric, case)).map(|proxy| proxy.scales_with);
        // A property of a device or of settings does not follow from other machines.
        let reference_values =
            if scaling == Some(None) { Vec::new() } else { references.values_on_references(machine, metric, case) };
        let reference_values = reference_values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let proxy = scaling.flatten().map(|(metric, _)| metric.id);
        Some(Primitive { metric, case: case.clone(), reason, proxy, on_references: reference_values })
    };
    let units = plan.units.iter().filter(|unit| !unit.only_input);
    let figures = units.flat_map(|unit| unit.probe.metrics.iter().map(|metric| (*metric, &unit.case)));
    figures
        .filter(|(metric, case)| metric.is_measured_at(case))
        .filter_map(|(metric, case)| primitive(metric, case))
        .collect()
}

const REFERENCE_RULES: ReferenceRules<'_> = ReferenceRules {
    proxies: PROXIES,
    sized_metrics: SIZED_METRICS,
    part_metrics: PART_METRICS,
    takes_all_cpus,
    has_modes,
};

/// Bandwidth of all CPUs, or what several CPUs, threads or streams do at once.
fn takes_all_cpus(metric: &Metric, case: &Case) -> bool {
    metric.id == mem::LOADED_BANDWIDTH.id
        || mem::MemoryCpus::of(case) == Some(mem::MemoryCpus::All)
        || [file::THREAD_COUNT, file::JOBS, net::STREAMS, os::WORKING_CPUS]
            .iter()
            .any(|axis| axis.number_in(case).is_some_and(|count| count > 1))
}

/// Increments that are handed from the store buffer to the next load. Some cores do that at rename, in no time, or as
/// if from a cache. They change between the two from one millisecond to the next.
fn has_modes(metric: &Metric, case: &Case) -> bool {
    metric.id == mem::FALSE_SHARING.id && mem::IncrementKind::of(case) == Some(mem::IncrementKind::NonAtomic)
}

/// Where there is no formula: what does the same kind of work, and so moves with it.
const PROXIES: &[Proxy] = &[
    // Path lookup and inodes.
    mean_ratio(&os::SYSCALL_STAT, &os::SYSCALL_FSTAT),
    mean_ratio(&os::SYSCALL_OPEN_CLOSE, &os::SYSCALL_STAT),
    mean_ratio(&file::ENTRY_CREATE, &file::METADATA_OPEN),
    mean_ratio(&file::ENTRY_FREE, &file::METADATA_OPEN),
    mean_ratio(&file::ENTRY_ADD, &file::METADATA_OPEN),
    // Entering the kernel for a little work.
    mean_ratio(&file::METADATA_LIST, &os::SYSCALL_READ),
    mean_ratio(&os::SYSCALL_SELECT, &os::SYSCALL_READ),
    mean_ratio(&os::SIGNAL_DELIVER, &os::SIGNAL_INSTALL),
    preferred(&os::SYSCALL_READ, &os::SYSCALL_NULL),
    // The scheduler's work for a pipe, and the pipe's.
    Proxy { words: PROCESSES_OVER_PIPES, is_preferred: true, ..same_case(&os::SWITCH_COST, &os::SWITCH_CHANNEL_CALLS) },
    Proxy {
        words: PROCESSES_OVER_PIPES,
        is_preferred: true,
        ..same_case(&os::SWITCH_ROUND_TRIP, &os::SWITCH_CHANNEL_CALLS)
    },
    // Address spaces.
    mean_ratio(&os::SYSCALL_MMAP_MUNMAP, &mem::FAULT_MINOR),
    Proxy {
        scales_with: Some((&os::SWITCH_COST, ProxyCases::At(PROCESSES_OVER_PIPES))),
        ..mean_ratio(&os::PROCESS_VFORK, &os::SWITCH_COST)
    },
    preferred(&os::PROCESS_FORK, &os::PROCESS_VFORK),
    preferred(&os::PROCESS_FORK_CHILD, &os::PROCESS_FORK),
    mean_ratio(&os::PROCESS_FORK_RSS, &os::PROCESS_VFORK),
    preferred(&os::THREAD_CREATE, &os::PROCESS_VFORK),
    // Lines between a core and memory pass through the same buffers.
    mean_ratio(&mem::BANDWIDTH_READ, &mem::BANDWIDTH_NTWRITE),
    // The page cache, and a device behind it.
    mean_ratio(&file::PAGE_WRITE, &os::SYSCALL_READ),
    same_case(&file::READ_ORDER_P99, &file::READ_ORDER),
    mean_ratio(&file::SYNC_WRITE, &file::PAGE_WRITE),
    // Protocols of the local network: like path lookup, much of it is calls through tables of functions.
    mean_ratio(&net::STACK_TCP, &os::SYSCALL_STAT),
    same_case(&net::STACK_UDP, &net::STACK_TCP),
    same_case(&net::STACK_UNIX, &net::STACK_TCP),
    mean_ratio(&net::STREAM_TCP, &net::STACK_TCP),
    mean_ratio(&net::STREAM_UDP, &net::STACK_UDP),
    mean_ratio(&net::STREAM_UNIX, &net::STACK_UNIX),
    same_case(&net::STREAM_TCP_RECEIVE, &net::STREAM_TCP),
    same_case(&net::STREAM_UDP_RECEIVE, &net::STREAM_UDP),
    same_case(&net::STREAM_UNIX_RECEIVE, &net::STREAM_UNIX),
    mean_ratio(&net::LOADED_ROUND_TRIP, &net::RTT_TCP),
    // Properties of this device, and of this system's settings.
    no_proxy(&file::DEVICE_READ),
    no_proxy(&file::DEVICE_REPEAT_READ),
    no_proxy(&file::DEVICE_LATENCY),
    no_proxy(&file::DEVICE_MEAN_LATENCY),
    no_proxy(&file::DEVICE_REQUESTS),
    no_proxy(&file::DEVICE_WRITE),
    no_proxy(&file::DEVICE_ACCEPT_LATENCY),
    no_proxy(&file::DEVICE_WRITE_LATENCY),
    no_proxy(&file::READ_AHEAD),
    no_proxy(&net::BANDWIDTH_UDP_LOST),
    no_proxy(&net::BANDWIDTH_UDP_REORDERED),
];

/// What is measured at sizes that follow the machine's caches.
const SIZED_METRICS: &[&Metric] = &[
    &mem::BANDWIDTH_READ,
    &mem::BANDWIDTH_WRITE,
    &mem::BANDWIDTH_COPY,
    &mem::BANDWIDTH_FILL,
    &mem::BANDWIDTH_ZERO,
    &mem::BANDWIDTH_NTWRITE,
    &mem::BANDWIDTH_TRIAD,
    &mem::BANDWIDTH_CORE_TO_CORE,
    &mem::BANDWIDTH_MEMCPY,
    &mem::LATENCY_PARALLEL,
    &mem::LATENCY_STRIDE,
    &mem::LOADED_LATENCY,
    &mem::LOADED_BANDWIDTH,
];

/// What is measured between CPUs that the case names.
const PART_METRICS: &[&Metric] = &[&mem::CORE_TO_CORE];

/// The switch that others are derived from.
const PROCESSES_OVER_PIPES: &[AxisWord] = &[os::HandoffTask::Process.point(), os::HandoffMechanism::Pipe.point()];

const fn mean_ratio(metric: &'static Metric, base_metric: &'static Metric) -> Proxy {
    Proxy { metric, words: &[], scales_with: Some((base_metric, ProxyCases::At(&[]))), is_preferred: false }
}

const fn same_case(metric: &'static Metric, base_metric: &'static Metric) -> Proxy {
    Proxy { metric, words: &[], scales_with: Some((base_metric, ProxyCases::SameCase)), is_preferred: false }
}

/// Rather than the published figure of one machine.
const fn preferred(metric: &'static Metric, base_metric: &'static Metric) -> Proxy {
    Proxy { is_preferred: true, ..mean_ratio(metric, base_metric) }
}

const fn no_proxy(metric: &'static Metric) -> Proxy {
    Proxy { metric, words: &[], scales_with: None, is_preferred: false }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_metric_has_one_measured_proxy() {
        let mut metric_ids = BTreeSet::new();
        let is_measured = |metric: &Metric| {
            reference_records().iter().any(|machine| machine.figures.iter().any(|figure| figure.metric == metric.id))
        };
        for Proxy { metric, scales_with, .. } in PROXIES {
            assert!(metric_ids.insert(metric.id), "{} has two yardsticks", metric.id);
            assert!(
                scales_with.is_none_or(|(base_metric, _)| base_metric.id != metric.id && is_measured(base_metric)),
                "{}",
                metric.id
            );
        }
    }
}
