#!/usr/bin/env python3
"""Whether kelvin's figures to another host agree with iperf3's.

Two hosts, which are network namespaces of this machine; the link between them is shaped (--rate). A pair is one run of kelvin
against `kelvin agent`, and seven runs of iperf3 against its server on the same host, in random order. The seven are: TCP with one
stream and with four (-P), both in the other direction (-R), TCP in messages of 4 KiB, datagrams as fast as possible, and datagrams
at an offered 10 Mbit/s. Four streams of kelvin are in a run of their own. iperf3 before 3.16 serves all streams by one thread. All
are counted at the receiver, with the default congestion control. The ratio kelvin / iperf3 over the pairs is judged:
its Hodges-Lehmann estimate and the exact 90 % interval of the signed-rank test. Rates may be lower by at most 3 %. The received rate
of offered datagrams must agree within 3 %.

Exit status: 0 all hold, 1 at least one does not, 2 it could not be done.
"""
import json
import os
import random
import subprocess
import time
from contextlib import ExitStack
from dataclasses import dataclass, field

import common
import hosts

TOLERANCE = 0.03
DATAGRAM_BYTES = 1472
STREAMS = 4
# A metric of the probe of streams alone.
STREAM_PROBE = ("net.peer.bandwidth.burst", "--rounds", "4")


@dataclass
class Quantity:
    """A figure of kelvin, and the arguments with which iperf3 measures the same."""

    name: str
    metric: str
    case: str
    arguments: list
    # Whether a higher figure than that of iperf3 is an error as well.
    both_ways: bool
    # Whether it is of the run of several streams.
    of_streams: bool = False
    ours: list = field(default_factory=list)
    theirs: list = field(default_factory=list)

    def interval(self):
        return common.paired_ratio(self.ours, self.theirs)

    def verdict(self):
        _, lower, upper = self.interval()
        if lower >= 1 - TOLERANCE and (upper <= 1 + TOLERANCE or not self.both_ways):
            return "holds"
        is_too_high = self.both_ways and lower > 1 + TOLERANCE
        return "differs" if upper < 1 - TOLERANCE or is_too_high else "not settled"

    def row(self):
        ratio, lower, upper = self.interval()
        format_median = lambda values: f"{sorted(values)[len(values) // 2] * 8 / 1e6:.2f} Mbit/s"
        bound = "within 3 %" if self.both_ways else "above 0.97"
        return [self.name, format_median(self.ours), format_median(self.theirs), f"{ratio:.4f}", f"{lower:.4f} to {upper:.4f}", bound, len(self.ours),
                self.verdict()]


def quantities():
    return [
        Quantity("TCP, one stream", "net.peer.bandwidth", "direction=to_agent streams=1", ["-O", 1], False),
        Quantity("TCP, one stream back", "net.peer.bandwidth", "direction=from_agent streams=1", ["-O", 1, "-R"], False),
        Quantity("TCP, four streams", "net.peer.bandwidth", f"direction=to_agent streams={STREAMS}", ["-O", 1, "-P", STREAMS], False, True),
        Quantity("TCP, four streams back", "net.peer.bandwidth", f"direction=from_agent streams={STREAMS}", ["-O", 1, "-P", STREAMS, "-R"], False, True),
        Quantity("TCP, messages of 4 KiB", "net.peer.bandwidth.message", "message=4096 way=send", ["-O", 1, "-l", 4096], False),
        Quantity("datagrams, as fast as possible", "net.peer.bandwidth.udp", f"message={DATAGRAM_BYTES}", ["-u", "-b", 0, "-l", DATAGRAM_BYTES], False),
        Quantity("datagrams, 10 Mbit/s offered", "net.peer.offered", "offered=10000000", ["-u", "-b", "10M", "-l", DATAGRAM_BYTES], True),
    ]


def iperf3_rate(host, cpu, seconds, arguments):
    """Bytes per second that the receiver counted."""
    command = [common.require_program("iperf3", "iperf3"), "-c", hosts.AGENT_ADDRESS, "--json", "-t", seconds, "-A", cpu, *arguments]
    end_report = json.loads(common.run(hosts.in_namespace(host, *command)))["end"]
    # For datagrams, older versions report only the sum that was sent, and the share that was lost.
    received = end_report.get("sum_received")
    if received is None:
        return end_report["sum"]["bits_per_second"] / 8 * (1 - end_report["sum"]["lost_percent"] / 100)
    return received["bits_per_second"] / 8


def parse():
    return common.parse_pairs(hosts.make_pairs_parser(__doc__))


def measure(arguments):
    kelvin, order = common.kelvin_program(arguments.kelvin), random.Random(arguments.seed)
    cpus, selection = sorted(os.sched_getaffinity(0)), quantities()
    with ExitStack() as stack:
        token_path = stack.enter_context(hosts.token_file())
        names = stack.enter_context(hosts.three_hosts(arguments.rate))
        stack.enter_context(hosts.running_agent(kelvin, names["agent"], cpus[0], token_path))
        server = hosts.in_namespace(names["agent"], "taskset", "-c", cpus[0], common.require_program("iperf3", "iperf3"), "-s")
        stack.enter_context(hosts.background_process(server, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        time.sleep(0.5)

        def measure_kelvin():
            agent = (kelvin, names["kelvin"], cpus[-1], token_path)
            reports = {False: hosts.run_against_agent(*agent, arguments.seconds), True: hosts.run_against_agent(*agent, None, STREAM_PROBE)}
            for quantity in selection:
                quantity.ours.append(common.find_summary(reports[quantity.of_streams], quantity.metric, quantity.case)["headline"])

        def measure_iperf3():
            for quantity in selection:
                seconds = max(round(arguments.seconds / len(selection)), 1)
                quantity.theirs.append(iperf3_rate(names["kelvin"], cpus[-1], seconds, quantity.arguments))

        for pair_number, _ in common.pair_rounds(arguments, selection):
            for side in order.sample([measure_kelvin, measure_iperf3], 2):
                side()
            common.log(f"{pair_number} pairs")
    return {"seconds": arguments.seconds, "rate": arguments.rate, "quantities": selection}


def tables(measured):
    results = [Quantity(**entry) for entry in measured["quantities"]]
    header = ["quantity", "kelvin", "iperf3", "ratio", "90 % interval", "bound", "pairs", "verdict"]
    text = f"{measured['seconds']:g} s a side, link of {measured['rate']}."
    return f"{text}\n\n{common.table(header, [entry.row() for entry in results])}", all(entry.verdict() == "holds" for entry in results)


if __name__ == "__main__":
    common.main(parse, measure, tables)
