//! More connections of a session at the receiver: those that have joined it.
//!
//! Over a stream whole blocks of one file at a time come. Or each file has a connection of its own, which the session takes from here
//! when the file's turn comes.
//!
//! The session begins the file and finishes it. A stream that has joined knows what the session has split, and writes blocks of
//! that alone; each is there when its digest is right.

use std::collections::HashMap;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use kelvin_sys::lock;

use crate::wire::cipher::TAG_BYTES;
use crate::wire::secret::new_nonce;

use crate::compression::{Decompressor, check_frame};
use crate::incoming_file::SharedIncomingFile;
use crate::message::{
    ConnectionLifetime, EntryNumber, FilePiece, JoinRequest, ReceiverMessage, RefusalReason, SenderMessage, SessionId,
    SessionSettings,
};
use crate::secure_channel::{PART_BYTES, SEND_STEP, SecureChannel, TransferStream};
use crate::{Error, HANDSHAKE, Result, blocks};

/// Most connections of a session at one time, the first one included.
pub const MAX_STREAMS: u32 = 8;

/// The sessions that can be joined.
pub(crate) struct SessionRegistry<S = TcpStream>(Mutex<HashMap<SessionId, Arc<SessionShared<S>>>>);

/// What the connections of a session share.
struct SessionShared<S> {
    settings: SessionSettings,
    /// Bytes that have come over all but the first one, and were written.
    arrived_bytes: AtomicU64,
    state: Mutex<SessionState<S>>,
    changed: Condvar,
}

struct SessionState<S> {
    /// The file whose blocks may come; without the file itself if it has failed or ended.
    split: Option<(EntryNumber, Option<SharedIncomingFile>)>,
    /// The connections of files whose turn has not come, and the files of those that the session has taken.
    file_channels: HashMap<EntryNumber, LentChannel<S>>,
    /// How many have joined, and those of them that are still there, to be closed in the end.
    joined_count: u64,
    serving: HashMap<u64, TcpStream>,
    is_over: bool,
}

/// The connection of a file, until the session takes it; and where its handle is.
struct LentChannel<S> {
    channel: Option<SecureChannel<S>>,
    member: u64,
}

impl<S> SessionState<S> {
    /// Whether one more may join.
    fn can_join(&self, settings: &SessionSettings, file: Option<EntryNumber>) -> bool {
        let has_place = match (settings.connection, file) {
            (ConnectionLifetime::Persistent, None) => {
                self.joined_count < u64::from(settings.streams.min(MAX_STREAMS)) - 1
            }
            (ConnectionLifetime::PerFile, Some(file)) => {
                self.serving.len() < MAX_STREAMS as usize - 1 && !self.file_channels.contains_key(&file)
            }
            _ => false,
        };
        has_place && !self.is_over
    }
}

/// A session that can be joined until this is dropped, which waits for those that have joined.
pub(crate) struct OpenSession<'a, S> {
    sessions: &'a SessionRegistry<S>,
    /// By what it is joined.
    pub(crate) id: SessionId,
    shared: Arc<SessionShared<S>>,
}

impl<S> SessionRegistry<S> {
    /// None yet.
    pub(crate) fn new() -> Self {
        Self(Mutex::default())
    }

    /// Whether there is one.
    pub(crate) fn has_any(&self) -> bool {
        !lock(&self.0).is_empty()
    }

    /// Has a session be joined.
    ///
    /// # Errors
    /// Those of a system that gives no random numbers.
    pub(crate) fn register(&self, settings: SessionSettings) -> Result<OpenSession<'_, S>> {
        let id = new_nonce()?;
        let (file_channels, serving) = (HashMap::new(), HashMap::new());
        let state = SessionState { split: None, file_channels, joined_count: 0, serving, is_over: false };
        let (arrived_bytes, state, changed) = (AtomicU64::new(0), Mutex::new(state), Condvar::new());
        let shared = Arc::new(SessionShared { settings, arrived_bytes, state, changed });
        lock(&self.0).insert(id, Arc::clone(&shared));
        Ok(OpenSession { sessions: self, id, shared })
    }

    /// Has a connection join, by a handle with which it is closed.
    ///
    /// # Errors
    /// A session that is not there, has all the streams that it was to have, or is not to have such ones.
    pub(crate) fn join(&self, join: &JoinRequest, handle: TcpStream) -> Result<SessionMember<S>> {
        let shared = lock(&self.0).get(&join.session).map(Arc::clone).ok_or(Error::ProtocolViolation(NO_SESSION))?;
        let mut state = lock(&shared.state);
        Error::ensure(state.can_join(&shared.settings, join.file), NO_SESSION)?;
        let number = state.joined_count;
        state.joined_count += 1;
        state.serving.insert(number, handle);
        drop(state);
        Ok(SessionMember { shared, number })
    }
}

impl<S> SessionShared<S> {
    /// Waits until this holds no more.
    fn wait_while(&self, waits: impl Fn(&SessionState<S>) -> bool) -> MutexGuard<'_, SessionState<S>> {
        let state = self.changed.wait_while(lock(&self.state), |state| waits(state));
        state.unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until this file is split; nothing if it has failed, or the session is over.
    fn wait_for_split(&self, file: EntryNumber) -> Option<SharedIncomingFile> {
        let state = self.wait_while(|state| !state.is_over && state.split.as_ref().is_none_or(|split| split.0 != file));
        state.split.as_ref().filter(|_| !state.is_over).and_then(|(_, split)| split.clone())
    }
}

impl<S> OpenSession<'_, S> {
    /// How many streams there are, the first one included.
    pub(crate) fn streams(&self) -> u32 {
        match self.shared.settings.connection {
            ConnectionLifetime::Persistent => 1 + lock(&self.shared.state).joined_count as u32,
            ConnectionLifetime::PerFile => 1,
        }
    }

    /// Bytes that have come over all but the first one, and were written.
    pub(crate) fn arrived_bytes(&self) -> u64 {
        self.shared.arrived_bytes.load(Ordering::Relaxed)
    }

    /// The connection of a file, which joins before the session learns of it, but may be read after it.
    ///
    /// # Errors
    /// One that does not come.
    pub(crate) fn take_file_channel(&self, file: EntryNumber) -> Result<SecureChannel<S>> {
        let is_missing = |state: &mut SessionState<S>| !state.file_channels.contains_key(&file);
        let waited = self.shared.changed.wait_timeout_while(lock(&self.shared.state), HANDSHAKE, is_missing);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let timeout_error = Error::TimedOut { doing: SEND_STEP, seconds: HANDSHAKE.as_secs_f64() };
        state.file_channels.get_mut(&file).and_then(|lent| lent.channel.take()).ok_or(timeout_error)
    }

    /// All has come over the connection of a file. It no longer counts among those of the session, however late its thread ends.
    pub(crate) fn end_file_channel(&self, file: EntryNumber) {
        let mut state = lock(&self.shared.state);
        let stream = state.file_channels.remove(&file).and_then(|lent| state.serving.remove(&lent.member));
        stream.as_ref().map(close);
        drop(state);
        self.shared.changed.notify_all();
    }

    /// From now on blocks of this file may come, which are dropped if there is none.
    pub(crate) fn begin_split(&self, number: EntryNumber, file: Option<SharedIncomingFile>) {
        lock(&self.shared.state).split = Some((number, file));
        self.shared.changed.notify_all();
    }

    /// What still comes of this file is dropped.
    pub(crate) fn end_split(&self, number: EntryNumber) {
        if let Some((_, file)) = lock(&self.shared.state).split.as_mut().filter(|split| split.0 == number) {
            *file = None;
        }
    }
}

impl<S> Drop for OpenSession<'_, S> {
    fn drop(&mut self) {
        lock(&self.sessions.0).remove(&self.id);
        let mut state = lock(&self.shared.state);
        state.is_over = true;
        state.split = None;
        state.file_channels.clear();
        state.serving.values().for_each(close);
        drop(state);
        self.shared.changed.notify_all();
        drop(self.shared.wait_while(|state| !state.serving.is_empty()));
    }
}

/// A place in a session, which a connection leaves when this is dropped.
pub(crate) struct SessionMember<S> {
    shared: Arc<SessionShared<S>>,
    /// Where its handle is.
    number: u64,
}

impl<S: TransferStream> SessionMember<S> {
    /// Lets the session have the connection of a file, and waits until all has come over it.
    pub(crate) fn lend_channel(&self, file: EntryNumber, mut channel: SecureChannel<S>) {
        channel.plain = self.shared.settings.plain;
        let mut state = lock(&self.shared.state);
        state.file_channels.insert(file, LentChannel { channel: Some(channel), member: self.number });
        drop(state);
        self.shared.changed.notify_all();
        drop(self.shared.wait_while(|state| !state.is_over && state.file_channels.contains_key(&file)));
    }
}

impl<S> Drop for SessionMember<S> {
    fn drop(&mut self) {
        lock(&self.shared.state).serving.remove(&self.number).as_ref().map(close);
        self.shared.changed.notify_all();
    }
}

/// Closes a connection, which other handles would keep open.
fn close(stream: &TcpStream) {
    // One that is already closed needs no more.
    let _ = stream.shutdown(Shutdown::Both);
}

/// A stream that has joined a session.
pub(crate) struct JoinedReceiveStream {
    channel: SecureChannel<TcpStream>,
    member: SessionMember<TcpStream>,
    buffer: Vec<u8>,
    /// Once something has come compressed.
    decompressor: Option<Decompressor>,
}

impl JoinedReceiveStream {
    pub(crate) fn new(channel: SecureChannel<TcpStream>, member: SessionMember<TcpStream>) -> Self {
        Self { channel, member, buffer: vec![0; PART_BYTES + TAG_BYTES], decompressor: None }
    }

    /// Has blocks arrive until the connection ends.
    ///
    /// # Errors
    /// The end of the connection; a sender that breaks the protocol.
    pub(crate) fn serve(mut self) -> Result<()> {
        self.channel.plain = self.member.shared.settings.plain;
        let mut refusal = None;
        loop {
            self.channel.send(&ReceiverMessage::BlockWritten(refusal))?;
            let message = loop {
                // There may be none for long while other files come: a session whose sender is gone ends its streams.
                self.channel.incoming.restart();
                match self.channel.receive() {
                    Err(Error::TimedOut { .. }) => {}
                    next => break next?,
                }
            };
            refusal = match message {
                SenderMessage::Block(piece) => self.receive_block(&piece, None)?,
                SenderMessage::CompressedBlock { piece, frame_bytes } => {
                    self.receive_block(&piece, Some(frame_bytes))?
                }
                _ => return Err(Error::ProtocolViolation(NO_BLOCK)),
            };
        }
    }

    /// Has a block arrive, in a frame of this many bytes where it is compressed; returns why it is not there, if it is not.
    fn receive_block(&mut self, piece: &FilePiece, frame_bytes: Option<u32>) -> Result<Option<RefusalReason>> {
        blocks::check_piece_length(piece)?;
        let file = self.member.shared.wait_for_split(piece.file);
        if let Some(file) = &file {
            file.claim(piece)?;
        }
        let written = self.receive_content((piece, frame_bytes), file.as_ref())?;
        let Some(file) = file else { return Ok(Some(RefusalReason("it is not wanted any more".into()))) };
        let reason = written.as_ref().err().map(|why| RefusalReason(why.wire_text()));
        match written {
            Ok(()) => file.complete(piece),
            Err(why) => file.fail(why),
        }
        Ok(reason)
    }

    /// Receives the bytes of a block and writes them; whether they were written, and are right.
    fn receive_content(
        &mut self,
        (piece, frame_bytes): (&FilePiece, Option<u32>),
        file: Option<&SharedIncomingFile>,
    ) -> Result<Result<()>> {
        let SessionShared { settings, arrived_bytes, .. } = &*self.member.shared;
        let verify = settings.verify;
        let write = |part: &[u8], offset| {
            let Some(file) = file else { return Ok(()) };
            file.write(part, offset)?;
            arrived_bytes.fetch_add(part.len() as u64, Ordering::Relaxed);
            Ok(())
        };
        let (local_digest, written) = match frame_bytes {
            None => self.channel.receive_content((piece, verify), &mut self.buffer, write)?,
            Some(frame_bytes) => {
                check_frame(settings, piece.bytes.into(), frame_bytes)?;
                let mut decompressor = self.decompressor.take().map_or_else(Decompressor::new, Ok)?;
                let frame = (piece, frame_bytes, verify);
                let received = self.channel.receive_compressed(frame, &mut decompressor, write)?;
                self.decompressor = Some(decompressor);
                received
            }
        };
        if !verify {
            return Ok(written);
        }
        match self.channel.receive()? {
            SenderMessage::Digests(digests) if digests[..] == [local_digest] => Ok(written),
            SenderMessage::Digests(digests) if digests.len() == 1 => Ok(written.and(Err(Error::DigestMismatch))),
            _ => Err(Error::ProtocolViolation("it does not send the digest of a block")),
        }
    }
}

/// What a sender did wrong.
const NO_BLOCK: &str = "it sends something else than blocks over a stream that has joined";
const NO_SESSION: &str = "it joins a session that there is none of, or that has all its connections";
