//! Stored runs: events appended to a database as they happen, listed, loaded, learned from; a run as one file out and in.
//!
//! A run is stored as it is measured: its header when it starts, then each round in its own transaction. Whatever kills the
//! program or the machine, the store opens again with every round whose [`event`](Recorder::event) had returned. A run
//! without an end loads as a partial run.
//!
//! The layout of the database is described in `schema.md` of this crate, the file format in
//! `docs/run.schema.json`.
#![forbid(unsafe_code)]

mod check;
mod conclusion;
mod copy;
mod error;
mod fleet;
pub mod foreign;
mod headlines;
mod history;
mod json_limits;
mod json_path;
mod labels;
mod location;
mod migrations;
mod open;
mod outbox;
mod payload;
#[cfg_attr(not(feature = "postgres"), path = "without_postgres.rs")]
mod postgres;
mod prune;
mod query;
mod recorder;
mod run_file;
mod run_key;
mod server_url;
mod sql;
mod sqlite;
mod tag;

pub use check::check;
pub use conclusion::RunConclusion;
pub use copy::copy;
pub use error::{
    AppendError, BoxError, CopyError, DataDirectoryError, DatabaseError, ExportError, FindError, ImportError,
    InsertError, InvalidField, LabelError, LoadError, LocationError, OpenError, UploadError,
};
pub use fleet::{FleetHeader, FleetRun, FleetSeries, RunSelection};
pub use headlines::HistoryFilter;
pub use history::{HistoryRunRow, MachineRuns, SeriesId, StoredSeries};
pub use labels::{MAX_NOTE_CHARS, TAG_PREFIX, checked_note, labels};
pub use location::Location;
pub use migrations::SCHEMA_VERSION;
pub use open::{InPlaceStore, Store};
pub use outbox::{StoreLock, UploadResult};
pub use postgres::ServerAddress;
pub use prune::PruneOptions;
pub use query::{RunFilter, RunSummary};
pub use recorder::{InsertOutcome, Recorder};
pub use run_file::{IMPORT_LIMIT, export, import};
pub use server_url::without_password;
pub use tag::{Tag, TagError, checked_tag_name};

#[cfg(test)]
#[path = "../tests/common/mod.rs"]
mod common;
