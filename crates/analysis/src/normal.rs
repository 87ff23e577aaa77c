//! The second judgement: figures against machines of the class, published ones and a user's own, independent of everything else in the run.

use kelvin_catalogue::find;
use kelvin_model::{Better, Headline, Machine, Name, Unit};
use kelvin_reference::{Area, Class, FEW_MEMBERS, Judged, Library};

use crate::result::{AgainstClass, AreaAgainstClass, FigureClass, MetricResult, Normal, Summary};

/// Share of the machines of a class whose figure lies in its range.
const WITHIN_RANGE: f64 = 0.9;
/// Share of the machines that are as usual whose factor of an area is as usual.
const AS_USUAL: f64 = 0.95;
/// Areas that are judged as a whole.
const AREAS: [Name; 3] = [Name::new("mem"), Name::new("os"), Name::new("cpu")];

/// Judges all results against a library: each gets what is usual of it, and the areas are judged as wholes.
pub(crate) fn judge(library: &Library, machine: &Machine, results: &mut [MetricResult]) -> Normal {
    let classes = [Area::Hardware, Area::Kernel].map(|area| Class::of_own(machine, area));
    let (hardware, kernel) = match classes {
        [Ok(hardware), Ok(kernel)] => (hardware, kernel),
        [Err(why), _] | [_, Err(why)] => return Normal { none_because: Some(why), ..Normal::default() },
    };
    // Nothing is published of machines that hide their model: their class has a user's own members, or none.
    if let Err(why) = Class::of_facts(machine, Area::Hardware)
        && !library.machines().iter().any(|member| hardware.has(member))
    {
        return Normal { none_because: Some(why), ..Normal::default() };
    }
    let class_of = |metric| if Area::of(metric) == Area::Hardware { &hardware } else { &kernel };
    for result in results.iter_mut().filter(|result| !result.only_input) {
        result.of_class = figure(library, class_of(result.metric.id), result);
    }
    let judged: Vec<Judged> = results.iter().filter(|result| !result.only_input).filter_map(judged).collect();
    let areas = AREAS.into_iter().filter_map(|area| self::area(library, class_of(area), area, &judged));
    Normal { class: Some(hardware.to_string()), none_because: None, areas: areas.collect() }
}

/// A machine of a user's own as a member of its class, by the headlines of a run of it.
///
/// # Errors
/// Why it is of no class.
pub fn member(run: &str, machine: &Machine, headlines: &[Headline]) -> Result<kelvin_reference::Machine, String> {
    let figure = |one: &Headline| {
        let metric = find(one.metric).filter(|metric| metric.version == one.version)?;
        let value = one.value / base_unit(metric.unit)?;
        (value > 0.0).then(|| Judged { metric: metric.id, case: one.case.clone(), value })
    };
    kelvin_reference::Machine::of_own(run, machine, headlines.iter().filter_map(figure))
}

/// The base unit of the SI in a metric's unit: that many nanoseconds are a second. `None` of what no published figure has.
fn base_unit(unit: Unit) -> Option<f64> {
    match unit {
        Unit::Nanoseconds => Some(1e9),
        Unit::Hertz | Unit::Bytes | Unit::BytesPerSecond | Unit::PerSecond => Some(1.0),
        Unit::Cycles | Unit::Ratio | Unit::Count => None,
    }
}

fn judged(result: &MetricResult) -> Option<Judged> {
    let value = result.outcome.summary()?.headline / base_unit(result.metric.unit)?;
    (value > 0.0).then(|| Judged { metric: result.metric.id, case: result.case.clone(), value })
}

fn area(library: &Library, class: &Class, area: Name, judged: &[Judged]) -> Option<AreaAgainstClass> {
    let found = library.area_factor(class, area.as_str(), judged, AS_USUAL)?;
    Some(AreaAgainstClass {
        area,
        class: class.to_string(),
        compared_with: class.plural(),
        factor: found.factor,
        low: found.low,
        high: found.high,
        figures: found.figures,
        members: found.members.iter().map(|machine| machine.id).collect(),
        rests_on_few: found.members.len() < FEW_MEMBERS,
        against: match found.factor {
            factor if factor > found.high => AgainstClass::Slower,
            factor if factor < found.low => AgainstClass::Faster,
            _ => AgainstClass::Usual,
        },
    })
}

/// What is usual of a figure. Fewer machines than a class needs to be well known, with those of other classes, tell nothing.
fn figure(library: &Library, class: &Class, result: &MetricResult) -> Option<FigureClass> {
    let base = base_unit(result.metric.unit)?;
    let found = library.range(class, result.metric.id, &result.case, WITHIN_RANGE)?;
    if found.members.len() + found.akin < FEW_MEMBERS {
        return None;
    }
    let [low, middle, high] = [found.low, found.middle, found.high].map(|end| end * base);
    Some(FigureClass {
        low,
        middle,
        high,
        members: found.members.len(),
        akin: found.akin,
        rests_on_few: found.rests_on_few(),
        against: result.outcome.summary().and_then(|summary| against(summary, (low, high), result.metric.better)),
    })
}

/// As usual if the interval touches the range, as with predicted ranges.
fn against(summary: &Summary, (low, high): (f64, f64), better: Better) -> Option<AgainstClass> {
    let (lower, upper) =
        summary.interval.map_or((summary.headline, summary.headline), |interval| (interval.lower, interval.upper));
    let (above, below) = match better {
        Better::Lower => (AgainstClass::Slower, AgainstClass::Faster),
        Better::Higher => (AgainstClass::Faster, AgainstClass::Slower),
        Better::Neither => return None,
    };
    Some(match () {
        () if lower > high => above,
        () if upper < low => below,
        () => AgainstClass::Usual,
    })
}

#[cfg(test)]
mod tests {
    use kelvin_model::Fact;
    use kelvin_reference::{Instance, MachineKind, Method, Mitigation, Row, library};

    use super::*;
    use crate::testing::{add_scalars, run};

    const MEMBERS: usize = 6;
    const CALL: Name = kelvin_catalogue::os::SYSCALL_NULL.id;

    /// A library of a user's own guests, measured by the same method, whose figures of the kernel differ by a few percent.
    fn guests() -> Library {
        let of = |machine: &&kelvin_reference::Machine| machine.rows.iter().any(|row| row.metric == CALL);
        let stated = library().machines().iter().find(of).expect("a machine with calls of the kernel");
        let member = |index: usize| {
            let times = 1.0 + 0.02 * index as f64;
            let own = |row: &Row| {
                let method = Method { factor: 1.02, ..row.method.clone() };
                Row { value: row.value * times, method, ..row.clone() }
            };
            let rows = stated.rows.iter().filter(|row| row.metric.starts_with("os.")).map(own);
            kelvin_reference::Machine {
                id: Name::intern(&format!("guest-{index}")),
                core: Name::new("Zen 4"),
                kind: MachineKind::Server,
                instance: Instance::Guest,
                mitigations: Some([Mitigation::SafeReturn].into()),
                rows: rows.collect(),
                ..stated.clone()
            }
        };
        Library::new((0..MEMBERS).map(member).collect())
    }

    fn guest(status: &str) -> Machine {
        let fact = |text: &str| Fact::known(text.to_owned(), "a test");
        let mut machine = Machine::default();
        machine.cpu.vendor = fact("AuthenticAMD");
        machine.cpu.microarchitecture = fact("Zen 4");
        machine.cpu.model_name = fact("AMD EPYC");
        machine.platform.hypervisor = Fact::known(Some("KVM".into()), "a test");
        let vulnerability = "spec_rstack_overflow".to_owned();
        let mitigation = kelvin_model::Mitigation { vulnerability, status: status.into() };
        machine.cpu.mitigations = Fact::known(vec![mitigation], "a test");
        machine
    }

    /// The judgement of a guest whose figures of the kernel are so many times those of the middle of the class.
    fn judged(times: f64, status: &str) -> Normal {
        let library = guests();
        let rows = &library.machines()[MEMBERS / 2].rows;
        let metrics: Vec<_> = rows.iter().filter_map(|row| find(row.metric)).collect();
        let mut run = run(&metrics.iter().map(|metric| **metric).collect::<Vec<_>>());
        for (row, metric) in rows.iter().zip(metrics) {
            let value = row.value * base_unit(metric.unit).expect("a time") * times;
            add_scalars(&mut run, metric, row.case.clone(), &[value, 1.001 * value, 0.999 * value]);
        }
        let mut results = crate::analyse(&run).results;
        judge(&library, &guest(status), &mut results)
    }

    const SAFE: &str = "Mitigation: Safe RET";

    #[test]
    fn kernel_half_as_slow_again_is_slower_than_its_class() {
        for (times, expected) in [(1.0, AgainstClass::Usual), (1.5, AgainstClass::Slower), (0.6, AgainstClass::Faster)]
        {
            let areas = judged(times, SAFE).areas;
            let [area] = &areas[..] else { panic!("{areas:?}") };
            assert_eq!((area.area.as_str(), area.against, area.members.len()), ("os", expected, MEMBERS), "{area:?}");
            assert!(!area.rests_on_few && area.class.ends_with("safe returns"), "{area:?}");
        }
    }

    /// With other mitigations the kernel's figures are those of another class.
    #[test]
    fn kernel_is_compared_with_the_same_mitigations() {
        assert_eq!(judged(1.5, "Not affected").areas, []);
    }
}
