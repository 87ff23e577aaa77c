//! The studies: each a file that draws conclusions from the measurements of a run, and the list of them.

mod arguments;
mod byte_calls;
pub(crate) mod contention;
mod crossing;
mod dependence;
pub(crate) mod engines;
pub(crate) mod files;
mod forks;
pub(crate) mod load;
mod multiple_testing;
pub(crate) mod network;
mod one_way_wake_up;
pub(crate) mod pages;
pub(crate) mod peer;
pub(crate) mod read_order;
pub(crate) mod remote;
mod system;
pub(crate) mod tasks;
pub(crate) mod threads;
pub(crate) mod transfer;
pub(crate) mod tune;

use crate::evidence::Evidence;
use crate::reference::published_server;
use crate::result::{MetricResult, StatedConclusion, Study};
use crate::wording;
use kelvin_core::catalogue::os;
use kelvin_core::{Claim, Conclusion, Name, Run};
pub(crate) use multiple_testing::correct_p_values;

/// Draws the conclusions of one study; `None` where its metrics were not measured.
pub(crate) type StudyFn = fn(&Evidence<'_>) -> Option<Study>;

/// All studies, in the order of reports.
const STUDIES: [StudyFn; 21] = [
    system::system,
    arguments::arguments,
    forks::forks,
    one_way_wake_up::one_way,
    tasks::tasks,
    pages::pages,
    files::cache_below,
    byte_calls::byte_calls,
    files::block_sizes,
    files::depths,
    read_order::read_order,
    contention::contention,
    threads::threads,
    engines::engines,
    remote::remote,
    tune::tune,
    network::calls,
    network::streams,
    peer::peer,
    transfer::transfer,
    load::load,
];

/// Share from which a CPU that runs a test is full; the network probes' notes use the same.
pub const FULL_CPU_SHARE: f64 = 0.95;

impl From<Conclusion> for StatedConclusion {
    fn from(conclusion: Conclusion) -> Self {
        Self { text: wording::claim(&conclusion), test: wording::evidence(&conclusion), conclusion }
    }
}

impl Study {
    /// A study of some conclusions; `None` without any.
    fn new(id: Name, design: impl Into<String>, conclusions: Vec<Conclusion>) -> Option<Self> {
        let conclusions: Vec<StatedConclusion> = conclusions.into_iter().map(StatedConclusion::from).collect();
        (!conclusions.is_empty()).then(|| Self {
            id,
            answers: Vec::new(),
            design: design.into(),
            conclusions,
            tables: Vec::new(),
            in_tables: Vec::new(),
        })
    }
}

/// The sentence of a study that compares several measures; `None` of one that has a measure of its own.
pub fn study_summary(study: Name) -> Option<&'static str> {
    (study == os::STUDY).then_some(os::STUDY_SUMMARY)
}

/// The published study of a file server under load, judged from its capacities alone.
pub fn published_load() -> Study {
    load::published::published_study(published_server())
}

/// The ids of all studies, in the order of reports.
pub fn study_ids() -> [Name; STUDIES.len()] {
    use kelvin_core::catalogue::cpu::CALL_ARGS;
    use kelvin_core::catalogue::file::{
        BLOCKSIZE, BYTE_CALLS, CONTENTION, DEPTH, DEVICE, ENGINES, READ_ORDER, REMOTE_BLOCK, THREADS, TUNE_RATE,
    };
    [
        os::STUDY,
        CALL_ARGS.id,
        os::PROCESS_FORK_RSS.id,
        os::ONE_WAY_WAKE_UP.id,
        os::TASKS,
        kelvin_core::catalogue::mem::PAGE_STUDY,
        DEVICE,
        BYTE_CALLS.id,
        BLOCKSIZE,
        DEPTH,
        READ_ORDER.id,
        CONTENTION.id,
        THREADS.id,
        ENGINES.id,
        REMOTE_BLOCK.id,
        TUNE_RATE.id,
        network::CALLS_STUDY,
        network::STREAMS_STUDY,
        peer::PEER_STUDY,
        transfer::TRANSFER_STUDY,
        load::LOAD_STUDY,
    ]
}

/// What a study of a report rests on, by its id: ids of metrics, or leading parts of them. It is the id alone but of round trips, which
/// are held against calls and connections, and of the operating system, which compares some of its metrics and those of calls.
pub fn study_metrics(study: &str) -> Vec<&str> {
    if os::STUDY == *study {
        return system::SYSTEM_PROBES.to_vec();
    }
    let others = if network::CALLS_STUDY == *study { &network::ROUND_TRIP_INPUTS[..] } else { &[] };
    std::iter::once(study).chain(others.iter().copied()).collect()
}

/// The conclusions that follow from the measurements of a run, study by study.
pub fn studies(run: &Run) -> Vec<Study> {
    let mut studies = uncorrected_studies(run);
    correct_p_values(studies.iter_mut().flat_map(|study| &mut study.conclusions).collect());
    add_answers(&mut studies);
    studies
}

/// Gives studies the answers that follow from their conclusions, once these are corrected for one another.
pub(crate) fn add_answers(studies: &mut [Study]) {
    for study in studies {
        engines::add_answer(study);
        read_order::answer(study);
    }
}

/// The same, each conclusion on its own.
pub(crate) fn uncorrected_studies(run: &Run) -> Vec<Study> {
    let evidence = Evidence::from_run(run);
    let ids = study_ids();
    let draw = |(draw, id): (&StudyFn, Name)| draw(&evidence).inspect(|study| debug_assert_eq!(study.id, id));
    STUDIES.iter().zip(ids).filter_map(draw).collect()
}

/// What a report concludes of a claim, among all of its conclusions.
pub(crate) fn find_conclusion<'s>(studies: &'s [Study], claim: &Claim) -> Option<&'s StatedConclusion> {
    studies.iter().flat_map(|study| &study.conclusions).find(|known| known.claim == *claim)
}

/// Gives studies the tables of what was measured; one without conclusions has them too.
pub(crate) fn add_tables(mut studies: Vec<Study>, results: &[MetricResult]) -> Vec<Study> {
    if let Some(study) = studies.iter_mut().find(|study| study.id == kelvin_core::catalogue::file::BYTE_CALLS.id) {
        study.tables.extend(byte_calls::rate_table(results));
    }
    let tables = transfer::tables::transfer_tables(results);
    if tables.is_empty() {
        return studies;
    }
    let place = studies.iter().position(|study| study.id == transfer::TRANSFER_STUDY).unwrap_or_else(|| {
        studies.push(transfer::study(Vec::new()));
        studies.len() - 1
    });
    studies[place].tables = tables;
    studies
}
