//! Files: whether a cache below the kernel answers, and which block size and queue depth are enough.

use kelvin_core::catalogue::file::{
    BLOCK, BLOCKSIZE, BLOCKSIZE_READ, BLOCKSIZE_WRITE, CacheState, DEPTH, DEPTH_RATE, DEVICE, DEVICE_REPEAT_READ,
    QUEUE_DEPTH, SyncPolicy,
};
use kelvin_core::units::percent;
use kelvin_core::{Axis, AxisWord, Claim, Conclusion, Metric, RatioQuestion, TestEvidence};

use crate::evidence::{Evidence, RatioTest, RoundHeadlines};
use crate::result::Study;

/// Share of the best rate that is enough.
const SUFFICIENT_RATE_SHARE: f64 = 0.9;
/// Points of a curve that has a knee.
const MIN_KNEE_POINTS: usize = 3;
/// Speed-up of a later pass over the first that only a cache explains.
const MIN_CACHE_SPEED_UP: f64 = 2.0;

/// A rate over one parameter, the other one fixed.
struct FileCurve {
    metric: &'static Metric,
    axis: Axis,
    held: Option<AxisWord>,
}

static BLOCK_CURVES: [FileCurve; 5] = [
    FileCurve { metric: &BLOCKSIZE_READ, axis: BLOCK, held: Some(CacheState::Cached.point()) },
    FileCurve { metric: &BLOCKSIZE_READ, axis: BLOCK, held: Some(CacheState::Uncached.point()) },
    FileCurve { metric: &BLOCKSIZE_READ, axis: BLOCK, held: Some(CacheState::Direct.point()) },
    FileCurve { metric: &BLOCKSIZE_WRITE, axis: BLOCK, held: Some(SyncPolicy::Buffered.point()) },
    FileCurve { metric: &BLOCKSIZE_WRITE, axis: BLOCK, held: Some(SyncPolicy::Direct.point()) },
];

static DEPTH_CURVES: [FileCurve; 1] = [FileCurve { metric: &DEPTH_RATE, axis: QUEUE_DEPTH, held: None }];

/// Whether a cache below the kernel answers, from the metric `file.device.repeat`; `None` where it was only an input.
pub(crate) fn cache_below(evidence: &Evidence<'_>) -> Option<Study> {
    let passes = evidence.all_cases(&DEVICE_REPEAT_READ).into_iter().find(|passes| !passes.only_input)?;
    let weighed = passes.tested_figure()?;
    let ratio = weighed.estimate;
    let conclusion = Conclusion {
        claim: Claim::Ratio {
            question: RatioQuestion::CacheBelowKernel,
            base: passes.metric_value(),
            other: passes.metric_value(),
            ratio,
            limit: MIN_CACHE_SPEED_UP,
        },
        holds: ratio.is_above(MIN_CACHE_SPEED_UP),
        evidence: TestEvidence::Median { rounds: passes.values.len(), over: None },
        tested: weighed.test(MIN_CACHE_SPEED_UP, None),
    };
    let design = "A file was written, flushed, and read with direct I/O once, then again in several rounds. If such a cache \
                  already held what was just written, no pass is slow and nothing shows.";
    Study::new(DEVICE, design, vec![conclusion])
}

/// Conclusions about blocks, from the metrics `file.blocksize.*`.
pub(crate) fn block_sizes(evidence: &Evidence<'_>) -> Option<Study> {
    let design = format!(
        "One thread read and overwrote a file at several block sizes, one call per block, in several rounds. A block size is \
         enough if it reaches {} of the best rate.",
        percent(SUFFICIENT_RATE_SHARE)
    );
    let of_curves = BLOCK_CURVES
        .iter()
        .flat_map(|curve| curve.conclusions(evidence).into_iter().chain(curve.fall_conclusion(evidence)));
    Study::new(BLOCKSIZE, design, of_curves.chain(cached_against_uncached(evidence)).collect())
}

/// Whether cached reads are faster than uncached ones, by block.
fn cached_against_uncached(evidence: &Evidence<'_>) -> Vec<Conclusion> {
    let all = evidence.all_cases(&BLOCKSIZE_READ);
    let beside = |uncached: &RoundHeadlines<'_>| {
        let case = uncached.case.clone().with_word(CacheState::Cached);
        let cached = all.iter().find(|one| *one.case == case)?;
        RatioTest::above(RatioQuestion::CachedBesideUncached, 1.0).test(uncached, cached)
    };
    all.iter().filter(|one| CacheState::of(one.case) == Some(CacheState::Uncached)).filter_map(beside).collect()
}

/// Conclusions about queue depths, from the metrics `file.depth.*`.
pub(crate) fn depths(evidence: &Evidence<'_>) -> Option<Study> {
    let design = format!(
        "Blocks of 4 KiB were read at random with direct I/O at several queue depths, in several rounds. A depth is enough if \
         it reaches {} of the best rate.",
        percent(SUFFICIENT_RATE_SHARE)
    );
    Study::new(DEPTH, design, DEPTH_CURVES.iter().flat_map(|curve| curve.conclusions(evidence)).collect())
}

impl FileCurve {
    /// Its points, ascending.
    fn points<'r>(&self, evidence: &Evidence<'r>) -> Vec<RoundHeadlines<'r>> {
        let mut points = evidence.all_cases(self.metric);
        points.retain(|point| {
            self.axis.number_in(point.case).is_some() && self.held.is_none_or(|held| held.is_in_case(point.case))
        });
        points.sort_by_key(|point| self.axis.number_in(point.case));
        points
    }

    /// Whether the rate falls again: that of the largest point is below enough of the best. `None` where it is not seen to be.
    fn fall_conclusion(&self, evidence: &Evidence<'_>) -> Option<Conclusion> {
        let points = self.points(evidence);
        let best = points.iter().max_by(|one, other| one.headline().total_cmp(&other.headline()))?;
        let has_fallen = |largest: &&RoundHeadlines<'_>| largest.headline() < SUFFICIENT_RATE_SHARE * best.headline();
        let largest = points.last().filter(has_fallen).filter(|_| points.len() >= MIN_KNEE_POINTS)?;
        RatioTest::below(RatioQuestion::LargestBlock, SUFFICIENT_RATE_SHARE).test_chosen_among(
            best,
            largest,
            Some(points.len()),
        )
    }

    /// That the first point which reaches enough of the best rate does so, and that the one before does not. `None` for the
    /// best itself: beside itself there is nothing to test, and what the one before lacks says as much.
    fn conclusions(&self, evidence: &Evidence<'_>) -> Vec<Conclusion> {
        let points = self.points(evidence);
        let best = points.iter().max_by(|one, other| one.headline().total_cmp(&other.headline()));
        let Some(best) = best.filter(|_| points.len() >= MIN_KNEE_POINTS) else { return Vec::new() };
        let Some(knee) = points.iter().position(|point| point.headline() >= SUFFICIENT_RATE_SHARE * best.headline())
        else {
            return Vec::new();
        };
        let beside = |point: &RoundHeadlines<'_>, ask: RatioTest| match point.case == best.case {
            true => None,
            false => ask.test_chosen_among(best, point, Some(points.len())),
        };
        let enough = beside(&points[knee], RatioTest::above(RatioQuestion::Enough, SUFFICIENT_RATE_SHARE));
        let before = knee.checked_sub(1).and_then(|before| {
            beside(&points[before], RatioTest::below(RatioQuestion::NotEnough, SUFFICIENT_RATE_SHARE))
        });
        enough.into_iter().chain(before).collect()
    }
}
