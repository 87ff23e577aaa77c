//! Markdown for issues and CI: verdict, hazards, tables, what came to no number, studies and notes.

use std::io;

use kelvin_analysis::MetricResult;
use kelvin_model::RunStatus;

use crate::beside::beside;
use crate::sections::{Entry, Section, sections};
use crate::text::{markdown, markdown_code};
use crate::{Render, Report, peers, units, words};

/// The Markdown report (GitHub's flavour: tables).
#[derive(Clone, Copy, Debug, Default)]
pub struct Markdown;

impl Render for Markdown {
    fn render(&self, report: &Report<'_>, out: &mut dyn io::Write) -> io::Result<()> {
        writeln!(out, "# kelvin: {}\n", markdown(&words::machine_line(report.run)))?;
        writeln!(out, "{}\n", markdown(&words::run_line(report.run)))?;
        if let RunStatus::Partial(why) = &report.run.status {
            writeln!(out, "> **This run is partial:** {}\n", markdown(why))?;
        }
        list(out, "Verdict", report.analysis.verdict.iter().map(|line| markdown(line)))?;
        hazards(report, out)?;
        let sections = sections(report);
        if sections.is_empty() {
            writeln!(out, "Nothing was measured.\n")?;
        }
        for section in &sections {
            write_section(section, out)?;
        }
        write_peers(report, out)?;
        write_beside(report, out)?;
        studies(report, out)?;
        list(out, "Notes", report.run.notes.iter().map(|note| markdown(note)))
    }
}

/// Other programs beside kelvin.
fn write_peers(report: &Report<'_>, out: &mut dyn io::Write) -> io::Result<()> {
    let rows = peers::rows(report);
    if rows.is_empty() {
        return Ok(());
    }
    writeln!(out, "## {}\n\n{}\n", peers::TITLE, peers::LEAD)?;
    if rows.iter().any(|row| row.sides.is_ok()) {
        writeln!(out, "| reading | beside | kelvin | its figure | ratio | expected | verdict |")?;
        writeln!(out, "|:--|:--|--:|--:|--:|--:|:--|")?;
    }
    for row in &rows {
        let Ok(sides) = &row.sides else { continue };
        let [what, kelvin, other, ratio, expected] =
            [&row.what, &sides.kelvin, &sides.other, &sides.ratio, &sides.expected].map(|cell| markdown(cell));
        let (program, verdict) = (markdown_code(row.program), sides.verdict);
        writeln!(out, "| {what} | {program} | {kelvin} | {other} | {ratio} | {expected} | {verdict} |")?;
    }
    writeln!(out)?;
    let missing = peers::missing(&rows);
    for (which, word, reason) in &missing {
        writeln!(out, "- {} **{word}**: {}", markdown(&which.join("; ")), markdown(reason))?;
    }
    if !missing.is_empty() {
        writeln!(out)?;
    }
    Ok(())
}

/// What published machines have in common with the run.
fn write_beside(report: &Report<'_>, out: &mut dyn io::Write) -> io::Result<()> {
    for table in beside(report) {
        writeln!(out, "## Beside {}\n", markdown(&table.reference.title))?;
        writeln!(out, "| quantity | here | there | here / there | remark |\n|---|---:|---:|---:|---|")?;
        for row in &table.rows {
            let [what, here, there, ratio, remark] =
                [&row.what, &row.here, &row.there, &row.ratio, &row.remark].map(|cell| markdown(cell));
            writeln!(out, "| {what} | {here} | {there} | {ratio} | {remark} |")?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// A heading with a list; nothing at all for an empty list.
fn list(out: &mut dyn io::Write, title: &str, lines: impl Iterator<Item = String>) -> io::Result<()> {
    let mut lines = lines.peekable();
    if lines.peek().is_none() {
        return Ok(());
    }
    writeln!(out, "## {title}\n")?;
    for line in lines {
        writeln!(out, "- {line}")?;
    }
    writeln!(out)
}

fn hazards(report: &Report<'_>, out: &mut dyn io::Write) -> io::Result<()> {
    let mut hazards: Vec<_> = report.run.outline.hazards.iter().collect();
    hazards.sort_by_key(|hazard| std::cmp::Reverse(hazard.severity));
    let line = |hazard: &kelvin_model::Hazard| {
        let remedy = hazard.remedy.as_ref().map(|remedy| format!("; remedy: {}", markdown_code(remedy)));
        format!(
            "**{}** {} ({}){}",
            words::severity(hazard.severity),
            markdown(&hazard.summary),
            markdown(&hazard.effect),
            remedy.unwrap_or_default()
        )
    };
    list(out, "Hazards", hazards.into_iter().map(line))
}

fn write_section(section: &Section<'_>, out: &mut dyn io::Write) -> io::Result<()> {
    writeln!(out, "## {}\n", markdown(&section.title))?;
    let results: Vec<&MetricResult> = section.entries.iter().flat_map(Entry::results).collect();
    let (measured, missing): (Vec<&MetricResult>, Vec<&MetricResult>) =
        results.into_iter().partition(|result| result.outcome.summary().is_some());
    if !measured.is_empty() {
        writeln!(out, "| metric | measured | cycles | predicted | ratio | verdict |")?;
        writeln!(out, "|:--|--:|--:|--:|--:|:--|")?;
        for result in &measured {
            row(result, out)?;
        }
        writeln!(out)?;
    }
    for result in &missing {
        if let Some((word, reason)) = words::no_number(&result.outcome, result.metric.unit) {
            writeln!(out, "- {} **{word}**: {}", label(result), markdown(&reason))?;
        }
    }
    for result in &measured {
        for warning in &result.warnings {
            writeln!(out, "- {}: {}", label(result), markdown(warning.text()))?;
        }
    }
    if !missing.is_empty() || measured.iter().any(|result| !result.warnings.is_empty()) {
        writeln!(out)?;
    }
    Ok(())
}

fn label(result: &MetricResult) -> String {
    let case = units::case(&result.metric, &result.case);
    let space = if case.is_empty() { "" } else { " " };
    markdown_code(&format!("{}{space}{case}", result.metric.id))
}

fn row(result: &MetricResult, out: &mut dyn io::Write) -> io::Result<()> {
    let Some(summary) = result.outcome.summary() else { return Ok(()) };
    let measured = units::measured(summary, result.metric.unit);
    let predicted = result.prediction.as_ref().map(|prediction| units::plain(prediction.value, result.metric.unit));
    writeln!(
        out,
        "| {}{} | {measured}{} | {} | {} | {} | {}{} |",
        label(result),
        if result.only_input { " (input only)" } else { "" },
        words::best(result).map(|best| format!("; {best}")).unwrap_or_default(),
        units::cycles(result),
        predicted.unwrap_or_default(),
        result.ratio.map(units::ratio).unwrap_or_default(),
        words::verdict(result),
        explained(result)
    )
}

/// The hazards that can explain a gap, in brackets.
fn explained(result: &MetricResult) -> String {
    let hazards: Vec<&str> = result.explained_by.iter().map(|id| id.as_str()).collect();
    if hazards.is_empty() { String::new() } else { format!(" ({}?)", markdown(&hazards.join(", "))) }
}

fn studies(report: &Report<'_>, out: &mut dyn io::Write) -> io::Result<()> {
    for study in &report.analysis.studies {
        writeln!(out, "## Study {}\n\n{}\n", markdown_code(&study.id), markdown(&study.design))?;
        for conclusion in &study.conclusions {
            let word = match conclusion.holds {
                Some(true) => "holds",
                Some(false) => "refuted",
                None => "open",
            };
            writeln!(out, "- **{word}** {} ({})", markdown(&conclusion.text), markdown(&conclusion.test))?;
        }
        writeln!(out)?;
    }
    Ok(())
}
