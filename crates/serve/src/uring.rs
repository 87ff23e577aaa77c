//! Threads that each serve many connections by requests to an io_uring: one call submits what all of its connections want done, and
//! brings what was done meanwhile.
//!
//! What is accepted and received comes by itself, once that was asked for. A connection that waits has no buffer: what arrives lies
//! in one of the ring, and what a socket does not take at once is kept by nobody.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use kelvin_sys::net::waiting::unread;
use kelvin_sys::uring::sockets::{Chunk, Event, Id, Outcome, Readiness, Sockets, Within};
use rustix::io::Errno;
use rustix::net::{Shutdown, SocketFlags, accept_with, shutdown};

use crate::clients::{Clients, Serves};
use crate::connection::{Connection, Reading, Wants};
use crate::error::{Error, Result};
use crate::files::Opened;
use crate::hall::{Hall, LINGER, ROOM};
use crate::house::{House, SWEEP};
use crate::pace::Pace;
use crate::server::{LAST, LOOK, Served, close};
use crate::site::Site;
use crate::status::Status;

/// Bytes of a file that are read at a time, and sent from memory that stays in the cache.
const PIECE: usize = 64 << 10;
/// Connections that are accepted at the end.
const ACCEPTED: usize = 64 * LAST;
/// Pieces that are read or sent at one time; who wants one more waits for its turn. So memory does not grow with the number of
/// connections that are ready at one moment, and stays in the cache.
const PIECES: usize = 32;

/// What events are about: the listener, another thread, or the client of this number.
const LISTENER: u64 = u64::MAX;
const WAKER: u64 = u64::MAX - 1;

/// A file that is read.
struct Handle(Arc<Opened>);

impl AsFd for Handle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Whether there is a ring to be had.
///
/// # Errors
/// Why there is none.
pub fn probe() -> Result<()> {
    ring().map(drop)
}

fn ring() -> Result<Sockets<Handle>> {
    Sockets::new().map_err(|source| Error::Ring { source })
}

/// What a thread submits, and what it sends from.
struct Desk {
    ring: Sockets<Handle>,
    spare: Vec<Vec<u8>>,
    /// Pieces that are read or sent.
    pieces: usize,
    /// Clients who wait for their turn to have one.
    queue: VecDeque<u64>,
}

impl Desk {
    /// Submits what is wanted, and waits for what happens.
    fn wait(&mut self) {
        if self.ring.wait(SWEEP).is_err() {
            // Memory is lacking, and this thread does not spin meanwhile.
            std::thread::sleep(LOOK);
        }
    }

    fn keep(&mut self, mut buffer: Vec<u8>) {
        if self.spare.len() < PIECES {
            buffer.clear();
            self.spare.push(buffer);
        }
    }
}

/// What becomes of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// It waits for an event.
    Wait,
    /// It is gone.
    Gone,
}

/// A request of a client that is not done, and for which it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    /// Its answer is sent.
    Send(Id),
    /// A file is read, behind so many bytes of its answer.
    Read(Id, usize),
    /// It takes nothing.
    Await(Id),
    /// It is not its turn to have a piece of its file read.
    Queue,
}

/// A client.
pub struct Client {
    token: u64,
    socket: Arc<OwnedFd>,
    connection: Connection,
    /// The request by which bytes come.
    receiving: Option<Id>,
    doing: Option<Doing>,
    /// Whether a piece of a file is read or sent for it.
    has_piece: bool,
    /// Whether the client sends no more.
    has_ended: bool,
    /// Whether the server sends no more, and reads only that nothing is lost.
    lingers: bool,
    /// When it was last between two requests, began one, or took something.
    since: Instant,
    /// How it takes answers.
    pace: Pace,
}

/// A thread.
pub struct Worker {
    house: Arc<House>,
    hall: Hall,
    desk: Desk,
    clients: Clients<Client>,
    /// Clients so far, which tells one from another that had its number.
    serial: u32,
    /// The request by which connections come; none while there are no descriptors for them.
    accepting: Option<Id>,
    /// Whether the ring says when others have left something.
    is_watching: bool,
    /// Whether it was told to end, and has ended what is idle.
    has_drained: bool,
}

impl Worker {
    /// One of several, by the thread that is to serve.
    ///
    /// # Errors
    /// Those of io_uring.
    pub fn new(number: usize, house: Arc<House>, hall: Hall) -> Result<Self> {
        let desk = Desk { ring: ring()?, spare: Vec::new(), pieces: 0, queue: VecDeque::new() };
        let clients = Clients::none(number, Arc::clone(&house));
        let (serial, accepting, is_watching, has_drained) = Default::default();
        let mut worker = Self { house, hall, desk, clients, serial, accepting, is_watching, has_drained };
        worker.listen();
        worker.watch();
        Ok(worker)
    }

    /// Has the ring accept connections; if it cannot just now, it is asked again.
    fn listen(&mut self) {
        self.accepting = self.desk.ring.accept(LISTENER, &self.house.listener).ok();
    }

    /// Has it say when others have left something; likewise.
    fn watch(&mut self) {
        let waker = &self.clients.desk().waker;
        self.is_watching = self.desk.ring.await_ready(WAKER, waker, Readiness::Read).is_ok();
    }

    /// Serves until all is to end.
    pub fn serve(mut self) -> Served {
        while !self.is_done() {
            self.desk.wait();
            self.hall.site.tick(Instant::now());
            self.take_events();
            if self.house.is_over.load(Ordering::Acquire) {
                self.drain();
            }
            self.sweep();
        }
        self.hall.take_served()
    }

    fn take_events(&mut self) {
        while let Some(event) = self.desk.ring.next_event() {
            self.event(event);
        }
        while let Some(token) = self.desk.next() {
            let Some(number) = self.number(token) else { continue };
            self.desk.pieces += 1;
            let client = self.clients.get_mut(number);
            client.into_iter().for_each(|client| (client.doing, client.has_piece) = (None, true));
            self.drive(number);
        }
    }

    /// The number of a client, if it is still there.
    fn number(&self, token: u64) -> Option<usize> {
        let number = token as u32 as usize;
        self.clients.get(number).filter(|client| client.token == token).map(|_| number)
    }

    /// Whether it was told to end and has.
    fn is_done(&self) -> bool {
        self.has_drained && self.clients.are_done(self.hall.site.now())
    }

    /// Takes whoever has connected, accepts nobody further, and ends connections that are between two requests. What the ring has
    /// brought was taken before, so that nothing that has arrived is lost.
    fn drain(&mut self) {
        if !std::mem::replace(&mut self.has_drained, true) {
            let _ = self.accepting.map(|id| self.desk.ring.cancel(id));
            self.accept_last();
            close(&self.house.listener);
            self.admit();
            self.hall.site.is_draining = true;
        }
        for number in self.clients.numbers() {
            if self.clients.get(number).is_some_and(Client::is_idle) {
                self.remove(number);
            }
        }
    }

    /// Accepts who waits, without waiting for anybody.
    fn accept_last(&mut self) {
        let _ = self.house.listener.set_nonblocking(true);
        for _ in 0..ACCEPTED {
            match accept_with(&self.house.listener, SocketFlags::CLOEXEC) {
                Ok(socket) => self.place(socket),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(_) => return,
            }
        }
    }

    fn event(&mut self, Event { token, is_last, outcome }: Event) {
        match outcome {
            Outcome::Accepted(socket) => self.accepted(socket, is_last),
            Outcome::Ready(_) if token == WAKER => {
                self.admit();
                self.watch();
            }
            outcome => self.happened(token, is_last, outcome),
        }
    }

    fn accepted(&mut self, socket: std::io::Result<OwnedFd>, is_last: bool) {
        if is_last {
            self.accepting = None;
        }
        match socket.map_err(|error| Errno::from_io_error(&error)) {
            Ok(socket) => self.place(socket),
            // A connection that has ended meanwhile.
            Err(Some(Errno::CONNABORTED | Errno::PROTO | Errno::INTR)) => {}
            // Whoever waits goes on waiting, until it is looked again whether there are descriptors.
            Err(_) => {
                self.hall.site.release();
                self.hall.let_all_go();
                return;
            }
        }
        if self.accepting.is_none() && !self.has_drained {
            self.listen();
        }
    }

    /// Tells a client what happened, if it is still there.
    fn happened(&mut self, token: u64, is_last: bool, outcome: Outcome) {
        let number = self.number(token);
        let client = number.and_then(|number| Some((number, self.clients.get_mut(number)?)));
        let Some((number, client)) = client else { return self.desk.forget(outcome) };
        if is_last && matches!(outcome, Outcome::Received(_)) {
            client.receiving = None;
        }
        if client.happened(outcome, (&mut self.hall, &mut self.desk), &self.house.is_over) == Next::Gone {
            self.remove(number);
        }
    }

    /// Does for a client what can be done now.
    fn drive(&mut self, number: usize) {
        let Some(client) = self.clients.get_mut(number) else { return };
        if client.drive((&mut self.hall, &mut self.desk), &self.house.is_over) == Next::Gone {
            self.remove(number);
        }
    }

    fn remove(&mut self, number: usize) {
        let Some(client) = self.clients.remove(number) else { return };
        self.desk.pieces -= usize::from(client.has_piece);
        // The socket is closed when the ring has no request for it.
        let doing = client.doing.and_then(|doing| match doing {
            Doing::Send(id) | Doing::Read(id, _) | Doing::Await(id) => Some(id),
            Doing::Queue => None,
        });
        for id in client.receiving.into_iter().chain(doing) {
            let _ = self.desk.ring.cancel(id);
        }
    }

    /// Ends connections whose time is over, and has the ring do again what it could not.
    fn sweep(&mut self) {
        let now = self.hall.site.now();
        if !self.clients.are_to_be_swept(now) {
            return;
        }
        self.hall.let_go(now);
        for number in self.clients.numbers() {
            let Some(client) = self.clients.get_mut(number) else { continue };
            if client.is_late((&mut self.hall, &mut self.desk), &self.house.is_over) {
                self.remove(number);
            }
        }
        if self.accepting.is_none() && !self.has_drained {
            self.listen();
        }
        if !self.is_watching {
            self.admit();
            self.watch();
        }
    }
}

impl Serves for Worker {
    type Client = Client;

    fn parts(&mut self) -> (&Clients<Client>, &mut Hall) {
        (&self.clients, &mut self.hall)
    }

    fn enter(&mut self, socket: OwnedFd) {
        self.serial = self.serial.wrapping_add(1);
        let connection = self.hall.connection(&socket, self.hall.register(&socket));
        let serial = u64::from(self.serial);
        let since = self.hall.site.now();
        let number = self.clients.enter(|number| {
            let token = serial << 32 | number as u64;
            let (receiving, doing, has_piece, has_ended, lingers) = Default::default();
            let socket = Arc::new(socket);
            let pace = Pace::begin(since, 0);
            Client { token, socket, connection, receiving, doing, has_piece, has_ended, lingers, since, pace }
        });
        self.drive(number);
    }
}

impl Desk {
    /// Who has his turn.
    fn next(&mut self) -> Option<u64> {
        if self.pieces < PIECES { self.queue.pop_front() } else { None }
    }

    /// Takes what comes for nobody.
    fn forget(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Received(Ok(Some(chunk))) => self.ring.give_back(chunk),
            Outcome::Sent(_, buffer) | Outcome::Read(_, buffer) => self.keep(buffer),
            _ => {}
        }
    }
}

/// What a client is served with.
type With<'a> = (&'a mut Hall, &'a mut Desk);

impl Client {
    fn happened(&mut self, outcome: Outcome, with: With<'_>, is_over: &AtomicBool) -> Next {
        match outcome {
            Outcome::Received(received) => self.received(received, with, is_over),
            Outcome::Sent(sent, buffer) => {
                self.doing = None;
                self.connection.take_back(buffer);
                self.sent(sent.map_err(errno), with, is_over)
            }
            Outcome::Read(read, buffer) => {
                let begin = if let Some(Doing::Read(_, begin)) = self.doing.take() { begin } else { buffer.len() };
                self.connection.take_back(buffer);
                let read = self.connection.end_read(begin, read.map_err(errno));
                if read.is_ok() { self.give(Vec::new(), with.1) } else { Next::Gone }
            }
            Outcome::Ready(_) | Outcome::Accepted(_) => {
                self.doing = None;
                self.drive(with, is_over)
            }
        }
    }

    fn received(&mut self, received: std::io::Result<Option<Chunk>>, with: With<'_>, is_over: &AtomicBool) -> Next {
        match received.map_err(errno) {
            Ok(Some(chunk)) => return self.take(chunk, with, is_over),
            Ok(None) => self.has_ended = true,
            // Of buffers, for a moment; or it was cancelled, because enough has come.
            Err(Errno::NOBUFS | Errno::CANCELED | Errno::INTR | Errno::AGAIN) => {}
            Err(_) => return Next::Gone,
        }
        self.drive(with, is_over)
    }

    /// Takes what has arrived, now or, while its answer is with the ring, for later.
    fn take(&mut self, chunk: Chunk, (hall, desk): With<'_>, is_over: &AtomicBool) -> Next {
        if self.doing.is_none() {
            self.connection.lend(&mut hall.buffers);
            self.keep(chunk, (hall, desk));
            return self.drive_lent((hall, desk), is_over);
        }
        self.keep(chunk, (hall, desk));
        if self.connection.waiting() > hall.site.limits().head + ROOM {
            // Who sends and does not read has enough of it here.
            let _ = self.receiving.map(|id| desk.ring.cancel(id));
        }
        Next::Wait
    }

    fn keep(&mut self, chunk: Chunk, (hall, desk): With<'_>) {
        if !self.lingers {
            if !self.connection.has_begun() {
                self.since = hall.site.now();
            }
            let bytes = desk.ring.bytes(&chunk);
            self.connection.buffer(bytes.len()).extend_from_slice(bytes);
            self.connection.received_late(bytes.len(), chunk.arrived().waited());
        }
        desk.ring.give_back(chunk);
    }

    fn sent(&mut self, sent: rustix::io::Result<usize>, (hall, desk): With<'_>, is_over: &AtomicBool) -> Next {
        match sent {
            Ok(sent) => {
                hall.served.bytes += sent as u64;
                self.since = hall.site.now();
                self.connection.sent(sent);
                match self.connection.emptied() {
                    None => self.give(Vec::new(), desk),
                    Some(buffer) => {
                        self.end_piece(buffer, desk);
                        self.drive((hall, desk), is_over)
                    }
                }
            }
            Err(Errno::AGAIN) => self.await_room(desk),
            Err(Errno::INTR) => self.give(Vec::new(), desk),
            Err(_) => Next::Gone,
        }
    }

    fn end_piece(&mut self, buffer: Vec<u8>, desk: &mut Desk) {
        desk.pieces -= usize::from(std::mem::take(&mut self.has_piece));
        desk.keep(buffer);
    }

    /// Waits until the client takes something; what was read for it is read again then.
    fn await_room(&mut self, desk: &mut Desk) -> Next {
        let buffer = self.connection.set_aside();
        self.end_piece(buffer, desk);
        let asked = desk.ring.await_ready(self.token, &self.socket, Readiness::Write);
        self.doing = asked.ok().map(Doing::Await);
        if self.doing.is_some() { Next::Wait } else { Next::Gone }
    }

    /// Does what can be done now, with large buffers that it gives back.
    fn drive(&mut self, (hall, desk): With<'_>, is_over: &AtomicBool) -> Next {
        if self.doing.is_some() {
            return Next::Wait;
        }
        self.connection.lend(&mut hall.buffers);
        self.drive_lent((hall, desk), is_over)
    }

    fn drive_lent(&mut self, (hall, desk): With<'_>, is_over: &AtomicBool) -> Next {
        let answered = self.connection.answered();
        let next = self.go_on((hall, desk), is_over);
        hall.served.requests += self.connection.answered() - answered;
        self.connection.give_back(&mut hall.buffers);
        next
    }

    fn go_on(&mut self, (hall, desk): With<'_>, is_over: &AtomicBool) -> Next {
        loop {
            match self.connection.wants() {
                Wants::End | Wants::Receive if self.has_ended => return Next::Gone,
                _ if self.lingers => return self.receive(desk),
                Wants::Send if self.is_queued(desk) => return Next::Wait,
                Wants::Send => return self.give(desk.spare.pop().unwrap_or_default(), desk),
                Wants::Advance => {
                    hall.site.is_draining = is_over.load(Ordering::Acquire);
                    self.connection.advance(&mut hall.site);
                }
                Wants::Receive => return self.receive(desk),
                Wants::End => self.end(hall),
            }
        }
    }

    /// Has the ring receive, unless it does already.
    fn receive(&mut self, desk: &mut Desk) -> Next {
        if self.receiving.is_none() {
            let receiving = match self.connection.is_watched() {
                true => desk.ring.receive_with_time(self.token, &self.socket),
                false => desk.ring.receive(self.token, &self.socket),
            };
            self.receiving = receiving.ok();
        }
        if self.receiving.is_some() { Next::Wait } else { Next::Gone }
    }

    /// Whether it waits for its turn to have a piece of its file read, behind those who wait already.
    fn is_queued(&mut self, desk: &mut Desk) -> bool {
        if self.has_piece || !self.connection.is_to_be_read() {
            return false;
        }
        self.has_piece = desk.pieces < PIECES && desk.queue.is_empty();
        if self.has_piece {
            desk.pieces += 1;
        } else {
            desk.queue.push_back(self.token);
            self.doing = Some(Doing::Queue);
        }
        !self.has_piece
    }

    /// Has the ring read what is to be sent next, or send it, and has a spare buffer meanwhile.
    fn give(&mut self, spare: Vec<u8>, desk: &mut Desk) -> Next {
        let reading = self.connection.begin_read(PIECE);
        let (buffer, sent) = self.connection.part_with(spare);
        let asked = match reading {
            None => desk.ring.send(self.token, &self.socket, (buffer, sent)).map(Doing::Send),
            Some(Reading { opened, offset, begin, bytes }) => {
                let to = (buffer, Within { begin, bytes });
                desk.ring.read(self.token, (Handle(opened), offset), to).map(|id| Doing::Read(id, begin))
            }
        };
        self.doing = asked.ok();
        if self.doing.is_some() { Next::Wait } else { Next::Gone }
    }

    /// Sends no more.
    fn end(&mut self, hall: &Hall) {
        let _ = shutdown(&self.socket, Shutdown::Write);
        (self.lingers, self.since) = (true, hall.site.now());
    }

    /// Whether it is between two requests, and nothing of the next has arrived.
    fn is_idle(&self) -> bool {
        let is_free = self.doing.is_none() && !self.lingers;
        is_free
            && self.connection.wants() == Wants::Receive
            && !self.connection.has_begun()
            && unread(&self.socket).is_ok_and(|bytes| bytes == 0)
    }

    /// Whether its time is over; one whose request has not come in time is told so.
    fn is_late(&mut self, (hall, desk): With<'_>, is_over: &AtomicBool) -> bool {
        let limits = *hall.site.limits();
        let waited = hall.site.now().saturating_duration_since(self.since);
        let is_receiving = self.doing.is_none() && self.connection.wants() == Wants::Receive;
        match () {
            () if self.lingers => waited >= LINGER,
            () if is_receiving && self.connection.has_begun() && waited >= limits.request => {
                self.connection.refuse(Status::RequestTimeout, &hall.site);
                self.drive((hall, desk), is_over) == Next::Gone
            }
            () => waited >= limits.idle || self.is_too_slow(&hall.site),
        }
    }

    /// Whether it takes too little of its answers.
    fn is_too_slow(&mut self, site: &Site) -> bool {
        let state = (site.now(), self.connection.given());
        if self.doing.is_some() || self.connection.wants() == Wants::Send {
            return self.pace.is_too_slow(state, site.limits().progress);
        }
        self.pace = Pace::begin(state.0, state.1);
        false
    }
}

fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}
