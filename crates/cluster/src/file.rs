//! A file system that all ranks see: files of their own and one shared file, written, read back by another rank and verified, and the
//! making and removing of many files.

pub mod analysis;
pub mod content;
pub mod data;
pub mod directory;
pub mod event;
pub mod layout;
pub mod metadata;
pub mod report;
pub mod results;
pub mod schedule;
pub mod task;
