#!/usr/bin/env python3
"""kelvin's load generator beside wrk: CPU time a request against nginx, response times against planted ones, and the kept rate.

The planted server answers one request at a time, each after 4 ms, and stalls for 100 ms every 10 s. What users and requests at a
rate wait there follows from the schedule alone, queueing included. What is found is compared with the kernel's time stamps of the
packets, which see as well what was not planned: a pause of the machine moves every request after it, and the clock of a server
that is paused itself begins to count only when it has read a request. wrk has no rate, so it is beside kelvin in the closed loop
only. Rates are counted by the same time stamps. Response times and rates need root, for the packets.
"""
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

SERVICE, STALL, PERIOD = 0.004, 0.1, 10.0
USERS, RATE = 16, 125
# Of a response time against what the packets show.
BOUND = 0.05
# Of a constant rate against what was asked for.
RATE_BOUND = 0.001

NGINX = """worker_processes {workers}; daemon off; pid {directory}/pid; error_log {directory}/errors;
events {{ worker_connections 4096; }}
http {{ access_log off; sendfile on; open_file_cache max=100; keepalive_requests 1000000000;
server {{ listen 127.0.0.1:{port} backlog=4096; root {directory}; }} }}
"""


def run_pinned(command, cpu):
    """The output of a command pinned to a CPU, and its CPU time in seconds."""
    process = subprocess.Popen(["taskset", "-c", str(cpu), *map(str, command)], stdout=subprocess.PIPE, text=True)
    output = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"{command[0]}: exit status {process.returncode}")
    return output, used.ru_utime + used.ru_stime


def kelvin_cpu_time(kelvin, url, connections, seconds, cpu):
    command = [kelvin, "load", url, "--users", connections, "--duration", f"{seconds:g}s", "--no-warm-up", "--json"]
    output, used = run_pinned(command, cpu)
    load = json.loads(output)
    if load["errors"]["first"]:
        raise RuntimeError(f"kelvin: {load['errors']['first']}")
    return used / load["requests"]


def wrk_cpu_time(wrk, url, connections, seconds, cpu):
    output, used = run_pinned([wrk, "-t1", f"-c{connections}", f"-d{max(round(seconds), 1)}", url], cpu)
    return used / int(re.search(r"(\d+) requests in", output)[1])


def measure_cpu_times(arguments, kelvin, wrk, directory):
    """Pairs of CPU times a request, of each file and number of connections."""
    port, workers = servers.free_port(), len(os.sched_getaffinity(0))
    for name, size in (("small", 100), ("large", 2 << 20)):
        (directory / name).write_bytes(bytes(size))
        (directory / name).chmod(0o644)
    directory.chmod(0o755)
    (directory / "nginx.conf").write_text(NGINX.format(directory=directory, port=port, workers=workers))
    results, order = [], random.Random(arguments.seed)
    cpu = common.last_allowed_cpu()
    with servers.Server(common.require_program("nginx", "nginx-light"), "-c", directory / "nginx.conf", "-p", directory):
        for name in ("small", "large"):
            for connections in (1, 8, 64):
                sides = {"ours": [], "theirs": []}
                for _ in range(arguments.pairs):
                    for side in order.sample(list(sides), 2):
                        tool = kelvin_cpu_time if side == "ours" else wrk_cpu_time
                        program = kelvin if side == "ours" else wrk
                        url = f"http://127.0.0.1:{port}/{name}"
                        sides[side].append(tool(program, url, connections, arguments.seconds, cpu))
                results.append({"file": name, "connections": connections, **sides})
                common.log(" ".join(map(str, cpu_row(results[-1]))))
    return results


def cpu_row(one):
    ratio, low, high = common.ratio_of_pairs(one["ours"], one["theirs"])
    ours, theirs = (common.time_text(sorted(one[side])[len(one[side]) // 2] * 1e9) for side in ("ours", "theirs"))
    verdict = "holds" if high <= 1 else "does not hold" if low > 1 else "not settled"
    return [one["file"], one["connections"], ours, theirs, f"{ratio:.3f}", f"{low:.3f}..{high:.3f}", verdict]


class StallingServer:
    """The planted server on the first CPU."""

    def __enter__(self):
        script = Path(stalling_server.__file__)
        arguments = ["--service", SERVICE, "--stall", STALL, "--period", PERIOD]
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
    planted = stalling_server.StallingQueue(SERVICE, STALL, PERIOD)
    if is_open:
        return stalling_server.expected_open(planted, [number / RATE for number in range(int(seconds * RATE))])
    return stalling_server.expected_closed(planted, USERS, seconds)


def wrk_times(output):
    """The median and the 99 % quantile that wrk prints, in seconds."""
    units = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
    matches = {share: re.search(rf"{share}%\s+([\d.]+)(us|ms|s)", output) for share in (50, 99)}
    return {f"p{share}": float(one[1]) * units[one[2]] for share, one in matches.items()}


def kelvin_load(kelvin, server, cpu, *how):
    """What kelvin finds, and the exchanges that the packets show."""
    with wire_times.PacketCapture(server.port) as wire:
        output, _ = run_pinned([kelvin, "load", server.url, *how, "--no-warm-up", "--json"], cpu)
        return json.loads(output), wire.exchanges()


def packet_response_times(exchanges, is_open):
    """Response times by the packets: at a constant rate from when each request was due, which is the earliest schedule that none
    was sent ahead of."""
    if not is_open:
        return [answered - sent for sent, answered in exchanges]
    begun = min(sent - number / RATE for number, (sent, _) in enumerate(exchanges))
    return [answered - begun - number / RATE for number, (_, answered) in enumerate(exchanges)]


def measure_response_times(kelvin, wrk, seconds):
    """Response times in seconds: planted, by the packets, and found."""
    rows, cpu = [], common.last_allowed_cpu()
    for tool, is_open in (("kelvin", False), ("wrk", False), ("kelvin", True)):
        with StallingServer() as server:
            if tool == "wrk":
                with wire_times.PacketCapture(server.port) as wire:
                    output, _ = run_pinned([wrk, "-t1", f"-c{USERS}", f"-d{seconds:g}", "--latency", server.url], cpu)
                    exchanges = wire.exchanges()
                times, late = wrk_times(output), None
            else:
                how = ["--rate", RATE] if is_open else ["--users", USERS]
                load, exchanges = kelvin_load(kelvin, server, cpu, *how, "--duration", f"{seconds:g}s")
                times = {name: load["response"][name] / 1e9 for name in ("p50", "p95", "p99", "p999")}
                late = load["generator"]["late"]["p99"]
        planned, shown = expected_times(seconds, is_open), packet_response_times(exchanges, is_open)
        for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999)):
            if name not in times:
                continue
            planted, right = (stalling_server.quantile(waits, share) for waits in (planned, shown))
            loop = f"{RATE} a second" if is_open else f"{USERS} users"
            rows.append({"load": loop, "by": tool, "figure": name, "planted": planted, "packets": right, "found": times[name], "late": late})
            common.log(" ".join(map(str, truth_row(rows[-1]))))
    return rows


def truth_row(one):
    off = one["found"] / one["packets"] - 1
    times = [common.time_text(one[what] * 1e9) for what in ("planted", "packets", "found")]
    late = "" if one["late"] is None else common.time_text(one["late"])
    return [one["load"], one["by"], one["figure"], *times, f"{off * 100:+.1f} %", late, "holds" if abs(off) <= BOUND else "does not hold"]


def measure_rates(kelvin, seconds):
    """Rates by the packets of requests, and how many of these there were, by the packets and by kelvin."""
    rows, cpu = [], common.last_allowed_cpu()
    for spread in ("constant", "poisson"):
        with StallingServer() as server:
            how = ["--rate", RATE, "--arrivals", spread, "--seed", 7, "--duration", f"{seconds:g}s"]
            load, exchanges = kelvin_load(kelvin, server, cpu, *how)
        first, last = exchanges[0][0], exchanges[-1][0]
        rate = (len(exchanges) - 1) / (last - first)
        rows.append({"spread": spread, "requests": len(exchanges), "counted": load["response"]["count"], "rate": rate})
        common.log(" ".join(map(str, rate_row(rows[-1]))))
    return rows


def rate_row(one):
    # A Poisson process of n arrivals has a standard deviation of the root of n; 99.7 % are within three of them.
    bound = RATE_BOUND if one["spread"] == "constant" else 3 / math.sqrt(one["requests"])
    off = one["rate"] / RATE - 1
    is_kept = abs(off) <= bound and one["requests"] == one["counted"]
    cells = [f"{RATE} /s", f"{one['rate']:.4f} /s", f"{off * 100:+.4f} %", f"{bound * 100:.1f} %", "holds" if is_kept else "does not hold"]
    return [one["spread"], one["requests"], *cells]


def parse():
    parser = common.make_pairs_parser(__doc__, seconds=3)
    parser.add_argument("--truth-seconds", type=float, default=60, help="time of each load on the planted server, a multiple of 10 [default: %(default)s]")
    parser.add_argument("--only", choices=["cpu", "truth", "rate"], help="only one of the three parts")
    parser.add_argument("--rate-seconds", type=float, default=10, help="time of each load of which the rate is counted [default: %(default)s]")
    return common.parse_pairs(parser)


def measure(arguments):
    kelvin, wrk = common.kelvin_program(arguments.kelvin), common.require_program("wrk", "wrk")
    results = {}
    if arguments.only in (None, "cpu"):
        with tempfile.TemporaryDirectory() as directory:
            results["cpu"] = measure_cpu_times(arguments, kelvin, wrk, Path(directory))
    if arguments.only in (None, "truth"):
        results["truth"] = measure_response_times(kelvin, wrk, arguments.truth_seconds)
    if arguments.only in (None, "rate"):
        results["rate"] = measure_rates(kelvin, arguments.rate_seconds)
    return results


# Of each part the header of its table, and how a row is made.
PARTS = {
    "cpu": (["file", "connections", "kelvin, CPU a request", "wrk", "ratio", "90 % interval", "at most 1"], cpu_row),
    "truth": (["load", "by", "figure", "planted", "by packets", "found", "off", "sent late, p99", "within 5 %"], truth_row),
    "rate": (["spread", "requests", "asked for", "by packets", "off", "bound", "verdict"], rate_row),
}


def tables(measured):
    rows = {part: [PARTS[part][1](one) for one in results] for part, results in measured.items()}
    # What is not settled is no miss, and wrk's response times are not judged.
    missed = [row for of_part in rows.values() for row in of_part if row[-1] == "does not hold" and row[1] != "wrk"]
    return "\n\n".join(common.table(PARTS[part][0], of_part) for part, of_part in rows.items()), not missed


if __name__ == "__main__":
    common.main(parse, measure, tables)
