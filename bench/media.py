"""Devices of a known or steady rate: a loop device over memory, and a control group that limits reads from it.

Needs root. Everything that is created is removed again.
"""
import os
import tempfile
from contextlib import contextmanager
from pathlib import Path

import common

MIB = 1 << 20


def fill_file(path, size):
    """Fills a file with random bytes, and flushes it to the device."""
    with path.open("wb") as file:
        for _ in range(size // MIB):
            file.write(os.urandom(MIB))
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def loop_device(size):
    """Yields a file of random bytes on ext4 on a loop device over memory, and the device."""
    if os.geteuid() != 0:
        raise common.BenchmarkError("a loop device needs root; --only cached digest does not")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory_directory, tempfile.TemporaryDirectory() as mount_point:
        image = Path(memory_directory) / "image"
        with image.open("wb") as file:
            file.truncate(size + size // 4 + 64 * MIB)
        device = common.run(["losetup", "--find", "--show", image]).strip()
        try:
            common.run(["mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", device])
            common.run(["mount", device, mount_point])
            try:
                path = Path(mount_point) / "data"
                fill_file(path, size)
                yield path, device
            finally:
                common.run(["umount", mount_point])
        finally:
            common.run(["losetup", "--detach", device])


@contextmanager
def throttled_cgroup(device, bytes_per_second, requests_per_second):
    """A control group that limits bytes and requests per second of reads from a device.

    Yields a function that a child calls before exec to join it. Yields None, with a message, where no such group can be made.
    """
    number = os.stat(device).st_rdev
    device_number = f"{os.major(number)}:{os.minor(number)}"
    v1_root, v2_root = Path("/sys/fs/cgroup/blkio"), Path("/sys/fs/cgroup")
    if v1_root.is_dir():
        group = v1_root / f"kelvin-bench-{os.getpid()}"
        limits = [("blkio.throttle.read_bps_device", f"{device_number} {bytes_per_second}"), ("blkio.throttle.read_iops_device", f"{device_number} {requests_per_second}")]
    elif "io" in (v2_root / "cgroup.controllers").read_text().split():
        group = v2_root / f"kelvin-bench-{os.getpid()}"
        limits = [("io.max", f"{device_number} rbps={bytes_per_second} riops={requests_per_second}")]
    else:
        common.log("no control groups that limit block devices are here: the loop device is judged without a limit")
        yield None
        return
    group.mkdir()
    try:
        for name, text in limits:
            (group / name).write_text(text)
        yield lambda: (group / "cgroup.procs").write_text("0")
    except OSError as error:
        raise common.BenchmarkError(f"a limit on a block device: {error}") from error
    finally:
        group.rmdir()


def drop_from_cache(path):
    """Drops a file from the page cache."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
