//! The order of reads on this machine's disk: whether blocks at random take longer than blocks in order.

use kelvin_catalogue::file::{AccessOrder, SEQRAND};
use kelvin_model::{Conclusion, RatioQuestion};

use crate::evidence::{Ask, Evidence, Rounds};
use crate::result::Study;
use crate::words;

/// Conclusions that are short enough without an answer.
const FEW: usize = 4;

/// Conclusions from the metric `file.seqrand`, one for each file and state of the page cache.
pub(crate) fn order(evidence: &Evidence<'_>) -> Option<Study> {
    let all = evidence.all(&SEQRAND);
    let beside = |in_order: &Rounds<'_>| {
        let case = in_order.case.clone().at(AccessOrder::Random);
        let at_random = all.iter().find(|one| *one.case == case)?;
        Ask::above(RatioQuestion::RandomBesideInOrder, 1.0).of(in_order, at_random)
    };
    let in_order = all.iter().filter(|one| AccessOrder::of(one.case) == Some(AccessOrder::Sequential));
    let conclusions: Vec<Conclusion> = in_order.filter_map(beside).collect();
    let design = "Files of several sizes were read in blocks of 4 KiB, in order and in random order, one block at a time, through an \
                  empty page cache and past it, in several rounds.";
    Study::new(SEQRAND.id, design, conclusions)
}

/// Gives the study its answer, once its conclusions are corrected for one another.
pub(super) fn answer(study: &mut Study) {
    if study.id == SEQRAND.id && study.conclusions.len() > FEW {
        study.answers.extend(words::order::answer(&study.conclusions));
    }
}
