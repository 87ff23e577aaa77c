//! `kelvin-cluster run`: `kelvin run` on all hosts at once and on each alone, and what hosts do to each other.

pub mod arguments;
pub mod event;
pub mod hosts;
pub mod ratios;
pub mod report;
pub mod results;
pub mod task;
pub mod worker;
