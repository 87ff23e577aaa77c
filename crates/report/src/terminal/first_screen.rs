//! The first screen: at most 60 lines of 80 columns that say what the machine is, how long it takes for what, what stands out, and
//! what to do first.

use kelvin_core::{
    Estimate, MissingFigures, MissingReason, Overview, OverviewFigure, PredictionVerdict, RateRow, Remedy, RunStatus,
    Rung,
};

use super::text_plot::{centred_labels, column_of};
use super::{FirstScreen, MAX_SCREEN_LINES, PROMPT, Terminal, TextStyle};
use crate::history::ascii_bar;
use crate::ladder::{LadderAxis, compared_reference, label, published_seconds};
use crate::text::{clean, display_width, pad_right, wrap};
use crate::{Report, labels};

/// Widest screen: in a wider one the eye loses the line between a name and its figure.
pub(super) const MAX_WIDTH: usize = 100;

/// Most lines of what could otherwise fill the screen: the machine's description, remedies, names without figures.
const MAX_HEADER_LINES: usize = 4;
const MAX_REMEDY_LINES: usize = 4;
const MAX_MISSING_LINES: usize = 2;
/// Most cautions, of two lines each; of more the number is given.
const MAX_CAUTIONS: usize = 2;

/// Characters of the name of a published machine: with them all marks are explained in 80 columns.
const MAX_TITLE_CHARS: usize = 18;

/// Columns of the word behind a figure that is not as predicted.
const VERDICT_WIDTH: usize = 6;

/// Columns of the words before the last paragraphs.
const WORD_WIDTH: usize = 13;
/// Fewest columns of an axis.
const MIN_AXIS_WIDTH: usize = 20;
/// Columns of the name of a rate.
const RATE_WIDTH: usize = 18;

/// The marks of a ladder.
const GRID_MARK: char = '┊';
const CLASS_MARK: char = '┄';
const PREDICTED_MARK: char = '━';
const INTERVAL_MARK: char = '─';
const MEASURED_MARK: char = '●';
const PUBLISHED_MARK: char = '○';

/// Text in ASCII, character by character, so that columns stay in place; what has no likeness is a question mark.
pub(crate) fn to_ascii(text: &str) -> String {
    text.chars().map(|c| ascii_sign(c).unwrap_or('?')).collect()
}

/// Text in which every sign of kelvin's own is ASCII, character by character. Other characters stay, such as those of a file's name.
pub fn with_ascii_signs(text: &str) -> String {
    text.chars().map(|c| ascii_sign(c).unwrap_or(c)).collect()
}

/// The ASCII character that a sign resembles.
fn ascii_sign(c: char) -> Option<char> {
    Some(match c {
        _ if c.is_ascii() => c,
        GRID_MARK => ':',
        CLASS_MARK => '.',
        PREDICTED_MARK => '=',
        MEASURED_MARK => 'o',
        labels::AS_FOUND_MARK => '~',
        PUBLISHED_MARK => '*',
        'µ' => 'u',
        '×' => 'x',
        '±' => '~',
        '–' | '—' | INTERVAL_MARK => '-',
        '\u{a0}' | '\u{202f}' => ' ',
        '…' | '·' => '.',
        '│' => '|',
        '┤' | '┬' | '└' => '+',
        _ => return ascii_bar(c),
    })
}

/// The ladder and the rates in lines of 80 columns, for formats of text.
pub(crate) fn ladder_lines(report: &Report<'_>, screen: &Overview) -> Vec<String> {
    let options = FirstScreen { terminal: Terminal::default(), unicode: true, tables: false, further_outputs: &[] };
    let drawing = ScreenDrawing { options, report, screen };
    let rates = screen.rates.iter().flat_map(|row| drawing.rate(row)).collect();
    let lines = [drawing.ladder(&drawing.rungs(usize::MAX)), vec![String::new()], rates].concat();
    lines.iter().map(|line| line.trim_end().to_owned()).collect()
}

/// A screen that is drawn.
pub(super) struct ScreenDrawing<'a> {
    pub(super) options: FirstScreen<'a>,
    pub(super) report: &'a Report<'a>,
    pub(super) screen: &'a Overview,
}

impl ScreenDrawing<'_> {
    fn width(&self) -> usize {
        self.options.terminal.width().min(MAX_WIDTH)
    }

    fn paint(&self, paint: TextStyle, text: &str) -> String {
        self.options.terminal.paint(paint, text)
    }

    pub(super) fn lines(&self) -> Vec<String> {
        let (head, rates) = (self.head(), self.screen.rates.iter().flat_map(|row| self.rate(row)).collect::<Vec<_>>());
        let mut footer = self.remedies();
        if let Some(precision) = labels::precision(self.report.analysis) {
            footer.extend(self.hanging((TextStyle::Title, "Precision"), WORD_WIDTH, &precision, 1));
        }
        footer.extend(self.missing());
        footer.extend(self.options.further_output_lines());
        // The blank lines around ladder and rates, the axis and the legend.
        let fixed_lines = head.len() + 1 + 2 + 1 + rates.len() + 1 + footer.len();
        let sentences = self.stand_outs(MAX_SCREEN_LINES).len();
        let rungs = self.rungs(MAX_SCREEN_LINES.saturating_sub(fixed_lines + sentences));
        let mut lines = [head, vec![String::new()], self.ladder(&rungs), vec![String::new()], rates].concat();
        // Blank lines and the title around what stands out.
        let max_lines = MAX_SCREEN_LINES.saturating_sub(lines.len() + footer.len() + 3);
        lines.extend(self.stand_outs(max_lines));
        lines.push(String::new());
        lines.extend(footer);
        lines
    }

    /// This many rungs, or all that are not to spare.
    fn rungs(&self, max_rungs: usize) -> Vec<&Rung> {
        let mut rungs: Vec<&Rung> = self.screen.rungs.iter().collect();
        while rungs.len() > max_rungs
            && let Some(last) = rungs.iter().rposition(|rung| rung.is_spare)
        {
            rungs.remove(last);
        }
        rungs
    }

    /// A paragraph that hangs behind a word, in this many lines at most.
    fn hanging(&self, mark: (TextStyle, &str), indent: usize, text: &str, max_lines: usize) -> Vec<String> {
        let terminal_width = self.options.terminal.text_width().min(MAX_WIDTH);
        let (text_width, max_lines) = (terminal_width - indent, max_lines * self.width().div_ceil(terminal_width));
        let mut lines = wrap(text, text_width);
        if lines.len() > max_lines {
            lines.truncate(max_lines);
            if let Some(last) = lines.last_mut() {
                let cut: String = last.chars().take(text_width - 4).collect();
                *last = format!("{} ...", cut.trim_end());
            }
        }
        self.options.terminal.hanging_lines(mark, indent, lines)
    }

    /// What the machine is, how the run went, and what changes how to read it.
    fn head(&self) -> Vec<String> {
        let run = self.report.run;
        let name = clean(&format!("kelvin {}", run.header.kelvin));
        let text = format!("{}. {}", labels::machine_line(run), labels::run_extent(self.report));
        let mut lines = self.hanging((TextStyle::Title, &name), display_width(&name) + 3, &text, MAX_HEADER_LINES);
        if let RunStatus::Partial(reason) = &run.status {
            lines.extend(self.hanging((TextStyle::Bad, "partial"), WORD_WIDTH, reason, 1));
        }
        let cautions = &self.screen.cautions;
        lines.extend(
            cautions.iter().take(MAX_CAUTIONS).flat_map(|caution| self.hanging((TextStyle::Bad, "!"), 2, caution, 2)),
        );
        if let Some(remaining) = cautions.len().checked_sub(MAX_CAUTIONS).filter(|count| *count > 0) {
            lines.push(self.paint(TextStyle::Bad, &format!("! {remaining} more among the findings")));
        }
        lines
    }

    fn ladder(&self, rungs: &[&Rung]) -> Vec<String> {
        let name_width = rungs.iter().map(|&rung| display_width(&label(rung))).max().unwrap_or(0) + 3;
        let short_rungs = rungs.iter().filter(|rung| is_short(&rung.figure));
        let figure_width = short_rungs.map(|rung| display_width(rung.figure.drawn_text())).max().unwrap_or(0);
        let suffix_width = rungs.iter().map(|rung| display_width(&self.trailing_text(&rung.figure))).max().unwrap_or(0);
        let plot_width = self.width().saturating_sub(name_width + figure_width + 1 + suffix_width).max(MIN_AXIS_WIDTH);
        let axis = LadderAxis::for_rungs(&self.screen.rungs);
        let times = centred_labels(axis.labels().map(|(share, text)| (column_of(share, plot_width), text)), plot_width);
        let times = self.paint(TextStyle::Faint, &pad_right(&times, plot_width));
        let mut lines = vec![format!("{}{times}", " ".repeat(name_width))];
        for rung in rungs {
            let name = format!("{:name_width$}", format!("  {}", clean(&label(rung))));
            if !is_short(&rung.figure) {
                let width = plot_width + 1 + figure_width;
                let text = format!("{:>width$}", clean(rung.figure.drawn_text()));
                lines.push(format!("{name}{}", self.painted(&rung.figure, &text)));
                continue;
            }
            let text =
                format!("{:>figure_width$}{}", clean(rung.figure.drawn_text()), self.trailing_text(&rung.figure));
            lines.push(format!("{name}{} {}", self.track(rung, &axis, plot_width), self.painted(&rung.figure, &text)));
        }
        lines.push(self.legend(name_width));
        lines
    }

    /// What stands behind a figure of the ladder: a word where it is not as predicted, a mark where it is only as found. The word is the
    /// same for a time and a rate, where an arrow would point the other way.
    fn trailing_text(&self, figure: &OverviewFigure) -> String {
        let suffix = labels::as_found_suffix(figure);
        match figure.verdict {
            PredictionVerdict::Slower | PredictionVerdict::Faster => format!(" {}", pad_right(&suffix, VERDICT_WIDTH)),
            _ if suffix.is_empty() => suffix,
            _ => format!(" {suffix}"),
        }
    }

    /// A text of a figure in the colour of its verdict.
    fn painted(&self, figure: &OverviewFigure, text: &str) -> String {
        match figure.verdict {
            PredictionVerdict::Slower => self.paint(TextStyle::Odd, text),
            PredictionVerdict::Faster => self.paint(TextStyle::Good, text),
            _ if figure.measured.is_some() => text.to_owned(),
            _ => self.paint(TextStyle::Faint, text),
        }
    }

    /// The line of a rung between name and figure.
    fn track(&self, rung: &Rung, axis: &LadderAxis, width: usize) -> String {
        let column = |seconds: f64| column_of(axis.share(seconds), width);
        let mut cells = vec![(' ', TextStyle::Faint); width];
        axis.labels().for_each(|(share, _)| cells[column_of(share, width)].0 = GRID_MARK);
        let mut fill = |from: f64, to: f64, cell: (char, TextStyle)| cells[column(from)..=column(to)].fill(cell);
        if let Some(class) = &rung.figure.class_range {
            fill(class.low, class.high, (CLASS_MARK, TextStyle::Faint));
        }
        if let Some(predicted) = &rung.figure.predicted {
            fill(predicted.low, predicted.high, (PREDICTED_MARK, TextStyle::Faint));
        }
        let published = compared_reference(self.report).and_then(|(machine, _)| published_seconds(rung, machine));
        if let Some(seconds) = published {
            fill(seconds, seconds, (PUBLISHED_MARK, TextStyle::Faint));
        }
        if let Some(Estimate { value, low, high, .. }) = rung.figure.drawn_value() {
            let mark = if rung.figure.measured.is_some() { MEASURED_MARK } else { labels::AS_FOUND_MARK };
            fill(low, high, (INTERVAL_MARK, TextStyle::Title));
            fill(value, value, (mark, TextStyle::Title));
        }
        let has_same_style = |a: &(char, TextStyle), b: &(char, TextStyle)| a.1 == b.1;
        let painted = cells.chunk_by(has_same_style).map(|cells| {
            let text: String = cells.iter().map(|(mark, _)| *mark).collect();
            if text.trim().is_empty() { text } else { self.paint(cells[0].1, &text) }
        });
        painted.collect()
    }

    /// What the marks mean, below the axis if there is room.
    fn legend(&self, name_width: usize) -> String {
        let has_class = self.screen.rungs.iter().any(|rung| rung.figure.class_range.is_some());
        let machine = compared_reference(self.report).map(|(_, title)| title.chars().take(MAX_TITLE_CHARS).collect());
        let has_as_found = self.figures().any(|figure| figure.as_found.is_some());
        let parts = [
            (PREDICTED_MARK, Some("predicted".to_owned())),
            (MEASURED_MARK, Some("measured".into())),
            (CLASS_MARK, has_class.then(|| labels::CLASS_LABEL.into())),
            (PUBLISHED_MARK, machine.map(|machine: String| clean(&machine))),
            (labels::AS_FOUND_MARK, has_as_found.then(|| labels::AS_FOUND_LABEL.into())),
        ];
        let parts = parts.into_iter().filter_map(|(mark, text)| Some(format!("{mark} {}", text?)));
        let verdicts = [PredictionVerdict::Slower, PredictionVerdict::Faster].into_iter();
        let verdicts = verdicts.filter(|verdict| self.figures().any(|figure| figure.verdict == *verdict));
        let words: Vec<&str> = verdicts.map(labels::prediction_word).collect();
        // A word is clear without the legend, which has it if there is room.
        let words = if words.is_empty() { String::new() } else { format!("  {}: than predicted", words.join(", ")) };
        let mut legend = parts.collect::<Vec<String>>().join("  ");
        if display_width(&legend) + display_width(&words) <= self.width() {
            legend.push_str(&words);
        }
        let indent = name_width.min(self.width().saturating_sub(display_width(&legend)));
        format!("{}{}", " ".repeat(indent), self.paint(TextStyle::Faint, &legend))
    }

    /// All figures of the screen.
    fn figures(&self) -> impl Iterator<Item = &OverviewFigure> {
        let rates = self.screen.rates.iter().flat_map(|line| &line.rates).map(|rate| &rate.figure);
        self.screen.rungs.iter().map(|rung| &rung.figure).chain(rates)
    }

    /// `41.9 GB/s read (slower), 55.6 copy, 40.8 fill`: a unit is written once. What does not fit goes on in the next line.
    fn rate(&self, line: &RateRow) -> Vec<String> {
        const INDENT: usize = 2 + RATE_WIDTH;
        let label = format!("  {}", pad_right(&clean(&line.label), RATE_WIDTH));
        if let Some(reason) = labels::missing_rates(line) {
            return self.hanging((TextStyle::Faint, &label), INDENT, &reason, 1);
        }
        let mut lines = vec![label];
        let (mut last_unit, mut column) = ("", INDENT);
        for (index, rate) in line.rates.iter().enumerate() {
            let (text, has_value) = (rate.figure.drawn_text(), rate.figure.drawn_value().is_some());
            let (value, unit) = text.rsplit_once(' ').unwrap_or((text, ""));
            let text = clean(if has_value && unit == last_unit { value } else { text });
            last_unit = if has_value { unit } else { "" };
            let work = clean(&rate.work);
            let text = if has_value { format!("{text} {work}") } else { format!("{work} {text}") };
            let text = match self.trailing_text(&rate.figure).trim() {
                "" => text,
                word if rate.figure.measured.is_none() => format!("{text} {word}"),
                word => format!("{text} ({word})"),
            };
            let comma = if index + 1 < line.rates.len() { "," } else { "" };
            let width = display_width(&text) + comma.len();
            if column > INDENT && column + 1 + width > self.width() {
                lines.push(" ".repeat(INDENT));
                column = INDENT;
            }
            let gap = if column > INDENT { " " } else { "" };
            column += gap.len() + width;
            if let Some(last) = lines.last_mut() {
                *last = format!("{last}{gap}{}{comma}", self.painted(&rate.figure, &text));
            }
        }
        lines.extend(line.doubt.iter().flat_map(|doubt| self.hanging((TextStyle::Faint, ""), INDENT, doubt, 2)));
        lines
    }

    /// As many sentences as there is room for, the first ones.
    fn stand_outs(&self, max_lines: usize) -> Vec<String> {
        let mut lines = Vec::new();
        for (index, stand_out) in self.screen.stand_outs.iter().enumerate() {
            let sentence = self.hanging((TextStyle::Faint, &format!("  {}", index + 1)), 4, &stand_out.text, max_lines);
            // A shorter one behind it would leave a gap in the numbers.
            if lines.len() + sentence.len() > max_lines {
                break;
            }
            lines.extend(sentence);
        }
        if lines.is_empty() {
            return lines;
        }
        [vec![String::new(), self.paint(TextStyle::Title, "What stands out")], lines].concat()
    }

    /// As many remedies as there is room for, whole ones.
    fn remedies(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for remedy in &self.screen.remedies {
            let word = if lines.is_empty() { "Do first" } else { "" };
            let remedy = self.remedy(remedy, word);
            if lines.len() + remedy.len() <= MAX_REMEDY_LINES {
                lines.extend(remedy);
            }
        }
        lines
    }

    /// A command is on a line of its own, followed by what it removes if there is room; advice follows what it removes.
    fn remedy(&self, remedy: &Remedy, word: &str) -> Vec<String> {
        let problems = remedy.problems.join("; ");
        if !remedy.is_command {
            return self.hanging((TextStyle::Title, word), WORD_WIDTH, &format!("{problems}: {}", remedy.command), 3);
        }
        let command = format!("{PROMPT}{}", clean(&remedy.command));
        if WORD_WIDTH + display_width(&command) + 3 + display_width(&problems) <= self.width() {
            return self.hanging((TextStyle::Title, word), WORD_WIDTH, &format!("{command} \u{a0} {problems}"), 1);
        }
        let mut lines = self.hanging((TextStyle::Title, word), WORD_WIDTH, &command, 2);
        lines.extend(self.hanging((TextStyle::Title, ""), WORD_WIDTH, &problems, 2));
        lines
    }

    /// What has no figure: how many, and which metrics.
    fn missing(&self) -> Vec<String> {
        let names: Vec<String> = self.screen.missing.iter().map(labels::missing_figure).collect();
        if names.is_empty() {
            return Vec::new();
        }
        let is_failure =
            |missing: &MissingFigures| matches!(missing.reason, MissingReason::Failed | MissingReason::Invalid);
        let paint = if self.screen.missing.iter().any(is_failure) { TextStyle::Bad } else { TextStyle::Title };
        self.hanging((paint, "No figure"), WORD_WIDTH, &names.join("; "), MAX_MISSING_LINES)
    }
}

/// Most columns of a reason that stands where figures do; a longer one takes the place of the axis.
const MAX_SHORT_TEXT: usize = 12;

/// Whether a figure, or why there is none, stands behind the axis.
fn is_short(figure: &OverviewFigure) -> bool {
    figure.drawn_value().is_some() || display_width(&figure.text) <= MAX_SHORT_TEXT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ascii_keeps_columns() {
        let text = "29 µs ± 1 \u{202f}● é";
        assert_eq!(to_ascii(text), "29 us ~ 1  o ?");
        assert_eq!(to_ascii(text).chars().count(), text.chars().count());
        assert_eq!(with_ascii_signs(text), "29 us ~ 1  o é");
    }
}
