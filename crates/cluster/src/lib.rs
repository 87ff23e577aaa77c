//! Measures many hosts at once: what `kelvin-cluster` does apart from MPI, which only its program needs.
#![forbid(unsafe_code)]

pub mod clock;
pub mod event;
pub mod file;
pub mod heartbeat;
pub mod kelvin_program;
pub mod load;
pub mod local_place;
pub mod net;
pub mod network;
pub mod options;
pub mod peers;
pub mod placement;
pub mod protocol;
pub mod report;
pub mod results;
pub mod run;
pub mod srun;
