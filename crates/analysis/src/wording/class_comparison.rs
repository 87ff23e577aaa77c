//! A run against published machines of its class, in words.

use kelvin_core::units::{number, span};

use crate::result::{AreaComparison, ClassComparison, ClassVerdict, FigureClassRange, MetricResult};

/// `15 other Zen 4 guests`.
pub(crate) fn member_text(area: &AreaComparison) -> String {
    format!("{} other {}", area.members.len(), area.compared_with)
}

pub(crate) fn figure_count(area: &AreaComparison) -> String {
    if area.figures == 1 { "by one figure".to_owned() } else { format!("by the median of {} figures", area.figures) }
}

pub(crate) fn usual_range(area: &AreaComparison) -> String {
    format!("{} to {}", number(area.low), number(area.high))
}

/// The class, and each area against it, a line each; or in one line why there is no class. None before a run was judged.
pub fn class_lines(normal: &ClassComparison) -> Vec<String> {
    let Some(class) = &normal.class else {
        let why = normal.missing_reason.iter();
        return why.map(|why| format!("No published machines to compare with: {why}.")).collect();
    };
    if normal.areas.is_empty() {
        return vec![format!("Class: {class}. No published machine of it has figures of this run.")];
    }
    let mut lines = vec![format!("Class: {class}.")];
    lines.extend(normal.areas.iter().map(area_line));
    lines
}

/// `mem: 1.17 times as slow as 15 other Zen 4 guests, by the median of 5 figures; 95 % of them are at 0.74 to 1.34: usual.`
fn area_line(area: &AreaComparison) -> String {
    let word = match area.verdict {
        ClassVerdict::Slower => "slower than usual",
        ClassVerdict::Usual => "usual",
        ClassVerdict::Faster => "faster than usual",
    };
    let few = if area.has_few_members { "; few machines of this class are known" } else { "" };
    format!(
        "{}: {} times as slow as {}, {}; 95 % of them are at {}: {word}{few}.",
        area.area,
        number(area.factor),
        member_text(area),
        figure_count(area),
        usual_range(area)
    )
}

/// A figure against its class in one word, the same for a time and a rate; empty without a range.
pub fn class_word(result: &MetricResult) -> &'static str {
    match result.class_range.and_then(|of_class| of_class.verdict) {
        Some(ClassVerdict::Slower) => "slower",
        Some(ClassVerdict::Usual) => "usual",
        Some(ClassVerdict::Faster) => "faster",
        None => "",
    }
}

/// A figure's range in its class, with the machines that it is of: `class 95 to 140 ns (15 machines): slower`, `class 43 to 297 us (2 machines
/// of it, 13 others): usual`. `None` without a range or a figure.
pub fn figure_class_text(result: &MetricResult) -> Option<String> {
    let of_class = result.class_range.filter(|of_class| of_class.verdict.is_some())?;
    let range = span(of_class.low, of_class.high, result.metric.unit);
    Some(format!("class {range} ({}): {}", member_count(&of_class), class_word(result)))
}

/// `15 machines`; of a class of few those of other classes too.
fn member_count(of_class: &FigureClassRange) -> String {
    let machines = |count| if count == 1 { "1 machine".to_owned() } else { format!("{count} machines") };
    match of_class.members {
        members if !of_class.has_few_members => machines(members),
        0 => format!("of other classes, {}", machines(of_class.related)),
        members => format!("{} of it, {} others", machines(members), of_class.related),
    }
}
