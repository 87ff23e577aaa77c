#!/usr/bin/env python3
"""Whether the canaries change the figures that they guard, and what they cost.

A pair is one run with canaries between the batches and one without (--no-canaries), in random order. It covers metrics that a canary
could change. The core group has the shortest ones, at least one for each resource that canaries use: caches, branch predictions,
kernel entry. The memory groups have latency and bandwidth of a working set in each cache and in memory, page faults, and cached reads of
a file. The *as found* figures are compared, since there are no others without canaries. The table also lists the canaries that are read
between the batches of each metric, and the time of a reading.

Bound: the 90 % interval of the ratio with / without lies within --bound of 1.

Exit status: 0 every bound was kept, 1 at least one was not, 2 it could not be done.
"""
import random
import statistics

import common


def exact_case(case):
    """A function that selects exactly this case."""
    return lambda cases, caches: [candidate for candidate in cases if candidate == case]


def single_cpu_cases(cases, caches):
    """The cases in which a single CPU works."""
    return [case for case in cases if "cpus=one" in case.split()]


def largest_set_of_each_level(cases, caches):
    """Of the cases with base pages: the largest set within half of each cache, and the largest of all."""
    base_page_cases = sorted((case_bytes(case), case) for case in cases if "pages=base" in case.split())
    levels = [[case for size, case in base_page_cases if size <= cache / 2] for cache in caches]
    return [level[-1] for level in levels if level] + [base_page_cases[-1][1]]


def all_cases(cases, caches):
    return cases


def case_bytes(case):
    return next((int(pair.removeprefix("bytes=")) for pair in case.split() if pair.startswith("bytes=")), 0)


# Groups of metrics: seconds of a side, further flags, and a function that selects the compared cases. A group is one run.
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
    "bandwidth": (25, [], {"mem.bandwidth.read": single_cpu_cases}),
}  # fmt: skip
ROUNDS = 3
# In the order of the bits of a canary set in reports.
CANARIES = ("chain", "block")
# A virtual machine may report a last level that it shares. No guest has half of a larger cache for itself.
MAX_CACHE_BYTES = 16 << 20


def parse():
    parser = common.make_pairs_parser(__doc__, seconds=None, is_series=True)
    for action in parser._actions:
        if action.dest == "seconds":
            action.help = "time of each side of a pair [default: 6 to 25, by the group]"
    parser.add_argument("--bound", type=float, default=0.02, help="largest relative change [default: %(default)s]")
    parser.add_argument("--group", action="append", choices=GROUPS, help="a group to compare; may be given more than once [default: all]")
    arguments = parser.parse_args()
    if arguments.pairs < 1:
        parser.error("--pairs must be at least 1")
    if arguments.seconds is not None and arguments.seconds <= 0:
        parser.error("--seconds must be more than 0")
    return arguments


def measure_pair(kelvin, group, seconds, order):
    """The figures of both sides of a pair, measured in random order, by metric and case."""
    default_seconds, flags, metrics = GROUPS[group]
    figures = {}
    for side in order.sample(["with", "without"], 2):
        canary_flags = ["--no-canaries"] if side == "without" else []
        report = common.run_kelvin(kelvin, sorted(metrics), seconds or default_seconds, "--rounds", str(ROUNDS), "--with-samples", *flags, *canary_flags)
        results, caches = common.requested_results(report), data_caches(report)
        for metric, select_cases in metrics.items():
            # The report also has the cases that a quick run skips.
            measured_cases = [case for (metric_id, case), result in results.items() if metric_id == metric and "skipped" not in result["outcome"]]
            for case in select_cases(measured_cases, caches):
                figure = figures.setdefault(f"{metric} {case}".strip(), {})
                figure[side] = common.find_summary(report, metric, case)["as_found"]["value"]
                figure["canaries"] = [name for bit, name in enumerate(CANARIES) if results[metric, case]["metric"]["canaries"] >> bit & 1]
                figure["unit"] = results[metric, case]["metric"]["unit"]
        if side == "with":
            figures["reading"] = canary_reading_times(report)
    return figures


def data_caches(report):
    """Sizes of the caches that hold data, innermost first."""
    caches = report["run"]["machine"]["topology"]["caches"].get("known", {}).get("value", [])
    return [min(cache["bytes"], MAX_CACHE_BYTES) for cache in sorted(caches, key=lambda cache: cache["level"]) if cache["kind"] != "instruction"]


def canary_reading_times(report):
    """The nanoseconds of a reading of each canary, the median of all rounds."""
    times = {}
    for measurement in report["run"]["measurements"]:
        for round_ in measurement["rounds"]:
            for reading in round_["outcome"].get("measured", []):
                for canary, durations in reading["readings"].get("batches", {}).get("canaries", {}).items():
                    times.setdefault(canary, []).extend(durations)
    return {canary: statistics.median(durations) for canary, durations in times.items()}


def measure(arguments, data):
    data = data or {"bound": arguments.bound, "pairs": []}
    kelvin, order = common.kelvin_program(arguments.kelvin), random.Random(arguments.seed + len(data["pairs"]))
    for pair in range(arguments.pairs):
        for group in arguments.group or GROUPS:
            data["pairs"].append(measure_pair(kelvin, group, arguments.seconds, order))
            yield data
        common.log(f"pair {pair + 1} of {arguments.pairs}")


def tables(data):
    rows, are_bounds_met, bound = [], True, data["bound"]
    names = dict.fromkeys(name for pair in data["pairs"] for name in pair if name != "reading")
    for name in names:
        pairs = [pair[name] for pair in data["pairs"] if "with" in pair.get(name, {}) and "without" in pair[name]]
        if len(pairs) < common.MIN_PAIRS:
            rows.append([name, "-", "-", "-", len(pairs), "-", "-", "too few pairs"])
            are_bounds_met = False
            continue
        ratio, lower, upper = common.paired_ratio([pair["with"] for pair in pairs], [pair["without"] for pair in pairs])
        is_within_bound = 1 - bound <= lower and upper <= 1 + bound
        are_bounds_met &= is_within_bound
        medians = [format_figure(statistics.median(pair[side] for pair in pairs), pairs[0]["unit"]) for side in ("with", "without")]
        verdict = "unmoved" if is_within_bound else "moved" if lower > 1 or upper < 1 else "not settled"
        rows.append([name, ", ".join(pairs[0]["canaries"]) or "none", *medians, len(pairs), f"{ratio:.4f}", f"{lower:.4f}..{upper:.4f}", verdict])
    header = ["metric", "canaries read", "with", "without", "pairs", "ratio", "90 % interval", f"within {bound:.0%}"]
    readings = [pair["reading"] for pair in data["pairs"] if pair.get("reading")]
    canaries = dict.fromkeys(canary for reading in readings for canary in reading)
    times = common.table(["canary", "a reading takes"], [
        [canary, common.format_time(statistics.median(reading[canary] for reading in readings if canary in reading))] for canary in canaries
    ])  # fmt: skip
    return f"{common.table(header, rows)}\n\n{times}", are_bounds_met


def format_figure(value, unit):
    return f"{value / 1e9:.2f} GB/s" if unit == "bytes_per_second" else f"{value:.0f} /s" if unit == "per_second" else common.format_time(value)


if __name__ == "__main__":
    common.main(parse, measure, tables)
