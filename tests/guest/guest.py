"""A Linux guest for what the machine at hand lacks: Debian's kernel in QEMU, without a disk, driven by a shell script.

Time in it says nothing: every instruction is translated. It is for function only.
"""
import gzip
import platform
import re
import shutil
import stat
import subprocess
from pathlib import Path

# Its configuration has NUMA, and a serial port; nothing needs modules.
KERNEL = "linux-image-cloud-amd64"
SHELL = "busybox-static"
# The first 64-bit processors: no vectors beyond SSE3, no RDTSCP, no counter that is said to be invariant. What needs more must find
# out that it is not there.
PROCESSOR = "qemu64"
BEGIN, END = "guest: begin", "guest: exit"

INIT = f"""#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
ip link set lo up
export PATH=/bin HOME=/tmp
echo '{BEGIN}'
sh /script
echo '{END}' $?
poweroff -f
"""


class Missing(Exception):
    """Something that the guest needs cannot be had here: what, and what would let it be had, as `scripts/skip` wants it."""

    def __init__(self, what, needs="machine"):
        super().__init__(what)
        self.needs = needs


def run(*command, **options):
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True, **options).stdout


def need(command, package):
    """The path of a command."""
    return shutil.which(command) or raise_missing(f"{command} is not here", f"package {package}")


def raise_missing(what, needs="machine"):
    raise Missing(what, needs)


class Guest:
    """A kernel and an initramfs, kept in `work` between runs."""

    def __init__(self, work):
        if platform.machine() != "x86_64":
            raise Missing(f"a kernel and a QEMU for {platform.machine()}: only those for x86_64 are known here")
        self.work = Path(work).resolve()
        self.qemu = need("qemu-system-x86_64", "qemu-system-x86")
        self.packages = self.work / "packages"
        if not self.packages.is_dir():
            self.unpack()
        self.kernel = next(self.packages.glob("boot/vmlinuz-*"))

    def unpack(self):
        """Debian's packages, downloaded and unpacked, not installed."""
        need("apt-get", "apt")
        need("dpkg-deb", "dpkg")
        downloads = self.work / "downloads"
        downloads.mkdir(parents=True, exist_ok=True)
        try:
            self.download(downloads)
        except (Missing, subprocess.CalledProcessError):
            # The lists of packages may be missing, or old.
            try:
                run("apt-get", "update")
                self.download(downloads)
            except subprocess.CalledProcessError as error:
                raise Missing(f"the packages {KERNEL} and {SHELL}: {error.stderr.strip().splitlines()[-1]}") from error
        # In place only when all of it is there.
        partial = self.work / "packages.partial"
        shutil.rmtree(partial, ignore_errors=True)
        for package in downloads.glob("*.deb"):
            run("dpkg-deb", "-x", package, partial)
        partial.rename(self.packages)

    def download(self, directory):
        """Fetches the newest kernel and the shell."""
        depends = run("apt-cache", "depends", KERNEL)
        kernel = re.search(r"Depends: (linux-image-\S+)", depends) or raise_missing(f"the package {KERNEL}")
        run("apt-get", "download", kernel[1], SHELL, cwd=directory)

    def boot(self, programs, script, options, seconds):
        """What the script wrote in a guest that has these programs (and the libraries they need), and its exit status."""
        tree = self.work / "tree"
        shutil.rmtree(tree, ignore_errors=True)
        for directory in ("bin", "proc", "sys", "dev", "tmp"):
            (tree / directory).mkdir(parents=True)
        shutil.copy(self.packages / "bin/busybox", tree / "bin/busybox")
        for program in programs:
            shutil.copy(program, tree / "bin")
            for library in re.findall(r"(/\S+) \(0x", run("ldd", program)):
                place = tree / library.lstrip("/")
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(library, place)
        (tree / "init").write_text(INIT)
        (tree / "init").chmod(stat.S_IRWXU)
        (tree / "script").write_text(script)
        files = "".join(f"{path.relative_to(tree)}\n" for path in sorted(tree.rglob("*")))
        packed = subprocess.run(
            [tree / "bin/busybox", "cpio", "-o", "-H", "newc"], cwd=tree, input=files.encode(), capture_output=True, check=True
        )
        image = self.work / "image.gz"
        image.write_bytes(gzip.compress(packed.stdout, 1))
        # Judged by a line that the guest prints: QEMU's own status says nothing.
        command = [
            self.qemu, "-M", "pc", "-accel", "tcg", "-cpu", PROCESSOR, "-nodefaults", "-display", "none", "-no-reboot",
            "-serial", "stdio", "-kernel", self.kernel, "-initrd", image,
            "-append", "console=ttyS0 panic=-1 tsc=reliable mitigations=off quiet", *options,
        ]  # fmt: skip
        done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds)
        console = done.stdout.decode(errors="replace").replace("\r\n", "\n")
        (self.work / "console.txt").write_text(console)
        written = re.search(rf"{BEGIN}\n(.*){END} (\d+)", console, re.DOTALL)
        if not written:
            raise AssertionError(f"the guest did not come to its end: see {self.work / 'console.txt'}: {done.stderr.decode()[-500:]}")
        return written[1], int(written[2])
