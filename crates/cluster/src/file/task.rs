//! What ranks that measure a file system are asked, and what they answer: plain data.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::layout::{Layout, Part};

/// What ranks do to data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DataOperation {
    /// Open, write all blocks of a part, fsync, close.
    Write,
    /// Open, read all blocks of a part, close.
    Read,
}

/// What ranks do to many files without content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MetadataOperation {
    /// Make each, and close it.
    Create,
    /// Ask for the attributes of each.
    Stat,
    /// Remove each.
    Unlink,
}

/// Where the files without content are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sharing {
    /// Each rank has a directory of its own.
    Own,
    /// All ranks share a directory.
    Shared,
}

/// What is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activity {
    /// Data.
    Data {
        /// What is done.
        operation: DataOperation,
        /// Where it lies.
        layout: Layout,
    },
    /// Files without content.
    Metadata {
        /// What is done.
        operation: MetadataOperation,
        /// Where they are.
        sharing: Sharing,
    },
}

impl Activity {
    /// As people write it.
    pub const fn label(self) -> (&'static str, &'static str) {
        match self {
            Self::Data { operation, layout } => {
                let operation = match operation {
                    DataOperation::Write => "write",
                    DataOperation::Read => "read",
                };
                (operation, layout.label())
            }
            Self::Metadata { operation, sharing } => {
                let operation = match operation {
                    MetadataOperation::Create => "create",
                    MetadataOperation::Stat => "stat",
                    MetadataOperation::Unlink => "unlink",
                };
                let sharing = match sharing {
                    Sharing::Own => "own directories",
                    Sharing::Shared => "shared directory",
                };
                (operation, sharing)
            }
        }
    }

    /// Whether its amount is in bytes; otherwise in files.
    pub const fn is_data(self) -> bool {
        matches!(self, Self::Data { .. })
    }
}

/// What rank 0 asks of a rank. All ranks take part in each timed task, at least in its common start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum FileTask {
    /// To read what rank 0 wrote in the directory of the job, and to remove that directory should rank 0 be lost.
    Enter {
        /// The directory.
        directory: PathBuf,
        /// What the file in it has.
        probe: String,
    },
    /// To write or read a part, after all ranks have come so far.
    Data {
        /// What is done.
        operation: DataOperation,
        /// With what; nothing by a rank that only starts with the others.
        part: Option<Part>,
        /// How.
        access: DataAccess,
    },
    /// To compare a part with what was written.
    Verify {
        /// The part.
        part: Part,
        /// How it is read.
        access: DataAccess,
    },
    /// To make, find or remove files, after all ranks have come so far.
    Metadata {
        /// What is done.
        operation: MetadataOperation,
        /// With which; none by a rank that only starts with the others.
        files: Option<FileSet>,
    },
}

/// How data is written and read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataAccess {
    /// The directory of its files.
    pub directory: PathBuf,
    /// Past the page cache (O_DIRECT).
    pub is_direct: bool,
    /// Chooses the content.
    pub seed: u64,
}

/// Files without content that a rank made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSet {
    /// Their directory.
    pub directory: PathBuf,
    /// The rank that makes them.
    pub maker: usize,
    /// How many there are.
    pub count: u64,
}

/// What a rank answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum FileOutcome {
    /// The directory is the one of rank 0.
    Entered {
        /// Memory of its host, in bytes.
        memory_bytes: u64,
    },
    /// A timed task is done.
    Timed(Timing),
    /// The data was compared with what was written.
    Verified {
        /// How long that took, in seconds.
        seconds: f64,
        /// The first block that is wrong.
        wrong: Option<WrongBlock>,
    },
    /// The rank only started with the others.
    Idle,
}

/// When a rank did its part, by its own clock.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// Its beginning, in seconds since 1970.
    pub start_s: f64,
    /// Its end.
    pub end_s: f64,
    /// Of which the flush at the end took this long, in seconds; 0 where there is none.
    pub flush_s: f64,
    /// The part of what was read that lay in this kernel's page cache before, 0 to 1; unknown where its two calls disagree.
    pub cached_share: Option<f64>,
}

/// A block that is not what was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrongBlock {
    /// The rank that wrote it.
    pub writer: usize,
    /// Its file.
    pub path: PathBuf,
    /// Where it begins, in bytes.
    pub offset: u64,
    /// The first byte of it that is wrong.
    pub first_byte: usize,
}
