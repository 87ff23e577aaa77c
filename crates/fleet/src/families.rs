//! Whole metrics and areas as series of their own: where many figures of a host are off by a little, their median shows it.

use std::collections::BTreeMap;
use std::ops::Range;

use kelvin_core::{Better, Name};
use kelvin_stats::median_in_place;

use crate::input::SeriesInput;

/// The fewest series that make a family: their median is then none of the extremes.
const MIN_SERIES: usize = 3;

/// A metric with all its cases, or an area with all its metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Family {
    /// Id of the metric, or name of the area.
    pub name: Name,
    /// Indices of its series.
    pub series: Vec<usize>,
}

/// A series of a family.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct FamilyMember {
    /// Its index.
    pub series: usize,
    /// As of [`worse_sign`].
    pub worse_sign: f64,
}

impl Family {
    /// Its series, each with the side that is worse.
    pub fn members(&self, series: &[SeriesInput]) -> Vec<FamilyMember> {
        let member =
            |&index: &usize| FamilyMember { series: index, worse_sign: worse_sign(series[index].metric.better) };
        self.series.iter().map(member).collect()
    }
}

/// Which side of 1 is worse: -1 where more is better, 1 where less is, or neither.
pub(crate) fn worse_sign(better: Better) -> f64 {
    if better == Better::Higher { -1.0 } else { 1.0 }
}

/// The families of tested series: metrics of several cases, then areas of several metrics. A figure of which neither direction is better
/// belongs to none.
pub(crate) fn families(series: &[SeriesInput], is_tested: impl Fn(usize) -> bool) -> Vec<Family> {
    let mut metrics: BTreeMap<Name, Vec<usize>> = BTreeMap::new();
    let mut areas: BTreeMap<Name, Vec<usize>> = BTreeMap::new();
    for (index, SeriesInput { metric, .. }) in series.iter().enumerate() {
        if is_tested(index) && metric.better != Better::Neither {
            metrics.entry(metric.id).or_default().push(index);
            areas.entry(Name::intern(metric.area())).or_default().push(index);
        }
    }
    let has_several_metrics =
        |members: &[usize]| members.iter().any(|&index| series[index].metric.id != series[members[0]].metric.id);
    areas.retain(|_, members| has_several_metrics(members));
    let family = |(name, series): (Name, Vec<usize>)| Family { name, series };
    let families = metrics.into_iter().chain(areas).map(family);
    families.filter(|family| family.series.len() >= MIN_SERIES).collect()
}

/// The median over a family's series of each run's logarithm over the median host's, positive where it is worse; a run that lacks half of
/// them has none.
pub(crate) fn family_logs(
    family: &Family,
    (series, centers): (&[SeriesInput], &[f64]),
    runs: Range<usize>,
) -> Vec<Option<f64>> {
    let median_of = |run: usize| {
        let log = |&index: &usize| {
            let value = f64::from(series[index].values[run]);
            (value > 0.0).then(|| worse_sign(series[index].metric.better) * (value.ln() - centers[index]))
        };
        let mut logs: Vec<f64> = family.series.iter().filter_map(log).filter(|log| log.is_finite()).collect();
        (logs.len() >= MIN_SERIES && 2 * logs.len() >= family.series.len()).then(|| median_in_place(&mut logs))
    };
    runs.map(median_of).collect()
}

#[cfg(test)]
mod tests {
    use kelvin_core::{Case, Metric};

    use super::*;

    static TIME: Metric = Metric::duration("mem.latency", "a load");
    static RATE: Metric = Metric::rate("mem.rate", "bytes");

    #[test]
    fn metrics_and_areas_are_families() {
        let input = |metric: &Metric, n: u64, values: Vec<f32>| SeriesInput {
            metric: *metric,
            case: Case::new().with_number("n", n),
            values,
        };
        let half = |value: f32| vec![value, value / 2.0];
        let series = [
            input(&TIME, 1, half(10.0)),
            input(&TIME, 2, half(20.0)),
            input(&TIME, 3, half(30.0)),
            input(&RATE, 1, vec![4.0, f32::NAN]),
        ];
        let found = families(&series, |_| true);
        let names: Vec<(&str, usize)> =
            found.iter().map(|family| (family.name.as_str(), family.series.len())).collect();
        assert_eq!(names, [("mem.latency", 3), ("mem", 4)]);
        let centers: Vec<f64> = [10.0f64, 20.0, 30.0, 8.0].map(f64::ln).to_vec();
        let logs = family_logs(&found[0], (&series, &centers), 0..2);
        assert!((logs[0].unwrap()).abs() < 1e-12 && (logs[1].unwrap() - 0.5f64.ln()).abs() < 1e-12);
        // The rate is half of its center, which is worse; the median of 0, 0, 0 and ln 2 is 0.
        assert!(family_logs(&found[1], (&series, &centers), 0..1)[0].unwrap().abs() < 1e-12);
        assert_eq!(families(&series, |index| index > 1).len(), 0);
    }
}
