//! Read-ahead: the kernel reads what it expects to be requested next. That pays where it is requested, and costs where
//! it is not.

use kelvin_core::catalogue::mem::{FAULT_MAJOR, FAULT_MINOR, FaultPage, ReadAhead, TOUCH_STEP};
use kelvin_core::{Case, MetricCase, SkipReason};

use super::cause::{AffectedMetrics, Cause, CauseContext, Mechanism, RoundConditions, at_word};
use crate::reasons::refuse_if;

pub(crate) static CAUSE: Cause = Cause {
    affected: AffectedMetrics::Listed(&[at_word(&[&FAULT_MAJOR], ReadAhead::On.point())]),
    mechanisms: &[Mechanism::without("no_read_ahead", "with MADV_RANDOM", apply)],
    negative_control: |_| MetricCase { metric: FAULT_MINOR.id, case: Case::new().with_word(FaultPage::Anonymous) },
    ..Cause::new("read_ahead", "read-ahead", include_str!("read_ahead.md"))
};

/// Steps from here on are touches of their own; shorter ones are a pass in order, which without read-ahead is another experiment.
const MIN_SPARSE_STEP: u64 = 1 << 20;

fn apply(context: &CauseContext<'_>, conditions: &mut RoundConditions) -> Result<(), SkipReason> {
    let reason = "a pass in order is what read-ahead is for: compare mem.fault.major with read_ahead=off";
    refuse_if(TOUCH_STEP.number_in(context.case).is_some_and(|step| step < MIN_SPARSE_STEP), reason)?;
    conditions.replace_word(ReadAhead::Off);
    Ok(())
}
