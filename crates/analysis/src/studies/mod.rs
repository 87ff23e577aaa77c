//! The studies: each a file that draws conclusions from the measurements of a run, and the list of them.

mod byte_calls;
pub(crate) mod contention;
pub(crate) mod crossing;
mod dependence;
pub(crate) mod engines;
pub(crate) mod files;
pub(crate) mod load;
mod multiple_testing;
pub(crate) mod network;
pub(crate) mod pages;
pub(crate) mod peer;
pub(crate) mod read_order;
pub(crate) mod remote;
mod system;
pub(crate) mod tasks;
pub(crate) mod threads;
pub(crate) mod transfer;
pub(crate) mod tune;

use kelvin_core::catalogue::cpu::CALL_ARGS;
use kelvin_core::catalogue::mem::PAGE_STUDY;
use kelvin_core::catalogue::{file, os};

use crate::prelude::*;
pub(crate) use multiple_testing::correct_p_values;

/// A study: its id, what it rests on, ids of metrics or leading parts of them, and how its conclusions are drawn.
struct StudyRule {
    id: Name,
    /// Nothing where that is the id itself.
    rests_on: &'static [&'static str],
    /// `None` where its metrics were not measured.
    draw: fn(&Evidence<'_>) -> Option<Study>,
}

const fn rule(id: Name, draw: fn(&Evidence<'_>) -> Option<Study>) -> StudyRule {
    StudyRule { id, rests_on: &[], draw }
}

/// All studies, in the order of reports.
const STUDIES: [StudyRule; 21] = [
    StudyRule { rests_on: &system::SYSTEM_PROBES, ..rule(os::STUDY, system::system) },
    rule(CALL_ARGS.id, dependence::arguments),
    rule(os::PROCESS_FORK_RSS.id, dependence::forks),
    rule(os::ONE_WAY_WAKE_UP.id, system::one_way),
    rule(os::TASKS, tasks::tasks),
    rule(PAGE_STUDY, pages::pages),
    rule(file::DEVICE, files::cache_below),
    rule(file::BYTE_CALLS.id, byte_calls::byte_calls),
    rule(file::BLOCKSIZE, files::block_sizes),
    rule(file::DEPTH, files::depths),
    rule(file::READ_ORDER.id, read_order::read_order),
    rule(file::CONTENTION.id, contention::contention),
    rule(file::THREADS.id, threads::threads),
    rule(file::ENGINES.id, engines::engines),
    rule(file::REMOTE_BLOCK.id, remote::remote),
    rule(file::TUNE_RATE.id, tune::tune),
    StudyRule { rests_on: &network::CALLS_METRICS, ..rule(network::CALLS_STUDY, network::calls) },
    rule(network::STREAMS_STUDY, network::streams),
    rule(peer::PEER_STUDY, peer::peer),
    rule(transfer::TRANSFER_STUDY, transfer::transfer),
    rule(load::LOAD_STUDY, load::load),
];

/// Share from which a CPU that runs a test is full; the network probes' notes use the same.
pub const FULL_CPU_SHARE: f64 = 0.95;

impl Study {
    /// A study of some conclusions; `None` without any.
    fn new(id: Name, design: impl Into<String>, conclusions: Vec<StatedConclusion>) -> Option<Self> {
        (!conclusions.is_empty()).then(|| Self { id, design: design.into(), conclusions, ..Self::default() })
    }
}

/// The sentence of a study that compares several measures; `None` of one that has a measure of its own.
pub fn study_summary(study: Name) -> Option<&'static str> {
    (study == os::STUDY).then_some(os::STUDY_SUMMARY)
}

/// The published study of a file server under load, judged from its capacities alone.
pub fn published_load() -> Study {
    load::published::published_study(kelvin_reference::published::published_server())
}

/// The ids of all studies, in the order of reports.
pub fn study_ids() -> [Name; STUDIES.len()] {
    STUDIES.map(|study| study.id)
}

/// What a study of a report rests on, by its id: ids of metrics, or leading parts of them.
pub fn study_metrics(study: &str) -> Vec<&str> {
    let study_rule = STUDIES.iter().find(|candidate| candidate.id == *study && !candidate.rests_on.is_empty());
    study_rule.map_or_else(|| vec![study], |candidate| candidate.rests_on.to_vec())
}

/// The conclusions that follow from the measurements of a run, study by study.
pub fn studies(run: &Run) -> Vec<Study> {
    let mut studies = uncorrected_studies(&Evidence::from_run(run));
    correct_p_values(studies.iter_mut().flat_map(|study| &mut study.conclusions).collect());
    add_answers(&mut studies);
    studies
}

/// Gives studies the answers that follow from their conclusions, once these are corrected for one another.
pub(crate) fn add_answers(studies: &mut [Study]) {
    for study in studies {
        engines::add_answer(study);
        read_order::add_answer(study);
    }
}

/// The conclusions, each on its own.
pub(crate) fn uncorrected_studies(evidence: &Evidence<'_>) -> Vec<Study> {
    let draw = |rule: &StudyRule| (rule.draw)(evidence).inspect(|study| debug_assert_eq!(study.id, rule.id));
    STUDIES.iter().filter_map(draw).collect()
}

/// What a report concludes of a claim, among all of its conclusions.
pub(crate) fn find_conclusion<'s>(studies: &'s [Study], claim: &Claim) -> Option<&'s StatedConclusion> {
    studies.iter().flat_map(|study| &study.conclusions).find(|conclusion| conclusion.claim == *claim)
}

/// Gives studies the tables of what was measured; one without conclusions has them too.
pub(crate) fn add_tables(mut studies: Vec<Study>, results: &[MetricResult]) -> Vec<Study> {
    if let Some(study) = studies.iter_mut().find(|study| study.id == file::BYTE_CALLS.id) {
        study.tables.extend(byte_calls::rate_table(results));
    }
    let tables = transfer::tables::transfer_tables(results);
    if tables.is_empty() {
        return studies;
    }
    let new = || Study { id: transfer::TRANSFER_STUDY, design: transfer::DESIGN.into(), ..Study::default() };
    find_or_push(&mut studies, |study| study.id == transfer::TRANSFER_STUDY, new).tables = tables;
    studies
}
