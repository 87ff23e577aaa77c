//! The cost of fork against the resident memory of the parent, in base and in huge pages.
//!
//! The curve shows what a large process pays before its child has done anything. It must not be used for the
//! copy-on-write faults that follow.

use kelvin_core::catalogue::mem::{BANDWIDTH_FILL, PageSize};
use kelvin_core::catalogue::os::{PROCESS_FORK, PROCESS_FORK_RSS, RESIDENT};
use kelvin_core::units;
use kelvin_sys::memory::Arena;
use kelvin_sys::process::fork_and_exit;

use crate::memory::axes::{check_pages, page_kind, page_sizes};
use crate::memory::{bandwidth, memory_budget};
use crate::prelude::*;

pub(crate) static PROBE: Probe = Probe {
    summary: "fork against the resident memory of the parent, 4 KiB and huge pages",
    method: include_str!("fork_rss.md"),
    cases,
    run,
    predict,
    ..Probe::measure(&[&PROCESS_FORK_RSS])
};

const MIB: u64 = 1 << 20;
const SIZES: [u64; 5] = [MIB, 16 * MIB, 64 * MIB, 256 * MIB, 1024 * MIB];
/// Largest point of a quick run: touching more would take longer than its whole time.
const QUICK_BYTES: u64 = 64 * MIB;
/// Largest point short of a thorough run or a study of it: a larger one would mostly time touching memory, and adds nothing about the
/// cost of a page.
const DEFAULT_MAX_BYTES: u64 = 256 * MIB;

fn cases(machine: &Machine, effort: Effort) -> Vec<Case> {
    let limit = memory_budget::memory_budget(machine);
    let max_bytes = limit.min(by_effort(effort, [QUICK_BYTES, DEFAULT_MAX_BYTES, u64::MAX]));
    let mut cases = words(page_sizes(machine)).numbers(RESIDENT, &SIZES);
    cases.retain(|case| {
        let bytes = RESIDENT.number_in(case).unwrap_or(0);
        // The smallest huge-page arena is one huge page, 2 MiB on x86-64: the point of 1 MiB is of base pages only.
        bytes <= max_bytes && (PageSize::of(case) == Some(PageSize::Base) || bytes > MIB)
    });
    cases
}

fn run(bench: &mut Bench<'_>, case: &Case) -> ProbeResult {
    let bytes = required_number(RESIDENT, case)?;
    let pages = page_kind(case)?;
    // Sizes that do not fit now are skipped, even if more was available when the run was planned.
    let available = available_bytes(&std::fs::read_to_string("/proc/meminfo")?);
    let available = available.or_fail("/proc/meminfo has no MemAvailable")?;
    let [needed, free] = [bytes, available].map(units::bytes);
    let reason = format!("needs {needed} of memory, more than half of the {free} available");
    skip_if(bytes > available / 2, reason)?;
    let mut arena = Arena::populated(bytes as usize, pages)?;
    bench.note(check_pages(&arena, pages)?);
    bench.time_each([&PROCESS_FORK_RSS], |clock| {
        arena.populate()?;
        let (ticks, child) = clock.time(fork_and_exit);
        child?.wait_for_success()?;
        Ok([ticks])
    })?;
    check_pages(&arena, pages).map(drop)
}

fn available_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
}

fn predict(facts: &PredictionInputs<'_>, _: &Metric, case: &Case) -> Predicted {
    let bytes = required_number(RESIDENT, case)?;
    let is_huge = PageSize::of(case) == Some(PageSize::Huge);
    let size = page_size(facts.machine(), is_huge);
    let pages = |bytes: u64| fact("pages", (bytes / size) as f64, Unit::Count, "resident bytes / page size");
    let (time, name) = match (is_huge, bytes) {
        (false, DEFAULT_RSS) => {
            return Err(NoPrediction::new(
                "published costs of a page-table entry are of machines of 2011 and differ threefold",
            ));
        }
        (false, SMALL_RSS) => {
            let (fork, default_fork) =
                (measured(facts, &PROCESS_FORK, &Case::new())?, measured_fork(facts, DEFAULT_RSS, PageSize::Base)?);
            let per_page = ((default_fork - fork.clone()) / (DEFAULT_RSS / size) as f64).at_least_zero();
            (fork + pages(SMALL_RSS) * per_page, "fork and pages of 16 MiB")
        }
        (false, _) => (
            measured_fork(facts, SMALL_RSS, PageSize::Base)? + pages(bytes - SMALL_RSS) * entry_cost(facts)?,
            "1 MiB and further pages",
        ),
        (true, DEFAULT_RSS) => {
            let small_pages = (SMALL_RSS / page_size(facts.machine(), false)) as f64;
            let base_fork = measured_fork(facts, SMALL_RSS, PageSize::Base)? - small_pages * entry_cost(facts)?;
            (base_fork + pages(DEFAULT_RSS) * huge_entry(facts)?, "no memory and huge pages")
        }
        (true, _) => {
            let default_fork = measured_fork(facts, DEFAULT_RSS, PageSize::Huge)?;
            (default_fork + pages(bytes - DEFAULT_RSS) * huge_entry(facts)?, "16 MiB of huge pages and further ones")
        }
    };
    Ok(time.widen(1.5).derived(name))
}

/// The smallest size, which costs little more than a process without memory.
const SMALL_RSS: u64 = MIB;
/// A size whose entries cost several times that, and which every run measures.
const DEFAULT_RSS: u64 = 16 * MIB;

fn measured_fork(facts: &PredictionInputs<'_>, bytes: u64, pages: PageSize) -> Predicted<Expr> {
    measured(facts, &PROCESS_FORK_RSS, &Case::new().with_number(RESIDENT, bytes).with_word(pages))
}

/// The time of a page-table entry, by the two sizes that it follows from.
fn entry_cost(facts: &PredictionInputs<'_>) -> Predicted<Expr> {
    let (small_fork, default_fork) =
        (measured_fork(facts, SMALL_RSS, PageSize::Base)?, measured_fork(facts, DEFAULT_RSS, PageSize::Base)?);
    let pages = (DEFAULT_RSS - SMALL_RSS) as f64 / page_size(facts.machine(), false) as f64;
    Ok(((default_fork - small_fork) / pages).at_least_zero())
}

/// The time of a huge page: its entry, and the page-table page that is cleared for the time when it is split.
fn huge_entry(facts: &PredictionInputs<'_>) -> Predicted<Expr> {
    let fill = bandwidth::in_memory(facts, &BANDWIDTH_FILL)?;
    let table = quantity("page-table page", page_size(facts.machine(), false) as f64, Unit::Bytes);
    Ok(entry_cost(facts)? + table / fill)
}

fn page_size(machine: &Machine, is_huge: bool) -> u64 {
    let base = memory_budget::page_bytes(machine);
    // A huge page is what one page-table page of 8-byte entries maps.
    if is_huge { base * (base / 8) } else { base }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::machine;
    use kelvin_core::{Fact, MeasuredValue};

    #[test]
    fn available_memory_is_parsed() {
        let meminfo = "MemTotal:       24683520 kB\nMemFree:         100 kB\nMemAvailable:      2048 kB\n";
        assert_eq!(available_bytes(meminfo), Some(2 << 20));
        assert_eq!(available_bytes("MemTotal: 1 kB\n"), None);
    }

    #[test]
    fn fork_cost_is_linear_in_pages() {
        let machine = machine();
        let measured = |id: &str, case: &Case| {
            let value = match (id, RESIDENT.number_in(case), PageSize::of(case)) {
                (id, None, _) if id == PROCESS_FORK.id.as_str() => 22_880.0,
                (id, _, _) if id == BANDWIDTH_FILL.id.as_str() => 20.48e9,
                (_, Some(SMALL_RSS), Some(PageSize::Base)) => 30_000.0,
                (_, Some(DEFAULT_RSS), Some(PageSize::Base)) => 145_200.0,
                (_, Some(DEFAULT_RSS), Some(PageSize::Huge)) => 25_000.0,
                _ => return None,
            };
            Some(MeasuredValue { value, half_width: 0.0 })
        };
        let facts = PredictionInputs::new(&machine, &measured);
        let predicted = |mib: u64, pages| {
            predict(&facts, &PROCESS_FORK_RSS, &Case::new().with_number(RESIDENT, mib * MIB).with_word(pages))
        };
        let assert_close = |mib, pages, expected: f64| {
            let prediction = predicted(mib, pages).unwrap();
            assert!((prediction.value - expected).abs() < 1e-6, "{prediction:?}");
        };
        assert!(predicted(16, PageSize::Base).is_err());
        // 16 MiB are 4096 pages of 29.86 ns beyond a fork.
        assert_close(1, PageSize::Base, 22_880.0 + 256.0 * (145_200.0 - 22_880.0) / 4096.0);
        // 30 ns an entry: 3840 pages take 115.2 us.
        assert_close(64, PageSize::Base, 30_000.0 + 16_128.0 * 30.0);
        assert_eq!(
            predicted(64, PageSize::Base).unwrap().derivation,
            "30.0 µs + 16128 x (145 µs - 30.0 µs) / 3840 = 514 µs"
        );
        // A page-table page is cleared in 200 ns.
        assert_close(16, PageSize::Huge, 30_000.0 - 256.0 * 30.0 + 8.0 * 230.0);
        assert_close(256, PageSize::Huge, 25_000.0 + 120.0 * 230.0);
    }

    #[test]
    fn points_leave_half_of_the_memory_free() {
        let mut machine = machine();
        let sizes = |machine: &Machine, effort, pages| -> Vec<u64> {
            let cases = cases(machine, effort);
            let page_cases = cases.iter().filter(|case| PageSize::of(case) == Some(pages));
            page_cases.filter_map(|case| RESIDENT.number_in(case)).map(|bytes| bytes / MIB).collect()
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
}
