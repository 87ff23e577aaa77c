//! That all ranks start one version of `kelvin`: figures of two versions may be measured by two methods.

use kelvin_cluster::kelvin_program::first_other_version;

use crate::coordinator::{Coordinator, Outcome, STEP_TIMEOUT, Subcommand, Task};
use crate::monitor::StepLimit;

/// Has all ranks find their program by this task, and ends the job where one has none, or another version than rank 0. `version` is that of
/// an outcome.
pub fn check_kelvin_versions<'w, S: Subcommand>(
    coordinator: &mut Coordinator<'w, S>,
    task: &Task<'w, S>,
    version: impl Fn(Outcome<'w, S>) -> Option<String>,
) {
    let tasks = (0..coordinator.ranks()).map(|rank| (rank, task.clone())).collect();
    let mut versions = Vec::new();
    for (rank, outcome) in coordinator.run_step(&tasks, StepLimit::Total(2 * STEP_TIMEOUT)) {
        match outcome.map(&version) {
            Ok(Some(version)) => versions.push(version),
            Ok(None) => coordinator.job().abort(Some(rank), "gave an answer to another task"),
            Err(reason) => coordinator.job().refuse(Some(rank), &reason),
        }
    }
    if let Some((rank, reason)) = first_other_version(versions.iter().map(String::as_str)) {
        coordinator.job().refuse(Some(rank), &reason);
    }
}
