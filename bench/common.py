"""Helpers that the benchmarks share: running kelvin and other tools, statistics of pairs, Markdown tables, and result records.

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


class BenchmarkError(Exception):
    """The benchmark cannot run, for example because a program that it needs is missing."""


# ---- running things


def log(line):
    """A line of progress, on standard error: standard output is for the table."""
    print(line, file=sys.stderr, flush=True)


def require_program(program, package):
    """The path of a program that must be installed."""
    path = shutil.which(program)
    if path is None:
        raise BenchmarkError(f"{program} is not here; on Debian: apt-get install {package}")
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
        command_text = " ".join(map(str, command))
        last_line = (completed.stderr.strip() or completed.stdout.strip()).splitlines()[-1:]
        raise RuntimeError(f"{command_text}: exit status {completed.returncode}: {' '.join(last_line)}")
    return completed.stdout


def make_parser(description, is_series=False):
    """A parser of the arguments that every benchmark has; a series can be measured in several pieces."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kelvin", type=Path, default=ROOT / "target/release/kelvin", help="the kelvin program [default: %(default)s]")
    parser.add_argument("--seed", type=int, default=1, help="seed of the random orders [default: %(default)s]")
    parser.add_argument("--keep", nargs="?", const="", metavar="KIND", help="keep what is measured, in bench/results/NAME-DATE-KIND.json.xz [KIND: the arguments]")
    parser.add_argument("--from", dest="source", type=Path, metavar="FILE", help="make the tables of a kept measurement again; measure nothing")
    if is_series:
        parser.add_argument("--continue", dest="earlier", type=Path, metavar="FILE", help="add to a kept measurement of the same build and machine")
    return parser


# Fewer pairs give no interval.
MIN_PAIRS = 5


def make_pairs_parser(description, seconds, max_pairs=None, is_series=False):
    """The same parser with the arguments of a benchmark of pairs. `seconds` is the default time of each side.

    With `max_pairs`, comparisons that are not settled get more pairs, up to that number.
    """
    parser = make_parser(description, is_series)
    pairs_help = "pairs of each comparison" + (", at least" if max_pairs else "")
    parser.add_argument("--pairs", type=int, default=15, help=f"{pairs_help} [default: %(default)s]")
    if max_pairs:
        parser.add_argument("--max-pairs", type=int, default=max_pairs, help="pairs of a comparison that is not settled, at most [default: %(default)s]")
    parser.add_argument("--seconds", type=float, default=seconds, help="time of each side of a pair [default: %(default)s]")
    return parser


def parse_pairs(parser):
    """The checked arguments: --pairs must be enough for an interval, and at most --max-pairs."""
    arguments = parser.parse_args()
    if arguments.pairs < MIN_PAIRS:
        parser.error(f"--pairs must be at least {MIN_PAIRS}: fewer give no 90 % interval")
    if arguments.pairs > getattr(arguments, "max_pairs", arguments.pairs):
        parser.error("--max-pairs must be at least --pairs")
    if arguments.seconds <= 0:
        parser.error("--seconds must be more than 0")
    return arguments


def pair_rounds(arguments, comparisons):
    """The number of each round, from 1 on, and the comparisons that need a pair in that round.

    Every comparison needs one until --pairs is reached. After that only the unsettled ones do.
    """
    for round_number in range(1, arguments.max_pairs + 1):
        unsettled = [comparison for comparison in comparisons if round_number <= arguments.pairs or comparison.verdict() == "not settled"]
        if not unsettled:
            return
        yield round_number, unsettled


def kelvin_program(path):
    """The absolute path of the kelvin to measure."""
    path = Path(path)
    if not path.is_file():
        raise BenchmarkError(f"{path} is not here; make build builds it")
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


# Rounds of 15 ms first, then fewer rounds for probes that take longer to set up.
ROUNDS_PER_SECOND = (48, 16, 4, 1)


def run_kelvin(kelvin, names, seconds, *flags):
    """The JSON report of a kelvin run. The run draws no page, and is stored only if the flags name a store.

    kelvin would end as soon as its interval is narrow enough. As many rounds as fit make it take the whole time. So it meets
    the same disturbances as the program that it is compared with.
    """
    command = [kelvin, "run", *names, "--json", "--budget", f"{seconds:g}s"]
    command += [] if "--store" in flags else ["--no-store"]
    if "--rounds" in flags:
        return json.loads(run([*command, *flags]))
    for per_second in ROUNDS_PER_SECOND:
        report = run_to_completion([*command, "--rounds", str(max(round(seconds * per_second), 4)), *flags])
        if report is not None:
            return report
    raise RuntimeError(f"{' '.join(map(str, command))}: not all cases fit into the time")


def run_to_completion(command):
    """The JSON report of a run that had time for every case; None if it skipped a case for lack of time."""
    try:
        report = json.loads(run(command))
    except RuntimeError as error:
        if "rounds of no case fit" in str(error):
            return None
        raise
    outcomes = [result["outcome"] for result in report["analysis"]["results"]]
    reasons = [outcome["skipped"] for outcome in outcomes if isinstance(outcome, dict) and "skipped" in outcome]
    return None if any(reason.startswith("no time for it") for reason in reasons) else report


def requested_results(report):
    """The requested results of a report, by metric and case."""
    return {
        (result["metric"]["id"], format_case(result["case"])): result
        for result in report["analysis"]["results"]
        if not result["only_input"]
    }


def format_case(case):
    return " ".join(f"{axis}={value}" for axis, value in sorted(case.items()))


def result_summary(result):
    """The summary of a measured result; None if there is no headline."""
    outcome = result["outcome"]
    return outcome.get("measured") if isinstance(outcome, dict) else None


def find_summary(report, metric, case=""):
    """The summary of one metric at one case of a report. Raises an error with the outcome if there is none."""
    result = requested_results(report).get((metric, case))
    if result is None:
        raise RuntimeError(f"{metric} ({case}) is not in the report")
    summary = result_summary(result)
    if summary is None:
        outcome = result["outcome"]
        # A figure that is not known has no headline, but it has the samples as found.
        summary = outcome.get("not_known") if isinstance(outcome, dict) else None
    if summary is None:
        raise RuntimeError(f"{metric} ({case}) was not measured: {result['outcome']}")
    return summary


# ---- statistics


def robust_deviation(values):
    """Standard deviation estimated from the median absolute deviation; consistent for normal values."""
    median = statistics.median(values)
    return 1.4826 * statistics.median(abs(value - median) for value in values)


def signed_rank_quantile(n, probability):
    """The largest k such that the signed-rank statistic of n values is below k with at most this exact probability.

    See Hollander, Wolfe: Nonparametric Statistical Methods, 3.1 and 3.3. Dynamic programming counts the rank sums.
    """
    max_rank_sum = n * (n + 1) // 2
    counts = [1] + [0] * max_rank_sum
    for rank in range(1, n + 1):
        for rank_sum in range(max_rank_sum, rank - 1, -1):
            counts[rank_sum] += counts[rank_sum - rank]
    max_count, cumulative_count = probability * 2**n, 0
    for k in range(max_rank_sum + 1):
        if cumulative_count + counts[k] > max_count:
            return k
        cumulative_count += counts[k]
    return max_rank_sum


def pseudo_median(values, level=0.90):
    """The Hodges-Lehmann estimate of the centre of values, and its exact interval from the signed-rank test.

    It does not assume normal values. One disturbed pair does not widen it, as it would widen a t interval.
    """
    n = len(values)
    walsh = sorted((values[i] + values[j]) / 2 for i in range(n) for j in range(i, n))
    k = signed_rank_quantile(n, (1 - level) / 2)
    return statistics.median(walsh), walsh[max(k - 1, 0)], walsh[min(len(walsh) - k, len(walsh) - 1)]


def paired_ratio(ours, theirs, level=0.90):
    """The ratio ours / theirs over interleaved pairs: estimate, lower and upper end."""
    logs = [math.log(a / b) for a, b in zip(ours, theirs)]
    return tuple(math.exp(value) for value in pseudo_median(logs, level))


def agreement_verdict(lower, upper, tolerance):
    """The verdict on whether a ratio lies within the tolerance of 1: `agrees`, `differs` or `not settled`."""
    if 1 - tolerance <= lower and upper <= 1 + tolerance:
        return "agrees"
    return "differs" if upper < 1 - tolerance or lower > 1 + tolerance else "not settled"


# ---- tables


def table(header, rows):
    """A Markdown table, with numeric columns aligned to the right."""
    rows = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    is_numeric = [all(re.match(r"^[-+0-9.<>~x%, ()–]*( ?(ns|us|ms|s|MiB|KiB|%))?$", row[i]) for row in rows) for i in range(len(header))]

    def format_line(cells):
        return "| " + " | ".join(c.rjust(width) if numeric else c.ljust(width) for c, width, numeric in zip(cells, widths, is_numeric)) + " |"

    separator = "|" + "|".join("-" * (width + 1) + (":" if numeric else "-") for width, numeric in zip(widths, is_numeric)) + "|"
    return "\n".join([format_line(header), separator, *map(format_line, rows)])


def format_time(nanoseconds):
    """A time as text."""
    for limit, factor, unit in ((1e3, 1, "ns"), (1e6, 1e3, "us"), (1e9, 1e6, "ms")):
        if nanoseconds < limit:
            return f"{nanoseconds / factor:.4g} {unit}"
    return f"{nanoseconds / 1e9:.4g} s"


def format_percent(fraction):
    return f"{fraction * 100:.2f} %"


# ---- records of results


def transient_field():
    """A dataclass field that is needed only while measuring, such as a function or a program. Records omit it."""
    return dataclasses.field(default=None, metadata={"is_transient": True})


def to_json(instance):
    """A dataclass instance as a JSON object, without its transient fields."""
    return {field.name: getattr(instance, field.name) for field in dataclasses.fields(instance) if not field.metadata.get("is_transient")}


def new_record(arguments):
    """The record of a measurement that begins now. Its result and its verdict on the bounds are still None."""
    return {
        "benchmark": Path(sys.argv[0]).stem,
        "kind": None if arguments.keep is None else file_name_part(arguments.keep or " ".join(measurement_arguments())),
        "date": date.today().isoformat(),
        "kelvin": run([kelvin_program(arguments.kelvin), "-V"]).strip(),
        "commit": run(["git", "describe", "--always", "--dirty"], cwd=ROOT).strip() if (ROOT / ".git").exists() else "not a checkout",
        "machine": describe_machine(),
        "load": round(os.getloadavg()[0], 2),
        "arguments": measurement_arguments(),
        "measured": None,
        "kept": None,
    }


def file_name_part(text):
    """Text as part of a file name."""
    return re.sub(r"[^\w.]+", "-", text).strip("-.") or "default"


def measurement_arguments():
    """The words of the command line, without the options that only name a location."""
    location_parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for flag in ("--kelvin", "--continue", "--reports", "--dir"):
        location_parser.add_argument(flag)
    location_parser.add_argument("--keep", nargs="?")
    return location_parser.parse_known_args()[1]


def load_continued_record(path, arguments):
    """The record at a path. Raises an error unless the same build on the same machine made it."""
    record, current_record = read_record(path), new_record(arguments)
    for field in ("benchmark", "kelvin", "commit", "machine"):
        if record[field] != current_record[field]:
            raise BenchmarkError(f"--continue: the {field} of {path} is {record[field]}, and not {current_record[field]}")
    return record


def new_record_path(record):
    """The path at which a record is kept; None if it is not kept. No existing file is overwritten."""
    if record["kind"] is None:
        return None
    path = RESULTS / f"{record['benchmark']}-{record['date']}-{record['kind']}.json.xz"
    if path.exists():
        raise BenchmarkError(f"--keep: {path} is there already: name another KIND")
    return path


def read_record(path):
    try:
        with lzma.open(path, "rt") as file:
            return json.load(file)
    except (OSError, lzma.LZMAError, ValueError) as error:
        raise BenchmarkError(f"{path} is no kept measurement: {error}") from error


def write_record(path, record):
    path.parent.mkdir(exist_ok=True)
    partial = path.with_suffix(".partial")
    with lzma.open(partial, "wt") as file:
        json.dump(record, file)
    partial.replace(path)


def provenance(record):
    """The date, the program and the machine of a measurement."""
    return f"{record['date']}, {record['kelvin']} ({record['commit']}), {record['machine']}"


def command_note(record):
    """The command of a measurement, and the load of the machine before it."""
    command = shlex.join([f"bench/{record['benchmark']}.py", *record["arguments"]])
    return f"`{command}`, load {record['load']:.2f} before it."


# ---- running a benchmark


def run_benchmark(parse, measure, tables):
    """Whether every bound was kept, of what is measured now or was kept before.

    `measure` takes the arguments and returns JSON values and dataclasses. That of a series also takes the earlier results,
    or None. It yields the results so far after each step, which are then kept. `tables` returns the text, and whether every bound was kept.
    """
    arguments = parse()
    if arguments.source:
        record = read_record(arguments.source)
        text, are_bounds_met = tables(record["measured"])
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
        text, are_bounds_met = tables(record["measured"])
        if path:
            write_record(path, {**record, "kept": are_bounds_met})
    print(f"{provenance(record)}\n\n{command_note(record)}\n\n{text}")
    return are_bounds_met


def main(parse, measure, tables):
    """Runs a benchmark: exit status 0 if every bound was kept, 1 if not, 2 if it could not be done."""
    # SIGTERM acts as Ctrl-C does, so that everything that was set up is removed.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        sys.exit(0 if run_benchmark(parse, measure, tables) else 1)
    except BenchmarkError as error:
        log(f"{Path(sys.argv[0]).name}: {error}")
        sys.exit(2)
    except KeyboardInterrupt:
        log("interrupted")
        sys.exit(2)
