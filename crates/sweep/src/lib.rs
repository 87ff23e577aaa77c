//! A study of a file server under load: what each resource gives alone, and then numbers of users, visited several times in random
//! order, with the use of every resource at either end.
//!
//! A [`Study`] is prepared before anything is stored: its server runs, its files exist, its capacities are known, and so are the
//! numbers of users. [`Study::conduct`] makes the visits and tells what each brought. What follows from it is the business of whoever
//! has the run.
#![forbid(unsafe_code)]

mod capacity;
mod disk;
mod endpoint;
mod error;
mod figures;
mod hosted;
mod hosts;
mod listed;
mod network;
mod pinned;
mod place;
mod server;
mod set;
mod setup;
mod site;
mod study;
mod used;
mod users;
mod visit;

pub use capacity::Capacities;
pub use disk::{DiskRate, RequestRate, disk_rate};
pub use error::{Error, Result};
pub use hosted::{Host, Hosted};
pub use listed::Listed;
pub use set::Wanted;
pub use setup::{KnownFiles, Load, Own, Running, Setup, Target};
pub use site::ROUNDS;
pub use study::{PlannedCase, Study};
