//! Which control groups a process is in, and the files that limit it, for versions 1 and 2.

use kelvin_sys::procfs::{CgroupMembership, CgroupPath, MountInfo};

use crate::disks;
use crate::root::FileRoot;

/// The control groups of a process.
#[derive(Clone, Debug)]
pub struct ProcessCgroups<'a> {
    pub(crate) root: FileRoot<'a>,
    memberships: Vec<CgroupMembership>,
    mounts: Vec<MountInfo>,
}

impl<'a> ProcessCgroups<'a> {
    /// Those of this process.
    pub(crate) fn read(root: FileRoot<'a>) -> Result<Self, String> {
        Self::of_process(root, "self")
    }

    /// Those of a process, by its number or `self`.
    ///
    /// # Errors
    /// A process that cannot be seen.
    pub fn of_process(root: FileRoot<'a>, process: &str) -> Result<Self, String> {
        let text = root.read(&format!("/proc/{process}/cgroup"))?;
        let mounts = disks::mount_lines(root).into_iter().filter(|mount| mount.kind.starts_with("cgroup")).collect();
        Ok(Self { root, memberships: text.lines().filter_map(CgroupMembership::parse).collect(), mounts })
    }

    /// 1 if one of the controllers that limit a process is of version 1, else 2, or 0 without any group.
    pub(crate) fn version(&self) -> u32 {
        match () {
            () if ["cpu", "memory", "pids"].into_iter().any(|name| self.is_of_version_1(name)) => 1,
            () if self.memberships.iter().any(CgroupMembership::is_unified) => 2,
            () => 0,
        }
    }

    /// Whether a controller is in a hierarchy of version 1.
    pub(crate) fn is_of_version_1(&self, controller: &str) -> bool {
        self.memberships.iter().any(|one| one.has_controller(controller))
    }

    /// The group that has a controller; none if the process is in none.
    pub(crate) fn controller_path(&self, controller: &str) -> Result<Option<CgroupPath>, String> {
        CgroupPath::find(&self.memberships, &self.mounts, controller)
    }

    /// Whether the files of a group can be seen.
    pub(crate) fn has_files(&self, place: &CgroupPath) -> bool {
        self.root.is_live() && place.directories().next().is_some_and(|directory| self.root.exists(&directory))
    }

    /// A file of a group and of those around it, from the inmost outwards, where it exists: its name and text.
    pub(crate) fn read_with_ancestors(&self, place: &CgroupPath, file: &str) -> Vec<(String, String)> {
        let names = place.directories().map(|directory| format!("{directory}/{file}"));
        names.filter_map(|name| self.root.text(&name).map(|text| (name, text))).collect()
    }
}
