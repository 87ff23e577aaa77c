//! A comparison as Markdown: for a pull request.

use std::io;

use kelvin_analysis::words::compare::{Row, apart, counts, found_by_gate, nothing_differs, remarks, row, side};
use kelvin_model::{Comparison, GateFinding, Gated};

use super::{OPEN, TABLES};
use crate::safe::{Marked, md};

/// A comparison as Markdown (GitHub's flavour: tables, and what folds).
#[derive(Clone, Copy, Debug)]
pub struct Pulled;

impl Pulled {
    /// Writes it.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn render(&self, comparison: &Comparison, out: &mut dyn io::Write) -> io::Result<()> {
        let page = md!(
            "### kelvin: {} against {}\n\n{}\n\n{}{}{}{}{}",
            comparison.other.name,
            comparison.base.name,
            counts(comparison),
            comparison.gated.as_ref().map(gate),
            differences(comparison),
            TABLES
                .iter()
                .enumerate()
                .map(|(at, (title, is))| {
                    let rows: Vec<Row> = comparison.with(is).map(|figure| row(figure, comparison)).collect();
                    table(title, at >= OPEN, &rows, comparison)
                })
                .collect::<Marked>(),
            left_apart(comparison),
            known(comparison)
        );
        out.write_all(page.as_str().as_bytes())
    }
}

/// What misses the gate, and what would if it were not known.
fn gate(gated: &Gated) -> Marked {
    let lines =
        |found: &[GateFinding]| -> Marked { found.iter().map(|one| md!("- {}\n", found_by_gate(one))).collect() };
    let missed = match gated.missed.as_slice() {
        [] => md!("**No figure misses the gate.**\n\n"),
        [one] => md!("**A miss of the gate:**\n\n{}\n", lines(std::slice::from_ref(one))),
        all => md!("**Misses of the gate:**\n\n{}\n", lines(all)),
    };
    let known = match gated.known.as_slice() {
        [] => Marked::new(),
        all => folded(&format!("Known ({})", all.len()), lines(all)),
    };
    md!("{}{}", missed, known)
}

/// What else differs: it comes before the figures that it may explain.
fn differences(comparison: &Comparison) -> Marked {
    let facts = &comparison.differences;
    if facts.is_empty() {
        return md!("{}\n\n", nothing_differs(comparison));
    }
    let text = |side: &Option<String>| side.clone().unwrap_or_else(|| "none".into());
    let rows: Marked = facts
        .iter()
        .map(|fact| md!("| {}: {} | {} | {} |\n", fact.group, fact.label, text(&fact.base), text(&fact.other)))
        .collect();
    let [base, other] = [&comparison.base.name, &comparison.other.name];
    folded(&format!("What else differs ({})", facts.len()), md!("| | {} | {} |\n|:--|:--|:--|\n{}", base, other, rows))
}

/// A table of figures; one of what nobody has to act on is folded.
fn table(title: &str, is_folded: bool, rows: &[Row], comparison: &Comparison) -> Marked {
    if rows.is_empty() {
        return Marked::new();
    }
    let needs = rows.iter().any(|row| !row.needs.is_empty());
    let causes = rows.iter().any(|row| !row.cause.is_empty());
    let asked = |columns: [(bool, Marked); 2]| -> Marked {
        columns.into_iter().filter(|(is, _)| *is).map(|(_, column)| column).collect()
    };
    let line = |row: &Row| {
        let more = asked([(needs, md!(" {} |", row.needs)), (causes, md!(" {} |", row.cause))]);
        md!(
            "| {} | {} | {} | {} | {} |{}\n",
            Marked::code(&row.figure),
            row.base,
            row.other,
            row.ratio,
            row.interval,
            more
        )
    };
    let more = asked([(needs, md!(" to know it |")), (causes, md!(" what explains it |"))]);
    let rule = asked([(needs, md!(":--|")), (causes, md!(":--|"))]);
    let head = md!(
        "| figure | {} | {} | ratio | 95 % |{}\n|:--|--:|--:|--:|--:|{}\n",
        comparison.base.name,
        comparison.other.name,
        more,
        rule
    );
    let body = md!("{}{}", head, rows.iter().map(line).collect::<Marked>());
    if is_folded { folded(&format!("{title} ({})", rows.len()), body) } else { md!("#### {}\n\n{}\n", title, body) }
}

fn left_apart(comparison: &Comparison) -> Marked {
    let groups = apart(comparison);
    if groups.is_empty() {
        return Marked::new();
    }
    let names = |figures: &[String]| Marked::joined(figures.iter().map(|name| Marked::code(name)), ", ");
    let lines: Marked = groups.iter().map(|(why, figures)| md!("- {}: {}\n", why, names(figures))).collect();
    folded(&format!("Not compared ({})", comparison.not_compared.len()), lines)
}

/// What the verdicts rest on.
fn known(comparison: &Comparison) -> Marked {
    let sides = [&comparison.other, &comparison.base].map(|one| side(one, comparison));
    let all = sides.into_iter().chain(remarks(comparison));
    folded("How this is known", all.map(|said| md!("- {}\n", said)).collect())
}

fn folded(title: &str, body: Marked) -> Marked {
    md!("<details><summary>{}</summary>\n\n{}\n</details>\n\n", title, body)
}
