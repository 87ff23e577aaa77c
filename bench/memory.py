#!/usr/bin/env python3
"""Whether any program moves more bytes than the maximum that kelvin reports.

One round is a kelvin run of mem.bandwidth alone and, in random order around it, each of the other programs: plain loops in C
(bench/rivals/stream_loop.c: STREAM's copy and triad, a sum, a constant stored, memset of a byte and of zero; gcc -O3
-march=native -fopenmp), sysbench memory and mbw from Debian. Kelvin's figure and a program's figure of one round make a pair.
All use the same working set (the largest of kelvin's, in all arrays together), on one CPU and on all.

As in the other benchmarks a side counts only if the core was not shared right before and right after it. A separate loop checks
that. Otherwise the side is measured again. The number of sides that were always disturbed is reported. A kelvin run lasts much
longer than the others, and is rarely undisturbed all the time. So its median is that of its undisturbed samples, by its own canaries.
It is also a median over several processes, whose placement of memory changes a rate by some percent. So the C loops also run as
several processes that share their time. The median of their medians and the maximum of their maxima count.

The host of a virtual machine moves its CPUs, and their total rate depends on whether they share a core complex. The core-to-core
latency shows it: bench/rivals/core_to_core.c before and after a program, and for kelvin mem.bandwidth.core_to_core in the median of
its rounds. A pair on all CPUs counts only if that latency stayed the same. Otherwise it is measured again. The number of skipped
pairs is reported.

The ratio kelvin / other over the pairs is judged: its Hodges-Lehmann estimate and the exact 90 % interval of the signed-rank
test. Medians are compared with medians and maxima with maxima, if the other program reports both. A mean that is the only reported
figure is compared with kelvin's best, which must reach the average of any program. The lower end of the interval must be above 0.97.
Ratios whose interval contains that bound get more pairs.

Exit status: 0 no program moves more, 1 at least one does, 2 it could not be done.
"""
import json
import os
import random
import re
import shutil
import statistics
from dataclasses import dataclass, field
from typing import Callable

import common
from rivals import Rivals, format_quiet_counts

MIN_RATIO = 0.97
MIB = 1 << 20
# Processes of a C loop in a pair: equal to the rounds that kelvin makes of such a working set.
LOOP_PROCESSES = 5
# Largest factor between core-to-core latencies of CPUs that count as equally far apart. Measured on a Zen 5: 46..75 ns
# within one core complex and 217..235 ns between two.
SAME_DISTANCE_FACTOR = 2.0
STREAM_FIGURE = re.compile(r"^stream\.\S+ best=(\S+) median=(\S+) n=\d+$", re.MULTILINE)
MBW_FIGURE = re.compile(r"^\d+\s+Method: MEMCPY\s.*Copy: (\S+) MiB/s$", re.MULTILINE)
SYSBENCH_FIGURE = re.compile(r"transferred \((\S+) MiB/sec\)")


@dataclass
class Figures:
    """Bytes per second: the median and the best of the samples, or only the mean if a program reports no more.

    `ways` are the core-to-core latencies during the measurement, in nanoseconds.
    """

    median: float | None
    best: float | None
    mean: float | None = None
    ways: list = field(default_factory=list)


class MemoryRivals:
    """The programs that kelvin is compared with, on CPUs from the last allowed one down."""

    def __init__(self, rivals, seconds):
        self.rivals, self.seconds = rivals, seconds
        self.stream_program = f"{rivals.directory.name}/stream_loop"
        flags = ["-O3", "-march=native", "-fopenmp", "-Wall", "-Wextra", "-Werror"]
        source = common.RIVALS / "stream_loop.c"
        common.run([common.require_program("cc", "gcc"), *flags, "-o", self.stream_program, source])

    def core_to_core_latency(self, threads):
        """The current core-to-core latency between the first and the last CPU, in a list; an empty list for one CPU."""
        first = self.rivals.cpu - threads + 1
        return [] if threads == 1 else [self.rivals.run_c_loop("core_to_core", "core_to_core.line", None, first)]

    def measure_with_placement(self, measure, threads, total_bytes):
        """A program's rate, with the core-to-core latency before and after it."""
        latencies_before = self.core_to_core_latency(threads)
        figures = measure(threads, total_bytes)
        figures.ways = latencies_before + self.core_to_core_latency(threads)
        return figures

    def run_pinned(self, threads, *command):
        first = self.rivals.cpu - threads + 1
        return common.run([common.require_program("taskset", "util-linux"), "-c", f"{first}-{self.rivals.cpu}", *command])

    def stream(self, loop, threads, total_bytes):
        """The figures of a loop of stream_loop over a total number of bytes, in several consecutive processes."""
        command = [self.stream_program, self.rivals.cpu, threads, f"{self.seconds / LOOP_PROCESSES:g}", total_bytes, loop]
        outputs = [common.run(command) for _ in range(LOOP_PROCESSES)]
        best_rates, median_rates = zip(*(map(float, STREAM_FIGURE.search(output).groups()) for output in outputs))
        return Figures(statistics.median(median_rates), max(best_rates))

    def mbw(self, _, threads, total_bytes):
        """Copies by memcpy between two arrays; each byte counts twice, as STREAM counts."""
        output = self.run_pinned(threads, "mbw", "-q", "-a", "-t0", "-n", max(int(self.seconds / 0.03), 5), total_bytes // 2 // MIB)
        rates = [2 * MIB * float(rate) for rate in MBW_FIGURE.findall(output)]
        return Figures(statistics.median(rates), max(rates))

    def sysbench(self, operation, threads, total_bytes):
        """Reads or writes of 8 bytes each, in order, over a block for each thread."""
        block_size = total_bytes // threads
        # sysbench ends at the time or at the total size, whichever comes first: the size is never reached.
        output = self.run_pinned(
            threads, "sysbench", "memory", f"--threads={threads}", f"--time={max(round(self.seconds), 1)}",
            f"--memory-block-size={block_size}", "--memory-total-size=1T", "--memory-scope=local",
            f"--memory-oper={operation}", "--memory-access-mode=seq", "run",
        )
        return Figures(None, None, MIB * float(SYSBENCH_FIGURE.search(output)[1]))


@dataclass
class Comparison:
    """One metric of kelvin, on one CPU or all, compared with one program."""

    metric: str
    cpus: str
    program: str
    measure: Callable = common.transient_field()
    pairs: list = field(default_factory=list)
    # Pairs that were skipped because the host had moved the CPUs.
    moved: int = 0

    def add(self, ours, theirs):
        """Adds a pair if the CPUs stayed equally far apart."""
        latencies = ours.ways + theirs.ways if self.cpus == "all" else []
        if latencies and max(latencies) > SAME_DISTANCE_FACTOR * min(latencies):
            self.moved += 1
        else:
            self.pairs.append((ours, theirs))

    def is_unsettled(self):
        """Whether an estimate is above the bound and its interval is not."""
        return any(not is_bound_met and cells[6] != "-" and float(cells[6]) > MIN_RATIO for is_bound_met, cells in self.rows())

    def rows(self):
        """Whether the bound is kept and the row of the table, for each figure that both programs report."""
        kinds = [("median", "median", "median"), ("best", "best", "best"), ("best", "mean", "best / its mean")]
        for ours, theirs, label in kinds:
            pairs = [(getattr(our_figures, ours), getattr(their_figures, theirs)) for our_figures, their_figures in self.pairs]
            if any(their_value is None for _, their_value in pairs):
                continue
            if len(pairs) < common.MIN_PAIRS:
                yield False, [self.metric.removeprefix("mem.bandwidth."), self.cpus, self.program, label, "-", "-", "-", "-", len(pairs), "too few"]
                continue
            our_values, their_values = zip(*pairs)
            ratio, lower, upper = common.paired_ratio(our_values, their_values)
            format_rate = lambda values: f"{statistics.median(values) / 1e9:.2f} GB/s"
            is_bound_met = lower > MIN_RATIO
            yield is_bound_met, [
                self.metric.removeprefix("mem.bandwidth."), self.cpus, self.program, label, format_rate(our_values), format_rate(their_values),
                f"{ratio:.3f}", f"{lower:.3f}..{upper:.3f}", len(pairs),
                "holds" if is_bound_met else "exceeded" if upper < MIN_RATIO else "not settled",
            ]


def comparisons(rivals):
    """Every metric compared with every installed program that does the same."""
    loops = {"copy": "copy", "triad": "triad", "read": "read", "write": "write", "fill": "fill", "zero": "zero"}
    entries = [(name, "C loop", "one all", lambda threads, size, loop=loop: rivals.stream(loop, threads, size)) for name, loop in loops.items()]
    if shutil.which("sysbench"):
        entries += [(name, "sysbench memory", "one all", lambda threads, size, name=name: rivals.sysbench(name, threads, size)) for name in ("read", "write")]
    else:
        common.log("sysbench is not here and is left out; on Debian: apt-get install sysbench")
    if shutil.which("mbw"):
        entries.append(("copy", "mbw, memcpy", "one", lambda threads, size: rivals.mbw(None, threads, size)))
    else:
        common.log("mbw is not here and is left out; on Debian: apt-get install mbw")
    return [
        Comparison(f"mem.bandwidth.{metric}", cpus, program, measure)
        for metric, program, cpu_names, measure in entries
        for cpus in cpu_names.split()
    ]


def kelvin_figures(report):
    """The figures at the largest working set, and its bytes for each CPU, by metric and CPUs."""
    results, latencies = {}, []
    for (metric, _), result in common.requested_results(report).items():
        if not metric.startswith("mem.bandwidth."):
            continue
        outcome = result["outcome"]
        # A quick run skips some sizes.
        if isinstance(outcome, dict) and "skipped" in outcome:
            continue
        summary = outcome.get("measured") or outcome.get("not_known") if isinstance(outcome, dict) else None
        if summary is None:
            raise RuntimeError(f"{metric} was not measured: {outcome}")
        median = summary["headline"] if "measured" in outcome else summary["as_found"]["value"]
        if metric == "mem.bandwidth.core_to_core":
            latencies.append(statistics.median(summary["round_headlines"]))
            continue
        key, size = (metric, result["case"]["cpus"]), result["case"]["bytes"]
        if key not in results or size > results[key][1]:
            results[key] = (Figures(median, summary["distribution"]["best"]), size)
    for figures, _ in results.values():
        figures.ways = latencies
    return results


def parse():
    parser = common.make_pairs_parser(__doc__, seconds=0.5, max_pairs=45)
    return common.parse_pairs(parser)


def measure(arguments):
    kelvin = common.kelvin_program(arguments.kelvin)
    cpus, order = sorted(os.sched_getaffinity(0)), random.Random(arguments.seed)
    rivals = Rivals(common.last_allowed_cpu())
    is_contiguous = cpus == list(range(cpus[0], cpus[-1] + 1))
    cpu_count = len(cpus) if is_contiguous else 1
    if not is_contiguous:
        common.log("the allowed CPUs are not contiguous: compared on one CPU only")
    memory_rivals = MemoryRivals(rivals, arguments.seconds)
    selection = [comparison for comparison in comparisons(memory_rivals) if comparison.cpus == "one" or cpu_count > 1]
    command = [kelvin, "run", "mem.bandwidth.copy", "--quick", "--json", "--no-store", "--cpu", str(rivals.cpu)]
    sizes = {}

    def measure_kelvin():
        results = rivals.measure_in_quiet(lambda: kelvin_figures(json.loads(common.run(command))))
        sizes.update({key: size for key, (_, size) in results.items()})
        return results

    measure_kelvin()
    for index in range(arguments.max_pairs):
        unsettled = [comparison for comparison in selection if len(comparison.pairs) < arguments.pairs or comparison.is_unsettled()]
        if not unsettled:
            break
        their_figures = {}
        order.shuffle(unsettled)
        kelvin_position = order.randrange(len(unsettled) + 1)
        figures = measure_kelvin() if kelvin_position == 0 else None
        for number, comparison in enumerate(unsettled, 1):
            threads = 1 if comparison.cpus == "one" else cpu_count
            total_bytes = sizes[comparison.metric, comparison.cpus] * threads
            their_figures[number] = rivals.measure_in_quiet(lambda: memory_rivals.measure_with_placement(comparison.measure, threads, total_bytes))
            figures = figures or (measure_kelvin() if number == kelvin_position else None)
        for number, comparison in enumerate(unsettled, 1):
            comparison.add(figures[comparison.metric, comparison.cpus][0], their_figures[number])
        common.log(f"round {index + 1}, {len(unsettled)} comparisons")
    return {"cpu": rivals.cpu, "comparisons": selection, "quiet": rivals.quiet()}


def tables(measured):
    load_pairs = lambda pairs: [[Figures(**side) for side in pair] for pair in pairs]
    results = [Comparison(**{**entry, "pairs": load_pairs(entry["pairs"])}) for entry in measured["comparisons"]]
    rows = [row for entry in sorted(results, key=lambda entry: (entry.metric, entry.cpus, entry.program)) for row in entry.rows()]
    header = ["operation", "CPUs", "beside it", "figures", "kelvin", "its figure", "ratio", "90 % interval", "pairs", f"above {MIN_RATIO:g}"]
    table = common.table(header, [cells for _, cells in rows])
    moved_text = f"{sum(entry.moved for entry in results)} pairs on all CPUs were left out, since these had been moved meanwhile."
    text = f"CPU {measured['cpu']} or all.\n\n{table}\n\n{moved_text} {format_quiet_counts(measured['quiet'])}"
    return text, all(is_bound_met for is_bound_met, _ in rows)


if __name__ == "__main__":
    common.main(parse, measure, tables)
