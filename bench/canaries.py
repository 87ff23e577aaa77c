#!/usr/bin/env python3
"""Whether the canaries disturb what they guard, and what they cost.

Pairs of runs, one with canaries between the batches and one without (--no-canaries), in random order, of metrics that a canary
could move: the shortest ones, one for each thing that canaries touch (caches, branch predictions, kernel entry), and, as a group of
their own, memory: latency and bandwidth of a working set in each cache and in memory, page faults, cached reads of a file. The *as
found* figures are compared, since without canaries there are no others. Beside them stand the canaries that are read between the
batches of each, and the time of a reading.

Bound: the 90 % interval of the ratio with / without lies within --bound of 1.

Exit status: 0 every bound was kept, 1 one was not, 2 it could not be done.
"""
import random
import statistics

import common


def exact_case(case):
    """The one case."""
    return lambda cases, caches: [results for results in cases if results == case]


def one_cpu_cases(cases, caches):
    """All that one CPU does alone."""
    return [case for case in cases if "cpus=one" in case.split()]


def largest_set_of_each_level(cases, caches):
    """On base pages: the largest set of half of each cache, and the largest of all."""
    base = sorted((case_bytes(case), case) for case in cases if "pages=base" in case.split())
    levels = [[case for size, case in base if size <= cache / 2] for cache in caches]
    return [level[-1] for level in levels if level] + [base[-1][1]]


def all_cases(cases, caches):
    return cases


def case_bytes(case):
    return next((int(part.removeprefix("bytes=")) for part in case.split() if part.startswith("bytes=")), 0)


# Groups of metrics, each with the seconds of a side, further flags, and which of its cases are compared. A group is one run.
GROUPS = {
    "core": (6, [], {
        "cpu.loop": exact_case(""),
        "cpu.latency.load": exact_case(""),
        "cpu.clock.gettime": exact_case("clock=monotonic"),
        "os.syscall.null": exact_case("call=getppid"),
        "os.syscall.read": exact_case(""),
        "os.signal.deliver": exact_case(""),
        "os.process.fork": exact_case(""),
        "os.switch.round_trip": exact_case("mechanism=pipe task=process"),
        "net.rtt.icmp": exact_case("message=64"),
        "net.crr": exact_case("placement=same_cpu"),
    }),
    "memory": (14, ["--quick"], {
        "mem.latency": largest_set_of_each_level,
        "mem.fault.minor": all_cases,
        "file.engines": all_cases,
    }),
    "bandwidth": (25, [], {"mem.bandwidth.read": one_cpu_cases}),
}  # fmt: skip
ROUNDS = 3
# As the bits of a set are numbered in reports.
CANARIES = ("chain", "block")
# The last level of a virtual machine may be a claim: of more than this much nobody has half to himself.
MAX_CACHE_BYTES = 16 << 20


def parse():
    parser = common.make_pairs_parser(__doc__, seconds=None, is_series=True)
    for action in parser._actions:
        if action.dest == "seconds":
            action.help = "time of each side of a pair [default: 6 to 25, by the group]"
    parser.add_argument("--bound", type=float, default=0.02, help="largest change, as a share [default: %(default)s]")
    parser.add_argument("--group", action="append", choices=GROUPS, help="a group to compare; may be given more than once [default: all]")
    arguments = parser.parse_args()
    if arguments.pairs < 1:
        parser.error("--pairs must be at least 1")
    if arguments.seconds is not None and arguments.seconds <= 0:
        parser.error("--seconds must be more than 0")
    return arguments


def measure_pair(kelvin, group, seconds, order):
    """The figures of both sides of a pair, in random order, by metric and case."""
    usual, flags, metrics = GROUPS[group]
    figures = {}
    for side in order.sample(["with", "without"], 2):
        without = ["--no-canaries"] if side == "without" else []
        report = common.measure(kelvin, sorted(metrics), seconds or usual, "--rounds", str(ROUNDS), "--with-samples", *flags, *without)
        results, caches = common.results(report), data_caches(report)
        for metric, chosen in metrics.items():
            # What a quick run leaves out, or has no time for, is in the report as well.
            measured = [case for (one, case), result in results.items() if one == metric and "skipped" not in result["outcome"]]
            for case in chosen(measured, caches):
                one = figures.setdefault(f"{metric} {case}".strip(), {})
                one[side] = common.find_summary(report, metric, case)["as_found"]["value"]
                one["canaries"] = [name for bit, name in enumerate(CANARIES) if results[metric, case]["metric"]["canaries"] >> bit & 1]
                one["unit"] = results[metric, case]["metric"]["unit"]
        if side == "with":
            figures["reading"] = canary_reading_times(report)
    return figures


def data_caches(report):
    """Sizes of the caches that hold data, innermost first."""
    known = report["run"]["machine"]["topology"]["caches"].get("known", {}).get("value", [])
    return [min(cache["bytes"], MAX_CACHE_BYTES) for cache in sorted(known, key=lambda cache: cache["level"]) if cache["kind"] != "instruction"]


def canary_reading_times(report):
    """The nanoseconds of a reading of each canary, the median of all rounds."""
    times = {}
    for measurement in report["run"]["measurements"]:
        for round_ in measurement["rounds"]:
            for reading in round_["outcome"].get("measured", []):
                for canary, results in reading["readings"].get("batches", {}).get("canaries", {}).items():
                    times.setdefault(canary, []).extend(results)
    return {canary: statistics.median(results) for canary, results in times.items()}


def measure(arguments, data):
    data = data or {"bound": arguments.bound, "pairs": []}
    kelvin, order = common.kelvin_program(arguments.kelvin), random.Random(arguments.seed + len(data["pairs"]))
    for pair in range(arguments.pairs):
        for group in arguments.group or GROUPS:
            data["pairs"].append(measure_pair(kelvin, group, arguments.seconds, order))
            yield data
        common.log(f"pair {pair + 1} of {arguments.pairs}")


def tables(data):
    rows, kept, bound = [], True, data["bound"]
    names = dict.fromkeys(name for pair in data["pairs"] for name in pair if name != "reading")
    for name in names:
        pairs = [pair[name] for pair in data["pairs"] if "with" in pair.get(name, {}) and "without" in pair[name]]
        if len(pairs) < common.MIN_PAIRS:
            rows.append([name, "-", "-", "-", len(pairs), "-", "-", "too few pairs"])
            kept = False
            continue
        ratio, lower, upper = common.ratio_of_pairs([pair["with"] for pair in pairs], [pair["without"] for pair in pairs])
        inside = 1 - bound <= lower and upper <= 1 + bound
        kept &= inside
        medians = [figure_text(statistics.median(pair[side] for pair in pairs), pairs[0]["unit"]) for side in ("with", "without")]
        verdict = "unmoved" if inside else "moved" if lower > 1 or upper < 1 else "not settled"
        rows.append([name, ", ".join(pairs[0]["canaries"]) or "none", *medians, len(pairs), f"{ratio:.4f}", f"{lower:.4f}..{upper:.4f}", verdict])
    header = ["metric", "canaries read", "with", "without", "pairs", "ratio", "90 % interval", f"within {bound:.0%}"]
    readings = [pair["reading"] for pair in data["pairs"] if pair.get("reading")]
    canaries = dict.fromkeys(canary for reading in readings for canary in reading)
    times = common.table(["canary", "a reading takes"], [
        [canary, common.time_text(statistics.median(reading[canary] for reading in readings if canary in reading))] for canary in canaries
    ])  # fmt: skip
    return f"{common.table(header, rows)}\n\n{times}", kept


def figure_text(value, unit):
    return f"{value / 1e9:.2f} GB/s" if unit == "bytes_per_second" else f"{value:.0f} /s" if unit == "per_second" else common.time_text(value)


if __name__ == "__main__":
    common.main(parse, measure, tables)
