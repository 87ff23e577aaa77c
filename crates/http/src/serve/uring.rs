//! Threads that each serve many connections by requests to an io_uring: one call submits what all of its connections want done, and
//! brings what was done meanwhile.
//!
//! What is accepted and received comes by itself, once that was asked for. A connection that waits has no buffer: what arrives lies
//! in one of the ring, and what a socket does not take at once is kept by nobody.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use kelvin_sys::net::socket_queues::unread_bytes;
use kelvin_sys::uring::socket_ring::{
    BufferRange, Readiness, ReceivedChunk, RequestId, RingEvent, RingOutcome, SocketRing,
};
use rustix::io::Errno;
use rustix::net::SocketFlags;
use slab::Slab;

use crate::serve::accept::SHUTDOWN_POLL_INTERVAL;
use crate::serve::connection::{FileRead, NextIo};
use crate::serve::error::{Error, Result};
use crate::serve::event_loop::{EventLoop, LISTENER_TOKEN, SWEEP_INTERVAL, WAKER_TOKEN, WorkerCore};
use crate::serve::open_file_cache::OpenFile;
use crate::serve::transport::PlainTransport;
use crate::serve::worker_context::{ClientState, ClientStep, RECEIVE_CHUNK, WorkerContext};

/// Bytes of a file that are read at a time, and sent from memory that stays in the cache.
const PIECE_BYTES: usize = 64 << 10;
/// Pieces that are read or sent at one time; who wants one more waits for its turn. So memory does not grow with the number of
/// connections that are ready at one moment, and stays in the cache.
const MAX_PIECES: usize = 32;

/// A ring that reads files.
///
/// # Errors
/// [`Error::NoUring`].
pub fn new_ring() -> Result<SocketRing<Arc<OpenFile>>> {
    SocketRing::new().map_err(Error::NoUring)
}

/// What a thread submits, and what it sends from.
struct RingState {
    ring: SocketRing<Arc<OpenFile>>,
    spare_buffers: Vec<Vec<u8>>,
    /// Pieces that are read or sent.
    pieces_in_use: usize,
    /// Clients who wait for their turn to have one.
    waiting_tokens: VecDeque<u64>,
}

impl RingState {
    fn recycle(&mut self, mut buffer: Vec<u8>) {
        if self.spare_buffers.len() < MAX_PIECES {
            buffer.clear();
            self.spare_buffers.push(buffer);
        }
    }

    /// Takes what comes for nobody.
    fn discard(&mut self, outcome: RingOutcome) {
        match outcome {
            RingOutcome::Received(Ok(Some(chunk))) => self.ring.give_back(chunk),
            RingOutcome::Sent(_, buffer) | RingOutcome::Read(_, buffer) => self.recycle(buffer),
            _ => {}
        }
    }
}

/// A request of a client that is not done, and for which it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PendingOp {
    /// Its answer is sent.
    Send(RequestId),
    /// A file is read, behind this many bytes of its answer.
    Read(RequestId, usize),
    /// It takes nothing.
    AwaitWritable(RequestId),
    /// It is not its turn to have a piece of its file read.
    AwaitPiece,
}

/// A client.
pub struct UringClient {
    token: u64,
    socket: Arc<OwnedFd>,
    state: ClientState,
    /// The request by which bytes come.
    receiving: Option<RequestId>,
    pending: Option<PendingOp>,
    /// Whether a piece of a file is read or sent for it.
    has_piece: bool,
}

/// A thread.
pub struct UringWorker {
    core: WorkerCore<UringClient>,
    ring: RingState,
    /// Clients so far, which distinguishes one from another that had its number.
    next_serial: u32,
    /// The request by which connections come; none while there are no descriptors for them.
    accept_request: Option<RequestId>,
    /// Whether the ring reports when others have left something.
    is_waker_armed: bool,
}

impl UringWorker {
    /// Takes what others have left, and has the ring report when there is more; if it cannot just now, it is asked again.
    fn arm_waker(&mut self) {
        self.drain_inbox();
        let waker = &self.core.inbox().waker;
        self.is_waker_armed = self.ring.ring.await_ready(WAKER_TOKEN, waker, Readiness::Read).is_ok();
    }

    fn handle_event(&mut self, RingEvent { token, is_last, outcome }: RingEvent) {
        match outcome {
            RingOutcome::Accepted(socket) => self.on_accepted(socket, is_last),
            RingOutcome::Ready(_) if token == WAKER_TOKEN => self.arm_waker(),
            outcome => {
                let WorkerCore { clients, context, shared, .. } = &mut self.core;
                let Some(client) = client(clients, token) else { return self.ring.discard(outcome) };
                if is_last && matches!(outcome, RingOutcome::Received(_)) {
                    client.receiving = None;
                }
                let mut turn = Turn { context, ring: &mut self.ring, shutdown: &shared.shutdown };
                if client.on_outcome(outcome, &mut turn) == ClientStep::Gone {
                    self.remove_client(client_number(token));
                }
            }
        }
    }

    fn on_accepted(&mut self, socket: std::io::Result<OwnedFd>, is_last: bool) {
        if is_last {
            self.accept_request = None;
        }
        match socket.map_err(|error| Errno::from_io_error(&error)) {
            Ok(socket) => self.dispatch(socket),
            // A connection that has ended meanwhile.
            Err(Some(Errno::CONNABORTED | Errno::PROTO | Errno::INTR)) => {}
            // Clients in the queue stay there until the next check for free descriptors.
            Err(_) => {
                self.core.context.site.files.clear();
                self.core.context.close_all_lingering();
                return;
            }
        }
        if !self.core.has_drained {
            self.accept();
        }
    }
}

fn client_number(token: u64) -> usize {
    token as u32 as usize
}

/// A client, if it is still there.
fn client(clients: &mut Slab<UringClient>, token: u64) -> Option<&mut UringClient> {
    clients.get_mut(client_number(token)).filter(|client| client.token == token)
}

impl EventLoop for UringWorker {
    type Client = UringClient;
    type Transport = PlainTransport;

    const SOCKET_FLAGS: SocketFlags = SocketFlags::empty();

    fn new(core: WorkerCore<UringClient>) -> Result<Self> {
        let ring = RingState {
            ring: new_ring()?,
            spare_buffers: Vec::new(),
            pieces_in_use: 0,
            waiting_tokens: VecDeque::new(),
        };
        let mut worker = Self { core, ring, next_serial: 0, accept_request: None, is_waker_armed: false };
        worker.accept();
        Ok(worker)
    }

    fn core(&mut self) -> &mut WorkerCore<UringClient> {
        &mut self.core
    }

    fn client_state(client: &mut UringClient) -> (&mut ClientState, bool) {
        (&mut client.state, client.pending.is_some())
    }

    fn turn(&mut self) {
        if !self.is_waker_armed {
            self.arm_waker();
        }
        if self.ring.ring.wait(SWEEP_INTERVAL).is_err() {
            // Memory is lacking, and this thread does not spin meanwhile.
            std::thread::sleep(SHUTDOWN_POLL_INTERVAL);
        }
        self.core.context.site.tick(Instant::now());
        while let Some(event) = self.ring.ring.next_event() {
            self.handle_event(event);
        }
        while self.ring.pieces_in_use < MAX_PIECES {
            let Some(token) = self.ring.waiting_tokens.pop_front() else { break };
            let Some(client) = client(&mut self.core.clients, token) else { continue };
            (client.pending, client.has_piece) = (None, true);
            self.ring.pieces_in_use += 1;
            self.drive_client(client_number(token));
        }
        // What the ring has brought was taken before, so that nothing that has arrived is lost.
        if self.core.has_drained {
            self.end_idle();
        }
        self.drain_on_shutdown();
    }

    /// If the ring cannot just now, it is asked again.
    fn accept(&mut self) {
        if self.accept_request.is_none() {
            self.accept_request = self.ring.ring.accept(LISTENER_TOKEN, &self.core.shared.listener).ok();
        }
    }

    fn stop_accepting(&mut self) {
        let _ = self.accept_request.map(|id| self.ring.ring.cancel(id));
    }

    fn add_client(&mut self, socket: OwnedFd) {
        self.next_serial = self.next_serial.wrapping_add(1);
        let WorkerCore { clients, context, .. } = &mut self.core;
        let state = context.new_client(&socket, context.register(&socket), context.site.now());
        let serial = u64::from(self.next_serial);
        let entry = clients.vacant_entry();
        let number = entry.key();
        let (token, socket) = (serial << 32 | number as u64, Arc::new(socket));
        entry.insert(UringClient { token, socket, state, receiving: None, pending: None, has_piece: false });
        self.drive_client(number);
    }

    fn drive_client(&mut self, number: usize) {
        let WorkerCore { clients, context, shared, .. } = &mut self.core;
        let Some(client) = clients.get_mut(number) else { return };
        let mut turn = Turn { context, ring: &mut self.ring, shutdown: &shared.shutdown };
        if client.drive(&mut turn) == ClientStep::Gone {
            self.remove_client(number);
        }
    }

    fn remove_client(&mut self, number: usize) {
        let Some(client) = self.core.remove(number) else { return };
        self.ring.pieces_in_use -= usize::from(client.has_piece);
        // The socket is closed when the ring has no request for it.
        let pending = client.pending.and_then(|pending| match pending {
            PendingOp::Send(id) | PendingOp::Read(id, _) | PendingOp::AwaitWritable(id) => Some(id),
            PendingOp::AwaitPiece => None,
        });
        for id in client.receiving.into_iter().chain(pending) {
            let _ = self.ring.ring.cancel(id);
        }
    }

    fn end_idle(&mut self) {
        for number in 0..self.core.clients.capacity() {
            let Some(client) = self.core.clients.get_mut(number) else { continue };
            let connection = &client.state.connection;
            let is_receiving =
                client.pending.is_none() && !client.state.is_lingering && connection.next_io() == NextIo::Receive;
            // Nothing of the next request has arrived.
            let is_empty =
                !connection.has_partial_request() && unread_bytes(&client.socket).is_ok_and(|bytes| bytes == 0);
            if is_receiving && is_empty {
                self.remove_client(number);
            }
        }
    }
}

/// What a client is served with.
struct Turn<'a> {
    context: &'a mut WorkerContext,
    ring: &'a mut RingState,
    shutdown: &'a AtomicBool,
}

impl UringClient {
    fn on_outcome(&mut self, outcome: RingOutcome, turn: &mut Turn<'_>) -> ClientStep {
        match outcome {
            RingOutcome::Received(received) => match received.map_err(to_errno) {
                Ok(Some(chunk)) => return self.on_chunk(chunk, turn),
                Ok(None) => self.state.has_ended = true,
                // Of buffers, for a moment; or it was cancelled, because enough has come.
                Err(Errno::NOBUFS | Errno::CANCELED | Errno::INTR | Errno::AGAIN) => {}
                Err(_) => return ClientStep::Gone,
            },
            RingOutcome::Sent(sent, buffer) => {
                self.pending = None;
                self.state.connection.reattach_output(buffer);
                return self.on_sent(sent.map_err(to_errno), turn);
            }
            RingOutcome::Read(read, buffer) => {
                let begin =
                    if let Some(PendingOp::Read(_, begin)) = self.pending.take() { begin } else { buffer.len() };
                self.state.connection.reattach_output(buffer);
                let read = self.state.connection.end_read(begin, read.map_err(to_errno));
                return if read.is_ok() { self.submit_output(Vec::new(), turn.ring) } else { ClientStep::Gone };
            }
            RingOutcome::Ready(_) | RingOutcome::Accepted(_) => self.pending = None,
        }
        self.drive(turn)
    }

    /// Takes what has arrived, now or, while its answer is with the ring, for later.
    fn on_chunk(&mut self, chunk: ReceivedChunk, turn: &mut Turn<'_>) -> ClientStep {
        if self.pending.is_none() {
            self.state.connection.attach_buffers(&mut turn.context.buffers);
            self.keep_chunk(chunk, turn);
            return self.drive_with_buffers(turn);
        }
        self.keep_chunk(chunk, turn);
        if self.state.connection.unparsed_bytes() > turn.context.site.config.limits.head_bytes + RECEIVE_CHUNK {
            // Who sends and does not read has enough of it here.
            let _ = self.receiving.map(|id| turn.ring.ring.cancel(id));
        }
        ClientStep::Wait
    }

    fn keep_chunk(&mut self, chunk: ReceivedChunk, turn: &mut Turn<'_>) {
        if !self.state.is_lingering {
            if !self.state.connection.has_partial_request() {
                self.state.last_active = turn.context.site.now();
            }
            let bytes = turn.ring.ring.bytes(&chunk);
            self.state.connection.input_buffer(bytes.len()).extend_from_slice(bytes);
            self.state.connection.mark_received_delayed(bytes.len(), chunk.timed_read().delay());
        }
        turn.ring.ring.give_back(chunk);
    }

    fn on_sent(&mut self, sent: rustix::io::Result<usize>, turn: &mut Turn<'_>) -> ClientStep {
        match sent {
            Ok(sent) => {
                turn.context.stats.bytes += sent as u64;
                self.state.last_active = turn.context.site.now();
                self.state.connection.mark_sent(sent);
                match self.state.connection.take_empty_output() {
                    None => self.submit_output(Vec::new(), turn.ring),
                    Some(buffer) => {
                        self.end_piece(buffer, turn.ring);
                        self.drive(turn)
                    }
                }
            }
            // It waits until the client takes something; what was read for it is read again then.
            Err(Errno::AGAIN) => {
                let buffer = self.state.connection.copy_unsent();
                self.end_piece(buffer, turn.ring);
                let submission = turn.ring.ring.await_ready(self.token, &self.socket, Readiness::Write);
                self.wait_for_operation(submission.map(PendingOp::AwaitWritable))
            }
            Err(Errno::INTR) => self.submit_output(Vec::new(), turn.ring),
            Err(_) => ClientStep::Gone,
        }
    }

    fn end_piece(&mut self, buffer: Vec<u8>, ring: &mut RingState) {
        ring.pieces_in_use -= usize::from(std::mem::take(&mut self.has_piece));
        ring.recycle(buffer);
    }

    /// Waits for what was submitted, if it could be.
    fn wait_for_operation(&mut self, submission: std::io::Result<PendingOp>) -> ClientStep {
        self.pending = submission.ok();
        if self.pending.is_some() { ClientStep::Wait } else { ClientStep::Gone }
    }

    /// Does what can be done now, with large buffers that it gives back.
    fn drive(&mut self, turn: &mut Turn<'_>) -> ClientStep {
        if self.pending.is_some() {
            return ClientStep::Wait;
        }
        self.state.connection.attach_buffers(&mut turn.context.buffers);
        self.drive_with_buffers(turn)
    }

    fn drive_with_buffers(&mut self, turn: &mut Turn<'_>) -> ClientStep {
        let next = self.step(turn);
        self.state.connection.detach_buffers(&mut turn.context.buffers);
        next
    }

    fn step(&mut self, Turn { context, ring, shutdown }: &mut Turn<'_>) -> ClientStep {
        loop {
            match self.state.connection.next_io() {
                NextIo::End | NextIo::Receive if self.state.has_ended => return ClientStep::Gone,
                _ if self.state.is_lingering => return self.receive(ring),
                NextIo::Send if self.queue_for_piece(ring) => return ClientStep::Wait,
                NextIo::Send => return self.submit_output(ring.spare_buffers.pop().unwrap_or_default(), ring),
                NextIo::Advance => {
                    context.site.is_draining = shutdown.load(Ordering::Acquire);
                    self.state.connection.advance(&mut context.site);
                }
                NextIo::Receive => return self.receive(ring),
                NextIo::End => self.state.shut_down_write(&self.socket, context.site.now()),
            }
        }
    }

    /// Has the ring receive, unless it does already.
    fn receive(&mut self, ring: &mut RingState) -> ClientStep {
        if self.receiving.is_none() {
            let is_timed = self.state.connection.tracker.is_some();
            let receive = if is_timed { SocketRing::receive_with_time } else { SocketRing::receive };
            self.receiving = receive(&mut ring.ring, self.token, &self.socket).ok();
        }
        if self.receiving.is_some() { ClientStep::Wait } else { ClientStep::Gone }
    }

    /// Whether it waits for its turn to have a piece of its file read, behind those who wait already.
    fn queue_for_piece(&mut self, ring: &mut RingState) -> bool {
        if self.has_piece || !self.state.connection.needs_file_read() {
            return false;
        }
        self.has_piece = ring.pieces_in_use < MAX_PIECES && ring.waiting_tokens.is_empty();
        if self.has_piece {
            ring.pieces_in_use += 1;
        } else {
            ring.waiting_tokens.push_back(self.token);
            self.pending = Some(PendingOp::AwaitPiece);
        }
        !self.has_piece
    }

    /// Has the ring read what is to be sent next, or send it, and has a spare buffer meanwhile.
    fn submit_output(&mut self, replacement: Vec<u8>, ring: &mut RingState) -> ClientStep {
        let reading = self.state.connection.begin_read(PIECE_BYTES);
        let (buffer, sent) = self.state.connection.detach_output(replacement);
        let submission = match reading {
            None => ring.ring.send(self.token, &self.socket, (buffer, sent)).map(PendingOp::Send),
            Some(FileRead { open_file: opened, offset, begin, bytes }) => {
                let destination = (buffer, BufferRange { begin, bytes });
                ring.ring.read(self.token, (opened, offset), destination).map(|id| PendingOp::Read(id, begin))
            }
        };
        self.wait_for_operation(submission)
    }
}

fn to_errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}
