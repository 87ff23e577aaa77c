#!/usr/bin/env python3
"""Writes the results in docs/src/benchmarks.md from what the benchmarks kept in bench/results.

What stands between `<!-- results: NAME -->` and `<!-- end -->` is made here: a section for each kept measurement of that benchmark, the
newest first, with its tables, which the benchmark makes again. Every benchmark has one such place, and each kept file belongs to one.

A kept measurement that the present benchmark judges otherwise than when it was kept is older than the method: it has to go.

Exit status: 0 the page is written, or with --check is as it would be written; 1 it is not; 2 it could not be done.
"""
import argparse
import importlib
import re
import sys
import tempfile
from pathlib import Path

import common

PAGE = common.ROOT / "docs" / "src" / "benchmarks.md"
PLACE = re.compile(r"(<!-- results: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
MEASURES = re.compile(r"^ +common\.main\(", re.MULTILINE)
FILE = re.compile(r"(\w+)-(\d{4}-\d{2}-\d{2})-(\w[\w.-]*)\.json\.xz")


def benchmarks():
    """The names of the scripts that measure."""
    return {script.stem for script in common.ROOT.glob("bench/*.py") if MEASURES.search(script.read_text())}


def kept_files():
    """By benchmark: its kept files, the newest first."""
    files = {}
    for path in sorted(common.RESULTS.glob("*"), key=lambda path: path.name, reverse=True):
        match = FILE.fullmatch(path.name)
        if not match:
            raise common.Missing(f"{path} is no NAME-DATE-KIND.json.xz")
        files.setdefault(match[1], []).append(path)
    return files


def section(path):
    """The section of one kept measurement."""
    record = common.read_record(path)
    try:
        text, kept = importlib.import_module(record["benchmark"]).tables(record["measured"])
    except Exception as error:
        raise common.Missing(f"{path} is of a former {record['benchmark']}.py ({error!r}): measure again, or remove it") from error
    if kept != record["kept"]:
        raise common.Missing(f"{path} is judged otherwise by the present {record['benchmark']}.py, or is not complete: measure again, or remove it")
    verdict = "Every bound was kept." if kept else "At least one bound was not kept, or is not settled."
    return f"### {common.provenance(record)}\n\n{common.command_note(record)} {verdict}\n\n{text}\n"


def render_page(text, files):
    """The page with its results made anew."""
    places = [name for _, name, _ in PLACE.findall(text)]
    for what, names in (("no place", benchmarks() - set(places)), ("no benchmark", set(places) - benchmarks()), ("no place for results", files.keys() - set(places))):
        if names:
            raise common.Missing(f"{PAGE.name}: {what}: {', '.join(sorted(names))}")

    def filled(place):
        opening, name, closing = place.groups()
        match = "\n".join(section(path) for path in files.get(name, []))
        return f"{opening}\n{match or f'No result is kept: `python3 bench/{name}.py --keep` makes one.' + chr(10)}\n{closing}"

    return PLACE.sub(filled, text)


def check_arithmetic():
    """Raises an error where this file does not do what it says."""
    empty = "".join(f"<!-- results: {name} -->\n<!-- end -->\n" for name in sorted(benchmarks()))
    record = {
        "benchmark": "faults", "kind": "default", "date": "2026-01-02", "kelvin": "kelvin 1", "commit": "c", "machine": "m", "load": 0.5,
        "arguments": ["--kills", "1"], "measured": {"one CPU": ["kept", "nothing"]}, "kept": True,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "faults-2026-01-02-default.json.xz")
        files = {"faults": [path]}
        common.write_record(path, record)
        page = render_page(empty, files)
        assert "### 2026-01-02, kelvin 1 (c), m\n\n`bench/faults.py --kills 1`" in page and "| one CPU | kept    | nothing |" in page, page
        assert render_page(page, files) == page
        assert "2026-01-02" not in render_page(page, {})
        assert all(is_refused(wrong, files) for wrong in ("", empty + "<!-- results: nobody -->\n<!-- end -->\n")) and is_refused(empty, {"nobody": []})
        for older in ({"kept": False}, {"kept": None}, {"measured": {"one CPU": "kept"}}):
            common.write_record(path, {**record, **older})
            assert is_refused(empty, files), older


def is_refused(page, files):
    try:
        render_page(page, files)
    except common.Missing:
        return True
    return False


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; whether the page is as it would be written")
    arguments = parser.parse_args()
    before = PAGE.read_text()
    try:
        after = render_page(before, kept_files())
    except common.Missing as error:
        common.log(f"report.py: {error}")
        return 2
    if arguments.check and after != before:
        common.log(f"{PAGE} is not what bench/results gives: run make bench-docs")
        return 1
    if not arguments.check:
        PAGE.write_text(after)
    return 0


if __name__ == "__main__":
    sys.exit(main())
