//! A remote directory: the share of each block's time spent getting there, and whether the order of reads matters less there.

use kelvin_core::catalogue::file::*;

use super::files::state_and_file;
use crate::prelude::*;

/// How far two counts of requests may differ and count as the same: a few are for the file, not for a block.
const MAX_REQUEST_GAP: f64 = 0.1;

/// Conclusions from the metrics `file.remote.*`.
pub(crate) fn remote(evidence: &Evidence<'_>) -> Option<Study> {
    let shares = evidence.all_cases(&REMOTE_SHARE);
    let remote_share = |shares: &RoundHeadlines<'_>| {
        let (question, side) = (ShareQuestion::RemoteAccess, Estimate::is_above);
        let test = ShareTest { question, figure: shares.metric_value(), shares, side, limit: 0.0 };
        test.conclude(|figure, share| share_sentence(&figure.case, share, share.is_above(0.0)))
    };
    // The largest file of each page cache state and order.
    let kind = |case: &Case| (CacheState::of(case), AccessOrder::of(case));
    let is_larger =
        |case: &Case, other: &Case| kind(case) == kind(other) && BYTES.number_in(case) > BYTES.number_in(other);
    let is_largest = |rounds: &&RoundHeadlines<'_>| !shares.iter().any(|other| is_larger(other.case, rounds.case));
    let largest_conclusions = shares.iter().filter(is_largest).filter_map(remote_share);
    let in_order = shares.iter().filter(|rounds| AccessOrder::of(rounds.case) == Some(AccessOrder::Sequential));
    // In memory nothing is fetched in any order.
    let fetched = in_order.filter(|rounds| CacheState::of(rounds.case) != Some(CacheState::Cached));
    let conclusions =
        largest_conclusions.chain(fetched.filter_map(|rounds| order_convergence(evidence, rounds))).collect();
    let design = "Blocks of 4 KiB were read alternately from a file in a remote directory and from one of the same size on this \
                  machine, in several rounds.";
    Study::new(REMOTE_BLOCK.id, design, conclusions)
}

/// The share of a remote block's time that is remote access, as certain as it is.
pub(super) fn share_sentence(case: &Case, share: &Estimate, holds: Option<bool>) -> String {
    let order = if AccessOrder::of(case) == Some(AccessOrder::Sequential) { "sequential" } else { "random" };
    let share = share_text(share);
    let access = match holds {
        Some(true) => format!("remote access is {share} of its time"),
        Some(false) => format!("it takes {share} less"),
        None => format!("remote access is {share} of its time, possibly none"),
    };
    format!("{}, {order} reads: a remote block takes longer than a local one; {access}", state_and_file(case))
}

/// Whether blocks in order and at random are closer to each other remotely than locally.
///
/// Remote and local blocks were read alternately, so the ratio of both is a figure of a round; that of blocks at random over that of
/// blocks in order is what the network makes of the effect of order.
fn order_convergence(evidence: &Evidence<'_>, in_order: &RoundHeadlines<'_>) -> Option<StatedConclusion> {
    let cases = [in_order.case.clone(), in_order.case.clone().with_word(AccessOrder::Random)];
    let at_random = evidence.rounds_at(&REMOTE_SHARE, &cases[1])?;
    // The time of a remote block over that of a local one, round by round.
    let [sequential_ratios, random_ratios] = [in_order, at_random].map(|shares| -> Option<Vec<f64>> {
        shares.values.iter().map(|share| (*share < 1.0).then(|| 1.0 / (1.0 - share))).collect()
    });
    let tested = TestedFigure::ratio(&sequential_ratios?, &random_ratios?, None)?;
    let ratio = tested.estimate;
    let order_pair =
        |metric: &Metric| Some([evidence.rounds_at(metric, &cases[0])?, evidence.rounds_at(metric, &cases[1])?]);
    let (remote, local) = (order_pair(&REMOTE_BLOCK)?, order_pair(&LOCAL_BLOCK)?);
    let requests = order_pair(&REMOTE_REQUESTS).map(|counts| counts.map(RoundHeadlines::headline));
    // How much longer a block at random takes than one in order.
    let effect = |[in_order, at_random]: [_; 2]| Some(ratio_of_rounds(in_order, at_random)?.estimate);
    let ratios = [effect(remote)?, effect(local)?];
    let requests_text = requests.map(|[in_order, at_random]| {
        let [sequential, random] = [in_order, at_random].map(|count| format!("{} requests", number(count)));
        match (in_order - at_random).abs() <= MAX_REQUEST_GAP * at_random {
            true => format!("; a block is {sequential} to the server in either order"),
            false => format!("; a block is {sequential} to the server in order, and {random} at random"),
        }
    });
    let local_times = span_text(&ratios[1], number).replacen(" (", " times (", 1);
    let (file, times) = (state_and_file(in_order.case), ratio_text(&ratios[0], "as long as sequential ones"));
    let text = format!(
        "{file}: the order of reads matters less over the network: random ones take {times}, on this machine {local_times}{}",
        requests_text.unwrap_or_default()
    );
    let claim = Claim::OrderConverges { remote: remote.map(RoundHeadlines::metric_value), ratios, ratio, requests };
    let test = ClaimTest::ratio_of_medians([at_random, in_order], None, tested.test(1.0, Some(EQUIVALENCE_MARGIN)));
    Some(test.conclude(claim, ratio.is_below(1.0), text))
}
