//! Puts a machine into a quiet state and back, with a journal on disk that survives a kill at any point.
//!
//! The journal holds the old and new value of every setting, and is written, synced and renamed into place before the
//! first change. So [`restore`] can always tell which of three values a setting has: ours (put back), the old one
//! (nothing to do), or another (set by somebody else, and left alone).

mod journal;
mod plan;
mod switches;

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use kelvin_model::Metric;
use kelvin_sys::owned::ITSELF;
use serde::{Deserialize, Serialize};

pub(crate) use plan::proactive_reclaim;
pub use plan::{plan, unread};
pub use switches::Switches;

use crate::text::{Root, bracketed};
use journal::{Journal, Lock};

/// A setting that could be changed to quieten the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The file that holds the setting, as an absolute path on the machine.
    pub path: String,
    /// Its current value.
    pub from: String,
    /// Its new value.
    pub to: String,
    /// The benefit.
    pub why: String,
    /// Whether it is only offered: it changes the machine itself, not just its quietness.
    pub optional: bool,
    /// Whether it is a value that a user asked an experiment to try, and not one that tune knows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub asked: bool,
}

/// Where a difference between two values of a setting would show.
#[derive(Clone, Copy, Debug)]
pub enum Shows {
    /// In these metrics.
    In(&'static [&'static Metric]),
    /// In nothing that can be measured in turn, for this reason.
    Not(&'static str),
}

/// Changes of one setting, which may have a file for each CPU: what each bought can only be told of all of them together.
#[derive(Clone, Debug)]
pub struct OfSetting {
    /// The changes, in their order.
    pub changes: Vec<Change>,
    /// Where a difference would show.
    pub shows: Shows,
}

/// Changes by setting, in their order; those of settings that tune does not know are left out.
pub fn by_setting(changes: &[Change]) -> Vec<OfSetting> {
    let mut settings: Vec<(&plan::Setting, OfSetting)> = Vec::new();
    for change in changes {
        let Some(known) = plan::Setting::of(&change.path) else { continue };
        match settings.iter_mut().find(|(of, _)| std::ptr::eq(*of, known)) {
            Some((_, setting)) => setting.changes.push(change.clone()),
            None => settings.push((known, OfSetting { changes: vec![change.clone()], shows: known.shows() })),
        }
    }
    settings.into_iter().map(|(_, setting)| setting).collect()
}

/// The outcome for one setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Outcome {
    /// The file that holds the setting.
    pub path: String,
    /// The outcome.
    pub result: Done,
}

/// The outcome for a setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Done {
    /// Changed, and verified by reading back.
    Changed {
        /// Its old value.
        from: String,
        /// Its current value.
        to: String,
    },
    /// It already had the right value.
    AsWanted(String),
    /// Changed by somebody else since; left alone.
    ChangedByOthers {
        /// The value that we had set.
        ours: String,
        /// Its current value.
        now: String,
    },
    /// Gone: a device or CPU that no longer exists.
    Gone(String),
    /// Not changed, for this reason.
    Refused(String),
}

/// Why tuning or restoring failed altogether.
#[derive(Debug, thiserror::Error)]
pub enum TuneError {
    /// Another process is tuning or restoring.
    #[error("another kelvin is changing settings ({lock} is locked): wait until it is done")]
    Busy {
        /// The lock file.
        lock: PathBuf,
    },
    /// Settings of an earlier call have not been put back.
    #[error("settings changed earlier have not been put back ({journal} holds them): run kelvin tune --restore first")]
    Pending {
        /// The journal.
        journal: PathBuf,
    },
    /// The journal cannot be read or written; nothing was changed.
    #[error("the journal {journal} cannot be {action}: {source}")]
    Journal {
        /// The journal.
        journal: PathBuf,
        /// `read`, `written`, `locked` or `removed`.
        action: &'static str,
        /// The reason.
        source: io::Error,
    },
    /// Users other than root and this one could have written the journal; nothing was changed.
    #[error(
        "{path} {why}, so other users could have written the journal {journal}; nothing was changed: inspect it, put \
         the settings back by hand, remove it, and allow only root to write there"
    )]
    Others {
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
    /// The journal is not ours; nothing was changed.
    #[error("the journal {journal} is damaged ({reason}): inspect it, put the settings back by hand, and remove it")]
    Damaged {
        /// The journal.
        journal: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

/// Applies changes: journal first, then one after the other, each read back. A refused change is reported and the
/// others go on; the journal stays while anything is changed. Its directory is created if missing.
///
/// # Errors
/// Any [`TuneError`]; in all of them nothing was changed.
pub fn apply(root: &Path, journal: &Path, changes: &[Change]) -> Result<Vec<Outcome>, TuneError> {
    apply_with(Root::new(root), journal, changes, &mut write)
}

/// Puts back the settings in the journal, newest first, and removes it once all are done. A missing journal is not an
/// error.
///
/// # Errors
/// Any [`TuneError`] but [`TuneError::Pending`].
pub fn restore(root: &Path, journal: &Path) -> Result<Vec<Outcome>, TuneError> {
    restore_with(Root::new(root), journal, &mut write)
}

/// The settings in a journal still to be put back, in the order of change; empty without a journal.
///
/// # Errors
/// [`TuneError::Journal`], [`TuneError::Others`] or [`TuneError::Damaged`].
pub fn pending(journal: &Path) -> Result<Vec<Change>, TuneError> {
    Ok(Journal::read(journal)?.map_or_else(Vec::new, |kept| kept.entries))
}

/// How a setting is written; replaced in tests.
type Writer<'w> = &'w mut dyn FnMut(&Path, &str) -> io::Result<()>;

fn apply_with(root: Root<'_>, path: &Path, changes: &[Change], write: Writer<'_>) -> Result<Vec<Outcome>, TuneError> {
    if changes.is_empty() {
        return Ok(Vec::new());
    }
    let _lock = Lock::take(path)?;
    if Journal::read(path)?.is_some() {
        return Err(TuneError::Pending { journal: path.to_owned() });
    }
    // The settings may have changed since the plan was made: read them again.
    let found: Vec<(&Change, Result<String, String>)> =
        changes.iter().map(|change| (change, current(root, &change.path))).collect();
    let changed = found.iter().filter(|(change, now)| now.as_ref() == Ok(&change.from));
    let journal = Journal::new(root, changed.map(|(change, _)| (*change).clone()).collect());
    if !journal.entries.is_empty() {
        journal.write(path)?;
    }
    let make =
        |(change, now): (&Change, _)| Outcome { path: change.path.clone(), result: make(root, change, now, write) };
    let outcomes = found.into_iter().map(make).collect();
    if !journal.entries.is_empty() && journal.entries.iter().all(|entry| current_is(root, &entry.path, &entry.from)) {
        Journal::remove(path)?;
    }
    Ok(outcomes)
}

fn restore_with(root: Root<'_>, path: &Path, write: Writer<'_>) -> Result<Vec<Outcome>, TuneError> {
    // Checked first: without a journal nothing is written, not even the lock.
    if Journal::read(path)?.is_none() {
        return Ok(Vec::new());
    }
    let _lock = Lock::take(path)?;
    restore_held(root, path, write)
}

/// The same by whoever holds the lock.
fn restore_held(root: Root<'_>, path: &Path, write: Writer<'_>) -> Result<Vec<Outcome>, TuneError> {
    let Some(journal) = Journal::read(path)? else { return Ok(Vec::new()) };
    let restarted = journal.is_of_an_earlier_boot(root);
    let mut outcomes: Vec<Outcome> = journal
        .entries
        .iter()
        .rev()
        .map(|entry| {
            let result = if restarted { after_restart(root, entry) } else { put_back(root, entry, write) };
            Outcome { path: entry.path.clone(), result }
        })
        .collect();
    keep_one_of_each(&mut outcomes);
    if outcomes.iter().all(|outcome| !matches!(outcome.result, Done::Refused(_))) {
        Journal::remove(path)?;
    }
    Ok(outcomes)
}

/// Of a setting that an experiment switched between several values, what was done for the one that it had.
fn keep_one_of_each(outcomes: &mut Vec<Outcome>) {
    let weight = |outcome: &Outcome| match outcome.result {
        Done::ChangedByOthers { .. } => 0,
        Done::AsWanted(_) => 1,
        Done::Gone(_) | Done::Refused(_) => 2,
        Done::Changed { .. } => 3,
    };
    let all = std::mem::take(outcomes);
    for outcome in all {
        match outcomes.iter_mut().find(|known| known.path == outcome.path) {
            Some(known) if weight(&outcome) > weight(known) => *known = outcome,
            Some(_) => {}
            None => outcomes.push(outcome),
        }
    }
}

/// Whether two values of a setting are the same: the kernel writes the parts of some with tabs.
fn same(one: &str, other: &str) -> bool {
    one.split_whitespace().eq(other.split_whitespace())
}

fn make(root: Root<'_>, change: &Change, now: Result<String, String>, write: Writer<'_>) -> Done {
    match now {
        Err(reason) => Done::Refused(reason),
        Ok(now) if now == change.to => Done::AsWanted(now),
        Ok(now) if now == change.from => set(root, &change.path, &now, &change.to, write),
        Ok(now) => Done::ChangedByOthers { ours: change.from.clone(), now },
    }
}

fn put_back(root: Root<'_>, entry: &Change, write: Writer<'_>) -> Done {
    if !root.exists(&entry.path) {
        return Done::Gone(format!("{} no longer exists", entry.path));
    }
    match current(root, &entry.path) {
        Err(reason) => Done::Refused(reason),
        Ok(now) if now == entry.from => Done::AsWanted(now),
        Ok(now) if same(&now, &entry.to) => set(root, &entry.path, &now, &entry.from, write),
        Ok(now) => Done::ChangedByOthers { ours: entry.to.clone(), now },
    }
}

/// Settings in /proc and /sys do not survive a reboot, so none of them is ours.
fn after_restart(root: Root<'_>, entry: &Change) -> Done {
    match current(root, &entry.path) {
        Ok(now) if now == entry.from => Done::AsWanted(now),
        Ok(now) => Done::ChangedByOthers { ours: entry.to.clone(), now },
        Err(reason) => Done::Gone(reason),
    }
}

/// Writes a setting and reads it back.
fn set(root: Root<'_>, path: &str, from: &str, to: &str, write: Writer<'_>) -> Done {
    if let Err(error) = inside(root, path).and_then(|file| write(&file, to)) {
        let hint = if error.kind() == io::ErrorKind::PermissionDenied { " (run as root)" } else { "" };
        return Done::Refused(format!("{path} cannot be set to '{to}': {error}{hint}"));
    }
    match current(root, path) {
        Ok(now) if same(&now, to) => Done::Changed { from: from.to_owned(), to: now },
        Ok(now) => Done::Refused(format!("{path} was set to '{to}' but still reads '{now}'")),
        Err(reason) => Done::Refused(reason),
    }
}

/// The file behind a path. The kernel's own links stay within /sys.
fn inside(root: Root<'_>, path: &str) -> io::Result<PathBuf> {
    let (top, file) = (fs::canonicalize(root.at("/"))?, fs::canonicalize(root.at(path))?);
    if ["proc", "sys"].iter().any(|place| file.starts_with(top.join(place))) {
        return Ok(file);
    }
    Err(io::Error::other(format!("it is a link to {}, which is not in /proc or /sys", file.display())))
}

/// The value of a setting: the word in brackets where the file lists all choices.
pub(crate) fn current(root: Root<'_>, path: &str) -> Result<String, String> {
    root.read(path).map(|text| bracketed(&text).unwrap_or(&text).to_owned())
}

fn current_is(root: Root<'_>, path: &str, value: &str) -> bool {
    current(root, path).is_ok_and(|now| now == value)
}

/// Writes a setting: into an existing file, never a new one.
fn write(path: &Path, value: &str) -> io::Result<()> {
    OpenOptions::new().write(true).truncate(true).custom_flags(ITSELF).open(path)?.write_all(value.as_bytes())
}

#[cfg(test)]
mod tests;
