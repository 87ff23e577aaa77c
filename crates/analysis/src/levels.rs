//! The levels of the memory hierarchy, found from the curve of latency against working set alone, then compared with
//! what the machine reports.
//!
//! The curve on logarithmic scales is plateaus with ramps between them. The best such description is found by dynamic
//! programming over all places where plateaus can begin and end (optimal partitioning: Jackson and others, IEEE Signal
//! Processing Letters 12, 2005), with a price for each further plateau and for each point on none, so that noise does
//! not buy a level. A step of less than [`MIN_LEVEL_STEP`] is none: the second-level TLB adds up to half to a cache's
//! latency, while one level of cache to the next is a factor of two or more.

use kelvin_core::IndirectSort;
use kelvin_core::catalogue::mem::{BYTES, LATENCY, LATENCY_FLUSHED_BYTES, LATENCY_UNFLUSHED_VERSION, PageSize};
use kelvin_core::units::bytes as bytes_text;

use crate::prelude::*;

/// Minimum points of a curve.
const MIN_CURVE_POINTS: usize = 6;
/// Minimum octaves of a plateau.
const MIN_PLATEAU_OCTAVES: f64 = 1.0;
/// Minimum factor from one level to the next.
const MIN_LEVEL_STEP: f64 = 1.6;
/// Spread of the points of one plateau, as a standard deviation of the logarithm, that is no reason to split it: a
/// level-one TLB misses, page-walk caches, set conflicts.
const PLATEAU_STD: f64 = 0.15;
/// Steepest plateau, as the logarithm of latency per octave, and how many standard errors of the points' own noise it may
/// be steeper: the way up from one level to the next can be long enough for a plateau, but it climbs all the way.
const MAX_PLATEAU_SLOPE: f64 = 2.0 * PLATEAU_STD;
const MAX_SLOPE_STD_ERRORS: f64 = 2.0;
/// Prices, in units of half a squared standard deviation: of a plateau, of a point on none, of an outlier on one.
const PLATEAU_COST: f64 = 3.0;
const STRAY_POINT_COST: f64 = 3.0;
const OUTLIER_COST: f64 = 4.5;
/// A step is no level unless it is this many standard errors of the points' own noise.
const MIN_STEP_STD_ERRORS: f64 = 5.0;
/// Share of loads that miss, by latency between two levels, up to which a working set fits, and from which it does not.
const MAX_FITTING_MISSES: f64 = 0.25;
const MIN_EXCEEDING_MISSES: f64 = 0.5;
/// The same two limits as factors of the level's own latency, which decide where the next visible level is not the next level.
const MAX_FITTING_LATENCY_RATIO: f64 = MIN_LEVEL_STEP;
const MIN_EXCEEDING_LATENCY_RATIO: f64 = 2.5;
/// The last plateau is main memory where working sets this many times the last cache were measured.
const MIN_MEMORY_TO_CACHE_RATIO: f64 = 2.0;
/// Where no cache is reported: no main memory is faster than this, in nanoseconds.
const MIN_MEMORY_LATENCY: f64 = 40.0;
/// Names of main memory: of its plateau, and of a further one beyond, where page tables no longer fit a cache either (a
/// virtual machine has two for each address).
pub(crate) const MEMORY_NAME: &str = "DRAM";
const TLB_MISS_MEMORY_NAME: &str = "DRAM, TLB misses";
/// No cache is slower than this, in nanoseconds: the published ones of a whole socket take 40 to 70.
const MAX_CACHE_LATENCY: f64 = 100.0;
/// Share by which base pages must be slower than huge ones for translation to count.
const MIN_TLB_SLOWDOWN: f64 = 0.1;

/// One point of a curve of latency against working set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CurvePoint {
    /// Working set in bytes.
    pub bytes: u64,
    /// Latency of one load in nanoseconds.
    pub latency: f64,
    /// Lower end of its interval, or the latency itself if there is none.
    pub lower: f64,
    /// Upper end of its interval, or the latency itself if there is none.
    pub upper: f64,
    /// Whether the latency is known. One that is only as found still shows its level.
    pub is_known: bool,
    /// Whether the set was flushed from the caches although they may hold it: it does not show where a cache ends.
    pub was_flushed: bool,
}

/// The levels that the results of a run show; `None` where it measured no curve of `mem.latency` or too short a one.
pub(crate) fn levels_from_results(results: &[MetricResult], machine: &Machine) -> Option<MemoryLevels> {
    let has_base_pages =
        |result: &&MetricResult| result.metric.id == LATENCY.id && PageSize::of(&result.case) == Some(PageSize::Base);
    let point = |result: &MetricResult| {
        let summary = result.outcome.found_summary()?;
        let (lower, upper) = summary.run_ends();
        let is_known = result.outcome.summary().is_some();
        let bytes = BYTES.number_in(&result.case)?;
        let was_flushed = result.metric.version < LATENCY_UNFLUSHED_VERSION && bytes > LATENCY_FLUSHED_BYTES;
        Some(CurvePoint { bytes, latency: summary.headline, lower, upper, is_known, was_flushed })
    };
    let curve: Vec<CurvePoint> = results.iter().filter(has_base_pages).filter_map(point).collect();
    let reported = machine.topology.caches.get().map_or(&[][..], Vec::as_slice);
    let mut levels = levels(&curve, reported)?;
    if let Some((translation, outcome)) = translation_cost(results) {
        levels.translation = Some(translation);
        levels.conclusions.push(translation_conclusion(&translation, outcome, machine));
    }
    Some(levels)
}

/// The levels of one curve, named and compared with the caches that the machine reports (of which those for
/// instructions alone are left out); `None` with fewer than six points of positive latency.
pub fn levels(curve: &[CurvePoint], reported: &[Cache]) -> Option<MemoryLevels> {
    let mut points: Vec<CurvePoint> = curve
        .iter()
        .copied()
        // What was found as it came may be as uncertain as the step from one level to the next.
        .filter(|point| point.is_known || point.upper <= point.latency * MIN_LEVEL_STEP)
        .filter(|point| point.bytes > 0 && point.latency > 0.0)
        .collect();
    points.indirect_sort_by_key(|point| point.bytes);
    points.dedup_by_key(|point| point.bytes);
    if points.len() < MIN_CURVE_POINTS {
        return None;
    }
    let data = reported.iter().filter(|cache| cache.kind.holds_data());
    let mut caches: Vec<(u32, u64)> = data.map(|cache| (cache.level, cache.bytes)).collect();
    caches.sort_unstable();
    let log_curve = LogCurve::from_points(&points);
    let plateaus = log_curve.plateaus();
    let mut levels: Vec<MemoryLevel> = plateaus.iter().map(|plateau| level(&points[plateau.clone()])).collect();
    for index in 1..levels.len() {
        let (from, to) = (levels[index - 1].latency, levels[index].latency);
        levels[index - 1].capacity = capacity(&points, from, to);
    }
    name_levels(&mut levels, &caches, points[points.len() - 1].bytes);
    let conclusions = conclusions(&levels, &caches, &points, &log_curve);
    Some(MemoryLevels { metric: LATENCY.id, levels, translation: None, conclusions })
}

/// A plateau as a level without a name. Where some of its points are known, its latency is theirs.
fn level(points: &[CurvePoint]) -> MemoryLevel {
    let has_known_points = points.iter().any(|point| point.is_known);
    let relevant: Vec<&CurvePoint> = points.iter().filter(|point| point.is_known || !has_known_points).collect();
    let values = |value: fn(&CurvePoint) -> f64| -> Vec<f64> { relevant.iter().map(|point| value(point)).collect() };
    let latencies = values(|point| point.latency);
    // What the points span, and the uncertainty of one of them: a single one at the edge of a cache, sometimes in it and
    // sometimes not, does not show the level.
    let ends = |end: fn(&CurvePoint) -> f64| median(&values(end));
    let lower = latencies.iter().copied().fold(ends(|point| point.lower), f64::min);
    let upper = latencies.iter().copied().fold(ends(|point| point.upper), f64::max);
    MemoryLevel {
        name: String::new(),
        latency: median(&latencies),
        interval: Interval { kind: IntervalKind::Range, level: 1.0, lower, upper },
        from_bytes: points[0].bytes,
        to_bytes: points[points.len() - 1].bytes,
        capacity: None,
        reported_bytes: None,
        matches_reported: None,
    }
}

/// Between which working sets a level ends: the largest one of which nearly all loads still have its latency, and the
/// smallest one beyond from which most have that of the next level. Not known where that one was flushed.
fn capacity(points: &[CurvePoint], from: f64, to: f64) -> Option<LevelCapacity> {
    let bound = |share: f64, factor: f64| (from + share * (to - from)).min(from * factor);
    let fit_latency = bound(MAX_FITTING_MISSES, MAX_FITTING_LATENCY_RATIO);
    let miss_latency = bound(MIN_EXCEEDING_MISSES, MIN_EXCEEDING_LATENCY_RATIO);
    let first_miss = points.iter().position(|point| point.latency >= miss_latency).unwrap_or(points.len() - 1);
    let last_fit = points[..first_miss]
        .iter()
        .rposition(|point| point.latency <= fit_latency)
        .unwrap_or(first_miss.saturating_sub(1));
    (!points[first_miss].was_flushed)
        .then(|| LevelCapacity { low: points[last_fit].bytes, high: points[first_miss].bytes })
}

/// A curve on logarithmic scales, and how much its points scatter.
struct LogCurve {
    octaves: Vec<f64>,
    logs: Vec<f64>,
    /// Standard deviation of the logarithm of a point, by its neighbours.
    noise: f64,
}

impl LogCurve {
    fn from_points(points: &[CurvePoint]) -> Self {
        let octaves: Vec<f64> = points.iter().map(|point| (point.bytes as f64).log2()).collect();
        let logs: Vec<f64> = points.iter().map(|point| point.latency.ln()).collect();
        // A point's distance from the line between its neighbours is zero on plateaus and on even ramps; of noise
        // alone it has three halves of the variance of one point. The median does not see the few corners.
        let deviation = |i: usize| {
            let share = (octaves[i] - octaves[i - 1]) / (octaves[i + 1] - octaves[i - 1]);
            (logs[i] - logs[i - 1] - share * (logs[i + 1] - logs[i - 1])).abs()
        };
        let deviations: Vec<f64> = (1..points.len() - 1).map(deviation).collect();
        let noise = median(&deviations) * MAD_TO_STD / 1.5f64.sqrt();
        Self { octaves, logs, noise }
    }

    /// The plateaus of the cheapest description, as ranges of points.
    fn plateaus(&self) -> Vec<std::ops::Range<usize>> {
        let count = self.logs.len();
        let candidates = self.candidates();
        // The cheapest description that ends with a candidate, the points before it included; and the one before it.
        let mut best: Vec<(f64, Option<usize>)> = Vec::with_capacity(candidates.len());
        for candidate in &candidates {
            let initial = (candidate.start as f64 * STRAY_POINT_COST, None);
            let extend = |(index, earlier): (usize, &PlateauCandidate)| {
                let stray_points = candidate.start.checked_sub(earlier.end)?;
                let points = |candidate: &PlateauCandidate| (candidate.end - candidate.start) as f64;
                let error = self.noise * (1.0 / points(earlier) + 1.0 / points(candidate)).sqrt();
                let is_separate_level =
                    candidate.center - earlier.center >= MIN_LEVEL_STEP.ln().max(MIN_STEP_STD_ERRORS * error);
                is_separate_level.then(|| (best[index].0 + stray_points as f64 * STRAY_POINT_COST, Some(index)))
            };
            let extensions = candidates[..best.len()].iter().enumerate().filter_map(extend);
            let (preceding_cost, previous) =
                extensions.fold(initial, |min, extension| if extension.0 < min.0 { extension } else { min });
            best.push((preceding_cost + candidate.cost, previous));
        }
        let total = |index: usize| best[index].0 + (count - candidates[index].end) as f64 * STRAY_POINT_COST;
        let mut last = (0..candidates.len()).min_by(|&a, &b| total(a).total_cmp(&total(b)));
        let mut plateaus = Vec::new();
        while let Some(index) = last {
            plateaus.push(candidates[index].start..candidates[index].end);
            last = best[index].1;
        }
        plateaus.reverse();
        plateaus
    }

    /// Every run of points that is wide and level enough for a plateau, ordered by its end.
    fn candidates(&self) -> Vec<PlateauCandidate> {
        let scale = PLATEAU_STD.max(self.noise);
        let mut candidates = Vec::new();
        for end in 2..=self.logs.len() {
            for start in 0..end - 1 {
                let span = self.octaves[end - 1] - self.octaves[start];
                if span >= MIN_PLATEAU_OCTAVES - 1e-9 && self.is_level(start, end, span) {
                    let logs = &self.logs[start..end];
                    let center = median(logs);
                    let price = |log: &f64| (((log - center) / scale).powi(2) / 2.0).min(OUTLIER_COST);
                    let cost = PLATEAU_COST + logs.iter().map(price).sum::<f64>();
                    candidates.push(PlateauCandidate { start, end, center, cost });
                }
            }
        }
        candidates
    }

    /// Whether a run of points climbs no more than a plateau may, by the median of the slopes between all its pairs
    /// (Theil and Sen), which one wild point does not tilt.
    fn is_level(&self, start: usize, end: usize, span: f64) -> bool {
        let slope = |i: usize, j: usize| (self.logs[j] - self.logs[i]) / (self.octaves[j] - self.octaves[i]);
        let slopes: Vec<f64> = (start..end).flat_map(|i| (i + 1..end).map(move |j| slope(i, j))).collect();
        // The standard error of a least-squares slope over evenly spaced points.
        let error = self.noise * (12.0 / (end - start) as f64).sqrt() / span;
        median(&slopes).abs() <= MAX_PLATEAU_SLOPE.max(MAX_SLOPE_STD_ERRORS * error)
    }
}

/// A run of points as a plateau, with its price.
struct PlateauCandidate {
    start: usize,
    end: usize,
    center: f64,
    cost: f64,
}

/// Names the levels, and matches each with the cache that the machine reports.
fn name_levels(levels: &mut [MemoryLevel], caches: &[(u32, u64)], largest: u64) {
    let count = first_memory_level(levels, caches, largest);
    let names = std::iter::once(MEMORY_NAME).chain(std::iter::repeat(TLB_MISS_MEMORY_NAME));
    levels[count..].iter_mut().zip(names).for_each(|(level, name)| level.name = name.into());
    let level_count = levels.len();
    let assignments = assign_caches(&levels[..count], caches);
    for (index, (level, cache)) in levels.iter_mut().zip(assignments).enumerate() {
        let Some((number, bytes)) = cache else {
            // A system may have a cache that it does not report beyond the second level, and what comes last may be memory.
            level.name = match caches.last() {
                Some((last, _)) if *last > 2 || index + 1 == level_count => format!("beyond L{last}"),
                _ => format!("L{}", index + 1),
            };
            continue;
        };
        level.name = format!("L{number}");
        level.reported_bytes = Some(bytes);
        level.matches_reported = level.capacity.map(|capacity| capacity.contains(bytes));
    }
}

/// The first level that is no cache: too slow for one, and not of the size of one that the machine reports, which may have a
/// cache larger than all that was measured, and little of it; or else the last one, beyond the reported caches by its size.
fn first_memory_level(levels: &[MemoryLevel], caches: &[(u32, u64)], largest: u64) -> usize {
    let last = levels.len().saturating_sub(1);
    let Some(&(_, largest_cache)) = caches.last() else {
        let is_memory = levels.last().is_some_and(|level| level.latency >= MIN_MEMORY_LATENCY);
        return if is_memory { last } else { levels.len() };
    };
    let is_of_size = |level: &MemoryLevel, bytes: u64| level.capacity.is_some_and(|ends| ends.contains(bytes));
    // Before it come as many levels as there are smaller caches, or fewer.
    let is_cache = |(index, level): &(usize, &MemoryLevel)| {
        level.latency < MAX_CACHE_LATENCY || caches.iter().skip(*index).any(|&(_, bytes)| is_of_size(level, bytes))
    };
    let exceeds_caches = largest as f64 >= MIN_MEMORY_TO_CACHE_RATIO * largest_cache as f64;
    let cached = levels.iter().enumerate().take_while(is_cache).count();
    if exceeds_caches { cached.min(last) } else { cached }
}

/// Whether a machine reports the level of this name; every machine has memory.
pub(crate) fn is_reported(name: &str, machine: &Machine) -> bool {
    name == MEMORY_NAME || data_caches(machine).any(|cache| name == format!("L{}", cache.level))
}

/// Bytes of the largest cache that a machine reports.
pub(crate) fn largest_cache(machine: &Machine) -> Option<u64> {
    data_caches(machine).map(|cache| cache.bytes).max()
}

fn data_caches(machine: &Machine) -> impl Iterator<Item = &Cache> {
    machine.topology.caches.get().into_iter().flatten().filter(|cache| cache.kind.holds_data())
}

/// For each level the reported cache that it is: one after the other where there are as many or more levels than
/// caches; with fewer levels the choice, in order, whose sizes come closest.
fn assign_caches(levels: &[MemoryLevel], caches: &[(u32, u64)]) -> Vec<Option<(u32, u64)>> {
    if levels.len() >= caches.len() {
        return (0..levels.len()).map(|index| caches.get(index).copied()).collect();
    }
    let distance = |choice: &[(u32, u64)]| -> f64 {
        let distance_of = |(level, cache): (&MemoryLevel, &(u32, u64))| {
            let size = level.capacity.map_or(level.to_bytes as f64, |c| (c.low as f64 * c.high as f64).sqrt());
            (size / cache.1 as f64).ln().abs()
        };
        levels.iter().zip(choice).map(distance_of).sum()
    };
    let best = combinations(caches, levels.len()).into_iter().min_by(|a, b| distance(a).total_cmp(&distance(b)));
    best.unwrap_or_default().into_iter().map(Some).collect()
}

/// All ways to choose `count` of some items in their order.
fn combinations<T: Copy>(items: &[T], count: usize) -> Vec<Vec<T>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let Some((&first, rest)) = items.split_first() else { return Vec::new() };
    let with_first = combinations(rest, count - 1).into_iter().map(|mut choice| {
        choice.insert(0, first);
        choice
    });
    with_first.chain(combinations(rest, count)).collect()
}

fn conclusions(
    levels: &[MemoryLevel],
    caches: &[(u32, u64)],
    points: &[CurvePoint],
    log_curve: &LogCurve,
) -> Vec<StatedConclusion> {
    let span = [points[0].bytes, points[points.len() - 1].bytes];
    let [from, to] = span.map(bytes_text);
    let (points_count, noise, step) = (points.len(), log_curve.noise, MIN_LEVEL_STEP);
    let test = format!(
        "plateaus and ramps of log latency against log size by optimal partitioning, {points_count} points from {from} to {to}, {} off \
         the line between their neighbours; a level is a step of {step} times or more",
        percent(noise)
    );
    let evidence = TestEvidence::Partitioning { points: points_count, span, noise, step };
    let conclude = |claim: MemoryLevelClaim, holds: Option<bool>, text: String| {
        ClaimTest::new(evidence.clone(), test.clone(), None).conclude(Claim::Level(claim), holds, text)
    };
    let absent_level = |&(level, bytes): &(u32, u64)| {
        // Only working sets beyond the next smaller cache, of a plateau's width, can show it.
        let smaller_cache =
            caches.iter().filter(|(number, _)| *number < level).map(|(_, bytes)| *bytes).max().unwrap_or(0);
        let mut sizes =
            points.iter().map(|point| point.bytes).filter(|size| (smaller_cache + 1..=bytes).contains(size));
        let is_covered = sizes.next().is_some_and(|first| {
            let last = sizes.next_back().unwrap_or(first);
            (last as f64 / first as f64).log2() >= MIN_PLATEAU_OCTAVES - 1e-9
        });
        let observation = if is_covered { "none is seen" } else { "too few working sets of its size were measured" };
        let text = format!(
            "L{level}, {} by what the machine reports, has a plateau of its own in the curve: {observation}",
            bytes_text(bytes)
        );
        conclude(MemoryLevelClaim::NotFound { level, bytes }, is_covered.then_some(false), text)
    };
    match levels {
        [] => {
            let text = format!("the curve from {from} to {to} shows no level of the memory hierarchy");
            vec![conclude(MemoryLevelClaim::NotVisible { span }, None, text)]
        }
        [level] => {
            let latency = value_text(level.latency, Unit::Nanoseconds);
            let text = format!("the curve is flat from {from} to {to}, at {latency}: no change of level");
            vec![conclude(MemoryLevelClaim::Flat { latency: level.latency, span }, None, text)]
        }
        visible_levels => {
            let undetected =
                caches.iter().filter(|(number, _)| visible_levels.iter().all(|l| l.name != format!("L{number}")));
            let level_conclusions = visible_levels.iter().map(|level| {
                let latency = Estimate::new(level.latency, (level.interval.lower, level.interval.upper));
                let claim = MemoryLevelClaim::Found {
                    name: level.name.clone(),
                    latency: Estimate { is_range: true, ..latency },
                    ends: level.capacity.map(|capacity| [capacity.low, capacity.high]),
                    to_bytes: level.to_bytes,
                    reported: level.reported_bytes,
                    is_memory: is_memory(level),
                };
                conclude(claim, level.matches_reported, level_sentence(level))
            });
            level_conclusions.chain(undetected.map(absent_level)).collect()
        }
    }
}

/// `L2 has the size that the machine reports, 1 MiB: 4.0 ns per load (3.9 ns to 4.1 ns), ending between 1 MiB and 1.5 MiB`.
fn level_sentence(level: &MemoryLevel) -> String {
    let MemoryLevel { name, latency, interval, to_bytes, .. } = level;
    let [value, low, high] = [*latency, interval.lower, interval.upper].map(|time| value_text(time, Unit::Nanoseconds));
    let load = format!("{value} per load ({low} to {high})");
    let Some(ends) = level.capacity else {
        return format!("{name}: {load}, up to the largest working set, {}", bytes_text(*to_bytes));
    };
    let ending = format!("ending between {} and {}", bytes_text(ends.low), bytes_text(ends.high));
    match level.reported_bytes {
        _ if is_memory(level) => format!("{name}: {load}, {ending}, beyond which address translation takes longer"),
        None => format!("{name}: {load}, {ending}; the machine reports no such cache"),
        Some(size) => {
            let difference = match size {
                size if size > ends.high => ", less, as with a shared or partitioned cache",
                size if size < ends.low => ", more",
                _ => "",
            };
            let size = bytes_text(size);
            format!("{name} has the size that the machine reports, {size}: {load}, {ending}{difference}")
        }
    }
}

fn is_memory(level: &MemoryLevel) -> bool {
    [MEMORY_NAME, TLB_MISS_MEMORY_NAME].contains(&level.name.as_str())
}

/// What base pages cost beyond huge ones, where both were measured at the same working sets, and the test of the largest.
fn translation_cost(results: &[MetricResult]) -> Option<(TranslationCost, Option<TestOutcome>)> {
    let summary = |pages, bytes| {
        let has_case = |result: &&MetricResult| {
            PageSize::of(&result.case) == Some(pages) && BYTES.number_in(&result.case) == Some(bytes)
        };
        results.iter().filter(|result| result.metric.id == LATENCY.id).find(has_case)?.outcome.summary()
    };
    let sets = distinct(results.iter().filter_map(|result| BYTES.number_in(&result.case))).into_iter();
    let pairs =
        sets.filter_map(|bytes| Some((bytes, summary(PageSize::Base, bytes)?, summary(PageSize::Huge, bytes)?)));
    let pairs: Vec<(u64, &Summary, &Summary)> = pairs.collect();
    let test_ratio =
        |base: &Summary, huge: &Summary| TestedFigure::ratio(&huge.round_headlines, &base.round_headlines, None);
    let is_above_one = |ratio: &TestedFigure| ratio.estimate.is_above(1.0) == Some(true);
    let is_visible = |(_, base, huge): &&(u64, &Summary, &Summary)| {
        base.headline > huge.headline * (1.0 + MIN_TLB_SLOWDOWN)
            && test_ratio(base, huge).as_ref().is_some_and(is_above_one)
    };
    let &(bytes, base, huge) = pairs.last()?;
    let largest = test_ratio(base, huge);
    let cost = TranslationCost {
        bytes,
        base: base.headline,
        huge: huge.headline,
        disjoint: largest.as_ref().is_some_and(is_above_one),
        visible_from: pairs.iter().find(is_visible).map(|pair| pair.0),
    };
    Some((cost, largest.and_then(|ratio| ratio.test(1.0, Some(EQUIVALENCE_MARGIN)))))
}

fn translation_conclusion(cost: &TranslationCost, outcome: Option<TestOutcome>, machine: &Machine) -> StatedConclusion {
    let reach = machine.cpu.tlbs.get().and_then(|tlbs| {
        let data = tlbs.iter().filter(|tlb| tlb.kind.holds_data() && tlb.page_bytes <= 64 << 10);
        data.map(|tlb| u64::from(tlb.entries) * tlb.page_bytes).max()
    });
    let TranslationCost { bytes, base, huge, disjoint, visible_from } = *cost;
    let latencies = [base, huge];
    let reach_text =
        reach.map_or_else(String::new, |reach| format!("; the reported TLB reach is {}", bytes_text(reach)));
    let [slow, fast, cost] = [base, huge, base - huge].map(|time| value_text(time, Unit::Nanoseconds));
    let (set, share) = (bytes_text(bytes), percent((base - huge) / huge));
    let cost_text = format!("base pages cost {cost} more per load than huge pages at {set} ({share})");
    let text = match visible_from {
        Some(from) => format!("{cost_text}, noticeable from {} up{reach_text}", bytes_text(from)),
        None if base > huge => format!("{cost_text}, hardly noticeable{reach_text}"),
        None => format!("base pages cost no more than huge pages up to {set}{reach_text}"),
    };
    let (separation, ratio) = (if disjoint { "apart" } else { "not apart" }, number(base / huge));
    let test = format!(
        "{slow} with base pages against {fast} with huge pages; {separation} by the ratio of their medians, {ratio}"
    );
    let claim = MemoryLevelClaim::Translation { bytes, latencies, visible_from, reach };
    let test = ClaimTest::new(TestEvidence::Intervals { latencies, disjoint }, test, outcome);
    test.conclude(Claim::Level(claim), disjoint.then_some(true), text)
}

/// Names the level of each mode of a memory latency, also in its warning.
pub(crate) fn name_latency_modes(result: &mut MetricResult, hierarchy: &MemoryLevels) {
    if result.metric.id == LATENCY.id {
        rename_modes(result, |mode| {
            let factor = |level: &MemoryLevel| (mode.center / level.latency).ln().abs();
            let nearest = hierarchy.levels.iter().min_by(|a, b| factor(a).total_cmp(&factor(b)))?;
            (factor(nearest) < MIN_LEVEL_STEP.ln()).then(|| nearest.name.clone())
        });
    }
}

/// The level that may explain a latency above the prediction: a cache smaller on the curve than reported.
/// `None` for any other result.
pub(crate) fn smaller_cache_level<'f>(hierarchy: &'f MemoryLevels, result: &MetricResult) -> Option<&'f MemoryLevel> {
    let set = BYTES.number_in(&result.case).filter(|_| result.metric.id == LATENCY.id)?;
    hierarchy.levels.iter().find(|level| {
        let (Some(ends), Some(reported)) = (level.capacity, level.reported_bytes) else { return false };
        ends.high < reported && (ends.low..=reported).contains(&set)
    })
}

/// A level of the memory hierarchy that the curve of latency does not show apart from the next one.
pub(crate) fn indistinct_level(name: &str, names: &[&str]) -> String {
    // Names sort by their level, and main memory comes after every cache.
    let place = |name: &str| (name == MEMORY_NAME, name.to_owned());
    match names.iter().find(|other| place(other) > place(name)) {
        Some(next) => format!("not distinguishable from {next}"),
        None => "not distinguishable".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{add_scalars, empty_run};
    use kelvin_core::{Axis, AxisScale, Case, Metric};

    static CURVE: Metric =
        Metric::duration("mem.latency", "A load").with_axes([Axis::new("bytes", "working set", AxisScale::Bytes)]);

    #[test]
    fn smaller_cache_explains_latency_beyond_it() {
        let mut run = empty_run(&[CURVE]);
        for bytes in [1u64 << 20, 4 << 20, 8 << 20, 32 << 20, 64 << 20] {
            add_scalars(&mut run, &CURVE, Case::new().with_number("bytes", bytes), &[9.0, 10.0, 11.0]);
        }
        let results = crate::analyse(&run).results;
        let curve: Vec<CurvePoint> = (12..28)
            .map(|power| {
                let latency = match power {
                    ..=15 => 1.0,
                    16..=22 => 12.0,
                    _ => 120.0,
                };
                CurvePoint {
                    bytes: 1 << power,
                    latency,
                    lower: latency,
                    upper: latency,
                    is_known: true,
                    was_flushed: false,
                }
            })
            .collect();
        let cache = |level, bytes| Cache {
            level,
            kind: CacheKind::Unified,
            bytes,
            ways: None,
            line_bytes: None,
            shared_by: vec![0],
        };
        let memory_levels = levels(&curve, &[cache(1, 32 << 10), cache(2, 32 << 20)]).unwrap();
        let explanations: Vec<Option<&str>> = results
            .iter()
            .map(|result| smaller_cache_level(&memory_levels, result).map(|level| level.name.as_str()))
            .collect();
        assert_eq!(explanations, [None, Some("L2"), Some("L2"), Some("L2"), None]);
    }
}
