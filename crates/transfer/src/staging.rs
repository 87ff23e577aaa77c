//! Small files, of which there may be many: each is made in a hidden directory beside its place, and renamed when it is whole.
//!
//! That directory is locked, so that the files in it need no lock of their own, and inherits what files in its place would:
//! group and access control list. What a killed receiver leaves of it is removed by the next one.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kelvin_file::Error as FileError;
use kelvin_file::temporary::{Scratch, reach};
use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::deposit::describe;
use crate::expected;
use crate::message::{Entry, EntryKind, Modified};
use crate::name::Name;
use crate::tree::{Held, RIGHTS};
use crate::{Error, Result};

/// Where the process's umask is found: the last word of its line.
const STATUS: &str = "/proc/self/status";
const UMASK: &str = "Umask:";

/// A directory beside the places of files.
#[derive(Debug)]
pub struct Staging {
    /// Removed before the directory is closed by which it is reached.
    scratch: Scratch,
    held: Arc<Held>,
    /// How many files were made in it.
    made: AtomicU64,
    /// Permissions that a new file does not get.
    umask: u32,
}

/// A small file, all of it.
#[derive(Clone, Copy, Debug)]
pub struct Small<'a> {
    /// What was offered.
    pub entry: &'a Entry,
    /// Its bytes.
    pub content: &'a [u8],
    /// Where it goes, in words.
    pub path: &'a Path,
    /// Whether it is flushed to its device.
    pub sync: bool,
}

impl Staging {
    /// Makes it.
    ///
    /// # Errors
    /// Those of making a directory.
    pub fn beside(held: &Arc<Held>) -> std::io::Result<Self> {
        let scratch = Scratch::make_hidden(&reach(&held.directory))?;
        Ok(Self { held: Arc::clone(held), scratch, made: AtomicU64::new(0), umask: umask() })
    }

    /// Makes a file, and gives it its name if there is nothing under it.
    ///
    /// # Errors
    /// Those of writing; something under its name. Then nothing is left of it.
    pub fn put(&self, small: &Small<'_>) -> Result<()> {
        let name = self.made.fetch_add(1, Ordering::Relaxed).to_string();
        let put = self.make(&name, small).and_then(|()| self.rename(&name, small));
        if put.is_err() {
            // What cannot be removed is removed with the directory.
            let _ = rustix::fs::unlinkat(self.scratch.directory(), &name, AtFlags::empty());
        }
        put
    }

    /// What making a small file costs beside its bytes, in nanoseconds of CPU time: several are made, and renamed where they are.
    ///
    /// # Errors
    /// Those of making them.
    pub fn cost(&self) -> Result<u64> {
        let name = Name::try_from(b"small".to_vec()).map_err(Error::Nonsense)?;
        let kind = EntryKind::File { bytes: 0, stored: 0 };
        let modified = Modified { seconds: 1, nanoseconds: 0 };
        let entry = Entry { parent: 0, name, kind, mode: 0o644, modified, owner: None, attributes: Vec::new() };
        let small = Small { entry: &entry, content: &[], path: self.scratch.path(), sync: false };
        let directory = self.scratch.directory();
        let one = |number: usize| {
            let (made, renamed) = (format!("cost-{number}"), format!("renamed-{number}"));
            self.make(&made, &small)?;
            let renamed = rustix::fs::renameat_with(directory, made, directory, renamed, RenameFlags::NOREPLACE);
            Ok(renamed.map_err(|error| FileError::call("rename in", self.scratch.path(), error.into()))?)
        };
        let mut failed = None;
        let spent = expected::cpu_time(|| {
            failed = (0..expected::FILES).try_for_each(one).err();
            Ok(())
        });
        let failed = failed.map_or(Ok(()), Err);
        let unknown = |error| FileError::call("time", self.scratch.path(), error);
        failed.and(Ok(spent.map_err(unknown)? / expected::FILES as u64))
    }

    fn make(&self, name: &str, small: &Small<'_>) -> Result<()> {
        let Small { entry, path, .. } = *small;
        let failed = |doing| move |error: std::io::Error| FileError::call(doing, path, error);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(entry.mode & RIGHTS);
        let made = rustix::fs::openat(self.scratch.directory(), name, flags, mode);
        let mut file = File::from(made.map_err(|error| failed("make a file beside")(error.into()))?);
        file.write_all(small.content).map_err(failed("write"))?;
        if entry.mode & RIGHTS & self.umask != 0 {
            rustix::fs::fchmod(&file, mode).map_err(|error| failed("keep the permissions of")(error.into()))?;
        }
        describe(&file, path, entry)?;
        if small.sync {
            file.sync_all().map_err(failed("flush"))?;
        }
        Ok(())
    }

    fn rename(&self, name: &str, small: &Small<'_>) -> Result<()> {
        let (from, to) = (self.scratch.directory(), &*self.held.directory);
        let final_name = small.entry.name.as_os_str();
        let renamed = match rustix::fs::renameat_with(from, name, to, final_name, RenameFlags::NOREPLACE) {
            // A file system that cannot rename without replacing can link.
            Err(Errno::INVAL | Errno::NOSYS) => rustix::fs::linkat(from, name, to, final_name, AtFlags::empty())
                .and_then(|()| rustix::fs::unlinkat(from, name, AtFlags::empty())),
            renamed => renamed,
        };
        Ok(renamed.map_err(|error| match error {
            Errno::EXIST => FileError::Exists { path: small.path.to_owned() },
            error => FileError::call("put a file in the place of", small.path, error.into()),
        })?)
    }
}

/// The process's umask; all permissions where it is unknown, so that each is set.
fn umask() -> u32 {
    let status = std::fs::read_to_string(STATUS).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(UMASK));
    line.and_then(|octal| u32::from_str_radix(octal.trim(), 8).ok()).unwrap_or(RIGHTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_umask_is_known() {
        assert!(umask() < RIGHTS, "{:o}", umask());
    }
}
