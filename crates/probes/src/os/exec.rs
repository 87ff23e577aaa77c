//! The cost of fork + execve + wait of a small program.
//!
//! It is the inner loop of a shell. It must not be used for a large parent (the fork grows with it), nor for programs
//! that load many libraries.

use kelvin_core::catalogue::os::PROCESS_EXEC;

use super::process_lifetime::{TRUE_PROGRAMS, time_lifetimes_from_small_image, true_program_index};
use crate::prelude::*;

pub(crate) static PROBE: Probe = Probe {
    summary: "fork + execve + wait of /bin/true",
    method: include_str!("exec.md"),
    run: |bench, _| {
        let program = TRUE_PROGRAMS[true_program_index()?];
        bench.note(format!("the program is {}", program.path().to_string_lossy()));
        time_lifetimes_from_small_image(bench, &PROCESS_EXEC, || program.fork_and_execute())
    },
    predict: |_, _, _| {
        Err(NoPrediction::new("most of it is loading the program and its libraries, whose cost is not published"))
    },
    ..Probe::measure(&[&PROCESS_EXEC])
};
