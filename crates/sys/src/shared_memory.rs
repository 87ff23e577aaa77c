//! Memory that a forked child shares with its parent, and the calls to wait for a word in it.

use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::region::{ANONYMOUS, Region};
use crate::{Error, Result};

/// Who shares a word; the kernel finds a futex of threads faster, because no other address space can hold it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FutexScope {
    /// Threads of one process.
    Threads,
    /// Processes that share the memory by inheritance.
    Processes,
}

/// A type of which all bytes zero is a valid value, and that may be used by several processes at once.
///
/// # Safety
/// Both must be true.
pub(crate) unsafe trait Zeroed: Sync {}

// SAFETY: all bytes zero is the value 0.
unsafe impl Zeroed for AtomicU32 {}
// SAFETY: all bytes zero is the value 0.
unsafe impl Zeroed for AtomicU64 {}
// SAFETY: zeros.
unsafe impl<const N: usize> Zeroed for [AtomicU64; N] {}

/// A value in memory that forked children share.
#[derive(Debug)]
pub struct Shared<T> {
    region: Region,
    value: PhantomData<T>,
}

impl<T> Shared<T> {
    /// Fresh zeros, touched.
    #[allow(private_bounds, reason = "only types of this crate may lie in shared memory")]
    pub fn new() -> Result<Self>
    where
        T: Zeroed,
    {
        Ok(Self { region: map(size_of::<T>(), libc::MAP_POPULATE)?, value: PhantomData })
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: mapped and valid as long as `self`; zero is a valid `T`.
        unsafe { self.region.start().cast().as_ref() }
    }
}

/// A fresh mapping of this many bytes of zeros, aligned for every type there is here.
fn map(bytes: usize, flags: libc::c_int) -> Result<Region> {
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS | flags;
    Region::map(bytes, libc::PROT_READ | libc::PROT_WRITE, flags, ANONYMOUS)
}

/// Values in memory that forked children share, all bytes zero at the beginning.
#[derive(Debug)]
pub struct SharedSlice<T> {
    region: Region,
    values: PhantomData<T>,
}

/// Numbers in memory that forked children share, zero at the beginning.
pub type SharedWords = SharedSlice<AtomicU64>;

impl<T> SharedSlice<T> {
    /// This many.
    ///
    /// # Errors
    /// None, or more than there is room for.
    #[allow(private_bounds, reason = "only types of this crate may lie in shared memory")]
    pub fn new(count: usize) -> Result<Self>
    where
        T: Zeroed,
    {
        let bytes = count.checked_mul(size_of::<T>()).ok_or_else(|| Error::from_raw_os_error(libc::ENOMEM))?;
        // Nothing is reserved for those that may never be written.
        Ok(Self { region: map(bytes, libc::MAP_NORESERVE)?, values: PhantomData })
    }
}

impl<T> Deref for SharedSlice<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        let (start, count) = (self.region.start().as_ptr().cast(), self.region.bytes() / size_of::<T>());
        // SAFETY: this many values are mapped as long as `self`; all bytes zero is a valid one.
        unsafe { std::slice::from_raw_parts(start, count) }
    }
}

/// Wakes one task that waits for a word.
#[inline(always)]
pub(crate) fn futex_wake(word: &AtomicU32, scope: FutexScope) -> Result<()> {
    let operation = libc::FUTEX_WAKE | futex_flag(scope);
    // SAFETY: the word is valid; the kernel reads no other argument of this operation.
    let result = unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, 1) };
    if result >= 0 { Ok(()) } else { Err(Error::last_os_error()) }
}

/// Sleeps while a word has this value; returns at once if it has another one, and may wake spuriously.
#[inline(always)]
pub(crate) fn futex_wait(word: &AtomicU32, value: u32, scope: FutexScope) -> Result<()> {
    let operation = libc::FUTEX_WAIT | futex_flag(scope);
    // SAFETY: the word is valid, and a null timeout means none.
    let result =
        unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, value, std::ptr::null::<libc::timespec>()) };
    if result == 0 {
        return Ok(());
    }
    match Error::last_os_error() {
        // A futex that changed before the wait, or a signal, is no error: the caller looks at the word again.
        error if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINTR)) => Ok(()),
        error => Err(error),
    }
}

#[inline(always)]
fn futex_flag(scope: FutexScope) -> libc::c_int {
    if scope == FutexScope::Threads { libc::FUTEX_PRIVATE_FLAG } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn shared_memory_starts_zero_and_keeps_writes() {
        let word = Shared::<AtomicU32>::new().unwrap();
        assert_eq!(word.load(Ordering::Relaxed), 0);
        word.store(7, Ordering::Relaxed);
        assert_eq!(word.load(Ordering::Relaxed), 7);
    }

    #[test]
    fn child_and_parent_share_words() {
        let words = SharedWords::new(100_000).unwrap();
        assert!(words.len() == 100_000 && words.iter().all(|word| word.load(Ordering::Relaxed) == 0));
        let child = crate::process::fork_worker(|| {
            words[99_999].store(7, Ordering::Release);
            0
        });
        child.unwrap().wait_for_success().unwrap();
        assert_eq!(words[99_999].load(Ordering::Acquire), 7);
        assert!(SharedWords::new(0).is_err() && SharedWords::new(usize::MAX).is_err());
    }

    #[test]
    fn stale_value_wait_returns_at_once() {
        let word = Shared::<AtomicU32>::new().unwrap();
        for scope in [FutexScope::Threads, FutexScope::Processes] {
            futex_wait(&word, 1, scope).unwrap();
            futex_wake(&word, scope).unwrap();
        }
    }
}
