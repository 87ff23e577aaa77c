"""Devices of a known or steady rate: a loop device over memory, and a control group that limits reads from it.

Needs root. Everything that is created is removed again, also after Ctrl-C and SIGTERM. The file system and its device also end with the
benchmark when it is killed.
"""
import ctypes
import functools
import os
import signal
import tempfile
import time
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


CLONE_NEWNS = 0x00020000  # linux/sched.h


@functools.cache
def enter_private_mounts():
    """Gives this process a mount namespace of its own. What it mounts ends with it and its children, however they end."""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS) != 0:
        raise common.BenchmarkError(f"a mount namespace: {os.strerror(ctypes.get_errno())}")
    common.run(["mount", "--make-rprivate", "/"])


@contextmanager
def without_interruption():
    """Ignores Ctrl-C and SIGTERM meanwhile, also in the programs that are run: what removes things is to end."""
    handlers = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


@contextmanager
def loop_device(size):
    """Yields a file of random bytes on ext4 on a loop device over memory, and the device."""
    if os.geteuid() != 0:
        raise common.BenchmarkError("a loop device needs root; --only cached digest does not")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory_directory, tempfile.TemporaryDirectory() as mount_point:
        image = Path(memory_directory) / "image"
        with image.open("wb") as file:
            file.truncate(size + size // 4 + 64 * MIB)
        common.run(["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", image])
        with mounted_image(image, mount_point):
            path = Path(mount_point) / "data"
            fill_file(path, size)
            yield path, common.run(["findmnt", "--noheadings", "--output", "SOURCE", mount_point]).strip()


@contextmanager
def mounted_image(image, mount_point, options="loop"):
    """Mounts the file system in a file, on a loop device that keeps the file. The kernel removes the device together with the mount."""
    enter_private_mounts()
    try:
        common.run(["mount", "-o", options, image, mount_point])
        image.unlink()
        yield
    finally:
        with without_interruption():
            # A program that was interrupted as well may still have a file open. If mount failed there is nothing to detach.
            if os.path.ismount(mount_point):
                common.run(["umount", "--lazy", mount_point])


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
    try:
        group.mkdir()
        for name, text in limits:
            (group / name).write_text(text)
        yield lambda: (group / "cgroup.procs").write_text("0")
    except OSError as error:
        raise common.BenchmarkError(f"a limit on a block device: {error}") from error
    finally:
        with without_interruption():
            remove_cgroup(group)


# How often the processes of a group are looked for, and the pause after each time: they end within milliseconds.
REMOVE_ATTEMPTS = 50
REMOVE_PAUSE_SECONDS = 0.1


def remove_cgroup(group):
    """Removes a control group, and ends what an interrupted program has left in it: the kernel removes none that has processes."""
    for _ in range(REMOVE_ATTEMPTS):
        try:
            group.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError:
            for process in (group / "cgroup.procs").read_text().split():
                end_process(int(process))
            time.sleep(REMOVE_PAUSE_SECONDS)
    raise common.BenchmarkError(f"{group} still has processes, and stays: rmdir {group}")


def end_process(process):
    """Kills a process, if it is still there."""
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        pass


def drop_from_cache(path):
    """Drops a file from the page cache."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
