//! What goes over connections of HTTP/1.1: requests out, answers in, each counted when it is over.

use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::ops::ControlFlow;

use kelvin_sys::clock::monotonic;
use kelvin_sys::net::rx_timestamp::TimedRead;
use kelvin_transfer::wire::Hasher;
use rustix::event::epoll::EventFlags;

use crate::load::error::Result;
use crate::load::load_run::LoadRun;
use crate::load::load_share::LoadShare;
use crate::load::poll::connection_number;
use crate::load::request_pool::{EndedRequest, PoolState, RequestEnd, RequestPool};
use crate::load::request_stats::{RequestFailure, RequestTimestamps};
use crate::load::response_parser::{ParsedResponse, ResponseParser, TruncatedAt};
use crate::load::transport::{HttpTransport, has_no_port};
use crate::load::verify::{ExpectedBody, Verify};

/// Bytes that one call reads: large bodies in few calls, and still within a second-level cache.
const READ_BUFFER_BYTES: usize = 256 << 10;

/// One request of this many is looked at when it leaves, which costs some calls.
const DEPARTURE_SAMPLING: u32 = 100;

/// How often in a row a socket may be ready with nothing to be done. It would be ready for ever, and take a CPU.
pub(crate) const MAX_FUTILE_WAKEUPS: u32 = 1000;

pub(crate) const FUTILE_WAKEUPS_ERROR: &str = "its socket is ready again and again, and has nothing";

/// Reads of one connection before others have their turn.
const MAX_READS_PER_TURN: usize = 8;

/// What a connection is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nothing: no request, and maybe no socket.
    #[default]
    Idle,
    /// Waiting until it is connected, to send its request.
    Connecting,
    /// Sending its request, or waiting for the answer.
    InFlight,
}

/// One connection and the request on it.
#[derive(Debug, Default)]
pub(crate) struct LoadConnection {
    pub(crate) transport: Option<HttpTransport>,
    /// What its events carry: see [`connection_number`].
    pub(crate) token: u64,
    pub(crate) phase: Phase,
    pub(crate) parser: ResponseParser,
    /// Which request, and how many bytes of it were sent.
    pub(crate) request: usize,
    pub(crate) written_bytes: usize,
    /// When the request was due and sent.
    pub(crate) times: RequestTimestamps,
    /// Whether the socket is watched for room to write.
    pub(crate) watches_writable: bool,
    /// Whether an answer has come over this socket.
    pub(crate) was_used: bool,
    /// Whether the request was sent before, over a socket that the server had closed.
    pub(crate) is_retry: bool,
    /// How often in a row its socket was ready with nothing to be done.
    pub(crate) futile_wakeups: u32,
    /// When it was last free to take a request.
    pub(crate) free_since: u64,
    pub(crate) hasher: Option<Box<Hasher>>,
}

impl LoadConnection {
    pub(crate) fn new(number: u32, hashes: bool) -> Self {
        Self { token: u64::from(number), hasher: hashes.then(Box::default), ..Self::default() }
    }

    /// Nothing is sent of the request, and nothing has come.
    pub(crate) fn rewind(&mut self, head_only: bool) {
        self.written_bytes = 0;
        self.parser.restart(head_only);
        if let Some(hasher) = &mut self.hasher {
            hasher.reset();
        }
    }

    /// Closes the socket; what events of it are still to be seen belong to nobody.
    pub(crate) fn close(&mut self) {
        self.transport = None;
        self.was_used = false;
        self.watches_writable = false;
        self.futile_wakeups = 0;
        self.token = self.token.wrapping_add(1 << 32);
    }
}

/// The connections of one thread and what is counted of them.
pub(crate) struct ConnectionPool<'s> {
    run: &'s LoadRun<'s>,
    pub(crate) connections: Vec<LoadConnection>,
    pub(crate) state: PoolState,
    buffer: Vec<u8>,
    /// When the kernel reported the bytes that are being read.
    wake_time: u64,
    /// Requests until the next one whose departure delay is measured.
    requests_until_sample: u32,
}

impl<'s> ConnectionPool<'s> {
    fn connection(&mut self, number: u32) -> &mut LoadConnection {
        &mut self.connections[number as usize]
    }

    fn connect(&mut self, number: u32, now: u64) -> Option<RequestEnd> {
        let connection = &mut self.connections[number as usize];
        let result = HttpTransport::connect(self.run.peer).and_then(|transport| {
            self.state.poller.add(&transport, connection.token)?;
            Ok(transport)
        });
        match result {
            Ok(transport) => {
                connection.transport = Some(transport);
                connection.watches_writable = true;
                connection.phase = Phase::Connecting;
                None
            }
            Err(error) => self.on_connect_failure(number, now, &error),
        }
    }

    fn handle_event(&mut self, token: u64, flags: EventFlags, wake_time: u64) -> Option<(RequestEnd, u64)> {
        let number = connection_number(token);
        let connection = &mut self.connections[number as usize];
        if connection.token != token {
            return None;
        }
        // A message of the kernel about when a request left is taken: it would be an event of the socket for ever.
        // There is more than one message where the kernel sends a request again.
        if flags.contains(EventFlags::ERR)
            && connection.transport.as_ref().is_some_and(|transport| transport.transit_time().is_some())
        {
            self.state.has_progress = true;
            if !flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::RDHUP) {
                return None;
            }
        }
        // An error or the end of the connection is found by reading or writing.
        let has_failed = flags.intersects(EventFlags::ERR | EventFlags::HUP);
        let is_writable = has_failed || flags.contains(EventFlags::OUT);
        match connection.phase {
            Phase::Connecting if is_writable => {
                self.state.has_progress = true;
                let end = match connection.transport.as_ref()?.socket.take_error() {
                    Ok(None) => {
                        self.state.stats.connections += 1;
                        self.write_request(number, wake_time)
                    }
                    Ok(Some(error)) | Err(error) => self.on_connect_failure(number, wake_time, &error),
                };
                end.map(|end| (end, wake_time))
            }
            Phase::Connecting => None,
            Phase::Idle => {
                // The server has closed it, or speaks without being asked: neither is for the next request.
                connection.close();
                self.state.has_progress = true;
                None
            }
            Phase::InFlight => {
                if is_writable
                    && connection.watches_writable
                    && let Some(end) = self.write_request(number, wake_time)
                {
                    return Some((end, wake_time));
                }
                self.wake_time = wake_time;
                let is_readable = has_failed || flags.intersects(EventFlags::IN | EventFlags::RDHUP);
                if is_readable && self.connection(number).token == token { self.read_answer(number) } else { None }
            }
        }
    }

    /// No connection was made.
    fn on_connect_failure(&mut self, number: u32, now: u64, error: &io::Error) -> Option<RequestEnd> {
        let failure = if has_no_port(error) { RequestFailure::NoPort } else { RequestFailure::Connect };
        self.on_failure(number, now, failure, error)
    }

    /// Sends as much of the request as the socket takes.
    fn write_request(&mut self, number: u32, now: u64) -> Option<RequestEnd> {
        let connection = &mut self.connections[number as usize];
        let transport = connection.transport.as_mut()?;
        connection.phase = Phase::InFlight;
        let rest = &self.run.requests.get(connection.request).bytes[connection.written_bytes..];
        let is_timed = self.requests_until_sample == 0
            && connection.was_used
            && connection.written_bytes == 0
            && transport.enable_departure_times();
        let send_start = if is_timed { monotonic() } else { now };
        let result = if rest.is_empty() { transport.flush().map(|()| 0) } else { transport.write(rest) };
        if is_timed {
            // Where requests leave later than they are sent, this one shows it by an event of its socket, and no further one is timed.
            let departure = transport.transit_time().map(|transit| monotonic().saturating_sub(transit));
            self.requests_until_sample = if departure.is_some() { DEPARTURE_SAMPLING } else { u32::MAX };
            departure
                .into_iter()
                .for_each(|departure| self.state.stats.departure_delay.add(departure.saturating_sub(send_start)));
        } else if self.requests_until_sample < u32::MAX {
            self.requests_until_sample = self.requests_until_sample.saturating_sub(1);
        }
        match result {
            Ok(length) => {
                connection.written_bytes += length;
                self.state.has_progress |= length > 0;
                self.update_interest(number, now)
            }
            Err(error) => self.on_failure(number, now, RequestFailure::Closed, error),
        }
    }

    /// Watches the socket for room exactly while there is something to send.
    fn update_interest(&mut self, number: u32, now: u64) -> Option<RequestEnd> {
        let connection = &mut self.connections[number as usize];
        let transport = connection.transport.as_ref()?;
        let watches_writable = connection.written_bytes < self.run.requests.get(connection.request).bytes.len()
            || transport.session.as_ref().is_some_and(|session| session.wants_write());
        if watches_writable == connection.watches_writable {
            return None;
        }
        connection.watches_writable = watches_writable;
        self.state.has_progress = true;
        match self.state.poller.change(transport, connection.token, watches_writable) {
            Ok(()) => None,
            Err(error) => self.on_failure(number, now, RequestFailure::Closed, error),
        }
    }

    /// Reads what has come, up to the end of the answer; returns how its request ended and when, if it did.
    fn read_answer(&mut self, number: u32) -> Option<(RequestEnd, u64)> {
        for reads in 0.. {
            let transport = self.connections[number as usize].transport.as_mut()?;
            // Beyond this many only what TLS has decrypted already: the socket does not report that again.
            let read = transport.read(&mut self.buffer, reads < MAX_READS_PER_TURN);
            // Before anything is done with the bytes: that is the generator's time.
            let now = monotonic();
            // Of TLS a part of a record may have been taken, which gives no bytes yet.
            self.state.has_progress |=
                transport.session.is_some() || !matches!(&read, Err(error) if error.kind() == ErrorKind::WouldBlock);
            let end = match read {
                Ok(TimedRead { length: 0, .. }) => self.on_end(number, now, None),
                Ok(timed_read) => match self.on_bytes(number, timed_read, now) {
                    ControlFlow::Break(end) => end,
                    ControlFlow::Continue(()) => continue,
                },
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.update_interest(number, now),
                Err(error) => self.on_end(number, now, Some(error)),
            };
            return end.map(|end| (end, now));
        }
        None
    }

    /// Takes what has arrived from the buffer. It is counted from when it came, or from when the loop was woken up, however late it is
    /// read. A clock that was set makes no answer come before its request.
    fn on_bytes(&mut self, number: u32, timed_read: TimedRead, now: u64) -> ControlFlow<Option<RequestEnd>> {
        let connection = &mut self.connections[number as usize];
        let read_delay = if timed_read.arrival.is_some() { timed_read.delay() } else { now - self.wake_time };
        let read_delay = read_delay.min(now.saturating_sub(connection.times.sent));
        let (length, is_timed) = (timed_read.length, timed_read.arrival.is_some());
        let arrival = if is_timed { now - read_delay } else { now };
        let (hasher, stats) = (&mut connection.hasher, &mut self.state.stats);
        let parse_result = connection.parser.feed(&self.buffer[..length], &mut |body| {
            stats.add_received(arrival, body.len() as u64);
            if let Some(hasher) = hasher {
                hasher.update(body);
            }
        });
        let is_plaintext = connection.transport.as_ref().is_some_and(|transport| transport.session.is_none());
        ControlFlow::Break(match parse_result {
            Ok(Some(answer)) => {
                self.state.stats.read_delay.add(read_delay);
                self.state.stats.queue_delay.add(now - self.wake_time);
                // Where it is not known when an answer came, its response time ends when it was read.
                connection.times.generator_delay += if is_timed { 0 } else { read_delay };
                Some(self.on_answer(number, arrival, answer))
            }
            Err(error) => self.on_failure(number, now, RequestFailure::Malformed, error),
            // A plain socket that did not fill the buffer has no more.
            Ok(None) if is_plaintext && length < self.buffer.len() => None,
            Ok(None) => return ControlFlow::Continue(()),
        })
    }

    /// An answer is whole.
    fn on_answer(&mut self, number: u32, now: u64, answer: ParsedResponse) -> RequestEnd {
        let connection = &mut self.connections[number as usize];
        let times = RequestTimestamps { end: now, ..connection.times };
        let hash = connection.hasher.as_ref().map(|hasher| hasher.finalize());
        let is_success = matches!(answer.status, 200..300 | 304);
        if !is_success {
            let text = || format!("status {}", answer.status);
            self.state.stats.add_failure(times, RequestFailure::Status(answer.status), text);
        } else if !self.run.checker.check_body(connection.request, ExpectedBody { length: answer.body, hash }) {
            let text = || format!("other bytes than expected, {} of them", answer.body);
            self.state.stats.add_failure(times, RequestFailure::WrongBody, text);
        } else {
            self.state.stats.add_answer(times, answer.body);
        }
        connection.phase = Phase::Idle;
        connection.was_used = true;
        // The rest of a request that was answered early would be read as the next one.
        let is_reusable = answer.is_reusable && !self.run.setup.template.closes_connections;
        if !is_reusable || connection.watches_writable {
            connection.close();
        }
        RequestEnd::Answered
    }

    /// The server has closed the connection, or it broke by this error.
    fn on_end(&mut self, number: u32, now: u64, error: Option<io::Error>) -> Option<RequestEnd> {
        let connection = self.connection(number);
        let session = connection.transport.as_ref().and_then(|transport| transport.session.as_ref());
        let is_handshaking = session.is_some_and(|session| session.is_handshaking());
        let (failure, closed_text) = match connection.parser.finish() {
            Ok(answer) if error.is_none() => return Some(self.on_answer(number, now, answer)),
            _ if error.is_some() && is_handshaking => (RequestFailure::Connect, ""),
            Err(TruncatedAt::Head) => (RequestFailure::Closed, "the server closed the connection without an answer"),
            Ok(_) | Err(TruncatedAt::Body) => (RequestFailure::Truncated, "the body ended before its length"),
        };
        match error {
            Some(error) => self.on_failure(number, now, failure, error),
            None => self.on_failure(number, now, failure, closed_text),
        }
    }

    /// A request brought no answer. It is sent again if the server may just have closed an idle connection.
    fn on_failure(&mut self, number: u32, now: u64, failure: RequestFailure, text: impl Display) -> Option<RequestEnd> {
        let connection = &mut self.connections[number as usize];
        let request = self.run.requests.get(connection.request);
        let is_repeatable = failure == RequestFailure::Closed && request.is_idempotent;
        // The server closed a used connection before any byte of an answer, as it may at any time while it is idle (RFC 9112 9.3.1).
        let can_retry = is_repeatable && connection.was_used && !connection.is_retry && !connection.parser.has_begun;
        connection.close();
        if can_retry {
            connection.rewind(request.head_only);
            connection.is_retry = true;
            self.state.stats.resent += 1;
            return self.connect(number, now);
        }
        connection.phase = Phase::Idle;
        let times = RequestTimestamps { end: now, ..connection.times };
        self.state.stats.add_failure(times, failure, || text.to_string());
        Some(match failure {
            RequestFailure::Connect | RequestFailure::NoPort | RequestFailure::Closed => RequestEnd::Disconnected,
            _ => RequestEnd::Answered,
        })
    }
}

impl<'s> RequestPool<'s> for ConnectionPool<'s> {
    fn prepare(run: &'s LoadRun<'s>, share: LoadShare) -> Result<Self> {
        let setup = run.setup;
        let is_hashing = setup.verify == Verify::Content;
        let connection = |number| LoadConnection::new(number, is_hashing);
        Ok(Self {
            run,
            connections: (0..setup.slot_count(share)).map(connection).collect(),
            state: PoolState::new(setup)?,
            buffer: vec![0; READ_BUFFER_BYTES],
            wake_time: 0,
            requests_until_sample: 0,
        })
    }

    fn slot_count(&self) -> u32 {
        self.connections.len() as u32
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
        &mut self.connection(slot).free_since
    }

    fn send_request(&mut self, number: u32, request: usize, times: RequestTimestamps) -> Option<RequestEnd> {
        self.state.has_progress = true;
        let head_only = self.run.requests.get(request).head_only;
        let connection = self.connection(number);
        (connection.request, connection.times, connection.is_retry) = (request, times, false);
        connection.rewind(head_only);
        match connection.transport {
            Some(_) => self.write_request(number, times.sent),
            None => self.connect(number, times.sent),
        }
    }

    fn handle_ready(&mut self, token: u64, flags: EventFlags, wake_time: u64) -> Option<EndedRequest> {
        let had_progress = std::mem::take(&mut self.state.has_progress);
        let number = connection_number(token);
        let end = self.handle_event(token, flags, wake_time);
        let has_progress = std::mem::replace(&mut self.state.has_progress, true);
        let connection = self.connection(number);
        let is_futile = !has_progress && connection.token == token;
        connection.futile_wakeups = if is_futile { connection.futile_wakeups + 1 } else { 0 };
        if connection.futile_wakeups < MAX_FUTILE_WAKEUPS {
            self.state.has_progress = had_progress || has_progress;
            return end.map(|(end, time)| EndedRequest { slot: number, end, time });
        }
        let end = self.on_failure(number, wake_time, RequestFailure::Closed, FUTILE_WAKEUPS_ERROR);
        end.map(|end| EndedRequest { slot: number, end, time: wake_time })
    }

    fn time_out(&mut self, number: u32, now: u64, limit: u64) -> Option<RequestEnd> {
        let connection = self.connection(number);
        if connection.phase == Phase::Idle || now.saturating_sub(connection.times.sent) < limit {
            return None;
        }
        self.on_failure(number, now, RequestFailure::TimedOut, "no answer within the time-out")
    }

    fn add_unfinished(&mut self, now: u64) {
        for connection in self.connections.iter().filter(|connection| connection.phase != Phase::Idle) {
            self.state.stats.add_unfinished(RequestTimestamps { end: now, ..connection.times });
        }
    }
}
