//! Where a figure of one more machine of a class lies, by those that are known.
//!
//! Figures are taken as logarithms, normal within a class and between the classes of one kind of machine. A class with few members is drawn
//! to the mean of its kind, by as much as the classes are known to differ (partial pooling; Gelman and Hill, Data Analysis Using Regression
//! and Multilevel/Hierarchical Models, 2007, chapter 12). Both variances are estimated by their moments: that within classes from all
//! classes with two members or more, that between them by DerSimonian and Laird's estimate (Meta-analysis in clinical trials, Controlled
//! Clinical Trials 7, 1986). Ranges are those of Student's t.
//!
//! Machines measured by one method share its bias, which more of them do not average out: the bias of a class's mean is that of its
//! methods, each weighted by its share of the members.

use kelvin_model::{Case, Name};
use kelvin_stats::{normal_quantile, t_quantile};

use crate::class::{Area, Class};
use crate::library::Library;
use crate::machine::{Machine, Row};

/// With fewer members a class is said to be known by few machines.
pub const FEW_MEMBERS: usize = 5;
/// Share of figures within the factor of a method.
const WITHIN_FACTOR: f64 = 0.9;
/// Variance within classes where no class tells of it: a factor of 1.3 either way for one in three.
pub(crate) const ASSUMED_WITHIN: f64 = 0.07;
/// What [`ASSUMED_WITHIN`] counts for beside what is known, in degrees of freedom: two more machines.
const ASSUMED_DEGREES: f64 = 2.0;

/// Where a figure of one more machine of a class lies.
#[derive(Clone, Debug, PartialEq)]
pub struct ClassRange<'a> {
    /// The members whose figure is known.
    pub members: Vec<&'a Machine>,
    /// Machines of the same kind, of other classes, that the range also rests on.
    pub akin: usize,
    /// Low end, in base units of the SI.
    pub low: f64,
    /// Middle.
    pub middle: f64,
    /// High end.
    pub high: f64,
}

impl ClassRange<'_> {
    /// Whether few machines of the class are known.
    pub fn rests_on_few(&self) -> bool {
        self.members.len() < FEW_MEMBERS
    }
}

/// The logarithms of one class.
struct Group<'a> {
    class: Class,
    members: Vec<(&'a Machine, &'a Row)>,
}

impl Group<'_> {
    fn n(&self) -> f64 {
        self.members.len() as f64
    }

    fn mean(&self) -> f64 {
        self.members.iter().map(|(_, row)| row.value.ln()).sum::<f64>() / self.n()
    }

    fn squares(&self) -> f64 {
        let mean = self.mean();
        self.members.iter().map(|(_, row)| (row.value.ln() - mean).powi(2)).sum()
    }

    /// Variance of the mean that comes from methods.
    fn bias(&self) -> f64 {
        let mut methods: Vec<(Name, Name, f64, f64)> = Vec::new();
        for (machine, row) in &self.members {
            let (source, method) = (machine.source.id, row.method.id);
            match methods.iter_mut().find(|known| (known.0, known.1) == (source, method)) {
                Some(known) => known.3 += 1.0,
                None => methods.push((source, method, bias_of(row), 1.0)),
            }
        }
        methods.iter().map(|(_, _, bias, count)| bias * (count / self.n()).powi(2)).sum()
    }
}

/// Variance of a method's bias: its factor holds a share of [`WITHIN_FACTOR`].
pub(crate) fn bias_of(row: &Row) -> f64 {
    (row.method.factor.ln() / normal_quantile(f64::midpoint(1.0, WITHIN_FACTOR))).powi(2)
}

impl Library {
    /// Where this share of the figures of further machines of a class lies; `None` without a machine of its kind whose figure is known.
    pub fn range(&self, class: &Class, metric: Name, case: &Case, share: f64) -> Option<ClassRange<'_>> {
        let groups = self.groups(class, metric, case);
        let own = groups.iter().find(|group| group.class == *class);
        let (within, degrees) = within(&groups);
        let between = between(&groups, within);
        let spread = |group: &Group<'_>| within / group.n() + between + group.bias();
        let total: f64 = groups.iter().map(|group| 1.0 / spread(group)).sum();
        if groups.is_empty() {
            return None;
        }
        let of_kind = groups.iter().map(|group| group.mean() / spread(group)).sum::<f64>() / total;
        let of_kind_variance = 1.0 / total;
        let (middle, variance) = match own {
            None => (of_kind, of_kind_variance + between + within),
            Some(own) => {
                let of_mean = within / own.n() + own.bias();
                let drawn = if between > 0.0 { of_mean / (of_mean + between) } else { 1.0 };
                let middle = drawn * of_kind + (1.0 - drawn) * own.mean();
                let of_middle = drawn * drawn * of_kind_variance + (1.0 - drawn) * of_mean;
                (middle, of_middle + within)
            }
        };
        let half = t_quantile(f64::midpoint(1.0, share), degrees) * variance.sqrt();
        let members = own.map(|own| own.members.iter().map(|(machine, _)| *machine).collect()).unwrap_or_default();
        let all: usize = groups.iter().map(|group| group.members.len()).sum();
        let akin = all - own.map_or(0, |own| own.members.len());
        Some(ClassRange {
            members,
            akin,
            low: (middle - half).exp(),
            middle: middle.exp(),
            high: (middle + half).exp(),
        })
    }

    /// The figure of all machines of the kind, class by class.
    fn groups(&self, class: &Class, metric: Name, case: &Case) -> Vec<Group<'_>> {
        let area = Area::of(metric);
        let mut groups: Vec<Group<'_>> = Vec::new();
        for machine in self.machines().iter().filter(|machine| class.is_akin(machine)) {
            let Some(row) = machine.figure(metric, case) else { continue };
            let of = Class::of(machine, area);
            match groups.iter_mut().find(|group| group.class == of) {
                Some(group) => group.members.push((machine, row)),
                None => groups.push(Group { class: of, members: vec![(machine, row)] }),
            }
        }
        groups
    }
}

/// Variance within classes, and its degrees of freedom.
fn within(groups: &[Group<'_>]) -> (f64, f64) {
    let squares: f64 = groups.iter().map(Group::squares).sum();
    let degrees: f64 = groups.iter().map(|group| group.n() - 1.0).sum();
    let degrees_with_assumed = degrees + ASSUMED_DEGREES;
    ((squares + ASSUMED_DEGREES * ASSUMED_WITHIN) / degrees_with_assumed, degrees_with_assumed)
}

/// Variance between classes; 0 where they differ by no more than their members do.
fn between(groups: &[Group<'_>], within: f64) -> f64 {
    let weights: Vec<f64> = groups.iter().map(|group| group.n() / within).collect();
    let total: f64 = weights.iter().sum();
    let mean = groups.iter().zip(&weights).map(|(group, weight)| weight * group.mean()).sum::<f64>() / total;
    let heterogeneity: f64 =
        groups.iter().zip(&weights).map(|(group, weight)| weight * (group.mean() - mean).powi(2)).sum();
    let scale = total - weights.iter().map(|weight| weight * weight).sum::<f64>() / total;
    if scale > 0.0 { ((heterogeneity - (groups.len() as f64 - 1.0)) / scale).max(0.0) } else { 0.0 }
}
