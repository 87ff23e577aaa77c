//! Installing a signal handler, and signals that a thread sends to itself.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::kernels::system_call;
use crate::{Error, Result, check, check_code};

/// Installs the handler of a signal, and returns what was there before. Without flags, calls are interrupted, not restarted.
///
/// # Safety
/// The handler must be a function of the type that the flags require, and do only what is async-signal-safe.
pub(crate) unsafe fn set_handler(signal: libc::c_int, handler: usize, flags: libc::c_int) -> Result<libc::sigaction> {
    // SAFETY: an all-zero sigaction is valid, and the kernel fills the one that it gets; the caller answers for the handler.
    unsafe {
        let (mut action, mut before): (libc::sigaction, libc::sigaction) = std::mem::zeroed();
        (action.sa_sigaction, action.sa_flags) = (handler, flags);
        check(libc::sigaction(signal, &raw const action, &raw mut before))?;
        Ok(before)
    }
}

/// A set of these signals.
pub(crate) fn signal_set(signals: &[libc::c_int]) -> libc::sigset_t {
    // SAFETY: all zeros are a set, which the calls fill.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        signals.iter().for_each(|&signal| _ = libc::sigaddset(&raw mut set, signal));
        set
    }
}

/// Signals that the handler has counted.
static HANDLED: AtomicU64 = AtomicU64::new(0);

extern "C" fn count_signal(_: libc::c_int) {
    HANDLED.fetch_add(1, Ordering::Relaxed);
}

/// The handler that counts, installed for SIGUSR1; dropped, it puts back what was there before. At most one at a time.
#[derive(Debug)]
pub struct CountingHandler {
    before: libc::sigaction,
}

impl CountingHandler {
    /// Installs the handler and lets the signal through to this thread.
    pub fn install() -> Result<Self> {
        // SAFETY: all-zero actions and sets are valid ones; every pointer is to a local that lives through its call,
        // and the handler only counts.
        unsafe {
            let before = set_handler(libc::SIGUSR1, count_signal as *const () as usize, 0)?;
            let set = signal_set(&[libc::SIGUSR1]);
            check_code(libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut()))?;
            Ok(Self { before })
        }
    }

    /// `calls` times: installs the handler again, by sigaction.
    #[inline(always)]
    pub fn reinstall(&self, calls: u64) -> Result<()> {
        // SAFETY: an all-zero action is valid.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = count_signal as *const () as usize;
        for _ in 0..calls {
            // SAFETY: the action lives through the call, and its handler only counts.
            check(unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()) })?;
        }
        Ok(())
    }

    /// `signals` times: sends itself the signal, by a bare `tgkill`, and has handled it when the call returns.
    ///
    /// # Errors
    /// Those of tgkill; signals that were not handled.
    #[inline(always)]
    pub fn send_to_self(&self, signals: u64) -> Result<()> {
        // SAFETY: takes no pointers.
        let thread = unsafe { system_call(libc::SYS_gettid, [0; 6]) } as usize;
        let arguments = [std::process::id() as usize, thread, libc::SIGUSR1 as usize, 0, 0, 0];
        let before = HANDLED.load(Ordering::Relaxed);
        for _ in 0..signals {
            // SAFETY: takes no pointers; the signal goes to this very thread, whose handler only counts.
            let result = unsafe { system_call(libc::SYS_tgkill, arguments) };
            if result != 0 {
                return Err(Error::from_raw_os_error(-result as i32));
            }
        }
        match HANDLED.load(Ordering::Relaxed) - before {
            handled if handled == signals => Ok(()),
            handled => Err(Error::other(format!("of {signals} signals {handled} were handled"))),
        }
    }
}

impl Drop for CountingHandler {
    fn drop(&mut self) {
        // SAFETY: the action is the one that the kernel gave when ours was installed.
        unsafe { libc::sigaction(libc::SIGUSR1, &raw const self.before, std::ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_counted_and_old_action_restored() {
        let counting = CountingHandler::install().unwrap();
        counting.reinstall(3).unwrap();
        counting.send_to_self(1000).unwrap();
        drop(counting);
        // SAFETY: an all-zero action is valid, and the call fills it.
        let action = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(libc::SIGUSR1, std::ptr::null(), &raw mut action);
            action
        };
        assert_eq!(action.sa_sigaction, libc::SIG_DFL);
    }
}
