//! What can go wrong with a file, as one sentence that names it.

use std::io;
use std::path::{Path, PathBuf};

use crate::cache::State;

/// Why a file could not be worked on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call failed.
    #[error("cannot {doing} {}: {source}", path.display())]
    Call {
        /// What was being done: `open`, `read 4096 bytes at 8192 of`.
        doing: String,
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// It is no regular file.
    #[error("{} is {kind}, and no regular file", path.display())]
    Special {
        /// The file.
        path: PathBuf,
        /// `a directory`, `a pipe`.
        kind: &'static str,
    },
    /// It is there already, and was not to be replaced.
    #[error("{} is there already, and is replaced only if that is asked for (--overwrite)", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The directory in which it shall be is not there.
    #[error("{}: there is no directory {}; make it first", path.display(), directory.display())]
    NoDirectory {
        /// The file.
        path: PathBuf,
        /// The directory.
        directory: PathBuf,
    },
    /// Another user has put it there, and would say what is written over, or read what is written.
    #[error("{} was put there by another user ({user}): choose another place, or remove it", path.display())]
    Planted {
        /// What was put there.
        path: PathBuf,
        /// By whom.
        user: u32,
    },
    /// It cannot become as large as it should.
    #[error("{} cannot have {bytes} bytes: {why}", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// What it should have.
        bytes: u64,
        /// What it can have: `its file system has room for 4096`.
        why: String,
    },
    /// It became shorter while it was read.
    #[error("{} became shorter while it was read: nothing at byte {offset} of {bytes}", path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// The first byte that was not there.
        offset: u64,
        /// Its size when it was opened.
        bytes: u64,
    },
    /// It changed while it was read, so that the result is of neither the old nor the new one.
    #[error("{} was changed while it was read: {what}", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
        /// What changed.
        what: String,
    },
    /// Direct I/O is not to be had, or is none.
    #[error("{} cannot be read or written past the page cache: {why}", path.display())]
    NoDirect {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// io_uring is not to be had.
    #[error("io_uring is not to be had here: {0}")]
    NoRing(String),
    /// A setting that is out of its range, or does not go with the others.
    #[error("{name}: {why}")]
    Setting {
        /// Which: `threads`, `block`.
        name: &'static str,
        /// What is wrong with it, and what would be right.
        why: String,
    },
    /// A control group of our own is not to be had.
    #[error("a control group of our own is not to be had here: {0}")]
    NoGroup(String),
    /// The state of the page cache that was asked for could not be reached, or not be proven.
    #[error("{} is not {}: {found}", path.display(), wanted.name())]
    Cache {
        /// The file.
        path: PathBuf,
        /// The state that was asked for.
        wanted: State,
        /// What was found instead.
        found: String,
    },
    /// It was asked to stop.
    #[error("interrupted by {0}")]
    Interrupted(&'static str),
}

impl Error {
    /// A failed call on a file.
    pub fn call(doing: impl Into<String>, path: &Path, source: io::Error) -> Self {
        Self::Call { doing: doing.into(), path: path.to_owned(), source }
    }

    /// A setting that will not do.
    pub(crate) fn setting(name: &'static str, why: impl Into<String>) -> Self {
        Self::Setting { name, why: why.into() }
    }

    /// A depth for a way that waits for each request.
    pub(crate) fn one_at_a_time(engine: &str, depth: u32) -> Self {
        let why = format!("{engine} has one request under way at a time, not {depth}: only io_uring has more");
        Self::setting("depth", why)
    }

    /// The same of the file by another name: the one that the user gave.
    pub(crate) fn naming(mut self, name: &Path) -> Self {
        match &mut self {
            Self::Call { path, .. }
            | Self::Special { path, .. }
            | Self::Exists { path }
            | Self::NoDirectory { path, .. }
            | Self::Planted { path, .. }
            | Self::TooLarge { path, .. }
            | Self::Truncated { path, .. }
            | Self::Changed { path, .. }
            | Self::NoDirect { path, .. }
            | Self::Cache { path, .. } => *path = name.to_owned(),
            Self::NoRing(_) | Self::NoGroup(_) | Self::Setting { .. } | Self::Interrupted(_) => {}
        }
        self
    }

    /// Whether it says that something cannot be had here, instead of that something broke.
    pub fn is_absence(&self) -> bool {
        matches!(self, Self::NoDirect { .. } | Self::NoRing(_) | Self::NoGroup(_))
    }
}
