//! The client's side of a server of files.

use std::net::SocketAddr;

use super::{ANSWER, Client, unasked};
use crate::address::at_port;
use crate::files::{Cache, Design, MOST, Rate, Served};
use crate::message::{Answer, Ask};
use crate::{Error, Result};

/// A server of an agent's files, which runs until this is dropped.
#[derive(Debug)]
pub struct FileServer {
    client: Client,
    served: Served,
}

impl Client {
    /// Has the agent serve its files. It goes on as long as something is asked of it at least every 30 s.
    ///
    /// # Errors
    /// An agent that refuses, or says what cannot be.
    pub fn serve_files(mut self, design: &Design) -> Result<FileServer> {
        match self.answer(&Ask::ServeFiles(design.clone()))? {
            Answer::Serving(served) if (1..=MOST).contains(&served.files) => Ok(FileServer { client: self, served }),
            Answer::Serving(Served { files, .. }) => {
                Err(Error::not_understood(format!("{files} files, where 1 to {MOST} are possible")))
            }
            _ => Err(unasked()),
        }
    }

    /// The answer to a request, but for a refusal.
    fn answer(&mut self, ask: &Ask) -> Result<Answer> {
        self.channel.send(ask, ANSWER)?;
        match self.channel.receive(ANSWER)? {
            Answer::Failed { why } => Err(Error::Refused(why)),
            answer => Ok(answer),
        }
    }
}

impl FileServer {
    /// What the agent says of it.
    pub fn served(&self) -> &Served {
        &self.served
    }

    /// Where it serves files over HTTP, and where it tells what it uses.
    pub fn addresses(&self) -> [SocketAddr; 2] {
        [self.served.files_port, self.served.looks_port].map(|port| at_port(self.client.agent, port))
    }

    /// Names of all files.
    ///
    /// # Errors
    /// Other names than those of files in a directory, or more or fewer than it said.
    pub fn names(&mut self) -> Result<Vec<String>> {
        let files = self.served.files as usize;
        let mut names = Vec::new();
        while names.len() < files {
            match self.client.answer(&Ask::Names { from: names.len() as u32 })? {
                Answer::Names(more) if !more.is_empty() && names.len() + more.len() <= files => names.extend(more),
                Answer::Names(_) => return Err(Error::not_understood("it names more or fewer files than it has")),
                _ => return Err(unasked()),
            }
        }
        Ok(names)
    }

    /// Has files read past the page cache for some seconds: how fast the disk gave them.
    ///
    /// # Errors
    /// Files that cannot be read, or are always in memory.
    pub fn disk_rate(&mut self) -> Result<Rate> {
        match self.client.answer(&Ask::ReadFromDisk)? {
            Answer::Read(rate) => Ok(rate),
            _ => Err(unasked()),
        }
    }

    /// Has all files in memory, or none; asks after each part whether to go on.
    ///
    /// # Errors
    /// Files that cannot be brought there; [`Error::Gone`] if it is not to go on.
    pub fn bring(&mut self, cache: Cache, mut goes_on: impl FnMut() -> bool) -> Result<()> {
        let mut from = 0;
        while from < self.served.files {
            match self.client.answer(&Ask::Bring { cache, from })? {
                Answer::Brought(next) if from < next && goes_on() => from = next,
                Answer::Brought(next) if from < next => return Err(Error::Gone),
                _ => return Err(unasked()),
            }
        }
        Ok(())
    }

    /// Says that this client is there.
    ///
    /// # Errors
    /// An agent that is gone.
    pub fn stay(&mut self) -> Result<()> {
        match self.client.answer(&Ask::Stay)? {
            Answer::Stays => Ok(()),
            _ => Err(unasked()),
        }
    }

    /// Ends it, and waits until it has ended.
    ///
    /// # Errors
    /// An agent that is gone.
    pub fn end(mut self) -> Result<Client> {
        self.client.end()?;
        Ok(self.client)
    }
}
