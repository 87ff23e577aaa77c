//! The directory that is served: what is found below it, and never anything else.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use http::StatusCode;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat2, readlink, readlinkat};
use rustix::io::Errno;

use crate::serve::decoded_path::DecodedPath;
use crate::serve::error::{Error, Result};

/// How every path is resolved: no link, `..` or mount of another root leads out, and none of /proc's links is followed.
const RESOLVE_BENEATH: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);
/// How files are opened: one that has become something else meanwhile must not make the server wait.
const OPEN_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);
/// How often a path is resolved again while somebody renames what it goes through (openat2 returns EAGAIN).
const MAX_RESOLVE_TRIES: usize = 8;

/// Links that one path may go through, as the kernel has it (path_resolution(7)).
const MAX_SYMLINKS: usize = 40;

/// The directory that is served.
#[derive(Debug)]
pub struct DocumentRoot {
    directory: OwnedFd,
    /// Its absolute path, as it was given.
    pub path: PathBuf,
}

/// What is under a path.
#[derive(Debug)]
pub enum RootEntry {
    /// A regular file, opened, and its facts.
    File(File, FileIdentity),
    /// A directory.
    Directory,
}

/// What distinguishes one state of a file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIdentity {
    device_and_inode: (u64, u64),
    /// Its size in bytes.
    pub size: u64,
    /// Its last modification, in seconds and nanoseconds since 1970.
    pub modified: (i64, u32),
    ctime: (i64, u32),
}

impl FileIdentity {
    /// Of an open file.
    ///
    /// # Errors
    /// Those of fstat.
    pub fn of_file(file: &File) -> std::io::Result<Self> {
        Ok(Self::from_stat(&fstat(file)?))
    }

    // The fields have other widths on other targets.
    #[allow(clippy::unnecessary_cast, clippy::useless_conversion)]
    fn from_stat(facts: &Stat) -> Self {
        Self {
            device_and_inode: (facts.st_dev.into(), facts.st_ino.into()),
            size: u64::try_from(facts.st_size).unwrap_or(0),
            modified: (facts.st_mtime as i64, facts.st_mtime_nsec as u32),
            ctime: (facts.st_ctime as i64, facts.st_ctime_nsec as u32),
        }
    }
}

impl DocumentRoot {
    /// Opens it.
    ///
    /// # Errors
    /// A path that is no directory; a kernel without openat2.
    pub fn open(path: &Path) -> Result<Self> {
        let absolute_path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let root = Self { directory: Self::open_path(path)?, path: absolute_path };
        root.open_below(&DecodedPath::default(), OFlags::PATH).map_err(|error| Error::NoOpenat2(error.into()))?;
        Ok(root)
    }

    fn open_path(path: &Path) -> Result<OwnedFd> {
        let root_error = |error: Errno| Error::Root(path.to_owned(), error.into());
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::open(path, flags, Mode::empty()).map_err(root_error)
    }

    /// Opens what its path names now: another directory may have been put there, or mounted. All threads look below that from their next
    /// request on.
    ///
    /// # Errors
    /// A path that is no directory any more: the one that was opened before stays.
    pub fn reopen(&self) -> Result<()> {
        let directory = Self::open_path(&self.path)?;
        kelvin_sys::fs::replace_descriptor(&self.directory, &directory).map_err(Error::call("replace the directory"))
    }

    /// What is under a path.
    ///
    /// A path is looked at before what it names is opened: opening a pipe or a device can have effects of its own.
    ///
    /// # Errors
    /// What is answered if there is nothing that may be served.
    pub fn find(&self, target: &DecodedPath) -> std::result::Result<RootEntry, StatusCode> {
        let open = |flags: OFlags| -> std::result::Result<_, StatusCode> {
            let file = self.open_below(target, flags).map_err(status_of_error)?;
            let facts = fstat(&file).map_err(status_of_error)?;
            Ok((file, FileType::from_raw_mode(facts.st_mode), facts))
        };
        match open(OFlags::PATH | OFlags::CLOEXEC)?.1 {
            FileType::Directory => return Ok(RootEntry::Directory),
            FileType::RegularFile if target.is_directory => return Err(StatusCode::NOT_FOUND),
            FileType::RegularFile => {}
            _ => return Err(StatusCode::FORBIDDEN),
        }
        match open(OPEN_FLAGS)? {
            (file, FileType::RegularFile, facts) => Ok(RootEntry::File(file.into(), FileIdentity::from_stat(&facts))),
            _ => Err(StatusCode::FORBIDDEN),
        }
    }

    /// Opens a directory to list it.
    ///
    /// # Errors
    /// What is answered if that is not possible.
    pub fn open_directory(&self, target: &DecodedPath) -> std::result::Result<OwnedFd, StatusCode> {
        self.open_below(target, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC).map_err(status_of_error)
    }

    fn open_below(&self, target: &DecodedPath, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        match self.open_beneath(target.path(), flags) {
            // A link out of the root, or one with a path from the top, which may lead back into it.
            Err(Errno::XDEV) => self.open_through_links(target.path(), flags),
            opened => opened,
        }
    }

    /// Opens what is below, where links may have paths from the top that begin with that of the root. Each of them is replaced by what
    /// follows there, and all else is left to the kernel, so that nothing outside is opened here either.
    fn open_through_links(&self, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let mut path = path.to_owned();
        for _ in 0..MAX_SYMLINKS {
            path = self.resolve_first_link(&path)?.ok_or(Errno::XDEV)?;
            match self.open_beneath(&path, flags) {
                Err(Errno::XDEV) => {}
                opened => return opened,
            }
        }
        Err(Errno::LOOP)
    }

    /// The path with what the first link on it leads to in its place; `None` if it has none.
    fn resolve_first_link(&self, path: &Path) -> rustix::io::Result<Option<PathBuf>> {
        let components: Vec<Component<'_>> = path.components().collect();
        for number in 0..components.len() {
            let link: PathBuf = components[..=number].iter().collect();
            let descriptor = self.open_beneath(&link, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC)?;
            if FileType::from_raw_mode(fstat(&descriptor)?.st_mode) != FileType::Symlink {
                continue;
            }
            let link_target = readlinkat(&descriptor, "", Vec::new())?;
            let link_target = Path::new(OsStr::from_bytes(link_target.to_bytes()));
            let rest: PathBuf = components[number + 1..].iter().collect();
            let target = match link_target.is_absolute() {
                true => self.strip_root(link_target).ok_or(Errno::XDEV)?,
                false => link.parent().unwrap_or(Path::new("")).join(link_target),
            };
            // An empty name would ask for a directory.
            let path = if rest.as_os_str().is_empty() { target } else { target.join(rest) };
            return Ok(Some(if path.as_os_str().is_empty() { PathBuf::from(".") } else { path }));
        }
        Ok(None)
    }

    /// What follows the path of the root, as it was given or as it is now.
    fn strip_root(&self, path: &Path) -> Option<PathBuf> {
        let current_path = || readlink(format!("/proc/self/fd/{}", self.directory.as_raw_fd()), Vec::new()).ok();
        let relative_to = |root: &Path| path.strip_prefix(root).ok().map(Path::to_owned);
        relative_to(&self.path).or_else(|| relative_to(Path::new(OsStr::from_bytes(current_path()?.to_bytes()))))
    }

    fn open_beneath(&self, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let open = || openat2(&self.directory, path, flags, Mode::empty(), RESOLVE_BENEATH);
        (1..MAX_RESOLVE_TRIES)
            .find_map(|_| Some(open()).filter(|result| !matches!(result, Err(Errno::AGAIN))))
            .unwrap_or_else(open)
    }
}

/// What is answered where a call failed. A link that leads out (EXDEV) leads nowhere, as far as a client can see.
fn status_of_error(error: Errno) -> StatusCode {
    match error {
        Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NAMETOOLONG | Errno::XDEV | Errno::NXIO => {
            StatusCode::NOT_FOUND
        }
        Errno::ACCESS | Errno::PERM => StatusCode::FORBIDDEN,
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    fn find(root: &DocumentRoot, path: &str) -> std::result::Result<u64, u16> {
        match root.find(&DecodedPath::decode(path).unwrap()) {
            Ok(RootEntry::File(_, identity)) => Ok(identity.size),
            Ok(RootEntry::Directory) => Ok(u64::MAX),
            Err(status) => Err(status.as_u16()),
        }
    }

    #[test]
    fn only_regular_files_are_found() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("root");
        fs::create_dir_all(directory.join("sub")).unwrap();
        fs::write(parent.path().join("outside"), "secret").unwrap();
        fs::write(directory.join("a"), "abc").unwrap();
        fs::write(directory.join("sub/b"), "b").unwrap();
        symlink("../a", directory.join("sub/within")).unwrap();
        symlink("../outside", directory.join("out")).unwrap();
        symlink(parent.path().join("outside"), directory.join("absolute")).unwrap();
        symlink(parent.path(), directory.join("above")).unwrap();
        symlink(directory.join("a"), directory.join("from-top")).unwrap();
        symlink(directory.join("sub"), directory.join("sub/itself")).unwrap();
        symlink("../from-top", directory.join("sub/twice")).unwrap();
        symlink(&directory, directory.join("sub/root")).unwrap();
        symlink(directory.join("sub/../../outside"), directory.join("round")).unwrap();
        symlink(directory.join("cycle"), directory.join("cycle")).unwrap();
        fs::create_dir(parent.path().join("root-of-others")).unwrap();
        fs::write(parent.path().join("root-of-others/secret"), "secret").unwrap();
        symlink(parent.path().join("root-of-others/secret"), directory.join("neighbour")).unwrap();
        symlink("/proc/self/root", directory.join("magic")).unwrap();
        symlink("loop", directory.join("loop")).unwrap();
        let _socket = UnixListener::bind(directory.join("socket")).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, directory.join("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        let root = DocumentRoot::open(&directory).unwrap();
        for (path, expected) in [
            ("/a", Ok(3)),
            ("/sub/b", Ok(1)),
            ("/sub/within", Ok(3)),
            ("/", Ok(u64::MAX)),
            ("/sub", Ok(u64::MAX)),
            ("/a/", Err(404)),
            ("/a/b", Err(404)),
            ("/none", Err(404)),
            ("/out", Err(404)),
            ("/absolute", Err(404)),
            ("/above/outside", Err(404)),
            ("/from-top", Ok(3)),
            ("/sub/itself/b", Ok(1)),
            ("/sub/itself/itself/within", Ok(3)),
            ("/sub/twice", Ok(3)),
            ("/sub/root/sub", Ok(u64::MAX)),
            ("/sub/root", Ok(u64::MAX)),
            ("/sub/root/out", Err(404)),
            ("/sub/itself/none", Err(404)),
            ("/round", Err(404)),
            ("/cycle", Err(404)),
            ("/neighbour", Err(404)),
            ("/magic/etc/passwd", Err(404)),
            ("/loop", Err(404)),
            ("/socket", Err(403)),
            ("/pipe", Err(403)),
        ] {
            assert_eq!(find(&root, path), expected, "{path}");
        }
        assert_eq!(find(&root, &format!("/{}", "a".repeat(300))), Err(404));
    }

    #[test]
    fn absolute_link_resolves_within_root() {
        let parent = tempfile::tempdir().unwrap();
        let (directory, other) = (parent.path().join("root"), parent.path().join("other"));
        fs::create_dir(&directory).unwrap();
        symlink(&directory, &other).unwrap();
        fs::write(directory.join("a"), "abc").unwrap();
        symlink(directory.join("a"), directory.join("by-path")).unwrap();
        symlink(other.join("a"), directory.join("by-other")).unwrap();
        let root = DocumentRoot::open(&other).unwrap();
        assert_eq!([find(&root, "/by-path"), find(&root, "/by-other")], [Ok(3); 2]);
        let root = DocumentRoot::open(&directory).unwrap();
        assert_eq!([find(&root, "/by-path"), find(&root, "/by-other")], [Ok(3), Err(404)]);
        fs::rename(&directory, parent.path().join("moved")).unwrap();
        assert_eq!(find(&root, "/a"), Ok(3));
    }

    #[test]
    fn invalid_root_is_an_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error_text = |path: &Path| DocumentRoot::open(path).unwrap_err().to_string();
        assert!(error_text(file.path()).ends_with("Not a directory (os error 20)"), "{}", error_text(file.path()));
        assert!(error_text(Path::new("/no such directory")).starts_with("/no such directory: No such file"));
    }

    #[test]
    fn changed_file_has_other_identity() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let before = FileIdentity::of_file(file.as_file()).unwrap();
        assert_eq!(FileIdentity::of_file(file.as_file()).unwrap(), before);
        fs::write(file.path(), "x").unwrap();
        assert_ne!(FileIdentity::of_file(file.as_file()).unwrap(), before);
    }
}
