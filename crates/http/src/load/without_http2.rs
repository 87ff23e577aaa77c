//! What stands for HTTP/2 in a build without the feature `http2`: no load can be prepared, and the error states that.

use rustix::event::epoll::EventFlags;

use crate::load::error::{Error, Result};
use crate::load::load_run::LoadRun;
use crate::load::load_share::LoadShare;
use crate::load::poll::Poller;
use crate::load::request_pool::{EndedRequest, RequestEnd, RequestPool};
use crate::load::request_stats::{RequestStats, RequestTimestamps};

/// The streams of a thread: there are none.
pub(crate) enum Http2Pool<'s> {
    /// Never made.
    #[allow(dead_code)]
    Never(std::convert::Infallible, &'s ()),
}

impl<'s> RequestPool<'s> for Http2Pool<'s> {
    fn prepare(_: &'s LoadRun<'s>, _: LoadShare) -> Result<Self> {
        Err(Error::Http2("this kelvin was built without HTTP/2: build it with the feature http2".into()))
    }

    fn slot_count(&self) -> u32 {
        match *self {}
    }

    fn stats(&self) -> &RequestStats {
        match *self {}
    }

    fn stats_mut(&mut self) -> &mut RequestStats {
        match *self {}
    }

    fn into_stats(self) -> RequestStats {
        match self {}
    }

    fn poller(&mut self) -> &mut Poller {
        match *self {}
    }

    fn progress(&mut self) -> &mut bool {
        match *self {}
    }

    fn free_since(&mut self, _: u32) -> &mut u64 {
        match *self {}
    }

    fn send_request(&mut self, _: u32, _: usize, _: RequestTimestamps) -> Option<RequestEnd> {
        match *self {}
    }

    fn handle_ready(&mut self, _: u64, _: EventFlags, _: u64) -> Option<EndedRequest> {
        match *self {}
    }

    fn time_out(&mut self, _: u32, _: u64, _: u64) -> Option<RequestEnd> {
        match *self {}
    }

    fn add_unfinished(&mut self, _: u64) {
        match *self {}
    }
}
