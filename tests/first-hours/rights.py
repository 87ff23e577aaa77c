"""First hours with fewer rights or less of the system: another user, containers, control groups, limits of a process."""
import json
import os
import resource
import shutil
import subprocess
import time
from pathlib import Path

from first_hour import SHORT_RUN, MissingHere, need_root
from groups import Group
from tour import LOOPBACK, look, tour

NOBODY = 65534


def become(hour, user):
    """From here on all is another user's, who has no rights."""
    hour.give_to(user)
    rights = ["--clear-groups", "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"]
    hour.prefix = ["setpriv", f"--reuid={user}", f"--regid={user}", *rights]


def ordinary_user(hour):
    """A user without rights: no kernel log, no hardware counters, no control groups."""
    if os.geteuid() == 0:
        become(hour, NOBODY)
    tour(hour)
    probes = ["os.syscall.null", "os.switch.round_trip", "file.page_read", "net.rtt.tcp"]
    hour.play("run", *probes, "--quick", "--budget", "6s", "--no-store")
    for words in (["run", "os.syscall.null", "--realtime"], ["ab", "os.syscall.null", "--a", "realtime=no", "--b", "realtime=yes"]):
        hour.play(*words, status=2, says=["realtime", "CAP_SYS_NICE"])
    facts = hour.play("machine").stdout
    assert "unknown" in facts, "nothing is unknown to a user without rights"


# A container with less than any other: no /sys, nothing in /proc/sys, no shared memory, only three devices, and nothing can be written but
# its own directory.
BARE_SYSTEM = """
mount --rbind '{directory}' '{directory}'
mount -o remount,bind,ro /
mount -t tmpfs none /sys
mount -t tmpfs none /proc/sys
mount -t tmpfs none '{devices}'
for name in null zero urandom; do touch '{devices}'/$name; mount --bind /dev/$name '{devices}'/$name; done
mount --rbind '{devices}' /dev
ip link set lo up
echo ready
exec sleep infinity
"""
NAMESPACES = ["--mount", "--pid", "--net", "--uts", "--ipc", "--user"]


def containers(hour):
    """Namespaces without /sys, and bubblewrap where it is installed."""
    devices = hour.directory / "devices"
    devices.mkdir()
    script = BARE_SYSTEM.format(directory=hour.directory, devices=devices)
    # It ends with this process, and its mounts with it.
    unshare = ["unshare", *NAMESPACES, "--fork", "--kill-child", "--map-root-user", "--mount-proc", "--propagation", "private"]
    container = subprocess.Popen([*unshare, "sh", "-ec", script], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
    try:
        if container.stdout.readline() != b"ready\n":
            raise MissingHere("right", "a container cannot be made here")
        [first] = Path(f"/proc/{container.pid}/task/{container.pid}/children").read_text().split()
        hour.prefix = ["nsenter", "--target", first, *NAMESPACES, "--preserve-credentials", f"--wd={hour.work}"]
        tour(hour)
        facts = " ".join(hour.play("machine").stdout.split())
        assert "nothing is below /sys" in facts, f"it is not said that /sys is missing: {facts}"
    finally:
        container.kill()
        container.wait()
    hour.clear()
    hour.prefix = []
    if not shutil.which("bwrap"):
        raise MissingHere("package bubblewrap", "bwrap is not installed")
    files = ["--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/sys", "--bind", hour.directory, hour.directory]
    # Its network stays, for servers and clients are containers of their own.
    hour.prefix = ["bwrap", "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--die-with-parent", *files]
    tour(hour)


def control_groups(hour):
    """A limit of CPU time, of memory and of processes: each is said, and ends nothing."""
    with Group("cpu", {"cpu.max": "50000 100000"}, {"cpu.cfs_quota_us": "50000"}) as group:
        hour.options = {"preexec_fn": group.join}
        tour(hour)
        assert "0.5 CPUs" in hour.play("machine").stdout, "the quota is not said"
        run = json.loads(hour.play(*SHORT_RUN, "--json", "--no-store").stdout)
        assert "cpu_quota" in json.dumps(run["run"]["hazards"]), "the quota is no hazard of the run"
    hour.clear()
    with Group("memory", {"memory.max": str(300 << 20)}, {"memory.limit_in_bytes": str(300 << 20)}) as group:
        hour.options = {"preexec_fn": group.join}
        tour(hour)
        hour.play("file", "write", "large", "--size", "400M", says="rate")
        hour.play("run", "mem.latency", "--quick", "--budget", "minimum", "--rounds", "2", "--no-store", says="memory")
        assert "300 MiB" in hour.play("machine").stdout, "the limit of memory is not said"
        assert group.kills() == 0, "the kernel killed a process for want of memory"
    hour.clear()
    with Group("pids", {"pids.max": "20"}, {"pids.max": "20"}) as group:
        hour.options = {"preexec_fn": group.join}
        tour(hour)
        hour.play("serve", ".", "--model", "pool", *LOOPBACK, status=2, says=["pids.max"])


# What is limited, to how much, and what then cannot be done: words, and what the refusal says.
LIMITS = [
    ("RLIMIT_NOFILE", 64, [(["load", "http://127.0.0.1:9/", "--users", "9", "--duration", "1s"], ["ulimit -n"])]),
    ("RLIMIT_AS", 1 << 30, []),
    ("RLIMIT_FSIZE", 1 << 20, [(["file", "write", "large", "--size", "4M"], ["large"])]),
    ("RLIMIT_STACK", 1 << 20, []),
    ("RLIMIT_MEMLOCK", 0, []),
    # Root has as many as it wants, so this one is another user's.
    ("RLIMIT_NPROC", 1, [(["serve", ".", *LOOPBACK], ["ulimit -u"])]),
]


def process_limits(hour):
    """Few descriptors, little address space, small files, no processes."""
    hour.play("file", "write", "data", "--size", "768K")
    for name, value, refused in LIMITS:
        hour.options = {"preexec_fn": limiter(getattr(resource, name), value)}
        look(hour)
        probe = "mem.latency" if name == "RLIMIT_AS" else "os.syscall.null"
        if name == "RLIMIT_NPROC":
            need_root("processes of another user")
            # A user that has no processes.
            become(hour, 60_000 + os.getpid() % 5_000)
        else:
            hour.play("run", probe, "--quick", "--budget", "minimum", "--rounds", "2", says="stored in")
            hour.play("report", "--full")
            hour.play("file", "read", "data")
            hour.play("time", "true", "-r", "2")
        for words, says in refused:
            hour.play(*words, status=2, says=says)


def limiter(limit, value):
    return lambda: resource.setrlimit(limit, (value, value))
