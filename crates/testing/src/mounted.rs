//! File systems that are mounted for a test and unmounted whatever becomes of it: when the test ends, also by a panic; and,
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

use crate::Missing;
use crate::served::{self, Asked, Behaviour};

/// How the names of the places begin; the process that made one follows, and then the kind.
const PREFIX: &str = "kelvin-mounted-";
/// Where the file system is, in its place.
const MOUNT: &str = "mount";
/// What is on a loop device, and its room: xfs and btrfs make no smaller file systems.
const IMAGE: &str = "image";
const ROOM: u64 = 512 << 20;
/// How long a program may take to mount what it serves.
const PATIENCE: Duration = Duration::from_secs(5);
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
pub struct Mounted {
    /// A directory for all that belongs to it.
    place: PathBuf,
    /// Programs that serve it.
    programs: Vec<Child>,
}

impl Mounted {
    /// A fresh file system of a kind, in a directory below this one.
    ///
    /// # Errors
    /// What is missing for it here.
    pub fn of(kind: FileSystemKind, base: &Path) -> Result<Self, Missing> {
        sweep(base);
        let place = base.join(format!("{PREFIX}{}-{}", std::process::id(), kind.name()));
        let mut mounted = Self { place, programs: Vec::new() };
        mounted.directory(MOUNT)?;
        mounted.mount(kind)?;
        Ok(mounted)
    }

    /// A fresh ext4 on a loop device, made with these arguments.
    ///
    /// # Errors
    /// What is missing for it here.
    pub fn of_ext4(arguments: &[&str], base: &Path) -> Result<Self, Missing> {
        let mounted = Self::beside(base)?;
        mounted.on_loop_device(FileSystemKind::Ext4, &[&["-q", "-F"], arguments].concat())?;
        Ok(mounted)
    }

    /// A copy of one on a loop device, with what had reached its device by now and nothing else: as after a crash.
    ///
    /// # Errors
    /// What is missing for it here.
    pub fn as_after_a_crash(&self, kind: FileSystemKind, base: &Path) -> Result<Self, Missing> {
        let mounted = Self::beside(base)?;
        let image = mounted.place.join(IMAGE);
        done("coreutils", Command::new("cp").arg("--sparse=always").arg(self.place.join(IMAGE)).arg(&image))?;
        // Both have one identity.
        let options = if kind == FileSystemKind::Xfs { "loop,nosuid,nodev,nouuid" } else { "loop,nosuid,nodev" };
        mounted.by_mount(&["-o", options, &image.to_string_lossy()])?;
        Ok(mounted)
    }

    /// A place for one more.
    fn beside(base: &Path) -> Result<Self, Missing> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        sweep(base);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let place = base.join(format!("{PREFIX}{}-{number}", std::process::id()));
        let mounted = Self { place, programs: Vec::new() };
        mounted.directory(MOUNT)?;
        Ok(mounted)
    }

    /// One that the test serves itself, and what it is asked for.
    ///
    /// # Errors
    /// What is missing for it here.
    pub fn served(behaviour: Behaviour, base: &Path) -> Result<(Self, Arc<Asked>), Missing> {
        let mounted = Self::beside(base)?;
        let asked = served::serve(&mounted.path(), behaviour)?;
        Ok((mounted, asked))
    }

    /// Where it is mounted.
    pub fn path(&self) -> PathBuf {
        self.place.join(MOUNT)
    }

    fn mount(&mut self, kind: FileSystemKind) -> Result<(), Missing> {
        match kind {
            FileSystemKind::Ext4 => self.on_loop_device(kind, &["-q", "-F"]),
            FileSystemKind::Xfs | FileSystemKind::Btrfs => self.on_loop_device(kind, &["-q"]),
            FileSystemKind::Tmpfs => self.by_mount(&["-t", "tmpfs", "-o", "size=64M", "tmpfs"]),
            FileSystemKind::Overlay => {
                let [lower, upper, work] = ["lower", "upper", "work"].map(|name| self.directory(name));
                let (lower, upper, work) = (lower?, upper?, work?);
                let layers =
                    format!("lowerdir={},upperdir={},workdir={}", lower.display(), upper.display(), work.display());
                self.by_mount(&["-t", "overlay", "-o", &layers, "overlay"])
            }
            FileSystemKind::Sshfs => self.by_sshfs(),
            FileSystemKind::Bindfs => {
                let behind = self.directory("behind")?;
                let mut command = Command::new("bindfs");
                self.start(kind.package(), command.arg("-f").arg(behind).arg(self.path()).stderr(Stdio::null()))?;
                self.is_served()
            }
        }
    }

    fn directory(&self, name: &str) -> Result<PathBuf, Missing> {
        let path = self.place.join(name);
        fs::create_dir_all(&path).map_err(|error| Missing::right(format!("{}: {error}", path.display())))?;
        Ok(path)
    }

    fn on_loop_device(&self, kind: FileSystemKind, arguments: &[&str]) -> Result<(), Missing> {
        let image = self.place.join(IMAGE);
        let made = File::create(&image).and_then(|file| file.set_len(ROOM));
        made.map_err(|error| Missing::right(format!("{}: {error}", image.display())))?;
        done(kind.package(), Command::new(format!("mkfs.{}", kind.name())).args(arguments).arg(&image))?;
        self.by_mount(&["-o", "loop,nosuid,nodev", &image.to_string_lossy()])
    }

    fn by_mount(&self, arguments: &[&str]) -> Result<(), Missing> {
        done("mount", Command::new("mount").args(arguments).arg(self.path()))
    }

    /// sshfs speaks to the program that serves it over a pipe: no network takes part.
    fn by_sshfs(&mut self) -> Result<(), Missing> {
        let behind = self.directory("behind")?;
        let server = SFTP_SERVERS.into_iter().find(|path| Path::new(path).exists());
        let server = server.ok_or_else(|| Missing::package(SFTP_PACKAGE, "there is no sftp-server"))?;
        self.start(SFTP_PACKAGE, Command::new(server).stdin(Stdio::piped()).stdout(Stdio::piped()))?;
        let pipes = self.programs.last_mut().and_then(|server| Some((server.stdin.take()?, server.stdout.take()?)));
        let (to, from) = pipes.ok_or_else(|| Missing::machine("there is no pipe to the sftp-server"))?;
        let mut client = Command::new("sshfs");
        client.arg(format!(":{}", behind.display())).arg(self.path());
        // Without kernel_cache the page cache loses the file whenever it is opened.
        client.args(["-f", "-o", "passive,kernel_cache"]).stdin(from).stdout(to).stderr(Stdio::null());
        self.start(FileSystemKind::Sshfs.package(), &mut client)?;
        self.is_served()
    }

    /// Starts a program that serves it.
    fn start(&mut self, package: &str, command: &mut Command) -> Result<(), Missing> {
        self.programs.push(command.spawn().map_err(|error| failed(command, package, &error))?);
        Ok(())
    }

    /// Waits until a program has mounted what it serves.
    fn is_served(&self) -> Result<(), Missing> {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            if is_mounted(&self.path()) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(Missing::right("it is not mounted: no /dev/fuse, or not allowed"))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        unmount(&self.place);
        for program in &mut self.programs {
            let _ = program.kill();
            let _ = program.wait();
        }
        let _ = fs::remove_dir_all(&self.place);
    }
}

/// Takes what is mounted in a place out of the tree, whoever uses it; others than root what they mounted by FUSE. As root it is
/// held by a descriptor, and no link to it is followed: a path could lead to something else by now.
fn unmount(place: &Path) {
    let hold = |path: &Path| rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
    let reach = |held: &OwnedFd| PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd()));
    if let Ok(mounted) = hold(place).and_then(|place| hold(&reach(&place).join(MOUNT))) {
        let _ = rustix::mount::unmount(reach(&mounted), UnmountFlags::DETACH);
    }
    let path = place.join(MOUNT);
    for program in ["fusermount3", "fusermount"] {
        if is_mounted(&path) {
            let _ = Command::new(program).args(["-u", "-z"]).arg(&path).stderr(Stdio::null()).status();
        }
    }
}

fn is_mounted(path: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    mounts
        .lines()
        .any(|line| line.split(' ').nth(4).is_some_and(|place| Path::new(&place.replace("\\040", " ")) == path))
}

/// Takes away what tests left behind that were killed.
pub fn sweep(base: &Path) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let process = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
        if process.is_some_and(|process| !Path::new(&format!("/proc/{process}")).exists()) {
            unmount(&entry.path());
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// A command that finds the programs of root, which others often do not have in their path.
fn with_path(command: &mut Command) -> &mut Command {
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"))
}

/// Runs a program to its end.
fn done(package: &str, command: &mut Command) -> Result<(), Missing> {
    let output = with_path(command).output().map_err(|error| failed(command, package, &error))?;
    if output.status.success() {
        return Ok(());
    }
    let name = command.get_program().to_string_lossy();
    Err(Missing::right(format!("{name} (root may): {}", String::from_utf8_lossy(&output.stderr))))
}

/// What is missing where a program cannot be started.
fn failed(command: &Command, package: &str, error: &std::io::Error) -> Missing {
    Missing::program(&command.get_program().to_string_lossy(), package, error)
}
