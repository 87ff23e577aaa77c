//! What starting a small program by fork and execve costs, until it has ended and is reaped.
//!
//! It is the inner loop of a shell. It must not be used for a parent of any size (the fork in it grows with the
//! parent), nor for programs that load many libraries.

use kelvin_catalogue::os::PROCESS_EXEC;
use kelvin_harness::{Bench, Effort, Facts, Method, Probe, ProbeKind, Stop};
use kelvin_model::{Case, Machine, Metric, NoPrediction, Prediction};

use super::lives::{TRUE, place_of_true, small_image_text, time_lives_from_small_image};

pub(crate) static PROBE: Probe = Probe {
    id: PROCESS_EXEC.id.as_str(),
    summary: "Whole life of /bin/true started by fork and execve",
    kind: ProbeKind::Measure,
    method: Method {
        how: concat!(
            "fork() of the C library; the child calls execve of /bin/true (or /usr/bin/true) with an empty environment, \
             from vectors that were ready before; the parent waits. Timed one by one, on one CPU; every program must end \
             with status 0, and one that could not be executed would end with 127. ",
            small_image_text!()
        ),
        prediction: "None: most of the time is the loading of the program and its libraries, which depends on the \
                     distribution.",
        not_for: "A large parent: add what os.process.fork_rss shows. Programs that load more than the C library.",
        pitfalls: &[
            "The program matters more than the calls: true of most distributions is linked dynamically. lmbench starts a \
             program of its own; compare only like with like.",
            "An execve that fails is fast: the child's status tells.",
        ],
        sources: &["execve(2)", "lmbench lat_proc exec"],
    },
    metrics: &[&PROCESS_EXEC],
    inputs: &[],
    cases: |_: &Machine, _: Effort| vec![Case::new()],
    run,
    predict,
};

fn run(bench: &mut Bench<'_>, _: &Case) -> Result<(), Stop> {
    let program = TRUE[place_of_true()?];
    bench.note(format!("the program is {}", program.path().to_string_lossy()));
    time_lives_from_small_image(bench, &PROCESS_EXEC, || program.fork_and_execute())
}

fn predict(_: &Facts<'_>, _: &Metric, _: &Case) -> Result<Prediction, NoPrediction> {
    Err(NoPrediction::because(
        "most of it is the loading of the program and its libraries, for which no source has a cost",
    ))
}
