//! The cost of a child that borrows the parent's memory: vfork + exit + wait.
//!
//! It is the minimum cost of a process, since no page table is copied. It must not be used as the cost of starting a
//! program, which adds execve and the program's start-up.

use kelvin_core::catalogue::os::PROCESS_VFORK;
use kelvin_sys::process::vfork_and_exit;

use super::process_lifetime::time_lifetimes;
use crate::prelude::*;

pub(crate) static PROBE: Probe = Probe {
    id: PROCESS_VFORK.id.as_str(),
    summary: "vfork + exit + wait of a child that exits at once",
    kind: ProbeKind::Measure,
    method: Method {
        how: "The vfork call (clone with CLONE_VM and CLONE_VFORK where there is none) and the child's exit_group in \
              one block of assembly, so that the child touches no memory; then waitpid. Timed one by one, on one CPU; \
              every child must exit with status 0.",
        prediction: "None: it is not published for current kernels. It is a floor for os.process.spawn, which uses the \
                     same call.",
        not_for: "Starting a program: see os.process.spawn.",
        pitfalls: &[
            "The parent's thread sleeps until the child has exited or executed a program: the time includes two \
             switches.",
            "A compiler unaware that vfork returns twice breaks the caller's stack; here the child never leaves the \
             assembly.",
        ],
        sources: &["vfork(2)", "lmbench lat_proc"],
    },
    metrics: &[&PROCESS_VFORK],
    cases: |_, _| vec![Case::new()],
    run: |bench, _| time_lifetimes(bench, &PROCESS_VFORK, vfork_and_exit),
    predict: |_, _, _| Err(NoPrediction::new("the cost of vfork and exit is not published for current kernels")),
};
