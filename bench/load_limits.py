#!/usr/bin/env python3
"""Whether `kelvin study load` names what limits a file server where that is known because it was planted.

Each case is one study with a limit that is known by construction: a link shaped by a token bucket filter, a disk throttled by its
control group, a quota of CPU time on either side, few workers, a client that cannot take more, a full accept queue, a lock that nobody
watches, a link that is slower further on, a sleep of each request, requests that are turned away, two limits near balance, and cases in
which nothing is reached. Others were built to fool it: a lock, a sleep, a slow upstream
and a stall in the server's receive path, a log that is flushed, a server that is stopped now and then, memory that holds the files of few
users only, a neighbour of either end, a quota that changes in the middle or cannot be seen, connections that are accepted one by
one, a lock and a link in turn, a client that waits at its reads, other work on all CPUs. Of each the verdict is compared, and where the
construction gives it, the throughput at saturation (within 5 %) and the knee (within one step of the numbers of users that were visited).

A verdict that is wrong and given without a doubt is the worst: it is said apart, and there must be none. Links carry 1448 bytes of
payload in each frame of 1514 that the shaper counts.

Needs root, and control groups of version 1. Exit status: 0 all hold, 1 one does not, 2 it could not be done.
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
from servers import started, stats_server

PAYLOAD = 1448 / 1514
PERIOD = 100_000
MAX_SECONDS = 900
CAPACITY_ERROR = 0.05
# The share of files that come from the disk where the server's memory holds some of them.
FROM_DISK = 0.87


# ---- limits


@contextmanager
def nothing(_):
    yield []


def link(bits):
    """A link between two namespaces."""

    @contextmanager
    def planted(_):
        yield ["--network", "namespaces", "--link", str(bits)]

    return planted


@contextmanager
def throttled_disk(setting, name, value):
    with cgroup("blkio", **{f"blkio__throttle__{name}": f"{whole_disk(setting.base)} {value}"}) as entry_file:
        yield ["--cache", "uncached", "--server-memory", "64M", "--server-group", str(entry_file.parent)]


def disk_bytes(rate):
    return lambda setting: throttled_disk(setting, "read_bps_device", rate)


def disk_requests(rate):
    return lambda setting: throttled_disk(setting, "read_iops_device", rate)


def whole_disk(base):
    """The number of the disk that a directory lies on, not of its partition."""
    own = Path("/sys/dev/block", device_number(base)).resolve()
    return (own.parent if (own / "partition").exists() else own).joinpath("dev").read_text().strip()


@contextmanager
def quota(share):
    with cgroup("cpu", cpu__cfs_quota_us=str(round(share * PERIOD)), cpu__cfs_period_us=str(PERIOD)) as entry_file:
        yield entry_file


def server_quota(share):
    @contextmanager
    def planted(_):
        with quota(share) as entry_file:
            yield ["--server-group", str(entry_file.parent)]

    return planted


def client_quota(share):
    """The client has a quota, and the server leaves its group."""

    @contextmanager
    def planted(_):
        with quota(share) as entry_file:
            yield ["--server-group", "/sys/fs/cgroup/cpu", entry_file]

    return planted


def both(*plants):
    @contextmanager
    def planted(setting):
        with ExitStack() as stack:
            yield [word for plant in plants for word in stack.enter_context(plant(setting))]

    return planted


def workers(count):
    @contextmanager
    def planted(_):
        yield ["--server-options", f"--model pool --threads {count}"]

    return planted


def sysctl(setting, value, *words):
    """A setting of the kernel that is put back."""

    @contextmanager
    def planted(_):
        before = setting.read_text()
        try:
            setting.write_text(value)
            yield list(words)
        finally:
            setting.write_text(before)

    return planted


# Sockets that can receive little at a time. New namespaces have what this one has.
small_window = sysctl(Path("/proc/sys/net/ipv4/tcp_rmem"), "4096 4096 4096", "--network", "namespaces")
# Listening sockets whose accept queue holds one connection, and few that accept.
small_backlog = sysctl(Path("/proc/sys/net/core/somaxconn"), "1", "--server-options", "--model pool --threads 2")


def lock(microseconds, *accepted):
    """A server that runs already, behind a proxy that holds a lock for so long with each request, or accepts so many connections a second
    of one request each."""

    @contextmanager
    def planted(setting):
        with stats_server(setting.kelvin, setting.base, 128, 20_000) as (address, words):
            proxy = common.build_rival("locked_proxy", setting.base)
            with started([proxy, address.rsplit(":")[-1], microseconds, *accepted]) as proxied:
                yield ["--url", f"http://127.0.0.1:{proxied.stdout.readline().strip()}/", *words]

    return planted


def planted_wait(places, microseconds, options="", stall=0, period=1000, turn=0, reading=0, spin=0, flushed=0):
    """A server of the study's own in which each request that is received waits, at so many places at a time, or all of them now and then,
    or in every other few seconds, or on its CPU, or for so many bytes of a log to be flushed; or a client that waits at each answer."""

    @contextmanager
    def planted(setting):
        library = common.build_preloaded("planted_wait", setting.base)
        figures = {"PLANTED_PLACES": places, "PLANTED_US": microseconds, "PLANTED_STALL_MS": stall, "PLANTED_PERIOD_MS": period}
        figures |= {"PLANTED_TURN_S": turn, "PLANTED_READ_US": reading, "PLANTED_SPIN": spin}
        figures |= {"PLANTED_FLUSHED": flushed, "PLANTED_LOG": Path(setting.base, "log")}
        yield [{"LD_PRELOAD": str(library), **{name: str(value) for name, value in figures.items()}}, "--server-options", options]

    return planted


def stopped_server(milliseconds, period):
    """A server that runs already, and is stopped for so many milliseconds of each period."""

    @contextmanager
    def planted(setting):
        over = threading.Event()
        with stats_server(setting.kelvin, setting.base, 128, 20_000, processes=(process := [])) as (address, words):

            def stop():
                while not over.wait((period - milliseconds) / 1000):
                    process[0].send_signal(signal.SIGSTOP)
                    over.wait(milliseconds / 1000)
                    process[0].send_signal(signal.SIGCONT)

            stopper = threading.Thread(target=stop)
            stopper.start()
            try:
                yield ["--url", f"http://{address}/", *words]
            finally:
                over.set()
                stopper.join()

    return planted


def memory_for_few(held, limit):
    """A server of a control group of so much memory, in which each connection holds so much of it, and files have the rest."""

    @contextmanager
    def planted(setting):
        library = common.build_preloaded("planted_wait", setting.base)
        environment = {**os.environ, "LD_PRELOAD": str(library), "PLANTED_HELD": str(held)}
        with cgroup("memory", memory__limit_in_bytes=str(limit)) as entry_file:
            enter = lambda: entry_file.write_text(str(os.getpid()))
            with stats_server(setting.kelvin, setting.base, 128, 200_000, env=environment, preexec_fn=enter) as (address, words):
                # Who reads them first has them in its group.
                for file in Path(setting.base, "served").iterdir():
                    with open(file, "rb") as opened:
                        os.fsync(opened.fileno())
                        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                yield ["--url", f"http://{address}/", *words]

    return planted


@contextmanager
def moving_quota(_):
    """A quota of the server that is another one every few seconds."""
    with quota(0.1) as entry_file:
        over = threading.Event()

        def move():
            for share in itertools.cycle((0.3, 0.1)):
                if over.wait(4):
                    return
                (entry_file.parent / "cpu.cfs_quota_us").write_text(str(round(share * PERIOD)))

        mover = threading.Thread(target=move)
        mover.start()
        try:
            yield ["--server-group", str(entry_file.parent)]
        finally:
            over.set()
            mover.join()


@contextmanager
def hidden_quota(setting):
    """A server in a network namespace of its own, where its control group cannot be seen, behind a link as fast as the CPUs."""
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
        elsewhere = dict(listen="10.83.79.2:0", before=["ip", "netns", "exec", name])
        enter = lambda: entry_file.write_text(str(os.getpid()))
        address, words = stack.enter_context(stats_server(setting.kelvin, setting.base, 128, 100_000, preexec_fn=enter, **elsewhere))
        yield ["--url", f"http://{address}/", *words]


def slow_upstream_link(bits):
    """A server in a network namespace of its own, behind another one that forwards to here by a token bucket filter: the server's own
    interface has no rate."""

    @contextmanager
    def planted(setting):
        server, router = (f"kelvin-bench-{end}-{os.getpid()}" for end in ("server", "router"))
        enter = lambda name: ["nsenter", f"--net=/run/netns/{name}"]
        with ExitStack() as stack:
            for name in (server, router):
                common.run(["ip", "netns", "add", name])
                stack.callback(common.run, ["ip", "netns", "del", name])
            common.run(["ip", "link", "add", "kb-near", "type", "veth", "peer", "name", "near", "netns", router])
            common.run(["ip", "-n", router, "link", "add", "far", "type", "veth", "peer", "name", "served", "netns", server])
            ends = [([], "kb-near", "10.83.79.1/30"), (["-n", router], "near", "10.83.79.2/30")]
            ends += [(["-n", router], "far", "10.83.79.5/30"), (["-n", server], "served", "10.83.79.6/30")]
            for where, device, address in ends:
                common.run(["ip", *where, "address", "add", address, "dev", device])
                common.run(["ip", *where, "link", "set", device, "up"])
            common.run(["ip", "-n", server, "link", "set", "lo", "up"])
            common.run(["ip", "-n", server, "route", "add", "default", "via", "10.83.79.5"])
            common.run(["ip", "route", "add", "10.83.79.4/30", "via", "10.83.79.2"])
            common.run([*enter(router), "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"])
            shaper = f"tc qdisc add dev near root tbf rate {bits} burst 16kb latency 200ms"
            common.run([*enter(router), *shaper.split()])
            served = stats_server(setting.kelvin, setting.base, 128, 200_000, listen="10.83.79.6:0", before=enter(server))
            address, words = stack.enter_context(served)
            yield ["--url", f"http://{address}/", *words]

    return planted


LOOP = [sys.executable, "-c", "while True: pass"]


@contextmanager
def other_work(_):
    """Two busy loops for each CPU."""
    with ExitStack() as stack:
        for _ in range(2 * os.cpu_count()):
            stack.enter_context(started(LOOP))
        yield []


@contextmanager
def client_cpu_load(_):
    """Two busy loops on the CPU that a study has its load generator on."""
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(started(["taskset", "-c", str(common.last_allowed_cpu()), *LOOP]))
        yield []


@contextmanager
def server_cpu_load(_):
    """A busy loop on each CPU that a study leaves to its server."""
    with ExitStack() as stack:
        for cpu in os.sched_getaffinity(0) - {common.last_allowed_cpu()}:
            stack.enter_context(started(["taskset", "-c", str(cpu), *LOOP]))
        yield []


# ---- what is expected


class Expected:
    """Any of these names; all of them together, or one in doubt, where they are near balance. Where what limits cannot be seen, whatever
    else is named in doubt is no error."""

    def __init__(self, *names, together=False, capacity=None, knee=None, is_seen=True):
        self.names, self.together, self.capacity, self.knee = set(names), together, capacity, knee
        self.is_seen = is_seen

    def allows(self, names, is_certain):
        if not self.is_seen and not is_certain:
            return True
        return names <= self.names and not (self.together and is_certain and names != self.names)


def expect_link(bits, file_bytes, **more):
    return Expected("link", capacity=bits / 8 * PAYLOAD / file_bytes, **more)


def named_resources(verdict):
    """The resources that a verdict names, or why it names none."""
    if isinstance(verdict, str):
        return {verdict}
    ((kind, what),) = verdict.items()
    if kind == "not_sampled":
        ((limit, _),) = what["limit"].items()
        return {limit if limit == "refusals" else f"{limit}: {what['location']}"}
    if kind == "unknown":
        reason = what["reason"]
        return {"unknown: " + (reason if isinstance(reason, str) else next(iter(reason)))}
    if kind == "client":
        return {"client"}
    return {what["resource"]} if kind == "resource" else set(what["resources"])


MB, KB = 10**6, 10**3
FEW, MORE = "1,2,3,4,6,8", "1,2,3,4,6,8,10,12,16,20,24,28,32,40,48"
# Work for a request falls with the number of users, since calls and wake-ups are shared, and throughput goes on growing.
MANY = "1,2,4,8,12,16,24,32,48"

# Name: what is planted, arguments, what is expected.
CASES = {
    "link 10M": (link(10 * MB), ["--file-size", "100kB", "--users", FEW], expect_link(10 * MB, 100 * KB, knee=1)),
    "link 50M": (link(50 * MB), ["--file-size", "500kB", "--users", FEW], expect_link(50 * MB, 500 * KB, knee=1)),
    "link 200M": (link(200 * MB), ["--users", FEW], expect_link(200 * MB, 2 * MB, knee=1)),
    "link 600M": (link(600 * MB), ["--users", FEW], expect_link(600 * MB, 2 * MB, knee=1)),
    "link, fixed file": (
        link(100 * MB),
        ["--pattern", "fixed", "--users", FEW],
        expect_link(100 * MB, 2 * MB, knee=1),
    ),
    "link, small files": (link(20 * MB), ["--file-size", "20kB", "--users", FEW], Expected("link")),
    "link, think time": (
        link(20 * MB),
        ["--file-size", "200kB", "--think", "1s", "--users", MORE],
        expect_link(20 * MB, 200 * KB),
    ),
    "disk 5 MB/s": (disk_bytes(5 * MB), ["--file-size", "500kB", "--users", FEW], Expected("disk")),
    "disk 20 MB/s": (disk_bytes(20 * MB), ["--users", FEW], Expected("disk")),
    "disk 60 MB/s": (disk_bytes(60 * MB), ["--users", FEW], Expected("disk")),
    # One request reads all of a file.
    "disk 50 requests/s": (
        disk_requests(50),
        ["--file-size", "100kB", "--users", FEW],
        Expected("disk", "disk-requests"),
    ),
    "disk 200 requests/s": (
        disk_requests(200),
        ["--file-size", "100kB", "--users", FEW],
        Expected("disk", "disk-requests"),
    ),
    "server quota 5 %": (server_quota(0.05), ["--file-size", "100kB", "--users", MANY], Expected("server-cpu")),
    "server quota 15 %": (server_quota(0.15), ["--file-size", "100kB", "--users", MANY], Expected("server-cpu")),
    "server quota 30 %": (server_quota(0.3), ["--file-size", "2MB", "--users", MANY], Expected("server-cpu")),
    "one worker": (workers(1), ["--think", "20ms", "--file-size", "20kB", "--users", FEW], Expected("workers", knee=1)),
    "three workers": (
        workers(3),
        ["--think", "20ms", "--file-size", "20kB", "--users", FEW],
        Expected("workers", knee=3),
    ),
    "six workers": (
        workers(6),
        ["--think", "50ms", "--file-size", "20kB", "--users", "1,2,4,6,8,12,16"],
        Expected("workers", knee=6),
    ),
    "client quota 5 %": (client_quota(0.05), ["--file-size", "100kB", "--users", MANY], Expected("client")),
    "client quota 15 %": (client_quota(0.15), ["--file-size", "500kB", "--users", MANY], Expected("client")),
    "client's window": (small_window, ["--file-size", "200kB", "--users", MANY], Expected("client")),
    "small backlog": (
        small_backlog,
        ["--think", "20ms", "--file-size", "20kB", "--users", FEW],
        Expected("workers", is_seen=False),
    ),
    "a lock": (lock(5000), ["--users", FEW], Expected("limited_concurrency: between", knee=1)),
    "a lock in a pool of four": (
        planted_wait(1, 10_000, "--model pool --threads 4"),
        ["--file-size", "20kB", "--users", "4,8,16,32"],
        Expected("unknown: workers_wait"),
    ),
    "a lock in a pool of two": (
        planted_wait(1, 10_000, "--model pool --threads 2"),
        ["--file-size", "20kB", "--users", FEW],
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
        ["--file-size", "20kB", "--users", FEW],
        Expected("limited_concurrency: server", knee=1),
    ),
    "a mutex of 3 ms": (
        planted_wait(1, 3000, "--model thread"),
        ["--file-size", "20kB", "--users", FEW],
        Expected("limited_concurrency: server", knee=1),
    ),
    "a sleep of each request": (
        planted_wait(0, 40_000, "--model thread"),
        ["--file-size", "20kB", "--users", "1,2,4,8,16"],
        Expected("per_request: server"),
    ),
    "a log that is flushed": (
        planted_wait(0, 0, "--model thread", flushed=100),
        ["--file-size", "20kB", "--users", FEW],
        Expected("limited_concurrency: disk", "per_request: disk"),
    ),
    "a log that is flushed in the loops": (
        planted_wait(0, 0, flushed=100),
        ["--file-size", "20kB", "--users", FEW],
        Expected("limited_concurrency: disk", "per_request: disk"),
    ),
    "memory for the files of few users": (
        memory_for_few(2 * 2**20, 48 * 2**20),
        ["--users", "1,2,4,6,8,10,12"],
        Expected("memory: disk"),
    ),
    "connections turned away": (
        planted_wait(0, 10_000, "--model thread --connections 3"),
        ["--file-size", "20kB", "--users", FEW],
        Expected("refusals"),
    ),
    "a slower link further on": (
        slow_upstream_link(20 * MB),
        ["--users", FEW],
        Expected("limited_concurrency: network", "losses: network", capacity=20 * MB / 8 * PAYLOAD / (200 * KB), knee=1),
    ),
    "a stall each second": (
        planted_wait(0, 0, "--model pool --threads 4", stall=300),
        ["--file-size", "20kB", "--users", "1,2,4,8,16"],
        Expected("stalls: server"),
    ),
    "a server that is stopped": (
        stopped_server(150, 500),
        ["--users", "1,2,4,8,16"],
        Expected("stalls: server", "stalls: between"),
    ),
    "accepts throttled": (
        lock(0, 40),
        ["--users", FEW],
        Expected("limited_concurrency: between", knee=1),
    ),
    "a spinning lock in a pool of four": (
        planted_wait(1, 10_000, "--model pool --threads 4", spin=1),
        ["--file-size", "20kB", "--users", FEW],
        Expected("server-cpu", "unknown: none_saturated", "unknown: workers_wait", is_seen=False),
    ),
    "a lock and a link in turn": (
        both(link(10 * MB), planted_wait(1, 200_000, turn=3)),
        ["--file-size", "100kB", "--users", FEW],
        Expected("unknown: none_busy", "unknown: none_saturated", "unknown: still_growing", is_seen=False),
    ),
    "a client that waits at its reads": (
        planted_wait(0, 0, reading=2000),
        ["--file-size", "20kB", "--users", FEW],
        Expected("client", "unknown: none_busy", "unknown: none_saturated"),
    ),
    "a quota that changes": (
        moving_quota,
        ["--file-size", "100kB", "--users", MANY],
        Expected("server-cpu", is_seen=False),
    ),
    "a quota out of sight": (
        hidden_quota,
        ["--users", FEW],
        Expected("server-cpu", "unknown: none_saturated", "unknown: none_busy", is_seen=False),
    ),
    "other work": (
        other_work,
        ["--network", "namespaces", "--file-size", "100kB", "--users", FEW],
        Expected("other_work: server", "other_work: client", "server-cpu", "client"),
    ),
    "a neighbour beside the client": (
        client_cpu_load,
        ["--file-size", "100kB", "--users", FEW],
        Expected("other_work: client", "client"),
    ),
    "a neighbour on the server's CPUs": (
        server_cpu_load,
        ["--file-size", "100kB", "--users", FEW],
        Expected("server-cpu", "other_work: server"),
    ),
    "a link without a rate": (
        nothing,
        ["--network", "namespaces", "--users", FEW],
        Expected("server-cpu", "server-thread", "client", "unknown: none_saturated"),
    ),
    "link and disk alike": (
        both(link(80 * MB), disk_bytes(round(80 * MB / 8 * PAYLOAD * FROM_DISK))),
        ["--file-size", "500kB", "--users", FEW],
        Expected("link", "disk", together=True),
    ),
    "link below disk": (
        both(link(40 * MB), disk_bytes(20 * MB)),
        ["--users", FEW],
        expect_link(40 * MB, 2 * MB),
    ),
    "disk below link": (both(link(400 * MB), disk_bytes(10 * MB)), ["--users", FEW], Expected("disk")),
    "nothing reached": (
        link(400 * MB),
        ["--think", "1s", "--users", "1,2,3,4"],
        Expected("unknown: still_growing", "unknown: none_busy"),
    ),
    "nothing reached, no link": (
        nothing,
        ["--think", "200ms", "--file-size", "10kB", "--users", "1,2,4,8"],
        Expected("unknown: still_growing", "unknown: none_busy"),
    ),
}


# ---- studies


Setting = namedtuple("Setting", "kelvin base")


def study(setting, plant, arguments, budget):
    with plant(setting) as words:
        entry_files = [word for word in words if isinstance(word, Path)]
        environment = {name: value for word in words if isinstance(word, dict) for name, value in word.items()}
        flags = [word for word in words if not isinstance(word, (Path, dict))]
        command = [setting.kelvin, "study", "load", "--json", "--no-store", "--no-report", "--dir", setting.base]
        command += ["--rounds", "4", "--budget", budget]
        command += [] if "--cache" in flags or "--url" in flags else ["--file-count", "128"]
        enter = (lambda: [entry_file.write_text(str(os.getpid())) for entry_file in entry_files]) if entry_files else None
        done = subprocess.run(
            [str(word) for word in command + flags + arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=MAX_SECONDS,
            preexec_fn=enter,
            env={**os.environ, **environment},
            check=False,
        )
    if done.returncode != 0:
        raise RuntimeError(done.stderr.decode().strip().splitlines()[-1])
    return json.loads(done.stdout)


def study_limit(study):
    """What the study says of the limit, and its sentence."""
    for conclusion in study["analysis"]["studies"][0]["conclusions"]:
        limit = conclusion["claim"].get("load", {}).get("limit")
        if limit:
            return limit, conclusion["text"]
    raise RuntimeError("the study says nothing of a limit")


def broken_laws(study):
    """What the study says of laws that its visits do not obey."""
    conclusions = study["analysis"]["studies"][0]["conclusions"]
    return [one["text"] for one in conclusions if "law" in one["claim"].get("load", {}) and one["holds"] is not True]


def steps_between(users, knee, wanted):
    """How many steps of those that were visited lie between two numbers of users."""
    grid = [int(word) for word in users.split(",")]
    nearest = min(range(len(grid)), key=lambda at: abs(grid[at] - wanted))
    return abs(grid.index(knee) - nearest)


def study_case(name, setting, budget):
    """What a study of a case says of the limit."""
    plant, arguments, _ = CASES[name]
    processes = study(setting, plant, arguments, budget)
    (limit, text), broken = study_limit(processes), broken_laws(processes)
    for line in (text, *broken):
        common.log(f"{name}: {line}")
    return {**{what: limit[what] for what in ("verdict", "doubts", "saturation", "knee")}, "text": text, "broken_laws": broken}


def case_row(name, limit):
    _, arguments, expected = CASES[name]
    names, is_certain = named_resources(limit["verdict"]), not limit["doubts"]
    is_right = expected.allows(names, is_certain)
    problems = [] if is_right else ["WRONG AND CERTAIN" if is_certain and not is_unknown(names) else "NOT NAMED"]
    saturation = limit["saturation"]["value"]
    if expected.capacity and abs(saturation / expected.capacity - 1) > CAPACITY_ERROR:
        problems.append(f"CAPACITY {saturation:.4g}, NOT {expected.capacity:.4g}")
    users = arguments[arguments.index("--users") + 1]
    knee = limit["knee"] and limit["knee"]["users"]
    if expected.knee and (knee is None or steps_between(users, knee, expected.knee) > 1):
        problems.append(f"KNEE {knee}, NOT {expected.knee}")
    sure = "" if is_certain else ", in doubt"
    return [name, ", ".join(sorted(names)) + sure, f"{saturation:.4g}/s", str(knee), "; ".join(problems) or "holds"]


def is_unknown(names):
    return any(one.startswith("unknown") for one in names)


def parse():
    parser = common.make_parser(__doc__)
    parser.add_argument("--budget", default="30s", help="time of the visits of a study [default: %(default)s]")
    parser.add_argument("--only", action="append", choices=CASES, help="this one alone; repeatable")
    parser.add_argument("--dir", default=".", help="directory on a disk, for the files [default: %(default)s]")
    return parser.parse_args()


def measure(arguments):
    if os.geteuid() != 0:
        raise common.Missing("needs root")
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
