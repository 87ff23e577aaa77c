//! What the processor counts while operations are repeated, apart from their timing: reading the counters takes longer than the clock.

use kelvin_core::{CountedOperations, HardwareEvent, IndirectSort};
use kelvin_sys::clock::Clock;
use kelvin_sys::perf_event::{CounterGroup, EventCode};

use crate::probe_error::ProbeError;

/// Nanoseconds of operations that are counted at least in a window: a hundred times what it takes to start and stop the counters, and less
/// than the time between two timer interrupts, so that few windows have one.
const WINDOW_NANOSECONDS: u64 = 200_000;
/// Windows, of which the one with the median rate is kept: what an interrupt counts is in less than half of them.
const WINDOWS: usize = 5;
/// Operations that take longer than this are not repeated for it.
const MAX_OPERATION_NANOSECONDS: f64 = 1e6;
/// Repetitions in a window, at most.
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
    operation: impl FnMut(u64) -> Result<(), ProbeError>,
) -> Result<Option<CountedOperations>, ProbeError> {
    if nanoseconds > MAX_OPERATION_NANOSECONDS {
        return Ok(None);
    }
    let codes = HardwareEvent::ALL.map(code_of);
    let Ok(group) = CounterGroup::open(&codes, kelvin_sys::cpu::current()) else { return Ok(None) };
    count_in_windows(&group, clock, iterations, operation)
}

/// Counts what a group counts of repetitions of an operation in windows; `None` where others had the counters meanwhile.
fn count_in_windows(
    group: &CounterGroup,
    clock: Clock,
    iterations: u64,
    mut operation: impl FnMut(u64) -> Result<(), ProbeError>,
) -> Result<Option<CountedOperations>, ProbeError> {
    let mut repeat = || -> Result<u64, ProbeError> {
        let start = clock.deadline_nanoseconds();
        let mut repetitions = 0;
        while repetitions < MAX_REPETITIONS
            && (repetitions == 0 || clock.deadline_nanoseconds() - start < WINDOW_NANOSECONDS)
        {
            operation(iterations)?;
            repetitions += 1;
        }
        Ok(repetitions * iterations)
    };
    // What starting and stopping the counters counts of itself.
    let ((), empty) = group.count(|| ())?;
    let Some(empty) = empty.complete_counts() else { return Ok(None) };
    let mut windows = Vec::with_capacity(WINDOWS);
    for _ in 0..WINDOWS {
        let (operations, values) = group.count(&mut repeat)?;
        let Some(counts) = values.complete_counts() else { return Ok(None) };
        let of_window = counts
            .into_iter()
            .zip(&empty)
            .map(|((code, count), (_, of_empty))| (code, count.saturating_sub(*of_empty)));
        windows.push(Window { operations: operations?, counts: of_window.collect() });
    }
    let event_of = |code: EventCode| HardwareEvent::ALL.into_iter().find(|&event| code_of(event) == code);
    Ok(median_window(windows).map(|Window { operations, counts }| CountedOperations {
        operations,
        events: counts.into_iter().filter_map(|(code, count)| Some((event_of(code)?, count))).collect(),
        excludes_kernel: !group.counts_kernel(),
    }))
}

/// Operations that were counted at once, and the counts of their events.
struct Window {
    operations: u64,
    counts: Vec<(EventCode, u64)>,
}

/// The window whose rate of the first event is the median: the events of one window belong together, as do cycles and instructions.
fn median_window(mut windows: Vec<Window>) -> Option<Window> {
    let rate =
        |window: &Window| window.counts.first().map_or(0.0, |&(_, count)| count as f64 / window.operations as f64);
    windows.indirect_sort_by(|one, other| rate(one).total_cmp(&rate(other)));
    let middle = windows.len() / 2;
    windows.into_iter().nth(middle)
}

#[cfg(test)]
mod tests {
    use kelvin_sys::clock::ScriptedClock;
    use kelvin_sys::perf_event::GroupMember;
    use kelvin_testing::recorded_counters;

    use super::*;

    /// What a part of the record counts of an operation of 100 iterations that takes 50 us: four fill a window.
    fn count_recorded(part: &str, events: &[HardwareEvent]) -> Result<Option<CountedOperations>, ProbeError> {
        count_recorded_by_ids(part, events, &recorded_counters::IDS)
    }

    fn count_recorded_by_ids(
        part: &str,
        events: &[HardwareEvent],
        ids: &[u64],
    ) -> Result<Option<CountedOperations>, ProbeError> {
        let member = |(&event, &id)| GroupMember { event: code_of(event), id };
        let members = events.iter().zip(ids).map(member).collect();
        let group = CounterGroup::recorded(members, recorded_counters::reads(part));
        let script = ScriptedClock::leak(0);
        count_in_windows(&group, Clock::Scripted(script), 100, |iterations| {
            script.advance(500 * iterations);
            Ok(())
        })
    }

    #[test]
    fn recorded_windows_become_events_of_operations() {
        let counted = count_recorded("complete", &HardwareEvent::ALL).unwrap().unwrap();
        assert_eq!(serde_json::to_string(&counted).unwrap(), recorded_counters::COUNTED_OPERATIONS);
        // A processor of two events, by their ids; what nothing counts is taken off down to zero.
        let two = [HardwareEvent::Cycles, HardwareEvent::Instructions];
        let counted = count_recorded("other order", &two).unwrap().unwrap();
        let events = [(HardwareEvent::Cycles, 0), (HardwareEvent::Instructions, 20_000)];
        assert_eq!((counted.operations, counted.events), (400, events.into()));
    }

    #[test]
    fn reads_of_a_kernel_become_events_of_operations() {
        let events = [HardwareEvent::Cycles, HardwareEvent::Instructions];
        let count = |part| count_recorded_by_ids(part, &events, &recorded_counters::GUEST_IDS).unwrap();
        // 400 loops of 500 instructions, and what calls them.
        let counted = count("aarch64 guest").unwrap();
        let counts = [(HardwareEvent::Cycles, 201_794), (HardwareEvent::Instructions, 201_072)];
        assert_eq!((counted.operations, counted.events), (400, counts.into()));
        assert_eq!(count("aarch64 guest with other groups"), None);
    }

    #[test]
    fn shared_counters_count_nothing() {
        for part in ["multiplexed", "multiplexed window"] {
            assert_eq!(count_recorded(part, &HardwareEvent::ALL), Ok(None), "{part}");
        }
        assert!(count_recorded("damaged", &HardwareEvent::ALL).is_err());
    }

    #[test]
    fn interrupted_windows_are_left_out() {
        let [cycles, instructions] = [HardwareEvent::Cycles, HardwareEvent::Instructions].map(code_of);
        let window = |operations, counts: [u64; 2]| Window {
            operations,
            counts: vec![(cycles, counts[0]), (instructions, counts[1])],
        };
        let interrupted = [window(100, [900, 700]), window(50, [800, 600])];
        let clear = [window(100, [301, 200]), window(90, [272, 180]), window(110, [330, 220])];
        let median = median_window(interrupted.into_iter().chain(clear).collect()).unwrap();
        assert_eq!((median.operations, median.counts), (90, vec![(cycles, 272), (instructions, 180)]));
        assert!(median_window(Vec::new()).is_none());
    }
}
