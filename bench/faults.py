#!/usr/bin/env python3
"""Whether kelvin loses nothing and leaves nothing behind under faults.

  killed            kill -9 of the parent at random instants of `kelvin run --quick` (--kills times). Afterwards: the store
                    is whole and can be listed; the killed run has at least as many rounds as its progress line last said
                    were done; within a second no process is left; the next start leaves no scratch directory; no cgroup
  interrupted       SIGINT in the middle: the run is stored and marked partial, exit status 1, nothing left
  full disk         the store on a file system that fills up: the table is printed, then one line says what could not be
                    stored, exit status 2
  no store          a HOME that cannot be written: one line, exit status 2, and --no-store still measures
  no root           as nobody: the run does its work
  namespaces        in network and process namespaces of its own (what a container has)
  one CPU           allowed one CPU: what needs two is skipped with the reason
  64 MiB            in a memory cgroup of 64 MiB: the run ends by itself; a probe that is killed costs only itself

What needs root, or a missing cgroup, is skipped and reported.

Exit status: 0 all kept, 1 one was not, 2 it could not be done.
"""
import contextlib
import json
import os
import pty
import random
import re
import select
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time
from pathlib import Path

import common

PROGRESS = re.compile(rb"(\d+) rounds, at most")
# Longest time until every process of a killed run is gone, in seconds.
MAX_EXIT_SECONDS = 1.0
# Longest undisturbed quick run, with room for a loaded machine, in seconds.
MAX_QUICK_SECONDS = 30.0


class Skipped(Exception):
    """A check cannot be made here, for this reason."""


class Failure(Exception):
    """A check found something wrong."""


def check(holds, text):
    if not holds:
        raise Failure(text)


class Sandbox:
    """A directory that is working directory, home and scratch space of the kelvins started in it."""

    def __init__(self, kelvin, directory):
        self.kelvin, self.path = kelvin, Path(directory).resolve()
        self.store = self.path / "data/kelvin/runs.sqlite"

    def environment(self):
        here = str(self.path)
        return {**os.environ, "HOME": here, "XDG_DATA_HOME": f"{here}/data", "TMPDIR": here}

    def run(self, *arguments, prefix=(), timeout=120, **options):
        """A kelvin run to its end."""
        command = [str(word) for word in (*prefix, self.kelvin, *arguments)]
        options = {"cwd": self.path, "env": self.environment(), "text": True, "capture_output": True, **options}
        return subprocess.run(command, stdin=subprocess.DEVNULL, timeout=timeout, **options)

    def stored_runs(self):
        """The stored runs, by kelvin itself."""
        done = self.run("runs", "list", "--json")
        check(done.returncode == 0, f"kelvin runs list: {done.stderr.strip()}")
        return json.loads(done.stdout)

    def rounds(self):
        """Finished rounds of the newest stored run, failed or not, from a store that must be whole; 0 without a run."""
        if not self.store.exists():
            return 0
        with contextlib.closing(sqlite3.connect(self.store)) as store:
            whole = store.execute("PRAGMA integrity_check").fetchone()[0]
            check(whole == "ok", f"the store is damaged: {whole}")
            newest = "SELECT key FROM run ORDER BY started_us DESC LIMIT 1"
            return store.execute(f"SELECT count(*) FROM round WHERE run = ({newest})").fetchone()[0]

    def processes(self):
        """Processes whose working directory is this place."""
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and os.readlink(entry / "cwd") == str(self.path):
                    found.append(int(entry.name))
        return found

    def check_nothing_runs(self):
        end = time.monotonic() + MAX_EXIT_SECONDS
        while (left := self.processes()) and time.monotonic() < end:
            time.sleep(0.02)
        check(not left, f"{len(left)} processes still run {MAX_EXIT_SECONDS:g} s after the end")

    def check_no_scratch(self):
        left = [path.name for path in self.path.glob("kelvin-scratch-*")]
        check(not left, f"left behind: {', '.join(left)}")


def kelvin_cgroups():
    """Cgroups that kelvin made."""
    root = Path("/sys/fs/cgroup")
    return {path for path in root.rglob("*kelvin*") if path.is_dir()} if root.is_dir() else set()


class WatchedRun:
    """A quick run whose progress line is read from a terminal of its own."""

    def __init__(self, sandbox):
        self.terminal, theirs = pty.openpty()
        self.done = 0
        command = [str(sandbox.kelvin), "run", "--quick"]
        self.process = subprocess.Popen(
            command, cwd=sandbox.path, env=sandbox.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=theirs
        )
        os.close(theirs)

    def watch(self, seconds):
        """Reads the progress line for a time; whether the run is still going."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and self.process.poll() is None:
            if select.select([self.terminal], [], [], min(left, 0.1))[0]:
                self.read()
        return self.process.poll() is None

    def read(self):
        try:
            text = os.read(self.terminal, 65536)
        except OSError:
            return  # The other end is closed: the run is over.
        for done in PROGRESS.findall(text):
            self.done = max(self.done, int(done))

    def end(self, how):
        """Sends a signal; the exit status."""
        self.process.send_signal(how)
        status = self.process.wait(MAX_QUICK_SECONDS)
        while select.select([self.terminal], [], [], 0)[0]:
            before = self.done
            self.read()
            if self.done == before:
                break
        os.close(self.terminal)
        return status


# ---- the checks: each gets a fresh place


def check_killed(kelvin, random_source, kills):
    """Kills at random instants; the results, in words."""
    cgroups, rounds = kelvin_cgroups(), []
    for number in range(kills):
        with tempfile.TemporaryDirectory(prefix="kelvin-bench-") as directory:
            sandbox = Sandbox(kelvin, directory)
            instant = random_source.uniform(0, 10)
            run = WatchedRun(sandbox)
            going = run.watch(instant)
            status = run.end(signal.SIGKILL) if going else run.process.returncode
            check(not going or status == -signal.SIGKILL, f"killed after {instant:.2f} s, it ended with {status}")
            sandbox.check_nothing_runs()
            kept = sandbox.rounds()
            check(kept >= run.done, f"killed after {instant:.2f} s: {run.done} rounds were done, {kept} are stored")
            stored_runs = sandbox.stored_runs()
            # Killed while it draws its report, a run is complete: then nothing of it may be missing.
            if any(line["status"] == "complete" for line in stored_runs):
                whole = json.loads(sandbox.run("runs", "export", "last").stdout)
                check(whole["predictions"], "a run without predictions is called complete")
            rounds.append(kept)
            sandbox.run("run", "os.syscall.null", "--budget", "1s", "--rounds", "2", "--no-report")
            sandbox.check_no_scratch()
        common.log(f"killed {number + 1} of {kills}: after {instant:.2f} s, {kept} rounds stored, {run.done} seen done")
    check(kelvin_cgroups() == cgroups, "a cgroup was left behind")
    return f"{kills} kills, {min(rounds)} to {max(rounds)} rounds kept"


def check_interrupted(sandbox):
    run = WatchedRun(sandbox)
    check(run.watch(4), "the run was over before it could be interrupted")
    status = run.end(signal.SIGINT)
    check(status == 1, f"exit status {status}")
    sandbox.check_nothing_runs()
    sandbox.check_no_scratch()
    kept = sandbox.rounds()
    check(kept >= run.done > 0, f"{run.done} rounds were done, {kept} are stored")
    stored = sandbox.stored_runs()[-1]["status"]
    check(isinstance(stored, dict) and "interrupted" in stored.get("partial", ""), f"its status is {stored}")
    return f"{kept} rounds kept: {stored['partial']}"


def check_full_disk(sandbox):
    require_root()
    (sandbox.path / "small").mkdir()
    script = 'mount -t tmpfs -o size=300k none small && exec "$0" run os --quick --no-report --store small/runs.sqlite'
    done = sandbox.run(prefix=("unshare", "--mount", "sh", "-c", script))
    check(done.returncode == 2, f"exit status {done.returncode}: {done.stderr.strip()}")
    check("syscall.null" in done.stdout, "the table was not printed")
    last_line = done.stderr.strip().splitlines()[-1]
    check(last_line.startswith("kelvin: ") and ("full" in last_line or "space" in last_line), f"it said: {last_line}")
    return last_line


def check_no_store(sandbox):
    # A file where the directory should be: it stops root too.
    (sandbox.path / "data").write_text("")
    done = sandbox.run("run", "--quick")
    check(done.returncode == 2, f"exit status {done.returncode}")
    check(len(done.stderr.splitlines()) == 1, f"it said: {done.stderr.strip()}")
    plain = sandbox.run("run", "os.syscall.null", "--budget", "2s", "--no-store", "--no-report")
    check(plain.returncode == 0, f"with --no-store: {plain.stderr.strip()}")
    return done.stderr.strip()


def check_no_root(sandbox):
    require_root()
    program = sandbox.path / "kelvin"
    shutil.copy(sandbox.kelvin, program)
    sandbox.path.chmod(0o777)
    sandbox.kelvin = program
    prefix = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all")
    return check_quick_run(sandbox, prefix)


def check_namespaces(sandbox):
    require_root()
    # As in a container, where the loopback interface is up.
    script = 'ip link set lo up && exec "$0" "$@"'
    return check_quick_run(sandbox, ("unshare", "--net", "--pid", "--fork", "--mount-proc", "sh", "-c", script))


def check_quick_run(sandbox, prefix):
    """A quick run under something; the result in words."""
    done = sandbox.run("run", "--quick", "--json", prefix=prefix)
    check(done.returncode == 0, f"exit status {done.returncode}: {outcomes_text(done)}")
    sandbox.check_no_scratch()
    return outcomes_text(done)


def outcomes(done):
    """How many results there are of each kind, and the reasons of those without a number."""
    counts, reasons = {}, set()
    for result in json.loads(done.stdout)["analysis"]["results"]:
        outcome = result["outcome"]
        kind, detail = next(iter(outcome.items())) if isinstance(outcome, dict) else (outcome, None)
        counts[kind] = counts.get(kind, 0) + 1
        if kind in ("skipped", "failed"):
            reasons.add(f"{kind}: {detail}")
    return counts, reasons


def outcomes_text(done):
    try:
        counts, reasons = outcomes(done)
    except ValueError:
        return done.stderr.strip()
    failures = sorted(reason for reason in reasons if reason.startswith("failed"))
    return "; ".join([", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())), *failures])


def check_one_cpu(sandbox):
    done = sandbox.run("run", "os.switch", "--quick", "--json", prefix=("taskset", "-c", str(common.last_allowed_cpu())))
    check(done.returncode == 0, f"exit status {done.returncode}: {outcomes_text(done)}")
    _, reasons = outcomes(done)
    about = sorted(reason for reason in reasons if "CPU" in reason)
    check(about, "nothing was skipped for want of a second CPU")
    return about[0]


def check_little_memory(sandbox):
    """A run in a memory cgroup, version 1 or 2, of 64 MiB."""
    require_root()
    v1, v2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
    parent, file = (v1, "memory.limit_in_bytes") if (v1 / "memory.limit_in_bytes").exists() else (v2, "memory.max")
    group = parent / f"bench-{os.getpid()}"
    try:
        group.mkdir()
        (group / file).write_text(str(64 << 20))
    except OSError as error:
        group.is_dir() and group.rmdir()
        raise Skipped(f"no memory cgroup can be made: {error}") from error
    try:
        enter = ("sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh")
        done = sandbox.run("run", "--quick", "--json", prefix=enter)
        check(done.returncode in (0, 1), f"exit status {done.returncode}: {done.stderr.strip()}")
        sandbox.check_nothing_runs()
        sandbox.check_no_scratch()
        counts, _ = outcomes(done)
        check(counts.get("measured", 0) > 0, "nothing was measured")
        return f"exit status {done.returncode}: {outcomes_text(done)}"
    finally:
        group.rmdir()


def require_root():
    if os.geteuid() != 0:
        raise Skipped("needs root")


CHECKS = {
    "interrupted": check_interrupted,
    "full disk": check_full_disk,
    "no store": check_no_store,
    "no root": check_no_root,
    "namespaces": check_namespaces,
    "one CPU": check_one_cpu,
    "64 MiB": check_little_memory,
}


def judge(make):
    """The verdict of one check and what it found."""
    try:
        return "kept", make()
    except Skipped as reason:
        return "skipped", str(reason)
    except Failure as failure:
        return "NOT KEPT", str(failure)


def run_in_sandbox(kelvin, one):
    with tempfile.TemporaryDirectory(prefix="kelvin-bench-") as directory:
        return one(Sandbox(kelvin, directory))


def parse():
    parser = common.make_parser(__doc__)
    parser.add_argument("--kills", type=int, default=50, help="kills at random instants [default: %(default)s]")
    return parser.parse_args()


def measure(arguments):
    kelvin, random_source = common.kelvin_program(arguments.kelvin), random.Random(arguments.seed)
    verdicts = {"killed": judge(lambda: check_killed(kelvin, random_source, arguments.kills))} if arguments.kills else {}
    for name, one in CHECKS.items():
        verdicts[name] = judge(lambda: run_in_sandbox(kelvin, one))
        common.log(f"{name}: {': '.join(verdicts[name])}")
    return verdicts


def tables(measured):
    cell = lambda text: re.sub(r"/tmp/kelvin-bench-\w+", "PLACE", " ".join(text.split())).replace("|", "/")
    rows = [[name, verdict, cell(found)] for name, (verdict, found) in measured.items()]
    return common.table(["what", "verdict", "found"], rows), all(verdict != "NOT KEPT" for _, verdict, _ in rows)


if __name__ == "__main__":
    common.main(parse, measure, tables)
