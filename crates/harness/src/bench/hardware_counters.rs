//! What the processor counts while operations are repeated, apart from their timing: reading the counters takes longer than the clock.

use std::collections::BTreeMap;

use kelvin_core::{CountedOperations, HardwareEvent};
use kelvin_sys::clock::Clock;
use kelvin_sys::perf_event::{CounterGroup, EventCode};

use crate::probe_error::ProbeError;

/// Nanoseconds of operations that are counted at least: a hundred times what it takes to start and stop the counters.
const COUNTED_NANOSECONDS: u64 = 200_000;
/// Operations that take longer than this are not repeated for it.
const MAX_OPERATION_NANOSECONDS: f64 = 1e6;
/// Repetitions, at most.
const MAX_REPETITIONS: u64 = 256;

/// The counters of a probe process, if there are any that it may use.
pub(super) struct HardwareCounters {
    group: CounterGroup,
}

/// The events, each with the kernel's code.
const EVENTS: [(HardwareEvent, EventCode); 5] = [
    (HardwareEvent::Cycles, EventCode::CYCLES),
    (HardwareEvent::Instructions, EventCode::INSTRUCTIONS),
    (HardwareEvent::LastLevelMisses, EventCode::LAST_LEVEL_MISSES),
    (HardwareEvent::TlbMisses, EventCode::TLB_MISSES),
    (HardwareEvent::BranchMisses, EventCode::BRANCH_MISSES),
];

impl HardwareCounters {
    /// Those of a CPU. None where operations follow a script.
    pub(super) fn open(clock: Clock, cpu: u32) -> Option<Self> {
        if matches!(clock, Clock::Scripted(_)) {
            return None;
        }
        let group = CounterGroup::open(&EVENTS.map(|(_, code)| code), cpu).ok()?;
        Some(Self { group })
    }

    /// Counts what some repetitions of an operation of this usual duration do; `None` if it takes too long, or others had the counters
    /// meanwhile.
    pub(super) fn count(
        &self,
        clock: Clock,
        (iterations, nanoseconds): (u64, f64),
        mut operation: impl FnMut(u64) -> Result<(), ProbeError>,
    ) -> Result<Option<CountedOperations>, ProbeError> {
        if nanoseconds > MAX_OPERATION_NANOSECONDS {
            return Ok(None);
        }
        let mut repetitions = 0;
        let mut repeat = || -> Result<(), ProbeError> {
            let start = clock.deadline_nanoseconds();
            loop {
                operation(iterations)?;
                repetitions += 1;
                let elapsed = clock.deadline_nanoseconds() - start;
                if elapsed >= COUNTED_NANOSECONDS || repetitions >= MAX_REPETITIONS {
                    return Ok(());
                }
            }
        };
        let (outcome, values) = self.group.count(&mut repeat)?;
        outcome?;
        let event_of = |code: EventCode| EVENTS.iter().find(|(_, known)| *known == code).map(|&(event, _)| event);
        let to_events = |counts: Vec<(EventCode, u64)>| -> BTreeMap<HardwareEvent, u64> {
            counts.into_iter().filter_map(|(code, count)| Some((event_of(code)?, count))).collect()
        };
        Ok(values.complete_counts().map(|counts| CountedOperations {
            operations: repetitions * iterations,
            events: to_events(counts),
            excludes_kernel: !self.group.counts_kernel(),
        }))
    }
}
