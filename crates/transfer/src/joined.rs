//! More streams of a session at the receiver: connections that have joined it, over which whole blocks of one file at a time come.
//!
//! The session begins the file and finishes it. A stream that has joined knows what the session has split, and writes blocks of
//! that alone; each is there when its digest is right.

use std::collections::HashMap;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use kelvin_wire::Error as WireError;
use kelvin_wire::sealed::TAG;
use kelvin_wire::secret::{Nonce, nonce};

use crate::blocks::BLOCK;
use crate::channel::{Channel, PART};
use crate::deposit::SplitFile;
use crate::message::{Digest, FromReceiver, FromSender, Number, Piece, Reason, Settings};
use crate::{Error, Result};

/// Most streams of a session, the first one included.
pub const STREAMS: u32 = 8;
/// What a session is joined by: random, and told to its sender alone.
pub type SessionId = Nonce;

/// The sessions that can be joined.
#[derive(Debug, Default)]
pub(crate) struct Sessions(Mutex<HashMap<SessionId, Arc<Shared>>>);

/// What the streams of a session share.
#[derive(Debug)]
struct Shared {
    settings: Settings,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The file whose blocks may come; without the file itself if it has failed or ended.
    split: Option<(Number, Option<SplitFile>)>,
    /// Those that have joined, to be closed in the end, and how many are still there.
    joined: Vec<TcpStream>,
    serving: u32,
    is_over: bool,
}

/// A session that can be joined until this is dropped, which waits for those that have joined.
#[derive(Debug)]
pub(crate) struct Joinable<'a> {
    sessions: &'a Sessions,
    id: SessionId,
    shared: Arc<Shared>,
}

impl Sessions {
    fn all(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<Shared>>> {
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
    pub(crate) fn begin(&self, settings: Settings) -> Result<Joinable<'_>> {
        let id = nonce()?;
        let shared = Arc::new(Shared { settings, state: Mutex::default(), changed: Condvar::new() });
        self.all().insert(id, Arc::clone(&shared));
        Ok(Joinable { sessions: self, id, shared })
    }

    /// Has a connection join, with another handle of it, by which it is closed.
    ///
    /// # Errors
    /// A session that is not there, or has all the streams that it was to have.
    pub(crate) fn join(&self, id: &SessionId, (channel, handle): (Channel<TcpStream>, TcpStream)) -> Result<Joined> {
        let shared = self.all().get(id).map(Arc::clone).ok_or(Error::Nonsense(NO_SESSION))?;
        let mut state = shared.state();
        let most = shared.settings.streams.min(STREAMS) - 1;
        if state.is_over || state.joined.len() as u32 >= most {
            return Err(Error::Nonsense(NO_SESSION));
        }
        let place = state.joined.len();
        state.joined.push(handle);
        state.serving += 1;
        drop(state);
        Ok(Joined { channel, shared, place, buffer: vec![0; PART + TAG] })
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until this file is split; nothing if it has failed, or the session is over.
    fn file(&self, file: Number) -> Option<SplitFile> {
        let waits = |state: &mut State| !state.is_over && state.split.as_ref().is_none_or(|split| split.0 != file);
        let state = self.changed.wait_while(self.state(), waits).unwrap_or_else(PoisonError::into_inner);
        state.split.as_ref().filter(|_| !state.is_over).and_then(|(_, split)| split.clone())
    }
}

impl Joinable<'_> {
    /// By what it is joined.
    pub(crate) fn id(&self) -> SessionId {
        self.id
    }

    /// How many streams have joined.
    pub(crate) fn joined(&self) -> u32 {
        self.shared.state().joined.len() as u32
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

impl Drop for Joinable<'_> {
    fn drop(&mut self) {
        self.sessions.all().remove(&self.id);
        let mut state = self.shared.state();
        state.is_over = true;
        state.split = None;
        for stream in &state.joined {
            // One that is already closed needs no more.
            let _ = stream.shutdown(Shutdown::Both);
        }
        self.shared.changed.notify_all();
        let ended = self.shared.changed.wait_while(state, |state| state.serving > 0);
        drop(ended.unwrap_or_else(PoisonError::into_inner));
    }
}

/// A stream that has joined a session.
pub(crate) struct Joined {
    channel: Channel<TcpStream>,
    shared: Arc<Shared>,
    /// Where its other handle is.
    place: usize,
    buffer: Vec<u8>,
}

impl Joined {
    /// Has blocks arrive until the connection ends.
    ///
    /// # Errors
    /// The end of the connection; a sender that breaks the protocol.
    pub(crate) fn serve(mut self) -> Result<()> {
        self.channel.set_plain(self.shared.settings.plain);
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
        let file = self.shared.file(piece.file);
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
        let verify = self.shared.settings.verify;
        let write = |part: &[u8], offset| file.map_or(Ok(()), |file| file.write(part, offset));
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

impl Drop for Joined {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.serving -= 1;
        // The other handle would keep it open; one that is already closed needs no more.
        let _ = state.joined[self.place].shutdown(Shutdown::Both);
        drop(state);
        self.shared.changed.notify_all();
    }
}

/// What a sender did wrong.
const NO_SESSION: &str = "it joins a session that there is none of, or that has all its streams";
