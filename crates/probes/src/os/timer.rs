//! How late a thread wakes up from a sleep of one millisecond.
//!
//! It is what a program that waits by the clock gets on this machine, idle states and timer slack included. It must not be
//! used as the latency of the scheduler alone, nor are a run's few hundred samples enough for a worst case.

use kelvin_catalogue::os::{TIMER_SLACK, TIMER_WAKEUP};
use kelvin_harness::{Bench, Effort, Facts, Method, Probe, ProbeKind, Stop};
use kelvin_model::{Basis, Case, Machine, Metric, NoPrediction, Prediction, Unit};
use kelvin_sys::calls::{set_timer_slack, sleep_until, timer_slack};
use kelvin_sys::clock::monotonic;

use crate::predict::Predicting;

/// How long each sleep is meant to take, in nanoseconds.
const SLEEP: u64 = 1_000_000;
/// The kernel's default slack of a thread that is not real-time, in nanoseconds.
const DEFAULT_SLACK: u64 = 50_000;

pub(crate) static PROBE: Probe = Probe {
    id: TIMER_WAKEUP.id.as_str(),
    summary: "How late a sleep of one millisecond ends, with the usual timer slack and with next to none",
    kind: ProbeKind::Measure,
    method: Method {
        how: "clock_nanosleep to an absolute time of CLOCK_MONOTONIC one millisecond ahead, one by one; a sample is the \
              clock's reading right after the call less the time asked for. slack=50000 is the kernel's default for \
              threads that are not real-time: it may delay a timer by up to 50 us to join it with others; slack=1 (by \
              PR_SET_TIMERSLACK) asks for none. Nothing is subtracted: the reading of the clock, some tens of ns, is part of \
              the figure. The thread really sleeps: its CPU may enter an idle state, from which it has to wake. A round \
              has as many samples as its time slice has milliseconds, 15 or so; percentiles are of single sleeps.",
        prediction: "The slack, which on an idle CPU is used in full because nothing else ends the wait earlier, and 1.7 to \
                     45 us for the timer interrupt, leaving an idle state and switching to the thread: 5 us as the value.",
        not_for: "Real-time guarantees: a worst case needs hours under load (cyclictest). Busy waiting.",
        pitfalls: &[
            "A relative sleep adds the time between the reading of the clock and the call to what is called late.",
            "A busy neighbour on the same CPU makes wake-ups earlier (no idle state) or much later (its time slice).",
            "On a virtual machine the timer is the hypervisor's, and the wake-up includes an exit to it.",
        ],
        sources: &["cyclictest (rt-tests)", "prctl(2), PR_SET_TIMERSLACK; proc_pid_timerslack_ns(5)"],
    },
    metrics: &[&TIMER_WAKEUP],
    inputs: &[],
    cases,
    run,
    predict,
};

fn cases(_: &Machine, effort: Effort) -> Vec<Case> {
    let slacks: &[u64] = if effort == Effort::Quick { &[DEFAULT_SLACK] } else { &[DEFAULT_SLACK, 1] };
    slacks.iter().map(|&slack| Case::new().with(TIMER_SLACK, slack)).collect()
}

fn run(bench: &mut Bench<'_>, case: &Case) -> Result<(), Stop> {
    let slack =
        TIMER_SLACK.of(case).ok_or_else(|| Stop::fail(format!("the case {case} does not name a timer slack")))?;
    set_timer_slack(slack)?;
    let obtained = timer_slack()?;
    if obtained != slack {
        // A real-time thread has none, whatever is asked for.
        return Err(Stop::skip(format!("needs a timer slack of {slack} ns, and this thread has {obtained} ns")));
    }
    let nanoseconds_per_tick = bench.nanoseconds(1);
    bench.time_each([&TIMER_WAKEUP], |_| {
        let deadline = monotonic() + SLEEP;
        sleep_until(deadline)?;
        let late = monotonic()
            .checked_sub(deadline)
            .ok_or_else(|| Stop::fail("the sleep ended before its time without an error"))?;
        Ok([(late as f64 / nanoseconds_per_tick).round() as u64])
    })
}

/// Timer interrupt, end of an idle state, switch: as small as a switch on a busy CPU, as large as the wake-up of a deeply
/// idle virtual CPU.
const WAKING: f64 = 5_000.0;
const WAKING_BOUNDS: (f64, f64) = (1_700.0, 45_000.0);

fn predict(_: &Facts<'_>, _: &Metric, case: &Case) -> Result<Prediction, NoPrediction> {
    let slack = TIMER_SLACK.of(case);
    let slack = slack.ok_or_else(|| NoPrediction::because("the case does not name a timer slack"))? as f64;
    let value = slack + WAKING;
    let source = "time(7) and prctl(2): timer slack; published wake-up latencies of 1.7 us (busy CPU) to 45 us (idle \
                  virtual CPU)";
    Ok(Predicting::between(Basis::Published, value, WAKING_BOUNDS.0, slack + WAKING_BOUNDS.1)
        .formula("timer slack + wake-up")
        .constant("timer slack", slack, Unit::Nanoseconds, "PR_SET_TIMERSLACK, as asked for and obtained")
        .constant("wake-up", WAKING, Unit::Nanoseconds, source)
        .source(source)
        .derived_as(format!(
            "{:.3} us + {:.1} us = {:.1} us; unremarkable from the quickest wake-up (a timer may be joined with an earlier \
             one) to the whole slack and {:.0} us",
            slack / 1e3,
            WAKING / 1e3,
            value / 1e3,
            WAKING_BOUNDS.1 / 1e3
        )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::facts_about;

    #[test]
    fn slack_and_waking_add_up() {
        facts_about(&[], |facts| {
            let predicted = |slack| predict(facts, &TIMER_WAKEUP, &Case::new().with(TIMER_SLACK, slack)).unwrap();
            assert_eq!(predicted(50_000).value, 55_000.0);
            assert_eq!((predicted(1).value, predicted(1).high), (5_001.0, 45_001.0));
            assert!(predict(facts, &TIMER_WAKEUP, &Case::new()).is_err());
        });
    }
}
