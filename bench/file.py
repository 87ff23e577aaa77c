#!/usr/bin/env python3
"""Whether kelvin reads files, and computes their digest, at least as fast as common tools.

Every side reads the same file. Before each side that reads from memory, `fincore` must find the complete file there; kelvin
verifies it as well. The sides of a pair are interleaved in random order, on one CPU unless noted. A side counts only if the core
was not shared before and after it. The ratio is kelvin / other of the rates over the pairs: its Hodges-Lehmann estimate and the
exact 90 % interval of the signed-rank test.

Requests: `kelvin file read` is compared with fio (psync and io_uring) and dd at the same block size, without latencies on both
sides and with them on both. The lower end of the interval must be above 0.97.

Direct: sequential and random reads past the page cache are compared with fio at the same block size, depth and engine. The file
system is on a loop device over memory. Judged reads are under a limit on the device, with both sides in the same control group.
So the medium is steady. The first second is left out. The interval must lie within 5 %. With --unlimited the same comparisons
run without the limit, and are not judged: the code of each program and the threads of the loop device are then the limit.
Jobs: file.jobs, with one job and with one on each CPU at queue depth 32, is compared with fio at as many jobs (--numjobs) and the same depth
(--iodepth), by io_uring and by libaio; and file.device.requests with one job of fio at depth 64. Both read a file of 64 MiB on the file system of --dir, and one on the loop device under the limit,
on all CPUs. The interval must lie within 5 %.

Job files: `kelvin file run` and fio run the same job file, random reads, and 70 % reads with 30 % writes, 4 KiB at depth 16 by io_uring, on
the loop device under the limit and without it. The interval of the ratio of requests must lie within 5 % under the limit.

`kelvin digest` of a file that is not in memory is compared, as a whole program, with the sequential direct rates of fio and dd
under the limit. It runs with a cached read method, and with one that it must find (--rebuild-cache). Bound: above 0.97. Needs root.

Copy: `kelvin file copy` copies 256 MiB in memory to a new file in the same directory. Its rate, by its own clock and without
latencies, is compared with the rate that dd reports at the same bs. It is also compared with cp by the wall clock, which includes
the start of a program. Bound: above 0.97 of dd, and of cp by copy_file_range, which cp uses as well.

Digest: whole programs are timed by the wall clock from start to end. `kelvin digest` is compared on all CPUs with cat to
/dev/null, dd, cksum, sha256sum, xxhsum and a plain C++ loop over a mapping, and with itself on one CPU. Bounds: above 3 for
sha256sum, above 1 for all others. Its rate is also compared with that of the fastest method of `kelvin file read` without a
digest: above 0.90. Medians of several rounds select that method first. The same method in one pass, as in the digest, is not judged.

Exit status: 0 every bound was kept, 1 at least one was not, 2 it could not be done.
"""
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable

import common
import media
from rivals import Rivals, format_quiet_counts

MIN_RATIO = 0.97
MIB = 1 << 20
DD_RATE = re.compile(r"(\d+) bytes .* copied, (\S+) s")


@dataclass
class Comparison:
    """One way of reading, by kelvin and by another program. Both sides return a rate."""

    what: str
    program: str
    ours: Callable = common.transient_field()
    theirs: Callable = common.transient_field()
    # Bounds of the interval: minimum of the lower end, maximum of the upper end.
    least: float = MIN_RATIO
    most: float | None = None
    unit: str = "requests"
    # Whether the bounds are judged.
    judged: bool = True
    pairs: list = field(default_factory=list)

    def row(self):
        ours, theirs = zip(*self.pairs)
        ratio, lower, upper = common.paired_ratio(ours, theirs)
        is_bound_met = not self.judged or lower > self.least and (self.most is None or upper < self.most)
        format_median = lambda values: format_rate(statistics.median(values), self.unit)
        bound = "-" if not self.judged else f"above {self.least:g}" if self.most is None else f"{self.least:g} to {self.most:g}"
        verdict = "context" if not self.judged else "holds" if is_bound_met else "MISSED"
        cells = [self.what, self.program, format_median(ours), format_median(theirs), f"{ratio:.3f}", f"{lower:.3f}..{upper:.3f}", bound, len(ours), verdict]
        return is_bound_met, cells

    def is_unsettled(self):
        """Whether the estimate is within the bounds and the interval is not."""
        ratio, lower, upper = common.paired_ratio(*zip(*self.pairs))
        is_estimate_within = ratio > self.least and (self.most is None or ratio < self.most)
        return is_estimate_within and not self.row()[0]


def format_rate(rate, unit):
    if unit == "requests":
        return f"{rate / 1e3:.1f} k/s"
    return f"{rate / 1e9:.2f} GB/s" if rate >= 1e9 else f"{rate / 1e6:.1f} MB/s"


class FilePrograms:
    """Programs that read or copy a file. Each method returns a rate."""

    def __init__(self, kelvin, rivals, path, seconds, join_cgroup=None):
        self.kelvin, self.rivals, self.path, self.seconds = kelvin, rivals, path, seconds
        # Each side calls this before it starts, to join a control group.
        self.join_cgroup = join_cgroup

    def run_pinned(self, *command, check=True):
        command = [common.require_program("taskset", "util-linux"), "-c", str(self.rivals.cpu), *map(str, command)]
        options = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "timeout": 600, "preexec_fn": self.join_cgroup}
        process = subprocess.run(command, **options)
        if check and process.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: {process.stderr.strip()}")
        return process

    def ensure_cached(self):
        """Ensures that the complete file is in memory."""
        resident_bytes = lambda: int(common.run([common.require_program("fincore", "util-linux"), "-b", "-n", "-o", "RES", self.path]))
        # The kernel may have reclaimed pages: the file is read again, a few times.
        for _ in range(5):
            if resident_bytes() >= self.path.stat().st_size:
                return
            subprocess.run(["cat", self.path], stdout=subprocess.DEVNULL, check=True)
        raise RuntimeError(f"{self.path} does not stay in memory")

    def kelvin_figure(self, figure, *flags, cache="cached"):
        output = self.run_pinned(self.kelvin, "file", "read", self.path, "--json", "--cache", cache, "--seconds", self.seconds, *flags).stdout
        return json.loads(output)[figure]

    def steady_direct_rate(self, *flags):
        """Bytes per second of direct reads, without the first second, in which a limit may allow a burst."""
        seconds = round(self.seconds)
        command = [self.kelvin, "file", "read", self.path, "--json", "--cache", "direct", "--seconds", seconds + 1, *flags]
        return sum(json.loads(self.run_pinned(*command).stdout)["bytes_in_each_second"][1 : seconds + 1]) / seconds

    def fio_rate(self, figure, block, engine="psync", depth=1, pattern="read", latencies=False, direct=False, is_single_pass=False):
        if not direct:
            self.ensure_cached()
        command = [
            common.require_program("fio", "fio"), "--name=side", f"--filename={self.path}", "--readonly",
            *([] if is_single_pass else ["--time_based", f"--runtime={self.seconds:g}", f"--ramp_time={int(direct)}"]), f"--rw={pattern}", f"--bs={block}", f"--ioengine={engine}", f"--iodepth={depth}",
            f"--direct={int(direct)}", "--invalidate=0", "--norandommap=0", "--output-format=json", "--thread",
        ]
        if not latencies:
            command += ["--disable_lat=1", "--disable_clat=1", "--disable_slat=1", "--disable_bw_measurement=1"]
        output = self.run_pinned(*command).stdout
        read_result = json.loads(output[output.index("{"):])["jobs"][0]["read"]
        return read_result["iops"] if figure == "requests_per_second" else read_result["bw_bytes"]

    def run_on_all_cpus(self, *command, **options):
        process = subprocess.run(list(map(str, command)), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600, preexec_fn=self.join_cgroup, **options)
        if process.returncode != 0:
            raise RuntimeError(f"{' '.join(map(str, command))}: {process.stderr.strip()}")
        return process.stdout

    def kelvin_jobs_rate(self, jobs, depth):
        """Requests per second of file.jobs, with these jobs and this depth."""
        command = [self.kelvin, "study", "file.jobs", "--only", f"jobs={jobs}", "--only", f"depth={depth}", "--dir", self.path.parent, "--budget", "minimum", "--rounds", JOB_ROUNDS, "--no-store", "--json"]
        return common.find_summary(json.loads(self.run_on_all_cpus(*command)), "file.jobs.iops", f"depth={depth} jobs={jobs}")["headline"]

    def kelvin_device_rate(self):
        """Requests per second of file.device.requests."""
        command = [self.kelvin, "run", "file.device.requests", "--dir", self.path.parent, "--budget", "minimum", "--rounds", DEVICE_ROUNDS, "--no-store", "--json"]
        return common.find_summary(json.loads(self.run_on_all_cpus(*command)), "file.device.requests")["headline"]

    def fio_jobs_rate(self, jobs, depth, engine):
        """Requests per second of fio with these jobs and this depth."""
        command = [
            common.require_program("fio", "fio"), "--name=side", f"--filename={self.path}", "--readonly", "--time_based", f"--runtime={self.seconds:g}",
            "--ramp_time=1", "--rw=randread", "--bs=4k", f"--ioengine={engine}", f"--iodepth={depth}", f"--numjobs={jobs}", "--direct=1", "--invalidate=0",
            "--group_reporting", f"--cpus_allowed={','.join(map(str, self.job_cpus(jobs)))}", "--cpus_allowed_policy=split", "--output-format=json",
            "--disable_lat=1", "--disable_clat=1", "--disable_slat=1", "--disable_bw_measurement=1",
        ]
        output = self.run_on_all_cpus(*command)
        return json.loads(output[output.index("{"):])["jobs"][0]["read"]["iops"]

    def job_cpus(self, jobs):
        """The CPUs of jobs: first the one on which kelvin measures all else."""
        others = [cpu for cpu in sorted(os.sched_getaffinity(0)) if cpu != self.rivals.cpu]
        return [self.rivals.cpu, *others][:jobs]

    def write_job_file(self, options):
        """A job file for both programs, on this file and past the page cache."""
        job_file = self.path.with_name("job.fio")
        lines = ["[side]", f"filename={self.path}", "direct=1", "ioengine=io_uring", "iodepth=16", "bs=4k", "time_based", f"runtime={round(self.seconds)}", "ramp_time=1", "thread", "invalidate=0", *options]
        job_file.write_text("\n".join(lines) + "\n")
        return job_file

    def kelvin_job_file_rate(self, options):
        """Requests per second of both directions."""
        flags = ["--overwrite", self.path] if "rw=randrw" in options else []
        output = self.run_pinned(self.kelvin, "file", "run", self.write_job_file(options), "--json", *flags).stdout
        group = json.loads(output)["stages"][0]["groups"][0]
        return sum(group[direction]["requests_per_second"]["value"] for direction in ("read", "write") if direction in group)

    def fio_job_file_rate(self, options):
        output = self.run_pinned(common.require_program("fio", "fio"), self.write_job_file(options), "--output-format=json").stdout
        job = json.loads(output[output.index("{"):])["jobs"][0]
        return job["read"]["iops"] + job["write"]["iops"]

    def dd_rate(self, block):
        self.ensure_cached()
        total_bytes = total_seconds = 0.0
        while total_seconds < self.seconds:
            match = DD_RATE.search(self.run_pinned("dd", f"if={self.path}", "of=/dev/null", f"bs={block}").stderr)
            total_bytes, total_seconds = total_bytes + float(match[1]), total_seconds + float(match[2])
        return total_bytes / total_seconds

    def kelvin_copy_rate(self, *flags):
        """Bytes per second of `kelvin file copy`."""
        return self.copy_rate(lambda copy: json.loads(self.run_pinned(self.kelvin, "file", "copy", self.path, copy, "--json", "--no-latency", *flags).stdout)["bytes_per_second"])

    def dd_copy_rate(self, block):
        def rate(copy):
            match = DD_RATE.search(self.run_pinned("dd", f"if={self.path}", f"of={copy}", f"bs={block}").stderr)
            return float(match[1]) / float(match[2])

        return self.copy_rate(rate)

    def cp_copy_rate(self):
        def rate(copy):
            start_time = time.perf_counter()
            self.run_pinned("cp", self.path, copy)
            return self.path.stat().st_size / (time.perf_counter() - start_time)

        return self.copy_rate(rate)

    def copy_rate(self, rate):
        """The rate of a copy to a new file, which is removed afterwards."""
        self.ensure_cached()
        copy = self.path.with_name("copy")
        try:
            return rate(copy)
        finally:
            copy.unlink(missing_ok=True)

    def program_rate(self, command, repeats):
        """Bytes per second of whole runs of a program, by the wall clock."""
        self.ensure_cached()
        start_time = time.perf_counter()
        for _ in range(repeats):
            subprocess.run(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        return self.path.stat().st_size * repeats / (time.perf_counter() - start_time)

    def cold_program_rate(self, command):
        """Bytes per second of one whole run of a program, with a file that is not in memory."""
        media.drop_from_cache(self.path)
        start_time = time.perf_counter()
        subprocess.run(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True, preexec_fn=self.join_cgroup)
        return self.path.stat().st_size / (time.perf_counter() - start_time)

    def kelvin_pass_rate(self, engine, block, threads, is_single_pass=False):
        """Bytes per second of `kelvin file read` by one method, without a digest and without the start of the program.

        It makes many passes, or, as the digest does, one pass in each of three processes. A mapping is always read in a single
        pass. In a second pass its pages would be mapped already, and memory would be read instead of a file.
        """
        flags = ["--engine", engine, "--block", block, "--threads", threads, "--no-digest", "--no-latency", "--cache", "cached"]
        flags += ["--depth", 4] if engine == "io_uring" else []
        is_single_pass = is_single_pass or engine.startswith("mmap")
        flags += [] if is_single_pass else ["--seconds", self.seconds]
        command = [self.kelvin, "file", "read", self.path, "--json", *flags]
        return statistics.harmonic_mean([json.loads(common.run(command))["bytes_per_second"] for _ in range(3 if is_single_pass else 1)])


def cached_comparisons(programs):
    """Comparisons of cached reads with fio and dd."""
    bare_flags = ("--no-latency", "--no-digest")
    request_rate, byte_rate = "requests_per_second", "bytes_per_second"
    selection = []
    for latencies in (False, True):
        flags = ("--no-digest",) if latencies else bare_flags
        timing_text = "each timed" if latencies else "not timed"
        selection.append(Comparison(
            f"4 KiB pread, {timing_text}", "fio psync",
            lambda flags=flags: programs.kelvin_figure(request_rate, "--block", "4k", *flags),
            lambda latencies=latencies: programs.fio_rate(request_rate, "4k", latencies=latencies),
        ))
        selection.append(Comparison(
            f"4 KiB io_uring, depth 16, {timing_text}", "fio io_uring",
            lambda flags=flags: programs.kelvin_figure(request_rate, "--block", "4k", "--engine", "io_uring", "--depth", "16", *flags),
            lambda latencies=latencies: programs.fio_rate(request_rate, "4k", "io_uring", 16, latencies=latencies),
        ))
    selection.append(Comparison(
        "4 KiB pread with the digest, not timed", "fio psync, which has none",
        lambda: programs.kelvin_figure(request_rate, "--block", "4k", "--no-latency"),
        lambda: programs.fio_rate(request_rate, "4k"), least=0.0,
    ))
    for block in ("128k", "256k", "1m"):
        ours = lambda block=block: programs.kelvin_figure(byte_rate, "--block", block.upper(), *bare_flags)
        selection.append(Comparison(f"{block} pread", "fio psync", ours, lambda block=block: programs.fio_rate(byte_rate, block), unit="bytes"))
        selection.append(Comparison(f"{block} pread", "dd", ours, lambda block=block: programs.dd_rate(block.upper()), unit="bytes"))
    return selection


def copy_comparisons(programs):
    """Comparisons of copies in memory with dd and cp."""
    selection = []
    for block in ("4k", "64k", "1M"):
        for method in ("rw", "copy_file_range", "sendfile"):
            ours = lambda block=block, method=method: programs.kelvin_copy_rate("--method", method, "--block", block)
            # Only the system calls that dd uses are judged.
            judged = method == "rw"
            selection.append(Comparison(f"copy by {method}, {block}", f"dd bs={block}", ours, lambda block=block: programs.dd_copy_rate(block), unit="bytes", judged=judged))
    for method, judged in (("auto", True), ("rw", False), ("sendfile", False)):
        ours = lambda method=method: programs.kelvin_copy_rate("--method", method)
        selection.append(Comparison(f"copy by {method}", "cp", ours, programs.cp_copy_rate, unit="bytes", judged=judged))
    return selection


def direct_comparisons(programs, judged, limit_text):
    """Comparisons of direct reads with fio."""
    selection = []
    for pattern, pattern_name, order_flags in (("read", "sequential", ()), ("randread", "random", ("--random",))):
        for block in ("4k", "128k"):
            for engine, depth in (("psync", 1), ("io_uring", 8)):
                ours = "pread" if engine == "psync" else engine
                flags = ("--block", block, "--engine", ours, "--depth", str(depth), "--no-digest", "--no-latency", *order_flags)
                selection.append(Comparison(
                    f"direct {pattern_name} {block} {ours} depth {depth}, {limit_text}", f"fio {engine}",
                    lambda flags=flags: programs.steady_direct_rate(*flags),
                    lambda block=block, engine=engine, depth=depth, pattern=pattern: programs.fio_rate("bytes_per_second", block, engine, depth, pattern, direct=True),
                    least=0.95, most=1.05, unit="bytes", judged=judged,
                ))
    return selection


# Requests in flight of each job, and of file.device.requests; and rounds of kelvin, of a window each, which of the device read more than that.
JOB_DEPTH, DEVICE_DEPTH = 32, 64
JOB_ROUNDS, DEVICE_ROUNDS = 30, 8


def job_comparisons(programs, medium):
    """Comparisons of several jobs at depth with fio, on one CPU and on all, and of the device's highest rate."""
    device = Comparison(
        f"direct random 4k, file.device.requests, depth {DEVICE_DEPTH}, {medium}", "fio io_uring, numjobs=1",
        programs.kelvin_device_rate, lambda: programs.fio_jobs_rate(1, DEVICE_DEPTH, "io_uring"),
        least=0.95, most=1.05,
    )
    return [device] + [
        Comparison(
            f"direct random 4k, jobs: {jobs}, depth {JOB_DEPTH}, {medium}", f"fio {engine}, numjobs={jobs}",
            lambda jobs=jobs: programs.kelvin_jobs_rate(jobs, JOB_DEPTH),
            lambda jobs=jobs, engine=engine: programs.fio_jobs_rate(jobs, JOB_DEPTH, engine),
            least=0.95, most=1.05,
        )
        for jobs in sorted({1, len(os.sched_getaffinity(0))})
        for engine in ("io_uring", "libaio")
    ]


def job_file_comparisons(programs, judged, limit_text):
    """Comparisons of the same job file run by both."""
    jobs = (("random reads", ["rw=randread"]), ("random 70 % reads, 30 % writes", ["rw=randrw", "rwmixread=70"]))
    return [
        Comparison(
            f"job file: {name}, 4k, depth 16, {limit_text}", "fio io_uring",
            lambda options=options: programs.kelvin_job_file_rate(options),
            lambda options=options: programs.fio_job_file_rate(options),
            least=0.95, most=1.05, judged=judged,
        )
        for name, options in jobs
    ]


@contextmanager
def limited_programs(kelvin, rivals, arguments, path, device):
    """The programs on a file of a device of known rate, and that rate; as fast as it is where no group can limit it."""
    with media.throttled_cgroup(device, 64 * MIB, 4000) as join_cgroup:
        limit_text = "as fast as it is" if join_cgroup is None else "64 MiB/s, 4000 requests/s"
        yield FilePrograms(kelvin, rivals, path, max(arguments.seconds, 2), join_cgroup), limit_text


def measure_job_files(kelvin, rivals, arguments, order):
    """Measures job files on a device of known rate, and on one as fast as memory."""
    with media.loop_device(192 * MIB) as (path, device):
        with path.open("r+b") as file:
            file.truncate(64 * MIB)
        with limited_programs(kelvin, rivals, arguments, path, device) as (programs, limit_text):
            results = measure_until_settled(job_file_comparisons(programs, True, limit_text), rivals, arguments, order)
        if programs.join_cgroup is not None:
            programs = FilePrograms(kelvin, rivals, path, max(arguments.seconds, 2))
            results += measure_until_settled(job_file_comparisons(programs, False, "no limit"), rivals, arguments, order)
    return results


def measure_jobs(kelvin, rivals, arguments, order, directory):
    """Measures jobs on the file system of --dir, and on a device of known rate."""
    path = directory / "data"
    media.fill_file(path, 64 * MIB)
    results = measure_until_settled(job_comparisons(FilePrograms(kelvin, rivals, path, arguments.seconds), "--dir"), rivals, arguments, order)
    path.unlink()
    with media.loop_device(192 * MIB) as (path, device):
        with path.open("r+b") as file:
            file.truncate(64 * MIB)
        with limited_programs(kelvin, rivals, arguments, path, device) as (programs, limit_text):
            return results + measure_until_settled(job_comparisons(programs, limit_text), rivals, arguments, order)


def measure_devices(kelvin, rivals, arguments, order):
    """Measures direct reads and cold digests on a device of known rate, and on one as fast as memory."""
    results = []
    with media.loop_device(128 * MIB) as (path, device):
        with limited_programs(kelvin, rivals, arguments, path, device) as (programs, limit_text):
            # A first run, so that kelvin caches the read method, as for a returning user.
            programs.cold_program_rate([kelvin, "digest", path])
            results += measure_until_settled([*direct_comparisons(programs, True, limit_text), *cold_digest_comparisons(programs, limit_text)], rivals, arguments, order)
        if programs.join_cgroup is not None and arguments.unlimited:
            results += measure_until_settled(direct_comparisons(FilePrograms(kelvin, rivals, path, arguments.seconds), False, "no limit"), rivals, arguments, order)
    return results


def cold_digest_comparisons(programs, limit_text):
    """Comparisons of the digest of a file that is not in memory, with a cached read method and without one.

    The other sides are the device's rate by fio's own clock, and dd as a whole program.
    """
    fio_rate = lambda: programs.fio_rate("bytes_per_second", "1m", direct=True, is_single_pass=True)
    dd_rate = lambda: programs.cold_program_rate(["dd", f"if={programs.path}", "of=/dev/null", "bs=1M", "iflag=direct", "status=none"])
    return [
        Comparison(
            f"digest of a file not in memory, {method_text}, {limit_text}", f"{name}, 1 MiB, direct",
            lambda flags=flags: programs.cold_program_rate([programs.kelvin, "digest", *flags, programs.path]), theirs, unit="bytes",
        )
        for method_text, flags in (("its way remembered", []), ("its way sought", ["--rebuild-cache"]))
        for name, theirs in (("fio psync", fio_rate), ("dd", dd_rate))
    ]


def digest_comparisons(reader, directory):
    """Comparisons of whole programs that read a file."""
    ours = lambda: reader.program_rate([reader.kelvin, "digest", reader.path], 3)
    programs = [
        ("cat", ["cat", reader.path], "coreutils", 1.0),
        ("dd, 1 MiB", ["dd", f"if={reader.path}", "of=/dev/null", "bs=1M", "status=none"], "coreutils", 1.0),
        ("cksum", ["cksum", reader.path], "coreutils", 1.0),
        ("sha256sum", ["sha256sum", reader.path], "coreutils", 3.0),
        ("xxhsum -H2", ["xxhsum", "-H2", reader.path], "xxhash", 1.0),
    ]
    selection = []
    for name, command, package, min_ratio in programs:
        if shutil.which(command[0]) is None:
            common.log(f"{command[0]} is not here and is left out; on Debian: apt-get install {package}")
            continue
        times = 1 if name in ("cksum", "sha256sum") else 3
        selection.append(Comparison("digest", name, ours, lambda command=command, times=times: reader.program_rate(command, times), least=min_ratio, unit="bytes"))
    loop_program = f"{directory}/xor_mmap"
    flags = ["-O3", "-march=native", "-Wall", "-Wextra", "-Werror"]
    common.run([common.require_program("g++", "g++"), *flags, "-o", loop_program, common.RIVALS / "xor_mmap.cpp"])
    selection.append(Comparison("digest", "C++ loop over a mapping", ours, lambda: reader.program_rate([loop_program, reader.path], 3), least=1.0, unit="bytes"))

    cpus = len(os.sched_getaffinity(0))
    if cpus > 1:
        single_cpu_command = [common.require_program("taskset", "util-linux"), "-c", reader.rivals.cpu, reader.kelvin, "digest", reader.path]
        selection.append(Comparison("digest", "itself on one CPU", ours, lambda: reader.program_rate(single_cpu_command, 3), least=1.0, unit="bytes"))
    method = fastest_read_method(reader, cpus)
    name = "file read by {} of {}, threads: {}, no digest".format(*method)
    selection.append(Comparison("digest", name, ours, lambda: reader.kelvin_pass_rate(*method), least=0.90, unit="bytes"))
    if not method[0].startswith("mmap"):
        selection.append(Comparison("digest", "the same, one pass", ours, lambda: reader.kelvin_pass_rate(*method, is_single_pass=True), unit="bytes", judged=False))
    return selection


def fastest_read_method(programs, cpus, rounds=3):
    """The fastest method of `kelvin file read`: engine, block and threads with the highest median rate."""
    engines = [("pread", "128k"), ("pread", "256k"), ("pread", "1M"), ("mmap", "128k"), ("mmap-populate", "128k"), ("io_uring", "256k")]
    methods = [(engine, block, threads) for engine, block in engines for threads in sorted({1, cpus})]
    rates = {method: [] for method in methods}
    for _ in range(rounds):
        for method in methods:
            rates[method].append(programs.kelvin_pass_rate(*method))
    best = max(methods, key=lambda method: statistics.median(rates[method]))
    common.log(f"the fastest method of file read: {best}, {format_rate(statistics.median(rates[best]), 'bytes')}")
    return best


def measure_until_settled(comparisons, rivals, arguments, order):
    """Measures until every interval is settled, or --max-pairs is reached."""
    comparisons = [comparison for comparison in comparisons if arguments.beside is None or any(text in comparison.program for text in arguments.beside)]
    for round_index in range(arguments.max_pairs):
        unsettled = [comparison for comparison in comparisons if round_index < arguments.pairs or comparison.is_unsettled()]
        if not unsettled:
            break
        order.shuffle(unsettled)
        for comparison in unsettled:
            sides = [("ours", comparison.ours), ("theirs", comparison.theirs)]
            order.shuffle(sides)
            figures = {name: rivals.measure_in_quiet(side) for name, side in sides}
            comparison.pairs.append((figures["ours"], figures["theirs"]))
        common.log(f"{round_index + 1} of {arguments.pairs} rounds, {len(unsettled)} comparisons")
    return comparisons


def parse():
    parser = common.make_pairs_parser(__doc__, seconds=1, max_pairs=45)
    parser.add_argument("--dir", type=Path, default=Path(), help="directory for the files [default: the working directory]")
    parser.add_argument("--size", type=int, default=4096, help="size of the file for the digest, in MiB [default: %(default)s]")
    parser.add_argument("--beside", nargs="+", metavar="TEXT", help="only comparisons with programs whose names contain one of these")
    parser.add_argument("--unlimited", action="store_true", help="also measure direct reads without a limit on the device; they are not judged")
    parser.add_argument("--only", nargs="+", choices=(parts := ["cached", "copy", "direct", "jobs", "jobfile", "digest"]), default=parts)
    return common.parse_pairs(parser)


def measure(arguments):
    kelvin = common.kelvin_program(arguments.kelvin)
    rivals, order = Rivals(common.last_allowed_cpu()), random.Random(arguments.seed)
    comparisons = []
    with tempfile.TemporaryDirectory(dir=arguments.dir) as directory:
        # The directory for kelvin's cache is removed at the end as well.
        os.environ["XDG_CACHE_HOME"] = str(Path(directory).resolve())
        cached_parts = [make_comparisons for name, make_comparisons in (("cached", cached_comparisons), ("copy", copy_comparisons)) if name in arguments.only]
        if cached_parts:
            path = Path(directory) / "data"
            media.fill_file(path, 256 * MIB)
            programs = FilePrograms(kelvin, rivals, path, arguments.seconds)
            for make_comparisons in cached_parts:
                comparisons += measure_until_settled(make_comparisons(programs), rivals, arguments, order)
            path.unlink()
        if "direct" in arguments.only:
            comparisons += measure_devices(kelvin, rivals, arguments, order)
        if "jobs" in arguments.only:
            comparisons += measure_jobs(kelvin, rivals, arguments, order, Path(directory))
        if "jobfile" in arguments.only:
            comparisons += measure_job_files(kelvin, rivals, arguments, order)
        if "digest" in arguments.only:
            path = Path(directory) / "data"
            media.fill_file(path, arguments.size * MIB)
            comparisons += measure_until_settled(digest_comparisons(FilePrograms(kelvin, rivals, path, arguments.seconds), directory), rivals, arguments, order)
    return {"cpu": rivals.cpu, "comparisons": comparisons, "quiet": rivals.quiet()}


def tables(measured):
    rows = [Comparison(**entry).row() for entry in measured["comparisons"]]
    header = ["what", "beside it", "kelvin", "its figure", "ratio", "90 % interval", "bound", "pairs", "verdict"]
    table = common.table(header, [cells for _, cells in rows])
    text = f"CPU {measured['cpu']}, or all for the digest.\n\n{table}\n\n{format_quiet_counts(measured['quiet'])}"
    return text, all(is_bound_met for is_bound_met, _ in rows)


if __name__ == "__main__":
    common.main(parse, measure, tables)
