//! The first four frames of a connection: who speaks, in which version, and that both know the secret.
//!
//! The agent begins, with a number that nobody could foresee. The client answers with one of its own and proves over both that
//! it knows the secret; only then the agent proves it as well. An agent therefore says nothing to a stranger that its secret
//! could be guessed from. These frames have no tag, for there is no key yet: what somebody in between changes in them makes the
//! proofs wrong.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::channel::Channel;
use crate::deadline::{Connection, Deadline};
use crate::secret::{Nonce, Secret, Side, nonce};
use crate::{Error, Result, frame};

/// The version of all that is said. Changed whenever a message changes.
pub const PROTOCOL: u32 = 3;
/// What tells an agent from any other server that may be found at a port.
const NAME: &str = "kelvin agent";
/// What is waited for.
const DOING: &str = "finish the handshake";

#[derive(Serialize, Deserialize)]
struct AgentHello {
    name: String,
    protocol: u32,
    program: String,
    secret: bool,
    nonce: Nonce,
}

#[derive(Serialize, Deserialize)]
struct ClientHello {
    protocol: u32,
    program: String,
    nonce: Nonce,
    proof: [u8; 32],
}

/// What the agent thinks of it.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Welcome { proof: [u8; 32] },
    SecretWrong,
    VersionWrong,
    Refused { why: String },
}

/// The agent's side. `admit` has the last word, and is asked only about who knows the secret.
///
/// # Errors
/// A peer that is no kelvin, has another version or secret, or was not admitted; it has been told.
pub fn agent<S: Connection, T>(
    stream: S,
    secret: &Secret,
    within: Duration,
    admit: impl FnOnce() -> std::result::Result<T, String>,
) -> Result<(Channel<S>, T)> {
    let mut wire = Plain { stream, deadline: Deadline::within(within) };
    let own = nonce()?;
    wire.say(&AgentHello {
        name: NAME.into(),
        protocol: PROTOCOL,
        program: env!("CARGO_PKG_VERSION").into(),
        secret: secret.is_some(),
        nonce: own,
    })?;
    let hello: ClientHello = wire.hear()?;
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
    Ok((Channel::new(wire.stream, outgoing, incoming), admitted))
}

/// The client's side.
///
/// # Errors
/// A peer that is no agent, has another version or secret, or refuses.
pub fn client<S: Connection>(stream: S, secret: &Secret, within: Duration) -> Result<Channel<S>> {
    let mut wire = Plain { stream, deadline: Deadline::within(within) };
    let hello: AgentHello = wire.hear()?;
    let version = || Error::Version { theirs: hello.protocol, program: hello.program.clone(), ours: PROTOCOL };
    if hello.name != NAME {
        return Err(Error::Nonsense(format!("it calls itself {:?}", hello.name)));
    }
    if hello.protocol != PROTOCOL {
        return Err(version());
    }
    match (hello.secret, secret.is_some()) {
        (true, false) => return Err(Error::SecretNeeded),
        // Whoever brings a secret wants to be sure of the other side.
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
            Ok(Channel::new(wire.stream, outgoing, incoming))
        }
        Verdict::Welcome { .. } | Verdict::SecretWrong => Err(Error::SecretWrong),
        Verdict::VersionWrong => Err(version()),
        Verdict::Refused { why } => Err(Error::Refused(why)),
    }
}

/// A connection whose frames have no tags, and that must be done with by a moment.
struct Plain<S> {
    stream: S,
    deadline: Deadline,
}

impl<S: Connection> Plain<S> {
    fn say(&mut self, message: &impl Serialize) -> Result<()> {
        let text = serde_json::to_vec(message).map_err(|error| Error::Nonsense(error.to_string()))?;
        frame::send(&mut self.stream, &[&text], &self.deadline, DOING)
    }

    fn hear<T: DeserializeOwned>(&mut self) -> Result<T> {
        let text = frame::receive(&mut self.stream, &self.deadline, DOING)?;
        serde_json::from_slice(&text).map_err(|error| Error::Nonsense(error.to_string()))
    }
}
