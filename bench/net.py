#!/usr/bin/env python3
"""Whether kelvin's figures of the local network agree with those of other tools.

A pair is one kelvin run of a probe and one run of the other program on the same CPUs, one right after the other in random
order; the pairs of all quantities are interleaved. The ratio kelvin / other over the pairs is judged: its Hodges-Lehmann
estimate and the exact 90 % interval of the signed-rank test. Quantities that straddle their bound get more pairs.

- Round trips of 64 bytes over TCP, UDP and Unix sockets, on one CPU and between two, beside a plain C ping-pong with the same
  system calls (bench/rivals/pingpong.c): median of single round trips against median, the whole interval within 3 % on one CPU
  and 5 % between two. Over Unix sockets on one CPU round trips are bimodal, with one switch each way or two, equally often to
  within some hundredths: the median falls into the gap between the modes or to either side of it, and one trip in fifty
  decides. There the means are judged, of all trips as found on both sides, and the medians of all, of the faster and of the
  slower half are reported. Between two CPUs the judged figures are measured with both kept from idling: the time to wake an
  idle CPU changes within seconds, by a factor of two where a hypervisor does it, and belongs to neither program. Figures on
  idle CPUs are reported. sockperf, where it is installed, stands beside it and is not judged: it prints half a round trip, and
  its own loop has a clock call for each message.
- Connect, request, response, close beside a plain C loop (bench/rivals/connect_loop.c), median against median, the lower bound
  of kelvin's rate over the other above 0.97.

As elsewhere a side counts only if the core was not shared right before and right after it, and is measured again otherwise.

Exit status: 0 all hold, 1 one does not, 2 it could not be done.
"""
import contextlib
import json
import os
import random
import re
import shutil
import statistics
import subprocess
from dataclasses import dataclass, field
from typing import Callable

import common
from rivals import Rivals, quiet_summary
from servers import Server, free_port

MESSAGE = 64
# Processes among which the time of a C ping-pong is divided: each as long as a round of kelvin's.
PROCESSES = 24
# Lower bound of a rate beside the fastest other one.
BOUND = 0.97
SOCKPERF_FIGURE = re.compile(r"Summary: Latency is ([0-9.]+) usec")


@dataclass
class Comparison:
    """One quantity, measured by kelvin and by another program."""

    name: str
    probe: str
    metric: str
    case: str
    rival: str
    # Which figure of kelvin's.
    kelvin_figure: Callable = common.unkept_field()
    theirs: Callable = common.unkept_field()
    # Allowed relative difference; None with a rate, whose lower bound counts, or with what is only reported.
    within: float | None = None
    judged: bool = True
    # The background while either side is measured: nothing, or CPUs kept from idling.
    background: Callable = common.unkept_field()
    # Further arguments of kelvin.
    flags: tuple = ()
    ours: list = field(default_factory=list)
    others: list = field(default_factory=list)

    def measure(self, kelvin, rivals, seconds, order):
        for side in order:
            if side == "kelvin":
                run = lambda: common.measure(kelvin, [self.probe], seconds, "--cpu", str(rivals.cpu), "--quick", *self.flags)
                self.ours.append(self.kelvin_figure(common.find_summary(rivals.measure_in_quiet(lambda: self.run_with_background(run)), self.metric, self.case)))
            else:
                self.others.append(rivals.measure_in_quiet(lambda: self.run_with_background(self.theirs)))

    def run_with_background(self, measure):
        with self.background() if self.background else contextlib.nullcontext():
            return measure()

    def interval(self):
        return common.ratio_of_pairs(self.ours, self.others)

    def verdict(self):
        ratio, lower, upper = self.interval()
        if not self.judged:
            return "reported only"
        if self.within is None:
            return "holds" if lower > BOUND else "slower" if ratio <= BOUND else "not settled"
        return common.agreement(lower, upper, self.within)

    def row(self):
        ratio, lower, upper = self.interval()
        of_unit = (lambda value: f"{value:.0f} /s") if self.metric == "net.crr" else common.time_text
        show = lambda values: of_unit(statistics.median(values))
        bound = "-" if not self.judged else f"above {BOUND:g}" if self.within is None else f"{self.within * 100:g} %"
        return [self.name, show(self.ours), self.rival, show(self.others), f"{ratio:.4f}", f"{lower:.4f}..{upper:.4f}",
                bound, len(self.ours), self.verdict()]


def median_figure(summary):
    return summary["as_found"]["value"]


def mean_figure(summary):
    return summary["distribution"]["mean"]


def lower_quartile(summary):
    return summary["distribution"]["p25"]


def upper_quartile(summary):
    return summary["distribution"]["p75"]


class NetworkRivals:
    """The programs beside kelvin, on the two CPUs that kelvin chooses."""

    def __init__(self, rivals, other_cpu, seconds, processes=PROCESSES):
        self.rivals, self.other_cpu, self.seconds, self.processes = rivals, other_cpu, seconds, processes

    def partner_cpu(self, placement):
        return self.rivals.cpu if placement == "same_cpu" else self.other_cpu

    def round_trip(self, protocol, placement, message=MESSAGE, part="", what="median"):
        """The median, or the mean, of several processes that share the time, as kelvin's rounds do: how deep a waiting CPU
        sleeps, and what a hypervisor does meanwhile, depends on its history."""
        each = self.seconds / self.processes
        one = lambda: self.rivals.c_loop("pingpong", f"net.rtt{part}", each, protocol, message, self.partner_cpu(placement), what=what)
        of_all = statistics.median if what == "median" else statistics.fmean
        return of_all([one() for _ in range(self.processes)])

    @contextlib.contextmanager
    def awake(self):
        """CPUs that never go idle, by a loop of the lowest priority on each (bench/rivals/awake.c)."""
        program = self.rivals.program("awake")
        loops = [subprocess.Popen([program, str(cpu)]) for cpu in (self.rivals.cpu, self.other_cpu)]
        try:
            yield
        finally:
            for loop in loops:
                loop.kill()
                loop.wait()

    def transactions(self, placement):
        return 1e9 / self.rivals.c_loop("connect_loop", "net.crr", self.seconds, self.partner_cpu(placement))

    def sockperf(self, protocol, placement):
        """A whole round trip, of which sockperf prints half."""
        port, taskset = free_port(), common.require_program("taskset", "util-linux")
        address = ["-i", "127.0.0.1", "-p", port, *(["--tcp"] if protocol == "tcp" else [])]
        with Server(taskset, "-c", self.partner_cpu(placement), "sockperf", "server", *address):
            seconds = max(round(self.seconds), 1)
            output = common.run([taskset, "-c", self.rivals.cpu, "sockperf", "ping-pong", *address, "-t", seconds, "-m", MESSAGE])
        return 2e3 * float(SOCKPERF_FIGURE.search(output)[1])


def comparisons(others, two_cpus):
    chosen = []
    placements = [("same_cpu", "one CPU", 0.03)] + ([("two_cpus", "two CPUs", 0.05)] if two_cpus else [])
    for protocol in ["tcp", "udp", "unix"]:
        for placement, where, within in placements:
            metric, case = f"net.rtt.{protocol}", f"message={MESSAGE} placement={placement}"
            theirs = lambda part="", protocol=protocol, placement=placement: others.round_trip(protocol, placement, part=part)
            has_idle_cpu = placement == "two_cpus"
            has_two_kinds = protocol == "unix" and not has_idle_cpu
            chosen.append(Comparison(f"RTT {protocol}, {where}", metric, metric, case, "C loop pingpong", median_figure, theirs, within,
                                     judged=not has_idle_cpu and not has_two_kinds))
            if has_idle_cpu:
                chosen.append(Comparison(f"RTT {protocol}, {where} awake", metric, metric, case, "C loop pingpong", median_figure, theirs,
                                         within, background=others.awake))
            if has_two_kinds:
                mean = lambda: others.round_trip("unix", "same_cpu", what="mean")
                chosen.append(Comparison(f"RTT {protocol}, {where}, mean", metric, metric, case, "C loop pingpong", mean_figure, mean, within,
                                         flags=("--no-canaries",)))
                for half, kelvin_figure in [("fast", lower_quartile), ("slow", upper_quartile)]:
                    of_half = lambda theirs=theirs, half=half: theirs(f".{half}_half")
                    chosen.append(Comparison(f"RTT {protocol}, {where}, {half} half", metric, metric, case, "C loop pingpong", kelvin_figure,
                                             of_half, judged=False))
            if protocol != "unix" and shutil.which("sockperf"):
                theirs = lambda protocol=protocol, placement=placement: others.sockperf(protocol, placement)
                chosen.append(Comparison(f"RTT {protocol}, {where}", metric, metric, case, "sockperf, doubled", median_figure, theirs, judged=False))
    chosen.append(Comparison("transactions, one CPU", "net.crr", "net.crr", "placement=same_cpu", "C loop connect_loop",
                             median_figure, lambda: others.transactions("same_cpu")))
    if not shutil.which("sockperf"):
        common.log("sockperf is not here and is left out; on Debian: apt-get install sockperf")
    return chosen


def parse():
    parser = common.make_pairs_parser(__doc__, seconds=1, max_pairs=45)
    parser.add_argument("--only", action="append", metavar="QUANTITY", help="only this metric, or this quantity by its name in the table; may be given more than once")
    return common.parse_pairs(parser)


def measure(arguments):
    kelvin, order = common.kelvin_program(arguments.kelvin), random.Random(arguments.seed)
    cpus = sorted(os.sched_getaffinity(0))
    rivals = Rivals(common.last_allowed_cpu())
    if len(cpus) < 2:
        common.log("one CPU: what needs two is left out")
    # The partner's CPU, from kelvin's note.
    probe = common.measure(kelvin, ["net.rtt.unix"], 2, "--cpu", str(rivals.cpu), "--quick")
    echo_cpus = re.findall(r"echo process on CPU (\d+)", json.dumps(probe))
    other = next((int(cpu) for cpu in echo_cpus if int(cpu) != rivals.cpu), rivals.cpu)
    chosen = comparisons(NetworkRivals(rivals, other, arguments.seconds), len(cpus) > 1)
    chosen = [one for one in chosen if not arguments.only or {one.metric, one.name} & set(arguments.only)]
    if not chosen:
        raise common.Missing(f"no quantity is called {' or '.join(arguments.only)}")
    for done, todo in common.pair_rounds(arguments, chosen):
        order.shuffle(todo)
        for one in todo:
            one.measure(kelvin, rivals, arguments.seconds, order.sample(["kelvin", "rival"], 2))
        common.log(f"{done} pairs of: {', '.join(f'{one.name} ({one.rival})' for one in todo)}")
    return {"seconds": arguments.seconds, "cpus": [rivals.cpu, other], "comparisons": chosen, "quiet": rivals.quiet()}


def tables(measured):
    chosen = [Comparison(**one) for one in measured["comparisons"]]
    header = ["quantity", "kelvin", "beside it", "its figure", "ratio", "90 % interval", "bound", "pairs", "verdict"]
    table = common.table(header, [one.row() for one in chosen])
    text = "{:g} s a side, CPUs {} and {}.".format(measured["seconds"], *measured["cpus"])
    kept = all(one.verdict() in ("agrees", "holds", "reported only") for one in chosen)
    return f"{text}\n\n{table}\n\n{quiet_summary(measured['quiet'])}", kept


if __name__ == "__main__":
    common.main(parse, measure, tables)
