//! The same calls and switches by kelvin and by another program, interleaved.

use crate::{Better, Metric, Need, Unit};

use crate::catalogue::metric_list::{duration, metrics};
use crate::catalogue::rivals::{Rival, RivalComparison};

/// Both sides count as found with any disturbance, and neither subtracts anything.
const fn interleaved_metric(id: &'static str) -> Metric {
    duration(id).with_axes([Rival::AXIS]).as_found().not_in_cycles().needs(Need::Rivals)
}

/// System calls.
pub static RIVAL_COMPARISON_SYSCALL: RivalComparison =
    RivalComparison { ratio: &RIVALS_SYSCALL, kelvin: &RIVALS_SYSCALL_KELVIN, other: &RIVALS_SYSCALL_OTHER };
/// Round trips.
pub static RIVAL_COMPARISON_PIPE: RivalComparison =
    RivalComparison { ratio: &RIVALS_PIPE, kelvin: &RIVALS_PIPE_KELVIN, other: &RIVALS_PIPE_OTHER };

metrics! {
    /// The metrics of other programs, in the order of reports.
    pub const RIVAL_METRICS = [
        /// How many times as fast kelvin does it as another program: the other's time over kelvin's
        RIVALS_SYSCALL = interleaved_metric("os.rivals.syscall").unit(Unit::Ratio, Better::Neither),
        /// Time of one, by kelvin, interleaved with another program
        RIVALS_SYSCALL_KELVIN = interleaved_metric("os.rivals.syscall.kelvin"),
        /// Time of one, by another program, interleaved with kelvin
        RIVALS_SYSCALL_OTHER = interleaved_metric("os.rivals.syscall.other"),
        /// How many times as fast kelvin does it as another program: the other's time over kelvin's
        RIVALS_PIPE = interleaved_metric("os.rivals.pipe").unit(Unit::Ratio, Better::Neither),
        /// Time of one, by kelvin, interleaved with another program
        RIVALS_PIPE_KELVIN = interleaved_metric("os.rivals.pipe.kelvin"),
        /// Time of one, by another program, interleaved with kelvin
        RIVALS_PIPE_OTHER = interleaved_metric("os.rivals.pipe.other"),
    ];
}
