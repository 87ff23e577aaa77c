#!/usr/bin/env python3
"""How often `kelvin compare` and `kelvin ab` say that something became better or worse where nothing did, and where something did.

Unchanged: --runs default runs of an area (--names), one after the other into one fresh store; of --pairs of them, drawn at random, each
is compared with the other as a user would, who has all other runs in the store to learn from. A report counts as false if it calls any
figure at all better or worse. Bound: 8 of 100.

Slowed: --slowed-tries times the machine is measured --sides times, in turn, by a kelvin in whose chain of 64 loads one or three are taken
out and by the one with all of them, which is 1.6 and 4.9 % slower in one figure and equal in all others; the runs of either side are
compared as a whole, with unchanged ones to learn from. Bounds: three more of 61 are found in 18 of 20, one more of 63 is found or "not
known" and never "the same"; at most 8 in 100 of the reports call another figure better or worse.

Loaded: --loaded-tries times `kelvin ab` of one setting against itself, with a busy loop on every CPU while side B is measured. Bound: 8 of
100 say that anything is better or worse.

In turn: `kelvin ab` of one command against itself, and against the same with 2 % and 5 % more work (a chain of multiplications),
--tries times each. Bounds: 5 % is found in every try, 2 % is found or "not known" and never "the same" at the usual threshold of 1 %, and
of the tries without a difference at most 8 in 100 say that there is one.

How long `compare` takes on two of the runs is said as well; it is to be below a second.

Exit status: 0 every bound was kept, 1 one was not, 2 it could not be done.
"""
import itertools
import json
import os
import random
import re
import shutil
import subprocess
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import common

FALSE_SHARE = 0.08
BOUND_SECONDS = 1.0
REPEATS = 5
# Work of a command: some 30 ms, beside which the start of a program is little.
MULTIPLICATIONS = 30_000_000
ADDED_WORK = (0.0, 0.02, 0.05)
TIME = "command.time"
CHANGE_VERDICTS = ("worse", "better")
VERDICTS = (*CHANGE_VERDICTS, "same", "not_known")
# The figure of a chain of so many loads, of which so many are taken out.
SLOWED_PROBE, SLOWED_METRIC = "cpu.latency", "cpu.latency.load"
CHAIN = 64
REMOVED_LOADS = (0, 1, 3)
# A load by a register into itself, and what does nothing and is as long: REX.W 8B without displacement, and A64's LDR.
LOADS = {
    "x86_64": (rb"([\x48\x4d]\x8b[\x00-\x3f])", bytes.fromhex("0f1f00")),
    "aarch64": (rb"(.[\x00-\x03]\x40\xf9)", bytes.fromhex("1f2003d5")),
}
SLOWED_FOUND = 0.9
LOADED_AREA = "cpu"


def parse():
    parser = common.make_parser(__doc__)
    parser.add_argument("--names", nargs="+", default=["os"], help="what each run measures [default: os]")
    parser.add_argument("--runs", type=int, default=16, help="runs [default: %(default)s]")
    parser.add_argument("--pairs", type=int, default=100, help="comparisons of two of them [default: %(default)s]")
    parser.add_argument("--slowed-tries", type=int, default=20, help="tries of each number taken out [default: %(default)s]")
    parser.add_argument("--sides", type=int, default=7, help="runs on either side of these [default: %(default)s]")
    parser.add_argument("--taken", type=int, choices=REMOVED_LOADS, nargs="+", default=list(REMOVED_LOADS), help="how many loads are taken out [default: all]")
    parser.add_argument("--loaded-tries", type=int, default=20, help="tries beside load on one side [default: %(default)s]")
    parser.add_argument("--tries", type=int, default=20, help="tries of each difference in turn [default: %(default)s]")
    parser.add_argument("--seconds", type=float, default=6, help="time of each try in turn, and of each run of the slowed part [default: %(default)s]")
    parser.add_argument("--loaded-seconds", type=float, default=20, help="time of each try beside load [default: %(default)s]")
    parser.add_argument("--only", choices=sorted(PARTS), nargs="+", default=list(PARTS), help="which parts [default: all]")
    arguments = parser.parse_args()
    if arguments.runs < 2 or min(arguments.tries, arguments.slowed_tries, arguments.loaded_tries, arguments.sides) < 1:
        parser.error("--runs must be at least 2, and --sides and all numbers of tries at least 1")
    return arguments


def measure(arguments):
    kelvin, results = common.kelvin_program(arguments.kelvin), {}
    for part in arguments.only:
        with tempfile.TemporaryDirectory() as directory:
            results[part] = PARTS[part][0](kelvin, Path(directory), arguments)
    return results


def tables(measured):
    texts, kept = zip(*(PARTS[part][1](results) for part, results in measured.items()))
    return "\n\n".join(texts), all(kept)


def report_figures(report):
    """What is kept of a report: of each figure its metric, verdict and ratio."""
    return [{"metric": one["metric"]["id"], "verdict": verdict_name(one), "ratio": one["ratio"]["value"] if one["ratio"] else None} for one in report["figures"]]


# ---- runs of an unchanged machine


def measure_unchanged(kelvin, directory, arguments):
    store, draw = directory / "runs.sqlite", random.Random(arguments.seed)
    for done in range(arguments.runs):
        common.log(f"run {done + 1} of {arguments.runs}")
        common.run([kelvin, "run", *arguments.names, "--store", store, "--no-report"], cwd=directory)
    ids = [run["id"] for run in json.loads(common.run([kelvin, "runs", "--store", store, "list", "--json"]))]
    all_pairs = list(itertools.combinations(ids, 2))
    pairs = draw.sample(all_pairs, min(arguments.pairs, len(all_pairs)))
    reports = [report_figures(compare_runs(kelvin, store, pair)) for pair in pairs]
    seconds = [time_comparison(kelvin, store, pairs[0]) for _ in range(REPEATS)]
    return {"runs": arguments.runs, "names": arguments.names, "reports": reports, "seconds": seconds}


def table_unchanged(results):
    reports, seconds = results["reports"], min(results["seconds"])
    counts = [[count(report, verdict) for verdict in VERDICTS] for report in reports]
    false = [report for report in reports if changed_metrics(report)]
    figures = sum(map(sum, counts))
    header = ["comparisons", "say better or worse", "figures", "called better or worse", "the same", "not known"]
    row = [len(reports), len(false), figures, sum(sum(one[:2]) for one in counts)]
    table = common.table(header, [[*row, *(common.percent(sum(one[at] for one in counts) / figures) for at in (2, 3))]])
    words = "".join(f" Falsely: {', '.join(sorted(set(changed_metrics(report))))}." for report in false)
    text = f"Unchanged, {results['runs']} runs of {' '.join(results['names'])}:\n\n{table}\n\nOne comparison takes {seconds:.2f} s.{words}"
    return text, len(false) <= FALSE_SHARE * len(reports) and seconds < BOUND_SECONDS


def compare_runs(kelvin, store, pair):
    return json.loads(common.run([kelvin, "compare", *pair, "--store", store, "--json"]))


def time_comparison(kelvin, store, pair):
    begun = time.monotonic()
    subprocess.run([kelvin, "compare", *pair, "--store", store], stdout=subprocess.DEVNULL, check=True)
    return time.monotonic() - begun


def verdict_name(figure):
    """The name of a verdict; what is not known has a reason beside it."""
    verdict = figure["verdict"]
    return verdict if isinstance(verdict, str) else next(iter(verdict))


def count(report, verdict):
    return sum(figure["verdict"] == verdict for figure in report)


def changed_metrics(report):
    return [figure["metric"] for figure in report if figure["verdict"] in CHANGE_VERDICTS]


def find_figure(report, metric):
    return next(figure for figure in report if figure["metric"] == metric)


def verdict_counts(figures):
    """How often each verdict was said of one figure, and between which ratios."""
    ratios = [figure["ratio"] for figure in figures]
    counts = {verdict: count(figures, verdict) for verdict in VERDICTS}
    return counts, f"{min(ratios):.4f} to {max(ratios):.4f}"


def is_right(difference, counts, tries, least_found):
    """Whether the verdicts are right where there is no difference, a small one that may be missed, or one that must be found so often."""
    match difference:
        case 0:
            return counts["worse"] + counts["better"] <= FALSE_SHARE * tries
        case 1:
            return counts["same"] == 0 and counts["better"] == 0
        case _:
            return counts["worse"] >= least_found * tries


# ---- one figure that is slower


def measure_slowed(kelvin, directory, arguments):
    """Runs of the program as it is are learnt from; what is compared with one of them was measured by a faster one."""
    store = directory / "runs.sqlite"
    programs = {taken: faster_program(kelvin, directory, taken) for taken in arguments.taken}
    for done in range(arguments.runs):
        common.log(f"run {done + 1} of {arguments.runs}")
        store_run(kelvin, store, arguments.seconds, "unchanged")
    tries = []
    for taken in arguments.taken:
        for done in range(arguments.slowed_tries):
            common.log(f"{taken} of {CHAIN} taken out: try {done + 1} of {arguments.slowed_tries}")
            tries.append({"taken": taken, "report": compare_sides(kelvin, programs[taken], store, arguments)})
    return {"sides": arguments.sides, "runs": arguments.runs, "tries": tries}


def table_slowed(results):
    rows, kept, tries = [], True, results["tries"]
    for taken in sorted({one["taken"] for one in tries}):
        figures = [find_figure(one["report"], SLOWED_METRIC) for one in tries if one["taken"] == taken]
        counts, ratios = verdict_counts(figures)
        kept &= is_right(REMOVED_LOADS.index(taken), counts, len(figures), SLOWED_FOUND)
        rows.append([taken, f"{CHAIN / (CHAIN - taken):.4f}", len(figures), *counts.values(), ratios])
    others = [[one for one in changed_metrics(one["report"]) if one != SLOWED_METRIC] for one in tries]
    wrong = [", ".join(one) for one in others if one]
    table = common.table(["taken out", "true ratio", "tries", "worse", "better", "the same", "not known", "ratios"], rows)
    text = f"Slowed, {SLOWED_METRIC}, {results['sides']} runs on either side, {results['runs']} to learn from:\n\n{table}\n\n"
    text += f"{len(wrong)} of {len(tries)} reports call another figure better or worse{': ' if wrong else ''}{'; '.join(wrong)}."
    return text, kept and len(wrong) <= FALSE_SHARE * len(tries)


def faster_program(kelvin, directory, taken):
    """The program with so many instructions less in its chain of loads, in which the last are overwritten by others that do nothing."""
    program = bytearray(kelvin.read_bytes())
    equal, nothing = LOADS[os.uname().machine]
    chains = list(re.finditer(equal + rb"\1{%d}" % (CHAIN - 1), program, re.DOTALL))
    if not chains:
        raise common.Missing(f"{kelvin} has no chain of {CHAIN} equal loads")
    for chain in chains:
        program[chain.end() - len(nothing) * taken : chain.end()] = nothing * taken
    path = directory / f"kelvin-{taken}"
    path.write_bytes(program)
    path.chmod(0o755)
    return path


def compare_sides(kelvin, quicker, store, arguments):
    """Runs of the faster program and of the whole one in turn, compared by the whole one; none of them stays in the store."""
    own = store.with_name("own.sqlite")
    shutil.copy(store, own)
    for _ in range(arguments.sides):
        store_run(quicker, own, arguments.seconds, "faster")
        store_run(kelvin, own, arguments.seconds, "whole")
    report = report_figures(compare_runs(kelvin, own, ["tag:side=faster", "tag:side=whole"]))
    for path in store.parent.glob("own.sqlite*"):
        path.unlink()
    return report


def store_run(program, store, seconds, side):
    common.run([program, "run", SLOWED_PROBE, "--budget", f"{seconds}s", "--tag", f"side={side}", "--store", store, "--no-report"])


# ---- load on one side


def measure_loaded(kelvin, directory, arguments):
    """Which side a process measures is told by its environment."""
    time_of_it = ["--budget", f"{arguments.loaded_seconds}s"]
    sides = ["--a", "env.KELVIN_BENCH_SIDE=a", "--b", "env.KELVIN_BENCH_SIDE=b"]
    reports, busy_shares = [], []
    for done in range(arguments.loaded_tries):
        common.log(f"beside load: try {done + 1} of {arguments.loaded_tries}")
        with busy_while_marked(b"KELVIN_BENCH_SIDE=b") as share:
            reports.append(report_figures(json.loads(common.run([kelvin, "ab", LOADED_AREA, *sides, *time_of_it, "--json"], cwd=directory))))
        busy_shares.append(share())
    return {"reports": reports, "held": busy_shares}


def table_loaded(results):
    reports = results["reports"]
    counts = [[count(report, verdict) for verdict in VERDICTS] for report in reports]
    false = [report for report in reports if changed_metrics(report)]
    table = common.table(["tries", "say better or worse", "worse", "better", "the same", "not known"], [[len(counts), len(false), *map(sum, zip(*counts))]])
    words = "".join(f"\n\nFalsely: {', '.join(changed_metrics(report))}." for report in false)
    text = f"Loaded, {LOADED_AREA}, a busy loop on each CPU while B is measured (in each try {common.percent(min(results['held']))} of the time or more):\n\n{table}{words}"
    return text, len(false) <= FALSE_SHARE * len(counts)


@contextmanager
def busy_while_marked(mark):
    """Keeps every CPU busy while there is a process with this in its environment; tells for what share of the time there was."""
    over, busy_for, begun = threading.Event(), [0.0], time.monotonic()
    loops = []

    def watch():
        while not over.wait(0.002):
            if bool(loops) != any_marked_process(mark):
                if loops:
                    stop()
                else:
                    busy_for.append(-time.monotonic())
                    loops.extend(subprocess.Popen(["taskset", "-c", str(cpu), "sh", "-c", "while :; do :; done"]) for cpu in os.sched_getaffinity(0))

    def stop():
        busy_for[-1] += time.monotonic()
        for loop in loops:
            loop.kill()
            loop.wait()
        loops.clear()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield lambda: sum(busy_for) / (time.monotonic() - begun)
    finally:
        over.set()
        watcher.join()
        if loops:
            stop()


def any_marked_process(mark):
    for environment in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in environment.read_bytes():
                return True
        except OSError:
            continue  # It has ended, or is of the kernel.
    return False


# ---- commands in turn


def measure_interleaved(kelvin, directory, arguments):
    tries = arguments.tries
    program = common.build_rival("work_loop", directory)
    results = []
    for more in ADDED_WORK:
        for done in range(tries):
            common.log(f"{more:.0%} more work: try {done + 1} of {tries}")
            results.append({"more": more, **compare_commands(kelvin, program, more, arguments.seconds)})
    return results


def table_interleaved(results):
    rows, kept = [], True
    for more in ADDED_WORK:
        figures = [one for one in results if one["more"] == more]
        counts, ratios = verdict_counts(figures)
        kept &= is_right(ADDED_WORK.index(more), counts, len(figures), 1.0)
        rows.append([common.percent(more), len(figures), *counts.values(), ratios])
    table = common.table(["more work", "tries", "worse", "better", "the same", "not known", "ratios"], rows)
    return f"In turn, the time of a command:\n\n{table}", kept


def compare_commands(kelvin, program, more, seconds):
    commands = [f"{program} {round(MULTIPLICATIONS * (1 + share))}" for share in (0.0, more)]
    time_of_it = ["--budget", f"{seconds}s"]
    report = json.loads(common.run([kelvin, "ab", "--a-cmd", commands[0], "--b-cmd", commands[1], *time_of_it, "--json"]))
    return find_figure(report_figures(report), TIME)


# How each is measured, and the table of it.
PARTS = {
    "unchanged": (measure_unchanged, table_unchanged),
    "slowed": (measure_slowed, table_slowed),
    "loaded": (measure_loaded, table_loaded),
    "in_turn": (measure_interleaved, table_interleaved),
}

if __name__ == "__main__":
    common.main(parse, measure, tables)
