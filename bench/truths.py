#!/usr/bin/env python3
"""Whether kelvin's figures are right where the true value is known: links behind token buckets, and disks under a limit.

Links: a pair of virtual interfaces joins two network namespaces. Each interface has a token bucket (tc tbf or htb) of 37 or 412 Mbit/s,
which is small or large. kelvin measures net.peer.bandwidth against `kelvin agent`, with one and with four streams, in both directions.
Disks: a control group (blkio, version 1) limits a file system on a loop device over memory to 7.3 MB or 333 requests per second. kelvin
measures file.device.

There are two true values: the configured rate, and the count of the shaper or of the control group while requests always waited. The
counters of a shaper are read during the whole run. Only busy intervals count, without their first 0.3 s, in which the bucket is emptied.
The counters of a control group are read right before a run, while sixteen readers wait for it. The configured rate is exact to 0.2 %,
since the requests for counts share the link. The count is as exact as a clock over intervals of half a second. For every case and figure:

  error     kelvin's headline relative to the configured rate: the median error of all tries, and the worst
  counted   the median error relative to the count of the shaper or the control group
  inside    tries in which the printed interval contains the configured rate
  burst     tries in which a burst is reported, and its size relative to the bucket

Bounds: both median errors are within 2 %. The interval contains the true value in 19 of 20 tries. A large bucket is reported in 19 of 20
tries, within 10 % of its size. No burst is reported for a small bucket.

Exit status: 0 every bound was kept, 1 at least one was not, 2 it could not be done.
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

MAX_ERROR, MIN_COVERED_SHARE, MAX_SIZE_ERROR = 0.02, 0.95, 0.10
# Relative tolerance of the configured rate: the requests for counts and their answers share the link with the streams.
RATE_TOLERANCE = 0.002
# Header bytes of a segment that a shaper counts in addition to the payload: Ethernet, IP, TCP, and time stamps.
HEADER_BYTES = 14 + 20 + 20 + 12
# The share of payload in a full packet, and so in a bucket.
PAYLOAD_SHARE = 1448 / 1514
# Seconds between two readings of a counter.
LINK_POLL_SECONDS, DISK_POLL_SECONDS = 0.03, 0.005
# Seconds at the start of a busy interval that do not count, since the bucket is emptied.
BURST_SECONDS = 0.3
# Readers of a disk, the seconds for which they read, and the size of their blocks.
READER_COUNT, READ_SECONDS, BLOCK_BYTES = 16, 3.0, 16 << 10
# Seconds without progress that separate two bursts of a control group.
PAUSE_SECONDS = 0.03
MIB = 1 << 20
NAMESPACE_NUMBERS = itertools.count()


@dataclass(frozen=True)
class Link:
    """A link behind a token bucket."""

    name: str
    # Bits per second, and bytes of the bucket.
    rate: float
    bucket: int
    shaper: str

    @property
    def is_large(self):
        """Whether the bucket is large enough for a reported burst: more than a tenth of a second."""
        return self.bucket * 8 > 0.1 * self.rate

    def shape(self, host, device):
        format_rate, tc = f"{self.rate:g}bit", [common.require_program("tc", "iproute2"), "-netns", host]
        if self.shaper == "tbf":
            common.run([*tc, "qdisc", "add", "dev", device, "root", "tbf", "rate", format_rate, "burst", self.bucket, "latency", "50ms"])
            return
        common.run([*tc, "qdisc", "add", "dev", device, "root", "handle", "1:", "htb", "default", "1"])
        common.run([*tc, "class", "add", "dev", device, "parent", "1:", "classid", "1:1", "htb", "rate", format_rate, "burst", self.bucket, "cburst", self.bucket])
        # A queue of 50 ms, as with tbf, in packets.
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
# Name, bytes and requests per second, and the figure that shows the limit. The kernel always passes a tenth of a second at once, in whole
# requests, so of 333 requests per second it passes 330.
DISKS = [
    ("disk of 7.3 MB/s", 7_300_000, None, "file.device.read"),
    ("disk of 333 requests/s", None, 333, "file.device.requests"),
]
STREAM_CASES = [("one stream", 1, "to_agent"), ("four streams", 4, "to_agent"), ("one stream back", 1, "from_agent"), ("four streams back", 4, "from_agent")]


# ---- counters


class CounterWatcher:
    """Reads a counter periodically: rows of the time, the passed amount, and whether something is held back."""

    def __init__(self, read_counter, poll_seconds):
        self.rows, self.read_counter, self.poll_seconds, self.error = [], read_counter, poll_seconds, None
        self.stop_event = threading.Event()
        self.thread = threading.Thread(target=self.watch)

    def watch(self):
        try:
            while not self.stop_event.is_set():
                start_time = time.monotonic()
                passed, is_held = self.read_counter()
                # The time of a reading is the middle between its start and its end.
                self.rows.append(((start_time + time.monotonic()) / 2, passed, is_held))
                self.stop_event.wait(self.poll_seconds)
        except Exception as error:
            self.error = error

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stop_event.set()
        self.thread.join()
        if self.error:
            raise self.error


def link_rate(rows):
    """The rate during busy intervals, in which something was always held back, without the start of each."""
    passed_total = total_seconds = 0.0
    busy_since = None
    for before, after in zip(rows, rows[1:]):
        if not (before[2] and after[2]):
            busy_since = None
            continue
        busy_since = before[0] if busy_since is None else busy_since
        if before[0] - busy_since >= BURST_SECONDS:
            passed_total, total_seconds = passed_total + after[1] - before[1], total_seconds + after[0] - before[0]
    return passed_total / total_seconds if total_seconds > 0 else None


def disk_rate(rows, start_time):
    """The rate from a start time on, while requests always waited: between the ends of the first and the last pause between bursts."""
    burst_rows = [row for row in burst_starts(rows) if start_time <= row[0] <= start_time + READ_SECONDS - 2 * BURST_SECONDS]
    return (burst_rows[-1][1] - burst_rows[0][1]) / (burst_rows[-1][0] - burst_rows[0][0]) if len(burst_rows) > 1 else None


def burst_starts(rows):
    """The last row before each burst that follows a pause."""
    last_change = rows[0][0]
    for before, after in zip(rows, rows[1:]):
        if after[1] != before[1]:
            if after[0] - last_change > PAUSE_SECONDS:
                yield before
            last_change = after[0]


# ---- links


@contextmanager
def shaped_hosts(link, kelvin):
    """Creates two hosts joined by this link, with an agent on one of them. Yields their names and the path of the secret."""
    number = next(NAMESPACE_NUMBERS)
    names = {role: f"kelvin-{role}-{os.getpid()}-{number}" for role in ("agent", "kelvin")}
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
        token_path = stack.enter_context(hosts.token_file())
        stack.enter_context(hosts.running_agent(kelvin, names["agent"], cpus[0], token_path))
        yield names, token_path


def link_counter(host, device):
    """A function that reads the payload that a shaper has passed, and whether it holds something back."""
    command = [common.require_program("tc", "iproute2"), "-netns", host, "-s", "-j", "qdisc", "show", "dev", device]

    def read_counter():
        queue_disciplines = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
        root = next(discipline for discipline in queue_disciplines if discipline.get("root"))
        return root["bytes"] - root["packets"] * HEADER_BYTES, any(discipline["backlog"] > 0 for discipline in queue_disciplines)

    return read_counter


def measure_link(link, kelvin, arguments):
    """Measures a link: kelvin's figures, and the count of each shaper during the run."""
    cpus = sorted(os.sched_getaffinity(0))
    with shaped_hosts(link, kelvin) as (names, token_path), ExitStack() as stack:
        counters = [("to_agent", names["kelvin"], "near-a"), ("from_agent", names["agent"], "far-a")]
        watchers = {direction: stack.enter_context(CounterWatcher(link_counter(host, device), LINK_POLL_SECONDS)) for direction, host, device in counters}
        report = run_report(kelvin, ["net.peer.bandwidth.burst", "--peer", hosts.AGENT_ADDRESS, "--token-file", token_path], arguments, cpus[-1], hosts.in_namespace(names["kelvin"]))
        stack.close()
        truths = {direction: link_rate(watcher.rows) for direction, watcher in watchers.items()}
    figures = []
    for name, streams, direction in STREAM_CASES:
        case = f"direction={direction} streams={streams}"
        figures.append(compare_figure(link.name, name, report, ("net.peer.bandwidth", case), truths[direction]))
        sizes = round_values(report, "net.peer.bandwidth.burst", case)
        figures[-1].update(bursts=sizes, bucket=link.bucket * PAYLOAD_SHARE, is_large=link.is_large)
    return figures


def run_report(kelvin, names, arguments, cpu, command_prefix=(), **options):
    """The JSON report of a kelvin run."""
    flags = ["--rounds", arguments.rounds, "--budget", "minimum", "--cpu", cpu, "--json", "--with-samples", "--no-store"]
    return json.loads(common.run([*command_prefix, kelvin, "run", *names, *flags], **options))


def compare_figure(case, name, report, metric, truth):
    """A figure of a report, together with its true value."""
    result = common.requested_results(report)[metric]
    summary = common.result_summary(result) or {"headline": None, "interval": None}
    interval = summary["interval"]
    return {
        "case": case, "what": name, "headline": summary["headline"], "truth": truth,
        "interval": [interval["lower"], interval["upper"]] if interval else None,
        "rounds": [statistics.median(values) for values in round_values(report, *metric)],
        "without": None if summary["headline"] else result["outcome"],
    }  # fmt: skip


def round_values(report, metric, case):
    """The values of a metric at a case, for each round."""
    values = []
    for measurement in report["run"]["measurements"]:
        if common.format_case(measurement["case"]) != case:
            continue
        for round_ in measurement["rounds"]:
            for reading in round_["outcome"].get("measured", []):
                if reading["metric"] == metric:
                    values.append(reading_values(reading["readings"]))
    return values


def reading_values(readings):
    if "scalars" in readings:
        return readings["scalars"]
    batches = readings["batches"]
    undisturbed = [index for index, tags in enumerate(batches["tags"]) if not tags & 1]
    return [batches["work_per_iteration"] * batches["iterations"][index] * 1e9 / batches["nanoseconds"][index] for index in undisturbed]


# ---- disks


def measure_disk(disk, kelvin, arguments):
    name, bytes_per_second, requests_per_second, metric = disk
    with media.loop_device(192 * MIB) as (path, device):
        number = os.stat(device).st_rdev
        device_number = f"{os.major(number)}:{os.minor(number)}"
        limits = {f"blkio__throttle__read_{name}_device": f"{device_number} {limit}" for name, limit in (("bps", bytes_per_second), ("iops", requests_per_second)) if limit}
        with planted.cgroup("blkio", **limits) as group_file:
            counter_file = group_file.with_name("blkio.throttle.io_service_bytes" if bytes_per_second else "blkio.throttle.io_serviced")
            join_group = lambda: group_file.write_text("0")
            start_time = time.monotonic()
            with CounterWatcher(lambda: (group_counter(counter_file, device_number), True), DISK_POLL_SECONDS) as watcher:
                read_in_child(path, join_group)
            # Its space is needed for the files of the run.
            path.unlink()
            report = run_report(kelvin, ["file.device.read", "--dir", path.parent], arguments, common.last_allowed_cpu(), preexec_fn=join_group)
    result = compare_figure(name, metric, report, (metric, ""), disk_rate(watcher.rows, start_time + BURST_SECONDS))
    result.update(bunches=burst_sizes(report), bucket=None, bursts=[], is_large=False)
    return [result]


def read_in_child(path, join_group):
    """Reads a file at random offsets past the page cache, in a child process that first joins a group."""
    child = os.fork()
    if child == 0:
        try:
            join_group()
            deadline = time.monotonic() + READ_SECONDS
            threads = [threading.Thread(target=read_until, args=(path, deadline, number)) for number in range(READER_COUNT)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def read_until(path, deadline, seed):
    random_source, buffer = random.Random(seed), mmap.mmap(-1, BLOCK_BYTES)
    file = os.open(path, os.O_RDONLY | os.O_DIRECT)
    blocks = os.fstat(file).st_size // BLOCK_BYTES
    while time.monotonic() < deadline:
        os.preadv(file, [buffer], random_source.randrange(blocks) * BLOCK_BYTES)


def burst_sizes(report):
    """The number of requests in a burst, according to the notes of each round."""
    notes = json.dumps([measurement["rounds"] for measurement in report["run"]["measurements"]])
    return [int(size) for size in re.findall("come in bunches of ([0-9]+) every", notes)]


def group_counter(file, device_number):
    """The count of a control group for reads from a device."""
    rows = (line.split() for line in file.read_text().splitlines())
    return sum(int(row[2]) for row in rows if len(row) == 3 and row[0] == device_number and row[1] == "Read")


# ---- judging


def tables(data):
    by_case = {}
    for entry in data["tries"]:
        by_case.setdefault((entry["case"], entry["what"]), []).append(entry)
    rows, are_bounds_met = [], True
    for (case, name), tries in by_case.items():
        row, is_met = judge_case(tries)
        rows.append([case, name, len(tries), *row, "holds" if is_met else "MISSED"])
        are_bounds_met &= is_met
    header = ["what", "figure", "tries", "truth", "error, median", "worst", "beside counted", "inside", "a burst is named", "its size over the bucket's", ""]
    return f"{data['rounds']} rounds a try.\n\n{common.table(header, rows)}", are_bounds_met


def judge_case(tries):
    """The cells of a case, and whether its bounds were kept."""
    valid_tries = [entry for entry in tries if entry["truth"] and entry["headline"]]
    if not valid_tries:
        return ["-"] * 7, False
    true_rate = configured_rate(valid_tries[0]["case"])
    errors = [entry["headline"] / true_rate - 1 for entry in valid_tries]
    counted_error = statistics.median(entry["headline"] / entry["truth"] - 1 for entry in valid_tries)
    covered_count = sum(contains(entry["interval"], true_rate) for entry in valid_tries)
    # The first round starts with a full bucket, the later ones with what has accumulated since.
    size_ratios = [max(max(values) for values in entry["bursts"]) / entry["bucket"] for entry in valid_tries if entry["bursts"]]
    is_large = valid_tries[0]["is_large"]
    is_burst_right = len(size_ratios) >= MIN_COVERED_SHARE * len(valid_tries) and abs(statistics.median(size_ratios) - 1) <= MAX_SIZE_ERROR if is_large else not size_ratios
    row = [
        format_rate(true_rate), format_error(statistics.median(errors)), format_error(max(errors, key=abs)), format_error(counted_error), f"{covered_count} of {len(valid_tries)}",
        f"{len(size_ratios)} of {len(valid_tries)}", f"{statistics.median(size_ratios):.3f}" if size_ratios else "-",
    ]  # fmt: skip
    are_errors_met = max(abs(statistics.median(errors)), abs(counted_error)) <= MAX_ERROR
    return row, are_errors_met and covered_count >= MIN_COVERED_SHARE * len(valid_tries) and is_burst_right and len(valid_tries) == len(tries)


def configured_rate(case):
    """The configured payload or requests per second of a case."""
    link = next((link for link in LINKS if link.name == case), None)
    if link:
        return link.rate / 8 * PAYLOAD_SHARE
    _, bytes_, requests, _ = next(disk for disk in DISKS if disk[0] == case)
    return bytes_ or requests // 10 * 10


def contains(interval, value):
    """Whether an interval contains a value, within the tolerance of the configured rate."""
    return bool(interval) and interval[0] <= value * (1 + RATE_TOLERANCE) and value * (1 - RATE_TOLERANCE) <= interval[1]


def format_error(share):
    return f"{share * 100:+.2f} %"


def format_rate(rate):
    return f"{rate / 1e6:.3f} MB/s" if rate > 1e5 else f"{rate:.1f} /s"


def check_arithmetic():
    """Raises an error if a case that was calculated by hand has another result."""
    # A shaper of 100 per second, busy from 1 to 3 s. The first 0.3 s, with a burst, do not count.
    is_busy = lambda time: 1.0 <= time <= 3.0
    link = [(time, 0 if time < 1 else 500 + 100 * (min(time, 3.0) - 1), is_busy(time)) for time in (tick / 100 for tick in range(400))]
    assert abs(link_rate(link) - 100) < 1e-6, link_rate(link)
    assert link_rate([(0, 0, False), (1, 5, False)]) is None
    # Bursts of 10 every tenth of a second.
    disk = [(tick / 200, 10 * (tick // 20 + 1), True) for tick in range(600)]
    assert abs(disk_rate(disk, 0.3) - 100) < 1e-6, disk_rate(disk, 0.3)
    assert disk_rate([(0.0, 0, True)], 0) is None
    assert abs(configured_rate(LINKS[0].name) * 8 / 1e6 - 35.387) < 0.001 and [configured_rate(disk[0]) for disk in DISKS] == [7_300_000, 330]
    entry = {"case": DISKS[1][0], "what": "w", "headline": 333.0, "truth": 331.0, "interval": [329.0, 336.0], "bursts": [[5.0], [1.0]], "bucket": 5.0, "is_large": True}
    assert judge_case([entry] * 20)[1], judge_case([entry] * 20)
    changes = ({"headline": 337.0}, {"interval": [331.0, 336.0]}, {"bursts": []}, {"is_large": False}, {"bucket": 4.0}, {"truth": None}, {"truth": 326.0})
    for change in changes:
        assert not judge_case([{**entry, **change}] * 20)[1], change
    assert judge_case([entry] * 19 + [{**entry, "interval": None}])[1] and not judge_case([entry] * 18 + [{**entry, "interval": None}] * 2)[1]


# ---- the benchmark


def parse():
    parser = common.make_parser(__doc__, is_series=True)
    parser.add_argument("--tries", type=int, default=20, help="tries of each case [default: %(default)s]")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of kelvin in a try [default: %(default)s]")
    parser.add_argument("--at-once", type=int, default=1, metavar="N", help="tries that run at the same time [default: %(default)s]")
    parser.add_argument("--only", action="append", metavar="TEXT", help="only cases whose name contains this; may be given more than once")
    parser.add_argument("--seconds", type=float, help="start no further try after this time")
    arguments = parser.parse_args()
    if arguments.tries < 1 or arguments.rounds < 4 or arguments.at_once < 1:
        parser.error("--tries and --at-once must be at least 1, and --rounds at least 4: fewer give no interval")
    return arguments


def measure(arguments, data):
    kelvin = common.kelvin_program(arguments.kelvin)
    data = data or {"rounds": arguments.rounds, "tries": []}
    cases = [(link.name, measure_link, link) for link in LINKS] + [(disk[0], measure_disk, disk) for disk in DISKS]
    selection = [case for case in cases if not arguments.only or any(text in case[0] for text in arguments.only)]
    if not selection:
        raise common.BenchmarkError(f"--only: no case has such a name; the cases are {', '.join(case[0] for case in cases)}")
    start_time = time.monotonic()

    def run_try(number, case):
        name, measure_try, subject = case
        if arguments.seconds and time.monotonic() - start_time > arguments.seconds:
            return
        data["tries"].extend(measure_try(subject, kelvin, arguments))
        common.log(f"try {number + 1} of {arguments.tries}: {name}, after {time.monotonic() - start_time:.0f} s")

    # Each try measures all cases, so that changes of the machine affect all of them.
    with ThreadPoolExecutor(arguments.at_once) as pool:
        tries = [pool.submit(run_try, number, case) for number in range(arguments.tries) for case in selection]
        for future in tries:
            future.result()
            yield data


if __name__ == "__main__":
    common.main(parse, measure, tables)
