//! The operating system: calls, processes, threads, switches, local communication, signals, timers.

mod calls;
mod ipc;
mod process;
mod rivals;
mod scaling;
mod switch;

use crate::Name;

pub use calls::*;
pub use ipc::*;
pub use process::*;
pub use rivals::*;
pub use scaling::*;
pub use switch::*;

/// The study of what the operating system adds to a program's own work.
pub const STUDY: Name = Name::new("os");
/// It in a sentence.
pub const STUDY_SUMMARY: &str = "System calls next to function calls, forks next to threads, switches of both";
