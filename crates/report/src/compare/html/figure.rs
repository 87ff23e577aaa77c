//! A figure of both sides: a line that opens to what its ratio and its verdict rest on.

use kelvin_analysis::wording::compare::{ComparisonRow, change_word, comparison_row, side_texts, verdict_grounds};
use kelvin_core::units::case_pairs;
use kelvin_core::{ComparedFigure, Comparison};

use super::SIDES;
use super::forest::Forest;
use super::strip::strip;
use crate::escape::{Markup, html};
use crate::html::{definition_list, pill, table_row};
use crate::svg::ladder::compared::verdict_class;

/// The id of the element of a figure, by its place among all.
pub(super) fn anchor(index: usize) -> String {
    format!("figure-{}", index + 1)
}

/// A figure, by its place among all.
pub(super) fn figure((index, figure): (usize, &ComparedFigure), comparison: &Comparison, forest: &Forest) -> Markup {
    let ComparisonRow { base, other, ratio, interval, needs, cause, compared_by, .. } =
        comparison_row(figure, comparison);
    // What explains a change, or what is needed to know one.
    let remarks = [compared_by, needs, cause].into_iter().filter(|text| !text.is_empty());
    let remarks: Markup = remarks.map(|text| html!("<span class=\"needs\">{}</span>", text)).collect();
    let name = html!("<span class=\"name\">{}{}</span>", figure_name(figure), remarks);
    let sides = html!("<span><i>A</i> {}</span><span><i>B</i> {}</span>", base, other);
    let ratio = html!("<span class=\"by\"><b>{}</b> {}</span>{}", ratio, interval, forest.row(figure));
    let verdict = pill(verdict_class(&figure.verdict), change_word(&figure.verdict));
    let summary = html!("<summary>{}{}{}<span class=\"verdict\">{}</span></summary>", name, sides, ratio, verdict);
    let details = details(figure, comparison);
    html!("<details class=\"compared\" id=\"{}\">{}{}</details>", anchor(index), summary, details)
}

/// The metric, which may break after a dot, and the case, which breaks between its values.
fn figure_name(figure: &ComparedFigure) -> Markup {
    let id = Markup::joined(figure.metric.id.split('.').map(Markup::from), ".<wbr>");
    let value = |(axis, value): (&str, String)| html!(" <span class=\"at\">{}={}</span>", axis, value);
    html!("{}{}", id, case_pairs(&figure.metric, &figure.case).into_iter().map(value).collect::<Markup>())
}

/// What a figure opens to.
fn details(figure: &ComparedFigure, comparison: &Comparison) -> Markup {
    let side = |index: usize| table_row(SIDES[index], side_texts(figure, index));
    let grounds = verdict_grounds(figure, comparison);
    let grounds =
        (!grounds.is_empty()).then(|| definition_list(grounds.iter().map(|(term, text)| (*term, text.into()))));
    let head = html!("<thead><tr><th></th><th>figure</th><th>95 %</th><th>rounds</th></tr></thead>");
    let table = html!("<table class=\"plain numbers\">{}<tbody>{}{}</tbody></table>", head, side(0), side(1));
    let columns = html!("<div class=\"columns\"><div>{}{}</div>{}</div>", strip(figure), table, grounds);
    html!("<div class=\"opened\"><p class=\"lead\">{}</p>{}</div>", figure.metric.summary, columns)
}
