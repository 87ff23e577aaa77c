//! What can make a figure what it is: one file per cause, the list of them, and the experiment that shows their shares.
//!
//! To add a cause, add a file that holds a `pub(crate) static CAUSE: Cause`, its text in Markdown, and a line in
//! `ALL`. Its control must be an intervention that ends by drop: nothing of it stays, however a round or this process
//! ends.
mod address_translation;
mod cause;
mod cgroup_quota;
mod cold_cache;
mod congestion_control;
mod experiment;
mod file_system;
mod flush;
mod fresh_memory;
mod idle_wake;
mod interventions;
mod memory_limit;
mod neighbour;
mod other_work;
mod page_tables;
mod read_ahead;
mod remote_interrupt;
mod socket_buffers;
mod store_bypass;
mod timer_slack;
mod zero_copy;

pub use cause::{
    AffectedCases, AffectedMetrics, AmountSource, Cause, CauseContext, CauseText, Intervention, Mechanism,
    RoundConditions,
};
pub use experiment::{ExperimentRunner, ExperimentSubject, ROUND_TIMING};

/// All causes, in the order in which they are reported.
pub fn all() -> &'static [&'static Cause] {
    &ALL
}

static ALL: [&Cause; 18] = [
    &idle_wake::CAUSE,
    &remote_interrupt::CAUSE,
    &timer_slack::CAUSE,
    &address_translation::CAUSE,
    &page_tables::CAUSE,
    &fresh_memory::CAUSE,
    &congestion_control::CAUSE,
    &socket_buffers::CAUSE,
    &zero_copy::CAUSE,
    &cold_cache::CAUSE,
    &file_system::CAUSE,
    &flush::CAUSE,
    &read_ahead::CAUSE,
    &cgroup_quota::CAUSE,
    &memory_limit::CAUSE,
    &store_bypass::CAUSE,
    &other_work::CAUSE,
    &neighbour::CAUSE,
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ids_are_unique_and_texts_not_empty() {
        let ids: BTreeSet<&str> = all().iter().map(|cause| cause.id).collect();
        assert_eq!(ids.len(), all().len());
        for cause in all() {
            let CauseText { how, cost, remedy, pitfalls } = cause.text();
            let texts = [how, cost, remedy];
            assert!(texts.iter().chain(&pitfalls).all(|text| !text.is_empty()), "{}", cause.id);
            assert!(!cause.summary.is_empty() && !pitfalls.is_empty(), "{}", cause.id);
            assert!(cause.affected.listed().is_none_or(|listed_cases| !listed_cases.is_empty()), "{}", cause.id);
            assert!(!cause.mechanisms.is_empty(), "{}", cause.id);
        }
    }

    #[test]
    fn intervention_ids_are_unique() {
        let controls =
            || all().iter().flat_map(|cause| cause.mechanisms).flat_map(|mechanism| mechanism.source.interventions());
        for control in controls() {
            let duplicates: Vec<&Intervention> = controls().filter(|other| other.id == control.id).collect();
            assert!(duplicates.iter().all(|other| std::ptr::fn_addr_eq(other.apply, control.apply)), "{}", control.id);
        }
    }
}
