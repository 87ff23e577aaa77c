//! The first screen: at most 60 lines of 80 columns that say what the machine is, how long it takes for what, what stands out, and
//! what to do first.

use std::io;

use kelvin_model::{AgainstPrediction, Estimate, MissingWhy, RateLine, RunStatus, Rung, Screen, ScreenFigure};

use super::{Paint, Terminal};
use crate::ladder::{Axis, label, reference};
use crate::sections::{Entry, Section, sections};
use crate::text::{clean, columns, left, right, wrap};
use crate::{Render, Report, words};

/// Lines of the screen, at most.
pub const MOST_LINES: usize = 60;
/// Widest screen: in a wider one the eye loses the line between a name and its figure.
const WIDEST: usize = 100;

/// Most lines of what could otherwise fill the screen: the machine's description, remedies, names without figures.
const MOST_OF_HEAD: usize = 4;
const MOST_OF_REMEDIES: usize = 4;
const MOST_OF_MISSING: usize = 2;
/// Most cautions, of two lines each; of more the number is said.
const MOST_CAUTIONS: usize = 2;

/// Characters of the name of a published machine: with them all marks are explained in 80 columns.
const MOST_OF_TITLE: usize = 18;

/// What a legend says of a slower figure if there is room.
const THAN_PREDICTED: &str = " than predicted";

/// Columns of the words before the last paragraphs.
const WORD: usize = 13;
/// Fewest columns of an axis.
const LEAST_PLOT: usize = 20;
/// Columns of the name of a rate.
const RATE: usize = 18;

/// The first screen of a run; of a run that has none, all its tables.
#[derive(Clone, Copy, Debug)]
pub struct FirstScreen<'a> {
    /// Its width and colours.
    pub terminal: Terminal,
    /// Whether characters other than ASCII are shown.
    pub unicode: bool,
    /// Whether the tables of what was measured follow.
    pub tables: bool,
    /// Where more is: a command or a file, and what it has.
    pub more: &'a [(String, String)],
}

/// The marks of a ladder.
#[derive(Clone, Copy, Debug)]
struct Marks {
    grid: char,
    predicted: char,
    interval: char,
    measured: char,
    as_found: char,
    published: char,
    slower: char,
    faster: char,
}

const UNICODE: Marks = Marks {
    grid: '┊',
    predicted: '━',
    interval: '─',
    measured: '●',
    as_found: '◇',
    published: '○',
    slower: '▲',
    faster: '▼',
};

const ASCII: Marks = Marks {
    grid: ':',
    predicted: '=',
    interval: '-',
    measured: 'o',
    as_found: '~',
    published: '*',
    slower: '!',
    faster: '+',
};

impl Render for FirstScreen<'_> {
    fn render(&self, report: &Report<'_>, out: &mut dyn io::Write) -> io::Result<()> {
        let Some(screen) = &report.analysis.screen else { return self.terminal.render(report, out) };
        let lines = Drawing { of: *self, report, screen }.lines();
        let page: String = lines.iter().map(|line| format!("{}\n", line.trim_end())).collect();
        let page = self.terminal.without_foreign_controls(&page);
        out.write_all(if self.unicode { page } else { ascii(&page) }.as_bytes())?;
        if self.tables { self.asked_tables(report, out) } else { Ok(()) }
    }
}

impl FirstScreen<'_> {
    /// The tables of what was measured for its own sake.
    fn asked_tables(&self, report: &Report<'_>, out: &mut dyn io::Write) -> io::Result<()> {
        let mut page = Vec::new();
        for section in sections(report) {
            let asked = |entry: &&Entry<'_>| !entry.only_input();
            let entries: Vec<Entry<'_>> = section.entries.iter().filter(asked).cloned().collect();
            if !entries.is_empty() {
                self.terminal.section(&Section { entries, ..section }, &mut page)?;
            }
        }
        out.write_all(self.terminal.without_foreign_controls(&String::from_utf8_lossy(&page)).as_bytes())
    }
}

/// Text in ASCII, character by character, so that columns stay in place; what has no likeness is a question mark.
pub(crate) fn ascii(text: &str) -> String {
    let like = |c: char| match c {
        _ if c.is_ascii() => c,
        'µ' => 'u',
        '×' => 'x',
        '±' => '~',
        '–' | '—' | '─' => '-',
        '\u{a0}' | '\u{202f}' => ' ',
        '…' => '.',
        _ => '?',
    };
    text.chars().map(like).collect()
}

/// The ladder and the rates in lines of 80 columns, for formats of text.
pub(crate) fn ladder_lines(report: &Report<'_>, screen: &Screen) -> Vec<String> {
    let of = FirstScreen { terminal: Terminal::default(), unicode: true, tables: false, more: &[] };
    let drawing = Drawing { of, report, screen };
    let lines = [drawing.ladder(&drawing.rungs(usize::MAX)), vec![String::new()], drawing.rates()].concat();
    lines.iter().map(|line| line.trim_end().to_owned()).collect()
}

/// A screen that is drawn.
struct Drawing<'a> {
    of: FirstScreen<'a>,
    report: &'a Report<'a>,
    screen: &'a Screen,
}

impl Drawing<'_> {
    fn width(&self) -> usize {
        self.of.terminal.width().min(WIDEST)
    }

    fn marks(&self) -> Marks {
        if self.of.unicode { UNICODE } else { ASCII }
    }

    fn paint(&self, paint: Paint, text: &str) -> String {
        self.of.terminal.paint(paint, text)
    }

    fn lines(&self) -> Vec<String> {
        let (head, rates) = (self.head(), self.rates());
        let mut after = self.remedies();
        after.extend(self.precision());
        after.extend(self.missing());
        let more = self.more();
        if !more.is_empty() {
            after.push(String::new());
            after.extend(more);
        }
        // The blank lines around ladder and rates, the axis and the legend.
        let beside_rungs = head.len() + 1 + 2 + 1 + rates.len() + 1 + after.len();
        let sentences = self.stand_outs(MOST_LINES).len();
        let rungs = self.rungs(MOST_LINES.saturating_sub(beside_rungs + sentences));
        let mut before = [head, vec![String::new()], self.ladder(&rungs), vec![String::new()], rates].concat();
        // Blank lines and the title around what stands out.
        let room = MOST_LINES.saturating_sub(before.len() + after.len() + 3);
        let stand_outs = self.stand_outs(room);
        before.extend(stand_outs);
        before.push(String::new());
        before.extend(after);
        before
    }

    /// So many rungs, or all that are not to spare.
    fn rungs(&self, room: usize) -> Vec<&Rung> {
        let mut rungs: Vec<&Rung> = self.screen.rungs.iter().collect();
        while rungs.len() > room
            && let Some(last) = rungs.iter().rposition(|rung| rung.is_spare)
        {
            rungs.remove(last);
        }
        rungs
    }

    /// A paragraph that hangs behind a word, in so many lines at most.
    fn hanging(&self, (paint, word): (Paint, &str), indent: usize, text: &str, most: usize) -> Vec<String> {
        let room = self.width() - indent;
        let mut lines = wrap(text, room);
        if lines.len() > most {
            lines.truncate(most);
            if let Some(last) = lines.last_mut() {
                let cut: String = last.chars().take(room - 4).collect();
                *last = format!("{} ...", cut.trim_end());
            }
        }
        let head = format!("{}{}", self.paint(paint, word), " ".repeat(indent.saturating_sub(columns(word))));
        let begin = |index: usize| if index == 0 { head.clone() } else { " ".repeat(indent) };
        lines.into_iter().enumerate().map(|(index, line)| format!("{}{line}", begin(index))).collect()
    }

    /// What the machine is, how the run went, and what changes how to read it.
    fn head(&self) -> Vec<String> {
        let run = self.report.run;
        let name = clean(&format!("kelvin {}", run.outline.kelvin));
        let text = format!("{}. {}", words::machine_line(run), words::extent(self.report));
        let mut lines = self.hanging((Paint::Title, &name), columns(&name) + 3, &text, MOST_OF_HEAD);
        if let RunStatus::Partial(why) = &run.status {
            lines.extend(self.hanging((Paint::Bad, "partial"), WORD, why, 1));
        }
        let cautions = &self.screen.cautions;
        lines.extend(cautions.iter().take(MOST_CAUTIONS).flat_map(|one| self.hanging((Paint::Bad, "!"), 2, one, 2)));
        if let Some(more) = cautions.len().checked_sub(MOST_CAUTIONS).filter(|more| *more > 0) {
            lines.push(self.paint(Paint::Bad, &format!("! {more} more among the findings")));
        }
        lines
    }

    fn ladder(&self, rungs: &[&Rung]) -> Vec<String> {
        let named = rungs.iter().map(|&rung| columns(&label(rung))).max().unwrap_or(0) + 3;
        let figures = rungs.iter().map(|rung| columns(rung.figure.drawn_text())).max().unwrap_or(0);
        let plot = self.width().saturating_sub(named + figures + 3).max(LEAST_PLOT);
        let axis = Axis::of(&self.screen.rungs);
        let mut lines = vec![format!("{}{}", " ".repeat(named), self.paint(Paint::Faint, &scale(&axis, plot)))];
        for rung in rungs {
            lines.push(format!(
                "{}{} {}",
                left(&format!("  {}", clean(&label(rung))), named),
                self.track(rung, &axis, plot),
                self.figure(&rung.figure, rung.figure.drawn_text(), figures)
            ));
        }
        lines.push(self.legend(named));
        lines
    }

    /// A figure in these words, with a mark if it is not as predicted or only as found.
    fn figure(&self, figure: &ScreenFigure, text: &str, width: usize) -> String {
        let text = right(&clean(text), width);
        let (paint, mark) = match figure.against {
            AgainstPrediction::Slower => (Paint::Odd, self.marks().slower),
            AgainstPrediction::Faster => (Paint::Good, self.marks().faster),
            AgainstPrediction::AsPredicted | AgainstPrediction::NotCompared if figure.measured.is_some() => {
                return text;
            }
            _ if figure.as_found.is_some() => (Paint::Faint, self.marks().as_found),
            _ => return self.paint(Paint::Faint, &text),
        };
        self.paint(paint, &format!("{text} {mark}"))
    }

    /// The line of a rung between name and figure.
    fn track(&self, rung: &Rung, axis: &Axis, width: usize) -> String {
        let marks = self.marks();
        let at = |seconds: f64| column(axis.share(seconds), width);
        let mut cells = vec![(' ', Paint::Faint); width];
        axis.labelled().for_each(|(share, _)| cells[column(share, width)].0 = marks.grid);
        let mut fill = |from: f64, to: f64, cell: (char, Paint)| cells[at(from)..=at(to)].fill(cell);
        if let Some(predicted) = &rung.figure.predicted {
            fill(predicted.low, predicted.high, (marks.predicted, Paint::Faint));
        }
        let published = reference(self.report).and_then(|(machine, _)| crate::ladder::published(rung, machine));
        if let Some(seconds) = published {
            fill(seconds, seconds, (marks.published, Paint::Faint));
        }
        if let Some(Estimate { value, low, high, .. }) = rung.figure.drawn() {
            let mark = if rung.figure.measured.is_some() { marks.measured } else { marks.as_found };
            fill(low, high, (marks.interval, Paint::Title));
            fill(value, value, (mark, Paint::Title));
        }
        let same = |a: &(char, Paint), b: &(char, Paint)| a.1 == b.1;
        let painted = cells.chunk_by(same).map(|cells| {
            let text: String = cells.iter().map(|(mark, _)| *mark).collect();
            if text.trim().is_empty() { text } else { self.paint(cells[0].1, &text) }
        });
        painted.collect()
    }

    /// What the marks mean, below the axis if there is room.
    fn legend(&self, named: usize) -> String {
        let marks = self.marks();
        let has = |against| self.figures().any(|figure| figure.against == against);
        let mut parts = vec![format!("{} predicted", marks.predicted), format!("{} measured", marks.measured)];
        if let Some((_, title)) = reference(self.report) {
            let machine: String = title.chars().take(MOST_OF_TITLE).collect();
            parts.push(format!("{} {}", marks.published, clean(&machine)));
        }
        if has(AgainstPrediction::Slower) {
            parts.push(format!("{} slower{THAN_PREDICTED}", marks.slower));
        }
        if has(AgainstPrediction::Faster) {
            parts.push(format!("{} faster", marks.faster));
        }
        if self.figures().any(|figure| figure.as_found.is_some()) {
            parts.push(format!("{} {}", marks.as_found, words::AS_FOUND));
        }
        let whole = parts.join("  ");
        let legend = if columns(&whole) <= self.width() { whole } else { whole.replace(THAN_PREDICTED, "") };
        let indent = named.min(self.width().saturating_sub(columns(&legend)));
        format!("{}{}", " ".repeat(indent), self.paint(Paint::Faint, &legend))
    }

    /// All figures of the screen.
    fn figures(&self) -> impl Iterator<Item = &ScreenFigure> {
        let rates = self.screen.rates.iter().flat_map(|line| &line.rates).map(|rate| &rate.figure);
        self.screen.rungs.iter().map(|rung| &rung.figure).chain(rates)
    }

    fn rates(&self) -> Vec<String> {
        self.screen
            .rates
            .iter()
            .map(|line| format!("  {}{}", left(&clean(&line.what), RATE), self.rate(line)))
            .collect()
    }

    /// `41.9 GB/s read, 55.6 copy, 40.8 fill`: a unit is said once.
    fn rate(&self, line: &RateLine) -> String {
        let mut said = "";
        let each = line.rates.iter().map(|rate| {
            let (text, has_value) = (rate.figure.drawn_text(), rate.figure.drawn().is_some());
            let (value, unit) = text.rsplit_once(' ').unwrap_or((text, ""));
            let figure = self.figure(&rate.figure, if has_value && unit == said { value } else { text }, 0);
            said = if has_value { unit } else { "" };
            let of = clean(&rate.of);
            if has_value { format!("{figure} {of}") } else { format!("{of} {figure}") }
        });
        each.collect::<Vec<_>>().join(", ")
    }

    /// As many sentences as there is room for, the first ones.
    fn stand_outs(&self, room: usize) -> Vec<String> {
        let mut lines = Vec::new();
        for (index, one) in self.screen.stand_outs.iter().enumerate() {
            let sentence = self.hanging((Paint::Faint, &format!("  {}", index + 1)), 4, &one.text, room);
            if lines.len() + sentence.len() <= room {
                lines.extend(sentence);
            }
        }
        if lines.is_empty() {
            return lines;
        }
        [vec![String::new(), self.paint(Paint::Title, "What stands out")], lines].concat()
    }

    /// As many remedies as there is room for, whole ones.
    fn remedies(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for remedy in &self.screen.do_first {
            let word = if lines.is_empty() { "Do first" } else { "" };
            let text = format!("{}: {}", remedy.against.join("; "), remedy.command);
            let remedy = self.hanging((Paint::Title, word), WORD, &text, 3);
            if lines.len() + remedy.len() <= MOST_OF_REMEDIES {
                lines.extend(remedy);
            }
        }
        lines
    }

    fn precision(&self) -> Vec<String> {
        let Some(text) = words::precision(self.report.analysis) else { return Vec::new() };
        self.hanging((Paint::Title, "Precision"), WORD, &text, 1)
    }

    /// What has no figure: how many, and which metrics.
    fn missing(&self) -> Vec<String> {
        let all: Vec<String> = self.screen.missing.iter().map(words::missing).collect();
        if all.is_empty() {
            return Vec::new();
        }
        let is_bad = |why| matches!(why, MissingWhy::Failed | MissingWhy::Invalid);
        let paint = if self.screen.missing.iter().any(|one| is_bad(one.why)) { Paint::Bad } else { Paint::Title };
        self.hanging((paint, "No figure"), WORD, &all.join("; "), MOST_OF_MISSING)
    }

    fn more(&self) -> Vec<String> {
        let widest = self.of.more.iter().map(|(command, _)| columns(&clean(command))).max().unwrap_or(0);
        let line = |(command, what): &(String, String)| {
            let both = format!("{}   {}", left(&clean(command), widest), clean(what));
            if columns(&both) > self.width() { clean(command) } else { both }
        };
        self.of.more.iter().map(line).collect()
    }
}

/// The times along the axis, each centred on its place.
fn scale(axis: &Axis, width: usize) -> String {
    let mut line: Vec<char> = vec![' '; width];
    let mut free_from = 0;
    for (share, text) in axis.labelled() {
        let size = columns(&text);
        let from = column(share, width).saturating_sub(size / 2).min(width - size);
        if from >= free_from {
            text.chars().enumerate().for_each(|(index, c)| line[from + index] = c);
            free_from = from + size + 1;
        }
    }
    line.into_iter().collect()
}

/// Which of so many columns a share of the axis is.
fn column(share: f64, width: usize) -> usize {
    (share.clamp(0.0, 1.0) * (width - 1) as f64).round() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ascii_keeps_columns_in_place() {
        let text = "29 µs ± 1 \u{202f}● é";
        assert_eq!(ascii(text), "29 us ~ 1  ? ?");
        assert_eq!(ascii(text).chars().count(), text.chars().count());
    }
}
