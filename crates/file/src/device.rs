//! The block device below a file, and its own count of what it moved.

use std::path::{Path, PathBuf};

use kelvin_sys::procfs::{MountInfo, mount_id};

use crate::access::Access;
use crate::target::Target;

/// Bytes that a block device has moved since the system started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceTraffic {
    /// Bytes read from it.
    pub read: u64,
    /// Bytes written to it.
    pub written: u64,
}

impl DeviceTraffic {
    /// What was moved since an earlier reading.
    pub fn since(self, earlier: Self) -> Self {
        Self { read: self.read.wrapping_sub(earlier.read), written: self.written.wrapping_sub(earlier.written) }
    }
}

/// The block device below a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its name: `vda`, `nvme0n1p2`, `loop0`.
    pub name: String,
    stat: PathBuf,
}

/// The unit of the counters of a block device, with a sector of any size (Documentation/block/stat.rst).
const STAT_SECTOR_BYTES: u64 = 512;

impl Device {
    /// The device of a file; the reason, where there is none or it cannot be found.
    ///
    /// # Errors
    /// A file system that is on no block device, or on one that the kernel does not show here.
    pub fn of_file(target: &Target) -> Result<Self, String> {
        let unknown = |error: &dyn std::fmt::Display| format!("the mount of its file is unknown: {error}");
        let file = target.open(Access::Buffered).map_err(|error| unknown(&error))?;
        let mount = mount_id(&file).map_err(|error| unknown(&error))?;
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let source = mounts.lines().filter_map(MountInfo::parse).find(|info| info.id == mount).map(|info| info.source);
        Self::find_in(Path::new("/"), target.device(), source)
    }

    fn find_in(root: &Path, device: u64, source: Option<String>) -> Result<Self, String> {
        let numbers = format!("{}:{}", kelvin_sys::fs::major(device), kelvin_sys::fs::minor(device));
        let directory = root.join("sys/dev/block").join(&numbers);
        if let Some(device) = Self::from_sysfs(&directory) {
            return Ok(device);
        }
        // A file system whose files have device numbers of their own (btrfs: of their subvolume, which are not those in the
        // list of mounts either) names its source in that list.
        let source =
            source.ok_or_else(|| format!("its file system has device number {numbers}, which no block device has"))?;
        let Some(name) = source.strip_prefix("/dev/") else {
            return Err(format!("its file system is on {source}, which is no block device"));
        };
        let device = Self::from_sysfs(&root.join("sys/class/block").join(name))
            .ok_or_else(|| format!("the kernel does not show the counters of {source} here"))?;
        match count_stacked_devices(root, &device.name) {
            0 => Ok(device),
            others => {
                Err(format!("its file system is on {source} and {others} more, and any of them may have its bytes"))
            }
        }
    }

    fn from_sysfs(directory: &Path) -> Option<Self> {
        let name = std::fs::canonicalize(directory).ok()?.file_name()?.to_string_lossy().into_owned();
        let stat = directory.join("stat");
        stat.exists().then_some(Self { name, stat })
    }

    /// What it has moved so far.
    ///
    /// # Errors
    /// Counters that cannot be read.
    pub fn traffic(&self) -> std::io::Result<DeviceTraffic> {
        let text = std::fs::read_to_string(&self.stat)?;
        parse_stat(&text).ok_or_else(|| std::io::Error::other(format!("{} is malformed", self.stat.display())))
    }
}

/// How many devices besides this one hold the same file system (btrfs over several).
fn count_stacked_devices(root: &Path, name: &str) -> usize {
    let names = |directory: PathBuf| std::fs::read_dir(directory).into_iter().flatten().flatten();
    for system in names(root.join("sys/fs/btrfs")) {
        let devices: Vec<_> = names(system.path().join("devices")).map(|device| device.file_name()).collect();
        if devices.iter().any(|device| device == name) {
            return devices.len() - 1;
        }
    }
    0
}

/// The counters of a `stat` file: reads, merged, sectors read, ms, writes, merged, sectors written, ...
fn parse_stat(text: &str) -> Option<DeviceTraffic> {
    let field =
        |index: usize| text.split_ascii_whitespace().nth(index)?.parse::<u64>().ok()?.checked_mul(STAT_SECTOR_BYTES);
    Some(DeviceTraffic { read: field(2)?, written: field(6)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_counters_are_512_byte_sectors() {
        let text = "  1000  20  3000  40  5  6  700  8  0  10  11  0 0 0 0 1 2\n";
        assert_eq!(parse_stat(text), Some(DeviceTraffic { read: 3000 * 512, written: 700 * 512 }));
        for stat in ["", "1 2 3", "1 2 x 4 5 6 7", "1 2 18446744073709551615 4 5 6 7"] {
            assert_eq!(parse_stat(stat), None, "{stat}");
        }
        let earlier = DeviceTraffic { read: 10, written: 30 };
        assert_eq!(DeviceTraffic { read: 25, written: 30 }.since(earlier), DeviceTraffic { read: 15, written: 0 });
    }

    #[test]
    fn device_is_found_by_number_or_mount_source() {
        let root = tempfile::tempdir().unwrap();
        let real = root.path().join("sys/devices/virtual/block/loop3");
        for directory in ["sys/dev/block", "sys/class/block"] {
            std::fs::create_dir_all(root.path().join(directory)).unwrap();
        }
        std::fs::create_dir_all(&real).unwrap();
        std::fs::write(real.join("stat"), "1 0 8 0 2 0 16 0 0 0 0").unwrap();
        std::os::unix::fs::symlink(&real, root.path().join("sys/dev/block/7:3")).unwrap();
        std::os::unix::fs::symlink(&real, root.path().join("sys/class/block/loop3")).unwrap();
        let on_loop = || Some("/dev/loop3".to_owned());
        let number = |major: u64, minor: u64| (major << 8) | minor;
        let by_number = Device::find_in(root.path(), number(7, 3), on_loop()).unwrap();
        assert_eq!(
            (by_number.name.as_str(), by_number.traffic().unwrap()),
            ("loop3", DeviceTraffic { read: 4096, written: 8192 })
        );
        // The files of a subvolume have another device number than its mount.
        assert_eq!(Device::find_in(root.path(), number(0, 48), on_loop()).unwrap().name, "loop3");
        let error_text = |source| Device::find_in(root.path(), number(0, 47), source).unwrap_err();
        assert!(error_text(Some("host:/dir".into())).contains("host:/dir, which is no block device"));
        assert!(error_text(None).contains("0:47, which no block device has"));
        // One of several devices does not count all that is read.
        let devices = root.path().join("sys/fs/btrfs/0a1b/devices");
        std::fs::create_dir_all(devices.join("loop3")).unwrap();
        assert!(Device::find_in(root.path(), number(0, 48), on_loop()).is_ok());
        std::fs::create_dir_all(devices.join("loop4")).unwrap();
        assert!(error_text(on_loop()).contains("is on /dev/loop3 and 1 more"));
    }
}
