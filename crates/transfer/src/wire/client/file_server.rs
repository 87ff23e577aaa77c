//! The client's side of a server of files.

use std::net::SocketAddr;

use super::{AgentClient, RESPONSE_TIMEOUT, unexpected_response};
use crate::wire::address::with_port;
use crate::wire::file_server::{DiskRateReport, FileCacheState, FileServerInfo, FileServerOptions, MAX_FILES};
use crate::wire::message::{AgentRequest, AgentResponse};
use crate::wire::{Error, Result};

/// A server of an agent's files, which runs until this is dropped.
#[derive(Debug)]
pub struct RemoteFileServer {
    client: AgentClient,
    info: FileServerInfo,
}

impl AgentClient {
    /// Has the agent serve its files. It goes on as long as something is asked of it at least every 30 s.
    ///
    /// # Errors
    /// An agent that refuses, or says what cannot be.
    pub fn serve_files(mut self, design: &FileServerOptions) -> Result<RemoteFileServer> {
        match self.request(&AgentRequest::ServeFiles(design.clone()))? {
            AgentResponse::Serving(served) if (1..=MAX_FILES).contains(&served.files) => {
                Ok(RemoteFileServer { client: self, info: served })
            }
            AgentResponse::Serving(FileServerInfo { files, .. }) => {
                Err(Error::malformed(format!("{files} files, where 1 to {MAX_FILES} are possible")))
            }
            _ => Err(unexpected_response()),
        }
    }

    /// The answer to a request, but for a refusal.
    fn request(&mut self, ask: &AgentRequest) -> Result<AgentResponse> {
        self.channel.send(ask, RESPONSE_TIMEOUT)?;
        match self.channel.receive(RESPONSE_TIMEOUT)? {
            AgentResponse::Failed { why } => Err(Error::RefusedByAgent(why)),
            answer => Ok(answer),
        }
    }
}

impl RemoteFileServer {
    /// What the agent says of it.
    pub fn info(&self) -> &FileServerInfo {
        &self.info
    }

    /// Where it serves files over HTTP, and where it tells what it uses.
    pub fn addresses(&self) -> [SocketAddr; 2] {
        [self.info.files_port, self.info.stats_port].map(|port| with_port(self.client.agent_addr, port))
    }

    /// Names of all files.
    ///
    /// # Errors
    /// Other names than those of files in a directory, or more or fewer than it said.
    pub fn file_names(&mut self) -> Result<Vec<String>> {
        let files = self.info.files as usize;
        let mut names = Vec::new();
        while names.len() < files {
            match self.client.request(&AgentRequest::Names { from: names.len() as u32 })? {
                AgentResponse::Names(more) if !more.is_empty() && names.len() + more.len() <= files => {
                    names.extend(more)
                }
                AgentResponse::Names(_) => return Err(Error::malformed("it names more or fewer files than it has")),
                _ => return Err(unexpected_response()),
            }
        }
        Ok(names)
    }

    /// Has files read past the page cache for some seconds: how fast the disk gave them.
    ///
    /// # Errors
    /// Files that cannot be read, or are always in memory.
    pub fn disk_rate(&mut self) -> Result<DiskRateReport> {
        match self.client.request(&AgentRequest::ReadFromDisk)? {
            AgentResponse::Read(rate) => Ok(rate),
            _ => Err(unexpected_response()),
        }
    }

    /// Has all files in memory, or none; asks after each part whether to go on.
    ///
    /// # Errors
    /// Files that cannot be brought there; [`Error::Closed`] if it is not to go on.
    pub fn set_cache_state(&mut self, cache: FileCacheState, mut goes_on: impl FnMut() -> bool) -> Result<()> {
        let mut from = 0;
        while from < self.info.files {
            match self.client.request(&AgentRequest::SetCacheState { cache, from })? {
                AgentResponse::CacheStateSet(next) if from < next && goes_on() => from = next,
                AgentResponse::CacheStateSet(next) if from < next => return Err(Error::Closed),
                _ => return Err(unexpected_response()),
            }
        }
        Ok(())
    }

    /// Says that this client is there.
    ///
    /// # Errors
    /// An agent that is gone.
    pub fn keep_alive(&mut self) -> Result<()> {
        match self.client.request(&AgentRequest::KeepAlive)? {
            AgentResponse::Alive => Ok(()),
            _ => Err(unexpected_response()),
        }
    }

    /// Ends it, and waits until it has ended.
    ///
    /// # Errors
    /// An agent that is gone.
    pub fn stop(mut self) -> Result<AgentClient> {
        self.client.end_test()?;
        Ok(self.client)
    }
}
