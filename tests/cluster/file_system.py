"""Tests of kelvin-cluster file: hosts that are network namespaces write and read in one directory of this machine."""
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path

import mpi
from made_hosts import Hosts
from jobs import END_SECONDS, JOB_SECONDS, RESULTS, Jobs, check, events, read_results, skip

QUICK = ["--bytes", "256k", "--block", "64k", "--files", "20", "--passes", "2"]
# A job that lasts until something ends it, and that writes most of the time.
LONG = ["--bytes", "16M", "--layout", "own", "--files", "0", "--passes", "1000"]


@contextmanager
def shared_directory():
    """A directory that all hosts see. In the end a job has left nothing in it."""
    with tempfile.TemporaryDirectory(prefix="kelvin-cluster-") as directory:
        yield directory


@contextmanager
def small_file_system(size):
    """The same on a file system of its own."""
    with shared_directory() as directory:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", directory], check=True)
        try:
            yield directory
        finally:
            subprocess.run(["umount", "--lazy", directory], check=False)


def is_empty(directory):
    return not os.listdir(directory)


# sftp-server for each connection to this address.
SFTP_SERVER = "/usr/lib/openssh/sftp-server"
SFTP_PORT = 2222
SERVE_SFTP = f"""
import socket, subprocess, sys
listener = socket.create_server((sys.argv[1], {SFTP_PORT}))
print("listening", flush=True)
while True:
    connection, _ = listener.accept()
    subprocess.Popen(["{SFTP_SERVER}"], stdin=connection, stdout=connection)
    connection.close()
"""


@contextmanager
def remote_directory(hosts):
    """A directory of the last host, which the others mount by sshfs over their network."""
    server = hosts.count - 1
    with shared_directory() as directory, tempfile.TemporaryDirectory() as mount:
        command = [*hosts.enter(server), "python3", "-c", SERVE_SFTP, hosts.address(server)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                process.stdout.readline()
                for host in range(server):
                    source = f"{hosts.address(server)}:{directory}"
                    subprocess.run([*hosts.enter(host), "sshfs", "-o", f"directport={SFTP_PORT}", source, mount], check=True)
                yield mount
            finally:
                for host in range(server):
                    subprocess.run([*hosts.enter(host), "umount", "--lazy", mount], stderr=subprocess.DEVNULL, check=False)
                hosts.end_processes()
                process.kill()
        check(is_empty(directory), os.listdir(directory))


class Tests(Jobs):
    def wrapper(self, directory, command):
        """A program that runs kelvin-cluster by a shell command."""
        path = Path(directory, "wrapper")
        path.write_text(f'#!/bin/sh\n{command.format(program=self.program)}\n')
        path.chmod(0o755)
        return str(path)

    def data_and_files_are_measured(self):
        with Hosts.numbered(4) as hosts, shared_directory() as directory:
            status, out, err, results = self.complete(hosts, ["file", directory, *QUICK])
            check(status == 0, status, out, err)
            check(is_empty(directory), os.listdir(directory))
            steps = events(results, "step")
            # Each of two passes has 1, 2, 3 and 4 ranks, and each of these three layouts written and read, and two directories with three
            # operations.
            check(len(steps) == 2 * 4 * (3 * 2 + 2 * 3), len(steps))
            check(len(events(results, "verified")) == 2 * 4 * 3, results)
            for step in steps:
                check(min(part["start_s"] for part in step["parts"]) == 0, step)
                check(all(part["start_s"] < part["end_s"] for part in step["parts"]), step)
                is_of_another = [part["rank"] != part["writer"] for part in step["parts"]]
                is_read = step["activity"].get("data", {}).get("operation") == "read" or step["activity"].get("metadata", {}).get("operation") == "stat"
                check(all(is_of_another) if is_read else not any(is_of_another), step)
            check(results[-1] == {"event": "end"}, results[-1])
            check("One kernel wrote and read all of it" in out or "lives in memory" in out, out)
            check("shared file, strided" in out and "own directories" in out, out)
            self.check_no_process(hosts)

    def remote_file_system_is_measured(self):
        """Each host has a page cache and remembered names of its own."""
        if not shutil.which("sshfs") or not os.access(SFTP_SERVER, os.X_OK):
            return skip("package sshfs", "sshfs or sftp-server is not installed, so that no file system is remote")
        arguments = ["--bytes", "256k", "--block", "64k", "--files", "3", "--passes", "1"]
        with Hosts.numbered(4) as hosts, remote_directory(hosts) as directory:
            programs = [[self.program, "file", directory, *arguments, "--json", RESULTS]] * 3
            with tempfile.TemporaryDirectory() as working, mpi.started(self.launcher(hosts, programs), working) as job:
                out, err = job.communicate(timeout=JOB_SECONDS)
                results = read_results(working)
            check(self.status(job, err, results) == 0 and "(fuse)" in out, job.returncode, out, err)
            check(len(events(results, "verified")) == 3 * 3, results)
            check("Nothing that was read was in the page cache of its reader." in out, out)
            reads = [step for step in events(results, "step") if step["activity"].get("data", {}).get("operation") == "read"]
            check(all(part["rank"] != part["writer"] for step in reads for part in step["parts"]), reads)
        return None

    def direct_data_is_measured(self):
        with Hosts.numbered(2) as hosts, shared_directory() as directory:
            status, out, err, results = self.complete(hosts, ["file", directory, *QUICK, "--direct"])
            if "cannot be read or written past the page cache" in err:
                # A temporary directory in memory.
                check(status != 0 and is_empty(directory), status, err)
            else:
                check(status == 0 and "O_DIRECT" in out and len(events(results, "verified")) == 2 * 2 * 3, status, out, err)

    def end_leaves_nothing(self, arguments, action, expected):
        with Hosts.numbered(4) as hosts, shared_directory() as directory:
            is_removed = lambda: self.wait_for(lambda: is_empty(directory), END_SECONDS, f"an empty directory: {directory}")
            self.fault(hosts, ["file", directory, *arguments], action, expected, "step", then=is_removed)

    def killed_writer_is_named(self):
        self.end_leaves_nothing(LONG, lambda processes: os.kill(processes[2][0], signal.SIGKILL), "rank 2 (n2) has died")

    def stopped_writer_is_named(self):
        self.end_leaves_nothing(LONG, lambda processes: os.kill(processes[3][0], signal.SIGSTOP), "rank 3 (n3) has been silent for 5 s")

    def signal_leaves_nothing(self):
        self.end_leaves_nothing(LONG, lambda processes: os.kill(processes[0][0], signal.SIGTERM), "SIGTERM came to rank 0")

    def interrupted_launcher_leaves_nothing(self):
        with Hosts.numbered(3) as hosts, shared_directory() as directory, tempfile.TemporaryDirectory() as working:
            with mpi.started(self.command(hosts, ["file", directory, *LONG]), working) as job:
                self.wait_for(lambda: Path(working, RESULTS).exists() and events(read_results(working), "step"), JOB_SECONDS, "steps")
                # As Ctrl-C in a terminal does it.
                os.killpg(job.pid, signal.SIGINT)
                self.wait_for(lambda: not any(hosts.processes(self.program).values()), END_SECONDS, "the end of all ranks")
            self.wait_for(lambda: is_empty(directory), END_SECONDS, f"an empty directory instead of {os.listdir(directory)}")

    def killed_rank_0_leaves_nothing(self):
        with Hosts.numbered(3) as hosts, shared_directory() as directory, tempfile.TemporaryDirectory() as working:
            with mpi.started(self.command(hosts, ["file", directory, *LONG]), working) as job:
                self.wait_for(lambda: Path(working, RESULTS).exists() and events(read_results(working), "step"), JOB_SECONDS, "steps")
                os.kill(hosts.processes(self.program)[0][0], signal.SIGKILL)
                self.wait_for(lambda: not any(hosts.processes(self.program).values()), END_SECONDS, "the end of all ranks")
                job.communicate(timeout=END_SECONDS)
            self.wait_for(lambda: is_empty(directory), END_SECONDS, f"an empty directory instead of {os.listdir(directory)}")

    def wrong_block_is_named(self):
        with Hosts.numbered(2) as hosts, shared_directory() as directory:
            is_over = threading.Event()

            def damage():
                while not is_over.is_set():
                    for path in Path(directory).glob("*/data.*/data.1"):
                        try:
                            with open(path, "r+b") as file:
                                file.seek(5000)
                                file.write(b"damage")
                        except OSError:
                            pass

            thread = threading.Thread(target=damage)
            thread.start()
            try:
                status, _, err, results = self.complete(hosts, ["file", directory, *LONG])
            finally:
                is_over.set()
                thread.join()
            check(status != 0, status, err)
            wrong = events(results, "wrong_block")[0]
            check(wrong["wrong"]["writer"] == 1 and wrong["wrong"]["offset"] == 0 and wrong["wrong"]["first_byte"] == 5000, wrong)
            reason = events(results, "failure")[0]["reason"]
            check("read a wrong block" in reason and "data.1 at byte 0, written by rank 1" in reason, reason)
            self.wait_for(lambda: is_empty(directory), END_SECONDS, f"an empty directory instead of {os.listdir(directory)}")

    def directory_of_one_host_is_refused(self):
        with Hosts.numbered(3) as hosts, shared_directory() as directory, tempfile.TemporaryDirectory() as scripts:
            own = self.wrapper(scripts, f'exec unshare -m sh -c \'mount -t tmpfs none "{directory}" && exec "{{program}}" "$@"\' sh "$@"')
            status, _, err, results = self.complete(hosts, ["file", directory, *QUICK], [self.program, self.program, own])
            reason = events(results, "failure")[0]["reason"]
            check(status != 0 and f"rank 2 (n2) does not see what rank 0 wrote in {directory} (No such file" in reason, status, err, reason)
            check("such as NFS or Lustre" in reason and is_empty(directory), reason)
            self.check_no_process(hosts)

    def full_file_system_is_refused(self):
        with small_file_system("1M") as directory, Hosts.numbered(3) as hosts:
            status, _, err, results = self.complete(hosts, ["file", directory, "--bytes", "512k", "--block", "64k"])
            check(status != 0 and "has 1 MiB free, and 3 ranks write 512 KiB each, 1.50 MiB in all" in err, status, err)
            check(results == [] and is_empty(directory), results)
            self.check_no_process(hosts)

    def failed_write_is_named(self):
        with Hosts.numbered(3) as hosts, shared_directory() as directory, tempfile.TemporaryDirectory() as scripts:
            # In units of 512 bytes.
            limited = self.wrapper(scripts, 'ulimit -f 100; exec "{program}" "$@"')
            arguments = ["file", directory, "--bytes", "128k", "--block", "64k", "--passes", "2", "--layout", "own"]
            status, _, err, results = self.complete(hosts, arguments, [self.program, limited, self.program])
            reason = events(results, "failure")[0]["reason"]
            check(status != 0 and "rank 1 (n1) cannot write" in reason and "File too large" in reason, status, err, reason)
            self.wait_for(lambda: is_empty(directory), END_SECONDS, f"an empty directory instead of {os.listdir(directory)}")

    def mistakes_of_file_are_one_line(self):
        with shared_directory() as directory:
            for arguments, expected in [
                ([str(Path(directory, "absent"))], "absent: No such file or directory"),
                (["/dev/null"], "/dev/null is no directory"),
                ([directory, "--bytes", "100k", "--block", "64k"], "--bytes 100 KiB is no multiple of --block 64 KiB"),
                ([directory, "--block", "100"], "it must be between 512 and 1G"),
                ([directory, "--bytes", "1000000G"], "name fewer --bytes, or another directory"),
            ]:
                job = subprocess.run([self.program, "file", *arguments], capture_output=True, text=True, check=False, timeout=60)
                check(job.returncode == 2 and expected in job.stderr, arguments, job)
            check(is_empty(directory), os.listdir(directory))


TESTS = [
    Tests.mistakes_of_file_are_one_line,
    Tests.data_and_files_are_measured,
    Tests.remote_file_system_is_measured,
    Tests.direct_data_is_measured,
    Tests.directory_of_one_host_is_refused,
    Tests.full_file_system_is_refused,
    Tests.failed_write_is_named,
    Tests.wrong_block_is_named,
    Tests.killed_writer_is_named,
    Tests.stopped_writer_is_named,
    Tests.signal_leaves_nothing,
    Tests.interrupted_launcher_leaves_nothing,
    Tests.killed_rank_0_leaves_nothing,
]
