//! What goes over connections of HTTP/2: each has several requests in flight, and the crate h2 speaks the protocol.
//!
//! A user, or a request at a rate, has a slot; so many slots in a row as a connection may have requests share a lane, which has one
//! connection that takes requests, and maybe older ones that the server has end. A request waits in its lane until there is a connection
//! and the server allows one more on it.

mod connection;
mod failure;
mod ready_list;
mod requests;
mod slot;
mod socket;

use std::collections::VecDeque;
use std::io;
use std::task::Poll;

use kelvin_core::load::Http2Figures;
use kelvin_sys::clock::monotonic;
use rustix::event::epoll::EventFlags;
use slab::Slab;

use crate::load::connection_pool::{FUTILE_WAKEUPS_ERROR, MAX_FUTILE_WAKEUPS};
use crate::load::error::Result;
use crate::load::load_run::LoadRun;
use crate::load::load_share::LoadShare;
use crate::load::poll::connection_number;
use crate::load::request_pool::{EndedRequest, PoolState, RequestEnd, RequestPool};
use crate::load::request_stats::{RequestFailure, RequestTimestamps};
use crate::load::transport::has_no_port;
use crate::load::verify::{ExpectedBody, Verify};
use connection::Http2Connection;
use failure::{AnswerProgress, EndReason, StreamFailure};
use ready_list::ReadyList;
pub(crate) use requests::Http2Requests;
use slot::{Answer, Slot, SlotState};
use socket::ReadOutcome;

/// Reads of one connection before others have their turn.
const MAX_READS_PER_TURN: usize = 8;

/// The connections that some slots share.
#[derive(Debug, Default)]
struct Lane {
    /// The key of the one that takes requests.
    connection: Option<usize>,
    /// Slots whose requests are not sent.
    waiting: VecDeque<u32>,
    /// Whether something is to be sent.
    is_dirty: bool,
}

/// When the bytes came that an answer is whole with, as the pool knows it.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    /// When they came, or when they were read if that is not known.
    time: u64,
    /// When they were read.
    read: u64,
    /// How long they were not read.
    delay: u64,
    is_timed: bool,
}

/// The streams of one thread, their connections, and what is counted of them.
pub(crate) struct Http2Pool<'s> {
    run: &'s LoadRun<'s>,
    requests: &'s Http2Requests,
    /// Slots of a lane.
    streams: u32,
    slots: Vec<Slot>,
    lanes: Vec<Lane>,
    connections: Slab<Http2Connection>,
    /// Connections that were begun, which tells the events of one from those of an earlier one.
    begun: u32,
    pub(crate) state: PoolState,
    ready: ReadyList,
    /// The slots that are looked at, and room for those that will be.
    woken: Vec<u32>,
    /// Lanes that have something to be sent, and those whose turn it is.
    dirty: Vec<u32>,
    flushed: Vec<u32>,
    /// Requests that are over and were not told of.
    ended: Vec<EndedRequest>,
}

impl<'s> Http2Pool<'s> {
    fn mark_dirty(&mut self, lane: u32) {
        let is_dirty = std::mem::replace(&mut self.lanes[lane as usize].is_dirty, true);
        if !is_dirty {
            self.dirty.push(lane);
        }
    }

    /// Has a lane send what waits in it, over a new connection if it has none.
    fn send_of_lane(&mut self, lane: u32) {
        self.lanes[lane as usize].is_dirty = false;
        match self.lanes[lane as usize].connection {
            Some(key) => self.drive(key, None),
            None if self.lanes[lane as usize].waiting.is_empty() => {}
            None => self.connect(lane),
        }
    }

    fn connect(&mut self, lane: u32) {
        self.state.has_progress = true;
        self.begun = self.begun.wrapping_add(1);
        let key = self.connections.vacant_key();
        let token = key as u64 | u64::from(self.begun) << 32;
        let result = Http2Connection::connect(self.run.peer, lane, token).and_then(|connection| {
            connection.socket.with(|state| self.state.poller.add(&state.transport, token))?;
            Ok(connection)
        });
        match result {
            Ok(connection) => {
                self.lanes[lane as usize].connection = Some(self.connections.insert(connection));
            }
            Err(error) => self.fail_waiting(lane, connect_failure(&error), &error.to_string()),
        }
    }

    /// Brings no answer to all that waits in a lane.
    fn fail_waiting(&mut self, lane: u32, failure: RequestFailure, text: &str) {
        let now = monotonic();
        for slot in std::mem::take(&mut self.lanes[lane as usize].waiting) {
            self.fail(slot, now, failure, || text.to_owned());
        }
    }

    /// Has the protocol of a connection take what its socket has, if the loop was woken up for that at this time, and send what is to
    /// be sent.
    fn drive(&mut self, key: usize, mut wake_time: Option<u64>) {
        for reads in 0.. {
            let Some(connection) = self.connections.get_mut(key) else { return };
            let may_take = reads < MAX_READS_PER_TURN;
            connection.socket.allow_read(wake_time.is_some().then_some(may_take));
            let poll = connection.poll();
            let outcome = connection.socket.outcome();
            self.state.has_progress |= connection.socket.with(|state| std::mem::take(&mut state.has_written));
            if let ReadOutcome::Read { time, .. } = outcome {
                connection.last_receive = time;
                self.state.has_progress = true;
            }
            self.take_woken(wake_time.map(|wake_time| arrival(outcome, wake_time)));
            if let Poll::Ready(result) = poll {
                return self.on_end(key, &end_reason(result));
            }
            self.check_settings(key);
            let has_sent = self.send_waiting(key);
            let may_have_more = matches!(outcome, ReadOutcome::Read { may_have_more: true, .. });
            if !may_have_more {
                wake_time = None;
            }
            if !may_have_more && !has_sent {
                break;
            }
        }
        self.update_interest(key);
    }

    /// Looks at what the server allows, and at whether it takes any more.
    fn check_settings(&mut self, key: usize) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let http2 = http2_figures(&mut self.state);
        let allowed = connection.allowed_streams();
        if !connection.has_settings && allowed > 0 {
            connection.has_settings = true;
            http2.add_allowed(allowed);
            let waiting = self.lanes[connection.lane as usize].waiting.len();
            http2.limited_requests += waiting.saturating_sub(allowed) as u64;
            for &slot in self.lanes[connection.lane as usize].waiting.iter().skip(allowed) {
                self.slots[slot as usize].is_limited = true;
            }
        }
        if self.is_refused(key) {
            self.drain(key);
        }
    }

    /// Whether a connection that took requests takes no more; counts those that the server has end.
    fn is_refused(&mut self, key: usize) -> bool {
        let connection = self.connections.get_mut(key).filter(|connection| !connection.is_draining);
        let Some(error) = connection.and_then(Http2Connection::refusal) else { return false };
        let http2 = http2_figures(&mut self.state);
        http2.goaways += u64::from(error.is_go_away() && error.is_remote());
        true
    }

    /// Has a connection take no more requests. It is over with its last one.
    fn drain(&mut self, key: usize) {
        let connection = &mut self.connections[key];
        connection.is_draining = true;
        let (lane, is_unused) = (connection.lane, connection.in_flight == 0);
        if self.lanes[lane as usize].connection == Some(key) {
            self.lanes[lane as usize].connection = None;
            self.mark_dirty(lane);
        }
        if is_unused {
            self.connections.remove(key);
        }
    }

    /// Sends what waits, as much as the server allows; returns whether there was any.
    fn send_waiting(&mut self, key: usize) -> bool {
        let mut has_sent = false;
        while let Some(connection) = self.connections.get_mut(key).filter(|connection| !connection.is_draining) {
            if connection.in_flight as usize >= connection.allowed_streams() {
                break;
            }
            let Some(number) = self.lanes[connection.lane as usize].waiting.pop_front() else { break };
            let slot = &mut self.slots[number as usize];
            if slot.is_limited {
                slot.times.sent = monotonic();
            }
            let (request, body) = self.requests.get(slot.request);
            has_sent = true;
            match connection.send(request, body) {
                Ok(response) => {
                    (connection.was_used, connection.in_flight) = (true, connection.in_flight + 1);
                    slot.begin(response, key);
                    // So the protocol knows whom to wake.
                    self.look_at(number, None);
                }
                Err(error) => {
                    let now = monotonic();
                    self.fail(number, now, RequestFailure::Malformed, || format!("HTTP/2: {error}"));
                }
            }
        }
        has_sent
    }

    /// Looks at the slots that the protocol woke up.
    fn take_woken(&mut self, arrival: Option<Arrival>) {
        let mut woken = std::mem::take(&mut self.woken);
        self.ready.exchange(&mut woken);
        for &slot in &woken {
            self.look_at(slot, arrival);
        }
        woken.clear();
        self.woken = woken;
    }

    /// Takes what has come of an answer.
    fn look_at(&mut self, number: u32, arrival: Option<Arrival>) {
        let (slot, stats) = (&mut self.slots[number as usize], &mut self.state.stats);
        let time = arrival.map_or_else(monotonic, |arrival| arrival.time);
        let Poll::Ready(result) = slot.poll(|bytes| stats.add_received(time, bytes)) else { return };
        self.state.has_progress = true;
        match result {
            Ok(answer) => self.on_answer(number, answer, arrival),
            Err(error) => self.on_error(number, &EndReason::Protocol(error)),
        }
    }

    /// An answer is whole.
    fn on_answer(&mut self, number: u32, answer: Answer, arrival: Option<Arrival>) {
        let slot = &mut self.slots[number as usize];
        let now = monotonic();
        let arrival = arrival.unwrap_or(Arrival { time: now, read: now, delay: 0, is_timed: false });
        let read_delay = arrival.delay.min(arrival.read.saturating_sub(slot.times.sent));
        let end = if arrival.is_timed { arrival.read - read_delay } else { arrival.read };
        self.state.stats.read_delay.add(read_delay);
        self.state.stats.queue_delay.add(read_delay);
        // Where it is not known when an answer came, its response time ends when it was read.
        slot.times.generator_delay += if arrival.is_timed { 0 } else { read_delay };
        let times = RequestTimestamps { end: end.max(slot.times.sent), ..slot.times };
        let body = ExpectedBody { length: answer.body, hash: answer.hash };
        if !matches!(answer.status, 200..300 | 304) {
            let text = || format!("status {}", answer.status);
            self.state.stats.add_failure(times, RequestFailure::Status(answer.status), text);
        } else if !self.run.checker.check_body(slot.request, body) {
            let text = || format!("other bytes than expected, {} of them", answer.body);
            self.state.stats.add_failure(times, RequestFailure::WrongBody, text);
        } else {
            self.state.stats.add_answer(times, answer.body);
        }
        if let Some(connection) = self.connections.get_mut(slot.connection) {
            connection.has_answered = true;
        }
        self.leave_connection(number);
        self.ended.push(EndedRequest { slot: number, end: RequestEnd::Answered, time: times.end });
    }

    /// There will be no answer: the request is sent again if the server declared that it did nothing of it, or may have closed an idle
    /// connection.
    fn on_error(&mut self, number: u32, reason: &EndReason) {
        let slot = &self.slots[number as usize];
        let connection = self.connections.get(slot.connection);
        let has_spoken = connection.is_none_or(|connection| connection.has_settings);
        let has_answered = connection.is_some_and(|connection| connection.has_answered);
        let StreamFailure { failure, is_undone, text } = StreamFailure::new(reason, slot.progress(), has_spoken);
        let http2 = http2_figures(&mut self.state);
        http2.refused += u64::from(is_undone);
        let may_repeat = failure == RequestFailure::Closed && has_answered;
        let can_retry = is_undone || may_repeat && self.run.requests.get(slot.request).is_idempotent;
        let is_retry = slot.is_retry;
        self.leave_connection(number);
        if can_retry && !is_retry {
            self.state.stats.resent += 1;
            self.slots[number as usize].is_retry = true;
            self.enqueue(number);
            return;
        }
        let now = monotonic();
        self.fail(number, now, failure, || text);
    }

    /// Puts a request where it waits for a connection.
    fn enqueue(&mut self, number: u32) {
        let lane = number / self.streams;
        let slot = &mut self.slots[number as usize];
        (slot.state, slot.is_limited) = (SlotState::Waiting, false);
        let Lane { connection, waiting, .. } = &mut self.lanes[lane as usize];
        let connection = connection.and_then(|key| self.connections.get(key));
        if let Some(connection) = connection.filter(|connection| connection.has_settings)
            && connection.in_flight as usize + waiting.len() >= connection.allowed_streams()
        {
            slot.is_limited = true;
            http2_figures(&mut self.state).limited_requests += 1;
        }
        waiting.push_back(number);
        self.mark_dirty(lane);
    }

    /// A request is no longer on its connection, which may have been its last.
    fn leave_connection(&mut self, number: u32) {
        let slot = &mut self.slots[number as usize];
        if !slot.is_sent() {
            return;
        }
        slot.state = SlotState::Idle;
        let (key, lane) = (slot.connection, number / self.streams);
        if let Some(connection) = self.connections.get_mut(key) {
            connection.in_flight -= 1;
            if connection.is_draining && connection.in_flight == 0 {
                self.connections.remove(key);
            }
        }
        self.mark_dirty(lane);
    }

    /// A request brought no answer.
    fn fail(&mut self, number: u32, now: u64, failure: RequestFailure, text: impl FnOnce() -> String) {
        let slot = &mut self.slots[number as usize];
        slot.state = SlotState::Idle;
        let times = RequestTimestamps { end: now.max(slot.times.sent), ..slot.times };
        self.state.stats.add_failure(times, failure, text);
        self.state.has_progress = true;
        let end = match failure {
            RequestFailure::Connect | RequestFailure::NoPort | RequestFailure::Closed => RequestEnd::Disconnected,
            _ => RequestEnd::Answered,
        };
        self.ended.push(EndedRequest { slot: number, end, time: now });
    }

    /// A connection is over. What is still on it has no answer, nor has what waits for it if it never took a request: with the next
    /// connection it would be the same.
    fn on_end(&mut self, key: usize, reason: &EndReason) {
        self.is_refused(key);
        let Some(connection) = self.connections.get_mut(key) else { return };
        self.state.has_progress = true;
        // The settings may have come with what ended it.
        connection.has_settings |= connection.allowed_streams() > 0;
        let (lane, was_used, has_settings) = (connection.lane, connection.was_used, connection.has_settings);
        let is_handshaking = connection.is_handshaking();
        let first = lane * self.streams;
        for number in first..(first + self.streams).min(self.slots.len() as u32) {
            let slot = &self.slots[number as usize];
            if slot.is_sent() && slot.connection == key {
                self.look_at(number, None);
            }
            // Whatever the protocol had for it, nothing more comes.
            let slot = &self.slots[number as usize];
            if slot.is_sent() && slot.connection == key {
                self.on_error(number, reason);
            }
        }
        self.connections.try_remove(key);
        if self.lanes[lane as usize].connection == Some(key) {
            self.lanes[lane as usize].connection = None;
            if !was_used {
                let StreamFailure { failure, text, .. } =
                    StreamFailure::new(reason, AnswerProgress::Nothing, has_settings);
                match is_handshaking {
                    true => self.fail_waiting(lane, RequestFailure::Connect, &reason.to_string()),
                    false => self.fail_waiting(lane, failure, &text),
                }
            }
            self.mark_dirty(lane);
        }
    }

    /// Watches the socket for room exactly while there is something to send.
    fn update_interest(&mut self, key: usize) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let watches_writable = connection.is_connecting() || connection.socket.wants_write();
        if watches_writable == connection.watches_writable {
            return;
        }
        connection.watches_writable = watches_writable;
        self.state.has_progress = true;
        let (poller, token) = (&self.state.poller, connection.token);
        let result = connection.socket.with(|state| poller.change(&state.transport, token, watches_writable));
        if let Err(error) = result {
            self.on_end(key, &EndReason::Socket(error.to_string()));
        }
    }

    /// Takes what a ready socket has.
    fn handle_event(&mut self, key: usize, flags: EventFlags, wake_time: u64) {
        let connection = &mut self.connections[key];
        let has_failed = flags.intersects(EventFlags::ERR | EventFlags::HUP);
        let is_writable = has_failed || flags.contains(EventFlags::OUT);
        if connection.is_connecting() {
            if !is_writable {
                return;
            }
            self.state.has_progress = true;
            match connection.socket.with(|state| state.transport.socket.take_error()) {
                Ok(None) => {
                    self.state.stats.connections += 1;
                    connection.begin();
                }
                Ok(Some(error)) | Err(error) => {
                    let lane = connection.lane;
                    self.connections.remove(key);
                    self.lanes[lane as usize].connection = None;
                    return self.fail_waiting(lane, connect_failure(&error), &error.to_string());
                }
            }
        } else if is_writable {
            // What fails is found by the protocol.
            let _ = connection.socket.with(|state| state.transport.flush());
        }
        let is_readable = has_failed || flags.intersects(EventFlags::IN | EventFlags::RDHUP);
        self.drive(key, is_readable.then_some(wake_time));
    }
}

/// What is counted of HTTP/2.
fn http2_figures(state: &mut PoolState) -> &mut Http2Figures {
    state.stats.http2.as_mut().expect("a load by HTTP/2 has figures of it")
}

impl<'s> RequestPool<'s> for Http2Pool<'s> {
    fn prepare(run: &'s LoadRun<'s>, share: LoadShare) -> Result<Self> {
        let setup = run.setup;
        let (streams, slots) = (setup.http2_streams.unwrap_or(1), setup.slot_count(share));
        let (ready, hashes) = (ReadyList::default(), setup.verify == Verify::Content);
        Ok(Self {
            run,
            requests: run.http2_requests.as_ref().expect("a load by HTTP/2 has requests of it"),
            streams,
            slots: (0..slots).map(|number| Slot::new(ready.waker(number), hashes)).collect(),
            lanes: (0..slots.div_ceil(streams)).map(|_| Lane::default()).collect(),
            connections: Slab::new(),
            begun: 0,
            state: PoolState::new(setup)?,
            ready,
            woken: Vec::new(),
            dirty: Vec::new(),
            flushed: Vec::new(),
            ended: Vec::new(),
        })
    }

    fn slot_count(&self) -> u32 {
        self.slots.len() as u32
    }

    fn state(&self) -> &PoolState {
        &self.state
    }

    fn state_mut(&mut self) -> &mut PoolState {
        &mut self.state
    }

    fn into_state(self) -> PoolState {
        self.state
    }

    fn free_since(&mut self, slot: u32) -> &mut u64 {
        &mut self.slots[slot as usize].free_since
    }

    fn send_request(&mut self, slot: u32, request: usize, times: RequestTimestamps) -> Option<RequestEnd> {
        self.state.has_progress = true;
        let free = &mut self.slots[slot as usize];
        (free.request, free.times, free.is_retry) = (request, times, false);
        self.enqueue(slot);
        None
    }

    fn flush(&mut self) {
        // What is to be sent because of this is for the next turn.
        std::mem::swap(&mut self.dirty, &mut self.flushed);
        for index in 0..self.flushed.len() {
            self.send_of_lane(self.flushed[index]);
        }
        self.flushed.clear();
    }

    fn handle_ready(&mut self, token: u64, flags: EventFlags, wake_time: u64) -> Option<EndedRequest> {
        let key = connection_number(token) as usize;
        if self.connections.get(key).is_none_or(|connection| connection.token != token) {
            return None;
        }
        let had_progress = std::mem::take(&mut self.state.has_progress);
        self.handle_event(key, flags, wake_time);
        let is_futile = !self.state.has_progress;
        if let Some(connection) = self.connections.get_mut(key).filter(|connection| connection.token == token) {
            connection.futile_wakeups = if is_futile { connection.futile_wakeups + 1 } else { 0 };
            if connection.futile_wakeups >= MAX_FUTILE_WAKEUPS {
                self.on_end(key, &EndReason::Socket(FUTILE_WAKEUPS_ERROR.into()));
            }
        }
        self.state.has_progress |= had_progress;
        self.next_end()
    }

    fn next_end(&mut self) -> Option<EndedRequest> {
        self.ended.pop()
    }

    fn time_out(&mut self, slot: u32, now: u64, limit: u64) -> Option<RequestEnd> {
        let number = slot;
        let slot = &self.slots[number as usize];
        if matches!(slot.state, SlotState::Idle) || now.saturating_sub(slot.times.sent) < limit {
            return None;
        }
        let (lane, sent) = (number / self.streams, slot.times.sent);
        let key = if slot.is_sent() { Some(slot.connection) } else { self.lanes[lane as usize].connection };
        self.lanes[lane as usize].waiting.retain(|&waiting| waiting != number);
        self.leave_connection(number);
        self.fail(number, now, RequestFailure::TimedOut, || "no answer within the time-out".into());
        // The end is returned, and not kept.
        let ended = self.ended.pop();
        // A connection that was silent for as long gets no more.
        if let Some(connection) = key.and_then(|key| self.connections.get(key))
            && !connection.is_draining
            && connection.last_receive <= sent
        {
            self.drain(key.expect("it has a connection"));
        }
        ended.map(|ended| ended.end)
    }

    fn add_unfinished(&mut self, now: u64) {
        for slot in self.slots.iter().filter(|slot| !matches!(slot.state, SlotState::Idle)) {
            self.state.stats.add_unfinished(RequestTimestamps { end: now, ..slot.times });
        }
    }
}

/// How an answer came that was read so, by a loop that was woken up at this time.
fn arrival(outcome: ReadOutcome, wake_time: u64) -> Arrival {
    match outcome {
        ReadOutcome::Read { read, time, .. } => {
            let is_timed = read.arrival.is_some();
            let delay = if is_timed { read.delay() } else { time.saturating_sub(wake_time) };
            Arrival { time: if is_timed { time.saturating_sub(delay) } else { time }, read: time, delay, is_timed }
        }
        ReadOutcome::Untried | ReadOutcome::Empty => {
            let now = monotonic();
            Arrival { time: now, read: now, delay: 0, is_timed: false }
        }
    }
}

/// Why a connection is over.
fn end_reason(result: std::result::Result<(), h2::Error>) -> EndReason {
    match result {
        Ok(()) => EndReason::Socket("the server closed the connection".into()),
        Err(error) => EndReason::Protocol(error),
    }
}

fn connect_failure(error: &io::Error) -> RequestFailure {
    if has_no_port(error) { RequestFailure::NoPort } else { RequestFailure::Connect }
}
