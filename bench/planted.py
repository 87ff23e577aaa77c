"""Limits of known size for programs under test: control groups and disks of their own."""

import itertools
import os
import time
from contextlib import contextmanager
from pathlib import Path

import common

NUMBERS = itertools.count()


@contextmanager
def cgroup(controller, **limits):
    """A cgroup with limits: the file by which a process enters it."""
    group = Path("/sys/fs/cgroup", controller, f"kelvin-bench-{os.getpid()}-{next(NUMBERS)}")
    try:
        group.mkdir()
    except OSError as error:
        raise common.Missing(f"needs root and the cgroup controller {controller}, version 1: {error}") from error
    try:
        for name, value in limits.items():
            (group / name.replace("__", ".")).write_text(value)
        yield group / "cgroup.procs"
    finally:
        # Its processes have ended, and may not have left yet.
        for _ in range(100):
            try:
                group.rmdir()
                break
            except OSError:
                time.sleep(0.05)


@contextmanager
def disk(base, options="loop"):
    """A file system on a loop device, mounted with these options: where it is mounted."""
    image, place = Path(base, "image"), Path(base, "disk")
    with open(image, "wb") as file:
        file.truncate(1 << 30)
    common.run([common.require_program("mkfs.ext4", "e2fsprogs"), "-q", "-F", image])
    place.mkdir()
    common.run(["mount", "-o", options, image, place])
    try:
        yield place
    finally:
        common.run(["umount", place])
        image.unlink()
        place.rmdir()


def device_number(place):
    device = os.stat(place).st_dev
    return f"{os.major(device)}:{os.minor(device)}"
