"""Hosts that are namespaces of this machine: each has a name, a machine id, a network and an address of its own, and `ssh` leads there.

One more has the switch that joins them. Each link may have a limit on its rate, so that a link can be slow.
"""
import os
import signal
import subprocess
import tempfile
from pathlib import Path

# A range for benchmarks (RFC 2544), which nothing else uses.
NETWORK = "198.18.93"
# As the interfaces of hosts are named.
INTERFACE = "eth0"
# The host that has the others' switch, and from which they are reached.
CONTROL, CONTROL_ADDRESS = "control", f"{NETWORK}.254"

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

# enter HOST COMMAND...: by name or address, in the directory of the caller.
ENTER = """#!/bin/sh
holder=$(cat "%s/$1.pid") && shift
exec nsenter -t "$holder" -u -m -n -- sh -c 'cd "$1" && shift && exec "$@"' sh "$PWD" "$@"
"""

# Enough of ssh(1) for launchers, pdsh, ClusterShell and Ansible: options, the host by name or address, and a command for its shell.
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
exec "%s" "$host" sh -c "$*"
"""


class Unavailable(Exception):
    """This machine cannot make such hosts."""


class Hosts:
    """Hosts with these names, and the control host, for as long as the object is entered. Files are in `work`, or in a temporary directory.

    `rate` is that of each link, in bits per second; `slow` has other rates of some: {(from, to): rate}, by place. Without a rate the links
    are unlimited."""

    def __init__(self, names, work=None, rate=None, slow=None):
        self.names, self.rate, self.slow = list(names), rate, slow or {}
        self.temporary = None if work else tempfile.TemporaryDirectory(prefix="kelvin-hosts-")
        self.work = Path(work or self.temporary.name).resolve()
        self.holders = {}
        self.programs = self.work / "bin"
        self.enterer, self.ssh = self.work / "enter", self.programs / "ssh"

    @classmethod
    def numbered(cls, count, rate=None, slow=None):
        """Hosts n0, n1 and so on."""
        return cls([f"n{host}" for host in range(count)], rate=rate, slow=slow)

    def __enter__(self):
        try:
            self._create()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for holder in self.holders.values():
            holder.kill()
            holder.communicate()
        if self.temporary:
            self.temporary.cleanup()

    @property
    def count(self):
        return len(self.names)

    def address(self, host):
        return f"{NETWORK}.{host + 1}"

    def _create(self):
        self.programs.mkdir(parents=True, exist_ok=True)
        for script, text in ((self.enterer, ENTER % self.work), (self.ssh, SSH % self.enterer)):
            script.write_text(text)
            script.chmod(0o755)
        addresses = {CONTROL: CONTROL_ADDRESS, **{name: self.address(host) for host, name in enumerate(self.names)}}
        lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in addresses.items())]
        (self.work / "hosts").write_text("\n".join(lines) + "\n")
        for name, address in addresses.items():
            self._make(name, address)
        self._control("ip", "link", "add", "switch", "type", "bridge")
        self._control("ip", "address", "add", f"{CONTROL_ADDRESS}/24", "dev", "switch")
        self._control("ip", "link", "set", "switch", "up")
        for host, name in enumerate(self.names):
            self._connect(host, name)

    def _make(self, name, address):
        (self.work / f"{name}.machine-id").write_text(os.urandom(16).hex() + "\n")
        command = ["unshare", "--uts", "--mount", "--net", "sh", "-c", HOLDER, "sh", name, str(self.work)]
        holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.holders[name] = holder
        if holder.stdout.readline() != "made\n":
            raise Unavailable(f"{name} could not be made: {holder.stderr.read().strip()}")
        for known_as in (name, address):
            (self.work / f"{known_as}.pid").write_text(f"{holder.pid}\n")

    def _connect(self, host, name):
        """Gives a host its address, on the switch of the control host."""
        pid = str(self.holders[name].pid)
        self._control("ip", "link", "add", name, "type", "veth", "peer", "name", INTERFACE, "netns", pid)
        self._control("ip", "link", "set", name, "master", "switch", "up")
        self._configure(name, "ip", "address", "add", f"{self.address(host)}/24", "dev", INTERFACE)
        self._configure(name, "ip", "link", "set", INTERFACE, "up")
        if self.rate:
            self._limit(host)

    def _limit(self, host):
        """One class for each other host; what is for no host, as ARP is, has no limit."""
        name = self.names[host]
        self._configure(name, "tc", "qdisc", "add", "dev", INTERFACE, "root", "handle", "1:", "htb")
        for other in range(self.count):
            if other != host:
                self._set_class("add", host, other, self.slow.get((host, other), self.rate))
                self._configure(name, "tc", "filter", "add", "dev", INTERFACE, "protocol", "ip", "parent", "1:", "prio", "1", "u32",
                                "match", "ip", "dst", f"{self.address(other)}/32", "flowid", f"1:{other + 1:x}")  # fmt: skip

    def _set_class(self, action, sender, receiver, rate):
        self._configure(self.names[sender], "tc", "class", action, "dev", INTERFACE, "parent", "1:", "classid", f"1:{receiver + 1:x}", "htb",
                        "rate", f"{rate:.0f}bit", "burst", "32k", "cburst", "32k", "quantum", "1514")  # fmt: skip

    def set_rate(self, sender, receiver, rate):
        self._set_class("change", sender, receiver, rate)

    def cut_off(self, host):
        self._control("ip", "link", "set", self.names[host], "down")

    def reconnect(self, host):
        self._control("ip", "link", "set", self.names[host], "up")

    def _control(self, *command):
        self._configure(CONTROL, *command)

    def _configure(self, name, *command):
        """Runs what configures the network of a host, with the programs of this machine."""
        done = subprocess.run(self.command(name, command), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Unavailable(f"{' '.join(command)} on {name}: {done.stderr.strip()}")

    def command(self, name, command):
        """A command, on a host."""
        return [str(self.enterer), name, *map(str, command)]

    def enter(self, host):
        """The beginning of a command line that runs on the host at this place."""
        return self.command(self.names[host], [])

    def run(self, name, command, **options):
        """Runs a command on a host, which must succeed; returns what it prints."""
        done = subprocess.run(self.command(name, command), capture_output=True, text=True, timeout=300, **options)
        assert done.returncode == 0, f"{command} on {name}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def processes(self, program=None):
        """The processes on these hosts, of a program if it is given: {place of the host: [process]}."""
        hosts = {os.readlink(f"/proc/{self.holders[name].pid}/ns/net"): host for host, name in enumerate(self.names)}
        holders = {holder.pid for holder in self.holders.values()}
        found = {host: [] for host in range(self.count)}
        for process in (int(name) for name in os.listdir("/proc") if name.isdigit()):
            try:
                host = hosts.get(os.readlink(f"/proc/{process}/ns/net"))
                if host is None or process in holders:
                    continue
                if program is None or Path(os.readlink(f"/proc/{process}/exe").removesuffix(" (deleted)")).name == Path(program).name:
                    found[host].append(process)
            except OSError:
                # It has ended.
                pass
        return found

    def end_processes(self):
        """Ends all that still runs on the hosts."""
        for process in sum(self.processes().values(), []):
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                pass
