//! One load as all its threads see it: what is asked for, what is sent, which bodies are right, and when it stops.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::load::error::Result;
use crate::load::http2::Http2Requests;
use crate::load::request::RequestSet;
use crate::load::setup::LoadSetup;
use crate::load::transport::ServerEndpoint;
use crate::load::verify::BodyChecker;

/// What the threads of a load share.
pub(crate) struct LoadRun<'s> {
    pub(crate) setup: &'s LoadSetup,
    pub(crate) peer: &'s ServerEndpoint,
    /// Written once: those of a log may take much memory.
    pub(crate) requests: RequestSet,
    /// What HTTP/2 sends of them; nothing where HTTP/1.1 is spoken.
    pub(crate) http2_requests: Option<Http2Requests>,
    /// A body that one thread has learnt is the right one for all.
    pub(crate) checker: BodyChecker,
    /// When a thread stopped before the end, in nanoseconds; the maximum while none has.
    stop_time: AtomicU64,
    /// Threads that have requests of a limited number left, and when the last one that has none had its last answer.
    unfinished_threads: AtomicU32,
    last_finish: AtomicU64,
}

impl<'s> LoadRun<'s> {
    /// # Errors
    /// A request that HTTP/2 cannot send.
    pub(crate) fn new(setup: &'s LoadSetup, peer: &'s ServerEndpoint) -> Result<Self> {
        let (requests, http2_requests) = match setup.http2_streams {
            None => (setup.request_set(), None),
            Some(_) => (setup.request_set().without_bytes(), Some(Http2Requests::new(setup)?)),
        };
        let checker = BodyChecker::new(setup.verify, &setup.expected_bodies);
        Ok(Self {
            setup,
            peer,
            requests,
            http2_requests,
            checker,
            stop_time: AtomicU64::new(u64::MAX),
            unfinished_threads: AtomicU32::new(setup.threads.count()),
            last_finish: AtomicU64::new(0),
        })
    }

    /// A thread has the last answer to its requests of a limited number; returns whether all threads have theirs.
    pub(crate) fn finish_thread(&self, now: u64) -> bool {
        self.last_finish.fetch_max(now, Ordering::Relaxed);
        self.unfinished_threads.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// When a limited number of requests was over, once it is for all threads.
    pub(crate) fn finish_time(&self) -> Option<u64> {
        let is_finished = self.unfinished_threads.load(Ordering::Acquire) == 0;
        is_finished.then(|| self.last_finish.load(Ordering::Relaxed))
    }

    /// Stops all threads at this time, unless they stop earlier; returns when they stop.
    pub(crate) fn stop(&self, now: u64) -> u64 {
        self.stop_time.fetch_min(now, Ordering::Relaxed).min(now)
    }

    /// Whether a thread was stopped, or a signal asks for it.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop_time.load(Ordering::Relaxed) < u64::MAX || kelvin_sys::stop_signals::stop_signal().is_some()
    }
}
