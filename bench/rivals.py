"""The tools that kelvin is compared with: the same operation, another program, nanoseconds of one operation."""
import re
import statistics
import tempfile
import time

from common import build_rival, require_program, run

PERF_FIGURE = re.compile(r"([0-9.]+) usecs/op")
RIVAL_FIGURE = re.compile(r"^(\S+) median_ns=(\S+) mean_ns=(\S+) n=(\d+)$", re.MULTILINE)

# Share of a core, as a multiple of the least one seen, up to which the core is not shared; tries to measure in quiet,
# and how often a fifth of a second is waited for it before each.
MAX_QUIET_RATIO = 1.15
MAX_TRIES = 5
MAX_WAITS = 5

# Seconds of a short run of perf: long beside the start of its processes (some 0.2 ms), short beside a disturbance.
SHORT_RUN_SECONDS = 0.03


def quiet_summary(quiet):
    """How often it was not quiet, in a sentence."""
    return (f"{quiet['sides']} sides were measured, {quiet['again']} more were disturbed and measured again, "
            f"{quiet['disturbed']} of those that count were disturbed all the same.")


class Rivals:
    """The tools, pinned to one CPU; the C programs are compiled into a directory that goes with the object."""

    def __init__(self, cpu):
        self.cpu = cpu
        self.directory = tempfile.TemporaryDirectory(prefix="kelvin-bench-")
        self.programs = {}
        self.whole_core = float("inf")
        self.sides = self.again = self.disturbed = 0

    def program(self, name):
        """The path of a plain C program of bench/rivals, compiled if it is not yet."""
        if name not in self.programs:
            self.programs[name] = build_rival(name, self.directory.name)
        return self.programs[name]

    def c_loop(self, program, figure, seconds, *arguments, what="median"):
        """A figure of a plain C program of bench/rivals that runs for a time, if it takes one: the median or mean of its
        samples."""
        output = run([self.program(program), self.cpu, *([seconds] if seconds else []), *arguments])
        for name, median, mean, _ in RIVAL_FIGURE.findall(output):
            if name == figure:
                return float(median if what == "median" else mean)
        raise RuntimeError(f"{program} printed no {figure}: {output!r}")

    def is_quiet(self):
        """Whether this CPU has its whole core now; the least share ever seen is a whole core."""
        share = self.c_loop("core_watch", "core.share", None)
        self.whole_core = min(self.whole_core, share)
        return share <= MAX_QUIET_RATIO * self.whole_core

    def measure_in_quiet(self, measure):
        """The result of `measure` with quiet right before and right after it; the last of five tries in any case."""
        self.sides += 1
        for _ in range(MAX_TRIES):
            for _ in range(MAX_WAITS):
                if self.is_quiet():
                    break
                time.sleep(0.2)
            before = self.is_quiet()
            figure = measure()
            if before and self.is_quiet():
                return figure
            self.again += 1
        self.again -= 1
        self.disturbed += 1
        return figure

    def quiet(self):
        """How often it was quiet and was not."""
        return {"sides": self.sides, "again": self.again, "disturbed": self.disturbed}

    def perf(self, loops, *benchmark):
        """One run of a benchmark of perf: its mean."""
        perf = require_program("perf", "linux-perf")
        output = run([require_program("taskset", "util-linux"), "-c", self.cpu, perf, "bench", *benchmark, "-l", loops])
        match = PERF_FIGURE.search(output)
        if not match:
            raise RuntimeError(f"perf bench {' '.join(benchmark)} printed no figure: {output!r}")
        return float(match[1]) * 1e3

    def perf_loops(self, seconds, *benchmark):
        """How many loops a benchmark of perf does in about this time."""
        each = self.perf(5000, *benchmark)
        return max(int(seconds * 1e9 / each), 100)

    def perf_median(self, seconds, *benchmark):
        """Runs of a benchmark of perf, 30 ms each, for a time: the median of their means.

        perf reports only the mean of a whole run, in which one theft of the CPU counts in full; kelvin's figure is the median
        of the means of batches. Short runs make the two alike.
        """
        loops = self.perf_loops(SHORT_RUN_SECONDS, *benchmark)
        end = time.monotonic() + seconds
        means = [self.perf(loops, *benchmark)]
        while time.monotonic() < end:
            means.append(self.perf(loops, *benchmark))
        return statistics.median(means)

    def perf_mean(self, seconds, *benchmark):
        """One run of a benchmark of perf over the whole time, as one would start it by hand: its mean."""
        return self.perf(self.perf_loops(seconds, *benchmark), *benchmark)
