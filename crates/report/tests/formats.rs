//! Terminal, Markdown, CSV and JSON of the made-up runs.

mod synthetic;

use kelvin_analysis::{Mode, ModeUnit, Outcome, RivalOutcome};
use kelvin_core::SkipReason;
use kelvin_core::text::{escape_invisible, is_visible};
use kelvin_report::{CsvSamples, CsvSummary, Html, Json, Markdown, Render, Report, Terminal, assets, json};
use synthetic::SyntheticReport;

fn render(format: &dyn Render, sample: &SyntheticReport) -> String {
    let mut out = Vec::new();
    format.render(&sample.report(), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn samples() -> [(&'static str, SyntheticReport); 4] {
    [
        ("full", synthetic::full()),
        ("partial", synthetic::partial()),
        ("empty", synthetic::empty()),
        ("hostile", synthetic::hostile()),
    ]
}

#[test]
fn bimodal_figure_shows_both_modes() {
    let mut sample = synthetic::full();
    let result = sample.analysis.results.iter_mut().find(|result| result.metric.id == *"os.syscall.null").unwrap();
    let Outcome::Measured(summary) = &mut result.outcome else { panic!("{:?}", result.outcome) };
    summary.mode_unit = ModeUnit::Rounds;
    let mode = |center, share, level: &str| Mode { center, share, level: Some(level.into()) };
    summary.modes = vec![mode(12.1, 0.67, "L3"), mode(118.0, 0.33, "DRAM")];
    let modes_text = "12.1 ns (67 %) or 118 ns (33 %)";
    let formats: [(&str, &dyn Render); 3] =
        [("terminal", &Terminal::default()), ("Markdown", &Markdown), ("HTML", &Html)];
    for (name, format) in formats {
        let text = render(format, &sample).replace('\u{a0}', " ");
        assert!(text.contains(modes_text), "{name}: {text}");
    }
    assert!(render(&Html, &sample).contains("67 % of the rounds, L3"), "the details name the level");
    let json = render(&Json::default(), &sample);
    assert!(json.contains(r#""mode_unit":"rounds""#) && json.contains(r#""level":"DRAM""#));
}

const TWO_CPUS: &str = "needs two CPUs; this process may use one";

/// The made-up run in which nothing of memory has a figure.
fn sample_without_memory(only_input: bool) -> SyntheticReport {
    let mut sample = synthetic::full();
    for result in sample.analysis.results.iter_mut().filter(|result| result.metric.area() == "mem") {
        result.outcome = Outcome::Skipped(SkipReason::new(TWO_CPUS));
        result.warnings.clear();
        result.only_input = only_input;
    }
    sample
}

/// A part of a text from one line on to the next that begins as given.
fn text_between<'t>(text: &'t str, from: &str, to: &str) -> &'t str {
    let (_, rest) = text.split_once(from).unwrap_or_else(|| panic!("no {from:?} in {text}"));
    rest.split_once(to).map_or(rest, |(part, _)| part)
}

#[test]
fn area_without_figures_is_one_line() {
    for only_input in [false, true] {
        let sample = sample_without_memory(only_input);
        let text = render(&Terminal::default(), &sample);
        let memory = text_between(&text, "\nMemory\n", "\n\n").split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(memory.starts_with(&format!("skipped {TWO_CPUS}: latency")), "{only_input}: {memory}");
        assert_eq!(memory.matches(TWO_CPUS).count(), 1, "{memory}");
        assert!(!memory.contains("measured"), "{memory}");

        let text = render(&Markdown, &sample);
        let memory = text_between(&text, "\n## Memory\n\n", "\n## ");
        assert!(memory.starts_with("- `mem.latency") && !memory.contains('|'), "{memory}");
        assert_eq!(memory.matches(TWO_CPUS).count(), 1, "{memory}");

        let page = render(&Html, &sample);
        let memory = text_between(&page, "<section id=\"area-mem\"", "</section>");
        let visible_part = text_between(memory, ">", "<details");
        assert!(!visible_part.contains("<table") && !visible_part.contains("Show all"), "{visible_part}");
        assert!(text_between(memory, "<summary>", "</summary>").contains(TWO_CPUS), "{memory}");
    }
}

#[test]
fn rivals_without_figures_have_no_table() {
    let mut sample = synthetic::full();
    for rival in &mut sample.analysis.rivals {
        rival.outcome = RivalOutcome::Missing(Box::new(Outcome::Skipped(SkipReason::new("needs fio"))));
    }
    let text = render(&Terminal::default(), &sample);
    let rivals = text_between(&text, "Other programs next to kelvin\n", "\n\n");
    assert!(rivals.starts_with("skipped") && rivals.contains("needs fio"), "{rivals}");
    let page = render(&Html, &sample);
    let rivals = text_between(&page, "<section id=\"rivals\"", "</section>");
    assert!(!rivals.contains("<table") && rivals.matches("needs fio").count() == 1, "{rivals}");
    assert!(!text_between(&render(&Markdown, &sample), "## Other programs next to kelvin", "\n## ").contains('|'));
}

#[test]
fn terminal_of_80_columns() {
    insta::assert_snapshot!(render(&Terminal { width: 80, color: false }, &synthetic::full()));
}

#[test]
fn terminal_of_120_columns() {
    insta::assert_snapshot!(render(&Terminal { width: 120, color: false }, &synthetic::full()));
}

#[test]
fn terminal_of_partial_run() {
    insta::assert_snapshot!(render(&Terminal::default(), &synthetic::partial()));
}

#[test]
fn terminal_of_empty_run() {
    insta::assert_snapshot!(render(&Terminal::default(), &synthetic::empty()));
}

#[test]
fn markdown_snapshot() {
    insta::assert_snapshot!(render(&Markdown, &synthetic::full()));
}

#[test]
fn csv_summaries_snapshot() {
    insta::assert_snapshot!(render(&CsvSummary, &synthetic::full()).replace("\r\n", "\n"));
}

#[test]
fn csv_samples_snapshot() {
    let csv = render(&CsvSamples, &synthetic::full()).replace("\r\n", "\n");
    let lines: Vec<&str> = csv.lines().collect();
    let is_null_line = |line: &&&str| line.starts_with("os.syscall.null,call=getppid,");
    let null_lines: Vec<&&str> = lines.iter().filter(is_null_line).collect();
    insta::assert_snapshot!(lines[0]);
    insta::assert_debug_snapshot!(null_lines);
}

/// No line is wider than the terminal unless a single word is.
#[test]
fn terminal_counts_skipped_cases_by_reason() {
    let mut sample = synthetic::full();
    let template = sample.analysis.results[0].clone();
    let mut skip = |id: &str, ways: &[&'static str]| {
        for way in ways {
            let mut result = template.clone();
            result.metric.id = kelvin_core::Name::intern(id);
            result.case = kelvin_core::Case::new().with_word(kelvin_core::AxisWord::from_names("way", way));
            result.outcome = Outcome::Skipped(kelvin_core::SkipReason::new("this is a test"));
            sample.analysis.results.push(result);
        }
    };
    let ways = ["one", "two", "three", "four"];
    skip("cpu.many", &ways);
    skip("cpu.more", &ways);
    skip("cpu.other", &ways[1..]);
    skip("cpu.few", &ways[..2]);
    skip("cpu.both", &ways[..2]);
    skip("cpu.one", &ways[..1]);
    let terminal = render(&Terminal { width: 200, color: false }, &sample);
    let expected = "many, more (4 cases each), other (3 cases), few, both (each way=one; way=two), one (way=one)";
    assert!(terminal.contains(&format!("skipped this is a test: {expected}")), "{terminal}");
}

#[test]
fn terminal_lines_fit_width() {
    for (name, sample) in samples() {
        for width in [80, 100, 120, 200] {
            for line in render(&Terminal { width, color: false }, &sample).lines() {
                let columns = line.chars().count();
                let words = line.split_whitespace().map(|word| word.chars().count());
                let longest = words.max().unwrap_or(0);
                assert!(columns <= width || longest > width / 3, "{name} at {width}: {columns} columns: {line}");
            }
        }
    }
}

/// Escape sequences come only from colours that were asked for.
#[test]
fn terminal_has_color_only_on_request() {
    for (name, sample) in samples() {
        let plain = render(&Terminal { width: 80, color: false }, &sample);
        assert!(!plain.chars().any(|c| c.is_control() && c != '\n'), "{name}");
        let colored = render(&Terminal { width: 80, color: true }, &sample);
        assert!(colored.contains("\u{1b}["), "{name}");
        let uncolored = strip_colors(&colored);
        assert_eq!(uncolored, plain, "{name}: colours change nothing but colours");
    }
}

/// Removes `ESC [ ... m`.
fn strip_colors(text: &str) -> String {
    let mut parts = text.split("\u{1b}[");
    let mut plain = parts.next().unwrap_or("").to_owned();
    for part in parts {
        plain.push_str(part.split_once('m').expect("a colour ends in m").1);
    }
    plain
}

/// A hostile text can end no table cell and open no element.
#[test]
fn markdown_tables_are_rectangular() {
    let text = render(&Markdown, &synthetic::hostile());
    // Inside code, which the two back-ticks of the hostile text's fence enclose, an angle bracket is a letter.
    let outside_code = text.split("``").step_by(2);
    assert!(outside_code.clone().count() > 2);
    assert!(outside_code.clone().all(|part| !part.contains('<')));
    // Every row of a table has as many cells as the table's first.
    let cells = |line: &str| line.starts_with('|').then(|| line.replace("\\|", "").matches('|').count());
    let (mut rows, mut header) = (0, None);
    for line in text.lines() {
        let cell_count = cells(line);
        header = cell_count.and(header.or(cell_count));
        assert_eq!(cell_count, header, "{line}");
        rows += usize::from(cell_count.is_some());
    }
    assert!(rows > 20);
}

/// Every row has as many fields as the header, with any content.
#[test]
fn csv_rows_are_complete() {
    for format in [&CsvSummary as &dyn Render, &CsvSamples] {
        for (name, sample) in samples() {
            let csv = render(format, &sample);
            let mut widths: Vec<usize> = records(&csv).iter().map(Vec::len).collect();
            widths.dedup();
            assert_eq!(widths.len(), 1, "{name}: rows of {widths:?} fields");
        }
    }
}

fn records(csv: &str) -> Vec<Vec<String>> {
    let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(csv.as_bytes());
    reader.deserialize().collect::<Result<_, _>>().unwrap()
}

/// Numbers in the data equal those of the analysis to the last bit, and the hostile text is whole, its controls spelled out.
#[test]
fn csv_round_trips() {
    let sample = synthetic::hostile();
    let csv = render(&CsvSummary, &sample);
    let records = records(&csv);
    let column = |name: &str| records[0].iter().position(|field| field == name).unwrap();
    assert_eq!(records.len(), sample.analysis.results.len() + 1);
    for (record, result) in records[1..].iter().zip(&sample.analysis.results) {
        let headline = result.outcome.summary().map(|summary| summary.headline);
        assert_eq!(record[column("headline")].parse::<f64>().ok(), headline);
        assert_eq!(record[column("metric")], *result.metric.id);
        assert_eq!(record[column("warnings")], escape_invisible(synthetic::HOSTILE));
    }
}

#[test]
fn json_holds_run_and_analysis() {
    for (pretty, has_samples) in [(false, false), (false, true), (true, true)] {
        for (name, sample) in samples() {
            let text = render(&Json { pretty, samples: has_samples }, &sample);
            let value: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!(value["report_format"], json::FORMAT);
            let run: kelvin_core::Run = serde_json::from_value(value["run"].clone()).unwrap();
            let analysis: kelvin_analysis::Analysis = serde_json::from_value(value["analysis"].clone()).unwrap();
            assert_eq!(value["samples"], has_samples);
            assert_eq!(run, if has_samples { sample.run.clone() } else { sample.run.without_samples() }, "{name}");
            assert_eq!(analysis, sample.analysis, "{name}");
        }
    }
}

/// The published schema is that of the types; `KELVIN_UPDATE_SCHEMA=1 cargo test -p kelvin-report` writes it anew.
#[test]
fn published_report_schema_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/report.schema.json");
    let schema = serde_json::to_string_pretty(&json::schema()).unwrap() + "\n";
    if std::env::var_os("KELVIN_UPDATE_SCHEMA").is_some() {
        std::fs::create_dir_all(std::path::Path::new(path).parent().unwrap()).unwrap();
        std::fs::write(path, &schema).unwrap();
    }
    let published = std::fs::read_to_string(path).unwrap_or_default();
    assert!(published == schema, "docs/report.schema.json is stale: run with KELVIN_UPDATE_SCHEMA=1");
}

/// The name of a file, and of an element of the page, is made of a metric's: it names nothing else for any id.
#[test]
fn asset_names_are_ascii() {
    for (name, sample) in samples() {
        for file in assets::report_assets(&sample.report()).unwrap() {
            let is_safe = |c: char| c.is_ascii_alphanumeric() || ".-_=".contains(c);
            assert!(file.name.chars().all(is_safe) && !file.name.starts_with('.'), "{name}: {}", file.name);
            let is_drawing = file.name.ends_with(".svg");
            assert!(!is_drawing || file.contents.matches("<svg").count() == 1, "{name}: {}", file.name);
            assert!(file.contents.chars().all(|c| "\r\n".contains(c) || is_visible(c)), "{name}: {}", file.name);
        }
    }
}

#[test]
fn every_figure_is_an_svg_and_a_csv() {
    let sample = synthetic::full();
    let report: Report<'_> = sample.report();
    let files = assets::report_assets(&report).unwrap();
    let names: Vec<&str> = files.iter().map(|file| file.name.as_str()).collect();
    insta::assert_debug_snapshot!(names);
    for file in &files {
        if file.name.ends_with(".svg") {
            assert!(file.contents.starts_with("<svg ") && file.contents.trim_end().ends_with("</svg>"));
            assert!(!file.contents.contains("NaN") && !file.contents.contains("inf"), "{}", file.name);
        } else {
            assert!(records(&file.contents).len() > 3, "{}", file.name);
        }
    }
}
