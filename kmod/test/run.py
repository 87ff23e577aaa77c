#!/usr/bin/env python3
"""Tests of the kernel module: it is built for a Debian kernel, and loaded in a guest that runs this kernel.

usage: run.py DIRECTORY KELVIN [TREE]

DIRECTORY keeps downloads and build products. KELVIN is the program, whose transfers through the kernel are tested. TREE is the built
source of a kernel to use instead of Debian's. A kernel with KASAN, lockdep and kmemleak finds more defects; Debian has none.
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

# The default kernel of Debian 12, and its newer one.
KERNELS = ["linux-image-cloud-amd64", "linux-image-6.12-cloud-amd64"]
OPTIONS = ["-smp", 2, "-m", "768M"]
# A kernel with KASAN takes three minutes, Debian's takes ten seconds.
SECONDS = 900
PART_LINE = "guest: part"
STUDY_LINE = "guest: study"
LOG_LINE = "guest: kernel log"
PASSED_LINE = re.compile(r"^kmod: all of (\d+) checks passed$", re.MULTILINE)
# Words of the kernel's messages about defects: "possible" is from lockdep, "unreferenced" from kmemleak.
DEFECTS = re.compile(r"WARNING|BUG|Oops|KASAN|Call Trace|possible|unreferenced object|refcount_t|corrupt")
# The log line of the module for a page of the sender's file.
PAGE_LOG_LINE = re.compile(r"kelvin: page 0x\w+, level 1: 0x8000000000000\w25: present user accessed no-execute$", re.MULTILINE)

SCRIPT = f"""
mount -t debugfs debug /sys/kernel/debug
leaks=/sys/kernel/debug/kmemleak
[ ! -e $leaks ] || echo clear > $leaks
# A guest on a busy machine may pause for long. The timeout detects a hang.
echo 0 > /proc/sys/kernel/watchdog
echo 0 > /proc/sys/kernel/hung_task_timeout_secs
echo 1 > /sys/module/rcupdate/parameters/rcu_cpu_stall_suppress
dmesg -c > /dev/null
insmod /bin/kelvin.ko dyndbg=+p || exit
timeout -s KILL {SECONDS // 2} /bin/kelvin_check
status=$?
echo '{PART_LINE}'
[ $status != 0 ] || ( . /ends ) || status=1
echo '{STUDY_LINE}'
[ $status != 0 ] || ( . /study ) || status=1
rmmod kelvin || status=1
if [ -e $leaks ]; then
    # kmemleak ignores objects that are younger than five seconds.
    sleep 6
    echo scan > $leaks
    echo 'guest: kmemleak says:'
    cat $leaks
fi
echo '{LOG_LINE}'
dmesg
exit $status
"""


def header_packages(image):
    """The packages that a module needs to be built for a kernel image of Debian."""
    release = image.removeprefix("linux-image-")
    depends = guest.run("apt-cache", "depends", f"linux-headers-{release}")
    return [f"linux-headers-{release}", *re.findall(r"Depends: (linux-(?:headers-\S+-common|kbuild-\S+|compiler-\S+))", depends)]


def prepare_headers(machine):
    """The unpacked headers of a guest's kernel. Their makefile gets the unpacked path instead of the installed one."""
    common = next(machine.base.glob("usr/src/linux-headers-*-common"))
    headers = next(path for path in machine.base.glob("usr/src/linux-headers-*") if path != common)
    compiler = re.search(r"gcc-\d+", (headers / ".kernelvariables").read_text())[0]
    guest.require_program(compiler, compiler)
    (headers / "Makefile").write_text(f"include {common}/Makefile\n")
    return headers


def compile_strictly(*command):
    """Runs a compiler. A warning is a failure."""
    process = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    assert process.returncode == 0 and "warning" not in process.stderr, f"{' '.join(map(str, command))}: {process.stderr}{process.stdout}"


def build_module(work, headers):
    """Builds a copy of the module, so that the source tree has no build products. Runs sparse too if it is installed."""
    if not shutil.which("sparse"):
        skip("the kernel module by sparse", guest.MissingRequirement("sparse is not here", "package sparse"))
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


def skip(test, missing):
    """Reports a skipped test, as other tests do."""
    subprocess.run([HERE.parents[1] / "scripts/skip", missing.needs, test, str(missing)], cwd=HERE.parents[1], check=True)


def check_output(output, status, with_study):
    """Checks that all checks passed, and that the kernel log reports no defect."""
    checks, _, log = output.partition(f"{LOG_LINE}\n")
    checks, _, parts = checks.partition(f"{PART_LINE}\n")
    ends_output, _, study_output = parts.partition(f"{STUDY_LINE}\n")
    match = PASSED_LINE.search(checks)
    # The output of kelvin is excluded, since it may contain the same words.
    defects = [line for line in (checks + log).splitlines() if DEFECTS.search(line)]
    assert match and status == 0, output
    assert not defects, "\n".join(defects) + "\n" + output
    assert PAGE_LOG_LINE.search(log), log
    study_output = f", {study.check(study_output)}" if with_study else ""
    return f"{match[1]} checks passed, {ends.check(ends_output)}{study_output}"


def run_checks_in(machine, headers, kelvin, with_study):
    """Builds and runs the module and its checks, and judges their output. The optional short study doubles the time."""
    programs = [build_module(machine.work, headers), build_checks(machine.work), kelvin]
    contents = guest.GuestContents(programs, files={"ends": ends.SCRIPT, "study": study.SHORT_SCRIPT if with_study else ""}, options=OPTIONS)
    output, status = machine.boot(contents, SCRIPT, SECONDS)
    print(f"kmod: {headers.name}: {check_output(output, status, with_study)}, and the kernel log reports no defect")


def run_on_debian_kernel(directory, kernel, kelvin):
    """Runs the checks on a Debian kernel, if it is available."""
    try:
        machine = guest.Guest(directory / kernel, kernel, header_packages)
        headers = prepare_headers(machine)
    except guest.MissingRequirement as missing:
        return skip(f"the kernel module in {kernel}", missing)
    run_checks_in(machine, headers, kelvin, with_study=kernel == KERNELS[-1])


def run_on_own_kernel(directory, tree, kelvin):
    """Runs the checks on a kernel that was built in its source tree, with Debian's shell."""
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
