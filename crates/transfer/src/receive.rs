//! The receiving end: listens, and has each sender's files arrive in one directory.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::{Builder, Scope};
use std::time::{Duration, Instant};

use kelvin_wire::address::is_loopback;
use kelvin_wire::secret::Secret;
use kelvin_wire::{Error as WireError, Hash, Hasher};

use crate::channel::{Channel, PART};
use crate::deposit::{Deposit, Directory};
use crate::message::{FromReceiver, FromSender, Header, Settings};
use crate::name::Name;
use crate::seats::{Seat, Seats};
use crate::summary::{Summary, timed};
use crate::{Error, Result, handshake};

/// How often the receiver checks whether it is to stop while nobody connects.
const LOOK: Duration = Duration::from_millis(100);
/// The pause after a connection could not be accepted, as when no file descriptor is left.
const PAUSE: Duration = Duration::from_millis(50);
/// Connections before the end of their handshake, and senders, at one time.
const NEWCOMERS: usize = 64;
const SENDERS: usize = 4;
/// Stack of a thread: buffers are on the heap, only elliptic curves are on it.
const STACK: usize = 512 << 10;

/// Receives events: who, and what happened.
pub type Tell = dyn Fn(SocketAddr, Event) + Send + Sync;

/// What happens.
#[derive(Debug)]
pub enum Event {
    /// A sender was authenticated.
    Came,
    /// A file is in its place.
    Kept(Name),
    /// A file was refused, or did not arrive whole: nothing of it is kept.
    Unkept(Name, Error),
    /// A sender has finished.
    Done(Summary),
    /// A fault ended a sender's connection.
    Fault(Error),
    /// An unauthenticated connection was refused, or ended.
    TurnedAway(Error),
}

/// How to receive.
#[derive(Clone, Copy, Debug, Default)]
pub struct Manner {
    /// Whether existing files may be replaced.
    pub overwrite: bool,
    /// Whether to end after one sender.
    pub once: bool,
}

/// A listening receiver.
pub struct Receiver {
    listener: TcpListener,
    directory: Directory,
    secret: Secret,
    manner: Manner,
    tell: Box<Tell>,
    newcomers: Seats,
    senders: Seats,
    /// Connections, to be closed when it ends.
    open: Mutex<Vec<(u64, TcpStream)>>,
    /// Whether the one sender was served.
    is_served: AtomicBool,
}

impl Receiver {
    /// Listens.
    ///
    /// # Errors
    /// An address that other hosts can reach, without a secret; an unavailable address.
    pub fn listen(
        address: SocketAddr,
        directory: Directory,
        secret: Secret,
        manner: Manner,
        tell: Box<Tell>,
    ) -> Result<Self> {
        if !secret.is_some() && !is_loopback(address) {
            return Err(WireError::Open { address }.into());
        }
        let listener = TcpListener::bind(address).map_err(WireError::call("listen"))?;
        // A connection that is gone before it is accepted must not block the loop.
        listener.set_nonblocking(true).map_err(WireError::call("listen"))?;
        let senders = Seats::new(if manner.once { 1 } else { SENDERS });
        let (newcomers, open, is_served) = (Seats::new(NEWCOMERS), Mutex::default(), AtomicBool::new(false));
        Ok(Self { listener, directory, secret, manner, tell, newcomers, senders, open, is_served })
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
                if is_over() || self.is_served.load(Ordering::Acquire) {
                    break Ok(());
                }
                match kelvin_sys::ready::readable(self.listener.as_fd(), LOOK) {
                    Ok(true) => self.accept(scope, &mut number),
                    Ok(false) => {}
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
        let Some(seat) = self.newcomers.take() else {
            return (self.tell)(from, Event::TurnedAway(WireError::Crowded.into()));
        };
        *number += 1;
        let own = *number;
        let Ok(second) = stream.try_clone() else { return };
        self.open().push((own, second));
        let serve = move || {
            self.meet(stream, from, seat);
            self.open().retain(|(number, _)| *number != own);
        };
        if let Err(source) = Builder::new().name("sender".into()).stack_size(STACK).spawn_scoped(scope, serve) {
            self.open().retain(|(number, _)| *number != own);
            (self.tell)(from, Event::Fault(WireError::Call { doing: "start a thread", source }.into()));
        }
    }

    /// Shakes hands with a new connection, and serves it if it knows the secret.
    fn meet(&self, mut stream: TcpStream, from: SocketAddr, newcomer: Seat) {
        let shaken = handshake::receiver(&mut stream, &self.secret, || self.senders.take());
        let set_up = stream.set_nodelay(true).map_err(WireError::call("set up the connection")).map_err(Error::Wire);
        let (noise, _seat) = match set_up.and(shaken) {
            Ok(client) => client,
            // Only authenticated senders learn that.
            Err(error @ Error::Busy) => return (self.tell)(from, Event::Fault(error)),
            Err(error) => return (self.tell)(from, Event::TurnedAway(error)),
        };
        drop(newcomer);
        (self.tell)(from, Event::Came);
        let tell = |event| (self.tell)(from, event);
        let (directory, overwrite) = (&self.directory, self.manner.overwrite);
        let session =
            Session { channel: &mut Channel::new(stream, noise), directory, overwrite, tell: &tell, verify: true };
        tell(session.serve().map_or_else(Event::Fault, Event::Done));
        self.is_served.store(self.manner.once, Ordering::Release);
    }
}

/// A sender that is being served.
pub(crate) struct Session<'a, S> {
    pub(crate) channel: &'a mut Channel<S>,
    pub(crate) directory: &'a Directory,
    pub(crate) overwrite: bool,
    pub(crate) tell: &'a dyn Fn(Event),
    pub(crate) verify: bool,
}

impl<S: kelvin_wire::deadline::Connection> Session<'_, S> {
    /// Has all its files arrive.
    pub(crate) fn serve(mut self) -> Result<Summary> {
        let FromSender::Begin(Settings { plain, verify }) = self.channel.receive()? else {
            return Err(Error::Nonsense("it does not begin"));
        };
        self.channel.set_plain(plain);
        self.verify = verify;
        let (mut files, mut bytes) = (0, 0_u64);
        loop {
            match self.channel.receive()? {
                FromSender::File(header) => {
                    if self.file(&header)? {
                        (files, bytes) = (files + 1, bytes.saturating_add(header.bytes));
                    }
                }
                FromSender::Finish { nanoseconds, failed, times: sender } => {
                    let receiver = self.channel.times;
                    self.channel.send(&FromReceiver::Times(receiver))?;
                    let (verified, encrypted) = (verify, !plain);
                    return Ok(Summary { files, bytes, failed, nanoseconds, verified, encrypted, sender, receiver });
                }
                _ => return Err(Error::Nonsense("it neither announces a file nor finishes")),
            }
        }
    }

    /// Has a file arrive, and says whether it was kept.
    fn file(&mut self, header: &Header) -> Result<bool> {
        match self.arrive(header) {
            Ok(after) => {
                self.channel.send(&FromReceiver::Kept { after: after.elapsed().as_nanos() as u64 })?;
                (self.tell)(Event::Kept(header.name.clone()));
                Ok(true)
            }
            Err(Unkept { why, is_answered }) if why.is_of_one_file() => {
                if !is_answered {
                    self.channel.send(&FromReceiver::Failed { why: why.told() })?;
                }
                (self.tell)(Event::Unkept(header.name.clone(), why));
                Ok(false)
            }
            Err(Unkept { why, .. }) => Err(why.during(&header.name)),
        }
    }

    /// Has a file arrive, and returns when its last byte did.
    fn arrive(&mut self, header: &Header) -> std::result::Result<Instant, Unkept> {
        let place = self.directory.place(&header.name)?;
        let deposit = Deposit::make(&place, header, self.overwrite)?;
        self.channel.send(&FromReceiver::Go)?;
        let digest = self.content(header, &deposit)?;
        let arrived = Instant::now();
        match self.channel.receive()? {
            FromSender::Whole { digest: Some(sent) } if digest.is_some_and(|own| own != Hash::from_bytes(sent)) => {
                Err(Error::Digest.into())
            }
            FromSender::Whole { digest: None } if digest.is_some() => Err(Error::Digest.into()),
            FromSender::Whole { .. } => {
                deposit.keep()?;
                Ok(arrived)
            }
            FromSender::Abandoned { why } => Err(Error::Refused(why).into()),
            _ => Err(Error::Nonsense(UNENDED).into()),
        }
    }

    /// Writes all bytes of a file, and returns their digest.
    fn content(&mut self, header: &Header, deposit: &Deposit<'_>) -> std::result::Result<Option<Hash>, Unkept> {
        let mut left = header.bytes;
        let mut hasher = self.verify.then(Hasher::new);
        let mut buffer = vec![0; PART];
        while left > 0 {
            let came = self.channel.receive_part(&mut buffer)? as u64;
            if came == 0 {
                return Err(self.abandoned().into());
            }
            left = left.checked_sub(came).ok_or(Error::Nonsense(MORE))?;
            let part = &buffer[..came as usize];
            if let Some(hasher) = &mut hasher {
                timed(&mut self.channel.times.verify, || hasher.update(part));
            }
            if let Err(error) = timed(&mut self.channel.times.file, || deposit.write(part)) {
                return Err(self.stop(left, error.into(), &mut buffer)?);
            }
        }
        Ok(hasher.map(|hasher| hasher.finalize()))
    }

    /// Why the rest of a file does not come.
    fn abandoned(&mut self) -> Error {
        match self.channel.receive() {
            Ok(FromSender::Abandoned { why }) => Error::Refused(why),
            Ok(_) => Error::Nonsense("it does not say why a file ended early"),
            Err(error) => error,
        }
    }

    /// Answers at once that a file cannot be kept, and passes over what is still sent of it.
    fn stop(&mut self, mut left: u64, why: Error, buffer: &mut [u8]) -> Result<Unkept> {
        self.channel.send(&FromReceiver::Failed { why: why.told() })?;
        while left > 0 {
            match self.channel.receive_part(buffer)? as u64 {
                0 => break,
                came => left = left.checked_sub(came).ok_or(Error::Nonsense(MORE))?,
            }
        }
        match self.channel.receive()? {
            FromSender::Whole { .. } | FromSender::Abandoned { .. } => Ok(Unkept { why, is_answered: true }),
            _ => Err(Error::Nonsense(UNENDED)),
        }
    }
}

/// What a sender did wrong.
const MORE: &str = "it sent more bytes of a file than it had announced";
const UNENDED: &str = "it does not say how a file ended";

/// Why a file was not kept, and whether the sender knows already.
struct Unkept {
    why: Error,
    is_answered: bool,
}

impl<E: Into<Error>> From<E> for Unkept {
    fn from(why: E) -> Self {
        Self { why: why.into(), is_answered: false }
    }
}
