"""The tools that kelvin is compared with. Each does the same operation; figures are nanoseconds per operation."""
import re
import statistics
import tempfile
import time

from common import build_rival, require_program, run

PERF_FIGURE = re.compile(r"([0-9.]+) usecs/op")
RIVAL_FIGURE = re.compile(r"^(\S+) median_ns=(\S+) mean_ns=(\S+) n=(\d+)$", re.MULTILINE)

# A core is not shared if its share is at most this multiple of the smallest share observed so far.
MAX_SHARE_RATIO = 1.15
# Attempts to measure without disturbance, and waits of a fifth of a second before each.
MAX_ATTEMPTS = 5
MAX_QUIET_WAITS = 5

# Seconds of a short run of perf: long compared with the start of its processes (some 0.2 ms), short compared with a disturbance.
SHORT_RUN_SECONDS = 0.03


def format_quiet_counts(quiet):
    """A sentence with the number of disturbed measurements."""
    return (f"{quiet['sides']} sides were measured, {quiet['again']} more were disturbed and measured again, "
            f"{quiet['disturbed']} of those that count were disturbed all the same.")


class Rivals:
    """The tools, pinned to one CPU. The C programs are compiled into a temporary directory of this object."""

    def __init__(self, cpu):
        self.cpu = cpu
        self.directory = tempfile.TemporaryDirectory(prefix="kelvin-bench-")
        self.programs = {}
        self.min_core_share = float("inf")
        self.side_count = self.repeat_count = self.disturbed_count = 0

    def program(self, name):
        """The path of a plain C program of bench/rivals. The first call compiles it."""
        if name not in self.programs:
            self.programs[name] = build_rival(name, self.directory.name)
        return self.programs[name]

    def run_c_loop(self, program, figure, seconds, *arguments, statistic="median"):
        """The median or mean of the samples of a plain C program of bench/rivals, which runs for `seconds` if they are given."""
        output = run([self.program(program), self.cpu, *([seconds] if seconds else []), *arguments])
        for name, median, mean, _ in RIVAL_FIGURE.findall(output):
            if name == figure:
                return float(median if statistic == "median" else mean)
        raise RuntimeError(f"{program} printed no {figure}: {output!r}")

    def is_quiet(self):
        """Whether this CPU has its whole core now. The smallest share observed so far is that of a whole core."""
        share = self.run_c_loop("core_watch", "core.share", None)
        self.min_core_share = min(self.min_core_share, share)
        return share <= MAX_SHARE_RATIO * self.min_core_share

    def measure_in_quiet(self, measure):
        """The result of `measure` if the core was not shared right before and right after it, else of the last attempt."""
        self.side_count += 1
        for _ in range(MAX_ATTEMPTS):
            for _ in range(MAX_QUIET_WAITS):
                if self.is_quiet():
                    break
                time.sleep(0.2)
            was_quiet = self.is_quiet()
            figure = measure()
            if was_quiet and self.is_quiet():
                return figure
            self.repeat_count += 1
        self.repeat_count -= 1
        self.disturbed_count += 1
        return figure

    def quiet(self):
        """The counts of sides, of repeated measurements and of sides that stayed disturbed."""
        return {"sides": self.side_count, "again": self.repeat_count, "disturbed": self.disturbed_count}

    def perf(self, loops, *benchmark):
        """The mean of one run of a perf benchmark."""
        perf = require_program("perf", "linux-perf")
        output = run([require_program("taskset", "util-linux"), "-c", self.cpu, perf, "bench", *benchmark, "-l", loops])
        match = PERF_FIGURE.search(output)
        if not match:
            raise RuntimeError(f"perf bench {' '.join(benchmark)} printed no figure: {output!r}")
        return float(match[1]) * 1e3

    def perf_loops(self, seconds, *benchmark):
        """The number of loops that a perf benchmark does in about this time."""
        loop_time = self.perf(5000, *benchmark)
        return max(int(seconds * 1e9 / loop_time), 100)

    def perf_median(self, seconds, *benchmark):
        """The median of the means of short runs of a perf benchmark, 30 ms each.

        perf reports only the mean of a whole run, so one interruption of the CPU counts in full. kelvin's figure is the median
        of the means of batches. Short runs make the two figures comparable.
        """
        loops = self.perf_loops(SHORT_RUN_SECONDS, *benchmark)
        end = time.monotonic() + seconds
        means = [self.perf(loops, *benchmark)]
        while time.monotonic() < end:
            means.append(self.perf(loops, *benchmark))
        return statistics.median(means)

    def perf_mean(self, seconds, *benchmark):
        """The mean of one run of a perf benchmark over the whole time, as a user would start it."""
        return self.perf(self.perf_loops(seconds, *benchmark), *benchmark)
