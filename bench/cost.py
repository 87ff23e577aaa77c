#!/usr/bin/env python3
"""The cost of kelvin itself: the time of a run, memory, start-up, the size of the page.

  default run, quick run   wall time of `kelvin run cpu os` with store and page, as a user runs it
  memory                   peak resident memory of the kelvin process itself (VmHWM, read ten times a second until it
                           ends), without the probes, whose memory is measured elsewhere
  start-up                 median wall time of `kelvin --version`, 50 times
  page                     size of the report.html of the default run

Bounds: 30 s, 10 s, 64 MiB, 10 ms, 2 MiB.  Exit status: 0 every bound was kept, 1 at least one was not, 2 it could not be done.
"""
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import common

MIB = 1 << 20
# Seconds, seconds, bytes, seconds, bytes.
BOUNDS = {"default run": 30.0, "quick run": 10.0, "memory": 64 * MIB, "start-up": 0.010, "page": 2 * MIB}
POLL_SECONDS = 0.1


def peak_resident(process):
    """VmHWM of a process in bytes; 0 once it has ended."""
    try:
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) << 10
    except (FileNotFoundError, ProcessLookupError):
        pass
    return 0


def measure_run(kelvin, directory, *flags):
    """Wall time in seconds, and peak memory and page size in bytes, of one run in a directory of its own."""
    page = Path(directory) / "report.html"
    command = [kelvin, "run", "cpu", "os", "--store", Path(directory) / "runs.sqlite", "--output", page, *flags]
    start_time, peak = time.monotonic(), 0
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while True:
            peak = max(peak, peak_resident(process.pid))
            try:
                process.wait(POLL_SECONDS)
                break
            except subprocess.TimeoutExpired:
                continue
    seconds = time.monotonic() - start_time
    if process.returncode not in (0, 1):
        raise RuntimeError(f"kelvin run ended with status {process.returncode}")
    return seconds, peak, page.stat().st_size


def start_up_time(kelvin, repeats=50):
    """The median wall time of `kelvin --version`, in seconds."""
    def run_once():
        start_time = time.monotonic()
        common.run([kelvin, "--version"])
        return time.monotonic() - start_time

    return statistics.median(run_once() for _ in range(repeats))


def parse():
    parser = common.make_parser(__doc__)
    parser.add_argument("--runs", type=int, default=3, help="runs of each kind; the worst counts [default: %(default)s]")
    return parser.parse_args()


def measure(arguments):
    kelvin = common.kelvin_program(arguments.kelvin)
    values = {quantity: [] for quantity in BOUNDS}
    for _ in range(arguments.runs):
        for quantity, flags in (("default run", []), ("quick run", ["--quick"])):
            with tempfile.TemporaryDirectory(prefix="kelvin-bench-") as directory:
                seconds, peak, page = measure_run(kelvin, directory, *flags)
            common.log(f"{quantity}: {seconds:.2f} s, {peak / MIB:.1f} MiB, page {page / MIB:.2f} MiB")
            values[quantity].append(seconds)
            values["memory"].append(peak)
            values["page"].append(page)
    values["start-up"].append(start_up_time(kelvin))
    return values


def tables(measured):
    worst = {quantity: max(values) for quantity, values in measured.items()}
    rows = [[quantity, len(measured[quantity]), format_value(quantity, worst[quantity]), format_value(quantity, bound), "yes" if worst[quantity] <= bound else "NO"] for quantity, bound in BOUNDS.items()]
    return common.table(["what", "values", "the worst", "bound", "kept"], rows), all(row[-1] == "yes" for row in rows)


def format_value(quantity, value):
    if quantity in ("memory", "page"):
        return f"{value / MIB:.2f} MiB"
    return f"{value * 1e3:.2f} ms" if quantity == "start-up" else f"{value:.2f} s"


if __name__ == "__main__":
    common.main(parse, measure, tables)
