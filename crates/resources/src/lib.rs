//! What a host, and a server or client on it, have used until now, from /proc and /sys.
//!
//! Everything is read below a root directory: `/` for this machine, or a recorded tree. Nothing here panics on the content of a file.
#![forbid(unsafe_code)]

mod disks;
#[cfg(test)]
mod fuzz;
mod host;
mod links;
mod process;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use kelvin_machine::cgroups::Groups;
use kelvin_machine::text::Root;
use kelvin_model::resources::Look;

use crate::links::Known;
use crate::process::{Family, Scope, Threads};

/// Why there is no look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The process is not there.
    #[error("process {0} has ended, or cannot be seen here")]
    Gone(u32),
}

/// A process that is looked at several times, and its host.
#[derive(Debug)]
pub struct Watched {
    root: PathBuf,
    process: u32,
    /// The disk that the directory lies on.
    disk: Option<String>,
    /// What its threads had used, so that nothing is lost when they end.
    threads: Threads,
    /// Whether what it has started counts as well.
    scope: Scope,
    /// What does not change about interfaces.
    links: BTreeMap<String, Known>,
}

impl Watched {
    /// A process of this machine, and a directory that it serves.
    pub fn new(process: u32, directory: Option<&Path>) -> Self {
        let disk = directory.and_then(|directory| disks::below(Path::new("/"), directory));
        Self::within(Path::new("/"), process, disk)
    }

    /// This process.
    pub fn own(directory: Option<&Path>) -> Self {
        Self::new(std::process::id(), directory)
    }

    /// A process of the machine whose files are below a root directory, and the disk that it serves from.
    pub fn within(root: &Path, process: u32, disk: Option<String>) -> Self {
        Self {
            root: root.to_owned(),
            process,
            disk,
            threads: Threads::default(),
            scope: Scope::Family,
            links: BTreeMap::new(),
        }
    }

    /// The process by itself, without what it has started.
    #[must_use]
    pub fn alone(self) -> Self {
        Self { scope: Scope::Alone, ..self }
    }

    /// The process, and those that it has started, by their numbers.
    pub fn processes(&self) -> Vec<u32> {
        Family::read(Root::new(&self.root), self.process, self.scope).map_or_else(Vec::new, |family| family.numbers())
    }

    /// Nanoseconds for which quotas of CPU time have kept it from running; `None` without any.
    pub fn throttled(&self) -> Option<f64> {
        let groups = Groups::of(Root::new(&self.root), &self.process.to_string()).ok()?;
        host::throttled_for(&groups)
    }

    /// Its threads in uninterruptible sleep, now, of at most so many of each process: they wait for a disk, or for a lock in the kernel.
    pub fn blocked(&self, most: usize) -> u32 {
        let root = Root::new(&self.root);
        Family::read(root, self.process, self.scope).map_or(0, |family| family.blocked(root, most))
    }

    /// What has been used until now.
    ///
    /// # Errors
    /// [`Error::Gone`].
    pub fn look(&mut self) -> Result<Look, Error> {
        let root = Root::new(&self.root);
        let family = Family::read(root, self.process, self.scope).ok_or(Error::Gone(self.process))?;
        let groups = Groups::of(root, &self.process.to_string()).ok();
        Ok(Look {
            at: kelvin_sys::clock::monotonic() as f64,
            process: family.used(root, &mut self.threads),
            cpu: host::cpu(root, groups.as_ref(), &process::allowed(root, self.process)),
            disks: disks::all(root, self.disk.as_deref(), groups.as_ref()),
            links: links::all(root, self.process, &mut self.links),
            tcp: links::tcp(root, self.process),
            memory: host::memory(root),
            pressure: host::pressure(root),
            served: None,
        })
    }
}
