//! The first screen: at most 60 lines of 80 columns that say what the machine is, how long it takes for what, what stands out, and
//! what to do first.

use std::io;

use kelvin_model::{AgainstPrediction, Estimate, MissingWhy, RateLine, Remedy, RunStatus, Rung, Screen, ScreenFigure};

use super::study_screen::StudyScreen;
use super::{PROMPT, Paint, Terminal, is_study};
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

/// Columns of the word behind a figure that is not as predicted.
const VERDICT: usize = 6;

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
    class: char,
    predicted: char,
    interval: char,
    measured: char,
    as_found: char,
    published: char,
}

const UNICODE: Marks =
    Marks {
        grid: '┊', class: '┄', predicted: '━', interval: '─', measured: '●', as_found: '◇', published: '○'
    };

const ASCII: Marks =
    Marks { grid: ':', class: '.', predicted: '=', interval: '-', measured: 'o', as_found: '~', published: '*' };

impl Render for FirstScreen<'_> {
    fn render(&self, report: &Report<'_>, out: &mut dyn io::Write) -> io::Result<()> {
        let lines = match &report.analysis.screen {
            Some(screen) => Drawing { of: *self, report, screen }.lines(),
            None if is_study(report) => StudyScreen { of: *self, report }.lines()?,
            None => return self.terminal.render(report, out),
        };
        let page: String = lines.iter().map(|line| format!("{}\n", line.trim_end())).collect();
        let page = self.terminal.without_foreign_controls(&page);
        out.write_all(if self.unicode { page } else { ascii(&page) }.as_bytes())?;
        if self.tables && report.analysis.screen.is_some() { self.asked_tables(report, out) } else { Ok(()) }
    }
}

impl FirstScreen<'_> {
    /// Where more is, a line each.
    pub(super) fn more_lines(&self) -> Vec<String> {
        let widest = self.more.iter().map(|(command, _)| columns(&clean(command))).max().unwrap_or(0);
        let line = |(command, what): &(String, String)| {
            let both = format!("{}   {}", left(&clean(command), widest), clean(what));
            if columns(&both) > self.terminal.width().min(WIDEST) { clean(command) } else { both }
        };
        self.more.iter().map(line).collect()
    }

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
        let more = self.of.more_lines();
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
        let known = rungs.iter().filter(|rung| is_short(&rung.figure));
        let figures = known.map(|rung| columns(rung.figure.drawn_text())).max().unwrap_or(0);
        let behind = rungs.iter().map(|rung| columns(&self.behind(&rung.figure))).max().unwrap_or(0);
        let plot = self.width().saturating_sub(named + figures + 1 + behind).max(LEAST_PLOT);
        let axis = Axis::of(&self.screen.rungs);
        let mut lines = vec![format!("{}{}", " ".repeat(named), self.paint(Paint::Faint, &scale(&axis, plot)))];
        for rung in rungs {
            let name = left(&format!("  {}", clean(&label(rung))), named);
            if !is_short(&rung.figure) {
                let text = right(&clean(rung.figure.drawn_text()), plot + 1 + figures);
                lines.push(format!("{name}{}", self.painted(&rung.figure, &text)));
                continue;
            }
            lines.push(format!(
                "{name}{} {}",
                self.track(rung, &axis, plot),
                self.painted(
                    &rung.figure,
                    &format!("{}{}", right(&clean(rung.figure.drawn_text()), figures), self.behind(&rung.figure))
                )
            ));
        }
        lines.push(self.legend(named));
        lines
    }

    /// What stands behind a figure of the ladder: a word where it is not as predicted, a mark where it is only as found. The word is the
    /// same for a time and a rate, where an arrow would point the other way.
    fn behind(&self, figure: &ScreenFigure) -> String {
        match figure.against {
            against @ (AgainstPrediction::Slower | AgainstPrediction::Faster) => {
                format!(" {}", left(words::against(against), VERDICT))
            }
            _ if figure.as_found.is_some() => format!(" {}", self.marks().as_found),
            _ => String::new(),
        }
    }

    /// A text of a figure in the colour of its verdict.
    fn painted(&self, figure: &ScreenFigure, text: &str) -> String {
        match figure.against {
            AgainstPrediction::Slower => self.paint(Paint::Odd, text),
            AgainstPrediction::Faster => self.paint(Paint::Good, text),
            _ if figure.measured.is_some() => text.to_owned(),
            _ => self.paint(Paint::Faint, text),
        }
    }

    /// The line of a rung between name and figure.
    fn track(&self, rung: &Rung, axis: &Axis, width: usize) -> String {
        let marks = self.marks();
        let at = |seconds: f64| column(axis.share(seconds), width);
        let mut cells = vec![(' ', Paint::Faint); width];
        axis.labelled().for_each(|(share, _)| cells[column(share, width)].0 = marks.grid);
        let mut fill = |from: f64, to: f64, cell: (char, Paint)| cells[at(from)..=at(to)].fill(cell);
        if let Some(class) = &rung.figure.of_class {
            fill(class.low, class.high, (marks.class, Paint::Faint));
        }
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
        let mut parts = vec![format!("{} predicted", marks.predicted), format!("{} measured", marks.measured)];
        if self.screen.rungs.iter().any(|rung| rung.figure.of_class.is_some()) {
            parts.push(format!("{} {}", marks.class, words::OF_CLASS));
        }
        if let Some((_, title)) = reference(self.report) {
            let machine: String = title.chars().take(MOST_OF_TITLE).collect();
            parts.push(format!("{} {}", marks.published, clean(&machine)));
        }
        let words = [AgainstPrediction::Slower, AgainstPrediction::Faster];
        let words: Vec<&str> = words
            .into_iter()
            .filter(|against| self.figures().any(|figure| figure.against == *against))
            .map(words::against)
            .collect();
        if self.figures().any(|figure| figure.as_found.is_some()) {
            parts.push(format!("{} {}", marks.as_found, words::AS_FOUND));
        }
        // A word is clear without the legend, which has it if there is room.
        let words = if words.is_empty() { String::new() } else { format!("  {}: than predicted", words.join(", ")) };
        let legend = parts.join("  ");
        let legend = if columns(&legend) + columns(&words) <= self.width() { legend + &words } else { legend };
        let indent = named.min(self.width().saturating_sub(columns(&legend)));
        format!("{}{}", " ".repeat(indent), self.paint(Paint::Faint, &legend))
    }

    /// All figures of the screen.
    fn figures(&self) -> impl Iterator<Item = &ScreenFigure> {
        let rates = self.screen.rates.iter().flat_map(|line| &line.rates).map(|rate| &rate.figure);
        self.screen.rungs.iter().map(|rung| &rung.figure).chain(rates)
    }

    fn rates(&self) -> Vec<String> {
        self.screen.rates.iter().flat_map(|line| self.rate(line)).collect()
    }

    /// `41.9 GB/s read (slower), 55.6 copy, 40.8 fill`: a unit is said once. What does not fit goes on in the next line.
    fn rate(&self, line: &RateLine) -> Vec<String> {
        const INDENT: usize = 2 + RATE;
        let what = format!("  {}", left(&clean(&line.what), RATE));
        if let Some(why) = words::no_rates(line) {
            return self.hanging((Paint::Faint, &what), INDENT, &why, 1);
        }
        let mut lines = vec![what];
        let (mut said, mut used) = ("", INDENT);
        let but = line.but.as_ref().map(|but| self.hanging((Paint::Faint, ""), INDENT, but, 2));
        for (index, rate) in line.rates.iter().enumerate() {
            let (text, has_value) = (rate.figure.drawn_text(), rate.figure.drawn().is_some());
            let (value, unit) = text.rsplit_once(' ').unwrap_or((text, ""));
            let text = clean(if has_value && unit == said { value } else { text });
            said = if has_value { unit } else { "" };
            let of = clean(&rate.of);
            let text = if has_value { format!("{text} {of}") } else { format!("{of} {text}") };
            let text = match self.behind(&rate.figure).trim() {
                "" => text,
                word if rate.figure.measured.is_none() => format!("{text} {word}"),
                word => format!("{text} ({word})"),
            };
            let comma = if index + 1 < line.rates.len() { "," } else { "" };
            let width = columns(&text) + comma.len();
            if used > INDENT && used + 1 + width > self.width() {
                lines.push(" ".repeat(INDENT));
                used = INDENT;
            }
            let gap = if used > INDENT { " " } else { "" };
            used += gap.len() + width;
            if let Some(last) = lines.last_mut() {
                *last = format!("{last}{gap}{}{comma}", self.painted(&rate.figure, &text));
            }
        }
        lines.extend(but.into_iter().flatten());
        lines
    }

    /// As many sentences as there is room for, the first ones.
    fn stand_outs(&self, room: usize) -> Vec<String> {
        let mut lines = Vec::new();
        for (index, one) in self.screen.stand_outs.iter().enumerate() {
            let sentence = self.hanging((Paint::Faint, &format!("  {}", index + 1)), 4, &one.text, room);
            // A shorter one behind it would leave a gap in the numbers.
            if lines.len() + sentence.len() > room {
                break;
            }
            lines.extend(sentence);
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
            let remedy = self.remedy(remedy, word);
            if lines.len() + remedy.len() <= MOST_OF_REMEDIES {
                lines.extend(remedy);
            }
        }
        lines
    }

    /// A command stands on a line of its own, beside what it removes if there is room; advice goes on from that.
    fn remedy(&self, remedy: &Remedy, word: &str) -> Vec<String> {
        let against = remedy.against.join("; ");
        if !remedy.is_command {
            return self.hanging((Paint::Title, word), WORD, &format!("{against}: {}", remedy.command), 3);
        }
        let command = format!("{PROMPT}{}", clean(&remedy.command));
        if WORD + columns(&command) + 3 + columns(&against) <= self.width() {
            return self.hanging((Paint::Title, word), WORD, &format!("{command} \u{a0} {against}"), 1);
        }
        let mut lines = self.hanging((Paint::Title, word), WORD, &command, 2);
        lines.extend(self.hanging((Paint::Title, ""), WORD, &against, 2));
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
}

/// Most columns of a reason that stands where figures do; a longer one takes the place of the axis.
const SHORT: usize = 12;

/// Whether a figure, or why there is none, stands behind the axis.
fn is_short(figure: &ScreenFigure) -> bool {
    figure.drawn().is_some() || columns(&figure.text) <= SHORT
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
