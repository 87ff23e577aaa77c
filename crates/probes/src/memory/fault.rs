//! The cost of a minor page fault: the first touch of anonymous, huge and cached file pages.
//!
//! It is what a process pays on first use of memory and mapped files. It must not be used as the cost of later touches,
//! nor for copy-on-write pages.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use kelvin_core::catalogue::mem::{BANDWIDTH_FILL, FAULT_MINOR, FaultPage, PageSize};
use kelvin_sys::clock::Clock;
use kelvin_sys::fork_image::resident_around;
use kelvin_sys::mapping::{self, FileMapping, page_bytes};
use kelvin_sys::memory::{Arena, PagePolicy};
use kelvin_sys::usage::{Usage, UsageScope, read_usage};

use super::axes::{check_all_huge, page_sizes};
use super::bandwidth;
use crate::os::trap::steered_return_cost;
use crate::prelude::*;
use crate::published;

pub(crate) static PROBE: Probe = Probe {
    summary: "The first touch of an anonymous, a huge, and a cached file page",
    method: include_str!("fault.md"),
    cases,
    run,
    predict,
    ..Probe::measure(&[&FAULT_MINOR])
};

/// Pages touched between two readings of the clock: some hundred microseconds. Freeing less than one page-table page
/// maps (512 pages) leaves the page tables in place.
const MAX_PAGES: usize = 256;
/// Huge pages that are: 8 MiB.
const MAX_HUGE_PAGES: usize = 4;
/// A huge page of 4096-byte base pages.
const HUGE_BYTES: usize = 2 << 20;
/// Tolerated share of missing or surplus faults: a busy page, or a fault taken twice.
const MAX_MISCOUNT: f64 = 0.01;
/// Passes per batch that may be dropped because of a major fault.
const MAX_DROPPED_PASSES: u32 = 3;

/// The case of file pages that fault one by one.
pub(crate) fn cached_file_case() -> Case {
    Case::new().with_word(FaultPage::File)
}

/// The case of file pages with fault-around.
pub(crate) fn fault_around_case() -> Case {
    Case::new().with_word(FaultPage::FileAround)
}

/// The case of the largest pages of anonymous memory that there are, which are nearly all clearing, and their bytes.
pub(crate) fn largest_anonymous_case(machine: &Machine) -> (Case, usize) {
    let has_huge_pages = page_sizes(machine).contains(&PageSize::Huge);
    let (page, bytes) =
        if has_huge_pages { (FaultPage::Huge, HUGE_BYTES) } else { (FaultPage::Anonymous, page_bytes()) };
    (Case::new().with_word(page), bytes)
}

fn cases(machine: &Machine, effort: Effort) -> Vec<Case> {
    let mut pages = FaultPage::ALL.to_vec();
    pages.retain(|page| match page {
        FaultPage::Huge => page_sizes(machine).contains(&PageSize::Huge),
        FaultPage::FileAround => effort > Effort::Quick,
        _ => true,
    });
    words(&pages)
}

fn run(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let kind = required_word(FaultPage::of(case), FaultPage::ALL, case)?;
    let mut subject = FaultSubject::new(kind, bench)?;
    subject.warm_up(bench)?;
    let (mut expected_faults, mut counted_faults) = (0, 0);
    bench.time_parts([&FAULT_MINOR], |clock, faults| {
        let batch = subject.cause_faults(clock, faults)?;
        expected_faults += faults;
        counted_faults += batch.minor_faults;
        // Scale the time from the counted to the requested faults.
        Ok([batch.ticks as f64 * faults as f64 / batch.minor_faults.max(1) as f64])
    })?;
    check_fault_count(expected_faults, counted_faults)
}

/// Fails if the counted faults are not the expected ones.
fn check_fault_count(expected_faults: u64, counted_faults: u64) -> ProbeResult {
    let miscount = (counted_faults as f64 - expected_faults as f64).abs() / expected_faults.max(1) as f64;
    let reason = format!("{counted_faults} faults by getrusage instead of {expected_faults}: the time is not valid");
    fail_if(miscount > MAX_MISCOUNT, reason)
}

/// Touches under the clock and the counters.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct CountedTouches {
    pub ticks: u64,
    pub pages: u64,
    pub minor_faults: u64,
    /// Faults that waited for a disk.
    pub major_faults: u64,
}

impl CountedTouches {
    /// Touches of this many pages.
    #[inline(always)]
    pub(super) fn count(clock: Clock, pages: usize, touch: impl FnOnce()) -> Self {
        let before = read_usage(UsageScope::Thread);
        let (ticks, ()) = clock.time(touch);
        let Usage { minor_faults, major_faults, .. } = read_usage(UsageScope::Thread).since(before);
        Self { ticks, pages: pages as u64, minor_faults, major_faults }
    }
}

/// Memory to be touched, and how.
struct FaultSubject {
    memory: FaultMemory,
    kind: FaultPage,
    /// Bytes from one touch to the next.
    step: usize,
    /// Touches of all of it.
    touches: usize,
    /// Touches per fault.
    touches_per_fault: u64,
}

enum FaultMemory {
    Anonymous(Arena),
    Mapped(FileMapping),
}

impl FaultSubject {
    fn new(kind: FaultPage, bench: &Bench<'_>) -> ProbeResult<Self> {
        let page = page_bytes();
        let reason = format!("needs 4096-byte base pages and 2 MiB huge pages; base pages here have {page} bytes");
        skip_if(kind == FaultPage::Huge && page != 4096, reason)?;
        let memory = match kind {
            FaultPage::Anonymous => FaultMemory::Anonymous(Arena::map(MAX_PAGES * page, PagePolicy::Base)?),
            FaultPage::Huge => FaultMemory::Anonymous(Arena::map(MAX_HUGE_PAGES * HUGE_BYTES, PagePolicy::Huge)?),
            FaultPage::File => {
                FaultMemory::Mapped(FileMapping::page_by_page(&cached_unlinked_file(bench)?, MAX_PAGES * page)?)
            }
            FaultPage::FileAround => {
                FaultMemory::Mapped(FileMapping::whole(&cached_unlinked_file(bench)?, MAX_PAGES * page)?)
            }
        };
        let (step, touches, touches_per_fault) = match kind {
            FaultPage::Huge => (HUGE_BYTES / 2, 2 * MAX_HUGE_PAGES, 2),
            _ => (page, MAX_PAGES, 1),
        };
        Ok(Self { memory, kind, step, touches, touches_per_fault })
    }

    /// Touches everything twice: the first pass warms, the second shows the number of touches per fault.
    fn warm_up(&mut self, bench: &mut Bench<'_>) -> ProbeResult {
        self.touch_and_free(bench.clock(), self.touches)?;
        let pass = self.touch_and_free(bench.clock(), self.touches)?;
        fail_if(pass.minor_faults == 0, format!("{} touches of freed pages caused no fault", pass.pages))?;
        let detail = match self.kind {
            FaultPage::Huge => format!(
                ", one in each half of {MAX_HUGE_PAGES} huge pages; by smaps {} of {} bytes are in huge pages",
                self.huge_bytes()?,
                MAX_HUGE_PAGES * HUGE_BYTES
            ),
            FaultPage::FileAround => {
                self.touches_per_fault = (pass.pages as f64 / pass.minor_faults as f64).round().max(1.0) as u64;
                format!(
                    ": fault-around maps {} pages per fault, {:.0} ns per page in a trial",
                    self.touches_per_fault,
                    bench.nanoseconds(pass.ticks) / pass.pages as f64
                )
            }
            FaultPage::Anonymous | FaultPage::File => ", one page each".into(),
        };
        bench.note(format!("{} faults by getrusage in {} touches{detail}", pass.minor_faults, pass.pages));
        Ok(())
    }

    /// Bytes in huge pages after all of them were touched.
    fn huge_bytes(&mut self) -> ProbeResult<u64> {
        let FaultMemory::Anonymous(arena) = &mut self.memory else {
            return Err(ProbeError::fail("only anonymous memory requests huge pages"));
        };
        mapping::write_pages(arena, self.step, self.touches);
        let huge = resident_around(arena.address())?.huge;
        let requested = arena.len() as u64;
        mapping::discard_pages(arena, usize::MAX)?;
        check_all_huge(requested, huge)?;
        Ok(huge)
    }

    /// Causes this many faults.
    fn cause_faults(&mut self, clock: Clock, faults: u64) -> ProbeResult<CountedTouches> {
        let mut sum = CountedTouches::default();
        let mut dropped_passes = 0;
        let pages = faults * self.touches_per_fault;
        while sum.pages < pages {
            let touches = (pages - sum.pages).min(self.touches as u64) as usize;
            let pass = self.touch_and_free(clock, touches)?;
            // A page of the file, or of this program, had been evicted, and this pass has read it back.
            if pass.major_faults > 0 && dropped_passes < MAX_DROPPED_PASSES {
                dropped_passes += 1;
                continue;
            }
            let reason = "pages of the file are evicted from the page cache repeatedly: memory is short";
            fail_if(pass.major_faults > 0, reason)?;
            sum.ticks += pass.ticks;
            sum.pages += pass.pages;
            sum.minor_faults += pass.minor_faults;
        }
        Ok(sum)
    }

    /// Touches the first pages and frees them; only the touches are timed.
    fn touch_and_free(&mut self, clock: Clock, touches: usize) -> ProbeResult<CountedTouches> {
        let step = self.step;
        match &mut self.memory {
            FaultMemory::Anonymous(arena) => {
                let pass = CountedTouches::count(clock, touches, || mapping::write_pages(arena, step, touches));
                mapping::discard_pages(arena, touches * step)?;
                Ok(pass)
            }
            FaultMemory::Mapped(mapping) => {
                let pass = CountedTouches::count(clock, touches, || mapping.read(0, step, touches));
                mapping.unmap_pages(0, touches * step)?;
                Ok(pass)
            }
        }
    }
}

/// An unlinked file in the scratch directory, with all its pages cached and clean.
fn cached_unlinked_file(bench: &Bench<'_>) -> ProbeResult<File> {
    let path: PathBuf = bench.scratch().join(format!("kelvin-minor-faults-{}", std::process::id()));
    let to_probe_error = |error: std::io::Error| ProbeError::fail(format!("cannot make {}: {error}", path.display()));
    let mut file = File::options().read(true).write(true).create_new(true).open(&path).map_err(to_probe_error)?;
    std::fs::remove_file(&path).map_err(to_probe_error)?;
    let page = vec![1; page_bytes()];
    (0..MAX_PAGES).try_for_each(|_| file.write_all(&page)).map_err(to_probe_error)?;
    // A page under write-back may be locked, and fault-around skips locked pages.
    file.sync_data().map_err(to_probe_error)?;
    Ok(file)
}

/// The source of the cost of an exception and of the kernel's work.
const TORVALDS_SOURCE: &str = "Torvalds: the cost of page faults, Google+, 2014-04-30: on Haswell 715 cycles per fault and \
                        330 for its iret, together 80.7 % of a fault that maps the zero page";
/// Cycles of the exception and of the return from it.
const EXCEPTION_CYCLES: f64 = 715.0;
const RETURN_CYCLES: f64 = 330.0;
/// Their share of a fault that maps the zero page; the rest is the kernel's work and the touching loop.
const HARDWARE_SHARE: f64 = 0.807;
/// Kernel function returns in a fault that maps a cached page, and those added by allocating, charging and clearing a
/// fresh page.
const CACHED_FAULT_RETURNS: f64 = 40.0;
const FRESH_FAULT_RETURNS: f64 = 30.0;
const COUNTED_SOURCE: &str = "Linux 6.x, arch/x86/mm/fault.c, mm/memory.c, mm/filemap.c, mm/rmap.c, mm/page_alloc.c, \
                       mm/memcontrol.c: functions not inlined between exc_page_fault and its return, some 40 for a \
                       cached page and 30 more for a fresh one";
/// Predicted range of a fault of a cached page, factor either way.
const SPREAD: f64 = 2.5;
/// How far a fresh page may exceed the prediction, as a multiple of the fault of a cached page: for allocation and
/// cgroup charging nothing valid for current kernels is published.
const FRESH_MARGIN: f64 = 1.0;
/// Tolerance of the bounds of a fresh page, as a factor, for errors of the measured inputs.
const FRESH_BOUND_TOLERANCE: f64 = 1.25;

fn predict(facts: &PredictionInputs<'_>, _: &Metric, case: &Case) -> Predicted {
    match required(FaultPage::of(case), case)? {
        FaultPage::File => cached_fault(facts),
        FaultPage::FileAround => fault_around(facts),
        FaultPage::Anonymous => fresh_fault(facts, page_bytes()),
        FaultPage::Huge => fresh_fault(facts, HUGE_BYTES),
    }
}

/// A fault that maps a cached page: the published exception, return and kernel work, plus what a mitigation adds to the
/// kernel's returns.
fn cached_fault(facts: &PredictionInputs<'_>) -> Predicted {
    let reason = "the table of published costs has no fault for this processor";
    unpredicted_if(facts.machine().architecture != *"x86_64", reason)?;
    let hardware = EXCEPTION_CYCLES + RETURN_CYCLES;
    let software = hardware / HARDWARE_SHARE - hardware;
    let mut cycles = published("exception and return", hardware, Unit::Cycles, TORVALDS_SOURCE)
        + published("kernel work", software, Unit::Cycles, TORVALDS_SOURCE);
    if let Some(return_cost) = steered_return_cost(facts, CACHED_FAULT_RETURNS)? {
        cycles = cycles + return_cost.source(COUNTED_SOURCE);
    }
    let fault = cycles / published::measured_frequency(facts)?;
    Ok(fault.widen(SPREAD).predict(PredictionBasis::Published, "exception and kernel work"))
}

/// A fault that maps a fresh page: the fault of a cached one, and clearing it. What is cleared was freed not long ago, and lies in part in
/// a cache and in part in memory: between filling L2 and filling memory, the geometric mean.
fn fresh_fault(facts: &PredictionInputs<'_>, bytes: usize) -> Predicted {
    let machine = facts.machine();
    let mut trap = measured(facts, &FAULT_MINOR, &cached_file_case())?;
    let memory_rate = bandwidth::in_memory(facts, &BANDWIDTH_FILL)?;
    // A quick run has no set in L2.
    let l2_rate = bandwidth::second_level_case(machine).and_then(|case| measured(facts, &BANDWIDTH_FILL, &case));
    let cache_rate = l2_rate.unwrap_or_else(|_| memory_rate.clone());
    // Up to as much again as the fault of a cached page for allocation and accounting.
    let mut maximum = (1.0 + FRESH_MARGIN) * trap.clone();
    if let Some(return_cost) = steered_return_cost(facts, FRESH_FAULT_RETURNS)? {
        let return_cost = return_cost.source(COUNTED_SOURCE) / published::measured_frequency(facts)?;
        (trap, maximum) = (trap + return_cost.clone(), maximum + return_cost);
    }
    let page = bytes_of("bytes of the page", bytes as u64);
    let minimum = trap.clone() + page.clone() / cache_rate.clone().max(memory_rate.clone());
    let maximum = maximum + page.clone() / cache_rate.clone().min(memory_rate.clone());
    let fault = trap + page / cache_rate.geometric_mean(memory_rate);
    Ok(fault.with_bounds(&minimum, &maximum).widen(FRESH_BOUND_TOLERANCE).derived("fault and clearing"))
}

/// Pages that fault-around maps by default.
pub(crate) const FAULT_AROUND_PAGES: f64 = 16.0;
pub(crate) const FAULT_AROUND_SOURCE: &str = "Linux mm/memory.c: fault_around_pages is 65536 bytes by default";

/// A fault with fault-around: between one single-page fault and as many as it maps pages.
fn fault_around(facts: &PredictionInputs<'_>) -> Predicted {
    let single = measured(facts, &FAULT_MINOR, &cached_file_case())?;
    let pages = published("pages mapped by one fault", FAULT_AROUND_PAGES, Unit::Count, FAULT_AROUND_SOURCE);
    let total = pages * single.clone();
    let fault = single.clone().geometric_mean(total.clone()).with_bounds(&single, &total);
    Ok(fault.widen(FAULT_AROUND_SPREAD).derived("between one and all"))
}

/// Tolerance of the two bounds, as a factor, for errors of the measured fault.
const FAULT_AROUND_SPREAD: f64 = 1.1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, machine, with_facts};
    use kelvin_core::{Fact, Mitigation};
    use kelvin_harness::MeasuredValue;

    #[test]
    fn cached_fault_sums_entry_work_returns() {
        with_facts(&[("cpu.frequency", Some(4e9))], |facts| {
            let file = predict(facts, &FAULT_MINOR, &cached_file_case()).unwrap();
            // 1045 cycles are 80.7 % of 1294.9 at 4 GHz
            assert!((file.value - 323.7).abs() < 0.1, "{}", file.value);
            assert!((file.high / file.value - SPREAD).abs() < 1e-9);
        });
        let mut machine = machine();
        machine.cpu.microarchitecture = Fact::known("Zen 3".into(), "a test");
        let safe_ret =
            Mitigation { vulnerability: "spec_rstack_overflow".into(), status: "Mitigation: Safe RET".into() };
        machine.cpu.mitigations = Fact::known(vec![safe_ret], "a test");
        let measured = |_: &str, _: &Case| Some(MeasuredValue { value: 1e9, half_width: 0.0 });
        let mitigated =
            predict(&PredictionInputs::new(&machine, &measured), &FAULT_MINOR, &cached_file_case()).unwrap();
        // 40 mispredictions, of 10 to 30 cycles on every core of the table.
        let extra = mitigated.value - 1294.9;
        assert!((400.0..=1200.0).contains(&extra), "{extra}");
        assert!(mitigated.inputs.iter().any(|input| input.name == "mitigated returns"), "{mitigated:?}");
        with_facts(&[], |facts| assert!(predict(facts, &FAULT_MINOR, &cached_file_case()).is_err()));
    }

    #[test]
    fn fresh_fault_adds_clearing() {
        let mut machine = machine();
        machine.topology.caches = testing::caches(&[(1, 32 << 10), (2, 1 << 20)]);
        let l2_case = bandwidth::second_level_case(&machine).unwrap();
        let measured = |id: &str, case: &Case| {
            let value = match id {
                id if *id == *FAULT_MINOR.id => 1000.0,
                id if *id != *BANDWIDTH_FILL.id => 4e9,
                _ if *case == l2_case => 160e9,
                _ => 40e9,
            };
            Some(MeasuredValue { value, half_width: 0.0 })
        };
        let facts = PredictionInputs::new(&machine, &measured);
        let predicted = |kind: FaultPage| predict(&facts, &FAULT_MINOR, &Case::new().with_word(kind)).unwrap();
        let anonymous = predicted(FaultPage::Anonymous);
        assert!((anonymous.value - 1051.2).abs() < 0.1, "{}", anonymous.value);
        assert!(anonymous.low < 900.0 && (anonymous.high - 1.25 * 2102.4).abs() < 0.1, "{anonymous:?}");
        // 2 MiB take 13.1 us in L2, 52.4 us in memory, and the mean of the rates 26.2 us.
        let huge = predicted(FaultPage::Huge);
        assert!((huge.value - 27_214.4).abs() < 0.1, "{}", huge.value);
        assert!((huge.low - 14_107.2 / 1.25).abs() < 0.1 && (huge.high - 1.25 * 54_428.8).abs() < 0.1, "{huge:?}");
        let around_fault = predicted(FaultPage::FileAround);
        assert_eq!(around_fault.value, 4000.0);
        assert!(around_fault.low < 1000.0 && around_fault.high > 16_000.0);
        let anonymous = Case::new().with_word(FaultPage::Anonymous);
        let values = [("cpu.frequency", Some(4e9)), (FAULT_MINOR.id.as_str(), Some(1000.0))];
        with_facts(&values, |facts| assert!(predict(facts, &FAULT_MINOR, &anonymous).is_err()));
    }

    #[test]
    fn no_huge_pages_no_huge_case() {
        let mut machine = machine();
        let pages = |machine: &Machine, effort| -> Vec<FaultPage> {
            cases(machine, effort).iter().filter_map(FaultPage::of).collect()
        };
        assert_eq!(pages(&machine, Effort::Default), FaultPage::ALL);
        assert_eq!(pages(&machine, Effort::Quick), [FaultPage::Anonymous, FaultPage::Huge, FaultPage::File]);
        machine.memory.transparent_huge_pages = Fact::known("never".into(), "a test");
        assert_eq!(pages(&machine, Effort::Default), [FaultPage::Anonymous, FaultPage::File, FaultPage::FileAround]);
    }

    #[test]
    fn unexpected_faults_are_refused() {
        assert_eq!(check_fault_count(1000, 1005), Ok(()));
        for count in [500, 1011] {
            let Err(ProbeError::Fail(reason)) = check_fault_count(1000, count) else { panic!("{count} was accepted") };
            assert!(reason.starts_with(&count.to_string()), "{reason}");
        }
    }
}
