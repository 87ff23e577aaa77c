#!/usr/bin/env python3
"""Whether a transfer fills a link, and names what limited it where that is known because it was planted.

The link: 100 Mbit/s (tbf), which delays each packet by 20 ms in either direction (a relay between two tap devices: this machine's
kernel may have no netem). The rate that kelvin states is compared with the payload rate of the link: 1448 bytes of each frame of
1514 that the shaper counts. iperf3 over the same link before it shows what the relay lets through: it has to be left alone.

Planted limits, each in a transfer that takes some seconds:

  slow source disk    reads of the source's file system limited to 20 MB/s (cgroup blkio, version 1), nothing of it in memory
  slow target disk    writes of the target's file system limited to 20 MB/s, with --sync
  target disk, not    the same without --sync: what is not yet on the disk must be said
    flushed
  slow link           a link of 100 Mbit/s
  sender's CPU        a fifth of a CPU for the sender (cgroup cpu, version 1)
  receiver's CPU      the same for the receiver
  slow receiver       what reads the receiver's standard output takes 20 MB/s

Each is repeated (--pairs times); the sentence of the sender must match in every one.

Needs root. Exit status: 0 all hold, 1 one does not, 2 it could not be done.
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
RATE = "100mbit"
DELAY = 0.020
# Payload of TCP with time stamps in a frame, and what the shaper counts of it.
PAYLOAD_SHARE = 1448 / 1514
FILLED = 0.97
# What is sent over the link: a minute, of which the beginning is little.
LINKED = 750 * MB
PLANTED = 100 * MB
SLOW = 20 * MB
NEAR, FAR = "198.18.94.1", "198.18.94.2"
PATIENCE = 180
# linux/if_tun.h
TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000


# ---- what is planted


def tap(name):
    """A tap device, as a file of frames."""
    device = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
    return device


def delay_frames(source, target, stop):
    """Writes the frames of one device to another, each some time after it came."""
    held = deque()
    while not stop.is_set():
        wait = max(held[0][0] - time.monotonic(), 0) if held else 0.1
        if select.select([source], [], [], wait)[0]:
            held.append((time.monotonic() + DELAY, os.read(source, 2048)))
        while held and held[0][0] <= time.monotonic():
            os.write(target, held.popleft()[1])


@contextmanager
def relay(near, far):
    """Two devices between which frames take their time; each then goes to a host."""
    devices = [tap(f"kelvin-{end}") for end in ("n", "f")]
    stop = threading.Event()
    pairs = [devices, devices[::-1]]
    threads = [threading.Thread(target=delay_frames, args=(*pair, stop)) for pair in pairs]
    try:
        for host, device, address in [(near, "kelvin-n", NEAR), (far, "kelvin-f", FAR)]:
            hosts.ip("link", "set", device, "netns", host)
            hosts.ip("-netns", host, "address", "add", f"{address}/30", "dev", device)
            hosts.ip("-netns", host, "link", "set", device, "txqueuelen", "10000", "up")
            shape(host, device)
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


def shape(host, device):
    shaper = ["qdisc", "add", "dev", device, "root", "tbf", "rate", RATE, "burst", "128kb", "latency", "50ms"]
    common.run([common.require_program("tc", "iproute2"), "-netns", host, *shaper])


@contextmanager
def two_hosts():
    names = [f"kelvin-{end}-{os.getpid()}" for end in ("near", "far")]
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
    """Sends one file; both ends can be placed."""

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

    def move(self, source, into, *arguments, sender={}, receiver={}, reader=None):
        """The record of the sender."""
        listen = f"{FAR if 'host' in receiver else '127.0.0.1'}:0"
        command = self.command(receiver, "receive", into, "--overwrite", "--once", "--listen", listen)
        pipe = subprocess.PIPE
        # With standard output taken, the address is said on standard error.
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=reader or pipe, stderr=pipe, text=True) as receiving:
            to = receiving.stdout.readline().strip() if reader is None else self.address(receiving.stderr)
            threading.Thread(target=receiving.stderr.read, daemon=True).start()
            done = subprocess.run(
                self.command(sender, "send", source, to, "--json", *arguments),
                stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE,
            )  # fmt: skip
            receiving.wait(PATIENCE)
        if done.returncode != 0:
            raise RuntimeError(f"the sender ends with {done.returncode}: {done.stderr.strip()}")
        return json.loads(done.stdout)

    def address(self, errors):
        for line in errors:
            if found := re.search(r"\d+\.\d+\.\d+\.\d+:\d+", line):
                return found[0]
        raise RuntimeError("the receiver does not say where it listens")


def write_random_file(path, size):
    with open(path, "wb") as file:
        for _ in range(size // MB):
            file.write(os.urandom(MB))
    return path


def drop_from_cache(path):
    """Nothing of a file is in memory."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


class SlowReader:
    """Reads a pipe at a rate, in a thread; as a file that a process can write."""

    def __enter__(self):
        self.out, self.into = os.pipe()
        self.thread = threading.Thread(target=self.read)
        self.thread.start()
        return self

    def read(self):
        while block := os.read(self.out, 1 << 16):
            time.sleep(len(block) / SLOW)

    def __exit__(self, *_):
        os.close(self.into)
        self.thread.join()
        os.close(self.out)


# ---- the cases: each gives the record of a transfer


def slow_source(ends, source):
    with tempfile.TemporaryDirectory(dir=ends.base) as base, loop_disk(base) as place:
        path = write_random_file(place / "source", PLANTED)
        drop_from_cache(path)
        with cgroup("blkio", blkio__throttle__read_bps_device=f"{device_number(place)} {SLOW}") as group:
            return ends.move(path, ends.base / "in", sender={"cgroup": group})


def slow_target(ends, source, *arguments):
    with tempfile.TemporaryDirectory(dir=ends.base) as base, loop_disk(base) as place:
        with cgroup("blkio", blkio__throttle__write_bps_device=f"{device_number(place)} {SLOW}") as group:
            return ends.move(source, place, *arguments, receiver={"cgroup": group})


def slow_link(ends, source):
    with two_hosts() as (near, far):
        hosts.connect_hosts(near, f"{NEAR}/30", far, f"{FAR}/30", "t")
        shape(near, "near-t")
        return ends.move(source, ends.base / "in", sender={"host": near}, receiver={"host": far})


def slow_cpu(ends, source, end):
    with cgroup("cpu", cpu__cfs_period_us="100000", cpu__cfs_quota_us="20000") as group:
        return ends.move(source, ends.base / "in", **{end: {"cgroup": group}})


def slow_receiver(ends, source):
    with SlowReader() as slow:
        return ends.move(source, "-", reader=slow.into)


CASES = {
    "slow source disk": (slow_source, "limited by the source's disk"),
    "slow target disk": (lambda *both: slow_target(*both, "--sync"), "limited by the target's disk"),
    "target disk, not flushed": (slow_target, "limited by the target's disk|not yet on the target's disk"),
    "slow link": (slow_link, "limited by the link"),
    "sender's CPU": (lambda *both: slow_cpu(*both, "sender"), "limited by the CPU quota of the sender"),
    "receiver's CPU": (lambda *both: slow_cpu(*both, "receiver"), "limited by the CPU quota of the receiver"),
    "slow receiver": (slow_receiver, "limited by what reads the receiver's standard output"),
}


def iperf3(near, far):
    """Bytes per second that arrive in as long a time as a transfer takes."""
    program = common.require_program("iperf3", "iperf3")
    with hosts.background_process(hosts.in_namespace(far, program, "-s", "-1"), stdout=subprocess.DEVNULL):
        time.sleep(0.5)
        told = common.run(hosts.in_namespace(near, program, "-c", FAR, "-n", LINKED, "--json"))
    return json.loads(told)["end"]["sum_received"]["bits_per_second"] / 8


def measure_link_share(ends, control):
    """The shares of the link's payload rate that a transfer has, and iperf3; and what the transfer says."""
    source = write_random_file(ends.base / "long", LINKED)
    with two_hosts() as (near, far), relay(near, far):
        for host, to in [(near, FAR), (far, NEAR)]:
            device = "kelvin-n" if host == near else "kelvin-f"
            hosts.ip("-netns", host, "route", "replace", f"{NEAR.rsplit('.', 1)[0]}.0/30", "dev", device, "congctl", control)
        beside = iperf3(near, far)
        record = ends.move(source, ends.base / "in", sender={"host": near}, receiver={"host": far})
    payload = int(RATE.removesuffix("mbit")) * MB / 8 * PAYLOAD_SHARE
    return record["bytes_per_second"] / payload, beside / payload, limit_in_sentence(record["sentence"])


def limit_in_sentence(sentence):
    """What it says of the limit."""
    return sentence.split("; ", 1)[-1]


def sentences(name, ends, source, times):
    """What each transfer of a case says of its limit."""
    plant, _ = CASES[name]
    sentences_of_case = []
    for _ in range(times):
        sentences_of_case.append(limit_in_sentence(plant(ends, source)["sentence"]))
        common.log(f"{name}: {sentences_of_case[-1]}")
    return sentences_of_case


def case_row(name, sentences_of_case):
    right = sum(bool(re.search(CASES[name][1], one)) for one in sentences_of_case)
    return [name, f"{right} of {len(sentences_of_case)}", sentences_of_case[-1], "holds" if right == len(sentences_of_case) else "NOT NAMED"]


def link_row(control, fillings):
    ours, theirs, words = zip(*fillings)
    found = f"at least {min(ours):.3f} of its payload rate, iperf3 {min(theirs):.3f}"
    return [f"{RATE}, {DELAY * 1e3:.0f} ms, {control}", found, words[-1], "holds" if min(ours) >= FILLED else "BELOW"]


def parse():
    parser = common.make_parser(__doc__)
    parser.add_argument("--times", type=int, default=3, help="transfers of each case [default: %(default)s]")
    parser.add_argument("--only", choices=[*CASES, "link"], help="this one alone")
    return parser.parse_args()


def measure(arguments):
    if os.geteuid() != 0:
        raise common.BenchmarkError("needs root")
    kelvin, sentences_of_case, links = common.kelvin_program(arguments.kelvin), {}, {}
    with tempfile.TemporaryDirectory(prefix="kelvin-bench-") as base:
        ends = TransferEnds(kelvin, base)
        (ends.base / "in").mkdir()
        source = write_random_file(ends.base / "source", PLANTED)
        for name in CASES:
            if arguments.only in (None, name):
                sentences_of_case[name] = sentences(name, ends, source, arguments.times)
        for control in ("cubic", "bbr"):
            if arguments.only in (None, "link"):
                links[control] = [measure_link_share(ends, control) for _ in range(arguments.times)]
                common.log(f"link, {control}: {links[control]}")
    return {"cases": sentences_of_case, "links": links}


def tables(measured):
    rows = [case_row(*case) for case in measured["cases"].items()] + [link_row(*link) for link in measured["links"].items()]
    return common.table(["planted", "found", "in kelvin's words", "verdict"], rows), all(row[-1] == "holds" for row in rows)


if __name__ == "__main__":
    common.main(parse, measure, tables)
