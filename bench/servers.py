"""Programs that listen for another one on a port of this machine."""
import os
import shutil
import signal
import socket
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Server:
    """A program that listens on a port of the loopback address, ended with the block."""

    def __init__(self, *command):
        self.command = [str(word) for word in command]

    def __enter__(self):
        quiet = subprocess.DEVNULL
        self.process = subprocess.Popen(self.command, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)
        time.sleep(0.15)
        return self

    def __exit__(self, *_):
        # With its workers, which outlive a server that is killed alone.
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@contextmanager
def started(command, **options):
    """A program whose output is read, killed with the block."""
    process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, **options)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@contextmanager
def stats_server(kelvin, base, count, size, listen="127.0.0.1:0", before=(), processes=None, **options):
    """kelvin's server of so many files of so many bytes, which tells what it uses: its address, and the arguments of a study of it but
    for the URL. Words before it start it elsewhere. A list is given its process."""
    files, token, listed = (Path(base, name) for name in ("served", "served.token", "served.list"))
    files.mkdir()
    for number in range(count):
        (files / str(number)).write_bytes(bytes(size))
    listed.write_text("".join(f"{one.name}\n" for one in files.iterdir()))
    token.touch(mode=0o600)
    token.write_text(os.urandom(16).hex())
    exposed = ["--listen", listen, "--expose-stats", "--token-file", token]
    try:
        with started([*before, kelvin, "serve", files, *exposed], **options) as server:
            if processes is not None:
                processes.append(server)
            address, resources = (server.stdout.readline().split()[-1].rsplit("//")[-1].rstrip("/") for _ in range(2))
            yield address, ["--url-list", str(listed), "--stats-token", str(token), "--stats-address", resources]
    finally:
        shutil.rmtree(files)
        token.unlink()
        listed.unlink()
