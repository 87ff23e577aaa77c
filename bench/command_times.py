#!/usr/bin/env python3
"""Whether `kelvin time` adds no more to the time of a command than hyperfine, and compares two commands more exactly.

A pair is one run of each program on the same command without a shell (-N), with as many timed runs, in random order. Judged are the mean
time that each reports, of a command that does nothing, and the time that each takes as a whole program for it. The ratio is hyperfine's over
kelvin's: its Hodges-Lehmann estimate and the exact 90 % interval of the signed-rank test. Its lower end must reach 0.98.

Then each compares a command with itself, where the right ratio is 1. The error is how far the ratio that it reports is from that. The table
has the median of both; kelvin's must be no larger.

Exit status: 0 all hold, 1 at least one does not, 2 it could not be done.
"""
import json
import math
import random
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import common

BOUND = 0.98
RUNS = 200
COMPARED_RUNS = 40
NOTHING = "/bin/true"
# Two names of the same work, some milliseconds of one CPU.
SAME_WORK = ["awk 'BEGIN { for (i = 0; i < 100000; i++) x += i }'", "awk 'BEGIN { for (j = 0; j < 100000; j++) y += j }'"]


@dataclass
class Comparison:
    """A quantity of both programs: seconds, or the error of a ratio."""

    quantity: str
    is_error: bool = False
    ours: list = field(default_factory=list)
    theirs: list = field(default_factory=list)

    def interval(self):
        return common.paired_ratio(self.theirs, self.ours)

    def verdict(self):
        if self.is_error:
            return "holds" if statistics.median(self.ours) <= statistics.median(self.theirs) else "worse"
        ratio, lower, _ = self.interval()
        return "holds" if lower >= BOUND else "slower" if ratio < BOUND else "not settled"

    def row(self):
        ours, theirs = statistics.median(self.ours), statistics.median(self.theirs)
        if self.is_error:
            return [self.quantity, common.format_percent(ours), common.format_percent(theirs), "", "", len(self.ours), self.verdict()]
        ratio, lower, upper = self.interval()
        return [self.quantity, common.format_time(ours * 1e9), common.format_time(theirs * 1e9), f"{ratio:.3f}", f"{lower:.3f}..{upper:.3f}",
                len(self.ours), self.verdict()]  # fmt: skip


def timed(program, runs, commands, directory):
    """Means of the commands in seconds, and the time of the whole program."""
    output = Path(directory) / "times.json"
    start_time = time.perf_counter()
    common.run([*program, "-N", "--warmup", "3", "--runs", str(runs), "--export-json", str(output), *commands])
    seconds = time.perf_counter() - start_time
    return [result["mean"] for result in json.loads(output.read_text())["results"]], seconds


def parse():
    return common.parse_pairs(common.make_pairs_parser(__doc__, seconds=1, max_pairs=45))


def measure(arguments):
    programs = {"ours": [str(common.kelvin_program(arguments.kelvin)), "time"], "theirs": [common.require_program("hyperfine", "hyperfine")]}
    order = random.Random(arguments.seed)
    mean, whole, error = selection = [
        Comparison("mean time of a command that does nothing"),
        Comparison(f"whole program, {RUNS} runs of it"),
        Comparison("error of the ratio of a command to itself", is_error=True),
    ]
    with tempfile.TemporaryDirectory() as directory:
        for pair_number, unsettled in common.pair_rounds(arguments, selection):
            for side in order.sample(list(programs), 2):
                if mean in unsettled or whole in unsettled:
                    (seconds,), whole_seconds = timed(programs[side], RUNS, [NOTHING], directory)
                    getattr(mean, side).append(seconds)
                    getattr(whole, side).append(whole_seconds)
                if error in unsettled:
                    (first, second), _ = timed(programs[side], COMPARED_RUNS, SAME_WORK, directory)
                    getattr(error, side).append(abs(math.log(second / first)))
            common.log(f"{pair_number} pairs")
    return selection


def tables(measured):
    results = [Comparison(**entry) for entry in measured]
    header = ["quantity", "kelvin", "hyperfine", "ratio", "90 % interval", "pairs", "verdict"]
    return common.table(header, [entry.row() for entry in results]), all(entry.verdict() == "holds" for entry in results)


if __name__ == "__main__":
    common.main(parse, measure, tables)
