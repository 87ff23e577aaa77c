#!/usr/bin/env python3
"""Whether `kelvin serve` answers at least as many requests per second as nginx does.

wrk fetches files of 100 B, 4 KiB, 64 KiB and 2 MiB from a tmpfs with 1, 8 and 64 connections. By default this is over loopback, in a
network namespace whose connections start with cubic. With --link RATE it is from another namespace over a link of that rate, which needs
root. nginx is Debian's, with one worker for each CPU and no access log. It runs in four configurations: with sendfile and open_file_cache
each on and off. For each file and number of connections kelvin is compared with the best configuration, by three earlier visits to each.
A pair is one visit to each of kelvin and that nginx, in random order.

The ratio is kelvin's requests per second over those of nginx: its Hodges-Lehmann estimate and the exact 90 % interval of the signed-rank
test. The lower end must be above 1 for 100 B and 4 KiB. It must be above 0.97 for larger files, where copies in the kernel are most of
the work, and over a link. The server's CPU time per request is reported and not judged.

Exit status: 0 all hold, 1 at least one does not, 2 it could not be done.
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
from servers import free_port, tree_cpu_seconds

CONGESTION_CONTROL = "cubic"
LOOPBACK = "127.0.0.1"
CLIENT_ADDRESS, SERVER_ADDRESS = "198.18.93.1", "198.18.93.2"
# The size of each file, and the lower bound of its ratio.
FILES = {"100": (100, 1.0), "4K": (4 << 10, 1.0), "64K": (64 << 10, 0.97), "2M": (2 << 20, 0.97)}
LINK_BOUND = 0.97
CONNECTIONS = [1, 8, 64]
# Visits to each nginx that select the fastest.
SELECTION_VISITS = 3
MAX_START_SECONDS = 10

NGINX_CONFIG = """
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
    """The address of servers, and the namespaces of servers and clients, if they have separate ones."""

    address: str = LOOPBACK
    servers: str = None
    clients: str = None

    def server_command(self, *command):
        return hosts.in_namespace(self.servers, *command) if self.servers else [str(word) for word in command]

    def client_command(self, *command):
        return hosts.in_namespace(self.clients, *command) if self.clients else [str(word) for word in command]


@contextmanager
def linked_place(rate):
    """Servers and clients in separate namespaces, joined by a link of this rate."""
    names = [f"kelvin-{role}-{os.getpid()}" for role in ("clients", "servers")]
    try:
        for name in names:
            hosts.ip("netns", "add", name)
            hosts.ip("-netns", name, "link", "set", "lo", "up")
        hosts.connect_hosts(names[0], f"{CLIENT_ADDRESS}/30", names[1], f"{SERVER_ADDRESS}/30", "s")
        shaper = ["qdisc", "add", "dev", "far-s", "root", "tbf", "rate", rate, "burst", "128kb", "latency", "50ms"]
        common.run([common.require_program("tc", "iproute2"), "-netns", names[1], *shaper])
        yield ServerPlace(SERVER_ADDRESS, names[1], names[0])
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], stderr=subprocess.DEVNULL, check=False)


def wait_for_listener(place, port):
    deadline = time.monotonic() + MAX_START_SECONDS
    connect = place.client_command("bash", "-c", f": < /dev/tcp/{place.address}/{port}")
    while subprocess.run(connect, stderr=subprocess.DEVNULL, check=False).returncode != 0:
        if time.monotonic() > deadline:
            raise RuntimeError(f"nothing listens on port {port}")
        time.sleep(0.02)


class Server:
    """A server that listens. It is terminated at the end of the block."""

    def __init__(self, place, name, port, *command):
        self.place, self.name, self.port, self.command = place, name, port, place.server_command(*command)

    def __enter__(self):
        devnull = subprocess.DEVNULL
        self.process = subprocess.Popen(self.command, stdin=devnull, stdout=devnull, stderr=devnull)
        wait_for_listener(self.place, self.port)
        return self

    def cpu_seconds(self):
        """The CPU time of the server and its workers so far, in seconds."""
        return tree_cpu_seconds(self.process.pid)

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


def nginx_server(place, base, root, sendfile, cache):
    port = free_port()
    config_file = base / f"{port}.conf"
    cache_setting = "open_file_cache max=1000 inactive=60s;" if cache == "on" else ""
    cpus = len(os.sched_getaffinity(0))
    config_file.write_text(NGINX_CONFIG.format(cpus=cpus, base=base, port=port, host=place.address, root=root, sendfile=sendfile, cache=cache_setting))
    return Server(place, f"nginx, sendfile {sendfile}, open_file_cache {cache}", port, "nginx", "-c", config_file)


def kelvin_server(place, program, root, *flags):
    port = free_port()
    return Server(place, " ".join(["kelvin", *flags]), port, program, "serve", root, "--listen", f"{place.address}:{port}", *flags)


@dataclass
class LoadVisit:
    """One visit of wrk: the file, the number of connections, and the time."""

    name: str
    connections: int
    seconds: int

    def command(self, server):
        threads = min(self.connections, len(os.sched_getaffinity(0)))
        url = f"http://{server.place.address}:{server.port}/{self.name}"
        return server.place.client_command("wrk", f"-t{threads}", f"-c{self.connections}", f"-d{self.seconds}s", url)

    def parse_rate(self, output, server):
        """The requests per second in the output of wrk. Raises an error if a request failed."""
        if "Socket errors" in output or "Non-2xx" in output:
            raise RuntimeError(f"{server.name}: {output}")
        return float(re.search(r"Requests/sec:\s*([0-9.]+)", output)[1])

    def rate(self, server):
        return self.measure(server)[0]

    def measure(self, server):
        """Requests per second, and seconds of server CPU time per request."""
        cpu_before = server.cpu_seconds()
        output = common.run(self.command(server))
        requests = int(re.search(r"(\d+) requests in", output)[1])
        return self.parse_rate(output, server), (server.cpu_seconds() - cpu_before) / max(requests, 1)


@dataclass
class Comparison:
    """kelvin and the fastest nginx for one visit, in requests per second."""

    file: str
    connections: int
    bound: float
    beside: str
    visit: LoadVisit = common.transient_field()
    ours: Server = common.transient_field()
    theirs: Server = common.transient_field()
    measured: list = field(default_factory=list)
    cpu: list = field(default_factory=list)

    def measure(self, order):
        servers = {side: getattr(self, side) for side in order.sample(["ours", "theirs"], 2)}
        figures = {side: self.visit.measure(server) for side, server in servers.items()}
        self.measured.append(tuple(figures[side][0] for side in ("ours", "theirs")))
        self.cpu.append(tuple(figures[side][1] for side in ("ours", "theirs")))

    def interval(self):
        return common.paired_ratio(*zip(*self.measured))

    def verdict(self):
        ratio, lower, _ = self.interval()
        return "holds" if lower > self.bound else "slower" if ratio < self.bound else "not settled"

    def row(self):
        ratio, lower, upper = self.interval()
        ours, theirs = (sorted(side)[len(side) // 2] for side in zip(*self.measured))
        ours_cpu, theirs_cpu = (f"{1e6 * statistics.median(side):.1f} us" for side in zip(*self.cpu))
        return [self.file, self.connections, f"{ours:.0f}", ours_cpu, self.beside, f"{theirs:.0f}", theirs_cpu,
                f"{ratio:.3f}", f"{lower:.3f}..{upper:.3f}", f"{self.bound:g}", len(self.measured), self.verdict()]  # fmt: skip


def fastest_server(visit, servers):
    """The server with the highest median rate over interleaved visits."""
    rates = {server: [] for server in servers}
    for _ in range(SELECTION_VISITS):
        [rates[server].append(visit.rate(server)) for server in servers]
    return max(rates, key=lambda server: statistics.median(rates[server]))


def comparisons(arguments, servers, kelvin_instance):
    selection = []
    for name, connections in itertools.product(arguments.file or FILES, arguments.connections or CONNECTIONS):
        visit = LoadVisit(name, connections, arguments.seconds)
        bound = LINK_BOUND if arguments.link else FILES[name][1]
        best_nginx = fastest_server(visit, servers)
        selection.append(Comparison(name, connections, bound, best_nginx.name, visit, kelvin_instance, best_nginx))
        common.log(f"{name} with {connections}: {best_nginx.name}")
    return selection


def parse():
    parser = common.make_pairs_parser(__doc__, seconds=1, max_pairs=30)
    parser.add_argument("--file", choices=FILES, action="append", help="only this file")
    parser.add_argument("--connections", type=int, choices=CONNECTIONS, action="append", help="only this number of connections")
    parser.add_argument("--send", choices=["auto", "rw", "mmap", "sendfile", "splice"], help="the method by which kelvin sends files [default: that of kelvin]")
    parser.add_argument("--link", metavar="RATE", help="use a link of this rate, in the notation of tc, such as 1gbit [default: loopback]")
    parser.add_argument("--model", choices=["fork", "thread", "pool", "poll", "epoll", "uring"], help="the model by which kelvin serves connections [default: that of kelvin]")
    arguments = common.parse_pairs(parser)
    # wrk counts whole seconds.
    arguments.seconds = max(round(arguments.seconds), 1)
    return arguments


def measure(arguments):
    common.require_program("wrk", "wrk")
    common.require_program("nginx", "nginx")
    if not arguments.link:
        hosts.enter_own_network(CONGESTION_CONTROL)
    order = random.Random(arguments.seed)
    options = {"--send": arguments.send, "--model": arguments.model}
    flags = [argument for flag, value in options.items() if value for argument in (flag, value)]
    with tempfile.TemporaryDirectory(dir="/dev/shm") as base, ExitStack() as stack:
        base, root = Path(base), Path(base) / "files"
        place = stack.enter_context(linked_place(arguments.link)) if arguments.link else ServerPlace()
        # The workers of nginx run as another user.
        root.mkdir()
        [path.chmod(0o755) for path in (base, root)]
        for name, (size, _) in FILES.items():
            (root / name).write_bytes(os.urandom(size))
        settings = itertools.product(["on", "off"], ["on", "off"])
        servers = [stack.enter_context(nginx_server(place, base, root, *setting)) for setting in settings]
        kelvin_instance = stack.enter_context(kelvin_server(place, common.kelvin_program(arguments.kelvin), root, *flags))
        selection = comparisons(arguments, servers, kelvin_instance)
        for pair_number, unsettled in common.pair_rounds(arguments, selection):
            for comparison in order.sample(unsettled, len(unsettled)):
                comparison.measure(order)
            common.log(f"{pair_number} pairs")
    return {"link": arguments.link, "comparisons": selection}


def tables(measured):
    results = [Comparison(**entry) for entry in measured["comparisons"]]
    header = ["file", "connections", "kelvin, requests/s", "CPU of each", "beside it", "its requests/s", "CPU of each", "ratio", "90 % interval", "bound", "pairs", "verdict"]
    text = f"Over {'a link of ' + measured['link'] if measured['link'] else 'loopback'}.\n\n{common.table(header, [entry.row() for entry in results])}"
    return text, all(entry.verdict() == "holds" for entry in results)


if __name__ == "__main__":
    common.main(parse, measure, tables)
