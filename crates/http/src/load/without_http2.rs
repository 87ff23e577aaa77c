//! What stands for HTTP/2 in a build without the feature `http2`: no load can be prepared, and the error states that.

use std::convert::Infallible;
use std::marker::PhantomData;

use rustix::event::epoll::EventFlags;

use crate::load::error::{Error, Result};
use crate::load::load_run::LoadRun;
use crate::load::load_share::LoadShare;
use crate::load::request_pool::{EndedRequest, PoolState, RequestEnd, RequestPool};
use crate::load::request_stats::RequestTimestamps;
use crate::load::setup::LoadSetup;

const UNSUPPORTED: &str = "this kelvin was built without HTTP/2: build it with the feature http2";

/// The requests of a load: there are none.
#[derive(Debug)]
pub(crate) enum Http2Requests {}

impl Http2Requests {
    /// # Errors
    /// Always.
    pub(crate) fn new(_: &LoadSetup) -> Result<Self> {
        Err(Error::Http2(UNSUPPORTED.into()))
    }
}

/// The streams of a thread: there are none.
pub(crate) struct Http2Pool<'s> {
    never: Infallible,
    _run: PhantomData<&'s ()>,
}

impl<'s> RequestPool<'s> for Http2Pool<'s> {
    fn prepare(run: &'s LoadRun<'s>, _: LoadShare) -> Result<Self> {
        match run.http2_requests {
            Some(ref requests) => match *requests {},
            None => Err(Error::Http2(UNSUPPORTED.into())),
        }
    }

    fn slot_count(&self) -> u32 {
        match self.never {}
    }

    fn state(&self) -> &PoolState {
        match self.never {}
    }

    fn state_mut(&mut self) -> &mut PoolState {
        match self.never {}
    }

    fn into_state(self) -> PoolState {
        match self.never {}
    }

    fn free_since(&mut self, _: u32) -> &mut u64 {
        match self.never {}
    }

    fn send_request(&mut self, _: u32, _: usize, _: RequestTimestamps) -> Option<RequestEnd> {
        match self.never {}
    }

    fn handle_ready(&mut self, _: u64, _: EventFlags, _: u64) -> Option<EndedRequest> {
        match self.never {}
    }

    fn time_out(&mut self, _: u32, _: u64, _: u64) -> Option<RequestEnd> {
        match self.never {}
    }

    fn add_unfinished(&mut self, _: u64) {
        match self.never {}
    }
}
