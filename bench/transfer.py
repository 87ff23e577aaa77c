#!/usr/bin/env python3
"""Whether kelvin moves files at least as fast as the usual programs, though it verifies and renames them.

One file of 350 MB and 10,000 files of 4 KiB, both in a tmpfs, go over loopback into another directory there, in a network
namespace whose connections begin under cubic. A pair is one transfer by kelvin and one by the other program, in random order;
the time is that of both ends: from the start of the sending program until it and the receiving one have ended, or, of a server
that stays, until the sender has. kelvin's receiver has ended when all files have their names. Content is compared after each
transfer, outside of the time.

Without encryption (--plain, verified): beside nc, socat, rsync to a daemon, and iperf3 -F, and for the small files beside rsync
to a daemon and tar through nc. Encrypted: beside scp and rsync over ssh, each with the ciphers that they choose. Without
verification into nothing: beside iperf3 from memory to memory. Without verification into a file, and the small files verified:
beside a plain C program that makes the same calls and does nothing else (rivals/move_files.c).

The ratio is their time over kelvin's: its Hodges-Lehmann estimate and the exact 90 % interval of the signed-rank test, whose
lower end must reach the bound.

Exit status: 0 all hold, 1 one does not, 2 it could not be done.
"""
import filecmp
import os
import random
import select
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import common
import hosts
from servers import free_port

CONTROL = "cubic"
LARGE = 350_000_000
SMALL = (10_000, 4096)
HOST = "127.0.0.1"
MAX_SECONDS = 300


class TransferEnds:
    """Two directories in memory, and what is sent from one to the other."""

    def __init__(self, base):
        self.base = Path(base)
        self.source, self.target = self.base / "from", self.base / "to"
        self.source.mkdir()
        self.large = self.source / "large"
        self.large.write_bytes(os.urandom(LARGE))
        self.small = self.source / "small"
        self.small.mkdir()
        content = os.urandom(SMALL[1])
        for number in range(SMALL[0]):
            (self.small / f"{number:05}").write_bytes(content)

    def clear(self):
        shutil.rmtree(self.target, ignore_errors=True)
        self.target.mkdir()

    def check(self, what, kelvin_with):
        """That all of it has arrived."""
        pairs = [(path, self.target / path.relative_to(self.source)) for path in ([what] if what.is_file() else what.iterdir())]
        if not all(filecmp.cmp(*pair, shallow=False) for pair in pairs):
            raise RuntimeError(f"{what} has not arrived as it is by {kelvin_with}")


def start_process(*command, **options):
    quiet = subprocess.DEVNULL
    options = {"stdin": quiet, "stdout": quiet, "stderr": quiet, **options}
    return subprocess.Popen([str(word) for word in command], **options)


def wait_for_exit(process):
    """Its exit status, at once when it ends: wait with a time-out would look only every 50 ms."""
    handle = os.pidfd_open(process.pid)
    try:
        if not select.select([handle], [], [], MAX_SECONDS)[0]:
            raise RuntimeError(f"{process.args}: did not end")
    finally:
        os.close(handle)
    return process.wait()


def check_exit(*processes):
    for process in processes:
        if wait_for_exit(process) != 0:
            raise RuntimeError(f"{process.args}: exit status {process.returncode}")


def wait_for_listener(port):
    """Waits until somebody listens on a port, without connecting: some serve the first connection alone."""
    wanted = f"0100007F:{port:04X}"
    while not any(wanted in line and line.split()[3] == "0A" for line in Path("/proc/net/tcp").read_text().splitlines()[1:]):
        time.sleep(0.005)


def time_transfer(receiver, sender, port):
    """Seconds from starting the sender until both have ended."""
    with_port = receiver()
    wait_for_listener(port)
    begun = time.perf_counter()
    check_exit(*sender(), with_port)
    return time.perf_counter() - begun


class KelvinTransfer:
    def __init__(self, program, ends):
        self.program, self.ends = program, ends

    def move(self, what, *flags, into=None):
        port = free_port()
        into = into or [self.ends.target]
        receiver = lambda: start_process(self.program, "receive", *into, "--once", "--listen", f"{HOST}:{port}")
        sender = lambda: [start_process(self.program, "send", "-r", what, f"{HOST}:{port}", *flags)]
        return time_transfer(receiver, sender, port)


class PlainPrograms:
    """Programs that neither encrypt nor verify."""

    def __init__(self, ends):
        self.ends = ends

    def nc(self, what):
        port, target = free_port(), self.ends.target / what.name
        with open(target, "wb") as output, open(what, "rb") as source:
            receiver = lambda: start_process("nc", "-l", "-N", HOST, port, stdout=output)
            return time_transfer(receiver, lambda: [start_process("nc", "-N", HOST, port, stdin=source)], port)

    def socat(self, what):
        port, target = free_port(), self.ends.target / what.name
        receiver = lambda: start_process("socat", "-u", "-b", 1 << 18, f"TCP-LISTEN:{port},bind={HOST}", f"CREATE:{target}")
        return time_transfer(receiver, lambda: [start_process("socat", "-u", "-b", 1 << 18, f"OPEN:{what}", f"TCP:{HOST}:{port}")], port)

    def iperf3_file(self, what):
        port, target = free_port(), self.ends.target / what.name
        receiver = lambda: start_process("iperf3", "-s", "-1", "-B", HOST, "-p", port, "-F", target)
        return time_transfer(receiver, lambda: [start_process("iperf3", "-c", HOST, "-p", port, "-F", what, "-n", LARGE)], port)

    def iperf3_memory(self, _):
        port = free_port()
        receiver = lambda: start_process("iperf3", "-s", "-1", "-B", HOST, "-p", port)
        return time_transfer(receiver, lambda: [start_process("iperf3", "-c", HOST, "-p", port, "-n", LARGE)], port)

    def tar(self, what):
        port = free_port()

        def sender():
            tar = start_process("tar", "-c", "-C", what.parent, what.name, stdout=subprocess.PIPE)
            return [tar, start_process("nc", "-N", HOST, port, stdin=tar.stdout)]

        script = f"nc -l -N {HOST} {port} | tar -x -C {self.ends.target}"
        return time_transfer(lambda: start_process("sh", "-c", script), sender, port)


class SameCalls:
    """The plain C program that makes the same calls (rivals/move_files.c)."""

    def __init__(self, program, ends):
        self.program, self.ends = program, ends

    def move(self, what):
        port, target = free_port(), self.ends.target
        if what.is_dir():
            target = target / what.name
            target.mkdir()
        receiver = lambda: start_process(self.program, "receive", port, target)
        return time_transfer(receiver, lambda: [start_process(self.program, "send", port, what)], port)


class RsyncDaemon:
    """A daemon, which stays."""

    def __init__(self, ends):
        self.ends, self.port = ends, free_port()
        settings = ends.base / "rsyncd.conf"
        settings.write_text(f"address={HOST}\nport={self.port}\nuse chroot=no\n[to]\npath={ends.target}\nread only=no\nuid=0\ngid=0\n")
        self.process = start_process("rsync", "--daemon", "--no-detach", f"--config={settings}")
        wait_for_listener(self.port)

    def move(self, what):
        begun = time.perf_counter()
        check_exit(start_process("rsync", "-a", "--whole-file", what, f"rsync://{HOST}:{self.port}/to/"))
        return time.perf_counter() - begun

    def close(self):
        self.process.kill()
        self.process.wait()


class SshServer:
    """A server with keys of its own, which stays."""

    def __init__(self, ends):
        self.ends, self.port = ends, free_port()
        base = ends.base / "ssh"
        base.mkdir(mode=0o700)
        for key in ["host", "user"]:
            common.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", base / key])
        shutil.copy(base / "user.pub", base / "authorized")
        Path("/run/sshd").mkdir(exist_ok=True)
        settings = base / "config"
        settings.write_text(f"ListenAddress {HOST}:{self.port}\nHostKey {base}/host\nAuthorizedKeysFile {base}/authorized\n"
                            "StrictModes no\nPermitRootLogin yes\nUsePAM no\nSubsystem sftp internal-sftp\nPidFile none\n")  # fmt: skip
        self.process = start_process("/usr/sbin/sshd", "-D", "-f", settings)
        wait_for_listener(self.port)
        self.options = ["-i", base / "user", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"]

    def scp(self, what):
        begun = time.perf_counter()
        check_exit(start_process("scp", "-q", "-r", "-P", self.port, *self.options, what, f"{HOST}:{self.ends.target}/"))
        return time.perf_counter() - begun

    def rsync(self, what):
        shell = " ".join(map(str, ["ssh", "-p", self.port, *self.options]))
        begun = time.perf_counter()
        check_exit(start_process("rsync", "-a", "--whole-file", "-e", shell, what, f"{HOST}:{self.ends.target}/"))
        return time.perf_counter() - begun

    def close(self):
        self.process.kill()
        self.process.wait()


@dataclass
class Comparison:
    """A transfer by kelvin and by another program; seconds."""

    files: str
    manner: str
    name: str
    bound: float
    ours: object = common.transient_field()
    theirs: object = common.transient_field()
    # Whether files arrive, and can be compared.
    arrives: bool = True
    measured: list = field(default_factory=list)

    def measure(self, ends, order):
        taken = {}
        for side in order.sample(["ours", "theirs"], 2):
            ends.clear()
            taken[side] = getattr(self, side)(ends.source / self.files)
            if self.arrives:
                ends.check(ends.source / self.files, self.name if side == "theirs" else "kelvin")
        self.measured.append((taken["ours"], taken["theirs"]))

    def interval(self):
        # The faster the smaller: so a ratio above one is in kelvin's favour.
        ours, theirs = zip(*self.measured)
        return common.paired_ratio(theirs, ours)

    def verdict(self):
        ratio, lower, _ = self.interval()
        return "holds" if lower >= self.bound else "slower" if ratio < self.bound else "not settled"

    def row(self):
        ratio, lower, upper = self.interval()
        ours, theirs = (sorted(side)[len(side) // 2] * 1e9 for side in zip(*self.measured))
        return [self.files, self.manner, common.format_time(ours), self.name, common.format_time(theirs), f"{ratio:.2f}",
                f"{lower:.2f}..{upper:.2f}", f"{self.bound:g}", len(self.measured), self.verdict()]  # fmt: skip


def comparisons(kelvin, ends, same, rsync, ssh):
    plain = PlainPrograms(ends)
    kelvin_with = lambda *flags, into=None: lambda what: kelvin.move(what, *flags, into=into)
    verified, encrypted, bare = "plain, verified", "encrypted, verified", "plain, into nothing"
    unverified = "plain, not verified"
    large, small = ends.large.name, ends.small.name
    return [
        Comparison(large, verified, "nc", 1, kelvin_with("--plain"), plain.nc),
        Comparison(large, verified, "socat", 1, kelvin_with("--plain"), plain.socat),
        Comparison(large, verified, "iperf3 -F", 1, kelvin_with("--plain"), plain.iperf3_file, False),
        Comparison(large, verified, "rsync, daemon", 1, kelvin_with("--plain"), rsync.move),
        Comparison(large, encrypted, "scp", 2, kelvin_with(), ssh.scp),
        Comparison(large, encrypted, "rsync, ssh", 1, kelvin_with(), ssh.rsync),
        Comparison(large, bare, "iperf3, memory", 0.9, kelvin_with("--plain", "--no-verify", into=["--discard"]), plain.iperf3_memory, False),
        Comparison(large, unverified, "C, same calls", 0.9, kelvin_with("--plain", "--no-verify"), same.move),
        Comparison(small, verified, "C, same calls", 0.9, kelvin_with("--plain"), same.move),
        Comparison(small, verified, "rsync, daemon", 1.5, kelvin_with("--plain"), rsync.move),
        Comparison(small, verified, "tar, nc", 1, kelvin_with("--plain"), plain.tar),
        Comparison(small, encrypted, "rsync, ssh", 1, kelvin_with(), ssh.rsync),
    ]


def parse():
    parser = common.make_pairs_parser(__doc__, seconds=1, max_pairs=30)
    parser.add_argument("--only", metavar="NAME", help="only comparisons with this program")
    return common.parse_pairs(parser)


def measure(arguments):
    for program, package in [("nc", "netcat-openbsd"), ("socat", "socat"), ("rsync", "rsync"), ("iperf3", "iperf3"), ("scp", "openssh-client"), ("/usr/sbin/sshd", "openssh-server")]:  # fmt: skip
        common.require_program(program, package)
    hosts.enter_own_network(CONTROL)
    order = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as base:
        ends = TransferEnds(base)
        ends.clear()
        rsync, ssh = RsyncDaemon(ends), SshServer(ends)
        try:
            kelvin = KelvinTransfer(common.kelvin_program(arguments.kelvin), ends)
            same = SameCalls(common.build_rival("move_files", base), ends)
            chosen = [one for one in comparisons(kelvin, ends, same, rsync, ssh) if arguments.only in (None, one.name)]
            for done, todo in common.pair_rounds(arguments, chosen):
                for one in order.sample(todo, len(todo)):
                    one.measure(ends, order)
                common.log(f"{done} pairs")
        finally:
            rsync.close()
            ssh.close()
    return chosen


def tables(measured):
    chosen = [Comparison(**one) for one in measured]
    header = ["files", "kelvin's manner", "kelvin", "beside it", "its time", "ratio", "90 % interval", "bound", "pairs", "verdict"]
    return common.table(header, [one.row() for one in chosen]), all(one.verdict() == "holds" for one in chosen)


if __name__ == "__main__":
    common.main(parse, measure, tables)
