//! Kinds of cores: performance and efficiency cores, or the clusters of big.LITTLE.

use std::collections::BTreeMap;

use kelvin_core::units::stated_value;
use kelvin_core::{CacheInstances, CoreKind, Fact, IndirectSort, Unit};

use super::{CPU_DIRECTORY, non_empty_cpu_list};
use crate::cpu;
use crate::root::{FileRoot, required};

/// The PMUs of hybrid Intel processors, one for each kind of core, the fastest first: their directories, and what the cores are called.
const HYBRID_PMUS: [(&str, &str); 3] = [("cpu_core", "P-core"), ("cpu_atom", "E-core"), ("cpu_lowpower", "LP E-core")];

/// Indexes in `HYBRID_PMUS`. One PMU counts for both on Meteor Lake, whose low-power cores are on another tile than its L3.
const E_CORE: usize = 1;
const LOW_POWER_E_CORE: usize = 2;

/// Frequencies and capacities that differ by a smaller factor are of one kind: the favoured cores of a design are a few percent faster than
/// its others (Turbo Boost Max 3.0).
const SAME_KIND_RATIO: f64 = 1.1;

/// What tells a kind from another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum KindKey {
    /// Index in `HYBRID_PMUS`.
    Pmu(usize),
    /// The design by the main ID register of Arm, and the classes of capacity and frequency.
    Speed(Option<&'static str>, Option<usize>, Option<usize>),
}

/// The kinds of the online cores, which have these caches, the fastest first; none where all are alike.
pub(super) fn core_kinds(
    root: FileRoot<'_>,
    online: &Fact<Vec<u32>>,
    caches: &[CacheInstances],
) -> Result<(Vec<CoreKind>, String), String> {
    let cpus = required(online)?;
    let pmu_cpus = HYBRID_PMUS.map(|(pmu, _)| {
        root.text(&format!("/sys/devices/{pmu}/cpus")).and_then(|list| non_empty_cpu_list(&list)).unwrap_or_default()
    });
    let last_level =
        |&cpu: &u32| caches.iter().filter(|group| group.sharers_of(cpu).is_some()).map(|group| group.level).max();
    let e_core_level = pmu_cpus[E_CORE].iter().filter_map(last_level).max();
    let is_low_power = |cpu| last_level(&cpu).is_some_and(|level| Some(level) < e_core_level);
    let designs = cpu::arm_designs(root);
    // A speed that is stated for some CPUs only says nothing of the others.
    let speeds = |file: &str| -> BTreeMap<u32, f64> {
        let speed = |cpu: &u32| root.text(&format!("{CPU_DIRECTORY}/cpu{cpu}/{file}"))?.parse().ok();
        cpus.iter().map(|cpu| Some((*cpu, speed(cpu)?))).collect::<Option<_>>().unwrap_or_default()
    };
    let (capacities, kilohertz) = (speeds("cpu_capacity"), speeds("cpufreq/cpuinfo_max_freq"));
    let (capacity_floors, kilohertz_floors) = (class_floors(&capacities), class_floors(&kilohertz));
    let class =
        |speed: Option<&f64>, floors: &[f64]| speed.map(|speed| floors.iter().filter(|&floor| floor <= speed).count());
    let mut kinds: BTreeMap<KindKey, CoreKind> = BTreeMap::new();
    for &cpu in cpus {
        let key = match pmu_cpus.iter().position(|cpus| cpus.contains(&cpu)) {
            Some(E_CORE) if is_low_power(cpu) => KindKey::Pmu(LOW_POWER_E_CORE),
            Some(pmu) => KindKey::Pmu(pmu),
            None => KindKey::Speed(
                designs.get(&cpu).copied(),
                class(capacities.get(&cpu), &capacity_floors),
                class(kilohertz.get(&cpu), &kilohertz_floors),
            ),
        };
        let name = match key {
            KindKey::Pmu(pmu) => HYBRID_PMUS[pmu].1,
            KindKey::Speed(design, _, _) => design.unwrap_or("core"),
        };
        let kind = kinds.entry(key).or_insert_with(|| CoreKind {
            name: name.to_owned(),
            cpus: Vec::new(),
            maximum_hz: None,
            capacity: None,
        });
        kind.cpus.push(cpu);
        let maximum_hz = kilohertz.get(&cpu).map(|kilohertz| kilohertz * 1e3);
        kind.maximum_hz = [kind.maximum_hz, maximum_hz].into_iter().flatten().reduce(f64::max);
        kind.capacity = kind.capacity.max(capacities.get(&cpu).map(|capacity| *capacity as u32));
    }
    let source = match kinds.keys().any(|key| matches!(key, KindKey::Pmu(_))) {
        true => "/sys/devices/cpu_*/cpus".to_owned(),
        false => format!("{CPU_DIRECTORY}/cpu*, {}", cpu::CPUINFO),
    };
    if kinds.len() < 2 {
        return Ok((Vec::new(), source));
    }
    let speed = |kind: &CoreKind| (kind.capacity, kind.maximum_hz.map(|hz| hz as u64));
    let mut kinds: Vec<(KindKey, CoreKind)> = kinds.into_iter().collect();
    kinds.indirect_sort_by(|(a_key, a), (b_key, b)| match (a_key, b_key) {
        (KindKey::Pmu(a), KindKey::Pmu(b)) => a.cmp(b),
        _ => speed(b).cmp(&speed(a)),
    });
    let mut kinds: Vec<CoreKind> = kinds.into_iter().map(|(_, kind)| kind).collect();
    add_speed_to_equal_names(&mut kinds);
    Ok((kinds, source))
}

/// The lowest speed of each class, ascending: a class begins where a speed is above the lowest of the class before by more than that factor.
fn class_floors(speeds: &BTreeMap<u32, f64>) -> Vec<f64> {
    let mut values: Vec<f64> = speeds.values().copied().collect();
    values.sort_by(f64::total_cmp);
    let mut floors: Vec<f64> = Vec::new();
    for value in values {
        if floors.last().is_none_or(|floor| value > floor * SAME_KIND_RATIO) {
            floors.push(value);
        }
    }
    floors
}

/// Cores of one design that differ in speed have it in their names.
fn add_speed_to_equal_names(kinds: &mut [CoreKind]) {
    let names: Vec<String> = kinds.iter().map(|kind| kind.name.clone()).collect();
    for kind in kinds {
        if names.iter().filter(|name| **name == kind.name).count() > 1 {
            match (kind.maximum_hz, kind.capacity) {
                (Some(hz), _) => kind.name += &format!(" up to {}", stated_value(hz, Unit::Hertz, 3)),
                (None, Some(capacity)) => kind.name += &format!(" of capacity {capacity}"),
                (None, None) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::caches::cache_instances;
    use super::*;
    use crate::tests::FixtureTree;

    /// The kinds of a machine whose CPUs have these files.
    fn kinds(cpus: u32, files: &[(&str, &str)], per_cpu: impl Fn(u32) -> Vec<(&'static str, String)>) -> Vec<CoreKind> {
        let tree = FixtureTree::default();
        for (path, text) in files {
            tree.fill(path, text);
        }
        for cpu in 0..cpus {
            for (file, text) in per_cpu(cpu) {
                tree.fill(&format!("sys/devices/system/cpu/cpu{cpu}/{file}"), &text);
            }
        }
        let online: Fact<Vec<u32>> = Fact::known((0..cpus).collect(), "a test");
        let root = FileRoot::new(tree.path());
        let caches = cache_instances(root, online.get().unwrap());
        core_kinds(root, &online, caches.get().map_or(&[][..], Vec::as_slice)).unwrap().0
    }

    fn names_and_cpus(kinds: &[CoreKind]) -> Vec<(&str, &[u32])> {
        kinds.iter().map(|kind| (kind.name.as_str(), kind.cpus.as_slice())).collect()
    }

    #[test]
    fn pmus_name_the_cores_of_hybrid_processors() {
        let pmus = [
            ("sys/devices/cpu_core/cpus", "0-3"),
            ("sys/devices/cpu_atom/cpus", "4-5"),
            ("sys/devices/cpu_lowpower/cpus", "6"),
        ];
        // The E-cores of a low-power tile may state a higher frequency than the others.
        let kinds = kinds(7, &pmus, |cpu| {
            vec![("cpufreq/cpuinfo_max_freq", ["4900000", "3600000"][usize::from(cpu > 3)].into())]
        });
        assert_eq!(names_and_cpus(&kinds), [("P-core", &[0, 1, 2, 3][..]), ("E-core", &[4, 5]), ("LP E-core", &[6])]);
        assert_eq!(kinds[0].maximum_hz, Some(4.9e9));
    }

    #[test]
    fn e_cores_without_the_l3_of_others_are_low_power_cores() {
        let pmus = [("sys/devices/cpu_core/cpus", "0"), ("sys/devices/cpu_atom/cpus", "1-3")];
        let last_cache = |levels: [&'static str; 4]| {
            kinds(4, &pmus, |cpu| {
                vec![
                    ("cache/index0/level", levels[cpu as usize].into()),
                    ("cache/index0/type", "Unified".into()),
                    ("cache/index0/size", "2048K".into()),
                ]
            })
        };
        let meteor_lake = last_cache(["3", "3", "3", "2"]);
        assert_eq!(names_and_cpus(&meteor_lake), [("P-core", &[0][..]), ("E-core", &[1, 2]), ("LP E-core", &[3])]);
        // On Lunar Lake no efficiency core has the L3.
        let lunar_lake = last_cache(["3", "2", "2", "2"]);
        assert_eq!(names_and_cpus(&lunar_lake), [("P-core", &[0][..]), ("E-core", &[1, 2, 3])]);
    }

    #[test]
    fn favoured_cores_are_no_kind_of_their_own() {
        let favoured =
            |cpu: u32| vec![("cpufreq/cpuinfo_max_freq", ["5000000", "4800000"][usize::from(cpu > 1)].into())];
        assert_eq!(kinds(8, &[], favoured), []);
    }

    #[test]
    fn frequency_of_some_cpus_makes_no_kind() {
        let first_only = |cpu: u32| match cpu {
            0 => vec![("cpufreq/cpuinfo_max_freq", "800000".into())],
            _ => Vec::new(),
        };
        assert_eq!(kinds(2, &[], first_only), []);
    }

    #[test]
    fn frequency_alone_tells_kinds_apart() {
        let compact =
            |cpu: u32| vec![("cpufreq/cpuinfo_max_freq", ["3300000", "5100000"][usize::from(cpu < 4)].into())];
        let kinds = kinds(12, &[], compact);
        assert_eq!(
            names_and_cpus(&kinds),
            [("core up to 5.1 GHz", &[0, 1, 2, 3][..]), ("core up to 3.3 GHz", &[4, 5, 6, 7, 8, 9, 10, 11])]
        );
    }

    #[test]
    fn arm_kinds_are_named_by_design_and_ordered_by_capacity() {
        let block = |cpu: u32, part: &str| format!("processor : {cpu}\nCPU implementer : 0x41\nCPU part : {part}\n\n");
        let cpuinfo = block(0, "0xd05") + &block(1, "0xd05") + &block(2, "0xd0b") + &block(3, "0xd0b");
        let capacity = |cpu: u32| vec![("cpu_capacity", ["414", "414", "1024", "800"][cpu as usize].into())];
        let kinds = kinds(4, &[("proc/cpuinfo", &cpuinfo)], capacity);
        assert_eq!(
            names_and_cpus(&kinds),
            [("Cortex-A76 of capacity 1024", &[2][..]), ("Cortex-A76 of capacity 800", &[3]), ("Cortex-A55", &[0, 1])]
        );
    }
}
