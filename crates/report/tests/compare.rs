//! A comparison as Markdown and as JUnit's XML, and its published schema.

use kelvin_analysis::words::compare::{name, not_compared_name};
use kelvin_model::{
    Axis, AxisScale, COMPARE_FORMAT, Case, ChangeVerdict, ComparedFigure, ComparedRun, ComparedSide, Comparison,
    Estimate, FactDiffers, GateFinding, GateReason, Gated, InTurn, KnownFrom, KnownIssue, Metric, NotCompared,
    NotComparedBecause, NotKnownBecause,
};
use kelvin_report::compare::{Compared, Pulled, Tested, schema};

const BYTES: Axis = Axis::new("bytes", "set", AxisScale::Bytes);
static LATENCY: Metric = Metric::duration("test.latency", "A load").over([BYTES]);

fn side(name: &str, id: &str) -> ComparedSide {
    let run = ComparedRun {
        id: id.into(),
        started: "2026-11-24T10:00:00Z".into(),
        seconds: 150.0,
        is_partial: false,
        foreign: None,
    };
    ComparedSide { name: name.into(), runs: vec![run] }
}

fn figure(bytes: u64, [base, other]: [f64; 2], verdict: ChangeVerdict) -> ComparedFigure {
    let ratio = other / base;
    ComparedFigure {
        metric: LATENCY,
        case: Case::new().with(BYTES, bytes),
        base,
        other,
        rounds: [8, 8],
        sides: Default::default(),
        ratio: Estimate { value: ratio, low: 0.98 * ratio, high: 1.02 * ratio, is_range: false },
        between: KnownFrom::Runs(7),
        verdict,
        differs: None,
        same: None,
        least_seen: Some(0.04),
        times_to_decide: Some(3.0),
    }
}

/// What came from a file that somebody else wrote: its names mean something in every language.
fn comparison() -> Comparison {
    let undecided = ChangeVerdict::NotKnown(NotKnownBecause::Undecided);
    let fact = FactDiffers {
        group: "Kernel".into(),
        label: "Release".into(),
        base: Some("6.18 | <script>alert(1)</script>".into()),
        other: None,
    };
    let apart = |metric: &Metric, why| NotCompared { metric: metric.id, case: "bytes=\"1\"".into(), why };
    Comparison {
        compare_format: COMPARE_FORMAT,
        base: side("before.json", "a"),
        other: side("a\"<b>&|`*_\u{1b}[31m", "b"),
        threshold: 0.01,
        differences: vec![fact],
        clocks: None,
        middle: None,
        inflation: 1.0,
        figures: vec![
            figure(4096, [10.0, 12.7], ChangeVerdict::Worse),
            figure(8192, [10.0, 10.4], ChangeVerdict::Worse),
            figure(16_384, [12.0, 11.0], ChangeVerdict::Better),
            figure(32_768, [20.0, 20.3], undecided),
            figure(65_536, [30.0, 30.01], ChangeVerdict::Same),
        ],
        not_compared: vec![
            apart(&LATENCY, NotComparedBecause::MethodVersion([1, 2])),
            apart(&LATENCY, NotComparedBecause::OnlyBase("skipped: <needs> two CPUs".into())),
        ],
        in_turn: None,
        gated: None,
    }
}

/// What a gate of 5 % finds, with a known issue and an owner.
fn gated() -> Comparison {
    let mut comparison = comparison();
    let finding = |figure: &str, because, issue, owner: Option<&str>| GateFinding {
        metric: LATENCY.id,
        figure: figure.into(),
        because,
        issue,
        owner: owner.map(str::to_owned),
    };
    let names: Vec<String> = comparison.figures.iter().map(name).collect();
    let worse = |by| GateReason::Worse { by, allowed: 0.05 };
    let issue = KnownIssue { because: "a <known> issue".into(), until: Some("2026-12-31".into()), worse: Some(0.5) };
    comparison.gated = Some(Gated {
        missed: vec![
            finding(&names[0], worse(0.27), None, Some("@memory|team")),
            finding(&not_compared_name(&comparison.not_compared[0]), GateReason::NotCompared, None, None),
        ],
        known: vec![finding(&names[1], GateReason::Unseen { least: Some(0.3), wanted: 0.1 }, Some(issue), None)],
        unseen: 3,
        not_seen: vec!["nothing of it".into()],
    });
    comparison
}

fn written(render: impl Fn(&mut Vec<u8>) -> std::io::Result<()>) -> String {
    let mut out = Vec::new();
    render(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn a_pull_request_reads_first_what_is_worse() {
    let page = written(|out| Pulled.render(&gated(), out));
    insta::assert_snapshot!(page);
    let tags: Vec<&str> = page.match_indices('<').map(|(at, _)| &page[at..at + 4]).collect();
    assert!(tags.iter().all(|tag| ["<det", "<sum", "</su", "</de"].contains(tag)), "{tags:?}");
    assert!(!page.contains('\u{1b}'));
    assert!(!written(|out| Pulled.render(&comparison(), out)).contains("gate"));
    let passed = Comparison { gated: Some(Gated::default()), ..comparison() };
    assert!(written(|out| Pulled.render(&passed, out)).contains("No figure misses"));
}

#[test]
fn two_settings_that_were_measured_in_turn_say_so_and_count_blocks() {
    let setting = |value: &str| Some(value.to_owned());
    let fact = FactDiffers {
        group: "Setting".into(),
        label: "huge-pages".into(),
        base: setting("as found: madvise"),
        other: setting("never"),
    };
    let side = |name: &str| ComparedSide { name: name.into(), runs: Vec::new() };
    let in_blocks = |figure: ComparedFigure| ComparedFigure { between: KnownFrom::Blocks(12), ..figure };
    let comparison = Comparison {
        base: side("A: as found"),
        other: side("B: huge-pages=never"),
        differences: vec![fact],
        figures: comparison().figures.into_iter().map(in_blocks).collect(),
        not_compared: Vec::new(),
        in_turn: Some(InTurn { blocks: 12, seconds: 31.0 }),
        ..comparison()
    };
    let screen = written(|out| Compared { width: 80, full: true, more: "--full" }.render(&comparison, out));
    insta::assert_snapshot!(screen);
    let same = Comparison { differences: Vec::new(), ..comparison };
    for page in [
        written(|out| Compared { width: 80, full: true, more: "--full" }.render(&same, out)),
        written(|out| Pulled.render(&same, out)),
    ] {
        assert!(page.contains("Nothing differs: both are the same setting."), "{page}");
    }
}

#[test]
fn what_shows_tests_reads_which_figures_miss_the_gate() {
    let page = written(|out| Tested.render(&gated(), out));
    insta::assert_snapshot!(page);
    let count = |what: &str| page.matches(what).count();
    assert_eq!([count("<testcase "), count("<failure "), count("<skipped ")], [7, 3, 2]);
    let without = written(|out| Tested.render(&comparison(), out));
    assert!(without.contains("failures=\"0\"") && !without.contains("<failure"), "{without}");
}

/// The published schema is that of the types; `KELVIN_UPDATE_SCHEMA=1 cargo test -p kelvin-report` writes it anew.
#[test]
fn the_published_schema_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/compare.schema.json");
    let schema = serde_json::to_string_pretty(&schema()).unwrap() + "\n";
    if std::env::var_os("KELVIN_UPDATE_SCHEMA").is_some() {
        std::fs::write(path, &schema).unwrap();
    }
    let published = std::fs::read_to_string(path).unwrap();
    assert!(published == schema, "docs/compare.schema.json is stale: run with KELVIN_UPDATE_SCHEMA=1");
}
