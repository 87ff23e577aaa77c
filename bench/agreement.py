#!/usr/bin/env python3
"""Whether kelvin's figures agree with those of other tools.

For each quantity a pair is one kelvin run of that probe alone and one run of the other program, on the same CPU, with the same
wall time (--seconds), one right after the other in random order; the pairs of all quantities are interleaved. The ratio over
all pairs is judged: its Hodges-Lehmann estimate and the exact 90 % interval of the signed-rank test. A quantity agrees if the
whole interval lies within the bound, so a wrong "agrees" has a probability of at most 5 %. It differs if the whole interval lies
outside. It gets more pairs while the interval contains a bound.

On a shared host another virtual machine's load on the sibling thread of the core comes and goes for seconds at a time and makes
a fork a third slower. So a side counts only if the core was not shared right before and right after it. A separate loop
(core_watch) checks that. Otherwise the side is measured again, up to five times. The number of sides that were always disturbed is
reported. The rule is the same for kelvin and the others, and does not depend on any figure.

The other tools report all samples, disturbed or not. So kelvin's figure here is its "as found" figure: the median over rounds of
all batches. The undisturbed headline is shown and not compared. The figure of a C loop is the median of its samples. perf bench
reports only a mean: its figure is the median of the means of short runs of 30 ms each.

Exit status: 0 all quantities agree, 1 at least one does not, 2 it could not be done.
"""
import random
import statistics
from dataclasses import dataclass, field
from typing import Callable

import common
from rivals import Rivals, format_quiet_counts


@dataclass
class Comparison:
    """One quantity, measured by kelvin and by another program."""

    name: str
    metric: str
    case: str
    rival: str
    # Largest relative difference; a figure with None is reported and not judged.
    bound: float | None
    theirs: Callable[[Rivals, float], float] = common.transient_field()
    ours: list = field(default_factory=list)
    headlines: list = field(default_factory=list)
    others: list = field(default_factory=list)

    def measure(self, kelvin, rivals, seconds, order):
        """Measures one more pair, each side while the core is not shared if possible."""
        for side in order:
            if side == "kelvin":
                report = rivals.measure_in_quiet(lambda: common.run_kelvin(kelvin, [self.metric], seconds, "--cpu", str(rivals.cpu)))
                summary = common.find_summary(report, self.metric, self.case)
                self.ours.append(summary["as_found"]["value"])
                self.headlines.append(summary["headline"])
            else:
                self.others.append(rivals.measure_in_quiet(lambda: self.theirs(rivals, seconds)))

    def verdict(self):
        """`agrees`, `differs`, `not settled`, or `reported only` for what has no bound."""
        if self.bound is None:
            return "reported only"
        _, lower, upper = common.paired_ratio(self.ours, self.others)
        return common.agreement_verdict(lower, upper, self.bound)

    def row(self):
        ratio, lower, upper = common.paired_ratio(self.ours, self.others)
        median = lambda values: common.format_time(statistics.median(values))
        bound = "-" if self.bound is None else f"{self.bound * 100:g} %"
        return [self.name, median(self.headlines), median(self.ours), self.rival, median(self.others)] + [
            f"{ratio:.4f}", f"{lower:.4f}..{upper:.4f}", bound, len(self.ours), self.verdict()
        ]


def perf_null_call(rivals, seconds):
    """perf's null call without the time of perf's own loop, which a C loop measures."""
    loop_time = rivals.run_c_loop("perf_call_loop", "perf.loop", max(seconds / 5, 0.3))
    return rivals.perf_median(seconds, "syscall", "basic") - loop_time


def comparisons():
    pipe_round_trip = lambda rivals, seconds: rivals.perf_median(seconds, "sched", "pipe")
    fork_exit = lambda rivals, seconds: rivals.run_c_loop("fork_loop", "fork.life", seconds, "fork")
    fork_exec = lambda rivals, seconds: rivals.run_c_loop("exec_loop", "exec.life", seconds, "exec")
    clock_pair = lambda rivals, seconds: rivals.run_c_loop("clock_pair", "clock.pair", seconds)
    mispredicted_branch = lambda rivals, seconds: rivals.run_c_loop("branch_loop", "branch.mispredict", seconds)
    thread_join = lambda rivals, seconds: rivals.run_c_loop("thread_loop", "thread.join", seconds)
    return [
        Comparison("null call", "os.syscall.null", "call=getppid", "perf bench syscall basic, less its loop", 0.05, perf_null_call),
        Comparison("pipe round trip", "os.switch.round_trip", "mechanism=pipe task=process", "perf bench sched pipe, pinned", 0.07, pipe_round_trip),
        Comparison("fork, exit, wait", "os.process.fork_exit_wait", "", "C loop fork_loop", 0.05, fork_exit),
        Comparison("fork, exec, wait", "os.process.exec", "", "C loop exec_loop", 0.05, fork_exec),
        Comparison("clock pair", "cpu.clock.pair", "", "C loop clock_pair", 0.05, clock_pair),
        Comparison("mispredicted branch", "cpu.branch.mispredict", "", "C loop branch_loop", 0.05, mispredicted_branch),
        Comparison("thread create, join", "os.thread.create.join", "", "C loop thread_loop", None, thread_join),
    ]


def parse():
    parser = common.make_pairs_parser(__doc__, seconds=1, max_pairs=60)
    parser.add_argument("--only", action="append", metavar="METRIC", help="only this metric; may be given more than once")
    return common.parse_pairs(parser)


def measure(arguments):
    selection = [quantity for quantity in comparisons() if not arguments.only or quantity.metric in arguments.only]
    if not selection:
        raise common.BenchmarkError(f"no quantity is called {' or '.join(arguments.only)}")
    kelvin = common.kelvin_program(arguments.kelvin)
    rivals, order = Rivals(common.last_allowed_cpu()), random.Random(arguments.seed)
    unsettled, pair_count = list(selection), 0
    while unsettled and pair_count < arguments.max_pairs:
        order.shuffle(unsettled)
        for comparison in unsettled:
            comparison.measure(kelvin, rivals, arguments.seconds, order.sample(["kelvin", "rival"], 2))
        pair_count += 1
        common.log(f"{pair_count} pairs of: {', '.join(quantity.name for quantity in unsettled)}")
        if pair_count >= arguments.pairs:
            unsettled = [quantity for quantity in unsettled if quantity.verdict() == "not settled"]
    return {"cpu": rivals.cpu, "seconds": arguments.seconds, "comparisons": selection, "quiet": rivals.quiet()}


def tables(measured):
    results = [Comparison(**comparison) for comparison in measured["comparisons"]]
    header = ["quantity", "kelvin, headline", "kelvin, as found", "beside it", "its figure"]
    header += ["as found / its figure", "90 % interval", "bound", "pairs", "verdict"]
    text = f"{measured['seconds']:g} s a side, CPU {measured['cpu']}.\n\n{common.table(header, [comparison.row() for comparison in results])}"
    are_bounds_met = all(comparison.verdict() in ("agrees", "reported only") for comparison in results)
    return f"{text}\n\n{format_quiet_counts(measured['quiet'])}", are_bounds_met


if __name__ == "__main__":
    common.main(parse, measure, tables)
