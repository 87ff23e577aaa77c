//! What a terminal shows of a study: its answer, its figures as a table with a picture, and its conclusions on one screen. Method, inputs,
//! hazards and the machine are in the full report.

use kelvin_analysis::{MetricResult, StatedConclusion, Study, study_summary};
use kelvin_core::{Name, RunStatus, Severity, is_dotted_prefix};

use super::point_table::PointTable;
use super::{FirstScreen, MAX_SCREEN_LINES, TextStyle, sections_by_purpose};
use crate::sections::{CommonAxes, MissingResults, Section, SectionEntry, sections};
use crate::text::{clean, display_width, grouped, pad_left};
use crate::{Report, labels, study_tables, units};

/// Sentences of a study's conclusions, at most.
pub(crate) const MAX_SENTENCES: usize = 8;
/// Lines in which the answer of a study stands, its title among them: those of a small terminal.
const MAX_ANSWER_LINES: usize = 25;
/// Reasons for figures that are missing, at most.
const MAX_REASONS: usize = 6;
/// Lines of a table that has more points than the screen has room for.
const MIN_TABLE_LINES: usize = 8;

/// The screen of a study.
pub(super) struct StudyScreen<'a> {
    pub options: FirstScreen<'a>,
    pub report: &'a Report<'a>,
}

impl StudyScreen<'_> {
    /// Its lines: whole tables where they fit, else every this many points of them.
    pub(super) fn lines(&self) -> Vec<String> {
        let (head, after) = (self.head(), self.footer());
        let room = MAX_SCREEN_LINES.saturating_sub(head.len() + after.len());
        [head, self.tables(room), after].concat()
    }

    /// The title with the time that the study took, what cut it short, and the answer; of a study without one its conclusions.
    fn head(&self) -> Vec<String> {
        let terminal = &self.options.terminal;
        let (run, width) = (self.report.run, terminal.width());
        let title = study_title(self.report);
        let extent =
            format!("{}, {}", units::seconds(run.seconds), labels::plural(run.header.settings.rounds.into(), "round"));
        let mut lines = terminal.paragraph(&title);
        let last = lines.last().map_or(0, |line| display_width(line));
        match lines.last_mut().filter(|_| last + 2 + display_width(&extent) <= width) {
            Some(line) => *line = format!("{line}{}", pad_left(&extent, width - last)),
            None => lines.push(pad_left(&extent, width)),
        }
        let mut lines: Vec<String> = lines.iter().map(|line| terminal.paint(TextStyle::Title, line)).collect();
        if let RunStatus::Partial(why) = &run.status {
            lines.extend(terminal.hanging((TextStyle::Bad, "partial"), 9, why));
        }
        for answer in self.report.analysis.studies.iter().flat_map(|study| &study.answers) {
            lines.push(String::new());
            lines.extend(terminal.answer(answer));
            lines.pop();
        }
        lines.extend(self.conclusions(MAX_ANSWER_LINES.saturating_sub(lines.len())));
        lines
    }

    /// The tables of the study itself, or of what it measured.
    fn tables(&self, room: usize) -> Vec<String> {
        let terminal = &self.options.terminal;
        let mut lines = Vec::new();
        for table in self.report.analysis.studies.iter().flat_map(|study| &study.tables) {
            let table = terminal.study_table(table);
            if lines.is_empty() || lines.len() + table.len() <= room {
                lines.extend(table);
            }
        }
        let asked = requested_sections(self.report);
        let is_curve = |entry: &SectionEntry<'_>| matches!(entry, SectionEntry::Curve(_));
        let curves = asked.iter().flat_map(|section| &section.entries).filter(|entry| is_curve(entry)).count();
        for section in &asked {
            for entry in &section.entries {
                let SectionEntry::Curve(curve) = entry else { continue };
                let max_lines = (room.saturating_sub(lines.len()) / curves.max(1)).max(MIN_TABLE_LINES);
                lines.extend(PointTable::new(curve, terminal, self.options.unicode).lines(max_lines));
                let results: Vec<&MetricResult> = curve.results().collect();
                lines.extend(terminal.missing_points(&results, &section.common_axes));
            }
            if let Some(others) = section.with_entries(|entry| !is_curve(entry)) {
                lines.extend(self.single_figures(&others, room.saturating_sub(lines.len()).max(MIN_TABLE_LINES)));
            }
        }
        lines.extend(terminal.rivals(self.report));
        if lines.is_empty() {
            lines.extend([String::new(), "Nothing was measured.".to_owned()]);
        }
        lines.extend(self.without_figures(&asked));
        lines
    }

    /// The table of figures that are no curves: as many of them as there are lines for, one at least.
    fn single_figures(&self, section: &Section<'_>, room: usize) -> Vec<String> {
        let count = section.entries.len();
        largest_fit(count, room, |shown| {
            let some = Section { entries: section.entries[..shown].to_vec(), ..section.clone() };
            let mut lines = self.options.terminal.section(&some);
            if shown < count {
                let more = labels::plural((count - shown) as u64, "more figure");
                lines.push(self.options.terminal.paint(TextStyle::Faint, &format!("{more} in the full report")));
            }
            lines
        })
    }

    /// Why what no table shows has no figure, each reason once.
    fn without_figures(&self, shown: &[Section<'_>]) -> Vec<String> {
        let is_shown = |result: &MetricResult| {
            let entries = shown.iter().flat_map(|section| &section.entries);
            entries.flat_map(SectionEntry::results).any(|known| std::ptr::eq(known, result))
        };
        let results = self.report.analysis.results.iter();
        let missing = MissingResults::group(results.filter(|result| !result.only_input && !is_shown(result)));
        let alike = CommonAxes::default();
        let lines = |reason| self.options.terminal.without_numbers(reason, &alike, |id| id);
        missing.iter().take(MAX_REASONS).flat_map(lines).collect()
    }

    /// The serious hazards in words, and where more is.
    fn footer(&self) -> Vec<String> {
        let serious = self.report.run.header.hazards.iter().filter(|hazard| hazard.severity == Severity::Serious);
        let serious = serious.map(|hazard| hazard.summary.as_str()).collect::<Vec<&str>>().join("; ");
        let mut lines = Vec::new();
        if !serious.is_empty() {
            lines.push(String::new());
            lines.extend(self.options.terminal.hanging((TextStyle::Bad, "serious"), 9, &serious));
        }
        lines.extend(self.options.more_lines());
        lines
    }

    /// The conclusions of studies that have no answer in words, those that are decided first: as many as there are lines for, one at least.
    fn conclusions(&self, room: usize) -> Vec<String> {
        let (mut lines, mut left_out) = (Vec::new(), 0);
        // A blank line before them, and after them how many there are beyond.
        let room = room.saturating_sub(2);
        for study in self.report.analysis.studies.iter().filter(|study| study.answers.is_empty()) {
            let (leading, rest) = leading_conclusions(study);
            left_out += rest.len();
            for conclusion in leading {
                let written = self.options.terminal.conclusion(conclusion, false);
                if lines.is_empty() || lines.len() + written.len() <= room {
                    lines.extend(written);
                } else {
                    left_out += 1;
                }
            }
        }
        if left_out > 0 {
            let text = format!("{} in the full report", labels::plural(left_out as u64, "more conclusion"));
            lines.push(self.options.terminal.paint(TextStyle::Faint, &text));
        }
        if !lines.is_empty() {
            lines.insert(0, String::new());
        }
        lines
    }
}

/// The lines of as many figures as there is room for, one at least. By halving, as each try makes a whole table.
fn largest_fit(count: usize, room: usize, mut table: impl FnMut(usize) -> Vec<String>) -> Vec<String> {
    let (mut fit, mut too_many, mut best) = (0, count + 1, Vec::new());
    let mut tried = count;
    while too_many - fit > 1 {
        let lines = table(tried);
        if lines.len() <= room || tried == 1 {
            (fit, best) = (tried, lines)
        } else {
            too_many = tried
        }
        tried = usize::midpoint(fit, too_many);
    }
    best
}

/// What a study is of: the sentence of its probe, if it has one.
pub(crate) fn study_title(report: &Report<'_>) -> String {
    let results = report.analysis.results.iter().filter(|result| !result.only_input);
    let probes: Vec<Name> = grouped(results.map(|result| (result.probe, ()))).into_iter().map(|(id, _)| id).collect();
    let shared = probes.split_first().map_or("", |(first, rest)| common_prefix(first.as_str(), rest));
    let first = report.analysis.studies.first();
    if let Some((study, summary)) = first.and_then(|study| Some((study, study_summary(study.id)?)))
        && (shared.is_empty() || study.id == shared)
    {
        return format!("Study {}: {summary}", clean(&study.id));
    }
    let id = match (&probes[..], &report.analysis.studies[..]) {
        (_, [study]) | ([_], [study, ..]) => study.id.as_str(),
        ([], _) => return "Study".to_owned(),
        _ => shared,
    };
    let text = match probes[..] {
        [probe] => report.probe(&probe).map(|probe| clean(probe.summary.trim_end_matches('.'))),
        _ => None,
    };
    let probes = || format!("of {}", labels::plural(probes.len() as u64, "probe"));
    match text {
        Some(text) => format!("Study {}: {text}", clean(id)),
        None if id.is_empty() => format!("Study {}", probes()),
        None => format!("Study {}", clean(id)),
    }
}

/// The leading part of an id that others have as well; empty if there is none.
fn common_prefix<'i>(id: &'i str, others: &[Name]) -> &'i str {
    let ends = id.match_indices('.').map(|(end, _)| end).chain([id.len()]);
    ends.map(|end| &id[..end]).rfind(|part| others.iter().all(|id| is_dotted_prefix(part, id))).unwrap_or("")
}

/// What a study measured for its own sake, without what its own tables have, and without what has no figure at all.
fn requested_sections<'a>(report: &Report<'a>) -> Vec<Section<'a>> {
    let is_in_table = |entry: &SectionEntry<'_>| {
        let results = entry.results();
        let mut measured = results.iter().filter(|result| result.outcome.summary().is_some());
        study_tables::has_metric(report, entry.metric())
            || measured.all(|result| study_tables::has_result(report, result))
    };
    let asked = sections_by_purpose(&sections(report), false);
    asked.iter().filter_map(|section| section.with_entries(|entry| !is_in_table(entry))).collect()
}

/// The conclusions of a study that are shown first, what is decided before what is not, and the rest, each in their order.
pub(crate) fn leading_conclusions(study: &Study) -> (Vec<&StatedConclusion>, Vec<&StatedConclusion>) {
    let is_decided = |conclusion: &&StatedConclusion| conclusion.holds.is_some() || conclusion.same_within().is_some();
    let (mut leading, open): (Vec<&StatedConclusion>, Vec<_>) = study.conclusions.iter().partition(is_decided);
    leading.extend(open);
    leading.truncate(MAX_SENTENCES);
    let is_leading = |conclusion: &StatedConclusion| leading.iter().any(|known| std::ptr::eq(*known, conclusion));
    let rest = study.conclusions.iter().filter(|conclusion| !is_leading(conclusion)).collect();
    (leading, rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of this many figures of two lines below a title are shown in this room, and how many tables were written for that.
    fn shown(all: usize, room: usize) -> (usize, usize) {
        let (mut tables, line) = (0, |_| String::new());
        let lines = largest_fit(all, room, |shown| {
            tables += 1;
            (0..1 + 2 * shown + usize::from(shown < all)).map(line).collect()
        });
        (lines.len().saturating_sub(1) / 2, tables)
    }

    #[test]
    fn largest_fit_needs_few_tries() {
        assert_eq!(
            [(0, 9), (1, 0), (2, 5), (1000, 2001)].map(|(all, room)| shown(all, room)),
            [(0, 0), (1, 1), (2, 1), (1000, 1)]
        );
        for (all, room, fit) in [(2, 4, 1), (3, 0, 1), (1000, 22, 10), (1000, 2000, 999), (1000, 0, 1)] {
            let (found, tables) = shown(all, room);
            assert_eq!(found, fit, "{all} in {room}");
            assert!(tables <= 11, "{tables}");
        }
    }
}
