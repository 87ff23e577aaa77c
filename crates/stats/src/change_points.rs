//! The course of a figure over many runs: steps from one level to another, drifts, and neither.
//!
//! A run is one value, and runs are few: a step must show after three of them, not thirty. So a step is tested by how far it
//! goes, not by ranks alone, which three runs after it cannot make convincing among hundreds of figures; and what makes that safe is done
//! first: outliers are set aside, lasting states of the machine widen the error, and a level that comes and goes is no new one.

mod split_chance;

use self::split_chance::{SignificanceBound, any_index_p_value, known_index_p_value};
use crate::distributions::binomial_upper_tail;
use crate::{mad, mean, median, median_in_place};

/// Fewest values of a level: two in a row may both be outliers.
pub const MIN_LEVEL_VALUES: usize = 3;
/// Chance of a step in a sequence without one, up to which a step is looked into.
pub const STEP_ALPHA: f64 = 0.01;
/// Share of the possible places of a step that its interval holds.
pub const STEP_INDEX_LEVEL: f64 = 0.95;
/// Values around one that determine whether it is an outlier: three of five are its neighbours on either side of a step.
const OUTLIER_WINDOW: usize = 5;
/// Deviations from the median of its window beyond which a value is replaced by it (Hampel 1974), for many values; more the fewer there
/// are, since the deviation is then uncertain. The usual 3 would smooth so much of normal noise away that the rarest chances come out
/// three times as small as they are.
const OUTLIER_STDS: f64 = 5.0;
const OUTLIER_STDS_FEW_VALUES: f64 = 6.0;
/// A step of more than this many deviations may be another state of the machine, which came before and went.
const STATE_STEP_STDS: f64 = 3.0;
/// How far on the way to the new level a value of that state lies, at least.
const MIN_STATE_FRACTION: f64 = 0.7;
/// Places that the ends of a drift are tried at.
const DRIFT_END_CANDIDATES: usize = 14;
/// The shortest stretch that is looked at apart: two levels of twice the least.
const MIN_STRETCH_VALUES: f64 = 4.0 * MIN_LEVEL_VALUES as f64;
/// Minimum values whose differences show how long a deviation lasts.
const MIN_CORRELATION_VALUES: usize = 12;
/// By how much Schwarz's criterion must speak for a drift: positive evidence (Kass and Raftery 1995).
const MIN_BIC_GAIN: f64 = 2.0;
/// Fewest runs over which a drift goes: a faster one is a step that a run fell into.
const MIN_DRIFT_RUNS: usize = 5;

/// What a sequence does.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChangePoints {
    /// Its steps, in their order.
    pub steps: Vec<Step>,
    /// Its drifts, in their order; they overlap no step.
    pub drifts: Vec<Drift>,
    /// Without either: the chance of the most conspicuous split; 1 where nothing could be tested.
    pub p_value: f64,
}

/// A step from one level to another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Index of the first value at the new level.
    pub index: usize,
    /// The first and the last index that it may have instead: at [`STEP_INDEX_LEVEL`].
    pub index_interval: [usize; 2],
    /// Median of the level before it.
    pub before: f64,
    /// Median of the level that begins with it.
    pub after: f64,
    /// Chance of so large a step anywhere between its neighbours by accident.
    pub p_value: f64,
}

/// A rise or fall over many values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drift {
    /// Index of the last value at the level before it.
    pub start: usize,
    /// Index of the first value at the level after it; the last value of all where it goes on.
    pub end: usize,
    /// Where it begins.
    pub before: f64,
    /// Where it ends.
    pub after: f64,
    /// Chance of it by accident: that of the most certain of the steps that it would be otherwise.
    pub p_value: f64,
}

/// The course of values, which must be finite.
///
/// Steps are found by binary segmentation (Vostrikova 1981) with the likelihood ratio test of Worsley (1979) for a shift of the mean at an
/// unknown place, and looked at again between their neighbours. Steps in one direction whose values are fitted better, by the criterion of
/// Schwarz (1978), by two levels and a line from one to the other are one drift.
pub fn detect_change_points(values: &[f64]) -> ChangePoints {
    let filtered_values = hampel_filter(values);
    let mut sequence = Sequence {
        values,
        filtered_values: &filtered_values,
        sums: PrefixSums::from_values(&filtered_values),
        variance_inflation: 1.0,
    };
    // The residuals after the steps show how long states of the machine last; then the steps are tested again.
    let splits = sequence.find_splits();
    sequence.variance_inflation = variance_inflation(
        lag_one_correlation(&residuals(&filtered_values, splits.iter().map(|split| split.index)))
            .max(lag_one_from_differences(&filtered_values)),
    );
    let splits = if sequence.variance_inflation > 1.0 { sequence.find_splits() } else { splits };
    sequence.to_change_points(&splits)
}

/// A part of a sequence: from the first index to before the second.
type Segment = [usize; 2];

/// A split of a part.
#[derive(Clone, Copy)]
struct Split {
    index: usize,
    /// Chance of it, counted as often as there were looks.
    p_value: f64,
    /// Among how many stretches it was looked for.
    candidates: f64,
}

impl Split {
    /// The same as the best of this many looks (Bonferroni).
    fn bonferroni(self, candidates: f64) -> Self {
        Self { p_value: (self.p_value * candidates).min(1.0), candidates, ..self }
    }

    fn cmp_p_value(&self, other: &Self) -> std::cmp::Ordering {
        self.p_value.total_cmp(&other.p_value)
    }
}

struct Sequence<'a> {
    values: &'a [f64],
    filtered_values: &'a [f64],
    /// Of the cleaned values.
    sums: PrefixSums,
    /// How many times as large the variance of a mean is as that of independent values.
    variance_inflation: f64,
}

impl Sequence<'_> {
    /// The splits that count, in their order.
    fn find_splits(&self) -> Vec<Split> {
        let mut splits = Vec::new();
        let mut parts = vec![[0, self.values.len()]];
        while let Some(segment) = parts.pop() {
            let Some(split) = self.best_split_within(segment).filter(|split| split.p_value <= STEP_ALPHA) else {
                continue;
            };
            parts.extend([[segment[0], split.index], [split.index, segment[1]]]);
            splits.push(split);
        }
        splits.sort_unstable_by_key(|split| split.index);
        self.refine_splits(splits)
    }

    /// Each split between its neighbours, until none moves; those that no longer count are left out, the least certain first.
    fn refine_splits(&self, mut splits: Vec<Split>) -> Vec<Split> {
        // Each pass either moves a split to where it fits better or leaves one out; the bound is against two that push each other about.
        for _ in 0..2 * splits.len() + 4 {
            let refitted: Vec<Option<Split>> =
                (0..splits.len()).map(|index| self.refit_split(&splits, index)).collect();
            let chance = |index: &usize| refitted[*index].map_or(1.0, |split| split.p_value);
            let weakest = (0..splits.len()).max_by(|first, second| chance(first).total_cmp(&chance(second)));
            if let Some(index) = weakest.filter(|index| chance(index) > STEP_ALPHA) {
                splits.remove(index);
                continue;
            }
            // One after the other: two neighbours that moved at once could pass each other.
            let mut has_moved = false;
            for index in 0..splits.len() {
                let Some(refitted_split) = self.refit_split(&splits, index) else { continue };
                has_moved |= refitted_split.index != splits[index].index;
                splits[index] = refitted_split;
            }
            if !has_moved {
                break;
            }
        }
        splits
    }

    /// One of several splits, where it fits best between its neighbours.
    fn refit_split(&self, splits: &[Split], index: usize) -> Option<Split> {
        Some(self.best_split(self.neighbour_segment(splits, index))?.bonferroni(splits[index].candidates))
    }

    /// What lies between the neighbours of a split.
    fn neighbour_segment(&self, splits: &[Split], index: usize) -> Segment {
        let previous_index = if index == 0 { 0 } else { splits[index - 1].index };
        [previous_index, splits.get(index + 1).map_or(self.values.len(), |next| next.index)]
    }

    /// The most certain split of a part, or else of one of its stretches: a level that comes and goes splits the whole badly. The stretches
    /// are those of seeded binary segmentation (Kovács, Buehlmann, Li and Munk 2023), and its chance counts as often as there are some.
    fn best_split_within(&self, segment: Segment) -> Option<Split> {
        let best_of_part = self.best_split(segment)?;
        if best_of_part.p_value <= STEP_ALPHA {
            return Some(best_of_part);
        }
        let layers = seeded_intervals(segment);
        let candidates = (layers.iter().map(Vec::len).sum::<usize>() + 1) as f64;
        let bound = SignificanceBound::new(STEP_ALPHA / candidates);
        let best_of_layer = |layer: &Vec<Segment>| {
            let weights = SplitWeights::for_length(layer.first().map_or(0, |[start, end]| end - start));
            // Of most the best split is not as certain, and the prefix sums soon show it.
            let may_count = layer.iter().filter(|&&stretch| {
                let (share, degrees) =
                    (self.sums.best_share(stretch, &weights), (stretch[1] - stretch[0]) as f64 - 2.0);
                bound.is_reachable(share, degrees, self.variance_inflation)
            });
            may_count
                .filter_map(|&stretch| Some(self.best_split(stretch)?.bonferroni(candidates)))
                .min_by(Split::cmp_p_value)
        };
        let best_split = layers.iter().filter_map(best_of_layer).min_by(Split::cmp_p_value);
        best_split.filter(|split| split.p_value < best_of_part.p_value).or(Some(best_of_part))
    }

    /// The best split of a part and its chance; `None` where the part is too short, or all alike.
    fn best_split(&self, [from, to]: Segment) -> Option<Split> {
        let squares = SplitSquares::from_values(&self.filtered_values[from..to])?;
        let index = squares.best_index();
        let split = self.values[from..to].split_at(index);
        let chance = squares.p_value(index, self.variance_inflation).max(recurring_state_p_value(split));
        Some(Split { index: from + index, p_value: chance, candidates: 1.0 })
    }

    fn to_change_points(&self, splits: &[Split]) -> ChangePoints {
        let steps: Vec<Step> = (0..splits.len()).map(|number| self.step(splits, number)).collect();
        let mut changes = ChangePoints { p_value: 1.0, ..ChangePoints::default() };
        if steps.is_empty() {
            changes.p_value = self.best_split([0, self.values.len()]).map_or(1.0, |split| split.p_value);
        }
        let mut begin = 0;
        for group in steps.chunk_by(|step, next| (step.after > step.before) == (next.after > next.before)) {
            let end = begin + group.len();
            let segment = [self.neighbour_segment(splits, begin)[0], self.neighbour_segment(splits, end - 1)[1]];
            match self.drift(segment, group) {
                Some(drift) => changes.drifts.push(drift),
                None => changes.steps.extend(group),
            }
            begin = end;
        }
        changes
    }

    fn step(&self, splits: &[Split], number: usize) -> Step {
        let [start, end] = self.neighbour_segment(splits, number);
        let Split { index, p_value: chance, .. } = splits[number];
        let places = SplitSquares::from_values(&self.filtered_values[start..end])
            .map_or([index; 2], |squares| squares.index_interval(self.variance_inflation).map(|offset| start + offset));
        Step {
            index,
            index_interval: [places[0].min(index), places[1].max(index)],
            before: median(&self.values[start..index]),
            after: median(&self.values[index..end]),
            p_value: chance,
        }
    }

    /// The drift that a segment is, if that explains more than the steps within it.
    fn drift(&self, [start, end]: Segment, steps: &[Step]) -> Option<Drift> {
        let values = &self.filtered_values[start..end];
        let n = values.len() as f64;
        let step_squares: f64 = residuals(values, steps.iter().map(|step| step.index - start))
            .iter()
            .map(|residual| residual * residual)
            .sum();
        let ramp = Ramp::best_fit(values)?;
        // Rounding is no fit.
        let rounding = 1e-18 * values.iter().map(|value| value * value).sum::<f64>();
        // Not widened: what a drift leaves next to steps looks like lasting states, and would speak against itself.
        let criterion =
            |squares: f64, parameters: usize| n * ((squares + rounding) / n).ln() + parameters as f64 * n.ln();
        // A level and a place for each step, and the first level; two levels, and the places of ends that are not those of the part.
        let ends = usize::from(ramp.start > 0) + usize::from(start + ramp.end + 1 < end);
        let is_drift = criterion(ramp.squares, 2 + ends) + MIN_BIC_GAIN < criterion(step_squares, 2 * steps.len() + 1);
        is_drift.then(|| Drift {
            start: start + ramp.start,
            end: start + ramp.end,
            before: ramp.before,
            after: ramp.after,
            p_value: steps.iter().map(|step| step.p_value).fold(1.0, f64::min),
        })
    }
}

/// The sums of a segment that determine its best split.
struct SplitSquares {
    /// For each index: the sum of squares between the levels before it and from it on.
    between_levels: Vec<f64>,
    /// The sum of squares around the mean of all.
    total: f64,
}

impl SplitSquares {
    fn from_values(values: &[f64]) -> Option<Self> {
        let n = values.len();
        if n < 2 * MIN_LEVEL_VALUES || values.iter().all(|value| *value == values[0]) {
            return None;
        }
        let center = mean(values);
        let total: f64 = values.iter().map(|value| (value - center).powi(2)).sum();
        let mut sum = 0.0;
        let mut between_levels = vec![0.0; n];
        for (index, value) in values.iter().enumerate().take(n - MIN_LEVEL_VALUES) {
            sum += value - center;
            let before = index + 1;
            if before >= MIN_LEVEL_VALUES {
                between_levels[before] = sum * sum * n as f64 / (before as f64 * (n - before) as f64);
            }
        }
        Some(Self { between_levels, total })
    }

    /// The indices that it may split at.
    fn indices(&self) -> std::ops::RangeInclusive<usize> {
        MIN_LEVEL_VALUES..=self.between_levels.len() - MIN_LEVEL_VALUES
    }

    fn best_index(&self) -> usize {
        let between_squares = |index: &usize| self.between_levels[*index];
        self.indices()
            .max_by(|first, second| between_squares(first).total_cmp(&between_squares(second)))
            .unwrap_or(MIN_LEVEL_VALUES)
    }

    /// Chance of a split at least as good as this one anywhere in independent normal values.
    fn p_value(&self, index: usize, widening: f64) -> f64 {
        let n = self.between_levels.len();
        let (single_p_value, r) =
            known_index_p_value(self.between_levels[index] / self.total, n as f64 - 2.0, widening);
        any_index_p_value(n, r, single_p_value)
    }

    /// The first and last place of a split that are as good as certain, from the posterior of the place with nothing known of levels
    /// and variance (Smith 1975): the most probable places that together reach [`STEP_INDEX_LEVEL`].
    fn index_interval(&self, widening: f64) -> [usize; 2] {
        let n = self.between_levels.len() as f64;
        let rounding = 1e-18 * self.total;
        let logarithm = |index: usize| {
            let residual_squares = (self.total - self.between_levels[index]).max(0.0) + rounding;
            let weight = index as f64 * (n - index as f64);
            -(n - 2.0) / 2.0 / widening * residual_squares.ln() - 0.5 * weight.ln()
        };
        let max_logarithm = self.indices().map(logarithm).fold(f64::NEG_INFINITY, f64::max);
        let mut places: Vec<(usize, f64)> =
            self.indices().map(|index| (index, (logarithm(index) - max_logarithm).exp())).collect();
        places.sort_unstable_by(|first, second| second.1.total_cmp(&first.1));
        let total: f64 = places.iter().map(|place| place.1).sum();
        let mut cumulative = 0.0;
        let probable = places.iter().take_while(|place| {
            let continues = cumulative < STEP_INDEX_LEVEL * total;
            cumulative += place.1;
            continues
        });
        let mut ends = [usize::MAX, 0];
        probable.for_each(|&(index, _)| ends = [ends[0].min(index), ends[1].max(index)]);
        ends
    }
}

/// The sums of each beginning of values, the empty one first.
struct PrefixSums {
    /// Of the distances from the mean of all.
    deviations: Vec<f64>,
    /// Of their squares.
    squares: Vec<f64>,
}

impl PrefixSums {
    fn from_values(values: &[f64]) -> Self {
        let center = mean(values);
        let mut sums = Self { deviations: vec![0.0], squares: vec![0.0] };
        let mut sums_before = [0.0; 2];
        for value in values {
            let deviation = value - center;
            sums_before = [sums_before[0] + deviation, sums_before[1] + deviation * deviation];
            sums.deviations.push(sums_before[0]);
            sums.squares.push(sums_before[1]);
        }
        sums
    }

    /// The largest share of the squares of a stretch that lies between the two levels of any of its splits.
    fn best_share(&self, [start, end]: Segment, weights: &SplitWeights) -> f64 {
        let n = (end - start) as f64;
        let (sums, before) = (&self.deviations[start..=end], self.deviations[start]);
        let (sum, squares) = (self.deviations[end] - before, self.squares[end] - self.squares[start]);
        let slope = sum / n;
        let splits = MIN_LEVEL_VALUES..=end - start - MIN_LEVEL_VALUES;
        let [sums, counts, weights] = [sums, &weights.counts, &weights.weights].map(|values| &values[splits.clone()]);
        let between_squares = |cumulative: f64, count: f64, weight: f64| {
            let excess = cumulative - before - slope * count;
            excess * excess * weight
        };
        // Several at a time: one after the other, each comparison would wait for the last.
        let ((sums, rest), (counts, rest_counts), (weights, rest_weights)) =
            (sums.as_chunks::<SPLIT_LANES>(), counts.as_chunks::<SPLIT_LANES>(), weights.as_chunks::<SPLIT_LANES>());
        let mut max_squares = [0.0_f64; SPLIT_LANES];
        for ((sums, counts), weights) in sums.iter().zip(counts).zip(weights) {
            for lane in 0..SPLIT_LANES {
                let level_squares = between_squares(sums[lane], counts[lane], weights[lane]);
                max_squares[lane] = if level_squares > max_squares[lane] { level_squares } else { max_squares[lane] };
            }
        }
        let rest = rest.iter().zip(rest_counts).zip(rest_weights);
        let max_squares_of_all = rest
            .map(|((&cumulative, &count), &weight)| between_squares(cumulative, count, weight))
            .chain(max_squares)
            .fold(0.0, f64::max);
        max_squares_of_all / (squares - sum * slope)
    }
}

/// Splits that are looked at together.
const SPLIT_LANES: usize = 4;

/// What the splits of stretches of one length have in common.
struct SplitWeights {
    /// How many values are before each.
    counts: Vec<f64>,
    /// By how much the square of their sum weighs: n / (count (n - count)).
    weights: Vec<f64>,
}

impl SplitWeights {
    fn for_length(length: usize) -> Self {
        let n = length as f64;
        let counts: Vec<f64> = (0..=length).map(|count| count as f64).collect();
        let weights = counts.iter().map(|count| n / (count * (n - count))).collect();
        Self { counts, weights }
    }
}

/// The stretches of a part in layers, each shorter by a factor of the square root of two than the last, and overlapping by half. Those of a
/// layer are equally long.
fn seeded_intervals([start, end]: Segment) -> Vec<Vec<Segment>> {
    let n = end - start;
    let mut layers = Vec::new();
    let mut ideal_length = n as f64 / std::f64::consts::SQRT_2;
    while ideal_length >= MIN_STRETCH_VALUES {
        let length = ideal_length.ceil() as usize;
        let count = 2.0 * (n as f64 / ideal_length).ceil() - 1.0;
        let shift = (n as f64 - ideal_length) / (count - 1.0);
        let starts = (0..count as usize).map(|number| (start + (number as f64 * shift) as usize).min(end - length));
        layers.push(starts.map(|begin| [begin, begin + length]).collect());
        ideal_length /= std::f64::consts::SQRT_2;
    }
    layers
}

/// The values, with the median of its neighbourhood in place of each that lies far from it, as a single outlier does, or two.
fn hampel_filter(values: &[f64]) -> Vec<f64> {
    if values.len() < OUTLIER_WINDOW {
        return values.to_vec();
    }
    let limit = OUTLIER_STDS * (1.0 + OUTLIER_STDS_FEW_VALUES / values.len() as f64) * noise_std(values);
    let filtered_value = |(index, &value): (usize, &f64)| {
        let begin = index.saturating_sub(OUTLIER_WINDOW / 2).min(values.len() - OUTLIER_WINDOW);
        let mut window = [0.0; OUTLIER_WINDOW];
        window.copy_from_slice(&values[begin..begin + OUTLIER_WINDOW]);
        // Near all of them it is near their median: so are most, and no median is needed.
        if window.iter().all(|neighbour| (value - neighbour).abs() <= limit) {
            return value;
        }
        let center = median_in_place(&mut window);
        if (value - center).abs() > limit { center } else { value }
    };
    values.iter().enumerate().map(filtered_value).collect()
}

/// Standard deviation of values around their levels, from the differences of neighbours, few of which are at a step.
fn noise_std(values: &[f64]) -> f64 {
    let mut differences: Vec<f64> = values.windows(2).map(|pair| (pair[1] - pair[0]).abs()).collect();
    crate::MAD_TO_STD * median_in_place(&mut differences) / std::f64::consts::SQRT_2
}

/// What is left of values after the mean of each level.
fn residuals(values: &[f64], splits: impl Iterator<Item = usize>) -> Vec<f64> {
    let mut begin = 0;
    let mut residuals = Vec::with_capacity(values.len());
    for end in splits.chain([values.len()]) {
        let level = &values[begin..end];
        let center = mean(level);
        residuals.extend(level.iter().map(|value| value - center));
        begin = end;
    }
    residuals
}

/// How many times as large the variance of a mean is as that of independent values, by the correlation of neighbours: that of a first
/// order autoregression, (1 + c) / (1 - c).
fn variance_inflation(correlation: f64) -> f64 {
    let correlation = correlation.clamp(0.0, 0.9);
    (1.0 + correlation) / (1.0 - correlation)
}

/// The correlation of neighbours in what is left after steps, corrected for its bias in short sequences (Kendall 1954). It counts only as
/// far as it is beyond one standard error, so that independent values are hardly widened.
fn lag_one_correlation(residuals: &[f64]) -> f64 {
    let n = residuals.len() as f64;
    let squares: f64 = residuals.iter().map(|value| value * value).sum();
    if residuals.len() < 2 * OUTLIER_WINDOW || squares <= 0.0 {
        return 0.0;
    }
    let raw = residuals.windows(2).map(|pair| pair[0] * pair[1]).sum::<f64>() / squares;
    raw + (1.0 + 3.0 * raw) / n - 1.0 / n.sqrt()
}

/// Like `lag_one_correlation`, without knowing the steps, which may be too many and then leave nothing that lasts: from how much further values that are two
/// apart lie from each other than neighbours do, by 2 (1 - c^2) and 2 (1 - c) times the variance. Few of either have a step between them, and
/// no difference counts as more than noise. It counts beyond two standard errors, so that it takes next to no power where nothing lasts.
fn lag_one_from_differences(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    if values.len() < MIN_CORRELATION_VALUES {
        return 0.0;
    }
    let [lag_one, lag_two] = [1, 2].map(|lag| {
        let differences: Vec<f64> = values.iter().zip(&values[lag..]).map(|(first, second)| second - first).collect();
        let (center, limit) = (median(&differences), STATE_STEP_STDS * crate::MAD_TO_STD * mad(&differences));
        differences.iter().map(|differences| (differences - center).abs().min(limit).powi(2)).sum::<f64>()
            / differences.len() as f64
    });
    if lag_one <= 0.0 {
        return 0.0;
    }
    lag_two / lag_one - 1.0 - 2.0 * (2.0 / n).sqrt()
}

/// Chance that the shorter side of a split is but a state of the machine that the longer side has shown too: that this many values in a row
/// fall into it, anywhere. 0 where it has not been seen, or the step is no larger than spread.
fn recurring_state_p_value((before, after): (&[f64], &[f64])) -> f64 {
    let (shorter, longer) = if after.len() <= before.len() { (after, before) } else { (before, after) };
    let (short_median, long_median) = (median(shorter), median(longer));
    if (short_median - long_median).abs() <= STATE_STEP_STDS * crate::MAD_TO_STD * mad(longer) {
        return 0.0;
    }
    let bound = long_median + MIN_STATE_FRACTION * (short_median - long_median);
    let count =
        |values: &[f64]| values.iter().filter(|&&value| (value > bound) == (short_median > long_median)).count();
    let share = count(longer) as f64 / longer.len() as f64;
    let positions = (shorter.len() + longer.len()) as f64;
    (positions * binomial_upper_tail(shorter.len(), count(shorter), share)).min(1.0)
}

/// Two levels, and a line from one to the other.
struct Ramp {
    start: usize,
    end: usize,
    before: f64,
    after: f64,
    squares: f64,
}

impl Ramp {
    /// The one with the least squares, of some.
    fn best_fit(values: &[f64]) -> Option<Self> {
        let last = values.len().checked_sub(1).filter(|&last| last >= MIN_DRIFT_RUNS)?;
        let places = DRIFT_END_CANDIDATES.min(last);
        let index = |place: usize| place * last / places;
        let ends = (0..places).flat_map(|start| (start + 1..=places).map(move |end| (index(start), index(end))));
        let candidates = ends.filter(|(start, end)| end - start >= MIN_DRIFT_RUNS);
        let ramps = candidates.filter_map(|(start, end)| Self::fit(values, start, end));
        ramps.min_by(|first, second| first.squares.total_cmp(&second.squares))
    }

    /// The least squares fit of the levels.
    fn fit(values: &[f64], start: usize, end: usize) -> Option<Self> {
        let share = |index: usize| ((index as f64 - start as f64) / (end - start) as f64).clamp(0.0, 1.0);
        let n = values.len() as f64;
        let [mut x, mut y, mut xx, mut xy, mut yy] = [0.0; 5];
        let center = mean(values);
        for (index, value) in values.iter().enumerate() {
            let (share, value) = (share(index), value - center);
            x += share;
            y += value;
            xx += share * share;
            xy += share * value;
            yy += value * value;
        }
        let spread = xx - x * x / n;
        if spread <= 0.0 {
            return None;
        }
        let slope = (xy - x * y / n) / spread;
        let before = center + (y - slope * x) / n;
        let squares = (yy - y * y / n - slope * slope * spread).max(0.0);
        Some(Self { start, end, before, after: before + slope, squares })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Random, t_upper_tail};

    /// Annual flow of the Nile at Aswan 1871-1970 (Cobb 1978); every published analysis finds the change after 1898.
    const NILE: [f64; 100] = [
        1120., 1160., 963., 1210., 1160., 1160., 813., 1230., 1370., 1140., 995., 935., 1110., 994., 1020., 960.,
        1180., 799., 958., 1140., 1100., 1210., 1150., 1250., 1260., 1220., 1030., 1100., 774., 840., 874., 694., 940.,
        833., 701., 916., 692., 1020., 1050., 969., 831., 726., 456., 824., 702., 1120., 1100., 832., 764., 821., 768.,
        845., 864., 862., 698., 845., 744., 796., 1040., 759., 781., 865., 845., 944., 984., 897., 822., 1010., 771.,
        676., 649., 846., 812., 742., 801., 1040., 860., 874., 848., 890., 744., 749., 838., 1050., 918., 986., 797.,
        923., 975., 815., 1020., 906., 901., 1170., 912., 746., 919., 718., 714., 740.,
    ];

    #[test]
    fn nile_flow_has_one_step_in_1899() {
        let changes = detect_change_points(&NILE);
        let [step] = &changes.steps[..] else { panic!("{changes:?}") };
        assert_eq!((step.index + 1871, changes.drifts.len()), (1899, 0));
        assert!(step.before > 1050.0 && step.after < 860.0 && step.p_value < 1e-6, "{step:?}");
        assert!(step.index_interval[0] + 1871 >= 1890 && step.index_interval[1] + 1871 <= 1905, "{step:?}");
    }

    /// Where what differs lasts, many steps seem to be near each other, and find better places at the same time.
    #[test]
    fn refined_steps_keep_their_order() {
        let mut random = Random::new(0);
        for _ in 0..600 {
            let mut deviation = 0.0;
            let mut draw = || {
                deviation = 0.5 * deviation + random.normal();
                deviation
            };
            let values: Vec<f64> = (0..150).map(|_| draw()).collect();
            let changes = detect_change_points(&values);
            let bounds: Vec<usize> = changes.steps.iter().map(|step| step.index).chain([values.len()]).collect();
            assert!(bounds.windows(2).all(|pair| pair[0] + MIN_LEVEL_VALUES <= pair[1]), "{changes:?}");
        }
    }

    /// The exact chance by simulation: the bound is never below it, and near where it matters.
    #[test]
    fn split_p_value_bounds_exact_tightly() {
        for n in [8, 20, 60] {
            let mut random = Random::new(2);
            let mut largest: Vec<f64> = (0..8000)
                .map(|_| {
                    let values: Vec<f64> = (0..n).map(|_| random.normal()).collect();
                    let squares = SplitSquares::from_values(&values).unwrap();
                    let share = squares.between_levels[squares.best_index()] / squares.total;
                    known_index_p_value(share, n as f64 - 2.0, 1.0).1
                })
                .collect();
            largest.sort_unstable_by(|first, second| second.total_cmp(first));
            for (rank, true_chance) in [(80, 0.01), (400, 0.05)] {
                let r = largest[rank];
                let degrees = n as f64 - 2.0;
                let single_p_value = 2.0 * t_upper_tail(r * (degrees / (1.0 - r * r)).sqrt(), degrees);
                let bound = any_index_p_value(n, r, single_p_value);
                assert!((0.8..=1.6).contains(&(bound / true_chance)), "{n}: {bound} for {true_chance}");
            }
        }
    }

    /// Steps hide nothing of how long noise lasts, nor do they pass for it.
    #[test]
    fn noise_correlation_estimated_despite_steps() {
        let mut random = Random::new(4);
        for correlation in [0.0, 0.4, 0.8] {
            let mut deviation = 0.0;
            let mut noise = || {
                deviation = correlation * deviation + random.normal();
                deviation
            };
            let values: Vec<f64> = (0..4000).map(|run| noise() + f64::from(run / 500 % 3) * 20.0).collect();
            let estimate = lag_one_from_differences(&values) + 2.0 * (2.0 / 4000.0_f64).sqrt();
            assert!((estimate - correlation).abs() < 0.1, "{estimate}, not {correlation}");
        }
        assert_eq!([&[][..], &[1.0; 40], &[1.0, 2.0]].map(lag_one_from_differences), [0.0; 3]);
    }

    #[test]
    fn outliers_are_not_steps() {
        let mut values: Vec<f64> = (0..20).map(|i| f64::from(i * 7 % 5)).collect();
        (values[11], values[12], values[18], values[19]) = (1e9, 1e9, 1e9, 1e9);
        let changes = detect_change_points(&values);
        assert_eq!((changes.steps.len(), changes.drifts.len()), (0, 0), "{changes:?}");
    }

    #[test]
    fn noiseless_step_is_located_exactly() {
        let steps: Vec<f64> = (0..36).map(|i| [10.0, 30.0, 20.0][i / 12] + (i * 7 % 5) as f64 / 10.0).collect();
        assert_eq!(detect_change_points(&steps).steps.iter().map(|step| step.index).collect::<Vec<usize>>(), [12, 24]);
        let without_noise: Vec<f64> = (0..12).map(|i| if i < 7 { 1.0 } else { 2.0 }).collect();
        let [step] = detect_change_points(&without_noise).steps[..] else { panic!() };
        assert_eq!((step.index, step.index_interval, step.p_value), (7, [7, 7], 0.0));
        for values in [&[][..], &[1.0], &[1.0; 50], &[1.0, 1.0, 1.0, 2.0, 2.0]] {
            assert_eq!(detect_change_points(values), ChangePoints { p_value: 1.0, ..ChangePoints::default() });
        }
    }

    proptest! {
        #[test]
        fn any_values_accepted_scale_irrelevant(
            values in prop::collection::vec(-50i32..50, 0..70), factor in 1i32..1000
        ) {
            let values: Vec<f64> = values.into_iter().map(f64::from).collect();
            let changes = detect_change_points(&values);
            let scaled_values: Vec<f64> = values.iter().map(|value| value * f64::from(factor) * 0.125).collect();
            let scaled_changes = detect_change_points(&scaled_values);
            let places = |result: &ChangePoints| result.steps.iter().map(|step| step.index).collect::<Vec<usize>>();
            prop_assert_eq!(places(&changes), places(&scaled_changes));
            for step in &changes.steps {
                prop_assert!(step.index_interval[0] <= step.index && step.index <= step.index_interval[1]);
                prop_assert!((MIN_LEVEL_VALUES..=values.len() - MIN_LEVEL_VALUES).contains(&step.index));
                prop_assert!((0.0..=STEP_ALPHA).contains(&step.p_value));
            }
            for drift in &changes.drifts {
                prop_assert!(drift.start + MIN_DRIFT_RUNS <= drift.end && drift.end < values.len());
            }
        }
    }
}
