//! The mitigation of speculative store bypass: each load waits until the addresses of all earlier stores are known.

use kelvin_core::catalogue::cpu::LATENCY_ADD;
use kelvin_core::{Case, MetricCase, SkipReason};
use kelvin_sys::store_bypass::StoreBypass;

use super::cause::{AffectedMetrics, Cause, CauseContext, Mechanism, RoundConditions};
use crate::reasons::{OrReason, refuse_if};

pub(crate) static CAUSE: Cause = Cause {
    affected: AffectedMetrics::AllWhere(|_| StoreBypass::of_thread().is_ok_and(is_disabled_for_rounds)),
    mechanisms: &[Mechanism::without("store_bypass", "with the bypass allowed", apply)],
    // A chain of adds has no loads, and a null call has some.
    negative_control: |_| MetricCase { metric: LATENCY_ADD.id, case: Case::new() },
    ..Cause::new("store_bypass", "the mitigation of speculative store bypass", include_str!("store_bypass.md"))
};

/// Whether the process of a round, which is executed anew, has it disabled.
fn is_disabled_for_rounds(state: StoreBypass) -> bool {
    matches!(state, StoreBypass::Disabled | StoreBypass::ForceDisabled | StoreBypass::DisabledBySystem)
}

fn apply(_: &CauseContext<'_>, conditions: &mut RoundConditions) -> Result<(), SkipReason> {
    check_reversible(StoreBypass::of_thread().or_refuse("cannot tell whether loads may bypass stores")?)?;
    conditions.setup.allow_store_bypass = true;
    Ok(())
}

/// Whether a process may allow it again.
fn check_reversible(state: StoreBypass) -> Result<(), SkipReason> {
    let reason = "the bypass was disabled by force (PR_SPEC_FORCE_DISABLE), which no process can undo";
    refuse_if(state == StoreBypass::ForceDisabled, reason)?;
    let reason =
        "the system has the bypass disabled for all processes (spec_store_bypass_disable=on or ssbd=force-on at boot)";
    refuse_if(state == StoreBypass::DisabledBySystem, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tried_where_disabled_and_refused_where_irreversible() {
        for (state, is_tried, is_reversible) in [
            (StoreBypass::NotVulnerable, false, true),
            (StoreBypass::Allowed, false, true),
            (StoreBypass::DisabledUntilExec, false, true),
            (StoreBypass::Disabled, true, true),
            (StoreBypass::ForceDisabled, true, false),
            (StoreBypass::DisabledBySystem, true, false),
        ] {
            assert_eq!((is_disabled_for_rounds(state), check_reversible(state).is_ok()), (is_tried, is_reversible));
        }
    }
}
