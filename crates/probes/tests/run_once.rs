//! Every probe runs once for real, and those of the processor, of system calls and timers at more cases than one. `tests/guest`
//! does the same on a processor without any of the instructions that came in the last twenty years.

mod common;
mod composed;

use common::{TestDirectories, measure};
use kelvin_core::{Case, Fact, MetricReadings, Readings, RoundOutcome, SampleTags};
use kelvin_harness::{Effort, ProbeKind};

/// Milliseconds for the timed part of a probe.
const SLICE: u64 = 10;

/// Runs a probe once, which must read these metrics and no others.
fn read_metrics(probe: &str, case: &Case, expected_ids: &[&str]) -> Vec<MetricReadings> {
    let readings = measure(probe, case, SLICE);
    let ids: Vec<&str> = readings.iter().map(|reading| reading.metric.as_str()).collect();
    assert_eq!(ids, expected_ids, "{probe} {case}");
    readings
}

/// Measured only where a user names a peer or a remote directory: `peer.rs` and `file_engines.rs` have both. And a server under
/// load, whose visits are no rounds of their own: the binary's tests study one.
const REMOTE_PREFIXES: [&str; 3] = ["net.peer.", "file.remote", "load."];

/// Bytes that may be touched here: a guest has little.
fn available_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

#[test]
fn every_probe_runs_its_first_case() {
    let mut machine = composed::machine();
    machine.topology.allowed = Fact::known(kelvin_sys::cpu::affinity().unwrap(), "this process");
    machine.topology.online = machine.topology.allowed.clone();
    machine.memory.available_bytes = Fact::known(available_memory(), "/proc/meminfo");
    // A guest does not have the build directory.
    let scratch = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).or_else(|_| tempfile::tempdir()).unwrap();
    let directories = TestDirectories::with_scratch(scratch.path());
    let is_here = |id: &str| !REMOTE_PREFIXES.iter().any(|name| id.starts_with(name));
    let probes =
        kelvin_probes::all().into_iter().filter(|probe| matches!(probe.kind, ProbeKind::Measure | ProbeKind::Study));
    for probe in probes.filter(|probe| is_here(probe.id)) {
        // What takes a longer run has no quick case.
        let mut cases = [Effort::Quick, Effort::Default].into_iter().flat_map(|effort| (probe.cases)(&machine, effort));
        let case = cases.next().unwrap_or_else(|| panic!("{} has no case", probe.id));
        common::measure_if_possible_at(&directories, probe.id, &case, SLICE);
    }
}

#[test]
fn clock_probes_have_readings() {
    let pair = read_metrics("cpu.clock.pair", &Case::new(), &["cpu.clock.pair", "cpu.clock.pair.shown"]);
    assert!(pair[0].notes[0].starts_with("pair: "), "{:?}", pair[0].notes);
    for clock in ["monotonic", "monotonic_raw", "monotonic_coarse", "thread_cpu"] {
        let case = Case::new().with_word(kelvin_core::AxisWord::from_names("clock", clock));
        let readings = read_metrics("cpu.clock.gettime", &case, &["cpu.clock.gettime"]);
        let is_system_call = readings[0].notes[0].starts_with("system call");
        // Only the kernel knows CPU time.
        assert!(is_system_call || clock != "thread_cpu", "{:?}", readings[0].notes);
    }
}

#[test]
fn unknown_case_fails_with_reason() {
    let attempt = common::run_probe(
        "cpu.clock.gettime",
        &Case::new().with_word(kelvin_core::AxisWord::from_names("clock", "sundial")),
        SLICE,
    );
    assert_eq!(attempt, RoundOutcome::Failed("the case clock=sundial names no clock".into()));
}

#[test]
fn frequency_counts_whole_multiply_chains() {
    for load in ["one", "all"] {
        let case = Case::new().with_word(kelvin_core::AxisWord::from_names("load", load));
        let Some(readings) = common::measure_if_possible("cpu.frequency", &case, SLICE) else { continue };
        let Readings::Batches(batches) = &readings[0].readings else { panic!("{readings:?}") };
        let cycles = batches.work_per_iteration;
        assert!(cycles >= 64.0 && cycles % 64.0 == 0.0, "{cycles}");
    }
}

#[test]
fn calls_are_made_in_every_variant() {
    for via in ["direct", "indirect", "plt"] {
        for arguments in [0, 7] {
            let case = Case::new()
                .with_number("arguments", arguments)
                .with_word(kelvin_core::AxisWord::from_names("via", via));
            read_metrics("cpu.call.args", &case, &["cpu.call.args"]);
        }
    }
}

#[test]
fn syscalls_enter_the_kernel() {
    for call in ["getppid", "gettid", "libc_getppid", "libc_getpid"] {
        read_metrics(
            "os.syscall.null",
            &Case::new().with_word(kelvin_core::AxisWord::from_names("call", call)),
            &["os.syscall.null"],
        );
    }
    for descriptors in [10, 100] {
        read_metrics("os.syscall.select", &Case::new().with_number("descriptors", descriptors), &["os.syscall.select"]);
    }
}

#[test]
fn sleeps_end_late_and_never_early() {
    for slack in [50_000, 1] {
        let readings = read_metrics("os.timer.wakeup", &Case::new().with_number("slack", slack), &["os.timer.wakeup"]);
        let Readings::Batches(batches) = &readings[0].readings else { panic!("{readings:?}") };
        // Time past the deadline: one clock sets the deadline and reads the time.
        assert!(batches.nanoseconds.iter().all(|&lateness| lateness >= 0.0), "{:?}", batches.nanoseconds);
        assert!(batches.iterations.iter().all(|&count| count == 1), "sleeps are timed one by one");
        assert!(batches.tags.iter().any(|tags| !tags.intersects(SampleTags::WARM_UP)));
    }
}
