"""The architectures of guests: for each its QEMU, the machine that it emulates, its console, and the kernel of Debian."""
import ctypes
import mmap
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

# rdtsc; shl rdx, 32; or rax, rdx; ret
RDTSC_CODE = bytes.fromhex("0f31 48c1e220 4809d0 c3")
TSC_SECONDS = 0.2
# A longer reading of counter and clock is repeated, since the process lost the CPU.
MAX_READING_NS = 20_000


@dataclass(frozen=True)
class Architecture:
    """What a guest of one architecture needs."""

    # Debian's name of it.
    name: str
    # A metapackage of a kernel with a serial port built in.
    kernel: str
    qemu: str
    qemu_package: str
    # Options of QEMU: the machine and its processor.
    machine: tuple
    # Options of the kernel.
    kernel_options: Callable[[], str]
    # The command that lists the libraries of a program, and the directory that has them.
    library_list: tuple = ("ldd",)
    library_root: Path = Path("/")
    # Of an architecture other than this machine's: the command that runs its programs here, and the packages of that and of its C library.
    emulator: tuple = ()
    emulator_package: str = ""
    library_package: str = ""


def tsc_khz():
    """The frequency of this machine's time stamp counter in kHz. A translated guest has the same."""
    code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(RDTSC_CODE)
    rdtsc = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(ctypes.c_char.from_buffer(code)))

    def read_counter():
        while True:
            clock_before, ticks, clock_after = time.monotonic_ns(), rdtsc(), time.monotonic_ns()
            if clock_after - clock_before < MAX_READING_NS:
                return clock_before, ticks

    first_clock, first_ticks = read_counter()
    time.sleep(TSC_SECONDS)
    last_clock, last_ticks = read_counter()
    return round((last_ticks - first_ticks) * 1e6 / (last_clock - first_clock))


X86_64 = Architecture(
    name="amd64",
    # Its configuration has NUMA built in.
    kernel="linux-image-cloud-amd64",
    qemu="qemu-system-x86_64",
    qemu_package="qemu-system-x86",
    # The first 64-bit processors: no vectors beyond SSE3, no RDTSCP, no counter that is reported as invariant. Code that needs more must
    # detect that it is missing.
    machine=("-M", "pc", "-cpu", "qemu64"),
    # On a busy machine the kernel finds no timer, and its calibration is off by a factor, and with it every time limit in the guest.
    kernel_options=lambda: f"console=ttyS0 no_timer_check tsc=reliable tsc_early_khz={tsc_khz()}",
)
AARCH64_ROOT = Path("/usr/aarch64-linux-gnu")
AARCH64 = Architecture(
    name="arm64",
    kernel="linux-image-cloud-arm64",
    qemu="qemu-system-aarch64",
    qemu_package="qemu-system-arm",
    # A clock that advances by a nanosecond with each instruction, whatever this machine does: QEMU counts instructions only then. Signing of
    # pointers by the architecture's own cipher would take most of the time.
    machine=("-M", "virt", "-cpu", "max,pmu=on,pauth-impdef=on", "-icount", "shift=0,sleep=off"),
    kernel_options=lambda: "console=ttyAMA0",
    # As ldd does it: the loader prints the libraries, and does not start the program.
    library_list=("qemu-aarch64", "-L", AARCH64_ROOT, "-E", "LD_TRACE_LOADED_OBJECTS=1"),
    library_root=AARCH64_ROOT,
    emulator=("qemu-aarch64",),
    emulator_package="qemu-user",
    library_package="libc6-dev-arm64-cross",
)
