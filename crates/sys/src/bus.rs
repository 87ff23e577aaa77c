//! Mapped files that shrink: a touch beyond the end is recorded instead of killing the process.
//!
//! The kernel sends SIGBUS for such a touch (mmap(2)). The handler replaces the rest of the mapping with zeros and
//! records it; the reader checks afterwards, and discards what it read.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::{Error, Result, check};

/// Mappings that can be guarded at once: more than the threads of a study.
const SLOTS: usize = 256;

struct Slot {
    start: AtomicUsize,
    end: AtomicUsize,
    tripped: AtomicBool,
}

static TABLE: [Slot; SLOTS] =
    [const { Slot { start: AtomicUsize::new(0), end: AtomicUsize::new(0), tripped: AtomicBool::new(false) } }; SLOTS];

/// Guards a range of addresses until dropped.
#[derive(Debug)]
pub struct Guard {
    slot: usize,
}

impl Guard {
    /// Guards `bytes` of a mapping from `start`.
    ///
    /// # Errors
    /// Those of sigaction; too many mappings guarded at once.
    pub fn over(start: usize, bytes: usize) -> Result<Self> {
        install()?;
        let taken = |slot: &Slot| slot.start.compare_exchange(0, start, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        let slot = TABLE.iter().position(taken).ok_or_else(|| Error::other("too many files are mapped at once"))?;
        TABLE[slot].tripped.store(false, Ordering::Relaxed);
        TABLE[slot].end.store(start + bytes, Ordering::Release);
        Ok(Self { slot })
    }

    /// Whether something beyond the end of the file was touched, and read as zeros.
    pub fn tripped(&self) -> bool {
        TABLE[self.slot].tripped.load(Ordering::Acquire)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // The end first: a slot without one covers nothing.
        TABLE[self.slot].end.store(0, Ordering::Release);
        TABLE[self.slot].start.store(0, Ordering::Release);
    }
}

/// Installs the handler, once.
fn install() -> Result<()> {
    static ONCE: Once = Once::new();
    static FAILED: AtomicBool = AtomicBool::new(false);
    ONCE.call_once(|| {
        // SAFETY: an all-zero sigaction is valid but for what is set; the handler does only what is safe in one.
        let result = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handle as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            check(libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut()))
        };
        FAILED.store(result.is_err(), Ordering::Relaxed);
    });
    if FAILED.load(Ordering::Relaxed) { Err(Error::other("SIGBUS cannot be handled")) } else { Ok(()) }
}

extern "C" fn handle(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel hands in a valid siginfo, which for SIGBUS has an address.
    let address = unsafe { (*info).si_addr() } as usize;
    let covers = |slot: &&Slot| {
        let start = slot.start.load(Ordering::Acquire);
        start != 0 && (start..slot.end.load(Ordering::Acquire)).contains(&address)
    };
    let Some(slot) = TABLE.iter().find(covers) else {
        // Not ours: the touch is repeated, and kills the process as usual. SAFETY: SIG_DFL is a valid disposition.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
        return;
    };
    slot.tripped.store(true, Ordering::Release);
    let page = crate::mapping::page_bytes();
    let from = address / page * page;
    let bytes = slot.end.load(Ordering::Acquire).next_multiple_of(page) - from;
    // SAFETY: the range is the rest of a mapping that is guarded, and so still mapped; it becomes zeros, which is what its
    // reader is told by `tripped`, and which takes what its writer writes, and loses it. mmap is a plain system call.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        if libc::mmap(from as *mut _, bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) == libc::MAP_FAILED {
            libc::signal(signal, libc::SIG_DFL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::{FileMapping, memory_file, page_bytes};

    #[test]
    fn a_file_that_becomes_shorter_reads_as_zeros_and_is_noted() {
        let file = memory_file().unwrap();
        file.set_len(8 * page_bytes() as u64).unwrap();
        let mapping = FileMapping::whole(&file, 8 * page_bytes()).unwrap();
        let other = FileMapping::whole(&file, page_bytes()).unwrap();
        let guard = Guard::over(mapping.address(), mapping.len()).unwrap();
        let untouched = Guard::over(other.address(), other.len()).unwrap();
        mapping.read(0, page_bytes(), 8);
        assert!(!guard.tripped());
        file.set_len(3 * page_bytes() as u64).unwrap();
        mapping.read(0, page_bytes(), 8);
        assert!(guard.tripped() && !untouched.tripped());
        let slot = guard.slot;
        drop(guard);
        assert_eq!(TABLE[slot].start.load(Ordering::Relaxed), 0);
    }
}
