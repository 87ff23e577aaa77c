//! The cost of posix_spawn + wait of a small program.
//!
//! It is the cost of starting a program with a modern C library. It must not be compared with fork from a large parent,
//! nor used for programs that load many libraries.

use kelvin_catalogue::os::PROCESS_SPAWN;
use kelvin_harness::{Bench, Effort, Facts, Method, Probe, ProbeKind, Stop};
use kelvin_model::{Case, Machine, Metric, NoPrediction, Prediction};

use super::lives::{TRUE, place_of_true, time_lives};

pub(crate) static PROBE: Probe = Probe {
    id: PROCESS_SPAWN.id.as_str(),
    summary: "posix_spawn + wait of /bin/true",
    kind: ProbeKind::Measure,
    method: Method {
        how: "posix_spawn of the C library without attributes and file actions, of /bin/true (or /usr/bin/true) with \
              an empty environment; then waitpid. Timed one by one, on one CPU; every program must exit with status 0. \
              A note names the program.",
        prediction: "None: most of the time goes into loading the program and its libraries, which depends on the \
                     distribution.",
        not_for: "Programs that load more than the C library.",
        pitfalls: &[
            "The program matters more than the call: most distributions link true dynamically, and loading the C \
             library takes most of the time; busybox is a static program of another size.",
            "glibc since 2.24 and musl use clone with CLONE_VM and CLONE_VFORK, so that the parent's size does not \
             matter; older libraries fork.",
        ],
        sources: &["posix_spawn(3)", "lmbench lat_proc exec"],
    },
    metrics: &[&PROCESS_SPAWN],
    inputs: &[],
    cases: |_: &Machine, _: Effort| vec![Case::new()],
    run,
    predict,
};

fn run(bench: &mut Bench<'_>, _: &Case) -> Result<(), Stop> {
    let program = TRUE[place_of_true()?];
    bench.note(format!("the program is {}", program.path().to_string_lossy()));
    time_lives(bench, &PROCESS_SPAWN, || program.spawn())
}

fn predict(_: &Facts<'_>, _: &Metric, _: &Case) -> Result<Prediction, NoPrediction> {
    Err(NoPrediction::because("most of it is loading the program and its libraries, whose cost is not published"))
}
