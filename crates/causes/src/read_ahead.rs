//! Read-ahead: the kernel reads what it expects to be asked for next, which pays where it is, and costs where it is not.

use kelvin_catalogue::mem::{FAULT_MAJOR, FAULT_MINOR, FaultPage, ReadAhead, STEP};
use kelvin_model::{Case, MetricAt, Reason};

use crate::cause::{Cause, Conditions, Control, Means, Mechanism, Scene, Touch, Touches};

pub(crate) static CAUSE: Cause = Cause {
    id: "read_ahead",
    what: "read-ahead",
    how: "Where a file is read, or mapped and touched, the kernel also reads what follows. A touch then waits for more than its own \
          page, or finds it in memory already. Shown by the same touches of a mapping with the advice MADV_RANDOM, which turns it off.",
    cost: "Nothing outside the mapping is changed.",
    pitfalls: &[
        "Where touches follow each other closely it is the other way round: without read-ahead each of them goes to the device.",
    ],
    helps: "advise the kernel that access is random (MADV_RANDOM, POSIX_FADV_RANDOM), or read in larger blocks",
    touches: Touches::These(&[Touch::at(&FAULT_MAJOR, ReadAhead::On.point())]),
    mechanisms: &[Mechanism::new("with MADV_RANDOM", Means::Without(Control { id: "no_read_ahead", apply }))],
    bystander: |_| MetricAt { metric: FAULT_MINOR.id, case: Case::new().at(FaultPage::Anonymous) },
    size: |_| None,
};

/// Steps from here on are touches of their own; shorter ones are a pass in order, which without read-ahead is another experiment.
const APART: u64 = 1 << 20;

fn apply(scene: &Scene<'_>, conditions: &mut Conditions) -> Result<(), Reason> {
    if STEP.of(scene.case).is_some_and(|step| step < APART) {
        return Err(Reason::new(
            "a pass in order is what read-ahead is for: compare mem.fault.major with read_ahead=off",
        ));
    }
    if ReadAhead::of(&conditions.case).is_some() {
        conditions.case = conditions.case.clone().at(ReadAhead::Off);
    }
    Ok(())
}
