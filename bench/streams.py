#!/usr/bin/env python3
"""Whether anything streams more bytes between two processes of this machine than kelvin reports as possible.

A pair is one kelvin run of net.bandwidth.tcp, all its cases, and one run of iperf3 for each comparison, in random order: TCP
over loopback, the same message, the same congestion control (cubic), counted at the receiver. iperf3 leaves its first second
out, as kelvin does slow start. Sender and receiver of one stream are on one CPU or on the two that kelvin uses; those of
several are placed by the system, and compared with the better of kelvin's placements. Mean against mean: the ratio kelvin /
iperf3 over the pairs, its Hodges-Lehmann estimate and the exact 90 % interval of the signed-rank test, whose lower end must be
above 0.97. Ratios that straddle it get more pairs.

It runs in a network namespace whose connections begin under cubic: iperf3 sets it only after connecting, and a connection that
began under bbr, where that is the system's, stays paced and slow.

It takes two CPUs, so that, unlike elsewhere here, no side waits for an unshared core: the order and the number of pairs guard
against neighbours.

Versions of iperf3 before 3.16 send and receive all streams by one thread; with --iperf3 another one can be named, more than
once.

Exit status: 0 all hold, 1 one does not, 2 it could not be done.
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
# Messages, in bytes: one of which the calls are most of the cost, and one of which the bytes are.
MESSAGES = [4 << 10, 64 << 10]
# Streams, their placement, and the placements of kelvin's that they are compared with.
SAME, TWO = "same_cpu", "two_cpus"
STREAM_PLACEMENTS = [(1, "on one CPU", [SAME]), (1, "on two CPUs", [TWO]), (2, "placed by the system", [SAME, TWO])]
CONTROL = "cubic"
BOUND = 0.97
VERSION = re.compile(r"^iperf (\S+)", re.MULTILINE)
# Fresh processes for each of kelvin's cases.
ROUNDS = 4


class Iperf3:
    """One iperf3, whose single streams are on these two CPUs or on the first."""

    def __init__(self, program, cpus):
        self.program = program
        self.cpus = {SAME: (cpus[0], cpus[0]), TWO: cpus}
        self.name = f"iperf3 {VERSION.search(common.run([program, '--version']))[1]}"

    def rate(self, message, streams, seconds, placement=None):
        """Bytes per second that the receiver counted; without a placement the system chooses."""
        port = free_port()
        with Server(self.program, "-s", "-1", "-B", "127.0.0.1", "-p", port):
            pinned = ["-A", ",".join(map(str, self.cpus[placement]))] if placement else []
            output = common.run([self.program, "-c", "127.0.0.1", "-p", port, "-l", message, "-P", streams, "-t", max(round(seconds), 1),
                                 "-O", 1, "-C", CONTROL, "--json", *pinned])  # fmt: skip
        return json.loads(output)["end"]["sum_received"]["bits_per_second"] / 8


@dataclass
class Comparison:
    """One message and number of streams, by kelvin and by another program; figures in bytes per second."""

    name: str
    message: int
    streams: int
    where: str
    placements: list
    tool: Iperf3 = common.unkept_field()
    # By placement.
    ours: dict = field(default_factory=dict)
    theirs: list = field(default_factory=list)

    def measure(self, seconds):
        placement = self.placements[0] if len(self.placements) == 1 else None
        self.theirs.append(self.tool.rate(self.message, self.streams, seconds, placement))

    def add_report(self, report):
        """The means of kelvin's windows."""
        for placement in self.placements:
            case = f"message={self.message} placement={placement} streams={self.streams}"
            summary = common.find_summary(report, METRIC, case)
            self.ours.setdefault(placement, []).append(summary["distribution"]["mean"])

    def best_placement(self):
        """The fastest placement, and its figures."""
        return max(self.ours.items(), key=lambda item: statistics.median(item[1]))

    def interval(self):
        return common.ratio_of_pairs(self.best_placement()[1], self.theirs)

    def verdict(self):
        ratio, lower, _ = self.interval()
        return "holds" if lower > BOUND else "slower" if ratio <= BOUND else "not settled"

    def row(self):
        ratio, lower, upper = self.interval()
        rate = lambda values: f"{statistics.median(values) / 1e9:.2f} GB/s"
        placement, ours = self.best_placement()
        streams = f"{self.streams} stream{'s' * (self.streams > 1)}"
        return [f"{streams}, messages of {self.message >> 10} KiB", placement, rate(ours), f"{self.name}, {self.where}",
                rate(self.theirs), f"{ratio:.3f}", f"{lower:.3f}..{upper:.3f}", f"above {BOUND:g}", len(ours), self.verdict()]  # fmt: skip


def compare(kelvin, tools, arguments, order):
    """The comparisons, with as many pairs as they need."""
    flags = ["--cpu", str(common.last_allowed_cpu()), "--rounds", str(ROUNDS)]
    measured = lambda seconds: common.measure(kelvin, [METRIC], seconds, *flags)
    # A run's time is divided among its cases.
    cases = sum(metric == METRIC for metric, _ in common.results(measured(1)))
    chosen = [Comparison(tool.name, message, *placed, tool) for tool in tools for message in MESSAGES for placed in STREAM_PLACEMENTS]
    for done, todo in common.pair_rounds(arguments, chosen):
        reports = []

        def ours():
            reports.append(measured(arguments.seconds * cases))

        def theirs(one):
            return lambda: one.measure(arguments.seconds)

        sides = [ours, *map(theirs, todo)]
        for side in order.sample(sides, len(sides)):
            side()
        for one in todo:
            one.add_report(reports[0])
        common.log(f"{done} pairs")
    return chosen


def parse():
    parser = common.make_pairs_parser(__doc__, seconds=1, max_pairs=45)
    parser.add_argument("--iperf3", action="append", metavar="PROGRAM", help="an iperf3 beside kelvin; may be given more than once [default: iperf3]")
    return common.parse_pairs(parser)


def measure(arguments):
    hosts.in_own_network(CONTROL)
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        raise common.Missing("streams between two CPUs need two allowed CPUs")
    programs = arguments.iperf3 or [common.require_program("iperf3", "iperf3")]
    tools = [Iperf3(program, (cpus[-1], cpus[0])) for program in programs]
    chosen = compare(common.kelvin_program(arguments.kelvin), tools, arguments, random.Random(arguments.seed))
    return {"seconds": arguments.seconds, "cpus": [cpus[-1], cpus[0]], "comparisons": chosen}


def tables(measured):
    chosen = [Comparison(**one) for one in measured["comparisons"]]
    header = ["quantity", "kelvin's ends", "kelvin", "beside it", "its figure", "ratio", "90 % interval", "bound", "pairs", "verdict"]
    text = "{:g} s a case, CPUs {} and {}.".format(measured["seconds"], *measured["cpus"])
    return f"{text}\n\n{common.table(header, [one.row() for one in chosen])}", all(one.verdict() == "holds" for one in chosen)


if __name__ == "__main__":
    common.main(parse, measure, tables)
