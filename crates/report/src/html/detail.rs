//! The details of a row: derivation, samples, warnings, proofs, published values, and the method.

use kelvin_analysis::wording as analysis_words;
use kelvin_analysis::{MetricResult, RangeVerdict, Summary, Warning, WarningKind};
use kelvin_core::{Case, Input, Metric, Prediction, Unit};
use kelvin_stats::min_max;

use super::group::ResultGroup;
use super::{DataTable, anchor, cells, definition_list, list, pill, plots, remark_span, text_cell};
use crate::escape::{Markup, html};
use crate::text::grouped;
use crate::{ProbeDocs, Report, labels, units};

/// The details of one metric at one case.
pub(super) fn single(report: &Report<'_>, result: &MetricResult) -> Markup {
    let mut page = html!("<p class=\"lead\">{}</p><div class=\"columns\">", result.metric.summary);
    page.push(boxed("Prediction", prediction(result)));
    let class = analysis_words::class_comparison::figure_class_text(result);
    page.extend(class.map(|text| boxed("Normal for its class", html!("<p>{}.</p>", text))));
    let summary = result.outcome.found_summary();
    page.extend(summary.map(|summary| boxed("Samples", samples(summary, &result.metric))));
    page.push(html!("</div>"));
    page.push(causes(report, &[result]));
    page.push(warnings(&[result]));
    page.push(published(report, &result.metric, Some(&result.case)));
    page.extend(method(report, result));
    page
}

/// The verdict as a word with its own sign, readable without colour; the same sign for a time and a rate.
pub(super) fn verdict(result: &MetricResult) -> Markup {
    let word = labels::verdict_word(result);
    match result.verdict {
        RangeVerdict::AsPredicted => html!("<b class=\"good\">● {}</b>", word),
        RangeVerdict::Above | RangeVerdict::Below => html!("<b class=\"odd\">◆ {}</b>", word),
        RangeVerdict::NotPredicted => html!("<b class=\"quiet\">no prediction</b>"),
        RangeVerdict::NotMeasured => Markup::new(),
    }
}

/// The details of a row of several results; the method is in the first row of a metric.
pub(super) fn group(report: &Report<'_>, group: &ResultGroup<'_>, is_first: bool) -> Markup {
    let results = group.results();
    let mut page = html!("<p class=\"lead\">{}</p>", group.metric.summary);
    if let Some(prediction) = results.iter().find_map(|result| result.prediction.as_ref()) {
        page.push(definition_list([
            ("Formula", html!("<code>{}</code>", prediction.formula)),
            ("Basis", labels::basis(prediction.basis).into()),
            ("Sources", prediction.sources.join("; ").into()),
        ]));
    }
    page.push(points(group));
    page.push(causes(report, &results));
    page.push(warnings(&results));
    if is_first {
        page.push(published(report, group.metric, None));
        page.extend(results.first().and_then(|result| method(report, result)));
    }
    page
}

fn boxed(title: &str, content: Markup) -> Markup {
    html!("<div class=\"box\"><h3>{}</h3>{}</div>", title, content)
}

fn prediction(result: &MetricResult) -> Markup {
    let Some(prediction) = &result.prediction else {
        let reason = result.no_prediction_reason.as_deref().unwrap_or("no reason is recorded");
        return html!("<p>None: {}.</p>", reason.trim_end_matches('.'));
    };
    let unit = result.metric.unit;
    // An input's own notes are shown with it.
    let is_new = |source: &&String| !prediction.inputs.iter().any(|input| input.source.contains(source.as_str()));
    let sources: Vec<&str> = prediction.sources.iter().filter(is_new).map(String::as_str).collect();
    let range = units::span(prediction.low, prediction.high, unit);
    let distance = analysis_words::half_width_count(result)
        .map(|times| format!("{times} times the half-width of that range beyond it (as factors)"));
    let rows = [
        ("Formula", html!("<code>{}</code>", prediction.formula)),
        ("With figures", Markup::from(&prediction.derivation)),
        ("Predicted", Markup::from(format!("{}, range {range}", units::value_text(prediction.value, unit)))),
        ("Distance", Markup::from(distance.unwrap_or_default())),
        ("Basis", Markup::from(labels::basis(prediction.basis))),
        ("Sources", Markup::from(sources.join("; "))),
    ];
    let mut page = definition_list(rows.into_iter().filter(|(_, text)| !text.is_empty()));
    page.push(inputs(prediction));
    page
}

/// What was found of the causes of the gaps of these results; of one whose causes were not tried, which hazards touch such figures.
fn causes(report: &Report<'_>, results: &[&MetricResult]) -> Markup {
    let causes = |result: &&MetricResult| match report.run.explanation(&result.metric.id, &result.case) {
        Some(explanation) => {
            let case = units::case(&result.metric, &result.case);
            let title = if case.is_empty() { "Causes".to_owned() } else { format!("Causes at {case}") };
            boxed(&title, crate::why::sum_and_notes(explanation))
        }
        None if results.len() == 1 && labels::is_gap(result.verdict) => untested_gap(result),
        None => Markup::new(),
    };
    results.iter().map(causes).collect()
}

fn inputs(prediction: &Prediction) -> Markup {
    if prediction.inputs.is_empty() {
        return Markup::new();
    }
    let row = |input: &Input| {
        let value = units::value_text(input.value, input.unit);
        html!("<tr><th>{}</th><td class=\"number\">{}</td><td>{}</td></tr>", input.name, value, input.source)
    };
    let rows = prediction.inputs.iter().map(row).collect();
    DataTable::of_words("Inputs of the prediction", "Inputs", &["Input", "Value", "From"], rows).markup()
}

/// That a gap is not explained, with the hazards that touch such figures as links to them: none was tried as its cause.
fn untested_gap(result: &MetricResult) -> Markup {
    if result.explained_by.is_empty() {
        return html!("<p>Nothing was shown to explain the gap.</p>");
    }
    let links = result.explained_by.iter().map(|id| html!("<a href=\"#{}\">{}</a>", anchor("hazard", id), id));
    html!(
        "<p>Nothing was shown to explain the gap. Hazards of this run that touch such figures, none of them tried: {}.</p>",
        Markup::joined(links, ", ")
    )
}

fn samples(summary: &Summary, metric: &Metric) -> Markup {
    let unit = metric.unit;
    let kind = if summary.distribution.is_of_batch_means { "means of batches" } else { "single operations" };
    let strip = |plot: Markup, caption: &str| html!("<div>{}<p class=\"why\">{}</p></div>", plot, caption);
    let count = format!("Distribution of {} {kind}", units::count(summary.distribution.n));
    let distribution = strip(plots::distribution(summary, unit), &count);
    let rounds = strip(plots::rounds(summary), "Rounds over the run");
    let figures = definition_list(figures(summary, unit).into_iter().chain(sample_findings(summary, unit)));
    let notes = list("notes", &summary.notes);
    html!("<div class=\"strips\">{}{}</div>{}{}", distribution, rounds, figures, notes)
}

/// The figures of a summary, by name.
fn figures(summary: &Summary, unit: Unit) -> [(&'static str, Markup); 9] {
    let figure = |figure: &kelvin_analysis::Figure| {
        let text = units::figure_text(figure, unit).to_string();
        html!("{} {}", text, remark_span(format!("of {}", labels::plural(figure.n, "sample"))))
    };
    let values_text = |values: &[f64]| {
        let values: Vec<String> = values.iter().map(|value| units::value_text(*value, unit)).collect();
        Markup::from(values.join(", "))
    };
    let d = &summary.distribution;
    [
        ("Headline", labels::treatment(summary.treatment).into()),
        ("Error bar", error_bar(summary).into()),
        ("Undisturbed", summary.undisturbed.as_ref().map_or_else(|| "too few samples, or no canaries".into(), figure)),
        ("As measured", figure(&summary.as_found)),
        ("Share undisturbed", units::share(summary.undisturbed_share).into()),
        ("Rounds", rounds(summary, unit).into()),
        ("Best, mean, std", values_text(&[d.best, d.mean, d.std])),
        ("p5, quartiles, p95", values_text(&[d.p5, d.p25, d.p50, d.p75, d.p95])),
        ("Lowest, p99, highest", values_text(&[d.min, d.p99, d.max])),
    ]
}

fn error_bar(summary: &Summary) -> String {
    let interval = summary.interval.map_or_else(|| "none: a single round".into(), labels::interval);
    match summary.learned_runs {
        0 => interval,
        runs => format!("{interval}, spread between runs learned from {}", labels::plural(runs.into(), "earlier run")),
    }
}

fn rounds(summary: &Summary, unit: Unit) -> String {
    let range = min_max(summary.round_headlines.iter().copied()).filter(|_| summary.round_headlines.len() > 1);
    let spread = range.map_or_else(String::new, |(low, high)| format!(" of {}", units::span(low, high, unit)));
    let failed = if summary.failed_rounds > 0 { format!(", {} failed", summary.failed_rounds) } else { String::new() };
    format!("{}{spread}{failed}, worth {:.0} independent samples", summary.rounds, summary.effective_samples)
}

/// Findings on the samples, if any: modes, tags, correlated canaries.
fn sample_findings(summary: &Summary, unit: Unit) -> impl Iterator<Item = (&'static str, Markup)> {
    let mode = |mode: &kelvin_analysis::Mode| {
        let level = mode.level.as_ref().map_or_else(String::new, |level| format!(", {level}"));
        let (center, share) = (units::value_text(mode.center, unit), units::share(mode.share));
        format!("{center} ({share} of the {}{level})", summary.mode_unit.label())
    };
    let tag = |tag: &kelvin_analysis::TagCount| format!("{} {}", units::count(tag.count), tag.tag);
    let canary = |canary: &kelvin_analysis::CanaryCorrelation| {
        format!("{} {:+.2}", labels::canary(canary.canary), canary.correlation)
    };
    let counted = kelvin_analysis::counters::event_rates_text(&summary.counters).into_iter().collect();
    let rows: [(&str, Vec<String>, &str); 4] = [
        ("Counted by the processor", counted, " for each operation"),
        ("Modes", summary.modes.iter().map(mode).collect(), ""),
        ("Tagged", summary.tags.iter().map(tag).collect(), ""),
        ("Correlated with canary", summary.canary_correlations.iter().map(canary).collect(), " (rank correlation)"),
    ];
    let rows = rows.into_iter().filter(|(_, texts, _)| !texts.is_empty());
    rows.map(|(name, texts, kind)| (name, html!("{}{}", texts.join(", "), kind)))
}

/// The results of a group, each with its derivation; of a rate also the best sample.
fn points(group: &ResultGroup<'_>) -> Markup {
    let shows_best = group.points.iter().any(|(_, result)| labels::best_span(&[result]).is_some());
    let derivations: Vec<&str> = group.points.iter().map(|(_, result)| derivation(result)).collect();
    let row = |(index, (position, result)): (usize, &(String, &MetricResult))| {
        let (unit, summary) = (result.metric.unit, result.outcome.summary());
        let text = |value: f64| units::value_text(value, unit);
        let missing = labels::missing_reason(&result.outcome, unit).map(|(word, reason)| format!("{word}: {reason}"));
        let measured = missing.or(summary.map(|summary| units::measured_text(summary, unit)));
        let best = summary.map(|summary| text(summary.distribution.best));
        let as_found = summary
            .map(|summary| format!("{} ({})", text(summary.as_found.value), units::share(summary.undisturbed_share)));
        let predicted = result.prediction.as_ref().map(|prediction| text(prediction.value));
        let cycles = Some(units::cycles_text(result));
        let figures = [as_found, cycles, predicted, result.ratio.map(units::ratio)];
        let figures = std::iter::once(measured).chain(shows_best.then_some(best)).chain(figures);
        let times = analysis_words::half_width_count(result).map(|times| html!(" {}", times));
        let cells = html!("{}<td>{}{}</td>", cells(figures), verdict(result), times);
        html!("<tr><th>{}</th>{}{}</tr>", position, cells, shared_text_cell(&derivations, index))
    };
    let rows = group.points.iter().enumerate().map(row).collect();
    let mut columns = vec![group.axis.as_str(), "Measured"];
    columns.extend(shows_best.then_some("Best"));
    columns.extend(["As measured (undisturbed)", "Cycles", "Predicted", "Ratio", "Verdict", "Derivation"]);
    let title = format!("{} {}", group.metric.id, group.label);
    DataTable { label: &format!("Points of {title}"), ..DataTable::of_figures(&title, &columns, rows) }.markup()
}

/// The derivation of a prediction, or why there is none.
fn derivation(result: &MetricResult) -> &str {
    match &result.prediction {
        Some(prediction) => &prediction.derivation,
        None => result.no_prediction_reason.as_deref().unwrap_or_default(),
    }
}

/// The cell of a text that may span several rows: it is in the first of them.
fn shared_text_cell(texts: &[&str], index: usize) -> Markup {
    if index > 0 && texts[index - 1] == texts[index] {
        return Markup::new();
    }
    let rows = texts[index..].iter().take_while(|text| **text == texts[index]).count();
    let span = (rows > 1).then(|| html!(" rowspan=\"{}\"", rows));
    html!("<td class=\"text\"{}>{}</td>", span, texts[index])
}

/// Warnings, each with the case where there are several; of wide intervals, which the values show, one for all.
fn warnings(results: &[&MetricResult]) -> Markup {
    let warnings = || results.iter().flat_map(|result| result.warnings.iter().map(move |warning| (*result, warning)));
    let wide_intervals: Vec<(f64, f64)> = warnings().filter_map(|(_, warning)| wide_warning(warning)).collect();
    let combined_warning = min_max(wide_intervals.iter().map(|(share, _)| *share)).filter(|_| wide_intervals.len() > 1).map(|(low, high)| {
        let [low, high, target] = [low, high, wide_intervals[0].1].map(units::share);
        let (wide_count, interval_count) = (wide_intervals.len(), results.len());
        format!(
            "{wide_count} of {interval_count} intervals, of ± {low} to {high} of their value, did not reach the target of {target}"
        )
    });
    let with_case = |(result, warning): (&MetricResult, &Warning)| {
        let case = if results.len() > 1 { units::case(&result.metric, &result.case) } else { String::new() };
        let case = (!case.is_empty()).then(|| html!("<span class=\"case\">{}</span> ", case));
        html!("{}{}", case, &*warning.text)
    };
    let single_warnings =
        warnings().filter(|(_, warning)| combined_warning.is_none() || wide_warning(warning).is_none()).map(with_case);
    list("warnings", combined_warning.as_deref().map(Markup::from).into_iter().chain(single_warnings))
}

/// Half of an interval over its value, and its target, of a warning of that.
fn wide_warning(warning: &Warning) -> Option<(f64, f64)> {
    match warning.kind {
        WarningKind::WideInterval { share, target } => Some((share, target)),
        _ => None,
    }
}

/// Published values of the same metric on other machines, marked if not of the same quantity.
fn published(report: &Report<'_>, metric: &Metric, case: Option<&Case>) -> Markup {
    let mut rows = Markup::new();
    for reference in report.references {
        let values = reference.values.iter().filter(|value| value.metric == metric.id);
        for value in values.filter(|value| case.is_none_or(|case| value.case == *case)) {
            let text = |figure| units::value_text(figure, value.unit);
            let deviation = value.std.map(|std| format!(", std {}", text(std)));
            let count = value.n.map(|n| format!(", n {}", units::count(n)));
            let predicted = value.predicted.map(|predicted| format!(", predicted {}", text(predicted)));
            let statistics: String = [deviation, count, predicted].into_iter().flatten().collect();
            let range_remark = |range| html!("{} covers {}. ", pill("odd", "not comparable"), range);
            let cycles = value.cycles.map(|cycles| units::value_text(cycles, Unit::Cycles));
            let other_values = value.other_values.iter().map(|(label, figure)| format!("{label}: {figure}"));
            let notes: Vec<String> = value.note.iter().cloned().chain(cycles).chain(other_values).collect();
            let figures = cells([units::case(metric, &value.case), text(value.value) + &statistics]);
            let remarks = html!("{}{}", value.range.as_ref().map(range_remark), notes.join("; "));
            rows.push(html!("<tr><th>{}</th>{}{}</tr>", reference.title, figures, text_cell(remarks)));
        }
    }
    if rows.is_empty() {
        return rows;
    }
    let columns = ["Machine", "Case", "Value", "Remarks"];
    DataTable::of_words("Published values", "Published on other machines", &columns, rows).markup()
}

/// A link to the method, if it is in the report.
fn method(report: &Report<'_>, result: &MetricResult) -> Option<Markup> {
    let id = report.probe(&result.probe)?.id;
    let (anchor, version) = (anchor("method", &id), result.metric.version);
    let link = html!("<a href=\"#{}\">Method of <code>{}</code></a>", anchor, id);
    Some(html!("<p class=\"to-method\">{}, version {}</p>", link, version))
}

/// The methods of a run's probes, each once, in the order of the results.
pub(super) fn methods(report: &Report<'_>) -> Markup {
    let probes = grouped(report.analysis.results.iter().map(|result| (result.probe, ()))).into_iter();
    probes.filter_map(|(probe, _)| report.probe(&probe)).map(method_text).collect()
}

fn method_text(probe: &ProbeDocs) -> Markup {
    let ProbeDocs { id, summary, method, prediction, pitfalls, sources, must_not_be_used_for } = probe;
    let mut page =
        html!("<p class=\"lead\">{}</p><p>{}</p><p><strong>Prediction:</strong> {}</p>", summary, method, prediction);
    let exclusion = must_not_be_used_for.as_ref().map(|text| text.trim_end_matches('.'));
    page.extend(exclusion.map(|text| html!("<p><strong>Must not be used for:</strong> {}.</p>", text)));
    let part = |title: &str, items: &[String]| {
        let items = list("notes", items);
        if items.is_empty() { items } else { html!("<h4>{}</h4>{}", title, items) }
    };
    page.push(part("Pitfalls", pitfalls));
    page.push(part("Sources", sources));
    let anchor = anchor("method", id);
    html!("<details class=\"method\" id=\"{}\"><summary><code>{}</code></summary>{}</details>", anchor, id, page)
}
