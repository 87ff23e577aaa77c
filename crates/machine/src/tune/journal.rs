//! The journal of changed settings and the lock around it.

use std::fs::{self, DirBuilder, File, Permissions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use kelvin_sys::owned::{self, Doubt};
use serde::{Deserialize, Serialize};

use super::plan::Setting;
use super::{Change, TuneError, switches};
use crate::text::Root;

/// Format of the journal.
const FORMAT: u32 = 1;
/// Maximum journal size: a line for each of some thousand CPUs is far less.
const LONGEST: u64 = 8 << 20;
/// Characters quoted of what is wrong in it.
const EXCERPT: usize = 200;
/// Modes of its directory and of all files in it, whatever the umask is.
const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// The changed settings, with old and new values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Journal {
    format: u32,
    /// The boot in which the settings were changed; they do not survive it.
    boot: Option<String>,
    /// In the order of change.
    pub(super) entries: Vec<Change>,
}

/// Whether tune makes such a change.
fn check(change: &Change) -> Result<(), String> {
    let Change { path, from, to, asked, .. } = change;
    if *asked {
        return switches::check(path, from).and_then(|()| switches::check(path, to));
    }
    match Setting::of(path) {
        None => Err(format!("{path:?} is not a setting that tune changes")),
        Some(setting) if setting.changes(from, to) => Ok(()),
        Some(_) => Err(format!("tune never changes {path} from {from:?} to {to:?}")),
    }
}

fn boot(root: Root<'_>) -> Option<String> {
    root.text("/proc/sys/kernel/random/boot_id")
}

impl Journal {
    pub(super) fn new(root: Root<'_>, entries: Vec<Change>) -> Self {
        Self { format: FORMAT, boot: boot(root), entries }
    }

    pub(super) fn is_of_an_earlier_boot(&self, root: Root<'_>) -> bool {
        matches!((&self.boot, boot(root)), (Some(then), Some(now)) if *then != now)
    }

    /// The journal at a path, if any: only one that nobody else can have written, with changes that tune makes.
    pub(super) fn read(path: &Path) -> Result<Option<Self>, TuneError> {
        let Some(text) = text(path)? else { return Ok(None) };
        let damaged =
            |why: String| TuneError::Damaged { journal: path.to_owned(), reason: why.chars().take(EXCERPT).collect() };
        let journal: Self = serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
        if journal.format != FORMAT {
            return Err(damaged(format!("its format is {}, but this kelvin reads {FORMAT}", journal.format)));
        }
        journal.entries.iter().try_for_each(check).map_err(damaged)?;
        Ok(Some(journal))
    }

    /// Writes the journal atomically: a temporary file, synced, renamed into place, and the directory synced.
    pub(super) fn write(&self, path: &Path) -> Result<(), TuneError> {
        let write = || -> io::Result<()> {
            let text = serde_json::to_vec_pretty(self).map_err(io::Error::from)?;
            let temporary = beside(path, "new");
            // Left behind by a killed kelvin.
            let _ = fs::remove_file(&temporary);
            let mut file = File::options().write(true).create_new(true).mode(FILE_MODE).open(&temporary)?;
            file.set_permissions(Permissions::from_mode(FILE_MODE))?;
            file.write_all(&text)?;
            file.sync_all()?;
            kelvin_sys::fs::close(file)?;
            fs::rename(&temporary, path)?;
            flush_directory(path)
        };
        write().map_err(|source| failed(path, "written", source))
    }

    pub(super) fn remove(path: &Path) -> Result<(), TuneError> {
        let removed = fs::remove_file(path).and_then(|()| flush_directory(path));
        removed.map_err(|source| failed(path, "removed", source))
    }
}

/// The bytes of a journal; `None` without one, or without its directory.
fn text(path: &Path) -> Result<Option<Vec<u8>>, TuneError> {
    let mut text = Vec::new();
    let read = owned::check_directory(directory(path)).and_then(|()| owned::open_file(path)).and_then(|file| {
        file.take(LONGEST).read_to_end(&mut text)?;
        Ok(Some(text))
    });
    match read {
        Err(Doubt::Call(error)) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        read => read.map_err(|doubt| doubted(path, "read", doubt)),
    }
}

/// Creates the directory of a journal if missing, and checks that only we can write it.
fn prepare_directory(path: &Path) -> Result<(), TuneError> {
    let directory = directory(path);
    let prepare = || {
        match DirBuilder::new().mode(DIRECTORY_MODE).create(directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(Doubt::Call(error)),
            _ => owned::check_directory(directory)?,
        }
        Ok(fs::set_permissions(directory, Permissions::from_mode(DIRECTORY_MODE))?)
    };
    prepare().map_err(|doubt| doubted(path, "locked", doubt))
}

fn doubted(journal: &Path, action: &'static str, doubt: Doubt) -> TuneError {
    match doubt {
        Doubt::Call(source) => failed(journal, action, source),
        Doubt::Others { path, why } => TuneError::Others { journal: journal.to_owned(), path, why },
    }
}

fn directory(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
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

fn flush_directory(path: &Path) -> io::Result<()> {
    File::open(directory(path)).and_then(|directory| kelvin_sys::fs::flush_directory(&directory))
}

/// The right to change settings: a kernel lock on a file beside the journal. It ends with its process, so a kill leaves
/// no stale lock.
#[derive(Debug)]
pub(super) struct Lock {
    path: PathBuf,
    /// Held for the lock on it.
    _file: File,
}

impl Lock {
    pub(super) fn take(journal: &Path) -> Result<Self, TuneError> {
        prepare_directory(journal)?;
        let path = beside(journal, "lock");
        loop {
            let locked = |source| failed(journal, "locked", source);
            let mut options = File::options();
            options.create(true).write(true).truncate(false).mode(FILE_MODE).custom_flags(owned::ITSELF);
            let file = options.open(&path).map_err(locked)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(TuneError::Busy { lock: path }),
                Err(TryLockError::Error(source)) => return Err(locked(source)),
            }
            // The previous holder removes the file at the end: a lock on a removed file guards nothing, so retry.
            let ours = file.metadata().map_err(locked)?.ino();
            if fs::metadata(&path).is_ok_and(|there| there.ino() == ours) {
                return Ok(Self { path, _file: file });
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Removed while still locked. If that fails, a harmless empty file stays.
        let _ = fs::remove_file(&self.path);
    }
}
