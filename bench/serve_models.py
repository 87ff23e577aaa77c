#!/usr/bin/env python3
"""How the designs of `kelvin serve` differ, and by what: each model and each way of sending beside the default.

Files of 100 B and of 2 MiB in a tmpfs are fetched over loopback by wrk with 8 connections, in a network namespace whose connections
begin under cubic; the designs in turn, in random order. Beside the rate stands what a request took of the server: CPU time in user mode
and in the kernel, context switches and page faults, by /proc, of all its processes and threads; and system calls, counted in a visit of
its own by a tracepoint, where perf can.

The ratio is the design's requests per second over the default's: its Hodges-Lehmann estimate and the exact 90 % interval of the
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
from serve import CONTROL, FILES, ServerPlace, LoadVisit, kelvin

CONNECTIONS = 8
DEFAULT = "epoll"
# A pool of as many threads as connections: fewer would leave some of them waiting for ever.
DESIGNS = {
    DEFAULT: [],
    "uring": ["--model", "uring"],
    "thread": ["--model", "thread"],
    "pool": ["--model", "pool", "--threads", str(CONNECTIONS)],
    "fork": ["--model", "fork"],
    "epoll, rw": ["--send", "rw"],
    "epoll, mmap": ["--send", "mmap"],
    "epoll, sendfile": ["--send", "sendfile"],
    "epoll, splice": ["--send", "splice"],
}
TICK = 1e6 / os.sysconf("SC_CLK_TCK")
COUNTED = "raw_syscalls:sys_enter"


@dataclass
class ResourceUse:
    """What all processes of a server used until now: microseconds and counts."""

    user: float = 0
    system: float = 0
    switches: float = 0
    faults: float = 0

    def minus(self, other):
        return ResourceUse(*(now - before for now, before in zip(vars(self).values(), vars(other).values())))

    def each(self, requests):
        return ResourceUse(*(value / requests for value in vars(self).values()))


def processes(parent):
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [parent, *(process for child in children for process in processes(int(child)))]


def resource_use(server):
    """Of those that are there, with what ended children left to those that waited for them."""
    total = ResourceUse()
    for process in processes(server.process.pid):
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        # From the third field on (proc_pid_stat(5)): minflt 10, cminflt 11, utime 14, stime 15, cutime 16, cstime 17.
        minor, of_children = int(fields[7]), int(fields[8])
        user, system, children_user, children_system = (int(word) * TICK for word in fields[11:15])
        total.user, total.system = total.user + user + children_user, total.system + system + children_system
        total.faults += minor + of_children
        for task in Path(f"/proc/{process}/task").iterdir():
            lines = (line.split(":") for line in (task / "status").read_text().splitlines())
            total.switches += sum(int(value) for name, value in lines if name.endswith("voluntary_ctxt_switches"))
    return total


@dataclass
class Design:
    """One design, what it measured, and what requests took."""

    name: str
    server: object = common.unkept_field()
    rates: list = field(default_factory=list)
    used: list = field(default_factory=list)
    calls: float | None = None

    def measure(self, visit):
        """The counters are read while the connections are there: a process or thread of one of them is gone with it."""
        command = visit.command(self.server)
        wrk = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        time.sleep(0.2 * visit.seconds)
        begun, before = time.monotonic(), resource_use(self.server)
        time.sleep(0.6 * visit.seconds)
        taken, after = time.monotonic() - begun, resource_use(self.server)
        self.rates.append(visit.rate_of(wrk.communicate()[0], self.server))
        self.used.append(vars(after.minus(before).each(self.rates[-1] * taken)))

    def count_calls(self, visit):
        wrk = subprocess.Popen(visit.command(self.server), stdout=subprocess.PIPE, text=True)
        time.sleep(0.2 * visit.seconds)
        watched = ",".join(map(str, processes(self.server.process.pid)))
        span = 0.5 * visit.seconds
        perf_output = subprocess.run(
            ["perf", "stat", "-x,", "-e", COUNTED, "-p", watched, "--", "sleep", str(span)], capture_output=True, text=True
        ).stderr
        rate = visit.rate_of(wrk.communicate()[0], self.server)
        counted = [line.split(",")[0] for line in perf_output.splitlines() if COUNTED in line]
        if counted and counted[0].isdigit():
            self.calls = int(counted[0]) / (rate * span)

    def row(self, default):
        middle = lambda values: sorted(values)[len(values) // 2]
        ratio, lower, upper = (1, 1, 1) if self is default else common.ratio_of_pairs(self.rates, default.rates)
        took = [middle([used[name] for used in self.used]) for name in vars(ResourceUse())]
        calls = "-" if self.calls is None else f"{self.calls:.1f}"
        return [self.name, f"{middle(self.rates):.0f}", f"{ratio:.2f}", f"{lower:.2f}..{upper:.2f}", f"{took[0]:.1f} us",
                f"{took[1]:.1f} us", f"{took[2]:.2f}", f"{took[3]:.1f}", calls]  # fmt: skip


def parse():
    arguments = common.parse_pairs(common.make_pairs_parser(__doc__, seconds=1, max_pairs=15))
    arguments.seconds = max(round(arguments.seconds), 1)
    return arguments


def measure(arguments):
    common.require_program("wrk", "wrk")
    hosts.in_own_network(CONTROL)
    order = random.Random(arguments.seed)
    found = {}
    for name, (size, _) in FILES.items():
        with tempfile.TemporaryDirectory(dir="/dev/shm") as root, ExitStack() as stack:
            (Path(root) / name).write_bytes(os.urandom(size))
            program = common.kelvin_program(arguments.kelvin)
            start = lambda flags: stack.enter_context(kelvin(ServerPlace(), program, root, *flags))
            designs = found[name] = [Design(design, start(flags)) for design, flags in DESIGNS.items()]
            visit = LoadVisit(name, CONNECTIONS, arguments.seconds)
            for pair in range(arguments.pairs):
                [design.measure(visit) for design in order.sample(designs, len(designs))]
                common.log(f"{name}: {pair + 1}")
            if shutil.which("perf"):
                [design.count_calls(visit) for design in designs]
    return found


def tables(measured):
    header = ["design", "requests/s", "ratio", "90 % interval", "user", "kernel", "switches", "faults", "calls"]
    of_files = {name: [Design(**one) for one in designs] for name, designs in measured.items()}
    texts = [f"{name}:\n\n{common.table(header, [one.row(designs[0]) for one in designs])}" for name, designs in of_files.items()]
    return "\n\n".join(texts), True


if __name__ == "__main__":
    common.main(parse, measure, tables)
