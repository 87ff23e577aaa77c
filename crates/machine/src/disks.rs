//! Block devices from sysfs, and mounted file systems that hold data.

use std::collections::HashSet;

use kelvin_core::{BlockDevice, Fact, Mount};
use kelvin_sys::procfs::MountInfo;

use crate::root::{FileRoot, bracketed_word, known_name};

/// Where the kernel shows disks, and not their partitions.
pub const BLOCK_DIRECTORY: &str = "/sys/block";
pub(crate) const MOUNTS: &str = "/proc/self/mountinfo";

/// Block devices that have a size; loop devices only if in use.
pub(crate) fn disks(root: FileRoot<'_>) -> Vec<BlockDevice> {
    let names = root.names(BLOCK_DIRECTORY).into_iter().filter(|name| !name.starts_with("ram"));
    names.map(|name| disk(root, name)).filter(|disk| disk.bytes.get() != Some(&0)).collect()
}

fn disk(root: FileRoot<'_>, name: String) -> BlockDevice {
    let directory = format!("{BLOCK_DIRECTORY}/{name}");
    let queue = |file: &str| format!("{directory}/queue/{file}");
    let number = |file: &str| root.fact(&queue(file), |text| text.parse().ok());
    BlockDevice {
        model: root.fact(&format!("{directory}/device/model"), |text| (!text.is_empty()).then(|| text.to_owned())),
        // The unit of this file is 512 bytes for any sector (Documentation/ABI/stable/sysfs-block).
        bytes: root.fact(&format!("{directory}/size"), |text| text.parse::<u64>().ok()?.checked_mul(512)),
        link: link(root, &name),
        scheduler: root.fact(&queue("scheduler"), |text| Some(bracketed_word(text).unwrap_or(text).to_owned())),
        queues: queues(root, &directory),
        queue_depth: number("nr_requests"),
        write_cache: root.fact(&queue("write_cache"), |text| (!text.is_empty()).then(|| text.to_owned())),
        rotational: root.fact(&queue("rotational"), |text| match text {
            "0" => Some(false),
            "1" => Some(true),
            _ => None,
        }),
        logical_block_bytes: number("logical_block_size"),
        name,
    }
}

fn queues(root: FileRoot<'_>, directory: &str) -> Fact<u32> {
    let queues = root.names(&format!("{directory}/mq")).len();
    match u32::try_from(queues) {
        Ok(queues) if queues > 0 => Fact::known(queues, format!("{directory}/mq")),
        _ => Fact::unknown(format!("there is no {directory}/mq: the device has no hardware queues")),
    }
}

/// A device's bus, from its place in the device tree, and the bus speed where stated.
fn link(root: FileRoot<'_>, name: &str) -> Fact<String> {
    let directory = format!("{BLOCK_DIRECTORY}/{name}");
    let path = root.link(&directory).unwrap_or_default();
    let component = |prefix: &str| {
        path.split('/')
            .find(|part| part.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())))
    };
    if name.starts_with("nvme") {
        return nvme_link(root, name);
    }
    if let Some(port) = component("ata") {
        let speed = format!("/sys/class/ata_link/link{}/sata_spd", &port[3..]);
        return match root.text(&speed).filter(|text| text.ends_with("bps")) {
            Some(rate) => Fact::known(format!("SATA, {rate}"), speed),
            None => Fact::known("SATA".into(), directory),
        };
    }
    let is_virtual =
        path.contains("/virtual/") || ["loop", "dm-", "md", "zram", "nbd"].iter().any(|kind| name.starts_with(kind));
    let links = [
        (component("virtio").is_some() || name.starts_with("vd"), "virtio"),
        (component("usb").is_some(), "USB"),
        (name.starts_with("mmcblk"), "MMC"),
        (is_virtual, "none, made by the kernel"),
    ];
    match links.into_iter().find(|(is_link, _)| *is_link) {
        Some((_, link)) => Fact::known(link.into(), directory),
        None => Fact::unknown(format!("the bus of {directory} cannot be derived from its place in the device tree")),
    }
}

/// The PCIe link of an NVMe controller: `nvme, 16.0 GT/s PCIe x4`.
fn nvme_link(root: FileRoot<'_>, name: &str) -> Fact<String> {
    // nvme0n1 or, with multipath, nvme0c0n1 belong to controller nvme0.
    let digits: String = name["nvme".len()..].chars().take_while(char::is_ascii_digit).collect();
    let controller = format!("/sys/class/nvme/nvme{digits}/device");
    let device = format!("{BLOCK_DIRECTORY}/{name}/device/device");
    for directory in [device, controller] {
        let speed = root.text(&format!("{directory}/current_link_speed"));
        let width = root.text(&format!("{directory}/current_link_width"));
        if let (Some(speed), Some(width)) = (speed, width) {
            return Fact::known(format!("NVMe, {speed} x{width}"), format!("{directory}/current_link_*"));
        }
    }
    match root.text(&format!("/sys/class/nvme/nvme{digits}/transport")).filter(|transport| transport != "pcie") {
        Some(transport) => Fact::known(format!("NVMe over {transport}"), format!("/sys/class/nvme/nvme{digits}")),
        None => Fact::known("NVMe, link speed not stated".into(), format!("{BLOCK_DIRECTORY}/{name}")),
    }
}

/// All mounts, in the order in which they were made.
pub(crate) fn mount_lines(root: FileRoot<'_>) -> Vec<MountInfo> {
    root.text(MOUNTS).unwrap_or_default().lines().filter_map(MountInfo::parse).collect()
}

/// Mounted file systems that hold data; of several on one target the last, which covers the others.
pub(crate) fn mounts(root: FileRoot<'_>) -> Vec<Mount> {
    let mut mounts: Vec<Mount> = Vec::new();
    let mut targets = HashSet::new();
    // From the last one on, since a host of containers has thousands.
    for line in mount_lines(root).into_iter().rev().filter(|line| targets.insert(line.target.clone())) {
        let is_kernel_mount = ["/proc/", "/sys/"].iter().any(|prefix| line.target.starts_with(prefix));
        if !is_kernel_mount && file_system_class(&line.kind) != Some("pseudo") {
            let options = match line.super_options.as_str() {
                "" => line.options,
                super_options => format!("{},{super_options}", line.options),
            };
            mounts.push(Mount {
                target: line.target,
                source: line.source,
                kind: line.kind,
                options: unique_options(&options),
            });
        }
    }
    mounts.reverse();
    mounts
}

/// Whether a kind of file system is one of the `network`, in `memory`, `layered` over another, or a `pseudo` one of the kernel's own.
pub(crate) fn file_system_class(kind: &str) -> Option<&'static str> {
    known_name("file_system", |key| key == kind)
}

/// Options of mount and file system together, each once.
fn unique_options(options: &str) -> String {
    let mut seen_options = HashSet::new();
    options.split(',').filter(|option| seen_options.insert(*option)).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_options_are_listed_once() {
        assert_eq!(unique_options("rw,relatime,rw,discard"), "rw,relatime,discard");
    }
}
