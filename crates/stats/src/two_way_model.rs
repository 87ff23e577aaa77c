//! Values of pairs as an overall value plus an effect of each end: which ends differ from the others, and which pairs from their ends.
//!
//! A two-way layout without interaction (Scheffe, "The Analysis of Variance", 1959, chapter 4), fitted robustly. Two fits are made by Huber's
//! M-estimator ("Robust Estimation of a Location Parameter", 1964), on which a few wrong values have little pull: one begins with means, and
//! one with medians (Tukey, "Exploratory Data Analysis", 1977, chapter 11), since of few values of an end a wrong one pulls the mean along, so
//! that it seems to fit. The one that values scatter less around is taken (S-estimation, Rousseeuw and Yohai 1984). Then least squares are
//! fitted without the values that do not fit, until no others do (Rousseeuw and Leroy, "Robust Regression and Outlier Detection", 1987).

use std::ops::Range;

use crate::{MAD_TO_STD, median_in_place, t_quantile, t_upper_tail};

/// A fit ends when no effect moves by more than this, or after so many passes. Tables with few gaps need a few passes.
const TOLERANCE: f64 = 1e-9;
const MAX_PASSES: usize = 500;
/// Medians settle after a few passes, or go round.
const MEDIAN_PASSES: usize = 10;
/// Huber's estimator gives less weight to what is further away than this, in standard deviations: 95 % as efficient as the mean.
const HUBER_LIMIT: f64 = 1.345;
/// Its weights settle after a few fits.
const HUBER_FITS: usize = 20;
/// Which values have weight settles after a few fits.
const MAX_REJECTIONS: usize = 10;
/// Bound of a leverage that is estimated where many values of an end have no weight.
const MAX_LEVERAGE: f64 = 0.9;
/// A value this many standard deviations from the robust fit has no weight in the fit, as in Rousseeuw and Leroy, who take 2.5: here
/// tables are large, and 3 leaves out 0.3 % of normal residuals.
const MAX_DEVIATION: f64 = 3.0;
/// Variance of a normal distribution that is cut off there, which the residuals of the fit have: 1 - 2 c phi(c) / (2 Phi(c) - 1).
const TRUNCATED_VARIANCE: f64 = 0.973_3;

/// A value of a pair.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PairValue {
    /// The effects that it has a part of: different ones.
    pub ends: [usize; 2],
    /// The value, such as the logarithm of a rate.
    pub value: f64,
}

/// What a fit expects of a pair from all other pairs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PairPrediction {
    /// The expected value.
    pub value: f64,
    /// Standard deviation of a value around it: that of one value, and that of the expectation.
    pub std: f64,
    /// Degrees of freedom of that standard deviation.
    pub degrees: f64,
}

/// The effects of a table of pairs.
#[derive(Clone, Debug, PartialEq)]
pub struct TwoWayModel {
    overall: f64,
    effects: Vec<f64>,
    /// Values with weight of each effect.
    counts: Vec<f64>,
    groups: Vec<Range<usize>>,
    parameters: usize,
    std: f64,
    degrees: f64,
    /// The weight of each value: in the end 0 or 1.
    weights: Vec<f64>,
    residuals: Vec<f64>,
}

impl TwoWayModel {
    /// The fit of values to `overall + effect of one end + effect of the other`, in which the effects of each group sum to zero: one group
    /// where a pair has no direction, one of senders and one of receivers where it has. `resolution` is the least standard deviation that a
    /// value can have, in its unit. `None` unless there are more values than parameters, and some of each effect.
    pub fn fit(values: &[PairValue], groups: &[Range<usize>], resolution: f64) -> Option<Self> {
        let effect_count = groups.iter().map(|group| group.end).max()?;
        let parameters = 1 + groups.iter().map(|group| group.len() - 1).sum::<usize>();
        if values.len() <= parameters {
            return None;
        }
        let mut model = Self {
            overall: 0.0,
            effects: vec![0.0; effect_count],
            counts: vec![0.0; effect_count],
            groups: groups.to_vec(),
            parameters,
            std: 0.0,
            degrees: 0.0,
            weights: vec![1.0; values.len()],
            residuals: vec![0.0; values.len()],
        };
        let by_effect = values_of_effects(values, effect_count);
        let mut by_medians = model.clone();
        by_medians.fit_medians(values, &by_effect);
        // Their scale stays (Yohai 1987, "High breakdown-point and high efficiency robust estimates"): a new one after each fit would grow
        // with the pull of what does not fit, until all fits.
        let scale = by_medians.robust_std(values, resolution);
        by_medians.fit_huber((values, &by_effect), |_| scale);
        model.fit_least_squares(values, &by_effect);
        model.fit_huber((values, &by_effect), |model| model.robust_std(values, resolution));
        if by_medians.robust_std(values, resolution) < model.robust_std(values, resolution) {
            model = by_medians;
        }
        for _ in 0..MAX_REJECTIONS {
            let limit = MAX_DEVIATION * model.robust_std(values, resolution);
            let before = model.weights.clone();
            model.set_weights(values, |residual| if residual.abs() <= limit { 1.0 } else { 0.0 });
            model.fit_least_squares(values, &by_effect);
            if model.weights == before {
                break;
            }
        }
        model.finish(values, resolution)
    }

    /// The standard deviation of values around the fit by their median deviation. The residuals of a fit are smaller than the errors, and the
    /// median of few varies: the last factor is that of Rousseeuw and Leroy for small samples.
    fn robust_std(&self, values: &[PairValue], resolution: f64) -> f64 {
        let mut deviations: Vec<f64> = values.iter().map(|value| self.residual(value).abs()).collect();
        let free = (values.len() - self.parameters) as f64;
        let factor = (values.len() as f64 / free).sqrt() * (1.0 + 5.0 / free);
        (MAD_TO_STD * median_in_place(&mut deviations) * factor).max(resolution)
    }

    fn set_weights(&mut self, values: &[PairValue], weight: impl Fn(f64) -> f64) {
        self.weights = values.iter().map(|value| weight(self.residual(value))).collect();
    }

    /// Fits by Huber's estimator, from the fit so far; `scale` is the standard deviation of values that fit.
    fn fit_huber(&mut self, (values, by_effect): (&[PairValue], &[Vec<usize>]), scale: impl Fn(&Self) -> f64) {
        for _ in 0..HUBER_FITS {
            let limit = HUBER_LIMIT * scale(self);
            self.set_weights(values, |residual| (limit / residual.abs()).min(1.0));
            self.fit_least_squares(values, by_effect);
        }
    }

    /// Gives each effect in turn the median of what is left of its values.
    fn fit_medians(&mut self, values: &[PairValue], by_effect: &[Vec<usize>]) {
        self.overall = median_in_place(&mut values.iter().map(|value| value.value).collect::<Vec<f64>>());
        for _ in 0..MEDIAN_PASSES {
            for (effect, indices) in by_effect.iter().enumerate().filter(|(_, indices)| !indices.is_empty()) {
                let mut left: Vec<f64> = indices.iter().map(|&index| self.residual(&values[index])).collect();
                self.effects[effect] += median_in_place(&mut left);
            }
            self.centre();
        }
    }

    /// Gives each effect in turn the weighted mean of what is left of its values, until none moves.
    fn fit_least_squares(&mut self, values: &[PairValue], by_effect: &[Vec<usize>]) {
        for _ in 0..MAX_PASSES {
            let mut largest_move: f64 = 0.0;
            for (effect, indices) in by_effect.iter().enumerate() {
                let weight: f64 = indices.iter().map(|&index| self.weights[index]).sum();
                if weight > 0.0 {
                    let left = indices.iter().map(|&index| self.weights[index] * self.residual(&values[index]));
                    let change = left.sum::<f64>() / weight;
                    self.effects[effect] += change;
                    largest_move = largest_move.max(change.abs());
                }
            }
            self.centre();
            if largest_move <= TOLERANCE {
                break;
            }
        }
    }

    /// Moves what the effects of a group have in common to the overall value: once for each end that the group gives to a pair.
    fn centre(&mut self) {
        let ends_per_group = 2.0 / self.groups.len() as f64;
        for group in &self.groups {
            let common = crate::mean(&self.effects[group.clone()]);
            self.effects[group.clone()].iter_mut().for_each(|effect| *effect -= common);
            self.overall += ends_per_group * common;
        }
    }

    fn finish(mut self, values: &[PairValue], resolution: f64) -> Option<Self> {
        let mut squares = 0.0;
        let mut count = 0;
        for (index, value) in values.iter().enumerate() {
            self.residuals[index] = self.residual(value);
            if self.weights[index] > 0.0 {
                squares += self.residuals[index].powi(2);
                count += 1;
                value.ends.iter().for_each(|&end| self.counts[end] += 1.0);
            }
        }
        if count <= self.parameters || self.counts.contains(&0.0) {
            return None;
        }
        self.degrees = (count - self.parameters) as f64;
        self.std = (squares / self.degrees / TRUNCATED_VARIANCE).sqrt().max(resolution);
        Some(self)
    }

    fn sum(&self, [first, second]: [usize; 2]) -> f64 {
        self.overall + self.effects[first] + self.effects[second]
    }

    fn residual(&self, value: &PairValue) -> f64 {
        value.value - self.sum(value.ends)
    }

    /// The effect of each end, within its group.
    pub fn effects(&self) -> &[f64] {
        &self.effects
    }

    /// Standard deviation of a value around the sum of its parts.
    pub fn std(&self) -> f64 {
        self.std
    }

    /// Standard error of an effect.
    pub fn effect_error(&self, effect: usize) -> f64 {
        self.std / self.counts[effect].sqrt()
    }

    /// Degrees of freedom of the standard deviation.
    pub fn degrees(&self) -> f64 {
        self.degrees
    }

    /// What all other values predict for the value with this index. One with weight has pulled the fit towards it by its leverage. That is
    /// exact for a table of all pairs, in which all have the same leverage, and so the number of parameters over that of values.
    pub fn predict_without(&self, values: &[PairValue], index: usize) -> PairPrediction {
        let has_weight = self.weights[index] > 0.0;
        let shares = values[index].ends.map(|end| 1.0 / (self.counts[end] + if has_weight { 0.0 } else { 1.0 }));
        let free_effects = (self.parameters as f64 / self.effects.len() as f64).min(1.0);
        let leverage = (free_effects * (shares[0] + shares[1])).min(MAX_LEVERAGE);
        let pull = if has_weight { leverage } else { 0.0 };
        PairPrediction {
            value: values[index].value - self.residuals[index] / (1.0 - pull),
            std: self.std / (1.0 - leverage).sqrt(),
            degrees: self.degrees,
        }
    }
}

impl PairPrediction {
    /// Chance of a value as low as this one, or lower.
    pub fn lower_tail(&self, value: f64) -> f64 {
        t_upper_tail((self.value - value) / self.std, self.degrees)
    }

    /// The range that holds a value at this level.
    pub fn range(&self, level: f64) -> (f64, f64) {
        let half = self.std * t_quantile(0.5 + level / 2.0, self.degrees);
        (self.value - half, self.value + half)
    }
}

fn values_of_effects(values: &[PairValue], effect_count: usize) -> Vec<Vec<usize>> {
    let mut by_effect = vec![Vec::new(); effect_count];
    for (index, value) in values.iter().enumerate() {
        value.ends.iter().for_each(|&end| by_effect[end].push(index));
    }
    by_effect
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;

    const SENDERS_AND_RECEIVERS: [Range<usize>; 2] = [0..8, 8..16];

    /// All ordered pairs of eight ends, with a value for each.
    fn directed(mut value: impl FnMut(usize, usize) -> f64) -> Vec<PairValue> {
        let pairs = (0..8).flat_map(|sender| (0..8).map(move |receiver| (sender, receiver)));
        pairs
            .filter(|(sender, receiver)| sender != receiver)
            .map(|(sender, receiver)| PairValue { ends: [sender, 8 + receiver], value: value(sender, receiver) })
            .collect()
    }

    /// Rates in Mbit/s between five namespaces beside other programs; the limit of the link between the second and the fourth was 16.
    const FIVE_HOSTS: [[f64; 5]; 5] = [
        [0.0, 37.3, 38.2, 37.1, 36.6],
        [37.4, 0.0, 37.5, 15.6, 37.5],
        [37.7, 38.7, 0.0, 36.8, 37.1],
        [37.9, 15.6, 37.7, 0.0, 37.6],
        [37.9, 37.5, 37.9, 36.8, 0.0],
    ];

    #[test]
    fn slow_link_of_few_hosts_does_not_hide_in_their_effects() {
        let pairs = (0..5).flat_map(|from| (0..5).map(move |to| (from, to))).filter(|(from, to)| from != to);
        let value = |(from, to): (usize, usize)| PairValue { ends: [from, to + 5], value: FIVE_HOSTS[from][to].ln() };
        let values: Vec<PairValue> = pairs.map(value).collect();
        let model = TwoWayModel::fit(&values, &[0..5, 5..10], 0.005).unwrap();
        assert!(model.std() < 0.03, "{}", model.std());
        for (index, value) in values.iter().enumerate() {
            let prediction = model.predict_without(&values, index);
            let is_slow = [[1, 8], [3, 6]].contains(&value.ends);
            assert_eq!(prediction.lower_tail(value.value) < 1e-6, is_slow, "{value:?}: {prediction:?}");
            assert!((prediction.value - 37.5f64.ln()).abs() < 0.05, "{value:?}: {prediction:?}");
        }
    }

    #[test]
    fn exact_sums_give_exact_effects() {
        let values = directed(|sender, receiver| 5.0 + 0.1 * sender as f64 - 0.2 * receiver as f64);
        let model = TwoWayModel::fit(&values, &SENDERS_AND_RECEIVERS, 1e-6).unwrap();
        for end in 0..8 {
            assert!((model.effects()[end] - 0.1 * (end as f64 - 3.5)).abs() < 1e-7, "{:?}", model.effects());
            assert!((model.effects()[8 + end] + 0.2 * (end as f64 - 3.5)).abs() < 1e-7, "{:?}", model.effects());
        }
        assert!((model.overall - (5.0 + 0.35 - 0.7)).abs() < 1e-7);
        assert_eq!(model.degrees(), 56.0 - 15.0);
        assert_eq!(model.std(), 1e-6);
    }

    #[test]
    fn pairs_without_direction_share_one_effect_of_each_end() {
        let values: Vec<PairValue> = (0..6)
            .flat_map(|first| (first + 1..6).map(move |second| [first, second]))
            .map(|ends| PairValue { ends, value: 2.0 + ends.iter().map(|&end| end as f64).sum::<f64>() })
            .collect();
        let model = TwoWayModel::fit(&values, std::slice::from_ref(&(0..6)), 1e-6).unwrap();
        assert!((model.overall - 7.0).abs() < 1e-7, "{}", model.overall);
        assert!(model.effects().iter().enumerate().all(|(end, effect)| (effect - (end as f64 - 2.5)).abs() < 1e-7));
        assert_eq!(model.degrees(), 9.0);
    }

    #[test]
    fn one_wrong_pair_leaves_effects_and_its_prediction_exact() {
        let values = directed(|sender, receiver| {
            sender as f64 + receiver as f64 - if (sender, receiver) == (2, 5) { 0.5 } else { 0.0 }
        });
        let model = TwoWayModel::fit(&values, &SENDERS_AND_RECEIVERS, 1e-3).unwrap();
        let index = values.iter().position(|value| value.ends == [2, 13]).unwrap();
        let prediction = model.predict_without(&values, index);
        assert!((prediction.value - 7.0).abs() < 1e-7, "{prediction:?}");
        // The leverage of each value of a whole table is 15 parameters over 56 values.
        assert!((prediction.std - 1e-3 / (1.0_f64 - 15.0 / 56.0).sqrt()).abs() < 1e-9, "{prediction:?}");
        assert!(prediction.lower_tail(6.5) < 1e-20);
    }

    #[test]
    fn prediction_without_a_value_is_that_of_a_fit_without_it() {
        let mut random = Random::new(3);
        let values = directed(|_, _| 0.05 * random.normal());
        let model = TwoWayModel::fit(&values, &SENDERS_AND_RECEIVERS, 1e-6).unwrap();
        let mut rest = values.clone();
        let removed = rest.remove(20);
        let without = TwoWayModel::fit(&rest, &SENDERS_AND_RECEIVERS, 1e-6).unwrap();
        let difference = (model.predict_without(&values, 20).value - without.sum(removed.ends)).abs();
        assert!(difference < 1e-8, "{difference} of {}", model.std());
    }

    #[test]
    fn normal_noise_has_uniform_tails() {
        let mut random = Random::new(11);
        let mut beyond = 0;
        let mut count = 0;
        for _ in 0..200 {
            let values = directed(|sender, _| 0.3 * sender as f64 + 0.02 * random.normal());
            let model = TwoWayModel::fit(&values, &SENDERS_AND_RECEIVERS, 1e-6).unwrap();
            for (index, value) in values.iter().enumerate() {
                beyond += usize::from(model.predict_without(&values, index).lower_tail(value.value) < 0.01);
                count += 1;
            }
        }
        let share = beyond as f64 / count as f64;
        assert!((0.005..0.02).contains(&share), "{share}");
    }

    #[test]
    fn too_few_values_have_no_fit() {
        let values: Vec<PairValue> =
            [[0, 1], [0, 2], [1, 2]].into_iter().map(|ends| PairValue { ends, value: 1.0 }).collect();
        assert_eq!(TwoWayModel::fit(&values, std::slice::from_ref(&(0..3)), 1e-6), None);
        assert_eq!(TwoWayModel::fit(&[], &[], 1e-6), None);
    }

    #[test]
    fn range_is_that_of_student() {
        let prediction = PairPrediction { value: 1.0, std: 2.0, degrees: 10.0 };
        let (low, high) = prediction.range(0.95);
        // Student's t of 10 degrees of freedom, 97.5 %: 2.228139.
        assert!((low - (1.0 - 2.0 * 2.228_139)).abs() < 1e-4 && (high - (1.0 + 2.0 * 2.228_139)).abs() < 1e-4);
        assert!((prediction.lower_tail(low) - 0.025).abs() < 1e-6);
    }
}
