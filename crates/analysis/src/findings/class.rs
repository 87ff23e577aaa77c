//! Areas, or a whole machine, that are slower or faster than machines of the class.

use super::*;
use crate::class_comparison::{figure_count, member_text, usual_range};

/// An area that is slow as a whole changes how to read all of its figures; one that is fast is good to know. Where all areas are slow it is
/// the machine that is.
pub(super) fn class_deviations(analysis: &Analysis) -> Vec<Finding> {
    let areas = &analysis.class_comparison.areas;
    let comparable: Vec<AreaComparison> = areas.iter().filter(|area| !area.has_few_members).cloned().collect();
    if comparable.len() > 1 && comparable.iter().all(|area| area.verdict == ClassVerdict::Slower) {
        return vec![slow_machine(comparable, analysis)];
    }
    areas.iter().filter_map(|area| class_deviation(area, analysis)).collect()
}

fn class_deviation(area: &AreaComparison, analysis: &Analysis) -> Option<Finding> {
    let (name, members) = (area_name(area.area), member_text(area));
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
            format!("{name} as a whole is {} times as slow as {members}: perhaps {causes}", number(area.factor)),
        ),
        ClassVerdict::Faster => (
            Importance::Detail,
            format!("{name} as a whole is {} times as fast as {members}", number(1.0 / area.factor)),
        ),
    };
    let reason = format!("{}; 95 % of them are at {}", figure_count(area), usual_range(area));
    let metrics = metrics_of_results(analysis, |result| result.metric.area() == area.area.as_str());
    Some(Finding::new(importance, FindingData::AreaOffClass(area.clone()), text, reason).with_metrics(metrics))
}

fn slow_machine(areas: Vec<AreaComparison>, analysis: &Analysis) -> Finding {
    let (low, high) = min_max(areas.iter().map(|area| area.factor)).unwrap_or_default();
    let [low, high] = [low, high].map(number);
    let times = if low == high { low } else { format!("{low} to {high}") };
    // The class with the most members stands for all: those of the kernel's are of it, and have its mitigations.
    let members = areas.iter().max_by_key(|area| area.members.len()).map(member_text).unwrap_or_default();
    let text = format!(
        "all of the machine is {times} times as slow as {members}: perhaps a lower frequency, a CPU quota, or a neighbour"
    );
    let texts = areas.iter().map(|area| {
        let (name, factor) = (area_name(area.area), number(area.factor));
        format!("{name} {factor}, {}, 95 % of them at {}", figure_count(area), usual_range(area))
    });
    let reason = texts.collect::<Vec<_>>().join("; ");
    let is_slow_area = |area: &str| areas.iter().any(|candidate| area == candidate.area.as_str());
    let metrics = metrics_of_results(analysis, |result| is_slow_area(result.metric.area()));
    Finding::new(Importance::Major, FindingData::SlowMachine(areas), text, reason).with_metrics(metrics)
}

/// An area in a sentence.
fn area_name(area: Name) -> &'static str {
    match area.as_str() {
        "mem" => "memory",
        "os" => "the operating system",
        _ => "the processor",
    }
}
