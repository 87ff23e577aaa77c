//! What the loop of a thread asks of its connections, whatever protocol they speak.
//!
//! A slot is the place of one request in flight: a connection of HTTP/1.1, or a stream of HTTP/2. The protocol is chosen once for a load, so
//! that a request of one has nothing of the other on its way.

use rustix::event::epoll::EventFlags;

use crate::load::error::Result;
use crate::load::load_run::LoadRun;
use crate::load::load_share::LoadShare;
use crate::load::poll::Poller;
use crate::load::request_stats::{RequestStats, RequestTimestamps};
use crate::load::setup::LoadSetup;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestEnd {
    /// With an answer, right or not.
    Answered,
    /// Without a connection to the server.
    Disconnected,
}

/// A request that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EndedRequest {
    /// The slot that it had.
    pub(crate) slot: u32,
    pub(crate) end: RequestEnd,
    /// When it was over.
    pub(crate) time: u64,
}

/// What the pool of a thread has besides its slots, whatever protocol they speak.
pub(crate) struct PoolState {
    /// Waits for sockets.
    pub(crate) poller: Poller,
    /// What is counted.
    pub(crate) stats: RequestStats,
    /// Whether anything was sent, taken or closed since this was last unset.
    pub(crate) has_progress: bool,
}

impl PoolState {
    /// Of a thread of this load.
    ///
    /// # Errors
    /// Those of the calls that wait for sockets.
    pub(crate) fn new(setup: &LoadSetup) -> Result<Self> {
        Ok(Self { poller: Poller::new()?, stats: RequestStats::of_load(setup), has_progress: false })
    }
}

/// The slots of one thread, their connections, and what is counted of them.
pub(crate) trait RequestPool<'s>: Sized {
    /// The slots of this part of the load, without a connection yet; the measured time is set later.
    ///
    /// # Errors
    /// Those of the calls that wait for sockets.
    fn prepare(run: &'s LoadRun<'s>, share: LoadShare) -> Result<Self>;

    /// How many slots there are.
    fn slot_count(&self) -> u32;

    /// What every pool has.
    fn state(&self) -> &PoolState;

    /// The same, to be changed.
    fn state_mut(&mut self) -> &mut PoolState;

    /// The same, when the load is over.
    fn into_state(self) -> PoolState;

    /// When a slot was last free to take a request.
    fn free_since(&mut self, slot: u32) -> &mut u64;

    /// Sends a request by a free slot, at once or with [`RequestPool::flush`]; returns how it ended, if it did at once.
    fn send_request(&mut self, slot: u32, request: usize, times: RequestTimestamps) -> Option<RequestEnd>;

    /// Sends what was not sent at once. What ends of it is given by [`RequestPool::next_end`].
    fn flush(&mut self) {}

    /// Takes what a ready socket has, for which the loop was woken up at this time; returns a request that is over. What else is over
    /// is given by [`RequestPool::next_end`].
    fn handle_ready(&mut self, token: u64, flags: EventFlags, wake_time: u64) -> Option<EndedRequest>;

    /// One more request that is over.
    fn next_end(&mut self) -> Option<EndedRequest> {
        None
    }

    /// Gives up a request that was sent longer ago than the limit; returns how it ended, if it did.
    fn time_out(&mut self, slot: u32, now: u64, limit: u64) -> Option<RequestEnd>;

    /// Counts the requests that are in flight at the end.
    fn add_unfinished(&mut self, now: u64);
}
