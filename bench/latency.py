#!/usr/bin/env python3
"""Whether kelvin's memory latency equals that of a plain pointer chase.

One round is a kelvin run of mem.latency alone, at every size of --thorough with the smallest number of rounds. In random order around it
runs a loop in C (bench/rivals/chase_loop.c). The loop has working sets of 16 KiB and 256 KiB in base pages, and of 64, 256 and 1024 MiB
in base and in huge pages. Kelvin's figure, as found, and the loop's figure of one round make a pair. The ratio over the pairs is judged:
its Hodges-Lehmann estimate and the exact 90 % interval of the signed-rank test, which must lie within 3 % in the caches and 5 % in memory.

A machine without huge pages, or with too little memory, is compared at the other sets. The skipped sets are reported.

As in the other benchmarks a side counts only if the core was not shared right before and right after it.

Exit status: 0 all agree, 1 at least one does not, 2 it could not be done.
"""
import json
import random
import statistics

import common
from rivals import Rivals, format_quiet_counts

METRIC = "mem.latency"
CACHE_TOLERANCE, MEMORY_TOLERANCE = 0.03, 0.05
KIB, MIB = 1 << 10, 1 << 20
# Working set in bytes, pages, bound.
WORKING_SETS = [
    (16 * KIB, "base", CACHE_TOLERANCE),
    (256 * KIB, "base", CACHE_TOLERANCE),
    *((size * MIB, pages, MEMORY_TOLERANCE) for size in (64, 256, 1024) for pages in ("base", "huge")),
]
# Rounds of a kelvin run: the smallest number that gives a summary.
ROUNDS = 2


def compared_cases(report):
    """The compared cases that were measured, as (case of kelvin, bytes, pages, bound), and the names of the other cases."""
    cases = [(f"bytes={size} pages={pages}", size, pages, bound) for size, pages, bound in WORKING_SETS]
    measured_cases = {case for (metric, case), result in common.requested_results(report).items() if metric == METRIC and "skipped" not in result["outcome"]}
    return [entry for entry in cases if entry[0] in measured_cases], [case for case, *_ in cases if case not in measured_cases]


def parse():
    return common.parse_pairs(common.make_pairs_parser(__doc__, seconds=1))


def measure(arguments):
    kelvin = common.kelvin_program(arguments.kelvin)
    rivals, order = Rivals(common.last_allowed_cpu()), random.Random(arguments.seed)
    command = [kelvin, "run", METRIC, "--thorough", "--rounds", ROUNDS, "--budget", "minimum"]
    command += ["--json", "--no-store", "--cpu", rivals.cpu]
    run_kelvin = lambda: json.loads(common.run(command))
    selection, missing_cases = compared_cases(run_kelvin())
    if not selection:
        raise common.BenchmarkError("this machine measures none of the compared working sets")
    pairs = {case: [] for case, *_ in selection}
    for index in range(arguments.pairs):
        sides = order.sample([None, *selection], 1 + len(selection))
        loop_figures = {}
        for side in sides:
            if side is None:
                report = rivals.measure_in_quiet(run_kelvin)
            else:
                case, size, pages, _ = side
                run_loop = lambda: rivals.run_c_loop("chase_loop", "chase.load", arguments.seconds, str(size), pages)
                loop_figures[case] = rivals.measure_in_quiet(run_loop)
        for case in pairs:
            pairs[case].append((common.find_summary(report, METRIC, case)["as_found"]["value"], loop_figures[case]))
        common.log(f"{index + 1} of {arguments.pairs} rounds")
    bounds = {case: bound for case, _, _, bound in selection}
    return {"cpu": rivals.cpu, "bounds": bounds, "pairs": pairs, "missing": missing_cases, "quiet": rivals.quiet()}


def tables(measured):
    rows, are_bounds_met = [], True
    for case, bound in measured["bounds"].items():
        ours, theirs = zip(*measured["pairs"][case])
        ratio, lower, upper = common.paired_ratio(ours, theirs)
        verdict = common.agreement_verdict(lower, upper, bound)
        are_bounds_met = are_bounds_met and verdict == "agrees"
        format_median = lambda values: common.format_time(statistics.median(values))
        rows.append([case, format_median(ours), format_median(theirs), f"{ratio:.4f}", f"{lower:.4f}..{upper:.4f}", f"{bound * 100:g} %", len(ours), verdict])
    table = common.table(["working set", "kelvin, as found", "C loop", "ratio", "90 % interval", "bound", "pairs", "verdict"], rows)
    missing = measured["missing"]
    missing_text = f"\n\nNot measured on this machine, and so not compared: {', '.join(missing)}." if missing else ""
    return f"CPU {measured['cpu']}.\n\n{table}{missing_text}\n\n{format_quiet_counts(measured['quiet'])}", are_bounds_met


if __name__ == "__main__":
    common.main(parse, measure, tables)
