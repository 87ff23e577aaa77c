//! Stored runs: events appended to a database as they happen, listed, loaded, learned from; a run as one file out and in.
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
mod copy;
mod engine;
mod error;
mod exchange;
mod guarded;
mod history;
mod labels;
mod learn;
mod location;
mod migrate;
mod open;
mod outbox;
mod payload;
mod prune;
mod query;
mod record;
mod server;
mod sqlite;
mod tls;

pub use check::{Invalid, check};
pub use copy::copy;
pub use error::{
    AppendError, CopyError, DataDirectoryError, DeliveryError, ExportError, Fault, FindError, ImportError, InsertError,
    LabelError, LoadError, LocationError, OpenError, Source,
};
pub use exchange::{IMPORT_LIMIT, export, import};
pub use history::{Identified, MachineRuns, RunInHistory, StoredSeries, StoredValue};
pub use labels::{BadTag, LONGEST_NOTE, TAG_PREFIX, Tag, check_name, labels, note};
pub use learn::Kin;
pub use location::{Address, Location, without_password};
pub use migrate::SCHEMA_VERSION;
pub use open::{InPlace, Store};
pub use outbox::{Delivered, Recording, Watching};
pub use prune::Prune;
pub use query::{Filter, RunLine};
pub use record::{Conclusion, Inserted, Recorder};

#[cfg(test)]
#[path = "../tests/common/mod.rs"]
mod common;
