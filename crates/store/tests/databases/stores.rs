//! New stores of every kind, on which the same tests are run.

use std::ffi::OsStr;

use kelvin_store::{Location, Store};
use kelvin_testing::postgres::TestPostgres;
use tempfile::TempDir;

/// Where new stores are made.
pub enum StoreFactory {
    /// Files in a directory.
    File(TempDir),
    /// Databases of a server.
    Server(&'static TestPostgres),
}

/// The store at a URL, without any environment.
pub fn location(url: &str) -> Location {
    Location::parse(OsStr::new(url), |_| None).unwrap()
}

impl StoreFactory {
    /// In files.
    pub fn file() -> Self {
        Self::File(tempfile::tempdir().unwrap())
    }

    /// At a server; `None`, and reported, where none can be started.
    pub fn server(subject: &str) -> Option<Self> {
        TestPostgres::shared(subject).map(Self::Server)
    }

    /// A new and empty store.
    pub fn new_store(&self) -> Store {
        match self {
            Self::File(directory) => {
                let store_count = std::fs::read_dir(directory.path()).unwrap().count();
                Store::open(directory.path().join(format!("{store_count}.sqlite"))).unwrap()
            }
            Self::Server(server) => Store::open(location(&server.url(&server.database()))).unwrap(),
        }
    }
}

/// Makes a test of each of these functions for every kind of store.
macro_rules! of_any_store {
    ($($name:ident),* $(,)?) => {
        mod in_a_file {
            $(#[test]
            fn $name() {
                super::$name(&crate::stores::StoreFactory::file());
            })*
        }

        mod on_a_server {
            $(#[test]
            fn $name() {
                if let Some(factory) = crate::stores::StoreFactory::server(stringify!($name)) {
                    super::$name(&factory);
                }
            })*
        }
    };
}
pub(crate) use of_any_store;
