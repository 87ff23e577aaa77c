//! How far figures lie from what is said of them, and figures of two machines from each other, by how these are related.

use std::collections::BTreeMap;

use kelvin_model::{Case, Metric, Unit};
use kelvin_stats::{Effects, RANGE, Relation, mean};

use super::{Known, at};

/// Variance between machines of the natural logarithm of a figure that nothing else tells of: a factor of 1.28 either way, as a stated
/// tolerance. What few machines there are tell more of it where they agree.
pub(super) const OF_ANYTHING: f64 = 0.06;
/// The same of a figure over its yardstick: a factor of 1.15 either way.
pub(super) const OF_A_YARDSTICK: f64 = 0.02;
/// The share of the mean square about a formula that lies between groups of machines where no two groups tell: half.
const HALF: f64 = 0.5;
/// Least variance of a figure about its formula: 1 % of error is in any two figures.
const LEAST: f64 = 1e-4;
/// How many machines and pairs of them the usual variance of a subject counts as, beside those that tell of one formula.
const OF_USUAL: f64 = 1.0;
/// How many metrics of a subject all others count as: one metric that a formula hits by chance makes no sharp subject.
const OF_ALL: f64 = 1.0;
/// The same of a stated tolerance.
const OF_TOLERANCE: f64 = 2.0;

/// What figures are about whose predictions are wrong by as much: the first two parts of a metric's id, and its unit, since a count is
/// known better than a time.
pub(super) type Subject = (String, Unit);

/// Mean squares of metrics by subject.
type Squares = BTreeMap<Subject, Vec<f64>>;

/// The same of differences of two machines, halved, by their relation in the order of [`Relation::ALL`].
pub(super) type Apart = [Squares; 3];

/// The subject of a metric.
pub(super) fn subject(metric: &Metric) -> Subject {
    (metric.id.split('.').take(2).collect::<Vec<_>>().join("."), metric.unit)
}

/// Figures of one metric on some machines, as natural logarithms: over one formula, or over what does the same kind of work.
#[derive(Clone, Debug)]
pub(super) struct Family<'a> {
    machines: Vec<(&'a Known, &'a [(Case, f64)])>,
}

impl<'a> Family<'a> {
    /// Those of each machine, if there is any.
    pub(super) fn of(machines: impl Iterator<Item = (&'a Known, &'a [(Case, f64)])>) -> Option<Self> {
        let machines: Vec<_> = machines.collect();
        (!machines.is_empty()).then_some(Self { machines })
    }

    /// How many machines tell.
    pub(super) fn machines(&self) -> usize {
        self.machines.len()
    }

    /// How many figures they have.
    pub(super) fn figures(&self) -> usize {
        self.machines.iter().map(|(_, cases)| cases.len()).sum()
    }

    /// A case on each machine, or where one has not measured it the middle of its others.
    pub(super) fn own(&self, case: &Case) -> Vec<(&'a Known, f64)> {
        let own = |cases: &[(Case, f64)]| at(cases, case).unwrap_or_else(|| mean(&values(cases)));
        self.machines.iter().map(|(machine, cases)| (*machine, own(cases))).collect()
    }

    /// The mean square of each machine.
    fn squares(&self) -> impl Iterator<Item = f64> {
        self.machines.iter().map(|(_, cases)| mean(&values(cases).iter().map(|off| off * off).collect::<Vec<f64>>()))
    }

    /// For each pair of machines their relation, and half of the mean square of their difference over the cases of both.
    fn apart(&self) -> impl Iterator<Item = (Relation, f64)> {
        self.machines.iter().enumerate().flat_map(move |(number, (one, here))| {
            self.machines[number + 1..].iter().filter_map(move |(other, there)| {
                let both = here.iter().filter_map(|(case, off)| Some((off - at(there, case)?).powi(2) / 2.0));
                let both: Vec<f64> = both.collect();
                (!both.is_empty()).then(|| (one.kin.relation(&other.kin), mean(&both)))
            })
        })
    }
}

fn values(cases: &[(Case, f64)]) -> Vec<f64> {
    cases.iter().map(|(_, value)| *value).collect()
}

/// How far figures usually lie from what is said of them, and apart on two machines.
#[derive(Clone, Debug, Default)]
pub(super) struct Spread {
    /// Mean squares; none where nothing is said but by other machines.
    square: Option<Usual>,
    apart: [Usual; 3],
}

impl Spread {
    /// About formulas, by all that machines tell of: those of few metrics of a subject are drawn to those of all.
    pub(super) fn about_formulas<'a>(families: impl Iterator<Item = (Subject, Family<'a>)>) -> Self {
        let (mut square, mut apart) = (Squares::new(), Apart::default());
        for (subject, family) in families {
            square.entry(subject.clone()).or_default().extend(family.squares());
            for (relation, square) in family.apart() {
                apart[relation as usize].entry(subject.clone()).or_default().push(square);
            }
        }
        Self { square: Some(Usual::of(square)), apart: apart.map(Usual::of) }
    }

    /// Of what has no formula: drawn to a stated tolerance, since machines that are alike tell little of one that is not. Machines that are
    /// related are closer than that as they usually are about formulas.
    pub(super) fn between_machines(apart: Apart, tolerance: f64, formulas: &Self) -> Self {
        let [other, ..] = formulas.apart.each_ref().map(|usual| usual.of_all);
        let mut levels = apart.into_iter().zip(&formulas.apart).map(|(squares, usual)| {
            let closer = usual.of_all.zip(other).map_or(1.0, |(own, other)| (own / other).min(1.0));
            Usual::drawn(squares, (tolerance * closer, OF_TOLERANCE))
        });
        Self { square: None, apart: std::array::from_fn(|_| levels.next().unwrap_or_default()) }
    }

    /// The parts of figures of a subject; `None` if nothing is known of any.
    pub(super) fn effects(&self, subject: &Subject) -> Option<Effects> {
        let (apart, square) = self.variances(subject)?;
        Some(Effects::of(apart, square))
    }

    /// How many times the usual variance of its subject that of a family is: what its own machines show, drawn to one.
    pub(super) fn times_usual(&self, subject: &Subject, family: &Family<'_>) -> Option<f64> {
        let (apart, square) = self.variances(subject)?;
        let about = square.into_iter().flat_map(|usual| family.squares().map(move |square| square.max(LEAST) / usual));
        let pairs = family.apart().map(|(relation, square)| square.max(LEAST) / apart[relation as usize]);
        let shown: Vec<f64> = about.chain(pairs).collect();
        Some((OF_USUAL + shown.iter().sum::<f64>()) / (OF_USUAL + shown.len() as f64))
    }

    /// The semivariances of a subject by relation, and its mean square.
    fn variances(&self, subject: &Subject) -> Option<([f64; 3], Option<f64>)> {
        let square = match &self.square {
            Some(usual) => Some(usual.variance(subject)?),
            None => None,
        };
        let [other, group, kind] = self.apart.each_ref().map(|usual| usual.variance(subject));
        let other = other.or(square.map(|square| HALF * square))?;
        let group = group.unwrap_or(other);
        Some(([other, group, kind.unwrap_or(group)], square))
    }
}

/// A variance by subject.
#[derive(Clone, Debug, Default)]
struct Usual {
    by_subject: BTreeMap<Subject, f64>,
    /// That of a subject of which nothing is known, if something is known of others or assumed.
    of_all: Option<f64>,
}

impl Usual {
    /// Drawn to that of all subjects.
    fn of(squares: Squares) -> Self {
        let all: Vec<f64> = squares.values().flatten().copied().collect();
        if all.is_empty() { Self::default() } else { Self::drawn(squares, (closest(all), OF_ALL)) }
    }

    /// Drawn to a variance that counts as so many metrics.
    fn drawn(squares: Squares, (to, worth): (f64, f64)) -> Self {
        let drawn = |squares: Vec<f64>| {
            let metrics = squares.len() as f64;
            (metrics * closest(squares) + worth * to) / (metrics + worth)
        };
        let by_subject = squares.into_iter().map(|(subject, squares)| (subject, drawn(squares))).collect();
        Self { by_subject, of_all: Some(to) }
    }

    fn variance(&self, subject: &Subject) -> Option<f64> {
        self.by_subject.get(subject).copied().or(self.of_all)
    }
}

/// The mean of the closest of these mean squares, as many as a range is to hold: what fails on a machine is no rule.
fn closest(mut squares: Vec<f64>) -> f64 {
    squares.sort_by(f64::total_cmp);
    squares.truncate(((squares.len() as f64 * RANGE).round() as usize).max(1));
    mean(&squares).max(LEAST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elsewhere::{Kin, Logs, Off};

    fn known(vendor: &str, model: u32) -> Known {
        let kin = Kin { architecture: "x86_64".into(), vendor: Some(vendor.into()), model: (Some(1), Some(model)) };
        Known { name: vendor.into(), kin, cpus: 1, figures: Logs::new(), off: Off::new(), half_widths: Logs::new() }
    }

    fn cases(off: &[(&'static str, f64)]) -> Vec<(Case, f64)> {
        off.iter().map(|(case, off)| (Case::new().with(*case, 1u64), *off)).collect()
    }

    fn family<'a>(machines: &[(&'a Known, &'a [(Case, f64)])]) -> Family<'a> {
        Family::of(machines.iter().copied()).unwrap()
    }

    fn subject() -> Subject {
        ("a.b".to_owned(), Unit::Nanoseconds)
    }

    fn close(one: f64, other: f64) -> bool {
        (one - other).abs() < 1e-12
    }

    #[test]
    fn machines_differ_by_how_they_are_related() {
        let [same, too, near, far] = [known("a", 1), known("a", 1), known("a", 2), known("b", 1)];
        let [at, less, more, most] = [0.1, 0.2, 0.4, 0.9].map(|off| cases(&[("x", off), ("y", off)]));
        let all = family(&[(&same, &at), (&too, &less), (&near, &more), (&far, &most)]);
        let spread = Spread::about_formulas([(subject(), all.clone())].into_iter());
        let apart: Vec<(Relation, f64)> = all.apart().collect();
        assert!(apart[0].0 == Relation::Kind && close(apart[0].1, 0.005), "{apart:?}");
        // Of a vendor: 0.3 and 0.2, the closer two of two; of others 0.8, 0.7 and 0.5, three of three.
        let effects = spread.effects(&subject()).unwrap();
        let (kind, group, other) = (0.005, (0.09 + 0.04) / 4.0, (0.64 + 0.49 + 0.25) / 6.0);
        assert!(close(effects.own, kind) && close(effects.kind, group - kind), "{effects:?}");
        assert!(close(effects.group, other - group), "{effects:?}");
        // The mean square is 1.02 / 4, and what all have in common is the rest.
        assert!(close(effects.common, 1.02 / 4.0 - other), "{effects:?}");
    }

    #[test]
    fn where_no_two_machines_tell_half_is_the_formulas_fault() {
        let (one, off) = (known("a", 1), cases(&[("x", 0.2)]));
        let spread = Spread::about_formulas([(subject(), family(&[(&one, &off)]))].into_iter());
        let effects = spread.effects(&subject()).unwrap();
        assert!(close(effects.common, 0.02) && close(effects.own, 0.02), "{effects:?}");
        assert_eq!((effects.group, effects.kind), (0.0, 0.0));
        assert!(Spread::default().effects(&subject()).is_none());
        // Another subject is as all are.
        assert_eq!(spread.effects(&("c".to_owned(), Unit::Count)), Some(effects));
    }

    #[test]
    fn a_formula_that_is_off_by_less_than_its_subject_has_a_smaller_variance() {
        let [one, other] = [known("a", 1), known("b", 1)];
        let [sharp, wide] = [cases(&[("x", 0.01)]), cases(&[("x", 0.5)])];
        let [close_by, far_off] =
            [family(&[(&one, &sharp), (&other, &sharp)]), family(&[(&one, &wide), (&other, &sharp)])];
        let spread = Spread::about_formulas([(subject(), close_by.clone()), (subject(), far_off.clone())].into_iter());
        let [less, more] = [&close_by, &far_off].map(|family| spread.times_usual(&subject(), family).unwrap());
        // Two machines and a pair show next to nothing, beside the usual that counts as one.
        assert!(less < 0.3 && more > 1.0, "{less} {more}");
        let unknown = cases(&[("y", 0.3)]);
        let of_middle = family(&[(&one, &unknown), (&other, &sharp)]).own(&Case::new().with("x", 1u64));
        assert_eq!(of_middle.iter().map(|(_, off)| *off).collect::<Vec<f64>>(), [0.3, 0.01]);
        assert!(Family::of(std::iter::empty()).is_none());
    }

    #[test]
    fn without_a_formula_a_stated_tolerance_counts_as_two_metrics() {
        let apart = [[(subject(), vec![0.2])].into(), Squares::new(), Squares::new()];
        let spread = Spread::between_machines(apart, OF_A_YARDSTICK, &Spread::default());
        let effects = spread.effects(&subject()).unwrap();
        let between = effects.group + effects.kind + effects.own;
        assert!(close(between, (0.2 + 2.0 * OF_A_YARDSTICK) / 3.0), "{effects:?}");
        assert!(effects.common > 1e5 * between, "nothing is known of the middle");
    }
}
