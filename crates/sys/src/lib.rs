//! The only unsafe code and assembly of kelvin, behind safe calls: clocks, placement, processes, memory, timed kernels.
//!
//! Timed code whose exact instructions matter is in [`kernels`], in assembly, once per architecture. Everything else is
//! a thin safe wrapper of a system call that reports its errors.
#![deny(unsafe_op_in_unsafe_fn)]

pub mod block_device;
pub mod c_library;
pub mod cache_line;
pub mod child;
pub mod child_set;
pub mod clock;
pub mod clock_discipline;
pub mod cpu;
pub mod cpu_usage;
pub mod cpuid;
pub mod direct_io;
pub mod ethtool;
pub mod fork_image;
pub mod fs;
pub mod handoff;
#[cfg(any(test, target_env = "musl"))]
pub mod heap;
pub mod kernels;
pub mod kmod;
pub mod mapping;
#[cfg(feature = "mathematics")]
mod mathematics;
pub mod memory;
pub mod message_stream;
pub mod net;
pub mod numa;
pub mod pagemap;
pub mod partner;
pub mod passed_sockets;
pub mod perf_event;
pub mod poll;
pub mod process;
pub mod procfs;
pub mod random;
mod region;
pub mod resident_set;
pub mod seccomp;
pub mod shared_memory;
pub mod shared_slots;
pub mod sigbus;
pub mod signal_handler;
pub mod standard_streams;
pub mod stdio;
pub mod stop_signals;
pub mod store_bypass;
pub mod syscall_loops;
pub mod task_group;
pub mod terminate;
pub mod thread_spawn;
pub mod thread_start;
pub mod trusted_path;
pub mod uring;
pub mod usage;

/// The errors of system calls.
pub use std::io::Error;
/// The result of a system call.
pub type Result<T> = std::io::Result<T>;

/// What a mutex guards, also after a panic of a thread that held it.
pub fn lock<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Turns the `-1` of a libc call into the error that `errno` holds.
pub(crate) fn check(result: libc::c_int) -> Result<libc::c_int> {
    if result == -1 { Err(Error::last_os_error()) } else { Ok(result) }
}

/// Turns the error number that a call of the pthread library returns, or zero, into a result.
#[inline(always)]
pub(crate) fn check_code(code: libc::c_int) -> Result<()> {
    if code == 0 { Ok(()) } else { Err(Error::from_raw_os_error(code)) }
}
