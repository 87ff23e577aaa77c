"""Programs that listen for another one on a port of this machine."""
import socket
import subprocess
import time


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
        self.process = subprocess.Popen(self.command, stdin=quiet, stdout=quiet, stderr=quiet)
        time.sleep(0.15)
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
