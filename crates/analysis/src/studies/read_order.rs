//! The order of reads on this machine's disk: whether blocks at random take longer than blocks in order.

use kelvin_core::catalogue::file::{AccessOrder, READ_ORDER};
use kelvin_core::{Conclusion, RatioQuestion};

use crate::evidence::{Evidence, RatioTest, RoundHeadlines};
use crate::result::Study;
use crate::wording;

/// Conclusions that are short enough without an answer.
const FEW: usize = 4;

/// Conclusions from the metric `file.seqrand`, one for each file and state of the page cache.
pub(crate) fn read_order(evidence: &Evidence<'_>) -> Option<Study> {
    let all = evidence.all_cases(&READ_ORDER);
    let beside = |in_order: &RoundHeadlines<'_>| {
        let case = in_order.case.clone().with_word(AccessOrder::Random);
        let at_random = all.iter().find(|one| *one.case == case)?;
        RatioTest::above(RatioQuestion::RandomBesideInOrder, 1.0).test(in_order, at_random)
    };
    let in_order = all.iter().filter(|one| AccessOrder::of(one.case) == Some(AccessOrder::Sequential));
    let conclusions: Vec<Conclusion> = in_order.filter_map(beside).collect();
    let design = "Files of several sizes were read in blocks of 4 KiB, in order and in random order, one block at a time, through an \
                  empty page cache and past it, in several rounds.";
    Study::new(READ_ORDER.id, design, conclusions)
}

/// Gives the study its answer, once its conclusions are corrected for one another.
pub(super) fn answer(study: &mut Study) {
    if study.id == READ_ORDER.id && study.conclusions.len() > FEW {
        study.answers.extend(wording::order::answer(&study.conclusions));
    }
}
