#!/usr/bin/env python3
"""Whether kelvin loses no data and leaves nothing behind under faults.

  killed            kill -9 of the parent at random instants of `kelvin run --quick` (--kills times). Afterwards: the store
                    is intact and can be listed; the killed run has at least as many rounds as its progress line last
                    reported; within a second no process remains; the next start leaves no scratch directory and no cgroup
  interrupted       SIGINT during a run: the run is stored and marked partial, exit status 1, nothing remains
  full disk         the store on a file system that fills up: the table is printed, then one line reports what could not be
                    stored, exit status 2
  no store          a HOME that cannot be written: one line, exit status 2, and --no-store still measures
  no root           as user nobody: the run succeeds
  namespaces        in network and process namespaces of its own, as in a container
  one CPU           with one allowed CPU: probes that need two are skipped with the reason
  64 MiB            in a memory cgroup of 64 MiB: the run ends normally; a killed probe affects no other probe

Checks that need root or a missing cgroup are skipped and reported.

Exit status: 0 every check passed, 1 at least one did not, 2 it could not be done.
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

PROGRESS_LINE = re.compile(rb"(\d+) rounds, at most")
# Longest time until every process of a killed run is gone, in seconds.
MAX_EXIT_SECONDS = 1.0
# Longest quick run on a loaded machine, in seconds.
MAX_QUICK_SECONDS = 30.0


class SkipCheck(Exception):
    """A check cannot be made here, for this reason."""


class CheckFailure(Exception):
    """A check failed."""


def require(condition, text):
    if not condition:
        raise CheckFailure(text)


class Sandbox:
    """A directory that is working directory, home and scratch space of every kelvin process started in it."""

    def __init__(self, kelvin, directory):
        self.kelvin, self.path = kelvin, Path(directory).resolve()
        self.store = self.path / "data/kelvin/runs.sqlite"

    def environment(self):
        path = str(self.path)
        return {**os.environ, "HOME": path, "XDG_DATA_HOME": f"{path}/data", "TMPDIR": path}

    def run(self, *arguments, prefix=(), timeout=120, **options):
        """Runs kelvin until it ends, and returns the completed process."""
        command = [str(argument) for argument in (*prefix, self.kelvin, *arguments)]
        options = {"cwd": self.path, "env": self.environment(), "text": True, "capture_output": True, **options}
        return subprocess.run(command, stdin=subprocess.DEVNULL, timeout=timeout, **options)

    def stored_runs(self):
        """The stored runs, as kelvin lists them."""
        process = self.run("runs", "list", "--json")
        require(process.returncode == 0, f"kelvin runs list: {process.stderr.strip()}")
        return json.loads(process.stdout)

    def stored_rounds(self):
        """The number of finished rounds of the newest stored run, failed or not. 0 without a run. The store must be intact."""
        if not self.store.exists():
            return 0
        with contextlib.closing(sqlite3.connect(self.store)) as connection:
            integrity = connection.execute("PRAGMA integrity_check").fetchone()[0]
            require(integrity == "ok", f"the store is damaged: {integrity}")
            newest_run = "SELECT key FROM run ORDER BY started_us DESC LIMIT 1"
            return connection.execute(f"SELECT count(*) FROM round WHERE run = ({newest_run})").fetchone()[0]

    def processes(self):
        """The ids of processes whose working directory is this directory."""
        process_ids = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and os.readlink(entry / "cwd") == str(self.path):
                    process_ids.append(int(entry.name))
        return process_ids

    def require_no_processes(self):
        deadline = time.monotonic() + MAX_EXIT_SECONDS
        while (remaining := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.02)
        require(not remaining, f"{len(remaining)} processes still run {MAX_EXIT_SECONDS:g} s after the end")

    def require_no_scratch(self):
        remaining = [path.name for path in self.path.glob("kelvin-scratch-*")]
        require(not remaining, f"left behind: {', '.join(remaining)}")


def kelvin_cgroups():
    """The cgroups that kelvin created."""
    root = Path("/sys/fs/cgroup")
    return {path for path in root.rglob("*kelvin*") if path.is_dir()} if root.is_dir() else set()


class WatchedRun:
    """A quick run whose progress line is read from a terminal of its own."""

    def __init__(self, sandbox):
        self.terminal, child_terminal = pty.openpty()
        self.reported_rounds = 0
        command = [str(sandbox.kelvin), "run", "--quick"]
        self.process = subprocess.Popen(
            command, cwd=sandbox.path, env=sandbox.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=child_terminal
        )
        os.close(child_terminal)

    def watch(self, seconds):
        """Reads the progress line for a time. Returns whether the run is still active."""
        deadline = time.monotonic() + seconds
        while (remaining := deadline - time.monotonic()) > 0 and self.process.poll() is None:
            if select.select([self.terminal], [], [], min(remaining, 0.1))[0]:
                self.read_progress()
        return self.process.poll() is None

    def read_progress(self):
        try:
            text = os.read(self.terminal, 65536)
        except OSError:
            return  # The other end is closed: the run has ended.
        for rounds in PROGRESS_LINE.findall(text):
            self.reported_rounds = max(self.reported_rounds, int(rounds))

    def stop(self, signal_number):
        """Sends a signal, and returns the exit status."""
        self.process.send_signal(signal_number)
        status = self.process.wait(MAX_QUICK_SECONDS)
        while select.select([self.terminal], [], [], 0)[0]:
            previous_rounds = self.reported_rounds
            self.read_progress()
            if self.reported_rounds == previous_rounds:
                break
        os.close(self.terminal)
        return status


# ---- the checks, each in a new sandbox


def check_killed(kelvin, random_source, kills):
    """Kills runs at random instants, and describes the result."""
    cgroups, rounds = kelvin_cgroups(), []
    for index in range(kills):
        with tempfile.TemporaryDirectory(prefix="kelvin-bench-") as directory:
            sandbox = Sandbox(kelvin, directory)
            kill_time = random_source.uniform(0, 10)
            run = WatchedRun(sandbox)
            is_running = run.watch(kill_time)
            status = run.stop(signal.SIGKILL) if is_running else run.process.returncode
            require(not is_running or status == -signal.SIGKILL, f"killed after {kill_time:.2f} s, it ended with {status}")
            sandbox.require_no_processes()
            stored_rounds = sandbox.stored_rounds()
            require(stored_rounds >= run.reported_rounds, f"killed after {kill_time:.2f} s: {run.reported_rounds} rounds were done, {stored_rounds} are stored")
            stored_runs = sandbox.stored_runs()
            # A run that is killed while it draws its report is complete: nothing of it may be missing.
            if any(stored_run["status"] == "complete" for stored_run in stored_runs):
                exported_run = json.loads(sandbox.run("runs", "export", "last").stdout)
                require(exported_run["predictions"], "a run without predictions is called complete")
            rounds.append(stored_rounds)
            sandbox.run("run", "os.syscall.null", "--budget", "1s", "--rounds", "2")
            sandbox.require_no_scratch()
        common.log(f"killed {index + 1} of {kills}: after {kill_time:.2f} s, {stored_rounds} rounds stored, {run.reported_rounds} reported")
    require(kelvin_cgroups() == cgroups, "a cgroup was left behind")
    return f"{kills} kills, {min(rounds)} to {max(rounds)} rounds kept"


def check_interrupted(sandbox):
    run = WatchedRun(sandbox)
    require(run.watch(4), "the run ended before it could be interrupted")
    status = run.stop(signal.SIGINT)
    require(status == 1, f"exit status {status}")
    sandbox.require_no_processes()
    sandbox.require_no_scratch()
    stored_rounds = sandbox.stored_rounds()
    require(stored_rounds >= run.reported_rounds > 0, f"{run.reported_rounds} rounds were done, {stored_rounds} are stored")
    run_status = sandbox.stored_runs()[-1]["status"]
    require(isinstance(run_status, dict) and "interrupted" in run_status.get("partial", ""), f"its status is {run_status}")
    return f"{stored_rounds} rounds kept: {run_status['partial']}"


def check_full_disk(sandbox):
    require_root()
    (sandbox.path / "small").mkdir()
    script = 'mount -t tmpfs -o size=300k none small && exec "$0" run os --quick --store small/runs.sqlite'
    process = sandbox.run(prefix=("unshare", "--mount", "sh", "-c", script))
    require(process.returncode == 2, f"exit status {process.returncode}: {process.stderr.strip()}")
    require("syscall.null" in process.stdout, "the table was not printed")
    last_line = process.stderr.strip().splitlines()[-1]
    require(last_line.startswith("kelvin: ") and ("full" in last_line or "space" in last_line), f"unexpected message: {last_line}")
    return last_line


def check_no_store(sandbox):
    # A file in place of the directory: root cannot write there either.
    (sandbox.path / "data").write_text("")
    process = sandbox.run("run", "--quick")
    require(process.returncode == 2, f"exit status {process.returncode}")
    require(len(process.stderr.splitlines()) == 1, f"unexpected messages: {process.stderr.strip()}")
    unstored_process = sandbox.run("run", "os.syscall.null", "--budget", "2s", "--no-store")
    require(unstored_process.returncode == 0, f"with --no-store: {unstored_process.stderr.strip()}")
    return process.stderr.strip()


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
    """Checks a quick run under a command prefix, and describes its outcomes."""
    process = sandbox.run("run", "--quick", "--json", prefix=prefix)
    require(process.returncode == 0, f"exit status {process.returncode}: {describe_outcomes(process)}")
    sandbox.require_no_scratch()
    return describe_outcomes(process)


def outcome_counts(process):
    """The number of results of each kind, and the reasons of skipped and failed ones."""
    counts, reasons = {}, set()
    for result in json.loads(process.stdout)["analysis"]["results"]:
        outcome = result["outcome"]
        kind, detail = next(iter(outcome.items())) if isinstance(outcome, dict) else (outcome, None)
        counts[kind] = counts.get(kind, 0) + 1
        if kind in ("skipped", "failed"):
            reasons.add(f"{kind}: {detail}")
    return counts, reasons


def describe_outcomes(process):
    try:
        counts, reasons = outcome_counts(process)
    except ValueError:
        return process.stderr.strip()
    failures = sorted(reason for reason in reasons if reason.startswith("failed"))
    return "; ".join([", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())), *failures])


def check_one_cpu(sandbox):
    process = sandbox.run("run", "os.switch", "--quick", "--json", prefix=("taskset", "-c", str(common.last_allowed_cpu())))
    require(process.returncode == 0, f"exit status {process.returncode}: {describe_outcomes(process)}")
    _, reasons = outcome_counts(process)
    cpu_reasons = sorted(reason for reason in reasons if "CPU" in reason)
    require(cpu_reasons, "no probe was skipped for lack of a second CPU")
    return cpu_reasons[0]


def check_little_memory(sandbox):
    """A run in a memory cgroup, version 1 or 2, of 64 MiB."""
    require_root()
    v1_root, v2_root = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")
    parent, limit_file = (v1_root, "memory.limit_in_bytes") if (v1_root / "memory.limit_in_bytes").exists() else (v2_root, "memory.max")
    group = parent / f"bench-{os.getpid()}"
    try:
        group.mkdir()
        (group / limit_file).write_text(str(64 << 20))
    except OSError as error:
        group.is_dir() and group.rmdir()
        raise SkipCheck(f"no memory cgroup can be made: {error}") from error
    try:
        enter_command = ("sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh")
        process = sandbox.run("run", "--quick", "--json", prefix=enter_command)
        require(process.returncode in (0, 1), f"exit status {process.returncode}: {process.stderr.strip()}")
        sandbox.require_no_processes()
        sandbox.require_no_scratch()
        counts, _ = outcome_counts(process)
        require(counts.get("measured", 0) > 0, "nothing was measured")
        return f"exit status {process.returncode}: {describe_outcomes(process)}"
    finally:
        group.rmdir()


def require_root():
    if os.geteuid() != 0:
        raise SkipCheck("needs root")


CHECKS = {
    "interrupted": check_interrupted,
    "full disk": check_full_disk,
    "no store": check_no_store,
    "no root": check_no_root,
    "namespaces": check_namespaces,
    "one CPU": check_one_cpu,
    "64 MiB": check_little_memory,
}


def run_check(check):
    """The verdict and the detail of one check."""
    try:
        return "kept", check()
    except SkipCheck as reason:
        return "skipped", str(reason)
    except CheckFailure as failure:
        return "NOT KEPT", str(failure)


def run_check_in_sandbox(kelvin, check):
    with tempfile.TemporaryDirectory(prefix="kelvin-bench-") as directory:
        return check(Sandbox(kelvin, directory))


def parse():
    parser = common.make_parser(__doc__)
    parser.add_argument("--kills", type=int, default=50, help="kills at random instants [default: %(default)s]")
    return parser.parse_args()


def measure(arguments):
    kelvin, random_source = common.kelvin_program(arguments.kelvin), random.Random(arguments.seed)
    verdicts = {"killed": run_check(lambda: check_killed(kelvin, random_source, arguments.kills))} if arguments.kills else {}
    for name, check in CHECKS.items():
        verdicts[name] = run_check(lambda: run_check_in_sandbox(kelvin, check))
        common.log(f"{name}: {': '.join(verdicts[name])}")
    return verdicts


def tables(measured):
    format_cell = lambda text: re.sub(r"/tmp/kelvin-bench-\w+", "PLACE", " ".join(text.split())).replace("|", "/")
    rows = [[name, verdict, format_cell(detail)] for name, (verdict, detail) in measured.items()]
    return common.table(["what", "verdict", "found"], rows), all(verdict != "NOT KEPT" for _, verdict, _ in rows)


if __name__ == "__main__":
    common.main(parse, measure, tables)
