#!/usr/bin/env python3
"""Whether a transfer that is disturbed leaves files whole or absent, and the next one completes it.

  sender killed     kill -9 of the sender at random instants (--kills times), some on the same target; after every third,
                    one more transfer, which is left alone
  receiver killed   the same of the receiver
  link cut          between two network namespaces: down for a moment, and all arrives; down for good, and both ends end by
                    themselves; then one more transfer over it
  full disk         a receiver's file system that fills up under way, by another program; then one more with room
  source changed    a file that is written, truncated, grown, removed or replaced while it is sent
  memory            of both ends (VmHWM) for one file of 1 GiB, and for 20,000 files

After each disturbance every file under its final name has the source's content; after the transfer that is left alone all are
there, with their permissions and times, and nothing else.

What needs root is skipped and reported. Frames that nobody should send are tried by the tests of crates/transfer (fuzz.rs).

Exit status: 0 all kept, 1 one was not, 2 it could not be done.
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

LARGE = 150 << 20
SMALL = 400
# Kills on the same target: what one has left, the next goes on with.
ON_ONE = 3
MIB = 1 << 20
# What either end may take: 64 MiB, and a buffer for its one stream.
MEMORY = 65 * MIB
# Longer than either end waits for the other (PATIENCE of channel.rs).
PATIENCE = 200
KELVINS_OWN = ".kelvin-"
NEAR, FAR = "198.18.93.1", "198.18.93.2"


class TransferEnds:
    """A tree of files, and a receiver's directory; both in one place."""

    def __init__(self, kelvin, base):
        self.kelvin, self.base = kelvin, Path(base)
        self.tree, self.into = self.base / "tree", self.base / "in"
        self.into.mkdir()

    def grow(self):
        """A large file between small ones in two directories."""
        for directory in ("a", "z"):
            (self.tree / directory).mkdir(parents=True)
            for number in range(SMALL):
                (self.tree / directory / str(number)).write_bytes(os.urandom(37 * number))
        (self.tree / "large").write_bytes(os.urandom(LARGE))
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
        """A receiver that listens, and its address; ended with the block."""
        with open(self.base / "log", "ab") as log:
            process = self.start("receive", into, "--listen", address, *arguments, stderr=log, **options)
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()
            process.wait()

    def send(self, what, to, *arguments, **options):
        """Sends to its end: the exit status, the summary, and what it said."""
        process = self.start("send", "-r", what, to, "--json", *arguments, **options)
        told, output = process.communicate(timeout=PATIENCE)
        return process.returncode, json.loads(told) if told.strip() else None, output.strip()

    def check_whole(self):
        """That each file under its name is as it was sent; how many there are."""
        count = 0
        for above, directories, files in os.walk(self.into):
            # A receiver that lives removes them whenever it has done.
            directories[:] = [name for name in directories if not name.startswith(KELVINS_OWN)]
            for path in (Path(above, name) for name in files if not name.startswith(KELVINS_OWN)):
                source = self.base / path.relative_to(self.into)
                require(filecmp.cmp(source, path, shallow=False), f"{path.relative_to(self.into)} is not whole")
                count += 1
        return count

    def complete(self, to):
        """Sends until it is moved, as a user would; all of it is there then, and nothing else. Returns the bytes gone on with."""
        end, resumed = time.monotonic() + PATIENCE, 0
        while True:
            status, told, output = self.send("tree", to, "--update")
            resumed += told["resumed"] if told else 0
            if status == 0:
                break
            # The connection that was cut may not have ended at the receiver.
            require(time.monotonic() < end, f"it is not completed: {output[:500]}")
            time.sleep(0.05)
        self.check_whole()
        found, wanted = ({path.relative_to(base): describe(path) for path in base.rglob("*")} for base in (self.into / "tree", self.tree))
        differs = [str(name) for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name)]
        require(not differs, f"after it was completed, {len(differs)} are not as they were: {sorted(differs)[:3]}")
        left = [path.name for path in self.into.iterdir() if path.name != "tree"]
        require(not left, f"left behind: {left}")
        return resumed

    def clear(self):
        for path in self.into.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def describe(path):
    found = path.lstat()
    return oct(found.st_mode), found.st_mtime_ns, None if path.is_dir() else found.st_size


@contextmanager
def ends(kelvin):
    with tempfile.TemporaryDirectory(prefix="kelvin-bench-") as base:
        yield TransferEnds(kelvin, base)


# ---- the checks


class KillTest:
    """Kills an end at random instants of a transfer; how often it was in time, and how much was gone on with."""

    def __init__(self, here, random_source, kills):
        self.here, self.random_source, self.kills = here, random_source, kills
        self.killed = self.resumed = self.whole = 0
        self.longest = 0

    def undisturbed(self, to):
        """Makes one that is left alone: kills come within the time that it takes."""
        begun = time.monotonic()
        status, _, output = self.here.send("tree", to)
        self.longest = time.monotonic() - begun
        require(status == 0, output)
        self.here.clear()

    def once(self, sender, victim):
        time.sleep(self.random_source.uniform(0, self.longest))
        is_in_time = sender.poll() is None
        self.killed += is_in_time
        # It takes more or less by now: what other work takes changes, and some of it may be there already.
        self.longest *= 1.04 if is_in_time else 0.92
        victim.kill()
        victim.wait()
        sender.communicate(timeout=PATIENCE)
        self.whole += self.here.check_whole()

    def completed(self, to):
        self.resumed += self.here.complete(to)
        self.here.clear()
        common.log(f"killed {self.killed} of {self.kills}")

    def output(self):
        require(self.resumed > 0, "nothing was ever gone on with")
        return f"{self.killed} kills under way, {self.whole} files found whole after them, {self.resumed / MIB:.0f} MiB gone on with"


def sender_killed(kelvin, random_source, kills):
    with ends(kelvin) as here, here.receiver() as (_, to):
        here.grow()
        killing = KillTest(here, random_source, kills)
        killing.undisturbed(to)

        def one():
            sender = here.start("send", "-r", "tree", to, "--update")
            killing.once(sender, sender)

        while killing.killed < kills:
            for _ in range(ON_ONE):
                one()
            killing.completed(to)
        return killing.output()


def receiver_killed(kelvin, random_source, kills):
    with ends(kelvin) as here:
        here.grow()
        killing = KillTest(here, random_source, kills)
        with here.receiver() as (_, to):
            killing.undisturbed(to)

        def one():
            with here.receiver() as (receiver, to):
                killing.once(here.start("send", "-r", "tree", to, "--update"), receiver)

        while killing.killed < kills:
            for _ in range(ON_ONE):
                one()
            with here.receiver() as (_, to):
                killing.completed(to)
        return killing.output()


@contextmanager
def link():
    """Two hosts that are joined: their names."""
    require_root()
    names = [f"kelvin-{end}-{os.getpid()}" for end in ("near", "far")]
    try:
        for name in names:
            hosts.ip("netns", "add", name)
            hosts.ip("-netns", name, "link", "set", "lo", "up")
        hosts.connect_hosts(names[0], f"{NEAR}/30", names[1], f"{FAR}/30", "t")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], stderr=subprocess.DEVNULL, check=False)


def link_cut(kelvin, _):
    with ends(kelvin) as here, link() as (near, far), hosts.token_file() as secret:
        here.grow()
        switch = lambda state: hosts.ip("-netns", near, "link", "set", "near-t", state)
        far_end = {"address": f"{FAR}:0", "host": far}
        with_secret = ("--token-file", secret)
        with here.receiver(*with_secret, **far_end) as (_, to):
            sender = here.start("send", "-r", "tree", to, "--json", "--limit", "30MiB", *with_secret, host=near)
            time.sleep(1)
            switch("down")
            time.sleep(2)
            switch("up")
            told, output = sender.communicate(timeout=PATIENCE)
            require(sender.returncode == 0, f"cut for a moment, it ends: {output.strip()}")
            here.check_whole()
            seconds = json.loads(told)["seconds"]
            here.clear()
        with here.receiver("--once", *with_secret, **far_end) as (receiver, to):
            sender = here.start("send", "-r", "tree", to, "--limit", "30MiB", *with_secret, host=near)
            time.sleep(1)
            switch("down")
            begun = time.monotonic()
            _, output = sender.communicate(timeout=PATIENCE)
            ended = time.monotonic() - begun
            status = receiver.wait(PATIENCE)
            require(sender.returncode == 1 and status == 1, f"cut for good, they end with {sender.returncode} and {status}: {output.strip()}")
            here.check_whole()
        switch("up")
        with here.receiver(*with_secret, **far_end) as (_, to):
            status, told, output = here.send("tree", to, "--update", *with_secret, host=near)
            require(status == 0 and told["resumed"] > 0, f"then: {output}")
            here.check_whole()
        return f"down for 2 s: all in {seconds:.1f} s; for good: ended after {ended:.0f} s: {output or 'then gone on with'}"


def full_disk(kelvin, _):
    require_root()
    with ends(kelvin) as here:
        (here.base / "large").write_bytes(os.urandom(48 * MIB))
        common.run(["mount", "-t", "tmpfs", "-o", "size=64m", "none", here.into])
        try:
            with here.receiver() as (_, to):
                other = here.into / "others"
                sender = here.start("send", "large", to, "--limit", "20MiB")
                time.sleep(0.7)
                with open(other, "wb") as file:
                    # As much as there is.
                    try:
                        while True:
                            file.write(bytes(MIB))
                            file.flush()
                    except OSError:
                        pass
                _, output = sender.communicate(timeout=PATIENCE)
                require(sender.returncode == 1 and "No space" in output, f"exit status {sender.returncode}: {output}")
                require(not (here.into / "large").exists(), "it has its name")
                other.unlink()
                status, _, again = here.send("large", to)
                require(status == 0, f"with room: {again}")
                require(filecmp.cmp(here.base / "large", here.into / "large", shallow=False), "it is not whole")
                left = sorted(path.name for path in here.into.iterdir())
                require(left == ["large"], f"left behind: {left}")
                return output.strip().splitlines()[-1]
        finally:
            common.run(["umount", here.into])


def overwrite(path):
    with open(path, "r+b") as file:
        file.write(b"other")


def grow(path):
    with open(path, "ab") as file:
        file.write(b"more")


def replace(path):
    other = path.with_name("other")
    other.write_bytes(os.urandom(LARGE))
    other.rename(path)


CHANGES = {
    "written": overwrite,
    "truncated": lambda path: os.truncate(path, LARGE - 5),
    "truncated behind": lambda path: os.truncate(path, MIB),
    "grown": grow,
    "removed": Path.unlink,
    "replaced": replace,
}


def source_changed(kelvin, _):
    found = []
    with ends(kelvin) as here, here.receiver() as (_, to):
        for name, change in CHANGES.items():
            source, target = here.base / "large", here.into / "large"
            content = os.urandom(LARGE)
            source.write_bytes(content)
            sender = here.start("send", "large", to, "--limit", "100MiB")
            time.sleep(0.7)
            require(sender.poll() is None, f"{name}: it was over before")
            change(source)
            _, output = sender.communicate(timeout=PATIENCE)
            # What was opened is still there when its name is not.
            is_there = target.exists()
            require(not is_there or target.read_bytes() == content, f"{name}: what arrived is not what was there")
            require(is_there == (sender.returncode == 0), f"{name}: exit status {sender.returncode}")
            found.append(f"{name}: {'whole, as it was' if is_there else re.sub('^.*(large )', '', output.strip())}")
            target.unlink(missing_ok=True)
            if source.exists():
                status, _, output = here.send("large", to)
                require(status == 0 and filecmp.cmp(source, target, shallow=False), f"{name}, then: {output}")
                target.unlink()
            require(not list(here.into.iterdir()), f"{name}: left behind: {list(here.into.iterdir())}")
    return "; ".join(found)


def peak_memory(process):
    """The most that a process had in memory so far (VmHWM); nothing of one that has ended."""
    line = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())
    return int(line[1]) << 10 if line else 0


def memory(kelvin, _):
    found = []
    with ends(kelvin) as here:
        with open(here.base / "one", "wb") as file:
            for _ in range(16):
                file.write(os.urandom(64 * MIB))
        (here.base / "many").mkdir()
        for number in range(20_000):
            (here.base / "many" / f"{number}").write_bytes(b"x" * 100)
        for what in ("one", "many"):
            with here.receiver() as (receiver, to):
                sender = here.start("send", "-r", what, to)
                most = 0
                while sender.poll() is None:
                    most = max(most, peak_memory(sender))
                    time.sleep(0.005)
                require(sender.wait(PATIENCE) == 0, f"{what}: exit status {sender.returncode}")
                both = most, peak_memory(receiver)
                require(max(both) < MEMORY, f"{what}: {both[0] / MIB:.0f} and {both[1] / MIB:.0f} MiB")
                found.append(f"{what}: {both[0] / MIB:.0f} MiB at the sender, {both[1] / MIB:.0f} MiB at the receiver")
            here.clear()
    return "; ".join(found)


CHECKS = {"link cut": link_cut, "full disk": full_disk, "source changed": source_changed, "memory": memory}
KILLS = {"sender killed": sender_killed, "receiver killed": receiver_killed}


def parse():
    parser = common.make_parser(__doc__)
    parser.add_argument("--kills", type=int, default=100, help="kills of either end at random instants [default: %(default)s]")
    parser.add_argument("--only", choices=[*KILLS, *CHECKS], help="this one alone")
    return parser.parse_args()


def measure(arguments):
    kelvin, random_source = common.kelvin_program(arguments.kelvin), random.Random(arguments.seed)
    todo = {name: (lambda one=one: one(kelvin, random_source, arguments.kills)) for name, one in KILLS.items()}
    todo |= {name: (lambda one=one: one(kelvin, random_source)) for name, one in CHECKS.items()}
    verdicts = {}
    for name, one in todo.items():
        if arguments.only in (None, name):
            verdicts[name] = run_check(one)
            common.log(f"{name}: {': '.join(verdicts[name])}")
    return verdicts


if __name__ == "__main__":
    common.main(parse, measure, tables)
