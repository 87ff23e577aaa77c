//! Hazards of the file system under the scratch directory: full, remote, in memory, layered.

use std::path::Path;

use kelvin_core::{Hazard, Mount, Severity};

use super::{HazardBuilder, HazardContext, hazard, percent};
use crate::disks::MOUNTS;

/// File systems served by another machine or by the host.
const NETWORK_FILE_SYSTEMS: [&str; 15] = [
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "9p",
    "virtiofs",
    "ceph",
    "glusterfs",
    "fuse.glusterfs",
    "fuse.sshfs",
    "afs",
    "lustre",
    "beegfs",
    "fuse.ceph",
];

/// The mount of a path: the one with the longest target above it.
fn mount_of<'m>(mounts: &'m [Mount], path: &Path) -> Option<&'m Mount> {
    let above = mounts.iter().filter(|mount| path.starts_with(&mount.target));
    above.max_by_key(|mount| mount.target.len())
}

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
    let effect = "new files are fragmented, and a nearly full disk writes more slowly";
    Some(
        hazard("file_system_full", severity, summary, effect)
            .affecting(&["file."])
            .remedy_advice("free some space, or choose another scratch directory")
            .with_source(format!("statvfs of {}", existing.display())),
    )
}

pub(super) fn unsuitable_file_system(look: &HazardContext<'_>) -> Option<Hazard> {
    let mount = mount_of(&look.machine.mounts, look.scratch)?;
    let (kind, place) = (mount.kind.as_str(), look.scratch.display());
    let found = match kind {
        kind if NETWORK_FILE_SYSTEMS.contains(&kind) => hazard(
            "network_file_system",
            Severity::Serious,
            format!("{place} is on {kind}, served by another machine or by the host"),
            "file probes measure the path to the server and its cache, not a local disk",
        ),
        "tmpfs" | "ramfs" => hazard(
            "scratch_in_memory",
            Severity::Serious,
            format!("{place} is on {kind}, in memory"),
            "no disk is measured; O_DIRECT works there but still reads memory",
        ),
        "overlay" | "aufs" => hazard(
            "scratch_layered",
            Severity::Warning,
            format!("{place} is on {kind}, layered over another file system"),
            "open and the first write cost more, and the cache state is not known exactly",
        ),
        _ => return None,
    };
    Some(
        found
            .affecting(&["file."])
            .remedy_advice("choose a scratch directory on a local disk")
            .with_source(format!("{MOUNTS}, {}", mount.target)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

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
