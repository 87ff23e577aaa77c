//! The cost of fork + execve + wait of a small program.
//!
//! It is the inner loop of a shell. It must not be used for a large parent (the fork grows with it), nor for programs
//! that load many libraries.

use kelvin_core::catalogue::os::PROCESS_EXEC;

use super::process_lifetime::{TRUE_PROGRAMS, small_image_text, time_lifetimes_from_small_image, true_program_index};
use crate::prelude::*;

pub(crate) static PROBE: Probe = Probe {
    id: PROCESS_EXEC.id.as_str(),
    summary: "fork + execve + wait of /bin/true",
    kind: ProbeKind::Measure,
    method: Method {
        how: concat!(
            "fork() of the C library; the child calls execve of /bin/true (or /usr/bin/true) with an empty \
             environment, with vectors prepared beforehand; the parent waits. Timed one by one, on one CPU; every \
             program must exit with status 0 (127 would mean that execve failed). ",
            small_image_text!()
        ),
        prediction: "None: most of the time goes into loading the program and its libraries, which depends on the \
                     distribution.",
        not_for: "A large parent: add the cost from os.process.fork_rss. Programs that load more than the C library.",
        pitfalls: &[
            "The program matters more than the calls: most distributions link true dynamically. lmbench starts its own \
             program; compare like with like.",
            "A failing execve is fast: the child's status shows it.",
        ],
        sources: &["execve(2)", "lmbench lat_proc exec"],
    },
    metrics: &[&PROCESS_EXEC],
    cases: |_, _| vec![Case::new()],
    run: |bench, _| {
        let program = TRUE_PROGRAMS[true_program_index()?];
        bench.note(format!("the program is {}", program.path().to_string_lossy()));
        time_lifetimes_from_small_image(bench, &PROCESS_EXEC, || program.fork_and_execute())
    },
    predict: |_, _, _| {
        Err(NoPrediction::new("most of it is loading the program and its libraries, whose cost is not published"))
    },
};
