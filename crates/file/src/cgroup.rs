//! A control group of kelvin's own, in which work runs under a known limit; removed when dropped.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use kelvin_sys::procfs::{CgroupMembership, CgroupPath, MountInfo, cgroup_device_reads, value_of_key};

use crate::{Error, Result};

/// What a group limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controller {
    /// Time on CPUs.
    Cpu,
    /// Memory, pages of files included.
    Memory,
    /// What block devices move.
    BlockIo,
}

impl Controller {
    const ALL: [Self; 3] = [Self::Cpu, Self::Memory, Self::BlockIo];
    /// Its name in each version of control groups.
    fn name(self, version: u32) -> &'static str {
        match (self, version) {
            (Self::Cpu, _) => "cpu",
            (Self::Memory, _) => "memory",
            (Self::BlockIo, 1) => "blkio",
            (Self::BlockIo, _) => "io",
        }
    }
}

/// A control group of this process's own.
#[derive(Debug)]
pub struct Cgroup {
    path: PathBuf,
    version: u32,
    /// The group that this process was in before.
    previous_group: PathBuf,
}

/// Prefix of the names of kelvin's groups; the controller, the process and a number follow.
const CGROUP_PREFIX: &str = "kelvin-";
/// How many groups this process has made: each has a number.
static CGROUP_COUNTER: AtomicU32 = AtomicU32::new(0);

impl Cgroup {
    /// Makes a group: below the one of this process or, where that cannot have any with this controller (version 2), below its
    /// nearest ancestor that can. Groups left behind by killed processes are removed first.
    ///
    /// # Errors
    /// [`Error::CgroupUnavailable`], with what would be needed.
    pub fn create(controller: Controller) -> Result<Self> {
        Self::create_below(&own_location(controller)?, controller)
    }

    fn create_below(place: &CgroupPath, controller: Controller) -> Result<Self> {
        let parent = parent(place, controller.name(place.version)).map_err(Error::CgroupUnavailable)?;
        sweep_below(&parent);
        let number = CGROUP_COUNTER.fetch_add(1, Ordering::Relaxed);
        let name = format!("{CGROUP_PREFIX}{}-{}-{number}", controller.name(place.version), std::process::id());
        let path = parent.join(name);
        fs::create_dir(&path).map_err(|error| {
            Error::CgroupUnavailable(format!("cannot make one in {} (root only): {error}", parent.display()))
        })?;
        Ok(Self { path, version: place.version, previous_group: directory(place) })
    }

    /// 1 or 2.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file to which a process writes to enter the group.
    pub fn procs_file(&self) -> PathBuf {
        self.path.join("cgroup.procs")
    }

    /// Moves this process into it, until it is dropped.
    ///
    /// # Errors
    /// [`Error::CgroupUnavailable`].
    pub fn enter(&self) -> Result<()> {
        enter_cgroup(&self.procs_file())
    }

    /// Limits the group to this many microseconds on CPUs in each period of this many.
    ///
    /// # Errors
    /// [`Error::CgroupUnavailable`].
    pub fn limit_cpu(&self, microseconds: u64, period: Duration) -> Result<()> {
        let period = period.as_micros();
        if self.version == 1 {
            self.write_file("cpu.cfs_period_us", &period.to_string())?;
            return self.write_file("cpu.cfs_quota_us", &microseconds.to_string());
        }
        self.write_file("cpu.max", &format!("{microseconds} {period}"))
    }

    /// Limits the memory of the group, pages of files included.
    ///
    /// # Errors
    /// [`Error::CgroupUnavailable`].
    pub fn limit_memory(&self, bytes: u64) -> Result<()> {
        let file = if self.version == 1 { "memory.limit_in_bytes" } else { "memory.max" };
        self.write_file(file, &bytes.to_string())
    }

    /// Limits the group's reads from a block device, given as `major:minor`, in bytes per second.
    ///
    /// # Errors
    /// [`Error::CgroupUnavailable`].
    pub fn limit_read_rate(&self, device: &str, bytes_per_second: u64) -> Result<()> {
        match self.version {
            1 => self.write_file("blkio.throttle.read_bps_device", &format!("{device} {bytes_per_second}")),
            _ => self.write_file("io.max", &format!("{device} rbps={bytes_per_second}")),
        }
    }

    /// Bytes that the group has read from a block device, by its own count.
    ///
    /// # Errors
    /// [`Error::CgroupUnavailable`].
    pub fn bytes_read(&self, device: &str) -> Result<u64> {
        let file = if self.version == 1 { "blkio.throttle.io_service_bytes" } else { "io.stat" };
        Ok(cgroup_device_reads(&read_file(&self.path.join(file))?, device, "rbytes"))
    }

    /// How many of its processes the kernel has killed because its memory was used up, by its own count.
    ///
    /// # Errors
    /// [`Error::CgroupUnavailable`].
    pub fn oom_kill_count(&self) -> Result<u64> {
        let file = self.path.join(if self.version == 1 { "memory.oom_control" } else { "memory.events" });
        let count = value_of_key(&read_file(&file)?, "oom_kill", ' ').and_then(|count| count.parse().ok());
        count.ok_or_else(|| Error::CgroupUnavailable(format!("{} does not show what was killed", file.display())))
    }

    fn write_file(&self, file: &str, value: &str) -> Result<()> {
        let path = self.path.join(file);
        let write_error =
            |error| Error::CgroupUnavailable(format!("cannot write '{value}' to {}: {error}", path.display()));
        fs::write(&path, value).map_err(write_error)
    }
}

/// The directory of the group of this process in the hierarchy of a controller.
///
/// # Errors
/// [`Error::CgroupUnavailable`].
pub fn own_cgroup(controller: Controller) -> Result<PathBuf> {
    own_location(controller).map(|place| directory(&place))
}

fn read_file(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(|error| Error::CgroupUnavailable(format!("{}: {error}", path.display())))
}

/// Where this process is in the hierarchy of a controller.
fn own_location(controller: Controller) -> Result<CgroupPath> {
    let (memberships, mounts) = ("/proc/self/cgroup".as_ref(), "/proc/self/mountinfo".as_ref());
    locate(&read_file(memberships)?, &read_file(mounts)?, controller).map_err(Error::CgroupUnavailable)
}

/// Moves this process into the group whose file of processes this is.
///
/// # Errors
/// [`Error::CgroupUnavailable`].
pub fn enter_cgroup(procs_file: &Path) -> Result<()> {
    // 0 is the process that writes.
    fs::write(procs_file, "0")
        .map_err(|error| Error::CgroupUnavailable(format!("cannot enter {}: {error}", procs_file.display())))
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let process_id = std::process::id().to_string();
        if fs::read_to_string(self.procs_file()).is_ok_and(|members| members.lines().any(|line| line == process_id)) {
            let _ = enter_cgroup(&self.previous_group.join("cgroup.procs"));
        }
        remove_cgroup(&self.path);
    }
}

/// Removes a group, waiting shortly if needed: the kernel may count one as busy for a moment after its last process left or
/// ended.
fn remove_cgroup(path: &Path) {
    for _ in 0..100 {
        match fs::remove_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => std::thread::sleep(Duration::from_millis(2)),
            _ => return,
        }
    }
}

/// Removes groups left behind by killed processes, for whoever started and ended them.
pub fn remove_dead_cgroups() {
    for controller in Controller::ALL {
        let Ok(place) = own_location(controller) else { continue };
        let Ok(parent) = parent(&place, controller.name(place.version)) else { continue };
        sweep_below(&parent);
    }
}

/// Removes kelvin's groups whose process is gone; one with another process in it cannot be removed.
fn sweep_below(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(process) = owner_process(&name.to_string_lossy()) else { continue };
        if !Path::new(&format!("/proc/{process}")).exists() {
            remove_cgroup(&entry.path());
        }
    }
}

/// The process that made a group of this name, if it is kelvin's.
fn owner_process(name: &str) -> Option<u32> {
    let (controller, process) = name.strip_prefix(CGROUP_PREFIX)?.split_once('-')?;
    // The number follows.
    let process = process.split('-').next()?;
    let is_known =
        Controller::ALL.iter().any(|candidate| [1, 2].iter().any(|&version| candidate.name(version) == controller));
    process.parse().ok().filter(|&process| is_known && process > 0)
}

fn directory(place: &CgroupPath) -> PathBuf {
    place.directories().next().unwrap_or_default().into()
}

/// The group below which one with a controller can be made.
fn parent(place: &CgroupPath, controller: &str) -> std::result::Result<PathBuf, String> {
    let group_directory = directory(place);
    if place.version == 1 {
        return Ok(group_directory);
    }
    // A group with processes delegates no controller (version 2, "no internal process constraint"), but one of its
    // ancestors does, or it would have none itself.
    let delegates = |path: &PathBuf| {
        fs::read_to_string(path.join("cgroup.subtree_control"))
            .is_ok_and(|text| text.split_ascii_whitespace().any(|name| name == controller))
    };
    place.directories().map(PathBuf::from).find(delegates).ok_or_else(|| {
        format!("no control group around {} delegates its controller '{controller}'", group_directory.display())
    })
}

/// Finds the group of a process in the texts of /proc/self/cgroup and /proc/self/mountinfo.
fn locate(memberships: &str, mounts: &str, controller: Controller) -> std::result::Result<CgroupPath, String> {
    let memberships: Vec<CgroupMembership> = memberships.lines().filter_map(CgroupMembership::parse).collect();
    let mounts: Vec<MountInfo> = mounts.lines().filter_map(MountInfo::parse).collect();
    let place = CgroupPath::find(&memberships, &mounts, controller.name(1))?;
    place.ok_or_else(|| "this process is in no group with the controller".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "30 25 0:26 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                          32 25 0:28 /docker/x /sys/fs/cgroup/blkio rw - cgroup cgroup rw,blkio\n\
                          31 25 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

    #[test]
    fn cgroup_is_located_in_both_versions() {
        let location = |membership, controller| locate(membership, MOUNTS, controller);
        let path = |place: &CgroupPath| directory(place).display().to_string();
        let v1 = location("4:memory:/jobs\n7:blkio:/docker/x/y\n0::/\n", Controller::Memory).unwrap();
        assert_eq!((path(&v1).as_str(), v1.version), ("/sys/fs/cgroup/memory/jobs", 1));
        assert_eq!(parent(&v1, "memory").unwrap(), directory(&v1));
        let part = location("4:memory:/jobs\n7:blkio:/docker/x/y\n0::/\n", Controller::BlockIo).unwrap();
        assert_eq!(path(&part), "/sys/fs/cgroup/blkio/y");
        let v2 = location("0::/user.slice/a\n", Controller::BlockIo).unwrap();
        assert_eq!((path(&v2).as_str(), v2.version), ("/sys/fs/cgroup/unified/user.slice/a", 2));
        assert!(location("", Controller::Memory).unwrap_err().contains("in no group"));
        assert!(locate("0::/", "", Controller::BlockIo).unwrap_err().contains("v2 is not mounted"));
    }

    #[test]
    fn v2_cgroup_needs_delegated_controller() {
        let mount = tempfile::tempdir().unwrap();
        let group = mount.path().join("user.slice/session");
        fs::create_dir_all(&group).unwrap();
        let parts = ["user.slice", "session"].map(str::to_owned).to_vec();
        let place = CgroupPath { version: 2, mount: mount.path().display().to_string(), parts };
        let delegate = |path: &Path, text: &str| fs::write(path.join("cgroup.subtree_control"), text).unwrap();
        delegate(mount.path(), "cpu io memory pids\n");
        delegate(&group, "\n");
        delegate(&mount.path().join("user.slice"), "memory pids\n");
        assert_eq!(parent(&place, "memory").unwrap(), mount.path().join("user.slice"));
        assert_eq!(parent(&place, "io").unwrap(), mount.path());
        assert!(parent(&place, "cpuset").unwrap_err().contains("delegates its controller 'cpuset'"));
    }

    #[test]
    fn only_dead_process_cgroups_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        let place = CgroupPath { version: 1, mount: parent.path().display().to_string(), parts: Vec::new() };
        let foreign_names = ["jobs-4194999", "kelvin-cpu-0", "kelvin-jobs-4194999", "kelvin-other"].map(str::to_owned);
        for name in foreign_names
            .iter()
            .chain(&["memory-4194999", "cpu-4194999-7"].map(|dead| format!("{CGROUP_PREFIX}{dead}")))
        {
            fs::create_dir(parent.path().join(name)).unwrap();
        }
        let group = Cgroup::create_below(&place, Controller::Memory).unwrap();
        group.limit_memory(1 << 30).unwrap();
        assert_eq!(fs::read_to_string(group.path.join("memory.limit_in_bytes")).unwrap(), "1073741824");
        let own_name = group.path().file_name().unwrap().to_str().unwrap().to_owned();
        assert!(own_name.starts_with(&format!("{CGROUP_PREFIX}memory-{}-", std::process::id())), "{own_name}");
        let mut remaining_names: Vec<String> = fs::read_dir(parent.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        remaining_names.sort();
        let mut expected: Vec<String> = foreign_names.into_iter().chain([own_name]).collect();
        expected.sort();
        assert_eq!(remaining_names, expected);
        let second_group = Cgroup::create_below(&place, Controller::Memory).unwrap();
        assert_ne!(second_group.path(), group.path());
        // An ordinary directory, unlike a group, is not removed with files in it.
        fs::remove_file(group.path.join("memory.limit_in_bytes")).unwrap();
        let path = group.path.clone();
        drop(group);
        assert!(!path.exists());
    }
}
