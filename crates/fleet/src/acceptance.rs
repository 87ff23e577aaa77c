//! Acceptance of hosts against a reference group: each passes, or fails with reasons.

use kelvin_core::units::metric_at;

use crate::group::GroupAnalysis;
use crate::report::HostAcceptance;
use crate::wording::{figure_text, odd_fact_text, share_text, worse_share};

/// Reasons that are listed; more are counted.
const MAX_REASONS: usize = 8;

/// What the reference hosts of a group say of each other host of it.
pub(crate) fn accept_hosts(analysis: &GroupAnalysis<'_>) -> Vec<HostAcceptance> {
    let tested = (0..analysis.group.hosts.len()).filter(|&host| analysis.runs.is_tested[host]);
    tested.map(|host| accept(analysis, host)).collect()
}

fn accept(analysis: &GroupAnalysis<'_>, host: usize) -> HostAcceptance {
    let label = analysis.input.hosts[analysis.group.hosts[host]].label.clone();
    let (mut faults, mut remarks) = (Vec::new(), Vec::new());
    if let Some(outlier) = analysis.outlier(host) {
        for figure in &outlier.figures {
            let is_worse = worse_share(figure.ratio, figure.metric.better) > 0.0;
            let list = if is_worse { &mut faults } else { &mut remarks };
            list.push(figure_text(figure, outlier.peers));
        }
        for family in &outlier.families {
            let (list, degree) = if family.worse_by > 0.0 { (&mut faults, "worse") } else { (&mut remarks, "better") };
            let (shifted, figures, share) = (family.shifted, family.figures, share_text(family.worse_by));
            list.push(format!("{shifted} of {figures} {} figures {share} {degree}", family.family));
        }
        faults.extend(outlier.facts.iter().map(odd_fact_text));
    }
    let missing = missing_series(analysis, host);
    if let Some(first) = missing.first() {
        faults.push(match missing.len() {
            1 => format!("{first} was not measured, every reference host has it"),
            count => format!("{count} figures were not measured that every reference host has, {first} among them"),
        });
    }
    let is_accepted = faults.is_empty();
    let mut reasons = if is_accepted { remarks } else { faults };
    let omitted = reasons.len().saturating_sub(MAX_REASONS);
    reasons.truncate(MAX_REASONS);
    if omitted > 0 {
        reasons.push(format!("{omitted} more"));
    }
    HostAcceptance { label, is_accepted, reasons }
}

/// The figures that all reference hosts have and this one lacks.
fn missing_series(analysis: &GroupAnalysis<'_>, host: usize) -> Vec<String> {
    let peers = analysis.runs.is_peer.iter().filter(|is_peer| **is_peer).count();
    let is_missing = |index: &usize| {
        let cells = analysis.series[*index].as_ref().map_or(&[][..], |cells| &cells.cells);
        let peers_with = cells.iter().filter(|cell| analysis.runs.is_peer[cell.host]).count();
        peers_with == peers && cells.iter().all(|cell| cell.host != host)
    };
    let missing = (0..analysis.series.len()).filter(is_missing);
    missing.map(|index| metric_at(&analysis.input.series[index].metric, &analysis.input.series[index].case)).collect()
}
