//! A comparison of two sides: on the terminal one screen, or all of it; as a page; for a pull request; for what shows tests.

mod html;
mod junit;
mod markdown;

use std::io;

use kelvin_analysis::wording::compare::{
    comparison_row, control_missing, is_all_undecided, no_difference_text, not_compared_by_reason, remarks,
    setting_letter, side_text, verdict_counts,
};
use kelvin_core::{ChangeVerdict, ComparedFigure, Comparison, FactDifference};
use schemars::Schema;

pub use self::html::write_page;
pub use self::junit::write_junit;
pub use self::markdown::write_markdown;
use crate::text::{MIN_TEXT_WIDTH, clean, display_width, pad_right, wrap};

/// Lines of a screen, at most.
pub const MAX_SCREEN_LINES: usize = 60;
/// Least and most columns.
const WIDTH_RANGE: [usize; 2] = [80, 120];
/// Column widths of a table: base and other, ratio.
const VALUE_WIDTH: usize = 10;
const RATIO_WIDTH: usize = 7;
const INTERVAL_WIDTH: usize = 17;
/// Lines of a screen for what differs besides figures, for figures that are not known, and for what is not compared.
const MAX_DIFFERENCES: usize = 14;
const MAX_UNDECIDED: usize = 6;
const MAX_ONE_SIDED: usize = 6;
/// Columns of the label of a fact.
const LABEL_WIDTH: usize = 26;

/// A comparison for a terminal.
#[derive(Clone, Copy, Debug)]
pub struct CompareTerminal<'a> {
    /// Columns of the terminal.
    pub width: usize,
    /// Whether to print all of it instead of one screen.
    pub show_all: bool,
    /// The command that prints all of it.
    pub full_command: &'a str,
}

/// The JSON Schema of a comparison.
pub fn schema() -> Schema {
    schemars::schema_for!(Comparison)
}

/// Titles of the tables of a comparison, in their order.
const TABLE_TITLES: [&str; 5] = ["Worse", "Better", "Higher or lower", "Not known, most likely to differ", "The same"];
/// Which of them is of what is not known, and from which on a screen has none.
const UNDECIDED_TABLE: usize = 3;
const HIDDEN_TABLE: usize = 4;

/// The table of a figure with this verdict.
fn table_of_verdict(verdict: &ChangeVerdict) -> usize {
    match verdict {
        ChangeVerdict::Worse => 0,
        ChangeVerdict::Better => 1,
        ChangeVerdict::Higher | ChangeVerdict::Lower => 2,
        ChangeVerdict::NotKnown(_) => UNDECIDED_TABLE,
        ChangeVerdict::Same => HIDDEN_TABLE,
    }
}

/// A table of a comparison: its number and title, and its figures with their places among all.
struct VerdictTable<'c> {
    index: usize,
    title: &'static str,
    figures: Vec<(usize, &'c ComparedFigure)>,
}

/// The tables that have a figure.
fn verdict_tables(comparison: &Comparison) -> impl Iterator<Item = VerdictTable<'_>> {
    let table = move |(index, title): (usize, &&'static str)| {
        let figures = comparison.figures.iter().enumerate();
        let figures = figures.filter(|(_, figure)| table_of_verdict(&figure.verdict) == index).collect();
        VerdictTable { index, title, figures }
    };
    TABLE_TITLES.iter().enumerate().map(table).filter(|table| !table.figures.is_empty())
}

impl CompareTerminal<'_> {
    /// Writes it.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn render(&self, comparison: &Comparison, out: &mut dyn io::Write) -> io::Result<()> {
        self.lines(comparison).iter().try_for_each(|line| writeln!(out, "{}", line.trim_end()))
    }

    fn lines(&self, comparison: &Comparison) -> Vec<String> {
        let mut before = self.header(comparison);
        before.extend(self.differences(comparison));
        let mut after = self.one_sided(comparison);
        if !self.show_all {
            after.extend([String::new(), format!("All figures: {}", self.full_command)]);
        }
        let max_table_lines =
            if self.show_all { usize::MAX } else { MAX_SCREEN_LINES.saturating_sub(before.len() + after.len()) };
        before.extend(self.tables(comparison, max_table_lines));
        before.extend(after);
        before
    }

    fn width(&self) -> usize {
        self.width.clamp(WIDTH_RANGE[0], WIDTH_RANGE[1])
    }

    /// Columns of paragraphs: on a narrow terminal fewer than those of tables.
    fn text_width(&self) -> usize {
        self.width.clamp(MIN_TEXT_WIDTH, WIDTH_RANGE[1])
    }

    /// What is compared, what comes out, and what is to be known of it.
    fn header(&self, comparison: &Comparison) -> Vec<String> {
        let wrapped = |text: &str| wrap(text, self.text_width());
        let mut lines = wrapped(&format!("{} against", side_text(&comparison.other, comparison)));
        lines.extend(wrapped(&side_text(&comparison.base, comparison)));
        lines.push(String::new());
        lines.extend(wrapped(&verdict_counts(comparison)));
        lines.extend(remarks(comparison).iter().flat_map(|remark| wrapped(remark)));
        lines
    }

    fn differences(&self, comparison: &Comparison) -> Vec<String> {
        if comparison.differences.is_empty() {
            let text = wrap(no_difference_text(comparison), self.text_width());
            return std::iter::once(String::new()).chain(text).collect();
        }
        let facts: Vec<Vec<String>> = comparison.differences.iter().map(|fact| self.fact(fact)).collect();
        let max_lines = if self.show_all { usize::MAX } else { MAX_DIFFERENCES };
        titled_section(differences_title(comparison).into(), &facts, max_lines, "more")
    }

    /// A fact, in at most two lines of a screen.
    fn fact(&self, fact: &FactDifference) -> Vec<String> {
        let label = format!("{}: {}", fact.group, fact.label);
        let text_width = self.width() - LABEL_WIDTH - 3;
        let mut lines = wrap(&fact_texts(fact).join(" -> "), text_width);
        if !self.show_all && lines.len() > 2 {
            lines.truncate(2);
            lines[1] = shortened(&format!("{} …", lines[1]), text_width);
        }
        let labels = std::iter::once(shortened(&clean(&label), LABEL_WIDTH)).chain(std::iter::repeat(String::new()));
        let lines = lines.into_iter().map(|line| if self.show_all { line } else { shortened(&line, text_width) });
        lines.zip(labels).map(|(line, label)| format!("  {} {line}", pad_right(&label, LABEL_WIDTH))).collect()
    }

    fn tables(&self, comparison: &Comparison, mut remaining_lines: usize) -> Vec<String> {
        let mut lines = Vec::new();
        for VerdictTable { index, title, figures } in verdict_tables(comparison) {
            // Where all figures are undecided, a few of them carry no information.
            let is_left_out = index >= HIDDEN_TABLE || index == UNDECIDED_TABLE && is_all_undecided(comparison);
            if !self.show_all && is_left_out {
                continue;
            }
            // Room for the tables that follow stays.
            let max_lines = match index {
                _ if self.show_all => usize::MAX,
                UNDECIDED_TABLE => remaining_lines.saturating_sub(3).min(MAX_UNDECIDED),
                _ => remaining_lines.saturating_sub(MAX_UNDECIDED + 6),
            };
            let rows = figures.into_iter().map(|(_, figure)| self.row(index, figure, comparison));
            let table = titled_section(self.title(title, comparison), &rows.collect::<Vec<_>>(), max_lines, "more");
            remaining_lines = remaining_lines.saturating_sub(table.len());
            lines.extend(table);
        }
        lines
    }

    fn label_width(&self) -> usize {
        self.width() - 2 - 2 * VALUE_WIDTH - RATIO_WIDTH - INTERVAL_WIDTH
    }

    /// The title of a table, and those of its columns.
    fn title(&self, title: &str, comparison: &Comparison) -> String {
        // Of two settings the letter is enough: the header explains it.
        let short_name = |name| if comparison.interleaving.is_some() { setting_letter(name) } else { name };
        let name = |name| shortened(&clean(short_name(name)), VALUE_WIDTH - 1);
        let (base, other) = (name(&comparison.base.name), name(&comparison.other.name));
        let (label, width) = (shortened(title, 1 + self.label_width()), 2 + self.label_width());
        format!("{label:width$}{}", columns_text([&base, &other, "ratio", "95 %"]))
    }

    /// A figure of one of the tables. On a screen only figures that are known to differ have a cause.
    fn row(&self, table: usize, figure: &ComparedFigure, comparison: &Comparison) -> Vec<String> {
        let row = comparison_row(figure, comparison);
        let names = wrap(&row.figure, self.label_width());
        let mut lines: Vec<String> =
            names.iter().map(|name| format!("  {}", pad_right(name, self.label_width()))).collect();
        lines[0].push_str(&columns_text([&row.base, &row.other, &row.ratio, &row.interval]));
        let missing = control_missing(figure, comparison).filter(|_| self.show_all);
        let cause = Some(row.cause).filter(|_| self.show_all || table < UNDECIDED_TABLE);
        let remarks = [Some(row.compared_by), Some(row.needs), cause, missing].into_iter().flatten();
        for text in remarks.filter(|text| !text.is_empty()) {
            lines.extend(wrap(&text, self.text_width() - 4).into_iter().map(|line| format!("    {line}")));
        }
        lines
    }

    fn one_sided(&self, comparison: &Comparison) -> Vec<String> {
        let group = |(reason, figures): &(String, Vec<String>)| {
            let named_count = if self.show_all { figures.len() } else { 1 };
            let names = figures[..named_count].join(", ");
            let unnamed_count = figures.len() - named_count;
            let suffix = if unnamed_count > 0 { format!(" and {unnamed_count} more") } else { String::new() };
            let lines = wrap(&format!("{names}{suffix}: {reason}"), self.text_width() - 4);
            let indented = |(index, line)| format!("{}{line}", if index == 0 { "  " } else { "    " });
            lines.into_iter().enumerate().map(indented).collect::<Vec<String>>()
        };
        let groups: Vec<Vec<String>> = not_compared_by_reason(comparison).iter().map(group).collect();
        if groups.is_empty() {
            return Vec::new();
        }
        let max_lines = if self.show_all { usize::MAX } else { MAX_ONE_SIDED };
        titled_section("Not compared".into(), &groups, max_lines, "more reasons")
    }
}

/// A title and what is below it, in this many lines at most below the title: what does not fit is counted.
pub(crate) fn titled_section(title: String, entries: &[Vec<String>], max_lines: usize, noun: &str) -> Vec<String> {
    let mut lines = vec![String::new(), title];
    let (mut line_count, total) = (0, entries.iter().map(Vec::len).sum::<usize>());
    for (index, entry) in entries.iter().enumerate() {
        line_count += entry.len();
        if total > max_lines && line_count >= max_lines {
            lines.push(format!("  and {} {noun}", entries.len() - index));
            break;
        }
        lines.extend_from_slice(entry);
    }
    lines
}

/// What the facts that differ are called: between settings nothing else does.
fn differences_title(comparison: &Comparison) -> &'static str {
    if comparison.interleaving.is_some() { "What differs" } else { "What else differs" }
}

/// A fact of the base and of the other side.
fn fact_texts(fact: &FactDifference) -> [String; 2] {
    [&fact.base, &fact.other].map(|side| side.clone().unwrap_or_else(|| "none".into()))
}

/// Both sides, their ratio and its interval in their columns.
fn columns_text([base, other, ratio, interval]: [&str; 4]) -> String {
    format!("{base:>VALUE_WIDTH$}{other:>VALUE_WIDTH$}{ratio:>RATIO_WIDTH$}{interval:>INTERVAL_WIDTH$}")
}

/// A text cut to this many columns.
fn shortened(text: &str, width: usize) -> String {
    if display_width(text) <= width { text.to_owned() } else { text.chars().take(width - 1).chain(['…']).collect() }
}
