#!/usr/bin/env python3
"""Whether `kelvin-cluster net` measures two hosts as osu_latency, osu_bw and iperf3 do, and `kelvin-cluster file` a file system as ior and mdtest do.

The hosts are two network namespaces of this machine. A pair is one short job of kelvin-cluster and one of the other program, in random order,
started by the same launcher with the same options. Both are pinned alike, the first rank to one CPU and the second to another, and have the
same real-time priority. The kernel leaves 5 % of a CPU to others, so that a job should be shorter than a second: five times --seconds.

  round trip              8 bytes over MPI: half of the mean, against osu_latency
  rate over MPI           against osu_bw with the same size of message, for about the same time
  rate over TCP           against what the receiver of iperf3 counts
  write, read             a file of each rank, which the other one reads: against `ior -F -C -e`
  create, stat, unlink    in a directory of each rank: against `mdtest -F -u`

--osu names the directory of osu_latency and osu_bw, --ior and --mdtest the programs, all built with the MPI of --launcher. What is not named is
left out. The ratio is judged over the pairs: its Hodges-Lehmann estimate and the exact 90 % interval of the signed-rank test. The whole interval
must be within 3 % of 1. A stat is reported and not judged: mdtest makes the name of each file by a slower call, within its time.

Exit status: 0 all agree, 1 at least one does not, 2 it could not be done.
"""
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import common

# The made hosts, and the launchers on them, are those of the tests of kelvin-cluster.
sys.path += [str(common.ROOT / "tests"), str(common.ROOT / "tests/cluster")]

import made_hosts
import mpi

TOLERANCE = 0.03
# A job that other programs held up would measure them: both sides have a real-time priority.
REAL_TIME = ["chrt", "--fifo", "1"]
JOB_SECONDS = 120
MESSAGE_BYTES = 8
# As kelvin-cluster divides the time of a pair, and osu_bw's messages in flight.
ROUND_TRIP_SHARE, RATE_SHARE, WINDOW = 0.2, 0.4, 64
BLOCK_BYTES = 1 << 20
MIB = 1 << 20
IPERF3_PORT = 5201
OSU_FIGURE = re.compile(r"^(\d+)\s+([0-9.]+)", re.MULTILINE)
IOR_RATE = re.compile(r"^(write|read)\s+([0-9.]+)", re.MULTILINE)
MDTEST_RATE = re.compile(r"^\s*File (creation|stat|removal)\s*:?\s+([0-9.]+)\s+([0-9.]+)\s+([0-9.]+)", re.MULTILINE)


class Jobs:
    """Programs on the two hosts."""

    def __init__(self, arguments, hosts, cpus):
        self.arguments, self.hosts, self.cpus = arguments, hosts, cpus
        self.launcher = getattr(mpi, arguments.launcher)

    def pinned(self, host, program):
        return [*REAL_TIME, "taskset", "-c", str(self.cpus[host]), *map(str, program)]

    def run_ranks(self, program, directory=None):
        """What a program of MPI prints, of which each host has a rank."""
        command = self.launcher(self.hosts, [self.pinned(host, program) for host in range(2)])
        return common.run(command, timeout=JOB_SECONDS, cwd=directory)

    def kelvin_events(self, name, *words):
        """What a job of kelvin-cluster measured."""
        with tempfile.TemporaryDirectory() as directory:
            self.run_ranks([self.arguments.kelvin, name, *words, "--json", "results"], directory)
            return [json.loads(line) for line in Path(directory, "results").read_text().splitlines()]

    def kelvin_pair(self, transport, seconds):
        """The figures of the one pair, which measures for so many seconds."""
        words = ["--transport", transport, "--passes", "1", "--together-time", "0s", "--pair-time", f"{seconds * 1e3:.0f}ms",
                 "--message-size", self.arguments.message_size]  # fmt: skip
        events = self.kelvin_events("net", *words)
        return next(event["figures"] for event in events if event["event"] == "pair")

    def osu(self, name, size, iterations, *words):
        output = self.run_ranks([self.arguments.osu / name, "-m", f"{size}:{size}", "-i", iterations, "-x", max(iterations // 4, 1), *words])
        return float(next(value for found, value in OSU_FIGURE.findall(output) if int(found) == size))

    def iperf3_rate(self, seconds):
        """Bytes per second that the receiver counted, without the first second."""
        server = self.hosts.enter(1) + self.pinned(1, ["iperf3", "-s", "-1", "-p", IPERF3_PORT])
        with subprocess.Popen(server, stdout=subprocess.DEVNULL) as process:
            try:
                time.sleep(0.5)
                client = ["iperf3", "-c", self.hosts.address(1), "-p", IPERF3_PORT, "-t", max(round(seconds), 1), "-O", "1", "--json"]
                output = common.run(self.hosts.enter(0) + self.pinned(0, client), timeout=JOB_SECONDS)
            finally:
                process.kill()
        return json.loads(output)["end"]["sum_received"]["bits_per_second"] / 8

    def kelvin_rates(self, directory, byte_count, files):
        """The mean rate of each activity by both ranks, in bytes or files per second."""
        passes = self.arguments.passes
        words = ["--layout", "own", "--bytes", byte_count, "--block", BLOCK_BYTES, "--files", files, "--passes", passes]
        words += ["--direct"] if self.arguments.direct else []
        rates = {}
        for step in self.kelvin_events("file", directory, *words):
            if step["event"] != "step" or len(step["parts"]) != 2:
                continue
            [(kind, activity)] = step["activity"].items()
            if kind == "metadata" and activity["sharing"] != "own":
                continue
            seconds = max(part["end_s"] for part in step["parts"])
            rates.setdefault(activity["operation"], []).append(2 * step["amount"] / seconds)
        return {operation: statistics.fmean(values) for operation, values in rates.items()}

    def ior_rates(self, directory, byte_count):
        words = ["-a", "POSIX", "-F", "-C", "-e", "-b", byte_count, "-t", BLOCK_BYTES, "-i", self.arguments.passes, "-o", Path(directory, "ior")]
        words += ["--posix.odirect"] if self.arguments.direct else []
        # A summary follows, whose lines begin with the same words and give the largest rate.
        output = self.run_ranks([self.arguments.ior, *words]).split("\nSummary of all tests:")[0]
        rates = {}
        for operation, value in IOR_RATE.findall(output):
            rates.setdefault(operation, []).append(float(value) * MIB)
        return {operation: statistics.fmean(values) for operation, values in rates.items()}

    def mdtest_rates(self, directory, files):
        output = self.run_ranks([self.arguments.mdtest, "-F", "-u", "-C", "-T", "-r", "-n", files, "-i", self.arguments.passes, "-d", Path(directory, "mdtest")])
        names = {"creation": "create", "stat": "stat", "removal": "unlink"}
        return {names[name]: float(mean) for name, _, _, mean in MDTEST_RATE.findall(output)}


@dataclass
class Comparison:
    """One quantity, by kelvin-cluster and by another program."""

    name: str
    rival: str
    unit: str
    judged: bool = True
    ours: list = field(default_factory=list)
    theirs: list = field(default_factory=list)

    def interval(self):
        return common.paired_ratio(self.ours, self.theirs)

    def verdict(self):
        return common.agreement_verdict(*self.interval()[1:], TOLERANCE) if self.judged else "reported only"

    def row(self):
        ratio, lower, upper = self.interval()
        median = lambda values: f"{statistics.median(values):.4g} {self.unit}"
        return [self.name, median(self.ours), self.rival, median(self.theirs), f"{ratio:.4f}", f"{lower:.4f}..{upper:.4f}", len(self.ours), self.verdict()]


@dataclass
class Sides:
    """A job of each side, which has the figures of several comparisons, by their key."""

    comparisons: dict
    ours: object
    theirs: object

    def verdict(self):
        return "not settled" if any(comparison.verdict() == "not settled" for comparison in self.comparisons.values()) else "settled"

    def measure(self, order):
        figures = {}
        for side in order.sample(["ours", "theirs"], 2):
            figures[side] = getattr(self, side)()
        for key, comparison in self.comparisons.items():
            comparison.ours.append(figures["ours"][key])
            comparison.theirs.append(figures["theirs"][key])


def network_sides(jobs):
    arguments, seconds = jobs.arguments, jobs.arguments.seconds
    rate = lambda transport, duration: jobs.kelvin_pair(transport, duration / RATE_SHARE)["bytes_per_second"][0]
    sides = [Sides({"": Comparison("rate over TCP", "iperf3", "B/s")}, lambda: {"": rate("tcp", seconds)}, lambda: {"": jobs.iperf3_rate(seconds)})]
    if arguments.osu:
        # What takes about as long as kelvin's part.
        sample = jobs.kelvin_pair("mpi", seconds / RATE_SHARE)
        exchanges = max(round(seconds * 1e9 / sample["round_trip"]["mean_ns"]), 100)
        windows = max(round(seconds * sample["bytes_per_second"][0] / (WINDOW * arguments.message_size)), 2)
        half_round_trip = lambda: {"": jobs.kelvin_pair("mpi", seconds / ROUND_TRIP_SHARE)["round_trip"]["mean_ns"] / 2e3}
        sides += [
            Sides({"": Comparison("round trip, half", "osu_latency", "us")}, half_round_trip,
                  lambda: {"": jobs.osu("osu_latency", MESSAGE_BYTES, exchanges)}),
            Sides({"": Comparison("rate over MPI", "osu_bw", "B/s")}, lambda: {"": rate("mpi", seconds)},
                  lambda: {"": 1e6 * jobs.osu("osu_bw", arguments.message_size, windows, "-W", WINDOW)}),
        ]  # fmt: skip
    return sides


def file_sides(jobs, directory):
    arguments = jobs.arguments
    sides = []
    if arguments.ior:
        data = {operation: Comparison(operation, "ior", "B/s") for operation in ("write", "read")}
        sides.append(Sides(data, lambda: jobs.kelvin_rates(directory, arguments.bytes, 0), lambda: jobs.ior_rates(directory, arguments.bytes)))
    if arguments.mdtest:
        files = {operation: Comparison(operation, "mdtest", "/s", operation != "stat") for operation in ("create", "stat", "unlink")}
        sides.append(Sides(files, lambda: jobs.kelvin_rates(directory, BLOCK_BYTES, arguments.files), lambda: jobs.mdtest_rates(directory, arguments.files)))
    return sides


def parse():
    parser = common.make_pairs_parser(__doc__, seconds=0.15, max_pairs=45)
    parser.set_defaults(kelvin=common.ROOT / "target/cluster/release/kelvin-cluster")
    parser.add_argument("--launcher", choices=["open_mpi", "mpich"], default="open_mpi", help="the MPI of all programs [default: %(default)s]")
    parser.add_argument("--rate", type=float, help="rate of the link, in bits per second [default: unlimited]")
    parser.add_argument("--message-size", type=int, default=256 << 10, help="bytes of a large message [default: %(default)s]")
    parser.add_argument("--osu", type=Path, metavar="DIRECTORY", help="where osu_latency and osu_bw are")
    parser.add_argument("--ior", type=Path, metavar="PROGRAM")
    parser.add_argument("--mdtest", type=Path, metavar="PROGRAM")
    parser.add_argument("--dir", type=Path, metavar="DIRECTORY", help="what ior and mdtest are compared in [default: the directory of temporary files]")
    parser.add_argument("--bytes", type=int, default=128 * MIB, help="bytes of each rank [default: %(default)s]")
    parser.add_argument("--direct", action="store_true", help="past the page cache, from which ior reads what it wrote on a disk")
    parser.add_argument("--files", type=int, default=5000, help="files of each rank [default: %(default)s]")
    parser.add_argument("--passes", type=int, default=5, help="repetitions of ior and mdtest in a job [default: %(default)s]")
    parser.add_argument("--only", action="append", metavar="QUANTITY", help="only what is compared with this program, such as osu_bw; may be given more than once")
    return common.parse_pairs(parser)


def measure(arguments):
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        raise common.BenchmarkError("two hosts need two allowed CPUs")
    common.require_program("iperf3", "iperf3")
    arguments.kelvin = common.kelvin_program(arguments.kelvin)
    order = random.Random(arguments.seed)
    try:
        with made_hosts.Hosts.numbered(2, arguments.rate) as hosts, tempfile.TemporaryDirectory(prefix="kelvin-bench-", dir=arguments.dir) as directory:
            jobs = Jobs(arguments, hosts, [cpus[0], cpus[-1]])
            selection = [sides for sides in network_sides(jobs) + file_sides(jobs, directory)
                         if not arguments.only or {comparison.rival for comparison in sides.comparisons.values()} & set(arguments.only)]  # fmt: skip
            for pair_number, unsettled in common.pair_rounds(arguments, selection):
                order.shuffle(unsettled)
                for sides in unsettled:
                    sides.measure(order)
                common.log(f"{pair_number} pairs")
    except made_hosts.Unavailable as error:
        raise common.BenchmarkError(f"needs network namespaces: {error}") from error
    comparisons = [comparison for sides in selection for comparison in sides.comparisons.values()]
    return {"launcher": arguments.launcher, "rate": arguments.rate, "cpus": jobs.cpus, "comparisons": comparisons}


def tables(measured):
    results = [Comparison(**entry) for entry in measured["comparisons"]]
    header = ["quantity", "kelvin-cluster", "beside it", "its figure", "ratio", "90 % interval", "pairs", "verdict"]
    text = "{}, link {}, CPUs {} and {}.".format(measured["launcher"], f"{measured['rate'] / 1e6:g} Mbit/s" if measured["rate"] else "unlimited", *measured["cpus"])
    return f"{text}\n\n{common.table(header, [entry.row() for entry in results])}", all(entry.verdict() in ("agrees", "reported only") for entry in results)


if __name__ == "__main__":
    common.main(parse, measure, tables)
