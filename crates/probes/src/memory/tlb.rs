//! The cost of a TLB miss: one line per page against as many adjacent lines.
//!
//! The difference of the two curves is the cost of a miss. It must not be used as the cost of a page fault: all pages
//! are mapped.

use kelvin_catalogue::cpu::FREQUENCY;
use kelvin_catalogue::mem::{TLB, TLB_PACKED, TOUCHED_PAGES};
use kelvin_harness::{Bench, Effort, Facts, Method, Probe, ProbeKind, Stop};
use kelvin_model::{Basis, CacheKind, Case, Machine, Metric, NoPrediction, Prediction, Unit};
use kelvin_sys::memory::{LINE, Pages, Ring};

use super::axes::{check_pages, number, obtained};
use super::published::cache_bytes;
use super::{allowance, latency};
use crate::predict::Predicting;
use crate::published;

pub(crate) static PROBE: Probe = Probe {
    id: TLB.id.as_str(),
    summary: "Latency of dependent loads over one line in each of many pages, and over as many adjacent lines",
    kind: ProbeKind::Measure,
    method: Method {
        how: "Two rings of pointers in random order, each chased by a chain of loads in assembly, in the same process: \
              one line in each base page, and as many adjacent lines. The line within the page advances by one from \
              page to page, so both rings use the cache sets alike and differ only in the number of pages, 64 to one. \
              Pages are checked in /proc/self/smaps to be base pages.",
        prediction: "Within L1 and the L1 TLB: published cycles of an L1 load at the measured frequency. With more \
                     pages than the reported L1 TLB holds and within the L2 TLB: 7 to 9 cycles more, as published for \
                     Intel and AMD cores. Else none: the cost of a page walk depends on where the page tables lie.",
        not_for: "Page faults; misses with huge pages (compare mem.latency with both page sizes for those).",
        pitfalls: &[
            "A line at the same offset in every page maps to one L1 set: cache misses then look like TLB misses.",
            "In a virtual machine a page walk goes through two sets of page tables: up to 24 accesses instead of 4.",
            "Unrequested huge pages: they are disabled here.",
            "Page tables are cached like data: a walk is as fast as the cache that holds them.",
        ],
        sources: &["lmbench tlb", "Drepper, What Every Programmer Should Know About Memory, 2007, section 3.3.2 (TLB)"],
    },
    metrics: &[&TLB, &TLB_PACKED],
    inputs: &[FREQUENCY.id.as_str()],
    cases,
    run,
    predict,
};

/// Numbers of pages: below, at and above the TLBs of known cores (first level 16 to 96 entries, second level 512 to
/// 4096).
const COUNTS: [u64; 11] = [16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384];
const USUAL: [u64; 6] = [16, 64, 256, 1024, 4096, 16384];
const QUICK: [u64; 3] = [16, 256, 16384];
const PAGE: u64 = 4096;

fn cases(machine: &Machine, effort: Effort) -> Vec<Case> {
    let counts: &[u64] = match effort {
        Effort::Quick => &QUICK,
        Effort::Default => &USUAL,
        Effort::Thorough => &COUNTS,
    };
    let most = allowance::allowance(machine) / (PAGE + LINE as u64);
    let fitting = counts.iter().filter(|&&count| count <= most);
    fitting.map(|&count| Case::new().with(TOUCHED_PAGES, count)).collect()
}

fn run(bench: &mut Bench<'_>, case: &Case) -> Result<(), Stop> {
    let count = number(case, TOUCHED_PAGES)?;
    let bytes = count * PAGE as usize;
    let mut packed = obtained(count * LINE, Ring::new(count * LINE, Pages::Base, bench.seed()))?;
    chase(bench, &TLB_PACKED, &mut packed)?;
    let mut spread = obtained(bytes, Ring::one_line_a_page(count, bench.seed()))?;
    bench.note(check_pages(spread.arena(), Pages::Base)?);
    chase(bench, &TLB, &mut spread)
}

fn chase(bench: &mut Bench<'_>, metric: &Metric, ring: &mut Ring) -> Result<(), Stop> {
    ring.chase(ring.lines() as u64);
    bench.time(metric, |loads| {
        ring.chase(loads);
        Ok(())
    })
}

/// Predicted range around the published latencies, as a share.
const TOLERANCE: f64 = 0.05;

fn predict(facts: &Facts<'_>, metric: &Metric, case: &Case) -> Result<Prediction, NoPrediction> {
    let count = TOUCHED_PAGES.of(case).ok_or_else(|| NoPrediction::because("the case has no count"))?;
    let lines = count * LINE as u64;
    let first = cache_bytes(facts.machine(), 1)
        .ok_or_else(|| NoPrediction::because("the machine reports no size of its L1 cache"))?;
    if lines > first {
        return Err(NoPrediction::because(format!(
            "its {lines} bytes of lines do not fit the L1 cache of {first} bytes: see mem.latency"
        )));
    }
    let core = published::core(facts)?;
    let [least, most] = if metric.id == TLB_PACKED.id { [0.0; 2] } else { missed(facts.machine(), count)? };
    let frequency = published::frequency(facts)?;
    let nanoseconds = |cycles: f64| cycles * 1e9 / frequency.value;
    let cycles = core.load + (least + most) / 2.0;
    let low = nanoseconds(core.load + least) * (1.0 - TOLERANCE);
    let high = nanoseconds(core.load + most) * (1.0 + TOLERANCE);
    let mut predicting = Predicting::between(Basis::Published, nanoseconds(cycles), low, high)
        .formula("(published load + published L1 TLB miss) / core frequency")
        .input(published::cycles("load", core.load, core.source))
        .source(core.source);
    if most > 0.0 {
        let source = latency::SECOND_TLB_SOURCE;
        predicting = predicting.constant("TLB miss", (least + most) / 2.0, Unit::Cycles, source).source(source);
    }
    Ok(predicting.input(frequency.clone()).derived_as(format!(
        "({} + {}) cycles / {:.3} GHz = {:.2} ns",
        core.load,
        (least + most) / 2.0,
        frequency.value / 1e9,
        nanoseconds(cycles)
    )))
}

/// Published core cycles, lowest and highest, of a TLB miss over so many pages.
fn missed(machine: &Machine, count: u64) -> Result<[f64; 2], NoPrediction> {
    let entries = |level| {
        let tlbs = machine.cpu.tlbs.get()?;
        let fits = |tlb: &&kelvin_model::Tlb| {
            tlb.level == level && tlb.kind != CacheKind::Instruction && tlb.page_bytes == PAGE
        };
        tlbs.iter().find(fits).map(|tlb| u64::from(tlb.entries))
    };
    let unknown = || NoPrediction::because("the machine reports no TLB for 4 KiB pages");
    if count <= entries(1).ok_or_else(unknown)? {
        return Ok([0.0; 2]);
    }
    if count <= entries(2).ok_or_else(unknown)? {
        return Ok(latency::SECOND_TLB);
    }
    Err(NoPrediction::because("the cost of a page walk depends on where the page tables lie, and is not published"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use kelvin_harness::MeasuredValue;
    use kelvin_model::{Cache, Fact, Tlb};

    #[test]
    fn a_miss_adds_its_published_cycles_where_the_second_level_holds_the_pages() {
        let mut machine = testing::machine();
        let tlb = |level, entries| Tlb { level, kind: CacheKind::Data, page_bytes: PAGE, entries, ways: 4 };
        machine.cpu.tlbs = Fact::known(vec![tlb(1, 64), tlb(2, 1536)], "a test");
        machine.cpu.microarchitecture = Fact::known("Skylake".into(), "a test");
        let cache = Cache {
            level: 1,
            kind: CacheKind::Data,
            bytes: 32 << 10,
            ways: None,
            line_bytes: None,
            shared_by: vec![0],
        };
        machine.topology.caches = Fact::known(vec![cache], "a test");
        let measured = |_: &str, _: &Case| Some(MeasuredValue { value: 4e9, half_width: 0.0 });
        let facts = Facts::new(&machine, &measured);
        let at = |metric, count| predict(&facts, metric, &Case::new().with(TOUCHED_PAGES, count));
        assert_eq!(at(&TLB, 64).unwrap().value, 1.0);
        let missed = at(&TLB, 256).unwrap();
        assert_eq!((missed.value, missed.derivation.as_str()), (3.0, "(4 + 8) cycles / 4.000 GHz = 3.00 ns"));
        assert_eq!(at(&TLB_PACKED, 256).unwrap().value, 1.0);
        assert!(at(&TLB, 4096).unwrap_err().0.contains("do not fit the L1 cache"));
        assert!(missed.low < 2.75 && missed.high > 3.25);
        assert!(super::missed(&machine, 2048).is_err());
    }

    #[test]
    fn less_effort_has_fewer_of_the_same_counts() {
        assert!(USUAL.iter().all(|count| COUNTS.contains(count)));
        assert!(QUICK.iter().all(|count| USUAL.contains(count)));
    }
}
