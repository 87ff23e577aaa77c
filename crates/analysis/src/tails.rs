//! Single operations that a user waits for, whose distributions are shown together.

use crate::result::{MetricResult, TailGroup};
use crate::studies::network::CALLS_STUDY;
use kelvin_core::catalogue::net::{MESSAGE, RTT_ICMP, RTT_TCP, RTT_UDP, RTT_UNIX};
use kelvin_core::{Case, Metric};

/// The round trips of this machine.
static TAIL_METRICS: [&Metric; 4] = [&RTT_TCP, &RTT_UDP, &RTT_UNIX, &RTT_ICMP];

/// The round trips among results; `None` where none was measured.
pub(crate) fn tails_from_results(results: &[MetricResult]) -> Option<TailGroup> {
    let is_one = |result: &&MetricResult| TAIL_METRICS.iter().any(|metric| metric.id == result.metric.id);
    let all: Vec<u64> = results.iter().filter(is_one).filter_map(|result| MESSAGE.number_in(&result.case)).collect();
    let mut messages = all.clone();
    messages.sort_unstable();
    messages.dedup();
    let count = |at: u64| all.iter().filter(|&&message| message == at).count();
    // The smallest of several.
    let most = messages.into_iter().rev().max_by_key(|&at| count(at))?;
    let metrics = TAIL_METRICS.iter().map(|metric| metric.id).collect();
    Some(TailGroup { family: CALLS_STUDY, metrics, fixed: Case::new().with_number(MESSAGE, most) })
}
