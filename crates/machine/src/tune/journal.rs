//! The journal of changed settings and the lock around it.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Change, TuneError};
use crate::text::Root;

/// Format of the journal.
const FORMAT: u32 = 1;

/// What was changed, from what to what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Journal {
    format: u32,
    /// The boot during which the settings were changed; they do not outlive it.
    boot: Option<String>,
    /// In the order in which they are changed.
    pub(super) entries: Vec<Entry>,
}

/// One setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) path: String,
    pub(super) from: String,
    pub(super) to: String,
    why: String,
    optional: bool,
}

impl Entry {
    pub(super) fn new(change: &Change, now: &str) -> Self {
        Self {
            path: change.path.clone(),
            from: now.to_owned(),
            to: change.to.clone(),
            why: change.why.clone(),
            optional: change.optional,
        }
    }

    pub(super) fn into_change(self) -> Change {
        Change { path: self.path, from: self.from, to: self.to, why: self.why, optional: self.optional }
    }
}

fn boot(root: Root<'_>) -> Option<String> {
    root.text("/proc/sys/kernel/random/boot_id")
}

impl Journal {
    pub(super) fn new(root: Root<'_>, entries: Vec<Entry>) -> Self {
        Self { format: FORMAT, boot: boot(root), entries }
    }

    pub(super) fn is_of_an_earlier_boot(&self, root: Root<'_>) -> bool {
        matches!((&self.boot, boot(root)), (Some(then), Some(now)) if *then != now)
    }

    /// The journal at a path, if there is one.
    pub(super) fn read(path: &Path) -> Result<Option<Self>, TuneError> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(failed(path, "read", source)),
        };
        let damaged = |reason: String| TuneError::Damaged { journal: path.to_owned(), reason };
        let journal: Self = serde_json::from_str(&text).map_err(|error| damaged(error.to_string()))?;
        if journal.format != FORMAT {
            return Err(damaged(format!("its format is {}, this kelvin knows {FORMAT}", journal.format)));
        }
        Ok(Some(journal))
    }

    /// Writes the journal so that after a crash either all of it is there or nothing: a file beside it, made durable,
    /// renamed into place, and the directory made durable.
    pub(super) fn write(&self, path: &Path) -> Result<(), TuneError> {
        let write = || -> io::Result<()> {
            let text = serde_json::to_vec_pretty(self).map_err(io::Error::from)?;
            let temporary = beside(path, "new");
            let mut file = File::create(&temporary)?;
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&temporary, path)?;
            sync_directory(path)
        };
        write().map_err(|source| failed(path, "written", source))
    }

    pub(super) fn remove(path: &Path) -> Result<(), TuneError> {
        fs::remove_file(path).and_then(|()| sync_directory(path)).map_err(|source| failed(path, "removed", source))
    }
}

fn failed(path: &Path, action: &'static str, source: io::Error) -> TuneError {
    TuneError::Journal { journal: path.to_owned(), action, source }
}

/// A file beside the journal: `tune.json.lock`.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    PathBuf::from(name)
}

fn sync_directory(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(directory)?.sync_all()
}

/// The right to change settings: a lock of the kernel's on a file beside the journal. It ends with the process that
/// holds it, so a killed one leaves no stale lock behind.
pub(super) struct Lock {
    path: PathBuf,
    /// Held for the lock on it.
    _file: File,
}

impl Lock {
    pub(super) fn take(journal: &Path) -> Result<Self, TuneError> {
        let path = beside(journal, "lock");
        loop {
            let locked = |source| failed(journal, "locked", source);
            let file = File::options().create(true).write(true).truncate(false).open(&path).map_err(locked)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(TuneError::Busy { lock: path }),
                Err(TryLockError::Error(source)) => return Err(locked(source)),
            }
            // The holder before us removes the file at its end: a lock on a removed file guards nothing, so try again.
            let ours = file.metadata().map_err(locked)?.ino();
            if fs::metadata(&path).is_ok_and(|there| there.ino() == ours) {
                return Ok(Self { path, _file: file });
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Removed while it is still locked. If that fails, an empty file stays behind, which does no harm.
        let _ = fs::remove_file(&self.path);
    }
}
