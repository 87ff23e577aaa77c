"""First hours with signals at random moments, and readers that go away."""
import os
import random
import signal
import time

from first_hour import SHORT_RUN
from tour import LOOPBACK

# So that a failure can be repeated: moments are the same in each play, though what happens at them is not.
SEED = 50
MOMENTS = 10
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
LARGE_FILE_BYTES = 48 << 20


class Interrupted:
    """A command that is interrupted: its words, the seconds that it takes, and the exit statuses that its help has for that."""

    def __init__(self, words, seconds, statuses, signals=SIGNALS):
        self.words, self.seconds, self.statuses, self.signals = words, seconds, statuses, signals


def interrupted_commands(hour, url, receiver):
    return [
        Interrupted(["run", "os.syscall.null", "os.process.fork", "--quick", "--budget", "4s"], 4, {0, 1}),
        Interrupted(["file", "write", "new", "--size", "256M", "--overwrite"], 1, {0, 1, 2}),
        Interrupted(["file", "copy", "large", "copy", "--overwrite"], 0.3, {0, 1, 2}),
        Interrupted(["send", "large", receiver], 0.6, {0, 1, 2}),
        # SIGHUP makes it open its directory again.
        Interrupted(["serve", ".", *LOOPBACK], 0.5, {0}, [signal.SIGINT, signal.SIGTERM]),
        Interrupted(["receive", "other", *LOOPBACK], 0.5, {0}),
        Interrupted(["load", url, "--users", "2", "--duration", "1s"], 1, {0, 1}),
        Interrupted(["why", "os.syscall.null", "--budget", "minimum"], 3, {0, 1, 2}),
        Interrupted(["watch", "os.syscall.null", "--rounds", "2"], 3, {0}),
        Interrupted(["time", "sleep 0.05", "-r", "20"], 1.2, {0, 1, 2}),
    ]


def signals(hour):
    """Ctrl-C, SIGTERM, SIGHUP, and Ctrl-Z with fg, at random moments of what takes long."""
    (hour.work / "large").write_bytes(os.urandom(1 << 20) * (LARGE_FILE_BYTES >> 20))
    (hour.work / "incoming").mkdir()
    (hour.work / "other").mkdir()
    served, received = ["serve", ".", *LOOPBACK], ["receive", "incoming", "--overwrite", *LOOPBACK]
    server, address = hour.serve(*served)
    receiver, place = hour.serve(*received)
    moments = random.Random(SEED)
    for command in interrupted_commands(hour, f"http://{address.strip()}/large", place.strip()):
        for number in range(MOMENTS):
            signals = [*command.signals, signal.SIGTSTP]
            interrupt(hour, command, signals[number % len(signals)], moments.uniform(0, command.seconds))
    hour.stop(server, served)
    hour.stop(receiver, received)
    hour.play("runs", "list")


def interrupt(hour, command, number, moment):
    """Sends one signal to a command at a moment, to its whole process group as a terminal does."""
    # A group in the session of this process: one in a session of its own could not be stopped.
    others = {found.number for found in hour.processes()}
    process = hour.start(*command.words, start_new_session=False, preexec_fn=os.setpgrp)
    time.sleep(moment)
    what = f"{number.name} after {moment:.2f} s"
    if number == signal.SIGTSTP:
        os.killpg(process.pid, number)
        stays = hour.wait_for(lambda found: found.state != "R", others)
        if stays:
            hour.give_up(process, command.words, f"{what}: these run on: {stays}")
        os.killpg(process.pid, signal.SIGCONT)
        time.sleep(0.1)
        number = signal.SIGINT
    if process.poll() is None:
        os.killpg(process.pid, number)
    answer = hour.finish(process, command.words)
    # Before it handles signals it dies of them, and there is nothing to clean.
    if answer.status not in command.statuses | {-number}:
        answer.fail(f"{what}: not one of the statuses {command.statuses}")
    left = hour.wait_for(lambda found: False, others)
    if left:
        answer.fail(f"{what}: processes are left: {left}")


def readers_that_leave(hour):
    """A pipe that closes after the first line, for each command that prints much."""
    hour.play(*SHORT_RUN)
    large = [
        ["list"], ["list", "--json"], ["explain", "os"], ["explain", "os", "--json"], ["machine"], ["machine", "--json"], ["report", "--full"],
        ["why", "--causes"], ["compare", "zenbook-2011", "last", "--full"], ["runs", "export", "last"], ["run", "--help"], ["help", "run"],
        ["tune"], ["config"], ["runs", "import", "--table"], ["study", "load", "--published"], [*SHORT_RUN, "--json"],
        *(["report", "--format", format] for format in ("html", "md", "json", "csv", "samples", "openmetrics", "parquet")),
    ]  # fmt: skip
    for words in large:
        leave_after_a_line(hour, words)
    for number in range(20_000):
        (hour.work / f"file-{number}").touch()
    leave_after_a_line(hour, ["digest", *(f"file-{number}" for number in range(20_000))])
    hour.play("runs", "list")


def leave_after_a_line(hour, words):
    process = hour.start(*words)
    process.stdout.readline()
    process.stdout.close()
    process.stdout = None
    answer = hour.finish(process, words)
    if answer.status != 0 or "pipe" in answer.stderr:
        answer.fail("a reader that leaves is a failure")
