#!/usr/bin/env python3
"""The study of transfers with both ends in the kernel, in the guest: the full study, or a short one for the test.

usage: study.py DIRECTORY KELVIN

Its times are those of a guest that translates every instruction. They show function and not speed.
"""
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tests/guest"))
import guest  # noqa: E402

# In a guest, memory is the only file system, and canaries would report disturbances.
STUDY_FUNCTION = r"""
mkdir -p /tmp/measured
study() {
    ( cd /tmp/measured && COLUMNS=200 kelvin study transfer --no-canaries --no-store --dir /tmp/measured "$@" ) >/tmp/studied 2>/tmp/progress ||
        { cat /tmp/progress /tmp/studied; return 1; }
    sed 's/^/study: /' /tmp/studied
}
"""
MMAP_OPTIONS = "--only sender=kernel-mmap --only receiver=kernel-mmap"
ALL_OPTIONS = f"--only sender=kernel-rw --only receiver=kernel-rw {MMAP_OPTIONS}"
SHORT_SCRIPT = STUDY_FUNCTION + f"""
study --quick --rounds 2 --budget minimum {ALL_OPTIONS} --only files=small || exit
study --quick --rounds 2 --budget minimum {MMAP_OPTIONS} --only files=one || exit
"""
FULL_SCRIPT = f"""
insmod /bin/kelvin.ko || exit
{STUDY_FUNCTION}
study --round-limit 1000s {ALL_OPTIONS} || exit
"""
# Memory for two large files, their copies, and the same again.
OPTIONS = ["-smp", 2, "-m", "4G"]
HOURS = 6
# A table cell with its figures, on the same line as its name or on the next.
CELL_ROW = re.compile(r"^study: (kernel-\w+/kernel-\w+), (\S.*?)(?:\n\S+)? +[\d.]+ \[[\d.]+ to [\d.]+\] [mu]?s", re.MULTILINE)


def check(output):
    """Checks that every cell of the small files was measured, and those of the large file that map. A trial verifies the bytes itself."""
    small_files_output, _, large_file_output = output.partition("1 file of 12 MB, in memory")
    cells = [CELL_ROW.findall(part) for part in (small_files_output, large_file_output)]
    pairs = {f"kernel-{sender}/kernel-{receiver}" for sender in ("rw", "mmap") for receiver in ("rw", "mmap")}
    assert [len(set(part)) for part in cells] == [16, 4] and {pair for pair, _ in cells[0]} == pairs, (cells, output)
    assert not re.search(r"[Ff]ailed", output), output
    return f"{sum(map(len, cells))} cells of the study with both ends in the kernel"


def main():
    import run as test

    directory, kelvin = map(Path, sys.argv[1:])
    kernel = test.KERNELS[-1]
    machine = guest.Guest(directory / kernel, kernel, test.header_packages).copy_guest("study")
    module = test.build_module(machine.work, test.prepare_headers(machine))
    output, status = machine.boot(guest.GuestContents([module, kelvin], options=OPTIONS), FULL_SCRIPT, HOURS * 3600)
    print("\n".join(line.removeprefix("study: ") for line in output.splitlines() if line.startswith("study: ")))
    sys.exit(status)


if __name__ == "__main__":
    main()
