//! How late a thread wakes up from a sleep of one millisecond.
//!
//! It is the lateness of a timed wait on this machine, including idle states and timer slack. It must not be used as
//! scheduler latency, and a run's few hundred samples are too few for a worst case.

use kelvin_core::catalogue::os::{HandoffMechanism, TIMER_SLACK, TIMER_WAKEUP};
use kelvin_sys::clock::monotonic;
use kelvin_sys::syscall_loops::{set_timer_slack, sleep_until, timer_slack};

use super::switch::cross_cpu;
use crate::prelude::*;

/// The requested length of each sleep, in nanoseconds.
const SLEEP_NANOSECONDS: u64 = 1_000_000;
/// The kernel's default slack of a thread that is not real-time, in nanoseconds.
const DEFAULT_SLACK_NANOSECONDS: u64 = 50_000;

pub(crate) static PROBE: Probe = Probe {
    summary: "How late a sleep of one millisecond ends, with default and with minimal timer slack",
    method: include_str!("timer.md"),
    cases,
    run,
    predict,
    ..Probe::measure(&[&TIMER_WAKEUP])
};

fn cases(_: &Machine, effort: Effort) -> Vec<Case> {
    let slacks = [DEFAULT_SLACK_NANOSECONDS, 1];
    numbers(TIMER_SLACK, if effort == Effort::Quick { &slacks[..1] } else { &slacks })
}

fn run(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let slack = required_number(TIMER_SLACK, case)?;
    set_timer_slack(slack)?;
    let current_slack = timer_slack()?;
    // A real-time thread has none, in spite of the request.
    skip_if(
        current_slack != slack,
        format!("needs a timer slack of {slack} ns, but this thread has {current_slack} ns"),
    )?;
    let nanoseconds_per_tick = bench.nanoseconds(1);
    bench.time_each([&TIMER_WAKEUP], |_| {
        let deadline = monotonic() + SLEEP_NANOSECONDS;
        sleep_until(deadline)?;
        let lateness = monotonic().checked_sub(deadline).or_fail("the sleep ended before its time without an error")?;
        Ok([(lateness as f64 / nanoseconds_per_tick).round() as u64])
    })
}

/// Timer interrupt, idle-state exit, switch: as short as a switch on a busy CPU, as long as the wake-up of a deeply
/// idle virtual CPU.
const PUBLISHED_WAKE_NANOSECONDS: f64 = 5_000.0;
const PUBLISHED_WAKE_RANGE: (f64, f64) = (1_700.0, 45_000.0);

fn predict(facts: &PredictionInputs<'_>, _: &Metric, case: &Case) -> Predicted {
    let slack = required_number(TIMER_SLACK, case)? as f64;
    let slack = fact("timer slack", slack, Unit::Nanoseconds, "PR_SET_TIMERSLACK, as read back");
    if let Ok(wake_up) = measured(facts, &cross_cpu::METRIC, &Case::new().with_word(HandoffMechanism::Pipe)) {
        let sum = slack.clone() + wake_up.clone();
        let (minimum, maximum) = (sum.clone() / 2.0, slack + 3.0 * wake_up);
        return Ok(sum.with_bounds(&minimum, &maximum).derived("slack and measured waking"));
    }
    // By publications, from the fastest wake-up, as a timer may be coalesced with an earlier one.
    let source = "time(7) and prctl(2): timer slack; published wake-up latencies of 1.7 us (busy CPU) to 45 us (idle \
                  virtual CPU)";
    let bound = |nanoseconds| quantity("wake-up", nanoseconds, Unit::Nanoseconds);
    let maximum = slack.clone() + bound(PUBLISHED_WAKE_RANGE.1);
    let sum = slack + published("wake-up", PUBLISHED_WAKE_NANOSECONDS, Unit::Nanoseconds, source);
    let range = sum.with_bounds(&bound(PUBLISHED_WAKE_RANGE.0), &maximum);
    Ok(range.predict(PredictionBasis::Published, "slack and published waking"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::with_facts;

    #[test]
    fn timer_delay_is_slack_plus_wake() {
        with_facts(&[], |facts| {
            let predicted =
                |slack| predict(facts, &TIMER_WAKEUP, &Case::new().with_number(TIMER_SLACK, slack)).unwrap();
            assert_eq!(predicted(50_000).value, 55_000.0);
            assert_eq!((predicted(1).value, predicted(1).high), (5_001.0, 45_001.0));
            assert!(predict(facts, &TIMER_WAKEUP, &Case::new()).is_err());
        });
        with_facts(&[(cross_cpu::METRIC.id.as_str(), Some(20_000.0))], |facts| {
            let prediction = predict(facts, &TIMER_WAKEUP, &Case::new().with_number(TIMER_SLACK, 1)).unwrap();
            assert_eq!(
                (prediction.value, prediction.high, prediction.basis),
                (20_001.0, 60_001.0, PredictionBasis::Derived)
            );
        });
    }
}
