//! Elements of pages that stand alone.

use crate::escape::{HtmlPiece, Markup, html};

/// Terms and descriptions.
pub(crate) fn definition_list<'a>(pairs: impl IntoIterator<Item = (&'a str, Markup)>) -> Markup {
    let pairs: Markup = pairs.into_iter().map(|(term, text)| html!("<dt>{}</dt><dd>{}</dd>", term, text)).collect();
    html!("<dl class=\"terms\">{}</dl>", pairs)
}

/// Cells of a table.
pub(crate) fn cells<C: HtmlPiece>(cells: impl IntoIterator<Item = C>) -> Markup {
    cells.into_iter().map(|cell| html!("<td>{}</td>", cell)).collect()
}

/// A table of data that scrolls within its own box where it is wider than the page.
pub(crate) fn scrollable(label: &str, table: Markup) -> Markup {
    html!("<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"{}\">{}</div>", label, table)
}
