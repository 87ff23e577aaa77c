#!/usr/bin/env python3
"""Whether anything moves more bytes than kelvin reports as possible.

One round is a kelvin run of mem.bandwidth alone and, in random order around it, each of the other programs: plain loops in C
(bench/rivals/stream_loop.c: STREAM's copy and triad, a sum, a constant stored, memset of a byte and of zero; gcc -O3
-march=native -fopenmp), sysbench memory and mbw from Debian. Kelvin's figure and a program's figure of one round make a pair.
All use the same working set (the largest of kelvin's, in all arrays together), on one CPU and on all.

As elsewhere here a side counts only if the core was not shared right before and right after it, by a loop that has no part in
the measurement, and is measured again otherwise; how often none was quiet is reported. A kelvin run lasts much longer than the
others and is rarely quiet all the time: its median is therefore that of its undisturbed samples, by its own canaries. Its
median is also over several processes, whose placement of memory changes a rate by some percent: the C loops run as several
processes that share their time, and the median of their medians and the best of their bests count.

The host of a virtual machine moves its CPUs: the rate of all of them together depends on whether they share a core complex. The
core-to-core latency shows it (bench/rivals/core_to_core.c before and after a program, kelvin's own mem.bandwidth.core_to_core in the
median of its rounds): a pair on all CPUs counts only if it was the same throughout, and is measured again otherwise; how many
were left out is reported.

The ratio kelvin / other over the pairs is judged: its Hodges-Lehmann estimate and the exact 90 % interval of the signed-rank
test, median against median and best against best where the other program reports both. The mean of a program that reports only
that stands against kelvin's best, which must reach any program's average. The lower bound of the interval must be above 0.97;
those that straddle it get more pairs.

Exit status: 0 nothing moves more, 1 something does, 2 it could not be done.
"""
import random
import re
import shutil
import statistics
from dataclasses import dataclass, field
from typing import Callable

import common
from rivals import Rivals, quiet_summary

BOUND = 0.97
MIB = 1 << 20
# Processes of a C loop in a pair: as many as kelvin makes rounds of so large a working set.
PROCESSES = 5
# Factor between core-to-core latencies within which CPUs count as equally far apart: 46..75 ns within one complex of a
# Zen 5 and 217..235 ns between two were seen.
SAME_DISTANCE_FACTOR = 2.0
STREAM_FIGURE = re.compile(r"^stream\.\S+ best=(\S+) median=(\S+) n=\d+$", re.MULTILINE)
MBW_FIGURE = re.compile(r"^\d+\s+Method: MEMCPY\s.*Copy: (\S+) MiB/s$", re.MULTILINE)
SYSBENCH_FIGURE = re.compile(r"transferred \((\S+) MiB/sec\)")


@dataclass
class Figures:
    """Bytes per second: the median and the best of the samples; of a program that reports a mean, that alone. And the
    core-to-core latencies beside it, in nanoseconds.
    """

    median: float | None
    best: float | None
    mean: float | None = None
    ways: list = field(default_factory=list)


class MemoryRivals:
    """The programs beside kelvin, on CPUs from the last allowed one down."""

    def __init__(self, rivals, seconds):
        self.rivals, self.seconds = rivals, seconds
        self.stream_program = f"{rivals.directory.name}/stream_loop"
        flags = ["-O3", "-march=native", "-fopenmp", "-Wall", "-Wextra", "-Werror"]
        source = common.RIVALS / "stream_loop.c"
        common.run([common.require_program("cc", "gcc"), *flags, "-o", self.stream_program, source])

    def core_to_core_latency(self, threads):
        """The core-to-core latency between the first and the last of the CPUs now; none for one."""
        first = self.rivals.cpu - threads + 1
        return [] if threads == 1 else [self.rivals.c_loop("core_to_core", "core_to_core.line", None, first)]

    def measure_with_placement(self, measure, threads, total):
        """A program's rate, with the core-to-core latency before and after it."""
        before = self.core_to_core_latency(threads)
        figures = measure(threads, total)
        figures.ways = before + self.core_to_core_latency(threads)
        return figures

    def pinned(self, threads, *command):
        first = self.rivals.cpu - threads + 1
        return common.run([common.require_program("taskset", "util-linux"), "-c", f"{first}-{self.rivals.cpu}", *command])

    def stream(self, loop, threads, total):
        """A loop of stream_loop over so many bytes in all, in several processes one after the other."""
        command = [self.stream_program, self.rivals.cpu, threads, f"{self.seconds / PROCESSES:g}", total, loop]
        outputs = [common.run(command) for _ in range(PROCESSES)]
        bests, medians = zip(*(map(float, STREAM_FIGURE.search(output).groups()) for output in outputs))
        return Figures(statistics.median(medians), max(bests))

    def mbw(self, _, threads, total):
        """Copies by memcpy between two arrays; each byte counts twice, as STREAM counts."""
        output = self.pinned(threads, "mbw", "-q", "-a", "-t0", "-n", max(int(self.seconds / 0.03), 5), total // 2 // MIB)
        rates = [2 * MIB * float(rate) for rate in MBW_FIGURE.findall(output)]
        return Figures(statistics.median(rates), max(rates))

    def sysbench(self, operation, threads, total):
        """Reads or writes of 8 bytes each, in order, over a block for each thread."""
        block = total // threads
        # The least amount that lasts: sysbench ends at whichever comes first.
        output = self.pinned(
            threads, "sysbench", "memory", f"--threads={threads}", f"--time={max(round(self.seconds), 1)}",
            f"--memory-block-size={block}", "--memory-total-size=1T", "--memory-scope=local",
            f"--memory-oper={operation}", "--memory-access-mode=seq", "run",
        )
        return Figures(None, None, MIB * float(SYSBENCH_FIGURE.search(output)[1]))


@dataclass
class Comparison:
    """One metric of kelvin, on one CPU or all, beside one program."""

    metric: str
    cpus: str
    program: str
    measure: Callable = common.unkept_field()
    pairs: list = field(default_factory=list)
    # Pairs left out because the CPUs had been moved.
    moved: int = 0

    def add(self, ours, theirs):
        """One more pair, if the CPUs were equally far apart throughout."""
        ways = ours.ways + theirs.ways if self.cpus == "all" else []
        if ways and max(ways) > SAME_DISTANCE_FACTOR * min(ways):
            self.moved += 1
        else:
            self.pairs.append((ours, theirs))

    def is_open(self):
        """Whether an interval straddles a bound that the estimate keeps."""
        return any(not kept and cells[6] != "-" and float(cells[6]) > BOUND for kept, cells in self.rows())

    def rows(self):
        """A row of the table for each figure that both report, with whether its bound is kept."""
        kinds = [("median", "median", "median"), ("best", "best", "best"), ("best", "mean", "best / its mean")]
        for ours, theirs, label in kinds:
            pairs = [(getattr(a, ours), getattr(b, theirs)) for a, b in self.pairs]
            if any(other is None for _, other in pairs):
                continue
            if len(pairs) < common.MIN_PAIRS:
                yield False, [self.metric.removeprefix("mem.bandwidth."), self.cpus, self.program, label, "-", "-", "-", "-", len(pairs), "too few"]
                continue
            left, right = zip(*pairs)
            ratio, lower, upper = common.ratio_of_pairs(left, right)
            rate = lambda values: f"{statistics.median(values) / 1e9:.2f} GB/s"
            kept = lower > BOUND
            yield kept, [
                self.metric.removeprefix("mem.bandwidth."), self.cpus, self.program, label, rate(left), rate(right),
                f"{ratio:.3f}", f"{lower:.3f}..{upper:.3f}", len(pairs),
                "holds" if kept else "exceeded" if upper < BOUND else "not settled",
            ]


def comparisons(movers):
    """Every metric beside every program that does the same, as far as it is installed."""
    loops = {"copy": "copy", "triad": "triad", "read": "read", "write": "write", "fill": "fill", "zero": "zero"}
    chosen = [(name, "C loop", "one all", lambda t, n, loop=loop: movers.stream(loop, t, n)) for name, loop in loops.items()]
    if shutil.which("sysbench"):
        chosen += [(name, "sysbench memory", "one all", lambda t, n, name=name: movers.sysbench(name, t, n)) for name in ("read", "write")]
    else:
        common.log("sysbench is not here and is left out; on Debian: apt-get install sysbench")
    if shutil.which("mbw"):
        chosen.append(("copy", "mbw, memcpy", "one", lambda t, n: movers.mbw(None, t, n)))
    else:
        common.log("mbw is not here and is left out; on Debian: apt-get install mbw")
    return [
        Comparison(f"mem.bandwidth.{metric}", cpus, program, measure)
        for metric, program, where, measure in chosen
        for cpus in where.split()
    ]


def kelvin_figures(report):
    """By metric and cpus: the figures at the largest working set, and its bytes for each CPU."""
    results, ways = {}, []
    for (metric, _), result in common.results(report).items():
        if not metric.startswith("mem.bandwidth."):
            continue
        outcome = result["outcome"]
        # Sizes that a quick run leaves out.
        if isinstance(outcome, dict) and "skipped" in outcome:
            continue
        summary = outcome.get("measured") or outcome.get("not_known") if isinstance(outcome, dict) else None
        if summary is None:
            raise RuntimeError(f"{metric} was not measured: {outcome}")
        middle = summary["headline"] if "measured" in outcome else summary["as_found"]["value"]
        if metric == "mem.bandwidth.core_to_core":
            ways.append(statistics.median(summary["round_headlines"]))
            continue
        key, size = (metric, result["case"]["cpus"]), result["case"]["bytes"]
        if key not in results or size > results[key][1]:
            results[key] = (Figures(middle, summary["distribution"]["best"]), size)
    for figures, _ in results.values():
        figures.ways = ways
    return results


def parse():
    parser = common.make_pairs_parser(__doc__, seconds=0.5, max_pairs=45)
    return common.parse_pairs(parser)


def measure(arguments):
    kelvin = common.kelvin_program(arguments.kelvin)
    cpus, order = sorted(common.os.sched_getaffinity(0)), random.Random(arguments.seed)
    rivals = Rivals(common.last_allowed_cpu())
    contiguous = cpus == list(range(cpus[0], cpus[-1] + 1))
    many = len(cpus) if contiguous else 1
    if not contiguous:
        common.log("the allowed CPUs are not in one row: compared on one CPU only")
    movers = MemoryRivals(rivals, arguments.seconds)
    chosen = [one for one in comparisons(movers) if one.cpus == "one" or many > 1]
    run = [kelvin, "run", "mem.bandwidth.copy", "--quick", "--json", "--no-store", "--no-report", "--cpu", str(rivals.cpu)]
    sizes = {}

    def ours():
        results = rivals.measure_in_quiet(lambda: kelvin_figures(common.json.loads(common.run(run))))
        sizes.update({key: size for key, (_, size) in results.items()})
        return results

    ours()
    for done in range(arguments.max_pairs):
        todo = [one for one in chosen if len(one.pairs) < arguments.pairs or one.is_open()]
        if not todo:
            break
        theirs = {}
        order.shuffle(todo)
        before = order.randrange(len(todo) + 1)
        figures = ours() if before == 0 else None
        for number, one in enumerate(todo, 1):
            threads = 1 if one.cpus == "one" else many
            total = sizes[one.metric, one.cpus] * threads
            theirs[number] = rivals.measure_in_quiet(lambda: movers.measure_with_placement(one.measure, threads, total))
            figures = figures or (ours() if number == before else None)
        for number, one in enumerate(todo, 1):
            one.add(figures[one.metric, one.cpus][0], theirs[number])
        common.log(f"round {done + 1}, {len(todo)} comparisons")
    return {"cpu": rivals.cpu, "comparisons": chosen, "quiet": rivals.quiet()}


def tables(measured):
    figures = lambda pairs: [[Figures(**side) for side in pair] for pair in pairs]
    chosen = [Comparison(**{**one, "pairs": figures(one["pairs"])}) for one in measured["comparisons"]]
    rows = [row for one in sorted(chosen, key=lambda one: (one.metric, one.cpus, one.program)) for row in one.rows()]
    header = ["operation", "CPUs", "beside it", "figures", "kelvin", "its figure", "ratio", "90 % interval", "pairs", f"above {BOUND:g}"]
    table = common.table(header, [cells for _, cells in rows])
    moved = f"{sum(one.moved for one in chosen)} pairs on all CPUs were left out, since these had been moved meanwhile."
    text = f"CPU {measured['cpu']} or all.\n\n{table}\n\n{moved} {quiet_summary(measured['quiet'])}"
    return text, all(kept for kept, _ in rows)


if __name__ == "__main__":
    common.main(parse, measure, tables)
