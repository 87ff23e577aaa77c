//! The receiving end: listens, and has each sender's files arrive in one directory.

use std::io::{PipeReader, PipeWriter};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Mutex;
use std::thread::Scope;
use std::time::Duration;

use kelvin_sys::lock;
use kelvin_sys::thread_spawn::ThreadBuilder;

use crate::datapath::ReceiveSetup;
use crate::message::{JoinRequest, ReceiverMessage, RefusalReason, SenderMessage};
use crate::offer_policy::{Destination, OfferPolicy, SenderLeave};
use crate::progress::MinProgress;
use crate::secure_channel::SecureChannel;
use crate::session::{ReceiveSession, SessionEvent};
use crate::session_streams::{JoinedReceiveStream, MAX_STREAMS, SessionRegistry};
use crate::wire::admission::{AdmissionLimits, PoolSlot, SlotPool};
use crate::wire::cipher::{Opener, Sealer};
use crate::wire::listener::{self, AuthenticatedCaller, CallerHandler, HandshakeListener};
use crate::wire::secret::Secret;
use crate::{Error, HANDSHAKE, PROTOCOL, Result};

/// How often the receiver checks whether it is to stop while nobody connects.
pub(crate) const SHUTDOWN_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Connections before the end of their handshake, and senders, at one time.
const MAX_PENDING_HANDSHAKES: usize = 256;
const MAX_SENDERS: usize = 4;
/// Stack of a thread: buffers are on the heap.
const STACK_BYTES: usize = 512 << 10;

/// Receives events: who, and what happened.
pub type EventHandler = dyn Fn(SocketAddr, SessionEvent) + Send + Sync;

/// How to receive.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReceiverOptions {
    /// What senders may do.
    pub leave: SenderLeave,
    /// Whether to end after one sender.
    pub once: bool,
    /// By what the bytes of large files come that are not encrypted; what is fastest, where nothing is asked for.
    pub method: Option<ReceiveSetup>,
    /// How little may come from a sender that is waited for, or be taken by one.
    pub min_progress: MinProgress,
}

/// A place of an authenticated connection, given back when dropped.
struct ClaimedSlot {
    slot: PoolSlot,
    is_sender_slot: bool,
}

/// A connection, another handle of it, and the first message.
struct FirstMessage {
    channel: SecureChannel<TcpStream>,
    handle: TcpStream,
    message: Result<SenderMessage>,
}

/// A listening receiver.
pub struct Receiver {
    listener: TcpListener,
    destination: Destination,
    secret: Secret,
    options: ReceiverOptions,
    on_event: Box<EventHandler>,
    sender_slots: SlotPool,
    /// For connections that will join a session, until they have.
    joining_slots: SlotPool,
    sessions: SessionRegistry,
    /// Connections, to be closed when it ends.
    open_streams: Mutex<Vec<TcpStream>>,
    /// Closed when the one sender was served, which the other end of it shows at once.
    served_writer: Mutex<Option<PipeWriter>>,
    served_reader: PipeReader,
}

impl Receiver {
    /// Listens.
    ///
    /// # Errors
    /// An address that other hosts can reach, without a secret; an unavailable address.
    pub fn listen(
        address: SocketAddr,
        destination: Destination,
        secret: Secret,
        options: ReceiverOptions,
        on_event: Box<EventHandler>,
    ) -> Result<Self> {
        let listener = listener::listen(address, &secret)?;
        let (served_reader, served_writer) = std::io::pipe().map_err(Error::call("make a pipe"))?;
        Ok(Self {
            listener,
            destination,
            secret,
            options,
            on_event,
            sender_slots: SlotPool::new(if options.once { 1 } else { MAX_SENDERS }),
            joining_slots: SlotPool::new(MAX_SENDERS * MAX_STREAMS as usize),
            sessions: SessionRegistry::new(),
            open_streams: Mutex::default(),
            served_writer: Mutex::new(Some(served_writer)),
            served_reader,
        })
    }

    /// Where it listens: the port too, if the system chose it.
    ///
    /// # Errors
    /// A failed system call.
    pub fn address(&self) -> Result<SocketAddr> {
        self.listener.local_addr().map_err(Error::call("read the address"))
    }

    /// Serves until it is to stop, or the one sender was served. Files that are still arriving then are removed.
    ///
    /// # Errors
    /// A broken listener.
    pub fn serve(&self, is_over: impl Fn() -> bool) -> Result<()> {
        std::thread::scope(|scope| {
            let limits = AdmissionLimits { total: MAX_PENDING_HANDSHAKES, ..AdmissionLimits::default() };
            let handler = ScopedReceiver { receiver: self, scope };
            let mut callers =
                HandshakeListener::new(&self.listener, &PROTOCOL, &self.secret, (HANDSHAKE, limits), handler);
            let mut outcome = Ok(false);
            while matches!(outcome, Ok(false)) && !is_over() {
                outcome = callers.wait(Some(self.served_reader.as_fd()), SHUTDOWN_POLL_INTERVAL);
            }
            for stream in lock(&self.open_streams).iter() {
                // One that is already closed needs no more.
                let _ = stream.shutdown(std::net::Shutdown::Both);
            }
            outcome.map(drop)
        })
    }

    /// Serves a connection that knows the secret: one that joins a session, or a sender.
    fn serve_caller(&self, caller: AuthenticatedCaller<ClaimedSlot>) {
        let AuthenticatedCaller { stream, peer, halves, slot } = caller;
        let report = |event| (self.on_event)(peer, event);
        match self.read_first_message(stream, halves) {
            Ok(FirstMessage { channel, handle, message: Ok(SenderMessage::Join(join)) }) => {
                self.join((&join, slot), (channel, handle)).unwrap_or_else(|why| report(SessionEvent::Fault(why)));
            }
            first_message => {
                // Its own, if it has none of a sender yet.
                let slot = if slot.is_sender_slot { Some(slot.slot) } else { self.sender_slots.acquire() };
                match slot {
                    Some(slot) => self.serve_sender(slot, first_message, &report),
                    None => report(SessionEvent::Fault(reject(first_message))),
                }
            }
        }
    }

    /// The first message of a connection.
    fn read_first_message(&self, stream: TcpStream, halves: (Sealer, Opener)) -> Result<FirstMessage> {
        let handle = stream.try_clone().map_err(Error::call("set up the connection"))?;
        let mut channel = SecureChannel::new(stream, halves)?;
        channel.set_min_progress(self.options.min_progress);
        let message = channel.receive();
        Ok(FirstMessage { channel, handle, message })
    }

    fn join(
        &self,
        (join, slot): (&JoinRequest, ClaimedSlot),
        (channel, handle): (SecureChannel, TcpStream),
    ) -> Result<()> {
        let member = self.sessions.join(join, handle)?;
        drop(slot);
        if let Some(file) = join.file {
            member.lend_channel(file, channel);
            return Ok(());
        }
        match JoinedReceiveStream::new(channel, member).serve() {
            // What ends a stream ends its session, which reports it, unless the stream alone was too slow.
            Err(Error::Call { .. } | Error::Closed | Error::TimedOut { .. } | Error::Interrupted(_)) => Ok(()),
            Err(Error::FrameTooLong { .. } | Error::Malformed(_) | Error::Tampered) => Ok(()),
            outcome => outcome,
        }
    }

    fn serve_sender(&self, _slot: PoolSlot, first_message: Result<FirstMessage>, report: &dyn Fn(SessionEvent)) {
        report(SessionEvent::Authenticated);
        let outcome = first_message.and_then(|FirstMessage { mut channel, message, .. }| {
            let policy = OfferPolicy::new(&self.destination, self.options.leave)?;
            let session = ReceiveSession::new(&mut channel, policy, report);
            session.joinable(self.options.method, &self.sessions).serve(message)
        });
        report(outcome.map_or_else(SessionEvent::Fault, |summary| SessionEvent::Finished(Box::new(summary))));
        if self.options.once {
            lock(&self.served_writer).take();
        }
    }
}

/// A receiver that starts a thread for each connection.
struct ScopedReceiver<'scope, 'env> {
    receiver: &'scope Receiver,
    scope: &'scope Scope<'scope, 'env>,
}

impl CallerHandler for ScopedReceiver<'_, '_> {
    type Slot = ClaimedSlot;

    /// Where sessions can be joined a slot is no sender's before the first message of the connection shows that it is one. A stream must
    /// keep none out.
    fn admit(&self) -> Option<ClaimedSlot> {
        let Receiver { joining_slots, sender_slots, sessions, .. } = self.receiver;
        let joining_slot = joining_slots.acquire().filter(|_| sessions.has_any());
        let is_sender_slot = joining_slot.is_none();
        joining_slot.or_else(|| sender_slots.acquire()).map(|slot| ClaimedSlot { slot, is_sender_slot })
    }

    fn serve(&self, caller: AuthenticatedCaller<ClaimedSlot>) {
        let (receiver, peer) = (self.receiver, caller.peer);
        let Ok(handle) = caller.stream.try_clone() else { return };
        let descriptor = handle.as_raw_fd();
        let forget = move || lock(&receiver.open_streams).retain(|handle| handle.as_raw_fd() != descriptor);
        lock(&receiver.open_streams).push(handle);
        let serve = move || {
            receiver.serve_caller(caller);
            forget();
        };
        if let Err(error) = ThreadBuilder::named("sender").stack_bytes(STACK_BYTES).start_in(self.scope, serve) {
            forget();
            (receiver.on_event)(peer, SessionEvent::Fault(Error::Thread(error)));
        }
    }

    fn on_rejected(&self, peer: SocketAddr, why: Error) {
        // Only authenticated senders learn that there is no place.
        let event = if matches!(why, Error::ServerFull(_)) { SessionEvent::Fault } else { SessionEvent::Rejected };
        (self.receiver.on_event)(peer, event(why));
    }
}

/// Reports to a sender that there is no place for it.
fn reject(first_message: Result<FirstMessage>) -> Error {
    let error = Error::ServerFull(PROTOCOL.listener.role);
    let refusal = ReceiverMessage::Refused(RefusalReason(error.wire_text()));
    first_message.and_then(|mut first_message| first_message.channel.send(&refusal)).err().unwrap_or(error)
}
