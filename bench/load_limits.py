#!/usr/bin/env python3
"""Whether `kelvin study load` names the planted limit of a file server.

Each case is one study with a limit that is known by construction: a link shaped by a token bucket filter, a disk throttled by its
control group, a quota of CPU time on either side, few workers, a slow client, a full accept queue, a lock outside the study, a slower
link further upstream, a sleep in each request, refused requests, two limits near balance, and cases without a limit. Other cases are
meant to mislead it: a lock, a sleep, a slow upstream and a stall in the receive path of the server; a flushed log; a server that is
stopped periodically; memory for the files of few users only; a neighbour of either end; a quota that changes or is hidden; throttled
accepts; a lock and a link that alternate; a client that waits at its reads; other work on all CPUs. The verdict of each case is compared
with the planted limit. Where the construction gives them, so are the throughput at saturation (within 5 %) and the knee (within one step
of the visited numbers of users).

A wrong verdict without doubts is the worst error. It is reported separately, and there must be none. Links carry 1448 bytes of payload
in each frame of 1514 that the shaper counts.

Needs root, and control groups of version 1. Exit status: 0 all hold, 1 at least one does not, 2 it could not be done.
"""

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections import namedtuple
from contextlib import ExitStack, contextmanager
from pathlib import Path

import common
from planted import cgroup, device_number
from servers import piped_process, stats_server

PAYLOAD_SHARE = 1448 / 1514
QUOTA_PERIOD_US = 100_000
MAX_SECONDS = 900
CAPACITY_TOLERANCE = 0.05
# The share of files that are read from the disk if the server's memory holds the others.
DISK_READ_SHARE = 0.87


# ---- limits


@contextmanager
def no_limit(_):
    yield []


def link(bits):
    """A link between two namespaces."""

    @contextmanager
    def plant_limit(_):
        yield ["--network", "namespaces", "--link", str(bits)]

    return plant_limit


@contextmanager
def throttled_disk(setting, name, value):
    with cgroup("blkio", **{f"blkio__throttle__{name}": f"{whole_disk(setting.base)} {value}"}) as entry_file:
        yield ["--cache", "uncached", "--server-memory", "64M", "--server-group", str(entry_file.parent)]


def disk_byte_rate(rate):
    return lambda setting: throttled_disk(setting, "read_bps_device", rate)


def disk_request_rate(rate):
    return lambda setting: throttled_disk(setting, "read_iops_device", rate)


def whole_disk(base):
    """The device number of the disk of a directory, not of the partition."""
    device = Path("/sys/dev/block", device_number(base)).resolve()
    return (device.parent if (device / "partition").exists() else device).joinpath("dev").read_text().strip()


@contextmanager
def quota(share):
    with cgroup("cpu", cpu__cfs_quota_us=str(round(share * QUOTA_PERIOD_US)), cpu__cfs_period_us=str(QUOTA_PERIOD_US)) as entry_file:
        yield entry_file


def server_quota(share):
    @contextmanager
    def plant_limit(_):
        with quota(share) as entry_file:
            yield ["--server-group", str(entry_file.parent)]

    return plant_limit


def client_quota(share):
    """The client has a quota, and the server leaves its group."""

    @contextmanager
    def plant_limit(_):
        with quota(share) as entry_file:
            yield ["--server-group", "/sys/fs/cgroup/cpu", entry_file]

    return plant_limit


def all_of(*plants):
    @contextmanager
    def plant_limit(setting):
        with ExitStack() as stack:
            yield [argument for plant in plants for argument in stack.enter_context(plant(setting))]

    return plant_limit


def workers(count):
    @contextmanager
    def plant_limit(_):
        yield ["--server-options", f"--model pool --threads {count}"]

    return plant_limit


def sysctl(file, value, *study_flags):
    """A kernel setting that is restored at the end."""

    @contextmanager
    def plant_limit(_):
        old_value = file.read_text()
        try:
            file.write_text(value)
            yield list(study_flags)
        finally:
            file.write_text(old_value)

    return plant_limit


# Sockets with a small receive window. New namespaces inherit the setting.
small_window = sysctl(Path("/proc/sys/net/ipv4/tcp_rmem"), "4096 4096 4096", "--network", "namespaces")
# Listening sockets with an accept queue of one connection, and few threads that accept.
small_backlog = sysctl(Path("/proc/sys/net/core/somaxconn"), "1", "--server-options", "--model pool --threads 2")


def locked_proxy(microseconds, *accepts_per_second):
    """A running server behind a proxy that holds a lock during each request, or limits the accepted connections per second."""

    @contextmanager
    def plant_limit(setting):
        with stats_server(setting.kelvin, setting.base, 128, 20_000) as (address, study_flags):
            proxy = common.build_rival("locked_proxy", setting.base)
            with piped_process([proxy, address.rsplit(":")[-1], microseconds, *accepts_per_second]) as proxy_process:
                yield ["--url", f"http://127.0.0.1:{proxy_process.stdout.readline().strip()}/", *study_flags]

    return plant_limit


def planted_wait(places, microseconds, options="", stall_ms=0, period_ms=1000, turn_seconds=0, read_us=0, spins=0, flushed_bytes=0):
    """A server, started by the study, with planted waits (bench/rivals/planted_wait.c).

    `places` limits the requests that wait at a time; 0 is no limit. All of them stall for `stall_ms` in each period. They can wait in
    turns of `turn_seconds` only, spin on the CPU, or wait for a flushed log. `read_us` is a wait of the client at each response.
    """

    @contextmanager
    def plant_limit(setting):
        library = common.build_preloaded("planted_wait", setting.base)
        variables = {"PLANTED_PLACES": places, "PLANTED_US": microseconds, "PLANTED_STALL_MS": stall_ms, "PLANTED_PERIOD_MS": period_ms}
        variables |= {"PLANTED_TURN_S": turn_seconds, "PLANTED_READ_US": read_us, "PLANTED_SPIN": spins}
        variables |= {"PLANTED_FLUSHED": flushed_bytes, "PLANTED_LOG": Path(setting.base, "log")}
        yield [{"LD_PRELOAD": str(library), **{name: str(value) for name, value in variables.items()}}, "--server-options", options]

    return plant_limit


def stopped_server(milliseconds, period):
    """A running server that is stopped for some milliseconds of each period."""

    @contextmanager
    def plant_limit(setting):
        stop_event = threading.Event()
        with stats_server(setting.kelvin, setting.base, 128, 20_000, processes=(process := [])) as (address, study_flags):

            def stop_periodically():
                while not stop_event.wait((period - milliseconds) / 1000):
                    process[0].send_signal(signal.SIGSTOP)
                    stop_event.wait(milliseconds / 1000)
                    process[0].send_signal(signal.SIGCONT)

            stopper = threading.Thread(target=stop_periodically)
            stopper.start()
            try:
                yield ["--url", f"http://{address}/", *study_flags]
            finally:
                stop_event.set()
                stopper.join()

    return plant_limit


def memory_for_few(bytes_per_connection, limit):
    """A server in a control group with a memory limit. Each connection holds some of the memory, and files use the rest."""

    @contextmanager
    def plant_limit(setting):
        library = common.build_preloaded("planted_wait", setting.base)
        environment = {**os.environ, "LD_PRELOAD": str(library), "PLANTED_HELD": str(bytes_per_connection)}
        with cgroup("memory", memory__limit_in_bytes=str(limit)) as entry_file:
            join_cgroup = lambda: entry_file.write_text(str(os.getpid()))
            with stats_server(setting.kelvin, setting.base, 128, 200_000, env=environment, preexec_fn=join_cgroup) as (address, study_flags):
                # The page cache of a file is charged to the group of its first reader.
                for path in Path(setting.base, "served").iterdir():
                    with open(path, "rb") as file:
                        os.fsync(file.fileno())
                        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                yield ["--url", f"http://{address}/", *study_flags]

    return plant_limit


@contextmanager
def moving_quota(_):
    """A quota of the server that changes every few seconds."""
    with quota(0.1) as entry_file:
        stop_event = threading.Event()

        def change_quota():
            for share in itertools.cycle((0.3, 0.1)):
                if stop_event.wait(4):
                    return
                (entry_file.parent / "cpu.cfs_quota_us").write_text(str(round(share * QUOTA_PERIOD_US)))

        changer = threading.Thread(target=change_quota)
        changer.start()
        try:
            yield ["--server-group", str(entry_file.parent)]
        finally:
            stop_event.set()
            changer.join()


@contextmanager
def hidden_quota(setting):
    """A server in a network namespace of its own, where its control group is hidden, behind a link without a rate."""
    name = f"kelvin-bench-{os.getpid()}"
    with ExitStack() as stack:
        common.run(["ip", "netns", "add", name])
        stack.callback(common.run, ["ip", "netns", "del", name])
        common.run(["ip", "link", "add", "kb-near", "type", "veth", "peer", "name", "kb-far", "netns", name])
        for words in ("addr add 10.83.79.1/30 dev kb-near", "link set kb-near up"):
            common.run(["ip", *words.split()])
        for words in ("addr add 10.83.79.2/30 dev kb-far", "link set kb-far up", "link set lo up"):
            common.run(["ip", "-n", name, *words.split()])
        entry_file = stack.enter_context(quota(0.22))
        location = dict(listen="10.83.79.2:0", prefix=["ip", "netns", "exec", name])
        join_cgroup = lambda: entry_file.write_text(str(os.getpid()))
        address, words = stack.enter_context(stats_server(setting.kelvin, setting.base, 128, 100_000, preexec_fn=join_cgroup, **location))
        yield ["--url", f"http://{address}/", *words]


def slow_upstream_link(bits):
    """A server behind a router, each in a network namespace of its own. A token bucket filter of the router limits the rate.

    The interface of the server itself has no rate.
    """

    @contextmanager
    def plant_limit(setting):
        server, router = (f"kelvin-bench-{end}-{os.getpid()}" for end in ("server", "router"))
        enter_command = lambda name: ["nsenter", f"--net=/run/netns/{name}"]
        with ExitStack() as stack:
            for name in (server, router):
                common.run(["ip", "netns", "add", name])
                stack.callback(common.run, ["ip", "netns", "del", name])
            common.run(["ip", "link", "add", "kb-near", "type", "veth", "peer", "name", "near", "netns", router])
            common.run(["ip", "-n", router, "link", "add", "far", "type", "veth", "peer", "name", "served", "netns", server])
            interfaces = [([], "kb-near", "10.83.79.1/30"), (["-n", router], "near", "10.83.79.2/30")]
            interfaces += [(["-n", router], "far", "10.83.79.5/30"), (["-n", server], "served", "10.83.79.6/30")]
            for namespace_flags, device, address in interfaces:
                common.run(["ip", *namespace_flags, "address", "add", address, "dev", device])
                common.run(["ip", *namespace_flags, "link", "set", device, "up"])
            common.run(["ip", "-n", server, "link", "set", "lo", "up"])
            common.run(["ip", "-n", server, "route", "add", "default", "via", "10.83.79.5"])
            common.run(["ip", "route", "add", "10.83.79.4/30", "via", "10.83.79.2"])
            common.run([*enter_command(router), "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"])
            shaper = f"tc qdisc add dev near root tbf rate {bits} burst 16kb latency 200ms"
            common.run([*enter_command(router), *shaper.split()])
            server_context = stats_server(setting.kelvin, setting.base, 128, 200_000, listen="10.83.79.6:0", prefix=enter_command(server))
            address, words = stack.enter_context(server_context)
            yield ["--url", f"http://{address}/", *words]

    return plant_limit


BUSY_LOOP = [sys.executable, "-c", "while True: pass"]


@contextmanager
def other_work(_):
    """Two busy loops for each CPU."""
    with ExitStack() as stack:
        for _ in range(2 * os.cpu_count()):
            stack.enter_context(piped_process(BUSY_LOOP))
        yield []


@contextmanager
def client_cpu_load(_):
    """Two busy loops on the CPU of the load generator of a study."""
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(piped_process(["taskset", "-c", str(common.last_allowed_cpu()), *BUSY_LOOP]))
        yield []


@contextmanager
def server_cpu_load(_):
    """A busy loop on each CPU that a study uses for its server."""
    with ExitStack() as stack:
        for cpu in os.sched_getaffinity(0) - {common.last_allowed_cpu()}:
            stack.enter_context(piped_process(["taskset", "-c", str(cpu), *BUSY_LOOP]))
        yield []


# ---- expected verdicts


class Expected:
    """The names that a verdict may have. If they are joint, a certain verdict has all of them.

    If the limit is not detectable, every other verdict with doubts is allowed as well.
    """

    def __init__(self, *names, is_joint=False, capacity=None, knee=None, is_detectable=True):
        self.names, self.is_joint, self.capacity, self.knee = set(names), is_joint, capacity, knee
        self.is_detectable = is_detectable

    def allows(self, names, is_certain):
        if not self.is_detectable and not is_certain:
            return True
        return names <= self.names and not (self.is_joint and is_certain and names != self.names)


def expect_link(bits, file_bytes, **options):
    return Expected("link", capacity=bits / 8 * PAYLOAD_SHARE / file_bytes, **options)


def named_resources(verdict):
    """The resources that a verdict names, or why it names none."""
    if isinstance(verdict, str):
        return {verdict}
    ((kind, detail),) = verdict.items()
    if kind == "not_sampled":
        ((limit, _),) = detail["limit"].items()
        return {limit if limit == "refusals" else f"{limit}: {detail['location']}"}
    if kind == "unknown":
        reason = detail["reason"]
        return {"unknown: " + (reason if isinstance(reason, str) else next(iter(reason)))}
    if kind == "client":
        return {"client"}
    return {detail["resource"]} if kind == "resource" else set(detail["resources"])


MB, KB = 10**6, 10**3
FEW_USERS, MORE_USERS = "1,2,3,4,6,8", "1,2,3,4,6,8,10,12,16,20,24,28,32,40,48"
# The work per request falls as users are added, since calls and wake-ups are shared. So throughput continues to grow.
MANY_USERS = "1,2,4,8,12,16,24,32,48"

# By name: the planted limit, arguments of the study, and the expected verdict.
CASES = {
    "link 10M": (link(10 * MB), ["--file-size", "100kB", "--users", FEW_USERS], expect_link(10 * MB, 100 * KB, knee=1)),
    "link 50M": (link(50 * MB), ["--file-size", "500kB", "--users", FEW_USERS], expect_link(50 * MB, 500 * KB, knee=1)),
    "link 200M": (link(200 * MB), ["--users", FEW_USERS], expect_link(200 * MB, 2 * MB, knee=1)),
    "link 600M": (link(600 * MB), ["--users", FEW_USERS], expect_link(600 * MB, 2 * MB, knee=1)),
    "link, fixed file": (
        link(100 * MB),
        ["--pattern", "fixed", "--users", FEW_USERS],
        expect_link(100 * MB, 2 * MB, knee=1),
    ),
    "link, small files": (link(20 * MB), ["--file-size", "20kB", "--users", FEW_USERS], Expected("link")),
    "link, think time": (
        link(20 * MB),
        ["--file-size", "200kB", "--think", "1s", "--users", MORE_USERS],
        expect_link(20 * MB, 200 * KB),
    ),
    "disk 5 MB/s": (disk_byte_rate(5 * MB), ["--file-size", "500kB", "--users", FEW_USERS], Expected("disk")),
    "disk 20 MB/s": (disk_byte_rate(20 * MB), ["--users", FEW_USERS], Expected("disk")),
    "disk 60 MB/s": (disk_byte_rate(60 * MB), ["--users", FEW_USERS], Expected("disk")),
    # One request reads all of a file.
    "disk 50 requests/s": (
        disk_request_rate(50),
        ["--file-size", "100kB", "--users", FEW_USERS],
        Expected("disk", "disk-requests"),
    ),
    "disk 200 requests/s": (
        disk_request_rate(200),
        ["--file-size", "100kB", "--users", FEW_USERS],
        Expected("disk", "disk-requests"),
    ),
    "server quota 5 %": (server_quota(0.05), ["--file-size", "100kB", "--users", MANY_USERS], Expected("server-cpu")),
    "server quota 15 %": (server_quota(0.15), ["--file-size", "100kB", "--users", MANY_USERS], Expected("server-cpu")),
    "server quota 30 %": (server_quota(0.3), ["--file-size", "2MB", "--users", MANY_USERS], Expected("server-cpu")),
    "one worker": (workers(1), ["--think", "20ms", "--file-size", "20kB", "--users", FEW_USERS], Expected("workers", knee=1)),
    "three workers": (
        workers(3),
        ["--think", "20ms", "--file-size", "20kB", "--users", FEW_USERS],
        Expected("workers", knee=3),
    ),
    "six workers": (
        workers(6),
        ["--think", "50ms", "--file-size", "20kB", "--users", "1,2,4,6,8,12,16"],
        Expected("workers", knee=6),
    ),
    "client quota 5 %": (client_quota(0.05), ["--file-size", "100kB", "--users", MANY_USERS], Expected("client")),
    "client quota 15 %": (client_quota(0.15), ["--file-size", "500kB", "--users", MANY_USERS], Expected("client")),
    "client's window": (small_window, ["--file-size", "200kB", "--users", MANY_USERS], Expected("client")),
    "small backlog": (
        small_backlog,
        ["--think", "20ms", "--file-size", "20kB", "--users", FEW_USERS],
        Expected("workers", is_detectable=False),
    ),
    "a lock": (locked_proxy(5000), ["--users", FEW_USERS], Expected("limited_concurrency: between", knee=1)),
    "a lock in a pool of four": (
        planted_wait(1, 10_000, "--model pool --threads 4"),
        ["--file-size", "20kB", "--users", "4,8,16,32"],
        Expected("unknown: workers_wait"),
    ),
    "a lock in a pool of two": (
        planted_wait(1, 10_000, "--model pool --threads 2"),
        ["--file-size", "20kB", "--users", FEW_USERS],
        Expected("limited_concurrency: server", knee=1),
    ),
    "workers that sleep": (
        planted_wait(0, 10_000, "--model pool --threads 4"),
        ["--file-size", "20kB", "--users", "1,2,3,4,8,16"],
        Expected("workers", knee=4),
    ),
    "a slow upstream": (
        planted_wait(2, 10_000, "--model pool --threads 8"),
        ["--file-size", "20kB", "--users", "1,2,4,8,12,16"],
        Expected("limited_concurrency: server", knee=2),
    ),
    "a lock in the loops": (
        planted_wait(1, 10_000),
        ["--file-size", "20kB", "--users", FEW_USERS],
        Expected("limited_concurrency: server", knee=1),
    ),
    "a mutex of 3 ms": (
        planted_wait(1, 3000, "--model thread"),
        ["--file-size", "20kB", "--users", FEW_USERS],
        Expected("limited_concurrency: server", knee=1),
    ),
    "a sleep of each request": (
        planted_wait(0, 40_000, "--model thread"),
        ["--file-size", "20kB", "--users", "1,2,4,8,16"],
        Expected("per_request: server"),
    ),
    "a log that is flushed": (
        planted_wait(0, 0, "--model thread", flushed_bytes=100),
        ["--file-size", "20kB", "--users", FEW_USERS],
        Expected("limited_concurrency: disk", "per_request: disk"),
    ),
    "a log that is flushed in the loops": (
        planted_wait(0, 0, flushed_bytes=100),
        ["--file-size", "20kB", "--users", FEW_USERS],
        Expected("limited_concurrency: disk", "per_request: disk"),
    ),
    "memory for the files of few users": (
        memory_for_few(2 * 2**20, 48 * 2**20),
        ["--users", "1,2,4,6,8,10,12"],
        Expected("memory: disk"),
    ),
    "connections turned away": (
        planted_wait(0, 10_000, "--model thread --connections 3"),
        ["--file-size", "20kB", "--users", FEW_USERS],
        Expected("refusals"),
    ),
    "a slower link further on": (
        slow_upstream_link(20 * MB),
        ["--users", FEW_USERS],
        Expected("limited_concurrency: network", "losses: network", capacity=20 * MB / 8 * PAYLOAD_SHARE / (200 * KB), knee=1),
    ),
    "a stall each second": (
        planted_wait(0, 0, "--model pool --threads 4", stall_ms=300),
        ["--file-size", "20kB", "--users", "1,2,4,8,16"],
        Expected("stalls: server"),
    ),
    "a server that is stopped": (
        stopped_server(150, 500),
        ["--users", "1,2,4,8,16"],
        Expected("stalls: server", "stalls: between"),
    ),
    "accepts throttled": (
        locked_proxy(0, 40),
        ["--users", FEW_USERS],
        Expected("limited_concurrency: between", knee=1),
    ),
    "a spinning lock in a pool of four": (
        planted_wait(1, 10_000, "--model pool --threads 4", spins=1),
        ["--file-size", "20kB", "--users", FEW_USERS],
        Expected("server-cpu", "unknown: none_saturated", "unknown: workers_wait", is_detectable=False),
    ),
    "a lock and a link in turn": (
        all_of(link(10 * MB), planted_wait(1, 200_000, turn_seconds=3)),
        ["--file-size", "100kB", "--users", FEW_USERS],
        Expected("unknown: none_busy", "unknown: none_saturated", "unknown: still_growing", is_detectable=False),
    ),
    "a client that waits at its reads": (
        planted_wait(0, 0, read_us=2000),
        ["--file-size", "20kB", "--users", FEW_USERS],
        Expected("client", "unknown: none_busy", "unknown: none_saturated"),
    ),
    "a quota that changes": (
        moving_quota,
        ["--file-size", "100kB", "--users", MANY_USERS],
        Expected("server-cpu", is_detectable=False),
    ),
    "a quota out of sight": (
        hidden_quota,
        ["--users", FEW_USERS],
        Expected("server-cpu", "unknown: none_saturated", "unknown: none_busy", is_detectable=False),
    ),
    "other work": (
        other_work,
        ["--network", "namespaces", "--file-size", "100kB", "--users", FEW_USERS],
        Expected("other_work: server", "other_work: client", "server-cpu", "client"),
    ),
    "a neighbour beside the client": (
        client_cpu_load,
        ["--file-size", "100kB", "--users", FEW_USERS],
        Expected("other_work: client", "client"),
    ),
    "a neighbour on the server's CPUs": (
        server_cpu_load,
        ["--file-size", "100kB", "--users", FEW_USERS],
        Expected("server-cpu", "other_work: server"),
    ),
    "a link without a rate": (
        no_limit,
        ["--network", "namespaces", "--users", FEW_USERS],
        Expected("server-cpu", "server-thread", "client", "unknown: none_saturated"),
    ),
    "link and disk alike": (
        all_of(link(80 * MB), disk_byte_rate(round(80 * MB / 8 * PAYLOAD_SHARE * DISK_READ_SHARE))),
        ["--file-size", "500kB", "--users", FEW_USERS],
        Expected("link", "disk", is_joint=True),
    ),
    "link below disk": (
        all_of(link(40 * MB), disk_byte_rate(20 * MB)),
        ["--users", FEW_USERS],
        expect_link(40 * MB, 2 * MB),
    ),
    "disk below link": (all_of(link(400 * MB), disk_byte_rate(10 * MB)), ["--users", FEW_USERS], Expected("disk")),
    "nothing reached": (
        link(400 * MB),
        ["--think", "1s", "--users", "1,2,3,4"],
        Expected("unknown: still_growing", "unknown: none_busy"),
    ),
    "nothing reached, no link": (
        no_limit,
        ["--think", "200ms", "--file-size", "10kB", "--users", "1,2,4,8"],
        Expected("unknown: still_growing", "unknown: none_busy"),
    ),
}


# ---- studies


Setting = namedtuple("Setting", "kelvin base")


def run_study(setting, plant, arguments, budget):
    with plant(setting) as plant_words:
        entry_files = [item for item in plant_words if isinstance(item, Path)]
        environment = {name: value for item in plant_words if isinstance(item, dict) for name, value in item.items()}
        flags = [item for item in plant_words if not isinstance(item, (Path, dict))]
        command = [setting.kelvin, "study", "load", "--json", "--no-store", "--dir", setting.base]
        command += ["--rounds", "4", "--budget", budget]
        command += [] if "--cache" in flags or "--url" in flags else ["--file-count", "128"]
        join_cgroups = (lambda: [entry_file.write_text(str(os.getpid())) for entry_file in entry_files]) if entry_files else None
        process = subprocess.run(
            [str(item) for item in command + flags + arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=MAX_SECONDS,
            preexec_fn=join_cgroups,
            env={**os.environ, **environment},
            check=False,
        )
    if process.returncode != 0:
        raise RuntimeError(process.stderr.decode().strip().splitlines()[-1])
    return json.loads(process.stdout)


def study_limit(report):
    """The limit that the study concludes, and its sentence."""
    for conclusion in report["analysis"]["studies"][0]["conclusions"]:
        limit = conclusion["claim"].get("load", {}).get("limit")
        if limit:
            return limit, conclusion["text"]
    raise RuntimeError("the study has no conclusion on a limit")


def broken_laws(report):
    """The sentences of the study on laws that its visits violate."""
    conclusions = report["analysis"]["studies"][0]["conclusions"]
    return [conclusion["text"] for conclusion in conclusions if "law" in conclusion["claim"].get("load", {}) and conclusion["holds"] is not True]


def steps_between(users, knee, expected):
    """The number of visited steps between two numbers of users."""
    grid = [int(word) for word in users.split(",")]
    nearest = min(range(len(grid)), key=lambda index: abs(grid[index] - expected))
    return abs(grid.index(knee) - nearest)


def study_case(name, setting, budget):
    """The conclusion of the study of a case on the limit."""
    plant, arguments, _ = CASES[name]
    report = run_study(setting, plant, arguments, budget)
    (limit, text), laws = study_limit(report), broken_laws(report)
    for line in (text, *laws):
        common.log(f"{name}: {line}")
    return {**{key: limit[key] for key in ("verdict", "doubts", "saturation", "knee")}, "text": text, "broken_laws": laws}


def case_row(name, limit):
    _, arguments, expected = CASES[name]
    names, is_certain = named_resources(limit["verdict"]), not limit["doubts"]
    is_right = expected.allows(names, is_certain)
    problems = [] if is_right else ["WRONG AND CERTAIN" if is_certain and not is_unknown(names) else "NOT NAMED"]
    saturation = limit["saturation"]["value"]
    if expected.capacity and abs(saturation / expected.capacity - 1) > CAPACITY_TOLERANCE:
        problems.append(f"CAPACITY {saturation:.4g}, NOT {expected.capacity:.4g}")
    users = arguments[arguments.index("--users") + 1]
    knee = limit["knee"] and limit["knee"]["users"]
    if expected.knee and (knee is None or steps_between(users, knee, expected.knee) > 1):
        problems.append(f"KNEE {knee}, NOT {expected.knee}")
    doubt_text = "" if is_certain else ", in doubt"
    return [name, ", ".join(sorted(names)) + doubt_text, f"{saturation:.4g}/s", str(knee), "; ".join(problems) or "holds"]


def is_unknown(names):
    return any(name.startswith("unknown") for name in names)


def parse():
    parser = common.make_parser(__doc__)
    parser.add_argument("--budget", default="30s", help="time budget of a study [default: %(default)s]")
    parser.add_argument("--only", action="append", choices=CASES, help="only this case; repeatable")
    parser.add_argument("--dir", default=".", help="directory on a disk, for the files [default: %(default)s]")
    return parser.parse_args()


def measure(arguments):
    if os.geteuid() != 0:
        raise common.BenchmarkError("needs root")
    kelvin = common.kelvin_program(arguments.kelvin)
    base = tempfile.mkdtemp(prefix="kelvin-bench-", dir=arguments.dir)
    try:
        return {name: study_case(name, Setting(kelvin, base), arguments.budget) for name in arguments.only or CASES}
    finally:
        shutil.rmtree(base, ignore_errors=True)


def tables(measured):
    rows = [case_row(*case) for case in measured.items()]
    return common.table(["planted", "found", "saturation", "knee", "verdict"], rows), all(row[-1] == "holds" for row in rows)


if __name__ == "__main__":
    common.main(parse, measure, tables)
