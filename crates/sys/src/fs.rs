//! Space and kind of a file system.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::mount::MountPropagationFlags;
use rustix::process::{Resource, getrlimit};
use rustix::thread::UnshareFlags;

use crate::{Error, Result, check};

/// Opens a file that a user names, to be read whole: never waits for somebody who would write to a named pipe.
///
/// A pipe that a shell made for this program is read as it comes: `/dev/fd/63`, `/dev/stdin`.
///
/// # Errors
/// Those of open; `InvalidInput` for what is no regular file: a directory, a device, a named pipe, a socket.
pub fn open_to_read(path: &Path) -> Result<File> {
    let has_prefix = |prefix: &&str| path.as_os_str().as_bytes().starts_with(prefix.as_bytes());
    if ["/dev/fd/", "/proc/self/fd/", "/dev/stdin"].iter().any(has_prefix) {
        return File::open(path);
    }
    // Without it, to open a pipe to which nobody writes waits for ever. It changes nothing of a regular file.
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    let kind = file.metadata()?.file_type();
    let description = match () {
        () if kind.is_file() => return Ok(file),
        () if kind.is_dir() => "a directory",
        () if kind.is_fifo() => "a named pipe",
        () => "a device",
    };
    Err(Error::new(ErrorKind::InvalidInput, format!("it is {description}, not a regular file")))
}

/// The bytes of a file that a user names; see [`open_to_read`].
///
/// # Errors
/// Those of [`open_to_read`] and of read.
pub fn read_named(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_to_read(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The text of a file that a user names; see [`open_to_read`].
///
/// # Errors
/// Those of [`read_named`]; `InvalidData` for what is not UTF-8.
pub fn read_named_text(path: &Path) -> Result<String> {
    String::from_utf8(read_named(path)?).map_err(|_| Error::new(ErrorKind::InvalidData, "it is not UTF-8"))
}

/// Space of a file system, in bytes and files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSystemSpace {
    /// Size of the file system, in bytes.
    pub total_bytes: u64,
    /// Bytes that an unprivileged user may still write.
    pub available_bytes: u64,
    /// Bytes that root may still write.
    pub free_bytes: u64,
    /// Files that it can hold; 0 if unlimited.
    pub total_files: u64,
    /// Files that can still be created.
    pub free_files: u64,
}

/// Has a descriptor name what another one names, at once for all threads: calls that have begun end with what it named before.
///
/// # Errors
/// Those of dup3.
pub fn replace_descriptor(descriptor: &OwnedFd, source: &OwnedFd) -> Result<()> {
    // SAFETY: takes no pointers. Both descriptors are open; the first one stays open, and its owner's.
    check(unsafe { libc::dup3(source.as_raw_fd(), descriptor.as_raw_fd(), libc::O_CLOEXEC) }).map(drop)
}

/// Space of the file system that holds a path (statvfs(3)).
///
/// # Errors
/// Those of statvfs, such as `NotFound`; `InvalidInput` for a path with a NUL byte.
pub fn space(path: &Path) -> Result<FileSystemSpace> {
    let answer = rustix::fs::statvfs(path)?;
    let bytes = |blocks: u64| answer.f_frsize.saturating_mul(blocks);
    Ok(FileSystemSpace {
        total_bytes: bytes(answer.f_blocks),
        available_bytes: bytes(answer.f_bavail),
        free_bytes: bytes(answer.f_bfree),
        total_files: answer.f_files,
        free_files: answer.f_favail,
    })
}

/// The identity of the file system that holds a path while it is mounted, and with most kinds while it exists (f_fsid
/// of statvfs(3)).
///
/// # Errors
/// As [`space`].
pub fn file_system_id(path: &Path) -> Result<u64> {
    Ok(rustix::fs::statvfs(path)?.f_fsid)
}

/// Share of a file system that an unprivileged user may still fill, 0 to 1; 0 for one without a size.
///
/// # Errors
/// As [`space`].
pub fn free_share(path: &Path) -> Result<f64> {
    let capacity = space(path)?;
    Ok(if capacity.total_bytes == 0 { 0.0 } else { capacity.available_bytes as f64 / capacity.total_bytes as f64 })
}

/// The kind of a file system, as the magic number of statfs(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSystemKind(u32);

/// Magic numbers and names (statfs(2), include/uapi/linux/magic.h), and whether files live in memory only.
const FILE_SYSTEMS: &[(u32, &str, bool)] = &[
    (0xef53, "ext4", false),
    (0x5846_5342, "xfs", false),
    (0x9123_683e, "btrfs", false),
    (0xf2f5_2010, "f2fs", false),
    (0x2fc1_2fc1, "zfs", false),
    (0xca45_1a4e, "bcachefs", false),
    (0x0102_1994, "tmpfs", true),
    (0x8584_58f6, "ramfs", true),
    (0x9584_58f6, "hugetlbfs", true),
    (0x794c_7630, "overlay", false),
    (0x6573_5546, "fuse", false),
    (0x6969, "nfs", false),
    (0xff53_4d42, "cifs", false),
    (0xfe53_4d42, "smb2", false),
    (0x0102_1997, "9p", false),
    (0x6a65_6a63, "virtiofs", false),
    (0x00c3_6400, "ceph", false),
    (0x0bd0_0bd0, "lustre", false),
    (0x6b41_4653, "afs", false),
    (0x4d44, "vfat", false),
    (0x2011_bab0, "exfat", false),
    (0x7366_746e, "ntfs3", false),
    (0x7371_7368, "squashfs", false),
    (0x6e73_6673, "nsfs", true),
    (0x9fa0, "proc", true),
    (0x6265_6572, "sysfs", true),
];

/// Those served by another program or machine.
const SERVED_FILE_SYSTEMS: &[&str] = &["fuse", "nfs", "cifs", "smb2", "9p", "virtiofs", "ceph", "lustre", "afs"];

/// Those of which the size of a file is that of its content. Files of the kernel's own interfaces state none or a page for any content,
/// and those of other programs and machines what these report.
const SIZED_FILE_SYSTEMS: &[&str] =
    &["ext4", "xfs", "btrfs", "f2fs", "zfs", "bcachefs", "tmpfs", "ramfs", "vfat", "exfat", "ntfs3", "squashfs"];

/// Those that store every byte as it is: the others may compress, or hide what is behind them.
const UNCOMPRESSED_FILE_SYSTEMS: &[&str] = &["ext4", "xfs", "tmpfs", "ramfs", "vfat", "exfat"];

impl FileSystemKind {
    /// Its name, or its number if unknown.
    pub fn name(self) -> String {
        match FILE_SYSTEMS.iter().find(|(magic, ..)| *magic == self.0) {
            Some((_, name, _)) => (*name).to_owned(),
            None => format!("kind {:#x}", self.0),
        }
    }

    /// Whether its files are in memory only.
    pub fn is_in_memory(self) -> bool {
        FILE_SYSTEMS.iter().any(|(magic, _, memory)| *magic == self.0 && *memory)
    }

    /// Whether it is served by another program or machine.
    pub fn is_served(self) -> bool {
        SERVED_FILE_SYSTEMS.contains(&self.name().as_str())
    }

    /// Whether repeated bytes take as much space as others.
    pub fn stores_every_byte(self) -> bool {
        UNCOMPRESSED_FILE_SYSTEMS.contains(&self.name().as_str())
    }

    /// Whether it is known that a file has as many bytes as it states.
    pub fn has_true_sizes(self) -> bool {
        SIZED_FILE_SYSTEMS.contains(&self.name().as_str())
    }

    /// Whether it is known that no other machine can use it at the same time.
    pub fn is_single_host(self) -> bool {
        FILE_SYSTEMS.iter().any(|(magic, ..)| *magic == self.0) && !self.is_served()
    }
}

/// The kind of the file system that holds a path (statfs(2)).
///
/// # Errors
/// Those of statfs; `InvalidInput` for a path with a NUL byte.
pub fn kind(path: &Path) -> Result<FileSystemKind> {
    Ok(FileSystemKind(rustix::fs::statfs(path)?.f_type as u32))
}

/// The kind of the file system that an open file is in (fstatfs(2)).
///
/// # Errors
/// Those of fstatfs.
pub fn kind_of(file: impl AsFd) -> Result<FileSystemKind> {
    Ok(FileSystemKind(rustix::fs::fstatfs(file)?.f_type as u32))
}

pub use rustix::fs::{major, minor};

/// The flag of open(2) to open a pipe without waiting for its other end.
pub const O_NONBLOCK: i32 = libc::O_NONBLOCK;

/// The flag of open(2) to create an unnamed temporary file in a directory (O_TMPFILE).
pub const O_TMPFILE: i32 = libc::O_TMPFILE;

/// The flag of open(2) not to follow a symbolic link.
pub const O_NOFOLLOW: i32 = libc::O_NOFOLLOW;

/// The flag of open(2) to refer to a path without opening the file (O_PATH).
pub const O_PATH: i32 = libc::O_PATH;

/// The flag of open(2) to open a block device only if it is not in use, for example mounted.
pub const O_EXCL: i32 = libc::O_EXCL;

/// The error of open(2) for a non-blocking write to a pipe without a reader (ENXIO).
pub const ENXIO: i32 = libc::ENXIO;

/// Closes a file, and returns whether all that was written to it was taken. A file system of another machine or program, or one with a
/// quota there, may find out only now that it has no room; a file that is dropped hides that.
///
/// It is closed in any case, also on an error and on EINTR: on Linux it is not to be closed again (close(2)).
///
/// # Errors
/// Those of close, such as EDQUOT, ENOSPC, EIO or EINTR: what was written may be lost.
pub fn close(file: impl Into<OwnedFd>) -> Result<()> {
    let number = file.into().into_raw_fd();
    // SAFETY: the descriptor was owned, and nobody has it any more.
    check(unsafe { libc::close(number) }).map(drop)
}

/// The status flag of a descriptor that sends signals.
pub(crate) const ASYNC_FLAG: OFlags = OFlags::from_bits_retain(libc::O_ASYNC as u32);

/// Sets a status flag of an open file, or clears it.
pub(crate) fn set_status_flag(file: impl AsFd, flag: OFlags, is_set: bool) -> Result<()> {
    let mut flags = rustix::fs::fcntl_getfl(&file)?;
    flags.set(flag, is_set);
    Ok(rustix::fs::fcntl_setfl(file, flags)?)
}

/// Flushes a directory, so that the names in it survive a crash. Where a file system has no such call (CIFS, 9p), the server keeps
/// names by itself.
///
/// # Errors
/// Those of fsync, such as EBADF for a directory that is not open to be read.
pub fn flush_directory(directory: &File) -> Result<()> {
    match directory.sync_all() {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(()),
        flushed => flushed,
    }
}

/// Gives a file this many bytes of room on its file system, and that size. A file system without such a call gives the size alone.
///
/// # Errors
/// Those of fallocate, such as ENOSPC: then it has as much room as there was.
pub fn allocate(file: &File, bytes: u64) -> Result<()> {
    match rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), 0, bytes) {
        Err(rustix::io::Errno::OPNOTSUPP) => file.set_len(bytes),
        allocated => Ok(allocated?),
    }
}

/// The effective user of this process.
pub fn effective_user() -> u32 {
    // SAFETY: takes nothing and cannot fail.
    rustix::process::geteuid().as_raw()
}

/// The maximum size of files that this process writes (`ulimit -f`); the largest number if unlimited.
///
/// # Errors
/// Those of getrlimit.
pub fn max_file_size() -> Result<u64> {
    Ok(getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX))
}

/// A duplicate of a descriptor that this process inherited, such as one opened by a shell: writes continue at its
/// position.
///
/// # Errors
/// Those of fcntl, such as EBADF for a number that is not open, or that this process opened; `PermissionDenied` if it
/// is read-only.
pub fn inherited_writer(number: i32) -> Result<File> {
    // SAFETY: none of these takes a pointer, and the last one makes a descriptor that belongs to nobody yet.
    let (flags, mode, duplicate) = unsafe {
        let flags = check(libc::fcntl(number, libc::F_GETFD))?;
        let mode = check(libc::fcntl(number, libc::F_GETFL))?;
        (flags, mode, OwnedFd::from_raw_fd(check(libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 0))?))
    };
    // An inherited descriptor cannot be close-on-exec.
    if flags & libc::FD_CLOEXEC != 0 {
        return Err(Error::from_raw_os_error(libc::EBADF));
    }
    match mode & libc::O_ACCMODE {
        libc::O_RDONLY => Err(Error::new(std::io::ErrorKind::PermissionDenied, "it is open for reading only")),
        _ => Ok(duplicate.into()),
    }
}

/// Gives the calling thread, and the programs that it starts, a private mount namespace. It ends with them, however
/// they end, and its mounts with it.
///
/// # Errors
/// `PermissionDenied` without CAP_SYS_ADMIN.
pub fn enter_private_mounts() -> Result<()> {
    // SAFETY: a mount namespace has nothing that memory safety depends on.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }?;
    // Mounts and unmounts elsewhere still propagate here, so this keeps nothing in use.
    Ok(rustix::mount::mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::DOWNSTREAM)?)
}

/// Marks a directory as the top of unrelated trees (`chattr +T`): ext2 to ext4 then lay the directories that are made in it out
/// in groups far from each other, instead of near to it.
///
/// # Errors
/// Those of the ioctls, such as `Unsupported` or ENOTTY where a file system has no such mark.
pub fn set_topdir_flag(directory: &File) -> Result<()> {
    let flags = rustix::fs::ioctl_getflags(directory)?;
    Ok(rustix::fs::ioctl_setflags(directory, flags | rustix::fs::IFlags::TOPDIR)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocated_file_has_size_and_no_more_than_there_is() {
        let file = tempfile::tempfile().unwrap();
        allocate(&file, 100_000).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 100_000);
        assert!(allocate(&file, 1 << 62).is_err());
    }
    use std::io::Write;

    #[test]
    fn root_file_system_has_size() {
        let capacity = space(Path::new("/")).unwrap();
        assert!(capacity.available_bytes <= capacity.free_bytes && capacity.free_bytes < capacity.total_bytes);
        assert!((0.0..=1.0).contains(&free_share(Path::new("/")).unwrap()));
    }

    #[test]
    fn reading_named_pipe_does_not_block() {
        let directory = tempfile::tempdir().unwrap();
        let (file, pipe) = (directory.path().join("file"), directory.path().join("pipe"));
        std::fs::write(&file, "text").unwrap();
        assert_eq!(read_named_text(&file).unwrap(), "text");
        std::fs::write(&file, [0xff]).unwrap();
        assert_eq!(read_named_text(&file).unwrap_err().kind(), ErrorKind::InvalidData);
        let name = std::ffi::CString::new(pipe.as_os_str().as_bytes()).unwrap();
        // SAFETY: the path is a NUL-terminated string.
        check(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }).unwrap();
        for (path, kind) in
            [(pipe.as_path(), "a named pipe"), (directory.path(), "a directory"), (Path::new("/dev/null"), "a device")]
        {
            let error = open_to_read(path).unwrap_err();
            assert_eq!(error.to_string(), format!("it is {kind}, not a regular file"));
        }
        assert_eq!(open_to_read(&directory.path().join("none")).unwrap_err().kind(), ErrorKind::NotFound);
        // What a shell hands to this program.
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(b"from a shell").unwrap();
        drop(writer);
        let pipe_path = std::path::PathBuf::from(format!("/dev/fd/{}", reader.as_raw_fd()));
        assert_eq!(read_named_text(&pipe_path).unwrap(), "from a shell");
    }

    #[test]
    fn file_system_kinds_are_distinguished() {
        let [root, processes, nested] =
            ["/", "/proc", "/proc/self"].map(|path| file_system_id(Path::new(path)).unwrap());
        assert!(root != processes && processes == nested, "{root:x} {processes:x} {nested:x}");
    }

    #[test]
    fn kinds_have_names() {
        assert_eq!(kind(Path::new("/proc")).unwrap().name(), "proc");
        assert!(kind(Path::new("/proc")).unwrap().is_in_memory());
        assert_eq!(
            (FileSystemKind(0x1234_5678).name(), FileSystemKind(0x6969).is_served()),
            ("kind 0x12345678".into(), true)
        );
        let is_single_host = |magic: u32| FileSystemKind(magic).is_single_host();
        assert!(is_single_host(0xef53) && is_single_host(0x0102_1994) && !is_single_host(0x6969));
        assert!(!is_single_host(0x1234_5678), "nothing is claimed about an unknown kind");
        assert!(FileSystemKind(0xef53).stores_every_byte() && !FileSystemKind(0x9123_683e).stores_every_byte());
        assert!(
            SERVED_FILE_SYSTEMS
                .iter()
                .chain(UNCOMPRESSED_FILE_SYSTEMS)
                .all(|name| FILE_SYSTEMS.iter().any(|(_, file_system, _)| file_system == name))
        );
        let mut magic: Vec<u32> = FILE_SYSTEMS.iter().map(|(magic, ..)| *magic).collect();
        magic.sort_unstable();
        assert!(magic.windows(2).all(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn inherited_descriptor_writes_at_position() {
        let name = std::env::temp_dir().join(format!("kelvin-given-{}", std::process::id()));
        let mut writer = File::options().read(true).write(true).create_new(true).open(&name).unwrap();
        let reader = File::open(&name).unwrap();
        std::fs::remove_file(&name).unwrap();
        writer.write_all(b"first ").unwrap();
        let duplicate = |file: &File| {
            // SAFETY: takes no pointers, and what it makes belongs to nobody else.
            unsafe { OwnedFd::from_raw_fd(libc::dup(file.as_raw_fd())) }
        };
        inherited_writer(duplicate(&writer).as_raw_fd()).unwrap().write_all(b"second ").unwrap();
        writer.write_all(b"third").unwrap();
        assert_eq!(std::io::read_to_string(&reader).unwrap(), "first second third");
        assert!(inherited_writer(duplicate(&reader).as_raw_fd()).unwrap_err().to_string().contains("for reading only"));
        for number in [writer.as_raw_fd(), i32::MAX] {
            assert_eq!(inherited_writer(number).unwrap_err().raw_os_error(), Some(libc::EBADF));
        }
    }

    #[test]
    fn close_frees_and_directory_flushes() {
        let directory = tempfile::tempdir().unwrap();
        let (mut reader, writer) = std::io::pipe().unwrap();
        close(writer).unwrap();
        assert_eq!(std::io::Read::read(&mut reader, &mut [0]).unwrap(), 0);
        flush_directory(&File::open(directory.path()).unwrap()).unwrap();
        let (reader, _writer) = std::io::pipe().unwrap();
        // A pipe has no such call either.
        flush_directory(&OwnedFd::from(reader).into()).unwrap();
    }

    #[test]
    fn kernel_files_have_no_true_sizes() {
        let kind_of_path = |path: &str| kind_of(File::open(path).unwrap()).unwrap();
        assert_eq!(kind_of_path("/proc/version"), kind(Path::new("/proc/version")).unwrap());
        assert!(!kind_of_path("/proc/version").has_true_sizes() && !kind_of_path("/sys/kernel").has_true_sizes());
        assert!(FileSystemKind(0x0102_1994).has_true_sizes() && !FileSystemKind(0x6573_5546).has_true_sizes());
    }

    #[test]
    fn missing_path_is_an_error() {
        let error = space(Path::new("/no such directory")).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    }

    #[test]
    fn topdir_flag_is_set_or_unsupported() {
        let path = std::env::current_dir().unwrap().join(format!("kelvin-top-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        let marked = File::open(&path).and_then(|directory| set_topdir_flag(&directory));
        let is_ext4 = kind(&path).unwrap().name() == "ext4";
        // The effect of the mark is up to the file system.
        std::fs::remove_dir(&path).unwrap();
        assert!(marked.is_ok() || !is_ext4, "{marked:?}");
        let proc = File::open("/proc").unwrap();
        assert!(set_topdir_flag(&proc).is_err(), "a pseudo file system has no marks");
    }
}
