#!/usr/bin/env python3
"""Whether `kelvin serve` answers at least as many requests a second as nginx does.

Files of 100 B, 4 KiB, 64 KiB and 2 MiB in a tmpfs are fetched over loopback with 1, 8 and 64 connections by wrk, in a network namespace
whose connections begin under cubic; with --link RATE from another namespace over a link of that rate, which needs root. nginx is Debian's, with one worker for each CPU, no access log, and each of sendfile and
open_file_cache on and off; the best of the four for a file and a number of connections, found by three visits to each before, is what
kelvin is compared with. A pair is one visit to either, in random order.

The ratio is kelvin's requests per second over nginx's: its Hodges-Lehmann estimate and the exact 90 % interval of the signed-rank
test, whose lower end must be above 1 for 100 B and 4 KiB and above 0.97 for larger ones, where copies of the kernel are most of the
work, and over a link. Beside it stands the server's CPU time of a request, which is not judged.

Exit status: 0 all hold, 1 one does not, 2 it could not be done.
"""
import itertools
import os
import random
import re
import statistics
import subprocess
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import common
import hosts
from servers import free_port

CONTROL = "cubic"
LOOPBACK = "127.0.0.1"
CLIENT, SERVER = "198.18.93.1", "198.18.93.2"
# Bytes of each file, and what the lower end of the ratio must be above.
FILES = {"100": (100, 1.0), "4K": (4 << 10, 1.0), "64K": (64 << 10, 0.97), "2M": (2 << 20, 0.97)}
OVER_A_LINK = 0.97
CONNECTIONS = [1, 8, 64]
# Visits to each nginx by which the fastest is found.
FINDING = 3
PATIENCE = 10

NGINX = """
daemon off; worker_processes {cpus}; pid {base}/{port}.pid; error_log {base}/{port}.log;
events {{ worker_connections 4096; }}
http {{
    access_log off; sendfile {sendfile}; tcp_nopush {sendfile}; keepalive_requests 1000000000; types {{}}
    {cache}
    server {{ listen {host}:{port} backlog=4096; root {root}; }}
}}
"""


@dataclass
class ServerPlace:
    """Where servers listen, and the namespaces of servers and clients, if these are apart."""

    address: str = LOOPBACK
    servers: str = None
    clients: str = None

    def of_server(self, *command):
        return hosts.in_namespace(self.servers, *command) if self.servers else [str(word) for word in command]

    def of_client(self, *command):
        return hosts.in_namespace(self.clients, *command) if self.clients else [str(word) for word in command]


@contextmanager
def linked(rate):
    """Servers and clients apart, joined by a link of this rate."""
    names = [f"kelvin-{what}-{os.getpid()}" for what in ("clients", "servers")]
    try:
        for name in names:
            hosts.ip("netns", "add", name)
            hosts.ip("-netns", name, "link", "set", "lo", "up")
        hosts.connect_hosts(names[0], f"{CLIENT}/30", names[1], f"{SERVER}/30", "s")
        shape = ["qdisc", "add", "dev", "far-s", "root", "tbf", "rate", rate, "burst", "128kb", "latency", "50ms"]
        common.run([common.require_program("tc", "iproute2"), "-netns", names[1], *shape])
        yield ServerPlace(SERVER, names[1], names[0])
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], stderr=subprocess.DEVNULL, check=False)


def listening(place, port):
    until = time.monotonic() + PATIENCE
    connect = place.of_client("bash", "-c", f": < /dev/tcp/{place.address}/{port}")
    while subprocess.run(connect, stderr=subprocess.DEVNULL, check=False).returncode != 0:
        if time.monotonic() > until:
            raise RuntimeError(f"nothing listens on port {port}")
        time.sleep(0.02)


class Server:
    """A server that listens, ended with the block."""

    def __init__(self, place, name, port, *command):
        self.place, self.name, self.port, self.command = place, name, port, place.of_server(*command)

    def __enter__(self):
        quiet = subprocess.DEVNULL
        self.process = subprocess.Popen(self.command, stdin=quiet, stdout=quiet, stderr=quiet)
        listening(self.place, self.port)
        return self

    def cpu(self):
        """Seconds of CPU of the server and its workers so far."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        fields = [Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split() for process in [self.process.pid, *children]]
        return sum(int(of[11]) + int(of[12]) for of in fields) / os.sysconf("SC_CLK_TCK")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


def nginx(place, base, root, sendfile, cache):
    port = free_port()
    settings = base / f"{port}.conf"
    held = "open_file_cache max=1000 inactive=60s;" if cache == "on" else ""
    cpus = len(os.sched_getaffinity(0))
    settings.write_text(NGINX.format(cpus=cpus, base=base, port=port, host=place.address, root=root, sendfile=sendfile, cache=held))
    return Server(place, f"nginx, sendfile {sendfile}, open_file_cache {cache}", port, "nginx", "-c", settings)


def kelvin(place, program, root, *flags):
    port = free_port()
    return Server(place, " ".join(["kelvin", *flags]), port, program, "serve", root, "--listen", f"{place.address}:{port}", *flags)


@dataclass
class LoadVisit:
    """What wrk fetches."""

    name: str
    connections: int
    seconds: int

    def command(self, server):
        threads = min(self.connections, len(os.sched_getaffinity(0)))
        url = f"http://{server.place.address}:{server.port}/{self.name}"
        return server.place.of_client("wrk", f"-t{threads}", f"-c{self.connections}", f"-d{self.seconds}s", url)

    def rate_of(self, told, server):
        """Requests a second, by what wrk told; an error if one failed."""
        if "Socket errors" in told or "Non-2xx" in told:
            raise RuntimeError(f"{server.name}: {told}")
        return float(re.search(r"Requests/sec:\s*([0-9.]+)", told)[1])

    def rate(self, server):
        return self.measure(server)[0]

    def measure(self, server):
        """Requests a second, and seconds of the server's CPU for each."""
        before = server.cpu()
        told = common.run(self.command(server))
        requests = int(re.search(r"(\d+) requests in", told)[1])
        return self.rate_of(told, server), (server.cpu() - before) / max(requests, 1)


@dataclass
class Comparison:
    """kelvin and the nginx that is fastest at one visit; requests per second."""

    file: str
    connections: int
    bound: float
    beside: str
    visit: LoadVisit = common.unkept_field()
    ours: Server = common.unkept_field()
    theirs: Server = common.unkept_field()
    measured: list = field(default_factory=list)
    cpu: list = field(default_factory=list)

    def measure(self, order):
        taken = {side: getattr(self, side) for side in order.sample(["ours", "theirs"], 2)}
        figures = {side: self.visit.measure(server) for side, server in taken.items()}
        self.measured.append(tuple(figures[side][0] for side in ("ours", "theirs")))
        self.cpu.append(tuple(figures[side][1] for side in ("ours", "theirs")))

    def interval(self):
        return common.ratio_of_pairs(*zip(*self.measured))

    def verdict(self):
        ratio, lower, _ = self.interval()
        return "holds" if lower > self.bound else "slower" if ratio < self.bound else "not settled"

    def row(self):
        ratio, lower, upper = self.interval()
        ours, theirs = (sorted(side)[len(side) // 2] for side in zip(*self.measured))
        ours_cpu, theirs_cpu = (f"{1e6 * statistics.median(side):.1f} us" for side in zip(*self.cpu))
        return [self.file, self.connections, f"{ours:.0f}", ours_cpu, self.beside, f"{theirs:.0f}", theirs_cpu,
                f"{ratio:.3f}", f"{lower:.3f}..{upper:.3f}", f"{self.bound:g}", len(self.measured), self.verdict()]  # fmt: skip


def fastest(visit, servers):
    """The one with the best median, visited in turn."""
    rates = {server: [] for server in servers}
    for _ in range(FINDING):
        [rates[server].append(visit.rate(server)) for server in servers]
    return max(rates, key=lambda server: statistics.median(rates[server]))


def comparisons(arguments, servers, own):
    found = []
    for name, connections in itertools.product(arguments.file or FILES, arguments.connections or CONNECTIONS):
        visit = LoadVisit(name, connections, arguments.seconds)
        bound = OVER_A_LINK if arguments.link else FILES[name][1]
        beside = fastest(visit, servers)
        found.append(Comparison(name, connections, bound, beside.name, visit, own, beside))
        common.log(f"{name} with {connections}: {beside.name}")
    return found


def parse():
    parser = common.make_pairs_parser(__doc__, seconds=1, max_pairs=30)
    parser.add_argument("--file", choices=FILES, action="append", help="only this one")
    parser.add_argument("--connections", type=int, choices=CONNECTIONS, action="append", help="only so many")
    parser.add_argument("--send", choices=["auto", "rw", "mmap", "sendfile", "splice"], help="how kelvin sends files [default: as it does by itself]")
    parser.add_argument("--link", metavar="RATE", help="over a link of this rate, as tc has it, such as 1gbit [default: over loopback]")
    parser.add_argument("--model", choices=["fork", "thread", "pool", "epoll", "uring"], help="how kelvin serves connections [default: as it does by itself]")
    arguments = common.parse_pairs(parser)
    # wrk counts whole seconds.
    arguments.seconds = max(round(arguments.seconds), 1)
    return arguments


def measure(arguments):
    common.require_program("wrk", "wrk")
    common.require_program("nginx", "nginx")
    if not arguments.link:
        hosts.in_own_network(CONTROL)
    order = random.Random(arguments.seed)
    wanted = {"--send": arguments.send, "--model": arguments.model}
    flags = [word for flag, value in wanted.items() if value for word in (flag, value)]
    with tempfile.TemporaryDirectory(dir="/dev/shm") as base, ExitStack() as stack:
        base, root = Path(base), Path(base) / "files"
        place = stack.enter_context(linked(arguments.link)) if arguments.link else ServerPlace()
        # Workers of nginx are another user.
        root.mkdir()
        [path.chmod(0o755) for path in (base, root)]
        for name, (size, _) in FILES.items():
            (root / name).write_bytes(os.urandom(size))
        kinds = itertools.product(["on", "off"], ["on", "off"])
        servers = [stack.enter_context(nginx(place, base, root, *kind)) for kind in kinds]
        own = stack.enter_context(kelvin(place, common.kelvin_program(arguments.kelvin), root, *flags))
        chosen = comparisons(arguments, servers, own)
        for done, todo in common.pair_rounds(arguments, chosen):
            for one in order.sample(todo, len(todo)):
                one.measure(order)
            common.log(f"{done} pairs")
    return {"link": arguments.link, "comparisons": chosen}


def tables(measured):
    chosen = [Comparison(**one) for one in measured["comparisons"]]
    header = ["file", "connections", "kelvin, requests/s", "CPU of each", "beside it", "its requests/s", "CPU of each", "ratio", "90 % interval", "bound", "pairs", "verdict"]
    text = f"Over {'a link of ' + measured['link'] if measured['link'] else 'loopback'}.\n\n{common.table(header, [one.row() for one in chosen])}"
    return text, all(one.verdict() == "holds" for one in chosen)


if __name__ == "__main__":
    common.main(parse, measure, tables)
