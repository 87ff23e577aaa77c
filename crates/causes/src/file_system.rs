//! The file system: what it does for names, inodes and its journal, against one that keeps all of it in memory.

use std::path::Path;

use kelvin_catalogue::file::{
    ENTRY_ADD, ENTRY_GIVE_BACK, ENTRY_MAKE, ENTRY_REMOVE, METADATA_CREATE, METADATA_LIST, METADATA_OPEN,
    METADATA_RENAME, METADATA_STAT, METADATA_UNLINK, NEW, SYNC,
};
use kelvin_catalogue::os::{NullCall, SYSCALL_NULL};
use kelvin_file::temporary::Scratch;
use kelvin_model::{Case, MetricAt, Reason};
use kelvin_sys::fs::kind;

use crate::cause::{Cause, Conditions, Control, Means, Mechanism, Scene, Touch, Touches};

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
    helps: "keep what need not last in /dev/shm or another tmpfs, or change files in larger steps",
    touches: Touches::These(&[
        Touch::always(&METADATA_CREATE),
        Touch::always(&METADATA_STAT),
        Touch::always(&METADATA_OPEN),
        Touch::always(&METADATA_RENAME),
        Touch::always(&METADATA_LIST),
        Touch::always(&METADATA_UNLINK),
        Touch::always(&ENTRY_MAKE),
        Touch::always(&ENTRY_GIVE_BACK),
        Touch::always(&ENTRY_ADD),
        Touch::always(&ENTRY_REMOVE),
        Touch::always(&NEW),
        Touch::always(&SYNC),
    ]),
    mechanisms: &[Mechanism::new("in /dev/shm", Means::Without(Control { id: "in_memory", apply }))],
    bystander: |_| MetricAt { metric: SYSCALL_NULL.id, case: Case::new().at(NullCall::Getppid) },
    size: |_| None,
};

/// Where every Linux has a tmpfs.
const IN_MEMORY: &str = "/dev/shm";

fn apply(scene: &Scene<'_>, conditions: &mut Conditions) -> Result<(), Reason> {
    let here = kind(Path::new(&scene.setup.scratch)).map_err(|error| Reason::new(error.to_string()))?;
    if here.lives_in_memory() {
        return Err(Reason::new(format!("the scratch directory is in memory already ({})", here.name())));
    }
    let cannot = |error: std::io::Error| Reason::new(format!("needs a directory in {IN_MEMORY}: {error}"));
    if !kind(Path::new(IN_MEMORY)).map_err(cannot)?.lives_in_memory() {
        return Err(Reason::new(format!("needs a file system in memory at {IN_MEMORY}")));
    }
    let scratch = conditions.keep(CAUSE.id, || Scratch::make(Path::new(IN_MEMORY)).map_err(cannot))?;
    conditions.setup.scratch = scratch.path().into();
    Ok(())
}
