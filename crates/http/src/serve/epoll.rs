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

use crate::serve::client_table::{ClientTable, EventLoop};
use crate::serve::connection::{Connection, NextIo};
use crate::serve::error::{Error, Result};
use crate::serve::receive::receive;
use crate::serve::send_progress::SendProgress;
use crate::serve::server::{FINAL_ACCEPTS, ServerTotals, close_listener};
use crate::serve::shared_state::{SWEEP_INTERVAL, SharedState};
use crate::serve::site::Site;
use crate::serve::status::Status;
use crate::serve::worker_context::{LINGER_TIMEOUT, RECEIVE_CHUNK, WorkerContext};

/// Events that are taken at a time.
const MAX_EVENTS: usize = 256;
/// Bytes that one connection may send before others get their turn.
const SEND_QUANTUM: usize = 4 << 20;
/// Connections that are accepted before others get their turn.
const ACCEPT_BATCH: usize = 64;

/// What events are about: the listener, another thread, or the client of this number.
const LISTENER_TOKEN: u64 = u64::MAX;
const WAKER_TOKEN: u64 = u64::MAX - 1;

/// A client.
#[derive(Debug)]
pub struct EpollClient {
    socket: OwnedFd,
    connection: Connection,
    /// Whether something may be there to be received: epoll says so once.
    is_readable: bool,
    /// Whether the client sends no more.
    has_ended: bool,
    /// Whether the server sends no more, and reads only that nothing is lost.
    is_lingering: bool,
    /// Whether it is to go on when others have had their turn.
    is_queued: bool,
    /// When it was last between two requests, began one, or took something.
    last_active: Instant,
    /// How it takes answers.
    progress: SendProgress,
}

/// What becomes of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EpollStep {
    /// It waits for an event.
    Wait,
    /// It goes on when others have had their turn.
    Requeue,
    /// It is gone.
    Gone,
}

/// A thread.
#[derive(Debug)]
pub struct EpollWorker {
    shared: Arc<SharedState>,
    epoll: OwnedFd,
    context: WorkerContext,
    clients: ClientTable<EpollClient>,
    run_queue: VecDeque<usize>,
    /// Whether connections are accepted just now; not while there are no descriptors for them.
    is_accepting: bool,
    /// Whether it was told to end, and has ended what is idle.
    has_drained: bool,
}

impl EpollWorker {
    /// One of several.
    ///
    /// # Errors
    /// Those of epoll.
    pub fn new(number: usize, house: Arc<SharedState>, hall: WorkerContext) -> Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(Error::call("wait for events"))?;
        let clients = ClientTable::new(number, Arc::clone(&house));
        epoll::add(&epoll, &*clients.inbox().waker, EventData::new_u64(WAKER_TOKEN), EventFlags::IN)
            .map_err(Error::call("wait for events"))?;
        let (again, accepts, has_drained) = Default::default();
        let mut worker =
            Self { shared: house, epoll, context: hall, clients, run_queue: again, is_accepting: accepts, has_drained };
        worker.listen().map_err(Error::call("wait for connections"))?;
        Ok(worker)
    }

    fn listen(&mut self) -> rustix::io::Result<()> {
        let flags = EventFlags::IN | EventFlags::EXCLUSIVE;
        epoll::add(&self.epoll, &self.shared.listener, EventData::new_u64(LISTENER_TOKEN), flags)?;
        self.is_accepting = true;
        Ok(())
    }

    fn pause_accepting(&mut self) {
        if std::mem::take(&mut self.is_accepting) {
            let _ = epoll::delete(&self.epoll, &self.shared.listener);
        }
    }

    /// Serves until all is to end.
    pub fn run(mut self) -> ServerTotals {
        let mut events = Vec::with_capacity(MAX_EVENTS);
        while !self.is_done() {
            events.clear();
            let timeout = Timespec::try_from(if self.run_queue.is_empty() { SWEEP_INTERVAL } else { Duration::ZERO });
            // A signal is for another thread, and nothing else can fail.
            let _ = epoll::wait(&self.epoll, spare_capacity(&mut events), timeout.ok().as_ref());
            self.context.site.tick(Instant::now());
            self.drain_on_shutdown();
            for event in &events {
                self.handle_event(event.data.u64(), event.flags);
            }
            for _ in 0..self.run_queue.len() {
                let number = self.run_queue.pop_front();
                number.into_iter().for_each(|number| self.step_client(number));
            }
            self.sweep();
        }
        self.context.take_stats()
    }

    /// Whether it was told to end and has.
    fn is_done(&mut self) -> bool {
        self.drain_on_shutdown();
        self.has_drained && self.clients.is_drained(self.context.site.now())
    }

    /// From when on every answer is the last one of its connection.
    fn drain_on_shutdown(&mut self) {
        if !self.has_drained && self.shared.shutdown.load(Ordering::Acquire) {
            self.drain();
        }
    }

    /// Takes whoever has connected, accepts nobody further, and ends connections that are between two requests.
    fn drain(&mut self) {
        for _ in 0..FINAL_ACCEPTS {
            if !self.accept_pending() {
                break;
            }
        }
        self.pause_accepting();
        close_listener(&self.shared.listener);
        self.drain_inbox();
        (self.context.site.is_draining, self.has_drained) = (true, true);
        for number in self.clients.indices() {
            // What has arrived is answered, even if its event is still to come.
            self.clients.get_mut(number).into_iter().for_each(|client| client.is_readable = true);
            self.drive_client(number);
        }
    }

    fn handle_event(&mut self, about: u64, flags: EventFlags) {
        match about {
            LISTENER_TOKEN => drop(self.accept_pending()),
            WAKER_TOKEN => self.drain_inbox(),
            number => {
                let Some(client) = self.clients.get_mut(number as usize) else { return };
                client.is_readable |=
                    flags.intersects(EventFlags::IN | EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
                // An error hangs up too. Alone it tells of a message in the error queue, which is the watch's.
                client.has_ended |= flags.intersects(EventFlags::RDHUP | EventFlags::HUP);
                if !client.is_queued {
                    self.drive_client(number as usize);
                }
            }
        }
    }

    /// Accepts some; `false` if nobody waits, or nobody can be accepted.
    fn accept_pending(&mut self) -> bool {
        for _ in 0..ACCEPT_BATCH {
            match accept_with(&self.shared.listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok(socket) => self.dispatch(socket),
                Err(Errno::AGAIN) => return false,
                // Whoever waits goes on waiting: no thread is woken for it again and again.
                Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS) => {
                    self.context.site.close_files();
                    self.context.close_all_lingering();
                    self.pause_accepting();
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
    fn drive_client(&mut self, number: usize) {
        let Some(client) = self.clients.get_mut(number) else { return };
        match client.drive(&mut self.context, &self.shared.shutdown) {
            EpollStep::Wait if self.context.site.is_draining && client.is_idle() => self.remove_client(number),
            EpollStep::Wait => {}
            EpollStep::Requeue => {
                // Once, however often it is driven: who sends much has no more turns than others.
                if !std::mem::replace(&mut client.is_queued, true) {
                    self.run_queue.push_back(number);
                }
            }
            EpollStep::Gone => self.remove_client(number),
        }
    }

    /// Gives a client its next turn.
    fn step_client(&mut self, number: usize) {
        if let Some(client) = self.clients.get_mut(number) {
            client.is_queued = false;
            self.drive_client(number);
        }
    }

    fn remove_client(&mut self, number: usize) {
        drop(self.clients.remove(number));
    }

    /// Ends connections whose time is over, and accepts again if it was paused.
    fn sweep(&mut self) {
        let now = self.context.site.now();
        if !self.clients.is_sweep_due(now) {
            return;
        }
        self.context.close_lingering(now);
        for number in self.clients.indices() {
            let Some(client) = self.clients.get_mut(number) else { continue };
            if client.is_timed_out(&mut self.context, &self.shared.shutdown) {
                self.remove_client(number);
            }
        }
        if !self.is_accepting && !self.context.site.is_draining {
            let _ = self.listen();
        }
    }
}

impl EventLoop for EpollWorker {
    type Client = EpollClient;

    fn clients_and_context(&mut self) -> (&ClientTable<EpollClient>, &mut WorkerContext) {
        (&self.clients, &mut self.context)
    }

    fn add_client(&mut self, socket: OwnedFd) {
        let Self { clients, context: hall, epoll, .. } = self;
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        let mut is_added = false;
        let number = clients.insert(|number| {
            let registered = hall.register(&socket);
            is_added = epoll::add(&*epoll, &socket, EventData::new_u64(number as u64), flags).is_ok();
            let connection = hall.new_connection(&socket, registered);
            EpollClient::new(socket, connection, hall.site.now())
        });
        // Its request is here soon enough to be waited for: most often it is here already, and the event says so.
        if !is_added {
            self.remove_client(number);
        }
    }
}

impl EpollClient {
    fn new(socket: OwnedFd, connection: Connection, since: Instant) -> Self {
        let (is_readable, has_ended, lingers, is_queued) = Default::default();
        let pace = SendProgress::start(since, 0);
        Self {
            socket,
            connection,
            is_readable,
            has_ended,
            is_lingering: lingers,
            is_queued,
            last_active: since,
            progress: pace,
        }
    }

    /// Whether it is between two requests.
    fn is_idle(&self) -> bool {
        self.connection.next_io() == NextIo::Receive && !self.connection.has_partial_request()
    }

    /// Does what can be done now, with large buffers that it gives back.
    #[inline]
    fn drive(&mut self, hall: &mut WorkerContext, is_over: &AtomicBool) -> EpollStep {
        self.connection.attach_buffers(&mut hall.buffers);
        let answered = self.connection.requests_answered();
        let next = self.step(hall, is_over);
        hall.stats.requests += self.connection.requests_answered() - answered;
        self.connection.detach_buffers(&mut hall.buffers);
        next
    }

    fn step(&mut self, hall: &mut WorkerContext, is_over: &AtomicBool) -> EpollStep {
        let mut turn = SEND_QUANTUM;
        loop {
            match self.connection.next_io() {
                _ if self.is_lingering => return self.discard(hall),
                NextIo::Send => match self.send(hall) {
                    Ok(sent) => turn = turn.saturating_sub(sent),
                    Err(Errno::INTR) => {}
                    Err(Errno::AGAIN) => return EpollStep::Wait,
                    Err(_) => return EpollStep::Gone,
                },
                _ if turn == 0 => return EpollStep::Requeue,
                NextIo::Advance => {
                    // Also in the middle of a turn: it may last until long after the server was told to end.
                    hall.site.is_draining = is_over.load(Ordering::Acquire);
                    self.connection.advance(&mut hall.site);
                }
                NextIo::Receive if !self.is_readable => return EpollStep::Wait,
                NextIo::Receive => match self.receive(hall) {
                    Ok(true) => {}
                    Ok(false) | Err(_) => return EpollStep::Gone,
                },
                NextIo::End => self.shut_down_write(hall),
            }
        }
    }

    /// Sends some of what is to be sent: how many bytes.
    #[inline]
    fn send(&mut self, hall: &mut WorkerContext) -> rustix::io::Result<usize> {
        let sent = hall.sender.send_some(&mut self.connection, &self.socket)?;
        hall.stats.bytes += sent as u64;
        self.last_active = hall.site.now();
        Ok(sent)
    }

    /// Receives what is there; `false` at the end.
    fn receive(&mut self, hall: &mut WorkerContext) -> rustix::io::Result<bool> {
        let had_begun = self.connection.has_partial_request();
        let received = receive(&mut self.connection, &self.socket);
        if received.is_ok() {
            hall.sender.on_received(&mut self.connection);
        }
        match received {
            Ok(0) => Ok(false),
            Ok(received) => {
                // What is less than the room was all; a later arrival is another edge. Only an end has none of its own.
                self.is_readable = self.has_ended || received >= RECEIVE_CHUNK;
                if !had_begun {
                    self.last_active = hall.site.now();
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
    fn shut_down_write(&mut self, hall: &WorkerContext) {
        let _ = shutdown(&self.socket, Shutdown::Write);
        (self.is_lingering, self.is_readable, self.last_active) = (true, true, hall.site.now());
    }

    /// Reads and drops what a client still sends.
    fn discard(&mut self, _: &mut WorkerContext) -> EpollStep {
        let mut nothing = [0; 4096];
        for _ in 0..ACCEPT_BATCH {
            match recv(&self.socket, &mut nothing, RecvFlags::empty()) {
                Ok((_, 0)) => return EpollStep::Gone,
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return EpollStep::Wait,
                Err(_) => return EpollStep::Gone,
            }
        }
        EpollStep::Requeue
    }

    /// Whether its time is over; one whose request has not come in time is told so.
    fn is_timed_out(&mut self, hall: &mut WorkerContext, is_over: &AtomicBool) -> bool {
        let limits = *hall.site.limits();
        let waited = hall.site.now().saturating_duration_since(self.last_active);
        let is_receiving = self.connection.next_io() == NextIo::Receive;
        match () {
            () if self.is_lingering => waited >= LINGER_TIMEOUT,
            () if is_receiving && self.connection.has_partial_request() && waited >= limits.request_timeout => {
                self.connection.refuse(Status::RequestTimeout, &hall.site);
                self.drive(hall, is_over) == EpollStep::Gone
            }
            () => waited >= limits.idle_timeout || self.is_too_slow(&hall.site),
        }
    }

    /// Whether it takes too little of its answers.
    fn is_too_slow(&mut self, site: &Site) -> bool {
        let state = (site.now(), self.connection.bytes_sent());
        if self.connection.next_io() == NextIo::Send {
            return self.progress.is_too_slow(state, site.limits().min_progress);
        }
        self.progress = SendProgress::start(state.0, state.1);
        false
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::serve::server::{Server, ServerSetup};

    const REQUEST: &[u8] = b"GET /a HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
    /// Connections of a thread that gets no more, wherever the client is.
    const MAX_PER_WORKER: u32 = 10;

    /// Two threads that do not run yet, of a site with a file.
    fn idle_workers() -> (tempfile::TempDir, Arc<SharedState>, [EpollWorker; 2]) {
        let top = tempfile::tempdir().unwrap();
        std::fs::write(top.path().join("a"), "content").unwrap();
        let server = Server::listen("127.0.0.1:0".parse().unwrap(), top.path(), ServerSetup::with_threads(2)).unwrap();
        let (house, make) = server.event_loop_state().unwrap();
        let workers = [0, 1].map(|number| EpollWorker::new(number, Arc::clone(&house), make()).unwrap());
        (top, house, workers)
    }

    /// A client that has asked and sends no more, and its other end.
    fn half_closed_client() -> (TcpStream, OwnedFd) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, _) = listener.accept().unwrap();
        socket.set_nonblocking(true).unwrap();
        client.write_all(REQUEST).unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        (client, socket.into())
    }

    fn read_to_end(mut client: TcpStream) -> String {
        let mut all = String::new();
        client.read_to_string(&mut all).unwrap();
        all
    }

    #[test]
    fn connection_for_ended_worker_stays_with_acceptor() {
        let (_top, house, [mut first, mut second]) = idle_workers();
        house.begin_shutdown(Instant::now() + Duration::from_secs(60));
        assert!(second.is_done());
        house.inboxes[0].load.store(MAX_PER_WORKER, Ordering::Relaxed);
        let (client, socket) = half_closed_client();
        first.dispatch(socket);
        house.inboxes[0].load.fetch_sub(MAX_PER_WORKER, Ordering::Relaxed);
        assert_eq!((house.connection_count(), first.run().requests), (1, 1));
        let told = read_to_end(client);
        assert!(told.contains("\r\nConnection: close\r\n") && told.ends_with("content"), "{told}");
        assert_eq!(house.connection_count(), 0);
    }

    #[test]
    fn worker_waits_for_dispatched_connection() {
        let (_top, house, [mut first, mut second]) = idle_workers();
        house.begin_shutdown(Instant::now() + Duration::from_secs(60));
        second.drain_on_shutdown();
        house.inboxes[0].load.store(MAX_PER_WORKER, Ordering::Relaxed);
        let (client, socket) = half_closed_client();
        first.dispatch(socket);
        assert!(!second.is_done());
        assert_eq!(second.run().requests, 1);
        assert!(read_to_end(client).ends_with("content"));
    }
}
