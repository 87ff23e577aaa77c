#!/usr/bin/env python3
"""Whether `kelvin why` gives each of many planted causes the share that it has, and names nothing that is not there.

Each case is a figure with a cause that was planted. How much the cause takes is found apart from `why`: by construction (a quota, the
weight of a busy loop), by a plain C loop with the CPUs left alone and kept awake (waking an idle CPU), or by the figure with the cause
and without it, in turn. `why` must name the cause, with that share to within 5 points. On each figure another cause is there to be
taken for it: one that could touch the figure and does not, or a limit that is never reached. Neither that one nor any other may be
named, nor the planted one where it is taken away again.

Needs root and a second CPU. It takes an hour; --only makes a part of it. Exit status: 0 all hold, 1 one does not, 2 it could not be done.
"""
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from typing import Callable

import common
import planted
import rivals

POINTS = 5.0
ROUNDS = 12
# Seconds of one C loop, in so many processes.
SECONDS, PROCESSES = 1.0, 5
LATENCY_LIMIT = "/dev/cpu_dma_latency"
IN_MEMORY = "/dev/shm"


@dataclass
class Place:
    """Where a figure is measured: what a shell does before, and flags of kelvin."""

    before: str = ""
    flags: list = field(default_factory=list)


class Bench:
    """The program, the CPUs that it chooses, and how causes are planted."""

    def __init__(self, kelvin, rounds):
        self.kelvin, self.rounds = kelvin, rounds
        allowed = sorted(os.sched_getaffinity(0))
        if len(allowed) < 2:
            raise common.Missing("needs a second CPU")
        self.cpu, self.other = allowed[-1], allowed[-2]
        self.rivals = rivals.Rivals(self.cpu)

    # ---- what is planted, each a context that ends it

    @contextlib.contextmanager
    def nothing(self):
        yield Place()

    @contextlib.contextmanager
    def in_memory(self):
        yield Place(flags=["--dir", IN_MEMORY])

    def quota(self, microseconds, period, flags=()):
        return self.group("cpu", flags, cpu__cfs_period_us=str(period), cpu__cfs_quota_us=str(microseconds))

    def ample_quota(self):
        """One that a machine of fewer CPUs cannot reach."""
        return self.quota(10_000_000, 10_000)

    def memory(self, bytes, flags=()):
        return self.group("memory", flags, memory__limit_in_bytes=str(bytes))

    def ample_memory(self):
        return self.memory(16 << 30)

    @contextlib.contextmanager
    def group(self, controller, flags, **limits):
        with planted.cgroup(controller, **limits) as entry_file:
            yield Place(f"echo 0 > {entry_file}", list(flags))

    @contextlib.contextmanager
    def network(self, control):
        """A network of its own, whose system has this congestion control."""
        yield Place(f"ip link set lo up && echo {control} > /proc/sys/net/ipv4/tcp_congestion_control")

    @contextlib.contextmanager
    def running(self, *command):
        child = subprocess.Popen([str(word) for word in command])
        try:
            time.sleep(0.2)
            if child.poll() is not None:
                raise RuntimeError(f"{command[0]} has ended by itself")
            yield Place()
        finally:
            child.kill()
            child.wait()

    def busy(self, nice):
        """A loop on the CPU of the probes; a share of it follows from its weight."""
        return self.running("nice", "-n", nice, "taskset", "-c", self.cpu, "sh", "-c", "while :; do :; done")

    def traffic(self):
        return self.running(self.rivals.program("memory_traffic"), self.other)

    @contextlib.contextmanager
    def disk(self, options="loop", rate=None):
        """A file system on a loop device, mounted with these options; with a rate, whoever is in the group reads no faster."""
        with tempfile.TemporaryDirectory(dir=".", prefix="kelvin-bench-") as base, planted.disk(base, options) as place:
            with contextlib.ExitStack() as stack:
                before = ""
                if rate:
                    limit = f"{planted.device_number(place)} {rate}"
                    before = f"echo 0 > {stack.enter_context(planted.cgroup('blkio', blkio__throttle__read_bps_device=limit))}"
                yield Place(before, ["--dir", str(place)])

    # ---- what is measured

    def why(self, question, places):
        """What `why` says of a figure under all of these."""
        flags = [word for place in places for word in place.flags]
        command = [str(self.kelvin), "why", *question, *flags, "--budget", "minimum", "--rounds", str(self.rounds), "--json"]
        before = [place.before for place in places if place.before]
        if before:
            words = " ".join(f"'{word}'" for word in command)
            command = ["unshare", "--net", "sh", "-c", " && ".join(["ip link set lo up", *before, f"exec {words}"])]
        done = subprocess.run(command, capture_output=True, text=True, timeout=900)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: exit status {done.returncode}: {done.stderr.strip()}")
        return json.loads(done.stdout)

    def loop(self, what):
        """A round trip by a plain C loop, in nanoseconds."""
        program, figure, words = what
        one = lambda: self.rivals.c_loop(program, figure, SECONDS / PROCESSES, *words, self.other)
        return statistics.median(one() for _ in range(PROCESSES))

    @contextlib.contextmanager
    def awake(self):
        program = self.rivals.program("awake")
        with self.running(program, self.cpu), self.running(program, self.other):
            yield

    @contextlib.contextmanager
    def polling(self):
        with open(LATENCY_LIMIT, "wb", buffering=0) as limit:
            limit.write((0).to_bytes(4, sys.byteorder, signed=True))
            yield


@dataclass
class Case:
    """A figure with a planted cause, and one that is not there."""

    name: str
    cause: str
    question: list
    plants: list
    # How its share is known: a number of percent; the figure without it, what is planted there and, where it is told otherwise, how many
    # of its units make one of the figure's; or a function of the bench.
    known: object
    # What must not be named, and where that is not tried anyway, a limit that is never reached.
    bystander: str
    control_plant: Callable = Bench.nothing
    # What else is really there.
    other_causes: tuple = ()


# ---- figures

TCP = ["net.bandwidth.tcp", "streams=1", "message=64KiB"]
SAME_CPU, TWO_CPUS = ["placement=same_cpu"], ["placement=two_cpus"]
# Rates are told as the time of a million bytes.
BLOCKS_OF_A_MB = 4096 / 1e6
SYSTEM = ["net.bandwidth.tcp.system", "message=64KiB", *SAME_CPU]
SYSTEM_WAY = ["net.bandwidth.tcp.way", *SAME_CPU]
# At real-time priority both ends take turns in one order; else there are two modes.
UNIX = ["net.bandwidth.unix", "message=64KiB", *SAME_CPU, "--realtime"]
ZERO_COPY = [*SYSTEM_WAY, "--realtime"]
READ = ["file.blocksize.read", "block=4KiB"]
MIXED = ["file.seqrand", "bytes=1MiB", "order=random"]
TOUCH = ["mem.fault.major"]
# It takes a hundred milliseconds: many turns of the scheduler, and many periods of a quota.
NEW_FILE = ["file.new", "filled=write", "block=1MiB", "bytes=256MiB", "--write-limit", "1T"]
CREATE = ["file.metadata.create", "files=100"]
SYNC = ["file.sync", "place=in_place"]
PIPE = ["os.ipc.bandwidth", "mechanism=pipe", "message=64KiB", *SAME_CPU]
FORK = ["os.process.fork_rss", "pages=base"]
WORKING_SET = ["mem.latency", "pages=base"]
QUOTA, MEMORY = {"bystander": "group_quota", "control_plant": Bench.ample_quota}, {"bystander": "memory_limit", "control_plant": Bench.ample_memory}
WAKE_CAUSES = ("idle_wake", "remote_interrupt")


def token(means):
    return "token_loop", "token.round_trip", [means]


def round_trip(protocol):
    return "pingpong", "net.rtt", [protocol, 1]


def share_gone_when_awake(what):
    """The share of a round trip that is gone with both CPUs kept awake."""

    def share(bench):
        idle = bench.loop(what)
        with bench.awake():
            return 100 * (1 - bench.loop(what) / idle)

    return share


def share_gone_when_polling(what):
    """The share of it that is gone besides with idle CPUs that poll."""

    def share(bench):
        idle = bench.loop(what)
        with bench.awake():
            awake = bench.loop(what)
        with bench.polling():
            return 100 * (awake - bench.loop(what)) / idle

    return share


def loop_share(nice):
    """The share in percent of a loop of this weight beside one program of nice 0 (sched_prio_to_weight in kernel/sched/core.c)."""
    weights = {-5: 3121, 0: 1024, 5: 335}
    return 100 * weights[nice] / (weights[nice] + weights[0])


def network(control):
    return lambda bench: bench.network(control)


def disk(*arguments, **options):
    return lambda bench: bench.disk(*arguments, **options)


def quota(microseconds, period, *flags):
    return lambda bench: bench.quota(microseconds, period, flags)


def busy(nice):
    return lambda bench: bench.busy(nice)


def with_flags(question, *flags):
    return [*question, *flags]


CASES = [
    Case("a quota of 5 %", "group_quota", PIPE, [quota(1000, 20_000)], 95.0, **MEMORY),
    Case("a quota of 20 %", "group_quota", NEW_FILE, [quota(2000, 10_000, "--dir", IN_MEMORY)], 80.0, **MEMORY),
    Case("a quota of 50 %", "group_quota", NEW_FILE, [quota(5000, 10_000, "--dir", IN_MEMORY)], 50.0, **MEMORY),
    Case("a busy loop at nice -5", "other_work", NEW_FILE, [Bench.in_memory, busy(-5)], loop_share(-5), **MEMORY),
    Case("a busy loop at nice 0", "other_work", NEW_FILE, [Bench.in_memory, busy(0)], loop_share(0), **MEMORY),
    Case("a busy loop at nice 5", "other_work", NEW_FILE, [Bench.in_memory, busy(5)], loop_share(5), **MEMORY),
    Case("TCP buffers of 4 KiB", "socket_buffers", [*TCP, *SAME_CPU, "--socket-buffers", "4k"], [], ([*TCP, *SAME_CPU], []), "congestion_control"),
    Case("TCP buffers of 16 KiB", "socket_buffers", [*TCP, *SAME_CPU, "--socket-buffers", "16k"], [], ([*TCP, *SAME_CPU], []), "congestion_control"),
    Case("TCP buffers of 4 KiB, sendfile", "socket_buffers", [*SYSTEM_WAY, "way=sendfile", "message=64KiB", "--socket-buffers", "4k"], [],
         ([*SYSTEM_WAY, "way=sendfile", "message=64KiB"], []), "congestion_control"),
    Case("Unix buffers of 4 KiB", "socket_buffers", [*UNIX, "--socket-buffers", "4k"], [], (UNIX, []), **MEMORY),
    Case("a system under bbr", "congestion_control", SYSTEM, [network("bbr")], (SYSTEM, [network("reno")]), **QUOTA, other_causes=("socket_buffers",)),
    Case("a stream by bbr between two CPUs", "congestion_control", [*TCP, *TWO_CPUS, "--congestion-control", "bbr"], [], ([*TCP, *TWO_CPUS], []),
         **QUOTA, other_causes=("socket_buffers",)),
    Case("sendfile by bbr", "congestion_control", [*SYSTEM_WAY, "way=sendfile", "message=64KiB", "--congestion-control", "bbr"], [],
         ([*SYSTEM_WAY, "way=sendfile", "message=64KiB"], []), **QUOTA, other_causes=("socket_buffers",)),
    Case("zero copy of 4 KiB", "zero_copy", [*ZERO_COPY, "way=zerocopy", "message=4KiB"], [], ([*ZERO_COPY, "way=send", "message=4KiB"], []),
         "congestion_control"),
    Case("zero copy of 64 KiB", "zero_copy", [*ZERO_COPY, "way=zerocopy", "message=64KiB"], [], ([*ZERO_COPY, "way=send", "message=64KiB"], []),
         "congestion_control"),
    Case("reads past the page cache", "cold_cache", [*READ, "cache=direct"], [], ([*READ, "cache=cached"], []), **QUOTA),
    Case("random reads, an empty cache", "cold_cache", [*MIXED, "cache=uncached"], [], ([*READ, "cache=cached"], [], BLOCKS_OF_A_MB), **QUOTA),
    Case("a disk of 20 MB/s", "cold_cache", [*READ, "cache=direct"], [disk(rate=20_000_000)], ([*READ, "cache=cached"], [disk()]), **QUOTA),
    Case("read-ahead for touches far apart", "read_ahead", [*TOUCH, "read_ahead=on", "step_bytes=16MiB"], [],
         ([*TOUCH, "read_ahead=off", "step_bytes=4KiB"], []), **QUOTA),
    Case("page tables of 64 MiB", "page_tables", [*FORK, "resident=64MiB"], [], (["os.process.fork_rss", "pages=huge", "resident=64MiB"], []), "other_work"),
    Case("page tables of 256 MiB", "page_tables", [*FORK, "resident=256MiB"], [], (["os.process.fork_rss", "pages=huge", "resident=256MiB"], []), "other_work"),
    Case("the usual timer slack", "timer_slack", ["os.timer.wakeup", "slack=50000"], [], (["os.timer.wakeup", "slack=1"], []), **QUOTA),
    Case("fsync of each write", "flush", [*SYNC, "by=fsync"], [], ([*SYNC, "by=none"], []), **QUOTA),
    Case("fdatasync of each write", "flush", [*SYNC, "by=fdatasync"], [], ([*SYNC, "by=none"], []), **QUOTA),
    Case("files on ext4", "file_system", CREATE, [disk()], (CREATE, [Bench.in_memory]), **QUOTA),
    Case("names that are flushed (dirsync)", "file_system", CREATE, [disk("loop,dirsync")], (CREATE, [Bench.in_memory]), **QUOTA),
]  # fmt: skip
for name, figure, what in (
    ("pipe", ["os.ipc.latency", "mechanism=pipe"], token("pipe")),
    ("futex", ["os.ipc.latency", "mechanism=futex"], token("futex")),
    ("tcp", ["net.rtt.tcp", "message=1B"], round_trip("tcp")),
    ("udp", ["net.rtt.udp", "message=1B"], round_trip("udp")),
    ("unix", ["net.rtt.unix", "message=1B"], round_trip("unix")),
):
    CASES.append(Case(f"idle CPUs, {name}", "idle_wake", [*figure, *TWO_CPUS], [], share_gone_when_awake(what), **MEMORY, other_causes=WAKE_CAUSES))
CASES.append(Case("interrupts to another CPU, pipe", "remote_interrupt", ["os.ipc.latency", "mechanism=pipe", *TWO_CPUS], [], share_gone_when_polling(token("pipe")), **MEMORY, other_causes=WAKE_CAUSES))
CASES += [
    Case("base pages, a set of 16 MiB", "translation", [*WORKING_SET, "bytes=16MiB"], [], (["mem.latency", "pages=huge", "bytes=16MiB"], []), "other_work"),
    Case("base pages, a set of 64 MiB", "translation", [*WORKING_SET, "bytes=64MiB"], [], (["mem.latency", "pages=huge", "bytes=64MiB"], []), "other_work"),
    Case("memory traffic on the other CPU", "neighbour", [*WORKING_SET, "bytes=16MiB"], [Bench.traffic], ([*WORKING_SET, "bytes=16MiB"], []), "other_work", other_causes=("translation",)),
    Case("a page cache of 24 MiB", "memory_limit", NEW_FILE, [disk(), lambda bench: bench.memory(24 << 20)], (NEW_FILE, [disk()]), **QUOTA, other_causes=("file_system",)),
]  # fmt: skip


def parse():
    parser = common.make_parser(__doc__)
    parser.add_argument("--only", action="append", metavar="TEXT", help="the cases with this in their name or cause alone; repeatable")
    parser.add_argument("--times", type=int, default=5, help="how often each case is asked [default: %(default)s]")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="passes of each question [default: %(default)s]")
    parser.add_argument("--list", action="store_true", help="print the cases alone")
    arguments = parser.parse_args()
    arguments.cases = [case for case in CASES if not arguments.only or any(text in case.name or text in case.cause for text in arguments.only)]
    if not arguments.cases:
        parser.error("--only: no case has that in its name or cause; --list prints them")
    if arguments.times < 1 or arguments.rounds < 4:
        parser.error("--times must be at least 1 and --rounds at least 4")
    if arguments.list:
        print(common.table(["planted", "figure", "cause", "bystander"], [[case.name, case.question[0], case.cause, case.bystander] for case in arguments.cases]))
        sys.exit()
    return arguments


def explain_with(bench, question, plants, control_plant=Bench.nothing):
    with contextlib.ExitStack() as stack:
        places = [stack.enter_context(plant(bench)) for plant in [*plants, control_plant]]
        return bench.why(question, places)


def named_causes(explanation):
    """The causes that are parts of a figure, and their shares in percent."""
    parts = (part for part in explanation["parts"] if isinstance(part["kind"], dict))
    return {part["kind"]["cause"]: 100 * part["share"]["value"] for part in parts}


def is_considered(explanation, cause):
    return any(cause_result["id"] == cause for cause_result in explanation["causes"])


def measure_case(bench, case, times):
    """What a case gave each time: the figures with the cause and without it, shares, and names that are wrong."""
    amount = lambda one: one["whole"]["value"]
    measured, shares, wrong, known, rest = [], [], set(), [], []
    for _ in range(times):
        one = explain_with(bench, case.question, case.plants, case.control_plant)
        measured.append(amount(one))
        parts = named_causes(one)
        shares += [parts[case.cause]] if case.cause in parts else []
        wrong |= set(parts) - {case.cause, *case.other_causes}
        if not is_considered(one, case.bystander):
            wrong.add(f"{case.bystander} not considered")
        if isinstance(case.known, tuple):
            question, plants, *factor = case.known
            without = explain_with(bench, question, plants)
            rest.append(amount(without) * (factor or [1])[0])
            wrong |= {f"{case.cause} without it"} & {f"{name} without it" for name in named_causes(without)}
        elif callable(case.known):
            known.append(case.known(bench))
    return {
        "planted": case.name, "figure": case.question[0], "cause": case.cause, "bystander": case.bystander, "times": times,
        "construction": case.known if isinstance(case.known, float) else None,
        "found": measured, "without": rest, "by_loop": known, "shares": shares, "wrong": sorted(wrong),
    }  # fmt: skip


def case_row(case):
    """A row of the table; the last cell says whether it holds."""
    shares, wrong, times = case["shares"], case["wrong"], case["times"]
    if case["without"]:
        share, by = 100 * (1 - statistics.median(case["without"]) / statistics.median(case["found"])), "in turn"
    elif case["by_loop"]:
        share, by = statistics.median(case["by_loop"]), "C loop"
    else:
        share, by = case["construction"], "construction"
    shown_share = statistics.median(shares) if shares else None
    holds = shown_share is not None and len(shares) == times and abs(shown_share - share) <= POINTS and not wrong
    return [case["planted"], case["figure"], case["cause"], f"{share:.0f} %", by, "-" if shown_share is None else f"{shown_share:.0f} %", f"{len(shares)} of {times}",
            case["bystander"], ", ".join(wrong) or "-", "holds" if holds else "MISSED"]  # fmt: skip


def measure(arguments):
    kelvin = common.kelvin_program(arguments.kelvin)
    if os.geteuid():
        raise common.Missing("needs root: control groups, a network and a disk of its own")
    bench = Bench(kelvin, arguments.rounds)
    cases = []
    for case in arguments.cases:
        begun = time.monotonic()
        cases.append(measure_case(bench, case, arguments.times))
        common.log(f"{' | '.join(case_row(cases[-1]))} | {time.monotonic() - begun:.0f} s")
    return cases


def tables(measured):
    rows = [case_row(case) for case in measured]
    header = ["planted", "figure", "cause", "share", "known by", "found", "shown", "bystander", "wrongly named", ""]
    held = sum(row[-1] == "holds" for row in rows)
    return f"{common.table(header, rows)}\n\n{held} of {len(rows)} hold.", held == len(rows)


if __name__ == "__main__":
    common.main(parse, measure, tables)
