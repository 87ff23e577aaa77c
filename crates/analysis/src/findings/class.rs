//! Areas, or a whole machine, that are slower or faster than machines of the class.

use super::*;
use crate::class_comparison::{figure_count, member_text, usual_range};

/// An area that is slow as a whole changes how to read all of its figures; one that is fast is good to know. Where all areas are slow it is
/// the machine that is.
pub(super) fn off_class(analysis: &Analysis) -> Vec<Finding> {
    let areas = &analysis.class_comparison.areas;
    let known: Vec<AreaComparison> = areas.iter().filter(|area| !area.has_few_members).cloned().collect();
    if known.len() > 1 && known.iter().all(|area| area.verdict == ClassVerdict::Slower) {
        return vec![slow_machine(known, analysis)];
    }
    areas.iter().filter_map(|area| off_class_area(area, analysis)).collect()
}

fn off_class_area(area: &AreaComparison, analysis: &Analysis) -> Option<Finding> {
    let (name, others) = (area_name(area.area), member_text(area));
    // The causes are those to look for, none was tried.
    let causes = match area.area.as_str() {
        "mem" => "fewer memory channels, or a neighbour",
        "os" => "a kernel built for debugging, or a slow processor",
        _ => "a lower frequency, or a neighbour",
    };
    let (importance, text) = match area.verdict {
        ClassVerdict::Usual => return None,
        ClassVerdict::Slower => (
            if area.has_few_members { Importance::Detail } else { Importance::Major },
            format!("{name} as a whole is {} times as slow as {others}: perhaps {causes}", number(area.factor)),
        ),
        ClassVerdict::Faster => (
            Importance::Detail,
            format!("{name} as a whole is {} times as fast as {others}", number(1.0 / area.factor)),
        ),
    };
    let because = format!("{}; 95 % of them are at {}", figure_count(area), usual_range(area));
    let metrics = metrics_of_results(analysis, |result| result.metric.area() == area.area.as_str());
    Some(Finding::new(importance, FindingData::AreaOffClass(area.clone()), text, because).with_metrics(metrics))
}

fn slow_machine(areas: Vec<AreaComparison>, analysis: &Analysis) -> Finding {
    let (low, high) = min_max(areas.iter().map(|area| area.factor)).unwrap_or_default();
    let [low, high] = [low, high].map(number);
    let times = if low == high { low } else { format!("{low} to {high}") };
    // The class with the most members stands for all: those of the kernel's are of it, and have its mitigations.
    let others = areas.iter().max_by_key(|area| area.members.len()).map(member_text).unwrap_or_default();
    let text = format!(
        "all of the machine is {times} times as slow as {others}: perhaps a lower frequency, a CPU quota, or a neighbour"
    );
    let texts = areas.iter().map(|area| {
        let (name, factor) = (area_name(area.area), number(area.factor));
        format!("{name} {factor}, {}, 95 % of them at {}", figure_count(area), usual_range(area))
    });
    let because = texts.collect::<Vec<_>>().join("; ");
    let is_of_them = |area: &str| areas.iter().any(|known| area == known.area.as_str());
    let metrics = metrics_of_results(analysis, |result| is_of_them(result.metric.area()));
    Finding::new(Importance::Major, FindingData::SlowMachine(areas), text, because).with_metrics(metrics)
}

/// An area in a sentence.
fn area_name(area: Name) -> &'static str {
    match area.as_str() {
        "mem" => "memory",
        "os" => "the operating system",
        _ => "the processor",
    }
}
