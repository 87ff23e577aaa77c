//! Machines whose figures are kept, and which metric moves with which from one machine to another.
//!
//! A machine is one file of `machines/`, with its facts and the figures of default runs: `kelvin other-machine` makes it from stored runs.
//! Predictions of those machines are made anew from them, with the formulas of today.

use std::collections::HashMap;
use std::sync::LazyLock;

use kelvin_catalogue::{file, mem, net, os};
use kelvin_harness::{At, Elsewhere, Headlines, OtherMachine, Plan, Rules, Sizes, Yardstick};
use kelvin_model::{Case, Machine, Metric, Name, NoPrediction, Planned};

static MACHINES: LazyLock<Vec<OtherMachine>> = LazyLock::new(|| {
    [
        include_str!("../machines/emerald-rapids-guest.json"),
        include_str!("../machines/intel-guest.json"),
        include_str!("../machines/zen-4-guest.json"),
    ]
    .map(parse)
    .into()
});

/// The machines whose figures are kept.
pub fn other_machines() -> &'static [OtherMachine] {
    &MACHINES
}

/// What other machines tell of the figures that are planned.
pub fn elsewhere(here: &Machine, plan: &[Planned]) -> Elsewhere {
    Elsewhere::of(&crate::all(), other_machines(), &RULES, (here, plan))
}

/// The headlines of a machine that is kept, at its own sizes or those that a default run of today would measure there.
pub fn headlines(machine: &OtherMachine) -> Headlines {
    Headlines::of(machine, Sizes::of(&crate::all(), &RULES, &machine.machine))
}

/// A figure that no formula predicts from what is simpler.
#[derive(Clone, Debug)]
pub struct Primitive {
    /// Its metric.
    pub metric: &'static Metric,
    /// The case at which it is measured.
    pub case: Case,
    /// Why no formula tells of it.
    pub because: NoPrediction,
    /// What does the same kind of work, and is measured on other machines as here.
    pub yardstick: Option<Name>,
    /// The same figure on other machines: their names and its values, in the metric's unit. None where it says something about a
    /// device or a system's settings alone.
    pub elsewhere: Vec<(String, f64)>,
}

/// What a plan measures and no formula predicts on a machine, whatever else is measured; in the order of the plan.
pub fn primitives(here: &Machine, plan: &Plan) -> Vec<Primitive> {
    let probes = crate::all();
    let elsewhere = elsewhere(here, &plan.planned());
    let mut reasons: HashMap<(Name, Case), NoPrediction> = plan
        .without_formula(&probes, here)
        .into_iter()
        .map(|(metric, case, because)| ((metric.id, case), because))
        .collect();
    let rests_on_one = || NoPrediction::because("its formula rests on the published figure of one machine");
    let mut of = |metric: &'static Metric, case: &Case| {
        let because = reasons.remove(&(metric.id, case.clone()));
        let because = because.or_else(|| elsewhere.comes_first(metric).then(rests_on_one))?;
        let by = YARDSTICKS.iter().find(|yardstick| yardstick.metric.id == metric.id).map(|yardstick| yardstick.by);
        // What says something of a device or of settings is not told by other machines.
        let others = if by == Some(None) { Vec::new() } else { elsewhere.on_others(here, metric, case) };
        let others = others.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        let yardstick = by.flatten().map(|(metric, _)| metric.id);
        Some(Primitive { metric, case: case.clone(), because, yardstick, elsewhere: others })
    };
    let units = plan.units.iter().filter(|unit| !unit.only_input);
    let figures = units.flat_map(|unit| unit.probe.metrics.iter().map(|metric| (*metric, &unit.case)));
    figures.filter(|(metric, case)| metric.is_of(case)).filter_map(|(metric, case)| of(metric, case)).collect()
}

const RULES: Rules<'_> = Rules { yardsticks: YARDSTICKS, sized: SIZED, of_parts: OF_PARTS, takes_all_cpus, has_modes };

/// Bandwidth of all CPUs, or of several threads or streams at once.
fn takes_all_cpus(metric: &Metric, case: &Case) -> bool {
    metric.id == mem::LOADED_BANDWIDTH.id
        || mem::Cpus::of(case) == Some(mem::Cpus::All)
        || [file::THREAD_COUNT, net::STREAMS].iter().any(|axis| axis.of(case).is_some_and(|several| several > 1))
}

/// Increments that are handed from the store buffer to the next load: some cores do that at rename, in no time, or as if from a cache, and
/// change between the two from one millisecond to the next.
fn has_modes(metric: &Metric, case: &Case) -> bool {
    metric.id == mem::FALSE_SHARING.id && mem::IncrementKind::of(case) == Some(mem::IncrementKind::Plain)
}

fn parse(text: &str) -> OtherMachine {
    match serde_json::from_str(text) {
        Ok(machine) => machine,
        Err(error) => panic!("a built-in machine is wrong: {error}"),
    }
}

/// Where no formula tells: what does the same kind of work, and so moves with it.
const YARDSTICKS: &[Yardstick] = &[
    // Path lookup and inodes.
    all(&os::SYSCALL_STAT, &os::SYSCALL_FSTAT),
    all(&os::SYSCALL_OPEN_CLOSE, &os::SYSCALL_STAT),
    all(&file::ENTRY_MAKE, &file::METADATA_OPEN),
    all(&file::ENTRY_GIVE_BACK, &file::METADATA_OPEN),
    all(&file::ENTRY_ADD, &file::METADATA_OPEN),
    // Entering the kernel for a little work.
    all(&file::METADATA_LIST, &os::SYSCALL_READ),
    all(&os::SYSCALL_SELECT, &os::SYSCALL_READ),
    all(&os::SIGNAL_DELIVER, &os::SIGNAL_INSTALL),
    rather(&os::SYSCALL_READ, &os::SYSCALL_NULL),
    // The scheduler's work for a pipe, and the pipe's.
    rather(&os::SWITCH_PROCESS_PIPE, &os::SWITCH_PROCESS_PIPE_OWN),
    rather(&os::SWITCH_PROCESS_PIPE_ROUND_TRIP, &os::SWITCH_PROCESS_PIPE_OWN),
    // Address spaces.
    all(&os::SYSCALL_MMAP_MUNMAP, &mem::FAULT_MINOR),
    all(&os::PROCESS_VFORK, &os::SWITCH_PROCESS_PIPE),
    rather(&os::PROCESS_FORK, &os::PROCESS_VFORK),
    rather(&os::PROCESS_FORK_CHILD, &os::PROCESS_FORK),
    all(&os::PROCESS_FORK_RSS, &os::PROCESS_VFORK),
    rather(&os::THREAD_CREATE, &os::PROCESS_VFORK),
    // Lines between a core and memory pass through the same buffers.
    all(&mem::BANDWIDTH_READ, &mem::BANDWIDTH_NTWRITE),
    // The page cache, and a device behind it.
    all(&file::PAGE_WRITE, &os::SYSCALL_READ),
    same(&file::SEQRAND_P99, &file::SEQRAND),
    all(&file::SYNC, &file::PAGE_WRITE),
    // Protocols of the local network: like path lookup, much of it is calls through tables of functions.
    all(&net::STACK_TCP, &os::SYSCALL_STAT),
    same(&net::STACK_UDP, &net::STACK_TCP),
    same(&net::STACK_UNIX, &net::STACK_TCP),
    all(&net::STREAM_TCP, &net::STACK_TCP),
    all(&net::STREAM_UDP, &net::STACK_UDP),
    all(&net::STREAM_UNIX, &net::STACK_UNIX),
    same(&net::STREAM_TCP_RECEIVE, &net::STREAM_TCP),
    same(&net::STREAM_UDP_RECEIVE, &net::STREAM_UDP),
    same(&net::STREAM_UNIX_RECEIVE, &net::STREAM_UNIX),
    all(&net::LOADED, &net::RTT_TCP),
    // Properties of this device, and of this system's settings.
    alone(&file::DEVICE_READ),
    alone(&file::DEVICE_REPEAT),
    alone(&file::DEVICE_LATENCY),
    alone(&file::DEVICE_MEAN_LATENCY),
    alone(&file::DEVICE_REQUESTS),
    alone(&file::DEVICE_WRITE),
    alone(&file::DEVICE_ACCEPT),
    alone(&file::DEVICE_WRITE_LATENCY),
    alone(&file::READ_AHEAD),
    alone(&net::BANDWIDTH_UDP_LOST),
    alone(&net::BANDWIDTH_UDP_REORDERED),
];

/// What is measured at sizes that follow the machine's caches.
const SIZED: &[&Metric] = &[
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
const OF_PARTS: &[&Metric] = &[&mem::CORE_TO_CORE];

const fn all(metric: &'static Metric, by: &'static Metric) -> Yardstick {
    Yardstick { metric, by: Some((by, At::AllCases)), before_formula: false }
}

const fn same(metric: &'static Metric, by: &'static Metric) -> Yardstick {
    Yardstick { metric, by: Some((by, At::SameCase)), before_formula: false }
}

/// Rather than the published figure of one machine.
const fn rather(metric: &'static Metric, by: &'static Metric) -> Yardstick {
    Yardstick { before_formula: true, ..all(metric, by) }
}

const fn alone(metric: &'static Metric) -> Yardstick {
    Yardstick { metric, by: None, before_formula: false }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_metric_has_one_yardstick_which_another_machine_has_measured() {
        let mut met = BTreeSet::new();
        let is_known = |metric: &Metric| {
            other_machines().iter().any(|machine| machine.figures.iter().any(|figure| figure.metric == metric.id))
        };
        for Yardstick { metric, by, .. } in YARDSTICKS {
            assert!(met.insert(metric.id), "{} has two yardsticks", metric.id);
            assert!(by.is_none_or(|(by, _)| by.id != metric.id && is_known(by)), "{}", metric.id);
        }
    }
}
