#!/usr/bin/env python3
"""Tests of kelvin-cluster between hosts that are network namespaces: what its sub-command net measures, what it names, and how it ends. The
tests of the other sub-commands are in files of their own.

usage: run.py LAUNCHER PROGRAM KELVIN [TEST...]

LAUNCHER is open_mpi or mpich, whose PROGRAM is built with it. KELVIN is what some sub-commands start. Nothing here depends on how fast this
machine is: limits of tc make the differences, and deadlines are those that the program promises.
"""
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# What tests of several programs share.
sys.path.append(str(Path(__file__).parents[1]))

import file_system
import mpi
import started
from made_hosts import Hosts, Unavailable
from jobs import END_SECONDS, JOB_SECONDS, ONE_HOST, RESULTS, Failure, Jobs, check, events, read_results, skip

# The least that a pair sends, 1 MiB in each direction, takes 40 ms by the first. Such rates need little CPU. In bits per second.
RATE, SLOW_RATE = 200e6, 80e6
QUICK = ["net", "--passes", "1", "--pair-time", "100ms", "--together-time", "200ms"]
# A job that lasts until something ends it.
LONG = ["net", "--passes", "1000", "--pair-time", "100ms"]


class Tests(Jobs):
    def every_pair_is_measured(self):
        with Hosts.numbered(4, RATE) as hosts:
            status, out, err, results = self.complete(hosts, QUICK)
            check(status == 0, status, out, err)
            for transport in ("tcp", "mpi"):
                pairs = {tuple(event["pair"]) for event in events(results, "pair") if event["transport"] == transport}
                check(len(pairs) == 6, transport, pairs)
            check(not events(results, "pair_failed"), results)
            start = events(results, "start")[0]
            check([rank["label"] for rank in start["ranks"]] == ["n0", "n1", "n2", "n3"], start)
            # The clock is one and the same, so the true offset is 0.
            check(all(abs(rank["clock_offset_s"]) <= rank["clock_error_s"] for rank in start["ranks"]), start)
            for event in events(results, "pair"):
                figures = event["figures"]
                check(figures["interface_bytes"] >= figures["sent_bytes"], event)
                check(figures["round_trip"]["count"] >= 20, event)
            check({event["transport"] for event in events(results, "bisection")} == {"tcp", "mpi"}, results)
            check(events(results, "all_to_all") and results[-1] == {"event": "end"}, results)
            check("MPI all to all" in out and "TCP rate of large messages" in out, out)
            self.check_no_process(hosts)

    def slow_link_is_named(self):
        with Hosts.numbered(5, RATE, {(1, 3): SLOW_RATE, (3, 1): SLOW_RATE}) as hosts:
            arguments = ["net", "--passes", "3", "--pair-time", "200ms", "--together-time", "0s", "--transport", "tcp"]
            for _ in range(3):
                status, out, err, results = self.complete_undisturbed(hosts, arguments)
                check(status == 0, status, out, err)
                cells = events(results, "analysis")[0]["analysis"]["matrices"][-1]["cells"]
                # On a machine where other programs take the CPUs, no pair is judged. Another job may do better.
                if not any(cell["is_disturbed"] for cell in cells):
                    break
            else:
                return skip("machine", "a slow link: other programs take the CPUs")
            links = [f"link from n{sender} to n{receiver}: TCP" for sender, receiver in ((1, 3), (3, 1))]
            check(all(link in out for link in links), out)
            return None

    def rate_is_that_of_the_limit(self):
        """Over both transports, also of two hosts, which have no prediction."""
        with Hosts.numbered(2, SLOW_RATE) as hosts:
            status, out, err, results = self.complete(hosts, QUICK)
            check(status == 0, status, out, err)
            check("with fewer than 4 hosts no pair can be predicted" in out, out)
            for event in events(results, "pair"):
                check(all(0 < rate < 2 * SLOW_RATE / 8 for rate in event["figures"]["bytes_per_second"]), event)

    def killed_rank_is_named(self):
        for transport in ("tcp", "mpi"):
            with Hosts.numbered(4, RATE) as hosts:
                self.fault(hosts, [*LONG, "--transport", transport], lambda processes: os.kill(processes[2][0], signal.SIGKILL), "rank 2 (n2) has died")

    def killed_peer_of_rank_0_is_named(self):
        """Rank 0 waits inside MPI for it."""
        with Hosts.numbered(2, RATE) as hosts:
            self.fault(hosts, [*LONG, "--transport", "mpi"], lambda processes: os.kill(processes[1][0], signal.SIGKILL), "rank 1 (n1) has died")

    def stopped_rank_is_named(self):
        for transport in ("tcp", "mpi"):
            with Hosts.numbered(4, RATE) as hosts:
                self.fault(hosts, [*LONG, "--transport", transport], lambda processes: os.kill(processes[3][0], signal.SIGSTOP), "rank 3 (n3) has been silent for 5 s")

    def cut_off_rank_is_named(self):
        for transport in ("tcp", "mpi"):
            with Hosts.numbered(4, RATE) as hosts:
                self.fault(hosts, [*LONG, "--transport", transport], lambda _: hosts.cut_off(1), "rank 1 (n1) has been silent for 5 s", launcher_ends=False)

    def stopped_rank_0_ends_the_job(self):
        with Hosts.numbered(3, RATE) as hosts:
            with tempfile.TemporaryDirectory() as directory, mpi.started(self.command(hosts, LONG), directory) as job:
                self.wait_for(lambda: Path(directory, RESULTS).exists() and events(read_results(directory), "pair"), JOB_SECONDS, "pairs")
                os.kill(hosts.processes(self.program)[0][0], signal.SIGSTOP)
                self.wait_for(lambda: not sum(list(hosts.processes(self.program).values())[1:], []), END_SECONDS, "the end of the other ranks")
                self.continue_stopped(hosts)
                self.wait_for(lambda: not any(hosts.processes(self.program).values()), END_SECONDS, "the end of rank 0")
                _, err = job.communicate(timeout=END_SECONDS)
            check(job.returncode != 0 and "rank 0 has been silent for 5 s" in err, job.returncode, err)

    def other_version_is_named(self):
        with Hosts.numbered(3, RATE) as hosts, tempfile.TemporaryDirectory() as directory:
            content = Path(self.program).read_bytes()
            name = b"kelvin-cluster 0."
            check(name in content, "the program contains its version")
            other = Path(directory, Path(self.program).name)
            other.write_bytes(content.replace(name, b"kelvin-cluster 9."))
            other.chmod(0o755)
            status, out, err, _ = self.complete(hosts, QUICK, [self.program, self.program, str(other)])
            check(status != 0 and "rank 2 (n2) is kelvin-cluster 9." in err, status, out, err)
            self.check_no_process(hosts)

    def ranks_without_a_network_between_them_are_refused(self):
        with Hosts.numbered(1) as hosts:
            command = [*hosts.enter(0), *ONE_HOST[self.launcher], self.program, "net", "--json", RESULTS]
            with tempfile.TemporaryDirectory() as directory, mpi.started(command, directory) as job:
                out, err = job.communicate(timeout=JOB_SECONDS)
            check(job.returncode != 0 and "ranks 0 and 1 are on one host (n0), in one network namespace" in err, job.returncode, out, err)

    def existing_file_is_kept(self):
        with Hosts.numbered(2) as hosts, tempfile.TemporaryDirectory() as directory:
            file = Path(directory, RESULTS)
            file.write_text("earlier results")
            with mpi.started(self.command(hosts, QUICK), directory) as job:
                out, err = job.communicate(timeout=JOB_SECONDS)
            check(job.returncode != 0 and f"--json {RESULTS}: File exists" in err, job.returncode, out, err)
            check(file.read_text() == "earlier results")
            self.check_no_process(hosts)

    def mistakes_are_one_line(self):
        for arguments, expected in [
            (["net", "--pair-time", "1ms"], "must be between 10 ms and 1 min"),
            (["net", "--network", "10.0.0.0"], "is not a range of addresses such as 10.0.0.0/8"),
            (["net", "--tolerance", "0.1%"], "it must be between 1% and 90%"),
            (["net"], "there is only one rank, so no pair"),
            (["report", "/dev/null"], "/dev/null: it has no whole line"),
        ]:
            job = subprocess.run([self.program, *arguments], capture_output=True, text=True, check=False, timeout=60)
            check(job.returncode == 2 and expected in job.stderr, arguments, job)


TESTS = [
    Tests.mistakes_are_one_line,
    Tests.existing_file_is_kept,
    Tests.every_pair_is_measured,
    Tests.slow_link_is_named,
    Tests.rate_is_that_of_the_limit,
    Tests.killed_rank_is_named,
    Tests.killed_peer_of_rank_0_is_named,
    Tests.stopped_rank_is_named,
    Tests.cut_off_rank_is_named,
    Tests.stopped_rank_0_ends_the_job,
    Tests.other_version_is_named,
    Tests.ranks_without_a_network_between_them_are_refused,
]
# Of each sub-command: the tests, and the class that has them.
ALL_TESTS = [(Tests, TESTS), (file_system.Tests, file_system.TESTS), (started.Tests, started.TESTS)]


def main():
    launcher, program, kelvin, *names = sys.argv[1:]
    programs = [os.path.abspath(path) for path in (program, kelvin)]
    try:
        with Hosts.numbered(2, RATE):
            pass
    except Unavailable as error:
        return skip("right", f"network namespaces: {error}")
    failed = 0
    tests = [(test, jobs(getattr(mpi, launcher), *programs)) for jobs, tests in ALL_TESTS for test in tests]
    for test, jobs in tests:
        if names and test.__name__ not in names:
            continue
        start = time.monotonic()
        try:
            test(jobs)
            print(f"cluster: {launcher}: {test.__name__}: ok, {time.monotonic() - start:.1f} s", flush=True)
        except (Failure, Unavailable, subprocess.TimeoutExpired) as failure:
            print(f"cluster: {launcher}: {test.__name__} FAILED:\n{failure}", flush=True)
            failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
