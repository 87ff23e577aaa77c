//! Errors of files, each one sentence that names the file.

use std::io;
use std::path::{Path, PathBuf};

use crate::access::PageCacheState;

/// Why a file could not be worked on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A system call failed.
    #[error("cannot {doing} {}: {source}", path.display())]
    Syscall {
        /// The operation: `open`, `read 4096 bytes at 8192 of`.
        doing: String,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// It is no regular file.
    #[error("{} is {kind}, and no regular file", path.display())]
    NotRegular {
        /// The file.
        path: PathBuf,
        /// `a directory`, `a pipe`.
        kind: &'static str,
    },
    /// It is there already, and was not to be replaced.
    #[error("{} exists, and is replaced only with --overwrite", path.display())]
    AlreadyExists {
        /// The file.
        path: PathBuf,
    },
    /// The directory for it does not exist.
    #[error("{}: there is no directory {}; make it first", path.display(), directory.display())]
    NoDirectory {
        /// The file.
        path: PathBuf,
        /// The directory.
        directory: PathBuf,
    },
    /// It cannot be used as it is to be: what the user may change.
    #[error("{} {why}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// `was put there by another user`, `cannot have 4096 bytes`.
        why: String,
    },
    /// It became shorter while it was read.
    #[error("{} became shorter while it was read: nothing at byte {offset} of {bytes}", path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// The first byte that was missing.
        offset: u64,
        /// Its size when it was opened.
        bytes: u64,
    },
    /// It changed while it was read, so that the result is of neither the old nor the new one.
    #[error("{} was changed while it was read: {change}", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
        /// What changed.
        change: String,
    },
    /// It has more bytes than its size states.
    #[error("{} has more than the {bytes} bytes that it states: its size is known only when it was read to its end", path.display())]
    SizeUnderstated {
        /// The file.
        path: PathBuf,
        /// The size that it states.
        bytes: u64,
    },
    /// Direct I/O is unavailable, or is none.
    #[error("{} cannot be read or written past the page cache: {why}", path.display())]
    DirectUnsupported {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// It cannot be mapped.
    #[error("{} cannot be mapped: its file system has no mappings of it", path.display())]
    MmapUnsupported {
        /// The file.
        path: PathBuf,
    },
    /// io_uring is unavailable.
    #[error("io_uring is unavailable here: {0}")]
    UringUnavailable(String),
    /// A setting that is out of its range, or does not go with the others.
    #[error("{name}: {why}")]
    InvalidSetting {
        /// Which: `threads`, `block`.
        name: &'static str,
        /// What is wrong with it, and what would be right.
        why: String,
    },
    /// No control group can be made.
    #[error("cannot use a control group here: {0}")]
    CgroupUnavailable(String),
    /// The requested state of the page cache could not be reached, or not be proven.
    #[error("{} is not {}: {reason}", path.display(), state.name())]
    CacheStateNotReached {
        /// The file.
        path: PathBuf,
        /// The state requested.
        state: PageCacheState,
        /// What was found instead.
        reason: String,
    },
    /// A thread could not be started.
    #[error("{0}")]
    ThreadStart(io::Error),
    /// A signal stopped it.
    #[error("interrupted by {0}")]
    Interrupted(&'static str),
}

impl Error {
    /// A failed call on a file.
    pub fn call(doing: impl Into<String>, path: &Path, source: io::Error) -> Self {
        Self::Syscall { doing: doing.into(), path: path.to_owned(), source }
    }

    /// An invalid setting.
    pub(crate) fn setting(name: &'static str, why: impl Into<String>) -> Self {
        Self::InvalidSetting { name, why: why.into() }
    }

    /// A file that cannot be used as it is to be.
    pub(crate) fn unusable(path: &Path, why: impl Into<String>) -> Self {
        Self::Unusable { path: path.to_owned(), why: why.into() }
    }

    /// A file that has fewer bytes than its size states.
    pub fn size_overstated(path: &Path, bytes: u64) -> Self {
        Self::unusable(path, format!("states {bytes} bytes and has fewer, as files of the kernel do (/sys, /proc)"))
    }

    /// This error with the name of the file that the user gave.
    pub(crate) fn with_path(mut self, name: &Path) -> Self {
        match &mut self {
            Self::Syscall { path, .. }
            | Self::NotRegular { path, .. }
            | Self::AlreadyExists { path }
            | Self::NoDirectory { path, .. }
            | Self::Unusable { path, .. }
            | Self::Truncated { path, .. }
            | Self::Changed { path, .. }
            | Self::SizeUnderstated { path, .. }
            | Self::DirectUnsupported { path, .. }
            | Self::MmapUnsupported { path }
            | Self::CacheStateNotReached { path, .. } => *path = name.to_owned(),
            Self::UringUnavailable(_)
            | Self::InvalidSetting { .. }
            | Self::CgroupUnavailable(_)
            | Self::ThreadStart(_)
            | Self::Interrupted(_) => {}
        }
        self
    }

    /// Whether something is unavailable here, as opposed to broken.
    pub fn is_unsupported(&self) -> bool {
        matches!(
            self,
            Self::DirectUnsupported { .. }
                | Self::MmapUnsupported { .. }
                | Self::UringUnavailable(_)
                | Self::CgroupUnavailable(_)
        )
    }
}

/// Fails with [`Error::Interrupted`] after a signal that ends the program.
pub(crate) fn check_stop_signal() -> crate::Result<()> {
    kelvin_sys::stop_signals::stop_signal().map_or(Ok(()), |signal| Err(Error::Interrupted(signal)))
}
