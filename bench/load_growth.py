#!/usr/bin/env python3
"""Whether a server and a load generator grow: a planted leak that `kelvin study load` must find, and long full load.

A study of two minutes of a server that loses 1 KiB with each request (a library in its LD_PRELOAD, bench/rivals/leak.c) must say that
its memory grows, by that much; of the same server as it is, it must not. Then `kelvin serve` and `kelvin load` run at full load for
--minutes: anonymous memory and open files of both are read each second, and neither may grow. The slope is that of least squares over
the medians of twenty stretches of time after the first tenth, with a 95 % interval by t; growth of less than a byte in a hundred
requests is none, nor is of the generator what it keeps of each second.
"""

import json
import math
import os
import statistics
import tempfile
import time
from pathlib import Path

import common
from servers import free_port, started, stats_server

PLANTED = 1024
# A message may be read in two parts, and memory is given out in more than was asked for.
PLANTED_ERROR = 0.15
INTERVALS = 20
# Of the t distribution with two degrees of freedom fewer than stretches, 97.5 %.
QUANTILE = 2.101
# Growth that is none: of either, and of what the generator keeps of each second.
BYTES_A_REQUEST = 0.01
BYTES_A_SECOND = 128


# ---- the leak check


def server_growth(study):
    """What the study says of the growth of the server's memory: bytes a request with their interval, and whether it holds."""
    for conclusion in study["analysis"]["studies"][0]["conclusions"]:
        growth = conclusion["claim"].get("load", {}).get("growth")
        if growth and growth["of_server"]:
            return growth["bytes_per_request"], conclusion["holds"], conclusion["text"]
    return None, None, "it says nothing of it"


def leak_check(kelvin, base, preload, budget):
    environment = {**os.environ, **({"LD_PRELOAD": str(preload)} if preload else {})}
    with stats_server(kelvin, base, 16, 100, env=environment) as (address, words):
        command = [kelvin, "study", "load", "--json", "--no-store", "--no-report", "--dir", base, "--rounds", "8", "--users", "1,2,4", "--budget", budget]
        study = json.loads(common.run([*command, "--url", f"http://{address}/", *words], timeout=900))
    growth, holds, text = server_growth(study)
    common.log(text)
    return {"is_planted": bool(preload), "growth": growth, "holds": holds, "text": text}


def leak_row(one):
    growth, holds, is_planted = one["growth"], one["holds"], one["is_planted"]
    if is_planted:
        is_right = holds is True and abs(growth["value"] / PLANTED - 1) <= PLANTED_ERROR
    else:
        is_right = holds is not True
    results = "-" if growth is None else f"{growth['value']:.3g} ({growth['low']:.3g} to {growth['high']:.3g}) B a request"
    return [f"{PLANTED} B a request" if is_planted else "none", results, {True: "grows", False: "does not"}.get(holds, "not known"), "holds" if is_right else "does not hold"]


# ---- long full load


def memory_and_files(process):
    """Anonymous memory in bytes and open files of a process."""
    status = Path(f"/proc/{process}/status").read_text()
    memory = sum(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith(("RssAnon:", "RssShmem:")))
    return memory, len(os.listdir(f"/proc/{process}/fd"))


def slope(points):
    """The growth a second over the medians of stretches, with an interval."""
    points = points[len(points) // 10 :]
    size = len(points) // INTERVALS
    intervals = [points[size * n : size * (n + 1)] for n in range(INTERVALS)]
    xs, ys = ([statistics.median(point[axis] for point in one) for one in intervals] for axis in (0, 1))
    x, y = statistics.fmean(xs), statistics.fmean(ys)
    square = sum((one - x) ** 2 for one in xs)
    value = sum((one - x) * (other - y) for one, other in zip(xs, ys)) / square
    residual = sum((other - y - value * (one - x)) ** 2 for one, other in zip(xs, ys))
    half_width = QUANTILE * math.sqrt(residual / (INTERVALS - 2) / square)
    return value, value - half_width, value + half_width


def soak(kelvin, base, minutes, users):
    files = Path(base, "soak")
    files.mkdir()
    for name, size in (("small", 100), ("large", 1 << 20)):
        (files / name).write_bytes(bytes(size))
    list_file, port, seconds = Path(base, "soak.list"), free_port(), minutes * 60
    list_file.write_text("small\nlarge\n")
    samples = {"server": [], "generator": []}
    with started([kelvin, "serve", files, "--listen", f"127.0.0.1:{port}"]) as server:
        server.stdout.readline()
        command = [kelvin, "load", f"http://127.0.0.1:{port}/", "--files", list_file, "--users", users, "--duration", f"{seconds:g}s", "--json"]
        with started(command) as generator:
            begun = time.monotonic()
            while time.monotonic() < begun + seconds and generator.poll() is None:
                for name, process in (("server", server), ("generator", generator)):
                    samples[name].append((time.monotonic() - begun, *memory_and_files(process.pid)))
                time.sleep(1)
            load = json.loads(generator.communicate(timeout=60)[0])
    error = load["errors"]["first"]
    common.log(f"{load['requests']} requests, {error or 'no error'}")
    return {"requests": load["requests"], "seconds": load["seconds"], "error": error, "seen": samples}


def soak_rows(results):
    rate = results["requests"] / results["seconds"]
    allowed = {"server": rate * BYTES_A_REQUEST, "generator": rate * BYTES_A_REQUEST + BYTES_A_SECOND}
    rows = []
    for name, points in results["seen"].items():
        for what, axis, bound, unit in (("memory", 1, allowed[name], "B/s"), ("open files", 2, 1 / 600, "/s")):
            value, low, high = slope([(point[0], point[axis]) for point in points])
            is_kept = low <= bound
            last = f"{points[-1][axis] / 2**20:.1f} MiB" if axis == 1 else str(points[-1][axis])
            rows.append([name, what, last, f"{value:.3g} ({low:.3g} to {high:.3g}) {unit}", f"{bound:.3g} {unit}", "holds" if is_kept else "does not hold"])
    return rows


def parse():
    parser = common.make_parser(__doc__)
    parser.add_argument("--budget", default="2m", help="time of the visits of each study [default: %(default)s]")
    parser.add_argument("--minutes", type=float, default=30, help="time of full load; 0 for none [default: %(default)s]")
    parser.add_argument("--users", type=int, default=64, help="users of full load [default: %(default)s]")
    parser.add_argument("--only", choices=["leak", "soak"], help="only one of the two parts")
    arguments = parser.parse_args()
    if 0 < arguments.minutes < 1:
        parser.error("--minutes must be 0, or at least 1: of less there is no slope")
    return arguments


def measure(arguments):
    kelvin, results = common.kelvin_program(arguments.kelvin), {"leak": [], "soak": None}
    with tempfile.TemporaryDirectory() as base:
        if arguments.only in (None, "leak"):
            library = Path(base, "leak.so")
            flags = ["-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
            common.run([common.require_program("cc", "gcc"), *flags, "-o", library, common.RIVALS / "leak.c", "-ldl"])
            results["leak"] = [leak_check(kelvin, base, preload, arguments.budget) for preload in (library, None)]
        if arguments.only in (None, "soak") and arguments.minutes > 0:
            results["soak"] = soak(kelvin, base, arguments.minutes, arguments.users)
    return results


def tables(measured):
    texts, rows, soaked = [], [], measured["soak"]
    if measured["leak"]:
        rows += [leak_row(one) for one in measured["leak"]]
        texts.append(common.table(["planted", "found", "the server's memory", "verdict"], rows))
    if soaked:
        of_soak = soak_rows(soaked)
        texts.append(common.table(["process", "what", "at the end", "growth", "at most", "verdict"], of_soak))
        texts.append(f"{soaked['requests']} requests in {soaked['seconds']:.0f} s, {soaked['error'] or 'no error'}.")
        rows += of_soak
    return "\n\n".join(texts), all(row[-1] == "holds" for row in rows) and not (soaked and soaked["error"])


if __name__ == "__main__":
    common.main(parse, measure, tables)
