//! Mapped files that shrink: a touch beyond the end is recorded instead of killing the process.
//!
//! The kernel sends SIGBUS for such a touch (mmap(2)). The handler replaces the rest of the mapping with zeros and
//! records it; the reader checks afterwards, and discards what it read.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::signal_handler::set_handler;
use crate::{Error, Result};

/// Mappings that can be guarded at once: more than the threads of a study.
const MAX_GUARDS: usize = 256;

struct GuardSlot {
    start: AtomicUsize,
    end: AtomicUsize,
    faulted: AtomicBool,
}

static GUARD_TABLE: [GuardSlot; MAX_GUARDS] =
    [const { GuardSlot { start: AtomicUsize::new(0), end: AtomicUsize::new(0), faulted: AtomicBool::new(false) } };
        MAX_GUARDS];

/// Guards a range of addresses until dropped.
#[derive(Debug)]
pub struct SigbusGuard {
    slot: usize,
}

impl SigbusGuard {
    /// Guards `bytes` of a mapping from `start`.
    ///
    /// # Errors
    /// Those of sigaction; too many mappings guarded at once.
    pub fn over(start: usize, bytes: usize) -> Result<Self> {
        install_handler()?;
        let claim =
            |slot: &GuardSlot| slot.start.compare_exchange(0, start, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        let slot =
            GUARD_TABLE.iter().position(claim).ok_or_else(|| Error::other("too many files are mapped at once"))?;
        GUARD_TABLE[slot].faulted.store(false, Ordering::Relaxed);
        GUARD_TABLE[slot].end.store(start + bytes, Ordering::Release);
        Ok(Self { slot })
    }

    /// Whether something beyond the end of the file was touched, and read as zeros.
    pub fn has_faulted(&self) -> bool {
        GUARD_TABLE[self.slot].faulted.load(Ordering::Acquire)
    }
}

impl Drop for SigbusGuard {
    fn drop(&mut self) {
        // The end first: a slot without one covers nothing.
        GUARD_TABLE[self.slot].end.store(0, Ordering::Release);
        GUARD_TABLE[self.slot].start.store(0, Ordering::Release);
    }
}

/// Installs the handler, once.
fn install_handler() -> Result<()> {
    static ONCE: Once = Once::new();
    static FAILED: AtomicBool = AtomicBool::new(false);
    ONCE.call_once(|| {
        // SAFETY: the handler takes what SA_SIGINFO gives it, and does only what is safe in one.
        let result = unsafe { set_handler(libc::SIGBUS, on_sigbus as *const () as usize, libc::SA_SIGINFO) };
        FAILED.store(result.is_err(), Ordering::Relaxed);
    });
    if FAILED.load(Ordering::Relaxed) { Err(Error::other("SIGBUS cannot be handled")) } else { Ok(()) }
}

extern "C" fn on_sigbus(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel hands in a valid siginfo, which for SIGBUS has an address.
    let address = unsafe { (*info).si_addr() } as usize;
    let contains_address = |slot: &&GuardSlot| {
        let start = slot.start.load(Ordering::Acquire);
        start != 0 && (start..slot.end.load(Ordering::Acquire)).contains(&address)
    };
    let Some(slot) = GUARD_TABLE.iter().find(contains_address) else {
        // Not ours: the touch is repeated, and kills the process as usual. SAFETY: SIG_DFL is a valid disposition.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
        return;
    };
    slot.faulted.store(true, Ordering::Release);
    let page = crate::mapping::page_bytes();
    let start = address / page * page;
    let bytes = slot.end.load(Ordering::Acquire).next_multiple_of(page) - start;
    // SAFETY: the range is the rest of a mapping that is guarded, and so still mapped; it becomes zeros, which is what its
    // reader learns by `has_faulted`, and which takes what its writer writes, and loses it. mmap is a plain system call.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        if libc::mmap(start as *mut _, bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) == libc::MAP_FAILED {
            libc::signal(signal, libc::SIG_DFL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::{FileMapping, memory_file, page_bytes};

    #[test]
    fn truncated_mapping_reads_zeros_and_is_recorded() {
        let file = memory_file().unwrap();
        file.set_len(8 * page_bytes() as u64).unwrap();
        let mapping = FileMapping::whole(&file, 8 * page_bytes()).unwrap();
        let other = FileMapping::whole(&file, page_bytes()).unwrap();
        let guard = SigbusGuard::over(mapping.address(), mapping.len()).unwrap();
        let other_guard = SigbusGuard::over(other.address(), other.len()).unwrap();
        mapping.read(0, page_bytes(), 8);
        assert!(!guard.has_faulted());
        file.set_len(3 * page_bytes() as u64).unwrap();
        mapping.read(0, page_bytes(), 8);
        assert!(guard.has_faulted() && !other_guard.has_faulted());
        let slot = guard.slot;
        drop(guard);
        assert_eq!(GUARD_TABLE[slot].start.load(Ordering::Relaxed), 0);
    }
}
