//! The cost of a child that borrows the parent's memory: vfork + exit + wait.
//!
//! It is the minimum cost of a process, since no page table is copied. It must not be used as the cost of starting a
//! program, which adds execve and the program's start-up.

use kelvin_core::catalogue::os::PROCESS_VFORK;
use kelvin_sys::process::vfork_and_exit;

use super::process_lifetime::time_lifetimes;
use crate::prelude::*;

pub(crate) static PROBE: Probe = Probe {
    summary: "vfork + exit + wait of a child that exits at once",
    method: include_str!("vfork.md"),
    run: |bench, _| time_lifetimes(bench, &PROCESS_VFORK, vfork_and_exit),
    predict: |_, _, _| Err(NoPrediction::new("the cost of vfork and exit is not published for current kernels")),
    ..Probe::measure(&[&PROCESS_VFORK])
};
