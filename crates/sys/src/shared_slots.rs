//! Places that the processes of a program share, of which each is taken by one process at a time.
//!
//! A place is a byte of a file in memory, and the process that takes it has a record lock on it (`F_SETLK` of fcntl(2)): the kernel gives
//! back what a process has taken when it ends, killed or not. No counter in shared memory does that.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Result, check};

/// Most places: a bit of a word for each.
pub const MAX_SLOTS: u32 = u64::BITS;

/// Some places. A process that is forked from one that has taken none shares them with it.
#[derive(Debug)]
pub struct SharedSlots {
    file: OwnedFd,
    count: u32,
    /// The places of this process: its own locks would not keep it from taking them again.
    own_slots: AtomicU64,
}

/// One that this process has taken. Dropped, it is free again.
#[derive(Debug)]
pub struct SharedSlot {
    slots: Arc<SharedSlots>,
    number: u32,
}

impl SharedSlots {
    /// This many, at most [`MAX_SLOTS`], all free.
    ///
    /// # Errors
    /// Those of memfd_create.
    pub fn new(count: u32) -> Result<Arc<Self>> {
        // SAFETY: makes a descriptor that nobody else has.
        let file = rustix::fs::memfd_create("places", rustix::fs::MemfdFlags::CLOEXEC)?;
        Ok(Arc::new(Self { file, count: count.min(MAX_SLOTS), own_slots: AtomicU64::new(0) }))
    }

    /// One that is free, if there is any.
    pub fn acquire(self: &Arc<Self>) -> Option<SharedSlot> {
        // Processes begin at different ones, so that they need few calls.
        let first = std::process::id() % self.count.max(1);
        let mut numbers = (first..self.count).chain(0..first);
        let number = numbers.find(|number| self.try_lock(*number))?;
        Some(SharedSlot { slots: Arc::clone(self), number })
    }

    fn try_lock(&self, number: u32) -> bool {
        let bit = 1 << number;
        if self.own_slots.fetch_or(bit, Ordering::AcqRel) & bit != 0 {
            return false;
        }
        let is_locked = self.lock(number, libc::F_WRLCK).is_ok();
        if !is_locked {
            self.own_slots.fetch_and(!bit, Ordering::AcqRel);
        }
        is_locked
    }

    fn lock(&self, number: u32, kind: libc::c_int) -> Result<()> {
        // SAFETY: zeros are a valid `flock`.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = kind as libc::c_short;
        lock.l_whence = libc::SEEK_SET as libc::c_short;
        lock.l_start = libc::off_t::from(number);
        lock.l_len = 1;
        // SAFETY: the descriptor is open, and the call only reads the lock.
        check(unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_SETLK, &raw const lock) }).map(drop)
    }
}

impl Drop for SharedSlot {
    fn drop(&mut self) {
        // Of a lock that the process has, this cannot fail.
        let _ = self.slots.lock(self.number, libc::F_UNLCK);
        self.slots.own_slots.fetch_and(!(1 << self.number), Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write, pipe};

    use super::*;
    use crate::process::{ExitKind, fork_worker};

    #[test]
    fn slot_is_taken_once_and_released() {
        let places = SharedSlots::new(3).unwrap();
        let mut slots: Vec<SharedSlot> = std::iter::from_fn(|| places.acquire()).collect();
        assert_eq!(slots.len(), 3);
        slots.pop();
        assert!(places.acquire().is_some(), "dropped at once");
        assert!(places.acquire().is_some());
    }

    #[test]
    fn killed_process_releases_its_slots() {
        let places = SharedSlots::new(2).unwrap();
        let (mut reader, mut writer) = pipe().unwrap();
        let child = fork_worker(|| {
            let slots = [places.acquire(), places.acquire()];
            let _ = writer.write_all(&[u8::from(slots.iter().all(Option::is_some))]);
            std::thread::sleep(std::time::Duration::from_secs(600));
            0
        });
        let child = child.unwrap();
        let mut byte = [0];
        reader.read_exact(&mut byte).unwrap();
        assert_eq!(byte, [1]);
        assert!(places.acquire().is_none());
        child.kill();
        assert!(matches!(child.wait().unwrap(), ExitKind::Signalled(_)));
        assert!(places.acquire().is_some() && places.acquire().is_some());
    }
}
