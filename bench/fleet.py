#!/usr/bin/env python3
"""The cost of `kelvin fleet report`: a made fleet in a PostgreSQL server of its own, read, compared and written.

  report   wall time of `kelvin fleet report --format json --html`, with the program's start and the database's work
  cpu      processor time of kelvin and of the database in that time: what other load does not change
  memory   peak resident memory of the kelvin process (ru_maxrss)
  page     size of the page with the heat map

One host has a memory latency 8 % longer than its peers, and must be the only one that is named. Headers are padded with a plan, so that each
has the size of a default run's header. The runs have headlines alone, as `kelvin run --keep headlines` stores them: samples are in other tables,
which the report does not read.

Bounds: 10 s, 1 GiB, 3 MiB.  Exit status: 0 every bound was kept, 1 at least one was not, 2 it could not be done.
"""
import copy
import json
import os
import random
import shutil
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import common

MIB = 1 << 20
# Seconds, bytes, bytes.
BOUNDS = {"report": 10.0, "memory": 1024 * MIB, "page": 3 * MIB}
# A run that is kept for ever: its machine and one of its metrics are those of the made hosts.
STORED_RUN = common.ROOT / "crates/store/tests/format-1.json"
USER = "kelvin"
NOBODY = 65534
AREAS = ("cpu", "os", "mem", "file", "net")
CASES_OF_METRIC = 10
ODD_HOST = 17
ODD_METRIC = "mem.made.0"
ODD_FACTOR = 1.08
# The spread of repeats of a run, as a share: between figures it differs as in real runs, most have less than 2 %.
SPREADS = (0.002, 0.005, 0.01, 0.02)


def postgres_programs():
    """The directory of the newest PostgreSQL's programs, which Debian keeps out of PATH."""
    directories = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name), reverse=True)
    for directory in directories:
        if (directory / "initdb").is_file():
            return directory
    return Path(common.require_program("initdb", "postgresql")).parent


@contextmanager
def postgres_server():
    """Starts a server in a directory of its own. Yields a function that runs SQL, the URL of a database, and a function that returns the
    processor time of the server's ended processes. The server ends with it."""
    programs = postgres_programs()
    directory = Path(tempfile.mkdtemp(prefix="kelvin-fleet-"))
    prefix = []
    if os.geteuid() == 0:
        # PostgreSQL refuses root.
        os.chown(directory, NOBODY, NOBODY)
        prefix = [common.require_program("setpriv", "util-linux"), f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    options = f"-k {directory} -c listen_addresses= -c fsync=off -c full_page_writes=off -c wal_level=minimal -c max_wal_senders=0 -c max_wal_size=8GB"

    def program(name, *words):
        return common.run([*prefix, programs / name, *words], cwd=directory)

    try:
        program("initdb", "-D", directory / "data", "-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync")
        subprocess.run([*prefix, programs / "pg_ctl", "-D", directory / "data", "-w", "-l", directory / "log", "-o", options, "start"],
                       check=True, cwd=directory, stdout=subprocess.DEVNULL)  # fmt: skip
        try:
            program("createdb", "-h", directory, "-U", USER, "runs")

            def sql(statement):
                psql = [programs / "psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-h", directory, "-U", USER, "-d", "runs"]
                completed = subprocess.run([str(word) for word in psql], input=statement, text=True, capture_output=True, check=False)
                if completed.returncode != 0:
                    raise common.BenchmarkError(f"PostgreSQL: {completed.stderr.strip()}")
                return completed.stdout.strip()

            server = int((directory / "data/postmaster.pid").read_text().split()[0])
            yield sql, f"postgres://{USER}@/runs?host={directory}", lambda: children_seconds(server)
        finally:
            program("pg_ctl", "-D", directory / "data", "-w", "-m", "immediate", "stop")
    except subprocess.CalledProcessError as error:
        raise common.BenchmarkError(f"PostgreSQL does not start here: {(directory / 'log').read_text()[-300:]}") from error
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def children_seconds(process):
    """User and system time of the children of a process that ended, in seconds."""
    # Behind the name, which may have blanks: fields 16 and 17 of proc(5) are cutime and cstime.
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


def zstd_frame(content):
    """Content as a frame of zstd with blocks that are not compressed (RFC 8878, section 3.1.1)."""
    max_block = 128 << 10
    frame = b"\x28\xb5\x2f\xfd\xa0" + len(content).to_bytes(4, "little")
    blocks = [content[start : start + max_block] for start in range(0, len(content), max_block)]
    for number, block in enumerate(blocks):
        is_last = int(number == len(blocks) - 1)
        frame += (is_last | len(block) << 3).to_bytes(3, "little") + block
    return frame


def made_metrics(figures, base):
    """The definitions of metrics that have this many figures in all, and the cases of each."""
    metrics = []
    for number in range(-(-figures // CASES_OF_METRIC)):
        area = AREAS[number % len(AREAS)]
        axis = {"name": "n", "label": "number", "scale": "category"}
        metrics.append({**base, "id": f"{area}.made.{number // len(AREAS)}", "axes": [axis, None, None]})
    cases = [(metric, case) for metric in metrics for case in range(CASES_OF_METRIC)]
    return metrics, cases[:figures]


def header_of_host(run, host, metrics, cases):
    """The header of a host's runs: the stored run's, with a host id and a plan of all cases."""
    header = copy.deepcopy(run)
    for field in ("measurements", "predictions", "status", "seconds", "notes", "tags"):
        header.pop(field, None)
    header["metrics"] = metrics
    header["machine"]["identity"] = f"{host:032x}"
    header["machine"]["platform"]["host"] = {"known": {"value": f"{host:08x}{'0' * 24}", "source": "made"}}
    header["machine"]["topology"]["online"] = {"known": {"value": list(range(64)), "source": "made"}}
    header["plan"] = [
        {"probe": metric["id"], "metrics": [metric["id"]], "case": {"n": case}, "only_input": False} for metric, case in cases
    ]
    return header


def fill(sql, hosts, figures, runs):
    """Fills the store: its layout is there."""
    run = json.loads(STORED_RUN.read_text())
    metrics, cases = made_metrics(figures, run["metrics"][0])
    # Without a check of each headline's run and series, which are known.
    lines = ["SET search_path TO kelvin; SET session_replication_role TO replica;", "COPY run (id, format, started, started_us, machine, cpu_model, mode, kelvin, header, status, seconds, notes) FROM STDIN;"]
    for number in range(runs):
        for host in range(hosts):
            # Only the header of a host's newest run is read.
            packed = zstd_frame(json.dumps(header_of_host(run, host, metrics, cases)).encode()) if number == runs - 1 else b""
            started = f"2026-11-{number % 28 + 1:02}T{host % 24:02}:00:00Z"
            started_us = 1_790_000_000_000_000 + number * 86_400_000_000 + host * 1_000_000
            fields = [f"run-{host}-{number}", 1, started, started_us, f"{host:032x}", "made", "default", "0.1.0", "\\\\x" + packed.hex(), "complete", 1.0, "[]"]
            lines.append("\t".join(map(str, fields)))
    lines.append("\\.")
    lines.append("INSERT INTO tag SELECT key, 'node', 'n' || split_part(id, '-', 2) FROM run;")
    lines.append("INSERT INTO tag SELECT key, 'fleet', 'made' FROM run;")
    lines.append("COPY series (metric, version, axes) FROM STDIN;")
    lines += [f"{metric['id']}\t{metric['version']}\t" + json.dumps({"n": case}, separators=(",", ":")) for metric, case in cases]
    lines.append("\\.")
    spreads = ", ".join(map(str, SPREADS))
    lines.append(f"""
        SELECT setseed(0.5);
        INSERT INTO headline (series, run, value, within_variance)
        SELECT series.key, run.key,
               100 * exp((ARRAY[{spreads}])[1 + series.key % {len(SPREADS)}] * sqrt(-2 * ln(1 - random())) * cos(2 * pi() * random())), 0
        FROM run, series ORDER BY run.key, series.key;
        UPDATE headline SET value = value * {ODD_FACTOR} FROM run, series
        WHERE run.key = headline.run AND series.key = headline.series AND run.id LIKE 'run-{ODD_HOST}-%' AND metric = '{ODD_METRIC}';
        ANALYZE;""")
    sql("\n".join(lines))


def timed_report(kelvin, url, database_seconds, directory):
    """The measured quantities, and the labels of the hosts that are named."""
    report, page = Path(directory) / "fleet.json", Path(directory) / "fleet.html"
    command = [kelvin, "fleet", "report", "tag:fleet=made", "--store", url, "--json", "-o", report, "--html", page]
    start_time, database_start = time.monotonic(), database_seconds()
    process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, env={**os.environ, "XDG_DATA_HOME": str(directory)})
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.monotonic() - start_time
    if status != 0:
        raise RuntimeError(f"kelvin fleet report ended with status {os.waitstatus_to_exitcode(status)}")
    groups = json.loads(report.read_text())["groups"]
    named = [outlier["label"] for group in groups for outlier in group["outliers"]]
    # The server reaps the process of the connection at once.
    time.sleep(1)
    cpu = usage.ru_utime + usage.ru_stime + database_seconds() - database_start
    return {"report": seconds, "cpu": cpu, "memory": usage.ru_maxrss << 10, "page": page.stat().st_size}, named


def parse():
    parser = common.make_parser(__doc__)
    parser.add_argument("--hosts", type=int, default=1000, help="hosts [default: %(default)s]")
    parser.add_argument("--figures", type=int, default=570, help="figures of each run [default: %(default)s]")
    parser.add_argument("--runs", type=int, default=10, help="runs of each host [default: %(default)s]")
    parser.add_argument("--repeats", type=int, default=3, help="how often the report is made; the worst counts [default: %(default)s]")
    return parser.parse_args()


def measure(arguments):
    kelvin = common.kelvin_program(arguments.kelvin)
    values = {}
    names = []
    with postgres_server() as (sql, url, database_seconds), tempfile.TemporaryDirectory(prefix="kelvin-bench-") as directory:
        # Opening the store makes its layout.
        common.run([kelvin, "runs", "list", "--store", url], env={**os.environ, "XDG_DATA_HOME": directory})
        common.log(f"filling: {arguments.hosts} hosts, {arguments.figures} figures, {arguments.runs} runs of each")
        fill(sql, arguments.hosts, arguments.figures, arguments.runs)
        for _ in range(arguments.repeats):
            quantities, named = timed_report(kelvin, url, database_seconds, directory)
            common.log(", ".join(f"{quantity} {format_value(quantity, value)}" for quantity, value in quantities.items()) + f", named {named}")
            for quantity, value in quantities.items():
                values.setdefault(quantity, []).append(value)
            names.append(named)
    size = f"{arguments.hosts} hosts, {arguments.figures} figures, {arguments.runs} runs"
    return {"size": size, "values": values, "named": names}


def tables(measured):
    worst = {quantity: max(values) for quantity, values in measured["values"].items()}
    is_right = all(named == [f"n{ODD_HOST}"] for named in measured["named"])
    rows = []
    for quantity, value in worst.items():
        bound = BOUNDS.get(quantity)
        kept = "-" if bound is None else "yes" if value <= bound else "NO"
        rows.append([quantity, format_value(quantity, value), "-" if bound is None else format_value(quantity, bound), kept])
    rows.append(["hosts named", ", ".join(measured["named"][-1]) or "none", f"n{ODD_HOST}", "yes" if is_right else "NO"])
    return f"{measured['size']}\n\n" + common.table(["what", "the worst", "bound", "kept"], rows), all(row[-1] != "NO" for row in rows)


def format_value(quantity, value):
    return f"{value:.2f} s" if quantity in ("report", "cpu") else f"{value / MIB:.2f} MiB"


def check_arithmetic():
    """What `make bench-check` runs."""
    zstd = shutil.which("zstd")
    for size in (1, 200, (128 << 10) + 1):
        content = random.Random(size).randbytes(size)
        frame = zstd_frame(content)
        assert len(frame) == 9 + size + 3 * -(-size // (128 << 10))
        if zstd:
            assert subprocess.run([zstd, "-d"], input=frame, capture_output=True, check=True).stdout == content
    metrics, cases = made_metrics(25, {"version": 1})
    assert [metric["id"] for metric in metrics] == ["cpu.made.0", "os.made.0", "mem.made.0"] and len(cases) == 25
    text, is_kept = tables({"size": "made", "values": {"report": [1.0, 9.0], "cpu": [2.0], "memory": [MIB], "page": [4 * MIB]}, "named": [["n17"]]})
    assert not is_kept and "4.00 MiB" in text and "9.00 s" in text and "2.00 s" in text


if __name__ == "__main__":
    common.main(parse, measure, tables)
