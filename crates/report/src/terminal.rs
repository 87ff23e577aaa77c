//! Terminal: the first screen; or the verdict, then a table for each area, then hazards, in 80 columns or more.

pub(crate) mod first_screen;
mod point_table;
mod study_screen;
mod study_table;
mod table;
mod text_plot;

use std::io;

use anstyle::{AnsiColor, Style};
use kelvin_analysis::wording::class_comparison;
use kelvin_analysis::wording::half_width_count;
use kelvin_analysis::wording::hazards::measured_cost;
use kelvin_analysis::{StatedConclusion, Study, StudyAnswer};
use kelvin_core::text::escape_invisible_lines;
use kelvin_core::{Hazard, RunStatus, Severity};

use crate::published::published_comparisons;
use crate::sections::{Section, SectionEntry, sections};
use crate::text::{clean, display_width, pad_left, pad_right, wrap};
use crate::{Render, Report, labels, rivals, study_tables};

pub(crate) use first_screen::ladder_lines;
pub use first_screen::{FirstScreen, MAX_SCREEN_LINES};
pub(crate) use study_screen::{leading_conclusions, study_title};
pub use text_plot::plot_lines;

/// Minimum columns of the tables; a narrower terminal wraps them.
const MIN_WIDTH: usize = 80;

/// What tells a command from advice in words.
const PROMPT: &str = "$ ";

/// Column widths of the comparisons with a published machine.
const HERE_WIDTH: usize = 24;
const THERE_WIDTH: usize = 10;
const RATIO_WIDTH: usize = 6;

/// The terminal report in full: every table.
#[derive(Clone, Copy, Debug)]
pub struct Terminal {
    /// Columns of the terminal.
    pub width: usize,
    /// Whether to use colours.
    pub color: bool,
}

impl Default for Terminal {
    fn default() -> Self {
        Self { width: MIN_WIDTH, color: false }
    }
}

/// What a number behind a verdict says.
const DISTANCE_NOTE: &str = "The number behind a verdict: how far outside of its predicted range the figure is, in half-widths of \
                        that range (as factors).";

/// Column widths of the table of rivals.
const PROGRAM_WIDTH: usize = 10;
const RATE_WIDTH: usize = 9;
const RIVAL_RATIO_WIDTH: usize = 16;
const RIVAL_VERDICT_WIDTH: usize = 8;

/// What sections have for its own sake, or only as inputs.
pub(crate) fn sections_by_purpose<'a>(sections: &[Section<'a>], only_input: bool) -> Vec<Section<'a>> {
    let of = |section: &Section<'a>| {
        let wanted = |entry: &&SectionEntry<'a>| entry.only_input() == only_input;
        Section { entries: section.entries.iter().filter(wanted).cloned().collect(), ..section.clone() }
    };
    sections.iter().map(of).filter(|section| !section.entries.is_empty()).collect()
}

/// Whether a run answers one question.
pub(crate) fn is_study(report: &Report<'_>) -> bool {
    report.run.outline.settings.mode.as_str() == "study"
}

/// Colours of words; nothing is shown by colour alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TextStyle {
    Bad,
    Odd,
    Good,
    Faint,
    Title,
}

impl TextStyle {
    fn style(self) -> Style {
        let color = |color: AnsiColor| Style::new().fg_color(Some(anstyle::Color::Ansi(color)));
        match self {
            Self::Bad => color(AnsiColor::Red).bold(),
            Self::Odd => color(AnsiColor::Yellow),
            Self::Good => color(AnsiColor::Green),
            Self::Faint => Style::new().dimmed(),
            Self::Title => Style::new().bold(),
        }
    }

    /// What begins and ends painted text, longer ones first.
    fn control_sequences() -> Vec<String> {
        let begin = [Self::Bad, Self::Odd, Self::Good, Self::Faint, Self::Title].map(Self::style);
        begin.iter().map(ToString::to_string).chain([format!("{:#}", Style::new().bold())]).collect()
    }
}

impl Terminal {
    fn width(&self) -> usize {
        self.width.max(MIN_WIDTH)
    }

    fn paint(&self, paint: TextStyle, text: &str) -> String {
        let style = paint.style();
        if self.color { format!("{style}{text}{style:#}") } else { text.to_owned() }
    }

    /// A paragraph that hangs behind a mark; the mark is painted, and counts as `columns` wide.
    fn hanging_paragraph(
        &self,
        out: &mut dyn io::Write,
        mark: (TextStyle, &str),
        columns: usize,
        text: &str,
    ) -> io::Result<()> {
        for (index, line) in wrap(text, self.width() - columns).into_iter().enumerate() {
            let pad = " ".repeat(columns.saturating_sub(crate::text::display_width(mark.1)));
            if index == 0 && !mark.1.is_empty() {
                writeln!(out, "{}{pad}{line}", self.paint(mark.0, mark.1))?;
            } else {
                writeln!(out, "{}{line}", " ".repeat(columns))?;
            }
        }
        Ok(())
    }

    fn heading(&self, out: &mut dyn io::Write, text: &str) -> io::Result<()> {
        writeln!(out, "\n{}", self.paint(TextStyle::Title, text))
    }

    fn head(&self, report: &Report<'_>, out: &mut dyn io::Write) -> io::Result<()> {
        let title = format!("kelvin {}: {}", report.run.outline.kelvin, labels::machine_line(report.run));
        for line in wrap(&title, self.width()) {
            writeln!(out, "{}", self.paint(TextStyle::Title, &line))?;
        }
        let partial = report.run.status != RunStatus::Complete;
        let paint = if partial { TextStyle::Bad } else { TextStyle::Faint };
        for line in wrap(&labels::run_line(report.run), self.width()) {
            writeln!(out, "{}", self.paint(paint, &line))?;
        }
        Ok(())
    }

    /// The serious hazards, which spoil figures and come before them; nothing where there are none.
    fn serious_hazards(&self, report: &Report<'_>, out: &mut dyn io::Write) -> io::Result<()> {
        let serious = report.run.outline.hazards.iter().filter(|hazard| hazard.severity == Severity::Serious);
        self.list_hazards(("Serious hazards", serious.collect()), report, out)
    }

    /// The other ones.
    fn other_hazards(&self, report: &Report<'_>, out: &mut dyn io::Write) -> io::Result<()> {
        if report.run.outline.hazards.is_empty() {
            self.heading(out, "Hazards")?;
            return writeln!(out, "none found");
        }
        let others = report.run.outline.hazards.iter().filter(|hazard| hazard.severity != Severity::Serious);
        self.list_hazards(("Hazards", others.collect()), report, out)
    }

    fn list_hazards(
        &self,
        (title, mut hazards): (&str, Vec<&Hazard>),
        report: &Report<'_>,
        out: &mut dyn io::Write,
    ) -> io::Result<()> {
        if hazards.is_empty() {
            return Ok(());
        }
        self.heading(out, title)?;
        hazards.sort_by_key(|hazard| std::cmp::Reverse(hazard.severity));
        for hazard in hazards {
            let paint = match hazard.severity {
                Severity::Serious => TextStyle::Bad,
                Severity::Warning => TextStyle::Odd,
                Severity::Note => TextStyle::Faint,
            };
            self.hanging_paragraph(out, (paint, hazard.severity.name()), 9, &hazard.summary)?;
            if let Some(cost) = measured_cost(&hazard.id, report.analysis) {
                self.hanging_paragraph(out, (paint, ""), 9, &cost)?;
            }
            if let Some(remedy) = &hazard.remedy {
                let prompt = if hazard.remedy_is_command { PROMPT } else { "" };
                self.hanging_paragraph(out, (paint, ""), 9, &format!("remedy: {prompt}{remedy}"))?;
            }
        }
        Ok(())
    }

    fn verdict(&self, report: &Report<'_>, out: &mut dyn io::Write) -> io::Result<()> {
        if report.analysis.verdict.is_empty() {
            return Ok(());
        }
        self.heading(out, "Verdict")?;
        for line in &report.analysis.verdict {
            self.hanging_paragraph(out, (TextStyle::Faint, "-"), 2, line)?;
        }
        Ok(())
    }

    /// The run against published machines of its class.
    fn class_comparison(&self, report: &Report<'_>, out: &mut dyn io::Write) -> io::Result<()> {
        let lines = class_comparison::class_lines(&report.analysis.normal);
        if lines.is_empty() {
            return Ok(());
        }
        self.heading(out, "Normal for its class")?;
        lines.iter().try_for_each(|line| self.hanging_paragraph(out, (TextStyle::Faint, "-"), 2, line))
    }

    /// Rival programs.
    fn rivals(&self, report: &Report<'_>, out: &mut dyn io::Write) -> io::Result<()> {
        let rows = rivals::rows(report);
        if rows.is_empty() {
            return Ok(());
        }
        self.heading(out, rivals::TITLE)?;
        let label = self.width() - (PROGRAM_WIDTH + 2 * RATE_WIDTH + RIVAL_RATIO_WIDTH + RIVAL_VERDICT_WIDTH + 5);
        let line = |what: &str, [program, kelvin, other, ratio, verdict]: [&str; 5]| {
            format!(
                "{} {} {} {} {} {verdict}",
                pad_right(what, label),
                pad_right(program, PROGRAM_WIDTH),
                pad_left(kelvin, RATE_WIDTH),
                pad_left(other, RATE_WIDTH),
                pad_left(ratio, RIVAL_RATIO_WIDTH)
            )
        };
        if rows.iter().any(|row| row.sides.is_ok()) {
            let titles = line("", ["program", "kelvin", "its own", "ratio", "verdict"]);
            writeln!(out, "{}", self.paint(TextStyle::Faint, &titles))?;
        }
        for row in &rows {
            let Ok(sides) = &row.sides else { continue };
            let (mut what, mut program) = (clean(&row.what), clean(row.program));
            if display_width(&what) > label || display_width(&program) > PROGRAM_WIDTH {
                self.hanging_paragraph(out, (TextStyle::Faint, ""), 0, &format!("{what}, {program}"))?;
                (what, program) = Default::default();
            }
            let text = line(&what, [&program, &sides.kelvin, &sides.other, &sides.short_ratio, ""]);
            let verdict = self.paint(if sides.is_gap { TextStyle::Odd } else { TextStyle::Good }, sides.verdict);
            writeln!(out, "{}", format!("{text}{verdict}").trim_end())?;
        }
        for (which, word, reason) in rivals::missing(&rows) {
            self.hanging_paragraph(
                out,
                (TextStyle::Faint, word),
                12,
                &format!("{}: {}", clean(&which.join("; ")), clean(reason)),
            )?;
        }
        Ok(())
    }

    /// What published machines have in common with the run.
    fn published_machines(&self, report: &Report<'_>, out: &mut dyn io::Write) -> io::Result<()> {
        for table in published_comparisons(report) {
            self.heading(out, &format!("Compared with {}", clean(&table.reference.title)))?;
            let label = self.width() - (HERE_WIDTH + THERE_WIDTH + RATIO_WIDTH + 3);
            let titles = format!(
                "{} {} {}",
                pad_left("here", HERE_WIDTH),
                pad_left("there", THERE_WIDTH),
                pad_left("ratio", RATIO_WIDTH)
            );
            writeln!(out, "{}", self.paint(TextStyle::Faint, &format!("{} {titles}", " ".repeat(label))))?;
            for row in &table.rows {
                let figures = format!(
                    "{} {} {}",
                    pad_left(&row.here, HERE_WIDTH),
                    pad_left(&row.there, THERE_WIDTH),
                    pad_left(&row.ratio, RATIO_WIDTH)
                );
                let mut what = clean(&row.what);
                if display_width(&what) > label {
                    self.hanging_paragraph(out, (TextStyle::Faint, ""), 0, &what)?;
                    what.clear();
                }
                writeln!(out, "{} {}", pad_right(&what, label), figures.trim_end())?;
                if !row.remark.is_empty() {
                    self.hanging_paragraph(out, (TextStyle::Faint, ""), 4, &clean(&row.remark))?;
                }
            }
        }
        Ok(())
    }

    fn studies(&self, report: &Report<'_>, out: &mut dyn io::Write) -> io::Result<()> {
        report.analysis.studies.iter().try_for_each(|study| self.study(study, out))
    }

    /// Writes a study alone, as one that no run made.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write_study(&self, study: &Study, out: &mut dyn io::Write) -> io::Result<()> {
        let mut page = Vec::new();
        self.study(study, &mut page)?;
        out.write_all(self.without_foreign_controls(&String::from_utf8_lossy(&page)).as_bytes())
    }

    fn study(&self, study: &Study, out: &mut dyn io::Write) -> io::Result<()> {
        self.heading(out, &format!("Study {}", clean(&study.id)))?;
        self.conclusions(study, out)
    }

    /// The answer, conclusions, design and tables of a study: what was found stands before how.
    fn conclusions(&self, study: &Study, out: &mut dyn io::Write) -> io::Result<()> {
        for answer in &study.answers {
            self.answer(answer, out)?;
        }
        study.conclusions.iter().try_for_each(|conclusion| self.conclusion(conclusion, true, out))?;
        if !study.conclusions.is_empty() {
            writeln!(out)?;
        }
        self.hanging_paragraph(out, (TextStyle::Faint, ""), 0, &study.design)?;
        study.tables.iter().try_for_each(|table| self.study_table(table, out))
    }

    /// A conclusion behind its verdict, with or without its test.
    fn conclusion(&self, conclusion: &StatedConclusion, with_test: bool, out: &mut dyn io::Write) -> io::Result<()> {
        let paint = match conclusion.holds {
            Some(true) => TextStyle::Good,
            Some(false) => TextStyle::Odd,
            None => TextStyle::Faint,
        };
        let test = if with_test { format!(" ({})", conclusion.test) } else { String::new() };
        self.hanging_paragraph(
            out,
            (paint, study_tables::verdict(conclusion)),
            11,
            &format!("{}{test}", conclusion.text),
        )
    }

    /// What a study answers, and below it, indented, what that rests on.
    fn answer(&self, answer: &StudyAnswer, out: &mut dyn io::Write) -> io::Result<()> {
        for line in wrap(&answer.says, self.width()) {
            writeln!(out, "{}", self.paint(TextStyle::Title, &line))?;
        }
        answer.because.iter().try_for_each(|line| self.hanging_paragraph(out, (TextStyle::Faint, ""), 2, line))?;
        writeln!(out)
    }

    fn notes(&self, report: &Report<'_>, out: &mut dyn io::Write) -> io::Result<()> {
        if report.run.notes.is_empty() {
            return Ok(());
        }
        self.heading(out, "Notes")?;
        for note in &report.run.notes {
            self.hanging_paragraph(out, (TextStyle::Faint, "-"), 2, note)?;
        }
        Ok(())
    }
}

impl Render for Terminal {
    fn render(&self, report: &Report<'_>, out: &mut dyn io::Write) -> io::Result<()> {
        let mut page = Vec::new();
        self.page(report, &mut page)?;
        out.write_all(self.without_foreign_controls(&String::from_utf8_lossy(&page)).as_bytes())
    }
}

impl Terminal {
    /// The page with all control characters escaped except line feeds and the styles of [`TextStyle`].
    fn without_foreign_controls(&self, page: &str) -> String {
        let own = if self.color { TextStyle::control_sequences() } else { Vec::new() };
        let (mut safe, mut rest) = (String::with_capacity(page.len()), page);
        while let Some(at) = rest.find('\u{1b}') {
            let (before, from) = rest.split_at(at);
            safe.push_str(&escape_invisible_lines(before));
            let style = own.iter().find(|style| from.starts_with(style.as_str()));
            safe.push_str(style.map_or(r"\u{1b}", String::as_str));
            rest = &from[style.map_or(1, String::len)..];
        }
        safe.push_str(&escape_invisible_lines(rest));
        safe
    }

    /// A study begins with its answer and ends with what it was measured on; a run begins with its verdict, and before that only with
    /// what has surely spoilt it.
    fn page(&self, report: &Report<'_>, out: &mut dyn io::Write) -> io::Result<()> {
        let sections = sections(report);
        if is_study(report) {
            for line in wrap(&study_title(report), self.width()) {
                writeln!(out, "{}", self.paint(TextStyle::Title, &line))?;
            }
            writeln!(out)?;
            let [asked, inputs] = [false, true].map(|only_input| sections_by_purpose(&sections, only_input));
            report.analysis.studies.iter().try_for_each(|study| self.conclusions(study, out))?;
            self.measured_tables(report, &asked, out)?;
            self.rivals(report, out)?;
            self.published_machines(report, out)?;
            writeln!(out)?;
            self.head(report, out)?;
            self.serious_hazards(report, out)?;
            self.other_hazards(report, out)?;
            self.verdict(report, out)?;
            self.measured_tables(report, &inputs, out)?;
            return self.notes(report, out);
        }
        self.head(report, out)?;
        self.serious_hazards(report, out)?;
        self.verdict(report, out)?;
        self.class_comparison(report, out)?;
        if sections.is_empty() {
            writeln!(out, "\nNothing was measured.")?;
        }
        self.measured_tables(report, &sections, out)?;
        self.rivals(report, out)?;
        self.published_machines(report, out)?;
        self.studies(report, out)?;
        self.notes(report, out)?;
        self.other_hazards(report, out)
    }

    /// The tables of some areas, without what the tables of studies have.
    fn measured_tables(
        &self,
        report: &Report<'_>,
        sections: &[Section<'_>],
        out: &mut dyn io::Write,
    ) -> io::Result<()> {
        let results = || sections.iter().flat_map(|section| &section.entries).flat_map(SectionEntry::results);
        if results().any(|result| !result.only_input && half_width_count(result).is_some()) {
            writeln!(out)?;
            self.hanging_paragraph(out, (TextStyle::Faint, ""), 0, DISTANCE_NOTE)?;
        }
        for section in sections {
            let is_elsewhere = |entry: &&SectionEntry<'_>| {
                entry.results().iter().all(|result| study_tables::has_result(report, result))
            };
            let entries = section.entries.iter().filter(|entry| !is_elsewhere(entry)).cloned().collect();
            let section = Section { entries, ..section.clone() };
            if !section.entries.is_empty() {
                self.section(&section, out)?;
            }
        }
        Ok(())
    }
}
