//! A figure of both sides: a line that opens to what its ratio and its verdict rest on.

use kelvin_analysis::wording::compare::{ComparisonRow, change_word, comparison_row, side_texts, verdict_grounds};
use kelvin_core::units::case_pairs;
use kelvin_core::{ComparedFigure, Comparison};

use super::SIDES;
use super::forest::Forest;
use super::strip::strip;
use crate::escape::{Markup, html};
use crate::html::{definition_list, table_row};
use crate::svg::ladder::compared::verdict_class;

/// The id of the element of a figure, by its place among all.
pub(super) fn anchor(at: usize) -> String {
    format!("figure-{}", at + 1)
}

/// A figure, by its place among all.
pub(super) fn figure((at, one): (usize, &ComparedFigure), comparison: &Comparison, forest: &Forest) -> Markup {
    let ComparisonRow { base, other, ratio, interval, needs, cause, compared_by, .. } = comparison_row(one, comparison);
    // What explains a change, or what is needed to know one.
    let below = [compared_by, needs, cause].into_iter().filter(|text| !text.is_empty());
    let below: Markup = below.map(|text| html!("<span class=\"needs\">{}</span>", text)).collect();
    html!(
        "<details class=\"compared\" id=\"{}\"><summary><span class=\"name\">{}{}</span><span><i>A</i> {}</span><span><i>B</i> {}</span>\
         <span class=\"by\"><b>{}</b> {}</span>{}<span class=\"verdict\"><span class=\"pill {}\">{}</span></span></summary>{}</details>",
        anchor(at),
        figure_name(one),
        below,
        base,
        other,
        ratio,
        interval,
        forest.row(one),
        verdict_class(&one.verdict),
        change_word(&one.verdict),
        details(one, comparison)
    )
}

/// The metric, which may break after a dot, and the case, which breaks between its values.
fn figure_name(one: &ComparedFigure) -> Markup {
    let id = Markup::joined(one.metric.id.split('.').map(Markup::from), ".<wbr>");
    let value = |(axis, value): (&str, String)| html!(" <span class=\"at\">{}={}</span>", axis, value);
    html!("{}{}", id, case_pairs(&one.metric, &one.case).into_iter().map(value).collect::<Markup>())
}

/// What a figure opens to.
fn details(one: &ComparedFigure, comparison: &Comparison) -> Markup {
    let side = |at: usize| table_row(SIDES[at], side_texts(one, at));
    let grounds = verdict_grounds(one, comparison);
    let grounds =
        (!grounds.is_empty()).then(|| definition_list(grounds.iter().map(|(term, text)| (*term, text.into()))));
    html!(
        "<div class=\"opened\"><p class=\"lead\">{}</p><div class=\"columns\"><div>{}<table class=\"plain numbers\"><thead><tr><th></th>\
         <th>figure</th><th>95 %</th><th>rounds</th></tr></thead><tbody>{}{}</tbody></table></div>{}</div></div>",
        one.metric.summary,
        strip(one),
        side(0),
        side(1),
        grounds
    )
}
