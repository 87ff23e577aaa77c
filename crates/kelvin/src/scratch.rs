//! The directory in which probes may make files: locked while it is used, removed afterwards, and swept up by the next
//! start if it could not be.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::fault::Fault;

/// A scratch directory of this process; removed when dropped.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    /// Held for as long as the directory is in use; the kernel releases it however this process ends.
    _lock: Option<File>,
}

const PREFIX: &str = "kelvin-scratch-";
const REMOTE_PREFIX: &str = "kelvin-remote-";
const LOCK: &str = "lock";
/// A name that changes whenever the system is started (random(4)).
const BOOT: &str = "/proc/sys/kernel/random/boot_id";
/// What process numbers are counted in: a container has its own.
const PROCESSES: &str = "/proc/self/ns/pid";

/// Where and when process numbers mean the same: one start of one system, and in it one namespace of processes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Host {
    boot: String,
    namespace: String,
}

impl Host {
    /// This one; the reason, where it cannot be told.
    fn here() -> io::Result<Self> {
        let boot = fs::read_to_string(BOOT)?.trim().replace('-', "");
        // `pid:[4026531836]`
        let link = fs::read_link(PROCESSES)?;
        let namespace: String = link.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
        Ok(Self { boot, namespace })
    }
}

/// Who made a scratch directory, as its name says.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Maker {
    host: Host,
    process: u32,
}

impl Maker {
    fn name(&self) -> String {
        format!("{PREFIX}{}-{}-{}", self.host.boot, self.host.namespace, self.process)
    }

    /// Who made the directory of this name, if that can be told.
    fn of(name: &str) -> Option<Self> {
        let (boot, rest) = name.strip_prefix(PREFIX)?.split_once('-')?;
        let (namespace, process) = rest.split_once('-')?;
        let host = Host { boot: boot.to_owned(), namespace: namespace.to_owned() };
        Some(Self { host, process: process.parse().ok()? })
    }

    fn is_gone(&self) -> bool {
        !Path::new(&format!("/proc/{}", self.process)).exists()
    }
}

impl Scratch {
    /// Makes a fresh directory below `base`, after removing those that dead processes left there.
    /// `argument` is what chose it on the command line.
    pub fn create(base: &Path, argument: &str) -> Result<Self, Fault> {
        let base = whole(base, argument)?;
        let failed = |error| cannot_make(&base, argument, error);
        let host = Host::here().map_err(failed)?;
        // Where nothing can be told of a file system, others may use it.
        let reach = match kelvin_sys::fs::kind(&base) {
            Ok(kind) if kind.is_of_one_machine() => Reach::OneMachine,
            _ => Reach::Several,
        };
        sweep(&base, &host, reach);
        let path = base.join(Maker { host, process: std::process::id() }.name());
        let make = || -> io::Result<Option<File>> {
            fs::create_dir(&path)?;
            if reach == Reach::Several {
                return Ok(None);
            }
            let lock = File::create(path.join(LOCK))?;
            lock.try_lock()?;
            Ok(Some(lock))
        };
        let lock = make().map_err(failed)?;
        Ok(Self { path, _lock: lock })
    }

    /// Makes a fresh directory below `base`, which other machines may use as well: without a lock, which not every
    /// network file system has or shows to all, and so without removing what others left there.
    pub fn create_remote(base: &Path) -> Result<Self, Fault> {
        let base = whole(base, "--remote")?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let path = base.join(format!("{REMOTE_PREFIX}{}-{:x}", std::process::id(), now.as_nanos()));
        fs::create_dir(&path).map_err(|error| cannot_make(&base, "--remote", error))?;
        Ok(Self { path, _lock: None })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// The whole path of a directory: what is relative now would be elsewhere for a process that goes to another directory.
fn whole(base: &Path, argument: &str) -> Result<PathBuf, Fault> {
    fs::canonicalize(base).map_err(|error| Fault::new(format!("{argument} {}", base.display()), error))
}

fn cannot_make(base: &Path, argument: &str, error: io::Error) -> Fault {
    let place = base.display();
    Fault::new(format!("cannot make a scratch directory in {place} (choose another by {argument})"), error)
}

/// Who may use a file system at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// This machine alone: a lock that is held is seen, and is gone when the system was started anew.
    OneMachine,
    /// Other machines as well, whose locks need not be seen here, and of whose processes nothing is known.
    Several,
}

/// Removes scratch directories whose makers are certainly gone. What cannot be removed belongs to someone else.
fn sweep(base: &Path, host: &Host, reach: Reach) {
    let Ok(entries) = fs::read_dir(base) else { return };
    for entry in entries.flatten() {
        let ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
        let directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if ours && directory && is_abandoned(&entry.path(), host, reach) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Whether nobody uses a scratch directory.
fn is_abandoned(path: &Path, host: &Host, reach: Reach) -> bool {
    let maker = Maker::of(&path.file_name().unwrap_or_default().to_string_lossy());
    match (reach, File::open(path.join(LOCK))) {
        (Reach::OneMachine, Ok(lock)) => lock.try_lock().is_ok(),
        // Without its lock it is being made or removed, unless who did so is gone.
        (Reach::OneMachine, Err(_)) => {
            maker.is_some_and(|maker| maker.host.boot != host.boot || (maker.host == *host && maker.is_gone()))
        }
        (Reach::Several, _) => maker.is_some_and(|maker| maker.host == *host && maker.is_gone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process number that no process has.
    const NOBODY: u32 = 4_194_999;

    fn maker(boot: &str, process: u32) -> Maker {
        Maker { host: Host { boot: boot.into(), ..Host::here().unwrap() }, process }
    }

    fn made(base: &Path, name: &str, lock: bool) -> PathBuf {
        let path = base.join(name);
        fs::create_dir(&path).unwrap();
        fs::write(path.join("data"), "x").unwrap();
        if lock {
            fs::write(path.join(LOCK), "").unwrap();
        }
        path
    }

    #[test]
    fn what_a_dead_process_left_is_removed_and_what_is_in_use_is_not() {
        let base = tempfile::tempdir().unwrap();
        let dead = made(base.path(), &maker(&Host::here().unwrap().boot, NOBODY).name(), true);
        let foreign = made(base.path(), "something-else", false);
        let scratch = Scratch::create(base.path(), "--dir").unwrap();
        assert!(!dead.exists());
        assert!(foreign.exists());
        let host = Host::here().unwrap();
        sweep(base.path(), &host, Reach::OneMachine);
        sweep(base.path(), &host, Reach::Several);
        assert!(scratch.path().exists());
        let path = scratch.path().to_owned();
        let remote = Scratch::create_remote(base.path()).unwrap();
        sweep(base.path(), &host, Reach::OneMachine);
        assert!(remote.path().exists() && remote.path() != path);
        drop(remote);
        drop(scratch);
        assert!(!path.exists());
    }

    #[test]
    fn where_other_machines_write_only_what_this_one_left_is_removed() {
        let host = Host::here().unwrap();
        let elsewhere = "0123456789abcdef0123456789abcdef";
        let container = Maker { host: Host { namespace: "1".into(), ..host.clone() }, process: NOBODY };
        let names = [
            maker(&host.boot, NOBODY).name(),
            maker(&host.boot, std::process::id()).name(),
            // Of another machine, or of this one before it was started anew: nothing tells which.
            maker(elsewhere, NOBODY).name(),
            container.name(),
            // Of another making.
            format!("{PREFIX}{NOBODY}"),
        ];
        // No lock that another machine holds is seen: to look at these, all are free.
        let left = |reach, lock| -> Vec<bool> {
            let base = tempfile::tempdir().unwrap();
            let paths: Vec<PathBuf> = names.iter().map(|name| made(base.path(), name, lock)).collect();
            sweep(base.path(), &host, reach);
            paths.iter().map(|path| path.exists()).collect()
        };
        assert_eq!(left(Reach::Several, true), [false, true, true, true, true]);
        assert_eq!(left(Reach::Several, false), [false, true, true, true, true]);
        // On a disk of this machine a lock that is free says enough, and so does another start of the system.
        assert_eq!(left(Reach::OneMachine, true), [false; 5]);
        assert_eq!(left(Reach::OneMachine, false), [false, true, false, true, true]);
    }

    #[test]
    fn a_name_tells_who_made_it() {
        let maker = maker("00ff", 7);
        assert_eq!(Maker::of(&maker.name()), Some(maker.clone()));
        assert!(maker.host.namespace.len() > 5 && Host::here().unwrap().boot.len() == 32, "{maker:?}");
        for other in ["kelvin-scratch-7", "kelvin-scratch-", "kelvin-scratch-a-b", "kelvin-scratch-a-b-c", "x-a-b-7"] {
            assert_eq!(Maker::of(other), None, "{other}");
        }
    }
}
