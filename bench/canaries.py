#!/usr/bin/env python3
"""Whether the canaries disturb what they guard.

Pairs of runs, one with canaries between the batches and one without (--no-canaries), in random order, of metrics that a canary
could move: the shortest ones, and one for each thing that canaries touch (caches, branch predictions, kernel entry). The *as
found* figures are compared, since without canaries there are no others.

Bound: the 90 % interval of the ratio with / without lies within --bound of 1.

Exit status: 0 every bound was kept, 1 one was not, 2 it could not be done.
"""
import random
import statistics

import common

METRICS = [
    ("cpu.loop", ""),
    ("cpu.latency.load", ""),
    ("cpu.clock.gettime", "clock=monotonic"),
    ("os.syscall.null", "call=getppid"),
    ("os.syscall.read", ""),
    ("os.signal.deliver", ""),
    ("os.process.fork", ""),
    ("os.switch.process.pipe.round_trip", ""),
    ("net.rtt.icmp", "message=64"),
    ("net.crr", "placement=same_cpu"),
]


def parse():
    parser = common.parser_of_pairs(__doc__, seconds=6)
    parser.add_argument("--bound", type=float, default=0.02, help="largest change, as a share [default: %(default)s]")
    return common.parse_pairs(parser)


def benchmark():
    arguments = parse()
    kelvin, order = common.kelvin_program(arguments.kelvin), random.Random(arguments.seed)
    names = sorted({metric for metric, _ in METRICS})
    figures = {metric: {"with": [], "without": []} for metric in METRICS}
    for pair in range(arguments.pairs):
        for side in order.sample(["with", "without"], 2):
            flags = ["--rounds", "3"] + (["--no-canaries"] if side == "without" else [])
            report = common.measure(kelvin, names, arguments.seconds, *flags)
            for metric in METRICS:
                figures[metric][side].append(common.find(report, *metric)["as_found"]["value"])
        common.say(f"pair {pair + 1} of {arguments.pairs}")
    rows, kept = [], True
    for (metric, case), sides in figures.items():
        ratio, lower, upper = common.ratio_of_pairs(sides["with"], sides["without"])
        inside = 1 - arguments.bound <= lower and upper <= 1 + arguments.bound
        kept &= inside
        medians = [common.time_text(statistics.median(sides[side])) for side in ("with", "without")]
        verdict = "unmoved" if inside else "moved" if lower > 1 or upper < 1 else "not settled"
        rows.append([f"{metric} {case}".strip(), *medians, f"{ratio:.4f}", f"{lower:.4f}..{upper:.4f}", verdict])
    print(f"Canaries, {arguments.pairs} pairs of {arguments.seconds:g} s: {common.describe_machine()}\n")
    print(common.table(["metric", "with", "without", "ratio", "90 % interval", "verdict"], rows))
    return kept


if __name__ == "__main__":
    common.main(benchmark)
