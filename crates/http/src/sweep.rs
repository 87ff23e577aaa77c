//! A study of a file server under load: what each resource gives alone, and then numbers of users, visited several times in random
//! order, with the use of every resource at either end.
//!
//! A [`LoadStudy`] is prepared before anything is stored: its server runs, its files exist, its capacities are known, and so are the
//! numbers of users. [`LoadStudy::run`] makes the visits and reports what each brought. Conclusions are drawn by
//! who has the run.
mod capacity;
mod disk;
mod error;
mod file_set;
mod load_step;
mod readings;
mod server_under_test;
mod setup;
mod study;
mod study_server;
mod topology;
mod usage_delta;
mod user_counts;

pub use capacity::Capacities;
pub use disk::disk_rate;
pub use error::{Error, Result};
pub use file_set::{FileList, FileSetSpec};
pub use server_under_test::CAPACITY_ROUNDS;
pub use setup::{ExistingServer, KnownFiles, OwnServer, StudySetup, StudyTarget, SweepLoad};
pub use study::LoadStudy;
pub use study_server::{HostedServer, ServeCommand};
