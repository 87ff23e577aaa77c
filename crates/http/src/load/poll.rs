//! Waiting for any of many sockets, or until a request is due: epoll and a timer of nanoseconds.

use std::os::fd::OwnedFd;
use std::time::Duration;

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

/// The number of the connection that an event with this token belongs to. The upper half of a token distinguishes a socket from an
/// earlier one of the same connection.
pub(crate) fn connection_number(token: u64) -> u32 {
    token as u32
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
        // The kernel reports each expiry once, so it need never be read.
        let flags = EventFlags::IN | EventFlags::ET;
        epoll::add(&epoll, &timer, EventData::new_u64(TIMER_TOKEN), flags).map_err(call_error("watch a timer"))?;
        Ok(Self { epoll, timer, armed: None, events: Vec::with_capacity(MAX_EVENTS) })
    }

    /// Watches a socket for bytes and for room to write.
    pub(crate) fn add(&self, transport: &HttpTransport, token: u64) -> std::io::Result<()> {
        let flags = EventFlags::IN | EventFlags::OUT;
        Ok(epoll::add(&self.epoll, &transport.socket, EventData::new_u64(token), flags)?)
    }

    /// Watches it for bytes, and for room to write if that is wanted.
    pub(crate) fn change(&self, transport: &HttpTransport, token: u64, watches_writable: bool) -> std::io::Result<()> {
        let flags = if watches_writable { EventFlags::IN | EventFlags::OUT } else { EventFlags::IN };
        Ok(epoll::modify(&self.epoll, &transport.socket, EventData::new_u64(token), flags)?)
    }

    /// Ends the next wait at this time, in nanoseconds of CLOCK_MONOTONIC.
    pub(crate) fn set_wake_time(&mut self, time: u64) -> Result<()> {
        if self.armed == Some(time) {
            return Ok(());
        }
        self.armed = Some(time);
        let set = Itimerspec { it_interval: Timespec::default(), it_value: timespec(time) };
        let result = rustix::time::timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &set);
        result.map(drop).map_err(call_error("set a timer"))
    }

    /// Waits for this many nanoseconds at most; returns how many sockets are ready.
    pub(crate) fn wait(&mut self, timeout: u64) -> Result<usize> {
        self.events.clear();
        match epoll::wait(&self.epoll, spare_capacity(&mut self.events), Some(&timespec(timeout))) {
            // A signal, which is looked for elsewhere.
            Ok(_) | Err(Errno::INTR) => Ok(self.events.len()),
            Err(error) => Err(call_error("wait for sockets")(error)),
        }
    }

    /// The token of one of those that are ready, and what of it is; `None` for the timer.
    pub(crate) fn ready(&self, number: usize) -> Option<(u64, EventFlags)> {
        let Event { flags, data, .. } = self.events[number];
        Some((data.u64(), flags)).filter(|&(token, _)| token != TIMER_TOKEN)
    }
}

fn timespec(nanoseconds: u64) -> Timespec {
    Timespec::try_from(Duration::from_nanos(nanoseconds)).unwrap_or_default()
}
