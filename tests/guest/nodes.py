"""Several CPUs and NUMA nodes, in a guest with two sockets of a core with two threads, a node each, and one node of memory only.

The guest measures mem.node. It must measure every pair of nodes, and prove that the memory lies on the requested node. It must predict
the latency of memory on another node by the distances that the firmware reports. Interleaved memory must lie on all nodes alike, and be
predicted by the figures of its node. The guest also measures all pairs of CPUs, and bandwidth and latency with 1, 2 and 4 of them.
"""
import json
import re
import statistics

import guest

# Megabytes of each node, and the distances in the firmware tables.
NODE_MEGABYTES = [768, 768, 512]
DISTANCES = [[10, 21, 17], [21, 10, 28], [17, 28, 10]]
CPU_NODES = {0: 0, 1: 0, 2: 1, 3: 1}
CPU_TOPOLOGY = "4,sockets=2,cores=1,threads=2"
NODE_PAIRS = {(cpu_node, node) for cpu_node in CPU_NODES.values() for node in range(len(NODE_MEGABYTES))}
CPU_PAIRS = {(first, second) for second in CPU_NODES for first in range(second)}
# With those of one node.
WORKING_CPUS = {("all", 1), ("all", 2), ("all", 4), ("one", 1), ("one", 2)}
# Base pages of a huge one, by which the shares of nodes may differ.
HUGE_PAGE_PAGES = 512
SCRIPT = "/bin/kelvin run mem.node mem.core_to_core mem.scaling --budget minimum --rounds 2 --no-store --json"


def contents(_, programs):
    """Guest contents with kelvin and these nodes."""
    options = ["-smp", CPU_TOPOLOGY, "-m", f"{sum(NODE_MEGABYTES)}M"]
    for node, size in enumerate(NODE_MEGABYTES):
        cpus = "".join(f",cpus={cpu}" for cpu, cpu_node in CPU_NODES.items() if cpu_node == node)
        options += ["-object", f"memory-backend-ram,id=m{node},size={size}M", "-numa", f"node,nodeid={node}{cpus},memdev=m{node}"]
    for first, row in enumerate(DISTANCES):
        for second, distance in enumerate(row[:first]):
            options += ["-numa", f"dist,src={first},dst={second},val={distance}"]
    return guest.GuestContents(programs=[programs.kelvin], options=options)


def pair(result):
    return result["case"]["from"], result["case"]["to"]


def measured(report, metric):
    """The results of a metric, each of which must have a figure."""
    results = [result for result in report["analysis"]["results"] if result["metric"]["id"] == metric]
    for result in results:
        summary = result["outcome"].get("measured")
        assert summary and summary["headline"] > 0, f"{metric} {result['case']}: {result['outcome']}"
    return results


def cpu_numbers(ranges):
    """The numbers in a list such as 0-3,6."""
    bounds = [part.split("-") for part in ranges.split(",")]
    return [cpu for part in bounds for cpu in range(int(part[0]), int(part[-1]) + 1)]


def check_cpus(report):
    """Checks that all pairs and all numbers of CPUs have a figure, each of the CPUs that it names."""
    pairs = {pair(result) for result in measured(report, "mem.core_to_core")}
    assert pairs == CPU_PAIRS, f"pairs of CPUs: {sorted(pairs)}"
    for operation in ("read", "write", "copy", "triad", "latency"):
        results = measured(report, f"mem.scaling.{operation}")
        points = {(result["case"]["nodes"], result["case"]["cpus"]) for result in results}
        assert points == WORKING_CPUS, f"{operation}: {sorted(points)}"
    for result in measured(report, "mem.scaling.read"):
        cpus = cpu_numbers(re.search(r"on CPUs ([\d,-]+), ", json.dumps(result))[1])
        nodes = {CPU_NODES[cpu] for cpu in cpus}
        case = result["case"]
        assert len(cpus) == case["cpus"] and (case["nodes"] == "all" or len(nodes) == 1), f"{case}: on CPUs {cpus}"


def headline(result):
    return result["outcome"]["measured"]["headline"]


def check_interleaved(report, metric, headlines_by_pair):
    """Checks that interleaved memory lies on all nodes alike, and that its figure is predicted as the mean of its node's figures."""
    results = {result["case"]["from"]: result for result in measured(report, f"{metric}.interleaved")}
    assert set(results) == set(CPU_NODES.values()), f"{metric}.interleaved: {sorted(results)}"
    nodes = range(len(NODE_MEGABYTES))
    for cpu_node, result in results.items():
        notes = re.findall(r"pages by move_pages: ([^\"]+)", json.dumps(result))
        assert notes, f"{metric}.interleaved from {cpu_node}: no proof of its nodes"
        for note in notes:
            pages = {int(node): int(count) for count, node in re.findall(r"(\d+) on node (\d+)", note)}
            is_even = set(pages) == set(nodes) and max(pages.values()) - min(pages.values()) <= HUGE_PAGE_PAGES
            assert is_even, f"{metric}.interleaved from {cpu_node}: {note}"
        values = [headlines_by_pair[cpu_node, node] for node in nodes]
        mean = statistics.fmean if metric.endswith("latency") else statistics.harmonic_mean
        predicted, expected = result["prediction"]["value"], mean(values)
        assert abs(predicted / expected - 1) < 1e-6, f"{metric}.interleaved: predicted {predicted}, not {expected}"


def check(output):
    """Checks every pair: its figure, the node of its memory, and the prediction for memory of another node."""
    report = json.loads(output[output.index("{") :])
    for metric in ("mem.node.latency", "mem.node.bandwidth"):
        results_by_pair = {pair(result): result for result in measured(report, metric)}
        assert set(results_by_pair) == NODE_PAIRS, f"{metric}: {sorted(results_by_pair)}"
        for (cpu_node, node), result in results_by_pair.items():
            assert f"on node {node} by move_pages" in json.dumps(result), f"{metric} from {cpu_node} to {node}: no proof of its node"
            prediction = result.get("prediction")
            if cpu_node == node:
                assert not prediction, f"{metric}: a prediction of a node's own memory"
                continue
            own_headline = headline(results_by_pair[cpu_node, cpu_node])
            ratio = DISTANCES[cpu_node][node] / DISTANCES[cpu_node][cpu_node]
            expected = own_headline * ratio if metric.endswith("latency") else own_headline / ratio
            assert abs(prediction["value"] / expected - 1) < 1e-6, f"{metric}: predicted {prediction['value']}, not {expected}"
        check_interleaved(report, metric, {nodes: headline(result) for nodes, result in results_by_pair.items()})
    check_cpus(report)
    return f"{len(NODE_PAIRS)} pairs of nodes were measured, with memory on the requested nodes and interleaved, and {len(CPU_PAIRS)} pairs of CPUs"
