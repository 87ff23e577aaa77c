//! The file system: what it does for names, inodes and its journal, against one that keeps all of it in memory.

use std::path::Path;

use kelvin_core::SkipReason;
use kelvin_core::catalogue::file::{
    ENTRY_ADD, ENTRY_CREATE, ENTRY_FREE, ENTRY_REMOVE, METADATA_CREATE, METADATA_LIST, METADATA_OPEN, METADATA_RENAME,
    METADATA_STAT, METADATA_UNLINK, NEW_FILE, SYNC_WRITE,
};
use kelvin_file::temporary_files::ScratchDirectory;
use kelvin_sys::fs::kind;

use super::cause::{AffectedMetrics, Cause, CauseContext, Mechanism, RoundConditions, at_all_cases, null_call};
use crate::reasons::refuse_if;

pub(crate) static CAUSE: Cause = Cause {
    id: "file_system",
    what: "the file system and its journal",
    how: "A file system on a disk keeps names and inodes in its own structures and writes changes to a journal, and an allocation may \
          wait for it. Shown by the same calls in a directory of /dev/shm, whose file system (tmpfs) has only the page cache.",
    cost: "The files of the probe in memory while rounds are made; the directory is removed at the end, or, of a kelvin that was \
           killed, by the next.",
    pitfalls: &[
        "tmpfs is not free: its calls go through the same layers of the kernel, and its pages have to be allocated as well. Only what \
         the other file system takes beyond that is shown.",
        "A flush to a disk has no counterpart in memory, and is not tried.",
    ],
    remedy: "keep what need not last in /dev/shm or another tmpfs, or change files in larger steps",
    affected: AffectedMetrics::Listed(&[
        at_all_cases(&METADATA_CREATE),
        at_all_cases(&METADATA_STAT),
        at_all_cases(&METADATA_OPEN),
        at_all_cases(&METADATA_RENAME),
        at_all_cases(&METADATA_LIST),
        at_all_cases(&METADATA_UNLINK),
        at_all_cases(&ENTRY_CREATE),
        at_all_cases(&ENTRY_FREE),
        at_all_cases(&ENTRY_ADD),
        at_all_cases(&ENTRY_REMOVE),
        at_all_cases(&NEW_FILE),
        at_all_cases(&SYNC_WRITE),
    ]),
    mechanisms: &[Mechanism::without("in_memory", "in /dev/shm", apply)],
    negative_control: null_call,
    size: |_| None,
};

/// Where every Linux has a tmpfs.
const TMPFS_PATH: &str = "/dev/shm";

fn apply(scene: &CauseContext<'_>, conditions: &mut RoundConditions) -> Result<(), SkipReason> {
    let current = kind(Path::new(&scene.setup.scratch)).map_err(|error| SkipReason::new(error.to_string()))?;
    let reason = format!("the scratch directory is in memory already ({})", current.name());
    refuse_if(current.is_in_memory(), reason)?;
    let cannot = |error: std::io::Error| SkipReason::new(format!("needs a directory in {TMPFS_PATH}: {error}"));
    let reason = format!("needs a file system in memory at {TMPFS_PATH}");
    refuse_if(!kind(Path::new(TMPFS_PATH)).map_err(cannot)?.is_in_memory(), reason)?;
    let scratch =
        conditions.keep_for_experiment(CAUSE.id, || ScratchDirectory::create(Path::new(TMPFS_PATH)).map_err(cannot))?;
    conditions.setup.scratch = scratch.path().into();
    Ok(())
}
