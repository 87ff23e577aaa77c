#!/usr/bin/env python3
"""Whether a second run of kelvin agrees with the first, and whether its error bars are neither too wide nor too narrow.

N runs of the CPU and the operating system (or of other areas), default settings, one after the other into one fresh store (so
that later runs learn from earlier ones how much runs differ, as they do for a user). Of every metric at every case:

  deviation   the coefficient of variation of its N headlines, a robust one from the median absolute deviation, and that of
              the headlines in core cycles, where they make sense: what is left without the clock's own drift
  coverage    the share of its printed 95 % intervals that contain the median of its N headlines
  width       the median half-width of those intervals over the observed standard deviation of the headlines; an exact
              interval of a normal value is 1.96 of them to each side

Bounds: every case of the groups calls, loops and clock below 1 %; system calls below 2 %; switches on one CPU, fork and threads
below 5 %; latency of the first and second level below 1 %, of main memory below 2 %, bandwidth of memory below 3 %; round trips
between two processes on one CPU below 4 %, bandwidth of streams between them below 5 %; coverage over all (metric, run) pairs
90..98 %; median width at most 2.

With --area all, which is a default run of everything, the bounds are others, over all figures at once: intervals of every kind contain
the median in 93..98 %; median width at most 1.3 exact intervals; half-widths at most 1.7 % of the headline in the median, 7.1 % at three
quarters and 14.8 % at nine tenths, and at most those of the range of the first three rounds of the same runs, which holds the median far less
often and says how noisy the machine was; at most 1 % of the figures not known; each run within 5 % of its 150 s. And what a run concludes is
compared with what its own halves and other runs conclude: of 100 such pairs that have 40 decided conclusions at least on each side, at
most 5 differ in direction anywhere (bench/conclusions.py). With --quick as well there are two bounds: at most 3 % of the figures not known, each
run within 5 % of its 45 s.

With --rivals, also: other tools given the same wall time (--seconds) on the same operation and CPU as kelvin, interleaved
with it in random order after each run from the third on: kelvin's coefficient of variation must be below half of theirs.
Each tool is used as by hand: perf bench one run with its mean, a C loop the mean of its operations; where kelvin reports a
figure as not known, the pair is left out.

With --fresh each run has a store of its own, as the first run of a user has, and what a run promises is asked for: that another run's
figure lies in its interval. Over all pairs of different runs that must be so in 93 to 97 %, and in 90 % at least of the figures of each
area; the half-widths stand beside it.

A value that changes from round to round or from run to run, such as the latency of a working set near the size of a shared
cache, is reported as bimodal: its cases have no meaningful deviation and are named apart.

With --rivals and the memory or the network area, also: other programs on the same work after each run (bench/loops.py: plain C
loops, iperf3), whose own coefficients of variation stand beside kelvin's. They are not judged: they show the machine's share of
its spread. The network area runs in a network namespace, for iperf3's sake (bench/streams.py).

With --reports DIR the whole report of each run is kept there, as compressed JSON, and the store. With --continue further runs are added to
a kept series, so that a long one can be made in pieces: with the same --reports they go on in the same store.

Exit status: 0 every bound was kept, 1 one was not, 2 it could not be done.
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
from streams import CONTROL


def is_metric_below(*ids):
    """Whether a metric is one of these, or lies below one; whatever its working set is."""
    return lambda one, _, __: any(one.metric == id or one.metric.startswith(f"{id}.") for id in ids)


def is_below_on_one_cpu(*ids):
    """Whether it is one of these metrics, or below one, on one CPU."""
    fits = is_metric_below(*ids)
    return lambda one, bytes, caches: fits(one, bytes, caches) and "placement=same_cpu" in one.case.split()


def latency(where):
    """Whether it is the latency of a working set: half of the second level at most, or four times the last one at least."""
    inside = {"caches": lambda bytes, caches: bytes <= caches[1] / 2, "memory": lambda bytes, caches: bytes >= 4 * caches[-1]}[where]
    return lambda one, bytes, caches: one.metric == "mem.latency" and len(caches) > 1 and inside(bytes, caches)


# Groups: name, whether a metric at a working set belongs to it, and the bound of the coefficients of variation. The first
# one that fits counts.
GROUPS = [
    ("calls, loops, clock", is_metric_below("cpu.call", "cpu.loop", "cpu.clock", "cpu.frequency", "cpu.latency"), 0.01),
    ("system calls", is_metric_below("os.syscall"), 0.02),
    (
        "switches on one CPU, fork, threads",
        is_metric_below("os.switch.cost", "os.switch.round_trip", "os.switch.channel_calls", "os.process.fork", "os.process.vfork", "os.thread"),
        0.05,
    ),
    ("latency, first and second level", latency("caches"), 0.01),
    ("latency, main memory", latency("memory"), 0.02),
    ("bandwidth of memory", is_metric_below("mem.bandwidth"), 0.03),
    ("round trips on one CPU", is_below_on_one_cpu("net.rtt"), 0.04),
    ("bandwidth of streams", lambda one, *_: one.metric in ("net.bandwidth.tcp", "net.bandwidth.tcp.way", "net.bandwidth.unix"), 0.05),
    ("everything else", lambda *_: True, None),
]
COVERAGE = (0.90, 0.98)
MAX_WIDTH = 2.0
# The same of runs of everything, and: shares of half-widths with their bounds as shares of the headline, figures not known, seconds.
ALL_AREAS = "all"
COVERAGE_OF_ALL_AREAS = (0.93, 0.98)
MAX_WIDTH_OF_ALL_AREAS = 1.3 * 1.96
ROUNDS_OF_A_RANGE = 3
HALF_WIDTHS = [(0.5, 0.017), (0.75, 0.071), (0.9, 0.148)]
MAX_NOT_KNOWN_SHARE = 0.01
SECONDS, SECONDS_TOLERANCE = 150, 0.05
# The same of quick runs, whose few rounds have ranges rather than intervals.
MAX_NOT_KNOWN_SHARE_QUICK, SECONDS_OF_QUICK = 0.03, 45
# With --fresh: another run's figure in an interval, over all figures, and in each area at least.
COVERAGE_OF_ANOTHER_RUN, COVERAGE_OF_ANOTHER_IN_AN_AREA = (0.93, 0.97), 0.90
MAX_DEVIATION_RATIO = 0.5
# Runs before the first pair.
FIRST_PAIR_RUN = 2


def find_group(one, caches):
    """The first group that a series fits into; `caches` are the sizes of the data caches, innermost first."""
    bytes = next((int(part.removeprefix("bytes=")) for part in one.case.split() if part.startswith("bytes=")), 0)
    return next(name for name, fits, _ in GROUPS if fits(one, bytes, caches))


# ---- measuring


def measure_run(kelvin, store, arguments, number):
    """The headlines, intervals and conclusions of one more run."""
    begun = time.monotonic()
    flags = ["--quick"] if arguments.quick else []
    names = [] if arguments.area == [ALL_AREAS] else arguments.area
    output = common.run([kelvin, "run", *names, "--json", "--with-samples", "--no-report", "--store", store, *flags], timeout=900)
    seconds = time.monotonic() - begun
    if arguments.reports:
        (arguments.reports / f"run-{number + 1:02}.json.gz").write_bytes(gzip.compress(output.encode(), 6))
    report = json.loads(output)
    return {
        "seconds": seconds,
        **(run_conclusions(kelvin, report) if arguments.area == [ALL_AREAS] else {}),
        "undisturbed_share": report["analysis"]["undisturbed_share"],
        "caches": data_caches(report["run"]["machine"]["topology"]["caches"]),
        "results": [
            {"metric": metric, "case": case, **kept_figures(common.summary(result)), "cycles": result.get("cycles")}
            for (metric, case), result in common.results(report).items()
            # What this machine has not is no figure that is not known.
            if "skipped" not in result["outcome"]
        ],
    }


def run_conclusions(kelvin, report):
    """What a run concludes, and its halves."""
    return {"concluded": conclusions.report_conclusions(report), "halves": conclusions.halves_conclusions(kelvin, report)}


def data_caches(fact):
    """Sizes of the caches that hold data, innermost first, as far as the machine reports them."""
    known = fact.get("known", {}).get("value", [])
    return [cache["bytes"] for cache in sorted(known, key=lambda cache: cache["level"]) if cache["kind"] != "instruction"]


def kept_figures(summary):
    """What is kept of a summary; nothing but nulls where there is no headline."""
    if summary is None:
        return {"headline": None, "interval": None, "as_found": None, "undisturbed_share": None, "two_modes": False, "first_rounds": []}
    return {
        "two_modes": summary["mode_unit"] != "samples" and len(summary["modes"]) > 1,
        "headline": summary["headline"],
        "interval": summary["interval"],
        "as_found": summary["as_found"]["value"],
        "undisturbed_share": summary["undisturbed_share"],
        "first_rounds": summary["round_headlines"][:ROUNDS_OF_A_RANGE],
    }


# Operation: kelvin's metric and case, and the tool on the same.
SAME_WORK = [
    ("procedure call", "cpu.call.args", "arguments=0 via=direct", "C loop call_loop",
     lambda rivals, seconds: rivals.c_loop("call_loop", "call.direct", seconds, what="mean")),
    ("null call", "os.syscall.null", "call=getppid", "perf bench syscall basic",
     lambda rivals, seconds: rivals.perf_mean(seconds, "syscall", "basic")),
    ("pipe round trip", "os.switch.round_trip", "mechanism=pipe task=process", "perf bench sched pipe, pinned",
     lambda rivals, seconds: rivals.perf_mean(seconds, "sched", "pipe")),
    ("fork, exit, wait", "os.process.fork_exit_wait", "", "C loop fork_loop",
     lambda rivals, seconds: rivals.c_loop("fork_loop", "fork.life", seconds, "fork", what="mean")),
]  # fmt: skip


def measure_pair(kelvin, store, rivals, work, seconds, random_source):
    """Kelvin and the other tool on one operation, in random order; no figure where kelvin reports that it is not known."""
    _, metric, case, _, theirs = work
    pair = {"metric": metric}
    for side in random_source.sample(["kelvin", "rival"], 2):
        if side == "kelvin":
            report = common.measure(kelvin, [metric], seconds, "--cpu", str(rivals.cpu), "--store", store)
            pair["kelvin"] = kept_figures(common.summary(common.results(report)[metric, case]))["headline"]
        else:
            pair["rival"] = theirs(rivals, seconds)
    return pair


def measure(arguments, data):
    if arguments.rivals and "net" in arguments.area:
        hosts.in_own_network(CONTROL)
    kelvin = common.kelvin_program(arguments.kelvin)
    if arguments.reports:
        arguments.reports.mkdir(parents=True, exist_ok=True)
        if not data and (arguments.reports / "runs.sqlite").exists():
            raise common.Missing(f"--reports: {arguments.reports} holds the store of another series; name a directory without one, or --continue")
    random_source = random.Random(arguments.seed)
    kind = {"areas": arguments.area, "quick": arguments.quick, "fresh": arguments.fresh}
    data = data or {**kind, "seed": arguments.seed, "seconds": arguments.seconds, "runs": [], "pairs": []}
    if any(data[what] != value for what, value in kind.items()):
        raise common.Missing("--continue: that series has runs of another kind")
    done = len(data["runs"])
    rivals = Rivals(common.last_allowed_cpu()) if arguments.rivals else None
    loops = Loops(rivals, min(os.sched_getaffinity(0)), arguments.area, arguments.seconds) if arguments.rivals else None
    works = SAME_WORK if {"cpu", "os"} & set(arguments.area) else []
    with tempfile.TemporaryDirectory(prefix="kelvin-bench-") as directory:
        for number in range(done, done + arguments.runs):
            common.log(f"run {number + 1} of {done + arguments.runs}")
            name = f"run-{number + 1:02}.sqlite" if arguments.fresh else "runs.sqlite"
            store = (arguments.reports or Path(directory)).resolve() / name
            data["runs"].append(measure_run(kelvin, store, arguments, number))
            # A core that is shared all along is known by two runs before.
            if rivals and number >= FIRST_PAIR_RUN:
                in_order = random_source.sample(works, len(works))
                data["pairs"] += [measure_pair(kelvin, store, rivals, work, arguments.seconds, random_source) for work in in_order]
            if loops:
                data["runs"][-1]["loops"] = loops.measure_loops(data["runs"][-1], random_source)
            yield data


# ---- judging


class Series:
    """One metric at one case over all runs."""

    def __init__(self, metric, case, results):
        self.metric, self.case = metric, case
        known = [result for result in results if result["headline"] is not None]
        self.headlines = [result["headline"] for result in known]
        self.unknown = len(results) - len(known)
        self.two_modes = sum(result.get("two_modes", False) for result in results)
        self.cycles = [result["cycles"] for result in known if result.get("cycles")]
        self.first_rounds = [result["first_rounds"] for result in known if len(result.get("first_rounds", [])) == ROUNDS_OF_A_RANGE]
        self.all_intervals = [i for i in (result["interval"] for result in known) if i]
        self.intervals = [i for i in self.all_intervals if i["kind"] == "confidence"]

    def is_usable(self):
        return len(self.headlines) >= 3 and statistics.median(self.headlines) != 0

    def deviation(self):
        return statistics.stdev(self.headlines) / abs(statistics.fmean(self.headlines))

    def deviation_in_cycles(self):
        """The same of the headlines in core cycles, which are independent of the clock; None where they make no sense."""
        return statistics.stdev(self.cycles) / statistics.fmean(self.cycles) if len(self.cycles) >= 3 else None

    def robust_deviation(self):
        return common.robust_deviation(self.headlines) / abs(statistics.median(self.headlines))

    def covered(self):
        """For each interval whether it contains the median of all headlines."""
        middle = statistics.median(self.headlines)
        return [interval["lower"] <= middle <= interval["upper"] for interval in self.intervals]

    def width(self):
        """Median half-width over the standard deviation of the headlines; None without intervals or deviation."""
        deviation = statistics.stdev(self.headlines)
        halves = [(interval["upper"] - interval["lower"]) / 2 for interval in self.intervals]
        return statistics.median(halves) / deviation if halves and deviation > 0 else None


def all_series(data):
    by_key = {}
    for run in data["runs"]:
        for result in run["results"]:
            by_key.setdefault((result["metric"], result["case"]), []).append(result)
    return [Series(metric, case, results) for (metric, case), results in by_key.items()]


# Each gives its text, and whether its bounds were kept.


def judge_groups(series, caches):
    """The groups of figures, each with its bound."""
    rows, kept = [], True
    for name, _, bound in GROUPS:
        members = [one for one in series if find_group(one, caches) == name]
        # A bimodal case has no deviation of its own; a bound holds for it all the same.
        usable = [one for one in members if one.is_usable() and (bound is not None or not one.two_modes)]
        if not usable:
            continue
        deviations = [one.deviation() for one in usable]
        above = [one for one in usable if bound is not None and one.deviation() >= bound]
        kept = kept and not above
        worst = max(usable, key=Series.deviation)
        covered = [inside for one in usable for inside in one.covered()]
        widths = [width for width in (one.width() for one in usable) if width is not None]
        in_cycles = [deviation for deviation in (one.deviation_in_cycles() for one in usable) if deviation is not None]
        rows.append([
            name,
            len(usable),
            len(members) - len(usable),
            common.percent(statistics.median(deviations)),
            common.percent(statistics.median(one.robust_deviation() for one in usable)),
            common.percent(statistics.median(in_cycles)) if in_cycles else "-",
            f"{common.percent(worst.deviation())} {worst.metric} {worst.case}".strip(),
            "-" if bound is None else f"< {bound * 100:g} %",
            "-" if bound is None else len(above),
            share(covered),
            f"{statistics.median(widths):.2f}" if widths else "-",
        ])  # fmt: skip
    header = ["group", "cases", "no headline", "CV, median", "robust CV", "CV in cycles", "worst CV", "bound", "cases above it", "coverage", "width"]
    return common.table(header, rows), kept


def share(covered):
    return f"{sum(covered) / len(covered) * 100:.1f} %" if covered else "-"


def bimodal(series):
    """The cases that some run reported as bimodal."""
    told = [f"{one.metric} {one.case} ({one.two_modes})" for one in series if one.two_modes]
    return f"Reported as bimodal, in so many of the runs: {', '.join(told)}." if told else ""


def beside_loops(data, series):
    """The table of kelvin's deviation beside that of the same work by another program."""
    theirs = deviations(data)
    rows = [
        [one.metric, one.case, common.percent(one.deviation()), common.percent(theirs[one.metric, one.case])]
        for one in series
        if (one.metric, one.case) in theirs and one.is_usable()
    ]
    table = common.table(["metric", "case", "kelvin's CV", "the other's CV"], rows)
    return f"The machine's own spread, by other programs on the same work after each run:\n\n{table}" if rows else ""


def judge_intervals(series):
    """Coverage and width over everything."""
    usable = [one for one in series if one.is_usable()]
    covered = [inside for one in usable for inside in one.covered()]
    widths = [width for width in (one.width() for one in usable) if width is not None]
    if not covered or not widths:
        return "No interval of the kind that a repeat must fall into was printed: coverage is not known.", False
    coverage, width = sum(covered) / len(covered), statistics.median(widths)
    text = f"Coverage of the printed 95 % intervals: {coverage * 100:.1f} % of {len(covered)} (bound {COVERAGE[0]:.0%}..{COVERAGE[1]:.0%}). "
    text += f"Median half-width: {width:.2f} observed standard deviations (bound {MAX_WIDTH:g}; an exact interval: 1.96)."
    return text, COVERAGE[0] <= coverage <= COVERAGE[1] and width <= MAX_WIDTH


def judge_everything(data, series):
    """The bounds of runs of everything."""
    usable = [one for one in series if one.is_usable()]
    middle = {one: statistics.median(one.headlines) for one in usable}
    inside = [i["lower"] <= middle[one] <= i["upper"] for one in usable for i in one.all_intervals]
    halves = [(i["upper"] - i["lower"]) / 2 / abs(middle[one]) for one in usable for i in one.all_intervals]
    ranges = [(min(rounds), max(rounds), middle[one]) for one in usable for rounds in one.first_rounds]
    halves_of_ranges = [(high - low) / 2 / abs(truth) for low, high, truth in ranges]
    widths = [width for width in (one.width() for one in usable) if width is not None]
    if not inside or not widths:
        return "Too few figures have an interval: nothing can be judged.", False
    coverage, width = sum(inside) / len(inside), statistics.median(widths)
    low, high = COVERAGE_OF_ALL_AREAS
    rows = [
        ["median of all runs in the interval, of every kind", f"{coverage:.1%} of {len(inside)}", f"{low:.0%} to {high:.0%}", low <= coverage <= high],
        ["half-width, in observed deviations", f"{width:.2f}", f"at most {MAX_WIDTH_OF_ALL_AREAS:.2f}", width <= MAX_WIDTH_OF_ALL_AREAS],
        *[
            [f"half-width, at {at:.0%} of the figures", f"{half:.1%}", f"at most {bound:.1%}", half <= bound]
            for at, bound in HALF_WIDTHS
            for half in [at_share(halves, at)]
        ],
        *[
            [f"the same over that of ranges of three rounds, at {at:.0%}", f"{ratio:.2f}", "at most 1", ratio <= 1]
            for at, _ in HALF_WIDTHS
            if halves_of_ranges
            for ratio in [at_share(halves, at) / at_share(halves_of_ranges, at)]
        ],
    ]  # fmt: skip
    text, kept = judge_bounds([*rows, *known_in_time(data, series, MAX_NOT_KNOWN_SHARE, SECONDS)])
    if ranges:
        held = sum(low <= truth <= high for low, high, truth in ranges) / len(ranges)
        text += f"\n\nThe range of the first three rounds of a run holds the median of all runs in {held:.1%}."
    return text, kept


def judge_another_run(data):
    """How often the interval of one run holds the figure of another one, by area."""
    by_key = {}
    for run in data["runs"]:
        for result in run["results"]:
            if result["headline"] is not None and result["interval"] is not None:
                by_key.setdefault((result["metric"], result["case"]), []).append((result["headline"], result["interval"]))
    inside, halves = {}, {}
    for (metric, _), figures in by_key.items():
        area = metric.split(".")[0]
        pairs = [(one, other) for one in figures for other in figures if one is not other]
        inside.setdefault(area, []).extend(interval["lower"] <= other <= interval["upper"] for (_, interval), (other, _) in pairs)
        halves.setdefault(area, []).extend((i["upper"] - i["lower"]) / 2 / abs(headline) for headline, i in figures if headline)
    if not inside:
        return "No figure has an interval: nothing can be judged.", False
    low, high = COVERAGE_OF_ANOTHER_RUN
    least = COVERAGE_OF_ANOTHER_IN_AN_AREA
    whole = [one for area in inside.values() for one in area]
    rows = [["all", whole, [half for area in halves.values() for half in area], f"{low:.0%} to {high:.0%}", low <= sum(whole) / len(whole) <= high]]
    rows += [[area, of, halves[area], f"at least {least:.0%}", sum(of) / len(of) >= least] for area, of in sorted(inside.items())]
    header = ["area", "another run's figure in the interval", "pairs", "half-width, median", "at 90 %", "bound", ""]
    table = common.table(header, [
        [area, share(of), len(of), common.percent(statistics.median(width)), common.percent(at_share(width, 0.9)), bound, "holds" if kept else "MISSED"]
        for area, of, width, bound, kept in rows
    ])  # fmt: skip
    return table, all(row[-1] for row in rows)


def at_share(values, share):
    """The value below which this share of them lies, in whole hundredths."""
    return statistics.quantiles(values, n=100)[round(100 * share) - 1]


def known_in_time(data, series, not_known, usual):
    """The rows of the figures that are not known and of the length of a run."""
    figures = sum(len(one.headlines) + one.unknown for one in series)
    unknown = sum(one.unknown for one in series) / figures
    seconds = [run["seconds"] for run in data["runs"]]
    return [
        ["figures not known", f"{unknown:.1%} of {figures}", f"at most {not_known:.0%}", unknown <= not_known],
        ["length of a run", f"{min(seconds):.1f} to {max(seconds):.1f} s", f"{usual} s within {SECONDS_TOLERANCE:.0%}", all(abs(s / usual - 1) <= SECONDS_TOLERANCE for s in seconds)],
    ]  # fmt: skip


def judge_bounds(rows):
    table = common.table(["over all figures", "found", "bound", ""], [[*row[:-1], "holds" if row[-1] else "MISSED"] for row in rows])
    return table, all(row[-1] for row in rows)


def judge_pairs(data):
    """Kelvin beside other tools: its deviation must be below half of theirs."""
    rows, kept = [], True
    for name, metric, _, rival, _ in SAME_WORK:
        all_pairs = [pair for pair in data["pairs"] if pair["metric"] == metric]
        pairs = [pair for pair in all_pairs if pair["kelvin"] is not None]
        if len(pairs) < 3:
            continue
        deviation = lambda side: statistics.stdev(p[side] for p in pairs) / statistics.fmean(p[side] for p in pairs)
        ours, theirs = deviation("kelvin"), deviation("rival")
        good = ours < MAX_DEVIATION_RATIO * theirs
        kept = kept and good
        median = lambda side: common.time_text(statistics.median(p[side] for p in pairs))
        unknown = len(all_pairs) - len(pairs)
        rows.append([name, median("kelvin"), unknown, common.percent(ours), rival, median("rival"), common.percent(theirs), f"{ours / theirs:.2f}", "yes" if good else "NO"])
    header = ["operation", "kelvin", "not known", "its CV", "beside it", "its figure", "its CV", "CV over CV", f"below {MAX_DEVIATION_RATIO:g}"]
    return f"The same operation, {data['seconds']:g} s each, interleaved:\n\n{common.table(header, rows)}", kept


def parse():
    parser = common.make_parser(__doc__, is_series=True)
    parser.add_argument("--runs", type=int, default=20, help="runs [default: %(default)s]")
    parser.add_argument("--quick", action="store_true", help="quick runs instead of default ones (their intervals are ranges at first)")
    parser.add_argument("--fresh", action="store_true", help="each run in a store of its own: whether another run's figure lies in its intervals")
    parser.add_argument("--rivals", action="store_true", help="other tools beside kelvin on the same operations")
    parser.add_argument("--seconds", type=float, default=5, help="wall time of each side with --rivals [default: %(default)s]")
    parser.add_argument("--reports", type=Path, metavar="DIR", help="keep the whole report of each run there, as run-NN.json.gz, and the store")
    parser.add_argument("--area", action="append", help="an area to run; may be given more than once; or all [default: cpu and os]")
    arguments = parser.parse_args()
    arguments.area = arguments.area or ["cpu", "os"]
    if ALL_AREAS in arguments.area and len(arguments.area) > 1:
        parser.error("--area all is all of them: name no other")
    if arguments.runs < (1 if arguments.earlier else 3):
        parser.error("--runs must be at least 3, or with --continue 1")
    return arguments


def tables(data):
    seconds = statistics.median(run["seconds"] for run in data["runs"])
    mode = "quick" if data["quick"] else "default"
    about = f"{len(data['runs'])} {mode} runs of {' and '.join(data['areas'])}, {seconds:.1f} s each."
    series = all_series(data)
    if data["fresh"]:
        judged = [judge_another_run(data)]
    else:
        judged = list(judge_repeats(data, series))
    if data["pairs"]:
        judged.append(judge_pairs(data))
    texts, kept = zip(*judged)
    more = [] if data["fresh"] else [bimodal(series), beside_loops(data, series)]
    return "\n\n".join(filter(None, [about, *texts, *more])), all(kept)


def judge_repeats(data, series):
    """What is judged of runs in one store. Where everything was measured, the groups have no bounds of their own."""
    groups, kept = judge_groups(series, data["runs"][0]["caches"])
    if data["areas"] != [ALL_AREAS]:
        yield groups, kept
        yield judge_intervals(series)
        return
    yield groups, True
    of_conclusions, agree = conclusions.judge(data["runs"], data["seed"])
    if data["quick"]:
        yield judge_bounds(known_in_time(data, series, MAX_NOT_KNOWN_SHARE_QUICK, SECONDS_OF_QUICK))
        # A half of five rounds has ranges, from which nothing follows: it is no part of the verdict.
        yield of_conclusions, True
    else:
        yield judge_everything(data, series)
        yield of_conclusions, agree


if __name__ == "__main__":
    common.main(parse, measure, tables)
