//! A comparison as Markdown and as JUnit's XML, and its published schema.

use kelvin_model::{
    Axis, AxisScale, COMPARE_FORMAT, Case, ChangeVerdict, ComparedFigure, ComparedRun, ComparedSide, Comparison,
    Estimate, FactDiffers, InTurn, KnownFrom, Metric, NotCompared, NotComparedBecause, NotKnownBecause,
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
    }
}

fn written(render: impl Fn(&mut Vec<u8>) -> std::io::Result<()>) -> String {
    let mut out = Vec::new();
    render(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn a_pull_request_reads_first_what_is_worse() {
    let comparison = comparison();
    let missed = ["test.latency set=4 KiB is 27 % worse".to_owned()];
    let page = written(|out| Pulled { missed: Some(&missed) }.render(&comparison, out));
    insta::assert_snapshot!(page);
    let tags: Vec<&str> = page.match_indices('<').map(|(at, _)| &page[at..at + 4]).collect();
    assert!(tags.iter().all(|tag| ["<det", "<sum", "</su", "</de"].contains(tag)), "{tags:?}");
    assert!(!page.contains('\u{1b}'));
    let without = written(|out| Pulled { missed: None }.render(&comparison, out));
    assert!(
        !without.contains("gate")
            && written(|out| Pulled { missed: Some(&[]) }.render(&comparison, out)).contains("No figure misses")
    );
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
        written(|out| Pulled { missed: None }.render(&same, out)),
    ] {
        assert!(page.contains("Nothing differs: both are the same setting."), "{page}");
    }
}

#[test]
fn what_shows_tests_reads_which_figures_miss_the_gate() {
    let comparison = comparison();
    let is_missed = |figure: &ComparedFigure| figure.verdict == ChangeVerdict::Worse && figure.worse_by() >= 0.05;
    let page = written(|out| Tested { is_missed: &is_missed }.render(&comparison, out));
    insta::assert_snapshot!(page);
    let count = |what: &str| page.matches(what).count();
    assert_eq!([count("<testcase "), count("<failure "), count("<skipped ")], [7, 1, 3]);
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
