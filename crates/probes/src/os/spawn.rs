//! The cost of posix_spawn + wait of a small program.
//!
//! It is the cost of starting a program with a modern C library. It must not be compared with fork from a large parent,
//! nor used for programs that load many libraries.

use kelvin_core::catalogue::os::{PROCESS_EXEC, PROCESS_FORK, PROCESS_SPAWN, PROCESS_VFORK};

use super::process_lifetime::{TRUE_PROGRAMS, time_lifetimes, true_program_index};
use crate::prelude::*;

pub(crate) static PROBE: Probe = Probe {
    id: PROCESS_SPAWN.id.as_str(),
    summary: "posix_spawn + wait of /bin/true",
    kind: ProbeKind::Measure,
    method: Method {
        how: "posix_spawn of the C library without attributes and file actions, of /bin/true (or /usr/bin/true) with \
              an empty environment; then waitpid. Timed one by one, on one CPU; every program must exit with status 0. \
              A note names the program.",
        prediction: "os.process.exec, which starts the same program, less its fork (os.process.fork), and os.process.vfork in \
                     its place: the child shares its parent's memory until it executes the program.",
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
    cases: |_, _| vec![Case::new()],
    run,
    predict,
};

fn run(bench: &mut Bench<'_>, _: &Case) -> ProbeResult {
    let program = TRUE_PROGRAMS[true_program_index()?];
    bench.note(format!("the program is {}", program.path().to_string_lossy()));
    time_lifetimes(bench, &PROCESS_SPAWN, || program.spawn())
}

fn predict(facts: &PredictionInputs<'_>, _: &Metric, case: &Case) -> Predicted {
    let exec = measured(facts, &PROCESS_EXEC, case)?;
    let (fork, vfork) = (measured(facts, &PROCESS_FORK, case)?, measured(facts, &PROCESS_VFORK, case)?);
    Ok(((exec - fork).at_least_zero() + vfork).within(1.4).derived("exec with vfork"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::with_facts;

    #[test]
    fn spawn_is_exec_minus_fork() {
        let known = [(&PROCESS_EXEC, 400_000.0), (&PROCESS_FORK, 30_000.0), (&PROCESS_VFORK, 12_000.0)];
        with_facts(&known.map(|(metric, value)| (metric.id.as_str(), Some(value))), |facts| {
            let spawn = predict(facts, &PROCESS_SPAWN, &Case::new()).unwrap();
            assert_eq!((spawn.value, spawn.derivation.as_str()), (382_000.0, "400 µs - 30.0 µs + 12.0 µs = 382 µs"));
        });
    }
}
