//! Timer slack: the kernel may end a wait later than requested, so that one interrupt ends several.

use kelvin_core::catalogue::os::{HandoffMechanism, SWITCH_COST, TIMER_SLACK, TIMER_WAKEUP};
use kelvin_core::{MetricCase, SkipReason};

use super::cause::{AffectedMetrics, Cause, CauseContext, Mechanism, RoundConditions, at_all_cases};
use crate::reasons::refuse_if;

pub(crate) static CAUSE: Cause = Cause {
    affected: AffectedMetrics::Listed(&[at_all_cases(&[&TIMER_WAKEUP])]),
    mechanisms: &[Mechanism::without("no_timer_slack", "with a timer slack of 1 ns", apply)],
    negative_control: |_| MetricCase { metric: SWITCH_COST.id, case: HandoffMechanism::Pipe.between_processes() },
    ..Cause::new("timer_slack", "timer slack", include_str!("timer_slack.md"))
};

/// The least that the kernel keeps: 0 stands for the default.
const MIN_SLACK_NANOSECONDS: u64 = 1;

fn apply(context: &CauseContext<'_>, conditions: &mut RoundConditions) -> Result<(), SkipReason> {
    let reason = "the wait has no timer slack already";
    refuse_if(TIMER_SLACK.number_in(context.case).is_some_and(|slack| slack <= MIN_SLACK_NANOSECONDS), reason)?;
    // Its own case only: the bystander has no such axis.
    if TIMER_SLACK.number_in(&conditions.case).is_some() {
        conditions.case = conditions.case.clone().with_number(TIMER_SLACK, MIN_SLACK_NANOSECONDS);
    }
    Ok(())
}
