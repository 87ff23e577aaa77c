#!/usr/bin/env python3
"""kelvin-cluster as Slurm's srun starts it, on hosts that are namespaces.

usage: cluster.py LAUNCHER PROGRAM KELVIN

LAUNCHER is open_mpi or mpich, whose PROGRAM is built with it.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

# What tests of several programs share.
sys.path.append(str(Path(__file__).parents[1]))

from made_hosts import CONTROL, Hosts
from slurm import Slurm

ROOT = Path(__file__).parents[2]
NAMES = ["n1", "n2"]
# What finds its ranks by which interface of srun, and what does not.
RIGHT = {"open_mpi": "pmix", "mpich": "pmi2"}
WRONG = {"open_mpi": ["none", "pmi2"], "mpich": ["none", "pmix"]}
# Over the network of the hosts, which is slow enough for bytes to be counted.
VARIABLES = {
    "OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "tcp,self", "OMPI_MCA_btl_tcp_if_include": "eth0", "OMPI_MCA_mpi_yield_when_idle": "1",
    "UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "eth0", "UCX_RNDV_THRESH": "inf", "MPIR_CVAR_NOLOCAL": "1",
}  # fmt: skip
RESULTS = "results.jsonl"


def skip(needs, reason):
    subprocess.run([ROOT / "scripts/skip", needs, "kelvin-cluster under srun", reason], check=True)


class SrunTests:
    def __init__(self, hosts, slurm, launcher, program, work):
        self.hosts, self.slurm, self.launcher, self.program, self.work = hosts, slurm, launcher, program, work

    def start(self, interface, arguments):
        """Starts a job: its status, output and messages, and its events."""
        directory = Path(tempfile.mkdtemp(dir=self.work))
        step = ["srun", f"--mpi={interface}", f"--nodes={len(NAMES)}", "--ntasks-per-node=1", "--cpu-bind=none", f"--chdir={directory}"]
        name, *rest = arguments
        command = self.hosts.command(CONTROL, [*step, self.program, name, "--json", RESULTS, *rest])
        environment = {**self.slurm.environment, **VARIABLES, "HOME": "/proc"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
        results = directory / RESULTS
        events = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
        return done, events

    def ranks_are_one_job(self, kelvin):
        done, events = self.start(RIGHT[self.launcher], ["net", "--passes", "1", "--pair-time", "50ms", "--together-time", "0s"])
        assert done.returncode == 0 and events[-1] == {"event": "end"}, done
        assert [rank["label"] for rank in events[0]["ranks"]] == NAMES, events[0]
        # What a rank starts is under Slurm as well: its job and node are tags.
        out = Path(tempfile.mkdtemp(dir=self.work))
        run = ["os.syscall.null", "--quick", "--budget", "minimum", "--rounds", "2", "--no-canaries", "--dir", "/tmp"]
        done, events = self.start(RIGHT[self.launcher], ["run", "--kelvin", kelvin, "--out", out, "--no-alone", "--", *run])
        assert done.returncode == 0, done
        tags = [json.loads(file.read_text())["tags"] for file in sorted((out / "together").iterdir())]
        assert [tag["node"] for tag in tags] == NAMES and all(tag["job"].isdigit() for tag in tags), tags
        assert len({tag["job"] for tag in tags}) == 1 and tags[0]["hosts"] == "together", tags

    def ranks_that_are_alone_are_refused(self):
        for interface in WRONG[self.launcher]:
            done, events = self.start(interface, ["net"])
            lines = [line for line in done.stderr.splitlines() if not line.startswith("srun: ")]
            expected = f"start it by `srun --mpi={RIGHT[self.launcher]}`, or by `mpirun` inside `salloc`"
            assert done.returncode == 2 and len(lines) == 1 and expected in lines[0] and not events, (interface, done)


def main():
    launcher, *paths = sys.argv[1:]
    program, kelvin = (str(Path(path).resolve()) for path in paths)
    if os.geteuid() != 0:
        return skip("right", "only root can make namespaces as hosts")
    for name, needs in (("ip", "package iproute2"), ("slurmctld", "package slurm-wlm")):
        if not shutil.which(name):
            return skip(needs, f"{name} is not installed")
    with tempfile.TemporaryDirectory(prefix="kelvin-srun-") as work, Hosts(NAMES, work) as hosts, Slurm(hosts) as slurm:
        tests = SrunTests(hosts, slurm, launcher, program, work)
        tests.ranks_that_are_alone_are_refused()
        tests.ranks_are_one_job(kelvin)
    print(f"cluster: {launcher}: srun: passed")
    return None


if __name__ == "__main__":
    main()
