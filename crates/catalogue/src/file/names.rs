//! The file system's work for names, inodes and flushes.

use kelvin_model::{Axis, AxisScale, Metric, Name, Overhead, Treatment};

use super::{BLOCK, BYTES, of_disk};
use crate::words::words;

/// Files already there.
pub const FILES: Axis = Axis::new("files", "existing files", AxisScale::Logarithmic);

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
    /// What makes a write durable.
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
    /// Where in a file a write goes.
    pub enum WritePlace: "place", "place of the write" {
        /// Over a block that is there.
        InPlace = "in_place",
        /// After the last one, which makes the file longer.
        Append = "append",
    }
}

words! {
    /// How a new file gets its bytes.
    pub enum FilledBy: "filled", "filled by" {
        /// pwrite(2), a block at a time.
        Write = "write",
        /// Through a shared mapping, a block at a time, of a file that was made as long before.
        Mmap = "mmap",
        /// The same, with the advice that pages are accessed at random: nothing is read ahead of them.
        MmapRandom = "mmap-random",
    }
}

/// A new file. It is written into memory, where write-back may meet it: samples count as found.
pub static NEW: Metric =
    of_disk(Metric::duration("file.new", "Creating a file, writing so many bytes into it, and closing it"))
        .over([FilledBy::AXIS, BLOCK, BYTES])
        .overhead(Overhead::ClockPair)
        .version(2);

/// A flushed write. The disk is measured: samples count as found, and waiting for it is no disturbance.
pub static SYNC: Metric =
    of_disk(Metric::duration("file.sync", "A write of 4 KiB, with the flush that makes it durable"))
        .over([FlushedBy::AXIS, WritePlace::AXIS])
        .overhead(Overhead::ClockPair);

/// Operations of one kind are timed together, and a journal may be written among them: all figures count as found.
const fn each(id: &'static str, summary: &'static str) -> Metric {
    Metric::duration(id, summary).headline(Treatment::AsFound).overhead(Overhead::None).not_in_cycles()
}

/// The probe of names and inodes apart.
pub const ENTRY: Name = Name::new("file.entry");

/// Creating a file without a name.
pub static ENTRY_MAKE: Metric = each("file.entry.make", "Creating an O_TMPFILE file, left open");
/// Freeing its inode.
pub static ENTRY_GIVE_BACK: Metric = each("file.entry.give_back", "Closing an O_TMPFILE file, which frees it");
/// Adding a name.
pub static ENTRY_ADD: Metric = each("file.entry.add", "Adding a name to a file (link)");
/// Removing a name.
pub static ENTRY_REMOVE: Metric = each("file.entry.remove", "Removing one of several names of a file");

/// The probe of files.
pub const METADATA: Name = Name::new("file.metadata");

const fn beside_others(id: &'static str, summary: &'static str) -> Metric {
    each(id, summary).over([FILES, DirectoryCount::AXIS])
}

/// Creating a file.
pub static METADATA_CREATE: Metric = beside_others("file.metadata.create", "Creating an empty file, and closing it");
/// stat(2) of a file.
pub static METADATA_STAT: Metric = beside_others("file.metadata.stat", "One stat of a file by its path");
/// Opening a file.
pub static METADATA_OPEN: Metric = beside_others("file.metadata.open", "Opening a file for reading, and closing it");
/// Renaming a file.
pub static METADATA_RENAME: Metric = beside_others("file.metadata.rename", "Renaming a file in its directory");
/// Listing a directory.
pub static METADATA_LIST: Metric = beside_others("file.metadata.list", "Listing a directory, per name");
/// Removing a file.
pub static METADATA_UNLINK: Metric = beside_others("file.metadata.unlink", "Removing an empty file");
