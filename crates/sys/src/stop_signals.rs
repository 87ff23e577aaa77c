//! SIGINT, SIGTERM and SIGHUP, and SIGUSR1 of servers, as flags that the supervisor checks.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::{Duration, Instant};

use crate::poll::wait_any_readable;
use crate::signal_handler::set_handler;
use crate::{Result, check};

static SIGNAL: AtomicI32 = AtomicI32::new(0);

static IS_REOPEN_REQUESTED: AtomicBool = AtomicBool::new(false);

static IS_LOG_REOPEN_REQUESTED: AtomicBool = AtomicBool::new(false);

extern "C" fn note_stop(signal: libc::c_int) {
    SIGNAL.store(signal, Ordering::Relaxed);
}

extern "C" fn note_reopen(_: libc::c_int) {
    IS_REOPEN_REQUESTED.store(true, Ordering::Relaxed);
}

extern "C" fn note_log_reopen(_: libc::c_int) {
    IS_LOG_REOPEN_REQUESTED.store(true, Ordering::Relaxed);
}

/// From now on exceeding `ulimit -f` is an error of the write instead of a signal, as the Rust runtime does for a
/// closed standard output.
pub fn ignore_sigxfsz() -> Result<()> {
    // SAFETY: takes no pointers but the constant that stands for ignoring.
    let before = unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    if before == libc::SIG_ERR { Err(crate::Error::last_os_error()) } else { Ok(()) }
}

/// From now on SIGINT, SIGTERM and SIGHUP set a flag instead of ending the process, and interrupt waiting calls. One that is ignored
/// stays ignored: nohup(1) ignores SIGHUP, and a shell without job control SIGINT for what it starts in the background.
///
/// # Errors
/// Those of sigaction.
pub fn install_handlers() -> Result<()> {
    [libc::SIGINT, libc::SIGTERM, libc::SIGHUP].into_iter().try_for_each(|signal| handle(signal, note_stop))
}

/// Like `install_handlers`, but SIGHUP asks to read anew what was opened, as servers do: see [`take_reopen_request`]. SIGUSR1 asks to open
/// log files anew: see [`take_log_reopen_request`].
///
/// # Errors
/// Those of sigaction.
pub fn install_server_handlers() -> Result<()> {
    [libc::SIGINT, libc::SIGTERM].into_iter().try_for_each(|signal| handle(signal, note_stop))?;
    handle(libc::SIGHUP, note_reopen)?;
    handle(libc::SIGUSR1, note_log_reopen)
}

/// Whether SIGHUP has come since this was asked last, under [`install_server_handlers`].
pub fn take_reopen_request() -> bool {
    IS_REOPEN_REQUESTED.swap(false, Ordering::Relaxed)
}

/// Whether SIGUSR1 has come since this was asked last, under [`install_server_handlers`].
pub fn take_log_reopen_request() -> bool {
    IS_LOG_REOPEN_REQUESTED.swap(false, Ordering::Relaxed)
}

/// Has a function handle a signal, unless that is ignored.
fn handle(signal: libc::c_int, handler: extern "C" fn(libc::c_int)) -> Result<()> {
    // SAFETY: the kernel fills the action that it gets; each handler only stores to an atomic, which is async-signal-safe.
    unsafe {
        let mut before: libc::sigaction = std::mem::zeroed();
        check(libc::sigaction(signal, std::ptr::null(), &raw mut before))?;
        if before.sa_sigaction != libc::SIG_IGN {
            set_handler(signal, handler as *const () as usize, 0)?;
        }
    }
    Ok(())
}

/// A signal that comes between a look at it and the wait is seen so much later.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Waits for this time; false where a signal asked to stop, which ends the wait.
///
/// # Errors
/// Those of poll.
pub fn sleep_unless_stopped(time: Duration) -> Result<bool> {
    let start = Instant::now();
    while stop_signal().is_none() {
        let remaining = time.saturating_sub(start.elapsed());
        if remaining.is_zero() {
            return Ok(true);
        }
        wait_any_readable(&[], remaining.min(POLL_INTERVAL))?;
    }
    Ok(false)
}

/// The name of the signal that asked to stop, if one has.
#[inline]
pub fn stop_signal() -> Option<&'static str> {
    match SIGNAL.load(Ordering::Relaxed) {
        0 => None,
        libc::SIGINT => Some("SIGINT"),
        libc::SIGHUP => Some("SIGHUP"),
        _ => Some("SIGTERM"),
    }
}
