//! Single operations that a user waits for, whose distributions are shown together.

use crate::result::{MetricResult, Tails};
use crate::studies::network::CALLS_STUDY;
use kelvin_catalogue::net::{MESSAGE, RTT_ICMP, RTT_TCP, RTT_UDP, RTT_UNIX};
use kelvin_model::{Case, Metric};

/// The round trips of this machine.
static ROUND_TRIPS: [&Metric; 4] = [&RTT_TCP, &RTT_UDP, &RTT_UNIX, &RTT_ICMP];

/// The round trips among results; `None` where none was measured.
pub(crate) fn of_results(results: &[MetricResult]) -> Option<Tails> {
    let is_one = |result: &&MetricResult| ROUND_TRIPS.iter().any(|metric| metric.id == result.metric.id);
    let all: Vec<u64> = results.iter().filter(is_one).filter_map(|result| MESSAGE.of(&result.case)).collect();
    let mut messages = all.clone();
    messages.sort_unstable();
    messages.dedup();
    let count = |at: u64| all.iter().filter(|&&message| message == at).count();
    // The smallest of several.
    let most = messages.into_iter().rev().max_by_key(|&at| count(at))?;
    let metrics = ROUND_TRIPS.iter().map(|metric| metric.id).collect();
    Some(Tails { family: CALLS_STUDY, metrics, held: Case::new().with(MESSAGE, most) })
}
