//! The receiving end: listens, and has each sender's files arrive in one directory.

use std::io::{PipeReader, PipeWriter};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};
use std::thread::Scope;
use std::time::Duration;

use kelvin_sys::spawn::Thread;
use kelvin_wire::Error as WireError;
use kelvin_wire::address::is_loopback;
use kelvin_wire::deadline::Deadline;
use kelvin_wire::noise::Handshake;
use kelvin_wire::places::Room;
use kelvin_wire::sealed::{Opener, Sealer};
use kelvin_wire::secret::Secret;

use crate::channel::Channel;
use crate::decide::{Desk, Destination};
use crate::joined::{Joined, STREAMS, Sessions};
use crate::message::{FromReceiver, FromSender, Join, Reason};
use crate::moving::ReceiveSetup;
use crate::progress::MinProgress;
use crate::seats::{Newcomer, Newcomers, Seat, Seats};
use crate::session::{Event, Session};
use crate::summary::Summary;
use crate::{Error, HANDSHAKE, PROTOCOL, Result};

/// How often the receiver checks whether it is to stop while nobody connects.
pub(crate) const LOOK: Duration = Duration::from_millis(100);
/// The pause after a connection could not be accepted, as when no file descriptor is left.
const PAUSE: Duration = Duration::from_millis(50);
/// Backlog of the listening socket; the kernel limits it to net.core.somaxconn.
const QUEUE: u32 = 4096;
/// Connections before the end of their handshake, of which each has a thread, and senders, at one time.
const NEWCOMERS: usize = 256;
const SENDERS: usize = 4;
/// Stack of a thread: buffers are on the heap, only elliptic curves are on it.
const STACK: usize = 512 << 10;

/// Receives events: who, and what happened.
pub type Tell = dyn Fn(SocketAddr, Event) + Send + Sync;

/// How to receive.
#[derive(Clone, Copy, Debug, Default)]
pub struct Manner {
    /// Whether existing files may be replaced.
    pub overwrite: bool,
    /// Whether to end after one sender.
    pub once: bool,
    /// By what the bytes of large files come that are not encrypted; what is fastest, where nothing is asked for.
    pub moving: Option<ReceiveSetup>,
    /// How little may come from a sender that is waited for, or be taken by one.
    pub min_progress: MinProgress,
}

/// A place of an authenticated connection, given back when dropped.
struct Seated {
    seat: Seat,
    is_senders: bool,
}

/// A connection, another handle of it, and the first message.
struct Heard {
    channel: Channel<TcpStream>,
    handle: TcpStream,
    first: Result<FromSender>,
}

/// A listening receiver.
pub struct Receiver {
    listener: TcpListener,
    destination: Destination,
    secret: Secret,
    manner: Manner,
    tell: Box<Tell>,
    newcomers: Newcomers,
    senders: Seats,
    /// For connections that will join a session, until they have.
    joining: Seats,
    sessions: Sessions,
    /// Connections, to be closed when it ends.
    open: Mutex<Vec<(u64, TcpStream)>>,
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
        manner: Manner,
        tell: Box<Tell>,
    ) -> Result<Self> {
        check_reach(address, &secret)?;
        let listener = TcpListener::bind(address).map_err(WireError::call("listen"))?;
        kelvin_sys::net::set_queue(&listener, QUEUE).map_err(WireError::call("listen"))?;
        // A connection that is gone before it is accepted must not block the loop.
        listener.set_nonblocking(true).map_err(WireError::call("listen"))?;
        let senders = Seats::new(if manner.once { 1 } else { SENDERS });
        let joining = Seats::new(SENDERS * STREAMS as usize);
        let newcomers = Newcomers::new(Room { all: NEWCOMERS, ..Room::default() });
        let (served, unserved) = std::io::pipe().map_err(WireError::call("make a pipe"))?;
        let (open, unserved) = (Mutex::default(), Mutex::new(Some(unserved)));
        Ok(Self {
            listener,
            destination,
            secret,
            manner,
            tell,
            newcomers,
            senders,
            joining,
            sessions: Sessions::none(),
            open,
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
                match kelvin_sys::ready::readable_of(&[self.served.as_fd(), self.listener.as_fd()], LOOK) {
                    Ok(ready) if ready[0] => break Ok(()),
                    Ok(ready) if ready[1] => self.accept(scope, &mut number),
                    Ok(_) => {}
                    Err(error) => break Err(WireError::call("wait")(error).into()),
                }
            };
            for (_, stream) in self.open().iter() {
                // One that is already closed needs no more.
                let _ = stream.shutdown(std::net::Shutdown::Both);
            }
            served
        })
    }

    fn open(&self) -> std::sync::MutexGuard<'_, Vec<(u64, TcpStream)>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts a connection, and gives it a thread: one of few, until the handshake is over.
    fn accept<'a>(&'a self, scope: &'a Scope<'a, '_>, number: &mut u64) {
        let (stream, from) = match self.listener.accept() {
            Ok(accepted) => accepted,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
            Err(_) => return std::thread::sleep(PAUSE),
        };
        let Some(newcomer) = self.newcomers.take(&stream, from) else {
            return (self.tell)(from, Event::TurnedAway(WireError::Crowded.into()));
        };
        *number += 1;
        let own = *number;
        let Ok(second) = stream.try_clone() else { return };
        self.open().push((own, second));
        let serve = move || {
            self.meet(stream, from, newcomer);
            self.open().retain(|(number, _)| *number != own);
        };
        if let Err(error) = Thread::named("sender").stack_bytes(STACK).start_in(scope, serve) {
            self.open().retain(|(number, _)| *number != own);
            (self.tell)(from, Event::Fault(WireError::Thread(error).into()));
        }
    }

    /// Shakes hands with a new connection, and serves it if it knows the secret.
    fn meet(&self, mut stream: TcpStream, from: SocketAddr, newcomer: Newcomer) {
        let deadline = Deadline::within(HANDSHAKE);
        let handshake = Handshake { protocol: &PROTOCOL, secret: &self.secret, deadline };
        let set_up = stream.set_nodelay(true).map_err(WireError::call("set up the connection"));
        let (halves, seat) = match set_up.and_then(|()| handshake.listen(&mut stream, || self.seat())) {
            Ok(client) => client,
            // Only authenticated senders learn that.
            Err(error @ WireError::Busy { .. }) => return (self.tell)(from, Event::Fault(error.into())),
            Err(error) => return (self.tell)(from, Event::TurnedAway(newcomer.why(error).into())),
        };
        drop(newcomer);
        let tell = |event| (self.tell)(from, event);
        match self.hear(stream, halves) {
            Ok(Heard { channel, handle, first: Ok(FromSender::Join(join)) }) => {
                self.join((&join, seat), (channel, handle)).unwrap_or_else(|why| tell(Event::Fault(why)));
            }
            heard => match self.senders_seat(seat) {
                Some(seat) => self.serve_sender(seat, heard, &tell),
                None => tell(Event::Fault(turned_away(heard))),
            },
        }
    }

    /// A place for an authenticated connection. Where sessions can be joined it is no sender's before its first message shows that it is
    /// one: a stream must keep none out.
    fn seat(&self) -> Option<Seated> {
        let joining = self.joining.take().filter(|_| self.sessions.are_any());
        let joining = joining.map(|seat| Seated { seat, is_senders: false });
        joining.or_else(|| self.senders.take().map(|seat| Seated { seat, is_senders: true }))
    }

    /// The first message of a connection.
    fn hear(&self, stream: TcpStream, halves: (Sealer, Opener)) -> Result<Heard> {
        let handle = stream.try_clone().map_err(WireError::call("set up the connection"))?;
        let mut channel = Channel::new(stream, halves)?;
        channel.set_min_progress(self.manner.min_progress);
        let first = channel.receive();
        Ok(Heard { channel, handle, first })
    }

    fn join(&self, (join, seat): (&Join, Seated), (channel, handle): (Channel, TcpStream)) -> Result<()> {
        let member = self.sessions.join(join, handle)?;
        drop(seat);
        if let Some(file) = join.file {
            member.lend(file, channel);
            return Ok(());
        }
        match Joined::new(channel, member).serve() {
            slow @ Err(Error::Wire(WireError::Slow { .. })) => slow,
            // What ends a stream ends its session, which says so.
            Err(Error::Wire(_) | Error::Interrupted(_)) => Ok(()),
            ended => ended,
        }
    }

    /// That of a sender, if it has none yet.
    fn senders_seat(&self, Seated { seat, is_senders }: Seated) -> Option<Seat> {
        if is_senders { Some(seat) } else { self.senders.take() }
    }

    fn serve_sender(&self, _seat: Seat, heard: Result<Heard>, tell: &dyn Fn(Event)) {
        tell(Event::Came);
        let served = heard.and_then(|heard| self.session(heard, tell));
        tell(served.into());
        if self.manner.once {
            self.unserved.lock().unwrap_or_else(PoisonError::into_inner).take();
        }
    }

    fn session(&self, Heard { mut channel, first, .. }: Heard, tell: &dyn Fn(Event)) -> Result<Summary> {
        let desk = Desk::new(&self.destination, self.manner.overwrite)?;
        Session::new(&mut channel, desk, tell).by(self.manner.moving).among(&self.sessions).serve_after(first)
    }
}

/// An error where other hosts can reach an address, and there is no secret.
pub(crate) fn check_reach(address: SocketAddr, secret: &Secret) -> Result<()> {
    if secret.is_some() || is_loopback(address) { Ok(()) } else { Err(WireError::Open { address }.into()) }
}

/// Tells a sender that there is no place for it.
fn turned_away(heard: Result<Heard>) -> Error {
    let busy = Error::Wire(WireError::Busy { role: PROTOCOL.listener.role });
    let told = heard.and_then(|mut heard| heard.channel.send(&FromReceiver::Refused(Reason(busy.told()))));
    told.err().unwrap_or(busy)
}
