#!/usr/bin/env python3
"""kelvin's load generator beside wrk: CPU time a request against nginx, and response times against planted ones.

The planted server answers one request at a time, each after 4 ms, and stalls for 100 ms every 10 s. What users and requests at a
rate wait there follows from the schedule alone, queueing included; what is found is compared with what the server did by its own
clock, which is later than planned where others use the machine. wrk has no rate, so it is beside kelvin in the closed loop only.
"""
import json
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

SERVICE, STALL, PERIOD = 0.004, 0.1, 10.0
USERS, RATE = 16, 125
# Of a response time against what the planted server did.
BOUND = 0.05

NGINX = """worker_processes {workers}; daemon off; pid {directory}/pid; error_log {directory}/errors;
events {{ worker_connections 4096; }}
http {{ access_log off; sendfile on; open_file_cache max=100; keepalive_requests 1000000000;
server {{ listen 127.0.0.1:{port} backlog=4096; root {directory}; }} }}
"""


def cpu_of(command, cpu):
    """The output of a command pinned to a CPU, and its CPU time in seconds."""
    process = subprocess.Popen(["taskset", "-c", str(cpu), *map(str, command)], stdout=subprocess.PIPE, text=True)
    output = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"{command[0]}: exit status {process.returncode}")
    return output, used.ru_utime + used.ru_stime


def by_kelvin(kelvin, url, connections, seconds, cpu):
    command = [kelvin, "load", url, "--users", connections, "--duration", f"{seconds:g}s", "--no-warm-up", "--json"]
    output, used = cpu_of(command, cpu)
    load = json.loads(output)
    if load["errors"]["first"]:
        raise RuntimeError(f"kelvin: {load['errors']['first']}")
    return used / load["requests"]


def by_wrk(wrk, url, connections, seconds, cpu):
    output, used = cpu_of([wrk, "-t1", f"-c{connections}", f"-d{max(round(seconds), 1)}", url], cpu)
    return used / int(re.search(r"(\d+) requests in", output)[1])


def cpu_times(arguments, kelvin, wrk, directory):
    """Pairs of CPU times a request; returns rows and whether kelvin needs no more."""
    port, workers = servers.free_port(), len(os.sched_getaffinity(0))
    for name, size in (("small", 100), ("large", 2 << 20)):
        (directory / name).write_bytes(bytes(size))
        (directory / name).chmod(0o644)
    directory.chmod(0o755)
    (directory / "nginx.conf").write_text(NGINX.format(directory=directory, port=port, workers=workers))
    rows, kept, order = [], True, random.Random(arguments.seed)
    cpu = common.last_allowed_cpu()
    with servers.Server(common.need("nginx", "nginx-light"), "-c", directory / "nginx.conf", "-p", directory):
        for name in ("small", "large"):
            for connections in (1, 8, 64):
                sides = {"ours": [], "theirs": []}
                for _ in range(arguments.pairs):
                    for side in order.sample(list(sides), 2):
                        tool = by_kelvin if side == "ours" else by_wrk
                        program = kelvin if side == "ours" else wrk
                        url = f"http://127.0.0.1:{port}/{name}"
                        sides[side].append(tool(program, url, connections, arguments.seconds, cpu))
                ratio, low, high = common.ratio_of_pairs(sides["ours"], sides["theirs"])
                ours, theirs = (common.time_text(sorted(times)[len(times) // 2] * 1e9) for times in sides.values())
                verdict = "holds" if high <= 1 else "does not hold" if low > 1 else "not settled"
                kept &= low <= 1
                rows.append([name, connections, ours, theirs, f"{ratio:.3f}", f"{low:.3f}..{high:.3f}", verdict])
                common.say(" ".join(map(str, rows[-1])))
    return rows, kept


class Stalling:
    """The planted server on the first CPU."""

    def __enter__(self):
        script = Path(stalling_server.__file__)
        arguments = ["--service", SERVICE, "--stall", STALL, "--period", PERIOD]
        command = ["taskset", "-c", str(min(os.sched_getaffinity(0))), sys.executable, script, *arguments]
        self.process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True)
        self.url = f"http://127.0.0.1:{int(self.process.stdout.readline())}/"
        return self

    def served(self):
        """Ends it; returns how long after their arrival requests were answered."""
        self.process.terminate()
        return json.loads(self.process.communicate()[0])

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def expected(seconds, is_open):
    """Response times that follow from the planted schedule alone, over a whole number of periods."""
    planted = stalling_server.Planted(SERVICE, STALL, PERIOD)
    if is_open:
        return stalling_server.expected_open(planted, [number / RATE for number in range(int(seconds * RATE))])
    return stalling_server.expected_closed(planted, USERS, seconds)


def wrk_times(output):
    """The median and the 99 % quantile that wrk prints, in seconds."""
    units = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
    found = {share: re.search(rf"{share}%\s+([\d.]+)(us|ms|s)", output) for share in (50, 99)}
    return {f"p{share}": float(one[1]) * units[one[2]] for share, one in found.items()}


def truth(kelvin, wrk, seconds):
    """Response times against those of the planted server; returns rows and whether kelvin's are within the bound."""
    rows, kept, cpu = [], True, common.last_allowed_cpu()
    for tool, is_open in (("kelvin", False), ("wrk", False), ("kelvin", True)):
        with Stalling() as server:
            if tool == "wrk":
                output, _ = cpu_of([wrk, "-t1", f"-c{USERS}", f"-d{seconds:g}", "--latency", server.url], cpu)
                times, late = wrk_times(output), ""
            else:
                how = ["--rate", RATE] if is_open else ["--users", USERS]
                command = [kelvin, "load", server.url, *how, "--duration", f"{seconds:g}s", "--no-warm-up", "--json"]
                load = json.loads(cpu_of(command, cpu)[0])
                times = {name: load["response"][name] / 1e9 for name in ("p50", "p99", "p999")}
                late = common.time_text(load["generator"]["late"]["p99"])
            served = server.served()
        planned = expected(seconds, is_open)
        for name, share in (("p50", 0.5), ("p99", 0.99), ("p999", 0.999)):
            if name not in times:
                continue
            planted, right = (stalling_server.quantile(waits, share) for waits in (planned, served))
            off = times[name] / right - 1
            is_kept = abs(off) <= BOUND
            kept &= is_kept or tool == "wrk"
            loop = f"{RATE} a second" if is_open else f"{USERS} users"
            cells = [*(common.time_text(time * 1e9) for time in (planted, right, times[name])), f"{off * 100:+.1f} %", late]
            rows.append([loop, tool, name, *cells, "holds" if is_kept else "does not hold"])
            common.say(" ".join(map(str, rows[-1])))
    return rows, kept


def benchmark():
    parser = common.parser_of_pairs(__doc__, seconds=3)
    parser.add_argument("--truth-seconds", type=float, default=60, help="time of each load on the planted server, a multiple of 10 [default: %(default)s]")
    parser.add_argument("--only", choices=["cpu", "truth"], help="only one of the two parts")
    arguments = common.parse_pairs(parser)
    kelvin, wrk = common.kelvin_program(arguments.kelvin), common.need("wrk", "wrk")
    print(f"{common.describe_machine()}\n")
    kept = True
    if arguments.only != "truth":
        with tempfile.TemporaryDirectory() as directory:
            rows, kept = cpu_times(arguments, kelvin, wrk, Path(directory))
        print(common.table(["file", "connections", "kelvin, CPU a request", "wrk", "ratio", "90 % interval", "at most 1"], rows) + "\n")
    if arguments.only != "cpu":
        rows, is_true = truth(kelvin, wrk, arguments.truth_seconds)
        kept &= is_true
        print(common.table(["load", "by", "figure", "planted", "served", "found", "off", "sent late, p99", "within 5 %"], rows))
    return kept


if __name__ == "__main__":
    common.main(benchmark)
