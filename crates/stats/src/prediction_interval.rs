//! What a figure of one more machine may be, by what such figures are on a few that are related to it.
//!
//! Figures follow a nested random-effects model: a part that all machines have in common, one of each group of kinds, one of each kind, and
//! one of each machine. The best linear unbiased prediction of one more is the conditional expectation where all parts are normal
//! (Henderson, Best linear unbiased estimation and prediction under a selection model, 1975; Robinson, That BLUP is a good thing, 1991).

use crate::samples::mean;

/// Share of the figures of one more machine that are expected in a range.
pub const PREDICTION_LEVEL: f64 = 0.9;

/// How two machines are related: the closer, the greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MachineRelation {
    /// Of different groups.
    Other,
    /// Kinds of one group.
    Group,
    /// Two machines of one kind.
    Kind,
}

/// Variances of the parts of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VarianceComponents {
    /// Of what all machines have in common.
    pub common: f64,
    /// Between groups.
    pub kind_group: f64,
    /// Between kinds of a group.
    pub machine_kind: f64,
    /// Between machines of a kind, errors of measurement included.
    pub machine: f64,
}

/// A prediction of one more figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MachinePrediction {
    /// What is expected.
    pub mean: f64,
    /// Standard deviation of the figure about it.
    pub std: f64,
}

/// How many times the other variances together the variance of a common part is of which nothing is known.
const UNKNOWN_COMMON_VARIANCE_FACTOR: f64 = 1e6;

impl VarianceComponents {
    /// By semivariances, half of the mean square of the difference of two machines, by how they are related (in the order of
    /// [`MachineRelation`]), and by the mean square of figures. Machines that are closer differ by no more; without a mean square, nothing
    /// is known of the common part.
    pub fn from_semivariances(semivariances: [f64; 3], square: Option<f64>) -> Self {
        let [unrelated, group, kind] = semivariances;
        let group = group.min(unrelated);
        let machine = kind.min(group);
        Self {
            common: square.map_or(UNKNOWN_COMMON_VARIANCE_FACTOR * unrelated, |square| (square - unrelated).max(0.0)),
            kind_group: unrelated - group,
            machine_kind: group - machine,
            machine,
        }
    }

    /// What one more machine shows, by `observations` of others, each with its relation to that machine; `relation_between` returns that of two of
    /// them. `None` without a machine.
    pub fn predict(
        &self,
        observations: &[(f64, MachineRelation)],
        relation_between: impl Fn(usize, usize) -> MachineRelation,
    ) -> Option<MachinePrediction> {
        if observations.is_empty() {
            return None;
        }
        let count = observations.len();
        // Differences from their mean keep the digits where the common part is unknown.
        let values: Vec<f64> = observations.iter().map(|(value, _)| *value).collect();
        let is_unknown =
            self.common > UNKNOWN_COMMON_VARIANCE_FACTOR / 2.0 * (self.kind_group + self.machine_kind + self.machine);
        let offset = if is_unknown { mean(&values) } else { 0.0 };
        let covariance = |first: usize, second: usize| match first == second {
            true => self.total_variance(),
            false => self.covariance(relation_between(first, second)),
        };
        let matrix: Vec<Vec<f64>> =
            (0..count).map(|first| (0..count).map(|second| covariance(first, second)).collect()).collect();
        let target_covariances: Vec<f64> =
            observations.iter().map(|(_, relation)| self.covariance(*relation)).collect();
        let weights = solve(matrix, &target_covariances)?;
        let predicted_mean =
            offset + weights.iter().zip(&values).map(|(weight, value)| weight * (value - offset)).sum::<f64>();
        let explained_variance: f64 =
            weights.iter().zip(&target_covariances).map(|(weight, shared)| weight * shared).sum();
        Some(MachinePrediction {
            mean: predicted_mean,
            std: (self.total_variance() - explained_variance).max(self.machine).sqrt(),
        })
    }

    fn total_variance(&self) -> f64 {
        self.common + self.kind_group + self.machine_kind + self.machine
    }

    /// The covariance of two machines.
    fn covariance(&self, relation: MachineRelation) -> f64 {
        match relation {
            MachineRelation::Other => self.common,
            MachineRelation::Group => self.common + self.kind_group,
            MachineRelation::Kind => self.common + self.kind_group + self.machine_kind,
        }
    }
}

/// Solves linear equations of a symmetric positive definite matrix by Cholesky's decomposition; `None` if it is not.
fn solve(mut matrix: Vec<Vec<f64>>, right: &[f64]) -> Option<Vec<f64>> {
    let count = right.len();
    for column in 0..count {
        for row in column..count {
            let before: f64 = (0..column).map(|i| matrix[row][i] * matrix[column][i]).sum();
            let remainder = matrix[row][column] - before;
            matrix[row][column] = match row == column {
                true if remainder > 0.0 => remainder.sqrt(),
                true => return None,
                false => remainder / matrix[column][column],
            };
        }
    }
    let mut solution = right.to_vec();
    for row in 0..count {
        let before: f64 = (0..row).map(|i| matrix[row][i] * solution[i]).sum();
        solution[row] = (solution[row] - before) / matrix[row][row];
    }
    for row in (0..count).rev() {
        let after: f64 = (row + 1..count).map(|i| matrix[i][row] * solution[i]).sum();
        solution[row] = (solution[row] - after) / matrix[row][row];
    }
    Some(solution)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Random;
    use MachineRelation::{Group, Kind, Other};

    const EFFECTS: VarianceComponents =
        VarianceComponents { common: 0.04, kind_group: 0.03, machine_kind: 0.02, machine: 0.01 };

    #[test]
    fn prediction_matches_hand_calculation() {
        // One machine: a share of its figure returns that is the covariance over the variance.
        for (relation, shared) in [(Other, 0.04), (Group, 0.07), (Kind, 0.09)] {
            let prediction = EFFECTS.predict(&[(0.5, relation)], |_, _| unreachable!()).unwrap();
            assert!((prediction.mean - shared / 0.1 * 0.5).abs() < 1e-12, "{prediction:?}");
            assert!((prediction.std - (0.1 - shared * shared / 0.1_f64).sqrt()).abs() < 1e-12, "{prediction:?}");
        }
        // Two of other groups: weights solve (0.1 0.04; 0.04 0.1) w = (0.04, 0.04), so 0.04 / 0.14 each.
        let prediction = EFFECTS.predict(&[(0.5, Other), (0.2, Other)], |_, _| Other).unwrap();
        assert!((prediction.mean - 0.04 / 0.14 * 0.7).abs() < 1e-12, "{prediction:?}");
        assert!((prediction.std.powi(2) - (0.1 - 2.0 * 0.04 * 0.04 / 0.14)).abs() < 1e-12, "{prediction:?}");
        // Two machines of one kind count for little more than one.
        let same_kind = EFFECTS.predict(&[(0.5, Other), (0.5, Other)], |_, _| Kind).unwrap();
        assert!((same_kind.mean - 0.5 * 0.04 / 0.095).abs() < 1e-12, "{same_kind:?}");
        assert_eq!(EFFECTS.predict(&[], |_, _| Other), None);
    }

    #[test]
    fn without_common_part_equals_predict_mean() {
        let effects = VarianceComponents::from_semivariances([0.03; 3], None);
        assert_eq!((effects.kind_group, effects.machine_kind, effects.machine), (0.0, 0.0, 0.03));
        let prediction = effects.predict(&[(10.2, Other), (10.4, Other)], |_, _| Other).unwrap();
        assert!((prediction.mean - 10.3).abs() < 1e-6, "{prediction:?}");
        // The variance of one, and that of the mean of two.
        assert!((prediction.std.powi(2) - 0.045).abs() < 1e-6, "{prediction:?}");
        // One of the same kind outweighs one of another group.
        let effects = VarianceComponents::from_semivariances([0.5, 0.1, 0.001], None);
        let prediction = effects.predict(&[(10.0, Kind), (12.0, Other)], |_, _| Other).unwrap();
        assert!((prediction.mean - 10.0).abs() < 0.01 && prediction.std < 0.05, "{prediction:?}");
    }

    #[test]
    fn closer_relation_has_no_less_covariance() {
        assert_eq!(
            VarianceComponents::from_semivariances([0.1, 0.3, 0.2], Some(0.05)),
            VarianceComponents { common: 0.0, kind_group: 0.0, machine_kind: 0.0, machine: 0.1 }
        );
        let components = VarianceComponents::from_semivariances([0.06, 0.03, 0.01], Some(0.1));
        let expected = VarianceComponents { common: 0.04, kind_group: 0.03, machine_kind: 0.02, machine: 0.01 };
        for (actual, expected) in [
            (components.common, expected.common),
            (components.kind_group, expected.kind_group),
            (components.machine_kind, expected.machine_kind),
            (components.machine, expected.machine),
        ] {
            assert!((actual - expected).abs() < 1e-12);
        }
    }

    #[test]
    fn predictions_are_unbiased_and_calibrated() {
        const TRIES: usize = 20_000;
        let mut random = Random::new(7);
        // Two of one kind, one more of their group and one of another; one more is of the first kind, of the group, of neither.
        let (groups, kinds) = ([0, 0, 0, 1], [0, 0, 1, 2]);
        let relation = |first: (usize, usize), second: (usize, usize)| match first {
            _ if first.1 == second.1 => Kind,
            _ if first.0 == second.0 => Group,
            _ => Other,
        };
        for new in [(0, 0), (0, 3), (2, 4)] {
            let mut squares = 0.0;
            let mut deviation = 0.0;
            for _ in 0..TRIES {
                let common_effect = EFFECTS.common.sqrt() * random.normal();
                let group: [f64; 3] = std::array::from_fn(|_| EFFECTS.kind_group.sqrt() * random.normal());
                let kind: [f64; 5] = std::array::from_fn(|_| EFFECTS.machine_kind.sqrt() * random.normal());
                let mut figure = |(g, k): (usize, usize)| {
                    common_effect + group[g] + kind[k] + EFFECTS.machine.sqrt() * random.normal()
                };
                let observations: Vec<(f64, MachineRelation)> =
                    (0..4).map(|i| (figure((groups[i], kinds[i])), relation((groups[i], kinds[i]), new))).collect();
                let relation_between = |first: usize, second: usize| {
                    relation((groups[first], kinds[first]), (groups[second], kinds[second]))
                };
                let prediction = EFFECTS.predict(&observations, relation_between).unwrap();
                squares += (figure(new) - prediction.mean).powi(2);
                deviation = prediction.std;
            }
            let observed_deviation = (squares / TRIES as f64).sqrt();
            assert!((observed_deviation / deviation - 1.0).abs() < 0.02, "{observed_deviation} {deviation}");
        }
    }

    #[test]
    fn solve_rejects_indefinite_matrix() {
        assert_eq!(solve(vec![vec![1.0, 1.0], vec![1.0, 1.0]], &[1.0, 1.0]), None);
        let solution = solve(vec![vec![4.0, 2.0], vec![2.0, 3.0]], &[10.0, 9.0]).unwrap();
        assert!((solution[0] - 1.5).abs() < 1e-12 && (solution[1] - 2.0).abs() < 1e-12);
    }
}
