#!/usr/bin/env python3
"""Whether kelvin moves files at least as fast as the usual programs, although it verifies and renames them.

One file of 350 MB and 10,000 files of 4 KiB are sent over loopback, from a tmpfs into another directory there, in a network
namespace whose connections start with cubic. A pair is one transfer by kelvin and one by the other program, in random order. The
time starts with the sending program. It stops when both ends have exited, or, with a permanent server, when the sender has.
kelvin's receiver exits after all files have their final names. Contents are compared after each transfer, outside of the time.

Without encryption (--plain, verified), kelvin is compared with nc, socat, rsync to a daemon, and iperf3 -F. The small files are
compared with rsync to a daemon and tar through nc. Encrypted transfers are compared with scp and rsync over ssh, each with its
default ciphers. Discarded data without verification is compared with iperf3 from memory to memory. A file without verification,
and the small files with it, are compared with a plain C program that makes only the same calls (rivals/move_files.c).

A file of 1 GB of which ten parts of 1 MiB have changed is sent with --update and by rsync over ssh to a directory that has the old file.
Python's source text, compressed (-z), is sent by both over loopback that tc limits to 100 Mbit/s.

The ratio is the other time over kelvin's: its Hodges-Lehmann estimate and the exact 90 % interval of the signed-rank test. Its
lower end must reach the bound.

Exit status: 0 all hold, 1 at least one does not, 2 it could not be done.
"""
import filecmp
import os
import random
import select
import shutil
import subprocess
import sysconfig
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import common
import hosts
from servers import free_port

CONTROL = "cubic"
LARGE_FILE_BYTES = 350_000_000
SMALL_FILES = (10_000, 4096)
CHANGED_FILE_BYTES, CHANGED_PARTS, CHANGED_PART_BYTES = 1_000_000_000, 10, 1 << 20
SLOW_LINK = "100mbit"
HOST = "127.0.0.1"
MAX_SECONDS = 300


class TransferEnds:
    """Two directories in memory, and the files that are sent from one to the other."""

    def __init__(self, base):
        self.base = Path(base)
        self.source, self.target = self.base / "from", self.base / "to"
        self.source.mkdir()
        self.large = self.source / "large"
        self.large.write_bytes(os.urandom(LARGE_FILE_BYTES))
        self.small = self.source / "small"
        self.small.mkdir()
        content = os.urandom(SMALL_FILES[1])
        for number in range(SMALL_FILES[0]):
            (self.small / f"{number:05}").write_bytes(content)
        self.text = self.source / "text"
        only_sources = lambda directory, names: [name for name in names if not name.endswith(".py") and not Path(directory, name).is_dir()]
        shutil.copytree(sysconfig.get_path("stdlib"), self.text, ignore=only_sources)
        self.changed, self.old = self.source / "changed", self.base / "old"

    def make_changed(self):
        """Makes the file that has changed, and the old one; not before it is asked for."""
        if self.changed.exists():
            return
        self.old.write_bytes(os.urandom(CHANGED_FILE_BYTES))
        os.utime(self.old, (1, 1))
        shutil.copyfile(self.old, self.changed)
        with open(self.changed, "r+b") as file:
            for part in range(CHANGED_PARTS):
                file.seek((2 * part + 1) * CHANGED_FILE_BYTES // (2 * CHANGED_PARTS))
                file.write(os.urandom(CHANGED_PART_BYTES))

    def clear(self):
        shutil.rmtree(self.target, ignore_errors=True)
        self.target.mkdir()

    def place_old(self):
        self.clear()
        self.make_changed()
        shutil.copy2(self.old, self.target / self.changed.name)

    def verify(self, source, program):
        """Raises an error unless every file has arrived unchanged."""
        paths = [source] if source.is_file() else filter(Path.is_file, source.rglob("*"))
        pairs = [(path, self.target / path.relative_to(self.source)) for path in paths]
        if not all(filecmp.cmp(*pair, shallow=False) for pair in pairs):
            raise RuntimeError(f"{source} was not transferred unchanged by {program}")


def start_process(*command, **options):
    devnull = subprocess.DEVNULL
    options = {"stdin": devnull, "stdout": devnull, "stderr": devnull, **options}
    return subprocess.Popen([str(argument) for argument in command], **options)


def wait_for_exit(process):
    """Waits for a process and returns its exit status. It does not poll, as Popen.wait with a timeout does every 50 ms."""
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
    """Waits until a program listens on a port, without connecting, since some programs serve only the first connection."""
    local_address = f"0100007F:{port:04X}"
    while not any(local_address in line and line.split()[3] == "0A" for line in Path("/proc/net/tcp").read_text().splitlines()[1:]):
        time.sleep(0.005)


def time_transfer(start_receiver, start_senders, port):
    """Seconds from the start of the sender until both ends have exited."""
    receiver_process = start_receiver()
    wait_for_listener(port)
    start_time = time.perf_counter()
    check_exit(*start_senders(), receiver_process)
    return time.perf_counter() - start_time


class KelvinTransfer:
    def __init__(self, program, ends):
        self.program, self.ends = program, ends

    def transfer(self, source, *flags, destination=None):
        port = free_port()
        destination = destination or [self.ends.target]
        receiver = lambda: start_process(self.program, "receive", *destination, "--once", "--listen", f"{HOST}:{port}")
        sender = lambda: [start_process(self.program, "send", "-r", source, f"{HOST}:{port}", *flags)]
        return time_transfer(receiver, sender, port)


class PlainPrograms:
    """Programs that neither encrypt nor verify."""

    def __init__(self, ends):
        self.ends = ends

    def send_by_nc(self, source):
        port, target = free_port(), self.ends.target / source.name
        with open(target, "wb") as output, open(source, "rb") as input:
            receiver = lambda: start_process("nc", "-l", "-N", HOST, port, stdout=output)
            return time_transfer(receiver, lambda: [start_process("nc", "-N", HOST, port, stdin=input)], port)

    def send_by_socat(self, source):
        port, target = free_port(), self.ends.target / source.name
        receiver = lambda: start_process("socat", "-u", "-b", 1 << 18, f"TCP-LISTEN:{port},bind={HOST}", f"CREATE:{target}")
        return time_transfer(receiver, lambda: [start_process("socat", "-u", "-b", 1 << 18, f"OPEN:{source}", f"TCP:{HOST}:{port}")], port)

    def send_by_iperf3(self, source):
        port, target = free_port(), self.ends.target / source.name
        receiver = lambda: start_process("iperf3", "-s", "-1", "-B", HOST, "-p", port, "-F", target)
        return time_transfer(receiver, lambda: [start_process("iperf3", "-c", HOST, "-p", port, "-F", source, "-n", LARGE_FILE_BYTES)], port)

    def send_memory_by_iperf3(self, _):
        port = free_port()
        receiver = lambda: start_process("iperf3", "-s", "-1", "-B", HOST, "-p", port)
        return time_transfer(receiver, lambda: [start_process("iperf3", "-c", HOST, "-p", port, "-n", LARGE_FILE_BYTES)], port)

    def send_by_tar(self, source):
        port = free_port()

        def sender():
            tar = start_process("tar", "-c", "-C", source.parent, source.name, stdout=subprocess.PIPE)
            return [tar, start_process("nc", "-N", HOST, port, stdin=tar.stdout)]

        script = f"nc -l -N {HOST} {port} | tar -x -C {self.ends.target}"
        return time_transfer(lambda: start_process("sh", "-c", script), sender, port)


class SameCallsProgram:
    """The plain C program that makes the same calls (rivals/move_files.c)."""

    def __init__(self, program, ends):
        self.program, self.ends = program, ends

    def transfer(self, source):
        port, target = free_port(), self.ends.target
        if source.is_dir():
            target = target / source.name
            target.mkdir()
        receiver = lambda: start_process(self.program, "receive", port, target)
        return time_transfer(receiver, lambda: [start_process(self.program, "send", port, source)], port)


class RsyncDaemon:
    """An rsync daemon, which serves all transfers."""

    def __init__(self, ends):
        self.ends, self.port = ends, free_port()
        config_file = ends.base / "rsyncd.conf"
        config_file.write_text(f"address={HOST}\nport={self.port}\nuse chroot=no\n[to]\npath={ends.target}\nread only=no\nuid=0\ngid=0\n")
        self.process = start_process("rsync", "--daemon", "--no-detach", f"--config={config_file}")
        wait_for_listener(self.port)

    def transfer(self, source):
        start_time = time.perf_counter()
        check_exit(start_process("rsync", "-a", "--whole-file", source, f"rsync://{HOST}:{self.port}/to/"))
        return time.perf_counter() - start_time

    def close(self):
        self.process.kill()
        self.process.wait()


class SshServer:
    """An ssh server with keys of its own, which serves all transfers."""

    def __init__(self, ends):
        self.ends, self.port = ends, free_port()
        base = ends.base / "ssh"
        base.mkdir(mode=0o700)
        for key in ["host", "user"]:
            common.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", base / key])
        shutil.copy(base / "user.pub", base / "authorized")
        Path("/run/sshd").mkdir(exist_ok=True)
        config_file = base / "config"
        config_file.write_text(f"ListenAddress {HOST}:{self.port}\nHostKey {base}/host\nAuthorizedKeysFile {base}/authorized\n"
                            "StrictModes no\nPermitRootLogin yes\nUsePAM no\nSubsystem sftp internal-sftp\nPidFile none\n")  # fmt: skip
        self.process = start_process("/usr/sbin/sshd", "-D", "-f", config_file)
        wait_for_listener(self.port)
        self.options = ["-i", base / "user", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"]

    def send_by_scp(self, source):
        start_time = time.perf_counter()
        check_exit(start_process("scp", "-q", "-r", "-P", self.port, *self.options, source, f"{HOST}:{self.ends.target}/"))
        return time.perf_counter() - start_time

    def send_by_rsync(self, *flags):
        shell = " ".join(map(str, ["ssh", "-p", self.port, *self.options]))

        def transfer(source):
            start_time = time.perf_counter()
            check_exit(start_process("rsync", "-a", *flags, "-e", shell, source, f"{HOST}:{self.ends.target}/"))
            return time.perf_counter() - start_time

        return transfer

    def close(self):
        self.process.kill()
        self.process.wait()


@contextmanager
def limited_loopback(rate):
    """Limits what loopback carries in both directions together, if a rate is given."""
    if not rate:
        yield
        return
    tc = common.require_program("tc", "iproute2")
    common.run([tc, "qdisc", "add", "dev", "lo", "root", "tbf", "rate", rate, "burst", "128kb", "latency", "50ms"])
    try:
        yield
    finally:
        common.run([tc, "qdisc", "del", "dev", "lo", "root"])


@dataclass
class Comparison:
    """A transfer by kelvin and by another program, in seconds."""

    files: str
    manner: str
    name: str
    bound: float
    ours: object = common.transient_field()
    theirs: object = common.transient_field()
    # Whether files arrive, so that they can be compared.
    arrives: bool = True
    # The rate of the link, in the notation of tc.
    link: str = ""
    # Whether the old file is there before.
    is_update: bool = False
    measured: list = field(default_factory=list)

    def measure(self, ends, order):
        seconds = {}
        for side in order.sample(["ours", "theirs"], 2):
            ends.place_old() if self.is_update else ends.clear()
            with limited_loopback(self.link):
                seconds[side] = getattr(self, side)(ends.source / self.files)
            if self.arrives:
                ends.verify(ends.source / self.files, self.name if side == "theirs" else "kelvin")
        self.measured.append((seconds["ours"], seconds["theirs"]))

    def interval(self):
        # Inverted, since these are times: a ratio above one means that kelvin is faster.
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


def comparisons(kelvin, ends, same_calls, rsync, ssh):
    plain = PlainPrograms(ends)
    kelvin_with = lambda *flags, destination=None: lambda source: kelvin.transfer(source, *flags, destination=destination)
    verified, encrypted, discarded = "plain, verified", "encrypted, verified", "plain, into nothing"
    unverified = "plain, not verified"
    large, small = ends.large.name, ends.small.name
    return [
        Comparison(large, verified, "nc", 1, kelvin_with("--plain"), plain.send_by_nc),
        Comparison(large, verified, "socat", 1, kelvin_with("--plain"), plain.send_by_socat),
        Comparison(large, verified, "iperf3 -F", 1, kelvin_with("--plain"), plain.send_by_iperf3, False),
        Comparison(large, verified, "rsync, daemon", 1, kelvin_with("--plain"), rsync.transfer),
        Comparison(large, encrypted, "scp", 2, kelvin_with(), ssh.send_by_scp),
        Comparison(large, encrypted, "rsync, ssh", 1, kelvin_with(), ssh.send_by_rsync("--whole-file")),
        Comparison(large, discarded, "iperf3, memory", 0.9, kelvin_with("--plain", "--no-verify", destination=["--discard"]), plain.send_memory_by_iperf3, False),
        Comparison(large, unverified, "C, same calls", 0.9, kelvin_with("--plain", "--no-verify"), same_calls.transfer),
        Comparison(small, verified, "C, same calls", 0.9, kelvin_with("--plain"), same_calls.transfer),
        Comparison(small, verified, "rsync, daemon", 1.5, kelvin_with("--plain"), rsync.transfer),
        Comparison(small, verified, "tar, nc", 1, kelvin_with("--plain"), plain.send_by_tar),
        Comparison(small, encrypted, "rsync, ssh", 1, kelvin_with(), ssh.send_by_rsync("--whole-file")),
        Comparison(ends.changed.name, "encrypted, --update", "rsync, changes, ssh", 1, kelvin_with("--update", destination=[ends.target, "--overwrite"]),
                   ssh.send_by_rsync("--no-whole-file"), is_update=True),
        Comparison(ends.text.name, f"encrypted, -z, {SLOW_LINK}", "rsync -z, ssh", 1, kelvin_with("-z"), ssh.send_by_rsync("-z"), link=SLOW_LINK),
    ]  # fmt: skip


def parse():
    parser = common.make_pairs_parser(__doc__, seconds=1, max_pairs=30)
    parser.add_argument("--only", action="append", metavar="NAME", help="only comparisons with this program; can be repeated")
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
            same_calls = SameCallsProgram(common.build_rival("move_files", base), ends)
            selection = [comparison for comparison in comparisons(kelvin, ends, same_calls, rsync, ssh) if not arguments.only or comparison.name in arguments.only]
            for pair_number, unsettled in common.pair_rounds(arguments, selection):
                for comparison in order.sample(unsettled, len(unsettled)):
                    comparison.measure(ends, order)
                common.log(f"{pair_number} pairs")
        finally:
            rsync.close()
            ssh.close()
    return selection


def tables(measured):
    results = [Comparison(**entry) for entry in measured]
    header = ["files", "kelvin's manner", "kelvin", "beside it", "its time", "ratio", "90 % interval", "bound", "pairs", "verdict"]
    return common.table(header, [entry.row() for entry in results]), all(entry.verdict() == "holds" for entry in results)


if __name__ == "__main__":
    common.main(parse, measure, tables)
