"""Devices of a known or steady rate: a loop device over memory, and a control group that limits reads from it.

Needs root. All that is made is removed again.
"""
import os
import tempfile
from contextlib import contextmanager
from pathlib import Path

import common

MIB = 1 << 20


def fill_file(path, bytes_):
    """Random bytes, on the device."""
    with path.open("wb") as out:
        for _ in range(bytes_ // MIB):
            out.write(os.urandom(MIB))
        out.flush()
        os.fsync(out.fileno())


@contextmanager
def loop_device(bytes_):
    """A file of random bytes on ext4 on a loop device over memory, and the device."""
    if os.geteuid() != 0:
        raise common.Missing("a loop device needs root; --only cached digest goes without")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory, tempfile.TemporaryDirectory() as place:
        image = Path(memory) / "image"
        with image.open("wb") as out:
            out.truncate(bytes_ + bytes_ // 4 + 64 * MIB)
        device = common.run(["losetup", "--find", "--show", image]).strip()
        try:
            common.run(["mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", device])
            common.run(["mount", device, place])
            try:
                path = Path(place) / "data"
                fill_file(path, bytes_)
                yield path, device
            finally:
                common.run(["umount", place])
        finally:
            common.run(["losetup", "--detach", device])


@contextmanager
def limited_group(device, bytes_, requests):
    """A control group that may read so many bytes and requests per second from a device: a function for a child to call before
    exec, to join it. None, with a message, where no such group can be made.
    """
    number = os.stat(device).st_rdev
    numbers = f"{os.major(number)}:{os.minor(number)}"
    first, second = Path("/sys/fs/cgroup/blkio"), Path("/sys/fs/cgroup")
    if first.is_dir():
        group = first / f"kelvin-bench-{os.getpid()}"
        limits = [("blkio.throttle.read_bps_device", f"{numbers} {bytes_}"), ("blkio.throttle.read_iops_device", f"{numbers} {requests}")]
    elif "io" in (second / "cgroup.controllers").read_text().split():
        group = second / f"kelvin-bench-{os.getpid()}"
        limits = [("io.max", f"{numbers} rbps={bytes_} riops={requests}")]
    else:
        common.log("no control groups that limit block devices are here: the loop device is judged as fast as it is")
        yield None
        return
    group.mkdir()
    try:
        for name, text in limits:
            (group / name).write_text(text)
        yield lambda: (group / "cgroup.procs").write_text("0")
    except OSError as error:
        raise common.Missing(f"a limit on a block device: {error}") from error
    finally:
        group.rmdir()


def drop_from_cache(path):
    """Drops a file from the page cache."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
