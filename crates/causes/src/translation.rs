//! Translation of addresses: misses in the TLBs, and the walks through page tables that they cause; in a virtual machine through two
//! sets of tables.

use kelvin_catalogue::controls::TRANSLATION;
use kelvin_catalogue::mem::{BYTES, HUGE_PAGE, LATENCY, PageSize, TLB, TLB_PACKED, TOUCHED_PAGES};
use kelvin_model::{Case, Difference, MetricAt, Reason};

use crate::cause::{Cause, Conditions, Control, Means, Mechanism, Scene, Touch, Touches};

pub(crate) static CAUSE: Cause = Cause {
    id: TRANSLATION.id,
    what: TRANSLATION.what,
    how: "A load from a page that the TLBs do not hold waits for a walk through the page tables, in a virtual machine through those of \
          the host as well. Shown in two ways: by the same working set in huge pages, of which the TLBs reach 512 times as far; and by \
          loads of one line in each of as many base pages, less loads of as many adjacent lines (mem.tlb and mem.tlb.packed), which \
          differ in nothing but the pages. As much counts as both show.",
    cost: "Memory for one more working set while a round runs.",
    pitfalls: &[
        "In a virtual machine the huge pages of the guest may lie on base pages of the host, which leaves half of the walk.",
        "Page tables are cached like data: a walk that finds them in a cache costs less than one that goes to memory. Where lines of a \
         set evict them, huge pages save more than the second way shows, and the rest is said not to be explained.",
        "Huge pages also lie together in physical memory, and so meet fewer conflicts in a cache.",
    ],
    helps: "ask for huge pages (madvise with MADV_HUGEPAGE), or touch fewer pages: keep what is used together together",
    touches: Touches::These(&[Touch::at(&LATENCY, PageSize::Base.point())]),
    mechanisms: &[
        Mechanism::new("with huge pages", Means::Without(Control { id: "huge_pages", apply: in_huge_pages })),
        Mechanism::new("one line in each of as many pages, less adjacent lines", Means::Difference(spread)),
    ],
    bystander: |_| MetricAt { metric: LATENCY.id, case: Case::new().at(PageSize::Base).with(BYTES, TRANSLATED) },
    size: |_| None,
};

/// Bytes whose pages the first TLB of every core holds: 16 entries.
const TRANSLATED: u64 = 32 << 10;
/// Bytes of a base page.
const PAGE: u64 = 4096;
/// Most pages of the second way: their lines are 1 MiB, which the caches that hold their page tables hold too.
const MOST_PAGES: u64 = 16_384;

fn in_huge_pages(scene: &Scene<'_>, conditions: &mut Conditions) -> Result<(), Reason> {
    if BYTES.of(scene.case).is_some_and(|bytes| bytes < HUGE_PAGE) {
        return Err(Reason::new("its working set is smaller than a huge page"));
    }
    conditions.case = conditions.case.clone().at(PageSize::Huge);
    Ok(())
}

fn spread(scene: &Scene<'_>) -> Option<Difference> {
    let pages = (BYTES.of(scene.case)? / PAGE).clamp(1, MOST_PAGES);
    let at =
        |metric: &kelvin_model::Metric| MetricAt { metric: metric.id, case: Case::new().with(TOUCHED_PAGES, pages) };
    Some(Difference { of: at(&TLB), less: at(&TLB_PACKED), times: 1.0 })
}
