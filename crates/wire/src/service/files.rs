//! A server of files, for as long as a client wants it.

use super::beside;
use crate::channel::Channel;
use crate::files::{AT_ONCE, Design, Host, Start};
use crate::limits::Limits;
use crate::message::{Answer, Ask};
use crate::{Error, Result};

/// Starts a server, and answers what is asked of it until the client ends it or says nothing for too long. There is never another one
/// of this client.
pub fn serve(channel: &mut Channel, design: &Design, start: Option<&Start>, limits: &Limits) -> Result<()> {
    let start = start.ok_or_else(|| Error::Refused("it serves no files: start it with --serve DIR".into()))?;
    let host = start(design, beside(channel)?).map_err(Error::Refused)?;
    channel.send(&Answer::Serving(host.served()), limits.idle)?;
    loop {
        let ask = channel.receive(limits.idle)?;
        if ask == Ask::End {
            return Ok(());
        }
        let answer = answer(&ask, host.as_ref())?;
        channel.send(&answer, limits.idle)?;
    }
}

/// The answer to what is asked of a server of files; one that cannot be given does not end the server.
fn answer(ask: &Ask, host: &dyn Host) -> Result<Answer> {
    let answer = match *ask {
        Ask::Names { from } => Ok(Answer::Names(names(host, from as usize))),
        Ask::ReadFromDisk => host.disk_rate().map(Answer::Read),
        Ask::Bring { cache, from } => host.bring(cache, from).map(Answer::Brought),
        Ask::Stay => Ok(Answer::Stays),
        _ => return Err(Error::Refused("one test must end before the next one begins".into())),
    };
    Ok(answer.unwrap_or_else(Answer::failed))
}

fn names(host: &dyn Host, from: usize) -> Vec<String> {
    host.names().iter().skip(from).take(AT_ONCE).cloned().collect()
}
