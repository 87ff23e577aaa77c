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

use kelvin_wire::Error as WireError;
use kelvin_wire::sealed::TAG;
use kelvin_wire::secret::{Nonce, nonce};

use crate::bare::Connection;
use crate::blocks::BLOCK;
use crate::channel::{Channel, PART, Stream, TO_SEND};
use crate::deposit::SplitFile;
use crate::message::{Digest, FromReceiver, FromSender, Join, Number, Piece, Reason, Settings};
use crate::{Error, HANDSHAKE, Result};

/// Most connections of a session at one time, the first one included.
pub const STREAMS: u32 = 8;
/// What a session is joined by: random, and told to its sender alone.
pub type SessionId = Nonce;

/// The sessions that can be joined.
pub(crate) struct Sessions<S = TcpStream>(Mutex<HashMap<SessionId, Arc<Shared<S>>>>);

/// What the connections of a session share.
struct Shared<S> {
    settings: Settings,
    /// Bytes that have come over all but the first one, and were written.
    arrived: AtomicU64,
    state: Mutex<State<S>>,
    changed: Condvar,
}

struct State<S> {
    /// The file whose blocks may come; without the file itself if it has failed or ended.
    split: Option<(Number, Option<SplitFile>)>,
    /// The connections of files whose turn has not come, and the files of those that the session has taken.
    own: HashMap<Number, Option<Channel<S>>>,
    /// How many have joined, and those of them that are still there, to be closed in the end.
    joined: u64,
    serving: HashMap<u64, TcpStream>,
    is_over: bool,
}

impl<S> State<S> {
    fn new() -> Self {
        Self { split: None, own: HashMap::new(), joined: 0, serving: HashMap::new(), is_over: false }
    }

    /// Whether one more may join.
    fn has_room(&self, settings: &Settings, file: Option<Number>) -> bool {
        match (settings.connection, file) {
            _ if self.is_over => false,
            (Connection::Persistent, None) => self.joined < u64::from(settings.streams.min(STREAMS)) - 1,
            (Connection::PerFile, Some(file)) => {
                self.serving.len() < STREAMS as usize - 1 && !self.own.contains_key(&file)
            }
            _ => false,
        }
    }
}

/// A session that can be joined until this is dropped, which waits for those that have joined.
pub(crate) struct Joinable<'a, S> {
    sessions: &'a Sessions<S>,
    id: SessionId,
    shared: Arc<Shared<S>>,
}

impl<S> Sessions<S> {
    /// None yet.
    pub(crate) fn none() -> Self {
        Self(Mutex::default())
    }

    fn all(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<Shared<S>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is one.
    pub(crate) fn are_any(&self) -> bool {
        !self.all().is_empty()
    }

    /// Has a session be joined.
    ///
    /// # Errors
    /// Those of a system that gives no random numbers.
    pub(crate) fn begin(&self, settings: Settings) -> Result<Joinable<'_, S>> {
        let id = nonce()?;
        let (arrived, state, changed) = (AtomicU64::new(0), Mutex::new(State::new()), Condvar::new());
        let shared = Arc::new(Shared { settings, arrived, state, changed });
        self.all().insert(id, Arc::clone(&shared));
        Ok(Joinable { sessions: self, id, shared })
    }

    /// Has a connection join, by a handle with which it is closed.
    ///
    /// # Errors
    /// A session that is not there, has all the streams that it was to have, or is not to have such ones.
    pub(crate) fn join(&self, join: &Join, handle: TcpStream) -> Result<Member<S>> {
        let shared = self.all().get(&join.session).map(Arc::clone).ok_or(Error::Nonsense(NO_SESSION))?;
        let mut state = shared.state();
        if !state.has_room(&shared.settings, join.file) {
            return Err(Error::Nonsense(NO_SESSION));
        }
        let number = state.joined;
        state.joined += 1;
        state.serving.insert(number, handle);
        drop(state);
        Ok(Member { shared, number })
    }
}

impl<S> Shared<S> {
    fn state(&self) -> MutexGuard<'_, State<S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until this file is split; nothing if it has failed, or the session is over.
    fn file(&self, file: Number) -> Option<SplitFile> {
        let waits = |state: &mut State<S>| !state.is_over && state.split.as_ref().is_none_or(|split| split.0 != file);
        let state = self.changed.wait_while(self.state(), waits).unwrap_or_else(PoisonError::into_inner);
        state.split.as_ref().filter(|_| !state.is_over).and_then(|(_, split)| split.clone())
    }
}

impl<S> Joinable<'_, S> {
    /// By what it is joined.
    pub(crate) fn id(&self) -> SessionId {
        self.id
    }

    /// How many streams there are, the first one included.
    pub(crate) fn streams(&self) -> u32 {
        match self.shared.settings.connection {
            Connection::Persistent => 1 + self.shared.state().joined as u32,
            Connection::PerFile => 1,
        }
    }

    /// Bytes that have come over all but the first one, and were written.
    pub(crate) fn arrived(&self) -> u64 {
        self.shared.arrived.load(Ordering::Relaxed)
    }

    /// The connection of a file, which joins before the session hears of it, but may be heard after it.
    ///
    /// # Errors
    /// One that does not come.
    pub(crate) fn of_file(&self, file: Number) -> Result<Channel<S>> {
        let is_missing = |state: &mut State<S>| !state.own.contains_key(&file);
        let waited = self.shared.changed.wait_timeout_while(self.shared.state(), HANDSHAKE, is_missing);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let late = WireError::Late { doing: TO_SEND, seconds: HANDSHAKE.as_secs_f64() };
        Ok(state.own.get_mut(&file).and_then(Option::take).ok_or(late)?)
    }

    /// All has come over the connection of a file.
    pub(crate) fn end_file(&self, file: Number) {
        self.shared.state().own.remove(&file);
        self.shared.changed.notify_all();
    }

    /// From now on blocks of this file may come, which are dropped if there is none.
    pub(crate) fn split(&self, number: Number, file: Option<SplitFile>) {
        self.shared.state().split = Some((number, file));
        self.shared.changed.notify_all();
    }

    /// What still comes of this file is dropped.
    pub(crate) fn unsplit(&self, number: Number) {
        if let Some((_, file)) = self.shared.state().split.as_mut().filter(|split| split.0 == number) {
            *file = None;
        }
    }
}

impl<S> Drop for Joinable<'_, S> {
    fn drop(&mut self) {
        self.sessions.all().remove(&self.id);
        let mut state = self.shared.state();
        state.is_over = true;
        state.split = None;
        state.own.clear();
        for stream in state.serving.values() {
            // One that is already closed needs no more.
            let _ = stream.shutdown(Shutdown::Both);
        }
        self.shared.changed.notify_all();
        let ended = self.shared.changed.wait_while(state, |state| !state.serving.is_empty());
        drop(ended.unwrap_or_else(PoisonError::into_inner));
    }
}

/// A place in a session, which a connection leaves when this is dropped.
pub(crate) struct Member<S> {
    shared: Arc<Shared<S>>,
    /// Where its handle is.
    number: u64,
}

impl<S: Stream> Member<S> {
    /// Lets the session have the connection of a file, and waits until all has come over it.
    pub(crate) fn lend(&self, file: Number, mut channel: Channel<S>) {
        channel.set_plain(self.shared.settings.plain);
        let mut state = self.shared.state();
        state.own.insert(file, Some(channel));
        self.shared.changed.notify_all();
        let waits = |state: &mut State<S>| !state.is_over && state.own.contains_key(&file);
        drop(self.shared.changed.wait_while(state, waits).unwrap_or_else(PoisonError::into_inner));
    }
}

impl<S> Drop for Member<S> {
    fn drop(&mut self) {
        // Other handles would keep it open; one that is already closed needs no more.
        let _ = self.shared.state().serving.remove(&self.number).map(|stream| stream.shutdown(Shutdown::Both));
        self.shared.changed.notify_all();
    }
}

/// A stream that has joined a session.
pub(crate) struct Joined {
    channel: Channel<TcpStream>,
    member: Member<TcpStream>,
    buffer: Vec<u8>,
}

impl Joined {
    pub(crate) fn new(channel: Channel<TcpStream>, member: Member<TcpStream>) -> Self {
        Self { channel, member, buffer: vec![0; PART + TAG] }
    }

    /// Has blocks arrive until the connection ends.
    ///
    /// # Errors
    /// The end of the connection; a sender that breaks the protocol.
    pub(crate) fn serve(mut self) -> Result<()> {
        self.channel.set_plain(self.member.shared.settings.plain);
        let mut took = None;
        loop {
            self.channel.send(&FromReceiver::Took(took))?;
            let FromSender::Block(piece) = self.next()? else {
                return Err(Error::Nonsense("it sends something else than blocks over a stream that has joined"));
            };
            took = self.block(&piece)?;
        }
    }

    /// The next message. There may be none for long while other files come: a session whose sender is gone ends its streams.
    fn next(&mut self) -> Result<FromSender> {
        loop {
            self.channel.wait_anew();
            match self.channel.receive() {
                Err(Error::Wire(WireError::Late { .. })) => {}
                next => return next,
            }
        }
    }

    /// Has a block arrive; says why it is not there, if it is not.
    fn block(&mut self, piece: &Piece) -> Result<Option<Reason>> {
        if u64::from(piece.bytes) > BLOCK {
            return Err(Error::Nonsense("a part of a block that is longer than a block"));
        }
        let file = self.member.shared.file(piece.file);
        if let Some(file) = &file {
            file.claim(piece)?;
        }
        let written = self.content(piece, file.as_ref())?;
        let Some(file) = file else { return Ok(Some(Reason("it is not wanted any more".into()))) };
        match written {
            Ok(()) => {
                file.arrived(piece);
                Ok(None)
            }
            Err(why) => {
                let told = why.told();
                file.failed(why);
                Ok(Some(Reason(told)))
            }
        }
    }

    /// Receives the bytes of a block and writes them; whether they were written, and are right.
    fn content(&mut self, piece: &Piece, file: Option<&SplitFile>) -> Result<Result<()>> {
        let Shared { settings, arrived, .. } = &*self.member.shared;
        let verify = settings.verify;
        let write = |part: &[u8], offset| {
            let Some(file) = file else { return Ok(()) };
            file.write(part, offset)?;
            arrived.fetch_add(part.len() as u64, Ordering::Relaxed);
            Ok(())
        };
        let (own, written) = self.channel.content((piece, verify), &mut self.buffer, write)?;
        if !verify || self.digest()? == own {
            return Ok(written);
        }
        Ok(written.and(Err(Error::Digest)))
    }

    /// The digest of the block that came.
    fn digest(&mut self) -> Result<Digest> {
        match self.channel.receive()? {
            FromSender::Digests(one) if one.len() == 1 => Ok(one[0]),
            _ => Err(Error::Nonsense("it does not say the digest of a block")),
        }
    }
}

/// What a sender did wrong.
const NO_SESSION: &str = "it joins a session that there is none of, or that has all its connections";
