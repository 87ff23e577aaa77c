//! The second judgement: figures against machines of the class, published ones and a user's own, independent of everything else in the run.

use kelvin_core::catalogue::find;
use kelvin_reference::{LibraryMachine, MIN_KNOWN_MEMBERS, MachineClass, MachineFigure, MetricArea, ReferenceLibrary};

use crate::prelude::*;

/// Share of the machines of a class whose figure lies in its range.
const FIGURE_RANGE_LEVEL: f64 = 0.9;
/// Share of the machines that are as usual whose factor of an area is as usual.
const AREA_RANGE_LEVEL: f64 = 0.95;
/// Areas that are judged as a whole.
const JUDGED_AREAS: [Name; 3] = [Name::new("mem"), Name::new("os"), Name::new("cpu")];

/// Judges all results against a library: each gets what is usual of it, and the areas are judged as wholes.
pub(crate) fn compare_with_class(
    library: &ReferenceLibrary,
    machine: &Machine,
    results: &mut [MetricResult],
) -> ClassComparison {
    let classes = [MetricArea::Hardware, MetricArea::Kernel].map(|area| MachineClass::from_own_facts(machine, area));
    let (hardware, kernel) = match classes {
        [Ok(hardware), Ok(kernel)] => (hardware, kernel),
        [Err(reason), _] | [_, Err(reason)] => {
            return ClassComparison { missing_reason: Some(reason), ..ClassComparison::default() };
        }
    };
    // Nothing is published of machines that hide their model: their class has a user's own members, or none.
    if let Err(reason) = MachineClass::from_facts(machine, MetricArea::Hardware)
        && !library.machines().iter().any(|member| hardware.contains(member))
    {
        return ClassComparison { missing_reason: Some(reason), ..ClassComparison::default() };
    }
    let class_of = |metric| if MetricArea::from_metric(metric) == MetricArea::Hardware { &hardware } else { &kernel };
    for result in results.iter_mut().filter(|result| !result.only_input) {
        result.class_range = figure_class_range(library, class_of(result.metric.id), result);
    }
    let figure = |result: &MetricResult| {
        let value = result.outcome.summary()?.headline / base_unit(result.metric.unit)?;
        (value > 0.0).then(|| MachineFigure { metric: result.metric.id, case: result.case.clone(), value })
    };
    let machine_figures: Vec<MachineFigure> =
        results.iter().filter(|result| !result.only_input).filter_map(figure).collect();
    let areas = JUDGED_AREAS
        .into_iter()
        .filter_map(|area| self::area_comparison(library, class_of(area), area, &machine_figures));
    ClassComparison { class: Some(hardware.to_string()), missing_reason: None, areas: areas.collect() }
}

/// A machine of a user's own as a member of its class, by the headlines of a run of it.
///
/// # Errors
/// Why it is of no class.
pub fn class_member(run: &str, machine: &Machine, headlines: &[StoredHeadline]) -> Result<LibraryMachine, String> {
    let figure = |stored: &StoredHeadline| {
        let metric = find(stored.metric).filter(|metric| metric.version == stored.version)?;
        let value = stored.value / base_unit(metric.unit)?;
        (value > 0.0).then(|| MachineFigure { metric: metric.id, case: stored.case.clone(), value })
    };
    LibraryMachine::from_own_run(run, machine, headlines.iter().filter_map(figure))
}

/// The base unit of the SI in a metric's unit: that many nanoseconds are a second. `None` of what no published figure has.
fn base_unit(unit: Unit) -> Option<f64> {
    match unit {
        Unit::Nanoseconds => Some(1e9),
        Unit::Hertz | Unit::Bytes | Unit::BytesPerSecond | Unit::PerSecond => Some(1.0),
        Unit::Cycles | Unit::Ratio | Unit::Count => None,
    }
}

fn area_comparison(
    library: &ReferenceLibrary,
    class: &MachineClass,
    area: Name,
    figures: &[MachineFigure],
) -> Option<AreaComparison> {
    let area_factor = library.area_factor(class, area.as_str(), figures, AREA_RANGE_LEVEL)?;
    Some(AreaComparison {
        area,
        class: class.to_string(),
        compared_with: class.plural(),
        factor: area_factor.factor,
        low: area_factor.low,
        high: area_factor.high,
        figures: area_factor.figures,
        members: area_factor.members.iter().map(|machine| machine.id).collect(),
        has_few_members: area_factor.members.len() < MIN_KNOWN_MEMBERS,
        verdict: match area_factor.factor {
            factor if factor > area_factor.high => ClassVerdict::Slower,
            factor if factor < area_factor.low => ClassVerdict::Faster,
            _ => ClassVerdict::Usual,
        },
    })
}

/// What is usual of a figure. Fewer machines than a class needs to be well known, with those of other classes, show nothing.
fn figure_class_range(
    library: &ReferenceLibrary,
    class: &MachineClass,
    result: &MetricResult,
) -> Option<FigureClassRange> {
    let base = base_unit(result.metric.unit)?;
    let range = library.class_range(class, result.metric.id, &result.case, FIGURE_RANGE_LEVEL)?;
    if range.members + range.related < MIN_KNOWN_MEMBERS {
        return None;
    }
    let [low, center, high] = [range.low, range.center, range.high].map(|end| end * base);
    Some(FigureClassRange {
        low,
        center,
        high,
        members: range.members,
        related: range.related,
        has_few_members: range.is_of_few_members(),
        verdict: result.outcome.summary().and_then(|summary| class_verdict(summary, (low, high), result.metric.better)),
    })
}

/// As usual if the interval touches the range, as with predicted ranges.
fn class_verdict(summary: &Summary, (low, high): (f64, f64), better: Better) -> Option<ClassVerdict> {
    let (lower, upper) = ends_or(summary.interval, summary.headline);
    match better {
        Better::Neither => None,
        _ if lower <= high && low <= upper => Some(ClassVerdict::Usual),
        Better::Lower if lower > high => Some(ClassVerdict::Slower),
        Better::Higher if upper < low => Some(ClassVerdict::Slower),
        Better::Lower | Better::Higher => Some(ClassVerdict::Faster),
    }
}

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
pub fn class_lines(comparison: &ClassComparison) -> Vec<String> {
    let Some(class) = &comparison.class else {
        let reason = comparison.missing_reason.iter();
        return reason.map(|reason| format!("No published machines to compare with: {reason}.")).collect();
    };
    if comparison.areas.is_empty() {
        return vec![format!("Class: {class}. No published machine of it has figures of this run.")];
    }
    let mut lines = vec![format!("Class: {class}.")];
    lines.extend(comparison.areas.iter().map(area_line));
    lines
}

/// `mem: 1.17 times as slow as 15 other Zen 4 guests, by the median of 5 figures; 95 % of them are at 0.74 to 1.34: usual.`
fn area_line(area: &AreaComparison) -> String {
    let word = match area.verdict {
        ClassVerdict::Slower => "slower than usual",
        ClassVerdict::Usual => "usual",
        ClassVerdict::Faster => "faster than usual",
    };
    let caveat = if area.has_few_members { "; few machines of this class are known" } else { "" };
    let (factor, members) = (number(area.factor), member_text(area));
    let (figures, range) = (figure_count(area), usual_range(area));
    format!(
        "{}: {factor} times as slow as {members}, {figures}; 95 % of them are at {range}: {word}{caveat}.",
        area.area
    )
}

/// A figure against its class in one word, the same for a time and a rate; empty without a range.
pub fn class_word(result: &MetricResult) -> &'static str {
    match result.class_range.and_then(|class_range| class_range.verdict) {
        Some(ClassVerdict::Slower) => "slower",
        Some(ClassVerdict::Usual) => "usual",
        Some(ClassVerdict::Faster) => "faster",
        None => "",
    }
}

/// A figure's range in its class, with the machines that it is of: `class 95 to 140 ns (15 machines): slower`, `class 43 to 297 us (2 machines
/// of it, 13 others): usual`. `None` without a range or a figure.
pub fn figure_class_text(result: &MetricResult) -> Option<String> {
    let class_range = result.class_range.filter(|candidate| candidate.verdict.is_some())?;
    let range = span(class_range.low, class_range.high, result.metric.unit);
    let machines = |count| if count == 1 { "1 machine".to_owned() } else { format!("{count} machines") };
    // Of a class of few those of other classes too.
    let members = match class_range.members {
        members if !class_range.has_few_members => machines(members),
        0 => format!("of other classes, {}", machines(class_range.related)),
        members => format!("{} of it, {} others", machines(members), class_range.related),
    };
    Some(format!("class {range} ({members}): {}", class_word(result)))
}

#[cfg(test)]
mod tests {
    use kelvin_core::Fact;
    use kelvin_reference::{
        ActiveMitigation, MachineKind, PublishedFigure, SourceMethod, Virtualisation, built_in_library,
    };

    use super::*;
    use crate::testing::{add_scalars, empty_run};

    const MEMBERS: usize = 6;
    const CALL: Name = kelvin_core::catalogue::os::SYSCALL_NULL.id;

    /// A library of a user's own guests, measured by the same method, whose figures of the kernel differ by a few percent.
    fn guest_library() -> ReferenceLibrary {
        let has_call = |machine: &&kelvin_reference::LibraryMachine| machine.rows.iter().any(|row| row.metric == CALL);
        let template = built_in_library().machines().iter().find(has_call).expect("a machine with calls of the kernel");
        let member = |index: usize| {
            let factor = 1.0 + 0.02 * index as f64;
            let scale_row = |row: &PublishedFigure| {
                let method = SourceMethod { factor: 1.02, ..row.method.clone() };
                PublishedFigure { value: row.value * factor, method, ..row.clone() }
            };
            let rows = template.rows.iter().filter(|row| row.metric.starts_with("os.")).map(scale_row);
            kelvin_reference::LibraryMachine {
                id: Name::intern(&format!("guest-{index}")),
                core: Name::new("Zen 4"),
                kind: MachineKind::Server,
                instance: Virtualisation::Guest,
                mitigations: Some([ActiveMitigation::SafeReturn].into()),
                rows: rows.collect(),
                ..template.clone()
            }
        };
        ReferenceLibrary::new((0..MEMBERS).map(member).collect())
    }

    fn guest(status: &str) -> Machine {
        let fact = |text: &str| Fact::known(text.to_owned(), "a test");
        let mut machine = Machine::default();
        machine.cpu.vendor = fact("AuthenticAMD");
        machine.cpu.microarchitecture = fact("Zen 4");
        machine.cpu.model_name = fact("AMD EPYC");
        machine.platform.hypervisor = Fact::known(Some("KVM".into()), "a test");
        let vulnerability = "spec_rstack_overflow".to_owned();
        let mitigation = kelvin_core::Mitigation { vulnerability, status: status.into() };
        machine.cpu.mitigations = Fact::known(vec![mitigation], "a test");
        machine
    }

    /// The judgement of a guest whose figures of the kernel are this many times those of the middle of the class.
    fn compare_guest(times: f64, status: &str) -> ClassComparison {
        let library = guest_library();
        let rows = &library.machines()[MEMBERS / 2].rows;
        let metrics: Vec<_> = rows.iter().filter_map(|row| find(row.metric)).collect();
        let mut run = empty_run(&metrics.iter().map(|metric| **metric).collect::<Vec<_>>());
        for (row, metric) in rows.iter().zip(metrics) {
            let value = row.value * base_unit(metric.unit).expect("a time") * times;
            add_scalars(&mut run, metric, row.case.clone(), &[value, 1.001 * value, 0.999 * value]);
        }
        let mut results = crate::analyse(&run).results;
        compare_with_class(&library, &guest(status), &mut results)
    }

    const SAFE: &str = "Mitigation: Safe RET";

    #[test]
    fn slow_kernel_is_slower_than_class() {
        for (times, expected) in [(1.0, ClassVerdict::Usual), (1.5, ClassVerdict::Slower), (0.6, ClassVerdict::Faster)]
        {
            let areas = compare_guest(times, SAFE).areas;
            let [area] = &areas[..] else { panic!("{areas:?}") };
            assert_eq!((area.area.as_str(), area.verdict, area.members.len()), ("os", expected, MEMBERS), "{area:?}");
            assert!(!area.has_few_members && area.class.ends_with("safe returns"), "{area:?}");
        }
    }

    /// With other mitigations the kernel's figures are those of another class.
    #[test]
    fn kernel_compared_with_same_mitigations() {
        assert_eq!(compare_guest(1.5, "Not affected").areas, []);
    }
}
