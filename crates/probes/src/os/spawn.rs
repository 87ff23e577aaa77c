//! The cost of posix_spawn + wait of a small program.
//!
//! It is the cost of starting a program with a modern C library. It must not be compared with fork from a large parent,
//! nor used for programs that load many libraries.

use kelvin_core::catalogue::os::{PROCESS_EXEC, PROCESS_FORK, PROCESS_SPAWN, PROCESS_VFORK};

use super::process_lifetime::{TRUE_PROGRAMS, time_lifetimes, true_program_index};
use crate::prelude::*;
use crate::program::note_c_library;

pub(crate) static PROBE: Probe = Probe {
    summary: "posix_spawn + wait of /bin/true",
    method: include_str!("spawn.md"),
    run,
    predict,
    ..Probe::measure(&[&PROCESS_SPAWN])
};

fn run(bench: &mut Bench<'_>, _: &Case) -> ProbeResult {
    let program = TRUE_PROGRAMS[true_program_index()?];
    bench.note(format!("the program is {}", program.path().to_string_lossy()));
    note_c_library(bench);
    time_lifetimes(bench, &PROCESS_SPAWN, || program.spawn())
}

fn predict(facts: &PredictionInputs<'_>, _: &Metric, case: &Case) -> Predicted {
    let exec = measured(facts, &PROCESS_EXEC, case)?;
    let (fork, vfork) = (measured(facts, &PROCESS_FORK, case)?, measured(facts, &PROCESS_VFORK, case)?);
    Ok(((exec - fork).at_least_zero() + vfork).widen(1.4).derived("exec with vfork"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::with_facts;

    #[test]
    fn spawn_is_exec_minus_fork() {
        let values = [(&PROCESS_EXEC, 400_000.0), (&PROCESS_FORK, 30_000.0), (&PROCESS_VFORK, 12_000.0)];
        with_facts(&values.map(|(metric, value)| (metric.id.as_str(), Some(value))), |facts| {
            let spawn = predict(facts, &PROCESS_SPAWN, &Case::new()).unwrap();
            assert_eq!((spawn.value, spawn.derivation.as_str()), (382_000.0, "400 µs - 30.0 µs + 12.0 µs = 382 µs"));
        });
    }
}
