//! Where a store is: a file, or a database of a PostgreSQL server.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::error::LocationError;
use crate::postgres::ServerAddress;
use crate::server_url::URL_SCHEMES;

/// Where a store is.
#[derive(Clone, Debug)]
pub enum Location {
    /// A SQLite file.
    File(PathBuf),
    /// A database of a PostgreSQL server.
    Server(Box<ServerAddress>),
}

impl Location {
    /// The location that a text names: a URL that begins with `postgres://` or `postgresql://`, or else a file. The password of a
    /// URL without one is that of `PGPASSWORD`, or of the line for it in `PGPASSFILE` or `HOME/.pgpass`; `environment` looks a
    /// variable up.
    ///
    /// # Errors
    /// If a URL is none, or a file of passwords can be read by others. No error holds a password.
    pub fn parse(text: &OsStr, environment: impl Fn(&str) -> Option<OsString>) -> Result<Self, LocationError> {
        let is_url = |text: &&str| URL_SCHEMES.iter().any(|scheme| text.starts_with(scheme));
        match text.to_str().filter(is_url) {
            Some(url) => ServerAddress::parse(url, environment).map(|address| Self::Server(Box::new(address))),
            None => Ok(Self::File(text.into())),
        }
    }
}

impl<P: AsRef<Path>> From<P> for Location {
    fn from(path: P) -> Self {
        Self::File(path.as_ref().to_path_buf())
    }
}
