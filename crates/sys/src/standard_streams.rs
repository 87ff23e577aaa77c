//! Whether standard input and output are what the program was given.
//!
//! Before main, Rust's runtime opens /dev/null where one of the first three descriptors is closed, and its standard streams take a
//! descriptor of the wrong direction for one that is empty, or that takes all: what is written there would be lost without an error.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::{Error, Result, check};

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

/// That standard input can be read.
///
/// # Errors
/// That it was closed, or is open for writing only.
pub fn check_input() -> Result<()> {
    check_descriptor(libc::STDIN_FILENO, libc::O_WRONLY, "reading")
}

/// That standard output can be written.
///
/// # Errors
/// That it was closed, or is open for reading only.
pub fn check_output() -> Result<()> {
    check_descriptor(libc::STDOUT_FILENO, libc::O_RDONLY, "writing")
}

fn check_descriptor(descriptor: RawFd, wrong: libc::c_int, what_for: &str) -> Result<()> {
    // A child that was forked may have been given another since.
    if CLOSED_AT_START.load(Ordering::Relaxed) & 1 << descriptor != 0 && is_null(descriptor)? {
        return Err(Error::other("it is closed"));
    }
    // SAFETY: F_GETFL reads the flags of an open descriptor.
    let flags = check(unsafe { libc::fcntl(descriptor, libc::F_GETFL) })?;
    if flags & libc::O_PATH != 0 || flags & libc::O_ACCMODE == wrong {
        return Err(Error::other(format!("it is not open for {what_for}")));
    }
    Ok(())
}

/// Whether it is /dev/null, by its number (the kernel's devices.txt).
fn is_null(descriptor: RawFd) -> Result<bool> {
    let mut found = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: fstat fills the structure where it succeeds.
    check(unsafe { libc::fstat(descriptor, found.as_mut_ptr()) })?;
    // SAFETY: fstat has succeeded.
    let found = unsafe { found.assume_init() };
    Ok(found.st_mode & libc::S_IFMT == libc::S_IFCHR && found.st_rdev == libc::makedev(1, 3))
}
