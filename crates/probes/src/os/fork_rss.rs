//! The cost of fork against the resident memory of the parent, in base and in huge pages.
//!
//! The curve shows what a large process pays before its child has done anything. It must not be used for the
//! copy-on-write faults that follow.

use kelvin_catalogue::mem::PageSize;
use kelvin_catalogue::os::{PROCESS_FORK, PROCESS_FORK_RSS, RESIDENT};
use kelvin_harness::{Bench, Effort, Facts, Method, Probe, ProbeKind, Stop};
use kelvin_model::{Basis, Case, Machine, Metric, NoPrediction, Prediction, Unit};
use kelvin_sys::memory::Arena;
use kelvin_sys::process::fork_and_exit;

use crate::memory::axes::{check_pages, page_sizes, pages};
use crate::predict::Predicting;

pub(crate) static PROBE: Probe = Probe {
    id: PROCESS_FORK_RSS.id.as_str(),
    summary: "fork against the resident memory of the parent, 4 KiB and huge pages",
    kind: ProbeKind::Measure,
    method: Method {
        how: "The process maps private anonymous memory of the given size, with huge pages enabled or disabled, and \
              writes to every page; the resident size and its share of huge pages are read from /proc/self/smaps and \
              noted. Then fork() of the C library, one by one, timed until it returns in the parent. The child exits \
              at once, and the parent waits for it. Before each fork every page is made writable again \
              (MADV_POPULATE_WRITE), untimed, as in a process that uses its memory.",
        prediction: "Linear in page-table entries: the fork of a small process measured in this run, plus 49 ns per \
                     base page, from a published fork of 6.0 GB in 77 ms (others: 34 to 89 ns). A huge page costs one \
                     such entry and a page-table page of 4096 bytes that fork allocates and clears, at a published \
                     6.32 GB/s.",
        not_for: "The copy-on-write faults after a fork; posix_spawn or vfork, which copy no page tables.",
        pitfalls: &[
            "Mapped but untouched memory costs nothing to fork.",
            "Forking again without writing in between is cheaper: the entries are already write-protected.",
            "Huge pages that the kernel did not provide: this is checked, and fewer than requested is not a result.",
            "Page tables of shared mappings and of file mappings without private pages are not copied: later faults \
             restore them.",
        ],
        sources: &[
            "Redis documentation, Diagnosing latency issues: fork time in different systems (9 to 23.3 ms per GB)",
            "Zhao, Gong, Fonseca: On-demand-fork, EuroSys 2021",
            "Linux mm/memory.c (copy_page_range), mm/huge_memory.c (copy_huge_pmd)",
        ],
    },
    metrics: &[&PROCESS_FORK_RSS],
    inputs: &[PROCESS_FORK.id.as_str()],
    cases,
    run,
    predict,
};

const MIB: u64 = 1 << 20;
const SIZES: [u64; 5] = [MIB, 16 * MIB, 64 * MIB, 256 * MIB, 1024 * MIB];
/// Largest point of a quick run: touching more would take longer than its whole time.
const QUICK_BYTES: u64 = 64 * MIB;
/// Largest point where the memory size is unknown.
const BLIND_BYTES: u64 = 64 * MIB;
/// Largest point short of a thorough run or a study of it: a larger one would mostly time touching memory, and says nothing of the
/// cost of a page that this one does not say.
const USUAL_BYTES: u64 = 256 * MIB;

fn cases(machine: &Machine, effort: Effort) -> Vec<Case> {
    let most = most_bytes(machine);
    let most = most.min(match effort {
        Effort::Quick => QUICK_BYTES,
        Effort::Default => USUAL_BYTES,
        Effort::Thorough => u64::MAX,
    });
    let fits = |&&bytes: &&u64| bytes <= most;
    let case = |pages, &bytes: &u64| {
        // The smallest huge-page arena is one huge page, 2 MiB on x86-64: the point of 1 MiB is of base pages only.
        (pages == PageSize::Base || bytes > MIB).then(|| Case::new().with(RESIDENT, bytes).at(pages))
    };
    page_sizes(machine)
        .iter()
        .flat_map(|pages| SIZES.iter().filter(fits).filter_map(|bytes| case(*pages, bytes)))
        .collect()
}

/// Half of the available memory and of the cgroup's limit.
fn most_bytes(machine: &Machine) -> u64 {
    let available = machine.memory.available_bytes.get().map(|bytes| bytes / 2);
    let limit = machine.limits.memory_bytes.get().copied().flatten().map_or(u64::MAX, |bytes| bytes / 2);
    available.unwrap_or(BLIND_BYTES).min(limit)
}

fn run(bench: &mut Bench<'_>, case: &Case) -> Result<(), Stop> {
    let bytes = RESIDENT.of(case).ok_or_else(|| Stop::fail("the case has no resident"))?;
    let pages = pages(case)?;
    leave_half_of_memory(bytes)?;
    let mut arena = Arena::populated(bytes as usize, pages)?;
    bench.note(check_pages(&arena, pages)?);
    bench.time_each([&PROCESS_FORK_RSS], |clock| {
        arena.populate()?;
        let begun = clock.start();
        let child = fork_and_exit()?;
        let returned = clock.stop();
        child.wait_for_success()?;
        Ok([returned.wrapping_sub(begun)])
    })?;
    check_pages(&arena, pages).map(drop)
}

/// Skips sizes that do not fit now, whatever was available when the run was planned.
fn leave_half_of_memory(bytes: u64) -> Result<(), Stop> {
    let information = std::fs::read_to_string("/proc/meminfo")?;
    let available = available_bytes(&information).ok_or_else(|| Stop::fail("/proc/meminfo has no MemAvailable"))?;
    if bytes > available / 2 {
        return Err(Stop::skip(format!("needs {bytes} bytes, more than half of the {available} bytes available")));
    }
    Ok(())
}

fn available_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
}

/// A fork of 6.0 GB of base pages in 77 ms: nanoseconds for one entry.
const ENTRY_NANOSECONDS: f64 = 77e6 / (6.0 * PAGES_PER_GIB);
/// The fastest and the slowest of that list, except Xen: 6.9 GB in 62 ms on a Xeon of 2.27 GHz, 360 MB in 8.2 ms on
/// KVM.
const ENTRY_LEAST: f64 = 62e6 / (6.9 * PAGES_PER_GIB);
const ENTRY_MOST: f64 = 8.2e6 / (360.0 / 1024.0 * PAGES_PER_GIB);
const PAGES_PER_GIB: f64 = 262_144.0;
const REDIS: &str = "Redis documentation, Diagnosing latency issues, fork time in different systems";
/// The machines of that list date from about 2011; a current core does the same work up to three times as fast.
const PROGRESS: f64 = 3.0;
/// One page-table page, cleared at the write bandwidth that a published study measured.
const CLEAR_BYTES_PER_SECOND: f64 = 6.32e9;
const CLEAR_NANOSECONDS: f64 = 4096.0 / CLEAR_BYTES_PER_SECOND * 1e9;
const BANDWIDTH: &str = "reference machine zenbook-2011, memory write bandwidth of one thread";

/// The cost of one page of a size in nanoseconds: predicted, lowest, highest.
fn page_cost(huge: bool) -> (f64, f64, f64) {
    let table = if huge { CLEAR_NANOSECONDS } else { 0.0 };
    (ENTRY_NANOSECONDS + table, (ENTRY_LEAST + table) / PROGRESS, ENTRY_MOST + PROGRESS * table)
}

fn predict(facts: &Facts<'_>, _: &Metric, case: &Case) -> Result<Prediction, NoPrediction> {
    let bytes = RESIDENT.of(case).ok_or_else(|| NoPrediction::because("the case has no resident"))?;
    let huge = PageSize::of(case) == Some(PageSize::Huge);
    let page_bytes = page_size(facts.machine(), huge)?;
    let small = facts.measured(&PROCESS_FORK, &Case::new())?;
    let (base, count) = (small.value, (bytes / page_bytes) as f64);
    let (cost, least, most) = page_cost(huge);
    let value = base + count * cost;
    // The small fork is measured: a quarter either way for its spread.
    let (low, high) = (0.75 * base + count * least, 1.25 * base + count * most);
    let mut predicting = Predicting::between(Basis::Derived, value, low, high)
        .formula("fork of a small process + pages x cost of a page-table entry")
        .input(small)
        .constant("pages", count, Unit::Count, "resident bytes / page size")
        .constant("page-table entry, copied", ENTRY_NANOSECONDS, Unit::Nanoseconds, REDIS)
        .source(REDIS);
    if huge {
        predicting = predicting
            .constant("page-table page, cleared", CLEAR_NANOSECONDS, Unit::Nanoseconds, BANDWIDTH)
            .source("Linux mm/huge_memory.c, copy_huge_pmd: a page-table page is allocated for every huge page");
    }
    Ok(predicting.derived_as(format!(
        "{:.1} us fork + {count:.0} pages x {cost:.0} ns = {:.1} us",
        base / 1e3,
        value / 1e3
    )))
}

fn page_size(machine: &Machine, huge: bool) -> Result<u64, NoPrediction> {
    let base = machine.memory.page_bytes.get().copied().unwrap_or(4096);
    if !huge {
        return Ok(base);
    }
    // A huge page is what one page-table page of 8-byte entries maps.
    Ok(base * (base / 8))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{facts_about, machine};
    use kelvin_model::Fact;

    #[test]
    fn available_memory_is_found() {
        let meminfo = "MemTotal:       24683520 kB\nMemFree:         100 kB\nMemAvailable:      2048 kB\n";
        assert_eq!(available_bytes(meminfo), Some(2 << 20));
        assert_eq!(available_bytes("MemTotal: 1 kB\n"), None);
    }

    #[test]
    fn the_curve_is_linear_in_pages() {
        let case = |pages| Case::new().with(RESIDENT, 64 * MIB).at(pages);
        facts_about(&[(PROCESS_FORK.id.as_str(), Some(40_000.0))], |facts| {
            let base = predict(facts, &PROCESS_FORK_RSS, &case(PageSize::Base)).unwrap();
            // 40 us + 16,384 pages x 48.95 ns
            assert!((base.value - 842_083.0).abs() < 10.0, "{}", base.value);
            assert_eq!(base.derivation, "40.0 us fork + 16384 pages x 49 ns = 842.1 us");
            let huge = predict(facts, &PROCESS_FORK_RSS, &case(PageSize::Huge)).unwrap();
            // 40 us + 32 pages x (48.95 + 648.10) ns
            assert!((huge.value - 62_305.0).abs() < 10.0, "{}", huge.value);
            assert!(base.low < base.value && base.value < base.high);
        });
    }

    #[test]
    fn points_leave_half_of_the_memory_free() {
        let mut machine = machine();
        let sizes = |machine: &Machine, effort, pages| -> Vec<u64> {
            let cases = cases(machine, effort);
            let of = cases.iter().filter(|case| PageSize::of(case) == Some(pages));
            of.filter_map(|case| RESIDENT.of(case)).map(|bytes| bytes / MIB).collect()
        };
        // Nothing is known: small points only.
        assert_eq!(sizes(&machine, Effort::Default, PageSize::Base), [1, 16, 64]);
        machine.memory.available_bytes = Fact::known(4096 * MIB, "a test");
        assert_eq!(sizes(&machine, Effort::Default, PageSize::Base), [1, 16, 64, 256]);
        assert_eq!(sizes(&machine, Effort::Thorough, PageSize::Base), [1, 16, 64, 256, 1024]);
        assert_eq!(sizes(&machine, Effort::Default, PageSize::Huge), [16, 64, 256]);
        assert_eq!(sizes(&machine, Effort::Thorough, PageSize::Huge), [16, 64, 256, 1024]);
        assert_eq!(sizes(&machine, Effort::Quick, PageSize::Huge), [16, 64]);
        machine.limits.memory_bytes = Fact::known(Some(1024 * MIB), "a test");
        assert_eq!(sizes(&machine, Effort::Default, PageSize::Base), [1, 16, 64, 256]);
        machine.memory.transparent_huge_pages = Fact::known("never".into(), "a test");
        assert!(sizes(&machine, Effort::Default, PageSize::Huge).is_empty());
    }

    #[test]
    fn published_costs_of_an_entry_are_in_order() {
        // 12.83 ms per GiB over 262,144 pages
        assert!((ENTRY_NANOSECONDS - 48.95).abs() < 0.01);
        assert!((ENTRY_LEAST - 34.28).abs() < 0.01);
        assert!((ENTRY_MOST - 88.98).abs() < 0.01);
        // 4096 B at 6.32 GB/s
        assert!((CLEAR_NANOSECONDS - 648.1).abs() < 0.1);
        let (value, low, high) = page_cost(true);
        assert!(low < value && value < high);
        assert!((value - 697.05).abs() < 0.1);
    }
}
