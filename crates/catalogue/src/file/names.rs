//! What a file system does for names, inodes and flushes.

use kelvin_model::{Axis, AxisScale, Metric, Name, Overhead, Treatment};

use super::of_disk;
use crate::words::words;

/// Files that are there beside those that are worked on.
pub const FILES: Axis = Axis::new("files", "files there", AxisScale::Logarithmic);

words! {
    /// Where those files are.
    pub enum DirectoryCount: "directories", "directories" {
        /// All in one directory.
        One = "one",
        /// Spread evenly over many.
        Many = "many",
    }
}

words! {
    /// What follows a write, or makes it wait, so that it outlasts a loss of power.
    pub enum FlushedBy: "by", "flushed by" {
        /// Nothing: it is written into memory.
        Nothing = "none",
        /// fdatasync(2).
        Fdatasync = "fdatasync",
        /// fsync(2).
        Fsync = "fsync",
        /// A file opened with O_DSYNC.
        Dsync = "dsync",
    }
}

words! {
    /// Where in a file is written.
    pub enum WritePlace: "place", "place of the write" {
        /// Over a block that is there.
        InPlace = "in_place",
        /// Behind the last one, which makes the file longer.
        Append = "append",
    }
}

/// A write that is flushed. The disk is the point: samples count as found, and going to the disk is no disturbance.
pub static SYNC: Metric =
    of_disk(Metric::duration("file.sync", "A write of 4 KiB, and what follows it so that it outlasts a loss of power"))
        .over([FlushedBy::AXIS, WritePlace::AXIS])
        .overhead(Overhead::ClockPair);

/// Operations of one kind are timed together, and a journal may be written among them: all figures count as found.
const fn each(id: &'static str, summary: &'static str) -> Metric {
    Metric::duration(id, summary).headline(Treatment::AsFound).overhead(Overhead::None).not_in_cycles()
}

/// The probe of names and inodes apart.
pub const ENTRY: Name = Name::new("file.entry");

/// A file without a name made.
pub static ENTRY_MAKE: Metric = each("file.entry.make", "One new, empty file made that has no name, and left open");
/// Its inode given back.
pub static ENTRY_GIVE_BACK: Metric =
    each("file.entry.give_back", "One empty file without a name closed, and so removed");
/// A name added.
pub static ENTRY_ADD: Metric = each("file.entry.add", "One more name given to a file");
/// A name removed.
pub static ENTRY_REMOVE: Metric = each("file.entry.remove", "One of several names of a file taken away");

/// The probe of files as such.
pub const METADATA: Name = Name::new("file.metadata");

const fn beside_others(id: &'static str, summary: &'static str) -> Metric {
    each(id, summary).over([FILES, DirectoryCount::AXIS])
}

/// Making a file.
pub static METADATA_CREATE: Metric = beside_others("file.metadata.create", "One new, empty file made, and closed");
/// Looking at a file.
pub static METADATA_STAT: Metric = beside_others("file.metadata.stat", "One look at a file's status by its path");
/// Opening a file.
pub static METADATA_OPEN: Metric =
    beside_others("file.metadata.open", "One opening of a file for reading, and closing it");
/// Renaming a file.
pub static METADATA_RENAME: Metric =
    beside_others("file.metadata.rename", "One file given another name in the same directory");
/// Listing a directory.
pub static METADATA_LIST: Metric = beside_others("file.metadata.list", "One name read from a directory");
/// Removing a file.
pub static METADATA_UNLINK: Metric = beside_others("file.metadata.unlink", "One empty file removed");
