//! An output file that a user names: a report, an export, a figure.
//!
//! A regular file is replaced whole or not at all; behind a symbolic link, at its target, so that the link stays. Anything
//! else, a device or a pipe, is written to and stays what it is. So is what this process was given open, such as `/dev/stdout`,
//! of any kind: writing continues at its offset.

use std::fs::{self, File};
use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kelvin_sys::fs::{ENXIO, O_EXCL, O_NONBLOCK, inherited_writer, kind};

use crate::atomic_file::{AtomicFile, DANGLING_LINK, PinnedPath};
use crate::error::check_stop_signal;
use crate::target::special_kind;
use crate::temporary_files::{descriptor_path, open_path_only};
use crate::{Error, Result};

/// Most links in a chain: the kernel's own limit (path_resolution(7)).
const MAX_SYMLINKS: u32 = 40;
/// How often a pipe is checked for a reader.
const READER_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// An output file that a user names: checked, and not touched yet.
#[derive(Debug)]
pub struct OutputFile {
    place: Arc<PinnedPath>,
    /// Written in place; else the file is replaced.
    open: Option<File>,
}

impl OutputFile {
    /// Finds what a path leads to, and whether it can be written: before a long run, so that it is not made in vain. Waits
    /// until a pipe has a reader.
    ///
    /// # Errors
    /// A directory, a socket, a dangling link; a directory that does not exist or takes no new file; a file that may not be
    /// written, or that another user has put where everybody may put something.
    pub fn find(path: &Path) -> Result<Self> {
        let mut place = Arc::new(PinnedPath::open(path)?);
        for link_count in 0..MAX_SYMLINKS {
            let metadata = place.lookup()?;
            match &metadata {
                Some(link) if link.is_symlink() && !is_in_proc(&place) => {
                    place = Arc::new(place.follow_link()?);
                    continue;
                }
                None if link_count > 0 => break,
                _ => {}
            }
            let open = match metadata.as_ref().and_then(special_kind) {
                Some(kind) => Some(open(&place, kind)?),
                None => AtomicFile::create(&place, true).map(|_| None)?,
            };
            return Ok(Self { place, open });
        }
        Err(place.not_regular(DANGLING_LINK))
    }

    /// Writes what `content` produces, and flushes it, and its name, to its device.
    ///
    /// # Errors
    /// Those of writing; the old content then stays, unless it was written in place.
    pub fn write(self, content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
        self.write_content(content, true)
    }

    /// Like `write`, without flushing what is new: for what can be produced again if the machine crashes in this moment.
    ///
    /// # Errors
    /// As for [`OutputFile::write`].
    pub fn write_unflushed(self, content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
        self.write_content(content, false)
    }

    fn write_content(self, content: impl FnOnce(&mut dyn Write) -> io::Result<()>, is_flushed: bool) -> Result<()> {
        let Self { place, open } = self;
        let write = |file: &File| {
            let mut out = BufWriter::new(file);
            content(&mut out)?;
            out.flush()
        };
        let failed = |error| Error::call("write", place.path(), error);
        if let Some(open) = open {
            return match write(&open).and_then(|()| kelvin_sys::fs::close(open)) {
                // The reader of a pipe has left.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
                written => written.map_err(failed),
            };
        }
        let mut file = AtomicFile::create(&place, true)?;
        write(file.file()).map_err(failed)?;
        if !is_flushed {
            return file.commit();
        }
        file.flush()?;
        file.commit()?;
        place.flush_name()
    }
}

/// Checks that the directory of a file exists.
///
/// # Errors
/// That it does not; a path that can only be a directory's.
pub fn check_directory(path: &Path) -> Result<()> {
    PinnedPath::open(path).map(drop)
}

/// Whether something is in /proc, where a link leads to an open file, and not to a name.
fn is_in_proc(place: &PinnedPath) -> bool {
    kind(&place.directory()).is_ok_and(|kind| kind.name() == "proc")
}

/// Opens what is no regular file, or what a process has open.
fn open(place: &PinnedPath, kind: &'static str) -> Result<File> {
    let failed = |error| Error::call("open", place.path(), error);
    // A link of /proc to this process's own descriptor is named by its number.
    let process_directory = format!("/proc/{}", std::process::id());
    let is_own = |directory: &PathBuf| directory.starts_with(&process_directory) && directory.ends_with("fd");
    if fs::read_link(place.directory()).is_ok_and(|directory| is_own(&directory))
        && let Some(number) = place.name().to_str().and_then(|name| name.parse().ok())
    {
        return inherited_writer(number).map_err(failed);
    }
    if is_in_proc(place) {
        return open_at(place, &place.descriptor_path());
    }
    let descriptor = open_path_only(&place.descriptor_path()).map_err(failed)?;
    let file_type = descriptor.metadata().map_err(failed)?.file_type();
    if file_type.is_fifo() || file_type.is_char_device() || file_type.is_block_device() {
        return open_at(place, &descriptor_path(&descriptor));
    }
    Err(place.not_regular(kind))
}

/// Opens what a path leads to: a file at its end, a block device only if nothing is mounted from it, and a pipe once it has a
/// reader.
fn open_at(place: &PinnedPath, path: &Path) -> Result<File> {
    let failed = |error| Error::call("open", place.path(), error);
    let file_type = fs::metadata(path).map_err(failed)?.file_type();
    let open = |flags| File::options().write(true).append(file_type.is_file()).custom_flags(flags).open(path);
    if !file_type.is_fifo() {
        return open(if file_type.is_block_device() { O_EXCL } else { 0 }).map_err(failed);
    }
    loop {
        match open(O_NONBLOCK) {
            // With a reader, it is opened without waiting in this way too.
            Ok(_reader_is_there) => return open(0).map_err(failed),
            Err(error) if error.raw_os_error() != Some(ENXIO) => return Err(failed(error)),
            Err(_) => {}
        }
        check_stop_signal()?;
        std::thread::sleep(READER_POLL_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::{MetadataExt, chown, symlink};
    use std::path::PathBuf;

    fn write_text(path: &Path, text: &str) -> Result<()> {
        OutputFile::find(path)?.write(|out| out.write_all(text.as_bytes()))
    }

    fn find_error(path: &Path) -> String {
        OutputFile::find(path).unwrap_err().to_string()
    }

    fn read(path: &Path) -> String {
        fs::read_to_string(path).unwrap()
    }

    fn names(directory: &Path) -> usize {
        fs::read_dir(directory).unwrap().count()
    }

    fn make_pipe(path: &Path) {
        assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
    }

    #[test]
    fn failed_write_keeps_old_content() {
        let base = tempfile::tempdir().unwrap();
        let [new, old] = ["new", "old"].map(|name| base.path().join(name));
        fs::write(&old, "old").unwrap();
        let before = old.metadata().unwrap();
        for path in [&new, &old] {
            drop(OutputFile::find(path).unwrap());
            let outcome = OutputFile::find(path).unwrap().write(|out| {
                out.write_all(b"half")?;
                Err(io::Error::other("no more"))
            });
            assert!(outcome.unwrap_err().to_string().contains("no more"));
        }
        assert_eq!((names(base.path()), read(&old).as_str()), (1, "old"));
        assert_eq!(before.modified().unwrap(), old.metadata().unwrap().modified().unwrap());
        write_text(&old, "new").unwrap();
        assert_eq!((names(base.path()), read(&old).as_str()), (1, "new"));
    }

    #[test]
    fn symlink_stays_and_target_is_replaced() {
        let base = tempfile::tempdir().unwrap();
        let [outer, inner, link, second] = ["near", "near/far", "link", "second"].map(|name| base.path().join(name));
        fs::create_dir_all(&inner).unwrap();
        fs::write(inner.join("file"), "old").unwrap();
        symlink("far/file", outer.join("inner")).unwrap();
        symlink("near/inner", &link).unwrap();
        symlink(&link, &second).unwrap();
        write_text(&second, "new").unwrap();
        assert_eq!(read(&inner.join("file")), "new");
        assert!([&link, &second, &outer.join("inner")].iter().all(|link| link.is_symlink()));
        assert_eq!((names(base.path()), names(&outer), names(&inner)), (3, 2, 1));
    }

    #[test]
    fn unwritable_paths_are_refused() {
        let base = tempfile::tempdir().unwrap();
        let path_of = |name: &str| base.path().join(name);
        let _socket = std::os::unix::net::UnixListener::bind(path_of("socket")).unwrap();
        fs::create_dir(path_of("directory")).unwrap();
        for (link, target) in [("dangling", "nothing"), ("away", "no/such"), ("loop", "loop"), ("up", "..")] {
            symlink(target, path_of(link)).unwrap();
        }
        symlink("socket", path_of("to-socket")).unwrap();
        for (name, words) in [
            ("socket", "is a socket"),
            ("to-socket", "to-socket is a socket"),
            (".", "the name of a directory"),
            ("up", "up is the name of a directory"),
            ("directory", "is a directory"),
            ("dangling", "dangling is a symbolic link that leads nowhere"),
            ("away", "away is a symbolic link that leads nowhere"),
            ("loop", "loop is a symbolic link that leads nowhere"),
            ("no/such", "there is no directory"),
            ("new/", "the name of a directory"),
        ] {
            assert!(find_error(&path_of(name)).contains(words), "{name}: {}", find_error(&path_of(name)));
        }
        assert!(find_error(Path::new("/proc/version")).contains("/proc/version"));
        assert!(find_error(Path::new("/proc/self/fd/9999999")).contains("/proc/self/fd/9999999"));
        assert!(find_error(Path::new("/proc/self/cwd")).contains("Is a directory"));
        assert_eq!(names(base.path()), 7);
    }

    /// A device of the test's own, where one can be made: replacing one of /dev would break the machine.
    fn device(base: &Path, name: &str, minor: &str) -> PathBuf {
        let path = base.join(name);
        let status = std::process::Command::new("mknod").arg(&path).args(["c", "1", minor]).status().unwrap();
        if status.success() { path } else { Path::new("/dev").join(name) }
    }

    #[test]
    fn device_is_written_in_place() {
        let base = tempfile::tempdir().unwrap();
        let [null, full] = [("null", "3"), ("full", "7")].map(|(name, minor)| device(base.path(), name, minor));
        let link = base.path().join("link");
        symlink(&null, &link).unwrap();
        for path in [&null, &link] {
            write_text(path, "to nobody").unwrap();
        }
        assert!(write_text(&full, "x").unwrap_err().to_string().contains("No space left"));
        assert!([&null, &full].iter().all(|path| path.metadata().unwrap().file_type().is_char_device()));
        assert!(link.is_symlink());
    }

    #[test]
    fn pipe_waits_for_reader() {
        let base = tempfile::tempdir().unwrap();
        let [pipe, link] = ["pipe", "link"].map(|name| base.path().join(name));
        make_pipe(&pipe);
        symlink("pipe", &link).unwrap();
        // More than a pipe holds, so that somebody must be reading it.
        let text = "0123456789".repeat(100_000);
        for path in [&pipe, &link] {
            std::thread::scope(|scope| {
                let read = scope.spawn(|| read(&pipe));
                write_text(path, &text).unwrap();
                assert!(read.join().unwrap() == text);
            });
        }
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| File::open(&pipe).unwrap().read_exact(&mut [0; 10]).unwrap());
            write_text(&pipe, &text).unwrap();
            reader.join().unwrap();
        });
        assert!(pipe.symlink_metadata().unwrap().file_type().is_fifo() && names(base.path()) == 2);
    }

    #[test]
    fn inherited_descriptor_is_appended_to() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("log");
        let log = File::create(&path).unwrap();
        (&log).write_all(b"log\n").unwrap();
        let descriptor_link = |process: u32, number| PathBuf::from(format!("/proc/{process}/fd/{number}"));
        // The tests' own, as a store would be.
        assert!(find_error(&descriptor_link(std::process::id(), log.as_raw_fd())).contains("Bad file descriptor"));
        let thread = fs::canonicalize("/proc/thread-self").unwrap().join(format!("fd/{}", log.as_raw_fd()));
        assert!(find_error(&thread).contains("Bad file descriptor"));
        let mut child = std::process::Command::new("sleep").arg("60").stdout(log).spawn().unwrap();
        write_text(&descriptor_link(child.id(), 1), "more\n").unwrap();
        fs::remove_file(&path).unwrap();
        write_text(&descriptor_link(child.id(), 1), "gone\n").unwrap();
        let written = read(&descriptor_link(child.id(), 1));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((written.as_str(), names(base.path())), ("log\nmore\ngone\n", 0));
    }

    #[test]
    #[allow(clippy::print_stderr)]
    fn planted_file_in_tmp_is_refused() {
        if kelvin_sys::fs::effective_user() != 0 {
            return eprintln!("files planted by another user: skipped: only root can give a file away");
        }
        let base = tempfile::tempdir().unwrap();
        let mode = |mode| fs::set_permissions(base.path(), std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        let give_away = |path: &Path| std::os::unix::fs::lchown(path, Some(65534), Some(65534)).unwrap();
        let [victim, file, link, pipe] = ["victim", "file", "link", "pipe"].map(|name| base.path().join(name));
        fs::write(&victim, "mine").unwrap();
        fs::write(&file, "theirs").unwrap();
        symlink(&victim, &link).unwrap();
        make_pipe(&pipe);
        [&file, &link, &pipe].into_iter().for_each(|path| give_away(path));
        mode(0o1777);
        for path in [&file, &link, &pipe] {
            assert!(find_error(path).contains("was put there by another user (65534)"), "{}", find_error(path));
        }
        write_text(&victim, "still mine").unwrap();
        // Where only one user writes, an existing file is his: he keeps it.
        mode(0o755);
        write_text(&file, "new").unwrap();
        assert!(find_error(&link).contains("was put there by another user (65534)"));
        assert_eq!((file.metadata().unwrap().uid(), file.metadata().unwrap().gid()), (65534, 65534));
        chown(base.path(), Some(65534), None).unwrap();
        mode(0o1777);
        write_text(&file, "of the directory's owner").unwrap();
    }
}
