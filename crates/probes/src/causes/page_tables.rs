//! Copying page tables: a fork copies an entry for each page of the process, however soon the child throws them away.

use kelvin_core::catalogue::mem::{HUGE_PAGE, PageSize};
use kelvin_core::catalogue::os::{PROCESS_FORK, PROCESS_FORK_RSS, RESIDENT};
use kelvin_core::{Case, FigureDifference, MetricCase, SkipReason};

use super::cause::{
    AffectedMetrics, AmountSource, Cause, CauseContext, Mechanism, RoundConditions, at_word, null_call,
};
use crate::reasons::refuse_if;

pub(crate) static CAUSE: Cause = Cause {
    id: "page_tables",
    what: "copying page tables",
    how: "A fork gives the child page tables of its own, an entry for each page that the parent has touched. Shown in two ways: by the \
          same memory in huge pages, of which there are 512 times fewer; and by the fork less that of a small process. As much counts as \
          both show.",
    cost: "As much memory once more while a round runs.",
    pitfalls: &[
        "A huge page keeps a page table in reserve, which a fork makes as well: a part of the cost is left with huge pages.",
        "Copying is not all of it: a write of either process afterwards faults, and copies its page.",
    ],
    remedy: "start processes by posix_spawn or vfork, which copy no page tables, from a small helper, or keep large memory in huge pages",
    affected: AffectedMetrics::Listed(&[at_word(&PROCESS_FORK_RSS, PageSize::Base.point())]),
    mechanisms: &[
        Mechanism::without("fork_of_huge_pages", "with huge pages", apply),
        Mechanism::new("the fork less that of a small process", AmountSource::Difference(fork_difference)),
    ],
    negative_control: null_call,
    size: |_| None,
};

fn apply(scene: &CauseContext<'_>, conditions: &mut RoundConditions) -> Result<(), SkipReason> {
    let reason = "its memory is smaller than a huge page";
    refuse_if(RESIDENT.number_in(scene.case).is_some_and(|bytes| bytes < HUGE_PAGE), reason)?;
    conditions.replace_word(PageSize::Huge);
    Ok(())
}

fn fork_difference(scene: &CauseContext<'_>) -> Option<FigureDifference> {
    let minuend = MetricCase { metric: PROCESS_FORK_RSS.id, case: scene.case.clone() };
    let subtrahend = MetricCase { metric: PROCESS_FORK.id, case: Case::new() };
    Some(FigureDifference { minuend, subtrahend, factor: 1.0 })
}
