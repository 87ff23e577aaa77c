//! The knees of curves over CPUs, jobs and streams: from which number on a rate stops growing.

use kelvin_core::catalogue::file::{JOBS, JOBS_IOPS};
use kelvin_core::catalogue::mem::{SCALING_COPY, SCALING_READ, SCALING_TRIAD, SCALING_WRITE};
use kelvin_core::catalogue::net::{PEER_BANDWIDTH, STREAMS};
use kelvin_core::catalogue::os::{SCALING_RATE, WORKING_CPUS};

use crate::figure_ratio::FigureRatio;
use crate::prelude::*;
use crate::studies::crossing::{MetricLine, lines};

/// The rates that a machine of more CPUs may have more of, each with what it runs over.
const CURVES: [(&Metric, Axis); 7] = [
    (&SCALING_RATE, WORKING_CPUS),
    (&SCALING_READ, WORKING_CPUS),
    (&SCALING_WRITE, WORKING_CPUS),
    (&SCALING_COPY, WORKING_CPUS),
    (&SCALING_TRIAD, WORKING_CPUS),
    (&JOBS_IOPS, JOBS),
    (&PEER_BANDWIDTH, STREAMS),
];

/// Times the rate up to which a greater number gives no more. Where twice as many CPUs do up to a tenth more, each of the added ones does
/// less than a tenth of what one before them does. A gain of a twentieth, as at the knee of a load sweep, could seldom be excluded: rates
/// of many CPUs differ by some percent from round to round, and the ratio of two has twice that error.
pub(crate) const MAX_FURTHER_GAIN: f64 = 1.1;
/// Fewest numbers of a curve: two are one comparison, which shows no place.
const MIN_COUNTS: usize = 3;
/// How many times the knee the greatest number is at least. With a few more CPUs even a rate that is proportional to them grows little.
const MIN_COUNT_RATIO: f64 = 1.5;

/// The knees of all these curves of a run; none of those that grow to their end, or of which that is not certain.
pub(crate) fn growth_ends(evidence: &Evidence<'_>) -> Vec<GrowthEnd> {
    let curve_ends = |&(metric, axis): &(&Metric, Axis)| -> Vec<GrowthEnd> {
        lines(evidence.all_cases(metric), axis).iter().filter_map(|line| growth_end(line, axis)).collect()
    };
    CURVES.iter().flat_map(curve_ends).collect()
}

/// The knee of a curve over numbers of something: the least one for which every greater one has a rate below [`MAX_FURTHER_GAIN`] times its
/// own, with the whole interval of their ratio. So neither noise nor a curve that ends soon after it makes a knee. The intervals hold
/// jointly over the numbers among which it is found.
pub(crate) fn growth_end(line: &MetricLine<'_, '_>, axis: Axis) -> Option<GrowthEnd> {
    let points = &line.points;
    let &(max, last) = points.last().filter(|_| points.len() >= MIN_COUNTS)?;
    let further_gains = |from: usize| {
        let greater = points[from + 1..].iter();
        greater.map(move |(_, rounds)| FigureRatio::from_rounds_jointly(points[from].1, rounds, points.len() - 1))
    };
    let gives_no_more = |gain: Option<FigureRatio>| gain.is_some_and(|gain| gain.is_below(MAX_FURTHER_GAIN));
    let gives_more = |gain: Option<FigureRatio>| gain.is_some_and(|gain| gain.is_above(MAX_FURTHER_GAIN));
    let has_more = |count: u64| max as f64 >= MIN_COUNT_RATIO * count as f64;
    let mut places = (0..points.len()).take_while(|&place| has_more(points[place].0));
    let knee = places.find(|&place| further_gains(place).all(gives_no_more))?;
    // The knee itself is one of these.
    let first_possible = (0..=knee).find(|&place| !further_gains(place).any(gives_more))?;
    Some(GrowthEnd {
        metric: last.metric.id,
        axis: axis.name,
        fixed: line.fixed.clone(),
        at: points[knee].0,
        low: points[first_possible].0,
        max,
    })
}
