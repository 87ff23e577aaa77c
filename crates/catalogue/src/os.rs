//! The operating system: calls, processes, threads, switches, local communication, signals, timers.

mod calls;
mod ipc;
mod process;
mod rivals;
mod switch;

use kelvin_model::{Canaries, Canary, Metric};

pub use calls::*;
pub use ipc::*;
pub use process::*;
pub use rivals::*;
pub use switch::*;

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
    &PROCESS_FORK_LIFE,
    &PROCESS_FORK_RSS,
    &PROCESS_VFORK,
    &PROCESS_SPAWN,
    &PROCESS_EXEC,
    &PROCESS_SHELL,
    &THREAD_CREATE,
    &THREAD_CREATE_RUN,
    &THREAD_CREATE_JOIN,
    &SWITCH_PROCESS_PIPE,
    &SWITCH_PROCESS_PIPE_ROUND_TRIP,
    &SWITCH_PROCESS_PIPE_OWN,
    &SWITCH_THREAD_PIPE,
    &SWITCH_THREAD_PIPE_ROUND_TRIP,
    &SWITCH_THREAD_PIPE_OWN,
    &SWITCH_PROCESS_FUTEX,
    &SWITCH_PROCESS_FUTEX_ROUND_TRIP,
    &SWITCH_PROCESS_FUTEX_OWN,
    &SWITCH_THREAD_FUTEX,
    &SWITCH_THREAD_FUTEX_ROUND_TRIP,
    &SWITCH_THREAD_FUTEX_OWN,
    &SWITCH_PROCESS_EVENTFD,
    &SWITCH_PROCESS_EVENTFD_ROUND_TRIP,
    &SWITCH_PROCESS_EVENTFD_OWN,
    &SWITCH_THREAD_EVENTFD,
    &SWITCH_THREAD_EVENTFD_ROUND_TRIP,
    &SWITCH_THREAD_EVENTFD_OWN,
    &SWITCH_PROCESS_CONDVAR,
    &SWITCH_PROCESS_CONDVAR_ROUND_TRIP,
    &SWITCH_PROCESS_CONDVAR_OWN,
    &SWITCH_THREAD_CONDVAR,
    &SWITCH_THREAD_CONDVAR_ROUND_TRIP,
    &SWITCH_THREAD_CONDVAR_OWN,
    &SWITCH_PROCESS_YIELD,
    &SWITCH_PROCESS_YIELD_ROUND_TRIP,
    &SWITCH_THREAD_YIELD,
    &SWITCH_THREAD_YIELD_ROUND_TRIP,
    &SWITCH_CROSS_CPU,
    &SWITCH_ONE_WAY,
    &SWITCH_RING,
    &SWITCH_RING_OWN,
    &SWITCH_RING_SWITCHES,
    &IPC_PIPE_LATENCY,
    &IPC_UNIX_LATENCY,
    &IPC_FUTEX_LATENCY,
    &IPC_PIPE_BANDWIDTH,
    &IPC_UNIX_BANDWIDTH,
    &IPC_FUTEX_BANDWIDTH,
    &SIGNAL_INSTALL,
    &SIGNAL_DELIVER,
    &TIMER_WAKEUP,
    &TASKS_ELAPSED,
    &TASKS_USER,
    &TASKS_SYSTEM,
    &TASKS_EFFICIENCY,
    &TASKS_INVISIBLE,
    &RIVALS_SYSCALL,
    &RIVALS_SYSCALL_KELVIN,
    &RIVALS_SYSCALL_OTHER,
    &RIVALS_PIPE,
    &RIVALS_PIPE_KELVIN,
    &RIVALS_PIPE_OTHER,
];

/// The core's speed and kernel entry, which every call passes through. No cache canary: it would evict what the next
/// operation finds warm.
const CORE_AND_KERNEL: Canaries = Canaries::of(&[Canary::Chain, Canary::Block, Canary::Kernel]);
