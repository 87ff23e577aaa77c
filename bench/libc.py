#!/usr/bin/env python3
"""Whether two builds of kelvin measure the same: by default that with the system's C library, and the static one with musl.

For each quantity a pair is one run of each build, with the same wall time (--seconds), one right after the other in random order; the pairs
of all quantities are interleaved. The ratio static / dynamic over all pairs is judged: its Hodges-Lehmann estimate and the exact 90 %
interval of the signed-rank test. A figure that measures no C library agrees if the whole interval lies within the bound of 2 %. It gets
more pairs while the interval contains a bound. A figure that measures the C library is reported and not judged.

Kelvin's own tools are timed as whole programs, both ends of the same build: start-up, an import into a store, a report, requests from load
to serve, a transfer from send to receive. They must not be more than 5 % slower, and `kelvin --version` must take less than 5 ms.

The tools also depend on the profile of a build. To compare the C libraries alone, give --kelvin a build with the profile of releases:
cargo build --locked --profile dist --package kelvin --target x86_64-unknown-linux-gnu.

Exit status: 0 all quantities agree, 1 at least one does not, 2 it could not be done.
"""
import json
import random
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable

import common
from servers import free_port, piped_process
from transfer import time_transfer, start_process

FIGURE_BOUND = 0.02
MAX_TOOL_SLOWDOWN = 0.05
MAX_START_SECONDS = 0.005
MIB = 1 << 20
TRANSFER_BYTES = 256 * MIB
SERVED_BYTES = 4096
STARTS = 20


@dataclass
class Comparison:
    """One quantity of both builds: a figure in the unit of its metric, or the seconds of a tool."""

    name: str
    # `figure`, `library` for a figure that measures the C library, `tool`, `start` for the tool that has a bound of its own as well.
    kind: str
    metric: str = ""
    case: str = ""
    time_tool: Callable[[Path, Path], float] = common.transient_field()
    static: list = field(default_factory=list)
    dynamic: list = field(default_factory=list)

    def measure(self, programs, seconds, directory, order):
        """Measures one more pair."""
        for side in order:
            if self.time_tool:
                value = self.time_tool(programs[side], directory)
            else:
                report = common.run_kelvin(programs[side], [self.metric], seconds, "--quick")
                value = common.find_summary(report, self.metric, self.case)["headline"]
            getattr(self, side).append(value)

    def ratio(self):
        return common.paired_ratio(self.static, self.dynamic)

    def verdict(self):
        _, lower, upper = self.ratio()
        if self.kind == "figure":
            return common.agreement_verdict(lower, upper, FIGURE_BOUND)
        if self.kind == "start" and statistics.median(self.static) > MAX_START_SECONDS:
            return "slower"
        return tool_verdict(lower, upper) if self.kind in ("tool", "start") else "reported only"

    def row(self):
        ratio, lower, upper = self.ratio()
        medians = [f"{statistics.median(values):.4g}" for values in (self.static, self.dynamic)]
        slowdown = f"+{MAX_TOOL_SLOWDOWN * 100:g} %"
        bounds = {"figure": f"{FIGURE_BOUND * 100:g} %", "tool": slowdown, "start": f"{slowdown}, {MAX_START_SECONDS * 1e3:g} ms", "library": "-"}
        return [self.name, *medians, f"{ratio:.4f}", f"{lower:.4f}..{upper:.4f}", bounds[self.kind], len(self.static), self.verdict()]


def tool_verdict(lower, upper):
    """The verdict on a tool, by the interval of its time in the static build over that in the dynamic one: faster is no fault."""
    if upper <= 1 + MAX_TOOL_SLOWDOWN:
        return "agrees"
    return "slower" if lower > 1 + MAX_TOOL_SLOWDOWN else "not settled"


def time_command(*command):
    """Seconds of a command that must succeed."""
    start_time = time.perf_counter()
    common.run(command)
    return time.perf_counter() - start_time


def start_up(kelvin, _):
    """The fastest of some starts: what disturbs one only adds to it."""
    return min(time_command(kelvin, "--version") for _ in range(STARTS))


def import_run(kelvin, directory):
    store = directory / "runs.sqlite"
    store.unlink(missing_ok=True)
    return time_command(kelvin, "runs", "import", directory / "run.json", "--store", store)


def report_run(kelvin, directory):
    return time_command(kelvin, "report", directory / "run.json", "--format", "html", "-o", directory / "report.html")


def request_time(kelvin, directory):
    """The mean seconds between two requests of eight users."""
    with piped_process([kelvin, "serve", directory, "--listen", "127.0.0.1:0"]) as server:
        address = server.stdout.readline().split()[-1].rsplit("//")[-1].rstrip("/")
        report = json.loads(common.run([kelvin, "load", f"http://{address}/served", "--users", "8", "--duration", "2s", "--json"]))
        return report["seconds"] / report["requests"]


def transfer(kelvin, directory):
    port = free_port()
    receiver = lambda: start_process(kelvin, "receive", "--discard", "--once", "--listen", f"127.0.0.1:{port}")
    return time_transfer(receiver, lambda: [start_process(kelvin, "send", directory / "sent", f"127.0.0.1:{port}")], port)


def comparisons():
    figure = lambda name, metric, case="": Comparison(name, "figure", metric, case)
    library = lambda name, metric, case="": Comparison(name, "library", metric, case)
    tool = lambda name, function: Comparison(name, "tool", time_tool=function)
    return [
        figure("clock pair", "cpu.clock.pair"),
        figure("mispredicted branch", "cpu.branch.mispredict"),
        figure("null call", "os.syscall.null", "call=getppid"),
        figure("open and close", "os.syscall.open_close"),
        figure("switch over pipes", "os.switch.round_trip", "mechanism=pipe task=process"),
        figure("wake-up on another CPU", "os.switch.cross_cpu", "mechanism=pipe"),
        figure("vfork, exit, wait", "os.process.vfork"),
        figure("minor page fault", "mem.fault.minor", "kind=anonymous"),
        figure("one-byte reads", "file.byte_calls", "call=pread file_bytes=1048576"),
        library("clock_gettime", "cpu.clock.gettime", "clock=monotonic"),
        library("fork, exit, wait", "os.process.fork_exit_wait"),
        library("fork, exec, wait", "os.process.exec"),
        library("posix_spawn", "os.process.spawn"),
        library("thread create, join", "os.thread.create.join"),
        library("switch by condvar", "os.switch.round_trip", "mechanism=condvar task=thread"),
        library("memcpy", "mem.bandwidth.memcpy"),
        Comparison("start-up", "start", time_tool=start_up),
        tool("import into a store", import_run),
        tool("report as HTML", report_run),
        tool("load to serve, time of a request", request_time),
        tool("send to receive, 256 MiB", transfer),
    ]


def parse():
    parser = common.make_pairs_parser(__doc__, seconds=2, max_pairs=40)
    static = common.ROOT / "target/x86_64-unknown-linux-musl/dist/kelvin"
    parser.add_argument("--static", type=Path, default=static, help="the other build of kelvin [default: %(default)s]")
    parser.add_argument("--only", action="append", metavar="NAME", help="only this quantity; may be given more than once")
    return common.parse_pairs(parser)


def measure(arguments):
    selection = [quantity for quantity in comparisons() if not arguments.only or quantity.name in arguments.only]
    if not selection:
        raise common.BenchmarkError(f"no quantity is called {' or '.join(arguments.only)}")
    programs = {"static": common.kelvin_program(arguments.static), "dynamic": common.kelvin_program(arguments.kelvin)}
    order = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory(prefix="kelvin-bench-") as name:
        directory = Path(name)
        (directory / "served").write_bytes(bytes(SERVED_BYTES))
        (directory / "sent").write_bytes(order.randbytes(MIB) * (TRANSFER_BYTES // MIB))
        run = common.run([programs["dynamic"], "run", "os", "--quick", "--json", "--with-samples", "--no-store"])
        (directory / "run.json").write_text(run)
        for round_number, unsettled in common.pair_rounds(arguments, selection):
            for comparison in order.sample(unsettled, len(unsettled)):
                comparison.measure(programs, arguments.seconds, directory, order.sample(["static", "dynamic"], 2))
            common.log(f"{round_number} pairs of: {', '.join(quantity.name for quantity in unsettled)}")
    versions = {side: common.run([program, "--version"]) for side, program in programs.items()}
    return {"seconds": arguments.seconds, "comparisons": selection, "versions": versions}


def tables(measured):
    results = [Comparison(**comparison) for comparison in measured["comparisons"]]
    header = ["quantity", "static", "dynamic", "static / dynamic", "90 % interval", "bound", "pairs", "verdict"]
    builds = "\n".join(f"{side}: {', '.join(' '.join(line.split()) for line in text.splitlines()[1:6])}" for side, text in measured["versions"].items())
    text = f"{measured['seconds']:g} s a side; figures in the unit of their metric, tools in seconds.\n\n{builds}\n\n{common.table(header, [result.row() for result in results])}"
    return text, all(result.verdict() in ("agrees", "reported only") for result in results)


def check_arithmetic():
    """Checks the verdicts by intervals."""
    assert [tool_verdict(*interval) for interval in ((0.5, 0.6), (0.9, 1.05), (1.0, 1.06), (1.06, 1.2))] == ["agrees", "agrees", "not settled", "slower"]
    comparison = Comparison("x", "figure", static=[2.0] * 6, dynamic=[1.0] * 6)
    assert comparison.verdict() == "differs" and comparison.row()[3] == "2.0000"
    comparison.kind = "library"
    assert comparison.verdict() == "reported only"
    starts = [Comparison("x", "start", static=[seconds] * 6, dynamic=[seconds] * 6) for seconds in (0.004, 0.006)]
    assert [comparison.verdict() for comparison in starts] == ["agrees", "slower"]


if __name__ == "__main__":
    common.main(parse, measure, tables)
