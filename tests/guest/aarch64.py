#!/usr/bin/env python3
"""Tests of kelvin for aarch64: those of crates that compute by qemu-user, and in a guest those of system calls and hardware counters.

usage: aarch64.py TARGET DIRECTORY

TARGET is cargo's name of the target. DIRECTORY keeps the kernel between runs. The processor of the guest counts cycles and instructions,
and its clock advances by a nanosecond with each instruction. So counts and times of known loops are known.
"""
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import guest
from architecture import AARCH64

ROOT = Path(__file__).parents[2]
NO_TCP_INFO = "qemu-user has no TCP_INFO"
# The packages whose tests run by qemu-user, each with the tests that cannot, and why.
EMULATED = {
    "kelvin-core": {},
    "kelvin-stats": {},
    "kelvin-machine": {},
    "kelvin-analysis": {},
    "kelvin-probes": {
        "causes::zero_copy::tests::loopback_copies_every_call": "qemu-user has no SO_ZEROCOPY",
        "memory::axes::tests::obtained_pages_are_distinguished_from_requested": "the smaps of qemu-user has no sizes",
        "net::bulk::tests::bytes_arrive_by_all_protocols_and_methods": NO_TCP_INFO,
        "net::link::tests::link_description_names_kernel_state": NO_TCP_INFO,
        "net::rivals::tests::kelvin_side_transfers_bytes": NO_TCP_INFO,
        "transfer::endpoints::tests::accepted_connection_is_not_paced": "qemu-user cannot read TCP_CONGESTION",
    },
}
# The package whose tests need a kernel. Some count events, which qemu-user cannot.
IN_GUEST = "kelvin-sys"
# Any test of the program, for which cargo builds the program too, with the same features.
PROGRAM_TEST = "paths"
# A loop of two instructions, subs and b.ne, of which kelvin counts those of an operation. Interrupts are counted too.
LOOP, LOOP_INSTRUCTIONS, TOLERANCE = "cpu.loop", 2, 0.05
SECONDS = 1500
MEMORY = "2G"
PART_LINE = "guest: part"
PASSED_LINE = "test result: ok."

def build(target):
    """Builds the tests and the program. Returns their paths by package, and that of the program."""
    command = ["cargo", "test", "--quiet", "--locked", "--target", target, "--no-run", "--message-format=json-render-diagnostics"]
    # Without what a measurement does not need, which takes longer to build than the rest.
    command += ["--no-default-features", "--lib", "--test", PROGRAM_TEST]
    command += [word for package in ("kelvin", IN_GUEST, *EMULATED) for word in ("--package", package)]
    linker = f"CARGO_TARGET_{target.upper().replace('-', '_')}_LINKER"
    output = subprocess.run(command, cwd=ROOT, env={**os.environ, linker: "aarch64-linux-gnu-gcc"}, stdout=subprocess.PIPE, check=True).stdout
    messages = [message for message in map(json.loads, output.splitlines()) if message.get("executable")]
    programs = {message["target"]["name"].replace("_", "-"): Path(message["executable"]) for message in messages}
    return {package: programs[package] for package in (IN_GUEST, *EMULATED)}, programs["kelvin"]


def skip(test, reason, needs="machine"):
    """Reports a skipped test, as other tests do."""
    subprocess.run([ROOT / "scripts/skip", needs, test, reason], check=True)


def test_by_emulator(test_programs):
    """Runs the tests of crates that need little of the kernel."""
    emulator = guest.require_program(AARCH64.emulator[0], AARCH64.emulator_package)
    for package, skipped in EMULATED.items():
        for test, reason in skipped.items():
            skip(f"{package}: {test} on aarch64", reason)
        command = [emulator, "-L", AARCH64.library_root, test_programs[package], "--exact"]
        command += [word for test in skipped for word in ("--skip", test)]
        # Some tests fork. A child of qemu-user waits for ever for a lock of the emulator that another thread held at that moment.
        command += ["--test-threads", "1"]
        print(f"aarch64: {package}", flush=True)
        subprocess.run(command, cwd=ROOT / "crates" / package.removeprefix("kelvin-"), check=True, timeout=SECONDS)


def script(test_program):
    """The script of the guest: the tests, the facts of the machine, and a run. It stops at the first failure."""
    run = f"/bin/kelvin run {LOOP} --budget minimum --rounds 2 --no-store --json"
    commands = [f"/bin/{test_program.name}", "/bin/kelvin machine --json", run]
    return "".join(f"echo '{PART_LINE}'; {command} || exit\n" for command in commands)


def check_machine(machine):
    """Checks that kelvin shows the counters that the processor has."""
    counters = machine["machine"]["cpu"]["hardware_counters"]
    assert counters["known"]["value"]["events"] == ["cycles", "instructions"], counters


def check_counts(report):
    """Checks what was counted of an operation of the loop."""
    summary = next(result["outcome"]["measured"] for result in report["analysis"]["results"] if result["metric"]["id"] == LOOP)
    counts = {rate["event"]: rate["per_operation"] for rate in summary["counters"]}
    assert set(counts) == {"cycles", "instructions"}, counts
    assert abs(counts["instructions"] / LOOP_INSTRUCTIONS - 1) <= TOLERANCE, counts


def check_in_guest(directory, test_program, kelvin):
    """Runs the tests that need a kernel, and kelvin, and checks which events it finds."""
    machine = guest.Guest(directory, architecture=AARCH64)
    # Symbols are half of a program, and unpacking them in the guest takes longer than its tests.
    programs = [machine.work / program.name for program in (test_program, kelvin)]
    for program, stripped in zip((test_program, kelvin), programs):
        guest.run("aarch64-linux-gnu-strip", "-o", stripped, program)
    contents = guest.GuestContents(programs, options=["-m", MEMORY])
    output, status = machine.boot(contents, script(test_program), SECONDS)
    assert status == 0, output
    _, tests, machine_facts, report = output.split(f"{PART_LINE}\n")
    print(tests)
    assert PASSED_LINE in tests, tests
    check_machine(json.loads(machine_facts))
    check_counts(json.loads(report[report.index("{") :]))
    print("aarch64: kelvin shows the events that the processor counts, and the instructions of a known loop")


def main():
    target, directory = sys.argv[1:]
    test_programs, kelvin = build(target)
    for name, test in {
        "the tests of crates": lambda: test_by_emulator(test_programs),
        "the system calls and hardware counters": lambda: check_in_guest(directory, test_programs[IN_GUEST], kelvin),
    }.items():
        try:
            test()
        except guest.MissingRequirement as missing:
            skip(f"{name} on aarch64", str(missing), missing.needs)


if __name__ == "__main__":
    main()
