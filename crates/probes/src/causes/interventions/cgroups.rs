//! Control groups without a limit.

use std::path::{Path, PathBuf};

/// The file by which processes enter a group, which every group has.
const CGROUP_PROCS: &str = "cgroup.procs";

/// The nearest group above all limits that bind this one.
pub(crate) fn nearest_unlimited(group: &Path, is_limited: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    let groups = group.ancestors().take_while(|one| one.join(CGROUP_PROCS).exists());
    let highest = groups.filter(|one| is_limited(one)).last()?;
    highest.parent().filter(|above| above.join(CGROUP_PROCS).exists()).map(Path::to_path_buf)
}
