//! `kelvin-cluster load`: one load of all ranks on a server, as `kelvin load` makes it on one host.

pub mod arguments;
pub mod document;
pub mod event;
pub mod merge;
pub mod report;
pub mod results;
pub mod start;
pub mod task;
pub mod worker;
