#!/usr/bin/env python3
"""kelvin's load generator compared with wrk: CPU time of a request to nginx, throughput of several threads, response times of a planted
server, and the rate.

With several threads, both load the same nginx as fast as they can, on the CPUs that the system gives them: kelvin must get at least 95 %
of the requests per second that wrk gets.

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
import subprocess
import sys
import tempfile
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

NGINX_CONFIG = """worker_processes {workers}; daemon off; pid {directory}/pid; error_log {directory}/errors;
events {{ worker_connections 4096; }}
http {{ access_log off; sendfile on; open_file_cache max=100; keepalive_requests 1000000000;
server {{ listen 127.0.0.1:{port} backlog=4096; root {directory}; }} }}
"""


FILE_SIZES = {"small": 100, "large": 2 << 20}


@contextlib.contextmanager
def nginx(directory):
    """nginx with a worker per CPU that serves a small and a large file; the value is its URL."""
    port, workers = servers.free_port(), len(os.sched_getaffinity(0))
    for name, size in FILE_SIZES.items():
        (directory / name).write_bytes(bytes(size))
        (directory / name).chmod(0o644)
    directory.chmod(0o755)
    (directory / "nginx.conf").write_text(NGINX_CONFIG.format(directory=directory, port=port, workers=workers))
    with servers.Server(common.require_program("nginx", "nginx-light"), "-c", directory / "nginx.conf", "-p", directory):
        yield f"http://127.0.0.1:{port}"


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
    cpu = common.last_allowed_cpu()
    with nginx(directory) as base:
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


def kelvin_throughput(kelvin, url, threads, connections, seconds):
    threads_flags = ["--threads", threads, "--users", connections, "--no-pin"]
    load = json.loads(common.run([kelvin, "load", url, *threads_flags, "--duration", f"{seconds:g}s", "--no-warm-up", "--json"]))
    if load["errors"]["first"]:
        raise RuntimeError(f"kelvin: {load['errors']['first']}")
    return load["requests"] / load["seconds"]


def wrk_throughput(wrk, url, threads, connections, seconds):
    output = common.run([wrk, f"-t{threads}", f"-c{connections}", f"-d{max(round(seconds), 1)}", url])
    return float(re.search(r"Requests/sec:\s+([\d.]+)", output)[1])


def measure_throughput(arguments, kelvin, wrk, directory):
    """Pairs of requests per second of several threads, for each file."""
    results, order = [], random.Random(arguments.seed)
    with nginx(directory) as base:
        for name in FILE_SIZES:
            sides = {"ours": [], "theirs": []}
            for _ in range(arguments.pairs):
                for side in order.sample(list(sides), 2):
                    tool, program = (kelvin_throughput, kelvin) if side == "ours" else (wrk_throughput, wrk)
                    sides[side].append(tool(program, f"{base}/{name}", arguments.threads, 32 * arguments.threads, arguments.seconds))
            results.append({"file": name, "threads": arguments.threads, **sides})
            common.log(" ".join(map(str, throughput_row(results[-1]))))
    return results


def throughput_row(result):
    ratio, low, high = common.paired_ratio(result["ours"], result["theirs"])
    ours, theirs = (f"{sorted(result[side])[len(result[side]) // 2]:.0f} /s" for side in ("ours", "theirs"))
    verdict = "holds" if low >= MIN_THROUGHPUT_RATIO else "does not hold" if high < MIN_THROUGHPUT_RATIO else "not settled"
    return [result["file"], result["threads"], ours, theirs, f"{ratio:.3f}", f"{low:.3f}..{high:.3f}", verdict]


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
    parser = common.make_pairs_parser(__doc__, seconds=3)
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
    if arguments.only in (None, "truth"):
        results["truth"] = measure_response_times(kelvin, wrk, arguments.truth_seconds)
    if arguments.only in (None, "rate"):
        results["rate"] = measure_rates(kelvin, arguments.rate_seconds)
    return results


# The table header of each part, and the function that makes a row.
TABLES = {
    "cpu": (["file", "connections", "kelvin, CPU a request", "wrk", "ratio", "90 % interval", "at most 1"], cpu_row),
    "throughput": (["file", "threads", "kelvin, requests a second", "wrk", "ratio", "90 % interval", "at least 0.95"], throughput_row),
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
