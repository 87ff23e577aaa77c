//! How many requests an NFS client has made for a mount, by its own count in /proc/self/mountstats.

use std::path::Path;

use crate::reasons::{OrFileFailure, OrReason, ProbeResult};

const MOUNTSTATS: &str = "/proc/self/mountstats";

/// A mount whose client counts its requests.
pub(super) struct NfsMount {
    /// Its directory, as the counts name it.
    mount: String,
}

impl NfsMount {
    /// The mount of a directory; `None` where its file system does not count: only that of NFS does.
    pub fn find(directory: &Path) -> Option<Self> {
        let directory = std::fs::canonicalize(directory).ok()?;
        mount_of(&read_mountstats().ok()?, &directory.to_string_lossy()).map(|mount| Self { mount })
    }

    /// Requests of all processes so far that the server has answered.
    pub fn completed_requests(&self) -> ProbeResult<u64> {
        let counts = read_mountstats().or_file_failure("read", Path::new(MOUNTSTATS))?;
        requests_of(&counts, &self.mount).or_fail(format!("{MOUNTSTATS} no longer has the mount {}", self.mount))
    }
}

/// The counts of all mounts; a path that is not UTF-8 is found by none.
fn read_mountstats() -> std::io::Result<String> {
    Ok(String::from_utf8_lossy(&std::fs::read(MOUNTSTATS)?).into_owned())
}

/// The directory and the kind of a mount, from the line that begins its counts.
fn parse_mount_header(line: &str) -> Option<(&str, &str)> {
    let (_, rest) = line.split_once("device ")?.1.split_once("mounted on ")?;
    let (directory, rest) = rest.split_once(" with fstype ")?;
    Some((directory, rest.split_whitespace().next()?))
}

/// The directory of the mount that holds another, if it is one of NFS: the last of the longest that are above it.
fn mount_of(counts: &str, directory: &str) -> Option<String> {
    // As seq_path() of the kernel writes a path.
    let directory =
        directory.replace('\\', "\\134").replace(' ', "\\040").replace('\t', "\\011").replace('\n', "\\012");
    let is_above = |mount: &str| Path::new(&directory).starts_with(mount);
    let mounts = counts.lines().filter_map(parse_mount_header).filter(|(mount, _)| is_above(mount));
    let (mount, kind) = mounts.max_by_key(|(mount, _)| mount.len())?;
    kind.starts_with("nfs").then(|| mount.to_owned())
}

/// The sum of the first figure of each operation (`READ: 12 12 0 ...`) of a mount, which is how often it was completed; of the
/// last mount, where one hides another.
fn requests_of(counts: &str, mount: &str) -> Option<u64> {
    let lines: Vec<&str> = counts.lines().collect();
    let is_mount_header = |line: &&str| parse_mount_header(line).is_some_and(|(directory, _)| directory == mount);
    let header = lines.iter().rposition(is_mount_header)?;
    let block = lines[header + 1..].iter().take_while(|line| parse_mount_header(line).is_none());
    let operations = block.skip_while(|line| line.trim() != "per-op statistics").skip(1);
    // A line that is no operation counts nothing.
    let completed_count = |line: &&str| line.split_once(':')?.1.split_whitespace().next()?.parse().ok();
    Some(operations.filter_map(completed_count).fold(0, u64::saturating_add))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Linux 6.1 has it, with most operations left out.
    const SAMPLE: &str = "\
device rootfs mounted on / with fstype rootfs
no device mounted on /proc with fstype proc
device 127.0.0.1:/export mounted on /mnt with fstype nfs4 statvers=1.1
\topts:\trw,vers=4.2,rsize=262144
\tbytes:\t8 0 8388608 0 8388608 0 0 0
\tRPC iostats version: 1.1  p/v: 100003/4 (nfs)
\txprt:\ttcp 0 0 2 0 0 2049 2049 0 2049 0 2 0 0
\tper-op statistics
\t        NULL: 1 1 0 44 24 0 0 0 0
\t        READ: 2048 2048 0 401408 8601600 7 1193 1215 0
\t     GETATTR: 3 3 0 588 696 0 2 2 0

device tmp mounted on /mnt/in\\040memory with fstype tmpfs
device 127.0.0.1:/ mounted on /mnt/disk\\040two with fstype nfs statvers=1.1
\tper-op statistics
\t        READ: 5 5 0 980 1200 0 0 0 0
";

    #[test]
    fn requests_are_summed_over_operations() {
        assert_eq!(requests_of(SAMPLE, "/mnt"), Some(2052));
        assert_eq!(requests_of(SAMPLE, "/mnt/disk\\040two"), Some(5));
        assert_eq!(requests_of(SAMPLE, "/"), Some(0));
        assert_eq!(requests_of(SAMPLE, "/none"), None);
        let hidden = format!("{SAMPLE}device b:/ mounted on /mnt with fstype nfs statvers=1.1\n\tper-op statistics\n");
        assert_eq!(requests_of(&hidden, "/mnt"), Some(0), "the mount on top counts");
        let prefix = &SAMPLE[..SAMPLE.find("GETATTR: ").unwrap()];
        assert_eq!(requests_of(prefix, "/mnt"), Some(2049));
    }

    #[test]
    fn nearest_mount_above_is_found() {
        let mount_above = |directory| mount_of(SAMPLE, directory);
        assert_eq!(mount_above("/mnt/kelvin").as_deref(), Some("/mnt"));
        assert_eq!(mount_above("/mnt/disk two/deep").as_deref(), Some("/mnt/disk\\040two"));
        assert_eq!(mount_above("/mnt/disk two").as_deref(), Some("/mnt/disk\\040two"));
        assert_eq!(mount_above("/mntx"), None, "that is the root's");
        assert_eq!(mount_above("/mnt/in memory/kelvin"), None, "of another kind");
        assert_eq!(mount_of("", "/mnt"), None);
    }

    #[test]
    fn local_directory_has_no_counts() {
        assert!(NfsMount::find(Path::new("/proc")).is_none());
    }
}
