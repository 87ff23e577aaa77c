//! The receiving end: listens, and has each sender's files arrive in one directory.

use std::io::{PipeReader, PipeWriter};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};
use std::thread::Scope;
use std::time::Duration;

use crate::wire::Error as WireError;
use crate::wire::address::is_loopback;
use crate::wire::admission::AdmissionLimits;
use crate::wire::cipher::{Opener, Sealer};
use crate::wire::deadline::Deadline;
use crate::wire::handshake::Handshake;
use crate::wire::secret::Secret;
use kelvin_sys::thread_spawn::ThreadBuilder;

use crate::datapath::ReceiveSetup;
use crate::message::{JoinRequest, ReceiverMessage, RefusalReason, SenderMessage};
use crate::offer_policy::{Destination, OfferPolicy};
use crate::progress::MinProgress;
use crate::secure_channel::SecureChannel;
use crate::session::{ReceiveSession, SessionEvent};
use crate::session_streams::{JoinedReceiveStream, MAX_STREAMS, SessionRegistry};
use crate::slots::{PendingConnection, PendingConnections, PoolSlot, SlotPool};
use crate::summary::TransferSummary;
use crate::{Error, HANDSHAKE, PROTOCOL, Result};

/// How often the receiver checks whether it is to stop while nobody connects.
pub(crate) const SHUTDOWN_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The pause after a connection could not be accepted, as when no file descriptor is left.
const ACCEPT_RETRY_PAUSE: Duration = Duration::from_millis(50);
/// Backlog of the listening socket; the kernel limits it to net.core.somaxconn.
const LISTEN_BACKLOG: u32 = 4096;
/// Connections before the end of their handshake, of which each has a thread, and senders, at one time.
const MAX_PENDING_HANDSHAKES: usize = 256;
const MAX_SENDERS: usize = 4;
/// Stack of a thread: buffers are on the heap, only elliptic curves are on it.
const STACK_BYTES: usize = 512 << 10;

/// Receives events: who, and what happened.
pub type EventHandler = dyn Fn(SocketAddr, SessionEvent) + Send + Sync;

/// How to receive.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReceiverOptions {
    /// Whether existing files may be replaced.
    pub overwrite: bool,
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
    pending: PendingConnections,
    sender_slots: SlotPool,
    /// For connections that will join a session, until they have.
    joining_slots: SlotPool,
    sessions: SessionRegistry,
    /// Connections, to be closed when it ends.
    open_streams: Mutex<Vec<(u64, TcpStream)>>,
    /// Closed when the one sender was served, which the other end of it shows at once.
    unserved: Mutex<Option<PipeWriter>>,
    served: PipeReader,
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
        manner: ReceiverOptions,
        tell: Box<EventHandler>,
    ) -> Result<Self> {
        check_secret_required(address, &secret)?;
        let listener = TcpListener::bind(address).map_err(WireError::call("listen"))?;
        kelvin_sys::net::set_backlog(&listener, LISTEN_BACKLOG).map_err(WireError::call("listen"))?;
        // A connection that is gone before it is accepted must not block the loop.
        listener.set_nonblocking(true).map_err(WireError::call("listen"))?;
        let senders = SlotPool::new(if manner.once { 1 } else { MAX_SENDERS });
        let joining = SlotPool::new(MAX_SENDERS * MAX_STREAMS as usize);
        let newcomers =
            PendingConnections::new(AdmissionLimits { total: MAX_PENDING_HANDSHAKES, ..AdmissionLimits::default() });
        let (served, unserved) = std::io::pipe().map_err(WireError::call("make a pipe"))?;
        let (open, unserved) = (Mutex::default(), Mutex::new(Some(unserved)));
        Ok(Self {
            listener,
            destination,
            secret,
            options: manner,
            on_event: tell,
            pending: newcomers,
            sender_slots: senders,
            joining_slots: joining,
            sessions: SessionRegistry::new(),
            open_streams: open,
            unserved,
            served,
        })
    }

    /// Where it listens: the port too, if the system chose it.
    ///
    /// # Errors
    /// A failed system call.
    pub fn address(&self) -> Result<SocketAddr> {
        Ok(self.listener.local_addr().map_err(WireError::call("see the address"))?)
    }

    /// Serves until it is to stop, or the one sender was served. Files that are still arriving then are removed.
    ///
    /// # Errors
    /// A broken listener.
    pub fn serve(&self, is_over: impl Fn() -> bool) -> Result<()> {
        std::thread::scope(|scope| {
            let mut number = 0;
            let served = loop {
                if is_over() {
                    break Ok(());
                }
                match kelvin_sys::poll::wait_any_readable(
                    &[self.served.as_fd(), self.listener.as_fd()],
                    SHUTDOWN_POLL_INTERVAL,
                ) {
                    Ok(ready) if ready[0] => break Ok(()),
                    Ok(ready) if ready[1] => self.accept(scope, &mut number),
                    Ok(_) => {}
                    Err(error) => break Err(WireError::call("wait")(error).into()),
                }
            };
            for (_, stream) in self.lock_open_streams().iter() {
                // One that is already closed needs no more.
                let _ = stream.shutdown(std::net::Shutdown::Both);
            }
            served
        })
    }

    fn lock_open_streams(&self) -> std::sync::MutexGuard<'_, Vec<(u64, TcpStream)>> {
        self.open_streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts a connection, and gives it a thread: one of few, until the handshake is over.
    fn accept<'a>(&'a self, scope: &'a Scope<'a, '_>, number: &mut u64) {
        let (stream, from) = match self.listener.accept() {
            Ok(accepted) => accepted,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
            Err(_) => return std::thread::sleep(ACCEPT_RETRY_PAUSE),
        };
        let Some(newcomer) = self.pending.admit(&stream, from) else {
            return (self.on_event)(from, SessionEvent::Rejected(WireError::TooManyPending.into()));
        };
        *number += 1;
        let own = *number;
        let Ok(second) = stream.try_clone() else { return };
        self.lock_open_streams().push((own, second));
        let serve = move || {
            self.handshake_and_serve(stream, from, newcomer);
            self.lock_open_streams().retain(|(number, _)| *number != own);
        };
        if let Err(error) = ThreadBuilder::named("sender").stack_bytes(STACK_BYTES).start_in(scope, serve) {
            self.lock_open_streams().retain(|(number, _)| *number != own);
            (self.on_event)(from, SessionEvent::Fault(WireError::Thread(error).into()));
        }
    }

    /// Shakes hands with a new connection, and serves it if it knows the secret.
    fn handshake_and_serve(&self, mut stream: TcpStream, from: SocketAddr, newcomer: PendingConnection) {
        let deadline = Deadline::within(HANDSHAKE);
        let handshake = Handshake { protocol: &PROTOCOL, secret: &self.secret, deadline };
        let set_up = stream.set_nodelay(true).map_err(WireError::call("set up the connection"));
        let (halves, seat) = match set_up.and_then(|()| handshake.accept(&mut stream, || self.claim_slot())) {
            Ok(client) => client,
            // Only authenticated senders learn that.
            Err(error @ WireError::ServerFull { .. }) => {
                return (self.on_event)(from, SessionEvent::Fault(error.into()));
            }
            Err(error) => return (self.on_event)(from, SessionEvent::Rejected(newcomer.explain(error).into())),
        };
        drop(newcomer);
        let tell = |event| (self.on_event)(from, event);
        match self.read_first_message(stream, halves) {
            Ok(FirstMessage { channel, handle, message: Ok(SenderMessage::Join(join)) }) => {
                self.join((&join, seat), (channel, handle)).unwrap_or_else(|why| tell(SessionEvent::Fault(why)));
            }
            heard => match self.claim_sender_slot(seat) {
                Some(seat) => self.serve_sender(seat, heard, &tell),
                None => tell(SessionEvent::Fault(reject(heard))),
            },
        }
    }

    /// A place for an authenticated connection. Where sessions can be joined it is no sender's before its first message shows that it is
    /// one: a stream must keep none out.
    fn claim_slot(&self) -> Option<ClaimedSlot> {
        let joining = self.joining_slots.acquire().filter(|_| self.sessions.has_any());
        let joining = joining.map(|seat| ClaimedSlot { slot: seat, is_sender_slot: false });
        joining.or_else(|| self.sender_slots.acquire().map(|seat| ClaimedSlot { slot: seat, is_sender_slot: true }))
    }

    /// The first message of a connection.
    fn read_first_message(&self, stream: TcpStream, halves: (Sealer, Opener)) -> Result<FirstMessage> {
        let handle = stream.try_clone().map_err(WireError::call("set up the connection"))?;
        let mut channel = SecureChannel::new(stream, halves)?;
        channel.set_min_progress(self.options.min_progress);
        let first = channel.receive();
        Ok(FirstMessage { channel, handle, message: first })
    }

    fn join(
        &self,
        (join, seat): (&JoinRequest, ClaimedSlot),
        (channel, handle): (SecureChannel, TcpStream),
    ) -> Result<()> {
        let member = self.sessions.join(join, handle)?;
        drop(seat);
        if let Some(file) = join.file {
            member.lend_channel(file, channel);
            return Ok(());
        }
        match JoinedReceiveStream::new(channel, member).serve() {
            slow @ Err(Error::Wire(WireError::TooSlow { .. })) => slow,
            // What ends a stream ends its session, which says so.
            Err(Error::Wire(_) | Error::Interrupted(_)) => Ok(()),
            ended => ended,
        }
    }

    /// That of a sender, if it has none yet.
    fn claim_sender_slot(
        &self,
        ClaimedSlot { slot: seat, is_sender_slot: is_senders }: ClaimedSlot,
    ) -> Option<PoolSlot> {
        if is_senders { Some(seat) } else { self.sender_slots.acquire() }
    }

    fn serve_sender(&self, _seat: PoolSlot, heard: Result<FirstMessage>, tell: &dyn Fn(SessionEvent)) {
        tell(SessionEvent::Authenticated);
        let served = heard.and_then(|heard| self.run_session(heard, tell));
        tell(served.into());
        if self.options.once {
            self.unserved.lock().unwrap_or_else(PoisonError::into_inner).take();
        }
    }

    fn run_session(
        &self,
        FirstMessage { mut channel, message: first, .. }: FirstMessage,
        tell: &dyn Fn(SessionEvent),
    ) -> Result<TransferSummary> {
        let desk = OfferPolicy::new(&self.destination, self.options.overwrite)?;
        ReceiveSession::new(&mut channel, desk, tell)
            .with_method(self.options.method)
            .with_sessions(&self.sessions)
            .serve_from(first)
    }
}

/// An error where other hosts can reach an address, and there is no secret.
pub(crate) fn check_secret_required(address: SocketAddr, secret: &Secret) -> Result<()> {
    if secret.is_some() || is_loopback(address) {
        Ok(())
    } else {
        Err(WireError::UnprotectedAddress { address }.into())
    }
}

/// Tells a sender that there is no place for it.
fn reject(heard: Result<FirstMessage>) -> Error {
    let busy = Error::Wire(WireError::ServerFull { role: PROTOCOL.listener.role });
    let told =
        heard.and_then(|mut heard| heard.channel.send(&ReceiverMessage::Refused(RefusalReason(busy.wire_text()))));
    told.err().unwrap_or(busy)
}
