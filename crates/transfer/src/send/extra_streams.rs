//! More connections of a sender, which join its session. They are streams that carry whole blocks of the file that is being sent, or each for
//! the content of one file.

use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, channel};

use kelvin_sys::thread_spawn::ThreadBuilder;

use super::parallel_file::JoinedSendStream;
use super::{SendSession, Sender, connect, shake_hands};
use crate::message::{
    ConnectionLifetime, EntryNumber, JoinRequest, ReceiverMessage, RefusalReason, SenderMessage, SessionId,
    SessionSettings,
};
use crate::secure_channel::{SecureChannel, TransferStream};
use crate::stage_times::add_elapsed;
use crate::wire::secret::Secret;
use crate::{Error, Result};

impl Sender {
    /// Has more connections join the session, once the receiver has sent the means: as streams, or one for each file.
    pub(super) fn join(&mut self, peer: SocketAddr, secret: &Secret) -> Result<()> {
        self.channel.flush()?;
        let session = match self.channel.receive()? {
            ReceiverMessage::Session(id) => id,
            ReceiverMessage::Refused(RefusalReason(why)) => return Err(Error::RefusedAll(why)),
            _ => return Err(Error::ProtocolViolation("it does not say how its session is joined")),
        };
        let connector = self.connector(peer, secret);
        let SessionSettings { streams, connection, .. } = self.options.settings;
        if connection == ConnectionLifetime::PerFile {
            self.connect_for_file = Some(Box::new(move |file| {
                let mut channel = connector.connect()?;
                channel.send(&SenderMessage::Join(JoinRequest { session, file: Some(file) }))?;
                Ok(channel)
            }));
            return Ok(());
        }
        self.extra_streams.idle = (1..streams).map(|_| connector.join(session)).collect::<Result<_>>()?;
        Ok(())
    }

    /// Makes more connections to the receiver.
    pub(super) fn connector(&self, peer: SocketAddr, secret: &Secret) -> StreamConnector {
        StreamConnector { peer, secret: secret.clone(), plain: self.options.settings.plain }
    }
}

/// Makes a connection for the content of a file.
pub(super) type ConnectForFile<S> = Box<dyn Fn(EntryNumber) -> Result<SecureChannel<S>>>;

/// Most files that have connections of their own and no verdict: with more, the receiver would hold more than it works on.
const MAX_UNACKED_CONNECTIONS: usize = 4;

impl<S: TransferStream> SendSession<'_, S> {
    /// Has a file go over a connection of its own, if each does.
    pub(super) fn open_file_connection(&mut self, number: usize) -> Result<()> {
        let Some(connect_file) = self.connect_for_file.take() else { return Ok(()) };
        while !self.can_bypass_channel() || self.is_far_ahead() {
            self.receive_message()?;
        }
        let file = number as EntryNumber;
        let file_channel = add_elapsed(&mut self.channels.first.times.connection, || connect_file(file))?;
        self.connect_for_file = Some(connect_file);
        // It joins first, so that the receiver need not wait for it.
        self.channels.first.send(&SenderMessage::FileConnection(file))?;
        self.channels.open(file_channel);
        Ok(())
    }

    /// Whether this many files have no verdict. Their connections are kept for a while after it: closed by the other end first, they leave
    /// this one its port.
    fn is_far_ahead(&mut self) -> bool {
        let is_oldest_acked = self.closing.front().is_some_and(|(number, _)| !self.unacked.contains_key(number));
        if self.closing.len() == MAX_UNACKED_CONNECTIONS && is_oldest_acked {
            self.closing.pop_front();
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
        self.channels.current().send(&SenderMessage::End)?;
        self.closing.extend(self.channels.close().map(|file_channel| (number, file_channel)));
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
    /// A connection that has shaken hands.
    fn connect(&self) -> Result<SecureChannel<TcpStream>> {
        let mut channel = shake_hands(connect(&[self.peer])?, &self.secret)?;
        channel.plain = self.plain;
        Ok(channel)
    }

    fn join(&self, session: SessionId) -> Result<JoinedSendStream> {
        JoinedSendStream::join(self.connect()?, session)
    }
}

/// The streams after the first one that have joined and carry nothing now, and how more of them are had.
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
    /// Takes those that have joined since; returns whether one could not.
    pub(super) fn take_new(&mut self) -> bool {
        let Some(opening) = &self.opening else { return false };
        let mut has_failed = false;
        for outcome in opening.try_iter() {
            self.pending -= 1;
            match outcome {
                Ok(stream) => self.idle.push(stream),
                Err(_) => has_failed = true,
            }
        }
        has_failed
    }

    /// Has this many more join, unless some are on their way. Nothing waits for them but a thread that ends when they are there: a file may
    /// end before.
    ///
    /// # Errors
    /// That of a system that starts no thread.
    pub(super) fn open(&mut self, count: usize, session: SessionId) -> std::io::Result<()> {
        let Some(connector) = self.connector.clone().filter(|_| self.pending == 0) else { return Ok(()) };
        let (sender, opening) = channel();
        let open = move || {
            // Where all was sent, nobody listens any more.
            let _ = (0..count).all(|_| sender.send(connector.join(session)).is_ok());
        };
        ThreadBuilder::named("joining").start(open)?;
        self.pending = count;
        self.opening = Some(opening);
        Ok(())
    }
}
