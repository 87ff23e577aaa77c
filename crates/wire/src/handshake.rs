//! The first four frames of a connection: the two programs, the version, and proofs that both know the secret.
//!
//! The agent begins, with a nonce. The client answers with one of its own and a proof over both that it knows the secret; only
//! then the agent proves it as well. So an agent sends nothing to an unauthenticated client from which its secret could be
//! guessed. These frames have no tag, for there is no key yet: a change in transit makes the proofs wrong.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::bounded;
use crate::channel::Channel;
use crate::deadline::{Connection, Deadline};
use crate::secret::{Nonce, Secret, Side, nonce};
use crate::{Error, Result, frame};

/// The version of all that is said. Changed whenever a message changes.
pub const PROTOCOL: u32 = 4;
/// Distinguishes an agent from any other server at a port.
pub(crate) const AGENT: &str = "kelvin agent";
/// Most bytes of a frame from an unauthenticated client.
pub(crate) const LONGEST: usize = 1024;
/// What is waited for.
pub(crate) const DOING: &str = "finish the handshake";

#[derive(Serialize, Deserialize)]
struct AgentHello {
    #[serde(deserialize_with = "bounded::text::<{ bounded::NAME }, _>")]
    name: String,
    protocol: u32,
    #[serde(deserialize_with = "bounded::text::<{ bounded::NAME }, _>")]
    program: String,
    secret: bool,
    nonce: Nonce,
}

#[derive(Serialize, Deserialize)]
struct ClientHello {
    protocol: u32,
    #[serde(deserialize_with = "bounded::text::<{ bounded::NAME }, _>")]
    program: String,
    nonce: Nonce,
    proof: [u8; 32],
}

/// The agent's verdict.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Welcome {
        proof: [u8; 32],
    },
    SecretWrong,
    VersionWrong,
    Refused {
        #[serde(deserialize_with = "bounded::text::<{ bounded::REASON }, _>")]
        why: String,
    },
}

/// Greets a new connection; the nonce belongs to the answer. The frame is short, and needs no reader.
/// # Errors
/// Another side that is gone.
pub fn greet(stream: &mut impl Connection, secret: &Secret, deadline: Deadline) -> Result<Nonce> {
    let own = nonce()?;
    let hello = AgentHello {
        name: AGENT.into(),
        protocol: PROTOCOL,
        program: env!("CARGO_PKG_VERSION").into(),
        secret: secret.is_some(),
        nonce: own,
    };
    Plain { stream, deadline }.say(&hello)?;
    Ok(own)
}

/// The agent's side of the rest, once this frame has answered it. `admit` has the last word, and is asked only about
/// authenticated clients.
///
/// # Errors
/// Another side that is no kelvin, has another version or secret, or was not admitted; it was informed.
pub fn agent<S: Connection, T>(
    mut stream: S,
    secret: &Secret,
    (own, said): (Nonce, &[u8]),
    deadline: Deadline,
    admit: impl FnOnce() -> std::result::Result<T, String>,
) -> Result<(Channel<S>, T)> {
    let mut wire = Plain { stream: &mut stream, deadline };
    let hello: ClientHello = understood(said)?;
    let nonces = [own, hello.nonce];
    if hello.protocol != PROTOCOL {
        wire.say(&Verdict::VersionWrong)?;
        return Err(Error::Version { theirs: hello.protocol, program: hello.program, ours: PROTOCOL });
    }
    // `Hash` compares with bytes in constant time.
    if secret.proof(Side::Client, &nonces) != hello.proof {
        wire.say(&Verdict::SecretWrong)?;
        return Err(Error::SecretWrong);
    }
    let admitted = match admit() {
        Ok(admitted) => admitted,
        Err(why) => {
            wire.say(&Verdict::Refused { why: why.clone() })?;
            return Err(Error::Refused(why));
        }
    };
    wire.say(&Verdict::Welcome { proof: *secret.proof(Side::Agent, &nonces).as_bytes() })?;
    let (outgoing, incoming) = (secret.key(Side::Agent, &nonces), secret.key(Side::Client, &nonces));
    Ok((Channel::new(stream, outgoing, incoming), admitted))
}

/// The client's side.
///
/// # Errors
/// Another side that is no agent, has another version or secret, or refuses.
pub fn client<S: Connection>(mut stream: S, secret: &Secret, within: Duration) -> Result<Channel<S>> {
    let mut wire = Plain { stream: &mut stream, deadline: Deadline::within(within) };
    let hello: AgentHello = wire.hear()?;
    let version = || Error::Version { theirs: hello.protocol, program: hello.program.clone(), ours: PROTOCOL };
    if hello.name != AGENT {
        return Err(Error::nonsense(AGENT, format!("it calls itself {:?}", hello.name)));
    }
    if hello.protocol != PROTOCOL {
        return Err(version());
    }
    match (hello.secret, secret.is_some()) {
        (true, false) => return Err(Error::SecretNeeded { role: "agent" }),
        // A client with a secret requires proof from the other side.
        (false, true) => return Err(Error::SecretWrong),
        _ => {}
    }
    let own = nonce()?;
    let nonces = [hello.nonce, own];
    let proof = *secret.proof(Side::Client, &nonces).as_bytes();
    wire.say(&ClientHello { protocol: PROTOCOL, program: env!("CARGO_PKG_VERSION").into(), nonce: own, proof })?;
    match wire.hear()? {
        Verdict::Welcome { proof } if secret.proof(Side::Agent, &nonces) == proof => {
            let (outgoing, incoming) = (secret.key(Side::Client, &nonces), secret.key(Side::Agent, &nonces));
            Ok(Channel::new(stream, outgoing, incoming))
        }
        Verdict::Welcome { .. } | Verdict::SecretWrong => Err(Error::SecretWrong),
        Verdict::VersionWrong => Err(version()),
        Verdict::Refused { why } => Err(Error::Refused(why)),
    }
}

/// A connection of frames without tags, to be finished by a deadline.
struct Plain<'a, S> {
    stream: &'a mut S,
    deadline: Deadline,
}

impl<S: Connection> Plain<'_, S> {
    fn say(&mut self, message: &impl Serialize) -> Result<()> {
        let text = serde_json::to_vec(message).map_err(|why| Error::nonsense(AGENT, why))?;
        frame::send(self.stream, &[&text], &self.deadline, DOING)
    }

    fn hear<T: DeserializeOwned>(&mut self) -> Result<T> {
        understood(&frame::receive(self.stream, &self.deadline, DOING)?)
    }
}

fn understood<T: DeserializeOwned>(text: &[u8]) -> Result<T> {
    serde_json::from_slice(text).map_err(|why| Error::nonsense(AGENT, why))
}
