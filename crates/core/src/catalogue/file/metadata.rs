//! The file system's work for names, inodes and flushes.

use crate::{Axis, AxisScale, HeadlineSamples, Metric, Name, Overhead};

use super::{BLOCK, BYTES, disk_metric};
use crate::catalogue::axis_words::words;
use crate::catalogue::metric_list::{duration, metrics};

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

/// Operations of one kind are timed together, and a journal may be written among them: all figures count as found.
const fn entry_metric(id: &'static str) -> Metric {
    duration(id).headline(HeadlineSamples::AsFound).overhead(Overhead::None).not_in_cycles()
}

/// The probe of names and inodes apart.
pub const ENTRY: Name = Name::new("file.entry");

/// The probe of files.
pub const METADATA: Name = Name::new("file.metadata");

const fn metadata_metric(id: &'static str) -> Metric {
    entry_metric(id).with_axes([FILES, DirectoryCount::AXIS])
}

metrics! {
    /// The metrics of new files, flushes, names and inodes, in the order of reports.
    pub const METADATA_METRICS = [
        // It is written into memory, where write-back may meet it: samples count as found.
        /// Creating a file, writing a number of bytes into it, and closing it
        NEW_FILE = disk_metric(duration("file.new"))
            .with_axes([FillMethod::AXIS, BLOCK, BYTES])
            .overhead(Overhead::ClockPair)
            .version(2),
        // The disk is measured: samples count as found, and waiting for it is no disturbance.
        /// A write of 4 KiB, with the flush that makes it durable
        SYNC_WRITE = disk_metric(duration("file.sync"))
            .with_axes([FlushMethod::AXIS, WritePosition::AXIS])
            .overhead(Overhead::ClockPair),
        /// Creating an O_TMPFILE file, left open
        ENTRY_CREATE = entry_metric("file.entry.make"),
        /// Closing an O_TMPFILE file, which frees it
        ENTRY_FREE = entry_metric("file.entry.give_back"),
        /// Adding a name to a file (link)
        ENTRY_ADD = entry_metric("file.entry.add"),
        /// Removing one of several names of a file
        ENTRY_REMOVE = entry_metric("file.entry.remove"),
        /// Creating an empty file, and closing it
        METADATA_CREATE = metadata_metric("file.metadata.create"),
        /// One stat of a file by its path
        METADATA_STAT = metadata_metric("file.metadata.stat"),
        /// Opening a file for reading, and closing it
        METADATA_OPEN = metadata_metric("file.metadata.open"),
        /// Renaming a file in its directory
        METADATA_RENAME = metadata_metric("file.metadata.rename"),
        /// Listing a directory, per name
        METADATA_LIST = metadata_metric("file.metadata.list"),
        /// Removing an empty file
        METADATA_UNLINK = metadata_metric("file.metadata.unlink"),
    ];
}
