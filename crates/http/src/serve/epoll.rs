//! Waiting by epoll: a client's socket by edges, so that it is registered once for its whole life.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, Event, EventData, EventFlags};

use crate::serve::error::{Error, Result};
use crate::serve::event_loop::{LISTENER_TOKEN, WAKER_TOKEN, WorkerCore};
use crate::serve::readiness::{ReadyClient, ReadyEvent, Selector};
use crate::serve::transport::ClientTransport;

/// Events that are taken at a time.
const MAX_EVENTS: usize = 256;

/// An epoll instance, and what its last wait returned.
pub struct EpollSelector {
    epoll: OwnedFd,
    events: Vec<Event>,
}

impl Selector for EpollSelector {
    fn new<T>(core: &WorkerCore<ReadyClient<T>>) -> Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(Error::call("wait for events"))?;
        epoll::add(&epoll, &*core.inbox().waker, EventData::new_u64(WAKER_TOKEN), EventFlags::IN)
            .map_err(Error::call("wait for events"))?;
        Ok(Self { epoll, events: Vec::with_capacity(MAX_EVENTS) })
    }

    fn listen<T>(&mut self, core: &WorkerCore<ReadyClient<T>>) -> rustix::io::Result<()> {
        let flags = EventFlags::IN | EventFlags::EXCLUSIVE;
        epoll::add(&self.epoll, &core.shared.listener, EventData::new_u64(LISTENER_TOKEN), flags)
    }

    fn stop_listening<T>(&mut self, core: &WorkerCore<ReadyClient<T>>) {
        let _ = epoll::delete(&self.epoll, &core.shared.listener);
    }

    fn add_client(&mut self, socket: &OwnedFd, number: usize) -> rustix::io::Result<()> {
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(&self.epoll, socket, EventData::new_u64(number as u64), flags)
    }

    fn wait<T: ClientTransport>(&mut self, _: &WorkerCore<ReadyClient<T>>, timeout: Duration) -> usize {
        self.events.clear();
        // A signal is for another thread, and nothing else can fail.
        let _ = epoll::wait(&self.epoll, spare_capacity(&mut self.events), Timespec::try_from(timeout).ok().as_ref());
        self.events.len()
    }

    fn event(&self, index: usize) -> ReadyEvent {
        let Event { data, flags } = self.events[index];
        ReadyEvent {
            token: data.u64(),
            is_readable: flags.intersects(EventFlags::IN | EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR),
            // An error hangs up too. Alone it reports a message in the error queue, which is the sampler's.
            has_ended: flags.intersects(EventFlags::RDHUP | EventFlags::HUP),
        }
    }
}
