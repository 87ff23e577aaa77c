//! What starting a small program by posix_spawn costs, until it has ended and is reaped.
//!
//! It is what a program that starts others pays on a modern C library. It must not be compared with a start by fork
//! from a large parent, nor taken for the start of a program that loads many libraries.

use kelvin_catalogue::os::PROCESS_SPAWN;
use kelvin_harness::{Bench, Effort, Facts, Method, Probe, ProbeKind, Stop};
use kelvin_model::{Case, Machine, Metric, NoPrediction, Prediction};

use super::lives::{TRUE, place_of_true, time_lives};

pub(crate) static PROBE: Probe = Probe {
    id: PROCESS_SPAWN.id.as_str(),
    summary: "Whole life of /bin/true started by posix_spawn",
    kind: ProbeKind::Measure,
    method: Method {
        how: "posix_spawn of the C library without attributes and file actions, of /bin/true (or /usr/bin/true) with an \
              empty environment; then waitpid. Timed one by one, on one CPU; every program must end with status 0. A \
              note says which program it is.",
        prediction: "None: most of the time is the loading of the program and its libraries, which depends on the \
                     distribution.",
        not_for: "Programs that load more than the C library.",
        pitfalls: &[
            "The program matters more than the call: true of most distributions is linked dynamically, and loading the C \
             library is most of its life; busybox's is a static program of another size.",
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
    Err(NoPrediction::because(
        "most of it is the loading of the program and its libraries, for which no source has a cost",
    ))
}
