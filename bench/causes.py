#!/usr/bin/env python3
"""Whether `kelvin why` gives a planted cause the share that it has.

Each case is a figure with a cause that was planted: a socket buffer of 4 KiB, a system whose congestion control paces, zero copy over
loopback, reads past the page cache, read-ahead for touches far apart, a quota of CPU time. How much the cause takes is found apart from
`why`, by measuring the figure with it and without it in turn, or follows from the construction. `why` must name the cause, with that share
to within 5 points, and nothing that cannot be there.

Needs root for the network of its own and the control group. Exit status: 0 all hold, 1 one does not, 2 it could not be done.
"""
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import common

POINTS = 5.0
TIMES = 5
ROUNDS = 12
GROUPS = Path("/sys/fs/cgroup/cpu")

STREAM = ["net.bandwidth.tcp", "placement=same_cpu", "streams=1", "message=64KiB"]
SYSTEM = ["net.bandwidth.tcp.system", "placement=same_cpu", "message=64KiB"]
WAY = ["net.bandwidth.tcp.way", "placement=same_cpu", "message=4KiB"]
READ = ["file.blocksize.read", "block=4KiB"]
TOUCH = ["mem.fault.major", "step_bytes=16MiB"]


def in_network(control):
    """What a shell does before: a network of its own with this congestion control."""
    return f"ip link set lo up && echo {control} > /proc/sys/net/ipv4/tcp_congestion_control"


# Name, cause, what cannot be there; then the figure with the cause and without it: its name, and what a shell does before.
CASES = [
    ("a socket buffer of 4 KiB", "socket_buffers", ["congestion_control"], ([*STREAM, "--socket-buffers", "4k"], None), (STREAM, None)),
    ("a system under bbr", "congestion_control", ["zero_copy"], (SYSTEM, in_network("bbr")), (SYSTEM, in_network("cubic"))),
    ("zero copy over loopback", "zero_copy", ["congestion_control"], ([*WAY, "way=zerocopy"], None), ([*WAY, "way=send"], None)),
    ("reads past the page cache", "cold_cache", ["read_ahead"], ([*READ, "cache=direct"], None), ([*READ, "cache=cached"], None)),
    ("read-ahead for touches far apart", "read_ahead", ["cold_cache"], ([*TOUCH, "read_ahead=on"], None), (["mem.fault.major", "read_ahead=off", "step_bytes=4KiB"], None)),
    ("a quota of a twentieth", "group_quota", ["memory_limit"], (["os.ipc.pipe.bandwidth", "placement=same_cpu", "message=64KiB"], "quota"), 95.0),
]  # fmt: skip


def parse():
    parser = common.parser_of(__doc__)
    parser.add_argument("--only", action="append", choices=[case[0] for case in CASES], help="this one alone; repeatable")
    return parser.parse_args()


def explained(kelvin, asked, before):
    """What `why` says of a figure."""
    command = [str(kelvin), "why", *asked, "--budget", "minimum", "--rounds", str(ROUNDS), "--json"]
    if before:
        words = " ".join(f"'{word}'" for word in command)
        command = ["unshare", "--net", "sh", "-c", f"{before} && exec {words}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: exit status {done.returncode}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def judge(kelvin, case, group):
    """A row of the table, and whether it holds."""
    name, cause, absent, (asked, before), without = case
    if before == "quota":
        before = f"echo 0 > {group}/tasks"
    explanations = [explained(kelvin, asked, before)]
    if isinstance(without, tuple):
        rest = []
        for _ in range(TIMES):
            rest.append(explained(kelvin, *without))
            explanations.append(explained(kelvin, asked, before))
        amount = lambda one: one["whole"]["value"]
        planted = 100 * (1 - statistics.median(map(amount, rest)) / statistics.median(map(amount, explanations)))
    else:
        planted = without
    verdicts, shares, wrong = [], [], set()
    for one in explanations:
        verdicts.append(next((str(told["verdict"]) for told in one["causes"] if told["id"] == cause), "absent"))
        parts = {part["of"].get("cause"): part["share"]["value"] for part in one["parts"] if isinstance(part["of"], dict)}
        shares += [100 * parts[cause]] if cause in parts else []
        wrong |= set(absent) & set(parts)
    found = statistics.median(shares) if shares else None
    holds = found is not None and abs(found - planted) <= POINTS and not wrong
    shown = f"{verdicts.count('shown')} of {len(verdicts)}"
    row = [name, cause, f"{planted:.0f} %", "-" if found is None else f"{found:.0f} %", shown, ", ".join(sorted(wrong)) or "-", "holds" if holds else "MISSED"]
    return row, holds


def benchmark():
    arguments = parse()
    kelvin = common.kelvin_program(arguments.kelvin)
    if os.geteuid():
        common.say("needs root: a network of its own, and a control group")
        sys.exit(2)
    print(f"Shares of planted causes: {common.describe_machine()}\n")
    group = GROUPS / f"kelvin-bench-{os.getpid()}"
    rows, kept = [], True
    try:
        for case in CASES:
            if arguments.only and case[0] not in arguments.only:
                continue
            common.say(case[0])
            if case[3][1] == "quota":
                group.mkdir()
                (group / "cpu.cfs_period_us").write_text("20000")
                (group / "cpu.cfs_quota_us").write_text("1000")
            row, holds = judge(kelvin, case, group)
            rows.append(row)
            kept = kept and holds
    finally:
        if group.exists():
            group.rmdir()
    print(common.table(["planted", "cause", "share", "found", "shown", "wrongly named", ""], rows))
    return kept


if __name__ == "__main__":
    common.main(benchmark)
