"""What kelvin could leave on a machine: processes, control groups, shared memory, mounts, users."""
import re
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")
# The name of a group that kelvin makes has its process, which then has ended.
GROUP_NAME = re.compile(r"kelvin-[a-z]+-([0-9]+)-[0-9]+")
USERS = Path("/etc/passwd")
SHARED_MEMORY = Path("/dev/shm")
# Of a scratch directory the name ends with its process and a random part.
SCRATCH_NAME = re.compile(r"kelvin-.*-([0-9]+)-[A-Za-z0-9]+")


def processes_with(variable):
    """Processes, of any namespace, with this variable in their environment; not those that have ended and are not waited for."""
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            environment = (directory / "environ").read_bytes().split(b"\0")
            if variable.encode(errors="surrogateescape") in environment:
                found.append(Process(directory))
        except OSError:
            # It has ended meanwhile, or is another user's.
            continue
    return found


class Process:
    """A process: its number, state, group and words, and what each of its threads waits for."""

    def __init__(self, directory):
        self.number = int(directory.name)
        # Behind the name, which may have any character.
        self.state, _, group = (directory / "stat").read_text().rpartition(")")[2].split()[:3]
        self.group = int(group)
        self.words = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        self.waits = [(task / "wchan").read_text() for task in (directory / "task").iterdir()]

    def __repr__(self):
        return f"{self.number} ({self.state}, waits in {', '.join(self.waits)}): {self.words}"


class Snapshot:
    """What there was before."""

    def __init__(self):
        self.groups, self.shared, self.users = abandoned_groups(), abandoned_memory(), kelvin_users()

    def check_nothing_left(self, directory):
        groups = abandoned_groups() - self.groups
        assert not groups, f"control groups are left: {groups}"
        shared = abandoned_memory() - self.shared
        assert not shared, f"shared memory is left: {shared}"
        users = kelvin_users() - self.users
        assert not users, f"users are left: {users}"
        mounts = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(directory) in line]
        assert not mounts, f"mounts are left: {mounts}"


def abandoned_groups():
    return abandoned((path for path in GROUPS.rglob("kelvin-*") if path.is_dir()), GROUP_NAME)


def abandoned_memory():
    return abandoned(SHARED_MEMORY.glob("kelvin-*"), SCRATCH_NAME)


def abandoned(paths, name):
    """What kelvins that have ended made: others may measure at the same time."""
    matches = ((path, name.fullmatch(path.name)) for path in paths)
    return {str(path) for path, match in matches if match and not Path("/proc", match[1]).exists()}


def kelvin_users():
    return {line for line in USERS.read_text().splitlines() if "kelvin" in line}
