//! More connections of a sender, which join its session: as streams that carry whole blocks of the file that is being sent, or each for
//! the content of one file.

use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Receiver, channel};

use crate::wire::Hasher;
use crate::wire::secret::Secret;
use kelvin_sys::stop_signals;
use kelvin_sys::thread_spawn::ThreadBuilder;

use super::files::shortened_error;
use super::parallel_file::{BlockQueue, StreamHandle};
use super::{SendSession, Sender, connect, shake_hands};
use crate::message::{EntryNumber, FilePiece, JoinRequest, ReceiverMessage, RefusalReason, SenderMessage};
use crate::secure_channel::{PART_BYTES, SecureChannel, TransferStream};
use crate::session_streams::SessionId;
use crate::stage_times::add_elapsed;
use crate::{Error, Result};

impl Sender {
    /// Has more connections join the session, once the receiver has said by what.
    pub(super) fn join(&mut self, peer: SocketAddr, secret: &Secret) -> Result<()> {
        let (session, door) =
            (self.request_session()?, StreamConnector::new(peer, secret, self.options.settings.plain));
        for _ in 1..self.options.settings.streams {
            self.extra_streams.idle.push(door.join(session)?);
        }
        Ok(())
    }

    /// Has each file go over a connection of its own, which joins the session.
    pub(super) fn connect_for_each(&mut self, peer: SocketAddr, secret: &Secret) -> Result<()> {
        let (session, door) =
            (self.request_session()?, StreamConnector::new(peer, secret, self.options.settings.plain));
        self.connect_for_file = Some(Box::new(move |file| {
            let mut channel = door.connect()?;
            channel.send(&SenderMessage::Join(JoinRequest { session, file: Some(file) }))?;
            Ok(channel)
        }));
        Ok(())
    }

    /// By what its session is joined.
    pub(super) fn request_session(&mut self) -> Result<SessionId> {
        self.channel.flush()?;
        match self.channel.receive()? {
            ReceiverMessage::Session(id) => Ok(id),
            ReceiverMessage::Refused(RefusalReason(why)) => Err(Error::RefusedAll(why)),
            _ => Err(Error::ProtocolViolation("it does not say how its session is joined")),
        }
    }
}

/// Makes a connection for the content of a file.
pub(super) type ConnectForFile<S> = Box<dyn Fn(EntryNumber) -> Result<SecureChannel<S>>>;

/// Most files that have connections of their own and no verdict: with more, the receiver would hold more than it works on.
const MAX_UNACKED_CONNECTIONS: usize = 4;

impl<S: TransferStream> SendSession<'_, S> {
    /// Has a file go over a connection of its own, if each does.
    pub(super) fn open_file_connection(&mut self, number: usize) -> Result<()> {
        let Some(another) = self.connect_for_file.take() else { return Ok(()) };
        while !self.can_bypass_channel() || self.is_far_ahead() {
            let message = self.channel.receive()?;
            self.on_message(message)?;
        }
        let file = number as EntryNumber;
        let own = add_elapsed(&mut self.channel.times.connection, || another(file))?;
        self.connect_for_file = Some(another);
        // It joins first, so that the receiver need not wait for it.
        self.channel.send(&SenderMessage::FileConnection { file })?;
        self.file_connection.open(own, self.channel);
        Ok(())
    }

    /// Whether so many files have no verdict. Their connections are kept for a while after it: closed by the other end first, they leave
    /// this one its port.
    fn is_far_ahead(&mut self) -> bool {
        if self.closing.len() == MAX_UNACKED_CONNECTIONS {
            self.closing.pop_front_if(|(number, _)| !self.unacked.contains_key(number));
        }
        self.closing.len() == MAX_UNACKED_CONNECTIONS
    }

    /// Ends the connection of a file.
    pub(super) fn close_file_connection(&mut self, number: usize) -> Result<()> {
        if self.connect_for_file.is_none() {
            return Ok(());
        }
        self.methods.finish()?;
        self.methods.reset_socket();
        self.file_connection.channel_or(self.channel).send(&SenderMessage::End)?;
        self.closing.extend(self.file_connection.close(self.channel).map(|own| (number, own)));
        Ok(())
    }
}

/// Where more connections of a session are made.
#[derive(Clone)]
pub(super) struct StreamConnector {
    peer: SocketAddr,
    secret: Secret,
    plain: bool,
}

impl StreamConnector {
    pub(super) fn new(peer: SocketAddr, secret: &Secret, plain: bool) -> Self {
        Self { peer, secret: secret.clone(), plain }
    }

    /// A connection that has shaken hands.
    pub(super) fn connect(&self) -> Result<SecureChannel<TcpStream>> {
        let mut channel = shake_hands(connect(&[self.peer])?, &self.secret)?;
        channel.set_plain(self.plain);
        Ok(channel)
    }

    fn join(&self, session: SessionId) -> Result<JoinedSendStream> {
        JoinedSendStream::new(self.connect()?, session)
    }
}

/// The streams beside the first one that have joined and carry nothing now, and how more of them are had.
#[derive(Default)]
pub(super) struct ExtraStreams {
    pub(super) idle: Vec<JoinedSendStream>,
    /// Where they come from; none where there are no others than those.
    pub(super) connector: Option<StreamConnector>,
    opening: Option<Receiver<Result<JoinedSendStream>>>,
    /// Connections that are being made.
    pending: usize,
}

impl ExtraStreams {
    /// Takes those that have joined since; says whether one could not.
    pub(super) fn take_new(&mut self) -> bool {
        let Some(opening) = &self.opening else { return false };
        let mut has_failed = false;
        for opened in opening.try_iter() {
            self.pending -= 1;
            match opened {
                Ok(joined) => self.idle.push(joined),
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
        let Some(door) = self.connector.clone().filter(|_| self.pending == 0) else { return Ok(()) };
        let (told, opening) = channel();
        let open = move || {
            // Where all was sent, nobody listens any more.
            let _ = (0..more).all(|_| told.send(door.join(session)).is_ok());
        };
        ThreadBuilder::named("joining").start(open)?;
        self.pending = more;
        self.opening = Some(opening);
        Ok(())
    }
}

/// A connection that has joined the session.
pub(super) struct JoinedSendStream {
    channel: SecureChannel<TcpStream>,
    buffer: Vec<u8>,
}

impl JoinedSendStream {
    fn new(mut channel: SecureChannel<TcpStream>, session: SessionId) -> Result<Self> {
        channel.send(&SenderMessage::Join(JoinRequest { session, file: None }))?;
        match channel.receive()? {
            ReceiverMessage::BlockWritten(None) => Ok(Self { channel, buffer: vec![0; PART_BYTES] }),
            _ => Err(Error::ProtocolViolation("it does not say that a stream has joined")),
        }
    }

    /// Sends blocks of a file while there are any, it has not failed and this stream is not to stop.
    pub(super) fn send(&mut self, split: &BlockQueue<'_>, leg: &StreamHandle) -> Result<()> {
        let sent = self.send_share(split, leg);
        if sent.is_err() {
            split.clear();
        }
        sent
    }

    fn send_share(&mut self, split: &BlockQueue<'_>, leg: &StreamHandle) -> Result<()> {
        let mut answers = BlockAnswers::default();
        while let Some(piece) = leg.should_continue().then(|| split.next_block()).flatten() {
            answers.outstanding += 1;
            let is_whole = self.send_block(split, &piece)?;
            leg.report_sent(piece.bytes);
            while let Some(answer) = self.channel.try_receive()? {
                answers.on_answer(answer)?;
            }
            if !is_whole {
                answers.failed.get_or_insert(shortened_error(split.source, split.file));
            }
            if answers.failed.is_some() {
                split.clear();
            }
        }
        // What comes later is of the next file.
        while answers.outstanding > 0 {
            answers.on_answer(self.channel.receive()?)?;
        }
        answers.failed.map_or(Ok(()), Err)
    }

    /// Sends a whole block, since so much was announced; says whether the file had all of it.
    fn send_block(&mut self, split: &BlockQueue<'_>, piece: &FilePiece) -> Result<bool> {
        self.channel.queue(&SenderMessage::Block(*piece))?;
        let (mut done, mut is_whole, mut hasher) = (0, true, Hasher::new());
        while done < piece.bytes {
            let bytes = split.limiter.max_burst(PART_BYTES as u64).min((piece.bytes - done).into()) as usize;
            let part = &mut self.buffer[..bytes];
            if split.file.read_exact_at(part, piece.offset + u64::from(done)).is_err() {
                is_whole = false;
                part.fill(0);
            }
            if split.verify {
                hasher.update(part);
            }
            self.channel.send_data(part)?;
            split.limiter.wait_after(bytes as u64);
            stop_signals::stop_signal().map_or(Ok(()), |signal| Err(Error::Interrupted(signal)))?;
            done += bytes as u32;
        }
        if split.verify {
            self.channel.queue(&SenderMessage::Digests(vec![*hasher.finalize().as_bytes()]))?;
        }
        self.channel.flush()?;
        Ok(is_whole)
    }
}

/// What the receiver said of the blocks of a stream.
#[derive(Default)]
struct BlockAnswers {
    /// Of how many blocks it has said nothing.
    outstanding: u64,
    /// Why the file will not be whole.
    failed: Option<Error>,
}

impl BlockAnswers {
    fn on_answer(&mut self, answer: ReceiverMessage) -> Result<()> {
        let nonsense = Error::ProtocolViolation("it says something else than what became of a block");
        let ReceiverMessage::BlockWritten(why) = answer else { return Err(nonsense) };
        self.outstanding = self.outstanding.checked_sub(1).ok_or(nonsense)?;
        if let Some(RefusalReason(why)) = why {
            self.failed.get_or_insert(Error::Refused(why));
        }
        Ok(())
    }
}
