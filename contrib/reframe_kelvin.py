"""A check of ReFrame (reframe-hpc.readthedocs.io, 4 or later): kelvin on each node of a partition, its figures as performance variables.

    reframe -C your-settings.py -c reframe_kelvin.py -r --performance-report
    reframe -C your-settings.py -c reframe_kelvin.py -r --distribute=idle    # one job for each idle node
    reframe -C your-settings.py -c reframe_kelvin.py -r -S KelvinCheck.directory=/shared/kelvin

With references in `self.reference` ReFrame itself fails where a node is too slow; `kelvin fleet report` on the directory shows who is out.
"""
import json
import os

import reframe as rfm
import reframe.utility.sanity as sn
from reframe.core.builtins import performance_function, run_before, sanity_function, variable

# Figures to follow: a name for ReFrame, the id of the metric, its case and its unit.
FIGURES = [
    ("null_call", "os.syscall.null", {"call": "getppid"}, "ns"),
]


@rfm.simple_test
class KelvinCheck(rfm.RunOnlyRegressionTest):
    descr = "kelvin measures a node"
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    # What is measured, and how, besides where it goes.
    arguments = variable(str, value="os.syscall --quick")
    # A directory for the files of all nodes; unless it is set, that of the check.
    directory = variable(str, value="runs")
    num_tasks = 1
    num_tasks_per_node = 1
    exclusive_access = True
    time_limit = "15m"

    executable = os.environ.get("KELVIN", "kelvin")

    @run_before("run")
    def set_arguments(self):
        self.prerun_cmds = [f"mkdir -p {self.directory}"]
        self.executable_opts = ["run", self.arguments, "--json", "--out", self.directory, "--dir", "${TMPDIR:-/tmp}"]
        if self.job.launcher.registered_name == "srun":
            self.job.launcher.options += ["--cpu-bind=none"]

    @sanity_function
    def has_run(self):
        """The run is complete: it is the last line of the output, since messages go to standard error."""
        return sn.all([sn.assert_eq(self.job.exitcode, 0), sn.assert_found(r'"status":"complete"', self.stdout)])

    @run_before("performance")
    def set_performance_variables(self):
        make = sn.make_performance_function
        self.perf_variables = {name: make(self.headline(metric, case), unit) for name, metric, case, unit in FIGURES}

    @sn.deferrable
    def headline(self, metric, case):
        """The headline of a metric at a case."""
        with open(os.path.join(self.stagedir, str(self.stdout)), encoding="utf-8") as output:
            report = json.loads([line for line in output if line.startswith("{")][-1])
        for result in report["analysis"]["results"]:
            if result["metric"]["id"] == metric and result["case"] == case:
                return result["outcome"]["measured"]["headline"]
        raise KeyError(f"the run has no {metric} {case}")
