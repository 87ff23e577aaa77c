"""The tools beside which kelvin is put: the same operation, another program, nanoseconds of one operation."""
import re
import statistics
import tempfile
import time

from common import build_peer, need, run

PERF_FIGURE = re.compile(r"([0-9.]+) usecs/op")
PEER_FIGURE = re.compile(r"^(\S+) median_ns=(\S+) mean_ns=(\S+) n=(\d+)$", re.MULTILINE)

# Seconds of a short run of perf: long beside the start of its processes (some 0.2 ms), short beside a disturbance.
SHORT_RUN = 0.03


class Peers:
    """The peers, pinned to one CPU; the C programs are compiled into a directory that goes with the object."""

    def __init__(self, cpu):
        self.cpu = cpu
        self.directory = tempfile.TemporaryDirectory(prefix="kelvin-bench-")
        self.programs = {}

    def c_loop(self, program, figure, seconds, *arguments, what="median"):
        """A figure of a plain C program of bench/peers that runs for a time: the median or mean of its samples."""
        if program not in self.programs:
            self.programs[program] = build_peer(program, self.directory.name)
        output = run([self.programs[program], self.cpu, seconds, *arguments])
        for name, median, mean, _ in PEER_FIGURE.findall(output):
            if name == figure:
                return float(median if what == "median" else mean)
        raise RuntimeError(f"{program} printed no {figure}: {output!r}")

    def perf(self, loops, *benchmark):
        """One run of a benchmark of perf: its mean."""
        perf = need("perf", "linux-perf")
        output = run([need("taskset", "util-linux"), "-c", self.cpu, perf, "bench", *benchmark, "-l", loops])
        found = PERF_FIGURE.search(output)
        if not found:
            raise RuntimeError(f"perf bench {' '.join(benchmark)} printed no figure: {output!r}")
        return float(found[1]) * 1e3

    def perf_loops(self, seconds, *benchmark):
        """How many loops a benchmark of perf does in about this time."""
        each = self.perf(5000, *benchmark)
        return max(int(seconds * 1e9 / each), 100)

    def perf_median(self, seconds, *benchmark):
        """Runs of a benchmark of perf, 30 ms each, for a time: the median of their means.

        perf tells only the mean of a whole run, in which one theft of the CPU counts in full; kelvin's figure is the
        median of the means of batches. Short runs make the two alike.
        """
        loops = self.perf_loops(SHORT_RUN, *benchmark)
        end = time.monotonic() + seconds
        means = [self.perf(loops, *benchmark)]
        while time.monotonic() < end:
            means.append(self.perf(loops, *benchmark))
        return statistics.median(means)

    def perf_mean(self, seconds, *benchmark):
        """One run of a benchmark of perf over the whole time, as one would start it by hand: its mean."""
        return self.perf(self.perf_loops(seconds, *benchmark), *benchmark)
