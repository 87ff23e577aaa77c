//! A history: on the terminal one screen, or all of it; as Markdown; as one page with a small picture of each series.

mod html;
mod markdown;
mod spark;

use std::io;

use kelvin_analysis::words::history::{FEW_FACTS, besides, breaks, by, change, counts, name, of, remarks, standing};
use kelvin_model::units::brief;
use kelvin_model::{History, SeriesHistory};
use schemars::Schema;

pub use self::html::Page;
pub use self::markdown::Noted;
use self::spark::spark;
use crate::compare::section;
use crate::terminal::screen::ascii;
use crate::text::{left, right, wrap};

/// Lines of a screen, at most.
pub const MOST_LINES: usize = 60;
/// Least and most columns.
const WIDTHS: [usize; 2] = [80, 120];
/// Column widths of a table: the small picture, the latest value, and what it and the last change are a ratio to.
const SPARK: usize = 16;
const LATEST: usize = 11;
const RATIO: usize = 9;
/// Lines of a screen that tell of a change below its series.
const MOST_OF_CHANGE: usize = 2;
/// Lines of a screen that are kept for each section to come.
const KEPT: usize = 6;

/// A history for a terminal.
#[derive(Clone, Copy, Debug)]
pub struct Followed<'a> {
    /// Columns of the terminal.
    pub width: usize,
    /// Whether it shows characters other than ASCII.
    pub unicode: bool,
    /// Whether to print all of it instead of one screen.
    pub full: bool,
    /// The command that prints all of it.
    pub more: &'a str,
}

/// The JSON Schema of a history.
pub fn schema() -> Schema {
    schemars::schema_for!(History)
}

/// A section: its title, and whether a series is of it, by whether its last change is for the worse, if there is one.
type Section = (&'static str, fn(Option<Option<bool>>) -> bool);

/// The sections of a history, in their order.
const SECTIONS: [Section; 4] = [
    ("Last changed for the worse", |last| last == Some(Some(true))),
    ("Last changed for the better", |last| last == Some(Some(false))),
    ("Last changed", |last| last == Some(None)),
    ("No change", |last| last.is_none()),
];

/// The series of a section, in their order.
fn of_section<'h>(history: &'h History, (_, is): &Section) -> Vec<&'h SeriesHistory> {
    let last = |series: &SeriesHistory| series.last_change().map(|change| change.is_worse(series.metric.better));
    history.series.iter().filter(|series| is(last(series))).collect()
}

impl Followed<'_> {
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
        let mut lines = wrap(&of(history), self.width());
        lines.push(String::new());
        lines.push(self.title("Changed for the worse"));
        lines.extend(news.iter().flat_map(|series| self.series(series, history)));
        self.write(&lines, out)
    }

    fn write(&self, lines: &[String], out: &mut dyn io::Write) -> io::Result<()> {
        let page: String = lines.iter().flat_map(|line| [line.trim_end(), "\n"]).collect();
        out.write_all(if self.unicode { page } else { ascii(&page) }.as_bytes())
    }

    fn lines(&self, history: &History) -> Vec<String> {
        let mut lines = wrap(&of(history), self.width());
        lines.extend(wrap(&counts(history), self.width()));
        lines.extend(remarks(history).iter().flat_map(|said| wrap(said, self.width())));
        let more = wrap(&format!("All series and changes: {}", self.more), self.width());
        let more: Vec<String> = std::iter::once(String::new()).chain(more).collect();
        let mut room = MOST_LINES.saturating_sub(lines.len() + more.len());
        let mut has_left_out = false;
        for (index, one) in SECTIONS.iter().enumerate() {
            let series = of_section(history, one);
            if series.is_empty() {
                continue;
            }
            let entries: Vec<Vec<String>> = series.iter().map(|series| self.series(series, history)).collect();
            let to_come = SECTIONS[index + 1..].iter().filter(|later| !of_section(history, later).is_empty()).count();
            let most = room.saturating_sub(2 + KEPT * to_come);
            let most = if self.full { usize::MAX } else { most };
            has_left_out |= entries.iter().map(Vec::len).sum::<usize>() > most;
            let table = section(self.title(one.0), &entries, most, |left_out| format!("  and {left_out} more"));
            room = room.saturating_sub(table.len());
            lines.extend(table);
        }
        if !self.full && (has_left_out || history.series.iter().any(|series| series.last_change().is_some())) {
            lines.extend(more);
        }
        lines
    }

    fn width(&self) -> usize {
        self.width.clamp(WIDTHS[0], WIDTHS[1])
    }

    fn label(&self) -> usize {
        self.width() - 3 - SPARK - LATEST - 2 * RATIO
    }

    fn title(&self, title: &str) -> String {
        let label = left(title, 3 + self.label() + SPARK);
        format!("{label}{}{}{}", right("latest", LATEST), right("of first", RATIO), right("change", RATIO))
    }

    /// A series in a line, or two if its name is long; below it its last change, or all of them.
    fn series(&self, series: &SeriesHistory, history: &History) -> Vec<String> {
        let names = wrap(&name(series), self.label());
        let mut lines: Vec<String> = names.iter().map(|name| format!("  {}", left(name, self.label()))).collect();
        let last = series.last_change().map_or_else(|| "-".into(), |change| by(change.ratio()));
        lines[0].push_str(&format!(
            " {}{}{}{}",
            left(&spark(series, SPARK, self.unicode), SPARK),
            right(&brief(series.latest(), None, series.metric.unit), LATEST),
            right(&by(series.since_first()), RATIO),
            right(&last, RATIO)
        ));
        lines.extend(self.told_below(series, history));
        lines
    }

    fn told_below(&self, series: &SeriesHistory, history: &History) -> Vec<String> {
        let better = series.metric.better;
        let facts = if self.full { usize::MAX } else { FEW_FACTS };
        let said = |one| format!("{}; {}", change(one, better, history), besides(one, facts));
        let mut told: Vec<String> = match self.full {
            true => series.versions.iter().rev().flat_map(|version| version.changes.iter().rev().map(said)).collect(),
            false => series.last_change().map(said).into_iter().collect(),
        };
        told.extend(breaks(series, history));
        let is_told = self.full || series.last_change().is_some() || history.series.len() == 1;
        told.extend(series.among.filter(|_| is_told).map(|among| standing(among, better)));
        let lines = |text: &String| {
            let mut lines = wrap(text, self.width() - 6);
            if !self.full && lines.len() > MOST_OF_CHANGE {
                lines.truncate(MOST_OF_CHANGE);
                let last = &mut lines[MOST_OF_CHANGE - 1];
                *last = last.chars().take(self.width() - 8).chain(" …".chars()).collect();
            }
            lines.into_iter().map(|line| format!("    {line}")).collect::<Vec<String>>()
        };
        told.iter().flat_map(lines).collect()
    }
}
