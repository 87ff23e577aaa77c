//! A client of a thread that serves many: its connection, and by when it must have asked and taken something.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use kelvin_core::quantity::MinProgress;
use rustix::net::{Shutdown, shutdown};

use crate::serve::connection::{Connection, NextIo};
use crate::serve::site::Site;
use crate::serve::status::Status;
use crate::serve::worker_context::LINGER_TIMEOUT;

/// A client.
#[derive(Debug)]
pub struct ClientState {
    pub connection: Connection,
    /// Whether the client sends no more.
    pub has_ended: bool,
    /// Whether the server sends no more, and reads only that nothing is lost.
    pub is_lingering: bool,
    /// When it was last between two requests, began one, or took something.
    pub last_active: Instant,
    /// How it takes answers.
    pub progress: SendProgress,
}

/// What of a client is overdue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overdue {
    Nothing,
    /// Its request: the answer says so.
    Request,
    /// All: its connection is to end.
    Connection,
}

impl ClientState {
    /// A client that is served from now on.
    pub fn new(connection: Connection, now: Instant) -> Self {
        let progress = SendProgress::start(now, 0);
        Self { connection, has_ended: false, is_lingering: false, last_active: now, progress }
    }

    /// Sends no more.
    pub fn shut_down_write(&mut self, socket: impl AsFd, now: Instant) {
        let _ = shutdown(socket, Shutdown::Write);
        (self.is_lingering, self.last_active) = (true, now);
    }

    /// Whether its time is over, now that the site says what time it is; of a client that waits for an operation, no request is read.
    pub fn check_deadlines(&mut self, site: &Site, is_busy: bool) -> Overdue {
        let (limits, now) = (site.limits(), site.now());
        let waited = now.saturating_duration_since(self.last_active);
        let next = self.connection.next_io();
        if self.is_lingering {
            return if waited >= LINGER_TIMEOUT { Overdue::Connection } else { Overdue::Nothing };
        }
        let is_receiving = !is_busy && next == NextIo::Receive && self.connection.has_partial_request();
        if is_receiving && waited >= limits.request_timeout {
            self.connection.refuse(Status::RequestTimeout, site);
            return Overdue::Request;
        }
        let sent = self.connection.bytes_sent();
        let is_too_slow = if is_busy || next == NextIo::Send {
            self.progress.is_too_slow((now, sent), limits.min_progress)
        } else {
            self.progress = SendProgress::start(now, sent);
            false
        };
        if waited >= limits.idle_timeout || is_too_slow { Overdue::Connection } else { Overdue::Nothing }
    }
}

/// What had been sent to a client at a moment since which it has been sent answers without a pause.
#[derive(Clone, Copy, Debug)]
pub struct SendProgress {
    since: Instant,
    sent: u64,
}

impl SendProgress {
    /// Of one who is sent something from now on; so many bytes were sent to it before.
    pub fn start(now: Instant, sent: u64) -> Self {
        Self { since: now, sent }
    }

    /// Time until that is asked next.
    pub fn time_left(&self, now: Instant, least: MinProgress) -> Duration {
        least.within.saturating_sub(now.saturating_duration_since(self.since))
    }

    /// Whether a client to whom so many bytes were sent by now, and who is being sent more, has taken too few of them. Each time that
    /// is over is followed by another.
    pub fn is_too_slow(&mut self, (now, sent): (Instant, u64), least: MinProgress) -> bool {
        if now.saturating_duration_since(self.since) < least.within {
            return false;
        }
        let before = std::mem::replace(self, Self::start(now, sent));
        sent - before.sent < least.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const MIN_PROGRESS: MinProgress = MinProgress { bytes: 4096, within: Duration::from_secs(120) };

    /// After how many seconds a client is too slow that takes so many bytes in each of these many seconds; nothing if never.
    fn too_slow_after(every: u32, bytes: u64) -> Option<u32> {
        let begun = Instant::now();
        let mut pace = SendProgress::start(begun, 1000);
        (0..10_000).find(|&second| {
            let sent = 1000 + u64::from(second / every) * bytes;
            pace.is_too_slow((begun + second * SECOND, sent), MIN_PROGRESS)
        })
    }

    #[test]
    fn trickling_client_fails_and_slow_link_passes() {
        assert_eq!(
            [too_slow_after(59, 1), too_slow_after(1, 1), too_slow_after(1, 34), too_slow_after(1, 0)],
            [Some(120); 4]
        );
        // 300 bits a second, and bursts between which nothing goes for long.
        assert_eq!([too_slow_after(1, 37), too_slow_after(110, 8192), too_slow_after(1, 1 << 20)], [None; 3]);
    }
}
