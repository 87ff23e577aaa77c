//! A comparison as Markdown, as JUnit's XML and as a page, and its published schema.

#[path = "synthetic/comparison.rs"]
mod comparison;

use comparison::{BYTES, LATENCY, comparison, gated_comparison, large_comparison};
use kelvin_core::{
    Case, CauseFinding, CauseOfChange, ChangeVerdict, ComparedFigure, ComparedSide, Comparison, Estimate,
    FactDifference, GateResult, Interleaving, MetricCase, Name, NotComparedReason, PValue, SpreadSource,
};
use kelvin_report::compare::{CompareTerminal, MAX_SCREEN_LINES, schema, write_junit, write_markdown, write_page};
use kelvin_report::text::display_width;

fn render_to_string(render: impl Fn(&mut Vec<u8>) -> std::io::Result<()>) -> String {
    let mut out = Vec::new();
    render(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn markdown_lists_worse_figures_first() {
    let page = render_to_string(|out| write_markdown(&gated_comparison(), out));
    insta::assert_snapshot!(page);
    let tags: Vec<&str> = page.match_indices('<').map(|(index, _)| &page[index..index + 4]).collect();
    assert!(tags.iter().all(|tag| ["<det", "<sum", "</su", "</de"].contains(tag)), "{tags:?}");
    assert!(!page.contains('\u{1b}'));
    assert!(!render_to_string(|out| write_markdown(&comparison(), out)).contains("gate"));
    let passing = Comparison { gate: Some(GateResult::default()), ..comparison() };
    assert!(render_to_string(|out| write_markdown(&passing, out)).contains("No figure misses"));
}

/// A cause of the first figure, whose control both sides hold, and one of the second, which the base lacks.
fn with_causes() -> Comparison {
    let mut comparison = comparison();
    let cause = |finding| CauseOfChange {
        id: Name::new("a_cause"),
        summary: Name::new("translation of <addresses>"),
        control: MetricCase { metric: LATENCY.id, case: Case::new().with_number(BYTES, 1) },
        times: 1.0,
        finding,
    };
    let share = Estimate { value: 0.903, low: 0.812, high: 0.987, is_range: false };
    let p_value = PValue { raw: 1e-6, adjusted: 1e-5 };
    comparison.figures[0].cause = Some(cause(CauseFinding::Explains { cost: [2.0, 4.4], share, p_value }));
    let missing = NotComparedReason::OnlyOther("skipped: needs huge pages".into());
    comparison.figures[1].cause = Some(cause(CauseFinding::NoControl(missing.clone())));
    comparison.figures[3].cause = Some(cause(CauseFinding::Explains { cost: [2.0, 2.4], share, p_value }));
    // Of what is the same there is no cause to look for.
    comparison.figures[4].cause = Some(cause(CauseFinding::NoControl(missing)));
    comparison
}

#[test]
fn cause_is_beside_its_figure() {
    let terminal = |show_all| {
        render_to_string(|out| {
            CompareTerminal { width: 80, show_all, full_command: "--full" }.render(&with_causes(), out)
        })
    };
    insta::assert_snapshot!(terminal(true));
    let screen = terminal(false);
    assert!(
        screen.contains("explains 0.90 of it (95 %: 0.81 to 0.99)") && !screen.contains("is not known:"),
        "{screen}"
    );
    // Of what is not known to differ only in full.
    assert_eq!([&screen, &terminal(true)].map(|page| page.matches("explains 0.90").count()), [1, 2]);
    assert_eq!(terminal(true).matches("is not known:").count(), 1);
    let html = render_to_string(|out| write_page(&with_causes(), out));
    assert!(html.contains("translation of &lt;addresses&gt; explains 0.90 of it"), "{html}");
    let page = render_to_string(|out| write_markdown(&with_causes(), out));
    assert!(
        page.contains("| what explains it |") && page.contains("translation of &lt;addresses&gt; explains 0.90"),
        "{page}"
    );
    assert!(!render_to_string(|out| write_markdown(&comparison(), out)).contains("what explains it"));
    let tests = render_to_string(|out| write_junit(&with_causes(), out));
    assert!(
        tests.contains("ratio 1.27, 95 % 1.24 to 1.30; translation of &lt;addresses&gt; explains 0.90 of it"),
        "{tests}"
    );
}

#[test]
fn screen_omits_empty_tables() {
    let mut undecided = comparison();
    let is_undecided = |figure: &ComparedFigure| matches!(figure.verdict, ChangeVerdict::NotKnown(_));
    undecided.figures.retain(is_undecided);
    let screen = |comparison: &Comparison, show_all| {
        render_to_string(|out| CompareTerminal { width: 80, show_all, full_command: "--full" }.render(comparison, out))
    };
    assert!(screen(&comparison(), false).contains("Not known, most likely"), "{}", screen(&comparison(), false));
    let text = screen(&undecided, false);
    assert!(text.contains("Nothing is known to differ") && !text.contains("Not known, most likely"), "{text}");
    assert!(screen(&undecided, true).contains("Not known, most likely"));
    undecided.figures[0].detectable_change = Some(242_008.0);
    assert!(screen(&undecided, true).contains("seen from more than 100 times"), "{}", screen(&undecided, true));
}

#[test]
fn many_causes_fit_one_screen() {
    let mut comparison = with_causes();
    comparison.figures = vec![comparison.figures[0].clone(); 50];
    let screen = render_to_string(|out| {
        CompareTerminal { width: 80, show_all: false, full_command: "--full" }.render(&comparison, out)
    });
    assert!(screen.lines().count() <= MAX_SCREEN_LINES && screen.contains("more"), "{screen}");
    assert!(screen.lines().all(|line| display_width(line) <= 80), "{screen}");
}

#[test]
fn interleaved_comparison_counts_blocks() {
    let setting = |value: &str| Some(value.to_owned());
    let fact = FactDifference {
        group: "Setting".into(),
        label: "huge-pages".into(),
        base: setting("as found: madvise"),
        other: setting("never"),
    };
    let side = |name: &str| ComparedSide { name: name.into(), runs: Vec::new() };
    let block_figure = |figure: ComparedFigure| ComparedFigure { spread_source: SpreadSource::Blocks(12), ..figure };
    let comparison = Comparison {
        base: side("A: as found"),
        other: side("B: huge-pages=never"),
        differences: vec![fact],
        figures: comparison().figures.into_iter().map(block_figure).collect(),
        not_compared: Vec::new(),
        interleaving: Some(Interleaving { blocks: 12, seconds: 31.0 }),
        ..comparison()
    };
    let screen = render_to_string(|out| {
        CompareTerminal { width: 80, show_all: true, full_command: "--full" }.render(&comparison, out)
    });
    insta::assert_snapshot!(screen);
    // What as many blocks as there are were thought to decide takes one more, and never no time.
    let figure_at_limit =
        |figure: ComparedFigure| ComparedFigure { times_to_decide: figure.times_to_decide.map(|_| 1.0), ..figure };
    let figures = comparison.figures.iter().cloned().map(figure_at_limit).collect();
    let comparison_at_limit = Comparison { figures, ..comparison.clone() };
    let page = render_to_string(|out| write_markdown(&comparison_at_limit, out));
    assert!(page.contains("takes about 13 blocks, 2.58 s more"), "{page}");
    let identical = Comparison { differences: Vec::new(), ..comparison };
    for page in [
        render_to_string(|out| {
            CompareTerminal { width: 80, show_all: true, full_command: "--full" }.render(&identical, out)
        }),
        render_to_string(|out| write_markdown(&identical, out)),
    ] {
        assert!(page.contains("Nothing differs: both are the same setting."), "{page}");
    }
}

#[test]
fn junit_fails_figures_missing_the_gate() {
    let page = render_to_string(|out| write_junit(&gated_comparison(), out));
    insta::assert_snapshot!(page);
    let count = |tag: &str| page.matches(tag).count();
    assert_eq!([count("<testcase "), count("<failure "), count("<skipped ")], [7, 3, 2]);
    let ungated = render_to_string(|out| write_junit(&comparison(), out));
    assert!(ungated.contains("failures=\"0\"") && !ungated.contains("<failure"), "{ungated}");
}

/// The page of a comparison.
fn page(comparison: &Comparison) -> String {
    render_to_string(|out| write_page(comparison, out))
}

/// Its elements, a line for each that begins something; drawings without the places of what they draw.
fn structure(page: &str) -> String {
    const COORDINATE_ATTRIBUTES: [&str; 8] = ["d", "x", "y", "cx", "cy", "r", "width", "height"];
    let (_, body) = page.split_once("<body>").unwrap();
    let without_coordinates = |tag: &str| {
        let mut parts = tag.split('"');
        let mut stripped = parts.next().unwrap_or_default().to_owned();
        let (mut name, mut value) = (stripped.clone(), parts.next());
        while let Some(text) = value {
            let attribute = name.rsplit(' ').next().unwrap_or_default().trim_end_matches('=').to_owned();
            match COORDINATE_ATTRIBUTES.contains(&&*attribute) {
                true => stripped.truncate(stripped.len() - attribute.len() - 2),
                false => stripped.push_str(&format!("\"{text}\"")),
            }
            name = parts.next().unwrap_or_default().to_owned();
            stripped.push_str(&name);
            value = parts.next();
        }
        stripped
    };
    let mut lines = String::new();
    for part in body.split('<').filter(|part| !part.is_empty()) {
        let (tag, text) = part.split_once('>').unwrap();
        lines.push_str(if tag.starts_with('/') { "" } else { "\n" });
        lines.push_str(&format!("<{}>{text}", without_coordinates(tag)));
    }
    lines
}

#[test]
fn page_has_ladders_and_figures_and_escapes_texts() {
    let mut hostile = gated_comparison();
    hostile.base.name = "a\u{202e}'><script>alert(1)</script>".into();
    let page = page(&hostile);
    insta::assert_snapshot!(structure(&page));
    assert!(!page.contains("<script") && !page.contains("<b>load") && !page.contains(['\u{1b}', '\u{202e}']));
    assert!(page.contains("prefers-color-scheme:dark") && page.contains("default-src &#39;none&#39;"));
    assert!(page.ends_with("</html>\n"));
    let count = |tag: &str| page.matches(tag).count();
    // A line for each figure, with its place on the axis and the rounds of both sides; the ladder twice, wide and narrow.
    assert_eq!(
        [count("<details class=\"compared\""), count("<svg class=\"forest\""), count("class=\"dots\"")],
        [5, 5, 10]
    );
    assert_eq!([count("<svg class=\"drawing wide\""), count("<svg class=\"drawing narrow\"")], [1, 1]);
    let figures = |name: &str| page.match_indices(name).map(|(index, _)| index).collect::<Vec<usize>>();
    assert!(figures("id=\"figure-").is_sorted() && figures("<h2>").is_sorted());
}

#[test]
fn page_omits_missing_ladder_gate_and_figures() {
    let ladderless = page(&Comparison { ladder: Vec::new(), ..comparison() });
    assert!(!ladderless.contains("id=\"ladder\"") && !ladderless.contains("id=\"gate\""));
    let empty = Comparison {
        figures: Vec::new(),
        ladder: Vec::new(),
        not_compared: Vec::new(),
        differences: Vec::new(),
        ..comparison()
    };
    let empty = page(&empty);
    assert!(
        empty.contains("Of 0 figures") && empty.contains("Nothing else differs") && !empty.contains("<details"),
        "{empty}"
    );
}

#[test]
fn page_of_500_figures_is_small() {
    const MAX_PAGE_BYTES: usize = 3 << 20;
    let page = page(&large_comparison(500));
    assert_eq!(page.matches("<details class=\"compared\"").count(), 500);
    assert!(page.len() < MAX_PAGE_BYTES, "{}", page.len());
}

/// The published schema is that of the types; `KELVIN_UPDATE_SCHEMA=1 cargo test -p kelvin-report` writes it anew.
#[test]
fn published_compare_schema_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/compare.schema.json");
    let schema = serde_json::to_string_pretty(&schema()).unwrap() + "\n";
    if std::env::var_os("KELVIN_UPDATE_SCHEMA").is_some() {
        std::fs::write(path, &schema).unwrap();
    }
    let published = std::fs::read_to_string(path).unwrap();
    assert!(published == schema, "docs/compare.schema.json is stale: run with KELVIN_UPDATE_SCHEMA=1");
}
