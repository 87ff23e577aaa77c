"""A Prometheus with what it scrapes, and a PostgreSQL, for the time of a test: on free ports, with directories of their own."""
import http.server
import json
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

# Far longer than any of them needs on a loaded machine.
TIMEOUT_SECONDS = 120
NOBODY = 65534


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def wait_until(condition, subject):
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        if result := condition():
            return result
        time.sleep(0.2)
    raise AssertionError(f"{subject}: not within {TIMEOUT_SECONDS} s")


class Exporter:
    """Serves the text of each host, as node_exporter serves that of its collectors."""

    def __init__(self, texts):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                body = texts[self.path.strip("/")].encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.hosts = list(texts)
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever)

    def targets(self):
        """Part of the configuration of Prometheus: each host by its name."""
        address = f"127.0.0.1:{self.server.server_address[1]}"
        return [{"job_name": host, "metrics_path": f"/{host}", "static_configs": [{"targets": [address], "labels": {"instance": host, "job": "node"}}]} for host in self.hosts]

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


class Prometheus:
    """A server that scrapes and evaluates each second."""

    def __init__(self, directory, rules, targets):
        directory.mkdir()
        configuration = {"global": {"scrape_interval": "1s", "evaluation_interval": "1s"}, "rule_files": [str(rules)], "scrape_configs": targets}
        # JSON is YAML.
        (directory / "prometheus.yml").write_text(json.dumps(configuration))
        self.directory, self.address = directory, f"127.0.0.1:{free_port()}"

    def __enter__(self):
        command = ["prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data", f"--web.listen-address={self.address}"]
        with open(self.directory / "log", "w") as log:
            self.process = subprocess.Popen(command, cwd=self.directory, stdout=log, stderr=log)
        try:
            wait_until(self.is_ready, "Prometheus")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(TIMEOUT_SECONDS)

    def is_ready(self):
        assert self.process.poll() is None, (self.directory / "log").read_text()
        try:
            with urllib.request.urlopen(f"http://{self.address}/-/ready", timeout=10) as answer:
                return answer.status == 200
        except OSError:
            return False

    def get(self, path, parameters=None):
        """What its API answers."""
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters or {})}"
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{url}: {error.read().decode()}") from error

    def wait_for_counts(self, expression, expected):
        """Waits until an expression has these values by instance."""

        def is_met():
            result = self.get("query", {"query": expression})["result"]
            return {series["metric"]["instance"]: float(series["value"][1]) for series in result} == expected

        wait_until(is_met, f"{expression} = {expected}")

    def wait_for_alerts(self, expected):
        """Waits until these have their state, each by its name and the host that it is of; returns all."""

        def alerts():
            labelled = [(alert["labels"], alert["state"]) for alert in self.get("alerts")["alerts"]]
            found = {(labels["alertname"], labels.get("host", labels["instance"]), state) for labels, state in labelled}
            return expected <= found and found

        return wait_until(alerts, f"alerts {expected}")


class Postgres:
    """A server at a socket, as a user other than root, whom it refuses."""

    @staticmethod
    def programs():
        versions = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name))
        found = [path for path in versions if (path / "initdb").is_file()]
        initdb = shutil.which("initdb")
        return found[-1] if found else Path(initdb).parent if initdb else None

    def __init__(self):
        # The path of a socket is short, and the other user must reach it.
        self.directory, self.port, self.bin = Path(tempfile.mkdtemp()), free_port(), self.programs()
        self.user = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.getuid() == 0 else {}

    def __enter__(self):
        if self.user:
            os.chown(self.directory, NOBODY, NOBODY)
        self.run("initdb", "-D", "data", "-U", "kelvin", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync")
        command = [self.bin / "postgres", "-D", "data", "-k", self.directory, "-p", str(self.port), "-c", "listen_addresses=", "-c", "fsync=off"]
        with open(self.directory / "log", "w") as log:
            self.process = subprocess.Popen(command, cwd=self.directory, stdout=log, stderr=log, **self.user)
        try:
            wait_until(self.is_ready, "PostgreSQL")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(TIMEOUT_SECONDS)
        shutil.rmtree(self.directory)

    def run(self, program, *arguments):
        done = subprocess.run([self.bin / program, *arguments], cwd=self.directory, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, **self.user)
        assert done.returncode == 0, f"{program}: {done.stdout}{done.stderr}"
        return done.stdout

    def is_ready(self):
        assert self.process.poll() is None, (self.directory / "log").read_text()
        return subprocess.run([self.bin / "pg_isready", "-q", "-h", self.directory, "-p", str(self.port)], check=False).returncode == 0

    def url(self):
        return f"postgres://kelvin@/postgres?host={self.directory}&port={self.port}"

    def query(self, sql, user="kelvin"):
        """The rows of a statement."""
        options = ["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", "postgres", "-h", str(self.directory), "-p", str(self.port)]
        return self.run("psql", *options, "-U", user, "-c", sql).splitlines()
