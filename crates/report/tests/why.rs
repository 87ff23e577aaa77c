//! An explanation on the terminal, and its published schema.

mod synthetic;

use std::path::Path;

use kelvin_core::{Explanation, Name};
use kelvin_report::why::{WhyTerminal, schema, write_drawing, write_page};
use synthetic::explanation::{explanation, share};

#[test]
fn explanation_at_80_columns() {
    let mut out = Vec::new();
    WhyTerminal { width: 80 }.render(&explanation(), &mut out).unwrap();
    insta::assert_snapshot!(String::from_utf8(out).unwrap());
}

/// An explanation with a text that must not act, and a remainder below nothing.
fn hostile() -> Explanation {
    let mut explanation = explanation();
    explanation.causes[0].summary = Name::new("waking <script>alert(1)</script> a CPU \u{202e}");
    explanation.not_explained = share(-4000.0, -9000.0, 1000.0);
    explanation
}

fn render_to_string(render: impl Fn(&mut Vec<u8>) -> std::io::Result<()>) -> String {
    let mut out = Vec::new();
    render(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn page_has_waterfall_and_table() {
    let page = render_to_string(|out| write_page(&explanation(), out));
    let (_, body) = page.split_once("<body>").unwrap();
    insta::assert_snapshot!(body.replace('<', "\n<").replace("\n</", "</"));
    assert!(page.contains("prefers-color-scheme:dark") && page.contains("default-src &#39;none&#39;"));
    assert!(!page.contains("<script") && page.ends_with("</html>\n"));
    // A row for each part, the remainder and the whole, in the table as in either drawing.
    assert_eq!([page.matches("<th scope=\"row\">").count(), page.matches("<g><title>").count()], [5, 10]);
}

#[test]
fn standalone_waterfall_has_title() {
    let drawing = render_to_string(|out| write_drawing(&explanation(), out));
    let (_, content) = drawing.split_once("</style>").unwrap();
    insta::assert_snapshot!(content.replace('<', "\n<").replace("\n</", "</"));
    assert!(drawing.contains("<desc>without these: 5.3 µs, 8 %; waking an idle CPU: 55.9 µs, 90 %;"), "{drawing}");
    assert!(!drawing.contains("var(--"), "a file has colours of its own");
}

/// Bars follow each other: each begins where the one before it ends, and the remainder goes back where the parts are too much.
#[test]
fn texts_are_escaped_and_bars_fit_drawing() {
    for text in
        [render_to_string(|out| write_page(&hostile(), out)), render_to_string(|out| write_drawing(&hostile(), out))]
    {
        assert!(!text.contains("<script") && !text.contains('\u{202e}'), "{text}");
        let bars = text.split("<path class=\"bar ").skip(1).map(|bar| bar.split('"').nth(2).unwrap());
        for bar in bars {
            let x: f64 = bar.trim_start_matches('M').split(' ').next().unwrap().parse().unwrap();
            assert!((0.0..720.0).contains(&x), "{bar}");
        }
    }
}

/// The published schema is that of the types; `KELVIN_UPDATE_SCHEMA=1 cargo test -p kelvin-report` writes it anew.
#[test]
fn published_why_schema_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/why.schema.json");
    let schema = serde_json::to_string_pretty(&schema()).unwrap() + "\n";
    if std::env::var_os("KELVIN_UPDATE_SCHEMA").is_some() {
        std::fs::write(&path, &schema).unwrap();
    }
    let published = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(published == schema, "docs/why.schema.json is stale: run with KELVIN_UPDATE_SCHEMA=1");
}
