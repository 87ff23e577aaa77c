//! A server of files, for as long as a client wants it.

use super::test_address;
use crate::wire::control_channel::ControlChannel;
use crate::wire::file_server::{FileHost, FileServerOptions, NAMES_PER_MESSAGE, StartFileServer};
use crate::wire::limits::AgentLimits;
use crate::wire::message::{AgentRequest, AgentResponse};
use crate::wire::{Error, Result};

/// Starts a server, and answers what is asked of it until the client ends it or says nothing for too long. There is never another one
/// of this client.
pub fn serve_files(
    channel: &mut ControlChannel,
    design: &FileServerOptions,
    start: Option<&StartFileServer>,
    limits: &AgentLimits,
) -> Result<()> {
    let start = start.ok_or_else(|| Error::Refused("it serves no files: start it with --serve DIR".into()))?;
    let host = start(design, test_address(channel)?).map_err(Error::Refused)?;
    channel.send(&AgentResponse::Serving(host.info()), limits.idle_timeout)?;
    loop {
        let ask = channel.receive(limits.idle_timeout)?;
        if ask == AgentRequest::End {
            return Ok(());
        }
        let answer = respond(&ask, host.as_ref())?;
        channel.send(&answer, limits.idle_timeout)?;
    }
}

/// The answer to what is asked of a server of files; one that cannot be given does not end the server.
fn respond(ask: &AgentRequest, host: &dyn FileHost) -> Result<AgentResponse> {
    let answer = match *ask {
        AgentRequest::Names { from } => Ok(AgentResponse::Names(names_from(host, from as usize))),
        AgentRequest::ReadFromDisk => host.disk_rate().map(AgentResponse::Read),
        AgentRequest::SetCacheState { cache, from } => {
            host.set_cache_state(cache, from).map(AgentResponse::CacheStateSet)
        }
        AgentRequest::KeepAlive => Ok(AgentResponse::Alive),
        _ => return Err(Error::Refused("one test must end before the next one begins".into())),
    };
    Ok(answer.unwrap_or_else(AgentResponse::failed))
}

fn names_from(host: &dyn FileHost, from: usize) -> Vec<String> {
    host.file_names().iter().skip(from).take(NAMES_PER_MESSAGE).cloned().collect()
}
