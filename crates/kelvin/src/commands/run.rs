//! `kelvin run`: measure, print the table, store the run, write the report.

use std::collections::BTreeSet;
use std::path::Path;

use kelvin_analysis::Outcome;
use kelvin_core::{Need, Reference, RunStatus};
use kelvin_file::output_file::OutputFile;
use kelvin_harness::{Effort, Plan, Probe, ProbeKind};
use kelvin_report::{Json, Render, Report};
use kelvin_store::labels;

use crate::class_members::ComparedMachines;
use crate::cli::{DestinationArgs, ReportFormat, RunArgs, RunOptions, StoreArgs, SweepArgs};
use crate::cli_error::{CliError, CmdResult};
use crate::commands::explain;
use crate::commands::report::{self, ReportExtent, write_report};
use crate::costs::{CostConditions, Costs};
use crate::host_claim::HostClaim;
use crate::launcher::LaunchedProcess;
use crate::measure::FinishedRun;
use crate::output;
use crate::peer_agent::requested_agent;
use crate::placement::LocalMachine;
use crate::redact::Redaction;
use crate::run_directory::RunDirectory;
use crate::run_plan::RunPlan;
use crate::run_schedule::{RunDefaults, RunSchedule};
use crate::run_writer::RunWriter;
use crate::selection::{Selection, plan_names, studies_that_need, with_agent_cpus, with_file_sizes};
use crate::start_delay::wait_for_host;
use crate::stores::{open_existing_store, open_store};

/// `kelvin run`.
pub fn run(mut args: RunArgs) -> CmdResult {
    let process = LaunchedProcess::from_environment(|name| std::env::var(name).ok());
    let claim = process.as_ref().map(HostClaim::of_process).transpose()?;
    if let (Some(process), Some(None)) = (&process, &claim) {
        notice!("{} measures nothing: another rank measures this host", process.name());
        return Ok(true);
    }
    if let Some(limit) = args.jitter {
        wait_for_host(limit)?;
    }
    let local = LocalMachine::read(args.options.cpu)?;
    if let Some(process) = &process {
        let name = kelvin_machine::host_name(Path::new("/"));
        args.to.add_launch(process.tags(name.get().map(String::as_str)));
        report_binding(process, &local);
    }
    let effort = match (args.quick, args.thorough) {
        (true, _) => Effort::Quick,
        (_, true) => Effort::Thorough,
        _ => Effort::Default,
    };
    let machines = ComparedMachines::from_names(&args.compare_with)?;
    let cases = Selection::parse(&args.names, "kelvin study")?.plan(&args.options, &local, effort)?;
    let (cases, rival_blocks) = with_rivals(cases, args.rivals, &local, effort)?;
    let defaults = RunDefaults::of_effort(effort, area_blocks(&cases) + rival_blocks, local.allowed.len());
    let text = match (args.full, args.names.is_empty()) {
        (true, _) => TextOutput::Full,
        (_, true) => TextOutput::Screen,
        (_, false) => TextOutput::ScreenAndTables,
    };
    let plan = plan_run(local, cases, &defaults, &args.options, args.to.store())?;
    if args.dry_run {
        return show_forecast(&plan.schedule, args.to.json);
    }
    measure_and_show(plan, &args.to, machines, text)
}

/// Prints what a run would measure.
fn show_forecast(schedule: &RunSchedule, is_json: bool) -> CmdResult {
    let forecast = schedule.forecast();
    match is_json {
        true => output::print_json(&forecast)?,
        false => output::print(|out| {
            writeln!(out, "{}", schedule.summary())?;
            forecast.omitted.iter().try_for_each(|case| writeln!(out, "left out: {case}"))
        })?,
    }
    Ok(true)
}

/// Reports that a launched process may use only a part of the CPUs.
fn report_binding(process: &LaunchedProcess, local: &LocalMachine) {
    let online = local.machine.topology.online.get().map_or(0, Vec::len);
    let group_cpus = kelvin_machine::group_cpus(Path::new("/")).map(|cpus| cpus.len());
    if let Some(text) = process.binding_text(&local.allowed, online, group_cpus) {
        notice!("{text}");
    }
}

/// `kelvin file sweep`: the area of files and disks with all its points.
pub fn sweep(args: &SweepArgs) -> CmdResult {
    let (local, effort) = (LocalMachine::read(args.options.cpu)?, Effort::Thorough);
    let cases = with_file_sizes(plan_names(ProbeKind::Measure, &["file".to_owned()], &local, effort)?, &args.options)?;
    let (cases, rival_blocks) = with_rivals(cases, args.rivals, &local, effort)?;
    let defaults = RunDefaults::of_effort(effort, area_blocks(&cases) + rival_blocks, local.allowed.len());
    let plan = plan_run(local, cases, &defaults, &args.options, args.to.store())?;
    measure_and_show(plan, &args.to, ComparedMachines::default(), TextOutput::Screen)
}

/// The plan with other programs next to kelvin, if requested, and the blocks of time that they take.
fn with_rivals(
    plan: Plan,
    is_requested: bool,
    local: &LocalMachine,
    effort: Effort,
) -> Result<(Plan, usize), CliError> {
    if !is_requested {
        return Ok((plan, 0));
    }
    let area = |probe: &Probe| probe.metrics[0].area();
    let measured_areas: BTreeSet<&str> =
        plan.units.iter().filter(|unit| !unit.only_input).map(|unit| area(unit.probe)).collect();
    let studies = studies_that_need(Need::Rivals);
    let areas: BTreeSet<&str> = studies.iter().map(|study| area(study)).collect();
    let requested_studies = studies.iter().filter(|study| measured_areas.contains(area(study)));
    let names: Vec<String> = requested_studies.map(|study| study.id.to_string()).collect();
    if names.is_empty() {
        bail!(
            "--rivals: other programs measure only {}, and this run measures none of these; name one too (kelvin run file --rivals), \
             or drop --rivals",
            areas.into_iter().collect::<Vec<_>>().join(", ")
        );
    }
    let rivals = plan_names(ProbeKind::Study, &names, local, effort)?;
    // Starting a program such as fio takes far longer than any other round, and there are more of files than of all else.
    let blocks = areas.intersection(&measured_areas).map(|&area| if area == "file" { 4 } else { 1 }).sum();
    Ok((plan.merge(rivals), blocks))
}

/// The plan of a run whose rounds are expected to take as long as in earlier runs of a store.
///
/// # Errors
/// If nothing fits, the store fails, or an option is wrong here.
pub fn plan_run(
    local: LocalMachine,
    cases: Plan,
    defaults: &RunDefaults,
    options: &RunOptions,
    store: Option<&StoreArgs>,
) -> Result<RunPlan, CliError> {
    let costs = expected_costs(&local, options, store)?;
    let agent = requested_agent(options)?;
    let cases = agent.iter().fold(cases, |cases, (_, path)| with_agent_cpus(cases, path));
    RunPlan::with_agent(local, RunSchedule::fit(cases, options, defaults, &costs)?, options, agent)
}

/// What rounds are expected to take. A store that is not there yet has no costs, and is made once all options are checked.
///
/// # Errors
/// If the store fails.
pub fn expected_costs(
    local: &LocalMachine,
    options: &RunOptions,
    store: Option<&StoreArgs>,
) -> Result<Costs, CliError> {
    let Some(store) = store.map(open_existing_store).transpose()?.flatten() else {
        return Ok(Costs::from_table(&local.machine));
    };
    let conditions = CostConditions::new(&local.machine, local.allowed.len(), &options.dir);
    Costs::from_store(&local.machine, conditions, &store)
}

/// Measures a plan and shows the run. Everything that can be wrong with the options is checked first.
pub fn measure_and_show(
    mut plan: RunPlan,
    destination: &DestinationArgs,
    machines: ComparedMachines,
    text: TextOutput,
) -> CmdResult {
    let output = RunOutput::open(&mut plan, destination, machines, text)?;
    plan.schedule.announce(&plan.destination_text(&destination.report_paths()));
    output.show(plan.measure()?)
}

/// What a run prints for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextOutput {
    /// The first screen, or that of a study; all tables where there is none.
    Screen,
    /// Like `Screen`, then the tables of what was asked for.
    ScreenAndTables,
    /// All tables and conclusions.
    Full,
}

/// Where a finished run is shown.
pub struct RunOutput<'a> {
    destination: &'a DestinationArgs,
    reports: Vec<(ReportFormat, OutputFile)>,
    text: TextOutput,
    /// Published machines to compare with.
    references: Vec<Reference>,
}

impl<'a> RunOutput<'a> {
    /// Opens what the run is written to, which the plan then has.
    ///
    /// # Errors
    /// A report or a store that cannot be written; flags that do not go together.
    pub fn open(
        plan: &mut RunPlan,
        destination: &'a DestinationArgs,
        machines: ComparedMachines,
        text: TextOutput,
    ) -> Result<Self, CliError> {
        let is_json = destination.json || destination.reports().any(|(format, _)| format == ReportFormat::Json);
        if destination.with_samples && !is_json {
            bail!("--with-samples: only JSON may lack samples: leave it out, or give --json or -o FILE.json");
        }
        let open = |(format, path)| Ok::<_, CliError>((format, OutputFile::find(path)?));
        let reports = destination.reports().map(open).collect::<Result<_, _>>()?;
        plan.redaction = Redaction::from_flag(destination.with_private);
        plan.members = Some(machines.members);
        plan.labels = labels(&destination.tags, destination.note.as_deref());
        plan.kept = destination.keep;
        plan.run_directory = destination.out.as_deref().map(RunDirectory::open).transpose()?;
        plan.writer = destination.store().map(RunWriter::open).transpose()?;
        Ok(Self { destination, reports, text, references: machines.published })
    }

    /// Prints a finished run, writes its reports, sends it to its server, and returns whether it succeeded.
    pub fn show(self, finished: FinishedRun) -> CmdResult {
        let FinishedRun { run, analysis, store_error, file, spool_file } = finished;
        let probes = explain::probe_texts();
        let report = Report { run: &run, analysis: &analysis, references: &self.references, probes: &probes };
        let print_result = if self.destination.json {
            output::print_raw(|out| Json { pretty: false, samples: self.destination.with_samples }.render(&report, out))
        } else {
            print_run(self.destination, self.text, &report)
        };
        let report_result = self.reports.into_iter().try_for_each(|(format, file)| {
            let is_page = format == ReportFormat::Html && self.references.is_empty();
            let references = if is_page { kelvin_analysis::references() } else { &self.references };
            let report = Report { references, ..report };
            let extent = ReportExtent { samples: self.destination.with_samples, full: true, color: false };
            file.write(|out| write_report(format, (&report, extent), &[], out)).map_err(CliError::from)
        });
        if let Some(file) = spool_file {
            send_to_server(&file, &self.destination.store);
        }
        if let Some(file) = file {
            notice!("the run is in {}", file.display());
        }
        if let Some(store_error) = store_error {
            // All may be on one disk that is full.
            for fault in [print_result, report_result].into_iter().filter_map(Result::err) {
                notice!("{fault}");
            }
            return Err(store_error);
        }
        print_result?;
        report_result?;
        let is_failed = analysis.results.iter().any(|result| matches!(result.outcome, Outcome::Failed(_)));
        Ok(!is_failed && run.status == RunStatus::Complete)
    }
}

/// Prints a run for people.
fn print_run(destination: &DestinationArgs, text: TextOutput, report: &Report<'_>) -> Result<(), CliError> {
    let pages = destination.reports().filter(|(format, _)| *format == ReportFormat::Html);
    let page = pages.map(|(_, path)| (path.display().to_string(), "the same, drawn".to_owned())).next();
    let stored = destination.store().map(|_| [report::full_report_hint("last"), report::page_hint("last")]);
    let (full, page_command) = stored.map_or((None, None), |[full, page]| (Some(full), Some(page)));
    let hints: Vec<(String, String)> =
        full.into_iter().chain(page.or(page_command)).chain([report::why_hint()]).collect();
    let color = output::uses_color();
    output::print_raw(|out| match text {
        TextOutput::Full => output::terminal(color).render(report, out),
        TextOutput::Screen => output::first_screen(color, false, &hints).render(report, out),
        TextOutput::ScreenAndTables => output::first_screen(color, true, &hints).render(report, out),
    })
}

/// Sends a run that waits in a file to its server. The connection of before the run may be long dead, so that this is a new one.
pub fn send_to_server(file: &str, store: &StoreArgs) {
    if let Err(error) = open_store(store) {
        notice!("the run waits in {file} for the next kelvin that reaches its server: {error}");
    }
}

/// Blocks of time for the areas of a plan: the processor and the operating system share one.
pub fn area_blocks(plan: &Plan) -> usize {
    let block = |area: &'static str| if area == "cpu" { "os" } else { area };
    let units = plan.units.iter().filter(|unit| !unit.only_input);
    units.map(|unit| block(unit.probe.metrics[0].area())).collect::<BTreeSet<_>>().len().max(1)
}
