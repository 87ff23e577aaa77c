//! Files: whether a cache below the kernel answers, and which block size and queue depth are enough.

use kelvin_core::IndirectSort;
use kelvin_core::catalogue::file::*;

use crate::prelude::*;

/// Share of the best rate that is enough.
const SUFFICIENT_RATE_SHARE: f64 = 0.9;
/// Points of a curve that has a knee.
const MIN_KNEE_POINTS: usize = 3;
/// Speed-up of a later pass over the first that only a cache explains.
const MIN_CACHE_SPEED_UP: f64 = 2.0;

/// A rate over one parameter, the other one fixed.
struct FileCurve {
    /// What it measures, and which parameter.
    label: &'static str,
    metric: &'static Metric,
    axis: Axis,
    fixed: Option<AxisWord>,
}

const fn reads(label: &'static str, state: CacheState) -> FileCurve {
    FileCurve { label, metric: &BLOCKSIZE_READ, axis: BLOCK, fixed: Some(state.point()) }
}

const fn writes(label: &'static str, policy: SyncPolicy) -> FileCurve {
    FileCurve { label, metric: &BLOCKSIZE_WRITE, axis: BLOCK, fixed: Some(policy.point()) }
}

static BLOCK_CURVES: [FileCurve; 5] = [
    reads("cached reads: a block size of", CacheState::Cached),
    reads("uncached reads: a block size of", CacheState::Uncached),
    reads("direct reads: a block size of", CacheState::Direct),
    writes("buffered writes: a block size of", SyncPolicy::Buffered),
    writes("direct writes: a block size of", SyncPolicy::Direct),
];

static DEPTH_CURVE: FileCurve =
    FileCurve { label: "random reads of 4 KiB: a queue depth of", metric: &DEPTH_RATE, axis: QUEUE_DEPTH, fixed: None };

/// Whether a cache below the kernel answers, from the metric `file.device.repeat`; `None` where it was only an input.
pub(crate) fn cache_below(evidence: &Evidence<'_>) -> Option<Study> {
    let passes = evidence.all_cases(&DEVICE_REPEAT_READ).iter().find(|passes| !passes.only_input)?;
    let tested = passes.tested_figure()?;
    let (ratio, limit) = (tested.estimate, MIN_CACHE_SPEED_UP);
    let text = format!(
        "a cache below the kernel (hypervisor, controller or drive) serves repeated reads: later passes over a file are more than {limit} \
         times as fast as the first: {}",
        ratio_text(&ratio, "as fast")
    );
    let (base, other) = (passes.metric_value(), passes.metric_value());
    let claim = Claim::Ratio { question: RatioQuestion::CacheBelowKernel, base, other, ratio, limit };
    let test = ClaimTest::median(passes.values.len(), None, tested.test(limit, None));
    let design = "A file was written, flushed, and read with direct I/O once, then again in several rounds. If such a cache \
                  already held what was just written, no pass is slow and nothing shows.";
    Study::new(DEVICE, design, vec![test.conclude(claim, ratio.is_above(limit), text)])
}

/// Conclusions about blocks, from the metrics `file.blocksize.*`.
pub(crate) fn block_sizes(evidence: &Evidence<'_>) -> Option<Study> {
    let design = format!(
        "One thread read and overwrote a file at several block sizes, one call per block, in several rounds. A block size is \
         enough if it reaches {} of the best rate.",
        percent(SUFFICIENT_RATE_SHARE)
    );
    let curve_conclusions = BLOCK_CURVES.iter().flat_map(|curve| curve.conclusions(evidence)).flatten();
    let reads = evidence.all_cases(&BLOCKSIZE_READ);
    let comparison = |uncached: &RoundHeadlines<'_>| {
        let case = uncached.case.clone().with_word(CacheState::Cached);
        let cached = reads.iter().find(|rounds| *rounds.case == case)?;
        let answer = RatioTest::above(RatioQuestion::CachedAgainstUncached, 1.0).test(uncached, cached)?;
        let block = bytes(BLOCK.number_in(uncached.case).unwrap_or(0));
        let claim = format!("in blocks of {block} cached reads are faster than uncached ones");
        Some(answer.conclude_times(&claim, "as fast"))
    };
    let uncached = reads.iter().filter(|rounds| CacheState::of(rounds.case) == Some(CacheState::Uncached));
    Study::new(BLOCKSIZE, design, curve_conclusions.chain(uncached.filter_map(comparison)).collect())
}

/// Conclusions about queue depths, from the metrics `file.depth.*`.
pub(crate) fn depths(evidence: &Evidence<'_>) -> Option<Study> {
    let design = format!(
        "Blocks of 4 KiB were read at random with direct I/O at several queue depths, in several rounds. A depth is enough if \
         it reaches {} of the best rate.",
        percent(SUFFICIENT_RATE_SHARE)
    );
    let [sufficient, previous, _] = DEPTH_CURVE.conclusions(evidence);
    Study::new(DEPTH, design, sufficient.into_iter().chain(previous).collect())
}

impl FileCurve {
    /// That the first point which reaches enough of the best rate does so, that the one before does not, and whether the rate of the largest
    /// point is below enough of the best. Nothing of the best itself: compared with itself there is nothing to test, and what the one before
    /// lacks shows as much.
    fn conclusions(&self, evidence: &Evidence<'_>) -> [Option<StatedConclusion>; 3] {
        let is_of_curve = |point: &&RoundHeadlines<'_>| {
            self.axis.number_in(point.case).is_some() && self.fixed.is_none_or(|fixed| fixed.is_in_case(point.case))
        };
        let mut points: Vec<&RoundHeadlines<'_>> = evidence.all_cases(self.metric).iter().filter(is_of_curve).collect();
        points.indirect_sort_by_key(|point| self.axis.number_in(point.case));
        let best = points.iter().max_by(|a, b| a.headline().total_cmp(&b.headline()));
        let Some(&best) = best.filter(|_| points.len() >= MIN_KNEE_POINTS) else { return Default::default() };
        let is_enough = |point: &&RoundHeadlines<'_>| point.headline() >= SUFFICIENT_RATE_SHARE * best.headline();
        let Some(knee) = points.iter().position(is_enough) else { return Default::default() };
        let ratio_to_best = |point: &RoundHeadlines<'_>, test: RatioTest| {
            (point.case != best.case).then(|| test.chosen_among(points.len()).test(best, point)).flatten()
        };
        let conclude = |answer: RatioAnswer| {
            let [position, best] = [&answer.other, &answer.base].map(|side| self.position(side));
            let (threshold, share) = (percent(SUFFICIENT_RATE_SHARE), share_text(&answer.ratio));
            let (label, rate) = (self.label, amount_text(&answer.base));
            let text = match answer.hypothesis.question {
                RatioQuestion::LargestBlock => format!(
                    "{label} {position} is too large: the rate falls below {threshold} of the best: it is {share} of that with {best}, {rate}"
                ),
                question => {
                    let negation = if question == RatioQuestion::BlockInsufficient { "not " } else { "" };
                    format!(
                        "{label} {position} is {negation}enough for {threshold} of the rate with {best}, {rate}: it reaches {share}"
                    )
                }
            };
            answer.conclude(text)
        };
        let below_share = |question: RatioQuestion| RatioTest::below(question, SUFFICIENT_RATE_SHARE);
        let sufficient = RatioTest::above(RatioQuestion::BlockSufficient, SUFFICIENT_RATE_SHARE);
        let previous = knee.checked_sub(1).map(|index| points[index]);
        let largest = points.last().filter(|largest| !is_enough(largest));
        [
            ratio_to_best(points[knee], sufficient).map(conclude),
            previous
                .and_then(|point| ratio_to_best(point, below_share(RatioQuestion::BlockInsufficient)))
                .map(conclude),
            largest.and_then(|largest| ratio_to_best(largest, below_share(RatioQuestion::LargestBlock))).map(conclude),
        ]
    }

    fn position(&self, side: &MetricValue) -> String {
        let position = self.axis.number_in(&side.case).unwrap_or(0);
        if self.axis.name == BLOCK.name { bytes(position) } else { position.to_string() }
    }
}

/// The state of the page cache in a case.
pub(super) fn cache_state(case: &Case) -> &'static str {
    CacheState::of(case).map_or("as found", CacheState::name)
}

/// `direct, 8 MiB`.
pub(super) fn state_and_file(case: &Case) -> String {
    let size = BYTES.number_in(case).map_or_else(String::new, |size| format!(", {}", bytes(size)));
    format!("{}{size}", cache_state(case))
}
