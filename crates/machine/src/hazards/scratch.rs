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

pub(super) fn hazards(look: &HazardContext<'_>, scratch: &Path) -> Vec<Hazard> {
    let mut found = Vec::new();
    if look.root.is_live() {
        found.extend(low_space(scratch));
    }
    if let Some(mount) = mount_of(&look.machine.mounts, scratch) {
        found.extend(unsuitable_file_system(mount, scratch));
    }
    found
}

/// The mount of a path: the one with the longest target above it.
fn mount_of<'m>(mounts: &'m [Mount], path: &Path) -> Option<&'m Mount> {
    let above = mounts.iter().filter(|mount| path.starts_with(&mount.target));
    above.max_by_key(|mount| mount.target.len())
}

fn low_space(scratch: &Path) -> Option<Hazard> {
    // The directory may not exist yet; use its nearest existing ancestor.
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

fn unsuitable_file_system(mount: &Mount, scratch: &Path) -> Option<Hazard> {
    let (kind, place) = (mount.kind.as_str(), scratch.display());
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
        let mounts = [mount("/", "ext4"), mount("/home", "nfs4"), mount("/ho", "tmpfs")];
        let id = |path: &str| {
            unsuitable_file_system(mount_of(&mounts, Path::new(path)).unwrap(), Path::new(path)).map(|found| found.id)
        };
        assert_eq!(id("/home/x"), Some("network_file_system".into()));
        assert_eq!(id("/ho/x"), Some("scratch_in_memory".into()));
        assert_eq!(id("/homes/x"), None);
    }
}
