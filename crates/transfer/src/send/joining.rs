//! More connections of a sender, which join its session as streams and carry whole blocks of the file that is being sent.

use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Receiver, channel};

use kelvin_sys::interrupt;
use kelvin_sys::spawn::Thread;
use kelvin_wire::Hasher;
use kelvin_wire::secret::Secret;

use super::files::shortened;
use super::split::{Leg, Split};
use super::{Sender, connect, shake_hands};
use crate::channel::{Channel, PART};
use crate::joined::SessionId;
use crate::message::{FromReceiver, FromSender, Join, Piece, Reason};
use crate::{Error, Result};

impl Sender {
    /// Has more connections join the session, once the receiver has said by what.
    pub(super) fn join(&mut self, peer: SocketAddr, secret: &Secret) -> Result<()> {
        let (session, door) = (self.session()?, Door::new(peer, secret, self.manner.settings.plain));
        for _ in 1..self.manner.settings.streams {
            self.others.joined.push(door.join(session)?);
        }
        Ok(())
    }

    /// By what its session is joined.
    pub(super) fn session(&mut self) -> Result<SessionId> {
        self.channel.flush()?;
        match self.channel.receive()? {
            FromReceiver::Session(id) => Ok(id),
            FromReceiver::Refused(Reason(why)) => Err(Error::RefusedAll(why)),
            _ => Err(Error::Nonsense("it does not say how its session is joined")),
        }
    }
}

/// Where more connections of a session are made.
#[derive(Clone)]
pub(super) struct Door {
    peer: SocketAddr,
    secret: Secret,
    plain: bool,
}

impl Door {
    pub(super) fn new(peer: SocketAddr, secret: &Secret, plain: bool) -> Self {
        Self { peer, secret: secret.clone(), plain }
    }

    /// A connection that has shaken hands.
    pub(super) fn connect(&self) -> Result<Channel<TcpStream>> {
        let mut channel = shake_hands(connect(&[self.peer])?, &self.secret)?;
        channel.set_plain(self.plain);
        Ok(channel)
    }

    fn join(&self, session: SessionId) -> Result<Joined> {
        Joined::new(self.connect()?, session)
    }
}

/// The streams beside the first one that have joined and carry nothing now, and how more of them are had.
#[derive(Default)]
pub(super) struct Others {
    pub(super) joined: Vec<Joined>,
    /// Where they come from; none where there are no others than those.
    pub(super) door: Option<Door>,
    opening: Option<Receiver<Result<Joined>>>,
    /// Connections that are being made.
    missing: usize,
}

impl Others {
    /// Takes those that have joined since; says whether one could not.
    pub(super) fn take_new(&mut self) -> bool {
        let Some(opening) = &self.opening else { return false };
        let mut has_failed = false;
        for opened in opening.try_iter() {
            self.missing -= 1;
            match opened {
                Ok(joined) => self.joined.push(joined),
                Err(_) => has_failed = true,
            }
        }
        has_failed
    }

    /// Has so many more join, unless some are on their way. Nothing waits for them but a thread that ends when they are there: a file may
    /// end before.
    ///
    /// # Errors
    /// That of a system that starts no thread.
    pub(super) fn open(&mut self, more: usize, session: SessionId) -> std::io::Result<()> {
        let Some(door) = self.door.clone().filter(|_| self.missing == 0) else { return Ok(()) };
        let (told, opening) = channel();
        let open = move || {
            // Where all was sent, nobody listens any more.
            let _ = (0..more).all(|_| told.send(door.join(session)).is_ok());
        };
        Thread::named("joining").start(open)?;
        self.missing = more;
        self.opening = Some(opening);
        Ok(())
    }
}

/// A connection that has joined the session.
pub(super) struct Joined {
    channel: Channel<TcpStream>,
    buffer: Vec<u8>,
}

impl Joined {
    fn new(mut channel: Channel<TcpStream>, session: SessionId) -> Result<Self> {
        channel.send(&FromSender::Join(Join { session, file: None }))?;
        match channel.receive()? {
            FromReceiver::Took(None) => Ok(Self { channel, buffer: vec![0; PART] }),
            _ => Err(Error::Nonsense("it does not say that a stream has joined")),
        }
    }

    /// Sends blocks of a file while there are any, it has not failed and this stream is not to stop.
    pub(super) fn send(&mut self, split: &Split<'_>, leg: &Leg) -> Result<()> {
        let sent = self.send_share(split, leg);
        if sent.is_err() {
            split.give_up();
        }
        sent
    }

    fn send_share(&mut self, split: &Split<'_>, leg: &Leg) -> Result<()> {
        let mut answers = Answers::default();
        while let Some(piece) = leg.may_go_on().then(|| split.next()).flatten() {
            answers.missing += 1;
            let is_whole = self.send_block(split, &piece)?;
            leg.sent(piece.bytes);
            while let Some(answer) = self.channel.received()? {
                answers.hear(answer)?;
            }
            if !is_whole {
                answers.failed.get_or_insert(shortened(split.source, split.file));
            }
            if answers.failed.is_some() {
                split.give_up();
            }
        }
        // What comes later is of the next file.
        while answers.missing > 0 {
            answers.hear(self.channel.receive()?)?;
        }
        answers.failed.map_or(Ok(()), Err)
    }

    /// Sends a whole block, since so much was announced; says whether the file had all of it.
    fn send_block(&mut self, split: &Split<'_>, piece: &Piece) -> Result<bool> {
        self.channel.queue(&FromSender::Block(*piece))?;
        let (mut done, mut is_whole, mut hasher) = (0, true, Hasher::new());
        while done < piece.bytes {
            let bytes = split.pace.most(PART as u64).min((piece.bytes - done).into()) as usize;
            let part = &mut self.buffer[..bytes];
            if split.file.read_exact_at(part, piece.offset + u64::from(done)).is_err() {
                is_whole = false;
                part.fill(0);
            }
            if split.verify {
                hasher.update(part);
            }
            self.channel.send_data(part)?;
            split.pace.wait(bytes as u64);
            interrupt::requested().map_or(Ok(()), |signal| Err(Error::Interrupted(signal)))?;
            done += bytes as u32;
        }
        if split.verify {
            self.channel.queue(&FromSender::Digests(vec![*hasher.finalize().as_bytes()]))?;
        }
        self.channel.flush()?;
        Ok(is_whole)
    }
}

/// What the receiver said of the blocks of a stream.
#[derive(Default)]
struct Answers {
    /// Of how many blocks it has said nothing.
    missing: u64,
    /// Why the file will not be whole.
    failed: Option<Error>,
}

impl Answers {
    fn hear(&mut self, answer: FromReceiver) -> Result<()> {
        let nonsense = Error::Nonsense("it says something else than what became of a block");
        let FromReceiver::Took(why) = answer else { return Err(nonsense) };
        self.missing = self.missing.checked_sub(1).ok_or(nonsense)?;
        if let Some(Reason(why)) = why {
            self.failed.get_or_insert(Error::Refused(why));
        }
        Ok(())
    }
}
