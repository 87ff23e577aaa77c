//! Servers of files that an agent starts for its clients: of one directory, each by a process of its own.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use kelvin_file::temporary_files::ScratchDirectory;
use kelvin_http::serve::ServerModel;
use kelvin_http::serve::send_strategy::SendStrategy;
use kelvin_http::sweep::{FileList, HostedServer, ServeCommand};
use kelvin_transfer::wire::file_server::{FileHost, FileServerOptions, MAX_FILES};

use crate::cli_error::{CliError, Context};

/// Most threads that a client may ask for.
const MAX_SERVER_THREADS: u32 = 64;

/// The directory whose files are served.
pub struct ServedDirectory(PathBuf);

impl ServedDirectory {
    /// Checks that there are some.
    ///
    /// # Errors
    /// A directory that cannot be read, or has no file to serve.
    pub fn open(directory: &Path) -> Result<Self, CliError> {
        let directory = fs::canonicalize(directory).context(format_args!("--serve {}", directory.display()))?;
        FileList::read(&directory).context("--serve")?;
        Ok(Self(directory))
    }

    /// Starts a server for a client, of the files that are there now.
    ///
    /// # Errors
    /// A design that no server has; a server that does not start.
    pub fn start(&self, design: &FileServerOptions, listen: SocketAddr) -> Result<Box<dyn FileHost>, String> {
        let options = server_options(design)?;
        let files = FileList::read(&self.0).map_err(|error| error.to_string())?.truncated(MAX_FILES as usize);
        // The token is read when the server starts, and goes with its directory.
        let scratch = ScratchDirectory::create(&std::env::temp_dir())
            .map_err(|error| format!("no scratch directory for the token of the server: {error}"))?;
        let secret = scratch.path().join("token");
        let command = ServeCommand { root: &self.0, token_file: &secret, listen, options: &options };
        let hosted = HostedServer::start("/proc/self/exe", &command, files).map_err(|error| error.to_string())?;
        Ok(Box::new(hosted))
    }
}

/// The options of `kelvin serve` for a design; only words that it knows become any.
fn server_options(design: &FileServerOptions) -> Result<Vec<String>, String> {
    let mut options = Vec::new();
    if let Some(model) = &design.model {
        options.extend(["--model".to_owned(), ServerModel::from_str(model)?.to_string()]);
    }
    if let Some(send) = &design.send {
        options.extend(["--send".to_owned(), SendStrategy::from_str(send)?.to_string()]);
    }
    match design.threads {
        Some(threads @ 1..=MAX_SERVER_THREADS) => options.extend(["--threads".to_owned(), threads.to_string()]),
        Some(_) => return Err(format!("a server of files may have 1 to {MAX_SERVER_THREADS} threads")),
        None => {}
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_designs_become_options() {
        let design = |model: &str, send: &str, threads| {
            server_options(&FileServerOptions {
                model: Some(model.into()),
                send: Some(send.into()),
                threads: Some(threads),
            })
        };
        let options = design("pool", "sendfile", 4).unwrap();
        assert_eq!(options, ["--model", "pool", "--send", "sendfile", "--threads", "4"]);
        assert_eq!(server_options(&FileServerOptions::default()), Ok(Vec::new()));
        assert!(design("--root", "rw", 1).is_err() && design("pool", "--index", 1).is_err());
        for threads in [0, 65] {
            assert_eq!(design("pool", "rw", threads), Err("a server of files may have 1 to 64 threads".into()));
        }
    }
}
