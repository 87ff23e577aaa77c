//! The back of the page: studies, published machines, how it was measured, and the glossary.

use kelvin_analysis::wording::compare::program_text;
use kelvin_analysis::{StatedConclusion, Study, StudyAnswer, StudyColumn, StudyRow, StudyTable};
use kelvin_core::{Foreign, Unit};

use super::{
    DataTable, cells, definition_list, detail, figure, folded, folded_data, heading, list, pill, remark_span, summary,
    table_row, text_cell,
};
use crate::escape::{Markup, html};
use crate::figures::{Figure, safe_file_name};
use crate::terminal::{is_study, leading_conclusions, study_title};
use crate::{Report, labels, rivals, study_tables as tables, svg, units};

/// Studies with their conclusions and the test of each.
pub(super) fn studies(report: &Report<'_>, figures: &[Figure]) -> Markup {
    let mut page = heading("studies", "Studies");
    for study in &report.analysis.studies {
        page.push(html!("<h3><code>{}</code></h3>", study.id));
        page.extend(study.answers.iter().map(answer));
        page.push(html!("<p class=\"lead\">{}</p>", study.design));
        page.push(conclusions(study));
        page.extend(study.tables.iter().map(|table| study_table(report, table)));
        let figures = figures.iter().filter(|figure| is_of_study(&study.id, figure));
        let links = Markup::joined(figures.map(|figure| html!("<a href=\"#figure-{}\">{0}</a>", figure.id)), ", ");
        page.extend((!links.is_empty()).then(|| html!("<p>Figures: {}.</p>", links)));
    }
    page
}

/// The beginning of the page of a study: its answer, its figures as tables and pictures, then its conclusions and its method.
pub(super) fn study(report: &Report<'_>, figures: &[Figure]) -> Markup {
    let mut page = html!("<h1 id=\"studies-title\">{}</h1>{}", study_title(report), summary::partial_notice(report));
    for study in &report.analysis.studies {
        page.extend(study.answers.iter().map(answer));
        page.extend(study.answers.is_empty().then(|| conclusions(study)));
        page.extend(study.tables.iter().map(|table| study_table(report, table)));
        let study_figures = figures.iter().enumerate().filter(|(_, figure)| is_of_study(&study.id, figure));
        page.extend(study_figures.map(|(index, figure)| figure::figure(figure, index)));
        page.extend((!study.answers.is_empty()).then(|| conclusions(study)));
        page.push(html!("<p class=\"lead\">{}</p>", study.design));
    }
    page
}

/// Whether a figure stands in the part of a study, and so not among those of its area.
pub(super) fn is_in_study(report: &Report<'_>, figure: &Figure) -> bool {
    is_study(report) && report.analysis.studies.iter().any(|study| is_of_study(&study.id, figure))
}

/// Conclusions with the test of each: the first ones, and the rest folded below them.
fn conclusions(study: &Study) -> Markup {
    let line = |conclusion: &StatedConclusion| {
        let class = match conclusion.holds {
            Some(true) => "good",
            Some(false) => "odd",
            None => "quiet",
        };
        html!("{} {} {}", pill(class, tables::verdict(conclusion)), conclusion.text, remark_span(&conclusion.test))
    };
    let (leading, rest) = leading_conclusions(study);
    let lines = |entries: Vec<&StatedConclusion>| list("findings", entries.into_iter().map(line));
    let rest_title = labels::plural(rest.len() as u64, "more conclusion");
    html!("{}{}", lines(leading), (!rest.is_empty()).then(|| folded(rest_title, lines(rest))))
}

/// What a study answers, and what that rests on.
fn answer(answer: &StudyAnswer) -> Markup {
    let reasons = list("because", &answer.reasons);
    html!("<div class=\"answer\"><p><strong>{}</strong></p>{}</div>", answer.text, reasons)
}

/// A table of a study with its bars, where no curve is drawn of them: its main columns, and all of them to be opened.
fn study_table(report: &Report<'_>, table: &StudyTable) -> Markup {
    let is_curve = report.analysis.model_lines.iter().any(|line| table.metrics.contains(&line.metric));
    let [main_columns, all_columns] = [true, false].map(|is_narrow| tables::columns(table, is_narrow));
    if all_columns.is_empty() {
        return Markup::new();
    }
    let folded = (main_columns.len() < all_columns.len()).then(|| {
        let columns = labels::plural(all_columns.len() as u64, "column");
        let table = grid(table, &format!("{}, all columns", table.title), &all_columns);
        folded_data(&format!("All {columns}"), table)
    });
    let title = html!("<h4 id=\"study-{}\">{}</h4>", safe_file_name(&table.id), table.title);
    let bars = (!is_curve).then(|| svg::bars::inline(table));
    let main_table = (!main_columns.is_empty()).then(|| grid(table, &table.title, &main_columns));
    html!("{}{}{}{}", title, bars, main_table, folded)
}

/// Some columns of a table of a study, with a title of their own.
fn grid(table: &StudyTable, title: &str, columns: &[(usize, &StudyColumn)]) -> Markup {
    let titles: Vec<&str> =
        std::iter::once("").chain(columns.iter().map(|(_, column)| column.label.as_str())).collect();
    let row = |row: &StudyRow| table_row(&row.label, columns.iter().map(|&column| tables::cell_text(row, column)));
    DataTable::of_figures(title, &titles, table.rows.iter().map(row).collect()).markup()
}

/// Whether a figure is of a study: of a metric whose id begins with that of the study.
fn is_of_study(study: &str, figure: &Figure) -> bool {
    figure.id.strip_prefix(study).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '-']))
}

/// Rival programs, with how each side was timed and verified.
pub(super) fn rivals(report: &Report<'_>) -> Markup {
    let rows = rivals::rows(report);
    let sides = |row: &rivals::RivalRow<'_>| match &row.sides {
        Ok(sides) => {
            let class = if sides.is_gap { "odd" } else { "good" };
            let verdict = (!sides.verdict.is_empty()).then(|| pill(class, sides.verdict));
            let figures = [&sides.kelvin, &sides.other, &sides.ratio, &sides.expected];
            let proof = html!("<details><summary>how it was timed</summary>{}</details>", list("notes", sides.notes));
            html!("{}{}{}", cells(figures), cells([verdict]), text_cell(proof))
        }
        Err((word, reason)) => {
            html!("<td class=\"text\" colspan=\"6\">{} {}</td>", pill("quiet", word), reason)
        }
    };
    let row =
        |row: &rivals::RivalRow<'_>| html!("<tr><th>{}</th>{}{}</tr>", row.work, text_cell(row.program), sides(row));
    let columns = ["Work", "Program", "kelvin", "The program", "Ratio", "Expected", "Verdict", "Proof"];
    let table = DataTable::of_figures(rivals::TITLE, &columns, rows.iter().map(row).collect());
    let missing = |(names, word, reason): (Vec<String>, &str, &str)| {
        html!("{} {} {}", names.join("; "), pill("quiet", word), remark_span(reason))
    };
    let content = match rows.iter().any(|row| row.sides.is_ok()) {
        true => table.markup(),
        false => list("missing", rivals::missing(&rows).into_iter().map(missing)),
    };
    html!("{}<p class=\"lead\">{}</p>{}", heading("rivals", rivals::TITLE), rivals::INTRODUCTION, content)
}

/// The published machines, and what their authors found.
pub(super) fn references(report: &Report<'_>) -> Markup {
    let mut page = heading("published", "Published machines");
    page.push(html!(
        "<p class=\"lead\">Means, deviations and counts as published, without samples. Their values are shown with the metrics \
                   above.</p>"
    ));
    page.extend(report.references.iter().map(|reference| {
        let facts = reference.machine.iter().map(|(label, text)| format!("{label}: {text}"));
        html!("<h3>{}</h3>{}", reference.title, list("notes", facts.chain(reference.findings.iter().cloned())))
    }));
    page
}

/// Settings, clock, rounds and command: what it takes to repeat the run.
pub(super) fn method(report: &Report<'_>) -> Markup {
    let header = &report.run.header;
    if let Some(foreign) = &header.foreign {
        return foreign_program(report, foreign);
    }
    let (settings, clock) = (&header.settings, &header.clock);
    let rounds: usize = report.run.measurements.iter().map(|measurement| measurement.rounds.len()).sum();
    let failed: usize = report.run.measurements.iter().map(|measurement| measurement.failures().count()).sum();
    let pairs = settings.partner_cpu.map(|cpu| html!(", pairs with CPU {}", cpu));
    let yes_no = |is_enabled: bool| Markup::from(if is_enabled { "yes" } else { "no" });
    let command = header.command.join(" ");
    let source = match (&clock.source_before, &clock.source_after) {
        (Some(before), Some(after)) if report.run.has_clock_changed() => {
            html!("{} from {} to {}", pill("bad", "changed"), before, after)
        }
        (Some(before), _) => before.into(),
        _ => "not known".into(),
    };
    let mut page = heading("method", "How it was measured");
    page.push(definition_list([
        ("Command", html!("<code>{}</code>", command)),
        ("kelvin", Markup::from(labels::program(header))),
        ("Started", Markup::from(&header.started)),
        ("Took", html!("{} of {}", units::seconds(report.run.seconds), units::seconds(settings.budget_seconds))),
        ("Mode", Markup::from(settings.mode.as_str())),
        (
            "Rounds",
            html!("{}, {} failed; at least {} of each case, each in a fresh process", rounds, failed, settings.rounds),
        ),
        ("Target", html!("half-width of the 95 % interval at most {} of the value", units::share(settings.target))),
        ("CPU", html!("{}{}", settings.cpu, pairs)),
        ("Canaries", yes_no(settings.canaries)),
        ("Real-time scheduling", yes_no(settings.realtime)),
        ("Seed", html!("{}", settings.seed)),
        (
            "Clock",
            html!(
                "{}, {}, accurate to {}; an empty pair costs {}",
                labels::clock(clock.kind),
                units::value_text(clock.hertz, Unit::Hertz),
                format!("{:.1e}", clock.relative_error),
                units::value_text(clock.pair_nanoseconds, Unit::Nanoseconds)
            ),
        ),
        ("Kernel's clock source", source),
    ]));
    page.push(list("notes", clock.note.iter().chain(&report.run.notes)));
    page.push(html!(
        "<p>Raw readings: <code>kelvin report --format json</code> has every sample, <code>csv</code> a row for each.</p>"
    ));
    page
}

/// Program, time and clock of a foreign run: kelvin did not make its settings.
fn foreign_program(report: &Report<'_>, foreign: &Foreign) -> Markup {
    let header = &report.run.header;
    let mut page = heading("method", "How it was measured");
    page.push(definition_list([
        ("Program", Markup::from(program_text(foreign))),
        ("Measured", Markup::from(&header.started)),
        ("Imported by", html!("kelvin {}", header.kelvin)),
        ("Clock", Markup::from(labels::clock(header.clock.kind))),
    ]));
    page.push(list("notes", header.clock.note.iter().chain(&report.run.notes)));
    page
}

/// The method of each probe, its pitfalls and its sources.
pub(super) fn methods(report: &Report<'_>) -> Markup {
    html!(
        "{}<p class=\"lead\">Each probe of this run: what it does, its pitfalls and how it avoids them, and its sources; the same \
         texts as <code>kelvin explain</code>.</p>{}",
        heading("methods", "Methods of the probes"),
        detail::methods(report)
    )
}

/// Words of the page, each with its meaning.
const GLOSSARY: &str = include_str!("../../assets/glossary.txt");

/// The terms of this page, a line each.
pub(super) fn glossary() -> Markup {
    let words = GLOSSARY.lines().filter_map(|line| line.split_once(": "));
    html!("{}{}", heading("glossary", "Words"), definition_list(words.map(|(term, text)| (term, text.into()))))
}
