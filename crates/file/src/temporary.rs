//! Temporary directories and files of kelvin where a user keeps files: with an unpredictable name, open to their owner only,
//! removed when dropped, or, if their maker was killed, by the next kelvin that makes one there.
//! What is in use is locked. It is made, locked, and then checked to be still there: if a sweep in between has removed it,
//! another one is made. So a sweep can never remove what is in use.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, DirEntry, File, Metadata, TryLockError};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use kelvin_sys::fs::{NO_FOLLOW, NONBLOCK, PATH, effective_user};
use tempfile::{Builder, NamedTempFile};

/// The file in a directory that is locked while the directory is in use, and marks it as temporary: the last one in it to be
/// removed.
const LOCK: &str = "lock";
/// Prefixes of the names of directories, and of files.
const DIRECTORY: &str = "kelvin-scratch-";
const HIDDEN: &str = ".kelvin-scratch-";
const FILE: &str = ".kelvin-unfinished-";
/// Those of what is made where a user looks for other files.
pub const AMONG_OTHERS: [&str; 2] = [HIDDEN, FILE];
/// Letters and digits at the end of an unpredictable name: some 2^71 names.
const UNFORESEEN: usize = 12;
/// How often something is made anew that a sweep removed.
const TRIES: usize = 100;
/// An id that changes at each boot (random(4)).
const BOOT: &str = "/proc/sys/kernel/random/boot_id";
/// The namespace of process numbers: a container has its own.
const PROCESSES: &str = "/proc/self/ns/pid";

/// The scope of process numbers: one boot of one system, and in it one namespace of processes. Nothing, where it is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Host {
    boot: String,
    namespace: String,
}

impl Host {
    fn here() -> Self {
        let boot = fs::read_to_string(BOOT).unwrap_or_default().trim().replace('-', "");
        // `pid:[4026531836]`
        let link = fs::read_link(PROCESSES).unwrap_or_default();
        let namespace = link.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
        Self { boot, namespace }
    }

    fn is_known(&self) -> bool {
        !self.boot.is_empty() && !self.namespace.is_empty()
    }
}

/// The maker of something, by its name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Maker {
    host: Host,
    process: u32,
}

impl Maker {
    fn here() -> Self {
        Self { host: Host::here(), process: std::process::id() }
    }

    fn name(&self) -> String {
        format!("{}-{}-{}-", self.host.boot, self.host.namespace, self.process)
    }

    /// The maker of what has this name behind its prefix, if known.
    fn of(name: &str) -> Option<Self> {
        let mut parts = name.splitn(4, '-').map(str::to_owned);
        let host = Host { boot: parts.next()?, namespace: parts.next()? };
        Some(Self { host, process: parts.next()?.parse().ok()? })
    }

    fn is_gone(&self) -> bool {
        !Path::new(&format!("/proc/{}", self.process)).exists()
    }
}

/// Who may use a file system at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// This machine alone: locks are seen, and are gone after a reboot.
    OneMachine,
    /// Other machines as well, whose locks may be invisible here, and whose processes are unknown.
    Several,
}

impl Reach {
    fn of(directory: &Path) -> Self {
        match kelvin_sys::fs::kind(directory) {
            Ok(kind) if kind.is_of_one_machine() => Self::OneMachine,
            // A file system of unknown kind may be used by others.
            _ => Self::Several,
        }
    }
}

/// A directory for temporary files. Dropped, it is removed with all that is in it.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
    /// The directory itself, whatever somebody has put in its place.
    directory: File,
    /// Held for as long as the directory is in use; the kernel releases it however this process ends. Not where locks are
    /// invisible: there removing an open file only renames it.
    lock: Option<File>,
}

impl Scratch {
    /// Makes one in a directory, and first removes those that dead processes left there.
    ///
    /// # Errors
    /// Those of making it.
    pub fn make(base: &Path) -> io::Result<Self> {
        let workshop = Workshop::new(base, DIRECTORY);
        workshop.sweep();
        Self::make_by(&workshop)
    }

    /// One under a name that begins with a dot, where a user looks for other files: in a directory in which the dead have left none, or
    /// that was swept.
    ///
    /// # Errors
    /// Those of making it.
    pub fn make_hidden(base: &Path) -> io::Result<Self> {
        Self::make_by(&Workshop::new(base, HIDDEN))
    }

    fn make_by(workshop: &Workshop) -> io::Result<Self> {
        let is_kept = |made: &Self| {
            let path = made.path.join(LOCK);
            made.lock.as_ref().map_or(Ok(true), |lock| workshop.take(lock, &path))
        };
        workshop.make(is_kept, |builder| {
            let ((directory, lock), path) =
                builder.make_in(&workshop.base, new_directory)?.keep().map_err(|kept| kept.error)?;
            Ok(Self { path, directory, lock: (workshop.reach == Reach::OneMachine).then_some(lock) })
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// It, held open (O_PATH).
    pub fn directory(&self) -> &File {
        &self.directory
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = clear(&reach(&self.directory)).and_then(|()| fs::remove_dir(&self.path));
    }
}

/// A new directory for its owner only, and the file in it that is to be locked.
fn new_directory(path: &Path) -> io::Result<(File, File)> {
    DirBuilder::new().mode(0o700).create(path)?;
    let made = hold(path).and_then(|directory| Ok((directory, new_file(&path.join(LOCK), 0o600)?)));
    made.inspect_err(|_| {
        // This error says more than a failure to tidy up after it.
        let _ = fs::remove_dir(path);
    })
}

fn new_file(path: &Path, mode: u32) -> io::Result<File> {
    File::options().read(true).write(true).create_new(true).mode(mode).open(path)
}

/// Makes an empty temporary file in a directory, and first removes those that dead processes left there. It has this mode, less
/// the umask, and is in use for as long as it is open.
///
/// # Errors
/// Those of making it.
pub fn file(base: &Path, mode: u32) -> io::Result<NamedTempFile> {
    Files::at(base).make(mode)
}

/// A directory in which many files are made: what dead processes left is looked for once.
#[derive(Debug)]
pub struct Files(Workshop);

impl Files {
    /// Removes the files that dead processes left in a directory.
    pub fn at(base: &Path) -> Self {
        let files = Self::in_swept(base);
        files.0.sweep();
        files
    }

    /// In a directory in which nobody has left any, or that was swept.
    pub fn in_swept(base: &Path) -> Self {
        Self(Workshop::new(base, FILE))
    }

    /// Whether it is known that no other machine can use them: then they are locked while they are open, and nothing that was written
    /// to them fails when they are closed.
    pub fn are_of_one_machine(&self) -> bool {
        self.0.reach == Reach::OneMachine
    }

    /// Makes an empty one, as [`file()`] does.
    ///
    /// # Errors
    /// Those of making it.
    pub fn make(&self, mode: u32) -> io::Result<NamedTempFile> {
        let is_kept = |made: &NamedTempFile| self.0.take(made.as_file(), made.path());
        self.0.make(is_kept, |builder| builder.make_in(&self.0.base, |path| new_file(path, mode)))
    }
}

/// Opens, or makes with this mode, a file that may have been left under a known name, and locks it. On an error it stays.
///
/// # Errors
/// What is no regular file of this user under one name; [`ErrorKind::ResourceBusy`] for one that is in use.
pub(crate) fn left(path: &Path, mode: u32) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).mode(mode).custom_flags(NO_FOLLOW | NONBLOCK);
    let file = options.create(true).truncate(false).open(path)?;
    own(&file, |found| found.is_file() && found.nlink() == 1)?;
    match file.try_lock() {
        Ok(()) if is_at(&file, path) => Ok(file),
        Ok(()) | Err(TryLockError::WouldBlock) => {
            Err(io::Error::new(ErrorKind::ResourceBusy, "another process is writing it"))
        }
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Removes what dead processes left among the files of a user in a directory, and the files of this user there whose names begin so,
/// that nobody has locked, and that were last written so long ago; returns how many younger ones of these stay. The directory is
/// listed once.
pub fn sweep(base: &Path, prefix: &[u8], age: Duration) -> usize {
    let workshops = AMONG_OTHERS.map(|prefix| Workshop::new(base, prefix));
    let mut young = 0;
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        workshops.iter().for_each(|workshop| workshop.remove_if_dead(&entry));
        if entry.file_name().as_bytes().starts_with(prefix) {
            // What cannot be removed is left to its maker.
            young += usize::from(remove_if_old(&entry.path(), age).unwrap_or(false));
        }
    }
    young
}

/// Removes a file unless it is too young; whether it is.
fn remove_if_old(path: &Path, age: Duration) -> io::Result<bool> {
    let held = hold(path)?;
    own(&held, Metadata::is_file)?;
    if held.metadata()?.modified()?.elapsed().unwrap_or_default() < age {
        return Ok(true);
    }
    let lock = File::open(reach(&held))?;
    lock.try_lock()?;
    if is_at(&held, path) { fs::remove_file(path).map(|()| false) } else { Ok(false) }
}

/// A directory in which things of one kind are made.
#[derive(Debug)]
struct Workshop {
    base: PathBuf,
    prefix: &'static str,
    maker: Maker,
    reach: Reach,
}

impl Workshop {
    fn new(base: &Path, prefix: &'static str) -> Self {
        Self { base: base.to_owned(), prefix, maker: Maker::here(), reach: Reach::of(base) }
    }

    /// Makes something that no sweep removes.
    fn make<T>(
        &self,
        is_kept: impl Fn(&T) -> io::Result<bool>,
        make: impl Fn(&Builder<'_, '_>) -> io::Result<T>,
    ) -> io::Result<T> {
        let prefix = format!("{}{}", self.prefix, self.maker.name());
        let mut gone = ErrorKind::NotFound.into();
        for _ in 0..TRIES {
            match make(Builder::new().prefix(&prefix).rand_bytes(UNFORESEEN)) {
                Ok(made) if is_kept(&made)? => return Ok(made),
                // A sweep has it, or has already removed it.
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::NotFound => gone = error,
                Err(error) => return Err(error),
            }
        }
        Err(gone)
    }

    /// Locks what was just made, where locks are seen. Not, if a sweep was there first.
    fn take(&self, lock: &File, path: &Path) -> io::Result<bool> {
        if self.reach == Reach::Several {
            return Ok(true);
        }
        match lock.try_lock() {
            Ok(()) => Ok(is_at(lock, path)),
            Err(TryLockError::WouldBlock) => Ok(false),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Removes what dead processes of this user left behind. What cannot be removed is left to its maker.
    fn sweep(&self) {
        fs::read_dir(&self.base).into_iter().flatten().flatten().for_each(|entry| self.remove_if_dead(&entry));
    }

    /// Removes one thing that is there, if a dead process of this user left it.
    fn remove_if_dead(&self, entry: &DirEntry) {
        let name = entry.file_name();
        let rest = name.as_bytes().strip_prefix(self.prefix.as_bytes());
        if rest.is_some_and(|rest| self.may_be_left(OsStr::from_bytes(rest))) {
            let _ = self.remove_if_left(&entry.path());
        }
    }

    /// Whether something of this name behind the prefix may be unused. Where locks are invisible, only what a process of this
    /// system made that is gone.
    fn may_be_left(&self, name: &OsStr) -> bool {
        let is_gone = |maker: &Maker| maker.host.is_known() && maker.host == self.maker.host && maker.is_gone();
        Maker::of(&name.to_string_lossy()).is_some_and(|maker| self.reach == Reach::OneMachine || is_gone(&maker))
    }

    fn remove_if_left(&self, path: &Path) -> io::Result<()> {
        let found = hold(path)?;
        if self.prefix == FILE {
            let _lock = self.lock_left(&found)?;
            return if is_at(&found, path) { fs::remove_file(path) } else { Ok(()) };
        }
        own(&found, Metadata::is_dir)?;
        match hold(&reach(&found).join(LOCK)) {
            Ok(lock) => {
                let _lock = self.lock_left(&lock)?;
                clear(&reach(&found))?;
            }
            // It is being made, or its maker was killed while making or removing it.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        // Only an empty one is removed, whatever has been put in its place.
        fs::remove_dir(path)
    }

    /// Locks what dead processes left behind.
    ///
    /// # Errors
    /// That it is in use, no regular file, or another user's.
    fn lock_left(&self, held: &File) -> io::Result<Option<File>> {
        own(held, Metadata::is_file)?;
        if self.reach == Reach::Several {
            return Ok(None);
        }
        let lock = File::open(reach(held))?;
        lock.try_lock()?;
        Ok(Some(lock))
    }
}

/// That it is this user's, and of the right type.
fn own(held: &File, is_right: fn(&Metadata) -> bool) -> io::Result<()> {
    let found = held.metadata()?;
    let is_own = found.uid() == effective_user() && is_right(&found);
    if is_own { Ok(()) } else { Err(ErrorKind::PermissionDenied.into()) }
}

/// Opens a path without using it (O_PATH): follows no link, and waits for no reader or writer.
pub(crate) fn hold(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(PATH | NO_FOLLOW).open(path)
}

/// The path by which this process reaches what it holds, whatever becomes of the names that lead there.
pub fn reach(held: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd()))
}

/// Whether a path leads to this very file, and to no other one in its place.
fn is_at(file: &File, path: &Path) -> bool {
    let identity = |found: Metadata| (found.dev(), found.ino());
    let (here, there) = (file.metadata().map(identity), fs::symlink_metadata(path).map(identity));
    matches!((here, there), (Ok(here), Ok(there)) if here == there)
}

/// Removes all that is in a directory, its lock last: as long as that is there, a sweep removes the rest. No link is followed,
/// even if one takes the place of a directory meanwhile: [`fs::remove_dir_all`] goes down by openat and O_NOFOLLOW (since Rust
/// 1.58.1).
fn clear(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)?.flatten().filter(|entry| entry.file_name() != LOCK) {
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    fs::remove_file(directory.join(LOCK))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// A process number that no process has.
    const NOBODY: u32 = 4_194_999;

    fn maker(boot: &str, process: u32) -> Maker {
        Maker { host: Host { boot: boot.into(), ..Host::here() }, process }
    }

    fn left_by_the_dead(prefix: &str) -> String {
        format!("{prefix}{}x", maker(&Host::here().boot, NOBODY).name())
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

    fn sweep(base: &Path, prefix: &'static str, reach: Reach) {
        Workshop { base: base.to_owned(), prefix, maker: Maker::here(), reach }.sweep();
    }

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().mode() & 0o7777
    }

    #[test]
    fn what_a_dead_process_left_is_removed_and_what_is_in_use_is_not() {
        let base = tempfile::tempdir().unwrap();
        let dead = made(base.path(), &left_by_the_dead(DIRECTORY), true);
        let foreign = made(base.path(), "something-else", false);
        let scratch = Scratch::make(base.path()).unwrap();
        assert!(!dead.exists() && foreign.exists());
        let another = Scratch::make(base.path()).unwrap();
        for reach in [Reach::OneMachine, Reach::Several] {
            sweep(base.path(), DIRECTORY, reach);
        }
        assert!(scratch.path().exists() && another.path().exists());
        assert_eq!((mode(scratch.path()), mode(&scratch.path().join(LOCK))), (0o700, 0o600));
        let path = scratch.path().to_owned();
        fs::create_dir(path.join("below")).unwrap();
        fs::write(path.join("below/data"), "x").unwrap();
        drop(scratch);
        assert!(!path.exists() && another.path().exists());
    }

    #[test]
    fn of_unfinished_files_those_of_the_dead_are_removed() {
        let base = tempfile::tempdir().unwrap();
        let dead = base.path().join(left_by_the_dead(FILE));
        fs::write(&dead, "half").unwrap();
        let kept = base.path().join(format!("{FILE}notes"));
        fs::write(&kept, "the user's").unwrap();
        let one = file(base.path(), 0o600).unwrap();
        assert!(!dead.exists() && kept.exists());
        for reach in [Reach::OneMachine, Reach::Several] {
            sweep(base.path(), FILE, reach);
        }
        assert!(one.path().exists());
    }

    #[test]
    fn what_was_left_is_removed_when_it_is_old_and_unused() {
        let base = tempfile::tempdir().unwrap();
        let [old, young, used, foreign] = [".part-old", ".part-young", ".part-used", "old"].map(|name| {
            let path = base.path().join(name);
            fs::write(&path, [1; 5000]).unwrap();
            path
        });
        let aged = std::time::SystemTime::now() - Duration::from_secs(100);
        for path in [&old, &used, &foreign] {
            File::options().write(true).open(path).unwrap().set_modified(aged).unwrap();
        }
        let _lock = left(&used, 0o600).unwrap();
        let [hidden, file] = AMONG_OTHERS.map(|prefix| base.path().join(left_by_the_dead(prefix)));
        fs::create_dir(&hidden).unwrap();
        fs::write(&file, "half").unwrap();
        assert_eq!(super::sweep(base.path(), b".part-", Duration::from_secs(50)), 1);
        assert_eq!([&old, &young, &used, &foreign].map(|path| path.exists()), [false, true, true, true]);
        assert!(!hidden.exists() && !file.exists());
    }

    #[test]
    fn where_other_machines_write_only_what_this_one_left_is_removed() {
        let host = Host::here();
        let elsewhere = "0123456789abcdef0123456789abcdef";
        let container = Maker { host: Host { namespace: "1".into(), ..host.clone() }, process: NOBODY };
        let names = [
            maker(&host.boot, NOBODY),
            maker(&host.boot, std::process::id()),
            // Of another machine, or of this one before a reboot: nothing shows which.
            maker(elsewhere, NOBODY),
            container,
        ]
        .map(|maker| format!("{DIRECTORY}{}x", maker.name()));
        // No lock of another machine is seen: to this one, all are free.
        let left = |reach, lock| -> Vec<bool> {
            let base = tempfile::tempdir().unwrap();
            let paths: Vec<PathBuf> = names.iter().map(|name| made(base.path(), name, lock)).collect();
            sweep(base.path(), DIRECTORY, reach);
            paths.iter().map(|path| path.exists()).collect()
        };
        assert_eq!(left(Reach::Several, true), [false, true, true, true]);
        // On a disk of this machine a lock that is free says enough.
        assert_eq!(left(Reach::OneMachine, true), [false; 4]);
        // One without a maker was not made by kelvin: somebody has renamed it.
        assert_eq!(left(Reach::Several, false), [true; 4]);
        assert_eq!(left(Reach::OneMachine, false), [true; 4]);
    }

    /// A pipe that somebody put there would block, a link would be followed.
    #[test]
    fn what_others_plant_is_neither_opened_nor_removed_nor_followed() {
        let base = tempfile::tempdir().unwrap();
        let victim = made(base.path(), "victim", true);
        let [pipe, link, with_pipe, with_link, with_directory] = ["1", "2", "3", "4", "5"]
            .map(|end| base.path().join(left_by_the_dead(if end < "3" { FILE } else { DIRECTORY }) + end));
        make_pipe(&pipe);
        symlink(victim.join("data"), &link).unwrap();
        for directory in [&with_pipe, &with_link, &with_directory] {
            fs::create_dir(directory).unwrap();
        }
        make_pipe(&with_pipe.join(LOCK));
        symlink(victim.join(LOCK), with_link.join(LOCK)).unwrap();
        fs::create_dir(with_directory.join(LOCK)).unwrap();
        symlink(&victim, base.path().join(left_by_the_dead(DIRECTORY) + "6")).unwrap();
        // This one is swept, and the link in it with it.
        let swept = made(base.path(), &(left_by_the_dead(DIRECTORY) + "7"), true);
        symlink(&victim, swept.join("out")).unwrap();
        for (prefix, reach) in [
            (FILE, Reach::OneMachine),
            (DIRECTORY, Reach::OneMachine),
            (FILE, Reach::Several),
            (DIRECTORY, Reach::Several),
        ] {
            sweep(base.path(), prefix, reach);
        }
        assert!(pipe.exists() && link.is_symlink() && !swept.exists());
        assert!(with_pipe.exists() && with_link.exists() && with_directory.exists());
        assert!(victim.join("data").exists() && victim.join(LOCK).exists());
    }

    fn make_pipe(path: &Path) {
        assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
    }

    #[test]
    #[allow(clippy::print_stderr)]
    fn what_another_user_made_is_left_to_him() {
        if effective_user() != 0 {
            return eprintln!("files of another user are left to him: skipped: only root can give a file away");
        }
        let base = tempfile::tempdir().unwrap();
        let give = |path: &Path| std::os::unix::fs::chown(path, Some(65534), Some(65534)).unwrap();
        let file = base.path().join(left_by_the_dead(FILE));
        fs::write(&file, "").unwrap();
        let all = made(base.path(), &(left_by_the_dead(DIRECTORY) + "1"), true);
        let lock = made(base.path(), &(left_by_the_dead(DIRECTORY) + "2"), true);
        let empty = base.path().join(left_by_the_dead(DIRECTORY) + "3");
        fs::create_dir(&empty).unwrap();
        [&file, &all, &lock.join(LOCK), &empty].into_iter().for_each(|path| give(path));
        for prefix in [FILE, DIRECTORY] {
            sweep(base.path(), prefix, Reach::OneMachine);
        }
        assert!(file.exists() && all.join("data").exists() && lock.join("data").exists() && empty.exists());
    }

    /// Whoever may rename the directory of a run does not choose what is removed at its end.
    #[test]
    fn what_is_put_in_the_place_of_a_directory_stays() {
        let base = tempfile::tempdir().unwrap();
        let victim = made(base.path(), "victim", true);
        let scratch = Scratch::make(base.path()).unwrap();
        let path = scratch.path().to_owned();
        fs::rename(&path, base.path().join("moved")).unwrap();
        fs::rename(&victim, &path).unwrap();
        drop(scratch);
        assert!(path.join("data").exists() && path.join(LOCK).exists());
        assert_eq!(fs::read_dir(base.path().join("moved")).unwrap().count(), 0);
    }

    /// A sweep between making and locking either takes what is being made or leaves it, and never takes what is in use.
    #[test]
    fn sweeps_at_every_moment_take_nothing_that_is_in_use() {
        let base = tempfile::tempdir().unwrap();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for prefix in [FILE, DIRECTORY] {
                let (base, over) = (base.path(), &over);
                scope.spawn(move || {
                    while !over.load(Ordering::Relaxed) {
                        sweep(base, prefix, Reach::OneMachine);
                    }
                });
            }
            let made = (0..500).all(|_| {
                let scratch = Scratch::make(base.path()).unwrap();
                let file = file(base.path(), 0o600).unwrap();
                fs::write(scratch.path().join("data"), "x").is_ok() && file.path().exists()
            });
            over.store(true, Ordering::Relaxed);
            assert!(made, "it was removed while it was in use");
        });
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_name_shows_its_maker() {
        let maker = maker("00ff", 7);
        assert_eq!(Maker::of(&format!("{}abc", maker.name())), Some(maker.clone()));
        assert!(maker.host.namespace.len() > 5 && Host::here().boot.len() == 32, "{maker:?}");
        for other in ["7", "", "a-b", "a-b-c", "notes"] {
            assert_eq!(Maker::of(other), None, "{other}");
        }
    }
}
