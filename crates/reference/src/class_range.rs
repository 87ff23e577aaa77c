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

use kelvin_core::{Case, Name};
use kelvin_stats::{normal_quantile, t_quantile};

use crate::class::{MachineClass, MetricArea};
use crate::library::ReferenceLibrary;
use crate::machine::{LibraryMachine, PublishedFigure};

/// With fewer members a class is reported as known by few machines.
pub const MIN_KNOWN_MEMBERS: usize = 5;
/// Share of figures within the factor of a method.
const METHOD_FACTOR_LEVEL: f64 = 0.9;
/// Variance within classes where no class shows it: a factor of 1.3 either way for one in three.
pub(crate) const ASSUMED_WITHIN_VARIANCE: f64 = 0.07;
/// Weight of [`ASSUMED_WITHIN_VARIANCE`] next to the measured variance, in degrees of freedom: two more machines.
const ASSUMED_WITHIN_DEGREES: f64 = 2.0;

/// Where a figure of one more machine of a class lies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClassRange {
    /// How many members' figure is known.
    pub members: usize,
    /// Machines of the same kind, of other classes, that the range also rests on.
    pub related: usize,
    /// Low end, in base units of the SI.
    pub low: f64,
    /// Middle.
    pub center: f64,
    /// High end.
    pub high: f64,
}

impl ClassRange {
    /// Whether few machines of the class are known.
    pub fn is_of_few_members(&self) -> bool {
        self.members < MIN_KNOWN_MEMBERS
    }
}

/// The logarithms of one class.
struct ClassGroup<'a> {
    class: MachineClass,
    members: Vec<(&'a LibraryMachine, &'a PublishedFigure)>,
}

impl ClassGroup<'_> {
    fn member_count(&self) -> f64 {
        self.members.len() as f64
    }

    fn mean(&self) -> f64 {
        self.members.iter().map(|(_, row)| row.value.ln()).sum::<f64>() / self.member_count()
    }

    fn sum_of_squares(&self) -> f64 {
        let mean = self.mean();
        self.members.iter().map(|(_, row)| (row.value.ln() - mean).powi(2)).sum()
    }

    /// Variance of the mean that comes from methods.
    fn bias_variance(&self) -> f64 {
        let mut methods: Vec<(Name, Name, f64, f64)> = Vec::new();
        for (machine, row) in &self.members {
            let (source, method) = (machine.source.id, row.method.id);
            match methods.iter_mut().find(|entry| (entry.0, entry.1) == (source, method)) {
                Some(entry) => entry.3 += 1.0,
                None => methods.push((source, method, method_bias_variance(row), 1.0)),
            }
        }
        methods.iter().map(|(_, _, bias, count)| bias * (count / self.member_count()).powi(2)).sum()
    }
}

/// Variance of a method's bias: its factor holds a share of [`METHOD_FACTOR_LEVEL`].
pub(crate) fn method_bias_variance(row: &PublishedFigure) -> f64 {
    (row.method.factor.ln() / normal_quantile(f64::midpoint(1.0, METHOD_FACTOR_LEVEL))).powi(2)
}

impl ReferenceLibrary {
    /// Where this share of the figures of further machines of a class lies; `None` without a machine of its kind whose figure is known.
    pub fn class_range(&self, class: &MachineClass, metric: Name, case: &Case, share: f64) -> Option<ClassRange> {
        let groups = self.class_groups(class, metric, case);
        let own_group = groups.iter().find(|group| group.class == *class);
        let (within_class, degrees) = within_variance(&groups);
        let between_class = between_variance(&groups, within_class);
        let spread =
            |group: &ClassGroup<'_>| within_class / group.member_count() + between_class + group.bias_variance();
        let total: f64 = groups.iter().map(|group| 1.0 / spread(group)).sum();
        if groups.is_empty() {
            return None;
        }
        let kind_mean = groups.iter().map(|group| group.mean() / spread(group)).sum::<f64>() / total;
        let kind_variance = 1.0 / total;
        let (center, variance) = match own_group {
            None => (kind_mean, kind_variance + between_class + within_class),
            Some(group) => {
                let mean_variance = within_class / group.member_count() + group.bias_variance();
                let shrinkage = if between_class > 0.0 { mean_variance / (mean_variance + between_class) } else { 1.0 };
                let center = shrinkage * kind_mean + (1.0 - shrinkage) * group.mean();
                let center_variance = shrinkage * shrinkage * kind_variance + (1.0 - shrinkage) * mean_variance;
                (center, center_variance + within_class)
            }
        };
        let half_width = t_quantile(f64::midpoint(1.0, share), degrees) * variance.sqrt();
        let members = own_group.map_or(0, |group| group.members.len());
        let machine_count: usize = groups.iter().map(|group| group.members.len()).sum();
        Some(ClassRange {
            members,
            related: machine_count - members,
            low: (center - half_width).exp(),
            center: center.exp(),
            high: (center + half_width).exp(),
        })
    }

    /// The figure of all machines of the kind, class by class.
    fn class_groups(&self, class: &MachineClass, metric: Name, case: &Case) -> Vec<ClassGroup<'_>> {
        let area = MetricArea::from_metric(metric);
        let mut groups: Vec<ClassGroup<'_>> = Vec::new();
        for machine in self.machines().iter().filter(|machine| class.is_related(machine)) {
            let Some(row) = machine.figure(metric, case) else { continue };
            let class_of_machine = MachineClass::from_machine(machine, area);
            match groups.iter_mut().find(|group| group.class == class_of_machine) {
                Some(group) => group.members.push((machine, row)),
                None => groups.push(ClassGroup { class: class_of_machine, members: vec![(machine, row)] }),
            }
        }
        groups
    }
}

/// Variance within classes, and its degrees of freedom.
fn within_variance(groups: &[ClassGroup<'_>]) -> (f64, f64) {
    let squares: f64 = groups.iter().map(ClassGroup::sum_of_squares).sum();
    let degrees: f64 = groups.iter().map(|group| group.member_count() - 1.0).sum();
    let degrees_with_assumed = degrees + ASSUMED_WITHIN_DEGREES;
    ((squares + ASSUMED_WITHIN_DEGREES * ASSUMED_WITHIN_VARIANCE) / degrees_with_assumed, degrees_with_assumed)
}

/// Variance between classes; 0 where they differ by no more than their members do.
fn between_variance(groups: &[ClassGroup<'_>], within_class: f64) -> f64 {
    let weights: Vec<f64> = groups.iter().map(|group| group.member_count() / within_class).collect();
    let total: f64 = weights.iter().sum();
    let mean = groups.iter().zip(&weights).map(|(group, weight)| weight * group.mean()).sum::<f64>() / total;
    let heterogeneity: f64 =
        groups.iter().zip(&weights).map(|(group, weight)| weight * (group.mean() - mean).powi(2)).sum();
    let scale = total - weights.iter().map(|weight| weight * weight).sum::<f64>() / total;
    if scale > 0.0 { ((heterogeneity - (groups.len() as f64 - 1.0)) / scale).max(0.0) } else { 0.0 }
}
