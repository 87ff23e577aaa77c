//! What a terminal shows of a study: its answer, its figures as a table with a picture, and its conclusions on one screen. Method, inputs,
//! hazards and the machine are in the full report.

use std::io;

use kelvin_analysis::{MetricResult, StatedConclusion, Study, study_summary};
use kelvin_core::{Name, RunStatus, Severity, is_dotted_prefix};

use super::point_table::PointTable;
use super::{FirstScreen, MAX_SCREEN_LINES, TextStyle, sections_by_purpose};
use crate::sections::{CommonAxes, MissingResults, Section, SectionEntry, sections};
use crate::text::{clean, display_width, pad_left};
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
    /// Its lines: whole tables where they fit, else every so many points of them.
    pub(super) fn lines(&self) -> io::Result<Vec<String>> {
        let (head, after) = (self.head()?, self.footer()?);
        let room = MAX_SCREEN_LINES.saturating_sub(head.len() + after.len());
        Ok([head, self.tables(room)?, after].concat())
    }

    /// The title with the time that the study took, what cut it short, and the answer; of a study without one its conclusions.
    fn head(&self) -> io::Result<Vec<String>> {
        let (run, width) = (self.report.run, self.options.terminal.width());
        let title = study_title(self.report);
        let extent =
            format!("{}, {}", units::seconds(run.seconds), labels::plural(run.outline.settings.rounds.into(), "round"));
        let mut lines = crate::text::wrap(&title, width);
        let last = lines.last().map_or(0, |line| display_width(line));
        match lines.last_mut().filter(|_| last + 2 + display_width(&extent) <= width) {
            Some(line) => *line = format!("{line}{}", pad_left(&extent, width - last)),
            None => lines.push(pad_left(&extent, width)),
        }
        let mut lines: Vec<String> =
            lines.iter().map(|line| self.options.terminal.paint(TextStyle::Title, line)).collect();
        if let RunStatus::Partial(why) = &run.status {
            lines.extend(
                self.lines_of(|out| self.options.terminal.hanging_paragraph(out, (TextStyle::Bad, "partial"), 9, why))?,
            );
        }
        for answer in self.report.analysis.studies.iter().flat_map(|study| &study.answers) {
            lines.push(String::new());
            lines.extend(self.lines_of(|out| self.options.terminal.answer(answer, out))?);
            lines.pop();
        }
        let room = MAX_ANSWER_LINES.saturating_sub(lines.len());
        lines.extend(self.conclusions(room)?);
        Ok(lines)
    }

    /// Lines that something writes.
    fn lines_of(&self, write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> io::Result<Vec<String>> {
        let mut out = Vec::new();
        write(&mut out)?;
        Ok(String::from_utf8_lossy(&out).lines().map(str::to_owned).collect())
    }

    /// The tables of the study itself, or of what it measured.
    fn tables(&self, room: usize) -> io::Result<Vec<String>> {
        let terminal = &self.options.terminal;
        let mut lines = Vec::new();
        for table in self.report.analysis.studies.iter().flat_map(|study| &study.tables) {
            let table = self.lines_of(|out| terminal.study_table(table, out))?;
            if lines.is_empty() || lines.len() + table.len() <= room {
                lines.extend(table);
            }
        }
        let asked = requested_sections(self.report);
        let curves = asked
            .iter()
            .flat_map(|section| &section.entries)
            .filter(|entry| matches!(entry, SectionEntry::Curve(_)))
            .count();
        for section in &asked {
            for entry in &section.entries {
                let SectionEntry::Curve(curve) = entry else { continue };
                let each = (room.saturating_sub(lines.len()) / curves.max(1)).max(MIN_TABLE_LINES);
                lines.extend(PointTable::new(curve).lines(terminal, self.options.unicode, each));
                let results: Vec<&MetricResult> = curve.results().collect();
                lines.extend(self.lines_of(|out| terminal.missing_points(&results, &section.common_axes, out))?);
            }
            let others =
                section.entries.iter().filter(|entry| !matches!(entry, SectionEntry::Curve(_))).cloned().collect();
            let others = Section { entries: others, ..section.clone() };
            lines.extend(self.single_figures(&others, room.saturating_sub(lines.len()).max(MIN_TABLE_LINES))?);
        }
        lines.extend(self.lines_of(|out| terminal.rivals(self.report, out))?);
        if lines.is_empty() {
            lines.extend([String::new(), "Nothing was measured.".to_owned()]);
        }
        lines.extend(self.without_figures(&asked)?);
        Ok(lines)
    }

    /// The table of figures that are no curves: as many of them as there are lines for.
    fn single_figures(&self, section: &Section<'_>, room: usize) -> io::Result<Vec<String>> {
        let all = section.entries.len();
        largest_fit(all, room, |shown| {
            let entries = section.entries[..shown].to_vec();
            let some = Section { entries, ..section.clone() };
            let mut lines = self.lines_of(|out| self.options.terminal.section(&some, out))?;
            if shown < all {
                let more = labels::plural((all - shown) as u64, "more figure");
                lines.push(self.options.terminal.paint(TextStyle::Faint, &format!("{more} in the full report")));
            }
            Ok(lines)
        })
    }

    /// Why what no table shows has no figure, each reason once.
    fn without_figures(&self, shown: &[Section<'_>]) -> io::Result<Vec<String>> {
        let is_shown = |result: &MetricResult| {
            let entries = shown.iter().flat_map(|section| &section.entries);
            entries.flat_map(SectionEntry::results).any(|known| std::ptr::eq(known, result))
        };
        let results = self.report.analysis.results.iter();
        let missing = MissingResults::group(results.filter(|result| !result.only_input && !is_shown(result)));
        let (alike, whole): (_, fn(&str) -> &str) = (CommonAxes::default(), |id| id);
        let write = |one: &MissingResults<'_>| {
            self.lines_of(|out| self.options.terminal.without_numbers(one, (&alike, whole), out))
        };
        Ok(missing.iter().take(MAX_REASONS).map(write).collect::<io::Result<Vec<_>>>()?.concat())
    }

    /// What can spoil it, and where more is.
    fn footer(&self) -> io::Result<Vec<String>> {
        let mut lines = self.hazards()?;
        let more = self.options.more_lines();
        if !more.is_empty() {
            lines.push(String::new());
            lines.extend(more);
        }
        Ok(lines)
    }

    /// The conclusions of studies that have no answer in words, those that are decided first: as many as there are lines for, one at least.
    fn conclusions(&self, room: usize) -> io::Result<Vec<String>> {
        let all = self.report.analysis.studies.iter().filter(|study| study.answers.is_empty());
        let (mut lines, mut left_out) = (Vec::new(), 0);
        // A blank line before them, and after them how many there are beyond.
        let room = room.saturating_sub(2);
        for study in all {
            let leading = leading_conclusions(study);
            left_out += study.conclusions.len() - leading.len();
            for conclusion in leading {
                let written = self.lines_of(|out| self.options.terminal.conclusion(conclusion, false, out))?;
                if lines.is_empty() || lines.len() + written.len() <= room {
                    lines.extend(written);
                } else {
                    left_out += 1;
                }
            }
        }
        if left_out > 0 {
            lines.push(self.options.terminal.paint(
                TextStyle::Faint,
                &format!("{} in the full report", labels::plural(left_out as u64, "more conclusion")),
            ));
        }
        if !lines.is_empty() {
            lines.insert(0, String::new());
        }
        Ok(lines)
    }

    /// How many hazards there are, and the serious ones in words.
    fn hazards(&self) -> io::Result<Vec<String>> {
        let hazards = &self.report.run.outline.hazards;
        let serious: Vec<&str> = hazards
            .iter()
            .filter(|hazard| hazard.severity == Severity::Serious)
            .map(|hazard| hazard.summary.as_str())
            .collect();
        if serious.is_empty() {
            return Ok(Vec::new());
        }
        let mut lines = vec![String::new()];
        lines.extend(self.lines_of(|out| {
            self.options.terminal.hanging_paragraph(out, (TextStyle::Bad, "serious"), 9, &serious.join("; "))
        })?);
        Ok(lines)
    }
}

/// The lines of as many of so many figures as there is room for, one at least. By halving, as each try writes a whole table.
fn largest_fit(
    all: usize,
    room: usize,
    mut written: impl FnMut(usize) -> io::Result<Vec<String>>,
) -> io::Result<Vec<String>> {
    if all == 0 {
        return Ok(Vec::new());
    }
    let mut best = written(all)?;
    if best.len() <= room || all == 1 {
        return Ok(best);
    }
    // So many fit, or are the one that is shown in any case, and so many do not.
    let (mut fit, mut too_many) = (0, all);
    while too_many - fit > 1 {
        let half = usize::midpoint(fit, too_many);
        let lines = written(half)?;
        if lines.len() <= room || half == 1 {
            (fit, best) = (half, lines);
        } else {
            too_many = half;
        }
    }
    Ok(best)
}

/// What a study is of: the sentence of its probe, if it has one.
pub(crate) fn study_title(report: &Report<'_>) -> String {
    let mut probes: Vec<Name> = Vec::new();
    for result in report.analysis.results.iter().filter(|result| !result.only_input) {
        if !probes.contains(&result.probe) {
            probes.push(result.probe);
        }
    }
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
    ends.map(|end| &id[..end]).rfind(|part| others.iter().all(|other| is_dotted_prefix(part, other))).unwrap_or("")
}

/// What a study measured for its own sake, without what its own tables have, and without what has no figure at all.
fn requested_sections<'a>(report: &Report<'a>) -> Vec<Section<'a>> {
    let is_in_table = |entry: &SectionEntry<'_>| {
        let results = entry.results();
        let mut measured = results.iter().filter(|result| result.outcome.summary().is_some());
        study_tables::has_metric(report, entry.metric())
            || measured.all(|result| study_tables::has_result(report, result))
    };
    let mut asked = sections_by_purpose(&sections(report), false);
    asked.iter_mut().for_each(|section| section.entries.retain(|entry| !is_in_table(entry)));
    asked.retain(|section| !section.entries.is_empty());
    asked
}

/// The conclusions of a study that are shown first: what is decided before what is not, each in its order.
pub(crate) fn leading_conclusions(study: &Study) -> Vec<&StatedConclusion> {
    let (decided, open): (Vec<&StatedConclusion>, Vec<&StatedConclusion>) =
        study.conclusions.iter().partition(|one| one.holds.is_some() || one.same_within().is_some());
    decided.into_iter().chain(open).take(MAX_SENTENCES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of so many figures of two lines below a title are shown in this room, and how many tables were written for that.
    fn shown(all: usize, room: usize) -> (usize, usize) {
        let (mut tables, line) = (0, |_| String::new());
        let lines = largest_fit(all, room, |shown| {
            tables += 1;
            Ok((0..1 + 2 * shown + usize::from(shown < all)).map(line).collect())
        });
        ((lines.unwrap().len().saturating_sub(1)) / 2, tables)
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
