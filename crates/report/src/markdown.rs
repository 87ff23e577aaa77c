//! Markdown for issues and CI: the first screen, verdict, hazards, tables, what has no number, studies and notes.

use std::io;

use kelvin_analysis::wording::{class_comparison, measured_cost};
use kelvin_analysis::{MetricResult, StatedConclusion, StudyAnswer, StudyRow, StudyTable, Warning};
use kelvin_core::{Hazard, Overview, Remedy, RunStatus};

use crate::escape::{MarkdownText, md};
use crate::published::published_comparisons;
use crate::sections::{CommonAxes, CurveSeries, MissingResults, Section, SectionEntry, sections};
use crate::terminal::{is_study, ladder_lines, leading_conclusions, sections_by_purpose, study_title};
use crate::{Render, Report, labels, rivals, study_tables as tables, units};

/// The Markdown report (GitHub's flavour: tables).
#[derive(Clone, Copy, Debug, Default)]
pub struct Markdown;

impl Render for Markdown {
    fn render(&self, report: &Report<'_>, out: &mut dyn io::Write) -> io::Result<()> {
        let sections = sections(report);
        let empty_notice = sections.is_empty().then(|| md!("Nothing was measured.\n\n"));
        if is_study(report) {
            return out.write_all(study_page(report, &sections).as_str().as_bytes());
        }
        let screen = report.analysis.overview.as_ref().map(|screen| first_screen(report, screen));
        let (verdict, notes) = (list("Verdict", &report.analysis.verdict), list("Notes", &report.run.notes));
        let class = list("Normal for its class", class_comparison::class_lines(&report.analysis.class_comparison));
        let areas: MarkdownText = sections.iter().map(|part| section(report, part)).collect();
        let summary = md!("{}{}{}{}{}", head(report), screen, verdict, class, hazards(report));
        let tables = md!("{}{}{}{}{}", empty_notice, areas, other_programs(report), published(report), studies(report));
        let page = md!("{}{}{}", summary, tables, notes);
        out.write_all(page.as_str().as_bytes())
    }
}

/// A study begins with its answer; what it was measured on, and what with, follows.
fn study_page(report: &Report<'_>, sections: &[Section<'_>]) -> MarkdownText {
    let [requested, inputs] = [false, true].map(|only_input| sections_by_purpose(sections, only_input));
    let areas = |sections: &[Section<'_>]| sections.iter().map(|part| section(report, part)).collect::<MarkdownText>();
    let tables = md!("{}{}{}{}", studies(report), areas(&requested), other_programs(report), published(report));
    let machine = md!("{}\n\n{}\n\n", labels::machine_line(report.run), labels::run_line(report.run));
    let (verdict, notes) = (list("Verdict", &report.analysis.verdict), list("Notes", &report.run.notes));
    let run = md!("{}{}{}{}{}", machine, verdict, hazards(report), areas(&inputs), notes);
    md!("# {}\n\n{}{}{}", study_title(report), partial(report), tables, run)
}

/// That a run was not finished.
fn partial(report: &Report<'_>) -> Option<MarkdownText> {
    let reason = if let RunStatus::Partial(reason) = &report.run.status { Some(reason) } else { None };
    reason.map(|reason| md!("> **This run is partial:** {}\n\n", reason))
}

fn head(report: &Report<'_>) -> MarkdownText {
    md!("# kelvin: {}\n\n{}\n\n{}", labels::machine_line(report.run), labels::run_line(report.run), partial(report))
}

/// The ladder as text, what stands out, what to do first, and how sure the run is.
fn first_screen(report: &Report<'_>, screen: &Overview) -> MarkdownText {
    let cautions: MarkdownText = screen.cautions.iter().map(|caution| md!("> {}\n\n", caution)).collect();
    let sentences = list("What stands out", screen.stand_outs.iter().map(|stand_out| stand_out.text.as_str()));
    let remedy =
        |remedy: &Remedy| md!("{}: {}", remedy.problems.join("; "), remedy_text(&remedy.command, remedy.is_command));
    let precision_lines =
        labels::precision(report.analysis).into_iter().chain(screen.missing.iter().map(labels::missing_figure));
    let ladder = MarkdownText::block(&ladder_lines(report, screen));
    let (remedies, precision) =
        (list("Do first", screen.remedies.iter().map(remedy)), list("Precision", precision_lines));
    md!("{}{}\n{}{}{}", cautions, ladder, sentences, remedies, precision)
}

/// A command as code, advice as it is.
fn remedy_text(text: &str, is_command: bool) -> MarkdownText {
    if is_command { MarkdownText::code(text) } else { md!("{}", text) }
}

/// Rival programs.
fn other_programs(report: &Report<'_>) -> MarkdownText {
    let rows = rivals::rows(report);
    if rows.is_empty() {
        return MarkdownText::new();
    }
    let mut page = md!("## {}\n\n{}\n\n", rivals::TITLE, rivals::INTRODUCTION);
    if rows.iter().any(|row| row.sides.is_ok()) {
        page.push(md!("| work | program | kelvin | the program | ratio | expected | verdict |\n"));
        page.push(md!("|:--|:--|--:|--:|--:|--:|:--|\n"));
    }
    for row in &rows {
        let Ok(sides) = &row.sides else { continue };
        let rivals::RivalCells { kelvin, other, ratio, expected, verdict, .. } = sides;
        let figures = [kelvin, other, ratio, expected].map(MarkdownText::from);
        let names = [(&row.work).into(), MarkdownText::code(row.program)];
        page.push(MarkdownText::row(names.into_iter().chain(figures).chain([(*verdict).into()])));
    }
    page.push(md!("\n"));
    let missing = rivals::missing(&rows).into_iter();
    let missing: MarkdownText =
        missing.map(|(cases, word, reason)| md!("- {} **{}**: {}\n", cases.join("; "), word, reason)).collect();
    page.extend((!missing.is_empty()).then(|| md!("{}\n", missing)));
    page
}

/// What published machines have in common with the run.
fn published(report: &Report<'_>) -> MarkdownText {
    let mut page = MarkdownText::new();
    for table in published_comparisons(report) {
        page.push(md!("## Compared with {}\n\n", table.reference.title));
        page.push(md!("| quantity | here | there | here / there | remark |\n|---|---:|---:|---:|---|\n"));
        for row in &table.rows {
            page.push(MarkdownText::row([&row.quantity, &row.measured, &row.published, &row.ratio, &row.remark]));
        }
        page.push(md!("\n"));
    }
    page
}

/// A heading with a list of texts or of what is written already; nothing at all for an empty list.
fn list(title: &str, lines: impl IntoIterator<Item = impl Into<MarkdownText>>) -> MarkdownText {
    let lines: MarkdownText = lines.into_iter().map(|line| md!("- {}\n", line.into())).collect();
    if lines.is_empty() { lines } else { md!("## {}\n\n{}\n", title, lines) }
}

fn hazards(report: &Report<'_>) -> MarkdownText {
    let line = |hazard: &Hazard| {
        let remedy =
            hazard.remedy.as_ref().map(|text| md!("; remedy: {}", remedy_text(text, hazard.remedy_is_command)));
        let cost = measured_cost(&hazard.id, report.analysis).map(|cost| md!("; {}", cost));
        md!("**{}** {} ({}){}{}", hazard.severity.name(), hazard.summary, hazard.effect, cost, remedy)
    };
    list("Hazards", labels::hazards(report.run).into_iter().map(line))
}

fn section(report: &Report<'_>, section: &Section<'_>) -> MarkdownText {
    let mut page = md!("## {}\n\n", section.title);
    let results = section.entries.iter().flat_map(SectionEntry::results);
    let results: Vec<&MetricResult> = results.filter(|result| !tables::has_result(report, result)).collect();
    if results.is_empty() {
        return MarkdownText::new();
    }
    let (measured_results, missing_results): (Vec<&MetricResult>, Vec<&MetricResult>) =
        results.into_iter().partition(|result| result.outcome.summary().is_some());
    let common_axes = &section.common_axes;
    page.extend(common_axes.sentence().map(|sentence| md!("{}\n\n", sentence)));
    if !measured_results.is_empty() {
        page.push(md!("| metric | measured | cycles | predicted | ratio | verdict |\n|:--|--:|--:|--:|--:|:--|\n"));
        page.extend(measured_results.iter().map(|result| row(result, common_axes)));
        page.push(md!("\n"));
    }
    // Where there is no table each reason is stated once.
    let reasons: Vec<MissingResults<'_>> = match measured_results.is_empty() {
        true => MissingResults::group(missing_results.iter().copied()),
        false => missing_results.iter().flat_map(|result| MissingResults::group([*result])).collect(),
    };
    page.extend(reasons.iter().map(|reason| without_numbers(reason, common_axes)));
    for result in &measured_results {
        let line = |warning: &Warning| md!("- {}: {}\n", label(result, common_axes), warning.text);
        page.extend(result.warnings.iter().map(line));
    }
    if !missing_results.is_empty() || measured_results.iter().any(|result| !result.warnings.is_empty()) {
        page.push(md!("\n"));
    }
    page.extend(growth_ends(section));
    page
}

/// Where the lines of curves stop growing.
fn growth_ends(section: &Section<'_>) -> Option<MarkdownText> {
    let curves = section
        .entries
        .iter()
        .filter_map(|entry| if let SectionEntry::Curve(curve) = entry { Some(curve) } else { None });
    let ends = curves.flat_map(|curve| &curve.series).filter_map(|line| Some((line.points.first()?.1, line)));
    let line = |(first, line): (&MetricResult, &CurveSeries<'_>)| {
        let case = section.common_axes.rest_text(&first.metric, &line.fixed);
        let name = metric_name(first, &case);
        Some(md!("- {} {}\n", name, labels::growth_end_text("", line.growth_end?)))
    };
    let lines: MarkdownText = ends.filter_map(line).collect();
    (!lines.is_empty()).then(|| md!("{}\n", lines))
}

/// Results without a number for one reason.
fn without_numbers(missing: &MissingResults<'_>, common_axes: &CommonAxes) -> MarkdownText {
    let labels = MarkdownText::joined(missing.results.iter().map(|result| label(result, common_axes)), ", ");
    md!("- {} **{}**: {}\n", labels, missing.word, missing.reason)
}

fn label(result: &MetricResult, common_axes: &CommonAxes) -> MarkdownText {
    metric_name(result, &common_axes.rest_text(&result.metric, &result.case))
}

/// A metric with a case, as code.
fn metric_name(result: &MetricResult, case: &str) -> MarkdownText {
    let space = if case.is_empty() { "" } else { " " };
    MarkdownText::code(&format!("{}{space}{case}", result.metric.id))
}

fn row(result: &MetricResult, common_axes: &CommonAxes) -> MarkdownText {
    let Some(summary) = result.outcome.summary() else { return MarkdownText::new() };
    let unit = result.metric.unit;
    let name = md!("{}{}", label(result, common_axes), if result.only_input { " (input only)" } else { "" });
    let best = labels::best_span(&[result]).map(|best| format!("; {best}"));
    let measured = md!("{}{}", units::measured_text(summary, unit), best);
    let predicted = result.prediction.as_ref().map(|prediction| units::value_text(prediction.value, unit));
    let (cycles, ratio, verdict) =
        (units::cycles_text(result), result.ratio.map(units::ratio), labels::verdict_word(result));
    md!("| {} | {} | {} | {} | {} | {} |\n", name, measured, cycles, predicted, ratio, verdict)
}

fn studies(report: &Report<'_>) -> MarkdownText {
    let mut page = MarkdownText::new();
    for study in &report.analysis.studies {
        page.push(md!("## Study {}\n\n", MarkdownText::code(&study.id)));
        page.extend(study.answers.iter().map(answer));
        page.extend(study.tables.iter().map(study_table));
        page.push(md!("{}\n\n", study.design));
        let (leading, rest) = leading_conclusions(study);
        page.extend(leading.into_iter().map(conclusion));
        page.push(md!("\n"));
        if !rest.is_empty() {
            page.push(MarkdownText::folded("More conclusions", rest.into_iter().map(conclusion).collect()));
        }
    }
    page
}

fn conclusion(conclusion: &StatedConclusion) -> MarkdownText {
    md!("- **{}** {} ({})\n", tables::verdict(conclusion), conclusion.text, conclusion.test)
}

/// What a study answers, and what that rests on.
fn answer(answer: &StudyAnswer) -> MarkdownText {
    let reasons: MarkdownText = answer.reasons.iter().map(|line| md!("- {}\n", line)).collect();
    md!("**{}**\n\n{}\n", answer.text, reasons)
}

/// A table of a study, all of its columns.
fn study_table(table: &StudyTable) -> MarkdownText {
    let columns = tables::columns(table, false);
    if columns.is_empty() {
        return MarkdownText::new();
    }
    let titles: MarkdownText = columns.iter().map(|(_, column)| md!(" {} |", column.label)).collect();
    let row = |row: &StudyRow| {
        let cells = columns.iter().map(|&column| tables::cell_text(row, column));
        MarkdownText::row(std::iter::once(row.label.clone()).chain(cells))
    };
    let rows: MarkdownText = table.rows.iter().map(row).collect();
    let line: MarkdownText = columns.iter().map(|_| md!("--:|")).collect();
    md!("### {}\n\n| |{}\n|:--|{}\n{}\n", table.title, titles, line, rows)
}
