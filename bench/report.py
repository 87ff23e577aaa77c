#!/usr/bin/env python3
"""Writes the results in bench/results/README.md from the files beside it.

It writes the text between `<!-- results: NAME -->` and `<!-- end -->`: one section for each kept measurement of that benchmark, the newest
first. The benchmark makes the tables of the section again. Every benchmark has one such place, and each kept file belongs to one benchmark.

A kept measurement on which the present benchmark gives another verdict was made by an older method. It must be removed.

Exit status: 0 the page is written, or with --check is up to date; 1 it is not up to date; 2 it could not be done.
"""
import argparse
import importlib
import re
import sys
import tempfile
from pathlib import Path

import common

PAGE = common.RESULTS / "README.md"
RESULTS_SECTION = re.compile(r"(<!-- results: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
MAIN_CALL = re.compile(r"^ +common\.main\(", re.MULTILINE)
RESULT_FILE_NAME = re.compile(r"(\w+)-(\d{4}-\d{2}-\d{2})-(\w[\w.-]*)\.json\.xz")


def benchmark_names():
    """The names of the scripts that measure."""
    return {script.stem for script in common.ROOT.glob("bench/*.py") if MAIN_CALL.search(script.read_text())}


def kept_files():
    """The kept files of each benchmark, the newest first."""
    files = {}
    for path in sorted(common.RESULTS.glob("*"), key=lambda path: path.name, reverse=True):
        if path.suffix == ".md":
            continue
        match = RESULT_FILE_NAME.fullmatch(path.name)
        if not match:
            raise common.BenchmarkError(f"{path} is no NAME-DATE-KIND.json.xz")
        files.setdefault(match[1], []).append(path)
    return files


def render_section(path):
    """The section of one kept measurement."""
    record = common.read_record(path)
    try:
        text, are_bounds_met = importlib.import_module(record["benchmark"]).tables(record["measured"])
    except Exception as error:
        raise common.BenchmarkError(f"{path} is of a former {record['benchmark']}.py ({error!r}): measure again, or remove it") from error
    if are_bounds_met != record["kept"]:
        raise common.BenchmarkError(f"{path} is judged otherwise by the present {record['benchmark']}.py, or is not complete: measure again, or remove it")
    verdict = "Every bound was kept." if are_bounds_met else "At least one bound was not kept, or is not settled."
    return f"### {common.provenance(record)}\n\n{common.command_note(record)} {verdict}\n\n{text}\n"


def render_page(text, files):
    """The page with new result sections."""
    section_names = [name for _, name, _ in RESULTS_SECTION.findall(text)]
    for problem, names in (("no place", benchmark_names() - set(section_names)), ("no benchmark", set(section_names) - benchmark_names()), ("no place for results", files.keys() - set(section_names))):
        if names:
            raise common.BenchmarkError(f"{PAGE.name}: {problem}: {', '.join(sorted(names))}")

    def fill_section(match):
        opening, name, closing = match.groups()
        sections = "\n".join(render_section(path) for path in files.get(name, []))
        return f"{opening}\n{sections or f'No result is kept: `python3 bench/{name}.py --keep` makes one.' + chr(10)}\n{closing}"

    return RESULTS_SECTION.sub(fill_section, text)


def check_arithmetic():
    """Raises an error if this script does not work as documented."""
    empty = "".join(f"<!-- results: {name} -->\n<!-- end -->\n" for name in sorted(benchmark_names()))
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
        assert all(is_rejected(wrong, files) for wrong in ("", empty + "<!-- results: nobody -->\n<!-- end -->\n")) and is_rejected(empty, {"nobody": []})
        for older in ({"kept": False}, {"kept": None}, {"measured": {"one CPU": "kept"}}):
            common.write_record(path, {**record, **older})
            assert is_rejected(empty, files), older


def is_rejected(page, files):
    try:
        render_page(page, files)
    except common.BenchmarkError:
        return True
    return False


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; check that the page has the kept results")
    arguments = parser.parse_args()
    before = PAGE.read_text()
    try:
        after = render_page(before, kept_files())
    except common.BenchmarkError as error:
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
