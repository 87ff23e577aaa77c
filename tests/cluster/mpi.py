"""Jobs of MPI on made hosts: the command lines that start one rank on each, under Open MPI and MPICH."""
import os
import signal
import subprocess
from contextlib import contextmanager

from made_hosts import INTERFACE


def open_mpi(hosts, programs, mpirun="mpirun.openmpi"):
    """The command line that starts `programs`, one list of words for each host, under Open MPI."""
    addresses = [hosts.address(host) for host in range(len(programs))]
    command = [
        *hosts.enter(0), mpirun, "--allow-run-as-root", "--bind-to", "none", "--map-by", "node",
        "--mca", "plm_rsh_agent", str(hosts.ssh), "--mca", "plm_rsh_no_tree_spawn", "1", "--mca", "pml", "ob1",
        "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", INTERFACE, "--mca", "oob_tcp_if_include", INTERFACE,
        "--mca", "mpi_yield_when_idle", "1", "--mca", "orte_base_help_aggregate", "0",
    ]  # fmt: skip
    for index, (address, program) in enumerate(zip(addresses, programs)):
        command += [":"] if index else []
        command += ["--host", address, "-n", "1", *program]
    return command


def mpich(hosts, programs, mpirun="mpirun.mpich"):
    """The same under MPICH.

    With rendezvous on links as slow as here, MPI_Finalize of MPICH 4.0.2 on UCX does not end, in any program. By default
    its launcher, when a rank dies, ends rank 0 before it passes on what rank 0 says."""
    addresses = [hosts.address(host) for host in range(len(programs))]
    command = [*hosts.enter(0), "env", "UCX_TLS=tcp,self", "UCX_RNDV_THRESH=inf", f"UCX_NET_DEVICES={INTERFACE}", "MPIR_CVAR_NOLOCAL=1", mpirun,
               "-disable-auto-cleanup", "-launcher", "ssh", "-launcher-exec", str(hosts.ssh), "-iface", INTERFACE, "-hosts", ",".join(addresses)]  # fmt: skip
    for index, program in enumerate(programs):
        command += [":"] if index else []
        command += ["-n", "1", *program]
    return command


@contextmanager
def started(command, directory):
    """A job that runs in a directory. It is ended if it is not over."""
    process = subprocess.Popen(command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
