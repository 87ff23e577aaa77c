//! The same calls and switches by kelvin and by another program, in turn.

use crate::{Metric, Need};

use crate::catalogue::rivals::{Rival, RivalComparison, speed_ratio_metric};

const RATIO_SUMMARY: &str = "How many times as fast kelvin does it as another program: the other's time over kelvin's";
const KELVIN_SUMMARY: &str = "Time of one, by kelvin, interleaved with another program";
const OTHER_SUMMARY: &str = "Time of one, by another program, interleaved with kelvin";

/// Both sides count as found, whatever happens meanwhile, and neither subtracts anything.
const fn interleaved_metric(id: &'static str, summary: &'static str) -> Metric {
    Metric::duration(id, summary).with_axes([Rival::AXIS]).as_found().not_in_cycles().needs(Need::Rivals)
}

/// A null system call, another program's time over kelvin's.
pub static RIVALS_SYSCALL: Metric = speed_ratio_metric(interleaved_metric("os.rivals.syscall", RATIO_SUMMARY));
/// kelvin's.
pub static RIVALS_SYSCALL_KELVIN: Metric = interleaved_metric("os.rivals.syscall.kelvin", KELVIN_SUMMARY);
/// The other program's.
pub static RIVALS_SYSCALL_OTHER: Metric = interleaved_metric("os.rivals.syscall.other", OTHER_SUMMARY);

/// A round trip over two pipes on one CPU, another program's time over kelvin's.
pub static RIVALS_PIPE: Metric = speed_ratio_metric(interleaved_metric("os.rivals.pipe", RATIO_SUMMARY));
/// kelvin's.
pub static RIVALS_PIPE_KELVIN: Metric = interleaved_metric("os.rivals.pipe.kelvin", KELVIN_SUMMARY);
/// The other program's.
pub static RIVALS_PIPE_OTHER: Metric = interleaved_metric("os.rivals.pipe.other", OTHER_SUMMARY);

/// System calls.
pub static RIVAL_COMPARISON_SYSCALL: RivalComparison =
    RivalComparison { ratio: &RIVALS_SYSCALL, kelvin: &RIVALS_SYSCALL_KELVIN, other: &RIVALS_SYSCALL_OTHER };
/// Round trips.
pub static RIVAL_COMPARISON_PIPE: RivalComparison =
    RivalComparison { ratio: &RIVALS_PIPE, kelvin: &RIVALS_PIPE_KELVIN, other: &RIVALS_PIPE_OTHER };
