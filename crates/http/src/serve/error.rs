//! Errors of a server, in words that name a remedy.

use std::path::PathBuf;

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a server cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The root, which is none at this path.
    #[error("{path}: {1}", path = .0.display())]
    Root(PathBuf, #[source] std::io::Error),
    /// A kernel that cannot open below a directory alone.
    #[error("this kernel cannot open files below a directory alone (openat2, since Linux 5.6): {0}")]
    NoOpenat2(std::io::Error),
    /// The address.
    #[error("{0}")]
    Listen(std::io::Error),
    /// The address of the statistics endpoint.
    #[error("{0}")]
    ListenStats(std::io::Error),
    /// The access log.
    #[error("{0}")]
    AccessLog(std::io::Error),
    /// The user as whom it was to serve.
    #[error("{0}")]
    User(std::io::Error),
    /// A system without io_uring, as [`ServerModel::Uring`](crate::serve::ServerModel::Uring) needs it.
    #[error("{reason}: {0}", reason = no_uring_reason(.0))]
    NoUring(std::io::Error),
    /// Calls that a model does not make, and by which it sends.
    #[error("the model {0} sends by {1}")]
    UnsupportedStrategy(crate::serve::ServerModel, String),
    /// A model that cannot encrypt.
    #[error("the model {0} has no TLS: give epoll, poll, fork, thread or pool")]
    UnsupportedTls(crate::serve::ServerModel),
    /// Calls that send files as they are, of a server that encrypts.
    #[error("with TLS files are read and encrypted in memory, by auto or rw")]
    UnencryptedStrategy,
    /// A file that holds no certificate for TLS.
    #[error("{path}: {1}", path = .0.display())]
    Certificate(PathBuf, String),
    /// A file that holds no key for TLS that may be used.
    #[error("{path}: {1}", path = .0.display())]
    Key(PathBuf, String),
    /// A process with other threads, which cannot be forked from safely.
    #[error("the model fork needs a process with one thread, and this one has {0}")]
    ForkWithThreads(usize),
    /// The process that accepts connections and forks.
    #[error("the process that accepts connections {0}")]
    ForkServerEnded(String),
    /// A thread could not be started.
    #[error("{0}")]
    SpawnThread(std::io::Error),
    /// A call of the kernel that was to do this.
    #[error("cannot {0}: {1}")]
    Call(&'static str, #[source] std::io::Error),
}

impl Error {
    /// For `map_err`: a call that was for this.
    pub(crate) fn call<E: Into<std::io::Error>>(call: &'static str) -> impl FnOnce(E) -> Self {
        move |error| Self::Call(call, error.into())
    }
}

/// Why there is no ring (io_uring_setup(2)).
fn no_uring_reason(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => {
            "io_uring is not allowed here, by the sysctl kernel.io_uring_disabled or a filter of system calls, as of containers"
        }
        std::io::ErrorKind::Unsupported => "this kernel has no io_uring",
        std::io::ErrorKind::InvalidInput => "this kernel's io_uring is older than that of Linux 6.1",
        _ => "no io_uring could be set up",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_uring_error_names_cause() {
        for (error, expected) in [
            (rustix::io::Errno::PERM, "io_uring is not allowed here, "),
            (rustix::io::Errno::NOSYS, "this kernel has no io_uring: "),
            (rustix::io::Errno::INVAL, "this kernel's io_uring is older than that of Linux 6.1: "),
            (rustix::io::Errno::NOMEM, "no io_uring could be set up: "),
        ] {
            let message = Error::NoUring(error.into()).to_string();
            assert!(message.starts_with(expected) && !message.contains('\n'), "{message}");
        }
    }
}
