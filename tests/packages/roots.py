"""Fresh roots of Debian, in which packages are installed, run and removed."""
import hashlib
import os
import subprocess
from fnmatch import fnmatch
from pathlib import Path

# Runs in namespaces of its own: all mounts and processes of a root end with the script. What a root changes lies in a directory of its
# own above the base, which is kept for the next script.
ENTER = """
set -e
mount --make-rprivate /
mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" "$2/root"
mount -t proc proc "$2/root/proc"
mount --rbind /sys "$2/root/sys"
mount --rbind /dev "$2/root/dev"
mount -t tmpfs tmpfs "$2/root/tmp"
mount -t tmpfs tmpfs "$2/root/run"
mount --bind "$3" "$2/root/mnt"
ip link set lo up
exec chroot "$2/root" /bin/sh -eu -c "$4" >&2
"""
# What installation and removal of any package change: logs and caches of the managers of packages, backups of /etc/passwd, and depmod's
# lists of modules and DKMS's key.
OTHERS = [
    "/var/log/*", "/var/cache/*", "/var/lib/dpkg/*", "/var/lib/rpm/*", "/usr/lib/sysimage/*", "/etc/*-", "/usr/lib/modules/*/modules.*", "/var/lib/dkms/mok.*",
]  # fmt: skip


class MissingRoot(Exception):
    """The reason for which a root cannot be made."""


def make_base(directory, release, packages):
    """A root of Debian with these packages, which is kept."""
    if directory.is_dir():
        return directory
    partial = directory.with_name(f"{directory.name}.partial")
    subprocess.run(["rm", "-rf", partial], check=True)
    options = ["--quiet", "--variant=minbase", f"--include={','.join(packages)}"] if packages else ["--quiet", "--variant=minbase"]
    done = subprocess.run(["mmdebstrap", *options, release, partial], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise MissingRoot(f"mmdebstrap of {release}: {done.stderr.strip().splitlines()[-1]}")
    partial.rename(directory)
    return directory


class Root:
    """A fresh root above a base, with the files of a release in /mnt."""

    def __init__(self, base, directory, files):
        self.base, self.directory, self.files = base, directory, files
        subprocess.run(["rm", "-rf", directory], check=True)
        for name in ("upper", "work", "root"):
            (directory / name).mkdir(parents=True)

    def run(self, script):
        """Runs a script of the shell as root of the root; returns what it prints. It must succeed."""
        command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--net", "--ipc", "--uts"]
        command += ["sh", "-c", ENTER, "sh", self.base, self.directory, self.files, script]
        environment = {"PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/tmp", "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
        done = subprocess.run(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              check=False, env=environment, timeout=1800)  # fmt: skip
        assert done.returncode == 0, f"{self.directory.name}: {script}\n{done.stdout}"
        return done.stdout

    def changes(self):
        """The files that were added, changed or removed, without those of the managers of packages."""
        upper = self.directory / "upper"
        paths = set()
        for directory, directories, files in os.walk(upper):
            names = [name for name in directories if not (self.base / Path(directory, name).relative_to(upper)).is_dir()]
            paths |= {Path(directory, name) for name in [*files, *names]}
        names = {f"/{path.relative_to(upper)}" for path in paths if self._differs(path, self.base / path.relative_to(upper))}
        return sorted(name for name in names if not any(fnmatch(name, other) for other in OTHERS))

    def _differs(self, path, before):
        """Whether a path of the upper directory is not what it was: a character device stands for a removed one."""
        if not before.is_symlink() and not before.exists():
            return not path.is_char_device()
        if not path.is_file() or path.is_symlink() or not before.is_file():
            return True
        return hashlib.sha256(path.read_bytes()).digest() != hashlib.sha256(before.read_bytes()).digest()
