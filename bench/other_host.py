#!/usr/bin/env python3
"""Whether kelvin's figures to another host agree with iperf3's.

Two hosts, which are network namespaces of this machine; the link between them is shaped (--rate). A pair is one run of kelvin
against `kelvin agent`, and five of iperf3 against its server on the same host, in random order: TCP with one stream, the same
back (-R), and in messages of 4 KiB, datagrams as fast as possible, datagrams offered at 10 Mbit/s; all of them counted at the
receiver, with the system's default congestion control. The ratio kelvin / iperf3 over the pairs is judged: its Hodges-Lehmann
estimate and the exact 90 % interval of the signed-rank test. Rates must not be lower by more than 3 %, an offer must arrive the
same within 3 %.

Exit status: 0 all hold, 1 one does not, 2 it could not be done.
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

WITHIN = 0.03
PACKET = 1472


@dataclass
class Quantity:
    """A figure of kelvin's, and the arguments with which iperf3 measures the same."""

    name: str
    metric: str
    case: str
    arguments: list
    # Whether more than iperf3 is as wrong as less.
    both_ways: bool
    ours: list = field(default_factory=list)
    theirs: list = field(default_factory=list)

    def interval(self):
        return common.ratio_of_pairs(self.ours, self.theirs)

    def verdict(self):
        _, lower, upper = self.interval()
        if lower >= 1 - WITHIN and (upper <= 1 + WITHIN or not self.both_ways):
            return "holds"
        too_high = self.both_ways and lower > 1 + WITHIN
        return "differs" if upper < 1 - WITHIN or too_high else "not settled"

    def row(self):
        ratio, lower, upper = self.interval()
        middle = lambda values: f"{sorted(values)[len(values) // 2] * 8 / 1e6:.2f} Mbit/s"
        bound = "within 3 %" if self.both_ways else "above 0.97"
        return [self.name, middle(self.ours), middle(self.theirs), f"{ratio:.4f}", f"{lower:.4f} to {upper:.4f}", bound, len(self.ours),
                self.verdict()]


def quantities():
    return [
        Quantity("TCP, one stream", "net.peer.bandwidth", "direction=to_agent streams=1", ["-O", 1], False),
        Quantity("TCP, one stream back", "net.peer.bandwidth", "direction=from_agent streams=1", ["-O", 1, "-R"], False),
        Quantity("TCP, messages of 4 KiB", "net.peer.bandwidth.message", "message=4096 way=send", ["-O", 1, "-l", 4096], False),
        Quantity("datagrams, as fast as possible", "net.peer.bandwidth.udp", f"message={PACKET}", ["-u", "-b", 0, "-l", PACKET], False),
        Quantity("datagrams, 10 Mbit/s offered", "net.peer.offered", "offered=10000000", ["-u", "-b", "10M", "-l", PACKET], True),
    ]


def iperf3(host, cpu, seconds, arguments):
    """Bytes a second that the receiver counted."""
    command = [common.require_program("iperf3", "iperf3"), "-c", hosts.AGENT, "--json", "-t", seconds, "-A", cpu, *arguments]
    end = json.loads(common.run(hosts.in_namespace(host, *command)))["end"]
    # Of datagrams, older versions report one sum, that of what was sent, and the share that was lost.
    received = end.get("sum_received")
    if received is None:
        return end["sum"]["bits_per_second"] / 8 * (1 - end["sum"]["lost_percent"] / 100)
    return received["bits_per_second"] / 8


def parse():
    return common.parse_pairs(hosts.make_pairs_parser(__doc__))


def measure(arguments):
    kelvin, order = common.kelvin_program(arguments.kelvin), random.Random(arguments.seed)
    cpus, chosen = sorted(os.sched_getaffinity(0)), quantities()
    with ExitStack() as stack:
        secret = stack.enter_context(hosts.token())
        names = stack.enter_context(hosts.three_hosts(arguments.rate))
        stack.enter_context(hosts.agent(kelvin, names["agent"], cpus[0], secret))
        server = hosts.in_namespace(names["agent"], "taskset", "-c", cpus[0], common.require_program("iperf3", "iperf3"), "-s")
        stack.enter_context(hosts.running(server, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        time.sleep(0.5)

        def ours():
            report = hosts.measure(kelvin, names["kelvin"], cpus[-1], secret, arguments.seconds)
            for one in chosen:
                one.ours.append(common.find_summary(report, one.metric, one.case)["headline"])

        def theirs():
            for one in chosen:
                seconds = max(round(arguments.seconds / len(chosen)), 1)
                one.theirs.append(iperf3(names["kelvin"], cpus[-1], seconds, one.arguments))

        for done, _ in common.pair_rounds(arguments, chosen):
            for side in order.sample([ours, theirs], 2):
                side()
            common.log(f"{done} pairs")
    return {"seconds": arguments.seconds, "rate": arguments.rate, "quantities": chosen}


def tables(measured):
    chosen = [Quantity(**one) for one in measured["quantities"]]
    header = ["quantity", "kelvin", "iperf3", "ratio", "90 % interval", "bound", "pairs", "verdict"]
    text = f"{measured['seconds']:g} s a side, link of {measured['rate']}."
    return f"{text}\n\n{common.table(header, [one.row() for one in chosen])}", all(one.verdict() == "holds" for one in chosen)


if __name__ == "__main__":
    common.main(parse, measure, tables)
