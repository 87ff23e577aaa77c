//! The search for the best setting: what it is for each page cache state, what it gains, and whether another engine is as good.

use kelvin_core::catalogue::file::{CacheState, TUNE_BLOCK, TUNE_DEPTH, TUNE_GAIN, TUNE_RATE, TUNE_THREADS};

use super::crossing::{BestOf, Contender};
use super::engines::engine;
use super::files::cache_state;
use crate::prelude::*;

/// Conclusions from the metrics `file.tune.*`.
pub(crate) fn tune(evidence: &Evidence<'_>) -> Option<Study> {
    let conclusions = CacheState::ALL.iter().flat_map(|&state| state_conclusions(evidence, state)).collect();
    let design = "In every round, the best block size, thread count and queue depth of each engine were searched for by successive \
                  halving, then measured again, interleaved with one thread's pread of 128 KiB.";
    Study::new(TUNE_RATE.id, design, conclusions)
}

/// What the best setting of a page cache state is and gains, and whether its engine certainly beats all others, each at its own best
/// setting.
fn state_conclusions(evidence: &Evidence<'_>, state: CacheState) -> Vec<StatedConclusion> {
    let rates = || evidence.all_cases(&TUNE_RATE).iter().filter(|rate| CacheState::of(rate.case) == Some(state));
    let best = rates().rev().max_by(|a, b| median(&a.values).total_cmp(&median(&b.values)));
    let contenders = rates().map(|rate| Contender::from_rounds(rate, rate.case.clone(), engine(rate.case).to_owned()));
    let fastest = BestOf::find(BestQuestion::TunedEngine, contenders.collect(), false).map(|best_of| {
        let (state, engine) = (cache_state(&best_of.best.case), engine(&best_of.best.case));
        let (count, rivals) = (best_of.others + 1, best_of.rivals_text("possibly as fast:"));
        best_of.conclude(format!("{state}: {engine} is fastest of {count} engines, each at its best setting{rivals}"))
    });
    best.and_then(|best| setting_gain(evidence, best)).into_iter().chain(fastest).collect()
}

/// What the best setting is, and how much it gains.
fn setting_gain(evidence: &Evidence<'_>, best: &RoundHeadlines<'_>) -> Option<StatedConclusion> {
    let gains = evidence.rounds_at(&TUNE_GAIN, best.case)?;
    let tested = gains.tested_figure()?;
    let (gain, rounds) = (tested.estimate, gains.values.len());
    // The value that most rounds found, of equals the least, and in how many.
    let mode_of = |part: &Metric| -> Option<(f64, usize)> {
        let values = &evidence.rounds_at(part, best.case)?.values;
        let mut values: Vec<f64> = values.iter().map(|value| value.round().max(1.0)).collect();
        values.sort_by(f64::total_cmp);
        let groups = values.chunk_by(|left, right| left == right).map(|group| (group[0], group.len()));
        groups.reduce(|best, next| if next.1 > best.1 { next } else { best })
    };
    let [block, threads, depth] = [&TUNE_BLOCK, &TUNE_THREADS, &TUNE_DEPTH].map(mode_of);
    let parts = [block?, threads?, depth?];
    let [block, threads, depth] = parts.map(|(value, _)| value);
    let best = best.metric_value();
    let (state, engine, blocks) = (cache_state(&best.case), engine(&best.case), value_text(block, Unit::Bytes));
    let (times, rate) = (ratio_text(&gain, "as fast"), amount_text(&best));
    let text = format!(
        "{state}: {engine} (found most often: blocks of {blocks}, threads: {threads}, queue depth per thread: {depth}) reads faster than one \
         thread's pread of 128 KiB: {times}, {rate}"
    );
    let counts = parts.map(|(_, count)| format!("{count} of {rounds}")).join(", ");
    let test =
        format!("median gain of {rounds} rounds; rounds whose search found this block, thread count, depth: {counts}");
    let agreeing = parts.map(|(_, count)| count).to_vec();
    let outcome = tested.test(1.0, Some(EQUIVALENCE_MARGIN));
    let test = ClaimTest::new(TestEvidence::Search { rounds, agreeing }, test, outcome);
    let setting = TunedSetting { block, threads, depth };
    Some(test.conclude(Claim::Tuned { best, setting, gain }, gain.is_above(1.0), text))
}
