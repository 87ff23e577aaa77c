#!/usr/bin/env python3
"""kelvin's load generator compared with wrk: CPU time of a request to nginx, throughput of several threads and how it grows with them,
response times of a planted server, and the rate.

With several threads, both load the same nginx as fast as they can: kelvin must get at least 95 % of the requests per second that wrk
gets. Each worker of nginx is bound to a CPU, and so is each thread of both generators, to the same ones. The generator has the last CPUs.
nginx has the others if there are as many, else all. The kernel spreads the connections over the workers (reuseport): without that, one
worker may get nearly all of them, and a pair then compares two distributions. Which of a pair is first alternates. Pairs are made until the
interval is on one side of the bound, up to --max-pairs. Other work on these CPUs lowers the throughput of either; it hardly changes the CPU
time that nginx and the generator use for a request, which is compared as well and not judged.

The growth is that of 1, 2, 4 ... threads on one half of the CPUs, against an nginx on the other half: n threads must get at least 90 % of
n times what one gets, unless nginx uses all of its CPUs. It needs four CPUs or more.

The planted server answers one request at a time, each after 4 ms, and stalls for 100 ms every 10 s. The response times of users, and of
requests at a rate, follow from that schedule, queueing included. The measured times are compared with the kernel's time stamps of the
packets. These also show unplanned delays: a pause of the machine delays every later request, and a paused server would start its clock
only when it reads a request. wrk has no rate, so it is compared in the closed loop only. The rates are counted by the same time stamps.
Response times and rates need root, for the packet capture.
"""
import contextlib
import json
import math
import os
import random
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import common
import servers
import stalling_server
import wire_times

SERVICE_SECONDS, STALL_SECONDS, PERIOD_SECONDS = 0.004, 0.1, 10.0
USERS, RATE = 16, 125
# Tolerance of a response time relative to that of the packets.
RESPONSE_TOLERANCE = 0.05
# Tolerance of a constant rate relative to the requested rate.
RATE_TOLERANCE = 0.001
# Least throughput of several threads relative to wrk's.
MIN_THROUGHPUT_RATIO = 0.95
# Least throughput of n threads relative to n times that of one, and the use of the server's CPUs from which on it is the server's.
MIN_GROWTH_RATIO, FULL_SERVER = 0.9, 0.9
CONNECTIONS_PER_THREAD = 32

NGINX_CONFIG = """worker_processes {workers}; worker_cpu_affinity {masks}; daemon off; pid {directory}/pid; error_log {directory}/errors;
events {{ worker_connections 4096; }}
http {{ access_log off; sendfile on; open_file_cache max=100; keepalive_requests 1000000000;
server {{ listen 127.0.0.1:{port} backlog=4096 reuseport; root {directory}; }} }}
"""


FILE_SIZES = {"small": 100, "large": 2 << 20}


@contextlib.contextmanager
def nginx(directory, cpus):
    """nginx with a worker bound to each of these CPUs that serves a small and a large file. The value is its URL and its process."""
    port, masks = servers.free_port(), " ".join(f"1{'0' * cpu}" for cpu in cpus)
    for name, size in FILE_SIZES.items():
        (directory / name).write_bytes(bytes(size))
        (directory / name).chmod(0o644)
    directory.chmod(0o755)
    (directory / "nginx.conf").write_text(NGINX_CONFIG.format(directory=directory, port=port, workers=len(cpus), masks=masks))
    with servers.Server(common.require_program("nginx", "nginx-light"), "-c", directory / "nginx.conf", "-p", directory) as server:
        yield f"http://127.0.0.1:{port}", server.process.pid


def run_pinned(command, cpu):
    """The output of a command pinned to a CPU, and its CPU time in seconds."""
    process = subprocess.Popen(["taskset", "-c", str(cpu), *map(str, command)], stdout=subprocess.PIPE, text=True)
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"{command[0]}: exit status {process.returncode}")
    return output, usage.ru_utime + usage.ru_stime


def kelvin_cpu_time(kelvin, url, connections, seconds, cpu):
    command = [kelvin, "load", url, "--users", connections, "--duration", f"{seconds:g}s", "--no-warm-up", "--json"]
    output, cpu_seconds = run_pinned(command, cpu)
    load = json.loads(output)
    if load["errors"]["first"]:
        raise RuntimeError(f"kelvin: {load['errors']['first']}")
    return cpu_seconds / load["requests"]


def wrk_cpu_time(wrk, url, connections, seconds, cpu):
    output, cpu_seconds = run_pinned([wrk, "-t1", f"-c{connections}", f"-d{max(round(seconds), 1)}", url], cpu)
    return cpu_seconds / int(re.search(r"(\d+) requests in", output)[1])


def measure_cpu_times(arguments, kelvin, wrk, directory):
    """Pairs of CPU times per request, for each file and number of connections."""
    results, order = [], random.Random(arguments.seed)
    server_cpus, [cpu] = split_cpus(1)
    with nginx(directory, server_cpus) as (base, _):
        for name in FILE_SIZES:
            for connections in (1, 8, 64):
                sides = {"ours": [], "theirs": []}
                for _ in range(arguments.pairs):
                    for side in order.sample(list(sides), 2):
                        tool = kelvin_cpu_time if side == "ours" else wrk_cpu_time
                        program = kelvin if side == "ours" else wrk
                        sides[side].append(tool(program, f"{base}/{name}", connections, arguments.seconds, cpu))
                results.append({"file": name, "connections": connections, **sides})
                common.log(" ".join(map(str, cpu_row(results[-1]))))
    return results


def cpu_row(result):
    ratio, low, high = common.paired_ratio(result["ours"], result["theirs"])
    ours, theirs = (common.format_time(sorted(result[side])[len(result[side]) // 2] * 1e9) for side in ("ours", "theirs"))
    verdict = "holds" if high <= 1 else "does not hold" if low > 1 else "not settled"
    return [result["file"], result["connections"], ours, theirs, f"{ratio:.3f}", f"{low:.3f}..{high:.3f}", verdict]


def split_cpus(threads):
    """The CPUs of the server, and those of so many threads: the last ones. The server has all where there are not as many others."""
    cpus = sorted(os.sched_getaffinity(0))
    if threads > len(cpus):
        raise common.BenchmarkError(f"--threads {threads}: a thread has a CPU of its own, and there are {len(cpus)}")
    return cpus[: len(cpus) - threads] if len(cpus) >= 2 * threads else cpus, cpus[-threads:]


def kelvin_load_on_cpus(kelvin, url, cpus, seconds):
    """The result of `kelvin load` with a thread on each CPU."""
    load_flags = ["--cpu", ",".join(map(str, cpus)), "--users", CONNECTIONS_PER_THREAD * len(cpus), "--duration", f"{seconds:g}s"]
    load = json.loads(common.run([kelvin, "load", url, *load_flags, "--no-warm-up", "--json"]))
    if load["errors"]["first"]:
        raise RuntimeError(f"kelvin: {load['errors']['first']}")
    return load


def children_cpu_seconds():
    """The CPU time of all processes that were started and have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def kelvin_throughput(kelvin, url, cpus, seconds):
    """Requests per second, and how many they were."""
    load = kelvin_load_on_cpus(kelvin, url, cpus, seconds)
    return load["requests"] / load["seconds"], load["requests"]


def pin_threads(process, cpus):
    """Binds each thread that a process has started to a CPU. wrk has no option for that."""
    deadline = time.monotonic() + 1
    while len(threads := sorted(map(int, os.listdir(f"/proc/{process}/task")))) <= len(cpus):
        if time.monotonic() > deadline:
            raise RuntimeError(f"process {process} has {len(threads)} threads, and {len(cpus) + 1} were expected")
        time.sleep(0.001)
    for thread, cpu in zip(threads[1:], cpus, strict=True):
        os.sched_setaffinity(thread, {cpu})


def wrk_throughput(wrk, url, cpus, seconds):
    command = [wrk, f"-t{len(cpus)}", f"-c{CONNECTIONS_PER_THREAD * len(cpus)}", f"-d{max(round(seconds), 1)}", url]
    with servers.piped_process(command) as process:
        pin_threads(process.pid, cpus)
        output = process.stdout.read()
    return float(re.search(r"Requests/sec:\s+([\d.]+)", output)[1]), int(re.search(r"(\d+) requests in", output)[1])


@dataclass
class ThroughputComparison:
    """kelvin and wrk with the same file and CPUs: requests per second, and seconds of CPU time of both ends for a request."""

    file: str
    server_cpus: list
    cpus: list
    ours: list = field(default_factory=list)
    theirs: list = field(default_factory=list)
    our_cpu: list = field(default_factory=list)
    their_cpu: list = field(default_factory=list)

    def measure(self, tools, server, seconds):
        """A pair. Which is first alternates."""
        figures = {}
        for side in ["ours", "theirs"] if len(self.ours) % 2 == 0 else ["theirs", "ours"]:
            figures[side] = self.measure_side(tools[side], server, seconds)
        for side, rates, cpu_times in (("ours", self.ours, self.our_cpu), ("theirs", self.theirs, self.their_cpu)):
            rates.append(figures[side][0])
            cpu_times.append(figures[side][1])

    def measure_side(self, tool, server, seconds):
        (throughput, program), (base, process) = tool, server
        before = servers.tree_cpu_seconds(process) + children_cpu_seconds()
        rate, requests = throughput(program, f"{base}/{self.file}", self.cpus, seconds)
        return rate, (servers.tree_cpu_seconds(process) + children_cpu_seconds() - before) / requests

    def interval(self):
        return common.paired_ratio(self.ours, self.theirs)

    def verdict(self):
        _, low, high = self.interval()
        return "holds" if low >= MIN_THROUGHPUT_RATIO else "does not hold" if high < MIN_THROUGHPUT_RATIO else "not settled"

    def row(self):
        ratio, low, high = self.interval()
        ours, theirs = (f"{statistics.median(side):.0f} /s" for side in (self.ours, self.theirs))
        cpu_ratio, cpu_low, cpu_high = common.paired_ratio(self.our_cpu, self.their_cpu)
        cpus = " and ".join(",".join(map(str, side)) for side in (self.server_cpus, self.cpus))
        cpu_cells = [f"{cpu_ratio:.3f}", f"{cpu_low:.3f}..{cpu_high:.3f}"]
        return [self.file, len(self.cpus), cpus, ours, theirs, f"{ratio:.3f}", f"{low:.3f}..{high:.3f}", *cpu_cells, len(self.ours), self.verdict()]


def measure_throughput(arguments, kelvin, wrk, directory):
    """Pairs of requests per second of several threads, for each file."""
    server_cpus, cpus = split_cpus(arguments.threads)
    tools = {"ours": (kelvin_throughput, kelvin), "theirs": (wrk_throughput, wrk)}
    comparisons = [ThroughputComparison(name, server_cpus, cpus) for name in FILE_SIZES]
    with nginx(directory, server_cpus) as server:
        for comparison in comparisons:
            for tool in tools.values():
                comparison.measure_side(tool, server, 1)  # A warm-up.
        for _, unsettled in common.pair_rounds(arguments, comparisons):
            for comparison in unsettled:
                comparison.measure(tools, server, arguments.seconds)
                common.log(f"{comparison.file} {comparison.ours[-1]:.0f} {comparison.theirs[-1]:.0f}")
    return comparisons


def throughput_row(result):
    return ThroughputComparison(**result).row()


def thread_counts(cpus):
    """1, 2, 4 ... and all."""
    return sorted({1 << power for power in range(cpus.bit_length()) if 1 << power <= cpus} | {cpus})


def measure_growth(arguments, kelvin, directory):
    """Requests per second of 1, 2, 4 ... threads on half of the CPUs, with the use of the busiest thread and of the server's CPUs."""
    order, all_cpus = random.Random(arguments.seed), len(os.sched_getaffinity(0))
    server_cpus, cpus = split_cpus(max(all_cpus // 2, 1))
    results = [{"file": name, "threads": threads, "rates": [], "busiest": [], "server": []} for name in FILE_SIZES for threads in thread_counts(len(cpus))]
    with nginx(directory, server_cpus) as (base, process):
        for _ in range(arguments.pairs):
            for result in order.sample(results, len(results)):
                before = servers.tree_cpu_seconds(process)
                load = kelvin_load_on_cpus(kelvin, f"{base}/{result['file']}", cpus[: result["threads"]], arguments.seconds)
                server_seconds = servers.tree_cpu_seconds(process) - before
                result["rates"].append(load["requests"] / load["seconds"])
                result["busiest"].append(load["generator"]["busy"])
                result["server"].append(server_seconds / load["seconds"] / len(server_cpus))
    singles = {result["file"]: result["rates"] for result in results if result["threads"] == 1}
    return [{**result, "single": singles[result["file"]]} for result in results]


def growth_row(result):
    ratio, low, high = common.paired_ratio(result["rates"], result["single"])
    bound, server = MIN_GROWTH_RATIO * result["threads"], statistics.median(result["server"])
    is_judged = result["threads"] > 1 and server < FULL_SERVER
    verdict = "holds" if low >= bound else "does not hold" if high < bound else "not settled"
    uses = (f"{statistics.median(result[key]) * 100:.0f} %" for key in ("busiest", "server"))
    cells = [result["file"], result["threads"], f"{statistics.median(result['rates']):.0f} /s", f"{ratio:.2f}", f"{low:.2f}..{high:.2f}", *uses]
    return [*cells, verdict if is_judged else "one thread" if result["threads"] == 1 else "the server is full"]


class StallingServer:
    """The planted server on the first CPU."""

    def __enter__(self):
        script = Path(stalling_server.__file__)
        arguments = ["--service", SERVICE_SECONDS, "--stall", STALL_SECONDS, "--period", PERIOD_SECONDS]
        command = ["taskset", "-c", str(min(os.sched_getaffinity(0))), sys.executable, script, *arguments]
        self.process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline())
        self.url = f"http://127.0.0.1:{self.port}/"
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def expected_times(seconds, is_open):
    """Response times that follow from the planted schedule alone, over a whole number of periods."""
    queue = stalling_server.StallingQueue(SERVICE_SECONDS, STALL_SECONDS, PERIOD_SECONDS)
    if is_open:
        return stalling_server.expected_open(queue, [number / RATE for number in range(int(seconds * RATE))])
    return stalling_server.expected_closed(queue, USERS, seconds)


def wrk_times(output):
    """The median and the 99 % quantile that wrk prints, in seconds."""
    units = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
    matches = {percentile: re.search(rf"{percentile}%\s+([\d.]+)(us|ms|s)", output) for percentile in (50, 99)}
    return {f"p{percentile}": float(match[1]) * units[match[2]] for percentile, match in matches.items()}


def kelvin_load(kelvin, server, cpu, *load_flags):
    """The result of `kelvin load`, and the exchanges in the packet capture."""
    with wire_times.PacketCapture(server.port) as capture:
        output, _ = run_pinned([kelvin, "load", server.url, *load_flags, "--no-warm-up", "--json"], cpu)
        return json.loads(output), capture.exchanges()


def packet_response_times(exchanges, is_open):
    """Response times from the packets. At a constant rate they start when a request was due.

    The schedule starts as early as possible such that no request was sent before it was due.
    """
    if not is_open:
        return [answer_time - send_time for send_time, answer_time in exchanges]
    start_time = min(send_time - number / RATE for number, (send_time, _) in enumerate(exchanges))
    return [answer_time - start_time - number / RATE for number, (_, answer_time) in enumerate(exchanges)]


def measure_response_times(kelvin, wrk, seconds):
    """Response times in seconds: planted, from the packets, and measured."""
    rows, cpu = [], common.last_allowed_cpu()
    for tool, is_open in (("kelvin", False), ("wrk", False), ("kelvin", True)):
        with StallingServer() as server:
            if tool == "wrk":
                with wire_times.PacketCapture(server.port) as capture:
                    output, _ = run_pinned([wrk, "-t1", f"-c{USERS}", f"-d{seconds:g}", "--latency", server.url], cpu)
                    exchanges = capture.exchanges()
                times, late_p99 = wrk_times(output), None
            else:
                load_flags = ["--rate", RATE] if is_open else ["--users", USERS]
                load, exchanges = kelvin_load(kelvin, server, cpu, *load_flags, "--duration", f"{seconds:g}s")
                times = {name: load["response"][name] / 1e9 for name in ("p50", "p95", "p99", "p999")}
                late_p99 = load["generator"]["late"]["p99"]
        expected_values, packet_values = expected_times(seconds, is_open), packet_response_times(exchanges, is_open)
        for name, quantile in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999)):
            if name not in times:
                continue
            expected_quantile, packet_quantile = (stalling_server.quantile(values, quantile) for values in (expected_values, packet_values))
            load_text = f"{RATE} a second" if is_open else f"{USERS} users"
            rows.append({"load": load_text, "by": tool, "figure": name, "planted": expected_quantile, "packets": packet_quantile, "found": times[name], "late": late_p99})
            common.log(" ".join(map(str, response_row(rows[-1]))))
    return rows


def response_row(result):
    error = result["found"] / result["packets"] - 1
    times = [common.format_time(result[key] * 1e9) for key in ("planted", "packets", "found")]
    late_text = "" if result["late"] is None else common.format_time(result["late"])
    return [result["load"], result["by"], result["figure"], *times, f"{error * 100:+.1f} %", late_text, "holds" if abs(error) <= RESPONSE_TOLERANCE else "does not hold"]


def measure_rates(kelvin, seconds):
    """Request rates from the packets, and the number of requests according to the packets and to kelvin."""
    rows, cpu = [], common.last_allowed_cpu()
    for arrivals in ("constant", "poisson"):
        with StallingServer() as server:
            load_flags = ["--rate", RATE, "--arrivals", arrivals, "--seed", 7, "--duration", f"{seconds:g}s"]
            load, exchanges = kelvin_load(kelvin, server, cpu, *load_flags)
        first, last = exchanges[0][0], exchanges[-1][0]
        rate = (len(exchanges) - 1) / (last - first)
        rows.append({"spread": arrivals, "requests": len(exchanges), "counted": load["response"]["count"], "rate": rate})
        common.log(" ".join(map(str, rate_row(rows[-1]))))
    return rows


def rate_row(result):
    # A Poisson process of n arrivals has a standard deviation of the root of n; 99.7 % are within three of them.
    bound = RATE_TOLERANCE if result["spread"] == "constant" else 3 / math.sqrt(result["requests"])
    error = result["rate"] / RATE - 1
    is_bound_met = abs(error) <= bound and result["requests"] == result["counted"]
    cells = [f"{RATE} /s", f"{result['rate']:.4f} /s", f"{error * 100:+.4f} %", f"{bound * 100:.1f} %", "holds" if is_bound_met else "does not hold"]
    return [result["spread"], result["requests"], *cells]


def parse():
    parser = common.make_pairs_parser(__doc__, seconds=3, max_pairs=40)
    parser.add_argument("--truth-seconds", type=float, default=60, help="time of each load on the planted server, a multiple of 10 [default: %(default)s]")
    parser.add_argument("--only", choices=list(TABLES), help="only one of the parts")
    parser.add_argument("--threads", type=int, default=2, help="threads of both generators where their throughput is compared [default: %(default)s]")
    parser.add_argument("--rate-seconds", type=float, default=10, help="time of each load whose rate is counted [default: %(default)s]")
    return common.parse_pairs(parser)


def measure(arguments):
    kelvin, wrk = common.kelvin_program(arguments.kelvin), common.require_program("wrk", "wrk")
    results = {}
    if arguments.only in (None, "cpu"):
        with tempfile.TemporaryDirectory() as directory:
            results["cpu"] = measure_cpu_times(arguments, kelvin, wrk, Path(directory))
    if arguments.only in (None, "throughput"):
        with tempfile.TemporaryDirectory() as directory:
            results["throughput"] = measure_throughput(arguments, kelvin, wrk, Path(directory))
    if arguments.only in (None, "growth"):
        with tempfile.TemporaryDirectory() as directory:
            results["growth"] = measure_growth(arguments, kelvin, Path(directory))
    if arguments.only in (None, "truth"):
        results["truth"] = measure_response_times(kelvin, wrk, arguments.truth_seconds)
    if arguments.only in (None, "rate"):
        results["rate"] = measure_rates(kelvin, arguments.rate_seconds)
    return results


# The table header of each part, and the function that makes a row.
TABLES = {
    "cpu": (["file", "connections", "kelvin, CPU a request", "wrk", "ratio", "90 % interval", "at most 1"], cpu_row),
    "throughput": (["file", "threads", "CPUs of nginx and generator", "kelvin, requests a second", "wrk", "ratio", "90 % interval", "CPU a request, ratio", "90 % interval", "pairs", "at least 0.95"], throughput_row),
    "growth": (["file", "threads", "kelvin, requests a second", "times one thread", "90 % interval", "busiest thread", "nginx's CPUs", "at least 0.9 a thread"], growth_row),
    "truth": (["load", "by", "figure", "planted", "by packets", "found", "off", "sent late, p99", "within 5 %"], response_row),
    "rate": (["spread", "requests", "asked for", "by packets", "off", "bound", "verdict"], rate_row),
}


def tables(measured):
    rows = {part: [TABLES[part][1](result) for result in results] for part, results in measured.items()}
    # A result that is not settled is no failure, and the response times of wrk are not judged.
    failures = [row for part_rows in rows.values() for row in part_rows if row[-1] == "does not hold" and row[1] != "wrk"]
    return "\n\n".join(common.table(TABLES[part][0], part_rows) for part, part_rows in rows.items()), not failures


if __name__ == "__main__":
    common.main(parse, measure, tables)
