#!/usr/bin/env python3
"""What the machine at hand lacks, in a guest: NUMA nodes, an old processor, and a mount of a server.

usage: run.py KELVIN RUN_ONCE DIRECTORY

KELVIN is the program, RUN_ONCE the test program of crates/probes/tests/run_once.rs. DIRECTORY keeps the kernel between runs.
"""
import functools
import operator
import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import guest
import nfs
import nodes
import probes

CHECKS = [probes, nodes, nfs]
# Translation makes each step about a hundred times as slow; a machine that is busy, or limited, some times more.
SECONDS = 1500
PART = "guest: part"

Built = namedtuple("Built", "kelvin run_once")


def script(checks):
    """What the guest does: the part of each check, between lines of its own. The first that fails is the last."""
    return "".join(f"echo '{PART}'; {check.SCRIPT} || exit\n" for check in checks) + f"echo '{PART}'\n"


def skip(missing, what="the tests in a guest"):
    """Says what is not tested here, as other tests do."""
    subprocess.run([Path(__file__).parents[2] / "scripts/skip", missing.needs, what, str(missing)], check=True)


def all_contents(machine, built):
    """The checks for which all can be had, each with its guest contents."""
    for check in CHECKS:
        try:
            yield check, check.contents(machine, built)
        except guest.Missing as missing:
            skip(missing, f"the tests of {check.__name__} in a guest")


def main():
    kelvin, run_once, directory = sys.argv[1:]
    try:
        machine = guest.Guest(directory)
    except guest.Missing as missing:
        return skip(missing)
    built = Built(kelvin, shutil.copy(run_once, machine.work / "run_once"))
    checks, contents = zip(*all_contents(machine, built))
    written, status = machine.boot(functools.reduce(operator.add, contents), script(checks), SECONDS)
    assert status == 0, written
    for check, of_check in zip(checks, written.split(f"{PART}\n")[1:]):
        print(f"guest: {check.__name__}: {check.check(of_check)}")


if __name__ == "__main__":
    main()
