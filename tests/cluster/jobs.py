"""Jobs of kelvin-cluster on made hosts, for its tests: started, waited for, and ended by a fault."""
import json
import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import mpi

# The end of a job is promised 10 s after the fault. The rest is for launchers, which end what they started after that.
FAULT_SECONDS = 10
END_SECONDS = 20
JOB_SECONDS = 240
RESULTS = "results.jsonl"
# The command lines that start two ranks on one host.
ONE_HOST = {
    mpi.open_mpi: ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "2"],
    mpi.mpich: ["mpirun.mpich", "-n", "2"],
}


class Failure(Exception):
    """A test failed."""


def check(condition, *facts):
    if not condition:
        raise Failure("\n".join(str(fact) for fact in facts))


def skip(needs, reason):
    subprocess.run([Path(__file__).parents[2] / "scripts/skip", needs, "the tests of kelvin-cluster", reason], check=True)


def read_results(directory):
    return [json.loads(line) for line in Path(directory, RESULTS).read_text().splitlines()]


def events(results, name):
    return [event for event in results if event["event"] == name]


class Jobs:
    """Jobs of one program under one launcher. Some sub-commands start `kelvin`."""

    def __init__(self, launcher, program, kelvin):
        self.launcher, self.program, self.kelvin = launcher, program, kelvin

    def command(self, hosts, arguments, programs=None):
        """The command line of a job: one rank on each host, with these arguments, of which the first one is the sub-command."""
        programs = programs or [self.program] * hosts.count
        return self.launcher(hosts, [[program, *arguments, "--json", RESULTS] for program in programs])

    def complete(self, hosts, arguments, programs=None, while_running=lambda _: None):
        """Runs a job to its end: its status, standard output and error, and what it wrote. `while_running` is called with its directory."""
        with tempfile.TemporaryDirectory() as directory:
            with mpi.started(self.command(hosts, arguments, programs), directory) as job:
                while_running(directory)
                out, err = job.communicate(timeout=JOB_SECONDS)
            results = read_results(directory) if Path(directory, RESULTS).exists() else []
            return self.status(job, err, results), out, err, results

    def status(self, job, err, results, expected=0):
        """The exit status of a job; the expected one where all was measured and written before MPICH did not end, as the page on
        kelvin-cluster says: its launcher then ends with a status of its own."""
        has_hung = self.launcher is mpi.mpich and "MPI_Finalize has not ended" in err and {"event": "end"} in results
        return expected if has_hung else job.returncode

    def fault(self, hosts, arguments, action, expected, measured="pair", launcher_ends=True, then=lambda: None):
        """Starts a job, does something to it after its first three events of a name, and checks that it ends in time with this sentence.
        A launcher that cannot reach a host does not end. `then` is what is checked while the hosts still have what a job leaves to end later."""
        with tempfile.TemporaryDirectory() as directory, tempfile.TemporaryFile("w+") as err:
            command = self.command(hosts, arguments)
            job = subprocess.Popen(command, cwd=directory, stdout=subprocess.DEVNULL, stderr=err, start_new_session=True)
            try:
                self.wait_for(lambda: Path(directory, RESULTS).exists() and len(events(read_results(directory), measured)) >= 3, JOB_SECONDS, measured)
                action(hosts.processes(self.program))
                self.wait_for(lambda: events(read_results(directory), "failure"), FAULT_SECONDS, f"{expected!r} in the file of results")
                results = read_results(directory)
                self.continue_stopped(hosts)
                self.wait_for(lambda: not any(hosts.processes(self.program).values()), END_SECONDS, "the end of all ranks")
                if launcher_ends:
                    job.wait(timeout=END_SECONDS)
                else:
                    job.kill()
                    job.wait()
                then()
            finally:
                if job.poll() is None:
                    os.killpg(job.pid, signal.SIGKILL)
                hosts.end_processes()
                job.wait()
            err.seek(0)
            text = err.read()
            failure = events(results, "failure")[0]
            check(expected in failure["reason"], failure, text)
            # MPICH may end rank 0 before its launcher passes on what rank 0 says. The file of results has it, as checked above.
            check(expected in text or self.launcher is mpi.mpich, text)
            check(job.returncode != 0, job.returncode, text)
            check(len(events(results, measured)) >= 3 and not events(results, "end"), results)
            report = subprocess.run([self.program, "report", RESULTS], cwd=directory, capture_output=True, text=True, check=False)
            check(report.returncode == 0 and f"The job ended early: {failure['reason']}" in report.stdout, report)

    def continue_stopped(self, hosts):
        """The launcher of MPICH ends ranks by SIGTERM, which a stopped process receives only when it is continued."""
        if self.launcher is mpi.mpich:
            subprocess.run(["kill", "-CONT", *map(str, sum(hosts.processes(self.program).values(), []))], capture_output=True, check=False)

    def complete_undisturbed(self, hosts, arguments):
        """The same. While ranks measure, other programs of this machine take no CPU from them. To start and to end, ranks poll, and their
        launcher needs a CPU."""

        def keep_cpus(directory):
            for event, policy, priority in (("start", os.SCHED_FIFO, 1), ("analysis", os.SCHED_OTHER, 0)):
                self.wait_for(lambda: Path(directory, RESULTS).exists() and events(read_results(directory), event), JOB_SECONDS, event)
                for process in sum(hosts.processes(self.program).values(), []):
                    try:
                        for thread in os.listdir(f"/proc/{process}/task"):
                            os.sched_setscheduler(int(thread), policy, os.sched_param(priority))
                    except (FileNotFoundError, ProcessLookupError):
                        # It has ended.
                        pass

        return self.complete(hosts, arguments, while_running=keep_cpus)

    @staticmethod
    def wait_for(condition, seconds, what):
        end = time.monotonic() + seconds
        while not condition():
            check(time.monotonic() < end, f"{what}: not within {seconds} s")
            time.sleep(0.05)

    def check_no_process(self, hosts):
        self.wait_for(lambda: not any(hosts.processes(self.program).values()), END_SECONDS, "the end of all ranks")
