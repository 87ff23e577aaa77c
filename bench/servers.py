"""Server programs that listen on a port of this machine."""
import os
import shutil
import signal
import socket
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def tree_cpu_seconds(process):
    """The CPU time of a process and its children so far, in seconds."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    stats = [Path(f"/proc/{number}/stat").read_text().rsplit(")", 1)[1].split() for number in [process, *children]]
    return sum(int(stat[11]) + int(stat[12]) for stat in stats) / os.sysconf("SC_CLK_TCK")


class Server:
    """A program that listens on a port of the loopback address. It is killed at the end of the block."""

    def __init__(self, *command):
        self.command = [str(word) for word in command]

    def __enter__(self):
        devnull = subprocess.DEVNULL
        self.process = subprocess.Popen(self.command, stdin=devnull, stdout=devnull, stderr=devnull, start_new_session=True)
        time.sleep(0.15)
        return self

    def __exit__(self, *_):
        # The whole process group: workers would survive a server that is killed alone.
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@contextmanager
def piped_process(command, **options):
    """A program whose standard output is a pipe. It is killed at the end of the block."""
    process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, **options)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextmanager
def stats_server(kelvin, base, file_count, file_size, listen="127.0.0.1:0", prefix=(), processes=None, **options):
    """A `kelvin serve` of equal files that exposes its resource use. Yields its address, and the arguments of a study except the URL.

    `prefix` is a command that starts the server elsewhere, for example in a namespace. The process is appended to `processes`.
    """
    files, token, url_list = (Path(base, name) for name in ("served", "served.token", "served.list"))
    files.mkdir()
    for number in range(file_count):
        (files / str(number)).write_bytes(bytes(file_size))
    url_list.write_text("".join(f"{path.name}\n" for path in files.iterdir()))
    token.touch(mode=0o600)
    token.write_text(os.urandom(16).hex())
    flags = ["--listen", listen, "--expose-stats", "--token-file", token]
    try:
        with piped_process([*prefix, kelvin, "serve", files, *flags], **options) as server:
            if processes is not None:
                processes.append(server)
            address, stats_address = (server.stdout.readline().split()[-1].rsplit("//")[-1].rstrip("/") for _ in range(2))
            yield address, ["--url-list", str(url_list), "--stats-token", str(token), "--stats-address", stats_address]
    finally:
        shutil.rmtree(files)
        token.unlink()
        url_list.unlink()
