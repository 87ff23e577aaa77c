//! Waiting for any of many sockets, or until a request is due: epoll and a timer of nanoseconds.

use std::os::fd::OwnedFd;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};

use crate::load::error::{Result, call_error};
use crate::load::transport::HttpTransport;

/// Events that one call returns at most.
const MAX_EVENTS: usize = 512;

/// What the timer's events carry, which no connection has.
const TIMER_TOKEN: u64 = u64::MAX;

const NANOSECONDS_PER_SECOND: u64 = 1_000_000_000;

/// Which connection an event belongs to. The generation tells a socket from an earlier one of the same connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionToken {
    pub(crate) connection: u32,
    pub(crate) generation: u32,
}

/// What a socket is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interest {
    /// Bytes.
    Read,
    /// Bytes, or room for some.
    ReadOrWrite,
}

/// A socket of which something can be done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadyEvent {
    pub(crate) token: ConnectionToken,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// There is an error, or a message in the error queue.
    pub(crate) has_error_queue: bool,
    /// The connection has more to say than that, or has ended.
    pub(crate) has_more: bool,
}

/// Waits for sockets and for points in time.
pub(crate) struct Poller {
    epoll: OwnedFd,
    timer: OwnedFd,
    /// The time that the timer is set to.
    armed: Option<u64>,
    events: Vec<Event>,
}

impl Poller {
    pub(crate) fn new() -> Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(call_error("make an epoll"))?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer =
            rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags).map_err(call_error("make a timer"))?;
        // Told of once each time that it expires, it need never be read.
        let flags = EventFlags::IN | EventFlags::ET;
        epoll::add(&epoll, &timer, EventData::new_u64(TIMER_TOKEN), flags).map_err(call_error("watch a timer"))?;
        Ok(Self { epoll, timer, armed: None, events: Vec::with_capacity(MAX_EVENTS) })
    }

    pub(crate) fn add(&self, wire: &HttpTransport, token: ConnectionToken, wanted: Interest) -> std::io::Result<()> {
        Ok(epoll::add(&self.epoll, &wire.socket, epoll_data(token), epoll_flags(wanted))?)
    }

    pub(crate) fn change(&self, wire: &HttpTransport, token: ConnectionToken, wanted: Interest) -> std::io::Result<()> {
        Ok(epoll::modify(&self.epoll, &wire.socket, epoll_data(token), epoll_flags(wanted))?)
    }

    /// Ends the next wait at this time, in nanoseconds of CLOCK_MONOTONIC.
    pub(crate) fn wake_at(&mut self, at: u64) -> Result<()> {
        if self.armed == Some(at) {
            return Ok(());
        }
        self.armed = Some(at);
        let it_value =
            Timespec { tv_sec: (at / NANOSECONDS_PER_SECOND) as i64, tv_nsec: (at % NANOSECONDS_PER_SECOND) as _ };
        let set = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
        let done = rustix::time::timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &set);
        done.map(drop).map_err(call_error("set a timer"))
    }

    /// Waits for so many nanoseconds at most; returns how many sockets are ready.
    pub(crate) fn wait(&mut self, within: u64) -> Result<usize> {
        self.events.clear();
        let within = Timespec {
            tv_sec: (within / NANOSECONDS_PER_SECOND) as i64,
            tv_nsec: (within % NANOSECONDS_PER_SECOND) as _,
        };
        match epoll::wait(&self.epoll, spare_capacity(&mut self.events), Some(&within)) {
            // A signal, which is looked for elsewhere.
            Ok(_) | Err(Errno::INTR) => Ok(self.events.len()),
            Err(error) => Err(call_error("wait for sockets")(error)),
        }
    }

    /// One of those that are ready; `None` for the timer.
    pub(crate) fn ready(&self, number: usize) -> Option<ReadyEvent> {
        let Event { flags, data, .. } = self.events[number];
        let token = data.u64();
        let token = ConnectionToken { connection: token as u32, generation: (token >> 32) as u32 };
        // An error or the end of the connection is found by reading.
        let readable = flags.intersects(EventFlags::IN | EventFlags::ERR | EventFlags::HUP | EventFlags::RDHUP);
        let writable = flags.intersects(EventFlags::OUT | EventFlags::ERR | EventFlags::HUP);
        let has_message = flags.contains(EventFlags::ERR);
        let has_more = flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::RDHUP);
        (data.u64() != TIMER_TOKEN).then_some(ReadyEvent {
            token,
            readable,
            writable,
            has_error_queue: has_message,
            has_more,
        })
    }
}

fn epoll_data(token: ConnectionToken) -> EventData {
    EventData::new_u64(u64::from(token.generation) << 32 | u64::from(token.connection))
}

fn epoll_flags(wanted: Interest) -> EventFlags {
    match wanted {
        Interest::Read => EventFlags::IN,
        Interest::ReadOrWrite => EventFlags::IN | EventFlags::OUT,
    }
}
