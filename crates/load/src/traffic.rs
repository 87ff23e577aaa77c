//! What goes over the connections: requests out, answers in, each counted when it is over.

use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::ops::ControlFlow;

use kelvin_model::load::Load;
use kelvin_sys::clock::monotonic;
use kelvin_sys::net::arrival::Arrived;

use crate::connection::{Connection, Phase};
use crate::exchange::{Answer, Cut};
use crate::poll::{Poll, Ready, Wanted};
use crate::request::Requests;
use crate::setup::Setup;
use crate::tally::{Failure, Tally, Times};
use crate::verify::{Checker, Known};
use crate::wire::{Peer, Wire, has_no_port};

/// Bytes that one call reads: large bodies in few calls, and still within a second-level cache.
const BUFFER: usize = 256 << 10;

/// One request of so many is looked at when it leaves, which costs some calls.
const TIMED: u32 = 100;

/// How often in turn a socket may be ready without anything to be done. It would be so for ever, and take a CPU.
pub(crate) const MOST_FUTILE: u32 = 1000;

const FUTILE: &str = "its socket is ready again and again, and has nothing";

/// Reads of one connection before others have their turn.
const READS: usize = 8;

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    /// With an answer, right or not.
    Answered,
    /// Without a connection to the server.
    Disconnected,
}

/// The mean of many times.
#[derive(Debug, Default)]
pub(crate) struct Mean {
    sum: u64,
    count: u64,
}

impl Mean {
    fn add(&mut self, time: u64) {
        self.sum += time;
        self.count += 1;
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64)
    }
}

/// All connections and what is counted of them.
pub(crate) struct Traffic {
    pub(crate) connections: Vec<Connection>,
    pub(crate) poll: Poll,
    pub(crate) tally: Tally,
    requests: Requests,
    checker: Checker,
    peer: Peer,
    buffer: Vec<u8>,
    /// When the kernel told of what is being read.
    woken: u64,
    /// Connections that were made.
    pub(crate) opened: u64,
    /// Requests that were sent a second time.
    pub(crate) sent_again: u64,
    /// How long answers that had come were not read: from when they came, and of that from when the loop was awake. That a sleeping
    /// thread is woken up late is no lack of CPU time, and no part of a response time.
    pub(crate) unread: Mean,
    pub(crate) queued: Mean,
    /// How long requests took to leave.
    pub(crate) leaving: Mean,
    /// Requests until the next one of which that is found out.
    until_timed: u32,
    /// Whether anything was sent, taken or closed since this was last unset.
    pub(crate) has_acted: bool,
}

impl Traffic {
    pub(crate) fn new(setup: &Setup, peer: Peer, requests: Requests, tally: Tally, poll: Poll) -> Self {
        let checker = Checker::new(setup.verify, setup.known.clone());
        let connection = |number| Connection::new(number, requests.head_only, checker.hashes());
        Self {
            connections: (0..setup.demand.connections()).map(connection).collect(),
            poll,
            tally,
            requests,
            checker,
            peer,
            buffer: vec![0; BUFFER],
            woken: 0,
            opened: 0,
            sent_again: 0,
            unread: Mean::default(),
            queued: Mean::default(),
            leaving: Mean::default(),
            until_timed: 0,
            has_acted: false,
        }
    }

    fn connection(&mut self, number: u32) -> &mut Connection {
        &mut self.connections[number as usize]
    }

    /// Sends a request over a connection that has none; returns how it ended, if it did at once.
    pub(crate) fn send(&mut self, number: u32, request: usize, times: Times) -> Option<Over> {
        self.has_acted = true;
        let connection = self.connection(number);
        connection.take(request, times);
        match connection.wire {
            Some(_) => self.write(number, times.sent),
            None => self.open(number, times.sent),
        }
    }

    fn open(&mut self, number: u32, now: u64) -> Option<Over> {
        let begun = Wire::begin(&self.peer);
        let added = begun.and_then(|wire| {
            self.poll.add(&wire, self.connections[number as usize].token, Wanted::ReadOrWrite)?;
            Ok(wire)
        });
        let connection = self.connection(number);
        match added {
            Ok(wire) => {
                connection.wire = Some(wire);
                connection.watched_for_room = true;
                connection.phase = Phase::Connecting;
                None
            }
            Err(error) => self.unconnected(number, now, &error),
        }
    }

    /// Takes what a ready socket has, of which the loop was woken up to tell at this time; returns how its request ended and when,
    /// if it did.
    pub(crate) fn take(&mut self, ready: Ready, woken: u64) -> Option<(Over, u64)> {
        let had_acted = std::mem::take(&mut self.has_acted);
        let over = self.take_from(ready, woken);
        let has_acted = std::mem::replace(&mut self.has_acted, true);
        let number = ready.token.connection;
        let connection = self.connection(number);
        let is_futile = !has_acted && connection.token == ready.token;
        connection.futile = if is_futile { connection.futile + 1 } else { 0 };
        if connection.futile < MOST_FUTILE {
            self.has_acted = had_acted || has_acted;
            return over;
        }
        self.fail(number, woken, Failure::Closed, FUTILE).map(|over| (over, woken))
    }

    fn take_from(&mut self, ready: Ready, woken: u64) -> Option<(Over, u64)> {
        let number = ready.token.connection;
        let connection = self.connection(number);
        if connection.token != ready.token {
            return None;
        }
        if ready.has_message && connection.take_message() {
            self.has_acted = true;
            if !ready.has_more {
                return None;
            }
        }
        match self.connection(number).phase {
            Phase::Connecting if ready.writable => self.connected(number, woken).map(|over| (over, woken)),
            Phase::Connecting => None,
            Phase::Idle => {
                // The server has closed it, or speaks without being asked: neither is for the next request.
                self.connection(number).close();
                self.has_acted = true;
                None
            }
            Phase::InFlight => self.go_on(ready, woken),
        }
    }

    /// Sends more of a request, and takes what has come of its answer.
    fn go_on(&mut self, ready: Ready, woken: u64) -> Option<(Over, u64)> {
        let number = ready.token.connection;
        let has_room = ready.writable && self.connection(number).watched_for_room;
        if let Some(over) = has_room.then(|| self.write(number, woken)).flatten() {
            return Some((over, woken));
        }
        self.woken = woken;
        let is_same = self.connection(number).token == ready.token;
        (ready.readable && is_same).then(|| self.read(number)).flatten()
    }

    fn connected(&mut self, number: u32, now: u64) -> Option<Over> {
        self.has_acted = true;
        let socket = self.connection(number).wire.as_ref().map(|wire| wire.socket.take_error());
        match socket {
            Some(Ok(None)) => {
                self.opened += 1;
                self.write(number, now)
            }
            Some(Ok(Some(error)) | Err(error)) => self.unconnected(number, now, &error),
            None => None,
        }
    }

    /// No connection was made.
    fn unconnected(&mut self, number: u32, now: u64, error: &io::Error) -> Option<Over> {
        let failure = if has_no_port(error) { Failure::NoPort } else { Failure::Connect };
        self.fail(number, now, failure, error)
    }

    /// Sends as much of the request as the socket takes.
    fn write(&mut self, number: u32, now: u64) -> Option<Over> {
        let connection = &mut self.connections[number as usize];
        let wire = connection.wire.as_mut()?;
        connection.phase = Phase::InFlight;
        let rest = &self.requests.get(connection.request)[connection.written..];
        let is_timed =
            self.until_timed == 0 && connection.was_used && connection.written == 0 && wire.times_departure();
        let begun = if is_timed { monotonic() } else { now };
        let written = if rest.is_empty() { wire.flush().map(|()| 0) } else { wire.write(rest) };
        if is_timed {
            // Where requests leave later than they are sent, this one tells so by an event of its socket, and no other is asked.
            let left = wire.departed().map(|ago| monotonic().saturating_sub(ago));
            self.until_timed = if left.is_some() { TIMED } else { u32::MAX };
            left.into_iter().for_each(|left| self.leaving.add(left.saturating_sub(begun)));
        } else if self.until_timed < u32::MAX {
            self.until_timed = self.until_timed.saturating_sub(1);
        }
        match written {
            Ok(length) => {
                connection.written += length;
                self.has_acted |= length > 0;
                self.watch(number, now)
            }
            Err(error) => self.fail(number, now, Failure::Closed, error),
        }
    }

    /// Watches the socket for room exactly while there is something to send.
    fn watch(&mut self, number: u32, now: u64) -> Option<Over> {
        let connection = &mut self.connections[number as usize];
        let wire = connection.wire.as_ref()?;
        let wants = connection.written < self.requests.get(connection.request).len() || wire.wants_write();
        if wants == connection.watched_for_room {
            return None;
        }
        connection.watched_for_room = wants;
        self.has_acted = true;
        let wanted = if wants { Wanted::ReadOrWrite } else { Wanted::Read };
        match self.poll.change(wire, connection.token, wanted) {
            Ok(()) => None,
            Err(error) => self.fail(number, now, Failure::Closed, error),
        }
    }

    /// Reads what has come, up to the end of the answer.
    fn read(&mut self, number: u32) -> Option<(Over, u64)> {
        let mut reads = 0;
        loop {
            // Beyond so many only what TLS has decrypted already: the socket does not tell of that again.
            if let ControlFlow::Break(over) = self.read_once(number, reads < READS) {
                return over;
            }
            reads += 1;
        }
    }

    fn read_once(&mut self, number: u32, may_take: bool) -> ControlFlow<Option<(Over, u64)>> {
        let Some(wire) = self.connections[number as usize].wire.as_mut() else { return ControlFlow::Break(None) };
        let read = wire.read(&mut self.buffer, may_take);
        // Before anything is done with the bytes: that is the generator's time.
        let now = monotonic();
        // Of TLS a part of a record may have been taken, which gives no bytes yet.
        self.has_acted |= !wire.is_plain() || !matches!(&read, Err(error) if error.kind() == ErrorKind::WouldBlock);
        let over = match read {
            Ok(Arrived { length: 0, .. }) => self.ended(number, now),
            Ok(arrived) => match self.came(number, arrived, now) {
                ControlFlow::Break(over) => over,
                ControlFlow::Continue(()) => return ControlFlow::Continue(()),
            },
            Err(error) if error.kind() == ErrorKind::Interrupted => return ControlFlow::Continue(()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => self.watch(number, now),
            Err(error) => self.broken(number, now, &error),
        };
        ControlFlow::Break(over.map(|over| (over, now)))
    }

    /// For how long what has just been read had been there: from when it came, or from when the loop was woken up. A clock that was
    /// set makes no answer come before its request.
    fn unread(&self, number: u32, arrived: Arrived, now: u64) -> u64 {
        let sent = self.connections[number as usize].times.sent;
        let unread = if arrived.at.is_some() { arrived.waited() } else { now - self.woken };
        unread.min(now.saturating_sub(sent))
    }

    /// Takes what has arrived from the buffer. It is counted from when it came, however late it is read.
    fn came(&mut self, number: u32, arrived: Arrived, now: u64) -> ControlFlow<Option<Over>> {
        let unread = self.unread(number, arrived, now);
        let (length, is_timed) = (arrived.length, arrived.at.is_some());
        let at = if is_timed { now - unread } else { now };
        let connection = &mut self.connections[number as usize];
        let hasher = &mut connection.hasher;
        let tally = &mut self.tally;
        let fed = connection.exchange.feed(&self.buffer[..length], &mut |body| {
            tally.came(at, body.len() as u64);
            if let Some(hasher) = hasher {
                hasher.update(body);
            }
        });
        let is_plain = connection.wire.as_ref().is_some_and(Wire::is_plain);
        ControlFlow::Break(match fed {
            Ok(Some(answer)) => {
                self.unread.add(unread);
                self.queued.add(now - self.woken);
                // Where it is not known when an answer came, its response time ends when it was read.
                connection.times.own += if is_timed { 0 } else { unread };
                Some(self.answer(number, at, answer))
            }
            Err(wrong) => self.fail(number, now, Failure::Malformed, wrong),
            // A plain socket that did not fill the buffer has no more.
            Ok(None) if is_plain && length < self.buffer.len() => None,
            Ok(None) => return ControlFlow::Continue(()),
        })
    }

    /// An answer is whole.
    fn answer(&mut self, number: u32, now: u64, answer: Answer) -> Over {
        let connection = &mut self.connections[number as usize];
        let times = Times { over: now, ..connection.times };
        let hash = connection.hasher.as_ref().map(|hasher| hasher.finalize());
        let is_good = matches!(answer.status, 200..300 | 304);
        if !is_good {
            let said = || format!("status {}", answer.status);
            self.tally.failure(times, Failure::Status(answer.status), said);
        } else if !self.checker.is_right(connection.request, Known { length: answer.body, hash }) {
            let said = || format!("other bytes than expected, {} of them", answer.body);
            self.tally.failure(times, Failure::Wrong, said);
        } else {
            self.tally.answer(times, answer.body);
        }
        connection.phase = Phase::Idle;
        connection.was_used = true;
        // The rest of a request that was answered early would be read as the next one.
        if !answer.reusable || connection.watched_for_room {
            connection.close();
        }
        Over::Answered
    }

    /// The server has closed the connection.
    fn ended(&mut self, number: u32, now: u64) -> Option<Over> {
        match self.connection(number).exchange.end() {
            Ok(answer) => Some(self.answer(number, now, answer)),
            Err(Cut::Body) => self.fail(number, now, Failure::Short, "the body ended before its length"),
            Err(Cut::Head | Cut::Nothing) => {
                self.fail(number, now, Failure::Closed, "the server closed the connection without an answer")
            }
        }
    }

    /// The connection broke.
    fn broken(&mut self, number: u32, now: u64, error: &io::Error) -> Option<Over> {
        let connection = self.connection(number);
        let is_handshaking = connection.wire.as_ref().is_some_and(Wire::is_handshaking);
        let failure = match connection.exchange.end() {
            _ if is_handshaking => Failure::Connect,
            Err(Cut::Head | Cut::Nothing) => Failure::Closed,
            Ok(_) | Err(Cut::Body) => Failure::Short,
        };
        self.fail(number, now, failure, error)
    }

    /// A request brought no answer. It is sent again if the server may just have closed an idle connection.
    fn fail(&mut self, number: u32, now: u64, failure: Failure, said: impl Display) -> Option<Over> {
        let is_repeatable = failure == Failure::Closed && self.requests.repeatable;
        let connection = self.connection(number);
        let again = is_repeatable && connection.may_send_again();
        connection.close();
        if again {
            connection.rewind();
            connection.sent_again = true;
            self.sent_again += 1;
            return self.open(number, now);
        }
        connection.phase = Phase::Idle;
        let times = Times { over: now, ..connection.times };
        self.tally.failure(times, failure, || said.to_string());
        Some(match failure {
            Failure::Connect | Failure::NoPort | Failure::Closed => Over::Disconnected,
            _ => Over::Answered,
        })
    }

    /// Gives up a request that was sent longer ago than the limit; returns how it ended, if it did.
    pub(crate) fn time_out(&mut self, number: u32, now: u64, limit: u64) -> Option<Over> {
        let connection = self.connection(number);
        if connection.phase == Phase::Idle || now.saturating_sub(connection.times.sent) < limit {
            return None;
        }
        self.fail(number, now, Failure::TimedOut, "no answer within the time-out")
    }

    /// The figures so far.
    pub(crate) fn figures(&self) -> Load {
        Load { connections: self.opened, sent_again: self.sent_again, ..self.tally.figures() }
    }

    /// How many requests have no answer at the end; in an open loop each counts with the time that it has waited.
    pub(crate) fn in_flight_at(&mut self, now: u64) -> u64 {
        let in_flight = self.connections.iter().filter(|connection| connection.phase != Phase::Idle);
        let mut count = 0;
        for connection in in_flight {
            count += u64::from(self.tally.unanswered(Times { over: now, ..connection.times }));
        }
        count
    }
}
