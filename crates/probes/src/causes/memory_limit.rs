//! The memory limit of a control group: a group that has used it up loses pages for each new one.

use std::fs;
use std::path::{Path, PathBuf};

use kelvin_core::catalogue::cpu::CLOCK_PAIR;
use kelvin_core::{Case, MetricCase, SkipReason};
use kelvin_file::cgroup::{Controller, own_cgroup};

use super::cause::{AffectedMetrics, Cause, CauseContext, Mechanism, RoundConditions};
use super::interventions::nearest_unlimited;
use crate::reasons::{OrReason, refuse_if};

pub(crate) static CAUSE: Cause = Cause {
    affected: AffectedMetrics::AllWhere(|context| {
        context.machine.limits.memory_bytes.get().copied().flatten().is_some()
    }),
    mechanisms: &[Mechanism::without("no_memory_limit", "in a control group without a memory limit", apply)],
    negative_control: |_| MetricCase { metric: CLOCK_PAIR.id, case: Case::new() },
    ..Cause::new("memory_limit", "the memory limit of its control group", include_str!("memory_limit.md"))
};

/// Rounds under the control after which as many were made as found: what they meet is counted by then.
const MIN_CONTROLLED_ROUNDS: u32 = 2;

fn apply(_: &CauseContext<'_>, conditions: &mut RoundConditions) -> Result<(), SkipReason> {
    let group = own_cgroup(Controller::Memory).map_err(|error| SkipReason::new(error.to_string()))?;
    let ancestor =
        nearest_unlimited(&group, is_limited).or_refuse("needs a control group above that has no memory limit")?;
    let attempts = conditions.keep_for_experiment(CAUSE.id, || Ok(std::cell::Cell::new(0)))?;
    attempts.set(attempts.get() + 1);
    let reason = "its counter shows that the limit was never met";
    refuse_if(attempts.get() > MIN_CONTROLLED_ROUNDS && limit_hits(&group) == Some(0), reason)?;
    conditions.setup.cgroups = vec![ancestor.into()];
    Ok(())
}

/// Whether a group itself has a limit, by the file of either version. Version 1 writes none as a number near 2^63.
fn is_limited(group: &Path) -> bool {
    const NONE: u64 = 1 << 60;
    ["memory.limit_in_bytes", "memory.max", "memory.high"]
        .iter()
        .filter_map(|file| read_text(&group.join(file))?.trim().parse::<u64>().ok())
        .any(|bytes| bytes < NONE)
}

/// How often the limits of a group and of those around it were met, by their counters of either version; `None` where there is none.
fn limit_hits(group: &Path) -> Option<u64> {
    let groups = group.ancestors().filter(|group| is_limited(group));
    let hits_of_group = |group: &Path| {
        let events = read_text(&group.join("memory.events"));
        let count = |text: &str, name: &str| {
            text.lines().find_map(|line| line.strip_prefix(name)?.parse::<u64>().ok()).unwrap_or(0)
        };
        let v2 = events.map(|text| count(&text, "max ") + count(&text, "high "));
        v2.or_else(|| read_text(&group.join("memory.failcnt"))?.trim().parse().ok())
    };
    groups.map(hits_of_group).try_fold(0, |sum, hits| Some(sum + hits?))
}

fn read_text(file: &PathBuf) -> Option<String> {
    fs::read_to_string(file).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_limits_and_counters_parse_in_both_versions() {
        let root = tempfile::tempdir().unwrap();
        let group = root.path().join("inner");
        fs::create_dir(&group).unwrap();
        let write = |file: &str, text: &str| fs::write(group.join(file), text).unwrap();
        assert!(!is_limited(&group));
        write("memory.limit_in_bytes", "9223372036854771712\n");
        write("memory.max", "max\n");
        assert!(!is_limited(&group));
        write("memory.limit_in_bytes", "1073741824\n");
        assert!(is_limited(&group));
        assert_eq!(limit_hits(&group), None);
        write("memory.failcnt", "7\n");
        assert_eq!(limit_hits(&group), Some(7));
        write("memory.events", "low 9\nhigh 1\nmax 3\noom 4\n");
        assert_eq!(limit_hits(&group), Some(4));
    }
}
