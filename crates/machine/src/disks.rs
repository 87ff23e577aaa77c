//! Block devices from sysfs, and mounted file systems that hold data.

use std::collections::HashSet;

use kelvin_core::{BlockDevice, Fact, Mount};

use crate::root::{FileRoot, bracketed_word};

/// Where the kernel shows disks, and not their partitions.
pub const BLOCK_DIRECTORY: &str = "/sys/block";
pub(crate) const MOUNTS: &str = "/proc/self/mountinfo";

/// Pseudo file systems: the kernel's own interfaces.
const PSEUDO_FILE_SYSTEMS: [&str; 27] = [
    "autofs",
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devpts",
    "devtmpfs",
    "efivarfs",
    "fusectl",
    "hugetlbfs",
    "mqueue",
    "nsfs",
    "nfsd",
    "proc",
    "pstore",
    "ramfs",
    "rootfs",
    "rpc_pipefs",
    "securityfs",
    "selinuxfs",
    "sysfs",
    "tracefs",
    "fuse.lxcfs",
    "fuse.portal",
    "fuse.gvfsd-fuse",
];

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
        // The unit of this file is 512 bytes whatever the sector (Documentation/ABI/stable/sysfs-block).
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
    let part = |prefix: &str| {
        path.split('/')
            .find(|part| part.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())))
    };
    if name.starts_with("nvme") {
        return nvme_link(root, name);
    }
    if let Some(port) = part("ata") {
        let speed = format!("/sys/class/ata_link/link{}/sata_spd", &port[3..]);
        return match root.text(&speed).filter(|text| text.ends_with("bps")) {
            Some(rate) => Fact::known(format!("SATA, {rate}"), speed),
            None => Fact::known("SATA".into(), directory),
        };
    }
    if part("virtio").is_some() || name.starts_with("vd") {
        return Fact::known("virtio".into(), directory);
    }
    if part("usb").is_some() {
        return Fact::known("USB".into(), directory);
    }
    if name.starts_with("mmcblk") {
        return Fact::known("MMC".into(), directory);
    }
    if path.contains("/virtual/") || ["loop", "dm-", "md", "zram", "nbd"].iter().any(|kind| name.starts_with(kind)) {
        return Fact::known("none, made by the kernel".into(), directory);
    }
    Fact::unknown(format!("the bus of {directory} cannot be told from its place in the device tree"))
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

/// One line of mountinfo (proc_pid_mountinfo(5)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MountLine {
    /// The mount that it is in.
    pub(crate) parent: u64,
    /// The device that the file system is, or that stands for it: `major:minor`.
    pub(crate) device: String,
    /// The part of the file system that is mounted.
    pub(crate) root: String,
    pub(crate) target: String,
    pub(crate) options: String,
    pub(crate) kind: String,
    pub(crate) source: String,
    pub(crate) super_options: String,
}

impl MountLine {
    /// Whether the same part of one file system is mounted.
    pub(crate) fn is_same_file_system(&self, other: &Self) -> bool {
        (&self.device, &self.root) == (&other.device, &other.root)
    }
}

/// All mounts, in the order in which they were made.
pub(crate) fn mount_lines(root: FileRoot<'_>) -> Vec<MountLine> {
    root.text(MOUNTS).unwrap_or_default().lines().filter_map(parse_mount_line).collect()
}

pub(crate) fn parse_mount_line(line: &str) -> Option<MountLine> {
    let (before, after) = line.split_once(" - ")?;
    let before: Vec<&str> = before.split(' ').collect();
    let mut after = after.split(' ');
    Some(MountLine {
        parent: before.get(1)?.parse().ok()?,
        device: (*before.get(2)?).to_owned(),
        root: unescape(before.get(3)?),
        target: unescape(before.get(4)?),
        options: (*before.get(5)?).to_owned(),
        kind: after.next()?.to_owned(),
        source: unescape(after.next()?),
        super_options: after.next().unwrap_or_default().to_owned(),
    })
}

/// Undoes the octal escapes (`\040`) of white space and backslash.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|digits| byte == b'\\' && digits.iter().all(|d| (b'0'..=b'7').contains(d)));
        match octal {
            Some(digits) => {
                let value = digits.iter().fold(0_u32, |value, digit| value * 8 + u32::from(digit - b'0'));
                bytes.push(value as u8);
                rest = &after[3..];
            }
            None => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Mounted file systems that hold data; of several on one target the last, which covers the others.
pub(crate) fn mounts(root: FileRoot<'_>) -> Vec<Mount> {
    let mut mounts: Vec<Mount> = Vec::new();
    let mut covered = HashSet::new();
    // From the last one on, since a host of containers has thousands.
    for line in mount_lines(root).into_iter().rev().filter(|line| covered.insert(line.target.clone())) {
        let of_the_kernel = ["/proc/", "/sys/"].iter().any(|top| line.target.starts_with(top));
        if !of_the_kernel && !PSEUDO_FILE_SYSTEMS.contains(&line.kind.as_str()) {
            let options = match line.super_options.as_str() {
                "" => line.options,
                more => format!("{},{more}", line.options),
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

/// Options of mount and file system together, each once.
fn unique_options(options: &str) -> String {
    let mut seen = HashSet::new();
    options.split(',').filter(|option| seen.insert(*option)).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mountinfo_line_with_optional_fields_is_parsed() {
        let line = r"36 35 98:0 /mnt1 /mnt\040two rw,noatime master:1 shared:2 - ext3 /dev/root rw,errors=continue";
        let mount = parse_mount_line(line).unwrap();
        assert_eq!((mount.root.as_str(), mount.target.as_str()), ("/mnt1", "/mnt two"));
        assert_eq!((mount.kind.as_str(), mount.source.as_str()), ("ext3", "/dev/root"));
        assert_eq!(mount.super_options, "rw,errors=continue");
        assert_eq!(parse_mount_line("36 35 98:0 / /mnt rw"), None);
        assert_eq!(unescape(r"a\04"), r"a\04");
    }

    #[test]
    fn mount_options_are_listed_once() {
        assert_eq!(unique_options("rw,relatime,rw,discard"), "rw,relatime,discard");
    }
}
