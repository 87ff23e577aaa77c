//! The handshake of two kelvins: who is there, in which version, and that both know the secret.
//!
//! The listening end begins with a hello, a frame whose form never changes, so that any two versions can recognize each other. The
//! calling end answers with a greeting of fixed length, which costs no memory and no parser, and gets a verdict of fixed length.
//! The last two carry the messages of Noise (Perrin, The Noise Protocol Framework, revision 34, 2018). The pattern is NNpsk0 with the
//! secret as the pre-shared key, or NN without a secret. The hello, which has a nonce, and the greeting's head are the prologue.
//! So a change in transit makes the handshake fail, and a recorded greeting is worth nothing in another connection.
//!
//! Without the secret a caller learns nothing from which it could be guessed, and costs the listening end some hashes of
//! short texts. Curves are computed only for those who know it.
//!
//! The cipher is AES-256 in Galois/counter mode: where the processor has instructions for it, three times as fast as
//! ChaCha20-Poly1305, which uses none. Where it has none, the `ring` crate computes it by permutations of vectors or of bits, in
//! constant time too and with no table that a cache could give away. But it is slow: 150 MB/s instead of 7 GB/s on a core of 2023.

use std::io::{ErrorKind, Read};

use serde::{Deserialize, Serialize};
use snow::{Builder, HandshakeState};

use crate::wire::cipher::{Opener, Sealer, TAG_BYTES, split};
use crate::wire::control_channel::{receive_frame, send_frame};
use crate::wire::deadline::{Deadline, TimedStream};
use crate::wire::secret::{Nonce, Secret, new_nonce};
use crate::wire::{Error, Result, limits_serde};

/// With the secret as the pre-shared key, and without one.
const NOISE_WITH_SECRET: &str = "Noise_NNpsk0_25519_AESGCM_SHA256";
const NOISE_WITHOUT_SECRET: &str = "Noise_NN_25519_AESGCM_SHA256";

/// Bytes of either message of Noise: a public key, and the tag of an empty payload. Without a secret the first one has no tag, and
/// as many zeros.
const NOISE_MESSAGE_BYTES: usize = 32 + TAG_BYTES;
const NO_TAG: [u8; TAG_BYTES] = [0; TAG_BYTES];
/// Bytes by which each greeting of a protocol begins.
const GREETING_HEAD_BYTES: usize = 20;
/// Bytes of a greeting, and of a verdict: a word, and a message of Noise.
const GREETING_BYTES: usize = GREETING_HEAD_BYTES + NOISE_MESSAGE_BYTES;
const VERDICT_BYTES: usize = 1 + NOISE_MESSAGE_BYTES;

/// The words of a verdict.
const VERDICT_WELCOME: u8 = 1;
const VERDICT_WRONG_SECRET: u8 = 2;
const VERDICT_FULL: u8 = 3;

/// What is waited for.
pub(crate) const HANDSHAKE_STEP: &str = "finish the handshake";

/// The protocol after this handshake, and the program that uses it.
#[derive(Clone, Copy, Debug)]
pub struct HandshakeProtocol {
    /// The end that listens.
    pub listener: ProgramRole,
    /// The end that connects.
    pub caller: ProgramRole,
    /// Begins each greeting, so that what comes from another program is known for it.
    pub magic: [u8; 16],
    /// What the key is for, as [`Secret::key_for`] wants it.
    pub context: &'static str,
    /// The version of all messages. Changed whenever a message changes.
    pub version: u32,
}

/// One end's program, and its role.
#[derive(Clone, Copy, Debug)]
pub struct ProgramRole {
    /// `kelvin agent`.
    pub program: &'static str,
    /// `agent`.
    pub role: &'static str,
}

/// The first frame of the listening end. Earlier versions have the same fields.
#[derive(Serialize, Deserialize)]
struct Hello {
    #[serde(deserialize_with = "limits_serde::bounded::<{ limits_serde::MAX_NAME_BYTES as u64 }, _, _>")]
    name: String,
    protocol: u32,
    #[serde(deserialize_with = "limits_serde::bounded::<{ limits_serde::MAX_NAME_BYTES as u64 }, _, _>")]
    program: String,
    secret: bool,
    nonce: Nonce,
}

/// What a calling end has sent so far.
#[derive(Debug)]
pub struct Greeting {
    bytes: [u8; GREETING_BYTES],
    filled: usize,
}

impl Default for Greeting {
    fn default() -> Self {
        Self { bytes: [0; GREETING_BYTES], filled: 0 }
    }
}

impl Greeting {
    /// Takes what has come over a stream that does not block, and returns whether it is complete.
    ///
    /// # Errors
    /// Another program, [`Error::Closed`] if the stream ends before, or a failed call.
    pub fn read_from(&mut self, stream: &mut impl Read, handshake: &Handshake<'_>) -> Result<bool> {
        while self.filled < GREETING_BYTES {
            match stream.read(&mut self.bytes[self.filled..]) {
                Ok(0) => return Err(Error::Closed),
                Ok(count) => self.filled += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::call("receive")(error)),
            }
            self.check_prefix(handshake)?;
        }
        Ok(true)
    }

    /// Whether it begins as it should, as far as it has come: another program need not be waited for.
    fn check_prefix(&self, handshake: &Handshake<'_>) -> Result<()> {
        let length = self.filled.min(GREETING_HEAD_BYTES);
        if self.bytes[..length] == handshake.greeting_head()[..length] {
            return Ok(());
        }
        Err(wrong_program(&handshake.protocol.caller, "it sent no greeting"))
    }
}

/// The handshake of one connection.
#[derive(Clone, Copy, Debug)]
pub struct Handshake<'a> {
    /// What will be spoken.
    pub protocol: &'a HandshakeProtocol,
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
    pub fn connect(&self, stream: &mut impl TimedStream) -> Result<(Sealer, Opener)> {
        let hello = receive_frame(stream, &self.deadline, HANDSHAKE_STEP).map_err(|error| match error {
            Error::FrameTooLong { .. } => wrong_program(&self.protocol.listener, "it sends no greeting"),
            error => error,
        })?;
        self.check_hello(&hello)?;
        let mut noise = self.noise_state(&hello, |builder| builder.build_initiator())?;
        let message = next_message(&mut noise, if self.secret.is_some() { &[] } else { &NO_TAG })?;
        self.deadline.write_full(stream, &[&self.greeting_head()[..], &message].concat(), HANDSHAKE_STEP)?;
        let mut verdict = [0; VERDICT_BYTES];
        self.deadline.read_full(stream, &mut verdict, HANDSHAKE_STEP)?;
        let [word, message @ ..] = verdict;
        let role = self.protocol.listener.role;
        match word {
            VERDICT_WELCOME => {}
            VERDICT_WRONG_SECRET => return Err(Error::WrongSecret),
            VERDICT_FULL => return Err(Error::ServerFull(role)),
            _ => return Err(wrong_program(&self.protocol.listener, "its verdict is invalid")),
        }
        noise.read_message(&message, &mut [0; NOISE_MESSAGE_BYTES]).map_err(|_| Error::WrongSecret)?;
        split(noise)
    }

    /// The listening end's side. `admit` has the last word, and is asked only about callers that know the secret.
    ///
    /// # Errors
    /// Another side that is no such program, has another secret, or was not admitted; the last two receive the reason.
    pub fn accept<T>(
        &self,
        stream: &mut impl TimedStream,
        admit: impl FnOnce() -> Option<T>,
    ) -> Result<((Sealer, Opener), T)> {
        let hello = self.send_hello(stream)?;
        let mut greeting = Greeting { filled: GREETING_BYTES, ..Greeting::default() };
        self.deadline.read_full(stream, &mut greeting.bytes, HANDSHAKE_STEP)?;
        self.complete(stream, (&hello, &greeting), admit)
    }

    /// The first part of [`accept`](Self::accept): greets a connection, and returns the hello. The frame is short, and needs no reader.
    ///
    /// # Errors
    /// Another side that is gone; a system that has no random numbers.
    pub fn send_hello(&self, stream: &mut impl TimedStream) -> Result<Vec<u8>> {
        let HandshakeProtocol { listener, version, .. } = self.protocol;
        let hello = Hello {
            name: listener.program.into(),
            protocol: *version,
            program: env!("CARGO_PKG_VERSION").into(),
            secret: self.secret.is_some(),
            nonce: new_nonce()?,
        };
        let hello = serde_json::to_vec(&hello).map_err(noise_error)?;
        send_frame(stream, &hello, &self.deadline, HANDSHAKE_STEP)?;
        Ok(hello)
    }

    /// The rest of it, once the connection was greeted and its greeting is complete. The verdict is short, and needs no reader.
    ///
    /// # Errors
    /// Those of [`accept`](Self::accept).
    pub fn complete<T>(
        &self,
        stream: &mut impl TimedStream,
        (hello, greeting): (&[u8], &Greeting),
        admit: impl FnOnce() -> Option<T>,
    ) -> Result<((Sealer, Opener), T)> {
        greeting.check_prefix(self)?;
        let mut noise = self.noise_state(hello, |builder| builder.build_responder())?;
        let verdict = match noise.read_message(&greeting.bytes[GREETING_HEAD_BYTES..], &mut [0; NOISE_MESSAGE_BYTES]) {
            Ok(_) => admit().ok_or((VERDICT_FULL, Error::ServerFull(self.protocol.listener.role))),
            Err(_) => Err((VERDICT_WRONG_SECRET, Error::WrongSecret)),
        };
        let (word, message) = match &verdict {
            Ok(_) => (VERDICT_WELCOME, next_message(&mut noise, &[])?),
            Err((word, _)) => (*word, [0; NOISE_MESSAGE_BYTES]),
        };
        self.deadline.write_full(stream, &[&[word][..], &message].concat(), HANDSHAKE_STEP)?;
        let admission = verdict.map_err(|(_, why)| why)?;
        Ok((split(noise)?, admission))
    }

    /// Whether this is the hello of the program that was called, in this version, and with a secret where there is one here.
    fn check_hello(&self, hello: &[u8]) -> Result<()> {
        let HandshakeProtocol { listener, version: ours, .. } = *self.protocol;
        let role = listener.role;
        let hello: Hello = serde_json::from_slice(hello).map_err(|why| wrong_program(&listener, why))?;
        if hello.name != listener.program {
            return Err(wrong_program(&listener, format!("it calls itself {:?}", hello.name)));
        }
        if hello.protocol != ours {
            return Err(Error::VersionMismatch { theirs: hello.protocol, program: hello.program, ours });
        }
        match (hello.secret, self.secret.is_some()) {
            (true, false) => Err(Error::SecretRequired(role)),
            (false, true) => Err(Error::NoSecretAtPeer(role)),
            _ => Ok(()),
        }
    }

    /// The greeting without its message of Noise.
    fn greeting_head(&self) -> [u8; GREETING_HEAD_BYTES] {
        let mut head = [0; GREETING_HEAD_BYTES];
        let (magic, version) = head.split_at_mut(self.protocol.magic.len());
        magic.copy_from_slice(&self.protocol.magic);
        version.copy_from_slice(&self.protocol.version.to_le_bytes());
        head
    }

    /// Noise over a hello and the greeting's head.
    fn noise_state(
        &self,
        hello: &[u8],
        build: impl FnOnce(Builder<'_>) -> std::result::Result<HandshakeState, snow::Error>,
    ) -> Result<HandshakeState> {
        let key = self.secret.key_for(self.protocol.context);
        let prologue = [hello, &self.greeting_head()].concat();
        let state = || {
            let builder = Builder::new(if key.is_some() { NOISE_WITH_SECRET } else { NOISE_WITHOUT_SECRET }.parse()?)
                .prologue(&prologue)?;
            build(match &key {
                Some(key) => builder.psk(0, key)?,
                None => builder,
            })
        };
        // Only one of these constants can be at fault.
        state().map_err(noise_error)
    }
}

/// Both halves of a connection of this program to itself, by the cipher of all others: what sealing and opening cost is measured
/// with them.
///
/// # Errors
/// Those of a system that gives no random numbers.
pub fn loopback_pair() -> Result<(Sealer, Opener)> {
    let builder = || NOISE_WITHOUT_SECRET.parse().map(Builder::new).map_err(noise_error);
    let mut caller = builder()?.build_initiator().map_err(noise_error)?;
    let mut listener = builder()?.build_responder().map_err(noise_error)?;
    let (mut message, mut rest) = ([0; NOISE_MESSAGE_BYTES + TAG_BYTES], [0; NOISE_MESSAGE_BYTES]);
    let length = caller.write_message(&[], &mut message).map_err(noise_error)?;
    listener.read_message(&message[..length], &mut rest).map_err(noise_error)?;
    let length = listener.write_message(&[], &mut message).map_err(noise_error)?;
    caller.read_message(&message[..length], &mut rest).map_err(noise_error)?;
    Ok((split(caller)?.0, split(listener)?.1))
}

/// The next message of Noise. It wants room for a tag where there is none, too.
fn next_message(noise: &mut HandshakeState, payload: &[u8]) -> Result<[u8; NOISE_MESSAGE_BYTES]> {
    let mut message = [0; NOISE_MESSAGE_BYTES + TAG_BYTES];
    noise.write_message(payload, &mut message).map_err(noise_error)?;
    message.first_chunk().copied().ok_or(Error::Tampered)
}

/// Another program than this one.
fn wrong_program(part: &ProgramRole, why: impl std::fmt::Display) -> Error {
    Error::violation(part.program, why)
}

fn noise_error(error: impl std::fmt::Display) -> Error {
    Error::Call { doing: "set up encryption", source: std::io::Error::other(error.to_string()) }
}
