//! SIGINT, SIGTERM and SIGHUP as a flag that the supervisor checks.

use std::sync::atomic::{AtomicI32, Ordering};

use crate::{Result, check};

static SIGNAL: AtomicI32 = AtomicI32::new(0);

extern "C" fn note(signal: libc::c_int) {
    SIGNAL.store(signal, Ordering::Relaxed);
}

/// From now on exceeding `ulimit -f` is an error of the write instead of a signal, as the Rust runtime does for a
/// closed standard output.
pub fn write_errors_only() -> Result<()> {
    // SAFETY: takes no pointers but the constant that stands for ignoring.
    let before = unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    if before == libc::SIG_ERR { Err(crate::Error::last_os_error()) } else { Ok(()) }
}

/// From now on SIGINT, SIGTERM and SIGHUP set a flag instead of ending the process, and interrupt waiting calls.
pub fn watch() -> Result<()> {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: an all-zero sigaction is valid (no flags, so calls are interrupted, not restarted); the handler only
        // stores to an atomic, which is async-signal-safe.
        let result = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = note as *const () as usize;
            libc::sigaction(signal, &raw const action, std::ptr::null_mut())
        };
        check(result)?;
    }
    Ok(())
}

/// The name of the signal that asked to stop, if one has.
#[inline]
pub fn requested() -> Option<&'static str> {
    match SIGNAL.load(Ordering::Relaxed) {
        0 => None,
        libc::SIGINT => Some("SIGINT"),
        libc::SIGHUP => Some("SIGHUP"),
        _ => Some("SIGTERM"),
    }
}
