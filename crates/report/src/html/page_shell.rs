//! A page without scripts: one style, the only one that takes effect, and the body.

use std::io;

use super::{csp, without_implied_ends};
use crate::escape::{Markup, html};
use crate::{palette, svg};

const STYLE: &str = include_str!("../../assets/page.css");

/// The beginning of every page, up to its title.
pub(super) fn head(policy: &str, metadata: Markup, title: &str) -> Markup {
    html!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\
         <meta name=\"color-scheme\" content=\"light dark\">{}<title>{}</title>",
        policy,
        metadata,
        title
    )
}

/// A page without scripts.
pub(crate) struct PageShell<'a> {
    /// What it is of, for the name of its window: `history`.
    pub subject: &'a str,
    pub title: &'a str,
    /// The style of what only this page has.
    pub style: &'a str,
    /// Inside of its main element.
    pub body: Markup,
}

impl PageShell<'_> {
    /// Writes it.
    pub(crate) fn write(&self, out: &mut dyn io::Write) -> io::Result<()> {
        let style = format!("{}{}{STYLE}{}", palette::css_properties(), svg::style_sheet(), self.style);
        let title = format!("kelvin {}: {}", self.subject, self.title);
        let head = head(&csp::content_security_policy(None, &[&style]), Markup::new(), &title);
        write!(out, "{}<style>{style}</style></head>", head.as_str())?;
        let body = html!("<body><main>{}</main></body></html>\n", self.body);
        out.write_all(without_implied_ends(body.as_str()).as_bytes())
    }
}
