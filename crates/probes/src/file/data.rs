//! The file that measures of reading share: written once a run, of noise, in the scratch directory.

use kelvin_file::{Target, noise};
use kelvin_harness::{Bench, Effort, Stop};
use kelvin_model::Machine;
use kelvin_sys::fs::room;

/// Name of the file in the scratch directory, before its size.
const NAME: &str = "kelvin-data";
/// Seed of its content.
const SEED: u64 = 1;
const MIB: u64 = 1 << 20;
/// Free room that the scratch directory must have, as a multiple of a file that is to be written.
const ROOM: u64 = 2;
/// Part of the available memory that a file may take in the page cache.
const PART: u64 = 8;

/// Size of the file, in bytes: more than most caches of processors hold, little to write, and no more than an eighth of
/// the memory that is free.
pub(super) fn usual_bytes(machine: &Machine, effort: Effort) -> u64 {
    let wanted = match effort {
        Effort::Quick => 64 * MIB,
        Effort::Default => 128 * MIB,
        Effort::Thorough => 512 * MIB,
    };
    let available = machine.memory.available_bytes.get().copied().unwrap_or(u64::MAX);
    let limit = machine.limits.memory_bytes.get().copied().flatten().unwrap_or(u64::MAX);
    let most = available.min(limit) / PART / MIB * MIB;
    wanted.min(most.max(MIB))
}

/// A file of so many bytes of noise, on its device, that all rounds of the run share. The first one that asks for it
/// writes it.
pub(super) fn file(bench: &Bench<'_>, bytes: u64) -> Result<Target, Stop> {
    let path = bench.scratch().join(format!("{NAME}-{bytes}"));
    if !path.exists() {
        has_room(bench, bytes)?;
        bench.may_write(bytes)?;
        noise::file(&path, bytes, SEED)
            .map_err(|error| Stop::fail(format!("cannot write {}: {error}", path.display())))?;
    }
    Target::find(&path).map_err(stopped)
}

/// That the scratch directory has room for a file of so many bytes, and as many again.
pub(super) fn has_room(bench: &Bench<'_>, bytes: u64) -> Result<(), Stop> {
    let available = room(bench.scratch())?.available_bytes;
    if available >= ROOM * bytes {
        return Ok(());
    }
    Err(Stop::skip(format!(
        "needs {} bytes of free room in the scratch directory, which has {available}; choose another by --dir",
        ROOM * bytes
    )))
}

/// What keeps a file from being measured: something that cannot be had here is skipped, anything else has failed.
pub(super) fn stopped(error: kelvin_file::Error) -> Stop {
    if error.is_absence() || matches!(error, kelvin_file::Error::Cache { .. }) {
        Stop::skip(error.to_string())
    } else {
        Stop::fail(error.to_string())
    }
}
