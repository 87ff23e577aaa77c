//! The network between all pairs of hosts: which pairs measure when, what they are asked, and what their figures say.

pub mod analysis;
pub mod event;
pub mod report;
pub mod results;
pub mod round_trips;
pub mod schedule;
pub mod task;
pub mod tcp;
