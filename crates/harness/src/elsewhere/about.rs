//! How far figures lie from their formulas on machines that are known, and how much of that one more machine will show as well.

use std::collections::BTreeMap;

use kelvin_model::Case;
use kelvin_stats::{OffFormulas, mean};

use super::usual::{Subject, Usual, mean_square};
use super::{at, middle};

/// The share of the distance from a formula that is its own fault where nothing tells: half.
const HALF: f64 = 0.5;
/// How many formulas of a subject that counts as.
const OF_HALF: f64 = 1.0;
/// How many pairs of machines the usual share of a subject counts as, beside those of a formula.
const OF_SUBJECT: f64 = 0.5;

/// Figures of one metric and one formula on some machines: by case, measured over predicted as natural logarithms.
pub(super) struct Family<'a>(Vec<&'a [(Case, f64)]>);

impl<'a> Family<'a> {
    /// Those of each machine, if there is any.
    pub(super) fn of(machines: impl Iterator<Item = &'a [(Case, f64)]>) -> Option<Self> {
        let machines: Vec<_> = machines.collect();
        (!machines.is_empty()).then_some(Self(machines))
    }

    /// How many machines tell.
    pub(super) fn machines(&self) -> usize {
        self.0.len()
    }

    /// How many figures they have.
    pub(super) fn figures(&self) -> usize {
        self.0.iter().map(|cases| cases.len()).sum()
    }

    /// A case on each machine, or where one has not measured it the middle of its others.
    pub(super) fn own(&self, case: &Case) -> Vec<f64> {
        self.0.iter().map(|cases| at(cases, case).unwrap_or_else(|| middle(cases))).collect()
    }

    /// The mean square of each machine.
    pub(super) fn squares(&self) -> Vec<f64> {
        self.0.iter().map(|cases| mean_square(cases)).collect()
    }

    /// The share of the distance from the formula that two machines have in common: over pairs of machines and the cases of both, or where
    /// they have none over the middles of each. `None` without a pair.
    fn shared(&self) -> Option<f64> {
        let (mut shared, mut all) = (0.0, 0.0);
        for (number, one) in self.0.iter().enumerate() {
            for other in &self.0[number + 1..] {
                let mut both: Vec<(f64, f64)> =
                    one.iter().filter_map(|(case, off)| Some((*off, at(other, case)?))).collect();
                if both.is_empty() {
                    both.push((middle(one), middle(other)));
                }
                let over_cases = |of: fn(&(f64, f64)) -> f64| mean(&both.iter().map(of).collect::<Vec<f64>>());
                shared += over_cases(|(one, other)| one * other);
                all += over_cases(|(one, other)| f64::midpoint(one * one, other * other));
            }
        }
        (all > 0.0).then(|| (shared / all).clamp(0.0, 1.0))
    }
}

/// What is usual of figures about their formulas, by subject.
#[derive(Clone, Debug)]
pub(super) struct AboutFormulas {
    /// The variance about formulas, their own faults included, and that between machines about these faults.
    all: Usual,
    between: Usual,
    /// Shares of the formulas' own faults.
    shared: BTreeMap<Subject, Vec<f64>>,
}

impl AboutFormulas {
    /// By all formulas that machines tell of.
    pub(super) fn of(families: &[(Subject, Family<'_>)]) -> Self {
        let own: Vec<Option<f64>> = families.iter().map(|(_, family)| family.shared()).collect();
        let mut shared: BTreeMap<Subject, Vec<f64>> = BTreeMap::new();
        let [mut all, mut between] = [BTreeMap::<Subject, Vec<f64>>::new(), BTreeMap::new()];
        for ((subject, _), own) in families.iter().zip(&own) {
            shared.entry(subject.clone()).or_default().extend(own);
        }
        for ((subject, family), own) in families.iter().zip(&own) {
            let (squares, left) = (family.squares(), 1.0 - fault(&shared, subject, *own));
            between.entry(subject.clone()).or_default().extend(squares.iter().map(|square| square * left));
            all.entry(subject.clone()).or_default().extend(squares);
        }
        Self { all: Usual::about_formulas(all), between: Usual::about_formulas(between), shared }
    }

    /// How far figures of a subject usually lie from their formulas.
    pub(super) fn usual(&self, subject: &Subject) -> Option<OffFormulas> {
        Some(OffFormulas { all: self.all.variance(subject)?, between: self.between.variance(subject)? })
    }

    /// The share of that which is the formula's own fault.
    pub(super) fn fault(&self, subject: &Subject, family: &Family<'_>) -> f64 {
        fault(&self.shared, subject, family.shared())
    }
}

/// The share of a family, whose own machines have so much in common, drawn to the usual one of its subject.
fn fault(shared: &BTreeMap<Subject, Vec<f64>>, subject: &Subject, own: Option<f64>) -> f64 {
    let known = shared.get(subject).map_or(&[][..], Vec::as_slice);
    let usual = (known.iter().sum::<f64>() + OF_HALF * HALF) / (known.len() as f64 + OF_HALF);
    own.map_or(usual, |own| (own + OF_SUBJECT * usual) / (1.0 + OF_SUBJECT))
}

#[cfg(test)]
mod tests {
    use kelvin_model::Unit;

    use super::*;

    fn cases(off: &[(&'static str, f64)]) -> Vec<(Case, f64)> {
        off.iter().map(|(case, off)| (Case::new().with(*case, 1u64), *off)).collect()
    }

    fn family<'a>(machines: &[&'a [(Case, f64)]]) -> Family<'a> {
        Family::of(machines.iter().copied()).unwrap()
    }

    #[test]
    fn what_two_machines_have_in_common_is_the_formulas_fault() {
        let [one, same, other, elsewhere] = [
            cases(&[("a", 0.3), ("b", -0.1)]),
            cases(&[("a", 0.3), ("b", -0.1)]),
            cases(&[("a", -0.3), ("b", 0.1)]),
            cases(&[("c", 0.1)]),
        ];
        assert_eq!(family(&[&one, &same]).shared(), Some(1.0));
        assert_eq!(family(&[&one, &other]).shared(), Some(0.0));
        // No case of both: middles of 0.1 each.
        assert!((family(&[&one, &elsewhere]).shared().unwrap() - 1.0).abs() < 1e-12);
        // Two pairs that differ outweigh one that agrees.
        assert_eq!(family(&[&one, &same, &other]).shared(), Some(0.0));
        assert_eq!((family(&[&one]).shared(), Family::of(std::iter::empty()).is_none()), (None, true));
        assert_eq!(family(&[&one, &elsewhere]).own(&Case::new().with("a", 1u64)), [0.3, 0.1]);
    }

    #[test]
    fn formulas_whose_faults_return_leave_less_between_machines() {
        let subject = || ("a.b".to_owned(), Unit::Nanoseconds);
        let [one, other] = [cases(&[("a", 0.4)]), cases(&[("a", 0.4)])];
        let agreeing = AboutFormulas::of(&[(subject(), family(&[&one, &other]))]);
        let far = cases(&[("a", -0.4)]);
        let differing = AboutFormulas::of(&[(subject(), family(&[&one, &far]))]);
        let [agree, differ] = [&agreeing, &differing].map(|about| about.usual(&subject()).unwrap());
        assert!((agree.all - differ.all).abs() < 1e-12 && agree.between < 0.3 * differ.between, "{agree:?} {differ:?}");
        // One formula of the subject and half of one that nothing tells of: (1 + 0.5) / 2; beside the pair's own, (1 + 0.5 x 0.75) / 1.5.
        assert!((agreeing.fault(&subject(), &family(&[&one])) - 0.75).abs() < 1e-12);
        assert!((agreeing.fault(&subject(), &family(&[&one, &other])) - 1.375 / 1.5).abs() < 1e-12);
        assert!(agreeing.usual(&("other".to_owned(), Unit::Count)).is_none());
    }
}
