//! What the processor counts while operations are repeated, apart from their timing: reading the counters takes longer than the clock.

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

/// An event as the kernel knows it.
fn code_of(event: HardwareEvent) -> EventCode {
    EventCode::new(event.kernel_numbers())
}

/// Counts what some repetitions of an operation of this usual duration do; `None` where there are no counters that this process may use, or
/// others had them meanwhile, or it takes too long.
///
/// The counters are open for no longer: a thread with open ones takes longer to switch.
pub(super) fn count_operations(
    clock: Clock,
    (iterations, nanoseconds): (u64, f64),
    mut operation: impl FnMut(u64) -> Result<(), ProbeError>,
) -> Result<Option<CountedOperations>, ProbeError> {
    if nanoseconds > MAX_OPERATION_NANOSECONDS {
        return Ok(None);
    }
    let codes = HardwareEvent::ALL.map(code_of);
    let Ok(group) = CounterGroup::open(&codes, kelvin_sys::cpu::current()) else { return Ok(None) };
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
    // What starting and stopping the counters counts of itself.
    let ((), empty) = group.count(|| ())?;
    let (outcome, values) = group.count(&mut repeat)?;
    outcome?;
    let (Some(empty), Some(counts)) = (empty.complete_counts(), values.complete_counts()) else { return Ok(None) };
    let event_of = |code: EventCode| HardwareEvent::ALL.into_iter().find(|&event| code_of(event) == code);
    let counted =
        counts.into_iter().zip(empty).map(|((code, count), (_, of_empty))| (code, count.saturating_sub(of_empty)));
    Ok(Some(CountedOperations {
        operations: repetitions * iterations,
        events: counted.filter_map(|(code, count)| Some((event_of(code)?, count))).collect(),
        excludes_kernel: !group.counts_kernel(),
    }))
}
