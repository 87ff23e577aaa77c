#!/usr/bin/env python3
"""How often `kelvin compare` and `kelvin ab` report a change where there is none, and where there is one.

Unchanged: --runs default runs of an area (--names) go one after the other into one fresh store. --pairs random pairs of them are
compared, as a user would do, with all other runs in the store as history. A report counts as false if it calls any figure better or
worse. Bound: 8 of 100.

Slowed: one side is a kelvin whose chain of 64 loads lacks one or three loads, the other the unmodified kelvin. The second is 1.6 or
4.9 % slower in one figure and equal in all others. A try has --sides interleaved runs of each side, which are compared as a whole, with
unchanged runs as history. There are --slowed-tries tries. Bounds: three removed loads are found in 18 of 20 tries. One removed load is
found or "not known", and never "the same". At most 8 in 100 reports call another figure better or worse.

Loaded: `kelvin ab` compares one setting with itself, --loaded-tries times, with a busy loop on every CPU while side B is measured.
Bound: at most 8 of 100 reports call any figure better or worse.

In turn: `kelvin ab` compares one command with itself, and with the same command with 2 % and 5 % more work (a chain of multiplications),
--tries times each. Bounds: 5 % is found in every try. 2 % is found or "not known", and never "the same", at the default threshold of 1 %.
At most 8 in 100 tries without a difference report one.

The time of one `compare` of two runs is reported as well. It must be below a second.

Exit status: 0 every bound was kept, 1 at least one was not, 2 it could not be done.
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

MAX_FALSE_SHARE = 0.08
MAX_COMPARE_SECONDS = 1.0
COMPARE_REPEATS = 5
# Work of a command: some 30 ms, compared with which the start of a program is short.
MULTIPLICATIONS = 30_000_000
ADDED_WORK = (0.0, 0.02, 0.05)
TIME_METRIC = "command.time"
CHANGE_VERDICTS = ("worse", "better")
VERDICTS = (*CHANGE_VERDICTS, "same", "not_known")
# The figure of a chain of dependent loads, the length of the chain, and the numbers of loads that are removed.
SLOWED_PROBE, SLOWED_METRIC = "cpu.latency", "cpu.latency.load"
CHAIN_LENGTH = 64
REMOVED_LOADS = (0, 1, 3)
# A pattern for a load through a register into itself, and a no-operation of the same length: REX.W 8B without displacement, and A64 LDR.
LOAD_INSTRUCTIONS = {
    "x86_64": (rb"([\x48\x4d]\x8b[\x00-\x3f])", bytes.fromhex("0f1f00")),
    "aarch64": (rb"(.[\x00-\x03]\x40\xf9)", bytes.fromhex("1f2003d5")),
}
MIN_SLOWED_SHARE = 0.9
LOADED_AREA = "cpu"


def parse():
    parser = common.make_parser(__doc__)
    parser.add_argument("--names", nargs="+", default=["os"], help="names that each run measures [default: os]")
    parser.add_argument("--runs", type=int, default=16, help="runs [default: %(default)s]")
    parser.add_argument("--pairs", type=int, default=100, help="comparisons of two runs [default: %(default)s]")
    parser.add_argument("--slowed-tries", type=int, default=20, help="tries of each number of removed loads [default: %(default)s]")
    parser.add_argument("--sides", type=int, default=7, help="runs on each side of a slowed try [default: %(default)s]")
    parser.add_argument("--taken", type=int, choices=REMOVED_LOADS, nargs="+", default=list(REMOVED_LOADS), help="numbers of removed loads [default: all]")
    parser.add_argument("--loaded-tries", type=int, default=20, help="tries with load on one side [default: %(default)s]")
    parser.add_argument("--tries", type=int, default=20, help="interleaved tries of each difference [default: %(default)s]")
    parser.add_argument("--seconds", type=float, default=6, help="time of each interleaved try, and of each run of the slowed part [default: %(default)s]")
    parser.add_argument("--loaded-seconds", type=float, default=20, help="time of each try with load [default: %(default)s]")
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
    texts, are_bounds_met = zip(*(PARTS[part][1](results) for part, results in measured.items()))
    return "\n\n".join(texts), all(are_bounds_met)


def report_figures(report):
    """The kept data of a report: metric, verdict and ratio of each figure."""
    return [
        {"metric": figure["metric"]["id"], "verdict": verdict_name(figure), "ratio": figure["ratio"]["value"] if figure["ratio"] else None}
        for figure in report["figures"]
    ]


# ---- runs of an unchanged machine


def measure_unchanged(kelvin, directory, arguments):
    store, random_source = directory / "runs.sqlite", random.Random(arguments.seed)
    for number in range(arguments.runs):
        common.log(f"run {number + 1} of {arguments.runs}")
        common.run([kelvin, "run", *arguments.names, "--store", store], cwd=directory)
    ids = [run["id"] for run in json.loads(common.run([kelvin, "runs", "--store", store, "list", "--json"]))]
    all_pairs = list(itertools.combinations(ids, 2))
    pairs = random_source.sample(all_pairs, min(arguments.pairs, len(all_pairs)))
    reports = [report_figures(compare_runs(kelvin, store, pair)) for pair in pairs]
    seconds = [time_comparison(kelvin, store, pairs[0]) for _ in range(COMPARE_REPEATS)]
    return {"runs": arguments.runs, "names": arguments.names, "reports": reports, "seconds": seconds}


def table_unchanged(results):
    reports, seconds = results["reports"], min(results["seconds"])
    counts = [[count_verdicts(report, verdict) for verdict in VERDICTS] for report in reports]
    false_reports = [report for report in reports if changed_metrics(report)]
    figures = sum(map(sum, counts))
    header = ["comparisons", "say better or worse", "figures", "called better or worse", "the same", "not known"]
    row = [len(reports), len(false_reports), figures, sum(sum(verdicts[:2]) for verdicts in counts)]
    table = common.table(header, [[*row, *(common.format_percent(sum(verdicts[index] for verdicts in counts) / figures) for index in (2, 3))]])
    false_text = "".join(f" Falsely: {', '.join(sorted(set(changed_metrics(report))))}." for report in false_reports)
    text = f"Unchanged, {results['runs']} runs of {' '.join(results['names'])}:\n\n{table}\n\nOne comparison takes {seconds:.2f} s.{false_text}"
    return text, len(false_reports) <= MAX_FALSE_SHARE * len(reports) and seconds < MAX_COMPARE_SECONDS


def compare_runs(kelvin, store, pair):
    return json.loads(common.run([kelvin, "compare", *pair, "--store", store, "--json"]))


def time_comparison(kelvin, store, pair):
    start_time = time.monotonic()
    subprocess.run([kelvin, "compare", *pair, "--store", store], stdout=subprocess.DEVNULL, check=True)
    return time.monotonic() - start_time


def verdict_name(figure):
    """The name of a verdict. The verdict `not_known` also has a reason."""
    verdict = figure["verdict"]
    return verdict if isinstance(verdict, str) else next(iter(verdict))


def count_verdicts(report, verdict):
    return sum(figure["verdict"] == verdict for figure in report)


def changed_metrics(report):
    return [figure["metric"] for figure in report if figure["verdict"] in CHANGE_VERDICTS]


def find_figure(report, metric):
    return next(figure for figure in report if figure["metric"] == metric)


def verdict_counts(figures):
    """The number of each verdict of one figure, and the range of its ratios."""
    ratios = [figure["ratio"] for figure in figures]
    counts = {verdict: count_verdicts(figures, verdict) for verdict in VERDICTS}
    return counts, f"{min(ratios):.4f} to {max(ratios):.4f}"


def are_verdicts_right(difference_index, counts, tries, min_share):
    """Whether the verdicts are right. Index 0 is no difference, 1 a small one that may be missed, and a larger index one to be found."""
    match difference_index:
        case 0:
            return counts["worse"] + counts["better"] <= MAX_FALSE_SHARE * tries
        case 1:
            return counts["same"] == 0 and counts["better"] == 0
        case _:
            return counts["worse"] >= min_share * tries


# ---- one figure that is slower


def measure_slowed(kelvin, directory, arguments):
    """Runs of the unmodified program are the history. The compared sides are runs of a faster program and of the unmodified one."""
    store = directory / "runs.sqlite"
    programs = {removed: faster_program(kelvin, directory, removed) for removed in arguments.taken}
    for number in range(arguments.runs):
        common.log(f"run {number + 1} of {arguments.runs}")
        store_run(kelvin, store, arguments.seconds, "unchanged")
    tries = []
    for removed in arguments.taken:
        for number in range(arguments.slowed_tries):
            common.log(f"{removed} of {CHAIN_LENGTH} removed: try {number + 1} of {arguments.slowed_tries}")
            tries.append({"taken": removed, "report": compare_sides(kelvin, programs[removed], store, arguments)})
    return {"sides": arguments.sides, "runs": arguments.runs, "tries": tries}


def table_slowed(results):
    rows, are_bounds_met, tries = [], True, results["tries"]
    for removed in sorted({entry["taken"] for entry in tries}):
        figures = [find_figure(entry["report"], SLOWED_METRIC) for entry in tries if entry["taken"] == removed]
        counts, ratios = verdict_counts(figures)
        are_bounds_met &= are_verdicts_right(REMOVED_LOADS.index(removed), counts, len(figures), MIN_SLOWED_SHARE)
        rows.append([removed, f"{CHAIN_LENGTH / (CHAIN_LENGTH - removed):.4f}", len(figures), *counts.values(), ratios])
    other_metrics = [[metric for metric in changed_metrics(entry["report"]) if metric != SLOWED_METRIC] for entry in tries]
    false_reports = [", ".join(metrics) for metrics in other_metrics if metrics]
    table = common.table(["taken out", "true ratio", "tries", "worse", "better", "the same", "not known", "ratios"], rows)
    text = f"Slowed, {SLOWED_METRIC}, {results['sides']} runs on either side, {results['runs']} to learn from:\n\n{table}\n\n"
    text += f"{len(false_reports)} of {len(tries)} reports call another figure better or worse{': ' if false_reports else ''}{'; '.join(false_reports)}."
    return text, are_bounds_met and len(false_reports) <= MAX_FALSE_SHARE * len(tries)


def faster_program(kelvin, directory, removed):
    """A copy of the program in which the last loads of each chain are overwritten by no-operations."""
    program = bytearray(kelvin.read_bytes())
    load_pattern, no_operation = LOAD_INSTRUCTIONS[os.uname().machine]
    chains = list(re.finditer(load_pattern + rb"\1{%d}" % (CHAIN_LENGTH - 1), program, re.DOTALL))
    if not chains:
        raise common.BenchmarkError(f"{kelvin} has no chain of {CHAIN_LENGTH} equal loads")
    for chain in chains:
        program[chain.end() - len(no_operation) * removed : chain.end()] = no_operation * removed
    path = directory / f"kelvin-{removed}"
    path.write_bytes(program)
    path.chmod(0o755)
    return path


def compare_sides(kelvin, faster_kelvin, store, arguments):
    """Interleaved runs of the faster and of the unmodified program, compared by the latter. None of them stays in the store."""
    store_copy = store.with_name("own.sqlite")
    shutil.copy(store, store_copy)
    for _ in range(arguments.sides):
        store_run(faster_kelvin, store_copy, arguments.seconds, "faster")
        store_run(kelvin, store_copy, arguments.seconds, "whole")
    report = report_figures(compare_runs(kelvin, store_copy, ["tag:side=faster", "tag:side=whole"]))
    for path in store.parent.glob("own.sqlite*"):
        path.unlink()
    return report


def store_run(program, store, seconds, side):
    common.run([program, "run", SLOWED_PROBE, "--budget", f"{seconds}s", "--tag", f"side={side}", "--store", store])


# ---- load on one side


def measure_loaded(kelvin, directory, arguments):
    """The environment of a process tells which side it measures."""
    budget_flags = ["--budget", f"{arguments.loaded_seconds}s"]
    sides = ["--a", "env.KELVIN_BENCH_SIDE=a", "--b", "env.KELVIN_BENCH_SIDE=b"]
    reports, busy_shares = [], []
    for number in range(arguments.loaded_tries):
        common.log(f"with load: try {number + 1} of {arguments.loaded_tries}")
        with busy_during_process(b"KELVIN_BENCH_SIDE=b") as busy_share:
            reports.append(report_figures(json.loads(common.run([kelvin, "ab", LOADED_AREA, *sides, *budget_flags, "--json"], cwd=directory))))
        busy_shares.append(busy_share())
    return {"reports": reports, "held": busy_shares}


def table_loaded(results):
    reports = results["reports"]
    counts = [[count_verdicts(report, verdict) for verdict in VERDICTS] for report in reports]
    false_reports = [report for report in reports if changed_metrics(report)]
    table = common.table(["tries", "say better or worse", "worse", "better", "the same", "not known"], [[len(counts), len(false_reports), *map(sum, zip(*counts))]])
    false_text = "".join(f"\n\nFalsely: {', '.join(changed_metrics(report))}." for report in false_reports)
    text = f"Loaded, {LOADED_AREA}, a busy loop on each CPU while B is measured (in each try {common.format_percent(min(results['held']))} of the time or more):\n\n{table}{false_text}"
    return text, len(false_reports) <= MAX_FALSE_SHARE * len(counts)


@contextmanager
def busy_during_process(mark):
    """Keeps every CPU busy while a process has this mark in its environment. Yields a function that returns that share of the time."""
    stop_event, busy_for, start_time = threading.Event(), [0.0], time.monotonic()
    loops = []

    def watch_processes():
        while not stop_event.wait(0.002):
            if bool(loops) != is_process_marked(mark):
                if loops:
                    stop_loops()
                else:
                    busy_for.append(-time.monotonic())
                    loops.extend(subprocess.Popen(["taskset", "-c", str(cpu), "sh", "-c", "while :; do :; done"]) for cpu in os.sched_getaffinity(0))

    def stop_loops():
        busy_for[-1] += time.monotonic()
        for loop in loops:
            loop.kill()
            loop.wait()
        loops.clear()

    watcher = threading.Thread(target=watch_processes)
    watcher.start()
    try:
        yield lambda: sum(busy_for) / (time.monotonic() - start_time)
    finally:
        stop_event.set()
        watcher.join()
        if loops:
            stop_loops()


def is_process_marked(mark):
    for environment in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in environment.read_bytes():
                return True
        except OSError:
            continue  # It has ended, or is a kernel thread.
    return False


# ---- interleaved commands


def measure_interleaved(kelvin, directory, arguments):
    tries = arguments.tries
    program = common.build_rival("work_loop", directory)
    results = []
    for added_work in ADDED_WORK:
        for number in range(tries):
            common.log(f"{added_work:.0%} more work: try {number + 1} of {tries}")
            results.append({"more": added_work, **compare_commands(kelvin, program, added_work, arguments.seconds)})
    return results


def table_interleaved(results):
    rows, are_bounds_met = [], True
    for added_work in ADDED_WORK:
        figures = [figure for figure in results if figure["more"] == added_work]
        counts, ratios = verdict_counts(figures)
        are_bounds_met &= are_verdicts_right(ADDED_WORK.index(added_work), counts, len(figures), 1.0)
        rows.append([common.format_percent(added_work), len(figures), *counts.values(), ratios])
    table = common.table(["more work", "tries", "worse", "better", "the same", "not known", "ratios"], rows)
    return f"In turn, the time of a command:\n\n{table}", are_bounds_met


def compare_commands(kelvin, program, added_work, seconds):
    commands = [f"{program} {round(MULTIPLICATIONS * (1 + factor))}" for factor in (0.0, added_work)]
    budget_flags = ["--budget", f"{seconds}s"]
    report = json.loads(common.run([kelvin, "ab", "--a-cmd", commands[0], "--b-cmd", commands[1], *budget_flags, "--json"]))
    return find_figure(report_figures(report), TIME_METRIC)


# The functions that measure each part and make its table.
PARTS = {
    "unchanged": (measure_unchanged, table_unchanged),
    "slowed": (measure_slowed, table_slowed),
    "loaded": (measure_loaded, table_loaded),
    "in_turn": (measure_interleaved, table_interleaved),
}

if __name__ == "__main__":
    common.main(parse, measure, tables)
