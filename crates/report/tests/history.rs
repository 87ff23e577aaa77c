//! A history in every format, and its published schema.

use kelvin_core::{
    Axis, AxisScale, Case, FactDifference, HISTORY_FORMAT, HeadlineSamples, History, HistoryChange, HistoryChangeKind,
    HistoryPoint, HistoryRun, MachineRanking, Metric, OtherModeRuns, PValue, SeriesHistory, VersionHistory,
};
use kelvin_report::history::{HistoryTerminal, MAX_SCREEN_LINES, schema, write_markdown, write_page};

const BYTES: Axis = Axis::new("bytes", "set", AxisScale::Bytes);
static LATENCY: Metric =
    Metric::duration("test.latency", "A load").headline(HeadlineSamples::CycleNormalised).with_axes([BYTES]);
static RATE: Metric = Metric::rate("test.rate", "Bytes read in a second");

const RUNS: usize = 20;

fn change(kind: HistoryChangeKind, run: usize, [before, after]: [f64; 2], facts: usize) -> HistoryChange {
    // What came from a file that somebody else wrote: its names mean something in every language.
    let fact = |number| FactDifference {
        group: "Kernel".into(),
        label: format!("Release {number}"),
        base: Some("6.18 | <script>alert(1)</script>".into()),
        other: Some("\u{1b}[31m*6.19*".into()),
    };
    HistoryChange {
        kind,
        run,
        run_interval: if kind == HistoryChangeKind::Step { [run - 1, run + 1] } else { [run - 8, run] },
        before,
        after,
        p_value: PValue { raw: 1e-9, adjusted: 1e-7 },
        runs: [run - 1, run],
        differences: (0..facts).map(fact).collect(),
    }
}

fn version(version: u32, runs: std::ops::Range<usize>, value: impl Fn(usize) -> f64) -> VersionHistory {
    let points = runs.map(|run| HistoryPoint { run, value: value(run) }).collect();
    VersionHistory { version, points, changes: Vec::new() }
}

fn series(metric: Metric, bytes: u64, versions: Vec<VersionHistory>) -> SeriesHistory {
    let case = if bytes == 0 { Case::new() } else { Case::new().with_number(BYTES, bytes) };
    SeriesHistory { metric, case, versions, ranking: None }
}

fn history() -> History {
    use HistoryChangeKind::{Drift, Step};
    let noise = |run: usize| 1.0 + 0.002 * (run * 7 % 5) as f64;
    let mut worse_version = version(1, 0..RUNS, |run| if run < 12 { 10.0 } else { 13.5 } * noise(run));
    worse_version.changes = vec![change(Step, 12, [10.0, 13.5], 3)];
    let mut better_version = version(2, 8..RUNS, |run| 2e9 * noise(run) * (1.0 + 0.1 * run as f64));
    better_version.changes = vec![change(Drift, 18, [2.8e9, 7.6e9], 0)];
    let mut ranked_series = series(LATENCY, 4096, vec![worse_version]);
    ranked_series.ranking = Some(MachineRanking { machines: 11, better: 0.3 });
    History {
        history_format: HISTORY_FORMAT,
        machine: "5f2c9e7a01d34b68".into(),
        cpu_model: Some("A <b>processor</b>".into()),
        mode: "default".into(),
        runs: (0..RUNS)
            .map(|run| HistoryRun {
                id: format!("run-{run}"),
                started: format!("2026-10-{:02}T10:00:00Z", run + 1),
                // The first runs did not keep it.
                frequency: (run > 2).then_some(1.0 - 0.01 * (run % 5) as f64),
            })
            .collect(),
        has_older: true,
        other_modes: vec![OtherModeRuns { mode: "quick".into(), runs: 3 }],
        false_discovery_rate: 0.05,
        series: vec![
            ranked_series,
            series(RATE, 0, vec![version(1, 0..8, |run| 5e9 * noise(run)), better_version]),
            series(LATENCY, 8192, vec![version(1, 0..RUNS, noise)]),
        ],
    }
}

fn render_to_string(render: impl Fn(&mut Vec<u8>) -> std::io::Result<()>) -> String {
    let mut out = Vec::new();
    render(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn terminal(history: &History, unicode: bool, show_all: bool) -> String {
    terminal_of_width(80, history, unicode, show_all)
}

fn terminal_of_width(width: usize, history: &History, unicode: bool, show_all: bool) -> String {
    render_to_string(|out| {
        HistoryTerminal { width, unicode, show_all, full_command: "kelvin history --all --full" }.render(history, out)
    })
}

#[test]
fn narrow_screen_has_names_above_figures() {
    for (width, show_all) in [(40, false), (40, true), (79, false), (20, true)] {
        let screen = terminal_of_width(width, &history(), true, show_all);
        let widest = screen.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= width.max(40), "{width}: {screen}");
        let words: String = screen.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(" latest 13.6 ns, of first +36 %, change +35 %"), "{screen}");
    }
}

#[test]
fn screen_lists_worst_series_first() {
    let screen = terminal(&history(), true, false);
    assert!(screen.lines().all(|line| line.chars().count() <= 80), "{screen}");
    insta::assert_snapshot!(screen);
    assert!(terminal(&history(), false, true).is_ascii());
}

#[test]
fn many_series_fit_one_screen() {
    let mut history = history();
    let copies = |_| history.series.iter().cloned();
    history.series = (0..200).flat_map(copies).collect();
    let screen = terminal(&history, true, false);
    assert!(screen.lines().count() <= MAX_SCREEN_LINES, "{}", screen.lines().count());
    assert_eq!(screen.matches(" more\n").count(), 3, "{screen}");
    let full_text = terminal(&history, true, true);
    assert_eq!(full_text.matches("test.rate").count(), 200);
    assert!(full_text.contains("Release 2"));
}

#[test]
fn history_markdown_snapshot() {
    insta::assert_snapshot!(render_to_string(|out| write_markdown(&history(), out)));
}

#[test]
fn page_plots_each_series_and_escapes_texts() {
    let page = render_to_string(|out| write_page(&history(), out));
    assert_eq!(page.matches("<svg class=\"drawing\"").count(), 3);
    // A break between versions, places of changes with levels on both sides.
    assert_eq!((page.matches("mark-line\" d").count(), page.matches("class=\"level\"").count()), (1, 2));
    assert!(!page.contains("<script") && !page.contains("<b>processor") && !page.contains('\u{1b}'));
    assert!(page.contains("prefers-color-scheme:dark") && page.contains("default-src &#39;none&#39;"));
    assert!(page.ends_with("</html>\n"));
}

#[test]
fn published_history_schema_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/history.schema.json");
    let schema = serde_json::to_string_pretty(&schema()).unwrap() + "\n";
    if std::env::var_os("KELVIN_UPDATE_SCHEMA").is_some() {
        std::fs::write(path, &schema).unwrap();
    }
    let published = std::fs::read_to_string(path).unwrap();
    assert!(published == schema, "docs/history.schema.json is stale: run with KELVIN_UPDATE_SCHEMA=1");
    let json = serde_json::to_value(history()).unwrap();
    assert_eq!(serde_json::from_value::<History>(json).unwrap(), history());
}
