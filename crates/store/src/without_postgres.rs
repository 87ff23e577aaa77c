//! What stands for PostgreSQL in a build without the feature `postgres`: a URL of a server is refused.

use std::convert::Infallible;
use std::ffi::OsString;

use crate::error::{LocationError, OpenError};
use crate::server_url::without_password;
use crate::sql::SqlConnection;

/// A database of a PostgreSQL server: there is none.
#[derive(Clone, Debug)]
pub struct ServerAddress(Infallible);

impl ServerAddress {
    pub(crate) fn parse(url: &str, _: impl Fn(&str) -> Option<OsString>) -> Result<Self, LocationError> {
        Err(LocationError::WithoutPostgres(without_password(url)))
    }

    /// Its URL for people, without a password.
    pub fn name(&self) -> &str {
        match self.0 {}
    }

    /// Identifies the database.
    pub fn key(&self) -> &str {
        match self.0 {}
    }
}

pub(crate) fn open(address: &ServerAddress) -> Result<Box<dyn SqlConnection>, OpenError> {
    match address.0 {}
}
