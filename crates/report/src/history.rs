//! A history: on the terminal one screen, or all of it; as Markdown; as one page with a small picture of each series.

mod html;
mod markdown;
mod sparkline;

use std::io;

use kelvin_analysis::wording::history::{
    MAX_NAMED_FACTS, change_counts, change_sentence, history_title, other_changes, ranking_text, remarks, series_name,
    share_text, version_breaks,
};
use kelvin_core::units::brief_value;
use kelvin_core::{History, HistoryChange, SeriesHistory};
use schemars::Schema;

pub use self::html::write_page;
pub use self::markdown::write_markdown;
pub(crate) use self::sparkline::ascii_bar;
use self::sparkline::sparkline;
use crate::compare::titled_section;
use crate::terminal::first_screen::to_ascii;
use crate::text::{MIN_TEXT_WIDTH, pad_right, wrap};

/// Lines of a screen, at most.
pub const MAX_SCREEN_LINES: usize = 60;
/// Least and most columns.
const WIDTH_RANGE: [usize; 2] = [MIN_TEXT_WIDTH, 120];
/// Columns from which on the name of a series stands beside its figures, and not above them.
const MIN_TABLE_WIDTH: usize = 80;
/// Column widths of a table: the small picture, the latest value, and what it and the last change are a ratio to.
const SPARKLINE_WIDTH: usize = 16;
const LATEST_WIDTH: usize = 11;
const RATIO_WIDTH: usize = 9;
/// Lines of a screen for the changes of a series, below it.
const MAX_CHANGE_LINES: usize = 2;
/// Lines of a screen that are kept for each section to come.
const RESERVED_LINES: usize = 6;

/// A history for a terminal.
#[derive(Clone, Copy, Debug)]
pub struct HistoryTerminal<'a> {
    /// Columns of the terminal.
    pub width: usize,
    /// Whether it shows characters other than ASCII.
    pub unicode: bool,
    /// Whether to print all of it instead of one screen.
    pub show_all: bool,
    /// The command that prints all of it.
    pub full_command: &'a str,
}

/// The JSON Schema of a history.
pub fn schema() -> Schema {
    schemars::schema_for!(History)
}

/// The sections of a history, in their order: their titles, and of which series they are, by whether the last change is for the worse, if
/// there is one.
const SECTIONS: [(&str, Option<Option<bool>>); 4] = [
    ("Last changed for the worse", Some(Some(true))),
    ("Last changed for the better", Some(Some(false))),
    ("Last changed", Some(None)),
    (UNCHANGED, None),
];
/// The section of what did not change, which folds.
const UNCHANGED: &str = "No change";

/// The series of each section that has any, in their order.
fn sections(history: &History) -> Vec<(&'static str, Vec<&SeriesHistory>)> {
    let last = |series: &SeriesHistory| series.last_change().map(|change| change.is_worse(series.metric.better));
    let series = |change| history.series.iter().filter(|series| last(series) == change).collect::<Vec<_>>();
    let sections = SECTIONS.iter().map(|(title, change)| (*title, series(*change)));
    sections.filter(|(_, series)| !series.is_empty()).collect()
}

/// The texts of a series: these changes of it, breaks between versions of its method, and its rank where that matters.
fn series_texts<'h>(
    series: &SeriesHistory,
    history: &History,
    changes: impl Iterator<Item = &'h HistoryChange>,
    max_facts: usize,
    is_ranked: bool,
) -> Vec<String> {
    let better = series.metric.better;
    let change = |change| format!("{}; {}", change_sentence(change, better, history), other_changes(change, max_facts));
    let rank = series.ranking.filter(|_| is_ranked).map(|ranking| ranking_text(ranking, better));
    changes.map(change).chain(version_breaks(series, history)).chain(rank).collect()
}

/// All changes of a series, the newest first.
fn newest_changes(series: &SeriesHistory) -> impl Iterator<Item = &HistoryChange> {
    series.versions.iter().rev().flat_map(|version| version.changes.iter().rev())
}

impl HistoryTerminal<'_> {
    /// Writes it.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn render(&self, history: &History, out: &mut dyn io::Write) -> io::Result<()> {
        self.write(&self.lines(history), out)
    }

    /// Writes these series of it only, with their last changes: for a reader that is called when there is something to read.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn render_news(&self, news: &[&SeriesHistory], history: &History, out: &mut dyn io::Write) -> io::Result<()> {
        let mut lines = wrap(&history_title(history), self.width());
        lines.push(String::new());
        lines.push(self.title("Changed for the worse"));
        lines.extend(news.iter().flat_map(|series| self.series(series, history)));
        self.write(&lines, out)
    }

    fn write(&self, lines: &[String], out: &mut dyn io::Write) -> io::Result<()> {
        let page: String = lines.iter().flat_map(|line| [line.trim_end(), "\n"]).collect();
        out.write_all(if self.unicode { page } else { to_ascii(&page) }.as_bytes())
    }

    fn lines(&self, history: &History) -> Vec<String> {
        let mut lines = wrap(&history_title(history), self.width());
        lines.extend(wrap(&change_counts(history), self.width()));
        lines.extend(remarks(history).iter().flat_map(|remark| wrap(remark, self.width())));
        let footer = wrap(&format!("All series and changes: {}", self.full_command), self.width());
        let footer: Vec<String> = std::iter::once(String::new()).chain(footer).collect();
        let mut remaining_lines = MAX_SCREEN_LINES.saturating_sub(lines.len() + footer.len());
        let mut has_omissions = false;
        let sections = sections(history);
        for (index, (title, series)) in sections.iter().enumerate() {
            let entries: Vec<Vec<String>> = series.iter().map(|series| self.series(series, history)).collect();
            let max_lines = remaining_lines.saturating_sub(2 + RESERVED_LINES * (sections.len() - index - 1));
            let max_lines = if self.show_all { usize::MAX } else { max_lines };
            has_omissions |= entries.iter().map(Vec::len).sum::<usize>() > max_lines;
            let table = titled_section(self.title(title), &entries, max_lines, "more");
            remaining_lines = remaining_lines.saturating_sub(table.len());
            lines.extend(table);
        }
        if !self.show_all && (has_omissions || history.series.iter().any(|series| series.last_change().is_some())) {
            lines.extend(footer);
        }
        lines
    }

    fn width(&self) -> usize {
        self.width.clamp(WIDTH_RANGE[0], WIDTH_RANGE[1])
    }

    fn is_narrow(&self) -> bool {
        self.width() < MIN_TABLE_WIDTH
    }

    fn label_width(&self) -> usize {
        if self.is_narrow() {
            self.width() - 2
        } else {
            self.width() - 3 - SPARKLINE_WIDTH - LATEST_WIDTH - 2 * RATIO_WIDTH
        }
    }

    fn title(&self, title: &str) -> String {
        if self.is_narrow() {
            return title.to_owned();
        }
        let label = pad_right(title, 3 + self.label_width() + SPARKLINE_WIDTH);
        format!("{label}{:>LATEST_WIDTH$}{:>RATIO_WIDTH$}{:>RATIO_WIDTH$}", "latest", "of first", "change")
    }

    /// A series in a line, or more if its name is long or the terminal narrow; below it its last change, or all of them.
    fn series(&self, series: &SeriesHistory, history: &History) -> Vec<String> {
        let names = wrap(&series_name(series), self.label_width());
        let mut lines: Vec<String> =
            names.iter().map(|name| format!("  {}", pad_right(name, self.label_width()))).collect();
        let last = series.last_change().map_or_else(|| "-".into(), |change| share_text(change.ratio()));
        let picture = sparkline(series, SPARKLINE_WIDTH, self.unicode);
        let (latest, first) =
            (brief_value(series.latest(), None, series.metric.unit), share_text(series.since_first()));
        if self.is_narrow() {
            let figures = format!("{picture} latest {latest}, of first {first}, change {last}");
            lines.extend(wrap(&figures, self.width() - 4).into_iter().map(|line| format!("    {line}")));
        } else {
            lines[0].push_str(&format!(
                " {picture:SPARKLINE_WIDTH$}{latest:>LATEST_WIDTH$}{first:>RATIO_WIDTH$}{last:>RATIO_WIDTH$}"
            ));
        }
        lines.extend(self.change_lines(series, history));
        lines
    }

    fn change_lines(&self, series: &SeriesHistory, history: &History) -> Vec<String> {
        let is_ranked = self.show_all || series.last_change().is_some() || history.series.len() == 1;
        let texts = match self.show_all {
            true => series_texts(series, history, newest_changes(series), usize::MAX, is_ranked),
            false => series_texts(series, history, series.last_change().into_iter(), MAX_NAMED_FACTS, is_ranked),
        };
        let lines = |text: &String| {
            let mut lines = wrap(text, self.width() - 6);
            if !self.show_all && lines.len() > MAX_CHANGE_LINES {
                lines.truncate(MAX_CHANGE_LINES);
                let last = &mut lines[MAX_CHANGE_LINES - 1];
                *last = last.chars().take(self.width() - 8).chain(" …".chars()).collect();
            }
            lines.into_iter().map(|line| format!("    {line}")).collect::<Vec<String>>()
        };
        texts.iter().flat_map(lines).collect()
    }
}
