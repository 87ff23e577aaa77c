"""Hosts that are namespaces of this machine: each has a name, a machine id, a network and an address of its own, and `ssh` leads there."""
import os
import subprocess
from pathlib import Path

NETWORK = "10.213.0"
# The host that has the others' switch, and from which they are reached.
CONTROL = "control"

# What a host is made of: its holder keeps its namespaces until its input ends, also when this program is killed.
HOLDER = """
set -e
mount --make-rprivate /
hostname "$1"
mount --bind "$2/$1.machine-id" /etc/machine-id
mount --bind "$2/hosts" /etc/hosts
ip link set lo up
echo made
exec cat >/dev/null
"""

# Enough of ssh(1) for pdsh, ClusterShell and Ansible: options, the host, and a command for its shell.
SSH = """#!/bin/sh
while :; do
	case $1 in
	-[BbcDEeFIiJLlmOopQRSWw]) shift 2 ;;
	-*) shift ;;
	*) break ;;
	esac
done
host=${1#*@}
shift
exec nsenter -t "$(cat "%s/$host.pid")" -u -m -n -- sh -c "$*"
"""


class Hosts:
    """Hosts with these names and the control host, for as long as the object is entered."""

    def __init__(self, names, work):
        self.names, self.work = names, Path(work)
        self.holders = {}
        self.programs = self.work / "bin"

    def __enter__(self):
        self.programs.mkdir(parents=True, exist_ok=True)
        ssh = self.programs / "ssh"
        ssh.write_text(SSH % self.work)
        ssh.chmod(0o755)
        addresses = {name: f"{NETWORK}.{number}" for number, name in enumerate([CONTROL, *self.names], 1)}
        lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in addresses.items())]
        (self.work / "hosts").write_text("\n".join(lines) + "\n")
        for name, address in addresses.items():
            self._make(name)
            self._connect(name, address)
        return self

    def __exit__(self, *_):
        for holder in self.holders.values():
            holder.kill()
            holder.wait()

    def _make(self, name):
        (self.work / f"{name}.machine-id").write_text(os.urandom(16).hex() + "\n")
        command = ["unshare", "--uts", "--mount", "--net", "sh", "-c", HOLDER, "sh", name, str(self.work)]
        holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.holders[name] = holder
        assert holder.stdout.readline() == "made\n", f"{name} could not be made"
        (self.work / f"{name}.pid").write_text(f"{holder.pid}\n")

    def _connect(self, name, address):
        """Gives a host its address, on the switch of the control host."""
        if name == CONTROL:
            for line in ("link add switch type bridge", f"addr add {address}/24 dev switch", "link set switch up"):
                self.run(CONTROL, ["ip", *line.split()])
            return
        pid = str(self.holders[name].pid)
        self.run(CONTROL, ["ip", "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", pid])
        self.run(CONTROL, ["ip", "link", "set", name, "master", "switch", "up"])
        self.run(name, ["ip", "addr", "add", f"{address}/24", "dev", "eth0"])
        self.run(name, ["ip", "link", "set", "eth0", "up"])

    def command(self, name, command):
        """A command, on a host."""
        return ["nsenter", "-t", str(self.holders[name].pid), "-u", "-m", "-n", "--", *map(str, command)]

    def run(self, name, command, **options):
        """Runs a command on a host, which must succeed; returns what it prints."""
        done = subprocess.run(self.command(name, command), capture_output=True, text=True, timeout=300, **options)
        assert done.returncode == 0, f"{command} on {name}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr
