//! System calls that do a little work: read, write, stat, fstat, open and close, select, mmap and munmap.
//!
//! Each is the cost of one call with everything in memory. It must not be used for a first access, for a disk or
//! network file system, or per byte.

use std::fs::File;
use std::os::fd::AsFd;

use kelvin_catalogue::os::{
    DESCRIPTORS, SYSCALL_FSTAT, SYSCALL_MMAP_MUNMAP, SYSCALL_NULL, SYSCALL_OPEN_CLOSE, SYSCALL_READ, SYSCALL_SELECT,
    SYSCALL_STAT, SYSCALL_WRITE,
};
pub(crate) use kelvin_catalogue::os::{SYSCALL_OPEN_CLOSE as OPEN_CLOSE, SYSCALL_STAT as STAT, SYSCALL_WRITE as WRITE};
use kelvin_harness::{Bench, Effort, Facts, Method, Probe, ProbeKind, Stop};
use kelvin_model::{Basis, Case, Machine, Metric, NoPrediction, Prediction, Unit};
use kelvin_sys::calls::{self, Selected};

use super::syscall_null::getppid;
use crate::formula::{fact, measured};

/// Bytes mapped and unmapped.
const MAPPED: usize = 64 << 10;

const LIKE_A_READ: &str = "os.syscall.read of this run: as short a way, past the same checks of a descriptor.";

const NO_WORK_PUBLISHED: &str = "The kernel's work beyond the entry has no published cost for current kernels; \
                                 os.syscall.null per kernel entry is the floor.";
const SOURCES: &[&str] = &[
    "lmbench lat_syscall and lat_select",
    "McVoy, Staelin: lmbench: Portable Tools for Performance Analysis, USENIX 1996",
];
const CHECKED: &str =
    "A failing call is fast and would look like a record: every call is checked inside the timed loop.";

/// A method in which only these differ.
const fn method(how: &'static str, prediction: &'static str, not_for: &'static str) -> Method {
    Method { how, prediction, not_for, pitfalls: &[CHECKED], sources: SOURCES }
}

/// A probe without parameters.
const fn probe(
    summary: &'static str,
    method: Method,
    metrics: &'static [&'static Metric],
    run: fn(&mut Bench<'_>, &Case) -> Result<(), Stop>,
) -> Probe {
    let id = metrics[0].id.as_str();
    let inputs = const { &[SYSCALL_NULL.id.as_str()] };
    Probe { id, summary, kind: ProbeKind::Measure, method, metrics, inputs, cases, run, predict }
}

const SHORT_WAY: &str = "The measured os.syscall.null plus 25 ns: about 150 instructions of descriptor look-up, \
                         permission checks and dispatch to the driver, at two per cycle and 3 GHz. Predicted range: \
                         from the null call to three times it plus 25 ns.";

pub(crate) static READ_PROBE: Probe = probe(
    "A read of one byte from /dev/zero",
    method(
        "The bare read system call in a loop, one byte from /dev/zero each, which must be returned. The loop is \
         subtracted.",
        SHORT_WAY,
        "Reading a file, which involves the page cache; the cost per byte.",
    ),
    &[&SYSCALL_READ],
    |bench, _| {
        let zero = File::open("/dev/zero")?;
        bench.time(&SYSCALL_READ, |count| Ok(calls::reads(zero.as_fd(), count)?))
    },
);

pub(crate) static WRITE_PROBE: Probe = Probe {
    inputs: &[SYSCALL_READ.id.as_str()],
    ..probe(
        "A write of one byte to /dev/null",
        method(
            "The bare write system call in a loop, one byte to /dev/null each, which must be accepted. The driver does not \
             read the byte. The loop is subtracted.",
            LIKE_A_READ,
            "Writing a file, which involves the page cache: this driver discards the data; the cost per byte.",
        ),
        &[&SYSCALL_WRITE],
        |bench, _| {
            let null = File::options().write(true).open("/dev/null")?;
            bench.time(&SYSCALL_WRITE, |count| Ok(calls::writes(null.as_fd(), count)?))
        },
    )
};

pub(crate) static STAT_PROBE: Probe = probe(
    "stat of a file by its path",
    method(
        "The bare newfstatat system call, which is what stat(3) makes, for /dev/null: a path of two components, both in \
         the directory cache. The loop is subtracted.",
        NO_WORK_PUBLISHED,
        "Longer paths, files not in the directory cache, network file systems.",
    ),
    &[&SYSCALL_STAT],
    |bench, _| bench.time(&SYSCALL_STAT, |count| Ok(calls::stats(c"/dev/null", count)?)),
);

pub(crate) static FSTAT_PROBE: Probe = Probe {
    inputs: &[SYSCALL_READ.id.as_str()],
    ..probe(
        "fstat of an open file",
        method(
            "The bare fstat system call for an open /dev/null: there is no path look-up. The loop is subtracted.",
            LIKE_A_READ,
            "Network file systems, which may ask the server.",
        ),
        &[&SYSCALL_FSTAT],
        |bench, _| {
            let null = File::open("/dev/null")?;
            bench.time(&SYSCALL_FSTAT, |count| Ok(calls::descriptor_stats(null.as_fd(), count)?))
        },
    )
};

pub(crate) static OPEN_CLOSE_PROBE: Probe = probe(
    "Opening a file by its path and closing it",
    method(
        "The bare openat and close system calls for /dev/null, read-only; one figure for both. The process has one \
         thread and few descriptors. The loop is subtracted.",
        NO_WORK_PUBLISHED,
        "Creating a file; a multi-threaded process, which locks its descriptor table.",
    ),
    &[&SYSCALL_OPEN_CLOSE],
    |bench, _| bench.time(&SYSCALL_OPEN_CLOSE, |count| Ok(calls::opens_and_closes(c"/dev/null", count)?)),
);

pub(crate) static SELECT_PROBE: Probe = Probe {
    cases: select_cases,
    ..probe(
        "Polling descriptors with select",
        method(
            "The bare pselect6 system call with a zero time-out over duplicates of the read end of an empty pipe, so \
             that none is ready and each is polled; zero must be returned. The set of 128 bytes is copied before each \
             call, since the call clears it; the copy (a few ns) is in the figure. The loop is subtracted.",
            "Of 10 descriptors none: the kernel's work beyond the entry has no published cost. Of more: what os.syscall.null \
             takes, and for each descriptor a tenth of what 10 take beyond it.",
            "Waiting: nothing sleeps here. epoll, whose cost does not grow with the number of descriptors.",
        ),
        &[&SYSCALL_SELECT],
        select,
    )
};

pub(crate) static MMAP_MUNMAP_PROBE: Probe = probe(
    "mmap and munmap of untouched memory",
    method(
        "The bare mmap and munmap system calls: 64 KiB of anonymous private memory at an address chosen by the kernel, \
         untouched, so that no page is allocated or freed. The loop is subtracted.",
        NO_WORK_PUBLISHED,
        "Memory in use: its first touch costs a fault per page, and unmapping it a TLB flush.",
    ),
    &[&SYSCALL_MMAP_MUNMAP],
    |bench, _| bench.time(&SYSCALL_MMAP_MUNMAP, |count| Ok(calls::maps_and_unmaps(MAPPED, count)?)),
);

fn cases(_: &Machine, _: Effort) -> Vec<Case> {
    vec![Case::new()]
}

fn select_cases(_: &Machine, _: Effort) -> Vec<Case> {
    [FEWEST, 100].into_iter().map(|count| Case::new().with(DESCRIPTORS, count)).collect()
}

fn select(bench: &mut Bench<'_>, case: &Case) -> Result<(), Stop> {
    let count =
        DESCRIPTORS.of(case).ok_or_else(|| Stop::fail(format!("the case {case} has no number of descriptors")))?;
    let selected = Selected::new(count as usize)?;
    bench.time(&SYSCALL_SELECT, |looks| Ok(selected.looks(looks)?))
}

/// Instructions beyond the entry for a call straight to a driver: file look-up, permission and range checks, security
/// and notification hooks, the driver.
pub(crate) const SHORT_WAY_INSTRUCTIONS: f64 = 150.0;
/// Two per cycle at 3 GHz, typical of current servers.
pub(crate) const NANOSECONDS_AN_INSTRUCTION: f64 = 1.0 / (2.0 * 3.0);

fn predict(facts: &Facts<'_>, metric: &Metric, case: &Case) -> Result<Prediction, NoPrediction> {
    match metric {
        _ if *metric == SYSCALL_READ => {
            short_way(facts, "Linux fs/read_write.c, drivers/char/mem.c, for the instruction count")
        }
        _ if [SYSCALL_WRITE, SYSCALL_FSTAT].contains(metric) => like_a_read(facts),
        _ if *metric == SYSCALL_SELECT => by_descriptors(facts, case),
        _ => Err(NoPrediction::because(NO_WORK_PUBLISHED)),
    }
}

/// Another call that does as little.
fn like_a_read(facts: &Facts<'_>) -> Result<Prediction, NoPrediction> {
    let read = measured(facts, &SYSCALL_READ, &Case::new())?;
    Ok(read.within(1.5).explained(Basis::Derived, "the same", "a read has as short a path"))
}

/// A look at more descriptors than the fewest: each is looked up and asked by itself.
fn by_descriptors(facts: &Facts<'_>, case: &Case) -> Result<Prediction, NoPrediction> {
    let count = DESCRIPTORS.of(case).filter(|&count| count > FEWEST);
    let count = count.ok_or_else(|| NoPrediction::because(NO_WORK_PUBLISHED))? as f64;
    let null = measured(facts, &SYSCALL_NULL, &getppid())?;
    let few = measured(facts, &SYSCALL_SELECT, &Case::new().with(DESCRIPTORS, FEWEST))?;
    let each = (few - null.clone()).at_least_zero() / FEWEST as f64;
    Ok((null + count * each).within(3.0).predict(Basis::Derived, "by descriptors"))
}

/// The fewest descriptors that are measured.
const FEWEST: u64 = 10;

/// A null call and a short path beyond it, whose length is from this source.
pub(super) fn short_way(facts: &Facts<'_>, source: &str) -> Result<Prediction, NoPrediction> {
    let null = measured(facts, &SYSCALL_NULL, &getppid())?;
    let work = SHORT_WAY_INSTRUCTIONS * NANOSECONDS_AN_INSTRUCTION;
    let work = fact("150 instructions at two per cycle and 3 GHz", work, Unit::Nanoseconds, source).source(source);
    let most = 3.0 * null.clone() + work.clone();
    Ok((null.clone() + work).between(&null, &most).predict(Basis::Derived, "null call and a short path"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::facts_about;

    #[test]
    fn short_paths_are_predicted_and_long_ones_say_why_not() {
        facts_about(&[(SYSCALL_NULL.id.as_str(), Some(60.0))], |facts| {
            let prediction = predict(facts, &SYSCALL_READ, &Case::new()).unwrap();
            assert!((prediction.value - 85.0).abs() < 1e-9);
            assert!((prediction.high - 205.0).abs() < 1e-9);
            for metric in [&SYSCALL_STAT, &SYSCALL_OPEN_CLOSE, &SYSCALL_SELECT, &SYSCALL_MMAP_MUNMAP] {
                assert!(predict(facts, metric, &Case::new()).unwrap_err().0.contains(&*SYSCALL_NULL.id));
            }
        });
        facts_about(&[(SYSCALL_READ.id.as_str(), Some(120.0))], |facts| {
            for metric in [&SYSCALL_WRITE, &SYSCALL_FSTAT] {
                assert_eq!(predict(facts, metric, &Case::new()).unwrap().value, 120.0);
            }
        });
    }

    #[test]
    fn each_descriptor_costs_the_same() {
        let known = [(SYSCALL_NULL.id.as_str(), Some(90.0)), (SYSCALL_SELECT.id.as_str(), Some(250.0))];
        facts_about(&known, |facts| {
            let of = |count: u64| predict(facts, &SYSCALL_SELECT, &Case::new().with(DESCRIPTORS, count));
            assert!(of(10).is_err());
            assert_eq!(of(100).unwrap().value, 90.0 + 100.0 * 16.0);
        });
    }
}
