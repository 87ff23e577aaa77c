//! What a round of a probe is expected to take in addition to its timing, before any was measured.
//!
//! Measured on an AMD Zen 5 guest with two CPUs. Only whether a case fits into a budget is decided by it, and the first rounds of a
//! run correct it; a probe that is not listed takes the usual time.

use std::time::Duration;

use kelvin_core::catalogue::{cpu, file, mem, net, os};
use kelvin_core::{Axis, Case, Metric};
use kelvin_harness::{DEFAULT_ROUND_COST, Probe};

use crate::file::whole_file;

/// What is expected of the rounds of one probe.
struct ProbeCost {
    /// The first metric of the probe.
    metric: &'static Metric,
    /// What a round of each case takes besides that.
    fixed: Duration,
    /// Nanoseconds for each unit of an axis.
    per_unit: Option<(Axis, f64)>,
}

const fn fixed(metric: &'static Metric, milliseconds: u64) -> ProbeCost {
    ProbeCost { metric, fixed: Duration::from_millis(milliseconds), per_unit: None }
}

const fn per_axis(metric: &'static Metric, milliseconds: u64, axis: Axis, nanoseconds: f64) -> ProbeCost {
    ProbeCost { per_unit: Some((axis, nanoseconds)), ..fixed(metric, milliseconds) }
}

/// Bytes touched once and put in random order; copied page tables; a block of a file read from the disk.
static PROBE_COSTS: &[ProbeCost] = &[
    per_axis(&os::PROCESS_FORK_RSS, 5, os::RESIDENT, 2.0),
    per_axis(&os::SWITCH_RING, 4, os::PROCESSES, 300e3),
    // Windows of a fixed time, and a task for each CPU.
    per_axis(&os::SCALING_RATE, 50, os::WORKING_CPUS, 300e3),
    fixed(&cpu::CORE_FREQUENCY, 60),
    // Memory is touched once and flushed.
    fixed(&mem::NODE_LATENCY, 45),
    fixed(&mem::INTERLEAVED_LATENCY, 45),
    per_axis(&mem::LATENCY, 5, mem::BYTES, 3.5),
    per_axis(&mem::LATENCY_PARALLEL, 5, mem::BYTES, 0.6),
    per_axis(&mem::LATENCY_STRIDE, 5, mem::BYTES, 0.5),
    per_axis(&mem::TLB, 5, mem::TOUCHED_PAGES, 2e3),
    fixed(&mem::FAULT_MAJOR, 60),
    fixed(&mem::FIRST_TOUCH, 150),
    per_axis(&mem::BANDWIDTH_READ, 25, mem::BYTES, 2.0),
    // Windows of a fixed time, and memory that all touch at once.
    per_axis(&mem::SCALING_READ, 225, mem::BYTES, 0.2),
    per_axis(&mem::BANDWIDTH_MEMCPY, 5, mem::BYTES, 0.5),
    per_axis(&mem::LOADED_LATENCY, 5, mem::BYTES, 0.75),
    fixed(&file::DEVICE_READ, 190),
    fixed(&file::DEVICE_WRITE, 15),
    fixed(&file::READ_AHEAD, 35),
    fixed(&file::PAGE_READ, 100),
    fixed(&file::BLOCKSIZE_READ, 25),
    per_axis(&file::READ_ORDER, 15, file::BYTES, 0.5),
    fixed(&file::DEPTH_RATE, 22),
    // The window and the ramp before it, and a thread for each job.
    per_axis(&file::JOBS_IOPS, 110, file::JOBS, 300e3),
    fixed(&file::CONTENTION, 65),
    fixed(&file::THREADS, 35),
    fixed(&file::CACHE_SIZE, 4000),
    per_axis(&file::CACHE_SIZE_BLOCK, 20, file::BYTES, 2.0),
    per_axis(&file::NEW_FILE, 5, file::BYTES, 4.0),
    fixed(&net::BANDWIDTH_TCP, 90),
    fixed(&net::BANDWIDTH_TCP_METHOD, 120),
    fixed(&net::BANDWIDTH_TCP_SYSTEM, 120),
    fixed(&net::BANDWIDTH_UDP, 60),
    fixed(&net::BANDWIDTH_UNIX, 50),
    fixed(&net::LOADED_ROUND_TRIP, 55),
    // Streams to another host last until their rate is steady.
    fixed(&net::PEER_PING, 30),
    fixed(&net::PEER_CONNECT, 100),
    fixed(&net::PEER_CRR, 150),
    fixed(&net::PEER_BANDWIDTH, 1000),
    fixed(&net::PEER_BANDWIDTH_MESSAGE, 550),
    fixed(&net::PEER_BANDWIDTH_UDP, 1000),
    fixed(&net::PEER_OFFERED, 650),
    fixed(&net::PEER_LOADED, 400),
    fixed(&os::RIVALS_SYSCALL, 450),
    fixed(&os::RIVALS_PIPE, 450),
    fixed(&net::RIVALS_TCP, 2200),
];

/// How many times as long as one CPU's the memory of all of them takes: each touches its own, and the kernel clears pages for all at once.
const ALL_CPUS_FACTOR: f64 = 2.0;

/// What building and flushing a set takes, as a share of traversing it at the latency of memory too.
const FLUSHED_SHARE: f64 = 0.2;

/// Nanoseconds for each byte of a transfer: 400 MB/s, as its smallest calls move them.
const TRANSFER_NANOSECONDS_PER_BYTE: f64 = 2.5;

/// What a round of a probe at a case is expected to take in addition to its timing.
pub(crate) fn expected_round_time(probe: &Probe, case: &Case) -> Duration {
    let first = probe.metrics.first().map(|metric| metric.id);
    let mut nanoseconds = TRANSFER_NANOSECONDS_PER_BYTE * crate::transferred_bytes(case) as f64;
    if first == Some(file::WHOLE_FILE.id) {
        nanoseconds += whole_file::expected_pass_time(case).unwrap_or(0.0);
    }
    let Some(cost) = PROBE_COSTS.iter().find(|cost| Some(cost.metric.id) == first) else {
        return DEFAULT_ROUND_COST + Duration::from_nanos(nanoseconds as u64);
    };
    let per_axis = cost.per_unit.and_then(|(axis, per_unit)| Some(axis.number_in(case)? as f64 * per_unit));
    // Larger sets are flushed rather than traversed.
    let is_flushed = first == Some(mem::LATENCY.id) && mem::BYTES.number_in(case) > Some(mem::LATENCY_FLUSHED_BYTES);
    let per_axis = per_axis.map(|time| if is_flushed { FLUSHED_SHARE * time } else { time });
    let factor = if mem::MemoryCpus::of(case) == Some(mem::MemoryCpus::All) { ALL_CPUS_FACTOR } else { 1.0 };
    cost.fixed + Duration::from_nanos((nanoseconds + factor * per_axis.unwrap_or(0.0)) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_name_existing_probes_and_axes() {
        for cost in PROBE_COSTS {
            let probe = crate::all().into_iter().find(|probe| probe.metrics[0].id == cost.metric.id);
            assert!(probe.is_some(), "{} is the first metric of no probe", cost.metric.id);
            if let Some((axis, _)) = cost.per_unit {
                assert!(
                    cost.metric.axes.iter().flatten().any(|metric_axis| metric_axis.name == axis.name),
                    "{} over {axis:?}",
                    cost.metric.id
                );
            }
        }
    }

    #[test]
    fn larger_sets_cost_more() {
        let probe = |metric: &Metric| crate::all().into_iter().find(|probe| probe.metrics[0].id == metric.id).unwrap();
        let fork = |bytes: u64| {
            expected_round_time(probe(&os::PROCESS_FORK_RSS), &Case::new().with_number(os::RESIDENT, bytes))
        };
        assert_eq!(fork(1 << 30), Duration::from_nanos((2 << 30) + 5_000_000));
        assert!(fork(1 << 30) > 50 * fork(1 << 20));
        assert_eq!(expected_round_time(probe(&os::SYSCALL_NULL), &Case::new()), DEFAULT_ROUND_COST);
        // What is touched before it is timed: 128 MiB took 1.3 s where 60 ms were expected, those of two CPUs 2.6 s
        // where it was 0.3 s, next to other work.
        let set = Case::new().with_number(mem::BYTES, 128 << 20);
        let milliseconds = |metric: &Metric, case: &Case| expected_round_time(probe(metric), case).as_millis();
        assert!((100..400).contains(&milliseconds(&mem::LOADED_LATENCY, &set)));
        assert!((50..200).contains(&milliseconds(&mem::LATENCY_STRIDE, &set)));
        let read_milliseconds = |cpus| milliseconds(&mem::BANDWIDTH_READ, &set.clone().with_word(cpus));
        assert!(read_milliseconds(mem::MemoryCpus::All) > 500 && read_milliseconds(mem::MemoryCpus::One) < 300);
    }
}
