"""Tests of the sub-commands of kelvin-cluster that start kelvin on each host: load and run."""
import base64
import json
import os
import signal
import subprocess
import tempfile
import zlib
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import mpi
from made_hosts import Hosts
from jobs import END_SECONDS, FAULT_SECONDS, JOB_SECONDS, ONE_HOST, RESULTS, Jobs, check, events, read_results

WIDTH = 80
# As little as is a run that can be compared: no figure of it is looked at.
RUN = ["os.syscall.null", "--quick", "--budget", "minimum", "--rounds", "5", "--no-canaries"]
# A run and a load that last until something ends them.
LONG_RUN = ["os.syscall.null", "--budget", "10m", "--no-canaries"]
LONG_LOAD = ["--rate", "20", "--duration", "10m"]
PORT = 8080


def events_in(directory, name):
    return events(read_results(directory), name) if Path(directory, RESULTS).exists() else []


def histogram_counts(text):
    """The counts of a histogram in HdrHistogram's V2 encoding, by index: zigzag LEB128, where a negative number is a run of zeros."""
    data = zlib.decompress(base64.b64decode(text)[8:])
    length = int.from_bytes(data[4:8], "big")
    payload, position, index, counts = data[40 : 40 + length], 0, 0, {}
    while position < len(payload):
        value = shift = 0
        while True:
            byte = payload[position]
            position += 1
            # The ninth byte has eight bits.
            value |= (byte if shift == 56 else byte & 127) << shift
            shift += 7
            if shift > 56 or byte < 128:
                break
        value = (value >> 1) ^ -(value & 1)
        if value < 0:
            index -= value
        else:
            counts[index] = value
            index += 1
    return {index: count for index, count in counts.items() if count}


def value_at(counts, quantile):
    """The highest value of the bucket below which this part of all values lies: three digits, from 1 on, so 2048 buckets of each size."""
    rank = max(1, -(-int(quantile * 10**6) * sum(counts.values()) // 10**6))
    for index in sorted(counts):
        rank -= counts[index]
        if rank <= 0:
            bucket, sub = (0, index) if index < 2048 else ((index >> 10) - 1, (index & 1023) + 1024)
            return ((sub + 1) << bucket) - 1
    return None


class Tests(Jobs):
    def job(self, hosts, count, arguments, kelvin=None):
        """The command line of a sub-command on the first hosts. `arguments` begin with its name."""
        name, *rest = arguments
        return self.launcher(hosts, [[self.program, name, "--json", RESULTS, "--kelvin", str(kelvin or self.kelvin), *rest]] * count)

    def finished(self, hosts, count, arguments, directory, kelvin=None, expected=0):
        with mpi.started(self.job(hosts, count, arguments, kelvin), directory) as job:
            out, err = job.communicate(timeout=JOB_SECONDS)
        # MPICH complains there of a rank 0 that ended before others reached it.
        out = "".join(line for line in out.splitlines(keepends=True) if "UCX  ERROR" not in line)
        check(all(len(line) <= WIDTH for line in out.splitlines()), out)
        results = read_results(directory) if Path(directory, RESULTS).exists() else []
        return self.status(job, err, results, expected), out, err

    def is_refusal(self, status):
        """The launcher of MPICH may end with another status than its ranks, if these end early: also by SIGPIPE."""
        return status == 2 or (self.launcher is mpi.mpich and status != 0)

    @contextmanager
    def running(self, hosts, count, arguments, directory, child_of):
        """A job whose rank on this host has started its kelvin, with its messages. It is ended afterwards."""
        with tempfile.TemporaryFile("w+") as err:
            command = self.job(hosts, count, arguments)
            job = subprocess.Popen(command, cwd=directory, stdout=subprocess.DEVNULL, stderr=err, start_new_session=True)
            try:
                # A version is asked for first, which ends at once.
                self.wait_for(lambda: self.is_measuring(hosts, child_of), JOB_SECONDS, "kelvin at work")
                yield job
            finally:
                if job.poll() is None:
                    os.killpg(job.pid, signal.SIGKILL)
                hosts.end_processes()
                job.wait()
            err.seek(0)
            self.messages = err.read()

    def is_measuring(self, hosts, host):
        for process in hosts.processes(self.kelvin)[host]:
            try:
                words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"--start-at" in words or (b"--out" in words and b"run" in words):
                return True
        return False

    @contextmanager
    def serving(self, hosts, host):
        """A server on a host: its address."""
        with tempfile.TemporaryDirectory() as root:
            for name in ("index.html", "a", "b"):
                Path(root, name).write_text("content")
            command = [*hosts.enter(host), self.kelvin, "serve", root, "--listen", f"{hosts.address(host)}:{PORT}"]
            server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            try:
                self.wait_for(lambda: self.answers(hosts, host), 20, "a server that answers")
                yield f"http://{hosts.address(host)}:{PORT}"
            finally:
                server.kill()
                server.communicate()
                hosts.end_processes()

    @staticmethod
    def answers(hosts, host):
        script = f"import socket; socket.create_connection(('{hosts.address(host)}', {PORT}), 1)"
        command = [*hosts.enter(host), "python3", "-c", script]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def wrapper(self, directory, host, script):
        """A kelvin that is this script on a host, and the real one elsewhere."""
        path = Path(directory, "kelvin")
        path.write_text(f'#!/bin/sh\nif [ "$(hostname)" = n{host} ]; then\n{script}\nfi\nexec {self.kelvin} "$@"\n')
        path.chmod(0o755)
        return path

    def report(self, directory):
        command = [self.program, "report", RESULTS, "--kelvin", self.kelvin]
        return subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False, timeout=60)

    def check_nothing_runs(self, hosts):
        programs = (self.program, self.kelvin)
        self.wait_for(lambda: not any(any(hosts.processes(name).values()) for name in programs), END_SECONDS, "the end of all processes")

    def load_is_one_schedule(self):
        with Hosts.numbered(4) as hosts, tempfile.TemporaryDirectory() as directory, self.serving(hosts, 3) as url:
            arguments = ["load", f"{url}/", "--fail-on", "errors>0", "--", "--rate", "300", "--duration", "2s", "--no-warm-up"]
            status, out, err = self.finished(hosts, 3, arguments, directory)
            check(status == 0, status, out, err)
            documents = [event["document"] for event in sorted(events_in(directory, "generator"), key=lambda event: event["rank"])]
            check([document["schedule"]["share"] for document in documents] == [{"number": n, "of": 3} for n in (1, 2, 3)], documents)
            check([document["tags"]["node"] for document in documents] == ["n0", "n1", "n2"], documents)
            self.check_starts(directory, documents)
            merged = events_in(directory, "merged")[0]["document"]["loads"][0]
            check(merged["requests"] == 600 == sum(document["requests"] for document in documents), merged)
            check(merged["offered"]["rate"]["rate"] == 300, merged["offered"])
            self.check_percentiles(documents, merged)
            check(read_results(directory)[-1] == {"event": "end"}, out)
            for name in ("n0", "n1", "n2"):
                check(f"\n{name}   " in out, out)
            again = self.report(directory)
            check(again.returncode == 0 and again.stdout == out, again, out)
            missed = self.finished(hosts, 3, [*arguments[:2], "--fail-on", "rate<1000", *arguments[4:]], tempfile.mkdtemp(dir=directory), expected=1)
            check(missed[0] == 1 and "rate<1000" in missed[2], missed)
            self.check_no_process(hosts)

    @staticmethod
    def check_starts(directory, documents):
        """All have the clock of this machine: what is taken for an offset, and corrected, is less than its error."""
        planned = events_in(directory, "schedule")[0]["start_s"]
        for rank, document in zip(events_in(directory, "start")[0]["ranks"], documents):
            start = datetime.fromisoformat(document["scheduled_start"].replace("Z", "+00:00")).timestamp()
            # Times have microseconds.
            check(abs(start - planned) <= 2e-6 and abs(rank["clock_offset_s"]) <= rank["clock_error_s"], start, planned, rank)
            check(document["clock"]["max_error"] == 1e9 * rank["clock_error_s"] and document["clock"]["synchronized"], document["clock"])

    @staticmethod
    def check_percentiles(documents, merged):
        """Those of the merge are those of all times in one histogram."""
        for name in ("response", "service"):
            sums = {}
            for document in documents:
                for index, count in histogram_counts(document["histograms"][name]).items():
                    sums[index] = sums.get(index, 0) + count
            check(histogram_counts(merged["histograms"][name]) == sums, name, sums)
            for field, quantile in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
                check(merged[name][field] == value_at(sums, quantile), name, field, merged[name], value_at(sums, quantile))

    def urls_are_given_in_turn(self):
        with Hosts.numbered(3) as hosts, tempfile.TemporaryDirectory() as directory, self.serving(hosts, 2) as url:
            arguments = ["load", f"{url}/a", f"{url}/b", "--", "--users", "2", "--duration", "500ms"]
            status, out, err = self.finished(hosts, 2, arguments, directory)
            check(status == 0, status, out, err)
            targets = {event["rank"]: event["document"]["target"] for event in events_in(directory, "generator")}
            check(targets == {0: f"{url}/a", 1: f"{url}/b"}, targets)
            check(f"  {url}/a: rank 0\n  {url}/b: rank 1\n" in out, out)

    def failed_generator_is_named_and_others_go_on(self):
        with Hosts.numbered(3) as hosts, tempfile.TemporaryDirectory() as directory, self.serving(hosts, 2) as url:
            kelvin = self.wrapper(directory, 1, 'case "$1 $2" in "load --json") echo "kelvin: out of descriptors" >&2; exit 2;; esac')
            arguments = ["load", f"{url}/", "--", "--rate", "100", "--duration", "500ms"]
            status, out, err = self.finished(hosts, 2, arguments, directory, kelvin, expected=1)
            check(status == 1 and "rank 1 (n1): out of descriptors" in out and "The files lack 1 share" in out, status, out, err)

    def load_that_nobody_can_make_is_one_line(self):
        with Hosts.numbered(2) as hosts:
            for options, expected in [
                (["http://198.18.93.2:9/", "--", "--rate", "x"], "--rate"),
                (["http://198.18.93.2:9/", "--", "--rate", "5"], "refused"),
                (["http://198.18.93.2:9/", "--", "--share", "1/2"], "--share after --: each rank gets its share"),
                (["--", "--rate", "5"], "URL"),
            ]:
                with tempfile.TemporaryDirectory() as directory:
                    status, out, err = self.finished(hosts, 2, ["load", *options], directory)
                lines = [line for line in err.splitlines() if line.startswith("kelvin-cluster: ") and expected in line]
                check(self.is_refusal(status) and len(lines) == 1 and not out, options, status, out, err)
            self.check_nothing_runs(hosts)

    def other_kelvin_is_named(self):
        with Hosts.numbered(3) as hosts, tempfile.TemporaryDirectory() as directory:
            kelvin = self.wrapper(directory, 2, "echo kelvin 9.9.9; exit 0")
            status, out, err = self.finished(hosts, 3, ["load", "http://198.18.93.1/"], directory, kelvin)
            check(self.is_refusal(status) and "rank 2 (n2) starts kelvin 9.9.9, and rank 0 starts kelvin 0." in err, status, out, err)
            status, out, err = self.finished(hosts, 2, ["load", "http://198.18.93.1/"], tempfile.mkdtemp(dir=directory), "/no/such/kelvin")
            check(self.is_refusal(status) and "cannot start /no/such/kelvin: " in err, status, out, err)
            self.check_nothing_runs(hosts)

    def lost_rank(self, hosts, arguments, directory, action, expected):
        """Does something to a job of three hosts while rank 1 measures, and checks that it ends in time with this sentence."""
        with self.running(hosts, 3, arguments, directory, child_of=1) as job:
            action(hosts.processes(self.program))
            self.wait_for(lambda: events_in(directory, "failure"), FAULT_SECONDS, f"{expected!r} in the file of results")
            if self.launcher is mpi.mpich:
                # It ends ranks by SIGTERM, which a stopped process receives only when it is continued.
                subprocess.run(["kill", "-CONT", *map(str, sum(hosts.processes(self.program).values(), []))], capture_output=True, check=False)
            self.check_no_rank_and_child(hosts)
            try:
                job.wait(timeout=END_SECONDS)
            except subprocess.TimeoutExpired:
                job.kill()
        failure = events_in(directory, "failure")[0]
        check(expected in failure["reason"] and job.returncode != 0, failure, self.messages)
        again = self.report(directory)
        check(f"The job ended early: {failure['reason']}" in again.stdout, again)

    def check_no_rank_and_child(self, hosts):
        self.wait_for(
            lambda: not any(hosts.processes(self.program).values()) and not any(self.is_measuring(hosts, host) for host in range(hosts.count)),
            END_SECONDS,
            "the end of all ranks and of what they started",
        )

    def lost_rank_ends_a_load(self):
        for number, expected in ((signal.SIGKILL, "rank 1 (n1) has died"), (signal.SIGSTOP, "rank 1 (n1) has been silent for 5 s")):
            with Hosts.numbered(4) as hosts, tempfile.TemporaryDirectory() as directory, self.serving(hosts, 3) as url:
                arguments = ["load", f"{url}/", "--", *LONG_LOAD]
                self.lost_rank(hosts, arguments, directory, lambda processes, number=number: os.kill(processes[1][0], number), expected)

    def lost_rank_ends_a_run(self):
        for number, expected in ((signal.SIGKILL, "rank 1 (n1) has died"), (signal.SIGSTOP, "rank 1 (n1) has been silent for 5 s")):
            with Hosts.numbered(3) as hosts, tempfile.TemporaryDirectory() as directory:
                arguments = ["run", "--out", directory, "--", *LONG_RUN, "--dir", directory]
                self.lost_rank(hosts, arguments, directory, lambda processes, number=number: os.kill(processes[1][0], number), expected)
                # Those that were not killed have removed their files, and left what they measured until then.
                self.wait_for(lambda: not list(Path(directory).glob("kelvin-scratch-*")), END_SECONDS, "the end of test files")

    def lost_rank_0_ends_what_others_started(self):
        with Hosts.numbered(4) as hosts, tempfile.TemporaryDirectory() as directory, self.serving(hosts, 3) as url:
            with self.running(hosts, 3, ["load", f"{url}/", "--", *LONG_LOAD], directory, child_of=1):
                os.kill(hosts.processes(self.program)[0][0], signal.SIGKILL)
                self.check_no_rank_and_child(hosts)

    def killed_generator_is_named(self):
        with Hosts.numbered(3) as hosts, tempfile.TemporaryDirectory() as directory, self.serving(hosts, 2) as url:
            command = self.job(hosts, 2, ["load", f"{url}/", "--", "--rate", "50", "--duration", "4s"])
            with mpi.started(command, directory) as job:
                self.wait_for(lambda: self.is_measuring(hosts, 1), JOB_SECONDS, "a generator")
                for process in hosts.processes(self.kelvin)[1]:
                    os.kill(process, signal.SIGKILL)
                out, err = job.communicate(timeout=JOB_SECONDS)
            status = self.status(job, err, read_results(directory), expected=1)
            check(status == 1 and "rank 1 (n1): kelvin was ended by signal 9" in out, status, out, err)

    def hosts_run_together_and_alone(self):
        with Hosts.numbered(2) as hosts, tempfile.TemporaryDirectory() as directory:
            arguments = ["run", "--out", directory, "--", *RUN, "--dir", directory]
            status, out, err = self.finished(hosts, 2, arguments, directory)
            check(status == 0, status, out, err)
            check("2 hosts at once, about " in err and "then each alone: about " in err, err)
            jobs = set()
            for phase in ("together", "alone"):
                files = sorted(Path(directory, phase).iterdir())
                runs = [json.loads(file.read_text()) for file in files]
                check([run["tags"]["node"] for run in runs] == ["n0", "n1"], files)
                check(all(run["tags"]["hosts"] == phase and run["status"] == "complete" for run in runs), files)
                check(len({run["machine"]["identity"] for run in runs}) == 2, "alike hosts are one")
                jobs |= {run["tags"].get("job") for run in runs}
            check(len(jobs) == 1, jobs)
            measured = [(event["phase"], event["rank"]) for event in events_in(directory, "run")]
            check(sorted(measured[:2]) == [("together", 0), ("together", 1)] and measured[2:] == [("alone", 0), ("alone", 1)], measured)
            compared = {event["rank"]: event["figures"] for event in events_in(directory, "compared")}
            check(compared.keys() == {0, 1} and all(compared.values()), compared)
            ratios = events_in(directory, "ratios")[0]["ratios"]
            for ratio in ratios:
                # A range of too few rounds is no interval.
                all_figures = [figure for figures in compared.values() for figure in figures if not figure["ratio"].get("is_range")]
                own = [figure["ratio"]["value"] for figure in all_figures if figure["figure"] == ratio["figure"]]
                check(ratio["range"] == [min(own), max(own)] and ratio["hosts"] == len(own), ratio, own)
                check(ratio["ratio"]["low"] < ratio["ratio"]["value"] < ratio["ratio"]["high"], ratio)
            check("What 2 hosts do to each other, together over alone: " in out and "os.syscall.null" in out, out)
            check("Hosts against each other, each measured alone:" in out and "2 hosts with 2 runs" in out, out)
            again = self.report(directory)
            check(again.returncode == 0 and again.stdout == out, again, out)
            self.check_nothing_runs(hosts)

    def second_rank_of_a_host_measures_nothing(self):
        with Hosts.numbered(1) as hosts, tempfile.TemporaryDirectory() as directory:
            words = ["run", "--json", RESULTS, "--kelvin", self.kelvin, "--out", directory, "--no-alone", "--", *RUN, "--dir", directory]
            command = [*hosts.enter(0), *ONE_HOST[self.launcher], self.program, *words]
            with mpi.started(command, directory) as job:
                out, err = job.communicate(timeout=JOB_SECONDS)
            status = self.status(job, err, read_results(directory))
            check(status == 0 and "rank 1 (n0) measures nothing: rank 0 measures this host" in err, job.returncode, out, err)
            check(len(list(Path(directory, "together").glob("*.json"))) == 1 and not Path(directory, "alone").exists(), out)
            check("1 host at once, about " in err and "1 rank measured nothing" in out, out, err)

    def failed_run_is_named(self):
        with Hosts.numbered(2) as hosts, tempfile.TemporaryDirectory() as directory:
            kelvin = self.wrapper(directory, 1, 'case "$1 $2" in "run --out") echo "kelvin: no space" >&2; exit 2;; esac')
            status, out, err = self.finished(hosts, 2, ["run", "--out", directory, "--", *RUN, "--dir", directory], directory, kelvin)
            check(status == 1 and "Hosts that did not measure together:\n  rank 1 (n1): no space" in out, status, out, err)
            check("1 of 2 hosts, while all measured at once" in out, out)
            for options, expected in [
                (["--out", "/no/such", "--", *RUN], "--out /no/such: it must be a directory"),
                (["--out", directory, "--", "nothing"], "no probe, metric or area is called 'nothing'"),
                (["--out", directory, "--", "--keep", "headlines"], "--keep after --: "),
            ]:
                status, out, err = self.finished(hosts, 2, ["run", *options], tempfile.mkdtemp(dir=directory))
                lines = [line for line in err.splitlines() if line.startswith("kelvin-cluster: ")]
                check(self.is_refusal(status) and len(lines) == 1 and expected in lines[0] and not out, options, status, out, err)


TESTS = [
    Tests.load_is_one_schedule,
    Tests.urls_are_given_in_turn,
    Tests.failed_generator_is_named_and_others_go_on,
    Tests.load_that_nobody_can_make_is_one_line,
    Tests.other_kelvin_is_named,
    Tests.killed_generator_is_named,
    Tests.lost_rank_ends_a_load,
    Tests.lost_rank_ends_a_run,
    Tests.lost_rank_0_ends_what_others_started,
    Tests.hosts_run_together_and_alone,
    Tests.second_rank_of_a_host_measures_nothing,
    Tests.failed_run_is_named,
]
