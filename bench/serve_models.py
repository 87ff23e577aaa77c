#!/usr/bin/env python3
"""How the designs of `kelvin serve` differ: each model and each method of sending compared with the default.

wrk fetches the files of bench/serve.py from a tmpfs over loopback with 8 connections, in a network namespace whose connections start
with cubic. The designs are interleaved in random order. The resources of a request on the server are reported with the rate: CPU time in
user mode and in the kernel, context switches and page faults, from /proc, for all its processes and threads. A separate visit counts
system calls by a tracepoint, if perf can.

The ratio is the design's requests per second over those of the default: its Hodges-Lehmann estimate and the exact 90 % interval of the
signed-rank test.

Exit status: 0 it was measured, 2 it could not be done.
"""
import os
import random
import shutil
import subprocess
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import common
import hosts
from serve import CONGESTION_CONTROL, FILES, ServerPlace, LoadVisit, kelvin_server

CONNECTIONS = 8
DEFAULT_DESIGN = "epoll"
# The pool has one thread for each connection: with fewer some connections would wait forever.
DESIGNS = {
    DEFAULT_DESIGN: [],
    "uring": ["--model", "uring"],
    "poll": ["--model", "poll"],
    "thread": ["--model", "thread"],
    "pool": ["--model", "pool", "--threads", str(CONNECTIONS)],
    "fork": ["--model", "fork"],
    "epoll, rw": ["--send", "rw"],
    "epoll, mmap": ["--send", "mmap"],
    "epoll, sendfile": ["--send", "sendfile"],
    "epoll, splice": ["--send", "splice"],
}
TICK_MICROSECONDS = 1e6 / os.sysconf("SC_CLK_TCK")
SYSCALL_EVENT = "raw_syscalls:sys_enter"


@dataclass
class ResourceUse:
    """The resources that all processes of a server have used: microseconds and counts."""

    user: float = 0
    system: float = 0
    switches: float = 0
    faults: float = 0

    def minus(self, other):
        return ResourceUse(*(later - earlier for later, earlier in zip(vars(self).values(), vars(other).values())))

    def per_request(self, requests):
        return ResourceUse(*(value / requests for value in vars(self).values()))


def process_tree(parent):
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [parent, *(descendant for child in children for descendant in process_tree(int(child)))]


def resource_use(server):
    """The use of the current processes of a server, including that of the ended children that they waited for."""
    total = ResourceUse()
    for process in process_tree(server.process.pid):
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        # From the third field on (proc_pid_stat(5)): minflt 10, cminflt 11, utime 14, stime 15, cutime 16, cstime 17.
        minor, child_minor = int(fields[7]), int(fields[8])
        user, system, children_user, children_system = (int(word) * TICK_MICROSECONDS for word in fields[11:15])
        total.user, total.system = total.user + user + children_user, total.system + system + children_system
        total.faults += minor + child_minor
        for task in Path(f"/proc/{process}/task").iterdir():
            lines = (line.split(":") for line in (task / "status").read_text().splitlines())
            total.switches += sum(int(value) for name, value in lines if name.endswith("voluntary_ctxt_switches"))
    return total


@dataclass
class Design:
    """One design, its measured rates, and the resources of a request."""

    name: str
    server: object = common.transient_field()
    rates: list = field(default_factory=list)
    used: list = field(default_factory=list)
    calls: float | None = None

    def measure(self, visit):
        """Reads the counters while the connections exist: the process or thread of a connection ends with it."""
        command = visit.command(self.server)
        wrk = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        time.sleep(0.2 * visit.seconds)
        start_time, use_before = time.monotonic(), resource_use(self.server)
        time.sleep(0.6 * visit.seconds)
        seconds, use_after = time.monotonic() - start_time, resource_use(self.server)
        self.rates.append(visit.parse_rate(wrk.communicate()[0], self.server))
        self.used.append(vars(use_after.minus(use_before).per_request(self.rates[-1] * seconds)))

    def count_calls(self, visit):
        wrk = subprocess.Popen(visit.command(self.server), stdout=subprocess.PIPE, text=True)
        time.sleep(0.2 * visit.seconds)
        process_ids = ",".join(map(str, process_tree(self.server.process.pid)))
        seconds = 0.5 * visit.seconds
        perf_output = subprocess.run(
            ["perf", "stat", "-x,", "-e", SYSCALL_EVENT, "-p", process_ids, "--", "sleep", str(seconds)], capture_output=True, text=True
        ).stderr
        rate = visit.parse_rate(wrk.communicate()[0], self.server)
        counts = [line.split(",")[0] for line in perf_output.splitlines() if SYSCALL_EVENT in line]
        if counts and counts[0].isdigit():
            self.calls = int(counts[0]) / (rate * seconds)

    def row(self, default):
        median = lambda values: sorted(values)[len(values) // 2]
        ratio, lower, upper = (1, 1, 1) if self is default else common.paired_ratio(self.rates, default.rates)
        medians = [median([used[name] for used in self.used]) for name in vars(ResourceUse())]
        calls = "-" if self.calls is None else f"{self.calls:.1f}"
        return [self.name, f"{median(self.rates):.0f}", f"{ratio:.2f}", f"{lower:.2f}..{upper:.2f}", f"{medians[0]:.1f} us",
                f"{medians[1]:.1f} us", f"{medians[2]:.2f}", f"{medians[3]:.1f}", calls]  # fmt: skip


def parse():
    arguments = common.parse_pairs(common.make_pairs_parser(__doc__, seconds=1, max_pairs=15))
    arguments.seconds = max(round(arguments.seconds), 1)
    return arguments


def measure(arguments):
    common.require_program("wrk", "wrk")
    hosts.enter_own_network(CONGESTION_CONTROL)
    order = random.Random(arguments.seed)
    designs_by_file = {}
    for name, (size, _) in FILES.items():
        with tempfile.TemporaryDirectory(dir="/dev/shm") as root, ExitStack() as stack:
            (Path(root) / name).write_bytes(os.urandom(size))
            program = common.kelvin_program(arguments.kelvin)
            start_server = lambda flags: stack.enter_context(kelvin_server(ServerPlace(), program, root, *flags))
            designs = designs_by_file[name] = [Design(design, start_server(flags)) for design, flags in DESIGNS.items()]
            visit = LoadVisit(name, CONNECTIONS, arguments.seconds)
            for index in range(arguments.pairs):
                [design.measure(visit) for design in order.sample(designs, len(designs))]
                common.log(f"{name}: {index + 1}")
            if shutil.which("perf"):
                [design.count_calls(visit) for design in designs]
    return designs_by_file


def tables(measured):
    header = ["design", "requests/s", "ratio", "90 % interval", "user", "kernel", "switches", "faults", "calls"]
    designs_by_file = {name: [Design(**entry) for entry in designs] for name, designs in measured.items()}
    texts = [f"{name}:\n\n{common.table(header, [entry.row(designs[0]) for entry in designs])}" for name, designs in designs_by_file.items()]
    return "\n\n".join(texts), True


if __name__ == "__main__":
    common.main(parse, measure, tables)
