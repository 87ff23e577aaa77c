//! Threads that each serve many connections as they become ready: epoll, by edges, so that a request costs one wait, one receive
//! and one send.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown, SocketFlags, accept_with, recv, shutdown};

use crate::clients::{Clients, Serves};
use crate::connection::{Connection, Wants};
use crate::error::{Error, Result};
use crate::hall::{Hall, LINGER, ROOM};
use crate::house::{House, SWEEP};
use crate::pace::Pace;
use crate::receiving::receive;
use crate::server::{LAST, Served, close};
use crate::site::Site;
use crate::status::Status;

/// Events that are taken at a time.
const EVENTS: usize = 256;
/// Bytes that one connection may send before others get their turn.
const TURN: usize = 4 << 20;
/// Connections that are accepted before others get their turn.
const ACCEPTED: usize = 64;

/// What events are about: the listener, another thread, or the client of this number.
const LISTENER: u64 = u64::MAX;
const WAKER: u64 = u64::MAX - 1;

/// A client.
#[derive(Debug)]
pub struct Client {
    socket: OwnedFd,
    connection: Connection,
    /// Whether something may be there to be received: epoll says so once.
    is_readable: bool,
    /// Whether the client sends no more.
    has_ended: bool,
    /// Whether the server sends no more, and reads only that nothing is lost.
    lingers: bool,
    /// Whether it is to go on when others have had their turn.
    is_queued: bool,
    /// When it was last between two requests, began one, or took something.
    since: Instant,
    /// How it takes answers.
    pace: Pace,
}

/// What becomes of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// It waits for an event.
    Wait,
    /// It goes on when others have had their turn.
    Again,
    /// It is gone.
    Gone,
}

/// A thread.
#[derive(Debug)]
pub struct Worker {
    house: Arc<House>,
    epoll: OwnedFd,
    hall: Hall,
    clients: Clients<Client>,
    again: VecDeque<usize>,
    /// Whether connections are accepted just now; not while there are no descriptors for them.
    accepts: bool,
    /// Whether it was told to end, and has ended what is idle.
    has_drained: bool,
}

impl Worker {
    /// One of several.
    ///
    /// # Errors
    /// Those of epoll.
    pub fn new(number: usize, house: Arc<House>, hall: Hall) -> Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(Error::call("wait for events"))?;
        let clients = Clients::none(number, Arc::clone(&house));
        epoll::add(&epoll, &*clients.desk().waker, EventData::new_u64(WAKER), EventFlags::IN)
            .map_err(Error::call("wait for events"))?;
        let (again, accepts, has_drained) = Default::default();
        let mut worker = Self { house, epoll, hall, clients, again, accepts, has_drained };
        worker.listen().map_err(Error::call("wait for connections"))?;
        Ok(worker)
    }

    fn listen(&mut self) -> rustix::io::Result<()> {
        let flags = EventFlags::IN | EventFlags::EXCLUSIVE;
        epoll::add(&self.epoll, &self.house.listener, EventData::new_u64(LISTENER), flags)?;
        self.accepts = true;
        Ok(())
    }

    fn pause(&mut self) {
        if std::mem::take(&mut self.accepts) {
            let _ = epoll::delete(&self.epoll, &self.house.listener);
        }
    }

    /// Serves until all is to end.
    pub fn serve(mut self) -> Served {
        let mut events = Vec::with_capacity(EVENTS);
        while !self.is_done() {
            events.clear();
            let timeout = Timespec::try_from(if self.again.is_empty() { SWEEP } else { Duration::ZERO });
            // A signal is for another thread, and nothing else can fail.
            let _ = epoll::wait(&self.epoll, spare_capacity(&mut events), timeout.ok().as_ref());
            self.hall.site.tick(Instant::now());
            self.drain_if_over();
            for event in &events {
                self.event(event.data.u64(), event.flags);
            }
            for _ in 0..self.again.len() {
                let number = self.again.pop_front();
                number.into_iter().for_each(|number| self.go_on(number));
            }
            self.sweep();
        }
        self.hall.take_served()
    }

    /// Whether it was told to end and has.
    fn is_done(&mut self) -> bool {
        self.drain_if_over();
        self.has_drained && self.clients.are_done(self.hall.site.now())
    }

    /// From when on every answer is the last one of its connection.
    fn drain_if_over(&mut self) {
        if !self.has_drained && self.house.is_over.load(Ordering::Acquire) {
            self.drain();
        }
    }

    /// Takes whoever has connected, accepts nobody further, and ends connections that are between two requests.
    fn drain(&mut self) {
        for _ in 0..LAST {
            if !self.accept() {
                break;
            }
        }
        self.pause();
        close(&self.house.listener);
        self.admit();
        (self.hall.site.is_draining, self.has_drained) = (true, true);
        for number in self.clients.numbers() {
            // What has arrived is answered, even if its event is still to come.
            self.clients.get_mut(number).into_iter().for_each(|client| client.is_readable = true);
            self.drive(number);
        }
    }

    fn event(&mut self, about: u64, flags: EventFlags) {
        match about {
            LISTENER => drop(self.accept()),
            WAKER => self.admit(),
            number => {
                let Some(client) = self.clients.get_mut(number as usize) else { return };
                client.is_readable |=
                    flags.intersects(EventFlags::IN | EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
                // An error hangs up too. Alone it tells of a message in the error queue, which is the watch's.
                client.has_ended |= flags.intersects(EventFlags::RDHUP | EventFlags::HUP);
                if !client.is_queued {
                    self.drive(number as usize);
                }
            }
        }
    }

    /// Accepts some; `false` if nobody waits, or nobody can be accepted.
    fn accept(&mut self) -> bool {
        for _ in 0..ACCEPTED {
            match accept_with(&self.house.listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok(socket) => self.place(socket),
                Err(Errno::AGAIN) => return false,
                // Whoever waits goes on waiting: no thread is woken for it again and again.
                Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS) => {
                    self.hall.site.release();
                    self.hall.let_all_go();
                    self.pause();
                    return false;
                }
                // A connection that has ended meanwhile, or what else accept says about one.
                Err(_) => {}
            }
        }
        true
    }

    /// Does for a client what can be done now.
    #[inline]
    fn drive(&mut self, number: usize) {
        let Some(client) = self.clients.get_mut(number) else { return };
        match client.drive(&mut self.hall, &self.house.is_over) {
            Next::Wait if self.hall.site.is_draining && client.is_idle() => self.remove(number),
            Next::Wait => {}
            Next::Again => {
                // Once, however often it is driven: who sends much has no more turns than others.
                if !std::mem::replace(&mut client.is_queued, true) {
                    self.again.push_back(number);
                }
            }
            Next::Gone => self.remove(number),
        }
    }

    /// Gives a client its next turn.
    fn go_on(&mut self, number: usize) {
        if let Some(client) = self.clients.get_mut(number) {
            client.is_queued = false;
            self.drive(number);
        }
    }

    fn remove(&mut self, number: usize) {
        drop(self.clients.remove(number));
    }

    /// Ends connections whose time is over, and accepts again if it was paused.
    fn sweep(&mut self) {
        let now = self.hall.site.now();
        if !self.clients.are_to_be_swept(now) {
            return;
        }
        self.hall.let_go(now);
        for number in self.clients.numbers() {
            let Some(client) = self.clients.get_mut(number) else { continue };
            if client.is_late(&mut self.hall, &self.house.is_over) {
                self.remove(number);
            }
        }
        if !self.accepts && !self.hall.site.is_draining {
            let _ = self.listen();
        }
    }
}

impl Serves for Worker {
    type Client = Client;

    fn parts(&mut self) -> (&Clients<Client>, &mut Hall) {
        (&self.clients, &mut self.hall)
    }

    fn enter(&mut self, socket: OwnedFd) {
        let Self { clients, hall, epoll, .. } = self;
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        let mut is_added = false;
        let number = clients.enter(|number| {
            let registered = hall.register(&socket);
            is_added = epoll::add(&*epoll, &socket, EventData::new_u64(number as u64), flags).is_ok();
            let connection = hall.connection(&socket, registered);
            Client::new(socket, connection, hall.site.now())
        });
        // Its request is here soon enough to be waited for: most often it is here already, and the event says so.
        if !is_added {
            self.remove(number);
        }
    }
}

impl Client {
    fn new(socket: OwnedFd, connection: Connection, since: Instant) -> Self {
        let (is_readable, has_ended, lingers, is_queued) = Default::default();
        let pace = Pace::begin(since, 0);
        Self { socket, connection, is_readable, has_ended, lingers, is_queued, since, pace }
    }

    /// Whether it is between two requests.
    fn is_idle(&self) -> bool {
        self.connection.wants() == Wants::Receive && !self.connection.has_begun()
    }

    /// Does what can be done now, with large buffers that it gives back.
    #[inline]
    fn drive(&mut self, hall: &mut Hall, is_over: &AtomicBool) -> Next {
        self.connection.lend(&mut hall.buffers);
        let answered = self.connection.answered();
        let next = self.go_on(hall, is_over);
        hall.served.requests += self.connection.answered() - answered;
        self.connection.give_back(&mut hall.buffers);
        next
    }

    fn go_on(&mut self, hall: &mut Hall, is_over: &AtomicBool) -> Next {
        let mut turn = TURN;
        loop {
            match self.connection.wants() {
                _ if self.lingers => return self.discard(hall),
                Wants::Send => match self.send(hall) {
                    Ok(sent) => turn = turn.saturating_sub(sent),
                    Err(Errno::INTR) => {}
                    Err(Errno::AGAIN) => return Next::Wait,
                    Err(_) => return Next::Gone,
                },
                _ if turn == 0 => return Next::Again,
                Wants::Advance => {
                    // Also in the middle of a turn: it may last until long after the server was told to end.
                    hall.site.is_draining = is_over.load(Ordering::Acquire);
                    self.connection.advance(&mut hall.site);
                }
                Wants::Receive if !self.is_readable => return Next::Wait,
                Wants::Receive => match self.receive(hall) {
                    Ok(true) => {}
                    Ok(false) | Err(_) => return Next::Gone,
                },
                Wants::End => self.end(hall),
            }
        }
    }

    /// Sends some of what is to be sent: how many bytes.
    #[inline]
    fn send(&mut self, hall: &mut Hall) -> rustix::io::Result<usize> {
        let sent = hall.sending.send_some(&mut self.connection, &self.socket)?;
        hall.served.bytes += sent as u64;
        self.since = hall.site.now();
        Ok(sent)
    }

    /// Receives what is there; `false` at the end.
    fn receive(&mut self, hall: &mut Hall) -> rustix::io::Result<bool> {
        let had_begun = self.connection.has_begun();
        let received = receive(&mut self.connection, &self.socket);
        if received.is_ok() {
            hall.sending.received(&mut self.connection);
        }
        match received {
            Ok(0) => Ok(false),
            Ok(received) => {
                // What is less than the room was all; a later arrival is another edge. Only an end has none of its own.
                self.is_readable = self.has_ended || received >= ROOM;
                if !had_begun {
                    self.since = hall.site.now();
                }
                Ok(true)
            }
            Err(Errno::AGAIN) => {
                self.is_readable = false;
                Ok(true)
            }
            Err(Errno::INTR) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Sends no more.
    fn end(&mut self, hall: &Hall) {
        let _ = shutdown(&self.socket, Shutdown::Write);
        (self.lingers, self.is_readable, self.since) = (true, true, hall.site.now());
    }

    /// Reads and drops what a client still sends.
    fn discard(&mut self, _: &mut Hall) -> Next {
        let mut nothing = [0; 4096];
        for _ in 0..ACCEPTED {
            match recv(&self.socket, &mut nothing, RecvFlags::empty()) {
                Ok((_, 0)) => return Next::Gone,
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Next::Wait,
                Err(_) => return Next::Gone,
            }
        }
        Next::Again
    }

    /// Whether its time is over; one whose request has not come in time is told so.
    fn is_late(&mut self, hall: &mut Hall, is_over: &AtomicBool) -> bool {
        let limits = *hall.site.limits();
        let waited = hall.site.now().saturating_duration_since(self.since);
        let is_receiving = self.connection.wants() == Wants::Receive;
        match () {
            () if self.lingers => waited >= LINGER,
            () if is_receiving && self.connection.has_begun() && waited >= limits.request => {
                self.connection.refuse(Status::RequestTimeout, &hall.site);
                self.drive(hall, is_over) == Next::Gone
            }
            () => waited >= limits.idle || self.is_too_slow(&hall.site),
        }
    }

    /// Whether it takes too little of its answers.
    fn is_too_slow(&mut self, site: &Site) -> bool {
        let state = (site.now(), self.connection.given());
        if self.connection.wants() == Wants::Send {
            return self.pace.is_too_slow(state, site.limits().progress);
        }
        self.pace = Pace::begin(state.0, state.1);
        false
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::server::{Server, Setup};

    const REQUEST: &[u8] = b"GET /a HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
    /// Connections of a thread that gets no more, wherever the client is.
    const MANY: u32 = 10;

    /// Two threads that do not run yet, of a site with a file.
    fn workers() -> (tempfile::TempDir, Arc<House>, [Worker; 2]) {
        let top = tempfile::tempdir().unwrap();
        std::fs::write(top.path().join("a"), "content").unwrap();
        let server = Server::listen("127.0.0.1:0".parse().unwrap(), top.path(), Setup::of(2)).unwrap();
        let (house, make) = server.house_of_events().unwrap();
        let workers = [0, 1].map(|number| Worker::new(number, Arc::clone(&house), make()).unwrap());
        (top, house, workers)
    }

    /// A client that has asked and sends no more, and its other end.
    fn client() -> (TcpStream, OwnedFd) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, _) = listener.accept().unwrap();
        socket.set_nonblocking(true).unwrap();
        client.write_all(REQUEST).unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        (client, socket.into())
    }

    fn rest(mut client: TcpStream) -> String {
        let mut all = String::new();
        client.read_to_string(&mut all).unwrap();
        all
    }

    #[test]
    fn a_connection_for_a_thread_that_has_gone_is_served_by_the_one_that_accepted_it() {
        let (_top, house, [mut first, mut second]) = workers();
        house.end(Instant::now() + Duration::from_secs(60));
        assert!(second.is_done());
        house.desks[0].load.store(MANY, Ordering::Relaxed);
        let (client, socket) = client();
        first.place(socket);
        house.desks[0].load.fetch_sub(MANY, Ordering::Relaxed);
        assert_eq!((house.load(), first.serve().requests), (1, 1));
        let told = rest(client);
        assert!(told.contains("\r\nConnection: close\r\n") && told.ends_with("content"), "{told}");
        assert_eq!(house.load(), 0);
    }

    #[test]
    fn a_thread_does_not_go_while_a_connection_waits_for_it() {
        let (_top, house, [mut first, mut second]) = workers();
        house.end(Instant::now() + Duration::from_secs(60));
        second.drain_if_over();
        house.desks[0].load.store(MANY, Ordering::Relaxed);
        let (client, socket) = client();
        first.place(socket);
        assert!(!second.is_done());
        assert_eq!(second.serve().requests, 1);
        assert!(rest(client).ends_with("content"));
    }
}
