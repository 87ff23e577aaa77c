#!/usr/bin/env python3
"""Whether kelvin reads files, and computes their digest, at least as fast as common tools.

Every side reads the same file. Before each side that reads from memory, `fincore` must find all of the file there; kelvin
proves it as well. The sides of a pair are measured one right after the other, in random order, on one CPU unless noted, and
count only if the core was not shared before and after. The ratio is kelvin / other of the rates over the pairs: its
Hodges-Lehmann estimate and the exact 90 % interval of the signed-rank test.

Requests: `kelvin file read` beside fio (psync and io_uring) and dd at the same block, without latencies on either side and with
them on both. The lower end of the interval must lie above 0.97.

Direct: sequential and random reads past the page cache beside fio at the same block, depth and way, on a file system on a loop
device over memory. Judged reads are under a limit on the device, both sides in the same control group, so that the medium is
steady, and without the first second: the interval must lie within 5 %. The same without the limit (--unlimited) is for context:
there each program's own path and the loop device's threads are the limit. `kelvin digest` of a file that is not in memory, as a
whole program, beside fio's sequential direct rate under the limit and dd's, in a remembered way and in one that must be found
(--rebuild-cache): above 0.97. Needs root.

Copy: `kelvin file copy` of 256 MiB in memory to a new file beside it, by its own clock and without latencies, beside dd with the same
bs by its own, and beside cp by the wall clock, which includes a program's start. Above 0.97 of dd, and of cp by copy_file_range, which
cp uses as well.

Digest: whole programs by the wall clock, from start to end: `kelvin digest` beside cat to /dev/null, dd, cksum, sha256sum,
xxhsum and a plain C++ loop over a mapping, on all CPUs; above 1 for all, above 3 for sha256sum; and beside itself on one CPU.
Its rate beside that of the way by which `kelvin file read` reads the file fastest without a digest: above 0.90. That way is
chosen before, by the medians of several rounds. The same way in one pass, as in the digest, is for context.

Exit status: 0 all bounds are kept, 1 one is not, 2 it could not be done.
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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable

import common
import media
from rivals import Rivals, quiet_summary

FASTER = 0.97
MIB = 1 << 20
DD_RATE = re.compile(r"(\d+) bytes .* copied, (\S+) s")


@dataclass
class Comparison:
    """A kind of reading, by kelvin and by another program; both give a rate."""

    what: str
    program: str
    ours: Callable = common.unkept_field()
    theirs: Callable = common.unkept_field()
    # Bounds of the interval: lowest lower end, highest upper end.
    least: float = FASTER
    most: float | None = None
    unit: str = "requests"
    # Whether the bounds count.
    judged: bool = True
    pairs: list = field(default_factory=list)

    def row(self):
        ours, theirs = zip(*self.pairs)
        ratio, lower, upper = common.ratio_of_pairs(ours, theirs)
        kept = not self.judged or lower > self.least and (self.most is None or upper < self.most)
        text = lambda values: rate_text(statistics.median(values), self.unit)
        bound = "-" if not self.judged else f"above {self.least:g}" if self.most is None else f"{self.least:g} to {self.most:g}"
        verdict = "context" if not self.judged else "holds" if kept else "MISSED"
        cells = [self.what, self.program, text(ours), text(theirs), f"{ratio:.3f}", f"{lower:.3f}..{upper:.3f}", bound, len(ours), verdict]
        return kept, cells

    def is_open(self):
        """Whether the interval straddles a bound that the estimate keeps."""
        ratio, lower, upper = common.ratio_of_pairs(*zip(*self.pairs))
        inside = ratio > self.least and (self.most is None or ratio < self.most)
        return inside and not self.row()[0]


def rate_text(rate, unit):
    if unit == "requests":
        return f"{rate / 1e3:.1f} k/s"
    return f"{rate / 1e9:.2f} GB/s" if rate >= 1e9 else f"{rate / 1e6:.1f} MB/s"


class FilePrograms:
    """Programs that read a file, each giving its rate."""

    def __init__(self, kelvin, rivals, path, seconds, enter=None):
        self.kelvin, self.rivals, self.path, self.seconds = kelvin, rivals, path, seconds
        # Called by each side before it begins, to join a control group.
        self.enter = enter

    def pinned(self, *command, check=True):
        command = [common.require_program("taskset", "util-linux"), "-c", str(self.rivals.cpu), *map(str, command)]
        options = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "timeout": 600, "preexec_fn": self.enter}
        done = subprocess.run(command, **options)
        if check and done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
        return done

    def ensure_cached(self):
        """That all of the file is in memory."""
        resident = lambda: int(common.run([common.require_program("fincore", "util-linux"), "-b", "-n", "-o", "RES", self.path]))
        # Memory may be needed elsewhere, or idle pages be reclaimed: it is read again, a few times.
        for _ in range(5):
            if resident() >= self.path.stat().st_size:
                return
            subprocess.run(["cat", self.path], stdout=subprocess.DEVNULL, check=True)
        raise RuntimeError(f"{self.path} does not stay in memory")

    def ours(self, figure, *flags, cache="cached"):
        output = self.pinned(self.kelvin, "file", "read", self.path, "--json", "--cache", cache, "--seconds", self.seconds, *flags).stdout
        return json.loads(output)[figure]

    def steady_rate(self, *flags):
        """Bytes per second of direct reads, without the first second: after a pause a limit lets a burst through."""
        seconds = round(self.seconds)
        command = [self.kelvin, "file", "read", self.path, "--json", "--cache", "direct", "--seconds", seconds + 1, *flags]
        return sum(json.loads(self.pinned(*command).stdout)["bytes_in_each_second"][1 : seconds + 1]) / seconds

    def fio(self, figure, block, engine="psync", depth=1, pattern="read", latencies=False, direct=False, once=False):
        if not direct:
            self.ensure_cached()
        command = [
            common.require_program("fio", "fio"), "--name=side", f"--filename={self.path}", "--readonly",
            *([] if once else ["--time_based", f"--runtime={self.seconds:g}", f"--ramp_time={int(direct)}"]), f"--rw={pattern}", f"--bs={block}", f"--ioengine={engine}", f"--iodepth={depth}",
            f"--direct={int(direct)}", "--invalidate=0", "--norandommap=0", "--output-format=json", "--thread",
        ]
        if not latencies:
            command += ["--disable_lat=1", "--disable_clat=1", "--disable_slat=1", "--disable_bw_measurement=1"]
        output = self.pinned(*command).stdout
        read = json.loads(output[output.index("{"):])["jobs"][0]["read"]
        return read["iops"] if figure == "requests_per_second" else read["bw_bytes"]

    def dd(self, block):
        self.ensure_cached()
        moved = spent = 0.0
        while spent < self.seconds:
            found = DD_RATE.search(self.pinned("dd", f"if={self.path}", "of=/dev/null", f"bs={block}").stderr)
            moved, spent = moved + float(found[1]), spent + float(found[2])
        return moved / spent

    def copies(self, *flags):
        """Bytes per second of `kelvin file copy`."""
        return self.copy_rate(lambda copy: json.loads(self.pinned(self.kelvin, "file", "copy", self.path, copy, "--json", "--no-latency", *flags).stdout)["bytes_per_second"])

    def dd_copies(self, block):
        def rate(copy):
            found = DD_RATE.search(self.pinned("dd", f"if={self.path}", f"of={copy}", f"bs={block}").stderr)
            return float(found[1]) / float(found[2])

        return self.copy_rate(rate)

    def cp_copies(self):
        def rate(copy):
            begun = time.perf_counter()
            self.pinned("cp", self.path, copy)
            return self.path.stat().st_size / (time.perf_counter() - begun)

        return self.copy_rate(rate)

    def copy_rate(self, rate):
        """The rate of a copy that did not exist before, and does not after."""
        self.ensure_cached()
        copy = self.path.with_name("copy")
        try:
            return rate(copy)
        finally:
            copy.unlink(missing_ok=True)

    def timed_program(self, command, times):
        """Bytes a second of a whole program, by the wall clock, as often as given."""
        self.ensure_cached()
        begun = time.perf_counter()
        for _ in range(times):
            subprocess.run(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        return self.path.stat().st_size * times / (time.perf_counter() - begun)

    def timed_cold_program(self, command):
        """The same once, of a file that is not in memory."""
        media.drop_from_cache(self.path)
        begun = time.perf_counter()
        subprocess.run(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True, preexec_fn=self.enter)
        return self.path.stat().st_size / (time.perf_counter() - begun)

    def kelvin_read_rate(self, engine, block, threads, once=False):
        """Bytes per second of `kelvin file read` in a way, without a digest or its start: over many passes, or, as in the
        digest, over one in each of three processes. A mapping is read only once: at the second pass its pages would be mapped
        already, and memory would be read instead of a file."""
        flags = ["--engine", engine, "--block", block, "--threads", threads, "--no-digest", "--no-latency", "--cache", "cached"]
        flags += ["--depth", 4] if engine == "io_uring" else []
        once = once or engine.startswith("mmap")
        flags += [] if once else ["--seconds", self.seconds]
        command = [self.kelvin, "file", "read", self.path, "--json", *flags]
        return statistics.harmonic_mean([json.loads(common.run(command))["bytes_per_second"] for _ in range(3 if once else 1)])


def cached_comparisons(sides):
    """Requests from memory, by fio and dd."""
    bare = ("--no-latency", "--no-digest")
    rate, bytes_rate = "requests_per_second", "bytes_per_second"
    chosen = []
    for latencies in (False, True):
        flags = ("--no-digest",) if latencies else bare
        words = "each timed" if latencies else "not timed"
        chosen.append(Comparison(
            f"4 KiB pread, {words}", "fio psync",
            lambda flags=flags: sides.ours(rate, "--block", "4k", *flags),
            lambda latencies=latencies: sides.fio(rate, "4k", latencies=latencies),
        ))
        chosen.append(Comparison(
            f"4 KiB io_uring, depth 16, {words}", "fio io_uring",
            lambda flags=flags: sides.ours(rate, "--block", "4k", "--engine", "io_uring", "--depth", "16", *flags),
            lambda latencies=latencies: sides.fio(rate, "4k", "io_uring", 16, latencies=latencies),
        ))
    chosen.append(Comparison(
        "4 KiB pread with the digest, not timed", "fio psync, which has none",
        lambda: sides.ours(rate, "--block", "4k", "--no-latency"),
        lambda: sides.fio(rate, "4k"), least=0.0,
    ))
    for block in ("128k", "256k", "1m"):
        ours = lambda block=block: sides.ours(bytes_rate, "--block", block.upper(), *bare)
        chosen.append(Comparison(f"{block} pread", "fio psync", ours, lambda block=block: sides.fio(bytes_rate, block), unit="bytes"))
        chosen.append(Comparison(f"{block} pread", "dd", ours, lambda block=block: sides.dd(block.upper()), unit="bytes"))
    return chosen


def copies(sides):
    """Copies in memory, by dd and cp."""
    chosen = []
    for block in ("4k", "64k", "1M"):
        for method in ("rw", "copy_file_range", "sendfile"):
            ours = lambda block=block, method=method: sides.copies("--method", method, "--block", block)
            # Other calls than dd's are for context.
            judged = method == "rw"
            chosen.append(Comparison(f"copy by {method}, {block}", f"dd bs={block}", ours, lambda block=block: sides.dd_copies(block), unit="bytes", judged=judged))
    for method, judged in (("auto", True), ("rw", False), ("sendfile", False)):
        ours = lambda method=method: sides.copies("--method", method)
        chosen.append(Comparison(f"copy by {method}", "cp", ours, sides.cp_copies, unit="bytes", judged=judged))
    return chosen


def direct_comparisons(sides, judged, words):
    """Reads past the page cache of a device."""
    chosen = []
    for pattern, word, order in (("read", "sequential", ()), ("randread", "random", ("--random",))):
        for block in ("4k", "128k"):
            for engine, depth in (("psync", 1), ("io_uring", 8)):
                ours = "pread" if engine == "psync" else engine
                flags = ("--block", block, "--engine", ours, "--depth", str(depth), "--no-digest", "--no-latency", *order)
                chosen.append(Comparison(
                    f"direct {word} {block} {ours} depth {depth}, {words}", f"fio {engine}",
                    lambda flags=flags: sides.steady_rate(*flags),
                    lambda block=block, engine=engine, depth=depth, pattern=pattern: sides.fio("bytes_per_second", block, engine, depth, pattern, direct=True),
                    least=0.95, most=1.05, unit="bytes", judged=judged,
                ))
    return chosen


def measure_devices(kelvin, rivals, arguments, order):
    """Reads past the page cache, and the digest of a file that is not in memory, on a device of known rate and on one as fast
    as memory."""
    found = []
    with media.loop_device(128 * MIB) as (path, device):
        with media.limited_group(device, 64 * MIB, 4000) as enter:
            words = "as fast as it is" if enter is None else "64 MiB/s, 4000 requests/s"
            sides = FilePrograms(kelvin, rivals, path, max(arguments.seconds, 2), enter)
            # Once before, so that the way is remembered, as for a returning user.
            sides.timed_cold_program([kelvin, "digest", path])
            found += measure_until_settled([*direct_comparisons(sides, True, words), *cold_digest_comparisons(sides, words)], rivals, arguments, order)
        if enter is not None and arguments.unlimited:
            found += measure_until_settled(direct_comparisons(FilePrograms(kelvin, rivals, path, arguments.seconds), False, "no limit"), rivals, arguments, order)
    return found


def cold_digest_comparisons(sides, words):
    """The digest of a file that is not in memory, in a remembered way and in one that must be found, beside the device's rate
    by fio's own clock and, as a whole program, by dd."""
    by_fio = lambda: sides.fio("bytes_per_second", "1m", direct=True, once=True)
    by_dd = lambda: sides.timed_cold_program(["dd", f"if={sides.path}", "of=/dev/null", "bs=1M", "iflag=direct", "status=none"])
    return [
        Comparison(
            f"digest of a file not in memory, {found}, {words}", f"{name}, 1 MiB, direct",
            lambda more=more: sides.timed_cold_program([sides.kelvin, "digest", *more, sides.path]), theirs, unit="bytes",
        )
        for found, more in (("its way remembered", []), ("its way sought", ["--rebuild-cache"]))
        for name, theirs in (("fio psync", by_fio), ("dd", by_dd))
    ]


def digests(sides, directory):
    """Whole programs that go through a file."""
    ours = lambda: sides.timed_program([sides.kelvin, "digest", sides.path], 3)
    programs = [
        ("cat", ["cat", sides.path], "coreutils", 1.0),
        ("dd, 1 MiB", ["dd", f"if={sides.path}", "of=/dev/null", "bs=1M", "status=none"], "coreutils", 1.0),
        ("cksum", ["cksum", sides.path], "coreutils", 1.0),
        ("sha256sum", ["sha256sum", sides.path], "coreutils", 3.0),
        ("xxhsum -H2", ["xxhsum", "-H2", sides.path], "xxhash", 1.0),
    ]
    chosen = []
    for name, command, package, least in programs:
        if shutil.which(command[0]) is None:
            common.log(f"{command[0]} is not here and is left out; on Debian: apt-get install {package}")
            continue
        times = 1 if name in ("cksum", "sha256sum") else 3
        chosen.append(Comparison("digest", name, ours, lambda command=command, times=times: sides.timed_program(command, times), least=least, unit="bytes"))
    loop = f"{directory}/xor_mmap"
    flags = ["-O3", "-march=native", "-Wall", "-Wextra", "-Werror"]
    common.run([common.require_program("g++", "g++"), *flags, "-o", loop, common.RIVALS / "xor_mmap.cpp"])
    chosen.append(Comparison("digest", "C++ loop over a mapping", ours, lambda: sides.timed_program([loop, sides.path], 3), least=1.0, unit="bytes"))

    cpus = len(os.sched_getaffinity(0))
    if cpus > 1:
        one = [common.require_program("taskset", "util-linux"), "-c", sides.rivals.cpu, sides.kelvin, "digest", sides.path]
        chosen.append(Comparison("digest", "itself on one CPU", ours, lambda: sides.timed_program(one, 3), least=1.0, unit="bytes"))
    way = fastest_read_method(sides, cpus)
    name = "file read by {} of {}, threads: {}, no digest".format(*way)
    chosen.append(Comparison("digest", name, ours, lambda: sides.kelvin_read_rate(*way), least=0.90, unit="bytes"))
    if not way[0].startswith("mmap"):
        chosen.append(Comparison("digest", "the same, one pass", ours, lambda: sides.kelvin_read_rate(*way, once=True), unit="bytes", judged=False))
    return chosen


def fastest_read_method(sides, cpus, rounds=3):
    """The way by which `kelvin file read` reads the file fastest: that of the highest median."""
    engines = [("pread", "128k"), ("pread", "256k"), ("pread", "1M"), ("mmap", "128k"), ("mmap-populate", "128k"), ("io_uring", "256k")]
    ways = [(engine, block, threads) for engine, block in engines for threads in sorted({1, cpus})]
    rates = {way: [] for way in ways}
    for _ in range(rounds):
        for way in ways:
            rates[way].append(sides.kelvin_read_rate(*way))
    best = max(ways, key=lambda way: statistics.median(rates[way]))
    common.log(f"the fastest way of file read: {best}, {rate_text(statistics.median(rates[best]), 'bytes')}")
    return best


def measure_until_settled(chosen, rivals, arguments, order):
    """Measures until every interval is settled or pairs run out."""
    chosen = [one for one in chosen if arguments.beside is None or any(word in one.program for word in arguments.beside)]
    for number in range(arguments.max_pairs):
        todo = [one for one in chosen if number < arguments.pairs or one.is_open()]
        if not todo:
            break
        order.shuffle(todo)
        for one in todo:
            sides = [("ours", one.ours), ("theirs", one.theirs)]
            order.shuffle(sides)
            figures = {name: rivals.measure_in_quiet(side) for name, side in sides}
            one.pairs.append((figures["ours"], figures["theirs"]))
        common.log(f"{number + 1} of {arguments.pairs} rounds, {len(todo)} comparisons")
    return chosen


def parse():
    parser = common.make_pairs_parser(__doc__, seconds=1, max_pairs=45)
    parser.add_argument("--dir", type=Path, default=Path(), help="where files are made [default: here]")
    parser.add_argument("--size", type=int, default=4096, help="size of the file of the digest, in MiB [default: %(default)s]")
    parser.add_argument("--beside", nargs="+", metavar="TEXT", help="only comparisons with programs whose names contain one of these")
    parser.add_argument("--unlimited", action="store_true", help="also direct reads without a limit on the device, for context")
    parser.add_argument("--only", nargs="+", choices=(parts := ["cached", "copy", "direct", "digest"]), default=parts)
    return common.parse_pairs(parser)


def measure(arguments):
    kelvin = common.kelvin_program(arguments.kelvin)
    rivals, order = Rivals(common.last_allowed_cpu()), random.Random(arguments.seed)
    found = []
    with tempfile.TemporaryDirectory(dir=arguments.dir) as directory:
        # What kelvin remembers of this is removed with it.
        os.environ["XDG_CACHE_HOME"] = str(Path(directory).resolve())
        in_memory = [choose for name, choose in (("cached", cached_comparisons), ("copy", copies)) if name in arguments.only]
        if in_memory:
            path = Path(directory) / "data"
            media.fill_file(path, 256 * MIB)
            sides = FilePrograms(kelvin, rivals, path, arguments.seconds)
            for choose in in_memory:
                found += measure_until_settled(choose(sides), rivals, arguments, order)
            path.unlink()
        if "direct" in arguments.only:
            found += measure_devices(kelvin, rivals, arguments, order)
        if "digest" in arguments.only:
            path = Path(directory) / "data"
            media.fill_file(path, arguments.size * MIB)
            found += measure_until_settled(digests(FilePrograms(kelvin, rivals, path, arguments.seconds), directory), rivals, arguments, order)
    return {"cpu": rivals.cpu, "comparisons": found, "quiet": rivals.quiet()}


def tables(measured):
    rows = [Comparison(**one).row() for one in measured["comparisons"]]
    header = ["what", "beside it", "kelvin", "its figure", "ratio", "90 % interval", "bound", "pairs", "verdict"]
    table = common.table(header, [cells for _, cells in rows])
    text = f"CPU {measured['cpu']}, or all for the digest.\n\n{table}\n\n{quiet_summary(measured['quiet'])}"
    return text, all(kept for kept, _ in rows)


if __name__ == "__main__":
    common.main(parse, measure, tables)
