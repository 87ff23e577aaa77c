#!/usr/bin/env python3
"""Whether repeated runs of kelvin agree, and whether their error bars are neither too wide nor too narrow.

It makes N runs of the CPU and the operating system (or of other areas) with default settings, one after the other into one fresh store.
So later runs learn from earlier ones how much runs differ, as they do for a user. For every metric at every case it reports:

  deviation   the coefficient of variation of its N headlines, a robust one from the median absolute deviation, and that of
              the headlines in core cycles, where they make sense: it does not include the drift of the clock
  coverage    the share of its printed 95 % intervals that contain the median of its N headlines
  width       the median half-width of those intervals over the observed standard deviation of the headlines; the exact
              interval of a normal value has a width of 1.96

Bounds: every case of the groups calls, loops and clock below 1 %; system calls below 2 %; switches on one CPU, fork and threads
below 5 %; latency of the first and second level below 1 %, of main memory below 2 %, bandwidth of memory below 3 %; round trips
between two processes on one CPU below 4 %, bandwidth of streams between them below 5 %; coverage over all (metric, run) pairs
90..98 %; median width at most 2.

With --area all, which is a default run of all areas, other bounds apply to all figures together. Intervals of every kind contain the
median in 93..98 %. The median width is at most 1.3 exact intervals. Half-widths are at most 1.7 % of the headline in the median, 7.1 % at
the 75 % quantile and 14.8 % at the 90 % quantile. They are also at most those of the ranges of the first three rounds of the same runs.
These ranges contain the median far less often, and show how noisy the machine was. At most 1 % of the figures are not known. Each run
takes 150 s to within 5 %. The conclusions of a run are compared with those of its own halves and of other runs. Of 100 such pairs with at
least 40 decided conclusions on each side, at most 5 have a conclusion that differs in direction (bench/conclusions.py). With --quick as
well there are two bounds: at most 3 % of the figures are not known, and each run takes 45 s to within 5 %.

With --rivals other tools measure the same operation on the same CPU for the same wall time (--seconds). They are interleaved with kelvin
in random order, after each run from the third on. Kelvin's coefficient of variation must be below half of theirs. Each tool is used as a
user would use it: perf bench reports the mean of one run, a C loop the mean of its operations. If kelvin reports a figure as not known,
the pair is left out.

With --fresh each run has a store of its own, as the first run of a user has. The figure of another run must then lie in the interval of a
run. This must hold for 93 to 97 % of all pairs of different runs, and for at least 90 % in each area. The half-widths are reported too.

A value that changes from round to round or from run to run is reported as bimodal, for example the latency of a working set near the
size of a shared cache. Its cases have no meaningful deviation, and are listed separately.

With --rivals and the memory or network area other programs do the same work after each run (bench/loops.py: plain C loops, iperf3).
Their coefficients of variation are reported and not judged: they show the machine's share of the spread. The network area runs in a
network namespace, as iperf3 needs it (bench/streams.py).

With --reports DIR the full report of each run is kept there as compressed JSON, with the store. With --continue further runs are added to
a kept series, so that a long series can be measured in several parts. With the same --reports they continue in the same store.

Exit status: 0 every bound was kept, 1 at least one was not, 2 it could not be done.
"""
import gzip
import json
import os
import random
import statistics
import tempfile
import time
from pathlib import Path

import common
import conclusions
import hosts
from loops import Loops, deviations
from rivals import Rivals
from streams import CONGESTION_CONTROL


def metric_predicate(*ids):
    """A predicate for series whose metric is one of these or below one, with any working set."""
    return lambda series, _, __: any(series.metric == metric_id or series.metric.startswith(f"{metric_id}.") for metric_id in ids)


def same_cpu_predicate(*ids):
    """A predicate for series whose metric is one of these or below one, on one CPU."""
    is_metric = metric_predicate(*ids)
    return lambda series, size, caches: is_metric(series, size, caches) and "placement=same_cpu" in series.case.split()


def latency_predicate(place):
    """A predicate for the latency of working sets of at most half of the second level, or at least four times the last level."""
    is_in_place = {"caches": lambda size, caches: size <= caches[1] / 2, "memory": lambda size, caches: size >= 4 * caches[-1]}[place]
    return lambda series, size, caches: series.metric == "mem.latency" and len(caches) > 1 and is_in_place(size, caches)


# Groups: name, predicate of the member series, and bound of the coefficients of variation. A series belongs to the first
# group whose predicate holds.
GROUPS = [
    ("calls, loops, clock", metric_predicate("cpu.call", "cpu.loop", "cpu.clock", "cpu.frequency", "cpu.latency"), 0.01),
    ("system calls", metric_predicate("os.syscall"), 0.02),
    (
        "switches on one CPU, fork, threads",
        metric_predicate("os.switch.cost", "os.switch.round_trip", "os.switch.channel_calls", "os.process.fork", "os.process.vfork", "os.thread"),
        0.05,
    ),
    ("latency, first and second level", latency_predicate("caches"), 0.01),
    ("latency, main memory", latency_predicate("memory"), 0.02),
    ("bandwidth of memory", metric_predicate("mem.bandwidth"), 0.03),
    ("round trips on one CPU", same_cpu_predicate("net.rtt"), 0.04),
    ("bandwidth of streams", lambda series, *_: series.metric in ("net.bandwidth.tcp", "net.bandwidth.tcp.way", "net.bandwidth.unix"), 0.05),
    ("everything else", lambda *_: True, None),
]
COVERAGE_BOUNDS = (0.90, 0.98)
MAX_WIDTH = 2.0
# Bounds of runs of all areas. Of half-widths: quantiles, with bounds relative to the headline.
ALL_AREAS = "all"
ALL_AREAS_COVERAGE_BOUNDS = (0.93, 0.98)
ALL_AREAS_MAX_WIDTH = 1.3 * 1.96
RANGE_ROUNDS = 3
HALF_WIDTH_BOUNDS = [(0.5, 0.017), (0.75, 0.071), (0.9, 0.148)]
MAX_NOT_KNOWN_SHARE = 0.01
RUN_SECONDS, SECONDS_TOLERANCE = 150, 0.05
# Bounds of quick runs, whose few rounds have ranges instead of intervals.
QUICK_MAX_NOT_KNOWN_SHARE, QUICK_RUN_SECONDS = 0.03, 45
# With --fresh: the share of pairs with the figure of another run in the interval, over all figures, and its minimum in each area.
OTHER_RUN_COVERAGE_BOUNDS, MIN_AREA_COVERAGE = (0.93, 0.97), 0.90
MAX_DEVIATION_RATIO = 0.5
# Runs before the first pair.
FIRST_PAIR_RUN = 2


def find_group(series, caches):
    """The first group that a series fits into; `caches` are the sizes of the data caches, innermost first."""
    size = next((int(pair.removeprefix("bytes=")) for pair in series.case.split() if pair.startswith("bytes=")), 0)
    return next(name for name, is_member, _ in GROUPS if is_member(series, size, caches))


# ---- measuring


def measure_run(kelvin, store, arguments, number):
    """The headlines, intervals and conclusions of one more run."""
    start_time = time.monotonic()
    flags = ["--quick"] if arguments.quick else []
    names = [] if arguments.area == [ALL_AREAS] else arguments.area
    output = common.run([kelvin, "run", *names, "--json", "--with-samples", "--store", store, *flags], timeout=900)
    seconds = time.monotonic() - start_time
    if arguments.reports:
        (arguments.reports / f"run-{number + 1:02}.json.gz").write_bytes(gzip.compress(output.encode(), 6))
    report = json.loads(output)
    return {
        "seconds": seconds,
        **(conclusions_of_run(kelvin, report) if arguments.area == [ALL_AREAS] else {}),
        "undisturbed_share": report["analysis"]["undisturbed_share"],
        "caches": data_caches(report["run"]["machine"]["topology"]["caches"]),
        "results": [
            {"metric": metric, "case": case, **figures_to_keep(common.result_summary(result)), "cycles": result.get("cycles")}
            for (metric, case), result in common.requested_results(report).items()
            # A skipped case does not count as a figure that is not known.
            if "skipped" not in result["outcome"]
        ],
    }


def conclusions_of_run(kelvin, report):
    """The conclusions of a run and of its halves."""
    return {"concluded": conclusions.report_conclusions(report), "halves": conclusions.halves_conclusions(kelvin, report)}


def data_caches(cache_fact):
    """Sizes of the caches that hold data, innermost first, if the machine reports them."""
    caches = cache_fact.get("known", {}).get("value", [])
    return [cache["bytes"] for cache in sorted(caches, key=lambda cache: cache["level"]) if cache["kind"] != "instruction"]


def figures_to_keep(summary):
    """The kept figures of a summary. All are None if there is no headline."""
    if summary is None:
        return {"headline": None, "interval": None, "as_found": None, "undisturbed_share": None, "two_modes": False, "first_rounds": []}
    return {
        "two_modes": summary["mode_unit"] != "samples" and len(summary["modes"]) > 1,
        "headline": summary["headline"],
        "interval": summary["interval"],
        "as_found": summary["as_found"]["value"],
        "undisturbed_share": summary["undisturbed_share"],
        "first_rounds": summary["round_headlines"][:RANGE_ROUNDS],
    }


# Operation, metric and case of kelvin, the other tool, and a function that measures with it.
OPERATIONS = [
    ("procedure call", "cpu.call.args", "arguments=0 via=direct", "C loop call_loop",
     lambda rivals, seconds: rivals.run_c_loop("call_loop", "call.direct", seconds, statistic="mean")),
    ("null call", "os.syscall.null", "call=getppid", "perf bench syscall basic",
     lambda rivals, seconds: rivals.perf_mean(seconds, "syscall", "basic")),
    ("pipe round trip", "os.switch.round_trip", "mechanism=pipe task=process", "perf bench sched pipe, pinned",
     lambda rivals, seconds: rivals.perf_mean(seconds, "sched", "pipe")),
    ("fork, exit, wait", "os.process.fork_exit_wait", "", "C loop fork_loop",
     lambda rivals, seconds: rivals.run_c_loop("fork_loop", "fork.life", seconds, "fork", statistic="mean")),
]  # fmt: skip


def measure_pair(kelvin, store, rivals, operation, seconds, random_source):
    """Measures one operation with kelvin and with the other tool, in random order. A figure that is not known is None."""
    _, metric, case, _, measure_rival = operation
    pair = {"metric": metric}
    for side in random_source.sample(["kelvin", "rival"], 2):
        if side == "kelvin":
            report = common.run_kelvin(kelvin, [metric], seconds, "--cpu", str(rivals.cpu), "--store", store)
            pair["kelvin"] = figures_to_keep(common.result_summary(common.requested_results(report)[metric, case]))["headline"]
        else:
            pair["rival"] = measure_rival(rivals, seconds)
    return pair


def measure(arguments, data):
    if arguments.rivals and "net" in arguments.area:
        hosts.enter_own_network(CONGESTION_CONTROL)
    kelvin = common.kelvin_program(arguments.kelvin)
    if arguments.reports:
        arguments.reports.mkdir(parents=True, exist_ok=True)
        if not data and (arguments.reports / "runs.sqlite").exists():
            raise common.BenchmarkError(f"--reports: {arguments.reports} has the store of another series; name another directory, or use --continue")
    random_source = random.Random(arguments.seed)
    run_settings = {"areas": arguments.area, "quick": arguments.quick, "fresh": arguments.fresh}
    data = data or {**run_settings, "seed": arguments.seed, "seconds": arguments.seconds, "runs": [], "pairs": []}
    if any(data[key] != value for key, value in run_settings.items()):
        raise common.BenchmarkError("--continue: that series has runs of another kind")
    run_count = len(data["runs"])
    rivals = Rivals(common.last_allowed_cpu()) if arguments.rivals else None
    loops = Loops(rivals, min(os.sched_getaffinity(0)), arguments.area, arguments.seconds) if arguments.rivals else None
    operations = OPERATIONS if {"cpu", "os"} & set(arguments.area) else []
    with tempfile.TemporaryDirectory(prefix="kelvin-bench-") as directory:
        for number in range(run_count, run_count + arguments.runs):
            common.log(f"run {number + 1} of {run_count + arguments.runs}")
            name = f"run-{number + 1:02}.sqlite" if arguments.fresh else "runs.sqlite"
            store = (arguments.reports or Path(directory)).resolve() / name
            data["runs"].append(measure_run(kelvin, store, arguments, number))
            # The first two runs come before any pair: they show whether the core is shared all the time.
            if rivals and number >= FIRST_PAIR_RUN:
                shuffled_operations = random_source.sample(operations, len(operations))
                data["pairs"] += [measure_pair(kelvin, store, rivals, operation, arguments.seconds, random_source) for operation in shuffled_operations]
            if loops:
                data["runs"][-1]["loops"] = loops.measure_loops(data["runs"][-1], random_source)
            yield data


# ---- judging


class Series:
    """One metric at one case over all runs."""

    def __init__(self, metric, case, results):
        self.metric, self.case = metric, case
        known_results = [result for result in results if result["headline"] is not None]
        self.headlines = [result["headline"] for result in known_results]
        self.unknown_count = len(results) - len(known_results)
        self.bimodal_count = sum(result.get("two_modes", False) for result in results)
        self.cycles = [result["cycles"] for result in known_results if result.get("cycles")]
        self.first_rounds = [result["first_rounds"] for result in known_results if len(result.get("first_rounds", [])) == RANGE_ROUNDS]
        self.all_intervals = [interval for interval in (result["interval"] for result in known_results) if interval]
        self.intervals = [interval for interval in self.all_intervals if interval["kind"] == "confidence"]

    def is_usable(self):
        return len(self.headlines) >= 3 and statistics.median(self.headlines) != 0

    def deviation(self):
        return statistics.stdev(self.headlines) / abs(statistics.fmean(self.headlines))

    def deviation_in_cycles(self):
        """The deviation of the headlines in core cycles, which do not depend on the clock. None if there are too few."""
        return statistics.stdev(self.cycles) / statistics.fmean(self.cycles) if len(self.cycles) >= 3 else None

    def robust_deviation(self):
        return common.robust_deviation(self.headlines) / abs(statistics.median(self.headlines))

    def interval_hits(self):
        """For each interval, whether it contains the median of all headlines."""
        median = statistics.median(self.headlines)
        return [interval["lower"] <= median <= interval["upper"] for interval in self.intervals]

    def width(self):
        """Median half-width over the standard deviation of the headlines; None without intervals or deviation."""
        deviation = statistics.stdev(self.headlines)
        half_widths = [(interval["upper"] - interval["lower"]) / 2 for interval in self.intervals]
        return statistics.median(half_widths) / deviation if half_widths and deviation > 0 else None


def all_series(data):
    by_key = {}
    for run in data["runs"]:
        for result in run["results"]:
            by_key.setdefault((result["metric"], result["case"]), []).append(result)
    return [Series(metric, case, results) for (metric, case), results in by_key.items()]


# Each function returns its text, and whether its bounds were kept.


def judge_groups(series, caches):
    """Judges the groups of figures, each by its bound."""
    rows, are_bounds_met = [], True
    for name, _, bound in GROUPS:
        members = [member for member in series if find_group(member, caches) == name]
        # A bimodal case has no meaningful deviation, but a bound applies to it as well.
        usable_members = [member for member in members if member.is_usable() and (bound is not None or not member.bimodal_count)]
        if not usable_members:
            continue
        deviations = [member.deviation() for member in usable_members]
        members_above = [member for member in usable_members if bound is not None and member.deviation() >= bound]
        are_bounds_met = are_bounds_met and not members_above
        worst = max(usable_members, key=Series.deviation)
        hits = [hit for member in usable_members for hit in member.interval_hits()]
        widths = [width for width in (member.width() for member in usable_members) if width is not None]
        in_cycles = [deviation for deviation in (member.deviation_in_cycles() for member in usable_members) if deviation is not None]
        rows.append([
            name,
            len(usable_members),
            len(members) - len(usable_members),
            common.format_percent(statistics.median(deviations)),
            common.format_percent(statistics.median(member.robust_deviation() for member in usable_members)),
            common.format_percent(statistics.median(in_cycles)) if in_cycles else "-",
            f"{common.format_percent(worst.deviation())} {worst.metric} {worst.case}".strip(),
            "-" if bound is None else f"< {bound * 100:g} %",
            "-" if bound is None else len(members_above),
            format_share(hits),
            f"{statistics.median(widths):.2f}" if widths else "-",
        ])  # fmt: skip
    header = ["group", "cases", "no headline", "CV, median", "robust CV", "CV in cycles", "worst CV", "bound", "cases above it", "coverage", "width"]
    return common.table(header, rows), are_bounds_met


def format_share(hits):
    return f"{sum(hits) / len(hits) * 100:.1f} %" if hits else "-"


def describe_bimodal(series):
    """A sentence with the cases that at least one run reported as bimodal."""
    case_texts = [f"{case_series.metric} {case_series.case} ({case_series.bimodal_count})" for case_series in series if case_series.bimodal_count]
    return f"Reported as bimodal, in so many of the runs: {', '.join(case_texts)}." if case_texts else ""


def compare_with_loops(data, series):
    """A table of kelvin's deviations and those of other programs that do the same work."""
    loop_deviations = deviations(data)
    rows = [
        [case_series.metric, case_series.case, common.format_percent(case_series.deviation()), common.format_percent(loop_deviations[case_series.metric, case_series.case])]
        for case_series in series
        if (case_series.metric, case_series.case) in loop_deviations and case_series.is_usable()
    ]
    table = common.table(["metric", "case", "kelvin's CV", "the other's CV"], rows)
    return f"The machine's own spread, by other programs on the same work after each run:\n\n{table}" if rows else ""


def judge_intervals(series):
    """Judges coverage and width over all figures."""
    usable_series = [case_series for case_series in series if case_series.is_usable()]
    hits = [hit for case_series in usable_series for hit in case_series.interval_hits()]
    widths = [width for width in (case_series.width() for case_series in usable_series) if width is not None]
    if not hits or not widths:
        return "No interval of the kind that a repeat must fall into was printed: coverage is not known.", False
    coverage, width = sum(hits) / len(hits), statistics.median(widths)
    text = f"Coverage of the printed 95 % intervals: {coverage * 100:.1f} % of {len(hits)} (bound {COVERAGE_BOUNDS[0]:.0%}..{COVERAGE_BOUNDS[1]:.0%}). "
    text += f"Median half-width: {width:.2f} observed standard deviations (bound {MAX_WIDTH:g}; an exact interval: 1.96)."
    return text, COVERAGE_BOUNDS[0] <= coverage <= COVERAGE_BOUNDS[1] and width <= MAX_WIDTH


def judge_all_areas(data, series):
    """Judges runs of all areas."""
    usable_series = [case_series for case_series in series if case_series.is_usable()]
    medians = {case_series: statistics.median(case_series.headlines) for case_series in usable_series}
    hits = [interval["lower"] <= medians[case_series] <= interval["upper"] for case_series in usable_series for interval in case_series.all_intervals]
    half_widths = [(interval["upper"] - interval["lower"]) / 2 / abs(medians[case_series]) for case_series in usable_series for interval in case_series.all_intervals]
    round_ranges = [(min(rounds), max(rounds), medians[case_series]) for case_series in usable_series for rounds in case_series.first_rounds]
    range_half_widths = [(upper - lower) / 2 / abs(median) for lower, upper, median in round_ranges]
    widths = [width for width in (case_series.width() for case_series in usable_series) if width is not None]
    if not hits or not widths:
        return "Too few figures have an interval: nothing can be judged.", False
    coverage, width = sum(hits) / len(hits), statistics.median(widths)
    lower, upper = ALL_AREAS_COVERAGE_BOUNDS
    rows = [
        ["median of all runs in the interval, of every kind", f"{coverage:.1%} of {len(hits)}", f"{lower:.0%} to {upper:.0%}", lower <= coverage <= upper],
        ["half-width, in observed deviations", f"{width:.2f}", f"at most {ALL_AREAS_MAX_WIDTH:.2f}", width <= ALL_AREAS_MAX_WIDTH],
        *[
            [f"half-width, at {quantile:.0%} of the figures", f"{half_width:.1%}", f"at most {bound:.1%}", half_width <= bound]
            for quantile, bound in HALF_WIDTH_BOUNDS
            for half_width in [value_at_quantile(half_widths, quantile)]
        ],
        *[
            [f"the same over that of ranges of three rounds, at {quantile:.0%}", f"{ratio:.2f}", "at most 1", ratio <= 1]
            for quantile, _ in HALF_WIDTH_BOUNDS
            if range_half_widths
            for ratio in [value_at_quantile(half_widths, quantile) / value_at_quantile(range_half_widths, quantile)]
        ],
    ]  # fmt: skip
    text, are_bounds_met = judge_bounds([*rows, *run_bounds(data, series, MAX_NOT_KNOWN_SHARE, RUN_SECONDS)])
    if round_ranges:
        hit_share = sum(lower <= median <= upper for lower, upper, median in round_ranges) / len(round_ranges)
        text += f"\n\nThe range of the first three rounds of a run holds the median of all runs in {hit_share:.1%}."
    return text, are_bounds_met


def judge_other_runs(data):
    """Judges how often the interval of one run contains the figure of another run, by area."""
    by_key = {}
    for run in data["runs"]:
        for result in run["results"]:
            if result["headline"] is not None and result["interval"] is not None:
                by_key.setdefault((result["metric"], result["case"]), []).append((result["headline"], result["interval"]))
    hits_by_area, half_widths_by_area = {}, {}
    for (metric, _), figures in by_key.items():
        area = metric.split(".")[0]
        pairs = [(figure, other_figure) for figure in figures for other_figure in figures if figure is not other_figure]
        hits_by_area.setdefault(area, []).extend(interval["lower"] <= other_figure <= interval["upper"] for (_, interval), (other_figure, _) in pairs)
        half_widths_by_area.setdefault(area, []).extend((own_interval["upper"] - own_interval["lower"]) / 2 / abs(headline) for headline, own_interval in figures if headline)
    if not hits_by_area:
        return "No figure has an interval: nothing can be judged.", False
    lower, upper = OTHER_RUN_COVERAGE_BOUNDS
    min_coverage = MIN_AREA_COVERAGE
    all_hits = [figure for area in hits_by_area.values() for figure in area]
    rows = [["all", all_hits, [half_width for area in half_widths_by_area.values() for half_width in area], f"{lower:.0%} to {upper:.0%}", lower <= sum(all_hits) / len(all_hits) <= upper]]
    rows += [[area, hits, half_widths_by_area[area], f"at least {min_coverage:.0%}", sum(hits) / len(hits) >= min_coverage] for area, hits in sorted(hits_by_area.items())]
    header = ["area", "another run's figure in the interval", "pairs", "half-width, median", "at 90 %", "bound", ""]
    table = common.table(header, [
        [area, format_share(hits), len(hits), common.format_percent(statistics.median(half_widths)), common.format_percent(value_at_quantile(half_widths, 0.9)), bound, "holds" if is_bound_met else "MISSED"]
        for area, hits, half_widths, bound, is_bound_met in rows
    ])  # fmt: skip
    return table, all(row[-1] for row in rows)


def value_at_quantile(values, quantile):
    """The quantile of the values. The quantile is a multiple of 0.01."""
    return statistics.quantiles(values, n=100)[round(100 * quantile) - 1]


def run_bounds(data, series, max_unknown, usual_seconds):
    """The rows on the figures that are not known and on the length of a run."""
    figure_count = sum(len(case_series.headlines) + case_series.unknown_count for case_series in series)
    unknown_share = sum(case_series.unknown_count for case_series in series) / figure_count
    seconds = [run["seconds"] for run in data["runs"]]
    return [
        ["figures not known", f"{unknown_share:.1%} of {figure_count}", f"at most {max_unknown:.0%}", unknown_share <= max_unknown],
        ["length of a run", f"{min(seconds):.1f} to {max(seconds):.1f} s", f"{usual_seconds} s within {SECONDS_TOLERANCE:.0%}", all(abs(run_seconds / usual_seconds - 1) <= SECONDS_TOLERANCE for run_seconds in seconds)],
    ]  # fmt: skip


def judge_bounds(rows):
    table = common.table(["over all figures", "found", "bound", ""], [[*row[:-1], "holds" if row[-1] else "MISSED"] for row in rows])
    return table, all(row[-1] for row in rows)


def judge_pairs(data):
    """Judges kelvin's deviation, which must be below half of that of other tools."""
    rows, are_bounds_met = [], True
    for name, metric, _, rival, _ in OPERATIONS:
        all_pairs = [pair for pair in data["pairs"] if pair["metric"] == metric]
        pairs = [pair for pair in all_pairs if pair["kelvin"] is not None]
        if len(pairs) < 3:
            continue
        deviation = lambda side: statistics.stdev(p[side] for p in pairs) / statistics.fmean(p[side] for p in pairs)
        ours, theirs = deviation("kelvin"), deviation("rival")
        is_bound_met = ours < MAX_DEVIATION_RATIO * theirs
        are_bounds_met = are_bounds_met and is_bound_met
        median = lambda side: common.format_time(statistics.median(p[side] for p in pairs))
        unknown_count = len(all_pairs) - len(pairs)
        rows.append([name, median("kelvin"), unknown_count, common.format_percent(ours), rival, median("rival"), common.format_percent(theirs), f"{ours / theirs:.2f}", "yes" if is_bound_met else "NO"])
    header = ["operation", "kelvin", "not known", "its CV", "beside it", "its figure", "its CV", "CV over CV", f"below {MAX_DEVIATION_RATIO:g}"]
    return f"The same operation, {data['seconds']:g} s each, interleaved:\n\n{common.table(header, rows)}", are_bounds_met


def parse():
    parser = common.make_parser(__doc__, is_series=True)
    parser.add_argument("--runs", type=int, default=20, help="runs [default: %(default)s]")
    parser.add_argument("--quick", action="store_true", help="quick runs instead of default runs (their first intervals are ranges)")
    parser.add_argument("--fresh", action="store_true", help="each run in a store of its own; judge whether the figures of other runs lie in its intervals")
    parser.add_argument("--rivals", action="store_true", help="also measure the same operations with other tools")
    parser.add_argument("--seconds", type=float, default=5, help="wall time of each side with --rivals [default: %(default)s]")
    parser.add_argument("--reports", type=Path, metavar="DIR", help="keep the full report of each run in DIR, as run-NN.json.gz, and the store")
    parser.add_argument("--area", action="append", help="an area to run, or all; may be given more than once [default: cpu and os]")
    arguments = parser.parse_args()
    arguments.area = arguments.area or ["cpu", "os"]
    if ALL_AREAS in arguments.area and len(arguments.area) > 1:
        parser.error("--area all excludes other areas")
    if arguments.runs < (1 if arguments.earlier else 3):
        parser.error("--runs must be at least 3, or with --continue 1")
    return arguments


def tables(data):
    seconds = statistics.median(run["seconds"] for run in data["runs"])
    mode = "quick" if data["quick"] else "default"
    run_text = f"{len(data['runs'])} {mode} runs of {' and '.join(data['areas'])}, {seconds:.1f} s each."
    series = all_series(data)
    if data["fresh"]:
        sections = [judge_other_runs(data)]
    else:
        sections = list(judge_repeats(data, series))
    if data["pairs"]:
        sections.append(judge_pairs(data))
    texts, are_bounds_met = zip(*sections)
    further_texts = [] if data["fresh"] else [describe_bimodal(series), compare_with_loops(data, series)]
    return "\n\n".join(filter(None, [run_text, *texts, *further_texts])), all(are_bounds_met)


def judge_repeats(data, series):
    """Judges runs in one store. In runs of all areas the groups have no bounds."""
    groups, are_bounds_met = judge_groups(series, data["runs"][0]["caches"])
    if data["areas"] != [ALL_AREAS]:
        yield groups, are_bounds_met
        yield judge_intervals(series)
        return
    yield groups, True
    conclusions_text, are_conclusions_consistent = conclusions.judge(data["runs"], data["seed"])
    if data["quick"]:
        yield judge_bounds(run_bounds(data, series, QUICK_MAX_NOT_KNOWN_SHARE, QUICK_RUN_SECONDS))
        # A half of five rounds has ranges, which decide nothing: it does not affect the verdict.
        yield conclusions_text, True
    else:
        yield judge_all_areas(data, series)
        yield conclusions_text, are_conclusions_consistent


if __name__ == "__main__":
    common.main(parse, measure, tables)
