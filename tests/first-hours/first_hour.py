"""One hour of a stranger: a directory with a home of its own, where kelvin is called as in one kind of environment, and what must hold after it."""
import contextlib
import os
import shutil
import signal
import sqlite3
import subprocess
import time
from pathlib import Path

import leftovers
from answer import Answer

# As little as is a run: no figure of it is looked at. Without canaries, since on a busy machine it would not be known.
SHORT_RUN = ["run", "os.syscall.null", "--quick", "--budget", "minimum", "--rounds", "2", "--no-canaries"]
# After which a command counts as hanging.
HANG_SECONDS = 300
# After which what a command started must have ended.
END_SECONDS = 20
# What has a line for each thing, for programs, however long that is, unless it is printed to a terminal.
LINES = {("list",), ("runs", "list"), ("send",), ("receive",)}
MARK = "KELVIN_FIRST_HOUR"


class MissingHere(Exception):
    """What an hour needs and is not here: `package NAME`, `right` or `machine`, and the reason."""

    def __init__(self, needs, reason):
        super().__init__(reason)
        self.needs = needs


def need_root(what):
    if os.geteuid() != 0:
        raise MissingHere("right", f"only root can have {what}")


class FirstHour:
    """A home, a working directory and a directory for temporary files, below one directory with nothing else in it."""

    def __init__(self, kelvin, directory):
        self.kelvin, self.directory = kelvin, Path(directory)
        self.home, self.work, self.temporary = (self.directory / name for name in ("home", "work", "tmp"))
        for path in (self.home, self.work, self.temporary):
            path.mkdir(parents=True)
        self.environment = {
            "PATH": os.environ["PATH"], "HOME": str(self.home), "TMPDIR": str(self.temporary), "LANG": "C.UTF-8", "TERM": "xterm",
            # Every process of this hour has it in its environment, wherever it went.
            MARK: str(self.directory),
        }  # fmt: skip
        self.mark = f"{MARK}={self.directory}"
        self.columns = 80
        # What starts kelvin, such as unshare with its options.
        self.prefix = []
        self.options = {}
        # Whose directories these are, if another user's.
        self.user = None
        self.before = leftovers.Snapshot()

    def make_directory(self, name):
        path = self.work / name
        path.mkdir()
        if self.user:
            os.chown(path, self.user, self.user)

    def clear(self):
        """Removes what is in the working directory, for the next commands."""
        for path in self.work.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def give_to(self, user):
        self.user = user
        for path in (self.directory, self.home, self.work, self.temporary):
            os.chown(path, user, user)

    def command(self, words):
        return [*self.prefix, self.kelvin, *words]

    def start(self, *words, **options):
        """Starts a command as the leader of a process group, as a shell does."""
        options = {
            "cwd": self.work, "env": self.environment, "stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE,
            "start_new_session": True, **self.options, **options,
        }  # fmt: skip
        return subprocess.Popen(self.command(words), **options)

    def finish(self, process, words, seconds=HANG_SECONDS):
        """Waits for the end of a command, and checks what must hold of every answer."""
        try:
            stdout, stderr = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.give_up(process, words, f"it has not ended after {seconds} s: {self.processes()}")
        answer = Answer(words, process.returncode, decode(stdout), decode(stderr))
        answer.check_text()
        return answer

    def give_up(self, process, words, reason):
        """Kills a command that does what it must not, and fails with what it has printed."""
        os.killpg(process.pid, signal.SIGKILL)
        stdout, stderr = process.communicate()
        Answer(words, "none", decode(stdout), decode(stderr)).fail(reason)

    def play(self, *words, status=0, says=(), **options):
        """Calls kelvin, which must end with this status and say these words."""
        answer = self.finish(self.start(*words, **options), words)
        if status == 2:
            answer.check_refusal(*says)
            return answer
        if answer.status != status:
            answer.fail(f"not status {status}")
        # Lines break anywhere between two words.
        text = " ".join((answer.stdout + answer.stderr).split())
        for words_said in [says] if isinstance(says, str) else says:
            if words_said not in text:
                answer.fail(f"it does not say {words_said!r}")
        if not ({"--json", "--format", "--help", "--version"} & set(words) or words[:1] in LINES or words[:2] in LINES):
            answer.check_columns(self.columns)
        return answer

    def serve(self, *words):
        """Starts a command that serves until it is stopped; returns it and the lines that it printed when it was ready."""
        process = self.start(*words)
        line = process.stdout.readline()
        if not line:
            self.finish(process, words).fail("it does not serve")
        return process, decode(line)

    def stop(self, process, words, number=signal.SIGTERM):
        # Not what started it in another namespace.
        for found in self.processes():
            if found.group == process.pid and found.words.split(" ")[0] == str(self.kelvin):
                os.kill(found.number, number)
        answer = self.finish(process, words)
        if answer.status != 0:
            answer.fail("stopped, it has not status 0")
        return answer

    def processes(self):
        """All that run in this hour, in whatever group and namespace."""
        return leftovers.processes_with(self.mark)

    def wait_for(self, is_met, others=frozenset()):
        """Waits until this is so of each process but these; returns those of which it is not after some seconds."""
        deadline = time.monotonic() + END_SECONDS
        while (unmet := [found for found in self.processes() if found.number not in others and not is_met(found)]) and time.monotonic() < deadline:
            time.sleep(0.02)
        return unmet

    def check_end(self):
        """Nothing is left but what the hour's commands were asked for, and every store is whole."""
        processes = self.wait_for(lambda found: False)
        assert not processes, f"processes are left: {processes}"
        assert not any(self.temporary.iterdir()), f"temporary files are left: {sorted(self.temporary.iterdir())}"
        scratch = list(self.directory.rglob("kelvin-scratch-*"))
        assert not scratch, f"scratch directories are left: {scratch}"
        self.before.check_nothing_left(self.directory)
        for store in self.directory.rglob("*.sqlite"):
            check_store(store)

    def remove(self):
        """Ends what an hour that failed has left, and removes its files."""
        for found in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(found.number, signal.SIGKILL)
        shutil.rmtree(self.directory)


def check_store(path):
    """SQLite finds no fault in a store."""
    database = sqlite3.connect(path)
    [(verdict,)] = database.execute("PRAGMA integrity_check").fetchall()
    database.close()
    assert verdict == "ok", f"{path}: {verdict}"


def decode(output):
    return (output or b"").decode(errors="surrogateescape")
