#!/usr/bin/env python3
"""Runs the recipes of contrib/ that start kelvin on several hosts, by each launcher that is installed, on hosts that are namespaces.

usage: run.py KELVIN DIRECTORY

Each must leave a file of each host, with a host of its own in it. A recipe that cannot be run here is skipped, with the reason.
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

from made_hosts import Hosts
from slurm import Slurm

ROOT = Path(__file__).parents[2]
CONTRIB = ROOT / "contrib"
NAMES = ["n1", "n2", "n3"]
# As little as is a run: no figure of it is looked at.
ARGUMENTS = ["os.syscall.null", "--quick", "--budget", "minimum", "--rounds", "2", "--no-canaries"]
SECOND_RANK = "measures nothing: another rank measures this host"


def skip(needs, recipe, reason):
    subprocess.run([ROOT / "scripts/skip", needs, f"contrib: {recipe}", reason], check=True)


class Bench:
    """What recipes are run with: the hosts, the program, and a new directory for the files of each."""

    def __init__(self, hosts, kelvin, work):
        self.hosts, self.kelvin, self.work = hosts, kelvin, Path(work)
        path = f"{hosts.programs}:{os.environ['PATH']}"
        # Nothing of this is to be stored, and a home that cannot be written to must do.
        self.environment = {**os.environ, "PATH": path, "KELVIN": kelvin, "ARGUMENTS": " ".join(ARGUMENTS), "HOME": "/proc"}
        self.environment.pop("XDG_DATA_HOME", None)

    def directory(self):
        return Path(tempfile.mkdtemp(dir=self.work))

    def call(self, command, **options):
        """Runs a command that must succeed; returns its output and messages."""
        options = {"env": self.environment, "cwd": self.work, **options}
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=600, **options)
        assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def check_files(self, directory, nodes, job=None):
        """A whole run of each host, and nothing else."""
        files = sorted(Path(directory).iterdir())
        assert len(files) == len(nodes) and all(file.suffix == ".json" for file in files), files
        runs = [json.loads(file.read_text()) for file in files]
        assert [run["tags"]["node"] for run in runs] == list(nodes), [run["tags"] for run in runs]
        assert all(file.name.startswith(f"{node}-2") for file, node in zip(files, nodes)), files
        assert all(run["status"] == "complete" for run in runs)
        for hosts in ({run["machine"]["platform"]["host"]["known"]["value"] for run in runs}, {run["machine"]["identity"] for run in runs}):
            assert len(hosts) == len(nodes), "alike hosts are one"
        assert len({run["tags"].get("job") for run in runs}) == 1 and (job is None or runs[0]["tags"]["job"] == job)
        for file in files:
            self.call([self.kelvin, "report", file])


def run_by(way):
    def recipe(bench):
        directory = bench.directory()
        bench.call([CONTRIB / "run-on-hosts.sh", way, directory, *NAMES])
        bench.check_files(directory, NAMES)

    return recipe


def ansible(bench):
    directory = bench.directory()
    settings = "ansible_connection=ssh ansible_ssh_transfer_method=piped ansible_python_interpreter=" + sys.executable
    inventory = bench.work / "inventory"
    inventory.write_text("".join(f"{name} {settings} ansible_ssh_executable={bench.hosts.programs}/ssh\n" for name in NAMES))
    variables = {"kelvin": bench.kelvin, "arguments": " ".join(ARGUMENTS), "runs": str(directory)}
    environment = {**bench.environment, "HOME": str(bench.work), "ANSIBLE_NOCOLOR": "1", "ANSIBLE_LOCAL_TEMP": str(bench.work / "ansible")}
    playbook = ["ansible-playbook", "-i", inventory, "-e", json.dumps(variables), CONTRIB / "ansible-playbook.yml"]
    bench.call(playbook, env=environment)
    bench.check_files(directory, NAMES)


def slurm(bench):
    with Slurm(bench.hosts) as cluster:
        cluster.environment |= {"KELVIN": bench.kelvin, "HOME": "/proc"}
        out = bench.directory()
        log = bench.work / "slurm-%j.out"
        batch = ["sbatch", "--wait", "--parsable", f"--nodes={len(NAMES)}", f"--output={log}", CONTRIB / "slurm-job.sh", out, *ARGUMENTS]
        job = cluster.run(batch).split()[0]
        bench.check_files(out, NAMES, job)
        assert "bound to" not in (bench.work / f"slurm-{job}.out").read_text()
        # Two tasks on each host, each bound to a CPU.
        out = bench.directory()
        tasks = len(NAMES) * 2
        step = ["srun", f"--nodes={len(NAMES)}", "--ntasks-per-node=2", "--cpus-per-task=1", "--cpu-bind=cores"]
        output = cluster.run([*step, bench.kelvin, "run", *ARGUMENTS, "--out", out, "--dir", "/tmp"])
        bench.check_files(out, NAMES)
        assert output.count(SECOND_RANK) == tasks - len(NAMES), output
        is_bound = output.count("start it by `srun --cpu-bind=none`") == len(NAMES)
        assert is_bound or os.cpu_count() < 2, output


def started_here(command, remedy):
    """Two processes of a launcher of MPI on one host, of which one measures, bound to one CPU."""

    def recipe(bench):
        out = bench.directory()
        run = [bench.kelvin, "run", *ARGUMENTS, "--out", out, "--dir", "/tmp", "--tag", "node=n1"]
        output = bench.hosts.run("n1", [*command, *run], env={**bench.environment, "HOME": str(bench.work)})
        bench.check_files(out, ["n1"])
        assert output.count(SECOND_RANK) == 1, output
        assert f"start it by `{remedy}`" in output or os.cpu_count() < 2, output

    return recipe


def reframe(bench):
    directory = bench.directory()
    settings = bench.work / "reframe-settings.py"
    system = {"name": "here", "hostnames": [".*"], "partitions": [{"name": "local", "scheduler": "local", "launcher": "local", "environs": ["none"]}]}
    settings.write_text(f"site_configuration = {{'systems': [{system!r}], 'environments': [{{'name': 'none'}}]}}\n")
    check = ["-c", CONTRIB / "reframe_kelvin.py", "-r", "--performance-report", "--prefix", bench.work / "reframe"]
    arguments = " ".join([*ARGUMENTS, "--tag", "node=n1"])
    command = ["reframe", "-C", settings, *check, "-S", f"KelvinCheck.directory={directory}", "-S", f"KelvinCheck.arguments={arguments}"]
    output = bench.call(command, env={**bench.environment, "HOME": str(bench.work)})
    assert "PASSED" in output and "null_call" in output, output
    bench.check_files(directory, ["n1"])


def systemd(bench):
    """What systemd says of the units: they are not started, since the init of this machine may be none."""
    units = bench.directory()
    for unit in [*CONTRIB.glob("*.service"), *CONTRIB.glob("*.timer")]:
        (units / unit.name).write_text(unit.read_text().replace("ExecStart=kelvin ", f"ExecStart={bench.kelvin} "))
    output = bench.call(["systemd-analyze", "verify", "--man=no", *sorted(units.iterdir())])
    assert not output, output


# Each recipe: its name, the program that it needs, where that comes from, and what runs it.
RECIPES = [
    ("run-on-hosts.sh by ssh", "sh", "package dash", run_by("ssh")),
    ("run-on-hosts.sh by pdsh", "pdsh", "package pdsh", run_by("pdsh")),
    ("run-on-hosts.sh by clush", "clush", "package clustershell", run_by("clush")),
    ("ansible-playbook.yml", "ansible-playbook", "package ansible-core", ansible),
    ("slurm-job.sh", "slurmctld", "package slurm-wlm", slurm),
    (
        "Open MPI",
        "mpirun.openmpi",
        "package openmpi-bin",
        started_here(["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--bind-to", "core", "-n", "2"], "mpirun --bind-to none"),
    ),
    ("MPICH", "mpiexec.mpich", "package mpich", started_here(["mpiexec.mpich", "-bind-to", "core", "-n", "2"], "mpiexec -bind-to none")),
    ("reframe_kelvin.py", "reframe", "machine", reframe),
    ("the units of systemd, checked and not started", "systemd-analyze", "package systemd", systemd),
]


def main():
    kelvin, work = (str(Path(argument).resolve()) for argument in sys.argv[1:])
    if os.geteuid() != 0:
        return skip("right", "all recipes of several hosts", "only root can make namespaces as hosts")
    if not shutil.which("ip"):
        return skip("package iproute2", "all recipes of several hosts", "hosts need ip")
    skip("machine", "kubernetes-daemonset.yaml", "there is no cluster of Kubernetes here")
    shutil.rmtree(work, ignore_errors=True)
    with Hosts(NAMES, work) as hosts:
        bench = Bench(hosts, kelvin, work)
        for name, program, needs, recipe in RECIPES:
            if shutil.which(program):
                recipe(bench)
                print(f"launchers: {name}: passed")
            else:
                skip(needs, name, f"{program} is not installed")
    return None


if __name__ == "__main__":
    main()
