#!/usr/bin/env python3
"""Whether `kelvin why` reports the true share of each planted cause, and names no cause that is absent.

Each case is a figure with a planted cause. The true share of the cause is known independently of `why`. It follows from the construction
(a quota, the weight of a busy loop), or from a plain C loop with idle and with awake CPUs (waking an idle CPU). Otherwise the figure is
measured with the cause and without it, interleaved. `why` must name the cause, with that share to within 5 percentage points. Each figure
has a bystander: another cause that could affect it and does not, or a limit that is never reached. `why` may name neither the bystander
nor any other cause, nor the planted cause after it is removed.

Needs root and a second CPU. It takes an hour; --only runs a part of it. Exit status: 0 all hold, 1 at least one does not, 2 it could not be
done.
"""
import contextlib
import ctypes
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

MAX_SHARE_ERROR = 5.0
ROUNDS = 12
# Seconds of one C loop, divided among this number of processes.
LOOP_SECONDS, LOOP_PROCESSES = 1.0, 5
LATENCY_LIMIT_FILE = "/dev/cpu_dma_latency"
MEMORY_DIRECTORY = "/dev/shm"


# linux/prctl.h
PR_SET_SPECULATION_CTRL, PR_SPEC_STORE_BYPASS, PR_SPEC_ENABLE, PR_SPEC_DISABLE = 53, 0, 1 << 1, 1 << 2


def set_store_bypass(control):
    libc = ctypes.CDLL(None, use_errno=True)
    arguments = [ctypes.c_ulong(value) for value in (PR_SPEC_STORE_BYPASS, control, 0, 0)]
    if libc.prctl(PR_SET_SPECULATION_CTRL, *arguments):
        raise common.Missing(f"needs a machine where a process may disable store bypass: {os.strerror(ctypes.get_errno())}")


@dataclass
class Environment:
    """The environment of a measurement: a shell command that runs first, and flags of kelvin."""

    setup_command: str = ""
    flags: list = field(default_factory=list)


class Bench:
    """The program, the CPUs that it chooses, and functions that plant causes."""

    def __init__(self, kelvin, rounds):
        self.kelvin, self.rounds = kelvin, rounds
        allowed = sorted(os.sched_getaffinity(0))
        if len(allowed) < 2:
            raise common.BenchmarkError("needs a second CPU")
        self.cpu, self.other_cpu = allowed[-1], allowed[-2]
        self.rivals = rivals.Rivals(self.cpu)

    # ---- planted causes: context managers that remove the cause at the end

    @contextlib.contextmanager
    def no_cause(self):
        yield Environment()

    @contextlib.contextmanager
    def memory_file_system(self):
        yield Environment(flags=["--dir", MEMORY_DIRECTORY])

    def quota(self, microseconds, period, flags=()):
        return self.cgroup("cpu", flags, cpu__cfs_period_us=str(period), cpu__cfs_quota_us=str(microseconds))

    def ample_quota(self):
        """A quota that the CPUs of this machine cannot reach."""
        return self.quota(10_000_000, 10_000)

    def memory_quota(self, size, flags=()):
        return self.cgroup("memory", flags, memory__limit_in_bytes=str(size))

    def ample_memory_quota(self):
        return self.memory_quota(16 << 30)

    @contextlib.contextmanager
    def cgroup(self, controller, flags, **limits):
        with planted.cgroup(controller, **limits) as entry_file:
            yield Environment(f"echo 0 > {entry_file}", list(flags))

    @contextlib.contextmanager
    def network(self, congestion_control):
        """A network namespace whose default congestion control is this one."""
        yield Environment(f"ip link set lo up && echo {congestion_control} > /proc/sys/net/ipv4/tcp_congestion_control")

    @contextlib.contextmanager
    def background_command(self, *command):
        child = subprocess.Popen([str(word) for word in command])
        try:
            time.sleep(0.2)
            if child.poll() is not None:
                raise RuntimeError(f"{command[0]} ended too early")
            yield Environment()
        finally:
            child.kill()
            child.wait()

    def busy_loop(self, nice):
        """A busy loop on the CPU of the probes. Its weight determines its share."""
        return self.background_command("nice", "-n", nice, "taskset", "-c", self.cpu, "sh", "-c", "while :; do :; done")

    def memory_traffic(self):
        return self.background_command(self.rivals.program("memory_traffic"), self.other_cpu)

    @contextlib.contextmanager
    def disk(self, options="loop", rate=None):
        """A file system on a loop device, mounted with these options. `rate` limits the bytes per second of reads."""
        with tempfile.TemporaryDirectory(dir=".", prefix="kelvin-bench-") as base, planted.loop_disk(base, options) as mount_point:
            with contextlib.ExitStack() as stack:
                setup_command = ""
                if rate:
                    device_limit = f"{planted.device_number(mount_point)} {rate}"
                    setup_command = f"echo 0 > {stack.enter_context(planted.cgroup('blkio', blkio__throttle__read_bps_device=device_limit))}"
                yield Environment(setup_command, ["--dir", str(mount_point)])

    @contextlib.contextmanager
    def no_store_bypass(self):
        """The mitigation of speculative store bypass, which children inherit from the thread that starts them."""
        set_store_bypass(PR_SPEC_DISABLE)
        try:
            yield Environment()
        finally:
            set_store_bypass(PR_SPEC_ENABLE)

    # ---- measurements

    def explain(self, question, environments):
        """The explanation of a figure by `kelvin why` under all of these environments."""
        flags = [argument for environment in environments for argument in environment.flags]
        command = [str(self.kelvin), "why", *question, *flags, "--budget", "minimum", "--rounds", str(self.rounds), "--json"]
        setup_commands = [environment.setup_command for environment in environments if environment.setup_command]
        if setup_commands:
            quoted_command = " ".join(f"'{argument}'" for argument in command)
            command = ["unshare", "--net", "sh", "-c", " && ".join(["ip link set lo up", *setup_commands, f"exec {quoted_command}"])]
        process = subprocess.run(command, capture_output=True, text=True, timeout=900)
        if process.returncode:
            raise RuntimeError(f"{' '.join(command)}: exit status {process.returncode}: {process.stderr.strip()}")
        return json.loads(process.stdout)

    def median_round_trip(self, loop):
        """The round trip time of a plain C loop, in nanoseconds."""
        program, figure, loop_arguments = loop
        measure_once = lambda: self.rivals.run_c_loop(program, figure, LOOP_SECONDS / LOOP_PROCESSES, *loop_arguments, self.other_cpu)
        return statistics.median(measure_once() for _ in range(LOOP_PROCESSES))

    @contextlib.contextmanager
    def keep_cpus_awake(self):
        program = self.rivals.program("awake")
        with self.background_command(program, self.cpu), self.background_command(program, self.other_cpu):
            yield

    @contextlib.contextmanager
    def poll_idle_cpus(self):
        with open(LATENCY_LIMIT_FILE, "wb", buffering=0) as latency_file:
            latency_file.write((0).to_bytes(4, sys.byteorder, signed=True))
            yield


@dataclass
class Case:
    """A figure with a planted cause, and a bystander: a cause that has no effect."""

    name: str
    cause: str
    question: list
    plants: list
    # The source of the true share. A number is the share in percent. A tuple is a figure without the cause, its plants, and optionally the
    # factor between the units of the two figures. A function of the bench measures the share in percent.
    true_share: object
    # The cause that must not be named, and for a limit the plant that is never reached.
    bystander: str
    control_plant: Callable = Bench.no_cause
    # Further causes that do have an effect.
    other_causes: tuple = ()


# ---- figures

TCP_STREAM = ["net.bandwidth.tcp", "streams=1", "message=64KiB"]
SAME_CPU, TWO_CPUS = ["placement=same_cpu"], ["placement=two_cpus"]
# Rates are reported as the time of a million bytes.
BLOCKS_PER_MB = 4096 / 1e6
SYSTEM_TCP = ["net.bandwidth.tcp.system", "message=64KiB", *SAME_CPU]
SYSTEM_TCP_WAY = ["net.bandwidth.tcp.way", *SAME_CPU]
# At real-time priority both ends alternate in one order. Otherwise there are two modes.
UNIX_STREAM = ["net.bandwidth.unix", "message=64KiB", *SAME_CPU, "--realtime"]
ZERO_COPY = [*SYSTEM_TCP_WAY, "--realtime"]
BLOCK_READ = ["file.blocksize.read", "block=4KiB"]
RANDOM_READ = ["file.seqrand", "bytes=1MiB", "order=random"]
MAJOR_FAULT = ["mem.fault.major"]
# It takes a hundred milliseconds: many time slices of the scheduler, and many periods of a quota.
NEW_FILE = ["file.new", "filled=write", "block=1MiB", "bytes=256MiB", "--write-limit", "1T"]
FILE_CREATE = ["file.metadata.create", "files=100"]
FILE_SYNC = ["file.sync", "place=in_place"]
PIPE_BANDWIDTH = ["os.ipc.bandwidth", "mechanism=pipe", "message=64KiB", *SAME_CPU]
FORK_RSS = ["os.process.fork_rss", "pages=base"]
WORKING_SET = ["mem.latency", "pages=base"]
SELECT = ["os.syscall.select", "descriptors=100"]
QUOTA_BYSTANDER, MEMORY_BYSTANDER = {"bystander": "group_quota", "control_plant": Bench.ample_quota}, {"bystander": "memory_limit", "control_plant": Bench.ample_memory_quota}
WAKE_CAUSES = ("idle_wake", "remote_interrupt")


def token_loop(mechanism):
    return "token_loop", "token.round_trip", [mechanism]


def pingpong_loop(protocol):
    return "pingpong", "net.rtt", [protocol, 1]


def share_gone_when_awake(loop):
    """The share of a round trip that disappears while both CPUs are kept awake."""

    def share(bench):
        idle_time = bench.median_round_trip(loop)
        with bench.keep_cpus_awake():
            return 100 * (1 - bench.median_round_trip(loop) / idle_time)

    return share


def share_gone_when_polling(loop):
    """The further share of a round trip that disappears while idle CPUs poll."""

    def share(bench):
        idle_time = bench.median_round_trip(loop)
        with bench.keep_cpus_awake():
            awake_time = bench.median_round_trip(loop)
        with bench.poll_idle_cpus():
            return 100 * (awake_time - bench.median_round_trip(loop)) / idle_time

    return share


def busy_loop_share(nice):
    """The share in percent of a loop of this nice value that competes with one program of nice 0.

    The weights are those of sched_prio_to_weight in kernel/sched/core.c.
    """
    weights = {-5: 3121, 0: 1024, 5: 335}
    return 100 * weights[nice] / (weights[nice] + weights[0])


def network(congestion_control):
    return lambda bench: bench.network(congestion_control)


def disk(*arguments, **options):
    return lambda bench: bench.disk(*arguments, **options)


def quota(microseconds, period, *flags):
    return lambda bench: bench.quota(microseconds, period, flags)


def busy(nice):
    return lambda bench: bench.busy_loop(nice)


def with_flags(question, *flags):
    return [*question, *flags]


CASES = [
    Case("a quota of 5 %", "group_quota", PIPE_BANDWIDTH, [quota(1000, 20_000)], 95.0, **MEMORY_BYSTANDER),
    Case("a quota of 20 %", "group_quota", NEW_FILE, [quota(2000, 10_000, "--dir", MEMORY_DIRECTORY)], 80.0, **MEMORY_BYSTANDER),
    Case("a quota of 50 %", "group_quota", NEW_FILE, [quota(5000, 10_000, "--dir", MEMORY_DIRECTORY)], 50.0, **MEMORY_BYSTANDER),
    Case("a busy loop at nice -5", "other_work", NEW_FILE, [Bench.memory_file_system, busy(-5)], busy_loop_share(-5), **MEMORY_BYSTANDER),
    Case("a busy loop at nice 0", "other_work", NEW_FILE, [Bench.memory_file_system, busy(0)], busy_loop_share(0), **MEMORY_BYSTANDER),
    Case("a busy loop at nice 5", "other_work", NEW_FILE, [Bench.memory_file_system, busy(5)], busy_loop_share(5), **MEMORY_BYSTANDER),
    Case("TCP buffers of 4 KiB", "socket_buffers", [*TCP_STREAM, *SAME_CPU, "--socket-buffers", "4k"], [], ([*TCP_STREAM, *SAME_CPU], []), "congestion_control"),
    Case("TCP buffers of 16 KiB", "socket_buffers", [*TCP_STREAM, *SAME_CPU, "--socket-buffers", "16k"], [], ([*TCP_STREAM, *SAME_CPU], []), "congestion_control"),
    Case("TCP buffers of 4 KiB, sendfile", "socket_buffers", [*SYSTEM_TCP_WAY, "way=sendfile", "message=64KiB", "--socket-buffers", "4k"], [],
         ([*SYSTEM_TCP_WAY, "way=sendfile", "message=64KiB"], []), "congestion_control"),
    Case("Unix buffers of 4 KiB", "socket_buffers", [*UNIX_STREAM, "--socket-buffers", "4k"], [], (UNIX_STREAM, []), **MEMORY_BYSTANDER),
    Case("a system under bbr", "congestion_control", SYSTEM_TCP, [network("bbr")], (SYSTEM_TCP, [network("reno")]), **QUOTA_BYSTANDER, other_causes=("socket_buffers",)),
    Case("a stream by bbr between two CPUs", "congestion_control", [*TCP_STREAM, *TWO_CPUS, "--congestion-control", "bbr"], [], ([*TCP_STREAM, *TWO_CPUS], []),
         **QUOTA_BYSTANDER, other_causes=("socket_buffers",)),
    Case("sendfile by bbr", "congestion_control", [*SYSTEM_TCP_WAY, "way=sendfile", "message=64KiB", "--congestion-control", "bbr"], [],
         ([*SYSTEM_TCP_WAY, "way=sendfile", "message=64KiB"], []), **QUOTA_BYSTANDER, other_causes=("socket_buffers",)),
    Case("zero copy of 4 KiB", "zero_copy", [*ZERO_COPY, "way=zerocopy", "message=4KiB"], [], ([*ZERO_COPY, "way=send", "message=4KiB"], []),
         "congestion_control"),
    Case("zero copy of 64 KiB", "zero_copy", [*ZERO_COPY, "way=zerocopy", "message=64KiB"], [], ([*ZERO_COPY, "way=send", "message=64KiB"], []),
         "congestion_control"),
    Case("reads past the page cache", "cold_cache", [*BLOCK_READ, "cache=direct"], [], ([*BLOCK_READ, "cache=cached"], []), **QUOTA_BYSTANDER),
    Case("random reads, an empty cache", "cold_cache", [*RANDOM_READ, "cache=uncached"], [], ([*BLOCK_READ, "cache=cached"], [], BLOCKS_PER_MB), **QUOTA_BYSTANDER),
    Case("a disk of 20 MB/s", "cold_cache", [*BLOCK_READ, "cache=direct"], [disk(rate=20_000_000)], ([*BLOCK_READ, "cache=cached"], [disk()]), **QUOTA_BYSTANDER),
    Case("read-ahead for touches far apart", "read_ahead", [*MAJOR_FAULT, "read_ahead=on", "step_bytes=16MiB"], [],
         ([*MAJOR_FAULT, "read_ahead=off", "step_bytes=4KiB"], []), **QUOTA_BYSTANDER),
    Case("page tables of 64 MiB", "page_tables", [*FORK_RSS, "resident=64MiB"], [], (["os.process.fork_rss", "pages=huge", "resident=64MiB"], []), "other_work"),
    Case("page tables of 256 MiB", "page_tables", [*FORK_RSS, "resident=256MiB"], [], (["os.process.fork_rss", "pages=huge", "resident=256MiB"], []), "other_work"),
    Case("the usual timer slack", "timer_slack", ["os.timer.wakeup", "slack=50000"], [], (["os.timer.wakeup", "slack=1"], []), **QUOTA_BYSTANDER),
    Case("no store bypass, 100 descriptors", "store_bypass", SELECT, [Bench.no_store_bypass], (SELECT, []), **QUOTA_BYSTANDER),
    Case("fsync of each write", "flush", [*FILE_SYNC, "by=fsync"], [], ([*FILE_SYNC, "by=none"], []), **QUOTA_BYSTANDER),
    Case("fdatasync of each write", "flush", [*FILE_SYNC, "by=fdatasync"], [], ([*FILE_SYNC, "by=none"], []), **QUOTA_BYSTANDER),
    Case("files on ext4", "file_system", FILE_CREATE, [disk()], (FILE_CREATE, [Bench.memory_file_system]), **QUOTA_BYSTANDER),
    Case("names that are flushed (dirsync)", "file_system", FILE_CREATE, [disk("loop,dirsync")], (FILE_CREATE, [Bench.memory_file_system]), **QUOTA_BYSTANDER),
]  # fmt: skip
for name, figure, loop in (
    ("pipe", ["os.ipc.latency", "mechanism=pipe"], token_loop("pipe")),
    ("futex", ["os.ipc.latency", "mechanism=futex"], token_loop("futex")),
    ("tcp", ["net.rtt.tcp", "message=1B"], pingpong_loop("tcp")),
    ("udp", ["net.rtt.udp", "message=1B"], pingpong_loop("udp")),
    ("unix", ["net.rtt.unix", "message=1B"], pingpong_loop("unix")),
):
    CASES.append(Case(f"idle CPUs, {name}", "idle_wake", [*figure, *TWO_CPUS], [], share_gone_when_awake(loop), **MEMORY_BYSTANDER, other_causes=WAKE_CAUSES))
CASES.append(Case("interrupts to another CPU, pipe", "remote_interrupt", ["os.ipc.latency", "mechanism=pipe", *TWO_CPUS], [], share_gone_when_polling(token_loop("pipe")), **MEMORY_BYSTANDER, other_causes=WAKE_CAUSES))
CASES += [
    Case("base pages, a set of 16 MiB", "translation", [*WORKING_SET, "bytes=16MiB"], [], (["mem.latency", "pages=huge", "bytes=16MiB"], []), "other_work"),
    Case("base pages, a set of 64 MiB", "translation", [*WORKING_SET, "bytes=64MiB"], [], (["mem.latency", "pages=huge", "bytes=64MiB"], []), "other_work"),
    Case("memory traffic on the other CPU", "neighbour", [*WORKING_SET, "bytes=16MiB"], [Bench.memory_traffic], ([*WORKING_SET, "bytes=16MiB"], []), "other_work", other_causes=("translation",)),
    Case("a page cache of 24 MiB", "memory_limit", NEW_FILE, [disk(), lambda bench: bench.memory_quota(24 << 20)], (NEW_FILE, [disk()]), **QUOTA_BYSTANDER, other_causes=("file_system",)),
]  # fmt: skip


def parse():
    parser = common.make_parser(__doc__)
    parser.add_argument("--only", action="append", metavar="TEXT", help="only the cases whose name or cause contains this; repeatable")
    parser.add_argument("--times", type=int, default=5, help="questions of each case [default: %(default)s]")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="passes of each question [default: %(default)s]")
    parser.add_argument("--list", action="store_true", help="print the cases and exit")
    arguments = parser.parse_args()
    arguments.cases = [case for case in CASES if not arguments.only or any(text in case.name or text in case.cause for text in arguments.only)]
    if not arguments.cases:
        parser.error("--only: the name or cause of no case contains that; --list prints the cases")
    if arguments.times < 1 or arguments.rounds < 4:
        parser.error("--times must be at least 1 and --rounds at least 4")
    if arguments.list:
        print(common.table(["planted", "figure", "cause", "bystander"], [[case.name, case.question[0], case.cause, case.bystander] for case in arguments.cases]))
        sys.exit()
    return arguments


def explain_with(bench, question, plants, control_plant=Bench.no_cause):
    with contextlib.ExitStack() as stack:
        environments = [stack.enter_context(plant(bench)) for plant in [*plants, control_plant]]
        return bench.explain(question, environments)


def named_causes(explanation):
    """The causes that are parts of a figure, and their shares in percent."""
    parts = (part for part in explanation["parts"] if isinstance(part["kind"], dict))
    return {part["kind"]["cause"]: 100 * part["share"]["value"] for part in parts}


def is_cause_considered(explanation, cause):
    return any(candidate["id"] == cause for candidate in explanation["causes"])


def measure_case(bench, case, times):
    """The results of a case: figures with and without the cause, the shares, and wrongly named causes."""
    total = lambda explanation: explanation["whole"]["value"]
    figures, shares, wrong_names, loop_shares, figures_without = [], [], set(), [], []
    for _ in range(times):
        explanation = explain_with(bench, case.question, case.plants, case.control_plant)
        figures.append(total(explanation))
        shares_by_cause = named_causes(explanation)
        shares += [shares_by_cause[case.cause]] if case.cause in shares_by_cause else []
        wrong_names |= set(shares_by_cause) - {case.cause, *case.other_causes}
        if not is_cause_considered(explanation, case.bystander):
            wrong_names.add(f"{case.bystander} not considered")
        if isinstance(case.true_share, tuple):
            question, plants, *factor = case.true_share
            explanation_without = explain_with(bench, question, plants)
            figures_without.append(total(explanation_without) * (factor or [1])[0])
            wrong_names |= {f"{case.cause} without it"} & {f"{name} without it" for name in named_causes(explanation_without)}
        elif callable(case.true_share):
            loop_shares.append(case.true_share(bench))
    return {
        "planted": case.name, "figure": case.question[0], "cause": case.cause, "bystander": case.bystander, "times": times,
        "construction": case.true_share if isinstance(case.true_share, float) else None,
        "found": figures, "without": figures_without, "by_loop": loop_shares, "shares": shares, "wrong": sorted(wrong_names),
    }  # fmt: skip


def case_row(case):
    """A row of the table. The last cell is the verdict."""
    shares, wrong_names, times = case["shares"], case["wrong"], case["times"]
    if case["without"]:
        true_share, method = 100 * (1 - statistics.median(case["without"]) / statistics.median(case["found"])), "in turn"
    elif case["by_loop"]:
        true_share, method = statistics.median(case["by_loop"]), "C loop"
    else:
        true_share, method = case["construction"], "construction"
    median_share = statistics.median(shares) if shares else None
    holds = median_share is not None and len(shares) == times and abs(median_share - true_share) <= MAX_SHARE_ERROR and not wrong_names
    return [case["planted"], case["figure"], case["cause"], f"{true_share:.0f} %", method, "-" if median_share is None else f"{median_share:.0f} %", f"{len(shares)} of {times}",
            case["bystander"], ", ".join(wrong_names) or "-", "holds" if holds else "MISSED"]  # fmt: skip


def measure(arguments):
    kelvin = common.kelvin_program(arguments.kelvin)
    if os.geteuid():
        raise common.BenchmarkError("needs root: control groups, a network and a disk of its own")
    bench = Bench(kelvin, arguments.rounds)
    cases = []
    for case in arguments.cases:
        start_time = time.monotonic()
        cases.append(measure_case(bench, case, arguments.times))
        common.log(f"{' | '.join(case_row(cases[-1]))} | {time.monotonic() - start_time:.0f} s")
    return cases


def tables(measured):
    rows = [case_row(case) for case in measured]
    header = ["planted", "figure", "cause", "share", "known by", "found", "shown", "bystander", "wrongly named", ""]
    pass_count = sum(row[-1] == "holds" for row in rows)
    return f"{common.table(header, rows)}\n\n{pass_count} of {len(rows)} hold.", pass_count == len(rows)


if __name__ == "__main__":
    common.main(parse, measure, tables)
