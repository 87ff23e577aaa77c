#!/usr/bin/env python3
"""Whether kelvin's figures are right where the right answer is known: links behind token buckets, and disks under a limit.

Links: two network namespaces joined by a pair of virtual interfaces, each of which has a token bucket (tc tbf or htb) of 37 or 412 Mbit/s,
with a small bucket and a large one. kelvin measures net.peer.bandwidth against `kelvin agent`, with one and with four streams, there and
back. Disks: a file system on a loop device over memory, of which a control group (blkio, version 1) may read 7.3 MB or make 333 requests a
second. kelvin measures file.device.

There are two truths: the rate that was set, and what the shaper, or the control group, itself counted while it always held something
back. A shaper's counters are read all the time of a run, and only such stretches of it count, without their first 0.3 s, in which the
bucket is emptied; those of a control group are read right before a run, while sixteen readers wait for it. The first is exact to 0.2 %:
what asks for counts shares the link. The second is as exact as a clock beside some stretches of half a second. Of every case and figure:

  error     kelvin's headline over the rate that was set, less one: the median of all tries, and the worst
  counted   the same over what the shaper or the control group counted: the median
  inside    tries in which the printed interval contains the rate that was set
  burst     tries in which a burst is named, and its size over the bucket's

Bounds: both median errors within 2 %; the interval contains the truth in 19 of 20 tries; a large bucket is named in 19 of 20, within 10 % of
its size, and no burst is named where the bucket is small.

Exit status: 0 every bound was kept, 1 one was not, 2 it could not be done.
"""
import itertools
import json
import mmap
import os
import random
import re
import statistics
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import common
import hosts
import media
import planted

ERROR, INSIDE, SIZE = 0.02, 0.95, 0.10
# How exact the rate that was set is: the requests for counts and their answers share the link with the streams.
EXACT = 0.002
# Bytes of the headers of a segment that a shaper counts beside the payload: of Ethernet, IP, TCP, and its time stamps.
HEADERS = 14 + 20 + 20 + 12
# The share of a full packet's bytes that is payload: a bucket holds so much of it.
PAYLOAD = 1448 / 1514
# Seconds between two readings of a counter.
LINK_EVERY, DISK_EVERY = 0.03, 0.005
# Seconds at the beginning of a busy stretch that do not count: the bucket is emptied.
EMPTIED = 0.3
# A disk is read by so many readers for so long, in blocks of so many bytes.
READERS, READ_FOR, BLOCK = 16, 3.0, 16 << 10
# Seconds without progress after which a bunch of what a control group lets through is over.
PAUSE = 0.03
MIB = 1 << 20
NUMBERS = itertools.count()


@dataclass(frozen=True)
class Link:
    """A link behind a token bucket."""

    name: str
    # Bits a second, and bytes of the bucket.
    rate: float
    bucket: int
    shaper: str

    @property
    def is_large(self):
        """Whether the bucket holds enough for its burst to be named: more than a tenth of a second."""
        return self.bucket * 8 > 0.1 * self.rate

    def shape(self, host, device):
        rate, tc = f"{self.rate:g}bit", [common.require_program("tc", "iproute2"), "-netns", host]
        if self.shaper == "tbf":
            common.run([*tc, "qdisc", "add", "dev", device, "root", "tbf", "rate", rate, "burst", self.bucket, "latency", "50ms"])
            return
        common.run([*tc, "qdisc", "add", "dev", device, "root", "handle", "1:", "htb", "default", "1"])
        common.run([*tc, "class", "add", "dev", device, "parent", "1:", "classid", "1:1", "htb", "rate", rate, "burst", self.bucket, "cburst", self.bucket])
        # As long a queue as the other's: 50 ms, in packets.
        packets = max(round(self.rate / 8 * 0.05 / 1514), 20)
        common.run([*tc, "qdisc", "add", "dev", device, "parent", "1:1", "pfifo", "limit", packets])


LINKS = [
    Link("37 Mbit/s, small bucket", 37e6, 32 << 10, "tbf"),
    Link("37 Mbit/s, bucket of 4 MiB", 37e6, 4 * MIB, "tbf"),
    Link("37 Mbit/s, small bucket, htb", 37e6, 32 << 10, "htb"),
    Link("412 Mbit/s, small bucket", 412e6, 256 << 10, "tbf"),
    Link("412 Mbit/s, bucket of 16 MiB", 412e6, 16 * MIB, "tbf"),
    Link("412 Mbit/s, bucket of 16 MiB, htb", 412e6, 16 * MIB, "htb"),
]
# Name, bytes and requests a second, and the figure that shows the limit. How much the kernel lets through at once cannot be chosen: a tenth
# of a second's worth, of requests whole ones, so that of 333 a second it lets 330 through.
DISKS = [
    ("disk of 7.3 MB/s", 7_300_000, None, "file.device.read"),
    ("disk of 333 requests/s", None, 333, "file.device.requests"),
]
WAYS = [("one stream", 1, "to_agent"), ("four streams", 4, "to_agent"), ("one stream back", 1, "from_agent"), ("four streams back", 4, "from_agent")]


# ---- counters


class CounterWatcher:
    """Reads a counter again and again: rows of the time, what has passed, and whether something is held back."""

    def __init__(self, read, every):
        self.rows, self.read, self.every, self.failed = [], read, every, None
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.watch)

    def watch(self):
        try:
            while not self.over.is_set():
                begun = time.monotonic()
                passed, is_held = self.read()
                # The reading lies between its beginning and its end.
                self.rows.append(((begun + time.monotonic()) / 2, passed, is_held))
                self.over.wait(self.every)
        except Exception as error:
            self.failed = error

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
        if self.failed:
            raise self.failed


def link_rate(rows):
    """What passed a second while something was held back all the time, without the beginning of each such stretch."""
    passed = seconds = 0.0
    begun = None
    for before, after in zip(rows, rows[1:]):
        if not (before[2] and after[2]):
            begun = None
            continue
        begun = before[0] if begun is None else begun
        if before[0] - begun >= EMPTIED:
            passed, seconds = passed + after[1] - before[1], seconds + after[0] - before[0]
    return passed / seconds if seconds > 0 else None


def disk_rate(rows, since):
    """What passed a second from some time on, while requests always waited: from the end of one pause between bunches to that of the last."""
    fronts = [row for row in burst_starts(rows) if since <= row[0] <= since + READ_FOR - 2 * EMPTIED]
    return (fronts[-1][1] - fronts[0][1]) / (fronts[-1][0] - fronts[0][0]) if len(fronts) > 1 else None


def burst_starts(rows):
    """The last row before each bunch that follows a pause."""
    since = rows[0][0]
    for before, after in zip(rows, rows[1:]):
        if after[1] != before[1]:
            if after[0] - since > PAUSE:
                yield before
            since = after[0]


# ---- links


@contextmanager
def shaped_hosts(link, kelvin):
    """Two hosts joined by such a link, an agent on one of them: the names of the hosts, and the secret."""
    number = next(NUMBERS)
    names = {what: f"kelvin-{what}-{os.getpid()}-{number}" for what in ("agent", "kelvin")}
    cpus = sorted(os.sched_getaffinity(0))
    with ExitStack() as stack:
        for name in names.values():
            stack.callback(subprocess.run, ["ip", "netns", "delete", name], stderr=subprocess.DEVNULL, check=False)
        try:
            for name in names.values():
                hosts.ip("netns", "add", name)
                hosts.ip("-netns", name, "link", "set", "lo", "up")
            hosts.connect_hosts(names["kelvin"], f"{hosts.KELVIN_ADDRESS}/30", names["agent"], f"{hosts.AGENT_ADDRESS}/30", "a")
            link.shape(names["kelvin"], "near-a")
            link.shape(names["agent"], "far-a")
        except RuntimeError as error:
            raise common.BenchmarkError(f"needs root, network namespaces, veth, tbf and htb: {error}") from error
        secret = stack.enter_context(hosts.token_file())
        stack.enter_context(hosts.running_agent(kelvin, names["agent"], cpus[0], secret))
        yield names, secret


def link_counter(host, device):
    """Reads the payload that a shaper has passed, and whether it holds something back."""
    command = [common.require_program("tc", "iproute2"), "-netns", host, "-s", "-j", "qdisc", "show", "dev", device]

    def read():
        all_of_it = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
        root = next(one for one in all_of_it if one.get("root"))
        return root["bytes"] - root["packets"] * HEADERS, any(one["backlog"] > 0 for one in all_of_it)

    return read


def try_link(link, kelvin, arguments):
    """The figures of a try: kelvin's, and what each shaper counted meanwhile."""
    cpus = sorted(os.sched_getaffinity(0))
    with shaped_hosts(link, kelvin) as (names, secret), ExitStack() as stack:
        counters = [("to_agent", names["kelvin"], "near-a"), ("from_agent", names["agent"], "far-a")]
        watchers = {way: stack.enter_context(CounterWatcher(link_counter(host, device), LINK_EVERY)) for way, host, device in counters}
        report = measured(kelvin, ["net.peer.bandwidth.burst", "--peer", hosts.AGENT_ADDRESS, "--token-file", secret], arguments, cpus[-1], hosts.in_namespace(names["kelvin"]))
        stack.close()
        truths = {way: link_rate(watcher.rows) for way, watcher in watchers.items()}
    found = []
    for what, streams, way in WAYS:
        case = f"direction={way} streams={streams}"
        found.append(figure(link.name, what, report, ("net.peer.bandwidth", case), truths[way]))
        sizes = round_values(report, "net.peer.bandwidth.burst", case)
        found[-1].update(bursts=sizes, bucket=link.bucket * PAYLOAD, is_large=link.is_large)
    return found


def measured(kelvin, what, arguments, cpu, before=(), **options):
    """The report of a run."""
    flags = ["--rounds", arguments.rounds, "--budget", "minimum", "--cpu", cpu, "--json", "--with-samples", "--no-report", "--no-store"]
    return json.loads(common.run([*before, kelvin, "run", *what, *flags], **options))


def figure(case, what, report, metric, truth):
    """A figure beside the truth."""
    result = common.requested_results(report)[metric]
    summary = common.result_summary(result) or {"headline": None, "interval": None}
    interval = summary["interval"]
    return {
        "case": case, "what": what, "headline": summary["headline"], "truth": truth,
        "interval": [interval["lower"], interval["upper"]] if interval else None,
        "rounds": [statistics.median(values) for values in round_values(report, *metric)],
        "without": None if summary["headline"] else result["outcome"],
    }  # fmt: skip


def round_values(report, metric, case):
    """The values of a metric at a case that each round gave."""
    found = []
    for measurement in report["run"]["measurements"]:
        if common.format_case(measurement["case"]) != case:
            continue
        for round_ in measurement["rounds"]:
            for reading in round_["outcome"].get("measured", []):
                if reading["metric"] == metric:
                    found.append(reading_values(reading["readings"]))
    return found


def reading_values(readings):
    if "scalars" in readings:
        return readings["scalars"]
    batches = readings["batches"]
    kept = [at for at, tags in enumerate(batches["tags"]) if not tags & 1]
    return [batches["work_per_iteration"] * batches["iterations"][at] * 1e9 / batches["nanoseconds"][at] for at in kept]


# ---- disks


def try_disk(disk, kelvin, arguments):
    name, bytes_, requests, metric = disk
    with media.loop_device(192 * MIB) as (path, device):
        number = os.stat(device).st_rdev
        numbers = f"{os.major(number)}:{os.minor(number)}"
        limits = {f"blkio__throttle__read_{name}_device": f"{numbers} {limit}" for name, limit in (("bps", bytes_), ("iops", requests)) if limit}
        with planted.cgroup("blkio", **limits) as processes:
            counted = processes.with_name("blkio.throttle.io_service_bytes" if bytes_ else "blkio.throttle.io_serviced")
            join = lambda: processes.write_text("0")
            begun = time.monotonic()
            with CounterWatcher(lambda: (group_counter(counted, numbers), True), DISK_EVERY) as watcher:
                keep_busy(path, join)
            # Its place is for the files of the run.
            path.unlink()
            report = measured(kelvin, ["file.device.read", "--dir", path.parent], arguments, common.last_allowed_cpu(), preexec_fn=join)
    found = figure(name, metric, report, (metric, ""), disk_rate(watcher.rows, begun + EMPTIED))
    found.update(bunches=burst_sizes(report), bucket=None, bursts=[], is_large=False)
    return [found]


def keep_busy(path, join):
    """Reads a file past the page cache at random places, by a process that first joins a group."""
    child = os.fork()
    if child == 0:
        try:
            join()
            until = time.monotonic() + READ_FOR
            threads = [threading.Thread(target=read_until, args=(path, until, number)) for number in range(READERS)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def read_until(path, until, seed):
    chance, buffer = random.Random(seed), mmap.mmap(-1, BLOCK)
    file = os.open(path, os.O_RDONLY | os.O_DIRECT)
    blocks = os.fstat(file).st_size // BLOCK
    while time.monotonic() < until:
        os.preadv(file, [buffer], chance.randrange(blocks) * BLOCK)


def burst_sizes(report):
    """How many requests come at once, as each round says."""
    notes = json.dumps([measurement["rounds"] for measurement in report["run"]["measurements"]])
    return [int(found) for found in re.findall("come in bunches of ([0-9]+) every", notes)]


def group_counter(file, numbers):
    """What a control group counts of reads from a device."""
    rows = (line.split() for line in file.read_text().splitlines())
    return sum(int(row[2]) for row in rows if len(row) == 3 and row[0] == numbers and row[1] == "Read")


# ---- judging


def tables(data):
    by_case = {}
    for one in data["tries"]:
        by_case.setdefault((one["case"], one["what"]), []).append(one)
    rows, kept = [], True
    for (case, what), tries in by_case.items():
        row, holds = judge_case(tries)
        rows.append([case, what, len(tries), *row, "holds" if holds else "MISSED"])
        kept &= holds
    header = ["what", "figure", "tries", "truth", "error, median", "worst", "beside counted", "inside", "a burst is named", "its size over the bucket's", ""]
    return f"{data['rounds']} rounds a try.\n\n{common.table(header, rows)}", kept


def judge_case(tries):
    """The cells of a case, and whether its bounds were kept."""
    known = [one for one in tries if one["truth"] and one["headline"]]
    if not known:
        return ["-"] * 7, False
    truth = set_rate(known[0]["case"])
    errors = [one["headline"] / truth - 1 for one in known]
    counted = statistics.median(one["headline"] / one["truth"] - 1 for one in known)
    in_namespace = sum(contains(one["interval"], truth) for one in known)
    # The first round meets a full bucket; those after it, what has been saved up since.
    sizes = [max(max(values) for values in one["bursts"]) / one["bucket"] for one in known if one["bursts"]]
    is_large = known[0]["is_large"]
    named_right = len(sizes) >= INSIDE * len(known) and abs(statistics.median(sizes) - 1) <= SIZE if is_large else not sizes
    row = [
        rate_text(truth), signed(statistics.median(errors)), signed(max(errors, key=abs)), signed(counted), f"{in_namespace} of {len(known)}",
        f"{len(sizes)} of {len(known)}", f"{statistics.median(sizes):.3f}" if sizes else "-",
    ]  # fmt: skip
    errors_hold = max(abs(statistics.median(errors)), abs(counted)) <= ERROR
    return row, errors_hold and in_namespace >= INSIDE * len(known) and named_right and len(known) == len(tries)


def set_rate(case):
    """The payload, or the requests, a second that a case was set to."""
    link = next((link for link in LINKS if link.name == case), None)
    if link:
        return link.rate / 8 * PAYLOAD
    _, bytes_, requests, _ = next(disk for disk in DISKS if disk[0] == case)
    return bytes_ or requests // 10 * 10


def contains(interval, truth):
    """Whether an interval contains the truth, as exactly as that is known."""
    return bool(interval) and interval[0] <= truth * (1 + EXACT) and truth * (1 - EXACT) <= interval[1]


def signed(share):
    return f"{share * 100:+.2f} %"


def rate_text(rate):
    return f"{rate / 1e6:.3f} MB/s" if rate > 1e5 else f"{rate:.1f} /s"


def check_arithmetic():
    """Raises an error where this file does not do what it says, by cases worked out by hand."""
    # A shaper of 100 a second, busy from 1 to 3 s; what passes in the first 0.3 s, a burst among it, does not count.
    busy = lambda at: 1.0 <= at <= 3.0
    link = [(at, 0 if at < 1 else 500 + 100 * (min(at, 3.0) - 1), busy(at)) for at in (tick / 100 for tick in range(400))]
    assert abs(link_rate(link) - 100) < 1e-6, link_rate(link)
    assert link_rate([(0, 0, False), (1, 5, False)]) is None
    # Bunches of 10 every tenth of a second.
    disk = [(tick / 200, 10 * (tick // 20 + 1), True) for tick in range(600)]
    assert abs(disk_rate(disk, 0.3) - 100) < 1e-6, disk_rate(disk, 0.3)
    assert disk_rate([(0.0, 0, True)], 0) is None
    assert abs(set_rate(LINKS[0].name) * 8 / 1e6 - 35.387) < 0.001 and [set_rate(disk[0]) for disk in DISKS] == [7_300_000, 330]
    one = {"case": DISKS[1][0], "what": "w", "headline": 333.0, "truth": 331.0, "interval": [329.0, 336.0], "bursts": [[5.0], [1.0]], "bucket": 5.0, "is_large": True}
    assert judge_case([one] * 20)[1], judge_case([one] * 20)
    wrongs = ({"headline": 337.0}, {"interval": [331.0, 336.0]}, {"bursts": []}, {"is_large": False}, {"bucket": 4.0}, {"truth": None}, {"truth": 326.0})
    for wrong in wrongs:
        assert not judge_case([{**one, **wrong}] * 20)[1], wrong
    assert judge_case([one] * 19 + [{**one, "interval": None}])[1] and not judge_case([one] * 18 + [{**one, "interval": None}] * 2)[1]


# ---- the benchmark


def parse():
    parser = common.make_parser(__doc__, is_series=True)
    parser.add_argument("--tries", type=int, default=20, help="tries of each case [default: %(default)s]")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of kelvin's in a try [default: %(default)s]")
    parser.add_argument("--at-once", type=int, default=1, metavar="N", help="so many tries side by side [default: %(default)s]")
    parser.add_argument("--only", action="append", metavar="TEXT", help="only cases whose name contains it; may be given more than once")
    parser.add_argument("--seconds", type=float, help="begin no further try after so many seconds")
    arguments = parser.parse_args()
    if arguments.tries < 1 or arguments.rounds < 4 or arguments.at_once < 1:
        parser.error("--tries and --at-once must be at least 1, and --rounds at least 4: fewer give no interval")
    return arguments


def measure(arguments, data):
    kelvin = common.kelvin_program(arguments.kelvin)
    data = data or {"rounds": arguments.rounds, "tries": []}
    cases = [(link.name, try_link, link) for link in LINKS] + [(disk[0], try_disk, disk) for disk in DISKS]
    chosen = [case for case in cases if not arguments.only or any(text in case[0] for text in arguments.only)]
    if not chosen:
        raise common.BenchmarkError(f"--only: no case has such a name: they are {', '.join(case[0] for case in cases)}")
    begun = time.monotonic()

    def one_try(number, case):
        name, tried, of = case
        if arguments.seconds and time.monotonic() - begun > arguments.seconds:
            return
        data["tries"].extend(tried(of, kelvin, arguments))
        common.log(f"try {number + 1} of {arguments.tries}: {name}, after {time.monotonic() - begun:.0f} s")

    # Case by case within a try, so that what changes in the machine falls on all of them.
    with ThreadPoolExecutor(arguments.at_once) as pool:
        tries = [pool.submit(one_try, number, case) for number in range(arguments.tries) for case in chosen]
        for done in tries:
            done.result()
            yield data


if __name__ == "__main__":
    common.main(parse, measure, tables)
