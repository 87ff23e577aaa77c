//! Files that an agent serves to the load of a client: what can be asked of it, and what it reports.
//!
//! The agent itself knows nothing of files: whoever starts it gives it a function that starts a server ([`StartFileServer`]), or does not.

use std::net::SocketAddr;

use kelvin_core::text::is_visible;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use crate::wire::limits_serde;

/// Most files that are named: those of 200 GB at 2 MB each.
pub const MAX_FILES: u32 = 100_000;
/// Most bytes of a name (NAME_MAX of Linux).
pub const MAX_FILE_NAME: usize = 255;
/// Names in a message: of the longest, each of whose bytes is escaped, this many fit.
pub(crate) const NAMES_PER_MESSAGE: usize = 100;
/// Most bytes of a word of a design, and of a token.
const MAX_WORD_BYTES: usize = 16;
const MAX_TOKEN_BYTES: usize = 64;

/// How the server is to serve; the server chooses what is not given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FileServerOptions {
    /// Who serves connections, by the server's word for it.
    #[serde(deserialize_with = "limits_serde::bounded::<{ MAX_WORD_BYTES as u64 }, _, _>")]
    pub model: Option<String>,
    /// By which calls the bytes of files go, by the server's word for it.
    #[serde(deserialize_with = "limits_serde::bounded::<{ MAX_WORD_BYTES as u64 }, _, _>")]
    pub send: Option<String>,
    /// Threads that serve.
    pub threads: Option<u32>,
}

/// Whether files are in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileCacheState {
    /// All of each.
    Cached,
    /// Nothing.
    Uncached,
}

/// A server that was started, and its files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FileServerInfo {
    /// Port of the agent's address for files, over HTTP.
    pub files_port: u16,
    /// Port for what the server and its host use.
    pub stats_port: u16,
    /// The token for that.
    #[serde(deserialize_with = "limits_serde::bounded::<{ MAX_TOKEN_BYTES as u64 }, _, _>")]
    pub token: String,
    /// How many files there are, all of one size.
    pub files: u32,
    /// Bytes of each.
    pub bytes: u64,
    /// Files of another size, and anything else that is not served.
    pub skipped: u64,
    /// Bytes that the page cache of this host may hold, where its system reports it.
    pub cacheable_bytes: Option<u64>,
}

/// What the disk below the files gave.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DiskRateReport {
    /// Bytes a second of files.
    #[serde(deserialize_with = "limits_serde::bounded::<{ limits_serde::MAX_RATE }, _, _>")]
    pub bytes_per_second: f64,
    /// Bytes a second that were read from the device for them, where the system reports it.
    #[serde(deserialize_with = "limits_serde::bounded::<{ limits_serde::MAX_RATE }, _, _>")]
    pub read_per_second: Option<f64>,
    /// Requests a second that it serves, and mean bytes of those for whole files, where both are known.
    pub requests: Option<RequestRate>,
}

/// What a disk gave in requests.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequestRate {
    /// Small requests a second.
    #[serde(deserialize_with = "limits_serde::bounded::<{ limits_serde::MAX_RATE }, _, _>")]
    pub per_second: f64,
    /// Mean bytes of a request when whole files were read.
    #[serde(deserialize_with = "limits_serde::bounded::<{ limits_serde::MAX_RATE }, _, _>")]
    pub bytes: f64,
}

/// Starts a server with this design that listens at the agent's address as its client sees it, at ports that the system chooses.
pub type StartFileServer = dyn Fn(&FileServerOptions, SocketAddr) -> Result<Box<dyn FileHost>, String> + Send + Sync;

/// A server of files that runs. Dropped, it ends.
pub trait FileHost {
    /// What is reported to the client about it.
    fn info(&self) -> FileServerInfo;

    /// Names of its files.
    fn file_names(&self) -> &[String];

    /// Reads its files past the page cache for a short time.
    ///
    /// # Errors
    /// Why that is not possible, in words.
    fn disk_rate(&self) -> Result<DiskRateReport, String>;

    /// Has its files in memory or not, from this one on for a short time; returns the first that was not reached.
    ///
    /// # Errors
    /// Why that is not possible, in words.
    fn set_cache_state(&self, cache: FileCacheState, first_file: u32) -> Result<u32, String>;
}

/// Names of files, no more than a message has.
pub(crate) fn file_names<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let names = Vec::<String>::deserialize(deserializer)?;
    if names.len() > NAMES_PER_MESSAGE {
        return Err(limits_serde::out_of_bounds("a list", names.len(), NAMES_PER_MESSAGE));
    }
    if names.iter().all(|name| is_file_name(name)) { Ok(names) } else { Err(D::Error::custom("a name of no file")) }
}

/// Whether it is the name of a file in a directory, and of nothing else.
pub fn is_file_name(name: &str) -> bool {
    let is_component = !name.is_empty() && name.len() <= MAX_FILE_NAME && name != "." && name != "..";
    is_component && name.chars().all(|letter| letter != '/' && is_visible(letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_name_is_one_component() {
        assert!(
            ["a", "file-00000", "...", "a b", "ä", "%2e%2e", &"x".repeat(255)].iter().all(|name| is_file_name(name))
        );
        for name in ["", ".", "..", "/", "a/b", "../a", "a\0", "a\nb", "\u{1b}[2J", "\u{202e}x", &"x".repeat(256)] {
            assert!(!is_file_name(name), "{name:?}");
        }
    }

    #[test]
    fn longest_names_fit_one_message() {
        let answer = crate::wire::message::AgentResponse::Names(vec!["\"".repeat(MAX_FILE_NAME); NAMES_PER_MESSAGE]);
        assert!(serde_json::to_vec(&answer).unwrap().len() <= crate::wire::cipher::MAX_CONTENT_BYTES);
    }
}
