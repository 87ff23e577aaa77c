//! A block device that jobs write. While it is claimed, nobody else can mount it or make it a part of something.

use std::fs::File;
use std::io::ErrorKind;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use kelvin_sys::block_device;
use kelvin_sys::procfs::MountInfo;

use crate::target::Target;
use crate::{Error, Result};

/// A device that is claimed until this is dropped.
#[derive(Debug)]
pub(super) struct ClaimedDevice {
    path: PathBuf,
    device: File,
}

impl ClaimedDevice {
    /// Claims a device for this process.
    ///
    /// # Errors
    /// One that is mounted, or a part of a file system, of swap, of RAID or of a mapped device; one that may not be written.
    pub(super) fn claim(target: &Target) -> Result<Self> {
        let path = target.path();
        let device = block_device::open_exclusively(path).map_err(|error| match error.kind() {
            ErrorKind::ResourceBusy => Error::unusable(path, user_text(Path::new("/"), target.device())),
            _ => Error::call("open", path, error),
        })?;
        let opened = device.metadata().map_err(|error| Error::call("look at", path, error))?;
        if opened.rdev() != target.device() {
            return Err(Error::unusable(path, "became another device meanwhile"));
        }
        Ok(Self { path: path.to_owned(), device })
    }

    /// Discards what is on a part of it.
    pub(super) fn discard(&self, range: Range<u64>) -> Result<()> {
        block_device::discard(&self.device, range).map_err(|error| match error.kind() {
            ErrorKind::Unsupported => Error::unusable(&self.path, "discards nothing: leave out --trim"),
            _ => Error::call("discard what is on", &self.path, error),
        })
    }
}

/// Who uses a device, as far as the kernel shows it below `root`.
fn user_text(root: &Path, device: u64) -> String {
    let number = format!("{}:{}", kelvin_sys::fs::major(device), kelvin_sys::fs::minor(device));
    let directory = root.join("sys/dev/block").join(&number);
    let mut parts = vec![(number, directory.clone())];
    // A disk is in use while one of its partitions is.
    for entry in std::fs::read_dir(&directory).into_iter().flatten().flatten() {
        if let Ok(number) = std::fs::read_to_string(entry.path().join("dev"))
            && entry.path().join("partition").exists()
        {
            parts.push((number.trim().to_owned(), entry.path()));
        }
    }
    let mounts = std::fs::read_to_string(root.join("proc/self/mountinfo")).unwrap_or_default();
    let mount = mounts
        .lines()
        .filter_map(MountInfo::parse)
        .find(|mount| parts.iter().any(|(number, _)| mount.device == *number));
    if let Some(mount) = mount {
        return format!("is in use: it is mounted at {}", mount.target);
    }
    let holders = parts
        .iter()
        .flat_map(|(_, directory)| std::fs::read_dir(directory.join("holders")).into_iter().flatten().flatten());
    match holders.map(|holder| holder.file_name().to_string_lossy().into_owned()).next() {
        Some(holder) => format!("is in use: it is a part of {holder}"),
        None => "is in use: as swap, or by another program that claims it".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_of_a_device_are_named() {
        let root = tempfile::tempdir().unwrap();
        let device = root.path().join("sys/dev/block/8:16");
        std::fs::create_dir_all(device.join("sdb1/holders")).unwrap();
        std::fs::write(device.join("sdb1/dev"), "8:17\n").unwrap();
        std::fs::write(device.join("sdb1/partition"), "1\n").unwrap();
        std::fs::create_dir_all(root.path().join("proc/self")).unwrap();
        let text = || user_text(root.path(), 8 << 8 | 16);
        assert!(text().contains("as swap"), "{}", text());
        std::fs::create_dir_all(device.join("sdb1/holders/dm-3")).unwrap();
        assert_eq!(text(), "is in use: it is a part of dm-3");
        std::fs::write(root.path().join("proc/self/mountinfo"), "36 35 8:17 / /data rw - ext4 /dev/sdb1 rw\n").unwrap();
        assert_eq!(text(), "is in use: it is mounted at /data");
    }
}
