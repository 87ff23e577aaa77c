"""Networks for benchmarks, made of namespaces of this machine: one for processes on the same host, and three hosts for the agent.

Pairs of virtual interfaces join the hosts. The first host runs `kelvin agent`. The second runs kelvin against it over a shaped link.
Unauthenticated clients connect from the third over a link of their own. The namespaces are removed when the benchmark ends.
"""
import json
import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import common

AGENT_ADDRESS, KELVIN_ADDRESS, UNAUTHENTICATED_ADDRESS = "198.18.91.2", "198.18.91.1", "198.18.92.1"
AGENT_ADDRESS_FOR_UNAUTHENTICATED = "198.18.92.2"
AGENT_PORT = 27315
# This variable is in the environment of programs that run in a network namespace of their own.
OWN_NETWORK_VARIABLE = "KELVIN_BENCH_OWN_NETWORK"


# A quick run to another host plans 30 s for all its cases. In less time it skips some.
RUN_SECONDS = 36


def make_pairs_parser(description):
    """A parser of the arguments of a benchmark of pairs between these hosts."""
    parser = common.make_pairs_parser(description, seconds=RUN_SECONDS, max_pairs=45)
    parser.add_argument("--rate", default="500mbit", help="rate of the link, in the notation of tc [default: %(default)s]")
    return parser


def ip(*words):
    common.run([common.require_program("ip", "iproute2"), *words])


def in_namespace(host, *command):
    return ["ip", "netns", "exec", host, *[str(word) for word in command]]


def enter_own_network(congestion_control):
    """Restarts this program in a network namespace where connections start with this congestion control, and returns there.

    If the system's congestion control is bbr, a tool that sets another one after connecting stays paced. It then does not do the
    same work. Routes can name a congestion control without a change to the system.
    """
    if OWN_NETWORK_VARIABLE in os.environ:
        ip("link", "set", "lo", "up")
        for destination in ("127.0.0.0/8", "127.0.0.1"):
            ip("route", "replace", "local", destination, "dev", "lo", "table", "local", "proto", "kernel", "scope", "host", "src", "127.0.0.1",
               "congctl", congestion_control)  # fmt: skip
        return
    unshare = [common.require_program("unshare", "util-linux"), *([] if os.geteuid() == 0 else ["--map-root-user"]), "--net"]
    try:
        common.run([*unshare, "true"])
    except RuntimeError as error:
        raise common.BenchmarkError(f"needs a network namespace: {error}") from error
    os.execve(unshare[0], [*unshare, sys.executable, *sys.argv], {**os.environ, OWN_NETWORK_VARIABLE: congestion_control})


@contextmanager
def three_hosts(rate):
    """Creates the three hosts. Yields their names by role."""
    names = {role: f"kelvin-{role}-{os.getpid()}" for role in ("agent", "kelvin", "unauthenticated")}
    try:
        try:
            create_hosts(names, rate)
        except RuntimeError as error:
            raise common.BenchmarkError(f"needs root, network namespaces, veth and tbf: {error}") from error
        yield names
    finally:
        for name in names.values():
            subprocess.run(["ip", "netns", "delete", name], stderr=subprocess.DEVNULL, check=False)


def create_hosts(names, rate):
    for name in names.values():
        ip("netns", "add", name)
        ip("-netns", name, "link", "set", "lo", "up")
    connect_hosts(names["kelvin"], f"{KELVIN_ADDRESS}/30", names["agent"], f"{AGENT_ADDRESS}/30", "a")
    connect_hosts(names["unauthenticated"], f"{UNAUTHENTICATED_ADDRESS}/30", names["agent"], f"{AGENT_ADDRESS_FOR_UNAUTHENTICATED}/30", "b")
    for host, device in [("kelvin", "near-a"), ("agent", "far-a")]:
        shaper = ["qdisc", "add", "dev", device, "root", "tbf", "rate", rate, "burst", "128kb", "latency", "50ms"]
        common.run([common.require_program("tc", "iproute2"), "-netns", names[host], *shaper])


def connect_hosts(near, near_address, far, far_address, suffix):
    ip("link", "add", f"near-{suffix}", "netns", near, "type", "veth", "peer", "name", f"far-{suffix}", "netns", far)
    for host, device, address in [(near, f"near-{suffix}", near_address), (far, f"far-{suffix}", far_address)]:
        ip("-netns", host, "address", "add", address, "dev", device)
        ip("-netns", host, "link", "set", device, "up")


@contextmanager
def background_process(command, **options):
    """A process that is terminated at the end of the block."""
    process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, **options)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


@contextmanager
def running_agent(kelvin, host, cpu, token_path):
    pin_command = [common.require_program("taskset", "util-linux"), "-c", cpu]
    command = in_namespace(host, *pin_command, kelvin, "agent", "--listen", "0.0.0.0", "--token-file", token_path)
    with background_process(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        if not process.stdout.readline().startswith("0.0.0.0:"):
            raise RuntimeError("the agent does not listen")
        yield process


@contextmanager
def token_file():
    """Yields the path of a file with a new secret."""
    with tempfile.TemporaryDirectory(prefix="kelvin-token-") as directory:
        path = Path(directory, "token")
        path.touch(mode=0o600)
        path.write_text(os.urandom(32).hex())
        yield path


def run_against_agent(kelvin, host, cpu, token_path, seconds, names=("cpu.clock.pair", "--quick")):
    """The report of a run against the agent: of these names, by default of everything to another host in a quick run.

    The default has one short measurement of this machine. Without seconds the run takes the time that its rounds need.
    """
    budget = [] if seconds is None else ["--budget", f"{seconds:g}s"]
    command = [kelvin, "run", *names, *budget, "--cpu", cpu, "--json",
               "--no-store", "--peer", AGENT_ADDRESS, "--token-file", token_path]
    return json.loads(common.run(in_namespace(host, *command)))
