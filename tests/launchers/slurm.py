"""Slurm on hosts that are namespaces: a controller, a daemon for each host, and munge."""
import os
import subprocess
import time
from pathlib import Path

from made_hosts import CONTROL

# No control groups: what a job may use is bound by affinity alone.
CONFIGURATION = """
ClusterName=test
SlurmctldHost={control}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={work}/munge.socket
StateSaveLocation={work}/state
SlurmdSpoolDir={work}/spool-%n
TmpFS={work}/tmp-%n
SlurmctldPidFile={work}/slurmctld.pid
SlurmdPidFile={work}/%n.pid
SlurmctldLogFile={work}/slurmctld.log
SlurmdLogFile={work}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
SlurmdParameters=config_overrides
NodeName={names} CPUs={cpus} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
START_SECONDS = 60


class Slurm:
    """Slurm on these hosts, for as long as the object is entered."""

    def __init__(self, hosts):
        self.hosts, self.work = hosts, Path(hosts.work) / "slurm"
        self.environment = {**os.environ, "SLURM_CONF": str(self.work / "slurm.conf")}
        self.daemons = []

    def __enter__(self):
        work = self.work
        # PMIx makes a directory of one name on each host.
        own = [work / f"{kind}-{name}" for name in self.hosts.names for kind in ("spool", "tmp")]
        for directory in (work / "state", *own):
            directory.mkdir(parents=True)
        names, cpus = ",".join(self.hosts.names), os.cpu_count()
        (work / "slurm.conf").write_text(CONFIGURATION.format(control=CONTROL, work=work, names=names, cpus=cpus))
        (work / "cgroup.conf").touch()
        key = work / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        files = [f"--{kind}-file={work}/munge.{kind}" for kind in ("key", "pid", "seed", "log")]
        self._start(["munged", "--foreground", "--force", f"--socket={work}/munge.socket", *files])
        self._start(self.hosts.command(CONTROL, ["slurmctld", "-D"]))
        for name in self.hosts.names:
            self._start(self.hosts.command(name, ["slurmd", "-D", "-N", name]))
        self._wait_until_idle()
        return self

    def __exit__(self, *_):
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in reversed(self.daemons):
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def _start(self, command):
        daemon = subprocess.Popen(command, env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.daemons.append(daemon)

    def _wait_until_idle(self):
        deadline = time.monotonic() + START_SECONDS
        sinfo = self.hosts.command(CONTROL, ["sinfo", "--noheader", "--Node", "--format=%T"])
        while True:
            done = subprocess.run(sinfo, env=self.environment, capture_output=True, text=True, timeout=60)
            if done.stdout.split() == ["idle"] * len(self.hosts.names):
                return
            assert time.monotonic() < deadline, f"Slurm does not start: {done.stdout}{done.stderr}\n{self.logs()}"
            time.sleep(0.2)

    def logs(self):
        return "\n".join(log.read_text()[-2000:] for log in sorted(self.work.glob("*.log")))

    def run(self, command):
        """Runs a command of Slurm where the controller is; returns its output and messages."""
        return self.hosts.run(CONTROL, command, env=self.environment)
