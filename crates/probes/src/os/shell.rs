//! The cost of a command through the shell: fork + /bin/sh -c /bin/true + wait.
//!
//! It is the cost of system(3). It must not be used to compare kernels on machines with different shells.

use kelvin_catalogue::os::PROCESS_SHELL;
use kelvin_harness::{Bench, Effort, Facts, Method, Probe, ProbeKind, Stop};
use kelvin_model::{Case, Machine, Metric, NoPrediction, Prediction};

use super::lives::{SHELL_TRUE, place_of_true, small_image_text, time_lives_from_small_image};

pub(crate) static PROBE: Probe = Probe {
    id: PROCESS_SHELL.id.as_str(),
    summary: "fork + execve + wait of /bin/true through the shell",
    kind: ProbeKind::Measure,
    method: Method {
        how: concat!(
            "fork() of the C library; the child calls execve of /bin/sh with -c and the path of true, and an empty \
             environment; the parent waits. Timed one by one, on one CPU; every shell must exit with status 0. A note \
             names the shell's file. ",
            small_image_text!()
        ),
        prediction: "None: it starts two programs, one of them the distribution's shell.",
        not_for: "Comparing kernels across distributions: dash and bash differ severalfold.",
        pitfalls: &[
            "Shells differ: /bin/sh is dash on Debian, bash on Fedora, busybox on Alpine.",
            "Some shells execute the last command of -c in their own process and save a fork.",
        ],
        sources: &["system(3)", "lmbench lat_proc shell"],
    },
    metrics: &[&PROCESS_SHELL],
    inputs: &[],
    cases: |_: &Machine, _: Effort| vec![Case::new()],
    run,
    predict,
};

fn run(bench: &mut Bench<'_>, _: &Case) -> Result<(), Stop> {
    let program = SHELL_TRUE[place_of_true()?];
    if !program.is_executable() {
        return Err(Stop::skip("needs /bin/sh, and there is none"));
    }
    let shell = std::fs::canonicalize("/bin/sh")?;
    bench.note(format!("/bin/sh is {}", shell.display()));
    time_lives_from_small_image(bench, &PROCESS_SHELL, || program.fork_and_execute())
}

fn predict(_: &Facts<'_>, _: &Metric, _: &Case) -> Result<Prediction, NoPrediction> {
    Err(NoPrediction::because(
        "it starts two programs, one of them the distribution's shell, whose cost is not published",
    ))
}
