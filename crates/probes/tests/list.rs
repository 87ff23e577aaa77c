//! The list of probes: everything is on it, documented, and predicted if an earlier study measured it.

mod composed;
mod headlines;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use kelvin_core::catalogue::{file, mem, net, os, transfer};
use kelvin_core::{Better, Case, Metric, Need, Prediction, PredictionBasis};
use kelvin_harness::{Effort, Method, PredictionInputs, Probe, ProbeKind, input_probes};
use kelvin_probes::{all, bounded_metrics};

use headlines::plausible;

/// Minimum length of a text, in characters.
const MIN_TEXT_LENGTH: usize = 40;

/// The areas: how the ids of their probes begin, and the directories that hold them.
const AREAS: &[(&str, &str)] = &[
    ("cpu", "cpu"),
    ("os", "os"),
    ("mem", "memory"),
    ("file", "file"),
    ("net", "net"),
    ("transfer", "transfer"),
    ("load", "load"),
    ("truth", "truth"),
];

/// The names of the probes that a source file defines.
fn defined_probes(source: &str) -> Vec<&str> {
    let declarations = source.lines().filter_map(|line| line.split_once(": Probe ="));
    declarations.filter_map(|(head, _)| head.split_once("static ").map(|(_, name)| name)).collect()
}

/// All Rust files below a directory.
fn sources(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let files_of_entry = |path: PathBuf| if path.is_dir() { sources(&path) } else { vec![path] };
    entries.flat_map(files_of_entry).filter(|path| path.extension().is_some_and(|end| end == "rs")).collect()
}

fn measures_and_studies() -> impl Iterator<Item = &'static Probe> {
    all().into_iter().filter(|probe| matches!(probe.kind, ProbeKind::Measure | ProbeKind::Study))
}

#[test]
fn definitions_are_found_in_a_source() {
    let source = "pub(crate) static PROBE: Probe = Probe {\n id: \"a.b\" };\npub(super) static B: Probe = made!(\"c.d\");\n\
                  static PROBES: &[&Probe] = &[&PROBE, &B];";
    assert_eq!(defined_probes(source), ["PROBE", "B"]);
}

#[test]
fn every_probe_in_a_file_is_on_the_list() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut defined = Vec::new();
    for file in AREAS.iter().flat_map(|(_, directory)| sources(&root.join(directory))) {
        let source = std::fs::read_to_string(&file).unwrap();
        let name = file.strip_prefix(&root).unwrap().display().to_string();
        defined.extend(defined_probes(&source).iter().map(|probe| format!("{name} {probe}")));
    }
    // Another test shows that no probe is listed twice, so equal counts mean that each of them is listed.
    let listed: Vec<&str> = all().iter().map(|probe| probe.id).collect();
    assert_eq!(
        defined.len(),
        listed.len(),
        "one is on no list (or not in a file of an area): {defined:#?} {listed:#?}"
    );
}

#[test]
fn ids_are_unique() {
    let mut probe_ids = BTreeSet::new();
    for probe in all() {
        assert!(probe_ids.insert(probe.id), "two probes are called {}", probe.id);
    }
}

#[test]
fn metrics_and_cases_are_unique() {
    let machine = composed::machine();
    let mut definitions: BTreeMap<&str, &Metric> = BTreeMap::new();
    let mut cases: BTreeSet<(&str, Case)> = BTreeSet::new();
    for probe in measures_and_studies() {
        for metric in probe.metrics {
            let first = definitions.entry(metric.id.as_str()).or_insert(metric);
            assert_eq!(*first, *metric, "two definitions of {}", metric.id);
            for case in (probe.cases)(&machine, Effort::Thorough) {
                assert!(cases.insert((metric.id.as_str(), case.clone())), "{} ({case}) is measured twice", metric.id);
            }
        }
    }
}

#[test]
fn catalogue_order_matches_probes() {
    let catalogue: Vec<&str> = kelvin_core::catalogue::all().map(|metric| metric.id.as_str()).collect();
    let areas: BTreeSet<&str> = kelvin_core::catalogue::all().map(Metric::area).collect();
    let mut metric_ids = BTreeSet::new();
    let measured = all().into_iter().flat_map(|probe| probe.metrics);
    let area_metrics = measured.filter(|metric| areas.contains(metric.area()) && metric_ids.insert(metric.id));
    assert_eq!(catalogue, area_metrics.map(|metric| metric.id.as_str()).collect::<Vec<_>>());
}

#[test]
fn ids_begin_with_their_area() {
    for probe in all() {
        let area = probe.id.split('.').next().unwrap();
        assert!(AREAS.iter().any(|(prefix, _)| *prefix == area), "{}", probe.id);
        let is_truth_kind = matches!(probe.kind, ProbeKind::Truth | ProbeKind::Fault);
        assert_eq!(area == "truth", is_truth_kind, "{} is a {:?}", probe.id, probe.kind);
        for metric in probe.metrics {
            assert_eq!(metric.area(), area, "{} of {}", metric.id, probe.id);
            let is_well_formed = |part: &str| {
                !part.is_empty() && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
            };
            assert!(metric.id.split('.').all(is_well_formed), "{}", metric.id);
        }
    }
}

#[test]
fn every_probe_is_documented() {
    let mut problems = Vec::new();
    for probe in measures_and_studies() {
        let method = Method::parse(probe.method);
        for (section, text, min_length) in [
            ("summary", probe.summary, MIN_TEXT_LENGTH / 2),
            ("how", &*method.how, MIN_TEXT_LENGTH),
            ("prediction", &*method.prediction, MIN_TEXT_LENGTH),
            ("not_for", &*method.not_for, MIN_TEXT_LENGTH),
        ] {
            if text.chars().count() < min_length {
                problems.push(format!("{}: {section} is too short: {text:?}", probe.id));
            }
            if text.contains("  ") || text.trim() != text {
                problems.push(format!("{}: stray spaces in {section}: {text:?}", probe.id));
            }
        }
        if method.pitfalls.is_empty() {
            problems.push(format!("{} has no pitfall", probe.id));
        }
        if method.sources.is_empty() {
            problems.push(format!("{} has no source", probe.id));
        }
        let has_short_summary = |metric: &&&Metric| metric.summary.chars().count() < MIN_TEXT_LENGTH / 4;
        problems.extend(probe.metrics.iter().filter(has_short_summary).map(|m| format!("{}: {:?}", m.id, m.summary)));
    }
    assert!(problems.is_empty(), "{problems:#?}");
    assert!(measures_and_studies().all(|probe| !probe.metrics.is_empty()));
}

#[test]
fn lower_effort_has_subset_of_cases() {
    let machine = composed::machine();
    for probe in all() {
        let [quick, default, thorough] =
            [Effort::Quick, Effort::Default, Effort::Thorough].map(|effort| (probe.cases)(&machine, effort));
        assert!(!default.is_empty(), "{} has no case", probe.id);
        let is_too_slow = probe.metrics.iter().all(|metric| metric.needs == Some(Need::IdleTime));
        assert!(!quick.is_empty() || is_too_slow, "{} has no case in a quick run", probe.id);
        let distinct: BTreeSet<&Case> = thorough.iter().collect();
        assert_eq!(distinct.len(), thorough.len(), "{} has a case twice", probe.id);
        for case in &quick {
            assert!(default.contains(case), "{} ({case}) is in a quick run only", probe.id);
        }
        for case in &default {
            assert!(thorough.contains(case), "{} ({case}) is missing from a thorough run", probe.id);
        }
    }
}

#[test]
fn case_parameters_match_metric_axes() {
    let machine = composed::machine();
    for probe in measures_and_studies() {
        for (case, metric) in (probe.cases)(&machine, Effort::Thorough)
            .iter()
            .flat_map(|case| probe.metrics.iter().map(move |metric| (case.clone(), metric)))
        {
            let axes: BTreeSet<&str> = metric.axes().map(|axis| axis.name.as_str()).collect();
            // Only the user adds an extent.
            let usual_axes: BTreeSet<&str> =
                axes.into_iter().filter(|axis| *axis != file::EXTENT.name.as_str()).collect();
            let parameters: BTreeSet<&str> = case.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(parameters, usual_axes, "{} ({case})", metric.id);
        }
    }
}

/// Published baselines without a prediction in some cases, with each probe's reason. No table has, for every machine,
/// the size of a read around a fault, the latency of a level, a core's lines in flight and the distance of a peer.
static SOMETIMES_PREDICTED: [&Metric; 5] =
    [&mem::FAULT_MAJOR, &mem::LATENCY, &mem::BANDWIDTH_READ, &mem::BANDWIDTH_WRITE, &net::PEER_PING];

/// What earlier studies also measured, in cases that no run has or without publishing figures: predicted all the same.
static ALSO_PREDICTED: [&Metric; 9] = [
    &os::TASKS_ELAPSED,
    &os::TASKS_USER,
    &os::TASKS_SYSTEM,
    &os::TASKS_EFFICIENCY,
    &mem::LATENCY_STRIDE,
    &file::BLOCKSIZE_WRITE,
    &file::THREADS,
    &file::ENGINES,
    &transfer::RATE,
];

/// What a call of kelvin's own kernel module costs is in no lower metric.
fn must_be_predicted(metric: &Metric, case: &Case) -> bool {
    if transfer::has_kernel_end(case) {
        return false;
    }
    let is_in = |list: &[&Metric]| list.iter().any(|listed_metric| listed_metric.id == metric.id);
    is_in(&ALSO_PREDICTED) || metric.baseline && !is_in(&SOMETIMES_PREDICTED)
}

/// What is missing or wrong in a prediction.
fn prediction_defects(prediction: &Prediction) -> Vec<String> {
    let Prediction { value, low, high, .. } = *prediction;
    let is_ordered = 0.0 <= low && low <= value && value <= high && low < high && high.is_finite() && value > 0.0;
    let bad_input = prediction.inputs.iter().find(|input| !input.value.is_finite() || input.source.is_empty());
    let is_unsourced = prediction.basis == PredictionBasis::Published && prediction.sources.is_empty();
    let checks = [
        (!is_ordered, format!("{low}..{high} is not a range around {value}")),
        (prediction.formula.is_empty(), "no formula".into()),
        (!prediction.derivation.contains(|c: char| c.is_ascii_digit()), "no figures in the derivation".into()),
        (prediction.inputs.is_empty(), "no input".into()),
        (bad_input.is_some(), format!("an input without value or source: {bad_input:?}")),
        (is_unsourced, "published without a source".into()),
    ];
    checks.into_iter().filter_map(|(is_defect, text)| is_defect.then_some(text)).collect()
}

#[test]
fn baselines_are_predicted_others_explained() {
    let machine = composed::machine();
    let measured = |metric: &str, _: &Case| plausible(metric);
    let facts = PredictionInputs::new(&machine, &measured);
    let mut problems = Vec::new();
    for probe in measures_and_studies() {
        for case in (probe.cases)(&machine, Effort::Default) {
            for metric in probe.metrics {
                let defects = match (probe.predict)(&facts, metric, &case) {
                    Ok(prediction) => prediction_defects(&prediction),
                    Err(reason) if must_be_predicted(metric, &case) => {
                        vec![format!("measured by an earlier study, not predicted: {}", reason.0)]
                    }
                    Err(reason) if reason.0.chars().count() < MIN_TEXT_LENGTH / 2 => {
                        vec![format!("no reason: {:?}", reason.0)]
                    }
                    Err(_) => Vec::new(),
                };
                problems.extend(defects.iter().map(|text| format!("{} ({case}): {text}", metric.id)));
            }
        }
    }
    assert!(problems.is_empty(), "{problems:#?}");
}

#[test]
fn bounded_metrics_are_listed_once() {
    let metrics: BTreeSet<&str> =
        all().into_iter().flat_map(|probe| probe.metrics).map(|metric| metric.id.as_str()).collect();
    let bounded = bounded_metrics();
    let ids: BTreeSet<&str> = bounded.iter().map(|bounded| bounded.metric.id.as_str()).collect();
    assert_eq!(ids.len(), bounded.len(), "one of {ids:?} has two bounds");
    assert!(ids.is_subset(&metrics), "{ids:?}");
    for bound in bounded {
        assert_ne!(
            bound.metric.better,
            Better::Lower,
            "{}: a metric that is better lower has no maximum",
            bound.metric.id
        );
    }
}

#[test]
fn input_probes_follow_from_predictions() {
    let inputs_of = |id: &str| {
        let probe = all().into_iter().find(|probe| probe.id == id).unwrap();
        input_probes(probe, &all(), &composed::machine())
    };
    assert_eq!(inputs_of("os.timer.wakeup"), ["os.switch.cross_cpu"]);
    assert_eq!(inputs_of("file.device"), [""; 0]);
}

#[test]
fn no_measurements_no_derived_predictions() {
    let machine = composed::machine();
    let facts = PredictionInputs::new(&machine, &|_, _| None);
    for probe in measures_and_studies() {
        for case in (probe.cases)(&machine, Effort::Quick) {
            for metric in probe.metrics {
                if let Ok(prediction) = (probe.predict)(&facts, metric, &case) {
                    assert!(
                        prediction.inputs.iter().all(|input| input.source != "measured in this run"),
                        "{} ({case}) claims an input that was not measured",
                        metric.id
                    );
                }
            }
        }
    }
}
