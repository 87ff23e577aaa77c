//! The CPU quota of a control group: once its processes have used up their share of a period, they stand still until the next.

use std::path::Path;

use kelvin_core::catalogue::cpu::CLOCK_PAIR;
use kelvin_core::{Case, MetricCase, SkipReason};

use super::cause::{AffectedMetrics, Cause, CauseContext, Mechanism, RoundConditions};
use super::interventions::nearest_unlimited;
use crate::reasons::OrReason;

pub(crate) static CAUSE: Cause = Cause {
    affected: AffectedMetrics::AllWhere(|context| context.cpu_quota().is_some()),
    mechanisms: &[Mechanism::without("no_quota", "in a control group without a quota", apply)],
    negative_control: |_| MetricCase { metric: CLOCK_PAIR.id, case: Case::new() },
    ..Cause::new("group_quota", "the CPU quota of its control group", include_str!("cgroup_quota.md"))
};

fn apply(context: &CauseContext<'_>, conditions: &mut RoundConditions) -> Result<(), SkipReason> {
    let file = context.setup.throttle_file.as_deref().map(Path::new);
    let group = file.and_then(Path::parent).or_refuse("needs to see its control group")?;
    let ancestor = nearest_unlimited(group, has_quota).or_refuse("needs a control group above that has no quota")?;
    conditions.setup.cgroups = vec![ancestor.into()];
    Ok(())
}

/// Whether a group itself has a quota, by the file of either version.
fn has_quota(group: &Path) -> bool {
    let text = |name: &str| std::fs::read_to_string(group.join(name)).unwrap_or_default();
    let (v1, v2) = (text("cpu.cfs_quota_us"), text("cpu.max"));
    v1.trim().parse::<i64>().is_ok_and(|quota| quota > 0)
        || v2.split(' ').next().is_some_and(|quota| quota.parse::<u64>().is_ok())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn unlimited_group_found_in_either_version() {
        let root = std::env::temp_dir().join(format!("kelvin-groups-{}", std::process::id()));
        let inner = root.join("mount/open/limited/inner");
        fs::create_dir_all(&inner).unwrap();
        let group_path = |path: &str| root.join("mount").join(path);
        for group in ["", "open", "open/limited", "open/limited/inner"] {
            fs::write(group_path(group).join("cgroup.procs"), "").unwrap();
        }
        assert_eq!(nearest_unlimited(&inner, has_quota), None);
        fs::write(group_path("open/limited/cpu.max"), "20000 100000\n").unwrap();
        fs::write(group_path("open/cpu.max"), "max 100000\n").unwrap();
        assert_eq!(nearest_unlimited(&inner, has_quota), Some(group_path("open")));
        fs::write(group_path("open/cpu.cfs_quota_us"), "-1\n").unwrap();
        fs::write(inner.join("cpu.cfs_quota_us"), "5000\n").unwrap();
        assert_eq!(nearest_unlimited(&inner, has_quota), Some(group_path("open")));
        fs::write(group_path("cpu.cfs_quota_us"), "5000\n").unwrap();
        // Above the mount there is no group.
        assert_eq!(nearest_unlimited(&inner, has_quota), None);
        fs::remove_dir_all(root).unwrap();
    }
}
