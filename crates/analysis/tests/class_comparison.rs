//! Figures of real machines against published ones of their class: those kept of a guest with Zen 4 and one with Emerald Rapids, as they
//! are and patched, and one that hides its model. No constant of the judgement was chosen on them.

use kelvin_analysis::testing::{add_scalars, empty_run};
use kelvin_analysis::{Analysis, ClassVerdict, FindingData, Importance, analyse};
use kelvin_core::catalogue::find;
use kelvin_core::{Better, Case, Machine, Metric, Name, Run};
use serde::Deserialize;

#[derive(Deserialize)]
struct KeptMachine {
    machine: Machine,
    figures: Vec<Figure>,
}

#[derive(Deserialize)]
struct Figure {
    metric: Name,
    case: Case,
    value: f64,
}

const ZEN_4: &str = include_str!("../../probes/machines/zen-4-guest.json");
const EMERALD_RAPIDS: &str = include_str!("../../probes/machines/emerald-rapids-guest.json");
const HIDDEN_MODEL: &str = include_str!("../../probes/machines/intel-guest.json");

/// Rounds about a value.
const ROUNDS: [f64; 6] = [0.995, 1.002, 0.999, 1.004, 0.998, 1.001];

/// A run with the figures of a kept machine, all of this area this many times as slow.
fn scaled_area_run(text: &str, area: &str, times: f64) -> Run {
    let KeptMachine { machine, figures } = serde_json::from_str(text).unwrap();
    let figures: Vec<(&Metric, Figure)> =
        figures.into_iter().filter_map(|figure| Some((find(figure.metric)?, figure))).collect();
    let mut metrics: Vec<Metric> = figures.iter().map(|(metric, _)| **metric).collect();
    metrics.dedup_by_key(|metric| metric.id);
    let mut run = empty_run(&metrics);
    run.header.machine = machine;
    for (metric, Figure { case, value, .. }) in figures {
        let scaled = match (metric.area() == area, metric.better) {
            (true, Better::Lower) => value * times,
            (true, Better::Higher) => value / times,
            _ => value,
        };
        add_scalars(&mut run, metric, case, &ROUNDS.map(|share| share * scaled));
    }
    run
}

fn named_areas(analysis: &Analysis) -> Vec<Name> {
    let areas = analysis.findings.iter().filter_map(|finding| match &finding.data {
        FindingData::AreaOffClass(area) => Some(area.area),
        _ => None,
    });
    areas.collect()
}

#[test]
fn unscaled_machines_have_no_finding() {
    for text in [ZEN_4, EMERALD_RAPIDS, HIDDEN_MODEL] {
        assert!(named_areas(&analyse(&scaled_area_run(text, "mem", 1.0))).is_empty());
    }
}

#[test]
fn doubled_memory_latency_is_first_finding() {
    for (text, core) in [(ZEN_4, "Zen 4"), (EMERALD_RAPIDS, "Emerald Rapids")] {
        let [unscaled, scaled] = [1.0, 2.0].map(|times| analyse(&scaled_area_run(text, "mem", times)));
        assert_eq!(named_areas(&scaled), ["mem"]);
        let finding =
            scaled.findings.iter().find(|finding| matches!(finding.data, FindingData::AreaOffClass(_))).unwrap();
        let FindingData::AreaOffClass(area) = &finding.data else { unreachable!() };
        assert!(area.members.len() >= 5 && area.class == format!("{core}, server, guest"), "{area:?}");
        let base = unscaled.class_comparison.areas.iter().find(|candidate| candidate.area == area.area).unwrap();
        assert!((area.factor / base.factor - 2.0).abs() < 1e-9, "{} and {}", area.factor, base.factor);
        assert_eq!(base.verdict, ClassVerdict::Usual);
        assert_eq!(finding.importance, Importance::Major);
        let sentence =
            format!("times as slow as {} other {core} guests: perhaps fewer memory channels", area.members.len());
        assert!(scaled.verdict.iter().any(|line| line.starts_with("Memory as a whole") && line.contains(&sentence)));
        let cautions = scaled.overview.as_ref().map(|screen| screen.cautions.clone()).unwrap_or_default();
        assert!(cautions.contains(&finding.text), "{cautions:?}");
    }
}

#[test]
fn figures_have_the_range_of_their_class() {
    let analysis = analyse(&scaled_area_run(ZEN_4, "mem", 1.0));
    let ranged: Vec<_> = analysis.results.iter().filter_map(|result| Some((result, result.class_range?))).collect();
    assert!(ranged.len() >= 10, "{}", ranged.len());
    for (result, range) in &ranged {
        assert!(0.0 < range.low && range.low < range.center && range.center < range.high, "{}", result.metric.id);
        assert_eq!(range.has_few_members, range.members < 5, "{}", result.metric.id);
    }
    // The range is in the metric's unit: half a mebibyte of a Zen 4 takes nanoseconds.
    let latency = ranged.iter().find(|(result, _)| result.case.to_string() == "bytes=524288 pages=base").unwrap().1;
    assert!(latency.low > 1.0 && latency.high < 20.0 && latency.members >= 5, "{latency:?}");
    assert_eq!(latency.verdict, Some(ClassVerdict::Usual));
}

#[test]
fn hidden_model_has_no_class() {
    let analysis = analyse(&scaled_area_run(HIDDEN_MODEL, "mem", 2.0));
    assert_eq!((analysis.class_comparison.class, analysis.class_comparison.areas.len()), (None, 0));
    assert!(analysis.results.iter().all(|result| result.class_range.is_none()));
    let reason = analysis.class_comparison.missing_reason.unwrap();
    assert!(reason.contains("hides its model") && reason.contains("amx_tile"), "{reason}");
}
