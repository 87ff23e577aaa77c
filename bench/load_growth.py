#!/usr/bin/env python3
"""Whether a server and a load generator grow: a planted leak that `kelvin study load` must find, and a long full load.

The studied server leaks 1 KiB with each request (a library in its LD_PRELOAD, bench/rivals/leak.c). A study of two minutes must report
that its memory grows, and by how much. The study of the same server without the leak must not. Then `kelvin serve` and `kelvin load` run
at full load for --minutes. Anonymous memory and open files of both are read each second, and neither may grow. The slope is a least
squares fit to the medians of twenty intervals after the first tenth of the time, with a 95 % t interval. Growth below one byte in a
hundred requests does not count, nor do the statistics that the generator keeps for each second.
"""

import json
import math
import os
import statistics
import tempfile
import time
from pathlib import Path

import common
from servers import free_port, piped_process, stats_server

LEAK_BYTES = 1024
# A message may be read in two parts, and the allocator may use more memory than requested.
LEAK_TOLERANCE = 0.15
INTERVALS = 20
# The 97.5 % quantile of the t distribution with two degrees of freedom fewer than intervals.
T_QUANTILE = 2.101
# Growth that does not count: of both processes, and the statistics that the generator keeps for each second.
MAX_BYTES_PER_REQUEST = 0.01
MAX_BYTES_PER_SECOND = 128


# ---- the leak check


def server_growth(study):
    """The study's conclusion on the growth of the server's memory: bytes per request with interval, whether it holds, and the text."""
    for conclusion in study["analysis"]["studies"][0]["conclusions"]:
        growth = conclusion["claim"].get("load", {}).get("growth")
        if growth and growth["of_server"]:
            return growth["bytes_per_request"], conclusion["holds"], conclusion["text"]
    return None, None, "the study has no conclusion on growth"


def measure_leak(kelvin, base, preload, budget):
    environment = {**os.environ, **({"LD_PRELOAD": str(preload)} if preload else {})}
    with stats_server(kelvin, base, 16, 100, env=environment) as (address, study_flags):
        command = [kelvin, "study", "load", "--json", "--no-store", "--dir", base, "--rounds", "8", "--users", "1,2,4", "--budget", budget]
        study = json.loads(common.run([*command, "--url", f"http://{address}/", *study_flags], timeout=900))
    growth, holds, text = server_growth(study)
    common.log(text)
    return {"is_planted": bool(preload), "growth": growth, "holds": holds, "text": text}


def leak_row(result):
    growth, holds, is_planted = result["growth"], result["holds"], result["is_planted"]
    if is_planted:
        is_right = holds is True and abs(growth["value"] / LEAK_BYTES - 1) <= LEAK_TOLERANCE
    else:
        is_right = holds is not True
    growth_text = "-" if growth is None else f"{growth['value']:.3g} ({growth['low']:.3g} to {growth['high']:.3g}) B a request"
    return [f"{LEAK_BYTES} B a request" if is_planted else "none", growth_text, {True: "grows", False: "does not"}.get(holds, "not known"), "holds" if is_right else "does not hold"]


# ---- long full load


def memory_and_files(process):
    """Anonymous memory in bytes, and the number of open files, of a process."""
    status = Path(f"/proc/{process}/status").read_text()
    memory = sum(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith(("RssAnon:", "RssShmem:")))
    return memory, len(os.listdir(f"/proc/{process}/fd"))


def growth_rate(points):
    """The growth per second, fitted to the medians of intervals of time, with its confidence interval."""
    points = points[len(points) // 10 :]
    interval_size = len(points) // INTERVALS
    intervals = [points[interval_size * index : interval_size * (index + 1)] for index in range(INTERVALS)]
    xs, ys = ([statistics.median(point[axis] for point in interval) for interval in intervals] for axis in (0, 1))
    x_mean, y_mean = statistics.fmean(xs), statistics.fmean(ys)
    x_square_sum = sum((x_value - x_mean) ** 2 for x_value in xs)
    slope = sum((x_value - x_mean) * (y_value - y_mean) for x_value, y_value in zip(xs, ys)) / x_square_sum
    residual = sum((y_value - y_mean - slope * (x_value - x_mean)) ** 2 for x_value, y_value in zip(xs, ys))
    half_width = T_QUANTILE * math.sqrt(residual / (INTERVALS - 2) / x_square_sum)
    return slope, slope - half_width, slope + half_width


def run_soak(kelvin, base, minutes, users):
    files = Path(base, "soak")
    files.mkdir()
    for name, size in (("small", 100), ("large", 1 << 20)):
        (files / name).write_bytes(bytes(size))
    list_file, port, seconds = Path(base, "soak.list"), free_port(), minutes * 60
    list_file.write_text("small\nlarge\n")
    samples = {"server": [], "generator": []}
    with piped_process([kelvin, "serve", files, "--listen", f"127.0.0.1:{port}"]) as server:
        server.stdout.readline()
        command = [kelvin, "load", f"http://127.0.0.1:{port}/", "--files", list_file, "--users", users, "--duration", f"{seconds:g}s", "--json"]
        with piped_process(command) as generator:
            start_time = time.monotonic()
            while time.monotonic() < start_time + seconds and generator.poll() is None:
                for name, process in (("server", server), ("generator", generator)):
                    samples[name].append((time.monotonic() - start_time, *memory_and_files(process.pid)))
                time.sleep(1)
            load = json.loads(generator.communicate(timeout=60)[0])
    error = load["errors"]["first"]
    common.log(f"{load['requests']} requests, {error or 'no error'}")
    return {"requests": load["requests"], "seconds": load["seconds"], "error": error, "seen": samples}


def soak_rows(results):
    rate = results["requests"] / results["seconds"]
    bounds = {"server": rate * MAX_BYTES_PER_REQUEST, "generator": rate * MAX_BYTES_PER_REQUEST + MAX_BYTES_PER_SECOND}
    rows = []
    for name, points in results["seen"].items():
        for quantity, axis, bound, unit in (("memory", 1, bounds[name], "B/s"), ("open files", 2, 1 / 600, "/s")):
            value, low, high = growth_rate([(point[0], point[axis]) for point in points])
            is_bound_met = low <= bound
            last_value = f"{points[-1][axis] / 2**20:.1f} MiB" if axis == 1 else str(points[-1][axis])
            rows.append([name, quantity, last_value, f"{value:.3g} ({low:.3g} to {high:.3g}) {unit}", f"{bound:.3g} {unit}", "holds" if is_bound_met else "does not hold"])
    return rows


def parse():
    parser = common.make_parser(__doc__)
    parser.add_argument("--budget", default="2m", help="time budget of each study [default: %(default)s]")
    parser.add_argument("--minutes", type=float, default=30, help="time of full load; 0 for none [default: %(default)s]")
    parser.add_argument("--users", type=int, default=64, help="users of full load [default: %(default)s]")
    parser.add_argument("--only", choices=["leak", "soak"], help="only one of the two parts")
    arguments = parser.parse_args()
    if 0 < arguments.minutes < 1:
        parser.error("--minutes must be 0, or at least 1: less time gives no slope")
    return arguments


def measure(arguments):
    kelvin, results = common.kelvin_program(arguments.kelvin), {"leak": [], "soak": None}
    with tempfile.TemporaryDirectory() as base:
        if arguments.only in (None, "leak"):
            library = Path(base, "leak.so")
            flags = ["-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
            common.run([common.require_program("cc", "gcc"), *flags, "-o", library, common.RIVALS / "leak.c", "-ldl"])
            results["leak"] = [measure_leak(kelvin, base, preload, arguments.budget) for preload in (library, None)]
        if arguments.only in (None, "soak") and arguments.minutes > 0:
            results["soak"] = run_soak(kelvin, base, arguments.minutes, arguments.users)
    return results


def tables(measured):
    texts, rows, soak = [], [], measured["soak"]
    if measured["leak"]:
        rows += [leak_row(result) for result in measured["leak"]]
        texts.append(common.table(["planted", "found", "the server's memory", "verdict"], rows))
    if soak:
        growth_rows = soak_rows(soak)
        texts.append(common.table(["process", "what", "at the end", "growth", "at most", "verdict"], growth_rows))
        texts.append(f"{soak['requests']} requests in {soak['seconds']:.0f} s, {soak['error'] or 'no error'}.")
        rows += growth_rows
    return "\n\n".join(texts), all(row[-1] == "holds" for row in rows) and not (soak and soak["error"])


if __name__ == "__main__":
    common.main(parse, measure, tables)
