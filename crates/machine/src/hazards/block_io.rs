//! The hazard of a block I/O limit on this process's control group: the limit is measured instead of the disk.

use kelvin_core::catalogue::mem::FAULT_MAJOR;
use kelvin_core::{Hazard, Severity};

use super::{HazardBuilder, HazardContext, hazard};
use crate::cgroups::ProcessCgroups;
use crate::root::FileRoot;

/// Files of version 1, what they limit, and whether in bytes or requests per second.
const FILES_V1: [(&str, &str, bool); 4] = [
    ("blkio.throttle.read_bps_device", "reads", true),
    ("blkio.throttle.write_bps_device", "writes", true),
    ("blkio.throttle.read_iops_device", "reads", false),
    ("blkio.throttle.write_iops_device", "writes", false),
];
/// The same as keys in the one file of version 2.
const FILE_V2: &str = "io.max";
const KEYS_V2: [(&str, &str, bool); 4] =
    [("rbps", "reads", true), ("wbps", "writes", true), ("riops", "reads", false), ("wiops", "writes", false)];

/// One limit on one device.
struct BlockIoLimit {
    /// `major:minor`.
    device: String,
    /// `reads`, `writes`.
    operation: &'static str,
    is_bytes: bool,
    per_second: u64,
    /// Where it is set, and what removes it.
    file: String,
    unlimited: String,
}

pub(super) fn limits(look: &HazardContext<'_>) -> Option<Hazard> {
    let limits = find_limits(look.root);
    let first = limits.first()?;
    let said: Vec<String> = limits.iter().map(|limit| limit.description(look.root)).collect();
    let commands: Vec<String> =
        limits.iter().map(|limit| format!("echo '{}' | sudo tee {}", limit.unlimited, limit.file)).collect();
    let effect = "file probes measure this limit, not the disk; buffered writes escape it until they are synced";
    let summary = format!("the control group limits block I/O: {}", said.join(", "));
    Some(
        hazard("block_io_limit", Severity::Serious, summary, effect)
            .affecting(&["file.", FAULT_MAJOR.id.as_str()])
            .remedy_command(commands.join("; "))
            .with_source(first.file.as_str()),
    )
}

/// All limits in force on this process.
fn find_limits(root: FileRoot<'_>) -> Vec<BlockIoLimit> {
    let Ok(groups) = ProcessCgroups::read(root) else { return Vec::new() };
    let Ok(Some(place)) = groups.controller_path("blkio") else { return Vec::new() };
    let mut found = Vec::new();
    if place.version == 1 {
        for (file, operation, is_bytes) in FILES_V1 {
            // Without a hierarchy of limits in version 1 only those of the group itself are in force
            // (Documentation/admin-guide/cgroup-v1/blkio-controller.rst).
            let Some((file, text)) = groups.read_with_ancestors(&place, file).into_iter().next() else { continue };
            for (device, value) in text.lines().filter_map(|line| line.split_once(' ')) {
                let Ok(per_second) = value.trim().parse() else { continue };
                let (device, unlimited) = (device.to_owned(), format!("{device} 0"));
                found.push(BlockIoLimit { device, operation, is_bytes, per_second, file: file.clone(), unlimited });
            }
        }
        return found;
    }
    for (file, text) in groups.read_with_ancestors(&place, FILE_V2) {
        for (device, settings) in text.lines().filter_map(|line| line.split_once(' ')) {
            for (key, value) in settings.split_ascii_whitespace().filter_map(|setting| setting.split_once('=')) {
                let known = KEYS_V2.iter().find(|(name, ..)| *name == key);
                let (Some(&(_, operation, is_bytes)), Ok(per_second)) = (known, value.parse()) else { continue };
                let (device, unlimited) = (device.to_owned(), format!("{device} {key}=max"));
                found.push(BlockIoLimit { device, operation, is_bytes, per_second, file: file.clone(), unlimited });
            }
        }
    }
    found
}

impl BlockIoLimit {
    /// `vda reads 20.0 MB/s`, `254:16 writes 120 per second`
    fn description(&self, root: FileRoot<'_>) -> String {
        let name = root
            .names(BLOCK)
            .into_iter()
            .find(|name| root.text(&format!("{BLOCK}/{name}/dev")).is_some_and(|numbers| numbers == self.device));
        let name = name.as_deref().unwrap_or(&self.device);
        let Self { operation: what, per_second, .. } = self;
        match self.is_bytes {
            true => format!("{name} {what} {:.1} MB/s", *per_second as f64 / 1e6),
            false => format!("{name} {what} {per_second} per second"),
        }
    }
}

const BLOCK: &str = "/sys/block";
