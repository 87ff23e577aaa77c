//! Puts a machine into a quiet state and back, with a journal on disk that survives a kill at any point.
//!
//! The journal holds the old and new value of every setting, and is written, synced and renamed into place before the
//! first change. So [`restore`] always knows which of three values a setting has: ours (put back), the old one
//! (nothing to do), or another (set by somebody else, and left alone).

mod journal;
mod plan;
mod setting_switch;

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use kelvin_core::Metric;
use kelvin_sys::trusted_path::NOFOLLOW_FLAGS;
use serde::{Deserialize, Serialize};

pub(crate) use plan::proactive_reclaim;
pub use plan::{plan_changes, unreadable_settings};
pub use setting_switch::SettingSwitch;

use crate::root::{FileRoot, bracketed_word};
use journal::{Journal, JournalLock};

/// The journal, in a directory that the next boot clears: the settings last no longer either.
pub const JOURNAL_PATH: &str = "/run/kelvin/tune.json";

/// A setting that could be changed to quieten the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingChange {
    /// The file that holds the setting, as an absolute path on the machine.
    pub path: String,
    /// Its current value.
    pub from: String,
    /// Its new value.
    pub to: String,
    /// The benefit.
    pub benefit: String,
    /// Whether it is only offered: it changes the machine itself, not just its quietness.
    pub optional: bool,
    /// Whether it is a value that a user asked an experiment to try, and not one that tune knows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub requested: bool,
}

/// Where a difference between two values of a setting would show.
#[derive(Clone, Copy, Debug)]
pub enum VisibleIn {
    /// In these metrics.
    Metrics(&'static [&'static Metric]),
    /// In nothing that can be measured with and without it, for this reason.
    NotMeasurable(&'static str),
}

/// Changes of one setting, which may have a file for each CPU: the effect is known only of all of them together.
#[derive(Clone, Debug)]
pub struct SettingChanges {
    /// The changes, in their order.
    pub changes: Vec<SettingChange>,
    /// Where a difference would show.
    pub visible_in: VisibleIn,
}

/// Changes by setting, in their order; those of settings that tune does not know are left out.
pub fn group_by_setting(changes: &[SettingChange]) -> Vec<SettingChanges> {
    let mut settings: Vec<(&plan::TunableSetting, SettingChanges)> = Vec::new();
    for change in changes {
        let Some(tunable) = plan::TunableSetting::for_path(&change.path) else { continue };
        match settings.iter_mut().find(|(setting_kind, _)| std::ptr::eq(*setting_kind, tunable)) {
            Some((_, setting)) => setting.changes.push(change.clone()),
            None => settings
                .push((tunable, SettingChanges { changes: vec![change.clone()], visible_in: tunable.visible_in })),
        }
    }
    settings.into_iter().map(|(_, setting)| setting).collect()
}

/// The outcome for one setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChangeOutcome {
    /// The file that holds the setting.
    pub path: String,
    /// The outcome.
    pub result: ChangeResult,
}

/// The outcome for a setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeResult {
    /// Changed, and verified by reading back.
    Changed {
        /// Its old value.
        from: String,
        /// Its current value.
        to: String,
    },
    /// It already had the right value.
    AlreadySet(String),
    /// Changed by somebody else since; left alone.
    ChangedByOther {
        /// The value that we had set.
        ours: String,
        /// Its current value.
        now: String,
    },
    /// Gone: a device or CPU that no longer exists.
    Missing(String),
    /// Not changed, for this reason.
    Refused(String),
}

/// Why tuning or restoring failed altogether.
#[derive(Debug, thiserror::Error)]
pub enum TuneError {
    /// Another process is tuning or restoring, and has this lock file.
    #[error("another kelvin is changing settings ({0} is locked): wait until it is done")]
    Busy(PathBuf),
    /// Settings of an earlier call, in this journal, have not been put back.
    #[error("settings changed earlier have not been restored ({0} holds them): run kelvin tune --restore first")]
    Pending(PathBuf),
    /// The journal cannot be read or written; nothing was changed.
    #[error("the journal {journal} cannot be {action}: {source}")]
    JournalIo {
        /// The journal.
        journal: PathBuf,
        /// `read`, `written`, `locked` or `removed`.
        action: &'static str,
        /// The reason.
        source: io::Error,
    },
    /// Users other than root and this one could have written the journal; nothing was changed.
    #[error(
        "{path} {why}, so other users could have written the journal {journal}; nothing was changed: inspect it, \
         restore the settings by hand, remove it, and allow only root to write there"
    )]
    UntrustedJournal {
        /// The journal.
        journal: PathBuf,
        /// What others can write: the journal, or a directory above it.
        path: PathBuf,
        /// What is wrong with that.
        why: String,
    },
    /// A setting cannot be switched as an experiment asks.
    #[error("{0}")]
    Refused(String),
    /// The journal is not ours; nothing was changed. With what is wrong.
    #[error("the journal {0} is damaged ({1}): inspect it, restore the settings by hand, and remove it")]
    CorruptJournal(PathBuf, String),
}

/// Applies changes: journal first, then one after the other, each read back. A refused change is reported and the
/// others go on; the journal stays while anything is changed. Its directory is created if missing.
///
/// # Errors
/// Any [`TuneError`]; in all of them nothing was changed.
pub fn apply(root: &Path, journal: &Path, changes: &[SettingChange]) -> Result<Vec<ChangeOutcome>, TuneError> {
    apply_with(FileRoot::new(root), journal, changes, &mut write_existing)
}

/// Puts back the settings in the journal, newest first, and removes it once all are done. A missing journal is not an
/// error.
///
/// # Errors
/// Any [`TuneError`] but [`TuneError::Pending`].
pub fn restore(root: &Path, journal: &Path) -> Result<Vec<ChangeOutcome>, TuneError> {
    restore_with(FileRoot::new(root), journal, &mut write_existing)
}

/// The settings in a journal still to be put back, in the order of change; empty without a journal.
///
/// # Errors
/// [`TuneError::JournalIo`], [`TuneError::UntrustedJournal`] or [`TuneError::CorruptJournal`].
pub fn pending_changes(journal: &Path) -> Result<Vec<SettingChange>, TuneError> {
    Ok(Journal::read(journal)?.map_or_else(Vec::new, |stored_journal| stored_journal.entries))
}

/// How a setting is written; replaced in tests.
type SettingWriter<'w> = &'w mut dyn FnMut(&Path, &str) -> io::Result<()>;

fn apply_with(
    root: FileRoot<'_>,
    path: &Path,
    changes: &[SettingChange],
    write: SettingWriter<'_>,
) -> Result<Vec<ChangeOutcome>, TuneError> {
    if changes.is_empty() {
        return Ok(Vec::new());
    }
    let _lock = JournalLock::acquire(path)?;
    if Journal::read(path)?.is_some() {
        return Err(TuneError::Pending(path.to_owned()));
    }
    // The settings may have changed since the plan was made: read them again.
    let current: Vec<(&SettingChange, Result<String, String>)> =
        changes.iter().map(|change| (change, current_value(root, &change.path))).collect();
    let is_due = |change: &SettingChange, value: &Result<String, String>| {
        value.as_ref().is_ok_and(|value| is_same_value(value, &change.from))
    };
    let due_changes = current.iter().filter(|(change, value)| is_due(change, value));
    let journal = Journal::new(root, due_changes.map(|(change, _)| (*change).clone()).collect());
    if !journal.entries.is_empty() {
        journal.write(path)?;
    }
    let apply_change = |(change, value): (&SettingChange, _)| ChangeOutcome {
        path: change.path.clone(),
        result: change_setting(root, change, value, write),
    };
    let outcomes = current.into_iter().map(apply_change).collect();
    let is_unchanged = |entry: &SettingChange| current_value(root, &entry.path).as_ref() == Ok(&entry.from);
    if !journal.entries.is_empty() && journal.entries.iter().all(is_unchanged) {
        Journal::remove(path)?;
    }
    Ok(outcomes)
}

fn restore_with(root: FileRoot<'_>, path: &Path, write: SettingWriter<'_>) -> Result<Vec<ChangeOutcome>, TuneError> {
    // Checked first: without a journal nothing is written, not even the lock.
    if Journal::read(path)?.is_none() {
        return Ok(Vec::new());
    }
    let _lock = JournalLock::acquire(path)?;
    restore_held(root, path, write)
}

/// Like `restore_with`, by the holder of the lock.
fn restore_held(root: FileRoot<'_>, path: &Path, write: SettingWriter<'_>) -> Result<Vec<ChangeOutcome>, TuneError> {
    let Some(journal) = Journal::read(path)? else { return Ok(Vec::new()) };
    let is_rebooted = journal.is_of_an_earlier_boot(root);
    // Of a setting that an experiment switched between several values, what was done for the one that it had.
    let weight = |outcome: &ChangeOutcome| match outcome.result {
        ChangeResult::ChangedByOther { .. } => 0,
        ChangeResult::AlreadySet(_) => 1,
        ChangeResult::Missing(_) | ChangeResult::Refused(_) => 2,
        ChangeResult::Changed { .. } => 3,
    };
    let mut outcomes: Vec<ChangeOutcome> = Vec::new();
    for entry in journal.entries.iter().rev() {
        let result = match current_value(root, &entry.path) {
            _ if !is_rebooted && !root.exists(&entry.path) => {
                ChangeResult::Missing(format!("{} no longer exists", entry.path))
            }
            // Settings in /proc and /sys do not survive a reboot, so none of them is ours.
            Err(reason) if is_rebooted => ChangeResult::Missing(reason),
            Ok(now) if is_rebooted && now != entry.from => ChangeResult::ChangedByOther { ours: entry.to.clone(), now },
            value => {
                let reverted = SettingChange { from: entry.to.clone(), to: entry.from.clone(), ..entry.clone() };
                change_setting(root, &reverted, value, write)
            }
        };
        let outcome = ChangeOutcome { path: entry.path.clone(), result };
        match outcomes.iter_mut().find(|existing| existing.path == outcome.path) {
            Some(existing) if weight(&outcome) > weight(existing) => *existing = outcome,
            Some(_) => {}
            None => outcomes.push(outcome),
        }
    }
    if outcomes.iter().all(|outcome| !matches!(outcome.result, ChangeResult::Refused(_))) {
        Journal::remove(path)?;
    }
    Ok(outcomes)
}

/// Whether two values of a setting are the same: the kernel writes the parts of some with tabs.
fn is_same_value(first: &str, second: &str) -> bool {
    first.split_whitespace().eq(second.split_whitespace())
}

/// Changes a setting that has this value now, unless somebody else has changed it.
fn change_setting(
    root: FileRoot<'_>,
    change: &SettingChange,
    current: Result<String, String>,
    write: SettingWriter<'_>,
) -> ChangeResult {
    match current {
        Err(reason) => ChangeResult::Refused(reason),
        Ok(now) if now == change.to => ChangeResult::AlreadySet(now),
        Ok(now) if is_same_value(&now, &change.from) => write_and_verify(root, &change.path, &now, &change.to, write),
        Ok(now) => ChangeResult::ChangedByOther { ours: change.from.clone(), now },
    }
}

/// Writes a setting and reads it back.
fn write_and_verify(root: FileRoot<'_>, path: &str, from: &str, to: &str, write: SettingWriter<'_>) -> ChangeResult {
    if let Err(error) = resolve_setting(root, path).and_then(|file| write(&file, to)) {
        let hint = if error.kind() == io::ErrorKind::PermissionDenied { " (run as root)" } else { "" };
        return ChangeResult::Refused(format!("{path} cannot be set to '{to}': {error}{hint}"));
    }
    match current_value(root, path) {
        Ok(now) if is_same_value(&now, to) => ChangeResult::Changed { from: from.to_owned(), to: now },
        Ok(now) => ChangeResult::Refused(format!("{path} was set to '{to}' but still reads '{now}'")),
        Err(reason) => ChangeResult::Refused(reason),
    }
}

/// The file behind a path. The kernel's own links stay within /sys.
fn resolve_setting(root: FileRoot<'_>, path: &str) -> io::Result<PathBuf> {
    let (base, file) = (fs::canonicalize(root.resolve("/"))?, fs::canonicalize(root.resolve(path))?);
    if ["proc", "sys"].iter().any(|directory| file.starts_with(base.join(directory))) {
        return Ok(file);
    }
    Err(io::Error::other(format!("it is a link to {}, which is not in /proc or /sys", file.display())))
}

/// The value of a setting: the word in brackets where the file lists all choices.
pub(crate) fn current_value(root: FileRoot<'_>, path: &str) -> Result<String, String> {
    root.read(path).map(|text| bracketed_word(&text).unwrap_or(&text).to_owned())
}

/// Writes a setting: into an existing file, never a new one.
fn write_existing(path: &Path, value: &str) -> io::Result<()> {
    OpenOptions::new().write(true).truncate(true).custom_flags(NOFOLLOW_FLAGS).open(path)?.write_all(value.as_bytes())
}

#[cfg(test)]
mod tests;
