//! The only unsafe code and assembly of kelvin, behind safe calls: clocks, placement, processes, memory, timed kernels.
//!
//! Timed code whose exact instructions matter is in [`kernels`], in assembly, once per architecture. Everything else is
//! a thin safe wrapper of a system call that reports its errors.
#![deny(unsafe_op_in_unsafe_fn)]

pub mod bounce;
pub mod bus;
pub mod busy;
pub mod calls;
pub mod child;
pub mod children;
pub mod clock;
pub mod cpu;
pub mod cpuid;
pub mod direct;
pub mod ethtool;
pub mod filter;
pub mod fs;
pub mod image;
pub mod interrupt;
pub mod kernel_end;
pub mod kernels;
pub mod mapping;
#[cfg(feature = "mathematics")]
mod mathematics;
pub mod memory;
pub mod net;
pub mod numa;
pub mod owned;
pub mod pagemap;
pub mod partner;
pub mod places;
pub mod process;
pub mod random;
pub mod ready;
pub mod shared;
pub mod signals;
pub mod spawn;
pub mod standard;
pub mod stdio;
pub mod stream;
pub mod terminal;
pub mod terminate;
pub mod thread;
pub mod token;
pub mod uring;
pub mod usage;

/// The errors of system calls.
pub use std::io::Error;
/// The result of a system call.
pub type Result<T> = std::io::Result<T>;

/// Turns the `-1` of a libc call into the error that `errno` holds.
pub(crate) fn check(result: libc::c_int) -> Result<libc::c_int> {
    if result == -1 { Err(Error::last_os_error()) } else { Ok(result) }
}
