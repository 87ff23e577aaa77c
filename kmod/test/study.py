#!/usr/bin/env python3
"""The study of transfers with both ends in the kernel, in the guest: all of it, or a short one for the test.

usage: study.py DIRECTORY KELVIN

Its times are those of a guest whose every instruction is translated: they show that it works, and not how fast anything is.
"""
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tests/guest"))
import guest  # noqa: E402

# In a guest, memory is the only file system; canaries would say that the guest is slow.
RUN = r"""
mkdir -p /tmp/measured
study() {
    ( cd /tmp/measured && COLUMNS=200 kelvin study transfer --no-canaries --no-store --no-report --dir /tmp/measured "$@" ) >/tmp/studied 2>/tmp/progress ||
        { cat /tmp/progress /tmp/studied; return 1; }
    sed 's/^/study: /' /tmp/studied
}
"""
MAPPED = "--only sender=kernel-mmap --only receiver=kernel-mmap"
ALL = f"--only sender=kernel-rw --only receiver=kernel-rw {MAPPED}"
SHORT = RUN + f"""
study --quick --rounds 2 --budget minimum {ALL} --only files=small || exit
study --quick --rounds 2 --budget minimum {MAPPED} --only files=one || exit
"""
WHOLE = f"""
insmod /bin/kelvin.ko || exit
{RUN}
study --round-limit 1000s {ALL} || exit
"""
# Two large files, those that arrive, and as much room again.
OPTIONS = ["-smp", 2, "-m", "4G"]
HOURS = 6
# A cell of a table, whose figures stand beside its name or below it.
ROW = re.compile(r"^study: (kernel-\w+/kernel-\w+), (\S.*?)(?:\n\S+)? +[\d.]+ \[[\d.]+ to [\d.]+\] [mu]?s", re.MULTILINE)


def check(written):
    """Every cell of the small set was measured, and of the single file those that map; that all bytes arrived is what a trial is."""
    small, _, one = written.partition("1 file of 12 MB, in memory")
    cells = [ROW.findall(part) for part in (small, one)]
    pairs = {f"kernel-{sender}/kernel-{receiver}" for sender in ("rw", "mmap") for receiver in ("rw", "mmap")}
    assert [len(set(part)) for part in cells] == [16, 4] and {pair for pair, _ in cells[0]} == pairs, (cells, written)
    assert not re.search(r"[Ff]ailed", written), written
    return f"{sum(map(len, cells))} cells of the study with both ends in the kernel"


def main():
    import run as test

    directory, kelvin = map(Path, sys.argv[1:])
    kernel = test.KERNELS[-1]
    machine = guest.Guest(directory / kernel, kernel, test.header_packages).another("study")
    module = test.build_module(machine.work, test.unpacked_headers(machine))
    written, status = machine.boot(guest.GuestContents([module, kelvin], options=OPTIONS), WHOLE, HOURS * 3600)
    print("\n".join(line.removeprefix("study: ") for line in written.splitlines() if line.startswith("study: ")))
    sys.exit(status)


if __name__ == "__main__":
    main()
