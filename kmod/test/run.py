#!/usr/bin/env python3
"""The kernel module, built for a kernel of Debian, loaded in a guest that runs it, and tried there.

usage: run.py DIRECTORY KELVIN [TREE]

DIRECTORY keeps what was downloaded and built. KELVIN is the program, whose ends are tried in the kernel. TREE is the built source
of a kernel to use instead of Debian's: one with KASAN, lockdep and kmemleak finds more, and Debian ships none.
"""
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tests/guest"))
import ends  # noqa: E402
import guest  # noqa: E402
import study  # noqa: E402

# Debian 12's own and its newer one.
KERNELS = ["linux-image-cloud-amd64", "linux-image-6.12-cloud-amd64"]
OPTIONS = ["-smp", 2, "-m", "768M"]
# A kernel with KASAN takes three minutes of it, Debian's ten seconds.
SECONDS = 900
PART = "guest: part"
STUDY = "guest: study"
LOG = "guest: kernel log"
PASSED = re.compile(r"^kmod: all of (\d+) checks passed$", re.MULTILINE)
# What a kernel writes of a defect, in its own words: "possible" is lockdep's, "unreferenced" kmemleak's.
DEFECTS = re.compile(r"WARNING|BUG|Oops|KASAN|Call Trace|possible|unreferenced object|refcount_t|corrupt")
# The module's own log of a page of the sender's file.
LOGGED = re.compile(r"kelvin: page 0x\w+, level 1: 0x8000000000000\w25: present user accessed no-execute$", re.MULTILINE)

SCRIPT = f"""
mount -t debugfs debug /sys/kernel/debug
leaks=/sys/kernel/debug/kmemleak
[ ! -e $leaks ] || echo clear > $leaks
# A guest on a busy machine stands still for long: what hangs is found by its timeout.
echo 0 > /proc/sys/kernel/watchdog
echo 0 > /proc/sys/kernel/hung_task_timeout_secs
echo 1 > /sys/module/rcupdate/parameters/rcu_cpu_stall_suppress
dmesg -c > /dev/null
insmod /bin/kelvin.ko dyndbg=+p || exit
timeout -s KILL {SECONDS // 2} /bin/kelvin_check
status=$?
echo '{PART}'
[ $status != 0 ] || ( . /ends ) || status=1
echo '{STUDY}'
[ $status != 0 ] || ( . /study ) || status=1
rmmod kelvin || status=1
if [ -e $leaks ]; then
    # It reports nothing that is younger than five seconds.
    sleep 6
    echo scan > $leaks
    echo 'guest: kmemleak says:'
    cat $leaks
fi
echo '{LOG}'
dmesg
exit $status
"""


def header_packages(image):
    """The packages that a module needs to be built for a kernel image of Debian."""
    release = image.removeprefix("linux-image-")
    depends = guest.run("apt-cache", "depends", f"linux-headers-{release}")
    return [f"linux-headers-{release}", *re.findall(r"Depends: (linux-(?:headers-\S+-common|kbuild-\S+|compiler-\S+))", depends)]


def unpacked_headers(machine):
    """Its headers, where they were unpacked: their makefile names the place where they would be installed."""
    common = next(machine.base.glob("usr/src/linux-headers-*-common"))
    headers = next(path for path in machine.base.glob("usr/src/linux-headers-*") if path != common)
    compiler = re.search(r"gcc-\d+", (headers / ".kernelvariables").read_text())[0]
    guest.require_program(compiler, compiler)
    (headers / "Makefile").write_text(f"include {common}/Makefile\n")
    return headers


def compile_strictly(*command):
    """Runs a compiler, of which a warning is a failure."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "warning" not in done.stderr, f"{' '.join(map(str, command))}: {done.stderr}{done.stdout}"


def build_module(work, headers):
    """A copy, so that the tree holds no products; read by sparse too, where it is here."""
    if not shutil.which("sparse"):
        skip("the kernel module by sparse", guest.Missing("sparse is not here", "package sparse"))
    build = work / "build"
    shutil.rmtree(build, ignore_errors=True)
    build.mkdir(parents=True)
    for name in ("Makefile", "kelvin.c", "kelvin.h"):
        shutil.copy(HERE.parent / name, build)
    compile_strictly("make", "-s", "-C", build, "check" if shutil.which("sparse") else "all", f"KERNEL={headers}")
    return build / "kelvin.ko"


def build_checks(work):
    program = work / "kelvin_check"
    compile_strictly("cc", "-std=gnu17", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-o", program, *sorted(HERE.glob("*.c")))
    return program


def skip(what, missing):
    """Says what is not tested here, as other tests do."""
    subprocess.run([HERE.parents[1] / "scripts/skip", missing.needs, what, str(missing)], cwd=HERE.parents[1], check=True)


def check_output(written, status, with_study):
    """All checks passed, and the kernel had nothing to say of it."""
    checks, _, log = written.partition(f"{LOG}\n")
    checks, _, parts = checks.partition(f"{PART}\n")
    of_ends, _, of_study = parts.partition(f"{STUDY}\n")
    passed = PASSED.search(checks)
    # What kelvin writes between them has words of its own; the log has all that the kernel wrote.
    defects = [line for line in (checks + log).splitlines() if DEFECTS.search(line)]
    assert passed and status == 0, written
    assert not defects, "\n".join(defects) + "\n" + written
    assert LOGGED.search(log), log
    of_study = f", {study.check(of_study)}" if with_study else ""
    return f"{passed[1]} checks passed, {ends.check(of_ends)}{of_study}"


def run_checks_in(machine, headers, kelvin, with_study):
    """The module and its checks, built, run and judged; and a short study, which takes as long as all else."""
    programs = [build_module(machine.work, headers), build_checks(machine.work), kelvin]
    contents = guest.GuestContents(programs, files={"ends": ends.SCRIPT, "study": study.SHORT if with_study else ""}, options=OPTIONS)
    written, status = machine.boot(contents, SCRIPT, SECONDS)
    print(f"kmod: {headers.name}: {check_output(written, status, with_study)}, and nothing in the kernel's log")


def run_on_debian_kernel(directory, kernel, kelvin):
    """In a kernel of Debian, where it can be had."""
    try:
        machine = guest.Guest(directory / kernel, kernel, header_packages)
        headers = unpacked_headers(machine)
    except guest.Missing as missing:
        return skip(f"the kernel module in {kernel}", missing)
    run_checks_in(machine, headers, kelvin, with_study=kernel == KERNELS[-1])


def run_on_own_kernel(directory, tree, kelvin):
    """In a kernel that was built in its source; the shell is Debian's."""
    machine = guest.Guest(directory / KERNELS[0], KERNELS[0], header_packages)
    machine.kernel = tree / "arch/x86/boot/bzImage"
    run_checks_in(machine, tree, kelvin, with_study=True)


def main():
    directory, kelvin, *tree = map(Path, sys.argv[1:])
    if tree:
        return run_on_own_kernel(directory, tree[0].resolve(), kelvin)
    for kernel in KERNELS:
        run_on_debian_kernel(directory, kernel, kelvin)


if __name__ == "__main__":
    main()
