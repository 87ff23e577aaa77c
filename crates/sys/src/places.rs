//! Places that the processes of a program share, of which each is taken by one process at a time.
//!
//! A place is a byte of a file in memory, and whoever takes it has a record lock on it (`F_SETLK` of fcntl(2)): the kernel gives
//! back what a process has taken when it ends, killed or not. No counter in shared memory does that.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Result, check};

/// Most places: a bit of a word for each.
pub const MOST: u32 = u64::BITS;

/// Some places. A process that is forked from one that has taken none shares them with it.
#[derive(Debug)]
pub struct Places {
    file: OwnedFd,
    count: u32,
    /// The places of this process: its own locks would not keep it from taking them again.
    own: AtomicU64,
}

/// One that this process has taken. Dropped, it is free again.
#[derive(Debug)]
pub struct Place {
    places: Arc<Places>,
    number: u32,
}

impl Places {
    /// So many, at most [`MOST`], all free.
    ///
    /// # Errors
    /// Those of memfd_create.
    pub fn new(count: u32) -> Result<Arc<Self>> {
        // SAFETY: makes a descriptor that nobody else has.
        let file = unsafe { OwnedFd::from_raw_fd(check(libc::memfd_create(c"places".as_ptr(), libc::MFD_CLOEXEC))?) };
        Ok(Arc::new(Self { file, count: count.min(MOST), own: AtomicU64::new(0) }))
    }

    /// One that is free, if there is any.
    pub fn take(self: &Arc<Self>) -> Option<Place> {
        // Processes begin at different ones, so that they need few calls.
        let first = std::process::id() % self.count.max(1);
        let mut numbers = (first..self.count).chain(0..first);
        let number = numbers.find(|number| self.is_taken_now(*number))?;
        Some(Place { places: Arc::clone(self), number })
    }

    fn is_taken_now(&self, number: u32) -> bool {
        let bit = 1 << number;
        if self.own.fetch_or(bit, Ordering::AcqRel) & bit != 0 {
            return false;
        }
        let is_locked = self.lock(number, libc::F_WRLCK).is_ok();
        if !is_locked {
            self.own.fetch_and(!bit, Ordering::AcqRel);
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

impl Drop for Place {
    fn drop(&mut self) {
        // Of a lock that the process has, this cannot fail.
        let _ = self.places.lock(self.number, libc::F_UNLCK);
        self.places.own.fetch_and(!(1 << self.number), Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write, pipe};

    use super::*;
    use crate::process::{Ended, fork_to_work};

    #[test]
    fn a_process_takes_each_place_once_and_gives_it_back() {
        let places = Places::new(3).unwrap();
        let mut taken: Vec<Place> = std::iter::from_fn(|| places.take()).collect();
        assert_eq!(taken.len(), 3);
        taken.pop();
        assert!(places.take().is_some(), "dropped at once");
        assert!(places.take().is_some());
    }

    #[test]
    fn places_of_other_processes_are_taken_until_they_end_even_if_they_are_killed() {
        let places = Places::new(2).unwrap();
        let (mut told, mut tell) = pipe().unwrap();
        let child = fork_to_work(|| {
            let taken = [places.take(), places.take()];
            let _ = tell.write_all(&[u8::from(taken.iter().all(Option::is_some))]);
            std::thread::sleep(std::time::Duration::from_secs(600));
            0
        });
        let child = child.unwrap();
        let mut all = [0];
        told.read_exact(&mut all).unwrap();
        assert_eq!(all, [1]);
        assert!(places.take().is_none());
        child.kill();
        assert!(matches!(child.wait().unwrap(), Ended::Signalled(_)));
        assert!(places.take().is_some() && places.take().is_some());
    }
}
