#!/usr/bin/env python3
"""Remote files over a real network file system: a kernel NFS server and its client in one guest, with a delay between them.

usage: nfs.py KELVIN DIRECTORY RESULTS

The tests (run.py) measure a few mounts. This program measures every mount at every size, and writes the reports to RESULTS, with a
table. They show function only: times in the guest have no meaning.

Both ends share the loopback interface, so a packet is delayed in both directions. They also share one page cache, which is dropped
before each run. By construction the configured delay is a lower bound of the time of a request. No other time is asserted.
"""
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import guest

# No daemon is needed for locks (nolock; NFSv4 has its own) or to recover the state of clients (the grace period is ended).
SERVER_PACKAGES = ["nfs-kernel-server", "rpcbind", "libtirpc-common", "netbase", "iproute2"]
PROGRAMS = ["usr/sbin/rpc.nfsd", "usr/sbin/rpc.mountd", "usr/sbin/exportfs", "sbin/rpcbind", "sbin/tc"]
MODULES = ["virtio_pci", "virtio_blk", "nfsd", "nfsv3", "nfsv4", "sch_netem"]
FILES = ["etc/netconfig", "etc/protocols", "etc/services"]
DISK_BYTES = 2 << 30
PART_LINE = "nfs: mount"

SERVER_SCRIPT = """
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
    # Writes may be lost (async).
    "etc/exports": "/disk *(rw,no_root_squash,insecure,async,no_subtree_check,fsid=0)\n",
    "etc/passwd": "root:x:0:0::/:/bin/sh\n_rpc:x:0:0::/:/bin/sh\n",
    "etc/group": "root:x:0:\n",
    "etc/hosts": "127.0.0.1 localhost\n",
}
# The client caches neither attributes nor names, as in the published study.
STRICT_OPTIONS = ",noac,actimeo=0,lookupcache=none"


@dataclass(frozen=True)
class Mount:
    """A mount of the server, and the delay of each packet in milliseconds."""

    version: str
    is_strict: bool
    connections: int
    delay: int

    def __str__(self):
        kind = "strict" if self.is_strict else "default"
        return f"v{self.version}-{kind}-nconnect{self.connections}-{self.delay}ms"

    def round_trip(self):
        """The least time of a request, in nanoseconds."""
        return 2e6 * self.delay

    def options(self):
        version_options = {
            "3": "vers=3,nolock,proto=tcp,mountproto=tcp,mountaddr=127.0.0.1",
            "4.2": "vers=4.2,clientaddr=127.0.0.1",
        }
        connection_option = f",nconnect={self.connections}" if self.connections > 1 else ""
        return f"{version_options[self.version]},addr=127.0.0.1{connection_option}{STRICT_OPTIONS if self.is_strict else ''}"

    def script(self, effort):
        """Mounts, measures and unmounts it."""
        kind, path = ("nfs", "/disk/export") if self.version == "3" else ("nfs4", "/export")
        # /bin/tc, since busybox has a tc of its own. Without a delay there is no queueing discipline.
        delay = f"/bin/tc qdisc add dev lo root netem delay {self.delay}ms || exit" if self.delay else ":"
        return f"""
echo '{PART_LINE} {self}'
mount -i -t {kind} -o {self.options()} 127.0.0.1:{path} /mnt || exit
grep ' /mnt ' /proc/mounts
{delay}
echo 3 > /proc/sys/vm/drop_caches
/bin/kelvin run file.remote --remote /mnt --dir /disk/local {effort} --no-store --json 2>/tmp/errors || {{ cat /tmp/errors; exit 1; }}
{'/bin/tc qdisc del dev lo root' if self.delay else ''}
umount /mnt || exit
"""


# A round trip of 2 ms and of 20 ms, both versions, both kinds of mount.
TESTED_MOUNTS = [Mount("3", True, 1, 1), Mount("4.2", False, 4, 10)]
ALL_MOUNTS = [
    Mount(version, strict, connections, delay)
    for version, strict, connections, delay in product(("3", "4.2"), (False, True), (1, 4), (0, 1, 10))
]
SCRIPT = "/bin/sh /nfs"


def script(mounts, effort):
    return SERVER_SCRIPT + "".join(mount.script(effort) for mount in mounts)


def contents(machine, programs):
    """The guest contents of the tests."""
    return guest_contents(machine, programs.kelvin, script(TESTED_MOUNTS, "--quick --budget minimum --rounds 2"))


def guest_contents(machine, kelvin, script_text):
    """Guest contents with kelvin, the programs, modules and files of the server, a disk, and a script."""
    directory = machine.unpack_packages("nfs", lambda: guest.packages_with_libraries(*SERVER_PACKAGES))
    files = {path: (directory / path).read_text() for path in FILES} | CONFIGURATION | {"nfs": script_text}
    drive = ["-drive", f"file={disk(machine.work)},format=raw,if=virtio,cache=unsafe"]
    return guest.GuestContents([kelvin, *(directory / program for program in PROGRAMS)], MODULES, files, drive)


def disk(directory):
    """An empty file system in a sparse file."""
    path = directory / "disk"
    path.unlink(missing_ok=True)
    with open(path, "wb") as file:
        file.truncate(DISK_BYTES)
    guest.run(guest.require_program("mkfs.ext4", "e2fsprogs"), "-q", "-F", path)
    return path


def reports(output):
    """The line of /proc/mounts, and the report, of each mount by its name."""
    reports_by_mount = {}
    for part in output.split(f"{PART_LINE} ")[1:]:
        name, mount_line, report_text = part.split("\n", 2)
        reports_by_mount[name] = mount_line, json.JSONDecoder().raw_decode(report_text[report_text.index("{") :])[0]
    return reports_by_mount


class Figures:
    """The results of one report."""

    def __init__(self, report):
        self.results = report["analysis"]["results"]

    def results_of(self, metric):
        """The results of a metric."""
        return [result for result in self.results if result["metric"]["id"] == metric]

    def result_at(self, metric, **case):
        """The only measured result of a metric whose case has these values."""
        at_case = [result for result in self.results_of(metric) if case.items() <= result["case"].items()]
        measured = [result for result in at_case if "measured" in result["outcome"]]
        assert len(measured) == 1, f"{metric} {case}: {[result['outcome'] for result in at_case]}"
        return measured[0]

    def headline(self, metric, **case):
        return self.result_at(metric, **case)["outcome"]["measured"]["headline"]


# Allowed requests of a block beyond the required ones: its share of the read-ahead windows, of which the first are small.
MAX_EXTRA_REQUESTS = 0.5


def check_requests(mount, figures):
    """Checks the number of requests of a block. Returns the minimum times of a block, by cache state."""
    requests = {cache: figures.headline("file.remote.requests", cache=cache) for cache in ("direct", "uncached", "cached")}
    # A block past the page cache is one request. A client that caches no attributes first asks whether the file has changed. An NFSv4
    # server has delegated the file to the client.
    revalidations = 1 if mount.is_strict and mount.version == "3" else 0
    expected = {"direct": 1, "uncached": revalidations, "cached": revalidations}
    for cache, count in expected.items():
        assert count <= requests[cache] + 1e-9 and requests[cache] < count + MAX_EXTRA_REQUESTS, f"{mount}: {requests}, not {expected}"
    return {cache: count * mount.round_trip() for cache, count in expected.items()}


def check_times(mount, figures, cache_bounds):
    """Checks that no request is faster than the configured delay."""
    bounds = [("file.remote.round_trip", {"place": "remote"}, mount.round_trip())]
    bounds += [("file.remote", {"cache": cache}, bound) for cache, bound in cache_bounds.items()]
    for metric, case, bound in bounds:
        # The delay uses the clock of the guest, which kelvin has measured to within 0.1 %.
        assert figures.headline(metric, **case) >= 0.999 * bound, f"{mount}: {metric} {case} is less than {bound} ns"


def check_prediction(mount, figures):
    """Checks that the prediction of a direct block is a local block, a round trip, and its bytes at the server's rate."""
    prediction = figures.result_at("file.remote", cache="direct")["prediction"]
    local = figures.headline("file.remote.local", cache="direct")
    round_trip = figures.headline("file.remote.round_trip", place="remote")
    expected = local + round_trip + 4096e9 / figures.headline("file.remote.rate")
    assert abs(prediction["value"] / expected - 1) < 1e-6, f"{mount}: predicted {prediction['value']}, not {expected}"
    assert prediction["value"] >= 0.999 * mount.round_trip(), f"{mount}: {prediction}"


def check_mounted(mount, line, figures):
    """Checks that the mount has the requested options, and that kelvin read from it."""
    options = [f"vers={mount.version},"] + ["noac", "lookupcache=none"] * mount.is_strict
    options += [f"nconnect={mount.connections}"] * (mount.connections > 1)
    assert all(option in line for option in options), f"{mount}: {line}"
    assert "remote: nfs, 0 of 2048 pages in memory" in json.dumps(figures.result_at("file.remote", cache="direct")), mount


def check(output):
    """Checks the options, the requests, the times and the prediction of every mount."""
    reports_by_mount = reports(output)
    assert set(reports_by_mount) == set(map(str, TESTED_MOUNTS)), sorted(reports_by_mount)
    for mount in TESTED_MOUNTS:
        line, report = reports_by_mount[str(mount)]
        figures = Figures(report)
        check_mounted(mount, line, figures)
        check_times(mount, figures, check_requests(mount, figures))
        check_prediction(mount, figures)
    return f"{len(TESTED_MOUNTS)} mounts of a kernel NFS server, with the requests of each and the delay that was set"


ACCESS_KINDS = [(cache, order) for cache in ("direct", "uncached", "cached") for order in ("sequential", "random")]
# Enough rounds for an interval, with time for files that take longer to write than usual.
EFFORT = "--thorough --rounds 4 --budget minimum --round-limit 100s"
# Guests that run at the same time: each mostly waits for delays.
GUEST_COUNT = 4
# Time limit of all mounts, on a busy machine.
HOURS = 3


def cell(figures, **case):
    """A table cell: the times of a remote and of a local block, the prediction, and the requests. A dash if not measured."""
    try:
        result = figures.result_at("file.remote", **case)
        local, requests = (figures.headline(f"file.remote.{name}", **case) for name in ("local", "requests"))
    except AssertionError:
        return "-"
    remote = result["outcome"]["measured"]["headline"]
    predicted_value = (result.get("prediction") or {}).get("value")
    predicted_text = f", predicted {predicted_value / 1e3:.0f}" if predicted_value else ""
    return f"{remote / 1e3:.0f}{predicted_text} / {local / 1e3:.0f} ({requests:.2g})"


def table(mount, line, report):
    """A table of the blocks of a mount by file size, and its conclusions."""
    figures = Figures(report)
    sizes = sorted({result["case"]["bytes"] for result in figures.results_of("file.remote")})
    header = ["file", *(f"{cache}, {order}" for cache, order in ACCESS_KINDS)]
    rows = [header, ["---"] * len(header)]
    rows += [[f"{size >> 20} MiB", *(cell(figures, bytes=size, cache=cache, order=order) for cache, order in ACCESS_KINDS)] for size in sizes]
    rows_text = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    studies = report["analysis"]["studies"]
    conclusions = [f"- {result['text']}: {result.get('holds')}" for study in studies for result in study["conclusions"]]
    return "\n".join([f"## {mount}", "", f"`{line}`", "", rows_text, "", *conclusions, ""])


def prepare_guest(machine, kelvin, number):
    """Prepares a guest for its share of the mounts. Returns it and its command. All shares take about the same time."""
    guest_copy = machine.copy_guest(f"mounts-{number}")
    mounts = sorted(ALL_MOUNTS, key=lambda mount: (mount.delay, mount.is_strict))[number::GUEST_COUNT]
    equipment = guest_contents(guest_copy, kelvin, script(mounts, EFFORT)) + guest.GuestContents(options=["-smp", 1, "-m", "1536M"])
    return guest_copy, guest_copy.command(equipment, f"{SCRIPT}\n")


def measure_mounts(guests):
    """Runs all guests. Returns the reports by mount, and the errors of guests that did not finish."""
    reports_by_mount, errors = {}, []
    with ThreadPoolExecutor(GUEST_COUNT) as pool:
        for future in [pool.submit(machine.run_until_exit, command, HOURS * 3600) for machine, command in guests]:
            try:
                output, status = future.result()
            except AssertionError as error:
                errors.append(str(error))
                continue
            reports_by_mount |= reports(output)
            errors += [] if status == 0 else [output[-2000:]]
    return reports_by_mount, errors


def main():
    kelvin, directory, results = sys.argv[1:]
    results = Path(results)
    results.mkdir(parents=True, exist_ok=True)
    machine = guest.Guest(directory)
    reports_by_mount, errors = measure_mounts([prepare_guest(machine, kelvin, number) for number in range(GUEST_COUNT)])
    for name, (_, report) in reports_by_mount.items():
        (results / f"{name}.json").write_text(json.dumps(report))
    text = "Microseconds of a block of 4 KiB: remote, predicted / local (requests to the server). They show function only: the guest is emulated.\n\n"
    text += "\n".join(table(mount, *reports_by_mount[str(mount)]) for mount in ALL_MOUNTS if str(mount) in reports_by_mount)
    (results / "remote-files.md").write_text(text)
    assert not errors and len(reports_by_mount) == len(ALL_MOUNTS), f"{len(reports_by_mount)} of {len(ALL_MOUNTS)} mounts: {errors}"
    print(f"{len(reports_by_mount)} mounts: see {results / 'remote-files.md'}")


if __name__ == "__main__":
    main()
