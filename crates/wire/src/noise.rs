//! The handshake of two kelvins: who is there, in which version, and that both know the secret.
//!
//! The listening end begins with a hello, a frame whose form never changes, so that any two versions can tell each other. The
//! calling end answers with a greeting of fixed length, which costs no memory and no parser, and gets a verdict of fixed length.
//! The last two carry the messages of Noise (Perrin, The Noise Protocol Framework, revision 34, 2018): pattern NNpsk0 with the
//! secret as the pre-shared key, or NN without a secret. The hello, which has a nonce, and the greeting's head are the prologue:
//! so a change in transit makes the handshake fail, and a recorded greeting is worth nothing in another connection.
//!
//! Without the secret a caller learns nothing from which it could be guessed, and costs the listening end some hashes of
//! short texts: curves are computed only for those who know it.
//!
//! The cipher is AES-256 in Galois/counter mode: where the processor has instructions for it, three times as fast as
//! ChaCha20-Poly1305, which uses none. Where it has none, the `ring` crate computes it by permutations of vectors or of bits, in
//! constant time too and with no table that a cache could give away, but slowly: 150 MB/s instead of 7 GB/s on a core of 2023.

use std::io::{ErrorKind, Read};

use serde::{Deserialize, Serialize};
use snow::{Builder, HandshakeState};

use crate::deadline::{Connection, Deadline};
use crate::sealed::{Opener, Sealer, TAG, halves};
use crate::secret::{Nonce, Secret, nonce};
use crate::{Error, Result, bounded, frame};

/// With the secret as the pre-shared key, and without one.
const WITH_SECRET: &str = "Noise_NNpsk0_25519_AESGCM_SHA256";
const WITHOUT: &str = "Noise_NN_25519_AESGCM_SHA256";

/// Bytes of either message of Noise: a public key, and the tag of an empty payload. Without a secret the first one has no tag, and
/// as many zeros.
const MESSAGE: usize = 32 + TAG;
const NO_TAG: [u8; TAG] = [0; TAG];
/// Bytes by which each greeting of a protocol begins.
const HEAD: usize = 20;
/// Bytes of a greeting, and of a verdict: a word, and a message of Noise.
const GREETING: usize = HEAD + MESSAGE;
const VERDICT: usize = 1 + MESSAGE;

/// The words of a verdict.
const WELCOME: u8 = 1;
const SECRET_WRONG: u8 = 2;
const BUSY: u8 = 3;

/// What is waited for.
pub(crate) const DOING: &str = "finish the handshake";

/// What is spoken after this handshake, and by whom.
#[derive(Clone, Copy, Debug)]
pub struct Protocol {
    /// The end that listens.
    pub listener: Part,
    /// The end that connects.
    pub caller: Part,
    /// Begins each greeting, so that what comes from another program is known for it.
    pub magic: [u8; 16],
    /// What the key is for, as [`Secret::key_for`] wants it.
    pub context: &'static str,
    /// The version of all that is said. Changed whenever a message changes.
    pub version: u32,
}

/// One end's program, and its role.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// `kelvin agent`.
    pub program: &'static str,
    /// `agent`.
    pub role: &'static str,
}

/// The first frame of the listening end. Earlier versions have the same fields.
#[derive(Serialize, Deserialize)]
struct Hello {
    #[serde(deserialize_with = "bounded::text::<{ bounded::NAME }, _>")]
    name: String,
    protocol: u32,
    #[serde(deserialize_with = "bounded::text::<{ bounded::NAME }, _>")]
    program: String,
    secret: bool,
    nonce: Nonce,
}

/// The hello that one connection was sent.
#[derive(Debug)]
pub struct Greeted(Vec<u8>);

/// What a calling end has sent so far.
#[derive(Debug)]
pub struct Greeting {
    bytes: [u8; GREETING],
    filled: usize,
}

impl Default for Greeting {
    fn default() -> Self {
        Self { bytes: [0; GREETING], filled: 0 }
    }
}

impl Greeting {
    /// Takes what has come over a stream that does not block, and says whether it is complete.
    ///
    /// # Errors
    /// Another program, [`Error::Gone`] if the stream ends before, or a failed call.
    pub fn take(&mut self, stream: &mut impl Read, handshake: &Handshake<'_>) -> Result<bool> {
        while self.filled < GREETING {
            match stream.read(&mut self.bytes[self.filled..]) {
                Ok(0) => return Err(Error::Gone),
                Ok(count) => self.filled += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::call("receive")(error)),
            }
            self.check(handshake)?;
        }
        Ok(true)
    }

    /// Whether it begins as it should, as far as it has come: another program need not be waited for.
    fn check(&self, handshake: &Handshake<'_>) -> Result<()> {
        let come = self.filled.min(HEAD);
        if self.bytes[..come] == handshake.head()[..come] {
            return Ok(());
        }
        Err(no(&handshake.protocol.caller, "it sent no greeting"))
    }
}

/// The handshake of one connection.
#[derive(Clone, Copy, Debug)]
pub struct Handshake<'a> {
    /// What will be spoken.
    pub protocol: &'a Protocol,
    /// This end's secret.
    pub secret: &'a Secret,
    /// When it must be over.
    pub deadline: Deadline,
}

impl Handshake<'_> {
    /// The calling end's side.
    ///
    /// # Errors
    /// Another side that is no such program, has another version or secret, or no place.
    pub fn call(&self, stream: &mut impl Connection) -> Result<(Sealer, Opener)> {
        let hello = frame::receive(stream, &self.deadline, DOING).map_err(|error| match error {
            Error::TooLong { .. } => no(&self.protocol.listener, "it does not greet"),
            error => error,
        })?;
        self.check(&hello)?;
        let mut noise = self.noise(&hello, |builder| builder.build_initiator())?;
        let message = written(&mut noise, if self.secret.is_some() { &[] } else { &NO_TAG })?;
        self.deadline.drain(stream, &[&self.head()[..], &message].concat(), DOING)?;
        let mut verdict = [0; VERDICT];
        self.deadline.fill(stream, &mut verdict, DOING)?;
        let [word, message @ ..] = verdict;
        let role = self.protocol.listener.role;
        match word {
            WELCOME => {}
            SECRET_WRONG => return Err(Error::SecretWrong),
            BUSY => return Err(Error::Busy { role }),
            _ => return Err(no(&self.protocol.listener, "its verdict is none")),
        }
        noise.read_message(&message, &mut [0; MESSAGE]).map_err(|_| Error::SecretWrong)?;
        halves(noise)
    }

    /// The listening end's side. `admit` has the last word, and is asked only about callers that know the secret.
    ///
    /// # Errors
    /// Another side that is no such program, has another secret, or was not admitted; the last two are told.
    pub fn listen<T>(
        &self,
        stream: &mut impl Connection,
        admit: impl FnOnce() -> Option<T>,
    ) -> Result<((Sealer, Opener), T)> {
        let greeted = self.greet(stream)?;
        let mut greeting = Greeting { filled: GREETING, ..Greeting::default() };
        self.deadline.fill(stream, &mut greeting.bytes, DOING)?;
        self.answer(stream, (&greeted, &greeting), admit)
    }

    /// The first part of [`listen`](Self::listen): greets a connection. The frame is short, and needs no reader.
    ///
    /// # Errors
    /// Another side that is gone; a system that has no random numbers.
    pub fn greet(&self, stream: &mut impl Connection) -> Result<Greeted> {
        let Protocol { listener, version, .. } = self.protocol;
        let hello = Hello {
            name: listener.program.into(),
            protocol: *version,
            program: env!("CARGO_PKG_VERSION").into(),
            secret: self.secret.is_some(),
            nonce: nonce()?,
        };
        let hello = serde_json::to_vec(&hello).map_err(failed)?;
        frame::send(stream, &hello, &self.deadline, DOING)?;
        Ok(Greeted(hello))
    }

    /// The rest of it, once the connection was greeted and its greeting is complete. The verdict is short, and needs no reader.
    ///
    /// # Errors
    /// Those of [`listen`](Self::listen).
    pub fn answer<T>(
        &self,
        stream: &mut impl Connection,
        (greeted, greeting): (&Greeted, &Greeting),
        admit: impl FnOnce() -> Option<T>,
    ) -> Result<((Sealer, Opener), T)> {
        greeting.check(self)?;
        let mut noise = self.noise(&greeted.0, |builder| builder.build_responder())?;
        let judged = match noise.read_message(&greeting.bytes[HEAD..], &mut [0; MESSAGE]) {
            Ok(_) => admit().ok_or((BUSY, Error::Busy { role: self.protocol.listener.role })),
            Err(_) => Err((SECRET_WRONG, Error::SecretWrong)),
        };
        let (word, message) = match &judged {
            Ok(_) => (WELCOME, written(&mut noise, &[])?),
            Err((word, _)) => (*word, [0; MESSAGE]),
        };
        self.deadline.drain(stream, &[&[word][..], &message].concat(), DOING)?;
        let admitted = judged.map_err(|(_, why)| why)?;
        Ok((halves(noise)?, admitted))
    }

    /// Whether this is the hello of the program that was called, in this version, and with a secret where there is one here.
    fn check(&self, hello: &[u8]) -> Result<()> {
        let Protocol { listener, version: ours, .. } = *self.protocol;
        let role = listener.role;
        let hello: Hello = serde_json::from_slice(hello).map_err(|why| no(&listener, why))?;
        if hello.name != listener.program {
            return Err(no(&listener, format!("it calls itself {:?}", hello.name)));
        }
        if hello.protocol != ours {
            return Err(Error::Version { theirs: hello.protocol, program: hello.program, ours });
        }
        match (hello.secret, self.secret.is_some()) {
            (true, false) => Err(Error::SecretNeeded { role }),
            (false, true) => Err(Error::NoSecretThere { role }),
            _ => Ok(()),
        }
    }

    /// The greeting without its message of Noise.
    fn head(&self) -> [u8; HEAD] {
        let mut head = [0; HEAD];
        let (magic, version) = head.split_at_mut(self.protocol.magic.len());
        magic.copy_from_slice(&self.protocol.magic);
        version.copy_from_slice(&self.protocol.version.to_le_bytes());
        head
    }

    /// Noise over a hello and the greeting's head.
    fn noise(
        &self,
        hello: &[u8],
        build: impl FnOnce(Builder<'_>) -> std::result::Result<HandshakeState, snow::Error>,
    ) -> Result<HandshakeState> {
        let key = self.secret.key_for(self.protocol.context);
        let prologue = [hello, &self.head()].concat();
        let state = || {
            let builder =
                Builder::new(if key.is_some() { WITH_SECRET } else { WITHOUT }.parse()?).prologue(&prologue)?;
            build(match &key {
                Some(key) => builder.psk(0, key)?,
                None => builder,
            })
        };
        // Only one of these constants can be at fault.
        state().map_err(failed)
    }
}

/// Both halves of a connection of this program to itself, by the cipher of all others: what sealing and opening cost is measured
/// with them.
///
/// # Errors
/// Those of a system that gives no random numbers.
pub fn to_oneself() -> Result<(Sealer, Opener)> {
    let builder = || WITHOUT.parse().map(Builder::new).map_err(failed);
    let mut caller = builder()?.build_initiator().map_err(failed)?;
    let mut listener = builder()?.build_responder().map_err(failed)?;
    let (mut message, mut rest) = ([0; MESSAGE + TAG], [0; MESSAGE]);
    let length = caller.write_message(&[], &mut message).map_err(failed)?;
    listener.read_message(&message[..length], &mut rest).map_err(failed)?;
    let length = listener.write_message(&[], &mut message).map_err(failed)?;
    caller.read_message(&message[..length], &mut rest).map_err(failed)?;
    Ok((halves(caller)?.0, halves(listener)?.1))
}

/// The next message of Noise. It wants room for a tag where there is none, too.
fn written(noise: &mut HandshakeState, payload: &[u8]) -> Result<[u8; MESSAGE]> {
    let mut message = [0; MESSAGE + TAG];
    noise.write_message(payload, &mut message).map_err(failed)?;
    message.first_chunk().copied().ok_or(Error::Changed)
}

/// Another program than this one.
fn no(part: &Part, why: impl std::fmt::Display) -> Error {
    Error::nonsense(part.program, why)
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::Call { doing: "set up encryption", source: std::io::Error::other(error.to_string()) }
}
