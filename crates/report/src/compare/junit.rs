//! A comparison as JUnit's XML, which services that run tests show: a case for each figure, and a failure where it misses the gate.

use std::collections::HashMap;
use std::io;

use kelvin_analysis::words::compare::{apart, found_by_gate, name, row, verdict};
use kelvin_model::{ChangeVerdict, ComparedFigure, Comparison, GateFinding, Gated};

use crate::safe::{Markup, html};

/// A comparison as JUnit's XML. Without a gate nothing fails.
#[derive(Clone, Copy, Debug)]
pub struct Tested;

impl Tested {
    /// Writes it.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn render(&self, comparison: &Comparison, out: &mut dyn io::Write) -> io::Result<()> {
        let gate = Gate::of(comparison.gated.as_ref());
        let cases: Vec<(Outcome, Markup)> = comparison
            .figures
            .iter()
            .map(|figure| gate.case(figure, comparison))
            .chain(gate.not_compared(comparison))
            .collect();
        let count = |outcome: Outcome| cases.iter().filter(|(one, _)| *one == outcome).count();
        let suite = html!(
            "<testsuite name=\"kelvin compare {} {}\" tests=\"{}\" failures=\"{}\" errors=\"0\" skipped=\"{}\">\n{}</testsuite>\n",
            comparison.base.name,
            comparison.other.name,
            cases.len(),
            count(Outcome::Failed),
            count(Outcome::Skipped),
            cases.iter().map(|(_, case)| case.clone()).collect::<Markup>()
        );
        let page = html!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n{}</testsuites>\n", suite);
        out.write_all(page.as_str().as_bytes())
    }
}

/// What became of a case.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Passed,
    Failed,
    Skipped,
}

/// What the gate has found, by the names of figures.
struct Gate<'a> {
    missed: HashMap<&'a str, &'a GateFinding>,
    known: HashMap<&'a str, &'a GateFinding>,
}

impl<'a> Gate<'a> {
    fn of(gated: Option<&'a Gated>) -> Self {
        let by_name = |found: &'a [GateFinding]| found.iter().map(|one| (one.figure.as_str(), one)).collect();
        let [missed, known] = gated.map_or([&[][..], &[]], |gated| [&gated.missed, &gated.known]).map(by_name);
        Self { missed, known }
    }

    fn case(&self, figure: &ComparedFigure, comparison: &Comparison) -> (Outcome, Markup) {
        let (row, name) = (row(figure, comparison), name(figure));
        let cause = if row.cause.is_empty() { String::new() } else { format!("; {}", row.cause) };
        let said = format!(
            "{}: {} against {}, ratio {}, 95 % {}{cause}",
            verdict(&figure.verdict),
            row.other,
            row.base,
            row.ratio,
            row.interval
        );
        let [missed, known] = [&self.missed, &self.known].map(|found| found.get(&*name));
        let (outcome, inside) = match &figure.verdict {
            _ if missed.is_some() => {
                let message = missed.map(|one| found_by_gate(one));
                (Outcome::Failed, html!("<failure message=\"{}\">{}</failure>", message, said))
            }
            _ if known.is_some() => {
                (Outcome::Skipped, html!("<skipped message=\"{}\"/>", known.map(|one| found_by_gate(one))))
            }
            ChangeVerdict::NotKnown(_) => (Outcome::Skipped, html!("<skipped message=\"not known: {}\"/>", row.needs)),
            _ => (Outcome::Passed, html!("<system-out>{}</system-out>", said)),
        };
        (outcome, one(&figure.metric.id, &name, &inside))
    }

    fn not_compared(&self, comparison: &Comparison) -> Vec<(Outcome, Markup)> {
        let case = |figure: &String, why: &String| {
            let metric = figure.split(' ').next().unwrap_or_default();
            let (outcome, inside) = match self.missed.get(figure.as_str()) {
                Some(found) => {
                    (Outcome::Failed, html!("<failure message=\"{}\">{}</failure>", found_by_gate(found), why))
                }
                None => (Outcome::Skipped, html!("<skipped message=\"{}\"/>", why)),
            };
            (outcome, one(metric, figure, &inside))
        };
        let groups = apart(comparison);
        groups.iter().flat_map(|(why, figures)| figures.iter().map(move |figure| case(figure, why))).collect()
    }
}

fn one(metric: &str, name: &str, inside: &Markup) -> Markup {
    html!("<testcase classname=\"{}\" name=\"{}\">{}</testcase>\n", metric, name, inside)
}
