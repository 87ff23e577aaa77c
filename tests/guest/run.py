#!/usr/bin/env python3
"""Tests in a guest of hardware and software that this machine may lack: NUMA nodes, an old processor, and an NFS mount.

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
# Translation is about a hundred times slower. A busy or limited machine is slower still.
SECONDS = 1500
PART_LINE = "guest: part"

BuiltPrograms = namedtuple("Built", "kelvin run_once")


def script(checks):
    """The script of the guest: the part of each check, separated by marker lines. It stops at the first failure."""
    return "".join(f"echo '{PART_LINE}'; {check.SCRIPT} || exit\n" for check in checks) + f"echo '{PART_LINE}'\n"


def skip(missing, tests="the tests in a guest"):
    """Reports a skipped test, as other tests do."""
    subprocess.run([Path(__file__).parents[2] / "scripts/skip", missing.needs, tests, str(missing)], check=True)


def available_checks(machine, programs):
    """The checks whose requirements are available, each with its guest contents."""
    for check in CHECKS:
        try:
            yield check, check.contents(machine, programs)
        except guest.MissingRequirement as missing:
            skip(missing, f"the tests of {check.__name__} in a guest")


def main():
    kelvin, run_once, directory = sys.argv[1:]
    try:
        machine = guest.Guest(directory)
    except guest.MissingRequirement as missing:
        return skip(missing)
    programs = BuiltPrograms(kelvin, shutil.copy(run_once, machine.work / "run_once"))
    checks, contents = zip(*available_checks(machine, programs))
    output, status = machine.boot(functools.reduce(operator.add, contents), script(checks), SECONDS)
    assert status == 0, output
    for check, check_output in zip(checks, output.split(f"{PART_LINE}\n")[1:]):
        print(f"guest: {check.__name__}: {check.check(check_output)}")


if __name__ == "__main__":
    main()
