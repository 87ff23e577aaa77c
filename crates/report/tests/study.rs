//! The screen, the full report and the page of a study: its answer and its figures first, what it was measured with after them.

mod synthetic;

use kelvin_analysis::testing::{self, add_scalars};
use kelvin_analysis::{Analysis, analyse};
use kelvin_core::{
    Axis, AxisScale, AxisWord, Case, Hazard, HeadlineSamples, Metric, Name, RoundOutcome, Run, Severity,
};
use kelvin_report::figures::{Drawing, figures};
use kelvin_report::{FirstScreen, Html, Markdown, ProbeDocs, Render, Report, Terminal, svg};

const ENGINES: Metric = Metric::duration("file.engines", "One request for the next bytes of a cached file")
    .headline(HeadlineSamples::AsFound)
    .with_axes([Axis::new("engine", "engine", AxisScale::Category), Axis::new("block", "block", AxisScale::Bytes)]);
const CONTENTION: Metric = Metric::duration("file.contention", "One read past the page cache beside other threads")
    .headline(HeadlineSamples::AsFound)
    .with_axes([Axis::new("threads", "threads", AxisScale::Linear)]);
const THREADS: Metric =
    Metric::rate("file.threads", "Bytes that several threads read").headline(HeadlineSamples::AsFound).with_axes([
        Axis::new("threads", "threads", AxisScale::Linear),
        Axis::new("cache", "page cache", AxisScale::Category),
        Axis::new("block", "block", AxisScale::Bytes),
    ]);
const INPUT: Metric = Metric::duration("os.syscall.null", "A null system call").headline(HeadlineSamples::AsFound);

fn rounds(value: f64) -> [f64; 6] {
    [0.99, 1.01, 1.0, 1.002, 0.995, 1.005].map(|share| share * value)
}

fn study(metrics: &[Metric]) -> Run {
    let mut run = testing::empty_run(metrics);
    run.header.settings.mode = Name::new("study");
    run.header.hazards.push(Hazard {
        id: "smt".into(),
        severity: Severity::Warning,
        summary: "a sibling was busy".into(),
        effect: "halves throughput".into(),
        affects: Vec::new(),
        remedy: None,
        remedy_is_command: false,
        source: "a test".into(),
    });
    run
}

/// Reads by 1 to 16 threads, and an input of their prediction.
fn contention() -> Run {
    let mut run = study(&[CONTENTION, INPUT]);
    for (threads, time) in [(1, 52_600.0), (2, 61_000.0), (4, 88_100.0), (8, 121_000.0), (16, 211_000.0)] {
        add_scalars(&mut run, &CONTENTION, Case::new().with_number("threads", threads), &rounds(time));
    }
    add_scalars(&mut run, &INPUT, Case::new(), &rounds(80.0));
    run.measurements.last_mut().unwrap().planned.only_input = true;
    run
}

fn engines(count: usize) -> Run {
    let mut run = study(&[ENGINES]);
    for engine in 0..count {
        let name = if engine == 0 { "read".to_owned() } else { format!("engine{engine}") };
        for block in [1, 64, 4096, 16_384, 65_536, 262_144, 1_048_576, 4_194_304_u64] {
            let value = 100.0 - 7.0 * engine as f64 + block as f64 * (0.1 + 0.01 * engine as f64);
            let point = AxisWord::from_names("engine", Name::intern(&name).as_str());
            add_scalars(&mut run, &ENGINES, Case::new().with_word(point).with_number("block", block), &rounds(value));
        }
    }
    run
}

fn threads() -> Run {
    let mut run = study(&[THREADS]);
    for cache in ["cached", "uncached", "direct"] {
        for block in [4096, 16_384, 65_536, 262_144, 1_048_576_u64] {
            for threads in [1, 2, 4, 8] {
                let case = Case::new()
                    .with_word(AxisWord::from_names("cache", cache))
                    .with_number("block", block)
                    .with_number("threads", threads);
                add_scalars(&mut run, &THREADS, case, &rounds(1e9 * threads as f64 + block as f64));
            }
        }
    }
    run
}

fn render_run(render: &dyn Render, run: &Run) -> String {
    render_analysis(render, run, &analyse(run))
}

fn render_analysis(render: &dyn Render, run: &Run, analysis: &Analysis) -> String {
    let probes: Vec<ProbeDocs> = run.header.metrics.iter().map(|metric| probe(metric.id)).collect();
    let mut out = Vec::new();
    render.render(&Report { run, analysis, references: &[], probes: &probes }, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn probe(id: Name) -> ProbeDocs {
    ProbeDocs {
        id,
        summary: format!("What {id} is about."),
        method: String::new(),
        prediction: String::new(),
        pitfalls: Vec::new(),
        sources: Vec::new(),
        must_not_be_used_for: None,
    }
}

fn screen() -> FirstScreen<'static> {
    FirstScreen { terminal: Terminal::default(), unicode: true, tables: false, further_outputs: &[] }
}

fn full_terminal() -> Terminal {
    Terminal::default()
}

#[test]
fn one_line_study_is_table_with_plot() {
    let text = render_run(&screen(), &contention());
    assert!(text.lines().all(|line| line.chars().count() <= 80) && text.lines().count() <= 60, "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn study_screen_omits_hazards_inputs_and_machine() {
    let run = contention();
    let text = render_run(&screen(), &run);
    for absent in ["sibling", "null", "Hazards", "Verdict", "Linux"] {
        assert!(!text.contains(absent), "{absent}:\n{text}");
    }
    let mut serious_run = run;
    serious_run.header.hazards[0].severity = Severity::Serious;
    assert!(self::render_run(&screen(), &serious_run).contains("serious  a sibling was busy"));
}

#[test]
fn failure_is_shown_once_with_reason() {
    let mut run = contention();
    for measurement in run.measurements.iter_mut().filter(|measurement| !measurement.planned.only_input) {
        measurement.rounds = vec![testing::round_with_outcome(0, RoundOutcome::Failed("the disk went away".into()))];
    }
    let text = render_run(&screen(), &run);
    assert_eq!(text.matches("failed the disk went away: file.contention (5 cases)").count(), 1, "{text}");
}

#[test]
fn full_study_has_points_before_hazards() {
    let text = render_run(&full_terminal(), &contention());
    for point in ["    1 ", "    2 ", "    4 ", "    8 ", "    16 "] {
        assert!(text.lines().any(|line| line.starts_with(point)), "{point:?} is missing:\n{text}");
    }
    let position = |excerpt: &str| text.find(excerpt).unwrap_or_else(|| panic!("{excerpt} is missing:\n{text}"));
    assert!(
        position("contention over threads") < position("Hazards") && position("Hazards") < position("syscall.null"),
        "{text}"
    );
}

#[test]
fn engines_are_matrix_with_eight_sentences() {
    let run = engines(13);
    let text = render_run(&screen(), &run);
    assert!(text.lines().all(|line| line.chars().count() <= 80) && text.lines().count() <= 60, "{text}");
    insta::assert_snapshot!(text);
    let page = self::render_run(&Html, &run);
    let position = |excerpt: &str| page.find(excerpt).unwrap_or_else(|| panic!("{excerpt} is missing"));
    assert!(position("The fastest engine is") < position("id=\"study-file.engines\""));
    assert!(position("id=\"study-file.engines\"") < position("id=\"hazards\""));
    let markdown = self::render_run(&Markdown, &run);
    let position =
        |excerpt: &str| markdown.find(excerpt).unwrap_or_else(|| panic!("{excerpt} is missing:\n{markdown}"));
    assert!(markdown.starts_with("# Study"));
    assert!(position("The fastest engine is") < position("| read |") && position("| read |") < position("## Hazards"));
    assert!(position("<details>") < position("## Hazards"), "eight conclusions are shown, the others folded");
}

#[test]
fn study_page_begins_with_answer_and_figure() {
    let page = render_run(&Html, &contention());
    let position = |excerpt: &str| page.find(excerpt).unwrap_or_else(|| panic!("{excerpt} is missing"));
    assert!(page.contains("<h1 id=\"studies-title\">Study file.contention: What file.contention is about</h1>"));
    assert!(position("id=\"figure-file.contention\"") < position("id=\"hazards\""));
    assert!(position("id=\"hazards\"") < position("id=\"area-os\""), "inputs come last");
    assert_eq!(page.matches("<h1").count(), 1);
}

#[test]
fn table_without_plot_has_all_points() {
    let text = render_run(&screen(), &threads());
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    insta::assert_snapshot!(text);
}

/// A line in which half of the points are twice as slow as predicted.
fn with_predictions() -> Run {
    let mut run = contention();
    for (threads, low, high) in
        [(1, 50_000.0, 60_000.0), (2, 20_000.0, 30_000.0), (4, 80_000.0, 90_000.0), (16, 90e3, 99e3)]
    {
        let prediction = kelvin_core::Prediction {
            value: (low + high) / 2.0,
            low,
            high,
            basis: kelvin_core::PredictionBasis::Derived,
            formula: "a test".into(),
            inputs: Vec::new(),
            derivation: "a test".into(),
            sources: Vec::new(),
            calibration: None,
            formula_name: "a test".into(),
            ceiling: None,
        };
        run.predictions.push(kelvin_core::PredictionRecord {
            metric: CONTENTION.id,
            case: Case::new().with_number("threads", threads),
            prediction: Some(prediction),
            missing_reason: None,
        });
    }
    run
}

/// Contention as the study measures it: 16 numbers of threads, more lines than fit beside each other.
fn wide_contention() -> Run {
    let sharing = Axis::new("files", "files", AxisScale::Category);
    let sizes = [Axis::new("block", "block", AxisScale::Bytes), Axis::new("bytes", "bytes", AxisScale::Bytes)];
    let metric =
        CONTENTION.with_axes([Axis::new("threads", "threads", AxisScale::Linear), sharing, sizes[0], sizes[1]]);
    let mut run = study(std::slice::from_ref(&metric));
    for (files, block, bytes) in
        [("own", 12, 26), ("shared", 12, 26), ("own", 20, 24), ("own", 20, 26), ("shared", 20, 26)]
    {
        for threads in 1..=16_u64 {
            let case = Case::new().with_number("threads", threads).with_word(AxisWord::from_names("files", files));
            let case = case.with_number("block", 1_u64 << block).with_number("bytes", 1_u64 << bytes);
            add_scalars(&mut run, &metric, case, &rounds((threads * block) as f64 * 1e4));
        }
    }
    run
}

#[test]
fn points_in_several_parts_fit_the_screen_and_are_counted() {
    let run = wide_contention();
    let text = render_run(&screen(), &run);
    assert!(text.lines().count() <= 60, "{} lines:\n{text}", text.lines().count());
    assert!(text.contains(" of 16 points; all in the full report"), "{text}");
    assert_eq!(text.lines().filter(|line| line.starts_with("  16 ")).count(), 3, "{text}");
}

#[test]
fn mispredicted_points_are_named() {
    let text = render_run(&screen(), &with_predictions());
    assert!(text.contains("of 4 points 2 slower than predicted (2, 16)"), "{text}");
}

#[test]
fn study_conclusions_fit_25_lines() {
    let mut run = threads();
    run.header.hazards = contention().header.hazards;
    let mut analysis = analyse(&run);
    // As long as conclusions of streams are.
    for study in &mut analysis.studies {
        for conclusion in &mut study.conclusions {
            conclusion.text =
                format!("{}: {}", conclusion.text, "a figure and what it was held against ".repeat(6).trim_end());
        }
    }
    let text = render_analysis(&screen(), &run, &analysis);
    let answer_lines = text.lines().take_while(|line| !line.starts_with("Bytes that several")).collect::<Vec<_>>();
    assert!(answer_lines.len() <= 25, "{} lines before the table:\n{text}", answer_lines.len());
    assert!(answer_lines.iter().any(|line| line.ends_with("more conclusions in the full report")), "{text}");
    let full_report = render_analysis(&full_terminal(), &run, &analysis);
    let first = full_report
        .lines()
        .position(|line| ["true ", "false ", "not known "].iter().any(|word| line.starts_with(word)));
    assert!(first.is_some_and(|first| first < 25), "{full_report}");
}

#[test]
fn ascii_study_keeps_columns() {
    let ascii = render_run(&FirstScreen { unicode: false, ..screen() }, &contention());
    assert!(ascii.is_ascii() && !ascii.contains('?'), "{ascii}");
}

#[test]
fn lines_beyond_palette_are_split() {
    let run = threads();
    let analysis = analyse(&run);
    let figures = figures(&Report { run: &run, analysis: &analysis, references: &[], probes: &[] });
    let thread_figures: Vec<_> = figures.iter().filter(|figure| figure.id.starts_with("file.threads-cache=")).collect();
    let plots = thread_figures.iter().filter_map(|figure| match &figure.drawing {
        Drawing::Plot(plot) => {
            Some(plot.series.iter().map(|series| series.style).collect::<std::collections::BTreeSet<_>>())
        }
        Drawing::Heat(_) => None,
    });
    let styles: Vec<usize> = plots.map(|styles| styles.len()).collect();
    assert_eq!(styles, [5, 5, 5], "each line of a figure has a colour of its own");
}

#[test]
fn long_title_in_file_is_wrapped() {
    let run = contention();
    let analysis = analyse(&run);
    let report = Report { run: &run, analysis: &analysis, references: &[], probes: &[] };
    let mut figure = figures(&report).into_iter().find(|figure| figure.id == "file.contention").unwrap();
    figure.title = "a title that is longer than a figure is wide ".repeat(5);
    let drawing = svg::standalone(&figure);
    let lines: Vec<&str> =
        drawing.split("class=\"title\"").skip(1).map(|text| text.split_once('>').unwrap().1).collect();
    let lines: Vec<&str> = lines.into_iter().map(|text| text.split_once('<').unwrap().0).collect();
    assert!(lines.len() >= 3 && lines.iter().all(|line| line.chars().count() <= 86), "{lines:#?}");
    assert!(lines.join(" ").contains(figure.title.trim()));
}
