"""Remote NUMA memory, on a machine that has some: a guest with two nodes of CPUs and memory, and one of memory alone.

The guest measures mem.node; every pair of nodes must come out, with the memory proven to lie on the requested node, and the
latency of another node's predicted by the distances that the firmware states.
"""
import json

import guest

# Megabytes of each node, and the firmware's distances.
NODES = [768, 768, 512]
DISTANCES = [[10, 21, 17], [21, 10, 28], [17, 28, 10]]
CPUS = {0: 0, 1: 1}
PAIRS = {(cpu_node, node) for cpu_node in CPUS.values() for node in range(len(NODES))}
SCRIPT = "/bin/kelvin run mem.node --budget minimum --rounds 2 --no-store --no-report --json"


def contents(_, built):
    """kelvin, and these nodes."""
    asked = ["-smp", len(CPUS), "-m", f"{sum(NODES)}M"]
    for node, size in enumerate(NODES):
        cpus = "".join(f",cpus={cpu}" for cpu, of in CPUS.items() if of == node)
        asked += ["-object", f"memory-backend-ram,id=m{node},size={size}M", "-numa", f"node,nodeid={node}{cpus},memdev=m{node}"]
    for one, row in enumerate(DISTANCES):
        for other, distance in enumerate(row[:one]):
            asked += ["-numa", f"dist,src={one},dst={other},val={distance}"]
    return guest.GuestContents(programs=[built.kelvin], options=asked)


def pair_of(result):
    return result["case"]["from"], result["case"]["to"]


def check(written):
    """Every pair, with where its memory lay, and what is predicted of another node's."""
    report = json.loads(written[written.index("{") :])
    for metric in ("mem.node.latency", "mem.node.bandwidth"):
        of_metric = [one for one in report["analysis"]["results"] if one["metric"]["id"] == metric]
        found = {pair_of(one): one for one in of_metric}
        assert set(found) == PAIRS, f"{metric}: {sorted(found)}"
        for (cpu_node, node), one in found.items():
            summary = one["outcome"].get("measured")
            assert summary, f"{metric} from {cpu_node} to {node}: {one['outcome']}"
            value = summary["headline"]
            assert value and value > 0, f"{metric} from {cpu_node} to {node}: {summary}"
            assert f"on node {node} by move_pages" in json.dumps(one), f"{metric} from {cpu_node} to {node}: no proof of its node"
            predicted = one.get("prediction")
            if cpu_node == node:
                assert not predicted, f"{metric}: a prediction of a node's own memory"
                continue
            own = found[cpu_node, cpu_node]["outcome"]["measured"]["headline"]
            ratio = DISTANCES[cpu_node][node] / DISTANCES[cpu_node][cpu_node]
            expected = own * ratio if metric.endswith("latency") else own / ratio
            assert abs(predicted["value"] / expected - 1) < 1e-6, f"{metric}: predicted {predicted['value']}, not {expected}"
    return f"{len(PAIRS)} pairs of nodes came out, their memory where it was asked for"
