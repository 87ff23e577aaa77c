"""The operations of kelvin's cases, done by plain loops and other tools. Their spread from run to run is that of the machine.

The loops of an area follow from the results of a run. For each case that another program can do there is a metric, a case, and a
function without arguments that runs the program and returns its figure.
"""
import statistics

import common
from memory import MemoryRivals
from net import NetworkRivals
from streams import Iperf3

# Operations of the memory area that have a C loop: those of stream_loop.
STREAM_OPERATIONS = ["read", "write", "copy", "triad", "fill", "zero"]
# Processes that share the time of a ping-pong, as rounds do in kelvin, and the seconds of each.
PINGPONG_PROCESSES = 6
PROCESS_SECONDS = 0.05
STREAM_SECONDS = 1
# The smallest message for which the connection limits iperf3, and not its reads of the clock.
MIN_STREAM_MESSAGE = 4096


class Loops:
    """The loops of some areas, on the CPU of the rivals and another CPU. `seconds` is the time of a memory loop."""

    def __init__(self, rivals, other_cpu, areas, seconds):
        self.rivals, self.areas, self.seconds = rivals, areas, seconds
        # A missing program is reported before the first run, not after it.
        self.memory_rivals = MemoryRivals(self.rivals, seconds) if "mem" in areas else None
        self.network_rivals = NetworkRivals(self.rivals, other_cpu, PINGPONG_PROCESSES * PROCESS_SECONDS, PINGPONG_PROCESSES)
        if "net" in areas:
            self.rivals.program("pingpong")
            self.iperf3 = Iperf3(common.require_program("iperf3", "iperf3"), (rivals.cpu, other_cpu))

    def measure_loops(self, run, random_source):
        """Runs every loop, in random order, and returns the figures."""
        loops = []
        if "mem" in self.areas:
            loops += self.memory_loops(run)
        if "net" in self.areas:
            loops += self.network_loops(run)
        return [{"metric": metric, "case": case, "value": run_loop()} for metric, case, run_loop in random_source.sample(loops, len(loops))]

    def memory_loops(self, run):
        cases = cases_by_metric(run)
        # The first fifty batches warm up. In memory each takes 3 ms, or more if the memory is busy.
        chase = lambda size, pages: lambda: self.rivals.run_c_loop("chase_loop", "chase.load", max(self.seconds, 2), str(size), pages)
        stream = lambda loop, threads, size: lambda: self.memory_rivals.stream(loop, threads, size * threads).median
        loops = []
        latencies = [(int(axes["bytes"]), axes["pages"], case) for axes, case in cases.get("mem.latency", [])]
        for pages in ("base", "huge"):
            page_cases = [(size, case) for size, kind, case in latencies if kind == pages]
            chase_sizes = {256 << 10, max((size for size, _ in page_cases), default=0)}
            loops += [("mem.latency", case, chase(size, pages)) for size, case in page_cases if size in chase_sizes]
        for operation in STREAM_OPERATIONS:
            metric = f"mem.bandwidth.{operation}"
            for cpus, threads in (("one", 1), ("all", self.rivals.cpu + 1)):
                cpu_cases = [(int(axes["bytes"]), case) for axes, case in cases.get(metric, []) if axes["cpus"] == cpus]
                for size, case in sorted(cpu_cases)[-1:]:
                    loops.append((metric, case, stream(operation, threads, size)))
        return loops

    def network_loops(self, run):
        """Round trips on one CPU by a C ping-pong, single TCP streams by iperf3, with sender and receiver on the same CPUs."""
        cases = cases_by_metric(run)
        round_trip = lambda protocol, size: lambda: self.network_rivals.c_round_trip(protocol, "same_cpu", size)
        stream = lambda size, placement: lambda: self.iperf3.rate(size, 1, STREAM_SECONDS, placement)
        loops = []
        for protocol in ("tcp", "udp", "unix"):
            metric = f"net.rtt.{protocol}"
            same_cpu_cases = [(axes, case) for axes, case in cases.get(metric, []) if axes["placement"] == "same_cpu"]
            loops += [(metric, case, round_trip(protocol, int(axes["message"]))) for axes, case in same_cpu_cases]
        metric = "net.bandwidth.tcp"
        for axes, case in cases.get(metric, []):
            if axes["streams"] == "1" and int(axes["message"]) >= MIN_STREAM_MESSAGE:
                loops.append((metric, case, stream(int(axes["message"]), axes["placement"])))
        return loops


def cases_by_metric(run):
    """The cases of a run: metric to pairs of parameters and the case's text."""
    cases = {}
    for result in run["results"]:
        axes = dict(pair.split("=") for pair in result["case"].split())
        cases.setdefault(result["metric"], []).append((axes, result["case"]))
    return cases


def deviations(data):
    """The coefficient of variation of each loop with at least three values over the runs, by metric and case."""
    values = {}
    for run in data["runs"]:
        for loop in run.get("loops", []):
            values.setdefault((loop["metric"], loop["case"]), []).append(loop["value"])
    return {key: statistics.stdev(loop_values) / statistics.fmean(loop_values) for key, loop_values in values.items() if len(loop_values) >= 3}
