//! Copying page tables: a fork copies an entry for each page of the process, however soon the child throws them away.

use kelvin_core::catalogue::mem::{HUGE_PAGE, PageSize};
use kelvin_core::catalogue::os::{PROCESS_FORK, PROCESS_FORK_RSS, RESIDENT};
use kelvin_core::{Case, FigureDifference, MetricCase, SkipReason};

use super::cause::{AffectedMetrics, AmountSource, Cause, CauseContext, Mechanism, RoundConditions, at_word};
use crate::reasons::refuse_if;

pub(crate) static CAUSE: Cause = Cause {
    affected: AffectedMetrics::Listed(&[at_word(&[&PROCESS_FORK_RSS], PageSize::Base.point())]),
    mechanisms: &[
        Mechanism::without("fork_of_huge_pages", "with huge pages", apply),
        Mechanism::new("the fork less that of a small process", AmountSource::Difference(fork_difference)),
    ],
    ..Cause::new("page_tables", "copying page tables", include_str!("page_tables.md"))
};

fn apply(context: &CauseContext<'_>, conditions: &mut RoundConditions) -> Result<(), SkipReason> {
    let reason = "its memory is smaller than a huge page";
    refuse_if(RESIDENT.number_in(context.case).is_some_and(|bytes| bytes < HUGE_PAGE), reason)?;
    conditions.replace_word(PageSize::Huge);
    Ok(())
}

fn fork_difference(context: &CauseContext<'_>) -> Option<FigureDifference> {
    let minuend = MetricCase { metric: PROCESS_FORK_RSS.id, case: context.case.clone() };
    let subtrahend = MetricCase { metric: PROCESS_FORK.id, case: Case::new() };
    Some(FigureDifference { minuend, subtrahend, factor: 1.0 })
}
