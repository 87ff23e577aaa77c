#!/usr/bin/env python3
"""Tests the files of a release: made twice they are the same, and installed in fresh roots they run, and leave nothing once removed.

usage: run.py RELEASE WORK PAGES KELVIN...

RELEASE is the directory that `scripts/dist RELEASE PAGES "" KELVIN...` made. WORK keeps the roots of Debian between runs.
"""
import filecmp
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from roots import MissingRoot, Root, make_base

ROOT = Path(__file__).parents[2]
DEBIAN_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
# What a user does first. Everything is written below /tmp, which does not outlast the script.
USE = """
cd /tmp
wait_for() { timeout 20 sh -c 'until [ -s "$0" ]; do sleep 0.1; done' "$1"; }
kelvin --version
kelvin run --quick --store runs.sqlite
kelvin report last --store runs.sqlite --format md >report.md
kelvin file write data.bin --size 16M
kelvin file read data.bin
mkdir incoming
kelvin receive incoming --once >receive.txt &
wait_for receive.txt
kelvin send data.bin 127.0.0.1
wait $!
cmp data.bin incoming/data.bin
kelvin serve . >serve.txt &
wait_for serve.txt
kelvin load http://127.0.0.1:8080/data.bin --users 2 --duration 2s
kill $!
wait $!
"""
COMPLETE = """
complete_words() { COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)); _kelvin kelvin "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"; }
. /usr/share/bash-completion/completions/kelvin
complete_words kelvin fil
[ "${COMPREPLY[*]}" = file ]
complete_words kelvin file re
[ "${COMPREPLY[*]}" = read ]
"""
# A root with systemd, DKMS and shells. Only headers of a kernel are needed, not a kernel.
SERVICE_PACKAGES = ["systemd", "dkms", "zsh", "fish"]
USE_SERVICES = f"""
getent passwd kelvin
systemd-analyze verify --man=no /usr/lib/systemd/system/kelvin-*
systemctl enable kelvin-watch.timer
bash -euc '{COMPLETE}'
zsh -n /usr/share/zsh/vendor-completions/_kelvin
fish --no-execute /usr/share/fish/vendor_completions.d/kelvin.fish
modinfo -F description "$(find /lib/modules/ -name 'kelvin.ko*')"
"""
# Directories that systemd and the package `filesystem` have where packages are rpm's.
RPM_DIRECTORIES = ["/usr/lib/sysusers.d", "/usr/share/licenses"]


def skip(needs, test, reason):
    subprocess.run([ROOT / "scripts/skip", needs, f"packages: {test}", reason], check=True)


def run(*command, **options):
    """Runs a command that must succeed; returns what it prints."""
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **options)
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}"
    return done.stdout


def require(program, package, test):
    """Whether a program is here; else its test is skipped."""
    if not shutil.which(program):
        skip(f"package {package}", test, f"{program} is not here")
    return shutil.which(program)


def check_same_bytes(release, work, pages, programs):
    """A copy of the source elsewhere gives the same files, to someone with another umask."""
    copy, second = work / "second source", work / "second release"
    shutil.rmtree(copy, ignore_errors=True)
    names = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT).split("\0")
    for name in (name for name in names if (ROOT / name).is_file()):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy / name)
    facts = {"SOURCE_DATE_EPOCH": "%ct", "MAINTAINER": "%cn <%ce>"}
    facts = {name: os.environ.get(name) or run("git", "log", "-1", f"--format={fact}", cwd=ROOT).strip() for name, fact in facts.items()}
    run(copy / "scripts/dist", second, pages, "", *programs, env={**os.environ, **facts}, umask=0o077)
    names = sorted(file.name for file in release.iterdir() if file.suffix != ".minisig")
    assert names == sorted(file.name for file in second.iterdir()), names
    different = [name for name in names if not filecmp.cmp(release / name, second / name, shallow=False)]
    assert not different, f"made twice, these differ: {different}"
    return f"{len(names)} files, made twice in two directories, are the same bytes"


class Bench:
    """The release, and where roots are made."""

    def __init__(self, release, work):
        self.release, self.work = release, work
        self.machine = platform.machine()
        self.debian = DEBIAN_ARCHITECTURES[self.machine]

    def file(self, pattern):
        """The name of the one file of the release that has this form."""
        [file] = self.release.glob(pattern)
        return file.name

    def root(self, name, release, packages=()):
        """A fresh root above a kept one."""
        base = make_base(self.work / f"{release}-{'-'.join(packages) or 'minimal'}", release, packages)
        return Root(base, self.work / "root", self.release)


def check_text(bench, pages):
    """What the checkers of man pages and packages say: nothing, but for what packaging/ excuses with its reason."""
    checks = [
        ("mandoc", ["-T", "lint", "-W", "warning"], sorted(pages.glob("*.1"))),
        ("lintian", ["--allow-root", "--fail-on", "error,warning"], sorted(bench.release.glob("*.deb"))),
        ("rpmlint", ["--strict", "--config", ROOT / "packaging/rpmlint.toml"], sorted(bench.release.glob("*.rpm"))),
    ]
    for program, options, files in checks:
        assert files
        if require(program, program, f"{program} of {files[0].suffix} files"):
            run(program, *options, *files)
            print(f"packages: {program} has no complaint about {len(files)} files", flush=True)


def check_nothing_left(root, what, directories=()):
    """Nothing is left but directories that are another package's, which this root lacks."""
    left = set(root.changes()) - set(directories)
    assert not left, f"{what} left: {sorted(left)}"


def check_package(bench, release):
    """The package in a minimal root of Debian, used as by a user."""
    root = bench.root("package", release)
    root.run(f"dpkg -i /mnt/{bench.file(f'kelvin_*_{bench.debian}.deb')}; {USE}")
    assert "/usr/bin/kelvin" in root.changes()
    root.run("dpkg --purge kelvin")
    check_nothing_left(root, "the package")
    return "installed, used and removed"


def check_tarball(bench, release):
    """The tarball in a minimal root."""
    root = bench.root("tarball", release)
    name = bench.file(f"kelvin-*-{bench.machine}-linux.tar.gz")
    script = f"cd /tmp; tar xf /mnt/{name}; kelvin-*/install.sh"
    root.run(f"{script}; {USE}")
    assert "/usr/local/bin/kelvin" in root.changes()
    root.run(f"{script} remove")
    check_nothing_left(root, "the tarball")
    return "installed, used and removed"


def check_services(bench, release):
    """Both packages in a root with systemd, DKMS, the headers of a kernel and shells."""
    root = bench.root("services", release, (*SERVICE_PACKAGES, f"linux-headers-cloud-{bench.debian}"))
    files = [bench.file(f"kelvin_*_{bench.debian}.deb"), bench.file("kelvin-dkms_*.deb")]
    install = f"cd /mnt; dpkg -i {' '.join(files)}"
    description = root.run(f"{install}; {USE_SERVICES}").splitlines()[-1]
    # An upgrade keeps what was enabled and built; removal keeps runs.
    root.run(f"{install}; systemctl is-enabled kelvin-watch.timer; modinfo $(find /lib/modules/ -name 'kelvin.ko*')")
    root.run("mkdir -p /var/lib/kelvin/kelvin; touch /var/lib/kelvin/kelvin/runs.sqlite; dpkg --remove kelvin-dkms kelvin; test -e /var/lib/kelvin/kelvin")
    assert not any("kelvin.ko" in name or "kelvin-watch" in name for name in root.changes()), root.changes()
    root.run("dpkg --purge kelvin-dkms kelvin")
    check_nothing_left(root, "the packages")
    return f"services, completions and the module ({description}) installed, upgraded, removed and purged"


def check_rpm(bench, release):
    """The .rpm, by rpm in a root of Debian: files and scripts, but no resolution of what it needs, since no package here is rpm's."""
    root = bench.root("rpm", release, ("rpm",))
    root.run(f"rpm --install --nodeps /mnt/{bench.file(f'kelvin-*.{bench.machine}.rpm')}; rpm --verify --nodeps kelvin; {USE}")
    assert "/usr/bin/kelvin" in root.changes()
    root.run("rpm --erase --nodeps kelvin")
    check_nothing_left(root, "the package", RPM_DIRECTORIES)
    return "installed, verified, used and removed, without its dependencies"


def check_image(bench):
    """The image as a container: an ordinary user, all but /data read-only, with /sys absent."""
    test = "the container image"
    if not (require("umoci", "umoci", test) and require("bwrap", "bubblewrap", test)):
        return
    with tempfile.TemporaryDirectory(dir=bench.work) as directory:
        layout, bundle = Path(directory, "layout"), Path(directory, "bundle")
        layout.mkdir()
        run("tar", "xf", bench.release / bench.file(f"kelvin-*-{bench.debian}.oci.tar"), "-C", layout)
        [tag] = run("umoci", "ls", "--layout", layout).split()
        run("umoci", "unpack", "--image", f"{layout}:{tag}", bundle)
        files = ["--ro-bind", bundle / "rootfs", "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/data", "--chdir", "/data"]
        options = ["--unshare-all", "--uid", 1000, "--gid", 1000, "--clearenv", "--setenv", "XDG_DATA_HOME", "/data", *files]
        output = run("bwrap", *options, "/usr/bin/kelvin", "run", "--quick")
        facts = run("bwrap", *options, "/usr/bin/kelvin", "machine")
    assert "stored in /data/kelvin/runs.sqlite" in output and "nothing is below /sys" in " ".join(facts.split()), output + facts
    print("packages: image: a quick run without /sys, root and files to write but /data", flush=True)


# The rpm of Debian 12 refuses to install anything on a Debian.
TESTS = [
    ("bookworm", "package", check_package),
    ("trixie", "package", check_package),
    ("bookworm", "services", check_services),
    ("trixie", "services", check_services),
    ("trixie", "tarball", check_tarball),
    ("trixie", "rpm", check_rpm),
]


def main():
    release, work, pages, *programs = (Path(argument).resolve() for argument in sys.argv[1:])
    work.mkdir(parents=True, exist_ok=True)
    print(f"packages: {check_same_bytes(release, work, pages, programs)}", flush=True)
    bench = Bench(release, work)
    check_text(bench, pages)
    check_image(bench)
    if os.geteuid() != 0:
        return skip("right", "packages in fresh roots", "only root can make a root")
    if not require("mmdebstrap", "mmdebstrap", "packages in fresh roots"):
        return None
    for debian, name, test in TESTS:
        try:
            print(f"packages: {debian}: {name}: {test(bench, debian)}", flush=True)
        except MissingRoot as missing:
            skip("machine", f"{name} in {debian}", str(missing))
    return None


if __name__ == "__main__":
    main()
