"""A Linux guest for what the machine at hand lacks: Debian's kernel in QEMU, without a disk, driven by a shell script.

Time in it says nothing: every instruction is translated. It is for function only.
"""
import copy
import ctypes
import gzip
import mmap
import os
import platform
import re
import shutil
import stat
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

# Its configuration has NUMA, and a serial port; nothing needs modules.
KERNEL = "linux-image-cloud-amd64"
SHELL = "busybox-static"
# The first 64-bit processors: no vectors beyond SSE3, no RDTSCP, no counter that is said to be invariant. What needs more must find
# out that it is not there.
PROCESSOR = "qemu64"
BEGIN, END = "guest: begin", "guest: exit"
# rdtsc; shl rdx, 32; or rax, rdx; ret
RDTSC = bytes.fromhex("0f31 48c1e220 4809d0 c3")
TSC_SECONDS = 0.2
# A reading of counter and clock during which the process lost the CPU is taken again.
MAX_READING_NS = 20_000
# Where packages have their libraries.
LIBRARIES = ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"]

INIT = f"""#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
ip link set lo up
export PATH=/bin HOME=/tmp
echo /bin/modprobe > /proc/sys/kernel/modprobe
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


def require_program(command, package):
    """The path of a command."""
    return shutil.which(command) or missing(f"{command} is not here", f"package {package}")


def missing(what, needs="machine"):
    raise Missing(what, needs)


@dataclass
class GuestContents:
    """What a guest has beside its kernel and its shell."""

    programs: list = field(default_factory=list)
    modules: list = field(default_factory=list)
    # Text by path.
    files: dict = field(default_factory=dict)
    # Of QEMU.
    options: list = field(default_factory=list)

    def __add__(self, other):
        programs = self.programs + [program for program in other.programs if program not in self.programs]
        return GuestContents(programs, self.modules + other.modules, self.files | other.files, self.options + other.options)


def tsc_khz():
    """The frequency of this machine's time stamp counter, which is also that of a translated guest."""
    code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(RDTSC)
    rdtsc = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(ctypes.c_char.from_buffer(code)))

    def reading():
        while True:
            before, ticks, after = time.monotonic_ns(), rdtsc(), time.monotonic_ns()
            if after - before < MAX_READING_NS:
                return before, ticks

    begun, first = reading()
    time.sleep(TSC_SECONDS)
    ended, last = reading()
    return round((last - first) * 1e6 / (ended - begun))


class Guest:
    """A kernel and an initramfs, kept in `work` between runs.

    `beside` names packages to unpack with the kernel, from its own name: those of its headers, so that a module fits it.
    """

    def __init__(self, work, kernel=KERNEL, beside=lambda _: []):
        if platform.machine() != "x86_64":
            raise Missing(f"a kernel and a QEMU for {platform.machine()}: only those for x86_64 are known here")
        # Where packages are kept, and what is of this guest alone.
        self.kept = self.work = Path(work).resolve()
        self.qemu = require_program("qemu-system-x86_64", "qemu-system-x86")
        self.base = self.unpacked("packages", lambda: newest(kernel, beside))
        self.kernel = next(self.base.glob("boot/vmlinuz-*"))
        self.modules = next(self.base.glob("lib/modules/*"))

    def unpacked(self, name, packages):
        """The directory of this name, with Debian's packages that a function names, downloaded and unpacked, not installed."""
        place = self.kept / name
        if place.is_dir():
            return place
        require_program("apt-get", "apt")
        require_program("dpkg-deb", "dpkg")
        downloads = self.kept / f"{name}.downloads"
        downloads.mkdir(parents=True, exist_ok=True)
        try:
            run("apt-get", "download", *packages(), cwd=downloads)
        except (Missing, subprocess.CalledProcessError):
            # The lists of packages may be missing, or old.
            try:
                run("apt-get", "update")
                run("apt-get", "download", *packages(), cwd=downloads)
            except subprocess.CalledProcessError as error:
                raise Missing(f"the packages of {name}: {error.stderr.strip().splitlines()[-1]}") from error
        # In place only when all of it is there.
        partial = self.kept / f"{name}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        for package in downloads.glob("*.deb"):
            run("dpkg-deb", "-x", package, partial)
        partial.rename(place)
        return place

    def another(self, name):
        """The same with a directory of its own: the two can run at once."""
        other = copy.copy(self)
        other.work = self.kept / name
        other.work.mkdir(exist_ok=True)
        return other

    def boot(self, contents, script, seconds):
        """What the script wrote in a guest that has these contents, and its exit status."""
        return self.run_to_end(self.command(contents, script), seconds)

    def command(self, contents, script):
        """What starts a guest that has these contents and runs the script."""
        tree = self.work / "tree"
        shutil.rmtree(tree, ignore_errors=True)
        for directory in ("bin", "proc", "sys", "dev", "tmp"):
            (tree / directory).mkdir(parents=True)
        shutil.copy(self.base / "bin/busybox", tree / "bin/busybox")
        for program in contents.programs:
            self.copy_program(Path(program), tree)
        self.copy_modules(contents.modules, tree)
        for path, text in contents.files.items():
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            (tree / path).write_text(text)
        (tree / "init").write_text(INIT)
        (tree / "init").chmod(stat.S_IRWXU)
        (tree / "script").write_text(script)
        files = "".join(f"{path.relative_to(tree)}\n" for path in sorted(tree.rglob("*")))
        packed = subprocess.run(
            [tree / "bin/busybox", "cpio", "-o", "-H", "newc"], cwd=tree, input=files.encode(), capture_output=True, check=True
        )
        image = self.work / "image.gz"
        image.write_bytes(gzip.compress(packed.stdout, 1))
        # The kernel's own calibration is off by a factor where this machine is busy, and then every time limit in the guest is.
        options = f"console=ttyS0 panic=-1 tsc=reliable tsc_early_khz={tsc_khz()} mitigations=off quiet"
        return [
            self.qemu, "-M", "pc", "-accel", "tcg", "-cpu", PROCESSOR, "-nodefaults", "-display", "none", "-no-reboot",
            "-serial", "stdio", "-kernel", self.kernel, "-initrd", image,
            "-append", options, *contents.options,
        ]  # fmt: skip

    def run_to_end(self, command, seconds):
        """The same of a guest that was made ready."""
        console, said = self.watch(command, seconds)
        # Judged by a line that the guest prints: QEMU's own status says nothing.
        written = re.search(rf"{BEGIN}\n(.*){END} (\d+)", console, re.DOTALL)
        if not written:
            raise AssertionError(f"the guest did not come to its end: see {self.work / 'console.txt'}: {said[-500:]}")
        return written[1], int(written[2])

    def watch(self, command, seconds):
        """What came from the serial port, which is kept, and from QEMU itself; also where the time is over."""
        try:
            done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds)
        except subprocess.TimeoutExpired as late:
            done = late
        console = (done.stdout or b"").decode(errors="replace").replace("\r\n", "\n")
        (self.work / "console.txt").write_text(console)
        return console, (done.stderr or b"").decode(errors="replace")

    def copy_program(self, program, tree):
        """A program with the libraries that it needs, those of an unpacked package before those of this machine."""
        shutil.copy(program, tree / "bin")
        if program.suffix == ".ko":
            return
        unpacked = next((place for place in program.parents if place.parent == self.kept), None)
        places = [unpacked / place for place in LIBRARIES] if unpacked else []
        environment = dict(os.environ, LD_LIBRARY_PATH=":".join(map(str, places)))
        for name, library in re.findall(r"(\S+) => (not found|/\S+)", f"{run('ldd', program, env=environment)}"):
            if library == "not found":
                raise Missing(f"the library {name} of {program.name}")
            self.copy_library(Path(library), unpacked, tree)
        interpreter = re.search(r"\s(/\S*ld-\S+) \(0x", run("ldd", program, env=environment))
        if interpreter:
            self.copy_library(Path(interpreter[1]), unpacked, tree)

    def copy_library(self, library, unpacked, tree):
        """A library, where the guest's loader finds it."""
        inside = library.relative_to(unpacked if unpacked in library.parents else "/")
        (tree / inside).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, tree / inside)

    def copy_modules(self, names, tree):
        """Modules of the kernel and all that they need, as modprobe finds them."""
        if not names:
            return
        busybox, version = self.base / "bin/busybox", self.modules.name
        if not (self.modules / "modules.dep").exists():
            run(busybox, "depmod", "-b", self.base, version)
        lines = (self.modules / "modules.dep").read_text().splitlines()
        needs = {path: others.split() for path, others in (line.split(":") for line in lines)}
        target = tree / "lib/modules" / version
        for name in names:
            path = next((path for path in needs if path.endswith(f"/{name}.ko")), None) or missing(f"the module {name} of {version}")
            for one in (path, *needs[path]):
                (target / one).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(self.modules / one, target / one)
        run(busybox, "depmod", "-b", tree, version)


def newest(package, beside):
    """The packages of the newest kernel that a package stands for, of what goes beside it, and of the shell."""
    kernel = re.search(r"Depends: (linux-image-\S+)", run("apt-cache", "depends", package)) or missing(f"the package {package}")
    return kernel[1], SHELL, *beside(kernel[1])


def with_libraries(*packages):
    """Packages, and the libraries that they depend on, less the C library, which must be that of this machine's loader."""
    depends = run("apt-cache", "depends", *packages)
    libraries = set(re.findall(r"Depends: (lib[^\s<]+)", depends)) - {"libc6"}
    return *packages, *sorted(libraries)
