//! Threads that each serve many clients as their sockets become ready, so that a request costs one wait, one receive and one send, however a
//! thread waits.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SocketFlags, recv};

use crate::serve::accept::{ACCEPT_BATCH, BatchEnd};
use crate::serve::connection::NextIo;
use crate::serve::error::{Error, Result};
use crate::serve::event_loop::{EventLoop, LISTENER_TOKEN, SWEEP_INTERVAL, WAKER_TOKEN, WorkerCore};
use crate::serve::transport::{ClientTransport, PlainTransport};
use crate::serve::worker_context::{ClientState, ClientStep, RECEIVE_CHUNK, WorkerContext};

/// Bytes that one connection may send before others get their turn.
const SEND_QUANTUM: usize = 4 << 20;

/// How a thread waits until sockets are ready.
pub trait Selector: Sized {
    /// One that waits for the waker of a thread alone.
    ///
    /// # Errors
    /// Those of the calls that it waits by.
    fn new<T>(core: &WorkerCore<ReadyClient<T>>) -> Result<Self>;

    /// Waits from now on for connections as well.
    ///
    /// # Errors
    /// Those of the call.
    fn listen<T>(&mut self, core: &WorkerCore<ReadyClient<T>>) -> rustix::io::Result<()>;

    /// Waits for no further connections.
    fn stop_listening<T>(&mut self, core: &WorkerCore<ReadyClient<T>>);

    /// Waits from now on for the socket of the client of this number as well, which will be in the thread's list.
    ///
    /// # Errors
    /// Those of the call.
    fn add_client(&mut self, socket: &OwnedFd, number: usize) -> rustix::io::Result<()>;

    /// Waits until something is ready or this time is over, and returns how many events there are.
    fn wait<T: ClientTransport>(&mut self, core: &WorkerCore<ReadyClient<T>>, timeout: Duration) -> usize;

    /// One of the events that the last wait returned.
    fn event(&self, index: usize) -> ReadyEvent;
}

/// What a wait says of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadyEvent {
    /// Which one it is.
    pub token: u64,
    /// Whether something may be there to be received, of which the end is one.
    pub is_readable: bool,
    /// Whether the client sends no more.
    pub has_ended: bool,
}

/// A client.
#[derive(Debug)]
pub struct ReadyClient<T = PlainTransport> {
    pub socket: OwnedFd,
    pub state: ClientState<T>,
    /// Whether something may be there to be received: an event reports it once.
    is_readable: bool,
    /// Whether it is to go on when others have had their turn.
    pub is_queued: bool,
}

/// A thread.
pub struct ReadinessWorker<S, T = PlainTransport> {
    core: WorkerCore<ReadyClient<T>>,
    selector: S,
    run_queue: VecDeque<usize>,
    /// Whether connections are accepted just now; not while there are no descriptors for them.
    is_accepting: bool,
}

impl<S: Selector, T: ClientTransport> ReadinessWorker<S, T> {
    fn handle_event(&mut self, event: ReadyEvent) {
        match event.token {
            LISTENER_TOKEN => {
                // Who waits goes on waiting: no thread is woken for it again and again.
                if self.accept_pending() == BatchEnd::NoDescriptors {
                    self.core.context.site.files.clear();
                    self.core.context.close_all_lingering();
                    self.stop_accepting();
                }
            }
            WAKER_TOKEN => self.drain_inbox(),
            number => {
                let Some(client) = self.core.clients.get_mut(number as usize) else { return };
                client.is_readable |= event.is_readable;
                client.state.has_ended |= event.has_ended;
                if !client.is_queued {
                    self.drive_client(number as usize);
                }
            }
        }
    }
}

impl<S: Selector, T: ClientTransport> EventLoop for ReadinessWorker<S, T> {
    type Client = ReadyClient<T>;
    type Transport = T;

    const SOCKET_FLAGS: SocketFlags = SocketFlags::NONBLOCK;

    fn new(core: WorkerCore<ReadyClient<T>>) -> Result<Self> {
        let mut selector = S::new(&core)?;
        selector.listen(&core).map_err(Error::call("wait for connections"))?;
        Ok(Self { core, selector, run_queue: VecDeque::new(), is_accepting: true })
    }

    fn core(&mut self) -> &mut WorkerCore<ReadyClient<T>> {
        &mut self.core
    }

    fn client_state(client: &mut ReadyClient<T>) -> (&mut ClientState<T>, bool) {
        (&mut client.state, false)
    }

    fn turn(&mut self) {
        let timeout = if self.run_queue.is_empty() { SWEEP_INTERVAL } else { Duration::ZERO };
        let events = self.selector.wait(&self.core, timeout);
        self.core.context.site.tick(Instant::now());
        self.drain_on_shutdown();
        for index in 0..events {
            self.handle_event(self.selector.event(index));
        }
        for _ in 0..self.run_queue.len() {
            let Some(number) = self.run_queue.pop_front() else { break };
            if let Some(client) = self.core.clients.get_mut(number) {
                client.is_queued = false;
                self.drive_client(number);
            }
        }
    }

    fn accept(&mut self) {
        if !self.is_accepting {
            self.is_accepting = self.selector.listen(&self.core).is_ok();
        }
    }

    fn stop_accepting(&mut self) {
        if std::mem::take(&mut self.is_accepting) {
            self.selector.stop_listening(&self.core);
        }
    }

    fn add_client(&mut self, socket: OwnedFd) {
        let WorkerCore { clients, context, .. } = &mut self.core;
        let entry = clients.vacant_entry();
        let number = entry.key();
        let tracker = context.register(&socket);
        let is_added = self.selector.add_client(&socket, number).is_ok();
        let state = context.new_client(&socket, tracker, context.site.now());
        entry.insert(ReadyClient::new(socket, state));
        // Its request is here soon enough to be waited for: most often it is here already, and the event reports it.
        if !is_added {
            self.remove_client(number);
        }
    }

    #[inline]
    fn drive_client(&mut self, number: usize) {
        let WorkerCore { clients, context, shared, .. } = &mut self.core;
        let Some(client) = clients.get_mut(number) else { return };
        match client.drive(context, &shared.shutdown) {
            ClientStep::Wait => {
                let is_idle =
                    client.state.next_io() == NextIo::Receive && !client.state.connection.has_partial_request();
                if context.site.is_draining && is_idle {
                    self.remove_client(number);
                }
            }
            ClientStep::Requeue => {
                // Once, however often it is driven: who sends much has no more turns than others.
                if !std::mem::replace(&mut client.is_queued, true) {
                    self.run_queue.push_back(number);
                }
            }
            ClientStep::Gone => self.remove_client(number),
        }
    }

    fn remove_client(&mut self, number: usize) {
        drop(self.core.remove(number));
    }

    fn end_idle(&mut self) {
        for number in 0..self.core.clients.capacity() {
            // What has arrived is answered, even if its event is still to come.
            self.core.clients.get_mut(number).into_iter().for_each(|client| client.is_readable = true);
            self.drive_client(number);
        }
    }
}

impl<T: ClientTransport> ReadyClient<T> {
    /// One of which no event has come yet.
    pub fn new(socket: OwnedFd, state: ClientState<T>) -> Self {
        Self { socket, state, is_readable: false, is_queued: false }
    }

    /// Whether it waits until more can be sent, and not until something can be received.
    pub fn waits_to_send(&self) -> bool {
        !self.state.is_lingering && self.state.next_io() == NextIo::Send
    }

    /// Does what can be done now, with large buffers that it gives back.
    #[inline]
    fn drive(&mut self, context: &mut WorkerContext, is_over: &AtomicBool) -> ClientStep {
        self.state.connection.attach_buffers(&mut context.buffers);
        let next = self.step(context, is_over);
        self.state.connection.detach_buffers(&mut context.buffers);
        next
    }

    fn step(&mut self, context: &mut WorkerContext, is_over: &AtomicBool) -> ClientStep {
        let mut remaining_quantum = SEND_QUANTUM;
        loop {
            match self.state.next_io() {
                _ if self.state.is_lingering => return self.discard(),
                NextIo::Send => match self.send(context) {
                    Ok(sent) => {
                        context.stats.bytes += sent as u64;
                        self.state.mark_active(context.site.now());
                        remaining_quantum = remaining_quantum.saturating_sub(sent);
                    }
                    Err(Errno::INTR) => {}
                    Err(Errno::AGAIN) => return ClientStep::Wait,
                    Err(_) => return ClientStep::Gone,
                },
                _ if remaining_quantum == 0 => return ClientStep::Requeue,
                NextIo::Advance => {
                    // Also in the middle of a turn: it may last until long after the server was asked to end.
                    context.site.is_draining = is_over.load(Ordering::Acquire);
                    self.state.connection.advance(&mut context.site);
                }
                NextIo::Receive if !self.is_readable => return ClientStep::Wait,
                NextIo::Receive => match self.receive(context) {
                    Ok(true) => {}
                    Ok(false) | Err(_) => return ClientStep::Gone,
                },
                NextIo::End => {
                    self.state.shut_down_write(&self.socket, context.site.now());
                    self.is_readable = true;
                }
            }
        }
    }

    #[inline]
    fn send(&mut self, context: &mut WorkerContext) -> rustix::io::Result<usize> {
        self.state.transport.send_some(&mut self.state.connection, &self.socket, context)
    }

    /// Receives what is there; `false` at the end.
    fn receive(&mut self, context: &mut WorkerContext) -> rustix::io::Result<bool> {
        let had_begun = self.state.connection.has_partial_request();
        match self.state.transport.receive(&mut self.state.connection, &self.socket, context) {
            Ok(0) => Ok(false),
            Ok(received) => {
                // What is less than the room was all; a later arrival is another edge. Only an end has none of its own.
                self.is_readable = self.state.has_ended || !T::SHORT_READ_IS_ALL || received >= RECEIVE_CHUNK;
                if !had_begun {
                    self.state.last_active = context.site.now();
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

    /// Reads and drops what a client still sends.
    fn discard(&mut self) -> ClientStep {
        let mut buffer = [0; 4096];
        for _ in 0..ACCEPT_BATCH {
            match recv(&self.socket, &mut buffer, RecvFlags::empty()) {
                Ok((_, 0)) => return ClientStep::Gone,
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return ClientStep::Wait,
                Err(_) => return ClientStep::Gone,
            }
        }
        ClientStep::Requeue
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::sync::Arc;

    use super::*;
    use crate::serve::epoll::EpollSelector;
    use crate::serve::event_loop::SharedState;
    use crate::serve::poll::PollSelector;
    use crate::serve::server::{Server, ServerAccess, ServerSetup};

    const REQUEST: &[u8] = b"GET /a HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
    /// Connections of a thread that gets no more, wherever the client is.
    const MAX_PER_WORKER: u32 = 10;

    /// Two threads that do not run yet, of a site with a file.
    fn idle_workers<S: Selector>() -> (tempfile::TempDir, Arc<SharedState>, [ReadinessWorker<S>; 2]) {
        let top = tempfile::tempdir().unwrap();
        std::fs::write(top.path().join("a"), "content").unwrap();
        let server = Server::listen(
            "127.0.0.1:0".parse().unwrap(),
            top.path(),
            ServerSetup::with_threads(2),
            ServerAccess::default(),
        )
        .unwrap();
        let shared = SharedState::new(Arc::clone(&server.service.listener), 2, 99).unwrap();
        let shared = Arc::new(shared);
        let new_core = |number| WorkerCore::new(number, Arc::clone(&shared), WorkerContext::new(&server.service));
        let workers = [0, 1].map(|number| ReadinessWorker::new(new_core(number)).unwrap());
        (top, shared, workers)
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

    fn assert_acceptor_serves_for_ended_worker<S: Selector>() {
        let (_top, shared, [mut first, mut second]) = idle_workers::<S>();
        shared.begin_shutdown(Instant::now() + Duration::from_secs(60));
        second.drain_on_shutdown();
        assert!(second.core.is_done());
        shared.inboxes[0].load.store(MAX_PER_WORKER, Ordering::Relaxed);
        let (client, socket) = half_closed_client();
        first.dispatch(socket);
        shared.inboxes[0].load.fetch_sub(MAX_PER_WORKER, Ordering::Relaxed);
        assert_eq!((shared.connection_count(), first.run().requests), (1, 1));
        let answer = read_to_end(client);
        assert!(answer.contains("\r\nConnection: close\r\n") && answer.ends_with("content"), "{answer}");
        assert_eq!(shared.connection_count(), 0);
    }

    #[test]
    fn connection_for_ended_worker_stays_with_acceptor() {
        assert_acceptor_serves_for_ended_worker::<EpollSelector>();
        assert_acceptor_serves_for_ended_worker::<PollSelector>();
    }

    fn assert_worker_waits_for_dispatched_connection<S: Selector>() {
        let (_top, shared, [mut first, mut second]) = idle_workers::<S>();
        shared.begin_shutdown(Instant::now() + Duration::from_secs(60));
        second.drain_on_shutdown();
        shared.inboxes[0].load.store(MAX_PER_WORKER, Ordering::Relaxed);
        let (client, socket) = half_closed_client();
        first.dispatch(socket);
        assert!(!second.core.is_done());
        assert_eq!(second.run().requests, 1);
        assert!(read_to_end(client).ends_with("content"));
    }

    #[test]
    fn worker_waits_for_dispatched_connection() {
        assert_worker_waits_for_dispatched_connection::<EpollSelector>();
        assert_worker_waits_for_dispatched_connection::<PollSelector>();
    }
}
