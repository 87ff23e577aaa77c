//! New stores of every kind, on which the same tests are run.

#![allow(dead_code, unused_macros, unused_imports, reason = "each test program uses a part of it")]

use kelvin_store::Store;
use tempfile::TempDir;

/// Where new stores are made.
pub enum Fresh {
    /// Files in a directory.
    File(TempDir),
}

impl Fresh {
    /// In files.
    pub fn file() -> Self {
        Self::File(tempfile::tempdir().unwrap())
    }

    /// A new and empty store.
    pub fn store(&self) -> Store {
        match self {
            Self::File(directory) => {
                let taken = std::fs::read_dir(directory.path()).unwrap().count();
                Store::open(directory.path().join(format!("{taken}.sqlite"))).unwrap()
            }
        }
    }
}

/// Makes a test of each of these functions for every kind of store.
macro_rules! of_any_store {
    ($($name:ident),* $(,)?) => {
        mod in_a_file {
            $(#[test]
            fn $name() {
                super::$name(&super::stores::Fresh::file());
            })*
        }
    };
}
pub(crate) use of_any_store;
