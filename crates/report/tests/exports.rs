//! The formats of other tools, of the made-up runs: as they are written, and read by other means than they were written with.

mod synthetic;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use kelvin_analysis::{MetricResult, Outcome};
use kelvin_core::{
    Better, HISTORY_FORMAT, History, HistoryChange, HistoryChangeKind, HistoryPoint, HistoryRun, PValue, RangeVerdict,
    SeriesHistory, VersionHistory,
};
use kelvin_report::exports::{WatchStatus, omitted, write_watch_openmetrics};
use kelvin_report::{Bencher, Benchstat, GithubAction, Influx, OpenMetrics, Render};
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
fn figures(sample: &SyntheticReport, is_exported: impl Fn(Better) -> bool) -> Vec<(String, f64)> {
    let results =
        sample.analysis.results.iter().filter(|result| !result.only_input && is_exported(result.metric.better));
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
    let mut pairs = Vec::new();
    while !rest.is_empty() {
        let (label, tail) = rest.split_once("=\"").unwrap();
        let mut is_escaped = false;
        let end = tail.find(|c| {
            let is_end = c == '"' && !is_escaped;
            is_escaped = c == '\\' && !is_escaped;
            is_end
        });
        let (value, tail) = tail.split_at(end.unwrap());
        pairs.push((label, value));
        rest = tail[1..].strip_prefix(',').unwrap_or(&tail[1..]);
    }
    (name, pairs, value.parse().unwrap())
}

fn is_name(text: &str) -> bool {
    let is_name_char = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.chars().all(is_name_char) && !text.starts_with(|c: char| c.is_ascii_digit()) && !text.starts_with("__")
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
            let unescaped = value.replace(r"\\", "").replace("\\\"", "").replace(r"\n", "");
            assert!(!unescaped.contains('\\') && !unescaped.contains('"'), "{line}");
        }
    }
}

#[test]
fn openmetrics_of_any_run_is_valid() {
    samples().iter().for_each(|sample| assert_valid_exposition(&render(&OpenMetrics, sample)));
}

#[test]
fn openmetrics_has_all_figures_in_base_units() {
    let full_report = synthetic::full();
    let text = render(&OpenMetrics, &full_report);
    let null = text.lines().find(|line| line.starts_with("kelvin_os_syscall_null_seconds{")).unwrap();
    let (_, labels, value) = sample(null);
    assert!(labels.contains(&("metric", "os.syscall.null")) && labels.iter().any(|(label, _)| *label == "call"));
    let headline =
        figures(&full_report, |_| true).into_iter().find(|(name, _)| name.starts_with("os.syscall.null")).unwrap().1;
    assert_eq!(value, headline / 1e9);
}

#[test]
fn tags_are_at_most_32_labels() {
    let mut full_report = synthetic::full();
    full_report.run.labels.note = Some("a note is no label".into());
    full_report.run.labels.tags =
        [("kernel", "6.18"), ("disk.model", "wd")].map(|(name, value)| (name.into(), value.into())).into();
    let info = |sample: &SyntheticReport| {
        let text = render(&OpenMetrics, sample);
        assert_valid_exposition(&text);
        assert!(!text.contains("a note"));
        text.lines().find(|line| line.starts_with("kelvin_run_info{")).unwrap().to_owned()
    };
    let line = info(&full_report);
    let (_, labels, _) = sample(&line);
    assert!(
        labels.contains(&("tag_kernel", "6.18")) && labels.contains(&("U__tag__disk_2e_model", "wd")),
        "{labels:?}"
    );
    full_report.run.labels.tags = (10..50).map(|number| (format!("t{number}"), "x".to_owned())).collect();
    let line = info(&full_report);
    let (_, labels, _) = sample(&line);
    assert_eq!(labels.iter().filter(|(label, _)| label.starts_with("tag_")).count(), 32);
    assert!(labels.contains(&("tags_left_out", "8")), "{labels:?}");
}

/// Three runs, with a metric of the sample that is worse for good from the second on.
fn regressed_history(sample: &SyntheticReport) -> History {
    let result = sample.analysis.results.iter().find(|result| result.metric.id == *"os.syscall.null").unwrap();
    let started = |run: usize| format!("2026-03-0{}T10:00:00Z", run + 1);
    let run = |run| HistoryRun { id: format!("run-{run}"), started: started(run), frequency: None };
    let change = HistoryChange {
        kind: HistoryChangeKind::Step,
        run: 1,
        run_interval: [1, 1],
        before: 100.0,
        after: 125.0,
        p_value: PValue { raw: 1e-9, adjusted: 1e-7 },
        runs: [0, 1],
        differences: Vec::new(),
    };
    let points = [100.0, 125.0, 125.0].into_iter().enumerate().map(|(run, value)| HistoryPoint { run, value });
    let version = VersionHistory { version: 1, points: points.collect(), changes: vec![change] };
    History {
        history_format: HISTORY_FORMAT,
        machine: "5f2c9e7a01d34b68".into(),
        cpu_model: None,
        mode: "watch".into(),
        runs: (0..3).map(run).collect(),
        has_older: false,
        other_modes: Vec::new(),
        false_discovery_rate: 0.05,
        series: vec![SeriesHistory {
            metric: result.metric,
            case: result.case.clone(),
            versions: vec![version],
            ranking: None,
        }],
    }
}

#[test]
fn watch_adds_lasting_regressions_to_figures() {
    let sample = synthetic::full();
    let history = regressed_history(&sample);
    let text = |threshold| {
        let status = WatchStatus { interval: Duration::from_secs(3600), history: &history, threshold };
        let mut out = Vec::new();
        write_watch_openmetrics(&sample.report(), &status, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_valid_exposition(&text);
        text
    };
    let figures = render(&OpenMetrics, &sample);
    let added = |threshold| {
        let text = text(threshold);
        assert!(text.starts_with(figures.strip_suffix("# EOF\n").unwrap()), "the figures come first");
        let lines = text.lines().filter(|line| line.starts_with("kelvin_watch")).map(str::to_owned);
        lines.collect::<Vec<String>>()
    };
    let labels = "metric=\"os.syscall.null\",case=\"call=getppid\",call=\"getppid\"";
    assert_eq!(
        added(0.05),
        [
            "kelvin_watch_interval_seconds 3600.0".to_owned(),
            "kelvin_watch_regressions 1.0".to_owned(),
            format!("kelvin_watch_regression_ratio{{{labels}}} 1.25"),
            format!("kelvin_watch_regression_start_time_seconds{{{labels}}} 1772445600.0"),
        ]
    );
    assert_eq!(added(0.3), ["kelvin_watch_interval_seconds 3600.0", "kelvin_watch_regressions 0.0"]);
}

#[test]
fn openmetrics_has_predicted_ranges_and_verdicts() {
    let sample = synthetic::full();
    let text = render(&OpenMetrics, &sample);
    let values = |name: &str| -> Vec<f64> {
        let lines = text.lines().filter(|line| line.split('{').next() == Some(name));
        lines.map(|line| line.rsplit_once(' ').unwrap().1.parse().unwrap()).collect()
    };
    let measured = sample.analysis.results.iter().filter(|result| !result.only_input);
    let measured = measured.filter(|result| matches!(result.outcome, Outcome::Measured(_)));
    let is_outside = |result: &&MetricResult| matches!(result.verdict, RangeVerdict::Above | RangeVerdict::Below);
    let outside = values("kelvin_figure_outside_prediction");
    assert_eq!(outside.iter().sum::<f64>(), measured.clone().filter(is_outside).count() as f64);
    assert_eq!(outside.len(), measured.filter(|result| result.prediction.is_some()).count());
    assert!(outside.contains(&0.0) && outside.contains(&1.0));
    let [lower, predicted, upper] = ["_predicted_lower", "_predicted", "_predicted_upper"]
        .map(|part| values(&format!("kelvin_os_syscall_null{part}_seconds"))[0]);
    assert!(lower < predicted && predicted < upper, "{lower} {predicted} {upper}");
}

/// The verdict of Prometheus's own reader, where it is installed.
#[test]
fn promtool_accepts_openmetrics() {
    for sample in samples() {
        let mut promtool = Command::new("promtool");
        promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = match promtool.spawn() {
            Ok(child) => child,
            Err(error) => {
                return MissingRequirement::program("promtool", "prometheus", &error)
                    .report_skip("promtool on OpenMetrics");
            }
        };
        child.stdin.take().unwrap().write_all(render(&OpenMetrics, &sample).as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let messages = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success() && messages.is_empty(), "{messages}");
    }
}

#[test]
fn github_action_snapshot() {
    insta::assert_snapshot!(first_40_lines(&render(&GithubAction::SmallerIsBetter, &synthetic::full())));
}

#[test]
fn each_direction_counts_omitted_figures() {
    let sample = synthetic::full();
    let expected_figures = |better| figures(&sample, |direction| direction == better);
    for (format, better) in
        [(GithubAction::SmallerIsBetter, Better::Lower), (GithubAction::BiggerIsBetter, Better::Higher)]
    {
        let entries: Vec<Value> = serde_json::from_str(&render(&format, &sample)).unwrap();
        let exported: Vec<(String, f64)> = entries
            .iter()
            .map(|entry| (entry["name"].as_str().unwrap().to_owned(), entry["value"].as_f64().unwrap()))
            .collect();
        assert!(!exported.is_empty() && exported == expected_figures(better));
        let omissions = format.omitted(&sample.report());
        let other_directions = omissions.lower_is_better + omissions.higher_is_better;
        let opposite = if better == Better::Lower { Better::Higher } else { Better::Lower };
        assert_eq!(
            (other_directions, omissions.neither_is_better),
            (expected_figures(opposite).len(), expected_figures(Better::Neither).len())
        );
        let remaining = omissions.without_value + omissions.inputs + omissions.repeated;
        let total = entries.len() + other_directions + omissions.neither_is_better + remaining;
        assert_eq!(total, sample.analysis.results.len());
    }
}

#[test]
fn bencher_snapshot() {
    let sample = synthetic::full();
    let text = render(&Bencher, &sample);
    let benchmarks: BTreeMap<String, BTreeMap<String, BTreeMap<String, f64>>> = serde_json::from_str(&text).unwrap();
    let exported: BTreeMap<String, f64> =
        benchmarks.iter().map(|(name, measures)| (name.clone(), measures.values().next().unwrap()["value"])).collect();
    assert_eq!(exported, figures(&sample, |_| true).into_iter().collect());
    for (name, measures) in &benchmarks {
        let (slug, measure) = measures.first_key_value().unwrap();
        // The limits of Bencher.
        assert!(name.len() <= 1024 && slug.len() <= 64 && measures.len() == 1);
        let valid_keys = ["lower_value", "upper_value", "value"];
        assert!(measure.keys().all(|key| valid_keys.contains(&key.as_str())));
        if let Some(lower) = measure.get("lower_value") {
            assert!(lower <= &measure["value"] && measure["value"] <= measure["upper_value"], "{name}");
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
    let sample = synthetic::full();
    let text = render(&Benchstat, &sample);
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("Benchmark")).collect();
    let rounds: usize = sample
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
    let mut result = sample.analysis.results[index].clone();
    result.case = kelvin_core::Case::new().with_word(kelvin_core::AxisWord::from_names("way", "sha-256"));
    sample.analysis.results = vec![result];
    let text = render(&Benchstat, &sample);
    assert!(text.contains("/way=sha_256 1 "), "{text}");
}

#[test]
fn repeated_figures_are_exported_once() {
    let mut sample = synthetic::full();
    let duplicates = sample.analysis.results.clone();
    let figures = figures(&sample, |_| true).len();
    sample.analysis.results.extend(duplicates);
    assert_valid_exposition(&render(&OpenMetrics, &sample));
    assert_eq!(omitted(&sample.report()).repeated, figures);
}

/// A point of InfluxDB.
#[derive(Debug)]
struct Point {
    measurement: String,
    tags: Vec<(String, String)>,
    fields: BTreeMap<String, String>,
    time: i64,
}

/// Takes a text of a line up to one of the characters that end it, of which a backslash before them makes letters, as before a quotation mark
/// and a backslash within quotation marks.
fn take_text(line: &mut &str, ends: &str) -> String {
    let (mut text, mut characters) = (String::new(), line.char_indices().peekable());
    let mut is_quoted = false;
    while let Some((index, c)) = characters.next() {
        let next = characters.peek().map(|(_, next)| *next);
        let is_escape = |next: char| if is_quoted { "\"\\".contains(next) } else { ends.contains(next) };
        match c {
            '\\' if next.is_some_and(is_escape) => text.extend(characters.next().map(|(_, c)| c)),
            '"' if is_quoted || text.is_empty() && ends == FIELD_ENDS => is_quoted = !is_quoted,
            c if !is_quoted && ends.contains(c) => {
                *line = &line[index..];
                return text;
            }
            c => text.push(c),
        }
    }
    assert!(!is_quoted, "{line}");
    *line = "";
    text
}

const FIELD_ENDS: &str = ", ";

/// The point of a line, by the reference of the line protocol.
fn point(line: &str) -> Point {
    let rest = &mut &*line;
    let take_pair = |rest: &mut &str, value_ends| {
        *rest = &rest[1..];
        let key = take_text(rest, ",= ");
        *rest = rest.strip_prefix('=').unwrap_or_else(|| panic!("{line}"));
        let value = take_text(rest, value_ends);
        assert!(!key.is_empty() && !key.starts_with('_') && !value.is_empty(), "{line}");
        (key, value)
    };
    let measurement = take_text(rest, ", ");
    let tags: Vec<(String, String)> =
        std::iter::from_fn(|| rest.starts_with(',').then(|| take_pair(rest, ",= "))).collect();
    let mut fields = BTreeMap::new();
    while fields.is_empty() || rest.starts_with(',') {
        let (key, value) = take_pair(rest, FIELD_ENDS);
        assert_eq!(fields.insert(key, value), None, "{line}");
    }
    Point { measurement, tags, fields, time: rest.strip_prefix(' ').unwrap().parse().unwrap() }
}

/// The hostile run at a time: without one it has no points.
fn hostile_at_a_time() -> SyntheticReport {
    let mut hostile = synthetic::hostile();
    hostile.run.header.started = synthetic::full().run.header.started;
    hostile.run.labels.tags =
        [("a b", "c=d, e\\"), ("none", "")].map(|(name, value)| (name.into(), value.into())).into();
    hostile
}

#[test]
fn influx_snapshot() {
    insta::assert_snapshot!(first_40_lines(&render(&Influx, &synthetic::full())));
}

#[test]
fn influx_has_all_figures_as_distinct_points() {
    for sample in [synthetic::full(), synthetic::partial(), synthetic::empty(), hostile_at_a_time()] {
        let text = render(&Influx, &sample);
        let points: Vec<Point> = text.lines().map(point).collect();
        let headlines: Vec<f64> = points.iter().map(|point| point.fields["headline"].parse().unwrap()).collect();
        let figures = figures(&sample, |_| true);
        assert_eq!(headlines, figures.iter().map(|(_, value)| *value).collect::<Vec<f64>>());
        let series: BTreeSet<_> = points.iter().map(|point| (&point.measurement, &point.tags)).collect();
        assert_eq!(series.len(), points.len());
        let started: jiff::Timestamp = sample.run.header.started.parse().unwrap();
        for (point, (name, _)) in points.iter().zip(&figures) {
            let id = point.measurement.strip_prefix("kelvin.").unwrap();
            assert!(name.starts_with(id), "{point:?}");
            assert!(point.tags.is_sorted_by(|(key, _), (next, _)| key < next), "{point:?}");
            assert!(!point.tags.iter().any(|(key, _)| point.fields.contains_key(key)), "{point:?}");
            assert!(point.fields["rounds"].strip_suffix('i').unwrap().parse::<u32>().unwrap() > 0, "{point:?}");
            assert_eq!(
                (i128::from(point.time), &point.fields["run"]),
                (started.as_nanosecond(), &sample.run.header.id)
            );
        }
    }
}

#[test]
fn influx_tags_hold_axes_and_run_tags() {
    let text = render(&Influx, &hostile_at_a_time());
    let with_axis = |axis: &str| {
        let points = text.lines().map(point);
        points.flat_map(|point| point.tags).find(|(key, _)| key == axis).map(|(_, value)| value)
    };
    assert_eq!(with_axis("tag_a b").as_deref(), Some("c=d, e/"));
    assert_eq!(with_axis("tag_none"), None, "an empty value is no tag");
    assert!(with_axis("via").unwrap().starts_with('='));
}

#[test]
fn influx_refuses_run_without_time() {
    let hostile = synthetic::hostile();
    let mut out = Vec::new();
    let error = Influx.render(&hostile.report(), &mut out).unwrap_err();
    assert!(error.to_string().ends_with("a time that InfluxDB cannot hold") && out.is_empty(), "{error}");
}
