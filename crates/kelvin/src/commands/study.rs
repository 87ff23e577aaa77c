//! `kelvin study`: one of the long experiments, or a measure of a plain run in its full form.

mod load;

use std::collections::BTreeSet;
use std::time::Duration;

use kelvin_core::catalogue::os;
use kelvin_core::catalogue::transfer::{TIME, TransferFiles, has_kernel_end};
use kelvin_core::units::bytes;
use kelvin_core::{Case, SkipReason};
use kelvin_harness::{Effort, Plan, PlanUnit, ProbeKind};
use kelvin_sys::kmod::{KernelSocket, KmodDevice};

use crate::class_members::ComparedMachines;
use crate::cli::{Budget, StudyArgs, similar_word};
use crate::cli_error::{CliError, CmdResult};
use crate::commands::page_table;
use crate::commands::run::{TextOutput, measure_and_show, plan_run};
use crate::output;
use crate::placement::LocalMachine;
use crate::run_schedule::{MAX_QUICK_TIME, RunDefaults};
use crate::selection::{OptionStudies, plan_names, with_file_sizes};
use crate::study_defaults::StudyExtent;
use crate::study_selection::{PAGE_TABLE_STUDY, StudySelection};

pub use load::disk_rate;

/// Rounds of every combination: as many as show a spread, which take as long as they take.
const ALL_TRANSFERS_ROUNDS: u32 = 3;

/// Least time limit of a round of transfers: 364 MB at 10 MB/s, received and compared, and as much again.
const TRANSFER_ROUND_LIMIT: Duration = Duration::from_secs(120);
/// Least time limit of a round of ten seconds or more: 100 million calls of a microsecond each.
const LONG_ROUND_LIMIT: Duration = Duration::from_secs(100);

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
    if selection.is_load() {
        let extent = usize::from(!args.quick) + usize::from(args.thorough);
        return load::load(args, &run_defaults(selection.defaults()[extent]));
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
    let (mut options, mut defaults) = (args.options.clone(), run_defaults(selection.defaults()[extent]));
    let min_round_limit = match moved_bytes {
        0 if selection.has_long_rounds() => LONG_ROUND_LIMIT,
        0 => Duration::ZERO,
        _ => TRANSFER_ROUND_LIMIT,
    };
    options.round_limit = options.round_limit.max(min_round_limit);
    defaults.max_time = args.quick.then_some(MAX_QUICK_TIME);
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

fn run_defaults(StudyExtent { seconds, rounds }: StudyExtent) -> RunDefaults {
    RunDefaults::new("study", seconds, rounds)
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
        return Err(absent_value(measured_units().map(|unit| &unit.case), (axis, value)));
    }
    let is_selected = |case: &Case| {
        values.iter().all(|(axis, _)| values.iter().any(|value| value.0 == *axis && has_value(case, value)))
    };
    if !measured_units().any(|unit| is_selected(&unit.case)) {
        bail!("--only: no case of this study has all of these values");
    }
    Ok(plan.retain_cases(is_selected))
}

/// That no case has this value of an axis: what there is, and what is near.
fn absent_value<'a>(cases: impl Iterator<Item = &'a Case>, (axis, value): (&str, &str)) -> CliError {
    let values: Vec<(&str, String)> =
        cases.flat_map(Case::iter).map(|(name, value)| (name.as_str(), value.to_string())).collect();
    let of_axis: BTreeSet<&str> = values.iter().filter(|(name, _)| *name == axis).map(|(_, value)| &**value).collect();
    let axes: BTreeSet<&str> = values.iter().map(|(name, _)| *name).collect();
    let (word, words) = if of_axis.is_empty() { (axis, &axes) } else { (value, &of_axis) };
    let what = if of_axis.is_empty() { "its axes are".to_owned() } else { format!("{axis} is") };
    let near = similar_word(word, words.iter().copied()).map(|word| format!("; did you mean {word}?"));
    let list = output::first_names(words.iter().copied());
    CliError::new(
        format!("--only {axis}={value}"),
        format!("no case of this study has it; {what} {list}{}", near.unwrap_or_default()),
    )
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
