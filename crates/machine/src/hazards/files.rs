//! Hazards of files: the file system under the scratch directory is full, remote, in memory or layered; or a block I/O limit on the control
//! group of this process is measured instead of the disk.

use kelvin_core::{Hazard, Severity};

use super::{HazardContext, hazard, percent, severity_below, with_command};
use crate::disks::{BLOCK_DIRECTORY, MOUNTS, file_system_class};
use crate::limits::ProcessCgroups;
use crate::root::FileRoot;

pub(super) fn low_space(context: &HazardContext<'_>) -> Option<Hazard> {
    let scratch = Some(context.scratch).filter(|_| context.root.is_live())?;
    let existing = scratch.ancestors().find(|path| path.exists())?;
    let share = kelvin_sys::fs::free_share(existing).ok()?;
    let severity = severity_below(share, &[(0.03, Severity::Serious), (0.10, Severity::Warning)])?;
    let summary = format!("only {} of the file system of {} is free", percent(share), scratch.display());
    Some(hazard("file_system_full", severity, summary, format!("statvfs of {}", existing.display())))
}

pub(super) fn unsuitable_file_system(context: &HazardContext<'_>) -> Option<Hazard> {
    // The mount of a path is the one with the longest target above it.
    let enclosing_mounts = context.machine.mounts.iter().filter(|mount| context.scratch.starts_with(&mount.target));
    let mount = enclosing_mounts.max_by_key(|mount| mount.target.len())?;
    let (id, severity, description) = match file_system_class(&mount.kind)? {
        "network" => ("network_file_system", Severity::Serious, "served by another machine or by the host"),
        "memory" => ("scratch_in_memory", Severity::Serious, "in memory"),
        "layered" => ("scratch_layered", Severity::Warning, "layered over another file system"),
        _ => return None,
    };
    let summary = format!("{} is on {}, {description}", context.scratch.display(), mount.kind);
    Some(hazard(id, severity, summary, format!("{MOUNTS}, {}", mount.target)))
}

/// Limits: their file of version 1, their key in the one file of version 2, what they limit, and whether in bytes per second or requests.
const LIMITS: [(&str, &str, &str, bool); 4] = [
    ("blkio.throttle.read_bps_device", "rbps", "reads", true),
    ("blkio.throttle.write_bps_device", "wbps", "writes", true),
    ("blkio.throttle.read_iops_device", "riops", "reads", false),
    ("blkio.throttle.write_iops_device", "wiops", "writes", false),
];

/// One limit on one device.
struct BlockIoLimit {
    /// `vda reads 20.0 MB/s`, `254:16 writes 120 per second`
    description: String,
    /// Where it is set, and what removes it.
    file: String,
    unlimited: String,
}

pub(super) fn block_io_limits(context: &HazardContext<'_>) -> Option<Hazard> {
    let limits = find_limits(context.root);
    let first = limits.first()?;
    let descriptions: Vec<&str> = limits.iter().map(|limit| limit.description.as_str()).collect();
    let commands: Vec<String> =
        limits.iter().map(|limit| format!("echo '{}' | sudo tee {}", limit.unlimited, limit.file)).collect();
    let summary = format!("the control group limits block I/O: {}", descriptions.join(", "));
    let limited = hazard("block_io_limit", Severity::Serious, summary, first.file.as_str());
    Some(with_command(limited, commands.join("; ")))
}

/// All limits in force on this process.
fn find_limits(root: FileRoot<'_>) -> Vec<BlockIoLimit> {
    let Ok(groups) = ProcessCgroups::read(root) else { return Vec::new() };
    let Ok(Some(group_path)) = groups.controller_path("blkio") else { return Vec::new() };
    let lines = |text: &str| -> Vec<(String, String)> {
        let pairs = text.lines().filter_map(|line| line.split_once(' '));
        pairs.map(|(device, rest)| (device.to_owned(), rest.trim().to_owned())).collect()
    };
    let mut settings = Vec::new();
    if group_path.version == 1 {
        for limit in &LIMITS {
            // Without a hierarchy of limits in version 1 only those of the group itself are in force
            // (Documentation/admin-guide/cgroup-v1/blkio-controller.rst).
            let Some((file, text)) = groups.read_with_ancestors(&group_path, limit.0).into_iter().next() else {
                continue;
            };
            for (device, value) in lines(&text) {
                settings.push((limit, value, file.clone(), format!("{device} 0"), device));
            }
        }
    } else {
        for (file, text) in groups.read_with_ancestors(&group_path, "io.max") {
            for (device, device_settings) in lines(&text) {
                for (key, value) in
                    device_settings.split_ascii_whitespace().filter_map(|setting| setting.split_once('='))
                {
                    let Some(limit) = LIMITS.iter().find(|(_, setting_key, ..)| *setting_key == key) else { continue };
                    let unlimited = format!("{device} {key}=max");
                    settings.push((limit, value.to_owned(), file.clone(), unlimited, device.clone()));
                }
            }
        }
    }
    let disks = root.names(BLOCK_DIRECTORY);
    let limits = settings.into_iter().filter_map(|(&(_, _, operation, is_bytes), value, file, unlimited, device)| {
        let per_second: u64 = value.parse().ok()?;
        let is_device = |name: &&String| root.text(&format!("{BLOCK_DIRECTORY}/{name}/dev")).as_ref() == Some(&device);
        let name = disks.iter().find(is_device).unwrap_or(&device);
        let description = match is_bytes {
            true => format!("{name} {operation} {:.1} MB/s", per_second as f64 / 1e6),
            false => format!("{name} {operation} {per_second} per second"),
        };
        Some(BlockIoLimit { description, file, unlimited })
    });
    limits.collect()
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
            unsuitable_file_system(&HazardContext::new(root, &machine, Path::new(path))).map(|hazard| hazard.id)
        };
        assert_eq!(id("/home/x"), Some("network_file_system".into()));
        assert_eq!(id("/ho/x"), Some("scratch_in_memory".into()));
        assert_eq!(id("/homes/x"), None);
    }
}
