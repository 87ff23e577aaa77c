//! What earlier studies published is matched to cases that the probes really make, or is listed as having none.

#[path = "../../probes/tests/composed/mod.rs"]
mod composed;

use std::collections::BTreeSet;

use kelvin_analysis::reference::{UNMATCHED_ROWS, UnmatchedRow, references};
use kelvin_core::{Case, Name, Reference, ReferenceValue};
use kelvin_harness::Effort;

/// All that a thorough run on the composed machine measures.
fn measured_cases() -> BTreeSet<(Name, Case)> {
    let machine = composed::machine();
    let mut cases = BTreeSet::new();
    for probe in kelvin_probes::all() {
        for case in (probe.cases)(&machine, Effort::Thorough) {
            let metrics = probe.metrics.iter().filter(|metric| metric.is_measured_at(&case));
            cases.extend(metrics.map(|metric| (metric.id, case.clone())));
        }
    }
    cases
}

fn published_values() -> impl Iterator<Item = (&'static Reference, &'static ReferenceValue)> {
    references().iter().flat_map(|reference| reference.values.iter().map(move |value| (reference, value)))
}

/// The row that lists a value as having no counterpart, if one does.
fn listed_as_unmatched(reference: &Reference, value: &ReferenceValue) -> Option<&'static UnmatchedRow> {
    let is_listed = |row: &UnmatchedRow| value.range.as_ref().is_some_and(|spans| spans.contains(row.reason));
    UNMATCHED_ROWS.iter().find(|row| reference.id == *row.study && value.metric == *row.row && is_listed(row))
}

#[test]
fn published_values_have_a_probe_case() {
    let measured = measured_cases();
    for (reference, value) in published_values() {
        let (metric, case) = (value.metric, &value.case);
        match (measured.contains(&(metric, case.clone())), listed_as_unmatched(reference, value)) {
            (true, None) | (false, Some(_)) => {}
            (false, None) => panic!("{metric} ({case}) of {} is measured by no probe", reference.id),
            (true, Some(row)) => panic!("{row:?} has a counterpart: {metric} ({case})"),
        }
    }
}

#[test]
fn published_values_have_the_metric_unit() {
    for (reference, value) in
        published_values().filter(|(reference, value)| listed_as_unmatched(reference, value).is_none())
    {
        let metric = kelvin_core::catalogue::find(value.metric).unwrap();
        assert_eq!(value.unit, metric.unit, "{} of {}", metric.id, reference.id);
    }
}

#[test]
fn baseline_metrics_are_those_of_published_studies() {
    let matched = published_values().filter(|(reference, value)| listed_as_unmatched(reference, value).is_none());
    let metrics: BTreeSet<Name> = matched.map(|(_, value)| value.metric).collect();
    let baselines = kelvin_core::catalogue::all().filter(|metric| metric.baseline).map(|metric| metric.id);
    assert_eq!(baselines.collect::<BTreeSet<Name>>(), metrics);
}
