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

use kelvin_sys::net::socket_queues::unread_bytes;
use kelvin_sys::uring::socket_ring::{
    BufferRange, Readiness, ReceivedChunk, RequestId, RingEvent, RingOutcome, SocketRing,
};
use rustix::io::Errno;
use rustix::net::{Shutdown, SocketFlags, accept_with, shutdown};

use crate::serve::client_table::{ClientTable, EventLoop};
use crate::serve::connection::{Connection, FileRead, NextIo};
use crate::serve::error::{Error, Result};
use crate::serve::open_file_cache::OpenFile;
use crate::serve::send_progress::SendProgress;
use crate::serve::server::{FINAL_ACCEPTS, SHUTDOWN_POLL_INTERVAL, ServerTotals, close_listener};
use crate::serve::shared_state::{SWEEP_INTERVAL, SharedState};
use crate::serve::site::Site;
use crate::serve::status::Status;
use crate::serve::worker_context::{LINGER_TIMEOUT, RECEIVE_CHUNK, WorkerContext};

/// Bytes of a file that are read at a time, and sent from memory that stays in the cache.
const PIECE_BYTES: usize = 64 << 10;
/// Connections that are accepted at the end.
const FINAL_ACCEPT_LIMIT: usize = 64 * FINAL_ACCEPTS;
/// Pieces that are read or sent at one time; who wants one more waits for its turn. So memory does not grow with the number of
/// connections that are ready at one moment, and stays in the cache.
const MAX_PIECES: usize = 32;

/// What events are about: the listener, another thread, or the client of this number.
const LISTENER_TOKEN: u64 = u64::MAX;
const WAKER_TOKEN: u64 = u64::MAX - 1;

/// A file that is read.
struct RingFile(Arc<OpenFile>);

impl AsFd for RingFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Whether there is a ring to be had.
///
/// # Errors
/// Why there is none.
pub fn probe() -> Result<()> {
    new_ring().map(drop)
}

fn new_ring() -> Result<SocketRing<RingFile>> {
    SocketRing::new().map_err(|source| Error::NoUring { source })
}

/// What a thread submits, and what it sends from.
struct RingState {
    ring: SocketRing<RingFile>,
    spare_buffers: Vec<Vec<u8>>,
    /// Pieces that are read or sent.
    pieces_in_use: usize,
    /// Clients who wait for their turn to have one.
    waiting: VecDeque<u64>,
}

impl RingState {
    /// Submits what is wanted, and waits for what happens.
    fn submit_and_wait(&mut self) {
        if self.ring.wait(SWEEP_INTERVAL).is_err() {
            // Memory is lacking, and this thread does not spin meanwhile.
            std::thread::sleep(SHUTDOWN_POLL_INTERVAL);
        }
    }

    fn recycle(&mut self, mut buffer: Vec<u8>) {
        if self.spare_buffers.len() < MAX_PIECES {
            buffer.clear();
            self.spare_buffers.push(buffer);
        }
    }
}

/// What becomes of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UringStep {
    /// It waits for an event.
    Wait,
    /// It is gone.
    Gone,
}

/// A request of a client that is not done, and for which it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PendingOp {
    /// Its answer is sent.
    Send(RequestId),
    /// A file is read, behind so many bytes of its answer.
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
    connection: Connection,
    /// The request by which bytes come.
    receiving: Option<RequestId>,
    pending: Option<PendingOp>,
    /// Whether a piece of a file is read or sent for it.
    has_piece: bool,
    /// Whether the client sends no more.
    has_ended: bool,
    /// Whether the server sends no more, and reads only that nothing is lost.
    is_lingering: bool,
    /// When it was last between two requests, began one, or took something.
    last_active: Instant,
    /// How it takes answers.
    progress: SendProgress,
}

/// A thread.
pub struct UringWorker {
    shared: Arc<SharedState>,
    context: WorkerContext,
    ring: RingState,
    clients: ClientTable<UringClient>,
    /// Clients so far, which tells one from another that had its number.
    next_serial: u32,
    /// The request by which connections come; none while there are no descriptors for them.
    accepting: Option<RequestId>,
    /// Whether the ring says when others have left something.
    is_waker_armed: bool,
    /// Whether it was told to end, and has ended what is idle.
    has_drained: bool,
}

impl UringWorker {
    /// One of several, by the thread that is to serve.
    ///
    /// # Errors
    /// Those of io_uring.
    pub fn new(number: usize, house: Arc<SharedState>, hall: WorkerContext) -> Result<Self> {
        let desk =
            RingState { ring: new_ring()?, spare_buffers: Vec::new(), pieces_in_use: 0, waiting: VecDeque::new() };
        let clients = ClientTable::new(number, Arc::clone(&house));
        let (serial, accepting, is_watching, has_drained) = Default::default();
        let mut worker = Self {
            shared: house,
            context: hall,
            ring: desk,
            clients,
            next_serial: serial,
            accepting,
            is_waker_armed: is_watching,
            has_drained,
        };
        worker.listen();
        worker.arm_waker();
        Ok(worker)
    }

    /// Has the ring accept connections; if it cannot just now, it is asked again.
    fn listen(&mut self) {
        self.accepting = self.ring.ring.accept(LISTENER_TOKEN, &self.shared.listener).ok();
    }

    /// Has it say when others have left something; likewise.
    fn arm_waker(&mut self) {
        let waker = &self.clients.inbox().waker;
        self.is_waker_armed = self.ring.ring.await_ready(WAKER_TOKEN, waker, Readiness::Read).is_ok();
    }

    /// Serves until all is to end.
    pub fn run(mut self) -> ServerTotals {
        while !self.is_done() {
            self.ring.submit_and_wait();
            self.context.site.tick(Instant::now());
            self.handle_events();
            if self.shared.shutdown.load(Ordering::Acquire) {
                self.drain();
            }
            self.sweep();
        }
        self.context.take_stats()
    }

    fn handle_events(&mut self) {
        while let Some(event) = self.ring.ring.next_event() {
            self.handle_event(event);
        }
        while let Some(token) = self.ring.next_waiting() {
            let Some(number) = self.client_index(token) else { continue };
            self.ring.pieces_in_use += 1;
            let client = self.clients.get_mut(number);
            client.into_iter().for_each(|client| (client.pending, client.has_piece) = (None, true));
            self.drive_client(number);
        }
    }

    /// The number of a client, if it is still there.
    fn client_index(&self, token: u64) -> Option<usize> {
        let number = token as u32 as usize;
        self.clients.get(number).filter(|client| client.token == token).map(|_| number)
    }

    /// Whether it was told to end and has.
    fn is_done(&self) -> bool {
        self.has_drained && self.clients.is_drained(self.context.site.now())
    }

    /// Takes whoever has connected, accepts nobody further, and ends connections that are between two requests. What the ring has
    /// brought was taken before, so that nothing that has arrived is lost.
    fn drain(&mut self) {
        if !std::mem::replace(&mut self.has_drained, true) {
            let _ = self.accepting.map(|id| self.ring.ring.cancel(id));
            self.accept_final();
            close_listener(&self.shared.listener);
            self.drain_inbox();
            self.context.site.is_draining = true;
        }
        for number in self.clients.indices() {
            if self.clients.get(number).is_some_and(UringClient::is_idle) {
                self.remove_client(number);
            }
        }
    }

    /// Accepts who waits, without waiting for anybody.
    fn accept_final(&mut self) {
        let _ = self.shared.listener.set_nonblocking(true);
        for _ in 0..FINAL_ACCEPT_LIMIT {
            match accept_with(&self.shared.listener, SocketFlags::CLOEXEC) {
                Ok(socket) => self.dispatch(socket),
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(_) => return,
            }
        }
    }

    fn handle_event(&mut self, RingEvent { token, is_last, outcome }: RingEvent) {
        match outcome {
            RingOutcome::Accepted(socket) => self.on_accepted(socket, is_last),
            RingOutcome::Ready(_) if token == WAKER_TOKEN => {
                self.drain_inbox();
                self.arm_waker();
            }
            outcome => self.dispatch_outcome(token, is_last, outcome),
        }
    }

    fn on_accepted(&mut self, socket: std::io::Result<OwnedFd>, is_last: bool) {
        if is_last {
            self.accepting = None;
        }
        match socket.map_err(|error| Errno::from_io_error(&error)) {
            Ok(socket) => self.dispatch(socket),
            // A connection that has ended meanwhile.
            Err(Some(Errno::CONNABORTED | Errno::PROTO | Errno::INTR)) => {}
            // Whoever waits goes on waiting, until it is looked again whether there are descriptors.
            Err(_) => {
                self.context.site.close_files();
                self.context.close_all_lingering();
                return;
            }
        }
        if self.accepting.is_none() && !self.has_drained {
            self.listen();
        }
    }

    /// Tells a client what happened, if it is still there.
    fn dispatch_outcome(&mut self, token: u64, is_last: bool, outcome: RingOutcome) {
        let number = self.client_index(token);
        let client = number.and_then(|number| Some((number, self.clients.get_mut(number)?)));
        let Some((number, client)) = client else { return self.ring.discard(outcome) };
        if is_last && matches!(outcome, RingOutcome::Received(_)) {
            client.receiving = None;
        }
        if client.on_outcome(outcome, (&mut self.context, &mut self.ring), &self.shared.shutdown) == UringStep::Gone {
            self.remove_client(number);
        }
    }

    /// Does for a client what can be done now.
    fn drive_client(&mut self, number: usize) {
        let Some(client) = self.clients.get_mut(number) else { return };
        if client.drive((&mut self.context, &mut self.ring), &self.shared.shutdown) == UringStep::Gone {
            self.remove_client(number);
        }
    }

    fn remove_client(&mut self, number: usize) {
        let Some(client) = self.clients.remove(number) else { return };
        self.ring.pieces_in_use -= usize::from(client.has_piece);
        // The socket is closed when the ring has no request for it.
        let doing = client.pending.and_then(|doing| match doing {
            PendingOp::Send(id) | PendingOp::Read(id, _) | PendingOp::AwaitWritable(id) => Some(id),
            PendingOp::AwaitPiece => None,
        });
        for id in client.receiving.into_iter().chain(doing) {
            let _ = self.ring.ring.cancel(id);
        }
    }

    /// Ends connections whose time is over, and has the ring do again what it could not.
    fn sweep(&mut self) {
        let now = self.context.site.now();
        if !self.clients.is_sweep_due(now) {
            return;
        }
        self.context.close_lingering(now);
        for number in self.clients.indices() {
            let Some(client) = self.clients.get_mut(number) else { continue };
            if client.is_timed_out((&mut self.context, &mut self.ring), &self.shared.shutdown) {
                self.remove_client(number);
            }
        }
        if self.accepting.is_none() && !self.has_drained {
            self.listen();
        }
        if !self.is_waker_armed {
            self.drain_inbox();
            self.arm_waker();
        }
    }
}

impl EventLoop for UringWorker {
    type Client = UringClient;

    fn clients_and_context(&mut self) -> (&ClientTable<UringClient>, &mut WorkerContext) {
        (&self.clients, &mut self.context)
    }

    fn add_client(&mut self, socket: OwnedFd) {
        self.next_serial = self.next_serial.wrapping_add(1);
        let connection = self.context.new_connection(&socket, self.context.register(&socket));
        let serial = u64::from(self.next_serial);
        let since = self.context.site.now();
        let number = self.clients.insert(|number| {
            let token = serial << 32 | number as u64;
            let (receiving, doing, has_piece, has_ended, lingers) = Default::default();
            let socket = Arc::new(socket);
            let pace = SendProgress::start(since, 0);
            UringClient {
                token,
                socket,
                connection,
                receiving,
                pending: doing,
                has_piece,
                has_ended,
                is_lingering: lingers,
                last_active: since,
                progress: pace,
            }
        });
        self.drive_client(number);
    }
}

impl RingState {
    /// Who has his turn.
    fn next_waiting(&mut self) -> Option<u64> {
        if self.pieces_in_use < MAX_PIECES { self.waiting.pop_front() } else { None }
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

/// What a client is served with.
type IoContext<'a> = (&'a mut WorkerContext, &'a mut RingState);

impl UringClient {
    fn on_outcome(&mut self, outcome: RingOutcome, with: IoContext<'_>, is_over: &AtomicBool) -> UringStep {
        match outcome {
            RingOutcome::Received(received) => self.on_received(received, with, is_over),
            RingOutcome::Sent(sent, buffer) => {
                self.pending = None;
                self.connection.reattach_output(buffer);
                self.on_sent(sent.map_err(to_errno), with, is_over)
            }
            RingOutcome::Read(read, buffer) => {
                let begin =
                    if let Some(PendingOp::Read(_, begin)) = self.pending.take() { begin } else { buffer.len() };
                self.connection.reattach_output(buffer);
                let read = self.connection.end_read(begin, read.map_err(to_errno));
                if read.is_ok() { self.submit_output(Vec::new(), with.1) } else { UringStep::Gone }
            }
            RingOutcome::Ready(_) | RingOutcome::Accepted(_) => {
                self.pending = None;
                self.drive(with, is_over)
            }
        }
    }

    fn on_received(
        &mut self,
        received: std::io::Result<Option<ReceivedChunk>>,
        with: IoContext<'_>,
        is_over: &AtomicBool,
    ) -> UringStep {
        match received.map_err(to_errno) {
            Ok(Some(chunk)) => return self.on_chunk(chunk, with, is_over),
            Ok(None) => self.has_ended = true,
            // Of buffers, for a moment; or it was cancelled, because enough has come.
            Err(Errno::NOBUFS | Errno::CANCELED | Errno::INTR | Errno::AGAIN) => {}
            Err(_) => return UringStep::Gone,
        }
        self.drive(with, is_over)
    }

    /// Takes what has arrived, now or, while its answer is with the ring, for later.
    fn on_chunk(&mut self, chunk: ReceivedChunk, (hall, desk): IoContext<'_>, is_over: &AtomicBool) -> UringStep {
        if self.pending.is_none() {
            self.connection.attach_buffers(&mut hall.buffers);
            self.keep_chunk(chunk, (hall, desk));
            return self.drive_with_buffers((hall, desk), is_over);
        }
        self.keep_chunk(chunk, (hall, desk));
        if self.connection.unparsed_bytes() > hall.site.limits().head_bytes + RECEIVE_CHUNK {
            // Who sends and does not read has enough of it here.
            let _ = self.receiving.map(|id| desk.ring.cancel(id));
        }
        UringStep::Wait
    }

    fn keep_chunk(&mut self, chunk: ReceivedChunk, (hall, desk): IoContext<'_>) {
        if !self.is_lingering {
            if !self.connection.has_partial_request() {
                self.last_active = hall.site.now();
            }
            let bytes = desk.ring.bytes(&chunk);
            self.connection.input_buffer(bytes.len()).extend_from_slice(bytes);
            self.connection.mark_received_delayed(bytes.len(), chunk.timed_read().delay());
        }
        desk.ring.give_back(chunk);
    }

    fn on_sent(
        &mut self,
        sent: rustix::io::Result<usize>,
        (hall, desk): IoContext<'_>,
        is_over: &AtomicBool,
    ) -> UringStep {
        match sent {
            Ok(sent) => {
                hall.stats.bytes += sent as u64;
                self.last_active = hall.site.now();
                self.connection.mark_sent(sent);
                match self.connection.take_empty_output() {
                    None => self.submit_output(Vec::new(), desk),
                    Some(buffer) => {
                        self.end_piece(buffer, desk);
                        self.drive((hall, desk), is_over)
                    }
                }
            }
            Err(Errno::AGAIN) => self.await_writable(desk),
            Err(Errno::INTR) => self.submit_output(Vec::new(), desk),
            Err(_) => UringStep::Gone,
        }
    }

    fn end_piece(&mut self, buffer: Vec<u8>, desk: &mut RingState) {
        desk.pieces_in_use -= usize::from(std::mem::take(&mut self.has_piece));
        desk.recycle(buffer);
    }

    /// Waits until the client takes something; what was read for it is read again then.
    fn await_writable(&mut self, desk: &mut RingState) -> UringStep {
        let buffer = self.connection.copy_unsent();
        self.end_piece(buffer, desk);
        let asked = desk.ring.await_ready(self.token, &self.socket, Readiness::Write);
        self.pending = asked.ok().map(PendingOp::AwaitWritable);
        if self.pending.is_some() { UringStep::Wait } else { UringStep::Gone }
    }

    /// Does what can be done now, with large buffers that it gives back.
    fn drive(&mut self, (hall, desk): IoContext<'_>, is_over: &AtomicBool) -> UringStep {
        if self.pending.is_some() {
            return UringStep::Wait;
        }
        self.connection.attach_buffers(&mut hall.buffers);
        self.drive_with_buffers((hall, desk), is_over)
    }

    fn drive_with_buffers(&mut self, (hall, desk): IoContext<'_>, is_over: &AtomicBool) -> UringStep {
        let answered = self.connection.requests_answered();
        let next = self.step((hall, desk), is_over);
        hall.stats.requests += self.connection.requests_answered() - answered;
        self.connection.detach_buffers(&mut hall.buffers);
        next
    }

    fn step(&mut self, (hall, desk): IoContext<'_>, is_over: &AtomicBool) -> UringStep {
        loop {
            match self.connection.next_io() {
                NextIo::End | NextIo::Receive if self.has_ended => return UringStep::Gone,
                _ if self.is_lingering => return self.receive(desk),
                NextIo::Send if self.queue_for_piece(desk) => return UringStep::Wait,
                NextIo::Send => return self.submit_output(desk.spare_buffers.pop().unwrap_or_default(), desk),
                NextIo::Advance => {
                    hall.site.is_draining = is_over.load(Ordering::Acquire);
                    self.connection.advance(&mut hall.site);
                }
                NextIo::Receive => return self.receive(desk),
                NextIo::End => self.shut_down_write(hall),
            }
        }
    }

    /// Has the ring receive, unless it does already.
    fn receive(&mut self, desk: &mut RingState) -> UringStep {
        if self.receiving.is_none() {
            let receiving = match self.connection.is_tracked() {
                true => desk.ring.receive_with_time(self.token, &self.socket),
                false => desk.ring.receive(self.token, &self.socket),
            };
            self.receiving = receiving.ok();
        }
        if self.receiving.is_some() { UringStep::Wait } else { UringStep::Gone }
    }

    /// Whether it waits for its turn to have a piece of its file read, behind those who wait already.
    fn queue_for_piece(&mut self, desk: &mut RingState) -> bool {
        if self.has_piece || !self.connection.needs_file_read() {
            return false;
        }
        self.has_piece = desk.pieces_in_use < MAX_PIECES && desk.waiting.is_empty();
        if self.has_piece {
            desk.pieces_in_use += 1;
        } else {
            desk.waiting.push_back(self.token);
            self.pending = Some(PendingOp::AwaitPiece);
        }
        !self.has_piece
    }

    /// Has the ring read what is to be sent next, or send it, and has a spare buffer meanwhile.
    fn submit_output(&mut self, spare: Vec<u8>, desk: &mut RingState) -> UringStep {
        let reading = self.connection.begin_read(PIECE_BYTES);
        let (buffer, sent) = self.connection.detach_output(spare);
        let asked = match reading {
            None => desk.ring.send(self.token, &self.socket, (buffer, sent)).map(PendingOp::Send),
            Some(FileRead { opened, offset, begin, bytes }) => {
                let to = (buffer, BufferRange { begin, bytes });
                desk.ring.read(self.token, (RingFile(opened), offset), to).map(|id| PendingOp::Read(id, begin))
            }
        };
        self.pending = asked.ok();
        if self.pending.is_some() { UringStep::Wait } else { UringStep::Gone }
    }

    /// Sends no more.
    fn shut_down_write(&mut self, hall: &WorkerContext) {
        let _ = shutdown(&self.socket, Shutdown::Write);
        (self.is_lingering, self.last_active) = (true, hall.site.now());
    }

    /// Whether it is between two requests, and nothing of the next has arrived.
    fn is_idle(&self) -> bool {
        let is_free = self.pending.is_none() && !self.is_lingering;
        is_free
            && self.connection.next_io() == NextIo::Receive
            && !self.connection.has_partial_request()
            && unread_bytes(&self.socket).is_ok_and(|bytes| bytes == 0)
    }

    /// Whether its time is over; one whose request has not come in time is told so.
    fn is_timed_out(&mut self, (hall, desk): IoContext<'_>, is_over: &AtomicBool) -> bool {
        let limits = *hall.site.limits();
        let waited = hall.site.now().saturating_duration_since(self.last_active);
        let is_receiving = self.pending.is_none() && self.connection.next_io() == NextIo::Receive;
        match () {
            () if self.is_lingering => waited >= LINGER_TIMEOUT,
            () if is_receiving && self.connection.has_partial_request() && waited >= limits.request_timeout => {
                self.connection.refuse(Status::RequestTimeout, &hall.site);
                self.drive((hall, desk), is_over) == UringStep::Gone
            }
            () => waited >= limits.idle_timeout || self.is_too_slow(&hall.site),
        }
    }

    /// Whether it takes too little of its answers.
    fn is_too_slow(&mut self, site: &Site) -> bool {
        let state = (site.now(), self.connection.bytes_sent());
        if self.pending.is_some() || self.connection.next_io() == NextIo::Send {
            return self.progress.is_too_slow(state, site.limits().min_progress);
        }
        self.progress = SendProgress::start(state.0, state.1);
        false
    }
}

fn to_errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}
