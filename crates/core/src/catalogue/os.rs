//! The operating system: calls, processes, threads, switches, local communication, signals, timers.

mod calls;
mod ipc;
mod process;
mod rivals;
mod switch;

use crate::{Metric, Name};

pub use calls::*;
pub use ipc::*;
pub use process::*;
pub use rivals::*;
pub use switch::*;

/// The study of what the operating system adds to a program's own work.
pub const STUDY: Name = Name::new("os");
/// It in a sentence.
pub const STUDY_SUMMARY: &str = "System calls beside function calls, forks beside threads, switches of both";

/// The metrics of this area, in the order of reports.
pub static ALL: &[&Metric] = &[
    &SYSCALL_NULL,
    &SYSCALL_READ,
    &SYSCALL_WRITE,
    &SYSCALL_STAT,
    &SYSCALL_FSTAT,
    &SYSCALL_OPEN_CLOSE,
    &SYSCALL_SELECT,
    &SYSCALL_MMAP_MUNMAP,
    &PROCESS_FORK,
    &PROCESS_FORK_CHILD,
    &PROCESS_FORK_EXIT_WAIT,
    &PROCESS_FORK_RSS,
    &PROCESS_VFORK,
    &PROCESS_SPAWN,
    &PROCESS_EXEC,
    &PROCESS_SHELL,
    &THREAD_CREATE,
    &THREAD_CREATE_RUN,
    &THREAD_CREATE_JOIN,
    &SWITCH_COST,
    &SWITCH_ROUND_TRIP,
    &SWITCH_CHANNEL_CALLS,
    &SWITCH_CROSS_CPU,
    &ONE_WAY_WAKE_UP,
    &SWITCH_RING,
    &SWITCH_RING_CALLS,
    &SWITCH_RING_SWITCHES,
    &IPC_LATENCY,
    &IPC_BANDWIDTH,
    &SIGNAL_INSTALL,
    &SIGNAL_DELIVER,
    &TIMER_WAKEUP,
    &TASKS_ELAPSED,
    &TASKS_USER,
    &TASKS_SYSTEM,
    &TASKS_EFFICIENCY,
    &TASKS_UNACCOUNTED,
    &RIVALS_SYSCALL,
    &RIVALS_SYSCALL_KELVIN,
    &RIVALS_SYSCALL_OTHER,
    &RIVALS_PIPE,
    &RIVALS_PIPE_KELVIN,
    &RIVALS_PIPE_OTHER,
];
