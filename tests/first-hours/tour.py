"""The commands of a first hour, in the order in which a stranger would try them."""
import filecmp

from first_hour import SHORT_RUN

LOOPBACK = ["--listen", "127.0.0.1:0"]


def look(hour):
    """What needs no store and measures nothing."""
    hour.play(says="kelvin run --quick")
    hour.play("machine", says="Linux")


def measure(hour, *store):
    """A run, and what is made of it."""
    hour.play(*SHORT_RUN, *store, says=["syscall.null", "stored in"])
    hour.play("report", "last", *store, says=["syscall.null", "Verdict"])
    hour.play("compare", "zenbook-2011", "last", *store, says="Of 0 figures")
    hour.play("runs", "list", *store, says="complete")


def explain(hour, *store):
    hour.play("why", "os.syscall.null", "--budget", "minimum", "--rounds", "4", says="passes in")


def use_files(hour, name="data"):
    """A file written and read."""
    hour.play("file", "write", name, "--size", "4M", says="rate")
    hour.play("file", "read", name, says="digest")


def transfer(hour, name="data", into="incoming"):
    """A file sent to this host arrives as it was."""
    hour.make_directory(into)
    words = ["receive", into, "--once", *LOOPBACK]
    receiver, address = hour.serve(*words)
    hour.play("send", name, address.strip(), says="1 file")
    answer = hour.finish(receiver, words)
    if answer.status != 0:
        answer.fail("it has not received the file")
    assert filecmp.cmp(hour.work / name, hour.work / into / name, shallow=False), "another file has arrived"


def serve(hour, name="data"):
    words = ["serve", ".", *LOOPBACK]
    server, line = hour.serve(*words)
    hour.play("load", f"http://{line.strip()}/{name}", "--users", "2", "--duration", "300ms", says="requests")
    hour.stop(server, words)


def time_commands(hour):
    hour.play("time", "true", "-r", "2", says="true")


def tour(hour, *store):
    """All of it."""
    look(hour)
    measure(hour, *store)
    explain(hour, *store)
    use_files(hour)
    transfer(hour)
    serve(hour)
    time_commands(hour)
