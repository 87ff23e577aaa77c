#!/usr/bin/env python3
"""How fast `kelvin history` is over very many runs, what it finds in them, and how often it is wrong.

Fills a store with 10,000 runs of 500 series each (--runs, --series), in which some series step for the worse and none of the others
does anything, times the command from the store to its output, and counts. Bounds: over the newest 1000 runs, which are shown by
default, and over all of them it takes less than two seconds; of the steps nine in ten are found; of the changes that are told at most
one in ten is false. Then 60 runs are looked at one by one, as cron would, with --alert: how many runs after a step it is told, and
how often without one.
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

# Series of which so many in a hundred step, by this share of the value, where it spreads by one per cent from run to run.
STEPPED_SHARE = 0.04
STEP_FACTOR = 1.05
DEVIATION = 0.01
BOUND_SECONDS = 2.0
BOUND_FOUND = 0.9
BOUND_FALSE = 0.1
REPEATS = 5
# A metric that every kelvin knows, and whose axis takes any number of values.
METRIC, AXIS = "mem.latency", "bytes"


def parse():
    parser = common.make_parser(__doc__)
    parser.add_argument("--runs", type=int, default=10_000, help="runs in the store [default: %(default)s]")
    parser.add_argument("--series", type=int, default=500, help="series of each [default: %(default)s]")
    return parser.parse_args()


def measure(arguments):
    kelvin, draw = common.kelvin_program(arguments.kelvin), random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as directory:
        return {**measure_full_store(kelvin, Path(directory), arguments, draw), "alerts": measure_alerts(kelvin, Path(directory), draw)}


def measure_full_store(kelvin, directory, arguments, draw):
    """What is found in a store of many runs, and how fast."""
    store = directory / "runs.sqlite"
    create_template(kelvin, store)
    stepped = set(draw.sample(range(arguments.series), round(STEPPED_SHARE * arguments.series)))
    # Within the runs that are shown by default.
    step_at = arguments.runs - min(arguments.runs, 1000) // 3
    common.log(f"filling {arguments.runs} runs of {arguments.series} series")
    fill_store(store, arguments.runs, arguments.series, lambda series, run: STEP_FACTOR if series in stepped and run >= step_at else 1.0, draw)
    looks = []
    for what, limit in [("newest 1000", []), ("all", ["--limit", str(max(arguments.runs, 1))])]:
        times = measure_times(kelvin, store, limit)
        found, wrong = count_changes(kelvin, store, limit, stepped)
        looks.append({"what": what, "seconds": times, "found": found, "wrong": wrong})
    return {"runs": arguments.runs, "series": arguments.series, "stepped": len(stepped), "bytes": store.stat().st_size, "looks": looks}


def measure_alerts(kelvin, directory, draw):
    """Runs one by one, as cron would."""
    run_count, step_at, series = 60, 40, 100
    stepped = {7, 70}
    values = [[draw_value(draw) * (STEP_FACTOR if one in stepped and run >= step_at else 1.0) for one in range(series)] for run in range(run_count)]
    told, wrong = {}, 0
    store = directory / "alerts.sqlite"
    create_template(kelvin, store)
    for run in range(run_count):
        append_run(store, run, values[run])
        done = subprocess.run(history_command(kelvin, store, ["--alert", "--json"]), capture_output=True, text=True, timeout=60)
        if done.returncode not in (0, 1):
            raise RuntimeError(done.stderr)
        for one in json.loads(done.stdout or "[]"):
            which = series_number(one)
            if which in stepped and run >= step_at:
                told.setdefault(which, run - step_at + 1)
            else:
                wrong += 1
    return {"runs": run_count, "series": series, "steps": len(stepped), "told_after": [told[one] for one in sorted(told)], "wrong": wrong}


def tables(measured):
    rows, kept, stepped = [], True, measured["stepped"]
    for look in measured["looks"]:
        seconds, found, wrong = statistics.median(look["seconds"]), look["found"], look["wrong"]
        kept &= seconds < BOUND_SECONDS and found >= BOUND_FOUND * stepped and wrong / max(found + wrong, 1) <= BOUND_FALSE
        rows.append([look["what"], f"{seconds:.2f} s", f"{found} of {stepped}", wrong])
    alert = measured["alerts"]
    after = ", ".join(map(str, alert["told_after"])) or "never"
    text = f"A store of {measured['runs']} runs of {measured['series']} series, {measured['bytes'] / 1e6:.0f} MB.\n\n"
    text += common.table(["runs", "time", "steps found", "false changes"], rows)
    text += f"\n\n`--alert` after each of {alert['runs']} runs of {alert['series']} series: {len(alert['told_after'])} of {alert['steps']} steps told, "
    text += f"by run number {after} after them; {alert['wrong']} false alerts."
    return text, kept and len(alert["told_after"]) == alert["steps"] and alert["wrong"] <= 2


def history_command(kelvin, store, more):
    return [str(kelvin), "history", "--all", "--store", str(store), *more]


def measure_times(kelvin, store, more):
    """The times to one screen, in seconds."""
    times = []
    for _ in range(REPEATS):
        begun = time.monotonic()
        common.run(history_command(kelvin, store, more))
        times.append(time.monotonic() - begun)
    return times


def count_changes(kelvin, store, more, stepped):
    """How many steps were found, and how many other changes were told."""
    history = json.loads(common.run(history_command(kelvin, store, [*more, "--json"])))
    changes = {series_number(series): len(series["versions"][-1]["changes"]) for series in history["series"]}
    found = sum(1 for series in stepped if changes.get(series, 0) > 0)
    wrong = sum(max(count - (series in stepped), 0) for series, count in changes.items())
    return found, wrong


def series_number(series):
    return series["case"][AXIS]


# ---- a store as kelvin writes it, filled without measuring


def create_template(kelvin, store):
    """One short run, whose machine and definitions all others share."""
    common.run([kelvin, "run", METRIC, "--quick", "--budget", "minimum", "--rounds", "4", "--no-report", "--store", store])
    with sqlite3.connect(store) as base:
        base.execute("DELETE FROM headline")
        base.execute("DELETE FROM series")
        base.execute("DELETE FROM round")
    base.close()


def draw_value(draw):
    return 100.0 * (1.0 + DEVIATION * draw.gauss(0, 1))


def axes_json(series):
    return json.dumps({AXIS: series}, separators=(",", ":"))


def append_run(store, run, values):
    with sqlite3.connect(store) as base:
        insert_run(base, run)
        for series, one in enumerate(values):
            base.execute("INSERT OR IGNORE INTO series (metric, version, axes) VALUES (?, 1, ?)", (METRIC, axes_json(series)))
            base.execute(
                "INSERT INTO headline SELECT key, (SELECT key FROM run WHERE id = ?), ?, 0 FROM series WHERE axes = ?",
                (f"bench-{run}", one, axes_json(series)),
            )
    base.close()


def fill_store(store, runs, series, level, draw):
    with sqlite3.connect(store) as base:
        base.executemany(
            "INSERT INTO series (metric, version, axes) VALUES (?, 1, ?)", ((METRIC, axes_json(one)) for one in range(series))
        )
        keys = {one: key for key, one in base.execute("SELECT key, json_extract(axes, '$." + AXIS + "') FROM series")}
        for run in range(runs):
            insert_run(base, run)
        first = base.execute("SELECT min(key) FROM run WHERE id LIKE 'bench-%'").fetchone()[0]
        for one in range(series):
            rows = ((keys[one], first + run, draw_value(draw) * level(one, run), 0.0) for run in range(runs))
            base.executemany("INSERT INTO headline VALUES (?, ?, ?, ?)", rows)
    base.close()


def insert_run(base, run):
    """A copy of the template's row, later."""
    started = datetime.now(timezone.utc).replace(microsecond=0) + timedelta(minutes=run + 1)
    base.execute(
        "INSERT INTO run (id, format, started, started_us, machine, cpu_model, mode, kelvin, outline, status, partial_reason, seconds, notes)"
        " SELECT ?, format, ?, ?, machine, cpu_model, mode, kelvin, outline, status, partial_reason, seconds, notes FROM run LIMIT 1",
        (f"bench-{run}", started.strftime("%Y-%m-%dT%H:%M:%SZ"), int(started.timestamp() * 1e6)),
    )


if __name__ == "__main__":
    common.main(parse, measure, tables)
