"""Hosts for tests of kelvin-cluster: network namespaces of this machine, joined by a bridge in a namespace of its own.

Each host also has a host name of its own. Between each two hosts there is a limit on the rate, so that a link can be slow.
"""
import os
import signal
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path

# A range for benchmarks (RFC 2544), which nothing else uses.
NETWORK = "198.18.93"
# As the interfaces of hosts are named.
INTERFACE = "eth0"


class Unavailable(Exception):
    """This machine cannot make such hosts."""


def run(*command):
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise Unavailable(f"{' '.join(command)}: {result.stderr.strip()}")
    return result.stdout


class Hosts:
    """`count` hosts. `rate` of each link, in the notation of tc; `slow` has other rates of some: {(from, to): rate}. Without a rate the
    links are unlimited."""

    def __init__(self, count, rate=None, slow=None):
        self.count = count
        self.prefix = f"kelvin-c{os.getpid()}"
        self.switch = f"{self.prefix}-switch"
        self.names = [f"{self.prefix}-{host}" for host in range(count)]
        self.directory = tempfile.TemporaryDirectory(prefix="kelvin-cluster-")
        self.agent = Path(self.directory.name, "agent")
        self.enterer = Path(self.directory.name, "enter")
        self.rate, self.slow = rate, slow or {}

    def __enter__(self):
        try:
            self.create()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in [*self.names, self.switch]:
            subprocess.run(["ip", "netns", "delete", name], stderr=subprocess.DEVNULL, check=False)
        self.directory.cleanup()

    def address(self, host):
        return f"{NETWORK}.{host + 1}"

    def create(self):
        run("ip", "netns", "add", self.switch)
        run("ip", "-netns", self.switch, "link", "add", "bridge", "type", "bridge")
        run("ip", "-netns", self.switch, "link", "set", "bridge", "up")
        for host, name in enumerate(self.names):
            run("ip", "netns", "add", name)
            run("ip", "-netns", name, "link", "set", "lo", "up")
            run("ip", "-netns", name, "link", "add", INTERFACE, "type", "veth", "peer", "name", f"port{host}", "netns", self.switch)
            run("ip", "-netns", name, "address", "add", f"{self.address(host)}/24", "dev", INTERFACE)
            run("ip", "-netns", name, "link", "set", INTERFACE, "up")
            run("ip", "-netns", self.switch, "link", "set", f"port{host}", "master", "bridge")
            run("ip", "-netns", self.switch, "link", "set", f"port{host}", "up")
            if self.rate:
                self.limit(host)
            Path(self.directory.name, f"machine-id-{host}").write_text(os.urandom(16).hex() + "\n")
        self.enterer.write_text(ENTER.format(prefix=self.prefix, directory=self.directory.name))
        self.agent.write_text(AGENT.format(network=NETWORK.replace(".", "\\."), enter=self.enterer))
        for script in (self.enterer, self.agent):
            script.chmod(0o755)

    def limit(self, host):
        """One class for each other host; what is for no host, as ARP is, has no limit."""
        name = self.names[host]
        run("tc", "-netns", name, "qdisc", "add", "dev", INTERFACE, "root", "handle", "1:", "htb")
        for other in range(self.count):
            if other != host:
                rate = self.slow.get((host, other), self.rate)
                run("tc", "-netns", name, "class", "add", "dev", INTERFACE, "parent", "1:", "classid", f"1:{other + 1:x}", "htb",
                    "rate", rate, "burst", "32k", "cburst", "32k", "quantum", "1514")  # fmt: skip
                run("tc", "-netns", name, "filter", "add", "dev", INTERFACE, "protocol", "ip", "parent", "1:", "prio", "1", "u32",
                    "match", "ip", "dst", f"{self.address(other)}/32", "flowid", f"1:{other + 1:x}")  # fmt: skip

    def set_rate(self, sender, receiver, rate):
        run("tc", "-netns", self.names[sender], "class", "change", "dev", INTERFACE, "parent", "1:", "classid", f"1:{receiver + 1:x}", "htb",
            "rate", rate, "burst", "32k", "cburst", "32k", "quantum", "1514")  # fmt: skip

    def cut_off(self, host):
        run("ip", "-netns", self.switch, "link", "set", f"port{host}", "down")

    def reconnect(self, host):
        run("ip", "-netns", self.switch, "link", "set", f"port{host}", "up")

    def enter(self, host):
        """The beginning of a command line that runs on a host."""
        return [str(self.enterer), str(host)]

    def processes(self, program):
        """The processes of a program on these hosts: {host: [process]}."""
        found = {host: [] for host in range(self.count)}
        for host, name in enumerate(self.names):
            for process in run("ip", "netns", "pids", name).split():
                try:
                    if Path(os.readlink(f"/proc/{process}/exe").removesuffix(" (deleted)")).name == Path(program).name:
                        found[host].append(int(process))
                except OSError:
                    pass
        return found

    def end_processes(self):
        """Ends all that still runs on the hosts."""
        for name in self.names:
            for process in run("ip", "netns", "pids", name).split():
                try:
                    os.kill(int(process), signal.SIGKILL)
                except ProcessLookupError:
                    pass


# enter HOST COMMAND...: with the name and the machine id of the host.
ENTER = """#!/bin/sh
host=$1
shift
exec ip netns exec "{prefix}-$host" unshare --uts --mount sh -c '
host=$1
shift
hostname "n$host" && mount --bind "{directory}/machine-id-$host" /etc/machine-id && exec "$@"' sh "$host" "$@"
"""
# Called as ssh is: agent ADDRESS COMMAND..., which a shell reads. Other options of ssh are skipped.
AGENT = """#!/bin/sh
while [ "${{1#-}}" != "$1" ]; do shift; done
host=$(($(echo "$1" | sed 's/^{network}\\.//') - 1))
shift
exec {enter} "$host" sh -c "$*"
"""


def open_mpi(hosts, programs, mpirun="mpirun.openmpi"):
    """The command line that starts `programs`, one list of words for each host, under Open MPI."""
    addresses = [hosts.address(host) for host in range(len(programs))]
    command = [
        *hosts.enter(0), mpirun, "--allow-run-as-root", "--bind-to", "none", "--map-by", "node",
        "--mca", "plm_rsh_agent", str(hosts.agent), "--mca", "plm_rsh_no_tree_spawn", "1", "--mca", "pml", "ob1",
        "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", INTERFACE, "--mca", "oob_tcp_if_include", INTERFACE,
        "--mca", "mpi_yield_when_idle", "1", "--mca", "orte_base_help_aggregate", "0",
    ]  # fmt: skip
    for index, (address, program) in enumerate(zip(addresses, programs)):
        command += [":"] if index else []
        command += ["--host", address, "-n", "1", *program]
    return command


def mpich(hosts, programs, mpirun="mpirun.mpich"):
    """The same under MPICH.

    With rendezvous on links as slow as here, MPI_Finalize of MPICH 4.0.2 on UCX does not end, in any program. By default
    its launcher, when a rank dies, ends rank 0 before it passes on what rank 0 says."""
    addresses = [hosts.address(host) for host in range(len(programs))]
    command = [*hosts.enter(0), "env", "UCX_TLS=tcp,self", "UCX_RNDV_THRESH=inf", f"UCX_NET_DEVICES={INTERFACE}", "MPIR_CVAR_NOLOCAL=1", mpirun,
               "-disable-auto-cleanup", "-launcher", "ssh", "-launcher-exec", str(hosts.agent), "-iface", INTERFACE, "-hosts", ",".join(addresses)]  # fmt: skip
    for index, program in enumerate(programs):
        command += [":"] if index else []
        command += ["-n", "1", *program]
    return command


@contextmanager
def started(command, directory):
    """A job that runs in a directory. It is ended if it is not over."""
    process = subprocess.Popen(command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
