//! The network in brief: between two processes, and to another host.

use super::*;
use crate::studies::{network, peer};

/// Conclusions on the network between two processes that hold by a test.
pub(super) fn local_network(analysis: &Analysis) -> Option<Finding> {
    let sentences = network::essential_sentences(&analysis.studies);
    let is_local = |result: &MetricResult| result.metric.area() == "net" && !is_to_other_host(result);
    let reason = "each holds by the interval of a ratio of medians: see the studies net.rtt and net.bandwidth";
    let text = format!("Network: {}", sentences.join("; "));
    let metrics = metrics_of_results(analysis, is_local);
    network_finding(!sentences.is_empty(), FindingData::Network { sentences }, text, reason, metrics)
}

/// What matters of the path to another host.
pub(super) fn peer_network(evidence: &Evidence<'_>, analysis: &Analysis) -> Option<Finding> {
    let sentences = peer::essential_sentences(evidence, &analysis.studies);
    let reason = "each holds by an interval over rounds: see the study net.peer";
    let text = format!("Network to the other host: {}", sentences.join("; "));
    let metrics = metrics_of_results(analysis, is_to_other_host);
    network_finding(!sentences.is_empty(), FindingData::OtherHost { sentences }, text, reason, metrics)
}

/// The finding, where it has a conclusion on some metrics.
fn network_finding(
    is_known: bool,
    data: FindingData,
    text: String,
    reason: &str,
    metrics: Vec<Name>,
) -> Option<Finding> {
    let is_known = is_known && !metrics.is_empty();
    is_known.then(|| Finding::new(Importance::Notable, data, text, reason.into()).with_metrics(metrics))
}

fn is_to_other_host(result: &MetricResult) -> bool {
    kelvin_core::catalogue::find(result.metric.id).is_some_and(|metric| metric.needs == Some(Need::Agent))
}
