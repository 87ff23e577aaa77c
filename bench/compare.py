#!/usr/bin/env python3
"""How often `kelvin compare` and `kelvin ab` say that something became better or worse where nothing did, and where something did.

Unchanged: --runs default runs of an area (--names), one after the other into one fresh store; of --pairs of them, drawn at random, each
is compared with the other as a user would, who has all other runs in the store to learn from. A report counts as false if it calls any
figure at all better or worse. Bound: 8 of 100.

In turn: `kelvin ab` of one command against itself, and against the same with 2 % and 5 % more work (a chain of multiplications),
--tries times each. Bounds: 5 % is found in every try, 2 % is found or "not known" and never "the same" at the usual threshold of 1 %, and
of the tries without a difference at most 8 in 100 say that there is one.

How long `compare` takes on two of the runs is said as well; it is to be below a second.

Exit status: 0 every bound was kept, 1 one was not, 2 it could not be done.
"""
import itertools
import json
import random
import subprocess
import tempfile
import time
from pathlib import Path

import common

FALSE_SHARE = 0.08
BOUND_SECONDS = 1.0
REPEATS = 5
# Work of a command: some 30 ms, beside which the start of a program is little.
MULTIPLICATIONS = 30_000_000
MORE_WORK = (0.0, 0.02, 0.05)
TIME = "command.time"
CHANGED = ("worse", "better")


def main():
    parser = common.parser_of(__doc__)
    parser.add_argument("--names", nargs="+", default=["os"], help="what each run measures [default: os]")
    parser.add_argument("--runs", type=int, default=16, help="runs [default: %(default)s]")
    parser.add_argument("--pairs", type=int, default=100, help="comparisons of two of them [default: %(default)s]")
    parser.add_argument("--tries", type=int, default=20, help="tries of each difference in turn [default: %(default)s]")
    parser.add_argument("--seconds", type=float, default=6, help="time of each of these [default: %(default)s]")
    arguments = parser.parse_args()
    if arguments.runs < 2 or arguments.tries < 1:
        parser.error("--runs must be at least 2, and --tries at least 1")
    kelvin = common.kelvin_program(arguments.kelvin)
    with tempfile.TemporaryDirectory() as directory:
        kept = [unchanged(kelvin, Path(directory), arguments), in_turn(kelvin, Path(directory), arguments)]
    return all(kept)


# ---- runs of an unchanged machine


def unchanged(kelvin, directory, arguments):
    store, draw = directory / "runs.sqlite", random.Random(arguments.seed)
    for done in range(arguments.runs):
        common.say(f"run {done + 1} of {arguments.runs}")
        common.run([kelvin, "run", *arguments.names, "--store", store, "--no-report"], cwd=directory)
    ids = [run["id"] for run in json.loads(common.run([kelvin, "runs", "--store", store, "list", "--json"]))]
    all_pairs = list(itertools.combinations(ids, 2))
    pairs = draw.sample(all_pairs, min(arguments.pairs, len(all_pairs)))
    reports = [compared(kelvin, store, pair) for pair in pairs]
    counts = [[count(report, verdict) for verdict in (*CHANGED, "same", "not_known")] for report in reports]
    false = [report for report in reports if any(count(report, verdict) for verdict in CHANGED)]
    figures = sum(map(sum, counts))
    print(f"Unchanged: {common.describe_machine()}; {arguments.runs} runs of {' '.join(arguments.names)}\n")
    header = ["comparisons", "say better or worse", "figures", "called better or worse", "the same", "not known"]
    row = [len(pairs), len(false), figures, sum(sum(one[:2]) for one in counts)]
    print(common.table(header, [[*row, *(common.percent(sum(one[at] for one in counts) / figures) for at in (2, 3))]]))
    for report in false:
        print(f"{report['base']['name']} and {report['other']['name']}: {', '.join(sorted(set(changed(report))))}")
    seconds = min(timed(kelvin, store, pairs[0]) for _ in range(REPEATS))
    print(f"\none comparison takes {seconds:.2f} s\n")
    return len(false) <= FALSE_SHARE * len(pairs) and seconds < BOUND_SECONDS


def compared(kelvin, store, pair):
    return json.loads(common.run([kelvin, "compare", *pair, "--store", store, "--json"]))


def timed(kelvin, store, pair):
    begun = time.monotonic()
    subprocess.run([kelvin, "compare", *pair, "--store", store], stdout=subprocess.DEVNULL, check=True)
    return time.monotonic() - begun


def verdict_of(figure):
    """The name of a verdict; what is not known has a reason beside it."""
    verdict = figure["verdict"]
    return verdict if isinstance(verdict, str) else next(iter(verdict))


def count(report, verdict):
    return sum(verdict_of(figure) == verdict for figure in report["figures"])


def changed(report):
    return [figure["metric"]["id"] for figure in report["figures"] if verdict_of(figure) in CHANGED]


# ---- commands in turn


def in_turn(kelvin, directory, arguments):
    tries = arguments.tries
    program = common.build_rival("work_loop", directory)
    rows, kept = [], True
    for more in MORE_WORK:
        found = []
        for done in range(tries):
            common.say(f"{more:.0%} more work: try {done + 1} of {tries}")
            found.append(time_in_turn(kelvin, program, more, arguments.seconds))
        said = {verdict: sum(verdict_of(one) == verdict for one in found) for verdict in (*CHANGED, "same", "not_known")}
        kept &= holds(more, said, tries)
        ratios = sorted(one["ratio"]["value"] for one in found)
        rows.append([common.percent(more), tries, *said.values(), f"{ratios[0]:.4f} to {ratios[-1]:.4f}"])
    print(f"In turn: {common.describe_machine()}; the time of a command\n")
    print(common.table(["more work", "tries", "worse", "better", "the same", "not known", "ratios"], rows))
    return kept


def time_in_turn(kelvin, program, more, seconds):
    commands = [f"{program} {round(MULTIPLICATIONS * (1 + share))}" for share in (0.0, more)]
    time_of_it = ["--budget", f"{seconds}s"]
    report = json.loads(common.run([kelvin, "ab", "--a-cmd", commands[0], "--b-cmd", commands[1], *time_of_it, "--json"]))
    return next(figure for figure in report["figures"] if figure["metric"]["id"] == TIME)


def holds(more, said, tries):
    if more == 0.0:
        return said["worse"] + said["better"] <= FALSE_SHARE * tries
    if more < 0.05:
        return said["same"] == 0 and said["better"] == 0
    return said["worse"] == tries


if __name__ == "__main__":
    common.main(main)
