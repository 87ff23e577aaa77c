//! A file that is being made: in the end it exists whole, or not at all.
//!
//! It is made in the same directory under another name, and renamed when it is whole. A file without a name (O_TMPFILE) would
//! leave nothing behind even of a killed process. But it cannot replace another one, is not available on every file system, and is
//! flushed differently on some. What is left behind is swept instead, see [`crate::temporary_files`].

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, ErrorKind, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kelvin_sys::fs::{O_NOFOLLOW, O_NONBLOCK, O_PATH, effective_user};
use tempfile::TempPath;

use crate::rename_noreplace::{self, PathAt};
use crate::target::{Target, special_kind};
use crate::temporary_files::{self, TemporaryFiles, descriptor_path};
use crate::{Error, Result};

/// Permission bits kept of a file that is replaced. Set-user-ID and its like go with the content they were given to.
const PERMISSION_BITS: u32 = 0o777;
/// Permissions requested for a new file, less the umask.
pub(crate) const DEFAULT_MODE: u32 = 0o666;
/// S_IRUSR, S_IRGRP and S_IROTH: two bits above those to execute.
const READ_BITS: u32 = 0o444;
/// Permissions while it is being made.
pub(crate) const PRIVATE_MODE: u32 = 0o600;
/// Root, whose links everybody follows.
const ROOT_UID: u32 = 0;
/// Mode of a directory in which others may write (S_IWGRP, S_IWOTH), and only owners may rename and remove (S_ISVTX).
const SHARED_WRITE_BITS: u32 = 0o022;
const STICKY_BIT: u32 = 0o1000;

/// A dangling link.
pub(crate) const DANGLING_LINK: &str = "a symbolic link that leads nowhere";

/// A name in a directory that is held open: replacing that directory, or one above it, changes nothing.
#[derive(Debug)]
pub struct PinnedPath {
    /// As the user named it.
    path: PathBuf,
    directory: Arc<File>,
    name: OsString,
}

impl PinnedPath {
    /// The place that a path names.
    ///
    /// # Errors
    /// A path that can only be a directory's; a directory that does not exist.
    pub fn open(path: &Path) -> Result<Self> {
        let is_of_directory = [&b"/"[..], b"/."].iter().any(|end| path.as_os_str().as_bytes().ends_with(end));
        let Some(name) = path.file_name().filter(|_| !is_of_directory) else {
            return Err(Error::NotRegular { path: path.to_owned(), kind: "the name of a directory" });
        };
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let directory = File::options().read(true).custom_flags(O_PATH).open(parent);
        let directory = directory.map_err(|error| match error.kind() {
            ErrorKind::NotFound => Error::NoDirectory { path: path.to_owned(), directory: parent.to_owned() },
            _ => Error::call("make a file in", parent, error),
        })?;
        Ok(Self { path: path.to_owned(), directory: Arc::new(directory), name: name.to_owned() })
    }

    /// The place of a path's last component in a directory that is already held; errors name the path.
    pub fn in_directory(directory: &Arc<File>, path: PathBuf) -> Self {
        let name = path.file_name().unwrap_or_default().to_owned();
        Self { directory: Arc::clone(directory), name, path }
    }

    /// The place that the symbolic link there leads to; errors still name the path that the user gave.
    ///
    /// # Errors
    /// As for [`PinnedPath::open`].
    pub(crate) fn follow_link(&self) -> Result<Self> {
        let target =
            fs::read_link(self.descriptor_path()).map_err(|error| Error::call("read the link", &self.path, error))?;
        match Self::open(&self.directory().join(target)) {
            Ok(place) => Ok(Self { path: self.path.clone(), ..place }),
            Err(Error::NoDirectory { .. }) => Err(self.not_regular(DANGLING_LINK)),
            Err(error) => Err(error.with_path(&self.path)),
        }
    }

    /// The error that this kind of file is unsuitable.
    pub(crate) fn not_regular(&self, kind: &'static str) -> Error {
        Error::NotRegular { path: self.path.clone(), kind }
    }

    /// As the user named it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its name in its directory.
    pub(crate) fn name(&self) -> &OsStr {
        &self.name
    }

    /// The held directory.
    pub(crate) fn directory(&self) -> PathBuf {
        descriptor_path(&self.directory)
    }

    /// Where this process finds it.
    pub(crate) fn descriptor_path(&self) -> PathBuf {
        self.directory().join(&self.name)
    }

    /// Flushes its name: what is there survives a crash under it.
    ///
    /// # Errors
    /// Those of fsync.
    pub(crate) fn flush_name(&self) -> Result<()> {
        let flushed = match File::open(self.directory()) {
            // File systems flush the newest name of a file with it.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                File::open(self.descriptor_path()).and_then(|file| file.sync_all())
            }
            opened => opened.and_then(|directory| kelvin_sys::fs::flush_directory(&directory)),
        };
        flushed.map_err(|error| Error::call("flush the directory of", &self.path, error))
    }

    /// What is there, if anything. A link is not followed.
    ///
    /// # Errors
    /// Those of stat; a link of another user but root; what another user has put where everybody may put something, as in /tmp.
    /// The kernel has the same rules as options (`fs.protected_symlinks` and its kin of proc_sys_fs(5)).
    pub(crate) fn lookup(&self) -> Result<Option<Metadata>> {
        let find_error = |error| Error::call("find", &self.path, error);
        let metadata = match fs::symlink_metadata(self.descriptor_path()) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            metadata => metadata.map_err(find_error)?,
        };
        let directory_metadata = self.directory.metadata().map_err(find_error)?;
        let is_shared =
            directory_metadata.mode() & STICKY_BIT != 0 && directory_metadata.mode() & SHARED_WRITE_BITS != 0;
        let trusted_user = if metadata.is_symlink() { ROOT_UID } else { directory_metadata.uid() };
        if (is_shared || metadata.is_symlink()) && ![effective_user(), trusted_user].contains(&metadata.uid()) {
            let user = metadata.uid();
            let why = format!("was put there by another user ({user}): choose another place, or remove it");
            return Err(Error::unusable(&self.path, why));
        }
        Ok(Some(metadata))
    }

    /// The file there, which is to be replaced, if there is one and that is allowed.
    fn lookup_replaced(&self, may_replace: bool) -> Result<Option<Metadata>> {
        let replaced = self.lookup_regular()?;
        if replaced.is_some() {
            if !may_replace {
                return Err(Error::AlreadyExists { path: self.path.clone() });
            }
            // Who may not write it may not replace it either.
            let opened = File::options().write(true).custom_flags(O_NOFOLLOW | O_NONBLOCK).open(self.descriptor_path());
            opened.map_err(|error| Error::call("open", &self.path, error))?;
        }
        Ok(replaced)
    }

    /// The file there, if there is one, which is a regular one.
    fn lookup_regular(&self) -> Result<Option<Metadata>> {
        let metadata = self.lookup()?;
        match metadata.as_ref().and_then(special_kind) {
            Some(kind) => Err(self.not_regular(kind)),
            None => Ok(metadata),
        }
    }
}

/// A file that is being made. Dropped before it is finished, it is removed; an existing one is not touched until then.
#[derive(Debug)]
pub struct AtomicFile {
    /// Other threads may write to it too.
    file: Arc<File>,
    /// Its first name.
    temporary_path: TempPath,
    /// Whether a lock shows to others that it is in use.
    is_locked: bool,
    place: Arc<PinnedPath>,
    /// Its final permissions.
    mode: u32,
    /// Whether it may replace a file, and whether there is one.
    may_replace: bool,
    replaces: bool,
    /// Whether all of it is on its device.
    is_flushed: bool,
}

impl AtomicFile {
    /// Makes an empty file in the directory of its place. If there is a file already, the new one will replace it, with its owner and
    /// permissions; or is refused, if nothing may be replaced.
    ///
    /// # Errors
    /// Those of making a file; something there that is no regular file, may not be written, or may not be replaced.
    pub fn create(place: &Arc<PinnedPath>, may_replace: bool) -> Result<Self> {
        Self::create_among(&TemporaryFiles::in_directory(&place.directory()), place, may_replace)
    }

    /// Like `create`, as one of many, whose directory is already known.
    ///
    /// # Errors
    /// As for [`AtomicFile::create`].
    pub fn create_among(files: &TemporaryFiles, place: &Arc<PinnedPath>, may_replace: bool) -> Result<Self> {
        let replaced = place.lookup_replaced(may_replace)?;
        let create_error = |error| Error::call("make a file next to", &place.path, error);
        let mode = if replaced.is_some() { PRIVATE_MODE } else { DEFAULT_MODE };
        let (file, temporary_path) = files.create(mode).map_err(create_error)?.into_parts();
        let metadata = file.metadata().map_err(create_error)?;
        // As the user wants it only when it is whole.
        let _ = set_permissions(&file, PRIVATE_MODE);
        let new = Self::new(file, temporary_path, place, (replaced, metadata))?;
        Ok(Self { is_locked: files.are_local(), may_replace, ..new })
    }

    /// A file with the owner and the permissions of the one that it replaces, or else of a new one.
    fn new(
        file: File,
        temporary_path: TempPath,
        place: &Arc<PinnedPath>,
        (replaced, metadata): (Option<Metadata>, Metadata),
    ) -> Result<Self> {
        if let Some(replaced) =
            replaced.as_ref().filter(|old| (old.uid(), old.gid()) != (metadata.uid(), metadata.gid()))
        {
            fchown(&file, Some(replaced.uid()), Some(replaced.gid()))
                .map_err(|error| Error::call("keep the owner of", &place.path, error))?;
        }
        Ok(Self {
            file: Arc::new(file),
            temporary_path,
            is_locked: true,
            place: Arc::clone(place),
            mode: replaced.as_ref().unwrap_or(&metadata).mode() & PERMISSION_BITS,
            may_replace: false,
            replaces: replaced.is_some(),
            is_flushed: false,
        })
    }

    /// Goes on with a file that [`AtomicFile::keep_partial`] left under this name, or makes an empty one. It is locked.
    ///
    /// # Errors
    /// As for [`AtomicFile::create`]; something else under this name, or a file that is still being written.
    pub fn resume(place: &Arc<PinnedPath>, partial_name: &OsStr, may_replace: bool) -> Result<Self> {
        let replaced = place.lookup_replaced(may_replace)?;
        let resume_error = |error| Error::call("resume a part of", &place.path, error);
        let path = place.directory().join(partial_name);
        let file = temporary_files::open_left_over(&path, PRIVATE_MODE).map_err(resume_error)?;
        let temporary_path = TempPath::try_from_path(path).map_err(resume_error)?;
        let metadata = file.metadata().map_err(resume_error)?;
        Ok(Self { may_replace, ..Self::new(file, temporary_path, place, (replaced, metadata))? })
    }

    /// Ends without finishing, and leaves the file under its temporary name, for [`AtomicFile::resume`].
    pub fn keep_partial(mut self) {
        self.temporary_path.disable_cleanup(true);
        // A child that another thread has just forked holds it until it executes its program: then closing frees no lock. One that
        // cannot be freed is freed then.
        let _ = self.file.unlock();
    }

    /// The file to write to.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Like `file`, for other threads, which let it go before it is finished.
    pub fn shared_file(&self) -> Arc<File> {
        Arc::clone(&self.file)
    }

    /// Gives it these permissions in the end: for reading, writing and executing, and no others.
    pub fn set_mode(&mut self, mode: u32) {
        self.mode = mode & PERMISSION_BITS;
    }

    /// Gives it the permissions of a file that it is a copy of, less the umask, unless it replaces one. Whoever may not read the original
    /// shall not read the copy.
    pub fn copy_mode(&mut self, original: u32) {
        if !self.replaces {
            // A new file is made without the right to execute: those without the right to read by the umask cannot open it.
            let allowed = self.mode | (self.mode & READ_BITS) >> 2;
            self.mode = original & PERMISSION_BITS & allowed;
        }
    }

    /// That it can have this many bytes, holes among them: by this process's limit and the file system's.
    ///
    /// # Errors
    /// [`Error::Unusable`], with the limit.
    pub fn check_size(&self, bytes: u64) -> Result<()> {
        let limit = kelvin_sys::fs::max_file_size();
        let limit = limit.map_err(|error| Error::call("query the file system of", &self.place.path, error))?;
        if bytes > limit {
            return self.too_large(bytes, format!("a file of this process can have {limit} at most (ulimit -f)"));
        }
        // To seek beyond a file system's largest file is an error (lseek(2); s_maxbytes of the kernel's super_block).
        let mut file = self.file();
        if file.seek(SeekFrom::Start(bytes)).and_then(|_| file.rewind()).is_err() {
            return self.too_large(bytes, "its file system does not support files that large".to_owned());
        }
        Ok(())
    }

    fn too_large(&self, bytes: u64, why: String) -> Result<()> {
        Err(Error::unusable(&self.place.path, format!("cannot have {bytes} bytes: {why}")))
    }

    /// That its file system has room for this many bytes. Where it compresses, that is unknown for content that may compress.
    ///
    /// # Errors
    /// [`Error::Unusable`], with the room that there is.
    pub fn check_free_space(&self, bytes: u64, is_incompressible: bool) -> Result<()> {
        let query_error = |error| Error::call("query the file system of", &self.place.path, error);
        let directory = self.place.directory();
        let is_known = is_incompressible || kelvin_sys::fs::kind(&directory).map_err(query_error)?.stores_every_byte();
        let space = kelvin_sys::fs::space(&directory).map_err(query_error)?;
        let free = if effective_user() == 0 { space.free_bytes } else { space.available_bytes };
        // One without a size, as a tmpfs can be, does not report it.
        if is_known && space.total_bytes > 0 && bytes > free {
            return self.too_large(bytes, format!("its file system has room for {free}"));
        }
        Ok(())
    }

    /// The file as it was when it was made: empty.
    pub(crate) fn target(&self) -> Result<Target> {
        Target::find(&self.temporary_path)
    }

    /// Whether there is a file that it will replace.
    pub fn will_replace(&self) -> bool {
        self.replaces
    }

    /// The file that is under its name now, and goes when this one gets it.
    ///
    /// # Errors
    /// Those of stat; something there that is no regular file.
    pub fn replaced_file(&self) -> Result<Option<Metadata>> {
        self.place.lookup_regular()
    }

    /// Flushes all of it to its device.
    ///
    /// # Errors
    /// Those of fsync.
    pub fn flush(&mut self) -> Result<()> {
        self.file.sync_all().map_err(|error| Error::call("flush", &self.place.path, error))?;
        self.is_flushed = true;
        Ok(())
    }

    /// Closes the whole file, and renames it to its place; where nothing was there it replaces nothing that came meanwhile, unless
    /// that is allowed. A file that it replaces goes only once the new one is on its device. Else a crash could take both (XFS and
    /// Btrfs then leave an empty file).
    ///
    /// # Errors
    /// Those of flushing, closing and renaming; something there that is no regular file. Then it is removed, and what is there stays.
    pub fn commit(mut self) -> Result<()> {
        let commit_error = |place: &PinnedPath, error: io::Error| match error.kind() {
            ErrorKind::AlreadyExists => Error::AlreadyExists { path: place.path.clone() },
            _ => Error::call("put a file at", &place.path, error),
        };
        set_permissions(&self.file, self.mode).map_err(|error| commit_error(&self.place, error))?;
        if self.place.lookup_regular()?.is_some() && self.may_replace && !self.is_flushed {
            self.flush()?;
        }
        // Dropped in reverse order: the temporary path leads through the descriptor of its directory.
        let Self { place, temporary_path: mut first, file, is_locked, may_replace, .. } = self;
        // Where a lock keeps others from it, or another thread has not let it go yet, a duplicate is closed, which reports the same. No
        // file system learns which of two descriptors is closed. The other one stays open until the file has its name.
        let (closed, lock) = match Arc::try_unwrap(file) {
            Ok(file) if !is_locked => (kelvin_sys::fs::close(file), None),
            file => {
                let file = file.map_or_else(|shared| shared, Arc::new);
                (file.try_clone().and_then(kelvin_sys::fs::close), Some(file))
            }
        };
        closed.map_err(|error| Error::call("close", &place.path, error))?;
        let last = place.descriptor_path();
        let renamed = if may_replace {
            fs::rename(&first, &last)
        } else {
            let [old_path, new_path] = [&*first, &last].map(PathAt::in_working_directory);
            rename_noreplace::rename_noreplace(old_path, new_path).map_err(io::Error::from)
        };
        renamed.map_err(|error| commit_error(&place, error))?;
        first.disable_cleanup(true);
        drop(lock);
        Ok(())
    }
}

fn set_permissions(file: &File, mode: u32) -> io::Result<()> {
    if file.metadata()?.mode() & PERMISSION_BITS == mode {
        return Ok(());
    }
    file.set_permissions(Permissions::from_mode(mode))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::symlink;

    /// Names in a directory. Temporary ones are long.
    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = entries.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn place(path: &Path) -> Arc<PinnedPath> {
        Arc::new(PinnedPath::open(path).unwrap())
    }

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().mode() & 0o7777
    }

    #[test]
    fn file_appears_only_on_commit() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let place = place(&path);
        drop(AtomicFile::create(&place, false).unwrap());
        assert!(names(directory.path()).is_empty());
        let file = AtomicFile::create(&place, false).unwrap();
        file.file().write_all(b"whole").unwrap();
        assert_eq!(
            (path.exists(), names(directory.path()).len(), mode(&file.temporary_path)),
            (false, 1, PRIVATE_MODE)
        );
        file.commit().unwrap();
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), names(directory.path()).len()), ("whole", 1));
        // As any program would have made it.
        fs::write(directory.path().join("usual"), "").unwrap();
        assert_eq!(mode(&path), mode(&directory.path().join("usual")));
    }

    #[test]
    fn partial_file_is_resumed_under_lock() {
        let directory = tempfile::tempdir().unwrap();
        let place = place(&directory.path().join("file"));
        let partial_name = OsStr::new(".left");
        let partial_file = AtomicFile::resume(&place, partial_name, false).unwrap();
        partial_file.file().write_all(b"half").unwrap();
        let error = AtomicFile::resume(&place, partial_name, false).unwrap_err();
        assert!(error.to_string().contains("another process"), "{error}");
        partial_file.keep_partial();
        assert_eq!(names(directory.path()), [".left"]);
        let mut resumed_file = AtomicFile::resume(&place, partial_name, false).unwrap();
        assert_eq!(fs::read(directory.path().join(".left")).unwrap(), b"half");
        resumed_file.file().seek(SeekFrom::End(0)).unwrap();
        resumed_file.file().write_all(b" and half").unwrap();
        resumed_file.set_mode(0o640);
        resumed_file.commit().unwrap();
        assert_eq!(names(directory.path()), ["file"]);
        assert_eq!((fs::read(place.path()).unwrap(), mode(place.path())), (b"half and half".to_vec(), 0o640));
        drop(AtomicFile::resume(&place, partial_name, true).unwrap());
        assert_eq!(names(directory.path()), ["file"]);
        // What somebody has put under this name is neither followed nor written.
        symlink(directory.path().join("file"), directory.path().join(".left")).unwrap();
        assert!(AtomicFile::resume(&place, partial_name, true).is_err() && directory.path().join(".left").is_symlink());
    }

    #[test]
    fn replaced_file_keeps_mode_until_commit() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, "old").unwrap();
        fs::hard_link(&path, directory.path().join("other")).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o4640)).unwrap();
        let place = place(&path);
        assert!(matches!(AtomicFile::create(&place, false), Err(Error::AlreadyExists { .. })));

        let file = AtomicFile::create(&place, true).unwrap();
        let dropped_file = AtomicFile::create(&place, true).unwrap();
        file.file().write_all(b"new").unwrap();
        assert_eq!((names(directory.path()).len(), fs::read_to_string(&path).unwrap().as_str()), (4, "old"));
        drop(dropped_file);
        file.commit().unwrap();
        assert_eq!((names(directory.path()), mode(&path)), (vec!["file".into(), "other".into()], 0o640));
        let content = |name| fs::read_to_string(directory.path().join(name)).unwrap();
        assert_eq!((content("file").as_str(), content("other").as_str()), ("new", "old"));
    }

    #[test]
    fn concurrent_file_is_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let alone = AtomicFile::create(&place(&path), false).unwrap();
        let place = place(&path);
        let [first, second, third] = [false, true, true].map(|replace| AtomicFile::create(&place, replace).unwrap());
        second.commit().unwrap();
        // One with a directory of its own removes its temporary file before it lets that go.
        for late in [first, alone] {
            assert!(matches!(late.commit(), Err(Error::AlreadyExists { .. })));
        }
        fs::remove_file(&path).unwrap();
        symlink("/dev/null", &path).unwrap();
        assert!(third.commit().unwrap_err().to_string().contains("file is a symbolic link"));
        assert_eq!((names(directory.path()), path.is_symlink()), (vec!["file".into()], true));
    }

    /// Whoever may rename the directory meanwhile does not choose where the file goes.
    #[test]
    fn swapped_directory_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let [old_directory, new_directory, foreign_directory] =
            ["named", "moved", "theirs"].map(|name| directory.path().join(name));
        fs::create_dir(&old_directory).unwrap();
        fs::create_dir(&foreign_directory).unwrap();
        fs::write(foreign_directory.join("file"), "theirs").unwrap();
        let place = place(&old_directory.join("file"));
        let file = AtomicFile::create(&place, true).unwrap();
        fs::rename(&old_directory, &new_directory).unwrap();
        symlink(&foreign_directory, &old_directory).unwrap();
        file.commit().unwrap();
        assert_eq!(
            (names(&new_directory), names(&foreign_directory)),
            (vec!["file".to_owned()], vec!["file".to_owned()])
        );
        assert_eq!(fs::read_to_string(foreign_directory.join("file")).unwrap(), "theirs");
    }

    #[test]
    fn directories_and_special_files_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("link");
        symlink("elsewhere", &link).unwrap();
        for replace in [false, true] {
            let error_text = |path: &Path| {
                let outcome =
                    PinnedPath::open(path).and_then(|place| AtomicFile::create(&Arc::new(place), replace).map(drop));
                outcome.unwrap_err().to_string()
            };
            assert!(error_text(&link).contains("is a symbolic link"));
            assert!(error_text(directory.path()).contains("is a directory"));
            assert!(error_text(Path::new("/dev/null")).contains("is a character device"));
            for name in ["/", "..", "new/", "new/."] {
                assert!(error_text(&directory.path().join(name)).contains("is the name of a directory"), "{name}");
            }
            assert!(error_text(&directory.path().join("no/file")).contains("there is no directory"));
            assert!(error_text(&directory.path().join("x".repeat(256))).contains("too long"));
        }
        assert_eq!(names(directory.path()), ["link"]);
        // The longest name leaves no room for one derived from it.
        let longest = directory.path().join("x".repeat(255));
        AtomicFile::create(&place(&longest), false).unwrap().commit().unwrap();
        assert!(longest.exists());
    }
}
