//! What a host, and a server or client on it, have used until now, from /proc and /sys.
//!
//! Everything is read below a root directory: `/` for this machine, or a recorded tree. Nothing here panics on the content of a file.
mod disks;
mod host;
mod links;
mod process;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::counters::cpu_throttling;
use crate::limits::ProcessCgroups;
use crate::root::FileRoot;
use crate::topology::allowed_cpus;
use kelvin_core::resources::ResourceSnapshot;

use crate::resources::links::LinkFacts;
use crate::resources::process::{ProcessTree, ThreadTotals};

/// Why there is no look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The process is not there.
    #[error("process {0} has ended, or cannot be seen here")]
    NoProcess(u32),
}

/// A process that is looked at several times, and its host.
#[derive(Debug)]
pub struct ProcessMonitor {
    root: PathBuf,
    process: u32,
    /// The disk that the directory lies on.
    disk: Option<String>,
    /// What its threads had used, so that nothing is lost when they end.
    threads: ThreadTotals,
    /// Whether what it has started counts as well.
    with_descendants: bool,
    /// What does not change about interfaces.
    link_facts: BTreeMap<String, LinkFacts>,
}

impl ProcessMonitor {
    /// A process of this machine, and a directory that it serves.
    pub fn new(process: u32, directory: Option<&Path>) -> Self {
        let disk = directory.and_then(|directory| disks::disk_of_directory(Path::new("/"), directory));
        Self::under_root(Path::new("/"), process, disk)
    }

    /// This process.
    pub fn current(directory: Option<&Path>) -> Self {
        Self::new(std::process::id(), directory)
    }

    /// A process of the machine whose files are below a root directory, and the disk that it serves from.
    pub fn under_root(root: &Path, process: u32, disk: Option<String>) -> Self {
        Self {
            root: root.to_owned(),
            process,
            disk,
            threads: ThreadTotals::default(),
            with_descendants: true,
            link_facts: BTreeMap::new(),
        }
    }

    /// The process by itself, without what it has started.
    #[must_use]
    pub fn without_descendants(self) -> Self {
        Self { with_descendants: false, ..self }
    }

    /// The process, and those that it has started, by their numbers.
    pub fn processes(&self) -> Vec<u32> {
        ProcessTree::read(FileRoot::new(&self.root), self.process, self.with_descendants)
            .map_or_else(Vec::new, |tree| tree.ids())
    }

    /// Nanoseconds for which quotas of CPU time have kept it from running; `None` without any.
    pub fn throttled_nanoseconds(&self) -> Option<f64> {
        let groups = ProcessCgroups::of_process(FileRoot::new(&self.root), &self.process.to_string()).ok()?;
        cpu_throttling(&groups).map(|throttling| throttling.microseconds as f64 * 1e3)
    }

    /// Its threads in uninterruptible sleep, now, of at most this many of each process: they wait for a disk, or for a lock in the kernel.
    pub fn blocked(&self, max_threads: usize) -> u32 {
        let root = FileRoot::new(&self.root);
        ProcessTree::read(root, self.process, self.with_descendants).map_or(0, |tree| tree.blocked(root, max_threads))
    }

    /// What has been used until now.
    ///
    /// # Errors
    /// [`Error::NoProcess`].
    pub fn sample(&mut self) -> Result<ResourceSnapshot, Error> {
        let root = FileRoot::new(&self.root);
        let tree =
            ProcessTree::read(root, self.process, self.with_descendants).ok_or(Error::NoProcess(self.process))?;
        let groups = ProcessCgroups::of_process(root, &self.process.to_string()).ok();
        let affinity = allowed_cpus(root, Some(self.process));
        Ok(ResourceSnapshot {
            at: kelvin_sys::clock::monotonic() as f64,
            process: tree.usage(root, &mut self.threads),
            cpu: host::cpu(root, groups.as_ref(), affinity.get().map_or(&[], Vec::as_slice)),
            disks: disks::read_disks(root, self.disk.as_deref(), groups.as_ref()),
            links: links::read_links(root, self.process, &mut self.link_facts),
            tcp: links::tcp(root, self.process),
            memory: host::memory(root),
            pressure: host::pressure(root),
            server: None,
        })
    }
}
