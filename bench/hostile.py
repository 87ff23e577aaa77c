#!/usr/bin/env python3
"""Whether unauthenticated clients of an agent change what it measures for an authenticated one.

Three hosts, which are network namespaces of this machine: one runs `kelvin agent`; one runs kelvin against it, over a link that
a shaper limits (--rate); from the third, over a link of its own, come unauthenticated clients. A pair is one run with them and
one without, one right after the other in random order. The ratio with / without over the pairs is judged: its Hodges-Lehmann
estimate and the exact 90 % interval of the signed-rank test, which must lie within 5 %. Ratios that straddle that get more
pairs.

All at once, for as long as the run takes:

  idle     1,000 silent connections; the agent keeps the last 64 from one host, and --reopen more are opened every second
  slow     a connection that sends a byte of a greeting every 50 ms
  huge     a frame that announces 4 GiB, 5 times a second
  wrong    a handshake with a wrong secret, 20 times a second; each must be answered by a refusal

The agent is pinned to one CPU and kelvin to another, where there are two. On real hosts the clients would have their own CPUs:
here they run in the scheduler's idle class, and so yield to both. A thread of that class spins on each CPU in all runs, with
them or without, because a CPU that other load keeps awake is woken faster.

Exit status: 0 all hold, 1 one does not, 2 it could not be done.
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
WITHIN = 0.05
IDLE_CONNECTIONS = 1000
# The handshake with an agent (crates/wire: message.rs, noise.rs): how each greeting begins, bytes of a message of Noise, and the word of a
# verdict that refuses the secret.
MAGIC, NOISE, SECRET_WRONG = b"kelvin to agent\n", 48, 2
PROGRAM = Path(__file__).resolve()


# ---- the unauthenticated clients, in a process of their own


class Unauthenticated:
    """The connections of unauthenticated clients to the agent's port."""

    def __init__(self, host, reopen):
        self.host, self.reopen = host, reopen
        self.count = {"idle": 0, "slow bytes": 0, "huge": 0, "wrong": 0, "not answered": 0}

    async def connect(self):
        return await asyncio.open_connection(self.host, hosts.PORT)

    async def idle(self, ready):
        held = []
        while True:
            try:
                held.append(await self.connect())
                self.count["idle"] += 1
            except OSError:
                self.count["not answered"] += 1
            if len(held) < IDLE_CONNECTIONS:
                continue
            ready.set()
            held.pop(0)[1].close()
            await asyncio.sleep(1 / self.reopen)

    async def slow(self):
        while True:
            reader, writer = await self.connect()
            try:
                for byte in greeting(json.loads(await frame(reader))):
                    writer.write(bytes([byte]))
                    await writer.drain()
                    self.count["slow bytes"] += 1
                    await asyncio.sleep(0.05)
            except (OSError, asyncio.IncompleteReadError):
                pass
            writer.close()

    async def huge(self):
        while True:
            reader, writer = await self.connect()
            try:
                writer.write(b"\xff\xff\xff\xff")
                await reader.read()
                self.count["huge"] += 1
            except OSError:
                # Cut off by a reset, with its bytes unread.
                self.count["huge"] += 1
            writer.close()
            await asyncio.sleep(0.2)

    async def wrong(self):
        while True:
            try:
                refused = await asyncio.wait_for(self.handshake(), 5)
            except (OSError, asyncio.IncompleteReadError, asyncio.TimeoutError):
                refused = False
            self.count["wrong" if refused else "not answered"] += 1
            await asyncio.sleep(0.05)

    async def handshake(self):
        """Whether a wrong secret was refused as such."""
        reader, writer = await self.connect()
        writer.write(greeting(json.loads(await frame(reader))))
        verdict = await reader.readexactly(1 + NOISE)
        writer.close()
        return verdict[0] == SECRET_WRONG

    async def run(self):
        ready, over = asyncio.Event(), asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
        tasks = [asyncio.create_task(one) for one in (self.idle(ready), self.slow(), self.huge(), self.wrong())]
        await ready.wait()
        print("ready", flush=True)
        await over.wait()
        for task in tasks:
            if task.done():
                task.result()
            task.cancel()
        print(json.dumps(self.count), flush=True)


async def frame(reader):
    length = int.from_bytes(await reader.readexactly(4), "little")
    return await reader.readexactly(length)


def greeting(hello):
    """The answer to a hello by one who does not know the secret."""
    return MAGIC + hello["protocol"].to_bytes(4, "little") + os.urandom(NOISE)


def be_idle():
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


# ---- their side of a pair


@contextmanager
def unauthenticated(host, reopen, came):
    """They connect, and their counts are added up at the end."""
    command = hosts.in_namespace(host, sys.executable, PROGRAM, "--unauthenticated", hosts.AGENT_FOR_UNAUTHENTICATED, "--reopen", reopen)
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    try:
        if process.stdout.readline().strip() != "ready":
            raise RuntimeError("the unauthenticated clients cannot reach the agent")
        yield
    finally:
        process.terminate()
        said, _ = process.communicate(timeout=30)
    for what, count in json.loads(said.splitlines()[-1]).items():
        came[what] = came.get(what, 0) + count


def resident(process):
    """The agent's memory in KiB, and its threads."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return [next(int(line.split()[1]) for line in lines if line.startswith(what)) for what in ("VmRSS:", "Threads:")]


# ---- what is compared


@dataclass
class Quantity:
    """A figure of a run, with unauthenticated clients and without them."""

    metric: str
    case: str
    name: str
    figures: dict = field(default_factory=lambda: {"with": [], "without": []})

    def take(self, report, side):
        self.figures[side].append(common.find_summary(report, self.metric, self.case)["headline"])

    def interval(self):
        return common.ratio_of_pairs(self.figures["with"], self.figures["without"])

    def verdict(self):
        _, lower, upper = self.interval()
        if 1 - WITHIN <= lower and upper <= 1 + WITHIN:
            return "holds"
        return "changed" if upper < 1 - WITHIN or lower > 1 + WITHIN else "not settled"

    def row(self):
        ratio, lower, upper = self.interval()
        middle = lambda side: sorted(self.figures[side])[len(self.figures[side]) // 2]
        text = (lambda value: f"{value * 8 / 1e6:.2f} Mbit/s") if "bandwidth" in self.metric else common.time_text
        return [self.name, text(middle("without")), text(middle("with")), f"{ratio:.4f}", f"{lower:.4f} to {upper:.4f}",
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
    parser.add_argument("--reopen", type=float, default=50, help="idle connections opened anew each second [default: %(default)s]")
    parser.add_argument("--unauthenticated", metavar="HOST", help=argparse.SUPPRESS)
    return common.parse_pairs(parser)


def measure(arguments):
    kelvin, order = common.kelvin_program(arguments.kelvin), random.Random(arguments.seed)
    cpus = sorted(os.sched_getaffinity(0))
    chosen, came, grown = quantities(), {}, []
    with ExitStack() as stack:
        token = stack.enter_context(hosts.token())
        for cpu in cpus:
            spin = [sys.executable, "-c", "while True: pass"]
            awake = stack.enter_context(hosts.running([common.require_program("taskset", "util-linux"), "-c", cpu, *spin]))
            os.sched_setscheduler(awake.pid, os.SCHED_IDLE, os.sched_param(0))
        names = stack.enter_context(hosts.three_hosts(arguments.rate))
        process = stack.enter_context(hosts.agent(kelvin, names["agent"], cpus[0], token))
        for done, _ in common.pair_rounds(arguments, chosen):
            for side in order.sample(["with", "without"], 2):
                with unauthenticated(names["unauthenticated"], arguments.reopen, came) if side == "with" else nullcontext():
                    report = hosts.measure(kelvin, names["kelvin"], cpus[-1], token, arguments.seconds)
                for one in chosen:
                    one.take(report, side)
            grown.append(resident(process))
            common.log(f"{done} pairs")
    return {"seconds": arguments.seconds, "rate": arguments.rate, "quantities": chosen, "came": came, "resident": grown}


def tables(measured):
    chosen, grown = [Quantity(**one) for one in measured["quantities"]], measured["resident"]
    header = ["quantity", "without", "with them", "ratio", "90 % interval", "pairs", "verdict"]
    text = f"{measured['seconds']:g} s a run, link of {measured['rate']}.\n\n{common.table(header, [one.row() for one in chosen])}\n\n"
    text += f"They came to: {', '.join(f'{count} {what}' for what, count in measured['came'].items())}. "
    text += f"The agent had {grown[0][0]} KiB and {grown[0][1]} threads after the first pair, {grown[-1][0]} KiB and {grown[-1][1]} threads after the last."
    # Else nobody tried it: the handshake has changed.
    was_refused = measured["came"].get("wrong", 0) > 0
    text += "" if was_refused else " **No wrong secret was refused.**"
    return text, was_refused and all(one.verdict() == "holds" for one in chosen)


if __name__ == "__main__":
    if "--unauthenticated" in sys.argv:
        be_idle()
        wishes = parse()
        asyncio.run(Unauthenticated(wishes.unauthenticated, wishes.reopen).run())
    else:
        common.main(parse, measure, tables)
