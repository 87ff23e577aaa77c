//! A comparison as JUnit's XML, which services that run tests show: a case for each figure, and a failure where it misses a gate.

use std::io;

use kelvin_analysis::words::compare::{apart, by, name, row, verdict};
use kelvin_model::{ChangeVerdict, ComparedFigure, Comparison};

use crate::safe::{Markup, html};

/// A comparison as JUnit's XML.
#[derive(Clone, Copy)]
pub struct Tested<'a> {
    /// Whether a figure misses the gate.
    pub is_missed: &'a dyn Fn(&ComparedFigure) -> bool,
}

impl Tested<'_> {
    /// Writes it.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn render(&self, comparison: &Comparison, out: &mut dyn io::Write) -> io::Result<()> {
        let figures = &comparison.figures;
        let missed = figures.iter().filter(|figure| (self.is_missed)(figure)).count();
        let unknown = comparison.with(|one| matches!(one, ChangeVerdict::NotKnown(_))).count();
        let left = comparison.not_compared.len();
        let suite = html!(
            "<testsuite name=\"kelvin compare {} {}\" tests=\"{}\" failures=\"{}\" errors=\"0\" skipped=\"{}\">\n{}{}</testsuite>\n",
            comparison.base.name,
            comparison.other.name,
            figures.len() + left,
            missed,
            unknown + left,
            figures.iter().map(|figure| self.case(figure, comparison)).collect::<Markup>(),
            not_compared(comparison)
        );
        let page = html!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n{}</testsuites>\n", suite);
        out.write_all(page.as_str().as_bytes())
    }

    fn case(&self, figure: &ComparedFigure, comparison: &Comparison) -> Markup {
        let row = row(figure, comparison);
        let said = format!(
            "{}: {} against {}, ratio {}, 95 % {}",
            verdict(&figure.verdict),
            row.other,
            row.base,
            row.ratio,
            row.interval
        );
        let inside = match &figure.verdict {
            _ if (self.is_missed)(figure) => html!("<failure message=\"{}\">{}</failure>", by(figure), said),
            ChangeVerdict::NotKnown(_) => html!("<skipped message=\"not known: {}\"/>", row.needs),
            _ => html!("<system-out>{}</system-out>", said),
        };
        html!("<testcase classname=\"{}\" name=\"{}\">{}</testcase>\n", figure.metric.id, name(figure), inside)
    }
}

fn not_compared(comparison: &Comparison) -> Markup {
    let case = |figure: &String, why: &String| {
        let metric = figure.split(' ').next().unwrap_or_default();
        html!("<testcase classname=\"{}\" name=\"{}\"><skipped message=\"{}\"/></testcase>\n", metric, figure, why)
    };
    let groups = apart(comparison);
    groups.iter().flat_map(|(why, figures)| figures.iter().map(move |figure| case(figure, why))).collect()
}
