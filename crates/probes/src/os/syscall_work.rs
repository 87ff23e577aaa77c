//! System calls that do a little work: read, write, stat, fstat, open and close, select, mmap and munmap.
//!
//! Each is the cost of one call with everything in memory. It must not be used for a first access, for a disk or
//! network file system, or per byte.

use std::fs::File;
use std::os::fd::AsFd;

use kelvin_core::catalogue::os::{
    DESCRIPTORS, SYSCALL_FSTAT, SYSCALL_MMAP_MUNMAP, SYSCALL_NULL, SYSCALL_OPEN_CLOSE, SYSCALL_READ, SYSCALL_SELECT,
    SYSCALL_STAT, SYSCALL_WRITE,
};
use kelvin_sys::syscall_loops::{self, SelectSet};

use super::syscall_null::kernel_entry_case;
use crate::prelude::*;

/// Bytes mapped and unmapped.
pub(super) const MAPPED_BYTES: usize = 64 << 10;

const UNPUBLISHED_WORK_TEXT: &str = "The kernel's work beyond the entry has no published cost for current kernels; \
                                 os.syscall.null per kernel entry is the floor.";
/// A probe without parameters.
const fn syscall_probe(
    summary: &'static str,
    method: &'static str,
    metrics: &'static [&'static Metric],
    run: fn(&mut Bench<'_>, &Case) -> ProbeResult,
) -> Probe {
    Probe { summary, method, run, predict, ..Probe::measure(metrics) }
}

pub(crate) static READ_PROBE: Probe = syscall_probe(
    "A read of one byte from /dev/zero",
    include_str!("syscall_read.md"),
    &[&SYSCALL_READ],
    |bench, _| {
        let zero = File::open("/dev/zero")?;
        bench.time(&SYSCALL_READ, |count| Ok(syscall_loops::read_loop(zero.as_fd(), count)?))
    },
);

pub(crate) static WRITE_PROBE: Probe = syscall_probe(
    "A write of one byte to /dev/null",
    include_str!("syscall_write.md"),
    &[&SYSCALL_WRITE],
    |bench, _| {
        let null = File::options().write(true).open("/dev/null")?;
        bench.time(&SYSCALL_WRITE, |count| Ok(syscall_loops::write_loop(null.as_fd(), count)?))
    },
);

pub(crate) static STAT_PROBE: Probe =
    syscall_probe("stat of a file by its path", include_str!("syscall_stat.md"), &[&SYSCALL_STAT], |bench, _| {
        bench.time(&SYSCALL_STAT, |count| Ok(syscall_loops::stat_loop(c"/dev/null", count)?))
    });

pub(crate) static FSTAT_PROBE: Probe =
    syscall_probe("fstat of an open file", include_str!("syscall_fstat.md"), &[&SYSCALL_FSTAT], |bench, _| {
        let null = File::open("/dev/null")?;
        bench.time(&SYSCALL_FSTAT, |count| Ok(syscall_loops::fstat_loop(null.as_fd(), count)?))
    });

pub(crate) static OPEN_CLOSE_PROBE: Probe = syscall_probe(
    "Opening a file by its path and closing it",
    include_str!("syscall_open_close.md"),
    &[&SYSCALL_OPEN_CLOSE],
    |bench, _| bench.time(&SYSCALL_OPEN_CLOSE, |count| Ok(syscall_loops::open_close_loop(c"/dev/null", count)?)),
);

pub(crate) static SELECT_PROBE: Probe = Probe {
    cases: |_, _| [MIN_DESCRIPTORS, 100].map(|count| Case::new().with_number(DESCRIPTORS, count)).into(),
    ..syscall_probe("Polling descriptors with select", include_str!("syscall_select.md"), &[&SYSCALL_SELECT], select)
};

pub(crate) static MMAP_MUNMAP_PROBE: Probe = syscall_probe(
    "mmap and munmap of untouched memory",
    include_str!("syscall_mmap_munmap.md"),
    &[&SYSCALL_MMAP_MUNMAP],
    |bench, _| bench.time(&SYSCALL_MMAP_MUNMAP, |count| Ok(syscall_loops::mmap_munmap_loop(MAPPED_BYTES, count)?)),
);

fn select(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let count = required_number(DESCRIPTORS, case)?;
    let descriptor_set = SelectSet::new(count as usize)?;
    bench.time(&SYSCALL_SELECT, |iterations| Ok(descriptor_set.select_loop(iterations)?))
}

/// Instructions beyond the entry for a call straight to a driver: file look-up, permission and range checks, security
/// and notification hooks, the driver.
pub(crate) const SHORT_PATH_INSTRUCTIONS: f64 = 150.0;
/// Two per cycle at 3 GHz, typical of current servers.
pub(crate) const NANOSECONDS_PER_INSTRUCTION: f64 = 1.0 / (2.0 * 3.0);

fn predict(facts: &PredictionInputs<'_>, metric: &Metric, case: &Case) -> Predicted {
    match metric {
        _ if *metric == SYSCALL_READ => {
            short_path(facts, "Linux fs/read_write.c, drivers/char/mem.c, for the instruction count")
        }
        _ if [SYSCALL_WRITE, SYSCALL_FSTAT].contains(metric) => {
            let read = measured(facts, &SYSCALL_READ, &Case::new())?;
            Ok(read.widen(1.5).explained(PredictionBasis::Derived, "the same", "a read has as short a path"))
        }
        // More descriptors than the fewest: each is looked up and polled by itself.
        _ if *metric == SYSCALL_SELECT => {
            let count = DESCRIPTORS.number_in(case).filter(|&count| count > MIN_DESCRIPTORS);
            let count = count.or_unpredicted(UNPUBLISHED_WORK_TEXT)? as f64;
            let null = measured(facts, &SYSCALL_NULL, &kernel_entry_case())?;
            let min_select = measured(facts, &SYSCALL_SELECT, &Case::new().with_number(DESCRIPTORS, MIN_DESCRIPTORS))?;
            let per_descriptor = (min_select - null.clone()).at_least_zero() / MIN_DESCRIPTORS as f64;
            Ok((null + count * per_descriptor).widen(3.0).derived("by descriptors"))
        }
        _ => Err(NoPrediction::new(UNPUBLISHED_WORK_TEXT)),
    }
}

/// The fewest descriptors that are measured.
const MIN_DESCRIPTORS: u64 = 10;

/// A null call and a short path beyond it, whose length is from this source.
pub(super) fn short_path(facts: &PredictionInputs<'_>, source: &str) -> Predicted {
    let null = measured(facts, &SYSCALL_NULL, &kernel_entry_case())?;
    let work = SHORT_PATH_INSTRUCTIONS * NANOSECONDS_PER_INSTRUCTION;
    let work = published("150 instructions at two per cycle and 3 GHz", work, Unit::Nanoseconds, source);
    let maximum = 3.0 * null.clone() + work.clone();
    Ok((null.clone() + work).with_bounds(&null, &maximum).derived("null call and a short path"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::with_facts;

    #[test]
    fn only_short_paths_are_predicted() {
        with_facts(&[(SYSCALL_NULL.id.as_str(), Some(60.0))], |facts| {
            let prediction = predict(facts, &SYSCALL_READ, &Case::new()).unwrap();
            assert!((prediction.value - 85.0).abs() < 1e-9);
            assert!((prediction.high - 205.0).abs() < 1e-9);
            for metric in [&SYSCALL_STAT, &SYSCALL_OPEN_CLOSE, &SYSCALL_SELECT, &SYSCALL_MMAP_MUNMAP] {
                assert!(predict(facts, metric, &Case::new()).unwrap_err().0.contains(&*SYSCALL_NULL.id));
            }
        });
        with_facts(&[(SYSCALL_READ.id.as_str(), Some(120.0))], |facts| {
            for metric in [&SYSCALL_WRITE, &SYSCALL_FSTAT] {
                assert_eq!(predict(facts, metric, &Case::new()).unwrap().value, 120.0);
            }
        });
    }

    #[test]
    fn select_cost_is_linear_in_descriptors() {
        let values = [(SYSCALL_NULL.id.as_str(), Some(90.0)), (SYSCALL_SELECT.id.as_str(), Some(250.0))];
        with_facts(&values, |facts| {
            let predicted = |count: u64| predict(facts, &SYSCALL_SELECT, &Case::new().with_number(DESCRIPTORS, count));
            assert!(predicted(10).is_err());
            assert_eq!(predicted(100).unwrap().value, 90.0 + 100.0 * 16.0);
        });
    }
}
