//! The formats of other tools, of the made-up runs: as they are written, and read by other means than they were written with.

mod synthetic;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::{Command, Stdio};

use kelvin_analysis::Outcome;
use kelvin_core::Better;
use kelvin_report::exports::omitted;
use kelvin_report::{Bencher, Benchstat, GithubAction, OpenMetrics, Render};
use kelvin_testing::MissingRequirement;
use serde_json::Value;
use synthetic::SyntheticReport;

fn render(format: &dyn Render, sample: &SyntheticReport) -> String {
    let mut out = Vec::new();
    format.render(&sample.report(), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn samples() -> [SyntheticReport; 4] {
    [synthetic::full(), synthetic::partial(), synthetic::empty(), synthetic::hostile()]
}

/// The figures that other tools get: metric and case, with their headlines.
fn figures(sample: &SyntheticReport, is_wanted: impl Fn(Better) -> bool) -> Vec<(String, f64)> {
    let results = sample.analysis.results.iter().filter(|result| !result.only_input && is_wanted(result.metric.better));
    let figures = results.filter_map(|result| match &result.outcome {
        Outcome::Measured(summary) => Some((format!("{} {}", result.metric.id, result.case), summary.headline)),
        _ => None,
    });
    figures.map(|(name, value)| (name.trim_end().to_owned(), value)).collect()
}

/// The beginning of a long text.
fn first_40_lines(text: &str) -> String {
    text.lines().take(40).collect::<Vec<_>>().join("\n")
}

#[test]
fn openmetrics_snapshot() {
    insta::assert_snapshot!(first_40_lines(&render(&OpenMetrics, &synthetic::full())));
}

/// A line of a sample: its name, its labels as they are written, its value.
fn sample(line: &str) -> (&str, Vec<(&str, &str)>, f64) {
    let (series, value) = line.rsplit_once(' ').unwrap();
    let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
    let mut rest = labels.strip_suffix('}').unwrap();
    let mut found = Vec::new();
    while !rest.is_empty() {
        let (label, after) = rest.split_once("=\"").unwrap();
        let mut is_escaped = false;
        let end = after.find(|c| {
            let ends = c == '"' && !is_escaped;
            is_escaped = c == '\\' && !is_escaped;
            ends
        });
        let (value, after) = after.split_at(end.unwrap());
        found.push((label, value));
        rest = after[1..].strip_prefix(',').unwrap_or(&after[1..]);
    }
    (name, found, value.parse().unwrap())
}

fn is_name(text: &str) -> bool {
    let is_inside = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.chars().all(is_inside) && !text.starts_with(|c: char| c.is_ascii_digit()) && !text.starts_with("__")
}

/// Every family once and in one piece, names and labels by their grammar, no series twice, no escape but the three there are.
fn assert_valid_exposition(text: &str) {
    let (mut family, mut families, mut series) = ("", BTreeSet::new(), BTreeSet::new());
    assert_eq!(text.lines().last(), Some("# EOF"));
    for line in text.lines().filter(|line| *line != "# EOF") {
        if let Some(comment) = line.strip_prefix("# ") {
            let [keyword, name, rest] = comment.splitn(3, ' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
            match keyword {
                "HELP" => {
                    assert!(families.insert(name.to_owned()), "{name} comes twice");
                    family = name;
                }
                "TYPE" => assert_eq!((name, rest), (family, "gauge")),
                "UNIT" => assert!(name == family && name.ends_with(&format!("_{rest}")), "{line}"),
                _ => panic!("{line}"),
            }
            continue;
        }
        let (name, labels, value) = sample(line);
        assert!(name == family && is_name(name) && value.is_finite(), "{line}");
        assert!(series.insert(line.rsplit_once(' ').unwrap().0), "{line}");
        let names: BTreeSet<&str> = labels.iter().map(|(label, _)| *label).collect();
        assert!(names.len() == labels.len() && names.iter().all(|label| is_name(label)), "{line}");
        for (_, value) in labels {
            let known = value.replace(r"\\", "").replace("\\\"", "").replace(r"\n", "");
            assert!(!known.contains('\\') && !known.contains('"'), "{line}");
        }
    }
}

#[test]
fn openmetrics_of_any_run_is_valid() {
    samples().iter().for_each(|sample| assert_valid_exposition(&render(&OpenMetrics, sample)));
}

#[test]
fn openmetrics_has_all_figures_in_base_units() {
    let full = synthetic::full();
    let text = render(&OpenMetrics, &full);
    let null = text.lines().find(|line| line.starts_with("kelvin_os_syscall_null_seconds{")).unwrap();
    let (_, labels, value) = sample(null);
    assert!(labels.contains(&("metric", "os.syscall.null")) && labels.iter().any(|(label, _)| *label == "call"));
    let headline =
        figures(&full, |_| true).into_iter().find(|(name, _)| name.starts_with("os.syscall.null")).unwrap().1;
    assert_eq!(value, headline / 1e9);
}

#[test]
fn tags_are_at_most_32_labels() {
    let mut full = synthetic::full();
    full.run.labels.note = Some("a note is no label".into());
    full.run.labels.tags =
        [("kernel", "6.18"), ("disk.model", "wd")].map(|(name, value)| (name.into(), value.into())).into();
    let info = |full: &SyntheticReport| {
        let text = render(&OpenMetrics, full);
        assert_valid_exposition(&text);
        assert!(!text.contains("a note"));
        text.lines().find(|line| line.starts_with("kelvin_run_info{")).unwrap().to_owned()
    };
    let line = info(&full);
    let (_, labels, _) = sample(&line);
    assert!(
        labels.contains(&("tag_kernel", "6.18")) && labels.contains(&("U__tag__disk_2e_model", "wd")),
        "{labels:?}"
    );
    full.run.labels.tags = (10..50).map(|number| (format!("t{number}"), "x".to_owned())).collect();
    let line = info(&full);
    let (_, labels, _) = sample(&line);
    assert_eq!(labels.iter().filter(|(label, _)| label.starts_with("tag_")).count(), 32);
    assert!(labels.contains(&("tags_left_out", "8")), "{labels:?}");
}

/// What the reader of Prometheus says, where it is installed.
#[test]
fn promtool_accepts_openmetrics() {
    for one in samples() {
        let mut promtool = Command::new("promtool");
        promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = match promtool.spawn() {
            Ok(child) => child,
            Err(error) => {
                return MissingRequirement::program("promtool", "prometheus", &error)
                    .report_skip("promtool on OpenMetrics");
            }
        };
        child.stdin.take().unwrap().write_all(render(&OpenMetrics, &one).as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success() && said.is_empty(), "{said}");
    }
}

#[test]
fn github_action_snapshot() {
    insta::assert_snapshot!(first_40_lines(&render(&GithubAction::SmallerIsBetter, &synthetic::full())));
}

#[test]
fn each_direction_counts_omitted_figures() {
    let full = synthetic::full();
    let of = |better| figures(&full, |of| of == better);
    for (format, better) in
        [(GithubAction::SmallerIsBetter, Better::Lower), (GithubAction::BiggerIsBetter, Better::Higher)]
    {
        let entries: Vec<Value> = serde_json::from_str(&render(&format, &full)).unwrap();
        let read: Vec<(String, f64)> = entries
            .iter()
            .map(|entry| (entry["name"].as_str().unwrap().to_owned(), entry["value"].as_f64().unwrap()))
            .collect();
        assert!(!read.is_empty() && read == of(better));
        let left_out = format.omitted(&full.report());
        let others = left_out.lower_is_better + left_out.higher_is_better;
        let opposite = if better == Better::Lower { Better::Higher } else { Better::Lower };
        assert_eq!((others, left_out.neither_is_better), (of(opposite).len(), of(Better::Neither).len()));
        let rest = left_out.without_value + left_out.inputs + left_out.repeated;
        let all = entries.len() + others + left_out.neither_is_better + rest;
        assert_eq!(all, full.analysis.results.len());
    }
}

#[test]
fn bencher_snapshot() {
    let full = synthetic::full();
    let text = render(&Bencher, &full);
    let benchmarks: BTreeMap<String, BTreeMap<String, BTreeMap<String, f64>>> = serde_json::from_str(&text).unwrap();
    let read: BTreeMap<String, f64> =
        benchmarks.iter().map(|(name, measures)| (name.clone(), measures.values().next().unwrap()["value"])).collect();
    assert_eq!(read, figures(&full, |_| true).into_iter().collect());
    for (name, measures) in &benchmarks {
        let (slug, measured) = measures.first_key_value().unwrap();
        // The limits of Bencher.
        assert!(name.len() <= 1024 && slug.len() <= 64 && measures.len() == 1);
        let known = ["lower_value", "upper_value", "value"];
        assert!(measured.keys().all(|key| known.contains(&key.as_str())));
        if let Some(lower) = measured.get("lower_value") {
            assert!(lower <= &measured["value"] && measured["value"] <= measured["upper_value"], "{name}");
        }
    }
    insta::assert_snapshot!(first_40_lines(&text));
}

#[test]
fn benchmark_lines_have_four_fields() {
    for line in
        samples().iter().flat_map(|sample| render(&Benchstat, sample).lines().map(str::to_owned).collect::<Vec<_>>())
    {
        assert!(!line.starts_with("Benchmark") || line.split_whitespace().count() == 4, "{line}");
    }
}

#[test]
fn benchstat_snapshot() {
    let full = synthetic::full();
    let text = render(&Benchstat, &full);
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("Benchmark")).collect();
    let rounds: usize = full
        .analysis
        .results
        .iter()
        .filter(|result| !result.only_input)
        .filter_map(|result| result.outcome.summary())
        .map(|summary| summary.round_headlines.len())
        .sum();
    assert_eq!(lines.len(), rounds);
    for line in lines {
        let [name, "1", value, _unit] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        assert!(name.as_bytes()["Benchmark".len()].is_ascii_uppercase() && value.parse::<f64>().is_ok(), "{line}");
        let end = name.rsplit_once('-').map_or("", |(_, end)| end);
        assert!(end.is_empty() || end.parse::<u64>().is_err(), "{line}");
    }
    insta::assert_snapshot!(first_40_lines(&text));
}

/// A value of an axis that Go would take for a number of CPUs.
#[test]
fn cases_differing_by_last_number_stay_distinct() {
    let mut sample = synthetic::full();
    let index = sample.analysis.results.iter().position(|result| result.outcome.summary().is_some()).unwrap();
    let mut one = sample.analysis.results[index].clone();
    one.case = kelvin_core::Case::new().with_word(kelvin_core::AxisWord::from_names("way", "sha-256"));
    sample.analysis.results = vec![one];
    let text = render(&Benchstat, &sample);
    assert!(text.contains("/way=sha_256 1 "), "{text}");
}

#[test]
fn repeated_figures_are_exported_once() {
    let mut sample = synthetic::full();
    let twice = sample.analysis.results.clone();
    let figures = figures(&sample, |_| true).len();
    sample.analysis.results.extend(twice);
    assert_valid_exposition(&render(&OpenMetrics, &sample));
    assert_eq!(omitted(&sample.report()).repeated, figures);
}
