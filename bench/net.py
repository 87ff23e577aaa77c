#!/usr/bin/env python3
"""Whether kelvin's figures of the local network agree with those of other tools.

A pair is one kelvin run of a probe and one run of the other program on the same CPUs, in random order. The pairs of all quantities
are interleaved. The ratio kelvin / other over the pairs is judged: its Hodges-Lehmann estimate and the exact 90 % interval of the
signed-rank test. Quantities whose interval contains a bound get more pairs.

- Round trips of 64 bytes over TCP, UDP and Unix sockets, on one CPU and between two, are compared with a plain C ping-pong with
  the same system calls (bench/rivals/pingpong.c). The medians of single round trips are compared: the whole interval must lie
  within 3 % on one CPU, and within 5 % between two.
  Over Unix sockets on one CPU round trips are bimodal: they have one switch each way or two, about equally often. The median then
  lies between the modes or on either side, and depends on one trip in fifty. There the means of all trips as found are judged. The
  medians of all trips, of the faster half and of the slower half are reported.
  Between two CPUs the judged figures are measured with both CPUs kept awake. The time to wake an idle CPU changes within seconds,
  by a factor of two under a hypervisor, and depends on neither program. Figures on idle CPUs are reported.
  sockperf is reported if it is installed, and is not judged: it prints half a round trip, and its loop reads the clock for each
  message.
- Connect, request, response and close are compared with a plain C loop (bench/rivals/connect_loop.c), by medians. The lower end of
  the interval of the rates must be above 0.97.

As in the other benchmarks a side counts only if the core was not shared right before and right after it. Otherwise it is measured
again.

Exit status: 0 all hold, 1 at least one does not, 2 it could not be done.
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
from rivals import Rivals, format_quiet_counts
from servers import Server, free_port

MESSAGE_BYTES = 64
# Processes that share the time of a C ping-pong: each takes as long as a round of kelvin.
PINGPONG_PROCESSES = 24
# Lower bound of the ratio of rates.
MIN_RATE_RATIO = 0.97
SOCKPERF_FIGURE = re.compile(r"Summary: Latency is ([0-9.]+) usec")


@dataclass
class Comparison:
    """One quantity, measured by kelvin and by another program."""

    name: str
    probe: str
    metric: str
    case: str
    rival: str
    # A function that returns the compared figure of a summary.
    kelvin_figure: Callable = common.transient_field()
    theirs: Callable = common.transient_field()
    # Allowed relative difference; None for a rate, which has a lower bound only, and for reported figures.
    within: float | None = None
    judged: bool = True
    # A context manager around each side, for example one that keeps CPUs awake; None for nothing.
    background: Callable = common.transient_field()
    # Further arguments of kelvin.
    flags: tuple = ()
    ours: list = field(default_factory=list)
    others: list = field(default_factory=list)

    def measure(self, kelvin, rivals, seconds, order):
        for side in order:
            if side == "kelvin":
                run = lambda: common.run_kelvin(kelvin, [self.probe], seconds, "--cpu", str(rivals.cpu), "--quick", *self.flags)
                self.ours.append(self.kelvin_figure(common.find_summary(rivals.measure_in_quiet(lambda: self.run_with_background(run)), self.metric, self.case)))
            else:
                self.others.append(rivals.measure_in_quiet(lambda: self.run_with_background(self.theirs)))

    def run_with_background(self, measure):
        with self.background() if self.background else contextlib.nullcontext():
            return measure()

    def interval(self):
        return common.paired_ratio(self.ours, self.others)

    def verdict(self):
        ratio, lower, upper = self.interval()
        if not self.judged:
            return "reported only"
        if self.within is None:
            return "holds" if lower > MIN_RATE_RATIO else "slower" if ratio <= MIN_RATE_RATIO else "not settled"
        return common.agreement_verdict(lower, upper, self.within)

    def row(self):
        ratio, lower, upper = self.interval()
        format_value = (lambda value: f"{value:.0f} /s") if self.metric == "net.crr" else common.format_time
        format_median = lambda values: format_value(statistics.median(values))
        bound = "-" if not self.judged else f"above {MIN_RATE_RATIO:g}" if self.within is None else f"{self.within * 100:g} %"
        return [self.name, format_median(self.ours), self.rival, format_median(self.others), f"{ratio:.4f}", f"{lower:.4f}..{upper:.4f}",
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
    """The programs that kelvin is compared with, on the two CPUs that kelvin chooses."""

    def __init__(self, rivals, other_cpu, seconds, processes=PINGPONG_PROCESSES):
        self.rivals, self.other_cpu, self.seconds, self.processes = rivals, other_cpu, seconds, processes

    def partner_cpu(self, placement):
        return self.rivals.cpu if placement == "same_cpu" else self.other_cpu

    def c_round_trip(self, protocol, placement, message=MESSAGE_BYTES, figure_suffix="", statistic="median"):
        """The median or mean over several processes that share the time, as kelvin's rounds do.

        The sleep state of a waiting CPU, and the actions of a hypervisor, depend on its history.
        """
        process_seconds = self.seconds / self.processes
        measure_once = lambda: self.rivals.run_c_loop("pingpong", f"net.rtt{figure_suffix}", process_seconds, protocol, message, self.partner_cpu(placement), statistic=statistic)
        aggregate = statistics.median if statistic == "median" else statistics.fmean
        return aggregate([measure_once() for _ in range(self.processes)])

    @contextlib.contextmanager
    def keep_cpus_awake(self):
        """Keeps the CPUs from idling by a loop of the lowest priority on each (bench/rivals/awake.c)."""
        program = self.rivals.program("awake")
        loops = [subprocess.Popen([program, str(cpu)]) for cpu in (self.rivals.cpu, self.other_cpu)]
        try:
            yield
        finally:
            for loop in loops:
                loop.kill()
                loop.wait()

    def transaction_rate(self, placement):
        return 1e9 / self.rivals.run_c_loop("connect_loop", "net.crr", self.seconds, self.partner_cpu(placement))

    def sockperf_round_trip(self, protocol, placement):
        """A whole round trip, of which sockperf prints half."""
        port, taskset = free_port(), common.require_program("taskset", "util-linux")
        address = ["-i", "127.0.0.1", "-p", port, *(["--tcp"] if protocol == "tcp" else [])]
        with Server(taskset, "-c", self.partner_cpu(placement), "sockperf", "server", *address):
            seconds = max(round(self.seconds), 1)
            output = common.run([taskset, "-c", self.rivals.cpu, "sockperf", "ping-pong", *address, "-t", seconds, "-m", MESSAGE_BYTES])
        return 2e3 * float(SOCKPERF_FIGURE.search(output)[1])


def comparisons(others, two_cpus):
    selection = []
    placements = [("same_cpu", "one CPU", 0.03)] + ([("two_cpus", "two CPUs", 0.05)] if two_cpus else [])
    for protocol in ["tcp", "udp", "unix"]:
        for placement, place_text, tolerance in placements:
            metric, case = f"net.rtt.{protocol}", f"message={MESSAGE_BYTES} placement={placement}"
            measure_rival = lambda figure_suffix="", protocol=protocol, placement=placement: others.c_round_trip(protocol, placement, figure_suffix=figure_suffix)
            has_idle_cpu = placement == "two_cpus"
            has_two_kinds = protocol == "unix" and not has_idle_cpu
            selection.append(Comparison(f"RTT {protocol}, {place_text}", metric, metric, case, "C loop pingpong", median_figure, measure_rival, tolerance,
                                     judged=not has_idle_cpu and not has_two_kinds))
            if has_idle_cpu:
                selection.append(Comparison(f"RTT {protocol}, {place_text} awake", metric, metric, case, "C loop pingpong", median_figure, measure_rival,
                                         tolerance, background=others.keep_cpus_awake))
            if has_two_kinds:
                measure_mean = lambda: others.c_round_trip("unix", "same_cpu", statistic="mean")
                selection.append(Comparison(f"RTT {protocol}, {place_text}, mean", metric, metric, case, "C loop pingpong", mean_figure, measure_mean, tolerance,
                                         flags=("--no-canaries",)))
                for half, kelvin_figure in [("fast", lower_quartile), ("slow", upper_quartile)]:
                    measure_half = lambda measure_rival=measure_rival, half=half: measure_rival(f".{half}_half")
                    selection.append(Comparison(f"RTT {protocol}, {place_text}, {half} half", metric, metric, case, "C loop pingpong", kelvin_figure,
                                             measure_half, judged=False))
            if protocol != "unix" and shutil.which("sockperf"):
                measure_rival = lambda protocol=protocol, placement=placement: others.sockperf_round_trip(protocol, placement)
                selection.append(Comparison(f"RTT {protocol}, {place_text}", metric, metric, case, "sockperf, doubled", median_figure, measure_rival, judged=False))
    selection.append(Comparison("transactions, one CPU", "net.crr", "net.crr", "placement=same_cpu", "C loop connect_loop",
                             median_figure, lambda: others.transaction_rate("same_cpu")))
    if not shutil.which("sockperf"):
        common.log("sockperf is not here and is left out; on Debian: apt-get install sockperf")
    return selection


def parse():
    parser = common.make_pairs_parser(__doc__, seconds=1, max_pairs=45)
    parser.add_argument("--only", action="append", metavar="QUANTITY", help="only this metric, or this quantity by its name in the table; may be given more than once")
    return common.parse_pairs(parser)


def measure(arguments):
    kelvin, order = common.kelvin_program(arguments.kelvin), random.Random(arguments.seed)
    cpus = sorted(os.sched_getaffinity(0))
    rivals = Rivals(common.last_allowed_cpu())
    if len(cpus) < 2:
        common.log("one CPU: comparisons that need two are skipped")
    # The CPU of the partner, from a note of kelvin.
    probe = common.run_kelvin(kelvin, ["net.rtt.unix"], 2, "--cpu", str(rivals.cpu), "--quick")
    echo_cpus = re.findall(r"echo process on CPU (\d+)", json.dumps(probe))
    other_cpu = next((int(cpu) for cpu in echo_cpus if int(cpu) != rivals.cpu), rivals.cpu)
    selection = comparisons(NetworkRivals(rivals, other_cpu, arguments.seconds), len(cpus) > 1)
    selection = [comparison for comparison in selection if not arguments.only or {comparison.metric, comparison.name} & set(arguments.only)]
    if not selection:
        raise common.BenchmarkError(f"no quantity is called {' or '.join(arguments.only)}")
    for pair_number, unsettled in common.pair_rounds(arguments, selection):
        order.shuffle(unsettled)
        for comparison in unsettled:
            comparison.measure(kelvin, rivals, arguments.seconds, order.sample(["kelvin", "rival"], 2))
        common.log(f"{pair_number} pairs of: {', '.join(f'{comparison.name} ({comparison.rival})' for comparison in unsettled)}")
    return {"seconds": arguments.seconds, "cpus": [rivals.cpu, other_cpu], "comparisons": selection, "quiet": rivals.quiet()}


def tables(measured):
    results = [Comparison(**entry) for entry in measured["comparisons"]]
    header = ["quantity", "kelvin", "beside it", "its figure", "ratio", "90 % interval", "bound", "pairs", "verdict"]
    table = common.table(header, [entry.row() for entry in results])
    text = "{:g} s a side, CPUs {} and {}.".format(measured["seconds"], *measured["cpus"])
    are_bounds_met = all(entry.verdict() in ("agrees", "holds", "reported only") for entry in results)
    return f"{text}\n\n{table}\n\n{format_quiet_counts(measured['quiet'])}", are_bounds_met


if __name__ == "__main__":
    common.main(parse, measure, tables)
