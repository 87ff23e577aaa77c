//! What the charts of the network have besides its figures: the rates of streams if their bytes alone cost time, and their calls none;
//! and single operations that a user waits for, whose distributions are shown together.

use kelvin_core::IndirectSort;
use kelvin_core::catalogue::net::*;

use crate::prelude::*;
use crate::studies::network::CALLS_STUDY;

/// The ceilings of all lines of TCP streams on this many CPUs.
pub(crate) fn line_ceilings(results: &[MetricResult], cpus: u64) -> Vec<LineCeiling> {
    let fixed = |case: &Case| {
        Some(Case::new().with_number(STREAMS, STREAMS.number_in(case)?).with_word(PairPlacement::of(case)?))
    };
    let stream_results = results.iter().filter(|result| result.metric.id == BANDWIDTH_TCP.id);
    let lines = distinct(stream_results.filter_map(|result| fixed(&result.case)));
    lines.into_iter().filter_map(|line| line_ceiling(results, cpus, line)).collect()
}

/// The ceiling of one line, from `net.stream.tcp`: a message's cost at either end grows with its bytes, and that growth is the
/// cost of copying. The ends of one stream work in parallel if they are on two CPUs; those of several share the CPUs.
/// `None` where fewer than two messages were measured.
fn line_ceiling(results: &[MetricResult], cpus: u64, fixed: Case) -> Option<LineCeiling> {
    let send = byte_cost(results, &STREAM_TCP)?;
    let receive = byte_cost(results, &STREAM_TCP_RECEIVE)?;
    let streams = STREAMS.number_in(&fixed)? as f64;
    let share = streams / cpus.max(1) as f64;
    let rate = |send: f64, receive: f64| {
        let total_cost = send + receive;
        let stream_cost =
            if PairPlacement::of(&fixed) == Some(PairPlacement::SameCpu) { total_cost } else { send.max(receive) };
        streams * 1e9 / stream_cost.max(share * total_cost)
    };
    // The most expensive bytes make the lowest rate.
    let (low, high) = (rate(send.1, receive.1), rate(send.0, receive.0));
    Some(LineCeiling { metric: BANDWIDTH_TCP.id, fixed, low, high, source: STREAM_TCP.id })
}

/// Nanoseconds per additional byte between the two largest messages of a metric: the ends of the interval. `None` where it is
/// not certainly above zero.
fn byte_cost(results: &[MetricResult], metric: &Metric) -> Option<(f64, f64)> {
    let ends = |result: &MetricResult| {
        let interval = result.outcome.summary()?.run_interval?;
        Some((MESSAGE.number_in(&result.case)?, interval.lower, interval.upper))
    };
    let metric_results = results.iter().filter(|result| result.metric.id == metric.id);
    let mut points: Vec<(u64, f64, f64)> = metric_results.filter_map(ends).collect();
    points.indirect_sort_by_key(|&(message, ..)| message);
    let [.., (small, small_lower, small_upper), (large, large_lower, large_upper)] = points[..] else { return None };
    let bytes = (large - small) as f64;
    let (low, high) = ((large_lower - small_upper) / bytes, (large_upper - small_lower) / bytes);
    (low > 0.0).then_some((low, high))
}

/// The round trips of this machine.
static TAIL_METRICS: [&Metric; 4] = [&RTT_TCP, &RTT_UDP, &RTT_UNIX, &RTT_ICMP];

/// The round trips among results; `None` where none was measured.
pub(crate) fn tails_from_results(results: &[MetricResult]) -> Option<TailGroup> {
    let is_tail_metric = |result: &&MetricResult| TAIL_METRICS.iter().any(|metric| metric.id == result.metric.id);
    let sizes: Vec<u64> =
        results.iter().filter(is_tail_metric).filter_map(|result| MESSAGE.number_in(&result.case)).collect();
    let count = |size: u64| sizes.iter().filter(|&&message| message == size).count();
    // The smallest of several.
    let message = distinct(sizes.iter().copied()).into_iter().rev().max_by_key(|&size| count(size))?;
    let metrics = TAIL_METRICS.iter().map(|metric| metric.id).collect();
    Some(TailGroup { family: CALLS_STUDY, metrics, fixed: Case::new().with_number(MESSAGE, message) })
}
