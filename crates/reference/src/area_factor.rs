//! How much slower or faster a machine is than its class in an area as a whole: one factor for all of its figures there.
//!
//! Of each figure the logarithm of its ratio to the median of the class counts, slower upwards, and the factor is the median of those: a
//! figure at the edge of a cache, or a member with a neighbour, moves neither. What such a factor is on machines that are as usual is known
//! from the members, each against the others (leave one out). Their spread, by the median absolute deviation, is drawn to that of all
//! classes of the same kind of machine, which counts for as many members as make a class well known. So figures that go together, as those
//! of one memory do, are not taken for independent ones.

use std::collections::BTreeSet;

use kelvin_core::catalogue::find;
use kelvin_core::catalogue::mem::MemoryCpus;
use kelvin_core::{Better, Case, Name};
use kelvin_stats::{MAD_TO_STD, mad, median, t_quantile};

use crate::class::MachineClass;
use crate::class_range::{ASSUMED_WITHIN_VARIANCE, MIN_KNOWN_MEMBERS, method_bias_variance};
use crate::library::ReferenceLibrary;
use crate::machine::{LibraryMachine, PublishedFigure};

/// A figure of the machine that is compared, in base units of the SI.
#[derive(Clone, Debug, PartialEq)]
pub struct MachineFigure {
    /// Id of the metric.
    pub metric: Name,
    /// The case.
    pub case: Case,
    /// The value: seconds, hertz, bytes per second, operations per second.
    pub value: f64,
}

/// How much slower than its class a machine is in an area, and what is usual.
#[derive(Clone, Debug, PartialEq)]
pub struct AreaFactor<'a> {
    /// How many times as slow; below 1 it is faster.
    pub factor: f64,
    /// Least usual factor.
    pub low: f64,
    /// Greatest usual factor.
    pub high: f64,
    /// Figures that count.
    pub figures: usize,
    /// The members that have at least one of them.
    pub members: Vec<&'a LibraryMachine>,
}

/// The logarithm of how slow a figure is; `None` of a metric of which neither direction is better.
fn slowness(metric: Name, value: f64) -> Option<f64> {
    match find(metric)?.better {
        Better::Lower => Some(value.ln()),
        Better::Higher => Some(-value.ln()),
        Better::Neither => None,
    }
}

/// What the members of a class are at one figure.
struct FigureColumn<'a> {
    slowness: f64,
    members: Vec<(&'a LibraryMachine, &'a PublishedFigure, f64)>,
}

impl FigureColumn<'_> {
    /// How much slower a value is than the median of the members, but for one of them.
    fn excess_slowness(&self, value: f64, excluded: Option<Name>) -> Option<f64> {
        let other_members = self.members.iter().filter(|(machine, ..)| Some(machine.id) != excluded);
        let slownesses: Vec<f64> = other_members.map(|(_, _, slowness)| *slowness).collect();
        (!slownesses.is_empty()).then(|| value - median(&slownesses))
    }
}

impl ReferenceLibrary {
    /// How much slower than its class a machine is in an area (`mem`, `os`), with the range of this share of the machines that are as usual.
    ///
    /// Figures of all CPUs at once are left out. `None` without a member that has one of the figures.
    pub fn area_factor(
        &self,
        class: &MachineClass,
        area: &str,
        figures: &[MachineFigure],
        share: f64,
    ) -> Option<AreaFactor<'_>> {
        let members: Vec<&LibraryMachine> = self.machines().iter().filter(|machine| class.contains(machine)).collect();
        let columns = figure_columns(area, figures, &members);
        let excesses: Vec<f64> =
            columns.iter().filter_map(|column| column.excess_slowness(column.slowness, None)).collect();
        if excesses.is_empty() {
            return None;
        }
        let class_factors = member_factors(&columns, &members);
        let related_members = self.related_classes(class).into_iter();
        let kind_factors: Vec<f64> = related_members
            .flat_map(|members| member_factors(&figure_columns(area, figures, &members), &members))
            .collect();
        let ids: BTreeSet<Name> =
            columns.iter().flat_map(|column| &column.members).map(|(machine, ..)| machine.id).collect();
        let members: Vec<&LibraryMachine> = members.into_iter().filter(|machine| ids.contains(&machine.id)).collect();
        let rows: Vec<&PublishedFigure> =
            columns.iter().flat_map(|column| &column.members).map(|(_, row, _)| *row).collect();
        let bias = rows.iter().map(|row| method_bias_variance(row)).sum::<f64>() / rows.len() as f64;
        let (prior_weight, class_weight) = (MIN_KNOWN_MEMBERS as f64, class_factors.len() as f64);
        let spread = (prior_weight * robust_variance(&kind_factors) + class_weight * robust_variance(&class_factors))
            / (prior_weight + class_weight);
        let variance = spread * (1.0 + 1.0 / members.len() as f64) + bias;
        let half_width = t_quantile(f64::midpoint(1.0, share), prior_weight + class_weight) * variance.sqrt();
        Some(AreaFactor {
            factor: median(&excesses).exp(),
            low: (-half_width).exp(),
            high: half_width.exp(),
            figures: excesses.len(),
            members,
        })
    }

    /// The classes of the same kind of machine, by their members.
    fn related_classes(&self, class: &MachineClass) -> Vec<Vec<&LibraryMachine>> {
        let classes = self.classes(class.area).into_iter();
        classes
            .map(|(_, members)| members)
            .filter(|members| members.iter().all(|member| class.is_related(member)))
            .collect()
    }
}

/// The figures of an area that count, each with the members that have it.
fn figure_columns<'a>(area: &str, figures: &[MachineFigure], members: &[&'a LibraryMachine]) -> Vec<FigureColumn<'a>> {
    // What all CPUs do at once goes with their number, which is no part of a class.
    let is_counted = |figure: &&MachineFigure| {
        kelvin_core::is_dotted_prefix(area, &figure.metric) && MemoryCpus::of(&figure.case) != Some(MemoryCpus::All)
    };
    let area_figures = figures.iter().filter(is_counted);
    let column = |figure: &MachineFigure| {
        let with_figure = members.iter().filter_map(|machine| {
            let row = machine.figure(figure.metric, &figure.case)?;
            Some((*machine, row, slowness(figure.metric, row.value)?))
        });
        Some(FigureColumn { slowness: slowness(figure.metric, figure.value)?, members: with_figure.collect() })
    };
    area_figures.filter_map(column).filter(|column| !column.members.is_empty()).collect()
}

/// The factor of each member against the others, of those that share a figure with another.
fn member_factors(columns: &[FigureColumn<'_>], members: &[&LibraryMachine]) -> Vec<f64> {
    let member_factor = |member: &&LibraryMachine| {
        let excess = |column: &FigureColumn<'_>| {
            let entry = column.members.iter().find(|(machine, ..)| machine.id == member.id)?;
            column.excess_slowness(entry.2, Some(member.id))
        };
        let excesses: Vec<f64> = columns.iter().filter_map(excess).collect();
        (!excesses.is_empty()).then(|| median(&excesses))
    };
    members.iter().filter_map(member_factor).collect()
}

/// Variance by the median absolute deviation; [`ASSUMED_WITHIN_VARIANCE`] with fewer than two values.
fn robust_variance(values: &[f64]) -> f64 {
    if values.len() < 2 { ASSUMED_WITHIN_VARIANCE } else { (MAD_TO_STD * mad(values)).powi(2) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slowness_rises_as_rate_falls() {
        let (latency, rate) = (Name::new("mem.latency"), Name::new("mem.bandwidth.read"));
        assert!(slowness(latency, 2e-9) > slowness(latency, 1e-9));
        assert!(slowness(rate, 1e9) > slowness(rate, 2e9));
        assert_eq!(slowness(Name::new("net.bandwidth.udp.sent"), 1e9), None);
    }
}
