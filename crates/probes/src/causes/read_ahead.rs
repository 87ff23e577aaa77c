//! Read-ahead: the kernel reads what it expects to be asked for next, which pays where it is, and costs where it is not.

use kelvin_core::catalogue::mem::{FAULT_MAJOR, FAULT_MINOR, FaultPage, ReadAhead, TOUCH_STEP};
use kelvin_core::{Case, MetricCase, SkipReason};

use super::cause::{AffectedMetrics, Cause, CauseContext, Mechanism, RoundConditions, at_word};
use crate::reasons::refuse_if;

pub(crate) static CAUSE: Cause = Cause {
    id: "read_ahead",
    what: "read-ahead",
    how: "Where a file is read, or mapped and touched, the kernel also reads what follows. A touch then waits for more than its own \
          page, or finds it in memory already. Shown by the same touches of a mapping with the advice MADV_RANDOM, which turns it off.",
    cost: "Nothing outside the mapping is changed.",
    pitfalls: &[
        "Where touches follow each other closely it is the other way round: without read-ahead each of them goes to the device.",
    ],
    remedy: "advise the kernel that access is random (MADV_RANDOM, POSIX_FADV_RANDOM), or read in larger blocks",
    affected: AffectedMetrics::Listed(&[at_word(&FAULT_MAJOR, ReadAhead::On.point())]),
    mechanisms: &[Mechanism::without("no_read_ahead", "with MADV_RANDOM", apply)],
    negative_control: |_| MetricCase { metric: FAULT_MINOR.id, case: Case::new().with_word(FaultPage::Anonymous) },
    size: |_| None,
};

/// Steps from here on are touches of their own; shorter ones are a pass in order, which without read-ahead is another experiment.
const MIN_SPARSE_STEP: u64 = 1 << 20;

fn apply(scene: &CauseContext<'_>, conditions: &mut RoundConditions) -> Result<(), SkipReason> {
    let reason = "a pass in order is what read-ahead is for: compare mem.fault.major with read_ahead=off";
    refuse_if(TOUCH_STEP.number_in(scene.case).is_some_and(|step| step < MIN_SPARSE_STEP), reason)?;
    conditions.replace_word(ReadAhead::Off);
    Ok(())
}
