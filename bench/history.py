#!/usr/bin/env python3
"""How fast `kelvin history` is with very many runs, how many steps it finds, and how many false changes it reports.

It fills a store with 10,000 runs of 500 series each (--runs, --series). Some series step for the worse; the others do not change. It
times the command from the store to its output, and counts the reported changes. Bounds: it takes less than two seconds, over the newest
1000 runs, which are the default, and over all runs. 90 % of the steps are found. At most 10 % of the reported changes are false. Then it
adds 60 runs one by one, and runs --alert after each, as cron would. It counts the runs from a step to its alert, and the false alerts.
"""
import json
import random
import sqlite3
import statistics
import subprocess
import tempfile
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

import common

# The share of series that step, the factor of a step, and the relative deviation from run to run.
STEPPED_SHARE = 0.04
STEP_FACTOR = 1.05
DEVIATION = 0.01
MAX_SECONDS = 2.0
MIN_FOUND_SHARE = 0.9
MAX_FALSE_SHARE = 0.1
TIME_REPEATS = 5
# A metric of every kelvin version, with an axis that takes any number of values.
METRIC, AXIS = "mem.latency", "bytes"


def parse():
    parser = common.make_parser(__doc__)
    parser.add_argument("--runs", type=int, default=10_000, help="runs in the store [default: %(default)s]")
    parser.add_argument("--series", type=int, default=500, help="series of each run [default: %(default)s]")
    return parser.parse_args()


def measure(arguments):
    kelvin, random_source = common.kelvin_program(arguments.kelvin), random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as directory:
        return {**measure_full_store(kelvin, Path(directory), arguments, random_source), "alerts": measure_alerts(kelvin, Path(directory), random_source)}


def measure_full_store(kelvin, directory, arguments, random_source):
    """The steps found in a store of many runs, and the time of the command."""
    store = directory / "runs.sqlite"
    create_template(kelvin, store)
    stepped_series = set(random_source.sample(range(arguments.series), round(STEPPED_SHARE * arguments.series)))
    # The step is within the runs that are shown by default.
    step_run = arguments.runs - min(arguments.runs, 1000) // 3
    common.log(f"filling {arguments.runs} runs of {arguments.series} series")
    fill_store(store, arguments.runs, arguments.series, lambda series, run: STEP_FACTOR if series in stepped_series and run >= step_run else 1.0, random_source)
    views = []
    for name, limit_flags in [("newest 1000", []), ("all", ["--limit", str(max(arguments.runs, 1))])]:
        times = measure_times(kelvin, store, limit_flags)
        found_count, false_count = count_changes(kelvin, store, limit_flags, stepped_series)
        views.append({"what": name, "seconds": times, "found": found_count, "wrong": false_count})
    return {"runs": arguments.runs, "series": arguments.series, "stepped": len(stepped_series), "bytes": store.stat().st_size, "looks": views}


def measure_alerts(kelvin, directory, random_source):
    """Adds runs one by one and checks for alerts after each, as cron would."""
    run_count, step_run, series = 60, 40, 100
    stepped_series = {7, 70}
    values = [[draw_value(random_source) * (STEP_FACTOR if index in stepped_series and run >= step_run else 1.0) for index in range(series)] for run in range(run_count)]
    alert_delays, false_count = {}, 0
    store = directory / "alerts.sqlite"
    create_template(kelvin, store)
    for run in range(run_count):
        append_run(store, run, values[run])
        process = subprocess.run(history_command(kelvin, store, ["--alert", "--json"]), capture_output=True, text=True, timeout=60)
        if process.returncode not in (0, 1):
            raise RuntimeError(process.stderr)
        for alert in json.loads(process.stdout or "[]"):
            number = series_number(alert)
            if number in stepped_series and run >= step_run:
                alert_delays.setdefault(number, run - step_run + 1)
            else:
                false_count += 1
    return {"runs": run_count, "series": series, "steps": len(stepped_series), "told_after": [alert_delays[number] for number in sorted(alert_delays)], "wrong": false_count}


def tables(measured):
    rows, are_bounds_met, step_count = [], True, measured["stepped"]
    for view in measured["looks"]:
        seconds, found_count, false_count = statistics.median(view["seconds"]), view["found"], view["wrong"]
        are_bounds_met &= seconds < MAX_SECONDS and found_count >= MIN_FOUND_SHARE * step_count and false_count / max(found_count + false_count, 1) <= MAX_FALSE_SHARE
        rows.append([view["what"], f"{seconds:.2f} s", f"{found_count} of {step_count}", false_count])
    alert = measured["alerts"]
    delays = ", ".join(map(str, alert["told_after"])) or "never"
    text = f"A store of {measured['runs']} runs of {measured['series']} series, {measured['bytes'] / 1e6:.0f} MB.\n\n"
    text += common.table(["runs", "time", "steps found", "false changes"], rows)
    text += f"\n\n`--alert` after each of {alert['runs']} runs of {alert['series']} series: {len(alert['told_after'])} of {alert['steps']} steps told, "
    text += f"by run number {delays} after them; {alert['wrong']} false alerts."
    return text, are_bounds_met and len(alert["told_after"]) == alert["steps"] and alert["wrong"] <= 2


def history_command(kelvin, store, flags):
    return [str(kelvin), "history", "--all", "--store", str(store), *flags]


def measure_times(kelvin, store, flags):
    """The times of the command, in seconds."""
    times = []
    for _ in range(TIME_REPEATS):
        start_time = time.monotonic()
        common.run(history_command(kelvin, store, flags))
        times.append(time.monotonic() - start_time)
    return times


def count_changes(kelvin, store, flags, stepped_series):
    """The number of steps found, and of false changes reported."""
    history = json.loads(common.run(history_command(kelvin, store, [*flags, "--json"])))
    changes = {series_number(series): len(series["versions"][-1]["changes"]) for series in history["series"]}
    found_count = sum(1 for series in stepped_series if changes.get(series, 0) > 0)
    false_count = sum(max(count - (series in stepped_series), 0) for series, count in changes.items())
    return found_count, false_count


def series_number(series):
    return series["case"][AXIS]


# ---- a store in the format of kelvin, filled without measuring


def create_template(kelvin, store):
    """Makes one short run, whose machine and definitions all other runs share."""
    common.run([kelvin, "run", METRIC, "--quick", "--budget", "minimum", "--rounds", "4", "--store", store])
    with sqlite3.connect(store) as connection:
        connection.execute("DELETE FROM headline")
        connection.execute("DELETE FROM series")
        connection.execute("DELETE FROM round")
    connection.close()


def draw_value(random_source):
    return 100.0 * (1.0 + DEVIATION * random_source.gauss(0, 1))


def axes_json(series):
    return json.dumps({AXIS: series}, separators=(",", ":"))


def append_run(store, run, values):
    with sqlite3.connect(store) as connection:
        insert_run(connection, run)
        for series, value in enumerate(values):
            connection.execute("INSERT OR IGNORE INTO series (metric, version, axes) VALUES (?, 1, ?)", (METRIC, axes_json(series)))
            connection.execute(
                "INSERT INTO headline SELECT key, (SELECT key FROM run WHERE id = ?), ?, 0 FROM series WHERE axes = ?",
                (f"bench-{run}", value, axes_json(series)),
            )
    connection.close()


def fill_store(store, runs, series, factor, random_source):
    with sqlite3.connect(store) as connection:
        connection.executemany(
            "INSERT INTO series (metric, version, axes) VALUES (?, 1, ?)", ((METRIC, axes_json(index)) for index in range(series))
        )
        keys = {index: key for key, index in connection.execute("SELECT key, json_extract(axes, '$." + AXIS + "') FROM series")}
        for run in range(runs):
            insert_run(connection, run)
        first = connection.execute("SELECT min(key) FROM run WHERE id LIKE 'bench-%'").fetchone()[0]
        for index in range(series):
            rows = ((keys[index], first + run, draw_value(random_source) * factor(index, run), 0.0) for run in range(runs))
            connection.executemany("INSERT INTO headline VALUES (?, ?, ?, ?)", rows)
    connection.close()


def insert_run(connection, run):
    """Inserts a copy of the row of the template, with a later start time."""
    start_time = datetime.now(timezone.utc).replace(microsecond=0) + timedelta(minutes=run + 1)
    connection.execute(
        "INSERT INTO run (id, format, started, started_us, machine, cpu_model, mode, kelvin, header, status, partial_reason, seconds, notes)"
        " SELECT ?, format, ?, ?, machine, cpu_model, mode, kelvin, header, status, partial_reason, seconds, notes FROM run LIMIT 1",
        (f"bench-{run}", start_time.strftime("%Y-%m-%dT%H:%M:%SZ"), int(start_time.timestamp() * 1e6)),
    )


if __name__ == "__main__":
    common.main(parse, measure, tables)
