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

impl Scratch {
    /// Makes a fresh directory below `base`, after removing those that dead processes left there.
    /// `argument` is what chose it on the command line.
    pub fn create(base: &Path, argument: &str) -> Result<Self, Fault> {
        let base = whole(base, argument)?;
        sweep(&base);
        let path = base.join(format!("{PREFIX}{}", std::process::id()));
        let make = || -> io::Result<File> {
            fs::create_dir(&path)?;
            let lock = File::create(path.join(LOCK))?;
            lock.try_lock()?;
            Ok(lock)
        };
        let lock = make().map_err(|error| cannot_make(&base, argument, error))?;
        Ok(Self { path, _lock: Some(lock) })
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

/// Removes scratch directories that nobody holds a lock on. What cannot be removed belongs to someone else.
fn sweep(base: &Path) {
    let Ok(entries) = fs::read_dir(base) else { return };
    for entry in entries.flatten() {
        let ours = entry.file_name().to_string_lossy().starts_with(PREFIX);
        let directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if ours && directory && is_abandoned(&entry.path()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Whether nobody uses a scratch directory. Without its lock file it is being made or removed: one of another age is
/// left alone until its process is gone.
fn is_abandoned(path: &Path) -> bool {
    match File::open(path.join(LOCK)) {
        Ok(lock) => lock.try_lock().is_ok(),
        Err(_) => {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let process = name.strip_prefix(PREFIX).unwrap_or_default();
            process.parse::<u32>().is_ok_and(|process| !Path::new(&format!("/proc/{process}")).exists())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_dead_process_left_is_removed_and_what_is_in_use_is_not() {
        let base = tempfile::tempdir().unwrap();
        let dead = base.path().join(format!("{PREFIX}4000000"));
        fs::create_dir(&dead).unwrap();
        fs::write(dead.join(LOCK), "").unwrap();
        fs::write(dead.join("data"), "x").unwrap();
        let foreign = base.path().join("something-else");
        fs::create_dir(&foreign).unwrap();
        let scratch = Scratch::create(base.path(), "--dir").unwrap();
        assert!(!dead.exists());
        assert!(foreign.exists());
        sweep(base.path());
        assert!(scratch.path().exists());
        let path = scratch.path().to_owned();
        let remote = Scratch::create_remote(base.path()).unwrap();
        sweep(base.path());
        assert!(remote.path().exists() && remote.path() != path);
        drop(remote);
        drop(scratch);
        assert!(!path.exists());
    }
}
