//! Control groups without a limit.

use std::path::{Path, PathBuf};

/// The file by which processes enter a group, which every group has.
const PROCESSES: &str = "cgroup.procs";

/// The nearest group above all limits that bind this one.
pub(crate) fn above_limits(group: &Path, is_limited: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    let groups = group.ancestors().take_while(|one| one.join(PROCESSES).exists());
    let highest = groups.filter(|one| is_limited(one)).last()?;
    highest.parent().filter(|above| above.join(PROCESSES).exists()).map(Path::to_path_buf)
}
