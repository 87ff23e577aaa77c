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
        let own = kind.min(group);
        Self {
            common: square.map_or(UNKNOWN_COMMON_VARIANCE_FACTOR * unrelated, |square| (square - unrelated).max(0.0)),
            kind_group: unrelated - group,
            machine_kind: group - own,
            machine: own,
        }
    }

    /// What one more machine shows, by the `known` ones, each with its relation to that machine; `between` tells the relation of two of
    /// them. `None` without a machine.
    pub fn predict(
        &self,
        known: &[(f64, MachineRelation)],
        between: impl Fn(usize, usize) -> MachineRelation,
    ) -> Option<MachinePrediction> {
        if known.is_empty() {
            return None;
        }
        let count = known.len();
        // Differences from their mean keep the digits where the common part is unknown.
        let values: Vec<f64> = known.iter().map(|(value, _)| *value).collect();
        let is_unknown =
            self.common > UNKNOWN_COMMON_VARIANCE_FACTOR / 2.0 * (self.kind_group + self.machine_kind + self.machine);
        let about = if is_unknown { mean(&values) } else { 0.0 };
        let covariance = |first: usize, second: usize| match first == second {
            true => self.total_variance(),
            false => self.covariance(between(first, second)),
        };
        let matrix: Vec<Vec<f64>> =
            (0..count).map(|first| (0..count).map(|second| covariance(first, second)).collect()).collect();
        let with_it: Vec<f64> = known.iter().map(|(_, relation)| self.covariance(*relation)).collect();
        let weights = solve(matrix, &with_it)?;
        let middle = about + weights.iter().zip(&values).map(|(weight, value)| weight * (value - about)).sum::<f64>();
        let explained: f64 = weights.iter().zip(&with_it).map(|(weight, shared)| weight * shared).sum();
        Some(MachinePrediction { mean: middle, std: (self.total_variance() - explained).max(self.machine).sqrt() })
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
            let left = matrix[row][column] - before;
            matrix[row][column] = match row == column {
                true if left > 0.0 => left.sqrt(),
                true => return None,
                false => left / matrix[column][column],
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
            let found = EFFECTS.predict(&[(0.5, relation)], |_, _| unreachable!()).unwrap();
            assert!((found.mean - shared / 0.1 * 0.5).abs() < 1e-12, "{found:?}");
            assert!((found.std - (0.1 - shared * shared / 0.1_f64).sqrt()).abs() < 1e-12, "{found:?}");
        }
        // Two of other groups: weights solve (0.1 0.04; 0.04 0.1) w = (0.04, 0.04), so 0.04 / 0.14 each.
        let found = EFFECTS.predict(&[(0.5, Other), (0.2, Other)], |_, _| Other).unwrap();
        assert!((found.mean - 0.04 / 0.14 * 0.7).abs() < 1e-12, "{found:?}");
        assert!((found.std.powi(2) - (0.1 - 2.0 * 0.04 * 0.04 / 0.14)).abs() < 1e-12, "{found:?}");
        // Two machines of one kind count for little more than one.
        let twins = EFFECTS.predict(&[(0.5, Other), (0.5, Other)], |_, _| Kind).unwrap();
        assert!((twins.mean - 0.5 * 0.04 / 0.095).abs() < 1e-12, "{twins:?}");
        assert_eq!(EFFECTS.predict(&[], |_, _| Other), None);
    }

    #[test]
    fn without_common_part_equals_predict_mean() {
        let effects = VarianceComponents::from_semivariances([0.03; 3], None);
        assert_eq!((effects.kind_group, effects.machine_kind, effects.machine), (0.0, 0.0, 0.03));
        let found = effects.predict(&[(10.2, Other), (10.4, Other)], |_, _| Other).unwrap();
        assert!((found.mean - 10.3).abs() < 1e-6, "{found:?}");
        // The variance of one, and that of the mean of two.
        assert!((found.std.powi(2) - 0.045).abs() < 1e-6, "{found:?}");
        // One of the same kind outweighs one of another group.
        let effects = VarianceComponents::from_semivariances([0.5, 0.1, 0.001], None);
        let found = effects.predict(&[(10.0, Kind), (12.0, Other)], |_, _| Other).unwrap();
        assert!((found.mean - 10.0).abs() < 0.01 && found.std < 0.05, "{found:?}");
    }

    #[test]
    fn closer_relation_has_no_less_covariance() {
        assert_eq!(
            VarianceComponents::from_semivariances([0.1, 0.3, 0.2], Some(0.05)),
            VarianceComponents { common: 0.0, kind_group: 0.0, machine_kind: 0.0, machine: 0.1 }
        );
        let found = VarianceComponents::from_semivariances([0.06, 0.03, 0.01], Some(0.1));
        let expected = VarianceComponents { common: 0.04, kind_group: 0.03, machine_kind: 0.02, machine: 0.01 };
        for (found, expected) in [
            (found.common, expected.common),
            (found.kind_group, expected.kind_group),
            (found.machine_kind, expected.machine_kind),
            (found.machine, expected.machine),
        ] {
            assert!((found - expected).abs() < 1e-12);
        }
    }

    #[test]
    fn predictions_are_unbiased_and_calibrated() {
        const TRIES: usize = 20_000;
        let mut random = Random::new(7);
        // Two of one kind, one more of their group and one of another; one more is of the first kind, of the group, of neither.
        let (groups, kinds) = ([0, 0, 0, 1], [0, 0, 1, 2]);
        let relation = |one: (usize, usize), other: (usize, usize)| match one {
            _ if one.1 == other.1 => Kind,
            _ if one.0 == other.0 => Group,
            _ => Other,
        };
        for new in [(0, 0), (0, 3), (2, 4)] {
            let mut squares = 0.0;
            let mut deviation = 0.0;
            for _ in 0..TRIES {
                let common = EFFECTS.common.sqrt() * random.normal();
                let group: [f64; 3] = std::array::from_fn(|_| EFFECTS.kind_group.sqrt() * random.normal());
                let kind: [f64; 5] = std::array::from_fn(|_| EFFECTS.machine_kind.sqrt() * random.normal());
                let mut figure =
                    |(g, k): (usize, usize)| common + group[g] + kind[k] + EFFECTS.machine.sqrt() * random.normal();
                let known: Vec<(f64, MachineRelation)> =
                    (0..4).map(|i| (figure((groups[i], kinds[i])), relation((groups[i], kinds[i]), new))).collect();
                let between =
                    |one: usize, other: usize| relation((groups[one], kinds[one]), (groups[other], kinds[other]));
                let found = EFFECTS.predict(&known, between).unwrap();
                squares += (figure(new) - found.mean).powi(2);
                deviation = found.std;
            }
            let seen = (squares / TRIES as f64).sqrt();
            assert!((seen / deviation - 1.0).abs() < 0.02, "{seen} {deviation}");
        }
    }

    #[test]
    fn solve_rejects_indefinite_matrix() {
        assert_eq!(solve(vec![vec![1.0, 1.0], vec![1.0, 1.0]], &[1.0, 1.0]), None);
        let found = solve(vec![vec![4.0, 2.0], vec![2.0, 3.0]], &[10.0, 9.0]).unwrap();
        assert!((found[0] - 1.5).abs() < 1e-12 && (found[1] - 2.0).abs() < 1e-12);
    }
}
