//! Measures many hosts at once: what `kelvin-cluster` does apart from MPI, which only its program needs.
#![forbid(unsafe_code)]

pub mod analysis;
pub mod event;
pub mod heartbeat;
pub mod local_place;
pub mod matrix;
pub mod network;
pub mod placement;
pub mod protocol;
pub mod report;
pub mod results;
pub mod round_trips;
pub mod schedule;
pub mod tcp;
