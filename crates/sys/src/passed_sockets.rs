//! Listening sockets that the program that started this one has passed to it, as systemd does (sd_listen_fds(3)).

use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::SocketType;
use rustix::net::sockopt::{socket_acceptconn, socket_type};

use crate::{Error, Result};

/// The first descriptor that is passed: SD_LISTEN_FDS_START.
const FIRST_DESCRIPTOR: RawFd = 3;
/// More than any unit has.
const MAX_DESCRIPTORS: u32 = 1024;

/// Whether they were taken: they are passed once.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Takes the listening sockets that were passed to this process; none if none were.
///
/// # Errors
/// A descriptor that is no stream socket that listens.
pub fn take_listening_sockets() -> Result<Vec<OwnedFd>> {
    let [process, count] = ["LISTEN_PID", "LISTEN_FDS"].map(|name| std::env::var(name).ok());
    let count = passed_descriptors(process.as_deref(), count.as_deref(), std::process::id());
    if count == 0 || TAKEN.swap(true, Ordering::AcqRel) {
        return Ok(Vec::new());
    }
    (FIRST_DESCRIPTOR..FIRST_DESCRIPTOR + count as RawFd).map(take_listening_socket).collect()
}

/// How many were passed to the process of this number, by the variables of the environment that say so.
fn passed_descriptors(process: Option<&str>, count: Option<&str>, own_process: u32) -> u32 {
    let is_for_this = process.and_then(|number| number.parse().ok()) == Some(own_process);
    let count = count.filter(|_| is_for_this).and_then(|number| number.parse().ok());
    count.filter(|count| *count <= MAX_DESCRIPTORS).unwrap_or(0)
}

fn take_listening_socket(number: RawFd) -> Result<OwnedFd> {
    // SAFETY: it is used by calls that fail where it is not open, and not after this function.
    let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
    if socket_type(descriptor)? != SocketType::STREAM || !socket_acceptconn(descriptor)? {
        return Err(Error::other(format!("descriptor {number} is no stream socket that listens")));
    }
    fcntl_setfd(descriptor, FdFlags::CLOEXEC)?;
    // SAFETY: it is open, and was passed to this process, which takes it once.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_for_the_process_that_is_named() {
        for (process, count, expected) in [
            (Some("7"), Some("1"), 1),
            (Some("7"), Some("3"), 3),
            (Some("7"), Some("1024"), 1024),
            (Some("7"), Some("1025"), 0),
            (Some("7"), Some("-1"), 0),
            (Some("7"), Some(""), 0),
            (Some("7"), None, 0),
            (Some("8"), Some("1"), 0),
            (Some("7 "), Some("1"), 0),
            (None, Some("1"), 0),
        ] {
            assert_eq!(passed_descriptors(process, count, 7), expected, "{process:?} {count:?}");
        }
    }

    #[test]
    fn only_listening_streams_are_taken() {
        use std::os::fd::{AsRawFd, IntoRawFd};
        let connected = std::os::unix::net::UnixStream::pair().unwrap().0;
        let error = take_listening_socket(connected.as_raw_fd()).unwrap_err().to_string();
        assert!(error.ends_with(" is no stream socket that listens"), "{error}");
        assert!(take_listening_socket(std::fs::File::open("/dev/null").unwrap().as_raw_fd()).is_err());
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let taken = take_listening_socket(listener.into_raw_fd()).unwrap();
        assert_eq!(std::net::TcpListener::from(taken).local_addr().unwrap(), address);
    }
}
