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
        let (head, footer) = (self.head(), self.footer());
        let available_lines = MAX_SCREEN_LINES.saturating_sub(head.len() + footer.len());
        [head, self.tables(available_lines), footer].concat()
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
        if let RunStatus::Partial(reason) = &run.status {
            lines.extend(terminal.hanging((TextStyle::Bad, "partial"), 9, reason));
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
    fn tables(&self, available_lines: usize) -> Vec<String> {
        let terminal = &self.options.terminal;
        let mut lines = Vec::new();
        for table in self.report.analysis.studies.iter().flat_map(|study| &study.tables) {
            let table = terminal.study_table(table);
            if lines.is_empty() || lines.len() + table.len() <= available_lines {
                lines.extend(table);
            }
        }
        let requested = requested_sections(self.report);
        let is_curve = |entry: &SectionEntry<'_>| matches!(entry, SectionEntry::Curve(_));
        let curves = requested.iter().flat_map(|section| &section.entries).filter(|entry| is_curve(entry)).count();
        for section in &requested {
            for entry in &section.entries {
                let SectionEntry::Curve(curve) = entry else { continue };
                let max_lines = (available_lines.saturating_sub(lines.len()) / curves.max(1)).max(MIN_TABLE_LINES);
                lines.extend(PointTable::new(curve, terminal, self.options.unicode).lines(max_lines));
                let results: Vec<&MetricResult> = curve.results().collect();
                lines.extend(terminal.missing_points(&results, &section.common_axes));
            }
            if let Some(other_entries) = section.with_entries(|entry| !is_curve(entry)) {
                lines.extend(
                    self.single_figures(
                        &other_entries,
                        available_lines.saturating_sub(lines.len()).max(MIN_TABLE_LINES),
                    ),
                );
            }
        }
        lines.extend(terminal.rivals(self.report));
        if lines.is_empty() {
            lines.extend([String::new(), "Nothing was measured.".to_owned()]);
        }
        lines.extend(self.without_figures(&requested));
        lines
    }

    /// The table of figures that are no curves: as many of them as there are lines for, one at least.
    fn single_figures(&self, section: &Section<'_>, available_lines: usize) -> Vec<String> {
        let count = section.entries.len();
        largest_fit(count, available_lines, |entry_count| {
            let part = Section { entries: section.entries[..entry_count].to_vec(), ..section.clone() };
            let mut lines = self.options.terminal.section(&part);
            if entry_count < count {
                let remainder = labels::plural((count - entry_count) as u64, "more figure");
                lines.push(self.options.terminal.paint(TextStyle::Faint, &format!("{remainder} in the full report")));
            }
            lines
        })
    }

    /// Why what no table shows has no figure, each reason once.
    fn without_figures(&self, shown_sections: &[Section<'_>]) -> Vec<String> {
        let is_shown = |result: &MetricResult| {
            let entries = shown_sections.iter().flat_map(|section| &section.entries);
            entries.flat_map(SectionEntry::results).any(|other| std::ptr::eq(other, result))
        };
        let results = self.report.analysis.results.iter();
        let missing = MissingResults::group(results.filter(|result| !result.only_input && !is_shown(result)));
        let common_axes = CommonAxes::default();
        let lines = |reason| self.options.terminal.without_numbers(reason, &common_axes, |id| id);
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
        lines.extend(self.options.further_output_lines());
        lines
    }

    /// The conclusions of studies that have no answer in words, those that are decided first: as many as there are lines for, one at least.
    fn conclusions(&self, max_lines: usize) -> Vec<String> {
        let (mut lines, mut omitted_count) = (Vec::new(), 0);
        // A blank line before them, and after them how many there are beyond.
        let available_lines = max_lines.saturating_sub(2);
        for study in self.report.analysis.studies.iter().filter(|study| study.answers.is_empty()) {
            let (leading, rest) = leading_conclusions(study);
            omitted_count += rest.len();
            for conclusion in leading {
                let conclusion_lines = self.options.terminal.conclusion(conclusion, false);
                if lines.is_empty() || lines.len() + conclusion_lines.len() <= available_lines {
                    lines.extend(conclusion_lines);
                } else {
                    omitted_count += 1;
                }
            }
        }
        if omitted_count > 0 {
            let text = format!("{} in the full report", labels::plural(omitted_count as u64, "more conclusion"));
            lines.push(self.options.terminal.paint(TextStyle::Faint, &text));
        }
        if !lines.is_empty() {
            lines.insert(0, String::new());
        }
        lines
    }
}

/// The lines of as many figures as there is room for, one at least. By halving, as each try makes a whole table.
fn largest_fit(count: usize, max_lines: usize, mut table: impl FnMut(usize) -> Vec<String>) -> Vec<String> {
    let (mut max_fit, mut min_overflow, mut best_lines) = (0, count + 1, Vec::new());
    let mut candidate = count;
    while min_overflow - max_fit > 1 {
        let lines = table(candidate);
        if lines.len() <= max_lines || candidate == 1 {
            (max_fit, best_lines) = (candidate, lines)
        } else {
            min_overflow = candidate
        }
        candidate = usize::midpoint(max_fit, min_overflow);
    }
    best_lines
}

/// What a study is of: the sentence of its probe, if it has one.
pub(crate) fn study_title(report: &Report<'_>) -> String {
    let results = report.analysis.results.iter().filter(|result| !result.only_input);
    let probes: Vec<Name> = grouped(results.map(|result| (result.probe, ()))).into_iter().map(|(id, _)| id).collect();
    let prefix = probes.split_first().map_or("", |(first, rest)| common_prefix(first.as_str(), rest));
    let first = report.analysis.studies.first();
    if let Some((study, summary)) = first.and_then(|study| Some((study, study_summary(study.id)?)))
        && (prefix.is_empty() || study.id == prefix)
    {
        return format!("Study {}: {summary}", clean(&study.id));
    }
    let id = match (&probes[..], &report.analysis.studies[..]) {
        (_, [study]) | ([_], [study, ..]) => study.id.as_str(),
        ([], _) => return "Study".to_owned(),
        _ => prefix,
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
fn common_prefix<'i>(id: &'i str, other_ids: &[Name]) -> &'i str {
    let ends = id.match_indices('.').map(|(end, _)| end).chain([id.len()]);
    ends.map(|end| &id[..end]).rfind(|part| other_ids.iter().all(|id| is_dotted_prefix(part, id))).unwrap_or("")
}

/// What a study measured for its own sake, without what its own tables have, and without what has no figure at all.
fn requested_sections<'a>(report: &Report<'a>) -> Vec<Section<'a>> {
    let is_in_table = |entry: &SectionEntry<'_>| {
        let results = entry.results();
        let mut measured = results.iter().filter(|result| result.outcome.summary().is_some());
        study_tables::has_metric(report, entry.metric())
            || measured.all(|result| study_tables::has_result(report, result))
    };
    let requested = sections_by_purpose(&sections(report), false);
    requested.iter().filter_map(|section| section.with_entries(|entry| !is_in_table(entry))).collect()
}

/// The conclusions of a study that are shown first, what is decided before what is not, and the rest, each in their order.
pub(crate) fn leading_conclusions(study: &Study) -> (Vec<&StatedConclusion>, Vec<&StatedConclusion>) {
    let is_decided = |conclusion: &&StatedConclusion| conclusion.holds.is_some() || conclusion.same_within().is_some();
    let (mut leading, undecided): (Vec<&StatedConclusion>, Vec<_>) = study.conclusions.iter().partition(is_decided);
    leading.extend(undecided);
    leading.truncate(MAX_SENTENCES);
    let is_leading = |conclusion: &StatedConclusion| leading.iter().any(|other| std::ptr::eq(*other, conclusion));
    let rest = study.conclusions.iter().filter(|conclusion| !is_leading(conclusion)).collect();
    (leading, rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of this many figures of two lines below a title are shown in this room, and how many tables were written for that.
    fn run_largest_fit(total: usize, max_lines: usize) -> (usize, usize) {
        let (mut tables, line) = (0, |_| String::new());
        let lines = largest_fit(total, max_lines, |count| {
            tables += 1;
            (0..1 + 2 * count + usize::from(count < total)).map(line).collect()
        });
        (lines.len().saturating_sub(1) / 2, tables)
    }

    #[test]
    fn largest_fit_needs_few_tries() {
        assert_eq!(
            [(0, 9), (1, 0), (2, 5), (1000, 2001)].map(|(total, max_lines)| run_largest_fit(total, max_lines)),
            [(0, 0), (1, 1), (2, 1), (1000, 1)]
        );
        for (total, max_lines, expected) in [(2, 4, 1), (3, 0, 1), (1000, 22, 10), (1000, 2000, 999), (1000, 0, 1)] {
            let (fitted, tables) = run_largest_fit(total, max_lines);
            assert_eq!(fitted, expected, "{total} in {max_lines}");
            assert!(tables <= 11, "{tables}");
        }
    }
}
