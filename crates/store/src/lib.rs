//! Stored runs: events appended to SQLite as they happen, listed, loaded, learned from; a run as one file out and in.
//!
//! A run is stored as it is measured: its outline when it starts, then each round in its own transaction. Whatever kills the
//! program or the machine, the store opens again with every round whose [`event`](Recorder::event) had returned. A run
//! without an end loads as a partial run.
//!
//! The layout of the database is described in `schema.md` beside this crate, the file format in
//! `docs/run.schema.json`.
#![forbid(unsafe_code)]

mod bounded;
mod check;
mod error;
mod exchange;
mod history;
mod learn;
mod migrate;
mod open;
mod payload;
mod query;
mod record;

pub use check::{Invalid, check};
pub use error::{
    AppendError, DataDirectoryError, ExportError, Fault, FindError, ImportError, InsertError, LoadError, OpenError,
};
pub use exchange::{IMPORT_LIMIT, export, import};
pub use history::{Identified, MachineRuns, RunInHistory, StoredSeries, StoredValue};
pub use learn::Kin;
pub use migrate::SCHEMA_VERSION;
pub use open::Store;
pub use query::{Filter, RunLine};
pub use record::{Inserted, Recorder};

#[cfg(test)]
#[path = "../tests/common/mod.rs"]
mod common;
