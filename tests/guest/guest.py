"""A Linux guest for hardware and software that this machine lacks: Debian's kernel in QEMU, without a disk, run by a shell script.

Times in the guest have no meaning, since QEMU translates every instruction. The guest is for functional tests only.
"""
import copy
import gzip
import os
import platform
import re
import shutil
import stat
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from architecture import X86_64

SHELL = "busybox-static"
BEGIN_LINE, END_LINE = "guest: begin", "guest: exit"
# Library directories of packages.
LIBRARY_DIRECTORIES = ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"]

INIT = f"""#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
ln -s /proc/self/fd /dev/fd
mount -t tmpfs tmp /tmp
ip link set lo up
export PATH=/bin HOME=/tmp
echo /bin/modprobe > /proc/sys/kernel/modprobe
echo '{BEGIN_LINE}'
sh /script
echo '{END_LINE}' $?
poweroff -f
"""


class MissingRequirement(Exception):
    """The guest needs something that is not available here. `needs` is the NEEDS argument of `scripts/skip`."""

    def __init__(self, description, needs="machine"):
        super().__init__(description)
        self.needs = needs


def run(*command, **options):
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True, **options).stdout


def require_program(command, package):
    """The path of a command."""
    return shutil.which(command) or raise_missing(f"{command} is not here", f"package {package}")


def raise_missing(description, needs="machine"):
    raise MissingRequirement(description, needs)


@dataclass
class GuestContents:
    """The contents of a guest in addition to its kernel and its shell."""

    programs: list = field(default_factory=list)
    modules: list = field(default_factory=list)
    # Text by path.
    files: dict = field(default_factory=dict)
    # Options of QEMU.
    options: list = field(default_factory=list)

    def __add__(self, other):
        programs = self.programs + [program for program in other.programs if program not in self.programs]
        return GuestContents(programs, self.modules + other.modules, self.files | other.files, self.options + other.options)


class Guest:
    """A kernel and an initramfs, kept in `work` between runs.

    `more_packages` returns further packages for the name of the kernel, for example its headers, with which a module is built.
    """

    def __init__(self, work, kernel=None, more_packages=lambda _: [], architecture=X86_64):
        if platform.machine() != "x86_64":
            raise MissingRequirement(f"guests on {platform.machine()}: only those on x86_64 are known here")
        self.architecture = architecture
        # The directory of the packages, and the work directory of this guest.
        self.package_directory = self.work = Path(work).resolve()
        self.qemu = require_program(architecture.qemu, architecture.qemu_package)
        if architecture.emulator:
            require_program(architecture.emulator[0], architecture.emulator_package)
            if not architecture.library_root.is_dir():
                raise_missing(f"{architecture.library_root} is not here", f"package {architecture.library_package}")
        self.base = self.unpack_packages("packages", lambda: self.newest_kernel_packages(kernel or architecture.kernel, more_packages))
        self.kernel = next(self.base.glob("boot/vmlinuz-*"))
        self.modules = next(self.base.glob("lib/modules/*"))
        self.busybox = [*architecture.emulator, self.base / "bin/busybox"]

    def unpack_packages(self, name, packages):
        """A directory with Debian packages that are downloaded and unpacked, not installed. `packages` returns their names."""
        directory = self.package_directory / name
        if directory.is_dir():
            return directory
        require_program("apt-get", "apt")
        require_program("dpkg-deb", "dpkg")
        downloads = self.package_directory / f"{name}.downloads"
        downloads.mkdir(parents=True, exist_ok=True)
        try:
            self.apt("apt-get", "download", *packages(), cwd=downloads)
        except (MissingRequirement, subprocess.CalledProcessError):
            # The lists of packages may be missing, or old.
            try:
                self.apt("apt-get", "update")
                self.apt("apt-get", "download", *packages(), cwd=downloads)
            except subprocess.CalledProcessError as error:
                raise MissingRequirement(f"the packages of {name}: {error.stderr.strip().splitlines()[-1]}") from error
        # The directory gets its final name when it is complete.
        partial = self.package_directory / f"{name}.partial"
        shutil.rmtree(partial, ignore_errors=True)
        for package in downloads.glob("*.deb"):
            run("dpkg-deb", "-x", package, partial)
        partial.rename(directory)
        return directory

    def apt(self, command, *arguments, **options):
        """Runs a command of apt for the architecture of the guest. A foreign one gets lists of its own: this machine's settings stay."""
        if not self.architecture.emulator:
            return run(command, *arguments, **options)
        lists = self.package_directory / "lists"
        (lists / "partial").mkdir(parents=True, exist_ok=True)
        settings = {
            "APT::Architecture": self.architecture.name, "APT::Architectures": self.architecture.name,
            "Dir::State::Lists": lists, "Dir::State::Status": "/dev/null", "Dir::Cache::PkgCache": "", "Dir::Cache::SrcPkgCache": "",
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled": "false",
        }  # fmt: skip
        return run(command, *(word for name, value in settings.items() for word in ("-o", f"{name}={value}")), *arguments, **options)

    def newest_kernel_packages(self, package, more_packages):
        """The packages of the newest kernel that a metapackage depends on, further packages, and that of the shell."""
        kernel = re.search(r"Depends: (linux-image-\S+)", self.apt("apt-cache", "depends", package)) or raise_missing(f"the package {package}")
        return kernel[1], SHELL, *more_packages(kernel[1])

    def copy_guest(self, name):
        """A copy of the guest with a work directory of its own, so that both can run at the same time."""
        guest = copy.copy(self)
        guest.work = self.package_directory / name
        guest.work.mkdir(exist_ok=True)
        return guest

    def boot(self, contents, script, seconds):
        """Runs a script in a guest with these contents. Returns its output and its exit status."""
        return self.run_until_exit(self.command(contents, script), seconds)

    def command(self, contents, script):
        """The command that starts a guest with these contents and runs the script."""
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
        archive = subprocess.run([*self.busybox, "cpio", "-o", "-H", "newc"], cwd=tree, input=files.encode(), capture_output=True, check=True)
        image = self.work / "image.gz"
        image.write_bytes(gzip.compress(archive.stdout, 1))
        options = f"{self.architecture.kernel_options()} panic=-1 mitigations=off quiet"
        return [
            self.qemu, *self.architecture.machine, "-accel", "tcg", "-nodefaults", "-display", "none", "-no-reboot",
            "-serial", "stdio", "-kernel", self.kernel, "-initrd", image,
            "-append", options, *contents.options,
        ]  # fmt: skip

    def run_until_exit(self, command, seconds):
        """Runs the command of a guest. Returns the output of its script and the exit status."""
        console, qemu_output = self.watch(command, seconds)
        # The guest prints its exit status. The status of QEMU has no meaning.
        match = re.search(rf"{BEGIN_LINE}\n(.*){END_LINE} (\d+)", console, re.DOTALL)
        if not match:
            raise AssertionError(f"the guest did not finish: see {self.work / 'console.txt'}: {qemu_output[-500:]}")
        return match[1], int(match[2])

    def watch(self, command, seconds):
        """The output of the serial port, which is kept, and of QEMU itself. A timeout is no error."""
        try:
            process = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds)
        except subprocess.TimeoutExpired as timeout:
            process = timeout
        console = (process.stdout or b"").decode(errors="replace").replace("\r\n", "\n")
        (self.work / "console.txt").write_text(console)
        return console, (process.stderr or b"").decode(errors="replace")

    def copy_program(self, program, tree):
        """Copies a program and its libraries. Libraries of the unpacked package precede those of this machine."""
        shutil.copy(program, tree / "bin")
        if program.suffix == ".ko":
            return
        package_root = next((directory for directory in program.parents if directory.parent == self.package_directory), None)
        library_paths = [package_root / directory for directory in LIBRARY_DIRECTORIES] if package_root else []
        environment = dict(os.environ, LD_LIBRARY_PATH=":".join(map(str, library_paths)))
        libraries = run(*self.architecture.library_list, program, env=environment)
        for name, library in re.findall(r"(\S+) => (not found|/\S+)", libraries):
            if library == "not found":
                raise MissingRequirement(f"the library {name} of {program.name}")
            self.copy_library(Path(library), package_root, tree)
        interpreter = re.search(r"\s(/\S*ld-\S+) \(0x", libraries)
        if interpreter:
            self.copy_library(Path(interpreter[1]), package_root, tree)

    def copy_library(self, library, package_root, tree):
        """Copies a library to where the loader of the guest finds it."""
        in_package = package_root in library.parents
        relative_path = library.relative_to(package_root if in_package else "/")
        (tree / relative_path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library if in_package else self.architecture.library_root / relative_path, tree / relative_path)

    def copy_modules(self, names, tree):
        """Copies kernel modules and their dependencies to where modprobe finds them."""
        if not names:
            return
        version = self.modules.name
        if not (self.modules / "modules.dep").exists():
            run(*self.busybox, "depmod", "-b", self.base, version)
        lines = (self.modules / "modules.dep").read_text().splitlines()
        dependencies = {path: names_text.split() for path, names_text in (line.split(":") for line in lines)}
        target = tree / "lib/modules" / version
        for name in names:
            path = next((path for path in dependencies if path.endswith(f"/{name}.ko")), None) or raise_missing(f"the module {name} of {version}")
            for module in (path, *dependencies[path]):
                (target / module).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(self.modules / module, target / module)
        run(*self.busybox, "depmod", "-b", tree, version)


def packages_with_libraries(*packages):
    """Packages, and the libraries that they depend on, without the C library, which must match the loader of this machine."""
    depends = run("apt-cache", "depends", *packages)
    libraries = set(re.findall(r"Depends: (lib[^\s<]+)", depends)) - {"libc6"}
    return *packages, *sorted(libraries)
