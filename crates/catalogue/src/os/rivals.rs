//! The same calls and switches by kelvin and by another program, in turn.

use kelvin_model::{Canaries, Metric, Need, Overhead, Tags, Treatment};

use crate::rivals::{BesideRivals, Rival, ratio};

const RATIO_SUMMARY: &str = "How many times as fast kelvin does it as another program: the other's time over kelvin's";
const KELVIN_SUMMARY: &str = "Time of one, by kelvin, in turn with another program";
const OTHER_SUMMARY: &str = "Time of one, by another program, in turn with kelvin";

/// Both sides count as found, whatever happens meanwhile, and neither subtracts anything.
const fn in_turn(id: &'static str, summary: &'static str) -> Metric {
    Metric::duration(id, summary)
        .over([Rival::AXIS])
        .headline(Treatment::AsFound)
        .overhead(Overhead::None)
        .canaries(Canaries::NONE)
        .contaminants(Tags::NONE)
        .not_in_cycles()
        .needs(Need::Rivals)
}

/// A null system call, another program's time over kelvin's.
pub static RIVALS_SYSCALL: Metric = ratio(in_turn("os.rivals.syscall", RATIO_SUMMARY));
/// kelvin's.
pub static RIVALS_SYSCALL_KELVIN: Metric = in_turn("os.rivals.syscall.kelvin", KELVIN_SUMMARY);
/// The other program's.
pub static RIVALS_SYSCALL_OTHER: Metric = in_turn("os.rivals.syscall.other", OTHER_SUMMARY);

/// A round trip over two pipes on one CPU, another program's time over kelvin's.
pub static RIVALS_PIPE: Metric = ratio(in_turn("os.rivals.pipe", RATIO_SUMMARY));
/// kelvin's.
pub static RIVALS_PIPE_KELVIN: Metric = in_turn("os.rivals.pipe.kelvin", KELVIN_SUMMARY);
/// The other program's.
pub static RIVALS_PIPE_OTHER: Metric = in_turn("os.rivals.pipe.other", OTHER_SUMMARY);

/// System calls.
pub static BESIDE_RIVALS_SYSCALL: BesideRivals =
    BesideRivals { ratio: &RIVALS_SYSCALL, kelvin: &RIVALS_SYSCALL_KELVIN, other: &RIVALS_SYSCALL_OTHER };
/// Round trips.
pub static BESIDE_RIVALS_PIPE: BesideRivals =
    BesideRivals { ratio: &RIVALS_PIPE, kelvin: &RIVALS_PIPE_KELVIN, other: &RIVALS_PIPE_OTHER };
