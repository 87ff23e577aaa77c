#!/usr/bin/env python3
"""Tests the rules of contrib/prometheus and the dashboards of contrib/grafana on what kelvin itself exports and stores.

usage: run.py KELVIN DIRECTORY

A real Prometheus scrapes made hosts, and its alerts must fire. A real PostgreSQL has their runs. Every query of a dashboard must give data there.
What is not installed is skipped, with the reason.
"""
import copy
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

from servers import Exporter, Postgres, Prometheus

ROOT = Path(__file__).parents[2]
PROMETHEUS, GRAFANA = ROOT / "contrib/prometheus", ROOT / "contrib/grafana"
HOSTS = [f"n{number}" for number in range(1, 13)]
# Out of its group by its figures, and by the governor that it alone has.
SLOW_HOST = "n5"
RUNS_OF_HOST = 6
# A host with kelvin watch, and one whose last run is an hour ago, at an interval of ten minutes.
WATCHED_HOST, LATE_HOST = "watched", "late"
METRICS = ["os.syscall.null", "os.process.fork"]


def skip(needs, test, reason):
    subprocess.run([ROOT / "scripts/skip", needs, f"dashboards: {test}", reason], check=True)


def started(hours_ago):
    return (datetime.now(timezone.utc) - timedelta(hours=hours_ago)).strftime("%Y-%m-%dT%H:%M:%SZ")


class Kelvin:
    """The program, with a home of its own."""

    def __init__(self, program, work):
        self.program, self.work = program, work
        self.environment = {**os.environ, "HOME": str(work), "XDG_DATA_HOME": str(work / "data"), "LC_ALL": "C.UTF-8"}

    def __call__(self, *arguments, status=(0,)):
        done = subprocess.run([self.program, *map(str, arguments)], cwd=self.work, env=self.environment, capture_output=True, text=True, timeout=600)
        assert done.returncode in status, f"kelvin {arguments}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout


def made_run(template, name, hours_ago, factor):
    """A run like another, whose readings differ by a factor."""
    run = copy.deepcopy(template)
    run |= {"id": name, "started": started(hours_ago), "spread_history": []}
    for measurement in run["measurements"]:
        for measured in (round["outcome"].get("measured", []) for round in measurement["rounds"]):
            for metric in measured:
                for readings in metric["readings"].values():
                    readings["nanoseconds"] = [reading * factor for reading in readings["nanoseconds"]]
    return run


def write_fleet(kelvin, directory):
    """Run files of hosts that are alike, but for one."""
    (kelvin.work / "template").mkdir()
    kelvin("run", *METRICS, "--quick", "--budget", "minimum", "--rounds", "4", "--no-canaries", "--out", kelvin.work / "template", status=(0, 1))
    template = json.loads(next((kelvin.work / "template").iterdir()).read_text())
    noise = random.Random(7)
    for index, host in enumerate(HOSTS):
        for number in range(RUNS_OF_HOST):
            is_slow = host == SLOW_HOST
            factor = (40 if is_slow and number == RUNS_OF_HOST - 1 else 1.5 if is_slow else 1) * (1 + noise.uniform(-0.02, 0.02))
            run = made_run(template, f"{host}-{number}", 24 * (RUNS_OF_HOST - 1 - number) + index / 2, factor)
            run["tags"] = {"node": host}
            run["machine"]["identity"] = f"{index:016x}"
            run["machine"]["platform"]["host"] = {"known": {"value": f"{index:032x}", "source": "a test"}}
            run["machine"]["cpu"]["governor"] = {"known": {"value": "powersave" if is_slow else "performance", "source": "a test"}}
            (directory / f"{host}-{number}.json").write_text(json.dumps(run))


def watch(kelvin):
    """The file of a watch on a machine whose core was faster before."""
    arguments = ["watch", "cpu.frequency", "--once", "--cpu-share", 50, "--every", "10m", "--budget", "minimum", "--store", "watch.sqlite", "--openmetrics", "watch.prom"]
    kelvin(*arguments)
    template = json.loads(kelvin("runs", "export", "last", "--store", "watch.sqlite"))
    for number in range(14):
        factor = (1 if number >= 12 else 0.7) * (1 + 0.01 * (number * 5 % 7 - 3))
        file = kelvin.work / f"earlier-{number}.json"
        file.write_text(json.dumps(made_run(template, f"earlier-{number:02}", 240 - 10 * number, factor)))
        kelvin("runs", "import", file, "--store", "watch.sqlite")
    for _ in range(600):
        line = kelvin(*arguments, status=(0, 1))
        if line:
            assert "cpu.frequency" in line and "worse" in line, line
            return (kelvin.work / "watch.prom").read_text()
        time.sleep(0.1)
    raise AssertionError("the watch reports no regression")


def check_schema():
    if not (shutil.which("node") and shutil.which("npm")):
        return skip("package npm", "Grafana's schema", "node or npm is not installed")
    here = ROOT / "tests/dashboards"
    subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--silent", "--ignore-scripts"], cwd=here, check=True, stdin=subprocess.DEVNULL)
    subprocess.run(["node", here / "schema.mjs", *sorted(GRAFANA.glob("*.json"))], check=True)
    print("dashboards: Grafana's published schema allows both")


def check_drop_in(kelvin):
    """What systemd says of the service with the drop-in: it is not started."""
    if not shutil.which("systemd-analyze"):
        return skip("package systemd", "textfile.conf", "systemd-analyze is not installed")
    units = kelvin.work / "units"
    places = {ROOT / "contrib/kelvin-watch.service": units / "kelvin-watch.service", PROMETHEUS / "textfile.conf": units / "kelvin-watch.service.d/textfile.conf"}
    for source, place in places.items():
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(source.read_text().replace("ExecStart=kelvin ", f"ExecStart={kelvin.program} "))
    command = ["systemd-analyze", "verify", "--man=no", units / "kelvin-watch.service"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert not done.stdout + done.stderr, done.stdout + done.stderr


def panels_of(name):
    """Each query of a dashboard, with the title of its panel."""
    board = json.loads((GRAFANA / name).read_text())
    return board["templating"]["list"], [(panel["title"], target) for panel in board["panels"] for target in panel["targets"]]


def substitute(query, variables):
    """A query with the values of variables, as Grafana writes them into it."""
    for name, value in sorted(variables.items(), key=lambda item: -len(item[0])):
        values = value if isinstance(value, list) else [value]
        query = query.replace(f"${{{name}:sqlstring}}", ",".join(f"'{value}'" for value in values)).replace(f"${name}", "|".join(values))
    query = re.sub(r"\$__timeFilter\(([\w.]+)\)", r"\1 BETWEEN now() - INTERVAL '7 days' AND now()", query)
    assert "$" not in query, f"{query}: a variable has no value"
    return query


def choose_variables(listed, values_of, chosen):
    """The value of each variable, which may depend on earlier ones: those that are given, else the first."""
    variables = {}
    for variable in listed:
        if variable["type"] != "query":
            continue
        values = values_of(substitute(variable["query"], variables))
        pattern = re.compile(variable["regex"].strip("/")) if "regex" in variable else None
        if pattern:
            values = [match[1] for match in map(pattern.search, values) if match]
        name = variable["name"]
        assert values, f"the variable {name} has no value"
        variables[name] = sorted(set(values)) if variable.get("multi") else chosen.get(name, values[0])
        assert name not in chosen or chosen[name] in values, (name, values)
    return variables


CHOSEN = {"area": "os", "metric": "os.syscall.null", "case": "call=getppid", "unit": "seconds", "mode": "quick"}


def check_prometheus_board(prometheus):
    listed, targets = panels_of("kelvin-prometheus.json")

    def values_of(query):
        inner = re.fullmatch(r"label_values\((.*), (\w+)\)", query)
        return prometheus.get(f"label/{inner[2]}/values", {"match[]": inner[1]})

    variables = choose_variables(listed, values_of, CHOSEN)
    assert variables["host"] == sorted([*HOSTS, WATCHED_HOST, LATE_HOST]), variables
    for title, target in targets:
        expression = substitute(target["expr"], variables)
        if target["instant"]:
            result = prometheus.get("query", {"query": expression})["result"]
        else:
            now = time.time()
            result = prometheus.get("query_range", {"query": expression, "start": now - 5, "end": now, "step": 1})["result"]
        assert result, f"{title}: no data: {expression}"
    print(f"dashboards: {len(targets)} queries of Prometheus have data")


def check_prometheus(kelvin, runs):
    for program in ("prometheus", "promtool"):
        if not shutil.which(program):
            return skip("package prometheus", "Prometheus", f"{program} is not installed")
    for check in (["check", "config", PROMETHEUS / "prometheus.yml"], ["test", "rules", PROMETHEUS / "kelvin-rules.test.yml"]):
        subprocess.run(["promtool", *check], check=True, stdout=subprocess.DEVNULL)
    texts = {host: kelvin("report", runs / f"{host}-{RUNS_OF_HOST - 1}.json", "--format", "openmetrics") for host in HOSTS}
    texts[WATCHED_HOST] = watch(kelvin)
    texts[LATE_HOST] = re.sub(r"(?m)^(kelvin_run_start_time_seconds) (\S+)$", lambda line: f"{line[1]} {float(line[2]) - 3600}", texts[WATCHED_HOST])
    # Each figure says by how many rounds it was measured.
    measured = {host: len(re.findall(r"(?m)^kelvin_\w+_rounds\{", text)) for host, text in texts.items()}
    texts["head"] = kelvin("fleet", "report", runs, "--format", "openmetrics")
    with Exporter(texts) as exporter, Prometheus(kelvin.work / "prometheus", PROMETHEUS / "kelvin-rules.yml", exporter.targets()) as prometheus:
        expected = {("KelvinRegression", WATCHED_HOST, "firing"), ("KelvinFleetOutlier", SLOW_HOST, "firing"), ("KelvinStoppedMeasuring", LATE_HOST, "pending")}
        alerts = prometheus.wait_for_alerts(expected)
        unexpected = {("KelvinRegression", "n1"), ("KelvinFleetOutlier", "n6"), ("KelvinStoppedMeasuring", WATCHED_HOST)}
        assert not unexpected & {alert[:2] for alert in alerts}, alerts
        # Every measured figure has the common name, whatever the name and unit of its metric.
        prometheus.wait_for_counts("count by (instance) (kelvin:figure)", measured)
        prometheus.wait_for_counts("count by (instance) (kelvin:figure:over_hosts_median)", measured)
        print(f"dashboards: alerts of Prometheus: {', '.join(sorted(' '.join(alert) for alert in expected))}")
        check_prometheus_board(prometheus)


def check_postgresql(kelvin, runs):
    if not Postgres.programs():
        return skip("package postgresql", "PostgreSQL", "it is not installed")
    listed, targets = panels_of("kelvin-postgresql.json")
    with Postgres() as server:
        for file in sorted(runs.iterdir()):
            kelvin("runs", "import", file, "--store", server.url())
        server.query("CREATE ROLE grafana LOGIN; GRANT USAGE ON SCHEMA kelvin TO grafana; GRANT SELECT ON kelvin.dashboard_run, kelvin.dashboard_figure TO grafana")

        def rows_of(sql):
            return server.query(sql, user="grafana")

        variables = choose_variables(listed, rows_of, CHOSEN)
        assert variables["host"] == sorted(HOSTS), variables
        for title, target in targets:
            sql = substitute(target["rawSql"], variables)
            rows = rows_of(sql)
            assert any(row.strip("|") for row in rows), f"{title}: no data: {sql}"
            if title == "Worst against their peers":
                assert rows[0].startswith(f"{SLOW_HOST}|"), rows[:3]
        print(f"dashboards: {len(targets)} queries of PostgreSQL have data")


def main():
    kelvin_program, directory = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    shutil.rmtree(directory, ignore_errors=True)
    runs = directory / "runs"
    runs.mkdir(parents=True)
    subprocess.run([ROOT / "scripts/make-dashboards", "--check"], check=True)
    check_schema()
    kelvin = Kelvin(kelvin_program, directory)
    check_drop_in(kelvin)
    write_fleet(kelvin, runs)
    check_prometheus(kelvin, runs)
    check_postgresql(kelvin, runs)


if __name__ == "__main__":
    main()
