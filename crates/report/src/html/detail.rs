//! What stands behind a row: derivation, samples, warnings, proofs, published values, and the method.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use kelvin_analysis::{MetricResult, Outcome, Summary};
use kelvin_model::{Case, Metric, Prediction, Unit};

use super::results::{Group, verdict};
use super::{esc, list, plots, scrolling, terms};
use crate::{ProbeText, Report, units, words};

/// Behind the row of one metric at one case.
pub(super) fn single(report: &Report<'_>, result: &MetricResult) -> String {
    let mut page = format!("<p class=\"lead\">{}</p><div class=\"columns\">", esc(&result.metric.summary));
    page.push_str(&box_of("Prediction", &prediction(result)));
    if let Outcome::Measured(summary) | Outcome::NotKnown(summary) = &result.outcome {
        page.push_str(&box_of("Samples", &samples(summary, &result.metric)));
    }
    page.push_str("</div>");
    page.push_str(&warnings(&[result]));
    page.push_str(&published(report, &result.metric, Some(&result.case)));
    page.push_str(&method(report, result));
    page
}

/// Behind the row of several results: each of them; the method in the first row of a metric.
pub(super) fn group(report: &Report<'_>, group: &Group<'_>, first: bool) -> String {
    let results = group.results();
    let mut page = format!("<p class=\"lead\">{}</p>", esc(&group.metric.summary));
    if let Some(prediction) = results.iter().find_map(|result| result.prediction.as_ref()) {
        let sources = prediction.sources.join("; ");
        page.push_str(&terms([
            ("Formula", format!("<code>{}</code>", esc(&prediction.formula))),
            ("Rests on", esc(words::basis(prediction.basis))),
            ("Sources", esc(&sources)),
        ]));
    }
    page.push_str(&points(group));
    page.push_str(&warnings(&results));
    if first {
        page.push_str(&published(report, group.metric, None));
        if let Some(result) = results.first() {
            page.push_str(&method(report, result));
        }
    }
    page
}

fn box_of(title: &str, content: &str) -> String {
    format!("<div class=\"box\"><h3>{title}</h3>{content}</div>")
}

fn prediction(result: &MetricResult) -> String {
    let Some(prediction) = &result.prediction else {
        let why = result.none_because.as_deref().unwrap_or("no reason is recorded");
        return format!("<p>None: {}.</p>", esc(why.trim_end_matches('.')));
    };
    let unit = result.metric.unit;
    // What an input says of itself stands with it.
    let is_new = |source: &&String| !prediction.inputs.iter().any(|input| input.source.contains(source.as_str()));
    let sources: Vec<&str> = prediction.sources.iter().filter(is_new).map(String::as_str).collect();
    let range = units::span(prediction.low, prediction.high, unit);
    let rows = [
        ("Formula", format!("<code>{}</code>", esc(&prediction.formula))),
        ("With figures", esc(&prediction.derivation)),
        ("Unremarkable", esc(&format!("{range}, predicted {}", units::plain(prediction.value, unit)))),
        ("Rests on", esc(words::basis(prediction.basis))),
        ("Sources", esc(&sources.join("; "))),
    ];
    let mut page = terms(rows.into_iter().filter(|(_, text)| !text.is_empty()));
    page.push_str(&inputs(prediction));
    page.push_str(&explained(result));
    page
}

fn inputs(prediction: &Prediction) -> String {
    if prediction.inputs.is_empty() {
        return String::new();
    }
    let mut rows = String::new();
    for input in &prediction.inputs {
        let _ = write!(
            rows,
            "<tr><th>{}</th><td class=\"number\">{}</td><td>{}</td></tr>",
            esc(&input.name),
            esc(&units::plain(input.value, input.unit)),
            esc(&input.source)
        );
    }
    let table = format!(
        "<table class=\"plain\"><caption>Inputs</caption><thead><tr><th>Input</th><th>Value</th><th \
        >From</th></tr></thead><tbody>{rows}</tbody></table>"
    );
    scrolling("Inputs of the prediction", &table)
}

/// The hazards that can explain a gap, as links to them.
fn explained(result: &MetricResult) -> String {
    if !words::is_gap(result.verdict) {
        return String::new();
    }
    if result.explained_by.is_empty() {
        return "<p>No hazard of this run explains the gap.</p>".into();
    }
    let link = |id: &kelvin_model::Name| format!("<a href=\"#hazard-{0}\">{0}</a>", esc(id));
    let links: Vec<String> = result.explained_by.iter().map(link).collect();
    format!("<p>Hazards that can explain the gap: {}.</p>", links.join(", "))
}

fn samples(summary: &Summary, metric: &Metric) -> String {
    let unit = metric.unit;
    let figure = |figure: &kelvin_analysis::Figure| {
        format!(
            "{} <span class=\"why\">of {}</span>",
            esc(&units::figure(figure, unit).to_string()),
            words::plural(figure.n, "sample")
        )
    };
    let d = &summary.distribution;
    let kind = if d.of_batch_means { "means of batches" } else { "single operations" };
    let interval = summary.interval.map_or_else(|| "none: a single round".into(), words::interval);
    let failed = if summary.failed_rounds > 0 { format!(", {} failed", summary.failed_rounds) } else { String::new() };
    let learned = if summary.learned_runs > 0 {
        format!(", spread between runs learned from {}", words::plural(summary.learned_runs.into(), "earlier run"))
    } else {
        String::new()
    };
    let spread = |values: &[f64]| {
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if values.len() < 2 { String::new() } else { format!(" of {}", units::span(low, high, unit)) }
    };
    let mut rows = vec![
        ("Headline", esc(words::treatment(summary.treatment))),
        ("Error bar", esc(&format!("{interval}{learned}"))),
        ("Undisturbed", summary.undisturbed.as_ref().map_or_else(|| "too few samples, or no canaries".into(), figure)),
        ("As found", figure(&summary.as_found)),
        ("Share undisturbed", units::share(summary.kept_share)),
        (
            "Rounds",
            esc(&format!(
                "{}{}{failed}, worth {:.0} independent samples",
                summary.rounds,
                spread(&summary.round_headlines),
                summary.effective_samples
            )),
        ),
        ("Best, mean, std", esc(&several(&[d.best, d.mean, d.std], unit))),
        ("p5, quartiles, p95", esc(&several(&[d.p5, d.p25, d.p50, d.p75, d.p95], unit))),
        ("Lowest, p99, highest", esc(&several(&[d.min, d.p99, d.max], unit))),
    ];
    if !summary.modes.is_empty() {
        let mode = |mode: &kelvin_analysis::Mode| {
            let level = mode.level.as_ref().map_or_else(String::new, |level| format!(", {level}"));
            format!(
                "{} ({} of the {}{level})",
                units::plain(mode.center, unit),
                units::share(mode.share),
                summary.modes_of.words()
            )
        };
        rows.push(("Modes", esc(&summary.modes.iter().map(mode).collect::<Vec<_>>().join(", "))));
    }
    if !summary.tags.is_empty() {
        let tag = |tag: &kelvin_analysis::TagCount| format!("{} {}", units::count(tag.count), tag.tag);
        rows.push(("Tagged", esc(&summary.tags.iter().map(tag).collect::<Vec<_>>().join(", "))));
    }
    if !summary.canary_correlations.is_empty() {
        let one = |found: &kelvin_analysis::CanaryCorrelation| {
            format!("{} {:+.2}", words::canary(found.canary), found.correlation)
        };
        let all: Vec<String> = summary.canary_correlations.iter().map(one).collect();
        rows.push(("Goes along with canary", esc(&format!("{} (rank correlation)", all.join(", ")))));
    }
    format!(
        "<div class=\"strips\"><div>{}<p class=\"why\">Distribution of {} {kind}</p></div><div>{}<p class=\"why\">Rounds over the \
         run</p></div></div>{}{}",
        plots::distribution(summary, unit),
        units::count(d.n),
        plots::rounds(summary),
        terms(rows),
        list("notes", summary.notes.iter().map(|note| esc(note)))
    )
}

fn several(values: &[f64], unit: Unit) -> String {
    values.iter().map(|value| units::plain(*value, unit)).collect::<Vec<_>>().join(", ")
}

/// The results of a group, each with its derivation; of a rate also the best sample.
fn points(group: &Group<'_>) -> String {
    let mut rows = String::new();
    let with_best = group.points.iter().any(|(_, result)| words::best(result).is_some());
    let derivations: Vec<&str> = group.points.iter().map(|(_, result)| derivation(result)).collect();
    for (index, (position, result)) in group.points.iter().enumerate() {
        let unit = result.metric.unit;
        let prediction = result.prediction.as_ref();
        let measured = match &result.outcome {
            Outcome::Measured(summary) => esc(&units::measured(summary, unit)),
            other => {
                words::no_number(other, unit).map(|(word, why)| esc(&format!("{word}: {why}"))).unwrap_or_default()
            }
        };
        let as_found = result.outcome.summary().map(|summary| {
            esc(&format!("{} ({})", units::plain(summary.as_found.value, unit), units::share(summary.kept_share)))
        });
        let best = result.outcome.summary().map(|summary| esc(&units::plain(summary.distribution.best, unit)));
        let best = if with_best { format!("<td>{}</td>", best.unwrap_or_default()) } else { String::new() };
        let _ = write!(
            rows,
            "<tr><th>{}</th><td>{measured}</td>{best}<td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>{}</tr>",
            esc(position),
            as_found.unwrap_or_default(),
            units::cycles(result),
            prediction.map(|prediction| esc(&units::plain(prediction.value, unit))).unwrap_or_default(),
            result.ratio.map(units::ratio).unwrap_or_default(),
            verdict(result),
            shared_cell(&derivations, index)
        );
    }
    let columns: String =
        ["Measured", "Best", "As found (undisturbed)", "Cycles", "Predicted", "Ratio", "Verdict", "Derivation"]
            .iter()
            .filter(|name| with_best || **name != "Best")
            .map(|name| format!("<th>{name}</th>"))
            .collect();
    let title = format!("{} {}", group.metric.id, group.label);
    let table = format!(
        "<table class=\"plain numbers\"><caption class=\"unseen\">{}</caption><thead><tr><th>{}</th>{columns}</tr></thead>\
         <tbody>{rows}</tbody></table>",
        esc(&title),
        esc(&group.axis)
    );
    scrolling(&format!("Points of {title}"), &table)
}

/// How a prediction came about, or why there is none.
fn derivation(result: &MetricResult) -> &str {
    match &result.prediction {
        Some(prediction) => &prediction.derivation,
        None => result.none_because.as_deref().unwrap_or_default(),
    }
}

/// The cell of a text that may go on over several rows: it stands in the first of them.
fn shared_cell(texts: &[&str], index: usize) -> String {
    if index > 0 && texts[index - 1] == texts[index] {
        return String::new();
    }
    let rows = texts[index..].iter().take_while(|text| **text == texts[index]).count();
    let span = if rows > 1 { format!(" rowspan=\"{rows}\"") } else { String::new() };
    format!("<td class=\"text\"{span}>{}</td>", esc(texts[index]))
}

/// Warnings, each once, with the case where there are several.
fn warnings(results: &[&MetricResult]) -> String {
    let one = |result: &MetricResult, text: &str| {
        let case = if results.len() > 1 { units::case(&result.metric, &result.case) } else { String::new() };
        if case.is_empty() { esc(text) } else { format!("<span class=\"case\">{}</span> {}", esc(&case), esc(text)) }
    };
    let items: Vec<String> =
        results.iter().flat_map(|result| result.warnings.iter().map(|warning| one(result, warning.text()))).collect();
    list("warnings", items)
}

/// Published values of the same metric on other machines, marked where they are not of the same quantity.
fn published(report: &Report<'_>, metric: &Metric, case: Option<&Case>) -> String {
    let mut rows = String::new();
    for reference in report.references {
        let values = reference.values.iter().filter(|value| value.metric == metric.id);
        for value in values.filter(|value| case.is_none_or(|case| value.case == *case)) {
            let deviation = value.std.map(|std| format!(", std {}", units::plain(std, value.unit))).unwrap_or_default();
            let count = value.n.map(|n| format!(", n {}", units::count(n))).unwrap_or_default();
            let foreseen =
                value.predicted.map(|predicted| format!(", predicted {}", units::plain(predicted, value.unit)));
            let spans = value
                .spans
                .as_ref()
                .map(|spans| format!("<span class=\"pill odd\">not comparable</span> covers {}. ", esc(spans)));
            let cycles = value.cycles.map(|cycles| units::plain(cycles, Unit::Cycles));
            let also = value.also.iter().map(|(label, figure)| format!("{label}: {figure}"));
            let notes: Vec<String> = value.note.iter().cloned().chain(cycles).chain(also).collect();
            let _ = write!(
                rows,
                "<tr><th>{}</th><td>{}</td><td>{}</td><td class=\"text\">{}{}</td></tr>",
                esc(&reference.title),
                esc(&units::case(metric, &value.case)),
                esc(&format!(
                    "{}{deviation}{count}{}",
                    units::plain(value.value, value.unit),
                    foreseen.unwrap_or_default()
                )),
                spans.unwrap_or_default(),
                esc(&notes.join("; "))
            );
        }
    }
    if rows.is_empty() {
        return rows;
    }
    let table = format!(
        "<table class=\"plain\"><caption>Published on other machines</caption><thead><tr><th>Machine</th><th \
        >Case</th><th>Value</th><th>Remarks</th></tr></thead><tbody>{rows}</tbody></table>"
    );
    scrolling("Published values", &table)
}

/// Where to read how it was measured, if that is in the report.
fn method(report: &Report<'_>, result: &MetricResult) -> String {
    match report.probe(&result.probe) {
        Some(_) => format!(
            "<p class=\"to-method\"><a href=\"#method-{0}\">Method of <code>{0}</code></a>, version {1}</p>",
            esc(&result.probe),
            result.metric.version
        ),
        None => String::new(),
    }
}

/// What the probes of a run say of themselves, each once, in the order of the results.
pub(super) fn methods(report: &Report<'_>) -> String {
    let mut seen = BTreeSet::new();
    let probes = report.analysis.results.iter().map(|result| result.probe).filter(|probe| seen.insert(*probe));
    probes.filter_map(|probe| report.probe(&probe)).map(method_text).collect()
}

fn method_text(probe: &ProbeText) -> String {
    let ProbeText { id, summary, method, prediction, pitfalls, sources, must_not_be_used_for } = probe;
    let mut page = format!(
        "<p class=\"lead\">{}</p><p>{}</p><p><strong>Prediction:</strong> {}</p>",
        esc(summary),
        esc(method),
        esc(prediction)
    );
    if let Some(never) = must_not_be_used_for {
        let _ = write!(page, "<p><strong>Must not be used for:</strong> {}.</p>", esc(never.trim_end_matches('.')));
    }
    let part = |title: &str, items: &[String]| {
        let items = list("notes", items.iter().map(|item| esc(item)));
        if items.is_empty() { items } else { format!("<h4>{title}</h4>{items}") }
    };
    page.push_str(&part("Known ways to get it wrong", pitfalls));
    page.push_str(&part("Sources", sources));
    format!("<details class=\"method\" id=\"method-{0}\"><summary><code>{0}</code></summary>{page}</details>", esc(id))
}
