//! Terminal: the first screen; or the verdict, then a table for each area, then hazards, in 80 columns or more.

pub(crate) mod first_screen;
mod point_table;
mod study_screen;
mod study_table;
mod table;
mod text_plot;

use std::io;

use anstyle::{AnsiColor, Style};
use kelvin_analysis::wording::{class_comparison, half_width_count, measured_cost};
use kelvin_analysis::{StatedConclusion, Study, StudyAnswer};
use kelvin_core::text::escape_invisible_lines;
use kelvin_core::{RunStatus, Severity};

use crate::published::published_comparisons;
use crate::sections::{Section, SectionEntry, sections};
use crate::text::{MIN_TEXT_WIDTH, clean, display_width, pad_right, wrap};
use crate::{Render, Report, labels, rivals, study_tables};

pub(crate) use first_screen::ladder_lines;
pub use first_screen::with_ascii_signs;
pub(crate) use study_screen::{leading_conclusions, study_title};
pub use text_plot::plot_lines;

/// Minimum columns of the tables; a narrower terminal wraps them.
const MIN_WIDTH: usize = 80;
/// Maximum columns: more are a mistake.
const MAX_WIDTH: usize = 1000;

/// The mark that distinguishes a command from advice in words.
const PROMPT: &str = "$ ";

/// Lines of the screen, at most.
pub const MAX_SCREEN_LINES: usize = 60;

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
    pub further_outputs: &'a [(String, String)],
}

impl Render for FirstScreen<'_> {
    fn render(&self, report: &Report<'_>, out: &mut dyn io::Write) -> io::Result<()> {
        let lines = match &report.analysis.overview {
            Some(screen) => first_screen::ScreenDrawing { options: *self, report, screen }.lines(),
            None if is_study(report) => study_screen::StudyScreen { options: *self, report }.lines(),
            None => return self.terminal.render(report, out),
        };
        let lines: Vec<String> = lines.iter().map(|line| line.trim_end().to_owned()).collect();
        let page = self.terminal.page(&lines);
        out.write_all(if self.unicode { page } else { first_screen::to_ascii(&page) }.as_bytes())?;
        let requested = if self.tables && report.analysis.overview.is_some() { sections(report) } else { Vec::new() };
        let requested = sections_by_purpose(&requested, false);
        self.terminal
            .write(&requested.iter().flat_map(|section| self.terminal.section(section)).collect::<Vec<_>>(), out)
    }
}

impl FirstScreen<'_> {
    /// Where more is, a line each below a blank one; nothing where it is nowhere.
    pub(super) fn further_output_lines(&self) -> Vec<String> {
        if self.further_outputs.is_empty() {
            return Vec::new();
        }
        let widest = self.further_outputs.iter().map(|(command, _)| display_width(&clean(command))).max().unwrap_or(0);
        let line = |(command, description): &(String, String)| {
            let text = format!("{}   {}", pad_right(&clean(command), widest), clean(description));
            if display_width(&text) > self.terminal.width().min(first_screen::MAX_WIDTH) {
                clean(command)
            } else {
                text
            }
        };
        std::iter::once(String::new()).chain(self.further_outputs.iter().map(line)).collect()
    }
}

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
const DISTANCE_NOTE: &str = "The number after a verdict: how far outside of its predicted range the figure is, in half-widths of \
                        that range (as factors).";

/// Column widths of the table of rivals.
const PROGRAM_WIDTH: usize = 10;
const RATE_WIDTH: usize = 9;
const RIVAL_RATIO_WIDTH: usize = 16;
const RIVAL_VERDICT_WIDTH: usize = 8;

/// What sections have for its own sake, or only as inputs.
pub(crate) fn sections_by_purpose<'a>(sections: &[Section<'a>], only_input: bool) -> Vec<Section<'a>> {
    sections.iter().filter_map(|section| section.with_entries(|entry| entry.only_input() == only_input)).collect()
}

/// Whether a run answers one question.
pub(crate) fn is_study(report: &Report<'_>) -> bool {
    report.run.header.settings.mode.as_str() == "study"
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
}

impl Terminal {
    fn width(&self) -> usize {
        self.width.clamp(MIN_WIDTH, MAX_WIDTH)
    }

    /// Columns of paragraphs: on a narrow terminal fewer than those of tables.
    fn text_width(&self) -> usize {
        self.width.clamp(MIN_TEXT_WIDTH, MAX_WIDTH)
    }

    fn paint(&self, paint: TextStyle, text: &str) -> String {
        let style = paint.style();
        if self.color { format!("{style}{text}{style:#}") } else { text.to_owned() }
    }

    /// A paragraph that hangs behind a mark; the mark is painted, and counts as `columns` wide.
    fn hanging(&self, mark: (TextStyle, &str), columns: usize, text: &str) -> Vec<String> {
        self.hanging_lines(mark, columns, wrap(text, self.text_width() - columns))
    }

    fn hanging_lines(&self, (paint, mark): (TextStyle, &str), columns: usize, lines: Vec<String>) -> Vec<String> {
        let indent = " ".repeat(columns);
        let mut lines: Vec<String> = lines.into_iter().map(|line| format!("{indent}{line}")).collect();
        if let (Some(first), false) = (lines.first_mut(), mark.is_empty()) {
            first.replace_range(..display_width(mark).min(columns), &self.paint(paint, mark));
        }
        lines
    }

    fn paragraph(&self, text: &str) -> Vec<String> {
        wrap(text, self.text_width())
    }

    /// A paragraph in one style.
    fn painted(&self, paint: TextStyle, text: &str) -> Vec<String> {
        self.paragraph(text).iter().map(|line| self.paint(paint, line)).collect()
    }

    fn heading(&self, text: &str) -> Vec<String> {
        vec![String::new(), self.paint(TextStyle::Title, text)]
    }

    /// A heading with a list of texts; nothing at all for an empty list.
    fn list(&self, title: &str, texts: &[String]) -> Vec<String> {
        if texts.is_empty() {
            return Vec::new();
        }
        let items = texts.iter().flat_map(|text| self.hanging((TextStyle::Faint, "-"), 2, text));
        self.heading(title).into_iter().chain(items).collect()
    }

    fn head(&self, report: &Report<'_>) -> Vec<String> {
        let title = format!("kelvin {}: {}", report.run.header.kelvin, labels::machine_line(report.run));
        let is_complete = report.run.status == RunStatus::Complete;
        let paint = if is_complete { TextStyle::Faint } else { TextStyle::Bad };
        [self.painted(TextStyle::Title, &title), self.painted(paint, &labels::run_line(report.run))].concat()
    }

    /// The serious hazards, which spoil figures and come before them, or the other ones; nothing where there are none of these.
    fn hazards(&self, report: &Report<'_>, is_serious: bool) -> Vec<String> {
        let mut hazards = labels::hazards(report.run);
        let has_none = hazards.is_empty();
        hazards.retain(|hazard| (hazard.severity == Severity::Serious) == is_serious);
        if hazards.is_empty() && (is_serious || !has_none) {
            return Vec::new();
        }
        let mut lines = self.heading(if is_serious { "Serious hazards" } else { "Hazards" });
        lines.extend(has_none.then(|| "none found".into()));
        for hazard in hazards {
            let paint = match hazard.severity {
                Severity::Serious => TextStyle::Bad,
                Severity::Warning => TextStyle::Odd,
                Severity::Note => TextStyle::Faint,
            };
            lines.extend(self.hanging((paint, hazard.severity.name()), 9, &hazard.summary));
            let prompt = if hazard.remedy_is_command { PROMPT } else { "" };
            let remedy = hazard.remedy.as_ref().map(|remedy| format!("remedy: {prompt}{remedy}"));
            for text in measured_cost(&hazard.id, report.analysis).into_iter().chain(remedy) {
                lines.extend(self.hanging((paint, ""), 9, &text));
            }
        }
        lines
    }

    /// Rival programs.
    fn rivals(&self, report: &Report<'_>) -> Vec<String> {
        let rows = rivals::rows(report);
        if rows.is_empty() {
            return Vec::new();
        }
        let mut lines = self.heading(rivals::TITLE);
        let label_width = self.width() - (PROGRAM_WIDTH + 2 * RATE_WIDTH + RIVAL_RATIO_WIDTH + RIVAL_VERDICT_WIDTH + 5);
        let line = |[work, program, kelvin, other, ratio]: [&str; 5]| {
            format!(
                "{work:label_width$} {program:PROGRAM_WIDTH$} {kelvin:>RATE_WIDTH$} {other:>RATE_WIDTH$} {ratio:>RIVAL_RATIO_WIDTH$} "
            )
        };
        if rows.iter().any(|row| row.sides.is_ok()) {
            let titles = line(["", "program", "kelvin", "its own", "ratio"]) + "verdict";
            lines.push(self.paint(TextStyle::Faint, &titles));
        }
        for row in &rows {
            let Ok(sides) = &row.sides else { continue };
            let (mut work, mut program) = (clean(&row.work), clean(row.program));
            if display_width(&work) > label_width || display_width(&program) > PROGRAM_WIDTH {
                lines.extend(self.paragraph(&format!("{work}, {program}")));
                (work, program) = Default::default();
            }
            let text = line([&work, &program, &sides.kelvin, &sides.other, &sides.short_ratio]);
            let verdict = self.paint(if sides.is_gap { TextStyle::Odd } else { TextStyle::Good }, sides.verdict);
            lines.push(format!("{text}{verdict}").trim_end().to_owned());
        }
        for (names, word, reason) in rivals::missing(&rows) {
            let text = format!("{}: {}", clean(&names.join("; ")), clean(reason));
            lines.extend(self.hanging((TextStyle::Faint, word), 12, &text));
        }
        lines
    }

    /// What published machines have in common with the run.
    fn published_machines(&self, report: &Report<'_>) -> Vec<String> {
        let mut lines = Vec::new();
        let label_width = self.width() - (HERE_WIDTH + THERE_WIDTH + RATIO_WIDTH + 3);
        let line = |quantity: &str, measured: &str, published: &str, ratio: &str| {
            format!("{quantity:label_width$} {measured:>HERE_WIDTH$} {published:>THERE_WIDTH$} {ratio:>RATIO_WIDTH$}")
        };
        for table in published_comparisons(report) {
            lines.extend(self.heading(&format!("Compared with {}", clean(&table.reference.title))));
            lines.push(self.paint(TextStyle::Faint, &line("", "here", "there", "ratio")));
            for row in &table.rows {
                let mut quantity = clean(&row.quantity);
                if display_width(&quantity) > label_width {
                    lines.extend(self.paragraph(&quantity));
                    quantity.clear();
                }
                lines.push(line(&quantity, &row.measured, &row.published, &row.ratio).trim_end().to_owned());
                if !row.remark.is_empty() {
                    lines.extend(self.hanging((TextStyle::Faint, ""), 4, &clean(&row.remark)));
                }
            }
        }
        lines
    }

    /// Writes a study alone, as one that no run made.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write_study(&self, study: &Study, out: &mut dyn io::Write) -> io::Result<()> {
        self.write(&self.study(study), out)
    }

    fn study(&self, study: &Study) -> Vec<String> {
        [self.heading(&format!("Study {}", clean(&study.id))), self.conclusions(study)].concat()
    }

    /// The answer, conclusions, design and tables of a study: what was found stands before how.
    fn conclusions(&self, study: &Study) -> Vec<String> {
        let mut lines: Vec<String> = study.answers.iter().flat_map(|answer| self.answer(answer)).collect();
        lines.extend(study.conclusions.iter().flat_map(|conclusion| self.conclusion(conclusion, true)));
        lines.extend((!study.conclusions.is_empty()).then(String::new));
        lines.extend(self.paragraph(&study.design));
        lines.extend(study.tables.iter().flat_map(|table| self.study_table(table)));
        lines
    }

    /// A conclusion behind its verdict, with or without its test.
    fn conclusion(&self, conclusion: &StatedConclusion, with_test: bool) -> Vec<String> {
        let paint = match conclusion.holds {
            Some(true) => TextStyle::Good,
            Some(false) => TextStyle::Odd,
            None => TextStyle::Faint,
        };
        let test = if with_test { format!(" ({})", conclusion.test) } else { String::new() };
        self.hanging((paint, study_tables::verdict(conclusion)), 11, &format!("{}{test}", conclusion.text))
    }

    /// What a study answers, and below it, indented, what that rests on.
    fn answer(&self, answer: &StudyAnswer) -> Vec<String> {
        let mut lines = self.painted(TextStyle::Title, &answer.text);
        lines.extend(answer.reasons.iter().flat_map(|text| self.hanging((TextStyle::Faint, ""), 2, text)));
        lines.push(String::new());
        lines
    }

    /// Writes lines with all control characters escaped except the styles of [`TextStyle`].
    fn write(&self, lines: &[String], out: &mut dyn io::Write) -> io::Result<()> {
        out.write_all(self.page(lines).as_bytes())
    }

    fn page(&self, lines: &[String]) -> String {
        // What begins and ends painted text, longer ones first.
        let styles = [TextStyle::Bad, TextStyle::Odd, TextStyle::Good, TextStyle::Faint, TextStyle::Title];
        let styles = styles.map(TextStyle::style);
        let sequences = styles.iter().map(ToString::to_string).chain([format!("{:#}", Style::new().bold())]);
        let allowed_sequences: Vec<String> = sequences.filter(|_| self.color).collect();
        let mut page = String::new();
        for line in lines {
            let mut rest = line.as_str();
            while let Some((before, tail)) = rest.find('\u{1b}').map(|start| rest.split_at(start)) {
                page.push_str(&escape_invisible_lines(before));
                let style = allowed_sequences.iter().find(|style| tail.starts_with(style.as_str()));
                page.push_str(style.map_or(r"\u{1b}", String::as_str));
                rest = &tail[style.map_or(1, String::len)..];
            }
            page.push_str(&escape_invisible_lines(rest));
            page.push('\n');
        }
        page
    }

    /// The tables of some areas, without what the tables of studies have.
    fn measured_tables(&self, report: &Report<'_>, sections: &[Section<'_>]) -> Vec<String> {
        let mut lines = Vec::new();
        let mut results = sections.iter().flat_map(|section| &section.entries).flat_map(SectionEntry::results);
        if results.any(|result| !result.only_input && half_width_count(result).is_some()) {
            lines.push(String::new());
            lines.extend(self.paragraph(DISTANCE_NOTE));
        }
        let has_other_results =
            |entry: &SectionEntry<'_>| !entry.results().iter().all(|result| study_tables::has_result(report, result));
        let measured_sections = sections.iter().filter_map(|section| section.with_entries(has_other_results));
        lines.extend(measured_sections.flat_map(|section| self.section(&section)));
        lines
    }
}

impl Render for Terminal {
    /// A study begins with its answer and ends with what it was measured on; a run begins with its verdict, and before that only with
    /// what has surely spoilt it.
    fn render(&self, report: &Report<'_>, out: &mut dyn io::Write) -> io::Result<()> {
        let (sections, analysis) = (sections(report), report.analysis);
        let verdict = self.list("Verdict", &analysis.verdict);
        let notes = self.list("Notes", &report.run.notes);
        let [serious_hazards, other_hazards] = [true, false].map(|is_serious| self.hazards(report, is_serious));
        if is_study(report) {
            let [requested, inputs] = [false, true].map(|only_input| sections_by_purpose(&sections, only_input));
            let page = [
                self.painted(TextStyle::Title, &study_title(report)),
                vec![String::new()],
                analysis.studies.iter().flat_map(|study| self.conclusions(study)).collect(),
                self.measured_tables(report, &requested),
                self.rivals(report),
                self.published_machines(report),
                vec![String::new()],
                self.head(report),
                serious_hazards,
                other_hazards,
                verdict,
                self.measured_tables(report, &inputs),
                notes,
            ];
            return self.write(&page.concat(), out);
        }
        let empty_notice = || vec![String::new(), "Nothing was measured.".into()];
        let page = [
            self.head(report),
            serious_hazards,
            verdict,
            self.list("Normal for its class", &class_comparison::class_lines(&analysis.class_comparison)),
            sections.is_empty().then(empty_notice).unwrap_or_default(),
            self.measured_tables(report, &sections),
            self.rivals(report),
            self.published_machines(report),
            analysis.studies.iter().flat_map(|study| self.study(study)).collect(),
            notes,
            other_hazards,
        ];
        self.write(&page.concat(), out)
    }
}
