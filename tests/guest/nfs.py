#!/usr/bin/env python3
"""Remote files over a real network file system: a kernel NFS server and its client in one guest, with a delay between them.

usage: nfs.py KELVIN DIRECTORY RESULTS

In the tests (run.py) a few mounts are measured. Run alone it measures every mount at every size, for what it shows of function
(times in the guest say nothing of any machine), and leaves the runs in RESULTS with a table of them.

Both ends share the loopback, so that a packet is delayed in both directions, and one page cache, which is dropped before each
run. The delay set is a lower bound of what a request takes, by construction; nothing else is asserted of a time.
"""
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import guest

# No daemon is needed for locks (nolock; NFSv4 has its own) or for what clients held before (the grace period is ended).
PACKAGES = ["nfs-kernel-server", "rpcbind", "libtirpc-common", "netbase", "iproute2"]
PROGRAMS = ["usr/sbin/rpc.nfsd", "usr/sbin/rpc.mountd", "usr/sbin/exportfs", "sbin/rpcbind", "sbin/tc"]
MODULES = ["virtio_pci", "virtio_blk", "nfsd", "nfsv3", "nfsv4", "sch_netem"]
FILES = ["etc/netconfig", "etc/protocols", "etc/services"]
DISK_BYTES = 2 << 30
PART = "nfs: mount"

SERVER = """
modprobe -a virtio_pci virtio_blk nfsd nfsv3 nfsv4 sch_netem || exit
mkdir -p /disk /mnt /run/rpcbind /var/lib/nfs/v4recovery
mount -t ext4 /dev/vda /disk || exit
mkdir -p /disk/local /disk/export
touch /var/lib/nfs/etab /var/lib/nfs/rmtab
mount -t nfsd nfsd /proc/fs/nfsd || exit
rpcbind && exportfs -a && rpc.mountd && rpc.nfsd 4 || exit
echo Y > /proc/fs/nfsd/v4_end_grace
"""
CONFIGURATION = {
    # What is written there may be lost.
    "etc/exports": "/disk *(rw,no_root_squash,insecure,async,no_subtree_check,fsid=0)\n",
    "etc/passwd": "root:x:0:0::/:/bin/sh\n_rpc:x:0:0::/:/bin/sh\n",
    "etc/group": "root:x:0:\n",
    "etc/hosts": "127.0.0.1 localhost\n",
}
# Nothing is kept: neither attributes nor names, as the published study mounted its server.
STRICT = ",noac,actimeo=0,lookupcache=none"


@dataclass(frozen=True)
class Mount:
    """A mount of the server, and the milliseconds by which each packet is delayed."""

    version: str
    strict: bool
    connections: int
    delay: int

    def __str__(self):
        kind = "strict" if self.strict else "default"
        return f"v{self.version}-{kind}-nconnect{self.connections}-{self.delay}ms"

    def round_trip(self):
        """The least time of a request, in nanoseconds."""
        return 2e6 * self.delay

    def options(self):
        of_version = {
            "3": "vers=3,nolock,proto=tcp,mountproto=tcp,mountaddr=127.0.0.1",
            "4.2": "vers=4.2,clientaddr=127.0.0.1",
        }
        several = f",nconnect={self.connections}" if self.connections > 1 else ""
        return f"{of_version[self.version]},addr=127.0.0.1{several}{STRICT if self.strict else ''}"

    def script(self, effort):
        """Mounts, measures and unmounts it."""
        kind, path = ("nfs", "/disk/export") if self.version == "3" else ("nfs4", "/export")
        # Not busybox's own tc, and no delay is no discipline.
        delay = f"/bin/tc qdisc add dev lo root netem delay {self.delay}ms || exit" if self.delay else ":"
        return f"""
echo '{PART} {self}'
mount -i -t {kind} -o {self.options()} 127.0.0.1:{path} /mnt || exit
grep ' /mnt ' /proc/mounts
{delay}
echo 3 > /proc/sys/vm/drop_caches
/bin/kelvin run file.remote --remote /mnt --dir /disk/local {effort} --no-store --no-report --json 2>/tmp/errors || {{ cat /tmp/errors; exit 1; }}
{'/bin/tc qdisc del dev lo root' if self.delay else ''}
umount /mnt || exit
"""


# A round trip of 2 ms and of 20 ms, both versions, both kinds of mount.
TESTED = [Mount("3", True, 1, 1), Mount("4.2", False, 4, 10)]
ALL = [
    Mount(version, strict, connections, delay)
    for version, strict, connections, delay in product(("3", "4.2"), (False, True), (1, 4), (0, 1, 10))
]
SCRIPT = "/bin/sh /nfs"


def script(mounts, effort):
    return SERVER + "".join(mount.script(effort) for mount in mounts)


def contents(machine, built):
    """What the tests need."""
    return equipment(machine, built.kelvin, script(TESTED, "--quick --budget minimum --rounds 2"))


def equipment(machine, kelvin, what):
    """kelvin, the server's programs, modules and files, a disk, and a script."""
    place = machine.unpacked("nfs", lambda: guest.with_libraries(*PACKAGES))
    files = {path: (place / path).read_text() for path in FILES} | CONFIGURATION | {"nfs": what}
    drive = ["-drive", f"file={disk(machine.work)},format=raw,if=virtio,cache=unsafe"]
    return guest.GuestContents([kelvin, *(place / program for program in PROGRAMS)], MODULES, files, drive)


def disk(directory):
    """An empty file system in a sparse file."""
    path = directory / "disk"
    path.unlink(missing_ok=True)
    with open(path, "wb") as file:
        file.truncate(DISK_BYTES)
    guest.run(guest.require_program("mkfs.ext4", "e2fsprogs"), "-q", "-F", path)
    return path


def reports(written):
    """The line of /proc/mounts, and the report, of each mount by its name."""
    found = {}
    for part in written.split(f"{PART} ")[1:]:
        name, mounted, rest = part.split("\n", 2)
        found[name] = mounted, json.JSONDecoder().raw_decode(rest[rest.index("{") :])[0]
    return found


class Figures:
    """The results of one report."""

    def __init__(self, report):
        self.results = report["analysis"]["results"]

    def all(self, metric):
        """The results of a metric."""
        return [one for one in self.results if one["metric"]["id"] == metric]

    def one(self, metric, **case):
        """The result of a metric at a case, of which only what distinguishes it is named."""
        at_case = [one for one in self.all(metric) if case.items() <= one["case"].items()]
        found = [one for one in at_case if "measured" in one["outcome"]]
        assert len(found) == 1, f"{metric} {case}: {[one['outcome'] for one in at_case]}"
        return found[0]

    def headline(self, metric, **case):
        return self.one(metric, **case)["outcome"]["measured"]["headline"]


# Beside the requests that a block must be: its share of the windows read ahead, of which the first are small.
FEW = 0.5


def check_requests(mount, figures):
    """How many requests a block is: those that must be, and no others."""
    requests = {cache: figures.headline("file.remote.requests", cache=cache) for cache in ("direct", "uncached", "cached")}
    # A block past the page cache is a request. Through it, the client asks first whether the file has changed where it keeps no
    # attributes; an NFSv4 server has delegated the file to it.
    asked = 1 if mount.strict and mount.version == "3" else 0
    expected = {"direct": 1, "uncached": asked, "cached": asked}
    for cache, count in expected.items():
        assert count <= requests[cache] + 1e-9 and requests[cache] < count + FEW, f"{mount}: {requests}, not {expected}"
    return {cache: count * mount.round_trip() for cache, count in expected.items()}


def check_times(mount, figures, least):
    """No request is faster than the delay that was set."""
    least_of = [("file.remote.round_trip", {"place": "remote"}, mount.round_trip())]
    least_of += [("file.remote", {"cache": cache}, bound) for cache, bound in least.items()]
    for metric, case, bound in least_of:
        # The clock of the guest and that of its delay are the same one, which kelvin has measured to within a thousandth.
        assert figures.headline(metric, **case) >= 0.999 * bound, f"{mount}: {metric} {case} is less than {bound} ns"


def check_prediction(mount, figures):
    """A direct block is predicted as a local one, a round trip, and its bytes at the server's rate."""
    predicted = figures.one("file.remote", cache="direct")["prediction"]
    local = figures.headline("file.remote.local", cache="direct")
    round_trip = figures.headline("file.remote.round_trip", place="remote")
    expected = local + round_trip + 4096e9 / figures.headline("file.remote.rate")
    assert abs(predicted["value"] / expected - 1) < 1e-6, f"{mount}: predicted {predicted['value']}, not {expected}"
    assert predicted["value"] >= 0.999 * mount.round_trip(), f"{mount}: {predicted}"


def check_mounted(mount, line, figures):
    """It is the mount that was asked for, and kelvin read there."""
    wanted = [f"vers={mount.version},"] + ["noac", "lookupcache=none"] * mount.strict
    wanted += [f"nconnect={mount.connections}"] * (mount.connections > 1)
    assert all(option in line for option in wanted), f"{mount}: {line}"
    assert "remote: nfs, 0 of 2048 pages in memory" in json.dumps(figures.one("file.remote", cache="direct")), mount


def check(written):
    """Every mount: what it is, its requests, that none is faster than can be, and what is predicted."""
    found = reports(written)
    assert set(found) == set(map(str, TESTED)), sorted(found)
    for mount in TESTED:
        line, report = found[str(mount)]
        figures = Figures(report)
        check_mounted(mount, line, figures)
        check_times(mount, figures, check_requests(mount, figures))
        check_prediction(mount, figures)
    return f"{len(TESTED)} mounts of a kernel NFS server, with the requests of each and the delay that was set"


WAYS = [(cache, order) for cache in ("direct", "uncached", "cached") for order in ("sequential", "random")]
# Rounds enough for an interval, in what time they need: files that take longer to write than usual, too.
EFFORT = "--thorough --rounds 4 --budget minimum --round-limit 100s"
# Guests at a time: each waits for delays more than it computes.
GUESTS = 4
# All mounts, on a busy machine.
HOURS = 3


def cell(figures, **case):
    """A remote block's time over the local one's, what was predicted, and its requests; a dash where it was not measured."""
    try:
        result = figures.one("file.remote", **case)
        local, requests = (figures.headline(f"file.remote.{name}", **case) for name in ("local", "requests"))
    except AssertionError:
        return "-"
    remote = result["outcome"]["measured"]["headline"]
    predicted = (result.get("prediction") or {}).get("value")
    beside = f", predicted {predicted / 1e3:.0f}" if predicted else ""
    return f"{remote / 1e3:.0f}{beside} / {local / 1e3:.0f} ({requests:.2g})"


def table(mount, line, report):
    """A mount's blocks by size, and what is concluded."""
    figures = Figures(report)
    sizes = sorted({one["case"]["bytes"] for one in figures.all("file.remote")})
    heads = ["file", *(f"{cache}, {order}" for cache, order in WAYS)]
    rows = [heads, ["---"] * len(heads)]
    rows += [[f"{size >> 20} MiB", *(cell(figures, bytes=size, cache=cache, order=order) for cache, order in WAYS)] for size in sizes]
    drawn = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    studies = report["analysis"]["studies"]
    said = [f"- {one['text']}: {one.get('holds')}" for study in studies for one in study["conclusions"]]
    return "\n".join([f"## {mount}", "", f"`{line}`", "", drawn, "", *said, ""])


def ready(machine, kelvin, number):
    """One of the guests, and what starts it: its share of the mounts takes as long as that of others."""
    one = machine.another(f"mounts-{number}")
    share = sorted(ALL, key=lambda mount: (mount.delay, mount.strict))[number::GUESTS]
    contents = equipment(one, kelvin, script(share, EFFORT)) + guest.GuestContents(options=["-smp", 1, "-m", "1536M"])
    return one, one.command(contents, f"{SCRIPT}\n")


def measured(guests):
    """The reports of all guests, and what those said that did not come to their end."""
    found, said = {}, []
    with ThreadPoolExecutor(GUESTS) as pool:
        for done in [pool.submit(one.run_to_end, command, HOURS * 3600) for one, command in guests]:
            try:
                written, status = done.result()
            except AssertionError as error:
                said.append(str(error))
                continue
            found |= reports(written)
            said += [] if status == 0 else [written[-2000:]]
    return found, said


def main():
    kelvin, directory, results = sys.argv[1:]
    results = Path(results)
    results.mkdir(parents=True, exist_ok=True)
    machine = guest.Guest(directory)
    found, said = measured([ready(machine, kelvin, number) for number in range(GUESTS)])
    for name, (_, report) in found.items():
        (results / f"{name}.json").write_text(json.dumps(report))
    text = "Microseconds of a block of 4 KiB: remote, predicted / local (requests to the server). Of function only: the guest is emulated.\n\n"
    text += "\n".join(table(mount, *found[str(mount)]) for mount in ALL if str(mount) in found)
    (results / "remote-files.md").write_text(text)
    assert not said and len(found) == len(ALL), f"{len(found)} of {len(ALL)} mounts: {said}"
    print(f"{len(found)} mounts: see {results / 'remote-files.md'}")


if __name__ == "__main__":
    main()
