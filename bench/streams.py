#!/usr/bin/env python3
"""Whether iperf3 streams more bytes between two processes of this machine than the maximum that kelvin reports.

A pair is one kelvin run of net.bandwidth.tcp with all its cases, and one run of iperf3 for each comparison, in random order. Both
use TCP over loopback, the same message size and the same congestion control (cubic), and count at the receiver. iperf3 omits its
first second, as kelvin omits slow start. Sender and receiver of one stream are on one CPU or on the two that kelvin uses. The
system places those of several streams, and they are compared with the better of kelvin's placements. The ratio kelvin / iperf3 of
the means is judged over the pairs: its Hodges-Lehmann estimate and the exact 90 % interval of the signed-rank test. Its lower end
must be above 0.97. Ratios whose interval contains that bound get more pairs.

It runs in a network namespace whose connections start with cubic. iperf3 sets its congestion control only after connecting. If the
default of the system is bbr, such a connection stays paced and slow.

It uses two CPUs. So, unlike in other benchmarks, no side waits until the core is not shared. The random order and the number of
pairs guard against neighbours.

Versions of iperf3 before 3.16 send and receive all streams in one thread. --iperf3 names another program; it may be given more
than once.

Exit status: 0 all hold, 1 at least one does not, 2 it could not be done.
"""
import json
import os
import random
import re
import statistics
from dataclasses import dataclass, field

import common
import hosts
from servers import Server, free_port

METRIC = "net.bandwidth.tcp"
# Messages, in bytes: one whose cost is mostly that of the calls, and one whose cost is mostly that of the bytes.
MESSAGE_SIZES = [4 << 10, 64 << 10]
# Number of streams, their placement, and kelvin's placements that they are compared with.
SAME_CPU, TWO_CPUS = "same_cpu", "two_cpus"
STREAM_PLACEMENTS = [(1, "on one CPU", [SAME_CPU]), (1, "on two CPUs", [TWO_CPUS]), (2, "placed by the system", [SAME_CPU, TWO_CPUS])]
CONGESTION_CONTROL = "cubic"
MIN_RATIO = 0.97
VERSION_LINE = re.compile(r"^iperf (\S+)", re.MULTILINE)
# Fresh processes for each of kelvin's cases.
ROUNDS = 4


class Iperf3:
    """One iperf3 program. Its single streams run on these two CPUs, or on the first CPU."""

    def __init__(self, program, cpus):
        self.program = program
        self.cpus = {SAME_CPU: (cpus[0], cpus[0]), TWO_CPUS: cpus}
        self.name = f"iperf3 {VERSION_LINE.search(common.run([program, '--version']))[1]}"

    def rate(self, message, streams, seconds, placement=None):
        """Bytes per second that the receiver counted; without a placement the system chooses."""
        port = free_port()
        with Server(self.program, "-s", "-1", "-B", "127.0.0.1", "-p", port):
            pin_flags = ["-A", ",".join(map(str, self.cpus[placement]))] if placement else []
            output = common.run([self.program, "-c", "127.0.0.1", "-p", port, "-l", message, "-P", streams, "-t", max(round(seconds), 1),
                                 "-O", 1, "-C", CONGESTION_CONTROL, "--json", *pin_flags])  # fmt: skip
        return json.loads(output)["end"]["sum_received"]["bits_per_second"] / 8


@dataclass
class Comparison:
    """One message size and number of streams, by kelvin and by another program, in bytes per second."""

    name: str
    message: int
    streams: int
    where: str
    placements: list
    tool: Iperf3 = common.transient_field()
    # By placement.
    ours: dict = field(default_factory=dict)
    theirs: list = field(default_factory=list)

    def measure(self, seconds):
        placement = self.placements[0] if len(self.placements) == 1 else None
        self.theirs.append(self.tool.rate(self.message, self.streams, seconds, placement))

    def add_report(self, report):
        """Adds the means of kelvin's windows."""
        for placement in self.placements:
            case = f"message={self.message} placement={placement} streams={self.streams}"
            summary = common.find_summary(report, METRIC, case)
            self.ours.setdefault(placement, []).append(summary["distribution"]["mean"])

    def best_placement(self):
        """The fastest placement, and its figures."""
        return max(self.ours.items(), key=lambda item: statistics.median(item[1]))

    def interval(self):
        return common.paired_ratio(self.best_placement()[1], self.theirs)

    def verdict(self):
        ratio, lower, _ = self.interval()
        return "holds" if lower > MIN_RATIO else "slower" if ratio <= MIN_RATIO else "not settled"

    def row(self):
        ratio, lower, upper = self.interval()
        format_rate = lambda values: f"{statistics.median(values) / 1e9:.2f} GB/s"
        placement, ours = self.best_placement()
        streams = f"{self.streams} stream{'s' * (self.streams > 1)}"
        return [f"{streams}, messages of {self.message >> 10} KiB", placement, format_rate(ours), f"{self.name}, {self.where}",
                format_rate(self.theirs), f"{ratio:.3f}", f"{lower:.3f}..{upper:.3f}", f"above {MIN_RATIO:g}", len(ours), self.verdict()]  # fmt: skip


def measure_comparisons(kelvin, tools, arguments, order):
    """Measures the comparisons, with as many pairs as they need, and returns them."""
    flags = ["--cpu", str(common.last_allowed_cpu()), "--rounds", str(ROUNDS)]
    run_kelvin = lambda seconds: common.run_kelvin(kelvin, [METRIC], seconds, *flags)
    # The cases of a run share its time.
    case_count = sum(metric == METRIC for metric, _ in common.requested_results(run_kelvin(1)))
    selection = [Comparison(tool.name, message, *placement, tool) for tool in tools for message in MESSAGE_SIZES for placement in STREAM_PLACEMENTS]
    for pair_number, unsettled in common.pair_rounds(arguments, selection):
        reports = []

        def measure_kelvin():
            reports.append(run_kelvin(arguments.seconds * case_count))

        def rival_measurement(comparison):
            return lambda: comparison.measure(arguments.seconds)

        sides = [measure_kelvin, *map(rival_measurement, unsettled)]
        for side in order.sample(sides, len(sides)):
            side()
        for comparison in unsettled:
            comparison.add_report(reports[0])
        common.log(f"{pair_number} pairs")
    return selection


def parse():
    parser = common.make_pairs_parser(__doc__, seconds=1, max_pairs=45)
    parser.add_argument("--iperf3", action="append", metavar="PROGRAM", help="an iperf3 to compare with kelvin; may be given more than once [default: iperf3]")
    return common.parse_pairs(parser)


def measure(arguments):
    hosts.enter_own_network(CONGESTION_CONTROL)
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        raise common.BenchmarkError("streams between two CPUs need two allowed CPUs")
    programs = arguments.iperf3 or [common.require_program("iperf3", "iperf3")]
    tools = [Iperf3(program, (cpus[-1], cpus[0])) for program in programs]
    selection = measure_comparisons(common.kelvin_program(arguments.kelvin), tools, arguments, random.Random(arguments.seed))
    return {"seconds": arguments.seconds, "cpus": [cpus[-1], cpus[0]], "comparisons": selection}


def tables(measured):
    results = [Comparison(**entry) for entry in measured["comparisons"]]
    header = ["quantity", "kelvin's ends", "kelvin", "beside it", "its figure", "ratio", "90 % interval", "bound", "pairs", "verdict"]
    text = "{:g} s a case, CPUs {} and {}.".format(measured["seconds"], *measured["cpus"])
    return f"{text}\n\n{common.table(header, [entry.row() for entry in results])}", all(entry.verdict() == "holds" for entry in results)


if __name__ == "__main__":
    common.main(parse, measure, tables)
