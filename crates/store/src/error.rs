//! Errors of a store: an enum for each operation, each error one line with what to do.

use std::io;
use std::path::PathBuf;

use crate::tag::{Tag, TagError};

/// The cause of a fault, in the words of the database.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The database failed. What was committed before stays. Each error names the store.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// There is no space left.
    #[error(
        "the disk that holds {0} is full: `kelvin runs prune` deletes old runs there, or name another place by --store"
    )]
    Full(String),
    /// A file of this process may not become as large.
    #[error("{0} or its log would become larger than the {1} bytes that a file of this process can have (ulimit -f)")]
    Limited(String, u64),
    /// The operating system refused a read, a write or a flush.
    #[error("reading or writing {0} failed: {1}")]
    Io(String, #[source] BoxError),
    /// Another process locked the store for too long.
    #[error("{0} is in use by another process that did not release it in time")]
    Locked(String),
    /// It cannot be written to.
    #[error("{0} cannot be written to; --store FILE names another place")]
    ReadOnly(String),
    /// A server denies it.
    #[error("{0} denies it: {1}")]
    Denied(String, #[source] BoxError),
    /// A server is gone, or stays silent.
    #[error("the connection to {0} was lost: {1}")]
    Lost(String, #[source] BoxError),
    /// It is corrupt.
    #[error("{0} is damaged: {1}")]
    Damaged(String, #[source] BoxError),
    /// A row with the same key is there.
    #[error("{0}: a row with this key is there already")]
    Duplicate(String),
    /// The row that another belongs to is not there.
    #[error("{0}: the row that another belongs to is gone")]
    Orphan(String),
    /// It cannot hold a value: the store, and which value and why.
    #[error("{0}: {1}")]
    NotStorable(String, String),
    /// Anything else.
    #[error("{0}: {1}")]
    Other(String, #[source] BoxError),
}

/// Why there is no default place for the store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DataDirectoryError {
    /// Neither variable is set.
    #[error("neither XDG_DATA_HOME nor HOME is set: name the file that holds the runs with --store FILE")]
    NoHome,
    /// A relative path would name another place in each directory.
    #[error("{variable} is not an absolute path: {}; set it right, or name the file with --store FILE", value.display())]
    NotAbsolute {
        /// The environment variable.
        variable: &'static str,
        /// Its value.
        value: PathBuf,
    },
}

/// Why a text is no location of a store.
#[derive(Debug, thiserror::Error)]
pub enum LocationError {
    /// It begins as a URL, but is none: the text, without its password, and what is wrong with it.
    #[error("{0}: {1}; expected postgres://USER@HOST/DATABASE")]
    NotAUrl(String, String),
    /// This build has no client of PostgreSQL for this URL.
    #[error("{0}: this kelvin was built without PostgreSQL: name a file, or build it with the feature postgres")]
    WithoutPostgres(String),
    /// An option that cannot be used, and why.
    #[error("{0}: {1}")]
    Option(String, &'static str),
    /// Others can read the file of passwords.
    #[error("{} holds the password, but others can read it: restrict it by chmod 600", .0.display())]
    OpenPasswordFile(PathBuf),
    /// The password is no text.
    #[error("PGPASSWORD is not UTF-8")]
    PasswordNotText,
}

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directory cannot be created.
    #[error("cannot create the directory {path}: {1}; --store FILE names another place", path = .0.display())]
    Directory(PathBuf, #[source] io::Error),
    /// The path names a directory.
    #[error("{} is a directory: the store is a file, name one in it", .0.display())]
    IsDirectory(PathBuf),
    /// The path names a device, a socket or a pipe.
    #[error("{} is not a regular file", .0.display())]
    NotRegular(PathBuf),
    /// The file cannot be made in its directory, or not be written to.
    #[error("{path} cannot be opened for writing: {1}; --store FILE names another place", path = .0.display())]
    NotWritable(PathBuf, #[source] io::Error),
    /// It is some other file.
    #[error("{} is not a SQLite file, and left unchanged: name another one", .0.display())]
    NotSqlite(PathBuf),
    /// It is a SQLite file of another program.
    #[error("{} is the SQLite file of another program, and left unchanged: name another one", .0.display())]
    Foreign(PathBuf),
    /// A newer kelvin wrote it.
    #[error(
        "{store} has schema version {version}, but this kelvin knows only up to {supported_version}: use a newer kelvin"
    )]
    Newer {
        /// The store.
        store: String,
        /// Its version.
        version: i64,
        /// The newest version that this program knows.
        supported_version: i64,
    },
    /// A server does not serve this store, and what is wrong: no host, no database, no right, no TLS as it is asked for.
    #[error("{0}: {1}")]
    Server(String, String),
    /// The server of this store cannot be reached for another reason.
    #[error("{0} cannot be reached: {1}")]
    Unreachable(String, String),
    /// Another program has a schema of our name there.
    #[error("{0}: its schema `kelvin` belongs to another program, and is left unchanged: name another database")]
    ForeignSchema(String),
    /// The operating system gives no means to wait for a server.
    #[error("cannot wait for a server: {0}")]
    NoRuntime(#[source] io::Error),
    /// There is no space for a copy of a store while it is changed within its file.
    #[error(
        "the disk that holds {} is full, and nowhere else is room for a copy while runs are deleted in it: free {} there, or set TMPDIR to \
         a directory of another disk with that much",
        .0.display(), kelvin_core::units::bytes(*.1)
    )]
    NoRoomForCopy(PathBuf, u64),
    /// The file system cannot do what a write-ahead log needs.
    #[error("the file system of {path} cannot hold a write-ahead log (SQLite offers {1}): name a file on a local disk", path = .0.display())]
    NoWriteAheadLog(PathBuf, String),
    /// The database failed.
    #[error(transparent)]
    Database(#[from] DatabaseError),
}

/// Why an event, or the conclusions of a run, were not stored. What was stored before stays.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// A round without a run.
    #[error("an event came before the start of the run")]
    NotStarted,
    /// A second start.
    #[error("the recorder has already started run {0}: each run needs its own recorder")]
    AlreadyStarted(String),
    /// The id is taken.
    #[error("run {0} is already in the store")]
    Duplicate(String),
    /// There is no such run, or it was deleted meanwhile.
    #[error("run {0} is not in the store, or was deleted while it ran")]
    Gone(String),
    /// The amended header plans other measurements.
    #[error("the amended header of run {0} has another plan than the stored one")]
    OtherPlan(String),
    /// The data is inconsistent.
    #[error(transparent)]
    Invalid(#[from] InvalidField),
    /// The database cannot hold a part of this run: what of it, and why.
    #[error("run {0} cannot be stored there: {1}")]
    NotStorable(String, String),
    /// The database failed.
    #[error(transparent)]
    Database(#[from] DatabaseError),
}

/// Why a name does not match exactly one run.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// There is no run at all.
    #[error("the store {0} holds no runs; `kelvin run` makes one")]
    Empty(String),
    /// No run has the tag.
    #[error("no run has the tag {0}")]
    NoneTagged(Tag),
    /// It is no tag.
    #[error("{0:?}: {1}")]
    BadTag(String, TagError),
    /// None matches.
    #[error("no run is called {0:?} or begins with it; `kelvin runs list` lists them")]
    None(String),
    /// `last~N` goes back too far.
    #[error("{0} goes back further than the {runs}", runs = run_count_text(*.1))]
    TooFarBack(String, usize),
    /// `last~N` with an N that is no number.
    #[error("{0:?} is not last~N with a whole number N")]
    BadOffset(String),
    /// Several match this name: ids that begin with it, newest first, at most eight, and how many more there are.
    #[error("{0:?} could be {1}")]
    Ambiguous(String, String),
    /// The database failed.
    #[error(transparent)]
    Database(#[from] DatabaseError),
}

/// Why a run could not be read.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The name does not match exactly one run.
    #[error(transparent)]
    Find(#[from] FindError),
    /// A newer kelvin wrote it.
    #[error(
        "run {0} has format {1}, but this kelvin knows only up to {known}: use a newer kelvin",
        known = kelvin_core::RUN_FORMAT
    )]
    Newer(String, u32),
    /// A part of it cannot be decoded.
    #[error("{part} of run {id} is damaged: {problem}")]
    Damaged {
        /// The run.
        id: String,
        /// Which part.
        part: String,
        /// What is wrong with it.
        problem: String,
    },
}

impl From<DatabaseError> for LoadError {
    fn from(fault: DatabaseError) -> Self {
        Self::Find(FindError::Database(fault))
    }
}

/// Why the tags or the note of a run were not changed.
#[derive(Debug, thiserror::Error)]
pub enum LabelError {
    /// The name does not match exactly one run.
    #[error(transparent)]
    Find(#[from] FindError),
    /// A run does not have the tag to be removed, of this name.
    #[error("run {0} has no tag {1}")]
    NoSuchTag(String, String),
}

/// Why a run was not copied from one store to another. What the other store had before stays.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// It could not be read.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// It could not be stored.
    #[error(transparent)]
    Insert(#[from] InsertError),
}

/// Why runs that wait for a server were not sent. They stay where they are.
#[derive(Debug, thiserror::Error)]
pub enum UploadError {
    /// The file that they wait in failed.
    #[error(transparent)]
    Local(DatabaseError),
    /// The file that shows who is recording cannot be made.
    #[error("the file that shows who is recording cannot be opened: {0}")]
    Lock(io::Error),
    /// The server failed, or a run could not be read.
    #[error(transparent)]
    Copy(Box<CopyError>),
}

impl CopyError {
    /// Whether a store failed, so that the next run will fare no better. A part that is damaged, or that the store cannot hold, is one
    /// run's.
    pub fn is_store_failure(&self) -> bool {
        match self {
            Self::Load(LoadError::Find(FindError::Database(fault)))
            | Self::Insert(InsertError::Append(AppendError::Database(fault))) => fault.is_store_failure(),
            _ => false,
        }
    }
}

impl DatabaseError {
    /// Whether there is no space left.
    pub fn is_disk_full(&self) -> bool {
        matches!(self, Self::Full(_))
    }

    /// Whether it is not of what was read or written alone.
    fn is_store_failure(&self) -> bool {
        !matches!(
            self,
            Self::Damaged(..) | Self::Other(..) | Self::Duplicate(_) | Self::Orphan(_) | Self::NotStorable(..)
        )
    }
}

/// Why a whole run was not stored.
#[derive(Debug, thiserror::Error)]
pub enum InsertError {
    /// The id is taken by another run.
    #[error("run {0} is already in the store with different content: delete it first, or keep it")]
    Differs(String),
    /// The stored run of the same id cannot be read, and so not be compared.
    #[error("run {0} is already in the store, but cannot be read to compare: {1}")]
    Incomparable(String, #[source] Box<LoadError>),
    /// The run is inconsistent, or the database failed.
    #[error(transparent)]
    Append(#[from] AppendError),
}

/// Why a run was not written to a file.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The run is inconsistent, and so could not be read back.
    #[error(transparent)]
    Invalid(#[from] InvalidField),
    /// It could not be written.
    #[error("the run could not be written: {0}")]
    Write(#[from] io::Error),
}

/// Why a file was not read as a run.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// It could not be read.
    #[error("the file could not be read: {0}")]
    Read(#[from] io::Error),
    /// It is larger than a run may be.
    #[error("the file is larger than {0} bytes, the limit for a run")]
    TooLarge(u64),
    /// It is not JSON.
    #[error("the file is not JSON: {0}")]
    NotJson(serde_json::Error),
    /// It is JSON, but no run.
    #[error("the file is not a run of kelvin: it is not a JSON object with a whole number `format`")]
    NotARun,
    /// It is a report without samples, of which nothing could be computed again.
    #[error(
        "the file is a report without samples: import what `kelvin runs export` writes, or a report made with --with-samples"
    )]
    WithoutSamples,
    /// A newer kelvin wrote it.
    #[error(
        "the file has format {0}, but this kelvin knows only up to {known}: use a newer kelvin",
        known = kelvin_core::RUN_FORMAT
    )]
    Newer(u64),
    /// A kelvin of before the first format wrote it.
    #[error(
        "the file is older than the first format of runs: a version in development wrote it on {started} ({problem}), and no other \
         version reads it: measure again"
    )]
    BeforeFirstFormat {
        /// When its run began.
        started: String,
        /// The first field that it lacks.
        problem: String,
    },
    /// No kelvin wrote this format.
    #[error("field format: there is no format {0}; formats are counted from 1")]
    UnknownFormat(u64),
    /// The run is inconsistent.
    #[error(transparent)]
    Invalid(#[from] InvalidField),
}

/// `3 stored runs`, `one stored run`.
fn run_count_text(count: usize) -> String {
    if count == 1 { "one stored run".into() } else { format!("{count} stored runs") }
}

/// A field that contradicts the rest of its run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("field {field}: {problem}")]
pub struct InvalidField {
    /// Path to the field: `measurements[3].rounds[0].readings[1].nanoseconds`.
    pub field: String,
    /// What is wrong, and what would be right.
    pub problem: String,
}

impl InvalidField {
    /// The error with the path of what its field belongs to.
    pub(crate) fn under_parent(self, parent: impl std::fmt::Display) -> Self {
        let separator = if self.field.is_empty() { "" } else { "." };
        Self { field: format!("{parent}{separator}{}", self.field), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_count_has_singular() {
        let too_far = |runs| FindError::TooFarBack("last~1".into(), runs).to_string();
        assert_eq!(too_far(1), "last~1 goes back further than the one stored run");
        assert_eq!(too_far(2), "last~1 goes back further than the 2 stored runs");
    }
}
