//! Whether standard input and output are what the program was given.
//!
//! Before main, Rust's runtime opens /dev/null where one of the first three descriptors is closed, and its standard streams take a
//! descriptor of the wrong direction for one that is empty, or that takes all: what is written there would be lost without an error.

use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::fs::{FileType, OFlags};

use crate::{Error, Result};

/// Which descriptors were closed before main, one bit each.
static CLOSED_AT_START: AtomicU8 = AtomicU8::new(0);

/// The C library calls it before main, which is where Rust's runtime begins.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = record_closed;

extern "C" fn record_closed() {
    for descriptor in [libc::STDIN_FILENO, libc::STDOUT_FILENO] {
        // SAFETY: F_GETFD reads the flags of a descriptor, if it is one.
        if unsafe { libc::fcntl(descriptor, libc::F_GETFD) } == -1 {
            CLOSED_AT_START.fetch_or(1 << descriptor, Ordering::Relaxed);
        }
    }
}

/// Columns of the terminal that a stream is, if it is one and reports them.
pub fn columns(stream: impl AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(stream).ok()?;
    (size.ws_col > 0).then_some(usize::from(size.ws_col))
}

/// That standard input can be read.
///
/// # Errors
/// That it was closed, or is open for writing only.
pub fn check_input() -> Result<()> {
    check_descriptor(&std::io::stdin(), OFlags::WRONLY, "reading")
}

/// That standard output can be written.
///
/// # Errors
/// That it was closed, or is open for reading only.
pub fn check_output() -> Result<()> {
    check_descriptor(&std::io::stdout(), OFlags::RDONLY, "writing")
}

fn check_descriptor(stream: &(impl AsFd + AsRawFd), forbidden_mode: OFlags, purpose: &str) -> Result<()> {
    // A child that was forked may have been given another since.
    if CLOSED_AT_START.load(Ordering::Relaxed) & 1 << stream.as_raw_fd() != 0 {
        let status = rustix::fs::fstat(stream)?;
        // The number of /dev/null in the kernel's devices.txt.
        let null = rustix::fs::makedev(1, 3);
        if FileType::from_raw_mode(status.st_mode) == FileType::CharacterDevice && status.st_rdev == null {
            return Err(Error::other("it is closed"));
        }
    }
    let flags = rustix::fs::fcntl_getfl(stream)?;
    if flags.contains(OFlags::PATH) || flags & OFlags::RWMODE == forbidden_mode {
        return Err(Error::other(format!("it is not open for {purpose}")));
    }
    Ok(())
}
