"""Networks for benchmarks, as namespaces of this machine: one for processes on the same host, and hosts joined by pairs of
virtual interfaces for the agent.

Of the hosts one runs `kelvin agent`, one runs kelvin against it over a shaped link, and unauthenticated clients come from the
third over a link of their own. They are removed when the benchmark ends.
"""
import json
import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import common

AGENT, KELVIN_HOST, UNAUTHENTICATED_HOST = "198.18.91.2", "198.18.91.1", "198.18.92.1"
AGENT_FOR_UNAUTHENTICATED = "198.18.92.2"
PORT = 27315
# Set in the environment of what runs in a network namespace.
OWN_NETWORK = "KELVIN_BENCH_OWN_NETWORK"


# A quick run to another host plans 30 s for all its cases, and leaves some out of less.
SECONDS = 36


def make_pairs_parser(description):
    """A parser of the arguments of a benchmark of pairs between these hosts."""
    parser = common.make_pairs_parser(description, seconds=SECONDS, max_pairs=45)
    parser.add_argument("--rate", default="500mbit", help="rate of the link, as tc has it [default: %(default)s]")
    return parser


def ip(*words):
    common.run([common.require_program("ip", "iproute2"), *words])


def in_namespace(host, *command):
    return ["ip", "netns", "exec", host, *[str(word) for word in command]]


def in_own_network(control):
    """Starts this program anew in a network namespace where connections begin under this congestion control, and returns there.

    A tool that sets another one than the system's after connecting stays paced if the system's is bbr, and then does not do the
    same work. Routes can name one without a change to the system.
    """
    if OWN_NETWORK in os.environ:
        ip("link", "set", "lo", "up")
        for to in ("127.0.0.0/8", "127.0.0.1"):
            ip("route", "replace", "local", to, "dev", "lo", "table", "local", "proto", "kernel", "scope", "host", "src", "127.0.0.1",
               "congctl", control)  # fmt: skip
        return
    unshare = [common.require_program("unshare", "util-linux"), *([] if os.geteuid() == 0 else ["--map-root-user"]), "--net"]
    try:
        common.run([*unshare, "true"])
    except RuntimeError as error:
        raise common.Missing(f"needs a network namespace: {error}") from error
    os.execve(unshare[0], [*unshare, sys.executable, *sys.argv], {**os.environ, OWN_NETWORK: control})


@contextmanager
def three_hosts(rate):
    """The names of the three, by purpose."""
    names = {what: f"kelvin-{what}-{os.getpid()}" for what in ("agent", "kelvin", "unauthenticated")}
    try:
        try:
            set_up(names, rate)
        except RuntimeError as error:
            raise common.Missing(f"needs root, network namespaces, veth and tbf: {error}") from error
        yield names
    finally:
        for name in names.values():
            subprocess.run(["ip", "netns", "delete", name], stderr=subprocess.DEVNULL, check=False)


def set_up(names, rate):
    for name in names.values():
        ip("netns", "add", name)
        ip("-netns", name, "link", "set", "lo", "up")
    connect_hosts(names["kelvin"], f"{KELVIN_HOST}/30", names["agent"], f"{AGENT}/30", "a")
    connect_hosts(names["unauthenticated"], f"{UNAUTHENTICATED_HOST}/30", names["agent"], f"{AGENT_FOR_UNAUTHENTICATED}/30", "b")
    for host, device in [("kelvin", "near-a"), ("agent", "far-a")]:
        shape = ["qdisc", "add", "dev", device, "root", "tbf", "rate", rate, "burst", "128kb", "latency", "50ms"]
        common.run([common.require_program("tc", "iproute2"), "-netns", names[host], *shape])


def connect_hosts(near, near_address, far, far_address, mark):
    ip("link", "add", f"near-{mark}", "netns", near, "type", "veth", "peer", "name", f"far-{mark}", "netns", far)
    for host, device, address in [(near, f"near-{mark}", near_address), (far, f"far-{mark}", far_address)]:
        ip("-netns", host, "address", "add", address, "dev", device)
        ip("-netns", host, "link", "set", device, "up")


@contextmanager
def running(command, **options):
    """A process that is ended with the block."""
    process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, **options)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


@contextmanager
def agent(kelvin, host, cpu, secret):
    pinned = [common.require_program("taskset", "util-linux"), "-c", cpu]
    command = in_namespace(host, *pinned, kelvin, "agent", "--listen", "0.0.0.0", "--token-file", secret)
    with running(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        if not process.stdout.readline().startswith("0.0.0.0:"):
            raise RuntimeError("the agent does not listen")
        yield process


@contextmanager
def token():
    """A file with a secret."""
    with tempfile.TemporaryDirectory(prefix="kelvin-token-") as directory:
        path = Path(directory, "token")
        path.touch(mode=0o600)
        path.write_text(os.urandom(32).hex())
        yield path


def measure(kelvin, host, cpu, secret, seconds):
    """The report of a run against the agent; a short measure of this machine comes with it."""
    command = [kelvin, "run", "cpu.clock.pair", "--quick", "--budget", f"{seconds:g}s", "--cpu", cpu, "--json", "--no-report",
               "--no-store", "--peer", AGENT, "--token-file", secret]
    return json.loads(common.run(in_namespace(host, *command)))
