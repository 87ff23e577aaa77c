//! The journal of changed settings and the lock around it.

use std::fs::{self, DirBuilder, File, Permissions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use kelvin_sys::trusted_path::{self, TrustError};
use serde::{Deserialize, Serialize};

use super::plan::TunableSetting;
use super::{SettingChange, TuneError};
use crate::root::FileRoot;

/// Format of the journal.
const JOURNAL_FORMAT: u32 = 1;
/// Maximum journal size: a line for each of some thousand CPUs is far less.
const MAX_JOURNAL_BYTES: u64 = 8 << 20;
/// Characters quoted of what is wrong in it.
const EXCERPT_LENGTH: usize = 200;
/// Modes of its directory and of all files in it, under any umask.
const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// The changed settings, with old and new values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Journal {
    format: u32,
    /// The boot in which the settings were changed; they do not survive it.
    boot_id: Option<String>,
    /// In the order of change.
    pub(super) entries: Vec<SettingChange>,
}

/// Whether tune makes such a change.
fn validate_change(change: &SettingChange) -> Result<(), String> {
    let SettingChange { path, from, to, requested, .. } = change;
    if *requested {
        return validate_setting(path, from).and_then(|()| validate_setting(path, to));
    }
    match TunableSetting::for_path(path) {
        None => Err(format!("{path:?} is not a setting that tune changes")),
        Some(setting) if setting.allows_change(from, to) => Ok(()),
        Some(_) => Err(format!("tune never changes {path} from {from:?} to {to:?}")),
    }
}

fn boot_id(root: FileRoot<'_>) -> Option<String> {
    root.text("/proc/sys/kernel/random/boot_id")
}

impl Journal {
    pub(super) fn new(root: FileRoot<'_>, entries: Vec<SettingChange>) -> Self {
        Self { format: JOURNAL_FORMAT, boot_id: boot_id(root), entries }
    }

    pub(super) fn is_of_an_earlier_boot(&self, root: FileRoot<'_>) -> bool {
        matches!((&self.boot_id, boot_id(root)), (Some(then), Some(now)) if *then != now)
    }

    /// The journal at a path, if any: only one that nobody else can have written, with changes that tune makes.
    pub(super) fn read(path: &Path) -> Result<Option<Self>, TuneError> {
        let Some(text) = read_file(path)? else { return Ok(None) };
        let damaged =
            |reason: String| TuneError::CorruptJournal(path.to_owned(), reason.chars().take(EXCERPT_LENGTH).collect());
        let journal: Self = serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
        if journal.format != JOURNAL_FORMAT {
            return Err(damaged(format!("its format is {}, but this kelvin reads {JOURNAL_FORMAT}", journal.format)));
        }
        journal.entries.iter().try_for_each(validate_change).map_err(damaged)?;
        Ok(Some(journal))
    }

    /// Writes the journal atomically: a temporary file, synced, renamed into place, and the directory synced.
    pub(super) fn write(&self, path: &Path) -> Result<(), TuneError> {
        let write = || -> io::Result<()> {
            let text = serde_json::to_vec_pretty(self).map_err(io::Error::from)?;
            let temporary = sibling_path(path, "new");
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
        write().map_err(|source| io_error(path, "written", source))
    }

    pub(super) fn remove(path: &Path) -> Result<(), TuneError> {
        let result = fs::remove_file(path).and_then(|()| flush_directory(path));
        result.map_err(|source| io_error(path, "removed", source))
    }
}

/// The bytes of a journal; `None` without one, or without its directory.
fn read_file(path: &Path) -> Result<Option<Vec<u8>>, TuneError> {
    let mut text = Vec::new();
    let read = trusted_path::check_directory(parent_directory(path))
        .and_then(|()| trusted_path::open_file(path))
        .and_then(|file| {
            file.take(MAX_JOURNAL_BYTES).read_to_end(&mut text)?;
            Ok(Some(text))
        });
    match read {
        Err(TrustError::Call(error)) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        read => read.map_err(|error| untrusted_error(path, "read", error)),
    }
}

/// Creates the directory of a journal if missing, and checks that only we can write it.
fn prepare_directory(path: &Path) -> Result<(), TuneError> {
    let directory = parent_directory(path);
    let prepare = || {
        match DirBuilder::new().mode(DIRECTORY_MODE).create(directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(TrustError::Call(error)),
            _ => trusted_path::check_directory(directory)?,
        }
        Ok(fs::set_permissions(directory, Permissions::from_mode(DIRECTORY_MODE))?)
    };
    prepare().map_err(|error| untrusted_error(path, "locked", error))
}

fn untrusted_error(journal: &Path, action: &'static str, error: TrustError) -> TuneError {
    match error {
        TrustError::Call(source) => io_error(journal, action, source),
        TrustError::WritableByOthers { path, reason } => {
            TuneError::UntrustedJournal { journal: journal.to_owned(), path, why: reason }
        }
    }
}

fn parent_directory(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}

fn io_error(path: &Path, action: &'static str, source: io::Error) -> TuneError {
    TuneError::JournalIo { journal: path.to_owned(), action, source }
}

/// A file next to the journal: `tune.json.lock`.
fn sibling_path(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(suffix);
    PathBuf::from(name)
}

fn flush_directory(path: &Path) -> io::Result<()> {
    File::open(parent_directory(path)).and_then(|directory| kelvin_sys::fs::flush_directory(&directory))
}

/// The right to change settings: a kernel lock on a file next to the journal. It ends with its process, so a kill leaves
/// no stale lock.
#[derive(Debug)]
pub(super) struct JournalLock {
    path: PathBuf,
    /// Held for the lock on it.
    _file: File,
}

impl JournalLock {
    pub(super) fn acquire(journal: &Path) -> Result<Self, TuneError> {
        prepare_directory(journal)?;
        let path = sibling_path(journal, "lock");
        loop {
            let locked = |source| io_error(journal, "locked", source);
            let mut options = File::options();
            options.create(true).write(true).truncate(false).mode(FILE_MODE).custom_flags(trusted_path::NOFOLLOW_FLAGS);
            let file = options.open(&path).map_err(locked)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(TuneError::Busy(path)),
                Err(TryLockError::Error(source)) => return Err(locked(source)),
            }
            // The previous holder removes the file at the end: a lock on a removed file guards nothing, so retry.
            let inode = file.metadata().map_err(locked)?.ino();
            if fs::metadata(&path).is_ok_and(|current| current.ino() == inode) {
                return Ok(Self { path, _file: file });
            }
        }
    }
}

impl Drop for JournalLock {
    fn drop(&mut self) {
        // Removed while still locked. If that fails, a harmless empty file stays.
        let _ = fs::remove_file(&self.path);
    }
}

/// Where settings are.
const SETTING_DIRECTORIES: [&str; 2] = ["/proc/sys/", "/sys/"];
/// Maximum length of a value.
const MAX_VALUE_LENGTH: usize = 4096;

/// Whether a file can be that of a setting, and a text its value.
pub(super) fn validate_setting(path: &str, value: &str) -> Result<(), String> {
    let is_in_settings = SETTING_DIRECTORIES.iter().any(|directory| path.starts_with(directory));
    let is_normalised = Path::new(path).components().skip(1).all(|component| matches!(component, Component::Normal(_)));
    if !is_in_settings || !is_normalised || path.contains("//") {
        return Err(format!("{path:?} is not a setting: a file below /proc/sys or /sys is"));
    }
    let is_text = value.chars().all(|letter| letter == '\t' || !letter.is_control());
    if value.trim().is_empty() || value.len() > MAX_VALUE_LENGTH || !is_text {
        return Err(format!("{path} cannot be set to {value:?}: expected one line of text"));
    }
    Ok(())
}
