#!/usr/bin/env python3
"""What the machine at hand lacks, in a guest: NUMA nodes, and an old processor.

usage: run.py KELVIN RUN_ONCE DIRECTORY

KELVIN is the program, RUN_ONCE the test program of crates/probes/tests/run_once.rs. DIRECTORY keeps the kernel between runs.
"""
import shutil
import subprocess
import sys
from pathlib import Path

import guest
import nodes
import probes

CHECKS = [probes, nodes]
# Translation makes each step about a hundred times as slow; a machine that is busy, or limited, some times more.
SECONDS = 1500
PART = "guest: part"


def script():
    """What the guest does: the part of each check, between lines of its own. The first that fails is the last."""
    return "".join(f"echo '{PART}'; {check.SCRIPT} || exit\n" for check in CHECKS) + f"echo '{PART}'\n"


def skip(missing):
    """Says what is not tested here, as other tests do."""
    subprocess.run([Path(__file__).parents[2] / "scripts/skip", missing.needs, "the tests in a guest", str(missing)], check=True)


def main():
    kelvin, run_once, directory = sys.argv[1:]
    try:
        machine = guest.Guest(directory)
    except guest.Missing as missing:
        return skip(missing)
    program = shutil.copy(run_once, machine.work / "run_once")
    written, status = machine.boot([kelvin, program], script(), nodes.options(), SECONDS)
    assert status == 0, written
    for check, of_check in zip(CHECKS, written.split(f"{PART}\n")[1:]):
        print(f"guest: {check.__name__}: {check.check(of_check)}")


if __name__ == "__main__":
    main()
