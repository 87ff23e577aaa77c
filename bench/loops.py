"""The work of kelvin's cases by plain loops and other tools: their spread from run to run is the machine's share of it.

An area's loops follow from the results of a run: for each of its cases that another program can do, the metric, the case, and a
function without arguments that runs the program and gives its figure.
"""
import statistics

import common
from memory import MemoryRivals
from net import NetworkRivals
from streams import Iperf3

# Operations of the memory area that have a C loop: those of stream_loop.
STREAMED = ["read", "write", "copy", "triad", "fill", "zero"]
# Processes among which the time of a ping-pong is divided, as kelvin divides its own among rounds, and how long each
# lasts.
PROCESSES = 6
TRIP_SECONDS = 0.05
STREAM_SECONDS = 1
# The smallest message that iperf3 sends as fast as the connection accepts it, and not as fast as it can read the clock.
MIN_STREAM_MESSAGE = 4096


class Loops:
    """The loops of some areas, on the CPU of those rivals and another one; a loop of memory takes this long."""

    def __init__(self, rivals, other_cpu, areas, seconds):
        self.rivals, self.areas, self.seconds = rivals, areas, seconds
        # What is missing is reported before the first run, not after it.
        self.movers = MemoryRivals(self.rivals, seconds) if "mem" in areas else None
        self.others = NetworkRivals(self.rivals, other_cpu, PROCESSES * TRIP_SECONDS, PROCESSES)
        if "net" in areas:
            self.rivals.program("pingpong")
            self.iperf3 = Iperf3(common.require_program("iperf3", "iperf3"), (rivals.cpu, other_cpu))

    def measure_loops(self, run, chance):
        """The figure of each now, in random order."""
        loops = []
        if "mem" in self.areas:
            loops += self.memory_loops(run)
        if "net" in self.areas:
            loops += self.network_loops(run)
        return [{"metric": metric, "case": case, "value": loop()} for metric, case, loop in chance.sample(loops, len(loops))]

    def memory_loops(self, run):
        cases = cases_by_metric(run)
        # Its first fifty batches, of 3 ms in memory and more where that is busy, warm up.
        chase = lambda bytes, pages: lambda: self.rivals.c_loop("chase_loop", "chase.load", max(self.seconds, 2), str(bytes), pages)
        stream = lambda loop, threads, bytes: lambda: self.movers.stream(loop, threads, bytes * threads).median
        loops = []
        latencies = [(int(axes["bytes"]), axes["pages"], case) for axes, case in cases.get("mem.latency", [])]
        for pages in ("base", "huge"):
            of_pages = [(bytes, case) for bytes, kind, case in latencies if kind == pages]
            wanted = {256 << 10, max((bytes for bytes, _ in of_pages), default=0)}
            loops += [("mem.latency", case, chase(bytes, pages)) for bytes, case in of_pages if bytes in wanted]
        for operation in STREAMED:
            metric = f"mem.bandwidth.{operation}"
            for cpus, threads in (("one", 1), ("all", self.rivals.cpu + 1)):
                of_cpus = [(int(axes["bytes"]), case) for axes, case in cases.get(metric, []) if axes["cpus"] == cpus]
                for bytes, case in sorted(of_cpus)[-1:]:
                    loops.append((metric, case, stream(operation, threads, bytes)))
        return loops

    def network_loops(self, run):
        """Round trips on one CPU by a C ping-pong, single TCP streams by iperf3, with sender and receiver on the same CPUs."""
        cases = cases_by_metric(run)
        trip = lambda protocol, bytes: lambda: self.others.round_trip(protocol, "same_cpu", bytes)
        stream = lambda bytes, placement: lambda: self.iperf3.rate(bytes, 1, STREAM_SECONDS, placement)
        loops = []
        for protocol in ("tcp", "udp", "unix"):
            metric = f"net.rtt.{protocol}"
            on_one = [(axes, case) for axes, case in cases.get(metric, []) if axes["placement"] == "same_cpu"]
            loops += [(metric, case, trip(protocol, int(axes["message"]))) for axes, case in on_one]
        metric = "net.bandwidth.tcp"
        for axes, case in cases.get(metric, []):
            if axes["streams"] == "1" and int(axes["message"]) >= MIN_STREAM_MESSAGE:
                loops.append((metric, case, stream(int(axes["message"]), axes["placement"])))
        return loops


def cases_by_metric(run):
    """The cases of a run: metric to pairs of parameters and the case's text."""
    cases = {}
    for result in run["results"]:
        axes = dict(part.split("=") for part in result["case"].split())
        cases.setdefault(result["metric"], []).append((axes, result["case"]))
    return cases


def deviations(data):
    """The coefficient of variation of each loop over the runs: (metric, case) to it, where there are three values."""
    values = {}
    for run in data["runs"]:
        for loop in run.get("loops", []):
            values.setdefault((loop["metric"], loop["case"]), []).append(loop["value"])
    return {key: statistics.stdev(all) / statistics.fmean(all) for key, all in values.items() if len(all) >= 3}
