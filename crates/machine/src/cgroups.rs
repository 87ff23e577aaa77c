//! Which control groups a process is in, and the files that limit it, for versions 1 and 2.

use crate::disks::{self, MountLine};
use crate::root::FileRoot;

/// The groups of a process.
#[derive(Clone, Debug)]
pub struct ProcessCgroups<'a> {
    root: FileRoot<'a>,
    /// `controllers`, path; no controllers for version 2.
    memberships: Vec<(String, String)>,
    mounts: Vec<MountLine>,
}

/// Where one controller's files are: the directory of the group, and the mount above which none can be seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CgroupPath {
    pub(crate) version: u32,
    mount: String,
    /// Parts of the path below the mount.
    parts: Vec<String>,
}

impl<'a> ProcessCgroups<'a> {
    /// The groups of this process, or why they are unknown.
    pub(crate) fn read(root: FileRoot<'a>) -> Result<Self, String> {
        Self::of_process(root, "self")
    }

    /// The groups of a process by its number, as this process sees them.
    ///
    /// # Errors
    /// Why they are unknown.
    pub fn of_process(root: FileRoot<'a>, process: &str) -> Result<Self, String> {
        let text = root.read(&format!("/proc/{process}/cgroup"))?;
        let mounts = disks::mount_lines(root).into_iter().filter(|mount| mount.kind.starts_with("cgroup")).collect();
        Ok(Self { root, memberships: text.lines().filter_map(parse_membership).collect(), mounts })
    }

    /// 2 where one hierarchy holds everything, 1 where controllers have hierarchies of their own, 0 for none.
    pub(crate) fn version(&self) -> u32 {
        let own = ["cpu", "memory", "pids"].into_iter().any(|name| self.membership(name).is_some());
        match () {
            () if own => 1,
            () if self.memberships.iter().any(|(controllers, _)| controllers.is_empty()) => 2,
            () => 0,
        }
    }

    pub(crate) fn membership(&self, controller: &str) -> Option<&str> {
        let has = |list: &str| list.split(',').any(|one| one == controller);
        self.memberships.iter().find(|(list, _)| has(list)).map(|(_, path)| path.as_str())
    }

    /// Where the files of a controller are; `None` where the process is in no such group, an error where the group
    /// cannot be seen.
    pub(crate) fn controller_path(&self, controller: &str) -> Result<Option<CgroupPath>, String> {
        if let Some(path) = self.membership(controller) {
            let is_mount = |mount: &&MountLine| {
                mount.kind == "cgroup" && mount.super_options.split(',').any(|option| option == controller)
            };
            let mount = self.mounts.iter().find(is_mount).ok_or_else(|| {
                format!("the cgroup v1 hierarchy of '{controller}' is not mounted: mount it below /sys/fs/cgroup")
            })?;
            return CgroupPath::from_mount(1, mount, path).map(Some);
        }
        let Some((_, path)) = self.memberships.iter().find(|(controllers, _)| controllers.is_empty()) else {
            return Ok(None);
        };
        let mount = self.mounts.iter().find(|mount| mount.kind == "cgroup2");
        let mount = mount.ok_or("cgroup v2 is not mounted: mount -t cgroup2 none /sys/fs/cgroup")?;
        CgroupPath::from_mount(2, mount, path).map(Some)
    }

    /// Whether all files of the group can be seen, as the running kernel shows them; a recorded tree has those that were kept.
    pub(crate) fn has_files(&self, place: &CgroupPath) -> bool {
        self.root.is_live() && self.root.exists(&place.directory(place.parts.len()))
    }

    /// The content of a file in the group and in every visible ancestor, nearest first, with the file's name.
    pub(crate) fn read_with_ancestors(&self, place: &CgroupPath, file: &str) -> Vec<(String, String)> {
        let depths = (0..=place.parts.len()).rev();
        let names = depths.map(|depth| format!("{}/{file}", place.directory(depth)));
        names.filter_map(|name| self.root.text(&name).map(|text| (name, text))).collect()
    }
}

impl CgroupPath {
    /// Whether no group above it can be seen.
    pub(crate) fn is_top(&self) -> bool {
        self.parts.is_empty()
    }

    /// The directory of a group so many levels below the mount.
    fn directory(&self, depth: usize) -> String {
        self.parts[..depth].iter().fold(self.mount.clone(), |name, part| format!("{name}/{part}"))
    }

    /// A path as /proc/self/cgroup gives it, seen through a mount that may show a part of the hierarchy only. A group outside of the
    /// namespace's own has a path that leads upwards: it cannot be seen, and those beside it are others'.
    fn from_mount(version: u32, mount: &MountLine, path: &str) -> Result<Self, String> {
        let inner = match mount.root.as_str() {
            "/" => path,
            // Outside a cgroup namespace a container's mount begins at its own group.
            root => path.strip_prefix(root).unwrap_or(""),
        };
        let leads_out = |path: &str| path.split('/').any(|part| part == "..");
        if leads_out(inner) || inner.is_empty() && leads_out(path) && path != mount.root {
            return Err(format!("the control group of the process is outside of what {} shows", mount.target));
        }
        let parts = inner.split('/').filter(|part| !part.is_empty());
        Ok(Self { version, mount: mount.target.clone(), parts: parts.map(str::to_owned).collect() })
    }
}

/// Most bytes of a path (PATH_MAX of limits.h): a longer one is no group's.
const MAX_PATH_LENGTH: usize = 4096;

/// `4:memory:/a/b` or `0::/a/b`.
fn parse_membership(line: &str) -> Option<(String, String)> {
    let mut fields = line.splitn(3, ':');
    fields.next()?.parse::<u32>().ok()?;
    let (controllers, path) = (fields.next()?, fields.next()?);
    (path.len() <= MAX_PATH_LENGTH).then(|| (controllers.to_owned(), path.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memberships_keep_colons_in_paths() {
        assert_eq!(parse_membership("4:memory:/a:b"), Some(("memory".into(), "/a:b".into())));
        assert_eq!(parse_membership("0::/"), Some(("".into(), "/".into())));
        assert_eq!(parse_membership("x::/"), None);
        assert_eq!(parse_membership("4:memory"), None);
        assert_eq!(parse_membership(&format!("0::{}", "/a".repeat(2048))).map(|(_, path)| path.len()), Some(4096));
        assert_eq!(parse_membership(&format!("0::{}", "/a".repeat(2049))), None);
    }

    #[test]
    fn partial_mount_shortens_cgroup_path() {
        let line = "30 25 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw";
        let mount = disks::parse_mount_line(line).unwrap();
        let parts = |mount: &MountLine, path: &str| CgroupPath::from_mount(2, mount, path).map(|place| place.parts);
        assert_eq!(parts(&mount, "/docker/abc/x"), Ok(vec!["x".to_owned()]));
        assert_eq!(parts(&mount, "/docker/abc"), Ok(vec![]));
        let whole = disks::parse_mount_line("30 25 0:26 / /sys/fs/cgroup ro - cgroup2 cgroup rw").unwrap();
        for outside in [parts(&mount, "/../other"), parts(&whole, "/../../other"), parts(&whole, "/..")] {
            assert!(
                outside.clone().is_err_and(|reason| reason.contains("outside of what /sys/fs/cgroup shows")),
                "{outside:?}"
            );
        }
        let above = disks::parse_mount_line("30 25 0:26 /../other /sys/fs/cgroup ro - cgroup2 cgroup rw").unwrap();
        assert_eq!(parts(&above, "/../other/x"), Ok(vec!["x".to_owned()]));
        assert_eq!(parts(&above, "/../other"), Ok(vec![]));
    }
}
