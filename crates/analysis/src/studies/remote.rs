//! A remote directory: the share of each block's time spent getting there, and whether the order of reads matters less there.

use kelvin_core::catalogue::file::{
    AccessOrder, BYTES, CacheState, LOCAL_BLOCK, REMOTE_BLOCK, REMOTE_REQUESTS, REMOTE_SHARE,
};
use kelvin_core::{Case, Claim, Conclusion, Estimate, Metric, ShareQuestion, TestEvidence};

use crate::evidence::{
    EQUIVALENCE_MARGIN, Evidence, LimitSide, RoundHeadlines, TestedFigure, ratio_of_rounds, share_conclusion,
};
use crate::result::Study;

/// Conclusions from the metrics `file.remote.*`.
pub(crate) fn remote(evidence: &Evidence<'_>) -> Option<Study> {
    let shares = evidence.all_cases(&REMOTE_SHARE);
    let of_largest = shares.iter().filter(|one| is_largest(one.case, &shares));
    let mut conclusions: Vec<Conclusion> = of_largest
        .filter_map(|shares| {
            share_conclusion(ShareQuestion::RemoteWay, shares.metric_value(), shares, 0.0, LimitSide::Above)
        })
        .collect();
    let in_order = shares.iter().filter(|one| AccessOrder::of(one.case) == Some(AccessOrder::Sequential));
    // In memory nothing is fetched in any order.
    let fetched = in_order.filter(|one| CacheState::of(one.case) != Some(CacheState::Cached));
    conclusions.extend(fetched.filter_map(|one| order_convergence(evidence, one)));
    let design = "Blocks of 4 KiB were read in turn from a file in a remote directory and from one of the same size on this \
                  machine, in several rounds.";
    Study::new(REMOTE_BLOCK.id, design, conclusions)
}

/// Whether no larger file was read in the same state and order.
fn is_largest(case: &Case, all: &[RoundHeadlines<'_>]) -> bool {
    let way = |case: &Case| (CacheState::of(case), AccessOrder::of(case));
    !all.iter().any(|other| way(other.case) == way(case) && BYTES.number_in(other.case) > BYTES.number_in(case))
}

/// Whether blocks in order and at random are closer to each other remotely than locally.
///
/// Remote and local blocks were read in turn, so the ratio of both is a figure of a round; that of blocks at random over that of
/// blocks in order is what the network makes of the effect of order.
fn order_convergence(evidence: &Evidence<'_>, in_order: &RoundHeadlines<'_>) -> Option<Conclusion> {
    let cases = [in_order.case.clone(), in_order.case.clone().with_word(AccessOrder::Random)];
    let at_random = evidence.rounds_at(&REMOTE_SHARE, &cases[1])?;
    let [longer_in_order, longer_at_random] = [in_order, &at_random].map(remote_over_local);
    let weighed = TestedFigure::ratio(&longer_in_order?, &longer_at_random?, None)?;
    let ratio = weighed.estimate;
    let of = |metric: &Metric| Some([evidence.rounds_at(metric, &cases[0])?, evidence.rounds_at(metric, &cases[1])?]);
    let (remote, local) = (of(&REMOTE_BLOCK)?, of(&LOCAL_BLOCK)?);
    let requests = of(&REMOTE_REQUESTS).map(|counts| counts.map(|count| count.headline()));
    Some(Conclusion {
        claim: Claim::OrderConverges {
            remote: remote.each_ref().map(RoundHeadlines::metric_value),
            ratios: [order_effect(&remote)?, order_effect(&local)?],
            ratio,
            requests,
        },
        holds: ratio.is_below(1.0),
        evidence: TestEvidence::RatioOfMedians {
            rounds: [at_random.values.len(), in_order.values.len()],
            chosen_among: None,
        },
        tested: weighed.test(1.0, Some(EQUIVALENCE_MARGIN)),
    })
}

/// How much longer a block at random takes than one in order.
fn order_effect([in_order, at_random]: &[RoundHeadlines<'_>; 2]) -> Option<Estimate> {
    ratio_of_rounds(in_order, at_random).map(|weighed| weighed.estimate)
}

/// The remote time over the local one, round by round; `None` where a local block took no time.
fn remote_over_local(shares: &RoundHeadlines<'_>) -> Option<Vec<f64>> {
    let ratios = shares.values.iter().map(|share| (*share < 1.0).then(|| 1.0 / (1.0 - share)));
    ratios.collect()
}
