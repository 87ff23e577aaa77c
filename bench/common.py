"""Shared by the benchmarks: running kelvin and the tools beside it, statistics of pairs, tables in Markdown, and what is kept.

Python's standard library only. Times in nanoseconds.
"""
import argparse
import dataclasses
import json
import lzma
import math
import os
import platform
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RIVALS = ROOT / "bench" / "rivals"
RESULTS = ROOT / "bench" / "results"


class Missing(Exception):
    """Something that a benchmark needs is not here."""


# ---- running things


def log(line):
    """A line of progress, on standard error: standard output is for the table."""
    print(line, file=sys.stderr, flush=True)


def require_program(program, package):
    """The path of a program that must be installed."""
    path = shutil.which(program)
    if path is None:
        raise Missing(f"{program} is not here; on Debian: apt-get install {package}")
    return path


def run(command, timeout=600, **options):
    """The standard output of a command that must succeed."""
    completed = subprocess.run(
        [str(word) for word in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        timeout=timeout,
        **options,
    )
    if completed.returncode != 0:
        words = " ".join(map(str, command))
        last = (completed.stderr.strip() or completed.stdout.strip()).splitlines()[-1:]
        raise RuntimeError(f"{words}: exit status {completed.returncode}: {' '.join(last)}")
    return completed.stdout


def make_parser(description, is_series=False):
    """A parser of the arguments that every benchmark has; a series can be measured in several pieces."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kelvin", type=Path, default=ROOT / "target/release/kelvin", help="the program [default: %(default)s]")
    parser.add_argument("--seed", type=int, default=1, help="seed of the random orders [default: %(default)s]")
    parser.add_argument("--keep", nargs="?", const="", metavar="KIND", help="keep what is measured, in bench/results/NAME-DATE-KIND.json.xz [KIND: the arguments]")
    parser.add_argument("--from", dest="source", type=Path, metavar="FILE", help="make the tables of a kept measurement again; measure nothing")
    if is_series:
        parser.add_argument("--continue", dest="earlier", type=Path, metavar="FILE", help="add to a kept measurement of the same build and machine")
    return parser


# Fewer give no interval.
MIN_PAIRS = 5


def make_pairs_parser(description, seconds, max_pairs=None, is_series=False):
    """The same for a benchmark of pairs, each side of which takes some seconds; with a most, unsettled comparisons get more
    pairs."""
    parser = make_parser(description, is_series)
    least = "pairs of each comparison" + (", at least" if max_pairs else "")
    parser.add_argument("--pairs", type=int, default=15, help=f"{least} [default: %(default)s]")
    if max_pairs:
        parser.add_argument("--max-pairs", type=int, default=max_pairs, help="pairs of one that is not settled, at most [default: %(default)s]")
    parser.add_argument("--seconds", type=float, default=seconds, help="time of each side of a pair [default: %(default)s]")
    return parser


def parse_pairs(parser):
    """The arguments, checked: --pairs must be enough for an interval, and no more than the most."""
    arguments = parser.parse_args()
    if arguments.pairs < MIN_PAIRS:
        parser.error(f"--pairs must be at least {MIN_PAIRS}: fewer give no 90 % interval")
    if arguments.pairs > getattr(arguments, "max_pairs", arguments.pairs):
        parser.error("--max-pairs must be at least --pairs")
    if arguments.seconds <= 0:
        parser.error("--seconds must be more than 0")
    return arguments


def pair_rounds(arguments, chosen):
    """The number of each round, from 1 on, and the comparisons that need a pair in it: all until there are enough pairs, then
    the unsettled ones."""
    for completed in range(1, arguments.max_pairs + 1):
        unsettled = [one for one in chosen if completed <= arguments.pairs or one.verdict() == "not settled"]
        if not unsettled:
            return
        yield completed, unsettled


def kelvin_program(path):
    """The absolute path of the kelvin to measure."""
    path = Path(path)
    if not path.is_file():
        raise Missing(f"{path} is not here; make build builds it")
    return path.resolve()


def build_rival(name, directory):
    """Compiles one of the plain C programs in bench/rivals."""
    program = Path(directory) / name
    flags = ["-O2", "-Wall", "-Wextra", "-Werror", "-pthread", "-Wl,-z,now"]  # -z now: see rivals/rival.h
    run([require_program("cc", "gcc"), *flags, "-o", program, RIVALS / f"{name}.c"])
    return program


def build_preloaded(name, directory):
    """Compiles one of the libraries in bench/rivals that are preloaded into a program."""
    library = Path(directory) / f"{name}.so"
    flags = ["-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    run([require_program("cc", "gcc"), *flags, "-o", library, RIVALS / f"{name}.c"])
    return library


def last_allowed_cpu():
    """The CPU that kelvin chooses by default."""
    return max(os.sched_getaffinity(0))


def describe_machine():
    """The machine in one line, without what changes on it."""
    model = next(
        (line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")),
        platform.machine(),
    )
    return f"{model}, {len(os.sched_getaffinity(0))} CPUs, Linux {platform.release()}"


# Rounds of 15 ms, and of what takes longer to set up.
ROUNDS_PER_SECOND = (48, 16, 4, 1)


def measure(kelvin, names, seconds, *flags):
    """The JSON report of a kelvin run that is not drawn, and not stored unless the flags name a store.

    kelvin would end as soon as its interval is narrow enough; as many rounds as fit make it take the whole time, so that it
    meets the same disturbances as a program beside it.
    """
    command = [kelvin, "run", *names, "--json", "--no-report", "--budget", f"{seconds:g}s"]
    command += [] if "--store" in flags else ["--no-store"]
    if "--rounds" in flags:
        return json.loads(run([*command, *flags]))
    for per_second in ROUNDS_PER_SECOND:
        report = complete_report([*command, "--rounds", str(max(round(seconds * per_second), 4)), *flags])
        if report is not None:
            return report
    raise RuntimeError(f"{' '.join(map(str, command))}: not all cases fit into the time")


def complete_report(command):
    """The JSON report of a run that left nothing out for want of time; None if it did."""
    try:
        report = json.loads(run(command))
    except RuntimeError as error:
        if "rounds of no case fit" in str(error):
            return None
        raise
    outcomes = [result["outcome"] for result in report["analysis"]["results"]]
    reasons = [outcome["skipped"] for outcome in outcomes if isinstance(outcome, dict) and "skipped" in outcome]
    return None if any(reason.startswith("no time for it") for reason in reasons) else report


def results(report):
    """The requested results of a report, by metric and case."""
    return {
        (result["metric"]["id"], case_text(result["case"])): result
        for result in report["analysis"]["results"]
        if not result["only_input"]
    }


def case_text(case):
    return " ".join(f"{axis}={value}" for axis, value in sorted(case.items()))


def summary(result):
    """The summary of a measured result; None if there is no headline."""
    outcome = result["outcome"]
    return outcome.get("measured") if isinstance(outcome, dict) else None


def find_summary(report, metric, case=""):
    """The summary of one metric at one case of a report; an error with the outcome instead."""
    result = results(report).get((metric, case))
    if result is None:
        raise RuntimeError(f"{metric} ({case}) is not in the report")
    entry = summary(result)
    if entry is None:
        outcome = result["outcome"]
        # Not known: the headline is missing, but the samples as found are there.
        entry = outcome.get("not_known") if isinstance(outcome, dict) else None
    if entry is None:
        raise RuntimeError(f"{metric} ({case}) was not measured: {result['outcome']}")
    return entry


# ---- statistics


def robust_deviation(values):
    """Standard deviation from the median absolute deviation, right for normal values."""
    middle = statistics.median(values)
    return 1.4826 * statistics.median(abs(value - middle) for value in values)


def signed_rank_quantile(n, share):
    """The largest k such that the signed-rank statistic of n values is below k with at most this probability, exactly.

    Hollander, Wolfe: Nonparametric Statistical Methods, 3.1 and 3.3: counts by dynamic programming.
    """
    most = n * (n + 1) // 2
    ways = [1] + [0] * most
    for rank in range(1, n + 1):
        for total in range(most, rank - 1, -1):
            ways[total] += ways[total - rank]
    limit, below = share * 2**n, 0
    for k in range(most + 1):
        if below + ways[k] > limit:
            return k
        below += ways[k]
    return most


def pseudo_median(values, level=0.90):
    """The Hodges-Lehmann estimate of the centre of values, and its exact interval from the signed-rank test.

    It needs no normal values: one pair disturbed by a neighbour does not widen it, as it would an interval from t.
    """
    n = len(values)
    walsh = sorted((values[i] + values[j]) / 2 for i in range(n) for j in range(i, n))
    k = signed_rank_quantile(n, (1 - level) / 2)
    return statistics.median(walsh), walsh[max(k - 1, 0)], walsh[min(len(walsh) - k, len(walsh) - 1)]


def ratio_of_pairs(ours, theirs, level=0.90):
    """The ratio ours / theirs over pairs measured side by side: estimate, lower and upper end."""
    logs = [math.log(a / b) for a, b in zip(ours, theirs)]
    return tuple(math.exp(value) for value in pseudo_median(logs, level))


def agreement(lower, upper, within):
    """Whether the interval of a ratio says that it lies within so much of 1: `agrees`, `differs` or `not settled`."""
    if 1 - within <= lower and upper <= 1 + within:
        return "agrees"
    return "differs" if upper < 1 - within or lower > 1 + within else "not settled"


# ---- tables


def table(header, rows):
    """A Markdown table; figures to the right."""
    rows = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    right = [all(re.match(r"^[-+0-9.<>~x%, ()–]*( ?(ns|us|ms|s|MiB|KiB|%))?$", row[i]) for row in rows) for i in range(len(header))]

    def line(cells):
        return "| " + " | ".join(c.rjust(w) if r else c.ljust(w) for c, w, r in zip(cells, widths, right)) + " |"

    rule = "|" + "|".join("-" * (w + 1) + (":" if r else "-") for w, r in zip(widths, right)) + "|"
    return "\n".join([line(header), rule, *map(line, rows)])


def time_text(nanoseconds):
    """A time as text."""
    for limit, factor, unit in ((1e3, 1, "ns"), (1e6, 1e3, "us"), (1e9, 1e6, "ms")):
        if nanoseconds < limit:
            return f"{nanoseconds / factor:.4g} {unit}"
    return f"{nanoseconds / 1e9:.4g} s"


def percent(share):
    return f"{share * 100:.2f} %"


# ---- what is kept of a benchmark


def unkept_field():
    """A field of a dataclass that is there only while it is measured, such as a function or a program: it is not kept."""
    return dataclasses.field(default=None, metadata={"live": True})


def to_json(one):
    """A dataclass as JSON keeps it."""
    return {field.name: getattr(one, field.name) for field in dataclasses.fields(one) if not field.metadata.get("live")}


def new_record(arguments):
    """The record of a measurement that begins now; what was measured is missing, and so is whether every bound was kept."""
    return {
        "benchmark": Path(sys.argv[0]).stem,
        "kind": None if arguments.keep is None else file_name_part(arguments.keep or " ".join(measurement_arguments())),
        "date": date.today().isoformat(),
        "kelvin": run([kelvin_program(arguments.kelvin), "--version"]).strip(),
        "commit": run(["git", "describe", "--always", "--dirty"], cwd=ROOT).strip() if (ROOT / ".git").exists() else "not a checkout",
        "machine": describe_machine(),
        "load": round(os.getloadavg()[0], 2),
        "arguments": measurement_arguments(),
        "measured": None,
        "kept": None,
    }


def file_name_part(words):
    """Words as they stand in the name of a file."""
    return re.sub(r"[^\w.]+", "-", words).strip("-.") or "default"


def measurement_arguments():
    """The words of the command line, without those that only say where something is."""
    places = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for flag in ("--kelvin", "--continue", "--reports", "--dir"):
        places.add_argument(flag)
    places.add_argument("--keep", nargs="?")
    return places.parse_known_args()[1]


def load_continued_record(path, arguments):
    """The record at a path, if this build on this machine may add to it."""
    record, now = read_record(path), new_record(arguments)
    for what in ("benchmark", "kelvin", "commit", "machine"):
        if record[what] != now[what]:
            raise Missing(f"--continue: the {what} of {path} is {record[what]}, and not {now[what]}")
    return record


def new_record_path(record):
    """Where a record is to be kept; None if it is not. Nothing is written over."""
    if record["kind"] is None:
        return None
    path = RESULTS / f"{record['benchmark']}-{record['date']}-{record['kind']}.json.xz"
    if path.exists():
        raise Missing(f"--keep: {path} is there already: name another KIND")
    return path


def read_record(path):
    try:
        with lzma.open(path, "rt") as file:
            return json.load(file)
    except (OSError, lzma.LZMAError, ValueError) as error:
        raise Missing(f"{path} is no kept measurement: {error}") from error


def write_record(path, record):
    path.parent.mkdir(exist_ok=True)
    partial = path.with_suffix(".partial")
    with lzma.open(partial, "wt") as file:
        json.dump(record, file)
    partial.replace(path)


def provenance(record):
    """When, by what and where something was measured."""
    return f"{record['date']}, {record['kelvin']} ({record['commit']}), {record['machine']}"


def command_note(record):
    """The command of a measurement, and what else the machine did."""
    command = shlex.join([f"bench/{record['benchmark']}.py", *record["arguments"]])
    return f"`{command}`, load {record['load']:.2f} before it."


# ---- running a benchmark


def run_benchmark(parse, measure, tables):
    """Whether every bound was kept, of what is measured now or was kept before.

    `measure` takes the arguments and returns what JSON can hold, and dataclasses. That of a series takes what was measured before as well,
    or None, and yields everything so far after each step, which is kept then. `tables` makes the text of it, and whether every bound was kept.
    """
    arguments = parse()
    if arguments.source:
        record = read_record(arguments.source)
        text, kept = tables(record["measured"])
    else:
        is_series = hasattr(arguments, "earlier")
        earlier = arguments.earlier if is_series else None
        record = load_continued_record(earlier, arguments) if earlier else new_record(arguments)
        path = earlier or new_record_path(record)
        for measured in measure(arguments, record["measured"]) if is_series else [measure(arguments)]:
            record["measured"] = json.loads(json.dumps(measured, default=to_json))
            record["kept"] = None
            if path:
                write_record(path, record)
        text, kept = tables(record["measured"])
        if path:
            write_record(path, {**record, "kept": kept})
    print(f"{provenance(record)}\n\n{command_note(record)}\n\n{text}")
    return kept


def main(parse, measure, tables):
    """Runs a benchmark: exit status 0 if every bound was kept, 1 if not, 2 if it could not be done."""
    # As Ctrl-C: what was set up is taken down.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        sys.exit(0 if run_benchmark(parse, measure, tables) else 1)
    except Missing as error:
        log(f"{Path(sys.argv[0]).name}: {error}")
        sys.exit(2)
    except KeyboardInterrupt:
        log("interrupted")
        sys.exit(2)
