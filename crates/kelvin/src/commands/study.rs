//! `kelvin study`: one of the long experiments, or a measure of a plain run in its full form.

mod load;

use std::collections::BTreeSet;
use std::time::Duration;

use kelvin_core::catalogue::file::{CACHE_SIZE, WHOLE_FILE};
use kelvin_core::catalogue::load::THROUGHPUT;
use kelvin_core::catalogue::os;
use kelvin_core::catalogue::transfer::{TIME, TransferFiles, has_kernel_end};
use kelvin_core::units::bytes;
use kelvin_core::{Case, SkipReason};
use kelvin_harness::{Effort, Plan, PlanUnit, Probe, ProbeKind};
use kelvin_sys::kmod::{KernelSocket, KmodDevice};

use crate::class_members::ComparedMachines;
use crate::cli::{Budget, StudyArgs};
use crate::cli_error::{CliError, CmdResult};
use crate::commands::page_table;
use crate::commands::run::{TextOutput, measure_and_show, plan_run};
use crate::output;
use crate::placement::LocalMachine;
use crate::run_schedule::{MAX_QUICK_TIME, RunDefaults};
use crate::selection::{OptionStudies, plan_names, with_file_sizes};

pub use load::disk_rate;

/// Of a study, with `--quick`, without, and with `--thorough`.
const STUDY_DEFAULTS: [RunDefaults; 3] =
    [RunDefaults::new("study", 20.0, 3), RunDefaults::new("study", 60.0, 5), RunDefaults::new("study", 600.0, 50)];
/// Of the study of transfers, whose rounds have 5 trials, but one of the large files: 100 trials of the others as published, and as
/// many of the large files with `--thorough`. A budget is what its rounds take where 512 bytes a call move 400 MB/s.
const TRANSFER_DEFAULTS: [RunDefaults; 3] =
    [RunDefaults::new("study", 120.0, 5), RunDefaults::new("study", 900.0, 20), RunDefaults::new("study", 9000.0, 100)];

/// Of studies whose rounds take ten seconds or more: files read whole, most of it 100 million calls, and the size of the file cache,
/// which each round looks for anew.
const LONG_ROUND_DEFAULTS: [RunDefaults; 3] =
    [RunDefaults::new("study", 20.0, 3), RunDefaults::new("study", 300.0, 4), RunDefaults::new("study", 600.0, 20)];

/// Rounds of every combination: as many as show a spread, which take as long as they take.
const ALL_TRANSFERS_ROUNDS: u32 = 3;

/// Least time limit of a round of transfers: 364 MB at 10 MB/s, received and compared, and as much again.
const TRANSFER_ROUND_LIMIT: Duration = Duration::from_secs(120);
/// Least time limit of a round of [`LONG_ROUND_DEFAULTS`]: 100 million calls of a microsecond each.
const LONG_ROUND_LIMIT: Duration = Duration::from_secs(100);

/// The study that prints page-table entries.
const PAGE_TABLE_STUDY: &str = "page";

/// `kelvin study`.
pub fn study(args: &StudyArgs) -> CmdResult {
    if args.published {
        if let Some(option) = args.load.first_given_option() {
            bail!("{option}: --published measures nothing: leave it out");
        }
        return print_published(&args.name, args.to.json).map(|()| true);
    }
    if args.name == PAGE_TABLE_STUDY {
        return page_table::page_table(args).map(|()| true);
    }
    let selection = StudySelection::from_name(&args.name)?;
    if selection.probes.iter().all(|probe| probe.metrics[0].area() == THROUGHPUT.area()) {
        return load::load(args);
    }
    if let Some(option) = args.load.first_given_option() {
        bail!("{option}: the study load alone has it: leave it out");
    }
    let local = LocalMachine::read(args.options.cpu)?;
    for (probe, option_studies) in
        selection.probes.iter().filter_map(|probe| Some((probe, OptionStudies::for_probe(probe)?)))
    {
        option_studies.check_given(if selection.probes.len() == 1 { probe.id } else { &args.name }, &args.options)?;
    }
    // A study has all its points; a probe has some that a plain run leaves out.
    let (kind, is_system) = (selection.probes[0].kind, args.name == os::STUDY.as_str());
    let default_effort = if kind == ProbeKind::Study || is_system { Effort::Default } else { Effort::Thorough };
    let (effort, extent) = match (args.quick, args.thorough) {
        (true, _) => (Effort::Quick, 0),
        (_, false) => (default_effort, 1),
        (_, true) => (Effort::Thorough, 2),
    };
    let plan = plan_names(kind, &selection.names, &local, effort)?;
    let plan = with_file_sizes(plan, &args.options)?;
    let plan = if args.full { with_all_combinations(plan, &selection)? } else { plan };
    let plan = without_devices(select_cases(plan, &args.only)?);
    // What is compared must be measured close together: states of the machine last for seconds.
    let plan = plan.with_blocks(|case| TransferFiles::of(case).map_or(0, |files| 1 + files as u32));
    // Bytes that one round of each case moves into files.
    let moved_bytes: u64 = plan.units.iter().map(|unit| kelvin_probes::transferred_bytes(&unit.case)).sum();
    let is_long = selection.probes.iter().any(|probe| [WHOLE_FILE.id, CACHE_SIZE.id].iter().any(|id| *id == *probe.id));
    let (mut options, limit) = (args.options.clone(), args.options.round_limit);
    let (mut defaults, round_limit) = match moved_bytes {
        0 if is_long => (LONG_ROUND_DEFAULTS[extent], limit.max(LONG_ROUND_LIMIT)),
        0 => (STUDY_DEFAULTS[extent], limit),
        _ => (TRANSFER_DEFAULTS[extent], limit.max(TRANSFER_ROUND_LIMIT)),
    };
    (options.round_limit, defaults.max_time) = (round_limit, args.quick.then_some(MAX_QUICK_TIME));
    if moved_bytes > 0 && args.full {
        defaults.rounds = ALL_TRANSFERS_ROUNDS;
        if options.budget == Budget::Default {
            options.budget = Budget::MinimumRounds;
        }
    }
    if moved_bytes > 0 {
        let rounds = options.rounds.unwrap_or(defaults.rounds);
        notice!(
            "{} or more will be moved through the page cache, in {rounds} rounds or more; each target is removed before it is \
             written back, and what reaches the device nevertheless is at most {} (--write-limit)",
            bytes(moved_bytes * u64::from(rounds)),
            bytes(options.write_limit)
        );
    }
    let plan = plan_run(local, plan, &defaults, &options, args.to.store())?;
    measure_and_show(plan, &args.to, ComparedMachines::default(), TextOutput::Screen)
}

/// The study of transfers with every combination of their factors.
fn with_all_combinations(mut plan: Plan, selection: &StudySelection) -> Result<Plan, CliError> {
    let Some(study) = selection.probes.iter().copied().find(|probe| probe.id == TIME.id.as_str()) else {
        bail!("--full: the study transfer alone has combinations: leave it out, or give --thorough");
    };
    let existing_cases: BTreeSet<Case> =
        plan.units.iter().filter(|unit| !unit.only_input).map(|unit| unit.case.clone()).collect();
    let new_cases = kelvin_probes::all_transfer_cases().into_iter().filter(|case| !existing_cases.contains(case));
    plan.units.extend(new_cases.map(|case| PlanUnit::new(study, case)));
    Ok(plan)
}

/// Prints a published study as its figures alone judge it, as text or JSON.
fn print_published(name: &str, as_json: bool) -> Result<(), CliError> {
    let study = kelvin_analysis::published_load();
    if study.id != *name {
        bail!("--published: no published study is called '{name}'; there is {}", study.id);
    }
    match as_json {
        true => output::print_json(&study),
        false => output::print_raw(|out| output::terminal(output::uses_color()).write_study(&study, out)),
    }
}

/// The cases with these values of their axes.
fn select_cases(plan: Plan, values: &[(String, String)]) -> Result<Plan, CliError> {
    if values.is_empty() {
        return Ok(plan);
    }
    let has_value = |case: &Case, (axis, value): &(String, String)| {
        case.get(axis).is_some_and(|case_value| case_value.matches_text(value))
    };
    let measured_units = || plan.units.iter().filter(|unit| !unit.only_input);
    if let Some((axis, value)) = values.iter().find(|value| !measured_units().any(|unit| has_value(&unit.case, value)))
    {
        bail!("--only {axis}={value}: no case of this study has it");
    }
    let is_selected = |case: &Case| {
        values.iter().all(|(axis, _)| values.iter().any(|value| value.0 == *axis && has_value(case, value)))
    };
    if !measured_units().any(|unit| is_selected(&unit.case)) {
        bail!("--only: no case of this study has all of these values");
    }
    Ok(plan.retain_cases(is_selected))
}

/// Without the cases of ends in the kernel where its module cannot be used, which is reported.
fn without_devices(plan: Plan) -> Plan {
    let mut devices = [KmodDevice::Sender, KmodDevice::Receiver].into_iter();
    let Some(error) = devices.find_map(|device| KernelSocket::open(device).err()) else { return plan };
    let reason = SkipReason::new(format!("needs the kernel module: {error}"));
    let kernel_units = plan.units.iter().filter(|unit| has_kernel_end(&unit.case));
    let skipped_cases: Vec<_> = kernel_units.map(|unit| (unit.probe, unit.case.clone(), reason.clone())).collect();
    if skipped_cases.is_empty() {
        return plan;
    }
    notice!("{} cases with ends in the kernel are left out: {error}", skipped_cases.len());
    let mut plan = plan.retain_cases(|case| !has_kernel_end(case));
    plan.omissions.extend(skipped_cases);
    plan
}

/// What a name chooses.
struct StudySelection {
    /// Probes of one kind, at least one.
    probes: Vec<&'static Probe>,
    /// What selects them.
    names: Vec<String>,
}

impl StudySelection {
    /// One study, all of it: its area where that is all one study, as that of transfers, of files in memory and of others.
    fn of_probe(probe: &'static Probe) -> Self {
        let name = if probe.id == TIME.id.as_str() { TIME.area() } else { probe.id };
        Self { probes: vec![probe], names: vec![name.to_owned()] }
    }

    /// By a name that is printed somewhere: a study or its short name, a probe, or a metric, an area, a study of a report, or any leading
    /// part of an id. The last ones choose the probes of a plain run that they lead; the studies only where there are none.
    fn from_name(name: &str) -> Result<Self, CliError> {
        let probes = kelvin_probes::all();
        let probes_of_kind = |kind: ProbeKind| probes.iter().copied().filter(move |probe| probe.kind == kind);
        let study = probes_of_kind(ProbeKind::Study).find(|probe| probe.id == name || short_name(probe) == name);
        if let Some(probe) = study.or_else(|| probes_of_kind(ProbeKind::Measure).find(|probe| probe.id == name)) {
            return Ok(Self::of_probe(probe));
        }
        let names = kelvin_analysis::study_metrics(name);
        let selected_probes = |kind| -> Vec<&'static Probe> {
            probes_of_kind(kind).filter(|probe| names.iter().any(|name| probe.is_selected_by(name))).collect()
        };
        for kind in [ProbeKind::Measure, ProbeKind::Study] {
            let probes = selected_probes(kind);
            match probes[..] {
                [] => {}
                [probe] => return Ok(Self::of_probe(probe)),
                _ => return Ok(Self { probes, names: names.iter().map(ToString::to_string).collect() }),
            }
        }
        if !selected_probes(ProbeKind::Truth).is_empty() {
            bail!("'{name}' is a known truth, not a study: `kelvin selfcheck` measures it");
        }
        let studies = probes_of_kind(ProbeKind::Study).flat_map(|probe| [short_name(probe), probe.id]);
        let probe_ids = probes_of_kind(ProbeKind::Measure).map(|probe| probe.id);
        let valid_names =
            studies.chain(probe_ids).flat_map(dotted_prefixes).chain([PAGE_TABLE_STUDY, os::STUDY.as_str()]);
        let nearest = nearest_names(name, valid_names).join(", ");
        bail!("no study is called '{name}'; the nearest names are {nearest}; `kelvin study --help` lists all")
    }
}

/// What a study is called: the last part of its id, or its area where it has one to itself.
fn short_name(study: &Probe) -> &'static str {
    if [TIME.id, THROUGHPUT.id].iter().any(|id| id.as_str() == study.id) {
        study.metrics[0].area()
    } else {
        study.id.rsplit('.').next().unwrap_or(study.id)
    }
}

/// A name and all of its leading parts: `file`, `file.blocksize`, `file.blocksize.read`.
fn dotted_prefixes(name: &'static str) -> impl Iterator<Item = &'static str> {
    name.match_indices('.').map(move |(end, _)| &name[..end]).chain([name])
}

/// The three names that are nearest to one, in upper or lower case, none twice.
fn nearest_names<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let name = &name.to_lowercase();
    // A name that begins or ends like it is nearer than one of the same length.
    let distance = |candidate: &str| {
        let last = candidate.rsplit('.').next().unwrap_or(candidate);
        let is_part = !name.is_empty() && (candidate.starts_with(name.as_str()) || last.starts_with(name.as_str()));
        (!is_part, strsim::damerau_levenshtein(name, candidate).min(1 + strsim::damerau_levenshtein(name, last)))
    };
    let mut nearest: Vec<&str> = candidates.collect::<BTreeSet<&str>>().into_iter().collect();
    nearest.sort_by_key(|candidate| distance(candidate));
    nearest.truncate(3);
    nearest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::flag_help;

    const HELP: &str = include_str!("../cli/help/study.txt");

    /// The names that the help lists before its examples.
    fn listed_names() -> Vec<&'static str> {
        let lines = HELP.lines().take_while(|line| *line != "Examples:").filter_map(|line| line.strip_prefix("  "));
        lines.flat_map(|line| line.split(',')).map(str::trim).filter(|name| !name.is_empty()).collect()
    }

    #[test]
    fn unknown_study_suggests_three_nearest() {
        let error_text = |name: &str| StudySelection::from_name(name).map(|_| ()).unwrap_err().to_string();
        assert!(error_text("transfre").contains("the nearest names are transfer, "), "{}", error_text("transfre"));
        let nearest =
            nearest_names("peer", ["net.peer.rtt", "net.peer.rtt", "net.peer", "os.tasks", "peers"].into_iter());
        assert_eq!(nearest, ["net.peer", "peers", "net.peer.rtt"]);
        assert!(error_text("TASKS").contains("the nearest names are tasks, "), "{}", error_text("TASKS"));
    }

    /// The ids of the probes that a name chooses.
    fn selected_probe_ids(name: &str) -> Vec<&'static str> {
        let selection = StudySelection::from_name(name).unwrap_or_else(|error| panic!("{error}"));
        selection.probes.iter().map(|probe| probe.id).collect()
    }

    #[test]
    fn report_study_names_choose_their_probes() {
        assert_eq!(selected_probe_ids("file.blocksize"), ["file.blocksize.read", "file.blocksize.write"]);
        let round_trips = selected_probe_ids("net.rtt");
        for id in ["net.rtt.tcp", "net.rtt.udp", "net.rtt.unix", "net.stack.tcp", "net.connect"] {
            assert!(round_trips.contains(&id), "{round_trips:?}");
        }
        assert!(!round_trips.iter().any(|id| id.starts_with("net.bandwidth")), "{round_trips:?}");
        assert!(selected_probe_ids("net.bandwidth").iter().all(|id| id.starts_with("net.bandwidth.")));
        assert!(
            selected_probe_ids("net.peer").len() > 5
                && selected_probe_ids("net.peer").iter().all(|id| id.starts_with("net.peer."))
        );
        // One study is the same by each of its names, and by what it measures.
        for name in ["tasks", "os.tasks", "os.tasks.elapsed"] {
            assert_eq!(selected_probe_ids(name), ["os.tasks"], "{name}");
        }
        for name in ["transfer", "transfer.time", "transfer.rate"] {
            let StudySelection { names, .. } = StudySelection::from_name(name).unwrap();
            assert_eq!(names, ["transfer"], "{name}");
        }
    }

    #[test]
    fn every_printed_id_can_be_studied() {
        let probes = kelvin_probes::all();
        let ids =
            probes.iter().flat_map(|probe| probe.metrics.iter().map(|metric| metric.id.as_str()).chain([probe.id]));
        let is_truth = |name: &str| kelvin_core::is_dotted_prefix("truth", name);
        let is_fault =
            |name: &str| probes.iter().any(|probe| probe.kind == ProbeKind::Fault && probe.is_selected_by(name));
        for name in ids.flat_map(dotted_prefixes).filter(|name| !is_fault(name)) {
            match StudySelection::from_name(name) {
                Ok(selection) => assert!(!selection.probes.is_empty() && !is_truth(name), "{name}"),
                Err(error) => assert!(is_truth(name) && error.to_string().contains("kelvin selfcheck"), "{error}"),
            }
        }
    }

    #[test]
    fn every_study_is_in_help_and_book() {
        let names = listed_names();
        for probe in kelvin_probes::all().into_iter().filter(|probe| probe.kind == ProbeKind::Study) {
            let is_listed = names.iter().any(|name| *name == short_name(probe) || probe.is_selected_by(name));
            assert!(is_listed, "{}: {names:?}", probe.id);
        }
        for id in kelvin_analysis::study_ids() {
            let metrics = kelvin_analysis::study_metrics(id.as_str());
            let is_selected_study = |probe: &&Probe| {
                probe.kind == ProbeKind::Study && metrics.iter().any(|name| probe.is_selected_by(name))
            };
            let is_study = kelvin_probes::all().iter().any(is_selected_study);
            assert!(is_study || names.contains(&id.as_str()), "{id}: {names:?}");
        }
        let is_known = |name: &&str| *name == PAGE_TABLE_STUDY || StudySelection::from_name(name).is_ok();
        assert!(names.iter().all(is_known), "{names:?}");
        for name in
            ["tasks", "whole", "net.peer", "file.remote", "load", "file.blocksize", "net.rtt", "net.bandwidth", "page"]
        {
            assert_eq!(names.iter().filter(|listed| **listed == name).count(), 1, "{name}: {names:?}");
        }
        let page = include_str!("../../../../docs/src/quick-start.md");
        for name in names {
            assert!(page.contains(&format!("`{name}`")), "{name}");
        }
    }

    #[test]
    fn help_states_default_time_and_rounds() {
        let time = |extent: &RunDefaults| match extent.seconds {
            seconds if seconds < 60.0 => format!("{seconds}s"),
            seconds => format!("{}m", seconds / 60.0),
        };
        let (budget, rounds) = (flag_help("study", "budget"), flag_help("study", "rounds"));
        let [quick, default, thorough] = &STUDY_DEFAULTS;
        let times = [&quick, &default, &thorough].map(|extent| time(extent));
        let words = format!("[default: {}; {} with --quick, {} with --thorough;", times[1], times[0], times[2]);
        assert!(budget.contains(&words), "{words}: {budget}");
        let words = format!(
            "[default: {}; {} with --quick, {} with --thorough;",
            default.rounds, quick.rounds, thorough.rounds
        );
        assert!(rounds.contains(&words), "{words}: {rounds}");
        for (name, [quick, default, thorough]) in [
            ("transfer", &TRANSFER_DEFAULTS),
            ("file.whole and file.cache_size", &LONG_ROUND_DEFAULTS),
            ("load", &load::LOAD_DEFAULTS),
        ] {
            let words = format!("for {name} {}, {} and {}", time(default), time(quick), time(thorough));
            assert!(budget.contains(&words), "{words}: {budget}");
            let words = format!("for {name} {}, {} and {}", default.rounds, quick.rounds, thorough.rounds);
            assert!(rounds.contains(&words), "{words}: {rounds}");
        }
    }
}
