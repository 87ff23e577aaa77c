//! A file, or a link, gets a name under which nothing is, on every file system: nothing of others is ever replaced.

use std::ffi::OsStr;
use std::path::Path;

use rustix::fd::BorrowedFd;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags};
use rustix::io::{Errno, Result};

/// A name, from a directory.
#[derive(Clone, Copy, Debug)]
pub struct PathAt<'a> {
    directory: BorrowedFd<'a>,
    path: &'a Path,
}

impl<'a> PathAt<'a> {
    /// In a directory that is held open.
    pub fn in_directory(directory: BorrowedFd<'a>, name: &'a (impl AsRef<OsStr> + ?Sized)) -> Self {
        Self { directory, path: Path::new(name) }
    }

    /// From the working directory.
    pub fn in_working_directory(path: &'a Path) -> Self {
        Self { directory: CWD, path }
    }

    fn remove(self) -> Result<()> {
        rustix::fs::unlinkat(self.directory, self.path, AtFlags::empty())
    }
}

/// Renames a file or a link to a name under which nothing is, in one step where the file system can. It is by a rename that replaces
/// nothing, or by a second link to it. Where it can neither, as many behind FUSE, an empty file of our own claims the name first, and
/// is replaced.
///
/// # Errors
/// EEXIST if something is there; those of the last step that there is. Then it has its first name.
pub fn rename_noreplace(from: PathAt<'_>, to: PathAt<'_>) -> Result<()> {
    match rustix::fs::renameat_with(from.directory, from.path, to.directory, to.path, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS) => rename_by_link(from, to),
        renamed => renamed,
    }
}

fn rename_by_link(from: PathAt<'_>, to: PathAt<'_>) -> Result<()> {
    match rustix::fs::linkat(from.directory, from.path, to.directory, to.path, AtFlags::empty()) {
        Ok(()) => {
            // It is in its place; a first name that stays is swept as those of the dead are.
            let _ = from.remove();
            Ok(())
        }
        Err(Errno::EXIST) => Err(Errno::EXIST),
        // Each program behind FUSE has another error for what it cannot do, EROFS among them.
        Err(_) => rename_by_claim(from, to),
    }
}

fn rename_by_claim(from: PathAt<'_>, to: PathAt<'_>) -> Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    drop(rustix::fs::openat(to.directory, to.path, flags, Mode::RUSR | Mode::WUSR)?);
    rustix::fs::renameat(from.directory, from.path, to.directory, to.path).inspect_err(|_| {
        // Anything else there is another's.
        let metadata = rustix::fs::statat(to.directory, to.path, AtFlags::SYMLINK_NOFOLLOW);
        let is_empty_file = |mode, size| FileType::from_raw_mode(mode) == FileType::RegularFile && size == 0;
        if metadata.is_ok_and(|metadata| is_empty_file(metadata.st_mode, metadata.st_size)) {
            let _ = to.remove();
        }
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    /// The steps are the same to whoever calls them: each on its own.
    #[test]
    fn all_fallbacks_move_and_never_replace() {
        for step in [rename_noreplace, rename_by_link, rename_by_claim] {
            let directory = tempfile::tempdir().unwrap();
            let [first, last, existing] = ["first", "last", "taken"].map(|name| directory.path().join(name));
            fs::write(&first, "new").unwrap();
            fs::write(&existing, "old").unwrap();
            assert_eq!(
                step(PathAt::in_working_directory(&first), PathAt::in_working_directory(&existing)),
                Err(Errno::EXIST)
            );
            assert_eq!(names(directory.path()), ["first", "taken"]);
            step(PathAt::in_working_directory(&first), PathAt::in_working_directory(&last)).unwrap();
            assert_eq!((fs::read(&last).unwrap(), fs::read(&existing).unwrap()), (b"new".to_vec(), b"old".to_vec()));
            symlink("nowhere", &first).unwrap();
            assert_eq!(
                step(PathAt::in_working_directory(&first), PathAt::in_working_directory(&existing)),
                Err(Errno::EXIST)
            );
            step(PathAt::in_working_directory(&first), PathAt::in_working_directory(&directory.path().join("link")))
                .unwrap();
            assert_eq!(fs::read_link(directory.path().join("link")).unwrap(), Path::new("nowhere"));
            // What is not there leaves nothing where it should go.
            assert_eq!(
                step(
                    PathAt::in_working_directory(&first),
                    PathAt::in_working_directory(&directory.path().join("none"))
                ),
                Err(Errno::NOENT)
            );
            assert_eq!(names(directory.path()), ["last", "link", "taken"]);
        }
    }
}
