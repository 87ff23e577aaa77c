//! The marks of lines over CPUs, jobs and streams at their knees.

use kelvin_analysis::GrowthEnd;
use kelvin_analysis::wording::{growth_end_place, list_text};

use super::Mark;
use super::named_lines::NamedLine;
use crate::text::grouped;

/// Longest name of a mark. Names stand to either side of a mark or around it, so that one of two thirds of a phone's width fits wherever the
/// mark is.
const MAX_MARK_CHARS: usize = 35;

/// What it means that a line stops growing; nothing where none of these does.
pub(super) fn growth_meaning(lines: &[NamedLine<'_>]) -> Option<String> {
    let has_knee = lines.iter().any(|line| line.line.growth_end.is_some());
    has_knee.then(|| "A line stops growing where no greater number gives a tenth more.".into())
}

/// The marks of the lines of a figure; those at one place have one name.
pub(super) fn growth_marks(lines: &[NamedLine<'_>]) -> Vec<Mark> {
    let knees = lines.iter().filter_map(|line| Some((line.line.growth_end?, line.name.as_str())));
    let places = grouped(knees.map(|(end, name)| ((end.at, end.max), (end, name))));
    places.into_iter().map(|(_, knees)| growth_mark(&knees, lines.len())).collect()
}

/// The mark of these lines of a figure at one place, with a band from where the first of them may stop.
fn growth_mark(knees: &[(&GrowthEnd, &str)], line_count: usize) -> Mark {
    let (end, count) = (knees[0].0, knees.len());
    let names: Vec<&str> = knees.iter().map(|(_, name)| *name).collect();
    let named = if line_count == 1 { String::new() } else { list_text(&names) };
    let counted = if count == line_count { "all".to_owned() } else { format!("{count} lines") };
    let place = growth_end_place(end);
    let label = |(subject, place): (&str, &str)| {
        let verb = if count == 1 { "stops" } else { "stop" };
        format!("{subject} {verb} growing at {place}").trim_start().to_owned()
    };
    let number = end.at.to_string();
    let labels = [(named.as_str(), place.as_str()), (&named, &number), (&counted, &place)].map(label);
    let short_label = labels.into_iter().find(|label| label.chars().count() <= MAX_MARK_CHARS);
    Mark {
        label: short_label.unwrap_or_else(|| label((&counted, &number))),
        at: end.at as f64,
        low: knees.iter().map(|(end, _)| end.low as f64).fold(f64::INFINITY, f64::min),
        high: end.at as f64,
    }
}
