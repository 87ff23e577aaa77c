//! Files: whether a cache below the kernel answers, and which block size and queue depth are enough.

use kelvin_catalogue::file::{
    BLOCK, BLOCKSIZE, BLOCKSIZE_READ, BLOCKSIZE_WRITE, CacheState, DEPTH, DEPTH_RATE, DEVICE, DEVICE_REPEAT,
    QUEUE_DEPTH, SyncPolicy,
};
use kelvin_model::units::percent;
use kelvin_model::{Axis, Claim, Conclusion, Metric, Point, RatioQuestion, Test};

use crate::evidence::{Ask, Evidence, Rounds};
use crate::result::Study;

/// Share of the best rate that is enough.
const ENOUGH: f64 = 0.9;
/// Points of a curve that has a knee.
const FEWEST_POINTS: usize = 3;
/// Speed-up of a later pass over the first that only a cache explains.
const CACHE_FACTOR: f64 = 2.0;

/// A rate over one parameter, the other one fixed.
struct Curve {
    metric: &'static Metric,
    axis: Axis,
    held: Option<Point>,
}

static BLOCKS: [Curve; 5] = [
    Curve { metric: &BLOCKSIZE_READ, axis: BLOCK, held: Some(CacheState::Cached.point()) },
    Curve { metric: &BLOCKSIZE_READ, axis: BLOCK, held: Some(CacheState::Uncached.point()) },
    Curve { metric: &BLOCKSIZE_READ, axis: BLOCK, held: Some(CacheState::Direct.point()) },
    Curve { metric: &BLOCKSIZE_WRITE, axis: BLOCK, held: Some(SyncPolicy::Buffered.point()) },
    Curve { metric: &BLOCKSIZE_WRITE, axis: BLOCK, held: Some(SyncPolicy::Direct.point()) },
];

static DEPTHS: [Curve; 1] = [Curve { metric: &DEPTH_RATE, axis: QUEUE_DEPTH, held: None }];

/// Whether a cache below the kernel answers, from the metric `file.device.repeat`; `None` where it was only an input.
pub(crate) fn cache_below(evidence: &Evidence<'_>) -> Option<Study> {
    let passes = evidence.all(&DEVICE_REPEAT).into_iter().find(|passes| !passes.only_input)?;
    let weighed = passes.weighed()?;
    let ratio = weighed.estimate;
    let conclusion = Conclusion {
        claim: Claim::Ratio {
            question: RatioQuestion::CacheBelowKernel,
            base: passes.side(),
            other: passes.side(),
            ratio,
            limit: CACHE_FACTOR,
        },
        holds: ratio.is_above(CACHE_FACTOR),
        evidence: Test::Median { rounds: passes.values.len(), over: None },
        tested: weighed.tested(CACHE_FACTOR, None),
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
        percent(ENOUGH)
    );
    let of_curves = BLOCKS.iter().flat_map(|curve| curve.conclusions(evidence).into_iter().chain(curve.fall(evidence)));
    Study::new(BLOCKSIZE, design, of_curves.chain(cached_beside_uncached(evidence)).collect())
}

/// Whether cached reads are faster than uncached ones, by block.
fn cached_beside_uncached(evidence: &Evidence<'_>) -> Vec<Conclusion> {
    let all = evidence.all(&BLOCKSIZE_READ);
    let beside = |uncached: &Rounds<'_>| {
        let case = uncached.case.clone().at(CacheState::Cached);
        let cached = all.iter().find(|one| *one.case == case)?;
        Ask::above(RatioQuestion::CachedBesideUncached, 1.0).of(uncached, cached)
    };
    all.iter().filter(|one| CacheState::of(one.case) == Some(CacheState::Uncached)).filter_map(beside).collect()
}

/// Conclusions about queue depths, from the metrics `file.depth.*`.
pub(crate) fn depths(evidence: &Evidence<'_>) -> Option<Study> {
    let design = format!(
        "Blocks of 4 KiB were read at random with direct I/O at several queue depths, in several rounds. A depth is enough if \
         it reaches {} of the best rate.",
        percent(ENOUGH)
    );
    Study::new(DEPTH, design, DEPTHS.iter().flat_map(|curve| curve.conclusions(evidence)).collect())
}

impl Curve {
    /// Its points, ascending.
    fn points<'r>(&self, evidence: &Evidence<'r>) -> Vec<Rounds<'r>> {
        let mut points = evidence.all(self.metric);
        points
            .retain(|point| self.axis.of(point.case).is_some() && self.held.is_none_or(|held| held.is_of(point.case)));
        points.sort_by_key(|point| self.axis.of(point.case));
        points
    }

    /// Whether the rate falls again: that of the largest point is below enough of the best. `None` where it is not seen to be.
    fn fall(&self, evidence: &Evidence<'_>) -> Option<Conclusion> {
        let points = self.points(evidence);
        let best = points.iter().max_by(|one, other| one.headline().total_cmp(&other.headline()))?;
        let has_fallen = |largest: &&Rounds<'_>| largest.headline() < ENOUGH * best.headline();
        let largest = points.last().filter(has_fallen).filter(|_| points.len() >= FEWEST_POINTS)?;
        Ask::below(RatioQuestion::LargestBlock, ENOUGH).chosen_among(best, largest, Some(points.len()))
    }

    /// That the first point which reaches enough of the best rate does so, and that the one before does not. `None` for the
    /// best itself: beside itself there is nothing to test, and what the one before lacks says as much.
    fn conclusions(&self, evidence: &Evidence<'_>) -> Vec<Conclusion> {
        let points = self.points(evidence);
        let best = points.iter().max_by(|one, other| one.headline().total_cmp(&other.headline()));
        let Some(best) = best.filter(|_| points.len() >= FEWEST_POINTS) else { return Vec::new() };
        let Some(knee) = points.iter().position(|point| point.headline() >= ENOUGH * best.headline()) else {
            return Vec::new();
        };
        let beside = |point: &Rounds<'_>, ask: Ask| match point.case == best.case {
            true => None,
            false => ask.chosen_among(best, point, Some(points.len())),
        };
        let enough = beside(&points[knee], Ask::above(RatioQuestion::Enough, ENOUGH));
        let before = knee
            .checked_sub(1)
            .and_then(|before| beside(&points[before], Ask::below(RatioQuestion::NotEnough, ENOUGH)));
        enough.into_iter().chain(before).collect()
    }
}
