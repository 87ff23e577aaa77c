//! Terminal: hazards first, then the verdict, then a table for each area, in 80 columns or more.

mod table;

use std::io;

use anstyle::{AnsiColor, Style};
use kelvin_model::{RunStatus, Severity};

use crate::beside::beside;
use crate::sections::sections;
use crate::text::{clean, left, right, wrap};
use crate::{Render, Report, words};

/// Fewest columns that the tables are made for; a narrower terminal wraps them itself.
const LEAST_WIDTH: usize = 80;

/// Widths of the columns of the tables with a published machine.
const HERE: usize = 24;
const THERE: usize = 10;
const RATIO: usize = 6;

/// The terminal report.
#[derive(Clone, Copy, Debug)]
pub struct Terminal {
    /// Columns of the terminal.
    pub width: usize,
    /// Whether to use colours.
    pub color: bool,
}

impl Default for Terminal {
    fn default() -> Self {
        Self { width: LEAST_WIDTH, color: false }
    }
}

/// How words are coloured; nothing is said by colour alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Paint {
    Bad,
    Odd,
    Good,
    Faint,
    Title,
}

impl Paint {
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
}

impl Terminal {
    fn width(&self) -> usize {
        self.width.max(LEAST_WIDTH)
    }

    fn paint(&self, paint: Paint, text: &str) -> String {
        let style = paint.style();
        if self.color { format!("{style}{text}{style:#}") } else { text.to_owned() }
    }

    /// A paragraph that hangs behind a mark; the mark is painted, and counts as `columns` wide.
    fn hanging(&self, out: &mut dyn io::Write, mark: (Paint, &str), columns: usize, text: &str) -> io::Result<()> {
        for (index, line) in wrap(text, self.width() - columns).into_iter().enumerate() {
            let pad = " ".repeat(columns.saturating_sub(crate::text::columns(mark.1)));
            if index == 0 && !mark.1.is_empty() {
                writeln!(out, "{}{pad}{line}", self.paint(mark.0, mark.1))?;
            } else {
                writeln!(out, "{}{line}", " ".repeat(columns))?;
            }
        }
        Ok(())
    }

    fn heading(&self, out: &mut dyn io::Write, text: &str) -> io::Result<()> {
        writeln!(out, "\n{}", self.paint(Paint::Title, text))
    }

    fn head(&self, report: &Report<'_>, out: &mut dyn io::Write) -> io::Result<()> {
        let title = format!("kelvin {}: {}", report.run.outline.kelvin, words::machine_line(report.run));
        for line in wrap(&title, self.width()) {
            writeln!(out, "{}", self.paint(Paint::Title, &line))?;
        }
        let partial = report.run.status != RunStatus::Complete;
        let paint = if partial { Paint::Bad } else { Paint::Faint };
        for line in wrap(&words::run_line(report.run), self.width()) {
            writeln!(out, "{}", self.paint(paint, &line))?;
        }
        Ok(())
    }

    fn hazards(&self, report: &Report<'_>, out: &mut dyn io::Write) -> io::Result<()> {
        self.heading(out, "Hazards")?;
        let mut hazards: Vec<_> = report.run.outline.hazards.iter().collect();
        hazards.sort_by_key(|hazard| std::cmp::Reverse(hazard.severity));
        if hazards.is_empty() {
            writeln!(out, "none found")?;
        }
        for hazard in hazards {
            let paint = match hazard.severity {
                Severity::Serious => Paint::Bad,
                Severity::Warning => Paint::Odd,
                Severity::Note => Paint::Faint,
            };
            self.hanging(out, (paint, words::severity(hazard.severity)), 9, &hazard.summary)?;
            if let Some(remedy) = &hazard.remedy {
                self.hanging(out, (paint, ""), 9, &format!("remedy: {remedy}"))?;
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
            self.hanging(out, (Paint::Faint, "-"), 2, line)?;
        }
        Ok(())
    }

    /// What published machines have in common with the run.
    fn beside(&self, report: &Report<'_>, out: &mut dyn io::Write) -> io::Result<()> {
        for table in beside(report) {
            self.heading(out, &format!("Beside {}", clean(&table.reference.title)))?;
            let label = self.width() - (HERE + THERE + RATIO + 3);
            let titles = format!("{} {} {}", right("here", HERE), right("there", THERE), right("ratio", RATIO));
            writeln!(out, "{}", self.paint(Paint::Faint, &format!("{} {titles}", " ".repeat(label))))?;
            for row in &table.rows {
                let figures =
                    format!("{} {} {}", right(&row.here, HERE), right(&row.there, THERE), right(&row.ratio, RATIO));
                writeln!(out, "{} {}", left(&clean(&row.what), label), figures.trim_end())?;
                if !row.remark.is_empty() {
                    self.hanging(out, (Paint::Faint, ""), 4, &clean(&row.remark))?;
                }
            }
        }
        Ok(())
    }

    fn studies(&self, report: &Report<'_>, out: &mut dyn io::Write) -> io::Result<()> {
        for study in &report.analysis.studies {
            self.heading(out, &format!("Study {}", clean(&study.id)))?;
            self.hanging(out, (Paint::Faint, ""), 0, &study.design)?;
            for conclusion in &study.conclusions {
                let mark = match conclusion.holds {
                    Some(true) => (Paint::Good, "holds"),
                    Some(false) => (Paint::Odd, "refuted"),
                    None => (Paint::Faint, "open"),
                };
                self.hanging(out, mark, 9, &format!("{} ({})", conclusion.text, conclusion.test))?;
            }
        }
        Ok(())
    }

    fn notes(&self, report: &Report<'_>, out: &mut dyn io::Write) -> io::Result<()> {
        if report.run.notes.is_empty() {
            return Ok(());
        }
        self.heading(out, "Notes")?;
        for note in &report.run.notes {
            self.hanging(out, (Paint::Faint, "-"), 2, note)?;
        }
        Ok(())
    }
}

impl Render for Terminal {
    fn render(&self, report: &Report<'_>, out: &mut dyn io::Write) -> io::Result<()> {
        self.head(report, out)?;
        self.hazards(report, out)?;
        self.verdict(report, out)?;
        let sections = sections(report);
        if sections.is_empty() {
            writeln!(out, "\nNothing was measured.")?;
        }
        for section in &sections {
            self.section(section, out)?;
        }
        self.beside(report, out)?;
        self.studies(report, out)?;
        self.notes(report, out)
    }
}
