#!/usr/bin/env python3
"""Whether anything streams more bytes between two processes of this machine than kelvin says it can.

A pair is one kelvin run of net.bandwidth.tcp, all its cases, and one run of iperf3 at each message and number of streams, in random
order: TCP over loopback, the same message, the same congestion control (cubic), counted at the receiver. iperf3 leaves its
first second out, as kelvin does slow start; one stream has its two ends on the CPUs that kelvin uses, several are placed
by the system. Mean against mean: the ratio kelvin / iperf3 over the pairs, its Hodges-Lehmann estimate and the exact 90 %
interval of the signed-rank test, whose lower end must be above 0.97. There are more pairs of what straddles it.

All of it takes two CPUs, so that, other than elsewhere here, no side waits for one whole core: the order and the number of pairs are
what guards against neighbours.

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
from servers import Server, free_port

# Messages, in bytes: one of which the calls are most of the cost, and one of which the bytes are.
MESSAGES = [4 << 10, 64 << 10]
STREAMS = [1, 2]
BOUND = 0.97
VERSION = re.compile(r"^iperf (\S+)", re.MULTILINE)
# Cases of net.bandwidth.tcp, among which a run's time is divided.
CASES = 11


class Iperf3:
    """One iperf3, on two CPUs."""

    def __init__(self, program, cpus):
        self.program, self.cpus = program, cpus
        self.name = f"iperf3 {VERSION.search(common.run([program, '--version']))[1]}"

    def rate(self, message, streams, seconds):
        """Bytes a second that the receiver counted."""
        port = free_port()
        with Server(self.program, "-s", "-1", "-B", "127.0.0.1", "-p", port):
            pinned = ["-A", ",".join(map(str, self.cpus))] if streams == 1 else []
            output = common.run([self.program, "-c", "127.0.0.1", "-p", port, "-l", message, "-P", streams, "-t", max(round(seconds), 1),
                                 "-O", 1, "-C", "cubic", "--json", *pinned])  # fmt: skip
        return json.loads(output)["end"]["sum_received"]["bits_per_second"] / 8


@dataclass
class Comparison:
    """One message and number of streams, by kelvin and by another program; figures in bytes per second."""

    tool: Iperf3
    message: int
    streams: int
    ours: list = field(default_factory=list)
    theirs: list = field(default_factory=list)

    def case(self):
        return f"message={self.message} streams={self.streams} way=send"

    def interval(self):
        return common.ratio_of_pairs(self.ours, self.theirs)

    def verdict(self):
        ratio, lower, _ = self.interval()
        return "holds" if lower > BOUND else "slower" if ratio <= BOUND else "not settled"

    def row(self):
        ratio, lower, upper = self.interval()
        rate = lambda values: f"{statistics.median(values) / 1e9:.2f} GB/s"
        streams = f"{self.streams} stream{'s' * (self.streams > 1)}"
        return [f"{streams}, messages of {self.message >> 10} KiB", rate(self.ours), self.tool.name, rate(self.theirs), f"{ratio:.3f}",
                f"{lower:.3f}..{upper:.3f}", f"above {BOUND:g}", len(self.ours), self.verdict()]  # fmt: skip


def streamed(kelvin, cpu, seconds):
    """The mean of the windows of each case, in bytes per second."""
    report = common.measure(kelvin, ["net.bandwidth.tcp"], seconds * CASES, "--cpu", str(cpu))
    results = {key: common.summary(result) for key, result in common.results(report).items()}
    return {case: summary["distribution"]["mean"] for (metric, case), summary in results.items() if metric == "net.bandwidth.tcp"}


def compare(kelvin, tools, arguments, order):
    """The comparisons, measured as often as it takes."""
    cpu = common.last_allowed_cpu()
    chosen = [Comparison(tool, message, streams) for tool in tools for message in MESSAGES for streams in STREAMS]
    for done in range(1, arguments.most_pairs + 1):
        todo = [one for one in chosen if done <= arguments.pairs or one.verdict() == "not settled"]
        if not todo:
            break
        rates = {}

        def ours():
            rates.update(streamed(kelvin, cpu, arguments.seconds))

        def theirs(one):
            return lambda: one.theirs.append(one.tool.rate(one.message, one.streams, arguments.seconds))

        sides = [ours, *map(theirs, todo)]
        for side in order.sample(sides, len(sides)):
            side()
        for one in todo:
            one.ours.append(rates[one.case()])
        common.say(f"{done} pairs")
    return chosen


def parse():
    parser = common.parser_of_pairs(__doc__, seconds=1, most_pairs=45)
    parser.add_argument("--iperf3", action="append", metavar="PROGRAM", help="an iperf3 beside kelvin; may be given more than once [default: iperf3]")
    return common.parse_pairs(parser)


def benchmark():
    arguments = parse()
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        raise common.Missing("a stream has an end on each of two CPUs, and one is allowed")
    programs = arguments.iperf3 or [common.need("iperf3", "iperf3")]
    tools = [Iperf3(program, (cpus[-1], cpus[0])) for program in programs]
    chosen = compare(common.kelvin_program(arguments.kelvin), tools, arguments, random.Random(arguments.seed))
    header = ["quantity", "kelvin", "beside it", "its figure", "ratio", "90 % interval", "bound", "pairs", "verdict"]
    print(f"TCP between two processes, {arguments.seconds:g} s a case, CPUs {cpus[-1]} and {cpus[0]}: {common.describe_machine()}\n")
    print(common.table(header, [one.row() for one in chosen]))
    return all(one.verdict() == "holds" for one in chosen)


if __name__ == "__main__":
    common.main(benchmark)
