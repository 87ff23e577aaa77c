//! How much slower or faster a machine is than its class in an area as a whole: one factor for all of its figures there.
//!
//! Of each figure the logarithm of its ratio to the median of the class counts, slower upwards, and the factor is the median of those: a
//! figure at the edge of a cache, or a member with a neighbour, moves neither. What such a factor is on machines that are as usual is known
//! from the members, each against the others (leave one out). Their spread, by the median absolute deviation, is drawn to that of all
//! classes of the same kind of machine, which counts for as many members as make a class well known. So figures that go together, as those
//! of one memory do, are not taken for independent ones.

use std::collections::BTreeSet;

use kelvin_catalogue::find;
use kelvin_catalogue::mem::Cpus;
use kelvin_model::{Better, Case, Name};
use kelvin_stats::{MAD_TO_STD, mad, median, t_quantile};

use crate::class::Class;
use crate::library::Library;
use crate::machine::{Machine, Row};
use crate::range::{ASSUMED_WITHIN, FEW_MEMBERS, bias_of};

/// A figure of the machine that is judged, in base units of the SI.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
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
    pub members: Vec<&'a Machine>,
}

impl AreaFactor<'_> {
    /// Whether the machine is slower than is usual.
    pub fn is_slow(&self) -> bool {
        self.factor > self.high
    }
}

/// The logarithm of how slow a figure is; `None` of a metric of which neither direction is better.
fn slowness(metric: Name, value: f64) -> Option<f64> {
    match find(metric)?.better {
        Better::Lower => Some(value.ln()),
        Better::Higher => Some(-value.ln()),
        Better::Neither => None,
    }
}

/// Whether a figure is of all CPUs at once: it goes with their number, which is no part of a class.
fn is_of_all_cpus(case: &Case) -> bool {
    Cpus::of(case) == Some(Cpus::All)
}

/// What the members of a class are at one figure.
struct Column<'a> {
    judged: f64,
    known: Vec<(&'a Machine, &'a Row, f64)>,
}

impl Column<'_> {
    /// How much slower a value is than the median of the members, but for one of them.
    fn slower(&self, value: f64, but: Option<Name>) -> Option<f64> {
        let others = self.known.iter().filter(|(machine, ..)| Some(machine.id) != but);
        let others: Vec<f64> = others.map(|(_, _, slowness)| *slowness).collect();
        (!others.is_empty()).then(|| value - median(&others))
    }
}

impl Library {
    /// How much slower than its class a machine is in an area (`mem`, `os`), with the range of this share of the machines that are as usual.
    ///
    /// Figures of all CPUs at once are left out. `None` without a member that has one of the figures.
    pub fn area_factor(&self, class: &Class, area: &str, judged: &[Judged], share: f64) -> Option<AreaFactor<'_>> {
        let members: Vec<&Machine> = self.machines().iter().filter(|machine| class.has(machine)).collect();
        let own = columns(area, judged, &members);
        let slower: Vec<f64> = own.iter().filter_map(|column| column.slower(column.judged, None)).collect();
        if slower.is_empty() {
            return None;
        }
        let of_class = factors(&own, &members);
        let of_kind = self.akin_classes(class).into_iter();
        let of_kind: Vec<f64> =
            of_kind.flat_map(|members| factors(&columns(area, judged, &members), &members)).collect();
        let ids: BTreeSet<Name> = own.iter().flat_map(|column| &column.known).map(|(machine, ..)| machine.id).collect();
        let members: Vec<&Machine> = members.into_iter().filter(|machine| ids.contains(&machine.id)).collect();
        let rows: Vec<&Row> = own.iter().flat_map(|column| &column.known).map(|(_, row, _)| *row).collect();
        let bias = rows.iter().map(|row| bias_of(row)).sum::<f64>() / rows.len() as f64;
        let (worth, known) = (FEW_MEMBERS as f64, of_class.len() as f64);
        let spread = (worth * variance(&of_kind) + known * variance(&of_class)) / (worth + known);
        let variance = spread * (1.0 + 1.0 / members.len() as f64) + bias;
        let usual = t_quantile(f64::midpoint(1.0, share), worth + known) * variance.sqrt();
        Some(AreaFactor {
            factor: median(&slower).exp(),
            low: (-usual).exp(),
            high: usual.exp(),
            figures: slower.len(),
            members,
        })
    }

    /// The classes of the same kind of machine, by their members.
    fn akin_classes(&self, class: &Class) -> Vec<Vec<&Machine>> {
        let classes = self.classes(class.area).into_iter();
        classes
            .map(|(_, members)| members)
            .filter(|members| members.iter().all(|member| class.is_akin(member)))
            .collect()
    }
}

/// The figures of an area that count, each with the members that have it.
fn columns<'a>(area: &str, judged: &[Judged], members: &[&'a Machine]) -> Vec<Column<'a>> {
    let of_area = judged.iter().filter(|one| kelvin_model::leads(area, &one.metric) && !is_of_all_cpus(&one.case));
    let column = |one: &Judged| {
        let known = members.iter().filter_map(|machine| {
            let row = machine.figure(one.metric, &one.case)?;
            Some((*machine, row, slowness(one.metric, row.value)?))
        });
        Some(Column { judged: slowness(one.metric, one.value)?, known: known.collect() })
    };
    of_area.filter_map(column).filter(|column| !column.known.is_empty()).collect()
}

/// The factor of each member against the others, of those that share a figure with another.
fn factors(columns: &[Column<'_>], members: &[&Machine]) -> Vec<f64> {
    let of_member = |member: &&Machine| {
        let against_others = |column: &Column<'_>| {
            let own = column.known.iter().find(|(machine, ..)| machine.id == member.id)?;
            column.slower(own.2, Some(member.id))
        };
        let slower: Vec<f64> = columns.iter().filter_map(against_others).collect();
        (!slower.is_empty()).then(|| median(&slower))
    };
    members.iter().filter_map(of_member).collect()
}

/// Variance by the median absolute deviation; [`ASSUMED_WITHIN`] where fewer than two values tell of it.
fn variance(values: &[f64]) -> f64 {
    if values.len() < 2 { ASSUMED_WITHIN } else { (MAD_TO_STD * mad(values)).powi(2) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slowness_goes_up_where_a_rate_goes_down() {
        let (latency, rate) = (Name::new("mem.latency"), Name::new("mem.bandwidth.read"));
        assert!(slowness(latency, 2e-9) > slowness(latency, 1e-9));
        assert!(slowness(rate, 1e9) > slowness(rate, 2e9));
        assert_eq!(slowness(Name::new("net.bandwidth.udp.sent"), 1e9), None);
    }
}
