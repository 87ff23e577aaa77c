//! More connections of a sender, which join its session: streams, which carry whole blocks of the file that is being sent, or one for
//! each file.
//!
//! All streams take blocks of it from one place, the first one too, and the last block is left to the first one: when it goes,
//! the receiver has said of all others that it has them.

use std::fs::File;
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender as Teller, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use kelvin_sys::interrupt;
use kelvin_wire::Hasher;
use kelvin_wire::secret::Secret;

use super::files::shortened;
use super::{Sender, Sending, Wanted, connect, shake_hands};
use crate::blocks::{self, BLOCK, bit};
use crate::channel::{Channel, PART, Stream};
use crate::joined::SessionId;
use crate::load::timed;
use crate::message::{FromReceiver, FromSender, Join, Number, Piece, Reason};
use crate::pace::Pace;
use crate::source::Source;
use crate::{Error, Result};

/// How often the first stream says something while it waits for the others, so that the receiver does not take it for gone, and
/// looks whether it is to stop.
const TICK: Duration = Duration::from_millis(100);

impl Sender {
    /// Has more connections join the session, once the receiver has said by what.
    pub(super) fn join(&mut self, peer: SocketAddr, secret: &Secret) -> Result<()> {
        let session = self.session()?;
        let plain = self.manner.settings.plain;
        for _ in 1..self.manner.settings.streams {
            let mut channel = shake_hands(connect(&[peer])?, secret)?;
            channel.set_plain(plain);
            self.joined.push(Joined::new(channel, session)?);
        }
        Ok(())
    }

    /// Has each file go over a connection of its own, which joins the session.
    pub(super) fn connect_for_each(&mut self, peer: SocketAddr, secret: &Secret) -> Result<()> {
        let (session, secret, plain) = (self.session()?, secret.clone(), self.manner.settings.plain);
        self.another = Some(Box::new(move |file| {
            let mut channel = shake_hands(connect(&[peer])?, &secret)?;
            channel.set_plain(plain);
            channel.send(&FromSender::Join(Join { session, file: Some(file) }))?;
            Ok(channel)
        }));
        Ok(())
    }

    /// By what its session is joined.
    fn session(&mut self) -> Result<SessionId> {
        self.channel.flush()?;
        match self.channel.receive()? {
            FromReceiver::Session(id) => Ok(id),
            FromReceiver::Refused(Reason(why)) => Err(Error::RefusedAll(why)),
            _ => Err(Error::Nonsense("it does not say how its session is joined")),
        }
    }
}

/// Makes a connection for the content of a file.
pub(super) type Another<S> = Box<dyn Fn(Number) -> Result<Channel<S>>>;

/// Most files that have connections of their own and no verdict: with more, the receiver would hold more than it works on.
const AHEAD: usize = 4;

impl<S: Stream> Sending<'_, S> {
    /// Has a file go over a connection of its own, if each does.
    pub(super) fn begin_apart(&mut self, number: usize) -> Result<()> {
        let Some(another) = self.another.take() else { return Ok(()) };
        while !self.may_not_listen() || self.is_far_ahead() {
            let message = self.channel.receive()?;
            self.hear(message)?;
        }
        let file = number as Number;
        let own = timed(&mut self.channel.times.connection, || another(file))?;
        self.another = Some(another);
        // It joins first, so that the receiver need not wait for it.
        self.channel.send(&FromSender::Apart { file })?;
        self.apart.begin(own);
        Ok(())
    }

    /// Whether so many files have no verdict. Their connections are kept for a while after it: closed by the other end first, they leave
    /// this one its port.
    fn is_far_ahead(&mut self) -> bool {
        if self.ending.len() == AHEAD {
            self.ending.pop_front_if(|(number, _)| !self.unjudged.contains_key(number));
        }
        self.ending.len() == AHEAD
    }

    /// Ends the connection of a file.
    pub(super) fn end_apart(&mut self, number: usize) -> Result<()> {
        if self.another.is_none() {
            return Ok(());
        }
        self.ways.finish()?;
        self.ways.leave_socket();
        self.apart.or(self.channel).send(&FromSender::End)?;
        self.ending.extend(self.apart.end(self.channel).map(|own| (number, own)));
        Ok(())
    }
}

/// A file whose blocks are sent over several streams, and which of them are next.
struct Split<'a> {
    source: &'a Source,
    file: &'a File,
    number: Number,
    kept: &'a [u8],
    next: Mutex<u64>,
    /// The last block, which is not among them.
    last: u64,
    pace: &'a Pace,
    verify: bool,
}

impl Split<'_> {
    /// The next block.
    fn next(&self) -> Option<Piece> {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let block = (*next..self.last).find(|block| !bit(self.kept, *block))?;
        *next = block + 1;
        Some(Piece { file: self.number, offset: block * BLOCK, bytes: BLOCK as u32, is_last: false })
    }

    /// No more of it is to be sent.
    fn give_up(&self) {
        *self.next.lock().unwrap_or_else(PoisonError::into_inner) = self.last;
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

    /// Sends blocks of a file while there are any and it has not failed; tells how many bytes went.
    fn send(&mut self, split: &Split<'_>, told: &Teller<u64>) -> Result<()> {
        let sent = self.send_share(split, told);
        if sent.is_err() {
            split.give_up();
        }
        sent
    }

    fn send_share(&mut self, split: &Split<'_>, told: &Teller<u64>) -> Result<()> {
        let mut answers = Answers::default();
        while let Some(piece) = split.next() {
            answers.missing += 1;
            let is_whole = self.send_block(split, &piece)?;
            // Whoever would hear of it may have given up.
            let _ = told.send(piece.bytes.into());
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

impl<S: Stream> Sending<'_, S> {
    /// Sends all blocks of a file but the last one over all streams, if there are several streams and blocks; returns the first
    /// block that was not sent, or nothing if the file is not wanted any more.
    pub(super) fn send_over_all(&mut self, source: &Source, wanted: &Wanted, file: &File) -> Result<Option<u64>> {
        let is_missing = |block: &u64| !bit(&wanted.kept, *block);
        let last = (0..blocks::count(source.bytes())).rfind(is_missing).unwrap_or_default();
        // Where the holes are is said in order.
        if self.joined.is_empty() || source.has_holes || (0..last).find(is_missing).is_none() {
            return Ok(Some(0));
        }
        let (number, pace) = (wanted.number as Number, self.pace.clone());
        let (kept, verify) = (&wanted.kept, self.manner.settings.verify);
        let split = Split { source, file, number, kept, next: Mutex::new(0), last, pace: &pace, verify };
        Ok(self.send_split(&split)?.then_some(last))
    }

    /// Sends the blocks of a split file; says whether it is still wanted.
    fn send_split(&mut self, split: &Split<'_>) -> Result<bool> {
        self.channel.send(&FromSender::Split { file: split.number })?;
        let mut joined = std::mem::take(&mut self.joined);
        let (told, news) = channel();
        let sent = std::thread::scope(|scope| {
            let others = joined.iter_mut().map(|stream| {
                let told = told.clone();
                scope.spawn(move || stream.send(split, &told))
            });
            let others: Vec<_> = others.collect();
            drop(told);
            let own = self.send_own_share(split, &news);
            split.give_up();
            let others =
                others.into_iter().map(|other| other.join().unwrap_or_else(|why| std::panic::resume_unwind(why)));
            others.fold(own, worse)
        });
        self.joined = joined;
        sent
    }

    /// Sends blocks over the first stream while there are any, and waits until the others have none.
    fn send_own_share(&mut self, split: &Split<'_>, news: &Receiver<u64>) -> Result<bool> {
        while let Some(piece) = split.next() {
            self.send_piece(split.source, split.file, piece)?;
            news.try_iter().for_each(|bytes| self.went(split, bytes));
            if !self.is_still_wanted(split.number as usize)? {
                return Ok(false);
            }
        }
        self.channel.flush()?;
        loop {
            match news.recv_timeout(TICK) {
                Ok(bytes) => self.went(split, bytes),
                Err(RecvTimeoutError::Disconnected) => return Ok(true),
                Err(RecvTimeoutError::Timeout) if self.is_still_wanted(split.number as usize)? => {
                    self.channel.send(&FromSender::Digests(Vec::new()))?;
                }
                Err(RecvTimeoutError::Timeout) => return Ok(false),
            }
        }
    }

    /// So many bytes went over another stream.
    fn went(&mut self, split: &Split<'_>, bytes: u64) {
        self.count(split.number as usize, |amount| amount.moved += bytes);
        self.pass(bytes);
    }
}

/// How a file has gone over two streams: what ended the connection counts for more than what became of the file.
fn worse(one: Result<bool>, other: Result<()>) -> Result<bool> {
    match (one, other) {
        (one, Ok(())) => one,
        (Err(one), Err(_)) if !one.is_of_one_file() => Err(one),
        // It has failed at the receiver already.
        (Ok(false), Err(other)) if other.is_of_one_file() => Ok(false),
        (_, Err(other)) => Err(other),
    }
}
