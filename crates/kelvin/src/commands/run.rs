//! `kelvin run`: measure, print the table, store the run, write the report.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use kelvin_analysis::{Analysis, Outcome};
use kelvin_core::{Labels, Need, Reference, RunHeader, RunStatus};
use kelvin_file::output_file::OutputFile;
use kelvin_harness::{Effort, Plan, PlanUnit, Probe, ProbeKind, RunObserver, supervise};
use kelvin_report::{Html, Json, Render, Report};
use kelvin_store::labels;

use crate::budget::BudgetedPlan;
use crate::class_members::ComparedMachines;
use crate::cli::{DestinationArgs, RunArgs, StoreArgs, SweepArgs};
use crate::cli_error::{CliError, CmdResult, EXIT_WITH_FAILURES};
use crate::commands::{explain, open_existing_store, open_local_store, open_store, report};
use crate::costs::{CostConditions, Costs};
use crate::gaps;
use crate::measure::{FinishedRun, MAX_QUICK_TIME, RunOptions, effort_defaults, measure};
use crate::output;
use crate::placement::LocalMachine;
use crate::redact::Redaction;
use crate::run_context::RunContext;
use crate::run_writer::RunWriter;
use crate::selection::{Selection, plan_names, studies_that_need};

/// `kelvin run`.
pub fn run(args: &RunArgs) -> CmdResult {
    let here = LocalMachine::read()?;
    let effort = match (args.quick, args.thorough) {
        (true, _) => Effort::Quick,
        (_, true) => Effort::Thorough,
        _ => Effort::Default,
    };
    let beside = ComparedMachines::from_names(&args.beside)?;
    let plan = Selection::parse(&args.names, "kelvin study")?.plan(&args.measure, &here, effort)?;
    let (plan, more) = with_rivals(plan, args.rivals, &here, effort)?;
    let (mode, budget, rounds) = effort_defaults(effort, area_blocks(&plan) + more);
    let causes = if effort == Effort::Quick { 0.0 } else { gaps::GAPS_BUDGET_SHARE };
    let (most, told) = (args.quick.then_some(MAX_QUICK_TIME), Redaction::from_flag(args.to.with_private));
    let wishes = RunOptions {
        mode,
        budget,
        max_budget: most,
        rounds,
        causes_share: causes,
        args: &args.measure,
        redaction: told,
        members: Some(&beside.members),
    };
    let text = match (args.full, args.names.is_empty()) {
        (true, _) => TextOutput::Full,
        (_, true) => TextOutput::Screen,
        (_, false) => TextOutput::ScreenAndTables,
    };
    execute(here, plan, &wishes, &RunDestination { text, ..RunDestination::new(&args.to, beside.published) })
}

/// `kelvin file sweep`: the area of files and disks with all its points.
pub fn sweep(args: &SweepArgs) -> CmdResult {
    let here = LocalMachine::read()?;
    let effort = Effort::Thorough;
    let plan = plan_names(ProbeKind::Measure, &["file".to_owned()], &here, effort)?;
    let (plan, more) = with_rivals(plan, args.rivals, &here, effort)?;
    let (mode, budget, rounds) = effort_defaults(effort, area_blocks(&plan) + more);
    let told = Redaction::from_flag(args.to.with_private);
    let wishes = RunOptions {
        mode,
        budget,
        max_budget: None,
        rounds,
        causes_share: gaps::GAPS_BUDGET_SHARE,
        args: &args.measure,
        redaction: told,
        members: Some(&[]),
    };
    execute(here, plan, &wishes, &RunDestination::new(&args.to, Vec::new()))
}

/// Blocks of time for the studies of `--rivals` of an area: starting a program such as fio takes far longer than any other round, and
/// there are more of files than of all else.
fn rival_blocks(area: &str) -> usize {
    if area == "file" { 4 } else { 1 }
}

/// The plan with other programs beside kelvin, if asked for, and the blocks of time that they take.
fn with_rivals(plan: Plan, wanted: bool, here: &LocalMachine, effort: Effort) -> Result<(Plan, usize), CliError> {
    if !wanted {
        return Ok((plan, 0));
    }
    let area = |probe: &Probe| probe.metrics[0].area();
    let is_asked = |of: &str| plan.units.iter().any(|unit: &PlanUnit| !unit.only_input && area(unit.probe) == of);
    let studies = studies_that_need(Need::Rivals);
    let areas: BTreeSet<&str> = studies.iter().map(|study| area(study)).collect();
    let studies: Vec<&Probe> = studies.into_iter().filter(|study| is_asked(area(study))).collect();
    if studies.is_empty() {
        let areas: Vec<&str> = areas.into_iter().collect();
        return Err(CliError::msg(format!(
            "--rivals: other programs measure only {}, and this run measures none of these; name one too (kelvin run file --rivals), \
             or drop --rivals",
            areas.join(", ")
        )));
    }
    let asked: BTreeSet<&str> = studies.iter().map(|study| area(study)).collect();
    let names: Vec<String> = studies.iter().map(|study| study.id.to_string()).collect();
    let rivals = plan_names(ProbeKind::Study, &names, here, effort)?;
    Ok((plan.merge(rivals), asked.into_iter().map(rival_blocks).sum()))
}

/// What a run prints for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextOutput {
    /// The first screen, or that of a study; all tables where there is none.
    Screen,
    /// The same, then the tables of what was asked for.
    ScreenAndTables,
    /// All tables and conclusions.
    Full,
}

/// Where a run goes.
pub struct RunDestination<'a> {
    /// The store, unless the run is not stored.
    pub store: Option<&'a StoreArgs>,
    /// What is said of the run there.
    pub labels: Labels,
    /// The page, unless none is written.
    pub page: Option<&'a Path>,
    /// The JSON that standard output gets, if it gets that.
    pub json: Option<Json>,
    /// What standard output gets else.
    pub text: TextOutput,
    /// Published machines to compare with.
    pub references: Vec<Reference>,
}

impl<'a> RunDestination<'a> {
    /// The command line, and the machines that it names; the screen is printed where there is one.
    pub fn new(args: &'a DestinationArgs, references: Vec<Reference>) -> Self {
        Self {
            store: (!args.no_store).then_some(&args.store),
            labels: labels(&args.tags, args.note.as_deref()),
            page: (!args.no_report).then_some(&args.report),
            json: args.json.then_some(Json { pretty: false, samples: args.with_samples }),
            text: TextOutput::Screen,
            references,
        }
    }
}

/// Measures a plan and shows it. Everything that can be wrong with the options is checked first.
pub fn execute(here: LocalMachine, plan: Plan, wishes: &RunOptions<'_>, to: &RunDestination<'_>) -> CmdResult {
    let fitted = fit_to_budget(plan, wishes, &here, to)?;
    measure_and_then(here, &fitted, wishes, to, show_run)
}

/// A plan and its time, as far as earlier runs tell.
///
/// # Errors
/// If nothing fits, or the store fails.
pub fn fit_to_budget(
    plan: Plan,
    wishes: &RunOptions<'_>,
    here: &LocalMachine,
    to: &RunDestination<'_>,
) -> Result<BudgetedPlan, CliError> {
    BudgetedPlan::new(plan, wishes, &expected_costs(here, wishes, to)?)
}

/// Measures a plan in fresh processes, and does with the run what is to be done with it.
///
/// # Errors
/// A run that never began or cannot be written, and those of `then`.
pub fn measure_and_then<T>(
    here: LocalMachine,
    fitted: &BudgetedPlan,
    wishes: &RunOptions<'_>,
    to: &RunDestination<'_>,
    then: impl FnOnce(FinishedRun, &RunDestination<'_>, Option<OutputFile>) -> Result<T, CliError>,
) -> Result<T, CliError> {
    let (plan, budget) = (&fitted.plan, fitted.budget);
    let wishes = RunOptions { budget: budget.seconds, ..*wishes };
    let mut checked = ReadyRun::new(here, plan, &wishes, to)?;
    fitted.announce(&checked.destination_text());
    checked.context.write_remote_files(plan, wishes.args)?;
    let options = checked.context.options(plan, budget, wishes.args.round_limit);
    let conduct = |outline: &RunHeader, judge: &mut dyn RunObserver| {
        supervise(plan, outline, &options, judge);
    };
    checked.measure_then(plan, &wishes, budget.causes, conduct, then)
}

/// What its rounds are expected to take. A store that is not there yet teaches nothing, and is made once all options are checked.
fn expected_costs(here: &LocalMachine, wishes: &RunOptions<'_>, to: &RunDestination<'_>) -> Result<Costs, CliError> {
    let Some(store) = to.store.map(open_existing_store).transpose()?.flatten() else {
        return Ok(Costs::from_table(&here.machine));
    };
    let conditions = CostConditions::new(&here.machine, here.allowed.len(), &wishes.args.dir);
    Costs::from_store(&here.machine, conditions, &store)
}

/// A run whose options are checked, and whose ends are open.
pub struct ReadyRun<'a> {
    /// The setup.
    pub context: RunContext,
    page: Option<OutputFile>,
    writer: Option<RunWriter>,
    to: &'a RunDestination<'a>,
}

impl<'a> ReadyRun<'a> {
    /// Checks all options.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn new(
        here: LocalMachine,
        plan: &Plan,
        wishes: &RunOptions<'_>,
        to: &'a RunDestination<'a>,
    ) -> Result<Self, CliError> {
        let prepared = RunContext::new(here, plan, wishes.args)?;
        let page = to.page.map(OutputFile::find).transpose().map_err(CliError::msg)?;
        let keeper = |args| RunWriter::new(open_store(args)?, to.labels.clone(), open_local_store);
        let keeper = to.store.map(keeper).transpose()?;
        Ok(Self { context: prepared, page, writer: keeper, to })
    }

    /// Where the run will be written, in words.
    pub fn destination_text(&self) -> String {
        let stored = self.writer.as_ref().map_or("not stored".into(), |keeper| {
            let by_way = keeper.spool_file().map(|file| format!(" by way of {file}")).unwrap_or_default();
            format!("stored in {}{by_way}", keeper.store().name())
        });
        let page = self.to.page.map_or("no report".into(), |page| format!("report in {}", page.display()));
        format!("{stored}; {page}")
    }

    /// Measures a plan as it is conducted, and shows the run.
    ///
    /// # Errors
    /// A run that never began, or cannot be written.
    pub fn measure(
        self,
        plan: &Plan,
        wishes: &RunOptions<'_>,
        conduct: impl FnOnce(&RunHeader, &mut dyn RunObserver),
    ) -> CmdResult {
        self.measure_then(plan, wishes, Duration::ZERO, conduct, show_run)
    }

    fn measure_then<T>(
        self,
        plan: &Plan,
        wishes: &RunOptions<'_>,
        causes: Duration,
        conduct: impl FnOnce(&RunHeader, &mut dyn RunObserver),
        then: impl FnOnce(FinishedRun, &RunDestination<'_>, Option<OutputFile>) -> Result<T, CliError>,
    ) -> Result<T, CliError> {
        let mut finished = measure(plan, wishes, (self.context, self.writer.as_ref()), causes, conduct)?;
        finished.run.labels = self.to.labels.clone();
        let done = then(finished, self.to, self.page);
        if let (Some(keeper), Some(args)) = (self.writer, self.to.store) {
            send_to_server(keeper, args);
        }
        done
    }
}

/// Sends a run to its server, if it has one. The connection of before the run may be long dead, so that this is a new one.
fn send_to_server(keeper: RunWriter, args: &StoreArgs) {
    let Some(file) = keeper.spool_file().map(str::to_owned) else { return };
    // From here on the run is no longer being recorded.
    drop(keeper);
    if let Err(error) = open_store(args) {
        output::eprint_line(format_args!(
            "kelvin: the run waits in {file} for the next kelvin that reaches its server: {error}"
        ));
    }
}

/// Blocks of time for the areas of a plan: the processor and the operating system share one.
pub fn area_blocks(plan: &Plan) -> usize {
    let block = |area: &'static str| if area == "cpu" { "os" } else { area };
    let asked = plan.units.iter().filter(|unit| !unit.only_input);
    asked.map(|unit| block(unit.probe.metrics[0].area())).collect::<BTreeSet<_>>().len().max(1)
}

/// Prints a finished run, writes its page, and says how well it went.
fn show_run(finished: FinishedRun, to: &RunDestination<'_>, page: Option<OutputFile>) -> CmdResult {
    let FinishedRun { run, analysis, store_error: trouble } = finished;
    let probes = explain::probe_texts();
    let beside = Report { run: &run, analysis: &analysis, references: &to.references, probes: &probes };
    let printed = match to.json {
        Some(json) => output::print_raw(|out| json.render(&beside, out)),
        None => print_report(&beside, to),
    };
    let paged = page.map_or(Ok(()), |page| {
        let all = if to.references.is_empty() { kelvin_analysis::references() } else { &to.references };
        page.write(|out: &mut dyn Write| Html.render(&Report { references: all, ..beside }, out)).map_err(CliError::msg)
    });
    if let Some(trouble) = trouble {
        // All may be on one disk that is full.
        for fault in [printed, paged].into_iter().filter_map(Result::err) {
            output::eprint_line(format_args!("kelvin: {fault}"));
        }
        return Err(trouble);
    }
    printed?;
    paged?;
    Ok(exit_code(&analysis, &run.status))
}

/// Prints a run for people.
fn print_report(report: &Report<'_>, to: &RunDestination<'_>) -> Result<(), CliError> {
    let stored = to.store.is_some().then(|| report::full_report_hint("last"));
    let page = to.page.map(|page| (page.display().to_string(), "the same, drawn".to_owned()));
    let more: Vec<(String, String)> = stored.into_iter().chain(page).chain([report::why_hint()]).collect();
    let color = output::uses_color();
    output::print_raw(|out| match to.text {
        TextOutput::Full => output::terminal(color).render(report, out),
        TextOutput::Screen => output::first_screen(color, false, &more).render(report, out),
        TextOutput::ScreenAndTables => output::first_screen(color, true, &more).render(report, out),
    })
}

/// 0, or 1 if a probe failed or the run was interrupted.
fn exit_code(analysis: &Analysis, ended: &RunStatus) -> ExitCode {
    let failed = analysis.results.iter().any(|result| matches!(result.outcome, Outcome::Failed(_)));
    let whole = *ended == RunStatus::Complete;
    if failed || !whole { ExitCode::from(EXIT_WITH_FAILURES) } else { ExitCode::SUCCESS }
}
