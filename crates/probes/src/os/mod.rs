//! Services of the operating system: calls, processes, threads, switches, signals, timers, local communication.

mod exec;
mod fork;
mod fork_rss;
pub(crate) mod ipc;
pub(crate) mod partner;
mod process_lifetime;
mod rivals;
mod scaling;
mod shell;
mod signal;
mod spawn;
pub(crate) mod switch;
pub(crate) mod syscall_null;
pub(crate) mod syscall_work;
mod tasks;
mod thread_create;
mod timer;
pub(crate) mod trap;
mod vfork;

use kelvin_harness::Probe;

pub(crate) static PROBES: &[&Probe] = &[
    &syscall_null::PROBE,
    &syscall_work::READ_PROBE,
    &syscall_work::WRITE_PROBE,
    &syscall_work::STAT_PROBE,
    &syscall_work::FSTAT_PROBE,
    &syscall_work::OPEN_CLOSE_PROBE,
    &syscall_work::SELECT_PROBE,
    &syscall_work::MMAP_MUNMAP_PROBE,
    &fork::PROBE,
    &fork_rss::PROBE,
    &vfork::PROBE,
    &spawn::PROBE,
    &exec::PROBE,
    &shell::PROBE,
    &thread_create::PROBE,
    &switch::cost::PROBE,
    &switch::cross_cpu::PROBE,
    &switch::one_way::PROBE,
    &switch::ring::PROBE,
    &ipc::latency::PROBE,
    &ipc::bandwidth::PROBE,
    &signal::INSTALL_PROBE,
    &signal::DELIVER_PROBE,
    &timer::PROBE,
    &tasks::PROBE,
    &scaling::PROBE,
    &rivals::SYSCALL_PROBE,
    &rivals::PIPE_PROBE,
];
