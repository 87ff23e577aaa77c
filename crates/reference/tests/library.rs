//! The data of the library: that they are complete, name what exists, and are possible.

use std::collections::{BTreeMap, BTreeSet};

use kelvin_core::catalogue::{find, mem};
use kelvin_core::{Better, Case, Name, Unit};
use kelvin_reference::{
    ClassRange, LibraryMachine, MIN_KNOWN_MEMBERS, MachineClass, MachineFigure, MachineKind, MetricArea,
    PublishedFigure, ReferenceLibrary, Virtualisation, built_in_library,
};

/// What the spec asks for at least.
const MIN_MACHINES: usize = 40;

fn machines() -> &'static [LibraryMachine] {
    built_in_library().machines()
}

/// The library without one machine, which is judged by the others.
fn library_without(id: Name) -> ReferenceLibrary {
    ReferenceLibrary::new(machines().iter().filter(|machine| machine.id != id).cloned().collect())
}

fn machine_count(is_counted: impl Fn(&LibraryMachine) -> bool) -> usize {
    machines().iter().filter(|machine| is_counted(machine)).count()
}

#[test]
fn library_covers_kinds_designers_instances() {
    assert!(machines().len() >= MIN_MACHINES, "{}", machines().len());
    for kind in [MachineKind::Server, MachineKind::Desktop, MachineKind::Laptop, MachineKind::Board] {
        assert!(machine_count(|machine| machine.kind == kind) >= 10, "{kind}");
    }
    for instance in [Virtualisation::BareMetal, Virtualisation::Guest] {
        assert!(machine_count(|machine| machine.instance == instance) >= 40, "{instance}");
    }
    let core_count =
        |prefixes: &[&str]| machine_count(|machine| prefixes.iter().any(|start| machine.core.starts_with(start)));
    let minimums = [
        ("AMD", core_count(&["Zen"]), 40),
        ("Intel", core_count(&["Cascade Lake", "Skylake", "Ice Lake", "Sapphire Rapids", "Broadwell"]), 40),
        ("Arm", core_count(&["Neoverse", "Cortex"]), 40),
        ("RISC-V", core_count(&["U74", "C9", "P550", "X60"]), 5),
    ];
    for (designer, count, minimum) in minimums {
        assert!(count >= minimum, "{designer}: {count}");
    }
}

#[test]
fn metrics_and_axes_are_in_catalogue() {
    for machine in machines() {
        for row in &machine.rows {
            let metric = find(row.metric).unwrap_or_else(|| panic!("{}: no metric {}", machine.id, row.metric));
            let axes: BTreeSet<Name> = metric.axes().map(|axis| axis.name).collect();
            let case: BTreeSet<Name> = row.case.iter().map(|(axis, _)| axis).collect();
            assert_eq!(case, axes, "{}: {} ({})", machine.id, row.metric, row.case);
            assert_ne!((metric.better, metric.unit), (Better::Neither, Unit::Count), "{}: {}", machine.id, row.metric);
        }
    }
}

/// The words of axes in rows, which the catalogue's enums must know.
#[test]
fn axis_words_are_in_catalogue() {
    use kelvin_core::catalogue::{PairPlacement, os};
    let words = |axis: &str| -> BTreeSet<String> {
        let rows = machines().iter().flat_map(|machine| &machine.rows);
        rows.filter_map(|row| row.case.get(axis)).map(|value| value.to_string()).collect()
    };
    let word_set = |names: Vec<&str>| -> BTreeSet<String> { names.into_iter().map(str::to_owned).collect() };
    let axes = [
        ("pages", word_set(mem::PageSize::ALL.iter().map(|word| word.name()).collect())),
        ("cpus", word_set(mem::MemoryCpus::ALL.iter().map(|word| word.name()).collect())),
        ("placement", word_set(PairPlacement::ALL.iter().map(|word| word.name()).collect())),
        ("call", word_set(os::NullCall::ALL.iter().map(|word| word.name()).collect())),
    ];
    for (axis, expected) in axes {
        let used = words(axis);
        assert!(!used.is_empty() && used.is_subset(&expected), "{axis}: {used:?}");
    }
}

/// Lowest and highest value that a machine of these years can have, in base units.
fn possible_range(metric: Name) -> (f64, f64) {
    const AREAS: &[(&str, f64, f64)] = &[
        ("cpu.latency", 1e-10, 2e-8),
        ("mem.latency", 2e-10, 1e-6),
        ("mem.core_to_core", 2e-9, 1e-6),
        ("mem.bandwidth", 1e8, 1e13),
        ("os.syscall", 2e-8, 5e-5),
        ("os.signal", 3e-8, 5e-5),
        ("os.switch", 1e-7, 1e-3),
        ("os.process", 1e-5, 5e-2),
        ("os.ipc.latency", 1e-6, 1e-3),
        ("os.ipc", 1e7, 1e11),
        ("net.bandwidth", 1e6, 1e12),
        ("net", 1e-6, 1e-2),
    ];
    let is_prefix = |name: &str| kelvin_core::is_dotted_prefix(name, &metric);
    let row = AREAS.iter().find(|(name, _, _)| is_prefix(name));
    let (_, low, high) = row.unwrap_or_else(|| panic!("no range for {metric}"));
    (*low, *high)
}

#[test]
fn values_are_possible_and_in_base_units() {
    for machine in machines() {
        for row in &machine.rows {
            let (low, high) = possible_range(row.metric);
            assert!((low..=high).contains(&row.value), "{}: {} ({}) {}", machine.id, row.metric, row.case, row.value);
            let unit = find(row.metric).map(|metric| metric.unit).expect("a metric of the catalogue");
            assert!(
                matches!(unit, Unit::Nanoseconds | Unit::Hertz | Unit::Bytes | Unit::BytesPerSecond | Unit::PerSecond),
                "{}: {}",
                machine.id,
                row.metric
            );
            assert!((1.0..=2.0).contains(&row.method.factor), "{}: {}", machine.id, row.method.id);
        }
    }
}

/// A larger working set is never much faster, and the same set in huge pages never much slower: a slip in copying shows here.
#[test]
fn latencies_rise_with_the_working_set() {
    for machine in machines() {
        for pages in ["base", "huge"] {
            let mut points: Vec<(u64, f64)> = machine
                .rows
                .iter()
                .filter(|row| {
                    row.metric == MEMORY_LATENCY && row.case.get("pages").is_some_and(|word| word.to_string() == pages)
                })
                .map(|row| (row.case.get("bytes").expect("an axis").to_string().parse().expect("a number"), row.value))
                .collect();
            points.sort_by_key(|point| point.0);
            for pair in points.windows(2) {
                assert!(pair[1].1 > 0.6 * pair[0].1, "{} in {pages} pages: {pair:?}", machine.id);
            }
        }
    }
}

const MEMORY_KINDS: [&str; 7] = ["DDR2", "DDR3", "DDR4", "DDR5", "LPDDR3", "LPDDR4", "LPDDR5"];

#[test]
fn rows_have_sources_machines_are_unique() {
    let (mut ids, mut places) = (BTreeSet::new(), BTreeSet::new());
    for machine in machines() {
        assert!(ids.insert(machine.id), "{} is there twice", machine.id);
        let place = (machine.source.id, machine.at.as_str(), machine.cpu.as_str(), machine.name.as_str());
        assert!(places.insert(place), "{} is {place:?} again", machine.id);
        assert!(machine.source.url.starts_with("https://") && !machine.at.is_empty(), "{}", machine.id);
        assert!(!machine.rows.is_empty() && !machine.cpu.is_empty(), "{}", machine.id);
        let is_known = machine.memory.is_none_or(|kind| MEMORY_KINDS.contains(&kind.as_str()));
        assert!(is_known, "{}: {:?}", machine.id, machine.memory);
        let mut figures = BTreeSet::new();
        for row in &machine.rows {
            assert!(
                figures.insert((row.metric, row.case.clone())),
                "{}: {} ({}) twice",
                machine.id,
                row.metric,
                row.case
            );
            assert!(!row.method.tool.is_empty() && !row.method.differs.is_empty(), "{}: {}", machine.id, row.method.id);
        }
    }
}

#[test]
fn every_machine_file_is_built_in() {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("machines");
    let sources: BTreeSet<String> = machines().iter().map(|machine| format!("{}.toml", machine.source.id)).collect();
    let files = std::fs::read_dir(directory).expect("the directory of machines");
    let files: BTreeSet<String> =
        files.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    assert_eq!(sources, files, "src/machine_files.rs lists each file, named by its source");
}

#[test]
fn class_members_are_unique() {
    for area in [MetricArea::Hardware, MetricArea::Kernel] {
        let classes = built_in_library().classes(area);
        let members: usize = classes.iter().map(|(_, members)| members.len()).sum();
        assert_eq!(
            members,
            machine_count(|machine| machine.rows.iter().any(|row| MetricArea::from_metric(row.metric) == area))
        );
        for (class, members) in &classes {
            assert!(members.iter().all(|member| class.contains(member)), "{class}");
        }
    }
    let large_classes =
        built_in_library().classes(MetricArea::Hardware).iter().filter(|(_, members)| members.len() >= 5).count();
    assert!(large_classes >= 15, "{large_classes} classes have five members");
}

/// The figure that a machine's class is judged by here, and its range.
fn class_figure(id: &'static str, case: &str) -> (MachineClass, PublishedFigure, ClassRange) {
    let machine = built_in_library().find(Name::new(id)).unwrap_or_else(|| panic!("{id} is a machine of the library"));
    let row = machine.rows.iter().find(|row| row.case.to_string() == case && row.metric == MEMORY_LATENCY);
    let row = row.unwrap_or_else(|| panic!("{id} has a figure at {case}"));
    let class = MachineClass::from_machine(machine, MetricArea::Hardware);
    let range = built_in_library().class_range(&class, MEMORY_LATENCY, &row.case, 0.9).expect("a range");
    (class, row.clone(), range)
}

const MEMORY_LATENCY: Name = Name::new("mem.latency");

#[test]
fn small_class_is_reported() {
    let (_, row, range) = class_figure("hetzner-cax11", "bytes=67108864 pages=base");
    assert!(range.low < row.value && row.value < range.high, "{} to {}", range.low, range.high);
    assert!(range.is_of_few_members(), "{} members", range.members);
}

#[test]
fn unknown_class_range_is_wider() {
    let (class, row, range) = class_figure("hetzner-cax11", "bytes=67108864 pages=base");
    let wider = built_in_library()
        .class_range(&MachineClass { core: Name::new("none"), ..class }, MEMORY_LATENCY, &row.case, 0.9)
        .expect("a range");
    assert!(wider.members == 0 && wider.high / wider.low >= range.high / range.low);

    let guest_class = built_in_library()
        .classes(MetricArea::Hardware)
        .into_iter()
        .find(|(class, _)| class.instance == Virtualisation::Guest);
    let (class, members) = guest_class.expect("a class of guests");
    let case = Case::new().with_word(mem::PageSize::Huge).with_number(mem::BYTES, 128 << 20);
    let range = built_in_library().class_range(&class, MEMORY_LATENCY, &case, 0.9).expect("a range");
    assert!(!range.is_of_few_members() && range.members <= members.len(), "{class}");
    let wider = built_in_library()
        .class_range(&MachineClass { core: Name::new("none"), ..class }, MEMORY_LATENCY, &case, 0.9)
        .expect("a range");
    assert!(wider.high / wider.low > range.high / range.low);
}

/// A figure that is twice what its class shows lies beyond the range of a class of many members.
#[test]
fn doubled_memory_latency_exceeds_most_ranges() {
    let case = Case::new().with_word(mem::PageSize::Huge).with_number(mem::BYTES, 128 << 20);
    let (mut exceeding, mut total) = (0, 0);
    for machine in machines() {
        let Some(row) = machine.figure(MEMORY_LATENCY, &case) else { continue };
        let class = MachineClass::from_machine(machine, MetricArea::Hardware);
        let library = library_without(machine.id);
        let Some(range) =
            library.class_range(&class, MEMORY_LATENCY, &case, 0.9).filter(|range| !range.is_of_few_members())
        else {
            continue;
        };
        total += 1;
        exceeding += u32::from(2.0 * row.value > range.high);
    }
    assert!(total > 50 && 2 * exceeding > total, "{exceeding} of {total}");
}

/// Each machine judged by all others: nine in ten of its figures lie in their ranges. The test's bounds are wider than the promise, for
/// machines are not as many as figures.
#[test]
fn ranges_cover_left_out_machines() {
    let mut areas: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
    // Every third one, for the time that all take.
    for machine in machines().iter().step_by(3) {
        let library = library_without(machine.id);
        for row in &machine.rows {
            let class = MachineClass::from_machine(machine, MetricArea::from_metric(row.metric));
            let Some(range) = library.class_range(&class, row.metric, &row.case, 0.9) else { continue };
            if range.members + range.related < 5 {
                continue;
            }
            let area = row.metric.as_str().split('.').next().expect("an area");
            let (covered, total) = areas.entry(area).or_default();
            *covered += u32::from((range.low..=range.high).contains(&row.value));
            *total += 1;
        }
    }
    for (area, (covered, total)) in areas {
        let share = f64::from(covered) / f64::from(total);
        assert!(total < 50 || (0.82..=0.98).contains(&share), "{area}: {covered} of {total}");
    }
}

/// How machines of a class come out, each judged by the others.
#[derive(Default)]
struct ClassJudgement {
    machines: u32,
    /// As they are: neither slower nor faster as a whole.
    as_usual: u32,
    /// All figures of memory one and a half times as slow, and twice: named.
    slow: [u32; 2],
    /// Greatest usual factor, of all of them.
    max_factors: Vec<f64>,
}

const SLOWDOWNS: [f64; 2] = [1.5, 2.0];

/// Each class of five members or more.
fn class_judgements() -> BTreeMap<String, ClassJudgement> {
    let mut judgements: BTreeMap<String, ClassJudgement> = BTreeMap::new();
    for machine in machines() {
        let class = MachineClass::from_machine(machine, MetricArea::Hardware);
        let library = library_without(machine.id);
        let rows = machine.rows.iter().filter(|row| row.metric.starts_with("mem."));
        let figures: Vec<MachineFigure> =
            rows.map(|row| MachineFigure { metric: row.metric, case: row.case.clone(), value: row.value }).collect();
        let factor = library.area_factor(&class, "mem", &figures, 0.95);
        let Some(factor) = factor.filter(|factor| factor.members.len() >= MIN_KNOWN_MEMBERS) else { continue };
        let judgement = judgements.entry(class.to_string()).or_default();
        judgement.machines += 1;
        judgement.as_usual += u32::from((factor.low..=factor.high).contains(&factor.factor));
        // All figures this many times as slow are a factor that is this many times as large.
        for (count, slowdown) in judgement.slow.iter_mut().zip(SLOWDOWNS) {
            *count += u32::from(slowdown * factor.factor > factor.high);
        }
        judgement.max_factors.push(factor.high);
    }
    judgements
}

/// All figures of memory of machines of a class of five or more, as they are and twice as slow: one factor for all distinguishes them.
#[test]
fn uniformly_slow_memory_is_found() {
    let judgements = class_judgements();
    let sum = |count_of: fn(&ClassJudgement) -> u32| judgements.values().map(count_of).sum::<u32>();
    let machines = sum(|judgement| judgement.machines);
    assert!(machines >= 100, "{machines} machines of classes with five members");
    let (as_usual, slow_count) = (sum(|judgement| judgement.as_usual), sum(|judgement| judgement.slow[1]));
    assert!(10 * slow_count >= 9 * machines, "{slow_count} of {machines} are found");
    assert!(10 * as_usual >= 9 * machines, "{as_usual} of {machines} are as usual");
    let mut table =
        "| class | machines | as usual | 1.5 times as slow: named | twice as slow: named | usual up to |\n".to_owned();
    table += "|---|--:|--:|--:|--:|--:|\n";
    for (class, judgement) in &judgements {
        let ClassJudgement { machines, as_usual, slow: [slow_count, slowest_count], .. } = judgement;
        let max_factor = kelvin_stats::median(&judgement.max_factors);
        table += &format!("| {class} | {machines} | {as_usual} | {slow_count} | {slowest_count} | {max_factor:.2} |\n");
    }
    kelvin_testing::assert_in_book("memory-as-a-whole", &table);
}

#[test]
fn uniform_slowdown_scales_area_factor() {
    let machine = built_in_library().find(Name::new("hetzner-cax11")).expect("a machine of the library");
    let class = MachineClass::from_machine(machine, MetricArea::Hardware);
    let slowed_figures = |times: f64| -> Vec<MachineFigure> {
        let slowed = |row: &PublishedFigure| {
            if row.metric.starts_with("mem.bandwidth") { row.value / times } else { row.value * times }
        };
        machine
            .rows
            .iter()
            .map(|row| MachineFigure { metric: row.metric, case: row.case.clone(), value: slowed(row) })
            .collect()
    };
    let factor =
        |times: f64| built_in_library().area_factor(&class, "mem", &slowed_figures(times), 0.95).expect("a factor");
    let (unscaled, doubled) = (factor(1.0), factor(2.0));
    assert!((doubled.factor / unscaled.factor - 2.0).abs() < 1e-9);
    assert_eq!((unscaled.low, unscaled.high, unscaled.figures), (doubled.low, doubled.high, doubled.figures));
}
