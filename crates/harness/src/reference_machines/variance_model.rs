//! How far figures lie from their predictions, and figures of two machines from each other, by how these are related.

use std::collections::BTreeMap;

use kelvin_core::{Case, Metric, Unit};
use kelvin_stats::{MachineRelation, PREDICTION_LEVEL, VarianceComponents, mean};

use super::{ReferenceMachine, value_at_case};

/// Variance between machines of the natural logarithm of a figure that nothing else predicts: a factor of 1.28 either way, as a stated
/// tolerance. A few machines narrow it where they agree.
pub(super) const UNMODELLED_VARIANCE: f64 = 0.06;
/// Like `UNMODELLED_VARIANCE`, of a figure over its proxy: a factor of 1.15 either way.
pub(super) const PROXY_VARIANCE: f64 = 0.02;
/// The share of the mean square about a formula that lies between groups of machines where no two groups have figures: half.
const BETWEEN_GROUP_SHARE: f64 = 0.5;
/// Least variance of a figure about its formula: 1 % of error is in any two figures.
const MIN_VARIANCE: f64 = 1e-4;
/// How many machines and pairs of them the usual variance of a group counts as, next to those of one formula.
const PRIOR_MACHINES: f64 = 1.0;
/// How many metrics of a group all others count as: one metric that a formula hits by chance makes no accurate group.
const PRIOR_METRICS: f64 = 1.0;
/// Like `PRIOR_METRICS`, of a stated tolerance.
const TOLERANCE_PRIOR_METRICS: f64 = 2.0;

/// Metrics whose predictions are wrong by as much: the first two parts of a metric's id, and its unit, since a count is
/// known better than a time.
pub(super) type MetricGroup = (String, Unit);

/// Mean squares of metrics by their group.
type MeanSquares = BTreeMap<MetricGroup, Vec<f64>>;

/// Like `MeanSquares`, of differences of two machines, halved, by their relation in the order of [`MachineRelation`].
pub(super) type PairVariances = [MeanSquares; 3];

/// The group of a metric.
pub(super) fn metric_group(metric: &Metric) -> MetricGroup {
    (metric.id.split('.').take(2).collect::<Vec<_>>().join("."), metric.unit)
}

/// Figures of one metric on some machines, as natural logarithms: over one formula, or over what does the same kind of work.
#[derive(Clone, Debug)]
pub(super) struct FormulaErrors<'a> {
    machines: Vec<(&'a ReferenceMachine, &'a [(Case, f64)])>,
}

impl<'a> FormulaErrors<'a> {
    /// Those of each machine, if there is any.
    pub(super) fn new(machines: impl Iterator<Item = (&'a ReferenceMachine, &'a [(Case, f64)])>) -> Option<Self> {
        let machines: Vec<_> = machines.collect();
        (!machines.is_empty()).then_some(Self { machines })
    }

    /// How many machines have figures.
    pub(super) fn machines(&self) -> usize {
        self.machines.len()
    }

    /// How many figures they have.
    pub(super) fn value_count(&self) -> usize {
        self.machines.iter().map(|(_, cases)| cases.len()).sum()
    }

    /// A case on each machine, or where one has not measured it the middle of its others.
    pub(super) fn values_at(&self, case: &Case) -> Vec<(&'a ReferenceMachine, f64)> {
        let case_value = |cases: &[(Case, f64)]| value_at_case(cases, case).unwrap_or_else(|| mean(&values(cases)));
        self.machines.iter().map(|(machine, cases)| (*machine, case_value(cases))).collect()
    }

    /// The mean square of each machine.
    fn mean_squares(&self) -> impl Iterator<Item = f64> {
        self.machines
            .iter()
            .map(|(_, cases)| mean(&values(cases).iter().map(|error| error * error).collect::<Vec<f64>>()))
    }

    /// For each pair of machines their relation, and half of the mean square of their difference over the cases of both.
    fn pair_variances(&self) -> impl Iterator<Item = (MachineRelation, f64)> {
        all_pairs(&self.machines).filter_map(|((machine, own_cases), (other, cases))| {
            let squares =
                own_cases.iter().filter_map(|(case, error)| Some((error - value_at_case(cases, case)?).powi(2) / 2.0));
            let squares: Vec<f64> = squares.collect();
            (!squares.is_empty()).then(|| (machine.identity.relation(&other.identity), mean(&squares)))
        })
    }
}

/// Each pair of items once.
pub(super) fn all_pairs<T>(items: &[T]) -> impl Iterator<Item = (&T, &T)> {
    let following = |number: usize| items[number + 1..].iter();
    items.iter().enumerate().flat_map(move |(number, item)| following(number).map(move |other| (item, other)))
}

fn values(cases: &[(Case, f64)]) -> Vec<f64> {
    cases.iter().map(|(_, value)| *value).collect()
}

/// How far figures usually lie from their predictions, and from each other on two machines.
#[derive(Clone, Debug, Default)]
pub(super) struct VarianceModel {
    /// Mean squares; none where only other machines predict.
    mean_square: Option<PooledVariance>,
    pair_variances: [PooledVariance; 3],
}

impl VarianceModel {
    /// About formulas, by all that machines have: those of few metrics of a group are drawn to those of all.
    pub(super) fn from_formulas<'a>(errors: impl Iterator<Item = (MetricGroup, FormulaErrors<'a>)>) -> Self {
        let (mut squares, mut semivariances) = (MeanSquares::new(), PairVariances::default());
        for (group, errors) in errors {
            squares.entry(group.clone()).or_default().extend(errors.mean_squares());
            for (relation, square) in errors.pair_variances() {
                semivariances[relation as usize].entry(group.clone()).or_default().push(square);
            }
        }
        Self {
            mean_square: Some(PooledVariance::pooled(squares)),
            pair_variances: semivariances.map(PooledVariance::pooled),
        }
    }

    /// Of what has no formula: drawn to a stated tolerance, since machines that are alike predict little for one that is not. Machines that are
    /// related are closer than that as they usually are about formulas.
    pub(super) fn from_machine_pairs(pairs: PairVariances, tolerance: f64, formulas: &Self) -> Self {
        let [unrelated, ..] = formulas.pair_variances.each_ref().map(|variance| variance.overall);
        let mut levels = pairs.into_iter().zip(&formulas.pair_variances).map(|(squares, formula_variance)| {
            let tolerance_scale = formula_variance
                .overall
                .zip(unrelated)
                .map_or(1.0, |(overall, unrelated)| (overall / unrelated).min(1.0));
            PooledVariance::shrunk_towards(squares, (tolerance * tolerance_scale, TOLERANCE_PRIOR_METRICS))
        });
        Self { mean_square: None, pair_variances: std::array::from_fn(|_| levels.next().unwrap_or_default()) }
    }

    /// The parts of figures of a group; `None` if nothing is known of any.
    pub(super) fn effects(&self, group: &MetricGroup) -> Option<VarianceComponents> {
        let (semivariances, square) = self.variances(group)?;
        Some(VarianceComponents::from_semivariances(semivariances, square))
    }

    /// How many times the usual variance of the group the errors of a formula have: what its own machines show, drawn to one.
    pub(super) fn relative_variance(&self, group: &MetricGroup, errors: &FormulaErrors<'_>) -> Option<f64> {
        let (semivariances, square) = self.variances(group)?;
        let squares = square
            .into_iter()
            .flat_map(|group_square| errors.mean_squares().map(move |square| square.max(MIN_VARIANCE) / group_square));
        let pairs = errors
            .pair_variances()
            .map(|(relation, square)| square.max(MIN_VARIANCE) / semivariances[relation as usize]);
        let ratios: Vec<f64> = squares.chain(pairs).collect();
        Some((PRIOR_MACHINES + ratios.iter().sum::<f64>()) / (PRIOR_MACHINES + ratios.len() as f64))
    }

    /// The semivariances of a group by relation, and its mean square.
    fn variances(&self, group: &MetricGroup) -> Option<([f64; 3], Option<f64>)> {
        let square = match &self.mean_square {
            Some(pooled) => Some(pooled.variance(group)?),
            None => None,
        };
        let [unrelated, vendor, kind] = self.pair_variances.each_ref().map(|variance| variance.variance(group));
        let unrelated = unrelated.or(square.map(|square| BETWEEN_GROUP_SHARE * square))?;
        let vendor = vendor.unwrap_or(unrelated);
        Some(([unrelated, vendor, kind.unwrap_or(vendor)], square))
    }
}

/// A variance by group.
#[derive(Clone, Debug, Default)]
struct PooledVariance {
    by_group: BTreeMap<MetricGroup, f64>,
    /// That of a group of which nothing is known, if something is known of others or assumed.
    overall: Option<f64>,
}

impl PooledVariance {
    /// Drawn to that of all groups.
    fn pooled(squares: MeanSquares) -> Self {
        let all_squares: Vec<f64> = squares.values().flatten().copied().collect();
        if all_squares.is_empty() {
            return Self::default();
        }
        Self::shrunk_towards(squares, (trimmed_mean(all_squares), PRIOR_METRICS))
    }

    /// Drawn to a variance that counts as this many metrics.
    fn shrunk_towards(squares: MeanSquares, (target, weight): (f64, f64)) -> Self {
        let shrunk = |squares: Vec<f64>| {
            let metrics = squares.len() as f64;
            (metrics * trimmed_mean(squares) + weight * target) / (metrics + weight)
        };
        let by_group = squares.into_iter().map(|(group, squares)| (group, shrunk(squares))).collect();
        Self { by_group, overall: Some(target) }
    }

    fn variance(&self, group: &MetricGroup) -> Option<f64> {
        self.by_group.get(group).copied().or(self.overall)
    }
}

/// The mean of the closest of these mean squares, as many as a range is to hold: what fails on a machine is no rule.
fn trimmed_mean(mut squares: Vec<f64>) -> f64 {
    squares.sort_by(f64::total_cmp);
    squares.truncate(((squares.len() as f64 * PREDICTION_LEVEL).round() as usize).max(1));
    mean(&squares).max(MIN_VARIANCE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference_machines::{CpuIdentity, LogErrors, LogValues};

    fn reference(vendor: &str, model: u32) -> ReferenceMachine {
        let identity =
            CpuIdentity { architecture: "x86_64".into(), vendor: Some(vendor.into()), model: (Some(1), Some(model)) };
        ReferenceMachine {
            name: vendor.into(),
            identity,
            cpus: 1,
            log_values: LogValues::new(),
            log_errors: LogErrors::new(),
            half_widths: LogValues::new(),
        }
    }

    fn cases(deviations: &[(&'static str, f64)]) -> Vec<(Case, f64)> {
        deviations.iter().map(|(case, deviation)| (Case::new().with_number(*case, 1u64), *deviation)).collect()
    }

    fn family<'a>(machines: &[(&'a ReferenceMachine, &'a [(Case, f64)])]) -> FormulaErrors<'a> {
        FormulaErrors::new(machines.iter().copied()).unwrap()
    }

    fn subject() -> MetricGroup {
        ("a.b".to_owned(), Unit::Nanoseconds)
    }

    fn is_close(first: f64, second: f64) -> bool {
        (first - second).abs() < 1e-12
    }

    #[test]
    fn variance_depends_on_machine_relation() {
        let [base, same_kind, same_vendor, other_vendor] =
            [reference("a", 1), reference("a", 1), reference("a", 2), reference("b", 1)];
        let [base_errors, kind_errors, vendor_errors, other_errors] =
            [0.1, 0.2, 0.4, 0.9].map(|error| cases(&[("x", error), ("y", error)]));
        let all_errors = family(&[
            (&base, &base_errors),
            (&same_kind, &kind_errors),
            (&same_vendor, &vendor_errors),
            (&other_vendor, &other_errors),
        ]);
        let spread = VarianceModel::from_formulas([(subject(), all_errors.clone())].into_iter());
        let pairs: Vec<(MachineRelation, f64)> = all_errors.pair_variances().collect();
        assert!(pairs[0].0 == MachineRelation::Kind && is_close(pairs[0].1, 0.005), "{pairs:?}");
        // Of a vendor: 0.3 and 0.2, the closer two of two; of others 0.8, 0.7 and 0.5, three of three.
        let effects = spread.effects(&subject()).unwrap();
        let (kind, group, other) = (0.005, (0.09 + 0.04) / 4.0, (0.64 + 0.49 + 0.25) / 6.0);
        assert!(is_close(effects.machine, kind) && is_close(effects.machine_kind, group - kind), "{effects:?}");
        assert!(is_close(effects.kind_group, other - group), "{effects:?}");
        // The mean square is 1.02 / 4, and what all have in common is the rest.
        assert!(is_close(effects.common, 1.02 / 4.0 - other), "{effects:?}");
    }

    #[test]
    fn without_pairs_half_is_formula_variance() {
        let (machine, errors) = (reference("a", 1), cases(&[("x", 0.2)]));
        let spread = VarianceModel::from_formulas([(subject(), family(&[(&machine, &errors)]))].into_iter());
        let effects = spread.effects(&subject()).unwrap();
        assert!(is_close(effects.common, 0.02) && is_close(effects.machine, 0.02), "{effects:?}");
        assert_eq!((effects.kind_group, effects.machine_kind), (0.0, 0.0));
        assert!(VarianceModel::default().effects(&subject()).is_none());
        // Another subject is as all are.
        assert_eq!(spread.effects(&("c".to_owned(), Unit::Count)), Some(effects));
    }

    #[test]
    fn accurate_formula_has_smaller_variance() {
        let [first, second] = [reference("a", 1), reference("b", 1)];
        let [small_errors, large_errors] = [cases(&[("x", 0.01)]), cases(&[("x", 0.5)])];
        let [accurate, inaccurate] = [
            family(&[(&first, &small_errors), (&second, &small_errors)]),
            family(&[(&first, &large_errors), (&second, &small_errors)]),
        ];
        let spread =
            VarianceModel::from_formulas([(subject(), accurate.clone()), (subject(), inaccurate.clone())].into_iter());
        let [small_variance, large_variance] =
            [&accurate, &inaccurate].map(|family| spread.relative_variance(&subject(), family).unwrap());
        // Two machines and a pair show next to nothing; the usual variance counts as one.
        assert!(small_variance < 0.3 && large_variance > 1.0, "{small_variance} {large_variance}");
        let other_case = cases(&[("y", 0.3)]);
        let values =
            family(&[(&first, &other_case), (&second, &small_errors)]).values_at(&Case::new().with_number("x", 1u64));
        assert_eq!(values.iter().map(|(_, value)| *value).collect::<Vec<f64>>(), [0.3, 0.01]);
        assert!(FormulaErrors::new(std::iter::empty()).is_none());
    }

    #[test]
    fn tolerance_prior_counts_as_two_metrics() {
        let pairs = [[(subject(), vec![0.2])].into(), MeanSquares::new(), MeanSquares::new()];
        let spread = VarianceModel::from_machine_pairs(pairs, PROXY_VARIANCE, &VarianceModel::default());
        let effects = spread.effects(&subject()).unwrap();
        let pair_variance = effects.kind_group + effects.machine_kind + effects.machine;
        assert!(is_close(pair_variance, (0.2 + 2.0 * PROXY_VARIANCE) / 3.0), "{effects:?}");
        assert!(effects.common > 1e5 * pair_variance, "nothing is known of the middle");
    }
}
