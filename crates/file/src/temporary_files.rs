//! Temporary directories and files of kelvin where a user keeps files. They are with an unpredictable name, open to their owner only,
//! removed when dropped, or, if their maker was killed, by the next kelvin that makes one there.
//! What is in use is locked. It is made, locked, and then checked to be still there: if a sweep in between has removed it,
//! another one is made. So a sweep can never remove what is in use.

use std::fs::{self, DirBuilder, DirEntry, File, Metadata, TryLockError};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use kelvin_sys::fs::{O_NOFOLLOW, O_NONBLOCK, O_PATH, effective_user};
use tempfile::{Builder, NamedTempFile};

/// The file in a directory that is locked while the directory is in use, and marks it as temporary. The last one in it to be
/// removed.
const LOCK_NAME: &str = "lock";
/// Prefixes of the names of directories, and of files.
const DIRECTORY_PREFIX: &str = "kelvin-scratch-";
const HIDDEN_PREFIX: &str = ".kelvin-scratch-";
const FILE_PREFIX: &str = ".kelvin-unfinished-";
/// Those of what is made where a user looks for other files.
pub const HIDDEN_PREFIXES: [&str; 2] = [HIDDEN_PREFIX, FILE_PREFIX];
/// Letters and digits at the end of an unpredictable name: some 2^71 names.
const RANDOM_NAME_LENGTH: usize = 12;
/// How often something is made anew that a sweep removed.
const MAX_CREATE_ATTEMPTS: usize = 100;
/// An id that changes at each boot (random(4)).
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// The namespace of process numbers: a container has its own.
const PID_NAMESPACE: &str = "/proc/self/ns/pid";

/// The maker of something, by its name: a process, and the scope of its number, one boot of one system and in it one namespace of
/// processes. Boot and namespace are empty where they are unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Creator {
    boot: String,
    namespace: String,
    process: u32,
}

impl Creator {
    fn current() -> Self {
        let boot = fs::read_to_string(BOOT_ID).unwrap_or_default().trim().replace('-', "");
        // `pid:[4026531836]`
        let link = fs::read_link(PID_NAMESPACE).unwrap_or_default();
        let namespace = link.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
        Self { boot, namespace, process: std::process::id() }
    }

    fn name(&self) -> String {
        format!("{}-{}-{}-", self.boot, self.namespace, self.process)
    }

    /// The maker of what has this name behind its prefix, if known.
    fn from_name(name: &str) -> Option<Self> {
        let mut parts = name.splitn(4, '-').map(str::to_owned);
        Some(Self { boot: parts.next()?, namespace: parts.next()?, process: parts.next()?.parse().ok()? })
    }

    /// Whether it is known to have ended, seen from a process.
    fn is_gone(&self, other: &Self) -> bool {
        let is_known = !self.boot.is_empty() && !self.namespace.is_empty();
        is_known
            && (&self.boot, &self.namespace) == (&other.boot, &other.namespace)
            && !Path::new(&format!("/proc/{}", self.process)).exists()
    }
}

/// A directory for temporary files. Dropped, it is removed with all that is in it.
#[derive(Debug)]
pub struct ScratchDirectory {
    path: PathBuf,
    /// The directory itself, not what somebody has put in its place.
    directory: File,
    /// Held for as long as the directory is in use; the kernel releases it however this process ends. Not where locks are
    /// invisible: there removing an open file only renames it.
    lock: Option<File>,
}

impl ScratchDirectory {
    /// Makes one in a directory, and first removes those that dead processes left there.
    ///
    /// # Errors
    /// Those of making it.
    pub fn create(base: &Path) -> io::Result<Self> {
        let files = TemporaryFiles::new(base, DIRECTORY_PREFIX);
        files.sweep();
        Self::create_in(&files)
    }

    /// One under a name that begins with a dot, where a user looks for other files. It is in a directory in which the dead have left none, or
    /// that was swept.
    ///
    /// # Errors
    /// Those of making it.
    pub fn create_hidden(base: &Path) -> io::Result<Self> {
        Self::create_in(&TemporaryFiles::new(base, HIDDEN_PREFIX))
    }

    fn create_in(files: &TemporaryFiles) -> io::Result<Self> {
        let is_kept = |scratch: &Self| match &scratch.lock {
            Some(lock) => files.lock_new(lock, &scratch.path.join(LOCK_NAME)),
            None => Ok(true),
        };
        files.create_with_retry(is_kept, |builder| {
            let ((directory, lock), path) =
                builder.make_in(&files.base, create_locked_directory)?.keep().map_err(|error| error.error)?;
            Ok(Self { path, directory, lock: files.is_local.then_some(lock) })
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

impl Drop for ScratchDirectory {
    fn drop(&mut self) {
        let _ = remove_contents(&descriptor_path(&self.directory)).and_then(|()| fs::remove_dir(&self.path));
    }
}

/// A new directory for its owner only, and the file in it that is to be locked.
fn create_locked_directory(path: &Path) -> io::Result<(File, File)> {
    DirBuilder::new().mode(0o700).create(path)?;
    let outcome =
        open_path_only(path).and_then(|directory| Ok((directory, create_file(&path.join(LOCK_NAME), 0o600)?)));
    outcome.inspect_err(|_| {
        // This error explains more than a failure to tidy up after it.
        let _ = fs::remove_dir(path);
    })
}

fn create_file(path: &Path, mode: u32) -> io::Result<File> {
    File::options().read(true).write(true).create_new(true).mode(mode).open(path)
}

/// Opens, or makes with this mode, a file that may have been left under a known name, and locks it. On an error it stays.
///
/// # Errors
/// What is no regular file of this user under one name; [`ErrorKind::ResourceBusy`] for one that is in use.
pub(crate) fn open_left_over(path: &Path, mode: u32) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).mode(mode).custom_flags(O_NOFOLLOW | O_NONBLOCK);
    let file = options.create(true).truncate(false).open(path)?;
    check_ownership(&file, |metadata| metadata.is_file() && metadata.nlink() == 1)?;
    if !try_lock_at(&file, path)? {
        return Err(io::Error::new(ErrorKind::ResourceBusy, "another process is writing it"));
    }
    Ok(file)
}

/// Locks a file, if nobody else has and it is still the one that the path leads to; whether it is locked.
fn try_lock_at(file: &File, path: &Path) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(is_same_file(file, path)),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Removes what dead processes left among the files of a user in a directory, and the files of this user there whose names begin so,
/// that nobody has locked, and that were last written that time ago. Returns how many younger ones of these stay. The directory is
/// listed once.
pub fn remove_left_over(base: &Path, prefix: &[u8], age: Duration) -> usize {
    let hidden_files = HIDDEN_PREFIXES.map(|prefix| TemporaryFiles::new(base, prefix));
    let mut young_count = 0;
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        hidden_files.iter().for_each(|files| files.remove_if_dead(&entry));
        if entry.file_name().as_bytes().starts_with(prefix) {
            // What cannot be removed is left to its maker.
            young_count += usize::from(remove_if_old(&entry.path(), age).unwrap_or(false));
        }
    }
    young_count
}

/// Removes a file unless it is too young; whether it is.
fn remove_if_old(path: &Path, age: Duration) -> io::Result<bool> {
    let descriptor = open_path_only(path)?;
    check_ownership(&descriptor, Metadata::is_file)?;
    if descriptor.metadata()?.modified()?.elapsed().unwrap_or_default() < age {
        return Ok(true);
    }
    let lock = File::open(descriptor_path(&descriptor))?;
    if try_lock_at(&lock, path)? {
        fs::remove_file(path)?;
    }
    Ok(false)
}

/// A directory in which temporary files, or directories, are made, each open to its owner only: what dead processes left is looked
/// for once.
#[derive(Debug)]
pub struct TemporaryFiles {
    base: PathBuf,
    prefix: &'static str,
    creator: Creator,
    /// Whether it is known that this machine alone uses the file system: locks are seen, and are gone after a reboot. Else those of
    /// other machines may be invisible here, and their processes are unknown.
    is_local: bool,
}

impl TemporaryFiles {
    /// Removes the files that dead processes left in a directory.
    pub fn in_directory(base: &Path) -> Self {
        let files = Self::in_swept_directory(base);
        files.sweep();
        files
    }

    /// In a directory in which nobody has left any, or that was swept.
    pub fn in_swept_directory(base: &Path) -> Self {
        Self::new(base, FILE_PREFIX)
    }

    fn new(base: &Path, prefix: &'static str) -> Self {
        // A file system of unknown kind may be used by others.
        let is_local = kelvin_sys::fs::kind(base).is_ok_and(|kind| kind.is_single_host());
        Self { base: base.to_owned(), prefix, creator: Creator::current(), is_local }
    }

    /// Whether it is known that no other machine can use them. Then they are locked while they are open, and nothing that was written
    /// to them fails when they are closed.
    pub fn are_local(&self) -> bool {
        self.is_local
    }

    /// Makes an empty one. It has this mode, less the umask, and is in use for as long as it is open.
    ///
    /// # Errors
    /// Those of making it.
    pub fn create(&self, mode: u32) -> io::Result<NamedTempFile> {
        let is_kept = |file: &NamedTempFile| self.lock_new(file.as_file(), file.path());
        self.create_with_retry(is_kept, |builder| builder.make_in(&self.base, |path| create_file(path, mode)))
    }

    /// Makes something that no sweep removes.
    fn create_with_retry<T>(
        &self,
        is_kept: impl Fn(&T) -> io::Result<bool>,
        attempt: impl Fn(&Builder<'_, '_>) -> io::Result<T>,
    ) -> io::Result<T> {
        let prefix = format!("{}{}", self.prefix, self.creator.name());
        let mut last_error = ErrorKind::NotFound.into();
        for _ in 0..MAX_CREATE_ATTEMPTS {
            match attempt(Builder::new().prefix(&prefix).rand_bytes(RANDOM_NAME_LENGTH)) {
                Ok(entry) if is_kept(&entry)? => return Ok(entry),
                // A sweep has it, or has already removed it.
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::NotFound => last_error = error,
                Err(error) => return Err(error),
            }
        }
        Err(last_error)
    }

    /// Locks what was just made, where locks are seen. Not, if a sweep was there first.
    fn lock_new(&self, lock: &File, path: &Path) -> io::Result<bool> {
        Ok(!self.is_local || try_lock_at(lock, path)?)
    }

    /// Removes what dead processes of this user left behind. What cannot be removed is left to its maker.
    fn sweep(&self) {
        fs::read_dir(&self.base).into_iter().flatten().flatten().for_each(|entry| self.remove_if_dead(&entry));
    }

    /// Removes one thing that is there, if a dead process of this user left it. Where locks are invisible, only what a process of
    /// this system made that is gone.
    fn remove_if_dead(&self, entry: &DirEntry) {
        let name = entry.file_name();
        let Some(rest) = name.as_bytes().strip_prefix(self.prefix.as_bytes()) else { return };
        let maker = Creator::from_name(&String::from_utf8_lossy(rest));
        if maker.is_some_and(|maker| self.is_local || maker.is_gone(&self.creator)) {
            let _ = self.remove_if_unlocked(&entry.path());
        }
    }

    fn remove_if_unlocked(&self, path: &Path) -> io::Result<()> {
        let descriptor = open_path_only(path)?;
        if self.prefix == FILE_PREFIX {
            let _lock = self.lock_left_over(&descriptor)?;
            return if is_same_file(&descriptor, path) { fs::remove_file(path) } else { Ok(()) };
        }
        check_ownership(&descriptor, Metadata::is_dir)?;
        match open_path_only(&descriptor_path(&descriptor).join(LOCK_NAME)) {
            Ok(lock) => {
                let _lock = self.lock_left_over(&lock)?;
                remove_contents(&descriptor_path(&descriptor))?;
            }
            // It is being made, or its maker was killed while making or removing it.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        // Only an empty one is removed, also where another has been put in its place.
        fs::remove_dir(path)
    }

    /// Locks what dead processes left behind.
    ///
    /// # Errors
    /// That it is in use, no regular file, or another user's.
    fn lock_left_over(&self, descriptor: &File) -> io::Result<Option<File>> {
        check_ownership(descriptor, Metadata::is_file)?;
        if !self.is_local {
            return Ok(None);
        }
        let lock = File::open(descriptor_path(descriptor))?;
        lock.try_lock()?;
        Ok(Some(lock))
    }
}

/// That it is this user's, and of the right type.
fn check_ownership(file: &File, is_expected_type: fn(&Metadata) -> bool) -> io::Result<()> {
    let metadata = file.metadata()?;
    let is_own = metadata.uid() == effective_user() && is_expected_type(&metadata);
    if is_own { Ok(()) } else { Err(ErrorKind::PermissionDenied.into()) }
}

/// Opens a path without using it (O_PATH): follows no link, and waits for no reader or writer.
pub(crate) fn open_path_only(path: &Path) -> io::Result<File> {
    File::options().read(true).custom_flags(O_PATH | O_NOFOLLOW).open(path)
}

/// The path by which this process reaches what it has open, also when the names that lead there change.
pub fn descriptor_path(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Whether a path leads to this very file, and to no other one in its place.
fn is_same_file(file: &File, path: &Path) -> bool {
    let identity = |metadata: Metadata| (metadata.dev(), metadata.ino());
    let (open_identity, path_identity) = (file.metadata().map(identity), fs::symlink_metadata(path).map(identity));
    matches!((open_identity, path_identity), (Ok(open_identity), Ok(path_identity)) if open_identity == path_identity)
}

/// Removes all that is in a directory, its lock last: as long as that is there, a sweep removes the rest. No link is followed,
/// even if one takes the place of a directory meanwhile: [`fs::remove_dir_all`] goes down by openat and O_NOFOLLOW (since Rust
/// 1.58.1).
fn remove_contents(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)?.flatten().filter(|entry| entry.file_name() != LOCK_NAME) {
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    fs::remove_file(directory.join(LOCK_NAME))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// A process number that no process has.
    const DEAD_PROCESS: u32 = 4_194_999;

    fn maker(boot: &str, process: u32) -> Creator {
        Creator { boot: boot.into(), process, ..Creator::current() }
    }

    fn left_over_name(prefix: &str) -> String {
        format!("{prefix}{}x", maker(&Creator::current().boot, DEAD_PROCESS).name())
    }

    fn make_left_over(base: &Path, name: &str, lock: bool) -> PathBuf {
        let path = base.join(name);
        fs::create_dir(&path).unwrap();
        fs::write(path.join("data"), "x").unwrap();
        if lock {
            fs::write(path.join(LOCK_NAME), "").unwrap();
        }
        path
    }

    fn sweep(base: &Path, prefix: &'static str, is_local: bool) {
        TemporaryFiles { base: base.to_owned(), prefix, creator: Creator::current(), is_local }.sweep();
    }

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().mode() & 0o7777
    }

    #[test]
    fn only_dead_process_directories_are_removed() {
        let base = tempfile::tempdir().unwrap();
        let dead = make_left_over(base.path(), &left_over_name(DIRECTORY_PREFIX), true);
        let foreign = make_left_over(base.path(), "something-else", false);
        let scratch = ScratchDirectory::create(base.path()).unwrap();
        assert!(!dead.exists() && foreign.exists());
        let another = ScratchDirectory::create(base.path()).unwrap();
        for is_local in [true, false] {
            sweep(base.path(), DIRECTORY_PREFIX, is_local);
        }
        assert!(scratch.path().exists() && another.path().exists());
        assert_eq!((mode(scratch.path()), mode(&scratch.path().join(LOCK_NAME))), (0o700, 0o600));
        let path = scratch.path().to_owned();
        fs::create_dir(path.join("below")).unwrap();
        fs::write(path.join("below/data"), "x").unwrap();
        drop(scratch);
        assert!(!path.exists() && another.path().exists());
    }

    #[test]
    fn unfinished_files_of_dead_processes_are_removed() {
        let base = tempfile::tempdir().unwrap();
        let dead = base.path().join(left_over_name(FILE_PREFIX));
        fs::write(&dead, "half").unwrap();
        let user_file = base.path().join(format!("{FILE_PREFIX}notes"));
        fs::write(&user_file, "the user's").unwrap();
        let temporary_file = TemporaryFiles::in_directory(base.path()).create(0o600).unwrap();
        assert!(!dead.exists() && user_file.exists());
        for is_local in [true, false] {
            sweep(base.path(), FILE_PREFIX, is_local);
        }
        assert!(temporary_file.path().exists());
    }

    #[test]
    fn old_unlocked_files_are_removed() {
        let base = tempfile::tempdir().unwrap();
        let [old, young, used, foreign] = [".part-old", ".part-young", ".part-used", "old"].map(|name| {
            let path = base.path().join(name);
            fs::write(&path, [1; 5000]).unwrap();
            path
        });
        let old_time = std::time::SystemTime::now() - Duration::from_secs(100);
        for path in [&old, &used, &foreign] {
            File::options().write(true).open(path).unwrap().set_modified(old_time).unwrap();
        }
        let _lock = open_left_over(&used, 0o600).unwrap();
        let [hidden, file] = HIDDEN_PREFIXES.map(|prefix| base.path().join(left_over_name(prefix)));
        fs::create_dir(&hidden).unwrap();
        fs::write(&file, "half").unwrap();
        assert_eq!(remove_left_over(base.path(), b".part-", Duration::from_secs(50)), 1);
        assert_eq!([&old, &young, &used, &foreign].map(|path| path.exists()), [false, true, true, true]);
        assert!(!hidden.exists() && !file.exists());
    }

    #[test]
    fn shared_filesystem_sweep_removes_only_own_files() {
        let host = Creator::current();
        let elsewhere = "0123456789abcdef0123456789abcdef";
        let container = Creator { namespace: "1".into(), process: DEAD_PROCESS, ..host.clone() };
        let names = [
            maker(&host.boot, DEAD_PROCESS),
            maker(&host.boot, std::process::id()),
            // Of another machine, or of this one before a reboot: nothing shows which.
            maker(elsewhere, DEAD_PROCESS),
            container,
        ]
        .map(|maker| format!("{DIRECTORY_PREFIX}{}x", maker.name()));
        // No lock of another machine is seen: to this one, all are free.
        let survivors = |is_local, lock| -> Vec<bool> {
            let base = tempfile::tempdir().unwrap();
            let paths: Vec<PathBuf> = names.iter().map(|name| make_left_over(base.path(), name, lock)).collect();
            sweep(base.path(), DIRECTORY_PREFIX, is_local);
            paths.iter().map(|path| path.exists()).collect()
        };
        assert_eq!(survivors(false, true), [false, true, true, true]);
        // On a disk of this machine a lock that is free is enough.
        assert_eq!(survivors(true, true), [false; 4]);
        // One without a maker was not made by kelvin: somebody has renamed it.
        assert_eq!(survivors(false, false), [true; 4]);
        assert_eq!(survivors(true, false), [true; 4]);
    }

    /// A pipe that somebody put there would block, a link would be followed.
    #[test]
    fn planted_entries_are_left_untouched() {
        let base = tempfile::tempdir().unwrap();
        let victim = make_left_over(base.path(), "victim", true);
        let [pipe, link, with_pipe, with_link, with_directory] = ["1", "2", "3", "4", "5"]
            .map(|end| base.path().join(left_over_name(if end < "3" { FILE_PREFIX } else { DIRECTORY_PREFIX }) + end));
        make_pipe(&pipe);
        symlink(victim.join("data"), &link).unwrap();
        for directory in [&with_pipe, &with_link, &with_directory] {
            fs::create_dir(directory).unwrap();
        }
        make_pipe(&with_pipe.join(LOCK_NAME));
        symlink(victim.join(LOCK_NAME), with_link.join(LOCK_NAME)).unwrap();
        fs::create_dir(with_directory.join(LOCK_NAME)).unwrap();
        symlink(&victim, base.path().join(left_over_name(DIRECTORY_PREFIX) + "6")).unwrap();
        // This one is swept, and the link in it with it.
        let swept = make_left_over(base.path(), &(left_over_name(DIRECTORY_PREFIX) + "7"), true);
        symlink(&victim, swept.join("out")).unwrap();
        for (prefix, is_local) in
            [(FILE_PREFIX, true), (DIRECTORY_PREFIX, true), (FILE_PREFIX, false), (DIRECTORY_PREFIX, false)]
        {
            sweep(base.path(), prefix, is_local);
        }
        assert!(pipe.exists() && link.is_symlink() && !swept.exists());
        assert!(with_pipe.exists() && with_link.exists() && with_directory.exists());
        assert!(victim.join("data").exists() && victim.join(LOCK_NAME).exists());
    }

    fn make_pipe(path: &Path) {
        assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
    }

    #[test]
    #[allow(clippy::print_stderr)]
    fn files_of_other_users_stay() {
        if effective_user() != 0 {
            return eprintln!("files of another user are left to him: skipped: only root can give a file away");
        }
        let base = tempfile::tempdir().unwrap();
        let give_away = |path: &Path| std::os::unix::fs::chown(path, Some(65534), Some(65534)).unwrap();
        let file = base.path().join(left_over_name(FILE_PREFIX));
        fs::write(&file, "").unwrap();
        let directory = make_left_over(base.path(), &(left_over_name(DIRECTORY_PREFIX) + "1"), true);
        let lock = make_left_over(base.path(), &(left_over_name(DIRECTORY_PREFIX) + "2"), true);
        let empty = base.path().join(left_over_name(DIRECTORY_PREFIX) + "3");
        fs::create_dir(&empty).unwrap();
        [&file, &directory, &lock.join(LOCK_NAME), &empty].into_iter().for_each(|path| give_away(path));
        for prefix in [FILE_PREFIX, DIRECTORY_PREFIX] {
            sweep(base.path(), prefix, true);
        }
        assert!(file.exists() && directory.join("data").exists() && lock.join("data").exists() && empty.exists());
    }

    /// Whoever may rename the directory of a run does not choose what is removed at its end.
    #[test]
    fn replacement_of_scratch_directory_stays() {
        let base = tempfile::tempdir().unwrap();
        let victim = make_left_over(base.path(), "victim", true);
        let scratch = ScratchDirectory::create(base.path()).unwrap();
        let path = scratch.path().to_owned();
        fs::rename(&path, base.path().join("moved")).unwrap();
        fs::rename(&victim, &path).unwrap();
        drop(scratch);
        assert!(path.join("data").exists() && path.join(LOCK_NAME).exists());
        assert_eq!(fs::read_dir(base.path().join("moved")).unwrap().count(), 0);
    }

    /// A sweep between making and locking either takes what is being made or leaves it, and never takes what is in use.
    #[test]
    fn concurrent_sweeps_keep_files_in_use() {
        let base = tempfile::tempdir().unwrap();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for prefix in [FILE_PREFIX, DIRECTORY_PREFIX] {
                let (base, is_over) = (base.path(), &is_over);
                scope.spawn(move || {
                    while !is_over.load(Ordering::Relaxed) {
                        sweep(base, prefix, true);
                    }
                });
            }
            let all_exist = (0..500).all(|_| {
                let scratch = ScratchDirectory::create(base.path()).unwrap();
                let file = TemporaryFiles::in_directory(base.path()).create(0o600).unwrap();
                fs::write(scratch.path().join("data"), "x").is_ok() && file.path().exists()
            });
            is_over.store(true, Ordering::Relaxed);
            assert!(all_exist, "it was removed while it was in use");
        });
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), 0);
    }

    #[test]
    fn name_encodes_its_creator() {
        let maker = maker("00ff", 7);
        assert_eq!(Creator::from_name(&format!("{}abc", maker.name())), Some(maker.clone()));
        assert!(maker.namespace.len() > 5 && Creator::current().boot.len() == 32, "{maker:?}");
        for name in ["7", "", "a-b", "a-b-c", "notes"] {
            assert_eq!(Creator::from_name(name), None, "{name}");
        }
    }
}
