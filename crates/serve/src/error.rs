//! Errors of a server, in words that say what to do.

use std::path::PathBuf;

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a server cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The root.
    #[error("{}: {source}", path.display())]
    Root {
        /// Where it should be.
        path: PathBuf,
        /// Why it is none.
        source: std::io::Error,
    },
    /// A kernel that cannot open below a directory alone.
    #[error("this kernel cannot open files below a directory alone (openat2, since Linux 5.6): {0}")]
    NotBeneath(std::io::Error),
    /// The address.
    #[error("{0}")]
    Listen(std::io::Error),
    /// The address for looks.
    #[error("{0}")]
    ListenForLooks(std::io::Error),
    /// A process with other threads, which cannot be forked from safely.
    #[error("the model fork needs a process with one thread, and this one has {0}")]
    Threads(usize),
    /// The process that accepts connections and forks.
    #[error("the process that accepts connections {0}")]
    Ended(String),
    /// A call of the kernel.
    #[error("cannot {doing}: {source}")]
    Call {
        /// What it was for.
        doing: &'static str,
        /// What it said.
        source: std::io::Error,
    },
}

impl Error {
    /// For `map_err`: a call that was for this.
    pub(crate) fn call<E: Into<std::io::Error>>(doing: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::Call { doing, source: source.into() }
    }
}
