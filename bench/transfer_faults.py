#!/usr/bin/env python3
"""Whether a disturbed transfer leaves files intact or absent, and the next transfer completes it.

  sender killed     kill -9 of the sender at random instants (--kills times), three with the same target; then one more
                    transfer without a kill
  receiver killed   the same with the receiver
  link cut          between two network namespaces: after a short cut everything arrives; after a permanent cut both ends
                    exit; then one more transfer over the restored link
  full disk         another program fills the receiver's file system during a transfer; then one more with free space
  source changed    a file that is written, truncated, grown, removed or replaced while it is sent
  memory            of both ends (VmHWM) for one file of 1 GiB, and for 20,000 files

After each disturbance every file under its final name has the content of the source. After the undisturbed transfer all files
are there, with their permissions and times, and nothing else.

Without root, tests that need it are skipped and reported. The tests of crates/transfer send invalid frames (fuzz.rs).

Exit status: 0 every test passed, 1 at least one did not, 2 it could not be done.
"""
import filecmp
import json
import os
import random
import re
import shutil
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import common
import hosts
from faults import require, run_check, require_root, tables

LARGE_FILE_BYTES = 150 << 20
SMALL_FILE_COUNT = 400
# Kills with the same target: each transfer resumes from the files of the killed one.
KILLS_PER_TARGET = 3
MIB = 1 << 20
# The memory limit of either end: 64 MiB, and a buffer for its one stream.
MAX_MEMORY = 65 * MIB
# Longer than either end waits for the other (channel.rs).
MAX_SECONDS = 200
KELVIN_PREFIX = ".kelvin-"
NEAR_ADDRESS, FAR_ADDRESS = "198.18.93.1", "198.18.93.2"


class TransferEnds:
    """A tree of files and the directory of a receiver, with a common parent directory."""

    def __init__(self, kelvin, base):
        self.kelvin, self.base = kelvin, Path(base)
        self.tree, self.target = self.base / "tree", self.base / "in"
        self.target.mkdir()

    def create_tree(self):
        """Creates a large file, and small files in two directories."""
        for directory in ("a", "z"):
            (self.tree / directory).mkdir(parents=True)
            for number in range(SMALL_FILE_COUNT):
                (self.tree / directory / str(number)).write_bytes(os.urandom(37 * number))
        (self.tree / "large").write_bytes(os.urandom(LARGE_FILE_BYTES))
        for directory in ("a", "z", "."):
            (self.tree / directory).chmod(0o751)
            os.utime(self.tree / directory, ns=(10**18, 10**18 + 5))

    def start(self, *arguments, host=None, **options):
        command = [self.kelvin, *arguments]
        command = hosts.in_namespace(host, *command) if host else [str(word) for word in command]
        pipe = subprocess.PIPE
        options = {"stdout": pipe, "stderr": pipe, "text": True, "cwd": self.base, "stdin": subprocess.DEVNULL, **options}
        return subprocess.Popen(command, **options)

    @contextmanager
    def receiver(self, *arguments, into="in", address="127.0.0.1:0", **options):
        """Yields a listening receiver and its address. The receiver is killed at the end of the block."""
        with open(self.base / "log", "ab") as log:
            process = self.start("receive", into, "--listen", address, *arguments, stderr=log, **options)
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()
            process.wait()

    def send(self, source, address, *arguments, **options):
        """Sends, and returns the exit status, the summary, and the messages."""
        process = self.start("send", "-r", source, address, "--json", *arguments, **options)
        stdout, stderr = process.communicate(timeout=MAX_SECONDS)
        return process.returncode, json.loads(stdout) if stdout.strip() else None, stderr.strip()

    def require_intact_files(self):
        """Requires that each file under its final name equals the source. Returns the number of files."""
        count = 0
        for directory, directories, files in os.walk(self.target):
            # A running receiver may remove these at any time.
            directories[:] = [name for name in directories if not name.startswith(KELVIN_PREFIX)]
            for path in (Path(directory, name) for name in files if not name.startswith(KELVIN_PREFIX)):
                source = self.base / path.relative_to(self.target)
                require(filecmp.cmp(source, path, shallow=False), f"{path.relative_to(self.target)} differs from its source")
                count += 1
        return count

    def send_until_complete(self, address):
        """Sends until the transfer succeeds, as a user would. Requires the complete tree and nothing else. Returns the resumed bytes."""
        deadline, resumed_bytes = time.monotonic() + MAX_SECONDS, 0
        while True:
            status, summary, messages = self.send("tree", address, "--update")
            resumed_bytes += summary["resumed"] if summary else 0
            if status == 0:
                break
            # The receiver may not have noticed yet that the earlier connection was cut.
            require(time.monotonic() < deadline, f"the transfer was not completed: {messages[:500]}")
            time.sleep(0.05)
        self.require_intact_files()
        target_states, source_states = ({path.relative_to(base): file_state(path) for path in base.rglob("*")} for base in (self.target / "tree", self.tree))
        different = [str(name) for name in target_states.keys() | source_states.keys() if target_states.get(name) != source_states.get(name)]
        require(not different, f"after completion {len(different)} paths differ: {sorted(different)[:3]}")
        leftovers = [path.name for path in self.target.iterdir() if path.name != "tree"]
        require(not leftovers, f"left behind: {leftovers}")
        return resumed_bytes

    def clear_target(self):
        for path in self.target.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def file_state(path):
    stat = path.lstat()
    return oct(stat.st_mode), stat.st_mtime_ns, None if path.is_dir() else stat.st_size


@contextmanager
def temporary_ends(kelvin):
    with tempfile.TemporaryDirectory(prefix="kelvin-bench-") as base:
        yield TransferEnds(kelvin, base)


# ---- the checks


class KillTest:
    """Kills an end at random instants of a transfer. Counts the kills during a transfer, and the resumed bytes."""

    def __init__(self, ends, random_source, kills):
        self.ends, self.random_source, self.kills = ends, random_source, kills
        self.kill_count = self.resumed_bytes = self.intact_files = 0
        self.max_seconds = 0

    def measure_duration(self, address):
        """Measures the duration of an undisturbed transfer, during which kills happen."""
        start_time = time.monotonic()
        status, _, messages = self.ends.send("tree", address)
        self.max_seconds = time.monotonic() - start_time
        require(status == 0, messages)
        self.ends.clear_target()

    def kill_once(self, sender, victim):
        time.sleep(self.random_source.uniform(0, self.max_seconds))
        was_running = sender.poll() is None
        self.kill_count += was_running
        # The duration changes with other load, and with the files that are already there.
        self.max_seconds *= 1.04 if was_running else 0.92
        victim.kill()
        victim.wait()
        sender.communicate(timeout=MAX_SECONDS)
        self.intact_files += self.ends.require_intact_files()

    def complete_transfer(self, address):
        self.resumed_bytes += self.ends.send_until_complete(address)
        self.ends.clear_target()
        common.log(f"killed {self.kill_count} of {self.kills}")

    def summary(self):
        require(self.resumed_bytes > 0, "no transfer was resumed")
        return f"{self.kill_count} kills during transfers, {self.intact_files} intact files after them, {self.resumed_bytes / MIB:.0f} MiB resumed"


def sender_killed(kelvin, random_source, kills):
    with temporary_ends(kelvin) as test_ends, test_ends.receiver() as (_, address):
        test_ends.create_tree()
        kill_test = KillTest(test_ends, random_source, kills)
        kill_test.measure_duration(address)

        def kill_one():
            sender = test_ends.start("send", "-r", "tree", address, "--update")
            kill_test.kill_once(sender, sender)

        while kill_test.kill_count < kills:
            for _ in range(KILLS_PER_TARGET):
                kill_one()
            kill_test.complete_transfer(address)
        return kill_test.summary()


def receiver_killed(kelvin, random_source, kills):
    with temporary_ends(kelvin) as test_ends:
        test_ends.create_tree()
        kill_test = KillTest(test_ends, random_source, kills)
        with test_ends.receiver() as (_, address):
            kill_test.measure_duration(address)

        def kill_one():
            with test_ends.receiver() as (receiver, address):
                kill_test.kill_once(test_ends.start("send", "-r", "tree", address, "--update"), receiver)

        while kill_test.kill_count < kills:
            for _ in range(KILLS_PER_TARGET):
                kill_one()
            with test_ends.receiver() as (_, address):
                kill_test.complete_transfer(address)
        return kill_test.summary()


@contextmanager
def linked_hosts():
    """Creates two hosts joined by a link. Yields their names."""
    require_root()
    names = [f"kelvin-{role}-{os.getpid()}" for role in ("near", "far")]
    try:
        for name in names:
            hosts.ip("netns", "add", name)
            hosts.ip("-netns", name, "link", "set", "lo", "up")
        hosts.connect_hosts(names[0], f"{NEAR_ADDRESS}/30", names[1], f"{FAR_ADDRESS}/30", "t")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], stderr=subprocess.DEVNULL, check=False)


def link_cut(kelvin, _):
    with temporary_ends(kelvin) as test_ends, linked_hosts() as (near, far), hosts.token_file() as token_path:
        test_ends.create_tree()
        set_link = lambda state: hosts.ip("-netns", near, "link", "set", "near-t", state)
        receiver_options = {"address": f"{FAR_ADDRESS}:0", "host": far}
        token_flags = ("--token-file", token_path)
        with test_ends.receiver(*token_flags, **receiver_options) as (_, address):
            sender = test_ends.start("send", "-r", "tree", address, "--json", "--limit", "30MiB", *token_flags, host=near)
            time.sleep(1)
            set_link("down")
            time.sleep(2)
            set_link("up")
            result, messages = sender.communicate(timeout=MAX_SECONDS)
            require(sender.returncode == 0, f"after a short cut the sender failed: {messages.strip()}")
            test_ends.require_intact_files()
            seconds = json.loads(result)["seconds"]
            test_ends.clear_target()
        with test_ends.receiver("--once", *token_flags, **receiver_options) as (receiver, address):
            sender = test_ends.start("send", "-r", "tree", address, "--limit", "30MiB", *token_flags, host=near)
            time.sleep(1)
            set_link("down")
            cut_time = time.monotonic()
            _, messages = sender.communicate(timeout=MAX_SECONDS)
            seconds_to_exit = time.monotonic() - cut_time
            status = receiver.wait(MAX_SECONDS)
            require(sender.returncode == 1 and status == 1, f"after a permanent cut the exit statuses are {sender.returncode} and {status}: {messages.strip()}")
            test_ends.require_intact_files()
        set_link("up")
        with test_ends.receiver(*token_flags, **receiver_options) as (_, address):
            status, result, messages = test_ends.send("tree", address, "--update", *token_flags, host=near)
            require(status == 0 and result["resumed"] > 0, f"then: {messages}")
            test_ends.require_intact_files()
        return f"down for 2 s: all in {seconds:.1f} s; for good: ended after {seconds_to_exit:.0f} s: {messages or 'then resumed'}"


def full_disk(kelvin, _):
    require_root()
    with temporary_ends(kelvin) as test_ends:
        (test_ends.base / "large").write_bytes(os.urandom(48 * MIB))
        common.run(["mount", "-t", "tmpfs", "-o", "size=64m", "none", test_ends.target])
        try:
            with test_ends.receiver() as (_, address):
                filler = test_ends.target / "others"
                sender = test_ends.start("send", "large", address, "--limit", "20MiB")
                time.sleep(0.7)
                with open(filler, "wb") as file:
                    # Until the file system is full.
                    try:
                        while True:
                            file.write(bytes(MIB))
                            file.flush()
                    except OSError:
                        pass
                _, messages = sender.communicate(timeout=MAX_SECONDS)
                require(sender.returncode == 1 and "No space" in messages, f"exit status {sender.returncode}: {messages}")
                require(not (test_ends.target / "large").exists(), "the incomplete file has its final name")
                filler.unlink()
                status, _, retry_messages = test_ends.send("large", address)
                require(status == 0, f"with free space: {retry_messages}")
                require(filecmp.cmp(test_ends.base / "large", test_ends.target / "large", shallow=False), "the file differs from its source")
                leftovers = sorted(path.name for path in test_ends.target.iterdir())
                require(leftovers == ["large"], f"left behind: {leftovers}")
                return messages.strip().splitlines()[-1]
        finally:
            common.run(["umount", test_ends.target])


def overwrite(path):
    with open(path, "r+b") as file:
        file.write(b"other")


def grow(path):
    with open(path, "ab") as file:
        file.write(b"more")


def replace(path):
    other = path.with_name("other")
    other.write_bytes(os.urandom(LARGE_FILE_BYTES))
    other.rename(path)


CHANGES = {
    "written": overwrite,
    "truncated": lambda path: os.truncate(path, LARGE_FILE_BYTES - 5),
    "truncated behind": lambda path: os.truncate(path, MIB),
    "grown": grow,
    "removed": Path.unlink,
    "replaced": replace,
}


def source_changed(kelvin, _):
    results = []
    with temporary_ends(kelvin) as test_ends, test_ends.receiver() as (_, address):
        for name, change in CHANGES.items():
            source, target = test_ends.base / "large", test_ends.target / "large"
            content = os.urandom(LARGE_FILE_BYTES)
            source.write_bytes(content)
            sender = test_ends.start("send", "large", address, "--limit", "100MiB")
            time.sleep(0.7)
            require(sender.poll() is None, f"{name}: the transfer ended before the change")
            change(source)
            _, messages = sender.communicate(timeout=MAX_SECONDS)
            # An open file stays readable after its name is removed.
            is_there = target.exists()
            require(not is_there or target.read_bytes() == content, f"{name}: the received content differs from the original")
            require(is_there == (sender.returncode == 0), f"{name}: exit status {sender.returncode}")
            results.append(f"{name}: {'intact, unchanged' if is_there else re.sub('^.*(large )', '', messages.strip())}")
            target.unlink(missing_ok=True)
            if source.exists():
                status, _, messages = test_ends.send("large", address)
                require(status == 0 and filecmp.cmp(source, target, shallow=False), f"{name}, then: {messages}")
                target.unlink()
            require(not list(test_ends.target.iterdir()), f"{name}: left behind: {list(test_ends.target.iterdir())}")
    return "; ".join(results)


def peak_memory(process):
    """The peak memory of a process so far (VmHWM), in bytes. 0 for a process that has ended."""
    line = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())
    return int(line[1]) << 10 if line else 0


def memory(kelvin, _):
    results = []
    with temporary_ends(kelvin) as test_ends:
        with open(test_ends.base / "one", "wb") as file:
            for _ in range(16):
                file.write(os.urandom(64 * MIB))
        (test_ends.base / "many").mkdir()
        for number in range(20_000):
            (test_ends.base / "many" / f"{number}").write_bytes(b"x" * 100)
        for source in ("one", "many"):
            with test_ends.receiver() as (receiver, address):
                sender = test_ends.start("send", "-r", source, address)
                sender_peak = 0
                while sender.poll() is None:
                    sender_peak = max(sender_peak, peak_memory(sender))
                    time.sleep(0.005)
                require(sender.wait(MAX_SECONDS) == 0, f"{source}: exit status {sender.returncode}")
                peaks = sender_peak, peak_memory(receiver)
                require(max(peaks) < MAX_MEMORY, f"{source}: {peaks[0] / MIB:.0f} and {peaks[1] / MIB:.0f} MiB")
                results.append(f"{source}: {peaks[0] / MIB:.0f} MiB at the sender, {peaks[1] / MIB:.0f} MiB at the receiver")
            test_ends.clear_target()
    return "; ".join(results)


CHECKS = {"link cut": link_cut, "full disk": full_disk, "source changed": source_changed, "memory": memory}
KILLS = {"sender killed": sender_killed, "receiver killed": receiver_killed}


def parse():
    parser = common.make_parser(__doc__)
    parser.add_argument("--kills", type=int, default=100, help="kills of either end at random instants [default: %(default)s]")
    parser.add_argument("--only", choices=[*KILLS, *CHECKS], help="only this test")
    return parser.parse_args()


def measure(arguments):
    kelvin, random_source = common.kelvin_program(arguments.kelvin), random.Random(arguments.seed)
    tests = {name: (lambda test=test: test(kelvin, random_source, arguments.kills)) for name, test in KILLS.items()}
    tests |= {name: (lambda test=test: test(kelvin, random_source)) for name, test in CHECKS.items()}
    verdicts = {}
    for name, test in tests.items():
        if arguments.only in (None, name):
            verdicts[name] = run_check(test)
            common.log(f"{name}: {': '.join(verdicts[name])}")
    return verdicts


if __name__ == "__main__":
    common.main(parse, measure, tables)
