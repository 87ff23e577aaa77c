#!/usr/bin/env python3
"""Whether unauthenticated clients of an agent change what it measures for an authenticated one.

Three hosts, which are network namespaces of this machine: one runs `kelvin agent`; one runs kelvin against it, over a link that
a shaper limits (--rate); unauthenticated clients connect from the third, over a link of its own. A pair is one run with them and
one without, interleaved in random order. The ratio with / without over the pairs is judged: its Hodges-Lehmann estimate and the
exact 90 % interval of the signed-rank test, which must lie within 5 %. Ratios whose interval contains a bound get more pairs.

The clients do all of this at the same time, during the whole run:

  idle     1,000 silent connections; the agent keeps the last 64 from one host, and --reopen more are opened every second
  slow     a connection that sends a byte of a greeting every 50 ms
  huge     a frame that announces 4 GiB, 5 times a second
  wrong    a handshake with a wrong secret, 20 times a second; the agent must refuse each

The agent is pinned to one CPU and kelvin to another, where there are two. On real hosts the clients would have their own CPUs.
Here they run in the idle class of the scheduler, and so yield to both. In all runs a thread of that class spins on each CPU,
because a CPU that other load keeps awake is woken faster.

Exit status: 0 all hold, 1 at least one does not, 2 it could not be done.
"""
import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import common
import hosts

# Allowed relative difference.
TOLERANCE = 0.05
IDLE_CONNECTIONS = 1000
# The handshake with an agent (crates/wire: message.rs, noise.rs): the start of a greeting, the size of a Noise message, and the first byte
# of a verdict that refuses the secret.
MAGIC, NOISE_MESSAGE_BYTES, WRONG_SECRET_VERDICT = b"kelvin to agent\n", 48, 2
PROGRAM = Path(__file__).resolve()


# ---- the unauthenticated clients, in a process of their own


class UnauthenticatedClients:
    """The connections of unauthenticated clients to the agent's port."""

    def __init__(self, host, reopen_rate):
        self.host, self.reopen_rate = host, reopen_rate
        self.counts = {"idle": 0, "slow bytes": 0, "huge": 0, "wrong": 0, "not answered": 0}

    async def connect(self):
        return await asyncio.open_connection(self.host, hosts.AGENT_PORT)

    async def open_idle(self, ready):
        connections = []
        while True:
            try:
                connections.append(await self.connect())
                self.counts["idle"] += 1
            except OSError:
                self.counts["not answered"] += 1
            if len(connections) < IDLE_CONNECTIONS:
                continue
            ready.set()
            connections.pop(0)[1].close()
            await asyncio.sleep(1 / self.reopen_rate)

    async def send_slowly(self):
        while True:
            reader, writer = await self.connect()
            try:
                for byte in make_greeting(json.loads(await read_frame(reader))):
                    writer.write(bytes([byte]))
                    await writer.drain()
                    self.counts["slow bytes"] += 1
                    await asyncio.sleep(0.05)
            except (OSError, asyncio.IncompleteReadError):
                pass
            writer.close()

    async def announce_huge_frame(self):
        while True:
            reader, writer = await self.connect()
            try:
                writer.write(b"\xff\xff\xff\xff")
                await reader.read()
                self.counts["huge"] += 1
            except OSError:
                # The agent reset the connection without reading the bytes.
                self.counts["huge"] += 1
            writer.close()
            await asyncio.sleep(0.2)

    async def try_wrong_secret(self):
        while True:
            try:
                is_refused = await asyncio.wait_for(self.is_secret_refused(), 5)
            except (OSError, asyncio.IncompleteReadError, asyncio.TimeoutError):
                is_refused = False
            self.counts["wrong" if is_refused else "not answered"] += 1
            await asyncio.sleep(0.05)

    async def is_secret_refused(self):
        """Whether a wrong secret was refused as such."""
        reader, writer = await self.connect()
        writer.write(make_greeting(json.loads(await read_frame(reader))))
        verdict = await reader.readexactly(1 + NOISE_MESSAGE_BYTES)
        writer.close()
        return verdict[0] == WRONG_SECRET_VERDICT

    async def run(self):
        ready, stop_event = asyncio.Event(), asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop_event.set)
        tasks = [asyncio.create_task(client) for client in (self.open_idle(ready), self.send_slowly(), self.announce_huge_frame(), self.try_wrong_secret())]
        await ready.wait()
        print("ready", flush=True)
        await stop_event.wait()
        for task in tasks:
            if task.done():
                task.result()
            task.cancel()
        print(json.dumps(self.counts), flush=True)


async def read_frame(reader):
    length = int.from_bytes(await reader.readexactly(4), "little")
    return await reader.readexactly(length)


def make_greeting(hello):
    """The answer of a client without the secret to a hello."""
    return MAGIC + hello["protocol"].to_bytes(4, "little") + os.urandom(NOISE_MESSAGE_BYTES)


def set_idle_policy():
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


# ---- the side of a pair with clients


@contextmanager
def unauthenticated_clients(host, reopen_rate, totals):
    """Runs the clients within the block, and adds their counts to the totals at the end."""
    command = hosts.in_namespace(host, sys.executable, PROGRAM, "--unauthenticated", hosts.AGENT_ADDRESS_FOR_UNAUTHENTICATED, "--reopen", reopen_rate)
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    try:
        if process.stdout.readline().strip() != "ready":
            raise RuntimeError("the unauthenticated clients cannot reach the agent")
        yield
    finally:
        process.terminate()
        output, _ = process.communicate(timeout=30)
    for kind, count in json.loads(output.splitlines()[-1]).items():
        totals[kind] = totals.get(kind, 0) + count


def resident_and_threads(process):
    """The agent's memory in KiB, and its threads."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return [next(int(line.split()[1]) for line in lines if line.startswith(field)) for field in ("VmRSS:", "Threads:")]


# ---- the compared quantities


@dataclass
class Quantity:
    """A figure of a run, with unauthenticated clients and without them."""

    metric: str
    case: str
    name: str
    figures: dict = field(default_factory=lambda: {"with": [], "without": []})

    def add_report(self, report, side):
        self.figures[side].append(common.find_summary(report, self.metric, self.case)["headline"])

    def interval(self):
        return common.paired_ratio(self.figures["with"], self.figures["without"])

    def verdict(self):
        _, lower, upper = self.interval()
        if 1 - TOLERANCE <= lower and upper <= 1 + TOLERANCE:
            return "holds"
        return "changed" if upper < 1 - TOLERANCE or lower > 1 + TOLERANCE else "not settled"

    def row(self):
        ratio, lower, upper = self.interval()
        median = lambda side: sorted(self.figures[side])[len(self.figures[side]) // 2]
        format_value = (lambda value: f"{value * 8 / 1e6:.2f} Mbit/s") if "bandwidth" in self.metric else common.format_time
        return [self.name, format_value(median("without")), format_value(median("with")), f"{ratio:.4f}", f"{lower:.4f} to {upper:.4f}",
                len(self.figures["with"]), self.verdict()]


def quantities():
    return [
        Quantity("net.peer.rtt", "message=64 protocol=tcp", "round trip, TCP, 64 B"),
        Quantity("net.peer.rtt", "message=64 protocol=udp", "round trip, UDP, 64 B"),
        Quantity("net.peer.connect", "", "opening a connection"),
        Quantity("net.peer.bandwidth", "direction=to_agent streams=1", "TCP, one stream"),
    ]


def parse():
    parser = hosts.make_pairs_parser(__doc__)
    parser.add_argument("--reopen", type=float, default=50, help="idle connections opened each second [default: %(default)s]")
    parser.add_argument("--unauthenticated", metavar="HOST", help=argparse.SUPPRESS)
    return common.parse_pairs(parser)


def measure(arguments):
    kelvin, order = common.kelvin_program(arguments.kelvin), random.Random(arguments.seed)
    cpus = sorted(os.sched_getaffinity(0))
    selection, client_totals, resident_values = quantities(), {}, []
    with ExitStack() as stack:
        token = stack.enter_context(hosts.token_file())
        for cpu in cpus:
            spin_command = [sys.executable, "-c", "while True: pass"]
            spinner = stack.enter_context(hosts.background_process([common.require_program("taskset", "util-linux"), "-c", cpu, *spin_command]))
            os.sched_setscheduler(spinner.pid, os.SCHED_IDLE, os.sched_param(0))
        names = stack.enter_context(hosts.three_hosts(arguments.rate))
        process = stack.enter_context(hosts.running_agent(kelvin, names["agent"], cpus[0], token))
        for pair_number, _ in common.pair_rounds(arguments, selection):
            for side in order.sample(["with", "without"], 2):
                with unauthenticated_clients(names["unauthenticated"], arguments.reopen, client_totals) if side == "with" else nullcontext():
                    report = hosts.run_against_agent(kelvin, names["kelvin"], cpus[-1], token, arguments.seconds)
                for quantity in selection:
                    quantity.add_report(report, side)
            resident_values.append(resident_and_threads(process))
            common.log(f"{pair_number} pairs")
    return {"seconds": arguments.seconds, "rate": arguments.rate, "quantities": selection, "came": client_totals, "resident": resident_values}


def tables(measured):
    results, resident_values = [Quantity(**quantity) for quantity in measured["quantities"]], measured["resident"]
    header = ["quantity", "without", "with them", "ratio", "90 % interval", "pairs", "verdict"]
    text = f"{measured['seconds']:g} s a run, link of {measured['rate']}.\n\n{common.table(header, [quantity.row() for quantity in results])}\n\n"
    text += f"They came to: {', '.join(f'{count} {kind}' for kind, count in measured['came'].items())}. "
    text += f"The agent had {resident_values[0][0]} KiB and {resident_values[0][1]} threads after the first pair, {resident_values[-1][0]} KiB and {resident_values[-1][1]} threads after the last."
    # Otherwise the test is void, for example because the handshake has changed.
    was_refused = measured["came"].get("wrong", 0) > 0
    text += "" if was_refused else " **No wrong secret was refused.**"
    return text, was_refused and all(quantity.verdict() == "holds" for quantity in results)


if __name__ == "__main__":
    if "--unauthenticated" in sys.argv:
        set_idle_policy()
        client_arguments = parse()
        asyncio.run(UnauthenticatedClients(client_arguments.unauthenticated, client_arguments.reopen).run())
    else:
        common.main(parse, measure, tables)
