//! What earlier studies published is matched to cases that the probes really make, or is listed as having none.

#[path = "../../probes/tests/composed/mod.rs"]
mod composed;

use std::collections::BTreeSet;

use kelvin_analysis::reference::{Unmatched, references, unmatched};
use kelvin_harness::Effort;
use kelvin_model::{Case, Name, Reference, ReferenceValue};

/// All that a thorough run on the composed machine measures.
fn measured() -> BTreeSet<(Name, Case)> {
    let machine = composed::machine();
    let mut all = BTreeSet::new();
    for probe in kelvin_probes::all() {
        for case in (probe.cases)(&machine, Effort::Thorough) {
            let here = probe.metrics.iter().filter(|metric| metric.is_of(&case));
            all.extend(here.map(|metric| (metric.id, case.clone())));
        }
    }
    all
}

fn published() -> impl Iterator<Item = (&'static Reference, &'static ReferenceValue)> {
    references().iter().flat_map(|reference| reference.values.iter().map(move |value| (reference, value)))
}

/// Why a value is said to have no counterpart, if it is.
fn listed(reference: &Reference, value: &ReferenceValue) -> Option<&'static Unmatched> {
    let says = |one: &Unmatched| value.spans.as_ref().is_some_and(|spans| spans.contains(one.because));
    unmatched().iter().find(|one| reference.id == *one.study && value.metric == *one.row && says(one))
}

#[test]
fn a_published_value_is_of_a_case_that_a_probe_makes_or_listed_as_having_none() {
    let measured = measured();
    for (reference, value) in published() {
        let (metric, case) = (value.metric, &value.case);
        match (measured.contains(&(metric, case.clone())), listed(reference, value)) {
            (true, None) | (false, Some(_)) => {}
            (false, None) => panic!("{metric} ({case}) of {} is measured by no probe", reference.id),
            (true, Some(one)) => panic!("{one:?} has a counterpart: {metric} ({case})"),
        }
    }
}

#[test]
fn a_published_value_is_in_the_unit_of_its_metric() {
    for (reference, value) in published().filter(|(reference, value)| listed(reference, value).is_none()) {
        let metric = kelvin_catalogue::find(value.metric).unwrap();
        assert_eq!(value.unit, metric.unit, "{} of {}", metric.id, reference.id);
    }
}

#[test]
fn a_metric_is_a_published_baseline_where_a_study_published_a_case_of_it() {
    let compared = published().filter(|(reference, value)| listed(reference, value).is_none());
    let compared: BTreeSet<Name> = compared.map(|(_, value)| value.metric).collect();
    let baselines = kelvin_catalogue::all().filter(|metric| metric.baseline).map(|metric| metric.id);
    assert_eq!(baselines.collect::<BTreeSet<Name>>(), compared);
}
