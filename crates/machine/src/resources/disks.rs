//! Disks as /proc/diskstats counts them (Documentation/admin-guide/iostats.rst).

use std::fs::{File, canonicalize};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::counters::device_reads;
use crate::disks::{BLOCK_DIRECTORY, MOUNTS};
use crate::limits::ProcessCgroups;
use crate::root::FileRoot;
use kelvin_core::resources::DiskStats;
use kelvin_sys::fs::{major, minor};
use kelvin_sys::procfs::{MountInfo, mount_id};

/// The unit of these counters, for any sector of a disk.
const SECTOR_BYTES: u64 = 512;
/// The unit of its times, in nanoseconds.
const MILLISECOND: f64 = 1e6;

/// The disks that have done anything, on which of them the directory lies that is served, and what the groups of the process read there.
pub(crate) fn read_disks(
    root: FileRoot<'_>,
    served_disk: Option<&str>,
    groups: Option<&ProcessCgroups<'_>>,
) -> Vec<DiskStats> {
    let whole_disks = root.names(BLOCK_DIRECTORY);
    let text = root.text("/proc/diskstats").unwrap_or_default();
    let disks = text.lines().filter_map(parse_diskstats_line).filter(|(_, disk)| whole_disks.contains(&disk.name));
    let active_disks = disks.filter(|(_, disk)| disk.reads > 0 || disk.writes > 0);
    let with_reads = |(number, disk): (String, DiskStats)| {
        let holds_root = served_disk == Some(&disk.name);
        let reads_of_group = groups.filter(|_| holds_root).and_then(|groups| device_reads(groups, &number));
        DiskStats { holds_root, reads_of_group, ..disk }
    };
    active_disks.map(with_reads).collect()
}

/// A line of /proc/diskstats: `major:minor`, and the counters.
fn parse_diskstats_line(line: &str) -> Option<(String, DiskStats)> {
    let mut fields = line.split_ascii_whitespace();
    let number = format!("{}:{}", fields.next()?, fields.next()?);
    let name = fields.next()?.to_owned();
    let mut counters = [0_u64; 11];
    for counter in &mut counters {
        *counter = fields.next()?.parse().ok()?;
    }
    let [reads, _, read, _, writes, _, written, _, _, busy, queued] = counters;
    let disk = DiskStats {
        name,
        reads,
        read_bytes: read.saturating_mul(SECTOR_BYTES),
        writes,
        written_bytes: written.saturating_mul(SECTOR_BYTES),
        busy: busy as f64 * MILLISECOND,
        queued: queued as f64 * MILLISECOND,
        ..DiskStats::default()
    };
    Some((number, disk))
}

/// The disk that a directory lies on; none if it is on no block device.
pub(crate) fn disk_of_directory(root: &Path, directory: &Path) -> Option<String> {
    let file = File::open(directory).ok()?;
    let device = file.metadata().ok()?.dev();
    let numbers = format!("{}:{}", major(device), minor(device));
    whole_disk(&root.join("sys/dev/block").join(numbers)).or_else(|| {
        // A file system with device numbers of its own (btrfs) names its source in the list of mounts.
        let id = mount_id(&file).ok()?;
        let mounts = std::fs::read_to_string(MOUNTS).ok()?;
        let mount = mounts.lines().filter_map(MountInfo::parse).find(|mount| mount.id == id)?;
        let source = canonicalize(mount.source).ok()?;
        whole_disk(&root.join("sys/class/block").join(source.strip_prefix("/dev").ok()?))
    })
}

/// The name of a block device, or of the disk of which it is a partition.
fn whole_disk(device: &Path) -> Option<String> {
    let mut path = canonicalize(device).ok()?;
    if path.join("partition").exists() {
        path.pop();
    }
    Some(path.file_name()?.to_str()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::FixtureTree;

    const STATS: &str = "   7       0 loop0 211095 2083 24021151 38005 16877 6619 13059841 49164 0 44520 96867 0 0 0 0 4102 9697\n \
                         259      0 nvme0n1 10 1 16 2 20 3 32 4 5 6 7\n 259      1 nvme0n1p1 9 1 16 2 20 3 32 4 5 6 7\n \
                         7       2 loop2 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n";

    #[test]
    fn served_disk_is_marked() {
        let tree = FixtureTree::default();
        tree.fill("proc/diskstats", STATS);
        ["loop0", "loop2", "nvme0n1"].iter().for_each(|name| tree.fill(&format!("sys/block/{name}/size"), "1"));
        tree.fill("proc/9/cgroup", "7:blkio:/jobs\n0::/\n");
        tree.fill("proc/self/mountinfo", "32 25 0:28 / /sys/fs/cgroup/blkio rw - cgroup cgroup rw,blkio\n");
        tree.fill("sys/fs/cgroup/blkio/jobs/blkio.throttle.io_serviced", "7:0 Read 3\n259:0 Read 7\n259:0 Total 9\n");
        let root = FileRoot::new(tree.path());
        let disks = read_disks(root, Some("nvme0n1"), ProcessCgroups::of_process(root, "9").ok().as_ref());
        assert_eq!(disks.iter().map(|disk| disk.name.as_str()).collect::<Vec<_>>(), ["loop0", "nvme0n1"]);
        let expected = DiskStats {
            name: "nvme0n1".into(),
            reads: 10,
            read_bytes: 8192,
            writes: 20,
            written_bytes: 16_384,
            busy: 6e6,
            queued: 7e6,
            holds_root: true,
            reads_of_group: Some(7),
        };
        assert_eq!(disks[1], expected);
        assert!(!disks[0].holds_root && disks[0].reads_of_group.is_none());
        tree.fill("proc/9/cgroup", "7:blkio:/\n0::/\n");
        let disks = read_disks(root, Some("nvme0n1"), ProcessCgroups::of_process(root, "9").ok().as_ref());
        assert_eq!(disks[1].reads_of_group, None, "everybody's");
    }

    #[test]
    fn partition_resolves_to_disk() {
        let tree = FixtureTree::default();
        tree.fill("sys/devices/pci/block/vda/size", "1");
        tree.fill("sys/devices/pci/block/vda/vda1/partition", "1");
        for (number, name) in [("254:0", "vda"), ("254:1", "vda/vda1")] {
            let link = tree.path().join(format!("sys/dev/block/{number}"));
            std::fs::create_dir_all(link.parent().unwrap()).unwrap();
            std::os::unix::fs::symlink(format!("../../devices/pci/block/{name}"), &link).unwrap();
            assert_eq!(whole_disk(&link).as_deref(), Some("vda"));
        }
        assert_eq!(whole_disk(&tree.path().join("sys/dev/block/254:2")), None);
    }

    #[test]
    fn tmpfs_is_on_no_disk() {
        assert_eq!(disk_of_directory(Path::new("/"), Path::new("/proc")), None);
    }
}
