#!/usr/bin/env python3
"""Whether kelvin's figures agree with those of other tools.

For each quantity a pair is one kelvin run of that probe alone and one run of the other program, on the same CPU, with the same
wall time (--seconds), one right after the other in random order; the pairs of all quantities are interleaved. The ratio over
all pairs is judged: its Hodges-Lehmann estimate and the exact 90 % interval of the signed-rank test. A quantity agrees when the
whole interval lies within the bound (so a wrong "agrees" has at most one chance in twenty), differs when the whole interval
lies outside, and gets more pairs while it straddles a bound.

On a shared host another virtual machine's load on the sibling thread of the core comes and goes for seconds at a time and makes
a fork a third slower. So a side counts only if the core was not shared right before and right after it, by a loop that has no
part in the measurement (core_watch), and is measured again otherwise, up to five times; how often none was quiet is reported.
The rule is the same for kelvin and the others, and looks at no figure.

The other tools report all samples, disturbed or not. So kelvin's figure here is its "as found" one, the median over rounds of
all batches, and never the undisturbed headline, which is shown beside it. For a C loop it is the median of its samples; for
perf bench, which reports only a mean, the median of the means of short runs of 30 ms each.

Exit status: 0 all agree, 1 one does not, 2 it could not be done.
"""
import random
import statistics
from dataclasses import dataclass, field
from typing import Callable

import common
from rivals import Rivals, quiet_summary


@dataclass
class Comparison:
    """One quantity, measured by kelvin and by another program."""

    name: str
    metric: str
    case: str
    rival: str
    # Largest relative difference; None is reported and not judged.
    bound: float | None
    theirs: Callable[[Rivals, float], float] = common.unkept_field()
    ours: list = field(default_factory=list)
    headlines: list = field(default_factory=list)
    others: list = field(default_factory=list)

    def measure(self, kelvin, rivals, seconds, order):
        """One more pair, each side in a quiet moment if there is one."""
        for side in order:
            if side == "kelvin":
                report = rivals.measure_in_quiet(lambda: common.measure(kelvin, [self.metric], seconds, "--cpu", str(rivals.cpu)))
                summary = common.find_summary(report, self.metric, self.case)
                self.ours.append(summary["as_found"]["value"])
                self.headlines.append(summary["headline"])
            else:
                self.others.append(rivals.measure_in_quiet(lambda: self.theirs(rivals, seconds)))

    def verdict(self):
        """`agrees`, `differs`, `not settled`, or `reported only` for what has no bound."""
        if self.bound is None:
            return "reported only"
        _, lower, upper = common.ratio_of_pairs(self.ours, self.others)
        return common.agreement(lower, upper, self.bound)

    def row(self):
        ratio, lower, upper = common.ratio_of_pairs(self.ours, self.others)
        median = lambda values: common.time_text(statistics.median(values))
        bound = "-" if self.bound is None else f"{self.bound * 100:g} %"
        return [self.name, median(self.headlines), median(self.ours), self.rival, median(self.others)] + [
            f"{ratio:.4f}", f"{lower:.4f}..{upper:.4f}", bound, len(self.ours), self.verdict()
        ]


def perf_null_call(rivals, seconds):
    """perf's null call without perf's own loop, which is measured beside it."""
    loop = rivals.c_loop("perf_call_loop", "perf.loop", max(seconds / 5, 0.3))
    return rivals.perf_median(seconds, "syscall", "basic") - loop


def comparisons():
    pipe = lambda rivals, seconds: rivals.perf_median(seconds, "sched", "pipe")
    fork = lambda rivals, seconds: rivals.c_loop("fork_loop", "fork.life", seconds, "fork")
    exec_ = lambda rivals, seconds: rivals.c_loop("exec_loop", "exec.life", seconds, "exec")
    pair = lambda rivals, seconds: rivals.c_loop("clock_pair", "clock.pair", seconds)
    branch = lambda rivals, seconds: rivals.c_loop("branch_loop", "branch.mispredict", seconds)
    join = lambda rivals, seconds: rivals.c_loop("thread_loop", "thread.join", seconds)
    return [
        Comparison("null call", "os.syscall.null", "call=getppid", "perf bench syscall basic, less its loop", 0.05, perf_null_call),
        Comparison("pipe round trip", "os.switch.round_trip", "mechanism=pipe task=process", "perf bench sched pipe, pinned", 0.07, pipe),
        Comparison("fork, exit, wait", "os.process.fork_exit_wait", "", "C loop fork_loop", 0.05, fork),
        Comparison("fork, exec, wait", "os.process.exec", "", "C loop exec_loop", 0.05, exec_),
        Comparison("clock pair", "cpu.clock.pair", "", "C loop clock_pair", 0.05, pair),
        Comparison("mispredicted branch", "cpu.branch.mispredict", "", "C loop branch_loop", 0.05, branch),
        Comparison("thread create, join", "os.thread.create.join", "", "C loop thread_loop", None, join),
    ]


def parse():
    parser = common.make_pairs_parser(__doc__, seconds=1, max_pairs=60)
    parser.add_argument("--only", action="append", metavar="METRIC", help="only this metric; may be given more than once")
    return common.parse_pairs(parser)


def measure(arguments):
    chosen = [one for one in comparisons() if not arguments.only or one.metric in arguments.only]
    if not chosen:
        raise common.Missing(f"no quantity is called {' or '.join(arguments.only)}")
    kelvin = common.kelvin_program(arguments.kelvin)
    rivals, order = Rivals(common.last_allowed_cpu()), random.Random(arguments.seed)
    unsettled, done = list(chosen), 0
    while unsettled and done < arguments.max_pairs:
        order.shuffle(unsettled)
        for comparison in unsettled:
            comparison.measure(kelvin, rivals, arguments.seconds, order.sample(["kelvin", "rival"], 2))
        done += 1
        common.log(f"{done} pairs of: {', '.join(one.name for one in unsettled)}")
        if done >= arguments.pairs:
            unsettled = [one for one in unsettled if one.verdict() == "not settled"]
    return {"cpu": rivals.cpu, "seconds": arguments.seconds, "comparisons": chosen, "quiet": rivals.quiet()}


def tables(measured):
    chosen = [Comparison(**one) for one in measured["comparisons"]]
    header = ["quantity", "kelvin, headline", "kelvin, as found", "beside it", "its figure"]
    header += ["as found / its figure", "90 % interval", "bound", "pairs", "verdict"]
    text = f"{measured['seconds']:g} s a side, CPU {measured['cpu']}.\n\n{common.table(header, [one.row() for one in chosen])}"
    kept = all(one.verdict() in ("agrees", "reported only") for one in chosen)
    return f"{text}\n\n{quiet_summary(measured['quiet'])}", kept


if __name__ == "__main__":
    common.main(parse, measure, tables)
