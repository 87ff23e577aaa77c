//! Structure of the HTML report: self-contained, escaped, small, and whole without its script.

mod synthetic;

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kelvin_analysis::{
    Finding, FindingData, Importance, MetricResult, PredictionGap, RangeVerdict, Warning, WarningKind,
};
use kelvin_core::text::{escape_invisible, is_visible};
use kelvin_core::{AsFoundFigure, Better, PredictionVerdict, Unit};
use kelvin_report::{Html, Render};
use sha2::{Digest, Sha256};
use synthetic::SyntheticReport;

fn render(sample: &SyntheticReport) -> String {
    let mut out = Vec::new();
    Html.render(&sample.report(), &mut out).unwrap();
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

/// The page without the library, the script and the style sheet.
fn markup(page: &str) -> String {
    let (before, rest) = page.split_once("<style>").unwrap();
    let (_, rest) = rest.split_once("</style>").unwrap();
    let (body, rest) = rest.split_once("<script type=\"text/plain\" id=\"library\">").unwrap();
    let (_, rest) = rest.split_once("</script>").unwrap();
    assert!(rest.starts_with("<script>\n"), "the script comes last");
    format!("{before}{body}")
}

/// The values of one attribute, in order.
fn attributes<'a>(page: &'a str, name: &str) -> Vec<&'a str> {
    let start = format!(" {name}=\"");
    page.split(start.as_str()).skip(1).map(|rest| rest.split('"').next().unwrap()).collect()
}

#[test]
fn page_begins_with_ladder_and_findings() {
    let sample = synthetic::full();
    let page = markup(&render(&sample)).replace('\u{a0}', " ");
    let position = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text} is not there"));
    let screen = sample.analysis.overview.as_ref().unwrap();
    assert!(position("class=\"static ladder\"") < position("What stands out"));
    assert!(
        position("What stands out") < position("id=\"findings\"")
            && position("id=\"findings\"") < position("class=\"results\"")
    );
    for stand_out in &screen.stand_outs {
        assert!(page.contains(&stand_out.text), "{}", stand_out.text);
    }
    // Each rung twice in the drawing, wide and narrow, and once in the table; its hover text has its derivation.
    for rung in &screen.rungs {
        assert!(page.matches(&format!(">{}</text>", rung.label)).count() >= 2, "{}", rung.label);
        assert!(page.contains(&rung.figure.text));
    }
    assert!(page.contains("<title>system call: 84.3 ns\npredicted 51.4 to 79.9 ns\nfrom lower metrics"));
    assert!(page.contains("href=\"#area-os\""), "rungs lead to their sections");
}

#[test]
fn as_found_figure_has_hollow_mark() {
    let mut sample = synthetic::full();
    let rungs = &mut sample.analysis.overview.as_mut().unwrap().rungs;
    let figure = &mut rungs.iter_mut().find(|rung| rung.label == "system call").unwrap().figure;
    let text = std::mem::replace(&mut figure.text, "not known".into());
    figure.as_found = Some(AsFoundFigure { value: figure.measured.take().unwrap(), text });
    figure.verdict = PredictionVerdict::NotCompared;
    let page = markup(&render(&sample)).replace('\u{a0}', " ");
    // Wide and narrow, and in the legend of each.
    assert_eq!(page.matches("<path class=\"ladder-found\"").count(), 4);
    assert_eq!(page.matches(">◇</tspan></text>").count(), 2);
    assert!(page.contains("<title>system call: not known, 84.3 ns as measured\n"));
    assert!(page.contains("<td>not known, 84.3 ns as measured"));
}

#[test]
fn ladder_legends_fit_their_drawing() {
    let mut sample = synthetic::full();
    let rungs = &mut sample.analysis.overview.as_mut().unwrap().rungs;
    // Marks for more than one line, of a wide ladder as well.
    for (rung, verdict) in rungs.iter_mut().zip([PredictionVerdict::Slower, PredictionVerdict::Faster]) {
        rung.figure.verdict = verdict;
    }
    let figure = &mut rungs.last_mut().unwrap().figure;
    figure.as_found = Some(AsFoundFigure { value: figure.measured.take().unwrap(), text: "1 ns".into() });
    let page = markup(&render(&sample));
    let drawings: Vec<&str> = page.split("<svg class=\"drawing ").skip(1).take(2).collect();
    for drawing in drawings {
        let height: f64 =
            drawing.split_once("viewBox=\"0 0 ").unwrap().1.split([' ', '"']).nth(1).unwrap().parse().unwrap();
        let (drawing, _) = drawing.split_once("</svg>").unwrap();
        let lowest = drawing.split(" y=\"").skip(1).map(|rest| rest.split_once('"').unwrap().0.parse::<f64>().unwrap());
        let lowest = lowest.fold(0.0, f64::max);
        assert!(lowest < height, "a text at {lowest} of {height}");
    }
    assert!(page.contains(">disturbed</text>") || page.contains("disturbed"), "the legend has the mark");
}

#[test]
fn page_without_screen_begins_with_verdict() {
    let mut sample = synthetic::full();
    sample.analysis.overview = None;
    let page = markup(&render(&sample));
    assert!(!page.contains("class=\"static ladder\"") && !page.contains("id=\"findings\""));
    assert!(page.contains("<h2>Findings</h2><ul class=\"findings\">"));
}

/// A gap between measured and predicted, of a result.
fn gap(result: &MetricResult) -> Finding {
    let gap =
        PredictionGap { source: result.metric_case(), ratio: 2.0, level: None, hazards: Vec::new(), causes: None };
    Finding {
        importance: Importance::Notable,
        text: format!("{} is a gap.", result.metric.id),
        reason: String::new(),
        data: FindingData::Gap(gap),
        metrics: vec![result.metric.id],
    }
}

#[test]
fn findings_beyond_five_are_folded() {
    let mut sample = synthetic::full();
    let results = &mut sample.analysis.results;
    let is_timed = |result: &&mut MetricResult| {
        result.metric.unit == Unit::Nanoseconds
            && result.metric.better == Better::Lower
            && result.outcome.summary().is_some()
    };
    let mut findings = Vec::new();
    for (index, result) in results.iter_mut().filter(is_timed).take(20).enumerate() {
        result.verdict = if index < 12 { RangeVerdict::Above } else { RangeVerdict::Below };
        findings.push(gap(result));
    }
    assert_eq!(findings.len(), 20);
    sample.analysis.findings = findings;
    let page = markup(&render(&sample));
    let start = page.find("<ul class=\"findings\">").unwrap();
    let list = &page[start..][..page[start..].find("</ul>").unwrap()];
    assert_eq!(list.matches("<li>").count(), 5, "{list}");
    assert_eq!(list.matches("<span class=\"pill odd\">slower</span>").count(), 5, "{list}");
    assert!(page.contains("<summary>7 more figures slower than predicted</summary>"));
    assert!(page.contains("<summary>8 more figures faster than predicted</summary>"));
}

#[test]
fn times_and_rates_use_same_direction_words() {
    let sample = slow_rates();
    let page = markup(&render(&sample)).replace('\u{a0}', " ");
    assert!(!page.contains(['▲', '▼']));
    assert!(page.contains(" read (slower than predicted)"));
    assert!(page.contains("84.3 ns<tspan"), "the word stands behind the figure");
    let text = |format: &dyn Render| {
        let mut text = Vec::new();
        format.render(&sample.report(), &mut text).unwrap();
        String::from_utf8(text).unwrap()
    };
    let markdown = text(&kelvin_report::Markdown);
    assert!(markdown.contains(" read (slower)") && markdown.contains("84.3 ns slower"), "{markdown}");
    assert!(!markdown.contains(['▲', '▼']));
}

/// A report of which every rate is slower than predicted.
fn slow_rates() -> synthetic::SyntheticReport {
    let mut sample = synthetic::full();
    let screen = sample.analysis.overview.as_mut().unwrap();
    let rates = screen.rates.iter_mut().flat_map(|line| &mut line.rates);
    rates.for_each(|rate| rate.figure.verdict = PredictionVerdict::Slower);
    sample
}

#[test]
fn gap_causes_are_in_figure_details() {
    let mut sample = synthetic::full();
    let causes = |sample: &SyntheticReport| {
        let page = markup(&render(sample)).replace('\u{a0}', " ");
        let (_, causes) = page.split_once("<h3>Causes")?;
        Some(causes.split("<h3>").next().unwrap().to_owned())
    };
    let text = causes(&sample).unwrap();
    assert!(text.contains("waking an idle CPU") && text.contains("ruled out") && text.contains("all of it"), "{text}");
    sample.run.explanations.clear();
    assert_eq!(causes(&sample), None);
}

/// The elements that another one ends by beginning: HTML implies their end tags, there and at the end of what holds them.
fn optional_end_tags(name: &str) -> &'static [&'static str] {
    match name {
        "td" | "th" => &["td", "th"],
        "tr" => &["td", "th", "tr"],
        "li" => &["li"],
        "dt" | "dd" => &["dt", "dd"],
        _ => &[],
    }
}

/// Names of elements that were opened and not closed, or closed and not opened, in a strict reading of the markup.
fn unbalanced(markup: &str) -> Vec<String> {
    const VOID_ELEMENTS: [&str; 6] = ["meta", "input", "wbr", "col", "br", "!doctype"];
    const IMPLIED_END_TAGS: [&str; 6] = ["td", "th", "tr", "li", "dt", "dd"];
    let mut open: Vec<String> = Vec::new();
    let mut errors = Vec::new();
    for tag in markup.split('<').skip(1) {
        let tag = tag.split('>').next().unwrap();
        let name: String =
            tag.trim_start_matches('/').chars().take_while(|c| !c.is_whitespace() && *c != '/').collect();
        if tag.starts_with('/') {
            while open.last().is_some_and(|last| *last != name && IMPLIED_END_TAGS.contains(&last.as_str())) {
                open.pop();
            }
            if open.pop().as_ref() != Some(&name) {
                errors.push(format!("</{name}>"));
            }
        } else if !tag.ends_with('/') && !VOID_ELEMENTS.contains(&name.as_str()) {
            while open.last().is_some_and(|last| optional_end_tags(&name).contains(&last.as_str())) {
                open.pop();
            }
            open.push(name);
        }
    }
    errors.extend(open);
    errors
}

#[test]
fn elements_are_balanced_and_ids_unique() {
    for (name, sample) in samples() {
        let page = render(&sample);
        let markup = markup(&page);
        // The body and the document end after the script.
        assert_eq!(unbalanced(&markup), ["html", "body"], "{name}");
        let ids = attributes(&markup, "id");
        let distinct: BTreeSet<&str> = ids.iter().copied().collect();
        assert_eq!(ids.len(), distinct.len(), "{name}: every id once");
        for link in attributes(&markup, "href") {
            let target = link.strip_prefix('#').unwrap_or_else(|| panic!("{name}: {link} leaves the page"));
            assert!(distinct.contains(target), "{name}: nothing is at {link}");
        }
        for label in attributes(&markup, "aria-labelledby").into_iter().chain(attributes(&markup, "data-expand")) {
            assert!(distinct.contains(label), "{name}: nothing is at {label}");
        }
    }
}

#[test]
fn page_loads_nothing_and_has_one_script() {
    for (name, sample) in samples() {
        let page = render(&sample);
        let markup = markup(&page);
        for forbidden in ["<link", "<img", "<iframe", "<object", "<base", "@import", "http-equiv=\"refresh\""] {
            assert!(!markup.contains(forbidden), "{name}: {forbidden}");
        }
        assert_eq!(markup.matches("<script").count(), 1, "{name}: only the data stand before the script");
        let forbidden = [" src=", " on", " style=", " srcdoc=", " action="];
        for tag in markup.split('<').skip(1).map(|tag| tag.split('>').next().unwrap()) {
            // Attribute names without their values.
            let names: String = tag.split('"').step_by(2).collect();
            assert!(forbidden.iter().all(|attribute| !names.contains(attribute)), "{name}: {tag}");
        }
    }
}

/// What is between an opening tag and the next closing one of the same name, once in a page.
fn text_inside<'a>(page: &'a str, open: &str, close: &str) -> &'a str {
    assert_eq!(page.matches(open).count(), 1, "{open}");
    page.split_once(open).unwrap().1.split_once(close).unwrap().0
}

/// The browser takes no script and no style but those whose hashes the page names, and none of them by another way.
#[test]
fn csp_has_hashes_of_script_and_styles() {
    let hash = |content: &str| format!("'sha256-{}'", STANDARD.encode(Sha256::digest(content)));
    for (name, sample) in samples() {
        let page = render(&sample);
        let policy =
            text_inside(&page, "<meta http-equiv=\"Content-Security-Policy\" content=\"", "\">").replace("&#39;", "'");
        let rules: BTreeMap<&str, Vec<&str>> = policy
            .split("; ")
            .map(|rule| rule.split_once(' ').unwrap())
            .map(|(directive, sources)| (directive, sources.split(' ').collect()))
            .collect();
        assert_eq!(rules["default-src"], ["'none'"], "{name}");
        let styles = ["<style>", "<style id=\"drawings\">"].map(|open| hash(text_inside(&page, open, "</style>")));
        assert_eq!(rules["style-src"], styles, "{name}");
        let scripts = &rules["script-src"];
        assert_eq!(scripts[0], hash(text_inside(&page, "<script>", "</script>")), "{name}");
        assert!(scripts.len() == 2 && scripts[1].starts_with("'sha256-"), "{name}: {scripts:?}");
        assert!(!policy.contains("unsafe"), "{name}: {policy}");
    }
}

/// The data can be read back, and nothing in them ends their element.
#[test]
fn page_data_is_valid_json() {
    for (name, sample) in samples() {
        let page = render(&sample);
        let (_, rest) = page.split_once("id=\"data\">").unwrap();
        let (data, _) = rest.split_once("</script>").unwrap();
        assert!(!data.contains(['<', '>', '\u{2028}', '\u{2029}']), "{name}");
        let data: serde_json::Value = serde_json::from_str(data).unwrap();
        let figures = data["figures"].as_array().unwrap();
        let figure_count = page.matches(" data-figure=\"").count();
        assert_eq!(figures.len(), figure_count, "{name}: one element for each figure");
    }
    let page = render(&synthetic::hostile());
    let data = page.split_once("id=\"data\">").unwrap().1.split_once("</script>").unwrap().0;
    let data: serde_json::Value = serde_json::from_str(data).unwrap();
    let title = escape_invisible(synthetic::HOSTILE);
    let mut published = data["figures"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|figure| figure["lines"].as_array())
        .flatten()
        .filter(|series| series["role"] == "reference");
    let has_title = |series: &serde_json::Value| series["label"].as_str().unwrap().starts_with(&*title);
    assert!(published.any(has_title), "the reference machine's title survives");
}

#[test]
fn hostile_texts_are_escaped() {
    let page = render(&synthetic::hostile());
    let markup = markup(&page);
    assert!(markup.contains("&lt;/script&gt;&lt;img src=x onerror=&quot;alert(1)&quot;&gt;"));
    assert!(!markup.contains("<img"));
    let (content, _) = markup.split_once("<script").unwrap();
    assert!(content.chars().all(|c| c == '\n' || is_visible(c)));
    assert!(markup.contains("&quot;&gt;&lt;svg onload=alert(1)&gt;") && !markup.contains("<svg onload"));
}

#[test]
fn large_page_is_below_1_5_mib() {
    let small_bytes = render(&synthetic::full()).len();
    assert!(small_bytes < 1 << 20, "{small_bytes} bytes");
    // 161 results make the sample; a run of every area has several times as many.
    let large = synthetic::large(4);
    let large_bytes = render(&large).len();
    assert!(large_bytes < 3 << 19, "{} results took {large_bytes} bytes", large.analysis.results.len());
}

/// The texts of a probe are long, and many rows are of one probe.
#[test]
fn each_method_is_shown_once_and_linked() {
    let sample = synthetic::full();
    let page = render(&sample);
    let mut method_count = 0;
    for probe in &sample.probes {
        let is_of_probe = |result: &&kelvin_analysis::MetricResult| result.probe == probe.id;
        let is_used = sample.analysis.results.iter().any(|result| is_of_probe(&result));
        assert_eq!(page.matches(&format!(" id=\"method-{}\"", probe.id)).count(), usize::from(is_used), "{}", probe.id);
        assert_eq!(page.contains(&format!("<a href=\"#method-{}\">", probe.id)), is_used, "{}", probe.id);
        method_count += usize::from(is_used);
    }
    assert!(method_count > 0);
    assert_eq!(page.matches("<details class=\"method\"").count(), method_count);
    assert!(page.contains(">Pitfalls<"));
    assert!(page.contains("<strong>Prediction:</strong> A bare fork, and the copy of a page table"));
}

/// Rows that only have a reason would hide the others; nothing of them is lost.
#[test]
fn rows_missing_for_one_reason_are_folded() {
    let mut sample = synthetic::full();
    let rows = attributes(&markup(&render(&sample)), "data-expand").len();
    let is_row = |result: &&mut kelvin_analysis::MetricResult| {
        result.metric.area() == "os" && result.case.is_empty() && result.outcome.summary().is_some()
    };
    let mut names = Vec::new();
    for result in sample.analysis.results.iter_mut().filter(is_row).take(4) {
        result.outcome = kelvin_analysis::Outcome::Skipped(kelvin_core::SkipReason::new("left out on purpose"));
        names.push(result.metric.id.as_str().strip_prefix("os.").unwrap());
    }
    assert_eq!(names.len(), 4);
    let page = markup(&render(&sample));
    assert_eq!(attributes(&page, "data-expand").len(), rows, "every row is there");
    let (_, folded) = page.split_once("<details class=\"folded\"><summary>4 more lines ").expect("they are folded");
    let (folded, _) = folded.split_once("</table></details>").unwrap();
    for name in &names {
        let displayed_name = name.replace('.', ".<wbr>");
        assert!(folded.contains(&displayed_name), "{name}");
    }
    let mut terminal = Vec::new();
    kelvin_report::Terminal { width: 200, color: false }.render(&sample.report(), &mut terminal).unwrap();
    let terminal = String::from_utf8(terminal).unwrap();
    assert!(terminal.contains(&format!("\nskipped left out on purpose: {}\n", names.join(", "))), "{terminal}");
}

/// A text shared by several points of a line appears once, spanning their rows.
#[test]
fn shared_derivation_is_shown_once() {
    let mut sample = synthetic::full();
    let points = sample.analysis.results.iter_mut().filter(|result| result.metric.id == *"mem.loaded.bandwidth");
    let mut count = 0;
    for result in points {
        result.prediction = None;
        result.no_prediction_reason = Some("nobody knows".into());
        count += 1;
    }
    assert!(count > 2);
    let page = render(&sample);
    let cell = format!("<td class=\"text\" rowspan=\"{count}\">nobody knows<");
    assert_eq!(page.matches("nobody knows").count(), 1);
    assert!(page.contains(&cell), "one cell over {count} rows");
}

#[test]
fn wide_intervals_of_group_are_one_warning() {
    let mut sample = synthetic::full();
    let points = sample.analysis.results.iter_mut().filter(|result| result.metric.id == *"mem.loaded.bandwidth");
    let mut shares = [0.42, 0.031].into_iter().chain(std::iter::repeat(0.055));
    let mut count = 0;
    for (result, share) in points.zip(&mut shares) {
        let text = format!("the interval is {share} of the value");
        result.warnings = vec![Warning::new(WarningKind::WideInterval { share, target: 0.02 }, text)];
        count += 1;
    }
    assert!(count > 2);
    let page = render(&sample);
    assert!(!page.contains("the interval is 0"));
    let warning_text =
        format!("{count} of {count} intervals, of ± 3.1 % to 42 % of their value, did not reach the target of 2.0 %");
    assert_eq!(page.matches(&warning_text).count(), 1);
}

#[test]
fn page_is_complete_without_script() {
    let sample = synthetic::full();
    let page = render(&sample);
    let markup = markup(&page);
    for text in
        ["61.2 ± 0.4 ns", "needs 512 free huge pages", "EACCES", "beyond what is possible", "not known", "input only"]
    {
        assert!(markup.contains(text), "{text}");
    }
    for result in &sample.analysis.results {
        for warning in &result.warnings {
            assert!(markup.contains(&warning.text), "{}", warning.text);
        }
    }
    let figures = markup.matches("<figure ").count();
    assert_eq!(
        figures, 13,
        "canaries, calls, fork, ring twice, tasks, latency, bandwidth twice, loaded latency, core to core, threads twice"
    );
    assert!(markup.contains("Figures: <a href=\"#figure-os.tasks.elapsed\">"), "a study leads to its figure");
    assert_eq!(markup.matches("<div class=\"static\"><svg ").count(), figures);
    assert_eq!(markup.matches("<summary>Data as a table</summary>").count(), figures);
    let tables = markup.matches("<table").count();
    assert_eq!(markup.matches("<caption").count(), tables, "every table has a caption");
    assert!(!markup.contains("NaN") && !markup.contains("inf\""));
}

#[test]
fn partial_and_empty_runs_are_marked() {
    let partial = render(&synthetic::partial());
    assert!(partial.contains("This run is partial:</strong> interrupted by Ctrl-C"));
    assert!(partial.contains("not reached"));
    assert!(render(&synthetic::empty()).contains("Nothing was measured."));
}
