//! The search for the best setting: what it is for each page cache state, what it gains, and whether another engine is as good.

use std::cmp::Ordering;

use kelvin_core::catalogue::file::{CacheState, TUNE_BLOCK, TUNE_DEPTH, TUNE_GAIN, TUNE_RATE, TUNE_THREADS};
use kelvin_core::{BestQuestion, Case, Claim, Conclusion, Metric, TestEvidence, TunedSetting};
use kelvin_stats::median;

use super::crossing::{LineRatio, best_p_value, line_ratio};
use crate::evidence::{EQUIVALENCE_MARGIN, Evidence, RoundHeadlines, outcome_of_p_value};
use crate::result::Study;

/// Conclusions from the metrics `file.tune.*`.
pub(crate) fn tune(evidence: &Evidence<'_>) -> Option<Study> {
    let rates = evidence.all_cases(&TUNE_RATE);
    let conclusions = CacheState::ALL.iter().flat_map(|&state| state_conclusions(evidence, state, &rates)).collect();
    let design = "In every round, the best block size, thread count and queue depth of each engine were searched for by successive \
                  halving, then measured again, in turn with one thread's pread of 128 KiB.";
    Study::new(TUNE_RATE.id, design, conclusions)
}

/// The conclusions for one page cache state.
fn state_conclusions(evidence: &Evidence<'_>, state: CacheState, rates: &[RoundHeadlines<'_>]) -> Vec<Conclusion> {
    let mut here: Vec<&RoundHeadlines<'_>> =
        rates.iter().filter(|rate| CacheState::of(rate.case) == Some(state)).collect();
    here.sort_by(|left, right| median(&right.values).total_cmp(&median(&left.values)));
    let Some((best, others)) = here.split_first() else { return Vec::new() };
    [setting_gain(evidence, best), fastest_engine(best, others)].into_iter().flatten().collect()
}

/// What the best setting is, and how much it gains.
fn setting_gain(evidence: &Evidence<'_>, best: &RoundHeadlines<'_>) -> Option<Conclusion> {
    let gains = evidence.rounds_at(&TUNE_GAIN, best.case)?;
    let weighed = gains.tested_figure()?;
    let gain = weighed.estimate;
    let [block, threads, depth] =
        [&TUNE_BLOCK, &TUNE_THREADS, &TUNE_DEPTH].map(|part| found_value(evidence, part, best.case));
    let parts = [block?, threads?, depth?];
    let setting = TunedSetting { block: parts[0].0, threads: parts[1].0, depth: parts[2].0 };
    Some(Conclusion {
        claim: Claim::Tuned { best: best.metric_value(), setting, gain },
        holds: gain.is_above(1.0),
        evidence: TestEvidence::Search { rounds: gains.values.len(), agreeing: parts.map(|(_, count)| count).to_vec() },
        tested: weighed.test(1.0, Some(EQUIVALENCE_MARGIN)),
    })
}

/// The most frequent value that searches found for one part of a setting, a whole number from one on, and how often.
fn found_value(evidence: &Evidence<'_>, part: &Metric, case: &Case) -> Option<(f64, usize)> {
    let counts: Vec<f64> = evidence.rounds_at(part, case)?.values.iter().map(|value| value.round().max(1.0)).collect();
    most_frequent_value(&counts)
}

/// Whether the best engine of a state certainly beats all others, each at its own best setting.
fn fastest_engine(best: &RoundHeadlines<'_>, others: &[&RoundHeadlines<'_>]) -> Option<Conclusion> {
    let all = others.len();
    let positive = others.iter().filter(|other| best.are_positive() && other.are_positive());
    let compared: Vec<(&Case, LineRatio)> =
        positive.filter_map(|other| Some((other.case, line_ratio(0, &other.values, &best.values, all)?))).collect();
    let rivals = compared.iter().filter(|(_, standing)| standing.side() != Ordering::Greater);
    let rivals: Vec<Case> = rivals.map(|&(case, _)| case.clone()).collect();
    let &(next, nearest) = compared.first()?;
    let chance = best_p_value(compared.iter().map(|(_, standing)| standing));
    let (question, others) = (BestQuestion::TunedEngine, compared.len());
    Some(Conclusion {
        holds: rivals.is_empty().then_some(true),
        claim: Claim::Best { question, best: best.metric_value(), rivals, next: next.clone(), others },
        evidence: TestEvidence::Together { ratios: vec![(None, nearest.ratio)], rounds: best.values.len() },
        tested: outcome_of_p_value(chance),
    })
}

/// The value that occurs most often, and how often; of several the smallest.
fn most_frequent_value(values: &[f64]) -> Option<(f64, usize)> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let groups = sorted.chunk_by(|left, right| left == right).map(|group| (group[0], group.len()));
    groups.reduce(|best, next| if next.1 > best.1 { next } else { best })
}
