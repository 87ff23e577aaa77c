"""Known limits for the programs under test: control groups and disks of their own."""

import itertools
import os
from contextlib import contextmanager
from pathlib import Path

import common
import media

GROUP_NUMBERS = itertools.count()


@contextmanager
def cgroup(controller, **limits):
    """A cgroup with limits. Yields the file that adds a process to it. In the name of a limit `__` stands for a dot."""
    group = Path("/sys/fs/cgroup", controller, f"kelvin-bench-{os.getpid()}-{next(GROUP_NUMBERS)}")
    try:
        group.mkdir()
    except OSError as error:
        raise common.BenchmarkError(f"needs root and the cgroup controller {controller}, version 1: {error}") from error
    try:
        for name, value in limits.items():
            (group / name.replace("__", ".")).write_text(value)
        yield group / "cgroup.procs"
    finally:
        with media.without_interruption():
            media.remove_cgroup(group)


@contextmanager
def loop_disk(base, options="loop"):
    """A file system on a loop device, mounted with these options. Yields its mount point."""
    image, mount_point = Path(base, "image"), Path(base, "disk")
    with open(image, "wb") as file:
        file.truncate(1 << 30)
    common.run([common.require_program("mkfs.ext4", "e2fsprogs"), "-q", "-F", image])
    mount_point.mkdir()
    try:
        with media.mounted_image(image, mount_point, options):
            yield mount_point
    finally:
        mount_point.rmdir()


def device_number(path):
    device = os.stat(path).st_dev
    return f"{os.major(device)}:{os.minor(device)}"
