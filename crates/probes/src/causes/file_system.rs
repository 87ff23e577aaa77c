//! The file system: what it does for names, inodes and its journal, against one that keeps all of it in memory.

use std::path::Path;

use kelvin_core::SkipReason;
use kelvin_core::catalogue::file::{NEW_FILE, SYNC_WRITE};
use kelvin_file::temporary_files::ScratchDirectory;
use kelvin_sys::fs::kind;

use super::cause::{AffectedMetrics, Cause, CauseContext, Mechanism, RoundConditions, at_all_cases};
use crate::file::{directory_entry, metadata};
use crate::reasons::refuse_if;

pub(crate) static CAUSE: Cause = Cause {
    affected: AffectedMetrics::Listed(&[
        at_all_cases(metadata::PROBE.metrics),
        at_all_cases(directory_entry::PROBE.metrics),
        at_all_cases(&[&NEW_FILE, &SYNC_WRITE]),
    ]),
    mechanisms: &[Mechanism::without("in_memory", "in /dev/shm", apply)],
    ..Cause::new("file_system", "the file system and its journal", include_str!("file_system.md"))
};

/// Where every Linux has a tmpfs.
const TMPFS_PATH: &str = "/dev/shm";

fn apply(context: &CauseContext<'_>, conditions: &mut RoundConditions) -> Result<(), SkipReason> {
    let current = kind(Path::new(&context.setup.scratch)).map_err(|error| SkipReason::new(error.to_string()))?;
    let reason = format!("the scratch directory is in memory already ({})", current.name());
    refuse_if(current.is_in_memory(), reason)?;
    let to_skip_reason = |error: std::io::Error| SkipReason::new(format!("needs a directory in {TMPFS_PATH}: {error}"));
    let reason = format!("needs a file system in memory at {TMPFS_PATH}");
    refuse_if(!kind(Path::new(TMPFS_PATH)).map_err(to_skip_reason)?.is_in_memory(), reason)?;
    let scratch = conditions
        .keep_for_experiment(CAUSE.id, || ScratchDirectory::create(Path::new(TMPFS_PATH)).map_err(to_skip_reason))?;
    conditions.setup.scratch = scratch.path().into();
    Ok(())
}
