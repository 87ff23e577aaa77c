#!/usr/bin/env python3
"""Whether kelvin's memory latency is that of a plain pointer chase.

One round is a kelvin run of mem.latency alone, at every size of --thorough in as few rounds as it takes, and, in random order around
it, a loop in C (bench/rivals/chase_loop.c) over working sets of 16 KiB and 256 KiB in base pages and of 64, 256 and 1024 MiB in base
and in huge pages. Kelvin's figure, as found, and the loop's of one round make a pair; the ratio over the pairs, its Hodges-Lehmann
estimate and the exact 90 % interval of the signed-rank test, must lie within 3 % in the caches and 5 % in memory.

A machine without huge pages, or without the memory for such a set, is compared at the others; which were left out is said.

As elsewhere here a side counts only if the core was not shared right before and right after it.

Exit status: 0 all agree, 1 one does not, 2 it could not be done.
"""
import json
import random
import statistics

import common
from rivals import Rivals, quiet_summary

METRIC = "mem.latency"
IN_CACHE, IN_MEMORY = 0.03, 0.05
KIB, MIB = 1 << 10, 1 << 20
# Working set in bytes, pages, bound.
SETS = [
    (16 * KIB, "base", IN_CACHE),
    (256 * KIB, "base", IN_CACHE),
    *((size * MIB, pages, IN_MEMORY) for size in (64, 256, 1024) for pages in ("base", "huge")),
]
# Rounds of a kelvin run: the least of which it makes a summary.
ROUNDS = 2


def sets(report):
    """The compared cases that were measured, as (case of kelvin, bytes, pages, bound), and the others' names."""
    cases = [(f"bytes={size} pages={pages}", size, pages, bound) for size, pages, bound in SETS]
    found = {case for (metric, case), result in common.results(report).items() if metric == METRIC and "skipped" not in result["outcome"]}
    return [one for one in cases if one[0] in found], [case for case, *_ in cases if case not in found]


def parse():
    return common.parse_pairs(common.make_pairs_parser(__doc__, seconds=1))


def measure(arguments):
    kelvin = common.kelvin_program(arguments.kelvin)
    rivals, order = Rivals(common.last_allowed_cpu()), random.Random(arguments.seed)
    command = [kelvin, "run", METRIC, "--thorough", "--rounds", ROUNDS, "--budget", "minimum"]
    command += ["--json", "--no-store", "--no-report", "--cpu", rivals.cpu]
    run = lambda: json.loads(common.run(command))
    chosen, missing = sets(run())
    if not chosen:
        raise common.Missing("this machine measures none of the compared working sets")
    pairs = {case: [] for case, *_ in chosen}
    for done in range(arguments.pairs):
        sides = order.sample([None, *chosen], 1 + len(chosen))
        theirs = {}
        for side in sides:
            if side is None:
                report = rivals.measure_in_quiet(run)
            else:
                case, size, pages, _ = side
                loop = lambda: rivals.c_loop("chase_loop", "chase.load", arguments.seconds, str(size), pages)
                theirs[case] = rivals.measure_in_quiet(loop)
        for case in pairs:
            pairs[case].append((common.find_summary(report, METRIC, case)["as_found"]["value"], theirs[case]))
        common.log(f"{done + 1} of {arguments.pairs} rounds")
    bounds = {case: bound for case, _, _, bound in chosen}
    return {"cpu": rivals.cpu, "bounds": bounds, "pairs": pairs, "missing": missing, "quiet": rivals.quiet()}


def tables(measured):
    rows, kept = [], True
    for case, bound in measured["bounds"].items():
        ours, others = zip(*measured["pairs"][case])
        ratio, lower, upper = common.ratio_of_pairs(ours, others)
        verdict = common.agreement(lower, upper, bound)
        kept = kept and verdict == "agrees"
        text = lambda values: common.time_text(statistics.median(values))
        rows.append([case, text(ours), text(others), f"{ratio:.4f}", f"{lower:.4f}..{upper:.4f}", f"{bound * 100:g} %", len(ours), verdict])
    table = common.table(["working set", "kelvin, as found", "C loop", "ratio", "90 % interval", "bound", "pairs", "verdict"], rows)
    missing = measured["missing"]
    words = f"\n\nNot measured on this machine, and so not compared: {', '.join(missing)}." if missing else ""
    return f"CPU {measured['cpu']}.\n\n{table}{words}\n\n{quiet_summary(measured['quiet'])}", kept


if __name__ == "__main__":
    common.main(parse, measure, tables)
