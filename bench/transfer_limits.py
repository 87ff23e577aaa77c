#!/usr/bin/env python3
"""Whether a transfer fills a link, and whether it names a planted limit.

The link has 100 Mbit/s (tbf), and delays each packet by 20 ms in each direction. A relay between two tap devices makes the delay,
because the kernel may lack netem. The rate that kelvin reports is compared with the payload rate of the link: 1448 bytes of each frame
of 1514 that the shaper counts. iperf3 runs over the same link first, and shows the capacity of the relay. The machine must be idle.

Planted limits, each in a transfer that takes some seconds:

  slow source disk    reads of the source's file system limited to 20 MB/s (cgroup blkio, version 1), nothing of it in memory
  slow target disk    writes of the target's file system limited to 20 MB/s, with --sync
  target disk, not    the same without --sync: the sentence must mention data that is not yet on the disk
    flushed
  slow link           a link of 100 Mbit/s
  sender's CPU        a fifth of a CPU for the sender (cgroup cpu, version 1)
  receiver's CPU      the same for the receiver
  slow receiver       the program that reads the receiver's standard output reads 20 MB/s

Each is repeated (--times); the sentence of the sender must match every time.

Needs root. Exit status: 0 all hold, 1 at least one does not, 2 it could not be done.
"""
import fcntl
import json
import os
import re
import select
import struct
import subprocess
import tempfile
import threading
import time
from collections import deque
from contextlib import contextmanager
from pathlib import Path

import common
import hosts
from planted import cgroup, device_number, loop_disk

MB = 10**6
MIB = 1 << 20
LINK_RATE = "100mbit"
DELAY_SECONDS = 0.020
# The TCP payload of a frame with time stamps, and the bytes of it that the shaper counts.
PAYLOAD_SHARE = 1448 / 1514
MIN_LINK_SHARE = 0.97
# Bytes of a transfer over the link. It takes a minute, compared with which slow start is short.
LINK_TRANSFER_BYTES = 750 * MB
CASE_BYTES = 100 * MB
SLOW_RATE = 20 * MB
NEAR_ADDRESS, FAR_ADDRESS = "198.18.94.1", "198.18.94.2"
MAX_SECONDS = 180
# linux/if_tun.h
TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000


# ---- planted limits


def open_tap(name):
    """Opens a tap device. Returns a file descriptor for its frames."""
    device = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
    return device


def delay_frames(source, target, stop):
    """Writes the frames of one device to another, each with a delay."""
    queue = deque()
    while not stop.is_set():
        timeout = max(queue[0][0] - time.monotonic(), 0) if queue else 0.1
        if select.select([source], [], [], timeout)[0]:
            queue.append((time.monotonic() + DELAY_SECONDS, os.read(source, 2048)))
        while queue and queue[0][0] <= time.monotonic():
            os.write(target, queue.popleft()[1])


@contextmanager
def relay(near, far):
    """Gives each host a tap device, and delays the frames between the two devices."""
    devices = [open_tap(f"kelvin-{suffix}") for suffix in ("n", "f")]
    stop = threading.Event()
    pairs = [devices, devices[::-1]]
    threads = [threading.Thread(target=delay_frames, args=(*pair, stop)) for pair in pairs]
    try:
        for host, device, address in [(near, "kelvin-n", NEAR_ADDRESS), (far, "kelvin-f", FAR_ADDRESS)]:
            hosts.ip("link", "set", device, "netns", host)
            hosts.ip("-netns", host, "address", "add", f"{address}/30", "dev", device)
            hosts.ip("-netns", host, "link", "set", device, "txqueuelen", "10000", "up")
            shape_device(host, device)
        for thread in threads:
            thread.start()
        yield
    finally:
        stop.set()
        for thread in threads:
            if thread.is_alive():
                thread.join()
        for device in devices:
            os.close(device)


def shape_device(host, device):
    shaper = ["qdisc", "add", "dev", device, "root", "tbf", "rate", LINK_RATE, "burst", "128kb", "latency", "50ms"]
    common.run([common.require_program("tc", "iproute2"), "-netns", host, *shaper])


@contextmanager
def two_hosts():
    names = [f"kelvin-{role}-{os.getpid()}" for role in ("near", "far")]
    try:
        try:
            for name in names:
                hosts.ip("netns", "add", name)
                hosts.ip("-netns", name, "link", "set", "lo", "up")
        except RuntimeError as error:
            raise common.BenchmarkError(f"needs root and network namespaces: {error}") from error
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], stderr=subprocess.DEVNULL, check=False)


# ---- transfers


class TransferEnds:
    """Sends one file. Each end can run in a namespace or in a control group."""

    def __init__(self, kelvin, base):
        self.kelvin, self.base = kelvin, Path(base)
        self.secret = self.base / "token"
        self.secret.touch(mode=0o600)
        self.secret.write_text(os.urandom(32).hex())

    def command(self, end, *arguments):
        command = [self.kelvin, *arguments, "--token-file", self.secret]
        if "cgroup" in end:
            command = ["sh", "-c", f'echo $$ > {end["cgroup"]} && exec "$@"', "sh", *command]
        return hosts.in_namespace(end["host"], *command) if "host" in end else [str(word) for word in command]

    def transfer(self, source, destination, *arguments, sender={}, receiver={}, output_pipe=None):
        """Transfers a file, and returns the JSON record of the sender."""
        listen_address = f"{FAR_ADDRESS if 'host' in receiver else '127.0.0.1'}:0"
        command = self.command(receiver, "receive", destination, "--overwrite", "--once", "--listen", listen_address)
        pipe = subprocess.PIPE
        # If standard output carries the file, the receiver prints its address on standard error.
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output_pipe or pipe, stderr=pipe, text=True) as receiver_process:
            address = receiver_process.stdout.readline().strip() if output_pipe is None else self.read_address(receiver_process.stderr)
            threading.Thread(target=receiver_process.stderr.read, daemon=True).start()
            sender_process = subprocess.run(
                self.command(sender, "send", source, address, "--json", *arguments),
                stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=MAX_SECONDS,
            )  # fmt: skip
            receiver_process.wait(MAX_SECONDS)
        if sender_process.returncode != 0:
            raise RuntimeError(f"the sender ends with {sender_process.returncode}: {sender_process.stderr.strip()}")
        return json.loads(sender_process.stdout)

    def read_address(self, stderr):
        for line in stderr:
            if match := re.search(r"\d+\.\d+\.\d+\.\d+:\d+", line):
                return match[0]
        raise RuntimeError("the receiver does not print its address")


def write_random_file(path, size):
    with open(path, "wb") as file:
        for _ in range(size // MB):
            file.write(os.urandom(MB))
    return path


def drop_from_cache(path):
    """Drops a file from the page cache."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


class SlowReader:
    """A pipe that a thread reads at a limited rate. A process can write to its write end."""

    def __enter__(self):
        self.read_end, self.write_end = os.pipe()
        self.thread = threading.Thread(target=self.read_slowly)
        self.thread.start()
        return self

    def read_slowly(self):
        while block := os.read(self.read_end, 1 << 16):
            time.sleep(len(block) / SLOW_RATE)

    def __exit__(self, *_):
        os.close(self.write_end)
        self.thread.join()
        os.close(self.read_end)


# ---- the cases: each returns the record of a transfer


def slow_source(ends, source):
    with tempfile.TemporaryDirectory(dir=ends.base) as base, loop_disk(base) as mount_point:
        path = write_random_file(mount_point / "source", CASE_BYTES)
        drop_from_cache(path)
        with cgroup("blkio", blkio__throttle__read_bps_device=f"{device_number(mount_point)} {SLOW_RATE}") as group:
            return ends.transfer(path, ends.base / "in", sender={"cgroup": group})


def slow_target(ends, source, *arguments):
    with tempfile.TemporaryDirectory(dir=ends.base) as base, loop_disk(base) as mount_point:
        with cgroup("blkio", blkio__throttle__write_bps_device=f"{device_number(mount_point)} {SLOW_RATE}") as group:
            return ends.transfer(source, mount_point, *arguments, receiver={"cgroup": group})


def slow_link(ends, source):
    with two_hosts() as (near, far):
        hosts.connect_hosts(near, f"{NEAR_ADDRESS}/30", far, f"{FAR_ADDRESS}/30", "t")
        shape_device(near, "near-t")
        return ends.transfer(source, ends.base / "in", sender={"host": near}, receiver={"host": far})


def slow_cpu(ends, source, end):
    with cgroup("cpu", cpu__cfs_period_us="100000", cpu__cfs_quota_us="20000") as group:
        return ends.transfer(source, ends.base / "in", **{end: {"cgroup": group}})


def slow_receiver(ends, source):
    with SlowReader() as reader:
        return ends.transfer(source, "-", output_pipe=reader.write_end)


CASES = {
    "slow source disk": (slow_source, "limited by the source's disk"),
    "slow target disk": (lambda *both: slow_target(*both, "--sync"), "limited by the target's disk"),
    "target disk, not flushed": (slow_target, "limited by the target's disk|not yet on the target's disk"),
    "slow link": (slow_link, "limited by the link"),
    "sender's CPU": (lambda *both: slow_cpu(*both, "sender"), "limited by the CPU quota of the sender"),
    "receiver's CPU": (lambda *both: slow_cpu(*both, "receiver"), "limited by the CPU quota of the receiver"),
    "slow receiver": (slow_receiver, "limited by what reads the receiver's standard output"),
}


def iperf3_rate(near, far):
    """Bytes per second that arrive, for the same number of bytes as a transfer."""
    program = common.require_program("iperf3", "iperf3")
    with hosts.background_process(hosts.in_namespace(far, program, "-s", "-1"), stdout=subprocess.DEVNULL):
        time.sleep(0.5)
        output = common.run(hosts.in_namespace(near, program, "-c", FAR_ADDRESS, "-n", LINK_TRANSFER_BYTES, "--json"))
    return json.loads(output)["end"]["sum_received"]["bits_per_second"] / 8


def measure_link_share(ends, congestion_control):
    """The shares of the link's payload rate that a transfer and iperf3 reach, and the limit that the transfer reports."""
    source = write_random_file(ends.base / "long", LINK_TRANSFER_BYTES)
    with two_hosts() as (near, far), relay(near, far):
        for host, peer in [(near, FAR_ADDRESS), (far, NEAR_ADDRESS)]:
            device = "kelvin-n" if host == near else "kelvin-f"
            hosts.ip("-netns", host, "route", "replace", f"{NEAR_ADDRESS.rsplit('.', 1)[0]}.0/30", "dev", device, "congctl", congestion_control)
        iperf3_bytes_per_second = iperf3_rate(near, far)
        record = ends.transfer(source, ends.base / "in", sender={"host": near}, receiver={"host": far})
    payload = int(LINK_RATE.removesuffix("mbit")) * MB / 8 * PAYLOAD_SHARE
    return record["bytes_per_second"] / payload, iperf3_bytes_per_second / payload, limit_in_sentence(record["sentence"])


def limit_in_sentence(sentence):
    """The part of a sentence that names the limit."""
    return sentence.split("; ", 1)[-1]


def measure_sentences(name, ends, source, repeats):
    """The reported limits of several transfers of a case."""
    plant, _ = CASES[name]
    sentences = []
    for _ in range(repeats):
        sentences.append(limit_in_sentence(plant(ends, source)["sentence"]))
        common.log(f"{name}: {sentences[-1]}")
    return sentences


def case_row(name, sentences):
    match_count = sum(bool(re.search(CASES[name][1], sentence)) for sentence in sentences)
    return [name, f"{match_count} of {len(sentences)}", sentences[-1], "holds" if match_count == len(sentences) else "NOT NAMED"]


def link_row(congestion_control, results):
    ours, theirs, sentences = zip(*results)
    share_text = f"at least {min(ours):.3f} of its payload rate, iperf3 {min(theirs):.3f}"
    return [f"{LINK_RATE}, {DELAY_SECONDS * 1e3:.0f} ms, {congestion_control}", share_text, sentences[-1], "holds" if min(ours) >= MIN_LINK_SHARE else "BELOW"]


def parse():
    parser = common.make_parser(__doc__)
    parser.add_argument("--times", type=int, default=3, help="transfers of each case [default: %(default)s]")
    parser.add_argument("--only", choices=[*CASES, "link"], help="only this case")
    return parser.parse_args()


def measure(arguments):
    if os.geteuid() != 0:
        raise common.BenchmarkError("needs root")
    kelvin, sentences_by_case, results_by_link = common.kelvin_program(arguments.kelvin), {}, {}
    with tempfile.TemporaryDirectory(prefix="kelvin-bench-") as base:
        ends = TransferEnds(kelvin, base)
        (ends.base / "in").mkdir()
        source = write_random_file(ends.base / "source", CASE_BYTES)
        for name in CASES:
            if arguments.only in (None, name):
                sentences_by_case[name] = measure_sentences(name, ends, source, arguments.times)
        for congestion_control in ("cubic", "bbr"):
            if arguments.only in (None, "link"):
                results_by_link[congestion_control] = [measure_link_share(ends, congestion_control) for _ in range(arguments.times)]
                common.log(f"link, {congestion_control}: {results_by_link[congestion_control]}")
    return {"cases": sentences_by_case, "links": results_by_link}


def tables(measured):
    rows = [case_row(*case) for case in measured["cases"].items()] + [link_row(*link) for link in measured["links"].items()]
    return common.table(["planted", "found", "in kelvin's words", "verdict"], rows), all(row[-1] == "holds" for row in rows)


if __name__ == "__main__":
    common.main(parse, measure, tables)
