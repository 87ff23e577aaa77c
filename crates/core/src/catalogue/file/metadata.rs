//! The file system's work for names, inodes and flushes.

use crate::{Axis, AxisScale, HeadlineSamples, Metric, Name, Overhead};

use super::{BLOCK, BYTES, disk_metric};
use crate::catalogue::axis_words::words;

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
    pub enum FlushMethod: "by", "flushed by" {
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
    pub enum WritePosition: "place", "place of the write" {
        /// Over a block that is there.
        InPlace = "in_place",
        /// After the last one, which makes the file longer.
        Append = "append",
    }
}

words! {
    /// How a new file gets its bytes.
    pub enum FillMethod: "filled", "filled by" {
        /// pwrite(2), a block at a time.
        Write = "write",
        /// Through a shared mapping, a block at a time, of a file that was made as long before.
        Mmap = "mmap",
        /// Like `Mmap`, with the advice that pages are accessed at random: nothing is read ahead of them.
        MmapRandom = "mmap-random",
    }
}

/// A new file. It is written into memory, where write-back may meet it: samples count as found.
pub static NEW_FILE: Metric =
    disk_metric(Metric::duration("file.new", "Creating a file, writing a number of bytes into it, and closing it"))
        .with_axes([FillMethod::AXIS, BLOCK, BYTES])
        .overhead(Overhead::ClockPair)
        .version(2);

/// A flushed write. The disk is measured: samples count as found, and waiting for it is no disturbance.
pub static SYNC_WRITE: Metric =
    disk_metric(Metric::duration("file.sync", "A write of 4 KiB, with the flush that makes it durable"))
        .with_axes([FlushMethod::AXIS, WritePosition::AXIS])
        .overhead(Overhead::ClockPair);

/// Operations of one kind are timed together, and a journal may be written among them: all figures count as found.
const fn entry_metric(id: &'static str, summary: &'static str) -> Metric {
    Metric::duration(id, summary).headline(HeadlineSamples::AsFound).overhead(Overhead::None).not_in_cycles()
}

/// The probe of names and inodes apart.
pub const ENTRY: Name = Name::new("file.entry");

/// Creating a file without a name.
pub static ENTRY_CREATE: Metric = entry_metric("file.entry.make", "Creating an O_TMPFILE file, left open");
/// Freeing its inode.
pub static ENTRY_FREE: Metric = entry_metric("file.entry.give_back", "Closing an O_TMPFILE file, which frees it");
/// Adding a name.
pub static ENTRY_ADD: Metric = entry_metric("file.entry.add", "Adding a name to a file (link)");
/// Removing a name.
pub static ENTRY_REMOVE: Metric = entry_metric("file.entry.remove", "Removing one of several names of a file");

/// The probe of files.
pub const METADATA: Name = Name::new("file.metadata");

const fn metadata_metric(id: &'static str, summary: &'static str) -> Metric {
    entry_metric(id, summary).with_axes([FILES, DirectoryCount::AXIS])
}

/// Creating a file.
pub static METADATA_CREATE: Metric = metadata_metric("file.metadata.create", "Creating an empty file, and closing it");
/// stat(2) of a file.
pub static METADATA_STAT: Metric = metadata_metric("file.metadata.stat", "One stat of a file by its path");
/// Opening a file.
pub static METADATA_OPEN: Metric = metadata_metric("file.metadata.open", "Opening a file for reading, and closing it");
/// Renaming a file.
pub static METADATA_RENAME: Metric = metadata_metric("file.metadata.rename", "Renaming a file in its directory");
/// Listing a directory.
pub static METADATA_LIST: Metric = metadata_metric("file.metadata.list", "Listing a directory, per name");
/// Removing a file.
pub static METADATA_UNLINK: Metric = metadata_metric("file.metadata.unlink", "Removing an empty file");
