//! The network in brief: between two processes, and to another host.

use kelvin_core::Need;

use super::*;
use crate::studies::{network, peer};

/// Conclusions that hold by a test.
pub(super) fn local(_: &Evidence<'_>, analysis: &Analysis) -> Vec<Finding> {
    let said = network::essential_sentences(&analysis.studies);
    let is_local = |result: &MetricResult| result.metric.area() == "net" && !is_to_other_host(result);
    let metrics = metrics_of_results(analysis, is_local);
    if said.is_empty() || metrics.is_empty() {
        return Vec::new();
    }
    let because = "each holds by the interval of a ratio of medians: see the studies net.rtt and net.bandwidth";
    let text = format!("Network: {}", said.join("; "));
    let finding = Finding::new(Importance::Notable, FindingData::Network { sentences: said }, text, because.into());
    vec![finding.with_metrics(metrics)]
}

fn is_to_other_host(result: &MetricResult) -> bool {
    kelvin_core::catalogue::find(result.metric.id).is_some_and(|metric| metric.needs == Some(Need::Agent))
}

pub(super) fn other_host(evidence: &Evidence<'_>, analysis: &Analysis) -> Vec<Finding> {
    let said = peer::essential_sentences(evidence, &analysis.studies);
    let metrics = metrics_of_results(analysis, is_to_other_host);
    if said.is_empty() || metrics.is_empty() {
        return Vec::new();
    }
    let because = "each holds by an interval over rounds: see the study net.peer";
    let text = format!("Network to the other host: {}", said.join("; "));
    let finding = Finding::new(Importance::Notable, FindingData::OtherHost { sentences: said }, text, because.into());
    vec![finding.with_metrics(metrics)]
}
