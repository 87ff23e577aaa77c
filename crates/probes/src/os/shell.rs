//! The cost of a command through the shell: fork + /bin/sh -c /bin/true + wait.
//!
//! It is the cost of system(3). It must not be used to compare kernels on machines with different shells.

use kelvin_core::catalogue::os::{PROCESS_EXEC, PROCESS_FORK, PROCESS_SHELL};

use super::process_lifetime::{SHELL_TRUE_PROGRAMS, time_lifetimes_from_small_image, true_program_index};
use crate::prelude::*;

pub(crate) static PROBE: Probe = Probe {
    summary: "fork + execve + wait of /bin/true through the shell",
    method: include_str!("shell.md"),
    run,
    predict,
    ..Probe::measure(&[&PROCESS_SHELL])
};

fn run(bench: &mut Bench<'_>, _: &Case) -> ProbeResult {
    let program = SHELL_TRUE_PROGRAMS[true_program_index()?];
    skip_if(!program.is_executable(), "needs /bin/sh, and there is none")?;
    let shell = std::fs::canonicalize("/bin/sh")?;
    bench.note(format!("/bin/sh is {}", shell.display()));
    time_lifetimes_from_small_image(bench, &PROCESS_SHELL, || program.fork_and_execute())
}

fn predict(facts: &PredictionInputs<'_>, _: &Metric, case: &Case) -> Predicted {
    let (exec, fork) = (measured(facts, &PROCESS_EXEC, case)?, measured(facts, &PROCESS_FORK, case)?);
    Ok((2.0 * exec - fork).widen(2.0).derived("two programs"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::with_facts;

    #[test]
    fn shell_is_predicted_as_two_execs() {
        let values = [(PROCESS_EXEC.id.as_str(), Some(400_000.0)), (PROCESS_FORK.id.as_str(), Some(30_000.0))];
        with_facts(&values, |facts| {
            assert_eq!(predict(facts, &PROCESS_SHELL, &Case::new()).unwrap().value, 770_000.0);
        });
    }
}
