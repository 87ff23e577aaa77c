//! Timer slack: the kernel may end a wait later than asked, so that one interrupt ends several.

use kelvin_core::catalogue::os::{HandoffMechanism, SWITCH_COST, TIMER_SLACK, TIMER_WAKEUP};
use kelvin_core::{MetricCase, SkipReason};

use super::cause::{AffectedMetrics, Cause, CauseContext, Mechanism, RoundConditions, at_all_cases};
use crate::reasons::refuse_if;

pub(crate) static CAUSE: Cause = Cause {
    id: "timer_slack",
    what: "timer slack",
    how: "A timed wait of a thread that is not real-time may end later than asked by its timer slack, 50 us by default, so that waits that \
          end at about the same time are ended by one interrupt. On a CPU that nothing else wakes it is used in full. Shown by the same \
          waits with a slack of 1 ns (PR_SET_TIMERSLACK), which the thread that waits chooses for itself.",
    cost: "The slack of the thread that is timed; it ends with its round.",
    pitfalls: &[
        "A real-time thread has no slack, whatever value was set: at real-time priority there is nothing to take away.",
        "A CPU that is interrupted all the time anyway ends waits early: then it takes less than its size.",
    ],
    remedy: "ask for a smaller slack (prctl with PR_SET_TIMERSLACK, or /proc/PID/timerslack_ns)",
    affected: AffectedMetrics::Listed(&[at_all_cases(&TIMER_WAKEUP)]),
    mechanisms: &[Mechanism::without("no_timer_slack", "with a timer slack of 1 ns", apply)],
    negative_control: |_| MetricCase { metric: SWITCH_COST.id, case: HandoffMechanism::Pipe.between_processes() },
    size: |_| None,
};

/// The least that the kernel keeps: 0 stands for the default.
const MIN_SLACK_NANOSECONDS: u64 = 1;

fn apply(scene: &CauseContext<'_>, conditions: &mut RoundConditions) -> Result<(), SkipReason> {
    let reason = "the wait has no timer slack already";
    refuse_if(TIMER_SLACK.number_in(scene.case).is_some_and(|slack| slack <= MIN_SLACK_NANOSECONDS), reason)?;
    // Its own case only: the bystander has no such axis.
    if TIMER_SLACK.number_in(&conditions.case).is_some() {
        conditions.case = conditions.case.clone().with_number(TIMER_SLACK, MIN_SLACK_NANOSECONDS);
    }
    Ok(())
}
