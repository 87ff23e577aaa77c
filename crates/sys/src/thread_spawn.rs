//! Starting threads where a limit may forbid it: an error names what was not started, and the limit.
//!
//! `std::thread::spawn` and the `spawn` of a scope panic there.

use std::path::{Path, PathBuf};
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};

use rustix::process::{Resource, getrlimit};

use crate::procfs::CgroupMembership;
use crate::{Error, Result};

/// A thread that is to be started.
#[derive(Clone, Copy, Debug)]
pub struct ThreadBuilder<'n> {
    name: &'n str,
    stack: Option<usize>,
}

impl<'n> ThreadBuilder<'n> {
    /// A thread of this name, which the system shows: its first 15 bytes.
    pub const fn named(name: &'n str) -> Self {
        Self { name, stack: None }
    }

    /// With a stack of this many bytes, instead of the usual 2 MiB.
    pub const fn stack_bytes(self, bytes: usize) -> Self {
        Self { stack: Some(bytes), ..self }
    }

    fn builder(self) -> Builder {
        let builder = Builder::new().name(self.name.to_owned());
        match self.stack {
            Some(bytes) => builder.stack_size(bytes),
            None => builder,
        }
    }

    /// Starts it.
    ///
    /// # Errors
    /// One that names the thread and the limit.
    pub fn start<T: Send + 'static>(self, work: impl FnOnce() -> T + Send + 'static) -> Result<JoinHandle<T>> {
        self.builder().spawn(work).map_err(|error| self.start_error(&error))
    }

    /// Starts it in a scope.
    ///
    /// # Errors
    /// As [`start`](Self::start). The scope waits for the threads that were started before: they must not wait for this one.
    pub fn start_in<'scope, T: Send + 'scope>(
        self,
        scope: &'scope Scope<'scope, '_>,
        work: impl FnOnce() -> T + Send + 'scope,
    ) -> Result<ScopedJoinHandle<'scope, T>> {
        self.builder().spawn_scoped(scope, work).map_err(|error| self.start_error(&error))
    }

    #[cold]
    pub(crate) fn start_error(self, error: &Error) -> Error {
        Error::other(format!("cannot start the thread {}: {}", self.name, with_limit(error, &TaskLimits::read())))
    }
}

/// The error of starting a process, with the limit where one was reached.
#[cold]
pub fn process_error(error: Error) -> Error {
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::ENOMEM) => Error::other(with_limit(&error, &TaskLimits::read())),
        _ => error,
    }
}

/// An error of starting a thread or a process, and the limit behind it.
fn with_limit(error: &Error, limits: &TaskLimits) -> String {
    match error.raw_os_error() {
        Some(libc::EAGAIN) => format!("{error}; {}", limits.describe_reached()),
        Some(libc::EPERM) => format!("{error}; a filter of system calls (seccomp), as of a container, forbids it"),
        Some(libc::ENOMEM) => format!("{error}; memory or address space is short"),
        _ => error.to_string(),
    }
}

/// What limits the number of threads and processes.
#[derive(Clone, Debug, Default)]
struct TaskLimits {
    /// Of the user, by RLIMIT_NPROC, if that holds for it.
    user: Option<u64>,
    /// Of control groups, the own one first.
    groups: Vec<GroupLimit>,
    /// Of the system.
    system: Option<u64>,
    /// Bytes of address space that are allowed, where no stack of a thread has room in them.
    address_space: Option<u64>,
}

/// The usual stack of a thread, and what the C library maps next to it.
const DEFAULT_STACK_BYTES: u64 = 4 << 20;

/// The limit of a control group.
#[derive(Clone, Debug, PartialEq, Eq)]
struct GroupLimit {
    file: PathBuf,
    limit: u64,
    /// How many there are.
    current: u64,
}

impl TaskLimits {
    fn read() -> Self {
        let number = |path: &str| std::fs::read_to_string(path).ok()?.trim().parse().ok();
        let memberships = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
        let pages = statm.split(' ').next().and_then(|pages| pages.parse::<u64>().ok());
        let mapped = pages.and_then(|pages| pages.checked_mul(crate::mapping::page_bytes() as u64));
        let leaves_no_stack = |limit: &u64| mapped.is_some_and(|mapped| mapped + DEFAULT_STACK_BYTES > *limit);
        Self {
            // It does not hold for root.
            user: getrlimit(Resource::Nproc).current.filter(|_| crate::fs::effective_user() != 0),
            groups: group_limits(&memberships, Path::new("/sys/fs/cgroup")),
            system: number("/proc/sys/kernel/threads-max"),
            address_space: getrlimit(Resource::As).current.filter(leaves_no_stack),
        }
    }

    /// The limit that was reached, or else the one that is likely: a count may have fallen since.
    fn describe_reached(&self) -> String {
        let exhausted_group = self.groups.iter().find(|group| group.current >= group.limit);
        // The C library reports a stack that cannot be mapped by the same number.
        if let (None, Some(bytes)) = (exhausted_group, self.address_space) {
            return format!("ulimit -v allows this process {} KiB of address space", bytes >> 10);
        }
        match (exhausted_group, self.user, self.groups.iter().min_by_key(|group| group.limit), self.system) {
            (Some(group), ..) | (None, None, Some(group), _) => {
                format!("{} allows {} threads and processes", group.file.display(), group.limit)
            }
            (None, Some(limit), ..) => format!("ulimit -u allows this user {limit} threads and processes"),
            (None, None, None, Some(limit)) => format!("kernel.threads-max allows {limit} threads"),
            (None, None, None, None) => "a limit of threads or processes is reached".to_owned(),
        }
    }
}

/// The limits of a process's control group and all above it, by its /proc/PID/cgroup (cgroups(7)) and the directory of the hierarchies.
fn group_limits(memberships: &str, root: &Path) -> Vec<GroupLimit> {
    let mut limits = Vec::new();
    for membership in memberships.lines().filter_map(CgroupMembership::parse) {
        let hierarchy = match () {
            () if membership.is_unified() => root.to_owned(),
            () if membership.has_controller("pids") => root.join(&membership.controllers),
            () => continue,
        };
        for group in Path::new(membership.path.trim_start_matches('/')).ancestors() {
            let number =
                |name: &str| std::fs::read_to_string(hierarchy.join(group).join(name)).ok()?.trim().parse::<u64>().ok();
            if let Some((limit, current)) = number("pids.max").zip(number("pids.current")) {
                limits.push(GroupLimit { file: hierarchy.join(group).join("pids.max"), limit, current });
            }
        }
    }
    limits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seccomp;

    #[test]
    fn thread_runs_under_its_name() {
        let thread_name = || std::thread::current().name().map(str::to_owned);
        let builder = ThreadBuilder::named("own").stack_bytes(64 << 10);
        assert_eq!(builder.start(thread_name).unwrap().join().unwrap().as_deref(), Some("own"));
        let scoped_name = std::thread::scope(|scope| builder.start_in(scope, thread_name).unwrap().join().unwrap());
        assert_eq!(scoped_name.as_deref(), Some("own"));
    }

    #[test]
    fn refused_thread_error_has_its_name() {
        let thread = ThreadBuilder::named("without").start(|| {
            // Either may be the call of the C library.
            seccomp::deny(libc::SYS_clone3).unwrap();
            seccomp::deny(libc::SYS_clone).unwrap();
            let error = ThreadBuilder::named("worker").start(|| ()).unwrap_err().to_string();
            let scoped_error =
                std::thread::scope(|scope| ThreadBuilder::named("worker").start_in(scope, || ()).unwrap_err());
            (error, scoped_error.to_string())
        });
        let (error, scoped_error) = thread.unwrap().join().unwrap();
        assert!(error.starts_with("cannot start the thread worker: ") && error.contains("seccomp"), "{error}");
        assert_eq!(error, scoped_error);
    }

    #[test]
    fn error_names_the_limit_that_was_reached() {
        let group =
            |name: &str, limit, current| GroupLimit { file: format!("/{name}/pids.max").into(), limit, current };
        let groups = |entries: &[GroupLimit]| TaskLimits { groups: entries.to_vec(), ..TaskLimits::default() };
        let user = TaskLimits { user: Some(7), ..groups(&[group("a", 20, 3)]) };
        for (limits, expected) in [
            (user.clone(), "ulimit -u allows this user 7 threads and processes"),
            (
                TaskLimits { groups: vec![group("a", 99, 9), group("b", 20, 20)], ..user },
                "/b/pids.max allows 20 threads and processes",
            ),
            (groups(&[group("a", 99, 9), group("b", 20, 3)]), "/b/pids.max allows 20 threads and processes"),
            (TaskLimits { system: Some(1000), ..TaskLimits::default() }, "kernel.threads-max allows 1000 threads"),
            (
                TaskLimits { address_space: Some(50_000 << 10), system: Some(1000), ..TaskLimits::default() },
                "ulimit -v allows this process 50000 KiB of address space",
            ),
            (TaskLimits::default(), "a limit of threads or processes is reached"),
        ] {
            let error = with_limit(&Error::from_raw_os_error(libc::EAGAIN), &limits);
            assert!(error.starts_with("Resource temporarily unavailable") && error.ends_with(expected), "{error}");
        }
        let error_for_number = |number| process_error(Error::from_raw_os_error(number));
        assert!(error_for_number(libc::ENOMEM).to_string().ends_with("memory or address space is short"));
        assert_eq!(error_for_number(libc::ENOENT).raw_os_error(), Some(libc::ENOENT));
    }

    #[test]
    fn group_limits_are_read_upwards() {
        let root = tempfile::tempdir().unwrap();
        let group = |path: &str, limit: &str, current: &str| {
            std::fs::create_dir_all(root.path().join(path)).unwrap();
            std::fs::write(root.path().join(path).join("pids.max"), limit).unwrap();
            std::fs::write(root.path().join(path).join("pids.current"), current).unwrap();
        };
        group("user.slice/own", "max\n", "3\n");
        group("user.slice", "500\n", "40\n");
        group("pids/docker/own", "100\n", "100\n");
        let limits = group_limits("0::/user.slice/own\n", root.path());
        assert_eq!(limits, [GroupLimit { file: root.path().join("user.slice/pids.max"), limit: 500, current: 40 }]);
        let first = group_limits("9:name=systemd:/x\n8:pids:/docker/own\n4:memory:/docker\n", root.path());
        assert_eq!(
            first,
            [GroupLimit { file: root.path().join("pids/docker/own/pids.max"), limit: 100, current: 100 }]
        );
        assert_eq!(group_limits("no line\n", root.path()), []);
    }
}
