"""First hours where the environment, the paths, the terminal or the clock is odd, but no right is missing."""
import json
import os
import re
import shutil
import urllib.parse

from answer import LEAST_COLUMNS, display_width
from first_hour import MARK, SHORT_RUN, MissingHere, need_root
from terminal import COLOUR, ERASE_LINE, play_on_terminal
from tour import LOOPBACK, look, measure, serve, time_commands, tour, transfer, use_files

BARE_PATH = "/usr/bin:/bin"
# A name with a blank, a line's end, what looks like a message, and a byte that is no UTF-8.
ODD_NAME = os.fsdecode(b"odd \n\xff name\nkelvin: all is well")


def bare_environment(hour):
    """LANG, TZ, HOME, TERM and all else unset."""
    hour.environment = {name: hour.environment[name] for name in ("TMPDIR", MARK)} | {"PATH": BARE_PATH}
    for words in (SHORT_RUN, ["report"], ["runs", "list"]):
        hour.play(*words, status=2, says=["HOME", "--store"])
    tour(hour, "--store", "runs.sqlite")
    # Without any locale there are no characters but ASCII.
    for words in (["machine"], ["report", "--full", "--store", "runs.sqlite"], ["file", "read", "data"], ["time", "true", "-r", "3"]):
        answer = hour.play(*words)
        if not (answer.stdout + answer.stderr).isascii():
            answer.fail("not ASCII")
    del hour.environment["PATH"]
    look(hour)
    time_commands(hour)


def private_mounts(script):
    """What starts a command in a mount namespace of its own, which ends with it, after a script."""
    return ["unshare", "--mount", "--propagation", "private", "sh", "-ec", f'{script}; exec "$@"', "sh"]


def unwritable_home(hour):
    """A home that is read-only, and one on a full disk."""
    need_root("mounts")
    home = str(hour.home)
    read_only = f"mount --bind '{home}' '{home}' && mount -o remount,bind,ro '{home}'"
    full = f"mount -t tmpfs -o size=64k none '{home}' && {{ cat /dev/zero >'{home}/fill' 2>/dev/null || true; }}"
    for script in (read_only, full):
        hour.prefix = private_mounts(script)
        look(hour)
        hour.play(*SHORT_RUN, status=2, says=[home, "--store"])
        hour.play("runs", "list", status=2, says=["kelvin"])
        tour_without_home(hour)
    # The disk of the working directory is full.
    hour.prefix = private_mounts(f"{full} && cd '{home}'")
    hour.play("file", "write", "new", "--size", "1M", status=2, says=["new", "room"])
    hour.play("run", "file.page_write", "--quick", "--no-store", says="choose another by --dir")


def tour_without_home(hour):
    """Everything, with a store that was named."""
    store = hour.work / "runs.sqlite"
    tour(hour, "--store", str(store))
    hour.clear()


def odd_names(hour):
    """A working directory, files and a store whose names have blanks, line ends, and bytes that are not UTF-8."""
    hour.work = hour.directory / ODD_NAME
    hour.work.mkdir()
    hour.environment["HOME"] = str(hour.work)
    hour.environment["TMPDIR"] = str(hour.temporary / ODD_NAME)
    os.mkdir(hour.environment["TMPDIR"])
    measure(hour)
    look(hour)
    hour.play(*SHORT_RUN, "--store", ODD_NAME + ".sqlite", "--dir", ".", "-o", ODD_NAME + ".html")
    use_files(hour, ODD_NAME)
    hour.play("digest", ODD_NAME)
    hour.play("file", "copy", ODD_NAME, ODD_NAME + " 2")
    transfer(hour, ODD_NAME, "in\ncoming")
    serve(hour, urllib.parse.quote(os.fsencode(ODD_NAME)))
    time_commands(hour)
    os.rmdir(hour.environment["TMPDIR"])


# What is looked at on terminals; each ends soon and needs no more than a run and a file.
SHOWN = [
    [], ["machine"], ["report"], ["report", "--full"], ["compare", "zenbook-2011", "last", "--full"], ["runs", "list"], ["list", "os.syscall"],
    ["explain", "os.syscall.null"], ["help", "environment"], ["why", "--causes"], ["file", "read", "data"], ["file", "copy", "data", "copy"],
    ["digest", "data"], ["time", "true", "false || true", "-r", "2"], ["tune"], ["config"], ["history", "os.syscall.null"], SHORT_RUN,
]  # fmt: skip


def narrow_terminals(hour):
    """Terminals of 80, 40 and 20 columns, TERM=dumb, NO_COLOR, and output to a file."""
    (hour.work / "data").write_bytes(bytes(range(256)) * 400)
    hour.play(*SHORT_RUN)
    hour.play(*SHORT_RUN)
    variables = {80: {}, 40: {"NO_COLOR": "1"}, 20: {"TERM": "dumb"}}
    for columns, changed in variables.items():
        for words in SHOWN:
            hour.environment |= changed
            answer = play_on_terminal(hour, columns, *words)
            (hour.work / "copy").unlink(missing_ok=True)
            if answer.status != 0:
                answer.fail("not status 0")
            if changed and COLOUR.search(answer.stdout):
                answer.fail("it has colours")
            if "TERM" in changed and ERASE_LINE in answer.stdout:
                answer.fail("it has escape sequences")
            for row in answer.rows():
                check_row(answer, row, columns)
    hour.environment |= {"TERM": "xterm"}


# What is indented more than a paragraph stands below a cell of a table.
CELL_INDENT = " " * 16


def check_row(answer, row, columns):
    """A row of a terminal, of which only what may be copied is wider."""
    is_breakable = all(len(word) < columns / 2 for word in row.split())
    # A message is one line, however long; commands are to be copied.
    is_message = row.startswith("kelvin: ") or "kelvin " in row
    # Figures keep their columns, for which 80 are enough.
    columns = 80 if "  " in row.strip() or row.startswith(CELL_INDENT) else columns
    if display_width(row) > max(columns, LEAST_COLUMNS) and is_breakable and not is_message:
        answer.fail(f"{display_width(row)} columns, of {columns}: {row!r}")


# Zones that are none, one far away, and one whose name is no text.
ZONES = ["", ":/nonexistent", "XYZ+25:99", "Asia/Kathmandu", os.fsdecode(b"\xff\xfe"), "A" * 5000]
DATES = ["1970-01-01 00:10:00", "2100-06-01 12:00:00"]


def wrong_clock(hour):
    """Odd time zones, and the clock in 1970 and in 2100."""
    for zone in ZONES:
        hour.environment["TZ"] = zone
        look(hour)
        hour.play(*SHORT_RUN, says="stored in")
        hour.play("runs", "list", says="complete")
        hour.play("history", "os.syscall.null")
    del hour.environment["TZ"]
    if not shutil.which("faketime"):
        raise MissingHere("package faketime", "faketime is not installed")
    hour.environment["FAKETIME_DONT_FAKE_MONOTONIC"] = "1"
    for date in DATES:
        hour.clear()
        hour.prefix = ["faketime", date]
        tour(hour)
        hour.play("runs", "list", says=date[:4])


# A command with each JSON that a stranger can ask for, and what it lists as a table of its own. Servers print theirs when they listen.
JSON_COMMANDS = [
    ["run", "os.syscall.null", "--quick", "--budget", "minimum", "--rounds", "2"], ["run", "--dry-run"], ["report"], ["compare", "zenbook-2011", "last"],
    ["why", "os.syscall.null", "--budget", "minimum", "--rounds", "4"], ["why", "--causes"], ["explain", "os.syscall.null"], ["list", "os"],
    ["history", "os.syscall.null"], ["machine"], ["tune"], ["config"], ["digest", "data"], ["file", "read", "data"], ["file", "copy", "data", "copy"],
    ["file", "write", "new", "--size", "1M"], ["file", "cache"], ["time", "true", "-r", "2"], ["runs", "list"], ["runs", "import", "--table"],
    ["ab", "--a-cmd", "true", "--b-cmd", "true", "--budget", "minimum", "--rounds", "2"],
]  # fmt: skip
# Commands with --json that need another end, which some have below, or take too long.
JSON_ELSEWHERE = {"agent", "fleet", "load", "receive", "selfcheck", "send", "serve", "study", "watch"}


def scripts_and_readers(hour):
    """What programs and screen readers get: JSON that parses, no progress, nothing that is said by a drawn character alone."""
    (hour.work / "data").write_bytes(bytes(range(256)) * 400)
    hour.play(*SHORT_RUN)
    with_json = {name for name in command_names(hour) if "--json" in hour.play(name, "--help").stdout}
    missing = with_json - {words[0] for words in JSON_COMMANDS} - JSON_ELSEWHERE
    assert not missing, f"their JSON is not looked at: {missing}"
    for words in JSON_COMMANDS:
        answer = hour.play(*words, "--json")
        try:
            json.loads(answer.stdout)
        except ValueError as error:
            answer.fail(f"it is no JSON: {error}")
    served, received = ["serve", ".", "--json", *LOOPBACK], ["receive", "incoming", "--once", *LOOPBACK]
    server, line = hour.serve(*served)
    load = hour.play("load", f"http://{json.loads(line)['address']}/data", "--users", "2", "--duration", "300ms", "--json")
    assert json.loads(load.stdout), load
    hour.stop(server, served)
    hour.make_directory("incoming")
    receiver, address = hour.serve(*received)
    assert json.loads(hour.play("send", "data", address.strip(), "--json").stdout), "send says nothing"
    hour.finish(receiver, received)
    # In a locale without drawn characters the same words are said.
    commands = [["report"], ["report", "--full"], ["compare", "zenbook-2011", "last", "--full"], ["history", "os.syscall.null"]]
    for words in commands:
        drawn = hour.play(*words).stdout
        hour.environment["LANG"] = "C"
        plain = hour.play(*words).stdout
        hour.environment["LANG"] = "C.UTF-8"
        assert plain.isascii(), f"not ASCII: {words}"
        said = [re.findall("[A-Za-z]{3,}", text) for text in (drawn, plain)]
        assert said[0] == said[1], f"{words}: other words without drawn characters"


def command_names(hour):
    """All commands that the overview has."""
    overview = hour.play("--help").stdout.split("Topics")[0]
    return re.findall("^  ([a-z]+)  ", overview, re.MULTILINE)
