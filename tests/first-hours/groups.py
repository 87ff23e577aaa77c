"""A control group below the one of this process, with one limit, in either version of control groups."""
import os
import re
import time
from pathlib import Path

from first_hour import MissingHere

END_SECONDS = 10


class Group:
    """It is removed at the end, when no process is in it."""

    def __init__(self, controller, limits, limits_of_version_1):
        parent, is_version_1 = own_group(controller)
        self.path = parent / f"first-hours-{controller}-{os.getpid()}"
        try:
            self.path.mkdir()
        except OSError as error:
            raise MissingHere("right", f"no control group can be made: {error}") from error
        try:
            for name, value in (limits_of_version_1 if is_version_1 else limits).items():
                (self.path / name).write_text(value)
        except OSError as error:
            self.path.rmdir()
            raise MissingHere("right", f"a control group has no limit of {controller}: {error}") from error
        self.events = self.path / ("memory.oom_control" if is_version_1 else "memory.events")

    def join(self):
        """Moves the calling process into it."""
        (self.path / "cgroup.procs").write_text("0")

    def kills(self):
        """Processes that were killed for want of memory."""
        return int(re.search(r"^oom_kill (\d+)", self.events.read_text(), re.MULTILINE)[1])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        deadline = time.monotonic() + END_SECONDS
        # What has just ended is counted for a moment.
        while True:
            try:
                return self.path.rmdir()
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)


def own_group(controller):
    """The group of this process that has the controller, and whether it is of version 1."""
    mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        for mount in mounts:
            kind, options = mount[mount.index("-") + 1], mount[-1].split(",")
            is_version_1 = kind == "cgroup" and controller in controllers.split(",") and controller in options
            is_version_2 = kind == "cgroup2" and number == "0" and controller in controllers_of(Path(mount[4] + path))
            if is_version_1 or is_version_2:
                return Path(mount[4] + path), is_version_1
    raise MissingHere("machine", f"no control group limits {controller}")


def controllers_of(group):
    """The controllers that groups below a group of version 2 have."""
    file = group / "cgroup.subtree_control"
    return file.read_text().split() if file.exists() else []
