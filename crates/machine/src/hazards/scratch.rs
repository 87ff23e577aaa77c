//! Hazards of the file system under the scratch directory: full, remote, in memory, layered.

use kelvin_core::{Hazard, Severity};

use super::{HazardContext, hazard, percent};
use crate::disks::{MOUNTS, file_system_class};

pub(super) fn low_space(look: &HazardContext<'_>) -> Option<Hazard> {
    let scratch = Some(look.scratch).filter(|_| look.root.is_live())?;
    let existing = scratch.ancestors().find(|path| path.exists())?;
    let share = kelvin_sys::fs::free_share(existing).ok()?;
    let severity = match share {
        share if share < 0.03 => Severity::Serious,
        share if share < 0.10 => Severity::Warning,
        _ => return None,
    };
    let summary = format!("only {} of the file system of {} is free", percent(share), scratch.display());
    Some(hazard("file_system_full", severity, summary, format!("statvfs of {}", existing.display())))
}

pub(super) fn unsuitable_file_system(look: &HazardContext<'_>) -> Option<Hazard> {
    // The mount of a path is the one with the longest target above it.
    let above = look.machine.mounts.iter().filter(|mount| look.scratch.starts_with(&mount.target));
    let mount = above.max_by_key(|mount| mount.target.len())?;
    let (id, severity, what) = match file_system_class(&mount.kind)? {
        "network" => ("network_file_system", Severity::Serious, "served by another machine or by the host"),
        "memory" => ("scratch_in_memory", Severity::Serious, "in memory"),
        "layered" => ("scratch_layered", Severity::Warning, "layered over another file system"),
        _ => return None,
    };
    let summary = format!("{} is on {}, {what}", look.scratch.display(), mount.kind);
    Some(hazard(id, severity, summary, format!("{MOUNTS}, {}", mount.target)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kelvin_core::Mount;
    use std::path::Path;

    fn mount(target: &str, kind: &str) -> Mount {
        Mount { target: target.into(), source: "x".into(), kind: kind.into(), options: "rw".into() }
    }

    #[test]
    fn longest_mount_target_wins() {
        let root = Path::new("/nonexistent");
        let mounts = vec![mount("/", "ext4"), mount("/home", "nfs4"), mount("/ho", "tmpfs")];
        let machine = kelvin_core::Machine { mounts, ..crate::read(root) };
        let id = |path: &str| {
            unsuitable_file_system(&HazardContext::new(root, &machine, Path::new(path))).map(|found| found.id)
        };
        assert_eq!(id("/home/x"), Some("network_file_system".into()));
        assert_eq!(id("/ho/x"), Some("scratch_in_memory".into()));
        assert_eq!(id("/homes/x"), None);
    }
}
