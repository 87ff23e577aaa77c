"""Remote NUMA memory, in a guest with two nodes of CPUs and memory, and one node of memory only.

The guest measures mem.node. It must measure every pair of nodes, and prove that the memory lies on the requested node. It must predict
the latency of memory on another node by the distances that the firmware reports.
"""
import json

import guest

# Megabytes of each node, and the distances in the firmware tables.
NODE_MEGABYTES = [768, 768, 512]
DISTANCES = [[10, 21, 17], [21, 10, 28], [17, 28, 10]]
CPU_NODES = {0: 0, 1: 1}
NODE_PAIRS = {(cpu_node, node) for cpu_node in CPU_NODES.values() for node in range(len(NODE_MEGABYTES))}
SCRIPT = "/bin/kelvin run mem.node --budget minimum --rounds 2 --no-store --no-report --json"


def contents(_, programs):
    """Guest contents with kelvin and these nodes."""
    options = ["-smp", len(CPU_NODES), "-m", f"{sum(NODE_MEGABYTES)}M"]
    for node, size in enumerate(NODE_MEGABYTES):
        cpus = "".join(f",cpus={cpu}" for cpu, cpu_node in CPU_NODES.items() if cpu_node == node)
        options += ["-object", f"memory-backend-ram,id=m{node},size={size}M", "-numa", f"node,nodeid={node}{cpus},memdev=m{node}"]
    for first, row in enumerate(DISTANCES):
        for second, distance in enumerate(row[:first]):
            options += ["-numa", f"dist,src={first},dst={second},val={distance}"]
    return guest.GuestContents(programs=[programs.kelvin], options=options)


def node_pair(result):
    return result["case"]["from"], result["case"]["to"]


def check(output):
    """Checks every pair: its figure, the node of its memory, and the prediction for memory of another node."""
    report = json.loads(output[output.index("{") :])
    for metric in ("mem.node.latency", "mem.node.bandwidth"):
        metric_results = [result for result in report["analysis"]["results"] if result["metric"]["id"] == metric]
        results_by_pair = {node_pair(result): result for result in metric_results}
        assert set(results_by_pair) == NODE_PAIRS, f"{metric}: {sorted(results_by_pair)}"
        for (cpu_node, node), result in results_by_pair.items():
            summary = result["outcome"].get("measured")
            assert summary, f"{metric} from {cpu_node} to {node}: {result['outcome']}"
            value = summary["headline"]
            assert value and value > 0, f"{metric} from {cpu_node} to {node}: {summary}"
            assert f"on node {node} by move_pages" in json.dumps(result), f"{metric} from {cpu_node} to {node}: no proof of its node"
            prediction = result.get("prediction")
            if cpu_node == node:
                assert not prediction, f"{metric}: a prediction of a node's own memory"
                continue
            own_headline = results_by_pair[cpu_node, cpu_node]["outcome"]["measured"]["headline"]
            ratio = DISTANCES[cpu_node][node] / DISTANCES[cpu_node][cpu_node]
            expected = own_headline * ratio if metric.endswith("latency") else own_headline / ratio
            assert abs(prediction["value"] / expected - 1) < 1e-6, f"{metric}: predicted {prediction['value']}, not {expected}"
    return f"{len(NODE_PAIRS)} pairs of nodes were measured, with memory on the requested nodes"
