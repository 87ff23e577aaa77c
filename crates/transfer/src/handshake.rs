//! The handshake: Noise keyed by the shared secret (NNpsk0), or without one on loopback (NN), by one greeting of fixed length
//! each way.
//!
//! A greeting names the program, its version, and a word: whether there is a secret, or the receiver's verdict. The sender's is
//! also the prologue of Noise, so that changing it in transit makes the handshake fail. Fixed lengths cost an unauthenticated
//! client's memory on the stack, and no parser.
//!
//! The protocol framework is that of Perrin, The Noise Protocol Framework, revision 34, 2018.

use std::time::Duration;

use kelvin_wire::deadline::{Connection, Deadline};
use kelvin_wire::secret::Secret;
use snow::{Builder, HandshakeState, TransportState};

use crate::{Error, Result};

/// The version of all that is said. Changed whenever a message changes.
pub const PROTOCOL: u16 = 1;
/// Time for it.
pub const WITHIN: Duration = Duration::from_secs(5);

/// Distinguishes it from all else at a port.
const MAGIC: [u8; 16] = *b"kelvin transfer\n";
/// With the secret as the pre-shared key, and without one.
const WITH_SECRET: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
const WITHOUT: &str = "Noise_NN_25519_ChaChaPoly_BLAKE2s";
/// What the key is for.
const CONTEXT: &str = "kelvin 2026 transfer, Noise pre-shared key";
/// Bytes of either message: a public key, and the tag of an empty payload. Without a secret the first one has no tag, and as many
/// zeros.
const NOISE: usize = 48;
const NO_TAG: [u8; 16] = [0; 16];
const GREETING: usize = MAGIC.len() + 3 + NOISE;

/// What is waited for.
const DOING: &str = "finish the handshake";

/// The word of a sender.
const NO_SECRET: u8 = 0;
const SECRET: u8 = 1;
/// The words of a receiver.
const WELCOME: u8 = 2;
const VERSION_WRONG: u8 = 3;
const SECRET_NEEDED: u8 = 4;
const NO_SECRET_HERE: u8 = 5;
const SECRET_WRONG: u8 = 6;
const BUSY: u8 = 7;

/// What one side sends.
struct Greeting {
    protocol: u16,
    word: u8,
    noise: [u8; NOISE],
}

impl Greeting {
    fn new(word: u8) -> Self {
        Self { protocol: PROTOCOL, word, noise: [0; NOISE] }
    }

    /// All but the message of Noise.
    fn head(&self) -> [u8; MAGIC.len() + 3] {
        let mut head = [0; MAGIC.len() + 3];
        head[..MAGIC.len()].copy_from_slice(&MAGIC);
        head[MAGIC.len()..MAGIC.len() + 2].copy_from_slice(&self.protocol.to_le_bytes());
        head[MAGIC.len() + 2] = self.word;
        head
    }

    fn send(&self, stream: &mut impl Connection, deadline: &Deadline) -> Result<()> {
        let mut all = [0; GREETING];
        all[..GREETING - NOISE].copy_from_slice(&self.head());
        all[GREETING - NOISE..].copy_from_slice(&self.noise);
        Ok(deadline.drain(stream, &all, DOING)?)
    }

    /// That of the other side, which should be this part of kelvin.
    fn receive(stream: &mut impl Connection, deadline: &Deadline, part: &'static str) -> Result<Self> {
        let mut all = [0; GREETING];
        deadline.fill(stream, &mut all, DOING)?;
        let [.., low, high, word] = *all.first_chunk::<{ GREETING - NOISE }>().ok_or(Error::NotKelvin(part))?;
        let noise = *all.last_chunk::<NOISE>().ok_or(Error::NotKelvin(part))?;
        let found = Self { protocol: u16::from_le_bytes([low, high]), word, noise };
        if all.starts_with(&MAGIC) { Ok(found) } else { Err(Error::NotKelvin(part)) }
    }
}

/// The sender's side.
///
/// # Errors
/// Another side that is no receiver, has another version or secret, or no place.
pub fn sender(stream: &mut impl Connection, secret: &Secret) -> Result<TransportState> {
    let deadline = Deadline::within(WITHIN);
    let mut greeting = Greeting::new(word(secret));
    let mut noise = noise(secret, &greeting.head(), |builder| builder.build_initiator())?;
    let payload = if secret.is_some() { &[][..] } else { &NO_TAG };
    greeting.noise = written(&mut noise, payload)?;
    greeting.send(stream, &deadline)?;
    let answer = Greeting::receive(stream, &deadline, "receive")?;
    match answer.word {
        _ if answer.protocol != PROTOCOL => return Err(Error::Version { theirs: answer.protocol }),
        WELCOME => {}
        SECRET_NEEDED => return Err(Error::SecretNeeded),
        NO_SECRET_HERE => return Err(Error::NoSecretThere),
        SECRET_WRONG => return Err(Error::SecretWrong),
        BUSY => return Err(Error::Busy),
        _ => return Err(Error::NotKelvin("receive")),
    }
    noise.read_message(&answer.noise, &mut [0; NOISE]).map_err(|_| Error::SecretWrong)?;
    noise.into_transport_mode().map_err(|_| Error::Changed)
}

/// The receiver's side. `admit` has the last word, and is asked only about authenticated senders.
///
/// # Errors
/// Another side that is no sender, has another version or secret, or was not admitted; it was informed.
pub fn receiver<T>(
    stream: &mut impl Connection,
    secret: &Secret,
    admit: impl FnOnce() -> Option<T>,
) -> Result<(TransportState, T)> {
    let deadline = Deadline::within(WITHIN);
    let greeting = Greeting::receive(stream, &deadline, "send")?;
    let (mut noise, admitted) = match judge(&greeting, secret, admit) {
        Ok(judged) => judged,
        Err((word, error)) => {
            Greeting::new(word).send(stream, &deadline)?;
            return Err(error);
        }
    };
    let mut answer = Greeting::new(WELCOME);
    answer.noise = written(&mut noise, &[])?;
    answer.send(stream, &deadline)?;
    Ok((noise.into_transport_mode().map_err(|_| Error::Changed)?, admitted))
}

/// Whether a sender is welcome, or the word for it and the reason.
fn judge<T>(
    greeting: &Greeting,
    secret: &Secret,
    admit: impl FnOnce() -> Option<T>,
) -> std::result::Result<(HandshakeState, T), (u8, Error)> {
    if greeting.protocol != PROTOCOL {
        return Err((VERSION_WRONG, Error::Version { theirs: greeting.protocol }));
    }
    match (greeting.word, secret.is_some()) {
        (NO_SECRET, false) | (SECRET, true) => {}
        (NO_SECRET, true) => return Err((SECRET_NEEDED, Error::SecretNeeded)),
        (SECRET, false) => return Err((NO_SECRET_HERE, Error::NoSecretThere)),
        _ => return Err((VERSION_WRONG, Error::NotKelvin("send"))),
    }
    let wrong = |_| (SECRET_WRONG, Error::SecretWrong);
    let mut noise =
        noise(secret, &greeting.head(), |builder| builder.build_responder()).map_err(|error| (SECRET_WRONG, error))?;
    noise.read_message(&greeting.noise, &mut [0; NOISE]).map_err(wrong)?;
    let admitted = admit().ok_or((BUSY, Error::Busy))?;
    Ok((noise, admitted))
}

fn word(secret: &Secret) -> u8 {
    if secret.is_some() { SECRET } else { NO_SECRET }
}

/// The next message of Noise, which wants room for a tag where there is none, too.
fn written(noise: &mut HandshakeState, payload: &[u8]) -> Result<[u8; NOISE]> {
    let mut message = [0; NOISE + NO_TAG.len()];
    match noise.write_message(payload, &mut message) {
        Ok(NOISE) => Ok(*message.first_chunk().ok_or(Error::Changed)?),
        _ => Err(Error::Changed),
    }
}

/// Noise over the sender's greeting.
fn noise(
    secret: &Secret,
    prologue: &[u8],
    build: impl FnOnce(Builder<'_>) -> std::result::Result<HandshakeState, snow::Error>,
) -> Result<HandshakeState> {
    let key = secret.key_for(CONTEXT);
    let pattern = if secret.is_some() { WITH_SECRET } else { WITHOUT };
    let state = || {
        let builder = Builder::new(pattern.parse()?).prologue(prologue)?;
        build(if secret.is_some() { builder.psk(0, &key)? } else { builder })
    };
    // Only a system without random numbers, or one of these constants, can be at fault.
    let failed = |error: snow::Error| kelvin_wire::Error::Call {
        doing: "set up encryption",
        source: std::io::Error::other(error.to_string()),
    };
    Ok(state().map_err(failed)?)
}
