//! File systems that are mounted for a test and unmounted in every case: when the test ends, also by a panic; and,
//! of a test that was killed, by the next one.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::mount::UnmountFlags;

use crate::MissingRequirement;
use crate::fuse_server::{self, FuseBehavior, RequestCounts};

/// How the names of the places begin; the process that made one follows, and then the kind.
const DIR_PREFIX: &str = "kelvin-mounted-";
/// Where the file system is, in its place.
const MOUNT_DIR: &str = "mount";
/// What is on a loop device, and its room: xfs and btrfs make no smaller file systems.
const IMAGE_FILE: &str = "image";
const IMAGE_BYTES: u64 = 512 << 20;
/// How long a program may take to mount what it serves.
const MOUNT_TIMEOUT: Duration = Duration::from_secs(5);
/// The program that serves files over a pipe, where distributions have it, and its package.
const SFTP_PACKAGE: &str = "openssh-sftp-server";
const SFTP_SERVERS: [&str; 3] =
    ["/usr/lib/openssh/sftp-server", "/usr/libexec/openssh/sftp-server", "/usr/lib/ssh/sftp-server"];

/// A kind of file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystemKind {
    /// On a loop device.
    Ext4,
    /// On a loop device.
    Xfs,
    /// On a loop device.
    Btrfs,
    /// In memory.
    Tmpfs,
    /// A layer over another directory.
    Overlay,
    /// FUSE, whose files are in the page cache: sshfs over a pipe.
    Sshfs,
    /// FUSE, whose files never are in the page cache: bindfs.
    Bindfs,
}

impl FileSystemKind {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Ext4, Self::Xfs, Self::Btrfs, Self::Tmpfs, Self::Overlay, Self::Sshfs, Self::Bindfs];

    /// Its name, which is that of the program that makes or serves it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
            Self::Tmpfs => "tmpfs",
            Self::Overlay => "overlay",
            Self::Sshfs => "sshfs",
            Self::Bindfs => "bindfs",
        }
    }

    /// The package of Debian with that program.
    const fn package(self) -> &'static str {
        match self {
            Self::Ext4 => "e2fsprogs",
            Self::Xfs => "xfsprogs",
            Self::Btrfs => "btrfs-progs",
            Self::Tmpfs | Self::Overlay => "mount",
            Self::Sshfs => "sshfs",
            Self::Bindfs => "bindfs",
        }
    }
}

/// A mounted file system; unmounted and removed when dropped.
#[derive(Debug)]
pub struct MountedFs {
    /// A directory for all that belongs to it.
    directory: PathBuf,
    /// Programs that serve it.
    programs: Vec<Child>,
}

impl MountedFs {
    /// A fresh file system of a kind, in a directory below this one.
    ///
    /// # Errors
    /// What is missing for it here.
    pub fn new(kind: FileSystemKind, base: &Path) -> Result<Self, MissingRequirement> {
        let mut file_system = Self::new_directory(base)?;
        file_system.mount(kind)?;
        Ok(file_system)
    }

    /// A fresh ext4 on a loop device, made with these arguments.
    ///
    /// # Errors
    /// What is missing for it here.
    pub fn ext4(arguments: &[&str], base: &Path) -> Result<Self, MissingRequirement> {
        let file_system = Self::new_directory(base)?;
        file_system.mount_loop_device(FileSystemKind::Ext4, &[&["-q", "-F"], arguments].concat())?;
        Ok(file_system)
    }

    /// A copy of one on a loop device, with what had reached its device by now and nothing else: as after a crash.
    ///
    /// # Errors
    /// What is missing for it here.
    pub fn crash_copy(&self, kind: FileSystemKind, base: &Path) -> Result<Self, MissingRequirement> {
        let file_system = Self::new_directory(base)?;
        let image = file_system.directory.join(IMAGE_FILE);
        run_to_success(
            "coreutils",
            Command::new("cp").arg("--sparse=always").arg(self.directory.join(IMAGE_FILE)).arg(&image),
        )?;
        // Both have one identity.
        let options = if kind == FileSystemKind::Xfs { "loop,nosuid,nodev,nouuid" } else { "loop,nosuid,nodev" };
        file_system.run_mount(&["-o", options, &image.to_string_lossy()])?;
        Ok(file_system)
    }

    /// A place for one more.
    fn new_directory(base: &Path) -> Result<Self, MissingRequirement> {
        static MOUNT_COUNT: AtomicU64 = AtomicU64::new(0);
        remove_leftovers(base);
        let number = MOUNT_COUNT.fetch_add(1, Ordering::Relaxed);
        let directory = base.join(format!("{DIR_PREFIX}{}-{number}", std::process::id()));
        let file_system = Self { directory, programs: Vec::new() };
        file_system.directory(MOUNT_DIR)?;
        Ok(file_system)
    }

    /// One that the test serves itself, and what it is asked for.
    ///
    /// # Errors
    /// What is missing for it here.
    pub fn serve(behaviour: FuseBehavior, base: &Path) -> Result<(Self, Arc<RequestCounts>), MissingRequirement> {
        let file_system = Self::new_directory(base)?;
        let counts = fuse_server::serve(&file_system.path(), behaviour)?;
        Ok((file_system, counts))
    }

    /// Where it is mounted.
    pub fn path(&self) -> PathBuf {
        self.directory.join(MOUNT_DIR)
    }

    fn mount(&mut self, kind: FileSystemKind) -> Result<(), MissingRequirement> {
        match kind {
            FileSystemKind::Ext4 => self.mount_loop_device(kind, &["-q", "-F"]),
            FileSystemKind::Xfs | FileSystemKind::Btrfs => self.mount_loop_device(kind, &["-q"]),
            FileSystemKind::Tmpfs => self.run_mount(&["-t", "tmpfs", "-o", "size=64M", "tmpfs"]),
            FileSystemKind::Overlay => {
                let [lower, upper, work] = ["lower", "upper", "work"].map(|name| self.directory(name));
                let (lower, upper, work) = (lower?, upper?, work?);
                let layers =
                    format!("lowerdir={},upperdir={},workdir={}", lower.display(), upper.display(), work.display());
                self.run_mount(&["-t", "overlay", "-o", &layers, "overlay"])
            }
            FileSystemKind::Sshfs => self.mount_sshfs(),
            FileSystemKind::Bindfs => {
                let source = self.directory("behind")?;
                let mut command = Command::new("bindfs");
                self.start(kind.package(), command.arg("-f").arg(source).arg(self.path()).stderr(Stdio::null()))?;
                self.wait_for_mount()
            }
        }
    }

    fn directory(&self, name: &str) -> Result<PathBuf, MissingRequirement> {
        let path = self.directory.join(name);
        fs::create_dir_all(&path)
            .map_err(|error| MissingRequirement::privilege(format!("{}: {error}", path.display())))?;
        Ok(path)
    }

    fn mount_loop_device(&self, kind: FileSystemKind, arguments: &[&str]) -> Result<(), MissingRequirement> {
        let image = self.directory.join(IMAGE_FILE);
        let result = File::create(&image).and_then(|file| file.set_len(IMAGE_BYTES));
        result.map_err(|error| MissingRequirement::privilege(format!("{}: {error}", image.display())))?;
        run_to_success(kind.package(), Command::new(format!("mkfs.{}", kind.name())).args(arguments).arg(&image))?;
        self.run_mount(&["-o", "loop,nosuid,nodev", &image.to_string_lossy()])
    }

    fn run_mount(&self, arguments: &[&str]) -> Result<(), MissingRequirement> {
        run_to_success("mount", Command::new("mount").args(arguments).arg(self.path()))
    }

    /// sshfs speaks to the program that serves it over a pipe: no network takes part.
    fn mount_sshfs(&mut self) -> Result<(), MissingRequirement> {
        let source = self.directory("behind")?;
        let server = SFTP_SERVERS.into_iter().find(|path| Path::new(path).exists());
        let server = server.ok_or_else(|| MissingRequirement::package(SFTP_PACKAGE, "there is no sftp-server"))?;
        self.start(SFTP_PACKAGE, Command::new(server).stdin(Stdio::piped()).stdout(Stdio::piped()))?;
        let pipes = self.programs.last_mut().and_then(|server| Some((server.stdin.take()?, server.stdout.take()?)));
        let (server_stdin, server_stdout) =
            pipes.ok_or_else(|| MissingRequirement::machine("there is no pipe to the sftp-server"))?;
        let mut client = Command::new("sshfs");
        client.arg(format!(":{}", source.display())).arg(self.path());
        // Without kernel_cache the page cache loses the file whenever it is opened.
        client
            .args(["-f", "-o", "passive,kernel_cache"])
            .stdin(server_stdout)
            .stdout(server_stdin)
            .stderr(Stdio::null());
        self.start(FileSystemKind::Sshfs.package(), &mut client)?;
        self.wait_for_mount()
    }

    /// Starts a program that serves it.
    fn start(&mut self, package: &str, command: &mut Command) -> Result<(), MissingRequirement> {
        self.programs.push(command.spawn().map_err(|error| missing_program(command, package, &error))?);
        Ok(())
    }

    /// Waits until a program has mounted what it serves.
    fn wait_for_mount(&self) -> Result<(), MissingRequirement> {
        let start = Instant::now();
        while start.elapsed() < MOUNT_TIMEOUT {
            if is_mounted(&self.path()) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(MissingRequirement::privilege("it is not mounted: no /dev/fuse, or not allowed"))
    }
}

impl Drop for MountedFs {
    fn drop(&mut self) {
        unmount(&self.directory);
        for program in &mut self.programs {
            let _ = program.kill();
            let _ = program.wait();
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Takes what is mounted in a place out of the tree, whoever uses it; others than root what they mounted by FUSE. As root it is
/// held by a descriptor, and no link to it is followed: a path could lead to something else by now.
fn unmount(directory: &Path) {
    let open_path =
        |path: &Path| rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
    let fd_path = |fd: &OwnedFd| PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()));
    if let Ok(mount_point) = open_path(directory).and_then(|parent| open_path(&fd_path(&parent).join(MOUNT_DIR))) {
        let _ = rustix::mount::unmount(fd_path(&mount_point), UnmountFlags::DETACH);
    }
    let path = directory.join(MOUNT_DIR);
    for program in ["fusermount3", "fusermount"] {
        if is_mounted(&path) {
            let _ = Command::new(program).args(["-u", "-z"]).arg(&path).stderr(Stdio::null()).status();
        }
    }
}

fn is_mounted(path: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    mounts.lines().any(|line| {
        line.split(' ').nth(4).is_some_and(|mount_point| Path::new(&mount_point.replace("\\040", " ")) == path)
    })
}

/// Takes away what tests left behind that were killed.
pub fn remove_leftovers(base: &Path) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let process = name.strip_prefix(DIR_PREFIX).and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
        if process.is_some_and(|process| !Path::new(&format!("/proc/{process}")).exists()) {
            unmount(&entry.path());
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// A command that finds the programs of root, which others often do not have in their path.
fn with_sbin_path(command: &mut Command) -> &mut Command {
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"))
}

/// Runs a program to its end.
fn run_to_success(package: &str, command: &mut Command) -> Result<(), MissingRequirement> {
    let output = with_sbin_path(command).output().map_err(|error| missing_program(command, package, &error))?;
    if output.status.success() {
        return Ok(());
    }
    let name = command.get_program().to_string_lossy();
    Err(MissingRequirement::privilege(format!("{name} (root may): {}", String::from_utf8_lossy(&output.stderr))))
}

/// What is missing where a program cannot be started.
fn missing_program(command: &Command, package: &str, error: &std::io::Error) -> MissingRequirement {
    MissingRequirement::program(&command.get_program().to_string_lossy(), package, error)
}
