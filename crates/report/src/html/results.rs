//! The prediction table of an area: a row for each metric, line of a curve or matrix, with its details.

use kelvin_analysis::{MetricResult, Outcome, RangeVerdict};
use kelvin_core::{HeadlineSamples, Metric, Unit};
use kelvin_stats::min_max;

use super::group::ResultGroup;
use super::method::is_in_study;
use super::{cells, detail, figure, folded, heading, pill, plots, remark_span};
use crate::escape::{Markup, html};
use crate::figures::Figure;
use crate::sections::{CommonAxes, MAX_NAMED, Section, SectionEntry, without_area};
use crate::text::grouped;
use crate::{Report, labels, study_tables, units};

/// Columns of the table.
const COLUMNS: [&str; 6] = ["Metric", "Measured", "Cycles", "Predicted", "Ratio", "Verdict"];

/// The column names for the style sheet: on narrow screens rows become cards with labelled cells.
pub(super) fn column_label_rules() -> String {
    let rule = |(index, name): (usize, &&str)| format!(".results td:nth-child({}){{--label:\"{name}\"}}", index + 1);
    COLUMNS.iter().enumerate().skip(1).map(rule).collect()
}

/// The section of an area: table, then the figures of its curves.
pub(super) fn area(report: &Report<'_>, section: &Section<'_>, figures: &[Figure], id: &str) -> Markup {
    let mut page = heading(id, &section.title);
    page.extend(section.common_axes.sentence().map(|sentence| html!("<p class=\"lead\">{}</p>", sentence)));
    let (mut lines, mut missing) = (Markup::new(), Vec::new());
    let (study_entries, own_entries): (Vec<&SectionEntry<'_>>, Vec<&SectionEntry<'_>>) =
        section.entries.iter().partition(|entry| is_in_study_tables(report, entry));
    let context = (report, &section.common_axes);
    let [own_rows, study_rows] = [own_entries, study_entries]
        .map(|entries| entries.into_iter().flat_map(|entry| rows(context, entry, figures)).collect::<Vec<ResultRow>>());
    // Of what has no number at all each reason is a line, and no table.
    let has_table = own_rows.iter().any(|row| matches!(row.cells, ResultCells::Number(_)));
    let min_folded = if has_table { MIN_FOLDED_ROWS } else { 1 };
    for (index, row) in own_rows.iter().enumerate() {
        let html = row.html(&format!("{id}-{}", index + 1));
        let shared = own_rows.iter().filter(|other| other.missing_reason() == row.missing_reason()).count();
        match row.missing_reason().filter(|_| shared >= min_folded) {
            Some(reason) => missing.push((reason, (row.name.clone(), html))),
            None => lines.push(html),
        }
    }
    if !lines.is_empty() {
        page.push(html!(
            "<p class=\"table-controls js-only\"><button type=\"button\" data-action=\"expand-all\" aria-expanded=\"false\">\
             Show all derivations</button></p>"
        ));
        page.push(table(&section.title, lines));
    }
    let folded_by_reason = grouped(missing).into_iter();
    page.extend(folded_by_reason.map(|(reason, rows)| folded_rows(&section.title, reason, rows, has_table)));
    if !study_rows.is_empty() {
        let rows = study_rows.iter().enumerate();
        let rows = rows.map(|(index, row)| row.html(&format!("{id}-in-tables-{}", index + 1))).collect();
        let summary = labels::plural(study_rows.len() as u64, "more line");
        let summary = html!("{} {}", summary, remark_span("also in the tables of the study"));
        page.push(folded(summary, table(&format!("{}, in the tables of the study", section.title), rows)));
    }
    let is_own = |figure: &Figure| figure.is_of(section.area) && !is_in_study(report, figure);
    let own_figures = figures.iter().enumerate().filter(|(_, figure)| is_own(figure));
    page.extend(own_figures.map(|(index, figure)| figure::figure(figure, index)));
    page
}

/// Minimum rows without a number for one reason that are folded away below the table: they would hide the others.
const MIN_FOLDED_ROWS: usize = 3;

/// Rows without a number for one reason, each with its name, below a table or in place of one.
fn folded_rows(title: &str, (word, reason): (&str, &str), rows: Vec<(Markup, Markup)>, has_table: bool) -> Markup {
    let (names, rows): (Vec<Markup>, Vec<Markup>) = rows.into_iter().unzip();
    let count_text = |noun: &str| labels::plural(names.len() as u64, noun).into();
    let label = match (has_table, names.len() <= MAX_NAMED) {
        (true, _) => count_text("more line"),
        (false, true) => Markup::joined(names, ", "),
        (false, false) => count_text("line"),
    };
    let rows = rows.into_iter().collect();
    folded(html!("{} {}", label, reason_pill(word, reason)), table(&format!("{title}, {word}"), rows))
}

/// Whether the tables of a study have it: all of its metric, or this one row. Lines lead to their figures, and stay.
fn is_in_study_tables(report: &Report<'_>, entry: &SectionEntry<'_>) -> bool {
    study_tables::has_metric(report, entry.metric())
        || matches!(entry, SectionEntry::Single(result) if study_tables::has_result(report, result))
}

fn table(title: &str, rows: Markup) -> Markup {
    let columns: Markup = COLUMNS.iter().map(|name| html!("<th>{}</th>", name)).collect();
    let caption = html!("<caption class=\"unseen\">{}: measured next to predicted</caption>", title);
    let head = html!("<colgroup><col><col><col><col><col><col></colgroup><thead><tr>{}</tr></thead>", columns);
    html!("<table class=\"results\">{}{}{}</table>", caption, head, rows)
}

/// A row of the table and its details.
struct ResultRow {
    name: Markup,
    cells: ResultCells,
    detail: Markup,
}

impl ResultRow {
    /// Why there is no number.
    fn missing_reason(&self) -> Option<(&'static str, &str)> {
        if let ResultCells::Missing(word, reason) = &self.cells { Some((word, reason)) } else { None }
    }

    /// The row with the number of its points, linked to their figure if there is one.
    fn with_points(mut self, points: &str, figure: Option<&Figure>) -> Self {
        self.name.push(match figure {
            Some(figure) => html!(" <a class=\"to-figure\" href=\"#figure-{}\">{}, figure</a>", figure.id, points),
            None => html!(" {}", other_text(points)),
        });
        self
    }

    /// The row and its details, which the script hides until opened.
    fn html(&self, id: &str) -> Markup {
        let name = html!("<th><span class=\"name\" data-expand=\"{}\">{}</span></th>", id, self.name);
        let detail = html!("<tr class=\"detail\" id=\"{}\"><td colspan=\"6\">{}</td></tr>", id, self.detail);
        html!("<tbody><tr>{}{}</tr>{}</tbody>", name, self.cells.html(), detail)
    }
}

/// The cells after the name.
enum ResultCells {
    /// A number and its comparison: measured, cycles, predicted, ratio and verdict.
    Number([Markup; 5]),
    /// Why there is no number: the word and the reason, of a line those of its first point.
    Missing(&'static str, String),
}

impl ResultCells {
    fn missing(result: &MetricResult) -> Self {
        let (word, reason) = labels::missing_reason(&result.outcome, result.metric.unit).unwrap_or_default();
        Self::Missing(word, reason)
    }

    fn html(&self) -> Markup {
        match self {
            Self::Number(figures) => cells(figures.iter().cloned()),
            Self::Missing(word, reason) => {
                html!("<td class=\"missing\" colspan=\"5\">{}</td>", reason_pill(word, reason))
            }
        }
    }
}

/// The rows of an entry; `figures` are those of the page.
fn rows(context: (&Report<'_>, &CommonAxes), entry: &SectionEntry<'_>, figures: &[Figure]) -> Vec<ResultRow> {
    let groups = match entry {
        SectionEntry::Single(result) => return vec![single(context, result)],
        SectionEntry::Curve(curve) => ResultGroup::of_curve(curve),
        SectionEntry::Matrix(matrix) => vec![ResultGroup::of_matrix(matrix)],
    };
    let row = |(index, group): (usize, &ResultGroup<'_>)| {
        let figure = figures.iter().find(|figure| figure.shows_line(group.metric.id, &group.label));
        let row = match group.points.as_slice() {
            [(_, result)] if groups.len() == 1 => single(context, result),
            _ => group_row(context, group, index == 0),
        };
        row.with_points(&group.count_text(), figure)
    };
    groups.iter().enumerate().map(row).collect()
}

/// The id without its area, and the case as words next to it.
fn name(metric: &Metric, case: &str, marks: Markup) -> Markup {
    // Long ids may break after a dot.
    let local_id = Markup::joined(without_area(metric.id.as_str()).split('.').map(Markup::from), ".<wbr>");
    let case = (!case.is_empty()).then(|| html!(" <span class=\"case\">{}</span>", case));
    html!("<span class=\"id\">{}</span>{}{}", local_id, case, marks)
}

fn single((report, common_axes): (&Report<'_>, &CommonAxes), result: &MetricResult) -> ResultRow {
    let unit = result.metric.unit;
    let only_input = result.only_input.then(|| html!(" {}", pill("quiet", "input only")));
    let cells = match &result.outcome {
        Outcome::Measured(summary) => {
            let value = units::measured_text(summary, unit);
            let predicted = result.prediction.as_ref().map(|prediction| units::value_text(prediction.value, unit));
            ResultCells::Number([
                html!("<strong>{}</strong>{}", value, other_figure(result)),
                units::cycles_text(result).into(),
                predicted.unwrap_or_default().into(),
                ratio(&[result]),
                detail::verdict(result),
            ])
        }
        _ => ResultCells::missing(result),
    };
    let case = common_axes.rest_text(&result.metric, &result.case);
    ResultRow {
        name: name(&result.metric, &case, html!("{}{}", only_input, note_mark(&[result]))),
        cells,
        detail: detail::single(report, result),
    }
}

/// A mark where a result has a warning.
fn note_mark(results: &[&MetricResult]) -> Markup {
    let has_warnings = results.iter().any(|result| !result.warnings.is_empty());
    if has_warnings { html!(" {}", pill("odd", "note")) } else { Markup::new() }
}

/// The figure that is not the headline, so that both show: what a user gets and what the machine can do.
fn other_figure(result: &MetricResult) -> Markup {
    let Some(summary) = result.outcome.summary() else { return Markup::new() };
    let unit = result.metric.unit;
    // The share stays on one line.
    let share = units::share(summary.undisturbed_share).replace(' ', "\u{a0}") + "\u{a0}kept";
    let text = match (summary.treatment, summary.undisturbed) {
        (HeadlineSamples::AsFound, Some(undisturbed)) => {
            format!("undisturbed {}; {share}", units::figure_text(&undisturbed, unit))
        }
        (HeadlineSamples::AsFound, None) => "as measured".into(),
        _ => format!("as measured {}; {share}", units::figure_text(&summary.as_found, unit)),
    };
    html!("{}{}", other_text(&labels::best_span(&[result]).unwrap_or_default()), other_text(&text))
}

/// A second figure below the first; nothing for no text.
fn other_text(text: &str) -> Markup {
    if text.is_empty() { Markup::new() } else { html!("<span class=\"other\">{}</span>", text) }
}

/// Why there is no number: the word and the reason.
fn reason_pill(word: &str, reason: &str) -> Markup {
    let class = if matches!(word, "failed" | "invalid") { "bad" } else { "quiet" };
    html!("{} {}", pill(class, word), remark_span(reason))
}

/// The ratio as a number, and as a bar.
fn ratio(results: &[&MetricResult]) -> Markup {
    let Some(text) = labels::ratio_range(results, "–") else { return Markup::new() };
    html!("<span class=\"ratio-number\">{}</span>{}", text, plots::ratio_bar(results))
}

/// Several results as one row.
fn group_row((report, common_axes): (&Report<'_>, &CommonAxes), group: &ResultGroup<'_>, is_first: bool) -> ResultRow {
    let results = group.results();
    let unit = group.metric.unit;
    let range = |value: fn(&MetricResult) -> Option<f64>| min_max(results.iter().filter_map(|result| value(result)));
    // A prediction for an unmeasured point is shown with that point, not next to another's measurement.
    let predicted = range(|result| result.outcome.summary().and(Some(result.prediction.as_ref()?.value)));
    let span =
        |range: Option<(f64, f64)>, unit| range.map(|(low, high)| units::span(low, high, unit)).unwrap_or_default();
    let measured = range(|result| result.outcome.summary().map(|summary| summary.headline));
    let best = labels::best_span(&results);
    let cells = match measured {
        None => ResultCells::missing(results[0]),
        measured => ResultCells::Number([
            html!("<strong>{}</strong>{}", span(measured, unit), other_text(&best.unwrap_or_default())),
            units::without_cycles(&span(range(|result| result.cycles), Unit::Cycles)).into(),
            span(predicted, unit).into(),
            ratio(&results),
            line_verdict(&results),
        ]),
    };
    ResultRow {
        name: name(group.metric, &common_axes.rest_text(group.metric, &group.fixed), note_mark(&results)),
        cells,
        detail: detail::group(report, group, is_first),
    }
}

/// The verdicts of a line's points in one word.
fn line_verdict(results: &[&MetricResult]) -> Markup {
    if let Some(gaps) = labels::gap_counts(results) {
        return html!("<b class=\"odd\">◆ {}</b>", gaps);
    }
    let verdicts = [RangeVerdict::AsPredicted, RangeVerdict::NotPredicted].into_iter();
    let result = verdicts.flat_map(|verdict| results.iter().find(move |result| result.verdict == verdict)).next();
    result.map(|result| detail::verdict(result)).unwrap_or_default()
}
