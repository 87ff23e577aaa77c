//! Threads by pthread_create, which record when they first run.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::clock::Clock;
use crate::thread_spawn::ThreadBuilder;
use crate::{Result, check_code};

/// What the new thread needs: the clock to read, and where to leave the reading.
#[derive(Debug)]
struct StartRecord {
    clock: Clock,
    stamp: AtomicU64,
}

/// A place from which threads are started, one at a time, by pthread_create with default attributes.
#[derive(Debug)]
pub struct ThreadStarter {
    start: Box<StartRecord>,
}

/// A thread that was started and must be joined. Dropped, it is joined.
#[derive(Debug)]
pub struct StartedThread<'a> {
    thread: libc::pthread_t,
    start: &'a StartRecord,
    is_joined: bool,
}

impl ThreadStarter {
    /// Threads started here read this clock.
    pub fn new(clock: Clock) -> Self {
        Self { start: Box::new(StartRecord { clock, stamp: AtomicU64::new(0) }) }
    }

    /// Starts a thread that reads the clock and ends.
    ///
    /// # Errors
    /// Those of pthread_create: `EAGAIN` at the limit of threads.
    #[inline(always)]
    pub fn start(&mut self) -> Result<StartedThread<'_>> {
        let mut thread = std::mem::MaybeUninit::uninit();
        let start: &StartRecord = &self.start;
        // SAFETY: null attributes are the defaults; `stamp_and_end` gets the `StartRecord` that outlives the thread, because
        // `StartedThread` borrows it and joins.
        let error = unsafe {
            libc::pthread_create(
                thread.as_mut_ptr(),
                std::ptr::null(),
                stamp_and_end,
                std::ptr::from_ref(start).cast_mut().cast(),
            )
        };
        check_code(error).map_err(|error| ThreadBuilder::named("to be timed").start_error(&error))?;
        // SAFETY: pthread_create succeeded, so it has filled the handle.
        Ok(StartedThread { thread: unsafe { thread.assume_init() }, start, is_joined: false })
    }
}

extern "C" fn stamp_and_end(start: *mut libc::c_void) -> *mut libc::c_void {
    // SAFETY: `ThreadStarter::start` passes a `StartRecord` that lives until this thread is joined, and shares it.
    let start = unsafe { &*start.cast::<StartRecord>() };
    start.stamp.store(start.clock.stop(), Ordering::Release);
    std::ptr::null_mut()
}

impl StartedThread<'_> {
    /// Waits until the thread has ended.
    ///
    /// # Errors
    /// Those of pthread_join; none is possible for a thread that is joined once.
    #[inline(always)]
    pub fn join(mut self) -> Result<u64> {
        self.end()?;
        Ok(self.start.stamp.load(Ordering::Acquire))
    }

    #[inline(always)]
    fn end(&mut self) -> Result<()> {
        self.is_joined = true;
        // SAFETY: the thread was started by us and is joined only here, once.
        check_code(unsafe { libc::pthread_join(self.thread, std::ptr::null_mut()) })
    }
}

impl Drop for StartedThread<'_> {
    fn drop(&mut self) {
        if !self.is_joined {
            let _ = self.end();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thread_records_first_run() {
        let clock = Clock::MonotonicRaw;
        let mut starter = ThreadStarter::new(clock);
        for _ in 0..3 {
            let before = clock.start();
            let stamp = starter.start().unwrap().join().unwrap();
            let after = clock.stop();
            assert!((before..=after).contains(&stamp), "{before} {stamp} {after}");
        }
    }
}
