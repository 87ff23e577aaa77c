//! One load as all its threads see it: what is asked for, what is sent, which bodies are right, and when it stops.

use std::sync::atomic::{AtomicU64, Ordering};

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
    /// A body that one thread has learnt is the right one for all.
    pub(crate) checker: BodyChecker,
    /// When a thread stopped before the end, in nanoseconds; the maximum while none has.
    stop_time: AtomicU64,
}

impl<'s> LoadRun<'s> {
    pub(crate) fn new(setup: &'s LoadSetup, peer: &'s ServerEndpoint) -> Self {
        let requests = RequestSet::new(&setup.target, &setup.template, &setup.paths);
        let checker = BodyChecker::new(setup.verify, &setup.expected_bodies);
        Self { setup, peer, requests, checker, stop_time: AtomicU64::new(u64::MAX) }
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
