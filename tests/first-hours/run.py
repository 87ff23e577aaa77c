#!/usr/bin/env python3
"""Plays the first hour of a stranger with kelvin, where it can go wrong: no home, a full disk, narrow terminals, signals, missing rights.

usage: run.py KELVIN [NUMBER...], with the numbers of the hours that are wanted

Each hour is a handful of commands in one kind of environment. No figure is looked at, but every answer: its exit status, its lines, and that
nothing is left behind. What cannot be made here is skipped, with the reason.
"""
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

import environments
import interruptions
import rights
from first_hour import FirstHour, MissingHere

ROOT = Path(__file__).parents[2]
HOURS = [
    ("a bare environment", environments.bare_environment),
    ("a home that cannot be written to", environments.unwritable_home),
    ("odd names", environments.odd_names),
    ("narrow terminals", environments.narrow_terminals),
    ("readers that leave", interruptions.readers_that_leave),
    ("signals", interruptions.signals),
    ("an ordinary user", rights.ordinary_user),
    ("containers", rights.containers),
    ("control groups", rights.control_groups),
    ("limits of a process", rights.process_limits),
    ("a wrong clock", environments.wrong_clock),
    ("scripts and readers", environments.scripts_and_readers),
]


def skip(needs, name, reason):
    subprocess.run([ROOT / "scripts/skip", needs, f"first-hours: {name}", reason], check=True)


def main():
    kelvin, *wanted = sys.argv[1:]
    # A shell starts what is in its background with signals ignored, and so would every program here.
    for number in (signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.default_int_handler)
    # Where anybody may look, as the build directory may not be: some hours are another user's.
    with tempfile.TemporaryDirectory(prefix="kelvin-first-hours-") as place:
        os.chmod(place, 0o755)
        program = Path(place, "kelvin")
        shutil.copy(kelvin, program)
        failed = []
        for number, (name, play) in enumerate(HOURS, 1):
            if (not wanted or str(number) in wanted) and not passes(FirstHour(program, Path(place, str(number))), f"{number} {name}", play):
                failed.append(name)
    assert not failed, f"first-hours: failed: {', '.join(failed)}"


def passes(hour, name, play):
    """Whether an hour goes as it must, or cannot be played here."""
    start = time.monotonic()
    try:
        try:
            play(hour)
        except MissingHere as missing:
            # What was played before must have left nothing all the same.
            skip(missing.needs, name, str(missing))
        hour.check_end()
        print(f"first-hours: {name}: passed in {time.monotonic() - start:.0f} s", flush=True)
        return True
    except AssertionError:
        traceback.print_exc()
        print(f"first-hours: {name}: FAILED after {time.monotonic() - start:.0f} s", flush=True)
        return False
    finally:
        hour.remove()


if __name__ == "__main__":
    main()
