//! A report of a fleet for a terminal.

use kelvin_core::IndirectSort;
use std::io;

use kelvin_core::units::percent;
use kelvin_fleet::{FleetGroup, FleetReport, SeriesDistribution};

use super::{
    SERIES_COLUMNS, association_text, counted, differing_text, group_text, series_cells, series_name, title, verdict,
    widest_series,
};
use crate::text::{clean, display_width, pad_left, pad_right, wrap};

/// Hosts of a screen, at most.
const MAX_HOSTS: usize = 20;
/// Facts of a screen that differ, at most.
const MAX_FACTS: usize = 8;
/// Labels of hosts without peers, at most.
const MAX_LABELS: usize = 8;
/// Figures that are named where no host is out.
const MAX_WIDEST_SERIES: usize = 3;
/// Columns of the names of figures.
const MAX_NAME_WIDTH: usize = 48;

/// A report of a fleet for a terminal.
#[derive(Clone, Copy, Debug)]
pub struct FleetTerminal<'a> {
    /// Columns of the terminal.
    pub width: usize,
    /// Whether to print all of it instead of one screen.
    pub show_all: bool,
    /// The command that prints all of it.
    pub full_command: &'a str,
}

impl FleetTerminal<'_> {
    /// Writes it.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn render(&self, report: &FleetReport, out: &mut dyn io::Write) -> io::Result<()> {
        self.paragraph(out, "", &title(report))?;
        self.paragraph(out, "", &verdict(report))?;
        for group in &report.groups {
            writeln!(out)?;
            self.paragraph(out, "", &group_text(group))?;
            if report.like.is_some() {
                self.acceptance(group, out)?
            } else {
                self.outliers(group, out)?
            }
            self.facts(group, out)?;
            self.paragraph(out, "  ", &group.power)?;
            for text in group.not_tested.iter().filter(|_| self.show_all) {
                self.paragraph(out, "  ", text)?;
            }
            if self.show_all {
                series_table(group, out)?;
            }
        }
        if !report.not_compared.is_empty() {
            writeln!(out)?;
        }
        for group in &report.not_compared {
            let mut labels: Vec<&str> = group.hosts.iter().map(String::as_str).collect();
            let omitted = if self.show_all { 0 } else { labels.len().saturating_sub(MAX_LABELS) };
            labels.truncate(labels.len() - omitted);
            let more = if omitted > 0 { format!(" and {omitted} more") } else { String::new() };
            let text = format!("not compared, {}: {}{more} ({})", group.reason, labels.join(", "), group.name);
            self.paragraph(out, "", &text)?;
        }
        for note in &report.notes {
            self.paragraph(out, "", note)?;
        }
        if !self.show_all {
            writeln!(out, "\n{}", clean(&format!("{}    all figures", self.full_command)))?;
        }
        Ok(())
    }

    fn paragraph(&self, out: &mut dyn io::Write, indent: &str, text: &str) -> io::Result<()> {
        for (number, line) in wrap(&clean(text), self.width.max(40) - indent.len() - 4).iter().enumerate() {
            let hanging = if number == 0 { "" } else { "    " };
            writeln!(out, "{indent}{hanging}{line}")?;
        }
        Ok(())
    }

    fn outliers(&self, group: &FleetGroup, out: &mut dyn io::Write) -> io::Result<()> {
        let shown = if self.show_all { group.outliers.len() } else { MAX_HOSTS };
        for outlier in group.outliers.iter().take(shown) {
            self.paragraph(out, "  ", &outlier.line)?;
        }
        let omitted = group.outliers.len().saturating_sub(shown);
        if omitted > 0 {
            self.paragraph(out, "  ", &format!("and {}", counted(omitted, "more host")))?;
        }
        let text = |series: &SeriesDistribution| format!("{} ({})", series_name(series), percent(series.between_hosts));
        let widest: Vec<String> = widest_series(group, MAX_WIDEST_SERIES).into_iter().map(text).collect();
        match widest.is_empty() || !group.outliers.is_empty() {
            true => Ok(()),
            false => self.paragraph(out, "  ", &format!("hosts spread most in {}", widest.join(", "))),
        }
    }

    fn acceptance(&self, group: &FleetGroup, out: &mut dyn io::Write) -> io::Result<()> {
        let mut hosts: Vec<_> = group.acceptance.iter().collect();
        hosts.indirect_sort_by_key(|host| host.is_accepted);
        for host in hosts {
            let word = if host.is_accepted { "pass" } else { "FAIL" };
            let reasons = host.reasons.join("; ");
            let separator = if reasons.is_empty() { "" } else { ": " };
            self.paragraph(out, "  ", &format!("{word} {}{separator}{reasons}", host.label))?;
        }
        Ok(())
    }

    fn facts(&self, group: &FleetGroup, out: &mut dyn io::Write) -> io::Result<()> {
        for association in &group.associations {
            self.paragraph(out, "  ", &association_text(association))?;
        }
        let shown = if self.show_all { group.differing_facts.len() } else { MAX_FACTS };
        for fact in group.differing_facts.iter().take(shown) {
            self.paragraph(out, "  ", &format!("hosts differ in {}", differing_text(fact)))?;
        }
        let omitted = group.differing_facts.len().saturating_sub(shown);
        if omitted > 0 {
            self.paragraph(out, "  ", &format!("and in {}", counted(omitted, "more fact")))
        } else {
            Ok(())
        }
    }
}

/// All series of a group; as wide as it needs.
fn series_table(group: &FleetGroup, out: &mut dyn io::Write) -> io::Result<()> {
    let rows: Vec<[String; 7]> =
        group.series.iter().map(|series| series_cells(series).map(|cell| clean(&cell))).collect();
    let head = SERIES_COLUMNS.map(str::to_owned);
    let width = |column: usize| {
        let widths = rows.iter().chain([&head]).map(|row| display_width(&row[column]));
        widths.max().unwrap_or(0).min(if column == 0 { MAX_NAME_WIDTH } else { usize::MAX })
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    writeln!(out)?;
    for row in [&head].into_iter().chain(&rows) {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, &width))| match column {
            0 => pad_right(cell, width),
            _ => pad_left(cell, width),
        });
        writeln!(out, "  {}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    Ok(())
}
